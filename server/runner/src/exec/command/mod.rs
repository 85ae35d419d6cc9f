//! Running one command: held until the server knows it, watched until it ends, ended with everything it started.
//!
//! Used by shell nodes and by `runCommandBatch`, and in [`talk`] by agents that are spoken with. What a command *means* (whether an
//! exit code fails a node) is decided by the callers.

mod capture;
mod start;
pub(crate) mod talk;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use piw_process::hold::{ExitState, Held, Running};
use piw_process::{ProcessIdentity, group, tree};
use piw_protocol::child::ChildBody;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use capture::Kept;
pub(crate) use capture::{Captured, LineSink, Stream};
use start::{exec_error, spawn_error};

use crate::child::client::{Client, RequestError};

/// Time between SIGTERM and SIGKILL for a command that is aborted.
const ABORT_GRACE: Duration = Duration::from_secs(2);
/// How long commands that a node left running may take to end: they were told when the node's call was over.
const ENDING: Duration = Duration::from_secs(8);
/// The same as [`ABORT_GRACE`] for what an ended command left behind.
const LEFTOVER_GRACE: Duration = Duration::from_millis(300);

/// A command, ready to be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandSpec {
    /// Program, a path or a name found through `PATH`.
    pub(crate) command: String,
    /// Arguments.
    pub(crate) args: Vec<String>,
    /// Absolute working directory.
    pub(crate) cwd: PathBuf,
    /// Variables set in addition to the inherited ones.
    pub(crate) env: Vec<(String, String)>,
    /// Text for standard input.
    pub(crate) stdin: Option<String>,
    /// Characters kept of each stream.
    pub(crate) max_chars: usize,
}

/// Why a command stopped running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself.
    Itself,
    /// Its time was up.
    TimedOut,
    /// It was cancelled.
    Cancelled,
}

/// A command that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Why it stopped running.
    pub(crate) ending: Ending,
    /// How its process ended; `None` when it could not be ended (stuck in the kernel).
    pub(crate) exit: Option<ExitState>,
    /// Standard output.
    pub(crate) stdout: Captured,
    /// Standard error.
    pub(crate) stderr: Captured,
    /// Wall time.
    pub(crate) duration: Duration,
}

/// Why a command gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError<E> {
    /// It could not be started; the text names the command and the reason.
    #[error("{0}")]
    NotStarted(String),
    /// The server did not register it.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Taking a line failed; the command was ended.
    #[error("taking a line failed")]
    Line(E),
}

/// Starts and ends the commands of one runner.
#[derive(Debug, Clone)]
pub(crate) struct Commands {
    client: Client,
    /// Leaders of running commands.
    active: Arc<Mutex<HashSet<u32>>>,
    /// Commands between their fork and their end.
    busy: watch::Sender<usize>,
    /// Held while a command is forked, and while everything that is no command is ended.
    forking: Arc<tokio::sync::Mutex<()>>,
}

/// A leader of a running command while it lives.
#[derive(Debug)]
struct Leader<'a> {
    active: &'a Mutex<HashSet<u32>>,
    pid: u32,
}

impl<'a> Leader<'a> {
    fn new(active: &'a Mutex<HashSet<u32>>, pid: u32) -> Self {
        active.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
        Self { active, pid }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.active
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.pid);
    }
}

/// Counts a command as busy while it lives.
#[derive(Debug)]
struct Busy<'a>(&'a watch::Sender<usize>);

impl<'a> Busy<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|busy| *busy += 1);
        Self(count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|busy| *busy -= 1);
    }
}

/// A command that is registered and was released.
#[derive(Debug)]
struct Begun<'a> {
    running: Running,
    _leader: Leader<'a>,
    _busy: Busy<'a>,
}

impl Commands {
    /// Commands that are registered through `client`.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            active: Arc::default(),
            busy: watch::Sender::new(0),
            forking: Arc::default(),
        }
    }

    /// Runs one command. When it returns, its process group is gone; other descendants are ended unless another command
    /// runs beside it (then [`Commands::sweep`] ends them).
    pub(crate) async fn run<E: Send + 'static>(
        &self,
        spec: &CommandSpec,
        timeout: Option<Duration>,
        cancel: &CancellationToken,
        lines: Option<LineSink<E>>,
    ) -> Result<Finished, CommandError<E>> {
        let started = Instant::now();
        let Begun {
            running,
            _leader,
            _busy,
        } = self.begin(spec).await?;
        let identity = running.identity.clone();
        let result = self.watch(running, spec, timeout, cancel, lines).await;
        self.forget(identity);
        result.map(|mut finished| {
            finished.duration = started.elapsed();
            finished
        })
    }

    /// Forks, registers and releases a command.
    async fn begin<E>(&self, spec: &CommandSpec) -> Result<Begun<'_>, CommandError<E>> {
        let forking = self.forking.lock().await;
        let busy = Busy::new(&self.busy);
        let held = self.hold(spec).await?;
        let identity = held.identity().clone();
        let leader = Leader::new(&self.active, identity.pid);
        drop(forking);
        piw_fault::point!("runner::command_held");
        self.register(&identity, &spec.command).await?;
        piw_fault::point!("runner::before_command_release");
        let released = tokio::task::spawn_blocking(move || held.release()).await;
        match released.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(running) => {
                piw_fault::point!("runner::after_command_release");
                Ok(Begun {
                    running,
                    _leader: leader,
                    _busy: busy,
                })
            }
            Err(error) => {
                self.forget(identity);
                Err(CommandError::NotStarted(exec_error(spec, &error)))
            }
        }
    }

    /// Takes an ended command off the server's list.
    fn forget(&self, identity: ProcessIdentity) {
        piw_fault::point!("runner::command_ended");
        self.client.request_later(unregistered(identity));
    }

    /// Ends what a node leaves behind: waits for commands that are being ended, then ends every process that is left below
    /// this runner.
    pub(crate) async fn sweep(&self) {
        let mut busy = self.busy.subscribe();
        let idle = busy.wait_for(|busy| *busy == 0);
        if tokio::time::timeout(ENDING, idle).await.is_err() {
            tracing::error!("commands of an ended node do not end");
        }
        Self::end_all_but(&self.leaders(), LEFTOVER_GRACE).await;
    }

    /// Ends every process below this runner: it is about to leave.
    pub(crate) async fn end_all() {
        Self::end_all_but(&[], LEFTOVER_GRACE).await;
    }

    async fn end_all_but(keep: &[u32], grace: Duration) {
        if !tree::has_children() {
            return;
        }
        if let Err(error) = group::end_descendants(std::process::id(), grace, keep).await {
            tracing::error!(%error, "left-over processes cannot be listed");
        }
    }

    async fn hold<E>(&self, spec: &CommandSpec) -> Result<Held, CommandError<E>> {
        let not_started = |error: &io::Error| CommandError::NotStarted(spawn_error(spec, error));
        let mut command = std::process::Command::new(&spec.command);
        command
            .args(spec.args.iter().map(OsString::from))
            .current_dir(&spec.cwd)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .stdin(if spec.stdin.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let held = tokio::task::spawn_blocking(move || Held::spawn(command)).await;
        held.unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| not_started(&error))
    }

    async fn register(&self, identity: &ProcessIdentity, command: &str) -> Result<(), RequestError> {
        let label = command.rsplit('/').next().unwrap_or(command).chars().take(64).collect();
        let body = ChildBody::ProcessRegister {
            pid: identity.pid,
            start_identity: identity.start.clone(),
            label,
        };
        self.client.request(None, body).await.map(drop)
    }

    /// Reads, feeds and waits until the command and its streams have ended.
    async fn watch<E: Send + 'static>(
        &self,
        mut running: Running,
        spec: &CommandSpec,
        timeout: Option<Duration>,
        cancel: &CancellationToken,
        lines: Option<LineSink<E>>,
    ) -> Result<Finished, CommandError<E>> {
        let orphaned = CancellationToken::new();
        let mut streams = Streams::start(&mut running, spec, lines, &orphaned)?;
        let deadline = deadline(timeout);
        let mut ending = Ending::Itself;
        let mut exit = None;
        let mut failed = None;
        tokio::pin!(deadline);
        tokio::select! {
            biased;
            exited = running.exited() => exit = exited.ok(),
            () = cancel.cancelled() => ending = Ending::Cancelled,
            () = &mut deadline => ending = Ending::TimedOut,
            error = streams.failed() => failed = Some(error),
        }
        let aborted = exit.is_none();
        self.end_group(&running.identity, if aborted { ABORT_GRACE } else { LEFTOVER_GRACE })
            .await;
        if aborted {
            exit = tokio::time::timeout(ABORT_GRACE, running.exited())
                .await
                .ok()
                .and_then(Result::ok);
        }
        orphaned.cancel();
        if failed.is_none() && !aborted {
            // What was written before the end may still be on its way to whoever takes the lines.
            tokio::select! {
                biased;
                error = streams.ended() => failed = error,
                () = cancel.cancelled() => ending = Ending::Cancelled,
                () = &mut deadline => ending = Ending::TimedOut,
            }
        } else if failed.is_none() {
            // An aborted command's last lines are kept, but nobody waits for them to be published.
            let _ = tokio::time::timeout(ABORT_GRACE, streams.ended()).await;
        }
        if let Some(error) = failed {
            return Err(CommandError::Line(error));
        }
        let (stdout, stderr) = streams.take();
        Ok(Finished {
            ending,
            exit,
            stdout,
            stderr,
            duration: Duration::ZERO,
        })
    }

    /// Ends what is left of a command's group, and every stray descendant when no other command runs.
    async fn end_group(&self, leader: &ProcessIdentity, grace: Duration) {
        if only_child_is(leader.pid) {
            return;
        }
        let result = match group::end(leader, grace).await {
            Ok(group::Ended::Stuck) => Err(io::Error::other("it was killed but does not end")),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::error!(%error, group = leader.pid, "a command's process group cannot be ended");
        }
        // A command beside this one, even one that is only being forked, is below this runner too and must stay.
        let _forking = self.forking.lock().await;
        if *self.busy.borrow() == 1 {
            Self::end_all_but(&self.leaders(), grace).await;
        }
    }

    fn leaders(&self) -> Vec<u32> {
        self.active
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .copied()
            .collect()
    }
}

/// Whether the ended command's own zombie is all that is left below this process.
fn only_child_is(leader: u32) -> bool {
    tree::quick_children().is_some_and(|children| {
        children.iter().all(|&pid| pid == leader)
            && ProcessIdentity::of(leader).ok().flatten().is_some_and(|leader| {
                leader
                    .liveness()
                    .is_ok_and(|state| state == piw_process::Liveness::Zombie)
            })
    })
}

async fn deadline(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

fn unregistered(identity: ProcessIdentity) -> ChildBody {
    ChildBody::ProcessUnregister {
        pid: identity.pid,
        start_identity: identity.start,
    }
}

/// The tasks that serve a command's standard streams.
struct Streams<E> {
    readers: JoinSet<Result<(), E>>,
    stdout: Kept,
    stderr: Kept,
}

impl<E: Send + 'static> Streams<E> {
    fn start(
        running: &mut Running,
        spec: &CommandSpec,
        lines: Option<LineSink<E>>,
        orphaned: &CancellationToken,
    ) -> Result<Self, CommandError<E>> {
        let not_read = |error: io::Error| CommandError::NotStarted(format!("its streams cannot be read: {error}"));
        let missing = || not_read(io::Error::other("a pipe is missing"));
        if let (Some(stdin), Some(text)) = (running.stdio.stdin.take(), spec.stdin.clone()) {
            let mut stdin = tokio::process::ChildStdin::from_std(stdin).map_err(not_read)?;
            tokio::spawn(async move {
                // A command may end without reading its input.
                let _ = stdin.write_all(text.as_bytes()).await;
            });
        }
        let stdout = running.stdio.stdout.take().ok_or_else(missing)?;
        let stdout = tokio::process::ChildStdout::from_std(stdout).map_err(not_read)?;
        let stderr = running.stdio.stderr.take().ok_or_else(missing)?;
        let stderr = tokio::process::ChildStderr::from_std(stderr).map_err(not_read)?;
        let kept = (Kept::new(spec.max_chars), Kept::new(spec.max_chars));
        let mut readers = JoinSet::new();
        readers.spawn(capture::read(
            stdout,
            Stream::Stdout,
            kept.0.clone(),
            lines.clone(),
            orphaned.clone(),
        ));
        readers.spawn(capture::read(
            stderr,
            Stream::Stderr,
            kept.1.clone(),
            lines,
            orphaned.clone(),
        ));
        Ok(Self {
            readers,
            stdout: kept.0,
            stderr: kept.1,
        })
    }

    /// Resolves when taking a line failed, and never otherwise. Cancel safe.
    async fn failed(&mut self) -> E {
        match self.ended().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Resolves when both streams have ended, or with the error of taking a line. Cancel safe.
    async fn ended(&mut self) -> Option<E> {
        while let Some(reader) = self.readers.join_next().await {
            match reader {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Some(error),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
        None
    }

    /// What was read; a stream that is still being read is given up.
    fn take(self) -> (Captured, Captured) {
        (self.stdout.take(), self.stderr.take())
    }
}
