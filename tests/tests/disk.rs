//! Disks that are full, broken or read-only, and databases that are not usable, as a user of the commands meets them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use piw_tests::home::{Home, Printed};
use piw_tests::torture::binary;
use piw_tests::wait;

/// Each node appends its name to a file, then blocks until another file appears.
const CHAIN: &str = r#"
import { defineWorkflow, idempotentEffect, shell } from "piw";
const node = (name) => shell({
  effect: idempotentEffect(name),
  exec: () => ({ command: "sh", args: ["-c", `echo ${name} >> ran.txt; while [ ! -e go-${name} ]; do sleep 0.02; done`] }),
});
export default defineWorkflow({
  name: "chain",
  startAt: "a",
  nodes: { a: node("a"), b: node("b") },
  edges: [{ from: "a", to: "b" }],
});
"#;

/// A home whose state lies on a disk that fails as a file says.
struct Faulty {
    home: Home,
    faults: tempfile::TempDir,
}

impl Faulty {
    fn new() -> Self {
        static BINARY: OnceLock<PathBuf> = OnceLock::new();
        let binary = BINARY.get_or_init(|| binary::with_failpoints().unwrap());
        let faults = tempfile::tempdir().unwrap();
        let file = faults.path().join("faults");
        let home = Home::new()
            .binary(binary)
            .env("PIW_FAULT_IO_FILE", file.to_str().unwrap());
        Self { home, faults }
    }

    fn fails(&self, how: &str) {
        // Renamed into place: the server reads it at any time.
        let new = self.faults.path().join("new");
        fs::write(&new, how).unwrap();
        fs::rename(new, self.faults.path().join("faults")).unwrap();
    }

    fn works_again(&self) {
        fs::remove_file(self.faults.path().join("faults")).unwrap();
    }

    fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.home.project().join("ran.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn release(&self, node: &str) {
        fs::write(self.home.project().join(format!("go-{node}")), "").unwrap();
    }

    fn start(&self) -> String {
        self.home.workflow("chain", CHAIN);
        let printed = self.home.piw(&["run", "chain", "--detach", "--json"]).exits(0).json();
        wait::until("the first node runs", || (self.ran() == ["a"]).then_some(()));
        printed["runId"].as_str().unwrap().to_owned()
    }

    /// Waits until the status shows an error of the disk, or none.
    fn wait_for_write_error(&self, wanted: bool) -> Option<String> {
        wait::until("the status tells how the disk is", || {
            let status = self.home.piw(&["server", "status", "--json"]);
            let report: serde_json::Value = serde_json::from_str(&status.stdout).ok()?;
            let error = report["writeError"].as_str().map(str::to_owned);
            (error.is_some() == wanted).then_some(error)
        })
    }
}

#[test]
fn running_nodes_wait_for_a_disk_that_fails_for_a_while() {
    for (fault, said) in [
        ("full", "the disk that holds the state database is full"),
        ("io on=write+sync", "input or output on the state database failed"),
        (
            "io on=sync file=wal forget",
            "input or output on the state database failed",
        ),
        ("readonly", "input or output on the state database failed"),
        ("busy", "another program holds the lock of the state database"),
    ] {
        let faulty = Faulty::new();
        let run = faulty.start();
        let server = faulty.home.server_pid().unwrap();
        faulty.fails(fault);
        faulty.release("a");
        let error = faulty.wait_for_write_error(true).unwrap();
        assert!(error.contains(said), "{fault}: {error}");
        let shown = faulty.home.piw(&["server", "status"]).exits(0);
        assert!(shown.stdout.contains("cannot write"), "{fault}: {}", shown.stdout);
        let refused = faulty.home.piw(&["run", "chain", "--detach"]).exits(3);
        assert!(refused.stderr.contains(said), "{fault}: {}", refused.stderr);
        assert_eq!(faulty.ran(), ["a"], "{fault}: nothing goes on that is not stored");
        // Reading works.
        assert_eq!(faulty.home.show(&run)["runId"], run.as_str());
        faulty.works_again();
        faulty.release("b");
        let view = faulty.home.wait_for_end(&run);
        assert_eq!(view["display"]["status"], "completed", "{fault}");
        assert_eq!(faulty.ran(), ["a", "b"], "{fault}: no node ran twice");
        assert_eq!(faulty.home.server_pid(), Some(server), "{fault}");
        faulty.wait_for_write_error(false);
        let all = faulty.home.piw(&["ps", "--all", "--json"]).exits(0).json();
        assert_eq!(
            all.as_array().unwrap().len(),
            1,
            "{fault}: the refused start is not there"
        );
    }
}

/// Longer than claims hold: the server says why it cannot write, and goes on by itself afterwards.
#[test]
fn a_server_outlives_a_disk_that_is_full_for_longer_than_its_claim() {
    let mut faulty = Faulty::new();
    faulty.home = faulty.home.env("PIW_LEASE_MS", "5000");
    let run = faulty.start();
    let epoch = |faulty: &Faulty| faulty.home.piw(&["server", "status", "--json"]).exits(0).json()["epoch"].clone();
    let (server, first) = (faulty.home.server_pid().unwrap(), epoch(&faulty));
    faulty.fails("full");
    let failing = std::time::Instant::now();
    let lease = std::time::Duration::from_secs(7);
    wait::until("the claim has run out", || {
        faulty.wait_for_write_error(true);
        (failing.elapsed() > lease).then_some(())
    });
    assert_eq!(epoch(&faulty), first, "it waits for the disk");
    faulty.works_again();
    wait::until("the server starts over", || {
        let status = faulty.home.piw(&["server", "status", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&status.stdout).ok()?;
        (report["epoch"] != first).then_some(())
    });
    faulty.release("a");
    faulty.release("b");
    let view = faulty.home.wait_for_end(&run);
    assert_eq!(view["display"]["status"], "completed");
    assert_eq!(faulty.home.server_pid(), Some(server), "it is the same process");
    assert_eq!(
        faulty.ran(),
        ["a", "a", "b"],
        "the interrupted node ran again under the next claim"
    );
}

/// The claim has run out and nothing can be stored: a stop ends the process all the same, and it does not come back.
#[test]
fn a_server_is_stopped_on_a_disk_that_is_full_for_longer_than_its_claim() {
    let mut faulty = Faulty::new();
    faulty.home = faulty.home.env("PIW_LEASE_MS", "2000");
    let run = faulty.start();
    let server = faulty.home.server_pid().unwrap();
    faulty.fails("full");
    let failing = std::time::Instant::now();
    wait::until("the claim has run out", || {
        faulty.wait_for_write_error(true);
        (failing.elapsed() > std::time::Duration::from_secs(3)).then_some(())
    });
    let _ = faulty.home.piw(&["server", "stop", "--now"]).exits(0);
    wait::until("the process is gone", || {
        (!piw_tests::home::is_running(server)).then_some(())
    });
    faulty.works_again();
    assert_eq!(faulty.home.server_pid(), None, "it does not come back by itself");
    faulty.release("a");
    faulty.release("b");
    assert_eq!(faulty.home.wait_for_end(&run)["display"]["status"], "completed");
}

#[test]
fn a_disk_that_fails_at_the_start_refuses_it_and_leaves_nothing() {
    for (fault, said) in [
        ("full", "is full"),
        ("io on=write", "cannot be read or written"),
        ("io on=sync", "cannot be read or written"),
        ("readonly", "cannot be written"),
    ] {
        let faulty = Faulty::new();
        faulty.fails(fault);
        let refused = faulty.home.piw(&["server", "start"]).exits(3);
        assert!(refused.stderr.contains("state.sqlite"), "{fault}: {}", refused.stderr);
        assert!(refused.stderr.contains(said), "{fault}: {}", refused.stderr);
        assert_eq!(faulty.home.server_pid(), None);
        faulty.works_again();
        let _ = faulty.home.piw(&["server", "start"]).exits(0);
    }
}

/// Starts a server, lets it make a database, stops it.
fn made() -> (Home, PathBuf) {
    let home = Home::new();
    let _ = home.piw(&["server", "start"]).exits(0);
    let _ = home.piw(&["server", "stop"]).exits(0);
    let path = home.state().join("state.sqlite");
    (home, path)
}

#[test]
fn a_database_that_cannot_be_used_is_refused_with_what_to_do() {
    type Damage = fn(&Path);
    let cases: [(&str, Damage, &[&str]); 7] = [
        (
            "text",
            |path| fs::write(path, "hello").unwrap(),
            &["is not a SQLite database", "move it away"],
        ),
        (
            "another schema",
            |path| sql(path, "CREATE TABLE extra (x)"),
            &["has another schema", "table extra", "-wal and -shm"],
        ),
        (
            "another version",
            |path| sql(path, "PRAGMA user_version = 9"),
            &["schema version 9, expected 1", "-wal and -shm"],
        ),
        (
            "another program",
            |path| sql(path, "PRAGMA application_id = 7"),
            &["belongs to another program", "move it away"],
        ),
        ("cut", |path| cut(path, 4096 * 3), &["is damaged", "restore a backup"]),
        (
            "torn",
            |path| cut(path, 100),
            &["no multiple of its page size", "restore a backup"],
        ),
        (
            "log without database",
            |path| {
                fs::rename(path, path.with_extension("sqlite-wal")).unwrap();
            },
            &["is missing but its write-ahead log", "put the database back"],
        ),
    ];
    for (name, damage, said) in cases {
        let (home, path) = made();
        damage(&path);
        let before = files(&home.state());
        let refused = home.piw(&["server", "start"]).exits(3);
        for part in said.iter().chain(&["state.sqlite"]) {
            assert!(refused.stderr.contains(part), "{name}: {part:?} in {}", refused.stderr);
        }
        let any = home.piw(&["ps"]).exits(3);
        assert!(any.stderr.contains(said[0]), "{name}: {}", any.stderr);
        assert_eq!(files(&home.state()), before, "{name}: nothing was changed");
        for suffix in ["sqlite", "sqlite-wal", "sqlite-shm"] {
            // Not all are there in each case.
            let _ = fs::remove_file(path.with_extension(suffix));
        }
        let _ = home.piw(&["server", "start"]).exits(0);
    }
}

fn sql(path: &Path, change: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(change).unwrap();
}

fn cut(path: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}

/// Names and bytes of the database's files.
fn files(state: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(state)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && !path.to_string_lossy().ends_with("-shm"))
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

/// The log of a killed server is part of its database: without it acknowledged runs would be gone without a word.
#[test]
fn a_lost_log_of_a_killed_server_is_refused() {
    let home = Home::new();
    home.workflow("chain", CHAIN);
    let printed = home.piw(&["run", "chain", "--detach", "--json"]).exits(0).json();
    let run = printed["runId"].as_str().unwrap();
    home.kill_server();
    let log = home.state().join("state.sqlite-wal");
    let away = home.state().join("away");
    fs::rename(&log, &away).unwrap();
    let before = files(&home.state());
    for command in [&["ps"][..], &["server", "start"]] {
        let refused = home.piw(command).exits(3);
        for said in [
            "was not closed by its last server",
            "state.sqlite-wal is missing",
            "touch '",
        ] {
            assert!(refused.stderr.contains(said), "{said:?} in {}", refused.stderr);
        }
    }
    assert_eq!(files(&home.state()), before, "nothing was changed");
    fs::rename(&away, &log).unwrap();
    assert_eq!(home.show(run)["runId"], run, "with its log the run is there");
    // The word of whoever accepts a loss is an empty log.
    home.kill_server();
    fs::write(&log, "").unwrap();
    let _ = home.piw(&["ps"]).exits(0);
}

#[test]
fn a_database_that_another_program_holds_is_named_and_waited_for() {
    let (home, path) = made();
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        .unwrap();
    let refused = home.piw(&["server", "start"]).exits(3);
    assert!(
        refused.stderr.contains("is locked by another program"),
        "{}",
        refused.stderr
    );
    drop(other);
    let _ = home.piw(&["server", "start"]).exits(0);
}

#[test]
fn files_that_cannot_be_written_are_refused() {
    let (home, path) = made();
    let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set(&path, 0o400);
    let refused = without_privileges(&home, &["server", "start"]).exits(3);
    assert!(
        refused.stderr.contains("state.sqlite cannot be written"),
        "{}",
        refused.stderr
    );
    set(&path, 0o600);
    set(&home.state(), 0o500);
    let refused = without_privileges(&home, &["server", "start"]).exits(3);
    assert!(refused.stderr.contains("cannot be written"), "{}", refused.stderr);
    set(&home.state(), 0o700);
    let _ = home.piw(&["server", "start"]).exits(0);
}

/// Runs a command that permissions bind, also when the tests run as root.
fn without_privileges(home: &Home, arguments: &[&str]) -> Printed {
    let command = home.command(arguments);
    if !nix::unistd::geteuid().is_root() {
        return home.piw(arguments);
    }
    let mut bound = Command::new("setpriv");
    bound.args(["--bounding-set", "-dac_override,-dac_read_search", "--"]);
    bound.arg(command.get_program()).args(command.get_args());
    bound.current_dir(home.project()).env_clear();
    bound.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bound
        .stdin(Stdio::null())
        .output()
        .expect("setpriv of util-linux")
        .into()
}
