//! A server's life from its lock to its exit.

use crate::error::ServerError;
use crate::lock::{LockError, ServerLock};
use crate::log;
use crate::options::ServerOptions;
use crate::start::{Handshake, report};

/// Runs a server until it is stopped, has been idle for long enough, or loses its epoch. Blocks.
///
/// # Errors
/// When it cannot start; a detached server has told its starter before this returns.
pub fn run(options: ServerOptions) -> Result<(), ServerError> {
    let detached = options.detached;
    let result = start(options);
    if let (true, Err(error)) = (detached, &result) {
        report(&match error {
            ServerError::Lock(LockError::Held { .. }) => Handshake::AlreadyRunning,
            _ => Handshake::Failed {
                class: error.class().to_owned(),
                message: error.to_string(),
            },
        });
    }
    result
}

fn start(options: ServerOptions) -> Result<(), ServerError> {
    if options.detached {
        // Fails only for a group leader, which then already is on its own.
        let _ = nix::unistd::setsid();
    }
    options.places.prepare()?;
    let _lock = ServerLock::acquire(&options.places)?;
    let log_path = options.places.log();
    log::install(&log_path).map_err(|source| ServerError::Log { path: log_path, source })?;
    Ok(())
}
