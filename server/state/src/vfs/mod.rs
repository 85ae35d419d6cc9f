//! A file layer below SQLite that loses what was not synced and fails on demand. Only in builds with the `failpoints` feature,
//! and there only when a test or the environment asks for it.
//!
//! The layer is a SQLite VFS. Locks and the shared-memory index go to the default VFS; reads, writes, truncations, syncs and
//! deletions of the database, its write-ahead log and its rollback journal pass a [`Disk`], one for each directory.
//!
//! **Volatile.** Unsynced writes and truncations stay in this process's memory, seen by all its connections, and reach the
//! real file when SQLite syncs it. A deletion becomes durable with the next sync of the directory: a deletion that asks for it,
//! the first sync of a new log or journal, or the one after a database was created. So SIGKILL is a loss of power, and so is
//! any other end of the process. The system's page cache plays the disk; nothing waits for a real one.
//! [`Disk::lose_power`] does the same within a process. By choice about half of the unsynced sectors survive, in any order.
//!
//! **Faults.** See [`Fault`]. In process: [`Disk::inject`] and [`Disk::heal`].
//!
//! **Environment**, for the real binary; every state directory that the process opens is then on such a disk:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `PIW_FAULT_VFS=volatile` | unsynced writes stay in memory |
//! | `PIW_FAULT_IO=FAULTS` | what goes wrong from the start |
//! | `PIW_FAULT_IO_FILE=PATH` | the same from a file, read anew when it changes; a missing file has no faults |
//!
//! `FAULTS` are separated by `;` or line ends: a kind, then properties.
//!
//! | kind | effect |
//! | --- | --- |
//! | `io on=OPS` | the operations fail with SQLite's input/output error for them |
//! | `full [room=BYTES]` | writes fail with `SQLITE_FULL` after so many more bytes (default 0) |
//! | `readonly` | files open for reading only, changes fail as on a file system mounted read-only |
//! | `busy` | the lock that writing needs is held by another program |
//! | `die on=OPS` | the process dies by SIGKILL at the operation, which does not happen |
//!
//! | property | meaning |
//! | --- | --- |
//! | `on=OPS` | of `open read write truncate sync delete lock`, joined by `+` |
//! | `file=FILE` | only this one of `db wal journal` |
//! | `at=N` | from the N-th such operation on, counted from 1 (default 1) |
//! | `times=N` | so many operations, then it has passed (default: for ever) |
//! | `survives=SEED` | `die`: about half of the unsynced sectors reach the disk, picked by the seed (default: none) |
//! | `forget` | `io on=sync`: what the failed sync should have stored is lost although later syncs succeed |
//!
//! Not modelled: several processes that have one database open while unsynced writes stay in memory (each would have its own),
//! the directory entry of a new file that was never synced, the lock file and other files of the server, and
//! programs that read the file without SQLite (they see what was synced).

use std::ffi::CStr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

mod backing;
mod disk;
mod fault;
mod shim;
mod unsynced;

pub(crate) use disk::Pragmas;
pub use disk::{Counts, Disk};
pub use fault::{BadFault, Fault, On, Survives, Which};

/// The VFS's name in SQLite.
pub const NAME: &CStr = c"piw-fault";

/// Makes unsynced writes volatile.
const VFS_VAR: &str = "PIW_FAULT_VFS";
/// Faults from the start.
const IO_VAR: &str = "PIW_FAULT_IO";
/// A file with faults.
const IO_FILE_VAR: &str = "PIW_FAULT_IO_FILE";

static DISKS: Mutex<Vec<Disk>> = Mutex::new(Vec::new());

/// Lays a simulated disk under a directory that exists; databases opened in it from now on go through the layer. The same
/// directory has the same disk for the rest of the process.
///
/// # Panics
/// When the directory does not exist or SQLite refuses the VFS: a test cannot go on.
#[must_use]
pub fn lay_under(dir: &Path) -> Disk {
    let dir = dir.canonicalize().expect("the directory exists");
    shim::register().expect("SQLite takes the VFS");
    let mut disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(disk) = disks.iter().find(|disk| disk.dir() == dir) {
        return disk.clone();
    }
    let disk = Disk::new(&dir);
    disks.push(disk.clone());
    disk
}

/// The disk of the directory that a file lies in.
fn disk_of(file: &Path) -> Option<Disk> {
    let dir = file.parent()?;
    let disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
    disks.iter().find(|disk| disk.dir() == dir).cloned()
}

/// Lays a disk under an existing directory when the environment asks for one.
///
/// # Errors
/// When the environment's faults cannot be read.
pub(crate) fn lay_by_environment(dir: &Path) -> Result<(), BadFault> {
    let [mode, faults, control] = [VFS_VAR, IO_VAR, IO_FILE_VAR].map(std::env::var_os);
    if laid_under(dir).is_some() || (mode.is_none() && faults.is_none() && control.is_none()) {
        return Ok(());
    }
    let faults = fault::parse(&faults.unwrap_or_default().to_string_lossy())?;
    if let Some(mode) = mode.as_ref().filter(|mode| *mode != "volatile") {
        return Err(BadFault::new(
            &mode.to_string_lossy(),
            format!("{VFS_VAR} is \"volatile\" or not set"),
        ));
    }
    let disk = lay_under(dir);
    disk.set_volatile(mode.is_some());
    for fault in faults {
        disk.inject(fault);
    }
    if let Some(file) = control {
        disk.control_by(file.into());
    }
    tracing::warn!("the state database is on a simulated disk");
    Ok(())
}

/// The VFS to open databases of a directory with, when a disk was laid under it.
pub(crate) fn vfs_for(dir: &Path) -> Option<&'static CStr> {
    laid_under(dir).map(|_| NAME)
}

/// Settings that a test chose for databases of a directory.
pub(crate) fn pragmas(dir: &Path) -> Pragmas {
    laid_under(dir).map(|disk| disk.pragmas()).unwrap_or_default()
}

/// Tells the layer that a file was removed without SQLite.
pub(crate) fn file_removed(path: &Path) {
    if let (Some(disk), Some(name)) = (path.parent().and_then(laid_under), path.file_name()) {
        disk.file_removed(name);
    }
}

/// Tells the layer that a directory was synced without SQLite.
pub(crate) fn directory_synced(dir: &Path) {
    if let Some(disk) = laid_under(dir) {
        disk.directory_synced();
    }
}

fn laid_under(dir: &Path) -> Option<Disk> {
    let dir = dir.canonicalize().ok()?;
    disk_of(&dir.join("any"))
}
