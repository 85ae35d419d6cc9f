//! Protected decisions: opened with the checkpoint that asks, answered once by a person or by the declared policy, and held while
//! their run is paused.

use std::time::Duration;

use piw_engine::decision;
use piw_engine::lifecycle;
use piw_protocol::envelope::Outcome;
use piw_protocol::interaction::{MessageContent, MessageKind};
use piw_protocol::ops::RunReceipt;
use rusqlite::{Connection, named_params};
use serde_json::{Map, Value, json};

use crate::cache::Live;
use crate::command::{self, RunReceipted};
use crate::error::StateError;
use crate::ids::{AttemptKey, RunKey};
use crate::live::About;
use crate::message::{self, NewMessage, SessionFence};
use crate::receipts::{CommandIdentity, Decision, error, receipted};
use crate::state::State;
use crate::value::{Prepared, Stored, maybe};
use crate::writer::{Authority, Tx};

/// Schema of the hidden details of a decision message.
const DETAILS_SCHEMA: &str = "pi-workflows.decision-message.v1";
/// Where an answer of the policy comes from.
const TIMEOUT: &str = "timeout";

/// A person's answer.
#[derive(Debug, Clone)]
pub struct PersonsAnswer {
    /// The decision.
    pub request_id: String,
    /// Digest of what the person saw.
    pub digest: String,
    /// The choice.
    pub choice: String,
    /// The text that was added.
    pub input: Option<String>,
    /// Proof of the session in which it was given; absent from a terminal.
    pub fence: Option<SessionFence>,
    /// Where it came from, for the audit.
    pub source: String,
}

struct Row {
    id: i64,
    run: RunKey,
    attempt: AttemptKey,
    digest: String,
    pending: bool,
    deadline: Option<i64>,
}

const COLUMNS: &str = "SELECT id, run, attempt, digest, status = 'pending', deadline_at FROM human_decisions";

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        id: row.get(0)?,
        run: row.get(1)?,
        attempt: row.get(2)?,
        digest: row.get(3)?,
        pending: row.get(4)?,
        deadline: row.get(5)?,
    })
}

/// Whether a run waits for a protected decision.
pub(crate) fn is_pending(db: &Connection, run: RunKey) -> Result<bool, StateError> {
    let mut statement = db.prepare_cached("SELECT 1 FROM human_decisions WHERE run = ?1 AND status = 'pending'")?;
    Ok(statement.exists([run])?)
}

/// Opens the decision of a finished checkpoint, whose output is `request`. The inner error says why it is none.
pub(crate) fn open(
    tx: &mut Tx<'_>,
    live: &mut Live,
    attempt: AttemptKey,
    attempt_id: &str,
    request: &Value,
) -> Result<(), StateError> {
    let deadline =
        decision::on_timeout(request).map(|(after, _)| tx.now + i64::try_from(after).unwrap_or(i64::MAX / 2));
    let policy = json!({ "audience": request["audience"], "choices": request["choices"], "onTimeout": request.get("onTimeout") });
    tx.db
        .prepare_cached(
            "INSERT INTO human_decisions (decision_id, run, attempt, digest, policy_json, status, deadline_at, created_at)
             VALUES (:id, :run, :attempt, :digest, :policy, 'pending', :deadline, :now)",
        )?
        .execute(named_params! {
            ":id": attempt_id, ":run": live.key, ":attempt": attempt, ":digest": decision::digest(request),
            ":policy": policy.to_string(), ":deadline": deadline, ":now": tx.now,
        })?;
    tx.changes.deadlines |= deadline.is_some();
    if let Some(session) = message::session_of(tx, live.key)? {
        let content = MessageContent {
            custom_type: MessageKind::Decision.custom_type().to_owned(),
            content: decision::text(request),
            display: true,
            details: json!({
                "schema": DETAILS_SCHEMA, "requestId": attempt_id, "digest": decision::digest(request), "request": request,
            }),
        };
        message::insert(
            tx,
            NewMessage {
                session: &session,
                run: live.key,
                kind: MessageKind::Decision,
                reason: None,
                source_id: attempt_id,
                request: None,
                content,
            },
        )?;
    }
    let about = About {
        node: live.last_node,
        attempt: Some(attempt),
        payload: None,
    };
    live.event(tx, "node", "decision.requested", about)
}

/// The run ends: nobody is asked any longer.
pub(crate) fn close(tx: &Tx<'_>, run: RunKey) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "UPDATE human_decisions SET status = 'cancelled', settled_at = ?2 WHERE run = ?1 AND status = 'pending'",
        )?
        .execute((run, tx.now))?;
    Ok(())
}

/// The run is about to be resumed: the time for which it was paused does not count.
pub(crate) fn release(tx: &mut Tx<'_>, run: RunKey) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "UPDATE human_decisions SET held_ms = held_ms + (?2 - r.paused_at), deadline_at = deadline_at + (?2 - r.paused_at)
               FROM runs r WHERE r.id = ?1 AND r.paused_at IS NOT NULL AND human_decisions.run = ?1
                AND human_decisions.status = 'pending'",
        )?
        .execute((run, tx.now))?;
    tx.changes.deadlines = true;
    Ok(())
}

impl State {
    /// Answers a protected decision. The first valid answer wins; one after the deadline loses, whether or not the policy was
    /// applied yet. The receipt names the continuation as the new run.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn answer_decision(
        &self,
        identity: CommandIdentity,
        answer: PersonsAnswer,
    ) -> Result<RunReceipted, StateError> {
        self.write("answer_decision", Authority::Server, move |tx| {
            receipted(tx, &identity, |tx| by_person(tx, &answer))
        })
        .await
    }
}

fn refuse(row: &Row, outcome: Outcome, reason: &str, message: String) -> Decision<RunReceipt> {
    Decision::refuse(row.run, outcome, reason, message)
}

fn by_person(tx: &mut Tx<'_>, answer: &PersonsAnswer) -> Result<Decision<RunReceipt>, StateError> {
    let mut statement = tx.db.prepare_cached(&format!("{COLUMNS} WHERE decision_id = ?1"))?;
    let row = maybe(statement.query_row([&answer.request_id], read))?;
    drop(statement);
    let Some(row) = row else {
        return Ok(Decision::Refuse {
            run: None,
            outcome: Outcome::NotFound,
            error: error("request_not_found", format!("no decision {}", answer.request_id)),
        });
    };
    if let Some(fence) = &answer.fence {
        let session = message::session_of(tx, row.run)?;
        if !fence.holds() || session.as_deref() != Some(fence.session()) {
            let message = format!("decision {} is not asked in this session now", answer.request_id);
            return Ok(refuse(&row, Outcome::Rejected, "session_not_bound", message));
        }
    }
    if !row.pending {
        let message = format!("decision {} is settled", answer.request_id);
        return Ok(refuse(&row, Outcome::Rejected, "request_settled", message));
    }
    let live = tx.cache.take(tx.db, row.run)?;
    if let Err(refusal) = lifecycle::check_decision(&command::facts(tx, &live)?) {
        let message = format!("run {}: {refusal}", live.run_id);
        tx.cache.put(live);
        return Ok(refuse(&row, Outcome::Rejected, command::reason(&refusal), message));
    }
    if answer.digest != row.digest {
        tx.cache.put(live);
        let message = format!(
            "what is asked is {}, and the answer is to {}",
            row.digest, answer.digest
        );
        return Ok(refuse(&row, Outcome::Conflict, "digest_changed", message));
    }
    let request = request_of(tx.db, row.attempt)?;
    let input = answer.input.as_deref();
    if row.deadline.is_some_and(|deadline| tx.now >= deadline) {
        submission(tx, &row, &answer.choice, input, &answer.source, "late")?;
        tx.cache.put(live);
        let message = format!(
            "decision {} was to be answered before; its declared response counts",
            answer.request_id
        );
        tx.changes.deadlines = true;
        return Ok(refuse(&row, Outcome::Rejected, "decision_late", message));
    }
    match decision::answer(&request, &answer.choice, input) {
        Ok(output) => {
            let submission = submission(tx, &row, &answer.choice, input, &answer.source, "accepted")?;
            resolve(tx, live, &row, Some(submission), &output, &answer.source)
        }
        Err(why) => {
            submission(tx, &row, &answer.choice, input, &answer.source, "rejected")?;
            tx.cache.put(live);
            Ok(refuse(&row, Outcome::Rejected, "answer_refused", why))
        }
    }
}

/// What the person was shown: the output of the checkpoint's attempt.
fn request_of(db: &Connection, attempt: AttemptKey) -> Result<Value, StateError> {
    let mut statement = db.prepare_cached("SELECT output_json, output_blob FROM node_attempts WHERE id = ?1")?;
    let stored = statement.query_row([attempt], |row| Stored::columns(row, 0))?;
    Ok(match (&stored.json, stored.blob) {
        (Some(json), _) => serde_json::from_str(json)?,
        (None, Some(blob)) => serde_json::from_slice(&crate::content::read_all(db, blob)?)?,
        (None, None) => Value::Null,
    })
}

fn submission(
    tx: &Tx<'_>,
    row: &Row,
    choice: &str,
    input: Option<&str>,
    source: &str,
    outcome: &str,
) -> Result<i64, StateError> {
    tx.db
        .prepare_cached(
            "INSERT INTO human_decision_submissions (decision, choice, input_json, source, outcome, submitted_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute((row.id, choice, input_json(input), source, outcome, tx.now))?;
    Ok(tx.db.last_insert_rowid())
}

fn input_json(input: Option<&str>) -> Option<String> {
    input.map(|input| Value::String(input.to_owned()).to_string())
}

/// Resolves a pending decision: the parent is settled and its continuation goes on with the answer, all at once.
fn resolve(
    tx: &mut Tx<'_>,
    mut live: Live,
    row: &Row,
    submission: Option<i64>,
    output: &Value,
    source: &str,
) -> Result<Decision<RunReceipt>, StateError> {
    let choice = output["choice"].as_str().unwrap_or_default().to_owned();
    tx.db
        .prepare_cached("UPDATE human_decisions SET status = 'resolved', settled_at = ?2 WHERE id = ?1")?
        .execute((row.id, tx.now))?;
    tx.db
        .prepare_cached(
            "INSERT INTO human_decision_resolutions (decision, submission, choice, input_json, resolved_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((row.id, submission, &choice, input_json(output[decision::INPUT].as_str()), tx.now))?;
    let mut payload = Map::new();
    payload.insert("choice".to_owned(), json!(choice));
    payload.insert("source".to_owned(), json!(source));
    let payload = Value::Object(payload).to_string();
    let about = About {
        node: live.last_node,
        attempt: Some(row.attempt),
        payload: Some(&payload),
    };
    live.event(tx, "command", "decision.resolved", about)?;
    command::continue_from(tx, live, row.attempt, Prepared::json(output)?, source)
}

/// Applies the declared response of every decision whose deadline passed. Returns how long the next one has left.
pub(crate) fn expire(tx: &mut Tx<'_>) -> Result<Option<Duration>, StateError> {
    let mut statement = tx.db.prepare_cached(&format!(
        "{COLUMNS} WHERE status = 'pending' AND deadline_at <= ?1
           AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = run AND r.paused_at IS NOT NULL)"
    ))?;
    let due: Vec<Row> = statement.query_map([tx.now], read)?.collect::<Result<_, _>>()?;
    drop(statement);
    for row in due {
        let request = request_of(tx.db, row.attempt)?;
        let Some((_, response)) = decision::on_timeout(&request) else {
            return Err(StateError::Inconsistent(format!(
                "decision {} has a deadline and no response",
                row.id
            )));
        };
        let live = tx.cache.take(tx.db, row.run)?;
        if let Err(refusal) = lifecycle::check_decision(&command::facts(tx, &live)?) {
            // What may have happened before the question comes first: the review, then the declared response.
            tracing::debug!(run_id = %live.run_id, %refusal, "a decision's deadline passed and waits");
            tx.cache.put(live);
            continue;
        }
        resolve(tx, live, &row, None, response, TIMEOUT)?;
    }
    let mut statement = tx.db.prepare_cached(
        "SELECT min(d.deadline_at) FROM human_decisions d JOIN runs r ON r.id = d.run
          WHERE d.status = 'pending' AND d.deadline_at > ?1 AND r.paused_at IS NULL",
    )?;
    let next: Option<i64> = statement.query_row([tx.now], |row| row.get(0))?;
    Ok(next.map(|at| Duration::from_millis(u64::try_from(at - tx.now).unwrap_or(0))))
}

/// Whether some pending decision has a deadline.
pub(crate) const HAS_DEADLINE: &str =
    "SELECT 1 FROM human_decisions WHERE status = 'pending' AND deadline_at IS NOT NULL";
