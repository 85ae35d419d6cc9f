//! The budget of a request: active time of its model's turns, counted while its session is connected.

use std::time::Duration;

use piw_engine::machine::CODE_TIMED_OUT;
use piw_protocol::run::ErrorInfo;

use super::{Decided, decide, load};
use crate::active;
use crate::decision;
use crate::error::StateError;
use crate::ids::AttemptKey;
use crate::live::Bump;
use crate::state::State;
use crate::writer::{Authority, Tx};

/// An open turn that is counted.
struct Counted {
    request: i64,
    attempt: AttemptKey,
    timeout_ms: Option<u64>,
}

impl State {
    /// Samples the time of every request whose model works, and decides those whose budget ran out: their runs are claimable then.
    /// Decisions whose deadline passed get their declared response. Returns how long the next one has left; `None` when no time is counted or nothing bounds it.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn expire_requests(&self) -> Result<Option<Duration>, StateError> {
        let any = self.read(|db| {
            let counted = db.prepare_cached(COUNTED)?.exists([])?;
            Ok(counted || db.prepare_cached(decision::HAS_DEADLINE)?.exists([])?)
        });
        if any.await? {
            self.write("expire_requests", Authority::Server, expire).await
        } else {
            Ok(None)
        }
    }

    /// The coordinator of a session is gone: its model's time stands still until a branch is reported again.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn hold_session_time(&self, session: String) -> Result<(), StateError> {
        self.write("hold_session_time", Authority::Server, move |tx| {
            for attempt in attempts_of(tx, &session, HELD)? {
                active::hold(tx, attempt)?;
            }
            Ok(())
        })
        .await
    }
}

/// The branch of a session was reported: the time of its open turn counts again.
pub(crate) fn resume_session_time(tx: &mut Tx<'_>, session: &str) -> Result<(), StateError> {
    for attempt in attempts_of(tx, session, WORKING)? {
        active::resume(tx, attempt)?;
        tx.changes.deadlines = true;
    }
    Ok(())
}

const COUNTED: &str = "SELECT q.id, a.id, a.timeout_ms FROM attempt_active_intervals i
   JOIN node_attempts a ON a.id = i.attempt JOIN interactive_requests q ON q.attempt = a.id
  WHERE i.closed = 0 AND a.status = 'waiting' AND q.status = 'pending'";
const HELD: &str = "SELECT q.attempt FROM interactive_requests q WHERE q.target_session = ?1 AND q.status = 'pending'";
const WORKING: &str =
    "SELECT q.attempt FROM interactive_requests q WHERE q.target_session = ?1 AND q.status = 'pending'
   AND EXISTS (SELECT 1 FROM workflow_messages m JOIN workflow_turns t ON t.message = m.id
                WHERE m.request = q.id AND t.status = 'open')";

fn attempts_of(tx: &Tx<'_>, session: &str, query: &str) -> Result<Vec<AttemptKey>, StateError> {
    let mut statement = tx.db.prepare_cached(query)?;
    let found = statement.query_map([session], |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn expire(tx: &mut Tx<'_>) -> Result<Option<Duration>, StateError> {
    let mut statement = tx.db.prepare_cached(COUNTED)?;
    let counted: Vec<Counted> = statement
        .query_map([], |row| {
            Ok(Counted {
                request: row.get(0)?,
                attempt: row.get(1)?,
                timeout_ms: row.get(2)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    drop(statement);
    let mut next: Option<u64> = None;
    for Counted {
        request,
        attempt,
        timeout_ms,
    } in counted
    {
        active::extend(tx, attempt)?;
        let Some(budget) = timeout_ms else { continue };
        let left = budget.saturating_sub(active::consumed(tx.db, attempt)?);
        if left > 0 {
            next = Some(next.map_or(left, |known| known.min(left)));
            continue;
        }
        let request = load(tx.db, request)?;
        let mut live = tx.cache.take(tx.db, request.run)?;
        let node = live
            .current
            .as_ref()
            .map(|current| live.graph.node_id(current.node))
            .transpose()?;
        let message = format!(
            "node {:?} had {budget} ms of model time, which are used up",
            node.unwrap_or_default()
        );
        let error = ErrorInfo {
            code: Some(CODE_TIMED_OUT.to_owned()),
            message,
            stack: None,
        };
        decide(tx, &mut live, &request, Decided::TimedOut(error))?;
        live.save(tx, Bump::Execution)?;
    }
    let decision = decision::expire(tx)?;
    Ok(next.map(Duration::from_millis).into_iter().chain(decision).min())
}
