//! Process groups that a runner registers before they run (decision 1).

use crate::cache::Live;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::live::bounded;
use crate::writer::Tx;

/// Records a group. A repeated registration changes nothing.
pub(super) fn register(
    tx: &Tx<'_>,
    live: &Live,
    generation: u64,
    pid: u32,
    start_identity: &str,
    label: &str,
) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "INSERT INTO run_processes (pid, start_identity, run, generation, boot_id, label, registered_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
        )?
        .execute((
            pid,
            start_identity,
            live.key,
            generation,
            tx.boot,
            bounded(label),
            tx.now,
        ))?;
    Ok(())
}

/// Forgets a group that is gone.
pub(super) fn unregister(tx: &mut Tx<'_>, run: RunKey, pid: u32, start_identity: &str) -> Result<(), StateError> {
    let removed = tx
        .db
        .prepare_cached("DELETE FROM run_processes WHERE pid = ?1 AND start_identity = ?2 AND run = ?3")?
        .execute((pid, start_identity, run))?;
    tx.changes.claimable |= removed > 0;
    Ok(())
}
