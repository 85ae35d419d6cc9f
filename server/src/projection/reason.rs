//! Why a run is in its status, as one text for people.

use piw_protocol::run::{ErrorInfo, RunStatus};
use piw_protocol::view::{ARTIFACT_THRESHOLD, ArtifactEnvelope, Display};
use piw_state::query::run::RunFacts;

use super::bounds::cut;
use super::content::Contents;

/// Longest reason beside a reference to the whole, in bytes.
const SHORT: usize = 1024;

/// The reason, when there is something to say. `waiting_on` is the node whose answer is awaited.
pub(crate) fn reason(facts: &RunFacts, error: Option<&ErrorInfo>, waiting_on: Option<&str>) -> Option<String> {
    if let Some(child) = &facts.continued_by {
        return Some(format!("answered; continued by run {child}"));
    }
    if facts.status.is_terminal() {
        if facts.status == RunStatus::Completed {
            return None;
        }
        return error
            .map(|error| error.message.clone())
            .or_else(|| facts.failure_class.clone());
    }
    if facts.ambiguous_effects > 0 {
        let effects = if facts.ambiguous_effects == 1 {
            "effect has"
        } else {
            "effects have"
        };
        return Some(format!(
            "{} {effects} an unknown outcome; review before anything is repeated",
            facts.ambiguous_effects
        ));
    }
    if facts.status == RunStatus::Waiting {
        return waiting_on.map(|node| format!("waits for the answer to {node}"));
    }
    if facts.queue.status == "parked" {
        return facts
            .queue
            .park_detail
            .clone()
            .or_else(|| facts.queue.park_reason.clone());
    }
    None
}

/// Puts a reason into a display; above 16 KiB it is shortened and the whole is content.
pub(crate) fn attach(display: &mut Display, reason: Option<String>, contents: &mut Contents) {
    let Some(reason) = reason else { return };
    if reason.len() <= ARTIFACT_THRESHOLD {
        display.reason = Some(reason);
        return;
    }
    let envelope = ArtifactEnvelope {
        artifact: contents.text(&reason),
    };
    display.reason = Some(cut(&reason, SHORT));
    display.reason_content = serde_json::to_value(envelope).ok();
}
