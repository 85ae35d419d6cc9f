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
    /// The database cannot be opened; nothing was changed.
    #[error(transparent)]
    Open(#[from] piw_state::OpenError),
    /// Another server that holds no lock here owns the database.
    #[error("the state database belongs to a server that still runs (pid {pid}); stop it first")]
    Owned {
        /// Its process.
        pid: u32,
    },
    /// The database failed or went to another server.
    #[error(transparent)]
    State(#[from] piw_state::StateError),
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
            Self::Open(_) => "database",
            Self::Owned { .. } => "owned",
            Self::State(_) => "state",
            Self::Listen { .. } => "socket",
            Self::Log { .. } => "log",
            Self::Runtime(_) => "system",
        }
    }
}
