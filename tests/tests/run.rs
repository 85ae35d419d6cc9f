//! `piw run` and what the other commands then say about the run.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use piw_tests::home::Home;
use serde_json::json;

const TWO_NODES: &str = r#"
import { compute, defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "two",
  startAt: "greet",
  nodes: {
    greet: shell({
      effect: idempotentEffect("greet"),
      exec: ({ input }) => ({ command: "printf", args: ["hello %s", input.name] }),
      parse: ({ stdout }) => ({ text: stdout }),
    }),
    measure: compute({ run: ({ outputs }) => ({ text: outputs.greet.text, length: outputs.greet.text.length }) }),
  },
  edges: [{ from: "greet", to: "measure" }],
});
"#;

const FAILING: &str = r#"
import { defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "failing",
  startAt: "broken",
  nodes: {
    broken: shell({
      effect: idempotentEffect("broken"),
      exec: () => ({ command: "sh", args: ["-c", "echo to-stdout; echo went wrong >&2; exit 7"] }),
    }),
  },
  edges: [],
});
"#;

#[test]
fn run_prints_the_final_output_as_json() {
    let home = Home::new();
    home.workflow("two", TWO_NODES);
    let printed = home
        .piw(&["run", "two", "--input", r#"{"name":"ada"}"#, "--json"])
        .exits(0)
        .json();
    assert_eq!(printed["status"], "completed");
    assert_eq!(printed["finalOutput"], json!({ "text": "hello ada", "length": 9 }));
    assert_eq!(printed["error"], json!(null));
    let run_id = printed["runId"].as_str().unwrap();
    let view = home.show(run_id);
    assert_eq!(view["schema"], "pi-workflows.run-view.v1");
    assert_eq!(view["state"]["steps"].as_array().unwrap().len(), 2);
    assert_eq!(view["state"]["steps"][0]["action"]["exitCode"], 0);
}

#[test]
fn a_failing_shell_node_fails_the_run_and_keeps_its_receipt() {
    let home = Home::new();
    home.workflow("failing", FAILING);
    let printed = home.piw(&["run", "failing", "--json"]).exits(1).json();
    assert_eq!(printed["status"], "failed");
    let view = home.show(printed["runId"].as_str().unwrap());
    let step = &view["state"]["steps"][0];
    assert_eq!(step["outcome"], "failed");
    assert_eq!(step["action"]["command"], "sh");
    assert_eq!(step["action"]["exitCode"], 7);
    assert_eq!(step["action"]["stderr"], "went wrong\n");
    assert_eq!(step["action"]["stdout"], "to-stdout\n");
}

#[test]
fn input_comes_from_text_file_or_standard_input() {
    let home = Home::new();
    home.workflow("two", TWO_NODES);
    std::fs::write(home.project().join("input.json"), r#"{"name":"file"}"#).unwrap();
    let from_file = home
        .piw(&["run", "two", "--input", "@input.json", "--json"])
        .exits(0)
        .json();
    assert_eq!(from_file["finalOutput"]["text"], "hello file");
    let from_stdin = home
        .piw_with_input(&["run", "two", "--input", "-", "--json"], br#"{"name":"pipe"}"#)
        .exits(0)
        .json();
    assert_eq!(from_stdin["finalOutput"]["text"], "hello pipe");
    let bad = home.piw(&["run", "two", "--input", "{name:1}"]).exits(2);
    assert!(bad.stderr.contains("--input is not JSON"), "{}", bad.stderr);
}

#[test]
fn plain_output_names_nodes_and_the_run() {
    let home = Home::new();
    home.workflow("two", TWO_NODES);
    let printed = home.piw(&["run", "two", "--input", r#"{"name":"ada"}"#]).exits(0);
    assert!(
        printed.stdout.contains("greet") && printed.stdout.contains("measure"),
        "{}",
        printed.stdout
    );
    assert!(printed.stdout.contains("completed"), "{}", printed.stdout);
    assert!(
        !printed.stdout.contains('\u{1b}'),
        "no escape sequences when stdout is no terminal"
    );
}

#[test]
fn ps_lists_runs_newest_first() {
    let home = Home::new();
    home.workflow("two", TWO_NODES);
    home.workflow("failing", FAILING);
    let first = home
        .piw(&["run", "two", "--input", r#"{"name":"a"}"#, "--json"])
        .exits(0)
        .json();
    let second = home.piw(&["run", "failing", "--json"]).exits(1).json();
    let list = home.piw(&["ps", "--json"]).exits(0).json();
    let ids: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["runId"].clone())
        .collect();
    assert_eq!(ids, [second["runId"].clone(), first["runId"].clone()]);
    assert_eq!(list[0]["display"]["status"], "failed");
    assert_eq!(list[1]["display"]["status"], "completed");
}

#[test]
fn a_detached_run_returns_at_once_and_finishes() {
    let home = Home::new();
    home.workflow("two", TWO_NODES);
    let printed = home
        .piw(&["run", "two", "--input", r#"{"name":"a"}"#, "--detach", "--json"])
        .exits(0)
        .json();
    assert!(printed.get("finalOutput").is_none());
    home.wait_for_status(printed["runId"].as_str().unwrap(), &["completed"]);
}

const CHECKPOINT: &str = r#"
import { checkpoint, compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "gate",
  startAt: "prepare",
  nodes: {
    prepare: compute({ run: () => ({ size: 3 }) }),
    approve: checkpoint({ summary: "Go on?", run: ({ outputs }) => ({ size: outputs.prepare.size }) }),
    yes: compute({ run: ({ outputs }) => ({ went: "on", size: outputs.prepare.size, by: outputs.approve.by }) }),
    no: compute({ run: () => ({ went: "home" }) }),
  },
  edges: [
    { from: "prepare", to: "approve" },
    { from: "approve", switch: { on: "$output.go", cases: { true: "yes", false: "no" } } },
  ],
});
"#;

#[test]
fn a_checkpoint_waits_and_continues_with_the_answer() {
    let home = Home::new();
    home.workflow("gate", CHECKPOINT);
    let waiting = home.piw(&["run", "gate", "--json"]).exits(6).json();
    assert_eq!(waiting["status"], "waiting");
    let run_id = waiting["runId"].as_str().unwrap();
    let view = home.show(run_id);
    assert_eq!(view["state"]["waitingOn"], "approve");
    assert!(
        view["display"]["controls"]
            .as_array()
            .unwrap()
            .contains(&json!("answer"))
    );
    let shown = home.piw(&["show", run_id]).exits(0).stdout;
    assert!(
        shown.contains("Go on?") && shown.contains("\"size\": 3"),
        "what is asked is shown:\n{shown}"
    );
    let again = home.piw(&["run", "gate"]).exits(6);
    assert!(
        again.stderr.contains("Go on?") && again.stderr.contains("piw answer"),
        "{}",
        again.stderr
    );
    let not_json = home.piw(&["answer", run_id, "yes please"]).exits(2);
    assert!(not_json.stderr.contains("not JSON"), "{}", not_json.stderr);
    let answered = home
        .piw(&["answer", run_id, r#"{"go":true,"by":"ada"}"#, "--json"])
        .exits(0)
        .json();
    let child = answered["newRunId"].as_str().expect("the continuation is named");
    let view = home.wait_for_status(child, &["completed", "failed"]);
    assert_eq!(
        view["state"]["finalOutput"],
        json!({ "went": "on", "size": 3, "by": "ada" })
    );
    assert_eq!(view["state"]["parentRunId"], *run_id);
    assert_eq!(home.show(run_id)["display"]["status"], "completed");
    let again = home.piw(&["answer", run_id, r#"{"go":false}"#]).exits(5);
    assert!(!again.stderr.is_empty());
}

const SLEEPER: &str = r#"
import { compute, defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "sleeper",
  startAt: "first",
  nodes: {
    first: compute({ run: () => 1 }),
    sleep: shell({ effect: idempotentEffect("sleep"), exec: () => ({ command: "sleep", args: ["300"] }) }),
  },
  edges: [{ from: "first", to: "sleep" }],
});
"#;

#[test]
fn cancel_ends_a_running_command() {
    let home = Home::new();
    home.workflow("sleeper", SLEEPER);
    let run_id = home.piw(&["run", "sleeper", "--detach", "--json"]).exits(0).json()["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    piw_tests::wait::until("the sleep runs", || {
        (home.show(&run_id)["state"]["currentNode"] == "sleep").then_some(())
    });
    let cancelled = home.piw(&["cancel", &run_id, "--json"]).exits(0).json();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(home.show(&run_id)["display"]["status"], "cancelled");
    let again = home.piw(&["cancel", &run_id]).exits(5);
    assert!(again.stderr.contains("cancelled"), "{}", again.stderr);
}

#[test]
fn pause_and_resume_keep_finished_nodes() {
    let home = Home::new();
    home.workflow("sleeper", SLEEPER);
    let run_id = home.piw(&["run", "sleeper", "--detach", "--json"]).exits(0).json()["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    piw_tests::wait::until("the sleep runs", || {
        (home.show(&run_id)["state"]["currentNode"] == "sleep").then_some(())
    });
    let _ = home.piw(&["pause", &run_id]).exits(0);
    let paused = home.wait_for_status(&run_id, &["paused"]);
    assert_eq!(paused["stepTotal"], 1);
    let _ = home.piw(&["resume", &run_id]).exits(0);
    piw_tests::wait::until("the sleep runs again", || {
        let view = home.show(&run_id);
        (view["state"]["currentNode"] == "sleep" && view["live"] == true).then_some(())
    });
    assert_eq!(
        home.show(&run_id)["stepTotal"],
        1,
        "the finished node did not run again"
    );
    let _ = home.piw(&["cancel", &run_id]).exits(0);
}

#[test]
fn unknown_names_say_where_they_were_looked_for() {
    let home = Home::new();
    let run = home.piw(&["run", "no-such-workflow"]).exits(4);
    assert!(
        run.stderr.contains("no-such-workflow") && run.stderr.contains(".pi/workflows"),
        "{}",
        run.stderr
    );
    let _ = home.piw(&["run", ""]).exits(2);
    let _ = home.piw(&["run", "/etc/passwd"]).exits(2);
    let show = home.piw(&["show", "no-such-run"]).exits(4);
    assert!(show.stderr.contains("no-such-run"), "{}", show.stderr);
}
