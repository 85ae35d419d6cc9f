//! `effect.resolve`: a person says what became of an ambiguous effect.

use piw_engine::failure::ParkReason;
use piw_protocol::child::ValueRef;
use piw_protocol::effect::{EffectDecision, EffectReceipt, EffectState};
use piw_protocol::envelope::Outcome;
use piw_protocol::run::RunStatus;

use super::{accept, expect, pause};
use crate::cache::Live;
use crate::effects;
use crate::error::StateError;
use crate::receipts::{CommandIdentity, Decision, Receipted, receipted};
use crate::state::State;
use crate::value::Prepared;
use crate::writer::{Authority, Tx};

/// What a person says of an ambiguous effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// Key of the effect.
    pub effect_id: String,
    /// The decision.
    pub decision: EffectDecision,
    /// What a confirmed effect gave, in the form that the runner adopts.
    pub result: ValueRef,
    /// Who decided, for the audit.
    pub source: String,
}

impl State {
    /// Settles an ambiguous effect by a person's word. When it was the last one that kept its run parked, the run becomes
    /// claimable in the same transaction.
    ///
    /// # Errors
    /// [`StateError::Invalid`] when the result cannot be stored; otherwise when the write fails.
    pub async fn resolve_effect(
        &self,
        identity: CommandIdentity,
        run_id: String,
        expected_revision: u64,
        resolution: Resolution,
    ) -> Result<Receipted<EffectReceipt>, StateError> {
        let result = match resolution.decision {
            EffectDecision::Confirm => Some(Prepared::value(&resolution.result)?),
            EffectDecision::Retry => None,
        };
        self.write("resolve_effect", Authority::Server, move |tx| {
            receipted(tx, &identity, |tx| {
                match expect(tx, &run_id, Some(expected_revision))? {
                    Ok(live) => resolve(tx, live, &resolution, result),
                    Err(refused) => Ok(refused),
                }
            })
        })
        .await
    }
}

fn resolve(
    tx: &mut Tx<'_>,
    mut live: Live,
    resolution: &Resolution,
    result: Option<Prepared>,
) -> Result<Decision<EffectReceipt>, StateError> {
    let id = &resolution.effect_id;
    let row = match effects::find(tx, id)? {
        Some(row) if row.resource == live.key.0 => row,
        _ => {
            let message = format!("run {} has no effect {id}", live.run_id);
            return Ok(refuse(tx, live, Outcome::NotFound, "effect_not_found", message));
        }
    };
    if row.state != EffectState::Ambiguous {
        let message = format!("effect {id} is {}: there is nothing to resolve", row.state.name());
        return Ok(refuse(tx, live, Outcome::Rejected, "effect_not_ambiguous", message));
    }
    let unfinished = crate::query::effects::is_unfinished(tx.db, row.id)?;
    let state = match resolution.decision {
        EffectDecision::Confirm => EffectState::Applied,
        EffectDecision::Retry if unfinished => EffectState::Pending,
        // Nothing executes it any more; settled, it no longer stands in the way of a restart.
        EffectDecision::Retry => EffectState::Cancelled,
    };
    effects::resolve(tx, &mut live, &row, state, result, &resolution.source)?;
    let goes_on = unpark(tx, &mut live)?;
    let message = said(&live, state, unfinished, goes_on, row.attempts);
    let (effect_id, paused) = (id.clone(), is_paused(tx, &live)?);
    let message = if paused && unfinished {
        format!("{message}; the run is paused")
    } else {
        message
    };
    Ok(accept(tx, live, Some(message))?.map(|run| EffectReceipt { effect_id, state, run }))
}

fn refuse(
    tx: &mut Tx<'_>,
    live: Live,
    outcome: Outcome,
    reason: &'static str,
    message: String,
) -> Decision<EffectReceipt> {
    let decision = Decision::refuse(live.key, outcome, reason, message);
    tx.cache.put(live);
    decision
}

/// Makes a run claimable that was parked for its ambiguous effects alone. `false`: something else keeps it, or it ended.
fn unpark(tx: &mut Tx<'_>, live: &mut Live) -> Result<bool, StateError> {
    if live.ambiguous_effects > 0 || live.status != RunStatus::Running {
        return Ok(false);
    }
    let parked = tx
        .db
        .prepare_cached(
            "SELECT 1 FROM run_queue q JOIN runs r ON r.id = q.run
              WHERE q.run = ?1 AND q.status = 'parked' AND q.claimable = 0 AND q.park_reason = ?2 AND r.paused_at IS NULL",
        )?
        .exists((live.key, ParkReason::EffectAmbiguous.as_str()))?;
    if parked {
        pause::go_on(tx, live)?;
    }
    Ok(parked)
}

fn is_paused(tx: &Tx<'_>, live: &Live) -> Result<bool, StateError> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT paused_at IS NOT NULL FROM runs WHERE id = ?1")?;
    Ok(statement.query_row([live.key], |row| row.get(0))?)
}

/// What follows, for people.
fn said(live: &Live, state: EffectState, unfinished: bool, goes_on: bool, attempts: u32) -> String {
    let what = match state {
        EffectState::Applied if unfinished => "confirmed; its node ends with the given result".to_owned(),
        EffectState::Applied => "confirmed".to_owned(),
        EffectState::Pending => format!("attempt {} applies it again", attempts + 1),
        _ if live.status.is_terminal() => {
            "given up: the run has ended, so nothing tries it again; a restart is a new run with a new effect"
                .to_owned()
        }
        _ => "given up: its node has ended, so nothing tries it again".to_owned(),
    };
    match live.ambiguous_effects {
        0 if goes_on => format!("{what}; the run goes on"),
        0 => what,
        left => format!("{what}; effects left to review: {left}"),
    }
}
