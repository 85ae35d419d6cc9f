//! `piw check`: loads and validates a workflow without starting it, and draws its graph.

use piw_protocol::ops::WorkflowCheck;
use piw_protocol::view::DefinitionView;

use super::output;
use super::session::{self, Autostart};
use crate::cli::CheckArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::text;

/// Checks a workflow; exits 1 when it would be refused at start.
///
/// # Errors
/// When it does not load.
pub fn run(args: &CheckArgs) -> Outcome {
    let project = std::env::current_dir()
        .map_err(|error| Failure::usage(format!("the working directory cannot be read: {error}")))?;
    let session = session::connect(Autostart::Allowed)?;
    let request = WorkflowCheck {
        workflow: args.workflow.clone(),
        project_path: project.to_string_lossy().into_owned(),
    };
    let report = session.call(session.client().workflow_check(&request))?;
    let exit = if report.unsupported.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    };
    if args.json {
        output::json(&report)?;
        return Ok(exit);
    }
    match &report.workflow {
        DefinitionView::Inline(definition) => {
            output::text(&crate::viewer::graph_text(definition))?;
            let plural = if definition.nodes.len() == 1 { "" } else { "s" };
            output::text(&format!(
                "\n{} is valid: {} node{plural}, {}\n",
                text::clean(&definition.name),
                definition.nodes.len(),
                report.definition_digest
            ))?;
        }
        DefinitionView::Content { name, node_total, .. } => {
            output::text(&format!(
                "{} is valid: {node_total} nodes, {}\n",
                text::clean(name),
                report.definition_digest
            ))?;
        }
    }
    for warning in &report.warnings {
        eprintln!("warning: {}", text::clean(warning));
    }
    for problem in &report.unsupported {
        eprintln!("cannot be started: {}", text::clean(problem));
    }
    Ok(exit)
}
