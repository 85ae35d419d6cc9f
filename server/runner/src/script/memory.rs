//! The allocator of script runtimes: the C library's, with a record of the most that a runtime held.
//!
//! The engine keeps to its limit by itself; what it counts is within a few percent of what it takes from here. But when it cannot even make an error object it throws `null`, as a script may,
//! and all is freed again by the time this is seen; only the peak tells the two apart.
#![expect(unsafe_code, reason = "an allocator hands out and takes back raw memory")]

use std::cell::Cell;
use std::rc::Rc;

use rquickjs::allocator::Allocator;

/// How much memory a runtime holds and has held, in bytes.
#[derive(Default)]
pub(super) struct Peak {
    now: Cell<usize>,
    most: Cell<usize>,
}

impl Peak {
    /// Begins anew, from what is held now.
    pub(super) fn reset(&self) {
        self.most.set(self.now.get());
    }

    /// Whether so much was held since the last reset that `limit` left no room for an error object.
    pub(super) fn reached(&self, limit: usize) -> bool {
        self.most.get() >= limit - limit / 32
    }

    fn exchange(&self, before: usize, after: usize) {
        let now = self.now.get().saturating_sub(before) + after;
        self.now.set(now);
        self.most.set(self.most.get().max(now));
    }
}

/// The C library's allocator, which tells a [`Peak`].
pub(super) struct Counting(pub Rc<Peak>);

impl Counting {
    fn made(&self, block: *mut libc::c_void) -> *mut u8 {
        if !block.is_null() {
            self.0.exchange(0, usable(block));
        }
        block.cast()
    }
}

// SAFETY: every block comes from malloc, calloc or realloc of the C library, which align to more than a `usize`, return null
// when they fail, and know the usable size of their blocks.
unsafe impl Allocator for Counting {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        // SAFETY: malloc takes any size.
        self.made(unsafe { libc::malloc(size) })
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        // SAFETY: calloc takes any two numbers and refuses a product that overflows.
        self.made(unsafe { libc::calloc(count, size) })
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        if ptr.is_null() {
            return;
        }
        self.0.exchange(usable(ptr.cast()), 0);
        // SAFETY: the caller promises that the block is this allocator's, so it is the C library's.
        unsafe { libc::free(ptr.cast()) };
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if ptr.is_null() {
            return self.alloc(new_size);
        }
        if new_size == 0 {
            // SAFETY: as the caller promises.
            unsafe { self.dealloc(ptr) };
            return std::ptr::null_mut();
        }
        let before = usable(ptr.cast());
        // SAFETY: the caller promises that the block is this allocator's; the new size is not 0.
        let block = unsafe { libc::realloc(ptr.cast(), new_size) };
        if !block.is_null() {
            self.0.exchange(before, usable(block));
        }
        block.cast()
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        usable(ptr.cast())
    }
}

/// Usable size of a living block of the C library, in bytes.
fn usable(block: *mut libc::c_void) -> usize {
    // SAFETY: only called with blocks that the C library gave out and that were not freed.
    #[cfg(not(target_vendor = "apple"))]
    unsafe {
        libc::malloc_usable_size(block)
    }
    // SAFETY: the same.
    #[cfg(target_vendor = "apple")]
    unsafe {
        libc::malloc_size(block)
    }
}
