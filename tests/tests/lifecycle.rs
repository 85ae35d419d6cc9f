//! Runs that stop and go on: changed sources, crashing nodes, restarts, commands that race.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::process::Stdio;

use piw_tests::home::Home;
use piw_tests::wait;
use serde_json::Value;

const HELD: &str = r#"
import { compute, defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "held",
  startAt: "hold",
  nodes: {
    hold: shell({ effect: idempotentEffect("hold"), exec: () => ({ command: "sh", args: ["-c", "echo ran >> ran.txt; while [ ! -e go ]; do sleep 0.02; done"] }) }),
    done: compute({ run: () => "done" }),
  },
  edges: [{ from: "hold", to: "done" }],
});
"#;

fn ran(home: &Home) -> usize {
    fs::read_to_string(home.project().join("ran.txt"))
        .unwrap_or_default()
        .lines()
        .count()
}

fn start(home: &Home, name: &str) -> String {
    let started = home.piw(&["run", name, "--detach", "--json"]).exits(0).json();
    started["runId"].as_str().unwrap().to_owned()
}

/// Waits until the run is parked by itself; returns the view.
fn parked(home: &Home, run_id: &str) -> Value {
    wait::until("the run parks", || {
        let view = home.show(run_id);
        let resumable = view["display"]["controls"]
            .as_array()?
            .iter()
            .any(|control| control == "resume");
        (view["queue"]["status"] == "parked" && view["state"]["paused"].is_null() && resumable).then_some(view)
    })
}

fn reason(view: &Value) -> &str {
    view["display"]["reason"].as_str().unwrap_or_default()
}

#[test]
fn a_changed_source_parks_until_it_is_restored() {
    let home = Home::new();
    let path = home.workflow("held", HELD);
    let run_id = start(&home, "held");
    wait::until("the node runs", || (ran(&home) == 1).then_some(()));
    let _ = home.piw(&["pause", &run_id]).exits(0);
    fs::write(&path, HELD.replace("\"done\"", "\"changed\"")).unwrap();
    fs::write(home.project().join("go"), "").unwrap();
    for _ in 0..2 {
        let _ = home.piw(&["resume", &run_id]).exits(0);
        let view = parked(&home, &run_id);
        assert!(reason(&view).contains("workflowSourceChanged"), "{}", reason(&view));
        assert!(
            reason(&view).contains("held.workflow.ts"),
            "it names the file: {}",
            reason(&view)
        );
        assert_eq!(view["state"]["failureClass"], "sourceChanged");
        let shown = home.piw(&["show", &run_id]).exits(0);
        assert!(shown.stdout.contains("sourceChanged"), "{}", shown.stdout);
    }
    assert_eq!(ran(&home), 1, "changed code never continues an old run");
    fs::write(&path, HELD).unwrap();
    let _ = home.piw(&["resume", &run_id]).exits(0);
    let view = home.wait_for_end(&run_id);
    assert_eq!(view["state"]["finalOutput"], "done", "{view}");
}

#[test]
fn a_run_whose_source_changed_can_be_cancelled() {
    let home = Home::new();
    let path = home.workflow("held", HELD);
    let run_id = start(&home, "held");
    wait::until("the node runs", || (ran(&home) == 1).then_some(()));
    let _ = home.piw(&["pause", &run_id]).exits(0);
    fs::remove_file(&path).unwrap();
    let _ = home.piw(&["resume", &run_id]).exits(0);
    parked(&home, &run_id);
    let _ = home.piw(&["cancel", &run_id]).exits(0);
    assert_eq!(home.show(&run_id)["display"]["status"], "cancelled");
}

#[test]
fn a_node_that_kills_its_runner_parks_after_three_crashes_and_resume_tries_once_more() {
    let home = Home::new();
    home.workflow(
        "killer",
        r#"
import { defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "killer",
  startAt: "kill",
  nodes: { kill: shell({ effect: idempotentEffect("kill"), exec: () => ({ command: "sh", args: ["-c", "echo ran >> ran.txt; kill -9 $PPID; sleep 60"] }) }) },
  edges: [],
});
"#,
    );
    let run_id = start(&home, "killer");
    let view = parked(&home, &run_id);
    assert_eq!(ran(&home), 3);
    assert!(reason(&view).contains("runnerNoProgress"), "{}", reason(&view));
    assert!(
        reason(&view).contains("SIGKILL"),
        "it says how the runner ended: {}",
        reason(&view)
    );
    assert_eq!(view["state"]["failureClass"], "runnerNoProgress");
    let events = view["tracePage"]["items"].as_array().unwrap();
    let exits: Vec<&Value> = events.iter().filter(|event| event["type"] == "runner.exited").collect();
    assert!(!exits.is_empty());
    for exit in exits {
        assert_eq!(
            exit["payload"]["failure"], "runnerCrashed",
            "the trace tells each crash: {exit}"
        );
    }
    let _ = home.piw(&["resume", &run_id]).exits(0);
    wait::until("it is tried again", || (ran(&home) == 4).then_some(()));
    parked(&home, &run_id);
    assert_eq!(ran(&home), 4, "once");
}

const FAILING: &str = r#"
import { readFileSync } from "node:fs";
import { action, defineWorkflow, idempotentEffect } from "piw";
export default defineWorkflow({
  name: "failing",
  startAt: "fail",
  nodes: { fail: action({ effect: idempotentEffect("x"), run: () => { throw new Error(readFileSync("why.txt", "utf8")); } }) },
  edges: [],
});
"#;

#[test]
fn restarts_are_bounded_by_their_lineage() {
    let home = Home::new();
    home.workflow("failing", FAILING);
    let why = |text: &str| fs::write(home.project().join("why.txt"), text).unwrap();
    why("0");
    let first = start(&home, "failing");
    let mut newest = first.clone();
    for number in 1..=3 {
        assert_eq!(home.wait_for_end(&newest)["state"]["failureClass"], "nodeFailed");
        why(&number.to_string());
        let restarted = home.piw(&["restart", &newest, "--json"]).exits(0).json();
        newest = restarted["newRunId"].as_str().unwrap().to_owned();
    }
    let view = home.wait_for_end(&newest);
    assert_eq!(view["display"]["controls"], serde_json::json!([]));
    for run in [&newest, &first] {
        let refused = home.piw(&["restart", run]).exits(5);
        assert!(refused.stderr.contains("at most 3 restarts"), "{}", refused.stderr);
    }
}

#[test]
fn the_same_failure_is_not_restarted_twice_without_a_change() {
    let home = Home::new();
    home.workflow("failing", FAILING);
    fs::write(home.project().join("why.txt"), "always").unwrap();
    let first = start(&home, "failing");
    home.wait_for_end(&first);
    let restarted = home.piw(&["restart", &first, "--json"]).exits(0).json();
    let second = restarted["newRunId"].as_str().unwrap();
    home.wait_for_end(second);
    let refused = home.piw(&["restart", second]).exits(5);
    assert!(refused.stderr.contains("repeat the same failure"), "{}", refused.stderr);
    home.workflow("failing", &FAILING.replace("throw new Error", "throw new TypeError"));
    let _ = home.piw(&["restart", second]).exits(0);
}

#[test]
fn of_commands_that_race_one_wins_and_the_others_are_told() {
    let home = Home::new();
    home.workflow("held", HELD);
    let run_id = start(&home, "held");
    wait::until("the node runs", || (ran(&home) == 1).then_some(()));
    let racers: Vec<_> = (0..4)
        .map(|_| home.spawn(&["cancel", &run_id], Stdio::null()))
        .collect();
    let mut codes: Vec<Option<i32>> = racers
        .into_iter()
        .map(|racer| racer.wait_with_output().unwrap().status.code())
        .collect();
    codes.sort();
    assert_eq!(codes, [Some(0), Some(5), Some(5), Some(5)]);
    let view = home.show(&run_id);
    let cancelled = view["tracePage"]["items"].as_array().unwrap().iter();
    assert_eq!(cancelled.filter(|event| event["type"] == "run.cancelled").count(), 1);
    let refused = home.piw(&["pause", &run_id]).exits(5);
    assert!(refused.stderr.contains("has ended"), "{}", refused.stderr);
}
