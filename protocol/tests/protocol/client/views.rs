//! Watched views: freshness, restoring, re-arming, giving up.

use std::time::Duration;

use piw_protocol::client::{Client, ClientError, ClientOptions, Freshness, RunsWatch};
use piw_protocol::envelope::{EventKind, Outcome, Request};
use piw_protocol::ops::{Operation, OperationError, RunsWatch as RunsQuery};
use serde_json::json;
use tokio::time::Instant;

use super::{Peer, ScriptedServer, start};

/// A client with a live run list, the connection and the watch request.
async fn watching() -> (Client, ScriptedServer, Peer, Request, RunsWatch) {
    watching_with(ClientOptions::default()).await
}

async fn watching_with(options: ClientOptions) -> (Client, ScriptedServer, Peer, Request, RunsWatch) {
    let (client, mut server) = start(options);
    let mut peer = server.greet().await;
    let mut watch = client
        .watch_runs(RunsQuery {
            limit: Some(7),
            ..RunsQuery::default()
        })
        .unwrap();
    assert_eq!(*watch.freshness(), Freshness::Opening);
    let request = peer.request().await;
    assert_eq!(request.operation, Operation::ViewRunsWatch);
    assert_eq!(request.payload.to_value()["limit"], 7);
    peer.accept(&request, json!({})).await;
    peer.runs(&request, "l-1").await;
    assert_eq!(watch.first().await.unwrap().revision, "l-1");
    (client, server, peer, request, watch)
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_leaves_a_stale_view_that_authorises_nothing_until_it_is_restored() {
    let (_client, mut server, peer, _, mut watch) = watching().await;
    assert!(watch.live().is_some());
    drop(peer);
    watch.changed().await.unwrap();
    let Freshness::Stale(retry) = watch.freshness() else {
        panic!("{:?}", watch.freshness())
    };
    assert_eq!(
        (retry.attempt, retry.reason.as_str()),
        (1, "the server closed the connection")
    );
    assert_eq!(watch.view().unwrap().revision, "l-1", "the last good view stays");
    assert!(watch.live().is_none());

    let mut peer = server.greet().await;
    let request = peer.request().await;
    assert_eq!(request.operation, Operation::ViewRunsWatch);
    peer.accept(&request, json!({})).await;
    assert!(peer.is_quiet(5).await);
    assert!(watch.live().is_none(), "restored, but not yet current");
    peer.runs(&request, "l-2").await;
    watch.changed().await.unwrap();
    assert_eq!(watch.live().unwrap().revision, "l-2");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_are_restored_one_at_a_time() {
    let (client, mut server) = start(ClientOptions::default());
    let _watches: Vec<_> = ["a", "b", "c"].map(|run| client.watch_run(run)).into();
    let mut peer = server.greet().await;
    let mut restored = Vec::new();
    for _ in 0..3 {
        let request = peer.request().await;
        assert!(peer.is_quiet(2).await, "the next one waits for the answer");
        peer.accept(&request, json!({})).await;
        restored.push(request.run_id.unwrap());
    }
    restored.sort();
    assert_eq!(restored, ["a", "b", "c"]);
    assert!(peer.is_quiet(9).await, "nothing more before silence makes it ask");
}

#[tokio::test(start_paused = true)]
async fn a_watch_request_without_answer_costs_the_connection() {
    let (client, mut server) = start(ClientOptions::default());
    let mut watch = client.watch_run("a");
    let mut peer = server.greet().await;
    peer.request().await;
    watch.changed().await.unwrap();
    let Freshness::Stale(retry) = watch.freshness() else {
        panic!("{:?}", watch.freshness())
    };
    assert_eq!(retry.reason, "the server did not answer a watch request");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_the_server_drops_is_asked_for_again_with_growing_delays() {
    // Silence is another test's subject.
    let options = ClientOptions {
        silence: Duration::from_secs(3600),
        ..ClientOptions::default()
    };
    let (client, _server, mut peer, watched, mut watch) = watching_with(options).await;
    let other = client.watch_run("other");
    let request = peer.request().await;
    peer.accept(&request, json!({})).await;

    peer.event(
        &watched,
        EventKind::Unavailable,
        &OperationError::new("projection_failed", "too large"),
    )
    .await;
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        watch.changed().await.unwrap();
        let Freshness::Stale(retry) = watch.freshness() else {
            panic!("{:?}", watch.freshness())
        };
        assert_eq!(retry.delay, Duration::from_secs(seconds));
        assert_eq!(watch.view().unwrap().revision, "l-1");
        let dropped = Instant::now();
        let request = peer.request().await;
        assert_eq!(request.operation, Operation::ViewRunsWatch);
        assert_eq!(dropped.elapsed().as_secs(), seconds);
        peer.refuse(&request, Outcome::Unavailable, "projection_failed").await;
    }
    watch.changed().await.unwrap();
    // A view that arrives makes the next drop start over.
    let request = peer.request().await;
    peer.accept(&request, json!({})).await;
    peer.runs(&request, "l-2").await;
    watch.changed().await.unwrap();
    assert_eq!(watch.live().unwrap().revision, "l-2");
    peer.event(
        &request,
        EventKind::Unavailable,
        &OperationError::new("projection_failed", "too large"),
    )
    .await;
    watch.changed().await.unwrap();
    let Freshness::Stale(retry) = watch.freshness() else {
        panic!("{:?}", watch.freshness())
    };
    assert_eq!(
        (retry.attempt, retry.delay, retry.reason.as_str()),
        (1, Duration::from_secs(1), "too large")
    );
    assert_eq!(
        *other.freshness(),
        Freshness::Opening,
        "the other subscription is untouched"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_subscription_is_not_asked_for_again() {
    for (outcome, reason) in [
        (Outcome::NotFound, "run_not_found"),
        (Outcome::Rejected, "invalid_payload"),
        (Outcome::Unavailable, "not_built"),
    ] {
        let (client, mut server) = start(ClientOptions::default());
        let mut watch = client.watch_run("missing");
        let mut peer = server.greet().await;
        let request = peer.request().await;
        peer.refuse(&request, outcome, reason).await;
        let error = watch.first().await.unwrap_err();
        assert!(
            matches!(&error, ClientError::WatchRefused(error) if error.reason == reason),
            "{error}"
        );
        assert!(matches!(watch.freshness(), Freshness::Refused(error) if error.reason == reason));
        assert!(peer.is_quiet(120).await);
        drop(peer);
        assert!(server.greet().await.is_quiet(60).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_is_given_up_at_the_server() {
    let (client, mut server, mut peer, _, watch) = watching().await;
    drop(watch);
    let request = peer.request().await;
    assert_eq!(request.operation, Operation::ViewRunsUnwatch);
    peer.accept(&request, json!({})).await;
    drop(peer);
    assert!(server.greet().await.is_quiet(60).await, "nothing is left to restore");
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_sees_the_newest_view() {
    let (client, mut server) = start(ClientOptions::default());
    let mut watch = client.watch_runs(RunsQuery::default()).unwrap();
    let mut peer = server.greet().await;
    let request = peer.request().await;
    for revision in 0..=1000 {
        peer.runs(&request, &revision.to_string()).await;
    }
    // The answer comes after the first views; that is no error.
    peer.accept(&request, json!({})).await;
    assert!(peer.is_quiet(1).await);
    watch.changed().await.unwrap();
    assert_eq!(watch.live().unwrap().revision, "1000");
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn a_view_that_cannot_be_read_is_an_error_and_the_last_good_one_stays() {
    let (client, mut server) = start(ClientOptions::default());
    let mut watch = client.watch_runs(RunsQuery::default()).unwrap();
    let mut peer = server.greet().await;
    let request = peer.request().await;
    peer.accept(&request, json!({})).await;
    peer.runs(&request, "l-1").await;
    watch.first().await.unwrap();
    peer.event(&request, EventKind::Runs, &json!({"revision": 1})).await;
    let error = watch.changed().await.unwrap_err();
    assert!(matches!(error, ClientError::BadView(_)), "{error}");
    assert_eq!(watch.view().unwrap().revision, "l-1");
    assert!(watch.live().is_none(), "an old view must not authorise a command");
    peer.runs(&request, "l-2").await;
    watch.changed().await.unwrap();
    assert_eq!(watch.live().unwrap().revision, "l-2");
}

#[tokio::test(start_paused = true)]
async fn a_blocked_view_recovers_by_itself() {
    let (client, mut server, peer, _, mut watch) = watching().await;
    server.refuse(true);
    drop(peer);
    while !matches!(watch.freshness(), Freshness::Blocked(_)) {
        watch.changed().await.unwrap();
    }
    assert_eq!(watch.view().unwrap().revision, "l-1");
    let error = client.watch_run("late").first().await.unwrap_err();
    assert!(matches!(error, ClientError::Blocked { .. }), "{error}");
    server.refuse(false);
    let mut peer = server.greet().await;
    let request = peer.request().await;
    peer.accept(&request, json!({})).await;
    peer.runs(&request, "l-2").await;
    while watch.live().is_none() {
        watch.changed().await.unwrap();
    }
    assert_eq!(watch.view().unwrap().revision, "l-2");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_for_a_sign_of_life_and_given_up_without_one() {
    let (_client, mut server, mut peer, list, mut watch) = watching().await;
    for _ in 0..3 {
        let since = Instant::now();
        let request = peer.request().await;
        assert_eq!(request.operation, Operation::ServerStatus);
        assert_eq!(since.elapsed().as_secs(), 10, "asked only after silence");
        peer.refuse(&request, Outcome::Unavailable, "busy").await;
        assert!(peer.is_quiet(9).await, "any answer is a sign of life");
        assert!(watch.live().is_some());
        peer.runs(&list, "l-1").await;
        watch.changed().await.unwrap();
    }
    let since = Instant::now();
    watch.changed().await.unwrap();
    assert_eq!(since.elapsed().as_secs(), 20, "noticed in bounded time");
    let Freshness::Stale(retry) = watch.freshness() else {
        panic!("{:?}", watch.freshness())
    };
    assert_eq!(retry.reason, "the server has given no sign of life for 20 s");
    assert_eq!(watch.view().unwrap().revision, "l-1", "the last good view stays");
    assert!(watch.live().is_none());
    let mut peer = server.greet().await;
    let request = peer.request().await;
    peer.accept(&request, json!({})).await;
    peer.runs(&request, "l-2").await;
    watch.changed().await.unwrap();
    assert!(watch.live().is_some());
}
