//! Encoding of columns into rows, one block at a time.
//!
//! ```text
//!   columns ─ include_rows ─► params ─► layout ─ sizes ─► starts ─ write ─► rows
//!             (1st pass over values)          (lengths only)   (2nd pass)
//! ```
//!
//! The second pass goes column by column through a tile of rows that stays in the L1 and L2 caches: each loop
//! is specialized to its type, and every cache line is written once. A column's loop touches one cache line
//! of each row, so a tile may have as many rows as the L1 cache has lines to spare. With tiles of only 36
//! event rows, switching between columns took as long as a fifth of the copying. Strings are copied 16, 32 or
//! 64 bytes at a time, by the longest of a tile. The surplus bytes are overwritten later: by later values of
//! the same row, or by the next row if a string is the only variable-length value of a row.

use std::ops::Range;

use arrow_buffer::{ArrowNativeType, NullBuffer};

use crate::columns::{LeafColumns, LeafValues, StringBytes, with_integers};
use crate::error::{Error, Result};
use crate::row_layout::{
    BLOCK_BYTES_MAX, BitLayout, BlockLayout, LayoutParams, LeafKind, RowStructure, SlotKind,
    SlotLayout, byte_width,
};

/// Maximum bytes of rows that are written before the next column: they stay in the L2
/// cache.
const TILE_BYTES: usize = 128 << 10;
/// Maximum rows in a tile: the cache lines that they are written to stay in the L1 cache.
const TILE_ROWS_MAX: usize = 256;

/// Maximum number of bytes that a fixed-size copy of a string with its prefix writes; the buffer has as many
/// spare bytes behind a block.
const STRING_SLACK_BYTES: usize = 4 + 64;

/// The ranges of the values of a block.
#[derive(Debug, Clone)]
pub(crate) struct ValueRanges {
    pub bits: Vec<(bool, bool)>,
    pub slots: Vec<SlotRange>,
    pub children: Vec<ValueRanges>,
}

/// The range of the values of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotRange {
    /// No value yet.
    Empty,
    Signed(i64, i64),
    Unsigned(u64, u64),
    /// All values have these bits.
    SameBits(u64),
    /// Values need the slot's whole width.
    FullWidth,
}

impl ValueRanges {
    pub(crate) fn new(record: &RowStructure) -> Self {
        Self {
            bits: vec![(false, false); record.bit_count],
            slots: vec![SlotRange::Empty; record.slots.len()],
            children: record.children.iter().map(Self::new).collect(),
        }
    }

    pub(crate) fn layout_params(&self, record: &RowStructure) -> LayoutParams {
        let mut extent = LayoutParams::empty(record);
        extent.bits.clone_from(&self.bits);
        for ((slot, span), kind) in extent.slots.iter_mut().zip(&self.slots).zip(&record.slots) {
            let full = match *kind {
                SlotKind::Integer { bytes, .. }
                | SlotKind::Wide { bytes }
                | SlotKind::Float { bytes } => u32::from(bytes),
                SlotKind::Fixed { bytes } => {
                    *slot = (0, bytes);
                    continue;
                }
                SlotKind::Length | SlotKind::Prefix => 4,
            };
            *slot = match *span {
                SlotRange::Empty => (0, 0),
                SlotRange::Signed(min, max) => {
                    (min.cast_unsigned(), byte_width(max.wrapping_sub(min).cast_unsigned()))
                }
                SlotRange::Unsigned(min, max) => (min, byte_width(max.wrapping_sub(min))),
                SlotRange::SameBits(bits) => (bits, 0),
                SlotRange::FullWidth => (0, full),
            };
        }
        let children = self.children.iter().zip(&record.children);
        extent.children = children.map(|(ranges, record)| ranges.layout_params(record)).collect();
        extent
    }

    fn include_bit(&mut self, bit: usize, zero: bool, one: bool) {
        if let Some(seen) = self.bits.get_mut(bit) {
            seen.0 |= zero;
            seen.1 |= one;
        }
    }

    fn include_signed(&mut self, slot: usize, min: i64, max: i64) {
        if let Some(span) = self.slots.get_mut(slot) {
            *span = match *span {
                SlotRange::Signed(low, high) => SlotRange::Signed(low.min(min), high.max(max)),
                SlotRange::Empty => SlotRange::Signed(min, max),
                other => other,
            };
        }
    }

    fn include_unsigned(&mut self, slot: usize, min: u64, max: u64) {
        if let Some(span) = self.slots.get_mut(slot) {
            *span = match *span {
                SlotRange::Unsigned(low, high) => SlotRange::Unsigned(low.min(min), high.max(max)),
                _ => SlotRange::Unsigned(min, max),
            };
        }
    }

    fn include_bits(&mut self, slot: usize, bits: Option<u64>) {
        if let Some(span) = self.slots.get_mut(slot) {
            *span = match (*span, bits) {
                (SlotRange::Empty, Some(bits)) => SlotRange::SameBits(bits),
                (SlotRange::SameBits(seen), Some(bits)) if seen == bits => {
                    SlotRange::SameBits(seen)
                }
                _ => SlotRange::FullWidth,
            };
        }
    }

    /// Extends the ranges by `rows` of `columns`.
    pub(crate) fn include_rows(
        &mut self,
        record: &RowStructure,
        columns: &LeafColumns,
        rows: Range<usize>,
    ) {
        for (leaf, column) in record.leaves.iter().zip(&columns.leaves) {
            let nulls = column.nulls.as_ref().map(|nulls| nulls.slice(rows.start, rows.len()));
            let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
            let null_count = nulls.as_ref().map_or(0, NullBuffer::null_count);
            if let Some(bit) = leaf.null_bit {
                self.include_bit(bit, null_count < rows.len(), null_count > 0);
            }
            let nulls = nulls.as_ref();
            let is_all_null = null_count == rows.len();
            match (leaf.kind, &column.values) {
                (LeafKind::Boolean { bit }, LeafValues::Boolean(values)) => {
                    let values = values.slice(rows.start, rows.len());
                    let ones = match nulls {
                        Some(nulls) => (&values & nulls.inner()).count_set_bits(),
                        None => values.count_set_bits(),
                    };
                    // A null is stored as false.
                    self.include_bit(bit, ones < rows.len(), ones > 0);
                }
                (LeafKind::Integer { slot }, LeafValues::Integer(integers)) if !is_all_null => {
                    with_integers!(integers, values => {
                        self.include_integers(slot, &values[rows.clone()], nulls);
                    });
                }
                (LeafKind::Wide { slot }, LeafValues::Wide128(values)) if !is_all_null => {
                    let values = &values[rows.clone()];
                    let (min, max) = find_extremes(values, nulls, i128::MAX, i128::MIN);
                    self.include_wide(slot, i64::try_from(min).ok(), i64::try_from(max).ok());
                }
                (LeafKind::Wide { slot }, LeafValues::Wide256(values)) if !is_all_null => {
                    let values = &values[rows.clone()];
                    let (min, max) = find_extremes(
                        values,
                        nulls,
                        arrow_buffer::i256::MAX,
                        arrow_buffer::i256::MIN,
                    );
                    let narrow = |value: arrow_buffer::i256| {
                        value.to_i128().and_then(|value| i64::try_from(value).ok())
                    };
                    self.include_wide(slot, narrow(min), narrow(max));
                }
                (LeafKind::Float { slot }, LeafValues::Float16(values)) => {
                    self.include_float_bits(slot, &values[rows.clone()], nulls);
                }
                (LeafKind::Float { slot }, LeafValues::Float32(values)) => {
                    self.include_float_bits(slot, &values[rows.clone()], nulls);
                }
                (LeafKind::Float { slot }, LeafValues::Float64(values)) => {
                    self.include_float_bits(slot, &values[rows.clone()], nulls);
                }
                (LeafKind::Bytes { slot }, LeafValues::Bytes { lengths, .. })
                    if !rows.is_empty() =>
                {
                    let (min, max) = find_extremes(&lengths[rows.clone()], None, u32::MAX, 0);
                    self.include_unsigned(slot, min.into(), max.into());
                }
                (LeafKind::List { count, child, .. }, LeafValues::List { offsets, items }) => {
                    let offsets = &offsets[rows.start..=rows.end];
                    let (mut min, mut max) = (u32::MAX, 0);
                    for pair in offsets.windows(2) {
                        if let &[start, end] = pair {
                            min = min.min(end - start);
                            max = max.max(end - start);
                        }
                    }
                    if min <= max {
                        self.include_unsigned(count, min.into(), max.into());
                    }
                    let range = offset_range(offsets);
                    if let (Some(ranges), Some(record)) =
                        (self.children.get_mut(child), record.children.get(child))
                    {
                        ranges.include_rows(record, items, range);
                    }
                }
                _ => {}
            }
        }
    }

    fn include_integers<T: SlotInteger>(
        &mut self,
        slot: usize,
        values: &[T],
        nulls: Option<&NullBuffer>,
    ) {
        if !values.is_empty() {
            let (min, max) = find_extremes(values, nulls, T::HIGHEST, T::LOWEST);
            match T::span(min, max) {
                SlotRange::Signed(min, max) => self.include_signed(slot, min, max),
                SlotRange::Unsigned(min, max) => self.include_unsigned(slot, min, max),
                _ => {}
            }
        }
    }

    fn include_wide(&mut self, slot: usize, min: Option<i64>, max: Option<i64>) {
        match (min, max) {
            (Some(min), Some(max)) if min <= max => self.include_signed(slot, min, max),
            (Some(_), Some(_)) => {}
            _ => {
                if let Some(span) = self.slots.get_mut(slot) {
                    *span = SlotRange::FullWidth;
                }
            }
        }
    }

    fn include_float_bits<T: Copy + Into<u64>>(
        &mut self,
        slot: usize,
        values: &[T],
        nulls: Option<&NullBuffer>,
    ) {
        if self.slots.get(slot) == Some(&SlotRange::FullWidth) {
            return;
        }
        for (row, value) in values.iter().enumerate() {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                self.include_bits(slot, Some((*value).into()));
                if self.slots.get(slot) == Some(&SlotRange::FullWidth) {
                    return;
                }
            }
        }
    }

    /// Extends a slot by the byte lengths of lists, which are known once the items' layouts are: completes
    /// [`include_rows`](Self::include_rows).
    fn include_item_bytes(&mut self, slot: usize, min: u32, max: u32) {
        self.include_unsigned(slot, min.into(), max.into());
    }
}

/// An integer type whose values have a [`SlotRange`].
trait SlotInteger: Copy + Ord {
    const LOWEST: Self;
    const HIGHEST: Self;

    /// Returns the range between two values.
    fn span(min: Self, max: Self) -> SlotRange;

    /// Returns the value sign-extended to 64 bits.
    fn wide(self) -> u64;
}

macro_rules! bounds {
    ($($span:ident: $($native:ty),*;)*) => {
        $($(impl SlotInteger for $native {
            const LOWEST: Self = <$native>::MIN;
            const HIGHEST: Self = <$native>::MAX;

            fn span(min: Self, max: Self) -> SlotRange {
                SlotRange::$span(min.into(), max.into())
            }

            fn wide(self) -> u64 {
                self as u64
            }
        })*)*
    };
}
bounds! {
    Signed: i8, i16, i32, i64;
    Unsigned: u8, u16, u32, u64;
}

/// Returns the smallest and the largest value that is not null.
fn find_extremes<T: Copy + Ord>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    highest: T,
    lowest: T,
) -> (T, T) {
    let both = |(min, max): (T, T), value: &T| (min.min(*value), max.max(*value));
    let Some(nulls) = nulls else { return values.iter().fold((highest, lowest), both) };
    let mut found = (highest, lowest);
    for (start, end) in nulls.valid_slices() {
        found = values.get(start..end).unwrap_or_default().iter().fold(found, both);
    }
    found
}

/// Returns the range from the first to the last offset.
fn offset_range(offsets: &[u32]) -> Range<usize> {
    let at = |offset: Option<&u32>| offset.copied().unwrap_or_default() as usize;
    at(offsets.first())..at(offsets.last())
}

/// The size in bytes of each row, and of the items in its lists.
#[derive(Debug, Default)]
pub(crate) struct RowSizes {
    pub rows: Vec<u32>,
    /// Sizes of the items of each list, in the order of the structure's children.
    children: Vec<RowSizes>,
}

/// The error for rows that exceed a block; contains their size.
pub(crate) struct RowsTooLarge(pub u64);

impl RowSizes {
    /// Computes the sizes of `rows`.
    fn new(
        record: &RowStructure,
        layout: &BlockLayout,
        columns: &LeafColumns,
        rows: &Range<usize>,
    ) -> Result<Self, RowsTooLarge> {
        let prefixes = record.leaves.iter().filter_map(|leaf| match leaf.kind {
            LeafKind::Bytes { slot } => layout.slots.get(slot).map(|slot| slot.width as usize),
            _ => None,
        });
        let least = layout.fixed_bytes + prefixes.sum::<usize>();
        let least = u32::try_from(least).map_err(|_| RowsTooLarge(least as u64))?;
        let strings = columns.string_bytes.get(rows.clone()).unwrap_or_default();
        let sizes = strings.iter().map(|bytes| bytes.saturating_add(least)).collect();
        let mut sizes = Self { rows: sizes, children: Vec::new() };
        for (leaf, column) in record.leaves.iter().zip(&columns.leaves) {
            if let (LeafValues::List { offsets, items }, LeafKind::List { child, .. }) =
                (&column.values, leaf.kind)
            {
                let offsets = &offsets[rows.start..=rows.end];
                let range = offset_range(offsets);
                let (Some(record), Some(layout)) =
                    (record.children.get(child), layout.children.get(child))
                else {
                    continue;
                };
                let inner = Self::new(record, layout, items, &range)?;
                for (size, total) in
                    sizes.rows.iter_mut().zip(sums_between_offsets(&inner.rows, offsets))
                {
                    *size = size.saturating_add(total);
                }
                sizes.children.push(inner);
            }
        }
        let largest = sizes.rows.iter().fold(0, |max: u32, size| max.max(*size));
        if u64::from(largest) > BLOCK_BYTES_MAX {
            return Err(RowsTooLarge(u64::from(largest)));
        }
        Ok(sizes)
    }
}

/// Returns the sums of `sizes` between `offsets`, whose first may be any number.
fn sums_between_offsets<'a>(
    sizes: &'a [u32],
    offsets: &'a [u32],
) -> impl Iterator<Item = u32> + 'a {
    let first = offsets.first().copied().unwrap_or_default();
    offsets.windows(2).map(move |pair| match pair {
        &[start, end] => {
            let sizes = sizes.get((start - first) as usize..(end - first) as usize);
            sizes.unwrap_or_default().iter().fold(0, |sum: u32, size| sum.saturating_add(*size))
        }
        _ => 0,
    })
}

/// Returns the size of each row in the plain layout, an upper bound of its size in any block.
pub(crate) fn row_sizes_max(record: &RowStructure, columns: &LeafColumns) -> Result<Vec<u32>> {
    let limit = |found| Error::TooLarge { what: "a row", found, limit: BLOCK_BYTES_MAX };
    let layout = BlockLayout::new_plain(record, 4).map_err(limit)?;
    let sizes = RowSizes::new(record, &layout, columns, &(0..columns.rows));
    Ok(sizes.map_err(|RowsTooLarge(found)| limit(found))?.rows)
}

/// Returns for each row the width, 1, 2 or 4, that all its lengths fit when it is encoded by itself.
pub(crate) fn length_widths(record: &RowStructure, columns: &LeafColumns) -> Result<Vec<u8>> {
    let limit = |found| Error::TooLarge { what: "a row", found, limit: BLOCK_BYTES_MAX };
    let rows = 0..columns.rows;
    let mut widths = vec![4; columns.rows];
    for width in [1_u8, 2] {
        let layout = BlockLayout::new_plain(record, width.into()).map_err(limit)?;
        let sizes = RowSizes::new(record, &layout, columns, &rows);
        let sizes = sizes.map_err(|RowsTooLarge(found)| limit(found))?;
        let longest = longest_lengths(record, columns, &rows, &sizes);
        let mut is_done = true;
        for (found, longest) in widths.iter_mut().zip(longest) {
            match longest >> (8 * width) {
                0 => *found = (*found).min(width),
                _ => is_done = false,
            }
        }
        if is_done {
            break;
        }
    }
    Ok(widths)
}

/// Returns the largest length in each row, including those in its items.
fn longest_lengths(
    record: &RowStructure,
    columns: &LeafColumns,
    rows: &Range<usize>,
    sizes: &RowSizes,
) -> Vec<u32> {
    let mut longest = vec![0; rows.len()];
    for (leaf, column) in record.leaves.iter().zip(&columns.leaves) {
        match (&column.values, leaf.kind) {
            (LeafValues::Bytes { lengths, .. }, _) => {
                let lengths = lengths.get(rows.clone()).unwrap_or_default();
                for (longest, length) in longest.iter_mut().zip(lengths) {
                    *longest = (*longest).max(*length);
                }
            }
            (LeafValues::List { offsets, items }, LeafKind::List { bytes, child, .. }) => {
                let (Some(record), Some(sizes)) =
                    (record.children.get(child), sizes.children.get(child))
                else {
                    continue;
                };
                let offsets = &offsets[rows.start..=rows.end];
                let inner = self::longest_lengths(record, items, &offset_range(offsets), sizes);
                let first = offsets.first().copied().unwrap_or_default();
                let totals = sums_between_offsets(&sizes.rows, offsets);
                for ((longest, pair), total) in
                    longest.iter_mut().zip(offsets.windows(2)).zip(totals)
                {
                    let &[start, end] = pair else { continue };
                    let inner = inner.get((start - first) as usize..(end - first) as usize);
                    let items = inner.unwrap_or_default().iter().max().copied().unwrap_or_default();
                    let bytes = if bytes.is_some() { total } else { 0 };
                    *longest = (*longest).max(end - start).max(items).max(bytes);
                }
            }
            _ => {}
        }
    }
    longest
}

/// Writes the layout and the rows of a block from `parts`, each with columns and a range of their rows.
/// The block begins at `at` of `out`, which grows as needed and may contain any bytes, so that the
/// writer's memory is not cleared for each block. Returns the ranges of the values and the end of
/// the block.
pub(crate) fn encode_block(
    record: &RowStructure,
    parts: &[(&LeafColumns, Range<usize>)],
    out: &mut Vec<u8>,
    at: usize,
) -> Result<(ValueRanges, usize)> {
    let mut ranges = ValueRanges::new(record);
    for (columns, rows) in parts {
        ranges.include_rows(record, columns, rows.clone());
    }
    let layout = compute_block_layout(record, &mut ranges, parts).map_err(block_too_large_error)?;
    let mut head = Vec::new();
    layout.write(record, &mut head);
    let mut at = at + head.len();
    if out.len() < at {
        out.resize(at, 0);
    }
    out[at - head.len()..at].copy_from_slice(&head);
    for (columns, rows) in parts {
        (_, at) = write_rows_at(record, &layout, columns, rows, None, out, at)?;
    }
    Ok((ranges, at))
}

fn block_too_large_error(RowsTooLarge(found): RowsTooLarge) -> Error {
    Error::TooLarge { what: "a block", found, limit: BLOCK_BYTES_MAX }
}

/// Encodes all rows of `columns` in `layout`, each with `head` before it. Returns
/// the bytes and the sizes of the rows without their heads.
pub(crate) fn encode_single_rows(
    record: &RowStructure,
    layout: &BlockLayout,
    columns: &LeafColumns,
    head: u8,
) -> Result<(Vec<u8>, Vec<u32>)> {
    let mut out = Vec::new();
    let rows = 0..columns.rows;
    let (sizes, end) = write_rows_at(record, layout, columns, &rows, Some(head), &mut out, 0)?;
    out.truncate(end);
    Ok((out, sizes.rows))
}

/// Writes rows from `at` on. Returns their sizes and their end.
fn write_rows_at(
    record: &RowStructure,
    layout: &BlockLayout,
    columns: &LeafColumns,
    rows: &Range<usize>,
    head: Option<u8>,
    out: &mut Vec<u8>,
    at: usize,
) -> Result<(RowSizes, usize)> {
    let sizes = RowSizes::new(record, layout, columns, rows).map_err(block_too_large_error)?;
    let gap = u32::from(head.is_some());
    let all: u64 = sizes.rows.iter().map(|size| u64::from(*size)).sum();
    let end = at as u64 + all + u64::from(gap) * sizes.rows.len() as u64;
    if end > BLOCK_BYTES_MAX {
        return Err(block_too_large_error(RowsTooLarge(end)));
    }
    // Fits: blocks are smaller than 4 GiB, and so are positions in them.
    let mut next = u32::try_from(at).map_err(|_| block_too_large_error(RowsTooLarge(end)))?;
    let starts = sizes.rows.iter().map(|size| {
        let start = next + gap;
        next = start + size;
        start
    });
    let starts: Vec<u32> = starts.collect();
    let end = usize::try_from(end).map_err(|_| block_too_large_error(RowsTooLarge(end)))?;
    if out.len() < end + STRING_SLACK_BYTES {
        out.resize(end + STRING_SLACK_BYTES, 0);
    }
    BlockRowWriter { record, layout, columns, sizes: &sizes, is_list_items: false }.write_rows(
        rows.clone(),
        &starts,
        out,
    );
    if let Some(head) = head {
        // Written last: string copies may have overwritten the heads.
        for start in &starts {
            out[*start as usize - 1] = head;
        }
    }
    Ok((sizes, end))
}

/// Computes the layout of a block, from the innermost items outwards, because the byte length of a list's
/// items depends on their layout.
fn compute_block_layout(
    record: &RowStructure,
    ranges: &mut ValueRanges,
    parts: &[(&LeafColumns, Range<usize>)],
) -> Result<BlockLayout, RowsTooLarge> {
    for (index, leaf) in record.leaves.iter().enumerate() {
        let LeafKind::List { bytes, child, .. } = leaf.kind else { continue };
        let (Some(inner), Some(inner_ranges)) =
            (record.children.get(child), ranges.children.get_mut(child))
        else {
            continue;
        };
        let lists = parts.iter().filter_map(|(columns, rows)| match columns.leaves.get(index) {
            Some(crate::columns::LeafArray {
                values: LeafValues::List { offsets, items }, ..
            }) => {
                let offsets = &offsets[rows.start..=rows.end];
                Some((offsets, items))
            }
            _ => None,
        });
        let lists: Vec<_> = lists.collect();
        let inner_parts: Vec<_> =
            lists.iter().map(|(offsets, items)| (*items, offset_range(offsets))).collect();
        let layout = compute_block_layout(inner, inner_ranges, &inner_parts)?;
        let Some(slot) = bytes else { continue };
        for (offsets, items) in lists {
            let sizes = RowSizes::new(inner, &layout, items, &offset_range(offsets))?;
            let (min, max) = sums_between_offsets(&sizes.rows, offsets)
                .fold((u32::MAX, 0), |(min, max), total| (min.min(total), max.max(total)));
            if u64::from(max) > BLOCK_BYTES_MAX {
                return Err(RowsTooLarge(u64::from(max)));
            }
            if min <= max {
                ranges.include_item_bytes(slot, min, max);
            }
        }
    }
    BlockLayout::new(record, &ranges.layout_params(record)).map_err(RowsTooLarge)
}

/// A writer of rows from columns.
struct BlockRowWriter<'a> {
    record: &'a RowStructure,
    layout: &'a BlockLayout,
    columns: &'a LeafColumns,
    sizes: &'a RowSizes,
    /// True for a list's items, which lie between bytes that are already written.
    is_list_items: bool,
}

impl BlockRowWriter<'_> {
    /// Writes `rows`, which begin at `starts` of `out`.
    fn write_rows(&self, rows: Range<usize>, starts: &[u32], out: &mut [u8]) {
        let bytes: usize = self.sizes.rows.iter().map(|size| *size as usize).sum();
        let average = bytes / rows.len().max(1) + 1;
        let tile = (TILE_BYTES / average).clamp(16, TILE_ROWS_MAX);
        // Start of each item of each list.
        let mut inner: Vec<Vec<u32>> =
            self.sizes.children.iter().map(|sizes| Vec::with_capacity(sizes.rows.len())).collect();
        let mut cursors = Vec::with_capacity(tile);
        let mut numbers = Vec::with_capacity(tile);
        let has_one_string = self.record.has_only_one_string() && !self.is_list_items;
        let mut first = 0;
        while first < rows.len() {
            let last = (first + tile).min(rows.len());
            let tile =
                RowTile { first_row: first, column_rows: rows.start + first..rows.start + last };
            let starts = &starts[first..last];
            if has_one_string {
                // Surplus string bytes fall into the next row, whose fixed part is
                // written afterwards.
                self.write_variable_parts(&tile, starts, out.len(), &mut cursors, &mut inner, out);
                self.clear_fixed_parts(starts, out);
                self.write_fixed_parts(&tile, starts, &mut numbers, out);
            } else {
                self.clear_fixed_parts(starts, out);
                self.write_fixed_parts(&tile, starts, &mut numbers, out);
                self.write_variable_parts(&tile, starts, 0, &mut cursors, &mut inner, out);
            }
            first = last;
        }
        for (leaf, column) in self.record.leaves.iter().zip(&self.columns.leaves) {
            if let (LeafKind::List { child, .. }, LeafValues::List { offsets, items }) =
                (leaf.kind, &column.values)
                && let (Some(record), Some(layout), Some(sizes), Some(starts)) = (
                    self.record.children.get(child),
                    self.layout.children.get(child),
                    self.sizes.children.get(child),
                    inner.get(child),
                )
            {
                let range = offset_range(&offsets[rows.start..=rows.end]);
                BlockRowWriter { record, layout, columns: items, sizes, is_list_items: true }
                    .write_rows(range, starts, out);
            }
        }
    }

    /// Clears the fixed parts: bits are set later, nulls are not written, and padding is 0.
    fn clear_fixed_parts(&self, starts: &[u32], out: &mut [u8]) {
        match self.layout.fixed_bytes {
            // A `fill` call for each row would take as long as writing a short string.
            1 => starts.iter().for_each(|start| out[*start as usize] = 0),
            fixed => {
                for start in starts {
                    out[*start as usize..*start as usize + fixed].fill(0);
                }
            }
        }
    }

    fn slot(&self, slot: usize) -> SlotLayout {
        self.layout.slots.get(slot).copied().unwrap_or_default()
    }

    /// Writes bits and slots.
    fn write_fixed_parts(
        &self,
        tile: &RowTile,
        starts: &[u32],
        numbers: &mut Vec<u64>,
        out: &mut [u8],
    ) {
        for (leaf, column) in self.record.leaves.iter().zip(&self.columns.leaves) {
            let nulls = column.nulls.as_ref();
            if let (Some(bit), Some(nulls)) = (leaf.null_bit, nulls)
                && let Some(BitLayout::Stored { byte, mask }) = self.layout.bits.get(bit)
            {
                let valid = nulls.inner().slice(tile.column_rows.start, tile.column_rows.len());
                for (starts, valid) in starts.chunks(64).zip(valid.bit_chunks().iter_padded()) {
                    if valid == u64::MAX {
                        continue;
                    }
                    // No branch: nulls are not predictable.
                    for (row, start) in starts.iter().enumerate() {
                        let is_null = valid >> row & 1 == 0;
                        out[(start + byte) as usize] |= mask * u8::from(is_null);
                    }
                }
            }
            match (leaf.kind, &column.values) {
                (LeafKind::Boolean { bit }, LeafValues::Boolean(values)) => {
                    if let Some(BitLayout::Stored { byte, mask }) = self.layout.bits.get(bit) {
                        for (start, row) in starts.iter().zip(tile.column_rows.clone()) {
                            let is_set =
                                values.value(row) & nulls.is_none_or(|nulls| nulls.is_valid(row));
                            out[(start + byte) as usize] |= mask * u8::from(is_set);
                        }
                    }
                }
                (LeafKind::Integer { slot }, LeafValues::Integer(integers)) => {
                    let slot = self.slot(slot);
                    with_integers!(integers, values => {
                        let values = &values[tile.column_rows.clone()];
                        self.write_numbers(slot, tile, starts, nulls, numbers, out,
                            values.iter().map(|value| value.wide().wrapping_sub(slot.base)));
                    });
                }
                (LeafKind::Wide { slot }, LeafValues::Wide128(values)) => {
                    let slot = self.slot(slot);
                    let values = &values[tile.column_rows.clone()];
                    if slot.width <= 8 {
                        #[expect(clippy::cast_possible_truncation, reason = "it fits")]
                        let values =
                            values.iter().map(|value| (*value as u64).wrapping_sub(slot.base));
                        self.write_numbers(slot, tile, starts, nulls, numbers, out, values);
                    } else {
                        let values = values.iter().map(|value| value.to_le_bytes());
                        self.write_arrays(slot, tile, starts, nulls, out, values);
                    }
                }
                (LeafKind::Wide { slot }, LeafValues::Wide256(values)) => {
                    let slot = self.slot(slot);
                    let values = &values[tile.column_rows.clone()];
                    if slot.width <= 8 {
                        #[expect(clippy::cast_possible_truncation, reason = "it fits")]
                        let values = values
                            .iter()
                            .map(|value| (value.as_i128() as u64).wrapping_sub(slot.base));
                        self.write_numbers(slot, tile, starts, nulls, numbers, out, values);
                    } else {
                        let values = values.iter().map(|value| value.to_le_bytes());
                        self.write_arrays(slot, tile, starts, nulls, out, values);
                    }
                }
                (LeafKind::Float { slot }, LeafValues::Float16(values)) => {
                    let values =
                        values[tile.column_rows.clone()].iter().map(|bits| u64::from(*bits));
                    self.write_numbers(self.slot(slot), tile, starts, nulls, numbers, out, values);
                }
                (LeafKind::Float { slot }, LeafValues::Float32(values)) => {
                    let values =
                        values[tile.column_rows.clone()].iter().map(|bits| u64::from(*bits));
                    self.write_numbers(self.slot(slot), tile, starts, nulls, numbers, out, values);
                }
                (LeafKind::Float { slot }, LeafValues::Float64(values)) => {
                    let values = values[tile.column_rows.clone()].iter().copied();
                    self.write_numbers(self.slot(slot), tile, starts, nulls, numbers, out, values);
                }
                (LeafKind::Fixed { slot }, LeafValues::Fixed { size, bytes }) => {
                    let at = self.slot(slot).offset as usize;
                    for (start, row) in starts.iter().zip(tile.column_rows.clone()) {
                        if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                            let to = *start as usize + at;
                            out[to..to + size]
                                .copy_from_slice(&bytes[row * size..(row + 1) * size]);
                        }
                    }
                }
                (LeafKind::List { count, bytes, child }, LeafValues::List { offsets, .. }) => {
                    let slot = self.slot(count);
                    let all = offsets;
                    let offsets = &all[tile.column_rows.start..=tile.column_rows.end];
                    let counts = offsets.windows(2).map(|pair| match pair {
                        &[start, end] => u64::from(end - start).wrapping_sub(slot.base),
                        _ => 0,
                    });
                    self.write_numbers(slot, tile, starts, None, numbers, out, counts);
                    if let (Some(bytes), Some(sizes)) = (bytes, self.sizes.children.get(child)) {
                        let slot = self.slot(bytes);
                        // The sizes begin with the items of the first written row.
                        let from = all[tile.column_rows.start - tile.first_row];
                        let sizes = &sizes.rows[(offsets[0] - from) as usize..];
                        let values = sums_between_offsets(sizes, offsets)
                            .map(|total| u64::from(total).wrapping_sub(slot.base));
                        self.write_numbers(slot, tile, starts, None, numbers, out, values);
                    }
                }
                _ => {}
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one loop")]
    fn write_numbers(
        &self,
        slot: SlotLayout,
        tile: &RowTile,
        starts: &[u32],
        nulls: Option<&NullBuffer>,
        numbers: &mut Vec<u64>,
        out: &mut [u8],
        values: impl Iterator<Item = u64>,
    ) {
        if slot.width == 0 {
            return;
        }
        numbers.clear();
        numbers.extend(values);
        if let Some(nulls) = nulls {
            for (number, row) in numbers.iter_mut().zip(tile.column_rows.clone()) {
                *number &= u64::from(nulls.is_valid(row)).wrapping_neg();
            }
        }
        match slot.width {
            1 => write_number_bytes::<1>(slot, starts, numbers, out),
            2 => write_number_bytes::<2>(slot, starts, numbers, out),
            3 => write_number_bytes::<3>(slot, starts, numbers, out),
            4 => write_number_bytes::<4>(slot, starts, numbers, out),
            5 => write_number_bytes::<5>(slot, starts, numbers, out),
            6 => write_number_bytes::<6>(slot, starts, numbers, out),
            7 => write_number_bytes::<7>(slot, starts, numbers, out),
            _ => write_number_bytes::<8>(slot, starts, numbers, out),
        }
    }

    fn write_arrays<const N: usize>(
        &self,
        slot: SlotLayout,
        tile: &RowTile,
        starts: &[u32],
        nulls: Option<&NullBuffer>,
        out: &mut [u8],
        values: impl Iterator<Item = [u8; N]>,
    ) {
        for ((start, row), value) in starts.iter().zip(tile.column_rows.clone()).zip(values) {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                let to = (start + slot.offset) as usize;
                out[to..to + N].copy_from_slice(&value);
            }
        }
    }

    /// Writes the values behind the fixed parts, and appends the starts of list items to `inner`. Bytes
    /// behind a row may be overwritten up to `limit`.
    fn write_variable_parts(
        &self,
        tile: &RowTile,
        starts: &[u32],
        limit: usize,
        cursors: &mut Vec<(u32, u32)>,
        inner: &mut [Vec<u32>],
        out: &mut [u8],
    ) {
        if !self.record.is_variable() {
            return;
        }
        #[expect(clippy::cast_possible_truncation, reason = "rows are smaller than blocks")]
        let fixed = self.layout.fixed_bytes as u32;
        let sizes = &self.sizes.rows[tile.first_row..];
        cursors.clear();
        #[expect(clippy::cast_possible_truncation, reason = "blocks are smaller than 2^31")]
        let limit = limit as u32;
        let of_rows = starts.iter().zip(sizes);
        cursors.extend(of_rows.map(|(start, size)| (start + fixed, (start + size).max(limit))));
        for (leaf, column) in self.record.leaves.iter().zip(&self.columns.leaves) {
            match (leaf.kind, &column.values) {
                (LeafKind::Bytes { slot }, LeafValues::Bytes { lengths, source }) => {
                    let lengths = &lengths[tile.column_rows.clone()];
                    let slot = self.slot(slot);
                    match source {
                        StringBytes::Small(offsets, bytes) => {
                            copy_strings(
                                slot,
                                bytes,
                                &offsets[tile.column_rows.clone()],
                                lengths,
                                cursors,
                                out,
                            );
                        }
                        StringBytes::Large(offsets, bytes) => {
                            copy_strings(
                                slot,
                                bytes,
                                &offsets[tile.column_rows.clone()],
                                lengths,
                                cursors,
                                out,
                            );
                        }
                        StringBytes::View(views, buffers) => {
                            let views = &views[tile.column_rows.clone()];
                            copy_string_views(slot, views, buffers, lengths, cursors, out);
                        }
                    }
                }
                (LeafKind::List { child, .. }, LeafValues::List { offsets, .. }) => {
                    let (Some(sizes), Some(starts)) =
                        (self.sizes.children.get(child), inner.get_mut(child))
                    else {
                        continue;
                    };
                    let offsets = &offsets[tile.column_rows.start..=tile.column_rows.end];
                    for (pair, (cursor, _)) in offsets.windows(2).zip(cursors.iter_mut()) {
                        let &[start, end] = pair else { continue };
                        for _ in start..end {
                            let size = sizes.rows.get(starts.len()).copied().unwrap_or_default();
                            starts.push(*cursor);
                            *cursor += size;
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Rows that are written together.
struct RowTile {
    /// Index of the first row, counted from the first written row.
    first_row: usize,
    /// Range in the columns' rows.
    column_rows: Range<usize>,
}

/// Writes the lowest `WIDTH` bytes of each number.
fn write_number_bytes<const WIDTH: usize>(
    slot: SlotLayout,
    starts: &[u32],
    numbers: &[u64],
    out: &mut [u8],
) {
    for (start, number) in starts.iter().zip(numbers) {
        let to = (start + slot.offset) as usize;
        out[to..to + WIDTH].copy_from_slice(&number.to_le_bytes()[..WIDTH]);
    }
}

/// Number of bytes of the shortest fixed-size string copy.
pub(crate) const SHORT_COPY_BYTES: usize = 16;

/// Maximum size of a string's prefix, in bytes.
const PREFIX_BYTES_MAX: usize = 4;

/// Writes a string's prefix and bytes to the beginning of the rest of a row. If both sides have
/// enough bytes, copies a fixed 4 and `N` bytes for any length: lengths are not predictable,
/// and later values of the row overwrite the surplus.
#[inline(always)]
fn write_string<const N: usize>(
    slot: SlotLayout,
    from: &[u8],
    start: usize,
    length: u32,
    row: &mut [u8],
) {
    let width = (slot.width as usize).min(PREFIX_BYTES_MAX);
    if length as usize <= N
        && row.len() >= PREFIX_BYTES_MAX + N
        && let Some(from) = from.get(start..).and_then(<[u8]>::first_chunk::<N>)
    {
        let prefix = u64::from(length).wrapping_sub(slot.base).to_le_bytes();
        row[..PREFIX_BYTES_MAX].copy_from_slice(&prefix[..PREFIX_BYTES_MAX]);
        row[width..width + N].copy_from_slice(from);
    } else {
        write_string_exactly(slot, from, start, length, row);
    }
}

/// Writes exactly a string's prefix and bytes.
#[inline(never)]
fn write_string_exactly(slot: SlotLayout, from: &[u8], start: usize, length: u32, row: &mut [u8]) {
    let width = (slot.width as usize).min(PREFIX_BYTES_MAX);
    let prefix = u64::from(length).wrapping_sub(slot.base).to_le_bytes();
    row[..width].copy_from_slice(&prefix[..width]);
    let bytes = length as usize;
    if bytes > 0 {
        row[width..width + bytes].copy_from_slice(&from[start..start + bytes]);
    }
}

/// Writes the strings of a column, one to each row, in the loop that suits their lengths.
fn copy_strings<O: ArrowNativeType>(
    slot: SlotLayout,
    from: &[u8],
    starts: &[O],
    lengths: &[u32],
    cursors: &mut [(u32, u32)],
    out: &mut [u8],
) {
    // `max` would not vectorize.
    let longest = lengths.iter().fold(0, |max: u32, length| max.max(*length)) as usize;
    if longest <= SHORT_COPY_BYTES {
        copy_strings_by_chunk::<O, SHORT_COPY_BYTES>(slot, from, starts, lengths, cursors, out);
    } else if longest <= 32 {
        copy_strings_by_chunk::<O, 32>(slot, from, starts, lengths, cursors, out);
    } else {
        copy_strings_by_chunk::<O, 64>(slot, from, starts, lengths, cursors, out);
    }
}

/// Writes strings in a separate function, so that the loop has enough registers.
#[inline(never)]
fn copy_strings_by_chunk<O: ArrowNativeType, const N: usize>(
    slot: SlotLayout,
    from: &[u8],
    starts: &[O],
    lengths: &[u32],
    cursors: &mut [(u32, u32)],
    out: &mut [u8],
) {
    for ((start, length), (cursor, end)) in starts.iter().zip(lengths).zip(cursors) {
        let row = &mut out[*cursor as usize..*end as usize];
        write_string::<N>(slot, from, start.as_usize(), *length, row);
        *cursor += slot.width + length;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "parts of a view")]
#[inline(never)]
fn copy_string_views(
    slot: SlotLayout,
    views: &[u128],
    buffers: &[arrow_buffer::Buffer],
    lengths: &[u32],
    cursors: &mut [(u32, u32)],
    out: &mut [u8],
) {
    for ((view, length), (cursor, end)) in views.iter().zip(lengths).zip(cursors) {
        let row = &mut out[*cursor as usize..*end as usize];
        if *length <= 12 {
            // The bytes are in the view, behind the length.
            let mut inline = [0; SHORT_COPY_BYTES];
            inline[..12].copy_from_slice(&view.to_le_bytes()[4..]);
            write_string::<SHORT_COPY_BYTES>(slot, &inline, 0, *length, row);
        } else {
            let buffer = &buffers[(view >> 64) as u32 as usize];
            write_string::<64>(slot, buffer, (view >> 96) as u32 as usize, *length, row);
        }
        *cursor += slot.width + length;
    }
}
