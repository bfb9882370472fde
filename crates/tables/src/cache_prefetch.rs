//! Asking memory for what is needed a little later.

/// How many rows ahead something is prefetched: about as many requests as a core has under way.
pub(crate) const PREFETCH_DISTANCE: usize = 16;

/// Has an item brought into the cache meanwhile, all of its lines, if there is one at `index`.
#[inline]
pub(crate) fn prefetch_item<T>(items: &[T], index: usize) {
    let at: *const u8 = items.as_ptr().wrapping_add(index).cast();
    let size = size_of::<T>();
    for offset in (0..size).step_by(CACHE_LINE_BYTES) {
        prefetch_line(at.wrapping_add(offset));
    }
    if !CACHE_LINE_BYTES.is_multiple_of(size.max(1)) {
        // It may end in one line more.
        prefetch_line(at.wrapping_add(size - 1));
    }
}

/// What the cache brings at a time.
const CACHE_LINE_BYTES: usize = 64;

#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing, wherever it points; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
