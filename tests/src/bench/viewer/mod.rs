//! The viewer in a pseudo-terminal against a real server: every bar of its design.
//!
//! | module | measures |
//! | --- | --- |
//! | this one | commit to frame, processor time while nothing happens |
//! | [`keys`] | key to frame |
//! | [`layout`] | drawing large graphs |
//! | [`stored`] | opening among 10,000 runs, and a run of a million events |

pub mod keys;
pub mod layout;
pub mod stored;

use std::time::Duration;

use super::memory;
use super::table::{Bar, Row, percentile};
use super::workloads;
use crate::home::Home;
use crate::terminal::Terminal;

/// Measures some of the bars.
pub type Part = fn() -> Result<Vec<Row>, Box<dyn std::error::Error>>;

/// All bars of the viewer, one part after the other.
pub const PARTS: [Part; 5] = [
    || Ok(layout::rows()),
    stored::rows,
    || Ok(keys::rows()),
    || Ok(commit_to_frame(20)),
    || Ok(idle(Duration::from_secs(10))),
];

/// Commit to frame: from a node's recorded start to the frame that shows it as the current node.
///
/// The start's timestamp is taken inside the server just before the commit, so the figure includes the commit itself.
///
/// # Panics
/// When the run cannot be started or watched.
#[must_use]
pub fn commit_to_frame(nodes: usize) -> Vec<Row> {
    let home = Home::new();
    home.workflow("paced", &workloads::paced(nodes));
    let _ = home.piw(&["server", "start"]).exits(0);
    let started = home.piw(&["run", "paced", "--detach", "--json"]).exits(0).json();
    let id = started["runId"].as_str().expect("a run id").to_owned();
    let mut terminal = Terminal::start(&home, &[&id], 50, 160);
    let mut shown = Vec::new();
    for index in 0..nodes {
        let name = format!("n{index}");
        let at = terminal.wait(&format!("{name} is shown as running"), |screen| {
            shows_current(screen, &name)
        });
        shown.push((name, at, jiff::Timestamp::now(), std::time::Instant::now()));
    }
    let view = home.wait_for_end(&id);
    let mut samples = Vec::new();
    // The first nodes may have started before the viewer was there.
    for (name, at, wall, instant) in shown.into_iter().skip(3) {
        let steps = view["state"]["steps"].as_array().expect("steps");
        let step = steps
            .iter()
            .find(|step| step["nodeId"] == *name)
            .expect("the node's step");
        let begun: jiff::Timestamp = step["startedAt"].as_str().expect("a time").parse().expect("RFC 3339");
        let seen = wall.as_microsecond() - i64::try_from((instant - at).as_micros()).unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "differences are small")]
        samples.push((seen - begun.as_microsecond()) as f64 / 1e3);
    }
    samples.sort_by(f64::total_cmp);
    let worst = percentile(&samples, 0.99);
    vec![
        Row::new(
            "node start committed → frame shows it, median",
            "ms",
            Bar::AtMost(30.0),
            &samples,
        ),
        Row::new("the same, p99", "ms", Bar::AtMost(30.0), &[worst]),
    ]
}

/// Whether the graph marks `node` as anything but untouched (`○`): it runs, or it has run already.
fn shows_current(screen: &str, node: &str) -> bool {
    let is_card =
        |line: &&str| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == node) && line.contains('$');
    screen.lines().find(is_card).is_some_and(|line| !line.contains('○'))
}

/// Processor share of the server and of viewers while nothing happens, and bytes drawn then.
///
/// # Panics
/// When a viewer does not come up.
#[must_use]
pub fn idle(window: Duration) -> Vec<Row> {
    let home = Home::new();
    home.workflow("one-node", workloads::ONE_NODE);
    home.workflow("waits", workloads::WAITS);
    let open = |name: &str, shown: &str| {
        let run = home.piw(&["run", name, "--detach", "--json"]).exits(0).json();
        let id = run["runId"].as_str().expect("a run id").to_owned();
        home.wait_for_status(&id, &["completed", "waiting"]);
        let mut terminal = Terminal::start(&home, &[&id], 40, 120);
        terminal.wait("the run is shown", |screen| screen.contains(shown));
        terminal
    };
    let mut ended = open("one-node", "completed");
    let mut waiting = open("waits", "waiting");
    let server = home.server_pid().expect("the server runs");
    let pids = [server, ended.pid().expect("it runs"), waiting.pid().expect("it runs")];
    for terminal in [&mut ended, &mut waiting] {
        let _ = terminal.bytes_within(Duration::from_secs(1));
    }
    let before = pids.map(|pid| memory::processor_time(pid).expect("the process's counters"));
    let begun = std::time::Instant::now();
    #[expect(clippy::cast_precision_loss, reason = "byte counts are small")]
    let drawn = ended.bytes_within(window) as f64;
    let after = pids.map(|pid| memory::processor_time(pid).expect("the process's counters"));
    let elapsed = begun.elapsed().as_secs_f64();
    let share = |at: usize| after[at].saturating_sub(before[at]).as_secs_f64() / elapsed * 100.0;
    let resident = memory::resident_mib(pids[1]).expect("the viewer's memory");
    let row = |name: &str, unit, bar, value: f64| Row::new(name, unit, Bar::AtMost(bar), &[value]);
    vec![
        row("server processor share, idle, two viewers", "%", 0.2, share(0)),
        row("viewer processor share, finished run", "%", 0.3, share(1)),
        row(
            "viewer processor share, run that waits, its clock on screen",
            "%",
            0.3,
            share(2),
        ),
        row("bytes drawn while nothing changes", "B", 0.0, drawn),
        row("viewer resident memory, small run", "MiB", 60.0, resident),
    ]
}
