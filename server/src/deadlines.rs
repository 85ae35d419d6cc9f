//! The time of requests: a budget of model time that runs out decides its request, whoever watches.

use std::time::Duration;

use piw_state::{Interest, State};

/// How often counted time is sampled: a crash loses no more of it.
const SAMPLE: Duration = Duration::from_secs(10);
/// Pause after a failure of the database.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Watches deadlines for ever. Sleeps until the next one while there is any, else until there is.
pub(crate) async fn keep(state: State) {
    let mut changes = state.changes(Interest::Deadlines);
    loop {
        let next = match state.expire_requests().await {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(%error, "deadlines cannot be looked at");
                Some(FAILURE_PAUSE)
            }
        };
        tokio::select! {
            _ = changes.next() => {}
            () = tokio::time::sleep(next.unwrap_or(SAMPLE).min(SAMPLE)), if next.is_some() => {}
        }
    }
}
