//! `piw answer`: answers the checkpoint that a run waits for.

use piw_protocol::client::RunRef;
use serde_json::json;

use super::session::{self, Autostart};
use super::{input, output, run};
use crate::cli::AnswerArgs;
use crate::failure::{Exit, Outcome};

/// Answers, and follows the run that goes on when asked.
///
/// # Errors
/// A bad answer, no such run, or a run that waits for none.
pub fn run(args: &AnswerArgs) -> Outcome {
    let answer = input::json("the answer", &args.answer)?;
    let session = session::connect(Autostart::Allowed)?;
    let run_id = session.run_id(&args.run_id)?;
    let receipt = session
        .call(session.client().checkpoint_answer(&RunRef::current(&run_id), answer))?
        .receipt;
    let next = receipt.new_run_id.clone();
    match (next, args.follow) {
        (Some(next), true) => run::follow(&session, &next, args.json),
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
