//! The review dialog: what may have happened, and what a person can say of it: it happened, do it again, or later.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use piw_protocol::effect::{EffectDecision, EffectResolve, EffectView, Review};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use serde_json::Value;

use super::editor::Editor;
use crate::command::effects::kind;
use crate::text::{clean, counted, fit, width, wrap};
use crate::viewer::clock;
use crate::viewer::screen::inside;
use crate::viewer::theme::{Mark, Theme};
use crate::viewer::widgets;

/// Most columns of the dialog.
const WIDTH: u16 = 88;
/// Rows of the dialog.
const HEIGHT: u16 = 14;
/// Columns between the border and the text.
const MARGIN: u16 = 1;

/// What is reviewed, and how far the person got.
#[derive(Debug, Clone)]
pub struct Reviewed {
    effects: Vec<EffectView>,
    total: u64,
    selected: usize,
    stage: Stage,
}

/// How far the person got.
#[derive(Debug, Clone)]
enum Stage {
    /// Reading what may have happened.
    Read,
    /// Typing what a confirmed effect gave.
    Confirm(Editor),
    /// Asked once more before it is done again.
    Retry,
}

/// What a key does to the dialog.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// Stays open.
    Nothing,
    /// Closes without a decision.
    Later,
    /// Decides.
    Decided(EffectResolve),
}

impl Reviewed {
    /// A dialog on what the server shows.
    #[must_use]
    pub fn new(review: &Review) -> Self {
        Self {
            effects: review.effects.clone(),
            total: review.total,
            selected: 0,
            stage: Stage::Read,
        }
    }

    /// Takes what the server shows now. `false`: what the person is deciding on is not the same any more.
    pub fn refresh(&mut self, review: Option<&Review>) -> bool {
        let Some(review) = review else { return false };
        let Some(before) = self.effects.get(self.selected) else {
            return false;
        };
        let same = |effect: &EffectView| {
            effect.effect_id == before.effect_id
                && effect.attempt == before.attempt
                && effect.unfinished == before.unfinished
        };
        let found = review.effects.iter().position(same);
        let reading = matches!(self.stage, Stage::Read);
        self.selected = match found {
            Some(index) => index,
            None if reading => 0,
            None => return false,
        };
        self.effects.clone_from(&review.effects);
        self.total = review.total;
        !self.effects.is_empty()
    }

    /// Takes a key.
    pub fn key(&mut self, key: &KeyEvent) -> Said {
        let Some(effect) = self.effects.get(self.selected) else {
            return Said::Later;
        };
        let decide = |decision, result| {
            Said::Decided(EffectResolve {
                effect_id: effect.effect_id.clone(),
                decision,
                result,
            })
        };
        match &mut self.stage {
            Stage::Read => match key.code {
                KeyCode::Down | KeyCode::Char('j') => self.select(1),
                KeyCode::Up | KeyCode::Char('k') => self.select(-1),
                KeyCode::Char('h') => self.stage = Stage::Confirm(Editor::new("null")),
                KeyCode::Char('d') => self.stage = Stage::Retry,
                KeyCode::Esc | KeyCode::Char('l' | 'q') => return Said::Later,
                _ => {}
            },
            Stage::Confirm(editor) => match key.code {
                KeyCode::Esc => self.stage = Stage::Read,
                KeyCode::Enter if !key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT) => {
                    if let Ok(value) = editor.json() {
                        return decide(EffectDecision::Confirm, value);
                    }
                }
                _ => editor.key(key),
            },
            Stage::Retry => match key.code {
                KeyCode::Char('y' | 'Y') => return decide(EffectDecision::Retry, Value::Null),
                KeyCode::Esc | KeyCode::Char('n' | 'N' | 'q') => self.stage = Stage::Read,
                _ => {}
            },
        }
        Said::Nothing
    }

    fn select(&mut self, by: isize) {
        let last = self.effects.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    /// Takes pasted text.
    pub fn paste(&mut self, pasted: &str) {
        if let Stage::Confirm(editor) = &mut self.stage {
            editor.insert(pasted);
        }
    }

    /// The key that a click stands for.
    #[must_use]
    pub fn click(&self, screen: Rect, at: Position) -> Option<KeyCode> {
        let inner = inside(area(screen));
        if at.y + 1 != inner.bottom() {
            return None;
        }
        let mut x = inner.x + MARGIN;
        for (key, text) in self.buttons() {
            let end = x + button_width(key, text);
            if (x..end).contains(&at.x) {
                return Some(match key {
                    "esc" => KeyCode::Esc,
                    "enter" => KeyCode::Enter,
                    letter => KeyCode::Char(letter.chars().next()?),
                });
            }
            x = end;
        }
        None
    }

    /// Keys with their words, as the last row shows them.
    fn buttons(&self) -> Vec<(&'static str, &'static str)> {
        match &self.stage {
            Stage::Read => {
                let again = match self.effects.get(self.selected) {
                    Some(effect) if !effect.unfinished => "give it up",
                    _ => "do it again",
                };
                vec![("h", "it happened"), ("d", again), ("esc", "later")]
            }
            Stage::Confirm(_) => vec![("enter", "confirm"), ("esc", "back")],
            Stage::Retry => vec![("y", "yes"), ("n", "no")],
        }
    }
}

fn button_width(key: &str, text: &str) -> u16 {
    (width(key) + width(text) + 6) as u16
}

/// Where the dialog lies.
#[must_use]
pub fn area(screen: Rect) -> Rect {
    widgets::centered(
        screen.width.saturating_sub(4).min(WIDTH),
        screen.height.saturating_sub(2).min(HEIGHT),
        screen,
    )
}

/// One effect in words: what it is, where, and why nobody knows.
#[must_use]
pub fn describe(effect: &EffectView) -> Vec<String> {
    let why = clean(
        effect
            .detail
            .as_deref()
            .unwrap_or("it was interrupted while it was being applied"),
    );
    let visit = if effect.visit > 1 {
        format!(", visit {}", effect.visit)
    } else {
        String::new()
    };
    vec![
        format!(
            "{} effect “{}” of node {}{visit}",
            kind(effect.kind),
            clean(&effect.effect_type),
            clean(&effect.node)
        ),
        format!(
            "attempt {}, {} UTC: {why}",
            effect.attempt,
            clock::date_time(&effect.attempted_at)
        ),
        format!("key {}", effect.effect_id),
    ]
}

/// Draws the dialog.
pub fn draw(reviewed: &Reviewed, theme: &Theme, screen: Rect, buffer: &mut Buffer) {
    let inner = widgets::popup("Did it happen?", theme, area(screen), buffer);
    let room = usize::from(inner.width.saturating_sub(2 * MARGIN));
    let (x, last) = (inner.x + MARGIN, inner.bottom().saturating_sub(1));
    let Some(effect) = reviewed.effects.get(reviewed.selected) else {
        return;
    };
    let mut lines: Vec<(String, _)> = Vec::new();
    if reviewed.total > 1 {
        let text = format!(
            "{} of {} · up and down choose",
            reviewed.selected + 1,
            counted(reviewed.total, "effect")
        );
        lines.push((text, theme.muted()));
    }
    for (index, text) in describe(effect).into_iter().enumerate() {
        let style = match index {
            0 => theme.status(Mark::Ambiguous),
            1 => theme.text(),
            _ => theme.muted(),
        };
        lines.extend(wrap(&text, room).into_iter().map(|line| (line, style)));
    }
    lines.push((String::new(), theme.text()));
    let question = match (&reviewed.stage, effect.unfinished) {
        (Stage::Read, true) => {
            "Look at the outside world first. If it happened, the node ends with the result that you \
                                give. If not, it is done again as a new attempt."
        }
        (Stage::Read, false) => {
            "Look at the outside world first. Its node has ended, so nothing does it again here; both \
                                 answers settle it."
        }
        (Stage::Confirm(_), true) => "What did it give? This JSON becomes the node's output.",
        (Stage::Confirm(_), false) => "What did it give? This JSON is kept with the effect.",
        (Stage::Retry, true) => "Do it again? If it did happen, it will have happened twice.",
        (Stage::Retry, false) => "Give it up? It counts as not done, and the run may be restarted.",
    };
    lines.extend(wrap(question, room).into_iter().map(|line| (line, theme.text())));
    let mut y = inner.y;
    for (line, style) in lines {
        if y + 1 >= last {
            break;
        }
        buffer.set_stringn(x, y, line, room, style);
        y += 1;
    }
    if let Stage::Confirm(editor) = &reviewed.stage {
        let field = Rect::new(x, y + 1, room as u16, last.saturating_sub(y + 3));
        editor.draw(theme, field, buffer);
        if let Err(error) = editor.json() {
            let text = format!("not JSON yet: {error}");
            buffer.set_stringn(x, last.saturating_sub(1), fit(&text, room), room, theme.error());
        }
    }
    let mut spans = Vec::new();
    for (key, text) in reviewed.buttons() {
        spans.extend([
            Span::styled(format!("[{key}]"), theme.key()),
            Span::raw(format!(" {text}   ")),
        ]);
    }
    buffer.set_line(x, last, &Line::from(spans), inner.width.saturating_sub(MARGIN));
}
