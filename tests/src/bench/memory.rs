//! Resident memory and processor time of processes, from `/proc`.

use std::fs;
use std::time::{Duration, Instant};

/// Resident memory of a process in MiB.
#[must_use]
pub fn resident_mib(pid: i32) -> Option<f64> {
    status_mib(pid, "VmRSS:")
}

/// The most memory that a process ever had resident, in MiB.
#[must_use]
pub fn peak_mib(pid: i32) -> Option<f64> {
    status_mib(pid, "VmHWM:")
}

fn status_mib(pid: i32, field: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Bytes that a process caused to be written to disk so far.
#[must_use]
pub fn written_bytes(pid: i32) -> Option<f64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let line = io.lines().find(|line| line.starts_with("write_bytes:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Processor time of a process so far.
#[must_use]
pub fn processor_time(pid: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanos: u64 = stat.split_whitespace().next()?.parse().ok()?;
    let mut total = nanos;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        if task.file_name().to_string_lossy() == pid.to_string() {
            continue;
        }
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        total += text
            .split_whitespace()
            .next()
            .and_then(|nanos| nanos.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Some(Duration::from_nanos(total))
}

/// Share of one core, in percent, that a process uses over `window`.
#[must_use]
pub fn processor_share(pid: i32, window: Duration) -> Option<f64> {
    let before = processor_time(pid)?;
    let start = Instant::now();
    std::thread::sleep(window);
    let used = processor_time(pid)?.saturating_sub(before);
    Some(used.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0)
}

/// Process ids of the children of a process whose command line contains `text`.
#[must_use]
pub fn children(pid: i32, text: &str) -> Vec<i32> {
    let mut found = Vec::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return found;
    };
    for task in tasks.flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(
            list.split_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok())
                .filter(|pid| {
                    fs::read(format!("/proc/{pid}/cmdline"))
                        .is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
                }),
        );
    }
    found
}
