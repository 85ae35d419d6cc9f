//! The Info tab: identity, source, progress, input, output and error of a run.

use piw_protocol::run::{ProgressEstimate, SourceRef, StoredUpdate};
use piw_protocol::view::RunView;
use ratatui::style::Style;
use ratatui::text::Span;
use serde_json::Value;

use super::rows::{Rows, Whole};
use crate::question::Question;
use crate::text::{clean, counted, fit};
use crate::viewer::clock;
use crate::viewer::popup::review;
use crate::viewer::theme::Mark;

/// Key of the request of a checkpoint.
const QUESTION: &str = "question";
/// Effects that a plain frame shows at most.
const STILL_REVIEW: usize = 2;
/// Rows that a question takes at most in a plain frame, which shows other facts below.
const STILL_QUESTION: usize = 12;

/// Adds everything known of the run; what it waits for comes first.
pub fn build(rows: &mut Rows<'_>, now: clock::Millis) {
    let Some(view) = rows.run.view.clone() else {
        rows.push(
            vec![Span::styled("Nothing is known of this run yet.", rows.theme.muted())],
            None,
        );
        return;
    };
    review(rows, &view);
    question(rows, &view);
    facts(rows, &view, now);
    progress(rows, &view, now);
    if let Some(error) = &view.state.error {
        rows.heading("Error");
        let from = rows.rows.len();
        rows.text(0, &error.message, rows.theme.error());
        rows.stands_for(from, "error", || Whole::Text(error.message.clone()));
        if let Some(stack) = &error.stack {
            rows.lines(0, "error/stack", "stack", stack);
        }
    }
    if let Some(output) = &view.state.final_output {
        rows.heading("Output");
        rows.value(0, "output", "", output);
    }
    rows.heading("Input");
    rows.value(0, "input", "", &view.state.input);
    let others: Vec<&StoredUpdate> = view
        .updates
        .iter()
        .filter(|update| update.update.update_type != "progress")
        .collect();
    if !others.is_empty() {
        rows.heading("Updates");
        for update in others {
            let name = format!("{} {}", update.update.update_type, update.update.key);
            rows.json(0, &format!("update/{name}"), &name, &update.update.data, 1);
        }
    }
    if let Some(session) = &view.session {
        rows.heading("Session");
        super::conversation::capture(rows, session);
    }
    sources(rows, &view);
}

fn facts(rows: &mut Rows<'_>, view: &RunView, now: clock::Millis) {
    let theme = rows.theme;
    let text = Style::new().fg(theme.palette.text);
    let mark = Mark::of(view.display.status);
    rows.fact(
        "status",
        &format!("{} {}", theme.glyph(mark), mark.word()),
        theme.status(mark),
    );
    if let Some(reason) = &view.display.reason {
        rows.fact("reason", reason, theme.warning());
    }
    if let Some(class) = &view.state.failure_class {
        rows.fact("failure", class, theme.warning());
    }
    if view.possibly_interrupted {
        rows.fact(
            "note",
            "possibly interrupted: it counts as running, but nothing works on it",
            theme.warning(),
        );
    }
    if let Some(title) = &view.state.run_title {
        rows.fact("title", title, text);
    }
    rows.fact("workflow", &view.state.workflow_name, text);
    rows.fact("run", &view.run_id, text);
    if let Some(parent) = &view.state.parent_run_id {
        let carried = view.state.carried_step_count.unwrap_or(0);
        rows.fact("continues", &format!("{parent} ({})", counted(carried, "step")), text);
    }
    rows.fact(
        "started",
        &format!("{} UTC", clock::date_time(&view.state.started_at)),
        text,
    );
    if let Some(finished) = &view.state.finished_at {
        rows.fact("finished", &format!("{} UTC", clock::date_time(finished)), text);
    }
    if let Some(elapsed) = elapsed(view, now) {
        rows.fact("elapsed", &clock::duration(elapsed), text);
    }
    let mut steps = view.step_total.to_string();
    if let Some(graph) = &rows.run.graph {
        steps.push_str(&format!(" · {}", counted(graph.nodes.len() as u64, "node")));
    }
    rows.fact("steps", &steps, text);
    rows.fact("mode", &view.queue.execution_mode, theme.subtext());
    rows.fact(
        "revision",
        &format!("{} · view {}", view.run_revision, view.revision),
        theme.subtext(),
    );
}

/// What may have happened, for a person to settle.
fn review(rows: &mut Rows<'_>, view: &RunView) {
    let Some(review) = &view.review else { return };
    let theme = rows.theme;
    rows.heading("May or may not have happened");
    let shown = if rows.still { STILL_REVIEW } else { review.effects.len() };
    for effect in review.effects.iter().take(shown) {
        for (index, line) in review::describe(effect).into_iter().enumerate() {
            let style = if index == 0 {
                theme.status(Mark::Ambiguous)
            } else {
                theme.subtext()
            };
            rows.text(2 * usize::from(index > 0), &line, style);
        }
    }
    let more = review.total.saturating_sub(shown as u64);
    if more > 0 {
        rows.push(vec![Span::styled(format!("… {more} more"), theme.muted())], None);
    }
    let how = if rows.still {
        "review it: piw effects list"
    } else {
        "e reviews it"
    };
    rows.push(vec![Span::styled(how, theme.muted())], None);
    rows.gap();
}

/// What the run waits for an answer to.
fn question(rows: &mut Rows<'_>, view: &RunView) {
    let Some(question) = Question::of(view).map(|question| rows.run.filled(question)) else {
        return;
    };
    if question.summary.is_none() && question.request.is_none() {
        return;
    }
    rows.heading("Waits for an answer");
    if let Some(summary) = &question.summary {
        rows.text(0, summary, Style::new().fg(rows.theme.palette.text));
    }
    if let Some(request) = &question.request {
        rows.value(0, QUESTION, "request", request);
    }
    if rows.still && rows.rows.len() > STILL_QUESTION {
        rows.rows.truncate(STILL_QUESTION);
        rows.push(vec![Span::styled("… the rest is not shown", rows.theme.muted())], None);
    }
    rows.gap();
}

/// Time from start to end, or to now.
#[must_use]
pub fn elapsed(view: &RunView, now: clock::Millis) -> Option<clock::Millis> {
    let from = clock::parse(&view.state.started_at)?;
    let to = view.state.finished_at.as_deref().map_or(Some(now), clock::parse)?;
    Some((to - from).max(0))
}

fn progress(rows: &mut Rows<'_>, view: &RunView, now: clock::Millis) {
    let tracks: Vec<&StoredUpdate> = view
        .updates
        .iter()
        .filter(|update| update.update.update_type == "progress")
        .collect();
    if tracks.is_empty() {
        return;
    }
    rows.heading("Progress");
    for track in tracks {
        // Of an attempt that has ended only the last counts are of interest: nothing of it goes on.
        let goes_on = view.state.finished_at.is_none()
            && view.state.current_attempt_id.as_deref() == Some(track.attempt_id.as_str());
        let data = &track.update.data;
        let field = |name: &str| data.get(name).and_then(Value::as_str).map(clean);
        let label = field("label").unwrap_or_else(|| clean(&track.update.key));
        let phase = field("phase").map_or_else(String::new, |phase| format!(" · {phase}"));
        let status = field("status").filter(|status| goes_on || status != "running");
        let status = status.map_or_else(String::new, |status| format!(" · {status}"));
        let style = Style::new().fg(rows.theme.palette.text);
        rows.push(vec![Span::styled(format!("{label}{phase}{status}"), style)], None);
        if let Some(spans) = bar(rows, data) {
            rows.push(spans, None);
        }
        if goes_on {
            let unit = field("unit").unwrap_or_default();
            let rate = track.rate.map(|rate| crate::text::rate(rate, &unit));
            let estimate = track.estimate.as_ref().map(|estimate| describe(estimate, now));
            let line = [rate, estimate].into_iter().flatten().collect::<Vec<_>>().join(" · ");
            if !line.is_empty() {
                rows.text(2, &line, rows.theme.muted());
            }
        }
    }
}

/// A bar with the counts, when there are counts.
#[must_use]
pub fn bar(rows: &Rows<'_>, data: &Value) -> Option<Vec<Span<'static>>> {
    let completed = data.get("completed").and_then(Value::as_f64)?;
    let unit = data
        .get("unit")
        .and_then(Value::as_str)
        .map_or_else(String::new, |unit| format!(" {}", clean(unit)));
    let theme = rows.theme;
    let Some(total) = data.get("total").and_then(Value::as_f64).filter(|total| *total > 0.0) else {
        return Some(vec![Span::styled(format!("  {completed}{unit}"), theme.subtext())]);
    };
    let columns = rows.columns.saturating_sub(28).clamp(8, 40);
    let done = ((completed / total).clamp(0.0, 1.0) * columns as f64).round() as usize;
    let (full, empty) = if theme.ascii { ("#", ".") } else { ("━", "─") };
    Some(vec![
        Span::styled(full.repeat(done), theme.path()),
        Span::styled(empty.repeat(columns - done), theme.faint()),
        Span::styled(
            format!(" {:.0} % · {completed}/{total}{unit}", completed / total * 100.0),
            theme.subtext(),
        ),
    ])
}

/// One sentence on when a track is expected to end.
#[must_use]
pub fn describe(estimate: &ProgressEstimate, now: clock::Millis) -> String {
    match estimate {
        ProgressEstimate::Unavailable { reason } => format!("ETA unavailable: {reason}"),
        ProgressEstimate::Available {
            finish_at,
            earliest_at,
            latest_at,
            confidence,
            intervals,
            ..
        } => {
            let left = |text: &str| clock::parse(text).map_or_else(|| "?".into(), |at| clock::duration(at - now));
            let range = match (earliest_at, latest_at) {
                (Some(first), Some(last)) => format!(" ({} – {})", left(first), left(last)),
                _ => String::new(),
            };
            let confidence = format!("{confidence:?}").to_lowercase();
            let source = if *intervals == 0 {
                "reported".into()
            } else {
                counted(u64::from(*intervals), "interval")
            };
            format!("ends in {}{range} · {confidence} confidence, {source}", left(finish_at))
        }
    }
}

fn sources(rows: &mut Rows<'_>, view: &RunView) {
    let theme = rows.theme;
    rows.heading("Source");
    let show = |rows: &mut Rows<'_>, name: &str, source: &SourceRef| match source {
        SourceRef::File { path, hash } => {
            rows.fact(name, path, theme.subtext());
            rows.fact("", &format!("sha256 {}", fit(hash, 16)), theme.muted());
        }
        SourceRef::Builtin { id, revision } => {
            rows.fact(name, &format!("built-in {id}"), theme.subtext());
            rows.fact("", &format!("revision {}", fit(revision, 16)), theme.muted());
        }
    };
    show(rows, "root", &view.state.workflow_source);
    for mounted in view.state.workflow_sources.iter().flat_map(|map| &map.mounted) {
        show(rows, &fit(&clean(&mounted.mount), 11), &mounted.source);
    }
    if let Some(digest) = &view.state.definition_digest {
        rows.fact("definition", &fit(digest, 24), theme.muted());
    }
}
