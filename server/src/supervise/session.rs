//! One runner's conversation: messages in, replies and orders out, until it leaves or has to.

use std::time::Duration;

use piw_process::{ProcessIdentity, tree};
use piw_protocol::child::{
    CHILD_SCHEMA, ChildBody, ChildMessage, Next, NodeStart, PushAction, REPLY_SCHEMA, ReplyOutcome, ServerPush,
    ServerReply,
};
use piw_protocol::run::ErrorInfo;
use piw_state::{Claim, State, StateError};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::channel::{ChannelError, Incoming, Outgoing};
use super::live::{LiveRunners, Order};
use super::registry::{Entry, Kind, Registry};

/// From spawn to `runner.ready`: loading user code has limits of its own, this ends what escapes them.
const STARTUP: Duration = Duration::from_secs(60);
/// How long past a node's own budget the server waits for the runner to end the node itself: processes get a grace period,
/// effects are read back, and the callbacks that plan the next step have 30 s each. The runner watches its own script
/// thread, so this is for a runner that does not work at all.
pub(crate) const OVERRUN: Duration = Duration::from_secs(90);
/// How long a runner may take to leave once it has no more to do.
const LEAVE: Duration = Duration::from_secs(10);
/// How long a runner may take to abort its node, before it is ended from outside.
const ABORT: Duration = Duration::from_secs(5);
/// First pause before a message is applied again.
const RETRY: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
const RETRY_MOST: Duration = Duration::from_secs(1);
/// Bytes of user output kept of one generation.
const OUTPUT_LIMIT: usize = 256 * 1024;

/// Why a conversation ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The runner closed its channel, or exited.
    Left,
    /// It did not get ready in time.
    StartupTimedOut,
    /// Its node overran its budget and the runner did not end it.
    NodeOverran,
    /// It did not leave in time after it had to.
    Lingered,
    /// Its claim was gone before it was launched.
    ClaimLost,
    /// It broke the protocol.
    Violation(String),
    /// The server cannot go on: its database failed.
    Failed(StateError),
}

/// What a conversation showed.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// `runner.ready` was accepted.
    pub(crate) ready: bool,
    /// `runner.exiting` was said, with its reason.
    pub(crate) exiting: Option<String>,
    /// The server ordered the end.
    pub(crate) ordered: Option<Order>,
    /// A message was answered with `claimLost`.
    pub(crate) claim_lost: bool,
    /// Output of user code, bounded.
    pub(crate) output: String,
}

/// One runner.
pub(crate) struct Session<'a> {
    pub(crate) state: &'a State,
    pub(crate) registry: &'a Registry,
    pub(crate) live: &'a LiveRunners,
    pub(crate) claim: &'a Claim,
    pub(crate) identity: &'a ProcessIdentity,
    pub(crate) outgoing: Outgoing,
    pub(crate) seen: Seen,
    /// See [`OVERRUN`].
    pub(crate) overrun: Duration,
    /// When the server loses patience, and with what.
    deadline: Option<(Instant, Patience)>,
}

/// What a deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Startup,
    Node,
    Leaving,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        state: &'a State,
        registry: &'a Registry,
        live: &'a LiveRunners,
        claim: &'a Claim,
        identity: &'a ProcessIdentity,
        outgoing: Outgoing,
    ) -> Self {
        Self {
            state,
            registry,
            live,
            claim,
            identity,
            outgoing,
            seen: Seen::default(),
            overrun: OVERRUN,
            deadline: Some((Instant::now() + STARTUP, Patience::Startup)),
        }
    }

    /// Talks until the runner leaves or has to be ended.
    pub(crate) async fn talk(
        &mut self,
        incoming: &mut Incoming,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        child: &mut tokio::process::Child,
    ) -> End {
        let mut exited = false;
        loop {
            let deadline = self.deadline.map_or_else(far_away, |(at, _)| at);
            tokio::select! {
                biased;
                Some(order) = orders.recv() => {
                    if let Err(error) = self.obey(order).await {
                        return End::Violation(error.to_string());
                    }
                }
                frame = incoming.next() => match frame {
                    Ok(Some(frame)) => match self.message(&frame, orders).await {
                        Ok(()) => {}
                        Err(end) => return end,
                    },
                    Ok(None) | Err(ChannelError::Io(_)) => return End::Left,
                    Err(error) => return End::Violation(error.to_string()),
                },
                _ = child.wait(), if !exited => {
                    // What it wrote before it died is still in the channel; a descendant may keep the channel open.
                    exited = true;
                    self.patience(Duration::from_millis(500), Patience::Leaving);
                }
                () = tokio::time::sleep_until(deadline) => {
                    return match self.deadline.map(|(_, patience)| patience) {
                        Some(Patience::Startup) => End::StartupTimedOut,
                        Some(Patience::Node) => End::NodeOverran,
                        Some(Patience::Leaving) | None if exited => End::Left,
                        Some(Patience::Leaving) | None => End::Lingered,
                    };
                }
            }
        }
    }

    fn patience(&mut self, limit: Duration, what: Patience) {
        self.deadline = Some((Instant::now() + limit, what));
    }

    async fn obey(&mut self, order: Order) -> Result<(), ChannelError> {
        if self.seen.ordered == Some(Order::End) {
            return Ok(());
        }
        self.seen.ordered = Some(order);
        if !self.seen.ready {
            // Nothing executes yet, and pushes may follow `runner.ready` only.
            self.patience(Duration::ZERO, Patience::Leaving);
            return Ok(());
        }
        let push = match order {
            Order::Stop => PushAction::Stop,
            Order::End => {
                self.patience(ABORT, Patience::Leaving);
                PushAction::Cancel
            }
        };
        piw_fault::point!("server::before_order");
        let sent = self
            .outgoing
            .send(&ServerPush {
                schema: REPLY_SCHEMA.to_owned(),
                push,
            })
            .await;
        piw_fault::point!("server::after_order");
        sent
    }

    /// Decides one message and answers it. `Err`: the conversation is over.
    async fn message(&mut self, frame: &[u8], orders: &mut mpsc::UnboundedReceiver<Order>) -> Result<(), End> {
        let message: ChildMessage =
            piw_protocol::canonical::from_slice(frame).map_err(|error| End::Violation(error.to_string()))?;
        if message.schema != CHILD_SCHEMA {
            return Err(End::Violation(format!(
                "schema {:?} is not {CHILD_SCHEMA:?}",
                message.schema
            )));
        }
        piw_fault::point!("server::runner_message");
        if self.seen.claim_lost && !matches!(message.body, ChildBody::ProcessUnregister { .. }) {
            // A stale child gets one answer. What it sends before it has read it is not looked at.
            return Ok(());
        }
        let reply = self.decide(&message, orders).await?;
        let outcome = reply.outcome;
        piw_fault::point!("server::before_runner_reply");
        if let Err(error) = self.outgoing.send(&reply).await
            && !matches!(error, ChannelError::Io(_))
        {
            return Err(End::Violation(error.to_string()));
        }
        piw_fault::point!("server::after_runner_reply");
        // After an error of the system the runner is dead: the channel's end says so next.
        match outcome {
            ReplyOutcome::Accepted | ReplyOutcome::Adopted => self.note(&message.body),
            ReplyOutcome::ClaimLost => {
                self.seen.claim_lost = true;
                self.patience(LEAVE, Patience::Leaving);
            }
            ReplyOutcome::Rejected => {}
        }
        Ok(())
    }

    async fn decide(
        &mut self,
        message: &ChildMessage,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Result<ServerReply, End> {
        // Who is speaking comes before what is said.
        if message.run_id != *self.claim.run_id
            || message.generation != self.claim.generation
            || message.runner_epoch != *self.claim.runner_epoch
        {
            return Ok(reply(
                message,
                ReplyOutcome::ClaimLost,
                Some("the message names another run, generation or epoch"),
            ));
        }
        match &message.body {
            ChildBody::ProcessRegister {
                pid,
                start_identity,
                label,
            } => self.register(message, *pid, start_identity, label, orders).await,
            ChildBody::ProcessUnregister { pid, start_identity } => {
                self.registry.unregister(&ProcessIdentity {
                    pid: *pid,
                    start: start_identity.clone(),
                });
                self.apply(message, orders).await
            }
            ChildBody::Progress { stream, text } => {
                let room = OUTPUT_LIMIT.saturating_sub(self.seen.output.len());
                let text = format!("[{stream}] {text}\n");
                let end = text.floor_char_boundary(room.min(text.len()));
                self.seen.output.push_str(&text[..end]);
                Ok(reply(message, ReplyOutcome::Accepted, None))
            }
            ChildBody::Exiting { reason } => {
                self.seen.exiting = Some(reason.clone());
                Ok(reply(message, ReplyOutcome::Accepted, None))
            }
            _ => {
                let decided = self.apply(message, orders).await;
                #[cfg(feature = "failpoints")]
                super::late::messages(self.state, self.claim, message).await;
                decided
            }
        }
    }

    /// Applies a message; while the disk refuses it, again and again. The runner waits meanwhile and loses nothing: once the disk
    /// works again, its claim still holds, or the answer tells that it was lost.
    async fn apply(
        &mut self,
        message: &ChildMessage,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Result<ServerReply, End> {
        let mut pause = RETRY;
        loop {
            let error = match self.state.apply_child(self.claim, message.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(StateError::Invalid(why)) => return Ok(reply(message, ReplyOutcome::Rejected, Some(&why))),
                Err(error) if error.is_of_the_disk() => error,
                Err(error) => return Err(End::Failed(error)),
            };
            tracing::warn!(run_id = %self.claim.run_id, %error, "a runner's message cannot be applied yet");
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY_MOST),
                Some(order) = orders.recv() => {
                    if let Err(error) = self.obey(order).await {
                        return Err(End::Violation(error.to_string()));
                    }
                    if order == Order::End {
                        return Err(End::Failed(error));
                    }
                }
            }
        }
    }

    /// Registers a process before it does anything: the runner's own direct child, leading a group of its own, under a live
    /// claim. A held command of a node and a headless agent are the same here: when the runner dies, the server ends the group
    /// and awaits its end before the run can be claimed again.
    async fn register(
        &mut self,
        message: &ChildMessage,
        pid: u32,
        start_identity: &str,
        label: &str,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Result<ServerReply, End> {
        let refuse = |why: String| reply(message, ReplyOutcome::Rejected, Some(&why));
        match tree::info(pid) {
            Ok(Some(info)) if info.start != start_identity || info.parent != self.identity.pid => {
                return Ok(refuse(format!(
                    "process {pid} ({label}) is no direct child of this runner"
                )));
            }
            // Ending it means ending its group, which must not be the runner's or anybody else's.
            Ok(Some(info)) if info.group != pid => {
                return Ok(refuse(format!(
                    "process {pid} ({label}) does not lead a group of its own"
                )));
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(refuse(format!("process {pid} ({label}) does not exist"))),
            Err(error) => return Ok(refuse(format!("process {pid} cannot be looked up: {error}"))),
        }
        let checked = self.apply(message, orders).await?;
        if !matches!(checked.outcome, ReplyOutcome::Accepted | ReplyOutcome::Adopted) {
            return Ok(checked);
        }
        piw_fault::point!("server::group_recorded");
        let entry = Entry {
            kind: Kind::Group,
            pid,
            start_identity: start_identity.to_owned(),
            runner_pid: self.identity.pid,
            run_id: Some(self.claim.run_id.to_string()),
        };
        Ok(match self.registry.register(entry) {
            Ok(()) => checked,
            Err(error) => refuse(error.to_string()),
        })
    }

    /// Takes note of what an accepted message means for deadlines and for naming what executes.
    fn note(&mut self, body: &ChildBody) {
        match body {
            ChildBody::Ready { .. } => {
                self.seen.ready = true;
                self.deadline = None;
                if self.seen.ordered.is_some() {
                    self.patience(LEAVE, Patience::Leaving);
                }
            }
            ChildBody::NodeStarted(start) => self.node_started(start),
            ChildBody::NodeFinished(finish) | ChildBody::NodeFailed(finish) => match &finish.next {
                Next::Start(start) => self.node_started(start),
                _ => self.leaving(),
            },
            ChildBody::RunParked { .. }
            | ChildBody::RunFinished(_)
            | ChildBody::InteractionRequested { .. }
            | ChildBody::Exiting { .. } => self.leaving(),
            _ => {}
        }
    }

    fn node_started(&mut self, start: &NodeStart) {
        self.live.executes(&self.claim.run_id, Some(&start.node_id));
        if self.deadline.is_some_and(|(_, patience)| patience == Patience::Leaving) {
            return;
        }
        self.deadline = start.timeout_ms.map(|budget| {
            let budget = Duration::from_millis(budget).saturating_add(self.overrun);
            (
                Instant::now().checked_add(budget).unwrap_or_else(far_away),
                Patience::Node,
            )
        });
    }

    fn leaving(&mut self) {
        self.live.executes(&self.claim.run_id, None);
        self.patience(LEAVE, Patience::Leaving);
    }
}

/// A reply that the state crate has no part in.
fn reply(message: &ChildMessage, outcome: ReplyOutcome, error: Option<&str>) -> ServerReply {
    ServerReply {
        schema: REPLY_SCHEMA.to_owned(),
        message_id: message.message_id.clone(),
        outcome,
        revision: None,
        payload: None,
        error: error.map(|message| ErrorInfo {
            code: Some(
                if outcome == ReplyOutcome::ClaimLost {
                    "claimLost"
                } else {
                    "protocolRejected"
                }
                .to_owned(),
            ),
            message: message.to_owned(),
            stack: None,
        }),
    }
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}
