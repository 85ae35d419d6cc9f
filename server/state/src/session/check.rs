//! What a batch must be to be stored, compared with what is stored. Reads only.

use std::collections::HashMap;

use piw_protocol::envelope::Outcome;
use rusqlite::{OptionalExtension, params};

use super::batch::{Batch, Entry, Event};
use super::{Run, Segment, Stop, refuse};
use crate::command::find;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::value::maybe;
use crate::writer::Tx;

/// The run of a batch, which must be bound to the batch's session.
pub(super) fn run(tx: &Tx<'_>, batch: &Batch) -> Result<Run, Stop> {
    let run_id = batch.run_id.as_str();
    let Some(key) = find(tx, run_id)? else {
        return refuse(Outcome::NotFound, "run_not_found", format!("no run {run_id}"));
    };
    let (session, carried): (Option<String>, u64) = tx
        .db
        .prepare_cached(
            "SELECT b.session_id, r.carried_step_count FROM runs r LEFT JOIN run_bindings b ON b.run = r.id WHERE r.id = ?1",
        )?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if session.as_deref() != Some(&batch.session_id) {
        let message = match session {
            None => format!("run {run_id} is bound to no session"),
            Some(_) => format!("run {run_id} is bound to another session than {:?}", batch.session_id),
        };
        return refuse(Outcome::Rejected, "session_not_bound", message);
    }
    Ok(Run {
        key,
        run_id: run_id.into(),
        carried_steps: carried,
    })
}

/// The batch's segment, if it was opened; the batch must begin at or before its next sequence.
pub(super) fn segment(tx: &Tx<'_>, run: &Run, batch: &Batch) -> Result<Option<Segment>, Stop> {
    let found: Option<(RunKey, Segment)> = maybe(
        tx.db
            .prepare_cached(
                "SELECT run, id, status, reason, first_position, next_sequence FROM session_segments WHERE segment_id = ?1",
            )?
            .query_row([&batch.segment_id], |row| {
                let status: String = row.get(2)?;
                let segment = Segment {
                    id: row.get(1)?,
                    recording: status == "recording",
                    failed: status == "failed",
                    reason: row.get(3)?,
                    first_position: row.get(4)?,
                    next_sequence: row.get(5)?,
                };
                Ok((row.get(0)?, segment))
            }),
    )?;
    let segment = match found {
        Some((owner, _)) if owner != run.key => {
            let message = format!("the segment {:?} belongs to another run", batch.segment_id);
            return refuse(Outcome::Conflict, "segment_reused", message);
        }
        Some((_, segment)) => Some(segment),
        None => None,
    };
    let next = segment.as_ref().map_or(0, |segment| segment.next_sequence);
    if batch.sequence > next {
        let message = format!(
            "the segment {:?} goes on at sequence {next}, not at {}",
            batch.segment_id, batch.sequence
        );
        return refuse(Outcome::Conflict, "sequence_gap", message);
    }
    Ok(segment)
}

/// How many events of the batch are stored already; they must be the same.
pub(super) fn events(tx: &Tx<'_>, run: &Run, segment: Option<&Segment>, batch: &Batch) -> Result<usize, Stop> {
    let Some(segment) = segment else { return Ok(0) };
    let stored = usize::try_from(segment.next_sequence - batch.sequence).unwrap_or(usize::MAX);
    let adopted = batch.events.len().min(stored);
    let mut statement = tx.db.prepare_cached(
        "SELECT e.at, e.kind, e.payload_json, b.sha256 FROM session_events e LEFT JOIN blobs b ON b.id = e.args_blob
          WHERE e.run = ?1 AND e.position = ?2",
    )?;
    for (sequence, event) in (batch.sequence..).zip(&batch.events[..adopted]) {
        let same = statement.query_row(params![run.key, segment.first_position + sequence], |row| {
            Ok(is_event(
                event,
                row.get(0)?,
                &row.get::<_, String>(1)?,
                &row.get::<_, String>(2)?,
                row.get(3)?,
            ))
        })?;
        if !same {
            let message = format!(
                "sequence {sequence} of the segment {:?} is stored with other content",
                batch.segment_id
            );
            return refuse(Outcome::Conflict, "sequence_reused", message);
        }
    }
    Ok(adopted)
}

fn is_event(event: &Event, at: i64, kind: &str, payload: &str, args: Option<[u8; 32]>) -> bool {
    (event.at, event.kind, event.payload.as_str()) == (at, kind, payload)
        && event.args.as_ref().map(|args| args.sha256) == args
}

/// Entries that are stored must be the same; those that are not must be settled by a new event; and a new event may only settle
/// what is stored or in the batch.
pub(super) fn entries(tx: &Tx<'_>, run: &Run, batch: &Batch, adopted: usize) -> Result<(), Stop> {
    let carried: HashMap<&str, &Entry> = batch.entries.iter().map(|entry| (entry.id.as_str(), entry)).collect();
    for (at, event) in batch.events.iter().enumerate() {
        let Some(id) = &event.settles else { continue };
        let stored = stored_entry(tx, run, id)?;
        match (carried.get(id.as_str()), stored) {
            (Some(entry), Some(stored)) if !stored.is(entry) => {
                let message = format!("the entry {id:?} is stored with other content");
                return refuse(Outcome::Conflict, "entry_reused", message);
            }
            (None, None) if at >= adopted => {
                let message =
                    format!("an event settles the entry {id:?}, which neither this batch nor an earlier one has");
                return refuse(Outcome::Rejected, "unknown_entry", message);
            }
            _ => {}
        }
    }
    Ok(())
}

/// What is compared of a stored entry.
struct StoredEntry {
    at: i64,
    kind: String,
    digest: String,
}

impl StoredEntry {
    fn is(&self, entry: &Entry) -> bool {
        self.at == entry.at && self.kind == entry.kind && self.digest == entry.content.digest()
    }
}

fn stored_entry(tx: &Tx<'_>, run: &Run, id: &str) -> Result<Option<StoredEntry>, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT e.at, e.kind, e.content_json, b.sha256 FROM session_entries e LEFT JOIN blobs b ON b.id = e.content_blob
          WHERE e.run = ?1 AND e.pi_entry_id = ?2",
    )?;
    let found = statement
        .query_row(params![run.key, id], |row| {
            let (json, blob): (Option<String>, Option<[u8; 32]>) = (row.get(2)?, row.get(3)?);
            let digest = blob.unwrap_or_else(|| crate::hash::sha256(json.unwrap_or_default().as_bytes()));
            Ok(StoredEntry {
                at: row.get(0)?,
                kind: row.get(1)?,
                digest: format!("sha256:{}", hex::encode(digest)),
            })
        })
        .optional()?;
    Ok(found)
}

/// A segment that ended takes nothing new, and ends once.
pub(super) fn end(segment: Option<&Segment>, batch: &Batch, adopted: usize) -> Result<(), Stop> {
    let Some(segment) = segment.filter(|segment| !segment.recording) else {
        return Ok(());
    };
    let same_end = match &batch.end {
        None => true,
        Some(end) => end.failed == segment.failed && end.reason == segment.reason,
    };
    if adopted == batch.events.len() && same_end {
        return Ok(());
    }
    let why = match &segment.reason {
        Some(reason) => format!(": {reason}"),
        None => String::new(),
    };
    let how = if segment.failed { "was cut off" } else { "is complete" };
    let message = format!("the segment {:?} {how}{why}", batch.segment_id);
    refuse(Outcome::Conflict, "segment_ended", message)
}
