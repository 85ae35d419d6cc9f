//! `run.cancel`: terminal at once, whatever the runner does.

use piw_engine::effect::Interruption;
use piw_engine::lifecycle;
use piw_protocol::run::RunStatus;

use super::{Controlled, Facts, accept, active_runner, expect, refuse, take_lapsed};
use crate::effects;
use crate::error::StateError;
use crate::live::{About, CANCELLED, End};
use crate::receipts::{CommandIdentity, receipted};
use crate::state::State;
use crate::writer::Authority;

impl State {
    /// Cancels a run: terminal, attempt and pending effects cancelled, applying effects ambiguous, claim released, all at
    /// once. The fenced runner is to be stopped then. Every claim on a run belongs to this server or to one that it replaced,
    /// so there is no live claim of somebody else to respect; a lapsed one is taken over first.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn cancel_run(
        &self,
        identity: CommandIdentity,
        run_id: String,
        expected_revision: Option<u64>,
    ) -> Result<Controlled, StateError> {
        self.write("cancel_run", Authority::Server, move |tx| {
            let mut stop = None;
            let receipted = receipted(tx, &identity, |tx| {
                let mut live = match expect(tx, &run_id, expected_revision)? {
                    Ok(live) => live,
                    Err(refused) => return Ok(refused),
                };
                if let Err(refusal) = lifecycle::check_cancel(&Facts::read(tx, &live)?.as_engine()) {
                    return Ok(refuse(tx, live, &refusal));
                }
                stop = active_runner(tx, live.key)?;
                take_lapsed(tx, &mut live)?;
                live.drop_attempt(tx, CANCELLED)?;
                effects::interrupt(tx, &mut live, Interruption::Cancelled)?;
                let end = End {
                    status: RunStatus::Cancelled,
                    final_output: None,
                    error: None,
                    failure_class: None,
                    continued: false,
                };
                live.end(tx, end)?;
                live.event(tx, "command", "run.cancelled", About::default())?;
                accept(tx, live, None)
            })?;
            Ok(Controlled { receipted, stop })
        })
        .await
    }
}
