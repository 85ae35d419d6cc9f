//! A command that is spoken with in lines while it runs.

use std::convert::Infallible;
use std::io;
use std::time::{Duration, Instant};

use piw_process::hold::ExitState;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::capture::{self, Captured, Kept, SILENCE, Stream};
use super::{ABORT_GRACE, Begun, CommandError, CommandSpec, Commands, Ending, Finished, LEFTOVER_GRACE};

/// Bytes read at once.
const READ: usize = 64 * 1024;
/// Longest line that is read; a longer one is left out.
const LINE_BYTES: usize = 64 * 1024 * 1024;
/// Picked lines that wait to be taken, before the command is held back.
const WAITING: usize = 16;

/// A running command: lines in both directions. It has to be ended with [`Talk::end`].
#[derive(Debug)]
pub(crate) struct Talk<'a, T> {
    commands: &'a Commands,
    begun: Begun<'a>,
    /// Set once the command's own process has ended.
    exit: Option<Option<ExitState>>,
    say: Option<mpsc::UnboundedSender<String>>,
    heard: mpsc::Receiver<T>,
    readers: JoinSet<()>,
    stderr: Kept,
    orphaned: CancellationToken,
    started: Instant,
}

/// How a command is asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Its input ends and it has this long to leave by itself.
    Within(Duration),
    /// With SIGTERM.
    AtOnce,
}

impl Commands {
    /// Starts a command to speak with. `read` picks the lines of its standard output that matter. `spec` must have an input: the
    /// first text.
    pub(crate) async fn talk<T: Send + 'static>(
        &self,
        spec: &CommandSpec,
        read: fn(&[u8]) -> Option<T>,
    ) -> Result<Talk<'_, T>, CommandError<Infallible>> {
        let started = Instant::now();
        let mut begun = self.begin(spec).await?;
        let stdio = std::mem::take(&mut begun.running.stdio);
        let orphaned = CancellationToken::new();
        let stderr = Kept::new(spec.max_chars);
        let (say, to_say) = mpsc::unbounded_channel();
        let (hear, heard) = mpsc::channel(WAITING);
        let mut readers = JoinSet::new();
        let served = || -> io::Result<_> {
            let missing = || io::Error::other("a pipe is missing");
            Ok((
                ChildStdin::from_std(stdio.stdin.ok_or_else(missing)?)?,
                ChildStdout::from_std(stdio.stdout.ok_or_else(missing)?)?,
                ChildStderr::from_std(stdio.stderr.ok_or_else(missing)?)?,
            ))
        };
        let served = served().map_err(|error| CommandError::NotStarted(format!("its streams cannot be used: {error}")));
        let (stdin, stdout, errors) = match served {
            Ok(served) => served,
            Err(error) => {
                let identity = begun.running.identity.clone();
                self.end_group(&identity, LEFTOVER_GRACE).await;
                self.forget(identity);
                return Err(error);
            }
        };
        tokio::spawn(write(stdin, to_say));
        readers.spawn(listen(stdout, read, hear, orphaned.clone()));
        let kept = (stderr.clone(), orphaned.clone());
        readers.spawn(async move {
            match capture::read::<Infallible>(errors, Stream::Stderr, kept.0, None, kept.1).await {
                Ok(()) => {}
                Err(never) => match never {},
            }
        });
        let talk = Talk {
            commands: self,
            begun,
            exit: None,
            say: Some(say),
            heard,
            readers,
            stderr,
            orphaned,
            started,
        };
        if let Some(first) = spec.stdin.clone().filter(|text| !text.is_empty()) {
            talk.say(first);
        }
        Ok(talk)
    }
}

impl<T: Send + 'static> Talk<'_, T> {
    /// Writes a text, which must end its line itself. A command that has ended does not get it.
    pub(crate) fn say(&self, text: String) {
        if let Some(say) = &self.say {
            let _ = say.send(text);
        }
    }

    /// The next line that matters; `None` when there will be no other. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<T> {
        loop {
            tokio::select! {
                biased;
                line = self.heard.recv() => return line,
                exited = self.begun.running.exited(), if self.exit.is_none() => self.exited(exited),
            }
        }
    }

    fn exited(&mut self, exited: io::Result<ExitState>) {
        self.exit = Some(exited.ok());
        self.orphaned.cancel();
    }

    /// Ends the command with everything it started, and says how it ended. Its standard output is what `heard` was for, so that it
    /// is empty here.
    pub(crate) async fn end(mut self, farewell: Farewell) -> Finished {
        // What is written from now on is of no interest, but its writer must not be stuck with it.
        self.heard.close();
        self.say = None;
        if let Farewell::Within(grace) = farewell
            && self.exit.is_none()
            && let Ok(exited) = tokio::time::timeout(grace, self.begun.running.exited()).await
        {
            self.exited(exited);
        }
        let identity = self.begun.running.identity.clone();
        let aborted = self.exit.is_none();
        let grace = if aborted { ABORT_GRACE } else { LEFTOVER_GRACE };
        self.commands.end_group(&identity, grace).await;
        if aborted && let Ok(exited) = tokio::time::timeout(ABORT_GRACE, self.begun.running.exited()).await {
            self.exited(exited);
        }
        self.orphaned.cancel();
        let served = async { while self.readers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(ABORT_GRACE, served).await;
        self.commands.forget(identity);
        Finished {
            ending: Ending::Itself,
            exit: self.exit.flatten(),
            stdout: Captured::default(),
            stderr: self.stderr.take(),
            duration: self.started.elapsed(),
        }
    }
}

/// Writes texts until there are no more, then closes the stream.
async fn write(mut stdin: ChildStdin, mut texts: mpsc::UnboundedReceiver<String>) {
    while let Some(text) = texts.recv().await {
        if stdin.write_all(text.as_bytes()).await.is_err() {
            // A command may end without reading its input.
            return;
        }
    }
}

/// Reads lines until the stream ends, hands on those that matter while somebody takes them.
async fn listen<T: Send>(
    mut from: impl AsyncRead + Unpin,
    read: fn(&[u8]) -> Option<T>,
    hear: mpsc::Sender<T>,
    orphaned: CancellationToken,
) {
    let mut buffer = vec![0; READ];
    let mut lines = Lines::default();
    loop {
        let count = tokio::select! {
            biased;
            count = from.read(&mut buffer) => count.unwrap_or(0),
            () = silent(&orphaned) => 0,
        };
        if count == 0 {
            return;
        }
        let mut rest = &buffer[..count];
        while let Some(line) = lines.push(&mut rest) {
            if let Some(record) = read(&line) {
                // Nobody takes it any more when the command is being ended.
                let _ = hear.send(record).await;
            }
        }
    }
}

async fn silent(orphaned: &CancellationToken) {
    orphaned.cancelled().await;
    tokio::time::sleep(SILENCE).await;
}

/// Cuts bytes that arrive in pieces at line feeds, and at nothing else.
#[derive(Debug, Default)]
struct Lines {
    open: Vec<u8>,
    /// The open line is too long and its rest is left out.
    skipping: bool,
}

impl Lines {
    /// Takes bytes up to the next line feed; the line when it is complete.
    fn push(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            *bytes = rest.get(1..).unwrap_or_default();
            self.skipping |= self.open.len() + piece.len() > LINE_BYTES;
            if self.skipping {
                self.open = Vec::new();
            } else {
                self.open.extend_from_slice(piece);
            }
            if end.is_some() && !std::mem::take(&mut self.skipping) {
                return Some(std::mem::take(&mut self.open));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut lines = Lines::default();
        let mut cut = Vec::new();
        for piece in pieces {
            let mut rest = *piece;
            cut.extend(std::iter::from_fn(|| lines.push(&mut rest)));
        }
        cut
    }

    #[test]
    fn lines_end_at_line_feeds_only() {
        assert_eq!(
            cut(&[b"on", b"e\ntwo\n\n", "a\u{2028}b\n".as_bytes(), b"open"]),
            [b"one".to_vec(), b"two".to_vec(), Vec::new(), "a\u{2028}b".into()]
        );
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out() {
        let long = vec![b'x'; LINE_BYTES / 2 + 1];
        let cut = cut(&[b"a\n", &long, &long, b"y\nb\n"]);
        assert_eq!(cut, [b"a".to_vec(), b"b".to_vec()]);
    }
}
