//! Servers as processes of their own: started, raced, killed, reaped, stopped by signal.
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::child;
use crate::support::{PATIENCE, RawClient, wait_until};
use nix::sys::signal::Signal;
use piw_process::{Liveness, ProcessIdentity, group};
use piw_protocol::envelope::{Outcome, Response};
use piw_protocol::ops::{Operation, RunReceipt};
use piw_protocol::run::RunStatus;
use piw_server::paths::Places;
use piw_server::stop::{stop_by_signal, wait_until_gone};
use piw_server::{StartError, StartOptions, Started, ensure_started, lock};
use serde_json::{Value, json};

/// A state directory, a project and an executable; whatever server runs there is stopped at the end.
struct World {
    _dir: tempfile::TempDir,
    start: StartOptions,
    places: Places,
    project: PathBuf,
}

fn world(environment: &str) -> World {
    let dir = tempfile::tempdir().unwrap();
    let executable = child::executable(dir.path(), "child_entry", environment);
    let places = Places::new(dir.path().join("state"), None).unwrap();
    let project = dir.path().join("project");
    fs::create_dir(&project).unwrap();
    let project = fs::canonicalize(project).unwrap();
    let start = StartOptions {
        places: places.clone(),
        executable,
        timeout: PATIENCE,
    };
    World {
        _dir: dir,
        start,
        places,
        project,
    }
}

impl World {
    fn server(&self) -> ProcessIdentity {
        let record = lock::read_record(&self.places).expect("a lock record");
        ProcessIdentity {
            pid: record.pid,
            start: record.start_identity,
        }
    }

    /// SIGKILL, and wait until the process is gone.
    fn kill_server(&self) {
        let server = self.server();
        assert!(group::signal_process(&server, Signal::SIGKILL).unwrap());
        wait_until("the server is gone", || server.liveness().unwrap() != Liveness::Running);
    }

    fn client(&self) -> RawClient {
        RawClient::connect(&self.places)
    }

    fn start_payload(&self, script: &str) -> Value {
        json!({"workflow": script, "projectPath": self.project})
    }

    fn start_run(&self, script: &str) -> String {
        receipt(
            &self
                .client()
                .request(Operation::RunStart, None, &self.start_payload(script)),
        )
        .run_id
    }

    fn wait_status(&self, run: &str, status: RunStatus) {
        let mut client = self.client();
        wait_until(&format!("{run} is {status:?}"), || {
            receipt(&client.request(Operation::RunStatus, Some(run), &json!({}))).status == status
        });
    }

    fn executed(&self) -> Vec<String> {
        let log = fs::read_to_string(self.project.join("log")).unwrap_or_default();
        log.lines().map(ToOwned::to_owned).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = stop_by_signal(&self.places, Duration::ZERO, true);
    }
}

fn receipt(response: &Response) -> RunReceipt {
    assert!(response.outcome.is_success(), "{response:?}");
    response.receipt.as_ref().unwrap().decode().unwrap()
}

#[test]
fn clients_that_start_at_once_get_one_server_and_successes() {
    let world = world("");
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let options = world.start.clone();
            thread::spawn(move || ensure_started(&options))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(lock::read_record(&world.places).unwrap().epoch, 1);
    assert_eq!(ensure_started(&world.start).unwrap(), Started::AlreadyRunning);
    let log = fs::read_to_string(world.places.log()).unwrap();
    assert_eq!(log.matches("ready").count(), 1, "{log}");
}

#[test]
fn a_start_up_error_reaches_whoever_asked() {
    let world = world("");
    world.places.prepare().unwrap();
    let database = world.places.state_dir.join("state.sqlite");
    fs::write(&database, vec![7; 4096]).unwrap();
    let error = ensure_started(&world.start).unwrap_err();
    let StartError::Refused { class, message } = &error else {
        panic!("{error}")
    };
    assert_eq!(class, "database");
    assert!(message.contains("not a SQLite database"), "{message}");
    assert_eq!(
        fs::read(&database).unwrap(),
        vec![7; 4096],
        "the file is left as it was"
    );
    assert!(!world.places.socket.exists());
}

#[test]
fn an_executable_that_is_no_server_is_reported() {
    let mut world = world("");
    world.start.executable = "/bin/true".into();
    let error = ensure_started(&world.start).unwrap_err();
    assert!(matches!(error, StartError::Died { .. }), "{error}");
    world.start.executable = "/no/such/file".into();
    assert!(matches!(ensure_started(&world.start), Err(StartError::Spawn(_))));
}

#[test]
fn an_idle_server_exits_and_the_next_start_brings_another() {
    let world = world("PIW_IDLE_EXIT_SECONDS=1");
    ensure_started(&world.start).unwrap();
    let run = world.start_run("a b");
    world.wait_status(&run, RunStatus::Completed);
    assert!(wait_until_gone(&world.places, PATIENCE));
    assert!(!world.places.socket.exists());
    ensure_started(&world.start).unwrap();
    world.wait_status(&run, RunStatus::Completed);
}

#[test]
fn a_client_keeps_an_idle_server() {
    let world = world("PIW_IDLE_EXIT_SECONDS=1");
    ensure_started(&world.start).unwrap();
    let mut client = world.client();
    assert!(!wait_until_gone(&world.places, Duration::from_millis(1500)));
    assert_eq!(
        client.request(Operation::ServerStatus, None, &json!({})).outcome,
        Outcome::Accepted
    );
}

#[test]
fn a_killed_servers_run_goes_on_in_the_next_without_repeating_finished_nodes() {
    let world = world("");
    ensure_started(&world.start).unwrap();
    let run = world.start_run("a b:gate c");
    wait_until("b began", || world.executed().len() == 2);
    world.kill_server();
    assert!(world.places.socket.exists(), "a killed server leaves its socket");
    ensure_started(&world.start).unwrap();
    assert_eq!(lock::read_record(&world.places).unwrap().epoch, 2);
    fs::write(world.project.join("b.go"), "").unwrap();
    world.wait_status(&run, RunStatus::Completed);
    let executed = world.executed();
    assert_eq!(executed.iter().filter(|node| *node == "a").count(), 1, "{executed:?}");
    assert_eq!(executed.iter().filter(|node| *node == "c").count(), 1, "{executed:?}");
}

#[test]
fn a_command_whose_answer_was_lost_with_the_server_is_adopted() {
    let world = world("");
    ensure_started(&world.start).unwrap();
    let payload = world.start_payload("a");
    let first = world
        .client()
        .named("shell")
        .command(Operation::RunStart, None, &payload, "key");
    world.kill_server();
    ensure_started(&world.start).unwrap();
    let retried = world
        .client()
        .named("shell")
        .command(Operation::RunStart, None, &payload, "key");
    assert_eq!(retried.outcome, Outcome::Adopted);
    assert_eq!(receipt(&retried).run_id, receipt(&first).run_id);
    world.wait_status(&receipt(&first).run_id, RunStatus::Completed);
}

#[test]
fn a_server_killed_while_it_decides_leaves_nothing_or_a_run_and_the_retry_gets_one() {
    let world = world("");
    ensure_started(&world.start).unwrap();
    let payload = world.start_payload("!slow");
    let mut client = world.client().named("shell");
    client.send(Operation::RunStart, None, &payload, "key");
    wait_until("a resolver runs", || {
        fs::read_to_string(world.places.children()).is_ok_and(|text| text.contains("resolver"))
    });
    world.kill_server();
    assert!(client.next().is_none());
    ensure_started(&world.start).unwrap();
    fs::write(world.project.join("resolve.go"), "").unwrap();
    let retried = world
        .client()
        .named("shell")
        .command(Operation::RunStart, None, &payload, "key");
    let run = receipt(&retried).run_id;
    world.wait_status(&run, RunStatus::Completed);
    assert_eq!(world.executed(), ["one"]);
}

#[test]
fn groups_that_outlive_a_killed_server_are_ended_by_the_next() {
    let world = world("");
    ensure_started(&world.start).unwrap();
    let run = world.start_run("a:group");
    let pid_file = world.project.join("a.pid");
    wait_until("the group runs", || {
        fs::read_to_string(&pid_file).is_ok_and(|pid| !pid.is_empty())
    });
    let pid = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    let orphan = ProcessIdentity::of(pid).unwrap().unwrap();
    world.kill_server();
    assert_eq!(orphan.liveness().unwrap(), Liveness::Running);
    ensure_started(&world.start).unwrap();
    assert_ne!(
        orphan.liveness().unwrap(),
        Liveness::Running,
        "reaped before the socket accepts"
    );
    let cancelled = world.client().request(Operation::RunCancel, Some(&run), &json!({}));
    assert_eq!(cancelled.outcome, Outcome::Accepted, "{cancelled:?}");
}

#[test]
fn a_signal_lets_nodes_finish_and_a_second_one_ends_them() {
    let world = world("");
    ensure_started(&world.start).unwrap();
    let server = world.server();
    let run = world.start_run("a:deaf");
    wait_until("a began", || world.executed().len() == 1);
    stop_by_signal(&world.places, Duration::ZERO, true).unwrap();
    assert_eq!(server.liveness().unwrap(), Liveness::Gone);
    assert!(!world.places.lock_record().exists());
    ensure_started(&world.start).unwrap();
    wait_until("it is tried again", || world.executed().len() == 2);
    let cancelled = world.client().request(Operation::RunCancel, Some(&run), &json!({}));
    assert_eq!(cancelled.outcome, Outcome::Accepted, "{cancelled:?}");
}

#[test]
fn a_runner_registers_only_direct_children_that_lead_groups_of_their_own() {
    let world = world("");
    ensure_started(&world.start).unwrap();
    let run = world.start_run("a:borrow");
    world.wait_status(&run, RunStatus::Completed);
    let refusals = fs::read_to_string(world.project.join("a.refused")).unwrap();
    let refusals: Vec<&str> = refusals.lines().collect();
    assert!(refusals[0].contains("does not lead a group of its own"), "{refusals:?}");
    assert!(
        refusals[1].contains("is no direct child of this runner"),
        "{refusals:?}"
    );
    assert!(refusals[2].contains("does not exist"), "{refusals:?}");
}
