//! The viewer in a pseudo-terminal against a real server: commit to frame, idle processor time, memory.

use std::time::Duration;

use super::memory;
use super::table::{Bar, Row};
use super::workloads;
use crate::home::Home;
use crate::terminal::Terminal;

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
    let worst = super::table::percentile(&samples, 0.99);
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

/// Processor share of an idle server and viewer, and bytes drawn while nothing changes.
///
/// # Panics
/// When the viewer does not come up.
#[must_use]
pub fn idle(window: Duration) -> Vec<Row> {
    let home = Home::new();
    home.workflow("one-node", workloads::ONE_NODE);
    let run = home.piw(&["run", "one-node", "--json"]).exits(0).json();
    let id = run["runId"].as_str().expect("a run id").to_owned();
    let mut terminal = Terminal::start(&home, &[&id], 40, 120);
    terminal.wait("the run is shown", |screen| screen.contains("only"));
    let _ = terminal.bytes_within(Duration::from_secs(2));
    let viewer = terminal.pid().expect("the viewer runs");
    let server = home.server_pid().expect("the server runs");
    let server_share = memory::processor_share(server, window).expect("the server's counters");
    let viewer_share = memory::processor_share(viewer, window).expect("the viewer's counters");
    #[expect(clippy::cast_precision_loss, reason = "byte counts are small")]
    let drawn = terminal.bytes_within(window) as f64;
    vec![
        Row::new(
            "server processor share, idle, one viewer",
            "%",
            Bar::AtMost(0.2),
            &[server_share],
        ),
        Row::new(
            "viewer processor share, finished run",
            "%",
            Bar::AtMost(0.3),
            &[viewer_share],
        ),
        Row::new("bytes drawn while nothing changes", "B", Bar::AtMost(0.0), &[drawn]),
        Row::new(
            "viewer resident memory, small run",
            "MiB",
            Bar::AtMost(60.0),
            &[memory::resident_mib(viewer).expect("the viewer's memory")],
        ),
    ]
}
