//! The handle of an open database.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use crate::aside::Asides;
use crate::changes::{ChangeFeed, Feeds, Interest};
use crate::clock::{Clock, SystemClock};
use crate::content::Uploads;
use crate::error::{ClaimLost, StateError};
use crate::open::{OpenError, open_writer};
use crate::readers::Readers;
use crate::server;
use crate::writer::{Authority, Tx, Writer};

/// How to open a database.
#[derive(Clone)]
pub struct StateOptions {
    /// State directory; made with mode 0700 when missing.
    pub dir: PathBuf,
    /// Clocks.
    pub clock: Arc<dyn Clock>,
    /// Read-only connections, at least one.
    pub readers: usize,
    /// Longest wait for another program's lock; default 5 s.
    pub busy_timeout: Option<Duration>,
}

impl StateOptions {
    /// The system's clocks and two readers.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            clock: Arc::new(SystemClock::new()),
            readers: 2,
            busy_timeout: None,
        }
    }
}

/// An open state database. Clones share one writer thread and one read pool, which end with the last clone.
#[derive(Clone)]
pub struct State {
    writer: Writer,
    readers: Readers,
    feeds: Feeds,
    clock: Arc<dyn Clock>,
    dir: Arc<Path>,
    uploads: Arc<Uploads>,
    asides: Arc<Asides>,
    write_error: Arc<Mutex<Option<StateError>>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "State({})", self.dir.display())
    }
}

impl State {
    /// Checks the file, creates it when there is none, and starts the writer and the read pool.
    ///
    /// # Errors
    /// [`OpenError`] names what is wrong with the file or its place; nothing was changed then.
    pub fn open(options: StateOptions) -> Result<Self, OpenError> {
        let db = open_writer(&options.dir, options.clock.wall_ms(), options.busy_timeout)?;
        let feeds = Feeds::default();
        let readers = Readers::open(&options.dir, options.readers)?;
        let writer = Writer::start(db, Arc::clone(&options.clock), feeds.clone())?;
        Ok(Self {
            writer,
            readers,
            feeds,
            clock: options.clock,
            dir: options.dir.into(),
            uploads: Arc::new(Uploads::default()),
            asides: Arc::default(),
            write_error: Arc::default(),
        })
    }

    /// Runs `read` in one read transaction on the read pool: everything it reads is of one instant.
    ///
    /// # Errors
    /// What `read` returns, or a failure of the database.
    pub async fn read<T, F>(&self, read: F) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StateError> + Send + 'static,
    {
        self.readers.read(read).await
    }

    /// Subscribes to what commits change, as far as it is of interest.
    #[must_use]
    pub fn changes(&self, interest: Interest) -> ChangeFeed {
        self.feeds.subscribe(interest)
    }

    /// The clocks that this database uses.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The state directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Finishes what is queued, ends the threads and closes the file. Blocks until that is done; every later call of any clone
    /// fails with [`StateError::Closed`].
    pub fn close(&self) {
        self.asides.close();
        self.readers.close();
        self.writer.close();
    }

    /// Sets how long claims hold that are taken or renewed from now on, instead of [`crate::lease::LEASE_MS`]: for tests that
    /// wait for a claim to expire.
    pub fn set_lease(&self, length: Duration) {
        self.writer
            .set_lease(i64::try_from(length.as_millis()).unwrap_or(i64::MAX));
    }

    /// Why the disk did not take the newest write, for as long as no later one succeeded.
    #[must_use]
    pub fn write_error(&self) -> Option<String> {
        self.known_write_error().map(|error| error.to_string())
    }

    pub(crate) fn asides(&self) -> &Arc<Asides> {
        &self.asides
    }

    /// Runs `work` on the writing connection while no transaction is open.
    pub(crate) async fn between<T, F>(&self, work: F) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StateError> + Send + 'static,
    {
        self.writer.between(work).await
    }

    pub(crate) fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    pub(crate) async fn write<T, F>(&self, name: &'static str, authority: Authority, work: F) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StateError> + Send + 'static,
    {
        let result = self.writer.run(name, authority, work).await;
        match result {
            Err(error) if error.is_of_the_disk() || matches!(error, StateError::Corrupt(_)) => {
                self.set_write_error(Some(error.clone()));
                Err(error)
            }
            // The claim ran out because the disk took no renewal: that is what people have to know, until it takes one again.
            Err(StateError::Fenced(ClaimLost::Expired)) if self.known_write_error().is_some() => {
                match self.writer.run("try_disk", Authority::None, server::touch).await {
                    Err(error) if error.is_of_the_disk() => {
                        self.set_write_error(Some(error.clone()));
                        Err(error)
                    }
                    _ => {
                        self.set_write_error(None);
                        Err(StateError::Fenced(ClaimLost::Expired))
                    }
                }
            }
            // Decided or refused without writing: nothing is known about the disk.
            Err(error) => Err(error),
            Ok(done) => {
                self.set_write_error(None);
                Ok(done)
            }
        }
    }

    fn known_write_error(&self) -> Option<StateError> {
        self.write_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_write_error(&self, error: Option<StateError>) {
        *self.write_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}
