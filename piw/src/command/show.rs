//! `piw show`: one run, as people read it or as the run-view document.

use piw_protocol::view::RunView;

use super::session::{self, Autostart, Session};
use super::{effects, output};
use crate::cli::RunRef;
use crate::failure::{Exit, Failure, Outcome};
use crate::follow::follower;
use crate::follow::lines::{self, status_mark, status_name};
use crate::follow::{between, elapsed};
use crate::text;

/// Prints one run.
///
/// # Errors
/// No such run.
pub fn run(args: &RunRef) -> Outcome {
    let session = session::connect(Autostart::Allowed)?;
    let run_id = session.run_id(&args.run_id)?;
    let view = session.call(session.client().run_view(&run_id))?;
    if args.json {
        output::json(&view)?;
    } else {
        output::text(&human(&session, &view)?)?;
    }
    Ok(Exit::Done)
}

fn human(session: &Session, view: &RunView) -> Result<String, Failure> {
    let definition = session.call(session::definition(session.client(), view))?;
    let now = jiff::Timestamp::now().to_string();
    let end = view.manifest.finished_at.as_deref().unwrap_or(&now);
    let (glyph, _) = status_mark(view.display.status);
    let mut facts = vec![
        vec!["run".to_owned(), view.run_id.clone()],
        vec![
            "workflow".to_owned(),
            text::clean(&view.manifest.workflow_name).into_owned(),
        ],
        vec![
            "status".to_owned(),
            format!("{glyph} {}", status_name(view.display.status)),
        ],
        vec!["started".to_owned(), view.manifest.started_at.clone()],
        vec!["time".to_owned(), elapsed(between(&view.manifest.started_at, end))],
        vec!["steps".to_owned(), view.step_total.to_string()],
    ];
    if let Some(title) = &view.manifest.run_title {
        facts.insert(1, vec!["title".to_owned(), text::clean(title).into_owned()]);
    }
    if let Some(parent) = &view.state.parent_run_id {
        facts.push(vec!["continues".to_owned(), parent.clone()]);
    }
    if let Some(reason) = &view.display.reason {
        facts.push(vec!["because".to_owned(), text::clean(reason).into_owned()]);
    }
    if let Some(class) = &view.state.failure_class {
        facts.push(vec!["failure".to_owned(), text::clean(class).into_owned()]);
    }
    if !view.display.controls.is_empty() {
        facts.push(vec!["controls".to_owned(), view.display.controls.join(" ")]);
    }
    let mut out = output::table(&facts);
    out.push('\n');
    out.push_str(&follower::table(&lines::of_view(view, &definition, &now)));
    if let Some(output) = &view.state.final_output {
        let value = session.call(session::value(session.client(), &view.run_id, output))?;
        let pretty = serde_json::to_string_pretty(&value).unwrap_or_else(|_| value.to_string());
        out.push_str(&format!("\noutput\n{}\n", session::lines(&pretty)));
    }
    if let Some(error) = &view.state.error {
        out.push_str(&format!("\nerror\n{}\n", session::lines(&error.message)));
    }
    let review = effects::of_review(view, &now);
    if !review.is_empty() {
        out.push_str(&format!("\nreview\n{review}"));
    }
    let question = session.call(session::question(session.client(), view))?;
    if !question.is_empty() {
        out.push_str(&format!("\nquestion\n{}\n", question.join("\n")));
    }
    out.push_str(&failed_streams(view));
    Ok(out)
}

/// What the last failed process wrote to standard error.
fn failed_streams(view: &RunView) -> String {
    let failed = view.state.steps.iter().rev().find(|step| step.step.error.is_some());
    let stderr = failed
        .and_then(|step| step.step.action.as_ref())
        .and_then(|action| action.stderr.as_deref());
    match stderr {
        Some(stderr) if !stderr.is_empty() => format!("\nstandard error\n{}\n", session::lines(stderr)),
        _ => String::new(),
    }
}
