//! What renderers show of a run and what they may offer, derived from its row facts in one place.

use piw_protocol::run::{DisplayStatus, RunStatus};
use piw_protocol::view::Display;
use piw_state::query::run::RunFacts;

/// Status, activity and controls of a run at an instant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Derived {
    /// Without its reason.
    pub(crate) display: Display,
    /// A runner or an open turn exists now.
    pub(crate) live: bool,
    /// Durable state says running, without a live claim.
    pub(crate) possibly_interrupted: bool,
    /// Wall-clock milliseconds at which the clock alone may change this.
    pub(crate) valid_until: Option<i64>,
}

/// Derives the display of a run. `now` is wall-clock milliseconds.
pub(crate) fn derive(facts: &RunFacts, now: i64) -> Derived {
    let claim = facts.claim_expires_at.filter(|expires| *expires > now);
    let has_runner = claim.is_some() && facts.has_runner;
    let status = status(facts, claim.is_some());
    let activity = if facts.open_turn {
        Some("origin_turn")
    } else if has_runner {
        Some("supervised_runner")
    } else {
        None
    };
    let executing = matches!(facts.queue.status.as_str(), "starting" | "running");
    Derived {
        display: Display {
            status,
            activity: activity.filter(|_| !facts.status.is_terminal()).map(str::to_owned),
            controls: controls(facts).into_iter().map(str::to_owned).collect(),
            reason: None,
            reason_content: None,
        },
        live: has_runner || facts.open_turn,
        possibly_interrupted: facts.status == RunStatus::Running && executing && claim.is_none(),
        valid_until: claim,
    }
}

/// The status order of the protocol: terminal result; ambiguous effect; durable pause; pending request; activity; queued.
fn status(facts: &RunFacts, claimed: bool) -> DisplayStatus {
    match facts.status {
        RunStatus::Completed => return DisplayStatus::Completed,
        RunStatus::Failed => return DisplayStatus::Failed,
        RunStatus::TimedOut => return DisplayStatus::TimedOut,
        RunStatus::Cancelled => return DisplayStatus::Cancelled,
        RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => {}
    }
    if facts.ambiguous_effects > 0 {
        DisplayStatus::Ambiguous
    } else if facts.paused {
        DisplayStatus::Paused
    } else if facts.open_turn {
        DisplayStatus::Running
    } else if facts.status == RunStatus::Waiting || facts.pending_request.is_some() {
        DisplayStatus::Waiting
    } else if claimed && facts.status == RunStatus::Running {
        DisplayStatus::Running
    } else {
        DisplayStatus::Queued
    }
}

fn controls(facts: &RunFacts) -> Vec<&'static str> {
    let mut controls = Vec::new();
    if facts.status.is_terminal() {
        if facts.continued_by.is_none() && facts.ambiguous_effects == 0 {
            controls.push("restart");
        }
    } else {
        let stopped = facts.queue.status == "parked" && !facts.queue.claimable && facts.status == RunStatus::Running;
        controls.push(if facts.paused || stopped { "resume" } else { "pause" });
        controls.push("cancel");
        if !facts.paused {
            match facts.pending_request.as_deref() {
                Some("agent") => controls.extend(["submit", "update"]),
                Some("decision") => controls.push("human-answer"),
                Some(_) => {}
                None if facts.waiting_attempt.is_some() => controls.push("answer"),
                None => {}
            }
        }
    }
    if facts.ambiguous_effects > 0 {
        controls.push("review");
    }
    controls
}
