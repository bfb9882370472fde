//! Intervals of totals and of smooth functions of them.
//!
//! HEADER
use crate::sample::{CELLS, RESAMPLES, Sample, Units};

/// Fewer splits than this, read or with the group in them, give no interval.
const SPLITS_MIN: u64 = 5;

/// Fewer units' worth of residuals than this give no interval, or than a quarter of all units where that is less.
const EFFECTIVE_UNITS_MIN: f64 = 1.8;

/// A sum whose skewness is beyond this is bootstrapped.
const SKEWNESS_MAX: f64 = 0.15;

/// Fewer units than this are not resampled: the quotients that come of it are wild.
const RESAMPLED_UNITS_MIN: usize = 8;

/// The tail that a bootstrap's resamples suffice for.
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
    /// Takes about 0.2 µs, or 20 µs where the residuals are skewed.
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
    /// A quantile's interval follows from it (Woodruff 1952): with `below` the rows at or below the estimated
    /// quantile of order q, the answer is between the estimated quantiles of the orders q + low − share and
    /// q + high − share.
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
        if self.splits_read().min(seen_splits) < SPLITS_MIN {
            return Interval::FewSplits;
        }
        let units = self.units();
        let mut residuals = [0.0; CELLS];
        let mut size = 0.0;
        let (mut net, mut gross) = (0.0, 0.0);
        for (gradient, series) in parts {
            let sum = gradient * series.iter().sum::<f64>();
            net += sum;
            gross += f64::abs(sum);
            size += add_residuals(&mut residuals, *gradient, series, units);
        }
        self.bounds(
            value,
            &residuals[..units.count],
            size,
            units,
            seen_splits,
            f64::abs(net) < 1e-9 * gross,
        )
    }

    /// The bounds by residuals, which sum up to zero but for rounding of numbers as large as `size`.
    fn bounds(
        &self,
        value: f64,
        residuals: &[f64],
        size: f64,
        units: &Units,
        seen_splits: u64,
        free: bool,
    ) -> Interval {
        let [second, third, fourth] = powers(residuals);
        // What is left by rounding alone: every unit has the same, which says nothing of those unread. Not-a-number
        // is no less either.
        if !(second.sqrt() > size * 1e-13 && second.is_finite()) || units.count < 5 {
            return Interval::Wide;
        }
        let effective = second * second / fourth;
        if effective < knob(1).min(units.count as f64 / 4.0) {
            return Interval::Wide;
        }
        let Variance { variance, degrees } = match &units.pairs {
            Some(roots) => by_pairs(residuals, roots),
            None => by_neighbours(residuals),
        };
        let seen = seen_splits as f64 - 1.0;
        let (variance, degrees) = if free {
            (variance * (seen + 1.0) / seen, degrees.min(seen))
        } else {
            (variance, degrees)
        };
        let over = if free && seen < 30.0 { student_at(&self, seen) } else { 1.0 };
        let unread = 1.0 - self.share();
        let deviation = self.factor() * (variance * unread).sqrt();
        let skewness = third / (second * second.sqrt());
        let t = self.t(degrees);
        let (down, up) = if skewness.abs() > SKEWNESS_MAX && units.count >= RESAMPLED_UNITS_MIN {
            let tail = (1.0 - self.confidence()) / 2.0;
            let (low, high) = resampled_quotients(residuals, units, tail.max(TAIL_MIN));
            let further = if tail < TAIL_MIN { t / student(degrees) } else { over };
            let further = further * (1.0 + knob(0) * (skewness.abs() - SKEWNESS_MAX));
            let (h, l) = (
                high * if skewness < 0.0 { further } else { over },
                low * if skewness > 0.0 { further } else { over },
            );
            if knob(2) > 1.5 {
                (
                    if skewness < 0.0 { h.max(t) } else { h },
                    if skewness > 0.0 { l.min(-t) } else { l },
                )
            } else if knob(2) > 0.5 {
                (h.max(t), l.min(-t))
            } else {
                (h, l)
            }
        } else {
            // Johnson's shift for a sample without replacement.
            let root = unread.sqrt();
            let shift =
                skewness * (t * t / 2.0 * root - (2.0 * unread - 1.0) / root * (t * t - 1.0) / 6.0);
            (t - shift, -t - shift)
        };
        let (low, high) = (value - down * deviation, value - up * deviation);
        if low.is_finite() && high.is_finite() {
            Interval::Bounds { low, high }
        } else {
            Interval::Wide
        }
    }
}

/// Adds for each unit what the series has beyond its bytes' share; the sum of what was subtracted from what.
fn add_residuals(
    residuals: &mut [f64; CELLS],
    gradient: f64,
    series: &[f64],
    units: &Units,
) -> f64 {
    let (cells, bytes) = (&units.cells[..units.count], &units.bytes[..units.count]);
    let sum: f64 = series.iter().sum();
    let bytes_read: f64 = bytes.iter().sum();
    let rate = if bytes_read > 0.0 { sum / bytes_read } else { 0.0 };
    let mut size = 0.0;
    for ((residual, &cell), bytes) in residuals.iter_mut().zip(cells).zip(bytes) {
        *residual += gradient * (series[cell] - rate * bytes);
        size += (gradient * series[cell]).abs();
    }
    size
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
        // Of values with a variance in proportion to their bytes, this has that of the pair's sum.
        let difference = pair[0] * root - pair[1] / root;
        let square = difference * difference;
        sum += square;
        squares += square * square;
    }
    let most = CELLS as f64 / 2.0;
    Variance { variance: sum, degrees: degrees(sum, squares, most, most) }
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
    let second: f64 = residuals.windows(3).map(|w| (w[2] - w[0]) * (w[2] - w[0])).sum::<f64>()
        * (m - 1.0)
        / (m - 2.0);
    let further = (second / sum).max(1.0);
    sum *= further;
    squares *= further * further;
    // Differences share values with their neighbours: they count for two thirds as much as independent ones.
    let most = 2.0 * (m - 1.0) * (m - 1.0) / (3.0 * m - 4.0);
    Variance {
        variance: sum * m / (2.0 * (m - 1.0)),
        degrees: degrees(sum, squares, m - 1.0, most),
    }
}

fn knob(i: usize) -> f64 {
    static K: std::sync::OnceLock<Vec<f64>> = std::sync::OnceLock::new();
    K.get_or_init(|| {
        std::env::var("KNOBS").unwrap().split(',').map(|x| x.parse().unwrap()).collect()
    })[i]
}
fn student_at(sample: &Sample, seen: f64) -> f64 {
    sample.t(seen) / sample.t(32.0)
}
/// Degrees.
fn degrees(sum: f64, squares: f64, count: f64, most: f64) -> f64 {
    if squares > 0.0 {
        let effective = sum * sum / squares;
        let due = count / 3.0;
        let share = ((effective - 1.0) / (due - 1.0)).clamp(0.0, 1.0);
        (effective * (1.0 - share) + most * share).min(most)
    } else {
        1.0
    }
}

/// Student's t at 95 %, which a bootstrap's tails are carried further by.
fn student(degrees: f64) -> f64 {
    crate::student::student_t(1.0 - 2.0 * TAIL_MIN, degrees)
}

/// The quantiles, of the tail and of one minus it, of a resample's sum over the root of its estimated variance.
fn resampled_quotients(residuals: &[f64], units: &Units, tail: f64) -> (f64, f64) {
    let mut quotients = [0.0; RESAMPLES];
    let m = residuals.len() as f64;
    let by_pairs = units.pairs.is_some();
    for (quotient, drawn) in
        quotients.iter_mut().zip(units.resamples().chunks_exact(residuals.len()))
    {
        let (mut sum, mut squares) = (0.0, 0.0);
        let scale = if by_pairs {
            for &[a, b] in drawn.as_chunks::<2>().0 {
                let (a, b) = (residuals[usize::from(a)], residuals[usize::from(b)]);
                sum += a + b;
                squares += (a - b) * (a - b);
            }
            1.0
        } else {
            let mut last = residuals[usize::from(drawn[0])];
            sum += last;
            for &unit in &drawn[1..] {
                let residual = residuals[usize::from(unit)];
                sum += residual;
                squares += (residual - last) * (residual - last);
                last = residual;
            }
            m / (2.0 * (m - 1.0))
        };
        let variance: f64 = squares * scale;
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

    /// Half of the splits have 15, so all have 30. The residuals are -2, -1, 0, 1 and 2, four differences of 1: the
    /// variance of their sum is 5/8 · 4, of which half is left, and the total's is four times that: 5.
    #[test]
    fn a_total_is_as_computed_by_hand() {
        let sample = sample(&[0, 2, 4, 6, 8]);
        let series = series(&[(0, 1.0), (2, 2.0), (4, 3.0), (6, 4.0), (8, 5.0)]);
        let estimate = sample.total(&series, 5);
        close(estimate.value, 30.0);
        let (low, high) = bounds(estimate);
        // 2 · 4² / (3 · 5 - 4) degrees, which are 2.9, rounded down to halves.
        let half = student_t(0.95, 2.5) * 5.0_f64.sqrt();
        close(low, 30.0 - half);
        close(high, 30.0 + half);
    }

    /// In proportion to the denominator there is nothing uncertain about a ratio, but for what 4 and 6 are off.
    #[test]
    fn a_ratio_is_as_computed_by_hand() {
        let sample = sample(&[0, 2, 4, 6, 8]);
        let rows = series(&[(0, 1.0), (2, 3.0), (4, 2.0), (6, 3.0), (8, 1.0)]);
        let sum = series(&[(0, 2.0), (2, 5.0), (4, 4.0), (6, 7.0), (8, 2.0)]);
        let estimate = sample.ratio(&sum, &rows, 5);
        close(estimate.value, 2.0);
        // Residuals 0, -1, 0, 1, 0: four differences of 1. Half is left; the mean is over 10 rows.
        let deviation = (5.0 / 8.0 * 4.0 * 0.5_f64).sqrt() / 10.0;
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
