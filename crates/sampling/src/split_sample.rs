//! The splits read, by position and size in bytes.
//!
//! The values of a group are kept by [cell](crate::ValuesByCell), at a level of its own. They are compared
//! with the bytes read of these cells: [`LevelStatistics`], computed when the first group needs the level.

use std::sync::{Arc, OnceLock};

use crate::student_t::student_t_quantile;
use crate::values_by_cell::{CELLS_MAX, cell_of_split, coarser_cell, stretch_digits};

/// The splits read of an input, and their bytes.
///
/// An answer has one sample for all of its groups. It keeps 16 bytes for each split read. A group's quantity
/// in these splits is a [`SumsByCell`](crate::SumsByCell), to which a split without the group adds nothing.
#[derive(Debug, Clone)]
pub struct SplitSample {
    read_splits: Arc<SampledSplits>,
    splits_total: usize,
    bytes_total: f64,
    bytes_read: f64,
    confidence: f64,
    t_quantiles: Arc<StudentTQuantiles>,
    /// The quantiles at 95 %.
    t_quantiles_95: Arc<StudentTQuantiles>,
}

impl SplitSample {
    /// Creates a sample without splits read, of `splits_total` splits with `bytes_total` bytes. Intervals
    /// will contain the answer with probability `confidence`, usually 0.95.
    pub fn new(splits_total: usize, bytes_total: f64, confidence: f64) -> Self {
        Self {
            read_splits: Arc::new(SampledSplits::default()),
            splits_total,
            bytes_total,
            bytes_read: 0.0,
            confidence,
            t_quantiles: Arc::new(StudentTQuantiles::new(confidence)),
            t_quantiles_95: Arc::new(StudentTQuantiles::new(0.95)),
        }
    }

    /// Records that the split at position `index`, with `bytes` bytes, was read.
    pub fn add(&mut self, index: usize, bytes: f64) {
        let read = Arc::make_mut(&mut self.read_splits);
        read.cells_and_bytes.push((cell_of_split(index, self.splits_total), bytes));
        if std::mem::take(&mut read.has_levels).into_inner().is_some() {
            read.levels = Default::default();
        }
        self.bytes_read += bytes;
    }

    /// Returns the same splits, with intervals of another confidence.
    #[must_use]
    pub fn with_confidence(&self, confidence: f64) -> Self {
        let quantiles = Arc::new(StudentTQuantiles::new(confidence));
        Self { confidence, t_quantiles: quantiles, ..self.clone() }
    }

    /// Returns the probability with which intervals contain the answer.
    pub fn confidence(&self) -> f64 {
        self.confidence
    }

    /// Returns whether every split was read, so that answers are exact.
    pub fn is_whole_input(&self) -> bool {
        self.splits_read() >= self.splits_total as u64
    }

    /// Returns the number of splits of the input.
    pub fn splits_total(&self) -> usize {
        self.splits_total
    }

    /// Returns the number of splits read.
    pub fn splits_read(&self) -> u64 {
        self.read_splits.cells_and_bytes.len() as u64
    }

    /// Returns the share of the bytes read, from 0 to 1. If no split has bytes, returns the share of the
    /// splits.
    pub fn read_share(&self) -> f64 {
        if self.is_whole_input() {
            1.0
        } else if self.bytes_read > 0.0 {
            (self.bytes_read / self.bytes_total).min(1.0)
        } else if self.bytes_total > 0.0 {
            0.0
        } else {
            self.splits_read() as f64 / self.splits_total as f64
        }
    }

    /// Returns the factor by which a sum over the splits read is multiplied to estimate the total: 1 if all
    /// were read, 0 if none was.
    pub fn scale_factor(&self) -> f64 {
        let share = self.read_share();
        if share > 0.0 { 1.0 / share } else { 0.0 }
    }

    /// Returns whether a sum equals the sum of the sizes of the splits read, so that its total is known. This
    /// is true of a count of all rows if the sizes are row counts.
    pub fn is_sum_of_sizes(&self, sum: f64) -> bool {
        self.bytes_read > 0.0 && (sum - self.bytes_read).abs() <= 1e-9 * self.bytes_read
    }

    /// Returns the statistics of the cells of a level, or of the highest level.
    pub(crate) fn level_statistics(&self, level: u8) -> &LevelStatistics {
        let highest = stretch_digits(self.splits_total);
        let level = u32::from(level).min(highest);
        let read = &self.read_splits;
        let _ = read.has_levels.set(());
        read.levels[level as usize].get_or_init(|| {
            LevelStatistics::new(&read.cells_and_bytes, self.bytes_read, level, highest - level)
        })
    }

    /// Returns Student's t at the sample's confidence, with the degrees of freedom rounded down.
    pub(crate) fn student_t(&self, degrees: f64) -> f64 {
        self.t_quantiles.t_value(degrees)
    }

    /// Returns Student's t at 95 %.
    pub(crate) fn student_t_95(&self, degrees: f64) -> f64 {
        self.t_quantiles_95.t_value(degrees)
    }
}

/// Student's t at one confidence, computed on first use.
#[derive(Debug)]
struct StudentTQuantiles {
    confidence: f64,
    /// Two values per degree of freedom, from 1 on: at 1, 1.5, 2, …
    t_values: [OnceLock<f64>; 2 * CELLS_MAX],
}

impl StudentTQuantiles {
    fn new(confidence: f64) -> Self {
        Self { confidence, t_values: [const { OnceLock::new() }; 2 * CELLS_MAX] }
    }

    fn t_value(&self, degrees: f64) -> f64 {
        // Not-a-number counts as one degree.
        let halves = (degrees.max(1.0).min(CELLS_MAX as f64) * 2.0).floor();
        // The value is between 2 and twice `CELLS_MAX`.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let place = halves as usize - 2;
        *self.t_values[place].get_or_init(|| student_t_quantile(self.confidence, halves / 2.0))
    }
}

/// The splits read.
#[derive(Debug, Clone, Default)]
struct SampledSplits {
    /// The cells of level 0 of the splits, and their bytes.
    cells_and_bytes: Vec<(u32, f64)>,
    /// Set once a level has been computed.
    has_levels: OnceLock<()>,
    levels: [OnceLock<LevelStatistics>; 31],
}

/// A cell with a split that was read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SampledCell {
    pub(crate) cell: u32,
    /// The index of its stretch, among the stretches with a split that was read.
    pub(crate) stretch_index: u32,
    /// Number of its splits that were read, and the inverse of that number.
    pub(crate) split_count: f64,
    pub(crate) inverse_split_count: f64,
    /// Its share of the bytes read.
    pub(crate) bytes_share: f64,
    /// The weight in the variance of the squared difference between the means per split of the cell before
    /// and of this one.
    pub(crate) difference_weight: f64,
}

impl SampledCell {
    /// Returns the mean share of a split of the cell.
    pub(crate) fn share_per_split(&self) -> f64 {
        self.bytes_share * self.inverse_split_count
    }

    /// Returns the contribution of the difference between the cell before and this one to the variance of a
    /// sum of bytes.
    pub(crate) fn variance_term(&self, before: &SampledCell) -> f64 {
        let difference = self.share_per_split() - before.share_per_split();
        self.difference_weight * difference * difference
    }
}

/// Statistics of the cells of a level, from which variances are estimated.
#[derive(Debug, Clone)]
pub(crate) struct LevelStatistics {
    /// The cells, in order of position.
    pub(crate) cells: Vec<SampledCell>,
    /// For each cell, the number of splits of all cells before it, and their share. The last entry covers all
    /// cells.
    cumulative_splits_and_shares: Vec<(f64, f64)>,
    /// The sums of the second, third and fourth powers of the cells' shares, and of the second powers divided
    /// by splits.
    pub(crate) share_power_sums: [f64; 4],
    /// The sum of all cells' variance terms.
    pub(crate) variance_term_sum: f64,
    /// Number of differences within stretches, and between them.
    pub(crate) differences_within_stretches: f64,
    pub(crate) differences_between_stretches: f64,
    /// Factor that compensates for the halves of single cells at both ends, which have no difference.
    pub(crate) end_correction: f64,
    /// Number of splits read.
    pub(crate) split_count: f64,
    /// The first cell in or after each group of 2^`lookup_digits` cell numbers.
    cell_lookup: Vec<u32>,
    lookup_digits: u32,
}

impl LevelStatistics {
    fn new(splits: &[(u32, f64)], bytes: f64, level: u32, digits: u32) -> Self {
        let mut splits = std::borrow::Cow::Borrowed(splits);
        if !splits.is_sorted_by_key(|(cell, _)| *cell) {
            splits.to_mut().sort_unstable_by_key(|(cell, _)| *cell);
        }
        let share = |of: f64| if bytes > 0.0 { of / bytes } else { 0.0 };
        let mut units: Vec<SampledCell> = Vec::new();
        let is_one =
            |(one, _): &(u32, f64), (next, _): &(u32, f64)| one >> level >> 1 == next >> level >> 1;
        for (of_stretch, stretch) in splits.chunk_by(is_one).zip(0..) {
            for coin in 0..2 {
                let of_cell = of_stretch.iter().filter(|(cell, _)| cell & 1 == coin);
                let (count, bytes) =
                    of_cell.fold((0.0, 0.0), |(count, sum), (_, bytes)| (count + 1.0, sum + bytes));
                if count > 0.0 {
                    let cell = coarser_cell(of_stretch[0].0, level) & !1 | coin;
                    let (share, per_split) = (share(bytes), 1.0 / count);
                    units.push(SampledCell {
                        cell,
                        stretch_index: stretch,
                        split_count: count,
                        inverse_split_count: per_split,
                        bytes_share: share,
                        difference_weight: 0.0,
                    });
                }
            }
        }
        let is_single = |at: usize| {
            let stretch = units[at].stretch_index;
            let is_alone = |other: Option<&SampledCell>| {
                other.is_none_or(|other| other.stretch_index != stretch)
            };
            is_alone(at.checked_sub(1).and_then(|at| units.get(at))) && is_alone(units.get(at + 1))
        };
        let singles: Vec<f64> =
            (0..units.len()).map(|at| f64::from(u8::from(is_single(at)))).collect();
        for at in 1..units.len() {
            let (one, next) = (units[at - 1], units[at]);
            let product = one.split_count * next.split_count;
            units[at].difference_weight = if one.stretch_index == next.stretch_index {
                product
            } else {
                // Each neighbour of a cell without another in its stretch covers one half of it.
                let alone = one.split_count * singles[at - 1] + next.split_count * singles[at];
                alone / 2.0 * product / (one.split_count + next.split_count)
            };
        }
        let is_within = |pair: &&[SampledCell]| pair[0].stretch_index == pair[1].stretch_index;
        let within = units.windows(2).filter(is_within).count() as f64;
        let between =
            units.windows(2).filter(|pair| !is_within(pair) && pair[1].difference_weight > 0.0);
        let between = between.count() as f64;
        let ends = units.first().zip(units.last()).map_or(0.0, |(first, last)| {
            (first.split_count * singles[0] + last.split_count * singles[units.len() - 1]) / 2.0
        });
        let mut powers = [0.0; 4];
        for unit in &units {
            let square = unit.bytes_share * unit.bytes_share;
            powers[0] += square;
            powers[1] += square * unit.bytes_share;
            powers[2] += square * square;
            powers[3] += square * unit.inverse_split_count;
        }
        let mut sums = vec![(0.0, 0.0)];
        sums.extend(units.iter().scan((0.0, 0.0), |(splits, share), unit| {
            *splits += unit.split_count;
            *share += unit.bytes_share;
            Some((*splits, *share))
        }));
        let count = splits.len() as f64;
        let bucket_digits = (digits + 1).saturating_sub(units.len().max(1).ilog2() + 1);
        let mut buckets = Vec::with_capacity((2 << digits >> bucket_digits) + 1);
        for (unit, at) in units.iter().zip(0..) {
            while buckets.len() <= (unit.cell >> bucket_digits) as usize {
                buckets.push(at);
            }
        }
        Self {
            cumulative_splits_and_shares: sums,
            share_power_sums: powers,
            variance_term_sum: units.windows(2).map(|pair| pair[1].variance_term(&pair[0])).sum(),
            differences_within_stretches: within,
            differences_between_stretches: between,
            end_correction: count / (count - ends),
            split_count: count,
            cell_lookup: buckets,
            lookup_digits: bucket_digits,
            cells: units,
        }
    }

    /// Returns whether at least half of the differences are within stretches.
    pub(crate) fn is_mostly_paired(&self) -> bool {
        self.differences_within_stretches >= self.differences_between_stretches
    }

    /// Returns the number of splits read in the stretches between two cells, and their share of the bytes
    /// read.
    pub(crate) fn splits_and_share_between(&self, first: u32, last: u32) -> (f64, f64) {
        let from = self.cells.partition_point(|unit| unit.cell >> 1 < first >> 1);
        let until = self.cells.partition_point(|unit| unit.cell >> 1 <= last >> 1);
        let (before, with) =
            (self.cumulative_splits_and_shares[from], self.cumulative_splits_and_shares[until]);
        (with.0 - before.0, with.1 - before.1)
    }

    /// Returns the index of a cell among those with a split that was read.
    pub(crate) fn cell_index(&self, cell: u32) -> Option<usize> {
        let mut at = *self.cell_lookup.get((cell >> self.lookup_digits) as usize)? as usize;
        while self.cells.get(at)?.cell < cell {
            at += 1;
        }
        (self.cells[at].cell == cell).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SamplingOrder;

    #[test]
    fn a_sample_knows_its_share() {
        let mut sample = SplitSample::new(4, 100.0, 0.95);
        assert_eq!(
            (sample.scale_factor(), sample.read_share(), sample.is_whole_input()),
            (0.0, 0.0, false)
        );
        sample.add(2, 40.0);
        assert_eq!(
            (sample.scale_factor(), sample.read_share(), sample.splits_read()),
            (2.5, 0.4, 1)
        );
        sample.add(0, 60.0);
        sample.add(1, 0.0);
        assert!(!sample.is_whole_input());
        sample.add(3, 0.0);
        assert_eq!(
            (sample.scale_factor(), sample.read_share(), sample.is_whole_input()),
            (1.0, 1.0, true)
        );
    }

    #[test]
    fn a_sum_of_sizes_is_known() {
        let mut sample = SplitSample::new(4, 100.0, 0.95);
        assert!(!sample.is_sum_of_sizes(0.0));
        sample.add(2, 40.0);
        sample.add(0, 20.0);
        assert!(sample.is_sum_of_sizes(60.0) && !sample.is_sum_of_sizes(59.0));
    }

    #[test]
    fn splits_without_bytes_count_by_their_number() {
        let mut sample = SplitSample::new(4, 0.0, 0.95);
        sample.add(1, 0.0);
        assert_eq!((sample.read_share(), sample.scale_factor()), (0.25, 4.0));
        assert!(SplitSample::new(0, 0.0, 0.95).is_whole_input());
    }

    #[test]
    fn sampled_cells_are_those_of_the_splits_read() {
        let mut sample = SplitSample::new(10, 100.0, 0.95);
        for index in [7, 2, 4] {
            sample.add(index, index as f64);
        }
        let level = sample.level_statistics(0);
        let cells: Vec<u32> = [2, 4, 7].map(|index| cell_of_split(index, 10)).into();
        assert_eq!(level.cells.iter().map(|unit| unit.cell).collect::<Vec<_>>(), cells);
        let shares: Vec<f64> = level.cells.iter().map(|unit| unit.bytes_share).collect();
        assert_eq!(shares, [2.0 / 13.0, 4.0 / 13.0, 7.0 / 13.0]);
        assert!(!level.is_mostly_paired());
        // Each cell is alone in its stretch; half of the first and of the last has no difference.
        assert_eq!(
            level.cells.iter().map(|unit| unit.difference_weight).collect::<Vec<_>>(),
            [0.0, 0.5, 0.5]
        );
        assert_eq!(level.end_correction, 1.5);
        sample.add(1, 1.0);
        assert_eq!(sample.level_statistics(0).cells.len(), 4);
    }

    #[test]
    fn every_cell_is_found_at_every_level() {
        for (count, read) in [(1, 1), (2, 1), (10, 3), (200, 180), (5_000, 400), (5_000, 7)] {
            let mut sample = SplitSample::new(count, count as f64, 0.95);
            let order: Vec<usize> = SamplingOrder::new(count, 1).take(read).collect();
            order.iter().for_each(|index| sample.add(*index, 1.0));
            for level in 0..=stretch_digits(count) as u8 {
                let of = sample.level_statistics(level);
                assert!(of.cells.is_sorted_by_key(|unit| unit.cell));
                assert_eq!(of.cells.iter().map(|unit| unit.split_count).sum::<f64>(), read as f64);
                let last = coarser_cell(cell_of_split(count - 1, count), u32::from(level));
                let (splits, share) = of.splits_and_share_between(0, last);
                assert!(splits == read as f64 && (share - 1.0).abs() < 1e-9);
                for cell in (0..count)
                    .map(|index| coarser_cell(cell_of_split(index, count), u32::from(level)))
                {
                    let own = of.cells.iter().filter(|unit| unit.cell >> 1 == cell >> 1);
                    assert_eq!(
                        of.splits_and_share_between(cell, cell).0,
                        own.map(|unit| unit.split_count).sum::<f64>()
                    );
                    let is_read = order.iter().any(|index| {
                        coarser_cell(cell_of_split(*index, count), u32::from(level)) == cell
                    });
                    assert_eq!(
                        of.cell_index(cell).map(|at| of.cells[at].cell),
                        is_read.then_some(cell)
                    );
                }
            }
            assert!(sample.level_statistics(0).cell_index(u32::MAX).is_none());
        }
    }

    #[test]
    fn both_cells_of_every_stretch_are_read_before_long() {
        let mut sample = SplitSample::new(5_000, 5_000.0, 0.95);
        for index in SamplingOrder::new(5_000, 1).take(400) {
            sample.add(index, 1.0);
        }
        let level = sample.level_statistics(8);
        assert_eq!(
            (level.cells.len(), level.is_mostly_paired(), level.end_correction),
            (64, true, 1.0)
        );
        assert_eq!(
            (level.differences_within_stretches, level.differences_between_stretches),
            (32.0, 0.0)
        );
        // Together the weights cover every split.
        let weights: Vec<f64> =
            level.cells.chunks(2).map(|pair| pair[1].difference_weight).collect();
        let products: Vec<f64> =
            level.cells.chunks(2).map(|pair| pair[0].split_count * pair[1].split_count).collect();
        assert_eq!(weights, products);
    }
}
