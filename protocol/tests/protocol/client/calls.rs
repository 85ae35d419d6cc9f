//! Calls: identity across reconnections, receipts, refusals, pages.

use std::time::Duration;

use piw_protocol::canonical::CanonicalJson;
use piw_protocol::client::{Call, ClientError, ClientOptions, RunRef};
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::{Operation, PageRequest, RunStart, RunsPage};
use piw_protocol::run::RunStatus;
use piw_protocol::view::PageKind;
use serde_json::{Value, json};

use super::{receipt, runs, start};

#[tokio::test(start_paused = true)]
async fn a_broken_connection_repeats_the_call_with_a_new_request_id_and_the_same_key() {
    let (client, mut server) = start(ClientOptions::default());
    let start_run = RunStart {
        workflow: "review".into(),
        project_path: "/p".into(),
        input: json!({"n": 1}),
        input_content: None,
        session_id: None,
    };
    let call = tokio::spawn(async move { client.run_start(&start_run, Some("my-key")).await });
    let first = server.greet().await.request().await;
    let mut peer = server.greet().await;
    let second = peer.request().await;
    assert_ne!(first.request_id, second.request_id);
    assert_eq!(first.idempotency_key, "my-key");
    assert_eq!(first.client_id, second.client_id);
    assert_eq!(first.fingerprint(), second.fingerprint());
    assert_eq!(
        second,
        piw_protocol::envelope::Request {
            request_id: second.request_id.clone(),
            ..first
        }
    );
    peer.respond(&second, Outcome::Adopted, Some(receipt()), None).await;
    let done = call.await.unwrap().unwrap();
    assert_eq!(
        (done.outcome, done.receipt.status),
        (Outcome::Adopted, RunStatus::Running)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_the_first_connection_and_may_overtake_each_other() {
    let (client, mut server) = start(ClientOptions::default());
    server.refuse(true);
    let calls: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|run| {
            let client = client.clone();
            tokio::spawn(async move { client.run_resume(&RunRef::at(run, 4)).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.refuse(false);
    let mut peer = server.greet().await;
    let (first, second) = (peer.request().await, peer.request().await);
    assert_eq!(
        (first.run_id.as_deref(), second.run_id.as_deref()),
        (Some("a"), Some("b"))
    );
    assert_eq!(
        (first.operation, first.expected_revision),
        (Operation::RunResume, Some(4))
    );
    assert_ne!(first.idempotency_key, second.idempotency_key);
    peer.accept(&second, json!({"runId": "b", "status": "running", "runRevision": 5}))
        .await;
    peer.accept(&first, json!({"runId": "a", "status": "queued", "runRevision": 5}))
        .await;
    let mut found = Vec::new();
    for call in calls {
        found.push(call.await.unwrap().unwrap().receipt.run_id);
    }
    assert_eq!(found, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_error_that_carries_the_servers_words() {
    let (client, mut server) = start(ClientOptions::default());
    for outcome in Outcome::ALL.iter().copied().filter(|outcome| !outcome.is_success()) {
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.checkpoint_answer(&RunRef::current("run-1"), json!("yes")).await }
        });
        let mut peer = server.greet().await;
        let request = peer.request().await;
        assert_eq!(request.payload.to_value(), json!({"answer": "yes"}));
        peer.refuse(&request, outcome, "stale_revision").await;
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.outcome(), Some(outcome));
        assert_eq!(error.to_string(), "checkpoint.answer: because of stale_revision");
    }
}

#[tokio::test(start_paused = true)]
async fn a_receipt_of_another_shape_is_an_error_of_that_call_alone() {
    let (client, mut server) = start(ClientOptions::default());
    let mut peer = server.greet().await;
    for receipt in [json!({"runId": "run-1"}), json!(7)] {
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.run_pause(&RunRef::current("run-1")).await }
        });
        let request = peer.request().await;
        peer.accept(&request, receipt).await;
        let error = call.await.unwrap().unwrap_err();
        assert!(
            matches!(
                error,
                ClientError::BadAnswer {
                    operation: Operation::RunPause,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_is_not_repeated() {
    let (client, mut server) = start(ClientOptions::default());
    let given_up = tokio::spawn({
        let client = client.clone();
        async move { client.run_pause(&RunRef::current("given-up")).await }
    });
    let peer = {
        let mut peer = server.greet().await;
        assert_eq!(peer.request().await.run_id.as_deref(), Some("given-up"));
        peer
    };
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    drop(peer);
    let kept = tokio::spawn(async move { client.run_pause(&RunRef::current("kept")).await });
    let mut peer = server.greet().await;
    let request = peer.request().await;
    assert_eq!(request.run_id.as_deref(), Some("kept"));
    peer.accept(&request, receipt()).await;
    kept.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fits_no_frame_fails_without_being_sent() {
    let (client, mut server) = start(ClientOptions::default());
    let mut peer = server.greet().await;
    client.ready().await.unwrap();
    let large = Call::new(Operation::RunStart, &"x".repeat(1 << 20)).unwrap();
    let error = client.request(large).await.unwrap_err();
    assert!(error.to_string().ends_with("the limit is 1048576"), "{error}");
    let nan = Call::new(Operation::RunStart, &f64::NAN).unwrap_err();
    assert_eq!(
        nan.to_string(),
        "the message cannot be encoded: NaN is not a JSON number"
    );
    assert!(peer.is_quiet(5).await);
}

#[tokio::test(start_paused = true)]
async fn full_pipes_in_both_directions_do_not_block_each_other() {
    let (client, mut server) = start(ClientOptions::default());
    let mut peer = server.greet().await;
    let watch = client.watch_runs(Default::default()).unwrap();
    let watched = peer.request().await;
    peer.accept(&watched, json!({})).await;
    let call = tokio::spawn(async move {
        let large = Call::new(Operation::RunStart, &"x".repeat(900_000)).unwrap();
        client.request(large).await
    });
    // The server writes hundreds of frames before it reads on: more than fits into the pipe, as is the client's request.
    for revision in 0..500 {
        peer.runs(&watched, &revision.to_string()).await;
    }
    let request = peer.request().await;
    assert_eq!(request.payload, CanonicalJson::new(&"x".repeat(900_000)).unwrap());
    peer.accept(&request, Value::Null).await;
    assert_eq!(call.await.unwrap().unwrap().outcome, Outcome::Accepted);
    drop(watch);
}

#[tokio::test(start_paused = true)]
async fn a_page_is_taken_only_if_it_is_the_one_asked_for() {
    let good = json!({"schema": "pi-workflows.run-page.v1", "runId": "run-1", "kind": "trace", "cursor": 10, "revision": 5,
        "start": 10, "total": 11, "items": [{}]});
    let (client, mut server) = start(ClientOptions::default());
    let mut peer = server.greet().await;
    let cases = [
        ("", Value::Null, None),
        (
            "schema",
            json!("pi-workflows.run-page.v2"),
            Some("is not \"pi-workflows.run-page.v1\""),
        ),
        ("runId", json!("run-2"), Some("another run, kind or cursor")),
        ("kind", json!("steps"), Some("another run, kind or cursor")),
        ("cursor", json!(11), Some("another run, kind or cursor")),
        ("revision", json!(6), Some("the page has revision 6, the view 5")),
        ("total", json!(10), Some("1 items from 10 of 10")),
        (
            "start",
            json!(9_007_199_254_740_991_u64),
            Some("1 items from 9007199254740991 of 11"),
        ),
        ("items", json!(vec![json!({}); 257]), Some("257 items from 10 of 11")),
    ];
    for (field, value, problem) in cases {
        let call = tokio::spawn({
            let client = client.clone();
            async move {
                client
                    .page(
                        "run-1",
                        5,
                        &PageRequest {
                            kind: PageKind::Trace,
                            cursor: json!(10),
                            limit: None,
                        },
                    )
                    .await
            }
        });
        let request = peer.request().await;
        assert_eq!(
            (request.expected_revision, request.run_id.as_deref()),
            (Some(5), Some("run-1"))
        );
        assert_eq!(request.payload.to_value(), json!({"kind": "trace", "cursor": 10}));
        let mut page = good.clone();
        if problem.is_some() {
            page[field] = value;
        }
        peer.accept(&request, page).await;
        match (call.await.unwrap(), problem) {
            (Ok(page), None) => assert_eq!(page.items.len(), 1),
            (Err(error), Some(problem)) => assert!(error.to_string().contains(problem), "{error}"),
            (other, _) => panic!("{field}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_the_run_list_belongs_to_its_revision() {
    let (client, mut server) = start(ClientOptions::default());
    let mut peer = server.greet().await;
    for (revision, good) in [("l-1", true), ("l-2", false)] {
        let page = RunsPage {
            revision: "l-1".into(),
            cursor: 0,
            filter: None,
            limit: None,
        };
        let client = client.clone();
        let call = tokio::spawn(async move { client.runs_page(&page).await });
        let request = peer.request().await;
        peer.accept(&request, runs(revision)).await;
        assert_eq!(call.await.unwrap().is_ok(), good, "{revision}");
    }
}
