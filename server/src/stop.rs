//! Stopping a server from outside its protocol: by the process that its lock names.
//!
//! For servers of other package versions, whose protocol a client must not speak. The first SIGTERM asks the server to let running
//! nodes finish and to leave; it stays when they do not. The second one ends them.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use piw_process::{Liveness, ProcessIdentity, group};

use crate::lock::{self, LockRecord};
use crate::paths::Places;

const POLL: Duration = Duration::from_millis(10);
/// What the server may take beyond the wait for its nodes: connections, runners' groups, the last commit.
const MARGIN: Duration = Duration::from_secs(20);

/// Why a server was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// Nothing holds the lock.
    #[error("no server is running")]
    NotRunning,
    /// The lock is held, but its record is missing or names another process.
    #[error("a server holds the lock, but its record does not say which process it is; try again")]
    Unknown,
    /// The process cannot be signalled.
    #[error("cannot signal the server (pid {pid}): {source}")]
    Signal {
        /// The process.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// It is still there.
    #[error("the server (pid {pid}, version {version}) still runs after {} s: nodes are still executing", waited.as_secs())]
    StillRunning {
        /// The process.
        pid: u32,
        /// Its package version.
        version: String,
        /// How long it was waited for.
        waited: Duration,
    },
}

/// Asks the server of `places` to stop by signal and waits until it is gone. `wait` is how long its running nodes may take;
/// `now` ends them at once. Blocks.
///
/// # Errors
/// When there is no server, it cannot be signalled, or it stays.
pub fn stop_by_signal(places: &Places, wait: Duration, now: bool) -> Result<LockRecord, StopError> {
    if !lock::is_held(places) {
        return Err(StopError::NotRunning);
    }
    let record = lock::read_record(places).ok_or(StopError::Unknown)?;
    let process = ProcessIdentity {
        pid: record.pid,
        start: record.start_identity.clone(),
    };
    let failed = |source| StopError::Signal {
        pid: record.pid,
        source,
    };
    if process.liveness().map_err(failed)? != Liveness::Running {
        return Err(StopError::Unknown);
    }
    group::signal_process(&process, Signal::SIGTERM).map_err(failed)?;
    if now {
        // Signals of one kind merge while they are pending: the second counts once the first was taken.
        std::thread::sleep(POLL * 10);
        group::signal_process(&process, Signal::SIGTERM).map_err(failed)?;
    }
    let limit = if now { MARGIN } else { wait.saturating_add(MARGIN) };
    if wait_until_gone(places, limit) && has_ended(&process, MARGIN) {
        return Ok(record);
    }
    Err(StopError::StillRunning {
        pid: record.pid,
        version: record.package_version,
        waited: limit,
    })
}

/// Waits until a process that gave up its lock has left; whether it has.
fn has_ended(process: &ProcessIdentity, limit: Duration) -> bool {
    let start = Instant::now();
    while process.liveness().is_ok_and(|liveness| liveness == Liveness::Running) {
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// Waits until no server holds the lock; whether that is so. Call it after `server.stop` was accepted and before another start.
#[must_use]
pub fn wait_until_gone(places: &Places, limit: Duration) -> bool {
    let start = Instant::now();
    while lock::is_held(places) {
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}
