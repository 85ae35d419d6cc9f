//! `piw workflows`: what can be started from here.

use piw_runner::discover::{self, Listed, Origin, Places};
use serde_json::{Value, json};

use super::output;
use crate::cli::JsonFlag;
use crate::failure::{Exit, Failure, Outcome};
use crate::text;

/// Lists workflows in lookup order.
///
/// # Errors
/// When the working directory or a workflow directory cannot be read.
pub fn run(args: &JsonFlag) -> Outcome {
    let project = std::env::current_dir()
        .map_err(|error| Failure::usage(format!("the working directory cannot be read: {error}")))?;
    let places = Places {
        project,
        global: piw_server::paths::global_workflows(),
    };
    let listed = discover::list(&places).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    if args.json {
        output::json(&listed.iter().map(document).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    output::text(&output::table(&rows))?;
    Ok(Exit::Done)
}

fn origin(listed: &Listed) -> &'static str {
    match listed.origin {
        Origin::Project => "project",
        Origin::Global => "global",
        Origin::Builtin => "built-in",
    }
}

fn document(listed: &Listed) -> Value {
    json!({
        "name": listed.name,
        "origin": origin(listed),
        "path": listed.path,
        "description": listed.description,
        "problem": listed.problem,
    })
}

fn row(listed: &Listed) -> Vec<String> {
    let mut description = listed.description.clone().unwrap_or_default();
    if let Some(problem) = &listed.problem {
        description = format!("({problem}) {description}");
    }
    vec![
        text::clean(&listed.name).into_owned(),
        origin(listed).to_owned(),
        text::clean(&description).into_owned(),
    ]
}
