//! The layer as SQLite sees it: a VFS whose files hand locks and shared memory to the default VFS and everything that can be
//! lost or fail to [`super::disk`].
#![expect(
    unsafe_code,
    reason = "SQLite calls a VFS through C function pointers with memory that it owns; there is no safe form"
)]
#![allow(non_snake_case, reason = "the names are SQLite's")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use super::backing::{Backing, Code, OK};
use super::disk::{Access, Handle};
use super::fault::Which;

/// What SQLite allocates for one open file: this, then the default VFS's own file.
#[repr(C)]
struct Shim {
    base: sqlite3_file,
    /// Absent for files that the layer leaves alone (temporary ones, and those of other directories).
    handle: *mut Handle,
}

/// Registers the VFS once.
///
/// # Errors
/// SQLite's code when it refuses.
pub(super) fn register() -> Result<(), Code> {
    static DONE: OnceLock<Code> = OnceLock::new();
    let code = *DONE.get_or_init(|| {
        // SAFETY: sqlite3_vfs_find returns a registered VFS that lives as long as the process, or null.
        let default = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
        if default.is_null() {
            return ffi::SQLITE_ERROR;
        }
        // SAFETY: not null, see above; sqlite3_vfs is plain data.
        let mut vfs = unsafe { *default };
        vfs.zName = super::NAME.as_ptr();
        vfs.pNext = ptr::null_mut();
        vfs.pAppData = default.cast();
        vfs.szOsFile += shim_size();
        vfs.iVersion = 2;
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        vfs.xAccess = Some(access);
        vfs.xFullPathname = Some(full_pathname);
        // SAFETY: the VFS is leaked, so it lives as long as the process.
        unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 0) }
    });
    if code == OK { Ok(()) } else { Err(code) }
}

/// Number of the lock that the one writer of a database in WAL mode holds (see SQLite's file format).
const WAL_WRITE_LOCK: c_int = 0;

/// Ends the process as a loss of power would: nothing runs any more.
pub(super) fn die() -> ! {
    // SAFETY: kill and getpid have no preconditions.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    std::process::abort()
}

fn shim_size() -> c_int {
    c_int::try_from(size_of::<Shim>()).unwrap_or(c_int::MAX)
}

/// The default VFS.
unsafe fn default_of(vfs: *mut sqlite3_vfs) -> *mut sqlite3_vfs {
    // SAFETY: SQLite passes the VFS that `register` made.
    unsafe { (*vfs).pAppData.cast() }
}

/// The default VFS's part of a file.
unsafe fn below(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: SQLite allocated szOsFile bytes: the shim, then the default VFS's file. The shim is a multiple of 8 bytes long, as SQLite aligns.
    unsafe { file.byte_add(size_of::<Shim>()) }
}

/// The handle of an open file, when the layer looks after it.
unsafe fn handle<'a>(file: *mut sqlite3_file) -> Option<&'a Handle> {
    // SAFETY: the file is open, so `open` has initialised its shim; the handle lives until `close`.
    unsafe { (*file.cast::<Shim>()).handle.as_ref() }
}

/// Calls a method of the default VFS's file.
macro_rules! base {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let base = below($file);
        match (*(*base).pMethods).$method {
            Some(method) => method(base $(, $argument)*),
            None => ffi::SQLITE_IOERR,
        }
    }};
}

struct Below(*mut sqlite3_file);

impl Backing for Below {
    fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<(), Code> {
        let (bytes, offset) = (length(buffer.len())?, position(offset)?);
        // SAFETY: the file is open; buffer is writable for that many bytes.
        let code = unsafe {
            below_method(self.0)
                .xRead
                .map(|read| read(self.0, buffer.as_mut_ptr().cast(), bytes, offset))
        };
        result(code)
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Code> {
        let (count, offset) = (length(bytes.len())?, position(offset)?);
        // SAFETY: the file is open; bytes are readable for that many bytes.
        let code = unsafe {
            below_method(self.0)
                .xWrite
                .map(|write| write(self.0, bytes.as_ptr().cast(), count, offset))
        };
        result(code)
    }

    fn truncate(&mut self, len: u64) -> Result<(), Code> {
        let len = position(len)?;
        // SAFETY: the file is open.
        result(unsafe { below_method(self.0).xTruncate.map(|truncate| truncate(self.0, len)) })
    }

    fn sync(&mut self, flags: i32) -> Code {
        // SAFETY: the file is open.
        unsafe {
            below_method(self.0)
                .xSync
                .map_or(ffi::SQLITE_IOERR, |sync| sync(self.0, flags))
        }
    }

    fn len(&mut self) -> Result<u64, Code> {
        let mut len: sqlite3_int64 = 0;
        // SAFETY: the file is open; len is writable.
        result(unsafe { below_method(self.0).xFileSize.map(|size| size(self.0, &raw mut len)) })?;
        Ok(len.cast_unsigned())
    }
}

/// Methods of an open file of the default VFS.
unsafe fn below_method<'a>(file: *mut sqlite3_file) -> &'a sqlite3_io_methods {
    // SAFETY: the file is open, so its methods are set and static.
    unsafe { &*(*file).pMethods }
}

fn result(code: Option<Code>) -> Result<(), Code> {
    match code {
        Some(OK) => Ok(()),
        Some(code) => Err(code),
        None => Err(ffi::SQLITE_IOERR),
    }
}

fn length(bytes: usize) -> Result<c_int, Code> {
    c_int::try_from(bytes).map_err(|_| ffi::SQLITE_IOERR)
}

fn position(offset: u64) -> Result<sqlite3_int64, Code> {
    sqlite3_int64::try_from(offset).map_err(|_| ffi::SQLITE_IOERR)
}

/// The path that SQLite passes, absolute since [`full_pathname`].
unsafe fn path_of<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite passes a NUL-terminated path that outlives the call.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    Some(Path::new(OsStr::from_bytes(bytes)))
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes szOsFile bytes for `file`, a path or null, and an out pointer that may be null.
    unsafe {
        let shim = file.cast::<Shim>();
        (*shim).base.pMethods = ptr::null();
        (*shim).handle = ptr::null_mut();
        let which = match flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) {
            ffi::SQLITE_OPEN_MAIN_DB => Some(Which::Database),
            ffi::SQLITE_OPEN_WAL => Some(Which::Wal),
            ffi::SQLITE_OPEN_MAIN_JOURNAL => Some(Which::Journal),
            _ => None,
        };
        let mut flags = flags;
        let mut opened = None;
        if let (Some(path), Some(which)) = (path_of(name), which)
            && let Some(disk) = super::disk_of(path)
        {
            match disk.open(path, which, flags & ffi::SQLITE_OPEN_CREATE != 0) {
                Err(code) => return code,
                Ok((handle, Access::AsAsked)) => opened = Some(handle),
                Ok((handle, Access::ReadOnly)) => {
                    flags &= !(ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE);
                    flags |= ffi::SQLITE_OPEN_READONLY;
                    opened = Some(handle);
                }
            }
        }
        let default = default_of(vfs);
        let Some(base_open) = (*default).xOpen else {
            return ffi::SQLITE_CANTOPEN;
        };
        let code = base_open(default, name, below(file), flags, out);
        if code != OK {
            return code;
        }
        if let Some(handle) = opened {
            (*shim).handle = Box::into_raw(Box::new(handle));
        }
        (*shim).base.pMethods = &raw const METHODS;
        OK
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: SQLite passes our VFS and a NUL-terminated path.
    unsafe {
        if let Some(path) = path_of(name)
            && let Some(disk) = super::disk_of(path)
        {
            match disk.delete(path, which_of(path), sync_directory != 0) {
                Ok(true) => {}
                Ok(false) => return OK,
                Err(code) => return code,
            }
        }
        let default = default_of(vfs);
        (*default)
            .xDelete
            .map_or(ffi::SQLITE_IOERR, |delete| delete(default, name, sync_directory))
    }
}

/// Which file a path names, by SQLite's naming.
fn which_of(path: &Path) -> Which {
    let name = path.as_os_str().as_bytes();
    if name.ends_with(b"-wal") {
        Which::Wal
    } else if name.ends_with(b"-journal") {
        Which::Journal
    } else {
        Which::Database
    }
}

unsafe extern "C" fn access(vfs: *mut sqlite3_vfs, name: *const c_char, flags: c_int, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes our VFS, a NUL-terminated path and a writable result.
    unsafe {
        if let Some(path) = path_of(name)
            && let Some(disk) = super::disk_of(path)
            && disk.is_deleted(path)
        {
            *out = 0;
            return OK;
        }
        let default = default_of(vfs);
        (*default)
            .xAccess
            .map_or(ffi::SQLITE_IOERR, |access| access(default, name, flags, out))
    }
}

unsafe extern "C" fn full_pathname(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    bytes: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes our VFS, a NUL-terminated path and `bytes` writable bytes.
    unsafe {
        let default = default_of(vfs);
        (*default)
            .xFullPathname
            .map_or(ffi::SQLITE_IOERR, |full| full(default, name, bytes, out))
    }
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // Version 2 has shared memory for the log's index, and no memory mapping of the file, which would go past the layer.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

// SAFETY of all that follow: SQLite calls the methods of a file that `open` opened, with valid buffers and results, and never
// after `close`.

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    unsafe {
        let shim = file.cast::<Shim>();
        if !(*shim).handle.is_null() {
            drop(Box::from_raw((*shim).handle));
            (*shim).handle = ptr::null_mut();
        }
        base!(file, xClose)
    }
}

unsafe extern "C" fn read(file: *mut sqlite3_file, buffer: *mut c_void, bytes: c_int, offset: sqlite3_int64) -> c_int {
    unsafe {
        match (handle(file), usize::try_from(bytes)) {
            (Some(handle), Ok(count)) => {
                let buffer = std::slice::from_raw_parts_mut(buffer.cast::<u8>(), count);
                handle.read(&mut Below(below(file)), buffer, offset.cast_unsigned())
            }
            _ => base!(file, xRead, buffer, bytes, offset),
        }
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    unsafe {
        match (handle(file), usize::try_from(count)) {
            (Some(handle), Ok(length)) => {
                let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), length);
                handle.write(&mut Below(below(file)), bytes, offset.cast_unsigned())
            }
            _ => base!(file, xWrite, bytes, count, offset),
        }
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, len: sqlite3_int64) -> c_int {
    unsafe {
        match handle(file) {
            Some(handle) => handle.truncate(&mut Below(below(file)), len.cast_unsigned()),
            None => base!(file, xTruncate, len),
        }
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    unsafe {
        match handle(file) {
            Some(handle) => handle.sync(&mut Below(below(file)), flags),
            None => base!(file, xSync, flags),
        }
    }
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, out: *mut sqlite3_int64) -> c_int {
    unsafe {
        match handle(file).map(|handle| handle.len(&mut Below(below(file)))) {
            Some(Ok(len)) => {
                *out = len.cast_signed();
                OK
            }
            Some(Err(code)) => code,
            None => base!(file, xFileSize, out),
        }
    }
}

/// Whether the power went since the file was opened: it takes no locks then, so that closing it writes and deletes nothing.
unsafe fn is_dead(file: *mut sqlite3_file) -> bool {
    unsafe { handle(file).is_some_and(Handle::is_dead) }
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    unsafe {
        if is_dead(file) {
            return ffi::SQLITE_IOERR_LOCK;
        }
        base!(file, xLock, level)
    }
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    unsafe { base!(file, xUnlock, level) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    unsafe { base!(file, xCheckReservedLock, out) }
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    unsafe {
        let extends = matches!(operation, ffi::SQLITE_FCNTL_SIZE_HINT | ffi::SQLITE_FCNTL_CHUNK_SIZE);
        if extends && handle(file).is_some_and(Handle::is_volatile) {
            // A hint only, and one that would reach the disk before its sync.
            return OK;
        }
        base!(file, xFileControl, operation, argument)
    }
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    unsafe { base!(file, xSectorSize) }
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    unsafe { base!(file, xDeviceCharacteristics) }
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    unsafe {
        if is_dead(file) {
            return ffi::SQLITE_IOERR_SHMMAP;
        }
        base!(file, xShmMap, page, size, extend, out)
    }
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    unsafe {
        let takes = flags & ffi::SQLITE_SHM_LOCK != 0;
        if is_dead(file) && takes {
            return ffi::SQLITE_IOERR_SHMLOCK;
        }
        if takes && offset == WAL_WRITE_LOCK && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0 {
            let code = handle(file).map_or(OK, Handle::lock);
            if code != OK {
                return code;
            }
        }
        base!(file, xShmLock, offset, count, flags)
    }
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    unsafe {
        let base = below(file);
        if let Some(barrier) = (*(*base).pMethods).xShmBarrier {
            barrier(base);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    unsafe { base!(file, xShmUnmap, delete) }
}
