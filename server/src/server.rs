//! What every part of a running server shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use piw_state::State;
use tokio::sync::{mpsc, oneshot, watch};

use crate::admissions::Admissions;
use crate::inflight::InFlight;
use crate::options::WorkflowLister;
use crate::paths::Places;
use crate::publish::Publisher;
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
    pub(crate) publisher: Publisher,
    pub(crate) in_flight: InFlight,
    pub(crate) workflows: Option<WorkflowLister>,
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
pub(crate) struct Connections {
    open: Arc<watch::Sender<usize>>,
    total: Arc<AtomicU64>,
}

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    open: Arc<watch::Sender<usize>>,
    number: u64,
}

impl Connections {
    /// Counts one more; `None` when there are as many as there may be.
    pub(crate) fn enter(&self) -> Option<Counted> {
        if *self.open.borrow() >= MAX_CONNECTIONS {
            return None;
        }
        self.open.send_modify(|count| *count += 1);
        let number = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Counted {
            open: Arc::clone(&self.open),
            number,
        })
    }

    /// The count, to wait for its changes.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }
}

impl Counted {
    /// Ordinal of the connection in this server's life, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.send_modify(|count| *count -= 1);
    }
}
