//! Key to frame: from a byte typed into the terminal to the end of the frame that it led to.

use std::time::Duration;

use crate::bench::table::{Bar, Row, percentile};
use crate::bench::workloads;
use crate::home::Home;
use crate::terminal::Terminal;

/// Keys in the graph: moving the selection, scrolling, density, zoom and back, and the tabs, which move the focus to the inspector.
const IN_GRAPH: &[&str] = &[
    "j", "j", "l", "j", "k", "h", "j", "\x04", "\x04", "\x15", "j", "j", "+", "j", "-", "j", "z", "z", "z", "g", "j",
    "G", "k",
];
/// Keys in the inspector.
const IN_INSPECTOR: &[&str] = &[
    "1", "j", "j", "k", "\r", "j", "\x04", "\x04", "\x15", "\r", "G", "g", "2", "j", "\x04", "3", "j", "\r", "\x04",
    "\r", "4", "j", "1",
];
/// Rounds of all keys.
const ROUNDS: usize = 8;

/// A run of two thousand steps through a graph of two thousand nodes at 250 × 80, and a small run at 120 × 40.
///
/// # Panics
/// When a viewer does not come up or a key leads to no frame.
#[must_use]
pub fn rows() -> Vec<Row> {
    let home = Home::new();
    home.workflow("one-node", workloads::ONE_NODE);
    home.workflow("large", &workloads::large(2_000));
    let mut rows = Vec::new();
    for (workflow, shown, size, name) in [
        ("one-node", "only", (40, 120), "key → frame, small run, 120 × 40"),
        (
            "large",
            "n1999",
            (80, 250),
            "key → frame, graph of 2,000 nodes, 250 × 80",
        ),
    ] {
        let run = home.piw(&["run", workflow, "--json"]).exits(0).json();
        let id = run["runId"].as_str().expect("a run id").to_owned();
        let mut terminal = Terminal::start(&home, &[&id], size.0, size.1);
        terminal.wait("the run is shown", |screen| {
            screen.contains(shown) && screen.contains("completed") && !screen.contains("loading")
        });
        rows.extend(measure(&mut terminal, name));
    }
    rows
}

fn measure(terminal: &mut Terminal, name: &str) -> [Row; 2] {
    let mut samples = Vec::new();
    for round in 0..=ROUNDS {
        // Focus: the graph first, then the inspector; zoomed in every second round.
        let zoom: &[&str] = if round % 2 == 1 { &["Z", "j", "l", "\x1b"] } else { &[] };
        let back: &[&str] = &["\x1b", "0"];
        for key in [IN_INSPECTOR, back, IN_GRAPH, zoom].into_iter().flatten() {
            let took = terminal.frame_after(key.as_bytes());
            // The first round loads what keys ask for.
            if round > 0 {
                samples.push(took);
            }
        }
    }
    let mut millis: Vec<f64> = samples
        .iter()
        .map(Duration::as_secs_f64)
        .map(|secs| secs * 1e3)
        .collect();
    millis.sort_by(f64::total_cmp);
    [
        Row::new(format!("{name}, median"), "ms", Bar::Info, &millis),
        Row::new(
            format!("the same, p99 of {}", millis.len()),
            "ms",
            Bar::AtMost(8.0),
            &[percentile(&millis, 0.99)],
        ),
    ]
}
