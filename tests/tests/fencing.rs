//! Servers and runners that are stopped, replaced or mistaken: no stale write lands, no unrelated process is signalled.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use piw_tests::home::{Home, Printed, is_running, kill_and_wait};
use piw_tests::wait;
use serde_json::{Value, json};

/// A node that says that it runs and then waits to be let go.
const HELD: &str = r#"
import { defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "held",
  startAt: "hold",
  nodes: {
    hold: shell({
      effect: idempotentEffect("hold"),
      exec: () => ({ command: "sh", args: ["-c", "echo $$ >> ran.txt; while [ ! -e go ]; do sleep 0.02; done"] }),
    }),
  },
  edges: [],
});
"#;

fn ran(home: &Home) -> usize {
    fs::read_to_string(home.project().join("ran.txt"))
        .unwrap_or_default()
        .lines()
        .count()
}

fn start(home: &Home) -> String {
    home.workflow("held", HELD);
    let started = home.piw(&["run", "held", "--detach", "--json"]).exits(0).json();
    wait::until("the node runs", || (ran(home) == 1).then_some(()));
    started["runId"].as_str().unwrap().to_owned()
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// A stopped process, ended with the test whatever happens.
struct Stopped(i32);

impl Stopped {
    fn new(pid: i32) -> Self {
        signal(pid, Signal::SIGSTOP);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if is_running(self.0) {
            let _ = kill(Pid::from_raw(self.0), Signal::SIGKILL);
        }
    }
}

/// A process that has nothing to do with piw; killed when dropped.
struct Innocent(Child);

impl Innocent {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Innocent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lock_record(home: &Home) -> Value {
    serde_json::from_slice(&fs::read(home.state().join("server/server.lock.json")).unwrap()).unwrap()
}

#[test]
fn a_stopped_server_that_wakes_after_it_was_replaced_changes_nothing() {
    let home = Home::new().env("PIW_LEASE_MS", "1500");
    let run_id = start(&home);
    let (old, old_runner) = (home.server_pid().unwrap(), home.runner_pid());
    // A client that the old server knows sends it a command while it is stopped.
    let mut client = UnixStream::connect(home.state().join("server/server.sock")).unwrap();
    let mut answers = BufReader::new(client.try_clone().unwrap());
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    assert!(line.contains("hello"), "{line}");
    let _stopped = Stopped::new(old);
    let request = json!({
        "schema": "pi-workflows.client.v1", "type": "request", "requestId": "r", "clientId": "stale", "idempotencyKey": "k",
        "operation": "run.cancel", "runId": run_id, "payload": {},
    });
    let bytes = piw_protocol::canonical::write_value(&request);
    client.write_all(&[bytes, b"\n".to_vec()].concat()).unwrap();

    let _ = home.piw(&["server", "start"]).exits(0);
    let record = lock_record(&home);
    let new = i32::try_from(record["pid"].as_i64().unwrap()).unwrap();
    assert_ne!(new, old);
    assert_eq!(record["epoch"], 2);
    wait::until("the run goes on under the new server", || {
        (ran(&home) == 2).then_some(())
    });
    assert!(!is_running(old_runner), "the old server's runner was ended before");

    signal(old, Signal::SIGCONT);
    wait::until("the old server sees that it was replaced and ends", || {
        (!is_running(old)).then_some(())
    });
    line.clear();
    // It may say that it ends, or close the connection; it must not say that it cancelled.
    let _ = answers.read_line(&mut line);
    assert!(!line.contains("accepted"), "{line}");
    assert_eq!(lock_record(&home), record, "the record names the new server");
    assert_eq!(home.show(&run_id)["display"]["status"], "running");
    assert_eq!(ran(&home), 2, "nothing was ended or started by the old server");
    fs::write(home.project().join("go"), "").unwrap();
    let view = home.wait_for_end(&run_id);
    assert_eq!(view["display"]["status"], "completed");
    assert_eq!(view["stepTotal"], 1);
    let events = view["tracePage"]["items"].as_array().unwrap();
    assert!(
        events.iter().all(|event| event["type"] != "run.cancelled"),
        "{events:?}"
    );
    let log = fs::read_to_string(home.state().join("server/server.log")).unwrap();
    assert!(log.contains("the server lost its database"), "{log}");
    assert!(log.contains("took over from a server"), "{log}");
}

#[test]
fn a_stopped_server_is_not_replaced_while_its_claim_holds() {
    let home = Home::new();
    let _ = home.piw(&["server", "start"]).exits(0);
    let old = home.server_pid().unwrap();
    signal(old, Signal::SIGSTOP);
    // Its claim holds for 30 s. All commands wait for an answer of it at once, so that they have given up long before.
    let asked = ["run", "start", "status", "stop"].map(|word| home.spawn(&["server", word], Stdio::null()));
    let [second, start, status, stop] = asked.map(|child| Printed::from(child.wait_with_output().unwrap()));
    signal(old, Signal::SIGCONT);
    let named = format!("a server holds the lock (pid {old}) but answered nobody");
    assert!(start.exits(3).stderr.contains(&named), "the stopped server is named");
    // Commands that start no server name it too, with what can be done.
    for refused in [status.exits(3), stop.exits(3)] {
        assert!(refused.stderr.contains(&named), "{}", refused.stderr);
        let way_on = format!("kill -CONT {old}");
        assert!(refused.stderr.contains(&way_on), "{}", refused.stderr);
    }
    assert_ne!(second.code, Some(0));
    assert!(second.stderr.contains("already running"), "{}", second.stderr);
    assert_eq!(home.server_pid(), Some(old));
    let _ = home.piw(&["server", "status"]).exits(0);
}

#[test]
fn many_starts_at_once_yield_one_server() {
    let home = Home::new();
    let starts: Vec<Child> = (0..6)
        .map(|_| home.spawn(&["server", "start"], Stdio::null()))
        .collect();
    for start in starts {
        let output = start.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(lock_record(&home)["epoch"], 1, "one server took the database, once");
}

#[test]
fn a_stopped_runner_ends_with_its_node_as_timed_out() {
    let home = Home::new().env("PIW_OVERRUN_MS", "300");
    home.workflow(
        "slow",
        r#"
import { compute, defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "slow",
  startAt: "slow",
  nodes: {
    slow: shell({
      timeoutMs: 1000,
      effect: idempotentEffect("slow"),
      exec: () => ({ command: "sh", args: ["-c", "echo $$ >> ran.txt; sleep 600"] }),
    }),
    after: compute({ run: ({ results }) => results.slow.outcome }),
    never: compute({ run: () => "never" }),
  },
  edges: [{ from: "slow", switch: { on: "$result.outcome", cases: { timed_out: "after", ok: "never" } } }],
});
"#,
    );
    let started = home.piw(&["run", "slow", "--detach", "--json"]).exits(0).json();
    let run_id = started["runId"].as_str().unwrap();
    wait::until("the node runs", || (ran(&home) == 1).then_some(()));
    signal(home.runner_pid(), Signal::SIGSTOP);
    let view = home.wait_for_end(run_id);
    assert_eq!(view["display"]["status"], "completed", "{view}");
    assert_eq!(view["state"]["finalOutput"], "timed_out");
    assert_eq!(view["stepTotal"], 2);
    let step = &view["state"]["steps"][0];
    assert_eq!(step["outcome"], "timed_out");
    assert!(step["error"]["message"].as_str().unwrap().contains("1000 ms"), "{step}");
    assert_eq!(ran(&home), 1, "it is not executed again");
    let shell = fs::read_to_string(home.project().join("ran.txt")).unwrap();
    assert!(!is_running(shell.trim().parse().unwrap()), "its command is gone");
}

#[test]
fn a_reused_pid_is_never_signalled() {
    let home = Home::new();
    let run_id = start(&home);
    let mut innocents: Vec<Innocent> = (0..4).map(|_| Innocent::new()).collect();
    let runner = home.runner_pid();
    home.kill_server();
    kill_and_wait(runner);
    // Everything that names a process names one whose pid belongs to somebody else by now.
    let mut pids = innocents.iter().map(|innocent| innocent.0.id());
    let children = home.state().join("server/server.children.json");
    let mut document: Value = serde_json::from_slice(&fs::read(&children).unwrap()).unwrap();
    let registered = document["children"].as_array_mut().unwrap();
    assert!(registered.len() >= 2, "{registered:?}");
    for entry in registered {
        entry["pid"] = json!(pids.next().unwrap());
    }
    fs::write(&children, document.to_string()).unwrap();
    let database = rusqlite::Connection::open(home.state().join("state.sqlite")).unwrap();
    // The log stays when this connection closes: no server has taken it in.
    database
        .set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .unwrap();
    let named = pids.next().unwrap();
    let changed = database
        .execute("UPDATE run_runners SET pid = ?1 WHERE status <> 'ended'", [named])
        .unwrap();
    assert_eq!(changed, 1);
    let named = pids.next().unwrap();
    let changed = database.execute("UPDATE run_processes SET pid = ?1", [named]).unwrap();
    assert_eq!(changed, 1);
    let server = innocents[0].0.id();
    database
        .execute("UPDATE workflow_server_state SET pid = ?1", [server])
        .unwrap();
    drop(database);
    let record = home.state().join("server/server.lock.json");
    let mut document: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    document["pid"] = json!(server);
    fs::write(&record, document.to_string()).unwrap();
    let stop = home.piw(&["server", "stop", "--now"]);
    assert!(stop.stdout.contains("no server"), "{}", stop.stdout);
    let _ = home.piw(&["server", "start"]).exits(0);
    wait::until("the run goes on", || (ran(&home) == 2).then_some(()));
    fs::write(home.project().join("go"), "").unwrap();
    assert_eq!(home.wait_for_end(&run_id)["display"]["status"], "completed");
    assert!(
        innocents.iter_mut().all(Innocent::lives),
        "an unrelated process was signalled"
    );
}
