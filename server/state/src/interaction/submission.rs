//! Submissions: stored as `validating`, judged by a child, accepted or rejected. Whoever repeats one gets its outcome.

use piw_protocol::child::{RunnerLaunch, Validation, ValueRef};
use piw_protocol::envelope::Outcome;
use piw_protocol::interaction::{InteractionKind, InteractionReceipt};
use piw_protocol::ops::OperationError;
use piw_protocol::run::{ErrorInfo, Update};
use rusqlite::{Connection, named_params};
use uuid::Uuid;

use super::{Decided, Request, about, by_public_id, decide, is_paused, load};
use crate::cache::Live;
use crate::child;
use crate::error::StateError;
use crate::execution;
use crate::live::Bump;
use crate::message::SessionFence;
use crate::queue;
use crate::receipts::{CommandIdentity, Decision, Receipted, error, receipted};
use crate::state::State;
use crate::updates;
use crate::value::{self, Prepared, Stored, maybe};
use crate::writer::{Authority, Tx};

/// The callback that judges submissions.
const VALIDATE: &str = "validate";
/// Parts of a validator's launch up to this size travel inline, so that all of it fits a frame.
const INLINE: u64 = 192 * 1024;

/// What a session submits.
#[derive(Debug, Clone)]
pub struct NewSubmission {
    /// Proof that the session's coordinator submits.
    pub fence: SessionFence,
    /// Exact request.
    pub request_id: String,
    /// Stable over retries: the tool call's id.
    pub key: String,
    /// The value; the text of a visible reply.
    pub payload: ValueRef,
    /// Facts of a visible reply; absent for a value that was submitted with a tool.
    pub reply: Option<Reply>,
}

/// A visible reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Pi entry of the message.
    pub entry_id: String,
    /// Characters of its text.
    pub chars: u64,
    /// Whether the text is empty but for white space.
    pub blank: bool,
}

/// Why nothing was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// `rejected`, `conflict` or `notFound`.
    pub outcome: Outcome,
    /// What the session is told.
    pub error: OperationError,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq)]
pub enum Submitted {
    /// Nothing was stored.
    Refused(Refused),
    /// It is decided, now or (`repeated`) by an earlier delivery.
    Decided {
        /// The outcome.
        receipt: InteractionReceipt,
        /// Whether an earlier delivery decided it.
        repeated: bool,
    },
    /// It is stored and must be validated; or it is being validated already.
    Validating {
        /// Names the submission in [`State::validation`] and [`State::decide_submission`].
        submission: i64,
    },
}

/// What a validator needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ToValidate {
    /// What to load.
    pub launch: RunnerLaunch,
    /// Canonical JSON of the run's execution state.
    pub state: ValueRef,
    /// Qualified node id.
    pub node_id: String,
    /// Visit of the node.
    pub visit: u32,
    /// Attempt, which is the request's id too.
    pub attempt_id: String,
    /// What was submitted.
    pub submission: ValueRef,
}

impl State {
    /// Stores a submission. One without a `validate` callback is accepted at once.
    ///
    /// # Errors
    /// [`StateError::Invalid`] when the value cannot be stored; otherwise when the write fails.
    pub async fn submit(&self, new: NewSubmission) -> Result<Submitted, StateError> {
        let payload = Prepared::value(&new.payload)?;
        self.write("submit", Authority::Server, move |tx| submit(tx, &new, payload))
            .await
    }

    /// What a validator of this submission needs; `None` when it is decided.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn validation(
        &self,
        submission: i64,
        global_dir: Option<String>,
    ) -> Result<Option<ToValidate>, StateError> {
        self.write("validation", Authority::Server, move |tx| {
            to_validate(tx, submission, global_dir)
        })
        .await
    }

    /// Applies a verdict, and adopts the one that was applied before.
    ///
    /// # Errors
    /// [`StateError::Invalid`] when the normalised value cannot be stored; otherwise when the write fails.
    pub async fn decide_submission(
        &self,
        submission: i64,
        verdict: Validation,
    ) -> Result<InteractionReceipt, StateError> {
        let output = match &verdict {
            Validation::Accepted(value) => Ok(Prepared::value(value)?),
            Validation::Rejected(error) => Err(error.clone()),
        };
        self.write("decide_submission", Authority::Server, move |tx| {
            judged(tx, submission, output)
        })
        .await
    }

    /// Submissions whose validation an earlier server did not finish.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn provisional_submissions(&self) -> Result<Vec<i64>, StateError> {
        self.read(|db| {
            let mut statement =
                db.prepare_cached("SELECT id FROM interactive_submissions WHERE outcome = 'validating' ORDER BY id")?;
            let found = statement.query_map([], |row| row.get(0))?;
            Ok(found.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Publishes an update of a pending request's step, once per identity.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn interaction_update(
        &self,
        identity: CommandIdentity,
        fence: SessionFence,
        request_id: String,
        update: Update,
    ) -> Result<Receipted<InteractionReceipt>, StateError> {
        self.write("interaction_update", Authority::Server, move |tx| {
            let request = match owned(tx, &fence, &request_id)? {
                Ok(request) => request,
                Err(refused) => return Ok(refusal(refused)),
            };
            receipted(tx, &identity, |tx| publish(tx, &request, &update))
        })
        .await
    }
}

fn refusal(refused: Refused) -> Receipted<InteractionReceipt> {
    Receipted {
        outcome: refused.outcome,
        revision: None,
        receipt: None,
        error: Some(refused.error),
        repeated: false,
    }
}

fn refused(outcome: Outcome, reason: &str, message: String) -> Refused {
    Refused {
        outcome,
        error: error(reason, message),
    }
}

/// The request, when the session is the one that it asks and its coordinator still is who asked.
fn owned(tx: &Tx<'_>, fence: &SessionFence, request_id: &str) -> Result<Result<Request, Refused>, StateError> {
    if !fence.holds() {
        let message = format!("another connection coordinates session {:?} now", fence.session());
        return Ok(Err(refused(Outcome::Rejected, "stale_coordinator", message)));
    }
    let Some(request) = by_public_id(tx.db, request_id)? else {
        let message = format!("no request {request_id}");
        return Ok(Err(refused(Outcome::NotFound, "request_not_found", message)));
    };
    if request.session != fence.session() {
        let message = format!("request {request_id} is of another session");
        return Ok(Err(refused(Outcome::Rejected, "session_not_bound", message)));
    }
    Ok(Ok(request))
}

/// Whether something can be submitted for a request now.
fn open(tx: &Tx<'_>, request: &Request) -> Result<Result<(), Refused>, StateError> {
    if !request.pending {
        let message = format!("request {} is settled; it takes nothing more", request.request_id);
        return Ok(Err(refused(Outcome::Rejected, "request_settled", message)));
    }
    if is_paused(tx.db, request.run)? {
        let message = format!("the run of request {} is paused; resume it first", request.request_id);
        return Ok(Err(refused(Outcome::Rejected, "run_paused", message)));
    }
    Ok(Ok(()))
}

/// A row as it was decided, or is being decided.
struct Row {
    id: i64,
    hash: String,
    validating: bool,
    receipt: Option<String>,
}

fn submit(tx: &mut Tx<'_>, new: &NewSubmission, payload: Prepared) -> Result<Submitted, StateError> {
    let request = match owned(tx, &new.fence, &new.request_id)? {
        Ok(request) => request,
        Err(refused) => return Ok(Submitted::Refused(refused)),
    };
    let wanted = match new.reply {
        Some(_) => InteractionKind::Assistant,
        None => InteractionKind::Submit,
    };
    if request.kind != wanted {
        let message = match request.kind {
            InteractionKind::Assistant => "is completed by the visible reply of its turn, not by a submitted value",
            InteractionKind::Submit | InteractionKind::Decision => "is completed by a submitted value, not by a reply",
        };
        let message = format!("request {} {message}", request.request_id);
        return Ok(Submitted::Refused(refused(Outcome::Rejected, "request_kind", message)));
    }
    let hash = payload.digest();
    if let Some(row) = known(tx.db, request.id, &new.key)? {
        return repeated(&row, &hash, new);
    }
    if let Err(refused) = open(tx, &request)? {
        return Ok(Submitted::Refused(refused));
    }
    if is_validating(tx.db, request.id)? {
        let message = format!(
            "another submission of request {} is being validated",
            request.request_id
        );
        return Ok(Submitted::Refused(refused(Outcome::Rejected, "validating", message)));
    }
    let stored = payload.store(tx.db, tx.now)?;
    tx.db
        .prepare_cached(
            "INSERT INTO interactive_submissions (submission_id, request, idempotency_key, payload_hash, payload_json, payload_blob,
               response_entry_id, outcome, submitted_at)
             VALUES (:public, :request, :key, :hash, :json, :blob, :entry, 'validating', :now)",
        )?
        .execute(named_params! {
            ":public": Uuid::now_v7().to_string(), ":request": request.id, ":key": new.key, ":hash": hash,
            ":json": stored.json, ":blob": stored.blob,
            ":entry": new.reply.as_ref().map(|reply| &reply.entry_id), ":now": tx.now,
        })?;
    let submission = tx.db.last_insert_rowid();
    let mut live = tx.cache.take(tx.db, request.run)?;
    if let Some(error) = new.reply.as_ref().and_then(|reply| unfit(&live, reply)) {
        let receipt = settle(tx, live, &request, submission, Err(error))?;
        return Ok(Submitted::Decided {
            receipt,
            repeated: false,
        });
    }
    if !validates(&live)? {
        let receipt = settle(tx, live, &request, submission, Ok(stored))?;
        return Ok(Submitted::Decided {
            receipt,
            repeated: false,
        });
    }
    live.event(tx, "node", "interaction.submitted", about(&live, None))?;
    live.save(tx, Bump::View)?;
    Ok(Submitted::Validating { submission })
}

fn repeated(row: &Row, hash: &str, new: &NewSubmission) -> Result<Submitted, StateError> {
    if row.hash != hash {
        let message = format!("the submission {:?} was made before with another value", new.key);
        return Ok(Submitted::Refused(refused(
            Outcome::Conflict,
            "identity_reused",
            message,
        )));
    }
    if row.validating {
        return Ok(Submitted::Validating { submission: row.id });
    }
    let receipt = row.receipt.as_deref().unwrap_or_default();
    Ok(Submitted::Decided {
        receipt: serde_json::from_str(receipt)?,
        repeated: true,
    })
}

fn known(db: &Connection, request: i64, key: &str) -> Result<Option<Row>, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT id, payload_hash, outcome = 'validating', receipt_json FROM interactive_submissions
          WHERE request = ?1 AND idempotency_key = ?2",
    )?;
    maybe(statement.query_row((request, key), |row| {
        Ok(Row {
            id: row.get(0)?,
            hash: row.get(1)?,
            validating: row.get(2)?,
            receipt: row.get(3)?,
        })
    }))
}

/// Whether a submission of the request is being validated.
pub(super) fn is_validating(db: &Connection, request: i64) -> Result<bool, StateError> {
    let mut statement =
        db.prepare_cached("SELECT 1 FROM interactive_submissions WHERE request = ?1 AND outcome = 'validating'")?;
    Ok(statement.exists([request])?)
}

fn validates(live: &Live) -> Result<bool, StateError> {
    let Some(current) = &live.current else { return Ok(false) };
    let node = live.graph.node_id(current.node)?;
    let node = live.graph.definition.node(node);
    Ok(node.is_some_and(|node| node.has_callback(VALIDATE)))
}

/// Why a visible reply cannot be the result.
fn unfit(live: &Live, reply: &Reply) -> Option<ErrorInfo> {
    let node = live.graph.node_id(live.current.as_ref()?.node).ok()?;
    let spec = &live.graph.definition.node(node)?.spec;
    let most = spec.expected_output.as_ref().and_then(super::max_chars);
    let (code, message) = match most {
        _ if reply.blank => (
            "emptyReply",
            format!("the reply to node {node:?} holds no visible text"),
        ),
        Some(most) if reply.chars > most => {
            let chars = reply.chars;
            (
                "replyTooLong",
                format!("the reply to node {node:?} has {chars} characters; at most {most} are allowed"),
            )
        }
        _ => return None,
    };
    Some(ErrorInfo {
        code: Some(code.to_owned()),
        message,
        stack: None,
    })
}

fn to_validate(tx: &mut Tx<'_>, submission: i64, global_dir: Option<String>) -> Result<Option<ToValidate>, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT request, payload_json, payload_blob FROM interactive_submissions WHERE id = ?1 AND outcome = 'validating'",
    )?;
    let row = maybe(statement.query_row([submission], |row| {
        Ok((row.get::<_, i64>(0)?, Stored::columns(row, 1)?))
    }))?;
    drop(statement);
    let Some((request, payload)) = row else { return Ok(None) };
    let request = load(tx.db, request)?;
    let live = tx.cache.take(tx.db, request.run)?;
    let Some(current) = live.current.clone() else {
        let text = format!("request {} has no open attempt", request.request_id);
        return Err(StateError::Inconsistent(text));
    };
    let state = execution::state(tx.db, &live)?;
    let state = match Prepared::json(&state)? {
        Prepared::Inline(text) => ValueRef::Inline(serde_json::from_str(&text)?),
        Prepared::Large { sha256, bytes } => {
            let blob = crate::content::insert(tx.db, &sha256, &bytes, value::JSON, tx.now)?;
            ValueRef::Content(crate::content::reference(tx.db, blob)?)
        }
        Prepared::Content(content) => ValueRef::Content(content),
    };
    let name = format!("validation {submission}");
    let to_validate = ToValidate {
        launch: queue::launch(tx, &live, 0, &name, global_dir)?,
        state,
        node_id: live.graph.node_id(current.node)?.to_owned(),
        visit: current.visit,
        attempt_id: current.id.as_str().to_owned(),
        submission: payload.to_ref(tx.db, INLINE)?,
    };
    tx.cache.put(live);
    Ok(Some(to_validate))
}

fn judged(
    tx: &mut Tx<'_>,
    submission: i64,
    output: Result<Prepared, ErrorInfo>,
) -> Result<InteractionReceipt, StateError> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT request, receipt_json FROM interactive_submissions WHERE id = ?1")?;
    let row = maybe(statement.query_row([submission], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?))
    }))?;
    drop(statement);
    let (request, receipt) = row.ok_or_else(|| StateError::Invalid(format!("no submission {submission}")))?;
    if let Some(receipt) = receipt {
        return Ok(serde_json::from_str(&receipt)?);
    }
    let request = load(tx.db, request)?;
    let output = match output {
        Ok(output) => Ok(output.store(tx.db, tx.now)?),
        Err(error) => Err(error),
    };
    let live = tx.cache.take(tx.db, request.run)?;
    settle(tx, live, &request, submission, output)
}

/// Writes the outcome of a stored submission of a pending request.
fn settle(
    tx: &mut Tx<'_>,
    mut live: Live,
    request: &Request,
    submission: i64,
    output: Result<Stored, ErrorInfo>,
) -> Result<InteractionReceipt, StateError> {
    let execution = u64::from(output.is_ok());
    let mut receipt = InteractionReceipt {
        request_id: request.request_id.clone(),
        run_id: live.run_id.to_string(),
        decision: if output.is_ok() { "accepted" } else { "rejected" }.to_owned(),
        error: None,
        run_revision: live.revision + execution,
    };
    match output {
        Ok(output) => {
            write_outcome(tx, submission, &receipt, &output)?;
            decide(tx, &mut live, request, Decided::Accepted { submission })?;
            live.save(tx, Bump::Execution)?;
        }
        Err(error) => {
            receipt.error = Some(error);
            write_outcome(tx, submission, &receipt, &Stored::default())?;
            live.event(tx, "node", "interaction.rejected", about(&live, None))?;
            live.save(tx, Bump::View)?;
        }
    }
    Ok(receipt)
}

fn write_outcome(
    tx: &Tx<'_>,
    submission: i64,
    receipt: &InteractionReceipt,
    output: &Stored,
) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "UPDATE interactive_submissions SET outcome = :outcome, receipt_json = :receipt, output_json = :json,
               output_blob = :blob, settled_at = :now WHERE id = :id AND outcome = 'validating'",
        )?
        .execute(named_params! {
            ":outcome": receipt.decision, ":receipt": serde_json::to_string(receipt)?, ":json": output.json,
            ":blob": output.blob, ":now": tx.now, ":id": submission,
        })?;
    Ok(())
}

/// The request was decided without the submission that is being validated: that one is rejected.
pub(super) fn withdraw(tx: &Tx<'_>, request: &Request, live: &Live, how: &str) -> Result<(), StateError> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT id FROM interactive_submissions WHERE request = ?1 AND outcome = 'validating'")?;
    let Some(submission) = maybe(statement.query_row([request.id], |row| row.get::<_, i64>(0)))? else {
        return Ok(());
    };
    let receipt = InteractionReceipt {
        request_id: request.request_id.clone(),
        run_id: live.run_id.to_string(),
        decision: "rejected".to_owned(),
        error: Some(ErrorInfo {
            code: Some("requestSettled".to_owned()),
            message: format!(
                "the request became {} while the submission was validated",
                how.replace('_', " ")
            ),
            stack: None,
        }),
        run_revision: live.revision + 1,
    };
    write_outcome(tx, submission, &receipt, &Stored::default())
}

fn publish(tx: &mut Tx<'_>, request: &Request, update: &Update) -> Result<Decision<InteractionReceipt>, StateError> {
    let refuse = |refused: Refused| Decision::Refuse {
        run: Some(request.run),
        outcome: refused.outcome,
        error: refused.error,
    };
    if let Err(refused) = open(tx, request)? {
        return Ok(refuse(refused));
    }
    let live = tx.cache.take(tx.db, request.run)?;
    let run_id = live.run_id.to_string();
    let published = updates::publish(tx, live, Some(&request.request_id), std::slice::from_ref(update))?;
    Ok(match published {
        child::Decided::Accepted { revision, .. } => Decision::Accept {
            run: Some(request.run),
            revision: Some(revision),
            receipt: InteractionReceipt {
                request_id: request.request_id.clone(),
                run_id,
                decision: "accepted".to_owned(),
                error: None,
                run_revision: revision,
            },
        },
        child::Decided::Rejected { message, .. } => refuse(refused(Outcome::Rejected, "update_refused", message)),
        child::Decided::NeedsValue(_) => {
            return Err(StateError::Inconsistent("an update names no content".to_owned()));
        }
    })
}
