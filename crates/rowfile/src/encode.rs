//! Columns to rows, a block at a time.
//!
//! ```text
//!   columns ─ widen ─► extent ─► layout ─ sizes ─► starts ─ write ─► rows
//!             (1st pass over values)      (lengths only)   (2nd pass)
//! ```
//!
//! The second pass goes column by column through a tile of rows that stays in the first caches:
//! the loops know their types, and every line of memory is written once. A column's loop has one
//! line of each row at hand, so that a tile may have as many rows as the first cache has lines
//! to spare: with 36 rows of an event instead, going from column to column took as long as a
//! fifth of the copying. Strings are copied 16, 32 or 64 bytes at a time, by the longest of a tile,
//! where what is written beyond them is overwritten anyway: by later values of the same row, or by
//! the next row if a string is all that a row has of variable length.

use std::ops::Range;

use arrow_buffer::{ArrowNativeType, NullBuffer};

use crate::columns::{Bytes, Columns, Values, with_integers};
use crate::error::{Error, Result};
use crate::layout::{
    BLOCK_BYTES_MAX, Bit, Extent, Layout, LeafKind, Record, Slot, SlotKind, width_of,
};

/// Bytes of rows that are written before the next column's turn comes: they stay in the second
/// cache.
const TILE_BYTES: usize = 128 << 10;
/// Rows of a tile at most: the lines that they are written to stay in the first cache.
const TILE_ROWS: usize = 256;

/// Bytes that a string with its prefix takes at most when more than it are copied, and that there
/// are behind a block for it.
const STRING_BYTES: usize = 4 + 64;

/// What the values of a block lie between.
#[derive(Debug, Clone)]
pub(crate) struct Ranges {
    pub bits: Vec<(bool, bool)>,
    pub slots: Vec<Span>,
    pub children: Vec<Ranges>,
}

/// What the values of a slot lie between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// No value so far.
    Empty,
    Signed(i64, i64),
    Unsigned(u64, u64),
    /// Bits that are the same in all values.
    Same(u64),
    /// The slot's whole width is needed.
    Full,
}

impl Ranges {
    pub(crate) fn new(record: &Record) -> Self {
        Self {
            bits: vec![(false, false); record.bits],
            slots: vec![Span::Empty; record.slots.len()],
            children: record.children.iter().map(Self::new).collect(),
        }
    }

    pub(crate) fn extent(&self, record: &Record) -> Extent {
        let mut extent = Extent::empty(record);
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
                Span::Empty => (0, 0),
                Span::Signed(min, max) => {
                    (min.cast_unsigned(), width_of(max.wrapping_sub(min).cast_unsigned()))
                }
                Span::Unsigned(min, max) => (min, width_of(max.wrapping_sub(min))),
                Span::Same(bits) => (bits, 0),
                Span::Full => (0, full),
            };
        }
        let children = self.children.iter().zip(&record.children);
        extent.children = children.map(|(ranges, record)| ranges.extent(record)).collect();
        extent
    }

    fn bit(&mut self, bit: usize, zero: bool, one: bool) {
        if let Some(seen) = self.bits.get_mut(bit) {
            seen.0 |= zero;
            seen.1 |= one;
        }
    }

    fn signed(&mut self, slot: usize, min: i64, max: i64) {
        if let Some(span) = self.slots.get_mut(slot) {
            *span = match *span {
                Span::Signed(low, high) => Span::Signed(low.min(min), high.max(max)),
                Span::Empty => Span::Signed(min, max),
                other => other,
            };
        }
    }

    fn unsigned(&mut self, slot: usize, min: u64, max: u64) {
        if let Some(span) = self.slots.get_mut(slot) {
            *span = match *span {
                Span::Unsigned(low, high) => Span::Unsigned(low.min(min), high.max(max)),
                _ => Span::Unsigned(min, max),
            };
        }
    }

    fn same(&mut self, slot: usize, bits: Option<u64>) {
        if let Some(span) = self.slots.get_mut(slot) {
            *span = match (*span, bits) {
                (Span::Empty, Some(bits)) => Span::Same(bits),
                (Span::Same(seen), Some(bits)) if seen == bits => Span::Same(seen),
                _ => Span::Full,
            };
        }
    }

    /// Takes in `rows` of `columns`.
    pub(crate) fn widen(&mut self, record: &Record, columns: &Columns, rows: Range<usize>) {
        for (leaf, column) in record.leaves.iter().zip(&columns.leaves) {
            let nulls = column.nulls.as_ref().map(|nulls| nulls.slice(rows.start, rows.len()));
            let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
            let null_count = nulls.as_ref().map_or(0, NullBuffer::null_count);
            if let Some(bit) = leaf.null {
                self.bit(bit, null_count < rows.len(), null_count > 0);
            }
            let nulls = nulls.as_ref();
            let is_all_null = null_count == rows.len();
            match (leaf.kind, &column.values) {
                (LeafKind::Boolean { bit }, Values::Boolean(values)) => {
                    let values = values.slice(rows.start, rows.len());
                    let ones = match nulls {
                        Some(nulls) => (&values & nulls.inner()).count_set_bits(),
                        None => values.count_set_bits(),
                    };
                    // A null is kept as false.
                    self.bit(bit, ones < rows.len(), ones > 0);
                }
                (LeafKind::Integer { slot }, Values::Integer(integers)) if !is_all_null => {
                    with_integers!(integers, values => {
                        self.widen_integers(slot, &values[rows.clone()], nulls);
                    });
                }
                (LeafKind::Wide { slot }, Values::Wide128(values)) if !is_all_null => {
                    let values = &values[rows.clone()];
                    let (min, max) = extremes(values, nulls, i128::MAX, i128::MIN);
                    self.wide(slot, i64::try_from(min).ok(), i64::try_from(max).ok());
                }
                (LeafKind::Wide { slot }, Values::Wide256(values)) if !is_all_null => {
                    let values = &values[rows.clone()];
                    let (min, max) =
                        extremes(values, nulls, arrow_buffer::i256::MAX, arrow_buffer::i256::MIN);
                    let narrow = |value: arrow_buffer::i256| {
                        value.to_i128().and_then(|value| i64::try_from(value).ok())
                    };
                    self.wide(slot, narrow(min), narrow(max));
                }
                (LeafKind::Float { slot }, Values::Float16(values)) => {
                    self.same_bits(slot, &values[rows.clone()], nulls);
                }
                (LeafKind::Float { slot }, Values::Float32(values)) => {
                    self.same_bits(slot, &values[rows.clone()], nulls);
                }
                (LeafKind::Float { slot }, Values::Float64(values)) => {
                    self.same_bits(slot, &values[rows.clone()], nulls);
                }
                (LeafKind::Bytes { slot }, Values::Bytes { lengths, .. }) if !rows.is_empty() => {
                    let (min, max) = extremes(&lengths[rows.clone()], None, u32::MAX, 0);
                    self.unsigned(slot, min.into(), max.into());
                }
                (LeafKind::List { count, child, .. }, Values::List { offsets, items }) => {
                    let offsets = &offsets[rows.start..=rows.end];
                    let (mut min, mut max) = (u32::MAX, 0);
                    for pair in offsets.windows(2) {
                        if let &[start, end] = pair {
                            min = min.min(end - start);
                            max = max.max(end - start);
                        }
                    }
                    if min <= max {
                        self.unsigned(count, min.into(), max.into());
                    }
                    let range = range_of(offsets);
                    if let (Some(ranges), Some(record)) =
                        (self.children.get_mut(child), record.children.get(child))
                    {
                        ranges.widen(record, items, range);
                    }
                }
                _ => {}
            }
        }
    }

    fn widen_integers<T: Bounds>(&mut self, slot: usize, values: &[T], nulls: Option<&NullBuffer>) {
        if !values.is_empty() {
            let (min, max) = extremes(values, nulls, T::HIGHEST, T::LOWEST);
            match T::span(min, max) {
                Span::Signed(min, max) => self.signed(slot, min, max),
                Span::Unsigned(min, max) => self.unsigned(slot, min, max),
                _ => {}
            }
        }
    }

    fn wide(&mut self, slot: usize, min: Option<i64>, max: Option<i64>) {
        match (min, max) {
            (Some(min), Some(max)) if min <= max => self.signed(slot, min, max),
            (Some(_), Some(_)) => {}
            _ => {
                if let Some(span) = self.slots.get_mut(slot) {
                    *span = Span::Full;
                }
            }
        }
    }

    fn same_bits<T: Copy + Into<u64>>(
        &mut self,
        slot: usize,
        values: &[T],
        nulls: Option<&NullBuffer>,
    ) {
        if self.slots.get(slot) == Some(&Span::Full) {
            return;
        }
        for (row, value) in values.iter().enumerate() {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                self.same(slot, Some((*value).into()));
                if self.slots.get(slot) == Some(&Span::Full) {
                    return;
                }
            }
        }
    }

    /// The bytes of lists' items, which are known when the items' layouts are: fills in what
    /// [`widen`](Self::widen) left open.
    fn widen_bytes(&mut self, slot: usize, min: u32, max: u32) {
        self.unsigned(slot, min.into(), max.into());
    }
}

trait Bounds: Copy + Ord {
    const LOWEST: Self;
    const HIGHEST: Self;

    /// What values between two of them lie between.
    fn span(min: Self, max: Self) -> Span;

    /// With its sign, in 64 bits.
    fn wide(self) -> u64;
}

macro_rules! bounds {
    ($($span:ident: $($native:ty),*;)*) => {
        $($(impl Bounds for $native {
            const LOWEST: Self = <$native>::MIN;
            const HIGHEST: Self = <$native>::MAX;

            fn span(min: Self, max: Self) -> Span {
                Span::$span(min.into(), max.into())
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

/// The smallest and the largest value that is not null.
fn extremes<T: Copy + Ord>(
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

/// From the first to the last of some offsets.
fn range_of(offsets: &[u32]) -> Range<usize> {
    let at = |offset: Option<&u32>| offset.copied().unwrap_or_default() as usize;
    at(offsets.first())..at(offsets.last())
}

/// The bytes of each row, and of the items in its lists.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub rows: Vec<u32>,
    /// Those of the items of each list, in the order of the record's children.
    children: Vec<Sizes>,
}

/// Rows larger than a block.
pub(crate) struct TooWide(pub u64);

impl Sizes {
    /// The sizes of `rows`.
    fn new(
        record: &Record,
        layout: &Layout,
        columns: &Columns,
        rows: &Range<usize>,
    ) -> Result<Self, TooWide> {
        let prefixes = record.leaves.iter().filter_map(|leaf| match leaf.kind {
            LeafKind::Bytes { slot } => layout.slots.get(slot).map(|slot| slot.width as usize),
            _ => None,
        });
        let least = layout.fixed + prefixes.sum::<usize>();
        let least = u32::try_from(least).map_err(|_| TooWide(least as u64))?;
        let strings = columns.string_bytes.get(rows.clone()).unwrap_or_default();
        let sizes = strings.iter().map(|bytes| bytes.saturating_add(least)).collect();
        let mut sizes = Self { rows: sizes, children: Vec::new() };
        for (leaf, column) in record.leaves.iter().zip(&columns.leaves) {
            if let (Values::List { offsets, items }, LeafKind::List { child, .. }) =
                (&column.values, leaf.kind)
            {
                let offsets = &offsets[rows.start..=rows.end];
                let range = range_of(offsets);
                let (Some(record), Some(layout)) =
                    (record.children.get(child), layout.children.get(child))
                else {
                    continue;
                };
                let inner = Self::new(record, layout, items, &range)?;
                for (size, total) in sizes.rows.iter_mut().zip(totals(&inner.rows, offsets)) {
                    *size = size.saturating_add(total);
                }
                sizes.children.push(inner);
            }
        }
        let largest = sizes.rows.iter().fold(0, |max: u32, size| max.max(*size));
        if u64::from(largest) > BLOCK_BYTES_MAX {
            return Err(TooWide(u64::from(largest)));
        }
        Ok(sizes)
    }
}

/// Sums of `sizes` between `offsets`, which may begin anywhere.
fn totals<'a>(sizes: &'a [u32], offsets: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let first = offsets.first().copied().unwrap_or_default();
    offsets.windows(2).map(move |pair| match pair {
        &[start, end] => {
            let sizes = sizes.get((start - first) as usize..(end - first) as usize);
            sizes.unwrap_or_default().iter().fold(0, |sum: u32, size| sum.saturating_add(*size))
        }
        _ => 0,
    })
}

/// What each row would take if nothing were left out; at least what it will take in any block.
pub(crate) fn sizes_max(record: &Record, columns: &Columns) -> Result<Vec<u32>> {
    let limit = |found| Error::TooLarge { what: "a row", found, limit: BLOCK_BYTES_MAX };
    let layout = Layout::plain(record, 4).map_err(limit)?;
    let sizes = Sizes::new(record, &layout, columns, &(0..columns.rows));
    Ok(sizes.map_err(|TooWide(found)| limit(found))?.rows)
}

/// For each row the width, 1, 2 or 4, that all its lengths fit in when it is encoded alone.
pub(crate) fn length_widths(record: &Record, columns: &Columns) -> Result<Vec<u8>> {
    let limit = |found| Error::TooLarge { what: "a row", found, limit: BLOCK_BYTES_MAX };
    let rows = 0..columns.rows;
    let mut widths = vec![4; columns.rows];
    for width in [1_u8, 2] {
        let layout = Layout::plain(record, width.into()).map_err(limit)?;
        let sizes = Sizes::new(record, &layout, columns, &rows);
        let sizes = sizes.map_err(|TooWide(found)| limit(found))?;
        let longest = longest(record, columns, &rows, &sizes);
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

/// The largest length in each row, those in its items included.
fn longest(record: &Record, columns: &Columns, rows: &Range<usize>, sizes: &Sizes) -> Vec<u32> {
    let mut longest = vec![0; rows.len()];
    for (leaf, column) in record.leaves.iter().zip(&columns.leaves) {
        match (&column.values, leaf.kind) {
            (Values::Bytes { lengths, .. }, _) => {
                let lengths = lengths.get(rows.clone()).unwrap_or_default();
                for (longest, length) in longest.iter_mut().zip(lengths) {
                    *longest = (*longest).max(*length);
                }
            }
            (Values::List { offsets, items }, LeafKind::List { bytes, child, .. }) => {
                let (Some(record), Some(sizes)) =
                    (record.children.get(child), sizes.children.get(child))
                else {
                    continue;
                };
                let offsets = &offsets[rows.start..=rows.end];
                let inner = self::longest(record, items, &range_of(offsets), sizes);
                let first = offsets.first().copied().unwrap_or_default();
                let totals = totals(&sizes.rows, offsets);
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

/// Writes the layout and the rows of a block, which consists of `parts`: columns and the rows
/// of them. It begins at `at` of `out`, which grows as needed and whose bytes may be any: so a
/// writer's memory is not cleared for each block. Returns what the values lie between, and where
/// the block ends.
pub(crate) fn block(
    record: &Record,
    parts: &[(&Columns, Range<usize>)],
    out: &mut Vec<u8>,
    at: usize,
) -> Result<(Ranges, usize)> {
    let mut ranges = Ranges::new(record);
    for (columns, rows) in parts {
        ranges.widen(record, columns, rows.clone());
    }
    let layout = layout_of(record, &mut ranges, parts).map_err(too_large)?;
    let mut head = Vec::new();
    layout.write(record, &mut head);
    let mut at = at + head.len();
    if out.len() < at {
        out.resize(at, 0);
    }
    out[at - head.len()..at].copy_from_slice(&head);
    for (columns, rows) in parts {
        (_, at) = rows_at(record, &layout, columns, rows, None, out, at)?;
    }
    Ok((ranges, at))
}

fn too_large(TooWide(found): TooWide) -> Error {
    Error::TooLarge { what: "a block", found, limit: BLOCK_BYTES_MAX }
}

/// All rows of some columns in a layout that holds them, each with `head` before it. Returns
/// them and their sizes without it.
pub(crate) fn rows_alone(
    record: &Record,
    layout: &Layout,
    columns: &Columns,
    head: u8,
) -> Result<(Vec<u8>, Vec<u32>)> {
    let mut out = Vec::new();
    let rows = 0..columns.rows;
    let (sizes, end) = rows_at(record, layout, columns, &rows, Some(head), &mut out, 0)?;
    out.truncate(end);
    Ok((out, sizes.rows))
}

/// Writes rows from `at` on. Returns their sizes, and where they end.
fn rows_at(
    record: &Record,
    layout: &Layout,
    columns: &Columns,
    rows: &Range<usize>,
    head: Option<u8>,
    out: &mut Vec<u8>,
    at: usize,
) -> Result<(Sizes, usize)> {
    let sizes = Sizes::new(record, layout, columns, rows).map_err(too_large)?;
    let gap = u32::from(head.is_some());
    let all: u64 = sizes.rows.iter().map(|size| u64::from(*size)).sum();
    let end = at as u64 + all + u64::from(gap) * sizes.rows.len() as u64;
    if end > BLOCK_BYTES_MAX {
        return Err(too_large(TooWide(end)));
    }
    // No block is as large as 4 GiB, and hence no place in it.
    let mut next = u32::try_from(at).map_err(|_| too_large(TooWide(end)))?;
    let starts = sizes.rows.iter().map(|size| {
        let start = next + gap;
        next = start + size;
        start
    });
    let starts: Vec<u32> = starts.collect();
    let end = usize::try_from(end).map_err(|_| too_large(TooWide(end)))?;
    if out.len() < end + STRING_BYTES {
        out.resize(end + STRING_BYTES, 0);
    }
    Write { record, layout, columns, sizes: &sizes, is_inner: false }.all(
        rows.clone(),
        &starts,
        out,
    );
    if let Some(head) = head {
        // Only now: before, strings may have been written over them.
        for start in &starts {
            out[*start as usize - 1] = head;
        }
    }
    Ok((sizes, end))
}

/// The layout of a block: from the innermost items outwards, since the bytes of a list's items
/// depend on their layout.
fn layout_of(
    record: &Record,
    ranges: &mut Ranges,
    parts: &[(&Columns, Range<usize>)],
) -> Result<Layout, TooWide> {
    for (index, leaf) in record.leaves.iter().enumerate() {
        let LeafKind::List { bytes, child, .. } = leaf.kind else { continue };
        let (Some(inner), Some(inner_ranges)) =
            (record.children.get(child), ranges.children.get_mut(child))
        else {
            continue;
        };
        let lists = parts.iter().filter_map(|(columns, rows)| match columns.leaves.get(index) {
            Some(crate::columns::EncodedColumn {
                values: Values::List { offsets, items }, ..
            }) => {
                let offsets = &offsets[rows.start..=rows.end];
                Some((offsets, items))
            }
            _ => None,
        });
        let lists: Vec<_> = lists.collect();
        let inner_parts: Vec<_> =
            lists.iter().map(|(offsets, items)| (*items, range_of(offsets))).collect();
        let layout = layout_of(inner, inner_ranges, &inner_parts)?;
        let Some(slot) = bytes else { continue };
        for (offsets, items) in lists {
            let sizes = Sizes::new(inner, &layout, items, &range_of(offsets))?;
            let (min, max) = totals(&sizes.rows, offsets)
                .fold((u32::MAX, 0), |(min, max), total| (min.min(total), max.max(total)));
            if u64::from(max) > BLOCK_BYTES_MAX {
                return Err(TooWide(u64::from(max)));
            }
            if min <= max {
                ranges.widen_bytes(slot, min, max);
            }
        }
    }
    Layout::new(record, &ranges.extent(record)).map_err(TooWide)
}

/// Writes rows of some columns.
struct Write<'a> {
    record: &'a Record,
    layout: &'a Layout,
    columns: &'a Columns,
    sizes: &'a Sizes,
    /// Whether they are a list's items, between which is what has been written.
    is_inner: bool,
}

impl Write<'_> {
    /// Writes `rows`, which begin at `starts` of `out`.
    fn all(&self, rows: Range<usize>, starts: &[u32], out: &mut [u8]) {
        let bytes: usize = self.sizes.rows.iter().map(|size| *size as usize).sum();
        let average = bytes / rows.len().max(1) + 1;
        let tile = (TILE_BYTES / average).clamp(16, TILE_ROWS);
        // Where the items of each list begin.
        let mut inner: Vec<Vec<u32>> =
            self.sizes.children.iter().map(|sizes| Vec::with_capacity(sizes.rows.len())).collect();
        let mut cursors = Vec::with_capacity(tile);
        let mut numbers = Vec::with_capacity(tile);
        let has_one_string = self.record.has_one_string() && !self.is_inner;
        let mut first = 0;
        while first < rows.len() {
            let last = (first + tile).min(rows.len());
            let tile = Tile { first, rows: rows.start + first..rows.start + last };
            let starts = &starts[first..last];
            if has_one_string {
                // What a string is too long is overwritten by the next row, whose fixed part is
                // written after it.
                self.variable(&tile, starts, out.len(), &mut cursors, &mut inner, out);
                self.clear(starts, out);
                self.fixed(&tile, starts, &mut numbers, out);
            } else {
                self.clear(starts, out);
                self.fixed(&tile, starts, &mut numbers, out);
                self.variable(&tile, starts, 0, &mut cursors, &mut inner, out);
            }
            first = last;
        }
        for (leaf, column) in self.record.leaves.iter().zip(&self.columns.leaves) {
            if let (LeafKind::List { child, .. }, Values::List { offsets, items }) =
                (leaf.kind, &column.values)
                && let (Some(record), Some(layout), Some(sizes), Some(starts)) = (
                    self.record.children.get(child),
                    self.layout.children.get(child),
                    self.sizes.children.get(child),
                    inner.get(child),
                )
            {
                let range = range_of(&offsets[rows.start..=rows.end]);
                Write { record, layout, columns: items, sizes, is_inner: true }
                    .all(range, starts, out);
            }
        }
    }

    /// Clears the fixed parts: bits are set, nulls left out, and padding is 0.
    fn clear(&self, starts: &[u32], out: &mut [u8]) {
        match self.layout.fixed {
            // A call of its own for each row takes as long as writing a short string.
            1 => starts.iter().for_each(|start| out[*start as usize] = 0),
            fixed => {
                for start in starts {
                    out[*start as usize..*start as usize + fixed].fill(0);
                }
            }
        }
    }

    fn slot(&self, slot: usize) -> Slot {
        self.layout.slots.get(slot).copied().unwrap_or_default()
    }

    /// Bits and slots.
    fn fixed(&self, tile: &Tile, starts: &[u32], numbers: &mut Vec<u64>, out: &mut [u8]) {
        for (leaf, column) in self.record.leaves.iter().zip(&self.columns.leaves) {
            let nulls = column.nulls.as_ref();
            if let (Some(bit), Some(nulls)) = (leaf.null, nulls)
                && let Some(Bit::At { byte, mask }) = self.layout.bits.get(bit)
            {
                let valid = nulls.inner().slice(tile.rows.start, tile.rows.len());
                for (starts, valid) in starts.chunks(64).zip(valid.bit_chunks().iter_padded()) {
                    if valid == u64::MAX {
                        continue;
                    }
                    // No branch: nobody can tell which row is null.
                    for (row, start) in starts.iter().enumerate() {
                        let is_null = valid >> row & 1 == 0;
                        out[(start + byte) as usize] |= mask * u8::from(is_null);
                    }
                }
            }
            match (leaf.kind, &column.values) {
                (LeafKind::Boolean { bit }, Values::Boolean(values)) => {
                    if let Some(Bit::At { byte, mask }) = self.layout.bits.get(bit) {
                        for (start, row) in starts.iter().zip(tile.rows.clone()) {
                            let is_set =
                                values.value(row) & nulls.is_none_or(|nulls| nulls.is_valid(row));
                            out[(start + byte) as usize] |= mask * u8::from(is_set);
                        }
                    }
                }
                (LeafKind::Integer { slot }, Values::Integer(integers)) => {
                    let slot = self.slot(slot);
                    with_integers!(integers, values => {
                        let values = &values[tile.rows.clone()];
                        self.numbers(slot, tile, starts, nulls, numbers, out,
                            values.iter().map(|value| value.wide().wrapping_sub(slot.base)));
                    });
                }
                (LeafKind::Wide { slot }, Values::Wide128(values)) => {
                    let slot = self.slot(slot);
                    let values = &values[tile.rows.clone()];
                    if slot.width <= 8 {
                        #[expect(clippy::cast_possible_truncation, reason = "it fits")]
                        let values =
                            values.iter().map(|value| (*value as u64).wrapping_sub(slot.base));
                        self.numbers(slot, tile, starts, nulls, numbers, out, values);
                    } else {
                        let values = values.iter().map(|value| value.to_le_bytes());
                        self.arrays(slot, tile, starts, nulls, out, values);
                    }
                }
                (LeafKind::Wide { slot }, Values::Wide256(values)) => {
                    let slot = self.slot(slot);
                    let values = &values[tile.rows.clone()];
                    if slot.width <= 8 {
                        #[expect(clippy::cast_possible_truncation, reason = "it fits")]
                        let values = values
                            .iter()
                            .map(|value| (value.as_i128() as u64).wrapping_sub(slot.base));
                        self.numbers(slot, tile, starts, nulls, numbers, out, values);
                    } else {
                        let values = values.iter().map(|value| value.to_le_bytes());
                        self.arrays(slot, tile, starts, nulls, out, values);
                    }
                }
                (LeafKind::Float { slot }, Values::Float16(values)) => {
                    let values = values[tile.rows.clone()].iter().map(|bits| u64::from(*bits));
                    self.numbers(self.slot(slot), tile, starts, nulls, numbers, out, values);
                }
                (LeafKind::Float { slot }, Values::Float32(values)) => {
                    let values = values[tile.rows.clone()].iter().map(|bits| u64::from(*bits));
                    self.numbers(self.slot(slot), tile, starts, nulls, numbers, out, values);
                }
                (LeafKind::Float { slot }, Values::Float64(values)) => {
                    let values = values[tile.rows.clone()].iter().copied();
                    self.numbers(self.slot(slot), tile, starts, nulls, numbers, out, values);
                }
                (LeafKind::Fixed { slot }, Values::Fixed { size, bytes }) => {
                    let at = self.slot(slot).at as usize;
                    for (start, row) in starts.iter().zip(tile.rows.clone()) {
                        if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                            let to = *start as usize + at;
                            out[to..to + size]
                                .copy_from_slice(&bytes[row * size..(row + 1) * size]);
                        }
                    }
                }
                (LeafKind::List { count, bytes, child }, Values::List { offsets, .. }) => {
                    let slot = self.slot(count);
                    let all = offsets;
                    let offsets = &all[tile.rows.start..=tile.rows.end];
                    let counts = offsets.windows(2).map(|pair| match pair {
                        &[start, end] => u64::from(end - start).wrapping_sub(slot.base),
                        _ => 0,
                    });
                    self.numbers(slot, tile, starts, None, numbers, out, counts);
                    if let (Some(bytes), Some(sizes)) = (bytes, self.sizes.children.get(child)) {
                        let slot = self.slot(bytes);
                        // The sizes begin with the items of the first row that is written.
                        let from = all[tile.rows.start - tile.first];
                        let sizes = &sizes.rows[(offsets[0] - from) as usize..];
                        let values = totals(sizes, offsets)
                            .map(|total| u64::from(total).wrapping_sub(slot.base));
                        self.numbers(slot, tile, starts, None, numbers, out, values);
                    }
                }
                _ => {}
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one loop")]
    fn numbers(
        &self,
        slot: Slot,
        tile: &Tile,
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
            for (number, row) in numbers.iter_mut().zip(tile.rows.clone()) {
                *number &= u64::from(nulls.is_valid(row)).wrapping_neg();
            }
        }
        match slot.width {
            1 => put::<1>(slot, starts, numbers, out),
            2 => put::<2>(slot, starts, numbers, out),
            3 => put::<3>(slot, starts, numbers, out),
            4 => put::<4>(slot, starts, numbers, out),
            5 => put::<5>(slot, starts, numbers, out),
            6 => put::<6>(slot, starts, numbers, out),
            7 => put::<7>(slot, starts, numbers, out),
            _ => put::<8>(slot, starts, numbers, out),
        }
    }

    fn arrays<const N: usize>(
        &self,
        slot: Slot,
        tile: &Tile,
        starts: &[u32],
        nulls: Option<&NullBuffer>,
        out: &mut [u8],
        values: impl Iterator<Item = [u8; N]>,
    ) {
        for ((start, row), value) in starts.iter().zip(tile.rows.clone()).zip(values) {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                let to = (start + slot.at) as usize;
                out[to..to + N].copy_from_slice(&value);
            }
        }
    }

    /// What is behind the fixed parts; where list items begin goes to `inner`. What is behind a row
    /// may be overwritten up to `limit`.
    fn variable(
        &self,
        tile: &Tile,
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
        let fixed = self.layout.fixed as u32;
        let sizes = &self.sizes.rows[tile.first..];
        cursors.clear();
        #[expect(clippy::cast_possible_truncation, reason = "blocks are smaller than 2^31")]
        let limit = limit as u32;
        let of_rows = starts.iter().zip(sizes);
        cursors.extend(of_rows.map(|(start, size)| (start + fixed, (start + size).max(limit))));
        for (leaf, column) in self.record.leaves.iter().zip(&self.columns.leaves) {
            match (leaf.kind, &column.values) {
                (LeafKind::Bytes { slot }, Values::Bytes { lengths, source }) => {
                    let lengths = &lengths[tile.rows.clone()];
                    let slot = self.slot(slot);
                    match source {
                        Bytes::Small(offsets, bytes) => {
                            copy(slot, bytes, &offsets[tile.rows.clone()], lengths, cursors, out);
                        }
                        Bytes::Large(offsets, bytes) => {
                            copy(slot, bytes, &offsets[tile.rows.clone()], lengths, cursors, out);
                        }
                        Bytes::View(views, buffers) => {
                            let views = &views[tile.rows.clone()];
                            copy_views(slot, views, buffers, lengths, cursors, out);
                        }
                    }
                }
                (LeafKind::List { child, .. }, Values::List { offsets, .. }) => {
                    let (Some(sizes), Some(starts)) =
                        (self.sizes.children.get(child), inner.get_mut(child))
                    else {
                        continue;
                    };
                    let offsets = &offsets[tile.rows.start..=tile.rows.end];
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

/// Rows that are written in one go.
struct Tile {
    /// The first, counted from the first that is written at all.
    first: usize,
    /// Which they are of the columns' rows.
    rows: Range<usize>,
}

/// Writes the lowest `WIDTH` bytes of numbers.
fn put<const WIDTH: usize>(slot: Slot, starts: &[u32], numbers: &[u64], out: &mut [u8]) {
    for (start, number) in starts.iter().zip(numbers) {
        let to = (start + slot.at) as usize;
        out[to..to + WIDTH].copy_from_slice(&number.to_le_bytes()[..WIDTH]);
    }
}

/// The least that is copied of a string, if there is so much.
pub(crate) const COPY_BYTES: usize = 16;

/// Bytes of a string's prefix at most.
const PREFIX_BYTES_MAX: usize = 4;

/// Writes a string's prefix and bytes to the beginning of what is left of a row. As long as there
/// are so many bytes on both sides, 4 and `N` are copied, whatever the length: nobody can tell it
/// beforehand, and what is too much is overwritten by what follows in the row.
#[inline(always)]
fn string<const N: usize>(slot: Slot, from: &[u8], start: usize, length: u32, row: &mut [u8]) {
    let width = (slot.width as usize).min(PREFIX_BYTES_MAX);
    if length as usize <= N
        && row.len() >= PREFIX_BYTES_MAX + N
        && let Some(from) = from.get(start..).and_then(<[u8]>::first_chunk::<N>)
    {
        let prefix = u64::from(length).wrapping_sub(slot.base).to_le_bytes();
        row[..PREFIX_BYTES_MAX].copy_from_slice(&prefix[..PREFIX_BYTES_MAX]);
        row[width..width + N].copy_from_slice(from);
    } else {
        exactly(slot, from, start, length, row);
    }
}

/// Writes a string's prefix and bytes and nothing more.
#[inline(never)]
fn exactly(slot: Slot, from: &[u8], start: usize, length: u32, row: &mut [u8]) {
    let width = (slot.width as usize).min(PREFIX_BYTES_MAX);
    let prefix = u64::from(length).wrapping_sub(slot.base).to_le_bytes();
    row[..width].copy_from_slice(&prefix[..width]);
    let bytes = length as usize;
    if bytes > 0 {
        row[width..width + bytes].copy_from_slice(&from[start..start + bytes]);
    }
}

/// Writes the strings of a column, one to each row, in the loop that suits their lengths.
fn copy<O: ArrowNativeType>(
    slot: Slot,
    from: &[u8],
    starts: &[O],
    lengths: &[u32],
    cursors: &mut [(u32, u32)],
    out: &mut [u8],
) {
    // Not `max`, which goes through them one by one.
    let longest = lengths.iter().fold(0, |max: u32, length| max.max(*length)) as usize;
    if longest <= COPY_BYTES {
        strings::<O, COPY_BYTES>(slot, from, starts, lengths, cursors, out);
    } else if longest <= 32 {
        strings::<O, 32>(slot, from, starts, lengths, cursors, out);
    } else {
        strings::<O, 64>(slot, from, starts, lengths, cursors, out);
    }
}

/// A loop of its own, for which there are registers enough.
#[inline(never)]
fn strings<O: ArrowNativeType, const N: usize>(
    slot: Slot,
    from: &[u8],
    starts: &[O],
    lengths: &[u32],
    cursors: &mut [(u32, u32)],
    out: &mut [u8],
) {
    for ((start, length), (cursor, end)) in starts.iter().zip(lengths).zip(cursors) {
        let row = &mut out[*cursor as usize..*end as usize];
        string::<N>(slot, from, start.as_usize(), *length, row);
        *cursor += slot.width + length;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "parts of a view")]
#[inline(never)]
fn copy_views(
    slot: Slot,
    views: &[u128],
    buffers: &[arrow_buffer::Buffer],
    lengths: &[u32],
    cursors: &mut [(u32, u32)],
    out: &mut [u8],
) {
    for ((view, length), (cursor, end)) in views.iter().zip(lengths).zip(cursors) {
        let row = &mut out[*cursor as usize..*end as usize];
        if *length <= 12 {
            // Its bytes are in the view, behind its length.
            let mut inline = [0; COPY_BYTES];
            inline[..12].copy_from_slice(&view.to_le_bytes()[4..]);
            string::<COPY_BYTES>(slot, &inline, 0, *length, row);
        } else {
            let buffer = &buffers[(view >> 64) as u32 as usize];
            string::<64>(slot, buffer, (view >> 96) as u32 as usize, *length, row);
        }
        *cursor += slot.width + length;
    }
}
