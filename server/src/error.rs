//! Why a server could not run.

use std::io;
use std::path::PathBuf;

use crate::lock::LockError;
use crate::options::OptionsError;
use crate::paths::PathError;

/// An error that ends the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A setting or place from the environment cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The state directory or the socket path cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Another server lives, or the lock file cannot be written.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The socket cannot be opened.
    #[error("cannot listen on {}: {source}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The log cannot be opened.
    #[error("cannot open the log {}: {source}", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The runtime or a thread cannot be started.
    #[error("cannot start the server's threads: {0}")]
    Runtime(io::Error),
}

impl ServerError {
    /// A stable name of the kind of error, for the ready handshake and exit codes.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Options(_) => "settings",
            Self::Path(_) => "stateDirectory",
            Self::Lock(LockError::Held { .. }) => "alreadyRunning",
            Self::Lock(_) => "lock",
            Self::Listen { .. } => "socket",
            Self::Log { .. } => "log",
            Self::Runtime(_) => "system",
        }
    }
}
