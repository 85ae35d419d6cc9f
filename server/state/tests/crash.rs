//! A writer that is killed with SIGKILL in the middle of its work, as by a crash and as by a loss of power: what it
//! acknowledged is there, once.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{Flow, Runner, accepted, facts, identity_of, start};
use piw_state::{State, StateOptions, SystemClock, vfs};
use serde_json::json;

const DIR: &str = "PIW_STATE_TEST_CRASH_DIR";
const DISK: &str = "PIW_STATE_TEST_CRASH_DISK";

/// What lies under the killed process.
#[derive(Clone, Copy, PartialEq)]
enum Under {
    /// The real disk: the system's cache outlives the process.
    Disk,
    /// A disk that loses what was not synced.
    Volatile,
    /// The same, with a database that does not sync.
    WithoutSyncs,
}

fn open(dir: &Path) -> State {
    State::open(StateOptions {
        clock: Arc::new(SystemClock::new()),
        ..StateOptions::new(dir)
    })
    .expect("opens")
}

fn flow() -> Flow {
    Flow::new("a").compute("a").compute("b").edge("a", "b").edge("b", "a")
}

/// Not a test of its own: the process that is killed. It prints the number of steps after each acknowledgement.
#[tokio::test]
async fn killed_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    if std::env::var(DISK).is_ok() {
        let disk = vfs::lay_under(Path::new(&dir));
        disk.set_volatile(true);
        disk.open_without_syncs();
    }
    let state = open(Path::new(&dir));
    state.take_server_epoch(identity_of(1), None).await.expect("epoch");
    let id = start(&state, &flow(), "k").await;
    let mut out = std::io::stdout();
    writeln!(out, "\nrun {id}").expect("print");
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    for visit in 1.. {
        accepted(&runner.step("a", json!(visit), "b", visit).await);
        writeln!(out, "acked {}", 2 * visit - 1).expect("print");
        accepted(&runner.step("b", json!(visit), "a", visit + 1).await);
        writeln!(out, "acked {}", 2 * visit).expect("print");
        out.flush().expect("print");
    }
}

#[tokio::test]
async fn acknowledged_steps_survive_sigkill() {
    for kill_after in [1, 2, 17, 40] {
        check(kill_after, Under::Disk).await.expect("nothing is lost");
    }
}

#[tokio::test]
async fn acknowledged_steps_survive_a_loss_of_power() {
    for kill_after in [1, 2, 17, 40, 300] {
        check(kill_after, Under::Volatile).await.expect("nothing is lost");
    }
}

#[tokio::test]
async fn a_loss_of_power_without_syncs_is_noticed() {
    check(40, Under::WithoutSyncs).await.expect_err("steps are lost");
}

/// Kills a writer after so many steps and looks at what it left. `Err`: an acknowledged step is missing.
async fn check(kill_after: u64, under: Under) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("temp dir");
    // The database itself is made on the real disk: these tests are about what is written to it.
    open(dir.path()).close();
    let (id, acked) = killed(dir.path(), kill_after, under);
    let state = open(dir.path());
    state
        .take_server_epoch(identity_of(2), Some("server-1".to_owned()))
        .await
        .expect("the old one is gone");
    let recovered = state.recover().await.expect("recover");
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    if recovered.claimable == 0 {
        return Err("the run is lost".to_owned());
    }
    assert_eq!((recovered.claimable, recovered.parked), (1, 0));
    let steps = facts(&state, &id).await.3;
    // One commit may have happened whose acknowledgement was never printed.
    if !(acked..=acked + 1).contains(&steps) {
        return Err(format!("{acked} acknowledged, {steps} stored"));
    }
    let mut runner = Runner::launch(&state).await;
    let told = runner.command.clone().expect("command").state;
    assert_eq!(told.step_count, steps);
    let (node, next) = if steps % 2 == 0 { ("a", "b") } else { ("b", "a") };
    let visit = u32::try_from(steps / 2 + 1).expect("small");
    accepted(&runner.begin(node, visit).await);
    accepted(&runner.step(node, json!(0), next, visit + u32::from(node == "b")).await);
    state.close();
    Ok(())
}

/// Runs [`killed_process`] until it has acknowledged so many steps, then kills it. Returns the run and the acknowledged steps.
fn killed(dir: &Path, kill_after: u64, under: Under) -> (String, u64) {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "killed_process", "--nocapture"]).env(DIR, dir);
    match under {
        Under::Disk => {}
        Under::Volatile => {
            command.env("PIW_FAULT_VFS", "volatile");
        }
        Under::WithoutSyncs => {
            command.env(DISK, "without syncs");
        }
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let (mut id, mut acked) = (None, 0u64);
    while acked < kill_after {
        let line = lines.next().expect("the process goes on").expect("text");
        if let Some(run) = line.strip_prefix("run ") {
            id = Some(run.to_owned());
        } else if let Some(number) = line.strip_prefix("acked ") {
            acked = number.parse().expect("a number");
        }
    }
    child.kill().expect("kill");
    child.wait().expect("reap");
    // Whatever it printed between our reading and its death was acknowledged too.
    for line in lines.map_while(Result::ok) {
        acked = line
            .strip_prefix("acked ")
            .and_then(|number| number.parse().ok())
            .unwrap_or(acked);
    }
    (id.expect("an id"), acked)
}
