//! Canonical JSON lines over the inherited socket: whole messages in, whole messages out.

use std::io;

use piw_process::channel::{ReadHalf, WriteHalf, split};
use piw_protocol::canonical::{self, CanonicalError};
use piw_protocol::frame::{Decoder, FrameError};
use serde::de::DeserializeOwned;

/// Bytes read at once.
const READ: usize = 16 * 1024;

/// Why the channel cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The socket failed.
    #[error("the channel to the server failed: {0}")]
    Io(#[from] io::Error),
    /// Bytes that are no frame.
    #[error("the server sent no valid frame: {0}")]
    Frame(#[from] FrameError),
    /// A frame that is no message.
    #[error("the server sent no valid message: {0}")]
    Message(#[from] CanonicalError),
}

/// The reading half.
#[derive(Debug)]
pub(crate) struct Reader {
    stream: ReadHalf,
    decoder: Decoder,
}

/// The writing half. Writing waits while the server does not read: that is the back pressure.
#[derive(Debug)]
pub(crate) struct Writer {
    stream: WriteHalf,
}

/// Splits a channel. Must be called inside a runtime.
///
/// # Errors
/// When the socket cannot be registered.
pub(crate) fn open(stream: std::os::unix::net::UnixStream) -> io::Result<(Reader, Writer)> {
    let (read, write) = split(stream)?;
    Ok((
        Reader {
            stream: read,
            decoder: Decoder::new(),
        },
        Writer { stream: write },
    ))
}

impl Reader {
    /// The next message; `None` when the server closed the channel between two. Cancel safe.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ChannelError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(Some(canonical::from_slice(&frame)?));
            }
            let mut buffer = [0; READ];
            match self.stream.read(&mut buffer).await? {
                0 => {
                    self.decoder.finish()?;
                    return Ok(None);
                }
                read => self.decoder.push(&buffer[..read]),
            }
        }
    }
}

impl Writer {
    /// Sends an encoded frame.
    pub(crate) async fn send_frame(&mut self, frame: &[u8]) -> Result<(), ChannelError> {
        self.stream.write_all(frame).await?;
        Ok(())
    }
}
