//! Any command as an agent: the prompt on standard input, the submission on standard output. A turn is one process; it remembers
//! nothing, so each is told everything.

use std::convert::Infallible;
use std::time::Instant;

use piw_engine::prompt::{Contract, Reminder};
use piw_process::hold::ExitState;
use piw_protocol::run::ActionReceipt;

use super::answer;
use super::executor::{Event, Executor, REQUEST, Stop, Work};
use crate::child::client::RequestError;
use crate::exec::command::{CommandError, CommandSpec, Ending, Finished};
use crate::exec::receipt;
use crate::exec::shell::last_words;

/// Characters kept of each stream.
const KEPT_CHARS: usize = 4_000_000;

/// An agent command.
#[derive(Debug)]
pub(crate) struct CommandAgent<'a> {
    work: Work<'a>,
    spec: CommandSpec,
    /// The end of a turn whose submission was handed out.
    ended: Option<Stop>,
    receipt: Option<ActionReceipt>,
}

impl<'a> CommandAgent<'a> {
    /// An agent that executes `command`, program first.
    pub(crate) fn new(command: Vec<String>, work: Work<'a>) -> Self {
        let mut words = command.into_iter();
        let spec = CommandSpec {
            command: words.next().unwrap_or_default(),
            args: words.collect(),
            cwd: work.cwd.to_owned(),
            env: vec![(REQUEST.to_owned(), work.request.to_owned())],
            stdin: None,
            max_chars: KEPT_CHARS,
        };
        Self {
            work,
            spec,
            ended: None,
            receipt: None,
        }
    }

    /// The event of a command that ended.
    fn ended(&mut self, run: &Finished) -> Event {
        self.receipt = Some(receipt::of_command(&self.spec, run));
        let stop = match run.ending {
            Ending::Cancelled => Stop::Cancelled,
            Ending::TimedOut => Stop::TimedOut,
            Ending::Itself => match run.exit {
                Some(ExitState::Code(0)) => return self.printed(run),
                _ => Stop::Failed(failure(&self.spec.command, run)),
            },
        };
        Event::TurnEnd(stop)
    }

    /// What a command that succeeded submits.
    fn printed(&mut self, run: &Finished) -> Event {
        let command = &self.spec.command;
        let missing = format!("\"{command}\" printed no JSON");
        if run.stdout.truncated {
            let why = format!("\"{command}\" printed more than {KEPT_CHARS} characters");
            return Event::TurnEnd(Stop::Completed(why));
        }
        match answer::find(&run.stdout.text) {
            Some(value) => {
                self.ended = Some(Stop::Completed(missing));
                Event::Submission(value)
            }
            None => Event::TurnEnd(Stop::Completed(missing)),
        }
    }
}

impl Executor for CommandAgent<'_> {
    fn say(&mut self, contract: &Contract<'_>, reminder: Option<Reminder<'_>>) {
        self.spec.stdin = Some(contract.prompt(reminder));
        self.ended = None;
    }

    async fn next(&mut self) -> Result<Event, RequestError> {
        if let Some(stop) = self.ended.take() {
            return Ok(Event::TurnEnd(stop));
        }
        let left = self
            .work
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(Event::TurnEnd(Stop::TimedOut));
        }
        let Work { commands, cancel, .. } = self.work;
        match commands.run::<Infallible>(&self.spec, left, cancel, None).await {
            Ok(run) => Ok(self.ended(&run)),
            Err(CommandError::Request(error)) => Err(error),
            Err(CommandError::NotStarted(why)) => {
                self.receipt = Some(receipt::of_unstarted(&self.spec));
                Ok(Event::TurnEnd(Stop::NotStarted(why)))
            }
            Err(CommandError::Line(never)) => match never {},
        }
    }

    /// The command has ended; the next one is told with its prompt.
    fn answer(&mut self, _verdict: Result<(), &str>) {}

    /// A command has ended whenever its turn has.
    async fn close(&mut self) {}

    fn receipt(&self) -> Option<ActionReceipt> {
        self.receipt.clone()
    }
}

/// How a command that did not succeed ended, with its last words.
pub(super) fn failure(command: &str, run: &Finished) -> String {
    let how = match run.exit {
        Some(ExitState::Code(code)) => format!("exited with code {code}"),
        Some(ExitState::Signal(signal)) => format!("was ended by {}", receipt::signal_name(signal)),
        None => "ended in a way that the system does not tell".to_owned(),
    };
    format!("\"{command}\" {how}{}", last_words(run))
}
