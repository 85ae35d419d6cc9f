//! Stored states of a size that would take hours to run for real: many ended runs, and one run of a very long history. All of it is
//! written by the ordinary commands, so that it keeps every rule of the stored state.

use std::path::Path;

use piw_protocol::child::{ChildBody, Next, RunFinish, ServerReply, ValueRef};
use piw_protocol::run::{ErrorInfo, NodeOutcome, RunStatus};
use serde_json::json;
use uuid::Uuid;

use super::{Bench, Script, command, finish, loop_of_two, new_run, one_node, take_epoch};
use crate::error::StateError;
use crate::runner::{RunnerExit, RunnerOutcome};
use crate::state::{State, StateOptions};

/// Runs that are under way at once, so that they share their commits.
const AT_ONCE: u64 = 64;
/// Steps of one transaction.
const BATCH: u64 = 1000;

/// Stores `count` completed runs of one node each, newest last, titled `Nightly import <number>` from `first` on. The database
/// in `dir` is made when there is none; no server may own it. Nothing is synced on the way.
///
/// # Errors
/// When the database cannot be written.
pub async fn ended_runs(dir: &Path, first: u64, count: u64) -> Result<(), StateError> {
    let state = open(dir).await?;
    state
        .between(|db| Ok(db.pragma_update(None, "synchronous", "OFF")?))
        .await?;
    for begin in (first..first + count).step_by(usize::try_from(AT_ONCE).unwrap_or(1)) {
        for number in begin..(begin + AT_ONCE).min(first + count) {
            let new = new_run(&one_node(), Some(format!("Nightly import {number}")))?;
            state.start_run(command(&Uuid::now_v7().to_string()), new).await?;
        }
        let mut tasks = tokio::task::JoinSet::new();
        while let Some(claimed) = state.claim_next(None).await? {
            let state = state.clone();
            tasks.spawn(async move {
                let mut script = Script::new(claimed.claim);
                let reply = state.apply_child(&script.claim, script.begin("only")).await?;
                script.take(&reply)?;
                let message = script.completed("only", json!({ "imported": 1200 }));
                let reply = state.apply_child(&script.claim, message).await?;
                script.take(&reply)?;
                state.runner_exited(exit(&script)).await
            });
        }
        for done in tasks.join_all().await {
            done?;
        }
    }
    release(&state).await
}

/// Stores one run that fails after `steps` steps, as the newest one; returns its id. Nothing is synced on the way.
///
/// # Errors
/// When the database cannot be written.
pub async fn long_run(dir: &Path, steps: u64) -> Result<String, StateError> {
    let mut bench = Bench::new(dir).await?;
    bench.db.pragma_update(None, "synchronous", "OFF")?;
    for begin in (0..steps).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        bench.steps(BATCH.min(steps - begin))?;
    }
    let message = bench.script.failed();
    bench.commit(&message)?;
    bench.db.pragma_update(None, "synchronous", "FULL")?;
    bench.checkpoint()?;
    let (run, gone) = (bench.script.claim.run_id.to_string(), exit(&bench.script));
    drop(bench);
    let state = open(dir).await?;
    state.runner_exited(gone).await?;
    release(&state).await?;
    Ok(run)
}

async fn open(dir: &Path) -> Result<State, StateError> {
    let state = State::open(StateOptions::new(dir)).map_err(|error| StateError::Io(error.to_string()))?;
    take_epoch(&state).await?;
    Ok(state)
}

/// Gives the database to the next server.
async fn release(state: &State) -> Result<(), StateError> {
    state.release_server().await?;
    state.close();
    Ok(())
}

fn exit(script: &Script) -> RunnerExit {
    RunnerExit {
        runner_epoch: script.claim.runner_epoch.to_string(),
        outcome: RunnerOutcome::Exited,
        exit_code: Some(0),
        signal: None,
        diagnostic: None,
    }
}

impl Bench {
    /// Steps in one transaction.
    fn steps(&mut self, count: u64) -> Result<(), StateError> {
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..count {
            let message = self.script.next();
            let reply: ServerReply = self.apply(&message)?;
            self.script.take(&reply)?;
        }
        self.db.execute_batch("COMMIT")?;
        Ok(())
    }
}

impl Script {
    /// The running node ends the run with its output.
    fn completed(&mut self, node: &str, output: serde_json::Value) -> piw_protocol::child::ChildMessage {
        self.number += 1;
        let ends = RunFinish {
            status: RunStatus::Completed,
            final_output: ValueRef::Inline(output.clone()),
            error: None,
            leaves: Vec::new(),
        };
        let done = finish(&self.attempt, node, ValueRef::Inline(output), Next::Finish(ends));
        self.message(ChildBody::NodeFinished(Box::new(done)))
    }

    /// The running node of the loop fails, and the run with it.
    fn failed(&mut self) -> piw_protocol::child::ChildMessage {
        self.number += 1;
        let error = ErrorInfo {
            code: Some("nodeFailed".to_owned()),
            message: "row 500000 has no date".to_owned(),
            stack: None,
        };
        let node = loop_of_two(self.number);
        let ends = RunFinish {
            status: RunStatus::Failed,
            final_output: ValueRef::null(),
            error: Some(ErrorInfo {
                message: format!("node {node:?} failed: {}", error.message),
                ..error.clone()
            }),
            leaves: Vec::new(),
        };
        let mut done = finish(&self.attempt, node, ValueRef::null(), Next::Finish(ends));
        done.outcome = NodeOutcome::Failed;
        done.error = Some(error);
        self.message(ChildBody::NodeFailed(Box::new(done)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_stored_keeps_every_rule() {
        let dir = tempfile::tempdir().unwrap();
        long_run(dir.path(), 1_200).await.unwrap();
        ended_runs(dir.path(), 1, 70).await.unwrap();
        let state = open(dir.path()).await.unwrap();
        assert_eq!(state.verify().await.unwrap(), []);
        release(&state).await.unwrap();
    }
}
