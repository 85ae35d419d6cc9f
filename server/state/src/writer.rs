//! The one thread that writes, and its group commit.
//!
//! Callers send jobs. The thread takes what is queued, runs each job in its own savepoint, commits once for the group, and
//! answers after the commit: durability costs one sync per group. A job that fails rolls back alone. A commit that fails fails
//! every job of its group and drops everything remembered in memory, which is rebuilt from the database.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::cache::RunCache;
use crate::changes::{Changes, Feeds};
use crate::clock::Clock;
use crate::error::StateError;
use crate::files::Files;
use crate::lease::{LEASE_MS, Moment};
use crate::open::OpenError;
use crate::server::OwnEpoch;
use crate::unclosed;

/// Jobs that may wait; a caller beyond that waits in turn.
const QUEUE: usize = 4096;
/// Most jobs of one commit, so that no reply waits long behind others.
const GROUP: usize = 256;
/// How long a full queue is polled for.
const FULL_RETRY: Duration = Duration::from_millis(1);

/// Whether a job may run without this process owning the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Authority {
    /// The job is fenced by the server's epoch.
    Server,
    /// The job takes, ends or inspects the epoch itself.
    None,
}

/// Runs a job; `Some`: why it failed.
type Work = Box<dyn FnOnce(&mut Tx<'_>) -> (Option<StateError>, Reply) + Send>;
type Reply = Box<dyn FnOnce(Result<(), StateError>) + Send>;

enum Message {
    Job(Job),
    /// Runs between two groups, outside of any transaction.
    Between(Box<dyn FnOnce(&Connection) + Send>),
    Close,
}

struct Job {
    name: &'static str,
    authority: Authority,
    run: Work,
    refuse: Box<dyn FnOnce(StateError) + Send>,
}

/// What a job works with: the open transaction, one reading of the clocks, and what the writer remembers.
pub(crate) struct Tx<'a> {
    /// The connection inside the group's transaction.
    pub(crate) db: &'a Connection,
    /// Wall clock of this job.
    pub(crate) now: i64,
    /// Clock that stops in suspend.
    pub(crate) steady: i64,
    /// This boot.
    pub(crate) boot: &'a str,
    /// How long a claim that is taken or renewed holds, in milliseconds.
    pub(crate) lease: i64,
    /// The owned epoch, once taken.
    pub(crate) own: &'a mut Option<OwnEpoch>,
    /// Definitions and progress of runs.
    pub(crate) cache: &'a mut RunCache,
    /// What this job changed.
    pub(crate) changes: Changes,
}

impl Tx<'_> {
    /// The readings of this job.
    pub(crate) fn moment(&self) -> Moment<'_> {
        Moment {
            now: self.now,
            steady: self.steady,
            boot: self.boot,
            lease: self.lease,
        }
    }
}

/// Handle of the writer thread. The thread ends when the last handle is dropped, or by [`Writer::close`].
#[derive(Clone)]
pub(crate) struct Writer {
    jobs: SyncSender<Message>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
    lease: Arc<AtomicI64>,
}

impl Writer {
    pub(crate) fn start(db: Connection, clock: Arc<dyn Clock>, feeds: Feeds) -> Result<Self, OpenError> {
        let (jobs, queue) = sync_channel(QUEUE);
        let lease = Arc::new(AtomicI64::new(LEASE_MS));
        let of_thread = Arc::clone(&lease);
        let thread = thread::Builder::new()
            .name("state-write".to_owned())
            .spawn(move || Thread::new(db, clock, feeds, of_thread).serve(&queue))
            .map_err(|error| OpenError::Other {
                path: std::path::PathBuf::new(),
                detail: format!("cannot start the writer thread: {error}"),
            })?;
        Ok(Self {
            jobs,
            thread: Arc::new(Mutex::new(Some(thread))),
            lease,
        })
    }

    /// Sets how long claims hold that are taken or renewed from now on.
    pub(crate) fn set_lease(&self, milliseconds: i64) {
        self.lease.store(milliseconds, Ordering::Relaxed);
    }

    /// Finishes what is queued, ends the thread and waits for it.
    pub(crate) fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A failed send means that the thread has ended already.
        let _ = self.jobs.send(Message::Close);
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer thread panicked");
        }
    }

    /// Runs `work` in a transaction and resolves after its commit.
    pub(crate) async fn run<T, F>(&self, name: &'static str, authority: Authority, work: F) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StateError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel::<Result<T, StateError>>();
        // Either `run` or `refuse` is called, each at most once; they share the one sender.
        let reply = Arc::new(Mutex::new(Some(reply)));
        let for_refusal = Arc::clone(&reply);
        let send = move |reply: &Mutex<Option<oneshot::Sender<_>>>, result| {
            let sender = reply.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(sender) = sender {
                // The receiver may be gone when the caller was cancelled; the commit stands.
                let _ = sender.send(result);
            }
        };
        let message = Message::Job(Job {
            name,
            authority,
            run: Box::new(move |tx| {
                let result = work(tx);
                let failure = result.as_ref().err().cloned();
                let answer: Reply = Box::new(move |committed| send(&reply, committed.and(result)));
                (failure, answer)
            }),
            refuse: Box::new(move |error| send(&for_refusal, Err(error))),
        });
        self.send(message).await?;
        answer.await.map_err(|_| StateError::Closed)?
    }

    /// Runs `work` between two groups: no transaction is open then, and nothing is written meanwhile.
    pub(crate) async fn between<T, F>(&self, work: F) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StateError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let message = Message::Between(Box::new(move |db| {
            // The receiver may be gone when the caller was cancelled.
            let _ = reply.send(work(db));
        }));
        self.send(message).await?;
        answer.await.map_err(|_| StateError::Closed)?
    }

    async fn send(&self, mut message: Message) -> Result<(), StateError> {
        loop {
            match self.jobs.try_send(message) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(StateError::Closed),
                Err(TrySendError::Full(back)) => {
                    message = back;
                    tokio::time::sleep(FULL_RETRY).await;
                }
            }
        }
    }
}

struct Thread {
    db: Connection,
    clock: Arc<dyn Clock>,
    feeds: Feeds,
    boot: String,
    lease: Arc<AtomicI64>,
    own: Option<OwnEpoch>,
    cache: RunCache,
    files: Files,
    /// Why the group's transaction is gone before its commit.
    lost: Option<StateError>,
}

impl Thread {
    fn new(db: Connection, clock: Arc<dyn Clock>, feeds: Feeds, lease: Arc<AtomicI64>) -> Self {
        let boot = clock.boot_id();
        Self {
            files: Files::of(&db),
            db,
            clock,
            feeds,
            boot,
            lease,
            own: None,
            cache: RunCache::default(),
            lost: None,
        }
    }

    fn serve(mut self, queue: &Receiver<Message>) {
        while let Ok(message) = queue.recv() {
            if self.serve_one(message, queue).is_break() {
                break;
            }
        }
        self.cache.clear();
        if let Err(error) = self.choose_log() {
            tracing::warn!(%error, "cannot tell whether the write-ahead log is still needed; it stays");
        }
        if let Err((_, error)) = self.db.close() {
            tracing::error!(%error, "the state database does not close");
        }
    }

    /// The log of a database that was released goes with the close. It stays when no server has said that it stopped, unless it
    /// was deleted: what it held then lives in this connection only.
    fn choose_log(&mut self) -> Result<(), StateError> {
        if self.files.log_is_gone() {
            unclosed::keep_log(&self.db, false)?;
            return match self.own.take() {
                Some(own) => crate::server::release_at_close(&self.db, &own, &self.moment()),
                None => Ok(()),
            };
        }
        if !unclosed::is_running(&self.db)? {
            unclosed::keep_log(&self.db, false)?;
        }
        Ok(())
    }

    /// Breaks when the thread is asked to end.
    fn serve_one(&mut self, message: Message, queue: &Receiver<Message>) -> ControlFlow<()> {
        let mut next = Some(message);
        while let Some(message) = next.take() {
            match message {
                Message::Job(first) => next = self.group(first, queue),
                Message::Between(work) => {
                    if catch_unwind(AssertUnwindSafe(|| work(&self.db))).is_err() {
                        tracing::error!("maintenance of the state database panicked");
                    }
                }
                Message::Close => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }

    /// Runs one group: the given job and the jobs that are queued behind it. Returns what ended the group and is no job.
    fn group(&mut self, first: Job, queue: &Receiver<Message>) -> Option<Message> {
        self.boot = self.clock.boot_id();
        if let Err(error) = self.db.execute_batch("BEGIN IMMEDIATE") {
            return refuse_all(first, queue, &error.into());
        }
        let mut replies: Vec<(bool, Reply)> = Vec::new();
        let mut changes = Changes::default();
        let mut written = 0usize;
        let mut fenced: Option<Result<(), StateError>> = None;
        let mut next = Some(first);
        let mut behind = None;
        while let Some(job) = next.take() {
            let allowed = match job.authority {
                Authority::None => Ok(()),
                Authority::Server => fenced.get_or_insert_with(|| self.check_epoch()).clone(),
            };
            match allowed {
                Err(error) => (job.refuse)(error),
                Ok(()) => {
                    if job.authority == Authority::None {
                        fenced = None;
                    }
                    match self.one(job, written, &mut changes) {
                        Some((true, reply)) => {
                            written += 1;
                            replies.push((true, reply));
                        }
                        Some((false, reply)) => replies.push((false, reply)),
                        None => {}
                    }
                }
            }
            // Without its transaction nothing more may run: each statement would commit by itself.
            if replies.len() < GROUP && !self.db.is_autocommit() && self.lost.is_none() {
                match queue.try_recv() {
                    Ok(Message::Job(job)) => next = Some(job),
                    Ok(message) => behind = Some(message),
                    Err(_) => {}
                }
            }
        }
        self.finish(replies, &changes);
        behind
    }

    /// Runs one job. `None`: it panicked, and its caller learns that by the dropped reply.
    fn one(&mut self, job: Job, written: usize, changes: &mut Changes) -> Option<(bool, Reply)> {
        // The first job needs no savepoint of its own: when it fails, nothing else is in the transaction yet.
        let savepoint = written > 0;
        if savepoint && let Err(error) = self.db.execute_batch("SAVEPOINT job") {
            (job.refuse)(error.into());
            return None;
        }
        let (now, steady) = (self.clock.wall_ms(), self.clock.steady_ms());
        let mut tx = Tx {
            db: &self.db,
            now,
            steady,
            boot: &self.boot,
            lease: self.lease.load(Ordering::Relaxed),
            own: &mut self.own,
            cache: &mut self.cache,
            changes: Changes::default(),
        };
        tx.cache.begin_job();
        let run = job.run;
        let result = catch_unwind(AssertUnwindSafe(|| run(&mut tx)));
        let done = std::mem::take(&mut tx.changes);
        let failure = match &result {
            Ok((failure, _)) => failure.clone(),
            Err(_) => Some(StateError::Inconsistent("a job panicked".to_owned())),
        };
        if failure.is_none() {
            changes.merge_from(&done);
        } else {
            self.cache.roll_back_job();
        }
        self.end_job(job.name, savepoint, failure.as_ref());
        if let Err(panic) = &result {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            tracing::error!(
                job = job.name,
                panic = text.unwrap_or("?"),
                "a state command panicked and was rolled back"
            );
            self.cache.clear();
        }
        let (failure, reply) = result.ok()?;
        Some((failure.is_none(), reply))
    }

    /// Ends a job's part of the transaction. A job that fails before anything else was written ends the group.
    fn end_job(&mut self, name: &'static str, savepoint: bool, failure: Option<&StateError>) {
        let end = match (savepoint, failure.is_none()) {
            (true, true) => "RELEASE job",
            (true, false) => "ROLLBACK TO job; RELEASE job",
            (false, true) => "",
            (false, false) => "ROLLBACK",
        };
        // SQLite rolls the whole transaction back by itself after some failures of the disk.
        let rolled_back = self.db.is_autocommit();
        if rolled_back && !savepoint && failure.is_some() {
            return;
        }
        let ended = if rolled_back {
            Err(failure.cloned().unwrap_or_else(|| {
                StateError::Inconsistent(format!("the transaction ended before its commit, in {name}"))
            }))
        } else {
            self.db.execute_batch(end).map_err(StateError::from)
        };
        if let Err(error) = ended {
            tracing::error!(job = name, %error, "the transaction of a group is gone");
            self.cache.clear();
            self.lost = Some(error);
        }
    }

    fn finish(&mut self, replies: Vec<(bool, Reply)>, changes: &Changes) {
        let wrote = replies.iter().any(|(ok, _)| *ok);
        let replies = if piw_fault::switch!("early-answer") {
            answer(replies);
            Vec::new()
        } else {
            replies
        };
        let committed = match self.lost.take() {
            Some(error) => Err(error),
            None if wrote => self.commit(),
            None if self.db.is_autocommit() => Ok(()),
            None => self.db.execute_batch("ROLLBACK").map_err(StateError::from),
        };
        match committed {
            Ok(()) => {
                self.feeds.publish(changes);
                piw_fault::point!("state::before_reply");
                answer(replies);
                piw_fault::point!("state::after_reply");
            }
            Err(error) => {
                tracing::error!(%error, "a commit failed; nothing of it was written");
                if !self.db.is_autocommit()
                    && let Err(error) = self.db.execute_batch("ROLLBACK")
                {
                    tracing::error!(%error, "rollback failed");
                }
                self.cache.clear();
                self.own = self.own.take().filter(OwnEpoch::is_committed);
                for (ok, reply) in replies {
                    reply(if ok { Err(error.clone()) } else { Ok(()) });
                }
            }
        }
    }

    fn commit(&mut self) -> Result<(), StateError> {
        self.files.check()?;
        piw_fault::point!("state::before_commit");
        self.db.execute_batch("COMMIT")?;
        piw_fault::point!("state::after_commit");
        if let Some(own) = &mut self.own {
            own.mark_committed();
        }
        Ok(())
    }

    /// The database must still name this server, by a claim that has not expired.
    fn check_epoch(&self) -> Result<(), StateError> {
        let own = self.own.as_ref().ok_or(StateError::NoEpoch)?;
        crate::server::check_and_renew(&self.db, own, &self.moment())
    }

    fn moment(&self) -> Moment<'_> {
        Moment {
            now: self.clock.wall_ms(),
            steady: self.clock.steady_ms(),
            boot: &self.boot,
            lease: self.lease.load(Ordering::Relaxed),
        }
    }
}

/// No transaction can begin: whoever waits is told at once, so that nobody waits for one lock after the other.
/// Returns what is queued behind them and is no job.
fn refuse_all(first: Job, queue: &Receiver<Message>, error: &StateError) -> Option<Message> {
    // All are taken before one is told: whoever tries again at once gets an answer of its own.
    let mut waiting = vec![first];
    let mut behind = None;
    while waiting.len() < GROUP && behind.is_none() {
        match queue.try_recv() {
            Ok(Message::Job(job)) => waiting.push(job),
            Ok(message) => behind = Some(message),
            Err(_) => break,
        }
    }
    for job in waiting {
        (job.refuse)(error.clone());
    }
    behind
}

/// Tells callers that what they asked for is durable, or why it was refused.
fn answer(replies: Vec<(bool, Reply)>) {
    for (_, reply) in replies {
        reply(Ok(()));
    }
}

#[cfg(test)]
mod tests;
