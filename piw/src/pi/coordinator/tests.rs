use piw_protocol::interaction::{SESSION_VIEW_SCHEMA, SessionRun, StepReason, TurnOwnership, TurnState};
use piw_protocol::view::Display;
use serde_json::{Value, json};

use super::*;
use crate::pi::glue::Reply;

/// A coordinator with a clock, a server's view and a Pi, driven step by step.
struct Desk {
    coordinator: Coordinator,
    now: Instant,
    view: SessionView,
    asked: Option<(u64, Option<String>)>,
}

fn view() -> SessionView {
    SessionView {
        schema: SESSION_VIEW_SCHEMA.into(),
        session_id: "s".into(),
        coordinator_epoch: 7,
        coordinator_active: false,
        branch_report_required: true,
        run: None,
        interaction: None,
        workflow_message: None,
        open_workflow_turn: None,
    }
}

fn content(id: &str, kind: MessageKind) -> Value {
    json!({"customType": kind.custom_type(), "content": format!("prompt of {id}"), "display": true,
        "details": {"schema": "x", "workflowMessageId": id}})
}

fn message(id: &str, kind: MessageKind) -> SessionMessage {
    let value = content(id, kind);
    SessionMessage {
        workflow_message_id: id.into(),
        run_id: "r".into(),
        kind,
        source_id: "q".into(),
        reason: (kind == MessageKind::Step).then_some(StepReason::Initial),
        order: 1,
        status: MessageStatus::Pending,
        pi_session_entry_id: None,
        deliver: true,
        starts_turn: kind == MessageKind::Step,
        content_digest: format!("sha256:{}", canonical::sha256_hex(&canonical::to_vec(&value).unwrap())),
        content: value,
        created_at: "2026-01-01T00:00:00.000Z".into(),
        updated_at: "2026-01-01T00:00:00.000Z".into(),
    }
}

fn request(kind: InteractionKind) -> SessionInteraction {
    SessionInteraction {
        request_id: "q".into(),
        run_id: "r".into(),
        node_id: "write".into(),
        attempt_id: "q".into(),
        kind,
        revision: 1,
        status: "pending".into(),
        paused: false,
        contract: Value::Null,
        rejection: None,
        unproductive_turn_ends: 0,
        allowed_tools: None,
        deadline_at: None,
    }
}

fn run(status: DisplayStatus) -> SessionRun {
    SessionRun {
        run_id: "r".into(),
        run_revision: 1,
        origin_session_id: "s".into(),
        workflow_name: "w".into(),
        run_title: None,
        display: Display {
            status,
            activity: None,
            controls: vec![],
            reason: None,
            reason_content: None,
        },
        current_node: None,
        waiting_on: None,
        paused: false,
        started_at: "2026-01-01T00:00:00.000Z".into(),
        finished_at: None,
        updated_at: "2026-01-01T00:00:00.000Z".into(),
        nodes: vec![],
        node_start: 0,
        node_total: 0,
        progress: vec![],
    }
}

fn receipt(ownership: TurnOwnership) -> Input {
    Input::TurnReported(Ok(TurnReceipt {
        schema: "x".into(),
        ownership,
        turn: None,
    }))
}

impl Desk {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            coordinator: Coordinator::new("s".into(), vec![], None, now),
            now,
            view: view(),
            asked: None,
        }
    }

    fn take(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.coordinator.take(input, self.now);
        for effect in &effects {
            if let Effect::Observe { seq, message_id, .. } = effect {
                self.asked = Some((*seq, message_id.clone()));
            }
        }
        effects
            .into_iter()
            .filter(|effect| !matches!(effect, Effect::Observe { .. } | Effect::Epoch(_)))
            .collect()
    }

    fn show(&mut self) -> Vec<Effect> {
        let view = self.view.clone();
        self.take(Input::View(Some(Arc::new(view))))
    }

    fn tick(&mut self) -> Vec<Effect> {
        self.now += AGAIN;
        self.take(Input::Tick)
    }

    /// Answers the observation that is asked for.
    fn see(&mut self, entry: Option<&str>, idle: bool) -> Vec<Effect> {
        self.see_all(entry, idle, false, None)
    }

    fn see_all(&mut self, entry: Option<&str>, idle: bool, pending: bool, reply: Option<Reply>) -> Vec<Effect> {
        let (seq, message_id) = self.asked.take().expect("an observation is asked for");
        let queued = message_id.as_deref().is_some_and(|id| self.coordinator.is_queued(id));
        self.take(Input::Observed(Observation {
            seq,
            message_id,
            entry_id: entry.map(str::to_owned),
            idle,
            pending,
            queued: queued && entry.is_none(),
            reply,
        }))
    }

    /// The server accepts the branch report.
    fn accept(&mut self) -> Vec<Effect> {
        let mut effects = self.take(Input::BranchReported(Ok(())));
        self.view.branch_report_required = false;
        self.view.coordinator_active = true;
        effects.extend(self.show());
        effects
    }

    /// With a step message that is wanted, up to its hand-over.
    fn handed() -> Self {
        let mut desk = Self::new();
        desk.view.workflow_message = Some(message("m", MessageKind::Step));
        desk.view.interaction = Some(request(InteractionKind::Submit));
        assert_eq!(desk.show(), []);
        assert!(matches!(&desk.see(None, true)[..], [Effect::Report(_)]));
        assert!(matches!(&desk.accept()[..], [Effect::Send { .. }]));
        assert_eq!(
            desk.take(Input::Sent {
                message_id: "m".into(),
                sent: true
            }),
            []
        );
        desk
    }

    /// The same, with the entry seen, reported and known to the server, and its turn open.
    fn working() -> Self {
        let mut desk = Self::handed();
        desk.take(Input::TurnStart { turn_id: "t".into() });
        assert!(matches!(&desk.see(Some("e"), false)[..], [Effect::Report(_)]));
        desk.sent("m", "e");
        let effects = desk.accept();
        assert!(matches!(&effects[..], [Effect::Turn(report)] if report.state == TurnState::Started));
        let effects = desk.take(receipt(TurnOwnership::Active));
        assert!(
            matches!(&effects[..], [Effect::Record { run_id, .. }, Effect::Gate(gate)] if run_id == "r" && gate.owned),
            "{effects:?}"
        );
        desk
    }

    fn sent(&mut self, id: &str, entry: &str) {
        let message = self.view.workflow_message.as_mut().unwrap();
        assert_eq!(message.workflow_message_id, id);
        message.status = MessageStatus::Sent;
        message.pi_session_entry_id = Some(entry.into());
        message.deliver = false;
    }
}

#[test]
fn an_idle_session_reports_its_branch_once_and_is_left_alone() {
    let mut desk = Desk::new();
    assert_eq!(desk.show(), []);
    let effects = desk.see(None, true);
    assert_eq!(
        effects,
        [Effect::Report(BranchReport {
            target_session_id: "s".into(),
            coordinator_epoch: 7,
            workflow_message_id: None,
            pi_session_entry_id: None,
            is_idle: true,
            has_pending_messages: false,
        })]
    );
    assert_eq!(desk.accept(), []);
    assert!(!desk.coordinator.waits());
    assert_eq!(desk.tick(), []);
    assert_eq!(desk.take(Input::Changed), []);
    assert_eq!(desk.asked, None, "nobody asks for a branch on which nothing depends");
}

#[test]
fn a_message_is_handed_over_after_the_report_and_only_once() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    assert_eq!(desk.show(), []);
    assert!(matches!(&desk.see(None, true)[..], [Effect::Report(report)] if report.pi_session_entry_id.is_none()));
    assert_eq!(desk.show(), [], "a report is under way");
    let effects = desk.accept();
    let [
        Effect::Send {
            epoch: 7,
            message_id,
            starts_turn: true,
            message,
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((message_id.as_str(), message.content.as_str()), ("m", "prompt of m"));
    assert_eq!(desk.show(), []);
    desk.take(Input::Sent {
        message_id: "m".into(),
        sent: true,
    });
    for _ in 0..5 {
        assert_eq!(
            desk.see(None, true),
            [],
            "a queued id is never handed over again, nor reported absent"
        );
        assert_eq!(desk.tick(), []);
    }
    assert!(matches!(&desk.see(Some("e"), true)[..],
        [Effect::Report(report)] if report.pi_session_entry_id.as_deref() == Some("e")));
    desk.sent("m", "e");
    assert_eq!(desk.accept(), []);
}

#[test]
fn an_entry_that_is_there_is_reported_and_never_given_again() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    desk.show();
    assert!(matches!(&desk.see(Some("e"), true)[..],
        [Effect::Report(report)] if report.pi_session_entry_id.as_deref() == Some("e")));
    // Even while the view still says that it may be delivered.
    assert_eq!(desk.accept(), []);
    assert_eq!(desk.tick(), []);
    assert_eq!(desk.see(Some("e"), true), []);
}

#[test]
fn a_busy_pi_gets_nothing_until_it_is_idle() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Notification));
    desk.show();
    assert!(matches!(&desk.see(None, false)[..], [Effect::Report(report)] if !report.is_idle));
    assert_eq!(desk.accept(), []);
    desk.take(Input::Changed);
    let effects = desk.see_all(None, true, true, None);
    assert_eq!(effects, [], "input of the user comes first");
    desk.take(Input::Changed);
    assert!(matches!(&desk.see(None, true)[..], [Effect::Report(report)] if report.is_idle));
    assert!(matches!(&desk.accept()[..], [Effect::Send { starts_turn: false, .. }]));
}

#[test]
fn a_refused_hand_over_is_tried_again_after_another_look() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    desk.show();
    desk.see(None, true);
    assert!(matches!(&desk.accept()[..], [Effect::Send { .. }]));
    desk.take(Input::Sent {
        message_id: "m".into(),
        sent: false,
    });
    assert_eq!(desk.see(None, false), []);
    desk.take(Input::Changed);
    assert!(matches!(&desk.see(None, true)[..], [Effect::Send { .. }]));
}

#[test]
fn a_turn_waits_until_its_message_is_confirmed_and_is_reported_in_order() {
    let mut desk = Desk::handed();
    assert_eq!(desk.take(Input::TurnStart { turn_id: "t".into() }), []);
    assert_eq!(desk.see(None, false), [], "the entry is on its way");
    desk.take(Input::TurnEnd {
        turn_id: "t".into(),
        stop: StopReason::Completed,
        entry_id: Some("a".into()),
    });
    assert!(matches!(&desk.see(Some("e"), true)[..], [Effect::Report(_)]));
    desk.sent("m", "e");
    let effects = desk.accept();
    let [Effect::Turn(start)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (start.state, start.stop_reason, start.workflow_message_id.as_str()),
        (TurnState::Started, None, "m")
    );
    let effects = desk.take(receipt(TurnOwnership::Active));
    let [Effect::Turn(end)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (end.state, end.stop_reason),
        (TurnState::Ended, Some(StopReason::Completed))
    );
    assert_eq!(end.response_session_entry_id.as_deref(), Some("a"));
    assert_eq!(desk.take(receipt(TurnOwnership::Settled)), []);
    assert!(desk.coordinator.turns.is_empty());
}

#[test]
fn a_reconnection_reports_the_branch_and_the_same_turn_again() {
    let mut desk = Desk::working();
    let effects = desk.take(Input::View(None));
    assert!(
        matches!(&effects[..], [Effect::Gate(gate)] if gate.owned && gate.blocked.is_some()),
        "{effects:?}"
    );
    desk.view.coordinator_epoch = 8;
    desk.view.branch_report_required = true;
    desk.view.coordinator_active = false;
    assert!(matches!(&desk.show()[..], [Effect::Gate(gate)] if gate.blocked.is_none()));
    let effects = desk.see(Some("e"), false);
    assert!(matches!(&effects[..], [Effect::Report(report)] if report.coordinator_epoch == 8));
    let effects = desk.accept();
    assert!(
        matches!(&effects[..], [Effect::Turn(report)]
            if report.workflow_turn_id == "t" && report.coordinator_epoch == 8 && report.state == TurnState::Started),
        "{effects:?}"
    );
    assert_eq!(desk.take(receipt(TurnOwnership::Active)), [], "it is recorded already");
}

#[test]
fn a_turn_that_the_server_closed_ends_its_recording_and_is_forgotten() {
    let mut desk = Desk::working();
    desk.take(Input::View(None));
    desk.view.coordinator_epoch = 8;
    desk.show();
    desk.see(Some("e"), false);
    desk.accept();
    let effects = desk.take(receipt(TurnOwnership::Settled));
    assert!(
        matches!(&effects[..], [Effect::RecordEnd { stop: StopReason::Lost }, Effect::Gate(gate)] if !gate.owned),
        "{effects:?}"
    );
}

#[test]
fn a_turn_of_a_person_without_an_open_message_is_nobodys() {
    let mut desk = Desk::new();
    desk.show();
    desk.see(None, true);
    desk.accept();
    assert_eq!(desk.take(Input::TurnStart { turn_id: "t".into() }), []);
    assert_eq!(desk.see(None, false), []);
    desk.take(Input::TurnEnd {
        turn_id: "t".into(),
        stop: StopReason::Completed,
        entry_id: None,
    });
    assert_eq!(desk.see(None, true), []);
    assert!(desk.coordinator.turns.is_empty());
}

#[test]
fn a_turn_of_a_person_binds_to_the_step_that_is_still_asked_for() {
    let mut desk = Desk::working();
    desk.take(Input::TurnEnd {
        turn_id: "t".into(),
        stop: StopReason::Completed,
        entry_id: None,
    });
    assert!(matches!(&desk.see(Some("e"), true)[..], [Effect::Turn(_)]));
    desk.take(receipt(TurnOwnership::Settled));
    // The reminder waits while the person is faster.
    desk.view.workflow_message = Some(message("m2", MessageKind::Step));
    desk.show();
    desk.take(Input::TurnStart { turn_id: "t2".into() });
    assert!(matches!(&desk.see(None, false)[..], [Effect::Report(_)]));
    let effects = desk.accept();
    assert!(
        matches!(&effects[..], [Effect::Turn(report)]
            if report.workflow_message_id == "m" && report.workflow_turn_id == "t2"),
        "{effects:?}"
    );
}

#[test]
fn a_restarted_bridge_takes_over_what_the_extension_holds() {
    let mut desk = Desk::new();
    desk.coordinator = Coordinator::new("s".into(), vec!["m".into()], Some("t".into()), desk.now);
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    desk.show();
    assert_eq!(desk.see(None, false), [], "it was handed over before: it is on its way");
    desk.take(Input::Changed);
    assert!(matches!(&desk.see(Some("e"), false)[..], [Effect::Report(_)]));
    desk.sent("m", "e");
    let effects = desk.accept();
    assert!(matches!(&effects[..], [Effect::Turn(report)] if report.workflow_turn_id == "t"));
}

#[test]
fn a_stale_view_sends_and_reports_nothing() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    desk.show();
    desk.see(None, true);
    desk.take(Input::View(None));
    assert_eq!(desk.take(Input::BranchReported(Ok(()))), []);
    assert_eq!(desk.tick(), []);
    assert_eq!(desk.take(Input::Changed), []);
}

#[test]
fn an_answer_to_a_report_of_an_earlier_epoch_counts_for_nothing() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    desk.show();
    desk.see(None, true);
    desk.view.coordinator_epoch = 8;
    desk.show();
    assert_eq!(desk.take(Input::BranchReported(Ok(()))), []);
    assert!(matches!(&desk.see(None, true)[..], [Effect::Report(report)] if report.coordinator_epoch == 8));
}

#[test]
fn a_report_that_the_server_refuses_is_not_repeated_in_a_rush() {
    let mut desk = Desk::new();
    desk.show();
    desk.see(None, true);
    assert_eq!(desk.take(Input::BranchReported(Err(Trouble::Refused))), []);
    assert_eq!(desk.asked, None);
    assert_eq!(desk.tick(), []);
    assert!(matches!(&desk.see(None, true)[..], [Effect::Report(_)]));
}

#[test]
fn a_report_that_is_still_asked_for_is_repeated_slowly() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    desk.show();
    desk.see(None, true);
    desk.take(Input::BranchReported(Ok(())));
    assert_eq!(desk.show(), []);
    assert_eq!(desk.show(), [], "the same view again changes nothing");
    desk.tick();
    assert!(matches!(&desk.see(None, true)[..], [Effect::Report(_)]));
}

#[test]
fn a_message_that_left_the_branch_is_reported_absent_once_pi_is_idle() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Decision));
    desk.show();
    desk.see(Some("e"), true);
    desk.sent("m", "e");
    desk.accept();
    desk.take(Input::Changed);
    assert_eq!(desk.see(None, false), [], "absence counts only while Pi is idle");
    desk.take(Input::Changed);
    assert!(matches!(&desk.see(None, true)[..], [Effect::Report(report)] if report.pi_session_entry_id.is_none()));
}

#[test]
fn large_content_is_fetched_before_the_hand_over_and_wrong_content_is_not_handed_over() {
    let bytes = canonical::to_vec(&content("m", MessageKind::Step)).unwrap();
    let sha = canonical::sha256_hex(&bytes);
    let mut large = message("m", MessageKind::Step);
    large.content = json!({"$artifact": {"path": format!("artifacts/sha256/{sha}.json"), "mediaType": "application/json",
        "bytes": bytes.len(), "sha256": sha}});
    let digest = large.content_digest.clone();
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(large);
    desk.show();
    desk.see(None, true);
    assert!(matches!(&desk.accept()[..], [Effect::Fetch { run_id, .. }] if run_id == "r"));
    assert_eq!(desk.show(), [], "it is being fetched");
    let effects = desk.take(Input::Fetched {
        digest: digest.clone(),
        content: parse_content(&bytes, &digest),
    });
    assert!(matches!(&effects[..], [Effect::Send { .. }]), "{effects:?}");

    let mut desk = Desk::new();
    let mut wrong = message("m", MessageKind::Step);
    wrong.content["content"] = "another prompt".into();
    desk.view.workflow_message = Some(wrong);
    desk.show();
    desk.see(None, true);
    let effects = desk.accept();
    assert!(
        matches!(&effects[..], [Effect::Notice(text)] if text.contains("expected sha256:")),
        "{effects:?}"
    );
    assert_eq!(desk.show(), [], "it is said once");

    let mut desk = Desk::new();
    let mut wrong = message("m", MessageKind::Step);
    wrong.workflow_message_id = "other".into();
    desk.view.workflow_message = Some(wrong);
    desk.show();
    desk.see(None, true);
    assert!(matches!(&desk.accept()[..], [Effect::Notice(text)] if text.contains("expected \"other\"")));
}

#[test]
fn the_tools_of_a_step_are_limited_from_its_hand_over_until_it_is_done() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    let mut limited = request(InteractionKind::Submit);
    limited.allowed_tools = Some(vec!["read".into()]);
    desk.view.interaction = Some(limited);
    assert_eq!(desk.show(), [], "a turn of the person that goes on is not limited");
    desk.see(None, true);
    let effects = desk.accept();
    assert!(
        matches!(&effects[..], [Effect::Gate(gate), Effect::Send { .. }] if gate.allowed == Some(vec!["read".into()])),
        "{effects:?}"
    );
    desk.take(Input::Sent {
        message_id: "m".into(),
        sent: true,
    });
    desk.see(Some("e"), false);
    desk.sent("m", "e");
    assert_eq!(desk.accept(), []);
    desk.view.interaction = None;
    assert_eq!(desk.show(), [Effect::Gate(Gate::default())]);
}

#[test]
fn a_live_turn_is_aborted_when_its_run_is_cancelled_but_never_on_acceptance() {
    let mut desk = Desk::working();
    desk.view.interaction = None;
    desk.view.run = Some(run(DisplayStatus::Cancelled));
    assert_eq!(desk.show(), [Effect::Abort { turn_id: "t".into() }]);
    assert_eq!(desk.show(), [], "once");

    let mut desk = Desk::working();
    desk.take(Input::Accepted { request_id: "q".into() });
    desk.view.interaction = None;
    desk.view.run = Some(run(DisplayStatus::Cancelled));
    assert_eq!(desk.show(), []);

    let mut desk = Desk::working();
    desk.view.interaction = None;
    desk.view.run = Some(run(DisplayStatus::Running));
    assert_eq!(desk.show(), []);
}

#[test]
fn the_last_message_of_a_turn_completes_a_step_that_asks_for_one() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    desk.view.interaction = Some(request(InteractionKind::Assistant));
    desk.sent("m", "e");
    desk.show();
    let reply = || {
        Some(Reply {
            entry_id: "a".into(),
            text: "done".into(),
        })
    };
    assert!(matches!(
        &desk.see_all(Some("e"), true, false, reply())[..],
        [Effect::Report(_)]
    ));
    let effects = desk.accept();
    assert_eq!(
        effects,
        [Effect::Assistant {
            epoch: 7,
            request_id: "q".into(),
            entry_id: "a".into(),
            text: "done".into(),
        }]
    );
    desk.take(Input::AssistantReported(Err(Trouble::Refused)));
    desk.take(Input::Changed);
    assert_eq!(
        desk.see_all(Some("e"), true, false, reply()),
        [],
        "a refused message is not sent again"
    );
}

#[test]
fn a_message_that_pi_swallows_is_worth_a_notice() {
    let mut desk = Desk::handed();
    desk.now += UNSEEN;
    let effects = desk.tick();
    assert!(
        matches!(&effects[..], [Effect::Notice(text)] if text.contains("/reload")),
        "{effects:?}"
    );
    assert_eq!(desk.tick(), []);
}

#[test]
fn a_branch_is_not_reported_idle_while_a_turn_is_untold() {
    let mut desk = Desk::working();
    desk.take(Input::View(None));
    desk.view.coordinator_epoch = 8;
    desk.view.branch_report_required = true;
    desk.view.coordinator_active = false;
    desk.take(Input::TurnEnd {
        turn_id: "t".into(),
        stop: StopReason::Completed,
        entry_id: None,
    });
    desk.show();
    assert!(matches!(&desk.see(Some("e"), true)[..], [Effect::Report(report)] if !report.is_idle));
    assert!(matches!(&desk.accept()[..], [Effect::Turn(report)] if report.state == TurnState::Started));
    assert!(
        matches!(&desk.take(receipt(TurnOwnership::Active))[..], [Effect::Turn(report)] if report.state == TurnState::Ended)
    );
}

#[test]
fn a_turn_of_a_person_does_not_hold_back_the_message_that_waits() {
    let mut desk = Desk::new();
    desk.view.workflow_message = Some(message("m", MessageKind::Step));
    desk.take(Input::TurnStart { turn_id: "t".into() });
    desk.show();
    assert!(matches!(&desk.see(None, false)[..], [Effect::Report(report)] if !report.is_idle));
    desk.take(Input::BranchReported(Ok(())));
    // Its presence stays unknown while Pi is busy.
    desk.view.coordinator_active = true;
    assert_eq!(desk.show(), []);
    desk.take(Input::TurnEnd {
        turn_id: "t".into(),
        stop: StopReason::Completed,
        entry_id: None,
    });
    assert_eq!(desk.see(None, true), [], "the turn is nobody's");
    desk.tick();
    assert!(matches!(&desk.see(None, true)[..], [Effect::Report(report)] if report.is_idle));
    assert!(matches!(&desk.accept()[..], [Effect::Send { .. }]));
}

#[test]
fn a_turn_of_a_withdrawn_step_is_aborted() {
    let mut desk = Desk::handed();
    desk.take(Input::TurnStart { turn_id: "t".into() });
    desk.see(Some("e"), false);
    desk.sent("m", "e");
    desk.view.workflow_message.as_mut().unwrap().status = MessageStatus::Cancelled;
    desk.view.interaction = None;
    let effects = desk.accept();
    assert!(effects.contains(&Effect::Abort { turn_id: "t".into() }), "{effects:?}");
}

#[test]
fn a_fenced_coordinator_is_silent_until_there_is_a_new_epoch() {
    let mut desk = Desk::new();
    desk.show();
    desk.see(None, true);
    assert_eq!(desk.take(Input::BranchReported(Err(Trouble::Fenced))), []);
    for _ in 0..3 {
        assert_eq!(desk.tick(), []);
        assert_eq!(desk.asked, None);
    }
    desk.view.coordinator_epoch = 9;
    desk.show();
    assert!(matches!(&desk.see(None, true)[..], [Effect::Report(_)]));
}
