//! From a command to its end: warm, cold.

use std::time::{Duration, Instant};

use super::table::{Bar, Row};
use super::workloads;
use crate::home::Home;

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
