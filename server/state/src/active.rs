//! Active time of attempts: intervals by the clock that stops in suspend, sampled while a runner executes.
//!
//! Waiting, pauses, downtime and changes of the wall clock cost an attempt nothing: they lie in no interval.

use rusqlite::{Connection, named_params};

use crate::cache::Current;
use crate::error::StateError;
use crate::ids::{AttemptKey, RunKey};
use crate::writer::Tx;

/// Records that the run's unfinished attempt was active until now.
pub(crate) fn sample(tx: &mut Tx<'_>, run: RunKey) -> Result<(), StateError> {
    let mut live = tx.cache.take(tx.db, run)?;
    if let Some(current) = &mut live.current
        && (!current.sampled || extend(tx, current.key)? == 0)
    {
        open(tx, current)?;
        current.sampled = true;
    }
    tx.cache.put(live);
    Ok(())
}

/// Ends the active time of an attempt that ends without a result: now, when this server saw it start, else at the last sample
/// that an earlier server took.
pub(crate) fn cut(tx: &Tx<'_>, current: &Current) -> Result<(), StateError> {
    if current.started_steady.is_some() {
        if current.sampled {
            extend(tx, current.key)?;
        } else {
            open(tx, current)?;
        }
    }
    close(tx, current.key)
}

/// Closes the open interval of an attempt, if it has one.
pub(crate) fn close(tx: &Tx<'_>, attempt: AttemptKey) -> Result<(), StateError> {
    let mut statement = tx.db.prepare_cached(
        "UPDATE attempt_active_intervals SET closed = 1, end_clock_ms = coalesce(end_clock_ms, start_clock_ms)
          WHERE attempt = ?1 AND closed = 0",
    )?;
    statement.execute([attempt])?;
    Ok(())
}

/// Starts counting the time of an attempt that waits: its model works. Changes nothing while it is counted.
pub(crate) fn resume(tx: &Tx<'_>, attempt: AttemptKey) -> Result<(), StateError> {
    let mut statement = tx.db.prepare_cached(
        "INSERT INTO attempt_active_intervals (attempt, ordinal, boot_id, start_clock_ms, end_clock_ms, closed)
         SELECT :attempt, coalesce(max(ordinal) + 1, 0), :boot, :steady, :steady, 0
           FROM attempt_active_intervals WHERE attempt = :attempt
         HAVING coalesce(max(closed = 0), 0) = 0",
    )?;
    statement.execute(named_params! { ":attempt": attempt, ":boot": tx.boot, ":steady": tx.steady })?;
    Ok(())
}

/// Stops counting the time of an attempt that waits.
pub(crate) fn hold(tx: &Tx<'_>, attempt: AttemptKey) -> Result<(), StateError> {
    extend(tx, attempt)?;
    close(tx, attempt)
}

/// Closes the open intervals of all attempts that wait, at their last sample.
pub(crate) fn close_waiting(tx: &Tx<'_>) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "UPDATE attempt_active_intervals SET closed = 1
              WHERE closed = 0 AND attempt IN (SELECT id FROM node_attempts WHERE status = 'waiting')",
        )?
        .execute([])?;
    Ok(())
}

/// Active time of an attempt so far, in milliseconds, up to the last sample.
pub(crate) fn consumed(db: &Connection, attempt: AttemptKey) -> Result<u64, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT coalesce(sum(coalesce(end_clock_ms, start_clock_ms) - start_clock_ms), 0) FROM attempt_active_intervals
          WHERE attempt = ?1",
    )?;
    Ok(statement.query_row([attempt], |row| row.get(0))?)
}

/// Moves the end of the open interval to now. Returns how many intervals there were: none of an earlier boot.
pub(crate) fn extend(tx: &Tx<'_>, attempt: AttemptKey) -> Result<usize, StateError> {
    let mut statement = tx.db.prepare_cached(
        "UPDATE attempt_active_intervals SET end_clock_ms = ?2 WHERE attempt = ?1 AND closed = 0 AND boot_id = ?3",
    )?;
    Ok(statement.execute((attempt, tx.steady, tx.boot))?)
}

/// Opens an interval that began when the attempt did.
fn open(tx: &Tx<'_>, current: &Current) -> Result<(), StateError> {
    let mut statement = tx.db.prepare_cached(
        "INSERT INTO attempt_active_intervals (attempt, ordinal, boot_id, start_clock_ms, end_clock_ms, closed)
         SELECT :attempt, coalesce(max(ordinal) + 1, 0), :boot, :start, :steady, 0
           FROM attempt_active_intervals WHERE attempt = :attempt",
    )?;
    statement.execute(named_params! {
        ":attempt": current.key, ":boot": tx.boot, ":start": current.started_steady.unwrap_or(tx.steady),
        ":steady": tx.steady,
    })?;
    Ok(())
}
