//! What was read: which splits, by position, and how many bytes they have.
//!
//! The intervals need to know how much splits differ, and to keep each group's value for each split would cost too
//! much. So positions are cut into [`CELLS`] cells, and a group keeps a sum for each:
//!
//! ```text
//! positions   │ stretch 0 │ stretch 1 │ … │ stretch 31 │      count · 32ths
//! splits      │ a b b a b │ b a a b a │ … │ a b b a a  │      a or b: a coin that is a hash of the index
//! cells         0 and 1     2 and 3         62 and 63
//! ```
//!
//! Two cells share each of 32 stretches of positions, so that there are two values of the same stretch to compare: what
//! they differ by is chance, whereas neighbouring stretches may differ because the data drifts. (With 64 cells one
//! after another, a group whose rows stand together in a tenth of 20,000 splits kept an interval of ±41 % when half of
//! the splits had been read; so it is ±2.4 %.) The coin is no property of the order of reading, and no pattern
//! of the data (every other split of another file) can follow it.

use std::sync::{Arc, OnceLock};

use crate::order::{mix, random_word};
use crate::student::student_t;

/// How many cells the splits of an input are put into: the length of a series.
pub const CELLS: usize = 64;

/// How many resamples a studentized bootstrap takes: its 2.5 % tail is the tenth of them.
pub(crate) const RESAMPLES: usize = 399;

/// The cell of the split at position `index` of `count`, below [`CELLS`].
///
/// A function of the two numbers alone. Up to [`CELLS`] splits have a cell each, which is their index.
pub fn cell_of(index: usize, count: usize) -> u32 {
    let index = index.min(count.saturating_sub(1));
    let cell = if count <= CELLS {
        index
    } else {
        let stretch = index as u128 * (CELLS as u128 / 2) / count as u128;
        let coin = mix(index as u64 ^ 0x7469_6465_6d69_6c6c) >> 63;
        usize::try_from(stretch * 2 + u128::from(coin)).unwrap_or(0)
    };
    u32::try_from(cell).unwrap_or(0)
}

/// Which splits of how many were read, and their bytes.
///
/// It is one for the whole answer. What a group's quantity was in these splits is a *series*: its sum in each of
/// [`CELLS`] cells, a slice of that length (see [`cell_of`]), to which a split without the group adds nothing.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Bytes of the splits read, of each cell.
    read: [f64; CELLS],
    /// How many splits were read, of each cell.
    splits: [u32; CELLS],
    splits_total: usize,
    splits_read: u64,
    bytes_total: f64,
    bytes_read: f64,
    confidence: f64,
    quantiles: Arc<Quantiles>,
    /// At 95 %.
    quantiles_95: Arc<Quantiles>,
    units: OnceLock<Units>,
}

impl Sample {
    /// Nothing read yet of `splits_total` splits with `bytes_total` bytes; intervals will hold the answer with
    /// probability `confidence`, 0.95 as a rule.
    pub fn new(splits_total: usize, bytes_total: f64, confidence: f64) -> Self {
        Self {
            read: [0.0; CELLS],
            splits: [0; CELLS],
            splits_total,
            splits_read: 0,
            bytes_total,
            bytes_read: 0.0,
            confidence,
            quantiles: Arc::new(Quantiles::new(confidence)),
            quantiles_95: Arc::new(Quantiles::new(0.95)),
            units: OnceLock::new(),
        }
    }

    /// The split at position `index`, of `bytes` bytes, was read.
    pub fn add(&mut self, index: usize, bytes: f64) {
        let cell = cell_of(index, self.splits_total) as usize;
        self.read[cell] += bytes;
        self.splits[cell] += 1;
        self.splits_read += 1;
        self.bytes_read += bytes;
        self.units = OnceLock::new();
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
        self.splits_read >= self.splits_total as u64
    }

    /// How many splits there are.
    pub fn splits_total(&self) -> usize {
        self.splits_total
    }

    /// How many splits were read.
    pub fn splits_read(&self) -> u64 {
        self.splits_read
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
            self.splits_read as f64 / self.splits_total as f64
        }
    }

    /// By how much a sum over the splits read is multiplied to estimate the total: 1 where all were read,
    /// 0 where nothing was.
    pub fn factor(&self) -> f64 {
        let share = self.share();
        if share > 0.0 { 1.0 / share } else { 0.0 }
    }

    pub(crate) fn units(&self) -> &Units {
        self.units.get_or_init(|| Units::new(&self.read, &self.splits))
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
        let halves = (degrees.clamp(1.0, CELLS as f64) * 2.0).floor();
        // Between 2 and twice CELLS.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let place = halves as usize - 2;
        *self.t[place].get_or_init(|| student_t(self.confidence, halves / 2.0))
    }
}

/// The cells of which a split was read, in order of position: what a variance is estimated from.
#[derive(Debug, Clone)]
pub(crate) struct Units {
    pub(crate) count: usize,
    /// The cell of each unit.
    pub(crate) cells: [usize; CELLS],
    /// The share of each unit in the bytes read.
    pub(crate) shares: [f64; CELLS],
    /// Where both cells of every stretch were read: for each stretch the root of the number of b's splits over a's.
    pub(crate) pairs: Option<[f64; CELLS / 2]>,
    resamples: OnceLock<Box<[u8]>>,
}

impl Units {
    fn new(read: &[f64; CELLS], splits: &[u32; CELLS]) -> Self {
        let mut units = Self {
            count: 0,
            cells: [0; CELLS],
            shares: [0.0; CELLS],
            pairs: None,
            resamples: OnceLock::new(),
        };
        let bytes: f64 = read.iter().sum();
        for cell in (0..CELLS).filter(|&cell| splits[cell] > 0) {
            units.cells[units.count] = cell;
            units.shares[units.count] = if bytes > 0.0 { read[cell] / bytes } else { 0.0 };
            units.count += 1;
        }
        if units.count == CELLS {
            let mut roots = [0.0; CELLS / 2];
            for (root, pair) in roots.iter_mut().zip(splits.as_chunks::<2>().0) {
                *root = (f64::from(pair[1]) / f64::from(pair[0])).sqrt();
            }
            units.pairs = Some(roots);
        }
        units
    }

    /// For each resample as many units as there are, drawn with replacement: the same for every group.
    pub(crate) fn resamples(&self) -> &[u8] {
        self.resamples.get_or_init(|| {
            (0..RESAMPLES * self.count)
                .zip(0_u64..)
                .map(|(_, number)| {
                    let unit =
                        (u128::from(random_word(0x626f_6f74, number)) * self.count as u128) >> 64;
                    u8::try_from(unit).unwrap_or(0)
                })
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DrawnOrder;

    #[test]
    fn few_splits_have_a_cell_each() {
        for count in 1..=CELLS {
            for index in 0..count {
                assert_eq!(cell_of(index, count) as usize, index);
            }
        }
    }

    #[test]
    fn cells_are_in_order_of_position_and_of_equal_size() {
        let count = 64_000;
        let mut sizes = [0_u32; CELLS];
        let mut last = 0;
        for index in 0..count {
            let cell = cell_of(index, count);
            assert!(cell / 2 >= last);
            last = cell / 2;
            sizes[cell as usize] += 1;
        }
        assert!(sizes.iter().all(|size| (900..1100).contains(size)), "{sizes:?}");
    }

    #[test]
    fn the_largest_positions_have_a_cell() {
        assert_eq!(cell_of(usize::MAX - 1, usize::MAX) / 2, 31);
        assert_eq!(cell_of(9, 5), 4);
        assert_eq!(cell_of(0, 0), 0);
    }

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
        let units = sample.units();
        assert_eq!(&units.cells[..units.count], [2, 4, 7]);
        assert_eq!(&units.shares[..units.count], [2.0 / 13.0, 4.0 / 13.0, 7.0 / 13.0]);
        assert!(units.pairs.is_none());
        assert!(units.resamples().iter().all(|&unit| unit < 3));
    }

    #[test]
    fn both_cells_of_every_stretch_are_read_before_long() {
        let mut sample = Sample::new(5_000, 5_000.0, 0.95);
        for index in DrawnOrder::new(5_000, 1).take(400) {
            sample.add(index, 1.0);
        }
        assert!(sample.units().pairs.is_some());
    }
}
