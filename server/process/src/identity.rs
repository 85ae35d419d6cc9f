//! A process by pid and start time, so that a reused pid is never mistaken for it.

use std::io;

use crate::sys;

/// A process, exactly: its pid and the start identity that the operating system reports for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: u32,
    /// Start identity: on Linux `<boot id>/<clock ticks since boot>`, on macOS `<seconds>.<microseconds>`. Opaque to callers.
    pub start: String,
}

/// What is known of a process that was recorded earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It exists and can run.
    Running,
    /// It has ended, and its parent has not collected it yet. It executes nothing.
    Zombie,
    /// It is gone; the pid may belong to another process now.
    Gone,
}

impl ProcessIdentity {
    /// The identity of a process that exists now; `None` when no process has this pid.
    ///
    /// # Errors
    /// When the process table cannot be read.
    pub fn of(pid: u32) -> io::Result<Option<Self>> {
        Ok(sys::info(pid)?.map(|info| Self { pid, start: info.start }))
    }

    /// The identity of the calling process.
    ///
    /// # Errors
    /// When the process table cannot be read.
    pub fn own() -> io::Result<Self> {
        let pid = std::process::id();
        Self::of(pid)?.ok_or_else(|| io::Error::other(format!("process {pid} is not in the process table")))
    }

    /// Whether this very process still exists.
    ///
    /// # Errors
    /// When the process table cannot be read, which proves nothing about the process.
    pub fn liveness(&self) -> io::Result<Liveness> {
        Ok(match sys::info(self.pid)? {
            Some(info) if info.start == self.start && info.zombie => Liveness::Zombie,
            Some(info) if info.start == self.start => Liveness::Running,
            Some(_) | None => Liveness::Gone,
        })
    }

    /// Whether the identity was recorded since the last boot, as far as the system can tell.
    #[must_use]
    pub fn is_of_this_boot(&self) -> bool {
        sys::is_of_this_boot(&self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_is_running() {
        let own = ProcessIdentity::own().unwrap();
        assert_eq!(own.liveness().unwrap(), Liveness::Running);
        assert!(own.is_of_this_boot());
    }

    #[test]
    fn another_start_time_is_another_process() {
        let mut own = ProcessIdentity::own().unwrap();
        own.start.push('1');
        assert_eq!(own.liveness().unwrap(), Liveness::Gone);
    }

    #[test]
    fn an_ended_child_is_a_zombie_until_it_is_collected() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap().unwrap();
        while identity.liveness().unwrap() == Liveness::Running {
            std::thread::yield_now();
        }
        assert_eq!(identity.liveness().unwrap(), Liveness::Zombie);
        child.wait().unwrap();
        assert_eq!(identity.liveness().unwrap(), Liveness::Gone);
    }
}
