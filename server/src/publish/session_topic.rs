//! One watched Pi session: its watchers, what each of them saw last, and when the session is read again.
//!
//! Watchers differ in their epoch and in the node window they look at, so each has a view of its own; usually there is one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::board::INTERVAL;
use super::frame::{EncodedView, EventFrame};
use super::run_topic::deliver;
use super::sink::{ConnectionSink, SlotHandle};
use crate::projection::ViewError;

/// A session that somebody watches.
#[derive(Debug, Default)]
pub(crate) struct SessionTopic {
    watchers: Vec<Watcher>,
    changed: bool,
    not_before: Option<Instant>,
    valid_until: Option<Instant>,
    building: bool,
    /// Runs that the views show: a change of one changes the view.
    shown: HashSet<Arc<str>>,
}

#[derive(Debug)]
struct Watcher {
    slot: SlotHandle,
    look: Look,
    /// The view that it was sent last.
    last: Option<Arc<[u8]>>,
}

/// What one watcher looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Its coordinator epoch.
    pub(crate) epoch: u64,
    /// First row of its node window, and `runs.id` of the run that it belongs to, once that is known.
    pub(crate) window: Option<(u64, Option<i64>)>,
}

/// Reads the views of a session.
#[derive(Debug)]
pub(crate) struct SessionJob {
    pub(crate) session: Arc<str>,
    pub(crate) looks: Vec<Look>,
}

/// What a read of a session found for one look.
#[derive(Debug)]
pub(crate) struct SessionBuilt {
    pub(crate) look: Look,
    pub(crate) view: EncodedView,
    /// `runs.id` and public id of the run that it shows.
    pub(crate) run: Option<(i64, Arc<str>)>,
    /// When the clock alone ends it.
    pub(crate) valid_until: Option<Instant>,
}

impl SessionTopic {
    /// Adds a watcher. Whoever watched before sees that somebody else coordinates now.
    pub(crate) fn watch(&mut self, slot: SlotHandle, epoch: u64) {
        self.watchers.push(Watcher {
            slot,
            look: Look { epoch, window: None },
            last: None,
        });
        self.changed = true;
        self.not_before = None;
    }

    /// Moves the node window of a subscription; whether it is one of this session. The view is sent even when it is the same.
    pub(crate) fn look(&mut self, sink: &ConnectionSink, subscription_id: &str, start: Option<u64>) -> bool {
        let Some(watcher) = self
            .watchers
            .iter_mut()
            .find(|watcher| watcher.slot.is_of(sink, subscription_id))
        else {
            return false;
        };
        watcher.look.window = start.map(|start| (start, None));
        watcher.last = None;
        self.changed = true;
        self.not_before = None;
        true
    }

    /// Something that decides the view changed.
    pub(crate) fn touch(&mut self) {
        self.changed = true;
    }

    /// A commit touched a run.
    pub(crate) fn touch_run(&mut self, run_id: &str) {
        self.changed |= self.shown.contains(run_id);
    }

    /// Drops watchers that are gone; whether anybody still needs the topic.
    pub(crate) fn prune(&mut self) -> bool {
        self.watchers.retain(|watcher| watcher.slot.is_open());
        self.building || !self.watchers.is_empty()
    }

    /// When the session wants to be read.
    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        match (self.building, self.changed) {
            (true, _) => None,
            (false, true) => Some(self.not_before.unwrap_or(now)),
            (false, false) => self.valid_until,
        }
    }

    /// Starts a read, when [`Self::due_at`] says so; `None` when nobody watches.
    pub(crate) fn start(&mut self, session: &Arc<str>) -> Option<SessionJob> {
        if !self.prune() {
            return None;
        }
        self.building = true;
        self.changed = false;
        self.valid_until = None;
        let mut looks: Vec<Look> = Vec::new();
        for watcher in &self.watchers {
            if !looks.contains(&watcher.look) {
                looks.push(watcher.look);
            }
        }
        Some(SessionJob {
            session: Arc::clone(session),
            looks,
        })
    }

    /// Takes the result of a read; whether the topic is still needed.
    pub(crate) fn finish(
        &mut self,
        session: &Arc<str>,
        result: Result<Vec<SessionBuilt>, ViewError>,
        now: Instant,
    ) -> bool {
        self.building = false;
        match result {
            Ok(built) => {
                self.not_before = Some(now + INTERVAL);
                self.valid_until = built.iter().filter_map(|built| built.valid_until).min();
                self.shown = built
                    .iter()
                    .filter_map(|built| built.run.as_ref().map(|(_, run_id)| Arc::clone(run_id)))
                    .collect();
                self.watchers.retain_mut(|watcher| {
                    let Some(built) = built.iter().find(|built| built.look == watcher.look) else {
                        // It came, or moved its window, meanwhile: the next read is for it.
                        return true;
                    };
                    watcher.offer(built, session)
                });
            }
            Err(error) => {
                tracing::error!(reason = error.reason(), %error, "a session view failed");
                for watcher in self.watchers.drain(..) {
                    watcher.slot.finish(EventFrame::unavailable(
                        watcher.slot.subscription_id(),
                        None,
                        &error.operation_error(),
                    ));
                }
            }
        }
        self.prune()
    }
}

impl Watcher {
    /// Sends the view unless the watcher has it; whether the subscription goes on.
    fn offer(&mut self, built: &SessionBuilt, session: &str) -> bool {
        let shown = built.run.as_ref().map(|(run, _)| *run);
        self.look.window = match (self.look.window, shown) {
            // The window belongs to the run that it was asked for; another run starts with its own.
            (Some((start, None)), Some(run)) => Some((start, Some(run))),
            (Some((start, Some(known))), Some(run)) if known == run => Some((start, Some(run))),
            _ => None,
        };
        if self.last.as_ref().is_some_and(|last| **last == *built.view.payload) {
            return self.slot.is_open();
        }
        self.last = Some(Arc::clone(&built.view.payload));
        deliver(&built.view, &self.slot, session)
    }
}
