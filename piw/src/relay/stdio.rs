//! `piw relay --stdio`: one client connection over this process's standard streams, for `ssh host piw relay --stdio`. Bytes
//! are copied as they come; the server judges them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Bytes copied at once.
const BUFFER: usize = 64 * 1024;

/// Copies standard input to the server and the server to standard output until the server closes, which it does when
/// standard input ends. Blocks.
///
/// # Errors
/// When the standard streams or the socket fail.
pub fn copy_streams(server: UnixStream) -> io::Result<()> {
    // Unbuffered: a frame goes out when it is there.
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut from = server.try_clone()?;
    let mut to = server;
    // This thread may stay in a read for as long as the process lives; the end of the process ends it.
    std::thread::Builder::new().spawn(move || {
        // A server that is gone is noticed by the other direction.
        drop(copy(&mut input, &mut to));
        drop(to.shutdown(Shutdown::Write));
    })?;
    copy(&mut from, &mut output)
}

/// Copies until the end. Not with [`io::copy`]: on Linux that splices a socket into a pipe, which holds the pipe's lock while
/// it waits for the socket, and whoever reads the pipe hangs in the kernel.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
