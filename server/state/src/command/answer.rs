//! `checkpoint.answer`: one transaction settles the waiting parent and reserves the continuation that goes on with the answer.

use piw_engine::lifecycle::{self, Refusal};
use piw_protocol::child::ValueRef;
use piw_protocol::ops::RunReceipt;
use piw_protocol::run::RunStatus;
use rusqlite::named_params;

use super::create::{Lineage, Place, RunRow, insert_run};
use super::{Facts, RunReceipted, expect, refuse};
use crate::cache::Live;
use crate::error::StateError;
use crate::ids::{AttemptKey, RunKey};
use crate::live::{About, Bump, End};
use crate::receipts::{CommandIdentity, Decision, receipted};
use crate::state::State;
use crate::value::Prepared;
use crate::writer::{Authority, Tx};

/// An answer to a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The checkpoint's output in the continuation.
    pub value: ValueRef,
    /// Where it came from, for the audit.
    pub source: String,
}

/// The facts of the parent that its continuation takes over.
struct Parent {
    project: i64,
    definition: i64,
    workflow_name: String,
    title: Option<String>,
    root: i64,
    restart_count: u32,
    session_id: Option<String>,
}

impl State {
    /// Answers the checkpoint at which a run waits. The receipt names the continuation as the new run.
    ///
    /// # Errors
    /// [`StateError::Invalid`] when the answer cannot be stored; otherwise when the write fails.
    pub async fn answer_checkpoint(
        &self,
        identity: CommandIdentity,
        run_id: String,
        expected_revision: Option<u64>,
        answer: Answer,
    ) -> Result<RunReceipted, StateError> {
        let value = Prepared::value(&answer.value)?;
        self.write("answer_checkpoint", Authority::Server, move |tx| {
            receipted(tx, &identity, |tx| {
                let live = match expect(tx, &run_id, expected_revision)? {
                    Ok(live) => live,
                    Err(refused) => return Ok(refused),
                };
                if let Err(refusal) = lifecycle::check_answer(&Facts::read(tx, &live)?.as_engine()) {
                    return Ok(refuse(tx, live, &refusal));
                }
                let Some(checkpoint) = live.waiting_attempt else {
                    return Ok(refuse(tx, live, &Refusal::NotWaiting));
                };
                settle(tx, live, checkpoint, value, &answer.source)
            })
        })
        .await
    }
}

/// Settles a waiting run and reserves the continuation that goes on with this output of its checkpoint.
pub(crate) fn settle(
    tx: &mut Tx<'_>,
    mut live: Live,
    checkpoint: AttemptKey,
    value: Prepared,
    source: &str,
) -> Result<Decision<RunReceipt>, StateError> {
    let parent = parent(tx, live.key)?;
    live.end(
        tx,
        End {
            status: RunStatus::Completed,
            final_output: Some(value.clone()),
            error: None,
            failure_class: None,
            continued: true,
        },
    )?;
    let place = Place {
        project: parent.project,
        session_id: parent.session_id.as_deref(),
    };
    let lineage = Lineage {
        parent: Some((live.key, "continuation")),
        root: Some(parent.root),
        restart_count: parent.restart_count,
        action: "continue",
    };
    let row = RunRow {
        definition: parent.definition,
        workflow_name: &parent.workflow_name,
        title: parent.title.as_deref(),
        carried_step_count: live.step_count,
    };
    let (child, child_id) = insert_run(tx, &place, &lineage, &row)?;
    carry(tx, live.key, child, checkpoint)?;
    let answer = value.store(tx.db, tx.now)?;
    tx.db
        .prepare_cached(
            "INSERT INTO continuations (child, parent, node, attempt, step_index, answer_json, answer_blob, source, answered_at)
             SELECT :child, :parent, node, id, :step, :json, :blob, :source, :now FROM node_attempts WHERE id = :attempt",
        )?
        .execute(named_params! {
            ":child": child, ":parent": live.key, ":step": live.step_count.saturating_sub(1), ":json": answer.json,
            ":blob": answer.blob, ":source": source, ":now": tx.now, ":attempt": checkpoint,
        })?;
    tx.db
        .prepare_cached("UPDATE runs SET continued_by = ?2 WHERE id = ?1")?
        .execute((live.key, child))?;
    let (key, run_id) = (live.key, live.run_id.to_string());
    let about = About {
        node: live.last_node,
        attempt: Some(checkpoint),
        payload: None,
    };
    live.event(tx, "command", "checkpoint.answered", about)?;
    live.event(tx, "run", "run.completed", About::default())?;
    let revision = live.save(tx, Bump::Execution)?;
    let receipt = RunReceipt {
        message: Some(format!("continued by run {child_id}")),
        run_id,
        status: RunStatus::Completed,
        paused: false,
        run_revision: revision,
        new_run_id: Some(child_id),
    };
    Ok(Decision::Accept {
        run: Some(key),
        revision: Some(revision),
        receipt,
    })
}

fn parent(tx: &Tx<'_>, key: RunKey) -> Result<Parent, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT r.project, r.definition, r.workflow_name, r.title, r.root, r.restart_count, b.session_id
           FROM runs r LEFT JOIN run_bindings b ON b.run = r.id WHERE r.id = ?1",
    )?;
    Ok(statement.query_row([key], |row| {
        Ok(Parent {
            project: row.get(0)?,
            definition: row.get(1)?,
            workflow_name: row.get(2)?,
            title: row.get(3)?,
            root: row.get(4)?,
            restart_count: row.get(5)?,
            session_id: row.get(6)?,
        })
    })?)
}

/// Gives the child what the parent's history amounts to: bounded by the graph, no step is copied.
fn carry(tx: &Tx<'_>, parent: RunKey, child: RunKey, checkpoint: AttemptKey) -> Result<(), StateError> {
    for copy in [
        "INSERT INTO run_values (run, kind, json, blob, hash)
         SELECT ?2, kind, json, blob, hash FROM run_values WHERE run = ?1 AND kind = 'input'",
        "INSERT INTO run_sources (run, ordinal, role, mount, kind, location, hash)
         SELECT ?2, ordinal, role, mount, kind, location, hash FROM run_sources WHERE run = ?1",
        "INSERT INTO run_nodes (run, node, visits, attempts, latest_attempt, latest_step, result_step, result_attempt)
         SELECT ?2, node, visits, attempts, latest_attempt, latest_step, result_step, result_attempt
           FROM run_nodes WHERE run = ?1",
        "INSERT INTO run_transitions (run, from_node, to_node, count, first_step)
         SELECT ?2, from_node, to_node, count, first_step FROM run_transitions WHERE run = ?1",
        "INSERT INTO run_scopes (run, mount, state, step_count, exit, left_step, input_json, input_blob, output_json, output_blob)
         SELECT ?2, mount, state, step_count, exit, left_step, input_json, input_blob, output_json, output_blob
           FROM run_scopes WHERE run = ?1",
    ] {
        tx.db.prepare_cached(copy)?.execute((parent, child))?;
    }
    tx.db
        .prepare_cached("UPDATE runs SET last_attempt = ?2 WHERE id = ?1")?
        .execute((child, checkpoint))?;
    // A page of the child's past starts here instead of walking the chain of its parents.
    crate::query::graph::write_checkpoint(tx.db, child.0)?;
    Ok(())
}
