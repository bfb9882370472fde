//! Intervals of totals and of smooth functions of them.
//!
//! **The estimate** of a total is a ratio estimator: what the splits read have per byte, times the bytes of all (Cochran,
//! *Sampling Techniques*, ch. 6). **The residual** of a split is what it has beyond its bytes' share; a smooth function
//! of totals has the sum of their residuals by its derivatives (linearization; of a ratio this gives Cochran's residuals,
//! and the bytes cancel). The estimate is off by the sum of the residuals of the splits read, times [`Sample::factor`];
//! its variance is estimated from sums per *unit*, a cell of which some split was read:
//!
//! ```text
//! few splits    units in order of position          v = m / (2 (m - 1)) · Σ (E_c - E_c-1)²     by neighbours
//! many          cells a, b of each of 32 stretches  v = Σ n_a n_b (E_a/n_a - E_b/n_b)²         by pairs
//! uneven        n splits in m units                 u = 2 · m/n² · ΣE_c²
//! Var = factor² · (v + u) · (1 - share of the bytes read)
//! ```
//!
//! *By neighbours* is the successive-difference estimator for systematic samples (Wolter, *Introduction to Variance
//! Estimation*, ch. 8): since the order is spread over positions, a drift along them cancels in the estimate, and so it does
//! in the variance. *By pairs* is the stratified estimator, as soon as every cell has a split (n_a and n_b are numbers of
//! splits): what tells stretches apart is no error, however much it is. *Uneven*: an order is perfectly even
//! only when 2^j of 2^k splits are read, and otherwise has a few splits too many here or there. That makes what two splits
//! anywhere differ by an error, which neither of the others sees: without it, of 20 splits of a group that grows
//! fivefold from first to last, 87 % of the intervals held in the place of 95.
//!
//! **How many standard deviations.** Student's t, with fewer degrees of freedom where few differences make
//! the variance (a group in one run has an error at the run's two ends only): [`degrees`]. Johnson's shift (1978) for the
//! skewness of the sum, as it is without replacement. Where the sum is more skewed than 0.1, the shift is
//! too little, and the bounds are those of a *studentized bootstrap* over units, with a fixed seed: 399 resamples, of
//! each the sum over its own estimated deviation. Neither side is then less than t, and the long one is
//! wider still by the skewness: a resample knows no value larger than the largest that was read.
//! A ratio varies with the splits that have the group alone: at most one degree less than these, and the variance has
//! the usual n/(n - 1).
//!
//! **What was measured** (`examples/calibrate.rs`; the table is in `bench/turbo/README.md`), of 95 % intervals: 94 to 97 %
//! hold of shuffled data; 94 to 99.7 of drifting data; 95 to 100 of data sorted by key; 93.4 to 96 of lognormal values
//! (σ = 2); 86 to 93 of sums of Pareto's (α = 1.5), which have no variance. None of those hold that rest on all splits
//! but one that is unlike them. A call takes 0.2 to 0.3 µs, where the sum is skewed 10 to 14.
//!
//! **When there is none.** Every rule that withholds intervals takes away those of samples that met the rare large
//! value, and leaves those that missed it: withholding below 6 effective units in the place of 1.4 left 72 % of the
//! intervals of lognormal sums, of which 92 % held on average in the place of 94, and 54 % of Pareto's, 83 in
//! the place of 89. So only what a single unit makes is withheld.

use crate::sample::{CELLS, RESAMPLES, Sample, Units};

/// Fewer splits than this, read or with the group in them, give no interval.
const SPLITS_MIN: u64 = 5;

/// Fewer effective units than this, (ΣE²)²/ΣE⁴, give no interval, or than a quarter of all units where that is less.
/// With 1.4 one unit has five sixths of the sum of squares.
const EFFECTIVE_UNITS_MIN: f64 = 1.4;

/// A sum whose skewness is beyond this is bootstrapped.
const SKEWNESS_MAX: f64 = 0.1;

/// Fewer units than this are not resampled: the quotients that come of it are wild.
const RESAMPLED_UNITS_MIN: usize = 8;

/// What is below this, of residuals over what they were computed from, is rounding.
const ROUNDING: f64 = 1e-13;

/// By how many splits an order may be uneven.
const UNEVEN_SPLITS: f64 = 2.0;

/// The tail that a bootstrap's resamples suffice for: beyond it, its bounds grow as those of t do.
const TAIL_MIN: f64 = 0.025;

/// An estimate from some of the splits, and how far off it may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimate; the answer itself where [`Interval::Exact`].
    pub value: f64,
    /// How far off it may be.
    pub interval: Interval,
}

/// How far off an estimate may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Interval {
    /// Every split was read: the estimate is the answer.
    Exact,
    /// With the sample's confidence the answer is between the two. They need not be as far from the estimate as
    /// one another, and know nothing of what values are possible: a count may have a `low` below zero.
    Bounds {
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
    /// Fewer than five splits were read, or had the group: they say nothing of the others.
    FewSplits,
    /// A few splits hold nearly all of what is uncertain, or nothing varied at all: no interval can be relied on.
    Wide,
}

impl Sample {
    /// The total over all splits of a quantity whose sums over those read are `series`, by cell, of a group that was
    /// in `seen_splits` of them.
    ///
    /// Takes about 0.2 µs, or 14 µs where the residuals are skewed.
    ///
    /// # Panics
    /// If the series has another length than [`CELLS`].
    pub fn total(&self, series: &[f64], seen_splits: u64) -> Estimate {
        let value = series.iter().sum::<f64>() * self.factor();
        self.smooth(value, &[(1.0, series)], seen_splits)
    }

    /// The total of one quantity over the total of another: a mean (a sum over a count), a rate, a share.
    /// Not-a-number where the latter is 0.
    ///
    /// # Panics
    /// If a series has another length than [`CELLS`].
    pub fn ratio(&self, numerator: &[f64], denominator: &[f64], seen_splits: u64) -> Estimate {
        let (above, below) = (numerator.iter().sum::<f64>(), denominator.iter().sum::<f64>());
        let value = above / below;
        let gradient = 1.0 / (below * self.factor());
        self.smooth(value, &[(gradient, numerator), (-value * gradient, denominator)], seen_splits)
    }

    /// The interval of a smooth function of totals, whose value at the estimated totals is `value`, by
    /// linearization: for each total the function's derivative by it, at the estimated totals, and its series.
    ///
    /// # Panics
    /// If a series has another length than [`CELLS`].
    pub fn smooth(&self, value: f64, parts: &[(f64, &[f64])], seen_splits: u64) -> Estimate {
        Estimate { value, interval: self.interval(value, parts, seen_splits) }
    }

    /// The interval of a share: of the total of `below` in that of `all`, where `below` counts some of what `all`
    /// counts. Its bounds are within 0 and 1.
    ///
    /// A quantile's interval follows from it (Woodruff 1952). Let `below` be the rows at or below the estimated quantile
    /// of order q: if of all rows more are below than of those read, the true quantile is lower. So it is between the
    /// estimated quantiles of the orders q + share - high and q + share - low, where the share is that of the rows read.
    ///
    /// # Panics
    /// If a series has another length than [`CELLS`].
    pub fn share_interval(&self, below: &[f64], all: &[f64], seen_splits: u64) -> Interval {
        match self.ratio(below, all, seen_splits).interval {
            Interval::Bounds { low, high } => {
                Interval::Bounds { low: low.clamp(0.0, 1.0), high: high.clamp(0.0, 1.0) }
            }
            other => other,
        }
    }

    fn interval(&self, value: f64, parts: &[(f64, &[f64])], seen_splits: u64) -> Interval {
        for (_, series) in parts {
            assert_eq!(series.len(), CELLS, "a series has a sum for each cell");
        }
        if self.is_whole() {
            return Interval::Exact;
        }
        let units = self.units();
        let splits = self.splits_read().min(seen_splits).min(units.count as u64);
        if splits < SPLITS_MIN {
            return Interval::FewSplits;
        }
        let residuals = Residuals::new(parts, units);
        match self.bounds(&residuals, units, seen_splits as f64) {
            Some((down, up)) if (value - down).is_finite() && (value + up).is_finite() => {
                Interval::Bounds { low: value - down, high: value + up }
            }
            _ => Interval::Wide,
        }
    }

    /// How far the answer may be below the estimate, and above it.
    fn bounds(&self, residuals: &Residuals, units: &Units, seen: f64) -> Option<(f64, f64)> {
        let Residuals { size, of_ratio, .. } = *residuals;
        let residuals = &residuals.values[..units.count];
        let [second, third, fourth] = powers(residuals);
        // Where each unit has the same, nothing is known of those that were not read. Not-a-number ends here too.
        if second.is_nan() || second.sqrt() <= ROUNDING {
            return None;
        }
        if second * second / fourth < EFFECTIVE_UNITS_MIN.min(units.count as f64 / 4.0) {
            return None;
        }
        let Variance { mut variance, mut degrees } = match &units.pairs {
            Some(roots) => by_pairs(residuals, roots),
            None => by_neighbours(residuals),
        };
        let read = self.splits_read() as f64;
        variance += UNEVEN_SPLITS * second * units.count as f64 / (read * read);
        if variance.sqrt() <= ROUNDING {
            return None;
        }
        if of_ratio {
            variance *= seen / (seen - 1.0);
            degrees = degrees.min(seen - 1.0);
        }
        let unread = 1.0 - self.share();
        let deviation = size * self.factor() * (variance * unread).sqrt();
        let skewness = third / (second * second.sqrt());
        let t = self.t(degrees);
        if skewness.abs() <= SKEWNESS_MAX || units.count < RESAMPLED_UNITS_MIN {
            // (1 + 2t²)/6 of Johnson's, of which the sum's own skewness goes down faster than its dependence on the
            // estimated deviation does: at half of the bytes it is 0. Beyond, it is that of the few left, and grows
            // without bounds where the expansion no longer holds.
            let root = unread.sqrt();
            let own = ((2.0 * unread - 1.0) / root).max(-0.75) * (t * t - 1.0) / 6.0;
            let shift = skewness * (t * t / 2.0 * root - own);
            return Some((deviation * (t - shift), deviation * (t + shift)));
        }
        let tail = (1.0 - self.confidence()) / 2.0;
        let (low, high) = resampled_quotients(residuals, units, tail.max(TAIL_MIN));
        let further = if tail < TAIL_MIN { t / self.t_95(degrees) } else { 1.0 };
        let long = 1.0 + skewness.abs() - SKEWNESS_MAX;
        let (of_high, of_low) = if skewness > 0.0 { (1.0, long) } else { (long, 1.0) };
        let down = (high * further * of_high).max(t);
        let up = (-low * further * of_low).max(t);
        Some((deviation * down, deviation * up))
    }
}

/// What the units have beyond their bytes' share.
struct Residuals {
    /// Of each unit, over `size`; they sum up to zero but for rounding.
    values: [f64; CELLS],
    /// The sum of the magnitudes of what they were computed from.
    size: f64,
    /// Whether the bytes cancel, as they do of ratios of totals: a unit without the group has no residual.
    of_ratio: bool,
}

impl Residuals {
    fn new(parts: &[(f64, &[f64])], units: &Units) -> Self {
        let mut values = [0.0; CELLS];
        let (mut size, mut rate, mut rate_size) = (0.0, 0.0, 0.0);
        for (gradient, series) in parts {
            let mut sum = 0.0;
            for (value, &cell) in values.iter_mut().zip(&units.cells[..units.count]) {
                let term = gradient * series[cell];
                *value += term;
                size += term.abs();
                sum += term;
            }
            rate += sum;
            rate_size += f64::abs(sum);
        }
        let of_ratio = rate.abs() < 1e-9 * rate_size;
        for (value, share) in values.iter_mut().zip(&units.shares[..units.count]) {
            *value = (*value - rate * share) / size;
        }
        Self { values, size, of_ratio }
    }
}

/// The sums of the second, third and fourth powers.
fn powers(values: &[f64]) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for value in values {
        let square = value * value;
        sums[0] += square;
        sums[1] += square * value;
        sums[2] += square * square;
    }
    sums
}

/// An estimate of the variance of the residuals' sum, and how many degrees of freedom it has.
struct Variance {
    variance: f64,
    degrees: f64,
}

/// By the two cells of each stretch.
fn by_pairs(residuals: &[f64], roots: &[f64; CELLS / 2]) -> Variance {
    let (mut sum, mut squares) = (0.0, 0.0);
    for (pair, root) in residuals.as_chunks::<2>().0.iter().zip(roots) {
        // Its square is n_a n_b (E_a/n_a - E_b/n_b)².
        let difference = pair[0] * root - pair[1] / root;
        let square = difference * difference;
        sum += square;
        squares += square * square;
    }
    let count = CELLS as f64 / 2.0;
    Variance { variance: sum, degrees: degrees(sum, squares, count, count) }
}

/// By the differences of neighbouring units.
fn by_neighbours(residuals: &[f64]) -> Variance {
    let m = residuals.len() as f64;
    let (mut sum, mut squares) = (0.0, 0.0);
    for pair in residuals.windows(2) {
        let square = (pair[1] - pair[0]) * (pair[1] - pair[0]);
        sum += square;
        squares += square * square;
    }
    // Differences share values with their neighbours: they count for two thirds as much as independent ones.
    let most = 2.0 * (m - 1.0) * (m - 1.0) / (3.0 * m - 4.0);
    Variance {
        variance: sum * m / (2.0 * (m - 1.0)),
        degrees: degrees(sum, squares, m - 1.0, most),
    }
}

/// Degrees of freedom, at most `most`, of `count` squared differences by their sum and their own squares' sum.
///
/// The effective number of differences is (Σd²)²/Σd⁴. Where it is what normal values have, a third of their number (the
/// fourth moment is three times the second's square), all degrees are there; where it is 1, one degree. Between, Satterthwaite's
/// 3(Σd²)²/Σd⁴ - 2 is right on average and too many just where the variance came out too small (of means of a group in a
/// run of a tenth of the splits, 90 % of the intervals held): less is taken, down to the effective number itself.
fn degrees(sum: f64, squares: f64, count: f64, most: f64) -> f64 {
    let effective = sum * sum / squares;
    let share = ((effective - 1.0) / (count / 3.0 - 1.0)).clamp(0.0, 1.0);
    let share = share * share;
    (effective * (1.0 - share) + most * share).min(most)
}

/// The quantiles, of the tail and of one minus it, of a resample's sum over the root of its estimated variance.
fn resampled_quotients(residuals: &[f64], units: &Units, tail: f64) -> (f64, f64) {
    let mut quotients = [0.0; RESAMPLES];
    let m = residuals.len() as f64;
    let scale = m / (2.0 * (m - 1.0));
    let by_pairs = units.pairs.is_some();
    for (quotient, drawn) in
        quotients.iter_mut().zip(units.resamples().chunks_exact(residuals.len()))
    {
        let (mut sum, mut squares) = (0.0, 0.0);
        if by_pairs {
            for &[a, b] in drawn.as_chunks::<2>().0 {
                let (a, b) = (residuals[usize::from(a)], residuals[usize::from(b)]);
                sum += a + b;
                squares += (a - b) * (a - b);
            }
        } else {
            let mut last = residuals[usize::from(drawn[0])];
            sum += last;
            for &unit in &drawn[1..] {
                let residual = residuals[usize::from(unit)];
                sum += residual;
                squares += (residual - last) * (residual - last);
                last = residual;
            }
            squares *= scale;
        }
        let variance: f64 = squares;
        *quotient =
            if variance > 0.0 { sum / variance.sqrt() } else { sum.signum() * f64::INFINITY };
    }
    // With 399 of them, the tenth from either end cuts off a fortieth.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rank = ((tail * (RESAMPLES + 1) as f64).round() as usize).clamp(1, RESAMPLES / 2);
    let (_, low, above) = quotients.select_nth_unstable_by(rank - 1, f64::total_cmp);
    let low = *low;
    let place = above.len() - rank;
    let (_, high, _) = above.select_nth_unstable_by(place, f64::total_cmp);
    (low, *high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cell_of, student_t};

    /// Ten splits of 10 bytes, of which these were read.
    fn sample(read: &[usize]) -> Sample {
        let mut sample = Sample::new(10, 100.0, 0.95);
        for index in read {
            sample.add(*index, 10.0);
        }
        sample
    }

    fn series(values: &[(usize, f64)]) -> [f64; CELLS] {
        let mut series = [0.0; CELLS];
        for (index, value) in values {
            series[cell_of(*index, 10) as usize] += value;
        }
        series
    }

    fn bounds(estimate: Estimate) -> (f64, f64) {
        match estimate.interval {
            Interval::Bounds { low, high } => (low, high),
            other => panic!("{other:?}"),
        }
    }

    fn close(value: f64, expect: f64) {
        assert!((value - expect).abs() < 1e-9 * expect.abs().max(1.0), "{value}, not {expect}");
    }

    /// Half of the splits have 15, so all have 30. The residuals are -1, 1, 0, 1 and -1, of which neighbours differ by
    /// 2, 1, 1 and 2: the variance of their sum is 5/8 · 10, and 2/5 · 4 for what is uneven. Half is left, and the
    /// total's is four times that.
    #[test]
    fn a_total_is_as_computed_by_hand() {
        let sample = sample(&[0, 2, 4, 6, 8]);
        let series = series(&[(0, 2.0), (2, 4.0), (4, 3.0), (6, 4.0), (8, 2.0)]);
        let estimate = sample.total(&series, 5);
        close(estimate.value, 30.0);
        let (low, high) = bounds(estimate);
        // 2 · 4² / (3 · 5 - 4) degrees, which are 2.9, rounded down to halves.
        let half = student_t(0.95, 2.5) * 15.7_f64.sqrt();
        close((high - low) / 2.0, half);
        // ΣE³ = 0: nothing is shifted.
        close((high + low) / 2.0, 30.0);
    }

    /// In proportion to the denominator there is nothing uncertain about a ratio, but for what 4 and 6 are off.
    #[test]
    fn a_ratio_is_as_computed_by_hand() {
        let sample = sample(&[0, 2, 4, 6, 8]);
        let rows = series(&[(0, 1.0), (2, 3.0), (4, 2.0), (6, 3.0), (8, 1.0)]);
        let sum = series(&[(0, 2.0), (2, 5.0), (4, 4.0), (6, 7.0), (8, 2.0)]);
        let estimate = sample.ratio(&sum, &rows, 5);
        close(estimate.value, 2.0);
        // Residuals 0, -1, 0, 1, 0: four differences of 1, and 2/5 · 2 for what is uneven. Of the five splits with the
        // group one degree is spent; half is left; the mean is over 10 rows.
        let deviation = ((5.0 / 8.0 * 4.0 + 0.8) * 5.0 / 4.0 * 0.5_f64).sqrt() / 10.0;
        let (low, high) = bounds(estimate);
        let half = student_t(0.95, 2.5) * deviation;
        close(low, 2.0 - half);
        close(high, 2.0 + half);
    }

    #[test]
    fn the_whole_is_exact() {
        let sample = sample(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let estimate = sample.total(&series(&[(3, 8.0)]), 1);
        assert_eq!(estimate, Estimate { value: 8.0, interval: Interval::Exact });
        assert_eq!(Sample::new(0, 0.0, 0.95).total(&[0.0; CELLS], 0).interval, Interval::Exact);
    }

    #[test]
    fn few_splits_have_no_interval() {
        let check = |read: &[usize], seen| {
            let series = series(&[(0, 1.0), (2, 2.0)]);
            assert_eq!(sample(read).total(&series, seen).interval, Interval::FewSplits);
        };
        check(&[], 0);
        check(&[0, 1, 2, 3], 4);
        check(&[0, 1, 2, 3, 4, 5], 4);
    }

    #[test]
    fn what_one_split_has_gives_no_interval() {
        let sample = sample(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let mut values: Vec<_> =
            (0..8).map(|index| (index, 1.0 + 0.1 * (index % 3) as f64)).collect();
        assert!(matches!(sample.total(&series(&values), 8).interval, Interval::Bounds { .. }));
        values[3].1 = 100.0;
        assert_eq!(sample.total(&series(&values), 8).interval, Interval::Wide);
    }

    #[test]
    fn where_nothing_varies_nothing_is_known() {
        let sample = sample(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let values: Vec<_> = (0..8).map(|index| (index, 0.1)).collect();
        let estimate = sample.total(&series(&values), 8);
        close(estimate.value, 1.0);
        assert_eq!(estimate.interval, Interval::Wide);
        assert_eq!(sample.total(&[0.0; CELLS], 8).interval, Interval::Wide);
        assert_eq!(sample.ratio(&[0.0; CELLS], &[0.0; CELLS], 8).interval, Interval::Wide);
    }

    #[test]
    fn what_is_no_number_has_no_bounds() {
        let sample = sample(&[0, 1, 2, 3, 4, 5, 6, 7]);
        for value in [f64::NAN, f64::INFINITY, f64::MAX] {
            let values: Vec<_> =
                (0..8).map(|index| (index, if index % 2 == 0 { value } else { 1.0 })).collect();
            assert_eq!(sample.total(&series(&values), 8).interval, Interval::Wide);
        }
    }

    #[test]
    fn units_do_not_matter() {
        let sample = sample(&[0, 1, 3, 4, 6, 7, 8, 9]);
        let values: Vec<_> = (0..10).map(|index| (index, (index * index % 7) as f64)).collect();
        let (low, high) = bounds(sample.total(&series(&values), 8));
        let scaled: Vec<_> = values.iter().map(|(index, value)| (*index, value * 1e-9)).collect();
        let (scaled_low, scaled_high) = bounds(sample.total(&series(&scaled), 8));
        close(scaled_low * 1e9, low);
        close(scaled_high * 1e9, high);
        let turned: Vec<_> = values.iter().map(|(index, value)| (*index, -value)).collect();
        let (turned_low, turned_high) = bounds(sample.total(&series(&turned), 8));
        close(-turned_low, high);
        close(-turned_high, low);
    }

    #[test]
    fn what_is_left_bounds_the_interval() {
        let count = 10_000;
        let value = |index: usize| ((index * 7919) % 101) as f64;
        let exact: f64 = (0..count).map(value).sum();
        for left in [1_000, 100, 10, 1] {
            let mut sample = Sample::new(count, count as f64, 0.95);
            let mut series = [0.0; CELLS];
            for index in crate::DrawnOrder::new(count, 5).take(count - left) {
                sample.add(index, 1.0);
                series[cell_of(index, count) as usize] += value(index);
            }
            let (low, high) = bounds(sample.total(&series, 1_000));
            // At most 101 for each, and there are three deviations of 29 for the root of their number.
            assert!(high - low < 200.0 * (left as f64).sqrt() && low < exact && exact < high);
        }
    }

    #[test]
    fn a_higher_confidence_is_wider() {
        let values: Vec<_> = (0..10).map(|index| (index, (index * index % 7) as f64)).collect();
        let mut last = 0.0;
        for confidence in [0.5, 0.9, 0.95, 0.97, 0.99, 0.999] {
            let sample = sample(&[0, 1, 3, 4, 6, 7, 8, 9]).with_confidence(confidence);
            let (low, high) = bounds(sample.total(&series(&values), 8));
            assert!(high - low > last);
            last = high - low;
        }
    }

    #[test]
    fn a_share_stays_within_0_and_1() {
        let sample = sample(&[0, 1, 3, 4, 6, 7, 8, 9]);
        let all: Vec<_> = (0..10).map(|index| (index, 4.0)).collect();
        let below: Vec<_> = (0..10).map(|index| (index, (index % 3 % 2) as f64)).collect();
        let Interval::Bounds { low, high } =
            sample.share_interval(&series(&below), &series(&all), 8)
        else {
            panic!("it has bounds")
        };
        assert!(0.0 <= low && low < high && high <= 1.0);
    }

    /// Where both cells of each stretch are read, what tells stretches apart is no uncertainty.
    #[test]
    fn a_drift_is_no_uncertainty() {
        let (count, read) = (20_000, 10_000);
        let mut sample = Sample::new(count, count as f64, 0.95);
        let mut series = [0.0; CELLS];
        let value = |index: usize| f64::from(u8::from((3_130..5_130).contains(&index)));
        for index in crate::DrawnOrder::new(count, 5).take(read) {
            sample.add(index, 1.0);
            series[cell_of(index, count) as usize] += value(index);
        }
        let (low, high) = bounds(sample.total(&series, 1_000));
        assert!(low < 2_000.0 && high > 2_000.0 && high - low < 200.0, "{low} {high}");
    }
}
