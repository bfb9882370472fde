//! Loops compiled once more for processors of today.
//!
//! The build is for every x86-64 processor, whose vectors hold two 64-bit numbers and cannot
//! multiply them. The same loops are compiled for AVX2 and AVX-512 as well and chosen when they
//! run. What they compute is the same: nothing here is written in instructions, the compiler
//! finds them, and `fearless_simd` makes the call, which is safe once the processor was asked.

use fearless_simd::Level;
#[cfg(target_arch = "x86_64")]
use fearless_simd::Simd;

/// Runs `work` compiled for the best vectors that this processor has.
///
/// `work` has to be a loop worth the question, which costs about a nanosecond, and what it calls
/// has to be `#[inline(always)]`: only what is inlined is compiled anew.
#[inline(always)]
pub(crate) fn run_vectorized<R>(work: impl FnOnce() -> R) -> R {
    match Level::new() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(simd) => simd.vectorize(work),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(simd) => simd.vectorize(work),
        // What the build is for: on arm64 it has all the vectors there are.
        _ => work(),
    }
}
