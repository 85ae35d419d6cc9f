//! Maintenance of the state while the server runs: the retention sweep, `state.prune`, and what they share.
//!
//! Everything here works in small transactions and looks between them whether there is something better to do; nobody waits
//! for maintenance longer than for one of them. Which trees may go is the state crate's business.

mod prune;
mod sweep;

use std::sync::atomic::{AtomicBool, Ordering};

use piw_protocol::maintenance::ViolationReport;
use piw_state::Violation;
use tokio::sync::{Mutex, Notify};

pub(crate) use sweep::keep_sweeping;

/// Violations that a report holds at most.
const MAX_REPORTED: usize = 500;

/// What parts of maintenance know of each other.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// One backup or prune at a time.
    pub(crate) one: Mutex<()>,
    asked: Notify,
    sweeping: AtomicBool,
}

impl Maintenance {
    /// Rows wait to be purged.
    pub(crate) fn ask(&self) {
        self.asked.notify_one();
    }

    /// Whether a sweep is under way.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.sweeping.load(Ordering::Relaxed)
    }
}

/// Violations as reports hold them.
pub(crate) fn violations(found: &[Violation]) -> Vec<ViolationReport> {
    found
        .iter()
        .take(MAX_REPORTED)
        .map(|violation| ViolationReport {
            invariant: violation.invariant.to_owned(),
            run_id: violation.run_id.clone(),
            detail: violation.detail.clone(),
        })
        .collect()
}
