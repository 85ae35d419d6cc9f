//! The simulated disk below one directory: what is unsynced, what goes wrong, what was done.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::ffi;

use super::backing::{Backing, Code, OK, Plain};
use super::fault::{self, Effect, Fault, On, Survives, Which};
use super::unsynced::Unsynced;

/// Operations on the files of one directory since it was laid over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Operations that a fault hit.
    pub faults: u64,
}

/// A simulated disk under one directory. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct Disk {
    dir: Arc<Path>,
    state: Arc<Mutex<State>>,
}

/// Settings of databases that a test chose.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pragmas {
    pub(crate) without_syncs: bool,
    pub(crate) wal_autocheckpoint: Option<i64>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether unsynced writes are kept apart.
    volatile: bool,
    pragmas: Pragmas,
    /// Raised by each loss of power: files opened before are dead.
    epoch: u64,
    files: HashMap<PathBuf, FileState>,
    faults: Vec<Fault>,
    /// A file that holds the faults, and what it held last.
    control: Option<(PathBuf, String)>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct FileState {
    unsynced: Unsynced,
    /// Deleted, but its directory was not synced since: a loss of power brings it back.
    deleted: bool,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Handle {
    disk: Disk,
    path: PathBuf,
    which: Which,
    epoch: u64,
}

/// How a file may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// As it was asked for.
    AsAsked,
    /// For reading only.
    ReadOnly,
}

impl Disk {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.into(),
            state: Arc::default(),
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether unsynced writes stay in memory from now on. Turn it off only when nothing is unsynced.
    pub fn set_volatile(&self, volatile: bool) {
        self.lock().volatile = volatile;
    }

    /// Databases opened from now on run with `synchronous=OFF`: for tests that show that the checks notice.
    pub fn open_without_syncs(&self) {
        self.lock().pragmas.without_syncs = true;
    }

    /// Databases opened from now on make a checkpoint after so many pages of their log.
    pub fn checkpoint_after(&self, pages: i64) {
        self.lock().pragmas.wal_autocheckpoint = Some(pages);
    }

    pub(super) fn pragmas(&self) -> Pragmas {
        self.lock().pragmas
    }

    /// Lets something go wrong, besides what already does.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Reads the faults from a file, again whenever it changes; a missing file has none.
    pub(super) fn control_by(&self, file: PathBuf) {
        self.lock().control = Some((file, String::new()));
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// The power goes and comes back: unsynced writes are gone but for those that `survives`, open files are dead. Close every
    /// connection before opening new ones.
    pub fn lose_power(&self, survives: Survives) {
        self.lock().lose_power(survives);
    }

    /// Someone removed a file without SQLite.
    pub(super) fn file_removed(&self, name: &OsStr) {
        self.lock().files.remove(&self.dir.join(name));
    }

    /// Someone synced the directory without SQLite: its deletions are durable.
    pub(crate) fn directory_synced(&self) {
        self.lock().sync_directory();
    }

    pub(super) fn open(&self, path: &Path, which: Which, create: bool) -> Result<(Handle, Access), Code> {
        let mut state = self.lock();
        let mut access = Access::AsAsked;
        match state.meet(On::Open, which, 0) {
            None => {}
            Some(Effect::OpenReadOnly) => access = Access::ReadOnly,
            Some(_) => return Err(ffi::SQLITE_CANTOPEN),
        }
        let file = state.files.entry(path.to_path_buf()).or_default();
        if file.deleted {
            if !create || access == Access::ReadOnly {
                return Err(ffi::SQLITE_CANTOPEN);
            }
            file.deleted = false;
            file.unsynced.truncate(0);
        }
        let handle = Handle {
            disk: self.clone(),
            path: path.to_path_buf(),
            which,
            epoch: state.epoch,
        };
        Ok((handle, access))
    }

    /// Deletes a file: `Ok(true)` when the caller has to delete the real one.
    pub(super) fn delete(&self, path: &Path, which: Which, sync_directory: bool) -> Result<bool, Code> {
        let mut state = self.lock();
        if state.meet(On::Delete, which, 0).is_some() {
            return Err(ffi::SQLITE_IOERR_DELETE);
        }
        if !state.volatile {
            return Ok(true);
        }
        let exists = path.exists();
        let file = state.files.entry(path.to_path_buf()).or_default();
        if !exists || file.deleted {
            return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
        }
        *file = FileState {
            deleted: true,
            unsynced: Unsynced::default(),
        };
        if sync_directory {
            state.sync_directory();
        }
        Ok(false)
    }

    /// Whether a file was deleted although it is still there.
    pub(super) fn is_deleted(&self, path: &Path) -> bool {
        self.lock().files.get(path).is_some_and(|file| file.deleted)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    /// Whether the power went since the file was opened.
    pub(super) fn is_dead(&self) -> bool {
        self.disk.lock().epoch != self.epoch
    }

    pub(super) fn is_volatile(&self) -> bool {
        self.disk.lock().volatile
    }

    pub(super) fn read(&self, backing: &mut dyn Backing, buffer: &mut [u8], offset: u64) -> Code {
        let mut state = self.disk.lock();
        state.counts.reads += 1;
        match state.meet_open(self, On::Read, buffer.len()) {
            Some(Effect::Fail(code)) => return code,
            Some(_) => return ffi::SQLITE_IOERR_READ,
            None => {}
        }
        match state.file(&self.path).read(backing, buffer, offset) {
            Ok(available) if available < buffer.len() => ffi::SQLITE_IOERR_SHORT_READ,
            Ok(_) => OK,
            Err(code) => code,
        }
    }

    pub(super) fn write(&self, backing: &mut dyn Backing, bytes: &[u8], offset: u64) -> Code {
        let mut state = self.disk.lock();
        state.counts.writes += 1;
        let (bytes, end) = match state.meet_open(self, On::Write, bytes.len()) {
            None => (bytes, OK),
            Some(Effect::Full(room)) => (&bytes[..room.min(bytes.len())], ffi::SQLITE_FULL),
            Some(Effect::Fail(code)) => return code,
            Some(_) => return ffi::SQLITE_IOERR_WRITE,
        };
        let written = match (bytes, state.volatile) {
            ([], _) => Ok(()),
            (bytes, true) => state.file(&self.path).write(backing, bytes, offset),
            (bytes, false) => backing.write(bytes, offset),
        };
        written.map_or_else(|code| code, |()| end)
    }

    pub(super) fn truncate(&self, backing: &mut dyn Backing, len: u64) -> Code {
        let mut state = self.disk.lock();
        if state.meet_open(self, On::Truncate, 0).is_some() {
            return ffi::SQLITE_IOERR_TRUNCATE;
        }
        if state.volatile {
            state.file(&self.path).truncate(len);
            return OK;
        }
        backing.truncate(len).map_or_else(|code| code, |()| OK)
    }

    pub(super) fn sync(&self, backing: &mut dyn Backing, flags: i32) -> Code {
        let mut state = self.disk.lock();
        state.counts.syncs += 1;
        match state.meet_open(self, On::Sync, 0) {
            None => {}
            Some(Effect::Forget(code)) => {
                state.file(&self.path).forget();
                return code;
            }
            Some(_) => return ffi::SQLITE_IOERR_FSYNC,
        }
        let code = match state.file(&self.path).sync(backing) {
            // The system's page cache plays the disk: a killed process does not take it along.
            Ok(()) if state.volatile => OK,
            Ok(()) => backing.sync(flags),
            Err(code) => code,
        };
        if code == OK && self.which != Which::Database {
            // SQLite's files sync their directory with the first sync after their creation.
            state.sync_directory();
        }
        code
    }

    /// Before the lock that writing needs is taken.
    pub(super) fn lock(&self) -> Code {
        match self.disk.lock().meet_open(self, On::Lock, 0) {
            None => OK,
            Some(Effect::Fail(code)) => code,
            Some(_) => ffi::SQLITE_IOERR_LOCK,
        }
    }

    pub(super) fn len(&self, backing: &mut dyn Backing) -> Result<u64, Code> {
        let mut state = self.disk.lock();
        if state.epoch != self.epoch {
            return Err(ffi::SQLITE_IOERR_FSTAT);
        }
        state.file(&self.path).len(backing)
    }
}

impl State {
    fn file(&mut self, path: &Path) -> &mut Unsynced {
        &mut self.files.entry(path.to_path_buf()).or_default().unsynced
    }

    /// Like [`State::meet`], for an open file, which may be dead.
    fn meet_open(&mut self, handle: &Handle, on: On, bytes: usize) -> Option<Effect> {
        if self.epoch != handle.epoch {
            return Some(Effect::Fail(ffi::SQLITE_IOERR));
        }
        self.meet(on, handle.which, bytes)
    }

    /// What happens to an operation. A loss of power has happened when this returns it.
    fn meet(&mut self, on: On, which: Which, bytes: usize) -> Option<Effect> {
        self.read_control();
        // Every fault counts every operation; the first that hits wins.
        let effects: Vec<Effect> = self
            .faults
            .iter_mut()
            .filter_map(|fault| fault.meets(on, which, bytes))
            .collect();
        let effect = effects.first().copied()?;
        self.counts.faults += 1;
        match effect {
            Effect::PowerLoss(survives) => self.lose_power(survives),
            Effect::Die(survives) => {
                self.lose_power(survives);
                super::shim::die();
            }
            _ => {}
        }
        Some(effect)
    }

    fn read_control(&mut self) {
        let Some((path, known)) = &mut self.control else { return };
        let text = fs::read_to_string(path).unwrap_or_default();
        if text == *known {
            return;
        }
        match fault::parse(&text) {
            Ok(faults) => self.faults = faults,
            Err(error) => tracing::error!(%error, "the faults stay as they were"),
        }
        *known = text;
    }

    fn lose_power(&mut self, survives: Survives) {
        self.epoch += 1;
        let files = std::mem::take(&mut self.files);
        let Survives::Some(seed) = survives else { return };
        let mut random = SplitMix(seed);
        // A map's order differs from process to process; a seed must not.
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (path, file) in files {
            if file.deleted {
                if random.coin() {
                    // A file that is not there was deleted by someone else: the same end.
                    let _ = fs::remove_file(&path);
                }
                continue;
            }
            let Ok(real) = OpenOptions::new().read(true).write(true).open(&path) else {
                continue;
            };
            if let Err(code) = file.unsynced.store_some(&mut Plain(real), &mut || random.coin()) {
                tracing::error!(path = %path.display(), code, "a surviving sector cannot be stored");
            }
        }
    }

    fn sync_directory(&mut self) {
        self.files.retain(|path, file| {
            if file.deleted {
                // A file that is not there was deleted by someone else: the same end.
                let _ = fs::remove_file(path);
            }
            !file.deleted
        });
    }
}

/// The SplitMix64 generator: a seed names one sequence.
struct SplitMix(u64);

impl SplitMix {
    fn coin(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) & 1 == 1
    }
}
