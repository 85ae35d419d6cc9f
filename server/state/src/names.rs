//! Closed sets as the columns spell them.

use piw_protocol::definition::EffectKind;
use piw_protocol::run::{NodeOutcome, RunStatus};

use crate::error::StateError;

/// The column value of a run status.
pub(crate) const fn of_run_status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Queued => "queued",
        RunStatus::Running => "running",
        RunStatus::Waiting => "waiting",
        RunStatus::Completed => "completed",
        RunStatus::Failed => "failed",
        RunStatus::TimedOut => "timed_out",
        RunStatus::Cancelled => "cancelled",
    }
}

/// Reads a run status.
pub(crate) fn run_status(text: &str) -> Result<RunStatus, StateError> {
    Ok(match text {
        "queued" => RunStatus::Queued,
        "running" => RunStatus::Running,
        "waiting" => RunStatus::Waiting,
        "completed" => RunStatus::Completed,
        "failed" => RunStatus::Failed,
        "timed_out" => RunStatus::TimedOut,
        "cancelled" => RunStatus::Cancelled,
        other => return Err(unknown("run status", other)),
    })
}

/// The column value of a queue row whose run ended.
pub(crate) const fn queue_status_of_end(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Completed => "done",
        RunStatus::Cancelled => "cancelled",
        _ => "failed",
    }
}

/// The column value of an outcome.
pub(crate) const fn of_outcome(outcome: NodeOutcome) -> &'static str {
    match outcome {
        NodeOutcome::Ok => "ok",
        NodeOutcome::TimedOut => "timed_out",
        NodeOutcome::Failed => "failed",
        NodeOutcome::Cancelled => "cancelled",
    }
}

/// Reads an outcome.
pub(crate) fn outcome(text: &str) -> Result<NodeOutcome, StateError> {
    Ok(match text {
        "ok" => NodeOutcome::Ok,
        "timed_out" => NodeOutcome::TimedOut,
        "failed" => NodeOutcome::Failed,
        "cancelled" => NodeOutcome::Cancelled,
        other => return Err(unknown("outcome", other)),
    })
}

/// The column value of an effect kind.
pub(crate) const fn of_effect_kind(kind: EffectKind) -> &'static str {
    match kind {
        EffectKind::Idempotent => "idempotent",
        EffectKind::Observed => "observed",
        EffectKind::Manual => "manual",
    }
}

/// Reads an effect kind.
pub(crate) fn effect_kind(text: &str) -> Result<EffectKind, StateError> {
    Ok(match text {
        "idempotent" => EffectKind::Idempotent,
        "observed" => EffectKind::Observed,
        "manual" => EffectKind::Manual,
        other => return Err(unknown("effect kind", other)),
    })
}

fn unknown(what: &str, text: &str) -> StateError {
    StateError::Inconsistent(format!("unknown {what} {text:?}"))
}
