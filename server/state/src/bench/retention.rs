//! How long a write waits while an old tree is being purged, and how fast it goes.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Bench, take_epoch};
use crate::error::StateError;
use crate::purge::Purged;
use crate::state::{State, StateOptions};

/// Pause between two writes that wait beside the purge.
const PROBE_EVERY: Duration = Duration::from_millis(7);

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Purging {
    /// How long each write waited for its commit while the rows of the tree were purged and their pages given back.
    pub waits: Vec<Duration>,
    /// The same for as many writes with nothing beside them.
    pub quiet: Vec<Duration>,
    /// Transactions of the purge, and of giving the pages back.
    pub transactions: (usize, usize),
    /// Rows that went.
    pub rows: usize,
    /// Time that both took.
    pub elapsed: Duration,
    /// Time to remove the tree from sight.
    pub marked_in: Duration,
}

/// Makes a tree of one run of `steps` steps in a new database in `dir`, and purges it beside writes.
///
/// # Errors
/// When the database cannot be made or written.
pub async fn purging(dir: &Path, steps: u64) -> Result<Purging, StateError> {
    make_old_tree(dir, steps).await?;
    let state = State::open(StateOptions::new(dir)).map_err(|error| StateError::Io(error.to_string()))?;
    take_epoch(&state).await?;
    let before = state.clock().wall_ms();
    let page = state.select_trees(before, None).await?;
    let roots = page.trees.iter().map(|tree| tree.root).collect();
    let begun = Instant::now();
    let marked = state.mark_trees(before, roots).await?;
    let marked_in = begun.elapsed();
    if marked.trees != 1 {
        return Err(StateError::Invalid(format!("{} trees may go, not 1", marked.trees)));
    }
    let purging = tokio::spawn(purge(state.clone()));
    let mut waits = Vec::new();
    while !purging.is_finished() {
        waits.push(probe(&state).await?);
    }
    let (transactions, rows) = purging
        .await
        .map_err(|error| StateError::Invalid(error.to_string()))??;
    let elapsed = begun.elapsed();
    let mut quiet = Vec::with_capacity(waits.len());
    for _ in 0..waits.len() {
        quiet.push(probe(&state).await?);
    }
    state.close();
    Ok(Purging {
        waits,
        quiet,
        transactions,
        rows,
        elapsed,
        marked_in,
    })
}

/// How long a small write waits for its commit.
async fn probe(state: &State) -> Result<Duration, StateError> {
    tokio::time::sleep(PROBE_EVERY).await;
    let asked = Instant::now();
    state.renew_server().await?;
    Ok(asked.elapsed())
}

async fn purge(state: State) -> Result<((usize, usize), usize), StateError> {
    let (mut purges, mut compactions, mut rows) = (0, 0, 0);
    while let Purged::Some(gone) = state.purge_rows().await? {
        purges += 1;
        rows += gone;
    }
    state.truncate_wal().await?;
    while let Purged::Some(_) = state.compact_some().await? {
        compactions += 1;
    }
    state.truncate_wal().await?;
    Ok(((purges, compactions), rows))
}

/// One run that executed `steps` steps and ended long ago. Only the shape of the result matters, so nothing is synced.
async fn make_old_tree(dir: &Path, steps: u64) -> Result<(), StateError> {
    let mut bench = Bench::new(dir).await?;
    bench.db.pragma_update(None, "synchronous", "OFF")?;
    for _ in 0..steps {
        bench.step()?;
    }
    bench.db.execute_batch(
        "BEGIN;
         UPDATE node_attempts SET status = 'cancelled', finished_at = 1 WHERE status = 'active';
         UPDATE runs SET status = 'cancelled', current_attempt = NULL, finished_at = 1;
         UPDATE run_queue SET status = 'cancelled';
         UPDATE leases SET owner_type = NULL, owner_id = NULL, server_epoch = NULL, token_hash = NULL, acquired_at = NULL,
           heartbeat_at = NULL, boot_id = NULL, expires_clock_ms = NULL, expires_at = NULL;
         UPDATE run_runners SET status = 'ended', outcome = 'exited';
         DELETE FROM runner_messages;
         COMMIT;",
    )?;
    bench.db.pragma_update(None, "synchronous", "FULL")?;
    bench.checkpoint()
}
