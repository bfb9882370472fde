//! Stage 1: where the structural characters are, and whether their neighbours fit.
//!
//! ```text
//!   text        { " a " : [ 1 , 2 ] , " b { " : " \" " } ⏎
//!   within        ▀▀            …     ▀▀▀▀▀     ▀▀▀▀▀         parity of the quotes that count
//!   index       ^       ^ ^   ^   ^ ^         ^          ^ ^   { } [ ] : , ⏎ outside strings
//! ```
//!
//! The bits also tell, 64 bytes at a time, what the character before each one is, white space
//! aside. That is enough to see that no value is missing or doubled, that no comma is, and that
//! whatever stands before a colon is a string. The walk over the index then needs to look at
//! the index alone: between two of its entries there is one value or none.

use crate::simd::{BLOCK, Isa, dispatch, escaped};

/// What was seen of a stretch of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// A byte that is not ASCII.
    pub(super) high: bool,
    /// A backslash.
    pub(super) backslash: bool,
    /// The end of what is sound. There, in the line that it stands in or ends, is something that
    /// no JSON holds: a control character, a string that is not closed, a backslash outside
    /// strings, two values next to each other, a missing value.
    pub(super) sound_to: usize,
}

dispatch! {
    /// Appends the positions of the structural characters and line ends in `from..to` of the
    /// text that are outside strings to `out`, and for each 64 bytes of it which are backslashes
    /// to `backslashes`. The stretch is of whole lines. Ends with the 64 bytes in which it is no
    /// longer sound.
    fn find(
        text: &[u8], from: usize, to: usize, out: &mut Vec<u32>, backslashes: &mut Vec<u64>
    ) -> Seen => find_with
}

/// See [`find_with`].
pub(super) fn structurals(
    text: &[u8],
    from: usize,
    to: usize,
    out: &mut Vec<u32>,
    backslashes: &mut Vec<u64>,
) -> Seen {
    find(text, from, to, out, backslashes)
}

/// Which bytes come behind one of `mask`, white space aside. The carry is the last bit for the
/// next block.
#[inline(always)]
fn behind(mask: u64, white: u64, carry: &mut u64) -> u64 {
    let next = (mask << 1) | *carry;
    if white == 0 {
        // As it mostly is where programs write for programs.
        *carry = mask >> 63;
        return next;
    }
    // Added to a run of bits, its first bit goes through to behind its end.
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
pub(super) unsafe fn find_with<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    out: &mut Vec<u32>,
    backslashes: &mut Vec<u64>,
) -> Seen {
    let to = to.min(text.len());
    // At most every byte is structural, and a whole block may be written behind the last one.
    out.reserve(to.saturating_sub(from) + 2 * BLOCK);
    backslashes.reserve(to.saturating_sub(from).div_ceil(BLOCK));
    let (mut count, mut blocks) = (out.len(), backslashes.len());
    let (mut high, mut backslash) = (0u64, 0u64);
    let (mut escape, mut inside, mut scalar_before) = (0u64, 0u64, 0u64);
    let (mut separator_before, mut opening_before, mut string_before) = (0u64, 1u64, 0u64);
    let (mut at, mut sound_to) = (from, to);
    while at < to {
        let mut padded = [b' '; BLOCK];
        // SAFETY: 64 bytes are readable: of the text, or of a copy with spaces behind it.
        let block = unsafe {
            if at + BLOCK <= to {
                I::load(text.as_ptr().add(at))
            } else {
                padded[..to - at].copy_from_slice(&text[at..to]);
                I::load(padded.as_ptr())
            }
        };
        // SAFETY: as the caller promises; room was made above.
        unsafe {
            high |= I::high(block);
            let slashes = I::equal(block, b'\\');
            backslash |= slashes;
            backslashes.as_mut_ptr().add(blocks).write(slashes);
            blocks += 1;
            let quotes = I::equal(block, b'"') & !escaped(slashes, &mut escape);
            let within = I::parity(quotes) ^ inside;
            // The last bit, to every bit.
            inside = (within.cast_signed() >> 63).cast_unsigned();

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
            let starts = (scalars & !((scalars << 1) | scalar_before)) | (quotes & within);
            scalar_before = scalars >> 63;

            let behind_separator = behind(colons | commas, white, &mut separator_before);
            let behind_opening = behind(opening | lines, white, &mut opening_before);
            let behind_string = behind(quotes & !within, white, &mut string_before);
            let value_may_come = behind_separator | behind_opening;
            broken |= commas & value_may_come;
            broken |= closing & behind_separator;
            broken |= (opening | starts) & !value_may_come;
            broken |= colons & !behind_string;

            I::positions(structural, at as u32, out.as_mut_ptr().add(count));
            count += structural.count_ones() as usize;
            if broken != 0 {
                sound_to = at + broken.trailing_zeros() as usize;
                break;
            }
        }
        at += BLOCK;
    }
    // SAFETY: so many were written.
    unsafe {
        out.set_len(count);
        backslashes.set_len(blocks);
    }
    if inside != 0 && sound_to == to {
        sound_to = to.saturating_sub(1);
    }
    Seen { high: high != 0, backslash: backslash != 0, sound_to }
}
