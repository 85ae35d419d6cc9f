//! One watched run list: a filter, the windows of it that somebody watches, and when it is read again.
//!
//! The feed (the order of the list and its recent revisions) travels with the job that reads the database, so there is one
//! reader a list and no lock. Requests for pages wait for the feed and are answered by the job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use piw_protocol::view::RunListPage;
use tokio::sync::oneshot;

use super::board::{INTERVAL, ListBuild, ListJob};
use super::frame::{EncodedView, EventFrame};
use super::run_topic::{Join, deliver};
use super::sink::SlotHandle;
use crate::projection::{Changes, ListChange, RunListFeed, ViewError, Window};

/// How long a change of nothing but `updatedAt` may wait: a list need not repaint for every step of every run.
const TIMES_INTERVAL: Duration = Duration::from_secs(1);
/// How long the order of a list is kept after its last use, so that a paging client finishes.
const KEEP: Duration = Duration::from_secs(60);

/// A wanted page and who wants it.
#[derive(Debug)]
pub(crate) struct PageWanted {
    /// Revision that the page must belong to; `None` for the current one.
    pub(crate) revision: Option<String>,
    /// Which items.
    pub(crate) window: Window,
    /// Who wants it.
    pub(crate) reply: oneshot::Sender<Result<RunListPage, ViewError>>,
}

/// A run list that somebody watches or pages.
#[derive(Debug)]
pub(crate) struct ListTopic {
    /// `None` while a job has it.
    feed: Option<Box<RunListFeed>>,
    changes: Changes,
    windows: Vec<WatchedWindow>,
    pages: Vec<PageWanted>,
    /// The feed changed in nothing but times since the windows were sent.
    times_changed: bool,
    not_before: Option<Instant>,
    last_sent: Option<Instant>,
    valid_until: Option<Instant>,
    last_used: Instant,
}

#[derive(Debug)]
struct WatchedWindow {
    window: Window,
    watchers: Vec<SlotHandle>,
    joins: Vec<Join>,
    latest: Option<EncodedView>,
    /// Must be sent by the next job whatever changed.
    wanted: bool,
}

impl WatchedWindow {
    fn is_wanted(&self) -> bool {
        self.wanted && (!self.watchers.is_empty() || !self.joins.is_empty())
    }
}

impl ListTopic {
    pub(crate) fn new(feed: RunListFeed, now: Instant) -> Self {
        Self {
            feed: Some(Box::new(feed)),
            changes: Changes::All,
            windows: Vec::new(),
            pages: Vec::new(),
            times_changed: false,
            not_before: None,
            last_sent: None,
            valid_until: None,
            last_used: now,
        }
    }

    /// Somebody asks whether this window can be watched.
    pub(crate) fn join(&mut self, window: Window, join: Join) {
        let is_fresh = self.is_fresh();
        let watched = self.window(window);
        if watched.latest.is_some() && is_fresh {
            // The other end may have gone away; then nobody needs the answer.
            let _ = join.send(Ok(()));
        } else {
            watched.joins.push(join);
            watched.wanted = true;
        }
    }

    /// Adds a watcher of a window, who gets its latest view at once.
    pub(crate) fn watch(&mut self, window: Window, slot: SlotHandle) {
        let watched = self.window(window);
        match &watched.latest {
            Some(view) => {
                if deliver(view, &slot, "run list") {
                    watched.watchers.push(slot);
                }
            }
            None => {
                watched.watchers.push(slot);
                watched.wanted = true;
            }
        }
    }

    /// Somebody wants a page.
    pub(crate) fn page(&mut self, page: PageWanted) {
        self.pages.push(page);
    }

    /// A commit touched a run; `status`: in a fact that a list row shows.
    pub(crate) fn touch(&mut self, run_id: &Arc<str>, status: bool) {
        self.changes.add(run_id, status);
    }

    /// Drops watchers that are gone; whether the topic is still of use.
    pub(crate) fn prune(&mut self, now: Instant) -> bool {
        for watched in &mut self.windows {
            watched.watchers.retain(SlotHandle::is_open);
        }
        self.windows
            .retain(|watched| !watched.watchers.is_empty() || !watched.joins.is_empty());
        !self.is_idle() || now.duration_since(self.last_used) < KEEP
    }

    /// Nobody watches or waits; the feed is kept for a while, but not refreshed.
    fn is_idle(&self) -> bool {
        self.windows.is_empty() && self.pages.is_empty() && self.feed.is_some()
    }

    fn is_fresh(&self) -> bool {
        self.feed.is_some() && !self.times_changed && self.changes.is_none()
    }

    fn window(&mut self, window: Window) -> &mut WatchedWindow {
        let at = self
            .windows
            .iter()
            .position(|watched| watched.window == window)
            .unwrap_or_else(|| {
                self.windows.push(WatchedWindow {
                    window,
                    watchers: Vec::new(),
                    joins: Vec::new(),
                    latest: None,
                    wanted: true,
                });
                self.windows.len() - 1
            });
        &mut self.windows[at]
    }

    /// When the list wants to be read or, idle, to be forgotten.
    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        self.feed.as_ref()?;
        if self.is_idle() {
            return Some(self.last_used + KEEP);
        }
        if !self.pages.is_empty() || self.windows.iter().any(WatchedWindow::is_wanted) {
            return Some(now);
        }
        let change = (!self.changes.is_none()).then(|| self.not_before.unwrap_or(now));
        let times = self
            .times_changed
            .then(|| self.last_sent.map_or(now, |sent| sent + TIMES_INTERVAL));
        [change, times, self.valid_until].into_iter().flatten().min()
    }

    /// Starts a read; `None` when there is nothing to read (the topic is idle).
    pub(crate) fn start(&mut self, filter: &Arc<str>, now: Instant) -> Option<ListJob> {
        if self.is_idle() {
            return None;
        }
        let feed = self.feed.take()?;
        let times_due = self.times_changed && self.last_sent.is_none_or(|sent| sent + TIMES_INTERVAL <= now);
        let expired = self.valid_until.is_some_and(|until| until <= now);
        self.last_used = now;
        self.valid_until = None;
        Some(ListJob {
            filter: Arc::clone(filter),
            feed,
            changes: std::mem::replace(&mut self.changes, Changes::none()),
            windows: self
                .windows
                .iter()
                .filter(|watched| !watched.watchers.is_empty() || !watched.joins.is_empty())
                .map(|watched| (watched.window, watched.is_wanted()))
                .collect(),
            send_all: times_due || expired,
            pages: std::mem::take(&mut self.pages),
        })
    }

    /// Takes the result of a read.
    pub(crate) fn finish(&mut self, build: ListBuild, now: Instant) {
        let ListBuild {
            feed,
            change,
            windows,
            valid_until,
        } = build;
        self.feed = Some(feed);
        match windows {
            Ok(views) => {
                self.valid_until = valid_until;
                self.not_before = Some(now + INTERVAL);
                let whole = change == ListChange::Items || self.windows.len() == views.len();
                if change == ListChange::Times && views.is_empty() {
                    self.times_changed = true;
                } else if !views.is_empty() && whole {
                    self.times_changed = false;
                    self.last_sent = Some(now);
                }
                for (window, view) in views {
                    self.publish(window, view);
                }
            }
            Err(error) => {
                tracing::error!(reason = error.reason(), %error, "a run list failed");
                self.fail(&error);
            }
        }
    }

    fn publish(&mut self, window: Window, view: EncodedView) {
        // The window may have lost its last watcher meanwhile.
        let Some(watched) = self.windows.iter_mut().find(|watched| watched.window == window) else {
            return;
        };
        watched.watchers.retain(|slot| deliver(&view, slot, "run list"));
        watched.latest = Some(view);
        watched.wanted = false;
        for join in watched.joins.drain(..) {
            // The other end may have gone away; then nobody needs the answer.
            let _ = join.send(Ok(()));
        }
    }

    fn fail(&mut self, error: &ViewError) {
        self.changes = Changes::All;
        for mut watched in self.windows.drain(..) {
            for slot in watched.watchers.drain(..) {
                slot.finish(EventFrame::unavailable(
                    slot.subscription_id(),
                    None,
                    &error.operation_error(),
                ));
            }
            for join in watched.joins.drain(..) {
                // The other end may have gone away; then nobody needs the answer.
                let _ = join.send(Err(error.clone()));
            }
        }
    }
}
