//! The run view: what it shows, and that it fits.

use piw_protocol::frame::MAX_FRAME;
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::{DefinitionView, ViewValue};
use piw_server::projection::ViewError;
use serde_json::json;

use crate::fixture::{Fixture, Run};

#[tokio::test]
async fn a_finished_run_shows_its_newest_steps_and_its_whole_graph() {
    let f = Fixture::new().await;
    let run = f.run(
        f.circle(3),
        &Run {
            title: Some("Three in a circle"),
            ..Run::new("r", "completed")
        },
    );
    f.steps(run, 3, 100);
    f.set_value(run, "final_output", "{\"done\":true}");
    let view = f.publisher.run_view("r").await.unwrap();

    assert_eq!(view.display.status, DisplayStatus::Completed);
    assert_eq!((view.step_total, view.state.trace_seq), (100, 200));
    assert_eq!(view.step_start + view.state.steps.len() as u64, 100);
    let last = view.state.steps.last().unwrap();
    assert_eq!(
        (last.index, last.step.node_id.as_str(), &last.step.output),
        (Some(99), "n0", &json!({"step": 99}))
    );
    assert_eq!(view.trace_page.items.last().unwrap().seq, 200);
    assert_eq!(
        view.trace_page.items.last().unwrap().payload["output"],
        json!({"step": 99})
    );
    assert_eq!(view.state.final_output, Some(ViewValue::Inline(json!({"done": true}))));
    assert_eq!(view.state.input, ViewValue::Inline(json!({"a": 1})));
    assert!(matches!(view.workflow, DefinitionView::Inline(_)));

    let graph: Vec<_> = view
        .graph_steps
        .iter()
        .map(|step| (step.node_id.as_str(), step.attempts, step.step_index))
        .collect();
    assert_eq!(
        graph,
        [("n0", 34, Some(99)), ("n1", 33, Some(97)), ("n2", 33, Some(98))]
    );
    let taken: Vec<_> = view
        .taken_transitions
        .iter()
        .map(|t| (t.from.as_str(), t.to.as_str(), t.count))
        .collect();
    assert_eq!(taken, [("n0", "n1", 33), ("n1", "n2", 33), ("n2", "n0", 33)]);
    assert_eq!(view.state.outputs["n1"], ViewValue::Inline(json!({"step": 97})));
    assert_eq!(view.manifest.run_title.as_deref(), Some("Three in a circle"));
}

#[tokio::test]
async fn a_missing_run_is_not_found() {
    let f = Fixture::new().await;
    let error = f.publisher.run_view("nobody").await.unwrap_err();
    assert!(matches!(error, ViewError::RunNotFound { .. }));
    assert_eq!(error.to_string(), "there is no run nobody");
}

#[tokio::test]
async fn a_waiting_checkpoint_names_its_node_and_carries_its_request() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(3), &Run::new("r", "queued"));
    f.steps(run, 3, 2);
    f.set_output(run, 1, "{\"question\":\"go on?\"}");
    f.sql
        .execute(
            "UPDATE runs SET status = 'waiting', waiting_attempt = last_attempt WHERE id = ?1",
            [run],
        )
        .unwrap();
    f.sql
        .execute(
            "UPDATE run_queue SET status = 'parked', claimable = 0 WHERE run = ?1",
            [run],
        )
        .unwrap();
    let view = f.publisher.run_view("r").await.unwrap();
    assert_eq!(view.display.status, DisplayStatus::Waiting);
    assert!(view.display.controls.iter().any(|control| control == "answer"));
    assert_eq!(view.state.waiting_on.as_deref(), Some("n1"));
    assert_eq!(view.state.current_node, None);
    assert_eq!(
        view.state.human_decision.unwrap()["request"],
        json!({"question": "go on?"})
    );
    assert!(view.display.reason.unwrap().contains("n1"));
}

#[tokio::test]
async fn a_running_run_without_a_live_claim_is_possibly_interrupted() {
    let f = Fixture::new().await;
    let run = f.run(
        f.circle(3),
        &Run {
            queue: "running",
            ..Run::new("r", "running")
        },
    );
    let view = f.publisher.run_view("r").await.unwrap();
    assert!(view.possibly_interrupted && !view.live);

    let until = f.state.clock().wall_ms() + 30_000;
    f.sql
        .execute(
            "INSERT INTO leases (resource, generation, owner_type, owner_id, server_epoch, token_hash, acquired_at,
                                 heartbeat_at, boot_id, expires_clock_ms, expires_at)
             VALUES (?1, 1, 'server', 'test', 1, zeroblob(32), 0, 0, 'b', ?2, ?2)",
            [run, until],
        )
        .unwrap();
    f.sql
        .execute(
            "INSERT INTO run_runners (run, generation, runner_epoch, launch_hash, server_epoch, status, started_at)
             VALUES (?1, 1, 'e', 'h', 1, 'ready', 0)",
            [run],
        )
        .unwrap();
    let view = f.publisher.run_view("r").await.unwrap();
    assert!(!view.possibly_interrupted && view.live);
    assert_eq!(view.display.status, DisplayStatus::Running);
    assert_eq!(view.display.activity.as_deref(), Some("supervised_runner"));
}

#[tokio::test]
async fn a_failed_runs_long_message_is_the_reason_by_reference() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(3), &Run::new("r", "failed"));
    let message = "x".repeat(40_000);
    f.set_value(run, "error", &json!({"message": message}).to_string());
    let view = f.publisher.run_view("r").await.unwrap();
    assert!(view.display.reason.unwrap().len() <= 1024);
    let reference = view.display.reason_content.unwrap()["$artifact"].clone();
    let text = crate::content::fetch(&f, "r", reference["path"].as_str().unwrap()).await;
    assert_eq!(text, message.as_bytes());
    assert!(view.state.error.unwrap().message.len() <= 8 * 1024);
}

#[tokio::test]
async fn a_view_fits_a_frame_whatever_the_run_holds() {
    let f = Fixture::new().await;
    let definition = f.circle(3_000);
    let run = f.run(
        definition,
        &Run {
            title: Some(&"title ".repeat(20_000)),
            ..Run::new("r", "completed")
        },
    );
    f.steps(run, 3_000, 6_000);
    let noise = "é".repeat(8_000);
    for step in 5_900..6_000 {
        f.set_output(run, step, &json!(noise).to_string());
        f.set_result(
            run,
            step,
            &json!({"action": {"actionType": "shell", "args": vec![&noise; 4], "stdout": noise.repeat(10), "stderr": noise}}),
        );
    }
    let view = f.publisher.run_view("r").await.unwrap();
    let bytes = serde_json::to_vec(&view).unwrap().len();
    assert!(bytes < MAX_FRAME - 1024, "{bytes}");
    assert!(!view.state.steps.is_empty());
    assert_eq!((view.graph_step_total, view.taken_transition_total), (3_000, 3_000));
    let DefinitionView::Content {
        node_total, content, ..
    } = &view.workflow
    else {
        panic!("it is large")
    };
    assert_eq!(*node_total, 3_000);
    let json = crate::content::fetch(&f, "r", &content.artifact.path).await;
    assert_eq!(json.len() as u64, content.artifact.bytes);

    let step = view.state.steps.last().unwrap();
    assert!(step.step.action.as_ref().unwrap().stdout_truncated);
    let whole = crate::content::fetch(&f, "r", &step.result_content.as_ref().unwrap().artifact.path).await;
    let whole: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(whole["action"]["stdout"], json!(noise.repeat(10)));
}
