//! Starts and ends of attempts, checked against the engine's plan. Finishing a node, settling its effect and starting the next
//! one is one transaction.

use piw_engine::machine::{Transition, TransitionError};
use piw_protocol::child::{
    ChildBody, ContentRef, Next, NodeFinish, NodeStart, RunFinish, ScopeEnter, ScopeLeave, ValueRef,
};
use piw_protocol::run::{NodeOutcome, RunStatus};
use rusqlite::named_params;
use serde::Serialize;
use serde_json::Value;

use super::{Decided, Loaded, accept, refuse};
use crate::active;
use crate::cache::{Current, Live};
use crate::decision;
use crate::effects;
use crate::error::StateError;
use crate::ids::{AttemptId, AttemptKey, NodeIndex};
use crate::interaction;
use crate::live::{About, Bump, End};
use crate::names;
use crate::queue::Claim;
use crate::value::{self, Stored, maybe};
use crate::writer::Tx;

/// Longest attempt id in bytes.
const ATTEMPT_ID_BYTES: usize = 128;

/// The values of a message, encoded and hashed on the caller's side.
#[derive(Default)]
pub(super) struct Prepared {
    prompt: Option<value::Prepared>,
    output: Option<value::Prepared>,
    details: Option<value::Prepared>,
    leaves: Vec<value::Prepared>,
    enters: Vec<value::Prepared>,
    final_output: Option<value::Prepared>,
    error: Option<value::Prepared>,
}

/// The parts of a result that are no columns.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a piw_protocol::run::ErrorInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'a piw_protocol::run::ActionReceipt>,
}

impl Prepared {
    pub(super) fn of(body: &ChildBody) -> Result<Self, StateError> {
        match body {
            ChildBody::NodeStarted(start) => Self::default().start(start),
            ChildBody::RunFinished(finish) => Self::default().finish(finish),
            ChildBody::NodeFinished(finish) | ChildBody::NodeFailed(finish) => Self::node(finish),
            ChildBody::NodePrompted { prompt } | ChildBody::InteractionRequested { prompt } => Ok(Self {
                prompt: Some(value::Prepared::value(prompt)?),
                ..Self::default()
            }),
            _ => Ok(Self::default()),
        }
    }

    fn node(finish: &NodeFinish) -> Result<Self, StateError> {
        let output = Some(&finish.output).filter(|output| **output != ValueRef::null());
        let details = Details {
            error: finish.error.as_ref(),
            action: finish.action.as_ref(),
        };
        let has_details = details.error.is_some() || details.action.is_some();
        let prepared = Self {
            output: output.map(value::Prepared::value).transpose()?,
            details: has_details.then(|| value::Prepared::json(&details)).transpose()?,
            leaves: leave_values(&finish.leaves)?,
            ..Self::default()
        };
        match &finish.next {
            Next::Start(start) => prepared.start(start),
            Next::Finish(run) => prepared.finish(run),
            Next::Wait => Ok(prepared),
        }
    }

    fn start(mut self, start: &NodeStart) -> Result<Self, StateError> {
        self.enters = start
            .enters
            .iter()
            .map(|enter| value::Prepared::value(&enter.input))
            .collect::<Result<_, _>>()?;
        self.leaves.extend(leave_values(&start.leaves)?);
        Ok(self)
    }

    fn finish(mut self, run: &RunFinish) -> Result<Self, StateError> {
        if run.status == RunStatus::Completed {
            self.final_output = Some(value::Prepared::value(&run.final_output)?);
        }
        self.error = run.error.as_ref().map(value::Prepared::json).transpose()?;
        self.leaves.extend(leave_values(&run.leaves)?);
        Ok(self)
    }
}

fn leave_values(leaves: &[ScopeLeave]) -> Result<Vec<value::Prepared>, StateError> {
    leaves
        .iter()
        .map(|leave| value::Prepared::value(&leave.output))
        .collect()
}

/// What the engine says of a proposal.
enum Checked {
    Follows(Transition),
    Needs(ContentRef),
    Refused(String),
}

/// Asks the engine; a value that decides a route and is not at hand is named. Values are loaded outside the transaction, so that
/// a large one stops nobody.
fn check<F>(loaded: &Loaded, ask: F) -> Checked
where
    F: FnOnce(&dyn Fn(&ContentRef) -> Option<Value>) -> Result<Transition, TransitionError>,
{
    let wanted = std::cell::RefCell::new(None);
    let load = |content: &ContentRef| {
        let found = loaded
            .iter()
            .find(|(digest, _)| *digest == content.sha256)
            .map(|(_, value)| (**value).clone());
        if found.is_none() {
            wanted.borrow_mut().get_or_insert_with(|| content.clone());
        }
        found
    };
    let result = ask(&load);
    match (result, wanted.into_inner()) {
        (_, Some(content)) => Checked::Needs(content),
        (Ok(transition), None) => Checked::Follows(transition),
        (Err(error), None) => Checked::Refused(error.to_string()),
    }
}

/// `node.started`: the first attempt of a generation.
pub(super) fn started(
    tx: &mut Tx<'_>,
    mut live: Live,
    claim: &Claim,
    start: &NodeStart,
    prepared: Prepared,
    loaded: &Loaded,
) -> Result<Decided, StateError> {
    if let Some(text) = bad_attempt_id(tx, &live, &start.attempt_id)? {
        return Ok(refuse(tx, live, "attempt_id", text));
    }
    let answer = answer(tx, &live)?;
    let checked = check(loaded, |load| {
        live.progress
            .check_started(&live.graph.definition, start, answer.as_ref(), load)
    });
    let transition = match checked {
        Checked::Follows(transition) => transition,
        Checked::Needs(content) => return Ok(needs(tx, live, content)),
        Checked::Refused(text) => return Ok(refuse(tx, live, "transition", text)),
    };
    leave(tx, &live, &start.leaves, prepared.leaves)?;
    begin(tx, &mut live, claim.generation, start, prepared.enters)?;
    let graph = std::sync::Arc::clone(&live.graph);
    live.progress.apply(&graph.definition, &transition);
    accept(tx, live, Bump::Execution)
}

/// `node.prompted`: what the model of the running agent step is told.
pub(super) fn prompted(
    tx: &mut Tx<'_>,
    mut live: Live,
    attempt_id: Option<&str>,
    prepared: Prepared,
) -> Result<Decided, StateError> {
    let Some(current) = live
        .current
        .clone()
        .filter(|current| Some(current.id.as_str()) == attempt_id)
    else {
        let text = format!("attempt {attempt_id:?} is not the unfinished attempt");
        return Ok(refuse(tx, live, "attempt", text));
    };
    store_prompt(tx, current.key, prepared)?;
    let about = About {
        node: Some(current.node),
        attempt: Some(current.key),
        payload: None,
    };
    live.event(tx, "node", "node.prompted", about)?;
    accept(tx, live, Bump::View)
}

/// `interaction.requested`: the running agent step waits for its session.
pub(super) fn requested(
    tx: &mut Tx<'_>,
    mut live: Live,
    attempt_id: Option<&str>,
    prepared: Prepared,
) -> Result<Decided, StateError> {
    let Some(current) = live
        .current
        .clone()
        .filter(|current| Some(current.id.as_str()) == attempt_id && !current.requested)
    else {
        let text = format!("attempt {attempt_id:?} is not the running attempt");
        return Ok(refuse(tx, live, "attempt", text));
    };
    let session = match interaction::session_of(tx, &live, &current)? {
        Ok(session) => session,
        Err(text) => return Ok(refuse(tx, live, "interaction", text)),
    };
    store_prompt(tx, current.key, prepared)?;
    interaction::request(tx, &mut live, &current, &session)?;
    accept(tx, live, Bump::Execution)
}

fn store_prompt(tx: &Tx<'_>, attempt: AttemptKey, prepared: Prepared) -> Result<(), StateError> {
    let stored = prepared
        .prompt
        .map(|prompt| prompt.store(tx.db, tx.now))
        .transpose()?
        .unwrap_or_default();
    tx.db
        .prepare_cached("UPDATE node_attempts SET prompt_json = ?2, prompt_blob = ?3 WHERE id = ?1")?
        .execute((attempt, stored.json, stored.blob))?;
    Ok(())
}

/// `run.finished`: a generation that ends its run without a start.
pub(super) fn run_finished(
    tx: &mut Tx<'_>,
    mut live: Live,
    finish: &RunFinish,
    prepared: Prepared,
    loaded: &Loaded,
) -> Result<Decided, StateError> {
    let answer = answer(tx, &live)?;
    let checked = check(loaded, |load| {
        live.progress
            .check_run_finished(&live.graph.definition, finish, answer.as_ref(), load)
    });
    let transition = match checked {
        Checked::Follows(transition) => transition,
        Checked::Needs(content) => return Ok(needs(tx, live, content)),
        Checked::Refused(text) => return Ok(refuse(tx, live, "transition", text)),
    };
    leave(tx, &live, &finish.leaves, prepared.leaves)?;
    let graph = std::sync::Arc::clone(&live.graph);
    live.progress.apply(&graph.definition, &transition);
    end(tx, &mut live, finish, prepared.final_output, prepared.error)?;
    accept(tx, live, Bump::Execution)
}

/// `node.finished` and `node.failed`.
pub(super) fn finished(
    tx: &mut Tx<'_>,
    mut live: Live,
    claim: &Claim,
    finish: &NodeFinish,
    prepared: Prepared,
    loaded: &Loaded,
) -> Result<Decided, StateError> {
    let Some(current) = live
        .current
        .clone()
        .filter(|current| current.id.as_str() == finish.attempt_id)
    else {
        let text = format!("attempt {} is not the unfinished attempt", finish.attempt_id);
        return Ok(refuse(tx, live, "attempt", text));
    };
    if let Next::Start(start) = &finish.next
        && let Some(text) = bad_attempt_id(tx, &live, &start.attempt_id)?
    {
        return Ok(refuse(tx, live, "attempt_id", text));
    }
    let checked = check(loaded, |load| {
        live.progress.check_finished(&live.graph.definition, finish, load)
    });
    let transition = match checked {
        Checked::Follows(transition) => transition,
        Checked::Needs(content) => return Ok(needs(tx, live, content)),
        Checked::Refused(text) => return Ok(refuse(tx, live, "transition", text)),
    };
    let asked = match asked(&live, finish, loaded) {
        Asked::Nothing => None,
        Asked::Decision(request) => Some(request),
        Asked::Needs(content) => return Ok(needs(tx, live, content)),
        Asked::Refused(text) => return Ok(refuse(tx, live, "decision", text)),
    };
    let settled = finish.settle.as_ref().map(|settle| settle.key.as_str());
    if let Some(key) = effects::unsettled(tx, &live, settled)? {
        let text = format!("effect {key} of attempt {} is not settled", finish.attempt_id);
        return Ok(refuse(tx, live, "effect_unsettled", text));
    }
    if let Some(settle) = &finish.settle
        && let Err(refused) = effects::settle(tx, &mut live, &settle.key, settle.outcome, None)?
    {
        return Ok(refuse(tx, live, refused.reason, refused.message));
    }
    effects::close_visit(tx, &mut live)?;
    write_finish(tx, &mut live, &current, finish, prepared.output, prepared.details)?;
    leave(tx, &live, &finish.leaves, prepared.leaves)?;
    let graph = std::sync::Arc::clone(&live.graph);
    match &finish.next {
        Next::Start(start) => begin(tx, &mut live, claim.generation, start, prepared.enters)?,
        Next::Finish(run) => end(tx, &mut live, run, prepared.final_output, prepared.error)?,
        Next::Wait => {
            wait(tx, &mut live, current.key)?;
            if let Some(request) = asked {
                decision::open(tx, &mut live, current.key, &finish.attempt_id, &request)?;
            }
        }
    }
    live.progress.apply(&graph.definition, &transition);
    accept(tx, live, Bump::Execution)
}

/// What a finished node asks of a person.
enum Asked {
    Nothing,
    Decision(Value),
    Needs(ContentRef),
    Refused(String),
}

/// The request of a protected decision, checked against the definition.
fn asked(live: &Live, finish: &NodeFinish, loaded: &Loaded) -> Asked {
    let node = live.graph.definition.node(&finish.node_id);
    let declared = node.and_then(|node| node.spec.human_decision.as_ref());
    let (Some(declared), Next::Wait) = (declared, &finish.next) else {
        return Asked::Nothing;
    };
    let request = match &finish.output {
        ValueRef::Inline(request) => request.clone(),
        ValueRef::Content(content) => match loaded.iter().find(|(digest, _)| *digest == content.sha256) {
            Some((_, request)) => (**request).clone(),
            None => return Asked::Needs(content.clone()),
        },
    };
    match piw_engine::decision::check(declared, &request) {
        Ok(()) => Asked::Decision(request),
        Err(why) => Asked::Refused(format!("node {}: {why}", finish.node_id)),
    }
}

fn needs(tx: &mut Tx<'_>, live: Live, content: ContentRef) -> Decided {
    tx.cache.put(live);
    Decided::NeedsValue(content)
}

/// The answer of the checkpoint at which a continuation goes on, while nothing of it was executed.
fn answer(tx: &Tx<'_>, live: &Live) -> Result<Option<ValueRef>, StateError> {
    if live.attempt_count > 0 {
        return Ok(None);
    }
    let mut statement = tx
        .db
        .prepare_cached("SELECT answer_json, answer_blob FROM continuations WHERE child = ?1")?;
    let stored = maybe(statement.query_row([live.key], |row| Stored::columns(row, 0)))?;
    let inline = piw_protocol::child::INLINE_VALUE_LIMIT as u64;
    stored.map(|stored| stored.to_ref(tx.db, inline)).transpose()
}

fn bad_attempt_id(tx: &Tx<'_>, live: &Live, id: &str) -> Result<Option<String>, StateError> {
    if id.is_empty() || id.len() > ATTEMPT_ID_BYTES {
        return Ok(Some(format!(
            "an attempt id has 1 to {ATTEMPT_ID_BYTES} bytes, not {}",
            id.len()
        )));
    }
    let mut statement = tx
        .db
        .prepare_cached("SELECT 1 FROM node_attempts WHERE run = ?1 AND attempt_id = ?2")?;
    let used = statement.exists((live.key, AttemptId::new(id)))?;
    Ok(used.then(|| format!("attempt id {id} was used before in this run")))
}

/// Writes a new attempt, the transition that led to it, and the mounts it enters.
fn begin(
    tx: &Tx<'_>,
    live: &mut Live,
    generation: u64,
    start: &NodeStart,
    enters: Vec<value::Prepared>,
) -> Result<(), StateError> {
    let node = live.graph.index(&start.node_id)?;
    enter(tx, live, &start.enters, enters)?;
    let id = AttemptId::new(start.attempt_id.as_str());
    tx.db
        .prepare_cached(
            "INSERT INTO node_attempts (run, attempt_id, node, visit, generation, status, started_at, timeout_ms, status_detail)
             VALUES (:run, :id, :node, :visit, :generation, 'active', :now, :timeout, :detail)",
        )?
        .execute(named_params! {
            ":run": live.key, ":id": id, ":node": node, ":visit": start.visit, ":generation": generation, ":now": tx.now,
            ":timeout": start.timeout_ms, ":detail": start.status_detail,
        })?;
    let key = AttemptKey(tx.db.last_insert_rowid());
    tx.db
        .prepare_cached(
            "INSERT INTO run_nodes (run, node, visits, attempts, latest_attempt) VALUES (?1, ?2, ?3, 1, ?4)
             ON CONFLICT (run, node) DO UPDATE SET visits = ?3, attempts = attempts + 1, latest_attempt = ?4",
        )?
        .execute((live.key, node, start.visit, key))?;
    // A visit that is executed again after an interruption was entered by the same transition as before.
    if starts_visit(live, &start.node_id, start.visit) {
        let from = live.last_node.map_or(-1, |node| i64::from(node.0));
        tx.db
            .prepare_cached(
                "INSERT INTO run_transitions (run, from_node, to_node, count, first_step) VALUES (?1, ?2, ?3, 1, ?4)
                 ON CONFLICT (run, from_node, to_node) DO UPDATE SET count = count + 1",
            )?
            .execute((live.key, from, node, live.step_count))?;
    }
    live.attempt_count += 1;
    live.current = Some(Current {
        key,
        id,
        node,
        visit: start.visit,
        started_steady: Some(tx.steady),
        sampled: false,
        requested: false,
    });
    live.event(
        tx,
        "node",
        "node.started",
        About {
            node: Some(node),
            attempt: Some(key),
            payload: None,
        },
    )
}

fn starts_visit(live: &Live, node_id: &str, visit: u32) -> bool {
    live.progress.visits(&live.graph.definition, node_id) < visit
}

/// Opens new invocations of mounts: results of earlier invocations are no longer current.
fn enter(tx: &Tx<'_>, live: &Live, enters: &[ScopeEnter], inputs: Vec<value::Prepared>) -> Result<(), StateError> {
    for (enter, input) in enters.iter().zip(inputs) {
        let inside = format!("{}/", enter.mount);
        for (at, node) in (0u32..).zip(live.graph.definition.nodes()) {
            if node.id.starts_with(&inside) {
                tx.db
                    .prepare_cached(
                        "UPDATE run_nodes SET result_step = NULL, result_attempt = NULL WHERE run = ?1 AND node = ?2",
                    )?
                    .execute((live.key, NodeIndex(at)))?;
            }
        }
        tx.db
            .prepare_cached("DELETE FROM run_scopes WHERE run = ?1 AND substr(mount, 1, length(?2)) = ?2")?
            .execute((live.key, &inside))?;
        let stored = input.store(tx.db, tx.now)?;
        tx.db
            .prepare_cached(
                "INSERT INTO run_scopes (run, mount, state, step_count, input_json, input_blob) VALUES (?1, ?2, 'entered', 0, ?3, ?4)
                 ON CONFLICT (run, mount) DO UPDATE SET state = 'entered', step_count = 0, exit = NULL, left_step = NULL,
                   input_json = ?3, input_blob = ?4, output_json = NULL, output_blob = NULL",
            )?
            .execute((live.key, &enter.mount, stored.json, stored.blob))?;
    }
    Ok(())
}

/// Closes invocations of mounts, innermost first.
fn leave(tx: &Tx<'_>, live: &Live, leaves: &[ScopeLeave], outputs: Vec<value::Prepared>) -> Result<(), StateError> {
    for (leave, output) in leaves.iter().zip(outputs) {
        let stored = output.store(tx.db, tx.now)?;
        let step = live.step_count.saturating_sub(1);
        let changed = tx
            .db
            .prepare_cached(
                "UPDATE run_scopes SET state = 'left', exit = ?3, left_step = ?4, output_json = ?5, output_blob = ?6
                  WHERE run = ?1 AND mount = ?2 AND state = 'entered'",
            )?
            .execute((live.key, &leave.mount, &leave.exit, step, stored.json, stored.blob))?;
        if changed != 1 {
            return Err(StateError::Inconsistent(format!(
                "mount {} of run {} is not open",
                leave.mount, live.run_id
            )));
        }
    }
    Ok(())
}

/// Writes the end of an attempt and its step.
fn write_finish(
    tx: &Tx<'_>,
    live: &mut Live,
    current: &Current,
    finish: &NodeFinish,
    output: Option<value::Prepared>,
    details: Option<value::Prepared>,
) -> Result<(), StateError> {
    if current.sampled {
        active::close(tx, current.key)?;
    }
    let output = output
        .map(|value| value.store(tx.db, tx.now))
        .transpose()?
        .unwrap_or_default();
    let details = details
        .map(|value| value.store(tx.db, tx.now))
        .transpose()?
        .unwrap_or_default();
    tx.db
        .prepare_cached(
            "UPDATE node_attempts SET status = 'finished', outcome = :outcome, finished_at = :now, active_ms = :active,
               output_json = :output, output_blob = :output_blob, result_json = :result, result_blob = :result_blob,
               status_detail = coalesce(:detail, status_detail) WHERE id = :id",
        )?
        .execute(named_params! {
            ":outcome": names::of_outcome(finish.outcome), ":now": tx.now, ":active": finish.active_ms,
            ":output": output.json, ":output_blob": output.blob, ":result": details.json, ":result_blob": details.blob,
            ":detail": finish.status_detail, ":id": current.key,
        })?;
    let step = live.step_count;
    tx.db
        .prepare_cached("INSERT INTO run_steps (run, step_index, node, attempt) VALUES (?1, ?2, ?3, ?4)")?
        .execute((live.key, step, current.node, current.key))?;
    tx.db
        .prepare_cached(
            "UPDATE run_nodes SET latest_step = ?3, result_step = ?3, result_attempt = ?4 WHERE run = ?1 AND node = ?2",
        )?
        .execute((live.key, current.node, step, current.key))?;
    let graph = std::sync::Arc::clone(&live.graph);
    for mount in live.progress.open_mounts(&graph.definition) {
        tx.db
            .prepare_cached("UPDATE run_scopes SET step_count = step_count + 1 WHERE run = ?1 AND mount = ?2")?
            .execute((live.key, mount))?;
    }
    live.step_count += 1;
    live.crash_streak = 0;
    live.current = None;
    live.last_attempt = Some(current.key);
    live.last_node = Some(current.node);
    let kind = if finish.outcome == NodeOutcome::Ok {
        "node.finished"
    } else {
        "node.failed"
    };
    live.event(
        tx,
        "node",
        kind,
        About {
            node: Some(current.node),
            attempt: Some(current.key),
            payload: None,
        },
    )
}

/// The finished checkpoint waits for its answer: no runner, no claim.
fn wait(tx: &mut Tx<'_>, live: &mut Live, attempt: AttemptKey) -> Result<(), StateError> {
    live.waiting_attempt = Some(attempt);
    live.set_status(tx, RunStatus::Waiting)?;
    tx.db
        .prepare_cached("UPDATE run_queue SET status = 'parked', claimable = 0, updated_at = ?2 WHERE run = ?1")?
        .execute((live.key, tx.now))?;
    live.release(tx)?;
    let about = About {
        node: live.last_node,
        attempt: Some(attempt),
        payload: None,
    };
    live.event(tx, "run", "run.waiting", about)
}

/// The run ends as its last node, or its routing, says.
fn end(
    tx: &mut Tx<'_>,
    live: &mut Live,
    finish: &RunFinish,
    final_output: Option<value::Prepared>,
    error: Option<value::Prepared>,
) -> Result<(), StateError> {
    let failed = matches!(finish.status, RunStatus::Failed | RunStatus::TimedOut);
    live.end(
        tx,
        End {
            status: finish.status,
            final_output,
            error,
            failure_class: failed.then_some("nodeFailed"),
            continued: false,
        },
    )?;
    live.event(
        tx,
        "run",
        &format!("run.{}", names::of_run_status(finish.status)),
        About::default(),
    )
}
