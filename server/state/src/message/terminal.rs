//! Terminal messages: what a session is told when the last run of a continuation chain ended, and notices on the way.
//!
//! They commit with the end, or with the notification. What an earlier version or a failure left out is made when the server starts.

use piw_engine::notice::{self, Ended};
use piw_protocol::interaction::{
    ClearedTerminal, MessageContent, MessageKind, NOTIFICATION_DETAILS_SCHEMA, TERMINAL_DETAILS_SCHEMA,
};
use piw_protocol::run::ErrorInfo;
use rusqlite::OptionalExtension;
use serde_json::json;

use super::{NewMessage, SessionFence, insert, session_of, stale, touch};
use crate::content;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::names;
use crate::receipts::{CommandIdentity, Decision, Receipted, receipted};
use crate::state::State;
use crate::value::{Stored, maybe};
use crate::writer::{Authority, Tx};

/// Bytes of a large output or error that a terminal message shows; the rest is in the run's view.
const SHOWN: usize = 16 * 1024;

impl State {
    /// Stores the terminal messages that are missing: runs that ended in a session and whose end nobody was told. Called when a server
    /// starts; repeating it creates nothing. Returns how many were made.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn present_ended_runs(&self) -> Result<usize, StateError> {
        self.write("present_ended_runs", Authority::Server, |tx| {
            let runs: Vec<RunKey> = tx
                .db
                .prepare_cached(
                    "SELECT r.id FROM run_bindings b JOIN runs r ON r.id = b.run
                      WHERE b.session_id IS NOT NULL AND b.reserved = 0 AND r.finished_at IS NOT NULL AND r.continued_by IS NULL
                        AND r.deleted_at IS NULL
                        AND NOT EXISTS (SELECT 1 FROM workflow_messages m WHERE m.run = r.id AND m.kind = 'terminal')
                      ORDER BY r.finished_at",
                )?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            for run in &runs {
                present_end(tx, *run)?;
            }
            Ok(runs.len())
        })
        .await
    }

    /// The session stops showing its terminal run. A result that Pi has not received is cancelled.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn clear_terminal(
        &self,
        fence: SessionFence,
        identity: CommandIdentity,
    ) -> Result<Receipted<ClearedTerminal>, StateError> {
        self.write("clear_terminal", Authority::Server, move |tx| {
            if !fence.holds() {
                return Ok(stale(&fence));
            }
            receipted(tx, &identity, |tx| clear(tx, fence.session()))
        })
        .await
    }
}

fn clear(tx: &mut Tx<'_>, session: &str) -> Result<Decision<ClearedTerminal>, StateError> {
    let newest: Option<(i64, RunKey, String)> = maybe(
        tx.db
            .prepare_cached(
                "SELECT m.id, m.run, r.run_id FROM workflow_messages m JOIN runs r ON r.id = m.run
                  WHERE m.target_session = ?1 AND m.kind = 'terminal'
                    AND m.session_order > (SELECT cleared_order FROM pi_sessions WHERE session_id = ?1)
                  ORDER BY m.session_order DESC LIMIT 1",
            )?
            .query_row([session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))),
    )?;
    if let Some((message, ..)) = newest {
        tx.db
            .prepare_cached(
                "UPDATE workflow_messages SET state = CASE state WHEN 'pending' THEN 'cancelled' ELSE state END, open = 0,
                   updated_at = ?2 WHERE id = ?1",
            )?
            .execute((message, tx.now))?;
        tx.db
            .prepare_cached("UPDATE pi_sessions SET cleared_order = last_order WHERE session_id = ?1")?
            .execute([session])?;
        touch(tx, session)?;
    }
    Ok(Decision::Accept {
        run: newest.as_ref().map(|(_, run, _)| *run),
        revision: None,
        receipt: ClearedTerminal {
            run_id: newest.map(|(_, _, run_id)| run_id),
        },
    })
}

/// Tells the session of a run that ended, and was not continued, how it ended. A run without a session has nobody to tell.
pub(crate) fn present_end(tx: &mut Tx<'_>, run: RunKey) -> Result<(), StateError> {
    let Some(session) = session_of(tx, run)? else {
        return Ok(());
    };
    let (run_id, workflow, title, status): (String, String, Option<String>, String) = tx
        .db
        .prepare_cached("SELECT run_id, workflow_name, title, status FROM runs WHERE id = ?1")?
        .query_row([run], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let status = names::run_status(&status)?;
    let output = shown_value(tx, run, "final_output")?;
    let error = shown_value(tx, run, "error")?.map(|(text, _)| {
        serde_json::from_str::<ErrorInfo>(&text).map_or(text, |error| bounded(&error.message).to_owned())
    });
    let ended = Ended {
        run_id: &run_id,
        workflow: &workflow,
        title: title.as_deref(),
        status,
        output: output.as_ref().map(|(text, bytes)| (text.as_str(), *bytes)),
        error: error.as_deref(),
    };
    let content = MessageContent {
        custom_type: MessageKind::Terminal.custom_type().to_owned(),
        content: notice::ended(&ended),
        display: true,
        details: json!({
            "schema": TERMINAL_DETAILS_SCHEMA, "runId": run_id, "workflowName": workflow, "runTitle": title, "status": status,
        }),
    };
    insert(
        tx,
        NewMessage {
            session: &session,
            run,
            kind: MessageKind::Terminal,
            reason: None,
            source_id: &run_id,
            request: None,
            content,
        },
    )?;
    Ok(())
}

/// The beginning of a value's canonical JSON, and how long the whole is.
fn shown_value(tx: &Tx<'_>, run: RunKey, kind: &str) -> Result<Option<(String, u64)>, StateError> {
    let stored = tx
        .db
        .prepare_cached("SELECT json, blob FROM run_values WHERE run = ?1 AND kind = ?2")?
        .query_row((run, kind), |row| Stored::columns(row, 0))
        .optional()?;
    Ok(match stored {
        Some(Stored { json: Some(text), .. }) => {
            let bytes = text.len() as u64;
            Some((bounded(&text).to_owned(), bytes))
        }
        Some(Stored { blob: Some(blob), .. }) => {
            let bytes = content::reference(tx.db, blob)?.bytes;
            let first = content::read_range(tx.db, blob, 0, SHOWN)?;
            Some((
                String::from_utf8_lossy(&first).trim_end_matches('\u{fffd}').to_owned(),
                bytes,
            ))
        }
        None | Some(_) => None,
    })
}

fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN)]
}

/// A notification that was created just now.
pub(crate) struct Notice<'a> {
    pub(crate) run_id: &'a str,
    pub(crate) node_id: &'a str,
    pub(crate) visit: u32,
    pub(crate) index: u32,
    pub(crate) kind: &'a str,
    pub(crate) text: &'a str,
}

/// Passes a notification on to the session of its run, if any.
pub(crate) fn notify(tx: &mut Tx<'_>, run: RunKey, notice: &Notice<'_>) -> Result<(), StateError> {
    let Some(session) = session_of(tx, run)? else {
        return Ok(());
    };
    let source = format!("{}/{}/{}/{}", notice.run_id, notice.node_id, notice.visit, notice.index);
    let content = MessageContent {
        custom_type: MessageKind::Notification.custom_type().to_owned(),
        content: notice.text.to_owned(),
        display: true,
        details: json!({
            "schema": NOTIFICATION_DETAILS_SCHEMA, "runId": notice.run_id, "nodeId": notice.node_id, "kind": notice.kind,
        }),
    };
    insert(
        tx,
        NewMessage {
            session: &session,
            run,
            kind: MessageKind::Notification,
            reason: None,
            source_id: &source,
            request: None,
            content,
        },
    )?;
    Ok(())
}
