//! The Trace tab: what the server recorded, event by event, payloads as foldable trees.

use ratatui::style::Style;
use ratatui::text::Span;

use super::rows::{Action, Rows, Whole};
use crate::text::{clean, fit, pad};
use crate::viewer::clock;

/// Adds the loaded events.
pub fn build(rows: &mut Rows<'_>) {
    let theme = rows.theme;
    let (start, total, events) = rows.run.trace();
    let end = start + events.len() as u64;
    if total == 0 {
        rows.push(vec![Span::styled("Nothing is recorded yet.", theme.muted())], None);
        return;
    }
    let text = format!(
        "events {} – {end} of {total}{}",
        start + 1,
        rows.hints.pages(start, end, total)
    );
    rows.push(vec![Span::styled(text, theme.muted())], None);
    for event in &events {
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
}
