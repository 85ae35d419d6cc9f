//! Graph history, bounded by the graph: the latest attempt of every node and the distinct transitions with their counts.
//!
//! The present is kept up to date by every step (`run_nodes`, `run_transitions`). The past, for a page of steps at any
//! position, is the last checkpoint before it plus at most [`CHECKPOINT_EVERY`] narrow step rows; so the cost does not grow
//! with the run. Without a checkpoint the answer is the same, only slower.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::steps::{self, AttemptRow, Chain};
use super::{QueryError, Reader, Result, signed, unsigned};

/// Steps between two checkpoints of a run.
pub const CHECKPOINT_EVERY: u64 = 1_024;

/// A node that was visited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// The newest attempt.
    pub attempt: AttemptRow,
    /// Attempts so far, the newest included.
    pub attempts: u64,
    /// Position of the newest finished attempt.
    pub latest_step: Option<u64>,
}

/// A transition that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransitionRow {
    /// Node index of the source.
    pub from: i64,
    /// Node index of the target.
    pub to: i64,
    /// How often.
    pub count: u64,
}

/// The graph of a run now, the running attempt included.
pub fn live_nodes(reader: &Reader, run: i64) -> Result<Vec<NodeRow>> {
    let mut statement = reader.prepare_cached(
        "SELECT a.id, a.attempt_id, a.node, a.outcome, a.status, a.started_at, a.finished_at, a.status_detail,
                n.attempts, n.latest_step
           FROM run_nodes n JOIN node_attempts a ON a.id = n.latest_attempt WHERE n.run = ?1 ORDER BY n.node",
    )?;
    read_nodes(statement.query([run])?)
}

fn read_nodes(mut rows: rusqlite::Rows<'_>) -> Result<Vec<NodeRow>> {
    let mut nodes = Vec::new();
    while let Some(row) = rows.next()? {
        nodes.push(NodeRow {
            attempt: steps::read_attempt(row)?,
            attempts: unsigned("attempt count", row.get(8)?)?,
            latest_step: row
                .get::<_, Option<i64>>(9)?
                .map(|step| unsigned("step index", step))
                .transpose()?,
        });
    }
    Ok(nodes)
}

/// The rows of [`live_nodes`] whose node index is in a range.
pub fn live_nodes_in(reader: &Reader, run: i64, range: std::ops::Range<u64>) -> Result<Vec<NodeRow>> {
    let mut statement = reader.prepare_cached(
        "SELECT a.id, a.attempt_id, a.node, a.outcome, a.status, a.started_at, a.finished_at, a.status_detail,
                n.attempts, n.latest_step
           FROM run_nodes n JOIN node_attempts a ON a.id = n.latest_attempt
          WHERE n.run = ?1 AND n.node >= ?2 AND n.node < ?3 ORDER BY n.node",
    )?;
    read_nodes(statement.query(params![run, signed(range.start), signed(range.end)])?)
}

/// The transitions of a run now, without the one from the start.
pub fn live_transitions(reader: &Reader, run: i64) -> Result<Vec<TransitionRow>> {
    let mut statement = reader.prepare_cached(
        "SELECT from_node, to_node, count FROM run_transitions WHERE run = ?1 AND from_node >= 0 ORDER BY from_node, to_node",
    )?;
    let mut rows = statement.query([run])?;
    let mut transitions = Vec::new();
    while let Some(row) = rows.next()? {
        transitions.push(TransitionRow {
            from: row.get(0)?,
            to: row.get(1)?,
            count: unsigned("transition count", row.get(2)?)?,
        });
    }
    Ok(transitions)
}

/// The graph after a number of finished steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphAt {
    /// Steps that it covers.
    pub steps: u64,
    nodes: BTreeMap<i64, (u64, u64)>,
    transitions: BTreeMap<(i64, i64), u64>,
    last_node: Option<i64>,
}

/// How a checkpoint is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// node, latest step, attempts
    nodes: Vec<(i64, u64, u64)>,
    /// from, to, count
    transitions: Vec<(i64, i64, u64)>,
    last: Option<i64>,
}

impl GraphAt {
    fn step(&mut self, node: i64) {
        let entry = self.nodes.entry(node).or_default();
        *entry = (self.steps, entry.1 + 1);
        if let Some(last) = self.last_node {
            *self.transitions.entry((last, node)).or_default() += 1;
        }
        self.last_node = Some(node);
        self.steps += 1;
    }

    /// Distinct transitions, by source and target.
    pub fn transitions(&self) -> impl ExactSizeIterator<Item = TransitionRow> {
        self.transitions
            .iter()
            .map(|(&(from, to), &count)| TransitionRow { from, to, count })
    }

    /// The latest finished attempt of every node. One look-up by primary key for each.
    pub fn nodes(&self, reader: &Reader, chain: &Chain) -> Result<Vec<NodeRow>> {
        let mut rows = Vec::with_capacity(self.nodes.len());
        for &(latest, attempts) in self.nodes.values() {
            let attempt = match steps::at(reader, chain, latest)? {
                Some((_, attempt)) => steps::attempt(reader, attempt)?,
                None => None,
            };
            let attempt = attempt.ok_or_else(|| QueryError::corrupt("step", format!("step {latest} is missing")))?;
            rows.push(NodeRow {
                attempt,
                attempts,
                latest_step: Some(latest),
            });
        }
        Ok(rows)
    }
}

/// The graph of a run after `cursor` finished steps (carried ones included).
pub fn at(reader: &Reader, chain: &Chain, cursor: u64) -> Result<GraphAt> {
    // The newest run of the chain that has a step or a checkpoint at or before the cursor, then forward through its children.
    let segments = chain.segments();
    let first = segments.partition_point(|segment| segment.steps.start > cursor);
    let mut graph = GraphAt::default();
    let mut from = segments.len();
    for (index, segment) in segments.iter().enumerate().skip(first) {
        if let Some(found) = checkpoint(reader, segment.run, cursor)? {
            graph = found;
            from = index + 1;
            break;
        }
    }
    let mut statement = reader.prepare_cached(
        "SELECT node FROM run_steps WHERE run = ?1 AND step_index >= ?2 AND step_index < ?3 ORDER BY step_index",
    )?;
    for segment in segments[first.min(from)..from].iter().rev() {
        let end = segment.steps.end.min(cursor);
        let mut rows = statement.query(params![
            segment.run,
            signed(graph.steps.max(segment.steps.start)),
            signed(end)
        ])?;
        while let Some(row) = rows.next()? {
            graph.step(row.get(0)?);
        }
    }
    Ok(graph)
}

fn checkpoint(reader: &Reader, run: i64, cursor: u64) -> Result<Option<GraphAt>> {
    let mut statement = reader.prepare_cached(
        "SELECT steps, graph_json FROM run_graph_checkpoints WHERE run = ?1 AND steps <= ?2 ORDER BY steps DESC LIMIT 1",
    )?;
    let row = statement
        .query_row(params![run, signed(cursor)], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })
        .optional()?;
    let Some((steps, text)) = row else { return Ok(None) };
    let stored: Stored = serde_json::from_str(&text).map_err(|error| QueryError::corrupt("graph checkpoint", error))?;
    Ok(Some(GraphAt {
        steps: unsigned("checkpoint position", steps)?,
        nodes: stored
            .nodes
            .into_iter()
            .map(|(node, latest, attempts)| (node, (latest, attempts)))
            .collect(),
        transitions: stored
            .transitions
            .into_iter()
            .map(|(from, to, count)| ((from, to), count))
            .collect(),
        last_node: stored.last,
    }))
}

/// Stores the graph of a run at its present step count when a checkpoint is due there: after every
/// [`CHECKPOINT_EVERY`] steps, and for a continuation before its first own step. Called inside the transaction that
/// committed the step or created the continuation; a second call for the same position changes nothing.
pub fn write_checkpoint(connection: &Reader, run: i64) -> Result<()> {
    let Some(facts) = super::run::facts_by_id(connection, run)? else {
        return Ok(());
    };
    let steps = facts.step_count;
    let is_due = steps > 0 && (steps.is_multiple_of(CHECKPOINT_EVERY) || steps == facts.carried_step_count);
    let mut stored = connection.prepare_cached("SELECT 1 FROM run_graph_checkpoints WHERE run = ?1 AND steps = ?2")?;
    if !is_due || stored.exists(params![run, signed(steps)])? {
        return Ok(());
    }
    let graph = at(connection, &Chain::of(connection, &facts)?, steps)?;
    let stored = Stored {
        nodes: graph
            .nodes
            .iter()
            .map(|(&node, &(latest, attempts))| (node, latest, attempts))
            .collect(),
        transitions: graph
            .transitions
            .iter()
            .map(|(&(from, to), &count)| (from, to, count))
            .collect(),
        last: graph.last_node,
    };
    let text = serde_json::to_string(&stored).map_err(|error| QueryError::corrupt("graph checkpoint", error))?;
    connection
        .prepare_cached("INSERT INTO run_graph_checkpoints (run, steps, graph_json) VALUES (?1, ?2, ?3)")?
        .execute(params![run, signed(steps), text])?;
    Ok(())
}
