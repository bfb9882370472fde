//! Sums by where in the input their rows stand: what is needed to say how far off a sum is that rests on some of
//! the splits.
//!
//! The input is cut into [`CELLS`] cells of neighbouring splits. A group has, for each cell in which it was seen,
//! the sum of its rows there; cells with nothing are not kept. How much was read of each cell is known to whoever
//! reads.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryBuilder, UInt64Array};
use arrow::datatypes::{DataType, Float64Type, UInt64Type};
use tidemill_base::error::Result;
use tidemill_sampling::{CELLS, cell_of};
use tidemill_sketch::{Quantiles, SketchError};

use super::sketches::{Filled, SketchKind};
use super::{Rows, mismatch};
use crate::spec::{Aggregate, Precision, Switch, split_of};
use crate::value;

/// The sums of a group.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CellSums {
    /// In how many splits it was seen; one that is merged from parts of it counts for each.
    splits: u32,
    /// The last split that brought a row, and one more.
    last: u64,
    /// Cells in ascending order, each once.
    cells: Vec<(u32, f64)>,
    /// The place of the cell that was added to last: rows come split by split.
    at: usize,
}

const STATE: &str = "cell_sums";

/// What the cells of a state take on the heap, each.
const CELL_BYTES: usize = size_of::<(u32, f64)>();

impl CellSums {
    fn add(&mut self, split: u64, cell: u32, value: f64) -> usize {
        if self.last != split + 1 {
            self.last = split + 1;
            self.splits = self.splits.saturating_add(1);
        }
        self.add_to(cell, value)
    }

    /// Adds to a cell; how many bytes it has grown by.
    fn add_to(&mut self, cell: u32, value: f64) -> usize {
        if let Some((last, sum)) = self.cells.get_mut(self.at)
            && *last == cell
        {
            *sum += value;
            return 0;
        }
        let before = self.cells.capacity();
        match self.cells.binary_search_by_key(&cell, |(cell, _)| *cell) {
            Ok(at) => {
                self.cells[at].1 += value;
                self.at = at;
            }
            Err(at) => {
                self.cells.insert(at, (cell, value));
                self.at = at;
            }
        }
        (self.cells.capacity() - before) * CELL_BYTES
    }

    fn merge(&mut self, other: &CellSums) {
        self.splits = self.splits.saturating_add(other.splits);
        if self.cells.is_empty() {
            self.cells.clone_from(&other.cells);
            return;
        }
        for (cell, value) in &other.cells {
            self.add_to(*cell, *value);
        }
    }

    /// The form on disk: the number of splits in four bytes, then each cell in four and its sum in eight, all of them
    /// little-endian.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.splits.to_le_bytes());
        for (cell, value) in &self.cells {
            out.extend_from_slice(&cell.to_le_bytes());
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let cut = |offset, needed| SketchError::Truncated { state: STATE, offset, needed };
        let Some((splits, cells)) = bytes.split_first_chunk::<4>() else {
            return Err(cut(bytes.len(), 4 - bytes.len()));
        };
        let (cells, rest) = cells.as_chunks::<12>();
        if !rest.is_empty() {
            return Err(cut(bytes.len(), 12 - rest.len()));
        }
        let mut read: Vec<(u32, f64)> = Vec::with_capacity(cells.len());
        for (index, [c0, c1, c2, c3, value @ ..]) in cells.iter().enumerate() {
            let cell = u32::from_le_bytes([*c0, *c1, *c2, *c3]);
            if cell as usize >= CELLS || read.last().is_some_and(|(last, _)| *last >= cell) {
                let (offset, problem) = (4 + 12 * index, "its cells are not in order");
                return Err(SketchError::Corrupt { state: STATE, offset, problem });
            }
            read.push((cell, f64::from_le_bytes(*value)));
        }
        Ok(CellSums { splits: u32::from_le_bytes(*splits), last: 0, cells: read, at: 0 })
    }
}

/// Reads the answer of [`Function::CellSums`](crate::Function::CellSums) for a group into `series`, the sums of all cells; in how many
/// splits the group was seen.
pub fn read_cells(bytes: &[u8], series: &mut [f64; CELLS]) -> Option<u64> {
    series.fill(0.0);
    let sums = CellSums::decode(bytes).ok()?;
    for (cell, value) in sums.cells {
        *series.get_mut(cell as usize)? = value;
    }
    Some(u64::from(sums.splits))
}

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
        cell_of(usize::try_from(split).unwrap_or(usize::MAX), self.splits)
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
        state.cells.capacity() * CELL_BYTES
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
            state.encode(&mut bytes);
            builder.append_value(&bytes);
        }
        Ok(Arc::new(builder.finish()))
    }
}

/// The quantiles of a group by cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct CellQuantiles {
    /// As in [`CellSums`].
    splits: u32,
    last: u64,
    /// Cells in ascending order, each once.
    cells: Vec<(u32, Quantiles)>,
    /// What the cells' histograms have on the heap.
    heap: usize,
}

impl CellQuantiles {
    fn add(&mut self, split: u64, cell: u32, value: f64) {
        if self.last != split + 1 {
            self.last = split + 1;
            self.splits = self.splits.saturating_add(1);
        }
        self.change(cell, |quantiles| quantiles.add(value));
    }

    fn change(&mut self, cell: u32, change: impl FnOnce(&mut Quantiles)) {
        let at = match self.cells.binary_search_by_key(&cell, |(cell, _)| *cell) {
            Ok(at) => at,
            Err(at) => {
                self.cells.insert(at, (cell, Quantiles::default()));
                at
            }
        };
        let quantiles = &mut self.cells[at].1;
        let before = quantiles.heap_bytes();
        change(quantiles);
        self.heap = (self.heap + quantiles.heap_bytes()).saturating_sub(before);
    }

    fn merge(&mut self, other: &mut CellQuantiles) {
        self.splits = self.splits.saturating_add(other.splits);
        for (cell, quantiles) in std::mem::take(&mut other.cells) {
            self.change(cell, |own| own.merge_owned(quantiles));
        }
    }

    /// The form on disk: the number of splits in four bytes, then each cell in four, the bytes of its histogram in four,
    /// and these.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.splits.to_le_bytes());
        let mut bytes = Vec::new();
        for (cell, quantiles) in &self.cells {
            bytes.clear();
            quantiles.encode(&mut bytes);
            out.extend_from_slice(&cell.to_le_bytes());
            out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let offset = |rest: &[u8]| bytes.len() - rest.len();
        let cut = |rest: &[u8], needed| SketchError::Truncated {
            state: STATE,
            offset: offset(rest),
            needed,
        };
        let (splits, mut rest) = bytes.split_first_chunk::<4>().ok_or_else(|| cut(bytes, 4))?;
        let mut cells: Vec<(u32, Quantiles)> = Vec::new();
        let mut heap = 0;
        while !rest.is_empty() {
            let (head, more) = rest.split_first_chunk::<8>().ok_or_else(|| cut(rest, 8))?;
            let [c0, c1, c2, c3, l0, l1, l2, l3] = *head;
            let cell = u32::from_le_bytes([c0, c1, c2, c3]);
            let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            if cell as usize >= CELLS || cells.last().is_some_and(|(last, _)| *last >= cell) {
                let (offset, problem) = (offset(rest), "its cells are not in order");
                return Err(SketchError::Corrupt { state: STATE, offset, problem });
            }
            let (own, more) = more.split_at_checked(len).ok_or_else(|| cut(more, len))?;
            let quantiles = Quantiles::decode(own)?;
            heap += quantiles.heap_bytes();
            cells.push((cell, quantiles));
            rest = more;
        }
        Ok(CellQuantiles { splits: u32::from_le_bytes(*splits), last: 0, cells, heap })
    }
}

/// Reads the answer of [`Function::CellQuantiles`](crate::Function::CellQuantiles) for a group: in how many splits it was seen, and the values of each cell
/// in which it was.
pub fn read_cell_quantiles(bytes: &[u8]) -> Option<(u64, Vec<(u32, Quantiles)>)> {
    let read = CellQuantiles::decode(bytes).ok()?;
    Some((u64::from(read.splits), read.cells))
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
                (last, cell) = (split, cell_of(index, self.splits));
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

    #[test]
    fn cells_add_up_whatever_the_order_and_the_parts() {
        let rows = [(9, 3, 1.0), (9, 3, 2.0), (1, 0, 4.0), (70, 63, 8.0), (2, 0, 16.0)];
        let whole = sums(&rows);
        assert_eq!(whole.splits, 4);
        assert_eq!(whole.cells, [(0, 20.0), (3, 3.0), (63, 8.0)]);
        let (mut one, other) = (sums(&rows[..2]), sums(&rows[2..]));
        one.merge(&other);
        assert_eq!((one.splits, &one.cells), (whole.splits, &whole.cells));
        let mut none = CellSums::default();
        none.merge(&whole);
        assert_eq!(none.cells, whole.cells);
    }

    #[test]
    fn the_form_on_disk_is_read_back_and_what_is_none_is_refused() {
        for rows in [&[][..], &[(9, 3, 1.5)], &[(1, 0, -4.0), (70, 63, f64::MAX)]] {
            let (state, mut bytes) = (sums(rows), Vec::new());
            state.encode(&mut bytes);
            let read = CellSums::decode(&bytes).unwrap();
            assert_eq!((read.splits, &read.cells), (state.splits, &state.cells));
            let mut series = [7.0; CELLS];
            assert_eq!(read_cells(&bytes, &mut series), Some(u64::from(state.splits)));
            let whole: f64 = state.cells.iter().map(|(_, sum)| sum).sum();
            assert_eq!(series.iter().sum::<f64>(), whole);
            for end in (0..bytes.len()).filter(|end| *end < 4 || (end - 4) % 12 != 0) {
                assert!(CellSums::decode(&bytes[..end]).is_err(), "{end}");
            }
        }
        let mut bytes = Vec::new();
        CellSums { splits: 1, last: 0, cells: vec![(5, 1.0), (4, 1.0)], at: 0 }.encode(&mut bytes);
        assert!(CellSums::decode(&bytes).is_err());
        bytes.clear();
        CellSums { splits: 1, last: 0, cells: vec![(64, 1.0)], at: 0 }.encode(&mut bytes);
        assert!(CellSums::decode(&bytes).is_err());
    }

    #[test]
    fn quantiles_by_cell_are_those_of_their_rows_whatever_the_parts() {
        let rows: Vec<(u64, u32, f64)> =
            (0..5_000).map(|n| (n / 100, (n % 64) as u32, (n * 7 % 1_000) as f64)).collect();
        let of = |rows: &[(u64, u32, f64)]| {
            let mut state = CellQuantiles::default();
            rows.iter().for_each(|(split, cell, value)| state.add(*split, *cell, *value));
            state
        };
        let whole = of(&rows);
        assert_eq!(whole.splits, 50);
        let (mut one, mut other) = (of(&rows[..1_700]), of(&rows[1_700..]));
        one.merge(&mut other);
        let mut bytes = Vec::new();
        one.encode(&mut bytes);
        let (splits, cells) = read_cell_quantiles(&bytes).unwrap();
        assert_eq!((splits, cells.len()), (50, 64));
        for ((cell, read), (own, quantiles)) in cells.iter().zip(&whole.cells) {
            assert_eq!((cell, read.count()), (own, quantiles.count()));
            assert_eq!(read.quantile(0.5), quantiles.quantile(0.5));
        }
        let heap = one.cells.iter().map(|(_, quantiles)| quantiles.heap_bytes()).sum::<usize>();
        assert_eq!(one.heap, heap);
        for end in 0..bytes.len().min(200) {
            let _ = CellQuantiles::decode(&bytes[..end]);
        }
        assert!(CellQuantiles::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
