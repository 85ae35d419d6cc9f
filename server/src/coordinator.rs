//! Which connection acts for a Pi session.
//!
//! A session has one coordinator: the connection that watched it last. It gets a new epoch, greater than every earlier one of any
//! session in any life of the server, and fences the one before: what that one asks for changes nothing any more. Epochs live in
//! memory; what they authorised is fenced inside its transaction by [`SessionFence`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piw_protocol::envelope::Outcome;
use piw_protocol::interaction::SessionAuthority;
use piw_state::SessionFence;

use crate::answer::Answer;
use crate::connection::Context;
use crate::server::Server;

/// Bits of an epoch that count within one life of the server; the server's own epoch stands above them.
const COUNTER_BITS: u32 = 20;

/// The coordinators of all sessions. Clones share them.
#[derive(Debug, Clone)]
pub struct Coordinators {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    next: AtomicU64,
    sessions: Mutex<HashMap<Arc<str>, Entry>>,
}

/// The newest coordinator of a session.
#[derive(Debug)]
struct Entry {
    epoch: u64,
    /// What fences compare with.
    current: Arc<AtomicU64>,
    /// Connection and subscription; `None` once they are gone.
    holder: Option<(u64, String)>,
    /// Whether a branch report of this epoch was accepted.
    reported: bool,
}

/// How a session's coordination stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Epoch of the newest coordinator; 0 when there never was one in this life of the server.
    pub epoch: u64,
    /// Whether a branch report of this epoch was accepted.
    pub reported: bool,
}

impl Coordinators {
    /// None yet, in the life of the server that has this epoch.
    #[must_use]
    pub fn new(server_epoch: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                next: AtomicU64::new((server_epoch << COUNTER_BITS) + 1),
                sessions: Mutex::default(),
            }),
        }
    }

    /// Makes a connection the coordinator of a session, fencing the one before. Returns its epoch.
    pub fn take(&self, session: &Arc<str>, connection: u64, subscription_id: &str) -> u64 {
        let mut sessions = self.lock();
        // A subscription that is replaced by one of another session coordinates only that.
        release(&mut sessions, connection, Some(subscription_id));
        let epoch = self.shared.next.fetch_add(1, Ordering::SeqCst);
        let entry = sessions.entry(Arc::clone(session)).or_insert_with(|| Entry {
            epoch,
            current: Arc::default(),
            holder: None,
            reported: false,
        });
        entry.current.store(epoch, Ordering::SeqCst);
        entry.epoch = epoch;
        entry.holder = Some((connection, subscription_id.to_owned()));
        entry.reported = false;
        epoch
    }

    /// How a session's coordination stands.
    #[must_use]
    pub fn standing(&self, session: &str) -> Standing {
        self.lock()
            .get(session)
            .map_or_else(Standing::default, |entry| Standing {
                epoch: entry.epoch,
                reported: entry.reported,
            })
    }

    /// Whether a connection coordinates a session now.
    #[must_use]
    pub fn is_held(&self, session: &str) -> bool {
        self.lock().get(session).is_some_and(|entry| entry.holder.is_some())
    }

    /// A branch report of an epoch was accepted; whether that epoch is still the session's.
    pub fn reported(&self, session: &str, epoch: u64) -> bool {
        match self.lock().get_mut(session) {
            Some(entry) if entry.epoch == epoch => {
                entry.reported = true;
                true
            }
            _ => false,
        }
    }

    /// A connection is gone: it coordinates nothing any more. What it asked for before may still be decided, unless somebody else
    /// takes its sessions first. Returns the sessions that it coordinated.
    pub fn disconnect(&self, connection: u64) -> Vec<Arc<str>> {
        let mut sessions = self.lock();
        let left = release(&mut sessions, connection, None);
        // A fence that is out needs the cell that a next coordinator moves.
        sessions.retain(|_, entry| entry.holder.is_some() || Arc::strong_count(&entry.current) > 1);
        left
    }

    /// A subscription of a connection ends. Returns the sessions that it coordinated.
    pub fn leave(&self, connection: u64, subscription_id: &str) -> Vec<Arc<str>> {
        release(&mut self.lock(), connection, Some(subscription_id))
    }

    /// Checks that a connection is the session's coordinator in this epoch, whatever was reported.
    pub(crate) fn fence(&self, session: &str, epoch: u64, connection: u64) -> Result<SessionFence, Answer> {
        let sessions = self.lock();
        let Some((name, entry)) = sessions.get_key_value(session) else {
            return Err(stale(session, epoch, None));
        };
        let holds = entry.holder.as_ref().is_some_and(|(holder, _)| *holder == connection);
        if entry.epoch != epoch || !holds {
            return Err(stale(session, epoch, Some(entry.epoch)));
        }
        Ok(SessionFence::new(Arc::clone(name), epoch, Arc::clone(&entry.current)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Entry>> {
        self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes sessions from a connection, or from one of its subscriptions.
fn release(sessions: &mut HashMap<Arc<str>, Entry>, connection: u64, subscription_id: Option<&str>) -> Vec<Arc<str>> {
    let mut left = Vec::new();
    for (session, entry) in sessions {
        let held = entry.holder.as_ref().is_some_and(|(holder, subscription)| {
            *holder == connection && subscription_id.is_none_or(|id| id == subscription)
        });
        if held {
            entry.holder = None;
            left.push(Arc::clone(session));
        }
    }
    left
}

impl Server {
    /// Checks what acting for a session needs: the connection is its coordinator, in this epoch, and its branch report was accepted.
    /// Whoever writes by it checks the fence again inside the transaction.
    pub(crate) fn session_authority(
        &self,
        authority: &SessionAuthority,
        context: &Context,
    ) -> Result<SessionFence, Answer> {
        let session = &authority.target_session_id;
        let fence = self
            .coordinators
            .fence(session, authority.coordinator_epoch, context.number)?;
        if self.coordinators.standing(session).reported {
            return Ok(fence);
        }
        let message = format!(
            "session {session:?} has not reported its branch in epoch {}",
            fence.epoch()
        );
        Err(Answer::refuse(Outcome::Rejected, "branch_report_required", &message))
    }
}

/// The refusal of whoever is not the coordinator that it says it is.
fn stale(session: &str, epoch: u64, current: Option<u64>) -> Answer {
    let now = match current {
        Some(current) => format!("the current epoch is {current}"),
        None => "nobody watches it".to_owned(),
    };
    let message = format!("this connection does not coordinate session {session:?} in epoch {epoch}; {now}");
    Answer::refuse(Outcome::Rejected, "stale_coordinator", &message)
}
