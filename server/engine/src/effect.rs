//! Side effects: the engine-made key, the request fingerprint, what a reservation answers and how an interrupted effect is
//! settled (decision 5).
//!
//! ```text
//! reserve ──▶ applying ──settle──▶ applied | rejected | cancelled | ambiguous
//!    ▲            │ interrupted
//!    └─ pending ◀─┴─ idempotent, or observed as not applied
//! ```

use piw_protocol::canonical;
use piw_protocol::child::EffectSettlement;
use piw_protocol::definition::EffectKind;
pub use piw_protocol::effect::EffectState;
use serde_json::{Value, json};
use thiserror::Error;

/// The key of an effect: the same for every attempt of one visit, different for everything else. Bounded (68 ASCII
/// characters) whatever the ids, so that it fits external idempotency headers.
#[must_use]
pub fn key(run_id: &str, effect_type: &str, node_path: &str, visit: u32) -> String {
    let identity = canonical::write_value(&json!([run_id, effect_type, node_path, visit]));
    format!("piw-{}", canonical::sha256_hex(&identity))
}

/// The fingerprint of a request, `sha256:<hex>`: one key must never name two payloads.
#[must_use]
pub fn fingerprint(request: &Value) -> String {
    canonical::digest(request)
}

/// A stored effect as a reservation sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredEffect<'a> {
    /// Its state.
    pub state: EffectState,
    /// How uncertainty is resolved.
    pub kind: EffectKind,
    /// Fingerprint of the request it was reserved for.
    pub fingerprint: &'a str,
    /// Tries so far.
    pub attempts: u32,
}

/// What a reservation answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// Apply it; `attempt` is the ordinal of the try, from 1.
    Apply {
        /// Ordinal of the try.
        attempt: u32,
    },
    /// Read back what the interrupted try did before anything is applied.
    Observe {
        /// Ordinal of the interrupted try.
        attempt: u32,
    },
    /// It was applied: adopt the stored result.
    Adopt,
    /// Only a person can say; the run parks.
    Ambiguous,
}

/// Why a reservation is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReserveError {
    /// Another request under the same key.
    #[error("the effect was reserved with request {stored}; one key cannot name the other request {found}")]
    OtherRequest {
        /// Stored fingerprint.
        stored: String,
        /// Proposed fingerprint.
        found: String,
    },
    /// Another kind under the same key.
    #[error("the effect was reserved as {stored:?}, not as {found:?}")]
    OtherKind {
        /// Stored kind.
        stored: EffectKind,
        /// Proposed kind.
        found: EffectKind,
    },
    /// It is settled and cannot be tried again.
    #[error("the effect is settled as {0:?} and is never tried again by itself")]
    Settled(EffectState),
}

/// Decides a reservation by the only attempt that may execute the visit: an effect still applying was interrupted.
///
/// # Errors
/// Says why the effect cannot be reserved.
pub fn reserve(
    stored: Option<&StoredEffect<'_>>,
    kind: EffectKind,
    fingerprint: &str,
) -> Result<Reservation, ReserveError> {
    let Some(stored) = stored else {
        return Ok(Reservation::Apply { attempt: 1 });
    };
    if stored.kind != kind {
        return Err(ReserveError::OtherKind {
            stored: stored.kind,
            found: kind,
        });
    }
    if stored.fingerprint != fingerprint {
        let (stored, found) = (stored.fingerprint.to_owned(), fingerprint.to_owned());
        return Err(ReserveError::OtherRequest { stored, found });
    }
    let again = Reservation::Apply {
        attempt: stored.attempts.saturating_add(1),
    };
    match (stored.state, kind) {
        (EffectState::Pending, _) | (EffectState::Applying, EffectKind::Idempotent) => Ok(again),
        (EffectState::Applying, EffectKind::Observed) => Ok(Reservation::Observe {
            attempt: stored.attempts,
        }),
        (EffectState::Applying, EffectKind::Manual) | (EffectState::Ambiguous, _) => Ok(Reservation::Ambiguous),
        (EffectState::Applied, _) => Ok(Reservation::Adopt),
        (settled @ (EffectState::Rejected | EffectState::Cancelled), _) => Err(ReserveError::Settled(settled)),
    }
}

/// How an applying effect was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// Its code threw and the error was caught.
    CaughtError,
    /// Its process or runner was killed or crashed.
    Killed,
    /// The node's time budget ran out.
    TimedOut,
    /// The run was paused.
    Paused,
    /// The run was cancelled: nothing will run again.
    Cancelled,
}

/// What a read-back found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// It happened.
    Applied,
    /// It did not happen.
    NotApplied,
    /// Cannot be told.
    Unknown,
}

/// How an interrupted effect goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// Settle it so.
    Settle(EffectSettlement),
    /// Read it back, then ask [`observed`].
    Observe,
}

/// Settles an effect that was interrupted while applying.
#[must_use]
pub fn interrupted(kind: EffectKind, how: Interruption) -> Settlement {
    match (how, kind) {
        (Interruption::CaughtError, _) => Settlement::Settle(EffectSettlement::Rejected),
        (Interruption::Cancelled, _) => Settlement::Settle(EffectSettlement::Ambiguous),
        (Interruption::Killed | Interruption::TimedOut | Interruption::Paused, kind) => match kind {
            EffectKind::Idempotent => Settlement::Settle(EffectSettlement::Pending),
            EffectKind::Observed => Settlement::Observe,
            EffectKind::Manual => Settlement::Settle(EffectSettlement::Ambiguous),
        },
    }
}

/// Settles an effect by its read-back. One that did not happen may be tried again.
#[must_use]
pub fn observed(found: Observation) -> EffectSettlement {
    match found {
        Observation::Applied => EffectSettlement::Applied,
        Observation::NotApplied => EffectSettlement::Pending,
        Observation::Unknown => EffectSettlement::Ambiguous,
    }
}

/// State of an effect after its run was cancelled.
#[must_use]
pub fn after_cancel(state: EffectState) -> EffectState {
    match state {
        EffectState::Pending => EffectState::Cancelled,
        EffectState::Applying => EffectState::Ambiguous,
        settled => settled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_every_part_and_never_by_how_parts_are_cut() {
        let base = key("r1", "deploy", "a/b", 1);
        assert_eq!(base, key("r1", "deploy", "a/b", 1));
        assert_eq!(base.len(), 68);
        let others = [
            key("r2", "deploy", "a/b", 1),
            key("r1", "deployx", "a/b", 1),
            key("r1", "deploy", "a/c", 1),
        ];
        assert!(others.iter().all(|other| *other != base));
        assert_ne!(base, key("r1", "deploy", "a/b", 2));
        assert_ne!(key("r", "1d", "n", 1), key("r1", "d", "n", 1));
    }

    fn stored(state: EffectState, kind: EffectKind) -> StoredEffect<'static> {
        StoredEffect {
            state,
            kind,
            fingerprint: "f",
            attempts: 2,
        }
    }

    #[test]
    fn reservations_follow_state_and_kind() {
        use EffectKind::{Idempotent, Manual, Observed};
        use EffectState::{Ambiguous, Applied, Applying, Pending};
        assert_eq!(reserve(None, Manual, "f"), Ok(Reservation::Apply { attempt: 1 }));
        let ask = |state, kind| reserve(Some(&stored(state, kind)), kind, "f");
        for kind in [Idempotent, Observed, Manual] {
            assert_eq!(ask(Pending, kind), Ok(Reservation::Apply { attempt: 3 }));
            assert_eq!(ask(Applied, kind), Ok(Reservation::Adopt));
            assert_eq!(ask(Ambiguous, kind), Ok(Reservation::Ambiguous));
            assert!(ask(EffectState::Rejected, kind).is_err());
        }
        assert_eq!(ask(Applying, Idempotent), Ok(Reservation::Apply { attempt: 3 }));
        assert_eq!(ask(Applying, Observed), Ok(Reservation::Observe { attempt: 2 }));
        assert_eq!(ask(Applying, Manual), Ok(Reservation::Ambiguous));
    }

    #[test]
    fn one_key_never_names_two_requests() {
        let effect = stored(EffectState::Pending, EffectKind::Manual);
        let message = reserve(Some(&effect), EffectKind::Manual, "g").unwrap_err().to_string();
        assert_eq!(
            message,
            "the effect was reserved with request f; one key cannot name the other request g"
        );
        let message = reserve(Some(&effect), EffectKind::Observed, "f")
            .unwrap_err()
            .to_string();
        assert_eq!(message, "the effect was reserved as Manual, not as Observed");
    }

    #[test]
    fn interruptions_settle_as_decided() {
        use EffectKind::{Idempotent, Manual, Observed};
        for kind in [Idempotent, Observed, Manual] {
            let rejected = Settlement::Settle(EffectSettlement::Rejected);
            assert_eq!(interrupted(kind, Interruption::CaughtError), rejected);
            let ambiguous = Settlement::Settle(EffectSettlement::Ambiguous);
            assert_eq!(interrupted(kind, Interruption::Cancelled), ambiguous);
        }
        for how in [Interruption::Killed, Interruption::TimedOut, Interruption::Paused] {
            assert_eq!(
                interrupted(Idempotent, how),
                Settlement::Settle(EffectSettlement::Pending)
            );
            assert_eq!(interrupted(Observed, how), Settlement::Observe);
            assert_eq!(
                interrupted(Manual, how),
                Settlement::Settle(EffectSettlement::Ambiguous)
            );
        }
        assert_eq!(observed(Observation::Applied), EffectSettlement::Applied);
        assert_eq!(observed(Observation::NotApplied), EffectSettlement::Pending);
        assert_eq!(observed(Observation::Unknown), EffectSettlement::Ambiguous);
        assert_eq!(after_cancel(EffectState::Pending), EffectState::Cancelled);
        assert_eq!(after_cancel(EffectState::Applying), EffectState::Ambiguous);
        assert_eq!(after_cancel(EffectState::Applied), EffectState::Applied);
    }
}
