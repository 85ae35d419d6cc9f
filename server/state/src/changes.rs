//! What commits changed, for whoever shows it.
//!
//! A feed collects changes until it is asked: nothing is lost and memory is bounded by the number of runs that changed. The
//! writer adds to every feed right after each commit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use crate::ids::RunKey;

/// Changes since a feed was last asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Runs that changed, with their public ids.
    pub runs: HashMap<RunKey, RunChange>,
    /// Whether a run was added, removed, or changed in a fact that the run list shows.
    pub list: bool,
    /// Whether the scheduler may find something claimable that was not there before.
    pub claimable: bool,
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && !self.list && !self.claimable
    }

    pub(crate) fn merge_from(&mut self, other: &Self) {
        for (key, change) in &other.runs {
            self.runs
                .entry(*key)
                .and_modify(|known| known.status |= change.status)
                .or_insert_with(|| change.clone());
        }
        self.list |= other.list;
        self.claimable |= other.claimable;
    }

    pub(crate) fn run(&mut self, key: RunKey, run_id: &Arc<str>, status: bool) {
        self.runs
            .entry(key)
            .and_modify(|known| known.status |= status)
            .or_insert_with(|| RunChange {
                run_id: Arc::clone(run_id),
                status,
            });
        self.list |= status;
    }
}

/// How one run changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunChange {
    /// Public id.
    pub run_id: Arc<str>,
    /// Whether a fact changed that its list row shows (status, pause, claim, title), beyond its time of change.
    pub status: bool,
}

/// Receives changes. Dropping it ends the subscription.
#[derive(Debug)]
pub struct ChangeFeed {
    shared: Arc<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    changes: Mutex<Changes>,
    wake: Notify,
}

impl ChangeFeed {
    /// Waits until something changed, and takes it. Cancel-safe.
    pub async fn next(&mut self) -> Changes {
        loop {
            let changes = self.take();
            if !changes.is_empty() {
                return changes;
            }
            self.shared.wake.notified().await;
        }
    }

    /// Takes what changed so far without waiting.
    pub fn take(&mut self) -> Changes {
        std::mem::take(&mut *self.shared.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The writer's list of feeds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Feeds {
    slots: Arc<Mutex<Vec<Weak<Slot>>>>,
}

impl Feeds {
    pub(crate) fn subscribe(&self) -> ChangeFeed {
        let shared = Arc::new(Slot::default());
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::downgrade(&shared));
        ChangeFeed { shared }
    }

    pub(crate) fn publish(&self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|slot| {
                let Some(slot) = slot.upgrade() else { return false };
                slot.changes
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .merge_from(changes);
                slot.wake.notify_one();
                true
            });
    }
}
