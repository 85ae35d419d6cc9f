//! Runs through a whole server with scripted children (see `support/child.rs`).
use std::fs;
use std::path::{Path, PathBuf};

use crate::child;
use crate::support::{RawClient, TestServer, wait_until};
use piw_process::{Liveness, ProcessIdentity};
use piw_protocol::envelope::{Outcome, Response};
use piw_protocol::ops::{Operation, RunReceipt, ServerStatusReport};
use piw_protocol::run::RunStatus;
use serde_json::{Value, json};

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
    fn payload(&self, script: &str) -> Value {
        json!({"workflow": script, "projectPath": self.project, "input": {"n": 1}})
    }

    /// Starts a run and returns its id.
    fn start(&self, script: &str) -> String {
        let response = self
            .server
            .client()
            .request(Operation::RunStart, None, &self.payload(script));
        receipt(&response).run_id
    }

    fn control(&self, operation: Operation, run_id: &str) -> Response {
        self.server.client().request(operation, Some(run_id), &json!({}))
    }

    fn status(&self, run_id: &str) -> RunStatus {
        receipt(&self.control(Operation::RunStatus, run_id)).status
    }

    fn wait_status(&self, run_id: &str, status: RunStatus) {
        wait_until(&format!("run {run_id} is {status:?}"), || self.status(run_id) == status);
    }

    fn server_status(&self) -> ServerStatusReport {
        let response = self.server.client().request(Operation::ServerStatus, None, &json!({}));
        response.receipt.unwrap().decode().unwrap()
    }

    fn wait_no_runner(&self) {
        wait_until("no runner is left", || self.server_status().active_runners == 0);
    }

    /// Executed nodes in order.
    fn executed(&self) -> Vec<String> {
        executed(&self.project)
    }

    fn wait_executed(&self, count: usize) {
        wait_until(&format!("{count} nodes began"), || self.executed().len() >= count);
    }

    fn open(&self, gate: &str) {
        fs::write(self.project.join(format!("{gate}.go")), "").unwrap();
    }
}

fn executed(project: &Path) -> Vec<String> {
    fs::read_to_string(project.join("log"))
        .unwrap_or_default()
        .lines()
        .map(ToOwned::to_owned)
        .collect()
}

fn receipt(response: &Response) -> RunReceipt {
    assert!(response.outcome.is_success(), "{response:?}");
    response.receipt.as_ref().unwrap().decode().unwrap()
}

fn reason(response: &Response) -> String {
    response
        .error
        .as_ref()
        .unwrap_or_else(|| panic!("no error: {response:?}"))
        .reason
        .clone()
}

#[test]
fn a_run_executes_every_node_once_and_completes() {
    let world = world();
    let run = world.start("a b c");
    world.wait_status(&run, RunStatus::Completed);
    assert_eq!(world.executed(), ["a", "b", "c"]);
    world.wait_no_runner();
    let children: Value = serde_json::from_slice(&fs::read(world.server.places.children()).unwrap()).unwrap();
    assert_eq!(children["children"], json!([]));
}

#[test]
fn a_failing_node_fails_its_run() {
    let world = world();
    let run = world.start("a b:fail c");
    world.wait_status(&run, RunStatus::Failed);
    assert_eq!(world.executed(), ["a", "b"]);
}

#[test]
fn starts_that_cannot_be_are_refused_with_their_cause_and_a_receipt() {
    let world = world();
    let mut client = world.server.client();
    let mut refused = |payload: &Value, key: &str| {
        let response = client.command(Operation::RunStart, None, payload, key);
        assert_eq!(response.outcome, Outcome::Rejected, "{response:?}");
        let again = client.command(Operation::RunStart, None, payload, key);
        assert_eq!((again.outcome, &again.error), (Outcome::Rejected, &response.error));
        response.error.unwrap()
    };
    let error = refused(&world.payload("!refuse"), "1");
    assert_eq!(error.cause.unwrap().message, "line 3: nonsense");
    let error = refused(&world.payload("!unsupported"), "2");
    assert_eq!(error.reason, "unsupported");
    assert!(error.message.contains("node one is a human decision"));
    let error = refused(&world.payload("!agentless"), "2b");
    assert_eq!(error.reason, "agent_unavailable");
    assert!(
        error.message.contains("has agent steps, but no agent is configured"),
        "{}",
        error.message
    );
    let error = refused(&world.payload("!die"), "3");
    assert_eq!(error.reason, "workflow_crashed");
    assert!(error.message.contains("exit status: 3"), "{}", error.message);
    let error = refused(&json!({"workflow": "a", "projectPath": "relative"}), "4");
    assert!(error.message.contains("must be absolute"));
    let error = refused(&json!({"workflow": "a", "projectPath": "/does/not/exist"}), "5");
    assert!(error.message.contains("/does/not/exist"));
    let error = refused(&json!({"projectPath": world.project}), "6");
    assert!(error.message.contains("workflow"), "{}", error.message);
    let missing = json!({"sha256": "0".repeat(64), "bytes": 7, "mediaType": "application/json"});
    let error = refused(
        &json!({"workflow": "a", "projectPath": world.project, "inputContent": missing}),
        "7",
    );
    assert_eq!(error.reason, "content_not_found");
    assert_eq!(world.executed(), Vec::<String>::new());
}

#[test]
fn a_retry_of_a_start_joins_it_and_then_finds_its_receipt() {
    let world = world();
    let payload = json!({"workflow": "!slow", "projectPath": world.project});
    let mut first = world.server.client().named("shell");
    let request = first.send(Operation::RunStart, None, &payload, "the-key");
    let mut second = world.server.client().named("shell");
    second.send(Operation::RunStart, None, &payload, "the-key");
    let mut other = world.server.client().named("shell");
    wait_until("the first is in work", || {
        let response = other.command(Operation::RunStart, None, &world.payload("a"), "the-key");
        response.outcome == Outcome::Conflict
    });
    world.open("resolve");
    let answer = |client: &mut RawClient| match client.next().unwrap() {
        piw_protocol::envelope::ServerMessage::Response(response) => response,
        other => panic!("{other:?}"),
    };
    let (one, two) = (answer(&mut first), answer(&mut second));
    assert_eq!(one.request_id, request);
    let outcomes = [one.outcome, two.outcome];
    assert!(
        outcomes.contains(&Outcome::Accepted) && outcomes.contains(&Outcome::Adopted),
        "{outcomes:?}"
    );
    assert_eq!(receipt(&one).run_id, receipt(&two).run_id);
    let late = first.command(Operation::RunStart, None, &payload, "the-key");
    assert_eq!(
        (late.outcome, receipt(&late).run_id),
        (Outcome::Adopted, receipt(&one).run_id)
    );
    world.wait_status(&receipt(&one).run_id, RunStatus::Completed);
    assert_eq!(world.executed(), ["one"]);
}

#[test]
fn a_large_input_travels_by_content() {
    let world = world();
    let mut client = world.server.client();
    let bytes = format!("\"{}\"", "x".repeat(1_500_000)).into_bytes();
    let content = json!({
        "sha256": piw_protocol::canonical::sha256_hex(&bytes), "bytes": bytes.len(), "mediaType": "application/json",
    });
    let mut offset = 0;
    for chunk in bytes.chunks(512 * 1024) {
        let complete = offset + chunk.len() == bytes.len();
        let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, chunk);
        let put = json!({"content": content, "offset": offset, "data": data, "complete": complete});
        let response = client.request(Operation::ContentPut, None, &put);
        assert_eq!(response.outcome, Outcome::Accepted, "{response:?}");
        offset += chunk.len();
    }
    let start = json!({"workflow": "a", "projectPath": world.project, "inputContent": content});
    let run = receipt(&client.request(Operation::RunStart, None, &start)).run_id;
    world.wait_status(&run, RunStatus::Completed);
    // An inline input close to the frame limit passes, too.
    let start = json!({"workflow": "a", "projectPath": world.project, "input": "y".repeat(900_000)});
    let run = receipt(&client.request(Operation::RunStart, None, &start)).run_id;
    world.wait_status(&run, RunStatus::Completed);
    assert!(
        !world.server.places.scratch().exists() || fs::read_dir(world.server.places.scratch()).unwrap().count() == 0
    );
}

#[test]
fn a_paused_run_holds_no_runner_and_goes_on_after_resume() {
    let world = world();
    let run = world.start("a b:hang c");
    world.wait_executed(2);
    let paused = world.control(Operation::RunPause, &run);
    assert_eq!(paused.outcome, Outcome::Accepted, "{paused:?}");
    world.wait_no_runner();
    assert_eq!(world.status(&run), RunStatus::Running);
    assert_eq!(world.control(Operation::RunResume, &run).outcome, Outcome::Accepted);
    world.wait_executed(3);
    assert_eq!(world.executed(), ["a", "b", "b"]);
    assert_eq!(world.control(Operation::RunCancel, &run).outcome, Outcome::Accepted);
    world.wait_status(&run, RunStatus::Cancelled);
    world.wait_no_runner();
}

#[test]
fn a_cancelled_runner_that_obeys_nothing_is_killed_with_its_groups() {
    let world = world();
    let run = world.start("a:group");
    let pid_file = world.project.join("a.pid");
    wait_until("the group runs", || {
        fs::read_to_string(&pid_file).is_ok_and(|pid| !pid.is_empty())
    });
    let pid: u32 = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    let group = ProcessIdentity::of(pid).unwrap().unwrap();
    assert_eq!(world.control(Operation::RunCancel, &run).outcome, Outcome::Accepted);
    world.wait_status(&run, RunStatus::Cancelled);
    world.wait_no_runner();
    assert_ne!(group.liveness().unwrap(), Liveness::Running);
}

#[test]
fn a_crashing_node_is_executed_again_and_parks_after_three_crashes() {
    let world = world();
    let run = world.start("a b:crashonce c");
    world.wait_status(&run, RunStatus::Completed);
    assert_eq!(world.executed(), ["a", "b", "b", "c"]);
    let run = world.start("d:crash");
    // Between two attempts it is parked for a moment too.
    world.wait_executed(4 + 3);
    wait_until("it parks", || world.server_status().parked == 1);
    world.wait_no_runner();
    assert_eq!(world.status(&run), RunStatus::Running);
    assert_eq!(world.executed().iter().filter(|node| *node == "d").count(), 3);
}

#[test]
fn a_checkpoint_waits_for_any_clients_answer_and_continues_in_a_new_run() {
    let world = world();
    let run = world.start("a w:wait c");
    world.wait_status(&run, RunStatus::Waiting);
    world.wait_no_runner();
    let answer = json!({"answer": {"go": true}});
    let response = world
        .server
        .client()
        .request(Operation::CheckpointAnswer, Some(&run), &answer);
    let next = receipt(&response).new_run_id.unwrap();
    world.wait_status(&next, RunStatus::Completed);
    assert_eq!(world.status(&run), RunStatus::Completed);
    assert_eq!(world.executed(), ["a", "w", "c"]);
    let again = world
        .server
        .client()
        .request(Operation::CheckpointAnswer, Some(&run), &answer);
    assert_eq!(again.outcome, Outcome::Rejected, "{again:?}");
}

#[test]
fn controls_name_what_is_wrong() {
    let world = world();
    let unknown = world.control(Operation::RunPause, "no-such-run");
    assert_eq!(
        (unknown.outcome, reason(&unknown).as_str()),
        (Outcome::NotFound, "run_not_found")
    );
    let unnamed = world.server.client().request(Operation::RunCancel, None, &json!({}));
    assert!(unnamed.error.unwrap().message.contains("runId"));
    let run = world.start("a");
    world.wait_status(&run, RunStatus::Completed);
    for operation in [Operation::RunPause, Operation::RunResume, Operation::RunCancel] {
        let response = world.control(operation, &run);
        assert_eq!(response.outcome, Outcome::Rejected, "{operation:?}: {response:?}");
    }
}

#[test]
fn no_more_runners_than_allowed_execute_at_once_and_all_runs_end() {
    let world = world();
    let runs: Vec<String> = (0..6).map(|n| world.start(&format!("n{n}:gate"))).collect();
    world.wait_executed(4);
    let status = world.server_status();
    assert_eq!((status.active_runners, status.queued), (4, 2));
    for n in 0..6 {
        world.open(&format!("n{n}"));
    }
    for run in &runs {
        world.wait_status(run, RunStatus::Completed);
    }
}

#[test]
fn a_node_that_outruns_its_budget_and_its_runner_is_ended_by_the_server() {
    let world = world();
    let run = world.start("a:overrun");
    wait_until("it is taken from its runner", || {
        world.server_status().parked == 1 || world.executed().len() > 1
    });
    world.control(Operation::RunCancel, &run);
    world.wait_status(&run, RunStatus::Cancelled);
}

#[test]
fn a_stop_waits_for_nodes_names_what_executes_and_loses_nothing() {
    let world = world();
    let run = world.start("a b:gate c");
    world.wait_executed(2);
    let mut client = world.server.client();
    let refused = client.request(Operation::ServerStop, None, &json!({"waitMs": 50}));
    assert_eq!(
        (refused.outcome, reason(&refused).as_str()),
        (Outcome::Rejected, "nodes_running")
    );
    let message = refused.error.unwrap().message;
    assert!(message.contains("node b") && message.contains(&run), "{message}");
    // The runner was asked to stop: it leaves after the node, and the server that stayed claims the run again.
    world.open("b");
    world.wait_status(&run, RunStatus::Completed);
    assert_eq!(world.executed(), ["a", "b", "c"]);
}

#[test]
fn runs_survive_a_stop_and_go_on_in_the_next_server() {
    let World { server, project } = world();
    let start = json!({"workflow": "a b:gate c", "projectPath": project});
    let run = receipt(&server.client().request(Operation::RunStart, None, &start)).run_id;
    wait_until("b began", || executed(&project).len() == 2);
    let mut stopping = server.client();
    stopping.send(Operation::ServerStop, None, &json!({}), "stop");
    wait_until("admissions are closed", || {
        let response = server.client().request(Operation::ServerStatus, None, &json!({}));
        response.receipt.unwrap().decode::<ServerStatusReport>().unwrap().state == "stopping"
    });
    fs::write(project.join("b.go"), "").unwrap();
    let (ended, dir) = server.joined();
    ended.unwrap();
    assert_eq!(executed(&project), ["a", "b"]);
    let exe = dir.path().join("child.sh");
    let world = World {
        server: TestServer::start_in(dir, exe),
        project,
    };
    world.wait_status(&run, RunStatus::Completed);
    assert_eq!(world.executed(), ["a", "b", "c"]);
}
