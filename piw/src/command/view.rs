//! `piw`, `piw <runId>` and `piw <runId> --once`: the viewer.

use piw_protocol::client::ClientOptions;

use super::output;
use super::session::{self, Autostart, Session};
use crate::cli::View;
use crate::failure::{Exit, Failure, Outcome};
use crate::remote::{Host, Reaper, TOKEN_VAR};
use crate::text;
use crate::viewer::{self, Ended, OnceError, ViewerError, ViewerOptions};

/// Why one run and several hosts do not go together.
const ONE_HOST: &str = "a run is on one host: name only that one";

/// Opens the viewer, or prints one frame.
///
/// # Errors
/// No server, no such run, no terminal.
pub fn run(args: View) -> Outcome {
    let token = std::env::var(TOKEN_VAR).ok();
    let hosts =
        Host::read(&args.ssh, &args.connect, token.as_deref()).map_err(|error| Failure::usage(error.to_string()))?;
    let reaper = Reaper::default();
    // Dropped after the session, whose end ends the children.
    let _last = reaper.last();
    if args.once {
        let session = match &hosts[..] {
            [] => session::connect(Autostart::Allowed)?,
            [host] => session::connect_to(host, &args.remote_piw, &reaper, ClientOptions::impatient())?,
            _ => return Err(Failure::usage(ONE_HOST)),
        };
        let run_id = session.run_id(args.run_id.as_deref().unwrap_or_default())?;
        let frame = session
            .block_on(viewer::once(session.client(), &run_id))
            .map_err(|error| once(&error))?;
        output::text(&frame)?;
        return Ok(Exit::Done);
    }
    match &hosts[..] {
        [] => on_one(String::new(), local()?, args),
        [host] => {
            eprintln!("connecting to {} …", text::clean(&host.name));
            let session = session::connect_to(host, &args.remote_piw, &reaper, ClientOptions::impatient())?;
            on_one(host.name.clone(), session, args)
        }
        several => on_several(several, &reaper, &args),
    }
}

fn on_one(name: String, session: Session, args: View) -> Outcome {
    let run_id = args.run_id.as_deref().map(|given| session.run_id(given)).transpose()?;
    let options = ViewerOptions {
        hosts: vec![(name, session.client().clone())],
        run_id,
        theme: args.theme,
        ascii: args.ascii,
    };
    let ended = session.block_on(show(options));
    session.end();
    ended
}

/// A host that cannot be reached is shown as such; the others do not wait for it.
fn on_several(hosts: &[Host], reaper: &Reaper, args: &View) -> Outcome {
    if args.run_id.is_some() {
        return Err(Failure::usage(ONE_HOST));
    }
    let runtime = session::runtime()?;
    let ended = runtime.block_on(async {
        let start = |host: &Host| host.start(&args.remote_piw, reaper, ClientOptions::default());
        show(ViewerOptions {
            hosts: hosts.iter().map(|host| (host.name.clone(), start(host))).collect(),
            run_id: None,
            theme: args.theme.clone(),
            ascii: args.ascii,
        })
        .await
    });
    runtime.shutdown_timeout(session::GRACE);
    ended
}

async fn show(options: ViewerOptions) -> Outcome {
    let ended = viewer::run(options).await.map_err(|error| match error {
        ViewerError::NotATerminal(_) | ViewerError::Dumb | ViewerError::Theme(_) => Failure::usage(error.to_string()),
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

fn local() -> Result<Session, Failure> {
    session::connect_with(Autostart::Allowed, ClientOptions::default(), || {
        eprintln!("starting the server …");
    })
}

fn once(error: &OnceError) -> Failure {
    match error {
        OnceError::Client(error) => session::failure(error),
        _ => Failure::new(Exit::Unavailable, error.to_string()),
    }
}
