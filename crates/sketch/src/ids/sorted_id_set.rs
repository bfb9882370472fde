//! Exact sets of 64-bit ids: a sorted list, and a buffer of ids that arrived out of order.
//!
//! An [`IdSet`](crate::IdSet) needs all its ids numbered in one space. If one worker builds a set and another
//! merges it, there is no such space, and the ids themselves are the state. Eight bytes an id in ascending
//! order are then both the smallest searchable form and the fastest to merge.
//!
//! ```text
//! ids    ascending, without duplicates …… ┊ buffer, in order of arrival …   one allocation
//! ```
//!
//! An id above all others is appended. Other ids go to the buffer, which has room for half as many ids as are
//! sorted, or for 64. A full buffer is sorted and merged in one pass over both, which moves three ids for
//! each added id, at any size. A query on a set with a buffer sorts a copy; an earlier
//! [`SortedIdSet::merge_buffer`] avoids that.
//!
//! Merging two lists traverses both without a branch that depends on the ids: the smaller id is written, and
//! the comparison's result advances the positions. If one list is 16 times as long as the other, each id of
//! the short list is found by steps that double (Bentley and Yao, *An almost optimal algorithm for unbounded
//! searching*, 1976), and the ids in between are copied at once.
//!
//! The encoding stores the gaps between ids in blocks of 128, with as many bits as the largest gap of the
//! block needs (as Lucene and others do; Lemire and Boytsov, *Decoding billions of integers per second
//! through vectorization*, 2015): a bit or two an id for dense numbers, at most 8 bytes and a bit for random
//! ones.

use std::borrow::Cow;

use crate::SketchError;
use crate::simd::run_vectorized;
use crate::state_encoding::{StateReader, put_varint};

const STATE: &str = "ids";
const HEADER: u8 = 0x91;

/// Capacity of the buffer while few ids are sorted.
const BUFFER_MIN: usize = 64;

/// Length ratio of two lists from which the long one is searched instead of traversed.
const GALLOP_RATIO: usize = 16;

/// Number of gaps in a block.
const BLOCK_GAPS: usize = 128;

/// An exact set of 64-bit ids.
///
/// The state is a function of the set alone: order, repetition and grouping leave no trace. For many sets
/// over a common collection of ids see [`IdSpace`](crate::IdSpace) and [`IdSet`](crate::IdSet), which take
/// one bit an id and are faster.
///
/// Memory: none while empty, 32 bytes up to four ids, then 8 to 12 bytes an id, up to 24 during a merge of
/// the buffer. Cost of an add: 1 to 2 ns for an id above all others, otherwise 20 to 35; in one batch 10 to
/// 40, mostly sorting.
///
/// ```
/// use tidemill_sketch::SortedIdSet;
/// let mut monday: SortedIdSet = [7, 3, 7, 1_000_000].into_iter().collect();
/// let tuesday: SortedIdSet = [3, 4].into_iter().collect();
/// assert_eq!(monday.intersection_len(&tuesday), 1);
/// monday.merge(&tuesday);
/// assert_eq!(monday.iter().collect::<Vec<_>>(), [3, 4, 7, 1_000_000]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct SortedIdSet {
    /// The first `sorted_len` ascend without duplicates; the rest is the buffer and may repeat itself or the
    /// sorted ids.
    ids: Vec<u64>,
    sorted_len: usize,
}

/// Two states are equal if their ids are.
impl PartialEq for SortedIdSet {
    fn eq(&self, other: &Self) -> bool {
        self.sorted_ids() == other.sorted_ids()
    }
}

impl Eq for SortedIdSet {}

impl FromIterator<u64> for SortedIdSet {
    fn from_iter<I: IntoIterator<Item = u64>>(ids: I) -> Self {
        let mut set = SortedIdSet::new();
        set.extend(ids);
        set
    }
}

impl Extend<u64> for SortedIdSet {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, ids: I) {
        ids.into_iter().for_each(|id| self.add(id));
    }
}

impl SortedIdSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an id.
    #[inline]
    pub fn add(&mut self, id: u64) {
        if self.ids.len() == self.sorted_len {
            match self.ids.last() {
                Some(&last) if last == id => return,
                Some(&last) if last > id => {}
                _ => {
                    self.push(id);
                    self.sorted_len += 1;
                    return;
                }
            }
        }
        if self.ids.len() - self.sorted_len >= self.buffer_len_max() {
            self.merge_buffer();
        }
        self.push(id);
    }

    #[inline]
    fn push(&mut self, id: u64) {
        if self.ids.len() == self.ids.capacity() {
            self.grow_buffer();
        }
        self.ids.push(id);
    }

    /// Grows the capacity by half, but not beyond a full buffer.
    #[cold]
    fn grow_buffer(&mut self) {
        let count = self.ids.len();
        let most = (self.sorted_len + self.buffer_len_max()).saturating_sub(count).max(1);
        self.ids.reserve_exact((count / 2).max(4).min(most));
    }

    /// Returns the maximum length of the buffer.
    #[inline]
    fn buffer_len_max(&self) -> usize {
        (self.sorted_len / 2).max(BUFFER_MIN)
    }

    /// Adds ids: equivalent to a call of [`SortedIdSet::add`] for each, and faster for many.
    pub fn add_all(&mut self, mut ids: &[u64]) {
        while let Some((&id, rest)) = ids.split_first() {
            if self.ids.len() != self.sorted_len || self.ids.last().is_some_and(|last| *last > id) {
                break;
            }
            self.add(id);
            ids = rest;
        }
        if ids.is_empty() {
            return;
        }
        if self.ids.len() - self.sorted_len + ids.len() > self.buffer_len_max() {
            // More than the buffer may hold, for a moment: they are merged right away.
            self.ids.extend_from_slice(ids);
            self.merge_buffer();
        } else {
            ids.iter().for_each(|id| self.push(*id));
        }
    }

    /// Merges the buffer into the sorted ids, so that queries need not do it each time.
    ///
    /// Changes no answer. Cost: one sort of the buffer, and a pass over all ids.
    pub fn merge_buffer(&mut self) {
        let (sorted, buffer) = self.ids.split_at_mut(self.sorted_len);
        let Some(&first) = buffer.iter().min() else { return };
        let count = sort_and_dedup(buffer);
        match sorted.last() {
            Some(&last) if last >= first => {
                let mut ids = Vec::new();
                combine_sorted::<true, true, true>(sorted, &buffer[..count], &mut ids);
                self.ids = ids;
            }
            _ => self.ids.truncate(self.sorted_len + count),
        }
        self.sorted_len = self.ids.len();
    }

    /// Returns the ids, ascending: borrowed, or a sorted copy if there is a buffer.
    #[must_use]
    pub fn sorted_ids(&self) -> Cow<'_, [u64]> {
        if self.sorted_len == self.ids.len() {
            return Cow::Borrowed(&self.ids);
        }
        let mut settled = self.clone();
        settled.merge_buffer();
        Cow::Owned(settled.ids)
    }

    /// Returns the number of ids. Cost: constant; with a buffer that of [`SortedIdSet::merge_buffer`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted_ids().len()
    }

    /// Returns true if there are no ids. Cost: constant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the ids, ascending. Cost: as for [`SortedIdSet::sorted_ids`].
    #[must_use]
    pub fn iter(&self) -> SortedIdSetIter<'_> {
        SortedIdSetIter { ids: self.sorted_ids(), next_index: 0 }
    }

    /// Returns true if an id is in the set. Cost: a binary search, and a pass over the buffer.
    #[must_use]
    pub fn contains(&self, id: u64) -> bool {
        let (sorted, buffer) = self.ids.split_at(self.sorted_len);
        sorted.binary_search(&id).is_ok() || buffer.contains(&id)
    }

    /// Adds all ids of `other`, like [`SortedIdSet::union_with`].
    pub fn merge(&mut self, other: &SortedIdSet) {
        self.union_with(other);
    }

    /// Merges like [`SortedIdSet::merge`], in the memory of the larger set.
    pub fn merge_owned(&mut self, mut other: SortedIdSet) {
        if other.ids.len() > self.ids.len() {
            std::mem::swap(self, &mut other);
        }
        self.union_with(&other);
    }

    /// Adds all ids of `other`.
    ///
    /// Cost: about 2.5 ns an id of both; if `other` is small, one add for each of its ids.
    pub fn union_with(&mut self, other: &SortedIdSet) {
        if other.ids.len() + self.ids.len() - self.sorted_len <= self.buffer_len_max() {
            return self.add_all(&other.ids);
        }
        self.combine_with::<true, true, true>(other);
    }

    /// Keeps the ids that are also in `other`.
    pub fn intersect_with(&mut self, other: &SortedIdSet) {
        self.combine_with::<false, false, true>(other);
    }

    /// Removes the ids that are in `other`.
    pub fn subtract(&mut self, other: &SortedIdSet) {
        self.combine_with::<true, false, false>(other);
    }

    /// Removes the ids that are in `other`, and adds those of `other` that were missing. The result has the
    /// ids that are in exactly one of the two.
    pub fn symmetric_difference_with(&mut self, other: &SortedIdSet) {
        self.combine_with::<true, true, false>(other);
    }

    fn combine_with<const LEFT: bool, const RIGHT: bool, const BOTH: bool>(
        &mut self,
        other: &SortedIdSet,
    ) {
        self.merge_buffer();
        let theirs = other.sorted_ids();
        let mut ids = Vec::new();
        combine_sorted::<LEFT, RIGHT, BOTH>(&self.ids, &theirs, &mut ids);
        self.sorted_len = ids.len();
        self.ids = ids;
    }

    /// Returns the count of ids in both. Cost: as for [`SortedIdSet::intersect_with`], without memory for the
    /// result.
    #[must_use]
    pub fn intersection_len(&self, other: &SortedIdSet) -> usize {
        let (left, right) = (self.sorted_ids(), other.sorted_ids());
        let (short, long) =
            if left.len() < right.len() { (&left, &right) } else { (&right, &left) };
        let mut count = 0;
        if short.len() < long.len() / GALLOP_RATIO {
            let mut rest = &long[..];
            for id in short.iter() {
                rest = &rest[count_below(rest, *id)..];
                count += usize::from(rest.first() == Some(id));
            }
            return count;
        }
        let (mut i, mut j) = (0, 0);
        while i < short.len() && j < long.len() {
            let (x, y) = (short[i], long[j]);
            count += usize::from(x == y);
            i += usize::from(x <= y);
            j += usize::from(y <= x);
        }
        count
    }

    /// Returns the heap memory that the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.ids.capacity() * size_of::<u64>()
    }

    /// Appends the state's canonical bytes, laid out in `docs/formats/states.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ids = self.sorted_ids();
        out.push(HEADER);
        put_varint(out, ids.len() as u64);
        let Some((&first, rest)) = ids.split_first() else { return };
        put_varint(out, first);
        let mut before = first;
        let mut gaps = [0; BLOCK_GAPS];
        for block in rest.chunks(BLOCK_GAPS) {
            let mut all = 0;
            for (gap, &id) in gaps.iter_mut().zip(block) {
                *gap = id - before - 1;
                all |= *gap;
                before = id;
            }
            let width = 64 - all.leading_zeros();
            out.push((width & 0xff) as u8);
            pack_gaps(&gaps[..block.len()], width, out);
        }
    }

    /// Reads a state that [`SortedIdSet::encode`] wrote.
    ///
    /// Accepts canonical bytes only: accepted bytes encode to the same bytes again.
    ///
    /// # Errors
    /// Any [`SketchError`] except `ParameterOutOfRange`. One byte can be a block of 128 consecutive ids, so
    /// memory is bounded by 1,024 times the input; if that is too much, use [`SortedIdSet::decode_with_max`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        SortedIdSet::decode_with_max(bytes, usize::MAX)
    }

    /// Reads like [`SortedIdSet::decode`], with at most `most` ids of 8 bytes of memory each.
    ///
    /// # Errors
    /// As there, and [`SketchError::TooMany`] before memory is allocated.
    pub fn decode_with_max(bytes: &[u8], most: usize) -> Result<Self, SketchError> {
        let mut ids = Vec::new();
        for_each_block(bytes, |count, some| {
            if count > most {
                let found = count as u64;
                return Err(SketchError::TooMany { state: STATE, found, most: most as u64 });
            }
            if ids.is_empty() && !some.is_empty() {
                ids.reserve_exact(count);
            }
            ids.extend_from_slice(some);
            Ok(())
        })?;
        Ok(SortedIdSet { sorted_len: ids.len(), ids })
    }

    /// Returns the number of ids in bytes that [`SortedIdSet::encode`] wrote, and true if `wanted` is among
    /// them, without the memory of a state. Cost: about a nanosecond for each encoded id.
    ///
    /// # Errors
    /// As [`SortedIdSet::decode`].
    ///
    /// ```
    /// use tidemill_sketch::SortedIdSet;
    /// let ids: SortedIdSet = [7, 40, 41].into_iter().collect();
    /// let mut bytes = Vec::new();
    /// ids.encode(&mut bytes);
    /// assert_eq!(SortedIdSet::scan_encoded(&bytes, Some(40))?, (3, true));
    /// # Ok::<(), tidemill_sketch::SketchError>(())
    /// ```
    pub fn scan_encoded(bytes: &[u8], wanted: Option<u64>) -> Result<(usize, bool), SketchError> {
        let (mut found, mut has_wanted) = (0, false);
        for_each_block(bytes, |count, some| {
            found = count;
            if let (Some(wanted), [first, .., last] | [first @ last]) = (wanted, some)
                && (*first..=*last).contains(&wanted)
            {
                has_wanted |= some.binary_search(&wanted).is_ok();
            }
            Ok(())
        })?;
        Ok((found, has_wanted))
    }

    /// Returns the number of ids that encoded bytes claim to hold; the first 11 bytes are enough. Does not
    /// check that the ids follow; one byte holds at most 128 of them.
    ///
    /// ```
    /// use tidemill_sketch::SortedIdSet;
    /// let mut bytes = Vec::new();
    /// (0..1000).collect::<SortedIdSet>().encode(&mut bytes);
    /// assert_eq!(SortedIdSet::claimed_id_count(&bytes), Some(1000));
    /// assert_eq!(SortedIdSet::claimed_id_count(b"other"), None);
    /// ```
    pub fn claimed_id_count(bytes: &[u8]) -> Option<u64> {
        let mut reader = StateReader::new(STATE, bytes);
        reader.expect_header(HEADER, "0x91 (version 1)").ok()?;
        reader.read_varint().ok()
    }
}

/// Decodes ids block by block. Calls `take` with the total count and the ascending ids of each block.
fn for_each_block(
    bytes: &[u8],
    mut take: impl FnMut(usize, &[u64]) -> Result<(), SketchError>,
) -> Result<(), SketchError> {
    let mut reader = StateReader::new(STATE, bytes);
    reader.expect_header(HEADER, "0x91 (version 1)")?;
    let found = reader.read_varint()?;
    let count = usize::try_from(found).unwrap_or(usize::MAX);
    if count == 0 {
        return reader.expect_end();
    }
    let first = reader.read_varint()?;
    // Called before the length check, so that a claim of too many ids is reported by its number.
    take(count, &[])?;
    let needed = (count - 1).div_ceil(BLOCK_GAPS);
    if needed > reader.remaining() {
        return Err(reader.truncated_error(needed));
    }
    take(count, &[first])?;
    let (mut before, mut done) = (first, 1);
    while done < count {
        let width = u32::from(reader.read_u8()?);
        if width > 64 {
            return Err(reader.corrupt_error("gaps of more than 64 bits"));
        }
        let block = (count - done).min(BLOCK_GAPS);
        let packed = reader.take_bytes((block * width as usize).div_ceil(8))?;
        let mut gaps = [0; BLOCK_GAPS];
        let all = run_vectorized(
            #[inline(always)]
            || unpack_gaps(packed, width, &mut gaps),
        );
        if 64 - all.leading_zeros() != width || gaps[block..].iter().any(|gap| *gap != 0) {
            return Err(reader.corrupt_error("gaps are wider than they need to be"));
        }
        let largest = u128::from(before) + (u128::from(all) + 1) * BLOCK_GAPS as u128;
        if largest > u128::from(u64::MAX) {
            // Only an upper bound: compute the exact sum.
            let sum: u128 = gaps[..block].iter().map(|gap| u128::from(*gap) + 1).sum();
            if u128::from(before) + sum > u128::from(u64::MAX) {
                return Err(reader.corrupt_error("an id does not fit 64 bits"));
            }
        }
        for gap in &mut gaps {
            before = before.wrapping_add(*gap).wrapping_add(1);
            *gap = before;
        }
        before = gaps[block - 1];
        take(count, &gaps[..block])?;
        done += block;
    }
    reader.expect_end()
}

/// An iterator over the ids of a [`SortedIdSet`], ascending.
#[derive(Debug, Clone)]
pub struct SortedIdSetIter<'a> {
    ids: Cow<'a, [u64]>,
    next_index: usize,
}

impl Iterator for SortedIdSetIter<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let id = *self.ids.get(self.next_index)?;
        self.next_index += 1;
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.ids.len() - self.next_index;
        (left, Some(left))
    }
}

impl ExactSizeIterator for SortedIdSetIter<'_> {}

/// Sorts ids and moves the distinct ones to the front. Returns their number.
fn sort_and_dedup(ids: &mut [u64]) -> usize {
    // A radix sort by bytes took three times as long for 200,000 random ids.
    ids.sort_unstable();
    let mut count = 0;
    let mut last = None;
    for at in 0..ids.len() {
        let id = ids[at];
        if last != Some(id) {
            ids[count] = id;
            count += 1;
            last = Some(id);
        }
    }
    count
}

/// Appends to the empty `out` the ids that are only in `left`, only in `right`, or in both, as the flags
/// request.
fn combine_sorted<const LEFT: bool, const RIGHT: bool, const BOTH: bool>(
    left: &[u64],
    right: &[u64],
    out: &mut Vec<u64>,
) {
    let most = match (LEFT, RIGHT) {
        (true, true) => left.len() + right.len(),
        (true, false) => left.len(),
        (false, true) => right.len(),
        (false, false) => left.len().min(right.len()),
    };
    if right.len() < left.len() / GALLOP_RATIO {
        out.reserve_exact(most);
        return combine_by_search::<RIGHT, LEFT, BOTH>(right, left, out);
    }
    if left.len() < right.len() / GALLOP_RATIO {
        out.reserve_exact(most);
        return combine_by_search::<LEFT, RIGHT, BOTH>(left, right, out);
    }
    // One more element, for an id that is written and not kept.
    out.resize(most + 1, 0);
    let (mut i, mut j, mut count) = (0, 0, 0);
    while i < left.len() && j < right.len() {
        let (x, y) = (left[i], right[j]);
        out[count] = x.min(y);
        let is_kept = (LEFT & (x < y)) | (RIGHT & (y < x)) | (BOTH & (x == y));
        count += usize::from(is_kept);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    out.truncate(count);
    if LEFT {
        out.extend_from_slice(&left[i..]);
    }
    if RIGHT {
        out.extend_from_slice(&right[j..]);
    }
    if out.capacity() > out.len() + out.len() / 2 + 4 {
        out.shrink_to_fit();
    }
}

/// Combines like [`combine_sorted`], for a list that is short compared to the other.
fn combine_by_search<const SHORT: bool, const LONG: bool, const BOTH: bool>(
    short: &[u64],
    long: &[u64],
    out: &mut Vec<u64>,
) {
    let mut rest = long;
    for id in short {
        let (before, from) = rest.split_at(count_below(rest, *id));
        if LONG {
            out.extend_from_slice(before);
        }
        rest = from;
        let is_in_both = rest.first() == Some(id);
        if is_in_both {
            rest = &rest[1..];
        }
        if if is_in_both { BOTH } else { SHORT } {
            out.push(*id);
        }
    }
    if LONG {
        out.extend_from_slice(rest);
    }
}

/// Returns the number of ids below `id`: found in steps that double, then by bisection.
fn count_below(ids: &[u64], id: u64) -> usize {
    let mut high = 1;
    while high <= ids.len() && ids[high - 1] < id {
        high *= 2;
    }
    let low = high / 2;
    low + ids[low..high.min(ids.len())].partition_point(|other| *other < id)
}

/// Appends gaps of `width` bits each, the first in the lowest bits of the first byte.
fn pack_gaps(gaps: &[u64], width: u32, out: &mut Vec<u8>) {
    let (mut bits, mut filled) = (0u128, 0);
    for gap in gaps {
        bits |= u128::from(*gap) << filled;
        filled += width;
        if filled >= 64 {
            out.extend_from_slice(&bits.to_le_bytes()[..8]);
            bits >>= 64;
            filled -= 64;
        }
    }
    out.extend_from_slice(&bits.to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// Reads a block of gaps, zeros where the bytes end. Returns the bitwise OR of all gaps. `packed` holds at
/// most 128 gaps.
#[inline(always)]
fn unpack_gaps(packed: &[u8], width: u32, gaps: &mut [u64; BLOCK_GAPS]) -> u64 {
    // With room for a load behind the last gap.
    let mut bytes = [0; BLOCK_GAPS * 8 + 16];
    bytes[..packed.len()].copy_from_slice(packed);
    let width = width as usize;
    let mask = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
    let mut all = 0;
    if width <= 8 {
        // Eight gaps of `width` bits take `width` bytes, and fit a word.
        for (eight, gaps) in gaps.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let word = load_word(&bytes, eight * width);
            for (at, gap) in gaps.iter_mut().enumerate() {
                *gap = word >> (at * width) & mask;
                all |= *gap;
            }
        }
    } else if width <= 57 {
        for (at, gap) in gaps.iter_mut().enumerate() {
            let bit = at * width;
            *gap = load_word(&bytes, bit / 8) >> (bit % 8) & mask;
            all |= *gap;
        }
    } else {
        for (at, gap) in gaps.iter_mut().enumerate() {
            let bit = at * width;
            let (low, high) = (load_word(&bytes, bit / 8), load_word(&bytes, bit / 8 + 8));
            let both = u128::from(high) << 64 | u128::from(low);
            #[expect(clippy::cast_possible_truncation, reason = "the low half")]
            let word = (both >> (bit % 8)) as u64;
            *gap = word & mask;
            all |= *gap;
        }
    }
    all
}

#[inline(always)]
fn load_word(bytes: &[u8; BLOCK_GAPS * 8 + 16], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_every_width_round_trip() {
        for width in 0..=64u32 {
            for count in [1, 2, 7, 8, 127, 128] {
                let mask = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
                let gaps: Vec<u64> =
                    (0..count).map(|i: u64| crate::hash_i64(i.cast_signed()) & mask).collect();
                let mut bytes = Vec::new();
                pack_gaps(&gaps, width, &mut bytes);
                assert_eq!(bytes.len(), (gaps.len() * width as usize).div_ceil(8));
                let mut back = [0; BLOCK_GAPS];
                let all = unpack_gaps(&bytes, width, &mut back);
                assert_eq!(all, gaps.iter().fold(0, |all, gap| all | gap));
                assert_eq!(back[..gaps.len()], gaps);
                assert!(back[gaps.len()..].iter().all(|gap| *gap == 0));
            }
        }
    }

    #[test]
    fn gallop_finds_first_id_not_below() {
        let ids: Vec<u64> = (0..100).map(|i| i * 3).collect();
        for id in 0..310 {
            for from in [0, 1, 50, 99, 100] {
                assert_eq!(count_below(&ids[from..], id), ids[from..].partition_point(|x| *x < id));
            }
        }
    }

    #[test]
    fn few_ids_take_one_small_allocation() {
        assert_eq!(size_of::<SortedIdSet>(), 32);
        let mut ids = SortedIdSet::new();
        assert_eq!(ids.heap_bytes(), 0);
        ids.extend([3, 1, 2]);
        assert_eq!(ids.heap_bytes(), 32);
    }
}
