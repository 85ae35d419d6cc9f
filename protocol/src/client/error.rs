//! What can go wrong for a user of the client.

use crate::content::ContentError;
use crate::envelope::Outcome;
use crate::frame::FrameError;
use crate::ops::{Operation, OperationError};

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Client and server belong to different packages. The client has stopped.
    #[error("this client is version {client}, the server is version {server}: restart the one that is older")]
    VersionMismatch {
        /// Version of this client.
        client: String,
        /// Version of the server.
        server: String,
    },
    /// The retry budget is spent. A slow retry goes on; a command that was already sent may have been carried out, and can be
    /// sent again under the same idempotency key.
    #[error("the server at {target} cannot be reached after {attempts} attempts: {reason}")]
    Unreachable {
        /// What was connected to.
        target: String,
        /// Failed attempts in a row.
        attempts: u32,
        /// The last failure.
        reason: String,
    },
    /// The server decided against the request.
    #[error("{}: {error}", operation.name())]
    Refused {
        /// What was asked.
        operation: Operation,
        /// How it was decided.
        outcome: Outcome,
        /// Why.
        error: OperationError,
    },
    /// A subscription cannot be served because the retry budget is spent; a slow retry goes on.
    #[error("the server cannot be reached after {attempts} attempts: {reason}")]
    Blocked {
        /// Failed attempts in a row.
        attempts: u32,
        /// The last failure.
        reason: String,
    },
    /// The server refused a subscription.
    #[error("{0}")]
    WatchRefused(OperationError),
    /// The request does not fit a frame or has no canonical form.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The server's answer is not what the protocol says.
    #[error("{}: the answer cannot be read: {problem}", operation.name())]
    BadAnswer {
        /// What was asked.
        operation: Operation,
        /// What is wrong with the answer.
        problem: String,
    },
    /// A view that cannot be read.
    #[error("the view cannot be read: {0}")]
    BadView(String),
    /// Content failed its verification.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The client has ended.
    #[error("the client is closed")]
    Closed,
}

impl ClientError {
    /// The server's outcome, when there was one.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Refused { outcome, .. } => Some(*outcome),
            _ => None,
        }
    }
}
