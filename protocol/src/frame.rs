//! Frames: one canonical JSON document and a line feed, at most [`MAX_FRAME`] bytes together. A codec without I/O: push the
//! bytes that arrived, take the frames that are complete.
//!
//! A frame's text is not looked at here; [`crate::envelope`] and [`crate::child`] judge it.

use serde::Serialize;

use crate::canonical::{self, CanonicalError};

/// Largest frame in bytes, line feed included.
pub const MAX_FRAME: usize = 1_048_576;

/// Why bytes make no frame, or a message does not fit one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A peer sent a longer line.
    #[error("a frame of more than {limit} bytes was received")]
    ReceivedTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A message is longer than a frame may be.
    #[error("the message needs a frame of {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Bytes, line feed included.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The stream ended inside a frame.
    #[error("the connection ended {bytes} bytes into an unfinished frame")]
    Unfinished {
        /// Bytes that arrived of it.
        bytes: usize,
    },
    /// The message has no canonical form.
    #[error("the message cannot be encoded: {0}")]
    Encode(#[from] CanonicalError),
}

/// The frame of a message: canonical JSON and a line feed.
///
/// # Errors
/// When the message has no canonical form or the frame would exceed [`MAX_FRAME`].
pub fn encode<T: Serialize + ?Sized>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = canonical::to_vec(message)?;
    bytes.push(b'\n');
    if bytes.len() > MAX_FRAME {
        return Err(FrameError::TooLarge {
            bytes: bytes.len(),
            limit: MAX_FRAME,
        });
    }
    Ok(bytes)
}

/// Cuts a byte stream into frames.
///
/// Take every complete frame with [`Decoder::next_frame`] after each [`Decoder::push`]: then at most one frame and one push
/// are held. After an error the decoder takes nothing more; the connection has to be closed.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes already handed out.
    start: usize,
    /// Bytes known to hold no line feed.
    scanned: usize,
    failed: bool,
}

impl Decoder {
    /// An empty decoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that arrived. After an error they are dropped.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame without its line feed, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`FrameError::ReceivedTooLarge`] as soon as a line is known to be longer than a frame may be.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let too_large = FrameError::ReceivedTooLarge { limit: MAX_FRAME };
        if self.failed {
            return Err(too_large);
        }
        let window = self.buffer.len().min(self.start + MAX_FRAME);
        let found = self.buffer[self.scanned..window].iter().position(|byte| *byte == b'\n');
        let Some(found) = found else {
            self.scanned = window;
            if window - self.start < MAX_FRAME {
                return Ok(None);
            }
            self.failed = true;
            self.buffer = Vec::new();
            return Err(too_large);
        };
        let end = self.scanned + found;
        let frame = self.buffer[self.start..end].to_vec();
        self.start = end + 1;
        self.scanned = self.start;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            self.scanned = 0;
        }
        Ok(Some(frame))
    }

    /// Bytes of a frame that has begun and not ended.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Checks that the stream ended between frames.
    ///
    /// # Errors
    /// [`FrameError::Unfinished`] when it ended inside one.
    pub fn finish(&self) -> Result<(), FrameError> {
        match self.pending() {
            0 => Ok(()),
            bytes => Err(FrameError::Unfinished { bytes }),
        }
    }
}
