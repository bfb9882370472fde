//! The smallest and the largest value of each column in each block, so that blocks can be
//! skipped.
//!
//! Integers, booleans and dates come with the block's layout for nothing. Strings are compared by their
//! first 8 bytes as one big-endian integer, and in full only where these are equal; what is kept is a
//! bound of at most 32 bytes.

use std::ops::Range;

use arrow_buffer::{ArrowNativeType, NullBuffer, i256};

use crate::columns::{Bytes, Column, Columns, Values};
use crate::encode::{Ranges, Span};
use crate::error::Fault;
use crate::layout::{LeafKind, Record};
use crate::schema::{Field, Type};

/// Bytes of a string's bound.
const BOUND_BYTES_MAX: usize = 32;

/// The statistics of a block: one for each column that has any.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct BlockStatistics(pub Vec<Statistic>);

/// What is known of a column in a block.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Statistic {
    pub nulls: u32,
    /// No value is smaller than the first or larger than the second.
    pub bounds: Option<(Vec<u8>, Vec<u8>)>,
}

/// The first `count` bytes, past which it moves.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Fault> {
    let (head, rest) =
        bytes.split_at_checked(count).ok_or_else(|| Fault::damaged("it ends too early"))?;
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

    pub(crate) fn parse(bytes: &mut &[u8], columns: usize) -> Result<Self, Fault> {
        // Each takes 5 bytes at least.
        if columns > bytes.len() / 5 {
            return Err(Fault::damaged("it ends within its statistics"));
        }
        let mut all = Vec::with_capacity(columns);
        for _ in 0..columns {
            let head = take(bytes, 5)?;
            let nulls = head.first_chunk().map_or(0, |nulls| u32::from_le_bytes(*nulls));
            let mut bound = || -> Result<Vec<u8>, Fault> {
                let length = take(bytes, 1)?.first().copied().unwrap_or_default();
                Ok(take(bytes, length.into())?.to_vec())
            };
            let bounds = match head.last() {
                Some(0) => None,
                Some(1) => Some((bound()?, bound()?)),
                _ => return Err(Fault::damaged("statistics that are neither there nor not")),
            };
            all.push(Statistic { nulls, bounds });
        }
        Ok(Self(all))
    }
}

/// The leaves that have statistics: those that are no structs and not in lists.
pub(crate) fn leaves(record: &Record) -> Vec<u32> {
    let has_any = |kind| !matches!(kind, LeafKind::Null | LeafKind::Struct | LeafKind::List { .. });
    (0..).zip(&record.leaves).filter(|(_, leaf)| has_any(leaf.kind)).map(|(leaf, _)| leaf).collect()
}

/// The types of a record's leaves, in their order.
pub(crate) fn leaf_fields(fields: &[Field]) -> Vec<&Field> {
    let mut all = Vec::new();
    for field in fields {
        all.push(field);
        if let Type::Struct(inner) = &field.kind {
            all.extend(leaf_fields(inner));
        }
    }
    all
}

/// The statistics of a block.
pub(crate) fn of_block(
    record: &Record,
    fields: &[&Field],
    ranges: &Ranges,
    parts: &[(&Columns, Range<usize>)],
) -> BlockStatistics {
    let all = leaves(record).into_iter().map(|leaf| {
        let leaf = leaf as usize;
        let columns: Vec<(&Column, Range<usize>)> = parts
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
                bounds(place.kind, field, ranges, &columns, nulls)
            }
            _ => None,
        };
        Statistic { nulls: u32::try_from(nulls).unwrap_or(u32::MAX), bounds }
    });
    BlockStatistics(all.collect())
}

fn bounds(
    kind: LeafKind,
    field: &Field,
    ranges: &Ranges,
    columns: &[(&Column, Range<usize>)],
    nulls: usize,
) -> Option<(Vec<u8>, Vec<u8>)> {
    match kind {
        // The order of an enum's symbols is not that of their names.
        LeafKind::Integer { .. } if matches!(field.kind, Type::Enum { .. }) => None,
        LeafKind::Boolean { bit } => {
            let (zero, one) = *ranges.bits.get(bit)?;
            // A null is kept as false, so that where there are any, false may be none.
            let min = u8::from(!zero && nulls == 0);
            Some((vec![min], vec![u8::from(one)]))
        }
        LeafKind::Integer { slot } => match ranges.slots.get(slot)? {
            Span::Signed(min, max) => Some((min.to_le_bytes().into(), max.to_le_bytes().into())),
            Span::Unsigned(min, max) => Some((min.to_le_bytes().into(), max.to_le_bytes().into())),
            _ => None,
        },
        LeafKind::Wide { .. } => {
            let (mut min, mut max) = (i256::MAX, i256::MIN);
            for (column, rows) in columns {
                for row in rows.clone() {
                    if column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                        let value = match &column.values {
                            Values::Wide128(values) => i256::from_i128(*values.get(row)?),
                            Values::Wide256(values) => *values.get(row)?,
                            _ => return None,
                        };
                        (min, max) = (min.min(value), max.max(value));
                    }
                }
            }
            Some((min.to_le_bytes().into(), max.to_le_bytes().into()))
        }
        LeafKind::Float { .. } => floats(field, columns),
        LeafKind::Fixed { .. } => None,
        LeafKind::Bytes { .. } => {
            let mut extremes = Extremes { min: None, max: None, heads: (u64::MAX, 0) };
            for (column, rows) in columns {
                let Values::Bytes { lengths, source } = &column.values else { return None };
                extremes.take_all(source, lengths, column.nulls.as_ref(), rows.clone());
            }
            let (min, max) = (extremes.min?, extremes.max?);
            let (min, max) = match field.kind {
                Type::String => (text_below(min), text_above(max)?),
                _ => (min.get(..BOUND_BYTES_MAX).unwrap_or(min), bytes_above(max)?),
            };
            Some((min.into(), max))
        }
        _ => None,
    }
}

/// Bounds of floats, as 64-bit ones. None where there is a NaN, which has no place in the order; a zero counts as
/// both zeros.
fn floats(field: &Field, columns: &[(&Column, Range<usize>)]) -> Option<(Vec<u8>, Vec<u8>)> {
    // Only the two that are common: halves are rare, and converting them is slow.
    let (mut min, mut max, mut is_number) = (f64::INFINITY, f64::NEG_INFINITY, true);
    let mut take = |value: f64| {
        (min, max) = (min.min(value), max.max(value));
        is_number &= !value.is_nan();
    };
    for (column, rows) in columns {
        for row in rows.clone() {
            if column.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            match (&column.values, &field.kind) {
                (Values::Float32(values), _) => take(f32::from_bits(*values.get(row)?).into()),
                (Values::Float64(values), _) => take(f64::from_bits(*values.get(row)?)),
                _ => return None,
            }
        }
    }
    let zero = |value: f64, zero: f64| if value == 0.0 { zero } else { value };
    is_number.then(|| (zero(min, -0.0).to_le_bytes().into(), zero(max, 0.0).to_le_bytes().into()))
}

/// Compares strings whose first 8 bytes, or all of them and zeros, are the same.
fn is_less(value: &[u8], than: Option<&[u8]>) -> bool {
    than.is_none_or(|than| match value.len().max(than.len()) <= 8 {
        true => value.len() < than.len(),
        false => value < than,
    })
}

fn is_greater(value: &[u8], than: Option<&[u8]>) -> bool {
    than.is_none_or(|than| match value.len().max(than.len()) <= 8 {
        true => value.len() > than.len(),
        false => value > than,
    })
}

/// The smallest and the largest of some strings.
struct Extremes<'a> {
    min: Option<&'a [u8]>,
    max: Option<&'a [u8]>,
    /// Their first 8 bytes, as numbers that compare as they do.
    heads: (u64, u64),
}

impl<'a> Extremes<'a> {
    #[inline]
    fn take(&mut self, head: u64, value: &'a [u8]) {
        if head < self.heads.0 || head == self.heads.0 && is_less(value, self.min) {
            (self.min, self.heads.0) = (Some(value), head);
        }
        if head > self.heads.1 || head == self.heads.1 && is_greater(value, self.max) {
            (self.max, self.heads.1) = (Some(value), head);
        }
    }

    fn take_all(
        &mut self,
        source: &'a Bytes,
        lengths: &[u32],
        nulls: Option<&NullBuffer>,
        rows: Range<usize>,
    ) {
        for row in rows {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let length = lengths.get(row).map_or(0, |length| *length as usize);
            if let Some((head, value)) = source.value(row, length) {
                self.take(head, value);
            }
        }
    }
}

impl Bytes {
    /// The bytes of a row, which are `length`, and the first 8 of them as a number.
    #[inline]
    fn value(&self, row: usize, length: usize) -> Option<(u64, &[u8])> {
        let (bytes, start): (&[u8], usize) = match self {
            Self::Small(offsets, bytes) => (bytes, offsets.get(row)?.as_usize()),
            Self::Large(offsets, bytes) => (bytes, offsets.get(row)?.as_usize()),
            Self::View(views, buffers) => {
                if length <= 12 {
                    let views: &[u8] = views.inner();
                    (views, row * 16 + 4)
                } else {
                    let view = views.get(row)?;
                    let buffer = usize::try_from(view >> 64 & 0xFFFF_FFFF).ok()?;
                    (buffers.get(buffer)?, usize::try_from(view >> 96).ok()?)
                }
            }
        };
        let value = bytes.get(start..start + length)?;
        let head = match bytes.get(start..).and_then(|bytes| bytes.first_chunk()) {
            // Of what follows the value nothing is kept.
            Some(head) if length > 0 => {
                u64::from_be_bytes(*head) & u64::MAX << (64 - 8 * length.min(8))
            }
            _ => {
                let mut head = [0; 8];
                head.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
                u64::from_be_bytes(head)
            }
        };
        Some((head, value))
    }
}

/// The longest prefix of whole characters that is short enough.
fn text_below(text: &[u8]) -> &[u8] {
    if text.len() <= BOUND_BYTES_MAX {
        return text;
    }
    let is_start = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    let end = (0..=BOUND_BYTES_MAX).rev().find(is_start).unwrap_or_default();
    text.get(..end).unwrap_or_default()
}

/// A text that is not smaller and is short enough.
fn text_above(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() <= BOUND_BYTES_MAX {
        return Some(text.into());
    }
    let mut kept: Vec<char> = std::str::from_utf8(text_below(text)).ok()?.chars().collect();
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

/// Bytes that are not smaller and few enough.
fn bytes_above(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() <= BOUND_BYTES_MAX {
        return Some(bytes.into());
    }
    let mut kept = bytes.get(..BOUND_BYTES_MAX)?.to_vec();
    while let Some(last) = kept.pop() {
        if let Some(next) = last.checked_add(1) {
            kept.push(next);
            return Some(kept);
        }
    }
    None
}
