//! Client commands that change a run. Each is decided once, inside one transaction with its receipt.

mod answer;
mod cancel;
mod create;
mod pause;
mod resolve;
mod restart;

pub use answer::Answer;
pub use create::{NewRun, ResolvedRun};
pub use resolve::Resolution;
pub use restart::Original;

pub(crate) use answer::settle as continue_from;
pub(crate) use create::read_sources;
pub(crate) use pause::{make_ready, pause};

use piw_engine::lifecycle::{Refusal, RequestKind, RunFacts};
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::RunReceipt;
use piw_protocol::run::RunStatus;

use crate::cache::Live;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::interaction;
use crate::lease;
use crate::live::About;
use crate::receipts::{Decision, Receipted, error};
use crate::value::maybe;
use crate::writer::Tx;

/// How a command on one run was decided.
pub type RunReceipted = Receipted<RunReceipt>;

/// A runner that a command fenced off: its process group must be stopped now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedRunner {
    /// The run.
    pub run: RunKey,
    /// Its generation, which can write no more.
    pub generation: u64,
    /// Launch id.
    pub runner_epoch: String,
    /// Process group, when it was spawned.
    pub pid: Option<u32>,
    /// Start identity of that process.
    pub start_identity: Option<String>,
}

/// How a command was decided and which runner it fenced off.
#[derive(Debug, Clone, PartialEq)]
pub struct Controlled {
    /// The decision.
    pub receipted: RunReceipted,
    /// Present when a runner has to be stopped.
    pub stop: Option<FencedRunner>,
}

/// Finds a run by its public id; a run that is being purged does not exist.
pub(crate) fn find(tx: &Tx<'_>, run_id: &str) -> Result<Option<RunKey>, StateError> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT id FROM runs WHERE run_id = ?1 AND deleted_at IS NULL")?;
    maybe(statement.query_row([run_id], |row| row.get(0)))
}

/// Finds the run of a command and checks the revision that the command expects.
fn expect<R>(tx: &mut Tx<'_>, run_id: &str, revision: Option<u64>) -> Result<Result<Live, Decision<R>>, StateError> {
    let Some(key) = find(tx, run_id)? else {
        let error = error("run_not_found", format!("no run {run_id}"));
        return Ok(Err(Decision::Refuse {
            run: None,
            outcome: Outcome::NotFound,
            error,
        }));
    };
    let live = tx.cache.take(tx.db, key)?;
    match revision {
        Some(expected) if expected != live.revision => {
            let message = format!("run {run_id} is at revision {}, not {expected}", live.revision);
            let refused = Decision::refuse(key, Outcome::Conflict, "stale_revision", message);
            tx.cache.put(live);
            Ok(Err(refused))
        }
        _ => Ok(Ok(live)),
    }
}

/// What the rules of commands ask of a run.
struct Facts {
    status: RunStatus,
    paused: bool,
    parked: bool,
    ambiguous_effects: u64,
    continued_by: Option<String>,
    request: Option<RequestKind>,
}

impl Facts {
    fn read(tx: &Tx<'_>, live: &Live) -> Result<Self, StateError> {
        let mut statement = tx.db.prepare_cached(
            "SELECT r.paused_at IS NOT NULL, q.status = 'parked' AND q.claimable = 0, c.run_id
               FROM runs r JOIN run_queue q ON q.run = r.id LEFT JOIN runs c ON c.id = r.continued_by WHERE r.id = ?1",
        )?;
        let (paused, parked, continued_by) =
            statement.query_row([live.key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(Self {
            status: live.status,
            paused,
            parked,
            ambiguous_effects: u64::from(live.ambiguous_effects),
            continued_by,
            request: interaction::waits_for(tx, live)?,
        })
    }

    fn as_engine(&self) -> RunFacts<'_> {
        RunFacts {
            status: self.status,
            paused: self.paused,
            parked: self.parked,
            ambiguous_effects: self.ambiguous_effects,
            continued_by: self.continued_by.as_deref(),
            request: self.request,
        }
    }
}

/// What the rules of commands ask of a run, when nothing of it continues.
pub(crate) fn facts(tx: &Tx<'_>, live: &Live) -> Result<RunFacts<'static>, StateError> {
    let facts = Facts::read(tx, live)?;
    Ok(RunFacts {
        status: facts.status,
        paused: facts.paused,
        parked: facts.parked,
        ambiguous_effects: facts.ambiguous_effects,
        continued_by: None,
        request: facts.request,
    })
}

/// The stable reason of a refusal.
pub(crate) const fn reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Ended(_) => "run_ended",
        Refusal::AlreadyPaused => "already_paused",
        Refusal::NothingToResume => "nothing_to_resume",
        Refusal::NotEnded => "run_not_ended",
        Refusal::Completed => "run_completed",
        Refusal::AlreadyRestarted(_) => "already_restarted",
        Refusal::NotWaiting => "not_waiting",
        Refusal::Protected => "protected_decision",
        Refusal::Paused => "run_paused",
        Refusal::AmbiguousEffects(_) => "effect_ambiguous",
        Refusal::UnsettledEffects(_) => "effect_unsettled",
        Refusal::Continued(_) => "run_continued",
        Refusal::TooManyRestarts { .. } => "restart_limit",
        Refusal::RepeatedFailure { .. } => "repeated_failure",
    }
}

/// Refuses a command on a run by its rule and gives the unchanged run back.
fn refuse(tx: &mut Tx<'_>, live: Live, refusal: &Refusal) -> Decision<RunReceipt> {
    let message = format!("run {}: {refusal}", live.run_id);
    let decision = Decision::refuse(live.key, Outcome::Rejected, reason(refusal), message);
    tx.cache.put(live);
    decision
}

/// Accepts a command whose facts are written: saves the run and makes the receipt.
fn accept(tx: &mut Tx<'_>, live: Live, message: Option<String>) -> Result<Decision<RunReceipt>, StateError> {
    let (key, run_id, status) = (live.key, live.run_id.to_string(), live.status);
    let revision = live.save(tx, crate::live::Bump::Execution)?;
    let paused = tx
        .db
        .prepare_cached("SELECT paused_at IS NOT NULL FROM runs WHERE id = ?1")?
        .query_row([key], |row| row.get(0))?;
    let receipt = RunReceipt {
        run_id,
        status,
        paused,
        run_revision: revision,
        new_run_id: None,
        message,
    };
    Ok(Decision::Accept {
        run: Some(key),
        revision: Some(revision),
        receipt,
    })
}

/// Takes a lapsed claim over before a command changes its run: the generation moves on, so that whoever held the claim is told
/// that it changed, and the takeover stands in the trace. The command releases it in the same transaction.
fn take_lapsed(tx: &Tx<'_>, live: &mut Live) -> Result<(), StateError> {
    let (server_id, epoch) = {
        let own = crate::server::own(tx)?;
        (own.server_id.clone(), own.epoch)
    };
    if lease::standing(tx, live.key.0, epoch)? != lease::Standing::Lapsed {
        return Ok(());
    }
    let owner = lease::Owner {
        kind: "control",
        server_id: &server_id,
        epoch: Some(epoch),
    };
    let generation = lease::seize(tx, live.key.0, &owner, &lease::Token::random()?)?;
    let payload = format!("{{\"generation\":{generation}}}");
    let about = About {
        payload: Some(&payload),
        ..About::default()
    };
    live.event(tx, "run", "run.claim_lapsed", about)
}

/// The runner that is active for a run, read before its claim is released.
fn active_runner(tx: &Tx<'_>, run: RunKey) -> Result<Option<FencedRunner>, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT generation, runner_epoch, pid, start_identity FROM run_runners WHERE run = ?1 AND status <> 'ended'",
    )?;
    maybe(statement.query_row([run], |row| {
        Ok(FencedRunner {
            run,
            generation: row.get(0)?,
            runner_epoch: row.get(1)?,
            pid: row.get(2)?,
            start_identity: row.get(3)?,
        })
    }))
}
