//! Why a proposal is refused.

use thiserror::Error;

use crate::route::RouteError;

/// A proposal that does not follow from the run's state. Nothing changes; the proposer is wrong or stale.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransitionError {
    /// The definition has no such node.
    #[error("node \"{0}\" is not in the definition")]
    UnknownNode(String),
    /// The proposal does not fit the run's position.
    #[error("{proposal} does not follow: the run {position}")]
    OutOfOrder {
        /// What was proposed.
        proposal: String,
        /// Where the run stands.
        position: String,
    },
    /// Another node or visit follows.
    #[error("{what} must be {expected}, not {found}")]
    Mismatch {
        /// The part of the proposal.
        what: &'static str,
        /// What the rules give.
        expected: String,
        /// What was proposed.
        found: String,
    },
    /// The output decides and is not at hand: load it and ask again.
    #[error("{0}")]
    OutputNotLoaded(RouteError),
    /// The proposal contradicts itself, for example a failed node without an error.
    #[error("node \"{node}\": {rule}")]
    Malformed {
        /// The finished node.
        node: String,
        /// The broken rule.
        rule: &'static str,
    },
}
