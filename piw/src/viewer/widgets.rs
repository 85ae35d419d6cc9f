//! Small drawing helpers that all parts of the screen share.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::border;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Widget};

use super::theme::Theme;
use crate::text::width;

const ASCII: border::Set<'_> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Draws a titled border and returns what is inside.
pub fn panel(title: Line<'_>, theme: &Theme, focused: bool, area: Rect, buffer: &mut Buffer) -> Rect {
    let set = if theme.ascii { ASCII } else { border::ROUNDED };
    let block = Block::bordered()
        .border_set(set)
        .border_style(theme.border(focused))
        .title(title);
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}

/// Puts ASCII in the place of the marks that our own texts have. What workflows and files say stays.
pub fn ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        let plain = match cell.symbol() {
            "·" | "–" | "—" | "−" => "-",
            "…" => ".",
            "“" | "”" => "\"",
            "‘" | "’" => "'",
            "×" => "x",
            "▏" => "_",
            "≈" => "~",
            "✓" => "v",
            "↻" => "@",
            "ƒ" => "f",
            "●" => "o",
            "◆" => "?",
            "←" => "<",
            "→" => ">",
            _ => continue,
        };
        cell.set_symbol(plain);
    }
}

/// Empties an area that something is drawn over. A wide character that reaches into it from the left goes as a whole.
pub fn cover(area: Rect, buffer: &mut Buffer) {
    if area.x > 0 {
        for y in area.y..area.bottom() {
            if let Some(cell) = buffer.cell_mut((area.x - 1, y))
                && width(cell.symbol()) > 1
            {
                cell.set_symbol(" ");
            }
        }
    }
    Clear.render(area, buffer);
}

/// Draws a raised, titled box over whatever is there and returns what is inside.
pub fn popup(title: &str, theme: &Theme, area: Rect, buffer: &mut Buffer) -> Rect {
    cover(area, buffer);
    buffer.set_style(area, theme.text());
    panel(
        Line::styled(format!(" {title} "), theme.accent()),
        theme,
        true,
        area,
        buffer,
    )
}

/// A rectangle in the middle of another.
#[must_use]
pub fn centered(width: u16, height: u16, area: Rect) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect::new(
        area.x + (area.width - width) / 2,
        area.y + (area.height - height) / 2,
        width,
        height,
    )
}

/// Draws a scroll bar on the right border of `area` when not everything fits.
pub fn scrollbar(theme: &Theme, total: usize, top: usize, height: usize, area: Rect, buffer: &mut Buffer) {
    if total <= height || height == 0 || area.width == 0 {
        return;
    }
    let length = (height * height / total).max(1);
    let start = if total > height {
        top * (height - length) / (total - height)
    } else {
        0
    };
    let x = area.right() - 1;
    for at in start..(start + length).min(height) {
        let y = area.y + 1 + at as u16;
        if let Some(cell) = buffer.cell_mut((x, y)) {
            cell.set_symbol(if theme.ascii { "#" } else { "┃" })
                .set_style(theme.subtext());
        }
    }
}
