//! The run list: its order under a filter, its recent revisions, and windows of it.
//!
//! The order is kept in memory as row keys (eight bytes a run) and brought up to date by commits, so a change costs a few
//! indexed reads however many runs are stored; rows are read only for the windows that somebody shows. A revision names the
//! list at one moment. The edits of the last revisions are kept, so a client that pages through an older one finishes.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use piw_protocol::run::RunStatus;
use piw_protocol::view::{PAGE_BYTES, RUN_LIST_SCHEMA, RunListItem, RunListPage};
use piw_state::query::list::{self, ListKey};
use piw_state::query::run::{self as runs, RunFacts};
use piw_state::query::{QueryError, Reader, rfc3339};

use super::bounds::{self, cut};
use super::filter::{ListFilter, Window};
use super::{ViewError, display, run};

/// Revisions whose edits are kept. The protocol promises eight; a busy list changes up to sixty times a second.
const KEPT_REVISIONS: usize = 1024;
/// Edits kept over all of them.
const KEPT_EDITS: usize = 65_536;
/// Longest reason in a list row, in bytes.
const REASON: usize = 256;

/// What commits said about runs since a feed last looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Changes {
    /// These changed; `true`: in a fact that a list row shows, beyond its time of change.
    Runs(HashMap<Arc<str>, bool>),
    /// Unknown: the list is read from the start.
    All,
}

impl Changes {
    /// Nothing changed.
    pub(crate) fn none() -> Self {
        Self::Runs(HashMap::new())
    }

    /// Whether nothing changed.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::Runs(runs) if runs.is_empty())
    }

    /// Adds a run. Too many become [`Changes::All`].
    pub(crate) fn add(&mut self, run_id: &Arc<str>, status: bool) {
        const MOST: usize = 4096;
        if let Self::Runs(runs) = self {
            *runs.entry(Arc::clone(run_id)).or_default() |= status;
            if runs.len() > MOST {
                *self = Self::All;
            }
        }
    }
}

/// How a list changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListChange {
    /// In nothing.
    None,
    /// In nothing but times of change and the number of runs without the filter.
    Times,
    /// In its items.
    Items,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edit {
    Added(i64),
    Removed(i64),
}

/// A run list under one filter.
#[derive(Debug)]
pub(crate) struct RunListFeed {
    filter: ListFilter,
    /// Names this feed among all that ever were.
    stamp: String,
    /// Members, oldest first.
    members: Vec<i64>,
    /// Runs without the filter, and the newest that was seen; zero without a filter.
    unfiltered: u64,
    newest: i64,
    is_loaded: bool,
    version: u64,
    /// What led from each of the last versions to the next one, oldest first.
    edits: VecDeque<Vec<Edit>>,
    kept_edits: usize,
}

impl RunListFeed {
    /// A feed that reads the list with its first refresh. `server` tells this server's feeds from any other server's.
    pub(crate) fn new(filter: ListFilter, server: &str) -> Self {
        static FEEDS: AtomicU64 = AtomicU64::new(1);
        let number = FEEDS.fetch_add(1, Ordering::Relaxed);
        Self {
            filter,
            stamp: format!("{server}.{number}"),
            members: Vec::new(),
            unfiltered: 0,
            newest: 0,
            is_loaded: false,
            version: 0,
            edits: VecDeque::new(),
            kept_edits: 0,
        }
    }

    /// A feed of the same filter that knows nothing.
    pub(crate) fn fresh(&self, server: &str) -> Self {
        Self::new(self.filter.clone(), server)
    }

    /// Opaque name of the list as it is now.
    pub(crate) fn revision(&self) -> String {
        format!("{}.{}", self.stamp, self.version)
    }

    /// Brings the order up to date.
    pub(crate) fn refresh(&mut self, reader: &Reader, changes: &Changes, now: i64) -> Result<ListChange, QueryError> {
        let mut edits = Vec::new();
        let mut change = ListChange::None;
        // Whether every changed run was counted before and still is.
        let mut is_counted = true;
        match changes {
            Changes::Runs(runs) if self.is_loaded => {
                for (run_id, status) in runs {
                    match list::key(reader, run_id)? {
                        Some(key) => {
                            is_counted &= key.leads && key.id <= self.newest;
                            change = change.max(self.refresh_run(reader, &key, *status, now, &mut edits)?);
                        }
                        // The row is gone and with it its key: compare everything.
                        None => return self.reload(reader, now),
                    }
                }
            }
            Changes::Runs(_) | Changes::All => return self.reload(reader, now),
        }
        if !is_counted && self.count(reader)? {
            change = change.max(ListChange::Times);
        }
        self.commit(change, edits);
        Ok(change)
    }

    fn refresh_run(
        &mut self,
        reader: &Reader,
        key: &ListKey,
        status: bool,
        now: i64,
        edits: &mut Vec<Edit>,
    ) -> Result<ListChange, QueryError> {
        let at = self.members.binary_search(&key.id);
        if !status && at.is_ok() && key.leads {
            return Ok(ListChange::Times);
        }
        let belongs = key.leads && self.filter.matches(reader, key, now)?;
        match (at, belongs) {
            (Ok(at), false) => {
                self.members.remove(at);
                edits.push(Edit::Removed(key.id));
            }
            (Err(at), true) => {
                self.members.insert(at, key.id);
                edits.push(Edit::Added(key.id));
            }
            (Ok(_), true) => {}
            (Err(_), false) => return Ok(ListChange::None),
        }
        // A continuation takes its parent's row, whether or not the commit named the parent.
        if let Some(parent) = list::continued_run(reader, key.id)?
            && let Ok(at) = self.members.binary_search(&parent)
        {
            self.members.remove(at);
            edits.push(Edit::Removed(parent));
        }
        Ok(ListChange::Items)
    }

    fn reload(&mut self, reader: &Reader, now: i64) -> Result<ListChange, QueryError> {
        let members = if self.filter.is_everything() {
            list::leading_ids(reader)?
        } else {
            self.filter.members(reader, now)?
        };
        let edits = if self.is_loaded {
            difference(&self.members, &members)
        } else {
            Vec::new()
        };
        self.members = members;
        self.is_loaded = true;
        self.count(reader)?;
        self.commit(ListChange::Items, edits);
        Ok(ListChange::Items)
    }

    /// Counts the runs without the filter; whether that gives another number.
    fn count(&mut self, reader: &Reader) -> Result<bool, QueryError> {
        if self.filter.is_everything() {
            return Ok(false);
        }
        let before = self.unfiltered;
        (self.unfiltered, self.newest) = list::leading_count(reader)?;
        Ok(self.unfiltered != before)
    }

    fn commit(&mut self, change: ListChange, edits: Vec<Edit>) {
        if change == ListChange::None {
            return;
        }
        self.version += 1;
        self.kept_edits += edits.len();
        self.edits.push_back(edits);
        while self.edits.len() > KEPT_REVISIONS || (self.kept_edits > KEPT_EDITS && self.edits.len() > 8) {
            self.kept_edits -= self.edits.pop_front().map_or(0, |edits| edits.len());
        }
    }

    /// The members at a revision, oldest first; `None` when it is not held.
    fn members_at(&self, revision: &str) -> Option<Cow<'_, [i64]>> {
        let version: u64 = revision.strip_prefix(&self.stamp)?.strip_prefix('.')?.parse().ok()?;
        let behind = usize::try_from(self.version.checked_sub(version)?).ok()?;
        if behind > self.edits.len() || version == 0 {
            return None;
        }
        let undone = || {
            self.edits
                .iter()
                .rev()
                .take(behind)
                .flat_map(|edits| edits.iter().rev())
        };
        if undone().next().is_none() {
            return Some(Cow::Borrowed(&self.members));
        }
        let mut members = self.members.clone();
        for edit in undone() {
            match edit {
                Edit::Added(id) => {
                    if let Ok(at) = members.binary_search(id) {
                        members.remove(at);
                    }
                }
                Edit::Removed(id) => {
                    if let Err(at) = members.binary_search(id) {
                        members.insert(at, *id);
                    }
                }
            }
        }
        Some(Cow::Owned(members))
    }

    /// A window of the list as it is now, and when the clock alone ends it.
    pub(crate) fn page(
        &self,
        reader: &Reader,
        window: Window,
        now: i64,
    ) -> Result<(RunListPage, Option<i64>), QueryError> {
        self.render(reader, &self.members, self.revision(), window, now)
    }

    /// A window of the list as it was at a revision. The order is of that revision, the rows are of now.
    pub(crate) fn page_at(
        &self,
        reader: &Reader,
        revision: &str,
        window: Window,
        now: i64,
    ) -> Result<RunListPage, ViewError> {
        let members = self.members_at(revision).ok_or_else(|| ViewError::StaleList {
            revision: cut(revision, 128),
        })?;
        Ok(self.render(reader, &members, revision.to_owned(), window, now)?.0)
    }

    fn render(
        &self,
        reader: &Reader,
        members: &[i64],
        revision: String,
        window: Window,
        now: i64,
    ) -> Result<(RunListPage, Option<i64>), QueryError> {
        let mut items = bounds::Window::new(window.limit, PAGE_BYTES);
        let mut valid_until: Option<i64> = None;
        let start = usize::try_from(window.start).unwrap_or(usize::MAX);
        for id in members.iter().rev().skip(start).take(window.limit) {
            // A run that is being purged has left the list; the commit that says so is on its way.
            let Some(facts) = runs::facts_by_id(reader, *id)? else {
                continue;
            };
            let (item, until) = item(reader, &facts, now)?;
            if !items.push(item) {
                break;
            }
            valid_until = [valid_until, until].into_iter().flatten().min();
        }
        let page = RunListPage {
            schema: RUN_LIST_SCHEMA.to_owned(),
            revision,
            start: window.start,
            total: members.len() as u64,
            unfiltered: (!self.filter.is_everything()).then_some(self.unfiltered),
            items: items.into_items(),
        };
        Ok((page, valid_until))
    }
}

/// Edits that lead from one sorted list to another.
fn difference(old: &[i64], new: &[i64]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let (mut at, mut next) = (0, 0);
    while at < old.len() || next < new.len() {
        match (old.get(at), new.get(next)) {
            (Some(left), Some(right)) if left == right => (at, next) = (at + 1, next + 1),
            (Some(left), right) if right.is_none_or(|right| left < right) => {
                edits.push(Edit::Removed(*left));
                at += 1;
            }
            (_, right) => {
                edits.extend(right.map(|right| Edit::Added(*right)));
                next += 1;
            }
        }
    }
    edits
}

fn item(reader: &Reader, facts: &RunFacts, now: i64) -> Result<(RunListItem, Option<i64>), QueryError> {
    let error = if facts.status.is_terminal() && facts.status != RunStatus::Completed {
        runs::short_error(reader, facts.id)?
    } else {
        None
    };
    let waiting_on = match facts.waiting_attempt.or(facts.current_attempt) {
        Some(attempt) if facts.status == RunStatus::Waiting => Some(runs::attempt_node(reader, attempt)?),
        _ => None,
    };
    let message = error.as_ref().map(|error| error.message.as_str());
    let derived = display::derive(facts, now, waiting_on.as_deref(), message);
    let mut shown = derived.display;
    shown.reason = shown.reason.map(|text| cut(&text, REASON));
    let item = RunListItem {
        run_id: facts.run_id.clone(),
        workflow_name: facts.workflow_name.clone(),
        origin_session_id: facts.session_id.clone(),
        parent_run_id: facts.parent.as_ref().map(|(_, run_id)| run_id.clone()),
        root_run_id: facts.root_run_id.clone(),
        created_at: rfc3339(facts.created_at),
        updated_at: rfc3339(facts.updated_at),
        display: shown,
        manifest: run::manifest(facts),
        live: derived.live,
        possibly_interrupted: derived.possibly_interrupted,
    };
    Ok((item, derived.valid_until))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(members: &[i64]) -> RunListFeed {
        let mut feed = RunListFeed::new(ListFilter::default(), "t");
        feed.members = members.to_vec();
        feed.is_loaded = true;
        feed.commit(ListChange::Items, Vec::new());
        feed
    }

    /// Applies a new state of the list as a reload does.
    fn become_list(feed: &mut RunListFeed, members: &[i64]) {
        let edits = difference(&feed.members, members);
        feed.members = members.to_vec();
        feed.commit(ListChange::Items, edits);
    }

    #[test]
    fn every_kept_revision_gives_its_own_list() {
        let lists: [&[i64]; 6] = [&[1, 2, 3], &[1, 2, 3, 4], &[2, 4], &[], &[5, 6], &[1, 2, 3, 5, 6, 9]];
        let mut feed = feed(lists[0]);
        let mut revisions = vec![feed.revision()];
        for members in &lists[1..] {
            become_list(&mut feed, members);
            revisions.push(feed.revision());
        }
        for (revision, members) in revisions.iter().zip(lists) {
            assert_eq!(feed.members_at(revision).as_deref(), Some(members), "{revision}");
        }
    }

    #[test]
    fn old_and_foreign_revisions_are_not_held() {
        let mut feed = feed(&[1]);
        let old = feed.revision();
        for n in 0..KEPT_REVISIONS as i64 {
            become_list(&mut feed, &[n]);
        }
        assert!(feed.members_at(&old).is_some());
        become_list(&mut feed, &[7]);
        assert!(feed.members_at(&old).is_none());
        assert!(
            feed.members_at(&RunListFeed::new(ListFilter::default(), "t").revision())
                .is_none()
        );
        assert!(feed.members_at("").is_none());
    }

    #[test]
    fn large_edits_leave_at_least_eight_revisions() {
        let all: Vec<i64> = (0..40_000).collect();
        let mut feed = feed(&[]);
        let mut revisions = Vec::new();
        for n in 0..20 {
            become_list(&mut feed, if n % 2 == 0 { &all } else { &[] });
            revisions.push(feed.revision());
        }
        assert!(feed.members_at(&revisions[0]).is_none());
        assert_eq!(feed.members_at(&revisions[12]).map(|list| list.len()), Some(40_000));
    }
}
