//! `piw pause`, `resume`, `cancel` and `restart`: one command to the server, the stored outcome printed.

use piw_protocol::client::RunRef as Target;
use piw_protocol::ops::RunReceipt;

use super::output;
use super::session::{self, Autostart};
use crate::cli::RunRef;
use crate::failure::{Exit, Outcome};

/// What is asked of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Stop at the next durable boundary.
    Pause,
    /// Go on.
    Resume,
    /// End for good.
    Cancel,
    /// Start again from the original input.
    Restart,
}

/// Carries out a control.
///
/// # Errors
/// No such run, or a run whose state does not allow it.
pub fn run(control: Control, args: &RunRef) -> Outcome {
    let session = session::connect(Autostart::Allowed)?;
    let run_id = session.run_id(&args.run_id)?;
    let target = Target::current(&run_id);
    let client = session.client();
    let done = match control {
        Control::Pause => session.block_on(client.run_pause(&target)),
        Control::Resume => session.block_on(client.run_resume(&target)),
        Control::Cancel => session.block_on(client.run_cancel(&target)),
        Control::Restart => session.block_on(client.run_restart(&target)),
    }
    .map_err(|error| session::failure_of(&error, &run_id))?;
    let receipt = done.receipt;
    if args.json {
        output::json(&receipt)?;
        return Ok(Exit::Done);
    }
    let said = match (control, &receipt.new_run_id) {
        (Control::Pause, _) => paused(&receipt),
        (Control::Resume, _) => format!("resumed {run_id}; watch it with: piw {run_id}\n"),
        (Control::Cancel, _) => format!("cancelled {run_id}\n"),
        (Control::Restart, Some(new)) => format!("restarted {run_id} as {new}; watch it with: piw {new}\n"),
        (Control::Restart, None) => format!("restarted {run_id}\n"),
    };
    output::text(&said)?;
    Ok(Exit::Done)
}

/// A pause that interrupted what nobody can prove has to be reviewed before the run goes on.
fn paused(receipt: &RunReceipt) -> String {
    let run_id = &receipt.run_id;
    match &receipt.message {
        Some(message) => {
            format!("paused {run_id}; {message}\nreview with: piw effects list {run_id}, then: piw resume {run_id}\n")
        }
        None => format!("paused {run_id}; go on with: piw resume {run_id}\n"),
    }
}
