//! Uploads, updates and passive messages.

mod common;

use common::{Flow, Place, Runner, accepted, rejected, start};
use piw_protocol::child::{ChildBody, ContentRef, ReplyOutcome, ValueRef};
use piw_protocol::run::Update;
use piw_state::{PutChunk, PutError, RunnerOutcome, State};
use serde_json::json;

fn content(bytes: &[u8]) -> ContentRef {
    ContentRef {
        sha256: piw_protocol::canonical::sha256_hex(bytes),
        bytes: bytes.len() as u64,
        media_type: "application/json".to_owned(),
    }
}

fn chunk(bytes: &[u8], from: usize, to: usize) -> PutChunk {
    PutChunk {
        owner: "me".to_owned(),
        content: content(bytes),
        offset: from as u64,
        data: bytes[from..to].to_vec(),
        complete: to == bytes.len(),
    }
}

async fn blobs(state: &State) -> i64 {
    state
        .read(|db| Ok(db.query_row("SELECT count(*) FROM blobs", [], |row| row.get(0))?))
        .await
        .expect("count")
}

#[tokio::test]
async fn uploads_are_verified_and_shared() {
    let mut place = Place::new();
    let state = place.serve().await;
    let bytes = vec![b'7'; 900_000];
    let put = state
        .put_content(chunk(&bytes, 0, 500_000))
        .await
        .expect("write")
        .expect("chunk");
    assert_eq!((put.received, put.complete), (500_000, false));
    assert_eq!(state.get_content(&content(&bytes).sha256, 0).await.expect("read"), None);
    let gap = state.put_content(chunk(&bytes, 400_000, 900_000)).await.expect("write");
    assert_eq!(
        gap,
        Err(PutError::Gap {
            expected: 500_000,
            found: 400_000
        })
    );
    // The refused upload is gone; a new one starts over.
    assert_eq!(blobs(&state).await, 0);
    for (from, to) in [(0, 500_000), (500_000, 900_000)] {
        state
            .put_content(chunk(&bytes, from, to))
            .await
            .expect("write")
            .expect("chunk");
    }
    let again = state
        .put_content(chunk(&bytes, 0, 500_000))
        .await
        .expect("write")
        .expect("stored");
    assert!(again.complete);
    assert_eq!(blobs(&state).await, 1);
    let last = state
        .get_content(&content(&bytes).sha256, 800_000)
        .await
        .expect("read")
        .expect("stored");
    assert_eq!((last.data.len(), last.complete, last.bytes), (100_000, true, 900_000));
    assert!(state.get_content(&content(&bytes).sha256, 900_001).await.is_err());
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn wrong_uploads_leave_nothing() {
    let mut place = Place::new();
    let state = place.serve().await;
    let bytes = vec![b'7'; 1000];
    let mut wrong = chunk(&bytes, 0, 1000);
    wrong.data[3] = b'8';
    assert!(matches!(
        state.put_content(wrong).await.expect("write"),
        Err(PutError::Mismatch { .. })
    ));
    let mut long = chunk(&bytes, 0, 1000);
    long.content.bytes = 999;
    assert!(matches!(
        state.put_content(long).await.expect("write"),
        Err(PutError::Mismatch { .. })
    ));
    let mut huge = chunk(&bytes, 0, 1000);
    huge.content.bytes = 300 * 1024 * 1024;
    assert!(matches!(
        state.put_content(huge).await.expect("write"),
        Err(PutError::TooLarge { .. })
    ));
    let mut named = chunk(&bytes, 0, 1000);
    named.content.sha256 = "ABC".to_owned();
    assert!(matches!(
        state.put_content(named).await.expect("write"),
        Err(PutError::BadDigest(_))
    ));
    let mut part = chunk(&bytes, 0, 500);
    part.complete = false;
    state.put_content(part).await.expect("write").expect("chunk");
    assert_eq!(blobs(&state).await, 1);
    state.abandon_uploads("me").await.expect("write");
    assert_eq!(blobs(&state).await, 0);
}

#[tokio::test]
async fn the_newest_update_of_a_pair_is_current() {
    let mut place = Place::new();
    let state = place.serve().await;
    start(&state, &Flow::new("a").compute("a"), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    let update = |update_type: &str, key: &str, data| Update {
        update_type: update_type.to_owned(),
        key: key.to_owned(),
        data,
    };
    let revision = runner.revision;
    for done in 0..4 {
        place.clock.advance(1000);
        let progress = json!({
            "schema": "pi-workflows.progress.v1", "label": "files", "status": "running", "completed": done, "total": 10,
        });
        let updates = vec![
            update("progress", "files", progress),
            update("note", "n", json!({ "done": done })),
        ];
        accepted(&runner.send(ChildBody::NodeUpdate { updates }).await);
    }
    assert_eq!(runner.revision, revision, "updates do not make commands stale");
    let rows: Vec<(String, u64, String, bool)> = state
        .read(|db| {
            let mut statement = db.prepare(
                "SELECT update_type, seq, data_json, estimate IS NOT NULL FROM workflow_updates ORDER BY update_type",
            )?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
        .expect("read");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0], ("note".to_owned(), 8, r#"{"done":3}"#.to_owned(), false));
    assert!(rows[1].3, "progress is estimated");
    let bad = ChildBody::NodeUpdate {
        updates: vec![update("Note", "n", json!({}))],
    };
    assert!(rejected(&runner.send(bad).await).contains("Note"));
    runner.attempt = Some("other".to_owned());
    let stale = ChildBody::NodeUpdate {
        updates: vec![update("note", "n", json!({}))],
    };
    assert!(rejected(&runner.send(stale).await).contains("unfinished attempt"));
}

#[tokio::test]
async fn a_notification_is_created_once_a_visit() {
    let mut place = Place::new();
    let state = place.serve().await;
    start(&state, &Flow::new("a").compute("a"), "k").await;
    let notify = || ChildBody::Notification {
        kind: "progress".to_owned(),
        message: "hello".to_owned(),
        index: 0,
    };
    for _ in 0..2 {
        let mut runner = Runner::launch(&state).await;
        accepted(&runner.begin("a", 1).await);
        accepted(&runner.send(notify()).await);
        runner.exit(RunnerOutcome::Crashed).await;
    }
    let count: i64 = state
        .read(|db| Ok(db.query_row("SELECT count(*) FROM run_notifications", [], |row| row.get(0))?))
        .await
        .expect("count");
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_prompt_belongs_to_the_unfinished_attempt() {
    let mut place = Place::new();
    let state = place.serve().await;
    start(&state, &Flow::new("a").compute("a"), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    let prompted = |text: &str| ChildBody::NodePrompted {
        prompt: ValueRef::Inline(json!(text)),
    };
    accepted(&runner.send(prompted("Judge \"this\".")).await);
    let stored: (String, i64) = state
        .read(|db| {
            Ok(db.query_row(
                "SELECT a.prompt_json, count(e.seq) FROM node_attempts a JOIN events e ON e.attempt = a.id AND e.type = 'node.prompted'",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?)
        })
        .await
        .expect("the prompt");
    assert_eq!(stored, ("\"Judge \\\"this\\\".\"".to_owned(), 1));
    runner.attempt = Some("other".to_owned());
    assert!(rejected(&runner.send(prompted("late")).await).contains("unfinished attempt"));
}

#[tokio::test]
async fn a_value_without_canonical_form_is_refused_not_an_error_of_the_database() {
    let mut place = Place::new();
    let state = place.serve().await;
    start(&state, &Flow::new("a").compute("a"), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    assert_eq!(runner.complete("a", deep).await.outcome, ReplyOutcome::Rejected);
    let missing = ValueRef::Content(content(b"never uploaded"));
    let next = piw_protocol::child::Next::Finish(piw_protocol::child::RunFinish {
        status: piw_protocol::run::RunStatus::Completed,
        final_output: missing.clone(),
        error: None,
        leaves: Vec::new(),
    });
    let mut finish = runner.finish_body("a", json!(null), next);
    finish.attempt_id = runner.attempt.clone().expect("attempt");
    finish.output = missing;
    assert!(rejected(&runner.send(ChildBody::NodeFinished(Box::new(finish))).await).contains("is not stored"));
    accepted(&runner.complete("a", json!(2)).await);
}
