//! Keys and named actions.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;

use super::control::command;
use super::search::{clear_filter, filter, filter_key, find, search_key};
use super::{inspector_height, inspector_rows, seek};
use crate::text::{clean, counted};
use crate::viewer::action::Action;
use crate::viewer::external::Program;
use crate::viewer::graph::Density;
use crate::viewer::inspector::rows::Action as RowAction;
use crate::viewer::inspector::{Inspector, Tab};
use crate::viewer::message::{Command, Effect};
use crate::viewer::model::Model;
use crate::viewer::popup::{Popup, Reply};
use crate::viewer::run::Run;
use crate::viewer::screen::{BrowserSize, Part};
use crate::viewer::theme::Theme;

/// Takes a key.
pub fn press(model: &mut Model, key: &KeyEvent) -> Vec<Effect> {
    if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
        return vec![Effect::Quit];
    }
    if let Some(popup) = &mut model.popup {
        model.dirty = true;
        let screen = Rect::new(0, 0, model.size.0, model.size.1);
        let reply = popup.key(key, screen);
        return answer(model, reply);
    }
    if model.browser.line.typing {
        return filter_key(model, key);
    }
    if model.inspector.typing {
        return search_key(model, key);
    }
    match model.keys.find(key) {
        Some(action) => act(model, action),
        None => Vec::new(),
    }
}

/// Takes pasted text.
pub fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    if let Some(popup) = &mut model.popup {
        popup.paste(text);
    } else if model.inspector.typing {
        model.inspector.search.push_str(&clean(text));
    } else if model.browser.line.typing {
        let text = format!("{}{}", model.browser.line.text, clean(text));
        return filter(model, text);
    }
    Vec::new()
}

/// Carries out what a popup wants.
pub fn answer(model: &mut Model, reply: Reply) -> Vec<Effect> {
    match reply {
        Reply::Stay => Vec::new(),
        Reply::Close => {
            model.popup = None;
            Vec::new()
        }
        Reply::Act(action) => {
            model.popup = None;
            act(model, action)
        }
        Reply::Send {
            run_id,
            revision,
            command,
        } => {
            // What was true when the popup opened may be stale by now.
            let run = model.run.as_ref().filter(|run| run.run_id == run_id);
            if run.is_some_and(|run| !run.is_live()) {
                // It stays open: what was typed is not lost, and can be sent once the view is live again.
                model.toast(super::control::STALE, true);
                return Vec::new();
            }
            let offered = run.is_some_and(|run| run.offers(command.control()));
            model.popup = None;
            if !offered {
                model.toast(&format!("{} is not on offer any more", command.control()), true);
                return Vec::new();
            }
            vec![Effect::Command {
                run_id,
                revision,
                command,
            }]
        }
        Reply::Preview(index) => {
            if let Some(theme) = Theme::names().nth(index).and_then(|key| model.choice.load(key).ok()) {
                model.theme = theme;
            }
            Vec::new()
        }
        Reply::Keep(index) => {
            model.popup = None;
            let kept = Theme::names().nth(index).map(|key| model.choice.keep(key));
            kept.map(Effect::Save).into_iter().collect()
        }
        Reply::Restore(theme) => {
            model.theme = *theme;
            model.popup = None;
            Vec::new()
        }
    }
}

/// Carries out an action.
pub fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let effects = change(model, action);
    model.inspector.forget();
    effects
}

fn change(model: &mut Model, action: Action) -> Vec<Effect> {
    model.dirty = true;
    match action {
        Action::Quit => return vec![Effect::Quit],
        Action::Suspend => return vec![Effect::Suspend],
        Action::Help => {
            model.popup = Some(Popup::Help {
                part: model.focus,
                top: 0,
            });
        }
        Action::Palette => {
            model.popup = Some(Popup::Palette {
                text: String::new(),
                selected: 0,
            });
        }
        Action::Themes => {
            let before = Box::new(model.theme.clone());
            let selected = Theme::names()
                .position(|key| Theme::load(key, before.depth).is_ok_and(|theme| theme.name == before.name));
            model.popup = Some(Popup::Themes {
                before,
                selected: selected.unwrap_or(0),
            });
        }
        Action::NextPart => model.focus = next_part(model, 1),
        Action::PreviousPart => model.focus = next_part(model, 2),
        Action::Back => return back(model),
        Action::Search if model.focus == Part::Inspector => {
            model.inspector.search.clear();
            model.inspector.typing = true;
        }
        Action::NextMatch => return find(model, true, true),
        Action::PreviousMatch => return find(model, false, true),
        Action::Search => {
            if model.fixed.is_none() {
                model.focus = Part::Browser;
                model.wishes.browser = BrowserSize::Full;
                model.wishes.zoom = None;
                model.browser.line.typing = true;
            }
        }
        Action::ClearFilter => return clear_filter(model),
        Action::Up => return step_in(model, 0, -1),
        Action::Down => return step_in(model, 0, 1),
        Action::Left => return step_in(model, -1, 0),
        Action::Right => return step_in(model, 1, 0),
        Action::PageUp => return page(model, -1),
        Action::PageDown => return page(model, 1),
        Action::First => return end(model, false),
        Action::Last => return end(model, true),
        Action::Open => return open(model),
        Action::StepBack | Action::StepForward => return step_in_time(model, action == Action::StepForward),
        Action::Play => return play(model),
        Action::Slower => model.playback.speed = model.playback.speed.saturating_sub(1).max(1),
        Action::Faster => model.playback.speed = (model.playback.speed + 1).min(10),
        Action::Live => {
            model.playback.playing = false;
            return seek(model, None);
        }
        Action::ShowTab(tab) => show_tab(model, tab),
        Action::NextTab => {
            let at = Tab::ALL.iter().position(|tab| *tab == model.inspector.tab).unwrap_or(0);
            show_tab(model, Tab::ALL[(at + 1) % Tab::ALL.len()]);
        }
        Action::OlderPage => return turn_page(model, false),
        Action::NewerPage => return turn_page(model, true),
        Action::TraceScope => trace_scope(model),
        Action::Copy => return copy(model),
        Action::Page => return super::open::open(model, Program::Pager),
        Action::Edit => return super::open::open(model, Program::Editor),
        Action::ToggleBrowser => toggle_browser(model),
        Action::Follow => model.graph.follow = !model.graph.follow,
        Action::NextDensity => choose_density(model, model.graph.density.next()),
        Action::Roomier => choose_density(model, nearby(model.graph.density, -1)),
        Action::Denser => choose_density(model, nearby(model.graph.density, 1)),
        Action::ResetView => {
            model.graph.chosen = false;
            model.graph.follow = true;
            model.graph.selected = None;
        }
        Action::Zoom => {
            model.wishes.zoom = if model.wishes.zoom.is_some() {
                None
            } else {
                Some(model.focus)
            };
        }
        Action::Fold => fold(model),
        Action::Pause => return command(model, Command::Pause),
        Action::Resume => return command(model, Command::Resume),
        Action::Cancel => return command(model, Command::Cancel),
        Action::Restart => return command(model, Command::Restart),
        Action::Answer => return command(model, Command::Answer(serde_json::Value::Null)),
        Action::Review => super::control::review(model),
        Action::Hosts => hosts(model),
    }
    Vec::new()
}

/// Says of every host that is not connected why, whole.
fn hosts(model: &mut Model) {
    let troubles = model.hosts.iter().filter_map(|(_, host)| host.trouble());
    let troubles: Vec<String> = troubles.collect();
    if troubles.is_empty() {
        model.toast("nothing is wrong with a host", false);
    }
    for trouble in troubles {
        model.toast(&trouble, true);
    }
}

fn next_part(model: &Model, by: usize) -> Part {
    let browser = model.wishes.browser != BrowserSize::Hidden;
    let parts: &[Part] = if browser {
        &[Part::Browser, Part::Graph, Part::Inspector]
    } else {
        &[Part::Graph, Part::Inspector]
    };
    let at = parts.iter().position(|part| *part == model.focus).unwrap_or(0);
    parts[(at + if by == 1 { 1 } else { parts.len() - 1 }) % parts.len()]
}

fn back(model: &mut Model) -> Vec<Effect> {
    if model.wishes.zoom.take().is_some() {
        return Vec::new();
    }
    if model.browser.line.is_active() && model.focus == Part::Browser {
        return clear_filter(model);
    }
    if model.focus == Part::Inspector && !model.inspector.search.is_empty() {
        model.inspector.search.clear();
        return Vec::new();
    }
    if model.graph.selected.take().is_some() {
        return Vec::new();
    }
    if model.run.as_ref().is_some_and(|run| run.cursor.is_some()) {
        model.playback.playing = false;
        return seek(model, None);
    }
    model.focus = if model.wishes.browser == BrowserSize::Hidden {
        Part::Graph
    } else {
        Part::Browser
    };
    Vec::new()
}

fn step_in(model: &mut Model, dx: i32, dy: i32) -> Vec<Effect> {
    match model.focus {
        Part::Browser if dy != 0 => {
            let index = model.browser.selected.saturating_add_signed(i64::from(dy));
            select_run(model, index)
        }
        Part::Browser => {
            if dx > 0 {
                model.focus = Part::Graph;
            }
            Vec::new()
        }
        Part::Graph => {
            move_selection(model, dx, dy);
            Vec::new()
        }
        Part::Inspector if dy != 0 => {
            let row = model.inspector.selected().saturating_add_signed(dy as isize);
            select_row(model, row)
        }
        Part::Inspector => {
            let at = Tab::ALL.iter().position(|tab| *tab == model.inspector.tab).unwrap_or(0);
            let count = Tab::ALL.len();
            show_tab(model, Tab::ALL[(at + if dx > 0 { 1 } else { count - 1 }) % count]);
            Vec::new()
        }
    }
}

fn move_selection(model: &mut Model, dx: i32, dy: i32) {
    let Some((run, screen)) = model.run.as_ref().zip(model.screen()) else {
        return;
    };
    let Some(drawing) = run.drawing(model.graph.density).cloned() else {
        return;
    };
    if let Some(node) = model.graph.neighbour(run, dx, dy) {
        model.graph.selected = Some(node);
        model.graph.follow = false;
        model.graph.reveal(node, &drawing, screen.graph, false);
    } else {
        model.graph.pan(dx * 6, dy * 3, &drawing, screen.graph);
    }
}

/// Selects a run of the browser.
pub fn select_run(model: &mut Model, index: u64) -> Vec<Effect> {
    let height = model.browser_rows();
    let changed = model.browser.select(index, height);
    if changed {
        super::data::open_selected(model).into_iter().collect()
    } else {
        Vec::new()
    }
}

/// Selects a row of the inspector; in the Steps tab the step's node is selected in the graph.
pub fn select_row(model: &mut Model, row: usize) -> Vec<Effect> {
    let rows = inspector_rows(model);
    let height = inspector_height(model);
    model.inspector.select(row, rows.len(), height);
    let step = rows.get(model.inspector.selected()).and_then(|row| row.step);
    model.inspector.chosen = step.or(model.inspector.chosen);
    if let Some((run, screen)) = model.run.as_ref().zip(model.screen())
        && let Some(step) = step
        && let Some(node) = run
            .step(step)
            .and_then(|step| run.graph.as_ref()?.node(&step.step.node_id))
        && let Some(drawing) = run.drawing(model.graph.density).cloned()
    {
        model.graph.selected = Some(node);
        model.graph.reveal(node, &drawing, screen.graph, true);
    }
    Vec::new()
}

fn page(model: &mut Model, ways: i32) -> Vec<Effect> {
    match model.focus {
        Part::Browser => {
            let rows = model.browser_rows() as i64;
            let index = model.browser.selected.saturating_add_signed(rows * i64::from(ways));
            select_run(model, index)
        }
        Part::Graph => {
            let Some((run, screen)) = model.run.as_ref().zip(model.screen()) else {
                return Vec::new();
            };
            if let Some(drawing) = run.drawing(model.graph.density).cloned() {
                model.graph.pan(
                    0,
                    ways * i32::from(screen.graph.height.saturating_sub(4)),
                    &drawing,
                    screen.graph,
                );
            }
            Vec::new()
        }
        Part::Inspector => {
            let by = inspector_height(model) as isize * ways as isize;
            let row = model.inspector.selected().saturating_add_signed(by);
            select_row(model, row)
        }
    }
}

fn end(model: &mut Model, last: bool) -> Vec<Effect> {
    if last && model.run.as_ref().is_some_and(|run| run.cursor.is_some()) {
        model.playback.playing = false;
        return seek(model, None);
    }
    match model.focus {
        Part::Browser => select_run(model, if last { u64::MAX } else { 0 }),
        Part::Graph => {
            let Some((run, screen)) = model.run.as_ref().zip(model.screen()) else {
                return Vec::new();
            };
            if let Some(drawing) = run.drawing(model.graph.density).cloned() {
                let rows = if last { drawing.height } else { -drawing.height };
                model.graph.pan(0, rows, &drawing, screen.graph);
            }
            Vec::new()
        }
        Part::Inspector => select_row(model, if last { usize::MAX } else { 0 }),
    }
}

fn open(model: &mut Model) -> Vec<Effect> {
    match model.focus {
        Part::Browser => {
            model.focus = Part::Graph;
            Vec::new()
        }
        Part::Graph => {
            inspect_node(model);
            Vec::new()
        }
        Part::Inspector => {
            let rows = inspector_rows(model);
            let action = Inspector::action(&rows, model.inspector.selected());
            carry_out(model, action)
        }
    }
}

/// Opens the newest known step of the selected node in the Steps tab.
pub fn inspect_node(model: &mut Model) {
    let Some(run) = &model.run else { return };
    let Some(node) = model.graph.selected.or_else(|| run.focus_node()) else {
        return;
    };
    let Some(id) = run.graph.as_ref().map(|graph| graph.nodes[node].id.clone()) else {
        return;
    };
    let (start, steps) = run.steps();
    let index = steps
        .iter()
        .rposition(|step| step.step.node_id == id)
        .map(|at| start + at as u64);
    model.focus = Part::Inspector;
    show_tab(model, Tab::Steps);
    match index {
        Some(index) => {
            model.inspector.stay_at_end(Tab::Steps, false);
            model
                .inspector
                .toggled
                .insert(crate::viewer::inspector::steps::key(index));
            model.inspector.forget();
            let rows = inspector_rows(model);
            if let Some(at) = rows.iter().position(|row| row.step == Some(index)) {
                let height = inspector_height(model);
                model.inspector.select(rows.len(), rows.len(), height);
                model.inspector.select(at, rows.len(), height);
            }
        }
        None => model.toast("this node has no finished step here", false),
    }
}

/// Carries out what a row of the inspector offers.
pub fn carry_out(model: &mut Model, action: Option<RowAction>) -> Vec<Effect> {
    match action {
        Some(RowAction::Toggle(key)) => {
            model.inspector.toggle(&key);
            let tab = model.inspector.tab;
            model.inspector.stay_at_end(tab, false);
            Vec::new()
        }
        Some(RowAction::Fetch(reference)) => fetch(model, &reference),
        Some(RowAction::OpenWhole(key, reference)) => {
            model.inspector.toggle(&key);
            let tab = model.inspector.tab;
            model.inspector.stay_at_end(tab, false);
            fetch(model, &reference)
        }
        Some(RowAction::Seek(step)) => seek(model, Some(step)),
        Some(RowAction::Act(action)) => act(model, action),
        None => Vec::new(),
    }
}

fn fetch(model: &mut Model, reference: &piw_protocol::view::ArtifactRef) -> Vec<Effect> {
    let run = model.run.as_mut();
    run.and_then(|run| run.want_content(reference)).into_iter().collect()
}

fn step_in_time(model: &mut Model, forward: bool) -> Vec<Effect> {
    model.playback.playing = false;
    let Some(run) = &model.run else { return Vec::new() };
    let total = run.positions();
    let cursor = match (run.cursor, forward) {
        (None, true) => None,
        (None, false) => total.checked_sub(1),
        (Some(cursor), true) => Some(cursor + 1).filter(|cursor| *cursor < total),
        (Some(cursor), false) => Some(cursor.saturating_sub(1)),
    };
    seek(model, cursor)
}

fn play(model: &mut Model) -> Vec<Effect> {
    let Some(run) = &model.run else { return Vec::new() };
    model.playback.playing = !model.playback.playing && run.positions() > 0;
    model.play_at = model.now + 1000 / i64::from(model.playback.speed.max(1));
    if model.playback.playing && run.cursor.is_none() {
        return seek(model, Some(0));
    }
    Vec::new()
}

/// Shows a tab.
pub fn show_tab(model: &mut Model, tab: Tab) {
    model.inspector.tab = tab;
    if model.wishes.zoom.is_none() {
        model.focus = Part::Inspector;
    }
}

fn turn_page(model: &mut Model, newer: bool) -> Vec<Effect> {
    let page = piw_protocol::view::PAGE_ITEMS as u64;
    let Some(run) = &mut model.run else { return Vec::new() };
    if model.inspector.tab == Tab::Trace {
        return run.turn_trace(newer).into_iter().collect();
    }
    if model.inspector.tab == Tab::Conversation {
        let effect = run.turn_entries(newer);
        model.inspector.stay_at_end(Tab::Conversation, false);
        return effect.into_iter().collect();
    }
    let total = run.positions();
    let cursor = match (run.cursor, newer) {
        (None, true) => return Vec::new(),
        (None, false) => total.checked_sub(page.min(total)),
        (Some(cursor), true) => Some(cursor + page).filter(|cursor| *cursor < total),
        (Some(cursor), false) => Some(cursor.saturating_sub(page)),
    };
    seek(model, cursor)
}

/// The next scope of the trace; from another tab the trace is shown first.
fn trace_scope(model: &mut Model) {
    if model.inspector.tab == Tab::Trace {
        model.inspector.scope = model.inspector.scope.next();
        model.inspector.select(0, 1, 1);
    } else {
        show_tab(model, Tab::Trace);
    }
}

fn copy(model: &mut Model) -> Vec<Effect> {
    let text = match model.focus {
        Part::Browser => model.browser.selected_id.as_ref().map(|run| run.id.clone()),
        Part::Graph => {
            let graph = model.run.as_ref().and_then(|run| run.graph.as_ref());
            graph
                .zip(model.graph.selected)
                .map(|(graph, node)| graph.nodes[node].id.clone())
        }
        Part::Inspector => {
            let rows = inspector_rows(model);
            rows.get(model.inspector.selected()).map(|row| {
                let copy = row.copy.clone().or_else(|| super::open::value(model));
                copy.unwrap_or_else(|| row.line.to_string())
            })
        }
    };
    match text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()) {
        Some(text) => {
            model.toast(
                &format!("copied {}", counted(text.chars().count() as u64, "character")),
                false,
            );
            vec![Effect::Copy(text)]
        }
        None => Vec::new(),
    }
}

fn toggle_browser(model: &mut Model) {
    let rail = model.screen().is_some_and(|screen| screen.rail);
    let shown = model.screen().is_some_and(|screen| screen.browser.is_some());
    model.wishes.browser = match (shown, rail) {
        (false, _) => BrowserSize::Full,
        (true, false) => BrowserSize::Rail,
        (true, true) => BrowserSize::Hidden,
    };
    if model.wishes.browser == BrowserSize::Hidden && model.focus == Part::Browser {
        model.focus = Part::Graph;
    }
}

fn nearby(density: Density, by: isize) -> Density {
    let at = Density::ALL.iter().position(|known| *known == density).unwrap_or(0);
    Density::ALL[at.saturating_add_signed(by).min(Density::ALL.len() - 1)]
}

fn choose_density(model: &mut Model, density: Density) {
    let keep = model
        .graph
        .selected
        .or_else(|| model.run.as_ref().and_then(Run::focus_node));
    model.graph.density = density;
    model.graph.chosen = true;
    if let Some((run, screen)) = model.run.as_ref().zip(model.screen())
        && let Some(drawing) = run.drawing(density).cloned()
        && let Some(node) = keep
    {
        model.graph.reveal(node, &drawing, screen.graph, true);
    }
}

fn fold(model: &mut Model) {
    let Some(run) = &mut model.run else { return };
    let Some(graph) = run.graph.clone() else { return };
    let node = model.graph.selected.or_else(|| run.focus_node());
    let around = node.and_then(|node| {
        // The outermost folded group around the node is what is seen; else the innermost open one.
        graph
            .around(node)
            .filter(|group| run.folded.contains(group))
            .last()
            .or_else(|| graph.around(node).next())
    });
    match around {
        Some(group) => toggle_fold(run, group),
        None => model.toast("the selected node is in no include", false),
    }
}

/// Folds or unfolds a group.
pub fn toggle_fold(run: &mut Run, group: usize) {
    if !run.folded.remove(&group) {
        run.folded.insert(group);
    }
}
