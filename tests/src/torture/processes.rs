//! The processes of one home, seen from outside: whoever has its state directory in the environment.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The server.
    Server,
    /// A resolver.
    Resolver,
    /// A runner.
    Runner,
    /// A process of a node.
    Command,
}

/// A living process of a home.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// When it started, in the kernel's ticks: the order in which processes came.
    pub started: u64,
    /// Its id.
    pub pid: i32,
    /// What it is.
    pub kind: Kind,
    /// Its command line, for people.
    pub line: String,
}

/// The living processes whose environment names this state directory, oldest first. Zombies have no environment.
#[must_use]
pub fn of(state_dir: &Path) -> Vec<Process> {
    let wanted = format!("PIW_STATE_DIR={}", state_dir.display()).into_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Process> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let ours = environment.split(|byte| *byte == 0).any(|variable| variable == wanted);
            ours.then(|| process(pid)).flatten()
        })
        .collect();
    // A command that is forked and not executed yet looks like the runner that forked it.
    let runners: HashSet<i32> = of_kind(&found, Kind::Runner);
    for process in &mut found {
        if process.kind == Kind::Runner && parent(process.pid).is_some_and(|parent| runners.contains(&parent)) {
            process.kind = Kind::Command;
        }
    }
    found.sort();
    found
}

fn of_kind(all: &[Process], kind: Kind) -> HashSet<i32> {
    all.iter()
        .filter(|process| process.kind == kind)
        .map(|process| process.pid)
        .collect()
}

fn process(pid: i32) -> Option<Process> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let text = words.join(" ").trim().to_owned();
    let kind = match (words.get(1).map(String::as_str), words.get(2).map(String::as_str)) {
        (Some("server"), Some("run")) => Kind::Server,
        // The command that starts a server is ours and waits for it.
        (Some("server"), _) => return None,
        (Some("internal"), Some("resolver")) => Kind::Resolver,
        (Some("internal"), Some("runner")) => Kind::Runner,
        _ => Kind::Command,
    };
    Some(Process {
        started: started(pid)?,
        pid,
        kind,
        line: text,
    })
}

/// Field 22 of `stat`.
fn started(pid: i32) -> Option<u64> {
    stat(pid, 22)
}

/// Field 4 of `stat`.
fn parent(pid: i32) -> Option<i32> {
    stat(pid, 4)
}

/// A field of `stat`, counted from 1; those after the name, which may hold anything.
fn stat<T: std::str::FromStr>(pid: i32, field: usize) -> Option<T> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(field - 3)?.parse().ok()
}

/// Sends SIGKILL, if the process is still the one that was seen.
pub fn end(process: &Process) {
    if started(process.pid) == Some(process.started) {
        // It may have ended this instant.
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
}
