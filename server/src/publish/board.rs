//! The publisher's decisions, without I/O: who watches what, what is stale, what is read next and when.
//!
//! The task around it ([`super::Publisher`]) feeds it commands, commits, finished reads and the time, and carries out the
//! [`Job`]s it asks for. At most one read of a run, a list or a session is under way at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::frame::EncodedView;
use super::list_topic::{ListTopic, PageWanted};
use super::run_topic::{Join, RunTopic};
use super::session_topic::{SessionBuilt, SessionJob, SessionTopic};
use super::sink::{ConnectionSink, SlotHandle};
use crate::projection::{Changes, ListChange, RunListFeed, ViewError, Window};

/// Least time between two snapshots of one subscription.
pub(crate) const INTERVAL: Duration = Duration::from_millis(16);

/// Something to read.
#[derive(Debug)]
pub(crate) enum Job {
    /// A run view.
    Run(RunJob),
    /// A run list.
    List(ListJob),
    /// The views of a session.
    Session(SessionJob),
}

/// Reads one run view.
#[derive(Debug)]
pub(crate) struct RunJob {
    pub(crate) run_id: Arc<str>,
    /// Revision that needs no new view; `None` makes one in any case.
    pub(crate) known: Option<u64>,
}

/// What a read of a run found.
#[derive(Debug)]
pub(crate) enum RunBuild {
    /// The known revision still holds.
    Unchanged,
    /// A new view.
    Built {
        view: EncodedView,
        /// When the clock alone ends it.
        valid_until: Option<Instant>,
    },
}

/// Reads one list. The feed travels with the job.
#[derive(Debug)]
pub(crate) struct ListJob {
    pub(crate) filter: Arc<str>,
    pub(crate) feed: Box<RunListFeed>,
    pub(crate) changes: Changes,
    /// Watched windows; `true`: make it whatever changed.
    pub(crate) windows: Vec<(Window, bool)>,
    /// Make every window whatever changed.
    pub(crate) send_all: bool,
    pub(crate) pages: Vec<PageWanted>,
}

/// What a read of a list found.
#[derive(Debug)]
pub(crate) struct ListBuild {
    pub(crate) feed: Box<RunListFeed>,
    pub(crate) change: ListChange,
    /// The windows that were made.
    pub(crate) windows: Result<Vec<(Window, EncodedView)>, ViewError>,
    /// When the clock alone ends one of them.
    pub(crate) valid_until: Option<Instant>,
}

/// Every watched run, list and session.
#[derive(Debug, Default)]
pub(crate) struct Board {
    runs: HashMap<Arc<str>, RunTopic>,
    lists: HashMap<Arc<str>, ListTopic>,
    sessions: HashMap<Arc<str>, SessionTopic>,
}

impl Board {
    /// Whether nobody watches anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.lists.is_empty() && self.sessions.is_empty()
    }

    /// Somebody asks whether a run can be watched.
    pub(crate) fn join_run(&mut self, run_id: &Arc<str>, join: Join, now: Instant) {
        self.runs.entry(Arc::clone(run_id)).or_default().join(join, now);
    }

    /// Somebody watches a run.
    pub(crate) fn watch_run(&mut self, run_id: &Arc<str>, slot: SlotHandle) {
        self.runs.entry(Arc::clone(run_id)).or_default().watch(slot, run_id);
    }

    /// Somebody watches a session, as its coordinator of an epoch.
    pub(crate) fn watch_session(&mut self, session: &Arc<str>, epoch: u64, slot: SlotHandle) {
        self.sessions.entry(Arc::clone(session)).or_default().watch(slot, epoch);
    }

    /// Moves the node window of a session's subscription; whether there is such a subscription.
    pub(crate) fn look(&mut self, sink: &ConnectionSink, subscription_id: &str, start: Option<u64>) -> bool {
        self.sessions
            .values_mut()
            .any(|topic| topic.look(sink, subscription_id, start))
    }

    /// Something that decides the views of a session changed.
    pub(crate) fn touch_session(&mut self, session: &str) {
        if let Some(topic) = self.sessions.get_mut(session) {
            topic.touch();
        }
    }

    /// The list of a filter, made when it is new.
    pub(crate) fn list(
        &mut self,
        filter: &Arc<str>,
        now: Instant,
        feed: impl FnOnce() -> RunListFeed,
    ) -> &mut ListTopic {
        self.lists
            .entry(Arc::clone(filter))
            .or_insert_with(|| ListTopic::new(feed(), now))
    }

    /// A commit touched a run; `status`: in a fact that a list row shows.
    pub(crate) fn touch(&mut self, run_id: &Arc<str>, status: bool) {
        if let Some(topic) = self.runs.get_mut(run_id) {
            topic.touch();
        }
        for list in self.lists.values_mut() {
            list.touch(run_id, status);
        }
        for session in self.sessions.values_mut() {
            session.touch_run(run_id);
        }
    }

    /// Drops watchers whose subscription is gone, and what nobody needs.
    pub(crate) fn prune(&mut self, now: Instant) {
        self.runs.retain(|_, topic| topic.prune(now));
        self.lists.retain(|_, topic| topic.prune(now));
        self.sessions.retain(|_, topic| topic.prune());
    }

    /// When [`Self::due`] has something to do next.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Instant> {
        let runs = self.runs.values().filter_map(|topic| topic.due_at(now));
        let lists = self.lists.values().filter_map(|topic| topic.due_at(now));
        let sessions = self.sessions.values().filter_map(|topic| topic.due_at(now));
        runs.chain(lists).chain(sessions).min()
    }

    /// The reads to start now.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Job> {
        let mut jobs = Vec::new();
        self.runs.retain(|run_id, topic| {
            if topic.due_at(now).is_some_and(|at| at <= now) {
                match topic.start(run_id) {
                    Some(job) => jobs.push(Job::Run(job)),
                    None => return topic.is_needed(now),
                }
            }
            true
        });
        self.lists.retain(|filter, topic| {
            if topic.due_at(now).is_some_and(|at| at <= now) {
                match topic.start(filter, now) {
                    Some(job) => jobs.push(Job::List(job)),
                    None => return topic.prune(now),
                }
            }
            true
        });
        self.sessions.retain(|session, topic| {
            if topic.due_at(now).is_some_and(|at| at <= now) {
                match topic.start(session) {
                    Some(job) => jobs.push(Job::Session(job)),
                    None => return false,
                }
            }
            true
        });
        jobs
    }

    /// A read of a run ended.
    pub(crate) fn run_done(&mut self, run_id: &Arc<str>, result: Result<RunBuild, ViewError>, now: Instant) {
        if let Some(topic) = self.runs.get_mut(run_id)
            && !topic.finish(run_id, result, now)
        {
            self.runs.remove(run_id);
        }
    }

    /// A read of a list ended.
    pub(crate) fn list_done(&mut self, filter: &Arc<str>, build: ListBuild, now: Instant) {
        if let Some(topic) = self.lists.get_mut(filter) {
            topic.finish(build, now);
        }
    }

    /// A read of a session ended.
    pub(crate) fn session_done(
        &mut self,
        session: &Arc<str>,
        result: Result<Vec<SessionBuilt>, ViewError>,
        now: Instant,
    ) {
        if let Some(topic) = self.sessions.get_mut(session)
            && !topic.finish(session, result, now)
        {
            self.sessions.remove(session);
        }
    }

    /// Watched runs and lists.
    #[cfg(test)]
    pub(crate) fn topics(&self) -> (usize, usize) {
        (self.runs.len(), self.lists.len())
    }
}

#[cfg(test)]
mod tests;
