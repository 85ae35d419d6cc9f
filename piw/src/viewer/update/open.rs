//! Opening what is selected in another program. A value that is not here is fetched and verified first: nothing unverified is
//! ever written into a file.

use std::sync::Arc;

use serde_json::Value;

use super::inspector_columns;
use crate::text::bytes;
use crate::viewer::external::Program;
use crate::viewer::inspector::rows::{Picked, Whole};
use crate::viewer::inspector::steps;
use crate::viewer::message::{Content, Effect};
use crate::viewer::model::{Model, Opening};
use crate::viewer::run::Loaded;
use crate::viewer::screen::Part;

/// Opens what is selected: a value of the inspector, the newest step of the selected node, else the whole run.
pub fn open(model: &mut Model, program: Program) -> Vec<Effect> {
    model.opening = None;
    let Some(Picked { name, whole, .. }) = selected(model).or_else(|| run(model)) else {
        model.toast("there is nothing to open yet", false);
        return Vec::new();
    };
    let content = match whole {
        Whole::Text(text) => Content::Text(text.into()),
        Whole::Json(value) => Content::Json(Arc::new(value)),
        Whole::Fetched(reference, part) => {
            let Some(run) = &mut model.run else { return Vec::new() };
            let fetch = run.want_content(&reference);
            model.opening = Some(Opening {
                sha256: reference.sha256.clone(),
                part,
                name,
                program,
            });
            if fetch.is_none() && matches!(run.contents.get(&reference.sha256), Some(Loaded::Ready(_))) {
                return arrived(model, &reference.sha256);
            }
            model.toast(&format!("fetching {} to open it", bytes(reference.bytes)), false);
            return fetch.into_iter().collect();
        }
    };
    vec![Effect::Prepare { name, content, program }]
}

/// Content arrived: opens it when that is what was waited for.
pub fn arrived(model: &mut Model, sha256: &str) -> Vec<Effect> {
    let Some(opening) = model.opening.take_if(|opening| opening.sha256 == sha256) else {
        return Vec::new();
    };
    let loaded = model.run.as_ref().and_then(|run| run.contents.get(sha256));
    let content = match loaded {
        Some(Loaded::Ready(content)) => content.clone(),
        Some(Loaded::Failed(error)) => {
            let error = format!("{} cannot be opened: {error}", opening.name);
            model.toast(&error, true);
            return Vec::new();
        }
        Some(Loaded::Loading(..)) | None => return Vec::new(),
    };
    let part = |value: &Value, pointer: &str| match value.pointer(pointer) {
        Some(Value::String(text)) => Content::Text(text.as_str().into()),
        other => Content::Json(Arc::new(other.cloned().unwrap_or_default())),
    };
    let content = match (content, opening.part) {
        (Content::Json(value), Some(pointer)) => part(&value, pointer),
        (content, _) => content,
    };
    vec![Effect::Prepare {
        name: opening.name,
        content,
        program: opening.program,
    }]
}

/// The value whose first row is selected, as text for the clipboard; content that is not here is not fetched for it.
pub fn value(model: &Model) -> Option<String> {
    let picked = in_inspector(model)?;
    match picked.whole {
        _ if !picked.head => None,
        Whole::Text(text) => Some(text),
        Whole::Json(value) => serde_json::to_string_pretty(&value).ok(),
        Whole::Fetched(..) => None,
    }
}

fn selected(model: &Model) -> Option<Picked> {
    match model.focus {
        Part::Browser => None,
        Part::Graph => node(model),
        Part::Inspector => in_inspector(model),
    }
}

fn in_inspector(model: &Model) -> Option<Picked> {
    let run = model.run.as_ref()?;
    model
        .inspector
        .picked(run, &model.theme, inspector_columns(model)?, model.now)
}

fn node(model: &Model) -> Option<Picked> {
    let run = model.run.as_ref()?;
    let id = &run.graph.as_ref()?.nodes.get(model.graph.selected?)?.id;
    let (_, known) = run.steps();
    let step = known.iter().rev().find(|step| step.step.node_id == *id)?;
    Some(Picked {
        name: id.clone(),
        whole: steps::whole(step),
        head: false,
    })
}

fn run(model: &Model) -> Option<Picked> {
    let view = model.run.as_ref()?.view.as_ref()?;
    Some(Picked {
        name: format!("run {}", view.run_id),
        whole: Whole::Json(serde_json::to_value(&**view).ok()?),
        head: false,
    })
}
