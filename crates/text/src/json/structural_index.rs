//! Stage 1 of the JSON decoder: the index of structural characters, with a check of their neighbours.
//!
//! ```text
//!   text        { " a " : [ 1 , 2 ] , " b { " : " \" " } ⏎
//!   within        ▀▀            …     ▀▀▀▀▀     ▀▀▀▀▀         parity of the quotes that count
//!   index       ^       ^ ^   ^   ^ ^         ^          ^ ^   { } [ ] : , ⏎ outside strings
//! ```
//!
//! The masks also show, 64 bytes at a time, which character precedes each one, white space
//! aside. That proves that no value is missing or doubled, that no comma is, and that
//! a string precedes each colon. The walk over the index then needs only
//! the index: between two of its entries there is one value or none.
//!
//! Without white space between values, these rules are relations of neighbouring bits, and
//! most of them coincide. For eight blocks at once, they are a few operations on registers of
//! eight masks ([`IndexState::index_quickly`]). If any rule fails, all rules are applied to each block
//! ([`IndexState::index_exactly`]). 300 bytes took 38 ns block by block and 29 ns this way, on a Xeon with
//! AVX-512.

use crate::simd::{BLOCK_BYTES, EIGHT, Isa, dispatch, find_escaped_bytes};

/// Features of an indexed stretch of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexSummary {
    /// True if a byte is not ASCII.
    pub(super) has_non_ascii: bool,
    /// True if there is a backslash.
    pub(super) has_backslash: bool,
    /// End of the sound text. The line at this position, or the line that ends there, contains something that
    /// JSON does not allow: a control character, a string that is not closed, a backslash outside
    /// strings, two values next to each other, a missing value.
    pub(super) sound_to: usize,
}

dispatch! {
    /// Appends the positions of the structural characters and line ends in `from..to` of the
    /// text that are outside strings to `out`, the characters to `kinds`, and the mask of backslashes of each
    /// 64 bytes to `backslashes`. The stretch consists of whole lines. The scan ends with the
    /// 64 bytes in which the text is no longer sound.
    fn build_index(
        text: &[u8], from: usize, to: usize, out: &mut Vec<u32>, kinds: &mut Vec<u8>,
        backslashes: &mut Vec<u64>
    ) -> IndexSummary => build_index_simd
}

/// Builds the index; see [`build_index_simd`].
pub(super) fn index_structurals(
    text: &[u8],
    from: usize,
    to: usize,
    out: &mut Vec<u32>,
    kinds: &mut Vec<u8>,
    backslashes: &mut Vec<u64>,
) -> IndexSummary {
    build_index(text, from, to, out, kinds, backslashes)
}

/// Returns the mask of bytes that follow a byte of `mask`, white space aside. The carry is the last bit for
/// the next block.
#[inline(always)]
fn bytes_after(mask: u64, white: u64, carry: &mut u64) -> u64 {
    let next = (mask << 1) | *carry;
    if white == 0 {
        // The usual case where programs write for programs.
        *carry = mask >> 63;
        return next;
    }
    // The addition carries the first bit of a run through to the bit after its end.
    let run = ((next & white).wrapping_add(white) ^ white) & white;
    let whole = mask | run;
    let behind = (whole << 1) | *carry;
    *carry = whole >> 63;
    behind
}

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
pub(super) unsafe fn build_index_simd<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    out: &mut Vec<u32>,
    kinds: &mut Vec<u8>,
    backslashes: &mut Vec<u64>,
) -> IndexSummary {
    let to = to.min(text.len());
    // Every byte may be structural, and the last write may cover a whole block more.
    out.reserve(to.saturating_sub(from) + 2 * BLOCK_BYTES);
    kinds.reserve(out.len() - kinds.len() + to.saturating_sub(from) + 2 * BLOCK_BYTES);
    backslashes.reserve(to.saturating_sub(from).div_ceil(BLOCK_BYTES));
    let (mut count, mut blocks) = (out.len(), backslashes.len());
    let mut backslash = 0u64;
    // SAFETY: as the caller promises.
    let mut all = unsafe { I::load([0; BLOCK_BYTES].as_ptr()) };
    let mut state = IndexState::INITIAL;
    // A compiler that sees through this keeps them out of memory and assembles them word by word.
    let mut masks = [EightBlockMasks::default(), EightBlockMasks::default()];
    let [mut masks, mut next_masks] = std::hint::black_box(&mut masks).each_mut();
    // True if the masks of the next eight blocks exist. They are written while the code processes the eight
    // blocks before: reading them at once would stall on the stores.
    let mut is_ready = false;
    // Number of groups of eight blocks until the quick method is tried again.
    let mut wait = 0;
    let (mut at, mut sound_to) = (from, to);
    'all: while at < to {
        let ahead = if is_ready { EIGHT } else { 0 };
        let next = at + ahead * BLOCK_BYTES;
        let is_next_ready = wait == 0 && to.saturating_sub(next) >= EIGHT * BLOCK_BYTES;
        if is_next_ready {
            // SAFETY: as the caller promises; all these blocks are readable, and `reserve` made room above.
            unsafe {
                let slashes = backslashes.as_mut_ptr().add(blocks + ahead);
                all = I::or(all, next_masks.collect::<I>(text.as_ptr().add(next), slashes));
            }
        }
        let was_ready = std::mem::replace(&mut is_ready, is_next_ready);
        if was_ready || is_next_ready {
            std::mem::swap(&mut masks, &mut next_masks);
        }
        if was_ready {
            let settled = &mut *next_masks;
            // SAFETY: as the caller promises; the backslashes were written with the masks, and `reserve` made
            // room above for a block after the last one.
            unsafe {
                let slashes = &*backslashes.as_ptr().add(blocks).cast::<[u64; EIGHT]>();
                if state.index_quickly::<I>(settled, slashes) {
                    for slashes in slashes {
                        backslash |= slashes;
                    }
                    for (number, structural) in settled.structural.iter().enumerate() {
                        let structural = *structural;
                        let bytes = text.as_ptr().add(at + number * BLOCK_BYTES);
                        let base = (at + number * BLOCK_BYTES) as u32;
                        I::positions(structural, base, out.as_mut_ptr().add(count));
                        let kinds = kinds.as_mut_ptr().add(count);
                        I::picked(bytes, I::load(bytes), structural, kinds);
                        count += structural.count_ones() as usize;
                    }
                    at += EIGHT * BLOCK_BYTES;
                    blocks += EIGHT;
                    continue;
                }
            }
            wait = EXACT_ROUNDS;
        } else if is_next_ready {
            continue;
        }
        wait = wait.saturating_sub(1);
        for _ in 0..EIGHT.min((to - at).div_ceil(BLOCK_BYTES)) {
            let mut padded = [b' '; BLOCK_BYTES];
            // SAFETY: 64 bytes are readable: of the text, or of a copy padded with spaces. `reserve`
            // made room above.
            unsafe {
                let bytes = if at + BLOCK_BYTES <= to {
                    text.as_ptr().add(at)
                } else {
                    padded[..to - at].copy_from_slice(&text[at..to]);
                    padded.as_ptr()
                };
                let block = I::load(bytes);
                all = I::or(all, block);
                let slashes = I::equal(block, b'\\');
                backslash |= slashes;
                backslashes.as_mut_ptr().add(blocks).write(slashes);
                blocks += 1;
                let (structural, broken) = state.index_exactly::<I>(block, slashes);
                I::positions(structural, at as u32, out.as_mut_ptr().add(count));
                I::picked(bytes, block, structural, kinds.as_mut_ptr().add(count));
                count += structural.count_ones() as usize;
                if broken != 0 {
                    sound_to = at + broken.trailing_zeros() as usize;
                    break 'all;
                }
            }
            at += BLOCK_BYTES;
        }
    }
    // SAFETY: the loops wrote this many.
    unsafe {
        out.set_len(count);
        kinds.set_len(count);
        backslashes.set_len(blocks);
    }
    if state.in_string != 0 && sound_to == to {
        sound_to = to.saturating_sub(1);
    }
    // SAFETY: as the caller promises.
    let high = unsafe { I::high(all) } != 0;
    IndexSummary { has_non_ascii: high, has_backslash: backslash != 0, sound_to }
}

/// Number of groups of eight blocks without the quick method after one in which it failed.
const EXACT_ROUNDS: u32 = 16;

/// The carry from one block of 64 bytes to the next. All fields but `in_string` are 1 if true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexState {
    /// All bits set inside a string; else zero.
    in_string: u64,
    /// The next byte is escaped.
    next_is_escaped: u64,
    /// The last byte belongs to a scalar that is not a string.
    scalar_last: u64,
    /// The last byte is a colon or a comma, white space aside.
    separator_last: u64,
    /// The last byte is an opening bracket or a line end, white space aside.
    opening_last: u64,
    /// The last byte is the end of a string, white space aside.
    string_last: u64,
}

/// Masks of the byte classes in eight blocks.
#[derive(Debug, Default)]
struct EightBlockMasks {
    quotes: [u64; EIGHT],
    opening: [u64; EIGHT],
    closing: [u64; EIGHT],
    colons: [u64; EIGHT],
    structural: [u64; EIGHT],
    control: [u64; EIGHT],
    spaces: [u64; EIGHT],
    /// Bytes between quotes, as if each block began outside quotes.
    within_quotes: [u64; EIGHT],
    /// Masks whose last bits become the carry for the next eight blocks.
    string_ends: [u64; EIGHT],
    no_scalars: [u64; EIGHT],
    container_starts: [u64; EIGHT],
}

impl EightBlockMasks {
    /// Computes the masks of eight blocks and returns all their bits. `slashes` receives the backslashes.
    ///
    /// # Safety
    /// The processor must have the instruction set; eight blocks must be readable, and eight words
    /// writable.
    #[inline(always)]
    unsafe fn collect<I: Isa>(&mut self, bytes: *const u8, slashes: *mut u64) -> I::Block {
        // SAFETY: as the caller promises.
        unsafe {
            let mut all = I::load(bytes);
            for at in 0..EIGHT {
                let block = I::load(bytes.add(at * BLOCK_BYTES));
                all = I::or(all, block);
                slashes.add(at).write(I::equal(block, b'\\'));
                let quotes = I::equal(block, b'"');
                (self.quotes[at], self.within_quotes[at]) = (quotes, I::parity(quotes));
                let opening = I::equal_folded(block, b'{');
                let closing = I::equal_folded(block, b'}');
                let colons = I::equal(block, b':');
                self.structural[at] = I::structural(block, opening | closing | colons);
                (self.opening[at], self.closing[at], self.colons[at]) = (opening, closing, colons);
                self.control[at] = I::below(block, b' ');
                self.spaces[at] = I::equal(block, b' ');
            }
            all
        }
    }
}

impl IndexState {
    const INITIAL: IndexState = IndexState {
        in_string: 0,
        next_is_escaped: 0,
        scalar_last: 0,
        separator_last: 0,
        opening_last: 1,
        string_last: 0,
    };

    /// Finds the structural characters of eight blocks in the compact form that programs write. Returns false
    /// if there is white space between values, or anything unsound; the masks are then
    /// useless.
    ///
    /// Without white space, each byte outside strings is either a byte that a value may follow
    /// (`openers`: a separator, an opening bracket, a line end), or part of a value (the end of a string, a
    /// closing bracket, a byte of another scalar). Soundness is a relation of neighbours: after a
    /// value comes a structural character that opens nothing (`ending`), and only there, unless both
    /// bytes belong to one scalar. The exception is an empty container, which has no value.
    ///
    /// # Safety
    /// The processor must have the instruction set.
    #[inline(always)]
    unsafe fn index_quickly<I: Isa>(
        &mut self,
        masks: &mut EightBlockMasks,
        slashes: &[u64; EIGHT],
    ) -> bool {
        let mut escape = self.next_is_escaped;
        if escape | slashes.iter().fold(0, |all, mask| all | mask) != 0 {
            let each = masks.quotes.iter_mut().zip(&mut masks.within_quotes).zip(slashes);
            for ((quotes, within), slashes) in each {
                *quotes &= !find_escaped_bytes(*slashes, &mut escape);
                // SAFETY: as the caller promises, here and below.
                *within = unsafe { I::parity(*quotes) };
            }
        }
        let inside;
        unsafe {
            let within;
            (within, inside) = I::carried(I::masks(&masks.within_quotes), self.in_string);
            let control = I::masks(&masks.control);
            let structural = I::without(I::masks(&masks.structural), within);
            let closing = I::both(I::masks(&masks.closing), structural);
            let opening = I::both(I::masks(&masks.opening), structural);
            let colons = I::both(I::masks(&masks.colons), structural);
            let ends = I::without(I::masks(&masks.quotes), within);
            let ending = I::without(structural, opening);
            let no_values = I::either(within, I::without(structural, closing));
            let no_scalars = I::either(no_values, I::either(ends, closing));
            // After these, there may be an empty container or an empty line.
            let starts = I::either(opening, I::both(control, structural));

            let none = self.separator_last | self.opening_last | (self.in_string & 1);
            let behind_value = I::before(no_values, none);
            let behind_scalar = I::before(no_scalars, self.scalar_last ^ 1);
            // Two neighbours belong to one scalar unless one of them is not a scalar byte.
            let apart = I::either(no_scalars, behind_scalar);
            let empty = I::both(I::either(closing, control), I::before(starts, self.opening_last));
            // A sound byte is in none or in two of these masks.
            let misplaced = I::one_of(ending, I::one_of(behind_value, apart));
            let others = I::either(I::masks(&masks.spaces), I::masks(slashes));
            let odd = I::either(
                I::either(
                    I::without(misplaced, empty),
                    I::without(colons, I::before(ends, self.string_last)),
                ),
                I::either(I::without(control, structural), I::without(others, within)),
            );
            if I::any(odd) {
                return false;
            }
            I::write(structural, &mut masks.structural);
            I::write(closing, &mut masks.closing);
            I::write(ends, &mut masks.string_ends);
            I::write(no_scalars, &mut masks.no_scalars);
            I::write(starts, &mut masks.container_starts);
        }
        const LAST: usize = EIGHT - 1;
        let last = |masks: &[u64; EIGHT]| masks[LAST] >> 63;
        let opening = last(&masks.container_starts);
        *self = IndexState {
            in_string: inside,
            next_is_escaped: escape,
            scalar_last: last(&masks.no_scalars) ^ 1,
            separator_last: last(&masks.structural) & !last(&masks.closing) & !opening,
            opening_last: opening,
            string_last: last(&masks.string_ends),
        };
        true
    }

    /// Returns the structural characters of any block, and the mask of unsound bytes.
    ///
    /// # Safety
    /// The processor must have the instruction set.
    #[inline(always)]
    unsafe fn index_exactly<I: Isa>(&mut self, block: I::Block, slashes: u64) -> (u64, u64) {
        // SAFETY: as the caller promises.
        unsafe {
            let quotes =
                I::equal(block, b'"') & !find_escaped_bytes(slashes, &mut self.next_is_escaped);
            let within = I::parity(quotes) ^ self.in_string;
            self.in_string = (within.cast_signed() >> 63).cast_unsigned();

            let control = I::below(block, b' ');
            let lines = I::equal(block, b'\n');
            let mut white = I::equal(block, b' ');
            if control != lines {
                white |= I::equal(block, b'\t') | I::equal(block, b'\r');
            }
            let mut broken = control & (within | !(lines | white));
            broken |= slashes & !within;

            let white = white & !within;
            let opening = I::equal_folded(block, b'{') & !within;
            let closing = I::equal_folded(block, b'}') & !within;
            let colons = I::equal(block, b':') & !within;
            let commas = I::equal(block, b',') & !within;
            let lines = lines & !within;
            let structural = opening | closing | colons | commas | lines;
            let scalars = !(within | quotes | structural | white);
            let starts = (scalars & !((scalars << 1) | self.scalar_last)) | (quotes & within);
            self.scalar_last = scalars >> 63;

            let behind_separator = bytes_after(colons | commas, white, &mut self.separator_last);
            let behind_opening = bytes_after(opening | lines, white, &mut self.opening_last);
            let behind_string = bytes_after(quotes & !within, white, &mut self.string_last);
            let value_may_come = behind_separator | behind_opening;
            broken |= commas & value_may_come;
            broken |= closing & behind_separator;
            broken |= (opening | starts) & !value_may_come;
            broken |= colons & !behind_string;
            (structural, broken)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simd::Portable;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn quick_and_exact_indexing_agree(
            pieces in prop::collection::vec(prop_oneof![
                100 => prop::sample::select(vec![
                    "{\"a\":1", "{\"a\":\"b c\"", ",\"d\":-2.5", ",\"f\":null", ",\"g\":[1,2]", "}\n",
                    ",\"h\":[\"\",{}]", ",\"i\":{\"j\":[]}", ",\"\\\\\":\"\\\"{\"", ",\"\":\"é\"", "}\n{\"a\":true",
                ]),
                1 => prop::sample::select(vec![
                    "{", "}", "[", "]", ":", ",", "\"", "\\", " ", "\n", "\t", "\x01", "\x0c", "\x1a",
                    "1", "\"\"",
                ]),
            ], 0..200),
        ) {
            let mut text = pieces.concat().into_bytes();
            text.resize(text.len().next_multiple_of(EIGHT * BLOCK_BYTES), b'1');
            let mut state = IndexState::INITIAL;
            let (mut masks, mut slashes) = (EightBlockMasks::default(), [0; EIGHT]);
            for eight in text.as_chunks::<{ EIGHT * BLOCK_BYTES }>().0 {
                let mut other = state;
                // SAFETY: this one asks nothing of the processor.
                let quick = unsafe {
                    masks.collect::<Portable>(eight.as_ptr(), slashes.as_mut_ptr());
                    other.index_quickly::<Portable>(&mut masks, &slashes)
                };
                let mut is_sound = true;
                for (at, block) in eight.as_chunks::<BLOCK_BYTES>().0.iter().enumerate() {
                    // SAFETY: as above.
                    let (structural, broken) = unsafe {
                        let block = Portable::load(block.as_ptr());
                        prop_assert_eq!(slashes[at], Portable::equal(block, b'\\'));
                        state.index_exactly::<Portable>(block, slashes[at])
                    };
                    if quick {
                        prop_assert_eq!((masks.structural[at], 0), (structural, broken));
                    }
                    is_sound &= broken == 0;
                }
                match quick {
                    true => prop_assert_eq!(other, state),
                    false if !is_sound => break,
                    false => {}
                }
            }
        }
    }

    #[test]
    fn compact_json_is_indexed_quickly() {
        let line =
            "{\"a\":1,\"b c\":[],\"d\":{\"e\":[\"f\",{}]},\"g\":\"\\\"\",\"h\":[[1,2.5],[]]}\n";
        let text = line.repeat(200).into_bytes();
        let mut state = IndexState::INITIAL;
        let (mut masks, mut slashes) = (EightBlockMasks::default(), [0; EIGHT]);
        let mut found = |text: &[u8]| {
            let eights = text.as_chunks::<{ EIGHT * BLOCK_BYTES }>().0.iter();
            let of = |eight: &[u8; EIGHT * BLOCK_BYTES]| {
                // SAFETY: this one asks nothing of the processor.
                unsafe {
                    masks.collect::<Portable>(eight.as_ptr(), slashes.as_mut_ptr());
                    state.index_quickly::<Portable>(&mut masks, &slashes)
                }
            };
            eights.map(of).take_while(|found| *found).count()
        };
        assert_eq!(found(&text), text.len() / (EIGHT * BLOCK_BYTES));
    }
}
