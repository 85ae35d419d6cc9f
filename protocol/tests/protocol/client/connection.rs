//! Connecting, versions, retries and the retry budget.

use std::time::Duration;

use piw_protocol::client::{Client, ClientError, ClientOptions, ConnectionState, RunRef, UnixConnector};
use piw_protocol::envelope::{Outcome, PACKAGE_VERSION};
use tokio::time::Instant;

use super::{Peer, receipt, start};

#[tokio::test(start_paused = true)]
async fn says_when_it_is_connected() {
    let (client, mut server) = start(ClientOptions::default());
    assert_eq!(*client.state().borrow(), ConnectionState::Connecting);
    let _peer = server.greet().await;
    client.ready().await.unwrap();
    assert_eq!(
        *client.state().borrow(),
        ConnectionState::Connected {
            connection_id: "scripted".into(),
            package_version: PACKAGE_VERSION.into()
        }
    );
}

#[tokio::test(start_paused = true)]
async fn stops_at_a_server_of_another_version() {
    let (client, mut server) = start(ClientOptions::default());
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.run_status("run-1").await }
    });
    tokio::task::yield_now().await;
    server.accept().await.hello("9.9.9").await;
    let error = client.ready().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("this client is version {PACKAGE_VERSION}, the server is version 9.9.9: restart the one that is older")
    );
    assert_eq!(*client.state().borrow(), ConnectionState::Stopped(error.clone()));
    assert_eq!(waiting.await.unwrap(), Err(error.clone()));
    assert_eq!(client.run_status("run-1").await, Err(error.clone()));
    assert!(
        client
            .watch_run("run-1")
            .first()
            .await
            .is_err_and(|found| found == error)
    );
    assert!(server.is_left_alone().await, "there is no second attempt");
}

#[tokio::test(start_paused = true)]
async fn retries_with_growing_delays_until_the_budget_is_spent_and_slowly_after() {
    let options = ClientOptions {
        connect_budget: 4,
        ..ClientOptions::default()
    };
    let (client, mut server) = start(options);
    server.refuse(true);
    let mut states = client.state();
    let mut seen = Vec::new();
    while seen.len() < 6 {
        states.changed().await.unwrap();
        seen.push((states.borrow_and_update().clone(), Instant::now()));
    }
    let mut previous = None;
    for (index, (state, at)) in seen.iter().enumerate() {
        let retry = match state {
            ConnectionState::Reconnecting(retry) if index < 3 => retry,
            ConnectionState::Blocked(retry) if index >= 3 => retry,
            other => panic!("attempt {index}: {other:?}"),
        };
        assert_eq!(retry.attempt as usize, index + 1);
        assert_eq!(retry.reason, "nobody listens");
        if let Some((delay, then)) = previous {
            let waited: Duration = at.duration_since(then);
            assert!(
                waited >= delay && waited < delay + Duration::from_millis(5),
                "{waited:?} for {delay:?}"
            );
        }
        previous = Some((retry.delay, *at));
    }
    let error = client.run_pause(&RunRef::current("run-1")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server at the scripted server cannot be reached after 6 attempts: nobody listens"
    );

    // The slow retry recovers by itself.
    server.refuse(false);
    let mut peer = server.greet().await;
    states
        .wait_for(|state| matches!(state, ConnectionState::Connected { .. }))
        .await
        .unwrap();
    let call = tokio::spawn(async move { client.run_pause(&RunRef::current("run-1")).await });
    let request = peer.request().await;
    peer.accept(&request, receipt()).await;
    assert_eq!(call.await.unwrap().unwrap().outcome, Outcome::Accepted);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_not_let_in_is_blocked_at_once_and_knocks_slowly() {
    let (client, mut server) = start(ClientOptions::default());
    let mut states = client.state();
    server.shut_out(true);
    let blocked = async |states: &mut tokio::sync::watch::Receiver<ConnectionState>| {
        states.changed().await.unwrap();
        match states.borrow_and_update().clone() {
            ConnectionState::Blocked(retry) => (retry, Instant::now()),
            other => panic!("{other:?}"),
        }
    };
    let (first, then) = blocked(&mut states).await;
    assert_eq!((first.attempt, first.reason.as_str()), (1, "not with this token"));
    let error = client.run_pause(&RunRef::current("run-1")).await.unwrap_err();
    assert!(error.to_string().ends_with("not with this token"), "{error}");
    // Then nobody listens: it stays blocked and slow.
    server.shut_out(false);
    server.refuse(true);
    let (second, now) = blocked(&mut states).await;
    assert_eq!((second.attempt, second.reason.as_str()), (2, "nobody listens"));
    assert!(now - then >= Duration::from_secs(11), "{:?}", now - then);
    server.refuse(false);
    let _peer = server.greet().await;
    states
        .wait_for(|state| matches!(state, ConnectionState::Connected { .. }))
        .await
        .unwrap();
    client.ready().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_impatient_client_reports_the_first_failure() {
    let (client, server) = start(ClientOptions::impatient());
    server.refuse(true);
    let error = client.ready().await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { attempts: 1, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_impatient_client_survives_a_restart_of_its_server() {
    let (client, mut server) = start(ClientOptions::impatient());
    let call = tokio::spawn(async move { client.run_cancel(&RunRef::current("run-1")).await });
    let first = server.greet().await.request().await;
    server.refuse(true);
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.refuse(false);
    let mut peer = server.greet().await;
    let second = peer.request().await;
    assert_eq!(first.idempotency_key, second.idempotency_key);
    peer.accept(&second, receipt()).await;
    assert_eq!(call.await.unwrap().unwrap().receipt.run_id, "run-1");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_given_up_after_a_while() {
    let (client, mut server) = start(ClientOptions::default());
    let peer = server.accept().await;
    let mut states = client.state();
    states.changed().await.unwrap();
    let state = states.borrow_and_update().clone();
    assert!(
        matches!(&state, ConnectionState::Reconnecting(retry) if retry.reason == "the server sent no hello"),
        "{state:?}"
    );
    drop(peer);
    let _peer = server.greet().await;
    client.ready().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hello_alone_does_not_renew_the_budget() {
    let options = ClientOptions {
        retry_budget: 5,
        ..ClientOptions::default()
    };
    let (client, mut server) = start(options);
    let _watch = client.watch_run("run-1");
    for _ in 0..5 {
        // A hello, and the end before the subscription is restored.
        let mut peer = server.greet().await;
        peer.request().await;
    }
    let mut states = client.state();
    let blocked = states
        .wait_for(|state| matches!(state, ConnectionState::Blocked(_)))
        .await
        .unwrap()
        .clone();
    let ConnectionState::Blocked(retry) = blocked else {
        unreachable!("waited for")
    };
    assert_eq!(
        (retry.attempt, retry.reason.as_str()),
        (5, "the server closed the connection")
    );

    // Restored once, the budget is whole again.
    let mut peer = server.greet().await;
    let request = peer.request().await;
    peer.accept(&request, serde_json::json!({})).await;
    assert!(peer.is_quiet(5).await);
    drop(peer);
    let state = states
        .wait_for(|state| matches!(state, ConnectionState::Reconnecting(_)))
        .await
        .unwrap()
        .clone();
    assert!(matches!(state, ConnectionState::Reconnecting(retry) if retry.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_breaks_every_connection_is_given_up() {
    let options = ClientOptions {
        retry_budget: 3,
        ..ClientOptions::default()
    };
    let (client, mut server) = start(options);
    let call = tokio::spawn(async move { client.run_pause(&RunRef::current("run-1")).await });
    for _ in 0..3 {
        server.greet().await.request().await;
    }
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { attempts: 3, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn ends_with_its_last_handle() {
    let (client, mut server) = start(ClientOptions::default());
    let mut peer = server.greet().await;
    client.ready().await.unwrap();
    let second = client.clone();
    drop(client);
    assert!(peer.is_quiet(5).await);
    drop(second);
    assert_eq!(peer.next().await, None);
    assert!(server.is_left_alone().await);
}

#[tokio::test]
async fn reaches_a_server_over_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut peer = Peer {
            stream: ours,
            decoder: Default::default(),
        };
        let mut stream = stream;
        let copy = tokio::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut theirs).await });
        peer.hello(PACKAGE_VERSION).await;
        let request = peer.request().await;
        peer.accept(&request, receipt()).await;
        drop(copy);
        peer.next().await
    });
    let client = Client::connect(UnixConnector::new(&path), ClientOptions::default())
        .await
        .unwrap();
    assert_eq!(client.target(), path.display().to_string());
    let done = client.run_cancel(&RunRef::at("run-1", 2)).await.unwrap();
    assert_eq!(done.receipt.run_revision, 3);
    drop(client);
    assert_eq!(server.await.unwrap(), None);

    let missing = Client::connect(
        UnixConnector::new(directory.path().join("none")),
        ClientOptions::impatient(),
    )
    .await;
    assert!(missing.unwrap_err().to_string().contains("No such file"));
}
