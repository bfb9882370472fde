//! Block statistics: the smallest and the largest value of each column in each block, for pruning
//! blocks.
//!
//! Integers, booleans and dates come with the block's layout at no cost. Strings are compared by
//! *keys*: 7 bytes as one big-endian integer, and in the lowest byte the number of bytes, up to 8.
//! One pass without branches finds the least and the greatest key of each chunk of a column. Only
//! strings that have one of these keys, and more bytes than the key, are compared with each other. If
//! all keys are equal, the pass continues with the next 7 bytes. A bound keeps at most 32 bytes, so
//! there are at most 5 passes, and one for most columns. (Comparing each string with the extremes
//! so far took a third of the encoding time.)

use std::ops::Range;

use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, i256};

use crate::columns::{LeafArray, LeafColumns, LeafValues, StringBytes};
use crate::error::RowDecodeError;
use crate::row_encoder::{SlotRange, ValueRanges};
use crate::row_layout::{LeafKind, RowStructure};
use crate::schema::{FieldType, SchemaField};

/// Maximum length of a string's bound, in bytes.
const STRING_BOUND_BYTES_MAX: usize = 32;

/// The statistics of a block: one entry for each column that has any.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct BlockStatistics(pub Vec<ColumnStatistic>);

/// The statistics of a column in a block.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ColumnStatistic {
    pub nulls: u32,
    /// Lower and upper bound of the values.
    pub bounds: Option<(Vec<u8>, Vec<u8>)>,
}

/// Returns the first `count` bytes and advances past them.
pub(crate) fn take_bytes<'a>(
    bytes: &mut &'a [u8],
    count: usize,
) -> Result<&'a [u8], RowDecodeError> {
    let (head, rest) = bytes
        .split_at_checked(count)
        .ok_or_else(|| RowDecodeError::from_damage("it ends too early"))?;
    *bytes = rest;
    Ok(head)
}

impl BlockStatistics {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for statistic in &self.0 {
            out.extend_from_slice(&statistic.nulls.to_le_bytes());
            let Some((min, max)) = &statistic.bounds else {
                out.push(0);
                continue;
            };
            out.push(1);
            for bound in [min, max] {
                out.push(u8::try_from(bound.len()).unwrap_or_default());
                out.extend_from_slice(bound);
            }
        }
    }

    pub(crate) fn parse(bytes: &mut &[u8], columns: usize) -> Result<Self, RowDecodeError> {
        // Each entry takes at least 5 bytes.
        if columns > bytes.len() / 5 {
            return Err(RowDecodeError::from_damage("it ends within its statistics"));
        }
        let mut all = Vec::with_capacity(columns);
        for _ in 0..columns {
            let head = take_bytes(bytes, 5)?;
            let nulls = head.first_chunk().map_or(0, |nulls| u32::from_le_bytes(*nulls));
            let mut bound = || -> Result<Vec<u8>, RowDecodeError> {
                let length = take_bytes(bytes, 1)?.first().copied().unwrap_or_default();
                Ok(take_bytes(bytes, length.into())?.to_vec())
            };
            let bounds = match head.last() {
                Some(0) => None,
                Some(1) => Some((bound()?, bound()?)),
                _ => {
                    return Err(RowDecodeError::from_damage(
                        "statistics that are neither there nor not",
                    ));
                }
            };
            all.push(ColumnStatistic { nulls, bounds });
        }
        Ok(Self(all))
    }
}

/// Returns the leaves that have statistics: those that are not structs and not in lists.
pub(crate) fn statistics_leaves(record: &RowStructure) -> Vec<u32> {
    let has_any = |kind| !matches!(kind, LeafKind::Null | LeafKind::Struct | LeafKind::List { .. });
    (0..).zip(&record.leaves).filter(|(_, leaf)| has_any(leaf.kind)).map(|(leaf, _)| leaf).collect()
}

/// Returns the fields of a record's leaves, in their order.
pub(crate) fn leaf_fields(fields: &[SchemaField]) -> Vec<&SchemaField> {
    let mut all = Vec::new();
    for field in fields {
        all.push(field);
        if let FieldType::Struct(inner) = &field.kind {
            all.extend(leaf_fields(inner));
        }
    }
    all
}

/// Computes the statistics of a block.
pub(crate) fn compute_block_statistics(
    record: &RowStructure,
    fields: &[&SchemaField],
    ranges: &ValueRanges,
    parts: &[(&LeafColumns, Range<usize>)],
) -> BlockStatistics {
    let mut extremes = StringExtremesFinder::default();
    let all = statistics_leaves(record).into_iter().map(|leaf| {
        let leaf = leaf as usize;
        let columns: Vec<(&LeafArray, Range<usize>)> = parts
            .iter()
            .filter_map(|(columns, rows)| Some((columns.leaves.get(leaf)?, rows.clone())))
            .collect();
        let nulls: usize = columns
            .iter()
            .filter_map(|(column, rows)| {
                Some(column.nulls.as_ref()?.slice(rows.start, rows.len()).null_count())
            })
            .sum();
        let rows: usize = columns.iter().map(|(_, rows)| rows.len()).sum();
        let bounds = match (record.leaves.get(leaf), fields.get(leaf)) {
            (Some(place), Some(field)) if nulls < rows => {
                column_bounds(place.kind, field, ranges, &columns, nulls, &mut extremes)
            }
            _ => None,
        };
        ColumnStatistic { nulls: u32::try_from(nulls).unwrap_or(u32::MAX), bounds }
    });
    BlockStatistics(all.collect())
}

fn column_bounds(
    kind: LeafKind,
    field: &SchemaField,
    ranges: &ValueRanges,
    columns: &[(&LeafArray, Range<usize>)],
    nulls: usize,
    extremes: &mut StringExtremesFinder,
) -> Option<(Vec<u8>, Vec<u8>)> {
    match kind {
        // The order of an enum's symbols is not the order of their names.
        LeafKind::Integer { .. } if matches!(field.kind, FieldType::Enum { .. }) => None,
        LeafKind::Boolean { bit } => {
            let (zero, one) = *ranges.bits.get(bit)?;
            // A null is stored as false: with nulls, a false may not be a value.
            let min = u8::from(!zero && nulls == 0);
            Some((vec![min], vec![u8::from(one)]))
        }
        LeafKind::Integer { slot } => match ranges.slots.get(slot)? {
            SlotRange::Signed(min, max) => {
                Some((min.to_le_bytes().into(), max.to_le_bytes().into()))
            }
            SlotRange::Unsigned(min, max) => {
                Some((min.to_le_bytes().into(), max.to_le_bytes().into()))
            }
            _ => None,
        },
        LeafKind::Wide { .. } => {
            let (mut min, mut max) = (i256::MAX, i256::MIN);
            for (column, rows) in columns {
                for row in rows.clone() {
                    if column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                        let value = match &column.values {
                            LeafValues::Wide128(values) => i256::from_i128(*values.get(row)?),
                            LeafValues::Wide256(values) => *values.get(row)?,
                            _ => return None,
                        };
                        (min, max) = (min.min(value), max.max(value));
                    }
                }
            }
            Some((min.to_le_bytes().into(), max.to_le_bytes().into()))
        }
        LeafKind::Float { .. } => float_bounds(columns),
        LeafKind::Fixed { .. } => None,
        LeafKind::Bytes { slot } => {
            let may_be_empty = matches!(ranges.slots.get(slot), Some(SlotRange::Unsigned(0, _)));
            let (mut min, mut max): (Option<&[u8]>, Option<&[u8]>) = (None, None);
            for (column, rows) in columns {
                let LeafValues::Bytes { lengths, source } = &column.values else { return None };
                let found = extremes.find_extremes(
                    source,
                    lengths,
                    column.nulls.as_ref(),
                    rows.clone(),
                    may_be_empty,
                );
                if let Some((least, greatest)) = found {
                    min = Some(min.map_or(least, |min| min.min(least)));
                    max = max.max(Some(greatest));
                }
            }
            let (min, max) = (min?, max?);
            let (min, max) = match field.kind {
                FieldType::String => (string_lower_bound(min), string_upper_bound(max)?),
                _ => (min.get(..STRING_BOUND_BYTES_MAX).unwrap_or(min), binary_upper_bound(max)?),
            };
            Some((min.into(), max))
        }
        _ => None,
    }
}

/// Returns bounds of floats, as 64-bit floats. `None` if there is a NaN, which has no place in the
/// order; a zero counts as both zeros.
fn float_bounds(columns: &[(&LeafArray, Range<usize>)]) -> Option<(Vec<u8>, Vec<u8>)> {
    // Only 32-bit and 64-bit floats: 16-bit floats are rare, and converting them is slow.
    let (mut min, mut max, mut is_number) = (f64::INFINITY, f64::NEG_INFINITY, true);
    let mut take = |value: f64| {
        (min, max) = (min.min(value), max.max(value));
        is_number &= !value.is_nan();
    };
    for (column, rows) in columns {
        let is_valid = |row: &usize| column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
        let valid = rows.clone().filter(is_valid);
        match &column.values {
            LeafValues::Float32(values) => valid
                .filter_map(|row| values.get(row))
                .for_each(|bits| take(f32::from_bits(*bits).into())),
            LeafValues::Float64(values) => {
                valid.filter_map(|row| values.get(row)).for_each(|bits| take(f64::from_bits(*bits)))
            }
            _ => return None,
        }
    }
    let zero = |value: f64, zero: f64| if value == 0.0 { zero } else { value };
    is_number.then(|| (zero(min, -0.0).to_le_bytes().into(), zero(max, 0.0).to_le_bytes().into()))
}

/// Number of string bytes in a key.
const STRING_KEY_BYTES: usize = 7;

/// Masks for the bits of a key that its bytes occupy, by the number of bytes, up to 8.
const STRING_KEY_MASKS: [u64; 9] = [
    0,
    0xFF00_0000_0000_0000,
    0xFFFF_0000_0000_0000,
    0xFFFF_FF00_0000_0000,
    0xFFFF_FFFF_0000_0000,
    0xFFFF_FFFF_FF00_0000,
    0xFFFF_FFFF_FFFF_0000,
    0xFFFF_FFFF_FFFF_FF00,
    0xFFFF_FFFF_FFFF_FF00,
];

/// Returns the key of `length` bytes at `start`, which compares as the bytes do, but is equal for all
/// strings longer than 7 bytes with the same beginning.
#[inline(always)]
fn string_key(bytes: &[u8], start: usize, length: usize) -> u64 {
    let count = length.min(STRING_KEY_BYTES + 1);
    let head = match bytes.get(start..).and_then(|bytes| bytes.first_chunk()) {
        Some(head) => u64::from_be_bytes(*head),
        None => first_bytes_at_end(bytes, start, count),
    };
    head & STRING_KEY_MASKS.get(count).copied().unwrap_or_default() | count as u64
}

/// Returns the first `count` bytes if fewer than 8 bytes are left.
#[cold]
#[inline(never)]
fn first_bytes_at_end(bytes: &[u8], start: usize, count: usize) -> u64 {
    let mut head = [0; 8];
    let bytes = bytes.get(start..start + count).unwrap_or_default();
    head.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(head)
}

/// Returns the key of bytes that are inline in a view, from `depth` on, with `length` bytes left.
#[inline]
fn inline_view_key(view: u128, depth: usize, length: usize) -> u64 {
    let count = length.min(STRING_KEY_BYTES + 1);
    #[expect(clippy::cast_possible_truncation, reason = "the next 8 bytes")]
    let head = view.checked_shr(32 + 8 * depth as u32).unwrap_or_default() as u64;
    head.swap_bytes() & STRING_KEY_MASKS.get(count).copied().unwrap_or_default() | count as u64
}

/// Returns true if the string has more bytes than its key contains.
fn is_truncated_key(key: u64) -> bool {
    key & 0xFF > STRING_KEY_BYTES as u64
}

/// Number of rows in a chunk; only chunks whose key range contains the best key are searched again.
const KEY_CHUNK_ROWS: usize = 64;

/// A search for the smallest and the largest string, with reused memory.
#[derive(Default)]
struct StringExtremesFinder(RowKeys);

/// The keys of rows, and the range of each chunk.
#[derive(Default)]
struct RowKeys {
    /// Never shrinks; only the first `rows` keys are valid.
    keys: Vec<u64>,
    rows: usize,
    chunks: Vec<KeyRange>,
}

/// The range of the keys in a chunk.
#[derive(Clone, Copy)]
struct KeyRange {
    /// The smallest key of a string that is not empty; `u64::MAX` if there is none.
    smallest: u64,
    largest: u64,
}

impl StringExtremesFinder {
    /// Returns the smallest and the largest string, or other strings with the same first 33 bytes.
    /// `None` if all are null.
    fn find_extremes<'a>(
        &mut self,
        source: &'a StringBytes,
        lengths: &[u32],
        nulls: Option<&NullBuffer>,
        rows: Range<usize>,
        may_be_empty: bool,
    ) -> Option<(&'a [u8], &'a [u8])> {
        let nulls = nulls.map_or(0, |nulls| nulls.slice(rows.start, rows.len()).null_count());
        if nulls == rows.len() {
            return None;
        }
        let mut depth = 0;
        let (smallest, largest) = loop {
            source.fill_row_keys(lengths, rows.clone(), depth, &mut self.0);
            let chunks = self.0.chunks.iter();
            let found = chunks.copied().reduce(|one, other| KeyRange {
                smallest: one.smallest.min(other.smallest),
                largest: one.largest.max(other.largest),
            })?;
            depth += STRING_KEY_BYTES;
            // Repeat with the next bytes only if all keys are equal and none is complete.
            if found.smallest != found.largest
                || !is_truncated_key(found.smallest)
                || depth >= STRING_BOUND_BYTES_MAX
            {
                break (found.smallest, found.largest);
            }
        };
        // A null has the key of an empty string, which does not affect the largest key.
        let lengths_here = lengths.get(rows.clone()).unwrap_or_default();
        let is_empty = |length: &&u32| **length == 0;
        let least = if may_be_empty && lengths_here.iter().filter(is_empty).count() > nulls {
            &[]
        } else {
            self.find_best_with_key(source, lengths, &rows, smallest, |one, other| one < other)?
        };
        let greatest =
            self.find_best_with_key(source, lengths, &rows, largest, |one, other| one > other)?;
        Some((least, greatest))
    }

    /// Returns the best string with the key `best`, by its first 33 bytes.
    fn find_best_with_key<'a>(
        &self,
        source: &'a StringBytes,
        lengths: &[u32],
        rows: &Range<usize>,
        best: u64,
        is_better: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Option<&'a [u8]> {
        // One byte beyond the bound separates longer strings from equal ones.
        let bound = |bytes: &'a [u8]| bytes.get(..=STRING_BOUND_BYTES_MAX).unwrap_or(bytes);
        let mut found = None;
        let mut first = rows.start;
        let keys = self.0.keys.get(..self.0.rows).unwrap_or_default();
        for (keys, spread) in keys.chunks(KEY_CHUNK_ROWS).zip(&self.0.chunks) {
            // The chunk's smallest key ignores empty strings, whose key is the largest if all are empty.
            if best == 0 || (spread.smallest..=spread.largest).contains(&best) {
                if !is_truncated_key(best)
                    && let Some(at) = keys.iter().position(|key| *key == best)
                {
                    return source.value_at(first + at, lengths);
                }
                // Write every row and advance only on a match: matches are not predictable.
                let (mut with_best, mut count) = ([0; KEY_CHUNK_ROWS], 0);
                for (at, key) in keys.iter().enumerate() {
                    with_best[count % KEY_CHUNK_ROWS] = at;
                    count += usize::from(*key == best);
                }
                for at in with_best.get(..count).unwrap_or_default() {
                    let value = source.value_at(first + at, lengths)?;
                    if found.is_none_or(|found| is_better(bound(value), bound(found))) {
                        found = Some(value);
                    }
                }
            }
            first += keys.len();
        }
        found
    }
}

impl RowKeys {
    /// Computes the keys of strings behind offsets.
    fn fill_from_offsets<O: ArrowNativeType>(
        &mut self,
        offsets: &[O],
        bytes: &[u8],
        lengths: &[u32],
        depth: usize,
    ) {
        if depth == 0 {
            // The usual case has its own specialized loop.
            self.fill_keys(offsets, lengths, move |offset, length| {
                string_key(bytes, offset.as_usize(), length as usize)
            });
        } else {
            self.fill_keys(offsets, lengths, move |offset, length| {
                string_key(
                    bytes,
                    offset.as_usize() + depth,
                    (length as usize).saturating_sub(depth),
                )
            });
        }
    }

    /// Computes keys by calling `key` with starts and lengths.
    #[inline(always)]
    fn fill_keys<T: Copy>(&mut self, starts: &[T], lengths: &[u32], key: impl Fn(T, u32) -> u64) {
        self.chunks.clear();
        self.rows = lengths.len();
        if self.keys.len() < self.rows {
            self.keys.resize(self.rows, 0);
        }
        let starts = starts.chunks(KEY_CHUNK_ROWS);
        let lengths = lengths.chunks(KEY_CHUNK_ROWS);
        for ((keys, starts), lengths) in
            self.keys.chunks_mut(KEY_CHUNK_ROWS).zip(starts).zip(lengths)
        {
            let (mut smallest, mut largest) = (u64::MAX, 0);
            // No closure over these two, which would keep them in memory.
            for ((to, start), length) in keys.iter_mut().zip(starts).zip(lengths) {
                let key = key(*start, *length);
                // The key of an empty string is 0; the subtraction makes it the largest number.
                smallest = smallest.min(key.wrapping_sub(1));
                largest = largest.max(key);
                *to = key;
            }
            // No key has the value `u64::MAX`.
            let smallest = if largest > 0 { smallest.wrapping_add(1) } else { u64::MAX };
            self.chunks.push(KeyRange { smallest, largest });
        }
    }
}

impl StringBytes {
    /// Computes the keys of a range of rows from `depth` on.
    fn fill_row_keys(&self, lengths: &[u32], rows: Range<usize>, depth: usize, keys: &mut RowKeys) {
        let lengths = lengths.get(rows.clone()).unwrap_or_default();
        let rest = move |length: u32| (length as usize).saturating_sub(depth);
        match self {
            Self::Small(offsets, bytes) => {
                keys.fill_from_offsets(
                    offsets.get(rows).unwrap_or_default(),
                    bytes,
                    lengths,
                    depth,
                );
            }
            Self::Large(offsets, bytes) => {
                keys.fill_from_offsets(
                    offsets.get(rows).unwrap_or_default(),
                    bytes,
                    lengths,
                    depth,
                );
            }
            Self::View(views, buffers) => {
                let views = views.get(rows).unwrap_or_default();
                keys.fill_keys(views, lengths, move |view, length| {
                    if length <= 12 {
                        return inline_view_key(view, depth, rest(length));
                    }
                    match locate_view(view, buffers) {
                        Some((bytes, start)) => string_key(bytes, start + depth, rest(length)),
                        None => 0,
                    }
                });
            }
        }
    }

    fn value_at(&self, row: usize, lengths: &[u32]) -> Option<&[u8]> {
        let length = *lengths.get(row)? as usize;
        let (bytes, start) = self.locate_value(row, length)?;
        bytes.get(start..start + length)
    }

    /// Returns the buffer and the offset of a row's bytes, of which there are `length`.
    #[inline]
    fn locate_value(&self, row: usize, length: usize) -> Option<(&[u8], usize)> {
        Some(match self {
            Self::Small(offsets, bytes) => (bytes, offsets.get(row)?.as_usize()),
            Self::Large(offsets, bytes) => (bytes, offsets.get(row)?.as_usize()),
            Self::View(views, _) if length <= 12 => {
                let views: &[u8] = views.inner();
                (views, row * 16 + 4)
            }
            Self::View(views, buffers) => locate_view(*views.get(row)?, buffers)?,
        })
    }
}

/// Returns the buffer and the offset of the bytes of a view that is not inline.
#[inline]
fn locate_view(view: u128, buffers: &[Buffer]) -> Option<(&[u8], usize)> {
    let buffer = usize::try_from(view >> 64 & 0xFFFF_FFFF).ok()?;
    Some((buffers.get(buffer)?, usize::try_from(view >> 96).ok()?))
}

/// Returns the longest prefix of whole characters that fits a bound.
fn string_lower_bound(text: &[u8]) -> &[u8] {
    if text.len() <= STRING_BOUND_BYTES_MAX {
        return text;
    }
    let is_start = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    let end = (0..=STRING_BOUND_BYTES_MAX).rev().find(is_start).unwrap_or_default();
    text.get(..end).unwrap_or_default()
}

/// Returns a text that is not smaller and fits a bound.
fn string_upper_bound(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() <= STRING_BOUND_BYTES_MAX {
        return Some(text.into());
    }
    let mut kept: Vec<char> = std::str::from_utf8(string_lower_bound(text)).ok()?.chars().collect();
    while let Some(last) = kept.pop() {
        let next =
            char::from_u32(u32::from(last) + 1).filter(|next| next.len_utf8() == last.len_utf8());
        if let Some(next) = next {
            kept.push(next);
            return Some(kept.into_iter().collect::<String>().into_bytes());
        }
    }
    None
}

/// Returns bytes that are not smaller and fit a bound.
fn binary_upper_bound(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() <= STRING_BOUND_BYTES_MAX {
        return Some(bytes.into());
    }
    let mut kept = bytes.get(..STRING_BOUND_BYTES_MAX)?.to_vec();
    while let Some(last) = kept.pop() {
        if let Some(next) = last.checked_add(1) {
            kept.push(next);
            return Some(kept);
        }
    }
    None
}
