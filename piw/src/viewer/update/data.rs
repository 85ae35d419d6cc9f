//! What the server sent.

use piw_protocol::client::Freshness;
use piw_protocol::ops::RunReceipt;
use piw_protocol::view::PageKind;

use crate::viewer::hosts::RunId;
use crate::viewer::message::{Command, Effect, Message};
use crate::viewer::model::Model;
use crate::viewer::run::{Loaded, Run};

/// Takes a message that is neither from the terminal nor the clock.
pub fn take(model: &mut Model, message: Message) -> Vec<Effect> {
    model.dirty = true;
    let now = model.now;
    match message {
        Message::Connection { host, state } => {
            if let Some((text, bad)) = model.hosts.take(host, state) {
                model.toast(&text, bad);
            }
            Vec::new()
        }
        Message::Runs {
            host,
            generation,
            page,
            freshness,
        } => {
            let height = model.browser_rows();
            let changed = model.browser.take(host, generation, page, freshness, height);
            if changed || model.run.is_none() {
                open_selected(model).into_iter().collect()
            } else {
                Vec::new()
            }
        }
        Message::Run {
            run_id,
            view,
            freshness,
        } => {
            let effects = match this_run(model, &run_id) {
                Some(run) => run.take_view(view, freshness, now),
                None => Vec::new(),
            };
            super::control::refresh_reviewed(model);
            effects
        }
        Message::BadView(error) | Message::Prepared(Err(error)) => {
            model.toast(&error, true);
            Vec::new()
        }
        Message::Definition { run_id, sha256, result } => {
            if let Some(run) = this_run(model, &run_id) {
                run.take_fetched(&sha256, result, now);
            }
            Vec::new()
        }
        Message::Rendered { run_id, key, document } => {
            if let Some(run) = this_run(model, &run_id) {
                run.documents.insert(key, Some(document));
            }
            Vec::new()
        }
        Message::Layout { key, drawing } => {
            if let Some(run) = &mut model.run {
                run.take_drawing(key, drawing);
            }
            Vec::new()
        }
        Message::Page {
            run_id,
            request,
            result,
        } => {
            let outcome = match this_run(model, &run_id) {
                Some(run) => run.take_page(&request, result, now),
                None => Ok(Vec::new()),
            };
            match outcome {
                Ok(effects) => {
                    let replayed = model.run.as_ref().is_some_and(|run| run.cursor.is_some());
                    if replayed && matches!(request.kind, PageKind::Steps | PageKind::SessionEvents) {
                        super::moved(model);
                    }
                    effects
                }
                Err(error) => {
                    model.toast(&error, true);
                    Vec::new()
                }
            }
        }
        Message::ContentProgress { sha256, received } => {
            if let Some(Loaded::Loading(got, _)) = model.run.as_mut().and_then(|run| run.contents.get_mut(&sha256)) {
                *got = received;
            }
            Vec::new()
        }
        Message::Content { sha256, result } => {
            let mut effects = match &mut model.run {
                Some(run) => run.take_content(&sha256, result, now),
                None => Vec::new(),
            };
            super::control::refresh_asked(model);
            effects.extend(super::open::arrived(model, &sha256));
            effects
        }
        Message::Prepared(Ok(prepared)) => vec![Effect::Show(prepared)],
        Message::NotSaved(error) => {
            model.toast(&format!("not saved: {error}"), true);
            Vec::new()
        }
        Message::Decided {
            command,
            run_id,
            result,
        } => {
            decided(model, &command, &run_id, result);
            open_selected(model).into_iter().collect()
        }
        Message::Terminal(_) | Message::Tick(_) => Vec::new(),
    }
}

fn this_run<'a>(model: &'a mut Model, run_id: &RunId) -> Option<&'a mut Run> {
    model.run.as_mut().filter(|run| run.run_id == *run_id)
}

/// Shows the run that the browser has selected.
pub fn open_selected(model: &mut Model) -> Option<Effect> {
    if model.fixed.is_some() {
        return None;
    }
    let wanted = model.browser.selected_id.clone();
    if model.run.as_ref().map(|run| &run.run_id) == wanted.as_ref() {
        return None;
    }
    let wanted = wanted?;
    model.run = Some(Run::new(wanted.clone()));
    model.graph.selected = None;
    model.graph.follow = true;
    model.playback.playing = false;
    model.opening = None;
    model.inspector = model.inspector.for_new_run();
    Some(Effect::WatchRun(Some(wanted)))
}

fn decided(model: &mut Model, command: &Command, run_id: &RunId, result: Result<RunReceipt, String>) {
    let name = command.control();
    match result {
        Ok(receipt) => {
            let status = if receipt.paused {
                "paused".to_owned()
            } else {
                format!("{:?}", receipt.status).to_lowercase()
            };
            let more = match (&receipt.message, &receipt.new_run_id) {
                (Some(message), _) => format!(": {message}"),
                (None, Some(new)) => format!(": new run {new}"),
                (None, None) => String::new(),
            };
            model.toast(&format!("{name}: accepted, run is {status}{more}"), false);
            let shown = model
                .run
                .as_ref()
                .is_some_and(|run| run.run_id == *run_id && run.freshness == Freshness::Live);
            if let Some(new) = receipt.new_run_id.filter(|_| shown && model.fixed.is_none()) {
                // The new run is what happens now. The selection goes there when the list shows it.
                model.browser.selected_id = Some(RunId {
                    host: run_id.host,
                    id: new,
                });
            }
        }
        Err(error) => model.toast(&format!("{name}: {error}"), true),
    }
}
