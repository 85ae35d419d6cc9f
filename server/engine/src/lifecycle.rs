//! Which command a run takes in which state: pure predicates that the server asks inside the transaction that applies the
//! command, and that the display's controls follow.

use piw_protocol::canonical;
use piw_protocol::run::{NodeOutcome, RunStatus};
use serde_json::json;
use thiserror::Error;

use crate::limits;

/// A run as commands see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFacts<'a> {
    /// Durable status.
    pub status: RunStatus,
    /// Whether it is paused.
    pub paused: bool,
    /// Whether its queue row is parked.
    pub parked: bool,
    /// Effects whose outcome is unknown.
    pub ambiguous_effects: u64,
    /// The run that took it over after a checkpoint was answered.
    pub continued_by: Option<&'a str>,
    /// The request it waits for.
    pub request: Option<RequestKind>,
}

/// What a waiting run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// An agent step whose model must submit an output.
    AgentOutput,
    /// An agent step that is completed by a visible reply.
    VisibleReply,
    /// A checkpoint: anyone may answer.
    Checkpoint,
    /// A protected decision: only a verified person.
    Decision,
}

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The run has ended.
    #[error("the run has ended ({})", .0.words())]
    Ended(RunStatus),
    /// It is paused already.
    #[error("the run is already paused")]
    AlreadyPaused,
    /// There is nothing to resume.
    #[error("the run is neither paused nor parked")]
    NothingToResume,
    /// It has not ended.
    #[error("only a run that has ended can be restarted; cancel it first")]
    NotEnded,
    /// It completed: there is nothing to do again.
    #[error("the run completed; only a failed, timed out or cancelled run can be restarted")]
    Completed,
    /// A run that restarts it has not ended.
    #[error("the run was already restarted as {0}, which has not ended")]
    AlreadyRestarted(String),
    /// It waits for nothing that can be answered so.
    #[error("the run does not wait for a checkpoint's answer")]
    NotWaiting,
    /// A protected decision.
    #[error("the run waits for a protected decision, which only a verified person can answer")]
    Protected,
    /// It is paused.
    #[error("the run is paused; resume it first")]
    Paused,
    /// Effects with unknown outcome.
    #[error("{0} effect(s) of the run have an unknown outcome; review them first")]
    AmbiguousEffects(u64),
    /// Effects that are not settled.
    #[error("{0} effect(s) of the run are not settled")]
    UnsettledEffects(u64),
    /// A continuation took the run over.
    #[error("the run was continued as {0}; restart that one")]
    Continued(String),
    /// Too many restarts.
    #[error("the run and its restarts were already restarted {restarts} times; at most {max} restarts are allowed", max = limits::RESTARTS)]
    TooManyRestarts {
        /// Restarts in the lineage.
        restarts: u32,
    },
    /// The same failure again.
    #[error("a restart would repeat the same failure: neither input nor source changed since ({failure})")]
    RepeatedFailure {
        /// The failure.
        failure: String,
    },
}

/// May the run be paused? Not while an effect of it waits for a review: the review comes before everything that a resume would
/// do.
///
/// # Errors
/// Says why not.
pub fn check_pause(run: &RunFacts<'_>) -> Result<(), Refusal> {
    check_alive(run)?;
    if run.paused {
        return Err(Refusal::AlreadyPaused);
    }
    check_reviewed(run)
}

/// May the run be resumed?
///
/// # Errors
/// Says why not.
pub fn check_resume(run: &RunFacts<'_>) -> Result<(), Refusal> {
    check_alive(run)?;
    let parked = run.parked && run.status == RunStatus::Running && run.request.is_none();
    if !run.paused && !parked {
        return Err(Refusal::NothingToResume);
    }
    check_reviewed(run)
}

/// May the run be cancelled?
///
/// # Errors
/// Says why not.
pub fn check_cancel(run: &RunFacts<'_>) -> Result<(), Refusal> {
    check_alive(run)
}

/// May the run's checkpoint be answered by `checkpoint.answer`?
///
/// # Errors
/// Says why not.
pub fn check_answer(run: &RunFacts<'_>) -> Result<(), Refusal> {
    check_alive(run)?;
    match run.request {
        _ if run.status != RunStatus::Waiting => Err(Refusal::NotWaiting),
        Some(RequestKind::Decision) => Err(Refusal::Protected),
        Some(RequestKind::Checkpoint) if run.paused => Err(Refusal::Paused),
        // As the controls say: what may have happened before the question comes first.
        Some(RequestKind::Checkpoint) if run.ambiguous_effects > 0 => {
            Err(Refusal::AmbiguousEffects(run.ambiguous_effects))
        }
        Some(RequestKind::Checkpoint) => Ok(()),
        Some(RequestKind::AgentOutput | RequestKind::VisibleReply) | None => Err(Refusal::NotWaiting),
    }
}

/// May the run's protected decision be answered, by a person or by the declared policy?
///
/// # Errors
/// Says why not.
pub fn check_decision(run: &RunFacts<'_>) -> Result<(), Refusal> {
    check_alive(run)?;
    match run.request {
        Some(RequestKind::Decision) if run.status != RunStatus::Waiting => Err(Refusal::NotWaiting),
        Some(RequestKind::Decision) if run.paused => Err(Refusal::Paused),
        Some(RequestKind::Decision) => check_reviewed(run),
        _ => Err(Refusal::NotWaiting),
    }
}

fn check_reviewed(run: &RunFacts<'_>) -> Result<(), Refusal> {
    match run.ambiguous_effects {
        0 => Ok(()),
        unclear => Err(Refusal::AmbiguousEffects(unclear)),
    }
}

fn check_alive(run: &RunFacts<'_>) -> Result<(), Refusal> {
    if run.status.is_terminal() {
        Err(Refusal::Ended(run.status))
    } else {
        Ok(())
    }
}

/// How a run ended, for the repeated-failure protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending<'a> {
    /// Digest of the failure, see [`failure_digest`]; `None` unless it failed or timed out.
    pub failure: Option<&'a str>,
    /// Digest of the normalised input.
    pub input_digest: &'a str,
    /// Digest of everything that the run executes: its frozen sources and graph.
    pub source_digest: &'a str,
}

/// The relatives of a run that is to be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lineage<'a> {
    /// Restarts among all runs that descend from the same root.
    pub restarts: u32,
    /// A restart of the run that has not ended.
    pub restarted_as: Option<&'a str>,
    /// Effects of the run that are pending, applying or ambiguous.
    pub unsettled_effects: u64,
    /// How the run ended.
    pub ending: Ending<'a>,
    /// How the newest ended restart of the run ended; without one, how the run that it restarted ended.
    pub previous: Option<Ending<'a>>,
    /// Source digest that the new run would have.
    pub next_source_digest: &'a str,
}

/// Is the run one that a restart makes sense for? It ended without completing, and no other run took it over.
#[must_use]
pub fn is_restartable(run: &RunFacts<'_>) -> bool {
    run.status.is_terminal() && run.status != RunStatus::Completed && run.continued_by.is_none()
}

/// May the run be restarted?
///
/// # Errors
/// Says why not.
pub fn check_restart(run: &RunFacts<'_>, lineage: &Lineage<'_>) -> Result<(), Refusal> {
    if !run.status.is_terminal() {
        return Err(Refusal::NotEnded);
    }
    if let Some(next) = run.continued_by {
        return Err(Refusal::Continued(next.to_owned()));
    }
    if !is_restartable(run) {
        return Err(Refusal::Completed);
    }
    if let Some(next) = lineage.restarted_as {
        return Err(Refusal::AlreadyRestarted(next.to_owned()));
    }
    if lineage.unsettled_effects > 0 {
        return Err(Refusal::UnsettledEffects(lineage.unsettled_effects));
    }
    if lineage.restarts >= limits::RESTARTS {
        return Err(Refusal::TooManyRestarts {
            restarts: lineage.restarts,
        });
    }
    let (ending, previous) = (&lineage.ending, &lineage.previous);
    if let Some(failure) = ending.failure
        && previous.as_ref() == Some(ending)
        && lineage.next_source_digest == ending.source_digest
    {
        return Err(Refusal::RepeatedFailure {
            failure: failure.to_owned(),
        });
    }
    Ok(())
}

/// Digest of a failure: equal for the same node, outcome, code and message.
#[must_use]
pub fn failure_digest(node: Option<&str>, outcome: NodeOutcome, code: Option<&str>, message: &str) -> String {
    let outcome = serde_json::to_value(outcome).unwrap_or_default();
    canonical::digest(&json!([node, outcome, code, message]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunFacts<'static> = RunFacts {
        status: RunStatus::Running,
        paused: false,
        parked: false,
        ambiguous_effects: 0,
        continued_by: None,
        request: None,
    };
    const WAITING: RunFacts<'static> = RunFacts {
        status: RunStatus::Waiting,
        parked: true,
        request: Some(RequestKind::Checkpoint),
        ..RUN
    };
    const FAILED: RunFacts<'static> = RunFacts {
        status: RunStatus::Failed,
        ..RUN
    };

    fn text(result: Result<(), Refusal>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn an_ended_run_takes_no_command_but_restart() {
        for check in [check_pause, check_resume, check_cancel, check_answer] {
            assert_eq!(text(check(&FAILED)), "the run has ended (failed)");
        }
    }

    #[test]
    fn pause_and_resume() {
        assert_eq!(check_pause(&RUN), Ok(()));
        assert_eq!(check_pause(&WAITING), Ok(()));
        assert_eq!(
            text(check_pause(&RunFacts { paused: true, ..RUN })),
            "the run is already paused"
        );
        assert_eq!(text(check_resume(&RUN)), "the run is neither paused nor parked");
        assert_eq!(text(check_resume(&WAITING)), "the run is neither paused nor parked");
        assert_eq!(
            check_resume(&RunFacts {
                paused: true,
                ..WAITING
            }),
            Ok(())
        );
        assert_eq!(check_resume(&RunFacts { parked: true, ..RUN }), Ok(()));
        let unclear = RunFacts {
            parked: true,
            ambiguous_effects: 2,
            ..RUN
        };
        assert_eq!(
            text(check_resume(&unclear)),
            "2 effect(s) of the run have an unknown outcome; review them first"
        );
        assert_eq!(check_cancel(&unclear), Ok(()));
        // A pause that nothing but a review could end would strand the run.
        let goes_on = RunFacts {
            ambiguous_effects: 1,
            ..RUN
        };
        assert_eq!(check_pause(&goes_on), Err(Refusal::AmbiguousEffects(1)));
    }

    #[test]
    fn answers_need_an_open_unprotected_checkpoint() {
        assert_eq!(check_answer(&WAITING), Ok(()));
        assert_eq!(
            text(check_answer(&RUN)),
            "the run does not wait for a checkpoint's answer"
        );
        assert_eq!(
            text(check_answer(&RunFacts {
                paused: true,
                ..WAITING
            })),
            "the run is paused; resume it first"
        );
        let unclear = RunFacts {
            ambiguous_effects: 1,
            ..WAITING
        };
        assert_eq!(check_answer(&unclear), Err(Refusal::AmbiguousEffects(1)));
        let decision = RunFacts {
            request: Some(RequestKind::Decision),
            ..WAITING
        };
        assert!(text(check_answer(&decision)).contains("only a verified person"));
        assert_eq!(check_decision(&decision), Ok(()));
        let paused = RunFacts {
            paused: true,
            ..decision
        };
        assert_eq!(check_decision(&paused), Err(Refusal::Paused));
        assert_eq!(check_decision(&WAITING), Err(Refusal::NotWaiting));
        let agent = RunFacts {
            request: Some(RequestKind::AgentOutput),
            ..WAITING
        };
        assert_eq!(check_answer(&agent), Err(Refusal::NotWaiting));
    }

    #[test]
    fn restarts_are_bounded() {
        let ending = Ending {
            failure: Some("f"),
            input_digest: "i",
            source_digest: "s",
        };
        let first = Lineage {
            restarts: 0,
            restarted_as: None,
            unsettled_effects: 0,
            ending,
            previous: None,
            next_source_digest: "s",
        };
        assert_eq!(check_restart(&RUN, &first), Err(Refusal::NotEnded));
        assert_eq!(check_restart(&FAILED, &first), Ok(()));
        let again = Lineage {
            restarts: 1,
            previous: Some(ending),
            ..first
        };
        assert!(text(check_restart(&FAILED, &again)).starts_with("a restart would repeat the same failure"));
        assert_eq!(
            check_restart(
                &FAILED,
                &Lineage {
                    next_source_digest: "t",
                    ..again
                }
            ),
            Ok(())
        );
        let other = Ending {
            failure: Some("g"),
            ..ending
        };
        assert_eq!(
            check_restart(
                &FAILED,
                &Lineage {
                    previous: Some(other),
                    ..again
                }
            ),
            Ok(())
        );
        let cancelled = Ending {
            failure: None,
            ..ending
        };
        let twice = Lineage {
            ending: cancelled,
            previous: Some(cancelled),
            ..again
        };
        assert_eq!(
            check_restart(
                &RunFacts {
                    status: RunStatus::Cancelled,
                    ..RUN
                },
                &twice
            ),
            Ok(())
        );
        assert_eq!(
            text(check_restart(&FAILED, &Lineage { restarts: 3, ..first })),
            "the run and its restarts were already restarted 3 times; at most 3 restarts are allowed"
        );
        assert_eq!(
            text(check_restart(
                &FAILED,
                &Lineage {
                    unsettled_effects: 1,
                    ..first
                }
            )),
            "1 effect(s) of the run are not settled"
        );
        let completed = RunFacts {
            status: RunStatus::Completed,
            ..RUN
        };
        assert_eq!(check_restart(&completed, &first), Err(Refusal::Completed));
        assert_eq!(
            text(check_restart(
                &FAILED,
                &Lineage {
                    restarted_as: Some("r2"),
                    ..first
                }
            )),
            "the run was already restarted as r2, which has not ended"
        );
        let continued = RunFacts {
            status: RunStatus::Completed,
            continued_by: Some("r2"),
            ..RUN
        };
        assert_eq!(
            text(check_restart(&continued, &first)),
            "the run was continued as r2; restart that one"
        );
    }

    #[test]
    fn failures_are_told_apart() {
        let digest = |node, message| failure_digest(Some(node), NodeOutcome::Failed, Some("c"), message);
        assert_eq!(digest("a", "m"), digest("a", "m"));
        assert_ne!(digest("a", "m"), digest("b", "m"));
        assert_ne!(digest("a", "m"), digest("a", "n"));
    }
}
