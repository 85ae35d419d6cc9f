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
pub(crate) struct Coordinators {
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
    /// `None` once its connection or subscription is gone.
    connection: Option<u64>,
    /// Whether a branch report of this epoch was accepted.
    reported: bool,
}

/// How a session's coordination stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Epoch of the newest coordinator; 0 when there never was one in this life of the server.
    pub(crate) epoch: u64,
    /// Whether a branch report of this epoch was accepted.
    pub(crate) reported: bool,
}

impl Coordinators {
    /// None yet, in the life of the server that has this epoch.
    pub(crate) fn new(server_epoch: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                next: AtomicU64::new((server_epoch << COUNTER_BITS) + 1),
                sessions: Mutex::default(),
            }),
        }
    }

    /// Makes a connection the coordinator of a session, fencing the one before. Returns its epoch.
    pub(crate) fn take(&self, session: &Arc<str>, connection: u64) -> u64 {
        let mut sessions = self.lock();
        let epoch = self.shared.next.fetch_add(1, Ordering::SeqCst);
        let entry = sessions.entry(Arc::clone(session)).or_insert_with(|| Entry {
            epoch,
            current: Arc::default(),
            connection: None,
            reported: false,
        });
        entry.current.store(epoch, Ordering::SeqCst);
        entry.epoch = epoch;
        entry.connection = Some(connection);
        entry.reported = false;
        epoch
    }

    /// How a session's coordination stands.
    pub(crate) fn standing(&self, session: &str) -> Standing {
        self.lock()
            .get(session)
            .map_or_else(Standing::default, |entry| Standing {
                epoch: entry.epoch,
                reported: entry.reported,
            })
    }

    /// A branch report of an epoch was accepted; whether that epoch is still the session's.
    pub(crate) fn reported(&self, session: &str, epoch: u64) -> bool {
        match self.lock().get_mut(session) {
            Some(entry) if entry.epoch == epoch => {
                entry.reported = true;
                true
            }
            _ => false,
        }
    }

    /// A connection is gone: it coordinates nothing any more. What it asked for before may still be decided, unless somebody else
    /// takes its sessions first.
    pub(crate) fn disconnect(&self, connection: u64) {
        self.lock().retain(|_, entry| {
            if entry.connection == Some(connection) {
                entry.connection = None;
            }
            // A fence that is out needs the cell that a next coordinator moves.
            entry.connection.is_some() || Arc::strong_count(&entry.current) > 1
        });
    }

    /// A connection gives one session up.
    pub(crate) fn leave(&self, session: &str, epoch: u64) {
        if let Some(entry) = self.lock().get_mut(session)
            && entry.epoch == epoch
        {
            entry.connection = None;
        }
    }

    /// Checks that a connection is the session's coordinator in this epoch, whatever was reported.
    pub(crate) fn fence(&self, session: &str, epoch: u64, connection: u64) -> Result<SessionFence, Answer> {
        let sessions = self.lock();
        let Some((name, entry)) = sessions.get_key_value(session) else {
            return Err(stale(session, epoch, None));
        };
        if entry.epoch != epoch || entry.connection != Some(connection) {
            return Err(stale(session, epoch, Some(entry.epoch)));
        }
        Ok(SessionFence::new(Arc::clone(name), epoch, Arc::clone(&entry.current)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Entry>> {
        self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
pub(crate) fn stale(session: &str, epoch: u64, current: Option<u64>) -> Answer {
    let now = match current {
        Some(current) => format!("the current epoch is {current}"),
        None => "nobody watches it".to_owned(),
    };
    let message = format!("this connection does not coordinate session {session:?} in epoch {epoch}; {now}");
    Answer::refuse(Outcome::Rejected, "stale_coordinator", &message)
}
