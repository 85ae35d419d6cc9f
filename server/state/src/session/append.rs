//! Writing a batch that was checked.

use std::collections::HashMap;
use std::sync::Arc;

use piw_protocol::canonical;
use piw_protocol::session::{CHECKPOINT_EVERY, SessionRecordReceipt};
use rusqlite::{Connection, Rows, named_params, params};

use super::batch::{Batch, Entry};
use super::{Recorded, Run, Segment, Stop};
use crate::content;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::query::session as stored;
use crate::value::{JSON, Prepared, maybe};
use crate::writer::Tx;

/// Why a segment was cut off by a newer one.
const TAKEN_OVER: &str = "another recorder took over";

/// Writes what is new of a batch.
pub(super) fn batch(
    tx: &mut Tx<'_>,
    run: &Run,
    segment: Option<Segment>,
    batch: Batch,
    adopted: usize,
) -> Result<Recorded, Stop> {
    let opened = segment.is_none();
    let mut segment = match segment {
        Some(segment) => segment,
        None => open(tx, run, &batch)?,
    };
    let fresh = batch.events.len() - adopted;
    if fresh > 0 {
        let first = segment.first_position + segment.next_sequence;
        events(tx, run, first, &batch.events[adopted..], batch.entries)?;
        piw_fault::point!("state::session_events");
        segment.next_sequence += fresh as u64;
        tx.db
            .prepare_cached("UPDATE session_segments SET next_sequence = ?2 WHERE id = ?1")?
            .execute(params![segment.id, segment.next_sequence])?;
    }
    let ended = segment.recording && batch.end.is_some();
    if let Some(end) = batch.end.filter(|_| ended) {
        let status = if end.failed { "failed" } else { "complete" };
        tx.db
            .prepare_cached("UPDATE session_segments SET status = ?2, reason = ?3, ended_at = ?4 WHERE id = ?1")?
            .execute(params![segment.id, status, end.reason, tx.now])?;
    }
    Ok(Recorded {
        new: opened || fresh > 0 || ended,
        receipt: SessionRecordReceipt {
            segment_id: batch.segment_id,
            next_sequence: segment.next_sequence,
            adopted: adopted as u64,
        },
    })
}

/// Opens a segment; the open one of the session is cut off.
fn open(tx: &mut Tx<'_>, run: &Run, batch: &Batch) -> Result<Segment, StateError> {
    let before: Option<(i64, RunKey, String)> = maybe(
        tx.db
            .prepare_cached(
                "SELECT s.id, s.run, r.run_id FROM session_segments s JOIN runs r ON r.id = s.run
                  WHERE s.session_id = ?1 AND s.status = 'recording'",
            )?
            .query_row([&batch.session_id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))),
    )?;
    if let Some((id, other, run_id)) = before {
        tx.db
            .prepare_cached("UPDATE session_segments SET status = 'failed', reason = ?2, ended_at = ?3 WHERE id = ?1")?
            .execute(params![id, TAKEN_OVER, tx.now])?;
        if other != run.key {
            tx.db
                .prepare_cached("UPDATE resources SET view_revision = view_revision + 1 WHERE id = ?1")?
                .execute([other])?;
            tx.changes.run(other, &Arc::from(run_id), false);
        }
    }
    let first_position: u64 = maybe(
        tx.db
            .prepare_cached(
                "SELECT first_position + next_sequence FROM session_segments WHERE run = ?1 ORDER BY id DESC LIMIT 1",
            )?
            .query_row([run.key], |row| row.get(0)),
    )?
    .unwrap_or(0);
    tx.db
        .prepare_cached(
            "INSERT INTO session_segments (segment_id, run, session_id, status, first_position, started_at)
             VALUES (?1, ?2, ?3, 'recording', ?4, ?5)",
        )?
        .execute(params![
            batch.segment_id,
            run.key,
            batch.session_id,
            first_position,
            tx.now
        ])?;
    Ok(Segment {
        id: tx.db.last_insert_rowid(),
        recording: true,
        failed: false,
        reason: None,
        first_position,
        next_sequence: 0,
    })
}

/// Appends events from a position on, with the entries that they settle and the checkpoints that are due.
fn events(
    tx: &Tx<'_>,
    run: &Run,
    first: u64,
    events: &[super::batch::Event],
    entries: Vec<Entry>,
) -> Result<(), StateError> {
    let mut carried: HashMap<String, Entry> = entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
    let (steps, mut settled) = stored::before(tx.db, run.key.0, first)?;
    let mut statement = tx.db.prepare_cached(
        "SELECT a.finished_at FROM run_steps s JOIN node_attempts a ON a.id = s.attempt
          WHERE s.run = ?1 AND s.step_index >= ?2 ORDER BY s.step_index",
    )?;
    let steps = steps.max(run.carried_steps);
    let mut finished = Finished::from(steps, statement.query(params![run.key, steps])?)?;
    let mut insert = tx.db.prepare_cached(
        "INSERT INTO session_events (run, position, at, kind, payload_json, args_blob, steps, entries)
         VALUES (:run, :position, :at, :kind, :payload, :args, :steps, :entries)",
    )?;
    for (position, event) in (first..).zip(events) {
        if let Some(id) = &event.settles
            && let Some(entry) = carried.remove(id)
            && settle(tx, run, entry, settled, position)?
        {
            settled += 1;
        }
        let args = match &event.args {
            Some(args) => Some(content::insert(tx.db, &args.sha256, &args.bytes, JSON, tx.now)?),
            None => None,
        };
        insert.execute(named_params! {
            ":run": run.key, ":position": position, ":at": event.at, ":kind": event.kind, ":payload": event.payload,
            ":args": args, ":steps": finished.until(event.at)?, ":entries": settled,
        })?;
    }
    let last = first + events.len() as u64;
    let mut due = first.next_multiple_of(CHECKPOINT_EVERY).max(CHECKPOINT_EVERY);
    while due < last {
        checkpoint(tx.db, run, due, tx.now)?;
        due += CHECKPOINT_EVERY;
    }
    Ok(())
}

/// Stores an entry under the event that settles it; `false` when it is stored already.
fn settle(tx: &Tx<'_>, run: &Run, entry: Entry, index: u64, position: u64) -> Result<bool, StateError> {
    let known = tx
        .db
        .prepare_cached("SELECT 1 FROM session_entries WHERE run = ?1 AND pi_entry_id = ?2")?
        .exists(params![run.key, entry.id])?;
    if known {
        return Ok(false);
    }
    let content = entry.content.store(tx.db, tx.now)?;
    tx.db
        .prepare_cached(
            "INSERT INTO session_entries (run, entry_index, pi_entry_id, position, kind, content_json, content_blob, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            run.key,
            index,
            entry.id,
            position,
            entry.kind,
            content.json,
            content.blob,
            entry.at
        ])?;
    Ok(true)
}

/// Stores the conversation just before an event, made from the checkpoint before it: 512 events, however many there are.
fn checkpoint(db: &Connection, run: &Run, position: u64, now: i64) -> Result<(), StateError> {
    let from = position - CHECKPOINT_EVERY;
    let before = stored::checkpoint(db, run.key.0, from)?;
    let state = stored::replay(db, run.key.0, before, from..position)?;
    let state = canonical::to_vec(&state).map_err(|error| StateError::Inconsistent(error.to_string()))?;
    let state = Prepared::bytes(state).store(db, now)?;
    db.prepare_cached(
        "INSERT INTO viewer_session_checkpoints (run, position, state_json, state_blob) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![run.key, position, state.json, state.blob])?;
    Ok(())
}

/// Counts the steps that had finished by the time of an event. Never fewer than for the event before: the clocks of a
/// recorder and of the server may differ, and a batch may come late.
struct Finished<'s> {
    rows: Rows<'s>,
    steps: u64,
    /// When the next step finished.
    next: Option<i64>,
}

impl<'s> Finished<'s> {
    fn from(steps: u64, mut rows: Rows<'s>) -> Result<Self, StateError> {
        let next = read_next(&mut rows)?;
        Ok(Self { rows, steps, next })
    }

    fn until(&mut self, at: i64) -> Result<u64, StateError> {
        while self.next.is_some_and(|finished| finished <= at) {
            self.steps += 1;
            self.next = read_next(&mut self.rows)?;
        }
        Ok(self.steps)
    }
}

fn read_next(rows: &mut Rows<'_>) -> Result<Option<i64>, StateError> {
    Ok(match rows.next()? {
        Some(row) => Some(row.get(0)?),
        None => None,
    })
}
