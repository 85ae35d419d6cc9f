//! Durable steps a second, alone and together, and what they write.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::memory;
use super::table::{Bar, Row};
use super::workloads;
use crate::home::Home;

/// Pause between two looks at a run.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest run.
const LONGEST: Duration = Duration::from_secs(600);

/// Rates and costs of chains of trivial compute steps.
pub struct Chains {
    /// Every row.
    pub rows: Vec<Row>,
}

/// Runs `count` chains of `steps` at once in a new home; returns steps/s over all.
fn together(home: &Home, count: usize, steps: u64) -> f64 {
    let input = format!("{{\"steps\":{steps}}}");
    let ids: Vec<String> = (0..count)
        .map(|_| {
            let started = home
                .piw(&["run", "chain", "--input", &input, "--detach", "--json"])
                .exits(0)
                .json();
            started["runId"].as_str().expect("a run id").to_owned()
        })
        .collect();
    let views: Vec<Value> = ids.iter().map(|id| end_of(home, id)).collect();
    let first = views
        .iter()
        .map(|view| instant(&view["manifest"]["startedAt"]))
        .fold(f64::INFINITY, f64::min);
    let last = views
        .iter()
        .map(|view| instant(&view["manifest"]["finishedAt"]))
        .fold(0.0, f64::max);
    for view in &views {
        assert_eq!(view["display"]["status"], "completed");
        assert_eq!(view["stepTotal"], steps);
    }
    #[expect(clippy::cast_precision_loss, reason = "step counts are far below 2^52")]
    let total = (count as u64 * steps) as f64;
    total / (last - first)
}

/// Waits for the end of a run; returns its view. Rates come from the run's own times, so it asks seldom: every question is a
/// process and a view, which would take the processors from what is measured.
fn end_of(home: &Home, run_id: &str) -> Value {
    let start = Instant::now();
    loop {
        let view = home.show(run_id);
        if !view["manifest"]["finishedAt"].is_null() {
            return view;
        }
        assert!(start.elapsed() < LONGEST, "run {run_id} does not end");
        std::thread::sleep(PAUSE);
    }
}

/// Seconds since the epoch of an RFC 3339 text.
fn instant(value: &Value) -> f64 {
    let text = value.as_str().expect("a timestamp");
    let timestamp: jiff::Timestamp = text.parse().expect("RFC 3339");
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch are below 2^52")]
    let millis = timestamp.as_millisecond() as f64;
    millis / 1e3
}

/// Measures chains against the step-shaped commit rate of the same disk.
///
/// # Panics
/// When a run fails or the server's figures cannot be read.
#[must_use]
pub fn chains(step_rate: f64, long: u64) -> Chains {
    let home = Home::new().env("PIW_MAX_RUNNERS", "16");
    home.workflow("chain", workloads::CHAIN);
    let _ = together(&home, 1, 10);
    let mut rows = Vec::new();
    let alone: Vec<f64> = (0..5).map(|_| together(&home, 1, 1000)).collect();
    rows.push(Row::new(
        "chain of 1,000 compute steps, one run",
        "steps/s",
        Bar::AtLeast(0.5 * step_rate),
        &alone,
    ));
    let many: Vec<f64> = (0..3).map(|_| together(&home, 16, 500)).collect();
    rows.push(Row::new(
        "16 runs at once, 500 steps each",
        "steps/s",
        Bar::AtLeast(step_rate),
        &many,
    ));

    let server = home.server_pid().expect("the server runs");
    let database = home.state().join("state.sqlite");
    let written = memory::written_bytes(server).expect("the server's counters");
    let size = file_size(&database);
    let rate = together(&home, 1, long);
    #[expect(clippy::cast_precision_loss, reason = "step counts are far below 2^52")]
    let steps = long as f64;
    let written = (memory::written_bytes(server).expect("the server's counters") - written) / steps / 1024.0;
    rows.push(Row::new(
        format!("chain of {long} steps, one run"),
        "steps/s",
        Bar::AtLeast(0.5 * step_rate),
        &[rate],
    ));
    rows.push(Row::new(
        "server resident memory after it",
        "MiB",
        Bar::AtMost(25.0),
        &[resident(server)],
    ));
    rows.push(Row::new(
        "server peak memory, a 50 MB output stored and read back after it",
        "MiB",
        Bar::AtMost(25.0),
        &[peak_of_large_output(&home, server)],
    ));
    let _ = home.piw(&["server", "stop"]).exits(0);
    let growth = (file_size(&database) - size) / steps / 1024.0;
    rows.push(Row::new(
        "database growth per step after a checkpoint",
        "KiB",
        Bar::AtMost(2.0),
        &[growth],
    ));
    rows.push(Row::new(
        "written per step (WAL and checkpoints)",
        "KiB",
        Bar::AtMost(64.0),
        &[written],
    ));
    Chains { rows }
}

/// Stores an output of 50 MB and reads it back; returns the most memory that the server ever had resident, in MiB.
fn peak_of_large_output(home: &Home, server: i32) -> f64 {
    home.workflow("large", workloads::LARGE);
    let started = home.piw(&["run", "large", "--detach", "--json"]).exits(0).json();
    let id = started["runId"].as_str().expect("a run id");
    home.wait_for_end(id);
    let output = home.piw(&["show", id]).exits(0);
    assert!(!output.stdout.is_empty());
    memory::peak_mib(server).expect("the server's memory")
}

fn resident(pid: i32) -> f64 {
    memory::resident_mib(pid).expect("the server's memory")
}

#[expect(clippy::cast_precision_loss, reason = "file sizes are far below 2^52")]
fn file_size(path: &std::path::Path) -> f64 {
    std::fs::metadata(path).map_or(0.0, |metadata| metadata.len() as f64)
}

/// Memory of an idle server, of a runner, and of a server after 1,000 runs.
///
/// # Panics
/// When the figures cannot be read.
#[must_use]
pub fn memory_rows() -> Vec<Row> {
    let home = Home::new();
    home.workflow("sleep", workloads::SLEEP);
    home.workflow("one-node", workloads::ONE_NODE);
    let _ = home.piw(&["server", "start"]).exits(0);
    let server = home.server_pid().expect("the server runs");
    let mut rows = vec![Row::new(
        "server resident memory, idle",
        "MiB",
        Bar::AtMost(25.0),
        &[resident(server)],
    )];
    let started = home.piw(&["run", "sleep", "--detach", "--json"]).exits(0).json();
    let id = started["runId"].as_str().expect("a run id");
    let runner = crate::wait::until("the runner sleeps", || {
        (home.show(id)["state"]["currentNode"] == "sleep").then(|| memory::children(server, "runner"))
    });
    rows.push(Row::new(
        "runner resident memory, small workflow",
        "MiB",
        Bar::AtMost(20.0),
        &[resident(runner[0])],
    ));
    let _ = home.piw(&["cancel", id]).exits(0);
    for _ in 0..100 {
        let ids: Vec<String> = (0..10)
            .map(|_| {
                let started = home.piw(&["run", "one-node", "--detach", "--json"]).exits(0).json();
                started["runId"].as_str().expect("a run id").to_owned()
            })
            .collect();
        for id in ids {
            home.wait_for_end(&id);
        }
    }
    rows.push(Row::new(
        "server resident memory after 1,000 runs",
        "MiB",
        Bar::AtMost(25.0),
        &[resident(server)],
    ));
    rows
}
