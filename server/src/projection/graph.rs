//! Graph history as it travels: the latest attempt of each node and the distinct transitions, within a byte budget.

use piw_protocol::view::{GraphStep, TakenTransition};
use piw_state::query::graph::{NodeRow, TransitionRow};
use piw_state::query::{QueryError, rfc3339};

use super::bounds::{TEXT_LIMIT, Window, cut, size};
use super::nodes::Nodes;

/// Longest one-line detail of a graph node in bytes; the whole is in its step.
const DETAIL_LIMIT: usize = 256;

/// What a graph step costs besides its texts, at most: keys, punctuation, two times, three numbers, an outcome.
const STEP_COST: usize = 200;
/// What a transition costs besides its names, at most.
const TRANSITION_COST: usize = 48;

/// Graph steps in document order of their nodes; when the budget does not hold all, the ones that changed last.
pub(crate) fn steps(rows: Vec<NodeRow>, nodes: &Nodes, bytes: usize) -> Result<Vec<GraphStep>, QueryError> {
    let mut steps = rows
        .into_iter()
        .map(|row| step(row, nodes))
        .collect::<Result<Vec<_>, _>>()?;
    // Measuring by encoding is left to graphs that may not fit: it would double the cost of every view.
    let may_fit = steps.iter().map(cost).sum::<usize>() <= bytes;
    if !may_fit && steps.iter().map(|step| size(step) + 1).sum::<usize>() > bytes {
        steps.sort_by(|left, right| right.started_at.cmp(&left.started_at));
        let mut window = Window::new(usize::MAX, bytes);
        for step in steps {
            if !window.push(step) {
                break;
            }
        }
        steps = window.into_items();
    }
    Ok(steps)
}

fn cost(step: &GraphStep) -> usize {
    // A character of a text takes at most six bytes, as `\u001f`; identities are plain.
    let detail = step.status_detail.as_ref().map_or(0, |detail| 6 * detail.len());
    STEP_COST + step.node_id.len() + step.attempt_id.len() + detail
}

fn step(row: NodeRow, nodes: &Nodes) -> Result<GraphStep, QueryError> {
    let limit = DETAIL_LIMIT.min(TEXT_LIMIT);
    Ok(GraphStep {
        node_id: nodes.id(row.attempt.node)?,
        attempt_id: row.attempt.attempt_id,
        outcome: row.attempt.outcome,
        attempts: u32::try_from(row.attempts).unwrap_or(u32::MAX),
        step_index: row.latest_step,
        started_at: rfc3339(row.attempt.started_at),
        finished_at: row.attempt.finished_at.map(rfc3339),
        status_detail: row.attempt.status_detail.map(|detail| cut(&detail, limit)),
    })
}

/// Transitions in document order of their sources.
pub(crate) fn transitions(
    rows: impl IntoIterator<Item = TransitionRow>,
    nodes: &Nodes,
    bytes: usize,
) -> Result<Vec<TakenTransition>, QueryError> {
    let mut transitions = Vec::new();
    let mut left = bytes;
    for row in rows {
        let transition = TakenTransition {
            from: nodes.id(row.from)?,
            to: nodes.id(row.to)?,
            count: row.count,
        };
        let cost = TRANSITION_COST + transition.from.len() + transition.to.len();
        if cost > left {
            break;
        }
        left -= cost;
        transitions.push(transition);
    }
    Ok(transitions)
}
