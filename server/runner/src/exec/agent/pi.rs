//! The Pi coding agent: one process of its RPC mode works on a request until that is settled.
//!
//! The process loads nothing of the user's but settings, models and credentials. Our extension (`assets/pi-extension/step.ts`)
//! gives it the tool `workflow`, whose calls arrive here as dialogs and wait for their answer; so a rejected submission is
//! corrected within its turn. When a turn ends without an accepted one, the reminder goes to the same process, which remembers
//! the task.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use piw_engine::prompt::{Contract, Reminder};
use piw_protocol::canonical;
use piw_protocol::run::ActionReceipt;
use serde_json::json;

use super::command::failure;
use super::executor::{Event, Executor, REQUEST, Stop, Work};
use super::rpc::{self, Ready, Record};
use super::tool::{self, Call};
use crate::child::client::RequestError;
use crate::exec::command::talk::{Farewell, Talk};
use crate::exec::command::{CommandError, CommandSpec, Finished};
use crate::exec::receipt;
use crate::exec::shell::last_words;

/// The extension that every Pi of a step loads.
const EXTENSION: &str = include_str!("../../../../../assets/pi-extension/step.ts");
/// Where this server keeps its files.
const STATE_DIR: &str = "PIW_STATE_DIR";
/// Variable that tells the extension the allowed tools.
const TOOLS: &str = "PIW_STEP_TOOLS";
/// A child without sessions, and without what users and projects have installed.
const CLEAN: [&str; 8] = [
    "--mode",
    "rpc",
    "--no-session",
    "-ne",
    "-ns",
    "-np",
    "-nc",
    "--no-themes",
];
/// Leaves the project's settings out. Older versions know neither these nor the flag.
const UNTRUSTED: &str = "-na";
/// How long Pi may take until its extension is loaded.
const START: Duration = Duration::from_secs(60);
/// How long Pi may take to leave after its submission was accepted.
const LEAVE: Duration = Duration::from_secs(2);
/// How long a Pi that does not say when it is idle must be quiet before it is asked.
const QUIET: Duration = Duration::from_millis(300);
/// Characters kept of standard error.
const KEPT_CHARS: usize = 100_000;
/// Most bytes kept of what the model said last.
const SAID_BYTES: usize = 96 * 1024;

/// A Pi that works on one request.
#[derive(Debug)]
pub(crate) struct PiAgent<'a> {
    work: Work<'a>,
    spec: CommandSpec,
    allowed: Option<&'a [String]>,
    talk: Option<Talk<'a, Record>>,
    /// Set when the extension is loaded.
    ready: Option<Ready>,
    /// When Pi must be ready.
    start_by: Option<Instant>,
    /// What the next turn begins with.
    to_say: Option<String>,
    /// The dialog of the call that was handed out last.
    open: Option<Open>,
    accepted: bool,
    /// When a Pi that does not say that it is idle is asked.
    ask_at: Option<Instant>,
    /// The model's last message of this turn.
    said: String,
    /// How it ended, if the provider failed.
    error: Option<String>,
    receipt: Option<ActionReceipt>,
}

/// A call that waits for its answer.
#[derive(Debug)]
struct Open {
    dialog: String,
    /// Whether it is a submission.
    submits: bool,
}

/// What happens next to a Pi.
enum Next {
    Said(Record),
    Gone,
    Cancelled,
    TimedOut,
    NotReady,
    Quiet,
}

impl<'a> PiAgent<'a> {
    /// A Pi that `command` starts, program first, with the tools that the step allows.
    pub(crate) fn new(command: Vec<String>, extension: &Path, allowed: Option<&'a [String]>, work: Work<'a>) -> Self {
        let mut words = command.into_iter();
        let program = words.next().unwrap_or_default();
        let mut args: Vec<String> = words.collect();
        args.extend(CLEAN.map(str::to_owned));
        args.extend([
            "-e".to_owned(),
            extension.to_string_lossy().into_owned(),
            UNTRUSTED.to_owned(),
        ]);
        let mut env = vec![(REQUEST.to_owned(), work.request.to_owned())];
        env.extend(allowed.map(|allowed| (TOOLS.to_owned(), json!(allowed).to_string())));
        let spec = CommandSpec {
            command: program,
            args,
            cwd: work.cwd.to_owned(),
            env,
            // An input that stays open; what is written follows.
            stdin: Some(String::new()),
            max_chars: KEPT_CHARS,
        };
        Self {
            work,
            spec,
            allowed,
            talk: None,
            ready: None,
            start_by: None,
            to_say: None,
            open: None,
            accepted: false,
            ask_at: None,
            said: String::new(),
            error: None,
            receipt: None,
        }
    }

    /// Starts the process; the inner error says why it cannot be.
    async fn start(&mut self) -> Result<Result<(), String>, RequestError> {
        match self.work.commands.talk(&self.spec, rpc::read).await {
            Ok(talk) => {
                self.talk = Some(talk);
                self.ready = None;
                self.start_by = Some(Instant::now() + START);
                Ok(Ok(()))
            }
            Err(CommandError::Request(error)) => Err(error),
            Err(CommandError::NotStarted(why)) => {
                self.receipt = Some(receipt::of_unstarted(&self.spec));
                Ok(Err(why))
            }
            Err(CommandError::Line(never)) => match never {},
        }
    }

    async fn wait(&mut self) -> Next {
        let Some(talk) = &mut self.talk else {
            return Next::Gone;
        };
        let start_by = self.start_by.filter(|_| self.ready.is_none());
        tokio::select! {
            biased;
            () = self.work.cancel.cancelled() => Next::Cancelled,
            () = until(self.work.deadline) => Next::TimedOut,
            said = talk.next() => said.map_or(Next::Gone, Next::Said),
            () = until(start_by) => Next::NotReady,
            () = until(self.ask_at) => Next::Quiet,
        }
    }

    /// Ends the process and keeps its record.
    async fn end(&mut self, farewell: Farewell) -> Option<Finished> {
        let run = self.talk.take()?.end(farewell).await;
        (self.ready, self.open, self.ask_at) = (None, None, None);
        let mut receipt = receipt::of_command(&self.spec, &run);
        receipt.action_type = "agent".to_owned();
        receipt.stdout = Some(self.said.clone());
        self.receipt = Some(receipt);
        Some(run)
    }

    fn write(&self, line: String) {
        if let Some(talk) = &self.talk {
            talk.say(line);
        }
    }

    /// Begins the turn once Pi can take it.
    fn begin(&mut self) {
        if self.ready.is_some()
            && let Some(text) = self.to_say.take()
        {
            (self.said, self.error) = (String::new(), None);
            self.write(rpc::prompt(&text));
        }
    }

    /// The extension is loaded: the tools are checked, the turn begins.
    fn loaded(&mut self, ready: Ready) -> Option<Stop> {
        let unknown = self
            .allowed
            .and_then(|allowed| allowed.iter().find(|tool| !ready.known.contains(tool)));
        if let Some(tool) = unknown {
            let known: Vec<&str> = ready
                .known
                .iter()
                .map(String::as_str)
                .filter(|&tool| tool != tool::NAME)
                .collect();
            return Some(Stop::NotStarted(format!(
                "the step allows the tool \"{tool}\" (allowedTools), which this Pi does not have; it has {}",
                known.join(", ")
            )));
        }
        self.ready = Some(ready);
        self.begin();
        None
    }

    /// What a record means to whoever waits for this agent.
    fn heard(&mut self, record: Record) -> Option<Event> {
        match record {
            Record::Ready(ready) => return self.loaded(ready).map(Event::TurnEnd),
            Record::Call { dialog, arguments } => return self.called(dialog, &arguments),
            Record::Dialog { dialog } => self.write(rpc::dismiss(&dialog)),
            Record::Refused(why) => {
                let why = format!("\"{}\" does not take the prompt: {}", self.spec.command, why.trim());
                return Some(Event::TurnEnd(Stop::NotStarted(why)));
            }
            Record::Assistant { mut text, error } => {
                receipt::cut(&mut text, SAID_BYTES);
                (self.said, self.error) = (text, error);
            }
            Record::Busy | Record::State { idle: false } => self.ask_at = None,
            Record::RunEnd => {
                let settles = self.ready.as_ref().is_some_and(|ready| ready.settles);
                self.ask_at = (!settles).then(|| Instant::now() + QUIET);
            }
            Record::Settled | Record::State { idle: true } => return Some(Event::TurnEnd(self.turn_end())),
        }
        None
    }

    fn called(&mut self, dialog: String, arguments: &str) -> Option<Event> {
        let (event, submits) = match tool::parse(arguments, self.work.request) {
            _ if self.accepted => {
                self.write(rpc::answer(
                    &dialog,
                    false,
                    "The step is complete; there is nothing more to send.",
                    true,
                ));
                return None;
            }
            Ok(Call::Submit(output)) => (Event::Submission(output), true),
            Ok(Call::Update(update)) => (Event::Update(update), false),
            Err(why) => {
                self.write(rpc::answer(&dialog, false, &why, false));
                return None;
            }
        };
        self.open = Some(Open { dialog, submits });
        Some(event)
    }

    fn turn_end(&mut self) -> Stop {
        self.ask_at = None;
        match self.error.take() {
            Some(error) => Stop::Failed(format!("the model failed: {error}")),
            None => Stop::Completed(format!(
                "the model ended its turn without calling the tool \"{}\"",
                tool::NAME
            )),
        }
    }

    /// The process ended although nobody wanted that.
    fn gone(&mut self, was_ready: bool, run: &Finished) -> Option<Stop> {
        let why = failure(&self.spec.command, run);
        if was_ready {
            return Some(Stop::Failed(why));
        }
        if run.stderr.text.contains(&format!("Unknown option: {UNTRUSTED}"))
            && self.spec.args.pop_if(|last| last == UNTRUSTED).is_some()
        {
            return None;
        }
        Some(Stop::NotStarted(format!("{why}{}", old_node(&run.stderr.text))))
    }
}

impl Executor for PiAgent<'_> {
    fn say(&mut self, contract: &Contract<'_>, reminder: Option<Reminder<'_>>) {
        // A process that still runs remembers the task.
        self.to_say = Some(match reminder {
            Some(reminder) if self.ready.is_some() => contract.reminder(reminder),
            reminder => contract.prompt(reminder),
        });
        self.begin();
    }

    async fn next(&mut self) -> Result<Event, RequestError> {
        loop {
            if self.talk.is_none()
                && let Err(why) = self.start().await?
            {
                return Ok(Event::TurnEnd(Stop::NotStarted(why)));
            }
            let stop = match self.wait().await {
                Next::Said(record) => match self.heard(record) {
                    Some(event) => return Ok(event),
                    None => continue,
                },
                Next::Quiet => {
                    self.ask_at = Some(Instant::now() + QUIET);
                    self.write(rpc::get_state());
                    continue;
                }
                Next::Gone => {
                    let was_ready = self.ready.is_some();
                    let run = self.end(Farewell::Within(LEAVE)).await;
                    match run.and_then(|run| self.gone(was_ready, &run)) {
                        Some(stop) => stop,
                        None => continue,
                    }
                }
                Next::Cancelled => {
                    self.end(Farewell::AtOnce).await;
                    Stop::Cancelled
                }
                Next::TimedOut => {
                    self.end(Farewell::AtOnce).await;
                    Stop::TimedOut
                }
                Next::NotReady => {
                    let run = self.end(Farewell::AtOnce).await;
                    let words = run.map(|run| last_words(&run)).unwrap_or_default();
                    let command = &self.spec.command;
                    Stop::NotStarted(format!(
                        "\"{command}\" was not ready within {} s{words}",
                        START.as_secs()
                    ))
                }
            };
            return Ok(Event::TurnEnd(stop));
        }
    }

    fn answer(&mut self, verdict: Result<(), &str>) {
        let Some(Open { dialog, submits }) = self.open.take() else {
            return;
        };
        let line = match (verdict, submits) {
            (Ok(()), true) => {
                self.accepted = true;
                rpc::answer(
                    &dialog,
                    true,
                    "The submission was accepted. The step is complete.",
                    true,
                )
            }
            (Ok(()), false) => rpc::answer(&dialog, true, "The update was published.", false),
            (Err(why), true) => {
                let why =
                    format!("The submission was rejected: {why}\nCorrect it and submit again with the same requestId.");
                rpc::answer(&dialog, false, &why, false)
            }
            (Err(why), false) => rpc::answer(&dialog, false, &format!("The update was refused: {why}"), false),
        };
        self.write(line);
    }

    async fn close(&mut self) {
        let farewell = if self.accepted {
            Farewell::Within(LEAVE)
        } else {
            Farewell::AtOnce
        };
        self.end(farewell).await;
    }

    fn receipt(&self) -> Option<ActionReceipt> {
        self.receipt.clone()
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

/// What to do when Pi died under a Node that is too old for it, which Node says in its last line.
fn old_node(stderr: &str) -> String {
    let version = stderr
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("Node.js v"));
    match version {
        Some(version) => format!(
            "\n(it ran under Node {version}; Pi 1.6 needs Node 22.19 or later, first on the PATH of the server)"
        ),
        None => String::new(),
    }
}

/// Puts the extension where Pi can load it: a file of the server's that only its user can read.
///
/// # Errors
/// A sentence that names the path.
pub(crate) fn extension() -> Result<PathBuf, String> {
    let state = std::env::var_os(STATE_DIR).filter(|dir| !dir.is_empty());
    let Some(state) = state else {
        return Err(format!(
            "{STATE_DIR} is not set, so there is no place for Pi's extension"
        ));
    };
    let dir = Path::new(&state).join("server/agent");
    place(&dir).map_err(|error| format!("Pi's extension cannot be written to {}: {error}", dir.display()))
}

/// Writes the extension unless it is there, byte for byte.
fn place(dir: &Path) -> io::Result<PathBuf> {
    let digest = canonical::sha256_hex(EXTENSION.as_bytes());
    let path = dir.join(format!("pi-step-{}.ts", &digest[..16]));
    if fs::read(&path).is_ok_and(|found| found == EXTENSION.as_bytes()) {
        return Ok(path);
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let partial = dir.join(format!(".{}.partial", std::process::id()));
    let _ = fs::remove_file(&partial);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)?;
    io::Write::write_all(&mut file, EXTENSION.as_bytes())?;
    drop(file);
    fs::rename(&partial, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_extension_is_private_and_is_restored_when_it_was_changed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("agent");
        let path = place(&dir).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&path)), (0o700, 0o600));
        fs::write(&path, "changed").unwrap();
        assert_eq!(place(&dir).unwrap(), path);
        assert_eq!(fs::read_to_string(&path).unwrap(), EXTENSION);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[test]
    fn an_old_node_is_named() {
        assert!(old_node("SyntaxError: x\n\nNode.js v20.20.2\n").contains("Node 20.20.2"));
        assert_eq!(old_node("Error: no such model"), "");
    }
}
