//! `piw answer`: answers the checkpoint that a run waits for; a protected decision is asked of the person at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use piw_engine::decision;
use piw_protocol::client::RunRef;
use piw_protocol::interaction::DecisionAnswer;
use piw_protocol::ops::RunReceipt;
use piw_protocol::view::{RunView, ViewValue};
use serde_json::{Map, Value, json};

use super::session::{self, Autostart, Session};
use super::{input, output, run};
use crate::cli::AnswerArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::text;

/// Answers, and follows the run that goes on when asked.
///
/// # Errors
/// A bad answer, no such run, a run that waits for none, or a protected decision and nobody at a terminal.
pub fn run(args: &AnswerArgs) -> Outcome {
    let answer = args.answer.as_ref().map(|text| input::json("the answer", text));
    let answer = answer.transpose()?;
    if answer.is_none() && !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "without an answer piw asks a person, and standard input is no terminal; a checkpoint takes: piw answer RUN JSON",
        ));
    }
    let session = session::connect(Autostart::Allowed)?;
    let run_id = session.run_id(&args.run_id)?;
    let receipt = match answer {
        Some(answer) => {
            let run = RunRef::current(&run_id);
            session.call(session.client().checkpoint_answer(&run, answer))?.receipt
        }
        None => ask(&session, &run_id)?,
    };
    report(&session, &run_id, &receipt, args)
}

fn report(session: &Session, run_id: &str, receipt: &RunReceipt, args: &AnswerArgs) -> Outcome {
    match (&receipt.new_run_id, args.follow) {
        (Some(next), true) => run::follow(session, next, args.json),
        (next, _) => {
            if args.json {
                output::json(&json!(receipt))?;
            } else if let Some(next) = next {
                output::text(&format!("answered {run_id}; it goes on as {next}\n"))?;
            } else {
                output::text(&format!("answered {run_id}\n"))?;
            }
            Ok(Exit::Done)
        }
    }
}

/// Shows the person what is to be decided and lets them type a choice. The answer counts for exactly what was shown.
fn ask(session: &Session, run_id: &str) -> Result<RunReceipt, Failure> {
    let view: RunView = session.call(session.client().run_view(run_id))?;
    let pending = view
        .state
        .human_decision
        .as_ref()
        .filter(|pending| pending["kind"] == "decision");
    let Some(pending) = pending else {
        let why = format!("run {run_id} waits for no protected decision");
        return Err(Failure::new(Exit::Failed, why).hint("a checkpoint takes: piw answer RUN JSON"));
    };
    let wire = ViewValue::from_wire(pending.get("request").unwrap_or(&Value::Null));
    let request = session.call(session::value(session.client(), run_id, &wire))?;
    let request_id = pending.get("attemptId").and_then(Value::as_str).unwrap_or_default();
    say(&format!("{}\n", text::clean_document(&decision::text(&request))))?;
    let (choice, input) = loop {
        let choice = line("choice: ")?;
        if choice.is_empty() {
            continue;
        }
        let takes = request["choices"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|declared| declared["name"] == choice.as_str())
            .and_then(|declared| declared.get(decision::INPUT));
        let input = match takes {
            Some(field) => {
                let asked = field.get("prompt").and_then(Value::as_str).unwrap_or("text");
                Some(line(&format!("{}: ", text::clean(asked)))?)
            }
            None => None,
        };
        match decision::answer(&request, &choice, input.as_deref()) {
            Ok(_) => break (choice, input.filter(|input| !input.is_empty())),
            Err(why) => say(&format!("{}\n", text::clean(&why)))?,
        }
    };
    let inputs: Map<String, Value> = input
        .into_iter()
        .map(|input| (decision::INPUT.to_owned(), Value::String(input)))
        .collect();
    let answer = DecisionAnswer {
        request_id: request_id.to_owned(),
        digest: decision::digest(&request),
        choice,
        inputs,
        authority: None,
    };
    Ok(session.call(session.client().decision_answer(&answer))?.receipt)
}

/// Speaks to the person, beside what the command prints for programs.
fn say(words: &str) -> Result<(), Failure> {
    let mut terminal = io::stderr().lock();
    let said = terminal.write_all(words.as_bytes()).and_then(|()| terminal.flush());
    said.map_err(|error| Failure::new(Exit::Failed, format!("cannot write to the terminal: {error}")))
}

fn line(prompt: &str) -> Result<String, Failure> {
    say(prompt)?;
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    let read = read.map_err(|error| Failure::new(Exit::Failed, format!("cannot read from the terminal: {error}")))?;
    if read == 0 {
        return Err(Failure::new(Exit::Failed, "nothing was decided".to_owned()));
    }
    Ok(typed.trim_end_matches(['\n', '\r']).trim().to_owned())
}
