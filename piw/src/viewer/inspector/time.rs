//! The Time tab: attempts as bars on one time axis, and where the run's time went.

use std::collections::BTreeMap;

use ratatui::style::Style;
use ratatui::text::Span;

use super::info::elapsed;
use super::rows::{Action, Rows};
use crate::text::{clean, pad};
use crate::viewer::clock::{self, Millis};
use crate::viewer::run::overlay::outcome_mark;
use crate::viewer::theme::Mark;

struct Bar {
    index: Option<u64>,
    node: String,
    mark: Mark,
    from: Millis,
    to: Millis,
}

/// Adds the waterfall of the known attempts and the nodes that took longest.
pub fn build(rows: &mut Rows<'_>, now: Millis) {
    let bars = bars(rows, now);
    let (Some(first), Some(last)) = (
        bars.iter().map(|bar| bar.from).min(),
        bars.iter().map(|bar| bar.to).max(),
    ) else {
        rows.push(vec![Span::styled("No step has started yet.", rows.theme.muted())], None);
        return;
    };
    let span = (last - first).max(1);
    let theme = rows.theme;
    let names = (rows.columns / 4).clamp(10, 24);
    let room = rows.columns.saturating_sub(names + 14).max(8);
    for bar in &bars {
        let at = |time: Millis| ((time - first) as f64 / span as f64 * room as f64) as usize;
        let (start, end) = (at(bar.from).min(room - 1), at(bar.to).min(room));
        let length = (end - start.min(end)).max(1);
        let fill = if theme.ascii { "=" } else { "━" };
        let rest = room.saturating_sub(start + length);
        rows.step = bar.index;
        let spans = vec![
            Span::styled(format!("{} ", theme.glyph(bar.mark)), theme.status(bar.mark)),
            Span::styled(pad(&bar.node, names), Style::new().fg(theme.palette.text)),
            Span::raw(" ".repeat(start + 1)),
            Span::styled(fill.repeat(length), theme.status(bar.mark)),
            Span::raw(" ".repeat(rest)),
            Span::styled(format!(" {:>7}", clock::duration(bar.to - bar.from)), theme.subtext()),
        ];
        rows.push(spans, bar.index.map(Action::Seek));
    }
    rows.step = None;
    totals(rows, &bars, now);
}

fn bars(rows: &Rows<'_>, now: Millis) -> Vec<Bar> {
    let (start, steps) = rows.run.steps();
    let mut bars: Vec<Bar> = (start..)
        .zip(steps)
        .filter_map(|(index, view)| {
            Some(Bar {
                index: Some(index),
                node: clean(&view.step.node_id).into_owned(),
                mark: outcome_mark(view.step.outcome),
                from: clock::parse(&view.step.started_at)?,
                to: clock::parse(&view.step.finished_at)?,
            })
        })
        .collect();
    if let Some(view) = rows.run.view.as_ref().filter(|_| rows.run.cursor.is_none())
        && let Some(node) = &view.state.current_node
        && let Some(from) = view.state.current_node_started_at.as_deref().and_then(clock::parse)
    {
        let node_mark = rows.run.graph.as_ref().and_then(|graph| graph.node(node));
        let mark = node_mark
            .and_then(|node| rows.run.overlay.nodes.get(node))
            .map_or(Mark::Running, |node| node.mark);
        bars.push(Bar {
            index: None,
            node: clean(node).into_owned(),
            mark,
            from,
            to: now.max(from),
        });
    }
    bars
}

fn totals(rows: &mut Rows<'_>, bars: &[Bar], now: Millis) {
    let mut by_node: BTreeMap<&str, (Millis, u64)> = BTreeMap::new();
    for bar in bars {
        let entry = by_node.entry(&bar.node).or_default();
        entry.0 += bar.to - bar.from;
        entry.1 += 1;
    }
    let working: Millis = by_node.values().map(|(time, _)| time).sum();
    let all = rows
        .run
        .view
        .as_ref()
        .and_then(|view| elapsed(view, now))
        .unwrap_or(working);
    rows.heading("Where the time went");
    let mut sorted: Vec<_> = by_node.into_iter().collect();
    sorted.sort_by_key(|(_, (time, _))| -time);
    let theme = rows.theme;
    let line = |name: &str, time: Millis, note: String| {
        let share = if all > 0 { time * 100 / all } else { 0 };
        vec![
            Span::styled(pad(name, 24), Style::new().fg(theme.palette.text)),
            Span::styled(format!("{:>8} {share:>3} % ", clock::duration(time)), theme.subtext()),
            Span::styled(note, theme.muted()),
        ]
    };
    for (node, (time, count)) in sorted.into_iter().take(12) {
        let note = if count > 1 {
            format!("{count} attempts")
        } else {
            String::new()
        };
        let spans = line(node, time, note);
        rows.push(spans, None);
    }
    if all > working {
        let spans = line("between the steps", all - working, "waiting, paused, scheduling".into());
        rows.push(spans, None);
    }
}
