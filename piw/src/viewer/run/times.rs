//! What the Time tab compares with and cannot know from the steps: times of earlier runs, and when the run did not work. Both are
//! asked for when the tab is shown for the first time; earlier runs do not change, pauses are asked for anew when the status changes.

use std::collections::HashMap;
use std::sync::Arc;

use piw_protocol::ops::PageRequest;
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::{NodeTime, PageKind, Pause, PauseKind, RunPage, RunView};
use serde_json::json;

use crate::viewer::clock::{self, Millis};

/// A stretch in which the run did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// Why.
    pub kind: PauseKind,
    /// Since when.
    pub from: Millis,
    /// Until when; none while it goes on.
    pub to: Option<Millis>,
}

/// Times of a run.
#[derive(Debug, Default)]
pub struct Times {
    medians: HashMap<String, NodeTime>,
    /// Nodes whose times are known, and all.
    nodes: (u64, Option<u64>),
    idle: Vec<Idle>,
    /// Stretches that are on their way.
    coming: Vec<Idle>,
    /// The status that the stretches were asked for at, and that of the newest failure.
    idle_at: Option<DisplayStatus>,
    failed_at: Option<DisplayStatus>,
    wanted: Option<PageRequest>,
}

impl Times {
    /// Median active time of a node in earlier runs of the same workflow.
    #[must_use]
    pub fn median(&self, node: &str) -> Option<Millis> {
        let median = self.medians.get(node)?.median_ms?;
        Millis::try_from(median).ok()
    }

    /// Most earlier runs that a median is of.
    #[must_use]
    pub fn runs(&self) -> u32 {
        self.medians.values().map(|time| time.runs).max().unwrap_or(0)
    }

    /// When the run did not work, in order.
    #[must_use]
    pub fn idle(&self) -> &[Idle] {
        &self.idle
    }

    /// What has to be asked for next.
    pub fn want(&mut self, view: &RunView) -> Option<PageRequest> {
        let status = Some(view.display.status);
        if self.wanted.is_some() || self.failed_at == status {
            return None;
        }
        let (known, all) = self.nodes;
        let (kind, start) = if all.is_none_or(|all| known < all) {
            (PageKind::NodeTimes, known)
        } else if self.idle_at != status {
            self.coming.clear();
            self.idle_at = status;
            (PageKind::Pauses, 0)
        } else {
            return None;
        };
        self.ask(kind, start)
    }

    fn ask(&mut self, kind: PageKind, start: u64) -> Option<PageRequest> {
        self.wanted = Some(PageRequest {
            kind,
            cursor: json!(start),
            limit: None,
        });
        self.wanted.clone()
    }

    /// Keeps a page that was asked for; returns what has to be asked for next.
    ///
    /// # Errors
    /// When an item cannot be read, or the page could not be had.
    pub fn take_page(
        &mut self,
        request: &PageRequest,
        result: Result<Arc<RunPage>, String>,
        view: &RunView,
    ) -> Result<Option<PageRequest>, String> {
        if self.wanted.as_ref() != Some(request) {
            return Ok(None);
        }
        self.wanted = None;
        self.failed_at = Some(view.display.status);
        let page = result?;
        let end = page.start + page.items.len() as u64;
        let more = !page.items.is_empty() && end < page.total;
        if page.kind == PageKind::NodeTimes {
            let times: Vec<NodeTime> = super::items(&page, "node time")?;
            let known = times.into_iter().map(|time| (time.node_id.clone(), time));
            self.medians.extend(known);
            self.nodes = (end, Some(if more { page.total } else { end }));
        } else {
            let pauses: Vec<Pause> = super::items(&page, "pause")?;
            self.coming.extend(pauses.into_iter().filter_map(|pause| {
                Some(Idle {
                    kind: pause.kind,
                    from: clock::parse(&pause.from)?,
                    to: pause.to.as_deref().and_then(clock::parse),
                })
            }));
            if more {
                self.failed_at = None;
                return Ok(self.ask(PageKind::Pauses, end));
            }
            self.idle = std::mem::take(&mut self.coming);
        }
        self.failed_at = None;
        Ok(self.want(view))
    }
}
