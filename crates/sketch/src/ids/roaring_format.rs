//! Decoder of the Roaring portable format into plain words. The facts of the format are from its
//! specification, RoaringBitmap/RoaringFormatSpec.

use super::bit_words::{WordBitmap, bit_mask, count_ones, range_words, word_index};
use crate::SketchError;

pub(super) const STATE: &str = "id set";

pub(super) fn corrupt_container(offset: usize) -> SketchError {
    SketchError::Corrupt { state: STATE, offset, problem: "not a container by the Roaring format" }
}

/// Maximum number of members that a container stores as a list.
const LIST_NUMBERS_MAX: usize = 4096;

/// Number of containers from which a set with run containers has offsets; a set without runs always has them.
const OFFSET_CONTAINERS_MIN: usize = 4;

/// Number of 64-bit words in a container.
const CONTAINER_WORDS: usize = 1 << 10;

/// A borrowed set in the Roaring portable format.
pub(super) struct RoaringView<'a> {
    bytes: &'a [u8],
    /// One bit for each container, set for run containers; empty if there are none.
    has_runs: &'a [u8],
    /// For each container the high half of its numbers, and their count minus one.
    containers: &'a [[u8; 4]],
    /// Offset of the first container.
    containers_start: usize,
}

impl<'a> RoaringView<'a> {
    /// Opens a set. Refuses bytes that are too few for the containers they claim, so that no memory is
    /// reserved for them.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, SketchError> {
        let [cookie] = read_le_words(bytes, 0)?;
        let (mut at, count, has_runs) = match (cookie & 0xffff, cookie >> 16) {
            (12_346, 0) => {
                let [count] = read_le_words(bytes, 4)?;
                (8, count as usize, 0)
            }
            (12_347, last) => (4, last as usize + 1, (last as usize + 1).div_ceil(8)),
            _ => {
                let expected = "0x3a or 0x3b (Roaring portable format)";
                return Err(SketchError::UnknownFormat {
                    state: STATE,
                    expected,
                    found: bytes.first().copied().unwrap_or_default(),
                });
            }
        };
        let has_runs = take_bytes(bytes, &mut at, has_runs)?;
        let (containers, _) = take_bytes(bytes, &mut at, count.saturating_mul(4))?.as_chunks();
        if has_runs.is_empty() || count >= OFFSET_CONTAINERS_MIN {
            take_bytes(bytes, &mut at, count.saturating_mul(4))?;
        }
        Ok(RoaringView { bytes, has_runs, containers, containers_start: at })
    }

    /// Returns the maximum number of words that the set's numbers can need.
    pub(super) fn words_max(&self) -> usize {
        let last = self.containers.last();
        last.map_or(0, |[low, high, ..]| {
            (usize::from(u16::from_le_bytes([*low, *high])) + 1) * CONTAINER_WORDS
        })
    }

    /// Decodes the numbers into words, without a limit on their number.
    pub(super) fn read_words(&self) -> Result<WordBitmap, SketchError> {
        let mut at = self.containers_start;
        let mut found = WordBitmap { words: vec![0; self.words_max()], len: 0 };
        let mut next_key = 0;
        for (number, [key, key_high, last, last_high]) in self.containers.iter().enumerate() {
            let offset = at;
            let key = usize::from(u16::from_le_bytes([*key, *key_high]));
            let count = usize::from(u16::from_le_bytes([*last, *last_high])) + 1;
            let words = found.words.get_mut(key * CONTAINER_WORDS..).unwrap_or_default();
            let Some((words, _)) = words.split_at_mut_checked(CONTAINER_WORDS) else {
                return Err(corrupt_container(offset));
            };
            if key < next_key {
                return Err(corrupt_container(offset));
            }
            next_key = key + 1;
            let has_runs =
                self.has_runs.get(number / 8).is_some_and(|of| of >> (number % 8) & 1 == 1);
            if has_runs {
                let runs = take_bytes(self.bytes, &mut at, 2)?;
                let runs = usize::from(u16::from_le_bytes([runs[0], runs[1]]));
                let (runs, _) = take_bytes(self.bytes, &mut at, runs * 4)?.as_chunks::<4>();
                found.len += set_run_bits(words, runs).ok_or_else(|| corrupt_container(offset))?;
            } else if count <= LIST_NUMBERS_MAX {
                let (list, _) = take_bytes(self.bytes, &mut at, count * 2)?.as_chunks();
                found.len += set_list_bits(words, list).ok_or_else(|| corrupt_container(offset))?;
            } else {
                let (from, _) = take_bytes(self.bytes, &mut at, CONTAINER_WORDS * 8)?.as_chunks();
                for (word, from) in words.iter_mut().zip(from) {
                    *word = u64::from_le_bytes(*from);
                }
                if count_ones(words) != count as u64 {
                    return Err(corrupt_container(offset));
                }
                found.len += count as u64;
            }
        }
        if at < self.bytes.len() {
            let extra = self.bytes.len() - at;
            return Err(SketchError::TrailingBytes { state: STATE, offset: at, extra });
        }
        while found.words.pop_if(|word| *word == 0).is_some() {}
        found.words.shrink_to_fit();
        Ok(found)
    }
}

/// Reads 32-bit words from offset `at`.
fn read_le_words<const N: usize>(bytes: &[u8], at: usize) -> Result<[u32; N], SketchError> {
    let mut end = at;
    let (words, _) = take_bytes(bytes, &mut end, 4 * N)?.as_chunks();
    Ok(std::array::from_fn(|word| words.get(word).copied().map_or(0, u32::from_le_bytes)))
}

/// Returns `length` bytes from offset `at` and moves `at` behind them.
fn take_bytes<'a>(bytes: &'a [u8], at: &mut usize, length: usize) -> Result<&'a [u8], SketchError> {
    let rest = bytes.get(*at..).unwrap_or_default();
    let part = rest.get(..length).ok_or_else(|| SketchError::Truncated {
        state: STATE,
        offset: bytes.len(),
        needed: length - rest.len(),
    })?;
    *at += length;
    Ok(part)
}

/// Sets the bits of ascending numbers. Returns their count; `None` if they do not ascend.
fn set_list_bits(words: &mut [u64], list: &[[u8; 2]]) -> Option<u64> {
    let mut least = 0;
    for number in list {
        let number = u32::from(u16::from_le_bytes(*number));
        if number < least {
            return None;
        }
        least = number + 1;
        *words.get_mut(word_index(number))? |= bit_mask(number);
    }
    Some(list.len() as u64)
}

/// Sets the bits of runs, each a first number and the count of numbers that follow it. Runs must neither
/// overlap nor touch, and there must be at least one. Returns the number of bits.
fn set_run_bits(words: &mut [u64], runs: &[[u8; 4]]) -> Option<u64> {
    let (mut least, mut count) = (0, 0);
    for [first, first_high, more, more_high] in runs {
        let first = u32::from(u16::from_le_bytes([*first, *first_high]));
        let last = first + u32::from(u16::from_le_bytes([*more, *more_high]));
        if first < least {
            return None;
        }
        least = last + 2;
        count += u64::from(last - first) + 1;
        for (word, bits) in range_words(first..=last) {
            *words.get_mut(word)? |= bits;
        }
    }
    (!runs.is_empty()).then_some(count)
}
