//! In which order records are: a 64-bit prefix that decides most comparisons, and a comparison
//! that decides the rest.
//!
//! A sort that looks at whole records at each comparison waits for memory. So each record has an
//! entry of 16 bytes, its *normalized key prefix* and its place, and entries are what is sorted
//! (Nyberg et al., "AlphaSort", 1994; Graefe, "Implementing sorting in database systems", 2006):
//! unsigned comparison of prefixes agrees with the order wherever two prefixes differ.

use std::cmp::Ordering;
use std::ops::Range;

use crate::checksum::hash_bytes;

/// A total preorder of records. Records that compare as equal are ties: a stable sort keeps them in
/// the order of their tasks, a unique one keeps the first.
pub trait RecordOrder: Send + Sync + 'static {
    /// A number that orders as the records do: `prefix(a) < prefix(b)` only where `a` is before `b`.
    fn prefix(&self, record: &[u8]) -> u64;

    /// How two records compare.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// Whether records of equal prefixes are always equal. Default: no.
    fn prefix_decides(&self) -> bool {
        false
    }

    /// Whether the prefix is a hash of the key, or its complement, so that any range of prefixes has as many keys as
    /// any other that is as wide: partitions are then cut evenly, whatever comes first. Default: no.
    fn has_hashed_prefix(&self) -> bool {
        false
    }

    /// What orders records whose key agrees in its first `depth` bytes (a multiple of eight), as
    /// [`Order::prefix`] does for all; `None` where the key ends before, or there is no such thing.
    /// It spares a comparison of two places in memory for keys that begin alike. Default: `None`.
    fn prefix_at_depth(&self, _record: &[u8], _depth: usize) -> Option<u64> {
        None
    }

    /// What [`Order::deeper`] is where the key has ended: it is before, or after, every other one.
    /// Default: 0, before.
    fn prefix_past_end(&self) -> u64 {
        0
    }
}

/// An order by some bytes of each record, its key, and nothing else.
pub trait KeyBytesOrder: RecordOrder {
    /// The key.
    fn key_bytes<'a>(&self, record: &'a [u8]) -> &'a [u8];
}

/// The first eight bytes as a number that orders as they do, zeros beyond the end.
#[inline]
pub fn big_endian_prefix(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0u8; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

/// Whole records, byte by byte as unsigned numbers; one that begins another is before it.
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

/// A range of each record's bytes, which all records have (shorter ones count as if they ended there).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteRangeOrder {
    key_range: Range<usize>,
}

impl ByteRangeOrder {
    /// By the bytes `key`, from zero on.
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

/// The other way round.
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

/// Records that begin with the length of a normalized key (four bytes, little-endian) and the key,
/// as [`crate::key::Encoder`] makes them; what follows is carried along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodedKeyOrder;

impl EncodedKeyOrder {
    /// The key of a record, and what follows it.
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

/// Groups: records of equal keys are together, and the groups in no meaningful order, that of a hash of their keys.
/// Quicker than an order where grouping is all that is wanted, and its partitions are of one size whatever
/// part of the keys comes first; a key of many records has a partition of its own where it is seen early.
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

/// A hash that another seed makes another one.
pub(crate) fn seeded_hash(key: &[u8], seed: u64) -> u64 {
    let mut state = hash_bytes(key) ^ seed;
    // The finalizer of SplitMix64: each bit of the seed reaches each bit.
    state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

/// Records of eight bytes, little-endian, as unsigned numbers or as signed ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct U64Order {
    /// Whether they are numbers in two's complement. Default: no.
    pub signed: bool,
}

impl U64Order {
    /// The number whose unsigned order is the order of the record.
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
