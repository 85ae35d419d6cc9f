//! The read pool: a few threads, each with a read-only connection. One call is one read transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use crate::error::StateError;
use crate::open::{FILE_NAME, OpenError, open_reader};

type Work = Box<dyn FnOnce(&mut Connection) + Send>;

enum Job {
    Read(Work),
    Close,
}

/// Handle of the pool.
#[derive(Clone)]
pub(crate) struct Readers {
    jobs: Sender<Job>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Readers {
    pub(crate) fn open(dir: &Path, count: usize) -> Result<Self, OpenError> {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        let fail = |detail: String| OpenError::Other {
            path: dir.to_path_buf(),
            detail,
        };
        for number in 0..count.max(1) {
            let connection = open_reader(dir).map_err(|error| OpenError::from_sqlite(&dir.join(FILE_NAME), &error))?;
            let queue = Arc::clone(&queue);
            let thread = thread::Builder::new()
                .name(format!("state-read-{number}"))
                .spawn(move || serve(connection, &queue))
                .map_err(|error| fail(format!("cannot start a reader thread: {error}")))?;
            threads.push(thread);
        }
        Ok(Self {
            jobs,
            threads: Arc::new(Mutex::new(threads)),
        })
    }

    /// Ends the threads and waits for them.
    pub(crate) fn close(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for _ in &threads {
            // A failed send means that the threads have ended already.
            let _ = self.jobs.send(Job::Close);
        }
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a reader thread panicked");
            }
        }
    }

    /// Runs `read` in one read transaction: everything it reads is of one instant.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StateError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Work = Box::new(move |connection| {
            // The receiver may be gone when the caller was cancelled.
            let _ = reply.send(in_transaction(connection, read));
        });
        self.jobs.send(Job::Read(job)).map_err(|_| StateError::Closed)?;
        answer.await.map_err(|_| StateError::Closed)?
    }
}

fn in_transaction<T>(
    connection: &mut Connection,
    read: impl FnOnce(&Connection) -> Result<T, StateError>,
) -> Result<T, StateError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
    let result = read(&transaction);
    // A failure of the disk may have ended the transaction already.
    if !transaction.is_autocommit() {
        transaction.rollback()?;
    }
    result
}

fn serve(mut connection: Connection, queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job::Read(read)) = job else { return };
        // The caller of a read that panics learns it by its dropped reply.
        if catch_unwind(AssertUnwindSafe(|| read(&mut connection))).is_err() {
            tracing::error!("a read of the state database panicked");
            if !connection.is_autocommit()
                && let Err(error) = connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "a reader cannot end its transaction");
                return;
            }
        }
    }
}
