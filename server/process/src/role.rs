//! Preparing a child that speaks on file descriptor 3.
#![expect(
    unsafe_code,
    reason = "descriptor set-up between fork and exec has no safe interface"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The descriptor on which a child finds its channel.
pub const CHANNEL_FD: i32 = 3;

/// What a child of the server gets besides its arguments.
#[derive(Debug)]
pub struct RoleSetup {
    /// The child's end of the channel; becomes descriptor 3.
    pub channel: OwnedFd,
    /// Ask for SIGKILL when the spawning *thread* ends (Linux): spawn from a thread that lives as long as the server.
    pub die_with_thread: bool,
    /// Most open files; `None` leaves the limit.
    pub open_files: Option<u64>,
}

/// Makes `command` start in its own process group, without core dumps, with the channel on descriptor 3.
///
/// # Errors
/// When no descriptor is left.
pub fn prepare(command: &mut Command, setup: RoleSetup) -> io::Result<()> {
    command.process_group(0);
    let RoleSetup {
        channel,
        die_with_thread,
        open_files,
    } = setup;
    let occupied = occupy_channel_fd(&channel)?;
    let parent = std::process::id();
    let prepare = move || {
        let _occupied = &occupied;
        let source = channel.as_raw_fd();
        // SAFETY: all of these are async-signal-safe system calls on plain values.
        unsafe {
            if source == CHANNEL_FD {
                check(libc::fcntl(source, libc::F_SETFD, 0))?;
            } else {
                check(libc::dup2(source, CHANNEL_FD))?;
            }
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            check(libc::setrlimit(libc::RLIMIT_CORE, &raw const none))?;
            if let Some(most) = open_files {
                let most = most as libc::rlim_t;
                let mut limit = libc::rlimit {
                    rlim_cur: 0,
                    rlim_max: 0,
                };
                check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit))?;
                limit.rlim_cur = most.min(limit.rlim_max);
                check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit))?;
            }
            #[cfg(target_os = "linux")]
            if die_with_thread {
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
                // The parent may have died before the request.
                if u32::try_from(libc::getppid()) != Ok(parent) {
                    return Err(io::Error::from_raw_os_error(libc::ECANCELED));
                }
            }
            #[cfg(not(target_os = "linux"))]
            let _ = (die_with_thread, parent);
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing, takes no lock and calls async-signal-safe functions only.
    unsafe {
        command.pre_exec(prepare);
    }
    Ok(())
}

/// Keeps descriptor 3 taken in this process until the command is dropped, so that no pipe that the standard library
/// creates for the spawn itself can land on it and be overwritten in the child. Returns some other descriptor when 3 was
/// taken already.
fn occupy_channel_fd(channel: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC makes a new descriptor, which this function then owns.
    unsafe {
        let fd = libc::fcntl(channel.as_raw_fd(), libc::F_DUPFD_CLOEXEC, CHANNEL_FD);
        check(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
