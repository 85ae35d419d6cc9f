//! What an agent is to the runner: something that is told a contract, submits JSON and ends its turn. Nothing above this names a
//! product.

use std::path::Path;
use std::time::Instant;

use piw_engine::prompt::{Contract, Reminder};
use piw_protocol::run::ActionReceipt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::child::client::RequestError;
use crate::exec::command::Commands;

/// What an agent does next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// It submits a value, and gets to know what becomes of it with [`Executor::answer`].
    Submission(Value),
    /// It reports progress, and gets to know whether that was published with [`Executor::answer`].
    Update(Value),
    /// Its turn is over.
    TurnEnd(Stop),
}

/// Why a turn is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The agent had nothing more to do. The text says what was missing if it submitted nothing.
    Completed(String),
    /// It failed.
    Failed(String),
    /// It cannot be started at all, or not as the step wants it.
    NotStarted(String),
    /// The step's time was up.
    TimedOut,
    /// The run has to stop.
    Cancelled,
}

/// What an agent works with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work<'a> {
    /// Starts its processes.
    pub(crate) commands: &'a Commands,
    /// Their working directory.
    pub(crate) cwd: &'a Path,
    /// The request.
    pub(crate) request: &'a str,
    /// When the step's time is up.
    pub(crate) deadline: Option<Instant>,
    /// Fires when the run has to stop.
    pub(crate) cancel: &'a CancellationToken,
}

/// Variable in which an agent's processes find the request that they work on.
pub(crate) const REQUEST: &str = "PIW_REQUEST_ID";

/// One agent that works on one request. Deadline and cancellation are the executor's from its making.
pub(crate) trait Executor: Send {
    /// Begins a turn; with a reminder when an earlier one of the same request brought nothing.
    fn say(&mut self, contract: &Contract<'_>, reminder: Option<Reminder<'_>>);

    /// Waits for what the agent does next in its turn.
    ///
    /// # Errors
    /// When the server does not know the agent's process: the claim is gone.
    fn next(&mut self) -> impl Future<Output = Result<Event, RequestError>> + Send;

    /// Answers the agent's latest submission or update: taken, or why not. It may correct it within its turn.
    fn answer(&mut self, verdict: Result<(), &str>);

    /// Ends the agent. Nothing of it runs any more when this returns.
    fn close(&mut self) -> impl Future<Output = ()> + Send;

    /// What the last turn executed, for the step's record.
    fn receipt(&self) -> Option<ActionReceipt>;
}
