//! Model turns: reported by the session's coordinator, ended with their consequence in one transaction.
//!
//! A turn is named by the Pi side when it starts. It is lost only by evidence: an idle branch report of a later epoch, or the end of its
//! run; never by time and never because a server started.

use piw_protocol::envelope::Outcome;
use piw_protocol::interaction::{
    MessageKind, MessageStatus, StopReason, TURN_RECEIPT_SCHEMA, TurnOwnership, TurnReceipt, TurnReport, TurnState,
    WorkflowTurn,
};
use rusqlite::named_params;
use uuid::Uuid;

use super::branch::ENTRY_ID_LIMIT;
use super::facts::Known;
use super::{SessionFence, cancel_pending_steps, stale, touch};
use crate::error::StateError;
use crate::interaction;
use crate::query::message::{self as stored, TurnRow};
use crate::query::rfc3339;
use crate::receipts::{CommandIdentity, Decision, Receipted, error, receipted};
use crate::state::State;
use crate::writer::{Authority, Tx};

/// Longest id of a turn, in bytes.
const TURN_ID_LIMIT: usize = 256;

impl State {
    /// Applies the report of a turn's start or end. Resolves after the commit; a coordinator that was replaced meanwhile changes nothing.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn report_turn(
        &self,
        fence: SessionFence,
        identity: CommandIdentity,
        report: TurnReport,
    ) -> Result<Receipted<TurnReceipt>, StateError> {
        self.write("report_turn", Authority::Server, move |tx| {
            if !fence.holds() {
                return Ok(stale(&fence));
            }
            // The message is delivered and reported after its turn began: whoever reports the turn first comes again.
            if let Some(early) = too_early(tx, &fence, &report)? {
                return Ok(early);
            }
            receipted(tx, &identity, |tx| decide(tx, &fence, &report))
        })
        .await
    }
}

/// The answer to a turn of a message that is not confirmed yet. It is not stored: the same report is right later.
fn too_early(
    tx: &Tx<'_>,
    fence: &SessionFence,
    report: &TurnReport,
) -> Result<Option<Receipted<TurnReceipt>>, StateError> {
    let known = Known::find(tx.db, fence.session(), &report.workflow_message_id)?;
    if known.is_none_or(|known| known.status == MessageStatus::Sent) {
        return Ok(None);
    }
    let message = format!(
        "workflow message {} is not reported as sent; report the branch first, then this turn again",
        report.workflow_message_id
    );
    Ok(Some(Receipted::refused(
        Outcome::Rejected,
        error("message_not_sent", message),
    )))
}

fn decide(tx: &mut Tx<'_>, fence: &SessionFence, report: &TurnReport) -> Result<Decision<TurnReceipt>, StateError> {
    let refuse = |outcome, reason: &str, message: String| {
        Ok(Decision::Refuse {
            run: None,
            outcome,
            error: error(reason, message),
        })
    };
    if let Some(message) = fault(report) {
        return refuse(Outcome::Rejected, "invalid_request", message);
    }
    let known = match Known::find(tx.db, fence.session(), &report.workflow_message_id)? {
        Some(known) if *known.run_id == *report.run_id => known,
        Some(known) => {
            let message = format!(
                "workflow message {} belongs to run {}, not to {}",
                report.workflow_message_id, known.run_id, report.run_id
            );
            return refuse(Outcome::Rejected, "message_mismatch", message);
        }
        None => {
            let message = format!(
                "session {:?} has no workflow message {}",
                fence.session(),
                report.workflow_message_id
            );
            return refuse(Outcome::NotFound, "message_not_found", message);
        }
    };
    if let Some(turn) = stored::turn(tx.db, &report.workflow_turn_id)? {
        return repeated(tx, fence, &known, &turn, report);
    }
    if known.accepts_turn() {
        if let Some(open) = stored::open_turn(tx.db, fence.session())? {
            let message = format!(
                "turn {} of session {:?} is open; report its end before turn {}",
                open.turn_id,
                fence.session(),
                report.workflow_turn_id
            );
            return refuse(Outcome::Conflict, "turn_open", message);
        }
        start(tx, fence, &known, &report.workflow_turn_id)?;
        if let Some(stop) = report.stop_reason {
            finish(
                tx,
                &known,
                &report.workflow_turn_id,
                stop,
                report.response_session_entry_id.as_deref(),
            )?;
        }
        return receipt(tx, &known, &report.workflow_turn_id, false);
    }
    if known.kind == MessageKind::Step && !known.source_pending() && !known.has_turn {
        // Pi works on a step that is over. The turn is on record as nobody's, and the message needs nothing more.
        insert(tx, fence, &known, &report.workflow_turn_id, Some(StopReason::Lost))?;
        close(tx, &known)?;
        touch(tx, fence.session())?;
        return receipt(tx, &known, &report.workflow_turn_id, false);
    }
    Ok(Decision::Accept {
        run: Some(known.run),
        revision: None,
        receipt: TurnReceipt {
            schema: TURN_RECEIPT_SCHEMA.to_owned(),
            ownership: TurnOwnership::Absent,
            turn: None,
        },
    })
}

/// What is wrong with a report by itself.
fn fault(report: &TurnReport) -> Option<String> {
    match (report.state, report.stop_reason) {
        (TurnState::Started, Some(stop)) => Some(format!(
            "a turn that starts has no stop reason, but this one has {:?}",
            stop.name()
        )),
        (TurnState::Ended, None) => Some("a turn that ended needs a stop reason".to_owned()),
        (TurnState::Ended, Some(StopReason::Lost)) => {
            Some("only the server finds a turn lost; report completed, aborted or error".to_owned())
        }
        (TurnState::Started, None) if report.response_session_entry_id.is_some() => {
            Some("a turn that starts has no response".to_owned())
        }
        _ => {
            let id = report.workflow_turn_id.len();
            let entry = report.response_session_entry_id.as_ref().map(String::len);
            if !(1..=TURN_ID_LIMIT).contains(&id) {
                Some(format!("the id of a turn has 1 to {TURN_ID_LIMIT} bytes, not {id}"))
            } else if entry.is_some_and(|entry| !(1..=ENTRY_ID_LIMIT).contains(&entry)) {
                Some(format!("the id of a session entry has 1 to {ENTRY_ID_LIMIT} bytes"))
            } else {
                None
            }
        }
    }
}

/// A turn that is on record already: a matching report adopts it, a conflicting one is an error.
fn repeated(
    tx: &mut Tx<'_>,
    fence: &SessionFence,
    known: &Known,
    turn: &TurnRow,
    report: &TurnReport,
) -> Result<Decision<TurnReceipt>, StateError> {
    let conflict = |message: String| {
        Ok(Decision::Refuse {
            run: Some(known.run),
            outcome: Outcome::Conflict,
            error: error("turn_conflict", message),
        })
    };
    if turn.message != known.id {
        return conflict(format!(
            "turn {} was opened by workflow message {}, not by {}",
            turn.turn_id, turn.message_id, report.workflow_message_id
        ));
    }
    match (turn.stop_reason, report.stop_reason) {
        (None, None) => {
            // The session is busy with it still, or again after a reconnect: it belongs to this epoch from now on.
            tx.db
                .prepare_cached("UPDATE workflow_turns SET coordinator_epoch = ?2 WHERE id = ?1")?
                .execute((turn.id, fence.epoch()))?;
            touch(tx, fence.session())?;
            receipt(tx, known, &turn.turn_id, true)
        }
        (None, Some(stop)) => {
            finish(
                tx,
                known,
                &turn.turn_id,
                stop,
                report.response_session_entry_id.as_deref(),
            )?;
            receipt(tx, known, &turn.turn_id, false)
        }
        // What ended the turn before stands: the end of its run, or an idle branch report.
        (Some(StopReason::Lost), _) | (Some(_), None) => receipt(tx, known, &turn.turn_id, true),
        (Some(stored), Some(stop)) if stored == stop && turn.response_entry_id == report.response_session_entry_id => {
            receipt(tx, known, &turn.turn_id, true)
        }
        (Some(stored), Some(stop)) => conflict(format!(
            "turn {} ended as {} with response {:?}, not as {} with {:?}",
            turn.turn_id,
            stored.name(),
            turn.response_entry_id,
            stop.name(),
            report.response_session_entry_id
        )),
    }
}

fn receipt(tx: &Tx<'_>, known: &Known, turn_id: &str, adopted: bool) -> Result<Decision<TurnReceipt>, StateError> {
    let turn = stored::turn(tx.db, turn_id)?
        .ok_or_else(|| StateError::Inconsistent(format!("turn {turn_id} is not stored")))?;
    let receipt = TurnReceipt {
        schema: TURN_RECEIPT_SCHEMA.to_owned(),
        ownership: match turn.stop_reason {
            None => TurnOwnership::Active,
            Some(_) => TurnOwnership::Settled,
        },
        turn: Some(turn_of(&turn)),
    };
    let run = Some(known.run);
    Ok(if adopted {
        Decision::Adopt { run, receipt }
    } else {
        Decision::Accept {
            run,
            revision: None,
            receipt,
        }
    })
}

/// A turn as views and receipts carry it.
#[must_use]
pub fn turn_of(turn: &TurnRow) -> WorkflowTurn {
    WorkflowTurn {
        workflow_turn_id: turn.turn_id.clone(),
        workflow_message_id: turn.message_id.clone(),
        run_id: turn.run_id.clone(),
        state: match turn.stop_reason {
            None => TurnState::Started,
            Some(_) => TurnState::Ended,
        },
        stop_reason: turn.stop_reason,
        started_at: rfc3339(turn.started_at),
        ended_at: turn.ended_at.map(rfc3339),
    }
}

/// Opens a turn. A pending step message of the same request is superseded: the model works on the request already.
fn start(tx: &mut Tx<'_>, fence: &SessionFence, known: &Known, turn_id: &str) -> Result<(), StateError> {
    insert(tx, fence, known, turn_id, None)?;
    if let Some(request) = known.request {
        cancel_pending_steps(tx, request)?;
        interaction::turn_started(tx, request)?;
    }
    touch(tx, fence.session())?;
    show(tx, known)
}

fn insert(
    tx: &Tx<'_>,
    fence: &SessionFence,
    known: &Known,
    turn_id: &str,
    stop: Option<StopReason>,
) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "INSERT INTO workflow_turns (turn_id, message, run, session_id, coordinator_epoch, status, stop_reason, started_at, ended_at)
             VALUES (:turn, :message, :run, :session, :epoch, :status, :stop, :now, :ended)",
        )?
        .execute(named_params! {
            ":turn": turn_id, ":message": known.id, ":run": known.run, ":session": fence.session(), ":epoch": fence.epoch(),
            ":status": if stop.is_some() { "ended" } else { "open" }, ":stop": stop.map(StopReason::name), ":now": tx.now,
            ":ended": stop.map(|_| tx.now),
        })?;
    Ok(())
}

/// Ends an open turn and applies what follows from it.
fn finish(
    tx: &mut Tx<'_>,
    known: &Known,
    turn_id: &str,
    stop: StopReason,
    response: Option<&str>,
) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "UPDATE workflow_turns SET status = 'ended', stop_reason = ?2, response_entry_id = ?3, ended_at = ?4
              WHERE turn_id = ?1 AND status = 'open'",
        )?
        .execute((turn_id, stop.name(), response, tx.now))?;
    piw_fault::point!("state::turn_ended");
    follow(tx, known, stop)
}

/// What follows from the end of a message's turn.
fn follow(tx: &mut Tx<'_>, known: &Known, stop: StopReason) -> Result<(), StateError> {
    match known.request {
        Some(request) => {
            interaction::turn_ended(tx, request, stop)?;
            // A request that is over needs its message no more.
            tx.db
                .prepare_cached(
                    "UPDATE workflow_messages SET open = 0 WHERE id = ?1
                       AND EXISTS (SELECT 1 FROM interactive_requests q WHERE q.id = ?2 AND q.status <> 'pending')",
                )?
                .execute((known.id, request))?;
        }
        None => close(tx, known)?,
    }
    super::touch_run(tx, known.run)?;
    show(tx, known)
}

fn close(tx: &Tx<'_>, known: &Known) -> Result<(), StateError> {
    tx.db
        .prepare_cached("UPDATE workflow_messages SET open = 0 WHERE id = ?1")?
        .execute([known.id])?;
    Ok(())
}

/// Views of the message's run show something else now.
pub(super) fn show(tx: &mut Tx<'_>, known: &Known) -> Result<(), StateError> {
    tx.db
        .prepare_cached("UPDATE resources SET view_revision = view_revision + 1 WHERE id = ?1")?
        .execute([known.run])?;
    tx.changes.run(known.run, &known.run_id, true);
    Ok(())
}

/// An idle Pi works on nothing: the turn that an earlier epoch left open is over, and nobody will report its end.
pub(super) fn lose_earlier(tx: &mut Tx<'_>, fence: &SessionFence) -> Result<(), StateError> {
    let Some(turn) = stored::open_turn(tx.db, fence.session())? else {
        return Ok(());
    };
    if turn.coordinator_epoch == fence.epoch() {
        return Ok(());
    }
    let known = Known::find(tx.db, fence.session(), &turn.message_id)?
        .ok_or_else(|| StateError::Inconsistent(format!("turn {} belongs to no message", turn.turn_id)))?;
    finish(tx, &known, &turn.turn_id, StopReason::Lost, None)
}

/// A delivered message whose turn nobody reported, and never will: it counts as lost.
pub(super) fn lose_unreported(tx: &mut Tx<'_>, fence: &SessionFence, known: &Known) -> Result<(), StateError> {
    let turn_id = Uuid::now_v7().to_string();
    insert(tx, fence, known, &turn_id, Some(StopReason::Lost))?;
    follow(tx, known, StopReason::Lost)
}
