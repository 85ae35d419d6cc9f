//! Finished attempts by position. A continuation's earlier steps are its parents' rows, found through the chain.

use std::ops::{ControlFlow, Range};

use piw_protocol::run::NodeOutcome;
use rusqlite::{OptionalExtension, Row, params};

use crate::ids::AttemptId;

use super::run::RunFacts;
use super::{QueryError, Reader, Result, StoredValue, signed, unsigned, word};

/// A finished attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRow {
    /// Position in the run, carried steps included.
    pub index: u64,
    /// `node_attempts.id`.
    pub attempt: i64,
    /// Public id of the attempt.
    pub attempt_id: String,
    /// Node index in the definition.
    pub node: i64,
    /// Ordinal of the visit of the node in the chain, from 1.
    pub visit: u64,
    /// How it ended.
    pub outcome: NodeOutcome,
    /// Milliseconds since the epoch.
    pub started_at: i64,
    /// Milliseconds since the epoch.
    pub finished_at: i64,
    /// Computed one-line detail.
    pub status_detail: Option<String>,
    /// Consumed active time in milliseconds.
    pub active_ms: Option<u64>,
    /// Output of an `ok` attempt.
    pub output: Option<StoredValue>,
    /// Prompt of an agent step.
    pub prompt: Option<StoredValue>,
    /// `{error?, action?, assistantMessage?, conversation?}`.
    pub result: Option<StoredValue>,
}

/// Steps of one run of a chain, in positions of the whole chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// `runs.id`.
    pub run: i64,
    /// Positions whose rows belong to this run.
    pub steps: Range<u64>,
}

/// The runs whose rows hold a run's steps, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    segments: Vec<Segment>,
}

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the range's start.
    Forward,
    /// From the range's end.
    Backward,
}

impl Chain {
    /// The chain of a run: one look-up by primary key for every continuation before it.
    pub fn of(reader: &Reader, facts: &RunFacts) -> Result<Self> {
        let mut segments = vec![Segment {
            run: facts.id,
            steps: facts.carried_step_count..facts.step_count,
        }];
        let mut carried = facts.carried_step_count;
        let mut parent = facts
            .parent
            .as_ref()
            .filter(|_| facts.is_continuation)
            .map(|(id, _)| *id);
        let mut statement = reader.prepare_cached(
            "SELECT carried_step_count, CASE WHEN parent_kind = 'continuation' THEN parent END FROM runs WHERE id = ?1",
        )?;
        while let Some(run) = parent.filter(|_| carried > 0) {
            let row = statement
                .query_row([run], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)))
                .optional()?;
            let Some((start, next)) = row else {
                return Err(QueryError::corrupt(
                    "continuation",
                    format!("its parent {run} is missing"),
                ));
            };
            let start = unsigned("carried step count", start)?;
            if start > carried || next.is_some_and(|next| next >= run) {
                return Err(QueryError::corrupt(
                    "continuation",
                    format!("run {run} does not precede its child"),
                ));
            }
            segments.push(Segment {
                run,
                steps: start..carried,
            });
            (carried, parent) = (start, next);
        }
        Ok(Self { segments })
    }

    /// The segments, newest first.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The run whose rows hold a position.
    #[must_use]
    pub fn owner(&self, index: u64) -> Option<i64> {
        // Newest first, each segment ending where the one before it starts.
        let at = self.segments.partition_point(|segment| segment.steps.start > index);
        self.segments
            .get(at)
            .filter(|segment| segment.steps.contains(&index))
            .map(|segment| segment.run)
    }

    /// The parts of `range` by owner, in the wanted order.
    fn parts(&self, range: &Range<u64>, order: Order) -> Vec<Segment> {
        let mut parts: Vec<Segment> = self
            .segments
            .iter()
            .map(|segment| Segment {
                run: segment.run,
                steps: segment.steps.start.max(range.start)..segment.steps.end.min(range.end),
            })
            .filter(|part| !part.steps.is_empty())
            .collect();
        if order == Order::Forward {
            parts.reverse();
        }
        parts
    }
}

const COLUMNS: &str = "s.step_index, s.attempt, a.attempt_id, s.node, a.visit, a.outcome, a.started_at, a.finished_at,
       a.status_detail, a.output_json, a.output_blob, a.prompt_json, a.prompt_blob, a.result_json, a.result_blob, a.active_ms";

/// Reads the steps of `range` one by one until the visitor breaks. Rows are not held.
pub fn scan(
    reader: &Reader,
    chain: &Chain,
    range: Range<u64>,
    order: Order,
    mut visit: impl FnMut(StepRow) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let direction = if order == Order::Forward { "ASC" } else { "DESC" };
    let mut statement = reader.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM run_steps s JOIN node_attempts a ON a.id = s.attempt
          WHERE s.run = ?1 AND s.step_index >= ?2 AND s.step_index < ?3 ORDER BY s.step_index {direction}"
    ))?;
    for part in chain.parts(&range, order) {
        let mut rows = statement.query(params![part.run, signed(part.steps.start), signed(part.steps.end)])?;
        while let Some(row) = rows.next()? {
            if visit(read_step(reader, row)?)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn read_step(reader: &Reader, row: &Row<'_>) -> Result<StepRow> {
    let value = |what, json: usize| -> Result<Option<StoredValue>> {
        let text = row.get_ref(json)?.as_str_or_null().map_err(rusqlite::Error::from)?;
        StoredValue::read(reader, what, text, row.get(json + 1)?)
    };
    Ok(StepRow {
        index: unsigned("step index", row.get(0)?)?,
        attempt: row.get(1)?,
        attempt_id: row.get::<_, AttemptId>(2)?.into_string(),
        node: row.get(3)?,
        visit: unsigned("visit", row.get(4)?)?,
        outcome: word("outcome", row.get_ref(5)?.as_str().map_err(rusqlite::Error::from)?)?,
        started_at: row.get(6)?,
        finished_at: row.get::<_, Option<i64>>(7)?.unwrap_or_default(),
        status_detail: row.get(8)?,
        output: value("output", 9)?,
        prompt: value("prompt", 11)?,
        result: value("result", 13)?,
        active_ms: row
            .get::<_, Option<i64>>(15)?
            .map(|millis| unsigned("active time", millis))
            .transpose()?,
    })
}

/// Node and attempt of one position; the narrow row only.
pub fn at(reader: &Reader, chain: &Chain, index: u64) -> Result<Option<(i64, i64)>> {
    let Some(run) = chain.owner(index) else { return Ok(None) };
    let mut statement =
        reader.prepare_cached("SELECT node, attempt FROM run_steps WHERE run = ?1 AND step_index = ?2")?;
    Ok(statement
        .query_row(params![run, signed(index)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// An attempt, finished or not, without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRow {
    /// `node_attempts.id`.
    pub attempt: i64,
    /// Public id.
    pub attempt_id: String,
    /// Node index in the definition.
    pub node: i64,
    /// How it ended, when it finished.
    pub outcome: Option<NodeOutcome>,
    /// `active waiting finished crashed interrupted cancelled`.
    pub status: String,
    /// Milliseconds since the epoch.
    pub started_at: i64,
    /// Milliseconds since the epoch.
    pub finished_at: Option<i64>,
    /// Computed one-line detail.
    pub status_detail: Option<String>,
}

/// One attempt by `node_attempts.id`.
pub fn attempt(reader: &Reader, id: i64) -> Result<Option<AttemptRow>> {
    let mut statement = reader.prepare_cached(
        "SELECT id, attempt_id, node, outcome, status, started_at, finished_at, status_detail FROM node_attempts WHERE id = ?1",
    )?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(read_attempt).transpose()
}

/// Reads the columns of [`attempt`]'s query.
pub(crate) fn read_attempt(row: &Row<'_>) -> Result<AttemptRow> {
    let outcome = row.get_ref(3)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    Ok(AttemptRow {
        attempt: row.get(0)?,
        attempt_id: row.get::<_, AttemptId>(1)?.into_string(),
        node: row.get(2)?,
        outcome: outcome.map(|text| word("outcome", text)).transpose()?,
        status: row.get(4)?,
        started_at: row.get(5)?,
        finished_at: row.get(6)?,
        status_detail: row.get(7)?,
    })
}

/// `node_attempts.id` of a public attempt id, in any run of the chain.
pub fn attempt_by_public_id(reader: &Reader, chain: &Chain, public: &str) -> Result<Option<AttemptRow>> {
    let mut statement = reader.prepare_cached(
        "SELECT id, attempt_id, node, outcome, status, started_at, finished_at, status_detail FROM node_attempts
          WHERE run = ?1 AND attempt_id = ?2",
    )?;
    for segment in chain.segments() {
        let mut rows = statement.query(params![segment.run, AttemptId::new(public)])?;
        if let Some(row) = rows.next()? {
            return read_attempt(row).map(Some);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> Chain {
        Chain {
            segments: vec![
                Segment { run: 9, steps: 7..9 },
                Segment { run: 5, steps: 7..7 },
                Segment { run: 3, steps: 4..7 },
                Segment { run: 1, steps: 0..4 },
            ],
        }
    }

    #[test]
    fn every_position_has_one_owner() {
        let owners: Vec<_> = (0..10).map(|index| chain().owner(index)).collect();
        let expected = [1, 1, 1, 1, 3, 3, 3, 9, 9]
            .map(Some)
            .into_iter()
            .chain([None])
            .collect::<Vec<_>>();
        assert_eq!(owners, expected);
    }

    #[test]
    fn a_range_is_read_from_every_run_it_covers() {
        let forward = chain().parts(&(2..8), Order::Forward);
        assert_eq!(
            forward,
            [
                Segment { run: 1, steps: 2..4 },
                Segment { run: 3, steps: 4..7 },
                Segment { run: 9, steps: 7..8 }
            ]
        );
        assert_eq!(
            chain().parts(&(8..100), Order::Backward),
            [Segment { run: 9, steps: 8..9 }]
        );
    }
}
