//! MurmurHash3, x64 variant, low 64 of its 128 bits: the hash that users of the HyperLogLog storage
//! specification have agreed on.
//!
//! Sketches of two writers can only merge if both use the same hash, so the function is part of the
//! format. postgresql-hll hashes an integer as its little-endian bytes with seed 0 and keeps the
//! low half of the 128 bits; java-hll's users do the same through Guava.
//!
//! ```text
//! key   ├── 16 bytes: k1 k2 ──┼── 16 bytes: k1 k2 ──┼── tail, 0 to 15 bytes ──┤
//! state h1 = h2 = seed; each block is mixed into both; the length is folded in last
//! ```
//!
//! Source: Austin Appleby, `MurmurHash3.cpp`, `MurmurHash3_x64_128` (public domain). The
//! original takes a seed of 32 bits; this version also accepts a wider one and uses all of it.

use crate::simd::run_vectorized;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// Returns the low 64 bits of MurmurHash3 x64 128 of `bytes`. Sketches use seed 0.
///
/// Cost: about 3 ns for a short key, plus some 0.3 ns a byte.
///
/// ```
/// use tidemill_sketch::{hash_bytes, hash_i64};
/// assert_eq!(hash_bytes(b"", 0), 0);
/// assert_eq!(hash_bytes(&7i64.to_le_bytes(), 0), hash_i64(7));
/// ```
#[inline]
#[must_use]
pub fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    let (mut h1, mut h2) = (seed, seed);
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let (k1, k2) = split_halves(block);
        h1 ^= mix_k1(k1);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix_k2(k2);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    if !tail.is_empty() {
        // A missing byte counts as zero, and mixing in zero leaves the state unchanged.
        let (k1, k2) = padded_halves(tail);
        h1 ^= mix_k1(k1);
        h2 ^= mix_k2(k2);
    }
    finalize(h1, h2, bytes.len() as u64)
}

/// Returns the hash of an integer: [`hash_bytes`] of its eight little-endian bytes, seed 0.
///
/// Integers of any width are widened to 64 bits first, so that equal values in columns of
/// different widths have equal hashes. Cost: about 2 ns.
///
/// ```
/// assert_eq!(tidemill_sketch::hash_i64(0), 0x28df_63b7_cc57_c3cb);
/// ```
#[inline(always)]
#[must_use]
pub fn hash_i64(value: i64) -> u64 {
    finalize(mix_k1(value.cast_unsigned()), 0, 8)
}

/// Returns the hash of a float: [`hash_bytes`] of its eight little-endian bytes, seed 0. −0.0 hashes as 0.0,
/// and all NaNs hash alike.
///
/// ```
/// use tidemill_sketch::hash_f64;
/// assert_eq!(hash_f64(-0.0), hash_f64(0.0));
/// assert_eq!(hash_f64(f64::NAN), hash_f64(-f64::NAN));
/// ```
#[inline]
#[must_use]
pub fn hash_f64(value: f64) -> u64 {
    let value = if value.is_nan() { CANONICAL_NAN } else { value + 0.0 };
    finalize(mix_k1(value.to_bits()), 0, 8)
}

/// Returns the hashes of integers, each as [`hash_i64`] computes it, by vector code. Cost: about 1.3 ns each
/// with AVX2.
///
/// ```
/// use tidemill_sketch::{hash_i64, hash_i64s};
/// assert_eq!(hash_i64s(&[7, 8]), [hash_i64(7), hash_i64(8)]);
/// ```
#[must_use]
pub fn hash_i64s(values: &[i64]) -> Vec<u64> {
    let mut hashes = vec![0; values.len()];
    hash_i64s_into(values, &mut hashes);
    hashes
}

/// Hashes `values` into `hashes`, as many as both slices have.
#[inline(always)]
pub(crate) fn hash_i64s_into(values: &[i64], hashes: &mut [u64]) {
    run_vectorized(
        #[inline(always)]
        || {
            for (hash, value) in hashes.iter_mut().zip(values) {
                *hash = hash_i64(*value);
            }
        },
    );
}

/// The quiet NaN without sign or payload, independent of the platform.
const CANONICAL_NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

fn split_halves(block: &[u8; 16]) -> (u64, u64) {
    let whole = u128::from_le_bytes(*block);
    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    let low = whole as u64;
    (low, (whole >> 64) as u64)
}

/// Returns the halves of a block of less than 16 bytes, padded with zeros.
#[inline(always)]
fn padded_halves(bytes: &[u8]) -> (u64, u64) {
    // Loads of the first and the last bytes, which may overlap, instead of a loop over the length.
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let missing = 8 * (16 - bytes.len());
        #[expect(clippy::cast_possible_truncation, reason = "64 bits at most")]
        let k2 = u64::from_le_bytes(*last).checked_shr(missing as u32).unwrap_or(0);
        return (u64::from_le_bytes(*first), k2);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return (u64::from(first) | u64::from(last) << (8 * (bytes.len() - 4)), 0);
    }
    let byte = |at: usize| bytes.get(at).map_or(0, |byte| u64::from(*byte) << (8 * at));
    (byte(0) | byte(1) | byte(2), 0)
}

#[inline(always)]
fn mix_k1(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_k2(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

#[inline(always)]
fn finalize(mut h1: u64, mut h2: u64, length: u64) -> u64 {
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finalize_mix(h1).wrapping_add(finalize_mix(h2))
}

#[inline(always)]
pub(crate) fn finalize_mix(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specialised_hashes_equal_general_hash() {
        for value in [0, 1, -1, 42, i64::MIN, i64::MAX] {
            assert_eq!(hash_i64(value), hash_bytes(&value.to_le_bytes(), 0));
        }
        for value in [0.0, 1.5, f64::INFINITY, f64::MIN_POSITIVE] {
            assert_eq!(hash_f64(value), hash_bytes(&value.to_le_bytes(), 0));
        }
    }

    #[test]
    fn batch_hashes_equal_single_hashes() {
        for count in [0, 1, 7, 8, 9, 1000] {
            let values: Vec<i64> = (0..count).map(|n| n * n * n - 41 * n).collect();
            let alone: Vec<u64> = values.iter().map(|value| hash_i64(*value)).collect();
            assert_eq!(hash_i64s(&values), alone);
        }
    }

    #[test]
    fn short_block_is_padded_with_zeros() {
        let bytes: Vec<u8> = (1..=15).map(|byte| byte * 17).collect();
        for length in 0..=bytes.len() {
            let mut block = [0; 16];
            block[..length].copy_from_slice(&bytes[..length]);
            assert_eq!(padded_halves(&bytes[..length]), split_halves(&block), "{length}");
        }
    }

    /// Checks against values computed by Guava's and Appleby's programs.
    #[test]
    fn hashes_of_known_texts_match_other_implementations() {
        let check =
            |text: &str, expect: u64| assert_eq!(hash_bytes(text.as_bytes(), 0), expect, "{text}");
        check("hello", 0xcbd8_a7b3_41bd_9b02);
        check("hello, world", 0x342f_ac62_3a5e_bc8e);
        check("The quick brown fox jumps over the lazy dog", 0xe34b_bc7b_bc07_1b6c);
    }
}
