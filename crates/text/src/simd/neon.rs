//! The NEON implementation: four registers of 16 bytes.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vceqq_u8, vcltq_u8, vdupq_n_u8, vgetq_lane_u64, vld1q_u8, vorrq_u8,
    vpaddq_u8, vreinterpretq_s8_u8, vreinterpretq_u8_s8, vreinterpretq_u64_u8, vshrq_n_s8,
};

use super::{Isa, parity_by_shifts, plain_masks, positions_by_bits};

/// 128-bit vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neon;

static WEIGHTS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// Returns one bit for each byte, all of whose bits are equal.
#[inline(always)]
unsafe fn bits(parts: [uint8x16_t; 4]) -> u64 {
    // SAFETY: NEON is part of every aarch64.
    unsafe {
        let weights = vld1q_u8(WEIGHTS.as_ptr());
        let [a, b, c, d] = parts;
        let low = vpaddq_u8(vandq_u8(a, weights), vandq_u8(b, weights));
        let high = vpaddq_u8(vandq_u8(c, weights), vandq_u8(d, weights));
        let sums = vpaddq_u8(low, high);
        vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
    }
}

// SAFETY of everything below: NEON is part of every aarch64.
impl Isa for Neon {
    type Block = [uint8x16_t; 4];
    plain_masks!();

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self::Block {
        unsafe { [vld1q_u8(at), vld1q_u8(at.add(16)), vld1q_u8(at.add(32)), vld1q_u8(at.add(48))] }
    }

    #[inline(always)]
    unsafe fn equal(block: Self::Block, byte: u8) -> u64 {
        unsafe {
            let wanted = vdupq_n_u8(byte);
            bits(block.map(|part| vceqq_u8(part, wanted)))
        }
    }

    #[inline(always)]
    unsafe fn equal_folded(block: Self::Block, byte: u8) -> u64 {
        unsafe {
            let fold = vdupq_n_u8(0x20);
            Self::equal(block.map(|part| vorrq_u8(part, fold)), byte)
        }
    }

    #[inline(always)]
    unsafe fn below(block: Self::Block, byte: u8) -> u64 {
        unsafe {
            let limit = vdupq_n_u8(byte);
            bits(block.map(|part| vcltq_u8(part, limit)))
        }
    }

    #[inline(always)]
    unsafe fn high(block: Self::Block) -> u64 {
        unsafe {
            bits(block.map(|part| vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(part)))))
        }
    }

    #[inline(always)]
    unsafe fn or([a, b, c, d]: Self::Block, [e, f, g, h]: Self::Block) -> Self::Block {
        unsafe { [vorrq_u8(a, e), vorrq_u8(b, f), vorrq_u8(c, g), vorrq_u8(d, h)] }
    }

    #[inline(always)]
    unsafe fn parity(mask: u64) -> u64 {
        parity_by_shifts(mask)
    }

    #[inline(always)]
    unsafe fn positions(mask: u64, base: u32, out: *mut u32) {
        unsafe { positions_by_bits(mask, base, out) }
    }
}
