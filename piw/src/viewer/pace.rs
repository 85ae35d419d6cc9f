//! When a frame may be drawn: at most sixty a second in the long run, and what happens after a rest at once.

use std::time::Duration;

use tokio::time::Instant;

/// Time per frame in the long run.
const FRAME: Duration = Duration::from_millis(18);
/// Frames that may come before their time after a rest. Together with those that are in time they are sixty in a second.
const EARLY: u32 = 4;

/// Keeps the frames apart. After a rest some may follow each other at once, so that what comes right behind a frame (the page that
/// a key asked for, the second of two commits, each part of the first screen) does not wait for the time of the first to pass.
#[derive(Debug, Default)]
pub struct Pace {
    /// When everything that was drawn has had its time.
    rested: Option<Instant>,
}

impl Pace {
    /// When the next frame may be drawn; `None`: now, and ever since.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.rested.and_then(|rested| rested.checked_sub(FRAME * EARLY))
    }

    /// A frame was drawn.
    pub fn drawn(&mut self, now: Instant) {
        self.rested = Some(self.rested.map_or(now, |rested| rested.max(now)) + FRAME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws whenever it may, from `from` on, for a second; the times since then.
    fn frames(pace: &mut Pace, from: Instant) -> Vec<Duration> {
        let mut drawn = Vec::new();
        let mut now = from;
        loop {
            now = pace.due().map_or(now, |due| due.max(now));
            if now >= from + Duration::from_secs(1) {
                return drawn;
            }
            pace.drawn(now);
            drawn.push(now - from);
        }
    }

    #[test]
    fn after_a_rest_some_frames_follow_at_once_and_then_each_in_its_time() {
        let start = Instant::now();
        let mut pace = Pace::default();
        let first = frames(&mut pace, start);
        let times = [0, 0, 0, 0, 0, 1, 2, 3].map(|frames| FRAME * frames);
        assert_eq!(first[..times.len()], times);
        assert!(first.len() <= 60, "{} frames in a second", first.len());
        let again = frames(&mut pace, start + Duration::from_secs(2));
        assert_eq!(again, first, "a rest is forgotten no sooner and no later");
    }
}
