//! What every part of a running server shares.

use std::sync::Arc;
use std::time::{Duration, Instant};

use piw_state::State;
use tokio::sync::{mpsc, oneshot, watch};

use crate::admissions::Admissions;
use crate::inflight::InFlight;
use crate::paths::Places;
use crate::supervise::live::{Executing, LiveRunners};
use crate::supervise::resolve::Resolvers;

/// Connections at once; one more is refused with a message.
pub(crate) const MAX_CONNECTIONS: usize = 256;

/// Somebody wants the server to end.
#[derive(Debug)]
pub(crate) struct StopRequest {
    /// Longest wait for running nodes.
    pub(crate) wait: Duration,
    /// Do not wait for them.
    pub(crate) now: bool,
    /// Gets the outcome.
    pub(crate) reply: oneshot::Sender<StopOutcome>,
}

/// How a stop request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StopOutcome {
    /// The server is on its way out; nothing executes any more.
    Stopping,
    /// These nodes still execute; the server stays.
    Refused(Vec<Executing>),
}

/// The shared parts. One per process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) state: State,
    pub(crate) places: Places,
    pub(crate) epoch: u64,
    pub(crate) started: Instant,
    pub(crate) max_runners: u32,
    pub(crate) live: Arc<LiveRunners>,
    pub(crate) admissions: Admissions,
    pub(crate) resolvers: Resolvers,
    pub(crate) in_flight: InFlight,
    pub(crate) stop: mpsc::Sender<StopRequest>,
    pub(crate) connections: Connections,
    pub(crate) closing: watch::Sender<bool>,
}

impl Server {
    /// Resolves when connections have to end.
    pub(crate) async fn closing(&self) {
        // The sender is in `self`.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Whether admissions are closed or the server ends.
    pub(crate) fn is_stopping(&self) -> bool {
        !self.admissions.is_open() || *self.closing.borrow()
    }
}

/// Counts connections. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connections(Arc<watch::Sender<usize>>);

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<watch::Sender<usize>>);

impl Connections {
    /// Counts one more; `None` when there are as many as there may be.
    pub(crate) fn enter(&self) -> Option<Counted> {
        if *self.0.borrow() >= MAX_CONNECTIONS {
            return None;
        }
        self.0.send_modify(|count| *count += 1);
        Some(Counted(Arc::clone(&self.0)))
    }

    /// The count, to wait for its changes.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
