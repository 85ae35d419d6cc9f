//! Recovery when a server starts (state.md, "Recovery at start").
//!
//! The server takes its epoch, asks for [`State::recorded_processes`], ends those that match an exact process identity, and
//! then calls [`State::recover`], which decides from committed facts what every interrupted run does next.

use rusqlite::Connection;

use crate::active;
use crate::error::StateError;
use crate::live::{About, Bump, Park};
use crate::receipts;
use crate::runner::{self, AfterExit, RunnerExit, RunnerOutcome};
use crate::state::State;
use crate::writer::{Authority, Tx};

/// A process that an earlier server recorded and nobody has seen end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedProcess {
    /// The run it worked for.
    pub run_id: String,
    /// Generation it belonged to.
    pub generation: u64,
    /// Process id, also the group.
    pub pid: u32,
    /// Start identity: only an exact match may be signalled.
    pub start_identity: String,
    /// What it is.
    pub kind: ProcessKind,
}

/// What a recorded process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    /// A runner.
    Runner,
    /// A group that a runner registered.
    Registered,
}

/// What recovery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Runs that can be claimed again.
    pub claimable: u32,
    /// Runs that wait for a person.
    pub parked: u32,
    /// Unfinished uploads that were removed.
    pub uploads: usize,
    /// Receipts that were too old.
    pub receipts: usize,
}

impl State {
    /// Processes to end before [`State::recover`].
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn recorded_processes(&self) -> Result<Vec<RecordedProcess>, StateError> {
        self.read(recorded).await
    }

    /// Takes back every run whose runner belonged to an earlier server. Call it after the epoch was taken and every recorded
    /// process is gone. Uncertain effects park their run; pure and settled work becomes claimable.
    ///
    /// # Errors
    /// When the write fails; then nothing was recovered and it can be called again.
    pub async fn recover(&self) -> Result<Recovered, StateError> {
        self.write("recover", Authority::Server, recover).await
    }
}

fn recorded(db: &Connection) -> Result<Vec<RecordedProcess>, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT r.run_id, a.generation, a.pid, a.start_identity, 0 FROM run_runners a JOIN runs r ON r.id = a.run
          WHERE a.status <> 'ended' AND a.pid IS NOT NULL AND a.start_identity IS NOT NULL
         UNION ALL
         SELECT r.run_id, p.generation, p.pid, p.start_identity, 1 FROM run_processes p JOIN runs r ON r.id = p.run",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(RecordedProcess {
            run_id: row.get(0)?,
            generation: row.get(1)?,
            pid: row.get(2)?,
            start_identity: row.get(3)?,
            kind: if row.get(4)? {
                ProcessKind::Registered
            } else {
                ProcessKind::Runner
            },
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn recover(tx: &mut Tx<'_>) -> Result<Recovered, StateError> {
    let mut recovered = Recovered::default();
    let mut statement = tx
        .db
        .prepare_cached("SELECT runner_epoch FROM run_runners WHERE status <> 'ended' ORDER BY id")?;
    let launches: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    drop(statement);
    for runner_epoch in launches {
        let exit = RunnerExit {
            runner_epoch,
            outcome: RunnerOutcome::Orphaned,
            exit_code: None,
            signal: None,
            diagnostic: None,
        };
        match runner::exited(tx, &exit)? {
            AfterExit::Claimable => recovered.claimable += 1,
            AfterExit::Parked { .. } => recovered.parked += 1,
            AfterExit::Nothing => {}
        }
    }
    recovered.claimable += requeue_unlaunched(tx)?;
    // No session is connected yet: the time of open turns stands still at its last sample.
    active::close_waiting(tx)?;
    // Registered groups were ended with their exact identity before; rows of groups that were not found are void.
    tx.db.execute("DELETE FROM run_processes", [])?;
    recovered.uploads = tx.db.execute("DELETE FROM blobs WHERE complete = 0", [])?;
    recovered.receipts = receipts::purge(tx)?;
    tx.db.execute(
        "UPDATE workflow_server_state SET sweep_due_at = ?1 WHERE id = 1",
        [tx.now],
    )?;
    tx.changes.claimable = true;
    Ok(recovered)
}

/// Runs that stand in the queue as executing although no launch is recorded as active.
fn requeue_unlaunched(tx: &mut Tx<'_>) -> Result<u32, StateError> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT run FROM run_queue WHERE status IN ('starting', 'running')")?;
    let runs: Vec<crate::ids::RunKey> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    drop(statement);
    let mut count = 0;
    for run in runs {
        let mut live = tx.cache.take(tx.db, run)?;
        live.drop_attempt(tx, "crashed")?;
        live.park(
            tx,
            &Park {
                claimable: true,
                reason: None,
                detail: None,
            },
        )?;
        runner::next_action(tx, &live)?;
        live.event(tx, "run", "run.recovered", About::default())?;
        live.save(tx, Bump::Execution)?;
        count += 1;
    }
    Ok(count)
}
