//! The switch that opens and closes the admission of runs.

use std::sync::Arc;

use tokio::sync::watch;

/// Opens and closes admissions. Clones share the switch.
#[derive(Debug, Clone)]
pub(crate) struct Admissions {
    open: Arc<watch::Sender<bool>>,
}

impl Admissions {
    /// Open.
    pub(crate) fn new() -> Self {
        Self {
            open: Arc::new(watch::Sender::new(true)),
        }
    }

    /// No run is claimed any more.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }

    /// Runs are claimed again.
    pub(crate) fn reopen(&self) {
        self.open.send_replace(true);
    }

    /// The switch, to wait for its changes.
    pub(crate) fn changes(&self) -> watch::Receiver<bool> {
        self.open.subscribe()
    }

    /// Whether runs are claimed.
    pub(crate) fn is_open(&self) -> bool {
        *self.open.borrow()
    }
}
