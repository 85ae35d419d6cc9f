//! Protected decisions: only a person, for exactly what was shown, or the declared policy in time.

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use common::{Flow, Place, Runner, accepted, command, facts, rejected, start, start_in};
use piw_engine::decision;
use piw_protocol::child::{Position, ValueRef};
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::Operation;
use piw_state::{Answer, PersonsAnswer, RunReceipted, RunnerOutcome, SessionFence, State};
use serde_json::{Value, json};

const SESSION: &str = "pi-1";

fn flow(after_ms: Option<u32>) -> Flow {
    Flow::new("ask")
        .human("ask", after_ms)
        .compute("after")
        .edge("ask", "after")
}

fn shown(flow: &Flow) -> Value {
    let declared = flow.declared("ask");
    let made = json!({ "title": "Publish?", "subject": 7, "presentation": { "summary": "All is green." } });
    decision::request(&declared, &made, declared.get("onTimeout")).expect("a request")
}

/// Lets a started run ask. Returns the decision's id and the request.
async fn asked(state: &State, flow: &Flow) -> (String, Value) {
    let mut runner = Runner::launch(state).await;
    accepted(&runner.begin("ask", 1).await);
    let id = runner.attempt.clone().expect("an attempt");
    let request = shown(flow);
    accepted(&runner.wait("ask", request.clone()).await);
    let _ = runner.exit(RunnerOutcome::Exited).await;
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    (id, request)
}

fn answer(id: &str, request: &Value, choice: &str, input: Option<&str>) -> PersonsAnswer {
    PersonsAnswer {
        request_id: id.to_owned(),
        digest: decision::digest(request),
        choice: choice.to_owned(),
        input: input.map(str::to_owned),
        fence: None,
        source: "terminal".to_owned(),
    }
}

async fn give(state: &State, key: &str, answer: PersonsAnswer) -> RunReceipted {
    let identity = command(Operation::DecisionAnswer, key);
    state.answer_decision(identity, answer).await.expect("works")
}

fn refusal(receipted: &RunReceipted) -> (Outcome, &str) {
    let error = receipted.error.as_ref().expect("refused");
    (receipted.outcome, error.reason.as_str())
}

/// What the continuation gets as the checkpoint's output.
async fn continued(state: &State) -> Value {
    let mut runner = Runner::launch(state).await;
    let told = runner.command.clone().expect("command").state;
    assert_eq!(
        told.position,
        Position::After {
            node_id: "ask".to_owned()
        }
    );
    let output = told.results.last().expect("a result").output.clone();
    accepted(&runner.begin("after", 1).await);
    accepted(&runner.complete("after", json!("done")).await);
    let _ = runner.exit(RunnerOutcome::Exited).await;
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    match output {
        ValueRef::Inline(output) => output,
        ValueRef::Content(content) => panic!("{content:?}"),
    }
}

#[tokio::test]
async fn a_person_answers_exactly_what_was_shown() {
    let mut place = Place::new();
    let state = place.serve().await;
    let flow = flow(None);
    let run = start_in(&state, &flow, SESSION, "start").await;
    let (id, request) = asked(&state, &flow).await;

    let plain = Answer {
        value: ValueRef::Inline(json!({ "choice": "yes" })),
        source: "client".to_owned(),
    };
    let by_anyone = state.answer_checkpoint(command(Operation::CheckpointAnswer, "any"), run.clone(), None, plain);
    assert_eq!(
        refusal(&by_anyone.await.expect("works")),
        (Outcome::Rejected, "protected_decision")
    );
    let mut other = request.clone();
    other["title"] = json!("Delete?");
    let to_another = give(&state, "k1", answer(&id, &other, "yes", None)).await;
    assert_eq!(refusal(&to_another), (Outcome::Conflict, "digest_changed"));
    let no_choice = give(&state, "k2", answer(&id, &request, "maybe", None)).await;
    assert_eq!(refusal(&no_choice), (Outcome::Rejected, "answer_refused"));
    let stranger = PersonsAnswer {
        fence: Some(SessionFence::new("pi-2".into(), 1, Arc::new(AtomicU64::new(1)))),
        ..answer(&id, &request, "yes", None)
    };
    assert_eq!(
        refusal(&give(&state, "k3", stranger).await),
        (Outcome::Rejected, "session_not_bound")
    );

    let won = give(&state, "k4", answer(&id, &request, "no", Some("not today"))).await;
    assert_eq!(won.outcome, Outcome::Accepted);
    let again = give(&state, "k4", answer(&id, &request, "no", Some("not today"))).await;
    assert_eq!((again.outcome, again.receipt), (Outcome::Adopted, won.receipt));
    let second = give(&state, "k5", answer(&id, &request, "yes", None)).await;
    assert_eq!(refusal(&second), (Outcome::Rejected, "request_settled"));
    assert_eq!(facts(&state, &run).await.0, "completed");
    assert_eq!(continued(&state).await, json!({ "choice": "no", "input": "not today" }));
    let messages = state
        .read(|db| {
            let mut statement = db.prepare("SELECT kind, state FROM workflow_messages WHERE kind = 'decision'")?;
            let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })
        .await;
    assert_eq!(
        messages.expect("read"),
        [("decision".to_owned(), "cancelled".to_owned())]
    );
}

#[tokio::test]
async fn the_declared_response_wins_after_the_deadline_and_a_pause_holds_it() {
    let mut place = Place::new();
    let state = place.serve().await;
    let flow = flow(Some(10_000));
    let run = start(&state, &flow, "start").await;
    let (id, request) = asked(&state, &flow).await;
    let left = state.expire_requests().await.expect("works");
    assert_eq!(left, Some(Duration::from_secs(10)));
    place.clock.advance(6_000);
    let paused = state
        .pause_run(command(Operation::RunPause, "p"), run.clone(), None)
        .await;
    assert_eq!(paused.expect("works").receipted.outcome, Outcome::Accepted);
    place.clock.advance(9_000);
    assert_eq!(state.expire_requests().await.expect("works"), None, "held while paused");
    let held = give(&state, "held", answer(&id, &request, "yes", None)).await;
    assert_eq!(refusal(&held), (Outcome::Rejected, "run_paused"));
    let resumed = state
        .resume_run(command(Operation::RunResume, "r"), run.clone(), None)
        .await;
    assert_eq!(resumed.expect("works").outcome, Outcome::Accepted);
    assert_eq!(
        state.expire_requests().await.expect("works"),
        Some(Duration::from_secs(4))
    );
    place.clock.advance(4_000);
    // A late answer loses before the policy is applied, too.
    let late = give(&state, "late", answer(&id, &request, "yes", None)).await;
    assert_eq!(refusal(&late), (Outcome::Rejected, "decision_late"));
    assert_eq!(state.expire_requests().await.expect("works"), None);
    assert_eq!(facts(&state, &run).await.0, "completed");
    assert_eq!(continued(&state).await, json!({ "choice": "no" }));
}

#[tokio::test]
async fn a_request_that_the_workflow_did_not_declare_is_refused() {
    let mut place = Place::new();
    let state = place.serve().await;
    let flow = flow(None);
    let run = start(&state, &flow, "start").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("ask", 1).await);
    let mut forged = shown(&flow);
    forged["choices"] = json!([{ "name": "yes" }]);
    let why = rejected(&runner.wait("ask", forged).await);
    assert!(
        why.contains("the choices of the request are not those of the workflow"),
        "{why}"
    );
    let cancelled = state.cancel_run(command(Operation::RunCancel, "c"), run, None).await;
    assert_eq!(cancelled.expect("works").receipted.outcome, Outcome::Accepted);
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}
