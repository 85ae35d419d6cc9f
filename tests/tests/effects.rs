//! The review of side effects: an interrupted manual effect is shown as ambiguous everywhere, is repeated by nothing, and the
//! run goes on as a person decides.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;

use piw_tests::home::{Home, Printed, kill_and_wait};
use piw_tests::wait;
use serde_json::{Value, json};

/// A manual effect that writes its key down, then waits to be let go; its output is the run's.
const DEPLOY: &str = r#"
import { compute, defineWorkflow, manualEffect, shell } from "piw";
export default defineWorkflow({
  name: "deploy",
  startAt: "send",
  nodes: {
    send: shell({
      effect: manualEffect("release"),
      exec: () => ({ command: "sh", args: ["-c", "echo $PIW_EFFECT_KEY >> applied.txt; while [ ! -e go ]; do sleep 0.02; done; echo sent"] }),
      parse: (result) => ({ said: result.stdout.trim() }),
    }),
    done: compute({ run: ({ outputs }) => ({ send: outputs.send }) }),
  },
  edges: [{ from: "send", to: "done" }],
});
"#;

fn applied(home: &Home) -> Vec<String> {
    let text = fs::read_to_string(home.project().join("applied.txt")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A home in which the effect is being applied for the first time.
fn applying() -> (Home, String) {
    let home = Home::new();
    home.workflow("deploy", DEPLOY);
    let started = home.piw(&["run", "deploy", "--detach", "--json"]).exits(0).json();
    let run_id = started["runId"].as_str().unwrap().to_owned();
    wait::until("the effect is being applied", || {
        (applied(&home).len() == 1).then_some(())
    });
    (home, run_id)
}

/// The same, with its runner killed: nobody knows whether it happened.
fn ambiguous() -> (Home, String, String) {
    let (home, run_id) = applying();
    kill_and_wait(home.runner_pid());
    home.wait_for_status(&run_id, &["ambiguous"]);
    let effect = only_effect(&home, &run_id);
    assert_eq!(effect["state"], "ambiguous");
    (home, run_id, effect["effectId"].as_str().unwrap().to_owned())
}

fn only_effect(home: &Home, run_id: &str) -> Value {
    let list = home
        .piw(&["effects", "list", run_id, "--all", "--json"])
        .exits(0)
        .json();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    list[0].clone()
}

fn has_review(view: &Value) -> bool {
    view["display"]["controls"]
        .as_array()
        .unwrap()
        .contains(&json!("review"))
}

fn ended_well(home: &Home, run_id: &str) -> Value {
    let view = home.wait_for_end(run_id);
    assert_eq!(view["display"]["status"], "completed", "{view}");
    view["state"]["finalOutput"].clone()
}

fn says(printed: &Printed, words: &[&str]) {
    for word in words {
        assert!(printed.stdout.contains(word), "{word} is missing:\n{}", printed.stdout);
    }
}

#[test]
fn an_interrupted_manual_effect_is_shown_everywhere_and_repeated_by_nothing() {
    let (home, run_id, effect_id) = ambiguous();
    let key = &applied(&home)[0];
    assert_eq!(*key, effect_id, "the id is the key that the command saw");
    let check = || {
        let view = home.show(&run_id);
        assert_eq!(view["display"]["status"], "ambiguous");
        assert!(has_review(&view), "{view}");
        assert_eq!(view["review"]["total"], 1);
        let shown = &view["review"]["effects"][0];
        assert_eq!(shown["effectId"], effect_id.as_str());
        assert_eq!(
            (&shown["node"], &shown["effectType"], &shown["kind"]),
            (&json!("send"), &json!("release"), &json!("manual"))
        );
        let short = &effect_id[..16];
        says(
            &home.piw(&["show", &run_id]).exits(0),
            &["ambiguous", "review", "release", "manual", short],
        );
        says(&home.piw(&["ps"]).exits(0), &["ambiguous"]);
        says(
            &home.piw(&["effects", "list"]).exits(0),
            &[short, "ambiguous", "release", "piw effects confirm"],
        );
        says(
            &home.piw(&[run_id.as_str(), "--once"]).exits(0),
            &["ambiguous", "release", "piw effects list"],
        );
        says(&home.piw(&["server", "status"]).exits(0), &["ambiguous effects", "1"]);
        let status = home.piw(&["server", "status", "--json"]).exits(0).json();
        assert_eq!(status["ambiguousEffects"], 1);
        let item = &home.piw(&["ps", "--json"]).exits(0).json()[0];
        assert_eq!(item["display"]["status"], "ambiguous");
        assert!(has_review(item), "{item}");
        assert_eq!(applied(&home).len(), 1, "nothing applies it again");
    };
    check();
    let refused = home.piw(&["resume", &run_id]).exits(5);
    assert!(refused.stderr.contains("unknown outcome"), "{}", refused.stderr);
    let hint = format!("piw effects list {run_id}");
    assert!(refused.stderr.contains(&hint), "{}", refused.stderr);
    let refused = home.piw(&["restart", &run_id]).exits(5);
    assert!(refused.stderr.contains("cancel it first"), "{}", refused.stderr);
    check();
    let _ = home.piw(&["server", "restart"]).exits(0);
    check();
    home.kill_server();
    let _ = home.piw(&["server", "start"]).exits(0);
    check();
}

#[test]
fn a_confirmed_effect_is_not_applied_again_and_its_result_goes_on() {
    let (home, run_id, effect_id) = ambiguous();
    let receipt = home
        .piw(&[
            "effects",
            "confirm",
            &effect_id[..12],
            "--result",
            r#"{"said":"by phone"}"#,
            "--json",
        ])
        .exits(0)
        .json();
    assert_eq!(receipt["state"], "applied");
    assert_eq!(receipt["runId"], run_id.as_str());
    assert_eq!(ended_well(&home, &run_id), json!({ "send": { "said": "by phone" } }));
    assert_eq!(applied(&home).len(), 1);
    assert_eq!(only_effect(&home, &run_id)["state"], "applied");
    assert!(!has_review(&home.show(&run_id)));
    let again = home.piw(&["effects", "confirm", &effect_id]).exits(5);
    assert!(
        again.stderr.contains("is applied: there is nothing to resolve"),
        "{}",
        again.stderr
    );
    let _ = home.piw(&["effects", "retry", "piw-0000000000"]).exits(4);
}

#[test]
fn a_retried_effect_is_applied_once_more_as_a_new_attempt_under_the_same_key() {
    let (home, run_id, effect_id) = ambiguous();
    let said = home.piw(&["effects", "retry", &effect_id]).exits(0);
    assert!(
        said.stdout.contains("attempt 2 applies it again; the run goes on"),
        "{}",
        said.stdout
    );
    wait::until("it is applied again", || (applied(&home).len() == 2).then_some(()));
    fs::write(home.project().join("go"), "").unwrap();
    assert_eq!(ended_well(&home, &run_id), json!({ "send": { "said": "sent" } }));
    assert_eq!(applied(&home), [effect_id.clone(), effect_id.clone()]);
    let effect = only_effect(&home, &run_id);
    assert_eq!((&effect["state"], &effect["attempt"]), (&json!("applied"), &json!(2)));
}

#[test]
fn a_retry_that_is_interrupted_again_is_ambiguous_again() {
    let (home, run_id, effect_id) = ambiguous();
    let _ = home.piw(&["effects", "retry", &effect_id]).exits(0);
    wait::until("it is applied again", || (applied(&home).len() == 2).then_some(()));
    kill_and_wait(home.runner_pid());
    home.wait_for_status(&run_id, &["ambiguous"]);
    assert_eq!(only_effect(&home, &run_id)["attempt"], 2);
    let _ = home.piw(&["effects", "confirm", &effect_id]).exits(0);
    assert_eq!(ended_well(&home, &run_id), json!({ "send": null }));
    assert_eq!(applied(&home).len(), 2);
}

#[test]
fn a_cancelled_run_still_shows_its_effect_and_can_be_restarted_once_it_is_settled() {
    let (home, run_id) = applying();
    let _ = home.piw(&["cancel", &run_id]).exits(0);
    let view = home.show(&run_id);
    assert_eq!(view["display"]["status"], "cancelled");
    assert!(has_review(&view), "{view}");
    says(&home.piw(&["ps"]).exits(0), &["cancelled (review)"]);
    says(
        &home.piw(&[run_id.as_str(), "--once"]).exits(0),
        &["cancelled", "release"],
    );
    let refused = home.piw(&["restart", &run_id]).exits(5);
    assert!(refused.stderr.contains("not settled"), "{}", refused.stderr);
    let effect = only_effect(&home, &run_id);
    let said = home
        .piw(&["effects", "retry", effect["effectId"].as_str().unwrap()])
        .exits(0);
    assert!(said.stdout.contains("given up: the run has ended"), "{}", said.stdout);
    assert_eq!(only_effect(&home, &run_id)["state"], "cancelled");
    assert_eq!(applied(&home).len(), 1);
    fs::write(home.project().join("go"), "").unwrap();
    let restarted = home.piw(&["restart", &run_id, "--json"]).exits(0).json();
    let next = restarted["newRunId"].as_str().unwrap();
    assert_eq!(ended_well(&home, next), json!({ "send": { "said": "sent" } }));
    let keys = applied(&home);
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1], "a new run has a new effect");
}

#[test]
fn a_paused_effect_is_reviewed_first_and_the_run_stays_paused() {
    let (home, run_id) = applying();
    let _ = home.piw(&["pause", &run_id]).exits(0);
    assert_eq!(home.show(&run_id)["display"]["status"], "ambiguous");
    let _ = home.piw(&["resume", &run_id]).exits(5);
    let effect = only_effect(&home, &run_id);
    let id = effect["effectId"].as_str().unwrap();
    let said = home.piw(&["effects", "confirm", id, "--result", "7"]).exits(0);
    assert!(said.stdout.contains("the run is paused"), "{}", said.stdout);
    assert_eq!(home.show(&run_id)["display"]["status"], "paused");
    let _ = home.piw(&["resume", &run_id]).exits(0);
    assert_eq!(ended_well(&home, &run_id), json!({ "send": 7 }));
    assert_eq!(applied(&home).len(), 1);
}

/// A manual effect that runs out of time, and a long node that goes on from there.
const GOES_ON: &str = r#"
import { compute, defineWorkflow, idempotentEffect, manualEffect, shell } from "piw";
export default defineWorkflow({
  name: "goes-on",
  startAt: "a",
  nodes: {
    a: shell({ effect: manualEffect("pay"), timeoutMs: 300, exec: () => ({ command: "sleep", args: ["30"] }) }),
    b: shell({ effect: idempotentEffect("wait"), exec: () => ({ command: "sh", args: ["-c", "while [ ! -e go ]; do sleep 0.02; done"] }) }),
    lost: compute({ run: () => null }),
  },
  edges: [{ from: "a", switch: { on: "$result.outcome", cases: { ok: "lost", timed_out: "b" } } }],
});
"#;

#[test]
fn a_run_that_goes_on_after_an_ambiguous_effect_is_running_and_followed() {
    let home = Home::new();
    home.workflow("goes-on", GOES_ON);
    let started = home.piw(&["run", "goes-on", "--detach", "--json"]).exits(0).json();
    let run_id = started["runId"].as_str().unwrap().to_owned();
    let view = wait::until("b runs", || {
        let view = home.show(&run_id);
        (view["state"]["currentNode"] == "b").then_some(view)
    });
    assert_eq!(view["display"]["status"], "running", "{view}");
    assert!(has_review(&view), "{view}");
    says(&home.piw(&["show", &run_id]).exits(0), &["◉ running", "≈ $ a", "◉ $ b"]);
    says(&home.piw(&[run_id.as_str(), "--once"]).exits(0), &["≈ a", "◉ b"]);
    says(&home.piw(&["ps"]).exits(0), &["running (review)"]);
    let refused = home.piw(&["pause", &run_id]).exits(5);
    assert!(refused.stderr.contains("review them first"), "{}", refused.stderr);
    fs::write(home.project().join("go"), "").unwrap();
    let view = home.wait_for_end(&run_id);
    assert_eq!(view["display"]["status"], "completed", "{view}");
    assert!(has_review(&view), "the effect still waits: {view}");
}

#[test]
fn a_pause_that_interrupts_a_manual_effect_names_the_review() {
    let (home, run_id) = applying();
    let said = home.piw(&["pause", &run_id]).exits(0);
    says(&said, &["may or may not have happened: 1", "piw effects list"]);
    says(&home.piw(&["show", &run_id]).exits(0), &["≈ ambiguous", "≈ $ send"]);
}

#[test]
fn a_refused_stop_names_what_ends_the_node_and_what_that_means() {
    let (home, run_id) = applying();
    let refused = home.piw(&["server", "stop", "--wait", "0"]).exits(5);
    for words in [run_id.as_str(), "--wait", "--now", "becomes ambiguous"] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
}

#[test]
fn a_forced_stop_names_the_manual_effects_that_it_interrupts() {
    let (home, run_id) = applying();
    let said = home.piw(&["server", "stop", "--now"]).exits(0);
    says(
        &said,
        &["stopped the server", "node send", run_id.as_str(), "piw effects list"],
    );
    let _ = home.piw(&["server", "start"]).exits(0);
    home.wait_for_status(&run_id, &["ambiguous"]);
    // Nothing is being applied any more: nothing is named.
    let said = home.piw(&["server", "stop", "--now"]).exits(0);
    assert_eq!(said.stdout, "stopped the server\n");
}
