//! The client's state machine: what is wanted, what was sent, what to do next. No I/O and no clock of its own; the driver
//! feeds it commands, frames, failures and the time, and writes the frames that it queues.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::options::ClientOptions;
use super::state::{ConnectionState, Freshness, Retry};
use super::subscription::{Shown, Subscription, SubscriptionSpec};
use super::{Call, ClientError};
use crate::canonical::CanonicalJson;
use crate::envelope::{
    self, CONNECTION_SUBSCRIPTION, Event, EventKind, Hello, Outcome, Request, Response, ServerMessage,
};
use crate::ops::{Operation, OperationError};

/// Reason of operations of the closed list that are not built (decision 15).
const NOT_BUILT: &str = "not_built";

/// What a handle asks of the actor.
#[derive(Debug)]
pub(super) enum Command {
    Call {
        call: Call,
        reply: oneshot::Sender<Result<Response, ClientError>>,
    },
    Watch {
        id: String,
        spec: SubscriptionSpec,
        shown: watch::Sender<Shown>,
    },
    Unwatch {
        id: String,
    },
}

/// A call that has no answer yet.
struct Pending {
    call: Call,
    reply: oneshot::Sender<Result<Response, ClientError>>,
    /// Connections that broke while it had no answer.
    losses: u32,
}

/// Whose answer a request id waits for.
enum Waiting {
    Call(u64),
    Watch(String),
    Unwatch,
    SignOfLife,
}

/// Where the connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Down,
    AwaitingHello { since: Instant },
    Ready,
}

pub(super) struct Core {
    options: ClientOptions,
    target: String,
    state: watch::Sender<ConnectionState>,
    phase: Phase,
    /// When bytes of the server arrived last.
    heard: Instant,
    /// When a sign of life was asked for, while none has come.
    probed: Option<Instant>,
    /// Failed attempts in a row; reset by a hello and a restored subscription set.
    failures: u32,
    /// Whether there ever was a hello.
    greeted: bool,
    /// The failure that spent the budget, while it is spent.
    blocked: Option<Retry>,
    stopped: Option<ClientError>,
    /// Calls without an answer, in the order in which they were made.
    calls: BTreeMap<u64, Pending>,
    next_call: u64,
    /// Answers that this connection owes.
    waiting: HashMap<String, Waiting>,
    request_prefix: String,
    next_request: u64,
    subscriptions: BTreeMap<String, Subscription>,
    /// Frames to write.
    outgoing: VecDeque<Vec<u8>>,
}

impl Core {
    pub(super) fn new(options: ClientOptions, target: String, state: watch::Sender<ConnectionState>) -> Self {
        Self {
            options,
            target,
            state,
            phase: Phase::Down,
            heard: Instant::now(),
            probed: None,
            failures: 0,
            greeted: false,
            blocked: None,
            stopped: None,
            calls: BTreeMap::new(),
            next_call: 0,
            waiting: HashMap::new(),
            request_prefix: uuid::Uuid::new_v4().to_string(),
            next_request: 0,
            subscriptions: BTreeMap::new(),
            outgoing: VecDeque::new(),
        }
    }

    /// The next frame to write.
    pub(super) fn next_frame(&mut self) -> Option<Vec<u8>> {
        self.outgoing.pop_front()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    pub(super) fn hello_timeout(&self) -> Duration {
        self.options.hello_timeout
    }

    pub(super) fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Call { call, reply } => self.call(call, reply),
            Command::Watch { id, spec, shown } => self.watch(id, Subscription::new(spec, shown), now),
            Command::Unwatch { id } => self.unwatch(&id, now),
        }
    }

    fn call(&mut self, call: Call, reply: oneshot::Sender<Result<Response, ClientError>>) {
        let refusal = match (&self.stopped, &self.blocked) {
            (Some(error), _) => Some(error.clone()),
            (None, Some(retry)) => Some(self.unreachable(retry)),
            (None, None) => None,
        };
        if let Some(error) = refusal {
            // The caller may be gone; then nobody wants the answer.
            drop(reply.send(Err(error)));
            return;
        }
        let key = self.next_call;
        self.next_call += 1;
        self.calls.insert(key, Pending { call, reply, losses: 0 });
        if self.phase == Phase::Ready {
            self.send_call(key);
        }
    }

    fn send_call(&mut self, key: u64) {
        let request_id = self.request_id();
        let Some(pending) = self.calls.get(&key) else { return };
        let call = &pending.call;
        let request = Request {
            request_id: request_id.clone(),
            client_id: self.options.client_id.clone(),
            operation: call.operation,
            idempotency_key: call.idempotency_key.clone(),
            run_id: call.run_id.clone(),
            expected_revision: call.expected_revision,
            payload: call.payload.clone(),
        };
        match request.encode() {
            Ok(frame) => {
                self.outgoing.push_back(frame);
                self.waiting.insert(request_id, Waiting::Call(key));
            }
            Err(error) => {
                if let Some(pending) = self.calls.remove(&key) {
                    drop(pending.reply.send(Err(error.into())));
                }
            }
        }
    }

    fn watch(&mut self, id: String, subscription: Subscription, now: Instant) {
        if let Some(error) = &self.stopped {
            subscription.show(Freshness::Stopped(error.clone()));
            return;
        }
        if let Some(retry) = &self.blocked {
            subscription.show(Freshness::Blocked(retry.clone()));
        }
        self.subscriptions.insert(id, subscription);
        // One at a time: while another one is being asked for, this one waits for its turn.
        if self.phase == Phase::Ready {
            self.restore_next(now);
        }
    }

    fn unwatch(&mut self, id: &str, now: Instant) {
        let Some(subscription) = self.subscriptions.remove(id) else {
            return;
        };
        if self.phase == Phase::Ready {
            if subscription.is_known_to_server() {
                let payload = CanonicalJson::new(&serde_json::json!({ "subscriptionId": id }));
                let run_id = subscription.spec.run_id.clone();
                self.send_control(
                    subscription.spec.unwatch,
                    run_id,
                    payload.unwrap_or_default(),
                    Waiting::Unwatch,
                );
            }
            self.restore_next(now);
        }
    }

    fn send_watch(&mut self, id: &str, now: Instant) {
        let Some(subscription) = self.subscriptions.get_mut(id) else {
            return;
        };
        subscription.asked(now + self.options.watch_timeout);
        let spec = subscription.spec.clone();
        self.send_control(spec.watch, spec.run_id, spec.payload, Waiting::Watch(id.to_owned()));
    }

    /// Sends a request that no caller waits for.
    fn send_control(&mut self, operation: Operation, run_id: Option<String>, payload: CanonicalJson, waiting: Waiting) {
        let request_id = self.request_id();
        let request = Request {
            request_id: request_id.clone(),
            client_id: self.options.client_id.clone(),
            operation,
            idempotency_key: request_id.clone(),
            run_id,
            expected_revision: None,
            payload,
        };
        match request.encode() {
            Ok(frame) => {
                self.outgoing.push_back(frame);
                self.waiting.insert(request_id, waiting);
            }
            Err(error) => {
                if let Waiting::Watch(id) = waiting {
                    self.refuse_watch(&id, OperationError::new("too_large", error.to_string()));
                }
            }
        }
    }

    fn request_id(&mut self) -> String {
        self.next_request += 1;
        format!("{}.{}", self.request_prefix, self.next_request)
    }

    /// A stream was opened; the server's hello comes first.
    pub(super) fn connected(&mut self, now: Instant) {
        self.phase = Phase::AwaitingHello { since: now };
        self.heard(now);
    }

    /// Bytes of the server have arrived.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.probed = None;
    }

    /// Takes a frame of the server.
    ///
    /// # Errors
    /// When the frame breaks the protocol; the connection must then be dropped.
    pub(super) fn frame(&mut self, frame: &[u8], now: Instant) -> Result<(), String> {
        let message = envelope::parse_server_message(frame).map_err(|error| error.to_string())?;
        match (message, self.phase) {
            (ServerMessage::Event(event), _) if is_farewell(&event) => return Err(reason(&event).message),
            (ServerMessage::Hello(hello), Phase::AwaitingHello { .. }) => self.hello(hello, now),
            (ServerMessage::Response(response), Phase::Ready) => return self.response(response, now),
            (ServerMessage::Event(event), Phase::Ready) => return self.event(event, now),
            (ServerMessage::Hello(_), _) => return Err("a second hello".to_owned()),
            _ => return Err("the first message is no hello".to_owned()),
        }
        Ok(())
    }

    fn hello(&mut self, hello: Hello, now: Instant) {
        if hello.package_version != self.options.package_version {
            let client = self.options.package_version.clone();
            self.stop(&ClientError::VersionMismatch {
                client,
                server: hello.package_version,
            });
            return;
        }
        self.phase = Phase::Ready;
        self.greeted = true;
        self.blocked = None;
        self.state.send_replace(ConnectionState::Connected {
            connection_id: hello.connection_id,
            package_version: hello.package_version,
        });
        self.calls.retain(|_, pending| !pending.reply.is_closed());
        let calls: Vec<u64> = self.calls.keys().copied().collect();
        for key in calls {
            self.send_call(key);
        }
        self.restore_next(now);
    }

    fn is_restoring(&self) -> bool {
        self.subscriptions.values().any(Subscription::is_asked)
    }

    /// Asks for the next subscription that this connection does not have. When none is left, the retry budget is whole again,
    /// unless a call that lost its connection before has no answer yet: it may be what breaks the connections.
    fn restore_next(&mut self, now: Instant) {
        if self.is_restoring() {
            return;
        }
        let next = self
            .subscriptions
            .iter()
            .find(|(_, subscription)| subscription.is_wanted(now));
        match next.map(|(id, _)| id.clone()) {
            Some(id) => self.send_watch(&id, now),
            None => {
                let settled = self.subscriptions.values().all(Subscription::is_settled);
                if settled && self.calls.values().all(|pending| pending.losses == 0) {
                    self.failures = 0;
                }
            }
        }
    }

    fn response(&mut self, response: Response, now: Instant) -> Result<(), String> {
        match self.waiting.remove(&response.request_id) {
            Some(Waiting::Call(key)) => {
                if let Some(pending) = self.calls.remove(&key) {
                    drop(pending.reply.send(Ok(response)));
                }
            }
            Some(Waiting::Watch(id)) => self.watch_answered(&id, response, now),
            Some(Waiting::Unwatch | Waiting::SignOfLife) => {}
            None => return Err(format!("an answer to the unknown request {:?}", response.request_id)),
        }
        self.restore_next(now);
        Ok(())
    }

    fn watch_answered(&mut self, id: &str, response: Response, now: Instant) {
        let Some(subscription) = self.subscriptions.get_mut(id) else {
            return;
        };
        if response.outcome.is_success() {
            subscription.installed();
            return;
        }
        let error = response
            .error
            .unwrap_or_else(|| OperationError::new(response.outcome.name(), "no reason given"));
        if response.outcome == Outcome::Unavailable && error.reason != NOT_BUILT {
            subscription.dropped(&error, &self.options, now);
        } else {
            self.refuse_watch(id, error);
        }
    }

    fn refuse_watch(&mut self, id: &str, error: OperationError) {
        if let Some(subscription) = self.subscriptions.remove(id) {
            subscription.show(Freshness::Refused(error));
        }
    }

    fn event(&mut self, event: Event, now: Instant) -> Result<(), String> {
        let Some(subscription) = self.subscriptions.get_mut(&event.subscription_id) else {
            // It was given up while the event was on its way.
            return Ok(());
        };
        if event.event == EventKind::Unavailable {
            let error = reason(&event);
            subscription.dropped(&error, &self.options, now);
            return Ok(());
        }
        if event.event != subscription.spec.event {
            return Err(format!(
                "event {} for a subscription of another kind",
                event.event.name()
            ));
        }
        if event.run_id.is_some() && event.run_id != subscription.spec.run_id {
            return Err(format!(
                "an event of run {:?} for a subscription to another one",
                event.run_id
            ));
        }
        subscription.deliver(Arc::new(event.payload));
        Ok(())
    }

    /// The connection is gone or could not be made; answers the delay before the next attempt.
    pub(super) fn lost(&mut self, reason: String, refused: bool) -> Duration {
        self.phase = Phase::Down;
        self.outgoing.clear();
        self.waiting.clear();
        self.failures = self.failures.saturating_add(1);
        let budget = if self.greeted {
            self.options.retry_budget
        } else {
            self.options.connect_budget
        };
        let spent = refused || self.blocked.is_some() || self.failures >= budget;
        let retry = Retry {
            attempt: self.failures,
            delay: self.options.delay(if spent { budget } else { self.failures }, budget),
            reason,
        };
        let delay = retry.delay;
        for pending in self.calls.values_mut() {
            pending.losses += 1;
        }
        for subscription in self.subscriptions.values_mut() {
            subscription.lost(&retry, spent);
        }
        if spent {
            let error = self.unreachable(&retry);
            self.fail_calls(&error);
            self.blocked = Some(retry.clone());
            self.state.send_replace(ConnectionState::Blocked(retry));
        } else {
            self.state.send_replace(ConnectionState::Reconnecting(retry));
        }
        delay
    }

    fn unreachable(&self, retry: &Retry) -> ClientError {
        ClientError::Unreachable {
            target: self.target.clone(),
            attempts: retry.attempt,
            reason: retry.reason.clone(),
        }
    }

    fn fail_calls(&mut self, error: &ClientError) {
        for (_, pending) in std::mem::take(&mut self.calls) {
            drop(pending.reply.send(Err(error.clone())));
        }
    }

    fn stop(&mut self, error: &ClientError) {
        self.phase = Phase::Down;
        self.outgoing.clear();
        self.fail_calls(error);
        for (_, subscription) in std::mem::take(&mut self.subscriptions) {
            subscription.show(Freshness::Stopped(error.clone()));
        }
        self.stopped = Some(error.clone());
        self.state.send_replace(ConnectionState::Stopped(error.clone()));
    }

    /// When [`Core::timer`] has something to do.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        match self.phase {
            Phase::Down => None,
            Phase::AwaitingHello { since } => Some(since + self.options.hello_timeout),
            Phase::Ready => {
                let timers = self.subscriptions.values().filter_map(Subscription::timer);
                timers.chain(self.silent_at()).min()
            }
        }
    }

    /// When a silent server is asked for a sign of life, or has given none. Nobody is misled by silence while nothing is watched.
    fn silent_at(&self) -> Option<Instant> {
        let since = self.probed.unwrap_or(self.heard);
        (!self.subscriptions.is_empty()).then(|| since + self.options.silence)
    }

    /// Asks a silent server for a sign of life.
    ///
    /// # Errors
    /// When it has given none.
    fn listen(&mut self, now: Instant) -> Result<(), String> {
        let Some(due) = self.silent_at().filter(|due| now >= *due) else {
            return Ok(());
        };
        // Whoever comes very late was stopped itself: the answer may be there, unread.
        if self.probed.is_some() && now < due + self.options.silence {
            let seconds = now.duration_since(self.heard).as_secs();
            return Err(format!("the server has given no sign of life for {seconds} s"));
        }
        self.probed = Some(now);
        let payload = CanonicalJson::new(&serde_json::json!({})).unwrap_or_default();
        self.send_control(Operation::ServerStatus, None, payload, Waiting::SignOfLife);
        Ok(())
    }

    /// Does what is due.
    ///
    /// # Errors
    /// When the server is too late; the connection must then be dropped.
    pub(super) fn timer(&mut self, now: Instant) -> Result<(), String> {
        match self.phase {
            Phase::AwaitingHello { since } if now >= since + self.options.hello_timeout => {
                return Err("the server sent no hello".to_owned());
            }
            Phase::Down | Phase::AwaitingHello { .. } => {}
            Phase::Ready => {
                if self
                    .subscriptions
                    .values()
                    .any(|subscription| subscription.is_late(now))
                {
                    return Err("the server did not answer a watch request".to_owned());
                }
                self.listen(now)?;
                self.restore_next(now);
            }
        }
        Ok(())
    }
}

/// Whether the server says that it closes the connection.
fn is_farewell(event: &Event) -> bool {
    event.event == EventKind::Unavailable && event.subscription_id == CONNECTION_SUBSCRIPTION
}

/// What an `unavailable` event says.
fn reason(event: &Event) -> OperationError {
    let unknown = |_| OperationError::new("unavailable", "the server gave no reason");
    event.payload.decode().unwrap_or_else(unknown)
}
