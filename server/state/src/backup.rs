//! Backups: a copy of one read snapshot through SQLite's backup API, verified before it gets its name.
//!
//! The copy is made beside its final place under a name of its own and renamed at the end, so that a file of the wanted name
//! is a whole, verified backup or does not exist. Nobody waits for it: it has a connection and a thread of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use sha2::{Digest, Sha256};

use crate::aside::Stop;
use crate::error::StateError;
use crate::open::FILE_NAME;
use crate::state::State;
use crate::verify::{Violation, check_copy};

/// Pages of one step (1 MiB).
const STEP_PAGES: i32 = 256;
/// Steps after which what was written is brought to the disk, so that no commit of the server waits behind a mountain of it.
const SYNC_STEPS: u32 = 4;
/// Pause while the source is locked by this very process.
const LOCKED_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// What a copy forgets: that a server holds the database, and which processes work for it. They belong to the original, which
/// may still run when the copy is put into use elsewhere; a server that starts on the copy must not end them.
const DETACH: &str = "BEGIN IMMEDIATE;
  UPDATE leases SET owner_type = NULL, owner_id = NULL, server_epoch = NULL, token_hash = NULL, acquired_at = NULL,
      heartbeat_at = NULL, boot_id = NULL, expires_clock_ms = NULL, expires_at = NULL
    WHERE resource IN (SELECT resource FROM workflow_server_state);
  UPDATE workflow_server_state SET state = 'stopped';
  UPDATE run_runners SET pid = NULL, start_identity = NULL WHERE status <> 'ended';
  DELETE FROM run_processes;
  COMMIT;";

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupMade {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Lower-case hex SHA-256 of the file.
    pub sha256: String,
    /// When the snapshot was taken, wall-clock milliseconds.
    pub taken_at: i64,
    /// Invariants that the copied state violates; the copy itself is whole.
    pub violations: Vec<Violation>,
}

/// Why no backup was made. Nothing of it is left.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BackupError {
    /// The path is relative, or names no file.
    #[error("a backup needs the absolute path of a new file, not {}", .0.display())]
    NotAbsolute(PathBuf),
    /// Something is there.
    #[error("{} exists; a backup is never written over anything", .0.display())]
    Exists(PathBuf),
    /// The path is where SQLite keeps files of the database in use.
    #[error("{} belongs to the database in use; choose another name or directory", .0.display())]
    Reserved(PathBuf),
    /// The disk is full.
    #[error("the disk that holds {} is full; no backup was made ({detail})", path.display())]
    DiskFull {
        /// Where it should be.
        path: PathBuf,
        /// What was said.
        detail: String,
    },
    /// The place cannot be written.
    #[error("cannot write the backup {}: {detail}", path.display())]
    Write {
        /// Where it should be.
        path: PathBuf,
        /// What was said.
        detail: String,
    },
    /// The copy is no whole database.
    #[error("the copy did not pass its check and was removed: {0}")]
    Damaged(String),
    /// The database could not be read, or is being closed.
    #[error(transparent)]
    State(#[from] StateError),
}

impl State {
    /// Copies the database to `path`, which must be absolute and new, with mode 0600, and verifies the copy.
    ///
    /// # Errors
    /// [`BackupError`]; nothing is left then.
    pub async fn backup(&self, path: PathBuf) -> Result<BackupMade, BackupError> {
        let dir = self.dir().to_path_buf();
        check_path(&path, &dir)?;
        let taken_at = self.clock().wall_ms();
        self.aside("state-backup", move |source, stop| {
            Ok(make(source, &path, stop, None, taken_at))
        })
        .await?
    }
}

/// Refuses what can be refused before anything is copied.
fn check_path(path: &Path, state_dir: &Path) -> Result<(), BackupError> {
    let name = path.file_name().filter(|_| path.is_absolute());
    let Some(name) = name else {
        return Err(BackupError::NotAbsolute(path.to_path_buf()));
    };
    if fs::symlink_metadata(path).is_ok() {
        return Err(BackupError::Exists(path.to_path_buf()));
    }
    let parent = path.parent().unwrap_or(path);
    let same = match (fs::metadata(parent), fs::metadata(state_dir)) {
        (Ok(parent), Ok(state)) => (parent.dev(), parent.ino()) == (state.dev(), state.ino()),
        (Err(error), _) => return Err(write_error(path, &error)),
        _ => false,
    };
    if same && name.to_string_lossy().starts_with(FILE_NAME) {
        return Err(BackupError::Reserved(path.to_path_buf()));
    }
    Ok(())
}

/// A file that is removed unless it is kept.
struct Partial {
    path: PathBuf,
    kept: bool,
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            // It may never have been made.
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(suffixed(&self.path, "-wal"));
            let _ = fs::remove_file(suffixed(&self.path, "-shm"));
        }
    }
}

fn make(
    source: &Connection,
    path: &Path,
    stop: &Stop,
    most_pages: Option<u32>,
    taken_at: i64,
) -> Result<BackupMade, BackupError> {
    let mut partial = create_partial(path)?;
    copy(source, &partial.path, path, stop, most_pages)?;
    let violations = check_copy(&partial.path, stop).map_err(|error| BackupError::Damaged(error.to_string()))?;
    if let Some(damage) = violations
        .iter()
        .find(|violation| violation.invariant == "file integrity")
    {
        return Err(BackupError::Damaged(damage.detail.clone()));
    }
    let (bytes, sha256) = seal(&partial.path, stop).map_err(|error| write_error(path, &error))?;
    stop.check()?;
    // Takes the name for this backup alone, then puts the copy in its place.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(BackupError::Exists(path.to_path_buf())),
        Err(error) => return Err(write_error(path, &error)),
    }
    fs::rename(&partial.path, path).map_err(|error| {
        let _ = fs::remove_file(path);
        write_error(path, &error)
    })?;
    partial.kept = true;
    let parent = path.parent().unwrap_or(path);
    File::open(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| write_error(path, &error))?;
    Ok(BackupMade {
        path: path.to_path_buf(),
        bytes,
        sha256,
        taken_at,
        violations,
    })
}

/// Makes the file that the copy is written to, beside its final place.
fn create_partial(path: &Path) -> Result<Partial, BackupError> {
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random)
        .map_err(|error| StateError::Io(format!("no randomness for the name of a file: {error}")))?;
    let partial = suffixed(path, &format!(".partial-{}", hex::encode(random)));
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial);
    made.map_err(|error| write_error(path, &error))?;
    Ok(Partial {
        path: partial,
        kept: false,
    })
}

/// Copies one read snapshot, step by step.
fn copy(
    source: &Connection,
    partial: &Path,
    path: &Path,
    stop: &Stop,
    most_pages: Option<u32>,
) -> Result<(), BackupError> {
    let failed = |error: rusqlite::Error| sqlite_error(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(partial, flags).map_err(failed)?;
    // The file is thrown away unless everything succeeds: no journal, and the syncs are done here.
    target.pragma_update(None, "journal_mode", "OFF").map_err(failed)?;
    target.pragma_update(None, "synchronous", "OFF").map_err(failed)?;
    target.pragma_update(None, "cache_size", -1024).map_err(failed)?;
    if let Some(pages) = most_pages {
        target.pragma_update(None, "max_page_count", pages).map_err(failed)?;
    }
    let file = File::open(partial).map_err(|error| write_error(path, &error))?;
    // As long as this transaction is open, every step reads the same snapshot.
    source.execute_batch("BEGIN").map_err(StateError::from)?;
    let copied = (|| -> Result<(), BackupError> {
        source
            .query_row("SELECT version FROM schema_meta WHERE id = 1", [], |row| {
                row.get::<_, i64>(0)
            })
            .map_err(StateError::from)?;
        let backup = Backup::new(source, &mut target).map_err(failed)?;
        let mut steps = 0_u32;
        loop {
            stop.check()?;
            match backup.step(STEP_PAGES).map_err(failed)? {
                StepResult::Done => return Ok(()),
                StepResult::More => {
                    steps += 1;
                    if steps.is_multiple_of(SYNC_STEPS) {
                        file.sync_data().map_err(|error| write_error(path, &error))?;
                    }
                }
                _ => std::thread::sleep(LOCKED_PAUSE),
            }
        }
    })();
    source.execute_batch("ROLLBACK").map_err(StateError::from)?;
    copied?;
    target.close().map_err(|(_, error)| sqlite_error(path, &error))?;
    // The copy says of itself that it has a write-ahead log. A backup is one file.
    let target = Connection::open_with_flags(partial, flags).map_err(failed)?;
    let _: String = target
        .query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))
        .map_err(failed)?;
    target.execute_batch(DETACH).map_err(failed)?;
    target.close().map_err(|(_, error)| sqlite_error(path, &error))
}

/// Brings the copy to the disk; its length and digest.
fn seal(partial: &Path, stop: &Stop) -> io::Result<(u64, String)> {
    let mut file = File::open(partial)?;
    file.sync_all()?;
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0_u8; 1024 * 1024];
    while !stop.is_set() {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        bytes += count as u64;
    }
    Ok((bytes, hex::encode(hasher.finalize())))
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn write_error(path: &Path, error: &io::Error) -> BackupError {
    let (path, detail) = (path.to_path_buf(), error.to_string());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => BackupError::DiskFull { path, detail },
        _ => BackupError::Write { path, detail },
    }
}

fn sqlite_error(path: &Path, error: &rusqlite::Error) -> BackupError {
    let (path, detail) = (path.to_path_buf(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => BackupError::DiskFull { path, detail },
        Some(ErrorCode::OperationInterrupted) => BackupError::State(StateError::Closed),
        _ => BackupError::Write { path, detail },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateOptions;

    /// A database without a server, and a connection that reads it.
    fn source(dir: &Path) -> Connection {
        let state = State::open(StateOptions::new(dir)).expect("opens");
        state.close();
        let db = Connection::open(dir.join(FILE_NAME)).expect("opens");
        db.execute_batch(
            "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 500)
             INSERT INTO projects (path, created_at) SELECT '/p/' || i || hex(zeroblob(2000)), 1 FROM s",
        )
        .expect("rows");
        db
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).expect("a directory");
        entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn a_disk_that_fills_up_leaves_nothing_and_says_so() {
        let (dir, target) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let path = target.path().join("backup");
        let made = make(&source(dir.path()), &path, &Stop::never(), Some(100), 0);
        let error = made.expect_err("100 pages are not enough");
        assert!(matches!(error, BackupError::DiskFull { .. }), "{error}");
        assert!(error.to_string().contains("is full; no backup was made"), "{error}");
        assert_eq!(names(target.path()), Vec::<String>::new());
    }

    #[test]
    fn a_backup_that_is_stopped_leaves_nothing() {
        let (dir, target) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let made = make(
            &source(dir.path()),
            &target.path().join("backup"),
            &Stop::at_once(),
            None,
            0,
        );
        assert!(matches!(made, Err(BackupError::State(StateError::Closed))), "{made:?}");
        assert_eq!(names(target.path()), Vec::<String>::new());
    }

    #[test]
    fn a_name_that_is_taken_meanwhile_is_left_alone() {
        let (dir, target) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let path = target.path().join("backup");
        fs::write(&path, "mine").expect("a file");
        let made = make(&source(dir.path()), &path, &Stop::never(), None, 0);
        assert!(matches!(made, Err(BackupError::Exists(_))), "{made:?}");
        assert_eq!(names(target.path()), ["backup"]);
        assert_eq!(fs::read(&path).expect("the file"), b"mine");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        use std::os::unix::fs::PermissionsExt;
        let (dir, target) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let closed = target.path().join("closed");
        fs::create_dir(&closed).expect("a directory");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).expect("permissions");
        // Nothing is closed to the superuser, but nobody makes files below a file.
        let file = target.path().join("file");
        fs::write(&file, "").expect("a file");
        let root = File::create(closed.join("probe")).is_ok();
        let places = [file.join("backup"), closed.join("backup")];
        for path in &places[..if root { 1 } else { 2 }] {
            let made = make(&source(dir.path()), path, &Stop::never(), None, 0);
            let Err(BackupError::Write { path: named, .. }) = &made else {
                panic!("{made:?}")
            };
            assert_eq!(named, path);
            let _ = fs::remove_file(dir.path().join(FILE_NAME));
        }
    }

    #[test]
    fn a_copy_holds_what_was_committed_when_it_began() {
        let (dir, target) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let path = target.path().join("backup");
        let source = source(dir.path());
        let made = make(&source, &path, &Stop::never(), None, 5).expect("a backup");
        assert_eq!((made.taken_at, made.violations.len()), (5, 0));
        assert_eq!(made.bytes, fs::metadata(&path).expect("the file").len());
        let bytes = fs::read(&path).expect("the file");
        assert_eq!(made.sha256, crate::hash::sha256_hex(&bytes));
        let copy = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("opens");
        let count = |db: &Connection| -> i64 {
            db.query_row("SELECT count(*) FROM projects", [], |row| row.get(0))
                .expect("a count")
        };
        assert_eq!((count(&copy), count(&source)), (500, 500));
        assert_eq!(names(target.path()), ["backup"], "one file, no log");
    }
}
