//! What a command prints: decoded as it arrives, kept up to a bound, cut into lines for those who want them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

use crate::script::HostFuture;

/// Bytes read at once.
const READ: usize = 16 * 1024;
/// Longest line that is handed on; what follows in it is left out.
const LINE_CHARS: usize = 64 * 1024;
/// How long a stream may stay silent once every process that should hold it is gone.
pub(super) const SILENCE: Duration = Duration::from_millis(500);

/// A standard stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Its name in callbacks.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Takes complete lines, in order, one at a time: the stream is not read while a line is being taken. An error ends the
/// command.
pub(crate) type LineSink<E> = Arc<dyn Fn(Stream, String) -> HostFuture<Result<(), E>> + Send + Sync>;

/// What was kept of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    /// The first characters, invalid bytes as U+FFFD.
    pub(crate) text: String,
    /// Whether anything was left out.
    pub(crate) truncated: bool,
}

/// What is kept of a stream while it is read; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Kept(Arc<Mutex<Keeper>>);

impl Kept {
    /// Keeps the first `max_chars` characters.
    pub(crate) fn new(max_chars: usize) -> Self {
        Self(Arc::new(Mutex::new(Keeper {
            captured: Captured::default(),
            left: max_chars,
        })))
    }

    /// What was kept so far.
    pub(crate) fn take(&self) -> Captured {
        std::mem::take(&mut self.keeper().captured)
    }

    fn keeper(&self) -> std::sync::MutexGuard<'_, Keeper> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a stream to its end. After `orphaned` was cancelled, a stream that stays silent counts as ended: some process that
/// escaped still holds it.
pub(crate) async fn read<E: Send + 'static>(
    mut from: impl AsyncRead + Unpin,
    stream: Stream,
    kept: Kept,
    lines: Option<LineSink<E>>,
    orphaned: CancellationToken,
) -> Result<(), E> {
    let mut decoder = Decoder::default();
    let mut splitter = Splitter::default();
    let mut buffer = vec![0; READ];
    let mut text = String::new();
    loop {
        let read = tokio::select! {
            biased;
            read = from.read(&mut buffer) => read.unwrap_or(0),
            () = silent(&orphaned) => { kept.keeper().captured.truncated = true; 0 }
        };
        text.clear();
        if read == 0 {
            decoder.finish(&mut text);
        } else {
            decoder.push(&buffer[..read], &mut text);
        }
        kept.keeper().push(&text);
        if let Some(sink) = &lines {
            for line in splitter.push(&text, read == 0) {
                sink(stream, line).await?;
            }
        }
        if read == 0 {
            return Ok(());
        }
    }
}

async fn silent(orphaned: &CancellationToken) {
    orphaned.cancelled().await;
    tokio::time::sleep(SILENCE).await;
}

/// Decodes UTF-8 that arrives in pieces; every invalid sequence becomes one U+FFFD.
#[derive(Debug, Default)]
struct Decoder {
    /// The beginning of a character whose rest has not arrived.
    carry: Vec<u8>,
}

impl Decoder {
    fn push(&mut self, bytes: &[u8], into: &mut String) {
        let joined;
        let mut rest = if self.carry.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut self.carry).as_slice(), bytes].concat();
            joined.as_slice()
        };
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    into.push_str(valid);
                    return;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    into.push_str(&String::from_utf8_lossy(valid));
                    let Some(bad) = error.error_len() else {
                        self.carry = after.to_vec();
                        return;
                    };
                    into.push(char::REPLACEMENT_CHARACTER);
                    rest = &after[bad..];
                }
            }
        }
    }

    fn finish(&mut self, into: &mut String) {
        if !std::mem::take(&mut self.carry).is_empty() {
            into.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// Keeps the first characters of a text.
#[derive(Debug)]
struct Keeper {
    captured: Captured,
    left: usize,
}

impl Keeper {
    fn push(&mut self, text: &str) {
        let (end, taken) = first_chars(text, self.left);
        self.captured.text.push_str(&text[..end]);
        self.captured.truncated |= end < text.len();
        self.left -= taken;
    }
}

/// Byte length and number of the first `most` characters of `text`.
fn first_chars(text: &str, most: usize) -> (usize, usize) {
    // A character has at least one byte, so a short text needs no counting to know that it fits.
    match text.char_indices().nth(most) {
        Some((end, _)) => (end, most),
        None => (text.len(), text.chars().count()),
    }
}

/// Cuts a text that arrives in pieces into lines, without their line breaks.
#[derive(Debug, Default)]
struct Splitter {
    open: String,
    open_chars: usize,
}

impl Splitter {
    /// Lines that are complete now; at the end of the stream also the last one.
    fn push(&mut self, text: &str, ends: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in text.split_inclusive('\n') {
            let (content, complete) = match piece.strip_suffix('\n') {
                Some(content) => (content, true),
                None => (piece, false),
            };
            let (end, chars) = first_chars(content, LINE_CHARS - self.open_chars);
            self.open.push_str(&content[..end]);
            self.open_chars += chars;
            if complete {
                lines.push(self.take());
            }
        }
        if ends && !self.open.is_empty() {
            lines.push(self.take());
        }
        lines
    }

    fn take(&mut self) -> String {
        self.open_chars = 0;
        let mut line = std::mem::take(&mut self.open);
        if line.ends_with('\r') {
            line.pop();
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn capture(bytes: &[u8], max_chars: usize) -> Captured {
        let kept = Kept::new(max_chars);
        read::<()>(bytes, Stream::Stdout, kept.clone(), None, CancellationToken::new())
            .await
            .unwrap();
        kept.take()
    }

    #[tokio::test]
    async fn a_bound_cuts_between_characters() {
        let kept = capture("añ€😀".as_bytes(), 3).await;
        assert_eq!(
            kept,
            Captured {
                text: "añ€".into(),
                truncated: true
            }
        );
        let kept = capture("añ€😀".as_bytes(), 4).await;
        assert_eq!(
            kept,
            Captured {
                text: "añ€😀".into(),
                truncated: false
            }
        );
        assert_eq!(
            capture(b"x", 0).await,
            Captured {
                text: String::new(),
                truncated: true
            }
        );
    }

    #[tokio::test]
    async fn invalid_bytes_become_replacement_characters() {
        assert_eq!(capture(b"a\xffb\xe2\x82", 10).await.text, "a\u{fffd}b\u{fffd}");
    }

    #[tokio::test]
    async fn lines_are_taken_in_order_and_the_last_one_at_the_end() {
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let sink: LineSink<()> = Arc::new(move |_, line| {
            send.send(line).unwrap();
            Box::pin(async { Ok(()) })
        });
        let bytes: &[u8] = b"one\r\ntwo\n\nlast";
        read(
            bytes,
            Stream::Stdout,
            Kept::new(100),
            Some(sink),
            CancellationToken::new(),
        )
        .await
        .unwrap();
        let mut lines = Vec::new();
        while let Some(line) = receive.recv().await {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "two", "", "last"]);
    }

    #[tokio::test]
    async fn a_line_without_end_stays_bounded() {
        let mut splitter = Splitter::default();
        for _ in 0..10 {
            assert!(splitter.push(&"x".repeat(LINE_CHARS), false).is_empty());
        }
        let lines = splitter.push("y\nz\n", false);
        assert_eq!((lines[0].len(), lines[1].as_str()), (LINE_CHARS, "z"));
    }

    proptest! {
        #[test]
        fn pieces_decode_like_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..200) {
            let mut decoder = Decoder::default();
            let mut text = String::new();
            let at = at.min(bytes.len());
            decoder.push(&bytes[..at], &mut text);
            decoder.push(&bytes[at..], &mut text);
            decoder.finish(&mut text);
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
