//! The answer dialog: what is asked above, the editor below. The editor always keeps room; a longer question scrolls.

use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::editor::Editor;
use crate::text::{fit, width, wrap};
use crate::viewer::screen::inside;
use crate::viewer::theme::{Mark, Theme};
use crate::viewer::widgets;

/// Rows that the editor keeps under a long question.
const EDITOR: u16 = 5;
/// Most rows of the dialog.
const HEIGHT: u16 = 36;
/// Most columns of the dialog.
const WIDTH: u16 = 100;

/// Columns between the border and the text.
const MARGIN: u16 = 1;

/// What is asked, and where it is scrolled to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Summary and request, as neutralised lines.
    pub lines: Vec<String>,
    /// What the answer decides, with an example, as neutralised lines; always visible.
    pub hints: Vec<String>,
    /// First shown row; beyond the end shows the end.
    pub top: usize,
}

impl Asked {
    fn rows(lines: &[String], room: usize) -> Vec<String> {
        lines.iter().flat_map(|line| wrap(line, room)).collect()
    }

    /// Scrolls by rows.
    pub fn scroll(&mut self, by: isize, screen: Rect) {
        let area = area(self, screen);
        let shape = Shape::new(self, inside(area));
        let most = shape.asked.len().saturating_sub(usize::from(shape.shown));
        self.top = self.top.min(most).saturating_add_signed(by).min(most);
    }
}

/// Where everything is inside the dialog.
struct Shape {
    asked: Vec<String>,
    hints: Vec<String>,
    /// Rows of the question that are visible.
    shown: u16,
}

impl Shape {
    fn new(asked: &Asked, inner: Rect) -> Self {
        let room = usize::from(inner.width.saturating_sub(2 * MARGIN));
        let mut hints = Asked::rows(&asked.hints, room);
        hints.truncate(usize::from(inner.height / 4));
        let asked = Asked::rows(&asked.lines, room);
        // Below the question: an empty row, the hints, an empty row, the editor, an empty row and the state.
        let below = hints.len() as u16 + EDITOR.min(inner.height / 3) + 4;
        let shown = (asked.len() as u16).min(inner.height.saturating_sub(below)).max(1);
        Self { asked, hints, shown }
    }
}

/// Where the dialog lies: as high as the question wants, as far as there is room.
#[must_use]
pub fn area(asked: &Asked, screen: Rect) -> Rect {
    let columns = screen.width.saturating_sub(8).min(WIDTH);
    let room = usize::from(columns.saturating_sub(2 + 2 * MARGIN));
    let rows = Asked::rows(&asked.lines, room).len() + Asked::rows(&asked.hints, room).len();
    let wanted = u16::try_from(rows).unwrap_or(HEIGHT).saturating_add(14);
    let height = wanted.min(HEIGHT).min(screen.height.saturating_sub(4));
    widgets::centered(columns, height, screen)
}

/// What stands below a valid answer; "Enter sends" and "Esc closes" are buttons.
const VALID: &str = "valid JSON · Enter sends · Alt-Enter new line · Esc closes";

/// The key of the button below the pointer.
#[must_use]
pub fn button(editor: &Editor, area: Rect, at: Position) -> Option<KeyCode> {
    let inner = inside(area);
    if at.y + 1 != inner.bottom() || editor.json().is_err() {
        return None;
    }
    let column = usize::from(at.x.checked_sub(inner.x + MARGIN)?);
    let buttons = [("Enter sends", KeyCode::Enter), ("Esc closes", KeyCode::Esc)];
    let hit = buttons.into_iter().find(|(text, _)| {
        let from = VALID.split(text).next().map_or(0, width);
        (from..from + width(text)).contains(&column)
    });
    hit.map(|(_, code)| code)
}

/// Draws the dialog.
pub fn draw(asked: &Asked, editor: &Editor, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let inner = widgets::popup("Answer (JSON)", theme, area, buffer);
    let room = usize::from(inner.width.saturating_sub(2 * MARGIN));
    let x = inner.x + MARGIN;
    let shape = Shape::new(asked, inner);
    let shown = usize::from(shape.shown);
    let top = asked.top.min(shape.asked.len().saturating_sub(shown));
    let mut y = inner.y;
    for line in shape.asked.iter().skip(top).take(shown) {
        buffer.set_stringn(x, y, line, room, theme.text());
        y += 1;
    }
    widgets::scrollbar(theme, shape.asked.len(), top, shown, area, buffer);
    let hidden = shape.asked.len() > shown;
    y += u16::from(!shape.hints.is_empty());
    for line in &shape.hints {
        buffer.set_stringn(x, y, line, room, theme.subtext());
        y += 1;
    }
    let field = Rect::new(x, y + 1, room as u16, inner.bottom().saturating_sub(y + 3));
    editor.draw(theme, field, buffer);
    let (state, style) = match editor.json() {
        Ok(_) => (VALID.to_owned(), theme.status(Mark::Ok)),
        Err(error) => (format!("not JSON yet: {error}"), theme.error()),
    };
    let scroll = if hidden { "PgUp/PgDn scroll" } else { "" };
    let state = fit(&state, room.saturating_sub(width(scroll) + 2)).into_owned();
    let last = inner.bottom().saturating_sub(1);
    buffer.set_stringn(x, last, state, room, style);
    let right = inner.right().saturating_sub(MARGIN + width(scroll) as u16);
    buffer.set_stringn(right, last, scroll, room, theme.muted());
}
