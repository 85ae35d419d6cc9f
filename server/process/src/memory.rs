//! How this process keeps freed memory.
#![expect(unsafe_code, reason = "the allocator's parameters have no safe interface")]

/// Makes a process that lives for days give memory back once it is free. The GNU allocator otherwise raises its threshold
/// with every large buffer it sees freed, keeps such buffers on its heaps for ever, and has eight heaps a core: a server that
/// once carried a large value would stay large. Other allocators give memory back by themselves.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// From this size on, in bytes, a buffer is a mapping of its own. Frames have up to 1 MiB, pages of views 64 KiB.
        const MAPPED: libc::c_int = 128 * 1024;
        /// Free bytes at the end of a heap that are kept, so that small messages cost no system calls.
        const KEPT: libc::c_int = 512 * 1024;
        /// Two threads do all the work: the one of the sockets and the writer.
        const HEAPS: libc::c_int = 2;
        // SAFETY: `mallopt` sets plain numbers and may be called at any time; refused values change nothing.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
            libc::mallopt(libc::M_ARENA_MAX, HEAPS);
        }
    }
}
