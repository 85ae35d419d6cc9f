//! A child process's standard streams as a connection. The child never outlives it: dropping the connection ends the child,
//! and a [`Reaper`] waits for those that are ending before this process goes.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout};

/// Bytes of the child's diagnostics that are kept, the newest.
const KEPT: usize = 8 * 1024;
/// How long a child may take to leave after SIGTERM before it is killed.
const LEAVE: Duration = Duration::from_millis(500);
/// Pause between two looks at a child that is ending.
const LOOK: Duration = Duration::from_millis(2);
/// How long a child that closed its output may take to say how it ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends children and collects them. Clones share the work.
#[derive(Debug, Clone, Default)]
pub struct Reaper(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Reaper {
    /// Ends a child and its group in the background.
    fn end(&self, child: Child) {
        let mut ending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ending.retain(|thread| !thread.is_finished());
        ending.push(std::thread::spawn(move || end(child)));
    }

    /// Waits, when it is dropped, until every child whose connection was dropped is gone: little more than half a second at
    /// most.
    #[must_use]
    pub fn last(&self) -> LastReaper {
        LastReaper(self.clone())
    }

    fn finish(&self) {
        let ending = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in ending {
            // A thread that failed has nothing left to wait for.
            drop(thread.join());
        }
    }
}

/// See [`Reaper::last`].
#[derive(Debug)]
pub struct LastReaper(Reaper);

impl Drop for LastReaper {
    fn drop(&mut self) {
        self.0.finish();
    }
}

fn end(mut child: Child) {
    // The child leads its group and is not collected yet, so the number still means that group.
    let group = i32::try_from(child.id()).map(Pid::from_raw);
    let signal = |signal| {
        if let Ok(group) = group {
            // It fails when nothing of the group is left, which is what is wanted.
            let _ = killpg(group, signal);
        }
    };
    signal(Signal::SIGTERM);
    let deadline = Instant::now() + LEAVE;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(LOOK),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    signal(Signal::SIGKILL);
    drop(child.wait());
}

/// How a child ended before it was of use.
#[derive(Debug)]
pub(super) struct Failed {
    /// Its exit status; `None` when it still runs.
    pub(super) status: Option<ExitStatus>,
    /// The end of what it wrote to standard error.
    pub(super) errors: String,
    /// What it wrote to standard output instead of a frame.
    pub(super) output: String,
}

/// A child's standard streams.
#[derive(Debug)]
pub struct ChildStream {
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// The first byte, read to know that the child works.
    first: Option<u8>,
    errors: Arc<Mutex<Vec<u8>>>,
    child: Option<Child>,
    reaper: Reaper,
}

impl ChildStream {
    /// Starts a command in a process group of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn spawn(mut command: Command, reaper: &Reaper) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(mut stderr)) = streams else {
            reaper.end(child);
            return Err(io::Error::other("the child has no standard streams"));
        };
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&errors);
        // A thread, because a process that the child leaves behind may hold the pipe open; it ends with the pipe.
        std::thread::spawn(move || {
            let mut chunk = [0; 1024];
            while let Ok(count @ 1..) = stderr.read(&mut chunk) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&chunk[..count]);
                let surplus = kept.len().saturating_sub(KEPT);
                kept.drain(..surplus);
            }
        });
        let converted = ChildStdin::from_std(stdin).and_then(|stdin| Ok((stdin, ChildStdout::from_std(stdout)?)));
        match converted {
            Ok((stdin, stdout)) => Ok(Self {
                stdin,
                stdout,
                first: None,
                errors,
                child: Some(child),
                reaper: reaper.clone(),
            }),
            Err(error) => {
                reaper.end(child);
                Err(error)
            }
        }
    }

    /// Waits for the first byte of the first frame.
    ///
    /// # Errors
    /// When the child ends before, or writes something else.
    pub(super) async fn greeted(mut self) -> Result<Self, Failed> {
        let mut start = vec![0; 256];
        let count = self.stdout.read(&mut start[..1]).await.unwrap_or(0);
        if count == 1 && start[0] == b'{' {
            self.first = Some(b'{');
            // Warnings on the way to a connection are no reason for its end.
            self.errors.lock().unwrap_or_else(PoisonError::into_inner).clear();
            return Ok(self);
        }
        let mut output = start[..count].to_vec();
        if count == 1 {
            let more = tokio::time::timeout(LAST_WORDS, self.stdout.read(&mut start)).await;
            let more = more.map_or(0, Result::unwrap_or_default);
            output.extend_from_slice(&start[..more]);
        }
        let status = if count == 0 { self.status().await } else { None };
        Err(Failed {
            status,
            errors: self.errors(),
            output: String::from_utf8_lossy(&output).into_owned(),
        })
    }

    /// The exit status of a child that closed its output; `None` when it stays.
    async fn status(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        let deadline = Instant::now() + LAST_WORDS;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = child.try_wait() {
                // What it wrote last is on its way through the other thread.
                tokio::time::sleep(LOOK * 5).await;
                return Some(status);
            }
            tokio::time::sleep(LOOK).await;
        }
        None
    }

    fn errors(&self) -> String {
        let kept = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}

impl AsyncRead for ChildStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stdout).poll_read(context, buffer);
        let ended = matches!(polled, Poll::Ready(Ok(()))) && buffer.filled().len() == before && buffer.remaining() > 0;
        match last_line(&self.errors()).filter(|_| ended) {
            Some(line) => Poll::Ready(Err(io::Error::other(line))),
            None => polled,
        }
    }
}

impl AsyncWrite for ChildStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stdin).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_shutdown(context)
    }
}

impl Drop for ChildStream {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.reaper.end(child);
        }
    }
}

/// The last line that says something.
pub(super) fn last_line(text: &str) -> Option<String> {
    const LONGEST: usize = 300;
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(LONGEST).collect())
}
