//! The server's log: `server.log`, bounded by one rotation.
//!
//! Holds counts, states, run ids, generations and reasons; never payloads, paths of projects, tokens or environment. A
//! level from `PIW_LOG` (default `info`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Size at which the log is renamed to `server.log.1`; so both together stay below twice this, in bytes.
pub const LOG_LIMIT: u64 = 4 * 1024 * 1024;

/// A log file that renames itself once when it is full.
#[derive(Debug)]
pub struct RotatingFile {
    path: PathBuf,
    limit: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    written: u64,
}

impl RotatingFile {
    /// Opens `path` for appending, mode 0600.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path, limit: u64) -> io::Result<Self> {
        let open = Mutex::new(Open::append(path)?);
        Ok(Self {
            path: path.to_owned(),
            limit,
            open,
        })
    }
}

impl Open {
    fn append(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let written = file.metadata()?.len();
        Ok(Self { file, written })
    }
}

/// One log line on its way to the file.
#[derive(Debug)]
pub struct LogLine<'a>(&'a RotatingFile);

impl Write for LogLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut open = self.0.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if open.written + bytes.len() as u64 > self.0.limit {
            fs::rename(&self.0.path, self.0.path.with_extension("log.1"))?;
            *open = Open::append(&self.0.path)?;
        }
        open.file.write_all(bytes)?;
        open.written += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for RotatingFile {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine(self)
    }
}

/// Sends this process's `tracing` events to `path`, and panics too. A second call in one process (tests) changes nothing.
///
/// # Errors
/// When the log cannot be opened.
pub fn install(path: &Path) -> io::Result<()> {
    let file = RotatingFile::open(path, LOG_LIMIT)?;
    let filter = EnvFilter::try_from_env("PIW_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(file);
    if subscriber.try_init().is_ok() {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            tracing::error!(location = panic.location().map(ToString::to_string), "panic");
            previous(panic);
        }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_is_renamed_once_and_stays_bounded() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("server.log");
        let file = RotatingFile::open(&path, 100).expect("log");
        for line in 0..50 {
            writeln!(file.make_writer(), "line {line:02}").expect("line");
        }
        let (current, old) = (
            fs::read_to_string(&path).expect("log"),
            fs::read_to_string(dir.path().join("server.log.1")).expect("old"),
        );
        assert!(current.ends_with("line 49\n"));
        assert!(current.len() <= 100 && old.len() <= 100);
        assert_eq!(fs::read_dir(dir.path()).expect("directory").count(), 2);
    }
}
