//! How a request is answered, before it is encoded.

use std::fmt;

use piw_protocol::canonical::CanonicalJson;
use piw_protocol::envelope::{Outcome, Response};
use piw_protocol::frame::{FrameError, MAX_FRAME};
use piw_protocol::ops::OperationError;
use piw_protocol::run::ErrorInfo;
use piw_state::StateError;
use serde::Serialize;

/// An answer to one request.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) outcome: Option<Outcome>,
    pub(crate) revision: Option<u64>,
    pub(crate) receipt: Option<CanonicalJson>,
    pub(crate) error: Option<Box<OperationError>>,
    /// Done once the answer is queued for the socket: starts the subscription that it announces.
    pub(crate) then: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Answer")
            .field("outcome", &self.outcome)
            .field("error", &self.error)
            .finish()
    }
}

impl Answer {
    /// Success with a receipt.
    pub(crate) fn accepted<T: Serialize>(receipt: &T) -> Self {
        match CanonicalJson::new(receipt) {
            Ok(receipt) => Self {
                outcome: Some(Outcome::Accepted),
                receipt: Some(receipt),
                ..Self::default()
            },
            Err(error) => Self::refuse(Outcome::Rejected, "encoding", &error),
        }
    }

    /// Success without one.
    pub(crate) fn done() -> Self {
        Self {
            outcome: Some(Outcome::Accepted),
            ..Self::default()
        }
    }

    /// Anything else.
    pub(crate) fn refuse(outcome: Outcome, reason: &str, message: &dyn fmt::Display) -> Self {
        Self::error(
            outcome,
            OperationError {
                reason: reason.to_owned(),
                message: message.to_string(),
                cause: None,
            },
        )
    }

    /// A refusal that workflow code caused.
    pub(crate) fn refuse_with_cause(reason: &str, message: String, cause: ErrorInfo) -> Self {
        Self::error(
            Outcome::Rejected,
            OperationError {
                reason: reason.to_owned(),
                message,
                cause: Some(cause),
            },
        )
    }

    pub(crate) fn error(outcome: Outcome, error: OperationError) -> Self {
        Self {
            outcome: Some(outcome),
            error: Some(Box::new(error)),
            ..Self::default()
        }
    }

    /// A payload that does not fit its operation.
    pub(crate) fn invalid(message: &dyn fmt::Display) -> Self {
        Self::refuse(Outcome::Rejected, "invalid_request", message)
    }

    pub(crate) fn with_revision(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    pub(crate) fn then(mut self, action: impl FnOnce() + Send + 'static) -> Self {
        self.then = Some(Box::new(action));
        self
    }

    /// The frame to write; a small `rejected` in place of one that would be too large.
    pub(crate) fn encode(self, request_id: String) -> Vec<u8> {
        let response = Response {
            request_id,
            outcome: self.outcome.unwrap_or(Outcome::Unavailable),
            revision: self.revision,
            receipt: self.receipt,
            error: self.error.map(|error| *error),
        };
        match response.encode() {
            Ok(bytes) => bytes,
            Err(error) => too_large(response.request_id, &error),
        }
    }
}

/// What a failure of the database means to a client.
pub(crate) fn unavailable(error: &StateError) -> Answer {
    let reason = match error {
        StateError::Closed | StateError::Fenced(_) | StateError::NoEpoch => "stopping",
        StateError::DiskFull(_) => "disk_full",
        StateError::ReadOnly(_) => "read_only",
        StateError::Busy(_) => "busy",
        StateError::Corrupt(_) => "corrupt",
        StateError::Moved { .. } => "moved",
        StateError::NoSuchRun(_) => return Answer::refuse(Outcome::NotFound, "run_not_found", error),
        StateError::Invalid(_) => return Answer::refuse(Outcome::Rejected, "invalid_request", error),
        _ => "state_failed",
    };
    Answer::refuse(Outcome::Unavailable, reason, error)
}

fn too_large(request_id: String, error: &FrameError) -> Vec<u8> {
    let message = format!("the answer does not fit a frame of {MAX_FRAME} bytes: {error}");
    let response = Response {
        request_id,
        outcome: Outcome::Rejected,
        revision: None,
        receipt: None,
        error: Some(OperationError {
            reason: "response_too_large".to_owned(),
            message,
            cause: None,
        }),
    };
    response.encode().expect("a short response fits a frame")
}

#[cfg(test)]
mod tests {
    use super::*;
    use piw_protocol::envelope::{ServerMessage, parse_server_message};

    #[test]
    fn an_answer_above_the_limit_becomes_a_small_rejection() {
        let bytes = Answer::accepted(&"x".repeat(MAX_FRAME)).encode("r".into());
        assert!(bytes.len() < 1024);
        let Ok(ServerMessage::Response(response)) = parse_server_message(&bytes[..bytes.len() - 1]) else {
            panic!("no response");
        };
        assert_eq!(response.outcome, Outcome::Rejected);
        assert!(response.error.expect("an error").message.contains("1048576"));
    }
}
