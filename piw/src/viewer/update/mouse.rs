//! The mouse: everything that keys reach can be clicked, dragged or scrolled.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::keys::{self, carry_out, select_row, select_run, show_tab, toggle_fold};
use super::{inspector_height, inspector_rows, seek};
use crate::viewer::action::Action;
use crate::viewer::config::Setting;
use crate::viewer::hosts::HostId;
use crate::viewer::inspector::Inspector;
use crate::viewer::message::Effect;
use crate::viewer::model::{Drag, Model};
use crate::viewer::popup::{Look, Popup, Reply, help_lines};
use crate::viewer::screen::{Part, Screen, inside};
use crate::viewer::timeline;

/// Rows a wheel click scrolls.
const WHEEL: i64 = 3;

/// Takes a mouse event.
pub fn take(model: &mut Model, mouse: MouseEvent) -> Vec<Effect> {
    let Some(screen) = model.screen() else {
        return Vec::new();
    };
    let at = Position::new(mouse.column, mouse.row);
    if model.popup.is_some() {
        return popup(model, mouse.kind, at);
    }
    match mouse.kind {
        MouseEventKind::Down(MouseButton::Left) => {
            model.dirty = true;
            press(model, &screen, at)
        }
        MouseEventKind::Drag(MouseButton::Left) => {
            model.dirty |= model.drag.is_some();
            drag(model, &screen, at)
        }
        MouseEventKind::Up(_) => match model.drag.take() {
            Some(Drag::Sidebar | Drag::Split) => vec![Effect::Save(Setting::Sizes {
                sidebar: model.wishes.sidebar,
                inspector: model.wishes.inspector,
            })],
            _ => Vec::new(),
        },
        MouseEventKind::ScrollUp => wheel(model, &screen, at, 0, -1),
        MouseEventKind::ScrollDown => wheel(model, &screen, at, 0, 1),
        MouseEventKind::ScrollLeft => wheel(model, &screen, at, -1, 0),
        MouseEventKind::ScrollRight => wheel(model, &screen, at, 1, 0),
        MouseEventKind::Down(_) | MouseEventKind::Drag(_) | MouseEventKind::Moved => Vec::new(),
    }
}

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

fn popup(model: &mut Model, kind: MouseEventKind, at: Position) -> Vec<Effect> {
    let whole = Rect::new(0, 0, model.size.0, model.size.1);
    let on_help = help_row(model, whole, at).filter(|_| kind == MouseEventKind::Down(MouseButton::Left));
    let Some(popup) = &mut model.popup else {
        return Vec::new();
    };
    let area = popup.area(whole);
    let inner = inside(area);
    if let Some(action) = on_help {
        model.popup = None;
        return keys::act(model, action);
    }
    if let (Popup::Answer { asked, .. }, MouseEventKind::ScrollUp | MouseEventKind::ScrollDown) = (&mut *popup, kind) {
        asked.scroll(if kind == MouseEventKind::ScrollUp { -3 } else { 3 }, whole);
        model.dirty = true;
        return Vec::new();
    }
    let press = match kind {
        MouseEventKind::ScrollUp => key(KeyCode::Up),
        MouseEventKind::ScrollDown => key(KeyCode::Down),
        MouseEventKind::Down(MouseButton::Left) if !area.contains(at) => key(KeyCode::Esc),
        MouseEventKind::Down(MouseButton::Left) => {
            let row = usize::from(at.y.saturating_sub(inner.y));
            match popup {
                Popup::Confirm { .. } if at.y + 1 == inner.bottom() => {
                    key(KeyCode::Char(if at.x < inner.x + 10 { 'y' } else { 'n' }))
                }
                Popup::Answer { editor, .. } => match crate::viewer::popup::answer::button(editor, area, at) {
                    Some(code) => key(code),
                    None => return Vec::new(),
                },
                Popup::Review { reviewed, .. } => match reviewed.click(whole, at) {
                    Some(code) => key(code),
                    None => return Vec::new(),
                },
                Popup::Palette { text, selected } if row >= 2 => {
                    let height = usize::from(inner.height.saturating_sub(2));
                    let index = (*selected + 1).saturating_sub(height) + row - 2;
                    if index >= Popup::matches(text).len() {
                        return Vec::new();
                    }
                    *selected = index;
                    key(KeyCode::Enter)
                }
                Popup::Themes { selected, .. } => {
                    let index = (*selected + 1).saturating_sub(usize::from(inner.height)) + row;
                    if !inner.contains(at) || index >= crate::viewer::theme::Theme::names().count() {
                        return Vec::new();
                    }
                    // The first click shows a theme, another one on it keeps it.
                    let again = *selected == index;
                    *selected = index;
                    model.dirty = true;
                    return keys::answer(
                        model,
                        if again {
                            Reply::Keep(index)
                        } else {
                            Reply::Preview(index)
                        },
                    );
                }
                _ => return Vec::new(),
            }
        }
        _ => return Vec::new(),
    };
    model.dirty = true;
    let reply = popup.key(&press, whole);
    keys::answer(model, reply)
}

/// The action of the row of the help below the pointer.
fn help_row(model: &Model, whole: Rect, at: Position) -> Option<Action> {
    let Some(popup @ Popup::Help { part, top }) = &model.popup else {
        return None;
    };
    let inner = inside(popup.area(whole));
    if !inner.contains(at) {
        return None;
    }
    let look = Look {
        theme: &model.theme,
        keys: &model.keys,
        problems: &model.problems,
    };
    let lines = help_lines(*part, &look, usize::from(inner.width));
    let top = (*top).min(lines.len().saturating_sub(usize::from(inner.height)));
    lines
        .get(top + usize::from(at.y - inner.y))
        .and_then(|(_, action)| *action)
}

fn press(model: &mut Model, screen: &Screen, at: Position) -> Vec<Effect> {
    // A click ends typing as Enter does.
    model.inspector.typing = false;
    let clear = screen.browser.and_then(|area| model.browser.clear_button(area));
    if clear.is_some_and(|button| button.contains(at)) {
        return keys::act(model, Action::ClearFilter);
    }
    if screen.browser.is_none_or(|area| at.y != area.y || !area.contains(at)) {
        model.browser.line.leave();
    }
    if let Some(browser) = screen.browser.filter(|area| area.contains(at)) {
        if at.x + 1 == browser.right() && !screen.rail {
            model.drag = Some(Drag::Sidebar);
            return Vec::new();
        }
        model.focus = Part::Browser;
        let inner = model.browser.rows_area(browser);
        if let Some(hosts) = model.browser.hosts_area(browser).filter(|area| area.contains(at)) {
            host(model, HostId(usize::from(at.y - hosts.y)));
        } else if inner.contains(at) {
            let index = model.browser.top + u64::from(at.y - inner.y);
            if index < model.browser.total() {
                return select_run(model, index);
            }
        } else if at.y == browser.y {
            return keys::act(model, Action::Search);
        }
        return Vec::new();
    }
    if screen.timeline.contains(at) {
        if screen.timeline.height < 2 && at.x + timeline::HELP >= screen.timeline.right() {
            return hint(model, screen.timeline, at);
        }
        let total = model.run.as_ref().map_or(0, crate::viewer::run::Run::positions);
        if at.y == screen.timeline.y
            && let Some(step) = timeline::step_at(screen.timeline, at.x, total)
        {
            model.drag = Some(Drag::Playhead);
            model.playback.playing = false;
            return seek(model, Some(step));
        }
        return hint(model, screen.timeline, at);
    }
    let on_split = if screen.beside {
        at.x == screen.inspector.x
    } else {
        at.y == screen.inspector.y
    };
    if screen.inspector.contains(at) {
        return press_inspector(model, screen, at, on_split);
    }
    if screen.graph.contains(at) {
        model.focus = Part::Graph;
        return press_graph(model, screen, at);
    }
    Vec::new()
}

/// A click on a host says what is wrong with it, whole.
fn host(model: &mut Model, id: HostId) {
    if let Some(trouble) = model.hosts.get(id).trouble() {
        model.toast(&trouble, true);
    }
}

/// The hints at the right end of the timeline are buttons.
fn hint(model: &mut Model, area: Rect, at: Position) -> Vec<Effect> {
    if area.height < 2 {
        let on_help = at.x + timeline::HELP >= area.right();
        return if on_help {
            keys::act(model, Action::Help)
        } else {
            Vec::new()
        };
    }
    if at.y != area.y + 1 {
        return Vec::new();
    }
    let buttons = crate::viewer::draw::hint_buttons(model, area);
    let hit = buttons
        .into_iter()
        .find(|(x, columns, _)| at.x >= *x && at.x < x + columns);
    hit.map_or_else(Vec::new, |(_, _, action)| keys::act(model, action))
}

fn press_inspector(model: &mut Model, screen: &Screen, at: Position, on_split: bool) -> Vec<Effect> {
    let area = screen.inspector;
    if at.y == area.y {
        let (_, tabs) = model.inspector.title(&model.theme, area.width.saturating_sub(2));
        let column = at.x.saturating_sub(area.x + 1);
        if let Some((tab, ..)) = tabs
            .into_iter()
            .find(|(_, x, columns)| column >= *x && column < x + columns)
        {
            show_tab(model, tab);
            return Vec::new();
        }
    }
    if on_split {
        model.drag = Some(Drag::Split);
        return Vec::new();
    }
    model.focus = Part::Inspector;
    let inner = inside(area);
    if !inner.contains(at) {
        return Vec::new();
    }
    let rows = inspector_rows(model);
    let row = model.inspector.top() + usize::from(at.y - inner.y);
    if row >= rows.len() {
        return Vec::new();
    }
    select_row(model, row);
    carry_out(model, Inspector::action(&rows, row))
}

fn press_graph(model: &mut Model, screen: &Screen, at: Position) -> Vec<Effect> {
    let Some(run) = &mut model.run else { return Vec::new() };
    if let Some(node) = model.graph.node_at(run, screen.graph, at.x, at.y) {
        let again = model.graph.selected == Some(node);
        model.graph.selected = Some(node);
        model.graph.follow = false;
        if again {
            keys::inspect_node(model);
        }
    } else if let Some(group) = model.graph.group_at(run, screen.graph, at.x, at.y) {
        toggle_fold(run, group);
    } else {
        model.graph.selected = None;
    }
    model.drag = Some(Drag::Graph(at.x, at.y));
    Vec::new()
}

fn drag(model: &mut Model, screen: &Screen, at: Position) -> Vec<Effect> {
    match model.drag {
        Some(Drag::Playhead) => {
            let total = model.run.as_ref().map_or(0, crate::viewer::run::Run::positions);
            timeline::step_at(screen.timeline, at.x, total).map_or_else(Vec::new, |step| seek(model, Some(step)))
        }
        Some(Drag::Graph(x, y)) => {
            let (dx, dy) = (i32::from(x) - i32::from(at.x), i32::from(y) - i32::from(at.y));
            if let Some(drawing) = model
                .run
                .as_ref()
                .and_then(|run| run.drawing(model.graph.density))
                .cloned()
                && (dx, dy) != (0, 0)
            {
                model.graph.pan(dx, dy, &drawing, screen.graph);
            }
            model.drag = Some(Drag::Graph(at.x, at.y));
            Vec::new()
        }
        Some(Drag::Sidebar) => {
            model.wishes.sidebar = (at.x + 1).clamp(16, (model.size.0 / 2).max(16));
            Vec::new()
        }
        Some(Drag::Split) => {
            model.wishes.inspector = if screen.beside {
                screen.inspector.right().saturating_sub(at.x)
            } else {
                screen.inspector.bottom().saturating_sub(at.y)
            }
            .max(1);
            Vec::new()
        }
        None => Vec::new(),
    }
}

fn wheel(model: &mut Model, screen: &Screen, at: Position, dx: i32, dy: i32) -> Vec<Effect> {
    model.dirty = true;
    if screen.browser.is_some_and(|area| area.contains(at)) {
        let height = model.browser_rows();
        model.browser.scroll(WHEEL * i64::from(dy), height);
        return Vec::new();
    }
    if screen.inspector.contains(at) {
        let rows = inspector_rows(model).len();
        let height = inspector_height(model);
        model.inspector.scroll(WHEEL as isize * dy as isize, rows, height);
    } else if screen.graph.contains(at) {
        if let Some(drawing) = model
            .run
            .as_ref()
            .and_then(|run| run.drawing(model.graph.density))
            .cloned()
        {
            model.graph.pan(dx * 6, dy * 2, &drawing, screen.graph);
        }
    } else if screen.timeline.contains(at) {
        let action = if dy > 0 { Action::StepForward } else { Action::StepBack };
        return keys::act(model, action);
    }
    Vec::new()
}
