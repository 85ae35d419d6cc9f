//! Subscriptions: the actor's side (what the server knows of one, when to ask again) and the handle that a renderer reads.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::ClientError;
use super::core::Command;
use super::options::ClientOptions;
use super::state::{Freshness, Retry};
use crate::canonical::CanonicalJson;
use crate::envelope::EventKind;
use crate::interaction::SessionView;
use crate::ops::{Operation, OperationError};
use crate::view::{RunListPage, RunView};

/// How a subscription is asked for and given up.
#[derive(Debug, Clone)]
pub(super) struct SubscriptionSpec {
    pub(super) watch: Operation,
    pub(super) unwatch: Operation,
    pub(super) event: EventKind,
    pub(super) run_id: Option<String>,
    /// What its views must be of: a run or a session.
    pub(super) subject: Option<String>,
    pub(super) payload: CanonicalJson,
}

/// What a handle sees. The last payload stays through every failure.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) payload: Option<Arc<CanonicalJson>>,
    /// Counts payloads.
    pub(super) version: u64,
    pub(super) freshness: Freshness,
}

impl Shown {
    pub(super) const fn opening() -> Self {
        Self {
            payload: None,
            version: 0,
            freshness: Freshness::Opening,
        }
    }
}

/// What the server of this connection knows of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing; to be asked for.
    Wanted,
    /// Asked for; an answer is due.
    Asked { until: Instant },
    /// Installed.
    Installed,
    /// Dropped by the server; to be asked for again later.
    Dropped { until: Instant },
}

/// The actor's side of a subscription.
pub(super) struct Subscription {
    pub(super) spec: SubscriptionSpec,
    shown: watch::Sender<Shown>,
    standing: Standing,
    /// Times in a row that the server dropped it.
    drops: u32,
}

impl Subscription {
    pub(super) fn new(spec: SubscriptionSpec, shown: watch::Sender<Shown>) -> Self {
        Self {
            spec,
            shown,
            standing: Standing::Wanted,
            drops: 0,
        }
    }

    pub(super) fn show(&self, freshness: Freshness) {
        self.shown.send_modify(|shown| shown.freshness = freshness);
    }

    pub(super) fn deliver(&mut self, payload: Arc<CanonicalJson>) {
        self.drops = 0;
        self.shown.send_modify(|shown| {
            shown.payload = Some(payload);
            shown.version += 1;
            shown.freshness = Freshness::Live;
        });
    }

    pub(super) fn asked(&mut self, until: Instant) {
        self.standing = Standing::Asked { until };
    }

    pub(super) fn installed(&mut self) {
        // The server may have dropped it before its answer was read.
        if self.is_asked() {
            self.standing = Standing::Installed;
        }
    }

    /// The server gave it up.
    pub(super) fn dropped(&mut self, error: &OperationError, options: &ClientOptions, now: Instant) {
        self.drops = self.drops.saturating_add(1);
        let delay = options.rearm(self.drops);
        self.standing = Standing::Dropped { until: now + delay };
        self.show(Freshness::Stale(Retry {
            attempt: self.drops,
            delay,
            reason: error.to_string(),
        }));
    }

    /// The connection is gone, and with it what the server knew.
    pub(super) fn lost(&mut self, retry: &Retry, spent: bool) {
        self.standing = Standing::Wanted;
        let retry = retry.clone();
        self.show(if spent {
            Freshness::Blocked(retry)
        } else {
            Freshness::Stale(retry)
        });
    }

    pub(super) fn is_asked(&self) -> bool {
        matches!(self.standing, Standing::Asked { .. })
    }

    pub(super) fn is_known_to_server(&self) -> bool {
        matches!(self.standing, Standing::Asked { .. } | Standing::Installed)
    }

    pub(super) fn is_settled(&self) -> bool {
        self.standing == Standing::Installed
    }

    pub(super) fn is_wanted(&self, now: Instant) -> bool {
        match self.standing {
            Standing::Wanted => true,
            Standing::Dropped { until } => now >= until,
            Standing::Asked { .. } | Standing::Installed => false,
        }
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        matches!(self.standing, Standing::Asked { until } if now >= until)
    }

    pub(super) fn timer(&self) -> Option<Instant> {
        match self.standing {
            Standing::Asked { until } | Standing::Dropped { until } => Some(until),
            Standing::Wanted | Standing::Installed => None,
        }
    }
}

/// A view that can be watched.
pub trait View: DeserializeOwned {
    /// Checks that this is the view that was subscribed to: of which run, or of which session.
    ///
    /// # Errors
    /// A sentence that names what it is not.
    fn check(&self, subject: Option<&str>) -> Result<(), String>;
}

impl View for RunView {
    fn check(&self, subject: Option<&str>) -> Result<(), String> {
        Self::check(self, subject.unwrap_or_default())
    }
}

impl View for SessionView {
    fn check(&self, subject: Option<&str>) -> Result<(), String> {
        Self::check(self, subject.unwrap_or_default())
    }
}

impl View for RunListPage {
    fn check(&self, _: Option<&str>) -> Result<(), String> {
        Self::check(self)
    }
}

/// A view that the server keeps current. Dropping it ends the subscription.
///
/// Only the newest view is kept: a reader that is slow skips the ones in between.
#[derive(Debug)]
pub struct Watch<T> {
    id: String,
    subject: Option<String>,
    shown: watch::Receiver<Shown>,
    commands: mpsc::UnboundedSender<Command>,
    view: Option<Arc<T>>,
    version: u64,
    /// Whether the newest view could be read, so that `view` is not an older one.
    readable: bool,
    freshness: Freshness,
}

impl<T: View> Watch<T> {
    pub(super) fn new(
        id: String,
        subject: Option<String>,
        shown: watch::Receiver<Shown>,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Self {
        Self {
            id,
            subject,
            shown,
            commands,
            view: None,
            version: 0,
            readable: true,
            freshness: Freshness::Opening,
        }
    }

    /// Waits until the view or its freshness changed, and takes the newest. Cancel-safe.
    ///
    /// # Errors
    /// [`ClientError::BadView`] when a view cannot be read (the last good one stays), [`ClientError::Closed`] when the client
    /// ended.
    pub async fn changed(&mut self) -> Result<(), ClientError> {
        self.shown.changed().await.map_err(|_| ClientError::Closed)?;
        let shown = self.shown.borrow_and_update().clone();
        self.freshness = shown.freshness;
        if shown.version == self.version {
            return Ok(());
        }
        self.version = shown.version;
        if let Some(payload) = shown.payload {
            self.readable = false;
            let view: T = payload
                .decode()
                .map_err(|error| ClientError::BadView(error.to_string()))?;
            view.check(self.subject.as_deref()).map_err(ClientError::BadView)?;
            self.view = Some(Arc::new(view));
            self.readable = true;
        }
        Ok(())
    }

    /// Waits for the first live view.
    ///
    /// # Errors
    /// When the subscription is refused or blocked, the client stopped, or the view cannot be read.
    pub async fn first(&mut self) -> Result<Arc<T>, ClientError> {
        loop {
            if let Some(view) = self.live() {
                return Ok(Arc::clone(view));
            }
            self.changed().await?;
            match &self.freshness {
                Freshness::Opening | Freshness::Live | Freshness::Stale(_) => {}
                Freshness::Blocked(retry) => {
                    return Err(ClientError::Blocked {
                        attempts: retry.attempt,
                        reason: retry.reason.clone(),
                    });
                }
                Freshness::Refused(error) => return Err(ClientError::WatchRefused(error.clone())),
                Freshness::Stopped(error) => return Err(error.clone()),
            }
        }
    }

    /// The subscription's id: what requests about the subscription itself name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The last good view, however old.
    #[must_use]
    pub const fn view(&self) -> Option<&Arc<T>> {
        self.view.as_ref()
    }

    /// How current [`Watch::view`] is.
    #[must_use]
    pub const fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// The view if the server keeps it current: the only one that may authorise a command.
    #[must_use]
    pub fn live(&self) -> Option<&Arc<T>> {
        // The actor may know more than was taken with `changed`.
        let live =
            self.readable && self.freshness == Freshness::Live && self.shown.borrow().freshness == Freshness::Live;
        self.view.as_ref().filter(|_| live)
    }
}

impl<T> Drop for Watch<T> {
    fn drop(&mut self) {
        // A client that has ended has no subscriptions left.
        drop(self.commands.send(Command::Unwatch {
            id: std::mem::take(&mut self.id),
        }));
    }
}
