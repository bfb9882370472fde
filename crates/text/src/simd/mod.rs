//! Sixty-four bytes at a time: which of them are what, as the bits of a word.
//!
//! An [`Isa`] is the handful of operations that the scanners are made of. Each scanner is
//! written once, generic over it, and compiled once per instruction set by [`dispatch!`],
//! which asks the processor at run time. All of them give the same bits: the portable one is
//! what the others are tested against.
//!
//! The bits become positions by [`Isa::positions`]. With AVX-512 VBMI2 one `vpcompressb` turns
//! a mask into a list of byte numbers, which costs the same for one separator in 64 bytes as
//! for sixteen; without it, they are peeled off one by one, eight to a branch, as in Langdale
//! and Lemire, "Parsing Gigabytes of JSON per Second" (VLDB Journal 2019), which is also where
//! the parity of quotes by carry-less multiplication and the escapes by addition come from.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::mem::MaybeUninit;

use crate::span::Span;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 64;

/// The operations of an instruction set on blocks of 64 bytes: bit `i` is byte `i`'s.
///
/// # Safety
/// The processor must have the instruction set, for every function but `Portable`'s.
pub(crate) trait Isa {
    /// Sixty-four bytes in registers.
    type Block: Copy;

    /// The 64 bytes at `at`, which need no alignment and must all be readable.
    unsafe fn load(at: *const u8) -> Self::Block;
    /// Which bytes are `byte`.
    unsafe fn equal(block: Self::Block, byte: u8) -> u64;
    /// Which bytes are `byte` once their bit of value 32 is set: `[` with `{`, `]` with `}`.
    unsafe fn equal_folded(block: Self::Block, byte: u8) -> u64;
    /// Which bytes are below `byte`, unsigned, which is 1 to 127.
    unsafe fn below(block: Self::Block, byte: u8) -> u64;
    /// Which bytes have their top bit set.
    unsafe fn high(block: Self::Block) -> u64;
    /// Bit `i` of the result is the parity of the bits `0..=i`.
    unsafe fn parity(mask: u64) -> u64;
    /// Writes `base` plus the number of each bit that is set, in order. `out` must have room
    /// for 64, all of which may be written.
    unsafe fn positions(mask: u64, base: u32, out: *mut u32);
}

/// Calls a scanner compiled for the best instruction set that the processor has.
///
/// `dispatch!(function(argument: Type, …) -> Result)` defines a module-level function
/// `function`, which calls the generic function `generic::function::<Isa>`.
macro_rules! dispatch {
    ($(#[$attr:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $out:ty => $generic:ident) => {
        $(#[$attr])*
        #[inline]
        fn $name($($arg: $type),*) -> $out {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn avx512($($arg: $type),*) -> $out {
                    // SAFETY: called only where the processor has these.
                    unsafe { $generic::<$crate::simd::Avx512>($($arg),*) }
                }
                #[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn avx2($($arg: $type),*) -> $out {
                    // SAFETY: called only where the processor has these.
                    unsafe { $generic::<$crate::simd::Avx2>($($arg),*) }
                }
                match $crate::simd::level() {
                    // SAFETY: the processor was asked.
                    $crate::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Portable => {}
                }
            }
            #[cfg(target_arch = "aarch64")]
            {
                // SAFETY: NEON is part of every aarch64.
                return unsafe { $generic::<$crate::simd::Neon>($($arg),*) };
            }
            // SAFETY: this one asks nothing of the processor.
            #[allow(unreachable_code)]
            unsafe { $generic::<$crate::simd::Portable>($($arg),*) }
        }
    };
}
pub(crate) use dispatch;

/// The instruction sets that x86-64 processors are told apart by.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// AVX-512 with byte operations and VBMI2: Ice Lake, Zen 4 and later.
    Avx512,
    /// AVX2 with carry-less multiplication: Haswell, Zen and later.
    Avx2,
    /// Whatever there is.
    Portable,
}

/// The best instruction set of this processor.
///
/// `TIDEMILL_SIMD=avx2|portable` lowers it, to measure what it is worth or to rule it out.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: std::sync::OnceLock<Level> = std::sync::OnceLock::new();
    *LEVEL.get_or_init(|| {
        let wanted = std::env::var("TIDEMILL_SIMD").unwrap_or_default();
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2");
        let has_avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        match wanted.as_str() {
            "portable" => Level::Portable,
            "avx2" if has_avx2 => Level::Avx2,
            _ if has_avx512 && has_avx2 => Level::Avx512,
            _ if has_avx2 => Level::Avx2,
            _ => Level::Portable,
        }
    })
}

/// Takes integers of up to eight characters from the front of `spans`, several at a time, as far
/// as that goes with this processor; returns how many are in `out`.
#[inline]
pub(crate) fn ints(text: &[u8], spans: &[Span], out: &mut [MaybeUninit<i64>]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level() == Level::Avx512 {
        // SAFETY: the processor was asked.
        return unsafe { avx512::ints(text, spans, out) };
    }
    let _ = (text, spans, out);
    0
}

/// The same of floats of up to eight characters in plain notation.
#[inline]
pub(crate) fn floats(text: &[u8], spans: &[Span], out: &mut [MaybeUninit<f64>]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level() == Level::Avx512 {
        // SAFETY: the processor was asked.
        return unsafe { avx512::floats(text, spans, out) };
    }
    let _ = (text, spans, out);
    0
}

/// The name of the instruction set that this process uses: `avx512`, `avx2`, `neon` or
/// `portable`.
pub fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return match level() {
        Level::Avx512 => "avx512",
        Level::Avx2 => "avx2",
        Level::Portable => "portable",
    };
    #[cfg(target_arch = "aarch64")]
    return "neon";
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return "portable";
}

/// Bit `i` of the result is the parity of the bits `0..=i`, without an instruction for it.
#[inline(always)]
fn parity_by_shifts(mut mask: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        mask ^= mask << shift;
    }
    mask
}

/// Peels the set bits off one by one, eight to a branch.
///
/// # Safety
/// `out` must have room for 64.
#[inline(always)]
unsafe fn positions_by_bits(mut mask: u64, base: u32, out: *mut u32) {
    let count = mask.count_ones() as usize;
    let mut at = 0;
    while at < count {
        for lane in 0..8 {
            // SAFETY: at most 64 bits are set and eights end at 64.
            unsafe { out.add(at + lane).write(base + mask.trailing_zeros()) };
            // Of no bits at all, none is left.
            mask &= mask.wrapping_sub(1);
        }
        at += 8;
    }
}

/// Where escapes (`\`) stand: bits of the bytes that are escaped. `carry` is 1 if the first
/// byte of the block is escaped, and is set for the next block.
#[inline(always)]
pub(crate) fn escaped(backslashes: u64, carry: &mut u64) -> u64 {
    if backslashes == 0 {
        return std::mem::take(carry);
    }
    // A backslash that is itself escaped begins no escape. Subtracting the starts of runs from
    // their successors, with every odd bit set, leaves alternating bits within each run.
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let before = *carry;
    let starts = backslashes & !before;
    let series = ((starts << 1) | ODD).wrapping_sub(starts) ^ ODD;
    *carry = (series & backslashes) >> 63;
    series ^ (backslashes | before)
}

#[cfg(test)]
mod tests;
