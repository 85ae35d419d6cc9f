//! A run view as lines: one for each visited node, in definition order of first visit. Pure.

use piw_protocol::definition::{ActionExecution, DefinitionSnapshot, NodeType};
use piw_protocol::run::{DisplayStatus, EstimateConfidence, NodeOutcome, ProgressEstimate, StoredUpdate};
use piw_protocol::view::{GraphStep, RunView};
use serde_json::Value;

use super::{between, elapsed};
use crate::text;

/// How a line is emphasised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    Plain,
    /// Working now.
    Active,
    /// Ended well.
    Good,
    /// Ended badly.
    Bad,
    /// Needs a person.
    Attention,
}

/// One line of the display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Status glyph.
    pub glyph: char,
    /// Emphasis of glyph and name.
    pub tone: Tone,
    /// Kind glyph of the node.
    pub kind: char,
    /// Qualified node id, sanitised.
    pub name: String,
    /// Time of the newest attempt.
    pub time: String,
    /// `↻n` from the second attempt on.
    pub attempts: String,
    /// Detail, progress or error, sanitised.
    pub detail: String,
}

/// Glyph of a kind of node.
#[must_use]
pub fn kind_glyph(definition: &DefinitionSnapshot, node: &str) -> char {
    let Some(node) = definition.nodes.get(node) else {
        return ' ';
    };
    match (node.node_type, node.action_execution) {
        (NodeType::Agent, _) => '●',
        (NodeType::Compute, _) => 'ƒ',
        (NodeType::Notify, _) => '!',
        (NodeType::Action, Some(ActionExecution::Shell)) => '$',
        (NodeType::Action, _) => '*',
        (NodeType::Checkpoint, _) => '◆',
    }
}

/// Glyph and tone of a display status.
#[must_use]
pub fn status_mark(status: DisplayStatus) -> (char, Tone) {
    match status {
        DisplayStatus::Queued => ('◌', Tone::Plain),
        DisplayStatus::Running => ('◉', Tone::Active),
        DisplayStatus::Waiting => ('◇', Tone::Attention),
        DisplayStatus::Paused => ('‖', Tone::Attention),
        DisplayStatus::Completed => ('✓', Tone::Good),
        DisplayStatus::Failed => ('✗', Tone::Bad),
        DisplayStatus::TimedOut => ('◔', Tone::Bad),
        DisplayStatus::Cancelled => ('⊘', Tone::Bad),
        DisplayStatus::Ambiguous => ('≈', Tone::Attention),
    }
}

/// Name of a display status.
#[must_use]
pub fn status_name(status: DisplayStatus) -> &'static str {
    match status {
        DisplayStatus::Queued => "queued",
        DisplayStatus::Running => "running",
        DisplayStatus::Waiting => "waiting",
        DisplayStatus::Paused => "paused",
        DisplayStatus::Completed => "completed",
        DisplayStatus::Failed => "failed",
        DisplayStatus::TimedOut => "timed out",
        DisplayStatus::Cancelled => "cancelled",
        DisplayStatus::Ambiguous => "ambiguous",
    }
}

/// How a node's newest attempt is shown: the one place that every renderer asks. An effect that waits for a review marks its node
/// while the run has not ended; an unfinished attempt looks as its run does.
#[must_use]
pub fn node_status(view: &RunView, node: &str, outcome: Option<NodeOutcome>) -> DisplayStatus {
    let status = view.display.status;
    let ended = matches!(
        status,
        DisplayStatus::Completed | DisplayStatus::Failed | DisplayStatus::TimedOut | DisplayStatus::Cancelled
    );
    let works = outcome.is_none() && matches!(status, DisplayStatus::Queued | DisplayStatus::Running);
    if !ended && !works && waits_for_review(view, node) {
        return DisplayStatus::Ambiguous;
    }
    let waits = view.state.waiting_on.as_deref() == Some(node);
    match (outcome, status) {
        (_, DisplayStatus::Waiting | DisplayStatus::Paused) if waits => status,
        (Some(outcome), _) => outcome_status(outcome),
        (None, DisplayStatus::Queued) => DisplayStatus::Running,
        // Another node's effect keeps it; after the review it is its turn again.
        (None, DisplayStatus::Ambiguous) if view.review.is_some() => DisplayStatus::Queued,
        (None, DisplayStatus::Completed | DisplayStatus::Failed) => DisplayStatus::Cancelled,
        (None, _) => status,
    }
}

fn waits_for_review(view: &RunView, node: &str) -> bool {
    let review = view.review.as_ref();
    review.is_some_and(|review| review.effects.iter().any(|effect| effect.node == node))
}

/// Glyph and tone of an outcome.
#[must_use]
pub fn outcome_mark(outcome: NodeOutcome) -> (char, Tone) {
    status_mark(outcome_status(outcome))
}

const fn outcome_status(outcome: NodeOutcome) -> DisplayStatus {
    match outcome {
        NodeOutcome::Ok => DisplayStatus::Completed,
        NodeOutcome::Failed => DisplayStatus::Failed,
        NodeOutcome::TimedOut => DisplayStatus::TimedOut,
        NodeOutcome::Cancelled => DisplayStatus::Cancelled,
    }
}

/// The lines of a view, one a visited node, ordered by its place in the definition. `now` is RFC 3339.
#[must_use]
pub fn of_view(view: &RunView, definition: &DefinitionSnapshot, now: &str) -> Vec<Line> {
    let mut steps: Vec<&GraphStep> = view.graph_steps.iter().collect();
    let place = |node: &str| {
        definition
            .node_order
            .iter()
            .position(|id| id == node)
            .unwrap_or(usize::MAX)
    };
    steps.sort_by_cached_key(|step| place(&step.node_id));
    steps
        .into_iter()
        .map(|step| line(view, definition, step, now))
        .collect()
}

fn line(view: &RunView, definition: &DefinitionSnapshot, step: &GraphStep, now: &str) -> Line {
    let (glyph, tone) = status_mark(node_status(view, &step.node_id, step.outcome));
    let active = step.outcome.is_none() && view.live;
    let end = match (&step.finished_at, active) {
        (Some(finished), _) => finished.as_str(),
        (None, true) => now,
        (None, false) => view.state.updated_at.as_str(),
    };
    Line {
        glyph,
        tone,
        kind: kind_glyph(definition, &step.node_id),
        name: text::clean(&step.node_id).into_owned(),
        time: elapsed(between(&step.started_at, end)),
        attempts: if step.attempts > 1 {
            format!("↻{}", step.attempts)
        } else {
            String::new()
        },
        detail: text::clean(&detail(view, definition, step, now)).into_owned(),
    }
}

fn detail(view: &RunView, definition: &DefinitionSnapshot, step: &GraphStep, now: &str) -> String {
    if let Some(error) = error_of(view, step) {
        return error;
    }
    let progress = view.updates.iter().rfind(|update| {
        update.update.update_type == "progress" && update.node_id == step.node_id && step.outcome.is_none()
    });
    if let Some(update) = progress {
        return progress_text(update, now);
    }
    let declared = definition
        .nodes
        .get(&step.node_id)
        .and_then(|node| node.status_detail.clone());
    step.status_detail.clone().or(declared).unwrap_or_default()
}

fn error_of(view: &RunView, step: &GraphStep) -> Option<String> {
    let finished = view
        .state
        .steps
        .iter()
        .find(|known| known.step.attempt_id == step.attempt_id)?;
    finished.step.error.as_ref().map(|error| error.message.clone())
}

/// A progress update as one line with its label: `copying · 12/40 files · 3.1 files/s · about 9s left`.
#[must_use]
pub fn progress_text(update: &StoredUpdate, now: &str) -> String {
    let word = |name: &str| update.update.data.get(name).and_then(Value::as_str);
    let counts = progress_counts(update, now);
    let parts = [word("label").or_else(|| word("phase")), Some(counts.as_str())];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(" · ")
}

/// The figures of a progress update: `12/40 files · 3.1 files/s · about 9s left`.
#[must_use]
pub fn progress_counts(update: &StoredUpdate, now: &str) -> String {
    let data = &update.update.data;
    let word = |name: &str| data.get(name).and_then(Value::as_str);
    let unit = word("unit").unwrap_or_default();
    let number = |name: &str| data.get(name).and_then(Value::as_f64);
    let mut parts = Vec::new();
    match (number("completed"), number("total")) {
        (Some(done), Some(total)) => parts.push(format!("{done}/{total} {unit}")),
        (Some(done), None) => parts.push(format!("{done} {unit}")),
        _ => {}
    }
    if let Some(rate) = update.rate {
        parts.push(text::rate(rate, unit));
    }
    if let Some(eta) = eta_text(update.estimate.as_ref(), now) {
        parts.push(eta);
    }
    parts.iter().map(|part| part.trim()).collect::<Vec<_>>().join(" · ")
}

/// `about 9s left`, and whether that is hardly more than a guess; nothing when nobody can say.
fn eta_text(estimate: Option<&ProgressEstimate>, now: &str) -> Option<String> {
    let ProgressEstimate::Available {
        finish_at, confidence, ..
    } = estimate?
    else {
        return None;
    };
    let left = between(now, finish_at);
    let unsure = match confidence {
        EstimateConfidence::Low => " (low confidence)",
        EstimateConfidence::Medium | EstimateConfidence::High => "",
    };
    Some(if left.is_zero() {
        "due now".to_owned()
    } else {
        format!("about {} left{unsure}", elapsed(left))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::viewer::fixtures::{self, RunFixture};

    fn marks(view: &RunView) -> String {
        let lines = of_view(view, &fixtures::release(), &view.state.updated_at);
        let marks: Vec<String> = lines
            .iter()
            .map(|line| format!("{}{}", line.glyph, line.name))
            .collect();
        marks.join(" ")
    }

    fn interrupted(status: &'static str) -> RunView {
        RunFixture {
            visits: "inspect",
            status,
            ..fixtures::running()
        }
        .view()
    }

    #[test]
    fn progress_is_told_with_rate_and_time_left() {
        let mut view = fixtures::running().view();
        let line = |view: &RunView| {
            let lines = of_view(view, &fixtures::release(), "2026-03-01T14:00:00.000Z");
            lines.into_iter().find(|line| line.name == "test").unwrap().detail
        };
        assert_eq!(line(&view), "checks · 12/40 checks");
        view.updates[0].rate = Some(2.5);
        let estimate = serde_json::json!({"kind": "available", "finishAt": "2026-03-01T14:00:11.000Z", "source": "measured",
            "confidence": "medium", "intervals": 5});
        view.updates[0].estimate = serde_json::from_value(estimate).unwrap();
        assert_eq!(line(&view), "checks · 12/40 checks · 2.5 checks/s · about 11s left");
    }

    #[test]
    fn an_unfinished_node_is_marked_as_its_run() {
        let shown = |status| marks(&interrupted(status));
        assert_eq!(shown("running"), "✓inspect ◉test");
        assert_eq!(shown("paused"), "✓inspect ‖test");
        assert_eq!(shown("cancelled"), "✓inspect ⊘test");
        assert_eq!(shown("failed"), "✓inspect ⊘test");
        assert_eq!(shown("ambiguous"), "✓inspect ≈test");
    }

    #[test]
    fn the_node_of_the_effect_is_marked_while_another_runs() {
        let reviewed = |status, node: &str| {
            let mut view = RunFixture {
                visits: "inspect fix:timed_out",
                ..fixtures::running()
            }
            .view();
            view.display.status = status;
            view.review = fixtures::ambiguous().review;
            let effects = &mut view.review.as_mut().unwrap().effects;
            effects.truncate(1);
            effects[0].node = node.to_owned();
            marks(&view)
        };
        assert_eq!(reviewed(DisplayStatus::Running, "fix"), "✓inspect ≈fix ◉test");
        assert_eq!(reviewed(DisplayStatus::Ambiguous, "fix"), "✓inspect ≈fix ◌test");
        assert_eq!(reviewed(DisplayStatus::Ambiguous, "test"), "✓inspect ◔fix ≈test");
        assert_eq!(reviewed(DisplayStatus::Cancelled, "fix"), "✓inspect ◔fix ⊘test");
    }
}
