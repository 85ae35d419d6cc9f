//! Messages from a runner. Each is checked for its claim before its payload is looked at, decided in one transaction with its
//! stored reply, and answered after the commit.

mod process;
mod step;

use std::sync::Arc;

use base64::Engine;
use piw_engine::effect::Interruption;
use piw_engine::failure::ParkReason;
use piw_protocol::canonical;
use piw_protocol::child::{
    ChildBody, ChildMessage, ContentChunkReply, ContentRef, REPLY_SCHEMA, ReplyOutcome, ReplyPayload, ServerReply,
};
use piw_protocol::run::ErrorInfo;
use rusqlite::Connection;
use serde_json::Value;

use crate::cache::Live;
use crate::content::PutChunk;
use crate::effects;
use crate::error::StateError;
use crate::live::{About, Bump, Park};
use crate::queue::{Claim, renew};
use crate::runner;
use crate::state::State;
use crate::updates;
use crate::value::{self, Prepared, maybe};
use crate::writer::{Authority, Tx};

/// Replies that are kept for the current runner of a run.
const KEPT_REPLIES: u32 = 32;
/// Largest command that travels inside a reply frame; a larger one becomes content.
const INLINE_COMMAND: usize = 768 * 1024;

/// What a message did, before it is a reply.
pub(crate) enum Decided {
    /// Facts were written; the revision to report.
    Accepted {
        revision: u64,
        payload: Option<ReplyPayload>,
    },
    /// Refused; nothing was written.
    Rejected { code: &'static str, message: String },
    /// A value decides and must be loaded first.
    NeedsValue(ContentRef),
}

/// Values of a message that were loaded on the caller's side because they decide a route.
pub(crate) type Loaded = Vec<(String, Arc<Value>)>;

/// What a message answers, or which value it needs.
enum Answer {
    Reply(ServerReply),
    Needs(ContentRef),
}

impl State {
    /// Decides one message of a runner. The reply says whether it was accepted, adopted from an earlier delivery, refused, or
    /// whether the claim is lost and the runner must exit.
    ///
    /// # Errors
    /// When the database fails or this server is fenced; then nothing was written.
    pub async fn apply_child(&self, claim: &Claim, message: ChildMessage) -> Result<ServerReply, StateError> {
        if message.run_id != *claim.run_id
            || message.generation != claim.generation
            || message.runner_epoch != *claim.runner_epoch
        {
            return Ok(claim_lost(
                &message.message_id,
                "the message names another run, generation or launch",
            ));
        }
        match message.body {
            ChildBody::ContentPut { .. } => return self.child_put(claim, message).await,
            ChildBody::ContentGet { ref sha256, offset } => {
                return self.child_get(&message.message_id, sha256, offset).await;
            }
            // Nothing of these is stored: the server passes the text on and watches the process.
            ChildBody::Progress { .. } | ChildBody::Exiting { .. } => {
                return Ok(reply(&message.message_id, ReplyOutcome::Accepted, None, None));
            }
            _ => {}
        }
        let id = message.message_id.clone();
        match self.apply_stored(claim, message).await {
            Err(StateError::Invalid(text)) => Ok(rejected(&id, "invalid", text)),
            decided => decided,
        }
    }

    /// Answers one message of a validator: content in both directions, and nothing that changes a run.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn answer_validator(&self, message: ChildMessage) -> Result<ServerReply, StateError> {
        let id = message.message_id.clone();
        match message.body {
            ChildBody::ContentPut {
                content,
                offset,
                data,
                complete,
            } => {
                let owner = upload_owner(&message.runner_epoch);
                self.put_chunk(&id, owner, content, offset, &data, complete).await
            }
            ChildBody::ContentGet { sha256, offset } => self.child_get(&id, &sha256, offset).await,
            ChildBody::Progress { .. } | ChildBody::ValidationFinished(_) | ChildBody::Exiting { .. } => {
                Ok(reply(&id, ReplyOutcome::Accepted, None, None))
            }
            _ => Ok(rejected(&id, "role", "a validator only judges a submission".to_owned())),
        }
    }

    async fn apply_stored(&self, claim: &Claim, message: ChildMessage) -> Result<ServerReply, StateError> {
        let message = Arc::new(message);
        let mut loaded = Loaded::new();
        // A message needs at most two loaded values: its output and the value of an exit.
        for _ in 0..4 {
            let prepared = step::Prepared::of(&message.body)?;
            let (claim, sent, values) = (claim.clone(), Arc::clone(&message), loaded.clone());
            let answer = self
                .write("apply_child", Authority::Server, move |tx| {
                    apply(tx, &claim, &sent, prepared, &values)
                })
                .await?;
            match answer {
                Answer::Reply(reply) => return Ok(reply),
                Answer::Needs(content) => {
                    let digest = content.sha256.clone();
                    let value = self.read(move |db| value::load(db, &content)).await?;
                    let value = value.ok_or_else(|| {
                        StateError::Invalid(format!("content {digest} is not stored JSON; upload it first"))
                    });
                    match value {
                        Ok(value) => loaded.push((digest, Arc::new(value))),
                        Err(error) => return Ok(rejected(&message.message_id, "content_missing", error.to_string())),
                    }
                }
            }
        }
        Err(StateError::Inconsistent(format!(
            "message {} needs more values than it has",
            message.message_id
        )))
    }

    async fn child_put(&self, claim: &Claim, message: ChildMessage) -> Result<ServerReply, StateError> {
        let id = message.message_id;
        let ChildBody::ContentPut {
            content,
            offset,
            data,
            complete,
        } = message.body
        else {
            return Err(StateError::Inconsistent("not a content message".to_owned()));
        };
        let check = claim.clone();
        if let Err(lost) = self
            .write("renew", Authority::Server, move |tx| renew(tx, &check))
            .await?
        {
            return Ok(claim_lost(&id, &lost.to_string()));
        }
        let owner = upload_owner(&claim.runner_epoch);
        self.put_chunk(&id, owner, content, offset, &data, complete).await
    }

    async fn put_chunk(
        &self,
        id: &str,
        owner: String,
        content: ContentRef,
        offset: u64,
        data: &str,
        complete: bool,
    ) -> Result<ServerReply, StateError> {
        let Ok(data) = base64::engine::general_purpose::STANDARD.decode(data) else {
            return Ok(rejected(id, "content_base64", "the chunk is not base64".to_owned()));
        };
        let chunk = PutChunk {
            owner,
            content,
            offset,
            data,
            complete,
        };
        Ok(match self.put_content(chunk).await? {
            Ok(_) => reply(id, ReplyOutcome::Accepted, None, None),
            Err(error) => rejected(id, "content_refused", error.to_string()),
        })
    }

    async fn child_get(&self, id: &str, sha256: &str, offset: u64) -> Result<ServerReply, StateError> {
        let chunk = match self.get_content(sha256, offset).await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                return Ok(rejected(
                    id,
                    "content_missing",
                    format!("content {sha256} is not stored"),
                ));
            }
            Err(StateError::Invalid(text)) => return Ok(rejected(id, "content_range", text)),
            Err(error) => return Err(error),
        };
        let payload = ContentChunkReply {
            bytes: chunk.bytes,
            offset: chunk.offset,
            data: base64::engine::general_purpose::STANDARD.encode(&chunk.data),
            complete: chunk.complete,
        };
        Ok(reply(
            id,
            ReplyOutcome::Accepted,
            None,
            Some(ReplyPayload::Content(payload)),
        ))
    }
}

/// Applies one message inside an open transaction, without the writer thread: for measuring.
#[cfg(feature = "bench")]
pub(crate) fn apply_alone(tx: &mut Tx<'_>, claim: &Claim, message: &ChildMessage) -> Result<ServerReply, StateError> {
    let prepared = step::Prepared::of(&message.body)?;
    match apply(tx, claim, message, prepared, &Loaded::new())? {
        Answer::Reply(reply) => Ok(reply),
        Answer::Needs(content) => Err(StateError::Invalid(format!("content {} is needed", content.sha256))),
    }
}

fn apply(
    tx: &mut Tx<'_>,
    claim: &Claim,
    message: &ChildMessage,
    prepared: step::Prepared,
    loaded: &Loaded,
) -> Result<Answer, StateError> {
    if let ChildBody::ProcessUnregister { pid, start_identity } = &message.body {
        // Valid after a terminal state released the claim, so that clean-up can finish.
        process::unregister(tx, claim.run, *pid, start_identity)?;
        return Ok(Answer::Reply(reply(
            &message.message_id,
            ReplyOutcome::Accepted,
            None,
            None,
        )));
    }
    if let Some(stored) = stored_reply(tx.db, claim, &message.message_id)? {
        return Ok(Answer::Reply(stored));
    }
    if let Err(lost) = renew(tx, claim)? {
        tracing::info!(run = %claim.run_id, generation = claim.generation, reason = %lost, "claim lost");
        return Ok(Answer::Reply(claim_lost(&message.message_id, &lost.to_string())));
    }
    let mut live = tx.cache.take(tx.db, claim.run)?;
    if let Some(expected) = message.expected_revision
        && message.body.changes_run()
        && expected != live.revision
    {
        let text = format!("the run is at revision {}, not {expected}", live.revision);
        tx.cache.put(live);
        return Ok(Answer::Reply(rejected(&message.message_id, "stale_revision", text)));
    }
    live.message_slot = live.message_slot % KEPT_REPLIES + 1;
    let slot = live.message_slot;
    match decide(tx, live, claim, message, prepared, loaded)? {
        Decided::NeedsValue(content) => Ok(Answer::Needs(content)),
        Decided::Rejected { code, message: text } => Ok(Answer::Reply(rejected(&message.message_id, code, text))),
        Decided::Accepted { revision, payload } => {
            let reply = reply(&message.message_id, ReplyOutcome::Accepted, Some(revision), payload);
            store_reply(tx, claim, slot, &reply)?;
            Ok(Answer::Reply(reply))
        }
    }
}

fn decide(
    tx: &mut Tx<'_>,
    live: Live,
    claim: &Claim,
    message: &ChildMessage,
    prepared: step::Prepared,
    loaded: &Loaded,
) -> Result<Decided, StateError> {
    match &message.body {
        ChildBody::Ready { definition_digest } => ready(tx, live, claim, definition_digest),
        ChildBody::NodeStarted(start) => step::started(tx, live, claim, start, prepared, loaded),
        ChildBody::NodeFinished(finish) | ChildBody::NodeFailed(finish) => {
            step::finished(tx, live, claim, finish, prepared, loaded)
        }
        ChildBody::RunFinished(finish) => step::run_finished(tx, live, finish, prepared, loaded),
        ChildBody::RunParked { reason, message } => parked(tx, live, reason, message),
        ChildBody::NodePrompted { .. } => step::prompted(tx, live, message.attempt_id.as_deref(), prepared),
        ChildBody::InteractionRequested { .. } => step::requested(tx, live, message.attempt_id.as_deref(), prepared),
        ChildBody::NodeUpdate { updates } => updates::publish(tx, live, message.attempt_id.as_deref(), updates),
        ChildBody::Notification {
            kind,
            message: text,
            index,
        } => updates::notify(
            tx,
            live,
            &updates::Notification {
                kind,
                text,
                index: *index,
            },
        ),
        ChildBody::EffectReserve {
            key,
            effect_type,
            kind,
            fingerprint,
        } => {
            let request = effects::Request {
                key,
                effect_type,
                kind: *kind,
                fingerprint,
            };
            reserve(tx, live, claim, &request)
        }
        ChildBody::EffectSettle { key, outcome, result } => {
            let result = result.as_ref().map(Prepared::value).transpose()?;
            let mut live = live;
            match effects::settle(tx, &mut live, key, *outcome, result)? {
                Ok(()) => accept(tx, live, Bump::View),
                Err(refused) => Ok(refuse(tx, live, refused.reason, refused.message)),
            }
        }
        ChildBody::ProcessRegister {
            pid,
            start_identity,
            label,
        } => {
            process::register(tx, &live, claim.generation, *pid, start_identity, label)?;
            accept_unchanged(tx, live)
        }
        ChildBody::Progress { .. } | ChildBody::Exiting { .. } => accept_unchanged(tx, live),
        ChildBody::ValidationFinished(_) => {
            let text = "only a validator says what it found".to_owned();
            Ok(refuse(tx, live, "role", text))
        }
        ChildBody::ProcessUnregister { .. } | ChildBody::ContentPut { .. } | ChildBody::ContentGet { .. } => Err(
            StateError::Inconsistent("a message without a transaction reached one".to_owned()),
        ),
    }
}

fn ready(tx: &mut Tx<'_>, mut live: Live, claim: &Claim, digest: &str) -> Result<Decided, StateError> {
    if digest != live.graph.definition.digest() {
        let text = format!(
            "the loaded definition is {digest}, the run's is {}",
            live.graph.definition.digest()
        );
        return Ok(refuse(tx, live, "definition_digest", text));
    }
    let command = runner::ready(tx, &mut live, claim)?;
    let bytes = canonical::to_vec(&command).map_err(|error| StateError::Inconsistent(error.to_string()))?;
    let payload = if bytes.len() > INLINE_COMMAND {
        let digest = crate::hash::sha256(&bytes);
        let blob = crate::content::insert(tx.db, &digest, &bytes, value::JSON, tx.now)?;
        ReplyPayload::CommandContent(crate::content::reference(tx.db, blob)?)
    } else {
        ReplyPayload::Command(Box::new(command))
    };
    let revision = live.save(tx, Bump::View)?;
    Ok(Decided::Accepted {
        revision,
        payload: Some(payload),
    })
}

fn reserve(
    tx: &mut Tx<'_>,
    mut live: Live,
    claim: &Claim,
    request: &effects::Request<'_>,
) -> Result<Decided, StateError> {
    match effects::reserve(tx, &mut live, request, claim.generation)? {
        Ok(reservation) => {
            let revision = live.save(tx, Bump::View)?;
            Ok(Decided::Accepted {
                revision,
                payload: Some(ReplyPayload::Effect(reservation)),
            })
        }
        Err(refused) => Ok(refuse(tx, live, refused.reason, refused.message)),
    }
}

/// The runner stops at a durable boundary by itself: the run waits for a person.
fn parked(tx: &mut Tx<'_>, mut live: Live, reason: &str, message: &str) -> Result<Decided, StateError> {
    let reason: ParkReason = match reason.parse() {
        Ok(reason) => reason,
        Err(error) => return Ok(refuse(tx, live, "park_reason", format!("{error}"))),
    };
    live.drop_attempt(tx, "interrupted")?;
    effects::interrupt(tx, &mut live, Interruption::Killed)?;
    live.park(
        tx,
        &Park {
            claimable: false,
            reason: Some(reason.as_str()),
            detail: Some(message),
        },
    )?;
    runner::next_action(tx, &live)?;
    runner::set_failure_class(tx, &live, reason)?;
    let payload = canonical::write_value(&serde_json::json!({ "reason": reason.as_str() }));
    live.event(
        tx,
        "run",
        "run.parked",
        About {
            payload: std::str::from_utf8(&payload).ok(),
            ..About::default()
        },
    )?;
    accept(tx, live, Bump::Execution)
}

/// Accepts a message whose facts are written.
pub(crate) fn accept(tx: &mut Tx<'_>, live: Live, bump: Bump) -> Result<Decided, StateError> {
    Ok(Decided::Accepted {
        revision: live.save(tx, bump)?,
        payload: None,
    })
}

/// Accepts a message that no view shows.
fn accept_unchanged(tx: &mut Tx<'_>, live: Live) -> Result<Decided, StateError> {
    let revision = live.revision;
    tx.cache.put(live);
    Ok(Decided::Accepted {
        revision,
        payload: None,
    })
}

/// Refuses a message and gives the unchanged run back.
pub(crate) fn refuse(tx: &mut Tx<'_>, live: Live, code: &'static str, message: String) -> Decided {
    tx.cache.put(live);
    Decided::Rejected { code, message }
}

fn stored_reply(db: &Connection, claim: &Claim, message_id: &str) -> Result<Option<ServerReply>, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT reply_json FROM runner_messages WHERE run = ?1 AND generation = ?2 AND message_id = ?3",
    )?;
    let stored: Option<String> =
        maybe(statement.query_row((claim.run, claim.generation, message_id), |row| row.get(0)))?;
    let Some(stored) = stored else { return Ok(None) };
    let (revision, payload): (u64, Option<ReplyPayload>) = serde_json::from_str(&stored)?;
    Ok(Some(reply(message_id, ReplyOutcome::Adopted, Some(revision), payload)))
}

fn store_reply(tx: &Tx<'_>, claim: &Claim, slot: u32, reply: &ServerReply) -> Result<(), StateError> {
    let stored = serde_json::to_string(&(reply.revision.unwrap_or(0), &reply.payload))?;
    let mut statement = tx.db.prepare_cached(
        "INSERT INTO runner_messages (run, slot, message_id, generation, reply_json) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (run, slot) DO UPDATE SET message_id = ?3, generation = ?4, reply_json = ?5",
    )?;
    statement.execute((claim.run, slot, &reply.message_id, claim.generation, stored))?;
    Ok(())
}

/// Owner of the uploads of a runner.
pub(crate) fn upload_owner(runner_epoch: &str) -> String {
    format!("runner {runner_epoch}")
}

fn reply(id: &str, outcome: ReplyOutcome, revision: Option<u64>, payload: Option<ReplyPayload>) -> ServerReply {
    ServerReply {
        schema: REPLY_SCHEMA.to_owned(),
        message_id: id.to_owned(),
        outcome,
        revision,
        payload,
        error: None,
    }
}

fn rejected(id: &str, code: &str, message: String) -> ServerReply {
    let error = Some(ErrorInfo {
        code: Some(code.to_owned()),
        message,
        stack: None,
    });
    ServerReply {
        error,
        ..reply(id, ReplyOutcome::Rejected, None, None)
    }
}

fn claim_lost(id: &str, reason: &str) -> ServerReply {
    let error = Some(ErrorInfo {
        code: Some("claimLost".to_owned()),
        message: reason.to_owned(),
        stack: None,
    });
    ServerReply {
        error,
        ..reply(id, ReplyOutcome::ClaimLost, None, None)
    }
}
