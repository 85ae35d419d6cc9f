//! Opening the viewer on a large stored state: among 10,000 runs, and a run of a million events.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::bench::memory;
use crate::bench::table::{Bar, Row};
use crate::home::Home;
use crate::terminal::Terminal;

/// Runs in the list.
const RUNS: u64 = 10_000;
/// Events of the long run; a step leaves two.
const EVENTS: u64 = 1_000_000;
/// Times that each is measured.
const TIMES: usize = 25;

/// Fills a state and measures.
///
/// # Errors
/// When the state cannot be filled.
///
/// # Panics
/// When the viewer does not come up.
pub fn rows() -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let home = Home::new();
    std::fs::create_dir_all(home.state())?;
    let kept = std::env::var_os("PIW_BENCH_STATE").map(PathBuf::from);
    let kept = kept.map(|dir| dir.join("state.sqlite"));
    let file = home.state().join("state.sqlite");
    match kept.filter(|kept| kept.exists()) {
        Some(kept) => drop(std::fs::copy(kept, file)?),
        None => fill(&home)?,
    }
    let _ = home.piw(&["server", "start"]).exits(0);
    let runs = home.piw(&["ps", "--all", "--json"]).exits(0).json();
    let oldest = runs.as_array().and_then(|runs| runs.last()).ok_or("stored runs")?;
    let long = oldest["runId"].as_str().ok_or("a run id")?;
    let mut rows = vec![start_up(&home)];
    rows.extend(a_million_events(&home, long));
    Ok(rows)
}

/// One long run, and after it the others.
fn fill(home: &Home) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        piw_state::bench::long_run(&home.state(), EVENTS / 2).await?;
        piw_state::bench::ended_runs(&home.state(), 1, RUNS).await
    })?;
    Ok(())
}

/// From the start of the process to the frame with the list, the graph and the steps of the newest run.
fn start_up(home: &Home) -> Row {
    let newest = format!("Nightly import {RUNS}");
    let samples: Vec<Duration> = (0..TIMES)
        .map(|_| {
            let begun = Instant::now();
            let mut terminal = Terminal::start(home, &[], 40, 120);
            let shown = terminal.wait("the newest run is shown whole", |screen| {
                screen.contains(&newest) && screen.matches("only").count() >= 2 && screen.contains("completed")
            });
            shown - begun
        })
        .collect();
    Row::millis(
        "process start → first complete frame, 10,000 runs",
        Bar::AtMost(60.0),
        &samples,
    )
}

fn a_million_events(home: &Home, run: &str) -> Vec<Row> {
    let last = EVENTS / 2 + 1;
    let mut opened = Vec::new();
    for _ in 0..TIMES {
        let begun = Instant::now();
        let mut terminal = Terminal::start(home, &[run], 40, 120);
        let shown = terminal.wait("the last step is shown", |screen| {
            screen.contains("failed") && screen.contains(&format!("{last} ")) && !screen.contains("loading")
        });
        opened.push(shown - begun);
    }
    let mut terminal = Terminal::start(home, &[run], 40, 120);
    terminal.wait("the last step is shown", |screen| screen.contains(&format!("{last} ")));
    let mut jumps = Vec::new();
    for column in (0..TIMES).map(|time| 68 + time) {
        // A click on the track in the second line from below: another column is another page of steps.
        terminal.settle();
        let begun = Instant::now();
        terminal.send(format!("\x1b[<0;{column};39M\x1b[<0;{column};39m").as_bytes());
        let shown = terminal.wait("the steps there are shown", shows_its_step);
        jumps.push(shown - begun);
        terminal.settle();
        terminal.send(b"L");
        terminal.wait("it is live again", |screen| screen.contains(&format!("{last} ")));
    }
    let viewer = terminal.pid().expect("the viewer runs");
    vec![
        Row::millis(
            "process start → end of a run of 1,000,000 events",
            Bar::AtMost(100.0),
            &opened,
        ),
        Row::millis("jump into its middle", Bar::AtMost(100.0), &jumps),
        Row::new(
            "viewer resident memory after that",
            "MiB",
            Bar::AtMost(60.0),
            &[memory::resident_mib(viewer).expect("the viewer's memory")],
        ),
    ]
}

/// Whether the step that the last line names is in the list.
fn shows_its_step(screen: &str) -> bool {
    let place = screen
        .split_once("replay  step ")
        .and_then(|(_, rest)| rest.split_once(' '));
    place.is_some_and(|(number, _)| screen.contains(&format!("▸{number} ")))
}
