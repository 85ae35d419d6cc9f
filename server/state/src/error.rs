//! Errors of an open database. Errors of opening one are in [`crate::open`].

use rusqlite::ErrorCode;

/// Why a read or write failed. A failed write changed nothing.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The writer thread has ended; nothing more is written.
    #[error("the state database is closed")]
    Closed,
    /// Another server took the database over, or this server's own claim expired.
    #[error("this server no longer owns the state database: {0}")]
    Fenced(ClaimLost),
    /// No server epoch was taken yet.
    #[error("no server epoch was taken; nothing can be written before")]
    NoEpoch,
    /// The disk or the quota is full.
    #[error("the disk that holds the state database is full; nothing was written ({0})")]
    DiskFull(String),
    /// The file cannot be written.
    #[error("the state database is read-only; nothing was written ({0})")]
    ReadOnly(String),
    /// Another program holds the database's lock.
    #[error("another program holds the lock of the state database; nothing was written ({0})")]
    Busy(String),
    /// The file is damaged.
    #[error(
        "the state database is damaged: {0}; stop the server, move state.sqlite with its -wal and -shm away and restore a backup"
    )]
    Corrupt(String),
    /// Somebody moved or deleted a file of the open database.
    #[error("{name} was moved or deleted while the server runs; nothing was written. {help}")]
    Moved {
        /// The file's name.
        name: String,
        /// What can be done.
        help: &'static str,
    },
    /// The operating system failed a read or write.
    #[error("input or output on the state database failed: {0}")]
    Io(String),
    /// A run is named that does not exist.
    #[error("no run {0}")]
    NoSuchRun(String),
    /// A value breaks a rule; the message names value and limit.
    #[error("{0}")]
    Invalid(String),
    /// Rows contradict each other: a fault of this program, or of whoever edited the file.
    #[error("the state database contradicts itself: {0}")]
    Inconsistent(String),
    /// Any other failure of SQLite.
    #[error("the state database failed: {0}")]
    Sqlite(String),
}

/// Why a claim does not authorise a write. The holder must stop; nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ClaimLost {
    /// Nobody holds a claim on the resource.
    #[error("missingAuthority")]
    MissingAuthority,
    /// The claim ran out.
    #[error("expired")]
    Expired,
    /// Another server holds it.
    #[error("ownerChanged")]
    OwnerChanged,
    /// The token is another one.
    #[error("tokenChanged")]
    TokenChanged,
    /// A newer claim was taken.
    #[error("generationChanged")]
    GenerationChanged,
}

impl StateError {
    /// The file could not be written; the same write may succeed later.
    #[must_use]
    pub const fn is_of_the_disk(&self) -> bool {
        matches!(
            self,
            Self::DiskFull(_) | Self::ReadOnly(_) | Self::Busy(_) | Self::Io(_) | Self::Moved { .. }
        )
    }
}

impl From<rusqlite::Error> for StateError {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull(text),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly(text),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(text),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(text),
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => Self::Io(text),
            _ => Self::Sqlite(text),
        }
    }
}

impl From<serde_json::Error> for StateError {
    fn from(error: serde_json::Error) -> Self {
        Self::Inconsistent(format!("stored JSON does not read back: {error}"))
    }
}
