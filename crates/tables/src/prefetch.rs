//! Asking memory for what is needed a little later.

/// How many rows ahead something is prefetched: about as many requests as a core has under way.
pub(crate) const AHEAD: usize = 16;

/// Has an item brought into the cache meanwhile, if there is one at `index`.
#[inline]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    let at = items.as_ptr().wrapping_add(index);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing, wherever it points; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
