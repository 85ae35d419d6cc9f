//! The run lists of several hosts as one, newest first, of which only windows are known.
//!
//! Every host gives a window of its list: where it starts, its items, how many runs there are in all. Merged by time, these
//! are a part of the common list whose place in it is known exactly: from the item at which the last of the windows that do
//! not begin at the top has begun, to the item at which the first of those that do not reach the bottom ends. Outside this band
//! another host may have items in between. For one host the band is its window.

use std::sync::Arc;

use piw_protocol::client::Freshness;
use piw_protocol::view::{PAGE_ITEMS, RunListItem, RunListPage};

use crate::viewer::hosts::HostId;

/// Most items of one window: what the protocol allows.
const MOST: u64 = PAGE_ITEMS as u64;
/// Fewest items of one window.
const FEWEST: u64 = 48;

/// How much of a list is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Items of one window: of one list the visible ones, and as many before and after them.
    pub(super) items: u64,
    /// Items that a new window starts before the first visible one.
    lead: u64,
    /// Farthest that windows move back at once; less than what a window holds beyond the lead.
    back: u64,
}

impl Extent {
    /// For so many visible rows of so many lists; more rows than a window may hold count as that many. Of several lists each window
    /// is as large as it may be: nobody knows before which of them fills the rows.
    pub(super) fn of(height: u64, lists: usize) -> Self {
        if lists > 1 {
            return Self {
                items: MOST,
                lead: 96,
                back: 128,
            };
        }
        let items = (3 * height).clamp(FEWEST, MOST);
        Self {
            items,
            lead: items.saturating_sub(height) / 2,
            back: items / 2,
        }
    }
}

/// The list of one host.
#[derive(Debug, Clone)]
pub struct List {
    /// The newest window.
    pub page: Option<Arc<RunListPage>>,
    /// How current it is.
    pub freshness: Freshness,
    /// Whether the filter leaves the host out.
    pub hidden: bool,
    /// Names the watch.
    pub(super) generation: u64,
    /// Where the watched window starts.
    pub(super) wanted: u64,
    /// Most items of the watched window.
    pub(super) limit: u64,
    /// Whether the watch has not given a window yet.
    pub(super) awaited: bool,
}

impl Default for List {
    fn default() -> Self {
        Self {
            page: None,
            freshness: Freshness::Opening,
            hidden: false,
            generation: 0,
            wanted: 0,
            limit: 0,
            awaited: true,
        }
    }
}

impl List {
    /// Whether the host gives no windows at present.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        !matches!(self.freshness, Freshness::Opening | Freshness::Live)
    }
}

/// What one host brings into the common list.
#[derive(Debug)]
struct Source<'a> {
    host: HostId,
    items: &'a [RunListItem],
    start: u64,
    total: u64,
}

impl Source<'_> {
    /// When an item was created; wire times are in order as texts.
    fn time(&self, at: usize) -> &str {
        &self.items[at].created_at
    }
}

/// The known part of the common list.
#[derive(Debug, Clone, Default)]
pub struct Merged {
    /// Index of the first row.
    pub start: u64,
    /// Runs in all.
    pub total: u64,
    /// Host and place in its window.
    rows: Vec<(HostId, usize)>,
    /// Rows that were merged before the first one, for counting.
    before: Vec<HostId>,
}

impl Merged {
    /// Merges windows.
    #[must_use]
    pub fn of(lists: &[List]) -> Self {
        let sources = sources(lists);
        let mut at = vec![0; sources.len()];
        let mut rows = Vec::new();
        let (mut first, mut end) = (0, usize::MAX);
        loop {
            let heads = sources
                .iter()
                .enumerate()
                .filter(|(index, source)| at[*index] < source.items.len());
            // Of equal times the earlier host comes first.
            let next = heads.reduce(|best, other| {
                if other.1.time(at[other.0]) > best.1.time(at[best.0]) {
                    other
                } else {
                    best
                }
            });
            let Some((index, source)) = next else { break };
            if at[index] == 0 && source.start > 0 {
                first = rows.len();
            }
            rows.push((source.host, at[index]));
            at[index] += 1;
            let more = source.start + (source.items.len() as u64) < source.total;
            if at[index] == source.items.len() && more {
                end = end.min(rows.len());
            }
        }
        rows.truncate(end);
        let known = rows.split_off(first.min(rows.len()));
        Self {
            start: sources.iter().map(|source| source.start).sum::<u64>() + rows.len() as u64,
            total: sources.iter().map(|source| source.total).sum(),
            before: rows.into_iter().map(|(host, _)| host).collect(),
            rows: known,
        }
    }

    /// Host and place in its window of the run at an index.
    #[must_use]
    pub fn at(&self, index: u64) -> Option<(HostId, usize)> {
        self.rows
            .get(usize::try_from(index.checked_sub(self.start)?).ok()?)
            .copied()
    }

    /// Every known row with its index.
    pub fn iter(&self) -> impl Iterator<Item = (u64, HostId, usize)> {
        (self.start..)
            .zip(&self.rows)
            .map(|(index, (host, at))| (index, *host, *at))
    }

    fn end(&self) -> u64 {
        self.start + self.rows.len() as u64
    }

    /// Where each list's window has to start so that the rows from `top` on become known; `None` when they are, or when windows
    /// are on their way. A place far from the known part is reached in several moves. The window of one list alone moves before
    /// its end is on screen.
    #[must_use]
    pub fn windows(&self, lists: &[List], top: u64, height: u64) -> Option<Vec<(HostId, u64)>> {
        let extent = Extent::of(height, lists.len());
        let bottom = (top + height.min(MOST)).min(self.total);
        if let [list] = lists {
            let end = list.wanted + list.limit;
            let covered = list.wanted <= top && bottom <= end;
            let margin = extent.lead / 2;
            let first = list.wanted == 0 || list.wanted + margin <= top;
            let last = self.total <= end || bottom + margin <= end;
            let moves = list.page.is_some() && (!covered || !(first && last || list.awaited));
            return moves.then(|| vec![(HostId(0), top.saturating_sub(extent.lead))]);
        }
        let sources = sources(lists);
        let pending = |source: &Source<'_>| lists[source.host.0].awaited && !lists[source.host.0].is_lost();
        if self.start <= top && bottom <= self.end() || sources.iter().any(pending) {
            return None;
        }
        let cut = top.saturating_sub(extent.lead);
        let moved = |source: &Source<'_>| {
            if cut == 0 {
                0
            } else if bottom + extent.lead >= self.total {
                source.total.saturating_sub(extent.items)
            } else if cut < self.start {
                source.start.saturating_sub((self.start - cut).min(extent.back))
            } else {
                // Beyond the end: the last of what is known stays in view of the new windows.
                let cut = cut.min(self.end().saturating_sub(extent.lead / 2).max(self.start));
                let known = usize::try_from(cut - self.start).unwrap_or(usize::MAX);
                let hosts = self
                    .before
                    .iter()
                    .chain(self.rows.iter().take(known).map(|(host, _)| host));
                source.start + hosts.filter(|host| **host == source.host).count() as u64
            }
        };
        let lost = |source: &Source<'_>| lists[source.host.0].is_lost();
        let moves: Vec<_> = sources
            .iter()
            .filter(|source| !lost(source))
            .map(|source| (source.host, moved(source)))
            .filter(|(host, start)| lists[host.0].wanted != *start)
            .collect();
        (!moves.is_empty()).then_some(moves)
    }
}

/// What there is to merge. Of a host that is lost only its window counts: nobody could scroll to the rest.
fn sources(lists: &[List]) -> Vec<Source<'_>> {
    let several = lists.len() > 1;
    let visible = lists.iter().enumerate().filter(|(_, list)| !list.hidden);
    visible
        .filter_map(|(at, list)| {
            let page = list.page.as_ref()?;
            let (start, total) = if several && list.is_lost() {
                (0, page.items.len() as u64)
            } else {
                (page.start.min(page.total), page.total)
            };
            Some(Source {
                host: HostId(at),
                items: &page.items,
                start,
                total,
            })
        })
        .collect()
}
