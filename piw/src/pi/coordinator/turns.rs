//! Turns of the model: binding them to the message that they answer, and reporting them in order.

use piw_protocol::interaction::{
    MessageKind, SessionMessage, SessionView, StopReason, TurnOwnership, TurnReceipt, TurnReport, TurnState,
};

use super::{Coordinator, Effect, Observation, is_sent};

/// The message that a turn answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) message_id: String,
    pub(super) run_id: String,
    pub(super) kind: MessageKind,
    /// Of a step: its request.
    pub(super) source_id: String,
    /// Of a step: its node, once the view named it.
    pub(super) node_id: Option<String>,
    pub(super) entry_id: Option<String>,
}

impl Bound {
    pub(super) fn to(message: &SessionMessage) -> Self {
        Self {
            message_id: message.workflow_message_id.clone(),
            run_id: message.run_id.clone(),
            kind: message.kind,
            source_id: message.source_id.clone(),
            node_id: None,
            entry_id: message.pi_session_entry_id.clone(),
        }
    }
}

/// One turn, from its start until the server knows its end.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) id: String,
    pub(super) bound: Option<Bound>,
    /// Whether this connection was told of its start.
    pub(super) acknowledged: bool,
    /// Whether the server ever said that it is open.
    active: bool,
    pub(super) end: Option<(StopReason, Option<String>)>,
}

impl Turn {
    pub(super) const fn new(id: String) -> Self {
        Self {
            id,
            bound: None,
            acknowledged: false,
            active: false,
            end: None,
        }
    }

    /// Whether a workflow owns it and it goes on.
    pub(super) const fn is_owned(&self) -> bool {
        self.active && self.end.is_none()
    }
}

impl Coordinator {
    pub(super) fn end_turn(
        &mut self,
        turn_id: &str,
        stop: StopReason,
        entry_id: Option<String>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.id == turn_id) {
            turn.end = Some((stop, entry_id));
        }
        if self.recording.as_deref() == Some(turn_id) {
            self.recording = None;
            effects.push(Effect::RecordEnd { stop });
        }
    }

    /// Reports the oldest turn that the server does not know.
    pub(super) fn report_turns(&mut self, view: &SessionView, seen: &Observation, effects: &mut Vec<Effect>) {
        while !self.reporting_turn {
            let Some(index) = self
                .turns
                .iter()
                .position(|turn| !turn.acknowledged || turn.end.is_some())
            else {
                return;
            };
            if self.turns[index].bound.is_none() {
                self.turns[index].bound = self.binding(view, seen);
            }
            let turn = &self.turns[index];
            let Some(bound) = &turn.bound else {
                if turn.end.is_none() {
                    return;
                }
                // It was nobody's: no message was open for it.
                self.turns.remove(index);
                continue;
            };
            let (state, end) = match &turn.end {
                Some(end) if turn.acknowledged => (TurnState::Ended, Some(end.clone())),
                _ => (TurnState::Started, None),
            };
            self.reporting_turn = true;
            effects.push(Effect::Turn(TurnReport {
                state,
                workflow_message_id: bound.message_id.clone(),
                workflow_turn_id: turn.id.clone(),
                run_id: bound.run_id.clone(),
                target_session_id: self.session.clone(),
                coordinator_epoch: view.coordinator_epoch,
                stop_reason: end.as_ref().map(|(stop, _)| *stop),
                response_session_entry_id: end.and_then(|(_, entry)| entry),
            }));
        }
    }

    /// The open message that a turn of now answers: the one that the view names, once it is in the branch, or the last one of
    /// the step that is still asked for.
    fn binding(&self, view: &SessionView, seen: &Observation) -> Option<Bound> {
        let node = |source: &str| {
            let request = view.interaction.as_ref();
            let request = request.filter(|request| request.request_id == source);
            request.map(|request| request.node_id.clone())
        };
        if let Some(message) = view.workflow_message.as_ref().filter(|message| {
            let starts = matches!(
                message.kind,
                MessageKind::Step | MessageKind::Terminal | MessageKind::FollowUp
            );
            starts && (is_sent(message) || seen.entry_id.is_some())
        }) {
            let mut bound = Bound::to(message);
            bound.node_id = node(&bound.source_id);
            bound.entry_id = seen.entry_id.clone().or(bound.entry_id);
            return Some(bound);
        }
        let mut bound = self.last_sent.clone()?;
        let request = view.interaction.as_ref()?;
        if request.request_id != bound.source_id || request.paused {
            return None;
        }
        bound.node_id = node(&bound.source_id);
        Some(bound)
    }

    /// The server decided on the report that was under way; no receipt when it decided against it.
    pub(super) fn note_turn_report(&mut self, receipt: Option<&TurnReceipt>, effects: &mut Vec<Effect>) {
        let Some(index) = self
            .turns
            .iter()
            .position(|turn| !turn.acknowledged || turn.end.is_some())
        else {
            return;
        };
        let turn = &mut self.turns[index];
        if receipt.is_some_and(|receipt| receipt.ownership == TurnOwnership::Active) && !turn.acknowledged {
            turn.acknowledged = true;
            let first = !std::mem::replace(&mut turn.active, true);
            let Some(bound) = &turn.bound else { return };
            if first && turn.end.is_none() {
                self.recording = Some(turn.id.clone());
                effects.push(Effect::Record {
                    run_id: bound.run_id.clone(),
                    from: bound.entry_id.clone(),
                });
            }
            return;
        }
        // The end is stored, or the turn was over or nobody's before: nothing more is said of it.
        let turn = self.turns.remove(index);
        if turn.is_some_and(|turn| self.recording.as_ref() == Some(&turn.id)) {
            self.recording = None;
            effects.push(Effect::RecordEnd { stop: StopReason::Lost });
        }
    }
}
