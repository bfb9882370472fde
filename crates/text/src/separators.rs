//! Where fields end: the positions of what separates them outside quotes, found in one pass.
//!
//! What is the same for every format with separators is [`find`]: sixty-four bytes at a time,
//! it has a format say which of them separate ([`Look`]) and writes their positions down. What
//! words with spaces between them have in common, be they pieces of an access log or the pairs of
//! logfmt, is [`Separators`]: quotes that are escaped by `\` and stand only where a word begins
//! and ends, and windows of whole lines.

use crate::decoder::WINDOW_BYTES;
use crate::simd::{BLOCK, Isa, dispatch, escaped};

/// What a format looks for in a block of 64 bytes, what one block tells the next, and what
/// has been seen on the way.
pub(crate) trait Look: Copy {
    /// The bytes of the block that separate. `real` are those that are there: behind the text
    /// there are zeros.
    ///
    /// # Safety
    /// The processor must have the instruction set.
    unsafe fn separators<I: Isa>(&mut self, block: I::Block, real: u64) -> u64;
}

/// Appends the positions of the separators in `from..to` of the text to `out`.
///
/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
pub(crate) unsafe fn find<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    look: &mut impl Look,
    out: &mut Vec<u32>,
) {
    let to = to.min(text.len());
    // A copy stays in registers.
    let mut state = *look;
    // At most every byte is a separator, and a whole block may be written behind the last one.
    out.reserve(to.saturating_sub(from) + 2 * BLOCK);
    let mut count = out.len();
    let mut at = from;
    while at < to {
        let mut padded = [0; BLOCK];
        // SAFETY: 64 bytes are readable: of the text, or of a copy with zeros behind it, which
        // are no special bytes.
        let block = unsafe {
            if at + BLOCK <= to {
                I::load(text.as_ptr().add(at))
            } else {
                padded[..to - at].copy_from_slice(&text[at..to]);
                I::load(padded.as_ptr())
            }
        };
        let real = if to - at >= BLOCK { u64::MAX } else { (1 << (to - at)) - 1 };
        // SAFETY: as the caller promises; room was made above.
        unsafe {
            let separators = state.separators::<I>(block, real);
            I::positions(separators, at as u32, out.as_mut_ptr().add(count));
            count += separators.count_ones() as usize;
        }
        at += BLOCK;
    }
    // SAFETY: so many were written.
    unsafe { out.set_len(count) };
    *look = state;
}

/// What is known of words behind a stretch of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Words {
    /// All bits, inside quotes; else none.
    inside: u64,
    /// 1 if the first byte is escaped.
    escaped: u64,
    /// 1 if a quote may open here: where a word or a value begins.
    may_open: u64,
    /// 1 if a closing quote came last.
    closed: u64,
    /// 1 if a carriage return outside quotes came last.
    cr: u64,
    /// Any bit if there was a carriage return outside quotes, a byte that is not ASCII, a
    /// backslash; something that takes a closer look: a quote within a word, a line end in
    /// quotes, a lone carriage return.
    crs: u64,
    high: u64,
    escapes: u64,
    irregular: u64,
    lines: usize,
}

/// The same while it is looked for words (`PAIRS` false: separated by spaces, a quote may open
/// behind each) or for pairs (separated by spaces and tabs, `=` separates too, and a quote may
/// open behind that).
#[derive(Clone, Copy)]
struct Looking<const PAIRS: bool>(Words);

impl<const PAIRS: bool> Look for Looking<PAIRS> {
    #[inline(always)]
    unsafe fn separators<I: Isa>(&mut self, block: I::Block, real: u64) -> u64 {
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
            let quotes = all_quotes & !escaped(backslashes, &mut state.escaped);
            let within = I::parity(quotes) ^ state.inside;
            let cr = I::equal(block, b'\r') & !within;
            let (opening, closing) = (quotes & within, quotes & !within);
            state.irregular |= lines & within
                | opening & !((openers << 1) | state.may_open)
                | real & ((closing << 1) | state.closed) & !(ends | cr)
                | real & ((cr << 1) | state.cr) & !lines;
            if PAIRS {
                // Outside quotes `\` is a byte like any other, but was taken for more.
                state.irregular |= all_quotes & !quotes & !within;
            }
            state.inside = (within.cast_signed() >> 63).cast_unsigned();
            state.may_open = openers >> 63;
            state.closed = closing >> 63;
            state.cr = cr >> 63;
            state.crs |= cr;
            state.high |= I::high(block);
            state.escapes |= backslashes;
            state.lines += lines.count_ones() as usize;
            (ends | equals) & !within
        }
    }
}

dispatch! {
    fn words(text: &[u8], from: usize, to: usize, state: &mut Words, out: &mut Vec<u32>) -> ()
        => find_words
}

dispatch! {
    fn pairs(text: &[u8], from: usize, to: usize, state: &mut Words, out: &mut Vec<u32>) -> ()
        => find_pairs
}

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
unsafe fn find_words<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    state: &mut Words,
    out: &mut Vec<u32>,
) {
    let mut look = Looking::<false>(*state);
    // SAFETY: as the caller promises.
    unsafe { find::<I>(text, from, to, &mut look, out) };
    *state = look.0;
}

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
unsafe fn find_pairs<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    state: &mut Words,
    out: &mut Vec<u32>,
) {
    let mut look = Looking::<true>(*state);
    // SAFETY: as the caller promises.
    unsafe { find::<I>(text, from, to, &mut look, out) };
    *state = look.0;
}

/// The separators of a window.
pub(crate) struct Separators {
    /// Whether words are pairs, between which `=` separates too.
    has_pairs: bool,
    /// Where they are, in order; the first is the byte before the window.
    pub(crate) positions: Vec<u32>,
    seen: Words,
}

impl Separators {
    /// Of words, or of pairs.
    pub(crate) fn new(has_pairs: bool) -> Self {
        Self { has_pairs, positions: Vec::new(), seen: Self::start(has_pairs) }
    }

    /// At the start of a record.
    fn start(has_pairs: bool) -> Words {
        Words {
            inside: 0,
            escaped: 0,
            may_open: u64::from(!has_pairs),
            closed: 0,
            cr: 0,
            crs: 0,
            high: 0,
            escapes: 0,
            irregular: 0,
            lines: 0,
        }
    }

    /// Finds those of a window from `at`, the start of a record, on; returns how many lines
    /// end in it, or none if something is irregular.
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    pub(crate) fn window(&mut self, block: &[u8], at: usize, rows_max: usize) -> Option<usize> {
        self.positions.clear();
        self.positions.push((at as u32).wrapping_sub(1));
        self.seen = Self::start(self.has_pairs);
        let find = if self.has_pairs { pairs } else { words };
        // Text beyond the rows that are asked for would be looked at again.
        let step = rows_max.saturating_mul(512).clamp(1024, WINDOW_BYTES);
        let mut to = at;
        while self.seen.lines == 0 && to < block.len() {
            let from = to;
            to = (from + step).min(block.len());
            find(block, from, to, &mut self.seen, &mut self.positions);
            if self.seen.irregular != 0 {
                return None;
            }
        }
        if to == block.len() && block.last() != Some(&b'\n') && self.seen.lines < rows_max {
            // The last record lacks its line end.
            if self.seen.inside != 0 {
                return None;
            }
            self.positions.push(block.len() as u32);
            self.seen.lines += 1;
        }
        Some(self.seen.lines)
    }

    /// Whether there is a backslash in the window.
    pub(crate) fn has_escapes(&self) -> bool {
        self.seen.escapes != 0
    }

    /// Whether there is a carriage return in it, before a line end.
    pub(crate) fn has_crs(&self) -> bool {
        self.seen.crs != 0
    }

    /// Whether `text`, which is of the window, is UTF-8.
    pub(crate) fn is_utf8(&self, text: &[u8]) -> bool {
        self.seen.high == 0 || simdutf8::basic::from_utf8(text).is_ok()
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
            let start = Separators::start(has_pairs);
            let (mut one, mut state_one) = (vec![7], start);
            let (mut other, mut state_other) = (vec![7], start);
            let find = if has_pairs { pairs } else { words };
            find(&bytes, from, bytes.len(), &mut state_one, &mut one);
            let find = if has_pairs {
                find_pairs::<crate::simd::Portable>
            } else {
                find_words::<crate::simd::Portable>
            };
            // SAFETY: this one asks nothing of the processor.
            unsafe { find(&bytes, from, bytes.len(), &mut state_other, &mut other) };
            prop_assert_eq!(one, other);
            // Its bits tell only whether there was any.
            let signs = |words: Words| {
                let Words { crs, high, escapes, irregular, .. } = words;
                [crs, high, escapes, irregular].map(|seen| seen != 0)
            };
            prop_assert_eq!(signs(state_one), signs(state_other));
            let rest = |words| Words { crs: 0, high: 0, escapes: 0, irregular: 0, ..words };
            prop_assert_eq!(rest(state_one), rest(state_other));
        }
    }
}
