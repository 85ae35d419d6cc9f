//! What lies over the screen: help, command palette, confirmation, answer editor, effect review, theme picker. At most one is open and it
//! takes every key.

pub mod answer;
pub mod editor;
pub mod review;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use self::answer::Asked;
use self::editor::Editor;
use self::review::{Reviewed, Said};
use super::action::{Action, ENTRIES, Entry, key_name};
use super::hosts::RunId;
use super::keymap::KeyMap;
use super::message::Command;
use super::screen::Part;
use super::theme::Theme;
use super::widgets;
use crate::text::{clean, pad, width, wrap};

/// Lines that a page key scrolls the help by: less than the help shows on the smallest screen.
const HELP_PAGE: usize = 10;

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
        run_id: RunId,
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
        run_id: RunId,
        /// What the user saw.
        revision: u64,
        /// What is asked.
        asked: Asked,
        /// The text.
        editor: Editor,
    },
    /// Effects that may have happened.
    Review {
        /// The run.
        run_id: RunId,
        /// What the user saw.
        revision: u64,
        /// The dialog.
        reviewed: Reviewed,
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
        run_id: RunId,
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

/// What popups are drawn with.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Colours and glyphs.
    pub theme: &'a Theme,
    /// Which key does what.
    pub keys: &'a KeyMap,
    /// What the configuration file says that cannot be used.
    pub problems: &'a [String],
}

impl Popup {
    /// The actions that match what is typed in the palette.
    #[must_use]
    pub fn matches(text: &str) -> Vec<&'static Entry> {
        let wanted = text.to_lowercase();
        let has = |entry: &Entry, found: fn(&str, &str) -> bool| {
            let text = entry.text.to_lowercase();
            wanted.split_whitespace().all(|word| found(&text, word))
        };
        let mut matches: Vec<&Entry> = ENTRIES
            .iter()
            .filter(|entry| has(entry, |text, word| text.contains(word)))
            .collect();
        // What has a word that begins so is meant sooner than what has the letters somewhere.
        matches.sort_by_key(|entry| !has(entry, |text, word| text.split(' ').any(|known| known.starts_with(word))));
        matches
    }

    /// Takes a key; `screen` is the whole terminal.
    pub fn key(&mut self, key: &KeyEvent, screen: Rect) -> Reply {
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
                KeyCode::PageDown => {
                    *top = (*top + HELP_PAGE).min(ENTRIES.len());
                    Reply::Stay
                }
                KeyCode::PageUp => {
                    *top = top.saturating_sub(HELP_PAGE);
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
                asked,
                editor,
            } => match key.code {
                KeyCode::Esc => Reply::Close,
                KeyCode::PageUp | KeyCode::PageDown => {
                    let page = if key.code == KeyCode::PageUp { -8 } else { 8 };
                    asked.scroll(page, screen);
                    Reply::Stay
                }
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
            Self::Review {
                run_id,
                revision,
                reviewed,
            } => match reviewed.key(key) {
                Said::Nothing => Reply::Stay,
                Said::Later => Reply::Close,
                Said::Decided(resolve) => Reply::Send {
                    run_id: run_id.clone(),
                    revision: *revision,
                    command: Command::Review(resolve),
                },
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
            Self::Review { reviewed, .. } => reviewed.paste(pasted),
            Self::Palette { text, .. } => text.push_str(&clean(pasted)),
            _ => {}
        }
    }

    /// Where the popup lies.
    #[must_use]
    pub fn area(&self, screen: Rect) -> Rect {
        let (width, height) = match self {
            Self::Help { .. } => (
                entry_columns(),
                screen.height.saturating_sub(2).min(ENTRIES.len() as u16 + 7),
            ),
            Self::Palette { .. } => (entry_columns(), 18),
            Self::Confirm { .. } => (56, 8),
            Self::Answer { asked, .. } => return answer::area(asked, screen),
            Self::Review { .. } => return review::area(screen),
            Self::Themes { .. } => (
                44,
                (Theme::names().count() as u16 + 2).min(screen.height.saturating_sub(2)),
            ),
        };
        widgets::centered(width, height, screen)
    }

    /// Draws the popup.
    pub fn draw(&self, look: &Look<'_>, screen: Rect, buffer: &mut Buffer) {
        let theme = look.theme;
        let area = self.area(screen);
        match self {
            Self::Help { part, top } => {
                let inner = widgets::popup("Help · a click does it · any other key closes", theme, area, buffer);
                let lines = help_lines(*part, look, usize::from(inner.width));
                let top = (*top).min(lines.len().saturating_sub(usize::from(inner.height)));
                for (y, (line, _)) in (inner.y..inner.bottom()).zip(&lines[top..]) {
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
                    let mut lines = entry_lines(entry, look, usize::from(inner.width));
                    buffer.set_line(inner.x, y, &lines.swap_remove(0), inner.width);
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
            Self::Answer { asked, editor, .. } => answer::draw(asked, editor, theme, area, buffer),
            Self::Review { reviewed, .. } => review::draw(reviewed, theme, screen, buffer),
            Self::Themes { selected, .. } => {
                let inner = widgets::popup("Theme · Enter or a click keeps · Esc", theme, area, buffer);
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

/// Columns of the keys in front of an action's text, with the spaces around.
const KEYS: usize = 18;

/// Columns of a box in which every action has one row.
fn entry_columns() -> u16 {
    let longest = ENTRIES.iter().map(|entry| width(entry.text)).max().unwrap_or(0);
    (KEYS + longest + 3) as u16
}

/// An action with its keys; a text that is too long for the box continues below.
fn entry_lines(entry: &Entry, look: &Look<'_>, columns: usize) -> Vec<Line<'static>> {
    let style = Style::new().fg(look.theme.palette.text);
    let pieces = wrap(entry.text, columns.saturating_sub(KEYS).max(8));
    let line = |(index, piece): (usize, String)| {
        let keys = if index == 0 {
            look.keys.keys(entry.action).join(" ")
        } else {
            String::new()
        };
        Line::from(vec![
            Span::styled(format!(" {} ", pad(&keys, KEYS - 2)), look.theme.key()),
            Span::styled(piece, style),
        ])
    };
    pieces.into_iter().enumerate().map(line).collect()
}

/// The lines of the help, each with the action that it is about.
#[must_use]
pub fn help_lines(part: Part, look: &Look<'_>, columns: usize) -> Vec<(Line<'static>, Option<Action>)> {
    let name = match part {
        Part::Browser => "Runs",
        Part::Graph => "Graph",
        Part::Inspector => "Inspector",
    };
    let list = |of: &dyn Fn(&Entry) -> bool| {
        let chosen = ENTRIES.iter().filter(|entry| of(entry));
        let lines = chosen.flat_map(|entry| {
            let lines = entry_lines(entry, look, columns);
            lines.into_iter().map(|line| (line, Some(entry.action)))
        });
        lines.collect::<Vec<_>>()
    };
    let heading = |text: &str| (Line::styled(format!(" {text}"), look.theme.accent()), None);
    let gap = || (Line::raw(""), None);
    let mut lines = Vec::new();
    if !look.problems.is_empty() {
        lines.push(heading("The configuration file"));
        for problem in look.problems {
            let pieces = wrap(&clean(problem), columns.saturating_sub(2).max(8));
            let told = |piece| (Line::styled(format!(" {piece}"), look.theme.error()), None);
            lines.extend(pieces.into_iter().map(told));
        }
        lines.push(gap());
    }
    let own = list(&|entry| entry.part == Some(part));
    if !own.is_empty() {
        lines.push(heading(name));
        lines.extend(own);
        lines.push(gap());
    }
    lines.push(heading("Everywhere"));
    lines.extend(list(&|entry| entry.part.is_none()));
    lines.extend([gap(), heading("Other parts")]);
    lines.extend(list(&|entry| entry.part.is_some_and(|other| other != part)));
    lines
}
