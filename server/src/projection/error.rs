//! Why a view cannot be given.

use piw_protocol::envelope::Outcome;
use piw_protocol::ops::OperationError;
use piw_state::StateError;
use piw_state::query::QueryError;

/// A view, page or content request that cannot be answered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ViewError {
    /// No such run.
    #[error("there is no run {run_id}")]
    RunNotFound {
        /// The run asked for.
        run_id: String,
    },
    /// The run has no such content.
    #[error("run {run_id} has no content at {path:?}")]
    ContentNotFound {
        /// The run asked for.
        run_id: String,
        /// The path asked for.
        path: String,
    },
    /// The view changed since the client saw it.
    #[error("run {run_id} is at revision {actual}, not {expected}")]
    StaleRevision {
        /// The run.
        run_id: String,
        /// What the client named.
        expected: u64,
        /// What holds.
        actual: u64,
    },
    /// The list changed too often since the client saw it, or the revision belongs to another filter or server.
    #[error("run-list revision {revision:?} is no longer held; start over from the next list")]
    StaleList {
        /// What the client named.
        revision: String,
    },
    /// A field of the request is wrong.
    #[error("{field}: {rule}; got {value}")]
    BadRequest {
        /// The field.
        field: &'static str,
        /// What is allowed.
        rule: String,
        /// What was sent.
        value: String,
    },
    /// Part of the protocol that this build does not have.
    #[error("{what} is not built yet")]
    NotBuilt {
        /// What was asked for.
        what: String,
    },
    /// The view does not fit into a frame.
    #[error("the view is {bytes} bytes, above the limit of {limit}")]
    TooLarge {
        /// Encoded size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The view has no JSON form.
    #[error("the view cannot be encoded: {message}")]
    Encode {
        /// Why.
        message: String,
    },
    /// The state database failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// The connection has too many subscriptions.
    #[error(transparent)]
    TooManySubscriptions(#[from] crate::publish::TooManySubscriptions),
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
}

impl ViewError {
    /// Stable machine reason.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::RunNotFound { .. } => "run_not_found",
            Self::ContentNotFound { .. } => "content_not_found",
            Self::StaleRevision { .. } => "stale_revision",
            Self::StaleList { .. } => "stale_list",
            Self::BadRequest { .. } => "invalid_request",
            Self::NotBuilt { .. } => "not_built",
            Self::TooLarge { .. } | Self::Encode { .. } | Self::State(_) => "projection_failed",
            Self::TooManySubscriptions(_) => "too_many_subscriptions",
            Self::Stopping => "stopping",
        }
    }

    /// The outcome to answer with.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::RunNotFound { .. } | Self::ContentNotFound { .. } => Outcome::NotFound,
            Self::StaleRevision { .. } | Self::StaleList { .. } => Outcome::Conflict,
            Self::BadRequest { .. } | Self::TooManySubscriptions(_) => Outcome::Rejected,
            Self::NotBuilt { .. } | Self::TooLarge { .. } | Self::Encode { .. } | Self::State(_) | Self::Stopping => {
                Outcome::Unavailable
            }
        }
    }

    /// The error as it travels.
    #[must_use]
    pub fn operation_error(&self) -> OperationError {
        OperationError {
            reason: self.reason().to_owned(),
            message: self.to_string(),
            cause: None,
        }
    }
}

impl From<QueryError> for ViewError {
    fn from(error: QueryError) -> Self {
        Self::State(error.into())
    }
}
