//! Which events of the run's trace are shown: of the whole run, up to the shown position, or of one attempt. Events are paged in
//! on demand; of the whole run the newest come with the view.

use std::sync::Arc;

use piw_protocol::ops::PageRequest;
use piw_protocol::view::{PAGE_ITEMS, PageKind, RunPage, RunView, TraceEvent};
use serde_json::{Value, json};

/// What the Trace tab is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Everything that was recorded.
    #[default]
    Run,
    /// What had been recorded at the shown position of a replay.
    Prefix,
    /// One attempt: the selected one, else the one at the shown position.
    Attempt,
}

impl Scope {
    /// In the order in which one key goes through them.
    pub const ALL: [Self; 3] = [Self::Run, Self::Prefix, Self::Attempt];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "whole run",
            Self::Prefix => "up to here",
            Self::Attempt => "attempt",
        }
    }

    /// The next one.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Run => Self::Prefix,
            Self::Prefix => Self::Attempt,
            Self::Attempt => Self::Run,
        }
    }
}

/// An attempt whose events are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its id.
    pub id: String,
    /// Its node.
    pub node: String,
    /// Index of its step; none while it is unfinished.
    pub step: Option<u64>,
}

/// A scope with what it is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Subject {
    /// The whole run.
    #[default]
    Run,
    /// The run until this many steps had ended.
    Prefix(u64),
    /// An attempt.
    Attempt(Attempt),
    /// An attempt, but there is none.
    NoAttempt,
}

/// Consecutive events.
#[derive(Debug)]
struct Page {
    start: u64,
    events: Vec<TraceEvent>,
}

impl Page {
    fn end(&self) -> u64 {
        self.start + self.events.len() as u64
    }
}

/// The shown part of a trace.
#[derive(Debug, Default)]
pub struct Trace {
    subject: Subject,
    /// Index of the first event of the subject, once it is known.
    first: Option<u64>,
    /// Index behind its last event, once it is known.
    end: Option<u64>,
    page: Option<Page>,
    wanted: Option<PageRequest>,
    /// A request failed: nothing is asked for by itself until the subject changes.
    failed: bool,
}

/// What there is to show.
#[derive(Debug)]
pub struct Shown<'a> {
    /// What it is about.
    pub subject: &'a Subject,
    /// Index of the first shown event.
    pub start: u64,
    /// Events of the subject in all, counted from the start of the run; none while nobody knows.
    pub end: Option<u64>,
    /// The events.
    pub events: &'a [TraceEvent],
    /// Whether they are on their way.
    pub loading: bool,
}

impl Trace {
    /// What is shown of a run.
    #[must_use]
    pub fn shown<'a>(&'a self, view: Option<&'a RunView>) -> Shown<'a> {
        let tail = view.map(|view| &view.trace_page);
        let (start, events) = match (&self.page, tail, &self.subject) {
            (Some(page), ..) => (page.start, page.events.as_slice()),
            (None, Some(tail), Subject::Run) => (tail.start, tail.items.as_slice()),
            _ => (0, [].as_slice()),
        };
        let end = match self.subject {
            Subject::Run => tail.map(|tail| tail.total),
            _ => self.end,
        };
        Shown {
            subject: &self.subject,
            start,
            end,
            events,
            loading: self.wanted.is_some(),
        }
    }

    /// Turns to a subject; returns what has to be asked for.
    pub fn turn_to(&mut self, subject: Subject, view: &RunView) -> Option<PageRequest> {
        if self.subject != subject {
            let same =
                matches!((&self.subject, &subject), (Subject::Attempt(old), Subject::Attempt(new)) if old.id == new.id);
            if same {
                // It has ended: its events stay.
                self.subject = subject;
            } else {
                *self = Self {
                    subject,
                    ..Self::default()
                };
            }
        }
        if self.page.is_some() || self.wanted.is_some() || self.failed {
            return None;
        }
        let state = &view.state;
        let request = match &self.subject {
            Subject::Run | Subject::NoAttempt => return None,
            Subject::Attempt(attempt) => at_step(json!({ "attemptId": attempt.id }), None),
            Subject::Prefix(steps) => match (self.end, &state.current_attempt_id) {
                (Some(end), _) => last_before(0, end)?,
                // Its events are those of the run that this one continues.
                _ if *steps < state.carried_step_count.unwrap_or(0) => {
                    (self.first, self.end) = (Some(0), Some(0));
                    return None;
                }
                // What came after begins with the first event of the next attempt.
                (None, _) if *steps < view.step_total => at_step(json!({ "step": steps }), Some(1)),
                (None, Some(current)) => at_step(json!({ "attemptId": current }), Some(1)),
                (None, None) => {
                    self.end = Some(view.trace_page.total);
                    last_before(0, view.trace_page.total)?
                }
            },
        };
        Some(self.ask(request))
    }

    fn ask(&mut self, request: PageRequest) -> PageRequest {
        self.wanted = Some(request.clone());
        request
    }

    /// Turns to older or newer events.
    pub fn turn_page(&mut self, newer: bool, view: &RunView) -> Option<PageRequest> {
        let shown = self.shown(Some(view));
        let (start, end) = (shown.start, shown.start + shown.events.len() as u64);
        let first = self.first.unwrap_or(0);
        self.failed = false;
        if newer {
            if self.subject == Subject::Run && end >= view.trace_page.start {
                // The newest come with the view.
                self.page = None;
                return None;
            }
            if end >= shown_end(&self.subject, self.end, view) {
                return None;
            }
            return Some(self.ask(from(end, None)));
        }
        last_before(first, start).map(|request| self.ask(request))
    }

    /// A newer view: events of an attempt that goes on are added.
    pub fn take_view(&mut self, view: &RunView) {
        let (Subject::Attempt(attempt), Some(page)) = (&self.subject, &mut self.page) else {
            return;
        };
        let tail = &view.trace_page;
        if self.end.is_some() || tail.total <= page.end() {
            return;
        }
        if tail.start > page.end() {
            if page.end() - page.start < PAGE_ITEMS as u64 {
                // Some were missed.
                self.page = None;
            }
            return;
        }
        let known = usize::try_from(page.end() - tail.start).unwrap_or(usize::MAX);
        let new = tail.items.get(known..).unwrap_or_default();
        let own = own(attempt, new);
        if own < new.len() {
            self.end = Some(page.end() + own as u64);
        }
        let room = PAGE_ITEMS.saturating_sub(page.events.len());
        page.events.extend_from_slice(&new[..own.min(room)]);
    }

    /// Keeps a page that was asked for; returns what has to be asked for next.
    ///
    /// # Errors
    /// When an event cannot be read, or the page could not be had.
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
        // Until it is read it counts as failed.
        self.failed = true;
        let page = result?;
        let mut events: Vec<TraceEvent> = super::items(&page, "trace event")?;
        self.failed = false;
        match &self.subject {
            Subject::Prefix(_) if page.kind == PageKind::TraceAtStep => {
                (self.first, self.end) = (Some(0), Some(page.start));
                let subject = self.subject.clone();
                return Ok(self.turn_to(subject, view));
            }
            Subject::Attempt(attempt) => {
                let count = own(attempt, &events);
                let reached = page.start + count as u64;
                if count < events.len() || (reached == page.total && attempt.step.is_some()) {
                    self.end = Some(reached);
                }
                events.truncate(count);
                self.first = self.first.or(Some(page.start));
                if events.is_empty() && self.page.is_some() {
                    return Ok(None);
                }
            }
            Subject::Prefix(_) => {
                let end = self.end.unwrap_or(u64::MAX);
                events.truncate(usize::try_from(end.saturating_sub(page.start)).unwrap_or(usize::MAX));
            }
            Subject::Run | Subject::NoAttempt => {}
        }
        self.page = Some(Page {
            start: page.start,
            events,
        });
        Ok(None)
    }
}

/// Index behind the last event that can be paged to.
fn shown_end(subject: &Subject, end: Option<u64>, view: &RunView) -> u64 {
    match subject {
        Subject::Run => view.trace_page.total,
        _ => end.unwrap_or(view.trace_page.total),
    }
}

/// How many of consecutive events come before the first one of another attempt.
fn own(attempt: &Attempt, events: &[TraceEvent]) -> usize {
    let other = |event: &TraceEvent| event.attempt_id.as_ref().is_some_and(|id| *id != attempt.id);
    events.iter().position(other).unwrap_or(events.len())
}

fn at_step(cursor: Value, limit: Option<u32>) -> PageRequest {
    PageRequest {
        kind: PageKind::TraceAtStep,
        cursor,
        limit,
    }
}

fn from(start: u64, limit: Option<u32>) -> PageRequest {
    PageRequest {
        kind: PageKind::Trace,
        cursor: json!(start),
        limit,
    }
}

/// The last page before an event; none when nothing is there.
fn last_before(first: u64, end: u64) -> Option<PageRequest> {
    let start = end.saturating_sub(PAGE_ITEMS as u64).max(first);
    let limit = u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX);
    (limit > 0).then(|| from(start, Some(limit)))
}
