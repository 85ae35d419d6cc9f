//! The disk's own rates, measured beside everything durable.

use std::path::Path;
use std::time::{Duration, Instant};

use super::table::{Bar, Row};

/// How long each rate is sampled.
const SAMPLE: Duration = Duration::from_millis(700);
const SAMPLES: usize = 5;
/// Steps of one sample of the step-shaped rate.
const STEPS: u64 = 2_000;

/// Single-row SQLite transactions a second (WAL, `synchronous=FULL`) in `dir`.
///
/// # Errors
/// When the database cannot be written.
pub fn commit_rate(dir: &Path) -> rusqlite::Result<Row> {
    let path = dir.join("commit-rate.sqlite");
    let db = rusqlite::Connection::open(&path)?;
    db.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, x INTEGER);",
    )?;
    let mut rates = Vec::new();
    for _ in 0..SAMPLES {
        let start = Instant::now();
        let mut count = 0_u32;
        while start.elapsed() < SAMPLE {
            db.prepare_cached("INSERT INTO t(x) VALUES (?1)")?.execute([count])?;
            count += 1;
        }
        rates.push(f64::from(count) / start.elapsed().as_secs_f64());
    }
    drop(db);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    Ok(Row::new(
        "single-row commits (WAL, synchronous=FULL)",
        "/s",
        Bar::Info,
        &rates,
    ))
}

/// Transactions a second that execute exactly the SQL of one trivial step each, without script or child (decision 29).
///
/// # Errors
/// When the database cannot be written.
pub fn step_rate(dir: &Path) -> Result<Row, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rates = Vec::new();
    for sample in 0..SAMPLES {
        let rate = runtime.block_on(piw_state::bench::step_rate(
            &dir.join(format!("step-rate-{sample}")),
            STEPS,
        ))?;
        rates.push(rate.per_second());
    }
    Ok(Row::new(
        "step-shaped commits, one step a transaction",
        "/s",
        Bar::Info,
        &rates,
    ))
}
