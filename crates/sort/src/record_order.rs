//! Orders of records: a 64-bit prefix that decides most comparisons, and a comparison
//! that decides the rest.
//!
//! A sort that reads whole records at each comparison waits for memory. So each record has an
//! entry of 16 bytes, its *normalized key prefix* and its position, and the sort moves entries
//! (Nyberg et al., "AlphaSort", 1994; Graefe, "Implementing sorting in database systems", 2006):
//! unsigned comparison of prefixes agrees with the order wherever two prefixes differ.

use std::cmp::Ordering;
use std::ops::Range;

use crate::checksum::hash_bytes;

/// A total preorder of records. Records that compare as equal are ties: a stable sort keeps them in
/// the order of their tasks, a unique one keeps the first.
pub trait RecordOrder: Send + Sync + 'static {
    /// Returns a number that orders as the records do: `prefix(a) < prefix(b)` only if `a` is before `b`.
    fn prefix(&self, record: &[u8]) -> u64;

    /// Compares two records.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// Returns whether records of equal prefixes are always equal. Default: no.
    fn prefix_decides(&self) -> bool {
        false
    }

    /// Returns whether the prefix is a hash of the key, or its complement. Any range of prefixes then has as
    /// many keys as any other of the same width, so partitions are cut evenly, whatever comes first. Default:
    /// no.
    fn has_hashed_prefix(&self) -> bool {
        false
    }

    /// Returns the prefix of the key from byte `depth` (a multiple of eight) on. It orders records whose keys
    /// agree in their first `depth` bytes, as [`RecordOrder::prefix`] does for all. `None` if the key ends
    /// before, or if the order has no such prefix. It saves comparisons of two places in memory for keys that
    /// begin alike. Default: `None`.
    fn prefix_at_depth(&self, _record: &[u8], _depth: usize) -> Option<u64> {
        None
    }

    /// Returns the value that stands for [`RecordOrder::prefix_at_depth`] past the end of a key: it is
    /// before, or after, every other one. Default: 0, before.
    fn prefix_past_end(&self) -> u64 {
        0
    }
}

/// An order that depends only on some bytes of each record, its key.
pub trait KeyBytesOrder: RecordOrder {
    /// Returns the key.
    fn key_bytes<'a>(&self, record: &'a [u8]) -> &'a [u8];
}

/// Returns the first eight bytes as a big-endian number, with zeros beyond the end.
#[inline]
pub fn big_endian_prefix(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0u8; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

/// Order of whole records, byte by byte as unsigned numbers; a record that begins another is before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByteOrder;

impl RecordOrder for ByteOrder {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        big_endian_prefix(record)
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    #[inline]
    fn prefix_at_depth(&self, record: &[u8], depth: usize) -> Option<u64> {
        record.get(depth..).filter(|rest| !rest.is_empty()).map(big_endian_prefix)
    }
}

impl KeyBytesOrder for ByteOrder {
    #[inline]
    fn key_bytes<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        record
    }
}

/// Order by a fixed range of each record's bytes. Shorter records count as if the range ended with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteRangeOrder {
    key_range: Range<usize>,
}

impl ByteRangeOrder {
    /// Creates an order by the bytes `key`, counted from zero.
    pub fn new(key: Range<usize>) -> Self {
        ByteRangeOrder { key_range: key }
    }

    #[inline]
    fn range_bytes<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        let end = self.key_range.end.min(record.len());
        record.get(self.key_range.start..end).unwrap_or_default()
    }
}

impl KeyBytesOrder for ByteRangeOrder {
    #[inline]
    fn key_bytes<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        self.range_bytes(record)
    }
}

impl RecordOrder for ByteRangeOrder {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        big_endian_prefix(self.range_bytes(record))
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.range_bytes(a).cmp(self.range_bytes(b))
    }

    #[inline]
    fn prefix_at_depth(&self, record: &[u8], depth: usize) -> Option<u64> {
        self.range_bytes(record).get(depth..).filter(|rest| !rest.is_empty()).map(big_endian_prefix)
    }
}

/// The reverse of another order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReverseOrder<O>(pub O);

impl<O: RecordOrder> RecordOrder for ReverseOrder<O> {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        !self.0.prefix(record)
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.0.compare(b, a)
    }

    #[inline]
    fn prefix_decides(&self) -> bool {
        self.0.prefix_decides()
    }

    #[inline]
    fn has_hashed_prefix(&self) -> bool {
        self.0.has_hashed_prefix()
    }

    #[inline]
    fn prefix_at_depth(&self, record: &[u8], depth: usize) -> Option<u64> {
        self.0.prefix_at_depth(record, depth).map(|prefix| !prefix)
    }

    #[inline]
    fn prefix_past_end(&self) -> u64 {
        !self.0.prefix_past_end()
    }
}

/// Order of records that begin with the length of a normalized key (four bytes, little-endian) and the key,
/// as [`crate::key_encoder::KeyEncoder`] writes them. The payload behind it does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodedKeyOrder;

impl EncodedKeyOrder {
    /// Splits a record into its key and its payload.
    #[inline]
    pub fn split_key(record: &[u8]) -> (&[u8], &[u8]) {
        let Some((length, rest)) = record.split_first_chunk::<4>() else { return (&[], &[]) };
        rest.split_at((u32::from_le_bytes(*length) as usize).min(rest.len()))
    }
}

impl RecordOrder for EncodedKeyOrder {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        big_endian_prefix(Self::split_key(record).0)
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        Self::split_key(a).0.cmp(Self::split_key(b).0)
    }

    #[inline]
    fn prefix_at_depth(&self, record: &[u8], depth: usize) -> Option<u64> {
        Self::split_key(record)
            .0
            .get(depth..)
            .filter(|rest| !rest.is_empty())
            .map(big_endian_prefix)
    }
}

impl KeyBytesOrder for EncodedKeyOrder {
    #[inline]
    fn key_bytes<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        Self::split_key(record).0
    }
}

/// Grouping order: records of equal keys are together, and the groups follow a hash of their keys.
/// Grouping is faster than sorting, and its partitions have one size, whatever
/// part of the keys comes first. A key of many records has a partition of its own if it is seen early.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HashOrder<O> {
    order: O,
    seed: u64,
}

impl<O: KeyBytesOrder> HashOrder<O> {
    /// Groups by the keys of an order. Another seed puts the groups in another order.
    pub fn new(order: O, seed: u64) -> Self {
        HashOrder { order, seed }
    }
}

impl<O: KeyBytesOrder> RecordOrder for HashOrder<O> {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        seeded_hash(self.order.key_bytes(record), self.seed)
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (a, b) = (self.order.key_bytes(a), self.order.key_bytes(b));
        if a == b {
            return Ordering::Equal;
        }
        seeded_hash(a, self.seed).cmp(&seeded_hash(b, self.seed)).then_with(|| a.cmp(b))
    }

    #[inline]
    fn has_hashed_prefix(&self) -> bool {
        true
    }
}

/// Returns a hash of the key that depends on the seed.
pub(crate) fn seeded_hash(key: &[u8], seed: u64) -> u64 {
    let mut state = hash_bytes(key) ^ seed;
    // The finalizer of SplitMix64: each bit of the seed reaches each bit.
    state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

/// Order of records of eight bytes, little-endian, as unsigned or signed numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct U64Order {
    /// True if they are numbers in two's complement. Default: no.
    pub signed: bool,
}

impl U64Order {
    /// Returns the number whose unsigned order is the order of the record.
    #[inline]
    pub fn unsigned_rank(self, value: u64) -> u64 {
        if self.signed { value ^ (1 << 63) } else { value }
    }
}

impl RecordOrder for U64Order {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        self.unsigned_rank(record.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.prefix(a).cmp(&self.prefix(b))
    }

    #[inline]
    fn prefix_decides(&self) -> bool {
        true
    }
}
