//! Trace events by position, and the position of an attempt in the trace.

use std::ops::{ControlFlow, Range};

use rusqlite::{OptionalExtension, Row, params};
use serde_json::Value;

use crate::ids::AttemptId;

use super::steps::Order;
use super::{QueryError, Reader, Result, StoredValue, signed, unsigned};

/// An event of a run's trace.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceRow {
    /// Ordinal in the run, from 1.
    pub seq: u64,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// `run node effect command runner content update notification`.
    pub scope: String,
    /// For example `node.finished`.
    pub event_type: String,
    /// Node index in the definition.
    pub node: Option<i64>,
    /// The attempt that the event is about; its columns are the event's facts.
    pub attempt: Option<TraceAttempt>,
    /// Facts that no column holds.
    pub payload: Option<Value>,
}

/// What a trace event shows of its attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceAttempt {
    /// Public id.
    pub attempt_id: String,
    /// Ordinal of the visit, from 1.
    pub visit: u64,
    /// Claim generation that started it.
    pub generation: u64,
    /// Outcome word, when it finished.
    pub outcome: Option<String>,
    /// Active-time budget.
    pub timeout_ms: Option<u64>,
    /// Consumed active time, final when finished.
    pub active_ms: Option<u64>,
    /// Computed one-line detail.
    pub status_detail: Option<String>,
    /// Whether the event ends the attempt.
    pub ends: bool,
    /// Output; read for events that end an attempt.
    pub output: Option<StoredValue>,
    /// `{error?, action?, …}`; read for events that end an attempt.
    pub result: Option<StoredValue>,
    /// What the model is told; read for the event that records it.
    pub prompt: Option<StoredValue>,
}

/// Reads events with ordinals in `range` one by one until the visitor breaks.
pub fn scan(
    reader: &Reader,
    run: i64,
    range: Range<u64>,
    order: Order,
    mut visit: impl FnMut(TraceRow) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let direction = if order == Order::Forward { "ASC" } else { "DESC" };
    let mut statement = reader.prepare_cached(&format!(
        "SELECT e.seq, e.at, e.scope, e.type, e.node, e.payload,
                a.attempt_id, a.visit, a.generation, a.outcome, a.timeout_ms, a.active_ms, a.status_detail,
                e.type IN ('node.finished', 'node.failed') AS ends,
                a.output_json, a.output_blob, a.result_json, a.result_blob,
                e.type = 'node.prompted' AS prompts, a.prompt_json, a.prompt_blob
           FROM events e LEFT JOIN node_attempts a ON a.id = e.attempt
          WHERE e.resource = ?1 AND e.seq >= ?2 AND e.seq < ?3 ORDER BY e.seq {direction}"
    ))?;
    let mut rows = statement.query(params![run, signed(range.start), signed(range.end)])?;
    while let Some(row) = rows.next()? {
        if visit(read_event(reader, row)?)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn read_event(reader: &Reader, row: &Row<'_>) -> Result<TraceRow> {
    let payload = row.get_ref(5)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    let has_attempt = !matches!(row.get_ref(6)?, rusqlite::types::ValueRef::Null);
    Ok(TraceRow {
        seq: unsigned("event ordinal", row.get(0)?)?,
        at: row.get(1)?,
        scope: row.get(2)?,
        event_type: row.get(3)?,
        node: row.get(4)?,
        attempt: if has_attempt {
            Some(read_attempt(reader, row)?)
        } else {
            None
        },
        payload: payload
            .map(|text| serde_json::from_str(text).map_err(|error| QueryError::corrupt("event payload", error)))
            .transpose()?,
    })
}

fn read_attempt(reader: &Reader, row: &Row<'_>) -> Result<TraceAttempt> {
    let ends: bool = row.get(13)?;
    let value = |what, read: bool, json: usize| -> Result<Option<StoredValue>> {
        if !read {
            return Ok(None);
        }
        let text = row.get_ref(json)?.as_str_or_null().map_err(rusqlite::Error::from)?;
        StoredValue::read(reader, what, text, row.get(json + 1)?)
    };
    let milliseconds = |column: usize| -> Result<Option<u64>> {
        row.get::<_, Option<i64>>(column)?
            .map(|value| unsigned("duration", value))
            .transpose()
    };
    Ok(TraceAttempt {
        attempt_id: row.get::<_, AttemptId>(6)?.into_string(),
        visit: unsigned("visit", row.get(7)?)?,
        generation: unsigned("generation", row.get(8)?)?,
        outcome: row.get(9)?,
        timeout_ms: milliseconds(10)?,
        active_ms: milliseconds(11)?,
        status_detail: row.get(12)?,
        ends,
        output: value("output", ends, 14)?,
        result: value("result", ends, 16)?,
        prompt: value("prompt", row.get(18)?, 19)?,
    })
}

/// Ordinal of the first event about an attempt (`node_attempts.id`).
///
/// Attempts are numbered in the order in which they start, one at a time, so the trace is searched by halves; an event that
/// came late for an old attempt costs a scan, not a wrong answer.
pub fn first_of_attempt(reader: &Reader, run: i64, newest: u64, attempt: i64) -> Result<Option<u64>> {
    let mut probe = reader.prepare_cached(
        "SELECT seq, attempt FROM events WHERE resource = ?1 AND seq >= ?2 AND attempt IS NOT NULL ORDER BY seq LIMIT 1",
    )?;
    let mut at_or_after = |seq: u64| -> Result<Option<(u64, i64)>> {
        let row = probe
            .query_row(params![run, signed(seq)], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })
            .optional()?;
        row.map(|(seq, attempt)| Ok((unsigned("event ordinal", seq)?, attempt)))
            .transpose()
    };
    let (mut low, mut high) = (1, newest + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match at_or_after(middle)? {
            Some((seq, found)) if found < attempt => low = seq + 1,
            _ => high = middle,
        }
    }
    if let Some((seq, found)) = at_or_after(low)?
        && found == attempt
    {
        return Ok(Some(seq));
    }
    first_where(reader, "attempt", run, attempt)
}

/// Ordinal of the first event about a node.
pub fn first_of_node(reader: &Reader, run: i64, node: i64) -> Result<Option<u64>> {
    first_where(reader, "node", run, node)
}

fn first_where(reader: &Reader, column: &str, run: i64, value: i64) -> Result<Option<u64>> {
    let mut statement = reader.prepare_cached(&format!(
        "SELECT seq FROM events WHERE resource = ?1 AND {column} = ?2 ORDER BY seq LIMIT 1"
    ))?;
    let seq: Option<i64> = statement.query_row([run, value], |row| row.get(0)).optional()?;
    seq.map(|seq| unsigned("event ordinal", seq)).transpose()
}
