//! The Trace tab: what the server recorded, event by event, payloads as foldable trees.

use piw_protocol::view::TraceEvent;
use ratatui::style::Style;
use ratatui::text::Span;

use super::rows::{Action, Rows, Whole};
use crate::text::{clean, fit, pad};
use crate::viewer::action;
use crate::viewer::clock;
use crate::viewer::run::trace::{Scope, Shown, Subject};

/// Adds the events of the chosen scope.
pub fn build(rows: &mut Rows<'_>, scope: Scope) {
    let run = rows.run;
    scopes(rows, scope);
    let shown = run.trace.shown(run.view.as_deref());
    head(rows, &shown);
    for event in shown.events {
        row(rows, event);
    }
}

/// The scopes, the chosen one marked; Enter or a click goes to the next one.
fn scopes(rows: &mut Rows<'_>, chosen: Scope) {
    let theme = rows.theme;
    let key = rows
        .hints
        .scope()
        .map(|key| Span::styled(format!("{key} "), theme.key()));
    let mut spans = Vec::from_iter(key);
    for scope in Scope::ALL {
        let (mark, style) = match (scope == chosen, theme.ascii) {
            (true, false) => ("● ", theme.accent()),
            (true, true) => ("* ", theme.accent()),
            (false, _) => ("  ", theme.muted()),
        };
        spans.push(Span::styled(format!("{mark}{}  ", scope.name()), style));
    }
    rows.push(spans, Some(Action::Act(action::Action::TraceScope)));
}

/// What is shown, and how much of it.
fn head(rows: &mut Rows<'_>, shown: &Shown<'_>) {
    let state = rows.run.view.as_ref().map(|view| &view.state);
    let about = match shown.subject {
        Subject::Run | Subject::NoAttempt => String::new(),
        Subject::Prefix(0) => "before the first step ended: ".to_owned(),
        Subject::Prefix(steps) => format!("up to step {steps}: "),
        Subject::Attempt(attempt) => {
            let node = clean(&attempt.node);
            match attempt.step {
                Some(step) => format!("step {}, {node}: ", step + 1),
                None => format!("{node}, unfinished: "),
            }
        }
    };
    let last = shown.start + shown.events.len() as u64;
    let text = match (shown.events.is_empty(), shown.loading) {
        (false, _) => {
            let all = match shown.end {
                Some(end) if end > last || shown.start > 0 || last > 1 => format!(" of {end}"),
                _ => String::new(),
            };
            let range = if shown.start + 1 == last {
                format!("event {last}")
            } else {
                format!("events {} – {last}", shown.start + 1)
            };
            let pages = rows.hints.pages(shown.start, last, shown.end.unwrap_or(last));
            format!("{about}{range}{all}{pages}")
        }
        (true, true) => format!("{about}loading"),
        (true, false) if *shown.subject == Subject::NoAttempt => "No attempt is selected.".to_owned(),
        (true, false) if *shown.subject == Subject::Run => "Nothing is recorded yet.".to_owned(),
        (true, false) => match state.and_then(|state| state.parent_run_id.as_deref()) {
            Some(parent) => format!(
                "{about}nothing here; run {}, which this one continues, may have it",
                clean(parent)
            ),
            None => format!("{about}nothing is recorded"),
        },
    };
    rows.push(vec![Span::styled(text, rows.theme.muted())], None);
}

fn row(rows: &mut Rows<'_>, event: &TraceEvent) {
    let theme = rows.theme;
    let key = format!("trace/{}", event.seq);
    let open = rows.is_open(&key, false);
    let arrow = match (open, theme.ascii) {
        (true, false) => "▾",
        (false, false) => "▸",
        (true, true) => "-",
        (false, true) => "+",
    };
    let kind = format!("{}", clean(&event.event_type));
    let node = event
        .node_id
        .as_deref()
        .map_or_else(String::new, |node| clean(node).into_owned());
    let color = match event.scope.as_str() {
        "run" => theme.palette.mauve,
        "node" => theme.palette.blue,
        "effect" => theme.palette.peach,
        "command" => theme.palette.teal,
        _ => theme.palette.subtext,
    };
    let room = rows.columns.saturating_sub(8 + 14 + 24);
    let spans = vec![
        Span::styled(format!("{arrow}{:>6} ", event.seq), theme.muted()),
        Span::styled(
            format!("{} ", fit(&clean(clock::time_of_day(&event.at)), 12)),
            theme.subtext(),
        ),
        Span::styled(pad(&kind, 24), Style::new().fg(color)),
        Span::styled(fit(&node, room).into_owned(), Style::new().fg(theme.palette.text)),
    ];
    let from = rows.rows.len();
    rows.push(spans, Some(Action::Toggle(key.clone())));
    if open {
        // The payload as a whole, or a field of it, may be content.
        rows.wire = Some(1);
        rows.json(8, &format!("{key}/payload"), "payload", &event.payload, 0);
        rows.wire = None;
    }
    rows.stands_for(from, &format!("event {}", event.seq), || {
        Whole::Json(serde_json::to_value(event).unwrap_or_default())
    });
}
