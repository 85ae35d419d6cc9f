//! `piw run`: starts a run and follows it.

use std::sync::Arc;

use piw_protocol::canonical::{self, INLINE_DEPTH};
use piw_protocol::ops::RunStart;
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::RunView;
use serde_json::{Value, json};

use super::session::{self, Autostart, Session};
use super::{input, output};
use crate::cli::RunArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::follow::follower::{self, Followed, Show};
use crate::follow::lines;
use crate::text;

/// Lines of a checkpoint's question that are printed when a run waits for its answer.
const QUESTION: usize = 60;

/// Inputs whose JSON is larger are uploaded as content instead of travelling in the request.
const INLINE_INPUT: usize = 256 * 1024;

/// Starts a run and follows it unless `--detach`.
///
/// # Errors
/// Bad input, a workflow that is refused, no server.
pub fn run(args: &RunArgs) -> Outcome {
    let given = args
        .input
        .as_deref()
        .map(|text| input::json("--input", text))
        .transpose()?;
    let session = session::connect(Autostart::Allowed)?;
    let start = request(&session, args, given.unwrap_or_else(|| json!({})))?;
    let receipt = session.call(session.client().run_start(&start, None))?.receipt;
    let run_id = receipt.run_id;
    if args.detach {
        if args.json {
            output::json(&json!({ "runId": run_id, "status": receipt.status }))?;
        } else {
            output::text(&format!("{run_id}\n"))?;
        }
        return Ok(Exit::Done);
    }
    follow(&session, &run_id, args.json)
}

fn request(session: &Session, args: &RunArgs, given: Value) -> Result<RunStart, Failure> {
    let project = std::env::current_dir()
        .and_then(|dir| dir.canonicalize())
        .map_err(|error| Failure::usage(format!("the working directory cannot be read: {error}")))?;
    let project_path = project
        .to_str()
        .ok_or_else(|| Failure::usage(format!("the working directory {} is not UTF-8", project.display())))?
        .to_owned();
    let bytes =
        canonical::to_vec(&given).map_err(|error| Failure::usage(format!("--input cannot be sent: {error}")))?;
    let (input, input_content) = if bytes.len() > INLINE_INPUT || canonical::depth(&given) > INLINE_DEPTH {
        let content = session.call(session.client().put_content(&bytes, "application/json"))?;
        (Value::Null, Some(content))
    } else {
        (given, None)
    };
    Ok(RunStart {
        workflow: args.workflow.clone(),
        project_path,
        input,
        input_content,
        session_id: args.session.clone(),
    })
}

/// Follows a run, prints how it ended and maps that to an exit code.
///
/// # Errors
/// When it cannot be watched or printed.
pub fn follow(session: &Session, run_id: &str, as_json: bool) -> Outcome {
    let show = if as_json { Show::Nothing } else { Show::Progress };
    match session.block_on(follower::follow(session.client(), run_id, show))? {
        Followed::Interrupted => {
            eprintln!("the run goes on: piw {run_id} to watch it, piw cancel {run_id} to end it");
            Ok(Exit::Interrupted)
        }
        Followed::Settled(view) => {
            if as_json {
                output::json(&document(session, &view)?)?;
            } else {
                report(session, &view)?;
            }
            Ok(exit_of(view.display.status))
        }
    }
}

/// Exit code of a run in this status.
#[must_use]
pub fn exit_of(status: DisplayStatus) -> Exit {
    match status {
        DisplayStatus::Completed => Exit::Done,
        DisplayStatus::Failed | DisplayStatus::TimedOut | DisplayStatus::Cancelled => Exit::Failed,
        DisplayStatus::Queued
        | DisplayStatus::Running
        | DisplayStatus::Waiting
        | DisplayStatus::Paused
        | DisplayStatus::Ambiguous => Exit::Waiting,
    }
}

fn document(session: &Session, view: &RunView) -> Result<Value, Failure> {
    Ok(json!({
        "runId": view.run_id,
        "status": view.display.status,
        "finalOutput": final_output(session, view)?,
        "error": view.state.error,
    }))
}

fn final_output(session: &Session, view: &RunView) -> Result<Value, Failure> {
    match &view.state.final_output {
        Some(output) => session.call(session::value(session.client(), &view.run_id, output)),
        None => Ok(Value::Null),
    }
}

fn report(session: &Session, view: &Arc<RunView>) -> Result<(), Failure> {
    let (glyph, _) = lines::status_mark(view.display.status);
    let status = lines::status_name(view.display.status);
    let steps = view.step_total;
    let plural = if steps == 1 { "" } else { "s" };
    output::text(&format!(
        "\n{glyph} {status} after {steps} step{plural}  {}\n",
        view.run_id
    ))?;
    if view.state.final_output.is_some() {
        let value = final_output(session, view)?;
        let pretty = serde_json::to_string_pretty(&value)
            .map_err(|error| Failure::new(Exit::Failed, format!("cannot encode the output: {error}")))?;
        output::text(&format!("{}\n", session::lines(&pretty)))?;
    }
    if let Some(error) = &view.state.error {
        eprintln!("error: {}", session::lines(&error.message));
        if let Some(stack) = &error.stack {
            eprintln!("{}", session::lines(stack));
        }
    } else if let Some(reason) = &view.display.reason {
        eprintln!("{}", session::lines(reason));
    }
    let question = session.call(session::question(session.client(), view))?;
    for line in question.iter().take(QUESTION) {
        eprintln!("  {line}");
    }
    if question.len() > QUESTION {
        let rest = question.len() - QUESTION;
        eprintln!("  … {rest} more lines: piw show {}", view.run_id);
    }
    for advice in advice(view) {
        eprintln!("{advice}");
    }
    Ok(())
}

/// What a person can do about a run that does not go on by itself.
fn advice(view: &RunView) -> Vec<String> {
    let id = &view.run_id;
    let may = |control: &str| view.display.controls.iter().any(|known| known == control);
    let mut advice = Vec::new();
    if let Some(node) = &view.state.waiting_on {
        advice.push(format!("waiting for an answer to {}", text::clean(node)));
    }
    if may("answer") {
        advice.push(format!("answer it with: piw answer {id} '<JSON>' --follow"));
    }
    if may("review") {
        advice.push(format!("review what may have happened with: piw effects list {id}"));
    }
    if may("resume") {
        advice.push(format!("go on with: piw resume {id}"));
    }
    if may("restart") {
        advice.push(format!("start it again with: piw restart {id}"));
    }
    advice.push(format!("look closer with: piw {id}"));
    advice
}
