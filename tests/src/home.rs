//! A temporary home directory with its own state directory and server, and running `piw` in it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::wait;

/// The binary under test: `PIW_BIN`, else the one that `cargo build` makes in this profile.
///
/// # Panics
/// When the build fails.
pub fn piw_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(given) = std::env::var_os("PIW_BIN") {
            return PathBuf::from(given)
                .canonicalize()
                .expect("PIW_BIN names an existing file");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the tests crate lies in the workspace");
        let mut build = Command::new(env!("CARGO"));
        build
            .current_dir(root)
            .args(["build", "--quiet", "--package", "piw", "--bin", "piw"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(
            build.status().expect("cargo runs").success(),
            "cargo build of piw failed"
        );
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        target
            .join(if cfg!(debug_assertions) { "debug" } else { "release" })
            .join("piw")
    })
}

/// A clean home. Its server is stopped and awaited when this is dropped.
#[derive(Debug)]
pub struct Home {
    dir: TempDir,
    binary: Option<PathBuf>,
    environment: Vec<(String, String)>,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

/// What a finished command printed.
#[derive(Debug)]
pub struct Printed {
    /// Exit code, `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Printed {
    /// Standard output as JSON.
    ///
    /// # Panics
    /// When it is not exactly one JSON document.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is not JSON: {error}\n{}\n{}", self.stdout, self.stderr))
    }

    /// Asserts the exit code.
    ///
    /// # Panics
    /// When it differs; the message holds everything that was printed.
    #[must_use]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }
}

impl From<Output> for Printed {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Home {
    /// A new, empty home.
    ///
    /// # Panics
    /// When the temporary directory cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("piw")
            .tempdir()
            .expect("a temporary directory");
        fs::create_dir(dir.path().join("project")).expect("a new directory");
        Self {
            dir,
            binary: None,
            environment: Vec::new(),
        }
    }

    /// Uses another binary than [`piw_binary`].
    #[must_use]
    pub fn binary(mut self, path: &Path) -> Self {
        self.binary = Some(path.to_owned());
        self
    }

    /// Sets an environment variable for every command (and, when it starts one, the server).
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The variables set with [`Home::env`].
    #[must_use]
    pub fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// Sets or removes an environment variable for later commands and servers.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        self.environment.retain(|(known, _)| known != name);
        self.environment
            .extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    /// Leaves the directory in place when this is dropped, and says where it is.
    #[must_use]
    pub fn keep(mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.dir.path().to_owned()
    }

    /// The project directory: the working directory of every command.
    #[must_use]
    pub fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Writes a workflow into the project's `.pi/workflows/` and returns its path.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn workflow(&self, name: &str, source: &str) -> PathBuf {
        let dir = self.project().join(".pi/workflows");
        fs::create_dir_all(&dir).expect("a new directory");
        let path = dir.join(format!("{name}.workflow.ts"));
        fs::write(&path, source).expect("a new file");
        path
    }

    /// A `piw` command in this home, not yet started.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(self.binary.as_deref().unwrap_or_else(|| piw_binary()));
        command.args(arguments).current_dir(self.project());
        command.env_clear();
        for name in ["PATH", "LANG", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", self.dir.path()).env("PIW_STATE_DIR", self.state());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a `piw` command to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn piw<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Printed {
        self.command(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("piw starts")
            .into()
    }

    /// Runs a `piw` command with text on its standard input.
    ///
    /// # Panics
    /// When it cannot be started or does not read.
    pub fn piw_with_input<S: AsRef<OsStr>>(&self, arguments: &[S], input: &[u8]) -> Printed {
        let mut child = self.spawn(arguments, Stdio::piped());
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A command that refuses its input closes the pipe early; that is its right.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("piw ends");
        writer.join().expect("the writer ends");
        output.into()
    }

    /// Starts a `piw` command with captured output.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn<S: AsRef<OsStr>>(&self, arguments: &[S], stdin: Stdio) -> Child {
        self.command(arguments)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("piw starts")
    }

    /// The run-view document of a run.
    ///
    /// # Panics
    /// When `piw show` fails.
    pub fn show(&self, run_id: &str) -> Value {
        self.piw(&["show", run_id, "--json"]).exits(0).json()
    }

    /// Waits until a run's display status is one of `statuses`; returns the run view.
    pub fn wait_for_status(&self, run_id: &str, statuses: &[&str]) -> Value {
        wait::until(&format!("run {run_id} is one of {statuses:?}"), || {
            let view = self.show(run_id);
            let status = view["display"]["status"].as_str().unwrap_or_default();
            statuses.contains(&status).then_some(view)
        })
    }

    /// Waits until a run has ended; returns the run view.
    pub fn wait_for_end(&self, run_id: &str) -> Value {
        self.wait_for_status(run_id, &["completed", "failed", "timed_out", "cancelled"])
    }

    /// Process id of the running server, from its lock file.
    #[must_use]
    pub fn server_pid(&self) -> Option<i32> {
        let text = fs::read(self.state().join("server/server.lock.json")).ok()?;
        let lock: Value = serde_json::from_slice(&text).ok()?;
        let pid = i32::try_from(lock["pid"].as_i64()?).ok()?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None)
            .ok()
            .map(|()| pid)
    }

    /// Process id of a living runner, waiting for one.
    ///
    /// # Panics
    /// When no server runs, or no runner comes up.
    #[must_use]
    pub fn runner_pid(&self) -> i32 {
        let server = self.server_pid().expect("a server runs");
        wait::until("a runner lives", || {
            children_of(server).into_iter().find(|pid| {
                fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("runner"))
            })
        })
    }

    /// Kills the server with SIGKILL and waits until it is gone.
    ///
    /// # Panics
    /// When no server runs.
    pub fn kill_server(&self) {
        let pid = self.server_pid().expect("a server runs");
        kill_and_wait(pid);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.server_pid().is_none() {
            return;
        }
        let _ = self.command(&["server", "stop", "--now"]).output();
        if let Some(pid) = self.server_pid() {
            kill_and_wait(pid);
        }
    }
}

/// Children of every thread of a process (Linux).
#[must_use]
pub fn children_of(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Sends SIGKILL to a process and waits until it is gone or a zombie.
pub fn kill_and_wait(pid: i32) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    wait::until(&format!("process {pid} is gone"), || (!is_running(pid)).then_some(()));
}

/// Whether a process exists and is no zombie.
#[must_use]
pub fn is_running(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) if Path::new("/proc/self/stat").exists() => false,
        Err(_) => nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_ok(),
    }
}
