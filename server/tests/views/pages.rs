//! Pages at any position.

use piw_protocol::ops::PageRequest;
use piw_protocol::view::{PAGE_ITEMS, PageKind, RunPage, StepView, TraceEvent};
use piw_server::projection::ViewError;
use serde_json::{Value, json};

use crate::fixture::{EPOCH, Fixture, Run};

async fn page(f: &Fixture, kind: PageKind, cursor: Value) -> RunPage {
    try_page(f, "r", None, kind, cursor).await.unwrap()
}

async fn try_page(
    f: &Fixture,
    run_id: &str,
    expected: Option<u64>,
    kind: PageKind,
    cursor: Value,
) -> Result<RunPage, ViewError> {
    f.publisher
        .page(
            run_id,
            expected,
            PageRequest {
                kind,
                cursor,
                limit: None,
            },
        )
        .await
}

fn steps(page: &RunPage) -> Vec<StepView> {
    page.items
        .iter()
        .map(|item| serde_json::from_value(item.clone()).unwrap())
        .collect()
}

fn events(page: &RunPage) -> Vec<TraceEvent> {
    page.items
        .iter()
        .map(|item| serde_json::from_value(item.clone()).unwrap())
        .collect()
}

#[tokio::test]
async fn steps_and_trace_of_a_long_run_are_read_at_any_position() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(10), &Run::new("r", "completed"));
    for _ in 0..10 {
        f.steps(run, 10, 10_000);
    }
    for start in [0, 1, 50_000, 99_999, 100_000, u64::from(u32::MAX)] {
        let page = page(&f, PageKind::Steps, json!(start)).await;
        assert_eq!((page.start, page.total), (start, 100_000));
        let steps = steps(&page);
        let expected = 100_000_u64.saturating_sub(start).min(PAGE_ITEMS as u64);
        assert_eq!(steps.len() as u64, expected, "from {start}");
        assert!(
            steps
                .iter()
                .enumerate()
                .all(|(n, step)| step.index == Some(start + n as u64))
        );
        let cursor = page.graph_cursor.unwrap();
        assert_eq!(cursor, (start + expected).min(100_000));
        let attempts: u64 = page
            .graph_steps
            .unwrap()
            .iter()
            .map(|step| u64::from(step.attempts))
            .sum();
        assert_eq!(
            attempts, cursor,
            "every step up to the cursor is an attempt of its node"
        );
    }
    for start in [0, 123_456, 199_990, 200_000] {
        let page = page(&f, PageKind::Trace, json!(start)).await;
        let events = events(&page);
        assert_eq!((page.start, page.total), (start, 200_000));
        assert_eq!(events.len() as u64, (200_000 - start).min(PAGE_ITEMS as u64));
        assert!(
            events
                .iter()
                .enumerate()
                .all(|(n, event)| event.seq == start + n as u64 + 1)
        );
    }
}

#[tokio::test]
async fn the_trace_of_a_step_is_found_by_its_attempt() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(10), &Run::new("r", "completed"));
    // Events before, between and after that belong to no attempt.
    f.sql
        .execute_batch(&format!(
            "INSERT INTO events (resource, seq, at, scope, type, payload) VALUES ({run}, 1, {EPOCH}, 'run', 'run.started', '{{}}');
             UPDATE runs SET trace_seq = 1 WHERE id = {run}"
        ))
        .unwrap();
    f.steps(run, 10, 5_000);
    for step in [0_u64, 1, 2_500, 4_999] {
        for cursor in [
            json!({"step": step}),
            json!({"attemptId": format!("attempt-{run}-{step}")}),
            json!(step),
        ] {
            let page = page(&f, PageKind::TraceAtStep, cursor).await;
            let seqs: Vec<_> = events(&page).iter().map(|event| event.seq).collect();
            assert_eq!(seqs, [2 + 2 * step, 3 + 2 * step]);
            assert_eq!(page.start, 1 + 2 * step);
        }
    }
    // An attempt without events of its own leads to its node.
    f.sql
        .execute(
            "DELETE FROM events WHERE attempt = (SELECT attempt FROM run_steps WHERE step_index = 4)",
            [],
        )
        .unwrap();
    let page = page(&f, PageKind::TraceAtStep, json!({"step": 4})).await;
    assert_eq!(events(&page)[0].node_id.as_deref(), Some("n4"));
    assert_eq!(events(&page)[0].seq, 2 + 2 * 14);
    for cursor in [json!({"step": 5_000}), json!({"attemptId": "nobody"}), json!("x")] {
        let error = try_page(&f, "r", None, PageKind::TraceAtStep, cursor)
            .await
            .unwrap_err();
        assert!(matches!(error, ViewError::BadRequest { field: "cursor", .. }));
    }
}

#[tokio::test]
async fn carried_steps_are_read_through_the_chain() {
    let f = Fixture::new().await;
    let definition = f.circle(4);
    let mut parent = f.run(definition, &Run::new("r0", "completed"));
    f.steps(parent, 4, 10);
    f.set_output(parent, 3, &format!("\"{}\"", "x".repeat(20_000)));
    for (n, run_id) in ["r1", "r2", "r"].into_iter().enumerate() {
        let carried = 10 + 5 * n as i64;
        let run = Run {
            parent: Some((parent, "continuation")),
            carried,
            ..Run::new(run_id, "completed")
        };
        parent = f.run(definition, &run);
        f.steps(parent, 4, 5);
    }
    let page = page(&f, PageKind::Steps, json!(2)).await;
    let outputs: Vec<_> = steps(&page)
        .iter()
        .map(|step| (step.index.unwrap(), step.step.output.clone()))
        .collect();
    assert_eq!(page.total, 25);
    assert_eq!(outputs[0], (2, json!({"step": 2})));
    assert_eq!(outputs.last().unwrap(), &(24, json!({"step": 24})));
    assert_eq!(outputs.len(), 23);
    // Content of a parent's step is served under the run that showed it.
    let path = outputs[1].1["$artifact"]["path"].as_str().unwrap();
    assert_eq!(crate::content::fetch(&f, "r", path).await.len(), 20_002);
    let view = f.publisher.run_view("r").await.unwrap();
    assert_eq!((view.step_total, view.state.carried_step_count), (25, Some(20)));
    assert_eq!(
        view.state.steps.first().unwrap().index,
        Some(25 - view.state.steps.len() as u64)
    );
}

#[tokio::test]
async fn a_page_keeps_to_its_byte_budget() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(4), &Run::new("r", "completed"));
    f.steps(run, 4, 300);
    let text = format!("\"{}\"", "y".repeat(16_000));
    for step in 0..300 {
        f.set_output(run, step, &text);
    }
    let mut start = 0;
    let mut pages = 0;
    while start < 300 {
        let page = page(&f, PageKind::Steps, json!(start)).await;
        assert!(serde_json::to_vec(&page).unwrap().len() < 700_000);
        assert!(!page.items.is_empty());
        start += page.items.len() as u64;
        pages += 1;
    }
    assert!(pages > 5);
}

#[tokio::test]
async fn history_pages_of_a_changing_run_keep_their_revision() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(4), &Run::new("r", "queued"));
    f.steps(run, 4, 50);
    let shown = f.publisher.run_view("r").await.unwrap().revision;
    f.steps(run, 4, 50);
    let page = try_page(&f, "r", Some(shown), PageKind::Steps, json!(0)).await.unwrap();
    assert_eq!(page.revision, shown);
    let error = try_page(&f, "r", Some(shown), PageKind::Updates, json!(0))
        .await
        .unwrap_err();
    assert!(matches!(error, ViewError::StaleRevision { .. }));
    let error = try_page(&f, "r", Some(shown + 100), PageKind::Steps, json!(0))
        .await
        .unwrap_err();
    assert!(matches!(error, ViewError::StaleRevision { .. }));
    let error = try_page(&f, "nobody", None, PageKind::Steps, json!(0))
        .await
        .unwrap_err();
    assert!(matches!(error, ViewError::RunNotFound { .. }));
}

#[tokio::test]
async fn updates_come_in_publication_order_with_estimates() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(4), &Run::new("r", "queued"));
    f.steps(run, 4, 1);
    for n in 0..300 {
        f.sql
            .execute(
                "INSERT INTO workflow_updates (run, update_type, key, seq, node, attempt, at, data_json)
                 VALUES (?1, 'progress', 'k' || ?2, ?2, 0, (SELECT last_attempt FROM runs WHERE id = ?1), ?3,
                         '{\"completed\":1,\"schema\":\"pi-workflows.progress.v1\",\"status\":\"running\",\"total\":2}')",
                [run, 300 - n, EPOCH],
            )
            .unwrap();
    }
    let page = page(&f, PageKind::Updates, json!(290)).await;
    let seqs: Vec<_> = page.items.iter().map(|item| item["seq"].as_u64().unwrap()).collect();
    assert_eq!((page.total, seqs), (300, (291..=300).collect()));
    assert_eq!(page.items[0]["estimate"]["kind"], json!("unavailable"));
    let view = f.publisher.run_view("r").await.unwrap();
    assert_eq!(view.update_start + view.updates.len() as u64, 300);
    assert_eq!(view.updates.last().unwrap().seq, 300);
}

#[tokio::test]
async fn kinds_without_content_give_empty_pages() {
    let f = Fixture::new().await;
    f.run(f.circle(4), &Run::new("r", "queued"));
    for kind in [
        PageKind::SessionEntries,
        PageKind::SessionEvents,
        PageKind::Settings,
        PageKind::FollowUps,
    ] {
        let page = page(&f, kind, json!(0)).await;
        assert_eq!((page.total, page.items.len()), (0, 0));
    }
}
