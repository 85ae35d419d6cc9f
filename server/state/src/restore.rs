//! Rebuilds what the writer remembers of a run, and what a runner is told, from the rows of the run.

use piw_engine::machine::{Progress, Saved, SavedPosition, SavedScope};
use piw_protocol::child::VisitCount;
use piw_protocol::run::RunStatus;
use rusqlite::Connection;

use crate::cache::{Current, Graph, Live, RunCache};
use crate::error::StateError;
use crate::ids::{AttemptId, AttemptKey, NodeIndex, RunKey};
use crate::names;
use crate::value::maybe;

/// Reads a run.
pub(crate) fn live(db: &Connection, cache: &mut RunCache, key: RunKey) -> Result<Live, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT r.run_id, r.definition, r.status, s.revision, r.step_count, r.attempt_count, r.trace_seq,
           r.update_seq, r.crash_streak, r.ambiguous_effects, r.waiting_attempt, r.last_attempt, r.current_attempt,
           EXISTS (SELECT 1 FROM leases l WHERE l.resource = r.id AND l.owner_id IS NOT NULL)
           FROM runs r JOIN resources s ON s.id = r.id WHERE r.id = ?1",
    )?;
    let row = statement.query_row([key], |row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, i64>(1)?,
            row.get::<_, String>(2)?,
            [
                row.get::<_, u64>(3)?,
                row.get(4)?,
                row.get(5)?,
                row.get(6)?,
                row.get(7)?,
            ],
            [row.get::<_, u32>(8)?, row.get(9)?],
            [row.get::<_, Option<AttemptKey>>(10)?, row.get(11)?, row.get(12)?],
            row.get(13)?,
        ))
    });
    let (run_id, definition, status, counts, small, attempts, claimed) =
        maybe(row)?.ok_or_else(|| StateError::Inconsistent(format!("run key {} has no row", key.0)))?;
    let graph = cache.graph(db, definition)?;
    let [revision, step_count, attempt_count, trace_seq, update_seq] = counts;
    let status = names::run_status(&status)?;
    let current = attempts[2].map(|attempt| current(db, attempt)).transpose()?;
    let last_node = attempts[1].map(|attempt| node_of(db, attempt)).transpose()?;
    let place = Place {
        key,
        status,
        step_count,
        current: current.as_ref(),
        last_node,
    };
    let progress = progress(db, &graph, &place)?;
    let mut statement =
        db.prepare_cached("SELECT count(*) FROM effects WHERE resource = ?1 AND status IN ('applying', 'pending')")?;
    let open_effects = statement.query_row([key], |row| row.get(0))?;
    let mut statement = db.prepare_cached("SELECT coalesce(max(slot), 0) FROM runner_messages WHERE run = ?1")?;
    let message_slot = statement.query_row([key], |row| row.get(0))?;
    Ok(Live {
        key,
        run_id: run_id.into(),
        graph,
        progress,
        status,
        revision,
        step_count,
        attempt_count,
        trace_seq,
        update_seq,
        crash_streak: small[0],
        ambiguous_effects: small[1],
        open_effects,
        current,
        waiting_attempt: attempts[0],
        last_attempt: attempts[1],
        last_node,
        message_slot,
        claimed,
    })
}

fn current(db: &Connection, attempt: AttemptKey) -> Result<Current, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT attempt_id, node, visit, EXISTS (SELECT 1 FROM attempt_active_intervals WHERE attempt = id AND closed = 0),
           status = 'waiting' FROM node_attempts WHERE id = ?1",
    )?;
    Ok(statement.query_row([attempt], |row| {
        Ok(Current {
            key: attempt,
            id: row.get::<_, AttemptId>(0)?,
            node: row.get(1)?,
            visit: row.get(2)?,
            started_steady: None,
            sampled: row.get(3)?,
            requested: row.get(4)?,
        })
    })?)
}

fn node_of(db: &Connection, attempt: AttemptKey) -> Result<NodeIndex, StateError> {
    let mut statement = db.prepare_cached("SELECT node FROM node_attempts WHERE id = ?1")?;
    Ok(statement.query_row([attempt], |row| row.get(0))?)
}

/// What decides where a run stands.
struct Place<'a> {
    key: RunKey,
    status: RunStatus,
    step_count: u64,
    current: Option<&'a Current>,
    last_node: Option<NodeIndex>,
}

fn progress(db: &Connection, graph: &Graph, place: &Place<'_>) -> Result<Progress, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT n.node, n.visits, a.status FROM run_nodes n LEFT JOIN node_attempts a ON a.id = n.latest_attempt
          WHERE n.run = ?1 ORDER BY n.latest_attempt",
    )?;
    let mut visits = Vec::new();
    let mut newest: Option<(NodeIndex, Option<String>)> = None;
    let mut rows = statement.query([place.key])?;
    while let Some(row) = rows.next()? {
        let node: NodeIndex = row.get(0)?;
        visits.push(VisitCount {
            node_id: graph.node_id(node)?.to_owned(),
            count: row.get(1)?,
        });
        newest = Some((node, row.get(2)?));
    }
    let position = position(graph, place, newest)?;
    let saved = Saved {
        steps: place.step_count,
        scopes: open_scopes(db, place.key)?,
        visits,
        position,
    };
    Progress::restore(&graph.definition, &saved)
        .map_err(|error| StateError::Inconsistent(format!("run key {}: {error}", place.key.0)))
}

fn position(
    graph: &Graph,
    place: &Place<'_>,
    newest: Option<(NodeIndex, Option<String>)>,
) -> Result<SavedPosition, StateError> {
    let id = |node: NodeIndex| graph.node_id(node).map(str::to_owned);
    if place.status.is_terminal() {
        return Ok(SavedPosition::Ended);
    }
    if let Some(current) = place.current {
        return Ok(SavedPosition::Running {
            node_id: id(current.node)?,
        });
    }
    match (place.status, place.last_node, newest) {
        (RunStatus::Waiting, Some(node), _) => Ok(SavedPosition::Waiting { node_id: id(node)? }),
        // A visit that did not finish: it is executed again.
        (_, _, Some((node, Some(status)))) if status != "finished" => {
            Ok(SavedPosition::Interrupted { node_id: id(node)? })
        }
        // Only an answered checkpoint is finished while nothing runs.
        (_, Some(node), _) => Ok(SavedPosition::Answered { node_id: id(node)? }),
        (_, None, _) => Ok(SavedPosition::Start),
    }
}

/// Open invocations of mounts, outermost first.
pub(crate) fn open_scopes(db: &Connection, run: RunKey) -> Result<Vec<SavedScope>, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT mount, step_count FROM run_scopes WHERE run = ?1 AND state = 'entered' ORDER BY length(mount), mount",
    )?;
    let rows = statement.query_map([run], |row| {
        Ok(SavedScope {
            mount: row.get(0)?,
            steps: row.get(1)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
