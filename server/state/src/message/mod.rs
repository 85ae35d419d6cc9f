//! Workflow messages: content that the server owns and a Pi conversation must receive, and the model turns that they open.
//!
//! A message commits with the fact that causes it. Its source cancels it while it is pending; evidence from the active branch of
//! the conversation makes it sent, and always wins. `open` marks what may still be a session's current message: a superset of what
//! the selection's exact rules accept, so that the selection never reads a session's history.
//!
//! What a session's branch holds is known per *coordinator epoch*: `branch_epoch` is the epoch of the newest report on a message.
//! Epochs only grow, so nothing has to be written when a coordinator goes.

mod branch;
mod facts;
mod terminal;
mod turn;

pub use turn::turn_of;

pub(crate) use terminal::{Notice, notify, present_end};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use piw_protocol::envelope::Outcome;
use piw_protocol::interaction::{MessageContent, MessageKind, StepReason};
use rusqlite::named_params;
use serde_json::Value;
use uuid::Uuid;

use crate::error::StateError;
use crate::ids::RunKey;
use crate::receipts::{Receipted, error};
use crate::value::{Prepared, maybe};
use crate::writer::Tx;

/// Proof that a connection was the coordinator of a session when it asked. Checked again inside the transaction of whatever it
/// authorises, so that a coordinator that was replaced meanwhile changes nothing.
#[derive(Debug, Clone)]
pub struct SessionFence {
    session: Arc<str>,
    epoch: u64,
    current: Arc<AtomicU64>,
}

impl SessionFence {
    /// Binds an epoch to the cell that holds the session's current one.
    #[must_use]
    pub fn new(session: Arc<str>, epoch: u64, current: Arc<AtomicU64>) -> Self {
        Self {
            session,
            epoch,
            current,
        }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The coordinator epoch.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether no newer coordinator took the session over.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.current.load(Ordering::SeqCst) == self.epoch
    }
}

/// The answer to a coordinator that was replaced before its report reached the writer. Nothing is stored.
fn stale<R>(fence: &SessionFence) -> Receipted<R> {
    let message = format!(
        "epoch {} no longer coordinates session {:?}; the current epoch is {}",
        fence.epoch(),
        fence.session(),
        fence.current.load(Ordering::SeqCst)
    );
    Receipted::refused(Outcome::Rejected, error("stale_coordinator", message))
}

/// `workflow_messages.id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MessageKey(pub(crate) i64);

/// A message that is about to be stored.
pub(crate) struct NewMessage<'a> {
    /// The session that must receive it.
    pub(crate) session: &'a str,
    /// The run that it is about.
    pub(crate) run: RunKey,
    /// Its kind.
    pub(crate) kind: MessageKind,
    /// Why a step message exists: exactly for steps.
    pub(crate) reason: Option<StepReason>,
    /// Public id of what causes it: a request, decision, notification, run or follow-up.
    pub(crate) source_id: &'a str,
    /// `interactive_requests.id`: exactly for steps.
    pub(crate) request: Option<i64>,
    /// What Pi gets. The message id is put into its details here.
    pub(crate) content: MessageContent,
}

/// Stores a pending message as the session's newest. A step message takes the place of a pending one of the same request, which
/// is cancelled.
///
/// # Errors
/// [`StateError::Invalid`] when the content has no canonical form or its details are no object.
pub(crate) fn insert(tx: &mut Tx<'_>, message: NewMessage<'_>) -> Result<MessageKey, StateError> {
    let message_id = Uuid::now_v7().to_string();
    let mut content = message.content;
    let Value::Object(details) = &mut content.details else {
        let text = format!("the details of a {} message must be an object", message.kind.name());
        return Err(StateError::Invalid(text));
    };
    details.insert("workflowMessageId".to_owned(), Value::String(message_id.clone()));
    let content = Prepared::json(&content)?;
    let digest = content.digest();
    let stored = content.store(tx.db, tx.now)?;
    if let Some(request) = message.request {
        cancel_pending_steps(tx, request)?;
    }
    let order = next_order(tx, message.session)?;
    tx.db
        .prepare_cached(
            "INSERT INTO workflow_messages (message_id, run, target_session, kind, reason, source_id, request, content_digest,
               content_json, content_blob, session_order, state, open, created_at, updated_at)
             VALUES (:id, :run, :session, :kind, :reason, :source, :request, :digest, :json, :blob, :order, 'pending', 1, :now, :now)",
        )?
        .execute(named_params! {
            ":id": message_id, ":run": message.run, ":session": message.session, ":kind": message.kind.name(),
            ":reason": message.reason.map(StepReason::name), ":source": message.source_id, ":request": message.request,
            ":digest": digest, ":json": stored.json, ":blob": stored.blob, ":order": order, ":now": tx.now,
        })?;
    let key = MessageKey(tx.db.last_insert_rowid());
    piw_fault::point!("state::message_stored");
    Ok(key)
}

/// Something that decides the session's current message changed: a message, a turn, a request, a pause or the reservation.
pub(crate) fn touch(tx: &mut Tx<'_>, session: &str) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "INSERT INTO pi_sessions (session_id, revision, last_order) VALUES (?1, 1, 0)
             ON CONFLICT (session_id) DO UPDATE SET revision = revision + 1",
        )?
        .execute([session])?;
    tx.changes.session(session);
    Ok(())
}

/// As [`touch`], for the session that a run is bound to, if any.
pub(crate) fn touch_run(tx: &mut Tx<'_>, run: RunKey) -> Result<(), StateError> {
    match session_of(tx, run)? {
        Some(session) => touch(tx, &session),
        None => Ok(()),
    }
}

/// The session that a run is bound to.
pub(crate) fn session_of(tx: &Tx<'_>, run: RunKey) -> Result<Option<String>, StateError> {
    maybe(
        tx.db
            .prepare_cached("SELECT session_id FROM run_bindings WHERE run = ?1 AND session_id IS NOT NULL")?
            .query_row([run], |row| row.get(0)),
    )
}

/// Takes the next place in a session's order.
fn next_order(tx: &mut Tx<'_>, session: &str) -> Result<i64, StateError> {
    let order = tx
        .db
        .prepare_cached(
            "INSERT INTO pi_sessions (session_id, revision, last_order) VALUES (?1, 1, 1)
             ON CONFLICT (session_id) DO UPDATE SET revision = revision + 1, last_order = last_order + 1 RETURNING last_order",
        )?
        .query_row([session], |row| row.get(0))?;
    tx.changes.session(session);
    Ok(order)
}

/// Cancels the pending step messages of a request: it was accepted, paused, cancelled, timed out or is presented anew. What was
/// delivered stays open only while its request is pending or its turn is unreported, so a request is settled before this is called.
pub(crate) fn cancel_steps(tx: &mut Tx<'_>, request: i64) -> Result<(), StateError> {
    cancel_pending_steps(tx, request)?;
    tx.db
        .prepare_cached(
            "UPDATE workflow_messages SET open = 0 WHERE request = ?1 AND open = 1 AND state = 'sent'
               AND EXISTS (SELECT 1 FROM interactive_requests q WHERE q.id = ?1 AND (q.status = 'accepted' OR (q.status <> 'pending'
                 AND EXISTS (SELECT 1 FROM workflow_turns t WHERE t.message = workflow_messages.id))))",
        )?
        .execute([request])?;
    let session: Option<String> = maybe(
        tx.db
            .prepare_cached(
                "SELECT b.session_id FROM interactive_requests q JOIN run_bindings b ON b.run = q.run
                  WHERE q.id = ?1 AND b.session_id IS NOT NULL",
            )?
            .query_row([request], |row| row.get(0)),
    )?;
    match session {
        Some(session) => touch(tx, &session),
        None => Ok(()),
    }
}

fn cancel_pending_steps(tx: &Tx<'_>, request: i64) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "UPDATE workflow_messages SET state = 'cancelled', open = 0, updated_at = ?2
              WHERE request = ?1 AND kind = 'step' AND state = 'pending'",
        )?
        .execute((request, tx.now))?;
    Ok(())
}

/// A run became terminal: its pending step and decision messages are cancelled and its open turn ends as lost. What was delivered
/// and can ask nothing of the session any more is closed; a delivered step whose turn is unreported stays, so that it is stopped.
pub(crate) fn cancel_sources(tx: &mut Tx<'_>, run: RunKey) -> Result<(), StateError> {
    let Some(session) = session_of(tx, run)? else {
        return Ok(());
    };
    tx.db
        .prepare_cached(
            "UPDATE workflow_turns SET status = 'ended', stop_reason = 'lost', ended_at = ?2 WHERE run = ?1 AND status = 'open'",
        )?
        .execute((run, tx.now))?;
    tx.db
        .prepare_cached(
            "UPDATE workflow_messages SET state = 'cancelled', open = 0, updated_at = ?2
              WHERE run = ?1 AND open = 1 AND state = 'pending' AND kind IN ('step', 'decision')",
        )?
        .execute((run, tx.now))?;
    tx.db
        .prepare_cached(
            "UPDATE workflow_messages SET open = 0 WHERE run = ?1 AND open = 1 AND state = 'sent' AND (kind = 'decision'
               OR (kind = 'step' AND EXISTS (SELECT 1 FROM workflow_turns t WHERE t.message = workflow_messages.id)))",
        )?
        .execute([run])?;
    touch(tx, &session)?;
    piw_fault::point!("state::sources_cancelled");
    Ok(())
}
