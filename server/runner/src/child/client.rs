//! The runner's side of its private protocol: requests with answers, orders from the server.
//!
//! One task reads the channel. Answers are matched to requests by message id; orders, the loss of the claim and the end of the
//! channel become an [`Order`], which only ever gets stricter. A request never returns an answer after the claim was lost.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piw_protocol::child::{
    CHILD_SCHEMA, ChildBody, ChildMessage, PushAction, ReplyOutcome, ReplyPayload, RunnerLaunch, ServerReply, ToRunner,
};
use piw_protocol::frame;
use piw_protocol::run::ErrorInfo;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;

use super::channel::{Reader, Writer};

/// Stands for a revision that was not told yet; revisions stay below 2^53.
const UNKNOWN: u64 = u64::MAX;
/// Bytes of JSON of one console line that is sent on.
const PRINT_LIMIT: usize = 128 * 1024;
/// Bytes of text from which on no further line joins a message.
const PRINT_BATCH: usize = 32 * 1024;

/// What the runner has to do next, from mild to strict. A stricter order is never taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Go on.
    Continue,
    /// Finish the running node, then exit.
    Stop,
    /// Abort the running node and exit.
    Cancel,
    /// Another generation owns the run: abort the running node, tell nothing, exit.
    ClaimLost,
    /// The server is gone: abort the running node and exit.
    Closed,
}

/// Why a request was not accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum RequestError {
    /// The server refused it; nothing changed.
    #[error("the server refused {what}: {}", error.message)]
    Rejected {
        /// Name of the message.
        what: &'static str,
        /// Why.
        error: ErrorInfo,
    },
    /// The claim is gone.
    #[error("the run belongs to another generation")]
    ClaimLost,
    /// The channel is gone.
    #[error("the channel to the server is closed")]
    Closed,
    /// The message does not fit a frame: a limit was not checked before.
    #[error("{what} cannot be sent: {reason}")]
    Unsendable {
        /// Name of the message.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

/// An accepted (or earlier accepted) request.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The answer's data, when it has any.
    pub(crate) payload: Option<ReplyPayload>,
}

/// Handle of the channel; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    run_id: String,
    generation: u64,
    epoch: String,
    writer: tokio::sync::Mutex<Writer>,
    waiting: Mutex<Waiting>,
    next_id: AtomicU64,
    revision: AtomicU64,
    order: watch::Sender<Order>,
    /// Messages whose answers nobody waits for.
    later: TaskTracker,
    /// Output of user code that was not sent yet, and whether something sends it.
    printed: Mutex<Printed>,
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Printed {
    lines: VecDeque<(&'static str, String)>,
    sending: bool,
}

impl Printed {
    /// The next lines of one stream, as much as one message may carry.
    fn take(&mut self) -> Option<(&'static str, String)> {
        let (stream, mut text) = self.lines.pop_front()?;
        while let Some((next, more)) = self.lines.front()
            && *next == stream
            && text.len() + more.len() < PRINT_BATCH
        {
            text.push('\n');
            text.push_str(more);
            self.lines.pop_front();
        }
        Some((stream, text))
    }
}

#[derive(Debug, Default)]
struct Waiting {
    /// Set when no answer can arrive any more.
    over: Option<Order>,
    requests: HashMap<String, oneshot::Sender<ServerReply>>,
}

impl Client {
    /// Starts reading. Must be called inside a runtime.
    pub(crate) fn start(launch: &RunnerLaunch, reader: Reader, writer: Writer) -> Self {
        let client = Self {
            inner: Arc::new(Inner {
                run_id: launch.run_id.clone(),
                generation: launch.generation,
                epoch: launch.runner_epoch.clone(),
                writer: tokio::sync::Mutex::new(writer),
                waiting: Mutex::default(),
                next_id: AtomicU64::new(1),
                revision: AtomicU64::new(UNKNOWN),
                order: watch::Sender::new(Order::Continue),
                later: TaskTracker::new(),
                printed: Mutex::default(),
                runtime: Handle::current(),
            }),
        };
        tokio::spawn(client.clone().read(reader));
        client
    }

    /// Follows the orders.
    pub(crate) fn orders(&self) -> watch::Receiver<Order> {
        self.inner.order.subscribe()
    }

    /// The strictest order so far.
    pub(crate) fn order(&self) -> Order {
        *self.inner.order.borrow()
    }

    /// Resolves once an order at least as strict as `order` was given.
    pub(crate) async fn ordered(&self, order: Order) {
        let mut orders = self.orders();
        // The sender lives in `self`, so this cannot fail.
        let _ = orders.wait_for(|now| *now >= order).await;
    }

    /// Sets the execution revision that the next change expects.
    pub(crate) fn set_revision(&self, revision: u64) {
        self.inner.revision.store(revision, Ordering::Relaxed);
    }

    /// Sends a message and waits for its answer.
    pub(crate) async fn request(&self, attempt: Option<&str>, body: ChildBody) -> Result<Accepted, RequestError> {
        let what = name(&body);
        let known = self.inner.revision.load(Ordering::Relaxed);
        // Before `runner.ready` was answered no revision is known.
        let revision = (body.changes_run() && known != UNKNOWN).then_some(known);
        let message = self.message(attempt, revision, body);
        let frame = frame::encode(&message).map_err(|error| RequestError::Unsendable {
            what,
            reason: error.to_string(),
        })?;
        let (answer_to, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if let Some(over) = waiting.over {
                return Err(over_error(over));
            }
            waiting.requests.insert(message.message_id, answer_to);
        }
        let sent = self.inner.writer.lock().await.send_frame(&frame).await;
        if sent.is_err() {
            self.end(Order::Closed);
        }
        let Ok(reply) = answer.await else {
            return Err(over_error(self.waiting().over.unwrap_or(Order::Closed)));
        };
        if let Some(revision) = reply.revision {
            self.inner.revision.store(revision, Ordering::Relaxed);
        }
        match reply.outcome {
            ReplyOutcome::Accepted | ReplyOutcome::Adopted => Ok(Accepted { payload: reply.payload }),
            ReplyOutcome::Rejected => {
                let error = reply.error.unwrap_or_else(|| ErrorInfo {
                    code: None,
                    message: "no reason was given".to_owned(),
                    stack: None,
                });
                Err(RequestError::Rejected { what, error })
            }
            ReplyOutcome::ClaimLost => Err(RequestError::ClaimLost),
        }
    }

    /// Sends a message whose answer changes nothing for the caller. [`Client::settle`] waits for it.
    pub(crate) fn request_later(&self, body: ChildBody) {
        let client = self.clone();
        self.inner.later.spawn(async move {
            if let Err(error) = client.request(None, body).await {
                tracing::debug!(%error, "a message was not accepted");
            }
        });
    }

    /// Sends output of user code, in order, at the pace at which the server takes it. Can be called from any thread.
    pub(crate) fn print(&self, stream: &'static str, mut text: String) {
        crate::exec::receipt::cut(&mut text, PRINT_LIMIT);
        let mut printed = self.inner.printed.lock().unwrap_or_else(PoisonError::into_inner);
        printed.lines.push_back((stream, text));
        if !std::mem::replace(&mut printed.sending, true) {
            self.inner
                .later
                .spawn_on(self.clone().send_printed(), &self.inner.runtime);
        }
    }

    async fn send_printed(self) {
        loop {
            let next = {
                let mut printed = self.inner.printed.lock().unwrap_or_else(PoisonError::into_inner);
                let next = printed.take();
                printed.sending = next.is_some();
                next
            };
            let Some((stream, text)) = next else { return };
            // Diagnosis only: an end of the channel shows elsewhere.
            let body = ChildBody::Progress {
                stream: stream.to_owned(),
                text,
            };
            let _ = self.request(None, body).await;
        }
    }

    /// Waits until everything that was sent with [`Client::request_later`] is answered.
    pub(crate) async fn settle(&self) {
        self.inner.later.close();
        self.inner.later.wait().await;
        self.inner.later.reopen();
    }

    fn message(&self, attempt: Option<&str>, expected_revision: Option<u64>, body: ChildBody) -> ChildMessage {
        let number = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        ChildMessage {
            schema: CHILD_SCHEMA.to_owned(),
            run_id: self.inner.run_id.clone(),
            generation: self.inner.generation,
            runner_epoch: self.inner.epoch.clone(),
            message_id: format!("{}-{number}", self.inner.epoch),
            attempt_id: attempt.map(str::to_owned),
            expected_revision,
            body,
        }
    }

    async fn read(self, mut reader: Reader) {
        loop {
            match reader.next::<ToRunner>().await {
                Ok(Some(ToRunner::Reply(reply))) => self.answered(reply),
                Ok(Some(ToRunner::Push(push))) => self.tighten(match push.push {
                    PushAction::Cancel => Order::Cancel,
                    PushAction::Stop => Order::Stop,
                }),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "channel ends");
                    break;
                }
            }
        }
        self.end(Order::Closed);
    }

    fn answered(&self, reply: ServerReply) {
        let lost = reply.outcome == ReplyOutcome::ClaimLost;
        let request = self.waiting().requests.remove(&reply.message_id);
        match request {
            // The requester may have been cancelled.
            Some(request) => drop(request.send(reply)),
            None => tracing::warn!(message = reply.message_id, "an answer to no open request"),
        }
        if lost {
            self.end(Order::ClaimLost);
        }
    }

    /// No answer is expected any more: fails open and later requests.
    fn end(&self, order: Order) {
        self.tighten(order);
        let mut waiting = self.waiting();
        waiting.over.get_or_insert(order);
        waiting.requests.clear();
    }

    fn tighten(&self, order: Order) {
        self.inner.order.send_if_modified(|now| {
            let stricter = order > *now;
            if stricter {
                *now = order;
            }
            stricter
        });
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn over_error(order: Order) -> RequestError {
    if order == Order::ClaimLost {
        RequestError::ClaimLost
    } else {
        RequestError::Closed
    }
}

/// The message's name on the wire.
fn name(body: &ChildBody) -> &'static str {
    match body {
        ChildBody::Ready { .. } => "runner.ready",
        ChildBody::NodeStarted(_) => "node.started",
        ChildBody::NodeFinished(_) => "node.finished",
        ChildBody::NodeFailed(_) => "node.failed",
        ChildBody::NodePrompted { .. } => "node.prompted",
        ChildBody::InteractionRequested { .. } => "interaction.requested",
        ChildBody::ValidationFinished(_) => "validation.finished",
        ChildBody::NodeUpdate { .. } => "node.update",
        ChildBody::RunParked { .. } => "run.parked",
        ChildBody::RunFinished(_) => "run.finished",
        ChildBody::Notification { .. } => "notification.requested",
        ChildBody::EffectReserve { .. } => "effect.reserve",
        ChildBody::EffectSettle { .. } => "effect.settle",
        ChildBody::Progress { .. } => "runner.progress",
        ChildBody::ProcessRegister { .. } => "process.register",
        ChildBody::ProcessUnregister { .. } => "process.unregister",
        ChildBody::ContentPut { .. } => "content.put",
        ChildBody::ContentGet { .. } => "content.get",
        ChildBody::Exiting { .. } => "runner.exiting",
    }
}
