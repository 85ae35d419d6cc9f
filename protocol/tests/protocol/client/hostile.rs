//! Servers that break the protocol: each costs its connection, is named, and the client goes on with the next one.

use piw_protocol::canonical::CanonicalJson;
use piw_protocol::client::{ClientOptions, ConnectionState, RunRef};
use piw_protocol::envelope::{CONNECTION_SUBSCRIPTION, Event, EventKind, Outcome, PACKAGE_VERSION};
use piw_protocol::ops::OperationError;
use serde_json::json;

use super::{Peer, receipt, runs, start};

/// What a hostile server does after the client's first requests (a call, then a watch).
#[derive(Debug, Clone, Copy)]
enum Act {
    HalfAFrame,
    Garbage,
    NotCanonical,
    UnknownField,
    Flood,
    SecondHello,
    UnknownAnswer,
    EventOfAnotherKind,
    EventOfAnotherRun,
}

async fn act(peer: &mut Peer, act: Act) {
    let call = peer.request().await;
    let watch = peer.request().await;
    match act {
        Act::HalfAFrame => peer.raw(b"{\"outcome\":\"acc").await,
        Act::Garbage => peer.raw(b"\x00\xff\xfe garbage\n").await,
        Act::NotCanonical => peer.raw(b"{\"type\": \"response\"}\n").await,
        Act::UnknownField => {
            peer.raw(b"{\"extra\":1,\"outcome\":\"accepted\",\"requestId\":\"r\",\"schema\":\"pi-workflows.client.v1\",\"type\":\"response\"}\n").await;
        }
        Act::Flood => {
            // The client hangs up before everything is written.
            let flood = vec![b'x'; 3 << 20];
            assert!(
                tokio::io::AsyncWriteExt::write_all(&mut peer.stream, &flood)
                    .await
                    .is_err()
            );
        }
        Act::SecondHello => peer.hello(PACKAGE_VERSION).await,
        Act::UnknownAnswer => {
            let mut other = call.clone();
            other.request_id = "never-sent".into();
            peer.respond(&other, Outcome::Accepted, None, None).await;
        }
        Act::EventOfAnotherKind => peer.event(&watch, EventKind::Runs, &runs("l-1")).await,
        Act::EventOfAnotherRun => {
            let mut other = watch.clone();
            other.run_id = Some("run-2".into());
            peer.event(&other, EventKind::RunSnapshot, &json!({})).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_breaks_the_protocol_costs_only_its_connection() {
    for (hostile, reason) in [
        (
            Act::HalfAFrame,
            "the connection ended 15 bytes into an unfinished frame",
        ),
        (Act::Garbage, "byte 1 is not valid UTF-8"),
        (
            Act::NotCanonical,
            "not canonical JSON at byte 8: space outside a string",
        ),
        (Act::UnknownField, "response has the unknown field `extra`"),
        (Act::Flood, "a frame of more than 1048576 bytes was received"),
        (Act::SecondHello, "a second hello"),
        (Act::UnknownAnswer, "an answer to the unknown request \"never-sent\""),
        (Act::EventOfAnotherKind, "event runs for a subscription of another kind"),
        (
            Act::EventOfAnotherRun,
            "an event of run Some(\"run-2\") for a subscription to another one",
        ),
    ] {
        let (client, mut server) = start(ClientOptions::default());
        let mut states = client.state();
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.run_pause(&RunRef::current("run-1")).await }
        });
        tokio::task::yield_now().await;
        let watch = client.watch_run("run-1");
        let mut peer = server.greet().await;
        act(&mut peer, hostile).await;
        drop(peer);
        let state = states
            .wait_for(|state| matches!(state, ConnectionState::Reconnecting(_)))
            .await
            .unwrap()
            .clone();
        let ConnectionState::Reconnecting(retry) = state else {
            unreachable!("waited for")
        };
        assert_eq!(retry.reason, reason, "{hostile:?}");

        let mut peer = server.greet().await;
        let request = peer.request().await;
        peer.accept(&request, receipt()).await;
        assert_eq!(call.await.unwrap().unwrap().outcome, Outcome::Accepted, "{hostile:?}");
        drop(watch);
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_message_that_is_no_hello_is_refused() {
    let (client, mut server) = start(ClientOptions::default());
    let mut states = client.state();
    let mut peer = server.accept().await;
    peer.raw(
        b"{\"outcome\":\"accepted\",\"requestId\":\"r\",\"schema\":\"pi-workflows.client.v1\",\"type\":\"response\"}\n",
    )
    .await;
    states.changed().await.unwrap();
    let state = states.borrow_and_update().clone();
    assert!(
        matches!(&state, ConnectionState::Reconnecting(retry) if retry.reason == "the first message is no hello"),
        "{state:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn bytes_may_arrive_one_by_one() {
    let (client, mut server) = start(ClientOptions::default());
    let mut peer = server.accept().await;
    let hello = piw_protocol::envelope::Hello {
        connection_id: "c".into(),
        package_version: PACKAGE_VERSION.into(),
    };
    for byte in hello.encode().unwrap() {
        peer.raw(&[byte]).await;
        tokio::task::yield_now().await;
    }
    client.ready().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_the_connection_is_quoted() {
    let farewell = Event {
        subscription_id: CONNECTION_SUBSCRIPTION.into(),
        event: EventKind::Unavailable,
        revision: None,
        run_id: None,
        payload: CanonicalJson::new(&OperationError::new("too_many_connections", "64 clients are connected")).unwrap(),
    };
    for greeted in [false, true] {
        let (client, mut server) = start(ClientOptions::impatient());
        let mut peer = if greeted {
            server.greet().await
        } else {
            server.accept().await
        };
        if greeted {
            client.ready().await.unwrap();
        }
        peer.raw(&farewell.encode().unwrap()).await;
        let mut states = client.state();
        let failed =
            |state: &ConnectionState| matches!(state, ConnectionState::Reconnecting(_) | ConnectionState::Blocked(_));
        let state = states.wait_for(failed).await.unwrap().clone();
        let (ConnectionState::Reconnecting(retry) | ConnectionState::Blocked(retry)) = state else {
            unreachable!("waited for")
        };
        assert_eq!(retry.reason, "64 clients are connected");
    }
}
