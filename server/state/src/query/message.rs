//! Workflow messages and turns of a Pi session: which one is current, and what views show of them.
//!
//! The selection reads metadata through indexes, in bounded batches, and only rows that are still open: its cost follows the work in
//! progress, never the session's history.

use piw_protocol::interaction::{
    InteractionKind, MessageKind, MessageStatus, StepReason, StopReason, TERMINAL_RETENTION_MS,
};
use rusqlite::{OptionalExtension, Row, params};
use serde_json::Value;

use crate::ids::AttemptId;

use super::{QueryError, Reader, Result, StoredValue, signed, unsigned, word};

/// Open messages that are read at a time.
const BATCH: usize = 64;

/// What the selection of a session depends on, from one indexed read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionKey {
    /// Grows with every change of what decides the current message; 0 for a session that no run ever named.
    pub revision: u64,
    /// `runs.id` of the run that holds the session.
    pub run: Option<i64>,
    /// Its presentation cursor.
    pub run_revision: u64,
}

/// The rule that chose the current message, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// It opened the turn that is open.
    OpenTurn,
    /// Whether the active branch holds it is unknown in this coordinator epoch.
    Unreported,
    /// It may be delivered.
    Deliver,
    /// Pi has it, but its source is over and its turn is unreported: Pi must stop it.
    Stop,
    /// A delivered terminal message or follow-up before its first turn ended.
    Retained,
}

/// A terminal run that its session keeps showing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retained {
    /// `runs.id`.
    pub run: i64,
    /// Milliseconds since the epoch at which it is shown no more; `None` while its message is undelivered or its first turn has not
    /// ended.
    pub until: Option<i64>,
}

/// What a session needs to know of its messages and turns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// `workflow_messages.id` of the current message and why it is current.
    pub message: Option<(i64, Rule)>,
    /// The open turn.
    pub turn: Option<TurnRow>,
    /// The newest terminal run, while it is shown.
    pub retained: Option<Retained>,
}

impl Selection {
    /// Milliseconds since the epoch at which the clock alone changes the selection.
    #[must_use]
    pub fn valid_until(&self) -> Option<i64> {
        self.retained.and_then(|retained| retained.until)
    }
}

/// A model turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// `workflow_turns.id`.
    pub id: i64,
    /// Public id.
    pub turn_id: String,
    /// `workflow_messages.id`.
    pub message: i64,
    /// Public id of the message that opened it.
    pub message_id: String,
    /// Public id of its run.
    pub run_id: String,
    /// Epoch in which it was reported last.
    pub coordinator_epoch: u64,
    /// How it ended; `None` while it is open.
    pub stop_reason: Option<StopReason>,
    /// Entry of its last assistant message.
    pub response_entry_id: Option<String>,
    /// Milliseconds since the epoch.
    pub started_at: i64,
    /// Milliseconds since the epoch.
    pub ended_at: Option<i64>,
}

/// A workflow message with its content.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRow {
    /// `workflow_messages.id`.
    pub id: i64,
    /// Public id.
    pub message_id: String,
    /// `runs.id`.
    pub run: i64,
    /// Public id of its run.
    pub run_id: String,
    /// Its kind.
    pub kind: MessageKind,
    /// Why a step message exists.
    pub reason: Option<StepReason>,
    /// What caused it.
    pub source_id: String,
    /// Acceptance order in the session.
    pub order: u64,
    /// Whether Pi has it.
    pub status: MessageStatus,
    /// The entry that holds it.
    pub pi_entry_id: Option<String>,
    /// `sha256:<hex>` of its content.
    pub content_digest: String,
    /// What Pi gets.
    pub content: StoredValue,
    /// Whether its delivery starts a model turn.
    pub starts_turn: bool,
    /// Epoch of the newest branch report on it; 0: none.
    pub branch_epoch: u64,
    /// Whether it is a step whose request is over otherwise than by acceptance.
    pub stopped: bool,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// What the selection of a session depends on besides the coordinator epoch and the clock.
pub fn session_key(reader: &Reader, session: &str) -> Result<SessionKey> {
    let mut statement = reader.prepare_cached(
        "SELECT s.revision, b.run, i.view_revision FROM pi_sessions s
           LEFT JOIN run_bindings b ON b.session_id = s.session_id AND b.reserved = 1
           LEFT JOIN resources i ON i.id = b.run WHERE s.session_id = ?1",
    )?;
    let row = statement
        .query_row([session], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, Option<i64>>(1)?,
                row.get::<_, Option<i64>>(2)?,
            ))
        })
        .optional()?;
    let Some((revision, run, run_revision)) = row else {
        return Ok(SessionKey::default());
    };
    Ok(SessionKey {
        revision: unsigned("session revision", revision)?,
        run,
        run_revision: unsigned("view revision", run_revision.unwrap_or(0))?,
    })
}

/// Chooses the current message of a session (messages.md, "The current message"). `epoch` is the session's coordinator epoch, `now`
/// wall-clock milliseconds.
///
/// # Errors
/// When the database cannot be read, or the session has more than one open turn, which is never decided by a guess.
pub fn select(reader: &Reader, session: &str, epoch: u64, now: i64) -> Result<Selection> {
    let turn = open_turn(reader, session)?;
    let retained = retained(reader, session, now)?;
    let message = match &turn {
        Some(turn) => Some((turn.message, Rule::OpenTurn)),
        None => current(reader, session, epoch)?,
    };
    Ok(Selection {
        message,
        turn,
        retained,
    })
}

/// Rules 2 to 5, for a session without an open turn.
fn current(reader: &Reader, session: &str, epoch: u64) -> Result<Option<(i64, Rule)>> {
    let mut found = None;
    walk(reader, session, epoch, false, |row| {
        if row.is_relevant() {
            found = Some((row.id, Rule::Unreported));
        }
        Ok(found.is_none())
    })?;
    if found.is_some() {
        return Ok(found);
    }
    let (mut stop, mut retained) = (None, None);
    walk(reader, session, epoch, true, |row| {
        if row.is_eligible(reader, session)? {
            found = Some((row.id, Rule::Deliver));
            return Ok(false);
        }
        if row.must_stop() {
            stop.get_or_insert((row.id, Rule::Stop));
        } else if row.is_retained() {
            retained.get_or_insert((row.id, Rule::Retained));
        }
        Ok(true)
    })?;
    Ok(found.or(stop).or(retained))
}

/// What decides on one open message.
#[derive(Debug)]
struct Open {
    id: i64,
    order: i64,
    run: i64,
    kind: MessageKind,
    status: MessageStatus,
    paused: bool,
    /// Of a step's request or a decision.
    source: Option<String>,
    /// Whether a newer message of the same request was not cancelled.
    superseded: bool,
    has_turn: bool,
    turn_ended: bool,
    starts_turn: bool,
    continued: bool,
}

impl Open {
    fn source_pending(&self) -> bool {
        self.source.as_deref() == Some("pending")
    }

    /// Decision 18: what a new coordinator must look for on the branch.
    fn is_relevant(&self) -> bool {
        match (self.status, self.kind) {
            (MessageStatus::Pending, _) => true,
            (MessageStatus::Cancelled, _) | (_, MessageKind::Notification) => false,
            (MessageStatus::Sent, MessageKind::Step) => {
                (self.source_pending() && !self.paused && !self.superseded) || self.must_stop()
            }
            (MessageStatus::Sent, MessageKind::Decision) => self.source_pending(),
            (MessageStatus::Sent, MessageKind::Terminal | MessageKind::FollowUp) => self.is_retained(),
        }
    }

    fn is_eligible(&self, reader: &Reader, session: &str) -> Result<bool> {
        if self.status != MessageStatus::Pending {
            return Ok(false);
        }
        Ok(match self.kind {
            MessageKind::Step => self.source_pending() && !self.paused,
            MessageKind::Decision => self.source_pending(),
            MessageKind::Notification => true,
            MessageKind::Terminal => !self.continued,
            MessageKind::FollowUp => follow_up_is_due(reader, session, self.run, self.order)?,
        })
    }

    /// A delivered step whose source is over otherwise than by acceptance, before Pi reported its turn.
    fn must_stop(&self) -> bool {
        self.status == MessageStatus::Sent
            && self.kind == MessageKind::Step
            && !self.has_turn
            && !matches!(self.source.as_deref(), None | Some("pending" | "accepted"))
    }

    fn is_retained(&self) -> bool {
        self.status == MessageStatus::Sent
            && matches!(self.kind, MessageKind::Terminal | MessageKind::FollowUp)
            && self.starts_turn
            && !self.turn_ended
    }
}

/// Whether a delivery of a message starts a model turn: everything but notices does, a terminal message not after a cancellation.
const STARTS_TURN: &str = "(m.kind IN ('step', 'followUp') OR (m.kind = 'terminal' AND r.status <> 'cancelled'))";

/// Walks open messages in the order of the session until the visitor answers `false`: those that a report of this epoch spoke for,
/// or the others.
fn walk(
    reader: &Reader,
    session: &str,
    epoch: u64,
    reported: bool,
    mut visit: impl FnMut(&Open) -> Result<bool>,
) -> Result<()> {
    let mut statement = reader.prepare_cached(&format!(
        "SELECT m.id, m.session_order, m.run, m.kind, m.state, r.paused_at IS NOT NULL,
                CASE m.kind WHEN 'step' THEN (SELECT q.status FROM interactive_requests q WHERE q.id = m.request)
                            WHEN 'decision' THEN (SELECT d.status FROM human_decisions d WHERE d.decision_id = m.source_id) END,
                CASE WHEN m.kind = 'step' AND m.state = 'sent' THEN EXISTS (SELECT 1 FROM workflow_messages n
                  WHERE n.request = m.request AND n.session_order > m.session_order AND n.state <> 'cancelled') ELSE 0 END,
                EXISTS (SELECT 1 FROM workflow_turns t WHERE t.message = m.id),
                EXISTS (SELECT 1 FROM workflow_turns t WHERE t.message = m.id AND t.status = 'ended'),
                {STARTS_TURN}, r.continued_by IS NOT NULL
           FROM workflow_messages m INDEXED BY workflow_messages_open JOIN runs r ON r.id = m.run
          WHERE m.target_session = ?1 AND m.open = 1 AND m.session_order > ?2 AND (m.branch_epoch = ?3) = ?4
          ORDER BY m.session_order LIMIT ?5"
    ))?;
    let mut after = 0;
    loop {
        let mut rows = statement.query(params![session, after, signed(epoch), reported, BATCH])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let open = read_open(row)?;
            (count, after) = (count + 1, open.order);
            if !visit(&open)? {
                return Ok(());
            }
        }
        if count < BATCH {
            return Ok(());
        }
    }
}

fn read_open(row: &Row<'_>) -> Result<Open> {
    Ok(Open {
        id: row.get(0)?,
        order: row.get(1)?,
        run: row.get(2)?,
        kind: word("message kind", row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?)?,
        status: word(
            "message state",
            row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?,
        )?,
        paused: row.get(5)?,
        source: row.get(6)?,
        superseded: row.get(7)?,
        has_turn: row.get(8)?,
        turn_ended: row.get(9)?,
        starts_turn: row.get(10)?,
        continued: row.get(11)?,
    })
}

/// A follow-up is due after success of the last run of the chain, its terminal turn, every earlier follow-up and the release of the
/// session.
fn follow_up_is_due(reader: &Reader, session: &str, run: i64, order: i64) -> Result<bool> {
    let mut last = run;
    let mut next = reader.prepare_cached("SELECT continued_by FROM runs WHERE id = ?1")?;
    // Continuations are made after what they continue, so this ends.
    while let Some(child) = next.query_row([last], |row| row.get::<_, Option<i64>>(0))? {
        last = child;
    }
    let mut statement = reader.prepare_cached(
        "SELECT r.status = 'completed'
            AND EXISTS (SELECT 1 FROM workflow_messages m JOIN workflow_turns t ON t.message = m.id
                         WHERE m.run = r.id AND m.kind = 'terminal' AND t.status = 'ended')
            AND NOT EXISTS (SELECT 1 FROM workflow_messages f INDEXED BY workflow_messages_open
                             WHERE f.target_session = ?2 AND f.open = 1 AND f.session_order < ?3 AND f.kind = 'followUp')
            AND NOT EXISTS (SELECT 1 FROM run_bindings b WHERE b.session_id = ?2 AND b.reserved = 1)
           FROM runs r WHERE r.id = ?1",
    )?;
    Ok(statement.query_row(params![last, session, order], |row| row.get(0))?)
}

const TURN: &str = "SELECT t.id, t.turn_id, t.message, m.message_id, r.run_id, t.coordinator_epoch, t.stop_reason, t.response_entry_id,
       t.started_at, t.ended_at
  FROM workflow_turns t JOIN workflow_messages m ON m.id = t.message JOIN runs r ON r.id = t.run WHERE ";

/// The open turn of a session.
///
/// # Errors
/// When there is more than one.
pub fn open_turn(reader: &Reader, session: &str) -> Result<Option<TurnRow>> {
    let mut statement = reader.prepare_cached(&format!("{TURN} t.session_id = ?1 AND t.status = 'open' LIMIT 2"))?;
    let mut rows = statement.query([session])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let turn = read_turn(row)?;
    if rows.next()?.is_some() {
        return Err(QueryError::corrupt(
            "model turns",
            format!("session {session:?} has more than one open turn"),
        ));
    }
    Ok(Some(turn))
}

/// A turn by its public id.
pub fn turn(reader: &Reader, turn_id: &str) -> Result<Option<TurnRow>> {
    let mut statement = reader.prepare_cached(&format!("{TURN} t.turn_id = ?1"))?;
    let mut rows = statement.query([turn_id])?;
    rows.next()?.map(read_turn).transpose()
}

fn read_turn(row: &Row<'_>) -> Result<TurnRow> {
    let stop = row.get_ref(6)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    Ok(TurnRow {
        id: row.get(0)?,
        turn_id: row.get(1)?,
        message: row.get(2)?,
        message_id: row.get(3)?,
        run_id: row.get(4)?,
        coordinator_epoch: unsigned("coordinator epoch", row.get(5)?)?,
        stop_reason: stop.map(|stop| word("stop reason", stop)).transpose()?,
        response_entry_id: row.get(7)?,
        started_at: row.get(8)?,
        ended_at: row.get(9)?,
    })
}

/// The newest terminal run of a session, while it is shown.
fn retained(reader: &Reader, session: &str, now: i64) -> Result<Option<Retained>> {
    let mut statement = reader.prepare_cached(&format!(
        "SELECT m.run, m.state, {STARTS_TURN}, m.updated_at,
                (SELECT min(t.ended_at) FROM workflow_turns t WHERE t.message = m.id AND t.status = 'ended')
           FROM workflow_messages m INDEXED BY workflow_messages_terminals JOIN runs r ON r.id = m.run
          WHERE m.target_session = ?1 AND m.kind = 'terminal'
            AND m.session_order > coalesce((SELECT cleared_order FROM pi_sessions WHERE session_id = ?1), 0)
            AND r.deleted_at IS NULL
          ORDER BY m.session_order DESC LIMIT 1"
    ))?;
    let newest = statement
        .query_row([session], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, bool>(2)?,
                row.get::<_, i64>(3)?,
                row.get::<_, Option<i64>>(4)?,
            ))
        })
        .optional()?;
    let Some((run, state, starts_turn, updated_at, turn_ended_at)) = newest else {
        return Ok(None);
    };
    let from = match state.as_str() {
        "pending" => None,
        "sent" if starts_turn => turn_ended_at,
        _ => Some(updated_at),
    };
    let until = from.map(|from| from.saturating_add(signed(TERMINAL_RETENTION_MS)));
    Ok(until.is_none_or(|until| now < until).then_some(Retained { run, until }))
}

const MESSAGE: &str = "m.id, m.message_id, m.run, r.run_id, m.kind, m.reason, m.source_id, m.session_order, m.state, m.pi_entry_id,
       m.content_digest, m.content_json, m.content_blob, m.created_at, m.updated_at, m.branch_epoch,
       coalesce((SELECT q.status NOT IN ('pending', 'accepted') FROM interactive_requests q WHERE q.id = m.request), 0)";

/// A message with its content.
pub fn message(reader: &Reader, id: i64) -> Result<Option<MessageRow>> {
    let mut statement = reader.prepare_cached(&format!(
        "SELECT {MESSAGE}, {STARTS_TURN} FROM workflow_messages m JOIN runs r ON r.id = m.run WHERE m.id = ?1"
    ))?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(|row| read_message(reader, row)).transpose()
}

/// Messages of a run in all.
pub fn count(reader: &Reader, run: i64) -> Result<u64> {
    let mut statement = reader.prepare_cached("SELECT count(*) FROM workflow_messages WHERE run = ?1")?;
    unsigned("message count", statement.query_row([run], |row| row.get(0))?)
}

/// Reads the messages of a run in the order in which they were made, from a position on, until the visitor answers `false`.
pub fn scan(reader: &Reader, run: i64, start: u64, mut visit: impl FnMut(MessageRow) -> Result<bool>) -> Result<()> {
    let mut statement = reader.prepare_cached(&format!(
        "SELECT {MESSAGE}, {STARTS_TURN} FROM workflow_messages m JOIN runs r ON r.id = m.run
          WHERE m.run = ?1 ORDER BY m.id LIMIT -1 OFFSET ?2"
    ))?;
    let mut rows = statement.query(params![run, signed(start)])?;
    while let Some(row) = rows.next()? {
        if !visit(read_message(reader, row)?)? {
            break;
        }
    }
    Ok(())
}

fn read_message(reader: &Reader, row: &Row<'_>) -> Result<MessageRow> {
    let text = |at: usize| row.get_ref(at)?.as_str_or_null().map_err(rusqlite::Error::from);
    let named = |at: usize| text(at).map(Option::unwrap_or_default);
    Ok(MessageRow {
        id: row.get(0)?,
        message_id: row.get(1)?,
        run: row.get(2)?,
        run_id: row.get(3)?,
        kind: word("message kind", named(4)?)?,
        reason: text(5)?.map(|reason| word("step reason", reason)).transpose()?,
        source_id: row.get(6)?,
        order: unsigned("message order", row.get(7)?)?,
        status: word("message state", named(8)?)?,
        pi_entry_id: row.get(9)?,
        content_digest: row.get(10)?,
        content: StoredValue::read(reader, "workflow message", text(11)?, row.get(12)?)?
            .unwrap_or_else(StoredValue::null),
        created_at: row.get(13)?,
        updated_at: row.get(14)?,
        branch_epoch: unsigned("coordinator epoch", row.get(15)?)?,
        stopped: row.get(16)?,
        starts_turn: row.get(17)?,
    })
}

/// The pending request of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRow {
    /// Public id.
    pub request_id: String,
    /// Public id of the attempt that asked.
    pub attempt_id: String,
    /// Node index in the definition.
    pub node: i64,
    /// How it is completed.
    pub kind: InteractionKind,
    /// Grows when an aborted step is presented again.
    pub revision: u64,
    /// Whether a submission is being validated.
    pub validating: bool,
    /// What is asked.
    pub contract: StoredValue,
    /// Receipt of the newest submission, when that was rejected.
    pub rejection: Option<String>,
    /// Turns that ended without an accepted submission.
    pub unproductive_turn_ends: u32,
}

/// The pending request of a run's agent step.
pub fn request(reader: &Reader, run: i64) -> Result<Option<RequestRow>> {
    let mut statement = reader.prepare_cached(
        "SELECT q.request_id, a.attempt_id, a.node, q.kind, q.revision,
                EXISTS (SELECT 1 FROM interactive_submissions s WHERE s.request = q.id AND s.outcome = 'validating'),
                q.contract_json, q.contract_blob, q.unproductive_turn_ends,
                (SELECT s.receipt_json FROM interactive_submissions s WHERE s.request = q.id AND s.outcome = 'rejected'
                  ORDER BY s.id DESC LIMIT 1)
           FROM interactive_requests q JOIN node_attempts a ON a.id = q.attempt WHERE q.run = ?1 AND q.status = 'pending'",
    )?;
    let mut rows = statement.query([run])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let contract = row.get_ref(6)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    Ok(Some(RequestRow {
        request_id: row.get(0)?,
        attempt_id: row.get::<_, AttemptId>(1)?.into_string(),
        node: row.get(2)?,
        kind: word("request kind", row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?)?,
        revision: unsigned("request revision", row.get(4)?)?,
        validating: row.get(5)?,
        contract: StoredValue::read(reader, "contract", contract, row.get(7)?)?.unwrap_or_else(StoredValue::null),
        unproductive_turn_ends: row.get(8)?,
        rejection: row.get(9)?,
    }))
}

/// A pending decision of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRow {
    /// Public id.
    pub decision_id: String,
    /// Public id of the attempt that asked.
    pub attempt_id: String,
    /// Node index in the definition.
    pub node: i64,
    /// `sha256:<hex>` of what is shown.
    pub digest: String,
    /// What is decided on.
    pub subject: StoredValue,
    /// Audience, choices, timeout policy.
    pub policy: Value,
    /// Milliseconds since the epoch, time spent paused included.
    pub deadline_at: Option<i64>,
}

/// The pending decision of a run.
pub fn decision(reader: &Reader, run: i64) -> Result<Option<DecisionRow>> {
    let mut statement = reader.prepare_cached(
        "SELECT d.decision_id, a.attempt_id, a.node, d.digest, d.subject_json, d.subject_blob, d.policy_json,
                d.deadline_at + d.held_ms
           FROM human_decisions d JOIN node_attempts a ON a.id = d.attempt WHERE d.run = ?1 AND d.status = 'pending'",
    )?;
    let mut rows = statement.query([run])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let subject = row.get_ref(4)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    let policy = row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?;
    Ok(Some(DecisionRow {
        decision_id: row.get(0)?,
        attempt_id: row.get::<_, AttemptId>(1)?.into_string(),
        node: row.get(2)?,
        digest: row.get(3)?,
        subject: StoredValue::read(reader, "subject", subject, row.get(5)?)?.unwrap_or_else(StoredValue::null),
        policy: serde_json::from_str(policy).map_err(|error| QueryError::corrupt("decision policy", error))?,
        deadline_at: row.get(7)?,
    }))
}

/// Node whose newest attempt failed last; `None` when no node's did.
pub fn latest_failed_node(reader: &Reader, run: i64) -> Result<Option<i64>> {
    let mut statement = reader.prepare_cached(
        "SELECT n.node FROM run_nodes n JOIN node_attempts a ON a.id = n.latest_attempt
          WHERE n.run = ?1 AND a.outcome IN ('failed', 'timed_out') ORDER BY n.latest_attempt DESC LIMIT 1",
    )?;
    Ok(statement.query_row([run], |row| row.get(0)).optional()?)
}
