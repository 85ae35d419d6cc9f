//! The server lock: one live server in a state directory.
//!
//! The lock itself is an advisory lock on the server directory, which dies with its process. Next to it lies a record
//! (`server.lock.json`, replaced atomically) that names the holder exactly: pid, start identity, boot and epoch, so that other
//! programs and other versions can find the process and a reused pid is not mistaken for it. Stale sockets may be removed
//! only by the holder.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::paths::Places;

/// Schema of the lock record.
pub const LOCK_SCHEMA: &str = "pi-workflows.server-lock.v1";

const PROBE_TRIES: u32 = 5;
const PROBE_PAUSE: Duration = Duration::from_millis(2);

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

/// The held lock. Dropping it removes the record and releases the lock.
#[derive(Debug)]
pub struct ServerLock {
    directory: File,
    record: PathBuf,
}

impl ServerLock {
    /// Takes the lock without waiting.
    ///
    /// # Errors
    /// [`LockError::Held`] when another process holds it.
    pub fn acquire(places: &Places) -> Result<Self, LockError> {
        let path = places.server_dir();
        let directory = File::open(&path).map_err(|source| LockError::Io {
            path: path.clone(),
            source,
        })?;
        // A client that asks whether the lock is held holds it shared for an instant: that is no other server.
        let mut tries = 0;
        loop {
            match directory.try_lock() {
                Ok(()) => {
                    return Ok(Self {
                        directory,
                        record: places.lock_record(),
                    });
                }
                Err(TryLockError::WouldBlock) if tries < PROBE_TRIES => {
                    tries += 1;
                    std::thread::sleep(PROBE_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Held {
                        holder: read_record(places).map(Box::new),
                    });
                }
                Err(TryLockError::Error(source)) => return Err(LockError::Io { path, source }),
            }
        }
    }

    /// Writes the record; from here on the lock and the database name the same epoch.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn publish(&self, record: &LockRecord) -> Result<(), LockError> {
        let bytes = serde_json::to_vec(record).expect("a lock record is plain data");
        replace_file(&self.record, &bytes).map_err(|source| LockError::Io {
            path: self.record.clone(),
            source,
        })
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // A record left behind is harmless: readers check the lock and the process identity.
        let _ = fs::remove_file(&self.record);
        let _ = self.directory.unlock();
    }
}

/// Whether some process holds the lock now. `false` also when there is no state directory.
#[must_use]
pub fn is_held(places: &Places) -> bool {
    File::open(places.server_dir())
        .is_ok_and(|directory| matches!(directory.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The record, when there is a readable one. It may be stale: check [`is_held`] or the process's identity.
#[must_use]
pub fn read_record(places: &Places) -> Option<LockRecord> {
    let bytes = fs::read(places.lock_record()).ok()?;
    serde_json::from_slice(&bytes)
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
        let lock = ServerLock::acquire(&places).expect("first");
        lock.publish(&record(&places)).expect("record");
        assert!(is_held(&places));
        let error = ServerLock::acquire(&places).expect_err("second");
        assert_eq!(error.to_string(), "a server is already running (pid 7, version 0.1.0)");
        drop(lock);
        assert_eq!(read_record(&places), None);
        ServerLock::acquire(&places).expect("free again");
    }
}
