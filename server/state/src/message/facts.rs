//! What decides on a report about one message.

use std::sync::Arc;

use piw_protocol::interaction::{MessageKind, MessageStatus, StepReason};
use rusqlite::{Connection, OptionalExtension};

use crate::error::StateError;
use crate::ids::RunKey;
use crate::query;

/// A message of a session with the state of its source and its turn.
#[derive(Debug)]
pub(super) struct Known {
    /// `workflow_messages.id`.
    pub(super) id: i64,
    pub(super) run: RunKey,
    pub(super) run_id: Arc<str>,
    pub(super) kind: MessageKind,
    pub(super) reason: Option<StepReason>,
    pub(super) status: MessageStatus,
    pub(super) request: Option<i64>,
    /// Epoch of the newest report on it.
    pub(super) branch_epoch: u64,
    /// Whether its run is paused.
    pub(super) paused: bool,
    /// State of the request of a step, or of a decision.
    source: Option<String>,
    /// Whether a submission of its request is being validated.
    pub(super) validating: bool,
    /// Whether a newer message of its request was not cancelled.
    pub(super) superseded: bool,
    /// Whether a newer message of its request was delivered.
    pub(super) sent_later: bool,
    /// Whether its delivery starts a model turn.
    pub(super) starts_turn: bool,
    pub(super) has_turn: bool,
    pub(super) turn_open: bool,
    pub(super) turn_ended: bool,
}

impl Known {
    /// A message of a session by its public id.
    pub(super) fn find(db: &Connection, session: &str, message_id: &str) -> Result<Option<Self>, StateError> {
        let mut statement = db.prepare_cached(
            "SELECT m.id, m.run, r.run_id, m.kind, m.reason, m.state, m.request, m.branch_epoch, r.paused_at IS NOT NULL,
                    CASE m.kind WHEN 'step' THEN (SELECT q.status FROM interactive_requests q WHERE q.id = m.request)
                                WHEN 'decision' THEN (SELECT d.status FROM human_decisions d WHERE d.decision_id = m.source_id) END,
                    EXISTS (SELECT 1 FROM interactive_submissions s WHERE s.request = m.request AND s.outcome = 'validating'),
                    EXISTS (SELECT 1 FROM workflow_messages n WHERE n.request = m.request AND n.session_order > m.session_order
                      AND n.state <> 'cancelled'),
                    EXISTS (SELECT 1 FROM workflow_messages n WHERE n.request = m.request AND n.session_order > m.session_order
                      AND n.state = 'sent'),
                    m.kind IN ('step', 'followUp') OR (m.kind = 'terminal' AND r.status <> 'cancelled'),
                    EXISTS (SELECT 1 FROM workflow_turns t WHERE t.message = m.id),
                    EXISTS (SELECT 1 FROM workflow_turns t WHERE t.message = m.id AND t.status = 'open'),
                    EXISTS (SELECT 1 FROM workflow_turns t WHERE t.message = m.id AND t.status = 'ended')
               FROM workflow_messages m JOIN runs r ON r.id = m.run WHERE m.message_id = ?1 AND m.target_session = ?2",
        )?;
        let row = statement
            .query_row((message_id, session), |row| {
                let known = Self {
                    id: row.get(0)?,
                    run: row.get(1)?,
                    run_id: row.get::<_, String>(2)?.into(),
                    kind: MessageKind::Step,
                    reason: None,
                    status: MessageStatus::Pending,
                    request: row.get(6)?,
                    branch_epoch: row.get(7)?,
                    paused: row.get(8)?,
                    source: row.get(9)?,
                    validating: row.get(10)?,
                    superseded: row.get(11)?,
                    sent_later: row.get(12)?,
                    starts_turn: row.get(13)?,
                    has_turn: row.get(14)?,
                    turn_open: row.get(15)?,
                    turn_ended: row.get(16)?,
                };
                let words: (String, Option<String>, String) = (row.get(3)?, row.get(4)?, row.get(5)?);
                Ok((known, words))
            })
            .optional()?;
        let Some((known, (kind, reason, status))) = row else {
            return Ok(None);
        };
        Ok(Some(Self {
            kind: query::word("message kind", &kind)?,
            reason: reason.map(|reason| query::word("step reason", &reason)).transpose()?,
            status: query::word("message state", &status)?,
            ..known
        }))
    }

    /// Whether what caused it still waits for an answer.
    pub(super) fn source_pending(&self) -> bool {
        self.source.as_deref() == Some("pending")
    }

    /// Whether it may still be the current message once Pi has it.
    pub(super) fn is_open_when_sent(&self) -> bool {
        match self.kind {
            MessageKind::Notification => false,
            MessageKind::Decision => self.source_pending(),
            // A delivered step whose source is over is stopped when its turn is reported, except after acceptance.
            MessageKind::Step => {
                self.source_pending() || (!self.has_turn && self.source.as_deref() != Some("accepted"))
            }
            MessageKind::Terminal | MessageKind::FollowUp => self.starts_turn && !self.turn_ended,
        }
    }

    /// Whether a model turn may begin by it: the latest sent step while its request is pending and its run unpaused, a terminal message
    /// or follow-up until its first turn ended.
    pub(super) fn accepts_turn(&self) -> bool {
        self.status == MessageStatus::Sent
            && match self.kind {
                MessageKind::Step => self.source_pending() && !self.paused && !self.sent_later,
                MessageKind::Terminal | MessageKind::FollowUp => self.starts_turn && !self.turn_ended,
                MessageKind::Decision | MessageKind::Notification => false,
            }
    }
}
