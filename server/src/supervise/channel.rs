//! The server's end of a child's channel: canonical JSON frames over a socket pair.
//!
//! Back pressure both ways: one message is read, decided and answered before the next is looked at, and a child that does not
//! read its answers is an error after a bounded time.

use std::io;
use std::time::Duration;

use piw_process::channel::{ReadHalf, WriteHalf};
use piw_protocol::frame::{self, Decoder, FrameError};
use serde::Serialize;
use tokio::net::UnixStream;

const READ_BUFFER: usize = 16 * 1024;
/// How long a child may leave an answer unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// What goes wrong on a channel. All of it ends the child.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The system's error.
    #[error("the channel failed: {0}")]
    Io(#[from] io::Error),
    /// No frame, or a message that does not fit one.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The child does not read.
    #[error("the child left a message unread for {} s", WRITE_TIMEOUT.as_secs())]
    Blocked,
}

/// Reading half.
#[derive(Debug)]
pub(crate) struct Incoming {
    stream: ReadHalf,
    decoder: Decoder,
    buffer: Box<[u8]>,
}

/// Writing half.
#[derive(Debug)]
pub(crate) struct Outgoing(WriteHalf);

/// Both halves of a channel.
///
/// # Errors
/// When no descriptor is left.
pub(crate) fn split(stream: UnixStream) -> io::Result<(Incoming, Outgoing)> {
    let (read, write) = piw_process::channel::split(stream.into_std()?)?;
    let buffer = vec![0; READ_BUFFER].into_boxed_slice();
    Ok((
        Incoming {
            stream: read,
            decoder: Decoder::new(),
            buffer,
        },
        Outgoing(write),
    ))
}

impl Incoming {
    /// The next frame; `None` when the child closed its end between frames. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ChannelError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(Some(frame));
            }
            let count = self.stream.read(&mut self.buffer).await?;
            if count == 0 {
                self.decoder.finish()?;
                return Ok(None);
            }
            self.decoder.push(&self.buffer[..count]);
        }
    }
}

impl Outgoing {
    /// Writes one message.
    pub(crate) async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), ChannelError> {
        let bytes = frame::encode(message)?;
        let written = tokio::time::timeout(WRITE_TIMEOUT, self.0.write_all(&bytes)).await;
        written.map_err(|_| ChannelError::Blocked)?.map_err(ChannelError::Io)
    }
}
