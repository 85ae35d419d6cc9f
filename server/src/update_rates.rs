//! How fast sessions may publish updates of their steps: the rules of a runner's publisher, a bucket a request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use piw_engine::update::{TokenBucket, UpdateError};

/// Buckets that are kept; one that is forgotten is full again, which is what a bucket becomes by itself.
const KEPT: usize = 256;

/// A bucket per request.
#[derive(Debug)]
pub(crate) struct UpdateRates {
    epoch: Instant,
    buckets: Mutex<HashMap<String, TokenBucket>>,
}

impl Default for UpdateRates {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            buckets: Mutex::default(),
        }
    }
}

impl UpdateRates {
    /// Takes one update's allowance of a request.
    ///
    /// # Errors
    /// When it is used up, with how long to wait.
    pub(crate) fn take(&self, request: &str) -> Result<(), UpdateError> {
        let now = self.epoch.elapsed();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= KEPT && !buckets.contains_key(request) {
            buckets.clear();
        }
        let bucket = buckets
            .entry(request.to_owned())
            .or_insert_with(|| TokenBucket::new(now));
        bucket.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_an_allowance_of_its_own() {
        let rates = UpdateRates::default();
        let taken = (0..200).take_while(|_| rates.take("a").is_ok()).count();
        assert!((100..200).contains(&taken), "{taken}");
        assert_eq!(rates.take("b"), Ok(()));
    }
}
