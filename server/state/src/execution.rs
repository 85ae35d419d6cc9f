//! What a runner is told of a run: current invocations, their latest results, visits, and where to go on. Bounded by the graph,
//! whatever the length of the history.

use std::collections::HashSet;

use piw_protocol::child::{ExecutionState, NodeResultState, Position, ScopeState, VisitCount};
use piw_protocol::run::{ActionReceipt, ErrorInfo, NodeOutcome};
use rusqlite::Connection;
use serde::Deserialize;

use piw_engine::machine::SavedPosition;

use crate::cache::Live;
use crate::content;
use crate::error::StateError;
use crate::ids::NodeIndex;
use crate::interaction;
use crate::names;
use crate::value::Stored;

/// Values up to this size travel inside the state.
const INLINE: u64 = 64 * 1024;

/// The parts of a result that are no columns, as `node_attempts.result_json` holds them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    error: Option<ErrorInfo>,
    action: Option<ActionReceipt>,
}

/// Reads the state of a run.
pub(crate) fn state(db: &Connection, live: &Live) -> Result<ExecutionState, StateError> {
    let definition = &live.graph.definition;
    let saved = live.progress.save(definition);
    let open: HashSet<&str> = saved.scopes.iter().map(|scope| scope.mount.as_str()).collect();
    let (scopes, left) = scopes(db, live)?;
    let mut results = node_results(db, live, &open)?;
    results.extend(left.into_iter().filter(|(_, result)| {
        let parent = definition
            .scope(&result.node_id)
            .and_then(|scope| scope.parent.as_deref())
            .unwrap_or("");
        parent.is_empty() || open.contains(parent)
    }));
    // A mount is left by the step of its exit node, so it follows that node's own result.
    results.sort_by_key(|(step, _)| *step);
    let mut statement = db.prepare_cached(
        "SELECT r.title, v.json, v.blob FROM runs r JOIN run_values v ON v.run = r.id AND v.kind = 'input' WHERE r.id = ?1",
    )?;
    let (run_title, input) = statement.query_row([live.key], |row| Ok((row.get(0)?, Stored::columns(row, 1)?)))?;
    Ok(ExecutionState {
        revision: live.revision,
        input: input.to_ref(db, INLINE)?,
        run_title,
        step_count: live.step_count,
        scopes,
        results: results.into_iter().map(|(_, result)| result).collect(),
        position: position(db, live, &saved.position, &saved.visits)?,
        visits: saved.visits,
    })
}

fn position(
    db: &Connection,
    live: &Live,
    saved: &SavedPosition,
    visits: &[VisitCount],
) -> Result<Position, StateError> {
    Ok(match saved {
        SavedPosition::Start => Position::Start,
        SavedPosition::Interrupted { node_id } => {
            let visit = visits
                .iter()
                .find(|visit| visit.node_id == *node_id)
                .map_or(1, |visit| visit.count);
            Position::Node {
                overran: overran(db, live, node_id)?,
                node_id: node_id.clone(),
                visit,
            }
        }
        SavedPosition::Running { node_id }
            if let Some(current) = live.current.as_ref().filter(|current| current.requested) =>
        {
            match interaction::settlement(db, current)? {
                Some(settlement) => Position::Settled {
                    node_id: node_id.clone(),
                    visit: current.visit,
                    attempt_id: current.id.as_str().to_owned(),
                    settlement,
                },
                // Nothing is executed from here: whoever reads the state looks at one submission.
                None => Position::Node {
                    node_id: node_id.clone(),
                    visit: current.visit,
                    overran: false,
                },
            }
        }
        SavedPosition::Answered { node_id } => Position::After {
            node_id: node_id.clone(),
        },
        other => {
            let text = format!("run {} cannot be executed from {other:?}", live.run_id);
            return Err(StateError::Inconsistent(text));
        }
    })
}

/// Whether the node's newest attempt was ended by the server after its budget.
fn overran(db: &Connection, live: &Live, node_id: &str) -> Result<bool, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT 1 FROM run_nodes n JOIN node_attempts a ON a.id = n.latest_attempt
          WHERE n.run = ?1 AND n.node = ?2 AND a.status = 'overran'",
    )?;
    Ok(statement.exists((live.key, live.graph.index(node_id)?))?)
}

type Ordered = Vec<((u64, u32), NodeResultState)>;

/// Open invocations, outermost first, and the results of mounts that were left.
fn scopes(db: &Connection, live: &Live) -> Result<(Vec<ScopeState>, Ordered), StateError> {
    let mut statement = db.prepare_cached(
        "SELECT mount, step_count, exit, left_step, input_json, input_blob, output_json, output_blob FROM run_scopes
          WHERE run = ?1 ORDER BY length(mount), mount",
    )?;
    let mut rows = statement.query([live.key])?;
    let (mut open, mut left) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let mount: String = row.get(0)?;
        let exit: Option<String> = row.get(2)?;
        if exit.is_some() {
            // Of several mounts left by one step, inner ones come first.
            let depth = u32::MAX - u32::try_from(mount.matches('/').count()).unwrap_or(0);
            let output = Stored::columns(row, 6)?.to_ref(db, INLINE)?;
            let step: Option<u64> = row.get(3)?;
            let result = NodeResultState {
                node_id: mount,
                outcome: NodeOutcome::Ok,
                output,
                error: None,
                action: None,
                exit,
            };
            left.push(((step.unwrap_or(0), depth), result));
        } else {
            let input = Stored::columns(row, 4)?.to_ref(db, INLINE)?;
            open.push(ScopeState {
                mount,
                input,
                step_count: row.get(1)?,
            });
        }
    }
    Ok((open, left))
}

/// Latest results of the nodes of open invocations. A checkpoint that was answered has the answer as its output.
fn node_results(db: &Connection, live: &Live, open: &HashSet<&str>) -> Result<Ordered, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT n.node, n.result_step, a.outcome, a.output_json, a.output_blob, a.result_json, a.result_blob,
           c.answer_json, c.answer_blob, c.child
           FROM run_nodes n
           JOIN node_attempts a ON a.id = n.result_attempt
           LEFT JOIN continuations c ON c.parent = a.run AND c.attempt = a.id
          WHERE n.run = ?1 AND n.result_attempt IS NOT NULL",
    )?;
    let mut rows = statement.query([live.key])?;
    let mut results = Vec::new();
    while let Some(row) = rows.next()? {
        let node: NodeIndex = row.get(0)?;
        let node_id = live.graph.node_id(node)?;
        let scope = live.graph.definition.scope_of(node_id).unwrap_or("");
        if !scope.is_empty() && !open.contains(scope) {
            continue;
        }
        let answered = row.get::<_, Option<i64>>(9)?.is_some();
        let output = if answered {
            Stored::columns(row, 7)?
        } else {
            Stored::columns(row, 3)?
        };
        let details = details(db, &Stored::columns(row, 5)?)?;
        let result = NodeResultState {
            node_id: node_id.to_owned(),
            outcome: names::outcome(&row.get::<_, String>(2)?)?,
            output: output.to_ref(db, INLINE)?,
            error: details.error,
            action: details.action,
            exit: None,
        };
        results.push(((row.get(1)?, 0), result));
    }
    Ok(results)
}

fn details(db: &Connection, stored: &Stored) -> Result<Details, StateError> {
    Ok(match (&stored.json, stored.blob) {
        (Some(json), _) => serde_json::from_str(json)?,
        (None, Some(blob)) => serde_json::from_slice(&content::read_all(db, blob)?)?,
        (None, None) => Details::default(),
    })
}
