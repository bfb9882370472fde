//! In which order records are: a 64-bit prefix that decides most comparisons, and a comparison
//! that decides the rest.
//!
//! A sort that looks at whole records at each comparison waits for memory. So each record has an
//! entry of 16 bytes, its *normalized key prefix* and its place, and entries are what is sorted
//! (Nyberg et al., "AlphaSort", 1994; Graefe, "Implementing sorting in database systems", 2006):
//! unsigned comparison of prefixes agrees with the order wherever two prefixes differ.

use std::cmp::Ordering;
use std::ops::Range;

/// A total preorder of records. Records that compare as equal are ties: a stable sort keeps them in
/// the order of their tasks, a unique one keeps the first.
pub trait Order: Send + Sync + 'static {
    /// A number that orders as the records do: `prefix(a) < prefix(b)` only where `a` is before `b`.
    fn prefix(&self, record: &[u8]) -> u64;

    /// How two records compare.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// Whether records of equal prefixes are always equal. Default: no.
    fn prefix_decides(&self) -> bool {
        false
    }

    /// What orders records whose key agrees in its first `depth` bytes (a multiple of eight), as
    /// [`Order::prefix`] does for all; `None` where the key ends before, or there is no such thing.
    /// It spares a comparison of two places in memory for keys that begin alike. Default: `None`.
    fn deeper(&self, _record: &[u8], _depth: usize) -> Option<u64> {
        None
    }

    /// What [`Order::deeper`] is where the key has ended: it is before, or after, every other one.
    /// Default: 0, before.
    fn ended(&self) -> u64 {
        0
    }
}

/// The first eight bytes as a number that orders as they do, zeros beyond the end.
#[inline]
pub fn be_prefix(bytes: &[u8]) -> u64 {
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

impl Order for ByteOrder {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        be_prefix(record)
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    #[inline]
    fn deeper(&self, record: &[u8], depth: usize) -> Option<u64> {
        record.get(depth..).filter(|rest| !rest.is_empty()).map(be_prefix)
    }
}

/// A range of each record's bytes, which all records have (shorter ones count as if they ended there).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeOrder {
    key: Range<usize>,
}

impl RangeOrder {
    /// By the bytes `key`, from zero on.
    pub fn new(key: Range<usize>) -> Self {
        RangeOrder { key }
    }

    #[inline]
    fn key<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        let end = self.key.end.min(record.len());
        record.get(self.key.start..end).unwrap_or_default()
    }
}

impl Order for RangeOrder {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        be_prefix(self.key(record))
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.key(a).cmp(self.key(b))
    }

    #[inline]
    fn deeper(&self, record: &[u8], depth: usize) -> Option<u64> {
        self.key(record).get(depth..).filter(|rest| !rest.is_empty()).map(be_prefix)
    }
}

/// The other way round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reverse<O>(pub O);

impl<O: Order> Order for Reverse<O> {
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
    fn deeper(&self, record: &[u8], depth: usize) -> Option<u64> {
        self.0.deeper(record, depth).map(|prefix| !prefix)
    }

    #[inline]
    fn ended(&self) -> u64 {
        !self.0.ended()
    }
}

/// Records that begin with the length of a normalized key (four bytes, little-endian) and the key,
/// as [`crate::key::Encoder`] makes them; what follows is carried along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyedOrder;

impl KeyedOrder {
    /// The key of a record, and what follows it.
    #[inline]
    pub fn split(record: &[u8]) -> (&[u8], &[u8]) {
        let Some((length, rest)) = record.split_first_chunk::<4>() else { return (&[], &[]) };
        rest.split_at((u32::from_le_bytes(*length) as usize).min(rest.len()))
    }
}

impl Order for KeyedOrder {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        be_prefix(Self::split(record).0)
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        Self::split(a).0.cmp(Self::split(b).0)
    }

    #[inline]
    fn deeper(&self, record: &[u8], depth: usize) -> Option<u64> {
        Self::split(record).0.get(depth..).filter(|rest| !rest.is_empty()).map(be_prefix)
    }
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
    pub fn rank(self, value: u64) -> u64 {
        if self.signed { value ^ (1 << 63) } else { value }
    }
}

impl Order for U64Order {
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        self.rank(record.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
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
