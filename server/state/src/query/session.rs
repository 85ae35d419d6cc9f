//! Recorded sessions: events and entries of a run by position, and the conversation before any event.
//!
//! Values have the form in which views carry them: arguments above 16 KiB are artifacts, in events and in conversations alike,
//! so that whoever replays the events of a page gets what the stored checkpoints say.

use std::ops::{ControlFlow, Range};

use piw_protocol::child::ContentRef;
use piw_protocol::session::{CHECKPOINT_EVERY, Capture, CaptureState, Conversation, RecordedEvent, SessionEvent};
use piw_protocol::view::{ArtifactRef, ViewValue};
use rusqlite::{OptionalExtension, params};
use serde_json::json;

use super::steps::Order;
use super::value::content_ref;
use super::{QueryError, Reader, Result, StoredValue, rfc3339, signed, unsigned};

/// Sentences about cut-off segments that are read at most.
const GAPS: u64 = 8;

/// How the recording of a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// Segments.
    pub segments: u64,
    /// Events of all segments.
    pub events: u64,
    /// Entries of all segments.
    pub entries: u64,
    /// State of the newest segment.
    pub capture: Capture,
    /// The newest segments that ended early: how many events were recorded before, and why it ended.
    pub cut_off: Vec<(u64, Option<String>)>,
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    /// Position in the run, from 0.
    pub position: u64,
    /// Steps of the run finished by then.
    pub steps: u64,
    /// Entries of the run settled by then.
    pub entries: u64,
    /// The event, as views carry it.
    pub event: RecordedEvent,
    /// Where its arguments are when they are content: `blobs.id` and name.
    pub content: Option<(i64, ContentRef)>,
}

/// A settled entry.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryRow {
    /// Index in the run, from 0.
    pub index: u64,
    /// Position of the event that settled it.
    pub position: u64,
    /// Pi's id.
    pub entry_id: String,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// Pi's type.
    pub kind: String,
    /// The entry.
    pub content: StoredValue,
}

/// How the recording of a run stands.
pub fn recording(reader: &Reader, run: i64) -> Result<Recording> {
    let segments: i64 = reader
        .prepare_cached("SELECT count(*) FROM session_segments WHERE run = ?1")?
        .query_row([run], |row| row.get(0))?;
    let newest: Option<(String, Option<String>, i64)> = reader
        .prepare_cached(
            "SELECT status, reason, first_position + next_sequence FROM session_segments
              WHERE run = ?1 ORDER BY id DESC LIMIT 1",
        )?
        .query_row([run], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((status, reason, events)) = newest else {
        return Ok(Recording {
            segments: 0,
            events: 0,
            entries: 0,
            capture: Capture {
                state: CaptureState::None,
                reason: None,
            },
            cut_off: Vec::new(),
        });
    };
    let events = unsigned("event count", events)?;
    Ok(Recording {
        segments: unsigned("segment count", segments)?,
        events,
        entries: before(reader, run, events)?.1,
        capture: Capture {
            state: super::word("segment status", &status)?,
            reason,
        },
        cut_off: cut_off(reader, run)?,
    })
}

fn cut_off(reader: &Reader, run: i64) -> Result<Vec<(u64, Option<String>)>> {
    let mut statement = reader.prepare_cached(
        "SELECT first_position + next_sequence, reason FROM session_segments
          WHERE run = ?1 AND status = 'failed' ORDER BY id DESC LIMIT ?2",
    )?;
    let mut rows = statement.query(params![run, signed(GAPS)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((unsigned("event count", row.get(0)?)?, row.get(1)?));
    }
    found.reverse();
    Ok(found)
}

/// Steps and entries that the event before a position counts.
pub(crate) fn before(reader: &Reader, run: i64, position: u64) -> Result<(u64, u64)> {
    let Some(last) = position.checked_sub(1) else {
        return Ok((0, 0));
    };
    let counted: Option<(i64, i64)> = reader
        .prepare_cached("SELECT steps, entries FROM session_events WHERE run = ?1 AND position = ?2")?
        .query_row(params![run, signed(last)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match counted {
        Some((steps, entries)) => Ok((unsigned("step count", steps)?, unsigned("entry count", entries)?)),
        None => Err(QueryError::corrupt("recording", format!("event {last} is missing"))),
    }
}

/// Reads events with positions in `range` one by one until the visitor breaks.
pub fn events(
    reader: &Reader,
    run: i64,
    range: Range<u64>,
    order: Order,
    mut visit: impl FnMut(EventRow) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let direction = if order == Order::Forward { "ASC" } else { "DESC" };
    let mut statement = reader.prepare_cached(&format!(
        "SELECT position, at, kind, payload_json, args_blob, steps, entries FROM session_events
          WHERE run = ?1 AND position >= ?2 AND position < ?3 ORDER BY position {direction}"
    ))?;
    let mut rows = statement.query(params![run, signed(range.start), signed(range.end)])?;
    while let Some(row) = rows.next()? {
        let payload = row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?;
        let kind = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
        let content = match row.get::<_, Option<i64>>(4)? {
            Some(blob) => Some((blob, content_ref(reader, "recorded arguments", blob)?)),
            None => None,
        };
        let event = EventRow {
            position: unsigned("event position", row.get(0)?)?,
            steps: unsigned("step count", row.get(5)?)?,
            entries: unsigned("entry count", row.get(6)?)?,
            event: RecordedEvent {
                at: rfc3339(row.get(1)?),
                what: what(kind, payload, content.as_ref().map(|(_, reference)| reference))?,
            },
            content,
        };
        if visit(event)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// An event of its columns, as views carry it.
fn what(kind: &str, payload: &str, content: Option<&ContentRef>) -> Result<SessionEvent> {
    let corrupt = |error| QueryError::corrupt("recorded event", error);
    let payload: serde_json::Value = serde_json::from_str(payload).map_err(corrupt)?;
    let event = serde_json::from_value(json!({ "type": kind, "payload": payload })).map_err(corrupt)?;
    Ok(carried(event, content))
}

/// An event as views carry it: arguments that are content as an artifact, arguments that look like one escaped.
pub(crate) fn carried(event: SessionEvent, content: Option<&ContentRef>) -> SessionEvent {
    match event {
        SessionEvent::ToolStart { call_id, tool, args } => SessionEvent::ToolStart {
            call_id,
            tool,
            args: match content {
                Some(reference) => ViewValue::Artifact(ArtifactRef::from(reference)),
                None => ViewValue::Inline(args),
            }
            .to_wire(),
        },
        other => other,
    }
}

/// Reads entries from an index on (or, backward, below it) one by one until the visitor breaks.
pub fn entries(
    reader: &Reader,
    run: i64,
    range: Range<u64>,
    order: Order,
    mut visit: impl FnMut(EntryRow) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let direction = if order == Order::Forward { "ASC" } else { "DESC" };
    let mut statement = reader.prepare_cached(&format!(
        "SELECT entry_index, position, pi_entry_id, at, kind, content_json, content_blob FROM session_entries
          WHERE run = ?1 AND entry_index >= ?2 AND entry_index < ?3 ORDER BY entry_index {direction}"
    ))?;
    let mut rows = statement.query(params![run, signed(range.start), signed(range.end)])?;
    while let Some(row) = rows.next()? {
        let json = row.get_ref(5)?.as_str_or_null().map_err(rusqlite::Error::from)?;
        let content = StoredValue::read(reader, "recorded entry", json, row.get(6)?)?;
        let entry = EntryRow {
            index: unsigned("entry index", row.get(0)?)?,
            position: unsigned("event position", row.get(1)?)?,
            entry_id: row.get(2)?,
            at: row.get(3)?,
            kind: row.get(4)?,
            content: content.unwrap_or_else(StoredValue::null),
        };
        if visit(entry)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The conversation just before an event: the nearest stored checkpoint and the events since, fewer than
/// [`CHECKPOINT_EVERY`].
pub fn conversation(reader: &Reader, run: i64, position: u64) -> Result<Conversation> {
    let from = position / CHECKPOINT_EVERY * CHECKPOINT_EVERY;
    replay(reader, run, checkpoint(reader, run, from)?, from..position)
}

/// Goes on from a conversation through some events.
pub(crate) fn replay(reader: &Reader, run: i64, mut state: Conversation, range: Range<u64>) -> Result<Conversation> {
    let mut next = range.start;
    events(reader, run, range.clone(), Order::Forward, |row| {
        if row.position != next {
            return Err(QueryError::corrupt("recording", format!("event {next} is missing")));
        }
        next += 1;
        state.apply(&row.event);
        Ok(ControlFlow::Continue(()))
    })?;
    if next < range.end {
        return Err(QueryError::corrupt("recording", format!("event {next} is missing")));
    }
    Ok(state)
}

/// The stored conversation before an event whose position is a multiple of [`CHECKPOINT_EVERY`].
pub(crate) fn checkpoint(reader: &Reader, run: i64, position: u64) -> Result<Conversation> {
    if position == 0 {
        return Ok(Conversation::default());
    }
    let row: Option<(Option<String>, Option<i64>)> = reader
        .prepare_cached(
            "SELECT state_json, state_blob FROM viewer_session_checkpoints WHERE run = ?1 AND position = ?2",
        )?
        .query_row(params![run, signed(position)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let corrupt = |error| QueryError::corrupt("replay checkpoint", error);
    match row {
        Some((Some(json), _)) => serde_json::from_str(&json).map_err(corrupt),
        Some((None, Some(blob))) => {
            let reference = content_ref(reader, "replay checkpoint", blob)?;
            serde_json::from_value(super::content::json(reader, blob, &reference)?).map_err(corrupt)
        }
        _ => Err(QueryError::corrupt(
            "recording",
            format!("no checkpoint before event {position}"),
        )),
    }
}
