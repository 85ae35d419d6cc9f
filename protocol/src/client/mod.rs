//! The async client: one reconnecting connection to a server, shared by any number of handles.
//!
//! A [`Client`] is a cheap handle to a task that connects, checks versions, sends calls, keeps the desired subscriptions and
//! restores them after every reconnection. A call whose connection breaks is sent again with a new request id and the same
//! idempotency key. A [`Watch`] keeps the last good view and says how current it is.
//!
//! | part | owns |
//! | --- | --- |
//! | `connector` | opening byte streams |
//! | `options` | delays, budgets, identity |
//! | `state` | what the client shows of itself |
//! | `core` | the state machine, without I/O |
//! | `driver` | the task that moves bytes |
//! | `subscription` | watched views |
//! | `calls` | typed calls and watches |
//!
//! The retry budget is whole again only after a hello *and* a restored subscription set, so a server that accepts connections
//! and then fails is not retried forever at full speed. When the budget is spent, calls fail with
//! [`ClientError::Unreachable`] and views show [`Freshness::Blocked`]; one slow attempt after another goes on, so that
//! a viewer recovers by itself.

mod calls;
mod connector;
mod core;
mod driver;
mod error;
mod options;
mod state;
mod subscription;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use self::core::{Command, Core};
use self::subscription::{Shown, SubscriptionSpec};
use crate::canonical::CanonicalJson;
use crate::envelope::Response;
use crate::ops::Operation;

pub use calls::{Done, RunRef, RunWatch, RunsWatch, SessionWatch};
pub use connector::{Connector, UnixConnector};
#[cfg(feature = "websocket")]
pub use connector::{RelayUrl, UrlError, WebSocketConnector, WebSocketFrames};
pub use error::ClientError;
pub use options::ClientOptions;
pub use state::{ConnectionState, Freshness, Retry};
pub use subscription::{View, Watch};

/// A request to make. The idempotency key identifies it: to send the same command again, use the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What to do.
    pub operation: Operation,
    /// The same for every sending of one command.
    pub idempotency_key: String,
    /// The run it is about.
    pub run_id: Option<String>,
    /// Revision that must still be current.
    pub expected_revision: Option<u64>,
    /// The operation's payload.
    pub payload: CanonicalJson,
}

impl Call {
    /// A call with a fresh idempotency key.
    ///
    /// # Errors
    /// When the payload has no canonical form.
    pub fn new<T: serde::Serialize + ?Sized>(operation: Operation, payload: &T) -> Result<Self, ClientError> {
        let payload = CanonicalJson::new(payload).map_err(crate::frame::FrameError::from)?;
        let idempotency_key = uuid::Uuid::new_v4().to_string();
        Ok(Self {
            operation,
            idempotency_key,
            run_id: None,
            expected_revision: None,
            payload,
        })
    }

    /// Names the run.
    #[must_use]
    pub fn run(mut self, run_id: &str) -> Self {
        self.run_id = Some(run_id.to_owned());
        self
    }

    /// Names the revision that must still be current.
    #[must_use]
    pub const fn at(mut self, revision: Option<u64>) -> Self {
        self.expected_revision = revision;
        self
    }

    /// Uses a key of the caller instead of the fresh one.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.idempotency_key);
        self
    }
}

/// A handle to the client's task. The task ends when the last handle and the last [`Watch`] are dropped.
#[derive(Debug, Clone)]
pub struct Client {
    commands: mpsc::UnboundedSender<Command>,
    state: watch::Receiver<ConnectionState>,
    target: Arc<str>,
}

impl Client {
    /// Starts the client on the current tokio runtime and returns at once; it connects in the background.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start<C: Connector>(connector: C, options: ClientOptions) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (publish, state) = watch::channel(ConnectionState::Connecting);
        let target: Arc<str> = connector.target().into();
        let core = Core::new(options, target.to_string(), publish);
        tokio::spawn(driver::run(connector, core, inbox));
        Self {
            commands,
            state,
            target,
        }
    }

    /// Starts the client and waits for the server's hello.
    ///
    /// # Errors
    /// When the versions differ or the retry budget is spent.
    pub async fn connect<C: Connector>(connector: C, options: ClientOptions) -> Result<Self, ClientError> {
        let client = Self::start(connector, options);
        client.ready().await?;
        Ok(client)
    }

    /// Waits until the client is connected.
    ///
    /// # Errors
    /// When the versions differ or the retry budget is spent.
    pub async fn ready(&self) -> Result<(), ClientError> {
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                ConnectionState::Connected { .. } => return Ok(()),
                ConnectionState::Connecting | ConnectionState::Reconnecting(_) => {}
                ConnectionState::Blocked(retry) => {
                    return Err(ClientError::Unreachable {
                        target: self.target.to_string(),
                        attempts: retry.attempt,
                        reason: retry.reason.clone(),
                    });
                }
                ConnectionState::Stopped(error) => return Err(error.clone()),
            }
            state.changed().await.map_err(|_| ClientError::Closed)?;
        }
    }

    /// State of the connection, to read and to wait for.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.state.clone()
    }

    /// What the client connects to, for people.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Makes a call and waits for its answer, across reconnections. Dropping the future forgets the call; the server may
    /// still carry it out.
    ///
    /// # Errors
    /// When the call does not fit a frame, the retry budget is spent or the client stopped. An answer that refuses the call
    /// is no error here: see [`Response::outcome`].
    pub async fn request(&self, call: Call) -> Result<Response, ClientError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(Command::Call { call, reply })
            .map_err(|_| ClientError::Closed)?;
        answer.await.map_err(|_| ClientError::Closed)?
    }

    fn watch<T: View>(&self, id: String, spec: SubscriptionSpec) -> Watch<T> {
        let (publish, shown) = watch::channel(Shown::opening());
        let subject = spec.subject.clone();
        // A client that has ended drops `publish`, which the watch reports as closed.
        drop(self.commands.send(Command::Watch {
            id: id.clone(),
            spec,
            shown: publish,
        }));
        Watch::new(id, subject, shown, self.commands.clone())
    }
}
