//! What is recorded of runners that end badly: active time, overrun budgets, distinct failures, lapsed claims.

mod common;

use common::{Flow, Place, Runner, accepted, command, facts, start};
use piw_engine::failure::ParkReason;
use piw_protocol::child::{EffectReservation, Position, ReplyOutcome};
use piw_protocol::definition::EffectKind;
use piw_protocol::effect::EffectDecision;
use piw_protocol::ops::Operation;
use piw_state::query::run as runs;
use piw_state::{AfterExit, Resolution, RunnerOutcome, State};
use serde_json::json;

fn two() -> Flow {
    Flow::new("a").compute("a").compute("b").edge("a", "b")
}

/// Status and active time of every attempt of a database, oldest first.
async fn attempts(state: &State) -> Vec<(String, Option<i64>)> {
    state
        .read(|db| {
            let mut statement = db.prepare("SELECT status, active_ms FROM node_attempts ORDER BY id")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
        .expect("read")
}

async fn failure_class(state: &State, run: &str) -> Option<String> {
    let run = run.to_owned();
    let facts = state.read(move |db| Ok(runs::facts(db, &run)?)).await.expect("read");
    facts.expect("a run").failure_class
}

async fn events(state: &State, kind: &'static str) -> Vec<Option<String>> {
    state
        .read(move |db| {
            let mut statement = db.prepare("SELECT payload FROM events WHERE type = ?1 ORDER BY seq")?;
            let rows = statement.query_map([kind], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
        .expect("read")
}

#[tokio::test]
async fn only_active_time_counts_and_interrupted_attempts_keep_theirs() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    place.clock.advance(5_000);
    // Neither sleep of the machine nor a changed wall clock is activity.
    place.clock.suspend(3_600_000);
    place.clock.jump_wall(-7_200_000);
    state
        .pause_run(command(Operation::RunPause, "p"), id.clone(), None)
        .await
        .expect("pause");
    runner.exit(RunnerOutcome::Cancelled).await;
    assert_eq!(attempts(&state).await, [("interrupted".to_owned(), Some(5_000))]);
    place.clock.advance(60_000);
    let state = place.serve().await;
    state
        .resume_run(command(Operation::RunResume, "r"), id, None)
        .await
        .expect("resume");
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    place.clock.advance(8_000);
    state.renew_claims(vec![runner.claim.clone()]).await.expect("renew")[0]
        .1
        .expect("held");
    place.clock.advance(4_000);
    // The server dies: what it sampled last is known.
    let state = place.serve().await;
    state.recover().await.expect("recover");
    assert_eq!(attempts(&state).await[1], ("crashed".to_owned(), Some(8_000)));
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_node_that_overran_is_settled_by_the_next_generation_without_being_executed() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    assert_eq!(runner.exit(RunnerOutcome::Overran).await, AfterExit::Claimable);
    assert_eq!(attempts(&state).await[0].0, "overran");
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    let mut runner = Runner::launch(&state).await;
    let position = runner.command.as_ref().expect("command").state.position.clone();
    let expected = Position::Node {
        node_id: "a".to_owned(),
        visit: 1,
        overran: true,
    };
    assert_eq!(position, expected);
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.fail("a", "it timed out").await);
    assert_eq!(facts(&state, &id).await.0, "failed");
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_persons_word_on_an_effect_stands_above_the_budget_of_its_node() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &Flow::new("a").action("a", EffectKind::Manual), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    runner.reserve("a", 1, EffectKind::Manual).await;
    let parked = AfterExit::Parked {
        reason: ParkReason::EffectAmbiguous,
    };
    assert_eq!(runner.exit(RunnerOutcome::Overran).await, parked);
    assert_eq!(failure_class(&state, &id).await.as_deref(), Some("effectAmbiguous"));
    let revision = {
        let id = id.clone();
        let facts = state.read(move |db| Ok(runs::facts(db, &id)?)).await.expect("read");
        facts.expect("a run").revision
    };
    let resolution = Resolution {
        effect_id: runner.effect_key("a", 1),
        decision: EffectDecision::Retry,
        result: piw_protocol::child::ValueRef::null(),
        source: "test".to_owned(),
    };
    let done = state
        .resolve_effect(command(Operation::EffectResolve, "e"), id.clone(), revision, resolution)
        .await
        .expect("resolve");
    assert!(done.error.is_none(), "{done:?}");
    assert_eq!(failure_class(&state, &id).await, None);
    let mut runner = Runner::launch(&state).await;
    let position = runner.command.as_ref().expect("command").state.position.clone();
    assert!(
        matches!(position, Position::Node { overran: false, .. }),
        "{position:?}"
    );
    accepted(&runner.begin("a", 1).await);
    assert_eq!(
        runner.reserve("a", 1, EffectKind::Manual).await,
        EffectReservation::Apply { attempt: 2 }
    );
}

#[tokio::test]
async fn failures_of_runners_stay_distinct() {
    for (outcome, reason, class) in [
        (RunnerOutcome::Crashed, ParkReason::RunnerNoProgress, "runnerNoProgress"),
        (RunnerOutcome::TimedOut, ParkReason::RunnerTimedOut, "runnerTimedOut"),
        (
            RunnerOutcome::ProtocolRejected,
            ParkReason::ProtocolRejected,
            "protocolRejected",
        ),
    ] {
        let mut place = Place::new();
        let state = place.serve().await;
        let id = start(&state, &two(), "k").await;
        let runner = Runner::launch(&state).await;
        assert_eq!(runner.exit(outcome).await, AfterExit::Parked { reason });
        assert_eq!(failure_class(&state, &id).await.as_deref(), Some(class));
    }
    for (outcome, word) in [
        (RunnerOutcome::Crashed, "runnerCrashed"),
        (RunnerOutcome::Unavailable, "serverUnavailable"),
        (RunnerOutcome::ClaimLost, "claimLost"),
        (RunnerOutcome::Overran, "runnerTimedOut"),
        (RunnerOutcome::ProtocolRejected, "protocolRejected"),
    ] {
        let mut place = Place::new();
        let state = place.serve().await;
        start(&state, &two(), "k").await;
        let mut runner = Runner::launch(&state).await;
        accepted(&runner.begin("a", 1).await);
        assert_eq!(runner.exit(outcome).await, AfterExit::Claimable, "{outcome:?}");
        let exited = events(&state, "runner.exited").await.remove(0).expect("a payload");
        assert!(exited.contains(&format!("\"failure\":\"{word}\"")), "{exited}");
    }
}

#[tokio::test]
async fn a_resume_after_crashes_tries_once_more() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let crash = || async {
        let mut runner = Runner::launch(&state).await;
        accepted(&runner.begin("a", 1).await);
        runner.exit(RunnerOutcome::Crashed).await
    };
    let parked = AfterExit::Parked {
        reason: ParkReason::RunnerNoProgress,
    };
    assert_eq!(crash().await, AfterExit::Claimable);
    assert_eq!(crash().await, AfterExit::Claimable);
    assert_eq!(crash().await, parked);
    for key in ["r1", "r2"] {
        state
            .resume_run(command(Operation::RunResume, key), id.clone(), None)
            .await
            .expect("resume");
        assert_eq!(crash().await, parked, "one try a resume");
    }
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_command_takes_a_lapsed_claim_over_before_it_changes_the_run() {
    for cancel in [true, false] {
        let mut place = Place::new();
        let state = place.serve().await;
        let id = start(&state, &two(), "k").await;
        let mut runner = Runner::launch(&state).await;
        accepted(&runner.begin("a", 1).await);
        for _ in 0..2 {
            place.clock.advance(20_000);
            state.renew_server().await.expect("the server lives");
        }
        let controlled = if cancel {
            state
                .cancel_run(command(Operation::RunCancel, "c"), id.clone(), None)
                .await
        } else {
            state
                .pause_run(command(Operation::RunPause, "p"), id.clone(), None)
                .await
        };
        let controlled = controlled.expect("written");
        assert!(controlled.receipted.error.is_none(), "{controlled:?}");
        assert!(controlled.stop.is_some(), "its runner is to be ended");
        let taken = events(&state, "run.claim_lapsed").await;
        assert_eq!(taken, [Some("{\"generation\":2}".to_owned())]);
        let late = runner.step("a", json!(1), "b", 1).await;
        assert_eq!(late.outcome, ReplyOutcome::ClaimLost);
        assert_eq!(late.error.expect("a reason").message, "generationChanged");
        runner.exit(RunnerOutcome::Cancelled).await;
        assert_eq!(state.verify().await.expect("verify"), vec![]);
    }
}
