//! Records in memory: bytes one behind another, and entries that are sorted in their place.
//!
//! ```text
//!  block   [len][record][len][record]…          of any size: len is a LEB128 number
//!          [record][record]…                    of one size
//!
//!  entry   prefix: u64   at: u64 = block << 40 | offset
//! ```
//!
//! Entries are sorted by a radix sort from the most significant byte that differs: each step
//! scatters them into up to 1,024 buckets, stably, until a bucket fits the cache, where the
//! library's sort is the best there is. Entries of one prefix get the key's next eight bytes as
//! their prefix, for as long as there are any; what then still ties is compared record by record.

use std::cmp::Ordering;
use std::hint::black_box;

use crate::cancel::Cancel;
use crate::error::Result;
use crate::order::Order;

/// Whether all records have one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Each record has so many bytes, at least one.
    Fixed(usize),
    /// Each record has any number of bytes, none included.
    Variable,
}

/// More records of one block than it can have: offsets have 40 bits.
const OFFSET_BITS: u32 = 40;

/// Buckets of one step of the radix sort.
const RADIX_BITS: u32 = 10;

/// From so many entries on a radix step is quicker than comparisons.
const RADIX_FROM: usize = 4096;

/// Keys that agree in so many bytes are compared as a whole.
const DEPTH_MAX: usize = 256;

/// Records that are looked at before anything is done with the first of them.
pub(crate) const FETCHED: usize = 32;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) prefix: u64,
    pub(crate) at: u64,
}

/// An entry's memory, and as much again for the scratch space of its sort.
pub(crate) const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;

#[inline]
pub(crate) fn place(block: usize, offset: usize) -> u64 {
    (block as u64) << OFFSET_BITS | offset as u64
}

/// The block of a place.
#[inline]
pub(crate) fn block_of(at: u64) -> usize {
    (at >> OFFSET_BITS) as usize
}

impl Shape {
    /// Appends a record as it is stored.
    #[inline]
    pub(crate) fn store(self, record: &[u8], into: &mut Vec<u8>) {
        self.announce(record.len(), into);
        into.extend_from_slice(record);
    }

    /// Appends what stands before a record of so many bytes.
    #[inline]
    pub(crate) fn announce(self, mut length: usize, into: &mut Vec<u8>) {
        if self == Shape::Variable {
            while length >= 0x80 {
                into.push((length & 0x7F) as u8 | 0x80);
                length >>= 7;
            }
            into.push(length as u8);
        }
    }

    /// At most so many bytes are stored for a record of `length`.
    #[inline]
    pub(crate) fn stored_bytes(self, length: usize) -> usize {
        match self {
            Shape::Fixed(_) => length,
            Shape::Variable => length + 1 + (length.max(1).ilog2() / 7) as usize,
        }
    }

    /// The record that is stored at `offset`, and where the next one is; `None` where the bytes end
    /// before it does.
    #[inline]
    pub(crate) fn next(self, bytes: &[u8], offset: usize) -> Option<(&[u8], usize)> {
        match self {
            Shape::Fixed(size) => {
                let end = offset.checked_add(size)?;
                Some((bytes.get(offset..end)?, end))
            }
            Shape::Variable => {
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
pub(crate) struct Rows<B> {
    pub(crate) shape: Shape,
    pub(crate) blocks: Vec<B>,
}

impl<B: AsRef<[u8]>> Rows<B> {
    /// The record of an entry's place, which was made from these very blocks.
    #[inline]
    pub(crate) fn record(&self, at: u64) -> &[u8] {
        let block = self.blocks[block_of(at)].as_ref();
        let offset = (at & ((1 << OFFSET_BITS) - 1)) as usize;
        self.shape.next(block, offset).map_or(&[], |(record, _)| record)
    }

    /// The first byte of what is stored there.
    #[inline]
    fn byte(&self, at: u64) -> u8 {
        let block = self.blocks[(at >> OFFSET_BITS) as usize].as_ref();
        block.get((at & ((1 << OFFSET_BITS) - 1)) as usize).copied().unwrap_or_default()
    }

    /// The records of up to [`FETCHED`] entries. They lie anywhere in memory: the processor waits for the first of
    /// them, and not for each as where something is decided by one before the next is looked at.
    #[inline]
    pub(crate) fn some(&self, entries: &[Entry]) -> [&[u8]; FETCHED] {
        let mut records = [&[][..]; FETCHED];
        let mut seen = 0;
        for entry in entries {
            seen ^= self.byte(entry.at);
        }
        for (record, entry) in records.iter_mut().zip(entries) {
            *record = self.record(entry.at);
            seen ^= record.last().unwrap_or(&0);
        }
        black_box(seen);
        records
    }
}

/// What sorts entries.
pub(crate) struct Sorting<'a, O, B> {
    pub(crate) order: &'a O,
    pub(crate) rows: &'a Rows<B>,
    /// Ties keep the order in which the entries come.
    pub(crate) stable: bool,
    pub(crate) cancel: &'a Cancel,
}

impl<O: Order, B: AsRef<[u8]>> Sorting<'_, O, B> {
    /// Sorts entries. Their prefixes are other ones afterwards. `scratch` is as long as `entries` in
    /// the end, and worth keeping.
    pub(crate) fn sort(&self, entries: &mut [Entry], scratch: &mut Vec<Entry>) -> Result<()> {
        if scratch.len() < entries.len() {
            scratch.resize(entries.len(), Entry { prefix: 0, at: 0 });
        }
        self.radix(entries, &mut scratch[..], 0)
    }

    /// `depth` bytes of the keys are equal already.
    fn radix(&self, entries: &mut [Entry], scratch: &mut [Entry], depth: usize) -> Result<()> {
        if entries.len() <= RADIX_FROM {
            return self.small(entries, scratch, depth);
        }
        self.cancel.check()?;
        let (mut least, mut most, mut before, mut sorted) = (u64::MAX, 0, 0, true);
        for entry in &*entries {
            least = least.min(entry.prefix);
            most = most.max(entry.prefix);
            sorted &= before <= entry.prefix;
            before = entry.prefix;
        }
        if least == most {
            return self.ties(entries, scratch, depth);
        }
        if sorted {
            return self.groups(entries, scratch, depth);
        }
        let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(RADIX_BITS);
        let bucket = |entry: &Entry| ((entry.prefix - least) >> shift) as usize;
        // On the heap: this calls itself, once for each ten bits of each eight bytes of the key.
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
                self.radix(&mut entries[pair[0]..pair[1]], scratch, depth)?;
            }
        }
        Ok(())
    }

    fn small(&self, entries: &mut [Entry], scratch: &mut [Entry], depth: usize) -> Result<()> {
        if self.stable {
            entries.sort_by_key(|entry| entry.prefix);
        } else {
            entries.sort_unstable_by_key(|entry| entry.prefix);
        }
        self.groups(entries, scratch, depth)
    }

    /// Puts the entries of each prefix in order, once the prefixes are.
    fn groups(&self, entries: &mut [Entry], scratch: &mut [Entry], depth: usize) -> Result<()> {
        if self.order.prefix_decides() {
            return Ok(());
        }
        let mut start = 0;
        while start < entries.len() {
            let prefix = entries[start].prefix;
            let equal =
                entries[start + 1..].iter().take_while(|entry| entry.prefix == prefix).count();
            if equal > 0 {
                self.ties(&mut entries[start..=start + equal], scratch, depth)?;
            }
            start += equal + 1;
        }
        Ok(())
    }

    /// Entries of one prefix.
    fn ties(&self, entries: &mut [Entry], scratch: &mut [Entry], depth: usize) -> Result<()> {
        if self.order.prefix_decides() {
            return Ok(());
        }
        if entries.len() > 8 && depth < DEPTH_MAX {
            let mut more = false;
            for some in entries.chunks_mut(FETCHED) {
                let records = self.rows.some(some);
                for (entry, record) in some.iter_mut().zip(records) {
                    let deeper = self.order.deeper(record, depth + 8);
                    more |= deeper.is_some();
                    entry.prefix = deeper.unwrap_or_else(|| self.order.ended());
                }
            }
            if more {
                return self.radix(entries, scratch, depth + 8);
            }
        }
        self.compared(entries, scratch)
    }

    /// Sorts by comparing records: pieces by the library's sort, then merges, so that there is a
    /// look at the cancel flag in between.
    fn compared(&self, entries: &mut [Entry], scratch: &mut [Entry]) -> Result<()> {
        let compare = |a: &Entry, b: &Entry| {
            self.order.compare(self.rows.record(a.at), self.rows.record(b.at))
        };
        for piece in entries.chunks_mut(RADIX_FROM) {
            if piece.len() == RADIX_FROM {
                self.cancel.check()?;
            }
            if self.stable { piece.sort_by(compare) } else { piece.sort_unstable_by(compare) }
        }
        let mut width = RADIX_FROM;
        while width < entries.len() {
            for pair in entries.chunks_mut(2 * width) {
                self.cancel.check()?;
                if pair.len() > width
                    && compare(&pair[width - 1], &pair[width]) == Ordering::Greater
                {
                    let length = pair.len();
                    scratch[..length].copy_from_slice(pair);
                    let (mut left, mut right) = (0, width);
                    for (index, into) in pair.iter_mut().enumerate() {
                        if index % RADIX_FROM == 0 {
                            self.cancel.check()?;
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
    use super::{Entry, Rows, Shape, Sorting, place};
    use crate::cancel::Cancel;
    use crate::order::{ByteOrder, Order, Reverse};
    use proptest::prelude::*;

    fn sorted<O: Order>(order: &O, records: &[Vec<u8>], stable: bool) -> Vec<Vec<u8>> {
        let mut block = Vec::new();
        let mut entries = Vec::new();
        for record in records {
            entries.push(Entry { prefix: order.prefix(record), at: place(0, block.len()) });
            Shape::Variable.store(record, &mut block);
        }
        let rows = Rows { shape: Shape::Variable, blocks: vec![block] };
        let sorting = Sorting { order, rows: &rows, stable, cancel: &Cancel::new() };
        sorting.sort(&mut entries, &mut Vec::new()).unwrap();
        entries.iter().map(|entry| rows.record(entry.at).to_vec()).collect()
    }

    /// Orders by the first byte alone, with a prefix that says nothing.
    struct First;
    impl Order for First {
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
                assert_eq!(sorted(&Reverse(ByteOrder), &records, stable), expected);
            }
            let records = many(10_000, 9, make);
            let mut expected = records.clone();
            expected.sort_by(|a, b| a.first().cmp(&b.first()));
            assert_eq!(sorted(&First, &records, true), expected);
        }
    }

    #[test]
    fn a_raised_flag_stops_a_sort() {
        let mut entries = vec![Entry { prefix: 0, at: 0 }; 10_000];
        let rows = Rows { shape: Shape::Fixed(1), blocks: vec![vec![0u8]] };
        let cancel = Cancel::new();
        cancel.cancel();
        let sorting = Sorting { order: &First, rows: &rows, stable: true, cancel: &cancel };
        assert!(sorting.sort(&mut entries, &mut Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn records_are_stored_and_found(records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20)) {
            let mut bytes = Vec::new();
            let mut size = 0;
            for record in &records {
                Shape::Variable.store(record, &mut bytes);
                size += Shape::Variable.stored_bytes(record.len());
            }
            prop_assert_eq!(size, bytes.len());
            let mut offset = 0;
            for record in &records {
                let (found, next) = Shape::Variable.next(&bytes, offset).unwrap();
                prop_assert_eq!(found, &record[..]);
                offset = next;
            }
            prop_assert!(Shape::Variable.next(&bytes, offset).is_none());
        }

        #[test]
        fn hostile_bytes_are_no_records(bytes in prop::collection::vec(any::<u8>(), 0..40), offset in 0..50usize) {
            if let Some((record, next)) = Shape::Variable.next(&bytes, offset) {
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
