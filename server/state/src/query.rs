//! The read side: typed rows for views, lists, pages and content, read inside one transaction of a read connection.
//!
//! | module | reads |
//! | --- | --- |
//! | [`run`] | the facts of one run that lists and views share, its values, sources and definition |
//! | [`list`] | the order of the run list and which runs match a filter |
//! | [`steps`] | finished attempts by position, through the chain of continuations |
//! | [`graph`] | latest attempt per node and distinct transitions, now or at any step |
//! | [`trace`] | trace events by position, and the position of an attempt |
//! | [`updates`] | current updates |
//! | [`times`] | where a run's time went, and what its nodes took in earlier runs |
//! | [`session`] | recorded sessions by position: events, entries, and the conversation before an event |
//! | [`effects`] | effects as people review them |
//! | [`content`] | stored bytes that views name by reference |
//! | [`counts`] | counts for the server's status |
//!
//! Nothing here writes, except [`graph::write_checkpoint`], which the step transaction calls; nothing decides what a client
//! sees (that is the server's projection). Every query is bounded: by a page, by the graph, or by an index.

pub mod content;
pub mod counts;
pub mod effects;
pub mod graph;
pub mod list;
pub mod message;
pub mod run;
pub mod session;
pub mod steps;
pub mod times;
pub mod trace;
pub mod updates;
mod value;

pub use value::{StoredValue, rfc3339};

/// A connection of the read pool inside a read transaction.
pub type Reader = rusqlite::Connection;

/// Why stored facts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// SQLite failed.
    #[error("the state database cannot be read: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A column holds what this program never writes.
    #[error("the state database holds an unreadable {what}: {message}")]
    Corrupt {
        /// Which fact.
        what: &'static str,
        /// What is wrong with it.
        message: String,
    },
}

impl QueryError {
    /// A column holds what this program never writes.
    pub(crate) fn corrupt(what: &'static str, message: impl std::fmt::Display) -> Self {
        Self::Corrupt {
            what,
            message: message.to_string(),
        }
    }
}

impl From<QueryError> for crate::StateError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Sqlite(error) => error.into(),
            QueryError::Corrupt { .. } => Self::Inconsistent(error.to_string()),
        }
    }
}

/// Result of a query.
pub type Result<T> = std::result::Result<T, QueryError>;

/// Parses a closed word of a column into its enum by its serde name.
pub(crate) fn word<T: serde::de::DeserializeOwned>(what: &'static str, text: &str) -> Result<T> {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};
    let from: StrDeserializer<'_, Error> = text.into_deserializer();
    T::deserialize(from).map_err(|error| QueryError::corrupt(what, error))
}

/// A non-negative integer column.
pub(crate) fn unsigned(what: &'static str, value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| QueryError::corrupt(what, format!("{value} is negative")))
}

/// A position as SQLite counts; positions beyond its range lie behind every row.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
