//! The process table of macOS, read through libproc.
#![expect(
    unsafe_code,
    reason = "libproc is a C interface without a safe wrapper among our dependencies"
)]

use std::io;
use std::mem::{MaybeUninit, size_of};

use crate::tree::ProcessInfo;

/// `SZOMB` of `sys/proc.h`.
const ZOMBIE: u32 = 5;

/// One process, or `None` when the pid is free.
pub(crate) fn info(pid: u32) -> io::Result<Option<ProcessInfo>> {
    let Ok(raw_pid) = libc::c_int::try_from(pid) else {
        return Ok(None);
    };
    let mut info = MaybeUninit::<libc::proc_bsdinfo>::zeroed();
    let size = size_of::<libc::proc_bsdinfo>() as libc::c_int;
    // SAFETY: the buffer is as long as `size` says and lives through the call; the struct is plain data, valid when zeroed.
    let written = unsafe { libc::proc_pidinfo(raw_pid, libc::PROC_PIDTBSDINFO, 1, info.as_mut_ptr().cast(), size) };
    if written != size {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the call filled the whole struct.
    let info = unsafe { info.assume_init() };
    Ok(Some(ProcessInfo {
        pid,
        parent: info.pbi_ppid,
        group: info.pbi_pgid,
        zombie: info.pbi_status == ZOMBIE,
        start: format!("{}.{:06}", info.pbi_start_tvsec, info.pbi_start_tvusec),
    }))
}

/// Every visible process.
pub(crate) fn all() -> io::Result<Vec<ProcessInfo>> {
    // SAFETY: a null buffer asks for the number of pids.
    let count = unsafe { libc::proc_listallpids(std::ptr::null_mut(), 0) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let mut pids: Vec<libc::pid_t> = vec![0; count + 64];
    let bytes = libc::c_int::try_from(pids.len() * size_of::<libc::pid_t>())
        .map_err(|_| io::Error::other("too many processes"))?;
    // SAFETY: the buffer is `bytes` long.
    let filled = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast(), bytes) };
    let filled = usize::try_from(filled).map_err(|_| io::Error::last_os_error())?;
    let mut found = Vec::new();
    for pid in pids.into_iter().take(filled).filter_map(|pid| u32::try_from(pid).ok()) {
        // A process of another user cannot be inspected; it is none of ours.
        if let Ok(Some(info)) = info(pid) {
            found.push(info);
        }
    }
    Ok(found)
}

/// Other processes' environments are not read here.
pub(crate) fn environment_value(_pid: u32, _name: &str) -> Option<String> {
    None
}

/// Start identities hold wall-clock times, which no later boot repeats.
pub(crate) fn is_of_this_boot(_start: &str) -> bool {
    true
}

/// macOS has no cheaper list than the process table.
pub(crate) fn quick_children() -> Option<Vec<u32>> {
    None
}
