//! Recorded sessions in run views and pages, at any position of a long one.

use piw_protocol::ops::PageRequest;
use piw_protocol::session::{
    CaptureState, Conversation, RecordedEvent, SessionEntryView, SessionEvent, SessionEventView, SessionRecord,
};
use piw_protocol::view::{ARTIFACT_THRESHOLD, PAGE_ITEMS, PageKind, RunPage, ViewValue};
use serde_json::{Value, json};

use crate::content::fetch;
use crate::fixture::{EPOCH, Fixture, Run};

/// A run that is bound to the session `s`.
async fn bound() -> (Fixture, i64) {
    let f = Fixture::new().await;
    let run = f.run(f.circle(2), &Run::new("r", "running"));
    f.sql
        .execute(
            "UPDATE run_bindings SET execution_mode = 'interactive', session_id = 's' WHERE run = ?1",
            [run],
        )
        .unwrap();
    (f, run)
}

async fn page(f: &Fixture, kind: PageKind, start: u64) -> RunPage {
    let request = PageRequest {
        kind,
        cursor: json!(start),
        limit: None,
    };
    f.publisher.page("r", None, request).await.unwrap()
}

fn items<T: serde::de::DeserializeOwned>(page: &RunPage) -> Vec<T> {
    let read = |item: &Value| serde_json::from_value(item.clone()).unwrap();
    page.items.iter().map(read).collect()
}

/// A million events by SQL: a turn begins at every 512th, the rest is text that no message takes.
fn a_million(f: &Fixture, run: i64) {
    f.sql
        .execute_batch(&format!(
            "BEGIN;
             INSERT INTO session_segments (segment_id, run, session_id, status, first_position, next_sequence, started_at, ended_at)
               VALUES ('g', {run}, 's', 'complete', 0, 1000000, 0, 1);
             WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i + 1 < 1000000)
             INSERT INTO session_events (run, position, at, kind, payload_json, steps, entries)
               SELECT {run}, i, {EPOCH} + i, CASE WHEN i % 512 = 0 THEN 'turn_start' ELSE 'text' END,
                 CASE WHEN i % 512 = 0 THEN '{{\"turn\":' || i || '}}' ELSE '{{\"delta\":\"part ' || i || '\"}}' END, 0, 0 FROM c;
             INSERT INTO viewer_session_checkpoints (run, position, state_json)
               SELECT run, position, '{{\"turn\":' || (position - 512) || '}}' FROM session_events
                WHERE kind = 'turn_start' AND position > 0;
             COMMIT"
        ))
        .unwrap();
}

#[tokio::test]
async fn events_of_a_long_session_are_read_at_any_position() {
    let (f, run) = bound().await;
    a_million(&f, run);
    for start in [0_u64, 1, 511, 512, 500_000, 999_744, 999_999] {
        let page = page(&f, PageKind::SessionEvents, start).await;
        assert_eq!((page.start, page.total), (start, 1_000_000));
        let events: Vec<SessionEventView> = items(&page);
        assert_eq!(
            events.len() as u64,
            (1_000_000 - start).min(PAGE_ITEMS as u64),
            "from {start}"
        );
        assert!(
            (start..)
                .zip(&events)
                .all(|(position, event)| event.position == position)
        );
        let checkpoint = page.replay_checkpoint.unwrap();
        assert_eq!(checkpoint.position, start);
        let turn = start.checked_sub(1).map(|before| before / 512 * 512);
        let expected = Conversation {
            turn,
            ..Conversation::default()
        };
        assert_eq!(
            serde_json::from_value::<Conversation>(checkpoint.state).unwrap(),
            expected
        );
    }
    let beyond = page(&f, PageKind::SessionEvents, 1_000_000).await;
    assert!(beyond.items.is_empty() && beyond.replay_checkpoint.is_none());

    let view = f.publisher.run_view("r").await.unwrap();
    let session = view.session.unwrap();
    let window = session.event_page;
    assert_eq!(window.total, 1_000_000);
    assert_eq!(window.start + window.items.len() as u64, 1_000_000);
    assert!(
        window.start % 16 == 0 && window.items.len() > 64,
        "from {}",
        window.start
    );
    assert_eq!(session.replay_checkpoint.unwrap().position, window.start);
    assert_eq!(session.capture.state, CaptureState::Complete);
}

#[test]
fn no_page_reads_more_than_its_range() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (f, _) = runtime.block_on(bound());
    for query in [
        "SELECT * FROM session_events WHERE run = 1 AND position >= 5 AND position < 9 ORDER BY position DESC",
        "SELECT * FROM session_entries WHERE run = 1 AND entry_index >= 5 AND entry_index < 9 ORDER BY entry_index DESC",
        "SELECT * FROM session_segments WHERE run = 1 ORDER BY id DESC LIMIT 1",
        "SELECT a.finished_at FROM run_steps s JOIN node_attempts a ON a.id = s.attempt
          WHERE s.run = 1 AND s.step_index >= 5 ORDER BY s.step_index",
    ] {
        let mut plan = f.sql.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
        let lines = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
        for line in lines.map(Result::unwrap) {
            assert!(
                line.starts_with("SEARCH") && !line.contains("TEMP B-TREE"),
                "{query}: {line}"
            );
        }
    }
}

fn event(kind: &str, payload: &Value) -> RecordedEvent {
    serde_json::from_value(json!({"at": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload})).unwrap()
}

#[tokio::test]
async fn large_values_are_content_and_windows_fit_a_frame() {
    let (f, _) = bound().await;
    let before = f.publisher.run_view("r").await.unwrap().session.unwrap();
    assert_eq!((before.binding.session_id.as_str(), before.binding.segments), ("s", 0));
    assert_eq!(before.capture.state, CaptureState::None);
    assert!(before.event_page.items.is_empty() && before.replay_checkpoint.is_none());

    let long = "x".repeat(40_000);
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    for batch in 0..20_u64 {
        let mut events = vec![event("message_start", &json!({"role": "assistant"}))];
        // As much inline as fits: windows have to be cut by bytes.
        let args = |number: u64| match number % 3 {
            0 => json!(long),
            1 => deep.clone(),
            _ => json!("y".repeat(15_000)),
        };
        events.extend((0..6).map(|number| {
            let call = format!("c-{batch}-{number}");
            event(
                "tool_start",
                &json!({"callId": call, "tool": "t", "args": args(number)}),
            )
        }));
        events.push(event("thinking", &json!({"delta": "z".repeat(9_000)})));
        events.push(event("entry", &json!({"entryId": format!("e-{batch}")})));
        let content = if batch % 2 == 0 {
            json!(long)
        } else {
            json!("w".repeat(15_000))
        };
        let record = json!({
            "sessionId": "s", "segmentId": "g", "runId": "r", "sequence": batch * 9, "events": events,
            "entries": [{"entryId": format!("e-{batch}"), "at": "2026-01-01T00:00:00.000Z", "kind": "message", "content": content}],
        });
        let record: SessionRecord = serde_json::from_value(record).unwrap();
        f.state.record_session(record).await.unwrap().unwrap();
    }

    let view = f.publisher.run_view("r").await.unwrap();
    let size = serde_json::to_vec(&view).unwrap().len();
    assert!(size < 200_000, "{size} bytes");
    let session = view.session.unwrap();
    assert_eq!((session.event_page.total, session.entry_page.total), (180, 20));
    let ViewValue::Artifact(state) = ViewValue::from_wire(&session.replay_checkpoint.unwrap().state) else {
        panic!("the conversation is large")
    };

    let mut replayed = Conversation::default();
    let (mut start, mut contents) = (0, vec![state.clone()]);
    while start < 180 {
        let page = page(&f, PageKind::SessionEvents, start).await;
        let bytes: usize = page.items.iter().map(|item| item.to_string().len()).sum();
        assert!(bytes < 600_000, "{bytes}");
        let checkpoint = ViewValue::from_wire(&page.replay_checkpoint.unwrap().state);
        if let ViewValue::Inline(state) = &checkpoint {
            assert_eq!(serde_json::from_value::<Conversation>(state.clone()).unwrap(), replayed);
        }
        for event in items_of(&page.items) {
            if event.position == session.event_page.start {
                // What the artifact of the view holds is what a replay from the start gives.
                let whole = fetch(&f, "r", &state.path).await;
                assert_eq!(serde_json::from_slice::<Conversation>(&whole).unwrap(), replayed);
            }
            if let SessionEvent::ToolStart { args, .. } = &event.event.what {
                match ViewValue::from_wire(args) {
                    ViewValue::Artifact(reference) => contents.push(reference),
                    ViewValue::Inline(value) => assert!(value.to_string().len() <= ARTIFACT_THRESHOLD),
                }
            }
            replayed.apply(&event.event);
            start = event.position + 1;
        }
    }
    for entry in items::<SessionEntryView>(&page(&f, PageKind::SessionEntries, 3).await) {
        assert_eq!(
            (entry.index * 9 + 8, entry.entry_id),
            (entry.event, format!("e-{}", entry.index))
        );
        if let ViewValue::Artifact(reference) = ViewValue::from_wire(&entry.content) {
            contents.push(reference);
        }
    }
    contents.sort_by(|one, other| one.path.cmp(&other.path));
    contents.dedup();
    assert_eq!(contents.len(), 3, "the conversation, the long and the deep value");
    for reference in contents {
        assert_eq!(fetch(&f, "r", &reference.path).await.len() as u64, reference.bytes);
    }
}

fn items_of(items: &[Value]) -> Vec<SessionEventView> {
    items
        .iter()
        .map(|item| serde_json::from_value(item.clone()).unwrap())
        .collect()
}
