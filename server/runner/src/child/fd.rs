//! The inherited channel descriptor.
#![expect(
    unsafe_code,
    reason = "a raw descriptor number from the parent becomes an owned one here, and only here"
)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Takes ownership of the channel that the server left on `fd`, and keeps it out of every process that this one starts.
///
/// # Errors
/// When `fd` is no open stream socket: the role was started by hand.
pub(crate) fn adopt(fd: RawFd) -> io::Result<UnixStream> {
    let not_ours = |why: &dyn std::fmt::Display| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "descriptor {fd} is no channel to a workflow server ({why}); this command is started by the server only"
            ),
        )
    };
    // SAFETY: fcntl on a plain number; a closed descriptor is reported as an error.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(not_ours(&io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is open (checked above), was made for this role by the server, and nothing else in this process
    // uses it.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    match nix::sys::socket::getsockopt(&owned, nix::sys::socket::sockopt::SockType) {
        Ok(nix::sys::socket::SockType::Stream) => {}
        Ok(other) => return Err(not_ours(&format!("it is a {other:?} socket"))),
        Err(error) => return Err(not_ours(&error)),
    }
    let stream = UnixStream::from(owned);
    stream.set_nonblocking(true)?;
    Ok(stream)
}
