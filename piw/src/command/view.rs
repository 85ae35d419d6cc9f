//! `piw`, `piw <runId>` and `piw <runId> --once`: the viewer.

use piw_protocol::client::ClientOptions;

use super::output;
use super::session::{self, Autostart};
use crate::cli::View;
use crate::failure::{Exit, Failure, Outcome};
use crate::viewer::{self, Ended, OnceError, ViewerError, ViewerOptions};

/// Opens the viewer, or prints one frame.
///
/// # Errors
/// No server, no such run, no terminal.
pub fn run(args: View) -> Outcome {
    if args.once {
        let session = session::connect(Autostart::Allowed)?;
        let run_id = session.run_id(args.run_id.as_deref().unwrap_or_default())?;
        let frame = session
            .block_on(viewer::once(session.client(), &run_id))
            .map_err(|error| once(&error))?;
        output::text(&frame)?;
        return Ok(Exit::Done);
    }
    let places = session::places()?;
    if !piw_server::start::accepts(&places) && !piw_server::paths::autostart_forbidden() {
        eprintln!("starting the server …");
    }
    let session = session::connect_with(Autostart::Allowed, ClientOptions::default())?;
    let run_id = args.run_id.as_deref().map(|given| session.run_id(given)).transpose()?;
    let options = ViewerOptions {
        client: session.client().clone(),
        run_id,
        theme: args.theme,
        ascii: args.ascii,
    };
    let ended = session.block_on(viewer::run(options)).map_err(|error| match error {
        ViewerError::NotATerminal(_) | ViewerError::Theme(_) => Failure::usage(error.to_string()),
        ViewerError::Terminal(_) => Failure::new(Exit::Failed, error.to_string()),
    })?;
    Ok(match ended {
        Ended::Quit => Exit::Done,
        Ended::Signal(libc::SIGHUP) => Exit::HungUp,
        Ended::Signal(libc::SIGINT) => Exit::Interrupted,
        Ended::Signal(libc::SIGQUIT) => Exit::QuitBySignal,
        Ended::Signal(_) => Exit::Terminated,
    })
}

fn once(error: &OnceError) -> Failure {
    match error {
        OnceError::Client(error) => session::failure(error),
        _ => Failure::new(Exit::Unavailable, error.to_string()),
    }
}
