//! Workflow messages and turns: which message is current, what a branch report proves, how turns begin and end, and that all of it
//! commits with its cause.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Flow, Place, Runner, accepted, command, run_id};
use piw_protocol::child::{ChildBody, ValueRef};
use piw_protocol::envelope::Outcome;
use piw_protocol::interaction::{
    BranchReceipt, BranchReport, MessageKind, MessageStatus, StepReason, StopReason, TERMINAL_RETENTION_MS,
    TurnOwnership, TurnReceipt, TurnReport, TurnState,
};
use piw_protocol::ops::Operation;
use piw_state::query::StoredValue;
use piw_state::query::message::{self as messages, MessageRow, Rule, Selection};
use piw_state::{Answer, Clock, CommandIdentity, NewRun, Receipted, SessionFence, State, StateOptions};
use rusqlite::{Connection, params};
use serde_json::json;

const SESSION: &str = "pi-1";

/// A database with a session's coordinator under a test's control.
struct World {
    place: Place,
    state: State,
    sql: Connection,
    current: Arc<AtomicU64>,
    keys: AtomicU64,
}

impl World {
    async fn new() -> Self {
        let mut place = Place::new();
        let state = place.serve().await;
        let sql = Connection::open(place.dir.path().join("state.sqlite")).expect("opens");
        sql.execute_batch("PRAGMA busy_timeout=5000; PRAGMA foreign_keys=ON;")
            .expect("pragmas");
        Self {
            place,
            state,
            sql,
            current: Arc::default(),
            keys: AtomicU64::new(1),
        }
    }

    /// A new coordinator takes the session.
    fn take(&self, epoch: u64) -> SessionFence {
        self.current.store(epoch, Ordering::SeqCst);
        self.fence(epoch)
    }

    /// The fence of a coordinator, whether it still is one.
    fn fence(&self, epoch: u64) -> SessionFence {
        SessionFence::new(SESSION.into(), epoch, Arc::clone(&self.current))
    }

    fn identity(&self, operation: Operation) -> CommandIdentity {
        command(operation, &format!("k{}", self.keys.fetch_add(1, Ordering::Relaxed)))
    }

    async fn bound(&self, flow: &Flow) -> String {
        let new = NewRun {
            session_id: Some(SESSION.to_owned()),
            ..flow.new_run(json!(1))
        };
        let started = self.state.start_run(self.identity(Operation::RunStart), new).await;
        run_id(&started.expect("start"))
    }

    /// Runs a one-node workflow in the session to its end; the message of that is the session's newest.
    async fn completed(&self) -> MessageRow {
        self.bound(&one()).await;
        let mut runner = Runner::launch(&self.state).await;
        accepted(&runner.begin("a", 1).await);
        accepted(&runner.complete("a", json!({"answer": 42})).await);
        self.newest().await
    }

    async fn selection(&self, epoch: u64) -> Selection {
        let now = self.place.clock.wall_ms();
        self.state
            .read(move |db| Ok(messages::select(db, SESSION, epoch, now)?))
            .await
            .expect("selected")
    }

    /// Public id and rule of the current message.
    async fn current(&self, epoch: u64) -> Option<(String, Rule)> {
        let (id, rule) = self.selection(epoch).await.message?;
        Some((self.message(id).await.message_id, rule))
    }

    async fn message(&self, id: i64) -> MessageRow {
        self.state
            .read(move |db| Ok(messages::message(db, id)?))
            .await
            .expect("read")
            .expect("stored")
    }

    async fn all(&self) -> Vec<MessageRow> {
        let mut statement = self
            .sql
            .prepare("SELECT id FROM workflow_messages ORDER BY session_order")
            .expect("prepared");
        let ids: Vec<i64> = statement
            .query_map([], |row| row.get(0))
            .expect("query")
            .collect::<Result<_, _>>()
            .expect("rows");
        let mut all = Vec::new();
        for id in ids {
            all.push(self.message(id).await);
        }
        all
    }

    async fn newest(&self) -> MessageRow {
        self.all().await.pop().expect("a message")
    }

    async fn branch(&self, fence: &SessionFence, report: Seen<'_>) -> Receipted<BranchReceipt> {
        let report = BranchReport {
            target_session_id: SESSION.to_owned(),
            coordinator_epoch: fence.epoch(),
            workflow_message_id: report.message.map(str::to_owned),
            pi_session_entry_id: report.entry.map(str::to_owned),
            is_idle: report.idle,
            has_pending_messages: false,
        };
        let identity = self.identity(Operation::WorkflowMessageReportBranch);
        self.state
            .report_branch(fence.clone(), identity, report)
            .await
            .expect("the database works")
    }

    async fn seen(&self, fence: &SessionFence, report: Seen<'_>) -> Option<MessageStatus> {
        let reported = self.branch(fence, report).await;
        assert_eq!(reported.outcome, Outcome::Accepted, "{:?}", reported.error);
        reported.receipt.expect("a receipt").status
    }

    async fn turn(
        &self,
        fence: &SessionFence,
        message: &MessageRow,
        turn: &str,
        end: Option<StopReason>,
    ) -> Receipted<TurnReceipt> {
        let report = TurnReport {
            state: if end.is_some() {
                TurnState::Ended
            } else {
                TurnState::Started
            },
            workflow_message_id: message.message_id.clone(),
            workflow_turn_id: turn.to_owned(),
            run_id: message.run_id.clone(),
            target_session_id: SESSION.to_owned(),
            coordinator_epoch: fence.epoch(),
            stop_reason: end,
            response_session_entry_id: None,
        };
        let identity = self.identity(Operation::WorkflowTurnReport);
        self.state
            .report_turn(fence.clone(), identity, report)
            .await
            .expect("the database works")
    }

    async fn is_sound(&self) {
        let found = self.state.verify().await.expect("verified");
        assert!(found.is_empty(), "{found:?}");
    }

    /// A pending decision of a run and its message, which nothing here asks for otherwise.
    fn decision(&self, run_id: &str, order: i64) {
        self.sql
            .execute(
                "INSERT INTO human_decisions (decision_id, run, attempt, digest, policy_json, status, created_at)
                 SELECT 'decision', r.id, a.id, 'd', '{}', 'pending', 1 FROM runs r JOIN node_attempts a ON a.run = r.id
                  WHERE r.run_id = ?1 ORDER BY a.id DESC LIMIT 1",
                [run_id],
            )
            .expect("decision");
        self.insert(run_id, "decision", "decision", order, "pending", 1);
    }

    fn insert(&self, run_id: &str, kind: &str, source: &str, order: i64, state: &str, open: i64) {
        self.sql
            .execute(
                "INSERT INTO workflow_messages (message_id, run, target_session, kind, source_id, content_digest, content_json,
                   session_order, state, open, created_at, updated_at)
                 SELECT ?2 || '-' || ?4, id, ?7, ?2, ?3, 'd', '{}', ?4, ?5, ?6, 1, 1 FROM runs WHERE run_id = ?1",
                params![run_id, kind, source, order, state, open, SESSION],
            )
            .expect("message");
        self.sql
            .execute(
                "INSERT INTO pi_sessions (session_id, revision, last_order) VALUES (?1, 1, ?2)
                 ON CONFLICT (session_id) DO UPDATE SET revision = revision + 1, last_order = max(last_order, ?2)",
                params![SESSION, order],
            )
            .expect("session");
    }
}

/// One observation of the branch.
#[derive(Clone, Copy)]
struct Seen<'a> {
    message: Option<&'a str>,
    entry: Option<&'a str>,
    idle: bool,
}

fn present(message: &MessageRow, idle: bool) -> Seen<'_> {
    Seen {
        message: Some(&message.message_id),
        entry: Some("entry-1"),
        idle,
    }
}

fn absent(message: &MessageRow, idle: bool) -> Seen<'_> {
    Seen {
        message: Some(&message.message_id),
        entry: None,
        idle,
    }
}

const NOTHING: Seen<'static> = Seen {
    message: None,
    entry: None,
    idle: true,
};

fn one() -> Flow {
    Flow::new("a").compute("a")
}

fn text(row: &MessageRow) -> (String, serde_json::Value) {
    let StoredValue::Inline(value) = &row.content else {
        panic!("large: {row:?}")
    };
    (
        value["content"].as_str().expect("text").to_owned(),
        value["details"].clone(),
    )
}

fn ownership(reported: &Receipted<TurnReceipt>) -> TurnOwnership {
    reported
        .receipt
        .as_ref()
        .unwrap_or_else(|| panic!("refused: {reported:?}"))
        .ownership
}

fn reason<R: std::fmt::Debug>(reported: &Receipted<R>) -> (Outcome, &str) {
    let error = reported
        .error
        .as_ref()
        .unwrap_or_else(|| panic!("accepted: {reported:?}"));
    (reported.outcome, &error.reason)
}

// ------------------------------------------------------------------------------------------------------ messages and their causes

#[tokio::test]
async fn the_end_of_a_run_tells_its_session() {
    let world = World::new().await;
    let message = world.completed().await;
    assert_eq!(
        (message.kind, message.status),
        (MessageKind::Terminal, MessageStatus::Pending)
    );
    assert!(message.starts_turn);
    let (words, details) = text(&message);
    assert!(words.contains("\"flow\" (a run) completed"), "{words}");
    assert!(words.contains("{\"answer\":42}"), "{words}");
    assert!(
        !words.contains(&message.message_id),
        "the id is in the hidden details only"
    );
    assert_eq!(details["workflowMessageId"], json!(message.message_id));
    world.is_sound().await;
}

#[tokio::test]
async fn a_failed_run_tells_why_and_a_cancelled_one_starts_no_turn() {
    let world = World::new().await;
    world.bound(&one()).await;
    let mut runner = Runner::launch(&world.state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.fail("a", "no such tag").await);
    let failed = world.newest().await;
    assert!(text(&failed).0.contains("node \"a\" failed: no such tag"), "{failed:?}");
    assert!(failed.starts_turn);

    let run = world.bound(&one()).await;
    let cancelled = world
        .state
        .cancel_run(world.identity(Operation::RunCancel), run, None)
        .await
        .expect("cancelled");
    assert_eq!(cancelled.receipted.outcome, Outcome::Accepted);
    assert!(!world.newest().await.starts_turn);
}

#[tokio::test]
async fn a_run_without_a_session_tells_nobody() {
    let world = World::new().await;
    common::start(&world.state, &one(), "headless").await;
    let mut runner = Runner::launch(&world.state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.complete("a", json!(1)).await);
    assert!(world.all().await.is_empty());
}

#[tokio::test]
async fn a_chain_of_continuations_ends_with_one_message() {
    let world = World::new().await;
    let flow = Flow::new("ask").checkpoint("ask").compute("a").edge("ask", "a");
    let parent = world.bound(&flow).await;
    let mut runner = Runner::launch(&world.state).await;
    accepted(&runner.begin("ask", 1).await);
    accepted(&runner.wait("ask", json!({})).await);
    runner.exit(piw_state::RunnerOutcome::Exited).await;
    let answer = Answer {
        value: ValueRef::Inline(json!("yes")),
        source: "terminal".to_owned(),
    };
    let answered = world
        .state
        .answer_checkpoint(world.identity(Operation::CheckpointAnswer), parent, None, answer)
        .await
        .expect("answered");
    assert_eq!(answered.outcome, Outcome::Accepted);
    assert!(world.all().await.is_empty(), "the parent's end is its continuation");
    let mut runner = Runner::launch(&world.state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.complete("a", json!(1)).await);
    let all = world.all().await;
    assert_eq!(all.len(), 1);
    assert_eq!(
        Some(&all[0].run_id),
        answered.receipt.and_then(|receipt| receipt.new_run_id).as_ref()
    );
    world.is_sound().await;
}

#[tokio::test]
async fn a_notification_is_passed_on_once() {
    let world = World::new().await;
    world.bound(&one()).await;
    let mut runner = Runner::launch(&world.state).await;
    accepted(&runner.begin("a", 1).await);
    let notice = || ChildBody::Notification {
        kind: "progress".to_owned(),
        message: "half way".to_owned(),
        index: 0,
    };
    accepted(&runner.send(notice()).await);
    accepted(&runner.send(notice()).await);
    let all = world.all().await;
    assert_eq!(all.len(), 1, "a repeated execution notifies once");
    assert_eq!((all[0].kind, all[0].starts_turn), (MessageKind::Notification, false));
    assert_eq!(text(&all[0]).0, "half way");
    assert_eq!(text(&all[0]).1["nodeId"], json!("a"));

    // It may be delivered while its run goes on and after it ended.
    let fence = world.take(1);
    world.seen(&fence, absent(&all[0], true)).await;
    assert_eq!(world.current(1).await, Some((all[0].message_id.clone(), Rule::Deliver)));
    accepted(&runner.complete("a", json!(1)).await);
    let terminal = world.newest().await;
    world.seen(&fence, absent(&terminal, true)).await;
    assert_eq!(
        world.current(1).await,
        Some((all[0].message_id.clone(), Rule::Deliver)),
        "the older one goes first"
    );
    world.seen(&fence, present(&all[0], true)).await;
    assert_eq!(world.current(1).await, Some((terminal.message_id, Rule::Deliver)));
    world.is_sound().await;
}

#[tokio::test]
async fn missing_terminal_messages_are_made_at_start_and_only_once() {
    let mut world = World::new().await;
    let message = world.completed().await;
    world
        .sql
        .execute("DELETE FROM workflow_messages WHERE id = ?1", [message.id])
        .expect("deleted");
    world.state.close();
    world.state = world.place.serve().await;
    assert_eq!(world.state.present_ended_runs().await.expect("written"), 1);
    assert_eq!(world.state.present_ended_runs().await.expect("written"), 0);
    let made = world.newest().await;
    assert_eq!(made.run_id, message.run_id);
    assert!(
        made.order > message.order,
        "no place of a session's order is taken twice"
    );
}

// ------------------------------------------------------------------------------------------------------------------ the branch

#[tokio::test]
async fn a_message_is_looked_for_before_it_is_delivered() {
    let world = World::new().await;
    let message = world.completed().await;
    let fence = world.take(1);
    let unreported = Some((message.message_id.clone(), Rule::Unreported));
    assert_eq!(world.current(1).await, unreported);
    assert_eq!(
        world.seen(&fence, absent(&message, false)).await,
        Some(MessageStatus::Pending)
    );
    assert_eq!(
        world.current(1).await,
        unreported,
        "absence counts only when Pi is idle"
    );
    world.seen(&fence, absent(&message, true)).await;
    assert_eq!(
        world.current(1).await,
        Some((message.message_id.clone(), Rule::Deliver))
    );
    assert_eq!(
        world.current(2).await,
        unreported,
        "what one epoch saw is nothing to the next"
    );
    assert_eq!(
        world.seen(&fence, present(&message, false)).await,
        Some(MessageStatus::Sent)
    );
    assert_eq!(world.newest().await.pi_entry_id.as_deref(), Some("entry-1"));
    assert_eq!(
        world.current(1).await,
        Some((message.message_id.clone(), Rule::Retained))
    );
    world.is_sound().await;
}

#[tokio::test]
async fn queued_input_of_the_user_makes_an_absence_worthless() {
    let world = World::new().await;
    let message = world.completed().await;
    let fence = world.take(1);
    let report = BranchReport {
        target_session_id: SESSION.to_owned(),
        coordinator_epoch: 1,
        workflow_message_id: Some(message.message_id.clone()),
        pi_session_entry_id: None,
        is_idle: true,
        has_pending_messages: true,
    };
    let identity = world.identity(Operation::WorkflowMessageReportBranch);
    world.state.report_branch(fence, identity, report).await.expect("works");
    assert_eq!(world.current(1).await, Some((message.message_id, Rule::Unreported)));
}

#[tokio::test]
async fn evidence_wins_over_a_cancellation() {
    let world = World::new().await;
    let message = world.completed().await;
    let fence = world.take(1);
    let cleared = world
        .state
        .clear_terminal(fence.clone(), world.identity(Operation::SessionViewClearTerminal))
        .await
        .expect("cleared");
    assert_eq!(
        cleared.receipt.expect("a receipt").run_id.as_ref(),
        Some(&message.run_id)
    );
    assert_eq!(world.newest().await.status, MessageStatus::Cancelled);
    assert_eq!(world.current(1).await, None);
    assert_eq!(
        world.seen(&fence, present(&message, false)).await,
        Some(MessageStatus::Sent)
    );
    let turn = world.turn(&fence, &message, "t", None).await;
    assert_eq!(ownership(&turn), TurnOwnership::Active, "Pi works on it all the same");
    world.is_sound().await;
}

#[tokio::test]
async fn a_replaced_coordinator_changes_nothing() {
    let world = World::new().await;
    let message = world.completed().await;
    let old = world.take(1);
    let new = world.take(2);
    let identity = world.identity(Operation::WorkflowMessageReportBranch);
    let report = |epoch| BranchReport {
        target_session_id: SESSION.to_owned(),
        coordinator_epoch: epoch,
        workflow_message_id: Some(message.message_id.clone()),
        pi_session_entry_id: Some("entry".to_owned()),
        is_idle: true,
        has_pending_messages: false,
    };
    let refused = world
        .state
        .report_branch(old.clone(), identity.clone(), report(1))
        .await
        .expect("works");
    assert_eq!(reason(&refused), (Outcome::Rejected, "stale_coordinator"));
    assert_eq!(world.newest().await.status, MessageStatus::Pending);
    let refused = world.turn(&old, &message, "t", None).await;
    assert_eq!(reason(&refused), (Outcome::Rejected, "stale_coordinator"));
    let refused = world
        .state
        .clear_terminal(old, world.identity(Operation::SessionViewClearTerminal))
        .await
        .expect("works");
    assert_eq!(reason(&refused), (Outcome::Rejected, "stale_coordinator"));
    // No receipt remembers the refusal: the same command is right in the epoch that holds.
    let reported = world
        .state
        .report_branch(new, identity, report(2))
        .await
        .expect("works");
    assert_eq!(reported.outcome, Outcome::Accepted);
    assert_eq!(world.newest().await.status, MessageStatus::Sent);
}

#[tokio::test]
async fn reports_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let fence = world.take(1);
    let unknown = Seen {
        message: Some("nobody's"),
        ..NOTHING
    };
    assert_eq!(
        reason(&world.branch(&fence, unknown).await),
        (Outcome::NotFound, "message_not_found")
    );
    let entry_of_nothing = Seen {
        entry: Some("entry"),
        ..NOTHING
    };
    assert_eq!(
        reason(&world.branch(&fence, entry_of_nothing).await),
        (Outcome::Rejected, "invalid_request")
    );
    let message = world.completed().await;
    world.seen(&fence, present(&message, false)).await;
    let other = MessageRow {
        run_id: "another".to_owned(),
        ..message.clone()
    };
    assert_eq!(
        reason(&world.turn(&fence, &other, "t", None).await),
        (Outcome::Rejected, "message_mismatch")
    );
    assert_eq!(
        reason(&world.turn(&fence, &message, "t", Some(StopReason::Lost)).await),
        (Outcome::Rejected, "invalid_request")
    );
}

// ----------------------------------------------------------------------------------------------------------------------- decisions

/// A run that executes, a decision of it that was delivered in epoch 1, and its runner.
async fn decided_on(world: &World) -> (String, MessageRow, SessionFence, Runner) {
    let run = world.bound(&one()).await;
    let mut runner = Runner::launch(&world.state).await;
    accepted(&runner.begin("a", 1).await);
    world.decision(&run, 1);
    let message = world.newest().await;
    let fence = world.take(1);
    world.seen(&fence, absent(&message, true)).await;
    assert_eq!(
        world.current(1).await,
        Some((message.message_id.clone(), Rule::Deliver))
    );
    world.seen(&fence, present(&message, true)).await;
    assert_eq!(world.current(1).await, None, "a delivered decision asks nothing of Pi");
    (run, message, fence, runner)
}

#[tokio::test]
async fn a_decision_that_left_the_branch_is_delivered_again() {
    let world = World::new().await;
    let (_, message, _, _runner) = decided_on(&world).await;
    let fence = world.take(2);
    assert_eq!(
        world.current(2).await,
        Some((message.message_id.clone(), Rule::Unreported))
    );
    for _ in 0..3 {
        assert_eq!(
            world.seen(&fence, absent(&message, true)).await,
            Some(MessageStatus::Pending)
        );
        assert_eq!(
            world.current(2).await,
            Some((message.message_id.clone(), Rule::Deliver))
        );
    }
    assert_eq!(world.all().await.len(), 1, "repeating a report creates nothing");
    assert_eq!(world.newest().await.pi_entry_id, None);
}

#[tokio::test]
async fn a_report_on_nothing_covers_every_source_but_asks_for_what_was_seen() {
    let world = World::new().await;
    let (run, message, fence, _runner) = decided_on(&world).await;
    world.seen(&fence, NOTHING).await;
    assert_eq!(
        world.current(1).await,
        Some((message.message_id.clone(), Rule::Unreported)),
        "this epoch saw it: it is asked for, not sent again"
    );
    world.seen(&fence, present(&message, true)).await;

    let fence = world.take(2);
    world
        .sql
        .execute("UPDATE runs SET paused_at = 1 WHERE run_id = ?1", [&run])
        .expect("paused");
    world.seen(&fence, NOTHING).await;
    assert_eq!(
        world.newest().await.status,
        MessageStatus::Sent,
        "the branch may hold what a paused run waits for"
    );
    world
        .sql
        .execute("UPDATE runs SET paused_at = NULL WHERE run_id = ?1", [&run])
        .expect("resumed");
    let busy = Seen { idle: false, ..NOTHING };
    world.seen(&fence, busy).await;
    assert_eq!(
        world.newest().await.status,
        MessageStatus::Sent,
        "a busy Pi proves nothing"
    );
    world.seen(&fence, NOTHING).await;
    assert_eq!(world.newest().await.status, MessageStatus::Pending);
    world.seen(&fence, NOTHING).await;
    assert_eq!(world.all().await.len(), 1);
}

#[tokio::test]
async fn the_end_of_a_run_cancels_what_it_asked_in_the_same_transaction() {
    let world = World::new().await;
    let run = world.bound(&one()).await;
    let mut runner = Runner::launch(&world.state).await;
    accepted(&runner.begin("a", 1).await);
    world.decision(&run, 1);
    let fence = world.take(1);
    let decision = world.newest().await;
    world.seen(&fence, absent(&decision, true)).await;
    world
        .sql
        .execute(
            "INSERT INTO workflow_turns (turn_id, message, run, session_id, coordinator_epoch, status, started_at)
             SELECT 't', id, run, target_session, 1, 'open', 1 FROM workflow_messages",
            [],
        )
        .expect("turn");
    world
        .state
        .cancel_run(world.identity(Operation::RunCancel), run, None)
        .await
        .expect("cancelled");
    let all = world.all().await;
    assert_eq!(all[0].status, MessageStatus::Cancelled);
    let turn = world
        .state
        .read(|db| Ok(messages::turn(db, "t")?))
        .await
        .expect("read")
        .expect("stored");
    assert_eq!(turn.stop_reason, Some(StopReason::Lost));
    // An earlier message that is over does not block what is to be delivered.
    world.seen(&fence, absent(&all[1], true)).await;
    assert_eq!(world.current(1).await, Some((all[1].message_id.clone(), Rule::Deliver)));
}

// --------------------------------------------------------------------------------------------------------------------------- turns

#[tokio::test]
async fn a_turn_is_reported_after_its_message_and_adopted_when_repeated() {
    let world = World::new().await;
    let message = world.completed().await;
    let fence = world.take(1);
    let early = world.turn(&fence, &message, "t1", None).await;
    assert_eq!(reason(&early), (Outcome::Rejected, "message_not_sent"));
    world.seen(&fence, absent(&message, true)).await;
    world.seen(&fence, present(&message, false)).await;

    let started = world.turn(&fence, &message, "t1", None).await;
    assert_eq!(
        (started.outcome, ownership(&started)),
        (Outcome::Accepted, TurnOwnership::Active)
    );
    assert_eq!(
        world.current(1).await,
        Some((message.message_id.clone(), Rule::OpenTurn))
    );
    let again = world.turn(&fence, &message, "t1", None).await;
    assert_eq!(
        (again.outcome, ownership(&again)),
        (Outcome::Adopted, TurnOwnership::Active)
    );
    let other = world.turn(&fence, &message, "t2", None).await;
    assert_eq!(reason(&other), (Outcome::Conflict, "turn_open"));

    let ended = world.turn(&fence, &message, "t1", Some(StopReason::Completed)).await;
    assert_eq!(
        (ended.outcome, ownership(&ended)),
        (Outcome::Accepted, TurnOwnership::Settled)
    );
    let again = world.turn(&fence, &message, "t1", Some(StopReason::Completed)).await;
    assert_eq!(
        (again.outcome, ownership(&again)),
        (Outcome::Adopted, TurnOwnership::Settled)
    );
    let conflicting = world.turn(&fence, &message, "t1", Some(StopReason::Error)).await;
    assert_eq!(reason(&conflicting), (Outcome::Conflict, "turn_conflict"));
    let late = world.turn(&fence, &message, "t1", None).await;
    assert_eq!(
        ownership(&late),
        TurnOwnership::Settled,
        "an old start cannot open it again"
    );
    let manual = world.turn(&fence, &message, "t3", None).await;
    assert_eq!(
        ownership(&manual),
        TurnOwnership::Absent,
        "a terminal message opens one turn"
    );
    assert_eq!(world.current(1).await, None);
    world.is_sound().await;
}

#[tokio::test]
async fn an_end_whose_start_was_never_reported_counts_as_both() {
    let world = World::new().await;
    let message = world.completed().await;
    let fence = world.take(1);
    world.seen(&fence, present(&message, false)).await;
    let ended = world.turn(&fence, &message, "t", Some(StopReason::Error)).await;
    let receipt = ended.receipt.expect("a receipt");
    assert_eq!(receipt.ownership, TurnOwnership::Settled);
    assert_eq!(receipt.turn.expect("the turn").stop_reason, Some(StopReason::Error));
}

#[tokio::test]
async fn a_turn_is_lost_only_by_an_idle_report_of_a_later_epoch() {
    let world = World::new().await;
    let message = world.completed().await;
    let fence = world.take(1);
    world.seen(&fence, present(&message, false)).await;
    world.turn(&fence, &message, "t", None).await;
    world.seen(&fence, present(&message, true)).await;
    world.place.clock.jump_wall(100 * 24 * 3_600_000);
    assert_eq!(
        world.current(1).await,
        Some((message.message_id.clone(), Rule::OpenTurn)),
        "neither time nor its own epoch loses it"
    );

    let fence = world.take(2);
    world.seen(&fence, present(&message, false)).await;
    let adopted = world.turn(&fence, &message, "t", None).await;
    assert_eq!(
        ownership(&adopted),
        TurnOwnership::Active,
        "a busy session goes on with it"
    );
    world.seen(&fence, present(&message, true)).await;
    assert_eq!(
        world.current(2).await,
        Some((message.message_id.clone(), Rule::OpenTurn))
    );

    let fence = world.take(3);
    world.seen(&fence, present(&message, true)).await;
    let late = world.turn(&fence, &message, "t", Some(StopReason::Completed)).await;
    let turn = late.receipt.expect("adopted").turn.expect("the turn");
    assert_eq!(turn.stop_reason, Some(StopReason::Lost), "what was decided stands");
    assert_eq!(world.current(3).await, None);
    world.is_sound().await;
}

#[tokio::test]
async fn what_was_sent_before_a_crash_is_adopted_and_its_turn_is_lost() {
    let world = World::new().await;
    let message = world.completed().await;
    let fence = world.take(1);
    world.seen(&fence, absent(&message, true)).await;
    // Pi sends, and dies before it reports.
    let fence = world.take(2);
    assert_eq!(
        world.current(2).await,
        Some((message.message_id.clone(), Rule::Unreported))
    );
    assert_eq!(
        world.seen(&fence, present(&message, true)).await,
        Some(MessageStatus::Sent)
    );
    assert_eq!(
        world.current(2).await,
        None,
        "nothing is sent twice, and nobody waits for its turn"
    );
    assert_eq!(world.all().await.len(), 1);
    world.is_sound().await;
}

#[tokio::test]
async fn an_idle_pi_right_after_a_delivery_has_lost_nothing() {
    let world = World::new().await;
    let message = world.completed().await;
    let fence = world.take(1);
    world.seen(&fence, absent(&message, true)).await;
    world.seen(&fence, present(&message, true)).await;
    assert_eq!(
        world.current(1).await,
        Some((message.message_id.clone(), Rule::Retained))
    );
    assert_eq!(
        ownership(&world.turn(&fence, &message, "t", None).await),
        TurnOwnership::Active
    );
}

// --------------------------------------------------------------------------------------------------------------------------- steps

/// A run that asks the session's model. Returns it and the step's first message.
async fn asked(world: &World) -> (String, MessageRow) {
    let flow = Flow::new("ask")
        .agent("ask", true)
        .compute("after")
        .edge("ask", "after");
    let run = world.bound(&flow).await;
    let mut runner = Runner::launch(&world.state).await;
    accepted(&runner.begin("ask", 1).await);
    accepted(&runner.ask("ask").await);
    runner.exit(piw_state::RunnerOutcome::Exited).await;
    (run, world.newest().await)
}

/// Delivers a message in an epoch.
async fn delivered(world: &World, fence: &SessionFence, message: &MessageRow) {
    world.seen(fence, absent(message, true)).await;
    assert_eq!(
        world.current(fence.epoch()).await,
        Some((message.message_id.clone(), Rule::Deliver))
    );
    world.seen(fence, present(message, false)).await;
}

/// Reason and state of every step message.
async fn steps(world: &World) -> Vec<(&'static str, &'static str)> {
    let all = world.all().await.into_iter();
    all.filter_map(|row| Some((row.reason?.name(), row.status.name())))
        .collect()
}

async fn paused(world: &World, run: &str) -> bool {
    world
        .sql
        .query_row(
            "SELECT paused_at IS NOT NULL FROM runs WHERE run_id = ?1",
            [run],
            |row| row.get(0),
        )
        .expect("the run")
}

#[tokio::test]
async fn a_step_is_reminded_of_twice_and_then_fails() {
    let world = World::new().await;
    let (run, first) = asked(&world).await;
    assert_eq!(
        (first.kind, first.reason),
        (MessageKind::Step, Some(StepReason::Initial))
    );
    let fence = world.take(1);
    let mut message = first;
    for (turn, stop) in [
        ("t1", StopReason::Completed),
        ("t2", StopReason::Error),
        ("t3", StopReason::Completed),
    ] {
        delivered(&world, &fence, &message).await;
        assert_eq!(
            ownership(&world.turn(&fence, &message, turn, None).await),
            TurnOwnership::Active
        );
        assert_eq!(
            ownership(&world.turn(&fence, &message, turn, Some(stop)).await),
            TurnOwnership::Settled
        );
        // Saying it again counts nothing.
        assert_eq!(
            ownership(&world.turn(&fence, &message, turn, Some(stop)).await),
            TurnOwnership::Settled
        );
        message = world.newest().await;
        world.is_sound().await;
    }
    assert_eq!(
        steps(&world).await,
        [("initial", "sent"), ("reminder", "sent"), ("reminder", "sent")]
    );
    assert_eq!(
        common::facts(&world.state, &run).await.0,
        "running",
        "the next generation settles the failure"
    );
    assert_eq!(world.current(1).await, None);
}

#[tokio::test]
async fn an_aborted_turn_pauses_the_run_and_counts_nothing() {
    let world = World::new().await;
    let (run, message) = asked(&world).await;
    let fence = world.take(1);
    delivered(&world, &fence, &message).await;
    world.turn(&fence, &message, "t1", None).await;
    world.turn(&fence, &message, "t1", Some(StopReason::Aborted)).await;
    assert!(paused(&world, &run).await);
    assert_eq!(steps(&world).await, [("initial", "sent")]);
    assert_eq!(world.current(1).await, None);
    world.seen(&fence, NOTHING).await;
    let fence = world.take(2);
    world.seen(&fence, NOTHING).await;
    assert_eq!(
        steps(&world).await,
        [("initial", "sent")],
        "a paused run is not presented anew"
    );
    assert_eq!(
        ownership(&world.turn(&fence, &message, "manual", None).await),
        TurnOwnership::Absent,
        "nothing is attributed to a paused run"
    );
    let unproductive: i64 = world
        .sql
        .query_row("SELECT unproductive_turn_ends FROM interactive_requests", [], |row| {
            row.get(0)
        })
        .expect("the request");
    assert_eq!(unproductive, 0);

    let resumed = world
        .state
        .resume_run(world.identity(Operation::RunResume), run, None)
        .await
        .expect("resumed");
    assert_eq!(resumed.outcome, Outcome::Accepted);
    assert_eq!(steps(&world).await, [("initial", "sent"), ("resumed", "pending")]);
    let message = world.newest().await;
    delivered(&world, &fence, &message).await;
    assert_eq!(
        ownership(&world.turn(&fence, &message, "t2", None).await),
        TurnOwnership::Active
    );
    world.is_sound().await;
}

#[tokio::test]
async fn a_step_that_left_the_branch_is_resumed_once_and_then_sent_again() {
    let world = World::new().await;
    let (_, first) = asked(&world).await;
    let fence = world.take(1);
    delivered(&world, &fence, &first).await;
    world.turn(&fence, &first, "t1", None).await;
    let busy = world.branch(&fence, absent(&first, true)).await;
    assert_eq!(busy.outcome, Outcome::Accepted);
    assert_eq!(
        steps(&world).await,
        [("initial", "sent")],
        "its turn is open in this epoch"
    );

    let fence = world.take(2);
    assert_eq!(world.current(2).await, Some((first.message_id.clone(), Rule::OpenTurn)));
    // The idle report loses the turn, which reminds; the reminder then speaks for the step.
    for _ in 0..3 {
        world.seen(&fence, absent(&first, true)).await;
    }
    assert_eq!(steps(&world).await, [("initial", "sent"), ("reminder", "pending")]);
    let reminder = world.newest().await;
    delivered(&world, &fence, &reminder).await;

    let fence = world.take(3);
    assert_eq!(
        world.current(3).await,
        Some((reminder.message_id.clone(), Rule::Unreported))
    );
    for _ in 0..3 {
        world.seen(&fence, absent(&reminder, true)).await;
    }
    let expected = [("initial", "sent"), ("reminder", "sent"), ("resumed", "pending")];
    assert_eq!(steps(&world).await, expected);
    let resumed = world.newest().await;
    delivered(&world, &fence, &resumed).await;

    let fence = world.take(4);
    for _ in 0..3 {
        world.seen(&fence, absent(&resumed, true)).await;
    }
    assert_eq!(
        steps(&world).await,
        expected,
        "a resumed message that leaves again is sent again"
    );
    assert_eq!(
        world.current(4).await,
        Some((resumed.message_id.clone(), Rule::Deliver))
    );
    world.is_sound().await;
}

#[tokio::test]
async fn a_step_that_was_sent_before_a_crash_is_reminded_of_and_not_sent_again() {
    let world = World::new().await;
    let (_, message) = asked(&world).await;
    let fence = world.take(1);
    world.seen(&fence, absent(&message, true)).await;
    let fence = world.take(2);
    world.seen(&fence, present(&message, true)).await;
    assert_eq!(steps(&world).await, [("initial", "sent"), ("reminder", "pending")]);
    world.seen(&fence, present(&message, true)).await;
    assert_eq!(steps(&world).await.len(), 2, "its lost turn counts once");
    world.is_sound().await;
}

#[tokio::test]
async fn a_busy_session_goes_on_with_its_step_after_a_reconnect() {
    let world = World::new().await;
    let (_, message) = asked(&world).await;
    let fence = world.take(1);
    delivered(&world, &fence, &message).await;
    world.turn(&fence, &message, "t1", None).await;
    let fence = world.take(2);
    world.seen(&fence, present(&message, false)).await;
    assert_eq!(
        ownership(&world.turn(&fence, &message, "t1", None).await),
        TurnOwnership::Active
    );
    world.turn(&fence, &message, "t1", Some(StopReason::Completed)).await;
    assert_eq!(steps(&world).await, [("initial", "sent"), ("reminder", "pending")]);
}

#[tokio::test]
async fn a_delivered_step_of_a_cancelled_run_is_stopped_and_one_that_pi_never_got_is_not() {
    let world = World::new().await;
    let (run, _) = asked(&world).await;
    let cancel = |run: String| world.state.cancel_run(world.identity(Operation::RunCancel), run, None);
    cancel(run).await.expect("cancelled");
    assert_eq!(steps(&world).await, [("initial", "cancelled")]);
    let fence = world.take(1);
    let terminal = world.newest().await;
    assert_eq!(
        world.current(1).await,
        Some((terminal.message_id.clone(), Rule::Unreported))
    );
    world.seen(&fence, absent(&terminal, true)).await;
    assert_eq!(
        world.current(1).await,
        Some((terminal.message_id.clone(), Rule::Deliver))
    );
    world.seen(&fence, present(&terminal, true)).await;
    assert_eq!(world.current(1).await, None);

    let (run, message) = asked(&world).await;
    delivered(&world, &fence, &message).await;
    cancel(run).await.expect("cancelled");
    let terminal = world.newest().await;
    world.seen(&fence, absent(&terminal, true)).await;
    world.seen(&fence, present(&terminal, false)).await;
    assert_eq!(world.current(1).await, Some((message.message_id.clone(), Rule::Stop)));
    assert!(world.message(message.id).await.stopped);
    let fence = world.take(2);
    assert_eq!(
        world.current(2).await,
        Some((message.message_id.clone(), Rule::Unreported))
    );
    world.seen(&fence, present(&message, false)).await;
    assert_eq!(world.current(2).await, Some((message.message_id.clone(), Rule::Stop)));
    let turn = world
        .turn(&fence, &message, "t", None)
        .await
        .receipt
        .expect("a receipt");
    assert_eq!(turn.ownership, TurnOwnership::Settled, "the turn is nobody's");
    assert_eq!(world.current(2).await, None);
    world.is_sound().await;
}

#[tokio::test]
async fn a_manual_turn_supersedes_the_reminder_that_waits() {
    let world = World::new().await;
    let (_, message) = asked(&world).await;
    let fence = world.take(1);
    delivered(&world, &fence, &message).await;
    world.turn(&fence, &message, "t1", None).await;
    world.turn(&fence, &message, "t1", Some(StopReason::Completed)).await;
    assert_eq!(steps(&world).await, [("initial", "sent"), ("reminder", "pending")]);
    assert_eq!(
        ownership(&world.turn(&fence, &message, "manual", None).await),
        TurnOwnership::Active
    );
    assert_eq!(steps(&world).await, [("initial", "sent"), ("reminder", "cancelled")]);
    world.is_sound().await;
}

#[tokio::test]
async fn the_end_of_a_run_loses_its_turn_and_a_late_end_adopts_that() {
    let world = World::new().await;
    let (run, message) = asked(&world).await;
    let fence = world.take(1);
    delivered(&world, &fence, &message).await;
    world.turn(&fence, &message, "t1", None).await;
    world
        .state
        .cancel_run(world.identity(Operation::RunCancel), run, None)
        .await
        .expect("cancelled");
    world.is_sound().await;
    let late = world.turn(&fence, &message, "t1", Some(StopReason::Aborted)).await;
    let turn = late.receipt.expect("adopted").turn.expect("the turn");
    assert_eq!(turn.stop_reason, Some(StopReason::Lost));
}

// ----------------------------------------------------------------------------------------------------------------------- retention

#[tokio::test]
async fn an_ended_run_is_shown_for_a_minute_after_its_turn() {
    let world = World::new().await;
    let message = world.completed().await;
    let fence = world.take(1);
    let minute = i64::try_from(TERMINAL_RETENTION_MS).expect("small");
    world.place.clock.jump_wall(10 * minute);
    assert_eq!(
        world.selection(1).await.retained.expect("shown").until,
        None,
        "not delivered"
    );
    world.seen(&fence, absent(&message, true)).await;
    world.seen(&fence, present(&message, false)).await;
    world.turn(&fence, &message, "t", None).await;
    world.place.clock.jump_wall(10 * minute);
    assert_eq!(
        world.selection(1).await.retained.expect("shown").until,
        None,
        "its turn is open"
    );
    world.turn(&fence, &message, "t", Some(StopReason::Completed)).await;
    let until = world.selection(1).await.valid_until().expect("the clock ends it");
    assert_eq!(until, world.place.clock.wall_ms() + minute);
    world.place.clock.jump_wall(minute - 1);
    assert!(world.selection(1).await.retained.is_some());
    world.place.clock.jump_wall(1);
    assert_eq!(world.selection(1).await, Selection::default());
}

#[tokio::test]
async fn a_cancelled_run_is_shown_for_a_minute_after_its_delivery() {
    let world = World::new().await;
    let run = world.bound(&one()).await;
    world
        .state
        .cancel_run(world.identity(Operation::RunCancel), run, None)
        .await
        .expect("cancelled");
    let message = world.newest().await;
    let fence = world.take(1);
    world.seen(&fence, absent(&message, true)).await;
    world.place.clock.jump_wall(3_600_000);
    world.seen(&fence, present(&message, true)).await;
    let until = world.selection(1).await.valid_until().expect("the clock ends it");
    assert_eq!(until, world.place.clock.wall_ms() + 60_000);
    assert_eq!(
        world.current(1).await,
        None,
        "it starts no turn that could be waited for"
    );
    assert_eq!(
        ownership(&world.turn(&fence, &message, "t", None).await),
        TurnOwnership::Absent
    );
}

#[tokio::test]
async fn clearing_shows_the_next_end_all_the_same() {
    let world = World::new().await;
    world.completed().await;
    let fence = world.take(1);
    let clear = || {
        world
            .state
            .clear_terminal(fence.clone(), world.identity(Operation::SessionViewClearTerminal))
    };
    assert!(
        clear()
            .await
            .expect("cleared")
            .receipt
            .expect("a receipt")
            .run_id
            .is_some()
    );
    assert!(
        clear()
            .await
            .expect("cleared")
            .receipt
            .expect("a receipt")
            .run_id
            .is_none()
    );
    assert_eq!(world.selection(1).await.retained, None);
    let next = world.completed().await;
    assert_eq!(world.selection(1).await.retained.expect("shown").run, next.run);
}

// ----------------------------------------------------------------------------------------------------------------------- selection

#[tokio::test]
async fn follow_ups_wait_for_the_terminal_turn_for_each_other_and_for_the_session() {
    let world = World::new().await;
    let terminal = world.completed().await;
    world.insert(&terminal.run_id, "followUp", "f1", 11, "pending", 1);
    world.insert(&terminal.run_id, "followUp", "f2", 12, "pending", 1);
    let all = world.all().await;
    let fence = world.take(1);
    for message in &all {
        world.seen(&fence, absent(message, true)).await;
    }
    world.seen(&fence, present(&terminal, false)).await;
    assert_eq!(
        world.current(1).await,
        Some((terminal.message_id.clone(), Rule::Retained))
    );
    world.turn(&fence, &terminal, "t0", None).await;
    world.turn(&fence, &terminal, "t0", Some(StopReason::Completed)).await;
    let run = world.bound(&one()).await;
    assert_eq!(world.current(1).await, None, "the session is reserved");
    world
        .state
        .cancel_run(world.identity(Operation::RunCancel), run, None)
        .await
        .expect("cancelled");
    let cancelled = world.newest().await;
    world.seen(&fence, present(&cancelled, true)).await;
    assert_eq!(world.current(1).await, Some((all[1].message_id.clone(), Rule::Deliver)));
    world.seen(&fence, present(&all[1], false)).await;
    assert_eq!(
        world.current(1).await,
        Some((all[1].message_id.clone(), Rule::Retained)),
        "the second waits for the first one's turn"
    );
    world.turn(&fence, &all[1], "t1", None).await;
    world.turn(&fence, &all[1], "t1", Some(StopReason::Completed)).await;
    assert_eq!(world.current(1).await, Some((all[2].message_id.clone(), Rule::Deliver)));
}

#[tokio::test]
async fn the_selection_skips_history_in_bounded_batches() {
    let world = World::new().await;
    let terminal = world.completed().await;
    for order in 100..400 {
        world.insert(&terminal.run_id, "notification", "old", order, "sent", 0);
    }
    // More than one batch that is known and not due, before the one that is.
    for order in 400..600 {
        world.insert(&terminal.run_id, "followUp", "later", order, "pending", 1);
    }
    world.insert(&terminal.run_id, "notification", "new", 600, "pending", 1);
    world
        .sql
        .execute(
            "UPDATE workflow_messages SET branch_epoch = 7 WHERE open = 1 AND session_order BETWEEN 400 AND 600",
            [],
        )
        .expect("reported");
    let fence = world.take(7);
    assert_eq!(
        world.current(7).await,
        Some((terminal.message_id.clone(), Rule::Unreported))
    );
    world.seen(&fence, present(&terminal, false)).await;
    assert_eq!(
        world.current(7).await,
        Some(("notification-600".to_owned(), Rule::Deliver)),
        "what is not due blocks nothing, and what may be delivered comes before what is retained"
    );
}

#[tokio::test]
async fn two_open_turns_are_an_error_and_no_guess() {
    let world = World::new().await;
    let message = world.completed().await;
    world
        .sql
        .execute_batch(
            "DROP INDEX workflow_turns_open_session; DROP INDEX workflow_turns_open_message;
             UPDATE workflow_messages SET state = 'sent';",
        )
        .expect("damaged");
    for turn in ["t1", "t2"] {
        world
            .sql
            .execute(
                "INSERT INTO workflow_turns (turn_id, message, run, session_id, coordinator_epoch, status, started_at)
                 SELECT ?1, id, run, target_session, 1, 'open', 1 FROM workflow_messages WHERE id = ?2",
                params![turn, message.id],
            )
            .expect("turn");
    }
    let error = world
        .state
        .read(|db| Ok(messages::select(db, SESSION, 1, 0)?))
        .await
        .expect_err("no guess");
    assert!(error.to_string().contains("more than one open turn"), "{error}");
    let found = world.state.verify().await.expect("verified");
    assert!(
        found
            .iter()
            .any(|violation| format!("{violation:?}").contains("a session has one open turn")),
        "{found:?}"
    );
}

// ----------------------------------------------------------------------------------------------------------------------- crashes

/// Set for the process that is killed.
const CRASH: &str = "PIW_STATE_TEST_MESSAGES_CRASH";

/// Not a test of its own: the process that is killed somewhere on the way of a session through all that writes messages and turns.
#[tokio::test]
async fn dying_process() {
    if std::env::var_os(CRASH).is_none() {
        return;
    }
    let world = World::new().await;
    println!("\nplace {}", world.place.dir.path().display());
    let (run, message) = asked(&world).await;
    let fence = world.take(1);
    delivered(&world, &fence, &message).await;
    world.turn(&fence, &message, "t1", None).await;
    world.turn(&fence, &message, "t1", Some(StopReason::Completed)).await;
    let reminder = world.newest().await;
    delivered(&world, &fence, &reminder).await;
    world.turn(&fence, &reminder, "t2", None).await;
    world.turn(&fence, &reminder, "t2", Some(StopReason::Aborted)).await;
    let resume = world.identity(Operation::RunResume);
    world
        .state
        .resume_run(resume, run.clone(), None)
        .await
        .expect("resumed");
    let resumed = world.newest().await;
    delivered(&world, &fence, &resumed).await;
    let fence = world.take(2);
    world.seen(&fence, absent(&resumed, true)).await;
    world.seen(&fence, present(&resumed, false)).await;
    world.turn(&fence, &resumed, "t3", None).await;
    let cancel = world.identity(Operation::RunCancel);
    world.state.cancel_run(cancel, run, None).await.expect("cancelled");
    println!("\nsurvived");
}

/// Runs [`dying_process`] with a kill at an arrival at a point. Returns its directory and whether it came through.
fn die_at(point: &str, arrival: u32) -> (PathBuf, bool) {
    let before = arrival - 1;
    let output = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "dying_process", "--nocapture"])
        .env(CRASH, "1")
        .env("FAILPOINTS", format!("{point}={before}*off->return(kill)"))
        .output()
        .expect("run");
    let printed = String::from_utf8_lossy(&output.stdout);
    let place = printed.lines().find_map(|line| line.strip_prefix("place "));
    let survived = printed.lines().any(|line| line == "survived");
    assert!(survived || output.status.code().is_none(), "it failed: {output:?}");
    (place.unwrap_or_default().into(), survived)
}

/// What must hold however a process died: a message and what causes it are stored together, or neither is.
const TOGETHER: &[(&str, &str)] = &[
    (
        "a pending request was presented",
        "SELECT count(*) FROM interactive_requests q WHERE NOT EXISTS (SELECT 1 FROM workflow_messages m WHERE m.request = q.id)",
    ),
    (
        "every unproductive end of a turn is counted and reminded of",
        "SELECT count(*) FROM interactive_requests q WHERE q.unproductive_turn_ends <> (
           SELECT count(*) FROM workflow_turns t WHERE t.run = q.run AND t.stop_reason = 'completed')
          OR q.unproductive_turn_ends <> (SELECT count(*) FROM workflow_messages m WHERE m.request = q.id AND m.reason = 'reminder')",
    ),
    (
        "an aborted turn paused its run, which was resumed with a message",
        "SELECT count(*) FROM workflow_turns t JOIN runs r ON r.id = t.run WHERE t.stop_reason = 'aborted' AND r.paused_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM workflow_messages m WHERE m.run = r.id AND m.reason = 'resumed')",
    ),
    (
        "an ended run told its session and asks for nothing",
        "SELECT count(*) FROM runs r WHERE r.finished_at IS NOT NULL AND (
           NOT EXISTS (SELECT 1 FROM workflow_messages m WHERE m.run = r.id AND m.kind = 'terminal')
           OR EXISTS (SELECT 1 FROM workflow_messages m WHERE m.run = r.id AND m.kind = 'step' AND m.state = 'pending')
           OR EXISTS (SELECT 1 FROM workflow_turns t WHERE t.run = r.id AND t.status = 'open'))",
    ),
];

#[tokio::test]
async fn messages_and_their_causes_survive_together_wherever_the_process_dies() {
    for (point, deaths_at_least) in [
        ("state::message_stored", 4),
        ("state::sources_cancelled", 1),
        ("state::turn_ended", 2),
        ("state::branch_reported", 8),
        ("state::before_commit", 20),
    ] {
        let mut deaths = 0;
        loop {
            let (dir, survived) = die_at(point, deaths + 1);
            if survived {
                assert!(!dir.exists(), "a process that ends cleans up");
                break;
            }
            deaths += 1;
            if !dir.join("state.sqlite").exists() {
                continue;
            }
            let state = State::open(StateOptions {
                readers: 1,
                ..StateOptions::new(&dir)
            })
            .expect("opens");
            let found = state.verify().await.expect("verified");
            assert!(found.is_empty(), "{point}, death {deaths}: {found:?}");
            for (rule, violations) in TOGETHER {
                let count: i64 = state
                    .read(move |db| Ok(db.query_row(violations, [], |row| row.get(0))?))
                    .await
                    .expect("read");
                assert_eq!(count, 0, "{point}, death {deaths}: {rule}");
            }
            state.close();
            std::fs::remove_dir_all(&dir).expect("removed");
        }
        assert!(deaths >= deaths_at_least, "{point} was reached {deaths} times");
    }
}
