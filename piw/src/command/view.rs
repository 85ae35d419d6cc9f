//! `piw`, `piw <runId>` and `piw <runId> --once`: the viewer.

use super::output;
use super::session::{self, Autostart};
use crate::cli::View;
use crate::failure::{Exit, Failure, Outcome};
use crate::viewer;

/// Opens the viewer, or prints one frame.
///
/// # Errors
/// No server, no such run, no terminal.
pub fn run(args: View) -> Outcome {
    if args.once {
        let session = session::connect(Autostart::Allowed)?;
        let run_id = session.run_id(args.run_id.as_deref().unwrap_or_default())?;
        let frame = session.block_on(viewer::once(session.client(), &run_id));
        let frame = frame.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        output::text(&frame)?;
        return Ok(Exit::Done);
    }
    let _ = args;
    Err(Failure::usage("the viewer is not wired yet"))
}
