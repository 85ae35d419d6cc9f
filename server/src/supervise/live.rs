//! The table of live runners: who executes what, and how to give one an order.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piw_state::{Claim, Renewed, RunKey};
use tokio::sync::{mpsc, watch};

/// What the server wants of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Finish the running node, then leave at the durable boundary.
    Stop,
    /// Abort the running node and leave: the claim is gone, or somebody wants the server to stop at once.
    End,
}

/// A node that a runner executes now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Executing {
    /// The run.
    pub(crate) run_id: String,
    /// Qualified node id; absent while nothing executes yet.
    pub(crate) node_id: Option<String>,
}

#[derive(Debug)]
struct Live {
    claim: Claim,
    node_id: Option<String>,
    orders: mpsc::UnboundedSender<Order>,
}

/// The table. An entry lives from the claim until the run may be claimed again.
#[derive(Debug, Default)]
pub(crate) struct LiveRunners {
    table: Mutex<HashMap<String, Live>>,
    count: watch::Sender<usize>,
}

impl LiveRunners {
    /// Adds a runner that is about to be spawned; its orders arrive at the receiver.
    pub(crate) fn add(&self, claim: Claim) -> mpsc::UnboundedReceiver<Order> {
        let (orders, receiver) = mpsc::unbounded_channel();
        let mut table = self.lock();
        table.insert(
            claim.run_id.to_string(),
            Live {
                claim,
                node_id: None,
                orders,
            },
        );
        self.count.send_replace(table.len());
        receiver
    }

    /// Removes a runner whose processes are gone and whose exit is recorded.
    pub(crate) fn remove(&self, claim: &Claim) {
        let mut table = self.lock();
        // A newer generation may have been claimed the moment the exit was recorded.
        if table
            .get(&*claim.run_id)
            .is_some_and(|live| live.claim.generation == claim.generation)
        {
            table.remove(&*claim.run_id);
        }
        self.count.send_replace(table.len());
    }

    /// Tells which node a runner executes.
    pub(crate) fn executes(&self, run_id: &str, node_id: Option<&str>) {
        if let Some(live) = self.lock().get_mut(run_id) {
            live.node_id = node_id.map(ToOwned::to_owned);
        }
    }

    /// Gives the runner of a run an order. `false`: it has none.
    pub(crate) fn order(&self, run_id: &str, order: Order) -> bool {
        self.lock()
            .get(run_id)
            .is_some_and(|live| live.orders.send(order).is_ok())
    }

    /// Gives every runner an order.
    pub(crate) fn order_all(&self, order: Order) {
        for live in self.lock().values() {
            // A runner that is ending by itself takes no orders.
            let _ = live.orders.send(order);
        }
    }

    /// Number of live runners, pending launches and clean-ups included.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The claims of all live runners.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        self.lock().values().map(|live| live.claim.clone()).collect()
    }

    /// Ends the runners whose claims could not be renewed: they can write nothing any more.
    pub(crate) fn end_lost(&self, renewed: &[(RunKey, Renewed)]) {
        for live in self.lock().values() {
            let lost = renewed
                .iter()
                .find(|(run, result)| *run == live.claim.run && result.is_err());
            if let Some((_, Err(reason))) = lost {
                tracing::warn!(run_id = %live.claim.run_id, generation = live.claim.generation, %reason, "a claim was lost");
                let _ = live.orders.send(Order::End);
            }
        }
    }

    /// What executes now, sorted by run.
    pub(crate) fn executing(&self) -> Vec<Executing> {
        let mut all: Vec<_> = self
            .lock()
            .iter()
            .map(|(run_id, live)| Executing {
                run_id: run_id.clone(),
                node_id: live.node_id.clone(),
            })
            .collect();
        all.sort_by(|a, b| a.run_id.cmp(&b.run_id));
        all
    }

    /// The number of live runners, to wait for its changes.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Waits until no runner is left, at most `limit`.
    pub(crate) async fn drained(&self, limit: Duration) -> bool {
        let mut count = self.count();
        tokio::time::timeout(limit, count.wait_for(|live| *live == 0))
            .await
            .is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        // Every change is a single call, so a poisoned table is whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
