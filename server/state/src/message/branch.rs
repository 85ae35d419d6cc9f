//! Branch reports: what the active branch of a session's conversation holds, as its coordinator saw it in one observation.
//!
//! A report speaks for one message. Presence is evidence and always counts; absence counts only when Pi was idle with nothing pending
//! in the same observation. A report on no message speaks for every pending source of a run that is not paused: what this epoch
//! knows to be on the branch is asked for again, the rest is missing.

use piw_protocol::envelope::Outcome;
use piw_protocol::interaction::{BranchReceipt, BranchReport, MessageKind, MessageStatus, StepReason};

use super::facts::Known;
use super::{SessionFence, cancel_pending_steps, stale, touch, turn};
use crate::error::StateError;
use crate::interaction;
use crate::receipts::{CommandIdentity, Decision, Receipted, error, receipted};
use crate::state::State;
use crate::writer::{Authority, Tx};

/// Longest id of an entry of a Pi session, in bytes.
pub(super) const ENTRY_ID_LIMIT: usize = 256;

impl State {
    /// Applies a branch report. Resolves after the commit; a coordinator that was replaced meanwhile changes nothing.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn report_branch(
        &self,
        fence: SessionFence,
        identity: CommandIdentity,
        report: BranchReport,
    ) -> Result<Receipted<BranchReceipt>, StateError> {
        self.write("report_branch", Authority::Server, move |tx| {
            if !fence.holds() {
                return Ok(stale(&fence));
            }
            receipted(tx, &identity, |tx| decide(tx, &fence, &report))
        })
        .await
    }
}

fn decide(tx: &mut Tx<'_>, fence: &SessionFence, report: &BranchReport) -> Result<Decision<BranchReceipt>, StateError> {
    let session = fence.session();
    if let Some(message) = fault(report) {
        return Ok(Decision::Refuse {
            run: None,
            outcome: Outcome::Rejected,
            error: error("invalid_request", message),
        });
    }
    if let Some(message_id) = &report.workflow_message_id
        && Known::find(tx.db, session, message_id)?.is_none()
    {
        let message = format!("session {session:?} has no workflow message {message_id}");
        return Ok(Decision::Refuse {
            run: None,
            outcome: Outcome::NotFound,
            error: error("message_not_found", message),
        });
    }
    interaction::resume_session_time(tx, session)?;
    let idle = report.is_idle && !report.has_pending_messages;
    if idle {
        turn::lose_earlier(tx, fence)?;
    }
    let mut receipt = BranchReceipt {
        workflow_message_id: report.workflow_message_id.clone(),
        status: None,
    };
    let mut run = None;
    match &report.workflow_message_id {
        // Read after the turn of an earlier epoch was lost, which may have changed it.
        Some(message_id) => {
            if let Some(known) = Known::find(tx.db, session, message_id)? {
                match &report.pi_session_entry_id {
                    Some(entry) => present(tx, fence, &known, entry, idle)?,
                    None if idle => absent(tx, fence, &known)?,
                    None => {}
                }
                run = Some(known.run);
            }
            receipt.status = Known::find(tx.db, session, message_id)?.map(|known| known.status);
        }
        None if idle => nothing(tx, fence)?,
        None => {}
    }
    touch(tx, session)?;
    piw_fault::point!("state::branch_reported");
    Ok(Decision::Accept {
        run,
        revision: None,
        receipt,
    })
}

/// What is wrong with a report by itself.
fn fault(report: &BranchReport) -> Option<String> {
    let entry = report.pi_session_entry_id.as_deref()?;
    if report.workflow_message_id.is_none() {
        return Some(format!(
            "a report on no message names no entry, but this one names {entry:?}"
        ));
    }
    if entry.is_empty() || entry.len() > ENTRY_ID_LIMIT {
        return Some(format!(
            "the id of a session entry has 1 to {ENTRY_ID_LIMIT} bytes, not {}",
            entry.len()
        ));
    }
    None
}

/// The branch holds the message.
fn present(tx: &mut Tx<'_>, fence: &SessionFence, known: &Known, entry: &str, idle: bool) -> Result<(), StateError> {
    // What a paused run waits for is looked at again when it goes on.
    let held = known.kind == MessageKind::Step && known.paused;
    let epoch = if held { known.branch_epoch } else { fence.epoch() };
    tx.db
        .prepare_cached(
            "UPDATE workflow_messages SET state = 'sent', pi_entry_id = ?2, open = ?3, branch_epoch = ?4,
               updated_at = CASE WHEN state = 'sent' THEN updated_at ELSE ?5 END WHERE id = ?1",
        )?
        .execute((known.id, entry, known.is_open_when_sent(), epoch, tx.now))?;
    if known.status != MessageStatus::Sent {
        turn::show(tx, known)?;
    }
    // This epoch did not send what it finds with its first look, and an idle Pi works on nothing: whatever turn it opened is over.
    let first = known.branch_epoch != fence.epoch();
    if idle && first && !held && known.starts_turn && !known.has_turn && !known.superseded {
        turn::lose_unreported(tx, fence, known)?;
    }
    Ok(())
}

/// The branch lacks the message, for certain.
fn absent(tx: &mut Tx<'_>, fence: &SessionFence, known: &Known) -> Result<(), StateError> {
    if known.turn_open {
        return Ok(());
    }
    if known.status != MessageStatus::Sent {
        return set_epoch(tx, known, fence.epoch());
    }
    match (known.kind, known.request) {
        (MessageKind::Step, Some(request)) if known.source_pending() => {
            if known.paused {
                return Ok(());
            }
            if known.superseded || known.validating {
                return set_epoch(tx, known, fence.epoch());
            }
            if known.reason == Some(StepReason::Resumed) {
                cancel_pending_steps(tx, request)?;
                return reopen(tx, known, fence.epoch());
            }
            close(tx, known, fence.epoch())?;
            interaction::missing_from_branch(tx, request)
        }
        (MessageKind::Decision, _) if known.source_pending() => {
            if known.paused {
                return Ok(());
            }
            reopen(tx, known, fence.epoch())
        }
        (MessageKind::Terminal | MessageKind::FollowUp, _) if known.starts_turn && !known.has_turn => {
            turn::lose_unreported(tx, fence, known)?;
            close(tx, known, fence.epoch())
        }
        _ => close(tx, known, fence.epoch()),
    }
}

/// The session's branch holds no message that anybody waits for.
fn nothing(tx: &mut Tx<'_>, fence: &SessionFence) -> Result<(), StateError> {
    let session = fence.session();
    let requests: Vec<(i64, Option<String>)> = tx
        .db
        .prepare_cached(
            "SELECT q.id, (SELECT m.message_id FROM workflow_messages m WHERE m.request = q.id AND m.state <> 'cancelled'
                            ORDER BY m.session_order DESC LIMIT 1)
               FROM run_bindings b JOIN runs r ON r.id = b.run JOIN interactive_requests q ON q.run = r.id AND q.status = 'pending'
              WHERE b.session_id = ?1 AND b.reserved = 1 AND r.paused_at IS NULL",
        )?
        .query_map([session], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (request, newest) in requests {
        match newest {
            Some(message_id) => missing(tx, fence, &message_id)?,
            None => interaction::missing_from_branch(tx, request)?,
        }
    }
    let decisions: Vec<String> = tx
        .db
        .prepare_cached(
            "SELECT m.message_id FROM workflow_messages m INDEXED BY workflow_messages_open JOIN runs r ON r.id = m.run
               JOIN human_decisions d ON d.decision_id = m.source_id AND d.status = 'pending'
              WHERE m.target_session = ?1 AND m.open = 1 AND m.kind = 'decision' AND m.state = 'sent' AND r.paused_at IS NULL",
        )?
        .query_map([session], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for message_id in decisions {
        missing(tx, fence, &message_id)?;
    }
    Ok(())
}

/// The newest message of a source that a report on no message covers. What a report of this epoch saw there is asked for once more: a
/// report on no message did not look for it.
fn missing(tx: &mut Tx<'_>, fence: &SessionFence, message_id: &str) -> Result<(), StateError> {
    match Known::find(tx.db, fence.session(), message_id)? {
        Some(known) if known.status != MessageStatus::Sent => Ok(()),
        Some(known) if known.branch_epoch == fence.epoch() => set_epoch(tx, &known, 0),
        Some(known) => absent(tx, fence, &known),
        None => Ok(()),
    }
}

fn set_epoch(tx: &Tx<'_>, known: &Known, epoch: u64) -> Result<(), StateError> {
    tx.db
        .prepare_cached("UPDATE workflow_messages SET branch_epoch = ?2 WHERE id = ?1")?
        .execute((known.id, epoch))?;
    Ok(())
}

/// Nothing can make the message current again.
fn close(tx: &Tx<'_>, known: &Known, epoch: u64) -> Result<(), StateError> {
    tx.db
        .prepare_cached("UPDATE workflow_messages SET open = 0, branch_epoch = ?2 WHERE id = ?1")?
        .execute((known.id, epoch))?;
    Ok(())
}

/// A delivered message that left the branch is to be delivered again.
fn reopen(tx: &mut Tx<'_>, known: &Known, epoch: u64) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "UPDATE workflow_messages SET state = 'pending', open = 1, pi_entry_id = NULL, branch_epoch = ?2, updated_at = ?3
              WHERE id = ?1",
        )?
        .execute((known.id, epoch, tx.now))?;
    turn::show(tx, known)
}
