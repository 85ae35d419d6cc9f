//! Waiting for conditions. The deadline only bounds a failing test; a passing one never waits for it.

use std::time::{Duration, Instant};

/// Longest wait for any condition, generous because the machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Polls `probe` until it returns a value.
///
/// # Panics
/// When [`DEADLINE`] passes first; the message says what was awaited.
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "gave up waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
