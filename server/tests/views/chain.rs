//! A run that stops at a checkpoint and goes on in a continuation, through the commands that make it.

use std::time::Duration;

use piw_protocol::child::ValueRef;
use piw_protocol::definition::NodeType;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::{Operation, PageRequest, RunList};
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::{PageKind, RunView};
use piw_server::publish::ConnectionSink;
use piw_state::Answer;
use serde_json::json;

use crate::driver::{Driver, identity, start};
use crate::fixture::{Fixture, circle};

#[tokio::test]
async fn an_answered_checkpoint_goes_on_in_one_row_with_one_history() {
    let f = Fixture::new().await;
    let mut definition = circle(3);
    let node = definition.nodes.get_mut("n1").unwrap();
    (node.node_type, node.callbacks) = (NodeType::Checkpoint, Vec::new());
    let first = start(&f.state, &definition).await;
    let mut run_id = first.clone();
    for round in 0..4_usize {
        let step = round * 3;
        let mut driver = Driver::claim_at(&f.state, 3, step.saturating_sub(1)).await;
        if round > 0 {
            driver.step(json!("n2")).await;
        }
        driver.step(json!("n0")).await;
        driver.wait(json!({"ask": round})).await;

        let view = f.publisher.run_view(&run_id).await.unwrap();
        assert_eq!(view.display.status, DisplayStatus::Waiting);
        assert_eq!(
            (view.state.waiting_on.as_deref(), view.step_total),
            (Some("n1"), step as u64 + 2)
        );
        let answer = Answer {
            value: ValueRef::Inline(json!({"answer": round})),
            source: "test".into(),
        };
        let answered = f
            .state
            .answer_checkpoint(identity(Operation::CheckpointAnswer), run_id.clone(), None, answer)
            .await
            .unwrap();
        assert_eq!(answered.outcome, Outcome::Accepted, "{:?}", answered.error);
        run_id = answered.receipt.unwrap().new_run_id.unwrap();
    }

    let view = f.publisher.run_view(&run_id).await.unwrap();
    assert_eq!((view.step_total, view.state.carried_step_count), (11, Some(11)));
    let taken: Vec<_> = view
        .taken_transitions
        .iter()
        .map(|t| (t.from.as_str(), t.to.as_str(), t.count))
        .collect();
    assert_eq!(taken, [("n0", "n1", 4), ("n1", "n2", 3), ("n2", "n0", 3)]);
    let request = PageRequest {
        kind: PageKind::Steps,
        cursor: json!(0),
        limit: None,
    };
    let page = f.publisher.page(&run_id, None, request).await.unwrap();
    assert_eq!(page.items.len(), 11);
    assert_eq!(page.taken_transitions.unwrap(), view.taken_transitions);
    let graph: Vec<_> = page
        .graph_steps
        .unwrap()
        .into_iter()
        .map(|step| (step.node_id, step.step_index))
        .collect();
    let shown: Vec<_> = view
        .graph_steps
        .iter()
        .map(|step| (step.node_id.clone(), step.step_index))
        .collect();
    assert_eq!(graph, shown);
    let checkpoints: u32 = f
        .sql
        .query_row("SELECT count(*) FROM run_graph_checkpoints", [], |row| row.get(0))
        .unwrap();
    assert_eq!(checkpoints, 4, "each continuation starts with what its parents did");

    let list = f.publisher.run_list(RunList::default()).await.unwrap();
    assert_eq!(
        (list.total, &list.items[0].run_id, &list.items[0].root_run_id),
        (1, &run_id, &Some(first.clone()))
    );
    let parent = f.publisher.run_view(&first).await.unwrap();
    assert_eq!(parent.display.status, DisplayStatus::Completed);
    assert!(parent.display.reason.unwrap().contains("continued"));
}

#[tokio::test]
async fn a_watcher_of_the_parent_sees_it_continued() {
    let f = Fixture::new().await;
    let mut definition = circle(2);
    let node = definition.nodes.get_mut("n0").unwrap();
    (node.node_type, node.callbacks) = (NodeType::Checkpoint, Vec::new());
    let run_id = start(&f.state, &definition).await;
    let sink = ConnectionSink::new();
    f.publisher.watch_run(&sink, "s", &run_id).await.unwrap().start();
    Driver::claim(&f.state, 2).await.wait(json!(null)).await;
    let answer = Answer {
        value: ValueRef::Inline(json!(1)),
        source: "test".into(),
    };
    f.state
        .answer_checkpoint(identity(Operation::CheckpointAnswer), run_id, None, answer)
        .await
        .unwrap();
    let until_continued = async {
        loop {
            let bytes = sink.next().await.unwrap().to_vec();
            let event: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let view: RunView = serde_json::from_value(event["payload"].clone()).unwrap();
            if view.display.status == DisplayStatus::Completed {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), until_continued)
        .await
        .expect("the end is published");
}
