//! Draws the whole screen from the model. Reads only.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::action::Action;
use super::browser::Look;
use super::model::Model;
use super::popup;
use super::screen::{Part, SMALLEST};
use super::timeline::{View, columns};
use super::widgets;
use crate::text::{fit, width, wrap};

/// Draws a frame.
pub fn draw(model: &Model, area: Rect, buffer: &mut Buffer) {
    let theme = &model.theme;
    buffer.set_style(area, theme.text());
    let Some(screen) = model.screen().filter(|_| (area.width, area.height) == model.size) else {
        return too_small(model, area, buffer);
    };
    if let Some(browser) = screen.browser {
        let look = Look {
            hosts: &model.hosts,
            theme,
            focused: model.focus == Part::Browser,
            rail: screen.rail,
            now: model.now,
            clear: model.keys.shown(Action::ClearFilter),
        };
        model.browser.draw(&look, browser, buffer);
    }
    if screen.graph.area() > 0 {
        model.graph.draw(
            model.run.as_ref().ok_or_else(|| model.browser.why_empty()),
            theme,
            model.focus == Part::Graph,
            screen.graph,
            buffer,
        );
    }
    if screen.inspector.area() > 0 {
        let focused = model.focus == Part::Inspector;
        model
            .inspector
            .draw(model.run.as_ref(), theme, focused, model.now, screen.inspector, buffer);
    }
    let hints = model.hints();
    let view = View {
        run: model.run.as_ref(),
        hosts: &model.hosts,
        playback: model.playback,
        hints: &hints,
        now: model.now,
        theme,
    };
    view.draw(screen.timeline, buffer);
    toasts(model, area, screen.timeline.y, buffer);
    if let Some(popup) = &model.popup {
        let look = popup::Look {
            theme,
            keys: &model.keys,
            problems: &model.problems,
        };
        popup.draw(&look, area, buffer);
    }
    if theme.ascii {
        widgets::ascii(buffer);
    }
}

/// Hints in the timeline as buttons: first column, columns, what a click does.
#[must_use]
pub fn hint_buttons(model: &Model, area: Rect) -> Vec<(u16, u16, Action)> {
    let hints = model.hints();
    let view = View {
        run: model.run.as_ref(),
        hosts: &model.hosts,
        playback: model.playback,
        hints: &hints,
        now: model.now,
        theme: &model.theme,
    };
    let mut x = area.right().saturating_sub(view.hint_columns(area));
    let mut buttons = Vec::new();
    for hint in view.shown_hints(area) {
        let columns = columns(&hint) as u16;
        if x + columns > area.right() {
            break;
        }
        buttons.push((x, columns, hint.action));
        x += columns;
    }
    buttons
}

fn too_small(model: &Model, area: Rect, buffer: &mut Buffer) {
    let (w, h) = SMALLEST;
    let text = format!(
        "This terminal has {} × {} cells; piw needs {w} × {h}.",
        area.width, area.height
    );
    let lines = wrap(&text, usize::from(area.width));
    let top = area.y + area.height.saturating_sub(lines.len() as u16) / 2;
    for (y, line) in (top..area.bottom()).zip(lines) {
        buffer.set_stringn(area.x, y, line, usize::from(area.width), model.theme.warning());
    }
}

fn toasts(model: &Model, area: Rect, bottom: u16, buffer: &mut Buffer) {
    let theme = &model.theme;
    let mut y = bottom;
    for toast in model.toasts.iter().rev() {
        let room = usize::from(area.width).saturating_sub(8).clamp(1, 72);
        let lines: Vec<String> = wrap(&toast.text, room).into_iter().take(4).collect();
        let columns = lines.iter().map(|line| width(line)).max().unwrap_or(0) as u16 + 4;
        let height = lines.len() as u16;
        if y < area.y + height + 1 {
            break;
        }
        y -= height;
        let place = Rect::new(area.right().saturating_sub(columns + 1), y, columns, height);
        widgets::cover(place, buffer);
        buffer.set_style(place, theme.raised());
        let (bar, style) = if toast.bad {
            ("▌", theme.error())
        } else {
            ("▌", theme.path())
        };
        let bar = if theme.ascii { "|" } else { bar };
        for (row, line) in (y..).zip(&lines) {
            let text = fit(line, room).into_owned();
            let line = Line::from(vec![
                Span::styled(format!("{bar} "), style),
                Span::styled(text, Style::new().fg(theme.palette.text)),
            ]);
            buffer.set_line(place.x, row, &line, place.width);
        }
        y = y.saturating_sub(1);
    }
}
