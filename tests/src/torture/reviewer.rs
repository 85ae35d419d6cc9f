//! The person who settles effects whose outcome nobody can prove.

use fastrand::Rng;
use piw_protocol::effect::{EffectDecision, EffectView};

/// What the person does about an ambiguous effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// Says what the world outside shows.
    Careful(EffectDecision),
    /// Has it tried again without looking.
    Careless,
    /// Gives the run up; the effect stays ambiguous.
    GiveUp,
}

/// Decides a review. `log` is what nodes left outside; nothing of the run acts while it waits for its review.
#[must_use]
pub fn decide(effect: &EffectView, log: &str, rng: &mut Rng) -> Review {
    match rng.u8(0..8) {
        0 => Review::GiveUp,
        1 => Review::Careless,
        _ => {
            let happened = log
                .lines()
                .any(|line| line.split(' ').nth(1) == Some(effect.effect_id.as_str()));
            Review::Careful(if happened {
                EffectDecision::Confirm
            } else {
                EffectDecision::Retry
            })
        }
    }
}
