//! What lies over the screen: help, command palette, confirmation, answer editor, theme picker. At most one is open and it
//! takes every key.

pub mod editor;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use self::editor::Editor;
use super::action::{Action, ENTRIES, Entry, key_name};
use super::message::Command;
use super::screen::Part;
use super::theme::Theme;
use super::widgets;
use crate::text::{clean, fit, pad, wrap};

/// What is open.
#[derive(Debug, Clone)]
pub enum Popup {
    /// Keys of a part.
    Help {
        /// The part that had the focus.
        part: Part,
        /// First shown line.
        top: usize,
    },
    /// Actions by name.
    Palette {
        /// What is typed.
        text: String,
        /// Selected match.
        selected: usize,
    },
    /// A question before something that cannot be undone.
    Confirm {
        /// The run.
        run_id: String,
        /// What the user saw.
        revision: u64,
        /// What to do.
        command: Command,
        /// The question.
        text: String,
    },
    /// The answer to a checkpoint.
    Answer {
        /// The run.
        run_id: String,
        /// What the user saw.
        revision: u64,
        /// What is asked, as neutralised lines.
        question: Vec<String>,
        /// The text.
        editor: Editor,
    },
    /// Themes with live preview.
    Themes {
        /// The theme before.
        before: Box<Theme>,
        /// Selected theme.
        selected: usize,
    },
}

/// What a popup wants after a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Stays open.
    Stay,
    /// Closes.
    Close,
    /// Closes and carries an action out.
    Act(Action),
    /// Closes and sends a command.
    Send {
        /// The run.
        run_id: String,
        /// What the user saw.
        revision: u64,
        /// What to do.
        command: Command,
    },
    /// Shows a theme.
    Preview(usize),
    /// Keeps a theme, saves it and closes.
    Keep(usize),
    /// Shows the theme from before and closes.
    Restore(Box<Theme>),
}

impl Popup {
    /// The actions that match what is typed in the palette.
    #[must_use]
    pub fn matches(text: &str) -> Vec<&'static Entry> {
        let wanted = text.to_lowercase();
        ENTRIES
            .iter()
            .filter(|entry| {
                wanted
                    .split_whitespace()
                    .all(|word| entry.text.to_lowercase().contains(word))
            })
            .collect()
    }

    /// Takes a key.
    pub fn key(&mut self, key: &KeyEvent) -> Reply {
        if key_name(key) == "ctrl-c" {
            return match self {
                Self::Themes { before, .. } => Reply::Restore(before.clone()),
                _ => Reply::Close,
            };
        }
        match self {
            Self::Help { top, .. } => match key.code {
                KeyCode::Down | KeyCode::Char('j') => {
                    *top = (*top + 1).min(ENTRIES.len());
                    Reply::Stay
                }
                KeyCode::Up | KeyCode::Char('k') => {
                    *top = top.saturating_sub(1);
                    Reply::Stay
                }
                _ => Reply::Close,
            },
            Self::Palette { text, selected } => palette_key(text, selected, key),
            Self::Confirm {
                run_id,
                revision,
                command,
                ..
            } => match key.code {
                KeyCode::Enter | KeyCode::Char('y' | 'Y') => Reply::Send {
                    run_id: run_id.clone(),
                    revision: *revision,
                    command: command.clone(),
                },
                KeyCode::Esc | KeyCode::Char('n' | 'N' | 'q') => Reply::Close,
                _ => Reply::Stay,
            },
            Self::Answer {
                run_id,
                revision,
                editor,
                ..
            } => match key.code {
                KeyCode::Esc => Reply::Close,
                KeyCode::Enter if !key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT) => {
                    match editor.json() {
                        Ok(value) => Reply::Send {
                            run_id: run_id.clone(),
                            revision: *revision,
                            command: Command::Answer(value),
                        },
                        Err(_) => Reply::Stay,
                    }
                }
                _ => {
                    editor.key(key);
                    Reply::Stay
                }
            },
            Self::Themes { before, selected } => {
                let count = Theme::names().count();
                match key.code {
                    KeyCode::Down | KeyCode::Char('j') => *selected = (*selected + 1) % count,
                    KeyCode::Up | KeyCode::Char('k') => *selected = (*selected + count - 1) % count,
                    KeyCode::Enter => return Reply::Keep(*selected),
                    KeyCode::Esc | KeyCode::Char('q') => return Reply::Restore(before.clone()),
                    _ => return Reply::Stay,
                }
                Reply::Preview(*selected)
            }
        }
    }

    /// Takes pasted text.
    pub fn paste(&mut self, pasted: &str) {
        match self {
            Self::Answer { editor, .. } => editor.insert(pasted),
            Self::Palette { text, .. } => text.push_str(&clean(pasted)),
            _ => {}
        }
    }

    /// Where the popup lies.
    #[must_use]
    pub fn area(&self, screen: Rect) -> Rect {
        let (width, height) = match self {
            Self::Help { .. } => (64, screen.height.saturating_sub(2).min(ENTRIES.len() as u16 + 2)),
            Self::Palette { .. } => (64, 18),
            Self::Confirm { .. } => (56, 8),
            Self::Answer { .. } => (
                screen.width.saturating_sub(8).min(90),
                screen.height.saturating_sub(4).min(20),
            ),
            Self::Themes { .. } => (
                36,
                (Theme::names().count() as u16 + 2).min(screen.height.saturating_sub(2)),
            ),
        };
        widgets::centered(width, height, screen)
    }

    /// Draws the popup.
    pub fn draw(&self, theme: &Theme, screen: Rect, buffer: &mut Buffer) {
        let area = self.area(screen);
        match self {
            Self::Help { part, top } => {
                let inner = widgets::popup("Help · any other key closes", theme, area, buffer);
                let lines = help_lines(*part, theme);
                let top = (*top).min(lines.len().saturating_sub(usize::from(inner.height)));
                for (y, line) in (inner.y..inner.bottom()).zip(&lines[top..]) {
                    buffer.set_line(inner.x, y, line, inner.width);
                }
                widgets::scrollbar(theme, lines.len(), top, usize::from(inner.height), area, buffer);
            }
            Self::Palette { text, selected } => {
                let inner = widgets::popup("Commands", theme, area, buffer);
                let line = Line::from(vec![
                    Span::styled(" : ", theme.key()),
                    Span::raw(clean(text).into_owned()),
                    Span::styled("▏", theme.accent()),
                ]);
                buffer.set_line(inner.x, inner.y, &line, inner.width);
                let matches = Self::matches(text);
                let height = usize::from(inner.height.saturating_sub(2));
                let top = (selected + 1).saturating_sub(height);
                for (y, (index, entry)) in (inner.y + 2..inner.bottom()).zip(matches.iter().enumerate().skip(top)) {
                    buffer.set_line(inner.x, y, &entry_line(entry, theme), inner.width);
                    if index == *selected {
                        buffer.set_style(Rect::new(inner.x, y, inner.width, 1), theme.selected(true));
                    }
                }
            }
            Self::Confirm { text, .. } => {
                let inner = widgets::popup("Sure?", theme, area, buffer);
                let room = usize::from(inner.width.saturating_sub(2));
                for (y, line) in (inner.y + 1..inner.bottom().saturating_sub(1)).zip(wrap(text, room)) {
                    buffer.set_stringn(inner.x + 1, y, line, room, theme.text());
                }
                buffer.set_line(inner.x + 1, inner.bottom() - 1, &confirm_line(theme), inner.width);
            }
            Self::Answer { question, editor, .. } => {
                let inner = widgets::popup("Answer (JSON)", theme, area, buffer);
                let room = usize::from(inner.width.saturating_sub(2));
                let question: Vec<String> = question.iter().flat_map(|line| wrap(line, room)).collect();
                let shown = question.len().min(usize::from(inner.height / 3).max(1));
                for (y, line) in (inner.y..).zip(&question[..shown]) {
                    buffer.set_stringn(inner.x + 1, y, line, room, theme.subtext());
                }
                let top = inner.y + shown as u16 + 1;
                let field = Rect::new(
                    inner.x + 1,
                    top,
                    inner.width.saturating_sub(2),
                    inner.bottom().saturating_sub(top + 2),
                );
                editor.draw(theme, field, buffer);
                let (state, style) = match editor.json() {
                    Ok(_) => (
                        "valid JSON · Enter sends · Alt-Enter new line · Esc closes".to_owned(),
                        theme.status(super::theme::Mark::Ok),
                    ),
                    Err(error) => (format!("not JSON yet: {error}"), theme.error()),
                };
                let state = fit(&state, room).into_owned();
                buffer.set_stringn(inner.x + 1, inner.bottom() - 1, state, room, style);
            }
            Self::Themes { selected, .. } => {
                let inner = widgets::popup("Theme · Enter keeps · Esc", theme, area, buffer);
                let height = usize::from(inner.height);
                let top = (selected + 1).saturating_sub(height);
                for (y, (index, name)) in (inner.y..inner.bottom()).zip(Theme::names().enumerate().skip(top)) {
                    let style = if index == *selected {
                        theme.accent()
                    } else {
                        Style::new().fg(theme.palette.text)
                    };
                    buffer.set_stringn(inner.x + 1, y, name, usize::from(inner.width), style);
                    if index == *selected {
                        buffer.set_style(Rect::new(inner.x, y, inner.width, 1), theme.selected(true));
                    }
                }
            }
        }
    }
}

/// The buttons of a confirmation, "yes" first.
fn confirm_line(theme: &Theme) -> Line<'static> {
    Line::from(vec![
        Span::styled("[y]", theme.key()),
        Span::raw(" yes   "),
        Span::styled("[n]", theme.key()),
        Span::raw(" no"),
    ])
}

fn palette_key(text: &mut String, selected: &mut usize, key: &KeyEvent) -> Reply {
    let matches = Popup::matches(text);
    match key.code {
        KeyCode::Esc => return Reply::Close,
        KeyCode::Enter => {
            return matches
                .get(*selected)
                .map_or(Reply::Close, |entry| Reply::Act(entry.action));
        }
        KeyCode::Down | KeyCode::Tab => *selected = (*selected + 1).min(matches.len().saturating_sub(1)),
        KeyCode::Up | KeyCode::BackTab => *selected = selected.saturating_sub(1),
        KeyCode::Backspace => {
            text.pop();
            *selected = 0;
        }
        KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            text.push(c);
            *selected = 0;
        }
        _ => {}
    }
    Reply::Stay
}

fn entry_line(entry: &Entry, theme: &Theme) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!(" {} ", pad(&entry.keys.join(" "), 16)), theme.key()),
        Span::styled(entry.text.to_owned(), Style::new().fg(theme.palette.text)),
    ])
}

fn help_lines(part: Part, theme: &Theme) -> Vec<Line<'static>> {
    let name = match part {
        Part::Browser => "Runs",
        Part::Graph => "Graph",
        Part::Inspector => "Inspector",
    };
    let mut lines = vec![Line::styled(format!(" {name}"), theme.accent())];
    lines.extend(
        ENTRIES
            .iter()
            .filter(|entry| entry.part == Some(part))
            .map(|entry| entry_line(entry, theme)),
    );
    lines.push(Line::raw(""));
    lines.push(Line::styled(" Everywhere", theme.accent()));
    lines.extend(
        ENTRIES
            .iter()
            .filter(|entry| entry.part.is_none())
            .map(|entry| entry_line(entry, theme)),
    );
    lines.push(Line::raw(""));
    lines.push(Line::styled(" Other parts", theme.accent()));
    let others = ENTRIES
        .iter()
        .filter(|entry| entry.part.is_some_and(|other| other != part));
    lines.extend(others.map(|entry| entry_line(entry, theme)));
    lines
}
