//! What was read: which splits, by position, and how many bytes they have.
//!
//! A group's values are by [cell](crate::Cells), at a level of its own. What they are compared with is what was read of these
//! cells: a [`Level`], which is made once when the first group asks for it.

use std::sync::{Arc, OnceLock};

use crate::cells::{CELLS, above, cell_of, digits_of};
use crate::student::student_t;

/// Which splits of how many were read, and their bytes.
///
/// It is one for the whole answer, and keeps 16 bytes for each split read. What a group's quantity was in these splits is a
/// [`Series`](crate::Series), to which a split without the group adds nothing.
#[derive(Debug, Clone)]
pub struct Sample {
    read: Arc<Read>,
    splits_total: usize,
    bytes_total: f64,
    bytes_read: f64,
    confidence: f64,
    quantiles: Arc<Quantiles>,
    /// At 95 %.
    quantiles_95: Arc<Quantiles>,
}

impl Sample {
    /// Nothing read yet of `splits_total` splits with `bytes_total` bytes; intervals will hold the answer with
    /// probability `confidence`, 0.95 as a rule.
    pub fn new(splits_total: usize, bytes_total: f64, confidence: f64) -> Self {
        Self {
            read: Arc::new(Read::default()),
            splits_total,
            bytes_total,
            bytes_read: 0.0,
            confidence,
            quantiles: Arc::new(Quantiles::new(confidence)),
            quantiles_95: Arc::new(Quantiles::new(0.95)),
        }
    }

    /// The split at position `index`, of `bytes` bytes, was read.
    pub fn add(&mut self, index: usize, bytes: f64) {
        let read = Arc::make_mut(&mut self.read);
        read.splits.push((cell_of(index, self.splits_total), bytes));
        if std::mem::take(&mut read.has_levels).into_inner().is_some() {
            read.levels = Default::default();
        }
        self.bytes_read += bytes;
    }

    /// The same splits, with intervals of another confidence.
    #[must_use]
    pub fn with_confidence(&self, confidence: f64) -> Self {
        let quantiles = Arc::new(Quantiles::new(confidence));
        Self { confidence, quantiles, ..self.clone() }
    }

    /// The probability with which intervals hold the answer.
    pub fn confidence(&self) -> f64 {
        self.confidence
    }

    /// Whether every split was read, so that answers are exact.
    pub fn is_whole(&self) -> bool {
        self.splits_read() >= self.splits_total as u64
    }

    /// How many splits there are.
    pub fn splits_total(&self) -> usize {
        self.splits_total
    }

    /// How many splits were read.
    pub fn splits_read(&self) -> u64 {
        self.read.splits.len() as u64
    }

    /// The share of the bytes that was read, from 0 to 1. Where no split has bytes, the share of the splits.
    pub fn share(&self) -> f64 {
        if self.is_whole() {
            1.0
        } else if self.bytes_read > 0.0 {
            (self.bytes_read / self.bytes_total).min(1.0)
        } else if self.bytes_total > 0.0 {
            0.0
        } else {
            self.splits_read() as f64 / self.splits_total as f64
        }
    }

    /// By how much a sum over the splits read is multiplied to estimate the total: 1 where all were read,
    /// 0 where nothing was.
    pub fn factor(&self) -> f64 {
        let share = self.share();
        if share > 0.0 { 1.0 / share } else { 0.0 }
    }

    /// Returns true if a sum equals the sum of the sizes of the splits read, so that its total is known. This holds for
    /// a count of all rows if sizes are numbers of rows.
    pub fn is_size(&self, sum: f64) -> bool {
        self.bytes_read > 0.0 && (sum - self.bytes_read).abs() <= 1e-9 * self.bytes_read
    }

    /// What was read of the cells of a level, or of the highest.
    pub(crate) fn level(&self, level: u8) -> &Level {
        let highest = digits_of(self.splits_total);
        let level = u32::from(level).min(highest);
        let read = &self.read;
        let _ = read.has_levels.set(());
        read.levels[level as usize]
            .get_or_init(|| Level::new(&read.splits, self.bytes_read, level, highest - level))
    }

    /// Student's t for so many degrees of freedom, rounded down, at the sample's confidence.
    pub(crate) fn t(&self, degrees: f64) -> f64 {
        self.quantiles.t(degrees)
    }

    /// The same at 95 %.
    pub(crate) fn t_95(&self, degrees: f64) -> f64 {
        self.quantiles_95.t(degrees)
    }
}

/// Student's t at one confidence, computed when first asked for.
#[derive(Debug)]
struct Quantiles {
    confidence: f64,
    /// Twice per degree of freedom from 1 on: at 1, 1.5, 2, …
    t: [OnceLock<f64>; 2 * CELLS],
}

impl Quantiles {
    fn new(confidence: f64) -> Self {
        Self { confidence, t: [const { OnceLock::new() }; 2 * CELLS] }
    }

    fn t(&self, degrees: f64) -> f64 {
        // What is no number is as bad as one degree.
        let halves = (degrees.max(1.0).min(CELLS as f64) * 2.0).floor();
        // Between 2 and twice CELLS.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let place = halves as usize - 2;
        *self.t[place].get_or_init(|| student_t(self.confidence, halves / 2.0))
    }
}

/// The splits that were read.
#[derive(Debug, Clone, Default)]
struct Read {
    /// Their cells of level 0, and bytes.
    splits: Vec<(u32, f64)>,
    /// Set as soon as a level was made.
    has_levels: OnceLock<()>,
    levels: [OnceLock<Level>; 31],
}

/// A cell of which a split was read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unit {
    pub(crate) cell: u32,
    /// The number of its stretch, among those of which a split was read.
    pub(crate) stretch: u32,
    /// How many of its splits were read, and one over it.
    pub(crate) splits: f64,
    pub(crate) per_split: f64,
    /// Its share in the bytes read.
    pub(crate) share: f64,
    /// The weight of the squared difference between the unit before and this one, of means by split, in the variance.
    pub(crate) weight: f64,
}

impl Unit {
    /// The share of a split of it.
    pub(crate) fn mean(&self) -> f64 {
        self.share * self.per_split
    }

    /// What the difference between the unit before and this one adds to the variance of a sum of bytes.
    pub(crate) fn term(&self, before: &Unit) -> f64 {
        let difference = self.mean() - before.mean();
        self.weight * difference * difference
    }
}

/// What was read of the cells of a level: what variances are estimated from.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    /// In order of position.
    pub(crate) units: Vec<Unit>,
    /// For each unit, the number of splits of all units before it, and their share. The last entry covers all units.
    sums: Vec<(f64, f64)>,
    /// Of the shares of all units the sums of the second, third and fourth powers, and of the second by their splits.
    pub(crate) powers: [f64; 4],
    /// The sum of all units' terms.
    pub(crate) terms: f64,
    /// How many differences there are within stretches, and between them.
    pub(crate) within: f64,
    pub(crate) between: f64,
    /// By how much the terms of single units at either end are too few.
    pub(crate) scale: f64,
    /// How many splits were read.
    pub(crate) splits: f64,
    /// For each so many cells the first unit in or after them.
    buckets: Vec<u32>,
    bucket_digits: u32,
}

impl Level {
    fn new(splits: &[(u32, f64)], bytes: f64, level: u32, digits: u32) -> Self {
        let mut splits = std::borrow::Cow::Borrowed(splits);
        if !splits.is_sorted_by_key(|(cell, _)| *cell) {
            splits.to_mut().sort_unstable_by_key(|(cell, _)| *cell);
        }
        let share = |of: f64| if bytes > 0.0 { of / bytes } else { 0.0 };
        let mut units: Vec<Unit> = Vec::new();
        let is_one =
            |(one, _): &(u32, f64), (next, _): &(u32, f64)| one >> level >> 1 == next >> level >> 1;
        for (of_stretch, stretch) in splits.chunk_by(is_one).zip(0..) {
            for coin in 0..2 {
                let of_cell = of_stretch.iter().filter(|(cell, _)| cell & 1 == coin);
                let (count, bytes) =
                    of_cell.fold((0.0, 0.0), |(count, sum), (_, bytes)| (count + 1.0, sum + bytes));
                if count > 0.0 {
                    let cell = above(of_stretch[0].0, level) & !1 | coin;
                    let (share, per_split) = (share(bytes), 1.0 / count);
                    units.push(Unit {
                        cell,
                        stretch,
                        splits: count,
                        per_split,
                        share,
                        weight: 0.0,
                    });
                }
            }
        }
        let is_single = |at: usize| {
            let stretch = units[at].stretch;
            let is_alone =
                |other: Option<&Unit>| other.is_none_or(|other| other.stretch != stretch);
            is_alone(at.checked_sub(1).and_then(|at| units.get(at))) && is_alone(units.get(at + 1))
        };
        let singles: Vec<f64> =
            (0..units.len()).map(|at| f64::from(u8::from(is_single(at)))).collect();
        for at in 1..units.len() {
            let (one, next) = (units[at - 1], units[at]);
            let product = one.splits * next.splits;
            units[at].weight = if one.stretch == next.stretch {
                product
            } else {
                // Of a unit without another in its stretch one half is told by each neighbour.
                let alone = one.splits * singles[at - 1] + next.splits * singles[at];
                alone / 2.0 * product / (one.splits + next.splits)
            };
        }
        let is_within = |pair: &&[Unit]| pair[0].stretch == pair[1].stretch;
        let within = units.windows(2).filter(is_within).count() as f64;
        let between = units.windows(2).filter(|pair| !is_within(pair) && pair[1].weight > 0.0);
        let between = between.count() as f64;
        let ends = units.first().zip(units.last()).map_or(0.0, |(first, last)| {
            (first.splits * singles[0] + last.splits * singles[units.len() - 1]) / 2.0
        });
        let mut powers = [0.0; 4];
        for unit in &units {
            let square = unit.share * unit.share;
            powers[0] += square;
            powers[1] += square * unit.share;
            powers[2] += square * square;
            powers[3] += square * unit.per_split;
        }
        let mut sums = vec![(0.0, 0.0)];
        sums.extend(units.iter().scan((0.0, 0.0), |(splits, share), unit| {
            *splits += unit.splits;
            *share += unit.share;
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
            sums,
            powers,
            terms: units.windows(2).map(|pair| pair[1].term(&pair[0])).sum(),
            within,
            between,
            scale: count / (count - ends),
            splits: count,
            buckets,
            bucket_digits,
            units,
        }
    }

    /// Whether differences are within stretches, or most of them.
    pub(crate) fn is_paired(&self) -> bool {
        self.within >= self.between
    }

    /// Returns the number of splits read in the stretches from one cell to another, and their share of the bytes read.
    pub(crate) fn span(&self, first: u32, last: u32) -> (f64, f64) {
        let from = self.units.partition_point(|unit| unit.cell >> 1 < first >> 1);
        let until = self.units.partition_point(|unit| unit.cell >> 1 <= last >> 1);
        let (before, with) = (self.sums[from], self.sums[until]);
        (with.0 - before.0, with.1 - before.1)
    }

    /// The number of the unit of a cell.
    pub(crate) fn unit(&self, cell: u32) -> Option<usize> {
        let mut at = *self.buckets.get((cell >> self.bucket_digits) as usize)? as usize;
        while self.units.get(at)?.cell < cell {
            at += 1;
        }
        (self.units[at].cell == cell).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DrawnOrder;

    #[test]
    fn a_sample_knows_its_share() {
        let mut sample = Sample::new(4, 100.0, 0.95);
        assert_eq!((sample.factor(), sample.share(), sample.is_whole()), (0.0, 0.0, false));
        sample.add(2, 40.0);
        assert_eq!((sample.factor(), sample.share(), sample.splits_read()), (2.5, 0.4, 1));
        sample.add(0, 60.0);
        sample.add(1, 0.0);
        assert!(!sample.is_whole());
        sample.add(3, 0.0);
        assert_eq!((sample.factor(), sample.share(), sample.is_whole()), (1.0, 1.0, true));
    }

    #[test]
    fn a_sum_of_sizes_is_known() {
        let mut sample = Sample::new(4, 100.0, 0.95);
        assert!(!sample.is_size(0.0));
        sample.add(2, 40.0);
        sample.add(0, 20.0);
        assert!(sample.is_size(60.0) && !sample.is_size(59.0));
    }

    #[test]
    fn splits_without_bytes_count_by_their_number() {
        let mut sample = Sample::new(4, 0.0, 0.95);
        sample.add(1, 0.0);
        assert_eq!((sample.share(), sample.factor()), (0.25, 4.0));
        assert!(Sample::new(0, 0.0, 0.95).is_whole());
    }

    #[test]
    fn units_are_the_cells_read() {
        let mut sample = Sample::new(10, 100.0, 0.95);
        for index in [7, 2, 4] {
            sample.add(index, index as f64);
        }
        let level = sample.level(0);
        let cells: Vec<u32> = [2, 4, 7].map(|index| cell_of(index, 10)).into();
        assert_eq!(level.units.iter().map(|unit| unit.cell).collect::<Vec<_>>(), cells);
        let shares: Vec<f64> = level.units.iter().map(|unit| unit.share).collect();
        assert_eq!(shares, [2.0 / 13.0, 4.0 / 13.0, 7.0 / 13.0]);
        assert!(!level.is_paired());
        // Each is alone in its stretch; half of the first and of the last are not told of.
        assert_eq!(level.units.iter().map(|unit| unit.weight).collect::<Vec<_>>(), [0.0, 0.5, 0.5]);
        assert_eq!(level.scale, 1.5);
        sample.add(1, 1.0);
        assert_eq!(sample.level(0).units.len(), 4);
    }

    #[test]
    fn every_cell_finds_its_unit_at_every_level() {
        for (count, read) in [(1, 1), (2, 1), (10, 3), (200, 180), (5_000, 400), (5_000, 7)] {
            let mut sample = Sample::new(count, count as f64, 0.95);
            let order: Vec<usize> = DrawnOrder::new(count, 1).take(read).collect();
            order.iter().for_each(|index| sample.add(*index, 1.0));
            for level in 0..=digits_of(count) as u8 {
                let of = sample.level(level);
                assert!(of.units.is_sorted_by_key(|unit| unit.cell));
                assert_eq!(of.units.iter().map(|unit| unit.splits).sum::<f64>(), read as f64);
                let last = above(cell_of(count - 1, count), u32::from(level));
                let (splits, share) = of.span(0, last);
                assert!(splits == read as f64 && (share - 1.0).abs() < 1e-9);
                for cell in (0..count).map(|index| above(cell_of(index, count), u32::from(level))) {
                    let own = of.units.iter().filter(|unit| unit.cell >> 1 == cell >> 1);
                    assert_eq!(of.span(cell, cell).0, own.map(|unit| unit.splits).sum::<f64>());
                    let is_read = order
                        .iter()
                        .any(|index| above(cell_of(*index, count), u32::from(level)) == cell);
                    assert_eq!(of.unit(cell).map(|at| of.units[at].cell), is_read.then_some(cell));
                }
            }
            assert!(sample.level(0).unit(u32::MAX).is_none());
        }
    }

    #[test]
    fn both_cells_of_every_stretch_are_read_before_long() {
        let mut sample = Sample::new(5_000, 5_000.0, 0.95);
        for index in DrawnOrder::new(5_000, 1).take(400) {
            sample.add(index, 1.0);
        }
        let level = sample.level(8);
        assert_eq!((level.units.len(), level.is_paired(), level.scale), (64, true, 1.0));
        assert_eq!((level.within, level.between), (32.0, 0.0));
        // Together they tell of every split.
        let weights: Vec<f64> = level.units.chunks(2).map(|pair| pair[1].weight).collect();
        let products: Vec<f64> =
            level.units.chunks(2).map(|pair| pair[0].splits * pair[1].splits).collect();
        assert_eq!(weights, products);
    }
}
