//! The progress display of `piw run` and `piw answer --follow`: what to say of a run view, and the two ways to print it.
//!
//! [`follower`] watches the run; [`lines`] is pure; [`live`] repaints lines on a terminal; [`plain`] appends lines where there
//! is none.

pub mod follower;
pub mod lines;
pub mod live;
pub mod plain;

use std::time::Duration;

/// A duration as people read it: `0.4s`, `12s`, `3m05s`, `2h07m`, `3d04h`.
#[must_use]
pub fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Time between two RFC 3339 texts; zero when either is unreadable or the clock went back.
#[must_use]
pub fn between(start: &str, end: &str) -> Duration {
    let (Ok(start), Ok(end)) = (start.parse::<jiff::Timestamp>(), end.parse::<jiff::Timestamp>()) else {
        return Duration::ZERO;
    };
    let millis = end.as_millisecond() - start.as_millisecond();
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well_at_every_scale() {
        let texts = [400, 12_000, 185_000, 7_620_000, 273_600_000].map(|ms| elapsed(Duration::from_millis(ms)));
        assert_eq!(texts, ["0.4s", "12s", "3m05s", "2h07m", "3d04h"]);
    }

    #[test]
    fn a_clock_that_went_back_is_zero() {
        assert_eq!(
            between("2026-01-01T00:00:01.500Z", "2026-01-01T00:00:00.000Z"),
            Duration::ZERO
        );
        assert_eq!(
            between("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.500Z"),
            Duration::from_millis(1500)
        );
    }
}
