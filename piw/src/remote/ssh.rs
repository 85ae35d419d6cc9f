//! The system's `ssh` as a connection: `ssh host piw relay --stdio`. No port is opened anywhere; who may log in may watch.
//!
//! `ssh` runs in batch mode: it asks for nothing, because the viewer owns the terminal and a connection that comes back by
//! itself has nobody to ask. Keys, agents, jump hosts and shared connections are the user's `~/.ssh/config`.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use piw_protocol::client::Connector;

use super::process::{ChildStream, Failed, Reaper, last_line};

/// Names the program to run instead of `ssh`.
pub const PROGRAM_VAR: &str = "PIW_SSH";
/// Longest wait for `ssh`, the other machine's shell and its piw together; `ssh` gives up on the network before.
pub(super) const CONNECTING: Duration = Duration::from_secs(25);

/// Options of every `ssh`, before the host.
const OPTIONS: [&str; 15] = [
    "-T", // no terminal
    "-a", // no agent
    "-x", // no X11
    "-o",
    "BatchMode=yes",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "ConnectTimeout=10",
    // A network that is gone is noticed after three questions without an answer.
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
    "-e",
    "none",
];

/// What `ssh` connects to: a host, `user@host`, or a name of its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination(String);

impl Destination {
    /// `None` for what cannot be a destination, among it everything that `ssh` would take for an option.
    #[must_use]
    pub fn new(given: &str) -> Option<Self> {
        let bad =
            given.is_empty() || given.starts_with('-') || given.contains(|c: char| c.is_whitespace() || c.is_control());
        (!bad).then(|| Self(given.to_owned()))
    }

    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without the user.
    #[must_use]
    pub fn short(&self) -> &str {
        match self.0.rsplit_once('@') {
            Some((_, host)) if !host.is_empty() && !self.0.contains("://") => host,
            _ => &self.0,
        }
    }
}

/// Connects through `ssh`.
#[derive(Debug)]
pub struct SshConnector {
    destination: Destination,
    program: OsString,
    remote_piw: String,
    /// Whether the server over there was reached before; then it is not started again when it was stopped.
    reached: AtomicBool,
    reaper: Reaper,
}

impl SshConnector {
    /// A connector that runs `remote_piw` on the destination.
    #[must_use]
    pub fn new(destination: Destination, remote_piw: &str, reaper: Reaper) -> Self {
        let program = std::env::var_os(PROGRAM_VAR).filter(|program| !program.is_empty());
        Self {
            destination,
            program: program.unwrap_or_else(|| "ssh".into()),
            remote_piw: remote_piw.to_owned(),
            reached: AtomicBool::new(false),
            reaper,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(OPTIONS).arg("--").arg(self.destination.as_str());
        command.args([&self.remote_piw, "relay", "--stdio"]);
        if self.reached.load(Ordering::Relaxed) {
            command.arg("--no-start");
        }
        command
    }
}

impl Connector for SshConnector {
    type Stream = ChildStream;

    async fn connect(&self) -> io::Result<ChildStream> {
        let stream = ChildStream::spawn(self.command(), &self.reaper).map_err(|error| {
            let program = self.program.to_string_lossy();
            io::Error::other(format!(
                "cannot run {program} ({error}): install OpenSSH, or name it in {PROGRAM_VAR}"
            ))
        })?;
        match stream.greeted().await {
            Ok(stream) => {
                self.reached.store(true, Ordering::Relaxed);
                Ok(stream)
            }
            Err(failed) => Err(io::Error::other(explain(
                &failed,
                self.destination.as_str(),
                &self.remote_piw,
            ))),
        }
    }

    fn target(&self) -> String {
        format!("{} (ssh)", self.destination.as_str())
    }
}

/// What a failed connection means and what to do about it.
fn explain(failed: &Failed, host: &str, piw: &str) -> String {
    let errors = &failed.errors;
    let line = last_line(errors).unwrap_or_else(|| "it said nothing".to_owned());
    let code = failed.status.and_then(|status| status.code());
    let said = |text: &str| errors.contains(text);
    if let Some(output) = last_line(&failed.output) {
        return format!(
            "{host} wrote {output:?} where piw's first message belongs: make its shell start files (.bashrc) print nothing \
             when they are not interactive"
        );
    }
    match code {
        Some(255) if said("Permission denied") => format!(
            "{host} refused the login ({line}): set up a key or an agent so that this works without a question: ssh {host} true"
        ),
        Some(255) if said("Host key verification failed") || said("HOST IDENTIFICATION HAS CHANGED") => {
            format!("the key of {host} is unknown or has changed: check it by connecting once by hand: ssh {host}")
        }
        Some(255) if said("Could not resolve hostname") => {
            format!("ssh knows no host {host}: check the name, or give it a Host entry in ~/.ssh/config")
        }
        Some(255) => format!("ssh cannot reach {host}: {line}"),
        Some(126 | 127) => format!(
            "{host} has no command {piw} for non-interactive shells ({line}): install piw there, or name it with \
             --remote-piw /path/to/piw"
        ),
        Some(2) if said("unrecognized subcommand") || said("unexpected argument") => {
            let version = piw_protocol::envelope::PACKAGE_VERSION;
            format!("the piw on {host} is of another version: install version {version} there")
        }
        Some(_) => format!("piw on {host} failed: {}", own_words(errors).unwrap_or(line)),
        None if failed.status.is_some() => format!("ssh to {host} was ended by a signal"),
        None => format!("ssh to {host} closed its output: {line}"),
    }
}

/// The error and the hint that a piw printed.
fn own_words(errors: &str) -> Option<String> {
    let part = |name: &str| errors.lines().find_map(|line| line.strip_prefix(name));
    let error = part("error: ")?;
    Some(part("hint: ").map_or_else(|| error.to_owned(), |hint| format!("{error} ({hint})")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn explained(code: i32, errors: &str) -> String {
        let failed = Failed {
            status: Some(ExitStatus::from_raw(code << 8)),
            errors: errors.to_owned(),
            output: String::new(),
        };
        explain(&failed, "gpu", "piw")
    }

    #[test]
    fn every_failure_names_the_host_and_what_to_do() {
        for (code, errors, todo) in [
            (
                255,
                "ada@gpu: Permission denied (publickey,password).\r\n",
                "ssh gpu true",
            ),
            (
                255,
                "Host key verification failed.\n",
                "connecting once by hand: ssh gpu",
            ),
            (
                255,
                "ssh: Could not resolve hostname gpu: Name or service not known",
                "check the name",
            ),
            (
                255,
                "ssh: connect to host gpu port 22: Connection refused",
                "Connection refused",
            ),
            (127, "bash: line 1: piw: command not found\n", "--remote-piw"),
            (
                2,
                "error: unrecognized subcommand 'relay'\n\nUsage: piw [OPTIONS]\n",
                "install version",
            ),
            (
                3,
                "error: no server listens on /x\nhint: start one with: piw server start\n",
                "piw server start",
            ),
        ] {
            let text = explained(code, errors);
            assert!(text.contains("gpu") && text.contains(todo), "{code} {errors}: {text}");
        }
    }

    #[test]
    fn a_shell_that_prints_is_named() {
        let failed = Failed {
            status: None,
            errors: String::new(),
            output: "Welcome to gpu!\n".to_owned(),
        };
        let text = explain(&failed, "gpu", "piw");
        assert!(text.contains("Welcome to gpu!") && text.contains(".bashrc"), "{text}");
    }
}
