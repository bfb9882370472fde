//! The portable implementation: words of eight bytes.

use super::{BLOCK_BYTES, Isa, parity_by_shifts, plain_masks, positions_by_bits};

/// Words of 64 bits, without an instruction set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// Gathers the top bit of each byte into one bit per byte.
#[inline(always)]
fn gather_top_bits(tops: u64) -> u64 {
    (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[inline(always)]
fn mask_of_words(block: [u64; 8], tops: impl Fn(u64) -> u64) -> u64 {
    let mut mask = 0;
    for (index, word) in block.into_iter().enumerate() {
        mask |= gather_top_bits(tops(word)) << (8 * index);
    }
    mask
}

/// Returns the top bit of each byte that is zero.
#[inline(always)]
fn zero_byte_bits(word: u64) -> u64 {
    !(((word & LOW_BITS) + LOW_BITS) | word | LOW_BITS)
}

impl Isa for Portable {
    type Block = [u64; 8];
    plain_masks!();

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self::Block {
        // SAFETY: the caller has 64 bytes there.
        let bytes: [u8; BLOCK_BYTES] = unsafe { at.cast::<[u8; BLOCK_BYTES]>().read_unaligned() };
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }

    #[inline(always)]
    unsafe fn equal(block: Self::Block, byte: u8) -> u64 {
        let wanted = u64::from_le_bytes([byte; 8]);
        mask_of_words(block, |word| zero_byte_bits(word ^ wanted))
    }

    #[inline(always)]
    unsafe fn equal_folded(block: Self::Block, byte: u8) -> u64 {
        let wanted = u64::from_le_bytes([byte; 8]);
        mask_of_words(block, |word| zero_byte_bits((word | 0x2020_2020_2020_2020) ^ wanted))
    }

    #[inline(always)]
    unsafe fn below(block: Self::Block, byte: u8) -> u64 {
        // Adding 128 - `byte` to the low seven bits sets the top bit of every byte that is not below.
        let add = u64::from_le_bytes([128 - byte; 8]);
        mask_of_words(block, |word| !(((word & LOW_BITS) + add) | word | LOW_BITS))
    }

    #[inline(always)]
    unsafe fn high(block: Self::Block) -> u64 {
        mask_of_words(block, |word| word & !LOW_BITS)
    }

    #[inline(always)]
    unsafe fn or(mut one: Self::Block, other: Self::Block) -> Self::Block {
        one.iter_mut().zip(other).for_each(|(one, other)| *one |= other);
        one
    }

    #[inline(always)]
    unsafe fn parity(mask: u64) -> u64 {
        parity_by_shifts(mask)
    }

    #[inline(always)]
    unsafe fn positions(mask: u64, base: u32, out: *mut u32) {
        // SAFETY: as the caller promises.
        unsafe { positions_by_bits(mask, base, out) }
    }
}
