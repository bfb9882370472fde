//! The AVX2 implementation: two registers of 32 bytes.

use std::arch::x86_64::{
    __m256i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_set1_epi8,
    _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
    _mm256_set1_epi8,
};

use super::{Isa, plain_masks, positions_by_bits};

/// 256-bit vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2;

#[inline(always)]
unsafe fn bits(low: __m256i, high: __m256i) -> u64 {
    // SAFETY: only called where there is AVX2.
    let (low, high) = unsafe { (_mm256_movemask_epi8(low), _mm256_movemask_epi8(high)) };
    u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
}

// SAFETY of everything below: the caller guarantees that the processor has AVX2 and PCLMULQDQ.
impl Isa for Avx2 {
    type Block = (__m256i, __m256i);
    plain_masks!();

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self::Block {
        unsafe { (_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(32).cast())) }
    }

    #[inline(always)]
    unsafe fn equal((low, high): Self::Block, byte: u8) -> u64 {
        unsafe {
            let wanted = _mm256_set1_epi8(byte.cast_signed());
            bits(_mm256_cmpeq_epi8(low, wanted), _mm256_cmpeq_epi8(high, wanted))
        }
    }

    #[inline(always)]
    unsafe fn equal_folded((low, high): Self::Block, byte: u8) -> u64 {
        unsafe {
            let fold = _mm256_set1_epi8(0x20);
            Self::equal((_mm256_or_si256(low, fold), _mm256_or_si256(high, fold)), byte)
        }
    }

    #[inline(always)]
    unsafe fn below((low, high): Self::Block, byte: u8) -> u64 {
        unsafe {
            let limit = _mm256_set1_epi8((byte - 1).cast_signed());
            bits(
                _mm256_cmpeq_epi8(_mm256_min_epu8(low, limit), low),
                _mm256_cmpeq_epi8(_mm256_min_epu8(high, limit), high),
            )
        }
    }

    #[inline(always)]
    unsafe fn high((low, high): Self::Block) -> u64 {
        unsafe { bits(low, high) }
    }

    #[inline(always)]
    unsafe fn or(one: Self::Block, other: Self::Block) -> Self::Block {
        unsafe { (_mm256_or_si256(one.0, other.0), _mm256_or_si256(one.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn parity(mask: u64) -> u64 {
        unsafe {
            let product =
                _mm_clmulepi64_si128::<0>(_mm_set_epi64x(0, mask.cast_signed()), _mm_set1_epi8(-1));
            _mm_cvtsi128_si64(product).cast_unsigned()
        }
    }

    #[inline(always)]
    unsafe fn positions(mask: u64, base: u32, out: *mut u32) {
        unsafe { positions_by_bits(mask, base, out) }
    }
}
