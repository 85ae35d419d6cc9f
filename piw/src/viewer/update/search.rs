//! Typing and using the filter of the run list and the search of the inspector.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::inspector_rows;
use super::keys::select_row;
use crate::viewer::message::Effect;
use crate::viewer::model::Model;

/// Keys of the run filter.
pub fn filter_key(model: &mut Model, key: &KeyEvent) -> Vec<Effect> {
    model.dirty = true;
    let mut text = model.browser.line.text.clone();
    match key.code {
        KeyCode::Enter | KeyCode::Down | KeyCode::Up => {
            model.browser.line.finish();
            return Vec::new();
        }
        KeyCode::Tab => return model.browser.complete(&model.hosts, model.now),
        KeyCode::Esc => return clear_filter(model),
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return vec![Effect::Quit],
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => text.clear(),
        KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => text.push(c),
        _ => return Vec::new(),
    }
    filter(model, text)
}

/// Takes another text of the run filter.
pub fn filter(model: &mut Model, text: String) -> Vec<Effect> {
    model.browser.filter(text, &model.hosts, model.now)
}

/// Ends the filter and shows every run.
pub fn clear_filter(model: &mut Model) -> Vec<Effect> {
    model.browser.line.typing = false;
    filter(model, String::new())
}

/// Keys of the inspector's search.
pub fn search_key(model: &mut Model, key: &KeyEvent) -> Vec<Effect> {
    model.dirty = true;
    match key.code {
        KeyCode::Enter | KeyCode::Down | KeyCode::Up => model.inspector.typing = false,
        KeyCode::Esc => {
            model.inspector.typing = false;
            model.inspector.search.clear();
        }
        KeyCode::Backspace => {
            model.inspector.search.pop();
        }
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return vec![Effect::Quit],
        KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            model.inspector.search.push(c);
            return find(model, true, false);
        }
        _ => {}
    }
    Vec::new()
}

/// Selects the next row of the inspector that matches; `beyond` leaves the selected one.
pub fn find(model: &mut Model, forward: bool, beyond: bool) -> Vec<Effect> {
    let rows = inspector_rows(model);
    let (selected, count) = (model.inspector.selected(), rows.len().max(1));
    let from = match (beyond, forward) {
        (false, _) => selected,
        (true, true) => (selected + 1) % count,
        (true, false) => (selected + count - 1) % count,
    };
    match model.inspector.find(&rows, from, forward) {
        Some(row) => select_row(model, row),
        None => Vec::new(),
    }
}
