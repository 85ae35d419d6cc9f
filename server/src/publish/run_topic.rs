//! One watched run: its watchers, its latest encoded view, and when it is read again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use piw_protocol::frame::MAX_FRAME;
use tokio::sync::oneshot;

use super::board::{INTERVAL, RunBuild, RunJob};
use super::frame::{EncodedView, EventFrame};
use super::sink::SlotHandle;
use crate::projection::ViewError;

/// Answer to somebody who wants to watch.
pub(crate) type Join = oneshot::Sender<Result<(), ViewError>>;

/// A run that somebody watches, or is about to.
#[derive(Debug, Default)]
pub(crate) struct RunTopic {
    watchers: Vec<SlotHandle>,
    joins: Vec<Join>,
    latest: Option<EncodedView>,
    state: Freshness,
    not_before: Option<Instant>,
    valid_until: Option<Instant>,
    building: bool,
    /// Until when the view is kept for somebody who asked whether the run can be watched.
    kept_until: Option<Instant>,
}

/// How long a view is kept between the answer that a run can be watched and the watch.
const KEEP: Duration = Duration::from_secs(2);

/// What the latest view needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Freshness {
    /// Nothing is known to have changed.
    #[default]
    Fresh,
    /// A commit named the run: one indexed read decides.
    Changed,
    /// The view must be made whatever the revision says.
    Expired,
}

impl RunTopic {
    /// Somebody asks whether the run can be watched; a current view answers at once.
    pub(crate) fn join(&mut self, join: Join, now: Instant) {
        if self.latest.is_some() && self.state == Freshness::Fresh {
            self.kept_until = Some(now + KEEP);
            // The other end may have gone away; then nobody needs the answer.
            let _ = join.send(Ok(()));
        } else {
            self.joins.push(join);
            self.state = self.state.max_with(Freshness::Changed);
        }
    }

    /// Adds a watcher, who gets the latest view at once.
    pub(crate) fn watch(&mut self, slot: SlotHandle, run_id: &str) {
        match &self.latest {
            Some(view) => {
                if deliver(view, &slot, run_id) {
                    self.watchers.push(slot);
                }
            }
            None => {
                self.watchers.push(slot);
                self.state = Freshness::Expired;
            }
        }
    }

    /// A commit touched the run.
    pub(crate) fn touch(&mut self) {
        self.state = self.state.max_with(Freshness::Changed);
    }

    /// Drops watchers that are gone; whether anybody still needs the topic.
    pub(crate) fn prune(&mut self, now: Instant) -> bool {
        self.watchers.retain(SlotHandle::is_open);
        self.is_needed(now)
    }

    /// Nobody watches, asks or waits; the view is at most kept for a while.
    fn is_idle(&self) -> bool {
        !self.building && self.watchers.is_empty() && self.joins.is_empty()
    }

    /// Whether the topic is still of use.
    pub(crate) fn is_needed(&self, now: Instant) -> bool {
        !self.is_idle() || self.kept_until.is_some_and(|until| until > now)
    }

    /// When the run wants to be read or, idle, to be forgotten.
    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        if self.building {
            return None;
        }
        if self.is_idle() {
            return Some(self.kept_until.unwrap_or(now));
        }
        match self.state {
            Freshness::Fresh => self.valid_until,
            Freshness::Changed | Freshness::Expired => Some(self.not_before.unwrap_or(now)),
        }
    }

    /// Starts a read, when [`Self::due_at`] says so; `None` when the topic is idle.
    pub(crate) fn start(&mut self, run_id: &Arc<str>) -> Option<RunJob> {
        if self.is_idle() {
            return None;
        }
        let known = match self.state {
            Freshness::Changed => self.latest.as_ref().and_then(|view| view.revision),
            // A view whose time ran out is made again although nothing was committed.
            Freshness::Fresh | Freshness::Expired => None,
        };
        self.building = true;
        self.state = Freshness::Fresh;
        if known.is_none() {
            self.valid_until = None;
        }
        Some(RunJob {
            run_id: Arc::clone(run_id),
            known,
        })
    }

    /// Takes the result of a read; whether the topic is still needed.
    pub(crate) fn finish(&mut self, run_id: &Arc<str>, result: Result<RunBuild, ViewError>, now: Instant) -> bool {
        self.building = false;
        match result {
            Ok(RunBuild::Unchanged) => self.welcome(now),
            Ok(RunBuild::Built { view, valid_until }) => {
                self.valid_until = valid_until;
                self.not_before = Some(now + INTERVAL);
                self.watchers.retain(|slot| deliver(&view, slot, run_id));
                self.latest = Some(view);
                self.welcome(now);
            }
            Err(error @ ViewError::RunNotFound { .. }) => self.fail(run_id, &error),
            Err(error) => {
                tracing::error!(run_id = run_id.as_ref(), reason = error.reason(), %error, "a run view failed");
                self.fail(run_id, &error);
            }
        }
        self.is_needed(now)
    }

    /// Tells those who asked that the run can be watched.
    fn welcome(&mut self, now: Instant) {
        if !self.joins.is_empty() {
            self.kept_until = Some(now + KEEP);
        }
        self.answer_joins(&Ok(()));
    }

    fn fail(&mut self, run_id: &str, error: &ViewError) {
        for slot in self.watchers.drain(..) {
            slot.finish(EventFrame::unavailable(
                slot.subscription_id(),
                Some(run_id),
                &error.operation_error(),
            ));
        }
        self.latest = None;
        self.kept_until = None;
        self.answer_joins(&Err(error.clone()));
    }

    fn answer_joins(&mut self, answer: &Result<(), ViewError>) {
        for join in self.joins.drain(..) {
            // The other end may have gone away; then nobody needs the answer.
            let _ = join.send(answer.clone());
        }
    }
}

impl Freshness {
    fn max_with(self, other: Self) -> Self {
        if self == Self::Expired { self } else { other }
    }
}

/// Offers a view to one subscription; whether the subscription goes on. An event that does not fit ends only this one.
pub(crate) fn deliver(view: &EncodedView, slot: &SlotHandle, what: &str) -> bool {
    match EventFrame::view(view, slot.subscription_id()) {
        Ok(frame) => slot.offer(frame),
        Err(bytes) => {
            let error = ViewError::TooLarge {
                bytes,
                limit: MAX_FRAME,
            };
            tracing::error!(
                what,
                bytes,
                limit = MAX_FRAME,
                "an event is too large; its subscription ends"
            );
            slot.finish(EventFrame::unavailable(
                slot.subscription_id(),
                view.run_id.as_deref(),
                &error.operation_error(),
            ));
            false
        }
    }
}
