//! The only writer of the model: every message changes it here or in a child module, and says what to do outside.

mod control;
mod data;
mod keys;
mod mouse;
mod open;
mod search;

use std::sync::Arc;

use crossterm::event::{Event, KeyEventKind};

#[cfg(test)]
pub(super) use self::keys::act;

use super::background::Heard;
use super::graph_panel::{AUTOMATIC, GraphPanel};
use super::inspector::Tab;
use super::inspector::rows::Row;
use super::message::{Effect, Message};
use super::model::Model;
use super::popup::Popup;
use super::run::Run;
use super::run::trace::{Attempt, Scope, Subject};
use super::screen::inside;
use super::theme::Appearance;

/// Applies a message.
pub fn update(model: &mut Model, message: Message) -> Vec<Effect> {
    let mut effects = match message {
        Message::Tick(now) => tick(model, now),
        Message::Terminal(event) => terminal(model, event),
        data => data::take(model, data),
    };
    if model.dirty {
        model.inspector.forget();
    }
    effects.extend(settle(model));
    effects
}

fn terminal(model: &mut Model, event: Event) -> Vec<Effect> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => match model.answers.take(key) {
            Heard::Keys(pressed) => {
                let mut effects = Vec::new();
                for key in &pressed {
                    effects.extend(keys::press(model, key));
                    model.inspector.forget();
                }
                effects
            }
            Heard::Ground(ground) => {
                recolour(model, ground);
                Vec::new()
            }
        },
        Event::Mouse(mouse) => mouse::take(model, mouse),
        Event::Paste(text) => {
            model.dirty = true;
            keys::paste(model, &text)
        }
        Event::Resize(width, height) => {
            model.size = (width, height);
            model.drag = None;
            model.dirty = true;
            Vec::new()
        }
        Event::FocusGained => {
            model.dirty = true;
            // Terminals that follow the time of day change while nobody looks.
            if model.asks_ground {
                vec![Effect::AskGround]
            } else {
                Vec::new()
            }
        }
        Event::Key(_) | Event::FocusLost => Vec::new(),
    }
}

/// The terminal told its ground. A theme that is being picked stays; leaving the picker shows the right one.
fn recolour(model: &mut Model, ground: Appearance) {
    if !model.choice.set_ground(ground) {
        return;
    }
    let Ok(theme) = model.choice.theme() else { return };
    model.dirty = true;
    match &mut model.popup {
        Some(Popup::Themes { before, .. }) => **before = theme,
        _ => model.theme = theme,
    }
}

fn tick(model: &mut Model, now: i64) -> Vec<Effect> {
    let second = now.div_euclid(1000) != model.now.div_euclid(1000);
    model.now = now;
    let before = model.toasts.len();
    model.toasts.retain(|toast| toast.until > now);
    model.dirty |= model.toasts.len() != before;
    let clock = model.run.as_ref().is_some_and(Run::has_clock) || model.browser.has_clock(model.browser_rows());
    if clock && second {
        model.dirty = true;
        if let Some(run) = &mut model.run {
            run.refresh(now);
        }
    }
    let effects = model.browser.refresh(now);
    if !effects.is_empty() {
        return effects;
    }
    if model.playback.playing && now >= model.play_at {
        model.play_at = now + 1000 / i64::from(model.playback.speed.max(1));
        let cursor = model.run.as_ref().and_then(|run| run.cursor);
        let total = model.run.as_ref().map_or(0, Run::positions);
        return match cursor {
            Some(cursor) if cursor + 1 < total => seek(model, Some(cursor + 1)),
            _ => {
                model.playback.playing = false;
                seek(model, None)
            }
        };
    }
    Vec::new()
}

/// Moves the replay position; the selection goes along.
pub(super) fn seek(model: &mut Model, cursor: Option<u64>) -> Vec<Effect> {
    let now = model.now;
    let Some(run) = &mut model.run else { return Vec::new() };
    let effects = run.seek(cursor, now);
    moved(model);
    effects
}

/// The shown position changed: selects in the inspector what belongs to it.
pub(super) fn moved(model: &mut Model) {
    model.dirty = true;
    model.inspector.forget();
    let Some(run) = &model.run else { return };
    let (live, step) = (run.cursor.is_none(), run.shown_step());
    model.graph.selected = None;
    model.inspector.chosen = None;
    model.inspector.stay_at_end(Tab::Steps, live);
    model.inspector.stay_at_end(Tab::Conversation, true);
    if model.inspector.tab != Tab::Conversation
        && let Some(step) = step
    {
        let rows = inspector_rows(model);
        if let Some(at) = rows.iter().position(|row| row.step == Some(step)) {
            let height = inspector_height(model);
            model.inspector.select(at, rows.len(), height);
        }
    }
}

/// What the trace is about; none while that is being fetched.
fn subject(model: &Model) -> Option<Subject> {
    let run = model.run.as_ref()?;
    match model.inspector.scope {
        Scope::Prefix if run.cursor.is_some() => run.finished_steps().map(Subject::Prefix),
        Scope::Run | Scope::Prefix => Some(Subject::Run),
        Scope::Attempt => Some(attempt(model, run).map_or(Subject::NoAttempt, Subject::Attempt)),
    }
}

/// The attempt that is looked at: of the selected node the selected step, else its newest one; without a selected node the one at
/// the shown position.
fn attempt(model: &Model, run: &Run) -> Option<Attempt> {
    let graph = run.graph.as_ref()?;
    let step = |index: u64| {
        let step = &run.step(index)?.step;
        Some(Attempt {
            id: step.attempt_id.clone(),
            node: step.node_id.clone(),
            step: Some(index),
        })
    };
    let current = || {
        let state = &run.view.as_ref()?.state;
        Some(Attempt {
            id: state.current_attempt_id.clone()?,
            node: state.current_node.clone()?,
            step: None,
        })
    };
    let live = run.cursor.is_none();
    let Some(node) = model.graph.selected.map(|node| graph.nodes[node].id.as_str()) else {
        return match run.shown_step() {
            Some(shown) => step(shown),
            None if live => current().or_else(|| step(run.step_total().checked_sub(1)?)),
            None => None,
        };
    };
    let of_node = |attempt: &Attempt| attempt.node == node;
    let chosen = model.inspector.chosen.and_then(step).filter(of_node);
    let newest = || {
        let (start, steps) = run.steps();
        let shown = run.shown_step().unwrap_or(u64::MAX);
        (start..)
            .zip(steps)
            .filter(|(index, step)| *index <= shown && step.step.node_id == node)
            .last()
            .and_then(|(index, _)| step(index))
    };
    chosen
        .or_else(|| current().filter(|attempt| live && of_node(attempt)))
        .or_else(newest)
}

/// Rows of the inspector's tab as they are drawn. A handler that has changed what they are made of forgets the kept ones first.
pub(super) fn inspector_rows(model: &Model) -> Arc<[Row]> {
    let Some((columns, run)) = inspector_columns(model).zip(model.run.as_ref()) else {
        return Arc::default();
    };
    model.inspector.rows(run, &model.theme, columns, model.now)
}

/// Columns of the inspector's rows.
pub(super) fn inspector_columns(model: &Model) -> Option<usize> {
    let area = inside(model.screen()?.inspector);
    Some(usize::from(area.width.saturating_sub(1)))
}

/// Visible rows of the inspector.
pub(super) fn inspector_height(model: &Model) -> usize {
    model
        .screen()
        .map_or(1, |screen| usize::from(inside(screen.inspector).height).max(1))
}

/// After every message: asks for runs and drawings that are missing, picks the density, follows, and keeps scroll positions in
/// range.
fn settle(model: &mut Model) -> Vec<Effect> {
    if !model.dirty {
        return Vec::new();
    }
    let mut effects = Vec::new();
    let Some(screen) = model.screen() else { return effects };
    let height = model.browser_rows();
    effects.extend(model.browser.follow_window(height));
    if let Some(run) = &mut model.run {
        effects.extend(run.want_drawing(model.graph.density));
        if !model.graph.chosen {
            for density in AUTOMATIC {
                effects.extend(run.want_drawing(density));
            }
            if let Some(best) = GraphPanel::best(run, screen.graph) {
                model.graph.density = best;
            }
        }
        model.graph.settle(run, screen.graph);
    }
    match model.inspector.tab {
        Tab::Trace => {
            if let Some((subject, run)) = subject(model).zip(model.run.as_mut()) {
                effects.extend(run.want_trace(subject));
            }
        }
        Tab::Time => effects.extend(model.run.as_mut().and_then(Run::want_times)),
        Tab::Steps | Tab::Conversation | Tab::Info => {}
    }
    let height = inspector_height(model);
    if let Some((columns, run)) = inspector_columns(model).zip(model.run.as_mut())
        && model.inspector.kept(&model.theme, columns).is_none()
    {
        let built = model.inspector.build(run, &model.theme, columns, model.now, None);
        let (rows, wanted, used) = (built.rows, built.wanted, built.used);
        effects.extend(run.want_documents(wanted, &used));
        model.inspector.show(rows.len(), height);
        model.inspector.keep(rows, &model.theme, columns);
    }
    effects
}
