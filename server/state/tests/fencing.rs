//! Claims: who may write, until when, and what happens to whoever lost the right.

mod common;

use common::{Flow, Place, Runner, accepted, command, facts, identity_of, start};
use piw_protocol::child::{ReplyOutcome, ServerReply};
use piw_protocol::ops::Operation;
use piw_state::{AfterExit, Clock, RunnerOutcome, StateError, TakeEpochError};
use serde_json::json;

fn two() -> Flow {
    Flow::new("a").compute("a").compute("b").edge("a", "b")
}

fn lost(reply: &ServerReply) -> String {
    assert_eq!(reply.outcome, ReplyOutcome::ClaimLost, "{reply:?}");
    reply.error.as_ref().expect("a reason").message.clone()
}

#[tokio::test]
async fn an_expired_claim_cannot_renew_itself() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    for _ in 0..2 {
        place.clock.advance(20_000);
        state.renew_server().await.expect("the server lives");
    }
    assert_eq!(lost(&runner.step("a", json!(1), "b", 1).await), "expired");
    let renewed = state.renew_claims(vec![runner.claim.clone()]).await.expect("write");
    assert_eq!(renewed[0].1.expect_err("expired").to_string(), "expired");
    assert_eq!(facts(&state, &id).await, ("running".into(), "running".into(), false, 0));
    assert_eq!(runner.exit(RunnerOutcome::ClaimLost).await, AfterExit::Claimable);
    let mut second = Runner::launch(&state).await;
    accepted(&second.begin("a", 1).await);
    assert_eq!(lost(&runner.step("a", json!(1), "b", 1).await), "generationChanged");
}

#[tokio::test]
async fn every_accepted_write_renews_the_claim() {
    let mut place = Place::new();
    let state = place.serve().await;
    start(
        &state,
        &Flow::new("a").compute("a").compute("b").edge("a", "b").edge("b", "a"),
        "k",
    )
    .await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    for visit in 1..=3 {
        place.clock.advance(29_000);
        accepted(&runner.step("a", json!(1), "b", visit).await);
        place.clock.advance(29_000);
        accepted(&runner.step("b", json!(1), "a", visit + 1).await);
    }
}

#[tokio::test]
async fn sleep_and_clock_changes_cost_nothing_and_a_reboot_everything() {
    let mut place = Place::new();
    let state = place.serve().await;
    start(&state, &two(), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    place.clock.suspend(8 * 3_600_000);
    place.clock.jump_wall(-3_600_000);
    accepted(&runner.step("a", json!(1), "b", 1).await);
    place.clock.reboot();
    assert!(matches!(state.renew_server().await, Err(StateError::Fenced(_))));
}

#[tokio::test]
async fn each_loss_has_its_reason() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    let token = runner.claim.token.clone();
    runner.claim.token = token.altered();
    assert_eq!(lost(&runner.step("a", json!(1), "b", 1).await), "tokenChanged");
    runner.claim.token = token;
    let generation = runner.claim.generation;
    runner.claim.generation += 1;
    assert_eq!(lost(&runner.step("a", json!(1), "b", 1).await), "generationChanged");
    runner.claim.generation = generation;
    // The server took its epoch anew: claims of the older epoch are gone.
    state
        .take_server_epoch(identity_of(1), None)
        .await
        .expect("its own claim");
    assert_eq!(lost(&runner.step("a", json!(1), "b", 1).await), "ownerChanged");
    state
        .cancel_run(command(Operation::RunCancel, "c"), id, None)
        .await
        .expect("cancel");
    // The command took the lapsed claim over.
    assert_eq!(lost(&runner.step("a", json!(1), "b", 1).await), "generationChanged");
    let id = start(&state, &two(), "k2").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    state
        .cancel_run(command(Operation::RunCancel, "c2"), id, None)
        .await
        .expect("cancel");
    // Its own claim was released.
    assert_eq!(lost(&runner.step("a", json!(1), "b", 1).await), "missingAuthority");
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn one_live_server_and_a_fenced_old_one() {
    let mut place = Place::new();
    let old = place.serve().await;
    start(&old, &two(), "k").await;
    let mut runner = Runner::launch(&old).await;
    accepted(&runner.begin("a", 1).await);

    let new = place.open();
    let held = new
        .take_server_epoch(identity_of(2), None)
        .await
        .expect_err("the old one lives");
    let TakeEpochError::Held(held) = held else {
        panic!("{held}")
    };
    assert_eq!(
        (held.identity.server_id.as_str(), held.epoch, held.live),
        ("server-1", 1, true)
    );
    place.clock.advance(31_000);
    assert_eq!(new.take_server_epoch(identity_of(2), None).await.expect("expired"), 2);
    new.recover().await.expect("recover");

    // The old server wakes up late: nothing that it tries lands.
    let message = runner.node_start("b", 1);
    let message = runner.message(piw_protocol::child::ChildBody::NodeStarted(message));
    let error = old.apply_child(&runner.claim, message).await.expect_err("fenced");
    assert!(matches!(error, StateError::Fenced(_)), "{error}");
    assert!(matches!(old.renew_server().await, Err(StateError::Fenced(_))));
    assert!(matches!(old.claim_next(None).await, Err(StateError::Fenced(_))));
    assert!(matches!(old.release_server().await, Err(StateError::Fenced(_))));

    let mut second = Runner::launch(&new).await;
    assert_eq!(second.claim.generation, 2);
    accepted(&second.begin("a", 1).await);
    assert_eq!(new.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_server_that_is_provably_gone_is_replaced_at_once() {
    let mut place = Place::new();
    let first = place.serve().await;
    first.close();
    let second = place.serve().await;
    let recorded = second.recorded_server().await.expect("read").expect("recorded");
    assert_eq!((recorded.epoch, recorded.identity.server_id.as_str()), (2, "server-2"));
    second.release_server().await.expect("release");
    let recorded = second.recorded_server().await.expect("read").expect("recorded");
    assert!(!recorded.live);
    assert!(matches!(second.claim_next(None).await, Err(StateError::NoEpoch)));
}

#[tokio::test]
async fn nothing_is_written_without_an_epoch() {
    let place = Place::new();
    let state = place.open();
    let error = state
        .start_run(command(Operation::RunStart, "k"), two().new_run(json!(1)))
        .await
        .expect_err("no epoch");
    assert!(matches!(error, StateError::NoEpoch), "{error}");
    assert!(place.clock.steady_ms() > 0);
}

#[tokio::test]
async fn a_run_waits_until_its_registered_processes_are_gone() {
    let mut place = Place::new();
    let state = place.serve().await;
    let id = start(&state, &two(), "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    let register = piw_protocol::child::ChildBody::ProcessRegister {
        pid: 77,
        start_identity: "s77".to_owned(),
        label: "sleep".to_owned(),
    };
    accepted(&runner.send(register).await);
    state
        .pause_run(command(Operation::RunPause, "p"), id.clone(), None)
        .await
        .expect("pause");
    state
        .resume_run(command(Operation::RunResume, "r"), id, None)
        .await
        .expect("resume");
    let recorded = state.recorded_processes().await.expect("read");
    assert_eq!(
        recorded.iter().map(|process| process.pid).collect::<Vec<_>>(),
        vec![1001, 77]
    );
    assert!(state.claim_next(None).await.expect("claim").is_none());
    // Unregistering is valid after the claim was released.
    let gone = piw_protocol::child::ChildBody::ProcessUnregister {
        pid: 77,
        start_identity: "s77".to_owned(),
    };
    accepted(&runner.send(gone).await);
    assert!(state.claim_next(None).await.expect("claim").is_none());
    runner.exit(RunnerOutcome::Cancelled).await;
    assert!(state.claim_next(None).await.expect("claim").is_some());
}
