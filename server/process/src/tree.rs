//! The process table: who descends from whom, and who inherits orphans.

use std::collections::HashSet;
use std::io;

use crate::identity::ProcessIdentity;
use crate::sys;

/// A row of the process table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub parent: u32,
    /// Process group.
    pub group: u32,
    /// It has ended and waits to be collected.
    pub zombie: bool,
    /// Start identity.
    pub start: String,
}

impl ProcessInfo {
    /// The process as an identity.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        ProcessIdentity {
            pid: self.pid,
            start: self.start.clone(),
        }
    }
}

/// Makes this process inherit the orphans among its descendants (Linux), so that a daemon that left its group and its
/// parent can still be found. Elsewhere this does nothing: only groups are promised there.
///
/// # Errors
/// When the system refuses.
pub fn become_subreaper() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true)?;
    Ok(())
}

/// One process; `None` when the pid is free.
///
/// # Errors
/// When the process table cannot be read.
pub fn info(pid: u32) -> io::Result<Option<ProcessInfo>> {
    sys::info(pid)
}

/// Every process below `root`, parents before children, zombies included, `root` itself not.
///
/// # Errors
/// When the process table cannot be read.
pub fn descendants(root: u32) -> io::Result<Vec<ProcessInfo>> {
    Ok(below(&[root], all()?))
}

/// Every visible process.
pub(crate) fn all() -> io::Result<Vec<ProcessInfo>> {
    sys::all()
}

/// Every process of `rest` below any of `roots`, parents before children, the roots themselves not.
pub(crate) fn below(roots: &[u32], mut rest: Vec<ProcessInfo>) -> Vec<ProcessInfo> {
    let mut known: HashSet<u32> = roots.iter().copied().collect();
    let mut found = Vec::new();
    loop {
        let before = found.len();
        rest.retain(|info| {
            let below = known.contains(&info.parent) && !known.contains(&info.pid);
            if below {
                known.insert(info.pid);
                found.push(info.clone());
            }
            !below
        });
        if found.len() == before {
            return found;
        }
    }
}

/// The processes of a group, zombies included.
///
/// # Errors
/// When the process table cannot be read.
pub fn group_members(group: u32) -> io::Result<Vec<ProcessInfo>> {
    Ok(sys::all()?.into_iter().filter(|info| info.group == group).collect())
}

/// Whether the calling process has any child, zombies included. Much cheaper than [`descendants`]; under
/// [`become_subreaper`] "no child" also means "no descendant".
#[must_use]
pub fn has_children() -> bool {
    crate::hold::peek_any_child()
}

/// Pids of the calling process's children, zombies included, where the system lists them without a look at every process;
/// `None` where it does not.
#[must_use]
pub fn quick_children() -> Option<Vec<u32>> {
    sys::quick_children()
}

/// Collects the zombies among the calling process's children, except the pids in `owned`, whose owners wait for them.
///
/// # Errors
/// When the process table cannot be read.
pub fn collect_orphans(owned: &HashSet<u32>) -> io::Result<()> {
    let own = std::process::id();
    for info in descendants(own)? {
        if info.parent == own && info.zombie && !owned.contains(&info.pid) {
            let pid = nix::unistd::Pid::from_raw(libc::pid_t::try_from(info.pid).map_err(io::Error::other)?);
            // Another collector may have been faster; either way it is gone.
            let _ = nix::sys::wait::waitpid(pid, Some(nix::sys::wait::WaitPidFlag::WNOHANG));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_a_descendant_and_a_group_member() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let own = descendants(std::process::id()).unwrap();
        let found = own
            .iter()
            .find(|info| info.pid == child.id())
            .expect("the child is listed");
        assert!(
            group_members(found.group)
                .unwrap()
                .iter()
                .any(|info| info.pid == child.id())
        );
        assert!(has_children());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
