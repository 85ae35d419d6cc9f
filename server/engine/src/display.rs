//! What every renderer shows of a run: status, activity, controls and reason, decided here and nowhere else
//! (protocol.md, "Views").
//!
//! The order: terminal result; ambiguous effect, unless the run goes on all the same; durable pause; pending request (`running`
//! only during that exact request's model turn); active runner or turn; parked or admitted work.

use piw_protocol::run::{DisplayStatus, RunStatus};
use piw_protocol::view::Display;

use crate::failure::ParkReason;
use crate::lifecycle::{RequestKind, RunFacts, check_cancel, check_pause, check_resume, is_restartable};

/// Activity of a run that a runner executes.
pub const SUPERVISED_RUNNER: &str = "supervised_runner";
/// Activity of a run whose origin session's model works on it.
pub const ORIGIN_TURN: &str = "origin_turn";

/// Everything that decides a display, from one consistent read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// What commands see.
    pub run: RunFacts<'a>,
    /// A live runner exists now.
    pub runner: bool,
    /// A model turn of the run is open now.
    pub open_turn: bool,
    /// The open turn belongs to the pending request.
    pub request_turn: bool,
    /// Node that the run waits on.
    pub waiting_on: Option<&'a str>,
    /// Why the queue row is parked.
    pub park_reason: Option<ParkReason>,
    /// Error of a run that ended otherwise than completed.
    pub error: Option<&'a str>,
    /// Restarts among all runs that descend from the same root.
    pub restarts: u32,
    /// Effects that are pending, applying or ambiguous.
    pub unsettled_effects: u64,
}

/// Decides the display. `reason_content` is left to the projection, which shortens long reasons.
#[must_use]
pub fn display(facts: &Facts<'_>) -> Display {
    let status = status(facts);
    Display {
        status,
        activity: activity(facts).map(str::to_owned),
        controls: controls(facts).into_iter().map(str::to_owned).collect(),
        reason: reason(facts, status),
        reason_content: None,
    }
}

/// A runner or an open turn exists now.
#[must_use]
pub fn is_live(facts: &Facts<'_>) -> bool {
    facts.runner || facts.open_turn
}

/// The run is executed now, and nothing that a person has to do keeps it. An effect that a finished attempt left ambiguous does not
/// stop it: the review is offered beside it.
fn goes_on(facts: &Facts<'_>) -> bool {
    is_live(facts) && !facts.run.paused && facts.run.request.is_none()
}

/// Durable state says running, but no live claim holds the run and it was not parked or paused at a boundary.
#[must_use]
pub fn possibly_interrupted(run: &RunFacts<'_>, claim_live: bool) -> bool {
    run.status == RunStatus::Running && !run.paused && !run.parked && !claim_live
}

fn status(facts: &Facts<'_>) -> DisplayStatus {
    match facts.run.status {
        RunStatus::Completed => DisplayStatus::Completed,
        RunStatus::Failed => DisplayStatus::Failed,
        RunStatus::TimedOut => DisplayStatus::TimedOut,
        RunStatus::Cancelled => DisplayStatus::Cancelled,
        _ if facts.run.ambiguous_effects > 0 && !goes_on(facts) => DisplayStatus::Ambiguous,
        _ if facts.run.paused => DisplayStatus::Paused,
        _ if facts.run.request.is_some() && facts.request_turn => DisplayStatus::Running,
        _ if facts.run.request.is_some() => DisplayStatus::Waiting,
        _ if is_live(facts) => DisplayStatus::Running,
        RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => DisplayStatus::Queued,
    }
}

fn activity(facts: &Facts<'_>) -> Option<&'static str> {
    match facts {
        _ if facts.run.status.is_terminal() => None,
        Facts { runner: true, .. } => Some(SUPERVISED_RUNNER),
        Facts { open_turn: true, .. } => Some(ORIGIN_TURN),
        _ => None,
    }
}

fn controls(facts: &Facts<'_>) -> Vec<&'static str> {
    let run = &facts.run;
    let mut controls = Vec::new();
    let mut offer = |offered: bool, names: &[&'static str]| {
        if offered {
            controls.extend_from_slice(names);
        }
    };
    offer(run.ambiguous_effects > 0, &["review"]);
    if !run.paused && !run.status.is_terminal() && run.ambiguous_effects == 0 {
        offer(run.request.is_some(), request_controls(run.request));
    }
    let parked_alone = run.parked && run.request.is_none();
    offer(check_pause(run).is_ok() && !parked_alone, &["pause"]);
    offer(check_resume(run).is_ok(), &["resume"]);
    offer(check_cancel(run).is_ok(), &["cancel"]);
    let restarts_left = facts.restarts < crate::limits::RESTARTS;
    offer(
        is_restartable(run) && restarts_left && facts.unsettled_effects == 0,
        &["restart"],
    );
    controls
}

fn request_controls(request: Option<RequestKind>) -> &'static [&'static str] {
    match request {
        Some(RequestKind::AgentOutput) => &["submit", "update"],
        Some(RequestKind::Checkpoint) => &["answer"],
        Some(RequestKind::Decision) => &["human-answer"],
        Some(RequestKind::VisibleReply) | None => &[],
    }
}

fn reason(facts: &Facts<'_>, status: DisplayStatus) -> Option<String> {
    match status {
        DisplayStatus::Completed => facts.run.continued_by.map(|next| format!("continued as {next}")),
        DisplayStatus::Failed | DisplayStatus::TimedOut | DisplayStatus::Cancelled => facts.error.map(str::to_owned),
        DisplayStatus::Ambiguous | DisplayStatus::Running => match facts.run.ambiguous_effects {
            0 => None,
            1 => Some("1 effect may or may not have happened; review it".to_owned()),
            many => Some(format!("{many} effects may or may not have happened; review them")),
        },
        DisplayStatus::Waiting => facts.waiting_on.map(|node| match facts.run.request {
            Some(RequestKind::Checkpoint) => format!("\"{node}\" waits for an answer"),
            Some(RequestKind::Decision) => format!("\"{node}\" waits for a person's decision"),
            _ => format!("\"{node}\" waits for the model"),
        }),
        DisplayStatus::Queued => facts
            .park_reason
            .map(|reason| format!("{reason}: {}", reason.explain())),
        DisplayStatus::Paused => None,
    }
}

#[cfg(test)]
mod tests;
