//! Active time of attempts: intervals by the clock that stops in suspend, sampled while a runner executes.
//!
//! Waiting, pauses, downtime and changes of the wall clock cost an attempt nothing: they lie in no interval.

use rusqlite::named_params;

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

/// Moves the end of the open interval to now. Returns how many intervals there were: none of an earlier boot.
fn extend(tx: &Tx<'_>, attempt: AttemptKey) -> Result<usize, StateError> {
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
