//! Every check on effects and runs fails when what it forbids has happened.

use super::*;

const KEY: &str = "piw-1";

fn run(status: &str) -> Run {
    Run {
        status: status.to_owned(),
        revision: 3,
        steps: 1,
        nodes: vec!["value".to_owned()],
        carried: 0,
        continued: false,
        outputs: vec![r#"{"value":"0.5"}"#.to_owned()],
    }
}

fn facts(kind: &str, status: &str, tries: u64) -> Facts {
    let effect = Effect {
        run_id: "run".to_owned(),
        place: "node#1".to_owned(),
        kind: kind.to_owned(),
        status: status.to_owned(),
        tries,
    };
    Facts {
        runs: BTreeMap::from([("run".to_owned(), run("completed"))]),
        effects: BTreeMap::from([(KEY.to_owned(), effect)]),
        processes: 0,
    }
}

fn played() -> Played {
    Played {
        runs: vec!["run".to_owned()],
        ..Played::default()
    }
}

fn of_effects(facts: &Facts, log: &str, played: &Played) -> Vec<String> {
    let mut findings = Findings::default();
    effects(facts, log, played, &mut findings);
    findings.0
}

fn of_runs(facts: &Facts, played: &Played) -> Vec<String> {
    let mut findings = Findings::default();
    runs(facts, played, &mut findings);
    findings.0
}

/// Exactly one finding, of this rule.
fn assert_finds(findings: &[String], rule: &str) {
    assert!(
        findings.len() == 1 && findings[0].starts_with(rule),
        "{rule:?} expected, found {findings:?}"
    );
}

#[test]
fn what_is_allowed_is_no_finding() {
    let twice = format!("idempotent {KEY} node 0.5\nidempotent {KEY} node 0.5\n");
    let once = format!("manual {KEY} node 0.5\n");
    let batch = format!("batch {KEY} one 0.5\nbatch {KEY} two 0.5\nbatch {KEY} three 0.5\n");
    for (facts, log) in [
        (facts("idempotent", "applied", 2), twice.as_str()),
        (facts("idempotent", "applied", 1), batch.as_str()),
        (facts("manual", "applied", 1), once.as_str()),
        (facts("manual", "ambiguous", 1), once.as_str()),
        (facts("manual", "ambiguous", 1), ""),
        (facts("observed", "rejected", 1), ""),
    ] {
        let found = of_effects(&facts, log, &played());
        assert!(found.is_empty(), "{found:?}");
    }
    assert!(of_runs(&facts("manual", "applied", 1), &played()).is_empty());
}

#[test]
fn a_line_without_a_reservation_is_found() {
    let mut facts = facts("manual", "applied", 1);
    facts.effects.clear();
    let log = format!("manual {KEY} node 0.5\n");
    assert_finds(&of_effects(&facts, &log, &played()), "an effect is reserved before");
}

#[test]
fn more_lines_than_tries_are_found() {
    let log = format!("idempotent {KEY} node 0.5\nidempotent {KEY} node 0.5\n");
    let found = of_effects(&facts("idempotent", "applied", 1), &log, &played());
    assert_finds(&found, "a try applies an effect once");
}

#[test]
fn a_repeated_manual_or_observed_effect_is_found_unless_somebody_accepted_it() {
    for kind in ["manual", "observed"] {
        let log = format!("{kind} {KEY} node 0.5\n{kind} {KEY} node 0.5\n");
        let facts = facts(kind, "applied", 2);
        assert_finds(&of_effects(&facts, &log, &played()), "an effect that must not repeat");
        let accepted = Played {
            careless: [(KEY.to_owned(), 1)].into(),
            ..played()
        };
        assert!(of_effects(&facts, &log, &accepted).is_empty());
    }
}

#[test]
fn an_applied_effect_that_left_nothing_is_found() {
    for kind in ["idempotent", "manual", "observed"] {
        let found = of_effects(&facts(kind, "applied", 1), "", &played());
        assert_finds(&found, "an applied effect happened");
    }
    let part = format!("batch {KEY} one 0.5\nbatch {KEY} three 0.5\n");
    let found = of_effects(&facts("idempotent", "applied", 1), &part, &played());
    assert_finds(&found, "an applied effect happened");
}

#[test]
fn a_value_that_no_finished_node_returned_is_found() {
    let log = format!("manual {KEY} node 0.7\n");
    let found = of_effects(&facts("manual", "applied", 1), &log, &played());
    assert_finds(&found, "a finished node never runs again");
}

#[test]
fn open_effects_and_torn_lines_are_found() {
    for status in ["pending", "applying"] {
        let found = of_effects(&facts("idempotent", status, 1), "", &played());
        assert_finds(&found, "an ended run has no open effect");
    }
    let found = of_effects(&facts("manual", "ambiguous", 1), "manual piw", &played());
    assert_finds(&found, "the log is whole");
}

#[test]
fn lost_unknown_and_repeated_runs_are_found() {
    let rule = "the runs are those that accepted commands made";
    let mut lost = facts("manual", "applied", 1);
    lost.runs.clear();
    assert_finds(&of_runs(&lost, &played()), rule);
    let mut unknown = facts("manual", "applied", 1);
    unknown.runs.insert("other".to_owned(), run("completed"));
    assert_finds(&of_runs(&unknown, &played()), rule);
    let mut twice = played();
    twice.runs.push("run".to_owned());
    assert_finds(&of_runs(&facts("manual", "applied", 1), &twice), "no run is made twice");
}

#[test]
fn an_end_that_nobody_asked_for_is_found() {
    let rule = "a run ends as it was told";
    for status in ["failed", "timed_out", "cancelled", "running", "waiting"] {
        let mut facts = facts("manual", "applied", 1);
        facts.runs.insert("run".to_owned(), run(status));
        assert_finds(&of_runs(&facts, &played()), rule);
    }
    let cancelled = Played {
        cancelled: ["run".to_owned()].into(),
        ..played()
    };
    assert_finds(&of_runs(&facts("manual", "applied", 1), &cancelled), rule);
}

#[test]
fn a_process_that_stays_registered_is_found() {
    let facts = Facts {
        processes: 1,
        ..facts("manual", "applied", 1)
    };
    assert_finds(&of_runs(&facts, &played()), "no process stays registered");
}
