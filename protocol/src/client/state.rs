//! What the client shows of itself: the state of the connection and the freshness of each view.

use std::time::Duration;

use super::ClientError;
use crate::ops::OperationError;

/// State of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    /// The first attempt is running.
    Connecting,
    /// Hello was received and every desired subscription is restored or on its way.
    Connected {
        /// The server's name for the connection.
        connection_id: String,
        /// The server's package version.
        package_version: String,
    },
    /// The connection is lost; the next attempt starts after `delay`.
    Reconnecting(Retry),
    /// The retry budget is spent. Calls fail at once; a slow retry goes on.
    Blocked(Retry),
    /// The client stopped for good.
    Stopped(ClientError),
}

/// A failed connection and the next attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Failed attempts in a row.
    pub attempt: u32,
    /// Time from the failure to the next attempt.
    pub delay: Duration,
    /// What failed.
    pub reason: String,
}

/// How current a view is. Only a live view may authorise a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freshness {
    /// Nothing was received yet.
    Opening,
    /// The server keeps it current.
    Live,
    /// The last good view of a lost connection, or of a subscription that the server dropped; it is being restored.
    Stale(Retry),
    /// As stale, and the retry budget is spent.
    Blocked(Retry),
    /// The server refused the subscription, for example because the run does not exist. It is not asked for again.
    Refused(OperationError),
    /// The client stopped.
    Stopped(ClientError),
}
