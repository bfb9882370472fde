//! Loops compiled once more for processors of today.
//!
//! The build is for every x86-64 processor, whose vectors hold two 64-bit numbers and cannot
//! multiply them. The same loops, compiled for AVX2 or AVX-512 and chosen when they run, hash an integer
//! in a fifth of the time (AVX-512 multiplies eight at once) and merge registers several times as fast. What they compute is
//! the same: nothing here is written in instructions, the compiler finds them.

/// Runs `work` compiled for the best vectors that this processor has.
///
/// `work` has to be a loop worth the question, which costs about a nanosecond, and what it calls
/// has to be `#[inline(always)]`: only what is inlined is compiled anew.
#[inline(always)]
pub(crate) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "a call of what is compiled for features seen just before")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx2") && has!("bmi1") && has!("bmi2") {
            if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
                // SAFETY: the processor has every feature that the function is compiled for.
                return unsafe { with_avx512(work) };
            }
            // SAFETY: as above.
            return unsafe { with_avx2(work) };
        }
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn with_avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}
