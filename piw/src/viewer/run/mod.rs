//! The run on screen: its view, its graph and drawings, the replay position, and the pages and contents loaded for it.

pub mod overlay;
pub mod session;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use piw_protocol::client::Freshness;
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::ops::PageRequest;
use piw_protocol::run::DisplayStatus;
use piw_protocol::session::{SessionEntryView, SessionEventView, SessionRunView};
use piw_protocol::view::{ArtifactRef, DefinitionView, PageKind, RunPage, RunView, StepView, TraceEvent};
use serde::Deserialize;
use serde_json::{Value, json};

use self::session::{Need, Replay};
use super::clock::Millis;
use super::graph::paint::Overlay;
use super::graph::{Density, Drawing, Graph};
use super::hosts::RunId;
use super::markdown::Document;
use super::message::{Content, DocumentKey, Effect, LayoutKey, SharedGraph};
use super::theme::Mark;
use crate::question::Question;

/// Drawings that are kept.
const DRAWINGS: usize = 24;
/// Laid-out documents that are kept beside those on screen.
const DOCUMENTS: usize = 64;
/// Entries of one page.
const ENTRIES: u64 = 64;
/// Steps that a page for a replay position starts before it.
const PAGE_LEAD: u64 = 128;

/// Content that is being fetched or is there.
#[derive(Debug, Clone)]
pub enum Loaded {
    /// Bytes so far and in all.
    Loading(u64, u64),
    /// Verified.
    Ready(Content),
    /// Why there is none.
    Failed(String),
}

/// A page of steps, read.
#[derive(Debug, Clone)]
pub struct StepsPage {
    /// The page.
    pub page: Arc<RunPage>,
    /// Its items.
    pub steps: Vec<StepView>,
}

/// A page of trace events, read; one that cannot be read is left out.
#[derive(Debug, Clone)]
pub struct EventsPage {
    page: Arc<RunPage>,
    events: Vec<TraceEvent>,
}

/// A page of session entries, read.
#[derive(Debug, Clone)]
struct EntriesPage {
    start: u64,
    entries: Vec<SessionEntryView>,
}

/// The run on screen.
#[derive(Debug)]
pub struct Run {
    /// The run.
    pub run_id: RunId,
    /// The newest view.
    pub view: Option<Arc<RunView>>,
    /// How current it is.
    pub freshness: Freshness,
    /// The graph; none until the definition is there and verified.
    pub graph: Option<Arc<Graph>>,
    /// Digest of the definition of [`Run::graph`].
    pub digest: String,
    /// Why there is no graph.
    pub graph_error: Option<String>,
    /// Folded groups.
    pub folded: BTreeSet<usize>,
    /// The state over the graph at the shown position.
    pub overlay: Overlay,
    /// Shown position: an event of the recorded session, or a step where there is none; none is the newest state.
    pub cursor: Option<u64>,
    /// Steps that had ended at the shown position; stays until the page of a new position is there.
    finished: Option<u64>,
    /// Conversations of the recorded session.
    pub replay: Replay,
    /// Entries of the session that were paged in.
    entries_page: Option<EntriesPage>,
    /// Whether somebody turned to that page, rather than the replay.
    entries_chosen: bool,
    /// Steps around the cursor.
    pub steps_page: Option<StepsPage>,
    /// Trace events that were paged in.
    pub trace_page: Option<EventsPage>,
    /// Contents by digest.
    pub contents: HashMap<String, Loaded>,
    /// Markdown by what it was laid out for; none while that goes on.
    pub documents: HashMap<DocumentKey, Option<Arc<Document>>>,
    drawings: Vec<(LayoutKey, Arc<Drawing>)>,
    requested: Vec<LayoutKey>,
    definition_wanted: Option<String>,
    page_wanted: Option<PageRequest>,
}

impl Run {
    /// A question with the request that was fetched for it, once it is there.
    #[must_use]
    pub fn filled(&self, question: Question) -> Question {
        let loaded = question
            .content()
            .and_then(|reference| self.contents.get(&reference.sha256));
        let value = match loaded {
            Some(Loaded::Ready(Content::Json(value))) => Value::clone(value),
            Some(Loaded::Ready(Content::Text(text))) => Value::String(text.to_string()),
            _ => return question,
        };
        question.filled(value)
    }

    /// A run of which nothing is known yet.
    #[must_use]
    pub fn new(run_id: RunId) -> Self {
        Self {
            run_id,
            view: None,
            freshness: Freshness::Opening,
            graph: None,
            digest: String::new(),
            graph_error: None,
            folded: BTreeSet::new(),
            overlay: Overlay::default(),
            cursor: None,
            finished: None,
            replay: Replay::default(),
            entries_page: None,
            entries_chosen: false,
            steps_page: None,
            trace_page: None,
            contents: HashMap::new(),
            documents: HashMap::new(),
            drawings: Vec::new(),
            requested: Vec::new(),
            definition_wanted: None,
            page_wanted: None,
        }
    }

    /// Takes a newer view; returns what has to be fetched for it.
    pub fn take_view(&mut self, view: Option<Arc<RunView>>, freshness: Freshness, now: Millis) -> Vec<Effect> {
        self.freshness = freshness;
        let Some(view) = view else { return Vec::new() };
        let mut effects = Vec::new();
        let digest = view.state.definition_digest.clone().unwrap_or_default();
        match &view.workflow {
            DefinitionView::Inline(definition) if self.graph.is_none() || digest != self.digest => {
                // One that was asked for before belongs to an older view.
                self.definition_wanted = None;
                self.take_definition(definition, digest);
            }
            DefinitionView::Content { content, .. }
                if self.definition_wanted.as_ref() != Some(&content.artifact.sha256) =>
            {
                self.definition_wanted = Some(content.artifact.sha256.clone());
                effects.push(Effect::FetchDefinition {
                    run_id: self.run_id.clone(),
                    reference: content.artifact.clone(),
                });
            }
            _ => {}
        }
        let by_events = self.by_events();
        let need = match &view.session {
            Some(session) => self.replay.take_view(session, &self.contents),
            None => Need::Nothing,
        };
        self.view = Some(view);
        if by_events != self.by_events() && self.cursor.is_some() {
            // Positions are counted in something else from now on.
            effects.extend(self.seek(None, now));
        }
        if let Some(cursor) = self.cursor.filter(|cursor| *cursor >= self.positions()) {
            // A server that was set back to a backup knows fewer of them.
            effects.extend(self.seek(Some(cursor), now));
        }
        if let Need::Content(reference) = need {
            effects.extend(self.want_once(&reference));
        }
        self.refresh(now);
        effects
    }

    /// Takes the definition that the view referred to.
    pub fn take_fetched(&mut self, sha256: &str, result: Result<Arc<DefinitionSnapshot>, String>, now: Millis) {
        if self.definition_wanted.as_deref() != Some(sha256) {
            return;
        }
        match result {
            Ok(definition) => {
                let named = self.view.as_ref().and_then(|view| view.state.definition_digest.clone());
                self.take_definition(&definition, named.unwrap_or_else(|| sha256.to_owned()));
                self.refresh(now);
            }
            Err(error) => {
                self.graph_error = Some(error);
                self.definition_wanted = None;
            }
        }
    }

    fn take_definition(&mut self, definition: &DefinitionSnapshot, digest: String) {
        self.graph = Some(Arc::new(Graph::new(definition)));
        self.digest = digest;
        self.graph_error = None;
        self.folded.clear();
        self.drawings.clear();
        self.requested.clear();
    }

    /// Recomputes what depends on the view, the cursor or the time.
    pub fn refresh(&mut self, now: Millis) {
        let (Some(graph), Some(view)) = (&self.graph, &self.view) else {
            return;
        };
        self.overlay = match (self.cursor, self.finished, &self.steps_page) {
            (None, ..) => overlay::live(graph, view, now),
            (Some(_), Some(0), _) => Overlay::idle(graph),
            (Some(_), Some(steps), Some(page)) if page.holds(steps - 1) => {
                overlay::at_step(graph, &page.page, &page.steps, steps - 1)
            }
            // Until the page is there the last overlay stays.
            (Some(_), ..) => return,
        };
        if self.cursor.is_some() && self.by_events() {
            let before = self
                .shown_step()
                .and_then(|step| graph.node(&self.step(step)?.step.node_id));
            let node = self.focus_node();
            overlay::replayed(graph, &mut self.overlay, before, node);
        }
    }

    /// The recorded session.
    #[must_use]
    pub fn session(&self) -> Option<&SessionRunView> {
        self.view.as_ref()?.session.as_ref()
    }

    /// Whether the run replays by the events of its session, rather than by steps.
    #[must_use]
    pub fn by_events(&self) -> bool {
        self.session().is_some_and(|session| session.event_page.total > 0)
    }

    /// Positions of the replay in all.
    #[must_use]
    pub fn positions(&self) -> u64 {
        match self.session() {
            Some(session) if session.event_page.total > 0 => session.event_page.total,
            _ => self.step_total(),
        }
    }

    /// The last step that had ended at the shown position of a replay.
    #[must_use]
    pub fn shown_step(&self) -> Option<u64> {
        self.cursor.and(self.finished)?.checked_sub(1)
    }

    /// Entries of the session that are known around the shown position and had settled there: the index of the first, how many
    /// had settled in all, and the entries.
    #[must_use]
    pub fn entries(&self) -> (u64, u64, &[SessionEntryView]) {
        let Some(session) = self.session() else {
            return (0, 0, &[]);
        };
        let newest = &session.entry_page;
        let settled = self.settled().unwrap_or(newest.total);
        let (start, entries) = match &self.entries_page {
            Some(page) => (page.start, page.entries.as_slice()),
            None => (newest.start, newest.items.as_slice()),
        };
        let shown = usize::try_from(settled.saturating_sub(start)).unwrap_or(usize::MAX);
        (start, settled, &entries[..shown.min(entries.len())])
    }

    /// Entries that had settled at the shown position of a replay.
    fn settled(&self) -> Option<u64> {
        self.cursor
            .and_then(|cursor| self.replay.event(cursor))
            .map(|event| event.entries)
    }

    /// Turns to older or newer entries.
    pub fn turn_entries(&mut self, newer: bool) -> Option<Effect> {
        let (start, settled, entries) = self.entries();
        let end = start + entries.len() as u64;
        if newer && end >= settled {
            return None;
        }
        if newer && self.cursor.is_none() && self.session().is_some_and(|session| end >= session.entry_page.start) {
            self.entries_page = None;
            return None;
        }
        if !newer && start == 0 {
            return None;
        }
        let cursor = if newer { end } else { start.saturating_sub(ENTRIES) };
        self.entries_chosen = true;
        self.ask(PageRequest {
            kind: PageKind::SessionEntries,
            cursor: json!(cursor),
            limit: Some(ENTRIES as u32),
        })
    }

    /// The drawing for a density, and the effect that makes it when it is not there yet.
    pub fn want_drawing(&mut self, density: Density) -> Option<Effect> {
        let graph = Arc::clone(self.graph.as_ref()?);
        let key = self.layout_key(density);
        if self.drawings.iter().any(|(known, _)| *known == key) || self.requested.contains(&key) {
            return None;
        }
        self.requested.push(key.clone());
        Some(Effect::LayOut {
            key,
            graph: SharedGraph(graph),
        })
    }

    /// Keeps a finished drawing.
    pub fn take_drawing(&mut self, key: LayoutKey, drawing: Arc<Drawing>) {
        if key.digest != self.digest {
            return;
        }
        self.requested.retain(|known| *known != key);
        // Digests of definitions come from the server: two graphs may claim the same one.
        if !self.graph.as_ref().is_some_and(|graph| drawing.shows(graph)) {
            return;
        }
        if self.drawings.len() == DRAWINGS {
            self.drawings.remove(0);
        }
        self.drawings.push((key, drawing));
    }

    /// The drawing for a density, when it is there.
    #[must_use]
    pub fn drawing(&self, density: Density) -> Option<&Arc<Drawing>> {
        self.drawings
            .iter()
            .rev()
            .find(|(key, _)| key.density == density && key.folded == self.folded && key.digest == self.digest)
            .map(|(_, drawing)| drawing)
    }

    fn layout_key(&self, density: Density) -> LayoutKey {
        LayoutKey {
            digest: self.digest.clone(),
            density,
            folded: self.folded.clone(),
        }
    }

    /// Steps in all.
    #[must_use]
    pub fn step_total(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.step_total)
    }

    /// The steps that are known around the shown position, with the index of the first.
    #[must_use]
    pub fn steps(&self) -> (u64, &[StepView]) {
        match (self.shown_step(), &self.steps_page, &self.view) {
            (Some(step), Some(page), _) if page.holds(step) => (page.page.start, &page.steps),
            (_, _, Some(view)) => (view.step_start, &view.state.steps),
            _ => (0, &[]),
        }
    }

    /// One step, when it is known.
    #[must_use]
    pub fn step(&self, index: u64) -> Option<&StepView> {
        let in_window = |start: u64, steps: &'_ [StepView]| {
            index
                .checked_sub(start)
                .and_then(|at| usize::try_from(at).ok())
                .filter(|at| *at < steps.len())
        };
        if let Some(page) = &self.steps_page
            && let Some(at) = in_window(page.page.start, &page.steps)
        {
            return Some(&page.steps[at]);
        }
        let view = self.view.as_ref()?;
        in_window(view.step_start, &view.state.steps).map(|at| &view.state.steps[at])
    }

    /// Moves the replay position; returns what has to be fetched for it. A request for a position before is forgotten: its page
    /// is not taken when it arrives.
    pub fn seek(&mut self, cursor: Option<u64>, now: Millis) -> Vec<Effect> {
        let total = self.positions();
        self.cursor = cursor.filter(|_| total > 0).map(|cursor| cursor.min(total - 1));
        self.entries_chosen = false;
        self.align(now)
    }

    /// Brings steps, conversation and entries to the cursor; returns what is missing first. Each page that arrives asks for the
    /// next missing one.
    fn align(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(cursor) = self.cursor else {
            self.finished = None;
            self.entries_page = None;
            self.page_wanted = None;
            self.replay.go_live();
            self.refresh(now);
            return effects;
        };
        if self.by_events() {
            let need = match self.view.as_ref().and_then(|view| view.session.as_ref()) {
                Some(session) => self.replay.seek(cursor, session, &self.contents),
                None => Need::Nothing,
            };
            match need {
                Need::Page(start) => {
                    effects.extend(self.ask_from(PageKind::SessionEvents, start));
                    return effects;
                }
                Need::Content(reference) => effects.extend(self.want_once(&reference)),
                Need::Nothing => {}
            }
            self.finished = self
                .replay
                .event(cursor)
                .map(|event| event.steps.min(self.step_total()));
        } else {
            self.finished = Some(cursor + 1);
        }
        self.refresh(now);
        if let Some(step) = self.shown_step()
            && self.steps_page.as_ref().is_none_or(|page| !page.holds(step))
        {
            effects.extend(self.ask_from(PageKind::Steps, step.saturating_sub(PAGE_LEAD)));
        } else if let Some(start) = self.missing_entries() {
            effects.extend(self.ask_from(PageKind::SessionEntries, start));
        }
        effects
    }

    /// First of the entries that have to be fetched to show the newest ones of the cursor; with them the page that fits is
    /// chosen.
    fn missing_entries(&mut self) -> Option<u64> {
        if self.entries_chosen {
            return None;
        }
        let last = self.settled()?.checked_sub(1)?;
        let newest = &self.session()?.entry_page;
        if newest.start <= last {
            self.entries_page = None;
            return None;
        }
        let holds = |page: &EntriesPage| (page.start..page.start + page.entries.len() as u64).contains(&last);
        if self.entries_page.as_ref().is_some_and(holds) {
            return None;
        }
        Some((last + 1).saturating_sub(ENTRIES))
    }

    fn ask_from(&mut self, kind: PageKind, start: u64) -> Option<Effect> {
        self.ask(PageRequest {
            kind,
            cursor: json!(start),
            limit: None,
        })
    }

    /// Content arrived.
    pub fn take_content(&mut self, sha256: &str, result: Result<Content, String>, now: Millis) -> Vec<Effect> {
        let Some(slot) = self.contents.get_mut(sha256) else {
            return Vec::new();
        };
        *slot = match result {
            Ok(content) => Loaded::Ready(content),
            Err(error) => Loaded::Failed(error),
        };
        self.replay.take_content(&self.contents);
        if self.cursor.is_some() && self.by_events() {
            return self.align(now);
        }
        Vec::new()
    }

    /// Asks for a page at the present revision unless the same one is on its way.
    pub fn ask(&mut self, request: PageRequest) -> Option<Effect> {
        let view = self.view.as_ref()?;
        if self.page_wanted.as_ref() == Some(&request) {
            return None;
        }
        self.page_wanted = Some(request.clone());
        Some(Effect::FetchPage {
            run_id: self.run_id.clone(),
            revision: view.revision,
            request,
        })
    }

    /// Keeps a page that was asked for. A page that lies before the cursor (a byte budget cut it) is followed by the next.
    pub fn take_page(
        &mut self,
        request: &PageRequest,
        result: Result<Arc<RunPage>, String>,
        now: Millis,
    ) -> Result<Vec<Effect>, String> {
        if self.page_wanted.as_ref() != Some(request) {
            return Ok(Vec::new());
        }
        self.page_wanted = None;
        let page = result?;
        match page.kind {
            PageKind::Steps => {
                let steps: Vec<StepView> = items(&page, "step")?;
                let end = page.start + steps.len() as u64;
                let empty = steps.is_empty();
                self.steps_page = Some(StepsPage { page, steps });
                if let Some(step) = self.shown_step()
                    && step >= end
                    && !empty
                {
                    self.refresh(now);
                    return Ok(self.ask_from(PageKind::Steps, end).into_iter().collect());
                }
            }
            PageKind::SessionEvents => {
                let events: Vec<SessionEventView> = items(&page, "recorded event")?;
                let end = page.start + events.len() as u64;
                if events.is_empty() {
                    return Err(format!("there are no recorded events from {} on", page.start + 1));
                }
                self.replay
                    .take_page(page.start, events, page.replay_checkpoint.as_ref());
                if let Some(cursor) = self.cursor
                    && cursor >= end
                {
                    return Ok(self.ask_from(PageKind::SessionEvents, end).into_iter().collect());
                }
            }
            PageKind::SessionEntries => {
                let entries: Vec<SessionEntryView> = items(&page, "session entry")?;
                let end = page.start + entries.len() as u64;
                if entries.is_empty() {
                    return Err(format!("there are no session entries from {} on", page.start + 1));
                }
                self.entries_page = Some(EntriesPage {
                    start: page.start,
                    entries,
                });
                let before = self.settled().is_some_and(|settled| end < settled);
                if before && !self.entries_chosen {
                    return Ok(self.ask_from(PageKind::SessionEntries, end).into_iter().collect());
                }
            }
            PageKind::Trace | PageKind::TraceAtStep => {
                let events = page.items.iter().map(TraceEvent::deserialize);
                let events = events.filter_map(Result::ok).collect();
                self.trace_page = Some(EventsPage { page, events });
                return Ok(Vec::new());
            }
            _ => {}
        }
        Ok(if self.cursor.is_some() {
            self.align(now)
        } else {
            Vec::new()
        })
    }

    /// Trace events to show: paged in ones, else the newest.
    #[must_use]
    pub fn trace(&self) -> (u64, u64, &[TraceEvent]) {
        match (&self.trace_page, &self.view) {
            (Some(EventsPage { page, events }), _) => (page.start, page.total, events),
            (None, Some(view)) => (view.trace_page.start, view.trace_page.total, &view.trace_page.items),
            (None, None) => (0, 0, &[]),
        }
    }

    /// Has Markdown laid out that is on screen for the first time. Of what is not on screen only some is kept.
    pub fn want_documents(
        &mut self,
        wanted: Vec<(DocumentKey, Arc<str>)>,
        used: &HashSet<DocumentKey>,
    ) -> impl Iterator<Item = Effect> {
        if self.documents.len() + wanted.len() > DOCUMENTS {
            self.documents.retain(|key, _| used.contains(key));
        }
        for (key, _) in &wanted {
            self.documents.insert(key.clone(), None);
        }
        let run_id = self.run_id.clone();
        wanted.into_iter().map(move |(key, text)| Effect::Render {
            run_id: run_id.clone(),
            key,
            text,
        })
    }

    /// Starts fetching content that nobody asked for, unless that was tried before.
    fn want_once(&mut self, reference: &ArtifactRef) -> Option<Effect> {
        if self.contents.contains_key(&reference.sha256) {
            return None;
        }
        self.want_content(reference)
    }

    /// Starts fetching content unless it is there or on its way.
    pub fn want_content(&mut self, reference: &ArtifactRef) -> Option<Effect> {
        match self.contents.get(&reference.sha256) {
            Some(Loaded::Loading(..) | Loaded::Ready(_)) => None,
            Some(Loaded::Failed(_)) | None => {
                self.contents
                    .insert(reference.sha256.clone(), Loaded::Loading(0, reference.bytes));
                Some(Effect::FetchContent {
                    run_id: self.run_id.clone(),
                    reference: reference.clone(),
                })
            }
        }
    }

    /// Whether commands may be offered: the server keeps the view current.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.freshness == Freshness::Live && self.view.is_some()
    }

    /// Whether a control is on offer.
    #[must_use]
    pub fn offers(&self, control: &str) -> bool {
        self.is_live()
            && self
                .view
                .as_ref()
                .is_some_and(|view| view.display.controls.iter().any(|known| known == control))
    }

    /// Whether something on screen changes with the time.
    #[must_use]
    pub fn has_clock(&self) -> bool {
        self.view.as_ref().is_some_and(|view| {
            matches!(
                view.display.status,
                DisplayStatus::Running | DisplayStatus::Waiting | DisplayStatus::Queued
            ) && view.state.finished_at.is_none()
        })
    }

    /// Status of the run as a mark.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.view
            .as_ref()
            .map_or(Mark::Idle, |view| Mark::of(view.display.status))
    }

    /// The node that the shown position is about: the step at the cursor, else what runs, waits or came last.
    #[must_use]
    pub fn focus_node(&self) -> Option<usize> {
        let graph = self.graph.as_ref()?;
        let at = |step: u64| graph.node(&self.step(step)?.step.node_id);
        if let Some(finished) = self.cursor.and(self.finished) {
            // Between two steps the one that ended next was at work.
            let going_on = if self.by_events() { at(finished) } else { None };
            let last = self.by_events() && finished == self.step_total();
            let current = self
                .view
                .as_ref()
                .and_then(|view| graph.node(view.state.current_node.as_deref()?));
            return going_on
                .or(current.filter(|_| last))
                .or_else(|| finished.checked_sub(1).and_then(at));
        }
        let view = self.view.as_ref()?;
        let state = &view.state;
        let id = state.current_node.as_deref().or(state.waiting_on.as_deref());
        let id = id.or_else(|| state.steps.last().map(|step| step.step.node_id.as_str()));
        id.map_or(graph.start, |id| graph.node(id))
    }
}

impl StepsPage {
    /// Whether the page holds a step.
    #[must_use]
    pub fn holds(&self, index: u64) -> bool {
        index >= self.page.start && index < self.page.start + self.steps.len() as u64
    }
}

/// The items of a page, read.
fn items<T: for<'a> Deserialize<'a>>(page: &RunPage, what: &str) -> Result<Vec<T>, String> {
    let items: Result<Vec<T>, _> = page.items.iter().map(T::deserialize).collect();
    items.map_err(|error| format!("a {what} of the page cannot be read: {error}"))
}
