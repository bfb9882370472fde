//! SIMD operations on 64 bytes at a time that return one bit per byte.
//!
//! An [`Isa`] is the small set of operations that the scanners need. Each scanner is
//! written once, generic over it, and [`dispatch!`] compiles it once per instruction set
//! and asks the processor at run time. All of them give the same bits: tests compare the others with the
//! portable one.
//!
//! [`Isa::positions`] turns the bits into positions. With AVX-512 VBMI2 one `vpcompressb` turns
//! a mask into a list of byte numbers, which costs the same for one separator in 64 bytes as
//! for sixteen. Without it, the code peels bits off one by one, eight to a branch, as in Langdale
//! and Lemire, "Parsing Gigabytes of JSON per Second" (VLDB Journal 2019). The parity of quotes by carry-less
//! multiplication and the escapes by addition also come from there.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::mem::MaybeUninit;

use crate::value_span::ValueSpan;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

/// Number of bytes in a block.
pub(crate) const BLOCK_BYTES: usize = 64;
/// Number of blocks whose masks are processed together: they fill a register of 512 bits.
pub(crate) const EIGHT: usize = 8;

/// The operations of an instruction set on blocks of 64 bytes: bit `i` is byte `i`'s.
///
/// # Safety
/// The processor must have the instruction set, for every function but `Portable`'s.
pub(crate) trait Isa {
    /// Sixty-four bytes in registers.
    type Block: Copy;
    /// The masks of eight consecutive blocks.
    type Masks: Copy;

    /// Loads the 64 bytes at `at`, which need no alignment and must all be readable.
    unsafe fn load(at: *const u8) -> Self::Block;
    /// Returns the mask of bytes equal to `byte`.
    unsafe fn equal(block: Self::Block, byte: u8) -> u64;
    /// Returns the mask of bytes equal to `byte` after setting their bit of value 32: `[` with `{`, `]` with
    /// `}`.
    unsafe fn equal_folded(block: Self::Block, byte: u8) -> u64;
    /// Returns the mask of bytes below `byte`, unsigned, which is 1 to 127.
    unsafe fn below(block: Self::Block, byte: u8) -> u64;
    /// Returns the mask of bytes with their top bit set.
    unsafe fn high(block: Self::Block) -> u64;
    /// Returns the bitwise OR of two blocks.
    unsafe fn or(one: Self::Block, other: Self::Block) -> Self::Block;
    /// Returns the mask of bytes that are one of `{}[]:,` or a line end; `some` has all of these but commas
    /// and line ends.
    #[inline(always)]
    unsafe fn structural(block: Self::Block, some: u64) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { some | Self::equal(block, b',') | Self::equal(block, b'\n') }
    }
    /// Returns the prefix parity: bit `i` is the parity of the bits `0..=i`.
    unsafe fn parity(mask: u64) -> u64;
    /// Writes `base` plus the number of each set bit, in order. `out` must have room
    /// for 64, all of which may be written.
    unsafe fn positions(mask: u64, base: u32, out: *mut u32);
    /// Writes the bytes of the block at `bytes` whose bits are set, in order. `out`
    /// must have room for 64, all of which may be written.
    #[inline(always)]
    unsafe fn picked(bytes: *const u8, block: Self::Block, mask: u64, out: *mut u8) {
        let _ = block;
        // SAFETY: as the caller promises.
        unsafe { write_selected_bytes(bytes, mask, out) }
    }

    /// Loads eight masks.
    unsafe fn masks(words: &[u64; EIGHT]) -> Self::Masks;
    /// Stores eight masks to memory.
    unsafe fn write(masks: Self::Masks, out: &mut [u64; EIGHT]);
    /// Returns the bitwise AND.
    unsafe fn both(one: Self::Masks, other: Self::Masks) -> Self::Masks;
    /// Returns the bitwise OR.
    unsafe fn either(one: Self::Masks, other: Self::Masks) -> Self::Masks;
    /// Returns the bitwise exclusive OR.
    unsafe fn one_of(one: Self::Masks, other: Self::Masks) -> Self::Masks;
    /// Returns the bits of `one` that `other` does not have.
    unsafe fn without(one: Self::Masks, other: Self::Masks) -> Self::Masks;
    /// Moves each bit to the next byte; the first byte gets `carry`.
    unsafe fn before(masks: Self::Masks, carry: u64) -> Self::Masks;
    /// Turns the prefix parities of single blocks into those of consecutive ones: `inside` has all
    /// bits set if the first block begins inside. Also returns `inside` for the next eight blocks.
    unsafe fn carried(masks: Self::Masks, inside: u64) -> (Self::Masks, u64);
    /// Returns whether any bit is set.
    unsafe fn any(masks: Self::Masks) -> bool;
}

/// The operations on eight masks that need no instruction set.
macro_rules! plain_masks {
    () => {
        type Masks = [u64; $crate::simd::EIGHT];

        #[inline(always)]
        unsafe fn masks(words: &[u64; $crate::simd::EIGHT]) -> Self::Masks {
            *words
        }

        #[inline(always)]
        unsafe fn write(masks: Self::Masks, out: &mut [u64; $crate::simd::EIGHT]) {
            *out = masks;
        }

        #[inline(always)]
        unsafe fn both(one: Self::Masks, other: Self::Masks) -> Self::Masks {
            std::array::from_fn(|at| one[at] & other[at])
        }

        #[inline(always)]
        unsafe fn either(one: Self::Masks, other: Self::Masks) -> Self::Masks {
            std::array::from_fn(|at| one[at] | other[at])
        }

        #[inline(always)]
        unsafe fn one_of(one: Self::Masks, other: Self::Masks) -> Self::Masks {
            std::array::from_fn(|at| one[at] ^ other[at])
        }

        #[inline(always)]
        unsafe fn without(one: Self::Masks, other: Self::Masks) -> Self::Masks {
            std::array::from_fn(|at| one[at] & !other[at])
        }

        #[inline(always)]
        unsafe fn before(masks: Self::Masks, carry: u64) -> Self::Masks {
            std::array::from_fn(|at| {
                let last = if at == 0 { carry } else { masks[at - 1] >> 63 };
                (masks[at] << 1) | last
            })
        }

        #[inline(always)]
        unsafe fn carried(masks: Self::Masks, mut inside: u64) -> (Self::Masks, u64) {
            let masks = masks.map(|mask| {
                let mask = mask ^ inside;
                // Copies the last bit to every bit.
                inside = (mask.cast_signed() >> 63).cast_unsigned();
                mask
            });
            (masks, inside)
        }

        #[inline(always)]
        unsafe fn any(masks: Self::Masks) -> bool {
            masks.iter().fold(0, |all, mask| all | mask) != 0
        }
    };
}
pub(crate) use plain_masks;

/// Defines a function that calls a scanner compiled for the best instruction set of the processor.
///
/// `dispatch!(function(argument: Type, …) -> Result => generic)` defines a module-level function
/// `function`, which calls the generic function `generic::<Isa>`.
macro_rules! dispatch {
    ($(#[$attr:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $out:ty => $generic:ident) => {
        $(#[$attr])*
        #[inline]
        fn $name($($arg: $type),*) -> $out {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn avx512($($arg: $type),*) -> $out {
                    // SAFETY: called only if the processor has these.
                    unsafe { $generic::<$crate::simd::Avx512>($($arg),*) }
                }
                #[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn avx2($($arg: $type),*) -> $out {
                    // SAFETY: called only if the processor has these.
                    unsafe { $generic::<$crate::simd::Avx2>($($arg),*) }
                }
                match $crate::simd::level() {
                    // SAFETY: `level` has asked the processor.
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
            // SAFETY: the portable one needs nothing of the processor.
            #[allow(unreachable_code)]
            unsafe { $generic::<$crate::simd::Portable>($($arg),*) }
        }
    };
}
pub(crate) use dispatch;

/// The instruction sets that the scanners distinguish on x86-64.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// AVX-512 with byte operations and VBMI2: Ice Lake, Zen 4 and later.
    Avx512,
    /// AVX2 with carry-less multiplication: Haswell, Zen and later.
    Avx2,
    /// Any other processor.
    Portable,
}

/// Returns the best instruction set of this processor.
///
/// `TIDEMILL_SIMD=avx2|portable` lowers it, to measure its benefit or to rule it out as a cause.
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

/// Parses integers of up to eight characters from the front of `spans`, several at a time, as far
/// as this processor can; returns how many it wrote to `out`.
#[inline]
pub(crate) fn parse_ints(text: &[u8], spans: &[ValueSpan], out: &mut [MaybeUninit<i64>]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level() == Level::Avx512 {
        // SAFETY: the processor was asked.
        return unsafe { avx512::parse_ints::<false>(text, spans, out) };
    }
    let _ = (text, spans, out);
    0
}

/// Parses [canonical](crate::canonical_spelling) integers as [`parse_ints`] parses integers.
#[inline]
pub(crate) fn parse_canonical_ints(
    text: &[u8],
    spans: &[ValueSpan],
    out: &mut [MaybeUninit<i64>],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level() == Level::Avx512 {
        // SAFETY: the processor was asked.
        return unsafe { avx512::parse_ints::<true>(text, spans, out) };
    }
    let _ = (text, spans, out);
    0
}

/// Parses [canonical](crate::canonical_spelling) floats as [`parse_floats`] parses floats.
#[inline]
pub(crate) fn parse_canonical_floats(
    text: &[u8],
    spans: &[ValueSpan],
    out: &mut [MaybeUninit<f64>],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level() == Level::Avx512 {
        // SAFETY: the processor was asked.
        return unsafe { avx512::parse_floats::<true>(text, spans, out) };
    }
    let _ = (text, spans, out);
    0
}

/// Parses floats of up to eight characters in plain notation, as [`parse_ints`] parses integers.
#[inline]
pub(crate) fn parse_floats(
    text: &[u8],
    spans: &[ValueSpan],
    out: &mut [MaybeUninit<f64>],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level() == Level::Avx512 {
        // SAFETY: the processor was asked.
        return unsafe { avx512::parse_floats::<false>(text, spans, out) };
    }
    let _ = (text, spans, out);
    0
}

/// Writes the spans between two consecutive entries of `index`, the first of which is at
/// `first`, and at each `stride`-th from there on, several at a time, as far as this
/// processor can; returns how many it wrote to `out`. An entry before the text is `u32::MAX`.
#[inline]
pub(crate) fn spans_between_entries(
    index: &[u32],
    first: usize,
    stride: usize,
    out: &mut [MaybeUninit<ValueSpan>],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level() == Level::Avx512 {
        // SAFETY: the processor was asked.
        return unsafe { avx512::spans_between_entries(index, first, stride, out) };
    }
    let _ = (index, first, stride, out);
    0
}

/// Writes the spans of JSON scalars, several at a time, as far as this processor can; returns how many
/// it wrote to `out`. The scalars stand between two consecutive entries of `index`, the first
/// of which is at `first`, and at each `stride`-th from there on. The function accepts strings without
/// backslashes, and numbers of up to eight digits with or without a point, if no
/// white space surrounds them.
#[inline]
pub(crate) fn scalar_spans(
    text: &[u8],
    index: &[u32],
    first: usize,
    stride: usize,
    out: &mut [MaybeUninit<ValueSpan>],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level() == Level::Avx512 {
        // SAFETY: the processor was asked.
        return unsafe { avx512::scalar_spans(text, index, first, stride, out) };
    }
    let _ = (text, index, first, stride, out);
    0
}

/// Returns the name of the instruction set that this process uses: `avx512`, `avx2`, `neon` or
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

/// Returns the prefix parity of a mask without a special instruction: bit `i` is the parity of the bits
/// `0..=i`.
#[inline(always)]
fn parity_by_shifts(mut mask: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        mask ^= mask << shift;
    }
    mask
}

/// Writes the positions of the set bits: peels them off one by one, eight to a branch.
///
/// # Safety
/// `out` must have room for 64.
#[inline(always)]
unsafe fn positions_by_bits(mut mask: u64, base: u32, out: *mut u32) {
    let count = mask.count_ones() as usize;
    let mut at = 0;
    while at < count {
        for lane in 0..8 {
            // SAFETY: at most 64 bits are set and groups of eight end at 64.
            unsafe { out.add(at + lane).write(base + mask.trailing_zeros()) };
            // An empty mask stays empty.
            mask &= mask.wrapping_sub(1);
        }
        at += 8;
    }
}

/// Writes the bytes at the set bits.
///
/// # Safety
/// 64 bytes must be readable at `bytes`, and `out` must have room for 64.
#[inline(always)]
unsafe fn write_selected_bytes(bytes: *const u8, mut mask: u64, out: *mut u8) {
    let count = mask.count_ones() as usize;
    let mut at = 0;
    while at < count {
        for lane in 0..8 {
            // SAFETY: as above; for an empty mask, the last byte is written but never read.
            unsafe {
                let byte = *bytes.add(mask.trailing_zeros() as usize & (BLOCK_BYTES - 1));
                out.add(at + lane).write(byte);
            }
            mask &= mask.wrapping_sub(1);
        }
        at += 8;
    }
}

/// Returns the mask of bytes that a backslash escapes. `carry` is 1 if the first
/// byte of the block is escaped; the function sets it for the next block.
#[inline(always)]
pub(crate) fn find_escaped_bytes(backslashes: u64, carry: &mut u64) -> u64 {
    if backslashes == 0 {
        return std::mem::take(carry);
    }
    // A backslash that is itself escaped escapes nothing. Subtracting the starts of runs from
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
