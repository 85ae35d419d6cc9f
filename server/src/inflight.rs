//! Commands whose decision takes a while: a retry joins the first try and gets the same outcome.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use piw_protocol::canonical::CanonicalJson;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::OperationError;
use tokio::sync::watch;

use crate::answer::Answer;

/// A decided answer that several requests may get.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    outcome: Outcome,
    revision: Option<u64>,
    receipt: Option<CanonicalJson>,
    error: Option<Box<OperationError>>,
}

impl From<Answer> for Decided {
    fn from(answer: Answer) -> Self {
        Self {
            outcome: answer.outcome.unwrap_or(Outcome::Unavailable),
            revision: answer.revision,
            receipt: answer.receipt,
            error: answer.error,
        }
    }
}

impl Decided {
    fn answer(self, joined: bool) -> Answer {
        let outcome = if joined && self.outcome == Outcome::Accepted {
            Outcome::Adopted
        } else {
            self.outcome
        };
        Answer {
            outcome: Some(outcome),
            revision: self.revision,
            receipt: self.receipt,
            error: self.error,
            then: None,
        }
    }
}

/// Identity of a command: client and idempotency key.
type Key = (String, String);

#[derive(Debug)]
struct Pending {
    fingerprint: String,
    decided: watch::Receiver<Option<Decided>>,
}

/// The commands in work.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight {
    pending: Arc<Mutex<HashMap<Key, Pending>>>,
}

impl InFlight {
    /// Whether nothing is in work.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Runs `work` once per identity. It goes on when the caller is gone. `None`: the identity is in work with another
    /// fingerprint.
    pub(crate) async fn run<F>(&self, key: Key, fingerprint: &str, work: impl FnOnce() -> F) -> Option<Answer>
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let (mut decided, joined) = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = pending.get(&key) {
                if known.fingerprint != fingerprint {
                    return None;
                }
                (known.decided.clone(), true)
            } else {
                let (sender, receiver) = watch::channel(None);
                pending.insert(
                    key.clone(),
                    Pending {
                        fingerprint: fingerprint.to_owned(),
                        decided: receiver.clone(),
                    },
                );
                let (forget, work) = (
                    Forget {
                        in_flight: self.clone(),
                        key,
                    },
                    work(),
                );
                tokio::spawn(async move {
                    let decided = Decided::from(work.await);
                    // Forgotten before it is told: a later retry finds the stored receipt.
                    drop(forget);
                    let _ = sender.send(Some(decided));
                });
                (receiver, false)
            }
        };
        let answer = match decided.wait_for(Option::is_some).await {
            Ok(decided) => decided.clone().map(|decided| decided.answer(joined)),
            Err(_) => None,
        };
        Some(answer.unwrap_or_else(|| {
            Answer::refuse(
                Outcome::Unavailable,
                "interrupted",
                &"the server could not finish the command; retry with the same key",
            )
        }))
    }
}

/// Takes a command off the list, also when its work panics.
struct Forget {
    in_flight: InFlight,
    key: Key,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.in_flight
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_retry_waits_for_the_same_outcome_and_another_payload_conflicts() {
        let in_flight = InFlight::default();
        let key = || ("client".to_owned(), "key".to_owned());
        let (release, released) = oneshot::channel::<()>();
        let first = tokio::spawn({
            let (in_flight, key) = (in_flight.clone(), key());
            async move {
                let work = || async {
                    released.await.expect("released");
                    Answer::accepted(&"done")
                };
                in_flight.run(key, "f", work).await
            }
        });
        while in_flight.pending.lock().expect("pending").is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(
            in_flight
                .run(key(), "other", || async { Answer::done() })
                .await
                .is_none()
        );
        let second = tokio::spawn({
            let (in_flight, key) = (in_flight.clone(), key());
            async move { in_flight.run(key, "f", || async { panic!("never runs") }).await }
        });
        tokio::task::yield_now().await;
        release.send(()).expect("waiting");
        let outcome = |answer: Option<Answer>| answer.expect("an answer").outcome.expect("an outcome");
        assert_eq!(outcome(first.await.expect("first")), Outcome::Accepted);
        assert_eq!(outcome(second.await.expect("second")), Outcome::Adopted);
        assert!(in_flight.pending.lock().expect("pending").is_empty());
    }

    #[tokio::test]
    async fn work_that_panics_is_forgotten() {
        let in_flight = InFlight::default();
        let key = ("client".to_owned(), "key".to_owned());
        let answer = in_flight
            .run(key, "f", || async { panic!("on purpose") })
            .await
            .expect("an answer");
        assert_eq!(answer.outcome, Some(Outcome::Unavailable));
        assert!(in_flight.pending.lock().expect("pending").is_empty());
    }
}
