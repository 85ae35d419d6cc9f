//! Composition, bounds, failures and checkpoints, one by one. Random ones are in `model`.

use piw_protocol::child::{
    ContentRef, ExecutionState, Next, NodeFinish, NodeStart, Position, RunFinish, ScopeEnter, ScopeLeave, ScopeState,
    ValueRef, VisitCount,
};
use piw_protocol::definition::NodeType;
use piw_protocol::run::{ErrorInfo, NodeOutcome, RunStatus};
use serde_json::{Value, json};

use super::*;
use crate::compile;
use crate::definition::NodeTimeout;
use crate::raw::RawDefinition;
use crate::route::Output;
use crate::testing::workflow;

/// A run that is driven step by step.
pub(super) struct Run {
    pub(super) definition: Definition,
    pub(super) progress: Progress,
}

pub(super) fn error(message: &str) -> ErrorInfo {
    ErrorInfo {
        code: None,
        message: message.to_owned(),
        stack: None,
    }
}

impl Run {
    pub(super) fn new(raw: &RawDefinition) -> Self {
        let definition = compile(raw).unwrap();
        let progress = Progress::new(&definition);
        Self { definition, progress }
    }

    /// Starts the run and says what follows.
    fn begin(&mut self) -> String {
        let plan = self.progress.plan_begin(&self.definition).unwrap();
        let text = shown(&plan);
        let transition = plan.transition().clone();
        self.progress.apply(&self.definition, &transition);
        text
    }

    /// Ends the running (or answered) node and says what follows.
    fn finish(&mut self, outcome: NodeOutcome, output: &Value) -> String {
        let id = self.node();
        let node = self.definition.node(&id).unwrap();
        let failure = error("broken");
        let ok = outcome == NodeOutcome::Ok;
        let waits = node.waits() && self.progress.running(&self.definition).is_some();
        let finished = Finished {
            node_id: &id,
            outcome,
            output: Output::Known(output),
            error: (!ok).then_some(&failure),
            action: None,
            left: (ok && !node.leaves.is_empty() && !waits).then_some(Output::Known(output)),
        };
        let plan = self.progress.plan_after(&self.definition, &finished).unwrap();
        let text = shown(&plan);
        let transition = plan.transition().clone();
        self.progress.apply(&self.definition, &transition);
        text
    }

    fn ok(&mut self, output: &Value) -> String {
        self.finish(NodeOutcome::Ok, output)
    }

    fn node(&self) -> String {
        let (At::Running(node) | At::Answered(node)) = self.progress.at else {
            panic!("{:?}", self.progress.at)
        };
        self.definition.at(node).id.clone()
    }
}

pub(super) fn shown(plan: &Plan<'_>) -> String {
    let mut parts: Vec<String> = plan
        .leaves
        .iter()
        .map(|leave| format!("leave {} by {}", leave.mount, leave.exit))
        .collect();
    match &plan.next {
        Planned::Start {
            node,
            visit,
            again,
            enters,
        } => {
            parts.extend(enters.iter().map(|scope| format!("enter {}", scope.mount)));
            parts.push(format!(
                "{} {} #{visit}",
                if *again { "again" } else { "start" },
                node.id
            ));
        }
        Planned::Finish {
            status,
            error,
            final_output,
            ..
        } => {
            let error = error
                .as_ref()
                .map(|error| format!(": {}", error.message))
                .unwrap_or_default();
            parts.push(format!("{status:?} {final_output:?}{error}"));
        }
        Planned::Wait => parts.push("wait".to_owned()),
    }
    parts.join(", ")
}

fn leaf() -> RawDefinition {
    workflow("leaf", "s")
        .computes(&["s", "good", "bad"])
        .switch("s", "$.r", &[("g", "good"), ("b", "bad")])
        .exit("won", "good")
}

/// `a → m → z`, where `m` is nothing but a mount `g` of [`leaf`] and its exit is the inner exit.
fn nested() -> RawDefinition {
    let middle = workflow("middle", "g").mount("g", leaf()).exit("through", "g.won");
    workflow("w", "a")
        .computes(&["a", "z"])
        .mount("m", middle)
        .edge("a", "m")
        .switch("m.through", "$.again", &[("true", "m"), ("false", "z")])
}

#[test]
fn mounts_are_entered_and_left_through_every_level() {
    let mut run = Run::new(&nested());
    assert_eq!(run.begin(), "start a #1");
    assert_eq!(run.ok(&json!(null)), "enter m, enter m/g, start m/g/s #1");
    assert_eq!(run.ok(&json!({ "r": "g" })), "start m/g/good #1");
    assert_eq!(
        run.progress.open_mounts(&run.definition).collect::<Vec<_>>(),
        ["m", "m/g"]
    );
    // The edge of the exit leads back into the mount: it is left and entered anew.
    assert_eq!(
        run.ok(&json!({ "again": true })),
        "leave m/g by won, leave m by through, enter m, enter m/g, start m/g/s #2"
    );
    assert_eq!(run.ok(&json!({ "r": "g" })), "start m/g/good #2");
    assert_eq!(
        run.ok(&json!({ "again": false })),
        "leave m/g by won, leave m by through, start z #1"
    );
    assert_eq!(run.progress.open_mounts(&run.definition).count(), 0);
    assert_eq!(run.ok(&json!(1)), "Completed Node");
    assert_eq!(run.progress.steps(), 6);
    assert!(run.progress.has_ended());
}

#[test]
fn an_end_inside_a_mount_that_is_no_exit_ends_the_run() {
    let mut run = Run::new(&nested());
    run.begin();
    run.ok(&json!(null));
    assert_eq!(run.ok(&json!({ "r": "b" })), "start m/g/bad #1");
    assert_eq!(run.ok(&json!(5)), "Completed Node");
}

#[test]
fn an_exit_without_an_edge_completes_the_run_with_its_value() {
    let mut run = Run::new(&workflow("w", "m").mount("m", leaf()));
    assert_eq!(run.begin(), "enter m, start m/s #1");
    run.ok(&json!({ "r": "g" }));
    assert_eq!(run.ok(&json!(1)), "leave m by won, Completed Exit");
}

#[test]
fn a_failed_exit_node_does_not_take_the_exit() {
    let raw = workflow("w", "m").mount("m", leaf()).computes(&["z"]).switch(
        "m.won",
        "$result.outcome",
        &[("ok", "z"), ("failed", "z")],
    );
    let mut run = Run::new(&raw);
    run.begin();
    run.ok(&json!({ "r": "g" }));
    assert_eq!(
        run.finish(NodeOutcome::Failed, &json!(null)),
        "Failed None: node \"m/good\" failed: broken"
    );
}

#[test]
fn an_exit_record_names_its_exit() {
    let two = leaf().exit("lost", "bad");
    let raw = workflow("w", "m")
        .mount("m", two)
        .computes(&["x", "y"])
        .switch("m.won", "$result.exit", &[("won", "x")])
        .switch("m.lost", "$result.nodeId", &[("m", "y")]);
    let mut run = Run::new(&raw);
    run.begin();
    run.ok(&json!({ "r": "g" }));
    assert_eq!(run.ok(&json!(1)), "leave m by won, start x #1");
    let mut run = Run::new(&raw);
    run.begin();
    run.ok(&json!({ "r": "b" }));
    assert_eq!(run.ok(&json!(1)), "leave m by lost, start y #1");
}

#[test]
fn outcomes_end_the_run_unless_a_result_switch_takes_them() {
    let raw = workflow("w", "a")
        .computes(&["a", "b", "c"])
        .edge("a", "b")
        .switch("b", "$.x", &[("1", "c")]);
    for (outcome, end) in [
        (NodeOutcome::Failed, "Failed None: node \"a\" failed: broken"),
        (NodeOutcome::TimedOut, "TimedOut None: node \"a\" timed out: broken"),
        (
            NodeOutcome::Cancelled,
            "Cancelled None: node \"a\" was cancelled: broken",
        ),
    ] {
        let mut run = Run::new(&raw);
        run.begin();
        assert_eq!(run.finish(outcome, &json!(null)), end);
    }
    let mut run = Run::new(&raw);
    run.begin();
    assert_eq!(run.ok(&json!(null)), "start b #1");
    assert_eq!(
        run.finish(NodeOutcome::Failed, &json!(null)),
        "Failed None: node \"b\" failed: broken"
    );

    let routed =
        workflow("w", "a")
            .computes(&["a", "b"])
            .switch("a", "$result.outcome", &[("failed", "b"), ("ok", "a")]);
    let mut run = Run::new(&routed);
    run.begin();
    assert_eq!(run.finish(NodeOutcome::Failed, &json!(null)), "start b #1");
    let mut run = Run::new(&routed);
    run.begin();
    assert_eq!(
        run.finish(NodeOutcome::TimedOut, &json!(null)),
        "Failed None: routing from \"a\": $result.outcome is \"timed_out\", which is none of the cases \"failed\", \"ok\" \
         (after: broken)"
    );
}

#[test]
fn a_routing_failure_fails_the_run() {
    let raw = workflow("w", "a")
        .computes(&["a", "b"])
        .switch("a", "$.x", &[("1", "b")]);
    let mut run = Run::new(&raw);
    run.begin();
    assert_eq!(
        run.ok(&json!({ "y": 1 })),
        "Failed None: routing from \"a\": $.x is missing: $output (an object) has no \"x\""
    );
}

#[test]
fn the_root_bound_counts_every_step() {
    let looping = workflow("inner", "s").computes(&["s"]).exit("done", "s");
    let raw = workflow("w", "m")
        .mount("m", looping)
        .edge("m.done", "m")
        .max_steps(3.0);
    let mut run = Run::new(&raw);
    run.begin();
    run.ok(&json!(1));
    run.ok(&json!(1));
    assert_eq!(
        run.ok(&json!(1)),
        "leave m by done, Failed None: workflow \"w\" reached its maxSteps of 3 (3 steps done) before node \"m/s\" could \
         start"
    );
}

#[test]
fn a_mount_has_a_bound_of_its_own_that_starts_anew() {
    let child = workflow("child", "s")
        .computes(&["s", "t"])
        .switch("s", "$.r", &[("again", "s"), ("out", "t")])
        .exit("done", "t")
        .max_steps(3.0);
    let raw = workflow("w", "m").mount("m", child).edge("m.done", "m");
    let mut run = Run::new(&raw);
    run.begin();
    for visit in 1..4 {
        assert_eq!(run.ok(&json!({ "r": "out" })), format!("start m/t #{visit}"));
        assert_eq!(
            run.ok(&json!(1)),
            format!("leave m by done, enter m, start m/s #{}", visit + 1)
        );
    }
    run.ok(&json!({ "r": "again" }));
    run.ok(&json!({ "r": "again" }));
    assert_eq!(
        run.ok(&json!({ "r": "again" })),
        "Failed None: workflow \"child\" (mounted as m) reached its maxSteps of 3 (3 steps done) before node \"m/s\" could \
         start"
    );
}

#[test]
fn a_checkpoint_waits_and_its_answer_goes_on() {
    let raw = workflow("w", "ask")
        .with("ask", NodeType::Checkpoint)
        .computes(&["yes", "no"])
        .switch("ask", "$.go", &[("true", "yes"), ("false", "no")]);
    let mut run = Run::new(&raw);
    run.begin();
    assert_eq!(run.ok(&json!({ "question": "go?" })), "wait");
    assert_eq!(run.progress.waiting_on(&run.definition), Some("ask"));
    assert_eq!(run.progress.steps(), 1);
    run.progress.answer();
    assert_eq!(run.ok(&json!({ "go": true })), "start yes #1");
    assert_eq!(run.progress.steps(), 1, "an answer is no step");
}

#[test]
fn a_checkpoint_can_be_an_exit() {
    let child = workflow("child", "ask")
        .with("ask", NodeType::Checkpoint)
        .exit("done", "ask");
    let raw = workflow("w", "m")
        .mount("m", child)
        .computes(&["z"])
        .edge("m.done", "z");
    let mut run = Run::new(&raw);
    run.begin();
    assert_eq!(run.ok(&json!({})), "wait");
    run.progress.answer();
    let refused = run
        .progress
        .plan_exit_refused(&run.definition, "m", &error("not so"))
        .unwrap();
    assert_eq!(shown(&refused), "Failed None: exit \"done\" of mount \"m\": not so");
    assert_eq!(run.ok(&json!("yes")), "leave m by done, start z #1");
}

#[test]
fn an_interrupted_visit_is_executed_again_under_its_number() {
    let mut run = Run::new(&nested());
    run.begin();
    run.ok(&json!(null));
    run.progress.interrupt();
    let before = run.progress.clone();
    assert_eq!(run.begin(), "again m/g/s #1");
    assert_eq!(run.progress.steps(), before.steps());
    assert_eq!(run.ok(&json!({ "r": "g" })), "start m/g/good #1");
}

#[test]
fn proposals_out_of_order_say_where_the_run_stands() {
    let mut run = Run::new(&nested());
    let finished = Finished {
        node_id: "z",
        outcome: NodeOutcome::Ok,
        output: Output::NotLoaded,
        error: None,
        action: None,
        left: None,
    };
    let text = |run: &Run| {
        run.progress
            .plan_after(&run.definition, &finished)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        text(&run),
        "the end of node \"z\" does not follow: the run has not started"
    );
    run.begin();
    assert_eq!(
        text(&run),
        "the end of node \"z\" does not follow: the run is executing node \"a\""
    );
    let again = run.progress.plan_begin(&run.definition).unwrap_err().to_string();
    assert_eq!(again, "a first start does not follow: the run is executing node \"a\"");
    let unknown = Finished {
        node_id: "q",
        ..finished
    };
    let text = run
        .progress
        .plan_after(&run.definition, &unknown)
        .unwrap_err()
        .to_string();
    assert_eq!(text, "node \"q\" is not in the definition");
}

fn start_of(node: &str, visit: u32, enters: &[&str]) -> NodeStart {
    NodeStart {
        attempt_id: "at".to_owned(),
        node_id: node.to_owned(),
        visit,
        status_detail: None,
        timeout_ms: Some(crate::limits::DEFAULT_TIMEOUT_MS),
        enters: enters
            .iter()
            .map(|mount| ScopeEnter {
                mount: (*mount).to_owned(),
                input: ValueRef::null(),
            })
            .collect(),
        leaves: Vec::new(),
    }
}

fn finish_of(node: &str, output: ValueRef, next: Next) -> NodeFinish {
    NodeFinish {
        attempt_id: "at".to_owned(),
        node_id: node.to_owned(),
        outcome: NodeOutcome::Ok,
        output,
        error: None,
        action: None,
        status_detail: None,
        active_ms: 1,
        settle: None,
        leaves: Vec::new(),
        next,
    }
}

fn nothing(_: &ContentRef) -> Option<Value> {
    None
}

#[test]
fn large_outputs_are_loaded_only_when_they_decide() {
    let raw = workflow("w", "a")
        .computes(&["a", "b", "c"])
        .edge("a", "b")
        .switch("b", "$.x", &[("1", "c")]);
    let mut run = Run::new(&raw);
    run.begin();
    let content = ContentRef {
        sha256: "0".repeat(64),
        bytes: 1 << 20,
        media_type: "application/json".to_owned(),
    };
    let large = || ValueRef::Content(content.clone());
    let to_b = finish_of("a", large(), Next::Start(start_of("b", 1, &[])));
    let transition = run.progress.check_finished(&run.definition, &to_b, &nothing).unwrap();
    run.progress.apply(&run.definition, &transition);
    let to_c = finish_of("b", large(), Next::Start(start_of("c", 1, &[])));
    let missing = run
        .progress
        .check_finished(&run.definition, &to_c, &nothing)
        .unwrap_err();
    assert!(matches!(missing, TransitionError::OutputNotLoaded(_)), "{missing}");
    let load = |_: &ContentRef| Some(json!({ "x": 1 }));
    assert!(run.progress.check_finished(&run.definition, &to_c, &load).is_ok());
    let load = |_: &ContentRef| Some(json!({ "x": 2 }));
    let text = run
        .progress
        .check_finished(&run.definition, &to_c, &load)
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "what follows must be an end as Failed, not a start of \"c\" (visit 1)"
    );
}

#[test]
fn contradictions_are_refused() {
    let mut run = Run::new(&workflow("w", "a").computes(&["a"]));
    run.begin();
    let end = || {
        let run = RunFinish {
            status: RunStatus::Completed,
            final_output: ValueRef::null(),
            error: None,
            leaves: Vec::new(),
        };
        Next::Finish(run)
    };
    let check = |finish: &NodeFinish| run.progress.check_finished(&run.definition, finish, &nothing);
    assert!(check(&finish_of("a", ValueRef::null(), end())).is_ok());
    let mut finish = finish_of("a", ValueRef::null(), end());
    finish.error = Some(error("x"));
    assert_eq!(
        check(&finish).unwrap_err().to_string(),
        "node \"a\": an `ok` end has no error"
    );
    finish.outcome = NodeOutcome::Failed;
    finish.output = ValueRef::Inline(json!(1));
    assert_eq!(
        check(&finish).unwrap_err().to_string(),
        "node \"a\": only an `ok` end has an output"
    );
    finish.error = None;
    assert_eq!(
        check(&finish).unwrap_err().to_string(),
        "node \"a\": an end other than `ok` needs an error"
    );
    let other_output = finish_of("a", ValueRef::Inline(json!(1)), end());
    let text = check(&other_output).unwrap_err().to_string();
    assert_eq!(text, "the final output must be the accepted output, not another value");
}

#[test]
fn a_refused_mount_input_may_end_the_run_and_nothing_else_may() {
    let mut run = Run::new(&nested());
    run.begin();
    let end = |code: &str| {
        let error = ErrorInfo {
            code: Some(code.to_owned()),
            message: "bad input".to_owned(),
            stack: None,
        };
        let finish = RunFinish {
            status: RunStatus::Failed,
            final_output: ValueRef::null(),
            error: Some(error),
            leaves: Vec::new(),
        };
        finish_of("a", ValueRef::null(), Next::Finish(finish))
    };
    let check = |finish: &NodeFinish| run.progress.check_finished(&run.definition, finish, &nothing);
    assert!(check(&end(CODE_INCLUDE_INPUT)).is_ok());
    let text = check(&end("nodeFailed")).unwrap_err().to_string();
    assert_eq!(
        text,
        "the error code of a refused mount input must be Some(\"includeInput\"), not Some(\"nodeFailed\")"
    );
}

#[test]
fn the_first_start_after_an_answer_names_the_mounts_left() {
    let child = workflow("child", "ask")
        .with("ask", NodeType::Checkpoint)
        .exit("done", "ask");
    let raw = workflow("w", "m")
        .mount("m", child)
        .computes(&["z"])
        .edge("m.done", "z");
    let definition = compile(&raw).unwrap();
    let state = ExecutionState {
        revision: 9,
        input: ValueRef::null(),
        run_title: None,
        step_count: 1,
        scopes: vec![ScopeState {
            mount: "m".to_owned(),
            input: ValueRef::null(),
            step_count: 1,
        }],
        results: Vec::new(),
        visits: vec![VisitCount {
            node_id: "m/ask".to_owned(),
            count: 1,
        }],
        position: Position::After {
            node_id: "m/ask".to_owned(),
        },
    };
    let progress = Progress::restore(&definition, &Saved::from(&state)).unwrap();
    let answer = ValueRef::Inline(json!("yes"));
    let mut start = start_of("z", 1, &[]);
    let check = |start: &NodeStart| progress.check_started(&definition, start, Some(&answer), &nothing);
    assert!(check(&start).is_err(), "the mount must be left");
    start.leaves = vec![ScopeLeave {
        mount: "m".to_owned(),
        exit: "done".to_owned(),
        output: answer.clone(),
    }];
    assert!(check(&start).is_ok());
    let mut refused = RunFinish {
        status: RunStatus::Failed,
        final_output: ValueRef::null(),
        error: Some(ErrorInfo {
            code: Some(CODE_EXIT_VALIDATION.to_owned()),
            ..error("no")
        }),
        leaves: Vec::new(),
    };
    let check = |finish: &RunFinish| progress.check_run_finished(&definition, finish, Some(&answer), &nothing);
    assert!(check(&refused).is_ok());
    refused.status = RunStatus::Completed;
    assert!(check(&refused).is_err());
}

#[test]
fn saved_states_that_do_not_fit_are_refused() {
    let definition = compile(&nested()).unwrap();
    let restore = |saved: &Saved| Progress::restore(&definition, saved).unwrap_err().to_string();
    let saved = |position, scopes: &[&str], visits: &[&str]| Saved {
        steps: 1,
        scopes: scopes
            .iter()
            .map(|mount| SavedScope {
                mount: (*mount).to_owned(),
                steps: 0,
            })
            .collect(),
        visits: visits
            .iter()
            .map(|id| VisitCount {
                node_id: (*id).to_owned(),
                count: 1,
            })
            .collect(),
        position,
    };
    let inside = || SavedPosition::Running {
        node_id: "m/g/s".to_owned(),
    };
    assert!(Progress::restore(&definition, &saved(inside(), &["m", "m/g"], &["m/g/s"])).is_ok());
    let prefix = "the saved position does not fit the definition: ";
    assert_eq!(
        restore(&saved(inside(), &["m"], &["m/g/s"])),
        format!("{prefix}node \"m/g/s\" is not inside the open mounts [\"m\"]")
    );
    assert_eq!(
        restore(&saved(inside(), &["m", "m/g"], &[])),
        format!("{prefix}node \"m/g/s\" was never started")
    );
    assert_eq!(
        restore(&saved(inside(), &["q"], &[])),
        format!("{prefix}mount \"q\" is not in the definition")
    );
    assert_eq!(
        restore(&saved(inside(), &[], &["q"])),
        format!("{prefix}node \"q\" is not in the definition")
    );
    assert!(restore(&saved(SavedPosition::Start, &[], &[])).ends_with("has steps or open mounts"));
}

#[test]
fn declared_timeouts_are_checked() {
    let mut raw = workflow("w", "a").computes(&["a"]);
    raw.nodes[0].timeout_ms = Some(json!(1500));
    let run = Run::new(&raw);
    assert_eq!(run.definition.start().timeout(), NodeTimeout::Ms(1500));
    let mut start = start_of("a", 1, &[]);
    let text = run
        .progress
        .check_started(&run.definition, &start, None, &nothing)
        .unwrap_err()
        .to_string();
    assert_eq!(text, "the timeout must be Some(1500), not Some(900000)");
    start.timeout_ms = Some(1500);
    assert!(
        run.progress
            .check_started(&run.definition, &start, None, &nothing)
            .is_ok()
    );
}

#[test]
fn a_hundred_thousand_steps_cost_the_same_each() {
    let raw = workflow("w", "a")
        .computes(&["a", "b"])
        .edge("a", "b")
        .edge("b", "a")
        .max_steps(100_001.0);
    let mut run = Run::new(&raw);
    run.begin();
    for _ in 0..100_000 {
        run.ok(&json!(null));
    }
    assert_eq!(run.progress.steps(), 100_000);
    assert_eq!(run.progress.visits(&run.definition, "a"), 50_001);
}

#[test]
fn long_errors_are_cut_once_and_for_all() {
    let mut run = Run::new(&workflow("w", "a").computes(&["a"]));
    run.begin();
    let long = crate::text::bounded_error(ErrorInfo {
        code: None,
        message: "\u{1}é".repeat(10_000),
        stack: Some("s".repeat(100_000)),
    });
    let finished = Finished {
        node_id: "a",
        outcome: NodeOutcome::Failed,
        output: Output::Known(&Value::Null),
        error: Some(&long),
        action: None,
        left: None,
    };
    let plan = run.progress.plan_after(&run.definition, &finished).unwrap();
    let Planned::Finish { error: Some(error), .. } = plan.next else {
        panic!("no end")
    };
    assert_eq!(crate::text::bounded_error(error.clone()), error);
    assert!(error.message.starts_with("node \"a\" failed: ") && error.message.ends_with('…'));
}
