//! Sums by where in the input their rows stand: what is needed to say how far off a sum is that rests on some of
//! the splits.
//!
//! A group has, for each of at most 64 [cells](Cells) in which it was seen, the sum of its rows there: each split by itself where
//! it was in few, stretches of the input where it is everywhere. How much was read of each cell is known to whoever reads.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryBuilder, UInt64Array};
use arrow::datatypes::{DataType, Float64Type, UInt64Type};
use tidemill_base::error::Result;
use tidemill_sampling::{SumsByCell, ValueSummary, ValuesByCell, cell_of_split};
use tidemill_sketch::{Quantiles, SketchError};

use super::sketches::{Filled, SketchKind};
use super::{Rows, mismatch};
use crate::spec::{Aggregate, Precision, Switch, split_of};
use crate::value;

/// The sums of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSums {
    series: SumsByCell,
    /// The last split that brought a row, and one more.
    last: u64,
    /// In how many splits it was seen; one that is merged from parts of it counts for each.
    splits: u32,
    /// Whether a value was below zero, or no number.
    is_signed: bool,
    /// Number of values.
    count: u64,
    /// The smallest and the largest value, ignoring NaN. Without values, `min` is ∞ and `max` is -∞.
    min: f64,
    max: f64,
}

impl Default for CellSums {
    fn default() -> Self {
        CellSums {
            series: SumsByCell::default(),
            last: 0,
            splits: 0,
            is_signed: false,
            count: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

const STATE: &str = "cell_sums";

/// Size of the encoded state before its cells, in bytes.
const HEAD_BYTES: usize = 30;

/// What the cells of a state take on the heap, each.
const CELL_BYTES: usize = size_of::<(u32, f64)>();

impl CellSums {
    /// Adds a value; how many bytes it has grown by.
    fn add(&mut self, split: u64, cell: u32, value: f64) -> usize {
        if self.last != split + 1 {
            self.last = split + 1;
            self.splits = self.splits.saturating_add(1);
        }
        self.is_signed |= value < 0.0 || value.is_nan();
        self.count = self.count.saturating_add(1);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let before = self.series.capacity();
        self.series.add(cell, value);
        (self.series.capacity() - before) * CELL_BYTES
    }

    fn merge(&mut self, other: &mut CellSums) {
        self.splits = self.splits.saturating_add(other.splits);
        self.is_signed |= other.is_signed;
        self.count = self.count.saturating_add(other.count);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.series.merge_sums(std::mem::take(&mut other.series));
    }

    /// The sums by cell.
    pub fn series(&self) -> &SumsByCell {
        &self.series
    }

    /// In how many splits the group was seen.
    pub fn splits(&self) -> u64 {
        u64::from(self.splits)
    }

    /// Whether a value was below zero, or no number, so that what was not read may make the sum smaller.
    pub fn is_signed(&self) -> bool {
        self.is_signed
    }

    /// Returns the number, the minimum and the maximum of the values.
    pub fn values(&self) -> ValueSummary {
        ValueSummary { count: self.count as f64, min: self.min, max: self.max }
    }

    /// Reads the answer of [`Function::CellSums`](crate::Function::CellSums) for a group.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).ok()
    }

    /// Appends the encoded state. All numbers are little-endian:
    ///
    /// ```text
    /// 0    splits, u32
    /// 4    level of the cells, u8
    /// 5    1 if a value was below zero or NaN, else 0, u8
    /// 6    number of values, u64
    /// 14   the smallest value, f64
    /// 22   the largest value, f64
    /// 30   cells: number, u32, and sum, f64
    /// ```
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.splits.to_le_bytes());
        out.extend_from_slice(&[self.series.level(), u8::from(self.is_signed)]);
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.min.to_le_bytes());
        out.extend_from_slice(&self.max.to_le_bytes());
        for (cell, value) in self.series.entries() {
            out.extend_from_slice(&cell.to_le_bytes());
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let cut = |offset, needed| SketchError::Truncated { state: STATE, offset, needed };
        let corrupt = |offset, problem| SketchError::Corrupt { state: STATE, offset, problem };
        let Some((head, cells)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Err(cut(bytes.len(), HEAD_BYTES - bytes.len()));
        };
        let [s0, s1, s2, s3, level, signed, rest @ ..] = *head;
        let ([count, min, max], []) = rest.as_chunks::<8>() else {
            return Err(corrupt(6, "its head has another size"));
        };
        if signed > 1 {
            return Err(corrupt(5, "it is neither signed nor not"));
        }
        let (cells, rest) = cells.as_chunks::<12>();
        if !rest.is_empty() {
            return Err(cut(bytes.len(), 12 - rest.len()));
        }
        let cells = cells.iter().map(|[c0, c1, c2, c3, value @ ..]| {
            (u32::from_le_bytes([*c0, *c1, *c2, *c3]), f64::from_le_bytes(*value))
        });
        let series =
            SumsByCell::from_entries(level, cells.collect()).ok_or_else(|| corrupt(4, NO_CELLS))?;
        Ok(CellSums {
            series,
            last: 0,
            splits: u32::from_le_bytes([s0, s1, s2, s3]),
            is_signed: signed == 1,
            count: u64::from_le_bytes(*count),
            min: f64::from_le_bytes(*min),
            max: f64::from_le_bytes(*max),
        })
    }
}

const NO_CELLS: &str = "its cells are too many, not in order or none of their level";

/// Sums, or counts, by cell.
pub(super) struct CellsOf {
    /// Whether values are counted and not added up.
    counts: bool,
    /// How many splits the input has.
    splits: usize,
    switch: Switch,
}

impl CellsOf {
    pub(super) fn new(counts: bool, splits: u64, switch: &Switch) -> Self {
        let splits = usize::try_from(splits).unwrap_or(usize::MAX);
        CellsOf { counts, splits, switch: switch.clone() }
    }

    fn cell(&self, split: u64) -> u32 {
        cell_of_split(usize::try_from(split).unwrap_or(usize::MAX), self.splits)
    }
}

impl SketchKind for CellsOf {
    type State = CellSums;
    type Item = ();
    const NAME: &'static str = STATE;

    fn empty(&self) -> CellSums {
        CellSums::default()
    }

    fn heap(state: &CellSums) -> usize {
        state.series.capacity() * CELL_BYTES
    }

    fn merge(into: &mut CellSums, from: &mut CellSums) {
        into.merge(from);
    }

    fn encode(state: &CellSums, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<CellSums, SketchError> {
        CellSums::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        if self.switch.is_off() {
            return Ok(());
        }
        let positions = rows.positions.ok_or_else(|| mismatch(Self::NAME))?;
        let positions: &UInt64Array =
            positions.as_primitive_opt::<UInt64Type>().ok_or_else(|| mismatch(Self::NAME))?;
        let nulls = rows.values.and_then(|values| values.logical_nulls());
        let values = match rows.values.filter(|_| !self.counts) {
            Some(values) => Some(value::cast_to(values, &DataType::Float64)?),
            None => None,
        };
        let values = values.as_ref().map(|values| values.as_primitive::<Float64Type>().values());
        // Rows come split by split.
        let (mut last, mut cell) = (u64::MAX, 0);
        let added: Result<(), std::convert::Infallible> =
            states.try_each(rows, nulls.as_ref(), |state, row| {
                let split = split_of(positions.value(row));
                if split != last {
                    (last, cell) = (split, self.cell(split));
                }
                Ok(state.add(split, cell, values.map_or(1.0, |values| values[row])))
            });
        let Ok(()) = added;
        Ok(())
    }

    fn precision(_: &CellSums, _: &Aggregate) -> Option<Precision> {
        None
    }

    fn finish(&self, states: &[CellSums], _: &Aggregate) -> Result<ArrayRef> {
        let mut builder = LargeBinaryBuilder::with_capacity(states.len(), 0);
        let mut bytes = Vec::new();
        for state in states {
            bytes.clear();
            // Turned off, they are not whole, and nobody asks for them.
            if !self.switch.is_off() {
                state.encode(&mut bytes);
            }
            builder.append_value(&bytes);
        }
        Ok(Arc::new(builder.finish()))
    }
}

/// The quantiles of a group by cell.
#[derive(Debug, Clone, Default)]
pub struct CellQuantiles {
    cells: ValuesByCell<Quantiles>,
    /// As in [`CellSums`].
    last: u64,
    splits: u32,
    /// What the cells' histograms have on the heap.
    heap: usize,
}

/// Adds a histogram to another, of which the bytes on the heap are counted in `heap`.
fn join(heap: &mut usize) -> impl FnMut(&mut Quantiles, Quantiles) {
    |own, other| {
        let before = own.heap_bytes() + other.heap_bytes();
        own.merge_owned(other);
        *heap = (*heap + own.heap_bytes()).saturating_sub(before);
    }
}

impl CellQuantiles {
    fn add(&mut self, split: u64, cell: u32, value: f64) {
        if self.last != split + 1 {
            self.last = split + 1;
            self.splits = self.splits.saturating_add(1);
        }
        let quantiles = self.cells.cell_value_mut(cell, Quantiles::default, join(&mut self.heap));
        let before = quantiles.heap_bytes();
        quantiles.add(value);
        self.heap = (self.heap + quantiles.heap_bytes()).saturating_sub(before);
    }

    fn merge(&mut self, other: &mut CellQuantiles) {
        self.splits = self.splits.saturating_add(other.splits);
        self.heap += std::mem::take(&mut other.heap);
        self.cells.merge(std::mem::take(&mut other.cells), join(&mut self.heap));
    }

    /// The histograms by cell.
    pub fn cells(&self) -> &ValuesByCell<Quantiles> {
        &self.cells
    }

    /// In how many splits the group was seen.
    pub fn splits(&self) -> u64 {
        u64::from(self.splits)
    }

    /// Reads the answer of [`Function::CellQuantiles`](crate::Function::CellQuantiles) for a group.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).ok()
    }

    /// The form on disk: the number of splits in four bytes and the level of the cells in one, then each cell in four, the bytes of its
    /// histogram in four, and these.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.splits.to_le_bytes());
        out.push(self.cells.level());
        let mut bytes = Vec::new();
        for (cell, quantiles) in self.cells.entries() {
            bytes.clear();
            quantiles.encode(&mut bytes);
            out.extend_from_slice(&cell.to_le_bytes());
            out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        const STATE: &str = CellQuantilesOf::NAME;
        let cut = |rest: &[u8], needed| SketchError::Truncated {
            state: STATE,
            offset: bytes.len() - rest.len(),
            needed,
        };
        let (splits, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| cut(bytes, 4))?;
        let (level, mut rest) = rest.split_first().ok_or_else(|| cut(rest, 1))?;
        let mut cells: Vec<(u32, Quantiles)> = Vec::new();
        let mut heap = 0;
        while !rest.is_empty() {
            let (head, more) = rest.split_first_chunk::<8>().ok_or_else(|| cut(rest, 8))?;
            let [c0, c1, c2, c3, l0, l1, l2, l3] = *head;
            let cell = u32::from_le_bytes([c0, c1, c2, c3]);
            let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            let (own, more) = more.split_at_checked(len).ok_or_else(|| cut(more, len))?;
            let quantiles = Quantiles::decode(own)?;
            heap += quantiles.heap_bytes();
            cells.push((cell, quantiles));
            rest = more;
        }
        let corrupt = || SketchError::Corrupt { state: STATE, offset: 4, problem: NO_CELLS };
        let cells = ValuesByCell::from_entries(*level, cells).ok_or_else(corrupt)?;
        Ok(CellQuantiles { cells, last: 0, splits: u32::from_le_bytes(*splits), heap })
    }
}

/// Quantiles by cell.
pub(super) struct CellQuantilesOf {
    splits: usize,
}

impl CellQuantilesOf {
    pub(super) fn new(splits: u64) -> Self {
        CellQuantilesOf { splits: usize::try_from(splits).unwrap_or(usize::MAX) }
    }
}

impl SketchKind for CellQuantilesOf {
    type State = CellQuantiles;
    type Item = ();
    const NAME: &'static str = "cell_quantiles";

    fn empty(&self) -> CellQuantiles {
        CellQuantiles::default()
    }

    fn heap(state: &CellQuantiles) -> usize {
        state.cells.capacity() * size_of::<(u32, Quantiles)>() + state.heap
    }

    fn merge(into: &mut CellQuantiles, from: &mut CellQuantiles) {
        into.merge(from);
    }

    fn encode(state: &CellQuantiles, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<CellQuantiles, SketchError> {
        CellQuantiles::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let positions = rows.positions.ok_or_else(|| mismatch(Self::NAME))?;
        let positions: &UInt64Array =
            positions.as_primitive_opt::<UInt64Type>().ok_or_else(|| mismatch(Self::NAME))?;
        let values = value::cast_to(rows.values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let (mut last, mut cell) = (u64::MAX, 0);
        states.each(rows, values.nulls(), |state, row| {
            let split = split_of(positions.value(row));
            if split != last {
                let index = usize::try_from(split).unwrap_or(usize::MAX);
                (last, cell) = (split, cell_of_split(index, self.splits));
            }
            state.add(split, cell, values.value(row));
        });
        Ok(())
    }

    fn precision(_: &CellQuantiles, _: &Aggregate) -> Option<Precision> {
        None
    }

    fn finish(&self, states: &[CellQuantiles], _: &Aggregate) -> Result<ArrayRef> {
        let mut builder = LargeBinaryBuilder::with_capacity(states.len(), 0);
        let mut bytes = Vec::new();
        for state in states {
            bytes.clear();
            state.encode(&mut bytes);
            builder.append_value(&bytes);
        }
        Ok(Arc::new(builder.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(rows: &[(u64, u32, f64)]) -> CellSums {
        let mut sums = CellSums::default();
        for (split, cell, value) in rows {
            sums.add(*split, *cell, *value);
        }
        sums
    }

    fn parts(sums: &CellSums) -> (u32, bool, u8, &[(u32, f64)]) {
        (sums.splits, sums.is_signed, sums.series.level(), sums.series.entries())
    }

    #[test]
    fn cells_add_up_whatever_the_order_and_the_parts() {
        let rows = [(9, 3, 1.0), (9, 3, 2.0), (1, 0, 4.0), (70, 63, 8.0), (2, 0, 16.0)];
        let whole = sums(&rows);
        assert_eq!(parts(&whole), (4, false, 0, &[(0, 20.0), (3, 3.0), (63, 8.0)][..]));
        let (mut one, mut other) = (sums(&rows[..2]), sums(&rows[2..]));
        one.merge(&mut other);
        assert_eq!(parts(&one), parts(&whole));
        let mut none = CellSums::default();
        none.merge(&mut whole.clone());
        assert_eq!(parts(&none), parts(&whole));
    }

    #[test]
    fn many_cells_become_coarser_whatever_the_parts() {
        let rows: Vec<_> = (0..1_000).map(|n| (n, (n * 37 % 1_000) as u32, 1.0)).collect();
        let whole = sums(&rows);
        assert!(whole.series.level() > 0 && whole.series.entries().len() <= 64);
        let mut merged = CellSums::default();
        for part in rows.chunks(130) {
            merged.merge(&mut sums(part));
        }
        assert_eq!(parts(&merged), parts(&whole));
        assert_eq!((merged.splits, merged.series.sum()), (1_000, 1_000.0));
    }

    #[test]
    fn a_value_below_zero_is_remembered() {
        for (value, is_signed) in
            [(0.0, false), (1.0, false), (-0.0, false), (-1.0, true), (f64::NAN, true)]
        {
            let mut whole = sums(&[(1, 1, 2.0)]);
            whole.merge(&mut sums(&[(2, 2, value), (3, 3, 1.0)]));
            assert_eq!(whole.is_signed(), is_signed, "{value}");
            let mut bytes = Vec::new();
            whole.encode(&mut bytes);
            assert_eq!(CellSums::read(&bytes).unwrap().is_signed(), is_signed);
        }
    }

    #[test]
    fn values_are_counted_and_their_range_is_kept_whatever_the_parts() {
        let check = |rows: &[(u64, u32, f64)], count: f64, min: f64, max: f64| {
            for cut in 0..=rows.len() {
                let (one, other) = rows.split_at(cut);
                let (mut one, mut other) = (sums(one), sums(other));
                one.merge(&mut other);
                let mut bytes = Vec::new();
                one.encode(&mut bytes);
                for state in [&one, &CellSums::read(&bytes).unwrap()] {
                    assert_eq!(state.values(), ValueSummary { count, min, max });
                }
            }
        };
        check(&[(1, 1, 2.0), (1, 1, -3.5), (9, 4, 8.0)], 3.0, -3.5, 8.0);
        check(&[(1, 1, f64::NAN), (2, 2, 4.0)], 2.0, 4.0, 4.0);
        check(&[], 0.0, f64::INFINITY, f64::NEG_INFINITY);
    }

    #[test]
    fn the_form_on_disk_is_read_back_and_what_is_none_is_refused() {
        let many: Vec<_> = (0..1_000).map(|n| (n, n as u32 * 2, 1.0)).collect();
        for rows in [&[][..], &[(9, 3, 1.5)], &[(1, 0, -4.0), (70, 63, f64::MAX)], &many] {
            let (state, mut bytes) = (sums(rows), Vec::new());
            state.encode(&mut bytes);
            assert_eq!(parts(&CellSums::decode(&bytes).unwrap()), parts(&state));
            for end in (0..bytes.len())
                .filter(|end| *end < HEAD_BYTES || !(end - HEAD_BYTES).is_multiple_of(12))
            {
                assert!(CellSums::decode(&bytes[..end]).is_err(), "{end}");
            }
        }
        let check = |level: u8, signed: u8, cells: &[u32], is_valid: bool| {
            let mut bytes = vec![1, 0, 0, 0, level, signed];
            bytes.resize(HEAD_BYTES, 0);
            for cell in cells {
                bytes.extend_from_slice(&cell.to_le_bytes());
                bytes.extend_from_slice(&1.0_f64.to_le_bytes());
            }
            assert_eq!(CellSums::decode(&bytes).is_ok(), is_valid, "{level} {signed} {cells:?}");
        };
        check(0, 0, &[4, 5], true);
        check(0, 1, &[4, 5], true);
        check(0, 2, &[4, 5], false);
        check(0, 0, &[5, 4], false);
        check(0, 0, &[5, 5], false);
        check(0, 0, &(0..64).collect::<Vec<_>>(), true);
        check(0, 0, &(0..65).collect::<Vec<_>>(), false);
        check(0, 0, &[u32::MAX], false);
        check(30, 0, &[0, 1], true);
        check(30, 0, &[0, 2], false);
        check(31, 0, &[], false);
        check(255, 0, &[0], false);
    }

    /// Whatever bytes are read as, it is a state that can be added to, merged and written.
    #[test]
    fn any_bytes_are_refused_or_are_a_state() {
        let mut whole = sums(&(0..50).map(|n| (n, n as u32 * 20, 1.0)).collect::<Vec<_>>());
        let mut bytes = Vec::new();
        whole.encode(&mut bytes);
        let mut word = 7_u64;
        for _ in 0..20_000 {
            let mut changed = bytes.clone();
            for _ in 0..3 {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (word >> 33) as usize % changed.len();
                changed[at] = (word >> 20) as u8;
            }
            if let Ok(mut state) = CellSums::decode(&changed) {
                state.add(7, 1_999, 1.0);
                state.merge(&mut whole.clone());
                assert!(state.series.entries().len() <= 64);
                let mut again = Vec::new();
                state.encode(&mut again);
                assert_eq!(parts(&CellSums::decode(&again).unwrap()).2, state.series.level());
            }
        }
        whole.merge(&mut CellSums::default());
        assert_eq!(whole.splits(), 50);
    }

    #[test]
    fn quantiles_by_cell_are_those_of_their_rows_whatever_the_parts() {
        let rows: Vec<(u64, u32, f64)> = (0..5_000)
            .map(|n| (n / 50, (n / 50 * 17 % 256) as u32, (n * 7 % 1_000) as f64))
            .collect();
        let of = |rows: &[(u64, u32, f64)]| {
            let mut state = CellQuantiles::default();
            rows.iter().for_each(|(split, cell, value)| state.add(*split, *cell, *value));
            state
        };
        let whole = of(&rows);
        assert_eq!(whole.splits, 100);
        let (mut one, mut other) = (of(&rows[..1_700]), of(&rows[1_700..]));
        one.merge(&mut other);
        let mut bytes = Vec::new();
        one.encode(&mut bytes);
        let read = CellQuantiles::read(&bytes).unwrap();
        assert!(read.cells.level() > 0 && read.cells.entries().len() <= 64);
        assert_eq!((read.splits, read.cells.level()), (100, whole.cells.level()));
        assert_eq!(read.cells.entries().len(), whole.cells.entries().len());
        let both = read.cells.entries().iter().zip(whole.cells.entries());
        for ((cell, read), (own, quantiles)) in both {
            assert_eq!((cell, read.count()), (own, quantiles.count()));
            assert_eq!(read.quantile(0.5), quantiles.quantile(0.5));
        }
        for state in [&one, &whole, &read] {
            let histograms = state.cells.entries().iter();
            assert_eq!(state.heap, histograms.map(|(_, of)| of.heap_bytes()).sum::<usize>());
        }
        for end in 0..bytes.len().min(200) {
            let _ = CellQuantiles::decode(&bytes[..end]);
        }
        assert!(CellQuantiles::decode(&bytes[..bytes.len() - 1]).is_err());
        // A level at which there are no such cells, and cells that are not in order.
        let mut wrong = bytes.clone();
        wrong[4] = 31;
        assert!(CellQuantiles::decode(&wrong).is_err());
        wrong = bytes.clone();
        wrong[5..9].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(CellQuantiles::decode(&wrong).is_err());
    }
}
