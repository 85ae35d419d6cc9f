//! Ambiguous effects and the person who settles them.

mod common;

use common::{Flow, Place, Runner, accepted, command, start};
use piw_protocol::child::{EffectReservation, ValueRef};
use piw_protocol::definition::EffectKind;
use piw_protocol::effect::{EffectDecision, EffectReceipt, EffectState};
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::Operation;
use piw_protocol::run::RunStatus;
use piw_state::query::effects::{self, EffectFilter, EffectRow, EffectScope};
use piw_state::{Receipted, Resolution, RunnerOutcome, State};
use serde_json::json;

fn manual() -> Flow {
    Flow::new("a")
        .action("a", EffectKind::Manual)
        .compute("b")
        .edge("a", "b")
}

/// A run whose effect was interrupted while it was being applied.
async fn interrupted(state: &State) -> (String, EffectRow) {
    let id = start(state, &manual(), "k").await;
    let mut runner = Runner::launch(state).await;
    accepted(&runner.begin("a", 1).await);
    assert_eq!(
        runner.reserve("a", 1, EffectKind::Manual).await,
        EffectReservation::Apply { attempt: 1 }
    );
    runner.exit(RunnerOutcome::Crashed).await;
    let effect = listed(state).await.remove(0);
    assert_eq!(
        (effect.state, effect.attempt, effect.unfinished),
        (EffectState::Ambiguous, 1, true)
    );
    (id, effect)
}

async fn listed(state: &State) -> Vec<EffectRow> {
    let filter = EffectFilter {
        scope: EffectScope::Every,
        ..EffectFilter::default()
    };
    let (effects, total) = state
        .read(move |reader| Ok(effects::page(reader, &filter, 0, 10)?))
        .await
        .expect("read");
    assert_eq!(effects.len() as u64, total);
    effects
}

async fn resolve(
    state: &State,
    key: &str,
    run: &str,
    revision: u64,
    effect: &str,
    decision: EffectDecision,
) -> Receipted<EffectReceipt> {
    let resolution = Resolution {
        effect_id: effect.to_owned(),
        decision,
        result: ValueRef::Inline(json!({"output": {"id": 7}})),
        source: "client test".to_owned(),
    };
    state
        .resolve_effect(
            command(Operation::EffectResolve, key),
            run.to_owned(),
            revision,
            resolution,
        )
        .await
        .expect("resolve")
}

#[tokio::test]
async fn a_confirmed_effect_is_adopted_by_the_next_runner() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (run, effect) = interrupted(&state).await;
    let done = resolve(&state, "c", &run, effect.revision, &effect.key, EffectDecision::Confirm).await;
    assert_eq!(done.outcome, Outcome::Accepted);
    let receipt = done.receipt.clone().expect("receipt");
    assert_eq!(
        (receipt.state, receipt.run.status),
        (EffectState::Applied, RunStatus::Running)
    );
    assert_eq!(done.revision, Some(receipt.run.run_revision));
    // A repeated delivery finds the stored receipt, whatever happened since.
    let again = resolve(&state, "c", &run, effect.revision, &effect.key, EffectDecision::Confirm).await;
    assert_eq!((again.outcome, again.receipt), (Outcome::Adopted, done.receipt));
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    let result = ValueRef::Inline(json!({"output": {"id": 7}}));
    assert_eq!(
        runner.reserve("a", 1, EffectKind::Manual).await,
        EffectReservation::Adopt { result }
    );
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_retried_effect_is_a_new_attempt() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (run, effect) = interrupted(&state).await;
    let done = resolve(&state, "r", &run, effect.revision, &effect.key, EffectDecision::Retry).await;
    assert_eq!(done.receipt.expect("receipt").state, EffectState::Pending);
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    // The decision survives the server.
    let state = place.serve().await;
    state.recover().await.expect("recover");
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    assert_eq!(
        runner.reserve("a", 1, EffectKind::Manual).await,
        EffectReservation::Apply { attempt: 2 }
    );
    runner.exit(RunnerOutcome::Crashed).await;
    let effect = listed(&state).await.remove(0);
    assert_eq!((effect.state, effect.attempt), (EffectState::Ambiguous, 2));
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn only_what_the_person_saw_is_decided() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (run, effect) = interrupted(&state).await;
    let stale = resolve(
        &state,
        "s",
        &run,
        effect.revision - 1,
        &effect.key,
        EffectDecision::Retry,
    )
    .await;
    assert_eq!(stale.outcome, Outcome::Conflict);
    assert_eq!(stale.error.expect("error").reason, "stale_revision");
    let unknown = resolve(&state, "u", &run, effect.revision, "piw-00", EffectDecision::Retry).await;
    assert_eq!(unknown.outcome, Outcome::NotFound);
    assert_eq!(listed(&state).await, vec![effect.clone()], "nothing changed");
    let done = resolve(&state, "d", &run, effect.revision, &effect.key, EffectDecision::Retry).await;
    let revision = done.revision.expect("revision");
    let late = resolve(&state, "l", &run, revision, &effect.key, EffectDecision::Confirm).await;
    assert_eq!(late.error.expect("error").reason, "effect_not_ambiguous");
}

#[tokio::test]
async fn an_effect_of_another_run_is_not_found() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (_, effect) = interrupted(&state).await;
    let other = start(&state, &manual(), "other").await;
    let run = other.clone();
    let facts = state
        .read(move |reader| Ok(piw_state::query::run::facts(reader, &run)?))
        .await;
    let revision = facts.expect("read").expect("a run").revision;
    let refused = resolve(&state, "o", &other, revision, &effect.key, EffectDecision::Confirm).await;
    assert_eq!(refused.error.expect("error").reason, "effect_not_found");
}

#[tokio::test]
async fn an_effect_of_an_ended_run_is_given_up_and_frees_the_restart() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (run, effect) = interrupted(&state).await;
    state
        .cancel_run(command(Operation::RunCancel, "x"), run.clone(), None)
        .await
        .expect("cancel");
    let effect = EffectRow {
        revision: listed(&state).await[0].revision,
        ..effect
    };
    assert!(!listed(&state).await[0].unfinished);
    let restart = |key: &'static str| {
        let (state, run) = (state.clone(), run.clone());
        async move {
            state
                .restart_run(
                    command(Operation::RunRestart, key),
                    run,
                    None,
                    manual().resolved(json!({"n": 1})),
                )
                .await
                .expect("restart")
        }
    };
    assert_eq!(restart("r1").await.error.expect("error").reason, "effect_unsettled");
    let done = resolve(&state, "g", &run, effect.revision, &effect.key, EffectDecision::Retry).await;
    let receipt = done.receipt.expect("receipt");
    assert_eq!(
        (receipt.state, receipt.run.status),
        (EffectState::Cancelled, RunStatus::Cancelled)
    );
    assert_eq!(restart("r2").await.outcome, Outcome::Accepted);
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_paused_run_stays_paused_after_the_review() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &manual(), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    runner.reserve("a", 1, EffectKind::Manual).await;
    state
        .pause_run(command(Operation::RunPause, "p"), id.clone(), None)
        .await
        .expect("pause");
    runner.exit(RunnerOutcome::Cancelled).await;
    let effect = listed(&state).await.remove(0);
    let done = resolve(&state, "c", &id, effect.revision, &effect.key, EffectDecision::Confirm).await;
    assert!(done.receipt.expect("receipt").run.paused);
    assert!(state.claim_next(None).await.expect("claim").is_none());
    state
        .resume_run(command(Operation::RunResume, "r"), id, None)
        .await
        .expect("resume");
    assert!(state.claim_next(None).await.expect("claim").is_some());
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}
