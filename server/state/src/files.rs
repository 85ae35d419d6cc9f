//! Whether the open files still are the ones that lie under their names: what is written to a file that was moved away or
//! deleted is gone when the server ends.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rusqlite::Connection;

use crate::error::StateError;

/// The files of an open database: its own and its write-ahead log.
#[derive(Debug)]
pub(crate) struct Files(Vec<File>);

#[derive(Debug)]
struct File {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// What can be done when it is gone.
    help: &'static str,
}

impl File {
    fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (self.device, self.inode))
    }
}

impl Files {
    /// The files as they lie there now, right after they were opened.
    pub(crate) fn of(db: &Connection) -> Self {
        let path = db.path().unwrap_or_default();
        let wanted = [
            (path.to_owned(), "Put it back before the server is stopped"),
            (
                format!("{path}-wal"),
                "Put it back, or stop the server, which then stores what it held in the database",
            ),
        ];
        let files = wanted.into_iter().filter_map(|(path, help)| {
            let meta = fs::metadata(&path).ok()?;
            Some(File {
                path: path.into(),
                device: meta.dev(),
                inode: meta.ino(),
                help,
            })
        });
        Self(files.collect())
    }

    /// Whether the log was moved or deleted while the database is in its place.
    pub(crate) fn log_is_gone(&self) -> bool {
        matches!(&self.0[..], [database, log] if database.is_there() && !log.is_there())
    }

    /// # Errors
    /// [`StateError::Moved`] names the file that is not there any more.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        for file in &self.0 {
            if !file.is_there() {
                let name = file.path.file_name().unwrap_or_default();
                return Err(StateError::Moved {
                    name: name.to_string_lossy().into_owned(),
                    help: file.help,
                });
            }
        }
        Ok(())
    }
}
