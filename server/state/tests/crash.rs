//! A writer that is killed with SIGKILL in the middle of its work: what it acknowledged is there, once.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{Flow, Runner, accepted, facts, identity_of, start};
use piw_state::{State, StateOptions, SystemClock};
use serde_json::json;

const DIR: &str = "PIW_STATE_TEST_CRASH_DIR";

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
    for kill_after in [1u64, 2, 17, 40] {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "killed_process", "--nocapture"])
            .env(DIR, dir.path())
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

        let state = open(dir.path());
        state
            .take_server_epoch(identity_of(2), Some("server-1".to_owned()))
            .await
            .expect("the old one is gone");
        let recovered = state.recover().await.expect("recover");
        assert_eq!((recovered.claimable, recovered.parked), (1, 0));
        assert_eq!(state.verify().await.expect("verify"), vec![]);
        let steps = facts(&state, &id.expect("an id")).await.3;
        // One commit may have happened whose acknowledgement was never printed.
        assert!(
            (acked..=acked + 1).contains(&steps),
            "{acked} acknowledged, {steps} stored"
        );
        let mut runner = Runner::launch(&state).await;
        let told = runner.command.clone().expect("command").state;
        assert_eq!(told.step_count, steps);
        let (node, next) = if steps % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let visit = u32::try_from(steps / 2 + 1).expect("small");
        accepted(&runner.begin(node, visit).await);
        accepted(&runner.step(node, json!(0), next, visit + u32::from(node == "b")).await);
        state.close();
    }
}
