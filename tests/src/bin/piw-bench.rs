//! Measures `piw` against the bars of its design: prints one table, writes `target/piw-bench.json`.
//!
//! `piw-bench [PART…]` with parts `disk startup throughput retention session messages memory viewer`; all of them when none is named.
//! `PIW_BENCH_STEPS` sets the length of the long chain (default 100,000), `PIW_BENCH_EVENTS` that of the recorded session (default
//! 1,000,000). `PIW_BENCH_STATE` names a directory with a `state.sqlite` for the viewer that was filled before.

use piw_tests::bench::{disk, messages, retention, session, startup, table, throughput, viewer};

const PARTS: [&str; 8] = [
    "disk",
    "startup",
    "throughput",
    "retention",
    "session",
    "messages",
    "memory",
    "viewer",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|part| !PARTS.contains(&part.as_str())) {
        return Err(format!("unknown part {unknown:?}; parts are {}", PARTS.join(", ")).into());
    }
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|name| name == part);
    let long: u64 = std::env::var("PIW_BENCH_STEPS").map_or(Ok(100_000), |text| text.parse())?;
    let events: u64 = std::env::var("PIW_BENCH_EVENTS").map_or(Ok(1_000_000), |text| text.parse())?;
    let dir = tempfile::Builder::new().prefix("piw-bench").tempdir()?;
    let mut rows = vec![disk::commit_rate(dir.path())?];
    let step_shaped = disk::step_rate(dir.path())?;
    let step_rate = step_shaped.median;
    rows.push(step_shaped);
    if wants("startup") {
        rows.push(startup::ready(30)?);
        rows.push(startup::warm(30));
        rows.push(startup::cold(10));
    }
    if wants("throughput") {
        rows.extend(throughput::chains(step_rate, long).rows);
    }
    if wants("retention") {
        rows.extend(retention::rows(dir.path(), long)?);
    }
    if wants("session") {
        rows.extend(session::rows(events)?);
    }
    if wants("messages") {
        rows.extend(messages::rows(dir.path())?);
    }
    if wants("memory") {
        rows.extend(throughput::memory_rows());
    }
    if wants("viewer") {
        for part in viewer::PARTS {
            let measured = part()?;
            eprint!("{}", table::markdown(&measured));
            rows.extend(measured);
        }
    }
    println!("{}", table::markdown(&rows));
    std::fs::create_dir_all("target")?;
    std::fs::write("target/piw-bench.json", serde_json::to_vec_pretty(&rows)?)?;
    Ok(())
}
