//! A small text editor for JSON answers.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use serde_json::Value;
use unicode_segmentation::UnicodeSegmentation;

use crate::text::{clean, width};
use crate::viewer::theme::Theme;

/// Longest text in bytes.
const LIMIT: usize = 256 * 1024;

/// Text and cursor.
#[derive(Debug, Clone, Default)]
pub struct Editor {
    text: String,
    /// Byte position, always between graphemes.
    cursor: usize,
}

impl Editor {
    /// Starts with a text, the cursor at its end.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            cursor: text.len(),
        }
    }

    /// The text as JSON, or what is wrong with it.
    ///
    /// # Errors
    ///
    /// The parser's message with line and column.
    pub fn json(&self) -> Result<Value, String> {
        if self.text.trim().is_empty() {
            return Err("type a JSON value, for example true, \"text\" or {\"key\": 1}".into());
        }
        serde_json::from_str(&self.text).map_err(|error| error.to_string())
    }

    /// Inserts text at the cursor; what would exceed the limit is left out.
    pub fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        if self.text.len() + text.len() <= LIMIT {
            self.text.insert_str(self.cursor, &text);
            self.cursor += text.len();
        }
    }

    fn before(&self) -> usize {
        self.text[..self.cursor]
            .grapheme_indices(true)
            .next_back()
            .map_or(0, |(at, _)| at)
    }

    fn after(&self) -> usize {
        self.text[self.cursor..]
            .graphemes(true)
            .next()
            .map_or(self.cursor, |grapheme| self.cursor + grapheme.len())
    }

    /// Start of the cursor's line and the cursor's column in bytes.
    fn line(&self) -> (usize, usize) {
        let start = self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1);
        (start, self.cursor - start)
    }

    /// Takes a key.
    pub fn key(&mut self, key: &KeyEvent) {
        match key.code {
            KeyCode::Enter => self.insert("\n"),
            KeyCode::Tab => self.insert("  "),
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                let (start, _) = self.line();
                self.text.replace_range(start..self.cursor, "");
                self.cursor = start;
            }
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                self.insert(c.encode_utf8(&mut [0; 4]));
            }
            KeyCode::Backspace => {
                let from = self.before();
                self.text.replace_range(from..self.cursor, "");
                self.cursor = from;
            }
            KeyCode::Delete => {
                let to = self.after();
                self.text.replace_range(self.cursor..to, "");
            }
            KeyCode::Left => self.cursor = self.before(),
            KeyCode::Right => self.cursor = self.after(),
            KeyCode::Home => self.cursor = self.line().0,
            KeyCode::End => {
                self.cursor += self.text[self.cursor..]
                    .find('\n')
                    .unwrap_or(self.text.len() - self.cursor);
            }
            KeyCode::Up => {
                let (start, column) = self.line();
                if start > 0 {
                    let above = self.text[..start - 1].rfind('\n').map_or(0, |at| at + 1);
                    self.cursor = self.text.floor_char_boundary((above + column).min(start - 1));
                }
            }
            KeyCode::Down => {
                let (_, column) = self.line();
                if let Some(end) = self.text[self.cursor..].find('\n') {
                    let next = self.cursor + end + 1;
                    let length = self.text[next..].find('\n').unwrap_or(self.text.len() - next);
                    self.cursor = self.text.floor_char_boundary(next + column.min(length));
                }
            }
            _ => {}
        }
    }

    /// Draws the lines around the cursor.
    pub fn draw(&self, theme: &Theme, area: Rect, buffer: &mut Buffer) {
        buffer.set_style(area, theme.raised());
        let (start, column) = self.line();
        let row = self.text[..start].matches('\n').count();
        let height = usize::from(area.height.max(1));
        let top = (row + 1).saturating_sub(height);
        let before = width(&clean(&self.text[start..start + column]));
        let left = (before + 2).saturating_sub(usize::from(area.width));
        for (y, line) in (area.y..area.bottom()).zip(self.text.split('\n').skip(top)) {
            let line = clean(line);
            let mut skipped = 0;
            let visible: String = line
                .graphemes(true)
                .skip_while(|grapheme| {
                    let hidden = skipped < left;
                    skipped += width(grapheme);
                    hidden
                })
                .collect();
            buffer.set_stringn(area.x, y, visible, usize::from(area.width), theme.raised());
        }
        let x = area.x + (before - left.min(before)) as u16;
        let y = area.y + (row - top) as u16;
        if x < area.right()
            && y < area.bottom()
            && let Some(cell) = buffer.cell_mut((x, y))
        {
            cell.set_style(Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(editor: &mut Editor, code: KeyCode) {
        editor.key(&KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn typing_moving_and_deleting() {
        let mut editor = Editor::default();
        for c in "{\"a\":1}".chars() {
            press(&mut editor, KeyCode::Char(c));
        }
        assert_eq!(editor.json(), Ok(serde_json::json!({"a": 1})));
        press(&mut editor, KeyCode::Left);
        press(&mut editor, KeyCode::Backspace);
        assert!(editor.json().unwrap_err().contains("line 1"));
        press(&mut editor, KeyCode::Char('日'));
        press(&mut editor, KeyCode::Backspace);
        press(&mut editor, KeyCode::Char('2'));
        assert_eq!(editor.json(), Ok(serde_json::json!({"a": 2})));
    }

    #[test]
    fn lines_keep_the_cursor_on_characters() {
        let mut editor = Editor::new("日本\nab");
        press(&mut editor, KeyCode::Up);
        press(&mut editor, KeyCode::Char('x'));
        press(&mut editor, KeyCode::Down);
        press(&mut editor, KeyCode::End);
        press(&mut editor, KeyCode::Char('y'));
        assert!(editor.text.ends_with("aby"), "{}", editor.text);
    }
}
