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

#[tokio::test]
async fn nodes_are_compared_with_the_completed_runs_before() {
    let f = Fixture::new().await;
    let flow = f.circle(3);
    let mut number = 0;
    let mut run = |status: &str, name: &str, definition: i64, millis: i64| {
        number += 1;
        let run_id = format!("old-{number}");
        let row = Run {
            name,
            created_at: EPOCH + number,
            ..Run::new(&run_id, status)
        };
        let id = f.run(definition, &row);
        f.steps(id, 2, 2);
        f.sql
            .execute(
                "UPDATE node_attempts SET active_ms = ?2 + node WHERE run = ?1",
                [id, millis],
            )
            .unwrap();
    };
    for millis in [100, 300, 200] {
        run("completed", "flow", flow, millis);
    }
    // Another graph of the same name: its nodes are found by their ids.
    run("completed", "flow", f.circle(2), 400);
    run("failed", "flow", flow, 9_000);
    run("completed", "other", flow, 9_000);
    f.run(
        flow,
        &Run {
            created_at: EPOCH + 50,
            ..Run::new("r", "queued")
        },
    );
    run("completed", "flow", flow, 9_000);
    let page = page(&f, PageKind::NodeTimes, json!(0)).await;
    assert_eq!((page.start, page.total), (0, 3));
    assert_eq!(
        page.items,
        [
            json!({"nodeId": "n0", "runs": 4, "medianMs": 250}),
            json!({"nodeId": "n1", "runs": 4, "medianMs": 251}),
            json!({"nodeId": "n2", "runs": 0}),
        ]
    );
    let rest = try_page(&f, "r", None, PageKind::NodeTimes, json!(2)).await.unwrap();
    assert_eq!(rest.items, [json!({"nodeId": "n2", "runs": 0})]);
}

#[tokio::test]
async fn only_the_last_completed_runs_count() {
    let f = Fixture::new().await;
    let flow = f.circle(1);
    for number in 0..30_i64 {
        let run_id = format!("old-{number}");
        let row = Run {
            created_at: EPOCH + number,
            ..Run::new(&run_id, "completed")
        };
        let id = f.run(flow, &row);
        f.steps(id, 1, 1);
        let sql = "UPDATE node_attempts SET active_ms = ?2 WHERE run = ?1";
        f.sql.execute(sql, [id, number]).unwrap();
    }
    f.run(
        flow,
        &Run {
            created_at: EPOCH + 50,
            ..Run::new("r", "queued")
        },
    );
    // 10 … 29
    let page = page(&f, PageKind::NodeTimes, json!(0)).await;
    assert_eq!(page.items, [json!({"nodeId": "n0", "runs": 20, "medianMs": 19})]);
}

#[tokio::test]
async fn pauses_of_a_continued_run_are_one_row() {
    let f = Fixture::new().await;
    let flow = f.circle(2);
    let parent = f.run(flow, &Run::new("parent", "completed"));
    f.steps(parent, 2, 1);
    let child = f.run(
        flow,
        &Run {
            parent: Some((parent, "continuation")),
            carried: 1,
            created_at: EPOCH + 60_000,
            ..Run::new("r", "running")
        },
    );
    f.sql
        .execute_batch(&format!(
            "INSERT INTO continuations (child, parent, node, attempt, step_index, answer_json, source, answered_at)
             SELECT {child}, {parent}, node, attempt, 0, '1', 'test', {EPOCH} + 60000 FROM run_steps WHERE run = {parent};
             UPDATE runs SET started_at = {EPOCH} + 60500, paused_at = {EPOCH} + 90000 WHERE id = {child};
             INSERT INTO events (resource, seq, at, scope, type) VALUES
               ({child}, 1, {EPOCH} + 70000, 'command', 'run.paused'), ({child}, 2, {EPOCH} + 80000, 'command', 'run.resumed'),
               ({child}, 3, {EPOCH} + 85000, 'command', 'run.resumed'), ({child}, 4, {EPOCH} + 90000, 'command', 'run.paused');"
        ))
        .unwrap();
    let page = page(&f, PageKind::Pauses, json!(0)).await;
    assert_eq!(
        page.items,
        [
            json!({"kind": "waiting", "from": "2026-01-01T00:00:00.005Z", "to": "2026-01-01T00:01:00.000Z", "nodeId": "n0"}),
            json!({"kind": "queued", "from": "2026-01-01T00:01:00.000Z", "to": "2026-01-01T00:01:00.500Z"}),
            json!({"kind": "paused", "from": "2026-01-01T00:01:10.000Z", "to": "2026-01-01T00:01:20.000Z"}),
            json!({"kind": "paused", "from": "2026-01-01T00:01:30.000Z"}),
        ]
    );
    let rest = try_page(&f, "r", None, PageKind::Pauses, json!(3)).await.unwrap();
    assert_eq!((rest.start, rest.total, rest.items.len()), (3, 4, 1));
}
