//! `piw serve` and `piw relay --stdio`: what viewers on other machines connect to.

use std::io;
use std::os::unix::net::UnixStream;

use serde_json::json;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::output;
use super::session::{self, Autostart};
use crate::cli::{RelayArgs, ServeArgs};
use crate::failure::{Exit, Failure, Outcome};
use crate::relay::{self, Relay, Token};

/// Listens until a signal ends it.
///
/// # Errors
/// An address that is not loopback or taken, no token, no server.
pub fn serve(args: &ServeArgs) -> Outcome {
    let address = relay::bind_address(&args.bind).map_err(|error| {
        Failure::usage(format!("--bind: {error}")).hint("from another machine use: piw --ssh <this host>")
    })?;
    let places = session::places()?;
    session::prepare(&places, Autostart::Allowed)?;
    places
        .prepare()
        .map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
    let token = Token::keep(&places.server_dir(), args.new_token)
        .map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
    let failed = |error: io::Error| Failure::new(Exit::Unavailable, format!("the relay failed: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let mut ends = [
            signal(SignalKind::interrupt()).map_err(failed)?,
            signal(SignalKind::terminate()).map_err(failed)?,
            signal(SignalKind::hangup()).map_err(failed)?,
        ];
        let relay = Relay::open(address, token, &places.socket).await.map_err(|error| {
            let failure = Failure::new(Exit::Unavailable, format!("cannot listen on {address}: {error}"));
            match error.kind() {
                io::ErrorKind::AddrInUse => {
                    failure.hint("another relay runs there, or take a free port with --bind 127.0.0.1:0")
                }
                _ => failure,
            }
        })?;
        if args.json {
            output::json(&json!({ "url": relay.url() }))?;
        } else {
            output::text(&format!("{}\n", relay.url()))?;
            eprintln!("watch with: piw --connect '<that URL>'; Ctrl-C ends the relay, not the server");
        }
        let [interrupt, terminate, hangup] = &mut ends;
        relay
            .run(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
            })
            .await;
        Ok(Exit::Done)
    })
}

/// Carries one connection over the standard streams.
///
/// # Errors
/// No server, or one that cannot be started.
pub fn stdio(args: &RelayArgs) -> Outcome {
    let places = session::places()?;
    let autostart = if args.no_start {
        Autostart::Never
    } else {
        Autostart::Allowed
    };
    session::prepare(&places, autostart)?;
    let failed = |error: io::Error| Failure::new(Exit::Unavailable, format!("the relay failed: {error}"));
    let server = UnixStream::connect(&places.socket).map_err(failed)?;
    match relay::copy_streams(server) {
        Ok(()) => Ok(Exit::Done),
        // The other side is gone; there is nobody to tell.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Done),
        Err(error) => Err(failed(error)),
    }
}
