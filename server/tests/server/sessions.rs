//! Pi sessions over the socket: who coordinates, what is pushed, what reports do, when the terminal run goes.
use std::fs;
use std::path::PathBuf;

use crate::child;
use crate::support::{RawClient, TestServer};
use piw_protocol::envelope::{EventKind, Outcome, Response, ServerMessage};
use piw_protocol::interaction::{
    MessageKind, MessageStatus, SESSION_VIEW_LIMIT, SessionView, StopReason, TurnOwnership, TurnReceipt, TurnState,
};
use piw_protocol::ops::{Operation, RunReceipt};
use piw_protocol::run::DisplayStatus;
use serde_json::{Value, json};

const SESSION: &str = "pi-session";

struct World {
    server: TestServer,
    project: PathBuf,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("project");
    fs::create_dir(&project).unwrap();
    let exe = child::executable(dir.path(), "child_entry", "");
    World {
        server: TestServer::start_in(dir, exe),
        project: fs::canonicalize(project).unwrap(),
    }
}

impl World {
    fn start(&self, script: &str) -> String {
        let payload = json!({"workflow": script, "projectPath": self.project, "input": 1, "sessionId": SESSION});
        let response = self.server.client().request(Operation::RunStart, None, &payload);
        let receipt: RunReceipt = response
            .receipt
            .unwrap_or_else(|| panic!("refused: {:?}", response.error))
            .decode()
            .unwrap();
        receipt.run_id
    }

    fn open(&self, gate: &str) {
        fs::write(self.project.join(format!("{gate}.go")), "").unwrap();
    }

    fn coordinator(&self) -> Coordinator {
        Coordinator::watch(self.server.client())
    }
}

/// A Pi side: one connection that watches the session.
struct Coordinator {
    client: RawClient,
    view: SessionView,
}

impl Coordinator {
    fn watch(mut client: RawClient) -> Self {
        let watch = json!({"subscriptionId": "s", "sessionId": SESSION});
        let response = client.request(Operation::ViewSessionWatch, None, &watch);
        assert_eq!(response.outcome, Outcome::Accepted, "{:?}", response.error);
        let view = next_view(&mut client);
        Self { client, view }
    }

    fn epoch(&self) -> u64 {
        self.view.coordinator_epoch
    }

    /// Waits for a view that is as it should be.
    fn until(&mut self, what: &str, fits: impl Fn(&SessionView) -> bool) -> &SessionView {
        for _ in 0..500 {
            if fits(&self.view) {
                return &self.view;
            }
            self.view = next_view(&mut self.client);
        }
        panic!("waited in vain: {what}; the last view is {:?}", self.view)
    }

    fn report(&mut self, message: Option<&str>, entry: Option<&str>, idle: bool) -> Response {
        let payload = json!({
            "targetSessionId": SESSION, "coordinatorEpoch": self.epoch(), "workflowMessageId": message,
            "piSessionEntryId": entry, "isIdle": idle, "hasPendingMessages": false,
        });
        self.client
            .request(Operation::WorkflowMessageReportBranch, None, &payload)
    }

    /// Looks for what the view names until something may be delivered, as Pi does, and delivers that.
    fn deliver(&mut self, entry: &str) -> (String, String) {
        let message = loop {
            let view = self.until("a message", |view| {
                view.workflow_message
                    .as_ref()
                    .is_some_and(|message| message.deliver || view.branch_report_required)
            });
            let message = view.workflow_message.clone().unwrap();
            assert_ne!(message.deliver, view.branch_report_required, "the branch comes first");
            if message.deliver {
                assert!(view.coordinator_active);
                break message;
            }
            let id = message.workflow_message_id;
            assert_eq!(self.report(Some(&id), None, true).outcome, Outcome::Accepted);
            self.until("another view", |view| {
                view.workflow_message
                    .as_ref()
                    .is_none_or(|message| message.deliver || message.workflow_message_id != id)
            });
        };
        let id = message.workflow_message_id;
        assert_eq!(self.report(Some(&id), Some(entry), false).outcome, Outcome::Accepted);
        (id, message.run_id)
    }

    fn turn(&mut self, message: &(String, String), turn: &str, stop: Option<&str>) -> Response {
        let mut payload = json!({
            "state": if stop.is_some() { "ended" } else { "started" }, "workflowMessageId": message.0, "workflowTurnId": turn,
            "runId": message.1, "targetSessionId": SESSION, "coordinatorEpoch": self.epoch(),
        });
        if let Some(stop) = stop {
            payload["stopReason"] = json!(stop);
            payload["responseSessionEntryId"] = json!("response");
        }
        self.client.request(Operation::WorkflowTurnReport, None, &payload)
    }

    fn owned(&mut self, message: &(String, String), turn: &str, stop: Option<&str>) -> TurnOwnership {
        let response = self.turn(message, turn, stop);
        let receipt: TurnReceipt = response
            .receipt
            .unwrap_or_else(|| panic!("refused: {:?}", response.error))
            .decode()
            .unwrap();
        receipt.ownership
    }
}

/// The next session snapshot, after those that came while an answer was awaited.
fn next_view(client: &mut RawClient) -> SessionView {
    let event = if client.events.is_empty() {
        match client.next().expect("a view comes") {
            ServerMessage::Event(event) => event,
            other => panic!("unexpected {other:?}"),
        }
    } else {
        client.events.remove(0)
    };
    assert_eq!(event.event, EventKind::SessionSnapshot, "{:?}", event.payload);
    assert!(event.payload.as_str().len() <= SESSION_VIEW_LIMIT);
    event.payload.decode().unwrap()
}

fn reason(response: &Response) -> (Outcome, String) {
    let error = response
        .error
        .as_ref()
        .unwrap_or_else(|| panic!("accepted: {response:?}"));
    (response.outcome, error.reason.clone())
}

#[test]
fn a_session_that_no_run_named_has_an_empty_view() {
    let world = world();
    let mut pi = world.coordinator();
    assert!(pi.view.run.is_none() && pi.view.workflow_message.is_none());
    assert!(pi.view.branch_report_required && !pi.view.coordinator_active);
    assert_eq!(pi.report(None, None, true).outcome, Outcome::Accepted);
    pi.until("authority", |view| {
        view.coordinator_active && !view.branch_report_required
    });
}

#[test]
fn a_run_is_followed_to_its_terminal_turn_and_for_a_minute_after() {
    let world = world();
    let mut pi = world.coordinator();
    let run = world.start("a b:gate");
    let view = pi.until("the gate", |view| {
        view.run
            .as_ref()
            .is_some_and(|run| run.current_node.as_deref() == Some("b"))
    });
    let shown = view.run.as_ref().unwrap();
    assert_eq!(
        (shown.run_id.as_str(), shown.display.status),
        (run.as_str(), DisplayStatus::Running)
    );
    let rows: Vec<_> = shown
        .nodes
        .iter()
        .map(|row| (row.node_id.as_str(), row.status, row.attempts))
        .collect();
    assert_eq!(
        rows,
        [
            ("a", Some(DisplayStatus::Completed), 1),
            ("b", Some(DisplayStatus::Running), 1)
        ]
    );
    assert_eq!((shown.node_start, shown.node_total), (0, 2));

    world.open("b");
    let message = pi.deliver("entry-1");
    let view = pi.until("the delivery is known", |view| {
        view.workflow_message
            .as_ref()
            .is_some_and(|message| message.status == MessageStatus::Sent)
    });
    let shown = view.workflow_message.as_ref().unwrap();
    assert_eq!(
        (shown.kind, shown.pi_session_entry_id.as_deref()),
        (MessageKind::Terminal, Some("entry-1"))
    );
    assert_eq!(pi.owned(&message, "turn-1", None), TurnOwnership::Active);
    pi.until("the turn", |view| {
        view.open_workflow_turn
            .as_ref()
            .is_some_and(|turn| turn.workflow_turn_id == "turn-1" && turn.state == TurnState::Started)
    });
    assert_eq!(pi.owned(&message, "turn-1", Some("completed")), TurnOwnership::Settled);
    let view = pi.until("the end of the turn", |view| view.open_workflow_turn.is_none());
    assert!(view.workflow_message.is_none(), "nothing is asked of Pi");
    assert_eq!(
        view.run.as_ref().map(|run| run.display.status),
        Some(DisplayStatus::Completed)
    );

    let clear = json!({"targetSessionId": SESSION, "coordinatorEpoch": pi.epoch()});
    let cleared = pi.client.request(Operation::SessionViewClearTerminal, None, &clear);
    assert_eq!(cleared.receipt.unwrap().to_value(), json!({"runId": run}));
    pi.until("the run is gone", |view| view.run.is_none());
}

#[test]
fn the_newest_watcher_coordinates_and_fences_the_one_before() {
    let world = world();
    let run = world.start("a");
    let mut first = world.coordinator();
    first.until("the end", |view| view.workflow_message.is_some());
    let message = first.view.workflow_message.clone().unwrap().workflow_message_id;
    let mut second = world.coordinator();
    assert!(second.epoch() > first.epoch());
    let stale = first.report(Some(&message), Some("entry"), true);
    assert_eq!(reason(&stale), (Outcome::Rejected, "stale_coordinator".to_owned()));
    let pair = (message.clone(), run.clone());
    let stale = first.turn(&pair, "t", None);
    assert_eq!(reason(&stale), (Outcome::Rejected, "stale_coordinator".to_owned()));
    let view = first.until("the fence", |view| {
        !view.coordinator_active && !view.branch_report_required
    });
    assert!(view.workflow_message.as_ref().is_some_and(|message| !message.deliver));
    assert_eq!(
        second.view.workflow_message.as_ref().unwrap().status,
        MessageStatus::Pending,
        "nothing was changed"
    );
    assert_eq!(second.report(Some(&message), None, true).outcome, Outcome::Accepted);
    second.until("the delivery", |view| {
        view.workflow_message.as_ref().is_some_and(|message| message.deliver)
    });
    // Another connection that knows the epoch is nobody all the same.
    let mut thief = world.server.client();
    let payload = json!({
        "targetSessionId": SESSION, "coordinatorEpoch": second.epoch(), "workflowMessageId": message,
        "piSessionEntryId": "entry", "isIdle": true, "hasPendingMessages": false,
    });
    let refused = thief.request(Operation::WorkflowMessageReportBranch, None, &payload);
    assert_eq!(reason(&refused), (Outcome::Rejected, "stale_coordinator".to_owned()));
}

#[test]
fn a_disconnect_and_an_unwatch_end_the_coordination() {
    let world = world();
    let mut pi = world.coordinator();
    assert_eq!(pi.report(None, None, true).outcome, Outcome::Accepted);
    let unwatched = pi
        .client
        .request(Operation::ViewSessionUnwatch, None, &json!({"subscriptionId": "s"}));
    assert_eq!(unwatched.outcome, Outcome::Accepted);
    let refused = pi.report(None, None, true);
    assert_eq!(reason(&refused), (Outcome::Rejected, "stale_coordinator".to_owned()));
    let epoch = pi.epoch();
    drop(pi);
    let again = world.coordinator();
    assert!(again.epoch() > epoch && again.view.branch_report_required);
}

#[test]
fn a_turn_that_began_before_its_message_was_confirmed_is_reported_again() {
    let world = world();
    world.start("a");
    let mut pi = world.coordinator();
    let view = pi.until("the end", |view| view.workflow_message.is_some());
    let message = view.workflow_message.clone().unwrap();
    let pair = (message.workflow_message_id, message.run_id);
    let early = pi.turn(&pair, "t", None);
    assert_eq!(reason(&early), (Outcome::Rejected, "message_not_sent".to_owned()));
    assert_eq!(
        pi.report(Some(&pair.0), Some("entry"), false).outcome,
        Outcome::Accepted
    );
    assert_eq!(pi.owned(&pair, "t", None), TurnOwnership::Active);
    assert_eq!(pi.owned(&pair, "t", Some("error")), TurnOwnership::Settled);
}

#[test]
fn a_turn_survives_a_restart_of_the_server_and_is_lost_by_an_idle_report() {
    let world = world();
    world.start("a");
    let mut pi = world.coordinator();
    let message = pi.deliver("entry");
    assert_eq!(pi.owned(&message, "t", None), TurnOwnership::Active);
    let epoch = pi.epoch();
    drop(pi);
    let World { server, project } = world;
    let (ended, dir) = server.stop();
    ended.expect("stopped");
    let exe = child::executable(dir.path(), "child_entry", "");
    let world = World {
        server: TestServer::start_in(dir, exe),
        project,
    };
    let mut pi = world.coordinator();
    assert!(pi.epoch() > epoch, "epochs grow over the lives of the server");
    let turn = pi
        .view
        .open_workflow_turn
        .as_ref()
        .expect("no start of a server loses a turn");
    assert_eq!(turn.workflow_turn_id, "t");
    assert!(pi.view.branch_report_required);
    assert_eq!(
        pi.report(Some(&message.0), Some("entry"), true).outcome,
        Outcome::Accepted
    );
    let view = pi.until("the loss", |view| view.open_workflow_turn.is_none());
    assert!(view.workflow_message.is_none());
    let late = pi.turn(&message, "t", Some("completed"));
    let receipt: TurnReceipt = late.receipt.unwrap().decode().unwrap();
    assert_eq!(receipt.turn.unwrap().stop_reason.map(StopReason::name), Some("lost"));
}

#[test]
fn notices_go_out_one_after_the_other_and_start_no_turn() {
    let world = world();
    world.start("a:notify b:notify c:gate");
    let mut pi = world.coordinator();
    for (order, text) in [(1, "a is done"), (2, "b is done")] {
        let view = pi.until("a notice", |view| {
            view.workflow_message
                .as_ref()
                .is_some_and(|message| message.order == order)
        });
        let message = view.workflow_message.as_ref().unwrap();
        assert!(!message.starts_turn);
        assert_eq!(message.content["content"], json!(text));
        assert_eq!(message.content["customType"], json!("pi-workflows-notification"));
        let id = message.workflow_message_id.clone();
        assert_eq!(pi.deliver(&format!("entry-{order}")).0, id, "the older one goes first");
    }
    pi.until("quiet", |view| view.workflow_message.is_none());
    world.open("c");
    pi.until("the end", |view| {
        view.workflow_message
            .as_ref()
            .is_some_and(|message| message.kind == MessageKind::Terminal)
    });
}

#[test]
fn every_message_of_a_run_stays_readable_in_pages() {
    let world = world();
    let run = world.start("a:notify b:notify");
    let mut pi = world.coordinator();
    pi.until("the end", |view| {
        view.run.as_ref().is_some_and(|run| run.finished_at.is_some())
    });
    let page = json!({"kind": "workflow_messages", "cursor": 0});
    let response = pi.client.request(Operation::ViewPage, Some(&run), &page);
    let page = response.receipt.expect("a page").to_value();
    assert_eq!(page["total"], json!(3));
    let kinds: Vec<&Value> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["kind"])
        .collect();
    assert_eq!(kinds, ["notification", "notification", "terminal"]);
}

#[test]
fn the_node_window_moves_and_returns() {
    let world = world();
    let script: Vec<String> = (0..60)
        .map(|n| format!("n{n}"))
        .chain(["last:gate".to_owned()])
        .collect();
    world.start(&script.join(" "));
    let mut pi = world.coordinator();
    let view = pi.until("the gate", |view| {
        view.run
            .as_ref()
            .is_some_and(|run| run.current_node.as_deref() == Some("last"))
    });
    let run = view.run.as_ref().unwrap();
    assert_eq!((run.node_start, run.nodes.len(), run.node_total), (29, 32, 61));
    let mut window = |cursor: Value| {
        let payload = json!({"subscriptionId": "s", "cursor": cursor});
        let response = pi.client.request(Operation::ViewSessionWindow, None, &payload);
        assert_eq!(response.outcome, Outcome::Accepted, "{:?}", response.error);
        let view = next_view(&mut pi.client);
        let run = view.run.unwrap();
        (
            run.node_start,
            run.nodes.first().map(|row| row.node_id.clone()).unwrap(),
            run.nodes.len(),
        )
    };
    assert_eq!(window(json!(5)), (5, "n5".to_owned(), 32));
    assert_eq!(window(json!(58)), (58, "n58".to_owned(), 3));
    assert_eq!(
        window(json!(1_000_000)),
        (60, "last".to_owned(), 1),
        "past the end is the end"
    );
    assert_eq!(window(json!(null)), (29, "n29".to_owned(), 32));
    let nobody = json!({"subscriptionId": "other", "cursor": 1});
    let response = pi.client.request(Operation::ViewSessionWindow, None, &nobody);
    assert_eq!(
        reason(&response),
        (Outcome::NotFound, "subscription_not_found".to_owned())
    );
}
