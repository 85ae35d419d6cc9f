//! Commands, daemons and runners that do not want to end: cancelling, or the death of everything, ends them all.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use piw_tests::home::{Home, is_running, kill_and_wait};
use piw_tests::wait;

/// How long cancelling may take (docs/durability.md), with room for a busy machine.
const BOUND: Duration = Duration::from_secs(25);

/// Starts a daemon that left session, group and parent, ignores SIGTERM and says its pid; then ignores SIGTERM itself.
const DAEMON: &str = r#"#!/bin/sh
trap '' TERM HUP
( setsid sh -c 'trap "" TERM HUP; echo $$ > daemon.tmp; mv daemon.tmp daemon.pid; while :; do sleep 0.1; done' </dev/null >/dev/null 2>&1 & )
while [ ! -e daemon.pid ]; do sleep 0.02; done
echo $$ > command.tmp; mv command.tmp command.pid
while :; do sleep 0.1; done
"#;

fn stubborn(node: &str) -> (Home, String) {
    let home = Home::new();
    fs::write(home.project().join("daemon.sh"), DAEMON).unwrap();
    let source = format!(
        r#"
import {{ action, defineWorkflow, idempotentEffect, shell }} from "piw";
import {{ spawn }} from "node:child_process";
export default defineWorkflow({{
  name: "stubborn",
  startAt: "work",
  nodes: {{ work: {node} }},
  edges: [],
}});
"#
    );
    home.workflow("stubborn", &source);
    let started = home.piw(&["run", "stubborn", "--detach", "--json"]).exits(0).json();
    (home, started["runId"].as_str().unwrap().to_owned())
}

const SHELL: &str = r#"shell({ effect: idempotentEffect("x"), exec: () => ({ command: "sh", args: ["daemon.sh"] }) })"#;

/// The same from a script, without a shell node: the environment is replaced, too.
const SCRIPT: &str = r#"action({
  effect: idempotentEffect("x"),
  run: ({ state }) => new Promise((resolve) => {
    const child = spawn("sh", ["daemon.sh"], { detached: true, stdio: "ignore", env: { PATH: process.env.PATH } });
    child.on("close", resolve);
  }),
})"#;

fn pid_in(home: &Home, file: &str) -> i32 {
    wait::until(&format!("{file} is written"), || {
        fs::read_to_string(home.project().join(file)).ok()?.trim().parse().ok()
    })
}

fn gone(what: &str, pid: i32) {
    wait::until(&format!("{what} is gone"), || (!is_running(pid)).then_some(()));
}

#[test]
fn cancel_ends_a_stopped_runner_its_command_and_its_daemon_within_the_bound() {
    let (home, run_id) = stubborn(SHELL);
    let (command, daemon) = (pid_in(&home, "command.pid"), pid_in(&home, "daemon.pid"));
    let runner = home.runner_pid();
    kill(Pid::from_raw(runner), Signal::SIGSTOP).unwrap();
    let asked = Instant::now();
    let _ = home.piw(&["cancel", &run_id]).exits(0);
    assert_eq!(
        home.show(&run_id)["display"]["status"],
        "cancelled",
        "it is terminal at once"
    );
    for (what, pid) in [("the runner", runner), ("the command", command), ("the daemon", daemon)] {
        gone(what, pid);
    }
    assert!(asked.elapsed() < BOUND, "it took {:?}", asked.elapsed());
    let server = home.piw(&["server", "status", "--json"]).exits(0).json();
    wait::until("the runner's place is free", || {
        (home.piw(&["server", "status", "--json"]).exits(0).json()["activeRunners"] == 0).then_some(())
    });
    assert_eq!(server["state"], "running");
}

#[test]
fn cancel_ends_processes_that_a_script_started() {
    let (home, run_id) = stubborn(SCRIPT);
    let (command, daemon) = (pid_in(&home, "command.pid"), pid_in(&home, "daemon.pid"));
    let asked = Instant::now();
    let _ = home.piw(&["cancel", &run_id]).exits(0);
    gone("the command", command);
    gone("the daemon", daemon);
    assert!(asked.elapsed() < BOUND, "it took {:?}", asked.elapsed());
}

/// Kills server and runner at the same time; the next server ends what they left.
fn next_server_ends(node: &str) {
    let (home, run_id) = stubborn(node);
    let (command, daemon) = (pid_in(&home, "command.pid"), pid_in(&home, "daemon.pid"));
    let (server, runner) = (home.server_pid().unwrap(), home.runner_pid());
    // Neither gets the time to end anything.
    kill(Pid::from_raw(server), Signal::SIGSTOP).unwrap();
    kill_and_wait(runner);
    kill_and_wait(server);
    for file in ["command.pid", "daemon.pid"] {
        fs::remove_file(home.project().join(file)).unwrap();
    }
    let _ = home.piw(&["server", "start"]).exits(0);
    gone("the old command", command);
    gone("the old daemon", daemon);
    let again = pid_in(&home, "daemon.pid");
    assert_ne!(again, daemon, "the node runs again");
    let _ = home.piw(&["cancel", &run_id]).exits(0);
    gone("the new daemon", again);
}

#[test]
fn the_next_server_ends_daemons_of_commands() {
    next_server_ends(SHELL);
}

#[test]
fn the_next_server_ends_daemons_of_scripts() {
    next_server_ends(SCRIPT);
}
