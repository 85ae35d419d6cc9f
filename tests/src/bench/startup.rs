//! From a spawn to ready, and from a command to its end: warm, cold.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use piw_process::role::{RoleSetup, prepare};
use piw_protocol::child::{CHILD_PROTOCOL_VERSION, ChildBody, ChildMessage, LAUNCH_SCHEMA, RunnerLaunch};
use piw_protocol::run::SourceMap;
use piw_protocol::{canonical, frame};

use super::table::{Bar, Row};
use super::workloads;
use crate::home::{Home, piw_binary};

/// `piw run` of a one-node compute workflow, server running.
#[must_use]
pub fn warm(samples: usize) -> Row {
    let home = Home::new();
    home.workflow("one-node", workloads::ONE_NODE);
    let _ = home.piw(&["run", "one-node", "--json"]).exits(0);
    let times: Vec<Duration> = (0..samples).map(|_| timed_run(&home)).collect();
    Row::millis("`piw run` of one compute node, server warm", Bar::AtMost(60.0), &times)
}

/// The same with no server running: start, run, done.
#[must_use]
pub fn cold(samples: usize) -> Row {
    let times: Vec<Duration> = (0..samples)
        .map(|_| {
            let home = Home::new();
            home.workflow("one-node", workloads::ONE_NODE);
            timed_run(&home)
        })
        .collect();
    Row::millis("the same, no server running", Bar::AtMost(150.0), &times)
}

fn timed_run(home: &Home) -> Duration {
    let start = Instant::now();
    let _ = home.piw(&["run", "one-node", "--json"]).exits(0);
    start.elapsed()
}

/// Runner spawn to `runner.ready` with a small workflow loaded, without a server in between.
///
/// # Errors
/// When a runner cannot be spawned or does not become ready.
pub fn ready(samples: usize) -> Result<Row, Box<dyn std::error::Error>> {
    let home = Home::new();
    home.workflow("one-node", workloads::ONE_NODE);
    let run = home.piw(&["run", "one-node", "--json"]).exits(0).json();
    let view = home.show(run["runId"].as_str().ok_or("a run id")?);
    let sources: SourceMap = serde_json::from_value(view["state"]["workflowSources"].clone())?;
    let launch = RunnerLaunch {
        schema: LAUNCH_SCHEMA.to_owned(),
        run_id: "bench".to_owned(),
        generation: 1,
        runner_epoch: "bench".to_owned(),
        project_path: home.project().to_string_lossy().into_owned(),
        workflow_source: sources,
        definition_digest: view["state"]["definitionDigest"].as_str().ok_or("a digest")?.to_owned(),
        input_hash: canonical::digest(&serde_json::json!({})),
        protocol_version: CHILD_PROTOCOL_VERSION,
        global_dir: None,
        interactive: false,
    };
    let launch = frame::encode(&launch)?;
    let times = (0..samples)
        .map(|_| spawn_to_ready(&home, &launch))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Row::millis(
        "runner spawn → ready, small workflow",
        Bar::AtMost(15.0),
        &times,
    ))
}

fn spawn_to_ready(home: &Home, launch: &[u8]) -> Result<Duration, Box<dyn std::error::Error>> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(piw_binary());
    command.args(["internal", "runner"]).current_dir(home.project());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    prepare(
        &mut command,
        RoleSetup {
            channel: theirs.into(),
            die_with_thread: true,
            open_files: None,
        },
    )?;
    let start = Instant::now();
    let mut child = command.spawn()?;
    drop(command);
    ours.write_all(launch)?;
    let mut decoder = frame::Decoder::new();
    let mut buffer = [0; 4096];
    let taken = loop {
        let count = ours.read(&mut buffer)?;
        if count == 0 {
            return Err("the runner closed its channel before it was ready".into());
        }
        decoder.push(&buffer[..count]);
        if let Some(bytes) = decoder.next_frame()? {
            let message: ChildMessage = serde_json::from_slice(&bytes)?;
            if !matches!(message.body, ChildBody::Ready { .. }) {
                return Err(format!("the runner said {:?} instead of ready", message.body).into());
            }
            break start.elapsed();
        }
    };
    // Without its channel the runner leaves by itself.
    drop(ours);
    child.wait()?;
    Ok(taken)
}
