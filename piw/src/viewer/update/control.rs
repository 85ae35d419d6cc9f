//! Commands on the run: only what the server offers, confirmed where it cannot be undone.

use piw_protocol::view::RunView;

use crate::text::clean;
use crate::viewer::message::{Command, Effect};
use crate::viewer::model::Model;
use crate::viewer::popup::{Popup, editor::Editor};
use crate::viewer::run::Run;

/// Sends a command, or opens the popup that comes before it; says why when it is not on offer.
pub fn command(model: &mut Model, command: Command) -> Vec<Effect> {
    let control = command.control();
    let Some(run) = &model.run else { return Vec::new() };
    if !run.offers(control) {
        let text = if run.is_live() {
            format!("{control} is not on offer for this run")
        } else {
            "the view is stale: nothing can be done with it".into()
        };
        model.toast(&text, true);
        return Vec::new();
    }
    let Some(view) = run.view.clone() else {
        return Vec::new();
    };
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
            let question = question(run, &view);
            model.popup = Some(Popup::Answer {
                run_id,
                revision,
                question,
                editor: Editor::default(),
            });
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

/// What a checkpoint asks: its summary or the run's reason, and what the answer decides, with an example.
fn question(run: &Run, view: &RunView) -> Vec<String> {
    let id = view.state.waiting_on.as_deref().unwrap_or_default();
    let graph = run.graph.as_ref();
    let node = graph.and_then(|graph| graph.node(id).map(|index| (graph, index)));
    let reason = view.display.reason.as_deref().unwrap_or("an answer is wanted");
    let summary = node.and_then(|(graph, index)| graph.nodes[index].summary.as_deref());
    let mut lines = vec![clean(&format!("{id}: {}", summary.unwrap_or(reason))).into_owned()];
    let Some((graph, index)) = node else { return lines };
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
