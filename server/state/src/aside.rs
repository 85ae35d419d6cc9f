//! Long reads beside the read pool: each has a thread and a read-only connection of its own, so that no view waits for it, and
//! ends when nobody wants it any more or the database is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::StateError;
use crate::open::open_reader;
use crate::state::State;

/// Instructions of SQLite between two looks at the stop flag: well below a millisecond.
const OPS: i32 = 10_000;
/// Longest wait of a close for reads that were told to stop.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Whether a long read should end.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    unwanted: Arc<AtomicBool>,
    closed: Arc<AtomicBool>,
}

impl Stop {
    /// Whether it should.
    pub(crate) fn is_set(&self) -> bool {
        self.unwanted.load(Ordering::Relaxed) || self.closed.load(Ordering::Relaxed)
    }

    /// For between two pieces of work: an error when it should end.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        if self.is_set() { Err(StateError::Closed) } else { Ok(()) }
    }

    /// Interrupts statements of `db` as soon as the flag is set.
    pub(crate) fn watch(&self, db: &mut Connection) -> rusqlite::Result<()> {
        let watched = self.clone();
        db.progress_handler(OPS, Some(move || watched.is_set()))
    }

    /// A read that is stopped before it begins.
    #[cfg(test)]
    pub(crate) fn at_once() -> Self {
        Self {
            unwanted: Arc::new(AtomicBool::new(true)),
            closed: Arc::default(),
        }
    }

    /// A read that nothing stops.
    pub(crate) fn never() -> Self {
        Self {
            unwanted: Arc::default(),
            closed: Arc::default(),
        }
    }
}

/// The long reads under way.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    closed: Arc<AtomicBool>,
    count: Mutex<usize>,
    ended: Condvar,
}

impl Asides {
    /// Tells all to stop and waits until they are gone.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(count, CLOSE_WAIT, |count| *count > 0);
        if waited.is_ok_and(|(_, timeout)| timeout.timed_out()) {
            tracing::warn!("a long read of the state database did not end in time");
        }
    }

    fn enter(self: &Arc<Self>) -> Inside {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Inside(Arc::clone(self))
    }
}

struct Inside(Arc<Asides>);

impl Drop for Inside {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_all();
    }
}

/// Sets the flag when the caller goes away.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl State {
    /// Runs `work` on a thread of its own with a read-only connection of its own. Statements are interrupted when the caller
    /// goes away; `work` looks at the flag between them.
    pub(crate) async fn aside<T, F>(&self, name: &str, work: F) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, &Stop) -> Result<T, StateError> + Send + 'static,
    {
        let asides = self.asides();
        let stop = Stop {
            unwanted: Arc::default(),
            closed: Arc::clone(&asides.closed),
        };
        let wanted = Wanted(Arc::clone(&stop.unwanted));
        let (reply, answer) = oneshot::channel();
        let inside = asides.enter();
        let dir = self.dir().to_path_buf();
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let result = open_reader(&dir).map_err(StateError::from).and_then(|mut db| {
                stop.watch(&mut db)?;
                let result = work(&db, &stop);
                if stop.is_set() && result.is_err() {
                    Err(StateError::Closed)
                } else {
                    result
                }
            });
            // The receiver may be gone.
            let _ = reply.send(result);
            drop(inside);
        });
        spawned.map_err(|error| StateError::Io(format!("cannot start a thread: {error}")))?;
        let result = answer.await.map_err(|_| StateError::Closed)?;
        drop(wanted);
        result
    }
}
