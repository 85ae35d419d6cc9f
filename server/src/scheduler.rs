//! Admission: which claimable run gets a runner next, up to the limit.
//!
//! Woken by commits that make something claimable, by runners that end, and by admissions being opened again; it never polls.

use std::time::Duration;

use piw_state::{Interest, State};

use crate::admissions::Admissions;
use crate::paths;
use crate::supervise::Supervisor;

/// Pause after a claim that failed, or a database that cannot be written.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Claims and launches runs for ever.
pub(crate) async fn schedule(state: State, supervisor: Supervisor, admissions: Admissions, most: usize) {
    let global_dir = paths::global_workflows().map(|path| path.to_string_lossy().into_owned());
    let mut changes = state.changes(Interest::Claimable);
    let mut live = supervisor.live.count();
    let mut open = admissions.changes();
    loop {
        let mut pause = None;
        while admissions.is_open() && supervisor.live.len() < most {
            match state.claim_next(global_dir.clone()).await {
                Ok(Some(claimed)) => {
                    piw_fault::point!("server::claimed");
                    supervisor.launch(claimed);
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "no run can be claimed");
                    pause = Some(FAILURE_PAUSE);
                    break;
                }
            }
        }
        // The sender of each watch outlives this task.
        tokio::select! {
            () = claimable(&mut changes) => {}
            _ = live.changed() => {}
            _ = open.changed() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

async fn claimable(changes: &mut piw_state::ChangeFeed) {
    while !changes.next().await.claimable {}
}
