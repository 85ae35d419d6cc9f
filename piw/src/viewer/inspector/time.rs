//! The Time tab: attempts as bars on one time axis beside the median of earlier runs, and where the run's time went: working,
//! waiting for an answer, paused, and the rest.

use std::collections::BTreeMap;

use piw_protocol::view::PauseKind;
use ratatui::style::Style;
use ratatui::text::Span;

use super::rows::{Action, Rows};
use crate::text::{clean, counted, pad};
use crate::viewer::clock::{self, Millis};
use crate::viewer::run::overlay::outcome_mark;
use crate::viewer::theme::{Mark, Theme};

/// Columns of a duration with the space before it.
const DURATION: usize = 9;
/// Shortest wait in the queue that has a row of its own.
const QUEUED: Millis = 1_000;
/// Nodes of the summary at most.
const NODES: usize = 12;

/// What a bar is of.
enum Of {
    /// An attempt: its step, unless it is unfinished, and how long it worked.
    Attempt { index: Option<u64>, active: Millis },
    /// A stretch without work.
    Idle(PauseKind),
}

struct Bar {
    of: Of,
    name: String,
    mark: Mark,
    from: Millis,
    to: Millis,
}

/// Adds the waterfall of the known attempts and what the time went to.
pub fn build(rows: &mut Rows<'_>, now: Millis) {
    let run = rows.run;
    let mut bars = attempts(rows, now);
    let (start, steps) = run.steps();
    let first = bars.iter().map(|bar| bar.from).min();
    let last = bars.iter().map(|bar| bar.to).max();
    // What was before the first shown step belongs to it only where that is the run's first.
    let since = if start == 0 {
        Millis::MIN
    } else {
        first.unwrap_or(Millis::MIN)
    };
    let goes_on = start + steps.len() as u64 >= run.step_total();
    let until = if goes_on {
        Millis::MAX
    } else {
        last.unwrap_or(Millis::MAX)
    };
    bars.extend(idle(rows, since, until, now));
    bars.sort_by_key(|bar| bar.from);
    let (Some(first), Some(last)) = (
        bars.iter().map(|bar| bar.from).min(),
        bars.iter().map(|bar| bar.to).max(),
    ) else {
        rows.push(vec![Span::styled("No step has started yet.", rows.theme.muted())], None);
        return;
    };
    head(rows, start, steps.len() as u64);
    for bar in &bars {
        row(rows, bar, first, (last - first).max(1));
    }
    rows.step = None;
    totals(rows, &bars, last - first);
}

/// Columns of names, and of bars.
fn columns(rows: &Rows<'_>) -> (usize, usize) {
    let names = (rows.columns / 4).clamp(10, 24);
    (names, rows.columns.saturating_sub(names + 3 + 2 * DURATION).max(8))
}

/// Which steps are shown, over the columns.
fn head(rows: &mut Rows<'_>, start: u64, count: u64) {
    let theme = rows.theme;
    let (names, room) = columns(rows);
    let total = rows.run.step_total();
    let shown = match count {
        0 => String::new(),
        _ if count == total => counted(total, "step"),
        _ => format!("steps {} – {} of {total}", start + 1, start + count),
    };
    let spans = vec![
        Span::styled(pad(&shown, names + 3 + room), theme.muted()),
        Span::styled(format!("{:>DURATION$}{:>DURATION$}", "time", "median"), theme.muted()),
    ];
    rows.push(spans, None);
}

fn row(rows: &mut Rows<'_>, bar: &Bar, first: Millis, span: Millis) {
    let theme = rows.theme;
    let (names, room) = columns(rows);
    let at = |time: Millis| ((time - first) as f64 / span as f64 * room as f64) as usize;
    let (start, end) = (at(bar.from).min(room - 1), at(bar.to).min(room));
    let length = (end - start.min(end)).max(1);
    let rest = room.saturating_sub(start + length);
    let time = bar.to - bar.from;
    let (index, worked, active, median) = match bar.of {
        Of::Attempt { index, active } => {
            let share = active as f64 / time.max(1) as f64 * length as f64;
            let worked = (share.ceil() as usize).clamp(1, length);
            (index, worked, active, rows.run.times.median(&bar.name))
        }
        Of::Idle(_) => (None, 0, 0, None),
    };
    let name = match bar.of {
        Of::Attempt { .. } => Style::new().fg(theme.palette.text),
        Of::Idle(_) => theme.muted(),
    };
    let slow = median.is_some_and(|median| active > 2 * median && active - median > 1_000);
    let compared = match (&bar.of, median) {
        (Of::Idle(_), _) => String::new(),
        (_, Some(median)) => clock::duration(median),
        (_, None) => if theme.ascii { "-" } else { "–" }.to_owned(),
    };
    rows.step = index;
    let spans = vec![
        Span::styled(format!("{} ", theme.glyph(bar.mark)), theme.status(bar.mark)),
        Span::styled(pad(&clean(&bar.name), names), name),
        Span::raw(" ".repeat(start + 1)),
        Span::styled(full(theme).repeat(worked), theme.status(bar.mark)),
        Span::styled(empty(theme).repeat(length - worked), theme.status(bar.mark)),
        Span::raw(" ".repeat(rest)),
        Span::styled(
            format!("{:>DURATION$}", clock::duration(time)),
            if slow { theme.warning() } else { theme.subtext() },
        ),
        Span::styled(format!("{compared:>DURATION$}"), theme.muted()),
    ];
    rows.push(spans, index.map(Action::Seek));
}

const fn full(theme: &Theme) -> &'static str {
    if theme.ascii { "=" } else { "━" }
}

const fn empty(theme: &Theme) -> &'static str {
    if theme.ascii { "." } else { "┄" }
}

fn attempts(rows: &Rows<'_>, now: Millis) -> Vec<Bar> {
    let (start, steps) = rows.run.steps();
    let mut bars: Vec<Bar> = (start..)
        .zip(steps)
        .filter_map(|(index, view)| {
            let (from, to) = (
                clock::parse(&view.step.started_at)?,
                clock::parse(&view.step.finished_at)?,
            );
            let active = view.step.active_ms.and_then(|active| Millis::try_from(active).ok());
            Some(Bar {
                of: Of::Attempt {
                    index: Some(index),
                    active: active.unwrap_or(to - from).min(to - from),
                },
                name: view.step.node_id.clone(),
                mark: outcome_mark(view.step.outcome),
                from,
                to,
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
        let to = now.max(from);
        bars.push(Bar {
            of: Of::Attempt {
                index: None,
                active: to - from,
            },
            name: node.clone(),
            mark,
            from,
            to,
        });
    }
    bars
}

/// The stretches without work between two instants.
fn idle(rows: &Rows<'_>, since: Millis, until: Millis, now: Millis) -> Vec<Bar> {
    let stretches = rows.run.times.idle().iter();
    let shown = stretches.filter_map(|idle| {
        let (from, to) = (idle.from.max(since), idle.to.unwrap_or(now).min(until));
        let (name, mark) = match idle.kind {
            PauseKind::Queued => ("queued", Mark::Queued),
            PauseKind::Waiting => ("waiting", Mark::Waiting),
            PauseKind::Paused => ("paused", Mark::Paused),
        };
        let least = if idle.kind == PauseKind::Queued { QUEUED } else { 1 };
        (to - from >= least).then(|| Bar {
            of: Of::Idle(idle.kind),
            name: name.to_owned(),
            mark,
            from,
            to,
        })
    });
    shown.collect()
}

/// Sums: what the time was, then which nodes it went to.
fn totals(rows: &mut Rows<'_>, bars: &[Bar], all: Millis) {
    let theme = rows.theme;
    let mut by_node: BTreeMap<&str, (Millis, u64)> = BTreeMap::new();
    let (mut active, mut waiting, mut paused, mut queued) = (0, 0, 0, 0);
    for bar in bars {
        let time = bar.to - bar.from;
        match bar.of {
            Of::Attempt { active: worked, .. } => {
                let entry = by_node.entry(&bar.name).or_default();
                *entry = (entry.0 + worked, entry.1 + 1);
                active += worked;
                waiting += time - worked;
            }
            Of::Idle(PauseKind::Waiting) => waiting += time,
            Of::Idle(PauseKind::Paused) => paused += time,
            Of::Idle(PauseKind::Queued) => queued += time,
        }
    }
    let line = |name: &str, time: Millis, style: Style, note: String| {
        let share = if all > 0 { time * 100 / all } else { 0 };
        vec![
            Span::styled(pad(name, 24), style),
            Span::styled(format!("{:>8} {share:>3} % ", clock::duration(time)), theme.subtext()),
            Span::styled(note, theme.muted()),
        ]
    };
    rows.heading("Where the time went");
    for (name, mark, time) in [
        ("active", Mark::Running, active),
        ("waiting", Mark::Waiting, waiting),
        ("paused", Mark::Paused, paused),
        ("queued", Mark::Queued, queued),
        (
            "between the steps",
            Mark::Idle,
            all - active - waiting - paused - queued,
        ),
    ] {
        if time > 0 || mark == Mark::Running {
            let name = format!("{} {name}", theme.glyph(mark));
            rows.push(line(&name, time, theme.status(mark), String::new()), None);
        }
    }
    let runs = rows.run.times.runs();
    rows.heading(&match runs {
        0 => "Active time by node".to_owned(),
        runs => format!(
            "Active time by node, and its median in {}",
            counted(u64::from(runs), "earlier run")
        ),
    });
    let mut sorted: Vec<_> = by_node.into_iter().collect();
    sorted.sort_by_key(|(_, (time, _))| -time);
    for (node, (time, count)) in sorted.into_iter().take(NODES) {
        let median = rows.run.times.median(node).map(clock::duration);
        let notes = [
            median.map(|median| format!("median {median}")),
            (count > 1).then(|| counted(count, "attempt")),
        ];
        let note = notes.into_iter().flatten().collect::<Vec<_>>().join(" · ");
        let name = clean(node);
        rows.push(line(&name, time, Style::new().fg(theme.palette.text), note), None);
    }
}
