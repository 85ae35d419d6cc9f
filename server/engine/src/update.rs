//! Updates that nodes publish: grammar, sizes, the number of current pairs and the rate. Over-limit is an error to the
//! publisher, never a silent drop.

use std::time::Duration;

use piw_protocol::canonical::{self, CanonicalError};
use piw_protocol::run::Update;
use thiserror::Error;

use crate::limits;
use crate::names::shown;
use crate::progress::{ProgressData, ProgressError};
use crate::value::kind;

/// Type of the updates that carry progress (`pi-workflows.progress.v1`).
pub const PROGRESS_TYPE: &str = "progress";

const TYPE_GRAMMAR: &str = "[a-z][a-z0-9.-]{0,63}";
const KEY_GRAMMAR: &str = "[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}";

/// Why an update is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UpdateError {
    /// The type breaks its grammar.
    #[error("update type \"{}\" does not match {TYPE_GRAMMAR}", shown(.0))]
    Type(String),
    /// The key breaks its grammar.
    #[error("update key \"{}\" does not match {KEY_GRAMMAR}", shown(.0))]
    Key(String),
    /// The data is no object.
    #[error("data of update {update_type}/{key} is {found}; it must be an object")]
    NotObject {
        /// The update's type.
        update_type: String,
        /// The update's key.
        key: String,
        /// Kind of value found.
        found: &'static str,
    },
    /// The data has no canonical form.
    #[error("data of update {update_type}/{key}: {error}")]
    Data {
        /// The update's type.
        update_type: String,
        /// The update's key.
        key: String,
        /// What is wrong.
        error: CanonicalError,
    },
    /// The data is too large.
    #[error("data of update {update_type}/{key} has {bytes} bytes of JSON; at most {max} are allowed", max = limits::UPDATE_BYTES)]
    TooLarge {
        /// The update's type.
        update_type: String,
        /// The update's key.
        key: String,
        /// Found size.
        bytes: usize,
    },
    /// Progress data breaks its schema.
    #[error("progress update \"{key}\": {error}")]
    Progress {
        /// The update's key.
        key: String,
        /// What is wrong.
        error: ProgressError,
    },
    /// Too many current pairs.
    #[error("update {update_type}/{key} would be current pair {count}; a run has at most {max} (type, key) pairs", max = limits::UPDATE_PAIRS)]
    TooManyPairs {
        /// The update's type.
        update_type: String,
        /// The update's key.
        key: String,
        /// Pairs with the new one.
        count: usize,
    },
    /// Too fast.
    #[error(
        "updates are published too fast: more than {rate} a second after a burst of {burst}; the next one is accepted in {} ms",
        wait.as_millis(), rate = limits::UPDATE_RATE, burst = limits::UPDATE_BURST
    )]
    TooFast {
        /// Time until the next update is accepted.
        wait: Duration,
    },
}

/// Checks grammar, size and, for `progress`, the data's schema.
///
/// # Errors
/// Names the update, the rule and the value.
pub fn check(update: &Update) -> Result<(), UpdateError> {
    if !matches_grammar(
        &update.update_type,
        64,
        |b| b.is_ascii_lowercase(),
        |b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-'),
    ) {
        return Err(UpdateError::Type(update.update_type.clone()));
    }
    if !matches_grammar(
        &update.key,
        128,
        |b| b.is_ascii_alphanumeric(),
        |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'/' | b'-'),
    ) {
        return Err(UpdateError::Key(update.key.clone()));
    }
    let (update_type, key) = (|| update.update_type.clone(), || update.key.clone());
    if !update.data.is_object() {
        return Err(UpdateError::NotObject {
            update_type: update_type(),
            key: key(),
            found: kind(&update.data),
        });
    }
    let bytes = canonical::to_vec(&update.data)
        .map_err(|error| UpdateError::Data {
            update_type: update_type(),
            key: key(),
            error,
        })?
        .len();
    if bytes > limits::UPDATE_BYTES {
        return Err(UpdateError::TooLarge {
            update_type: update_type(),
            key: key(),
            bytes,
        });
    }
    if update.update_type == PROGRESS_TYPE {
        ProgressData::parse(&update.data).map_err(|error| UpdateError::Progress { key: key(), error })?;
    }
    Ok(())
}

fn matches_grammar(text: &str, max: usize, first: fn(u8) -> bool, rest: fn(u8) -> bool) -> bool {
    let mut bytes = text.bytes();
    text.len() <= max && bytes.next().is_some_and(first) && bytes.all(rest)
}

/// Checks the number of current pairs. `current` is how many the run has now, `exists` whether the pair is one of them.
///
/// # Errors
/// [`UpdateError::TooManyPairs`].
pub fn check_pairs(update: &Update, current: usize, exists: bool) -> Result<(), UpdateError> {
    if exists || current < limits::UPDATE_PAIRS {
        return Ok(());
    }
    let (update_type, key) = (update.update_type.clone(), update.key.clone());
    Err(UpdateError::TooManyPairs {
        update_type,
        key,
        count: current + 1,
    })
}

/// Token bucket of one run: [`limits::UPDATE_RATE`] a second on average, [`limits::UPDATE_BURST`] at once.
/// Times are of any monotonic clock; one that steps back refills nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBucket {
    /// Nanoseconds of credit: one token is `1 s / UPDATE_RATE`.
    credit: u128,
    at: Duration,
}

const TOKEN: u128 = 1_000_000_000 / limits::UPDATE_RATE as u128;
const FULL: u128 = TOKEN * limits::UPDATE_BURST as u128;

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { credit: FULL, at: now }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// [`UpdateError::TooFast`] with the time until the next token.
    pub fn take(&mut self, now: Duration) -> Result<(), UpdateError> {
        self.credit = FULL.min(self.credit + now.saturating_sub(self.at).as_nanos());
        self.at = self.at.max(now);
        if let Some(left) = self.credit.checked_sub(TOKEN) {
            self.credit = left;
            return Ok(());
        }
        let missing = u64::try_from(TOKEN - self.credit).unwrap_or(u64::MAX);
        Err(UpdateError::TooFast {
            wait: Duration::from_nanos(missing),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn update(update_type: &str, key: &str, data: serde_json::Value) -> Update {
        Update {
            update_type: update_type.to_owned(),
            key: key.to_owned(),
            data,
        }
    }

    fn message(update: &Update) -> String {
        check(update).unwrap_err().to_string()
    }

    #[test]
    fn grammar_is_exact() {
        let data = || json!({});
        for good in ["a", "a.b-c9", &"a".repeat(64)] {
            assert_eq!(check(&update(good, "k", data())), Ok(()), "{good}");
        }
        for bad in ["", "A", "9a", ".a", "a_b", "a b", &"a".repeat(65)] {
            assert!(
                message(&update(bad, "k", data())).contains("does not match [a-z]"),
                "{bad}"
            );
        }
        for good in ["k", "9", "a._:/-Z", &"k".repeat(128)] {
            assert_eq!(check(&update("a", good, data())), Ok(()), "{good}");
        }
        for bad in ["", "-k", "k k", "é", &"k".repeat(129)] {
            assert!(
                message(&update("a", bad, data())).contains("does not match [A-Za-z0-9]"),
                "{bad}"
            );
        }
    }

    #[test]
    fn data_is_a_bounded_object() {
        assert_eq!(
            message(&update("a", "k", json!([1]))),
            "data of update a/k is an array; it must be an object"
        );
        // {"t":"…"} costs 8 bytes around the text.
        let sized = |bytes: usize| update("a", "k", json!({ "t": "x".repeat(bytes - 8) }));
        assert_eq!(check(&sized(65_536)), Ok(()));
        assert_eq!(
            message(&sized(65_537)),
            "data of update a/k has 65537 bytes of JSON; at most 65536 are allowed"
        );
    }

    #[test]
    fn progress_data_is_checked() {
        assert_eq!(check(&update("progress", "k", json!({ "status": "running" }))), Ok(()));
        let text = message(&update("progress", "k", json!({ "status": "running", "eta": 3 })));
        assert!(
            text.starts_with("progress update \"k\": unknown field \"eta\""),
            "{text}"
        );
    }

    #[test]
    fn pairs_are_bounded_but_known_ones_stay_open() {
        let new = update("a", "k", json!({}));
        assert_eq!(check_pairs(&new, 1023, false), Ok(()));
        assert_eq!(check_pairs(&new, 1024, true), Ok(()));
        assert_eq!(
            check_pairs(&new, 1024, false).unwrap_err().to_string(),
            "update a/k would be current pair 1025; a run has at most 1024 (type, key) pairs"
        );
    }

    #[test]
    fn burst_then_rate() {
        let mut bucket = TokenBucket::new(Duration::ZERO);
        for _ in 0..100 {
            assert_eq!(bucket.take(Duration::ZERO), Ok(()));
        }
        let text = bucket.take(Duration::ZERO).unwrap_err().to_string();
        assert!(text.ends_with("the next one is accepted in 50 ms"), "{text}");
        assert!(bucket.take(Duration::from_millis(49)).is_err());
        assert_eq!(bucket.take(Duration::from_millis(50)), Ok(()));
        assert!(bucket.take(Duration::from_millis(50)).is_err());
    }

    proptest! {
        #[test]
        fn never_more_than_burst_plus_rate(steps in proptest::collection::vec(0u64..200, 1..400)) {
            let mut bucket = TokenBucket::new(Duration::ZERO);
            let (mut now, mut taken) = (0, 0u64);
            for step in steps {
                now += step;
                if bucket.take(Duration::from_millis(now)).is_ok() {
                    taken += 1;
                }
                prop_assert!(taken <= 100 + now * 20 / 1000);
            }
        }
    }
}
