//! The timeline: status and elapsed time, a track with a tick for each step and the playhead, the position, and how current
//! the view is. On short terminals everything shares one line.

use piw_protocol::client::{ConnectionState, Freshness};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::action::Action;
use super::clock::{self, Millis};
use super::hosts::{HostId, Hosts};
use super::inspector::info::elapsed;
use super::model::Hint;
use super::run::Run;
use super::run::overlay::outcome_mark;
use super::theme::{Mark, Theme};
use crate::text::{clean, counted, fit, width};

/// Columns of the status in front of the track.
const HEAD: u16 = 22;

/// Columns at the end of a one-line timeline that hold the key of the help, which is a button.
pub const HELP: u16 = 4;

/// Hints at the end that are shown whatever the width: help and quit.
const KEPT: usize = 2;
/// Fewer columns of a reason than this say nothing.
const SHORTEST_REASON: usize = 12;

/// Playback of a run's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Playback {
    /// Whether it moves.
    pub playing: bool,
    /// Steps a second.
    pub speed: u8,
}

impl Default for Playback {
    fn default() -> Self {
        Self {
            playing: false,
            speed: 1,
        }
    }
}

/// The track's cells: x of the first and count.
#[must_use]
pub fn track(area: Rect) -> (u16, u16) {
    let x = area.x + HEAD.min(area.width / 3);
    let end = if area.height > 1 {
        area.right()
    } else {
        area.right().saturating_sub(area.width / 4)
    };
    (x, end.saturating_sub(x + 1))
}

/// Columns from one step to the next on a track with room; on a crowded track several steps share a column.
const SPREAD: u64 = 6;

/// The step at a column of the track.
#[must_use]
pub fn step_at(area: Rect, column: u16, total: u64) -> Option<u64> {
    let (x, cells) = track(area);
    if column < x || column >= x + cells || total == 0 {
        return None;
    }
    let (at, cells) = (u64::from(column - x), u64::from(cells));
    let step = match cells / total {
        0 => (at * total + total / 2) / cells,
        gap => at / gap.min(SPREAD),
    };
    Some(step.min(total - 1))
}

fn column_of(step: u64, cells: u16, total: u64) -> u16 {
    let room = u64::from(cells);
    let column = match room / total.max(1) {
        0 => step * room / total.max(1),
        gap => step * gap.min(SPREAD),
    };
    column.min(room.saturating_sub(1)) as u16
}

/// Positions at which a step ended, as far as that is known, each with how it ended. Steps of a long run that are not known
/// share what they look like.
fn ticks(run: &Run, total: u64, cells: u16) -> Vec<(u64, Mark)> {
    if run.by_events() {
        let mark = |steps: u64| {
            run.step(steps.saturating_sub(1))
                .map_or(Mark::Idle, |step| outcome_mark(step.step.outcome))
        };
        let ends = run.replay.ends.iter().filter(|(position, _)| **position < total);
        return ends.map(|(position, steps)| (*position, mark(*steps))).collect();
    }
    let shown = total.min(u64::from(cells));
    let mut ticks: Vec<(u64, Mark)> = (0..shown).map(|index| (index * total / shown, Mark::Idle)).collect();
    let (start, steps) = run.steps();
    ticks.extend(
        (start..)
            .zip(steps)
            .map(|(index, step)| (index, outcome_mark(step.step.outcome))),
    );
    ticks
}

/// How current the view is, in words; the style says how bad that is.
#[must_use]
pub fn freshness(run: Option<&Run>, hosts: &Hosts, theme: &Theme) -> (String, Style) {
    if run.is_none() && hosts.several() {
        return (hosts.summary(), theme.muted());
    }
    let host = hosts.get(run.map_or(HostId::default(), |run| run.run_id.host));
    let (text, style) = freshness_on(run, &host.connection, theme);
    if host.name.is_empty() {
        (text, style)
    } else {
        (format!("{} · {text}", host.name), style)
    }
}

fn freshness_on(run: Option<&Run>, connection: &ConnectionState, theme: &Theme) -> (String, Style) {
    let warn = theme.warning();
    match connection {
        ConnectionState::Connecting => return ("connecting…".into(), warn),
        ConnectionState::Reconnecting(retry) => {
            let delay = clock::duration(retry.delay.as_millis() as i64);
            return (
                format!("stale · reconnecting: attempt {} in {delay}", retry.attempt),
                warn,
            );
        }
        ConnectionState::Blocked(retry) => {
            let text = format!(
                "disconnected after {}: {}",
                counted(u64::from(retry.attempt), "attempt"),
                clean(&retry.reason)
            );
            return (text, theme.error());
        }
        ConnectionState::Stopped(error) => return (clean(&error.to_string()).into_owned(), theme.error()),
        ConnectionState::Connected { .. } => {}
    }
    match run.map(|run| (&run.freshness, run.cursor)) {
        None => ("connected".into(), theme.muted()),
        Some((Freshness::Opening, _)) => ("loading…".into(), warn),
        Some((Freshness::Stale(retry), _)) => (
            format!("stale · attempt {}: {}", retry.attempt, clean(&retry.reason)),
            warn,
        ),
        Some((Freshness::Blocked(retry), _)) => (format!("disconnected: {}", clean(&retry.reason)), theme.error()),
        Some((Freshness::Refused(error), _)) => (clean(&error.to_string()).into_owned(), theme.error()),
        Some((Freshness::Stopped(error), _)) => (clean(&error.to_string()).into_owned(), theme.error()),
        Some((Freshness::Live, Some(_))) => (
            "replay".into(),
            Style::new().fg(theme.palette.peach).add_modifier(Modifier::BOLD),
        ),
        Some((Freshness::Live, None)) => {
            let ended = run
                .and_then(|run| run.view.as_ref())
                .is_some_and(|view| view.state.finished_at.is_some());
            if ended {
                ("latest".into(), theme.muted())
            } else {
                ("live".into(), theme.status(Mark::Ok))
            }
        }
    }
}

/// Everything that the timeline shows.
pub struct View<'a> {
    /// The run.
    pub run: Option<&'a Run>,
    /// The watched servers.
    pub hosts: &'a Hosts,
    /// Playback.
    pub playback: Playback,
    /// What the keys do now, for the right end.
    pub hints: &'a [Hint],
    /// The present.
    pub now: Millis,
    /// Colours.
    pub theme: &'a Theme,
}

/// Columns of a hint with the space around it.
#[must_use]
pub fn columns(hint: &Hint) -> usize {
    width(&hint.keys) + width(hint.text) + 3
}

impl View<'_> {
    /// Draws the timeline.
    pub fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let theme = self.theme;
        self.head(area, buffer);
        self.draw_track(area, buffer);
        let (state, style) = freshness(self.run, self.hosts, theme);
        if area.height == 1 {
            let help = self.hints.iter().find(|hint| hint.action == Action::Help);
            let help = help.map(|hint| fit(&hint.keys, usize::from(HELP) - 2).into_owned());
            let room = usize::from((area.width / 4).saturating_sub(HELP));
            let text = fit(&state, room).into_owned();
            let x = area.right().saturating_sub(width(&text) as u16 + HELP);
            buffer.set_stringn(x, area.y, text, room, style);
            if let Some(help) = help {
                let x = area.right().saturating_sub(width(&help) as u16 + 1);
                buffer.set_stringn(x, area.y, help, usize::from(HELP), theme.key());
            }
            return;
        }
        let y = area.y + 1;
        let left = self.state_line(area);
        buffer.set_line(area.x, y, &left, area.width);
        let x = area.right().saturating_sub(self.hint_columns(area));
        let mut hints = Vec::new();
        for hint in self.shown_hints(area) {
            hints.push(Span::styled(hint.keys, theme.key()));
            hints.push(Span::styled(format!(" {}  ", hint.text), theme.muted()));
        }
        buffer.set_line(x, y, &Line::from(hints), area.width);
    }

    /// The left half of the second line: how current the view is, the position, playback. A long state is cut: the last hints
    /// keep their room.
    fn state_line(&self, area: Rect) -> Line<'static> {
        let theme = self.theme;
        let mut spans = Vec::new();
        if let Some(run) = self.run.filter(|run| run.view.is_some()) {
            let (total, steps) = (run.positions(), run.step_total());
            let text = match (run.cursor, run.by_events()) {
                (Some(cursor), false) => format!("  step {} of {total}", cursor + 1),
                (Some(cursor), true) => {
                    let ended = run.shown_step().map_or(0, |step| step + 1);
                    format!(
                        "  event {} of {total} · {ended} of {}",
                        cursor + 1,
                        counted(steps, "step")
                    )
                }
                (None, false) => format!("  {}", counted(total, "step")),
                (None, true) => format!("  {} · {}", counted(total, "event"), counted(steps, "step")),
            };
            spans.push(Span::styled(text, theme.subtext()));
            if self.playback.playing {
                spans.push(Span::styled(
                    format!("  ▶ {}×", self.playback.speed),
                    theme.status(Mark::Running),
                ));
            } else if run.cursor.is_some() {
                spans.push(Span::styled(format!("  {}×", self.playback.speed), theme.muted()));
            }
        }
        let (state, style) = freshness(self.run, self.hosts, theme);
        let taken: usize = spans.iter().map(Span::width).sum();
        let kept: usize = self.kept().iter().map(columns).sum();
        let room = usize::from(area.width).saturating_sub(taken + kept + 4).max(8);
        let state = Span::styled(fit(&state, room).into_owned(), style);
        spans.splice(0..0, [Span::raw(" "), state]);
        if let Some(reason) = self.reason() {
            let taken: usize = spans.iter().map(Span::width).sum();
            let controls: usize = self
                .hints
                .iter()
                .filter(|hint| hint.action.is_control())
                .map(columns)
                .sum();
            let room = usize::from(area.width).saturating_sub(taken + controls + kept + 6);
            let room = room.min(usize::from(area.width) / 3);
            if room >= SHORTEST_REASON {
                spans.push(Span::styled(format!("  {}", fit(&clean(reason), room)), theme.muted()));
            }
        }
        Line::from(spans)
    }

    /// Why the run is as it is, as the server says it: what a parked run, a waiting one and one that failed are told apart by.
    fn reason(&self) -> Option<&str> {
        let run = self.run.filter(|run| run.cursor.is_none())?;
        run.view.as_ref()?.display.reason.as_deref()
    }

    /// The hints that are shown before all others: how to get help and out.
    fn kept(&self) -> &[Hint] {
        &self.hints[self.hints.len().saturating_sub(KEPT)..]
    }

    /// The hints that fit beside the state: the last ones always, of the others as many as there is room for.
    #[must_use]
    pub fn shown_hints(&self, area: Rect) -> Vec<Hint> {
        let kept = self.kept();
        let mut room = usize::from(area.width)
            .saturating_sub(self.state_line(area).width() + 3 + kept.iter().map(columns).sum::<usize>());
        let others = &self.hints[..self.hints.len() - kept.len()];
        let fitting = others.iter().take_while(|hint| match room.checked_sub(columns(hint)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        });
        let mut shown: Vec<Hint> = fitting.cloned().collect();
        shown.extend_from_slice(kept);
        shown
    }

    /// Columns of the hints that fit.
    #[must_use]
    pub fn hint_columns(&self, area: Rect) -> u16 {
        self.shown_hints(area).iter().map(columns).sum::<usize>() as u16
    }

    fn head(&self, area: Rect, buffer: &mut Buffer) {
        let theme = self.theme;
        let Some(view) = self.run.and_then(|run| run.view.as_ref()) else {
            return;
        };
        let mark = Mark::of(view.display.status);
        let time = elapsed(view, self.now).map_or_else(String::new, clock::duration);
        let line = Line::from(vec![
            Span::raw(" "),
            Span::styled(
                format!("{} {} ", theme.glyph(mark), mark.word()),
                theme.status(mark).add_modifier(Modifier::BOLD),
            ),
            Span::styled(time, theme.subtext()),
        ]);
        buffer.set_line(area.x, area.y, &line, HEAD.min(area.width / 3));
    }

    fn draw_track(&self, area: Rect, buffer: &mut Buffer) {
        let theme = self.theme;
        let (x, cells) = track(area);
        let total = self.run.map_or(0, Run::positions);
        let line = if theme.ascii { "-" } else { "─" };
        for at in 0..cells {
            buffer.set_stringn(x + at, area.y, line, 1, theme.faint());
        }
        let Some(run) = self.run else { return };
        let head = run.cursor.map_or(cells, |cursor| column_of(cursor, cells, total));
        let tick = if theme.ascii { "|" } else { "╂" };
        let mut worst: Vec<Option<Mark>> = vec![None; usize::from(cells)];
        for (position, mark) in ticks(run, total, cells) {
            let slot = &mut worst[usize::from(column_of(position, cells, total))];
            if slot.is_none_or(|known| known == Mark::Idle || known == Mark::Ok) {
                *slot = Some(mark);
            }
        }
        for (at, mark) in (0..cells).zip(worst) {
            let Some(mark) = mark else { continue };
            let style = if at > head { theme.faint() } else { theme.status(mark) };
            let symbol = if matches!(mark, Mark::Ok | Mark::Idle) {
                tick
            } else {
                theme.glyph(mark)
            };
            buffer.set_stringn(x + at, area.y, symbol, 1, style);
        }
        if run.cursor.is_some() {
            let style = Style::new().fg(theme.palette.peach).add_modifier(Modifier::BOLD);
            buffer.set_stringn(x + head, area.y, if theme.ascii { "^" } else { "◆" }, 1, style);
        } else if total < u64::from(cells) && !run.by_events() && run.mark() == Mark::Running {
            let at = column_of(total, cells, total + 1);
            buffer.set_stringn(
                x + at,
                area.y,
                theme.glyph(Mark::Running),
                1,
                theme.status(Mark::Running),
            );
        }
    }
}
