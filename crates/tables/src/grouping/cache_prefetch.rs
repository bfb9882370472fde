//! Prefetching into the CPU cache.

/// Number of rows between a prefetch and the use: about as many memory requests as a core can have in flight.
pub(crate) const PREFETCH_DISTANCE: usize = 16;

/// Starts loading all cache lines of the item at `index`, if there is one, without waiting for them.
#[inline]
pub(crate) fn prefetch_item<T>(items: &[T], index: usize) {
    let at: *const u8 = items.as_ptr().wrapping_add(index).cast();
    let size = size_of::<T>();
    for offset in (0..size).step_by(CACHE_LINE_BYTES) {
        prefetch_line(at.wrapping_add(offset));
    }
    if !CACHE_LINE_BYTES.is_multiple_of(size.max(1)) {
        // The item may end in one more line.
        prefetch_line(at.wrapping_add(size - 1));
    }
}

/// Size of a cache line, in bytes.
const CACHE_LINE_BYTES: usize = 64;

#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is a hint that reads nothing, so any address is valid; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
