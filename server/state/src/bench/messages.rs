//! A session with a long history of messages, written as the product writes them.

use std::path::Path;

use piw_protocol::interaction::{MessageContent, MessageKind};
use serde_json::json;
use uuid::Uuid;

use super::{Script, command, new_run, one_node, take_epoch};
use crate::command::NewRun;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::message::{self, NewMessage};
use crate::state::{State, StateOptions};
use crate::writer::{Authority, Tx};

/// Messages of one transaction.
const BATCH: u64 = 1000;
/// Bytes of a small message.
const SMALL: usize = 1024;
/// Bytes of a large message.
const LARGE: usize = 300 * 1024;

/// A session with its history.
#[derive(Debug)]
pub struct History {
    /// The open database.
    pub state: State,
    /// The session.
    pub session: String,
    run: RunKey,
}

/// Stores a run that is bound to a session and executes, and its delivered messages: `small` of 1 KiB and `large` of 300 KiB, the
/// large ones spread among the others. Nothing is synced on the way.
///
/// # Errors
/// When the database cannot be written.
pub async fn session_history(dir: &Path, small: u64, large: u64) -> Result<History, StateError> {
    let state = State::open(StateOptions::new(dir)).map_err(|error| StateError::Io(error.to_string()))?;
    take_epoch(&state).await?;
    state
        .between(|db| Ok(db.pragma_update(None, "synchronous", "OFF")?))
        .await?;
    let session = "bench-session".to_owned();
    let new = NewRun {
        session_id: Some(session.clone()),
        ..new_run(&one_node(), None)?
    };
    state.start_run(command(&Uuid::now_v7().to_string()), new).await?;
    let claimed = state
        .claim_next(None)
        .await?
        .ok_or_else(|| StateError::Invalid("nothing to claim".to_owned()))?;
    let run = claimed.claim.run;
    let mut script = Script::new(claimed.claim);
    let reply = state.apply_child(&script.claim, script.begin("only")).await?;
    script.take(&reply)?;
    let history = History { state, session, run };
    let every = (small / large.max(1)).max(1);
    for begin in (0..small).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        let end = (begin + BATCH).min(small);
        history
            .write(move |tx, session, run| {
                for number in begin..end {
                    if number % every == 0 && number / every < large {
                        store(tx, session, run, LARGE)?;
                    }
                    store(tx, session, run, SMALL)?;
                }
                deliver(tx, session)
            })
            .await?;
    }
    history
        .state
        .between(|db| Ok(db.pragma_update(None, "synchronous", "FULL")?))
        .await?;
    Ok(history)
}

impl History {
    /// Delivers what is pending and stores one more message.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn change(&self, large: bool) -> Result<(), StateError> {
        self.write(move |tx, session, run| {
            deliver(tx, session)?;
            store(tx, session, run, if large { LARGE } else { SMALL })
        })
        .await
    }

    async fn write(
        &self,
        work: impl FnOnce(&mut Tx<'_>, &str, RunKey) -> Result<(), StateError> + Send + 'static,
    ) -> Result<(), StateError> {
        let (session, run) = (self.session.clone(), self.run);
        self.state
            .write("bench_messages", Authority::Server, move |tx| work(tx, &session, run))
            .await
    }
}

fn store(tx: &mut Tx<'_>, session: &str, run: RunKey, bytes: usize) -> Result<(), StateError> {
    let content = MessageContent {
        custom_type: MessageKind::Notification.custom_type().to_owned(),
        content: "x".repeat(bytes),
        display: true,
        details: json!({}),
    };
    let message = NewMessage {
        session,
        run,
        kind: MessageKind::Notification,
        reason: None,
        source_id: "bench",
        request: None,
        content,
    };
    message::insert(tx, message).map(|_| ())
}

/// Marks what is pending as a branch report does.
fn deliver(tx: &mut Tx<'_>, session: &str) -> Result<(), StateError> {
    tx.db.execute(
        "UPDATE workflow_messages SET state = 'sent', open = 0, pi_entry_id = message_id
          WHERE target_session = ?1 AND open = 1 AND state = 'pending'",
        [session],
    )?;
    message::touch(tx, session)
}
