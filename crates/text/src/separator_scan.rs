//! Scan for separators outside quotes, which gives the positions where fields end in one pass.
//!
//! [`scan_separators`] is the part that all formats with separators share: for each sixty-four bytes
//! it asks the format for the mask of separators ([`SeparatorScan`]) and writes their positions.
//! [`SeparatorIndex`] is what formats of words with spaces between them share, the pieces of an access log
//! and the pairs of logfmt: quotes that are escaped by `\` and stand only where a word begins
//! and ends, and windows of whole lines.

use crate::block_decoder::WINDOW_BYTES;
use crate::simd::{BLOCK_BYTES, Isa, dispatch, find_escaped_bytes};

/// The state of a format's scan: the masks that it computes for a block of 64 bytes, the carry from one block
/// to the next, and the features found so far.
pub(crate) trait SeparatorScan: Copy {
    /// Returns the mask of the block's separators. `real` masks the bytes that exist: after the text
    /// the block has zeros.
    ///
    /// # Safety
    /// The processor must have the instruction set.
    unsafe fn find_separators<I: Isa>(&mut self, block: I::Block, real: u64) -> u64;
}

/// Appends the positions of the separators in `from..to` of the text to `out`.
///
/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
pub(crate) unsafe fn scan_separators<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    look: &mut impl SeparatorScan,
    out: &mut Vec<u32>,
) {
    let to = to.min(text.len());
    // A local copy stays in registers.
    let mut state = *look;
    // Every byte may be a separator, and the last write may cover a whole block more.
    out.reserve(to.saturating_sub(from) + 2 * BLOCK_BYTES);
    let mut count = out.len();
    let mut at = from;
    while at < to {
        let mut padded = [0; BLOCK_BYTES];
        // SAFETY: 64 bytes are readable: of the text, or of a copy padded with zeros, which
        // are not special bytes.
        let block = unsafe {
            if at + BLOCK_BYTES <= to {
                I::load(text.as_ptr().add(at))
            } else {
                padded[..to - at].copy_from_slice(&text[at..to]);
                I::load(padded.as_ptr())
            }
        };
        let real = if to - at >= BLOCK_BYTES { u64::MAX } else { (1 << (to - at)) - 1 };
        // SAFETY: as the caller promises; `reserve` made room above.
        unsafe {
            let separators = state.find_separators::<I>(block, real);
            I::positions(separators, at as u32, out.as_mut_ptr().add(count));
            count += separators.count_ones() as usize;
        }
        at += BLOCK_BYTES;
    }
    // SAFETY: the loop wrote `count` positions.
    unsafe { out.set_len(count) };
    *look = state;
}

/// State of a word scan after a stretch of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WordScanState {
    /// All bits set inside quotes; else zero.
    in_quotes: u64,
    /// 1 if the next byte is escaped.
    next_is_escaped: u64,
    /// 1 if a quote may open here, where a word or a value begins.
    quote_may_open: u64,
    /// 1 if the last byte was a closing quote.
    quote_closed_last: u64,
    /// 1 if the last byte was a carriage return outside quotes.
    cr_last: u64,
    /// Nonzero if there was, in this order: a carriage return outside quotes; a byte that is not ASCII; a
    /// backslash; something irregular: a quote within a word, a line end in quotes, a lone
    /// carriage return.
    cr_bits: u64,
    non_ascii_bits: u64,
    backslash_bits: u64,
    irregular_bits: u64,
    line_count: usize,
}

/// The scan for words (`PAIRS` false: spaces separate, and a quote may open
/// after each) or for pairs (spaces and tabs separate, `=` separates too, and a quote may
/// open after it).
#[derive(Clone, Copy)]
struct WordScan<const PAIRS: bool>(WordScanState);

impl<const PAIRS: bool> SeparatorScan for WordScan<PAIRS> {
    #[inline(always)]
    unsafe fn find_separators<I: Isa>(&mut self, block: I::Block, real: u64) -> u64 {
        let state = &mut self.0;
        // SAFETY: as the caller promises.
        unsafe {
            let lines = I::equal(block, b'\n');
            let mut ends = I::equal(block, b' ') | lines;
            let mut equals = 0;
            if PAIRS {
                ends |= I::equal(block, b'\t');
                equals = I::equal(block, b'=');
            }
            let openers = if PAIRS { equals } else { ends };
            let backslashes = I::equal(block, b'\\');
            let all_quotes = I::equal(block, b'"');
            let quotes = all_quotes & !find_escaped_bytes(backslashes, &mut state.next_is_escaped);
            let within = I::parity(quotes) ^ state.in_quotes;
            let cr = I::equal(block, b'\r') & !within;
            let (opening, closing) = (quotes & within, quotes & !within);
            state.irregular_bits |= lines & within
                | opening & !((openers << 1) | state.quote_may_open)
                | real & ((closing << 1) | state.quote_closed_last) & !(ends | cr)
                | real & ((cr << 1) | state.cr_last) & !lines;
            if PAIRS {
                // Outside quotes `\` is an ordinary byte, but the scan took it for an escape.
                state.irregular_bits |= all_quotes & !quotes & !within;
            }
            state.in_quotes = (within.cast_signed() >> 63).cast_unsigned();
            state.quote_may_open = openers >> 63;
            state.quote_closed_last = closing >> 63;
            state.cr_last = cr >> 63;
            state.cr_bits |= cr;
            state.non_ascii_bits |= I::high(block);
            state.backslash_bits |= backslashes;
            state.line_count += lines.count_ones() as usize;
            (ends | equals) & !within
        }
    }
}

dispatch! {
    fn scan_words(text: &[u8], from: usize, to: usize, state: &mut WordScanState, out: &mut Vec<u32>) -> ()
        => scan_words_simd
}

dispatch! {
    fn scan_pairs(text: &[u8], from: usize, to: usize, state: &mut WordScanState, out: &mut Vec<u32>) -> ()
        => scan_pairs_simd
}

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
unsafe fn scan_words_simd<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    state: &mut WordScanState,
    out: &mut Vec<u32>,
) {
    let mut look = WordScan::<false>(*state);
    // SAFETY: as the caller promises.
    unsafe { scan_separators::<I>(text, from, to, &mut look, out) };
    *state = look.0;
}

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
unsafe fn scan_pairs_simd<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    state: &mut WordScanState,
    out: &mut Vec<u32>,
) {
    let mut look = WordScan::<true>(*state);
    // SAFETY: as the caller promises.
    unsafe { scan_separators::<I>(text, from, to, &mut look, out) };
    *state = look.0;
}

/// The positions of the separators in a window.
pub(crate) struct SeparatorIndex {
    /// True to scan pairs, in which `=` separates too.
    scans_pairs: bool,
    /// Positions in order; the first is the byte before the window.
    pub(crate) positions: Vec<u32>,
    scan_state: WordScanState,
}

impl SeparatorIndex {
    /// Returns an index for words, or for pairs.
    pub(crate) fn new(has_pairs: bool) -> Self {
        Self {
            scans_pairs: has_pairs,
            positions: Vec::new(),
            scan_state: Self::initial_state(has_pairs),
        }
    }

    /// Returns the scan state at the start of a record.
    fn initial_state(has_pairs: bool) -> WordScanState {
        WordScanState {
            in_quotes: 0,
            next_is_escaped: 0,
            quote_may_open: u64::from(!has_pairs),
            quote_closed_last: 0,
            cr_last: 0,
            cr_bits: 0,
            non_ascii_bits: 0,
            backslash_bits: 0,
            irregular_bits: 0,
            line_count: 0,
        }
    }

    /// Finds the separators of a window from `at`, the start of a record, on. Returns the number of lines
    /// that end in it, or `None` if something is irregular.
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    pub(crate) fn index_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
    ) -> Option<usize> {
        self.positions.clear();
        self.positions.push((at as u32).wrapping_sub(1));
        self.scan_state = Self::initial_state(self.scans_pairs);
        let find = if self.scans_pairs { scan_pairs } else { scan_words };
        // A scan beyond the requested rows would have to be repeated.
        let step = rows_max.saturating_mul(512).clamp(1024, WINDOW_BYTES);
        let mut to = at;
        while self.scan_state.line_count == 0 && to < block.len() {
            let from = to;
            to = (from + step).min(block.len());
            find(block, from, to, &mut self.scan_state, &mut self.positions);
            if self.scan_state.irregular_bits != 0 {
                return None;
            }
        }
        if to == block.len()
            && block.last() != Some(&b'\n')
            && self.scan_state.line_count < rows_max
        {
            // The last record lacks its line end.
            if self.scan_state.in_quotes != 0 {
                return None;
            }
            self.positions.push(block.len() as u32);
            self.scan_state.line_count += 1;
        }
        Some(self.scan_state.line_count)
    }

    /// Returns whether the window has a backslash.
    pub(crate) fn has_escapes(&self) -> bool {
        self.scan_state.backslash_bits != 0
    }

    /// Returns whether the window has a carriage return before a line end.
    pub(crate) fn has_carriage_returns(&self) -> bool {
        self.scan_state.cr_bits != 0
    }

    /// Returns whether `text`, which is part of the window, is UTF-8.
    pub(crate) fn is_utf8(&self, text: &[u8]) -> bool {
        self.scan_state.non_ascii_bits == 0 || simdutf8::basic::from_utf8(text).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        #[test]
        fn separators_are_the_same_with_every_instruction_set(
            bytes in prop::collection::vec(
                prop::sample::select(b"aaaaaaa   ==\t\"\"\n\r\\\xc3".to_vec()), 0..400),
            from in 0usize..100, has_pairs: bool
        ) {
            let from = from.min(bytes.len());
            let start = SeparatorIndex::initial_state(has_pairs);
            let (mut one, mut state_one) = (vec![7], start);
            let (mut other, mut state_other) = (vec![7], start);
            let find = if has_pairs { scan_pairs } else { scan_words };
            find(&bytes, from, bytes.len(), &mut state_one, &mut one);
            let find = if has_pairs {
                scan_pairs_simd::<crate::simd::Portable>
            } else {
                scan_words_simd::<crate::simd::Portable>
            };
            // SAFETY: this one asks nothing of the processor.
            unsafe { find(&bytes, from, bytes.len(), &mut state_other, &mut other) };
            prop_assert_eq!(one, other);
            // These bits only tell whether there was any.
            let signs = |words: WordScanState| {
                let WordScanState { cr_bits, non_ascii_bits, backslash_bits, irregular_bits, .. } = words;
                [cr_bits, non_ascii_bits, backslash_bits, irregular_bits].map(|seen| seen != 0)
            };
            prop_assert_eq!(signs(state_one), signs(state_other));
            let rest = |words| WordScanState { cr_bits: 0, non_ascii_bits: 0, backslash_bits: 0, irregular_bits: 0, ..words };
            prop_assert_eq!(rest(state_one), rest(state_other));
        }
    }
}
