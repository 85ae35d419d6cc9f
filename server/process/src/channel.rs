//! The two ends of a channel between a server and its child, as bytes.
//!
//! A stream that is registered for reading and writing at once wakes its thread whenever the other side has read, for nothing:
//! that is one wake-up for each message. Here the reading half waits for bytes only, and the writing half for room only while
//! there is none.
#![expect(
    unsafe_code,
    reason = "registering a descriptor for one direction has no safe interface"
)]

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The reading half.
#[derive(Debug)]
pub struct ReadHalf(AsyncFd<Arc<UnixStream>>);

/// The writing half.
#[derive(Debug)]
pub struct WriteHalf(Arc<UnixStream>);

/// Splits a channel. Must be called inside a runtime.
///
/// # Errors
/// When the socket cannot be registered.
pub fn split(stream: UnixStream) -> io::Result<(ReadHalf, WriteHalf)> {
    stream.set_nonblocking(true)?;
    let stream = Arc::new(stream);
    let read = register(Arc::clone(&stream), Interest::READABLE)?;
    Ok((ReadHalf(read), WriteHalf(stream)))
}

fn register(stream: Arc<UnixStream>, interest: Interest) -> io::Result<AsyncFd<Arc<UnixStream>>> {
    // SAFETY: the stream owns its descriptor and keeps it open, and the same, for as long as the registration holds it.
    unsafe { AsyncFd::register_with_interest(stream, interest) }.map_err(io::Error::from)
}

impl ReadHalf {
    /// Reads what is there, and waits while there is nothing; 0 at the end. Cancel-safe.
    ///
    /// # Errors
    /// The system's.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            let Ok(read) = ready.try_io(|stream| (&**stream.get_ref()).read(buffer)) else {
                continue;
            };
            // Less than there was room for: nothing is left, and asking again would be in vain.
            if read.as_ref().is_ok_and(|&count| 0 < count && count < buffer.len()) {
                ready.clear_ready();
            }
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        // The other side reads the end now, though the reading half may live on. It may also be gone already.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

impl WriteHalf {
    /// Writes everything, and waits while the other side does not read. Not cancel-safe: a part may be written.
    ///
    /// # Errors
    /// The system's.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&*self.0).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // One descriptor can be registered once, and the reading half is.
                    let waits = register(Arc::new(self.0.try_clone()?), Interest::WRITABLE)?;
                    let _room = waits.writable().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_waits_for_its_reader_and_arrives_whole() {
        let (near, far) = UnixStream::pair().unwrap();
        let (_open, mut write) = split(near).unwrap();
        let (mut read, _keep) = split(far).unwrap();
        let sent: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[1]).collect();
        let sending = async {
            write.write_all(&sent).await.unwrap();
            drop(write);
        };
        let receiving = async {
            let mut received = Vec::new();
            let mut buffer = vec![0; 16 * 1024];
            loop {
                match read.read(&mut buffer).await.unwrap() {
                    0 => return received,
                    count => received.extend_from_slice(&buffer[..count]),
                }
            }
        };
        let ((), received) = tokio::join!(sending, receiving);
        assert!(received == sent);
    }

    #[tokio::test]
    async fn an_end_is_zero_and_a_broken_end_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut read, mut write) = split(near).unwrap();
        drop(far);
        assert_eq!(read.read(&mut [0; 8]).await.unwrap(), 0);
        assert!(write.write_all(b"x").await.is_err());
    }

    #[tokio::test]
    async fn messages_are_read_one_after_the_other() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut read, mut write) = split(near).unwrap();
        let (mut theirs, mut answer) = split(far).unwrap();
        let mut buffer = [0; 64];
        for round in 0..100u8 {
            write.write_all(&[round]).await.unwrap();
            assert_eq!(theirs.read(&mut buffer).await.unwrap(), 1);
            answer.write_all(&buffer[..1]).await.unwrap();
            assert_eq!(read.read(&mut buffer).await.unwrap(), 1);
            assert_eq!(buffer[0], round);
        }
    }
}
