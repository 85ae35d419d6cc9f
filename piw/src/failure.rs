//! How an error becomes a message, a hint and an exit code. The only place that knows exit codes.

use std::fmt;
use std::process::ExitCode;

/// Exit codes of every command; `docs/commands.md` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The run, the check or the command failed.
    Failed = 1,
    /// The command line or its input is wrong.
    Usage = 2,
    /// No server, no connection, or the server cannot do it now.
    Unavailable = 3,
    /// No such run or workflow.
    NotFound = 4,
    /// Something changed in between, or another command won.
    Conflict = 5,
    /// The run waits for input, or is paused or parked.
    Waiting = 6,
    /// The viewer's terminal went away (SIGHUP).
    HungUp = 129,
    /// Interrupted by Ctrl-C or SIGINT; the run goes on.
    Interrupted = 130,
    /// The viewer was ended by SIGQUIT.
    QuitBySignal = 131,
    /// The viewer was ended by SIGTERM.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that did not succeed.
#[derive(Debug)]
pub struct Failure {
    /// How the process exits.
    pub exit: Exit,
    /// What failed, with the value and the rule.
    pub message: String,
    /// What the user can do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    /// A mistake in the command line or in its input.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "error: {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(to, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

/// Result of a command.
pub type Outcome = Result<Exit, Failure>;
