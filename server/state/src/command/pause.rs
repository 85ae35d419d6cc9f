//! `run.pause` and `run.resume`.

use piw_engine::effect::Interruption;
use piw_engine::failure::ParkReason;
use piw_engine::{lifecycle, limits};
use piw_protocol::run::RunStatus;

use super::{Controlled, Facts, RunReceipted, accept, active_runner, expect, refuse, take_lapsed};
use crate::cache::Live;
use crate::decision;
use crate::effects;
use crate::error::StateError;
use crate::interaction;
use crate::live::{About, Park, next_ready_seq};
use crate::message;
use crate::receipts::{CommandIdentity, receipted};
use crate::runner;
use crate::state::State;
use crate::writer::{Authority, Tx};

impl State {
    /// Pauses a run: sets the pause, releases the claim and parks, all at once. The fenced runner is to be stopped then.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn pause_run(
        &self,
        identity: CommandIdentity,
        run_id: String,
        expected_revision: Option<u64>,
    ) -> Result<Controlled, StateError> {
        self.write("pause_run", Authority::Server, move |tx| {
            let mut stop = None;
            let receipted = receipted(tx, &identity, |tx| {
                let mut live = match expect(tx, &run_id, expected_revision)? {
                    Ok(live) => live,
                    Err(refused) => return Ok(refused),
                };
                if let Err(refusal) = lifecycle::check_pause(&Facts::read(tx, &live)?.as_engine()) {
                    return Ok(refuse(tx, live, &refusal));
                }
                stop = active_runner(tx, live.key)?;
                take_lapsed(tx, &mut live)?;
                pause(tx, &mut live)?;
                live.event(tx, "command", "run.paused", About::default())?;
                let message = match live.ambiguous_effects {
                    0 => None,
                    unclear => Some(format!("effects that may or may not have happened: {unclear}")),
                };
                accept(tx, live, message)
            })?;
            Ok(Controlled { receipted, stop })
        })
        .await
    }

    /// Resumes a paused run, or makes a parked one ready for one more try. A run that waits for an answer goes on waiting.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn resume_run(
        &self,
        identity: CommandIdentity,
        run_id: String,
        expected_revision: Option<u64>,
    ) -> Result<RunReceipted, StateError> {
        self.write("resume_run", Authority::Server, move |tx| {
            receipted(tx, &identity, |tx| {
                let mut live = match expect(tx, &run_id, expected_revision)? {
                    Ok(live) => live,
                    Err(refused) => return Ok(refused),
                };
                if let Err(refusal) = lifecycle::check_resume(&Facts::read(tx, &live)?.as_engine()) {
                    return Ok(refuse(tx, live, &refusal));
                }
                decision::release(tx, live.key)?;
                tx.db
                    .prepare_cached("UPDATE runs SET paused_at = NULL WHERE id = ?1")?
                    .execute([live.key])?;
                go_on(tx, &mut live)?;
                message::touch_run(tx, live.key)?;
                interaction::resumed(tx, &mut live)?;
                live.event(tx, "command", "run.resumed", About::default())?;
                accept(tx, live, None)
            })
        })
        .await
    }
}

/// Pauses: sets the pause, withdraws the attempt and its messages, parks and releases the claim.
pub(crate) fn pause(tx: &mut Tx<'_>, live: &mut Live) -> Result<(), StateError> {
    tx.db
        .prepare_cached("UPDATE runs SET paused_at = ?2 WHERE id = ?1")?
        .execute((live.key, tx.now))?;
    live.drop_attempt(tx, "interrupted")?;
    effects::interrupt(tx, live, Interruption::Paused)?;
    interaction::paused(tx, live)?;
    message::touch_run(tx, live.key)?;
    let reason = (live.ambiguous_effects > 0).then_some(ParkReason::EffectAmbiguous.as_str());
    live.park(
        tx,
        &Park {
            claimable: false,
            reason,
            detail: None,
        },
    )?;
    runner::next_action(tx, live)
}

/// Makes parked work ready for one more try. A run that waits for an answer goes on waiting.
pub(super) fn go_on(tx: &mut Tx<'_>, live: &mut Live) -> Result<(), StateError> {
    tx.db
        .prepare_cached("UPDATE runs SET failure_class = NULL WHERE id = ?1")?
        .execute([live.key])?;
    // One more crash parks it again.
    live.crash_streak = live.crash_streak.min(limits::CRASHES_IN_A_ROW - 1);
    if live.status != RunStatus::Waiting {
        make_ready(tx, live.key, live.status)?;
    }
    tx.changes.run(live.key, &live.run_id, true);
    Ok(())
}

pub(crate) fn make_ready(tx: &mut Tx<'_>, key: crate::ids::RunKey, status: RunStatus) -> Result<(), StateError> {
    let queue = if status == RunStatus::Queued {
        "queued"
    } else {
        "parked"
    };
    let seq = next_ready_seq(tx)?;
    tx.db
        .prepare_cached(
            "UPDATE run_queue SET status = ?2, claimable = 1, ready_seq = ?3, park_reason = NULL, park_detail = NULL,
               updated_at = ?4 WHERE run = ?1",
        )?
        .execute((key, queue, seq, tx.now))?;
    tx.changes.claimable = true;
    Ok(())
}
