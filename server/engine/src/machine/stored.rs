//! Snapshots from elsewhere: whatever is stored, it is either refused or can be run to an end.

use piw_protocol::definition::{DefinitionSnapshot, EdgeRoute, ExitSnapshot};
use piw_protocol::run::NodeOutcome;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::compile;
use crate::route::Output;
use crate::testing::{Choices, random_workflow};

fn change(snapshot: &mut DefinitionSnapshot, choices: &mut Choices) {
    let ids = snapshot.node_order.clone();
    let id = |choices: &mut Choices| ids[choices.below(ids.len())].clone();
    match choices.below(9) {
        0 => snapshot.start_at = id(choices),
        1 => {
            let at = choices.below(snapshot.edges.len().max(1));
            if let Some(edge) = snapshot.edges.get_mut(at) {
                edge.from = id(choices);
            }
        }
        2 | 3 => {
            let at = choices.below(snapshot.edges.len().max(1));
            if let Some(edge) = snapshot.edges.get_mut(at) {
                edge.route = EdgeRoute::To { to: id(choices) };
            }
        }
        4 => drop(snapshot.edges.pop()),
        5 => drop(snapshot.includes.pop()),
        6 => {
            let start = id(choices);
            if let Some(include) = snapshot.includes.last_mut() {
                include.start_at = start;
            }
        }
        7 => {
            let node = id(choices);
            if let Some(include) = snapshot.includes.first_mut() {
                include
                    .exits
                    .insert("extra".to_owned(), ExitSnapshot { node, validates: false });
            }
        }
        _ => {
            let node = id(choices);
            snapshot
                .exits
                .insert("extra".to_owned(), ExitSnapshot { node, validates: false });
        }
    }
}

/// Runs with one value for everything; answers every checkpoint.
fn run_to_the_end(definition: &Definition) -> Result<(), TransitionError> {
    let mut progress = Progress::new(definition);
    let first = progress.plan_begin(definition)?.transition().clone();
    progress.apply(definition, &first);
    let value = json!({ "r": "a" });
    while !progress.has_ended() {
        let node = match progress.at {
            At::Running(node) | At::Answered(node) => definition.at(node),
            At::Waiting(_) => {
                progress.answer();
                continue;
            }
            _ => panic!("stuck at {:?}", progress.at),
        };
        let asks = node.waits() && matches!(progress.at, At::Running(_));
        let finished = Finished {
            node_id: &node.id,
            outcome: NodeOutcome::Ok,
            output: Output::Known(&value),
            error: None,
            action: None,
            left: (!asks && !node.leaves.is_empty()).then_some(Output::Known(&value)),
        };
        let next = progress.plan_after(definition, &finished)?.transition().clone();
        progress.apply(definition, &next);
    }
    Ok(())
}

proptest! {
    #[test]
    fn stored_graphs_are_refused_or_run(seed in any::<u64>()) {
        let mut choices = Choices::new(seed);
        let raw = random_workflow(&mut choices, 2, "w");
        let mut snapshot = compile(&raw).unwrap().snapshot().clone();
        for _ in 0..=choices.below(2) {
            change(&mut snapshot, &mut choices);
        }
        if let Ok(definition) = Definition::from_snapshot(snapshot) {
            prop_assert_eq!(run_to_the_end(&definition), Ok(()));
        }
    }
}
