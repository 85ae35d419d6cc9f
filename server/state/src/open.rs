//! Opening the database file: every check happens before anything is written, and a refused file is left as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::{schema, unclosed};

/// Name of the database in the state directory.
pub const FILE_NAME: &str = "state.sqlite";
/// Longest wait for another program's lock.
const BUSY: Duration = Duration::from_secs(5);
/// WAL pages after which a commit checkpoints.
const WAL_AUTOCHECKPOINT: i64 = 1000;
/// The WAL file is cut to this many bytes after a checkpoint.
const WAL_LIMIT: i64 = 8 * 1024 * 1024;
/// Files up to this size get a full structural check at every open (a few milliseconds).
const QUICK_CHECK_LIMIT: u64 = 4 * 1024 * 1024;

/// Why a database was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory cannot be made or used.
    #[error("cannot use the state directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is no SQLite database.
    #[error("{} is not a SQLite database; move it away and start again", .0.display())]
    NotADatabase(PathBuf),
    /// Another program's database.
    #[error(
        "{} belongs to another program (application id {found:#010x}, expected {expected:#010x}); move it away and start again",
        path.display(), expected = schema::APPLICATION_ID
    )]
    OtherProgram {
        /// The file.
        path: PathBuf,
        /// Its application id.
        found: i32,
    },
    /// A database of another schema.
    #[error(
        "{} has another schema ({difference}); this version reads only its own. Back up the file with its -wal and -shm, \
         move all three away, and start again with an empty state",
        path.display()
    )]
    OtherSchema {
        /// The file.
        path: PathBuf,
        /// What differs.
        difference: String,
    },
    /// The file is damaged.
    #[error(
        "{} is damaged: {detail}. Move it with its -wal and -shm away and restore a backup, or start again with an empty state",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        detail: String,
    },
    /// A write-ahead log without its database.
    #[error("{} is missing but its write-ahead log {} is there; put the database back, or move the log away", path.display(), wal.display())]
    MissingDatabase {
        /// The missing file.
        path: PathBuf,
        /// The log.
        wal: PathBuf,
    },
    /// A database that its last server did not close, without its write-ahead log.
    #[error(
        "{} was not closed by its last server, and its write-ahead log {} is missing: what was done last may be lost. Put the log \
         back, or restore a backup. To go on without what the log held, make an empty one: touch '{}'",
        path.display(), wal.display(), wal.display()
    )]
    LostLog {
        /// The database.
        path: PathBuf,
        /// The missing log.
        wal: PathBuf,
    },
    /// A symbolic link that leads nowhere.
    #[error("{} is a link to {}, which is not there; mount or put back what it leads to, or remove the link, then start again", path.display(), target.display())]
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// The file has another name, under which another server would use another write-ahead log.
    #[error(
        "{} has {links} hard links, and a database has one name only: under each it would have another write-ahead log. \
         Remove the other names (a copy, made with cp, may stay), then start again",
        path.display()
    )]
    HardLinked {
        /// The file.
        path: PathBuf,
        /// Its names.
        links: u64,
    },
    /// The file or its directory cannot be written.
    #[error("{} cannot be written: {detail}. Give this user the right to write it and its directory, then start again", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// Cause.
        detail: String,
    },
    /// Another program holds the lock.
    #[error("{} is locked by another program; close it and try again ({detail})", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// Cause.
        detail: String,
    },
    /// The disk is full.
    #[error("the disk that holds {} is full ({detail}). Make room, then start again", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// Cause.
        detail: String,
    },
    /// The disk fails.
    #[error("{} cannot be read or written: {detail}. Look at the disk and the system's log, then start again", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        detail: String,
    },
    /// Any other failure.
    #[error("cannot open {}: {detail}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Cause.
        detail: String,
    },
}

impl OpenError {
    pub(crate) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        let detail = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase(path),
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, detail },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                Self::ReadOnly { path, detail }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked { path, detail },
            Some(ErrorCode::DiskFull) => Self::DiskFull { path, detail },
            Some(ErrorCode::SystemIoFailure) => Self::Io { path, detail },
            _ => Self::Other { path, detail },
        }
    }

    fn from_io(path: &Path, error: &std::io::Error) -> Self {
        let path = path.to_path_buf();
        let detail = error.to_string();
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path, detail },
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull { path, detail },
            _ => Self::Other { path, detail },
        }
    }
}

/// Checks the file in `dir`, creates it when there is none, and opens the one connection that writes.
pub(crate) fn open_writer(dir: &Path, now_ms: i64, busy: Option<Duration>) -> Result<Connection, OpenError> {
    make_private_dir(dir)?;
    let path = resolve(dir.join(FILE_NAME))?;
    #[cfg(feature = "failpoints")]
    crate::vfs::lay_by_environment(dir).map_err(|error| OpenError::Other {
        path: path.clone(),
        detail: error.to_string(),
    })?;
    let busy = busy.unwrap_or(BUSY);
    if is_new(&path)? {
        create(&path, now_ms, busy)?;
    } else {
        check_header(&path)?;
        check_contents(&path, busy)?;
        unclosed::check_log(&path)?;
    }
    open_checked(&path, busy)
}

/// Checks a file that nobody writes: that it is a whole state database of this schema.
pub(crate) fn check(path: &Path) -> Result<(), OpenError> {
    check_header(path)?;
    check_contents(path, BUSY)
}

/// Opens a read-only connection to a database that [`open_writer`] has accepted.
pub(crate) fn open_reader(dir: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = connect(dir, dir.join(FILE_NAME), flags)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -1024)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Opens a connection; in test builds perhaps through the layer that a test laid under the directory.
pub(crate) fn connect(dir: &Path, file: impl AsRef<Path>, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = open_file(dir, file, flags)?;
    // A plan depends on the statement alone. Otherwise SQLite may look at bound values when it compares conditions with those of
    // partial indexes, and then plans a cached statement anew for every other value: ten times what a small query costs.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

fn open_file(dir: &Path, file: impl AsRef<Path>, flags: OpenFlags) -> rusqlite::Result<Connection> {
    #[cfg(feature = "failpoints")]
    if let Some(vfs) = crate::vfs::vfs_for(dir) {
        return Connection::open_with_flags_and_vfs(file, flags, vfs);
    }
    let _ = dir;
    Connection::open_with_flags(file, flags)
}

fn make_private_dir(dir: &Path) -> Result<(), OpenError> {
    let result = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    result.map_err(|source| OpenError::Directory {
        path: dir.to_path_buf(),
        source,
    })
}

/// The file itself where the name is a symbolic link: the write-ahead log lies beside the file, not beside the link.
fn resolve(path: PathBuf) -> Result<PathBuf, OpenError> {
    let Ok(target) = fs::read_link(&path) else {
        return Ok(path);
    };
    match fs::canonicalize(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(OpenError::DanglingLink { path, target }),
        resolved => resolved.map_err(|error| OpenError::from_io(&path, &error)),
    }
}

/// Whether there is nothing to check: no file, or the empty one of a creation that was interrupted.
fn is_new(path: &Path) -> Result<bool, OpenError> {
    let wal = with_suffix(path, "-wal");
    let wal_bytes = match fs::metadata(&wal) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(OpenError::from_io(&wal, &error)),
    };
    let missing = match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => {
            return Err(OpenError::Other {
                path: path.to_path_buf(),
                detail: "it is not a regular file".to_owned(),
            });
        }
        Ok(meta) if meta.nlink() > 1 => {
            return Err(OpenError::HardLinked {
                path: path.to_path_buf(),
                links: meta.nlink(),
            });
        }
        Ok(meta) => meta.len() == 0,
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(OpenError::from_io(path, &error)),
    };
    if missing && wal_bytes > 0 {
        return Err(OpenError::MissingDatabase {
            path: path.to_path_buf(),
            wal,
        });
    }
    Ok(missing)
}

/// Makes the file with its schema under another name and renames it when it is whole, so that a file of the right name is
/// never half made. Whoever opens a state directory holds its lock, so nobody else makes one meanwhile.
fn create(path: &Path, now_ms: i64, busy: Duration) -> Result<(), OpenError> {
    let parent = path.parent().unwrap_or(path);
    let unfinished = with_suffix(path, ".new");
    for leftover in [unfinished.clone(), with_suffix(&unfinished, "-journal")] {
        match fs::remove_file(&leftover) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(OpenError::from_io(&leftover, &error)),
            _ => {}
        }
        #[cfg(feature = "failpoints")]
        crate::vfs::file_removed(&leftover);
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished);
    drop(file.map_err(|error| OpenError::from_io(path, &error))?);
    let make = || -> rusqlite::Result<()> {
        let mut connection = connect(parent, &unfinished, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(busy)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        schema::create(&mut connection, now_ms)?;
        connection.close().map_err(|(_, error)| error)
    };
    make().map_err(|error| OpenError::from_sqlite(path, &error))?;
    fs::rename(&unfinished, path).map_err(|error| OpenError::from_io(path, &error))?;
    // The directory entry must survive a power loss together with the file.
    let synced = File::open(parent).and_then(|dir| dir.sync_all());
    synced.map_err(|error| OpenError::from_io(parent, &error))?;
    #[cfg(feature = "failpoints")]
    crate::vfs::directory_synced(parent);
    Ok(())
}

/// Reads the header without SQLite: the program it belongs to and whether the file is whole.
fn check_header(path: &Path) -> Result<(), OpenError> {
    let mut header = [0u8; 100];
    let mut file = File::open(path).map_err(|error| OpenError::from_io(path, &error))?;
    match file.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            return Err(OpenError::NotADatabase(path.to_path_buf()));
        }
        Err(error) => return Err(OpenError::from_io(path, &error)),
    }
    if &header[..16] != b"SQLite format 3\0" {
        return Err(OpenError::NotADatabase(path.to_path_buf()));
    }
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let application = number(68).cast_signed();
    if application != schema::APPLICATION_ID {
        return Err(OpenError::OtherProgram {
            path: path.to_path_buf(),
            found: application,
        });
    }
    let version = number(60).cast_signed();
    if version != schema::VERSION {
        let difference = format!("schema version {version}, expected {}", schema::VERSION);
        return Err(OpenError::OtherSchema {
            path: path.to_path_buf(),
            difference,
        });
    }
    let bytes = file.metadata().map_err(|error| OpenError::from_io(path, &error))?.len();
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    if bytes % page.max(512) != 0 {
        let detail = format!("its length of {bytes} bytes is no multiple of its page size {page}");
        return Err(OpenError::Corrupt {
            path: path.to_path_buf(),
            detail,
        });
    }
    Ok(())
}

/// Compares the schema through a connection that cannot write. Without a write-ahead log the file is read as immutable, so
/// that not even a lock is taken.
fn check_contents(path: &Path, busy: Duration) -> Result<(), OpenError> {
    let refuse = |error: &rusqlite::Error| OpenError::from_sqlite(path, error);
    let wal = fs::metadata(with_suffix(path, "-wal")).is_ok_and(|meta| meta.len() > 0);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}{}", escape_uri(path), if wal { "" } else { "?immutable=1" });
    let connection = connect(path.parent().unwrap_or(path), uri, flags).map_err(|error| refuse(&error))?;
    connection.busy_timeout(busy).map_err(|error| refuse(&error))?;
    let stored: Result<(String, i32, String), _> = connection.query_row(
        "SELECT name, version, ddl_sha256 FROM schema_meta WHERE id = 1",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    );
    let other = |difference: String| OpenError::OtherSchema {
        path: path.to_path_buf(),
        difference,
    };
    match stored {
        Ok((name, version, digest)) => {
            if name != schema::NAME || version != schema::VERSION {
                return Err(other(format!(
                    "schema {name} version {version}, expected {} version {}",
                    schema::NAME,
                    schema::VERSION
                )));
            }
            if digest != schema::digest() {
                return Err(other(format!("schema digest {digest}, expected {}", schema::digest())));
            }
        }
        Err(rusqlite::Error::QueryReturnedNoRows) => return Err(other("schema_meta is empty".to_owned())),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => return Err(other(error.to_string())),
        Err(error) => return Err(refuse(&error)),
    }
    let found = schema::shape(&connection).map_err(|error| refuse(&error))?;
    let expected = schema::expected_shape().map_err(|error| refuse(&error))?;
    if let Some(difference) = schema::first_difference(&found, &expected) {
        return Err(other(difference));
    }
    let bytes = fs::metadata(path)
        .map_err(|error| OpenError::from_io(path, &error))?
        .len();
    if bytes <= QUICK_CHECK_LIMIT {
        let verdict: String = connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(|error| refuse(&error))?;
        if verdict != "ok" {
            return Err(OpenError::Corrupt {
                path: path.to_path_buf(),
                detail: verdict,
            });
        }
    }
    Ok(())
}

/// Opens the writing connection of an accepted file and proves that it can write.
fn open_checked(path: &Path, busy: Duration) -> Result<Connection, OpenError> {
    let refuse = |error: &rusqlite::Error| OpenError::from_sqlite(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = connect(path.parent().unwrap_or(path), path, flags).map_err(|error| refuse(&error))?;
    if connection.is_readonly("main").map_err(|error| refuse(&error))? {
        let detail = "the file or its directory is read-only".to_owned();
        return Err(OpenError::ReadOnly {
            path: path.to_path_buf(),
            detail,
        });
    }
    let prepare = || -> rusqlite::Result<bool> {
        connection.busy_timeout(busy)?;
        unclosed::keep_log(&connection, true)?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if !mode.eq_ignore_ascii_case("wal") {
            return Ok(false);
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "wal_autocheckpoint", WAL_AUTOCHECKPOINT)?;
        connection.pragma_update(None, "journal_size_limit", WAL_LIMIT)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "cache_size", -4096)?;
        #[cfg(feature = "failpoints")]
        chosen_by_a_test(&connection, path)?;
        connection.set_prepared_statement_cache_capacity(256);
        // A write that changes nothing: fails now, not at the first command, when somebody holds the lock.
        connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")?;
        Ok(true)
    };
    if !prepare().map_err(|error| refuse(&error))? {
        let detail = "the file system does not allow write-ahead logging".to_owned();
        return Err(OpenError::Other {
            path: path.to_path_buf(),
            detail,
        });
    }
    Ok(connection)
}

/// Applies the settings of a test.
#[cfg(feature = "failpoints")]
fn chosen_by_a_test(connection: &Connection, path: &Path) -> rusqlite::Result<()> {
    let pragmas = crate::vfs::pragmas(path.parent().unwrap_or(path));
    if pragmas.without_syncs || piw_fault::switch!("no-sync") {
        connection.pragma_update(None, "synchronous", "OFF")?;
    }
    if let Some(pages) = pragmas.wal_autocheckpoint {
        connection.pragma_update(None, "wal_autocheckpoint", pages)?;
    }
    Ok(())
}

/// The path with `suffix` behind its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Percent-escapes what a SQLite URI would read as syntax.
pub(crate) fn escape_uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
