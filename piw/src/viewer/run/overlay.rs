//! The state of a run over its graph, at the newest or a past position: what each card and line says.

use piw_protocol::run::{DisplayStatus, NodeOutcome, StoredUpdate};
use piw_protocol::view::{GraphStep, RunPage, RunView, StepView, TakenTransition};

use crate::follow::lines::{node_status, progress_counts};
use crate::text::clean;
use crate::viewer::clock::{self, Millis};
use crate::viewer::graph::Graph;
use crate::viewer::graph::paint::{NodeState, Overlay};
use crate::viewer::theme::Mark;

/// The mark of an outcome.
#[must_use]
pub const fn outcome_mark(outcome: NodeOutcome) -> Mark {
    match outcome {
        NodeOutcome::Ok => Mark::Ok,
        NodeOutcome::TimedOut => Mark::TimedOut,
        NodeOutcome::Failed => Mark::Failed,
        NodeOutcome::Cancelled => Mark::Cancelled,
    }
}

/// The newest state.
#[must_use]
pub fn live(graph: &Graph, view: &RunView, now: Millis) -> Overlay {
    let mut overlay = Overlay::idle(graph);
    for step in &view.graph_steps {
        if let Some(node) = graph.node(&step.node_id) {
            let mark = Mark::of(node_status(view, &step.node_id, step.outcome));
            overlay.nodes[node] = node_state(step, mark, now);
        }
    }
    take(graph, &mut overlay, &view.taken_transitions);
    let known = |id: &Option<String>| {
        let id = id.as_deref()?;
        Some((graph.node(id)?, node_status(view, id, None)))
    };
    if let Some((node, status)) = known(&view.state.waiting_on)
        && overlay.nodes[node].mark == Mark::Idle
        && matches!(view.display.status, DisplayStatus::Waiting | DisplayStatus::Paused)
    {
        overlay.nodes[node].mark = Mark::of(status);
    }
    if let Some((node, status)) = known(&view.state.current_node) {
        let state = &mut overlay.nodes[node];
        if state.mark == Mark::Idle {
            state.mark = Mark::of(status);
            state.attempts = state.attempts.max(1);
        }
        let detail = view.state.status_detail.clone();
        if let Some(detail) = detail.or_else(|| progress(view, now)) {
            state.detail = clean(&detail).into_owned();
        }
        let before = view.state.steps.last().and_then(|step| graph.node(&step.step.node_id));
        overlay.active_edge = before.and_then(|before| graph.edge(before, node));
    }
    overlay
}

/// What the unfinished attempt says of its progress.
fn progress(view: &RunView, now: Millis) -> Option<String> {
    let attempt = view.state.current_attempt_id.as_deref();
    let own =
        |update: &&StoredUpdate| update.update.update_type == "progress" && Some(update.attempt_id.as_str()) == attempt;
    let text = progress_counts(view.updates.iter().rfind(own)?, &clock::wire(now));
    (!text.is_empty()).then_some(text)
}

fn node_state(step: &GraphStep, mark: Mark, now: Millis) -> NodeState {
    let started = clock::parse(&step.started_at);
    let finished = match &step.finished_at {
        Some(text) => clock::parse(text),
        None => Some(now),
    };
    NodeState {
        mark,
        attempts: step.attempts,
        time: started
            .zip(finished)
            .map_or_else(String::new, |(from, to)| clock::duration(to - from)),
        detail: step
            .status_detail
            .as_deref()
            .map_or_else(String::new, |text| clean(text).into_owned()),
    }
}

fn take(graph: &Graph, overlay: &mut Overlay, transitions: &[TakenTransition]) {
    for transition in transitions {
        let ends = graph.node(&transition.from).zip(graph.node(&transition.to));
        if let Some(edge) = ends.and_then(|(from, to)| graph.edge(from, to)) {
            overlay.taken[edge] = transition.count;
        }
    }
}

/// The state after step `cursor`, from a page of steps that holds it: the page's graph covers all its steps, so what came
/// after the cursor is taken back. Of a node whose newest attempt at the cursor is older than the page only the number of
/// attempts is known; it is shown as completed, since a run goes on only from there.
#[must_use]
pub fn at_step(graph: &Graph, page: &RunPage, steps: &[StepView], cursor: u64) -> Overlay {
    let mut overlay = Overlay::idle(graph);
    let here = usize::try_from(cursor.saturating_sub(page.start)).unwrap_or(usize::MAX);
    let split = here.saturating_add(1).min(steps.len());
    let (shown, later) = steps.split_at(split);
    for step in page.graph_steps.iter().flatten() {
        let Some(node) = graph.node(&step.node_id) else {
            continue;
        };
        let undone = later.iter().filter(|later| later.step.node_id == step.node_id).count() as u32;
        let attempts = step.attempts.saturating_sub(undone);
        if attempts == 0 {
            continue;
        }
        let state = &mut overlay.nodes[node];
        *state = if undone == 0 && step.step_index.is_none_or(|index| index <= cursor) {
            node_state(step, step.outcome.map_or(Mark::Running, outcome_mark), 0)
        } else {
            NodeState {
                mark: Mark::Ok,
                ..NodeState::default()
            }
        };
        state.attempts = attempts;
    }
    for step in shown {
        if let Some(node) = graph.node(&step.step.node_id) {
            let state = &mut overlay.nodes[node];
            state.mark = outcome_mark(step.step.outcome);
            state.time = step_duration(step).map_or_else(String::new, clock::duration);
            state.detail = step
                .step
                .status_detail
                .as_deref()
                .map_or_else(String::new, |text| clean(text).into_owned());
            state.attempts = state.attempts.max(1);
        }
    }
    take(
        graph,
        &mut overlay,
        page.taken_transitions.as_deref().unwrap_or_default(),
    );
    for pair in steps[split.saturating_sub(1)..].windows(2) {
        let ends = graph.node(&pair[0].step.node_id).zip(graph.node(&pair[1].step.node_id));
        if let Some(edge) = ends.and_then(|(from, to)| graph.edge(from, to)) {
            overlay.taken[edge] = overlay.taken[edge].saturating_sub(1);
        }
    }
    if let [.., before, last] = shown {
        let ends = graph.node(&before.step.node_id).zip(graph.node(&last.step.node_id));
        overlay.active_edge = ends.and_then(|(from, to)| graph.edge(from, to));
    }
    overlay
}

/// Marks what was at work at a past moment between two steps; none when nothing was.
pub fn replayed(graph: &Graph, overlay: &mut Overlay, before: Option<usize>, node: Option<usize>) {
    let Some(node) = node.filter(|node| Some(*node) != before || overlay.nodes[*node].mark == Mark::Idle) else {
        return;
    };
    overlay.nodes[node].mark = Mark::Replay;
    overlay.active_edge = before.and_then(|before| graph.edge(before, node));
}

/// Wall time of a step.
#[must_use]
pub fn step_duration(step: &StepView) -> Option<Millis> {
    Some(clock::parse(&step.step.finished_at)? - clock::parse(&step.step.started_at)?)
}
