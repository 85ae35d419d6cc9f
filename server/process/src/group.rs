//! Signals to process groups, and the one loop that ends them: SIGTERM, a grace period, SIGKILL.

use std::io;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::time::Instant;

use crate::identity::ProcessIdentity;
use crate::tree::{self, ProcessInfo};

/// How long a killed process may take to disappear before [`end`] gives up on it (uninterruptible sleep in the kernel).
const KILL_WAIT: Duration = Duration::from_secs(5);
/// First and longest pause between two looks at the process table.
const POLL: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// How a group ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Nothing of it was left when it was looked at.
    AlreadyGone,
    /// It left after SIGTERM.
    Terminated,
    /// It had to be killed.
    Killed,
    /// It was killed but is still in the process table; it executes nothing more in user space.
    Stuck,
}

/// Living members of the group that `leader` leads or led. Empty when the group is gone, also when the leader's pid
/// belongs to another process now: a pid stays taken while its group has members, so the old group has none then.
///
/// # Errors
/// When the process table cannot be read.
pub fn living_members(leader: &ProcessIdentity) -> io::Result<Vec<ProcessInfo>> {
    if !leader.is_of_this_boot() {
        return Ok(Vec::new());
    }
    let members = tree::group_members(leader.pid)?;
    let reused = ProcessIdentity::of(leader.pid)?.is_some_and(|now| now.start != leader.start);
    Ok(if reused {
        Vec::new()
    } else {
        members.into_iter().filter(|info| !info.zombie).collect()
    })
}

/// Sends a signal to the group of `leader`. `Ok(false)` when the group is gone.
///
/// # Errors
/// When the process table cannot be read or the signal is refused.
pub fn signal(leader: &ProcessIdentity, signal: Signal) -> io::Result<bool> {
    if living_members(leader)?.is_empty() {
        return Ok(false);
    }
    piw_fault::point!("process::before_signal_group");
    match killpg(raw(leader.pid)?, signal) {
        Ok(()) => {
            piw_fault::point!("process::after_signal_group");
            Ok(true)
        }
        Err(Errno::ESRCH) => Ok(false),
        // macOS answers EPERM when only zombies are left.
        Err(Errno::EPERM) if living_members(leader)?.is_empty() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Sends a signal to one process if it is still that process. `Ok(false)` when it is gone.
///
/// # Errors
/// When the process table cannot be read or the signal is refused.
pub fn signal_process(process: &ProcessIdentity, signal: Signal) -> io::Result<bool> {
    if process.liveness()? != crate::Liveness::Running {
        return Ok(false);
    }
    piw_fault::point!("process::before_signal");
    match kill(raw(process.pid)?, signal) {
        Ok(()) => {
            piw_fault::point!("process::after_signal");
            Ok(true)
        }
        Err(Errno::ESRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Ends the group of `leader` and what descends from its members, whatever group or session that moved to: SIGTERM, up to
/// `grace` for it to leave, then SIGKILL until nothing is left.
///
/// # Errors
/// When the process table cannot be read or a signal is refused.
pub async fn end(leader: &ProcessIdentity, grace: Duration) -> io::Result<Ended> {
    let mut family = Family::of(leader)?;
    if family.is_gone() {
        return Ok(Ended::AlreadyGone);
    }
    family.signal(Signal::SIGTERM)?;
    // A stopped process acts on SIGTERM only when it runs again.
    family.signal(Signal::SIGCONT)?;
    if family.gone_by(Instant::now() + grace, None).await? {
        return Ok(Ended::Terminated);
    }
    let gone = family
        .gone_by(Instant::now() + KILL_WAIT, Some(Signal::SIGKILL))
        .await?;
    Ok(if gone { Ended::Killed } else { Ended::Stuck })
}

/// Kills the group of `leader` and what descends from its members at once, and waits until nothing is left.
///
/// # Errors
/// When the process table cannot be read or the signal is refused.
pub async fn kill_now(leader: &ProcessIdentity) -> io::Result<Ended> {
    let mut family = Family::of(leader)?;
    if family.is_gone() {
        return Ok(Ended::AlreadyGone);
    }
    let gone = family
        .gone_by(Instant::now() + KILL_WAIT, Some(Signal::SIGKILL))
        .await?;
    Ok(if gone { Ended::Killed } else { Ended::Stuck })
}

/// A group and the processes outside it that were seen to descend from its members.
struct Family<'a> {
    leader: &'a ProcessIdentity,
    /// Living members of the group.
    members: Vec<ProcessInfo>,
    /// Living processes outside the group.
    strays: Vec<ProcessInfo>,
}

impl<'a> Family<'a> {
    fn of(leader: &'a ProcessIdentity) -> io::Result<Self> {
        let mut family = Self {
            leader,
            members: Vec::new(),
            strays: Vec::new(),
        };
        family.look()?;
        Ok(family)
    }

    fn is_gone(&self) -> bool {
        self.members.is_empty() && self.strays.is_empty()
    }

    /// Looks who lives. Strays whose parents are gone meanwhile stay known, and so do members that left the group.
    fn look(&mut self) -> io::Result<()> {
        let before = std::mem::replace(&mut self.members, living_members(self.leader)?);
        let mut roots: Vec<u32> = self.members.iter().map(|info| info.pid).collect();
        let left: Vec<ProcessInfo> = before.into_iter().filter(|known| !roots.contains(&known.pid)).collect();
        let mut strays: Vec<ProcessInfo> = Vec::new();
        for stray in self.strays.iter().chain(&left) {
            if stray.identity().liveness()? == crate::Liveness::Running {
                roots.push(stray.pid);
                strays.push(stray.clone());
            }
        }
        if !roots.is_empty() {
            let own = std::process::id();
            let outside = tree::below(&roots, tree::all()?)
                .into_iter()
                .filter(|info| !info.zombie && info.group != self.leader.pid && info.pid != own);
            strays.extend(outside);
        }
        self.strays = strays;
        Ok(())
    }

    fn signal(&self, with: Signal) -> io::Result<()> {
        if !self.members.is_empty() {
            signal(self.leader, with)?;
        }
        // Who left the group since it was looked at did not get the group's signal.
        for member in &self.members {
            if tree::info(member.pid)?.is_some_and(|now| now.group != self.leader.pid) {
                signal_process(&member.identity(), with)?;
            }
        }
        for stray in &self.strays {
            signal_process(&stray.identity(), with)?;
        }
        Ok(())
    }

    /// Waits until nothing is left, repeating `nudge` at every look (new members can appear between two looks).
    async fn gone_by(&mut self, deadline: Instant, nudge: Option<Signal>) -> io::Result<bool> {
        let mut pause = POLL.0;
        loop {
            self.look()?;
            if self.is_gone() {
                return Ok(true);
            }
            if let Some(with) = nudge {
                self.signal(with)?;
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            tokio::time::sleep(pause.min(deadline - Instant::now())).await;
            pause = (pause * 2).min(POLL.1);
        }
    }
}

/// Ends every descendant of `root` (not `root` itself), whatever group or session it moved to, and collects the orphans
/// among them when `root` is the calling process. `keep` names descendants whose subtrees are left alone.
///
/// # Errors
/// When the process table cannot be read.
pub async fn end_descendants(root: u32, grace: Duration, keep: &[u32]) -> io::Result<usize> {
    let mut ended = 0;
    let mut pause = POLL.0;
    let start = Instant::now();
    let mut told = std::collections::HashSet::new();
    loop {
        let spared: std::collections::HashSet<u32> = spared(keep)?;
        let living: Vec<ProcessInfo> = tree::descendants(root)?
            .into_iter()
            .filter(|info| !spared.contains(&info.pid) && !info.zombie)
            .collect();
        if living.is_empty() || start.elapsed() > grace + KILL_WAIT {
            break;
        }
        let overdue = start.elapsed() >= grace;
        for info in &living {
            let first = told.insert((info.pid, info.start.clone()));
            ended += usize::from(first);
            if overdue {
                signal_process(&info.identity(), Signal::SIGKILL)?;
            } else if first {
                signal_process(&info.identity(), Signal::SIGTERM)?;
                signal_process(&info.identity(), Signal::SIGCONT)?;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL.1);
    }
    if root == std::process::id() {
        tree::collect_orphans(&keep.iter().copied().collect())?;
    }
    Ok(ended)
}

/// Ends processes one by one, whatever their groups: SIGTERM to all, up to `grace` for them to leave, SIGKILL.
///
/// # Errors
/// When the process table cannot be read or a signal is refused.
pub async fn end_each(processes: &[ProcessIdentity], grace: Duration) -> io::Result<()> {
    for process in processes {
        signal_process(process, Signal::SIGTERM)?;
        signal_process(process, Signal::SIGCONT)?;
    }
    let start = Instant::now();
    let mut pause = POLL.0;
    loop {
        let mut living = Vec::new();
        for process in processes {
            if process.liveness()? == crate::Liveness::Running {
                living.push(process);
            }
        }
        if living.is_empty() || start.elapsed() > grace + KILL_WAIT {
            return Ok(());
        }
        if start.elapsed() >= grace {
            for process in living {
                signal_process(process, Signal::SIGKILL)?;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL.1);
    }
}

/// The kept processes and everything below them.
fn spared(keep: &[u32]) -> io::Result<std::collections::HashSet<u32>> {
    let mut spared: std::collections::HashSet<u32> = keep.iter().copied().collect();
    for pid in keep {
        spared.extend(tree::descendants(*pid)?.into_iter().map(|info| info.pid));
    }
    Ok(spared)
}

fn raw(pid: u32) -> io::Result<Pid> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // 0 and 1 would address the own group and every process.
    if pid <= 1 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("refusing to signal pid {pid}"),
        ));
    }
    Ok(Pid::from_raw(pid))
}
