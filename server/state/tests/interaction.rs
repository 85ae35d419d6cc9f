//! Agent steps of runs that are bound to a session: asked, answered once, and settled by a later generation, whatever happens to
//! processes on the way.

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use common::{Flow, Place, Runner, accepted, command, facts, rejected, start_in};
use piw_protocol::child::{Position, Settlement, Validation, ValueRef};
use piw_protocol::envelope::Outcome;
use piw_protocol::interaction::InteractionReceipt;
use piw_protocol::ops::Operation;
use piw_protocol::run::{ErrorInfo, RunStatus, Update};
use piw_state::interaction::{NewSubmission, Reply, Submitted};
use piw_state::{RunnerOutcome, SessionFence, State};
use serde_json::{Value, json};

const SESSION: &str = "pi-1";

fn fence(session: &str) -> SessionFence {
    SessionFence::new(session.into(), 1, Arc::new(AtomicU64::new(1)))
}

fn flow() -> Flow {
    Flow::new("ask")
        .agent("ask", true)
        .compute("after")
        .edge("ask", "after")
}

fn submission(request: &str, key: &str, payload: Value) -> NewSubmission {
    NewSubmission {
        fence: fence(SESSION),
        request_id: request.to_owned(),
        key: key.to_owned(),
        payload: ValueRef::Inline(payload),
        reply: None,
    }
}

/// Starts a run, lets it ask and its runner leave. Returns run and request.
async fn asked(state: &State, flow: &Flow) -> (String, String) {
    let run = start_in(state, flow, SESSION, "start").await;
    let mut runner = Runner::launch(state).await;
    accepted(&runner.begin("ask", 1).await);
    let request = runner.attempt.clone().expect("an attempt");
    accepted(&runner.ask("ask").await);
    let _ = runner.exit(RunnerOutcome::Exited).await;
    assert_eq!(facts(state, &run).await, ("waiting".into(), "parked".into(), false, 0));
    (run, request)
}

async fn validating(state: &State, request: &str, key: &str, payload: Value) -> i64 {
    match state.submit(submission(request, key, payload)).await.expect("works") {
        Submitted::Validating { submission } => submission,
        other => panic!("{other:?}"),
    }
}

async fn refused(state: &State, new: NewSubmission) -> (Outcome, String) {
    match state.submit(new).await.expect("works") {
        Submitted::Refused(refused) => (refused.outcome, refused.error.reason),
        other => panic!("{other:?}"),
    }
}

fn yes(value: Value) -> Validation {
    Validation::Accepted(ValueRef::Inline(value))
}

fn no(why: &str) -> Validation {
    Validation::Rejected(ErrorInfo {
        code: None,
        message: why.to_owned(),
        stack: None,
    })
}

fn words(receipt: &InteractionReceipt) -> (&str, Option<&str>) {
    let why = receipt.error.as_ref().map(|error| error.message.as_str());
    (receipt.decision.as_str(), why)
}

/// Kind, reason and state of the session's messages in their order, and the text of the last.
async fn messages(state: &State) -> (Vec<(String, String)>, String) {
    let read = state.read(|db| {
        let mut statement = db.prepare(
            "SELECT reason, state, content_json ->> '$.content' FROM workflow_messages WHERE kind = 'step' ORDER BY session_order",
        )?;
        let rows = statement.query_map([], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
        })?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    });
    let rows = read.await.expect("read");
    let text = rows.last().map(|row| row.2.clone()).unwrap_or_default();
    (rows.into_iter().map(|row| (row.0, row.1)).collect(), text)
}

fn pair(reason: &str, state: &str) -> (String, String) {
    (reason.to_owned(), state.to_owned())
}

async fn sound(state: &State) {
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

/// Claims the run and finishes the settled attempt: its output is followed to `after`.
async fn settle(state: &State, request: &str, output: Value) {
    let mut runner = Runner::launch(state).await;
    let position = runner.command.clone().expect("command").state.position;
    let Position::Settled {
        attempt_id, settlement, ..
    } = position
    else {
        panic!("{position:?}")
    };
    assert_eq!(attempt_id, request);
    assert!(matches!(settlement, Settlement::Accepted { output: ValueRef::Inline(value), .. } if value == output));
    runner.attempt = Some(attempt_id);
    accepted(&runner.step("ask", output, "after", 1).await);
    accepted(&runner.complete("after", json!("done")).await);
    let _ = runner.exit(RunnerOutcome::Exited).await;
}

#[tokio::test]
async fn a_rejected_submission_leaves_the_request_and_an_accepted_one_ends_the_step() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (run, request) = asked(&state, &flow()).await;
    sound(&state).await;
    let (steps, text) = messages(&state).await;
    assert_eq!(steps, [pair("initial", "pending")]);
    assert!(
        text.contains("task\nCount the files.\n") && text.contains(&request),
        "{text}"
    );

    let first = validating(&state, &request, "call-1", json!({ "n": "three" })).await;
    let same = validating(&state, &request, "call-1", json!({ "n": "three" })).await;
    assert_eq!(first, same);
    let other = refused(&state, submission(&request, "call-2", json!({ "n": 4 }))).await;
    assert_eq!(other, (Outcome::Rejected, "validating".to_owned()));
    let told = state
        .validation(first, None)
        .await
        .expect("works")
        .expect("provisional");
    assert_eq!(
        (told.node_id.as_str(), told.attempt_id.as_str()),
        ("ask", request.as_str())
    );
    assert_eq!(told.submission, ValueRef::Inline(json!({ "n": "three" })));
    let receipt = state
        .decide_submission(first, no("n must be a number"))
        .await
        .expect("works");
    assert_eq!(words(&receipt), ("rejected", Some("n must be a number")));
    assert_eq!(facts(&state, &run).await.0, "waiting");
    sound(&state).await;

    let second = validating(&state, &request, "call-2", json!({ "n": 4 })).await;
    let receipt = state
        .decide_submission(second, yes(json!({ "n": 4.5 })))
        .await
        .expect("works");
    assert_eq!(words(&receipt), ("accepted", None));
    // A verdict that comes again changes nothing.
    assert_eq!(
        state.decide_submission(second, no("late")).await.expect("works"),
        receipt
    );
    assert_eq!(facts(&state, &run).await, ("running".into(), "parked".into(), true, 0));
    assert_eq!(messages(&state).await.0, [pair("initial", "cancelled")]);
    sound(&state).await;

    settle(&state, &request, json!({ "n": 4.5 })).await;
    assert_eq!(facts(&state, &run).await, ("completed".into(), "done".into(), false, 2));
    sound(&state).await;
    // Whoever lost the answer gets it still; nothing new is taken.
    let again = state
        .submit(submission(&request, "call-2", json!({ "n": 4 })))
        .await
        .expect("works");
    assert_eq!(
        again,
        Submitted::Decided {
            receipt,
            repeated: true
        }
    );
    assert_eq!(
        refused(&state, submission(&request, "call-2", json!({ "n": 5 }))).await,
        (Outcome::Conflict, "identity_reused".to_owned())
    );
    assert_eq!(
        refused(&state, submission(&request, "call-3", json!({ "n": 5 }))).await,
        (Outcome::Rejected, "request_settled".to_owned())
    );
}

#[tokio::test]
async fn an_accepted_submission_survives_runners_that_die_and_a_new_server() {
    let mut place = Place::new();
    let state = place.serve().await;
    let plain = Flow::new("ask")
        .agent("ask", false)
        .compute("after")
        .edge("ask", "after");
    let (run, request) = asked(&state, &plain).await;
    // Without a validate callback it is accepted at once.
    let submitted = state
        .submit(submission(&request, "call", json!([1])))
        .await
        .expect("works");
    assert!(
        matches!(submitted, Submitted::Decided { repeated: false, .. }),
        "{submitted:?}"
    );
    let runner = Runner::launch(&state).await;
    let _ = runner.exit(RunnerOutcome::Crashed).await;
    assert_eq!(
        facts(&state, &run).await,
        ("running".into(), "parked".into(), false, 0),
        "no progress"
    );
    sound(&state).await;
    let resumed = state
        .resume_run(command(Operation::RunResume, "resume"), run.clone(), None)
        .await;
    assert_eq!(resumed.expect("works").outcome, Outcome::Accepted);
    let _lost = Runner::launch(&state).await;
    state.close();
    drop(state);

    let state = place.serve().await;
    let recovered = state.recover().await.expect("recover");
    assert_eq!((recovered.claimable, recovered.parked), (1, 0));
    sound(&state).await;
    settle(&state, &request, json!([1])).await;
    assert_eq!(facts(&state, &run).await, ("completed".into(), "done".into(), false, 2));
    sound(&state).await;
}

#[tokio::test]
async fn a_provisional_submission_is_there_after_a_crash() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (_, request) = asked(&state, &flow()).await;
    let submission = validating(&state, &request, "call", json!({ "n": 1 })).await;
    state.close();
    let state = place.serve().await;
    state.recover().await.expect("recover");
    sound(&state).await;
    assert_eq!(state.provisional_submissions().await.expect("read"), [submission]);
    let receipt = state
        .decide_submission(submission, yes(json!({ "n": 1 })))
        .await
        .expect("works");
    assert_eq!(words(&receipt), ("accepted", None));
    assert_eq!(state.provisional_submissions().await.expect("read"), [0_i64; 0]);
    settle(&state, &request, json!({ "n": 1 })).await;
    sound(&state).await;
}

#[tokio::test]
async fn a_pause_holds_the_request_and_a_resume_presents_it_again() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (run, request) = asked(&state, &flow()).await;
    let paused = state
        .pause_run(command(Operation::RunPause, "pause"), run.clone(), None)
        .await;
    assert_eq!(paused.expect("works").receipted.outcome, Outcome::Accepted);
    assert_eq!(messages(&state).await.0, [pair("initial", "cancelled")]);
    assert_eq!(facts(&state, &run).await, ("waiting".into(), "parked".into(), false, 0));
    assert_eq!(
        refused(&state, submission(&request, "call", json!({ "n": 1 }))).await,
        (Outcome::Rejected, "run_paused".to_owned())
    );
    sound(&state).await;
    let resumed = state
        .resume_run(command(Operation::RunResume, "resume"), run.clone(), None)
        .await;
    assert_eq!(resumed.expect("works").outcome, Outcome::Accepted);
    let (steps, text) = messages(&state).await;
    assert_eq!(steps, [pair("initial", "cancelled"), pair("resumed", "pending")]);
    assert!(text.contains("Count the files."), "{text}");
    sound(&state).await;

    // A submission that was made before a pause counts, and the run goes on once it is resumed.
    let submission = validating(&state, &request, "call", json!({ "n": 1 })).await;
    let paused = state
        .pause_run(command(Operation::RunPause, "again"), run.clone(), None)
        .await;
    assert_eq!(paused.expect("works").receipted.outcome, Outcome::Accepted);
    let receipt = state
        .decide_submission(submission, yes(json!({ "n": 1 })))
        .await
        .expect("works");
    assert_eq!(words(&receipt), ("accepted", None));
    assert_eq!(facts(&state, &run).await, ("running".into(), "parked".into(), false, 0));
    sound(&state).await;
    let resumed = state
        .resume_run(command(Operation::RunResume, "on"), run.clone(), None)
        .await;
    assert_eq!(resumed.expect("works").outcome, Outcome::Accepted);
    settle(&state, &request, json!({ "n": 1 })).await;
    sound(&state).await;
}

#[tokio::test]
async fn a_cancelled_run_rejects_what_is_being_validated() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (run, request) = asked(&state, &flow()).await;
    let submission = validating(&state, &request, "call", json!({ "n": 1 })).await;
    let cancelled = state
        .cancel_run(command(Operation::RunCancel, "cancel"), run.clone(), None)
        .await;
    assert_eq!(cancelled.expect("works").receipted.outcome, Outcome::Accepted);
    let receipt = state
        .decide_submission(submission, yes(json!({ "n": 1 })))
        .await
        .expect("works");
    let why = "the request became cancelled while the submission was validated";
    assert_eq!(words(&receipt), ("rejected", Some(why)));
    assert_eq!(facts(&state, &run).await.0, "cancelled");
    assert_eq!(messages(&state).await.0, [pair("initial", "cancelled")]);
    sound(&state).await;
}

#[tokio::test]
async fn time_of_turns_alone_uses_the_budget_up() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (run, request) = asked(&state, &flow()).await;
    let budget = Duration::from_millis(piw_engine::limits::DEFAULT_TIMEOUT_MS);
    let advance = |time: Duration| place.clock.advance(i64::try_from(time.as_millis()).expect("small"));
    state.set_lease(budget * 20);
    state.renew_server().await.expect("works");
    advance(budget * 3);
    assert_eq!(
        state.expire_requests().await.expect("works"),
        None,
        "waiting costs nothing"
    );
    // A turn begins; its session goes after a third and a turn of it is counted again later.
    let count = |open: bool, clock: i64| {
        let db = rusqlite::Connection::open(place.dir.path().join("state.sqlite")).expect("opens");
        let boot = piw_state::Clock::boot_id(&*place.clock);
        db.execute(
            "INSERT INTO attempt_active_intervals (attempt, ordinal, boot_id, start_clock_ms, end_clock_ms, closed)
             SELECT q.attempt, (SELECT max(ordinal) + 1 FROM attempt_active_intervals WHERE attempt = q.attempt), ?1, ?2, ?2, ?3
               FROM interactive_requests q",
            (boot, clock, !open),
        )
        .expect("insert");
    };
    count(true, piw_state::Clock::steady_ms(&*place.clock));
    advance(budget / 3);
    let left = state.expire_requests().await.expect("works").expect("a deadline");
    assert!(left <= budget - budget / 3 && left > budget / 2, "{left:?}");
    state.hold_session_time(SESSION.to_owned()).await.expect("works");
    advance(budget);
    assert_eq!(state.expire_requests().await.expect("works"), None);
    assert_eq!(facts(&state, &run).await.0, "waiting");
    count(true, piw_state::Clock::steady_ms(&*place.clock));
    advance(budget);
    assert_eq!(state.expire_requests().await.expect("works"), None);
    assert_eq!(facts(&state, &run).await, ("running".into(), "parked".into(), true, 0));
    sound(&state).await;
    assert_eq!(
        refused(&state, submission(&request, "late", json!({ "n": 1 }))).await.1,
        "request_settled"
    );
    let runner = Runner::launch(&state).await;
    let position = runner.command.clone().expect("command").state.position;
    let Position::Settled {
        settlement: Settlement::TimedOut { error, active_ms },
        ..
    } = position
    else {
        panic!("{position:?}")
    };
    assert!(error.message.contains("900000 ms of model time"), "{error:?}");
    assert!(active_ms >= 900_000, "{active_ms}");
}

#[tokio::test]
async fn a_request_belongs_to_its_session_and_kind() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (_, request) = asked(&state, &flow()).await;
    let stranger = NewSubmission {
        fence: fence("pi-2"),
        ..submission(&request, "call", json!(1))
    };
    assert_eq!(refused(&state, stranger).await.1, "session_not_bound");
    let replaced = NewSubmission {
        fence: SessionFence::new(SESSION.into(), 1, Arc::new(AtomicU64::new(2))),
        ..submission(&request, "call", json!(1))
    };
    assert_eq!(refused(&state, replaced).await.1, "stale_coordinator");
    let reply = NewSubmission {
        reply: Some(Reply {
            entry_id: "e".to_owned(),
            chars: 1,
            blank: false,
        }),
        ..submission(&request, "call", json!("x"))
    };
    assert_eq!(refused(&state, reply).await.1, "request_kind");
    let nobody = refused(&state, submission("no-such", "call", json!(1))).await;
    assert_eq!(nobody, (Outcome::NotFound, "request_not_found".to_owned()));
}

#[tokio::test]
async fn a_visible_reply_is_checked_and_becomes_the_output() {
    let mut place = Place::new();
    let state = place.serve().await;
    let flow = Flow::new("ask").reply("ask", 5).compute("after").edge("ask", "after");
    let (_, request) = asked(&state, &flow).await;
    let reply = |key: &str, text: &str| NewSubmission {
        reply: Some(Reply {
            entry_id: format!("entry-{key}"),
            chars: text.chars().count() as u64,
            blank: text.trim().is_empty(),
        }),
        ..submission(&request, key, json!(text))
    };
    for (key, text, why) in [
        ("a", " \n", "the reply to node \"ask\" holds no visible text"),
        (
            "b",
            "äöüäöü",
            "the reply to node \"ask\" has 6 characters; at most 5 are allowed",
        ),
    ] {
        match state.submit(reply(key, text)).await.expect("works") {
            Submitted::Decided { receipt, .. } => assert_eq!(words(&receipt), ("rejected", Some(why))),
            other => panic!("{other:?}"),
        }
    }
    let submitted = state.submit(reply("c", "äöüäö")).await.expect("works");
    assert!(matches!(submitted, Submitted::Decided { receipt, .. } if receipt.decision == "accepted"));
    sound(&state).await;
    settle(&state, &request, json!("äöüäö")).await;
}

#[tokio::test]
async fn updates_are_published_once_while_the_request_waits() {
    let mut place = Place::new();
    let state = place.serve().await;
    let (run, request) = asked(&state, &flow()).await;
    let update = Update {
        update_type: "progress".to_owned(),
        key: "files".to_owned(),
        data: json!({ "status": "running", "completed": 3, "total": 9 }),
    };
    let publish = async |key: &str| {
        let identity = command(Operation::InteractionUpdate, key);
        let published = state.interaction_update(identity, fence(SESSION), request.clone(), update.clone());
        published.await.expect("works").outcome
    };
    assert_eq!(publish("u").await, Outcome::Accepted);
    assert_eq!(publish("u").await, Outcome::Adopted);
    let stored = state
        .read(|db| {
            Ok(
                db.query_row("SELECT count(*), max(seq) FROM workflow_updates", [], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
                })?,
            )
        })
        .await;
    assert_eq!(stored.expect("read"), (1, 1));
    let cancelled = state.cancel_run(command(Operation::RunCancel, "c"), run, None).await;
    assert_eq!(
        cancelled.expect("works").receipted.receipt.expect("receipt").status,
        RunStatus::Cancelled
    );
    assert_eq!(publish("v").await, Outcome::Rejected);
}

#[tokio::test]
async fn only_the_running_agent_step_of_a_bound_run_asks() {
    let mut place = Place::new();
    let state = place.serve().await;
    let _ = common::start(&state, &flow(), "headless").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("ask", 1).await);
    assert!(rejected(&runner.ask("ask").await).contains("is bound to no session"));
    let compute = Flow::named("other", "a").compute("a");
    let _ = start_in(&state, &compute, SESSION, "bound").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    assert_eq!(rejected(&runner.ask("a").await), "node \"a\" is no agent step");
}
