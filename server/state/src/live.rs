//! Writing the facts of one run: events, counters, revisions, attempts, and the ways a run stops executing.
//!
//! Every function here runs inside a job. [`Live::save`] is the last step of each: it writes the counters, bumps the revision
//! that was read, and gives the run back to the cache.

use piw_protocol::run::RunStatus;
use rusqlite::named_params;

use crate::active;
use crate::cache::Live;
use crate::decision;
use crate::error::StateError;
use crate::ids::{AttemptKey, NodeIndex};
use crate::interaction;
use crate::lease;
use crate::message;
use crate::names;
use crate::query::graph::{CHECKPOINT_EVERY, write_checkpoint};
use crate::value::Prepared;
use crate::writer::Tx;

/// Longest text of a stored reason or diagnostic.
const TEXT_LIMIT: usize = 4096;

/// How an attempt is recorded whose run is cancelled.
pub(crate) const CANCELLED: &str = "cancelled";

/// Which revisions a change moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bump {
    /// Execution and presentation: commands that named the old revision are stale.
    Execution,
    /// Presentation only.
    View,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct About<'a> {
    pub(crate) node: Option<NodeIndex>,
    pub(crate) attempt: Option<AttemptKey>,
    pub(crate) payload: Option<&'a str>,
}

/// How a run ends.
pub(crate) struct End {
    pub(crate) status: RunStatus,
    pub(crate) final_output: Option<Prepared>,
    pub(crate) error: Option<Prepared>,
    pub(crate) failure_class: Option<&'static str>,
    /// Whether a continuation takes over: its last run tells the session how it ended.
    pub(crate) continued: bool,
}

/// Why and how a run stops executing without ending.
pub(crate) struct Park<'a> {
    /// Whether the scheduler may claim it again by itself.
    pub(crate) claimable: bool,
    pub(crate) reason: Option<&'a str>,
    pub(crate) detail: Option<&'a str>,
}

impl Live {
    /// Appends an event.
    pub(crate) fn event(&mut self, tx: &Tx<'_>, scope: &str, kind: &str, about: About<'_>) -> Result<(), StateError> {
        self.trace_seq += 1;
        let mut statement = tx.db.prepare_cached(
            "INSERT INTO events (resource, seq, at, scope, type, node, attempt, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        statement.execute((
            self.key,
            self.trace_seq,
            tx.now,
            scope,
            kind,
            about.node,
            about.attempt,
            about.payload,
        ))?;
        Ok(())
    }

    /// Writes the counters, moves the revisions from the one that was read, and keeps the run in memory.
    pub(crate) fn save(mut self, tx: &mut Tx<'_>, bump: Bump) -> Result<u64, StateError> {
        let mut statement = tx.db.prepare_cached(
            "UPDATE runs SET step_count = :steps, attempt_count = :attempts, trace_seq = :trace, update_seq = :updates,
               crash_streak = :crashes, ambiguous_effects = :ambiguous, current_attempt = :current, last_attempt = :last,
               updated_at = :now WHERE id = :run",
        )?;
        statement.execute(named_params! {
            ":steps": self.step_count, ":attempts": self.attempt_count, ":trace": self.trace_seq,
            ":updates": self.update_seq, ":crashes": self.crash_streak, ":ambiguous": self.ambiguous_effects,
            ":current": self.current.as_ref().map(|current| current.key), ":last": self.last_attempt,
            ":now": tx.now, ":run": self.key,
        })?;
        let step = u64::from(bump == Bump::Execution);
        let mut statement = tx.db.prepare_cached(
            "UPDATE resources SET revision = revision + ?3, view_revision = view_revision + 1 WHERE id = ?1 AND revision = ?2",
        )?;
        if statement.execute((self.key, self.revision, step))? != 1 {
            let text = format!("run {} is not at revision {}", self.run_id, self.revision);
            return Err(StateError::Inconsistent(text));
        }
        self.revision += step;
        let revision = self.revision;
        if bump == Bump::Execution && self.step_count.is_multiple_of(CHECKPOINT_EVERY) {
            write_checkpoint(tx.db, self.key.0)?;
        }
        tx.changes.run(self.key, &self.run_id, false);
        tx.cache.put(self);
        Ok(revision)
    }

    /// Sets the run's status.
    pub(crate) fn set_status(&mut self, tx: &mut Tx<'_>, status: RunStatus) -> Result<(), StateError> {
        let finished = status.is_terminal().then_some(tx.now);
        let mut statement = tx.db.prepare_cached(
            "UPDATE runs SET status = ?2, finished_at = ?3, waiting_attempt = ?4,
               paused_at = CASE WHEN ?3 IS NULL THEN paused_at END WHERE id = ?1",
        )?;
        let waiting = self.waiting_attempt.filter(|_| status == RunStatus::Waiting);
        self.waiting_attempt = waiting;
        statement.execute((self.key, names::of_run_status(status), finished, waiting))?;
        self.status = status;
        tx.changes.run(self.key, &self.run_id, true);
        Ok(())
    }

    /// Ends the run: status, values, queue, claim and reservation. The attempt and effects must be settled before.
    pub(crate) fn end(&mut self, tx: &mut Tx<'_>, end: End) -> Result<(), StateError> {
        self.waiting_attempt = None;
        interaction::close(tx, self)?;
        decision::close(tx, self.key)?;
        self.set_status(tx, end.status)?;
        for (kind, value) in [("final_output", end.final_output), ("error", end.error)] {
            if let Some(value) = value {
                write_value(tx, self.key.0, kind, value)?;
            }
        }
        tx.db
            .prepare_cached("UPDATE runs SET failure_class = ?2 WHERE id = ?1")?
            .execute((self.key, end.failure_class))?;
        tx.db
            .prepare_cached("UPDATE run_queue SET status = ?2, claimable = 0, updated_at = ?3 WHERE run = ?1")?
            .execute((self.key, names::queue_status_of_end(end.status), tx.now))?;
        tx.db
            .prepare_cached("UPDATE run_bindings SET reserved = 0 WHERE run = ?1 AND reserved = 1")?
            .execute([self.key])?;
        message::cancel_sources(tx, self.key)?;
        if !end.continued {
            message::present_end(tx, self.key)?;
        }
        self.release(tx)
    }

    /// Stops execution at a durable boundary and releases the claim. The attempt must be settled before.
    pub(crate) fn park(&mut self, tx: &mut Tx<'_>, park: &Park<'_>) -> Result<(), StateError> {
        let seq = if park.claimable { next_ready_seq(tx)? } else { 0 };
        let mut statement = tx.db.prepare_cached(
            "UPDATE run_queue SET status = 'parked', claimable = :claimable, park_reason = :reason, park_detail = :detail,
               ready_seq = CASE WHEN :claimable THEN :seq ELSE ready_seq END, updated_at = :now WHERE run = :run",
        )?;
        statement.execute(named_params! {
            ":claimable": park.claimable, ":reason": park.reason, ":detail": park.detail.map(bounded), ":seq": seq,
            ":now": tx.now, ":run": self.key,
        })?;
        tx.changes.claimable |= park.claimable;
        tx.changes.run(self.key, &self.run_id, true);
        self.release(tx)
    }

    /// Releases the claim, if any.
    pub(crate) fn release(&mut self, tx: &Tx<'_>) -> Result<(), StateError> {
        self.claimed = false;
        lease::clear(tx.db, self.key.0)
    }

    /// Ends the unfinished attempt without a result: its visit is executed again (after `overran`: settled as timed out), or the
    /// run ends. An attempt that has a request outlives whoever executes its run: only a cancellation ends it so.
    pub(crate) fn drop_attempt(&mut self, tx: &Tx<'_>, status: &'static str) -> Result<(), StateError> {
        if status != CANCELLED && self.current.as_ref().is_some_and(|current| current.requested) {
            return Ok(());
        }
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        self.progress.interrupt();
        active::cut(tx, &current)?;
        let mut statement = tx.db.prepare_cached(
            "UPDATE node_attempts SET status = ?2, finished_at = ?3, active_ms = (
               SELECT coalesce(sum(end_clock_ms - start_clock_ms), 0) FROM attempt_active_intervals WHERE attempt = ?1
             ) WHERE id = ?1",
        )?;
        statement.execute((current.key, status, tx.now))?;
        let about = About {
            node: Some(current.node),
            attempt: Some(current.key),
            payload: None,
        };
        self.event(tx, "node", &format!("node.{status}"), about)
    }
}

/// Stores a value of a run.
pub(crate) fn write_value(tx: &Tx<'_>, run: i64, kind: &str, value: Prepared) -> Result<(), StateError> {
    let hash = value.digest();
    let stored = value.store(tx.db, tx.now)?;
    let mut statement = tx
        .db
        .prepare_cached("INSERT INTO run_values (run, kind, json, blob, hash) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    statement.execute((run, kind, stored.json, stored.blob, hash))?;
    Ok(())
}

/// The next place in the order of admission.
pub(crate) fn next_ready_seq(tx: &Tx<'_>) -> Result<i64, StateError> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT coalesce(max(ready_seq), 0) + 1 FROM run_queue WHERE claimable = 1")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

/// Cuts a text for people at a character boundary.
pub(crate) fn bounded(text: &str) -> &str {
    if text.len() <= TEXT_LIMIT {
        return text;
    }
    let mut end = TEXT_LIMIT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
