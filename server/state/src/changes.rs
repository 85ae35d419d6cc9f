//! What commits changed, for whoever shows it.
//!
//! A feed collects changes until it is asked: nothing is lost and memory is bounded by the number of runs that changed. The
//! writer adds to every feed right after each commit.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use crate::ids::RunKey;

/// Changes since a feed was last asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Runs that changed, with their public ids.
    pub runs: HashMap<RunKey, RunChange>,
    /// Pi sessions whose messages, turns or reservation changed.
    pub sessions: HashSet<Arc<str>>,
    /// Whether a run was added, removed, or changed in a fact that the run list shows.
    pub list: bool,
    /// Whether the scheduler may find something claimable that was not there before.
    pub claimable: bool,
    /// Whether time is counted, or a deadline holds, that did not before.
    pub deadlines: bool,
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.sessions.is_empty() && !self.list && !self.claimable && !self.deadlines
    }

    pub(crate) fn merge_from(&mut self, other: &Self) {
        for (key, change) in &other.runs {
            self.runs
                .entry(*key)
                .and_modify(|known| known.status |= change.status)
                .or_insert_with(|| change.clone());
        }
        self.sessions.extend(other.sessions.iter().cloned());
        self.list |= other.list;
        self.claimable |= other.claimable;
        self.deadlines |= other.deadlines;
    }

    pub(crate) fn session(&mut self, session: &str) {
        if !self.sessions.contains(session) {
            self.sessions.insert(session.into());
        }
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

/// What a feed is told of. Waking a task on another thread is a system call, and most commits are nothing to most feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Every change.
    Everything,
    /// Only that something may have become claimable.
    Claimable,
    /// Only that there may be an earlier deadline.
    Deadlines,
}

impl Interest {
    const fn covers(self, changes: &Changes) -> bool {
        match self {
            Self::Everything => true,
            Self::Claimable => changes.claimable,
            Self::Deadlines => changes.deadlines,
        }
    }
}

/// Receives changes. Dropping it ends the subscription.
#[derive(Debug)]
pub struct ChangeFeed {
    shared: Arc<Slot>,
}

#[derive(Debug)]
struct Slot {
    interest: Interest,
    muted: AtomicBool,
    changes: Mutex<Changes>,
    wake: Notify,
}

impl ChangeFeed {
    /// Turns the feed off while nobody needs it, and on again. What is committed while it is off is never told: whoever turns
    /// it on reads the state afterwards.
    pub fn listen(&self, on: bool) {
        self.shared.muted.store(!on, Ordering::SeqCst);
    }

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
    pub(crate) fn subscribe(&self, interest: Interest) -> ChangeFeed {
        let shared = Arc::new(Slot {
            interest,
            muted: AtomicBool::new(false),
            changes: Mutex::default(),
            wake: Notify::new(),
        });
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
                if slot.muted.load(Ordering::SeqCst) || !slot.interest.covers(changes) {
                    return true;
                }
                slot.changes
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .merge_from(changes);
                slot.wake.notify_one();
                true
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimable() -> Changes {
        Changes {
            claimable: true,
            ..Changes::default()
        }
    }

    fn listed() -> Changes {
        Changes {
            list: true,
            ..Changes::default()
        }
    }

    #[test]
    fn a_feed_hears_what_it_is_interested_in() {
        let feeds = Feeds::default();
        let (mut all, mut few) = (
            feeds.subscribe(Interest::Everything),
            feeds.subscribe(Interest::Claimable),
        );
        feeds.publish(&listed());
        assert_eq!((all.take(), few.take()), (listed(), Changes::default()));
        feeds.publish(&claimable());
        assert_eq!((all.take(), few.take()), (claimable(), claimable()));
    }

    #[test]
    fn a_feed_that_does_not_listen_hears_nothing_and_then_everything_again() {
        let feeds = Feeds::default();
        let mut feed = feeds.subscribe(Interest::Everything);
        feed.listen(false);
        feeds.publish(&listed());
        assert!(feed.take().is_empty());
        feed.listen(true);
        feeds.publish(&claimable());
        assert_eq!(feed.take(), claimable());
    }
}
