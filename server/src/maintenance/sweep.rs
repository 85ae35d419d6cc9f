//! The retention sweep: asked for by recovery, by every runner that ends and daily; done while nothing else is to be done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use piw_state::query::counts;
use piw_state::retention::KEEP_MS;
use piw_state::{Purged, RunKey, StateError, SweepRecord};

use crate::server::Server;

/// How long nothing must have run before a sweep begins: a client that just started this server comes first.
const SETTLE: Duration = Duration::from_secs(1);
/// How long after a look that found work the next one follows.
const RECHECK: Duration = Duration::from_secs(5);
/// Pause after the record of sweeps could not be read.
const FAILURE_PAUSE: Duration = Duration::from_secs(300);

/// How a sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swept {
    /// Everything that may go is gone.
    Complete,
    /// There was work; the rest stays due.
    Interrupted,
}

/// Counts of one sweep.
#[derive(Debug, Clone, Copy, Default)]
struct Gone {
    trees: u64,
    runs: u64,
    rows: usize,
}

/// Sweeps whenever one is due and the server is idle, for ever.
pub(crate) async fn keep_sweeping(server: Arc<Server>) {
    let mut live = server.live.count();
    loop {
        let now = server.state.clock().wall_ms();
        let record = match server.state.sweep_record().await {
            Ok(record) => record,
            Err(StateError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "the record of sweeps cannot be read");
                tokio::time::sleep(FAILURE_PAUSE).await;
                continue;
            }
        };
        let wait = record.next_at(now).saturating_sub(now);
        if wait > 0 && !record.purging {
            let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = server.maintenance.asked.notified() => {}
            }
            continue;
        }
        if !settled(&server, &mut live).await {
            tokio::select! {
                () = tokio::time::sleep(RECHECK) => {}
                _ = live.changed() => {}
            }
            continue;
        }
        server.maintenance.sweeping.store(true, Ordering::Relaxed);
        let ended = one(&server, &record, wait <= 0).await;
        server.maintenance.sweeping.store(false, Ordering::Relaxed);
        if ended.is_err() {
            return;
        }
    }
}

/// One try, recorded. `Err`: the server ends.
async fn one(server: &Server, record: &SweepRecord, due: bool) -> Result<(), StateError> {
    let mut gone = Gone::default();
    let swept = sweep(server, due, &mut gone).await;
    let Gone { trees, runs, rows } = gone;
    let recorded = match swept {
        Ok(Swept::Complete) if due => {
            tracing::info!(trees, runs, rows, "retention sweep complete");
            server.state.sweep_finished().await
        }
        Ok(Swept::Complete) => {
            tracing::info!(rows, "purged deleted runs");
            Ok(())
        }
        Ok(Swept::Interrupted) => {
            tracing::info!(trees, runs, rows, "retention sweep gives way to work");
            Ok(())
        }
        Err(error @ (StateError::Closed | StateError::Fenced(_))) => return Err(error),
        Err(error) => {
            let diagnostic = error.to_string();
            // The same failure every five minutes need not fill the log.
            if record.error.as_deref() != Some(&diagnostic) {
                tracing::warn!(%error, "retention sweep failed; the next try follows in five minutes");
            }
            server.state.sweep_failed(&diagnostic).await
        }
    };
    match recorded {
        Err(error @ (StateError::Closed | StateError::Fenced(_))) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "a sweep cannot be recorded");
            tokio::time::sleep(FAILURE_PAUSE).await;
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Whether nothing is to be done, and was not for a moment.
async fn settled(server: &Server, live: &mut tokio::sync::watch::Receiver<usize>) -> bool {
    live.mark_unchanged();
    if !idle(server).await {
        return false;
    }
    tokio::select! {
        () = tokio::time::sleep(SETTLE) => {}
        _ = live.changed() => return false,
    }
    idle(server).await
}

async fn idle(server: &Server) -> bool {
    let claimable = server.state.read(|reader| Ok(counts::claimable(reader)?)).await;
    is_quiet(server) && matches!(claimable, Ok(false))
}

/// What can be known without asking the database.
fn is_quiet(server: &Server) -> bool {
    server.live.len() == 0 && server.in_flight.is_empty() && !server.is_stopping()
}

/// Stops with [`Swept::Interrupted`] when there is work.
macro_rules! step {
    ($server:expr, $step:expr) => {{
        if !is_quiet($server) {
            return Ok(Swept::Interrupted);
        }
        match $step.await? {
            Purged::Busy => return Ok(Swept::Interrupted),
            done => done,
        }
    }};
}

/// Purges what was removed from sight before, removes what is due, purges it, and gives the space back.
async fn sweep(server: &Server, due: bool, gone: &mut Gone) -> Result<Swept, StateError> {
    if purge(server, gone).await? == Swept::Interrupted || (due && mark(server, gone).await? == Swept::Interrupted) {
        return Ok(Swept::Interrupted);
    }
    if purge(server, gone).await? == Swept::Interrupted || collect(server, gone).await? == Swept::Interrupted {
        return Ok(Swept::Interrupted);
    }
    server.state.truncate_wal().await?;
    if server.state.wants_compaction().await? {
        while let Purged::Some(_) = step!(server, server.state.compact_some()) {}
        server.state.truncate_wal().await?;
    }
    Ok(Swept::Complete)
}

/// Removes the trees that are due from sight.
async fn mark(server: &Server, gone: &mut Gone) -> Result<Swept, StateError> {
    let before = server.state.clock().wall_ms() - KEEP_MS;
    let mut after = None;
    loop {
        if !idle(server).await {
            return Ok(Swept::Interrupted);
        }
        let page = server.state.select_trees(before, after).await?;
        let mut roots: Vec<RunKey> = page.trees.iter().map(|tree| tree.root).collect();
        while !roots.is_empty() {
            if !idle(server).await {
                return Ok(Swept::Interrupted);
            }
            let marked = server.state.mark_trees(before, roots.clone()).await?;
            roots.drain(..marked.looked_at);
            gone.trees += marked.trees;
            gone.runs += marked.runs;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(Swept::Complete),
        }
    }
}

/// Deletes the rows of runs that were removed from sight.
async fn purge(server: &Server, gone: &mut Gone) -> Result<Swept, StateError> {
    while let Purged::Some(rows) = step!(server, server.state.purge_rows()) {
        gone.rows += rows;
    }
    Ok(Swept::Complete)
}

/// Deletes definitions and content that nothing names any more.
async fn collect(server: &Server, gone: &mut Gone) -> Result<Swept, StateError> {
    while let Purged::Some(rows) = step!(server, server.state.purge_definition()) {
        gone.rows += rows;
    }
    let mut after = 0;
    loop {
        let (unnamed, next) = server.state.unnamed_content(after).await?;
        for blob in unnamed {
            if step!(server, server.state.retire_content(blob)) == Purged::Done {
                continue;
            }
            while let Purged::Some(rows) = server.state.purge_content(blob).await? {
                gone.rows += rows;
            }
        }
        match next {
            Some(next) => after = next,
            None => return Ok(Swept::Complete),
        }
    }
}
