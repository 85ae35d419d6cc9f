//! The server lock: one live server in a state directory.
//!
//! The lock itself is an advisory lock on `server.lock`, which dies with its process. Next to it lies a record
//! (`server.lock.json`, replaced atomically) that names the holder exactly: pid, start identity, boot and epoch, so that other
//! programs and other versions can find the process and a reused pid is not mistaken for it. Stale sockets may be removed
//! only by the holder.
//!
//! A holder that is stopped or hangs keeps its lock, but not its claim on the database. Once that has expired, the next server
//! puts a new lock file in the place of the old one ([`ServerLock::take_over`]): the old holder, should it wake, holds a lock on a
//! file without a name, can write nothing to the database, and leaves the record, the registry and the socket of its successor
//! alone. Starts are serialised by a second lock, on the directory, from before the lock is looked at until lock and database name
//! the same server, so nobody mistakes a server on its way up for one that lost its claim.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::paths::Places;

/// Schema of the lock record.
pub const LOCK_SCHEMA: &str = "pi-workflows.server-lock.v1";

const PROBE_TRIES: u32 = 5;
const PROBE_PAUSE: Duration = Duration::from_millis(2);
/// How long a start waits for another one to come up or fail.
const GATE_WAIT: Duration = Duration::from_secs(10);

/// Who holds the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockRecord {
    /// Always [`LOCK_SCHEMA`].
    pub schema: String,
    /// Process id.
    pub pid: u32,
    /// Start identity of that process.
    pub start_identity: String,
    /// Boot in which it started.
    pub boot_id: String,
    /// Server epoch, the same as in the database.
    pub epoch: u64,
    /// Package version.
    pub package_version: String,
    /// The socket it listens on.
    pub socket: PathBuf,
    /// RFC 3339 UTC.
    pub started_at: String,
}

/// Why the lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another server lives.
    #[error("a server is already running{}", holder.as_ref().map_or_else(String::new, |record| format!(" (pid {}, version {})", record.pid, record.package_version)))]
    Held {
        /// Its record, when it was written already.
        holder: Option<Box<LockRecord>>,
    },
    /// The file system refused.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// The locked or written path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A start under way: while it is held, no other server starts in the same state directory.
#[derive(Debug)]
pub struct Gate(File);

impl Gate {
    /// Waits for a start that is under way, for a bounded time.
    ///
    /// # Errors
    /// [`LockError::Held`] when another start does not come to an end.
    pub fn enter(places: &Places) -> Result<Self, LockError> {
        let path = places.server_dir();
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        let directory = File::open(&path).map_err(failed)?;
        let start = Instant::now();
        loop {
            match directory.try_lock() {
                Ok(()) => return Ok(Self(directory)),
                Err(TryLockError::WouldBlock) if start.elapsed() < GATE_WAIT => std::thread::sleep(PROBE_PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Held {
                        holder: read_record(places).map(Box::new),
                    });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// The held lock. Dropping it removes its record and releases the lock.
#[derive(Debug)]
pub struct ServerLock {
    file: File,
    place: LockPlace,
    record: PathBuf,
    /// What was published, to know it again.
    published: Mutex<Option<LockRecord>>,
    took_over: bool,
}

/// Tells whether a lock that was taken is still the one in its place. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LockPlace {
    path: PathBuf,
    inode: (u64, u64),
}

impl LockPlace {
    /// `false` once another server took over from this one.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.inode)
    }
}

impl ServerLock {
    /// Takes the lock without waiting.
    ///
    /// # Errors
    /// [`LockError::Held`] when another process holds it.
    pub fn acquire(places: &Places, _gate: &Gate) -> Result<Self, LockError> {
        let path = places.lock_file();
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        let file = open_private(&path).map_err(failed)?;
        // A client that asks whether the lock is held holds it shared for an instant: that is no other server.
        let mut tries = 0;
        loop {
            match file.try_lock() {
                Ok(()) => return Self::new(places, path, file, false),
                Err(TryLockError::WouldBlock) if tries < PROBE_TRIES => {
                    tries += 1;
                    std::thread::sleep(PROBE_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Held {
                        holder: read_record(places).map(Box::new),
                    });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
    }

    /// Puts a new lock in the place of one whose holder has lost its claim on the database. The caller has proved that, inside
    /// the same gate.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn take_over(places: &Places, _gate: &Gate) -> Result<Self, LockError> {
        let path = places.lock_file();
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        let fresh = path.with_extension("lock.new");
        if let Err(error) = fs::remove_file(&fresh)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(failed(error));
        }
        let file = open_private(&fresh).map_err(failed)?;
        file.lock().map_err(failed)?;
        fs::rename(&fresh, &path).map_err(failed)?;
        Self::new(places, path, file, true)
    }

    fn new(places: &Places, path: PathBuf, file: File, took_over: bool) -> Result<Self, LockError> {
        let found = file.metadata().map_err(|source| LockError::Io {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            file,
            place: LockPlace {
                path,
                inode: (found.dev(), found.ino()),
            },
            record: places.lock_record(),
            published: Mutex::default(),
            took_over,
        })
    }

    /// Writes the record; from here on the lock and the database name the same epoch.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn publish(&self, record: &LockRecord) -> Result<(), LockError> {
        let bytes = serde_json::to_vec(record).expect("a lock record is plain data");
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
        replace_file(&self.record, &bytes).map_err(|source| LockError::Io {
            path: self.record.clone(),
            source,
        })
    }

    /// To ask later whether this lock still counts.
    #[must_use]
    pub fn place(&self) -> LockPlace {
        self.place.clone()
    }

    /// Whether the lock was taken from a holder that still exists: its socket may still listen without anybody answering.
    #[must_use]
    pub fn took_over(&self) -> bool {
        self.took_over
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A record left behind is harmless: readers check the lock and the process identity. One of a successor stays.
        let found = fs::read(&self.record).ok().and_then(|bytes| parse_record(&bytes));
        if published.is_some() && found == published {
            let _ = fs::remove_file(&self.record);
        }
        let _ = self.file.unlock();
    }
}

fn open_private(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
}

/// Whether some process holds the lock now. `false` also when there is no state directory.
#[must_use]
pub fn is_held(places: &Places) -> bool {
    File::open(places.lock_file()).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The record, when there is a readable one. It may be stale: check [`is_held`] or the process's identity.
#[must_use]
pub fn read_record(places: &Places) -> Option<LockRecord> {
    parse_record(&fs::read(places.lock_record()).ok()?)
}

fn parse_record(bytes: &[u8]) -> Option<LockRecord> {
    serde_json::from_slice(bytes)
        .ok()
        .filter(|record: &LockRecord| record.schema == LOCK_SCHEMA)
}

/// Replaces a file atomically, mode 0600: readers see the old bytes or the new ones.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("json.tmp");
    let mut file = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    piw_fault::point!("server::before_lock_rename");
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(places: &Places) -> LockRecord {
        LockRecord {
            schema: LOCK_SCHEMA.into(),
            pid: 7,
            start_identity: "1".into(),
            boot_id: "boot".into(),
            epoch: 3,
            package_version: "0.1.0".into(),
            socket: places.socket.clone(),
            started_at: "2026-01-01T00:00:00.000Z".into(),
        }
    }

    #[test]
    fn a_second_holder_is_refused_and_told_who_holds_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let places = Places::new(dir.path().join("state"), None).expect("places");
        places.prepare().expect("prepared");
        assert!(!is_held(&places));
        let gate = Gate::enter(&places).expect("gate");
        let lock = ServerLock::acquire(&places, &gate).expect("first");
        lock.publish(&record(&places)).expect("record");
        assert!(is_held(&places));
        let error = ServerLock::acquire(&places, &gate).expect_err("second");
        assert_eq!(error.to_string(), "a server is already running (pid 7, version 0.1.0)");
        drop(lock);
        assert_eq!(read_record(&places), None);
        ServerLock::acquire(&places, &gate).expect("free again");
    }

    #[test]
    fn a_lock_that_was_taken_over_leaves_its_successor_alone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let places = Places::new(dir.path().join("state"), None).expect("places");
        places.prepare().expect("prepared");
        let gate = Gate::enter(&places).expect("gate");
        let old = ServerLock::acquire(&places, &gate).expect("old");
        old.publish(&record(&places)).expect("record");
        let new = ServerLock::take_over(&places, &gate).expect("taken over");
        assert!(!old.place().is_ours() && new.place().is_ours() && new.took_over());
        let successor = LockRecord {
            pid: 8,
            epoch: 4,
            ..record(&places)
        };
        new.publish(&successor).expect("record");
        drop(old);
        assert_eq!(read_record(&places), Some(successor));
        assert!(is_held(&places), "the old holder released a lock that counts no more");
        drop(new);
        assert!(!is_held(&places));
    }
}
