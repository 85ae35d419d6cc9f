//! Checking a database file that is not in use: a backup, or the copy that is about to become one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{Violation, verify};
use crate::aside::Stop;
use crate::error::StateError;
use crate::open::{self, FILE_NAME, OpenError};

/// Why a file is not checked as a backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupRefused {
    /// It is not there, or cannot be looked at.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is the database of a state directory, whatever the path says.
    #[error(
        "{} is the database in use ({}), not a backup; check it with `piw state verify`",
        path.display(), active.display()
    )]
    Active {
        /// The path.
        path: PathBuf,
        /// The database.
        active: PathBuf,
    },
    /// A write-ahead log lies beside it.
    #[error(
        "{} has a write-ahead log beside it ({}): it is or was in use and is no backup; only the server opens such a file",
        path.display(), wal.display()
    )]
    InUse {
        /// The path.
        path: PathBuf,
        /// The log.
        wal: PathBuf,
    },
    /// It is no state database, of another schema, or damaged beyond reading.
    #[error("{} is no sound backup: {reason}", path.display())]
    Unfit {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system does not let it be read.
    #[error("cannot read {}: {detail}", path.display())]
    Unopened {
        /// The path.
        path: PathBuf,
        /// What SQLite says.
        detail: String,
    },
    /// It cannot be read to its end.
    #[error("cannot check {}: {source}", path.display())]
    Failed {
        /// The path.
        path: PathBuf,
        /// Why.
        source: StateError,
    },
}

/// Checks a backup as [`crate::State::verify`] checks the live database. Opens it read-only and changes nothing; the database
/// of `state_dir` is refused under any path, symbolic and hard links included.
///
/// # Errors
/// [`BackupRefused`] when the file is no backup or cannot be read.
pub fn verify_backup(path: &Path, state_dir: &Path) -> Result<Vec<Violation>, BackupRefused> {
    let unreadable = |source| BackupRefused::Unreadable {
        path: path.to_path_buf(),
        source,
    };
    // Looked at by name only: closing a file that this process has open elsewhere would drop the locks on it.
    let meta = fs::metadata(path).map_err(unreadable)?;
    let real = fs::canonicalize(path).map_err(unreadable)?;
    refuse_active(path, &real, &meta, state_dir)?;
    let failed = |source| BackupRefused::Failed {
        path: path.to_path_buf(),
        source,
    };
    check_copy(&real, &Stop::never()).map_err(|error| match error {
        CopyError::Open(error) => unfit(path, error),
        CopyError::State(source) => failed(source),
    })
}

/// An error of opening a database in the words of a backup: what to do about a live one is wrong advice here.
fn unfit(path: &Path, error: OpenError) -> BackupRefused {
    let path = path.to_path_buf();
    let reason = match error {
        OpenError::NotADatabase(_) => "it is not a SQLite database".to_owned(),
        OpenError::OtherProgram { found, .. } => {
            format!("it belongs to another program (application id {found:#010x})")
        }
        OpenError::OtherSchema { difference, .. } => {
            format!("it has another schema ({difference}); only the version that made it reads it")
        }
        OpenError::Corrupt { detail, .. } => format!("it is damaged: {}", detail.replace('\n', " ")),
        OpenError::ReadOnly { detail, .. } | OpenError::Io { detail, .. } | OpenError::Other { detail, .. } => {
            return BackupRefused::Unopened { path, detail };
        }
        other => other.to_string(),
    };
    BackupRefused::Unfit { path, reason }
}

fn refuse_active(path: &Path, real: &Path, meta: &fs::Metadata, state_dir: &Path) -> Result<(), BackupRefused> {
    let identity = |meta: &fs::Metadata| (meta.dev(), meta.ino());
    for name in [
        FILE_NAME.to_owned(),
        format!("{FILE_NAME}-wal"),
        format!("{FILE_NAME}-shm"),
    ] {
        let active = state_dir.join(name);
        if fs::metadata(&active).is_ok_and(|found| identity(&found) == identity(meta)) {
            return Err(BackupRefused::Active {
                path: path.to_path_buf(),
                active,
            });
        }
    }
    let mut wal = real.as_os_str().to_owned();
    wal.push("-wal");
    let wal = PathBuf::from(wal);
    if wal.exists() {
        return Err(BackupRefused::InUse {
            path: path.to_path_buf(),
            wal,
        });
    }
    Ok(())
}

/// Why a copy is no good.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    State(#[from] StateError),
}

/// Checks a file that nobody writes.
pub(crate) fn check_copy(path: &Path, stop: &Stop) -> Result<Vec<Violation>, CopyError> {
    open::check(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let uri = format!("file:{}?immutable=1", open::escape_uri(path));
    let mut db = Connection::open_with_flags(uri, flags).map_err(StateError::from)?;
    db.pragma_update(None, "query_only", true).map_err(StateError::from)?;
    db.pragma_update(None, "temp_store", "MEMORY")
        .map_err(StateError::from)?;
    stop.watch(&mut db).map_err(StateError::from)?;
    Ok(verify(&db, stop)?)
}
