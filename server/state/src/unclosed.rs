//! Whether a server closed the database, and how a lost write-ahead log shows itself.
//!
//! A server that takes the database writes that it runs, and a checkpoint carries this from the log into the database file before
//! anything is acknowledged. From then on the log belongs to the database: it exists, perhaps empty, until a server has written
//! that it stopped and closed the file, which takes the log in and removes it. So a file that says "running" beside no log has
//! lost it. A connection that ends otherwise leaves the log where it is.

use std::fs;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::open::{OpenError, connect, escape_uri, with_suffix};

/// # Errors
/// [`OpenError::LostLog`] when the last server did not close the database at `path` and its log is not there.
pub(crate) fn check_log(path: &Path) -> Result<(), OpenError> {
    let wal = with_suffix(path, "-wal");
    if fs::symlink_metadata(&wal).is_ok() {
        return Ok(());
    }
    let refuse = |error: &rusqlite::Error| OpenError::from_sqlite(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?immutable=1", escape_uri(path));
    let connection = connect(path.parent().unwrap_or(path), uri, flags).map_err(|error| refuse(&error))?;
    if is_running(&connection).map_err(|error| refuse(&error))? {
        return Err(OpenError::LostLog {
            path: path.to_path_buf(),
            wal,
        });
    }
    Ok(())
}

/// Whether the database says that a server runs, or ended without closing it.
pub(crate) fn is_running(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row(
        "SELECT EXISTS (SELECT 1 FROM workflow_server_state WHERE state = 'running')",
        [],
        |row| row.get(0),
    )
}

/// Carries what was committed into the database file.
pub(crate) fn checkpoint(db: &Connection) -> rusqlite::Result<()> {
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// Chooses whether the log stays when this connection is the last to close.
pub(crate) fn keep_log(db: &Connection, keep: bool) -> rusqlite::Result<()> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep)
        .map(drop)
}
