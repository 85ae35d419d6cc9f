//! A worse world for test builds: a process of an earlier generation that wakes late and goes on.
//!
//! What each generation said is remembered. Whenever a later generation of the same run has started a node and the runner does
//! not know it yet, the earlier ones say it again, under their own claims and with new message ids. The fence must refuse all
//! of it. On with the switch `late-messages`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use piw_protocol::child::{ChildBody, ChildMessage, Next};
use piw_state::{Claim, State};

/// Messages of earlier generations that arrive again at a time.
const AGAIN: usize = 12;

static SAID: Mutex<Option<HashMap<String, Vec<(Claim, ChildMessage)>>>> = Mutex::new(None);
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A message was decided: remembers it, and lets earlier ones arrive when a node has just started.
pub(super) async fn messages(state: &State, claim: &Claim, message: &ChildMessage) {
    if !piw_fault::switch!("late-messages") {
        return;
    }
    for (claim, mut late) in remember(claim, message) {
        late.message_id = format!("late-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        // A process that wakes late has seen no newer revision, but it may guess one.
        late.expected_revision = None;
        piw_fault::point!("server::late_message");
        match state.apply_child(&claim, late).await {
            Ok(reply) => tracing::debug!(run_id = %claim.run_id, outcome = ?reply.outcome, "a late message"),
            Err(error) => tracing::debug!(run_id = %claim.run_id, %error, "a late message"),
        }
    }
}

fn remember(claim: &Claim, message: &ChildMessage) -> Vec<(Claim, ChildMessage)> {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let all = said
        .get_or_insert_default()
        .entry(claim.run_id.to_string())
        .or_default();
    let starts = match &message.body {
        ChildBody::NodeStarted(_) => true,
        ChildBody::NodeFinished(finish) | ChildBody::NodeFailed(finish) => matches!(finish.next, Next::Start(_)),
        _ => false,
    };
    let late = all
        .iter()
        .rev()
        .filter(|(earlier, _)| starts && earlier.generation < claim.generation)
        .take(AGAIN)
        .cloned()
        .collect();
    if !matches!(
        message.body,
        ChildBody::ContentPut { .. } | ChildBody::ContentGet { .. }
    ) {
        all.push((claim.clone(), message.clone()));
    }
    late
}
