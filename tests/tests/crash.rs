//! Killing the runner, the server, or both, at any node: finished nodes never run again, the run is completed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;

use piw_tests::home::{Home, is_running, kill_and_wait};
use piw_tests::wait;

/// Every node appends its name to a file, then the named node blocks until a file appears.
const CHAIN: &str = r#"
import { defineWorkflow, idempotentEffect, shell } from "piw";
const node = (name) => shell({
  effect: idempotentEffect(name),
  exec: () => ({ command: "sh", args: ["-c", `echo $$ > pid-${name}; echo ${name} >> ran.txt; while [ ! -e go-${name} ]; do sleep 0.02; done`] }),
});
export default defineWorkflow({
  name: "chain",
  startAt: "a",
  nodes: { a: node("a"), b: node("b"), c: node("c") },
  edges: [{ from: "a", to: "b" }, { from: "b", to: "c" }],
});
"#;

fn release(home: &Home, node: &str) {
    fs::write(home.project().join(format!("go-{node}")), "").unwrap();
}

fn ran(home: &Home) -> Vec<String> {
    let text = fs::read_to_string(home.project().join("ran.txt")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn start(home: &Home) -> String {
    home.workflow("chain", CHAIN);
    let printed = home.piw(&["run", "chain", "--detach", "--json"]).exits(0).json();
    printed["runId"].as_str().unwrap().to_owned()
}

/// Kills at node `at` with `kill`, restarts, and checks that the nodes before it ran once and the run completes.
fn survives(at: &str, kill: impl Fn(&Home)) {
    let home = Home::new();
    let run_id = start(&home);
    for node in ["a", "b", "c"] {
        wait::until("the node runs", || {
            ran(&home).iter().any(|name| name == node).then_some(())
        });
        if node == at {
            let before = ran(&home).iter().filter(|name| *name == node).count();
            kill(&home);
            let _ = home.piw(&["server", "start"]).exits(0);
            let view = home.show(&run_id);
            if view["display"]["status"] == "paused" || view["queue"]["status"] == "parked" {
                let _ = home.piw(&["resume", &run_id]);
            }
            wait::until("the interrupted node runs again", || {
                (ran(&home).iter().filter(|name| *name == node).count() > before).then_some(())
            });
        }
        release(&home, node);
    }
    let view = home.wait_for_status(&run_id, &["completed", "failed"]);
    assert_eq!(view["display"]["status"], "completed");
    assert_eq!(view["stepTotal"], 3);
    let ran = ran(&home);
    for node in ["a", "b", "c"] {
        let times = ran.iter().filter(|name| *name == node).count();
        assert_eq!(times, if node == at { 2 } else { 1 }, "{node} in {ran:?}");
    }
}

#[test]
fn a_killed_runner_is_replaced_at_each_node() {
    for node in ["a", "b", "c"] {
        survives(node, |home| kill_and_wait(home.runner_pid()));
    }
}

#[test]
fn a_killed_server_recovers_at_each_node() {
    for node in ["a", "b", "c"] {
        survives(node, Home::kill_server);
    }
}

#[test]
fn a_killed_server_and_runner_recover_at_each_node() {
    for node in ["a", "b", "c"] {
        survives(node, |home| {
            let runner = home.runner_pid();
            home.kill_server();
            kill_and_wait(runner);
        });
    }
}

#[test]
fn nothing_of_a_killed_run_stays_behind() {
    let home = Home::new();
    start(&home);
    wait::until("the node runs", || (!ran(&home).is_empty()).then_some(()));
    let runner = home.runner_pid();
    let shell = fs::read_to_string(home.project().join("pid-a")).unwrap();
    let shell = shell.trim().parse::<i32>().unwrap();
    assert!(is_running(shell));
    home.kill_server();
    for (what, pid) in [("the command ends", shell), ("the orphaned runner leaves", runner)] {
        wait::until(what, || (!is_running(pid)).then_some(()));
    }
}

#[test]
fn a_command_ends_with_its_killed_runner_and_server() {
    let home = Home::new();
    start(&home);
    wait::until("the node runs", || (!ran(&home).is_empty()).then_some(()));
    let runner = home.runner_pid();
    let shell = fs::read_to_string(home.project().join("pid-a")).unwrap();
    let shell = shell.trim().parse::<i32>().unwrap();
    home.kill_server();
    // It may have left by itself already.
    let _ = std::process::Command::new("kill")
        .args(["-9", &runner.to_string()])
        .status()
        .unwrap();
    wait::until("the command ends", || (!is_running(shell)).then_some(()));
}

/// The input of the mount waits for a file the first time it is asked for.
const MOUNT: &str = r#"
import { compute, defineWorkflow, includeWorkflow } from "piw";
import { appendFileSync, existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import part from "./part.workflow.ts";
export default defineWorkflow({
  name: "mount",
  startAt: "first",
  includes: {
    part: includeWorkflow(part, { input: async ({ signal }) => {
      appendFileSync("asked.txt", "asked\n");
      while (!existsSync("go-on")) await sleep(5, undefined, { signal });
      return {};
    } }),
  },
  nodes: { first: compute({ run: () => 1 }), last: compute({ run: ({ outputs }) => outputs.part }) },
  edges: [{ from: "first", to: "part" }, { from: "part.done", to: "last" }],
});
"#;

const PART: &str = r#"
import { compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "part", source: import.meta.url, startAt: "only", nodes: { only: compute({ run: () => 2 }) }, edges: [],
  exits: { done: { node: "only" } },
});
"#;

#[test]
fn a_stop_while_a_mount_is_entered_is_no_failure_of_the_run() {
    let home = Home::new();
    home.workflow("part", PART);
    home.workflow("mount", MOUNT);
    let printed = home.piw(&["run", "mount", "--detach", "--json"]).exits(0).json();
    let run_id = printed["runId"].as_str().unwrap();
    wait::until("the mount's input is asked for", || {
        home.project().join("asked.txt").exists().then_some(())
    });
    let _ = home.piw(&["server", "stop", "--now"]).exits(0);
    fs::write(home.project().join("go-on"), "").unwrap();
    let _ = home.piw(&["server", "start"]).exits(0);
    let view = home.wait_for_end(run_id);
    assert_eq!(view["display"]["status"], "completed", "{view:#}");
}
