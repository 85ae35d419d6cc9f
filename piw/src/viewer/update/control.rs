//! Commands on the run: only what the server offers, confirmed where it cannot be undone.

use std::sync::Arc;

use piw_protocol::view::RunView;

use crate::question::Question;
use crate::text::{bytes, clean, clean_lines};
use crate::viewer::message::{Command, Effect};
use crate::viewer::model::Model;
use crate::viewer::popup::{Popup, answer::Asked, editor::Editor, review::Reviewed};
use crate::viewer::run::{Loaded, Run};

/// Lines of a summary that are shown at most.
const SUMMARY: usize = 100;

/// Why nothing is sent while the server is not there.
pub const STALE: &str = "the view is stale: nothing can be done with it";

/// Sends a command, or opens the popup that comes before it; says why when it is not on offer.
pub fn command(model: &mut Model, command: Command) -> Vec<Effect> {
    let Some(view) = offered(model, command.control()) else {
        return Vec::new();
    };
    let Some(run) = &model.run else { return Vec::new() };
    let (run_id, revision) = (run.run_id.clone(), view.run_revision);
    let title = clean(view.state.run_title.as_deref().unwrap_or(&view.state.workflow_name)).into_owned();
    match command {
        Command::Cancel => {
            let text = format!("Cancel “{title}”? It ends now and cannot be resumed.");
            model.popup = Some(Popup::Confirm {
                run_id,
                revision,
                command,
                text,
            });
        }
        Command::Restart => {
            let text = format!("Restart “{title}”? A new run starts from the beginning with the same input.");
            model.popup = Some(Popup::Confirm {
                run_id,
                revision,
                command,
                text,
            });
        }
        Command::Answer(_) => {
            let asked = asked(run, &view);
            let content = Question::of(&view).and_then(|question| question.content().cloned());
            model.popup = Some(Popup::Answer {
                run_id,
                revision,
                asked,
                editor: Editor::default(),
            });
            // A large request is fetched: nobody can answer what they cannot read.
            let fetch = content.and_then(|content| model.run.as_mut().and_then(|run| run.want_content(&content)));
            return fetch.into_iter().collect();
        }
        command => {
            return vec![Effect::Command {
                run_id,
                revision,
                command,
            }];
        }
    }
    Vec::new()
}

/// The view of the run on screen when it offers a control; otherwise says why it cannot be used.
fn offered(model: &mut Model, control: &str) -> Option<Arc<RunView>> {
    let run = model.run.as_ref()?;
    if run.offers(control) {
        return run.view.clone();
    }
    let text = if run.is_live() {
        format!("{control} is not on offer for this run")
    } else {
        STALE.into()
    };
    model.toast(&text, true);
    None
}

/// Opens the review of the effects that the server shows.
pub fn review(model: &mut Model) {
    let Some(view) = offered(model, "review") else { return };
    let Some(run_id) = model.run.as_ref().map(|run| run.run_id.clone()) else {
        return;
    };
    if let Some(review) = &view.review {
        model.popup = Some(Popup::Review {
            run_id,
            revision: view.run_revision,
            reviewed: Reviewed::new(review),
        });
    }
}

/// Keeps an open review dialog on what the server shows now; closes it when what was being decided on is settled or changed.
pub fn refresh_reviewed(model: &mut Model) {
    let Some(run) = &model.run else { return };
    let Some(view) = run.view.clone() else { return };
    if let Some(Popup::Review {
        run_id,
        revision,
        reviewed,
    }) = &mut model.popup
        && *run_id == run.run_id
        && view.run_revision != *revision
    {
        *revision = view.run_revision;
        if !reviewed.refresh(view.review.as_ref()) {
            model.popup = None;
            model.toast("the effect was settled meanwhile", false);
        }
    }
}

/// Shows in an open answer dialog what has arrived since; what was typed and the scroll position stay.
pub fn refresh_asked(model: &mut Model) {
    let Some(run) = &model.run else { return };
    if let Some(Popup::Answer {
        run_id,
        revision,
        asked: shown,
        ..
    }) = &mut model.popup
        && *run_id == run.run_id
        && let Some(view) = &run.view
        && view.run_revision == *revision
    {
        *shown = Asked {
            top: shown.top,
            ..asked(run, view)
        };
    }
}

/// What a checkpoint asks: the summary and the request of the waiting attempt, and what the answer decides.
fn asked(run: &Run, view: &RunView) -> Asked {
    let question = Question::of(view).map(|question| run.filled(question));
    let id = view.state.waiting_on.as_deref().unwrap_or_default();
    let graph = run.graph.as_ref();
    let node = graph.and_then(|graph| graph.node(id).map(|index| &graph.nodes[index]));
    let reason = view.display.reason.as_deref().unwrap_or("an answer is wanted");
    let summary = question.as_ref().and_then(|question| question.summary.as_deref());
    let summary = summary.or_else(|| node.and_then(|node| node.summary.as_deref()));
    let (mut lines, _) = clean_lines(&format!("{id}: {}", summary.unwrap_or(reason)), SUMMARY);
    if let Some(question) = question {
        let mut request = question.request_lines();
        if let Some(content) = question.content() {
            request.push(match run.contents.get(&content.sha256) {
                Some(Loaded::Failed(error)) => format!("the request cannot be shown: {}", clean(error)),
                _ => format!("loading the request, {} …", bytes(content.bytes)),
            });
        }
        if !request.is_empty() {
            lines.push(String::new());
            lines.append(&mut request);
        }
    }
    Asked {
        lines,
        hints: decides(run, id),
        top: 0,
    }
}

/// What the answer decides, with an example, when a branch follows the node.
fn decides(run: &Run, id: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let Some((graph, index)) = run.graph.as_ref().and_then(|graph| Some((graph, graph.node(id)?))) else {
        return lines;
    };
    let ways = graph.edges.iter().filter(|edge| edge.from == index);
    let labels: Vec<&str> = ways
        .map(|edge| edge.label.as_str())
        .filter(|label| !label.is_empty())
        .collect();
    if let Some(route) = &graph.nodes[index].route {
        lines.push(format!("{route} decides: {}", labels.join(" · ")));
        let keys = route.strip_prefix("$output.").or_else(|| route.strip_prefix("$."));
        if let (Some(keys), Some(label)) = (keys, labels.first()) {
            let first = label.split(", ").next().unwrap_or(label);
            let leaf: serde_json::Value = serde_json::from_str(first).unwrap_or_else(|_| first.into());
            let example = keys
                .rsplit('.')
                .fold(leaf, |value, key| serde_json::json!({ key: value }));
            lines.push(format!("for example {example}"));
        }
    }
    lines
}
