//! Records in memory: bytes one after another, and entries that are sorted in their place.
//!
//! ```text
//!  block   [len][record][len][record]…          of variable size: len is a LEB128 number
//!          [record][record]…                    of fixed size
//!
//!  entry   prefix: u64   position: u64 = block << 40 | offset
//! ```
//!
//! Entries are sorted by a radix sort from the most significant byte that differs. Each step
//! distributes them stably to up to 1,024 buckets, until a bucket fits the cache, where the
//! library's sort is the fastest. Entries of one prefix get the key's next eight bytes as
//! their prefix, as long as there are any; remaining ties are compared record by record.

use std::cmp::Ordering;
use std::hint::black_box;

use crate::cancel_flag::SortCancelFlag;
use crate::error::Result;
use crate::record_order::RecordOrder;

/// Size of records: fixed or variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordShape {
    /// Each record has this number of bytes, at least one.
    Fixed(usize),
    /// Each record has any number of bytes, including none.
    Variable,
}

/// Bits of an offset in a position: more than the length of any block.
const POSITION_OFFSET_BITS: u32 = 40;

/// Bits of one step of the radix sort.
const RADIX_BITS: u32 = 10;

/// Minimum number of entries for which a radix step is faster than comparisons.
const RADIX_SORT_ENTRIES_MIN: usize = 4096;

/// Number of equal key bytes after which keys are compared as a whole.
const KEY_DEPTH_BYTES_MAX: usize = 256;

/// Number of records that are fetched into the cache before the first of them is used.
pub(crate) const FETCHED_RECORDS: usize = 32;

#[derive(Debug, Clone, Copy)]
pub(crate) struct SortEntry {
    pub(crate) prefix: u64,
    pub(crate) position: u64,
}

/// Size of an entry; the scratch space of its sort takes as much again.
pub(crate) const ENTRY_BYTES: u64 = size_of::<SortEntry>() as u64;

#[inline]
pub(crate) fn encode_position(block: usize, offset: usize) -> u64 {
    (block as u64) << POSITION_OFFSET_BITS | offset as u64
}

/// Returns the block index of a position.
#[inline]
pub(crate) fn block_index(at: u64) -> usize {
    (at >> POSITION_OFFSET_BITS) as usize
}

impl RecordShape {
    /// Appends a record in stored form.
    #[inline]
    pub(crate) fn push_record(self, record: &[u8], into: &mut Vec<u8>) {
        self.push_length_prefix(record.len(), into);
        into.extend_from_slice(record);
    }

    /// Appends the length prefix of a record, if records have a variable size.
    #[inline]
    pub(crate) fn push_length_prefix(self, mut length: usize, into: &mut Vec<u8>) {
        if self == RecordShape::Variable {
            while length >= 0x80 {
                into.push((length & 0x7F) as u8 | 0x80);
                length >>= 7;
            }
            into.push(length as u8);
        }
    }

    /// Returns the maximum number of bytes stored for a record of `length`.
    #[inline]
    pub(crate) fn stored_bytes_max(self, length: usize) -> usize {
        match self {
            RecordShape::Fixed(_) => length,
            RecordShape::Variable => length + 1 + (length.max(1).ilog2() / 7) as usize,
        }
    }

    /// Returns the record stored at `offset`, and the offset of the next one; `None` if the bytes end
    /// before the record does.
    #[inline]
    pub(crate) fn read_record(self, bytes: &[u8], offset: usize) -> Option<(&[u8], usize)> {
        match self {
            RecordShape::Fixed(size) => {
                let end = offset.checked_add(size)?;
                Some((bytes.get(offset..end)?, end))
            }
            RecordShape::Variable => {
                let first = *bytes.get(offset)?;
                if first < 0x80 {
                    let start = offset + 1;
                    let end = start + usize::from(first);
                    return Some((bytes.get(start..end)?, end));
                }
                let mut length = u64::from(first & 0x7F);
                for (index, byte) in bytes.get(offset + 1..)?.iter().enumerate().take(8) {
                    length |= u64::from(byte & 0x7F) << (7 * (index + 1));
                    if *byte < 0x80 {
                        let start = offset + index + 2;
                        let end = start.checked_add(usize::try_from(length).ok()?)?;
                        return Some((bytes.get(start..end)?, end));
                    }
                }
                None
            }
        }
    }
}

/// Blocks of records in memory.
#[derive(Debug)]
pub(crate) struct RecordBlocks<B> {
    pub(crate) shape: RecordShape,
    pub(crate) blocks: Vec<B>,
}

impl<B: AsRef<[u8]>> RecordBlocks<B> {
    /// Returns the record at a position, which must come from these very blocks.
    #[inline]
    pub(crate) fn record_at(&self, at: u64) -> &[u8] {
        let block = self.blocks[block_index(at)].as_ref();
        let offset = (at & ((1 << POSITION_OFFSET_BITS) - 1)) as usize;
        self.shape.read_record(block, offset).map_or(&[], |(record, _)| record)
    }

    /// Returns the first stored byte at a position.
    #[inline]
    fn first_byte(&self, at: u64) -> u8 {
        let block = self.blocks[(at >> POSITION_OFFSET_BITS) as usize].as_ref();
        block.get((at & ((1 << POSITION_OFFSET_BITS) - 1)) as usize).copied().unwrap_or_default()
    }

    /// Returns the records of up to [`FETCHED_RECORDS`] entries. They lie anywhere in memory: the processor
    /// waits for all of them at once, and not for each before it looks at the next.
    #[inline]
    pub(crate) fn fetch_records(&self, entries: &[SortEntry]) -> [&[u8]; FETCHED_RECORDS] {
        let mut records = [&[][..]; FETCHED_RECORDS];
        let mut seen = 0;
        for entry in entries {
            seen ^= self.first_byte(entry.position);
        }
        for (record, entry) in records.iter_mut().zip(entries) {
            *record = self.record_at(entry.position);
            seen ^= record.last().unwrap_or(&0);
        }
        black_box(seen);
        records
    }
}

/// Sorts the entries of records.
pub(crate) struct EntrySorter<'a, O, B> {
    pub(crate) order: &'a O,
    pub(crate) records: &'a RecordBlocks<B>,
    /// True if ties keep the order of the entries.
    pub(crate) stable: bool,
    pub(crate) cancel: &'a SortCancelFlag,
}

impl<O: RecordOrder, B: AsRef<[u8]>> EntrySorter<'_, O, B> {
    /// Sorts entries. Changes their prefixes. `scratch` grows to the length of `entries` and can be reused.
    pub(crate) fn sort(
        &self,
        entries: &mut [SortEntry],
        scratch: &mut Vec<SortEntry>,
    ) -> Result<()> {
        if scratch.len() < entries.len() {
            scratch.resize(entries.len(), SortEntry { prefix: 0, position: 0 });
        }
        self.radix_sort(entries, &mut scratch[..], 0)
    }

    /// Sorts entries whose keys agree in their first `depth` bytes.
    fn radix_sort(
        &self,
        entries: &mut [SortEntry],
        scratch: &mut [SortEntry],
        depth: usize,
    ) -> Result<()> {
        if entries.len() <= RADIX_SORT_ENTRIES_MIN {
            return self.sort_small(entries, scratch, depth);
        }
        self.cancel.check_cancelled()?;
        let (mut least, mut most, mut before, mut sorted) = (u64::MAX, 0, 0, true);
        for entry in &*entries {
            least = least.min(entry.prefix);
            most = most.max(entry.prefix);
            sorted &= before <= entry.prefix;
            before = entry.prefix;
        }
        if least == most {
            return self.sort_ties(entries, scratch, depth);
        }
        if sorted {
            return self.sort_tied_groups(entries, scratch, depth);
        }
        let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(RADIX_BITS);
        let bucket = |entry: &SortEntry| ((entry.prefix - least) >> shift) as usize;
        // On the heap: this function recurses once for each ten bits of each eight bytes of the key.
        let mut starts = vec![0usize; (1 << RADIX_BITS) + 1];
        for entry in &*entries {
            starts[bucket(entry) + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        for entry in &*entries {
            let place = &mut next[bucket(entry)];
            scratch[*place] = *entry;
            *place += 1;
        }
        entries.copy_from_slice(&scratch[..entries.len()]);
        for pair in starts.windows(2) {
            if pair[1] - pair[0] > 1 {
                self.radix_sort(&mut entries[pair[0]..pair[1]], scratch, depth)?;
            }
        }
        Ok(())
    }

    fn sort_small(
        &self,
        entries: &mut [SortEntry],
        scratch: &mut [SortEntry],
        depth: usize,
    ) -> Result<()> {
        if self.stable {
            entries.sort_by_key(|entry| entry.prefix);
        } else {
            entries.sort_unstable_by_key(|entry| entry.prefix);
        }
        self.sort_tied_groups(entries, scratch, depth)
    }

    /// Sorts the entries of equal prefixes, once the prefixes are in order.
    fn sort_tied_groups(
        &self,
        entries: &mut [SortEntry],
        scratch: &mut [SortEntry],
        depth: usize,
    ) -> Result<()> {
        if self.order.prefix_decides() {
            return Ok(());
        }
        let mut start = 0;
        while start < entries.len() {
            let prefix = entries[start].prefix;
            let equal =
                entries[start + 1..].iter().take_while(|entry| entry.prefix == prefix).count();
            if equal > 0 {
                self.sort_ties(&mut entries[start..=start + equal], scratch, depth)?;
            }
            start += equal + 1;
        }
        Ok(())
    }

    /// Sorts entries of one prefix.
    fn sort_ties(
        &self,
        entries: &mut [SortEntry],
        scratch: &mut [SortEntry],
        depth: usize,
    ) -> Result<()> {
        if self.order.prefix_decides() {
            return Ok(());
        }
        if entries.len() > 8 && depth < KEY_DEPTH_BYTES_MAX {
            let mut more = false;
            for some in entries.chunks_mut(FETCHED_RECORDS) {
                let records = self.records.fetch_records(some);
                for (entry, record) in some.iter_mut().zip(records) {
                    let deeper = self.order.prefix_at_depth(record, depth + 8);
                    more |= deeper.is_some();
                    entry.prefix = deeper.unwrap_or_else(|| self.order.prefix_past_end());
                }
            }
            if more {
                return self.radix_sort(entries, scratch, depth + 8);
            }
        }
        self.sort_by_comparison(entries, scratch)
    }

    /// Sorts by comparing records: pieces by the library's sort, then merges, with checks of the
    /// cancel flag in between.
    fn sort_by_comparison(
        &self,
        entries: &mut [SortEntry],
        scratch: &mut [SortEntry],
    ) -> Result<()> {
        let compare = |a: &SortEntry, b: &SortEntry| {
            self.order
                .compare(self.records.record_at(a.position), self.records.record_at(b.position))
        };
        for piece in entries.chunks_mut(RADIX_SORT_ENTRIES_MIN) {
            if piece.len() == RADIX_SORT_ENTRIES_MIN {
                self.cancel.check_cancelled()?;
            }
            if self.stable { piece.sort_by(compare) } else { piece.sort_unstable_by(compare) }
        }
        let mut width = RADIX_SORT_ENTRIES_MIN;
        while width < entries.len() {
            for pair in entries.chunks_mut(2 * width) {
                self.cancel.check_cancelled()?;
                if pair.len() > width
                    && compare(&pair[width - 1], &pair[width]) == Ordering::Greater
                {
                    let length = pair.len();
                    scratch[..length].copy_from_slice(pair);
                    let (mut left, mut right) = (0, width);
                    for (index, into) in pair.iter_mut().enumerate() {
                        if index % RADIX_SORT_ENTRIES_MIN == 0 {
                            self.cancel.check_cancelled()?;
                        }
                        let take_left = right == length
                            || (left < width
                                && compare(&scratch[left], &scratch[right]) != Ordering::Greater);
                        let from = if take_left { &mut left } else { &mut right };
                        *into = scratch[*from];
                        *from += 1;
                    }
                }
            }
            width *= 2;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{EntrySorter, RecordBlocks, RecordShape, SortEntry, encode_position};
    use crate::cancel_flag::SortCancelFlag;
    use crate::record_order::{ByteOrder, RecordOrder, ReverseOrder};
    use proptest::prelude::*;

    fn sorted<O: RecordOrder>(order: &O, records: &[Vec<u8>], stable: bool) -> Vec<Vec<u8>> {
        let mut block = Vec::new();
        let mut entries = Vec::new();
        for record in records {
            entries.push(SortEntry {
                prefix: order.prefix(record),
                position: encode_position(0, block.len()),
            });
            RecordShape::Variable.push_record(record, &mut block);
        }
        let rows = RecordBlocks { shape: RecordShape::Variable, blocks: vec![block] };
        let sorting = EntrySorter { order, records: &rows, stable, cancel: &SortCancelFlag::new() };
        sorting.sort(&mut entries, &mut Vec::new()).unwrap();
        entries.iter().map(|entry| rows.record_at(entry.position).to_vec()).collect()
    }

    /// Order by the first byte alone, with a constant prefix.
    struct First;
    impl RecordOrder for First {
        fn prefix(&self, _: &[u8]) -> u64 {
            7
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            a.first().cmp(&b.first())
        }
    }

    fn many(count: usize, mut seed: u64, make: impl Fn(u64) -> Vec<u8>) -> Vec<Vec<u8>> {
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            seed >> 20
        };
        (0..count).map(|_| make(next())).collect()
    }

    #[test]
    fn large_inputs_of_every_kind_are_sorted() {
        let kinds: [fn(u64) -> Vec<u8>; 7] = [
            |n| n.to_be_bytes().to_vec(),
            |n| format!("https://www.example.org/{}", n % 5000).into_bytes(),
            |n| vec![b'a'; (n % 4000) as usize],
            |n| vec![0; (n % 40) as usize],
            |n| vec![(n % 3) as u8],
            |_| b"the same long text again".to_vec(),
            |n| n.to_string().into_bytes(),
        ];
        for make in kinds {
            for stable in [true, false] {
                let records = many(10_000, 5, make);
                let mut expected = records.clone();
                expected.sort();
                assert_eq!(sorted(&ByteOrder, &records, stable), expected);
                assert_eq!(sorted(&ByteOrder, &expected, stable), expected);
                expected.reverse();
                assert_eq!(sorted(&ReverseOrder(ByteOrder), &records, stable), expected);
            }
            let records = many(10_000, 9, make);
            let mut expected = records.clone();
            expected.sort_by(|a, b| a.first().cmp(&b.first()));
            assert_eq!(sorted(&First, &records, true), expected);
        }
    }

    #[test]
    fn a_raised_flag_stops_a_sort() {
        let mut entries = vec![SortEntry { prefix: 0, position: 0 }; 10_000];
        let rows = RecordBlocks { shape: RecordShape::Fixed(1), blocks: vec![vec![0u8]] };
        let cancel = SortCancelFlag::new();
        cancel.cancel();
        let sorting = EntrySorter { order: &First, records: &rows, stable: true, cancel: &cancel };
        assert!(sorting.sort(&mut entries, &mut Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn records_are_stored_and_found(records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20)) {
            let mut bytes = Vec::new();
            let mut size = 0;
            for record in &records {
                RecordShape::Variable.push_record(record, &mut bytes);
                size += RecordShape::Variable.stored_bytes_max(record.len());
            }
            prop_assert_eq!(size, bytes.len());
            let mut offset = 0;
            for record in &records {
                let (found, next) = RecordShape::Variable.read_record(&bytes, offset).unwrap();
                prop_assert_eq!(found, &record[..]);
                offset = next;
            }
            prop_assert!(RecordShape::Variable.read_record(&bytes, offset).is_none());
        }

        #[test]
        fn hostile_bytes_are_no_records(bytes in prop::collection::vec(any::<u8>(), 0..40), offset in 0..50usize) {
            if let Some((record, next)) = RecordShape::Variable.read_record(&bytes, offset) {
                prop_assert!(next <= bytes.len() && record.len() < bytes.len());
            }
        }

        #[test]
        fn small_inputs_are_sorted(records in prop::collection::vec(prop::collection::vec(0..3u8, 0..20), 0..60), stable: bool) {
            let mut expected = records.clone();
            expected.sort();
            prop_assert_eq!(sorted(&ByteOrder, &records, stable), expected);
        }
    }
}
