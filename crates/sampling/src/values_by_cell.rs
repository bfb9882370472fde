//! Values by position in the input, at a resolution of at most 64 cells.
//!
//! A value for each group and each split would take too much memory. So positions are cut into *cells*, and a
//! group keeps a value for each of at most [`CELLS_MAX`] cells in which it was seen:
//!
//! ```text
//! level 3   │           stretch 0           │           stretch 1           │  2^(d-3) stretches
//! level 2   │   stretch 0   │   stretch 1   │   stretch 2   │   stretch 3   │  2^(d-2)
//! level 1   │   0   │   1   │   2   │   3   │   4   │   5   │   6   │   7   │  2^(d-1)
//! level 0   │ 0 │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │ 7 │ 8 │ 9 │ 10│ 11│ 12│ 13│ 14│ 15│  2^d, as many as splits or more
//! coin        b   a   b   b   a   a   b   a   b   a   a   a   b   a   b   b    a hash of the split's index
//! ```
//!
//! Two cells share each stretch, by a coin for each split, so that there are two values of the same stretch
//! to compare: their difference is chance, whereas neighbouring stretches may differ because the data drifts.
//! (With 64 cells one after another, a group whose rows are together in a tenth of 20,000 splits kept an
//! interval of ±41 % when half of the splits had been read.) The coin does not depend on the order of
//! reading, and no pattern of the data (every other split from another file) can follow it.
//!
//! At level 0 each split has a cell by itself. When a group would exceed 64 cells, it goes up a level: each
//! pair of neighbouring stretches becomes one. So it is at the lowest level at which its cells fit, whatever
//! the order in which its rows came and were merged. A group in few splits, or in a short run of the input,
//! keeps fine cells there; a group that is everywhere has the 64 cells of 32 stretches.

use crate::sampling_order::mix_bits;

/// Maximum number of cells that a group keeps.
pub const CELLS_MAX: usize = 64;

/// Maximum number of binary digits of a stretch at level 0.
const STRETCH_DIGITS_MAX: u32 = 30;

/// Returns the number of binary digits of a stretch at level 0 for `count` splits.
pub(crate) fn stretch_digits(count: usize) -> u32 {
    if count < 2 { 0 } else { (usize::BITS - (count - 1).leading_zeros()).min(STRETCH_DIGITS_MAX) }
}

/// Returns the cell at level 0 of the split at position `index` of `count`: a function of these two numbers
/// alone.
///
/// Up to a billion splits have a cell each. The cell is twice the stretch, plus one by the coin.
pub fn cell_of_split(index: usize, count: usize) -> u32 {
    let index = index.min(count.saturating_sub(1));
    let stretch = ((index as u128) << stretch_digits(count)) / count.max(1) as u128;
    let coin = mix_bits(index as u64 ^ 0x7469_6465_6d69_6c6c) >> 63;
    u32::try_from(stretch * 2 + u128::from(coin)).unwrap_or(0)
}

/// Returns the cell that contains `cell`, `levels` levels above.
pub(crate) const fn coarser_cell(cell: u32, levels: u32) -> u32 {
    ((cell >> 1 >> levels) << 1) | (cell & 1)
}

/// The values of a group by cell: at most [`CELLS_MAX`], at the lowest level at which they fit.
///
/// Equal values by split give equal cells, whatever the order and the parts in which they are added.
#[derive(Debug, Clone, PartialEq)]
pub struct ValuesByCell<T> {
    /// Cells of the level in ascending order, each once.
    entries: Vec<(u32, T)>,
    level: u8,
    /// Index of the cell changed last, because values come split by split.
    last_index: u8,
}

/// The sums of a quantity of a group by cell, over the splits read.
pub type SumsByCell = ValuesByCell<f64>;

impl<T> Default for ValuesByCell<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), level: 0, last_index: 0 }
    }
}

impl<T> ValuesByCell<T> {
    /// Creates cells of a level with their values. Returns `None` if there are more than [`CELLS_MAX`], if
    /// they are not in ascending order, or if they are not cells of that level.
    pub fn from_entries(level: u8, entries: Vec<(u32, T)>) -> Option<Self> {
        let digits = STRETCH_DIGITS_MAX.checked_sub(u32::from(level))?;
        let is_in_order = entries.is_sorted_by(|(one, _), (next, _)| one < next);
        let is_within = entries.last().is_none_or(|(cell, _)| *cell < 2 << digits);
        let is_valid = entries.len() <= CELLS_MAX && is_in_order && is_within;
        is_valid.then_some(Self { entries, level, last_index: 0 })
    }

    /// Returns the number of times that neighbouring stretches were joined.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Returns the cells and their values, in ascending order of cells.
    pub fn entries(&self) -> &[(u32, T)] {
        &self.entries
    }

    /// Returns the number of cells for which heap memory is allocated.
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Returns the same cells with converted values.
    pub fn map_values<U>(&self, mut of: impl FnMut(&T) -> U) -> ValuesByCell<U> {
        let entries = self.entries.iter().map(|(cell, value)| (*cell, of(value))).collect();
        ValuesByCell { entries, level: self.level, last_index: self.last_index }
    }

    /// Returns the value of the cell that contains a cell of level 0, created by `make` if it is new. `join`
    /// adds the second value to the first if cells are joined to make room.
    #[inline]
    pub fn cell_value_mut(
        &mut self,
        cell: u32,
        make: impl FnOnce() -> T,
        join: impl FnMut(&mut T, T),
    ) -> &mut T {
        let own = coarser_cell(cell, u32::from(self.level));
        let mut at = usize::from(self.last_index);
        if self.entries.get(at).is_none_or(|(last, _)| *last != own) {
            at = match self.find_or_make_room(cell, join) {
                Ok(at) => at,
                Err((at, own)) => {
                    self.entries.insert(at, (own, make()));
                    at
                }
            };
            // Below CELLS.
            self.last_index = u8::try_from(at).unwrap_or(0);
        }
        &mut self.entries[at].1
    }

    /// Returns the index of the cell that contains a cell of level 0. For a new cell, makes room and returns
    /// the index and the cell to insert there.
    fn find_or_make_room(
        &mut self,
        cell: u32,
        mut join: impl FnMut(&mut T, T),
    ) -> Result<usize, (usize, u32)> {
        loop {
            let own = coarser_cell(cell, u32::from(self.level));
            match self.entries.binary_search_by_key(&own, |(cell, _)| *cell) {
                Ok(at) => return Ok(at),
                Err(at) if self.entries.len() < CELLS_MAX => return Err((at, own)),
                Err(_) => self.coarsen(&mut join),
            }
        }
    }

    /// Joins neighbouring stretches, one level up.
    fn coarsen(&mut self, join: &mut impl FnMut(&mut T, T)) {
        self.level += 1;
        let mut joined: Vec<(u32, T)> = Vec::with_capacity(self.entries.capacity());
        for (cell, value) in self.entries.drain(..) {
            let own = coarser_cell(cell, 1);
            // A stretch has at most two cells, and the other one may have come first.
            let near = joined.len().saturating_sub(2);
            match joined[near..].binary_search_by_key(&own, |(cell, _)| *cell) {
                Ok(at) => join(&mut joined[near + at].1, value),
                Err(at) => joined.insert(near + at, (own, value)),
            }
        }
        self.entries = joined;
    }

    /// Joins stretches up to a level, if it is above the current one.
    pub(crate) fn coarsen_to(&mut self, level: u8, mut join: impl FnMut(&mut T, T)) {
        while self.level < level {
            self.coarsen(&mut join);
        }
    }

    /// Adds the values of another group of cells, cell by cell.
    pub fn merge(&mut self, mut other: Self, mut join: impl FnMut(&mut T, T)) {
        let level = self.level.max(other.level);
        self.coarsen_to(level, &mut join);
        other.coarsen_to(level, &mut join);
        if self.entries.is_empty() {
            *self = other;
            return;
        }
        for (cell, value) in other.entries {
            // The first cell of level 0 within it.
            let first = ((cell >> 1) << level << 1) | (cell & 1);
            match self.find_or_make_room(first, &mut join) {
                Ok(at) => join(&mut self.entries[at].1, value),
                Err((at, own)) => self.entries.insert(at, (own, value)),
            }
        }
    }
}

impl SumsByCell {
    /// Adds to the sum of the cell that contains a cell of level 0.
    #[inline]
    pub fn add(&mut self, cell: u32, value: f64) {
        *self.cell_value_mut(cell, || 0.0, |sum, other| *sum += other) += value;
    }

    /// Returns the sum over all cells.
    pub fn sum(&self) -> f64 {
        self.entries.iter().map(|(_, sum)| sum).sum()
    }

    /// Adds the sums of another group of cells, cell by cell.
    pub fn merge_sums(&mut self, other: Self) {
        self.merge(other, |sum, other| *sum += other);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Returns the expected cells: those of the lowest level at which they fit.
    fn reference_cells(values: &[(u32, f64)]) -> (u8, Vec<(u32, f64)>) {
        for level in 0.. {
            let mut cells = BTreeMap::new();
            for (cell, value) in values {
                *cells.entry(coarser_cell(*cell, u32::from(level))).or_insert(0.0) += value;
            }
            if cells.len() <= CELLS_MAX {
                return (level, cells.into_iter().collect());
            }
        }
        unreachable!("two cells fit")
    }

    fn sums_of(values: &[(u32, f64)]) -> SumsByCell {
        let mut series = SumsByCell::default();
        values.iter().for_each(|(cell, value)| series.add(*cell, *value));
        series
    }

    /// Whole numbers, whose sums are exact.
    fn arbitrary_values() -> impl Strategy<Value = Vec<(u32, f64)>> {
        let near = |center: u32, width: u32| {
            (
                center.saturating_sub(width)..center.saturating_add(width).min(u32::MAX / 2),
                -9..9_i32,
            )
                .prop_map(|(cell, value)| (cell, f64::from(value)))
        };
        (0..u32::MAX / 2, 1..5_000_u32, 1..100_000_000_u32).prop_flat_map(
            move |(center, few, many)| {
                prop::collection::vec(prop_oneof![near(center, few), near(center, many)], 0..300)
            },
        )
    }

    proptest! {
        #[test]
        fn cells_are_the_finest_that_fit_for_any_order_and_merge(
            values in arbitrary_values(), cuts in prop::collection::vec(0..300_usize, 0..4), turn in 0..300_usize,
        ) {
            let (level, entries) = reference_cells(&values);
            let whole = sums_of(&values);
            prop_assert_eq!((whole.level(), whole.entries()), (level, &entries[..]));
            let mut turned = values.clone();
            turned.rotate_left(turn.min(values.len()));
            let mut parts = SumsByCell::default();
            let mut rest = &turned[..];
            for cut in cuts {
                let (part, more) = rest.split_at(cut.min(rest.len()));
                let mut part = sums_of(part);
                // Merge in both directions.
                if cut % 2 == 0 {
                    std::mem::swap(&mut part, &mut parts);
                }
                parts.merge_sums(part);
                rest = more;
            }
            parts.merge_sums(sums_of(rest));
            prop_assert_eq!((parts.level(), parts.entries()), (level, &entries[..]));
            let sum: f64 = values.iter().map(|(_, value)| value).sum();
            prop_assert_eq!(parts.sum(), sum);
            prop_assert!(parts.capacity() <= CELLS_MAX);
        }

        #[test]
        fn entries_round_trip_through_from_entries(values in arbitrary_values()) {
            let series = sums_of(&values);
            let taken = SumsByCell::from_entries(series.level(), series.entries().to_vec()).unwrap();
            prop_assert_eq!((taken.level(), taken.entries()), (series.level(), series.entries()));
        }
    }

    #[test]
    fn invalid_cells_are_rejected() {
        let check = |level, cells: &[u32], is_valid: bool| {
            let entries = cells.iter().map(|cell| (*cell, 1.0)).collect();
            assert_eq!(
                SumsByCell::from_entries(level, entries).is_some(),
                is_valid,
                "{level} {cells:?}"
            );
        };
        check(0, &[], true);
        check(0, &[(2 << 30) - 1], true);
        check(0, &[2 << 30], false);
        check(30, &[0, 1], true);
        check(30, &[2], false);
        check(31, &[], false);
        check(255, &[], false);
        check(3, &[5, 4], false);
        check(3, &[5, 5], false);
        check(3, &(0..64).collect::<Vec<_>>(), true);
        check(3, &(0..65).collect::<Vec<_>>(), false);
    }

    #[test]
    fn splits_have_a_cell_each_in_order_of_position() {
        for count in (1..200).chain([1_000, 4_096, 5_000]) {
            let stretches: Vec<u32> =
                (0..count).map(|index| cell_of_split(index, count) / 2).collect();
            assert!(stretches.is_sorted_by(|one, next| one < next));
            assert!(stretches.last().is_some_and(|last| last >> stretch_digits(count) == 0));
        }
    }

    #[test]
    fn stretches_have_equal_size_and_are_halved_by_the_coin() {
        let count = 64_000;
        let mut sizes = [0_u32; CELLS_MAX];
        for index in 0..count {
            sizes[coarser_cell(cell_of_split(index, count), stretch_digits(count) - 5) as usize] +=
                1;
        }
        assert!(sizes.iter().all(|size| (900..1100).contains(size)), "{sizes:?}");
    }

    #[test]
    fn the_largest_positions_have_a_cell() {
        assert_eq!(cell_of_split(usize::MAX - 1, usize::MAX) / 2, (1 << 30) - 1);
        assert_eq!(cell_of_split(9, 5), cell_of_split(4, 5));
        assert_eq!(cell_of_split(0, 0) / 2, 0);
    }
}
