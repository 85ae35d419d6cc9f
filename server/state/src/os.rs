//! The few system calls this crate needs: the clock that stops in suspend, and a boot identity where no file gives one.
#![expect(unsafe_code, reason = "clock_gettime and sysctl have no safe form in std")]

/// Milliseconds of the monotonic clock that stops in suspend.
pub(crate) fn steady_ms() -> i64 {
    #[cfg(target_os = "macos")]
    const CLOCK: libc::clockid_t = libc::CLOCK_UPTIME_RAW;
    #[cfg(not(target_os = "macos"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the duration of the call.
    let code = unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
    if code != 0 {
        return 0;
    }
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// A boot identity for systems without a boot id file: the instant the machine booted, to the second.
pub(crate) fn boot_time_identity() -> String {
    #[cfg(target_os = "macos")]
    {
        let name = c"kern.bootsessionuuid";
        let mut buffer = [0u8; 64];
        let mut length = buffer.len();
        // SAFETY: name is NUL-terminated; buffer and length describe a writable region of that many bytes.
        let code = unsafe {
            libc::sysctlbyname(
                name.as_ptr(),
                buffer.as_mut_ptr().cast(),
                &raw mut length,
                std::ptr::null_mut(),
                0,
            )
        };
        if code == 0 {
            let text = &buffer[..length.min(buffer.len())];
            return String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
        }
    }
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0));
    format!("since-{}", (wall - steady_ms() / 1000) / 60)
}
