//! How much memory is allocated, by counting it: the same measure for every peer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with the bytes that are in use counted as they were asked for.
pub struct Counting;

/// One thread allocates here, so that a load and a store do, which cost less than an addition that is atomic.
fn add(bytes: usize) {
    ALLOCATED.store(ALLOCATED.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(layout.size().wrapping_neg());
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size.wrapping_sub(layout.size()));
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Bytes in use.
pub fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}
