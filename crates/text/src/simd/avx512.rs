//! AVX-512 with VBMI2: one register of 64 bytes, and masks that are words.

use std::arch::x86_64::{
    __m512i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_set1_epi8,
    _mm512_add_epi32, _mm512_castsi512_si128, _mm512_cmpeq_epi8_mask, _mm512_cmplt_epu8_mask,
    _mm512_cvtepu8_epi32, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
    _mm512_maskz_compress_epi8, _mm512_movepi8_mask, _mm512_or_si512, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_storeu_si512,
};

use super::Isa;

/// 512-bit vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512;

/// The numbers of the bytes of a block.
#[allow(clippy::cast_possible_truncation)] // There are 64.
static NUMBERS: [u8; 64] = {
    let mut numbers = [0; 64];
    let mut at = 0;
    while at < 64 {
        numbers[at] = at as u8;
        at += 1;
    }
    numbers
};

// SAFETY of all that follows: the caller says that the processor has what is used.
impl Isa for Avx512 {
    type Block = __m512i;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self::Block {
        unsafe { _mm512_loadu_si512(at.cast()) }
    }

    #[inline(always)]
    unsafe fn equal(block: Self::Block, byte: u8) -> u64 {
        unsafe { _mm512_cmpeq_epi8_mask(block, _mm512_set1_epi8(byte.cast_signed())) }
    }

    #[inline(always)]
    unsafe fn equal_folded(block: Self::Block, byte: u8) -> u64 {
        unsafe { Self::equal(_mm512_or_si512(block, _mm512_set1_epi8(0x20)), byte) }
    }

    #[inline(always)]
    unsafe fn below(block: Self::Block, byte: u8) -> u64 {
        unsafe { _mm512_cmplt_epu8_mask(block, _mm512_set1_epi8(byte.cast_signed())) }
    }

    #[inline(always)]
    unsafe fn high(block: Self::Block) -> u64 {
        unsafe { _mm512_movepi8_mask(block) }
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
        unsafe {
            let numbers =
                _mm512_maskz_compress_epi8(mask, _mm512_loadu_si512(NUMBERS.as_ptr().cast()));
            let base = _mm512_set1_epi32(base.cast_signed());
            let wide = |quarter| _mm512_add_epi32(_mm512_cvtepu8_epi32(quarter), base);
            _mm512_storeu_si512(out.cast(), wide(_mm512_castsi512_si128(numbers)));
            let count = mask.count_ones();
            if count > 16 {
                let part = _mm512_extracti32x4_epi32::<1>(numbers);
                _mm512_storeu_si512(out.add(16).cast(), wide(part));
                if count > 32 {
                    let part = _mm512_extracti32x4_epi32::<2>(numbers);
                    _mm512_storeu_si512(out.add(32).cast(), wide(part));
                    let part = _mm512_extracti32x4_epi32::<3>(numbers);
                    _mm512_storeu_si512(out.add(48).cast(), wide(part));
                }
            }
        }
    }
}
