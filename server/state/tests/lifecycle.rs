//! Runs through their states: start, claim, steps, pause, resume, cancel, restart, checkpoints, crashes.

mod common;

use common::{Flow, Place, Runner, accepted, command, facts, rejected, run_id, start};
use piw_engine::failure::ParkReason;
use piw_protocol::child::{
    ChildBody, CommandAction, EffectReservation, EffectSettlement, Next, Position, ReplyOutcome, ScopeEnter,
    ScopeLeave, ValueRef,
};
use piw_protocol::definition::EffectKind;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::Operation;
use piw_protocol::run::RunStatus;
use piw_state::{AfterExit, Answer, RunnerOutcome, State};
use serde_json::json;

fn two() -> Flow {
    Flow::new("a").compute("a").compute("b").edge("a", "b")
}

#[tokio::test]
async fn a_run_goes_from_start_to_completed() {
    let mut place = Place::new();
    let state = place.serve().await;
    let mut feed = state.changes(piw_state::Interest::Everything);
    let id = start(&state, &two(), "k").await;
    assert!(feed.take().claimable);
    assert_eq!(facts(&state, &id).await, ("queued".into(), "queued".into(), true, 0));

    let mut runner = Runner::claim(&state).await.expect("claimed");
    assert_eq!(
        facts(&state, &id).await,
        ("running".into(), "starting".into(), false, 0)
    );
    assert!(state.claim_next(None).await.expect("claim").is_none());
    let told = runner.ready().await;
    assert_eq!(told.action, CommandAction::Start);
    assert_eq!(told.state.position, Position::Start);
    assert_eq!(told.state.input, ValueRef::Inline(json!({"n": 1})));
    assert_eq!(facts(&state, &id).await.1, "running");

    accepted(&runner.begin("a", 1).await);
    accepted(&runner.step("a", json!(1), "b", 1).await);
    accepted(&runner.complete("b", json!({"done": true})).await);
    assert_eq!(facts(&state, &id).await, ("completed".into(), "done".into(), false, 2));
    assert_eq!(runner.exit(RunnerOutcome::Exited).await, AfterExit::Nothing);
    assert_eq!(feed.take().runs.len(), 1);
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_start_that_is_repeated_is_adopted_and_another_payload_conflicts() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let mut again = command(Operation::RunStart, "k");
    again.request_id = "another request".to_owned();
    let adopted = state
        .start_run(again.clone(), two().new_run(json!(0)))
        .await
        .expect("start");
    assert_eq!((adopted.outcome, run_id(&adopted)), (Outcome::Adopted, id));
    again.fingerprint = [8; 32];
    let conflict = state.start_run(again, two().new_run(json!(0))).await.expect("start");
    assert_eq!(conflict.outcome, Outcome::Conflict);
    let mut reused = command(Operation::RunStart, "other");
    reused.request_id = "request-k".to_owned();
    let conflict = state.start_run(reused, two().new_run(json!(0))).await.expect("start");
    assert_eq!(conflict.outcome, Outcome::Conflict);
}

#[tokio::test]
async fn proposals_that_do_not_follow_are_refused_and_change_nothing() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let mut runner = Runner::launch(&state).await;
    assert!(rejected(&runner.begin("b", 1).await).contains("must be"));
    accepted(&runner.begin("a", 1).await);
    assert!(rejected(&runner.begin("a", 1).await).contains("does not follow"));
    let running = runner.attempt.clone();
    runner.attempt = Some("other".to_owned());
    assert!(rejected(&runner.complete("a", json!(1)).await).contains("is not the unfinished attempt"));
    runner.attempt = running;
    let message = runner.message(ChildBody::Ready {
        definition_digest: "sha256:0".to_owned(),
    });
    assert!(rejected(&runner.deliver(message).await).contains("the loaded definition is sha256:0"));
    runner.revision -= 1;
    assert!(rejected(&runner.step("a", json!(1), "b", 1).await).contains("is at revision"));
    assert_eq!(facts(&state, &id).await.3, 0);
}

#[tokio::test]
async fn a_repeated_message_is_adopted() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let mut runner = Runner::launch(&state).await;
    let first = runner.node_start("a", 1);
    let message = runner.message(ChildBody::NodeStarted(first));
    accepted(&runner.deliver(message.clone()).await);
    let again = runner.deliver(message).await;
    assert_eq!(again.outcome, ReplyOutcome::Adopted);
    accepted(&runner.step("a", json!(1), "b", 1).await);
    let attempt = runner.attempt.clone().expect("attempt");
    let mut finish = runner.finish_body(
        "b",
        json!(2),
        Next::Finish(piw_protocol::child::RunFinish {
            status: RunStatus::Completed,
            final_output: ValueRef::Inline(json!(2)),
            error: None,
            leaves: vec![],
        }),
    );
    finish.attempt_id = attempt;
    let last = runner.message(ChildBody::NodeFinished(Box::new(finish)));
    accepted(&runner.deliver(last.clone()).await);
    // The end released the claim; a lost reply is still adopted.
    assert_eq!(runner.deliver(last).await.outcome, ReplyOutcome::Adopted);
    assert_eq!(facts(&state, &id).await.3, 2);
    let lost = runner.begin("a", 1).await;
    assert_eq!(lost.outcome, ReplyOutcome::ClaimLost);
}

#[tokio::test]
async fn pause_and_resume_repeat_only_the_unfinished_node() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.step("a", json!(1), "b", 1).await);
    let paused = state
        .pause_run(command(Operation::RunPause, "p"), id.clone(), None)
        .await
        .expect("pause");
    assert_eq!(paused.receipted.outcome, Outcome::Accepted);
    let receipt = paused.receipted.receipt.expect("receipt");
    assert_eq!((receipt.status, receipt.paused), (RunStatus::Running, true));
    let stop = paused.stop.expect("a runner is to be stopped");
    assert_eq!((stop.generation, stop.pid), (1, Some(1001)));
    assert_eq!(facts(&state, &id).await, ("running".into(), "parked".into(), false, 1));
    assert_eq!(runner.complete("b", json!(2)).await.outcome, ReplyOutcome::ClaimLost);

    let again = state
        .pause_run(command(Operation::RunPause, "p2"), id.clone(), None)
        .await
        .expect("pause");
    assert_eq!(again.receipted.error.expect("error").reason, "already_paused");
    let stale = state
        .resume_run(command(Operation::RunResume, "r0"), id.clone(), Some(1))
        .await
        .expect("resume");
    assert_eq!(stale.outcome, Outcome::Conflict);
    let resumed = state
        .resume_run(command(Operation::RunResume, "r"), id.clone(), None)
        .await
        .expect("resume");
    assert_eq!(resumed.outcome, Outcome::Accepted);
    // The old process is not known to be gone yet.
    assert!(state.claim_next(None).await.expect("claim").is_none());
    assert_eq!(runner.exit(RunnerOutcome::Cancelled).await, AfterExit::Nothing);
    let mut second = Runner::launch(&state).await;
    assert_eq!(second.claim.generation, 2);
    let told = second.command.clone().expect("command");
    assert_eq!(told.action, CommandAction::Resume);
    assert_eq!(
        told.state.position,
        Position::Node {
            node_id: "b".to_owned(),
            visit: 1,
            overran: false,
        }
    );
    assert_eq!(told.state.results.len(), 1);
    accepted(&second.begin("b", 1).await);
    accepted(&second.complete("b", json!(2)).await);
    assert_eq!(facts(&state, &id).await, ("completed".into(), "done".into(), false, 2));
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn cancel_is_terminal_and_marks_applying_effects() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &Flow::new("a").action("a", EffectKind::Idempotent), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    assert_eq!(
        runner.reserve("a", 1, EffectKind::Idempotent).await,
        EffectReservation::Apply { attempt: 1 }
    );
    let cancelled = state
        .cancel_run(command(Operation::RunCancel, "c"), id.clone(), None)
        .await
        .expect("cancel");
    assert!(cancelled.stop.is_some());
    assert_eq!(
        facts(&state, &id).await,
        ("cancelled".into(), "cancelled".into(), false, 0)
    );
    let again = state
        .cancel_run(command(Operation::RunCancel, "c"), id.clone(), None)
        .await
        .expect("cancel");
    assert_eq!((again.receipted.outcome, again.stop), (Outcome::Adopted, None));
    let late = state
        .cancel_run(command(Operation::RunCancel, "c2"), id.clone(), None)
        .await
        .expect("cancel");
    assert_eq!(late.receipted.error.expect("error").reason, "run_ended");
    let original = state.original(id.clone()).await.expect("read").expect("run");
    let flow = Flow::new("a").action("a", EffectKind::Idempotent);
    let refused = state
        .restart_run(
            command(Operation::RunRestart, "x"),
            id,
            Some(original.revision),
            flow.resolved(json!({"n": 1})),
        )
        .await
        .expect("restart");
    assert_eq!(refused.error.expect("error").reason, "effect_unsettled");
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_checkpoint_continues_in_a_new_run_with_the_answer() {
    let mut place = Place::new();
    let state = place.serve().await;
    let flow = Flow::new("a")
        .compute("a")
        .checkpoint("ask")
        .compute("b")
        .edge("a", "ask")
        .switch("ask", "$.go", &[("yes", "b"), ("no", "a")]);
    let id = start(&state, &flow, "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.step("a", json!(1), "ask", 1).await);
    accepted(&runner.wait("ask", json!({"question": "go?"})).await);
    assert_eq!(facts(&state, &id).await, ("waiting".into(), "parked".into(), false, 2));
    assert_eq!(runner.exit(RunnerOutcome::Exited).await, AfterExit::Nothing);

    let answer = |go: &str| Answer {
        value: ValueRef::Inline(json!({"go": go})),
        source: "shell".to_owned(),
    };
    let answered = state
        .answer_checkpoint(
            command(Operation::CheckpointAnswer, "a1"),
            id.clone(),
            None,
            answer("no"),
        )
        .await
        .expect("answer");
    let child = answered.receipt.expect("receipt").new_run_id.expect("continuation");
    assert_eq!(facts(&state, &id).await.0, "completed");
    assert_eq!(facts(&state, &child).await, ("queued".into(), "queued".into(), true, 2));
    let late = state
        .answer_checkpoint(command(Operation::CheckpointAnswer, "a2"), id, None, answer("yes"))
        .await
        .expect("answer");
    assert_eq!(late.error.expect("error").reason, "run_ended");

    let mut second = Runner::launch(&state).await;
    let told = second.command.clone().expect("command");
    assert_eq!(told.action, CommandAction::Continue);
    assert_eq!(
        told.state.position,
        Position::After {
            node_id: "ask".to_owned()
        }
    );
    assert_eq!(told.state.step_count, 2);
    assert_eq!(
        told.state.results.last().expect("result").output,
        ValueRef::Inline(json!({"go": "no"}))
    );
    assert!(rejected(&second.begin("b", 1).await).contains("must be"));
    accepted(&second.begin("a", 2).await);
    accepted(&second.step("a", json!(2), "ask", 2).await);
    accepted(&second.wait("ask", json!({"question": "go now?"})).await);
    second.exit(RunnerOutcome::Exited).await;
    let answered = state
        .answer_checkpoint(
            command(Operation::CheckpointAnswer, "a3"),
            child.clone(),
            None,
            answer("yes"),
        )
        .await
        .expect("answer");
    let grandchild = answered.receipt.expect("receipt").new_run_id.expect("continuation");
    // A server that starts anew reads the same state from the rows.
    state.close();
    let state = place.serve().await;
    state.recover().await.expect("recover");
    let mut third = Runner::launch(&state).await;
    assert_eq!(third.command.as_ref().expect("command").state.step_count, 4);
    accepted(&third.begin("b", 1).await);
    accepted(&third.complete("b", json!("end")).await);
    assert_eq!(
        facts(&state, &grandchild).await,
        ("completed".into(), "done".into(), false, 5)
    );
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn three_crashes_in_a_row_park_the_run() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    for crash in 1..=3 {
        let mut runner = Runner::launch(&state).await;
        accepted(&runner.begin("a", 1).await);
        let after = runner.exit(RunnerOutcome::Crashed).await;
        let expected = if crash < 3 {
            AfterExit::Claimable
        } else {
            AfterExit::Parked {
                reason: ParkReason::RunnerNoProgress,
            }
        };
        assert_eq!(after, expected, "crash {crash}");
    }
    assert_eq!(facts(&state, &id).await, ("running".into(), "parked".into(), false, 0));
    assert!(state.claim_next(None).await.expect("claim").is_none());
    let resumed = state
        .resume_run(command(Operation::RunResume, "r"), id.clone(), None)
        .await
        .expect("resume");
    assert_eq!(resumed.outcome, Outcome::Accepted);
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.step("a", json!(1), "b", 1).await);
    assert_eq!(runner.exit(RunnerOutcome::Crashed).await, AfterExit::Claimable);
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_runner_that_commits_nothing_parks_at_once() {
    let mut place = Place::new();
    let state = place.serve().await;
    start(&state, &two(), "k").await;
    let runner = Runner::launch(&state).await;
    assert_eq!(
        runner.exit(RunnerOutcome::Exited).await,
        AfterExit::Parked {
            reason: ParkReason::RunnerNoProgress
        }
    );
    start(&state, &two(), "k2").await;
    let runner = Runner::claim(&state).await.expect("claim");
    assert_eq!(
        runner.exit(RunnerOutcome::TimedOut).await,
        AfterExit::Parked {
            reason: ParkReason::RunnerTimedOut
        }
    );
    start(&state, &two(), "k3").await;
    let runner = Runner::launch(&state).await;
    assert_eq!(runner.exit(RunnerOutcome::Cancelled).await, AfterExit::Claimable);
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn effects_are_adopted_repeated_observed_or_reviewed() {
    for (kind, after, again) in [
        (
            EffectKind::Idempotent,
            AfterExit::Claimable,
            Some(EffectReservation::Apply { attempt: 2 }),
        ),
        (
            EffectKind::Observed,
            AfterExit::Claimable,
            Some(EffectReservation::Observe { attempt: 1 }),
        ),
        (
            EffectKind::Manual,
            AfterExit::Parked {
                reason: ParkReason::EffectAmbiguous,
            },
            None,
        ),
    ] {
        let mut place = Place::new();
        let state = place.serve().await;
        let id = start(&state, &Flow::new("a").action("a", kind), "k").await;
        let mut runner = Runner::launch(&state).await;
        accepted(&runner.begin("a", 1).await);
        assert_eq!(
            runner.reserve("a", 1, kind).await,
            EffectReservation::Apply { attempt: 1 }
        );
        assert_eq!(runner.exit(RunnerOutcome::Crashed).await, after);
        assert_eq!(state.verify().await.expect("verify"), vec![]);
        let Some(again) = again else {
            let refused = state
                .resume_run(command(Operation::RunResume, "r"), id, None)
                .await
                .expect("resume");
            assert_eq!(refused.error.expect("error").reason, "effect_ambiguous");
            continue;
        };
        let mut runner = Runner::launch(&state).await;
        accepted(&runner.begin("a", 1).await);
        assert_eq!(runner.reserve("a", 1, kind).await, again);
        assert!(rejected(&runner.complete("a", json!(1)).await).contains("is not settled"));
        let key = runner.effect_key("a", 1);
        let result = Some(ValueRef::Inline(json!({"id": 9})));
        accepted(
            &runner
                .send(ChildBody::EffectSettle {
                    key,
                    outcome: EffectSettlement::Applied,
                    result,
                })
                .await,
        );
        // Applied, but the node's end was not committed: the next attempt adopts the result.
        runner.exit(RunnerOutcome::Crashed).await;
        let mut runner = Runner::launch(&state).await;
        accepted(&runner.begin("a", 1).await);
        let adopted = runner.reserve("a", 1, kind).await;
        assert_eq!(
            adopted,
            EffectReservation::Adopt {
                result: ValueRef::Inline(json!({"id": 9}))
            }
        );
        accepted(&runner.complete("a", json!(1)).await);
        assert_eq!(state.verify().await.expect("verify"), vec![]);
    }
}

#[tokio::test]
async fn restarts_have_a_lineage_and_a_limit() {
    let mut place = Place::new();
    let state = place.serve().await;
    let mut id = start(&state, &two(), "k").await;
    for restart in 0..4 {
        let mut runner = Runner::launch(&state).await;
        let expected = if restart == 0 {
            CommandAction::Start
        } else {
            CommandAction::Restart
        };
        assert_eq!(runner.command.as_ref().expect("command").action, expected);
        accepted(&runner.begin("a", 1).await);
        accepted(&runner.fail("a", &format!("failure {restart}")).await);
        runner.exit(RunnerOutcome::Exited).await;
        let identity = command(Operation::RunRestart, &format!("x{restart}"));
        let restarted = state
            .restart_run(identity, id.clone(), None, two().resolved(json!({"n": 1})))
            .await
            .expect("restart");
        if restart < 3 {
            id = restarted.receipt.expect("receipt").new_run_id.expect("new run");
        } else {
            assert_eq!(restarted.error.expect("error").reason, "restart_limit");
        }
    }
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn the_same_failure_is_not_restarted_twice() {
    let mut place = Place::new();
    let state = place.serve().await;
    let mut id = start(&state, &two(), "k").await;
    for restart in 0..2 {
        let mut runner = Runner::launch(&state).await;
        accepted(&runner.begin("a", 1).await);
        accepted(&runner.fail("a", "no").await);
        runner.exit(RunnerOutcome::Exited).await;
        let identity = command(Operation::RunRestart, &format!("x{restart}"));
        let restarted = state
            .restart_run(identity, id.clone(), None, two().resolved(json!({"n": 1})))
            .await
            .expect("restart");
        if restart == 0 {
            id = restarted.receipt.expect("receipt").new_run_id.expect("new run");
        } else {
            assert_eq!(restarted.error.expect("error").reason, "repeated_failure");
        }
    }
}

/// Executes the queued run until its first node fails.
async fn fail_once(state: &State, message: &str) {
    let mut runner = Runner::launch(state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.fail("a", message).await);
    runner.exit(RunnerOutcome::Exited).await;
}

/// The id of the new run, or the reason of the refusal.
async fn restart(state: &State, id: &str, key: &str) -> Result<String, String> {
    let identity = command(Operation::RunRestart, key);
    let restarted = state
        .restart_run(identity, id.to_owned(), None, two().resolved(json!({"n": 1})))
        .await
        .expect("restart");
    match restarted.receipt {
        Some(receipt) => Ok(receipt.new_run_id.expect("new run")),
        None => Err(restarted.error.expect("error").reason),
    }
}

#[tokio::test]
async fn one_run_cannot_be_restarted_without_limit() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    fail_once(&state, "no").await;
    assert!(restart(&state, &id, "x0").await.is_ok());
    assert_eq!(restart(&state, &id, "x1").await, Err("already_restarted".to_owned()));
    fail_once(&state, "another").await;
    assert!(restart(&state, &id, "x2").await.is_ok());
    fail_once(&state, "no").await;
    // The newest restart failed as the run itself did.
    assert_eq!(restart(&state, &id, "x3").await, Err("repeated_failure".to_owned()));
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn restarts_of_siblings_count_together() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    fail_once(&state, "no").await;
    for number in 0..3 {
        assert!(restart(&state, &id, &format!("x{number}")).await.is_ok());
        fail_once(&state, &format!("failure {number}")).await;
    }
    assert_eq!(restart(&state, &id, "x3").await, Err("restart_limit".to_owned()));
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_completed_run_is_not_restarted() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &Flow::new("a").compute("a"), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.complete("a", json!(1)).await);
    runner.exit(RunnerOutcome::Exited).await;
    assert_eq!(restart(&state, &id, "x").await, Err("run_completed".to_owned()));
}

#[tokio::test]
async fn mounts_are_entered_left_and_entered_anew() {
    let mut place = Place::new();
    let state = place.serve().await;
    let child = Flow::named("child", "x")
        .compute("x")
        .compute("y")
        .edge("x", "y")
        .exit("ok", "y");
    let flow =
        Flow::new("m")
            .include("m", child)
            .compute("end")
            .switch("m.ok", "$.again", &[("true", "m"), ("false", "end")]);
    let id = start(&state, &flow, "k").await;
    let mut runner = Runner::launch(&state).await;
    let enter = || {
        vec![ScopeEnter {
            mount: "m".to_owned(),
            input: ValueRef::Inline(json!({"in": 1})),
        }]
    };
    let mut first = runner.node_start("m/x", 1);
    first.enters = enter();
    accepted(&runner.send(ChildBody::NodeStarted(first)).await);
    for visit in 1..=2 {
        accepted(&runner.step("m/x", json!(1), "m/y", visit).await);
        let attempt = runner.attempt.clone().expect("attempt");
        let again = visit == 1;
        let mut start = if again {
            runner.node_start("m/x", 2)
        } else {
            runner.node_start("end", 1)
        };
        if again {
            start.enters = enter();
        }
        let mut finish = runner.finish_body("m/y", json!(2), Next::Start(start));
        finish.attempt_id = attempt;
        finish.leaves = vec![ScopeLeave {
            mount: "m".to_owned(),
            exit: "ok".to_owned(),
            output: ValueRef::Inline(json!({"again": again})),
        }];
        accepted(&runner.send(ChildBody::NodeFinished(Box::new(finish))).await);
        if again {
            // In the second invocation nothing of the first one is visible.
            assert_eq!(runner.exit(RunnerOutcome::Crashed).await, AfterExit::Claimable);
            runner = Runner::launch(&state).await;
            let told = &runner.command.as_ref().expect("command").state;
            assert_eq!(
                told.position,
                Position::Node {
                    node_id: "m/x".to_owned(),
                    visit: 2,
                    overran: false,
                }
            );
            assert_eq!(told.results, vec![]);
            assert_eq!((told.scopes.len(), told.scopes[0].step_count), (1, 0));
            accepted(&runner.begin("m/x", 2).await);
        }
    }
    assert_eq!(runner.exit(RunnerOutcome::Crashed).await, AfterExit::Claimable);
    let mut runner = Runner::launch(&state).await;
    let told = &runner.command.as_ref().expect("command").state;
    assert_eq!(told.scopes, vec![]);
    let results: Vec<_> = told
        .results
        .iter()
        .map(|result| (result.node_id.as_str(), result.exit.as_deref()))
        .collect();
    assert_eq!(results, vec![("m", Some("ok"))]);
    accepted(&runner.begin("end", 1).await);
    accepted(&runner.complete("end", json!(null)).await);
    assert_eq!(facts(&state, &id).await, ("completed".into(), "done".into(), false, 5));
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn large_values_are_stored_once_and_route() {
    let mut place = Place::new();
    let state = place.serve().await;
    let flow = Flow::new("a")
        .compute("a")
        .compute("b")
        .switch("a", "$.to", &[("b", "b"), ("c", "a")]);
    start(&state, &flow, "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    let value = json!({"pad": "x".repeat(700_000), "to": "b"});
    let bytes = piw_protocol::canonical::write_value(&value);
    let content = piw_protocol::child::ContentRef {
        sha256: piw_protocol::canonical::sha256_hex(&bytes),
        bytes: bytes.len() as u64,
        media_type: "application/json".to_owned(),
    };
    let attempt = runner.attempt.clone().expect("attempt");
    let start = runner.node_start("b", 1);
    let mut finish = runner.finish_body("a", json!(null), Next::Start(start));
    finish.attempt_id = attempt;
    finish.output = ValueRef::Content(content.clone());
    let early = runner.send(ChildBody::NodeFinished(Box::new(finish.clone()))).await;
    assert!(rejected(&early).contains("is not stored"));
    use base64::Engine;
    for (number, part) in bytes.chunks(500_000).enumerate() {
        let body = ChildBody::ContentPut {
            content: content.clone(),
            offset: (number * 500_000) as u64,
            data: base64::engine::general_purpose::STANDARD.encode(part),
            complete: (number + 1) * 500_000 >= bytes.len(),
        };
        accepted(&runner.send(body).await);
    }
    accepted(&runner.send(ChildBody::NodeFinished(Box::new(finish))).await);
    runner.exit(RunnerOutcome::Crashed).await;
    let runner = Runner::launch(&state).await;
    let result = &runner.command.as_ref().expect("command").state.results[0];
    assert_eq!(result.output, ValueRef::Content(content.clone()));
    let chunk = state
        .get_content(&content.sha256, 524_288)
        .await
        .expect("read")
        .expect("stored");
    assert_eq!((chunk.data.as_slice(), chunk.complete), (&bytes[524_288..], true));
}
