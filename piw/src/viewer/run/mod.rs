//! The run on screen: its view, its graph and drawings, the replay position, and the pages and contents loaded for it.

pub mod overlay;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use piw_protocol::client::Freshness;
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::ops::PageRequest;
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::{ArtifactRef, DefinitionView, PageKind, RunPage, RunView, StepView, TraceEvent};
use serde::Deserialize;
use serde_json::{Value, json};

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
    /// Shown step; none is the newest state.
    pub cursor: Option<u64>,
    /// Steps around the cursor.
    pub steps_page: Option<StepsPage>,
    /// Trace events that were paged in.
    pub trace_page: Option<Arc<RunPage>>,
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
                self.take_definition(definition, digest);
            }
            DefinitionView::Content { content, .. }
                if self.definition_wanted.as_ref() != Some(&content.artifact.sha256) =>
            {
                self.definition_wanted = Some(content.artifact.sha256.clone());
                self.digest = digest;
                effects.push(Effect::FetchDefinition {
                    run_id: self.run_id.clone(),
                    reference: content.artifact.clone(),
                });
            }
            _ => {}
        }
        self.view = Some(view);
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
                let digest = if self.digest.is_empty() {
                    sha256.to_owned()
                } else {
                    self.digest.clone()
                };
                self.take_definition(&definition, digest);
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
        self.overlay = match (self.cursor, &self.steps_page) {
            (None, _) => overlay::live(graph, view, now),
            (Some(cursor), Some(page)) if page.holds(cursor) => {
                overlay::at_step(graph, &page.page, &page.steps, cursor)
            }
            // Until the page is there the last overlay stays.
            (Some(_), _) => return,
        };
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
        match (self.cursor, &self.steps_page, &self.view) {
            (Some(cursor), Some(page), _) if page.holds(cursor) => (page.page.start, &page.steps),
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

    /// Moves the replay position; returns the request for the page that holds it, when it is not there.
    pub fn seek(&mut self, cursor: Option<u64>, now: Millis) -> Option<Effect> {
        let total = self.step_total();
        self.cursor = cursor.filter(|_| total > 0).map(|cursor| cursor.min(total - 1));
        self.refresh(now);
        let cursor = self.cursor?;
        if self.steps_page.as_ref().is_some_and(|page| page.holds(cursor)) {
            return None;
        }
        let request = PageRequest {
            kind: PageKind::Steps,
            cursor: json!(cursor.saturating_sub(PAGE_LEAD)),
            limit: None,
        };
        self.ask(request)
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
    ) -> Result<Option<Effect>, String> {
        if self.page_wanted.as_ref() != Some(request) {
            return Ok(None);
        }
        self.page_wanted = None;
        let page = result?;
        match page.kind {
            PageKind::Steps => {
                let steps: Result<Vec<StepView>, _> = page.items.iter().map(StepView::deserialize).collect();
                let steps = steps.map_err(|error| format!("a step of the page cannot be read: {error}"))?;
                let end = page.start + steps.len() as u64;
                let empty = steps.is_empty();
                self.steps_page = Some(StepsPage { page, steps });
                self.refresh(now);
                if let Some(cursor) = self.cursor
                    && cursor >= end
                    && !empty
                {
                    return Ok(self.ask(PageRequest {
                        kind: PageKind::Steps,
                        cursor: json!(end),
                        limit: None,
                    }));
                }
            }
            PageKind::Trace | PageKind::TraceAtStep => self.trace_page = Some(page),
            _ => {}
        }
        Ok(None)
    }

    /// Trace events to show: paged in ones, else the newest.
    #[must_use]
    pub fn trace(&self) -> (u64, u64, Vec<TraceEvent>) {
        match (&self.trace_page, &self.view) {
            (Some(page), _) => (
                page.start,
                page.total,
                page.items
                    .iter()
                    .filter_map(|item| TraceEvent::deserialize(item).ok())
                    .collect(),
            ),
            (None, Some(view)) => (
                view.trace_page.start,
                view.trace_page.total,
                view.trace_page.items.clone(),
            ),
            (None, None) => (0, 0, Vec::new()),
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
        if let Some(cursor) = self.cursor {
            return graph.node(&self.step(cursor)?.step.node_id);
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
