//! The Steps tab: one row a step, open ones with prompt, output, error, receipt and timing.

use piw_protocol::run::ActionReceipt;
use piw_protocol::view::{ArtifactRef, StepView, ViewValue};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use serde_json::Value;

use super::rows::{Action, Rows, Whole};
use crate::text::{clean, counted, fit, pad};
use crate::viewer::clock;
use crate::viewer::graph::model::Kind;
use crate::viewer::message::Content;
use crate::viewer::run::Loaded;
use crate::viewer::run::overlay::{outcome_mark, step_duration};
use crate::viewer::theme::Mark;

/// Key of a step's toggle.
#[must_use]
pub fn key(index: u64) -> String {
    format!("step/{index}")
}

/// Adds all known steps around the shown position, and what runs now.
pub fn build(rows: &mut Rows<'_>, now: clock::Millis) {
    let run = rows.run;
    let (start, steps) = run.steps();
    if start > 0 {
        let text = format!("  {}{}", counted(start, "earlier step"), rows.hints.goes_back());
        rows.push(
            vec![Span::styled(text, rows.theme.muted())],
            Some(Action::Seek(start - 1)),
        );
    }
    for (index, step) in (start..).zip(steps) {
        rows.step = Some(index);
        let from = rows.rows.len();
        step_rows(rows, index, step);
        rows.stands_for(from, &format!("step {}", index + 1), || whole(step));
    }
    rows.step = None;
    let total = run.step_total();
    let end = start + steps.len() as u64;
    if end < total {
        let text = format!("  {}; ] or > goes on", counted(total - end, "later step"));
        rows.push(vec![Span::styled(text, rows.theme.muted())], Some(Action::Seek(end)));
    } else if run.cursor.is_none() {
        current(rows, total, now);
    }
    if rows.rows.is_empty() {
        rows.push(vec![Span::styled("No step has ended yet.", rows.theme.muted())], None);
    }
}

/// A step with everything that the view has of it.
#[must_use]
pub fn whole(step: &StepView) -> Whole {
    Whole::Json(serde_json::to_value(step).unwrap_or_default())
}

fn current(rows: &mut Rows<'_>, total: u64, now: clock::Millis) {
    let Some(view) = &rows.run.view else { return };
    let state = &view.state;
    let Some(node) = &state.current_node else { return };
    let mark = rows
        .run
        .graph
        .as_ref()
        .and_then(|graph| graph.node(node))
        .and_then(|node| rows.run.overlay.nodes.get(node).map(|state| state.mark));
    let mark = mark.unwrap_or(Mark::Running);
    let since = state.current_node_started_at.as_deref().and_then(clock::parse);
    let time = since.map_or_else(String::new, |since| clock::duration(now - since));
    row(
        rows,
        total,
        mark,
        node,
        &time,
        state.status_detail.as_deref().unwrap_or(mark.word()),
        None,
    );
}

fn row(rows: &mut Rows<'_>, index: u64, mark: Mark, node: &str, time: &str, detail: &str, action: Option<Action>) {
    let theme = rows.theme;
    let open = matches!(&action, Some(Action::Toggle(key)) if rows.is_open(key, false));
    let arrow = match (action.is_some(), open, theme.ascii) {
        (false, ..) => " ",
        (_, true, false) => "▾",
        (_, false, false) => "▸",
        (_, true, true) => "-",
        (_, false, true) => "+",
    };
    let here = rows.run.shown_step() == Some(index);
    let name_room = name_room(rows);
    let name = Style::new().fg(theme.palette.text).add_modifier(if here {
        Modifier::BOLD | Modifier::UNDERLINED
    } else {
        Modifier::BOLD
    });
    let room = rows.columns.saturating_sub(17 + name_room + 2);
    let spans = vec![
        Span::styled(format!("{arrow}{:>4} ", index + 1), theme.muted()),
        Span::styled(format!("{} ", theme.glyph(mark)), theme.status(mark)),
        Span::styled(pad(&clean(node), name_room), name),
        Span::styled(format!(" {time:>7} "), theme.subtext()),
        Span::styled(fit(&clean(detail), room).into_owned(), theme.muted()),
    ];
    rows.push(spans, action);
}

/// Columns for node names: what the shown ones need, at most half of the row.
fn name_room(rows: &Rows<'_>) -> usize {
    let (_, steps) = rows.run.steps();
    let current = rows
        .run
        .view
        .as_ref()
        .and_then(|view| view.state.current_node.as_deref());
    let names = steps.iter().map(|step| step.step.node_id.as_str()).chain(current);
    names
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .clamp(8, (rows.columns / 2).clamp(12, 40))
}

fn step_rows<'a>(rows: &mut Rows<'a>, index: u64, view: &'a StepView) {
    let step = &view.step;
    let key = key(index);
    let time = step_duration(view).map_or_else(String::new, clock::duration);
    let detail = match (&step.error, &step.status_detail) {
        (Some(error), _) => error.message.lines().next().unwrap_or_default(),
        (None, Some(detail)) => detail,
        (None, None) => "",
    };
    row(
        rows,
        index,
        outcome_mark(step.outcome),
        &step.node_id,
        &time,
        detail,
        Some(Action::Toggle(key.clone())),
    );
    if rows.is_open(&key, false) {
        details(rows, &key, view);
        comparison(rows, 6, &key, index, view);
    }
}

fn details<'a>(rows: &mut Rows<'a>, key: &str, view: &'a StepView) {
    const INDENT: usize = 6;
    let step = &view.step;
    let theme = rows.theme;
    let from = clock::time_of_day(&step.started_at).to_owned();
    let to = clock::time_of_day(&step.finished_at).to_owned();
    let kind = rows
        .run
        .graph
        .as_ref()
        .and_then(|graph| graph.node(&step.node_id).map(|node| graph.nodes[node].kind));
    let kind = kind.unwrap_or_else(|| Kind::of(step.node_type, None)).word();
    let visit = step.visit.map_or_else(String::new, |visit| format!(" · visit {visit}"));
    let head = format!(
        "{}{kind}{visit} · {} – {} UTC{}",
        " ".repeat(INDENT + 2),
        clean(&from),
        clean(&to),
        worked(view)
    );
    rows.push(vec![Span::styled(head, theme.muted())], None);
    if let Some(error) = &step.error {
        let code = error
            .code
            .as_deref()
            .map_or_else(String::new, |code| format!("{}: ", clean(code)));
        let text = Captured::new(rows, view, "/error/message", &error.message);
        let from = rows.rows.len();
        rows.text(INDENT + 2, &format!("{code}{}", text.here), theme.error());
        rows.stands_for(from, "error", || text.whole());
        if let Some(stack) = &error.stack {
            let text = Captured::new(rows, view, "/error/stack", stack);
            text.show(rows, INDENT, &format!("{key}/stack"), "stack", "stack");
        }
    }
    if let Some(action) = &step.action {
        receipt(rows, INDENT, key, view, action);
    }
    if let Some(content) = &view.result_content {
        let from = rows.rows.len();
        let _ = rows.fetched(INDENT + 2, "whole texts", &content.artifact);
        rows.stands_for(from, "result", || Whole::Fetched(content.artifact.clone(), None));
    }
    for (name, value) in [("prompt", view.prompt()), ("output", view.output())] {
        if value != ViewValue::Inline(Value::Null) {
            rows.value(INDENT, &format!("{key}/{name}"), name, &value);
        }
    }
    match &step.assistant_message {
        // A model writes Markdown, however short.
        Some(Value::String(text)) => {
            let head = vec![
                Span::raw(" ".repeat(INDENT)),
                Span::styled("  reply", rows.theme.label()),
            ];
            let from = rows.rows.len();
            rows.push(head, None);
            rows.markdown(INDENT + 4, &format!("{key}/reply"), text);
            rows.stands_for(from, "reply", || Whole::Text(text.clone()));
        }
        Some(value) => rows.json(INDENT, &format!("{key}/reply"), "reply", value, 0),
        None => {}
    }
    if let Some(value) = &step.conversation {
        rows.json(INDENT, &format!("{key}/conversation"), "conversation", value, 0);
    }
}

/// How long an attempt worked, where that is not all of its time.
fn worked(view: &StepView) -> String {
    let active = view
        .step
        .active_ms
        .and_then(|active| clock::Millis::try_from(active).ok());
    match active.zip(step_duration(view)) {
        Some((active, all)) if all - active > all / 20 => {
            format!(" · worked {} of {}", clock::duration(active), clock::duration(all))
        }
        _ => String::new(),
    }
}

/// Offers the comparison with the attempt of the same node before this one.
fn comparison(rows: &mut Rows<'_>, indent: usize, key: &str, index: u64, view: &StepView) {
    let run = rows.run;
    let (start, steps) = run.steps();
    let known = usize::try_from(index.saturating_sub(start))
        .unwrap_or(0)
        .min(steps.len());
    let Some(at) = steps[..known]
        .iter()
        .rposition(|earlier| earlier.step.node_id == view.step.node_id)
    else {
        return;
    };
    let key = format!("{key}/diff");
    let open = rows.is_open(&key, false);
    let arrow = match (open, rows.theme.ascii) {
        (true, false) => "▾",
        (false, false) => "▸",
        (true, true) => "-",
        (false, true) => "+",
    };
    let text = format!(
        "{}{arrow} compare with step {}",
        " ".repeat(indent),
        start + at as u64 + 1
    );
    rows.push(vec![Span::styled(text, rows.theme.key())], Some(Action::Toggle(key)));
    if open {
        super::diff::build(rows, indent + 2, &steps[at], view);
    }
}

/// A text of a step. Long ones come shortened, with a reference to the whole; once that is fetched and verified it is shown.
struct Captured<'a> {
    here: &'a str,
    elsewhere: Option<(&'a ArtifactRef, &'static str)>,
    /// Whether the whole is here and nothing of it was lost when it was recorded.
    complete: bool,
}

impl<'a> Captured<'a> {
    fn new(rows: &Rows<'a>, view: &'a StepView, pointer: &'static str, short: &'a str) -> Self {
        let reference = view.result_content.as_ref().map(|content| &content.artifact);
        let loaded = reference.and_then(|reference| rows.run.contents.get(&reference.sha256));
        let recorded = match loaded {
            Some(Loaded::Ready(Content::Json(value))) => Some(value),
            _ => None,
        };
        let whole = recorded.and_then(|value| value.pointer(pointer)?.as_str());
        let lost = recorded.and_then(|value| value.pointer(&format!("{pointer}Truncated"))?.as_bool());
        Self {
            complete: whole.is_some() && lost != Some(true),
            here: whole.unwrap_or(short),
            elsewhere: reference
                .filter(|_| whole.is_none())
                .map(|reference| (reference, pointer)),
        }
    }

    fn whole(&self) -> Whole {
        match self.elsewhere {
            Some((reference, pointer)) => Whole::Fetched(reference.clone(), Some(pointer)),
            None => Whole::Text(self.here.to_owned()),
        }
    }

    fn show(&self, rows: &mut Rows<'_>, indent: usize, key: &str, name: &str, label: &str) {
        let picked = rows.picked.take();
        let from = rows.rows.len();
        rows.lines(indent, key, label, self.here);
        // The whole is what somebody wants who opens a part.
        if let Some((reference, _)) = self.elsewhere
            && !rows.is_open(key, false)
            && let Some(Action::Toggle(key)) = &rows.rows[from].action
        {
            rows.rows[from].action = Some(Action::OpenWhole(key.clone(), reference.clone()));
        }
        rows.picked = picked;
        rows.stands_for(from, name, || self.whole());
    }
}

fn receipt<'a>(rows: &mut Rows<'a>, indent: usize, key: &str, view: &'a StepView, action: &'a ActionReceipt) {
    let theme = rows.theme;
    if let Some(command) = &action.command {
        let mut text = format!("$ {command}");
        for argument in action.args.iter().flatten() {
            text.push(' ');
            text.push_str(argument);
        }
        rows.text(indent + 2, &text, Style::new().fg(theme.palette.text));
    }
    let mut facts = Vec::new();
    if let Some(code) = action.exit_code {
        facts.push(format!("exit code {code}"));
    }
    if let Some(signal) = &action.signal {
        facts.push(format!("signal {signal}"));
    }
    if let Some(millis) = action.duration_ms {
        facts.push(clock::duration(i64::try_from(millis).unwrap_or(i64::MAX)));
    }
    if let Some(cwd) = &action.cwd {
        facts.push(format!("in {cwd}"));
    }
    if !facts.is_empty() {
        rows.text(indent + 2, &facts.join(" · "), theme.muted());
    }
    for (name, pointer, text, cut) in [
        ("stdout", "/action/stdout", &action.stdout, action.stdout_truncated),
        ("stderr", "/action/stderr", &action.stderr, action.stderr_truncated),
    ] {
        let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else {
            continue;
        };
        let text = Captured::new(rows, view, pointer, text);
        let label = match (cut && !text.complete, &text.elsewhere) {
            (false, _) => name.to_owned(),
            (true, None) => format!("{name} (cut)"),
            (true, Some(_)) => format!("{name} (cut, {})", rows.hints.loads("all of it")),
        };
        text.show(rows, indent, &format!("{key}/{name}"), name, &label);
    }
}
