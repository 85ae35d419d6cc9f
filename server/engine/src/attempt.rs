//! What follows when a runner is gone: crashed attempts are executed again, but never for ever (decision 3).

use crate::failure::ParkReason;
use crate::limits;

/// How a stored attempt ended, for counting crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptEnd {
    /// It finished, whatever its outcome: it is a step.
    Finished,
    /// Its runner died under it: it is no step.
    Crashed,
    /// The server took its runner away (stop, pause, cancel, claim hand-over): no step and no crash.
    Withdrawn,
}

/// Crashed attempts in a row of the node at which a run stands. `newest_first` are the ends of that node's attempts since
/// anything finished, or simply all of the run: counting stops at the first finished one.
#[must_use]
pub fn crashes_in_a_row(newest_first: impl IntoIterator<Item = AttemptEnd>) -> u32 {
    let mut crashes = 0u32;
    for end in newest_first {
        match end {
            AttemptEnd::Finished => break,
            AttemptEnd::Crashed => crashes = crashes.saturating_add(1),
            AttemptEnd::Withdrawn => {}
        }
    }
    crashes
}

/// A runner's exit as far as it decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerExit {
    /// The run had ended, was waiting, paused or parked when the runner left.
    pub run_settled: bool,
    /// The server caused the exit (stop, pause, cancel, claim hand-over).
    pub by_server: bool,
    /// This generation advanced the saved revision.
    pub advanced: bool,
    /// Crashed attempts in a row of the node at which the run stands, this exit's included.
    pub crashes_in_a_row: u32,
}

/// What follows a runner's exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterExit {
    /// Nothing: the run was already settled.
    Nothing,
    /// Another generation goes on.
    Requeue,
    /// The run parks until someone resumes it.
    Park(ParkReason),
}

/// Decides what follows a runner's exit.
#[must_use]
pub fn after_exit(exit: &RunnerExit) -> AfterExit {
    if exit.run_settled {
        AfterExit::Nothing
    } else if exit.by_server {
        AfterExit::Requeue
    } else if !exit.advanced || exit.crashes_in_a_row >= limits::CRASHES_IN_A_ROW {
        AfterExit::Park(ParkReason::RunnerNoProgress)
    } else {
        AfterExit::Requeue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRASH: RunnerExit = RunnerExit {
        run_settled: false,
        by_server: false,
        advanced: true,
        crashes_in_a_row: 1,
    };

    #[test]
    fn the_third_crash_in_a_row_parks() {
        assert_eq!(after_exit(&CRASH), AfterExit::Requeue);
        assert_eq!(
            after_exit(&RunnerExit {
                crashes_in_a_row: 2,
                ..CRASH
            }),
            AfterExit::Requeue
        );
        let third = RunnerExit {
            crashes_in_a_row: 3,
            ..CRASH
        };
        assert_eq!(after_exit(&third), AfterExit::Park(ParkReason::RunnerNoProgress));
        assert_eq!(
            after_exit(&RunnerExit {
                by_server: true,
                ..third
            }),
            AfterExit::Requeue
        );
        assert_eq!(
            after_exit(&RunnerExit {
                run_settled: true,
                ..third
            }),
            AfterExit::Nothing
        );
    }

    #[test]
    fn a_runner_that_commits_nothing_parks_at_once() {
        let nothing = RunnerExit {
            advanced: false,
            crashes_in_a_row: 0,
            ..CRASH
        };
        assert_eq!(after_exit(&nothing), AfterExit::Park(ParkReason::RunnerNoProgress));
        assert_eq!(
            after_exit(&RunnerExit {
                by_server: true,
                ..nothing
            }),
            AfterExit::Requeue
        );
    }

    #[test]
    fn only_crashes_since_the_last_finish_count() {
        use AttemptEnd::{Crashed, Finished, Withdrawn};
        assert_eq!(crashes_in_a_row([]), 0);
        assert_eq!(crashes_in_a_row([Crashed, Withdrawn, Crashed, Finished, Crashed]), 2);
        assert_eq!(crashes_in_a_row([Withdrawn, Finished]), 0);
    }
}
