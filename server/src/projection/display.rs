//! What renderers show of a run and what they may offer: the engine decides, from facts of one read.

use piw_engine::display::{self, Facts};
use piw_engine::failure::ParkReason;
use piw_engine::lifecycle::{RequestKind, RunFacts as CommandFacts};
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::{ARTIFACT_THRESHOLD, ArtifactEnvelope, Display};
use piw_state::query::run::RunFacts;

use super::bounds::cut;
use super::content::Contents;

/// Longest reason beside a reference to the whole, in bytes.
const SHORT_REASON: usize = 1024;

/// Status, activity and controls of a run at an instant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Derived {
    /// With its whole reason.
    pub(crate) display: Display,
    /// A runner or an open turn exists now.
    pub(crate) live: bool,
    /// Durable state says running, without a live claim.
    pub(crate) possibly_interrupted: bool,
    /// Wall-clock milliseconds at which the clock alone may change this.
    pub(crate) valid_until: Option<i64>,
}

/// Derives the display of a run. `now` is wall-clock milliseconds; `waiting_on` names the node whose answer is awaited and
/// `error` is the message of a run that did not complete, both for the reason only.
pub(crate) fn derive(facts: &RunFacts, now: i64, waiting_on: Option<&str>, error: Option<&str>) -> Derived {
    let claim = facts.claim_expires_at.filter(|expires| *expires > now);
    let parked = facts.queue.status == "parked";
    let run = CommandFacts {
        status: facts.status,
        paused: facts.paused,
        // Parked work that was resumed and waits for a free runner is admitted, not stopped.
        parked: parked && !facts.queue.claimable,
        ambiguous_effects: facts.ambiguous_effects,
        continued_by: facts.continued_by.as_deref(),
        request: request(facts),
    };
    let engine = Facts {
        run,
        runner: claim.is_some() && facts.has_runner,
        open_turn: facts.open_turn,
        request_turn: facts.open_turn && facts.pending_request.is_some(),
        waiting_on,
        park_reason: facts
            .queue
            .park_reason
            .as_deref()
            .and_then(|reason| reason.parse::<ParkReason>().ok()),
        error,
        restarts: facts.restarts,
        unsettled_effects: facts.unsettled_effects,
    };
    let mut shown = display::display(&engine);
    if shown.status == DisplayStatus::Queued
        && let Some(detail) = &facts.queue.park_detail
    {
        shown.reason = Some(match shown.reason {
            Some(reason) => format!("{reason} ({detail})"),
            None => detail.clone(),
        });
    }
    Derived {
        display: shown,
        live: display::is_live(&engine),
        possibly_interrupted: display::possibly_interrupted(
            &CommandFacts {
                parked: parked || facts.queue.claimable,
                ..run
            },
            claim.is_some(),
        ),
        valid_until: claim,
    }
}

/// The display status alone, for filters.
pub(crate) fn status(facts: &RunFacts, now: i64) -> DisplayStatus {
    derive(facts, now, None, None).display.status
}

fn request(facts: &RunFacts) -> Option<RequestKind> {
    match facts.pending_request.as_deref() {
        Some("submit") => Some(RequestKind::AgentOutput),
        Some("assistant") => Some(RequestKind::VisibleReply),
        Some(_) => Some(RequestKind::Decision),
        None => facts.waiting_attempt.map(|_| RequestKind::Checkpoint),
    }
}

/// A reason above 16 KiB is shortened and the whole becomes content.
pub(crate) fn bound_reason(display: &mut Display, contents: &mut Contents) {
    let Some(reason) = display.reason.take_if(|reason| reason.len() > ARTIFACT_THRESHOLD) else {
        return;
    };
    let envelope = ArtifactEnvelope {
        artifact: contents.text(&reason),
    };
    display.reason = Some(cut(&reason, SHORT_REASON));
    display.reason_content = serde_json::to_value(envelope).ok();
}
