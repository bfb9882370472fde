//! The AVX-512 implementation with VBMI2: one register of 64 bytes, and masks that are words.

use std::arch::x86_64::{
    __m512i, __mmask8, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_set1_epi8,
    _mm512_add_epi32, _mm512_add_epi64, _mm512_alignr_epi64, _mm512_and_si512, _mm512_andnot_si512,
    _mm512_castpd_si512, _mm512_castsi512_si128, _mm512_cmpeq_epi8_mask, _mm512_cmpeq_epi64_mask,
    _mm512_cmpgt_epu8_mask, _mm512_cmpgt_epu64_mask, _mm512_cmplt_epi64_mask,
    _mm512_cmplt_epu8_mask, _mm512_cvtepi32_pd, _mm512_cvtepi64_epi32, _mm512_cvtepu8_epi32,
    _mm512_div_pd, _mm512_extracti32x4_epi32, _mm512_i64gather_epi64, _mm512_loadu_si512,
    _mm512_lzcnt_epi64, _mm512_madd_epi16, _mm512_maddubs_epi16, _mm512_mask_srli_epi64,
    _mm512_mask_sub_epi64, _mm512_mask_xor_epi64, _mm512_maskz_compress_epi8, _mm512_movepi8_mask,
    _mm512_movm_epi8, _mm512_mul_epu32, _mm512_or_si512, _mm512_permutexvar_epi8,
    _mm512_permutexvar_pd, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32,
    _mm512_set1_epi64, _mm512_setr_epi64, _mm512_setr_pd, _mm512_setzero_si512, _mm512_shldi_epi64,
    _mm512_slli_epi64, _mm512_sllv_epi64, _mm512_srli_epi64, _mm512_srlv_epi64,
    _mm512_storeu_si512, _mm512_sub_epi8, _mm512_sub_epi64, _mm512_test_epi64_mask,
    _mm512_xor_si512,
};

use std::mem::MaybeUninit;

use super::{EIGHT, Isa};
use crate::value_span::ValueSpan;

/// 512-bit vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512;

/// The numbers of the bytes in a block.
#[allow(clippy::cast_possible_truncation)] // There are 64 numbers.
static BYTE_NUMBERS: [u8; 64] = {
    let mut numbers = [0; 64];
    let mut at = 0;
    while at < 64 {
        numbers[at] = at as u8;
        at += 1;
    }
    numbers
};

/// The structural characters of JSON at the index of their lower six bits, which all differ. All other
/// places hold a byte with other lower bits than its index.
static STRUCTURAL_BY_LOW_BITS: [u8; 64] = {
    let mut found = [0; 64];
    found[0] = 1;
    let (characters, mut at) = (b"{}[]:,\n", 0);
    while at < characters.len() {
        found[characters[at] as usize % 64] = characters[at];
        at += 1;
    }
    found
};

// SAFETY of everything below: the caller guarantees that the processor has the instructions used.
impl Isa for Avx512 {
    type Block = __m512i;
    type Masks = __m512i;

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
    unsafe fn or(one: Self::Block, other: Self::Block) -> Self::Block {
        unsafe { _mm512_or_si512(one, other) }
    }

    #[inline(always)]
    unsafe fn structural(block: Self::Block, _: u64) -> u64 {
        unsafe {
            // A lookup by the lower six bits returns a structural character unchanged.
            let found = _mm512_permutexvar_epi8(
                block,
                _mm512_loadu_si512(STRUCTURAL_BY_LOW_BITS.as_ptr().cast()),
            );
            _mm512_cmpeq_epi8_mask(found, block)
        }
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
                _mm512_maskz_compress_epi8(mask, _mm512_loadu_si512(BYTE_NUMBERS.as_ptr().cast()));
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

    #[inline(always)]
    unsafe fn masks(words: &[u64; EIGHT]) -> Self::Masks {
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    unsafe fn write(masks: Self::Masks, out: &mut [u64; EIGHT]) {
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), masks) }
    }

    #[inline(always)]
    unsafe fn both(one: Self::Masks, other: Self::Masks) -> Self::Masks {
        unsafe { _mm512_and_si512(one, other) }
    }

    #[inline(always)]
    unsafe fn either(one: Self::Masks, other: Self::Masks) -> Self::Masks {
        unsafe { _mm512_or_si512(one, other) }
    }

    #[inline(always)]
    unsafe fn one_of(one: Self::Masks, other: Self::Masks) -> Self::Masks {
        unsafe { _mm512_xor_si512(one, other) }
    }

    #[inline(always)]
    unsafe fn without(one: Self::Masks, other: Self::Masks) -> Self::Masks {
        unsafe { _mm512_andnot_si512(other, one) }
    }

    #[inline(always)]
    unsafe fn before(masks: Self::Masks, carry: u64) -> Self::Masks {
        unsafe {
            let carry = _mm512_set1_epi64((carry << 63).cast_signed());
            _mm512_shldi_epi64::<1>(masks, _mm512_alignr_epi64::<7>(masks, carry))
        }
    }

    #[inline(always)]
    unsafe fn carried(masks: Self::Masks, inside: u64) -> (Self::Masks, u64) {
        unsafe {
            let odd = _mm512_cmplt_epi64_mask(masks, _mm512_setzero_si512());
            let mut parity = odd ^ (odd << 1);
            parity ^= parity << 2;
            parity ^= parity << 4;
            let inside_first = (inside & 0xff) as u8;
            let before = (parity << 1) ^ inside_first;
            let masks = _mm512_mask_xor_epi64(masks, before, masks, _mm512_set1_epi64(-1));
            let inside = inside ^ i64::from(parity.cast_signed() >> 7).cast_unsigned();
            (masks, inside)
        }
    }

    #[inline(always)]
    unsafe fn any(masks: Self::Masks) -> bool {
        unsafe { _mm512_test_epi64_mask(masks, masks) != 0 }
    }

    #[inline(always)]
    unsafe fn picked(_: *const u8, block: Self::Block, mask: u64, out: *mut u8) {
        unsafe { _mm512_storeu_si512(out.cast(), _mm512_maskz_compress_epi8(mask, block)) }
    }
}

/// Eight words of digits, one for each of eight spans.
struct EightNumberWords {
    /// The characters after a minus, aligned to the words' ends, with zeros before them.
    words: __m512i,
    /// Number of bits that these characters take.
    digit_bits: __m512i,
    /// Mask of those that begin with a minus.
    minus_mask: __mmask8,
    /// Mask of those that begin with a zero, after a minus.
    leading_zero_mask: __mmask8,
    /// Mask of those of a single character.
    single_char_mask: __mmask8,
    /// Mask of those with a point as the second character after a minus.
    second_point_mask: __mmask8,
}

/// Loads the words of eight spans. Returns `None` unless each span has one to eight characters, at least one
/// besides a minus, and eight bytes of the text after its start.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn load_eight_words(text: &[u8], spans: &[ValueSpan; 8]) -> Option<EightNumberWords> {
    let last_start = text.len().checked_sub(8)?;
    let last_start = _mm512_set1_epi64(i64::try_from(last_start).unwrap_or(i64::MAX));
    // SAFETY: a span is two words of 32 bits, the start in the lower half of 64.
    let pairs = unsafe { _mm512_loadu_si512(spans.as_ptr().cast()) };
    let starts = _mm512_and_si512(pairs, _mm512_set1_epi64(0xffff_ffff));
    let lengths = _mm512_srli_epi64::<32>(pairs);
    // Nulls and escaped spans are longer; the length of an empty one wraps and becomes longer too.
    let over = _mm512_cmpgt_epu64_mask(
        _mm512_sub_epi64(lengths, _mm512_set1_epi64(1)),
        _mm512_set1_epi64(7),
    );
    if over | _mm512_cmpgt_epu64_mask(starts, last_start) != 0 {
        return None;
    }
    // SAFETY: the code above has checked every start.
    let words = unsafe { _mm512_i64gather_epi64::<1>(starts, text.as_ptr().cast()) };
    // This removes a minus, and with it one character; a lone minus leaves none, which is no number.
    let first = _mm512_and_si512(words, _mm512_set1_epi64(0xff));
    let minus = _mm512_cmpeq_epi64_mask(first, _mm512_set1_epi64(i64::from(b'-')));
    let words = _mm512_mask_srli_epi64::<8>(words, minus, words);
    let lengths = _mm512_mask_sub_epi64(lengths, minus, lengths, _mm512_set1_epi64(1));
    if _mm512_cmpeq_epi64_mask(lengths, _mm512_setzero_si512()) != 0 {
        return None;
    }
    let byte = |words, value: u8| {
        let low = _mm512_and_si512(words, _mm512_set1_epi64(0xff));
        _mm512_cmpeq_epi64_mask(low, _mm512_set1_epi64(i64::from(value)))
    };
    let zero = byte(words, b'0');
    let second_point = byte(_mm512_srli_epi64::<8>(words), b'.');
    let single = _mm512_cmpeq_epi64_mask(lengths, _mm512_set1_epi64(1));
    let bits = _mm512_slli_epi64::<3>(lengths);
    // Shifts by 64 bits and more leave zero.
    let words = _mm512_sllv_epi64(words, _mm512_sub_epi64(_mm512_set1_epi64(64), bits));
    let zeros = _mm512_set1_epi8(b'0'.cast_signed());
    let words = _mm512_or_si512(words, _mm512_srlv_epi64(zeros, bits));
    Some(EightNumberWords {
        words,
        digit_bits: bits,
        minus_mask: minus,
        leading_zero_mask: zero,
        single_char_mask: single,
        second_point_mask: second_point,
    })
}

/// Returns the numbers that eight words of eight digits each write; `None` if a byte is not a digit.
/// Multiplications add up pairs, fours and eights of digits.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn parse_eight_numbers(words: __m512i) -> Option<__m512i> {
    let digits = _mm512_sub_epi8(words, _mm512_set1_epi8(b'0'.cast_signed()));
    if _mm512_cmpgt_epu8_mask(digits, _mm512_set1_epi8(9)) != 0 {
        return None;
    }
    let twos = _mm512_maddubs_epi16(digits, _mm512_set1_epi16(0x010a));
    let fours = _mm512_madd_epi16(twos, _mm512_set1_epi32(0x0001_0064));
    Some(_mm512_add_epi64(
        _mm512_mul_epu32(fours, _mm512_set1_epi64(10_000)),
        _mm512_srli_epi64::<32>(fours),
    ))
}

/// Parses integers of up to eight characters, eight at a time, from the front of the spans; returns their
/// number. Stops before the first eight that are not all such integers, or, if
/// `CANONICAL`, not all [canonical](crate::canonical_spelling).
///
/// # Safety
/// The processor must have AVX-512 with byte operations.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) unsafe fn parse_ints<const CANONICAL: bool>(
    text: &[u8],
    spans: &[ValueSpan],
    out: &mut [MaybeUninit<i64>],
) -> usize {
    let mut count = 0;
    for (eight_spans, places) in spans.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<8>().0) {
        let Some(EightNumberWords {
            words,
            minus_mask: minus,
            leading_zero_mask: zero,
            single_char_mask: single,
            ..
        }) = load_eight_words(text, eight_spans)
        else {
            break;
        };
        // A canonical zero has no sign and no further digits.
        if CANONICAL && zero & (minus | !single) != 0 {
            break;
        }
        let Some(numbers) = parse_eight_numbers(words) else { break };
        let values = _mm512_mask_sub_epi64(numbers, minus, _mm512_setzero_si512(), numbers);
        // SAFETY: there is room for eight values.
        unsafe { _mm512_storeu_si512(places.as_mut_ptr().cast(), values) };
        count += 8;
    }
    count
}

/// Parses floats the same way: digits, possibly with a point among them. It removes the point, moves the
/// digits before it up by one, and divides the number by the power of ten. If `CANONICAL`, it stops
/// before the first eight that are not all [canonical](crate::canonical_spelling).
///
/// # Safety
/// The processor must have AVX-512 with byte operations and conflict detection.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512cd")]
pub(crate) unsafe fn parse_floats<const CANONICAL: bool>(
    text: &[u8],
    spans: &[ValueSpan],
    out: &mut [MaybeUninit<f64>],
) -> usize {
    let mut count = 0;
    let powers = _mm512_setr_pd(1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7);
    for (eight_spans, places) in spans.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<8>().0) {
        let Some(eight) = load_eight_words(text, eight_spans) else { break };
        let EightNumberWords {
            words,
            digit_bits: bits,
            minus_mask: minus,
            leading_zero_mask: zero,
            single_char_mask: single,
            second_point_mask: second_point,
        } = eight;
        // In a canonical float, a leading zero is followed by a point or nothing.
        if CANONICAL && zero & !(single | second_point) != 0 {
            break;
        }
        let points = _mm512_cmpeq_epi8_mask(words, _mm512_set1_epi8(b'.'.cast_signed()));
        // Number of bits of the decimals; 64 without a point.
        let decimals = _mm512_lzcnt_epi64(_mm512_movm_epi8(points));
        // The careful parser handles a leading or trailing point.
        let first = _mm512_sub_epi64(bits, _mm512_set1_epi64(8));
        let at_end = _mm512_cmpeq_epi64_mask(decimals, _mm512_setzero_si512())
            | _mm512_cmpeq_epi64_mask(decimals, first);
        if at_end != 0 {
            break;
        }
        // The bits from a point on, itself included; zero if there is no point.
        let below = _mm512_srlv_epi64(_mm512_set1_epi64(-1), decimals);
        let moved =
            _mm512_or_si512(_mm512_slli_epi64::<8>(words), _mm512_set1_epi64(i64::from(b'0')));
        let words =
            _mm512_or_si512(_mm512_andnot_si512(below, words), _mm512_and_si512(below, moved));
        let Some(numbers) = parse_eight_numbers(words) else { break };
        let numbers = _mm512_cvtepi32_pd(_mm512_cvtepi64_epi32(numbers));
        // Bits divided by eight are bytes; 64 gives eight, which selects the first power.
        let powers = _mm512_permutexvar_pd(_mm512_srli_epi64::<3>(decimals), powers);
        let values = _mm512_castpd_si512(_mm512_div_pd(numbers, powers));
        let signs = _mm512_set1_epi64(i64::MIN);
        let values = _mm512_mask_xor_epi64(values, minus, values, signs);
        // SAFETY: there is room for eight values.
        unsafe { _mm512_storeu_si512(places.as_mut_ptr().cast(), values) };
        count += 8;
    }
    count
}

/// Loads an entry of the index and the next one for each of eight rows; `None` if some are missing.
#[target_feature(enable = "avx512f")]
fn load_entry_pairs(index: &[u32], first: usize, stride: usize) -> Option<__m512i> {
    let step = i64::try_from(stride).ok()?;
    // Ranges over an entry and the next one, for eight rows.
    let entries = index.get(first..=first + 7 * stride + 1)?;
    let rows = _mm512_mul_epu32(_mm512_set1_epi64(step), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    // SAFETY: entries have 32 bits, and the slice reaches to the last one read.
    Some(unsafe { _mm512_i64gather_epi64::<4>(rows, entries.as_ptr().cast()) })
}

/// Writes the spans between entries of the index, eight at a time; returns their number.
///
/// # Safety
/// The processor must have AVX-512.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn spans_between_entries(
    index: &[u32],
    first: usize,
    stride: usize,
    out: &mut [MaybeUninit<ValueSpan>],
) -> usize {
    let mut count = 0;
    for places in out.as_chunks_mut::<8>().0 {
        let Some(pairs) = load_entry_pairs(index, first + count * stride, stride) else { break };
        let low = _mm512_set1_epi64(0xffff_ffff);
        // An entry before the text wraps to the text's beginning.
        let starts = _mm512_and_si512(_mm512_add_epi64(pairs, _mm512_set1_epi64(1)), low);
        let lengths = _mm512_sub_epi64(_mm512_srli_epi64::<32>(pairs), starts);
        let spans = _mm512_or_si512(starts, _mm512_slli_epi64::<32>(lengths));
        // SAFETY: a span is two words of 32 bits, the start first, and there is room for eight spans.
        unsafe { _mm512_storeu_si512(places.as_mut_ptr().cast(), spans) };
        count += 8;
    }
    count
}

/// Writes the spans of JSON scalars, eight at a time; returns their number. Stops before the first eight that
/// are neither all strings nor all short numbers.
///
/// # Safety
/// The processor must have AVX-512 with byte operations and conflict detection.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512cd")]
pub(crate) unsafe fn scalar_spans(
    text: &[u8],
    index: &[u32],
    first: usize,
    stride: usize,
    out: &mut [MaybeUninit<ValueSpan>],
) -> usize {
    let each = |number: i64| _mm512_set1_epi64(number);
    let Some(last_start) = text.len().checked_sub(8) else { return 0 };
    let last_start = each(i64::try_from(last_start).unwrap_or(i64::MAX));
    let quote = i64::from(b'"');
    let mut count = 0;
    for places in out.as_chunks_mut::<8>().0 {
        let Some(pairs) = load_entry_pairs(index, first + count * stride, stride) else { break };
        let one = each(1);
        let starts = _mm512_add_epi64(_mm512_and_si512(pairs, each(0xffff_ffff)), one);
        let ends = _mm512_srli_epi64::<32>(pairs);
        let lengths = _mm512_sub_epi64(ends, starts);
        // Eight bytes must be readable at each start and before each end.
        let out_of_reach = _mm512_cmpgt_epu64_mask(starts, last_start)
            | _mm512_cmpgt_epu64_mask(each(8), starts)
            | _mm512_cmpgt_epu64_mask(starts, ends);
        if out_of_reach != 0 {
            break;
        }
        // SAFETY: the code above has checked this.
        let words = unsafe { _mm512_i64gather_epi64::<1>(starts, text.as_ptr().cast()) };
        let byte = |words| _mm512_and_si512(words, each(0xff));
        let strings = _mm512_cmpeq_epi64_mask(byte(words), each(quote));
        let spans = if strings == 0xff {
            let last_words = _mm512_sub_epi64(ends, each(8));
            // SAFETY: as above: an end is not before its start.
            let last_words =
                unsafe { _mm512_i64gather_epi64::<1>(last_words, text.as_ptr().cast()) };
            let whole = _mm512_cmpeq_epi64_mask(_mm512_srli_epi64::<56>(last_words), each(quote))
                & _mm512_cmpgt_epu64_mask(lengths, one);
            if whole != 0xff {
                break;
            }
            let inner = _mm512_slli_epi64::<32>(_mm512_sub_epi64(lengths, each(2)));
            _mm512_or_si512(_mm512_add_epi64(starts, one), inner)
        } else {
            let minus = _mm512_cmpeq_epi64_mask(byte(words), each(i64::from(b'-')));
            let words = _mm512_mask_srli_epi64::<8>(words, minus, words);
            let digits = _mm512_mask_sub_epi64(lengths, minus, lengths, one);
            if _mm512_cmpgt_epu64_mask(_mm512_sub_epi64(digits, one), each(7)) != 0 {
                break;
            }
            let bits = _mm512_slli_epi64::<3>(digits);
            let ones = _mm512_srlv_epi64(each(-1), _mm512_sub_epi64(each(64), bits));
            // Zeros after the digits.
            let zeros = _mm512_set1_epi8(b'0'.cast_signed());
            let own =
                _mm512_or_si512(_mm512_and_si512(words, ones), _mm512_andnot_si512(ones, zeros));
            let point = _mm512_set1_epi8(b'.'.cast_signed());
            let points = _mm512_cmpeq_epi8_mask(own, point);
            let others = _mm512_cmpgt_epu8_mask(_mm512_sub_epi8(own, zeros), _mm512_set1_epi8(9));
            if others & !points != 0 {
                break;
            }
            // A leading zero must be followed by a point or the end.
            let second = byte(_mm512_srli_epi64::<8>(words));
            let is_zero = _mm512_cmpeq_epi64_mask(byte(own), each(i64::from(b'0')))
                & _mm512_cmpgt_epu64_mask(digits, one)
                & !_mm512_cmpeq_epi64_mask(second, each(i64::from(b'.')));
            if is_zero != 0 {
                break;
            }
            if points != 0 {
                // There must be one point, neither first nor last.
                let points = _mm512_movm_epi8(points);
                let behind = _mm512_lzcnt_epi64(points);
                let more = _mm512_sllv_epi64(points, _mm512_add_epi64(behind, each(8)));
                let at_end = _mm512_cmpeq_epi64_mask(_mm512_add_epi64(behind, bits), each(64))
                    | _mm512_cmpeq_epi64_mask(behind, each(56))
                    | _mm512_test_epi64_mask(more, more);
                if at_end != 0 {
                    break;
                }
            }
            _mm512_or_si512(starts, _mm512_slli_epi64::<32>(lengths))
        };
        // SAFETY: a span is two words of 32 bits, the start first, and there is room for eight spans.
        unsafe { _mm512_storeu_si512(places.as_mut_ptr().cast(), spans) };
        count += 8;
    }
    count
}
