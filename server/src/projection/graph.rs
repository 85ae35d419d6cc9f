//! Graph history as it travels: the latest attempt of each node and the distinct transitions, within a byte budget.

use piw_protocol::view::{GraphStep, TakenTransition};
use piw_state::query::graph::{NodeRow, TransitionRow};
use piw_state::query::{QueryError, rfc3339};

use super::bounds::{TEXT_LIMIT, Window, cut};
use super::nodes::Nodes;

/// Longest one-line detail of a graph node in bytes; the whole is in its step.
const DETAIL_LIMIT: usize = 256;

/// Graph steps in document order of their nodes; when the budget does not hold all, the ones that changed last.
pub(crate) fn steps(rows: Vec<NodeRow>, nodes: &Nodes, bytes: usize) -> Result<Vec<GraphStep>, QueryError> {
    let mut steps = rows
        .into_iter()
        .map(|row| step(row, nodes))
        .collect::<Result<Vec<_>, _>>()?;
    let cost: usize = steps.iter().map(|step| super::bounds::size(step) + 1).sum();
    if cost > bytes {
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
    let mut window = Window::new(usize::MAX, bytes);
    for row in rows {
        let transition = TakenTransition {
            from: nodes.id(row.from)?,
            to: nodes.id(row.to)?,
            count: row.count,
        };
        if !window.push(transition) {
            break;
        }
    }
    Ok(window.into_items())
}
