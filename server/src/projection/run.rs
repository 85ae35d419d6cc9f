//! The run view: one consistent, bounded picture of a run.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use piw_protocol::canonical;
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::frame::MAX_FRAME;
use piw_protocol::run::{ErrorInfo, SourceMap};
use piw_protocol::view::{
    ArtifactEnvelope, DefinitionView, MANIFEST_SCHEMA, Manifest, NodeResultView, QueueView, RUN_STATE_SCHEMA,
    RUN_VIEW_SCHEMA, RunStateView, RunView, StepView, TRACE_SCHEMA, TraceEvent, TracePage, ViewValue,
};
use piw_state::query::run::{self as runs, RunFacts, RunValue};
use piw_state::query::steps::{self, AttemptRow, Chain, Order};
use piw_state::query::{QueryError, Reader, StoredValue, graph as graphs, rfc3339, trace, updates};
use serde_json::{Value, json};

use super::bounds::{TEXT_LIMIT, Window, cut, size};
use super::content::{Contents, NamedContent};
use super::nodes::{NodeCache, Nodes};
use super::session_view::SessionCache;
use super::step::{ResultCache, StepMaker};
use super::{ViewError, display, effect, graph, session, update};

/// Room for the envelope around a view, in bytes.
const ENVELOPE: usize = 2048;

/// How much of each part a view shows. Windows are cut by count and by bytes; their sum stays below a frame.
#[derive(Debug, Clone, Copy)]
struct Budget {
    steps: usize,
    step_bytes: usize,
    events: usize,
    event_bytes: usize,
    updates: usize,
    update_bytes: usize,
    output_bytes: usize,
    graph_bytes: usize,
    transition_bytes: usize,
    source_bytes: usize,
    session: session::Budget,
}

const FULL: Budget = Budget {
    steps: 24,
    step_bytes: 64 * 1024,
    events: 16,
    event_bytes: 48 * 1024,
    updates: 64,
    update_bytes: 32 * 1024,
    output_bytes: 48 * 1024,
    graph_bytes: 448 * 1024,
    transition_bytes: 192 * 1024,
    source_bytes: 32 * 1024,
    session: session::Budget {
        entries: 16,
        entry_bytes: 48 * 1024,
        events: 128,
        event_bytes: 32 * 1024,
    },
};

impl Budget {
    /// For a view that came out above a frame all the same (its single first items may be large).
    const fn half(self) -> Self {
        Self {
            steps: self.steps.div_ceil(2),
            step_bytes: self.step_bytes / 2,
            events: self.events.div_ceil(2),
            event_bytes: self.event_bytes / 2,
            updates: self.updates.div_ceil(2),
            update_bytes: self.update_bytes / 2,
            output_bytes: self.output_bytes / 2,
            graph_bytes: self.graph_bytes / 2,
            transition_bytes: self.transition_bytes / 2,
            source_bytes: self.source_bytes / 2,
            session: self.session.half(),
        }
    }
}

/// A view with what must happen before and after it is sent.
#[derive(Debug)]
pub(crate) struct Projected {
    /// The view.
    pub(crate) view: RunView,
    /// Its canonical JSON.
    pub(crate) json: Vec<u8>,
    /// Content that it names.
    pub(crate) content: NamedContent,
    /// Wall-clock milliseconds at which the clock alone ends it.
    pub(crate) valid_until: Option<i64>,
}

/// Makes run views, session views and pages. Clones share what they remember of definitions, large results and sessions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Projector {
    pub(crate) nodes: NodeCache,
    pub(crate) results: ResultCache,
    pub(super) sessions: SessionCache,
}

impl Projector {
    /// The view of a run. `now` is wall-clock milliseconds.
    pub(crate) fn run_view(&self, reader: &Reader, run_id: &str, now: i64) -> Result<Projected, ViewError> {
        let Some(facts) = runs::facts(reader, run_id)? else {
            return Err(ViewError::RunNotFound {
                run_id: run_id.to_owned(),
            });
        };
        let mut budget = FULL;
        let limit = MAX_FRAME - ENVELOPE;
        loop {
            let projected = self.build(reader, &facts, now, budget)?;
            if projected.json.len() <= limit {
                return Ok(projected);
            }
            if budget.steps == 1 && budget.events == 1 {
                return Err(ViewError::TooLarge {
                    bytes: projected.json.len(),
                    limit,
                });
            }
            budget = budget.half();
        }
    }

    fn build(&self, reader: &Reader, facts: &RunFacts, now: i64, budget: Budget) -> Result<Projected, QueryError> {
        let nodes = self.nodes.get(reader, facts.definition)?;
        let chain = Chain::of(reader, facts)?;
        let mut contents = Contents::default();
        let maker = StepMaker {
            reader,
            run_id: &facts.run_id,
            nodes: &nodes,
            results: &self.results,
        };
        let at = Position::read(reader, facts, &nodes)?;
        let error = runs::error(reader, facts.id)?;
        let message = error.as_ref().map(|error| error.message.as_str());
        let derived = display::derive(facts, now, at.waiting_on.as_deref(), message);
        let mut shown = derived.display;
        display::bound_reason(&mut shown, &mut contents);

        let steps = step_window(&maker, &chain, facts, budget, &mut contents)?;
        let step_start = facts.step_count - steps.len() as u64;
        let trace_page = trace_tail(&maker, facts, budget, &mut contents)?;
        let update_total = updates::count(reader, facts.id)?;
        let shown_updates = update_window(reader, facts, &nodes, now, budget, &mut contents)?;
        let node_rows = graphs::live_nodes(reader, facts.id)?;
        let graph_step_total = node_rows.len() as u64;
        let transition_rows = graphs::live_transitions(reader, facts.id)?;
        let taken_transition_total = transition_rows.len() as u64;

        let mut state = state_view(reader, facts, &at, steps, budget, &mut contents)?;
        state.error = error.map(bounded_error);
        let view = RunView {
            schema: RUN_VIEW_SCHEMA.to_owned(),
            run_id: facts.run_id.clone(),
            revision: facts.view_revision,
            run_revision: facts.revision,
            display: shown,
            manifest: manifest(facts),
            state,
            workflow: self.definition(reader, facts, &mut contents)?,
            queue: queue(facts),
            graph_steps: graph::steps(node_rows, &nodes, budget.graph_bytes)?,
            graph_step_start: 0,
            graph_step_total,
            taken_transitions: graph::transitions(transition_rows, &nodes, budget.transition_bytes)?,
            taken_transition_start: 0,
            taken_transition_total,
            graph_cursor: facts.step_count,
            step_start,
            step_total: facts.step_count,
            trace_page,
            update_start: update_total.saturating_sub(shown_updates.len() as u64),
            update_total,
            updates: shown_updates,
            session: session::view(reader, facts, budget.session, &mut contents)?,
            review: effect::review(reader, facts)?,
            live: derived.live,
            possibly_interrupted: derived.possibly_interrupted,
        };
        let json = canonical::to_vec(&view).map_err(|error| QueryError::Corrupt {
            what: "run view",
            message: error.to_string(),
        })?;
        let content = contents.finish(reader, facts.id)?;
        Ok(Projected {
            view,
            json,
            content,
            valid_until: derived.valid_until,
        })
    }

    fn definition(
        &self,
        reader: &Reader,
        facts: &RunFacts,
        contents: &mut Contents,
    ) -> Result<DefinitionView, QueryError> {
        match runs::definition_snapshot(reader, facts.definition)? {
            StoredValue::Inline(value) => {
                let snapshot: DefinitionSnapshot = runs::parse_definition(value)?;
                Ok(DefinitionView::Inline(Box::new(snapshot)))
            }
            StoredValue::Content { blob, reference } => {
                let definition = runs::definition(reader, facts.definition)?;
                Ok(DefinitionView::Content {
                    name: definition.name,
                    start_at: definition.start_at,
                    node_total: definition.node_total,
                    content: ArtifactEnvelope {
                        artifact: contents.blob(blob, reference),
                    },
                })
            }
        }
    }
}

/// Where a run stands.
#[derive(Debug, Default)]
pub(super) struct Position {
    current: Option<AttemptRow>,
    current_node: Option<String>,
    waiting_on: Option<String>,
    /// The finished checkpoint attempt whose answer is awaited.
    checkpoint: Option<AttemptRow>,
}

impl Position {
    /// Node of the unfinished attempt.
    pub(super) fn current_node(&self) -> Option<&str> {
        self.current_node.as_deref()
    }

    /// Node whose answer or submission is awaited.
    pub(super) fn waiting_on(&self) -> Option<&str> {
        self.waiting_on.as_deref()
    }

    /// Index of the node that works or is waited on.
    pub(super) fn working_node(&self) -> Option<i64> {
        self.current
            .as_ref()
            .or(self.checkpoint.as_ref())
            .map(|attempt| attempt.node)
    }

    pub(super) fn read(reader: &Reader, facts: &RunFacts, nodes: &Nodes) -> Result<Self, QueryError> {
        let mut at = Self::default();
        if let Some(id) = facts.current_attempt {
            at.current = steps::attempt(reader, id)?;
        }
        if let Some(id) = facts.waiting_attempt {
            at.checkpoint = steps::attempt(reader, id)?;
        }
        let name = |attempt: &Option<AttemptRow>| attempt.as_ref().map(|row| nodes.id(row.node)).transpose();
        at.current_node = name(&at.current)?;
        // Decision 13: a checkpoint has no unfinished attempt; a parked interaction's node is its unfinished attempt's.
        at.waiting_on = match name(&at.checkpoint)? {
            None if facts.pending_request.is_some() => at.current_node.clone(),
            node => node,
        };
        Ok(at)
    }
}

fn state_view(
    reader: &Reader,
    facts: &RunFacts,
    at: &Position,
    steps: Vec<StepView>,
    budget: Budget,
    contents: &mut Contents,
) -> Result<RunStateView, QueryError> {
    let definition = runs::definition(reader, facts.definition)?;
    let (outputs, results) = latest_results(&steps, budget);
    let final_output = runs::value(reader, facts.id, RunValue::FinalOutput)?;
    Ok(RunStateView {
        schema: RUN_STATE_SCHEMA.to_owned(),
        trace_seq: facts.trace_seq,
        run_id: facts.run_id.clone(),
        workflow_name: facts.workflow_name.clone(),
        run_title: facts.title.as_deref().map(|title| cut(title, TEXT_LIMIT)),
        workflow_source: facts.source.clone(),
        parent_run_id: facts.parent.as_ref().map(|(_, run_id)| run_id.clone()),
        carried_step_count: facts.is_continuation.then_some(facts.carried_step_count),
        workflow_sources: runs::sources(reader, facts.id)?.and_then(|sources| bounded_sources(sources, budget)),
        definition_digest: Some(definition.digest),
        started_at: rfc3339(facts.started_at.unwrap_or(facts.created_at)),
        finished_at: facts.finished_at.map(rfc3339),
        updated_at: rfc3339(facts.updated_at),
        status: facts.status,
        input: contents.stored(runs::value(reader, facts.id, RunValue::Input)?),
        outputs,
        results,
        human_decision: at
            .checkpoint
            .as_ref()
            .map(|attempt| checkpoint_request(attempt, at, facts, &steps)),
        steps,
        current_node: at.current_node.clone(),
        current_attempt_id: at.current.as_ref().map(|row| row.attempt_id.clone()),
        current_node_started_at: at.current.as_ref().map(|row| rfc3339(row.started_at)),
        status_detail: at
            .current
            .as_ref()
            .and_then(|row| row.status_detail.as_deref())
            .map(|text| cut(text, TEXT_LIMIT)),
        paused: facts.paused.then_some(true),
        waiting_on: at.waiting_on.clone(),
        final_output: final_output.map(|value| contents.stored(Some(value))),
        error: None,
        failure_class: facts.failure_class.clone(),
    })
}

/// The request of the checkpoint that the run waits on; its output is the request.
fn checkpoint_request(attempt: &AttemptRow, at: &Position, facts: &RunFacts, steps: &[StepView]) -> Value {
    let request = steps
        .iter()
        .rev()
        .find(|step| step.step.attempt_id == attempt.attempt_id);
    let kind = if facts.pending_request.is_some() {
        "decision"
    } else {
        "checkpoint"
    };
    json!({
        "kind": kind,
        "nodeId": at.waiting_on,
        "attemptId": attempt.attempt_id,
        "request": request.map_or(&Value::Null, |step| &step.step.output),
    })
}

/// Latest output and result of each node in the step window, newest first within the budget.
fn latest_results(
    steps: &[StepView],
    budget: Budget,
) -> (BTreeMap<String, ViewValue>, BTreeMap<String, NodeResultView>) {
    let (mut outputs, mut results, mut left) = (BTreeMap::new(), BTreeMap::new(), budget.output_bytes);
    for view in steps.iter().rev() {
        let step = &view.step;
        if results.contains_key(&step.node_id) {
            continue;
        }
        let result = NodeResultView {
            attempt_id: step.attempt_id.clone(),
            outcome: step.outcome,
            error: step.error.clone(),
        };
        let cost = size(&step.output) + size(&result) + 2 * step.node_id.len();
        if cost > left {
            break;
        }
        left -= cost;
        if step.outcome == piw_protocol::run::NodeOutcome::Ok {
            outputs.insert(step.node_id.clone(), view.output());
        }
        results.insert(step.node_id.clone(), result);
    }
    (outputs, results)
}

fn step_window(
    maker: &StepMaker<'_>,
    chain: &Chain,
    facts: &RunFacts,
    budget: Budget,
    contents: &mut Contents,
) -> Result<Vec<StepView>, QueryError> {
    let mut window = Window::new(budget.steps, budget.step_bytes);
    steps::scan(maker.reader, chain, 0..facts.step_count, Order::Backward, |row| {
        let step = maker.step(row, contents)?;
        Ok(if window.push(step) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    Ok(window.into_reversed())
}

fn trace_tail(
    maker: &StepMaker<'_>,
    facts: &RunFacts,
    budget: Budget,
    contents: &mut Contents,
) -> Result<TracePage, QueryError> {
    let mut window: Window<TraceEvent> = Window::new(budget.events, budget.event_bytes);
    trace::scan(maker.reader, facts.id, 1..facts.trace_seq + 1, Order::Backward, |row| {
        let event = maker.event(row, contents)?;
        Ok(if window.push(event) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    let items = window.into_reversed();
    Ok(TracePage {
        start: facts.trace_seq.saturating_sub(items.len() as u64),
        total: facts.trace_seq,
        items,
    })
}

fn update_window(
    reader: &Reader,
    facts: &RunFacts,
    nodes: &Nodes,
    now: i64,
    budget: Budget,
    contents: &mut Contents,
) -> Result<Vec<piw_protocol::run::StoredUpdate>, QueryError> {
    let mut window = Window::new(budget.updates, budget.update_bytes);
    updates::scan_back(reader, facts.id, |row| {
        let update = update::update(row, nodes, now, contents)?;
        Ok(if window.push(update) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    Ok(window.into_reversed())
}

/// An error with its texts cut; the whole message is in the display's reason.
fn bounded_error(error: ErrorInfo) -> ErrorInfo {
    ErrorInfo {
        code: error.code,
        message: cut(&error.message, TEXT_LIMIT),
        stack: error.stack.as_deref().map(|stack| cut(stack, TEXT_LIMIT)),
    }
}

/// The sources, without the list of modules when that alone is large; left out when even the mounts are.
fn bounded_sources(mut sources: SourceMap, budget: Budget) -> Option<SourceMap> {
    if size(&sources) > budget.source_bytes {
        sources.modules.clear();
    }
    (size(&sources) <= budget.source_bytes).then_some(sources)
}

/// Identity and timing of a run.
pub(crate) fn manifest(facts: &RunFacts) -> Manifest {
    Manifest {
        schema: MANIFEST_SCHEMA.to_owned(),
        run_id: facts.run_id.clone(),
        workflow_name: facts.workflow_name.clone(),
        run_title: facts.title.as_deref().map(|title| cut(title, TEXT_LIMIT)),
        workflow_source: facts.source.clone(),
        started_at: rfc3339(facts.started_at.unwrap_or(facts.created_at)),
        finished_at: facts.finished_at.map(rfc3339),
        status: facts.status,
        trace_schema: TRACE_SCHEMA.to_owned(),
        paths: ["state", "trace", "workflow"]
            .map(|part| (part.to_owned(), part.to_owned()))
            .into(),
    }
}

fn queue(facts: &RunFacts) -> QueueView {
    QueueView {
        run_id: facts.run_id.clone(),
        workflow_name: facts.workflow_name.clone(),
        status: facts.queue.status.clone(),
        execution_mode: if facts.session_id.is_some() {
            "session"
        } else {
            "headless"
        }
        .to_owned(),
        origin_session_id: facts.session_id.clone(),
        queued_at: rfc3339(facts.queue.queued_at),
        updated_at: rfc3339(facts.queue.updated_at),
    }
}
