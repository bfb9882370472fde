//! Loops that are also compiled for AVX2 and AVX-512, selected at run time.
//!
//! The build targets every x86-64 processor, whose vectors hold two 64-bit numbers and cannot multiply them.
//! The same loops are compiled a second time for wider vectors, and the call selects the best version for the
//! processor. The results are identical: the code contains no intrinsics, and the compiler vectorizes it.
//! `fearless_simd` makes the call, which is safe once the processor's features are known.

use fearless_simd::Level;
#[cfg(target_arch = "x86_64")]
use fearless_simd::Simd;

/// Runs `work` compiled for the widest vectors of this processor.
///
/// `work` should be a loop that is worth the detection, which costs about a nanosecond. Functions that it
/// calls must be `#[inline(always)]`, because only inlined code is compiled again.
#[inline(always)]
pub(crate) fn run_vectorized<R>(work: impl FnOnce() -> R) -> R {
    match Level::new() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(simd) => simd.vectorize(work),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(simd) => simd.vectorize(work),
        // The target of the build, which on arm64 includes all vector instructions.
        _ => work(),
    }
}
