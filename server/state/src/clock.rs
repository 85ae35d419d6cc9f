//! The clocks that claims and timestamps use.
//!
//! Leases expire by a clock that stops in suspend, so a laptop that slept loses nothing, together with the identity of the
//! boot on which it was read, because such readings mean nothing after a reboot (decision 2). Timestamps are wall-clock.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock milliseconds since the Unix epoch.
    fn wall_ms(&self) -> i64;
    /// Milliseconds of a monotonic clock that stops in suspend; comparable only within one boot.
    fn steady_ms(&self) -> i64;
    /// Identity of the current boot.
    fn boot_id(&self) -> String;
}

/// The operating system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    boot_id: String,
}

impl SystemClock {
    /// Reads the boot identity once.
    #[must_use]
    pub fn new() -> Self {
        Self { boot_id: boot_id() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn steady_ms(&self) -> i64 {
        crate::os::steady_ms()
    }

    fn boot_id(&self) -> String {
        self.boot_id.clone()
    }
}

/// Identity of the current boot: the kernel's random boot id on Linux, the boot session's on macOS.
fn boot_id() -> String {
    #[cfg(target_os = "linux")]
    if let Ok(text) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        return text.trim().to_owned();
    }
    crate::os::boot_time_identity()
}

/// A clock that tests move by hand. Every reading starts at a fixed value.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<ManualState>,
}

#[derive(Debug)]
struct ManualState {
    wall_ms: i64,
    steady_ms: i64,
    boot: u64,
}

impl ManualClock {
    /// Wall clock at 2026-01-01T00:00:00Z, steady clock at 1,000 s, first boot.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Mutex::new(ManualState {
                wall_ms: 1_767_225_600_000,
                steady_ms: 1_000_000,
                boot: 1,
            }),
        }
    }

    /// Time passes: both clocks move.
    pub fn advance(&self, ms: i64) {
        let mut state = self.lock();
        state.wall_ms += ms;
        state.steady_ms += ms;
    }

    /// The machine sleeps: only the wall clock moves.
    pub fn suspend(&self, ms: i64) {
        self.lock().wall_ms += ms;
    }

    /// Somebody sets the wall clock.
    pub fn jump_wall(&self, ms: i64) {
        self.lock().wall_ms += ms;
    }

    /// The machine boots anew: the steady clock starts over.
    pub fn reboot(&self) {
        let mut state = self.lock();
        state.boot += 1;
        state.steady_ms = 5_000;
        state.wall_ms += 60_000;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ManualState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> i64 {
        self.lock().wall_ms
    }

    fn steady_ms(&self) -> i64 {
        self.lock().steady_ms
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.lock().boot)
    }
}
