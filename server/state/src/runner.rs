//! The life of a runner process as the database sees it: spawned, ready, gone.
//!
//! A runner's exit is not a run's failure. What follows is decided from the last committed attempt and from effect state: the
//! run is claimed again, or it parks and waits for a person (decisions 3 and 5).

use piw_engine::attempt;
use piw_engine::effect::Interruption;
use piw_engine::failure::{FailureClass, ParkReason};
use piw_protocol::canonical;
use piw_protocol::child::{Command, CommandAction};
use rusqlite::{Connection, named_params};
use serde_json::json;

use crate::cache::Live;
use crate::effects;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::live::{About, Bump, Park, bounded};
use crate::queue::{Claim, Renewed, renew};
use crate::state::State;
use crate::value::maybe;
use crate::writer::{Authority, Tx};

/// How a runner process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerOutcome {
    /// By itself, in order.
    Exited,
    /// By a pause, cancel or stop of the server.
    Cancelled,
    /// It missed the start-up deadline.
    TimedOut,
    /// It did not end its node after the node's budget had run out.
    Overran,
    /// By a signal, an error code or a lost channel.
    Crashed,
    /// It broke the protocol.
    ProtocolRejected,
    /// The server could not decide its messages.
    Unavailable,
    /// It was told that its claim is gone.
    ClaimLost,
    /// Its server died.
    Orphaned,
}

impl RunnerOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Cancelled | Self::Unavailable => "cancelled",
            Self::TimedOut | Self::Overran => "timedOut",
            Self::Crashed | Self::ProtocolRejected => "crashed",
            Self::ClaimLost => "claimLost",
            Self::Orphaned => "orphaned",
        }
    }

    /// Whether the server caused the end: such exits never count as crashes.
    const fn is_caused(self) -> bool {
        matches!(
            self,
            Self::Cancelled | Self::Unavailable | Self::ClaimLost | Self::Orphaned
        )
    }

    /// The failure behind it; `None` when nothing failed.
    #[must_use]
    pub const fn failure(self) -> Option<FailureClass> {
        match self {
            Self::Exited | Self::Cancelled => None,
            Self::TimedOut | Self::Overran => Some(FailureClass::RunnerTimedOut),
            Self::Crashed => Some(FailureClass::RunnerCrashed),
            Self::ProtocolRejected => Some(FailureClass::ProtocolRejected),
            Self::Unavailable | Self::Orphaned => Some(FailureClass::ServerUnavailable),
            Self::ClaimLost => Some(FailureClass::ClaimLost),
        }
    }

    /// How the attempt that it left behind is recorded.
    const fn attempt_status(self) -> &'static str {
        match self {
            Self::Cancelled | Self::Unavailable | Self::ClaimLost => "interrupted",
            Self::Overran => "overran",
            Self::Exited | Self::TimedOut | Self::Crashed | Self::ProtocolRejected | Self::Orphaned => "crashed",
        }
    }
}

/// A runner's exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerExit {
    /// Launch that ended.
    pub runner_epoch: String,
    /// How.
    pub outcome: RunnerOutcome,
    /// Exit code, when it exited.
    pub exit_code: Option<i32>,
    /// Signal name, when a signal ended it.
    pub signal: Option<String>,
    /// What it printed last, for people; bounded when stored.
    pub diagnostic: Option<String>,
}

/// What follows a runner's exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterExit {
    /// The run had ended, parked, or belongs to a newer generation: nothing changed.
    Nothing,
    /// The run is ready to be claimed again.
    Claimable,
    /// The run parked and waits for a person.
    Parked {
        /// Why.
        reason: ParkReason,
    },
}

/// The launch of a runner.
struct Launched {
    id: i64,
    run: RunKey,
    generation: u64,
    status: String,
    ready_revision: Option<u64>,
}

impl State {
    /// Records the process of a launch.
    ///
    /// # Errors
    /// When the write fails. The inner result says whether the claim still holds; if not, the process must be ended.
    pub async fn runner_spawned(&self, claim: &Claim, pid: u32, start_identity: String) -> Result<Renewed, StateError> {
        let claim = claim.clone();
        self.write("runner_spawned", Authority::Server, move |tx| {
            let renewed = renew(tx, &claim)?;
            // The process exists whatever became of the claim: it is recorded so that it can be found.
            tx.db
                .prepare_cached("UPDATE run_runners SET pid = ?2, start_identity = ?3 WHERE runner_epoch = ?1")?
                .execute((&*claim.runner_epoch, pid, start_identity))?;
            Ok(renewed)
        })
        .await
    }

    /// Records that a runner process is gone, with everything it registered, and decides what its run does next. Call it once
    /// the process and its registered groups are ended and awaited: the run can be claimed again from then on.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn runner_exited(&self, exit: RunnerExit) -> Result<AfterExit, StateError> {
        self.write("runner_exited", Authority::Server, move |tx| exited(tx, &exit))
            .await
    }
}

/// The command that follows `runner.ready`.
pub(crate) fn ready(tx: &mut Tx<'_>, live: &mut Live, claim: &Claim) -> Result<Command, StateError> {
    let mut statement = tx.db.prepare_cached("SELECT action FROM run_queue WHERE run = ?1")?;
    let action: String = statement.query_row([live.key], |row| row.get(0))?;
    let action = match action.as_str() {
        "start" => CommandAction::Start,
        "continue" => CommandAction::Continue,
        "restart" => CommandAction::Restart,
        _ => CommandAction::Resume,
    };
    tx.db
        .prepare_cached(
            "UPDATE run_queue SET status = 'running', updated_at = ?2 WHERE run = ?1 AND status = 'starting'",
        )?
        .execute((live.key, tx.now))?;
    tx.db
        .prepare_cached(
            "UPDATE run_runners SET status = 'ready', ready_at = ?2, ready_revision = ?3
              WHERE runner_epoch = ?1 AND status = 'starting'",
        )?
        .execute((&*claim.runner_epoch, tx.now, live.revision))?;
    live.event(tx, "runner", "runner.ready", About::default())?;
    tx.changes.run(live.key, &live.run_id, true);
    let state = crate::execution::state(tx.db, live)?;
    Ok(Command { action, state })
}

fn launched(db: &Connection, runner_epoch: &str) -> Result<Option<Launched>, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT id, run, generation, status, ready_revision FROM run_runners WHERE runner_epoch = ?1",
    )?;
    maybe(statement.query_row([runner_epoch], |row| {
        Ok(Launched {
            id: row.get(0)?,
            run: row.get(1)?,
            generation: row.get(2)?,
            status: row.get(3)?,
            ready_revision: row.get(4)?,
        })
    }))
}

/// Records an exit; see [`State::runner_exited`].
pub(crate) fn exited(tx: &mut Tx<'_>, exit: &RunnerExit) -> Result<AfterExit, StateError> {
    let Some(launch) = launched(tx.db, &exit.runner_epoch)? else {
        return Err(StateError::Invalid(format!(
            "no runner was launched as {}",
            exit.runner_epoch
        )));
    };
    if launch.status == "ended" {
        return Ok(AfterExit::Nothing);
    }
    tx.db
        .prepare_cached(
            "UPDATE run_runners SET status = 'ended', outcome = :outcome, exit_code = :code, signal = :signal,
               diagnostic = :diagnostic, finished_at = :now WHERE id = :id",
        )?
        .execute(named_params! {
            ":outcome": exit.outcome.name(), ":code": exit.exit_code, ":signal": exit.signal,
            ":diagnostic": exit.diagnostic.as_deref().map(bounded), ":now": tx.now, ":id": launch.id,
        })?;
    tx.db
        .prepare_cached("DELETE FROM run_processes WHERE run = ?1 AND generation <= ?2")?
        .execute((launch.run, launch.generation))?;
    tx.db
        .prepare_cached("DELETE FROM runner_messages WHERE run = ?1 AND generation <= ?2")?
        .execute((launch.run, launch.generation))?;
    tx.changes.claimable = true;
    let mut live = tx.cache.take(tx.db, launch.run)?;
    let payload = exit_payload(exit, launch.generation);
    live.event(
        tx,
        "runner",
        "runner.exited",
        About {
            payload: Some(&payload),
            ..About::default()
        },
    )?;
    tx.changes.run(live.key, &live.run_id, true);
    let holds = holds_claim(tx.db, &launch)?;
    let after = if holds {
        abandoned(tx, &mut live, &launch, exit)?
    } else {
        AfterExit::Nothing
    };
    live.save(tx, if holds { Bump::Execution } else { Bump::View })?;
    Ok(after)
}

/// What the trace shows of an exit.
fn exit_payload(exit: &RunnerExit, generation: u64) -> String {
    let mut payload = json!({ "generation": generation, "outcome": exit.outcome.name() });
    if let Some(class) = exit.outcome.failure() {
        payload["failure"] = class.as_str().into();
    }
    if let Some(why) = first_line(exit) {
        payload["why"] = why.into();
    }
    String::from_utf8_lossy(&canonical::write_value(&payload)).into_owned()
}

/// The sentence of a diagnostic; what the runner printed follows it.
fn first_line(exit: &RunnerExit) -> Option<&str> {
    let line = exit.diagnostic.as_deref()?.lines().next()?;
    Some(bounded(line)).filter(|line| !line.is_empty())
}

/// Whether the run is still claimed for this launch.
fn holds_claim(db: &Connection, launch: &Launched) -> Result<bool, StateError> {
    let mut statement =
        db.prepare_cached("SELECT 1 FROM leases WHERE resource = ?1 AND generation = ?2 AND owner_id IS NOT NULL")?;
    Ok(statement.exists((launch.run, launch.generation))?)
}

/// Takes a run back from a runner that is gone without having ended, parked or handed it over.
fn abandoned(tx: &mut Tx<'_>, live: &mut Live, launch: &Launched, exit: &RunnerExit) -> Result<AfterExit, StateError> {
    let outcome = exit.outcome;
    let progressed = launch.ready_revision.is_some_and(|revision| live.revision > revision);
    let overran = outcome == RunnerOutcome::Overran && live.current.is_some();
    if live.current.is_some() && !outcome.is_caused() && !overran {
        live.crash_streak += 1;
    }
    live.drop_attempt(tx, outcome.attempt_status())?;
    let how = if overran {
        Interruption::TimedOut
    } else {
        Interruption::Killed
    };
    let uncertain = effects::interrupt(tx, live, how)?;
    let left = attempt::RunnerExit {
        run_settled: false,
        // The next generation has something to commit: that the node timed out.
        by_server: outcome.is_caused() || overran,
        advanced: progressed,
        crashes_in_a_row: live.crash_streak,
    };
    let reason = match attempt::after_exit(&left) {
        _ if uncertain > 0 || live.ambiguous_effects > 0 => Some(ParkReason::EffectAmbiguous),
        attempt::AfterExit::Park(_) if outcome == RunnerOutcome::TimedOut && !progressed => {
            Some(ParkReason::RunnerTimedOut)
        }
        attempt::AfterExit::Park(_) if outcome == RunnerOutcome::ProtocolRejected => Some(ParkReason::ProtocolRejected),
        attempt::AfterExit::Park(reason) => Some(reason),
        attempt::AfterExit::Requeue | attempt::AfterExit::Nothing => None,
    };
    live.park(
        tx,
        &Park {
            claimable: reason.is_none(),
            reason: reason.map(ParkReason::as_str),
            detail: reason.and_then(|_| first_line(exit)),
        },
    )?;
    next_action(tx, live)?;
    let Some(reason) = reason else {
        return Ok(AfterExit::Claimable);
    };
    set_failure_class(tx, live, reason)?;
    let payload = format!("{{\"reason\":\"{reason}\"}}");
    live.event(
        tx,
        "run",
        "run.parked",
        About {
            payload: Some(&payload),
            ..About::default()
        },
    )?;
    Ok(AfterExit::Parked { reason })
}

/// A run that executed something goes on by `resume`; one that did not keeps its first command.
pub(crate) fn next_action(tx: &Tx<'_>, live: &Live) -> Result<(), StateError> {
    if live.attempt_count > 0 {
        tx.db
            .prepare_cached("UPDATE run_queue SET action = 'resume' WHERE run = ?1")?
            .execute([live.key])?;
    }
    Ok(())
}

/// Remembers why a run stopped.
pub(crate) fn set_failure_class(tx: &Tx<'_>, live: &Live, reason: ParkReason) -> Result<(), StateError> {
    let class = reason.class().map(FailureClass::as_str);
    tx.db
        .prepare_cached("UPDATE runs SET failure_class = ?2 WHERE id = ?1")?
        .execute((live.key, class))?;
    Ok(())
}
