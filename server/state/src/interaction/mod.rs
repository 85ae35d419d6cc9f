//! Requests of agent steps of runs that are bound to a session: what the session's model is asked, what it submits, and how
//! much time it has (state.md, "Interactive steps").
//!
//! The attempt that asked stays open with status `waiting`; the run holds no runner and no claim. A request is decided once, and
//! the run is claimable from then on: the next generation finishes the attempt as the request was decided, whatever happens to
//! its runner on the way.
//!
//! ```text
//! pending ──submission──▶ (validating) ──▶ accepted        ─┐
//!    │                        └─ rejected: still pending    ├─▶ run claimable, attempt settled by the next generation
//!    ├── turns without a submission ──▶ failed             ─┤
//!    ├── budget of active time ──▶ timed_out               ─┘
//!    └── the run ends ──▶ cancelled
//! ```
//!
//! | module | subject |
//! | --- | --- |
//! | here | requests, their messages and turns |
//! | `submission` | submissions and their validation |
//! | `time` | the budget of active time |

mod submission;
mod time;

pub(crate) use time::resume_session_time;

pub use submission::{NewSubmission, Refused, Reply, Submitted, ToValidate};

use piw_engine::lifecycle::RequestKind;
use piw_engine::prompt::{self, Reminder};
use piw_protocol::child::Settlement;
use piw_protocol::definition::NodeType;
use piw_protocol::interaction::{
    InteractionKind, MessageContent, MessageKind, STEP_DETAILS_SCHEMA, StepContract, StepReason, StopReason,
};
use piw_protocol::run::{ErrorInfo, RunStatus};
use rusqlite::{Connection, OptionalExtension, named_params};
use serde_json::{Value, json};

use crate::active;
use crate::cache::{Current, Live};
use crate::command;
use crate::content;
use crate::decision;
use crate::error::StateError;
use crate::ids::{AttemptKey, RunKey};
use crate::live::{About, Bump};
use crate::message::{self, NewMessage};
use crate::value::{Prepared, Stored, maybe};
use crate::writer::Tx;

/// Turns that may end without an accepted submission before the attempt fails.
const UNPRODUCTIVE_TURNS: u32 = 2;
/// Settlements carry outputs up to this size inline.
const INLINE: u64 = 64 * 1024;

/// A stored request.
pub(crate) struct Request {
    pub(crate) id: i64,
    pub(crate) request_id: String,
    pub(crate) run: RunKey,
    pub(crate) attempt: AttemptKey,
    pub(crate) session: String,
    pub(crate) kind: InteractionKind,
    pub(crate) pending: bool,
    pub(crate) unproductive: u32,
}

/// How a request is decided.
pub(crate) enum Decided {
    /// By this accepted submission.
    Accepted { submission: i64 },
    /// Nobody submitted anything that counts.
    Failed(ErrorInfo),
    /// The budget of active time ran out.
    TimedOut(ErrorInfo),
}

impl Decided {
    const fn status(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Failed(_) => "failed",
            Self::TimedOut(_) => "timed_out",
        }
    }
}

const COLUMNS: &str = "SELECT id, request_id, run, attempt, target_session, kind, status = 'pending', unproductive_turn_ends FROM interactive_requests";

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Request> {
    let kind: String = row.get(5)?;
    Ok(Request {
        id: row.get(0)?,
        request_id: row.get(1)?,
        run: row.get(2)?,
        attempt: row.get(3)?,
        session: row.get(4)?,
        kind: if kind == InteractionKind::Assistant.name() {
            InteractionKind::Assistant
        } else {
            InteractionKind::Submit
        },
        pending: row.get(6)?,
        unproductive: row.get(7)?,
    })
}

fn load(db: &Connection, id: i64) -> Result<Request, StateError> {
    let mut statement = db.prepare_cached(&format!("{COLUMNS} WHERE id = ?1"))?;
    maybe(statement.query_row([id], read))?.ok_or_else(|| StateError::Inconsistent(format!("no request {id}")))
}

fn by_public_id(db: &Connection, request_id: &str) -> Result<Option<Request>, StateError> {
    let mut statement = db.prepare_cached(&format!("{COLUMNS} WHERE request_id = ?1"))?;
    maybe(statement.query_row([request_id], read))
}

/// The pending request of a run.
pub(crate) fn pending_of(db: &Connection, run: RunKey) -> Result<Option<Request>, StateError> {
    let mut statement = db.prepare_cached(&format!("{COLUMNS} WHERE run = ?1 AND status = 'pending'"))?;
    maybe(statement.query_row([run], read))
}

/// What commands know of what a run waits for.
pub(crate) fn waits_for(tx: &Tx<'_>, live: &Live) -> Result<Option<RequestKind>, StateError> {
    if live.current.as_ref().is_some_and(|current| current.requested) {
        let pending = pending_of(tx.db, live.key)?;
        return Ok(pending.map(|request| match request.kind {
            InteractionKind::Assistant => RequestKind::VisibleReply,
            InteractionKind::Submit | InteractionKind::Decision => RequestKind::AgentOutput,
        }));
    }
    Ok(match live.waiting_attempt {
        None => None,
        Some(_) if decision::is_pending(tx.db, live.key)? => Some(RequestKind::Decision),
        Some(_) => Some(RequestKind::Checkpoint),
    })
}

/// The session that the running agent step asks; the inner error says why it cannot.
pub(crate) fn session_of(tx: &Tx<'_>, live: &Live, current: &Current) -> Result<Result<String, String>, StateError> {
    let node = live.graph.node_id(current.node)?;
    let is_agent = live
        .graph
        .definition
        .node(node)
        .is_some_and(|node| node.spec.node_type == NodeType::Agent);
    if !is_agent {
        return Ok(Err(format!("node {node:?} is no agent step")));
    }
    let mut statement = tx
        .db
        .prepare_cached("SELECT session_id FROM run_bindings WHERE run = ?1 AND session_id IS NOT NULL")?;
    let session: Option<String> = maybe(statement.query_row([live.key], |row| row.get(0)))?;
    Ok(session.ok_or_else(|| {
        format!(
            "run {} is bound to no session that node {node:?} could ask",
            live.run_id
        )
    }))
}

/// Stores the request of the running attempt, whose prompt is stored, and parks the run until it is decided.
pub(crate) fn request(tx: &mut Tx<'_>, live: &mut Live, current: &Current, session: &str) -> Result<(), StateError> {
    let contract = contract(tx, live, current)?;
    let kind = contract.kind;
    let encoded = Prepared::json(&contract)?;
    let hash = encoded.digest();
    let stored = encoded.store(tx.db, tx.now)?;
    tx.db
        .prepare_cached(
            "INSERT INTO interactive_requests (request_id, run, attempt, target_session, kind, contract_hash, contract_json,
               contract_blob, status, created_at)
             VALUES (:id, :run, :attempt, :session, :kind, :hash, :json, :blob, 'pending', :now)",
        )?
        .execute(named_params! {
            ":id": current.id.as_str(), ":run": live.key, ":attempt": current.key, ":session": session, ":kind": kind.name(),
            ":hash": hash, ":json": stored.json, ":blob": stored.blob, ":now": tx.now,
        })?;
    let id = tx.db.last_insert_rowid();
    active::cut(tx, current)?;
    tx.db
        .prepare_cached("UPDATE node_attempts SET status = 'waiting' WHERE id = ?1")?
        .execute([current.key])?;
    if let Some(current) = &mut live.current {
        current.requested = true;
        current.sampled = true;
    }
    live.set_status(tx, RunStatus::Waiting)?;
    tx.db
        .prepare_cached(
            "UPDATE run_queue SET status = 'parked', claimable = 0, action = 'resume', updated_at = ?2 WHERE run = ?1",
        )?
        .execute((live.key, tx.now))?;
    live.release(tx)?;
    let about = About {
        node: Some(current.node),
        attempt: Some(current.key),
        payload: None,
    };
    live.event(tx, "node", "interaction.requested", about)?;
    step_message(tx, id, StepReason::Initial)
}

fn contract(tx: &Tx<'_>, live: &Live, current: &Current) -> Result<StepContract, StateError> {
    let definition = &live.graph.definition;
    let node_id = live.graph.node_id(current.node)?;
    let spec = &definition
        .node(node_id)
        .ok_or_else(|| StateError::Inconsistent(format!("node {node_id:?} is unknown")))?
        .spec;
    let expected_output = spec.expected_output.clone().unwrap_or_default();
    let mut statement = tx
        .db
        .prepare_cached("SELECT timeout_ms FROM node_attempts WHERE id = ?1")?;
    let timeout_ms = statement.query_row([current.key], |row| row.get(0))?;
    Ok(StepContract {
        request_id: current.id.as_str().to_owned(),
        kind: if spec.replies_visibly() {
            InteractionKind::Assistant
        } else {
            InteractionKind::Submit
        },
        workflow: definition.name().to_owned(),
        node_id: node_id.to_owned(),
        visit: current.visit,
        max_chars: max_chars(&expected_output),
        expected_output,
        allowed_tools: spec.allowed_tools.clone(),
        timeout_ms,
    })
}

/// The bound of a visible reply.
fn max_chars(expected: &Value) -> Option<u64> {
    let most = expected.get("maxChars")?.as_f64()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float that is out of range saturates, which is what a bound means"
    )]
    Some(most as u64)
}

/// Queues a message that presents a pending request to its session.
pub(crate) fn step_message(tx: &mut Tx<'_>, request: i64, reason: StepReason) -> Result<(), StateError> {
    let request = load(tx.db, request)?;
    let prompt = prompt_of(tx.db, request.attempt)?;
    let content = match reason {
        StepReason::Initial | StepReason::Resumed => prompt,
        StepReason::Reminder => reminded(tx.db, &request, &prompt)?,
    };
    let mut statement = tx
        .db
        .prepare_cached("SELECT contract_json, contract_blob FROM interactive_requests WHERE id = ?1")?;
    let contract = statement.query_row([request.id], |row| Stored::columns(row, 0))?;
    drop(statement);
    let contract = json_of(tx.db, &contract)?;
    let content = MessageContent {
        custom_type: MessageKind::Step.custom_type().to_owned(),
        content,
        display: true,
        details: json!({ "schema": STEP_DETAILS_SCHEMA, "reason": reason.name(), "contract": contract }),
    };
    message::insert(
        tx,
        NewMessage {
            session: &request.session,
            run: request.run,
            kind: MessageKind::Step,
            reason: Some(reason),
            source_id: &request.request_id,
            request: Some(request.id),
            content,
        },
    )?;
    Ok(())
}

fn prompt_of(db: &Connection, attempt: AttemptKey) -> Result<String, StateError> {
    let mut statement = db.prepare_cached("SELECT prompt_json, prompt_blob FROM node_attempts WHERE id = ?1")?;
    let stored = statement.query_row([attempt], |row| Stored::columns(row, 0))?;
    match json_of(db, &stored)? {
        Value::String(prompt) => Ok(prompt),
        _ => Err(StateError::Inconsistent(format!("attempt {} has no prompt", attempt.0))),
    }
}

fn json_of(db: &Connection, stored: &Stored) -> Result<Value, StateError> {
    Ok(match (&stored.json, stored.blob) {
        (Some(json), _) => serde_json::from_str(json)?,
        (None, Some(blob)) => serde_json::from_slice(&content::read_all(db, blob)?)?,
        (None, None) => Value::Null,
    })
}

/// The prompt with what was missing in the turn that ended.
fn reminded(db: &Connection, request: &Request, prompt: &str) -> Result<String, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT s.payload_json, (SELECT data FROM blob_chunks c WHERE c.blob = s.payload_blob AND c.offset = 0),
           s.receipt_json ->> '$.error.message'
           FROM interactive_submissions s WHERE s.request = ?1 AND s.outcome = 'rejected' ORDER BY s.id DESC LIMIT 1",
    )?;
    let rejected = statement
        .query_row([request.id], |row| {
            Ok((
                row.get::<_, Option<String>>(0)?,
                row.get::<_, Option<Vec<u8>>>(1)?,
                row.get::<_, Option<String>>(2)?,
            ))
        })
        .optional()?;
    let (submission, why);
    let reminder = match rejected {
        Some((json, first_bytes, reason)) => {
            submission = json.unwrap_or_else(|| String::from_utf8_lossy(&first_bytes.unwrap_or_default()).into_owned());
            why = reason.unwrap_or_default();
            Reminder::Rejected {
                submission: &submission,
                why: &why,
            }
        }
        None => Reminder::Nothing {
            why: "the turn ended without an accepted submission",
        },
    };
    prompt::remind(prompt, reminder)
        .ok_or_else(|| StateError::Inconsistent(format!("request {} has a prompt of another form", request.request_id)))
}

/// A model turn of a request's message began: its time counts from now on.
pub(crate) fn turn_started(tx: &mut Tx<'_>, request: i64) -> Result<(), StateError> {
    let request = load(tx.db, request)?;
    if request.pending {
        active::resume(tx, request.attempt)?;
        tx.changes.deadlines = true;
    }
    Ok(())
}

/// A model turn of a request's message ended: an aborted one pauses the run; any other that left a submitted-output step without
/// an accepted or provisional submission is reminded of, or fails the attempt. The caller holds nothing of the run in memory.
pub(crate) fn turn_ended(tx: &mut Tx<'_>, request: i64, stop: StopReason) -> Result<(), StateError> {
    let request = load(tx.db, request)?;
    active::hold(tx, request.attempt)?;
    if !request.pending || is_paused(tx.db, request.run)? {
        return Ok(());
    }
    let mut live = tx.cache.take(tx.db, request.run)?;
    if stop == StopReason::Aborted {
        command::pause(tx, &mut live)?;
        live.event(
            tx,
            "command",
            "run.paused",
            about(&live, Some("{\"by\":\"abortedTurn\"}")),
        )?;
        live.save(tx, Bump::Execution)?;
        return Ok(());
    }
    if request.kind != InteractionKind::Submit || submission::is_validating(tx.db, request.id)? {
        tx.cache.put(live);
        return Ok(());
    }
    let ends = request.unproductive + 1;
    tx.db
        .prepare_cached("UPDATE interactive_requests SET unproductive_turn_ends = ?2 WHERE id = ?1")?
        .execute((request.id, ends))?;
    if ends <= UNPRODUCTIVE_TURNS {
        step_message(tx, request.id, StepReason::Reminder)?;
        let payload = format!("{{\"number\":{ends}}}");
        live.event(tx, "node", "interaction.reminded", about(&live, Some(&payload)))?;
        live.save(tx, Bump::View)?;
        return Ok(());
    }
    let node = live
        .current
        .as_ref()
        .map(|current| live.graph.node_id(current.node))
        .transpose()?;
    let error = ErrorInfo {
        code: Some("noSubmission".to_owned()),
        message: format!(
            "the model had no submission of node {:?} accepted in {ends} turns",
            node.unwrap_or_default()
        ),
        stack: None,
    };
    decide(tx, &mut live, &request, Decided::Failed(error))?;
    live.save(tx, Bump::Execution)?;
    Ok(())
}

/// The active branch is proved to lack every message of a pending request: it is presented once more. Repeating the report creates
/// nothing, since that message is pending then.
pub(crate) fn missing_from_branch(tx: &mut Tx<'_>, request: i64) -> Result<(), StateError> {
    let request = load(tx.db, request)?;
    if !request.pending || is_paused(tx.db, request.run)? {
        return Ok(());
    }
    let mut statement = tx
        .db
        .prepare_cached("SELECT 1 FROM workflow_messages WHERE request = ?1 AND kind = 'step' AND state = 'pending'")?;
    if statement.exists([request.id])? {
        return Ok(());
    }
    drop(statement);
    step_message(tx, request.id, StepReason::Resumed)
}

/// The run was paused: its request waits with it.
pub(crate) fn paused(tx: &mut Tx<'_>, live: &Live) -> Result<(), StateError> {
    let Some(request) = pending_of(tx.db, live.key)? else {
        return Ok(());
    };
    active::hold(tx, request.attempt)?;
    message::cancel_steps(tx, request.id)
}

/// The run was resumed: its request is presented again, for a fresh turn.
pub(crate) fn resumed(tx: &mut Tx<'_>, live: &mut Live) -> Result<(), StateError> {
    let Some(request) = pending_of(tx.db, live.key)? else {
        return Ok(());
    };
    tx.db
        .prepare_cached("UPDATE interactive_requests SET revision = revision + 1 WHERE id = ?1")?
        .execute([request.id])?;
    step_message(tx, request.id, StepReason::Resumed)
}

/// Decides a pending request: the next generation settles its attempt so. The caller saves the run.
pub(crate) fn decide(tx: &mut Tx<'_>, live: &mut Live, request: &Request, decided: Decided) -> Result<(), StateError> {
    let status = decided.status();
    let (submission, error) = match decided {
        Decided::Accepted { submission } => (Some(submission), None),
        Decided::Failed(error) | Decided::TimedOut(error) => (None, Some(serde_json::to_string(&error)?)),
    };
    tx.db
        .prepare_cached(
            "UPDATE interactive_requests SET status = :status, accepted_submission = :submission, error_json = :error,
               settled_at = :now WHERE id = :id AND status = 'pending'",
        )?
        .execute(named_params! {
            ":status": status, ":submission": submission, ":error": error, ":now": tx.now, ":id": request.id,
        })?;
    active::hold(tx, request.attempt)?;
    message::cancel_steps(tx, request.id)?;
    message::touch_run(tx, live.key)?;
    submission::withdraw(tx, request, live, status)?;
    live.set_status(tx, RunStatus::Running)?;
    if is_paused(tx.db, live.key)? {
        tx.changes.run(live.key, &live.run_id, true);
    } else {
        command::make_ready(tx, live.key, live.status)?;
    }
    live.event(tx, "node", &format!("interaction.{status}"), about(live, None))
}

/// The run ends: what it asked is asked no longer.
pub(crate) fn close(tx: &mut Tx<'_>, live: &Live) -> Result<(), StateError> {
    let Some(request) = pending_of(tx.db, live.key)? else {
        return Ok(());
    };
    tx.db
        .prepare_cached("UPDATE interactive_requests SET status = 'cancelled', settled_at = ?2 WHERE id = ?1")?
        .execute((request.id, tx.now))?;
    active::hold(tx, request.attempt)?;
    message::cancel_steps(tx, request.id)?;
    submission::withdraw(tx, &request, live, "cancelled")
}

/// How the request of an open attempt was decided; `None` while it is pending.
pub(crate) fn settlement(db: &Connection, current: &Current) -> Result<Option<Settlement>, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT q.status, q.error_json, s.output_json, s.output_blob FROM interactive_requests q
           LEFT JOIN interactive_submissions s ON s.id = q.accepted_submission WHERE q.attempt = ?1",
    )?;
    let row = statement.query_row([current.key], |row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, Option<String>>(1)?,
            Stored::columns(row, 2)?,
        ))
    });
    let Some((status, error, output)) = maybe(row)? else {
        let text = format!("attempt {} waits without a request", current.key.0);
        return Err(StateError::Inconsistent(text));
    };
    let active_ms = active::consumed(db, current.key)?;
    let error = || -> Result<ErrorInfo, StateError> { Ok(serde_json::from_str(error.as_deref().unwrap_or_default())?) };
    Ok(match status.as_str() {
        "accepted" => Some(Settlement::Accepted {
            output: output.to_ref(db, INLINE)?,
            active_ms,
        }),
        "failed" => Some(Settlement::Failed {
            error: error()?,
            active_ms,
        }),
        "timed_out" => Some(Settlement::TimedOut {
            error: error()?,
            active_ms,
        }),
        _ => None,
    })
}

fn is_paused(db: &Connection, run: RunKey) -> Result<bool, StateError> {
    let mut statement = db.prepare_cached("SELECT paused_at IS NOT NULL FROM runs WHERE id = ?1")?;
    Ok(statement.query_row([run], |row| row.get(0))?)
}

fn about<'a>(live: &Live, payload: Option<&'a str>) -> About<'a> {
    About {
        node: live.current.as_ref().map(|current| current.node),
        attempt: live.current.as_ref().map(|current| current.key),
        payload,
    }
}
