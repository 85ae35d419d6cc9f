//! What every part of a running server shares.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use piw_state::State;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::admissions::Admissions;
use crate::coordinator::Coordinators;
use crate::inflight::InFlight;
use crate::maintenance::Maintenance;
use crate::options::WorkflowLister;
use crate::paths::Places;
use crate::publish::Publisher;
use crate::supervise::live::{Executing, LiveRunners};
use crate::supervise::resolve::Resolvers;
use crate::supervise::validate::Validators;
use crate::update_rates::UpdateRates;

/// Connections at once; one more displaces one that never asked for anything, or is refused with a message.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// Displaced connections that may still be taking their last message.
const MAX_LEAVING: usize = 64;

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
    pub(crate) validators: Validators,
    pub(crate) update_rates: UpdateRates,
    pub(crate) publisher: Publisher,
    pub(crate) coordinators: Coordinators,
    pub(crate) in_flight: InFlight,
    pub(crate) maintenance: Maintenance,
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

/// Counts connections and knows which of them never asked for anything. Clones share both.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connections {
    open: Arc<watch::Sender<usize>>,
    total: Arc<AtomicU64>,
    silent: Silent,
}

/// Connections without a complete request, oldest first, and how to close them.
type Silent = Arc<Mutex<BTreeMap<u64, CancellationToken>>>;

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    open: Arc<watch::Sender<usize>>,
    number: u64,
    silent: Silent,
    displaced: CancellationToken,
}

impl Connections {
    /// Counts one more. When there are as many as there may be, the oldest one that never sent a complete request has to
    /// leave for it; `None` when there is no such one, or too many are on their way out.
    pub(crate) fn enter(&self) -> Option<Counted> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let open = *self.open.borrow();
        if open >= MAX_CONNECTIONS + MAX_LEAVING {
            return None;
        }
        if open >= MAX_CONNECTIONS {
            silent.pop_first()?.1.cancel();
        }
        self.open.send_modify(|count| *count += 1);
        let number = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        let displaced = CancellationToken::new();
        silent.insert(number, displaced.clone());
        Some(Counted {
            open: Arc::clone(&self.open),
            number,
            silent: Arc::clone(&self.silent),
            displaced,
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

    /// A complete request came: the connection keeps its place.
    pub(crate) fn has_spoken(&self) {
        self.silent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.number);
    }

    /// Resolves when the connection has to leave for another.
    pub(crate) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.has_spoken();
        self.open.send_modify(|count| *count -= 1);
    }
}
