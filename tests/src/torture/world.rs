//! One home under torture: its server, its commands and their answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use piw_protocol::client::{Call, Client, ClientOptions, UnixConnector};
use piw_protocol::envelope::{Outcome, Response};
use piw_protocol::ops::RunReceipt;

use super::processes::{self, Kind, Process};
use super::script::Script;
use crate::home::{Home, Printed, is_running};

/// Longest wait for one answer on one connection.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest time for one command, across restarts of the server.
const COMMAND: Duration = Duration::from_secs(90);
/// How often a server may fail to start in a row; every entry of a plan ends at most one start.
const STARTS: u32 = 12;
/// A command of the command line that takes longer is told.
const SLOW: Duration = Duration::from_secs(10);
/// Tries to stop a server outside of a write.
const STOPS: u32 = 50;
/// How long it may take until a stopped server is replaced, and until it ends when it wakes.
const TAKE_OVER: Duration = Duration::from_secs(30);
/// Identity of the harness as a client: the same on every connection.
const CLIENT_ID: &str = "torture";

const WORKFLOWS: [(&str, &str); 5] = [
    ("kinds", include_str!("workflows/kinds.workflow.ts")),
    ("rounds", include_str!("workflows/rounds.workflow.ts")),
    ("part", include_str!("workflows/part.workflow.ts")),
    ("talk", include_str!("workflows/talk.workflow.ts")),
    ("long", include_str!("workflows/long.workflow.ts")),
];

/// A command that was answered.
#[derive(Debug, Clone)]
pub struct Answered {
    /// What was sent.
    pub call: Call,
    /// What came back.
    pub response: Response,
}

impl Answered {
    /// Receipt of a command on runs that was carried out.
    #[must_use]
    pub fn receipt(&self) -> Option<RunReceipt> {
        let success = matches!(self.response.outcome, Outcome::Accepted | Outcome::Adopted);
        self.response.receipt.as_ref().filter(|_| success)?.decode().ok()
    }
}

/// Something that makes a seed fail before its checks.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Stuck(pub String);

/// A home, its server, and every answer so far.
#[derive(Debug)]
pub struct World {
    home: Home,
    faults: PathBuf,
    client: Option<Client>,
    /// Commands in the order of their answers.
    pub answered: Vec<Answered>,
    /// Servers that were started.
    pub starts: u32,
    /// What was found wrong on the way.
    pub wrong: Vec<String>,
    /// Commands that took long, which is no violation.
    pub slow: Vec<String>,
}

impl World {
    /// A home with the workflows, and the script's settings in the environment of everything that runs in it.
    ///
    /// # Panics
    /// When files cannot be written.
    #[must_use]
    pub fn new(binary: &Path, script: &Script) -> Self {
        let mut home = Home::new().binary(binary);
        for (name, source) in WORKFLOWS {
            home.workflow(name, source);
        }
        let faults = home.project().join("faults");
        fs::create_dir(&faults).expect("a new directory");
        // Reads its prompt whole and submits what the step asks for.
        home.set(
            "PIW_AGENT_COMMAND",
            Some(r#"["sh", "-c", "cat > prompt.txt; echo '{\"said\": \"yes\"}'"]"#),
        );
        home.set("PIW_FAULT_DIR", Some(&faults.to_string_lossy()));
        home.set("PIW_FAULT_PLAN", Some(&piw_fault::plan::write(&script.faults)));
        home.set("PIW_FAULT_SWITCHES", Some(&script.switches.join(",")));
        home.set("PIW_MAX_RUNNERS", Some(&script.runners.to_string()));
        home.set(
            "PIW_LEASE_MS",
            script.lease_ms.map(|lease| lease.to_string()).as_deref(),
        );
        if script.volatile {
            home.set("PIW_FAULT_VFS", Some("volatile"));
        }
        Self {
            home,
            faults,
            client: None,
            answered: Vec::new(),
            starts: 0,
            wrong: Vec::new(),
            slow: Vec::new(),
        }
    }

    /// No further faults: servers that are started from now on follow no plan and keep every rule.
    pub fn calm(&mut self) {
        for name in ["PIW_FAULT_PLAN", "PIW_FAULT_SWITCHES", "PIW_FAULT_VFS", "PIW_LEASE_MS"] {
            self.home.set(name, None);
        }
    }

    /// The state directory.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.home.state()
    }

    /// The project directory.
    #[must_use]
    pub fn project(&self) -> PathBuf {
        self.home.project()
    }

    /// Lines that nodes appended to the world outside.
    #[must_use]
    pub fn effects_log(&self) -> String {
        fs::read_to_string(self.project().join("effects.log")).unwrap_or_default()
    }

    /// Names of reached points, once for each process that reached them.
    #[must_use]
    pub fn hits(&self) -> Vec<String> {
        lines(&self.faults.join("hits"))
    }

    /// Entries of the plan that fired.
    #[must_use]
    pub fn fired(&self) -> Vec<String> {
        lines(&self.faults.join("fired"))
    }

    /// The server's log, for a failing seed.
    #[must_use]
    pub fn log(&self) -> String {
        let dir = self.state_dir().join("server");
        let files = fs::read_dir(dir).into_iter().flatten().flatten();
        files
            .filter(|entry| entry.file_name().to_string_lossy().contains(".log"))
            .filter_map(|entry| fs::read_to_string(entry.path()).ok())
            .collect()
    }

    /// Living processes of this home, oldest first.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        processes::of(&self.state_dir())
    }

    /// Whether a server lives.
    #[must_use]
    pub fn has_server(&self) -> bool {
        self.home.server_pid().is_some_and(is_running)
    }

    /// Kills the server, if there is one, and waits until it is gone.
    pub fn kill_server(&mut self) {
        self.client = None;
        if self.has_server() {
            self.home.kill_server();
        }
    }

    /// Stops the server as Ctrl-Z does, starts others until one has taken over, and wakes the old one, which must find that out
    /// and end.
    ///
    /// # Errors
    /// When none takes over.
    pub fn replace_frozen_server(&mut self) -> Result<(), Stuck> {
        let Some(pid) = self.home.server_pid() else {
            return Ok(());
        };
        let old = Pid::from_raw(pid);
        self.client = None;
        // Stopped in the middle of a write it keeps SQLite's lock, and nobody can take over: another moment, then. It may also
        // have ended this instant.
        let mut writing = true;
        for _ in 0..STOPS {
            let _ = kill(old, Signal::SIGSTOP);
            writing = is_writing(pid);
            if !writing {
                break;
            }
            let _ = kill(old, Signal::SIGCONT);
            std::thread::sleep(Duration::from_millis(3));
        }
        if writing {
            return Ok(());
        }
        let started = Instant::now();
        while self.home.server_pid() == Some(pid) && is_running(pid) {
            if started.elapsed() > TAKE_OVER {
                let _ = kill(old, Signal::SIGCONT);
                return Err(Stuck("nobody takes over from a stopped server".to_owned()));
            }
            self.starts += 1;
            if self.piw(&["server", "start"]).code != Some(0) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let _ = kill(old, Signal::SIGCONT);
        let woken = Instant::now();
        while is_running(pid) {
            if woken.elapsed() > TAKE_OVER {
                self.wrong
                    .push(format!("the replaced server {pid} woke up and does not end"));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Stops the server in order. A server that a fault ends instead is gone, too.
    pub fn stop_server(&mut self, now: bool) {
        self.client = None;
        let arguments: &[&str] = if now {
            &["server", "stop", "--now"]
        } else {
            &["server", "stop"]
        };
        // Whether it left is seen by who asks for its process next.
        let _ = self.piw(arguments);
    }

    fn piw(&mut self, arguments: &[&str]) -> Printed {
        let started = Instant::now();
        let printed = self.home.piw(arguments);
        let took = started.elapsed();
        if took > SLOW {
            self.slow.push(format!(
                "piw {} took {:.1} s: {}{}",
                arguments.join(" "),
                took.as_secs_f64(),
                printed.stdout.trim(),
                printed.stderr.trim()
            ));
        }
        printed
    }

    /// Starts a server unless one lives, through the faults that end some of them.
    ///
    /// # Errors
    /// When it does not start.
    pub fn ensure_server(&mut self) -> Result<(), Stuck> {
        if self.has_server() {
            return Ok(());
        }
        self.client = None;
        let mut last = String::new();
        for _ in 0..STARTS {
            let before = self.processes();
            let printed = self.piw(&["server", "start"]);
            self.starts += 1;
            if printed.code == Some(0) {
                self.no_remains(&before);
                return Ok(());
            }
            last = printed.stderr;
        }
        Err(Stuck(format!("the server does not start: {}", last.trim())))
    }

    /// A new server that serves has ended what the last one left, or it leaves by itself at once.
    fn no_remains(&mut self, before: &[Process]) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let now = self.processes();
            // A start that was killed itself may have left the server that serves now.
            let current = self.home.server_pid();
            let left: Vec<&Process> = before
                .iter()
                .filter(|process| now.contains(process) && Some(process.pid) != current)
                .collect();
            if left.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                self.wrong.push(format!(
                    "processes of the last server outlive the start of the next: {left:?}"
                ));
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a command until it is answered, and remembers the answer.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn send(&mut self, call: Call) -> Result<Answered, Stuck> {
        let response = self.deliver(&call).await?;
        let answered = Answered { call, response };
        self.answered.push(answered.clone());
        Ok(answered)
    }

    /// Sends a call until a server decides it: the same key every time.
    ///
    /// # Errors
    /// When no answer comes in time.
    pub async fn deliver(&mut self, call: &Call) -> Result<Response, Stuck> {
        let started = Instant::now();
        let mut last = String::new();
        while started.elapsed() < COMMAND {
            self.ensure_server()?;
            let client = self.client();
            match tokio::time::timeout(ANSWER, client.request(call.clone())).await {
                Ok(Ok(response)) if response.outcome != Outcome::Unavailable => return Ok(response),
                Ok(Ok(response)) => last = format!("{:?}", response.error),
                Ok(Err(error)) => {
                    self.client = None;
                    last = error.to_string();
                }
                Err(_) => {
                    self.client = None;
                    last = "no answer".to_owned();
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(Stuck(format!(
            "{} is not answered in {} s: {last}",
            call.operation.name(),
            COMMAND.as_secs()
        )))
    }

    /// A connection of the same client as ever.
    fn client(&mut self) -> Client {
        let socket = self.state_dir().join("server/server.sock");
        self.client
            .get_or_insert_with(|| {
                let options = ClientOptions {
                    client_id: CLIENT_ID.to_owned(),
                    first_delay: Duration::from_millis(10),
                    longest_delay: Duration::from_millis(50),
                    connect_budget: 2,
                    retry_budget: 2,
                    ..ClientOptions::default()
                };
                Client::start(UnixConnector::new(socket), options)
            })
            .clone()
    }

    /// A process of a kind, drawn by `choose` from the living ones.
    #[must_use]
    pub fn victim(&self, kind: Kind, choose: impl FnOnce(usize) -> usize) -> Option<Process> {
        let mut all = self.processes();
        all.retain(|process| process.kind == kind);
        let at = (!all.is_empty()).then(|| choose(all.len()))?;
        Some(all.swap_remove(at))
    }

    /// Keeps the directory of a failing seed and says where it is.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.home.keep()
    }
}

/// Whether a process holds SQLite's write lock: byte 120 of the shared-memory file.
fn is_writing(pid: i32) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = pid.to_string();
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, "POSIX", _, "WRITE", holder, _, "120", _] if holder == pid)
    })
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
