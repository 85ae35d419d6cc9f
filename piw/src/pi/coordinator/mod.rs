//! Which workflow message Pi gets when, and what the server is told of the branch and of turns. No I/O and no clock of its own.
//!
//! The rules, in the order in which they hold back what follows:
//!
//! 1. Nothing happens without a live view.
//! 2. The branch is reported for the message that the view names, or for none, in every epoch.
//! 3. Turns are reported, oldest first, once the branch is. A turn that began before its message was confirmed waits here.
//! 4. A message is handed over when Pi is idle, no turn is unreported, and the branch was seen without it and reported so. What
//!    Pi is at the very moment decides the extension; an id that was handed over is never handed over again from here.
//! 5. An assistant message completes the step that asked for one.

mod turns;

#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use piw_protocol::canonical;
use piw_protocol::client::ClientError;
use piw_protocol::envelope::Outcome;
use piw_protocol::interaction::{
    BranchReport, InteractionKind, MessageContent, MessageKind, MessageStatus, SessionInteraction, SessionMessage,
    SessionView, StopReason, TurnReceipt, TurnReport,
};
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::{ArtifactRef, ViewValue};
use tokio::time::Instant;

use self::turns::{Bound, Turn};
use super::glue::{Gate, Observation};

/// Pause before the same branch is reported once more because the server still asks for it, before an observation that nobody
/// answered is asked for again, and between looks at a branch in which something is awaited.
const AGAIN: Duration = Duration::from_secs(1);
/// Time after which a message that was handed to Pi and does not appear is worth a notice.
const UNSEEN: Duration = Duration::from_secs(30);

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// The view, or nothing while it is stale.
    View(Option<Arc<SessionView>>),
    /// The extension looked at the branch.
    Observed(Observation),
    /// The branch or Pi's idleness may be another one.
    Changed,
    /// A turn began.
    TurnStart {
        /// The turn.
        turn_id: String,
    },
    /// A turn is over.
    TurnEnd {
        /// The turn.
        turn_id: String,
        /// How it ended.
        stop: StopReason,
        /// Entry of its last assistant message.
        entry_id: Option<String>,
    },
    /// The extension handed a message to Pi, or did not.
    Sent {
        /// The message.
        message_id: String,
        /// Whether it did.
        sent: bool,
    },
    /// The server decided on a branch report.
    BranchReported(Result<(), Trouble>),
    /// The server decided on a turn report.
    TurnReported(Result<TurnReceipt, Trouble>),
    /// The content of a message arrived and was verified, or was not.
    Fetched {
        /// Digest that the message names.
        digest: String,
        /// The content, or a sentence.
        content: Result<MessageContent, String>,
    },
    /// The server decided on an assistant message.
    AssistantReported(Result<(), Trouble>),
    /// The server accepted a submission of this request.
    Accepted {
        /// The request.
        request_id: String,
    },
    /// Time passed.
    Tick,
}

/// Why the server did not do what a report asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It decided against it; the same report again is no use.
    Refused,
    /// It did not decide, or what the report builds on is not there yet.
    Unavailable,
    /// Another coordinator has taken over: nothing is reported until there is a new epoch.
    Fenced,
}

impl Trouble {
    pub(crate) fn of(error: &ClientError) -> Self {
        match error {
            ClientError::Refused { outcome, error, .. } => match error.reason.as_str() {
                "stale_coordinator" => Self::Fenced,
                "message_not_sent" => Self::Unavailable,
                _ if *outcome == Outcome::Unavailable => Self::Unavailable,
                _ => Self::Refused,
            },
            // An answer that cannot be read stays unreadable.
            ClientError::BadAnswer { .. } | ClientError::Frame(_) => Self::Refused,
            _ => Self::Unavailable,
        }
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Ask the extension for an observation.
    Observe {
        /// Its number.
        seq: u64,
        /// The message to look for.
        message_id: Option<String>,
        /// The message whose answer to look for.
        reply_to: Option<String>,
    },
    /// Tell the server of the branch.
    Report(BranchReport),
    /// Tell the server of a turn.
    Turn(TurnReport),
    /// Fetch and verify content.
    Fetch {
        /// The run that it belongs to.
        run_id: String,
        /// What to fetch.
        reference: ArtifactRef,
        /// Digest of the whole.
        digest: String,
    },
    /// Hand a message to Pi.
    Send {
        /// The epoch.
        epoch: u64,
        /// The message.
        message_id: String,
        /// Its run.
        run_id: String,
        /// Whether it starts a turn.
        starts_turn: bool,
        /// What Pi gets.
        message: Box<MessageContent>,
    },
    /// Complete a step with an assistant message.
    Assistant {
        /// The epoch.
        epoch: u64,
        /// The request.
        request_id: String,
        /// Entry of the message.
        entry_id: String,
        /// Its text.
        text: String,
    },
    /// End a turn whose request is gone.
    Abort {
        /// The turn.
        turn_id: String,
    },
    /// Messages may be handed over in this epoch only.
    Epoch(Option<u64>),
    /// What the model may use.
    Gate(Gate),
    /// A turn of a run is open: record it.
    Record {
        /// The run.
        run_id: String,
        /// The entry to begin with.
        from: Option<String>,
    },
    /// The turn that is recorded is over.
    RecordEnd {
        /// How it ended.
        stop: StopReason,
    },
    /// Tell the person.
    Notice(String),
}

/// A branch report that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reported {
    epoch: u64,
    message_id: Option<String>,
    entry_id: Option<String>,
    /// Whether Pi was idle with nothing pending: only then absence counts.
    settled: bool,
    at: Instant,
}

/// How far the hand-over of a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Delivery {
    /// Its content is being fetched.
    Fetching { digest: String },
    /// The extension was asked.
    Asked { message_id: String },
}

/// The coordinator of one session.
pub(crate) struct Coordinator {
    session: String,
    view: Option<Arc<SessionView>>,
    /// Messages that were handed to Pi and were not seen in the branch yet, with the time.
    queued: Vec<(String, Instant)>,
    /// Queued messages that a notice was given of.
    unseen: HashSet<String>,
    observed: Option<Observation>,
    /// Whether something happened since `observed`.
    dirty: bool,
    asked: Option<(u64, Instant)>,
    seq: u64,
    reported: Option<Reported>,
    reporting: Option<Reported>,
    /// When the server last did not do what a report asked; nothing more is asked for a while.
    held: Option<Instant>,
    /// The epoch that the server said is over.
    fenced: Option<u64>,
    delivery: Option<Delivery>,
    /// Source of the message that was handed over last.
    given: Option<String>,
    content: Option<(String, MessageContent)>,
    /// Digest of content that is missing or wrong.
    broken: Option<String>,
    turns: VecDeque<Turn>,
    reporting_turn: bool,
    last_sent: Option<Bound>,
    accepted: HashSet<String>,
    aborted: Option<String>,
    completed: Option<(String, String)>,
    completing: bool,
    recording: Option<String>,
    epoch: Option<u64>,
    gate: Gate,
    looked: Instant,
}

impl Coordinator {
    /// Takes over what the extension holds: a restarted bridge is a new coordinator.
    pub(crate) fn new(session: String, queued: Vec<String>, turn: Option<String>, now: Instant) -> Self {
        Self {
            session,
            view: None,
            queued: queued.into_iter().map(|id| (id, now)).collect(),
            unseen: HashSet::new(),
            observed: None,
            dirty: true,
            asked: None,
            seq: 0,
            reported: None,
            reporting: None,
            held: None,
            fenced: None,
            delivery: None,
            given: None,
            content: None,
            broken: None,
            turns: turn.map(Turn::new).into_iter().collect(),
            reporting_turn: false,
            last_sent: None,
            accepted: HashSet::new(),
            aborted: None,
            completed: None,
            completing: false,
            recording: None,
            epoch: None,
            gate: Gate::default(),
            looked: now,
        }
    }

    /// Takes an input and says what to do, in this order.
    pub(crate) fn take(&mut self, input: Input, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.note(input, now, &mut effects);
        self.guard(&mut effects);
        if let Some(view) = self.view.clone() {
            self.work(&view, now, &mut effects);
            // What was found may open or close the gate.
            self.guard(&mut effects);
        }
        effects
    }

    /// Whether time alone can bring something about.
    pub(crate) fn waits(&self) -> bool {
        !self.queued.is_empty()
            || self.delivery.is_some()
            || self.asked.is_some()
            || self.held.is_some()
            || self.view.as_ref().is_some_and(|view| {
                view.branch_report_required || view.workflow_message.is_some() || asks_for_message(view).is_some()
            })
    }

    fn note(&mut self, input: Input, now: Instant, effects: &mut Vec<Effect>) {
        match input {
            Input::View(view) => self.note_view(view),
            Input::Observed(observation) => self.note_observation(observation),
            Input::Changed => self.dirty = true,
            Input::TurnStart { turn_id } => {
                self.dirty = true;
                if !self.turns.iter().any(|turn| turn.id == turn_id) {
                    self.turns.push_back(Turn::new(turn_id));
                }
            }
            Input::TurnEnd {
                turn_id,
                stop,
                entry_id,
            } => {
                self.dirty = true;
                self.end_turn(&turn_id, stop, entry_id, effects);
            }
            Input::Sent { message_id, sent } => {
                self.dirty = true;
                if matches!(&self.delivery, Some(Delivery::Asked { message_id: asked }) if *asked == message_id) {
                    self.delivery = None;
                    if !sent {
                        self.given = None;
                    }
                }
                if sent && !self.is_queued(&message_id) {
                    self.queued.push((message_id, now));
                }
            }
            Input::BranchReported(result) => self.note_report(result, now),
            Input::TurnReported(result) => {
                self.reporting_turn = false;
                match &result {
                    Err(trouble @ (Trouble::Unavailable | Trouble::Fenced)) => self.trouble(*trouble, now),
                    result => self.note_turn_report(result.as_ref().ok(), effects),
                }
            }
            Input::Fetched { digest, content } => {
                if self.delivery == Some(Delivery::Fetching { digest: digest.clone() }) {
                    self.delivery = None;
                }
                match content {
                    Ok(content) => self.content = Some((digest, content)),
                    Err(why) => self.refuse_content(digest, &why, effects),
                }
            }
            Input::AssistantReported(result) => {
                self.completing = false;
                if let Err(trouble @ (Trouble::Unavailable | Trouble::Fenced)) = result {
                    self.completed = None;
                    self.trouble(trouble, now);
                }
            }
            Input::Accepted { request_id } => {
                self.accepted.insert(request_id);
            }
            Input::Tick => self.tick(now, effects),
        }
    }

    fn note_view(&mut self, view: Option<Arc<SessionView>>) {
        let id = |view: &Option<Arc<SessionView>>| {
            let message = view.as_ref().and_then(|view| view.workflow_message.as_ref());
            message.map(|message| message.workflow_message_id.clone())
        };
        let epoch = |view: &Option<Arc<SessionView>>| view.as_ref().map(|view| view.coordinator_epoch);
        if id(&view) != id(&self.view) {
            self.dirty = true;
        }
        if epoch(&view) != epoch(&self.view) {
            // What the last connection was told does not count on this one.
            self.dirty = true;
            self.reported = None;
            self.reporting = None;
            self.reporting_turn = false;
            self.completing = false;
            self.held = None;
            for turn in &mut self.turns {
                turn.acknowledged = false;
            }
        }
        if let Some(message) = view.as_ref().and_then(|view| view.workflow_message.as_ref())
            && message.kind == MessageKind::Step
            && is_sent(message)
        {
            self.last_sent = Some(Bound::to(message));
        }
        self.view = view;
    }

    fn note_observation(&mut self, observation: Observation) {
        if self.asked.is_some_and(|(seq, _)| seq == observation.seq) {
            self.asked = None;
            self.dirty = false;
        }
        if let (Some(id), Some(_)) = (&observation.message_id, &observation.entry_id) {
            self.queued.retain(|(queued, _)| queued != id);
        }
        self.observed = Some(observation);
    }

    fn note_report(&mut self, result: Result<(), Trouble>, now: Instant) {
        let Some(made) = self.reporting.take() else { return };
        match result {
            Ok(()) => self.reported = Some(Reported { at: now, ..made }),
            // The view may have moved on while the report was under way: the next one tells.
            Err(trouble) => {
                self.trouble(trouble, now);
                self.dirty = true;
            }
        }
    }

    fn trouble(&mut self, trouble: Trouble, now: Instant) {
        self.held = Some(now);
        if trouble == Trouble::Fenced {
            self.fenced = self.view.as_ref().map(|view| view.coordinator_epoch);
        }
    }

    fn tick(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.asked.is_some_and(|(_, at)| now >= at + AGAIN) {
            self.asked = None;
            self.dirty = true;
        }
        if now >= self.looked + AGAIN && self.waits() {
            self.dirty = true;
        }
        for (id, at) in &self.queued {
            if now >= *at + UNSEEN && self.unseen.insert(id.clone()) {
                effects.push(Effect::Notice(
                    "Pi was given a message of a workflow and does not show it; /reload lets it be given once more"
                        .into(),
                ));
            }
        }
    }

    fn is_queued(&self, id: &str) -> bool {
        self.queued.iter().any(|(queued, _)| queued == id)
    }

    /// Keeps the epoch and the gate of the extension as they have to be.
    fn guard(&mut self, effects: &mut Vec<Effect>) {
        let epoch = self
            .view
            .as_ref()
            .filter(|view| view.coordinator_active && !view.branch_report_required)
            .map(|view| view.coordinator_epoch);
        if epoch != self.epoch {
            self.epoch = epoch;
            effects.push(Effect::Epoch(epoch));
        }
        let gate = self.wanted_gate();
        if gate != self.gate {
            self.gate = gate.clone();
            effects.push(Effect::Gate(gate));
        }
    }

    fn wanted_gate(&self) -> Gate {
        let owned = self.turns.iter().any(Turn::is_owned);
        let Some(view) = &self.view else {
            let blocked = owned.then(|| {
                "the connection to the workflow server is lost; tools wait until it is back. End your turn with one \
                 sentence that says so"
                    .to_owned()
            });
            // A limit stays while nobody can say that it is over.
            let allowed = self.gate.allowed.clone().filter(|_| owned);
            return Gate {
                owned,
                allowed,
                blocked,
            };
        };
        let request = view.interaction.as_ref().filter(|request| {
            request.kind != InteractionKind::Decision && !request.paused && request.status == "pending"
        });
        let allowed = request.and_then(|request| {
            let delivered = self
                .last_sent
                .as_ref()
                .is_some_and(|sent| sent.source_id == request.request_id);
            let current = self.given.as_ref() == Some(&request.request_id);
            (delivered || current).then(|| request.allowed_tools.clone()).flatten()
        });
        Gate {
            owned,
            allowed,
            blocked: None,
        }
    }

    fn work(&mut self, view: &SessionView, now: Instant, effects: &mut Vec<Effect>) {
        if self.held.is_some_and(|at| now < at + AGAIN) {
            return;
        }
        self.held = None;
        if self.fenced == Some(view.coordinator_epoch) {
            return;
        }
        self.abort(view, effects);
        let message = view.workflow_message.as_ref();
        let id = message.map(|message| message.workflow_message_id.clone());
        if (self.dirty || self.observed.as_ref().is_none_or(|seen| seen.message_id != id)) && self.is_wanted(view) {
            if self.asked.is_none() {
                self.seq += 1;
                self.asked = Some((self.seq, now));
                self.looked = now;
                effects.push(Effect::Observe {
                    seq: self.seq,
                    message_id: id,
                    reply_to: self.awaited(view),
                });
            }
            return;
        }
        let Some(seen) = self.observed.clone() else { return };
        if seen.message_id != id {
            return;
        }
        if self.report(view, &seen, now, effects) {
            return;
        }
        let is_reported = self
            .reported
            .as_ref()
            .is_some_and(|made| made.epoch == view.coordinator_epoch && made.message_id == id);
        if !is_reported || !view.coordinator_active {
            return;
        }
        self.report_turns(view, &seen, effects);
        if view.branch_report_required {
            return;
        }
        self.complete(view, &seen, effects);
        if let Some(message) = message {
            self.deliver(view, message, &seen, effects);
        }
    }

    /// Whether anything depends on the branch. A session without workflows is left alone once it was reported.
    fn is_wanted(&self, view: &SessionView) -> bool {
        view.workflow_message.is_some()
            || view.branch_report_required
            || view.open_workflow_turn.is_some()
            || asks_for_message(view).is_some()
            || !self.turns.is_empty()
            || self.reported.is_none()
    }

    /// Reports the branch when the server does not know it; says whether that is under way.
    fn report(&mut self, view: &SessionView, seen: &Observation, now: Instant, effects: &mut Vec<Effect>) -> bool {
        if self.reporting.is_some() {
            return true;
        }
        // It was handed over and is on its way into the branch: neither present nor absent.
        let in_transit =
            seen.entry_id.is_none() && (seen.queued || seen.message_id.as_deref().is_some_and(|id| self.is_queued(id)));
        if in_transit {
            return true;
        }
        // A turn that is not told yet would count as lost.
        let idle = seen.idle && self.turns.is_empty();
        let settled = idle && !seen.pending;
        let is_due = match &self.reported {
            Some(made) if made.epoch == view.coordinator_epoch && made.message_id == seen.message_id => {
                let moved = made.entry_id != seen.entry_id && (seen.entry_id.is_some() || settled);
                let settles = seen.entry_id.is_none() && settled && !made.settled;
                let asked = view.branch_report_required && now >= made.at + AGAIN;
                moved || settles || asked
            }
            _ => true,
        };
        if !is_due {
            return false;
        }
        self.reporting = Some(Reported {
            epoch: view.coordinator_epoch,
            message_id: seen.message_id.clone(),
            entry_id: seen.entry_id.clone(),
            settled,
            at: now,
        });
        effects.push(Effect::Report(BranchReport {
            target_session_id: self.session.clone(),
            coordinator_epoch: view.coordinator_epoch,
            workflow_message_id: seen.message_id.clone(),
            pi_session_entry_id: seen.entry_id.clone(),
            is_idle: idle,
            has_pending_messages: seen.pending,
        }));
        true
    }

    /// The delivered message of a step that asks for an assistant message.
    fn awaited(&self, view: &SessionView) -> Option<String> {
        let request = asks_for_message(view)?;
        let current = view.workflow_message.as_ref();
        let current = current.filter(|message| message.source_id == request.request_id);
        let earlier = self.last_sent.as_ref();
        let earlier = earlier.filter(|sent| sent.source_id == request.request_id);
        current
            .map(|message| message.workflow_message_id.clone())
            .or_else(|| earlier.map(|sent| sent.message_id.clone()))
    }

    /// Completes a step that asks for an assistant message with the one that the branch has.
    fn complete(&mut self, view: &SessionView, seen: &Observation, effects: &mut Vec<Effect>) {
        let (Some(request), Some(reply), true) = (asks_for_message(view), &seen.reply, seen.idle) else {
            return;
        };
        let key = (request.request_id.clone(), reply.entry_id.clone());
        if self.completing || !self.turns.is_empty() || self.completed.as_ref() == Some(&key) {
            return;
        }
        self.completing = true;
        self.completed = Some(key);
        effects.push(Effect::Assistant {
            epoch: view.coordinator_epoch,
            request_id: request.request_id.clone(),
            entry_id: reply.entry_id.clone(),
            text: reply.text.clone(),
        });
    }

    fn deliver(&mut self, view: &SessionView, message: &SessionMessage, seen: &Observation, effects: &mut Vec<Effect>) {
        let free = seen.entry_id.is_none() && seen.idle && !seen.pending && !seen.queued;
        let id = &message.workflow_message_id;
        if !message.deliver || !free || !self.turns.is_empty() || self.delivery.is_some() || self.is_queued(id) {
            return;
        }
        if self.broken.as_ref() == Some(&message.content_digest) {
            return;
        }
        let ready = self
            .content
            .as_ref()
            .filter(|(digest, _)| *digest == message.content_digest)
            .map(|(_, content)| content.clone());
        let content = match (ready, ViewValue::from_wire(&message.content)) {
            (Some(content), _) => content,
            (None, ViewValue::Artifact(reference)) => {
                self.delivery = Some(Delivery::Fetching {
                    digest: message.content_digest.clone(),
                });
                effects.push(Effect::Fetch {
                    run_id: message.run_id.clone(),
                    reference,
                    digest: message.content_digest.clone(),
                });
                return;
            }
            (None, ViewValue::Inline(value)) => match read_content(&value, &message.content_digest) {
                Ok(content) => content,
                Err(why) => {
                    self.refuse_content(message.content_digest.clone(), &why, effects);
                    return;
                }
            },
        };
        if let Err(why) = fits(&content, message) {
            self.refuse_content(message.content_digest.clone(), &why, effects);
            return;
        }
        self.delivery = Some(Delivery::Asked { message_id: id.clone() });
        self.given = Some(message.source_id.clone());
        self.content = None;
        // The limits of the step hold from its first call on.
        self.guard(effects);
        effects.push(Effect::Send {
            epoch: view.coordinator_epoch,
            message_id: id.clone(),
            run_id: message.run_id.clone(),
            starts_turn: message.starts_turn,
            message: Box::new(content),
        });
    }

    fn refuse_content(&mut self, digest: String, why: &str, effects: &mut Vec<Effect>) {
        if self.broken.as_ref() != Some(&digest) {
            effects.push(Effect::Notice(format!(
                "a message of a workflow cannot be shown: {why}"
            )));
            self.broken = Some(digest);
        }
    }

    /// Ends a live turn whose request was cancelled or ran out of time, never one whose submission was accepted.
    fn abort(&mut self, view: &SessionView, effects: &mut Vec<Effect>) {
        let Some(turn) = self.turns.back().filter(|turn| turn.end.is_none()) else {
            return;
        };
        if self.aborted.as_ref() == Some(&turn.id) {
            return;
        }
        // It was given to Pi while its source was withdrawn.
        let withdrawn = view.workflow_message.as_ref().filter(|message| {
            let mine = turn
                .bound
                .as_ref()
                .is_none_or(|bound| bound.message_id == message.workflow_message_id);
            mine && message.kind == MessageKind::Step && message.status == MessageStatus::Cancelled && is_sent(message)
        });
        let source = match (withdrawn, &turn.bound) {
            (Some(message), _) => &message.source_id,
            (None, Some(bound)) if bound.kind == MessageKind::Step && is_over(view, bound) => &bound.source_id,
            _ => return,
        };
        if self.accepted.contains(source) {
            return;
        }
        self.aborted = Some(turn.id.clone());
        effects.push(Effect::Abort {
            turn_id: turn.id.clone(),
        });
    }
}

/// Whether the request of a step is gone because it, or its run, was cancelled or ran out of time.
fn is_over(view: &SessionView, bound: &Bound) -> bool {
    let request = view.interaction.as_ref();
    if request.is_some_and(|request| request.request_id == bound.source_id) {
        return false;
    }
    let Some(run) = view.run.as_ref().filter(|run| run.run_id == bound.run_id) else {
        return false;
    };
    let ended = |status: DisplayStatus| matches!(status, DisplayStatus::Cancelled | DisplayStatus::TimedOut);
    let node = run
        .nodes
        .iter()
        .find(|node| Some(&node.node_id) == bound.node_id.as_ref());
    ended(run.display.status) || node.and_then(|node| node.status).is_some_and(ended)
}

/// The pending request that an assistant message completes.
fn asks_for_message(view: &SessionView) -> Option<&SessionInteraction> {
    view.interaction
        .as_ref()
        .filter(|request| request.kind == InteractionKind::Assistant && !request.paused && request.status == "pending")
}

/// Whether an entry holds it, whatever became of its source.
fn is_sent(message: &SessionMessage) -> bool {
    message.status == MessageStatus::Sent || message.pi_session_entry_id.is_some()
}

/// Reads inline content and checks it against the digest that the message names.
fn read_content(value: &serde_json::Value, digest: &str) -> Result<MessageContent, String> {
    let bytes = canonical::to_vec(value).map_err(|error| format!("its content has no canonical form: {error}"))?;
    check_digest(&bytes, digest)?;
    serde_json::from_value(value.clone()).map_err(|error| format!("its content cannot be read: {error}"))
}

/// Reads fetched content, whose bytes were verified against the reference, and checks the message's own digest.
pub(crate) fn parse_content(bytes: &[u8], digest: &str) -> Result<MessageContent, String> {
    check_digest(bytes, digest)?;
    serde_json::from_slice(bytes).map_err(|error| format!("its content cannot be read: {error}"))
}

fn check_digest(bytes: &[u8], digest: &str) -> Result<(), String> {
    let found = format!("sha256:{}", canonical::sha256_hex(bytes));
    if found == digest {
        return Ok(());
    }
    Err(format!("its content is {found}, expected {digest}"))
}

/// Whether content belongs to the message: its type is the kind's, and its hidden details name the message.
fn fits(content: &MessageContent, message: &SessionMessage) -> Result<(), String> {
    let kind = message.kind.custom_type();
    if content.custom_type != kind {
        return Err(format!(
            "its content is of type {:?}, expected {kind:?}",
            content.custom_type
        ));
    }
    let named = content.details.get("workflowMessageId").and_then(|id| id.as_str());
    if named != Some(&message.workflow_message_id) {
        return Err(format!(
            "its details name the message {named:?}, expected {:?}",
            message.workflow_message_id
        ));
    }
    Ok(())
}
