//! What an agent is to the runner: something that is told a text, submits JSON and ends its turn. Nothing above this names a
//! product.

use piw_protocol::run::ActionReceipt;
use serde_json::Value;

use crate::child::client::RequestError;

/// What an agent does next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// It submits a value, and gets to know what becomes of it with [`Executor::answer`].
    Submission(Value),
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
    /// It cannot be started at all.
    NotStarted(String),
    /// The step's time was up.
    TimedOut,
    /// The run has to stop.
    Cancelled,
}

/// One agent that works on one request. Deadline and cancellation are the executor's from its making; when it says that a turn is
/// over, nothing of that turn runs any more.
pub(crate) trait Executor: Send {
    /// Begins a turn with the whole prompt.
    fn say(&mut self, prompt: String);

    /// Waits for what the agent does next in its turn.
    ///
    /// # Errors
    /// When the server does not know the agent's process: the claim is gone.
    fn next(&mut self) -> impl Future<Output = Result<Event, RequestError>> + Send;

    /// Tells the agent that its submission was rejected, and why. It may correct it within its turn.
    fn reject(&mut self, why: &str);

    /// What the last turn executed, for the step's record.
    fn receipt(&self) -> Option<ActionReceipt>;
}
