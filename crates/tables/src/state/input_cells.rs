//! Sums and quantiles by input cell, from which turbo computes confidence intervals for a partly read input.
//!
//! A [cell](ValuesByCell) is a range of splits. A group has, for each of at most 64 cells that contain it, the sum
//! of its rows there: for a group in few splits a cell is one split, for a group that is everywhere a stretch
//! of the input. The caller knows how much of each cell has been read.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryBuilder, UInt64Array};
use arrow::datatypes::{DataType, Float64Type, UInt64Type};
use tidemill_base::error::Result;
use tidemill_sampling::{SumsByCell, ValueSummary, ValuesByCell, cell_of_split};
use tidemill_sketch::{Quantiles, SketchError};

use super::sketch_column::{BufferedSketchStates, SketchKind};
use super::{GroupedRows, state_type_error};
use crate::spec::{SketchPrecision, StateUpdateSwitch, TableAggregate, decode_split_number};
use crate::value_encoding;

/// The sums of one group by input cell, with count and range of its values.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSums {
    sums_by_cell: SumsByCell,
    /// Number of the split that brought the last row, plus 1; 0 before the first row.
    last_split_plus_one: u64,
    /// Number of splits that contain the group. Each merged state counts separately, even for parts of one
    /// split.
    split_count: u32,
    /// True if a value was negative or NaN.
    has_negative_or_nan: bool,
    /// Number of values.
    value_count: u64,
    /// Minimum and maximum of the values, ignoring NaN. Without values, `min` is ∞ and `max` is -∞.
    min: f64,
    max: f64,
}

impl Default for CellSums {
    fn default() -> Self {
        CellSums {
            sums_by_cell: SumsByCell::default(),
            last_split_plus_one: 0,
            split_count: 0,
            has_negative_or_nan: false,
            value_count: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

const STATE_NAME: &str = "cell_sums";

/// Size of the encoded state before its cells, in bytes.
const HEADER_BYTES: usize = 30;

/// Heap memory per cell, in bytes.
const CELL_HEAP_BYTES: usize = size_of::<(u32, f64)>();

impl CellSums {
    /// Adds a value and returns the heap growth in bytes.
    fn add_value(&mut self, split: u64, cell: u32, value: f64) -> usize {
        if self.last_split_plus_one != split + 1 {
            self.last_split_plus_one = split + 1;
            self.split_count = self.split_count.saturating_add(1);
        }
        self.has_negative_or_nan |= value < 0.0 || value.is_nan();
        self.value_count = self.value_count.saturating_add(1);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let before = self.sums_by_cell.capacity();
        self.sums_by_cell.add(cell, value);
        (self.sums_by_cell.capacity() - before) * CELL_HEAP_BYTES
    }

    fn merge(&mut self, other: &mut CellSums) {
        self.split_count = self.split_count.saturating_add(other.split_count);
        self.has_negative_or_nan |= other.has_negative_or_nan;
        self.value_count = self.value_count.saturating_add(other.value_count);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sums_by_cell.merge_sums(std::mem::take(&mut other.sums_by_cell));
    }

    /// Returns the sums by cell.
    pub fn sums_by_cell(&self) -> &SumsByCell {
        &self.sums_by_cell
    }

    /// Returns the number of splits that contain the group.
    pub fn split_count(&self) -> u64 {
        u64::from(self.split_count)
    }

    /// Returns true if a value was negative or NaN, so that the unread rows may decrease the sum.
    pub fn has_negative_or_nan(&self) -> bool {
        self.has_negative_or_nan
    }

    /// Returns the count, the minimum and the maximum of the values.
    pub fn value_summary(&self) -> ValueSummary {
        ValueSummary { count: self.value_count as f64, min: self.min, max: self.max }
    }

    /// Decodes a group's answer of [`MergeableFunction::CellSums`](crate::MergeableFunction::CellSums);
    /// `None` for invalid bytes.
    pub fn from_answer_bytes(bytes: &[u8]) -> Option<Self> {
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
        out.extend_from_slice(&self.split_count.to_le_bytes());
        out.extend_from_slice(&[self.sums_by_cell.level(), u8::from(self.has_negative_or_nan)]);
        out.extend_from_slice(&self.value_count.to_le_bytes());
        out.extend_from_slice(&self.min.to_le_bytes());
        out.extend_from_slice(&self.max.to_le_bytes());
        for (cell, value) in self.sums_by_cell.entries() {
            out.extend_from_slice(&cell.to_le_bytes());
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let cut = |offset, needed| SketchError::Truncated { state: STATE_NAME, offset, needed };
        let corrupt = |offset, problem| SketchError::Corrupt { state: STATE_NAME, offset, problem };
        let Some((head, cells)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(cut(bytes.len(), HEADER_BYTES - bytes.len()));
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
        let series = SumsByCell::from_entries(level, cells.collect())
            .ok_or_else(|| corrupt(4, INVALID_CELLS_PROBLEM))?;
        Ok(CellSums {
            sums_by_cell: series,
            last_split_plus_one: 0,
            split_count: u32::from_le_bytes([s0, s1, s2, s3]),
            has_negative_or_nan: signed == 1,
            value_count: u64::from_le_bytes(*count),
            min: f64::from_le_bytes(*min),
            max: f64::from_le_bytes(*max),
        })
    }
}

const INVALID_CELLS_PROBLEM: &str = "its cells are too many, not in order or none of their level";

/// The sketch kind of sums or counts by input cell.
pub(super) struct CellSumsKind {
    /// True if values are counted, false if they are added up.
    is_count: bool,
    /// Number of splits of the input.
    split_count: usize,
    update_switch: StateUpdateSwitch,
}

impl CellSumsKind {
    pub(super) fn new(counts: bool, splits: u64, switch: &StateUpdateSwitch) -> Self {
        let splits = usize::try_from(splits).unwrap_or(usize::MAX);
        CellSumsKind { is_count: counts, split_count: splits, update_switch: switch.clone() }
    }

    fn find_cell(&self, split: u64) -> u32 {
        cell_of_split(usize::try_from(split).unwrap_or(usize::MAX), self.split_count)
    }
}

impl SketchKind for CellSumsKind {
    type State = CellSums;
    type Item = ();
    const NAME: &'static str = STATE_NAME;

    fn new_state(&self) -> CellSums {
        CellSums::default()
    }

    fn heap_bytes(state: &CellSums) -> usize {
        state.sums_by_cell.capacity() * CELL_HEAP_BYTES
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

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        if self.update_switch.is_off() {
            return Ok(());
        }
        let positions = rows.positions.ok_or_else(|| state_type_error(Self::NAME))?;
        let positions: &UInt64Array = positions
            .as_primitive_opt::<UInt64Type>()
            .ok_or_else(|| state_type_error(Self::NAME))?;
        let nulls = rows.argument_values.and_then(|values| values.logical_nulls());
        let values = match rows.argument_values.filter(|_| !self.is_count) {
            Some(values) => Some(value_encoding::cast_exactly(values, &DataType::Float64)?),
            None => None,
        };
        let values = values.as_ref().map(|values| values.as_primitive::<Float64Type>().values());
        // The rows of a split are adjacent.
        let (mut last, mut cell) = (u64::MAX, 0);
        let added: Result<(), std::convert::Infallible> =
            states.try_update_each(rows, nulls.as_ref(), |state, row| {
                let split = decode_split_number(positions.value(row));
                if split != last {
                    (last, cell) = (split, self.find_cell(split));
                }
                Ok(state.add_value(split, cell, values.map_or(1.0, |values| values[row])))
            });
        let Ok(()) = added;
        Ok(())
    }

    fn precision(_: &CellSums, _: &TableAggregate) -> Option<SketchPrecision> {
        None
    }

    fn finish(&self, states: &[CellSums], _: &TableAggregate) -> Result<ArrayRef> {
        let mut builder = LargeBinaryBuilder::with_capacity(states.len(), 0);
        let mut bytes = Vec::new();
        for state in states {
            bytes.clear();
            // After the switch is off, the states are incomplete and nobody reads them.
            if !self.update_switch.is_off() {
                state.encode(&mut bytes);
            }
            builder.append_value(&bytes);
        }
        Ok(Arc::new(builder.finish()))
    }
}

/// Quantile histograms of one group by input cell.
#[derive(Debug, Clone, Default)]
pub struct CellQuantiles {
    histograms_by_cell: ValuesByCell<Quantiles>,
    /// Number of the split that brought the last row, plus 1; 0 before the first row.
    last_split_plus_one: u64,
    /// Number of splits that contain the group, counted as in [`CellSums`].
    split_count: u32,
    /// Heap memory of the histograms, in bytes.
    heap_bytes: usize,
}

/// Returns a function that merges a histogram into another and updates `heap`, their heap memory in bytes.
fn merge_histograms(heap: &mut usize) -> impl FnMut(&mut Quantiles, Quantiles) {
    |own, other| {
        let before = own.heap_bytes() + other.heap_bytes();
        own.merge_owned(other);
        *heap = (*heap + own.heap_bytes()).saturating_sub(before);
    }
}

impl CellQuantiles {
    fn add_value(&mut self, split: u64, cell: u32, value: f64) {
        if self.last_split_plus_one != split + 1 {
            self.last_split_plus_one = split + 1;
            self.split_count = self.split_count.saturating_add(1);
        }
        let quantiles = self.histograms_by_cell.cell_value_mut(
            cell,
            Quantiles::default,
            merge_histograms(&mut self.heap_bytes),
        );
        let before = quantiles.heap_bytes();
        quantiles.add(value);
        self.heap_bytes = (self.heap_bytes + quantiles.heap_bytes()).saturating_sub(before);
    }

    fn merge(&mut self, other: &mut CellQuantiles) {
        self.split_count = self.split_count.saturating_add(other.split_count);
        self.heap_bytes += std::mem::take(&mut other.heap_bytes);
        self.histograms_by_cell.merge(
            std::mem::take(&mut other.histograms_by_cell),
            merge_histograms(&mut self.heap_bytes),
        );
    }

    /// Returns the histograms by cell.
    pub fn histograms_by_cell(&self) -> &ValuesByCell<Quantiles> {
        &self.histograms_by_cell
    }

    /// Returns the number of splits that contain the group.
    pub fn split_count(&self) -> u64 {
        u64::from(self.split_count)
    }

    /// Decodes a group's answer of
    /// [`MergeableFunction::CellQuantiles`](crate::MergeableFunction::CellQuantiles); `None` for invalid
    /// bytes.
    pub fn from_answer_bytes(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).ok()
    }

    /// Appends the encoded state: the number of splits (4 bytes) and the level of the cells (1 byte), then
    /// for each cell its number (4 bytes), the length of its histogram (4 bytes), and the histogram.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.split_count.to_le_bytes());
        out.push(self.histograms_by_cell.level());
        let mut bytes = Vec::new();
        for (cell, quantiles) in self.histograms_by_cell.entries() {
            bytes.clear();
            quantiles.encode(&mut bytes);
            out.extend_from_slice(&cell.to_le_bytes());
            out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        const STATE: &str = CellQuantilesKind::NAME;
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
        let corrupt =
            || SketchError::Corrupt { state: STATE, offset: 4, problem: INVALID_CELLS_PROBLEM };
        let cells = ValuesByCell::from_entries(*level, cells).ok_or_else(corrupt)?;
        Ok(CellQuantiles {
            histograms_by_cell: cells,
            last_split_plus_one: 0,
            split_count: u32::from_le_bytes(*splits),
            heap_bytes: heap,
        })
    }
}

/// The sketch kind of quantiles by input cell.
pub(super) struct CellQuantilesKind {
    split_count: usize,
}

impl CellQuantilesKind {
    pub(super) fn new(splits: u64) -> Self {
        CellQuantilesKind { split_count: usize::try_from(splits).unwrap_or(usize::MAX) }
    }
}

impl SketchKind for CellQuantilesKind {
    type State = CellQuantiles;
    type Item = ();
    const NAME: &'static str = "cell_quantiles";

    fn new_state(&self) -> CellQuantiles {
        CellQuantiles::default()
    }

    fn heap_bytes(state: &CellQuantiles) -> usize {
        state.histograms_by_cell.capacity() * size_of::<(u32, Quantiles)>() + state.heap_bytes
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

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let positions = rows.positions.ok_or_else(|| state_type_error(Self::NAME))?;
        let positions: &UInt64Array = positions
            .as_primitive_opt::<UInt64Type>()
            .ok_or_else(|| state_type_error(Self::NAME))?;
        let values = value_encoding::cast_exactly(rows.required_values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let (mut last, mut cell) = (u64::MAX, 0);
        states.update_each(rows, values.nulls(), |state, row| {
            let split = decode_split_number(positions.value(row));
            if split != last {
                let index = usize::try_from(split).unwrap_or(usize::MAX);
                (last, cell) = (split, cell_of_split(index, self.split_count));
            }
            state.add_value(split, cell, values.value(row));
        });
        Ok(())
    }

    fn precision(_: &CellQuantiles, _: &TableAggregate) -> Option<SketchPrecision> {
        None
    }

    fn finish(&self, states: &[CellQuantiles], _: &TableAggregate) -> Result<ArrayRef> {
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
            sums.add_value(*split, *cell, *value);
        }
        sums
    }

    fn parts(sums: &CellSums) -> (u32, bool, u8, &[(u32, f64)]) {
        (
            sums.split_count,
            sums.has_negative_or_nan,
            sums.sums_by_cell.level(),
            sums.sums_by_cell.entries(),
        )
    }

    #[test]
    fn merged_cell_sums_equal_those_of_all_rows() {
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
    fn many_cells_are_coarsened_alike_for_any_merge_order() {
        let rows: Vec<_> = (0..1_000).map(|n| (n, (n * 37 % 1_000) as u32, 1.0)).collect();
        let whole = sums(&rows);
        assert!(whole.sums_by_cell.level() > 0 && whole.sums_by_cell.entries().len() <= 64);
        let mut merged = CellSums::default();
        for part in rows.chunks(130) {
            merged.merge(&mut sums(part));
        }
        assert_eq!(parts(&merged), parts(&whole));
        assert_eq!((merged.split_count, merged.sums_by_cell.sum()), (1_000, 1_000.0));
    }

    #[test]
    fn merge_and_encoding_keep_the_negative_value_flag() {
        for (value, is_signed) in
            [(0.0, false), (1.0, false), (-0.0, false), (-1.0, true), (f64::NAN, true)]
        {
            let mut whole = sums(&[(1, 1, 2.0)]);
            whole.merge(&mut sums(&[(2, 2, value), (3, 3, 1.0)]));
            assert_eq!(whole.has_negative_or_nan(), is_signed, "{value}");
            let mut bytes = Vec::new();
            whole.encode(&mut bytes);
            assert_eq!(
                CellSums::from_answer_bytes(&bytes).unwrap().has_negative_or_nan(),
                is_signed
            );
        }
    }

    #[test]
    fn merge_and_encoding_keep_value_count_and_range() {
        let check = |rows: &[(u64, u32, f64)], count: f64, min: f64, max: f64| {
            for cut in 0..=rows.len() {
                let (one, other) = rows.split_at(cut);
                let (mut one, mut other) = (sums(one), sums(other));
                one.merge(&mut other);
                let mut bytes = Vec::new();
                one.encode(&mut bytes);
                for state in [&one, &CellSums::from_answer_bytes(&bytes).unwrap()] {
                    assert_eq!(state.value_summary(), ValueSummary { count, min, max });
                }
            }
        };
        check(&[(1, 1, 2.0), (1, 1, -3.5), (9, 4, 8.0)], 3.0, -3.5, 8.0);
        check(&[(1, 1, f64::NAN), (2, 2, 4.0)], 2.0, 4.0, 4.0);
        check(&[], 0.0, f64::INFINITY, f64::NEG_INFINITY);
    }

    #[test]
    fn encoded_state_round_trips_and_invalid_bytes_are_rejected() {
        let many: Vec<_> = (0..1_000).map(|n| (n, n as u32 * 2, 1.0)).collect();
        for rows in [&[][..], &[(9, 3, 1.5)], &[(1, 0, -4.0), (70, 63, f64::MAX)], &many] {
            let (state, mut bytes) = (sums(rows), Vec::new());
            state.encode(&mut bytes);
            assert_eq!(parts(&CellSums::decode(&bytes).unwrap()), parts(&state));
            for end in (0..bytes.len())
                .filter(|end| *end < HEADER_BYTES || !(end - HEADER_BYTES).is_multiple_of(12))
            {
                assert!(CellSums::decode(&bytes[..end]).is_err(), "{end}");
            }
        }
        let check = |level: u8, signed: u8, cells: &[u32], is_valid: bool| {
            let mut bytes = vec![1, 0, 0, 0, level, signed];
            bytes.resize(HEADER_BYTES, 0);
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

    /// A state decoded from corrupted bytes can be added to, merged and encoded.
    #[test]
    fn corrupted_bytes_are_rejected_or_decode_to_a_usable_state() {
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
                state.add_value(7, 1_999, 1.0);
                state.merge(&mut whole.clone());
                assert!(state.sums_by_cell.entries().len() <= 64);
                let mut again = Vec::new();
                state.encode(&mut again);
                assert_eq!(parts(&CellSums::decode(&again).unwrap()).2, state.sums_by_cell.level());
            }
        }
        whole.merge(&mut CellSums::default());
        assert_eq!(whole.split_count(), 50);
    }

    #[test]
    fn merged_cell_quantiles_equal_those_of_all_rows() {
        let rows: Vec<(u64, u32, f64)> = (0..5_000)
            .map(|n| (n / 50, (n / 50 * 17 % 256) as u32, (n * 7 % 1_000) as f64))
            .collect();
        let of = |rows: &[(u64, u32, f64)]| {
            let mut state = CellQuantiles::default();
            rows.iter().for_each(|(split, cell, value)| state.add_value(*split, *cell, *value));
            state
        };
        let whole = of(&rows);
        assert_eq!(whole.split_count, 100);
        let (mut one, mut other) = (of(&rows[..1_700]), of(&rows[1_700..]));
        one.merge(&mut other);
        let mut bytes = Vec::new();
        one.encode(&mut bytes);
        let read = CellQuantiles::from_answer_bytes(&bytes).unwrap();
        assert!(
            read.histograms_by_cell.level() > 0 && read.histograms_by_cell.entries().len() <= 64
        );
        assert_eq!(
            (read.split_count, read.histograms_by_cell.level()),
            (100, whole.histograms_by_cell.level())
        );
        assert_eq!(
            read.histograms_by_cell.entries().len(),
            whole.histograms_by_cell.entries().len()
        );
        let both = read.histograms_by_cell.entries().iter().zip(whole.histograms_by_cell.entries());
        for ((cell, read), (own, quantiles)) in both {
            assert_eq!((cell, read.count()), (own, quantiles.count()));
            assert_eq!(read.quantile(0.5), quantiles.quantile(0.5));
        }
        for state in [&one, &whole, &read] {
            let histograms = state.histograms_by_cell.entries().iter();
            assert_eq!(state.heap_bytes, histograms.map(|(_, of)| of.heap_bytes()).sum::<usize>());
        }
        for end in 0..bytes.len().min(200) {
            let _ = CellQuantiles::decode(&bytes[..end]);
        }
        assert!(CellQuantiles::decode(&bytes[..bytes.len() - 1]).is_err());
        // A level that has no such cells, and cells out of order.
        let mut wrong = bytes.clone();
        wrong[4] = 31;
        assert!(CellQuantiles::decode(&wrong).is_err());
        wrong = bytes.clone();
        wrong[5..9].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(CellQuantiles::decode(&wrong).is_err());
    }
}
