//! Confidence intervals of totals and of smooth functions of them.
//!
//! **The estimate** of a total is a ratio estimator: the quantity per byte in the splits read, times the
//! bytes of all splits (Cochran, *Sampling Techniques*, ch. 6). **The residual** of a split is the quantity
//! beyond its bytes' share. A smooth function of totals has the sum of their residuals, weighted by its
//! derivatives (linearization; for a ratio this gives Cochran's residuals, and the bytes cancel). The error
//! of the estimate is the sum of the residuals of the splits read, times [`SplitSample::scale_factor`]. Its
//! variance is estimated from sums per *sampled cell*, a cell with a split that was read, at the
//! [level](crate::ValuesByCell) of the group. `e` is a cell's residual over its n splits.
//!
//! ```text
//! a, b of one stretch   n_a n_b (e_a - e_b)²                        by pairs: all terms if stretches are long
//! i, j of two           (n_i n_j / (n_i + n_j)) (e_i - e_j)² · h    by neighbours, h: half the splits of cells alone in theirs
//! an end of a run       by the run's length · mean of the run's y²  in place of the difference there
//! uneven                (2 v + 6 (Σ n e² - v)) / n                  for all n splits; what v lacks is drift
//! Var = factor² · ((v + uneven) · (1 - share of the bytes read) + ends)
//! ```
//!
//! *By pairs* is the stratified estimator: differences between stretches are no error, however large they
//! are. *By neighbours* is the successive-difference estimator for systematic samples (Wolter, *Introduction
//! to Variance Estimation*, ch. 8): since the order is spread over positions, a drift along them cancels in
//! the estimate, and so it does in the variance. At the finest level, where every split is by itself, it is ½
//! Σ (e_i - e_j)². Most cells are without the group and have their bytes' share as residual. Their
//! differences are summed once for all groups, so a call takes time in proportion to the cells of the group.
//!
//! *Ends of runs.* A group in a run of the input (a day, a key) differs from its surroundings by its whole
//! quantity, at two places. That is no draw from a distribution, of which two values would leave two degrees
//! of freedom and t = 4.3: the order leaves gaps of about equal length, and a run ends somewhere within one.
//! The run therefore has one split too many or too few, seldom two. `examples/runs.rs` measures that number. With m
//! splits in the run, the variance of an end is about 0.1 + 0.055 log₂ m, the *same whatever share is read*
//! (except for halves and quarters, for which it is less): with nine tenths read, the remaining tenth is no
//! more even than any other tenth. (When the variance was multiplied by the unread share, like chance, 57 %
//! of a day's intervals held with nine tenths read.) It never exceeds the variance of independent draws of
//! each split. So each end of a run of four stretches or more counts that variance times the mean of the
//! run's y², as certain, and only the differences within the run decide on the degrees of freedom. Shorter
//! runs may be there by chance, and are taken as they are. If more is read than left, the differences at
//! their ends count as they would between splits as far apart as the unread ones: as often as the run has
//! splits, or as there are splits read for each unread one.
//!
//! *Uneven*: an order is perfectly even only when 2^j of 2^k splits are read, and otherwise has a few splits
//! too many in some places. That turns the difference between any two splits into an error that the other
//! terms miss. Without this term, 87 % instead of 95 % of the intervals held for 20 splits of a group that
//! grows fivefold from first to last. Drift counts six splits, because the unread splits are as uneven as the
//! read ones, and noise, which v is, two.
//!
//! **Number of standard deviations.** Student's t, with fewer degrees of freedom if few differences make up
//! the variance: [`effective_degrees`]. Johnson's shift (1978) corrects for the skewness of the sum, which is
//! drawn without replacement. If the skewness of the sum exceeds 0.1, the shift is too small, and the bounds
//! are those of a *studentized bootstrap* over cells with a fixed seed: 399 resamples, and for each the sum
//! over its own estimated deviation. For a group that is everywhere, or in runs, the resample draws as many
//! of its cells as there are. For a group in few splits, it draws each cell as often as a Poisson variable
//! says, because the number of splits with the group is chance as well. All other cells together add a normal
//! value. Neither side is then less than t, and the long one is widened further by the skewness: a resample
//! knows no value larger than the largest one read. A ratio varies only with the splits that have the group:
//! it has at most one degree less than their number, and the variance has the usual factor n/(n - 1).
//!
//! **Measurements** (`examples/calibrate.rs`; the table is in `bench/turbo/README.md`). Of 95 % intervals
//! without margins for unlike splits, 94 to 98 % hold for shuffled data, 94 to 98.7 for drifting data, and
//! 94.5 to 99.1 for groups in one or two runs of which at least ten splits were read. 93.4 to 96 hold for
//! lognormal values (σ = 2), and 86 to 93 for sums of Pareto values (α = 1.5), which have no variance. With
//! margins, at least 95 % hold for all of these. A call takes 0.25 to 0.55 µs, or 14 to 17 µs if the sum is
//! skewed: half as much again as with 64 cells shared by all groups.
//!
//! **Limit**: a group with most of its rows in a run and the rest everywhere has coarse cells, and its
//! interval is that of a run in one or two of them.
//!
//! **No interval is withheld for its width.** A rule that withholds intervals if one cell contributes most of
//! the variance withholds those of samples that met a burst, and keeps those of samples that missed it. With
//! 30 splits read of 4,096, and errors in one hour of 37, it kept 42 % of the samples, and 36 % of their
//! intervals held. If one cell contributes nearly all of the variance, the interval is wide: a side is at
//! most three times Student's t. The [margin](crate::UnlikeSplitMargin) covers events that no sample shows.

use std::sync::LazyLock;

use crate::sampling_order::random_word;
use crate::split_sample::{LevelStatistics, SplitSample};
use crate::unlike_splits::UnlikeSplitMargin;
use crate::values_by_cell::{CELLS_MAX, SumsByCell};

/// Minimum number of splits read, and of splits with the group, for an interval.
/// [Margins](crate::UnlikeSplitMargin) need more.
const INTERVAL_SPLITS_MIN: u64 = 5;

/// Maximum skewness of a sum that Johnson's shift corrects; a sum with more is bootstrapped.
const SHIFTED_SKEWNESS_MAX: f64 = 0.1;

/// Minimum number of cells for resampling. With fewer, the bootstrap's quotients vary widely.
const RESAMPLED_CELLS_MIN: usize = 8;

/// Maximum of a bootstrap's quotient, as a multiple of Student's t. Quotients grow without bounds if one cell
/// contributes nearly all of the variance. With bursts and 30 to 4,000 splits read, as many intervals held
/// with this limit as without.
const BOOTSTRAP_QUOTIENT_MAX: f64 = 3.0;

/// Maximum ratio of residuals to the terms they were computed from that counts as a rounding error.
const ROUNDING_TOLERANCE: f64 = 1e-13;

/// Number of splits by which an order may be uneven for noise.
const UNEVEN_SPLITS: f64 = 2.0;

/// Number of splits by which an order may be uneven for drift.
const UNEVEN_DRIFT_SPLITS: f64 = 6.0;

/// Minimum number of consecutive stretches with the group for a run with ends; a shorter run may be there by
/// chance.
const RUN_STRETCHES_MIN: u32 = 4;

/// Returns the variance of the error in the number of splits read at an end of a run, with `read` splits read
/// in the run and a share of the bytes unread. It was measured (`examples/runs.rs`) to be the same for small
/// and large shares, and never exceeds that of independent draws of each split.
fn run_end_variance(read: f64, unread_share: f64) -> f64 {
    let splits = read / (1.0 - unread_share);
    (0.1 + 0.055 * libm::log2(splits)).min(read * unread_share / 2.0)
}

/// Minimum tail that the bootstrap's resamples suffice for. Beyond it, the bounds grow as those of t do.
const BOOTSTRAP_TAIL_MIN: f64 = 0.025;

/// An estimate from some of the splits, with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntervalEstimate {
    /// The estimate; the answer itself with [`ConfidenceInterval::Exact`].
    pub value: f64,
    /// The interval around it.
    pub interval: ConfidenceInterval,
}

/// The confidence interval of an estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ConfidenceInterval {
    /// Every split was read: the estimate is the answer.
    Exact,
    /// The answer lies between the two bounds with the sample's confidence. Their distances from the estimate
    /// may differ, and they may be impossible values: a count may have a `lower` below zero.
    Bounds {
        /// The lower bound.
        lower: f64,
        /// The upper bound.
        upper: f64,
    },
    /// Fewer than five splits were read, or had the group: they say nothing about the others.
    TooFewSplits,
    /// Nothing varied, or a sum is not a finite number, so the sample says nothing about the unread splits.
    NoVariation,
}

impl SplitSample {
    /// Estimates the total over all splits of a quantity with the given sums over the splits read, for a
    /// group that was in `seen_splits` of them.
    ///
    /// A call takes about 0.3 µs, or 14 µs if the residuals are skewed.
    pub fn estimate_total(
        &self,
        series: &SumsByCell,
        seen_splits: u64,
        room: UnlikeSplitMargin,
    ) -> IntervalEstimate {
        self.estimate_function(
            series.sum() * self.scale_factor(),
            &[(1.0, series)],
            seen_splits,
            room,
        )
    }

    /// Estimates the quotient of the totals of two quantities: a mean (a sum over a count), a rate, a share.
    /// The quotient is not-a-number if the denominator is 0.
    pub fn estimate_ratio(
        &self,
        numerator: &SumsByCell,
        denominator: &SumsByCell,
        seen_splits: u64,
        room: UnlikeSplitMargin,
    ) -> IntervalEstimate {
        let (above, below) = (numerator.sum(), denominator.sum());
        let value = above / below;
        let gradient = 1.0 / (below * self.scale_factor());
        let parts = [(gradient, numerator), (-value * gradient, denominator)];
        self.estimate_function(value, &parts, seen_splits, room)
    }

    /// Estimates a smooth function of totals by linearization. `value` is the function's value at the
    /// estimated totals, and `parts` has, for each total, the derivative by it at the estimated totals and
    /// its sums. The margin for unlike splits is added to the ends of the interval.
    pub fn estimate_function(
        &self,
        value: f64,
        parts: &[(f64, &SumsByCell)],
        seen_splits: u64,
        room: UnlikeSplitMargin,
    ) -> IntervalEstimate {
        let interval = match self.confidence_interval(value, parts, seen_splits) {
            ConfidenceInterval::Bounds { lower: low, upper: high } => {
                ConfidenceInterval::Bounds { lower: low - room.below, upper: high + room.above }
            }
            other => other,
        };
        IntervalEstimate { value, interval }
    }

    /// Returns the interval of a share: of the total of `below` in that of `all`, if `below` counts some of
    /// the rows that `all` counts. The bounds are within 0 and 1.
    ///
    /// A quantile's interval follows from it (Woodruff 1952). Let `below` be the rows at or below the
    /// estimated quantile of order q. If a larger share of all rows than of the rows read lies below it, the
    /// true quantile is lower. So the quantile lies between the estimated quantiles of the orders q + share -
    /// upper and q + share - lower, with the share of the rows read.
    pub fn share_interval(
        &self,
        below: &SumsByCell,
        all: &SumsByCell,
        seen_splits: u64,
    ) -> ConfidenceInterval {
        let room = match self.share_margin(below.sum() / all.sum(), all, seen_splits) {
            Some(room) => room,
            None if self.is_whole_input() => UnlikeSplitMargin::NONE,
            None => return ConfidenceInterval::TooFewSplits,
        };
        match self.estimate_ratio(below, all, seen_splits, room).interval {
            ConfidenceInterval::Bounds { lower: low, upper: high } => ConfidenceInterval::Bounds {
                lower: low.clamp(0.0, 1.0),
                upper: high.clamp(0.0, 1.0),
            },
            other => other,
        }
    }

    fn confidence_interval(
        &self,
        value: f64,
        parts: &[(f64, &SumsByCell)],
        seen_splits: u64,
    ) -> ConfidenceInterval {
        if self.is_whole_input() {
            return ConfidenceInterval::Exact;
        }
        if self.splits_read().min(seen_splits) < INTERVAL_SPLITS_MIN {
            return ConfidenceInterval::TooFewSplits;
        }
        let sums = LinearCombination::new(parts);
        let level = self.level_statistics(sums.level);
        if (level.cells.len() as u64) < INTERVAL_SPLITS_MIN {
            return ConfidenceInterval::TooFewSplits;
        }
        let spread = ResidualStatistics::new(&sums, level, 1.0 - self.read_share());
        let bounds = spread
            .and_then(|spread| self.bound_distances(&spread, &sums, level, seen_splits as f64));
        match bounds {
            Some((down, up)) if (value - down).is_finite() && (value + up).is_finite() => {
                ConfidenceInterval::Bounds { lower: value - down, upper: value + up }
            }
            _ => ConfidenceInterval::NoVariation,
        }
    }

    /// Returns the distances of the bounds below and above the estimate.
    fn bound_distances(
        &self,
        spread: &ResidualStatistics,
        sums: &LinearCombination,
        level: &LevelStatistics,
        seen: f64,
    ) -> Option<(f64, f64)> {
        let (units, second) = (level.cells.len(), spread.square_sum);
        // If all cells are equal, nothing is known about the unread ones. Not-a-number ends here, too.
        if second.is_nan() || second.sqrt() <= ROUNDING_TOLERANCE {
            return None;
        }
        let ResidualStatistics { mut variance, degrees_of_freedom: mut degrees, .. } = *spread;
        // The difference between neighbours contains no drift.
        let drift =
            (spread.square_sum_per_split - variance * units as f64 / level.split_count).max(0.0);
        variance += spread.short_run_variance.min(drift * level.split_count / units as f64);
        let unread = 1.0 - self.read_share();
        // The unread splits are as uneven as the read ones.
        let uneven = unread.max(1.0 - unread) / unread;
        let of_drift = (UNEVEN_DRIFT_SPLITS * uneven).min(level.split_count) * drift;
        variance +=
            (UNEVEN_SPLITS * (spread.square_sum_per_split - drift) + of_drift) / level.split_count;
        if variance.sqrt() <= ROUNDING_TOLERANCE {
            return None;
        }
        if sums.is_ratio {
            variance *= seen / (seen - 1.0);
            degrees = degrees.min(seen - 1.0);
        }
        let deviation = sums.magnitude * self.scale_factor() * (variance * unread).sqrt();
        let around = spread.centered_square_sum + spread.run_end_variance;
        let skewness = spread.centered_cube_sum / (around * around.sqrt());
        let t = self.student_t(degrees);
        if skewness.abs() <= SHIFTED_SKEWNESS_MAX || units < RESAMPLED_CELLS_MIN {
            // (1 + 2t²)/6 of Johnson's shift. The part for the sum's own skewness falls faster than the part
            // for its dependence on the estimated deviation: at half of the bytes it is 0. With more bytes
            // read, it is the skewness of the few unread splits, and grows without bounds where the expansion
            // no longer holds.
            let root = unread.sqrt();
            let own = ((2.0 * unread - 1.0) / root).max(-0.75) * (t * t - 1.0) / 6.0;
            let shift = skewness * (t * t / 2.0 * root - own);
            return Some((deviation * (t - shift), deviation * (t + shift)));
        }
        let tail = (1.0 - self.confidence()) / 2.0;
        let mut quotients = [0.0; RESAMPLE_COUNT];
        if spread.is_centered() {
            resample_cells(&mut quotients, spread, level.is_mostly_paired());
        } else {
            resample_poisson_counts(&mut quotients, spread, units as f64);
        }
        let (low, high) = tail_quantiles(&mut quotients, tail.max(BOOTSTRAP_TAIL_MIN));
        let further = if tail < BOOTSTRAP_TAIL_MIN { t / self.student_t_95(degrees) } else { 1.0 };
        let long = 1.0 + skewness.abs() - SHIFTED_SKEWNESS_MAX;
        let (of_high, of_low) = if skewness > 0.0 { (1.0, long) } else { (long, 1.0) };
        let down = (high * further * of_high).clamp(t, BOOTSTRAP_QUOTIENT_MAX * t);
        let up = (-low * further * of_low).clamp(t, BOOTSTRAP_QUOTIENT_MAX * t);
        Some((deviation * down, deviation * up))
    }
}

/// A linear combination of a group's quantities, by cell of the highest of their levels.
struct LinearCombination {
    level: u8,
    cell_count: usize,
    cells: [u32; CELLS_MAX],
    cell_values: [f64; CELLS_MAX],
    /// The sum of the absolute terms that it was computed from.
    magnitude: f64,
    /// The sum.
    total: f64,
    /// True if the bytes cancel, as in ratios of totals: a split without the group then has no residual.
    is_ratio: bool,
}

impl LinearCombination {
    fn new(parts: &[(f64, &SumsByCell)]) -> Self {
        let mut sums = LinearCombination {
            level: parts.iter().map(|(_, series)| series.level()).max().unwrap_or(0),
            cell_count: 0,
            cells: [0; CELLS_MAX],
            cell_values: [0.0; CELLS_MAX],
            magnitude: 0.0,
            total: 0.0,
            is_ratio: false,
        };
        while !sums.add_parts(parts) {
            sums.level += 1;
        }
        sums
    }

    /// Adds the parts up. Returns false if they have too many cells together.
    fn add_parts(&mut self, parts: &[(f64, &SumsByCell)]) -> bool {
        self.cell_count = 0;
        let (mut size, mut rate, mut rate_size) = (0.0, 0.0, 0.0);
        for (gradient, series) in parts {
            let risen;
            let entries = if series.level() == self.level {
                series.entries()
            } else {
                let mut series = (*series).clone();
                series.coarsen_to(self.level, |sum, other| *sum += other);
                risen = series;
                risen.entries()
            };
            if self.cell_count == 0 {
                self.cell_count = entries.len();
                for ((own, sum), (cell, _)) in
                    self.cells.iter_mut().zip(&mut self.cell_values).zip(entries)
                {
                    (*own, *sum) = (*cell, 0.0);
                }
            }
            // The parts usually have the same cells.
            let is_same = entries.iter().map(|(cell, _)| cell).eq(&self.cells[..self.cell_count]);
            if !is_same && self.insert_missing_cells(entries).is_none() {
                return false;
            }
            let mut sum = 0.0;
            let mut own = self.cells.iter().zip(&mut self.cell_values);
            for (cell, value) in entries {
                let term = gradient * value;
                size += f64::abs(term);
                sum += term;
                if let Some((_, own)) = own.find(|(own, _)| *own == cell) {
                    *own += term;
                }
            }
            rate += sum;
            rate_size += f64::abs(sum);
        }
        (self.magnitude, self.total) = (size, rate);
        self.is_ratio = rate.abs() < 1e-9 * rate_size;
        true
    }

    /// Inserts missing cells. Returns `None` if there are too many.
    fn insert_missing_cells(&mut self, entries: &[(u32, f64)]) -> Option<()> {
        for (cell, _) in entries {
            if let Err(at) = self.cells[..self.cell_count].binary_search(cell) {
                if self.cell_count == CELLS_MAX {
                    return None;
                }
                self.cells.copy_within(at..self.cell_count, at + 1);
                self.cell_values.copy_within(at..self.cell_count, at + 1);
                (self.cells[at], self.cell_values[at]) = (*cell, 0.0);
                self.cell_count += 1;
            }
        }
        Some(())
    }
}

/// The residuals of sampled cells and their moments: each cell with the group separately, and all other
/// cells, which have nothing but their bytes' share, together.
struct ResidualStatistics {
    /// Number of cells with the group.
    group_cell_count: usize,
    /// The residual of each of them beyond its bytes' share, over the magnitude of the sums; for a run,
    /// beyond the mean of its splits.
    residuals: [f64; CELLS_MAX],
    /// The sums of the second and fourth powers of all residuals from the bytes' share alone.
    square_sum: f64,
    fourth_power_sum: f64,
    /// The sum of the second powers divided by the cell's splits.
    square_sum_per_split: f64,
    /// The sums of the second and third powers of all `residuals`.
    centered_square_sum: f64,
    centered_cube_sum: f64,
    /// The same sums for the cells without the group.
    other_square_sum: f64,
    other_cube_sum: f64,
    /// Contribution of the ends of runs to the variance.
    run_end_variance: f64,
    /// Additional contribution of the ends of short runs if fewer splits are left than were read.
    short_run_variance: f64,
    /// The estimated variance of the residuals' sum, and its degrees of freedom.
    variance: f64,
    degrees_of_freedom: f64,
}

/// Squared differences that make up a variance.
#[derive(Default)]
struct SquaredDifferences {
    sum: f64,
    square_sum: f64,
    /// Number of differences within stretches, and between them.
    within_stretches: f64,
    between_stretches: f64,
}

impl SquaredDifferences {
    fn add(&mut self, square: f64, is_within: bool, between: f64) {
        self.sum += square;
        self.square_sum += square * square;
        if is_within {
            self.within_stretches += 1.0;
        } else {
            self.between_stretches += between;
        }
    }

    fn degrees_of_freedom(&self) -> f64 {
        // Differences between stretches share values with their neighbours: they count two thirds of
        // independent ones.
        let between = 2.0 * self.between_stretches * self.between_stretches
            / (3.0 * self.between_stretches - 1.0).max(1.0);
        effective_degrees(
            self.sum,
            self.square_sum,
            self.within_stretches + self.between_stretches,
            self.within_stretches + between,
        )
    }
}

impl ResidualStatistics {
    /// Returns `None` if the group is in a cell without a split that was read.
    fn new(sums: &LinearCombination, level: &LevelStatistics, unread: f64) -> Option<Self> {
        let mut spread = ResidualStatistics {
            group_cell_count: sums.cell_count,
            residuals: [0.0; CELLS_MAX],
            square_sum: 0.0,
            fourth_power_sum: 0.0,
            square_sum_per_split: 0.0,
            centered_square_sum: 0.0,
            centered_cube_sum: 0.0,
            other_square_sum: 0.0,
            other_cube_sum: 0.0,
            run_end_variance: 0.0,
            short_run_variance: 0.0,
            variance: 0.0,
            degrees_of_freedom: 0.0,
        };
        // For a ratio, the bytes cancel except for rounding.
        let rate = if sums.is_ratio { 0.0 } else { sums.total / sums.magnitude };
        let cells = &sums.cells[..sums.cell_count];
        if level.cells.iter().map(|unit| unit.cell).eq(cells.iter().copied()) {
            spread.measure_all_cells(sums, level, rate);
            return Some(spread);
        }
        let mut own = [(0_usize, 0.0); CELLS_MAX];
        let own = &mut own[..sums.cell_count];
        let mut powers = [0.0; 4];
        let per_size = 1.0 / sums.magnitude;
        let mut next = 0;
        for (number, (at, residual)) in own.iter_mut().enumerate() {
            // Cells of a run are consecutive.
            let cell = sums.cells[number];
            let is_next = level.cells.get(next).is_some_and(|unit| unit.cell == cell);
            *at = if is_next { next } else { level.cell_index(cell)? };
            next = *at + 1;
            let unit = &level.cells[*at];
            *residual = sums.cell_values[number] * per_size - rate * unit.bytes_share;
            let (square, shares) = (*residual * *residual, unit.bytes_share * unit.bytes_share);
            spread.square_sum += square;
            spread.fourth_power_sum += square * square;
            spread.square_sum_per_split += square * unit.inverse_split_count;
            powers[0] += shares;
            powers[1] += shares * unit.bytes_share;
            powers[2] += shares * shares;
            powers[3] += shares * unit.inverse_split_count;
        }
        let square = rate * rate;
        // Sums over the cells without the group.
        let others = |number: usize| {
            let left = level.share_power_sums[number] - powers[number];
            if sums.cell_count == level.cells.len() || left < 1e-12 * level.share_power_sums[number]
            {
                0.0
            } else {
                left
            }
        };
        spread.other_square_sum = square * others(0);
        spread.square_sum += spread.other_square_sum;
        spread.fourth_power_sum += square * square * others(2);
        spread.square_sum_per_split += square * others(3);
        spread.centered_square_sum = spread.other_square_sum;
        spread.other_cube_sum = -rate * square * others(1);
        spread.compare_cells(own, level, rate, unread);
        Some(spread)
    }

    /// Returns whether the residuals of the cells with the group sum to about zero by themselves, as they do
    /// for a group that is everywhere or in a run.
    fn is_centered(&self) -> bool {
        let whole: f64 = self.residuals[..self.group_cell_count].iter().sum();
        self.group_cell_count >= RESAMPLED_CELLS_MIN && whole * whole <= self.centered_square_sum
    }

    /// Computes the statistics if every cell has the group.
    fn measure_all_cells(&mut self, sums: &LinearCombination, level: &LevelStatistics, rate: f64) {
        let per_size = 1.0 / sums.magnitude;
        let (mut sum, mut squares, mut before) = (0.0, 0.0, 0.0);
        let (mut second, mut third, mut fourth, mut by_split) = (0.0, 0.0, 0.0, 0.0);
        let residuals = self.residuals.iter_mut();
        for ((around, value), unit) in residuals.zip(&sums.cell_values).zip(&level.cells) {
            let residual = value * per_size - rate * unit.bytes_share;
            *around = residual;
            let per_split = residual * unit.inverse_split_count;
            let power = residual * residual;
            second += power;
            third += power * residual;
            fourth += power * power;
            by_split += residual * per_split;
            let difference = per_split - before;
            before = per_split;
            let square = unit.difference_weight * difference * difference;
            sum += square;
            squares += square * square;
        }
        (self.square_sum, self.centered_square_sum, self.centered_cube_sum) =
            (second, second, third);
        (self.fourth_power_sum, self.square_sum_per_split) = (fourth, by_split);
        let differences = SquaredDifferences {
            sum,
            square_sum: squares,
            within_stretches: level.differences_within_stretches,
            between_stretches: level.differences_between_stretches,
        };
        self.variance = level.end_correction * sum;
        self.degrees_of_freedom = differences.degrees_of_freedom();
    }

    /// Compares the cells with the group, given by index and residual, with one another and with their
    /// neighbours.
    fn compare_cells(
        &mut self,
        own: &[(usize, f64)],
        level: &LevelStatistics,
        rate: f64,
        unread: f64,
    ) {
        let units = &level.cells;
        let stretch_last = units.last().map_or(0, |unit| unit.stretch_index);
        let mut inner = SquaredDifferences::default();
        let (mut at_ends, mut terms_others) = (0.0, level.variance_term_sum);
        // Number of splits read between two unread ones.
        let lag = ((1.0 - unread) / unread).max(1.0);
        let mut at_short = 0.0;
        let mut is_all_runs = true;
        let mut from = 0;
        let is_next = |one: &(usize, f64), next: &(usize, f64)| {
            units[next.0].stretch_index - units[one.0].stretch_index <= 1
        };
        for run in own.chunk_by(is_next) {
            let first = units[run[0].0].stretch_index;
            let last = units[run[run.len() - 1].0].stretch_index;
            let is_long = last - first + 1 >= RUN_STRETCHES_MIN;
            let (has_start, has_end) = (is_long && first > 0, is_long && last < stretch_last);
            let has_ends = has_start || has_end;
            is_all_runs &= has_ends;
            let longer = if is_long { 0.0 } else { lag.min(run.len() as f64) - 1.0 };
            let mut mean = 0.0;
            if has_ends {
                let (mut sum, mut squares, mut splits) = (0.0, 0.0, 0.0);
                for (at, residual) in run {
                    let beyond = residual + rate * units[*at].bytes_share;
                    sum += residual;
                    squares += beyond * beyond * units[*at].inverse_split_count;
                    splits += units[*at].split_count;
                }
                mean = sum / splits;
                let ends = f64::from(u8::from(has_start) + u8::from(has_end));
                // A split too many or too few at an end is completely uncertain among the unread ones.
                self.run_end_variance +=
                    ends * run_end_variance(splits, unread) / unread * squares / splits;
            }
            let mut take = |square: f64, stretch: u32, is_within: bool, between: f64| {
                let is_at_end =
                    is_within && (has_start && stretch == first || has_end && stretch == last);
                if is_at_end {
                    at_ends += square;
                } else {
                    inner.add(square, is_within, between);
                }
            };
            for (number, (at, residual)) in run.iter().enumerate() {
                let unit = &units[*at];
                let per_split = residual * unit.inverse_split_count;
                let around = residual - mean * unit.split_count;
                self.residuals[from + number] = around;
                self.centered_square_sum += around * around;
                self.centered_cube_sum += around * around * around;
                let before = at.checked_sub(1).filter(|_| unit.difference_weight > 0.0);
                if let Some(before) = before {
                    let (other, own) = (&units[before], number.checked_sub(1).map(|of| &run[of]));
                    terms_others -= unit.variance_term(other);
                    let own = own.filter(|(at, _)| *at == before);
                    let per_split_before = match own {
                        Some((_, residual)) => residual * other.inverse_split_count,
                        None => -rate * other.share_per_split(),
                    };
                    if own.is_some() || !has_start || other.stretch_index >= first {
                        let difference = per_split - per_split_before;
                        let between = if own.is_some() { 1.0 } else { 0.75 };
                        let is_within = other.stretch_index == unit.stretch_index;
                        let square = unit.difference_weight * difference * difference;
                        at_short += if own.is_some() { 0.0 } else { longer * square };
                        take(square, unit.stretch_index, is_within, between);
                    }
                }
                let after = units.get(at + 1).filter(|after| after.difference_weight > 0.0);
                let is_own = run.get(number + 1).is_some_and(|(next, _)| *next == at + 1);
                if let Some(other) = after.filter(|_| !is_own) {
                    terms_others -= other.variance_term(unit);
                    if !has_end || other.stretch_index <= last {
                        let difference = per_split + rate * other.share_per_split();
                        let is_within = other.stretch_index == unit.stretch_index;
                        let square = other.difference_weight * difference * difference;
                        at_short += longer * square;
                        take(square, unit.stretch_index, is_within, 0.75);
                    }
                }
            }
            from += run.len();
        }
        if !is_all_runs {
            // If the group is in runs only, the cells without it are in runs as well.
            self.centered_cube_sum += self.other_cube_sum;
        }
        let is_rounding =
            own.len() == units.len() || terms_others < 1e-12 * level.variance_term_sum;
        let others = if is_rounding { 0.0 } else { rate * rate * terms_others };
        self.short_run_variance = level.end_correction * at_short;
        self.variance =
            level.end_correction * (inner.sum + at_ends + others) + self.run_end_variance;
        let share = self.variance / (level.end_correction * inner.sum);
        self.degrees_of_freedom = if inner.sum > 0.0 {
            inner.degrees_of_freedom() * share * share
        } else {
            CELLS_MAX as f64
        };
    }
}

/// Returns the degrees of freedom, at most `most`, of `count` squared differences, from their sum and the sum
/// of their squares.
///
/// The effective number of differences is (Σd²)²/Σd⁴. If it is a third of their number, as for normal values
/// (whose fourth moment is three times the square of the second), all degrees count; if it is 1, one degree.
/// Between these, Satterthwaite's 3(Σd²)²/Σd⁴ - 2 is right on average and too large exactly if the variance
/// came out too small (for means of a group in a run of a tenth of the splits, 90 % of the intervals held).
/// Fewer degrees count instead, down to the effective number itself.
fn effective_degrees(sum: f64, squares: f64, count: f64, most: f64) -> f64 {
    let effective = sum * sum / squares;
    let share = ((effective - 1.0) / (count / 3.0 - 1.0)).clamp(0.0, 1.0);
    let share = share * share;
    (effective * (1.0 - share) + most * share).min(most)
}

/// Number of resamples of a studentized bootstrap. Its 2.5 % tail begins at the tenth of them.
const RESAMPLE_COUNT: usize = 399;

/// The random numbers that resamples are drawn by, the same for every group.
struct BootstrapDraws {
    /// Numbers whose highest bits choose the cell that is drawn, with replacement.
    cell_draws: [[u16; CELLS_MAX]; RESAMPLE_COUNT],
    /// Number of draws of each cell if these are independent: Poisson values with mean 1.
    poisson_counts: [[u8; CELLS_MAX]; RESAMPLE_COUNT],
    /// Normal values for the sum of the other cells.
    normal_values: [f64; RESAMPLE_COUNT],
}

static BOOTSTRAP_DRAWS: LazyLock<Box<BootstrapDraws>> = LazyLock::new(|| {
    let mut draws = Box::new(BootstrapDraws {
        cell_draws: [[0; CELLS_MAX]; RESAMPLE_COUNT],
        poisson_counts: [[0; CELLS_MAX]; RESAMPLE_COUNT],
        normal_values: [0.0; RESAMPLE_COUNT],
    });
    let mut words = (0..).map(|number| random_word(0x626f_6f74, number));
    for (unit, word) in draws.cell_draws.as_flattened_mut().iter_mut().zip(&mut words) {
        *unit = u16::try_from(word >> 48).unwrap_or(0);
    }
    let mut shares = words.map(|word| (word >> 11) as f64 / (1_u64 << 53) as f64);
    for (count, mut left) in draws.poisson_counts.as_flattened_mut().iter_mut().zip(&mut shares) {
        let mut share = libm::exp(-1.0);
        while left >= share && *count < 12 {
            left -= share;
            *count += 1;
            share /= f64::from(*count);
        }
    }
    for other in &mut draws.normal_values {
        *other = shares.by_ref().take(12).sum::<f64>() - 6.0;
    }
    draws
});

/// Computes the studentized sum of each resample. A resample draws as many cells with the group as there are,
/// with replacement, and a normal value for other cells and ends. `is_paired` chooses the differences that
/// estimate the variance.
fn resample_cells(
    quotients: &mut [f64; RESAMPLE_COUNT],
    spread: &ResidualStatistics,
    is_paired: bool,
) {
    let residuals = &spread.residuals[..spread.group_cell_count];
    let m = residuals.len() as f64;
    let scale = m / (2.0 * (m - 1.0));
    let others = spread.other_square_sum + spread.run_end_variance;
    let root = others.sqrt();
    let of_draws = BOOTSTRAP_DRAWS.cell_draws.iter().zip(&BOOTSTRAP_DRAWS.normal_values);
    for (quotient, (drawn, other)) in quotients.iter_mut().zip(of_draws) {
        let residual = |word: u16| {
            let unit = (usize::from(word) * residuals.len()) >> 16;
            residuals[unit]
        };
        let drawn = &drawn[..residuals.len()];
        let (mut sum, mut squares) = (other * root, 0.0);
        if is_paired {
            let (pairs, alone) = drawn.as_chunks::<2>();
            for &[a, b] in pairs {
                let (a, b) = (residual(a), residual(b));
                sum += a + b;
                squares += (a - b) * (a - b);
            }
            for residual in alone.iter().map(|word| residual(*word)) {
                sum += residual;
                squares += residual * residual;
            }
        } else {
            let mut last = residual(drawn[0]);
            sum += last;
            for &unit in &drawn[1..] {
                let residual = residual(unit);
                sum += residual;
                squares += (residual - last) * (residual - last);
                last = residual;
            }
            squares *= scale;
        }
        *quotient = studentize(sum, squares + others);
    }
}

/// Computes the studentized sums if only some cells have the group: these are resampled with Poisson counts,
/// and the sum of the others among `units` is a normal value.
fn resample_poisson_counts(
    quotients: &mut [f64; RESAMPLE_COUNT],
    spread: &ResidualStatistics,
    units: f64,
) {
    let residuals = &spread.residuals[..spread.group_cell_count];
    let others = spread.other_square_sum + spread.run_end_variance;
    let root = others.sqrt();
    let whole: f64 = residuals.iter().sum();
    let of_counts = BOOTSTRAP_DRAWS.poisson_counts.iter().zip(&BOOTSTRAP_DRAWS.normal_values);
    for (quotient, (counts, other)) in quotients.iter_mut().zip(of_counts) {
        let (mut sum, mut squares) = (0.0, 0.0);
        for (residual, count) in residuals.iter().zip(counts) {
            let drawn = f64::from(*count) * residual;
            sum += drawn;
            squares += drawn * residual;
        }
        let off = sum - whole + other * root;
        *quotient = studentize(off, squares + others - off * off / units);
    }
}

fn studentize(sum: f64, variance: f64) -> f64 {
    if variance > 0.0 { sum / variance.sqrt() } else { sum.signum() * f64::INFINITY }
}

/// Returns the quantiles of the tail and of one minus the tail.
fn tail_quantiles(quotients: &mut [f64; RESAMPLE_COUNT], tail: f64) -> (f64, f64) {
    // Of 399 values, the tenth from either end cuts off a fortieth.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rank = ((tail * (RESAMPLE_COUNT + 1) as f64).round() as usize).clamp(1, RESAMPLE_COUNT / 2);
    let (_, low, above) = quotients.select_nth_unstable_by(rank - 1, f64::total_cmp);
    let low = *low;
    let place = above.len() - rank;
    let (_, high, _) = above.select_nth_unstable_by(place, f64::total_cmp);
    (low, *high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cell_of_split, student_t_quantile};

    const NONE: &[(usize, f64)] = &[];

    const READ: [usize; 8] = [0, 1, 3, 4, 6, 7, 8, 9];

    /// Ten splits of 10 bytes, of which `read` were read.
    fn sample(read: &[usize]) -> SplitSample {
        let mut sample = SplitSample::new(10, 100.0, 0.95);
        for index in read {
            sample.add(*index, 10.0);
        }
        sample
    }

    fn series(values: &[(usize, f64)]) -> SumsByCell {
        let mut series = SumsByCell::default();
        for (index, value) in values {
            series.add(cell_of_split(*index, 10), *value);
        }
        series
    }

    fn bounds(estimate: IntervalEstimate) -> (f64, f64) {
        match estimate.interval {
            ConfidenceInterval::Bounds { lower: low, upper: high } => (low, high),
            other => panic!("{other:?}"),
        }
    }

    fn close(value: f64, expect: f64) {
        assert!((value - expect).abs() < 1e-9 * expect.abs().max(1.0), "{value}, not {expect}");
    }

    /// Half of the splits have 15, so all have 30. The residuals are -1, 1, 0, 1 and -1, whose neighbours
    /// differ by 2, 1, 1 and 2: the variance of their sum is 5/8 · 10, plus 2/5 · 4 for unevenness. Half is
    /// unread, and the variance of the total is four times that.
    #[test]
    fn total_matches_manual_computation() {
        let sample = sample(&[0, 2, 4, 6, 8]);
        let series = series(&[(0, 2.0), (2, 4.0), (4, 3.0), (6, 4.0), (8, 2.0)]);
        let estimate = sample.estimate_total(&series, 5, UnlikeSplitMargin::NONE);
        close(estimate.value, 30.0);
        let (low, high) = bounds(estimate);
        // 2 · 4² / (3 · 5 - 4) degrees, which are 2.9, rounded down to halves.
        let half = student_t_quantile(0.95, 2.5) * 15.7_f64.sqrt();
        close((high - low) / 2.0, half);
        // ΣE³ = 0: nothing is shifted.
        close((high + low) / 2.0, 30.0);
    }

    /// Values in proportion to the denominator add no uncertainty to a ratio; only the deviations of 4 and 6
    /// do.
    #[test]
    fn ratio_matches_manual_computation() {
        let sample = sample(&[0, 2, 4, 6, 8]);
        let rows = series(&[(0, 1.0), (2, 3.0), (4, 2.0), (6, 3.0), (8, 1.0)]);
        let sum = series(&[(0, 2.0), (2, 5.0), (4, 4.0), (6, 7.0), (8, 2.0)]);
        let estimate = sample.estimate_ratio(&sum, &rows, 5, UnlikeSplitMargin::NONE);
        close(estimate.value, 2.0);
        // Residuals 0, -1, 0, 1, 0: four differences of 1, and 2/5 · 2 for unevenness. The five splits with
        // the group lose one degree; half is unread; the mean is over 10 rows.
        let deviation = ((5.0 / 8.0 * 4.0 + 0.8) * 5.0 / 4.0 * 0.5_f64).sqrt() / 10.0;
        let (low, high) = bounds(estimate);
        let half = student_t_quantile(0.95, 2.5) * deviation;
        close(low, 2.0 - half);
        close(high, 2.0 + half);
    }

    /// Splits of ten bytes; every other one was read.
    fn half_of(count: usize, values: impl Fn(usize) -> f64) -> (SplitSample, SumsByCell) {
        let mut sample = SplitSample::new(count, 10.0 * count as f64, 0.95);
        let mut series = SumsByCell::default();
        for index in (0..count).step_by(2) {
            sample.add(index, 10.0);
            if values(index) != 0.0 {
                series.add(cell_of_split(index, count), values(index));
            }
        }
        (sample, series)
    }

    /// Five splits of a run of ten were read, with 10 each. The only differences are at its two ends, each of
    /// which adds 10² by the run's length, whatever share is unread. The residuals are 5 and -5, so 250 of
    /// the sum of squares is uneven, except for the part of the ends beyond the differences of neighbours.
    #[test]
    fn total_of_a_run_matches_manual_computation() {
        let (sample, series) =
            half_of(20, |index| f64::from(u8::from((6..16).contains(&index))) * 10.0);
        let (low, high) = bounds(sample.estimate_total(&series, 5, UnlikeSplitMargin::NONE));
        let ends = 2.0 * 100.0 * (0.1 + 0.055 * 10.0_f64.log2());
        let drift = 250.0 - 2.0 * ends;
        let chance = (2.0 * (250.0 - drift) + 6.0 * drift) / 10.0 / 2.0;
        let half = student_t_quantile(0.95, 64.0) * 2.0 * (ends + chance).sqrt();
        close(low, 100.0 - half);
        close(high, 100.0 + half);
    }

    /// The position of a run does not matter, and a run at the input's edge has one end.
    #[test]
    fn a_run_at_the_edge_has_one_end() {
        let width = |from: usize| {
            let within = from..from + 10;
            let (sample, series) =
                half_of(20, |index| f64::from(u8::from(within.contains(&index))));
            let (low, high) = bounds(sample.estimate_total(&series, 5, UnlikeSplitMargin::NONE));
            high - low
        };
        close(width(4), width(6));
        close(width(0), width(10));
        assert!(width(0) < width(4));
    }

    /// Two quantities at different levels are compared at the higher level.
    #[test]
    fn quantities_at_different_levels_are_combined() {
        let count = 4_000;
        let mut sample = SplitSample::new(count, count as f64, 0.95);
        let mut series: [SumsByCell; 3] = Default::default();
        for index in crate::SamplingOrder::new(count, 5).take(400) {
            let cell = cell_of_split(index, count);
            sample.add(index, 1.0);
            series[0].add(cell, 10.0 + (index * 7919 % 11) as f64);
            if (1_000..1_300).contains(&index) {
                series[1].add(cell, 10.0 + (index * 7919 % 11) as f64);
            } else {
                series[2].add(cell, 10.0 + (index * 7919 % 11) as f64);
            }
        }
        let [all, run, rest] = &series;
        assert!(run.level() < all.level());
        // The quantity in the run cancels.
        let (low, high) = bounds(sample.estimate_function(
            0.0,
            &[(1.0, all), (-1.0, run)],
            400,
            UnlikeSplitMargin::NONE,
        ));
        let (rest_low, rest_high) =
            bounds(sample.estimate_function(0.0, &[(1.0, rest)], 400, UnlikeSplitMargin::NONE));
        let widths = (high - low) / (rest_high - rest_low);
        assert!((0.5..2.0).contains(&widths), "{widths}");
        let turned =
            sample.estimate_function(0.0, &[(-1.0, run), (1.0, all)], 400, UnlikeSplitMargin::NONE);
        close(bounds(turned).0, low);
        close(bounds(turned).1, high);
    }

    /// A state of another sample.
    #[test]
    fn unread_cell_gives_no_interval() {
        let sample = sample(&READ);
        let series = series(&[(0, 1.0), (1, 2.0), (2, 3.0), (3, 1.0), (4, 4.0), (6, 1.0)]);
        assert_eq!(
            sample.estimate_total(&series, 6, UnlikeSplitMargin::NONE).interval,
            ConfidenceInterval::NoVariation
        );
    }

    #[test]
    fn whole_input_is_exact() {
        let sample = sample(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let estimate = sample.estimate_total(&series(&[(3, 8.0)]), 1, UnlikeSplitMargin::NONE);
        assert_eq!(estimate, IntervalEstimate { value: 8.0, interval: ConfidenceInterval::Exact });
        assert_eq!(
            SplitSample::new(0, 0.0, 0.95)
                .estimate_total(&series(NONE), 0, UnlikeSplitMargin::NONE)
                .interval,
            ConfidenceInterval::Exact
        );
    }

    #[test]
    fn few_splits_have_no_interval() {
        let check = |read: &[usize], seen| {
            let series = series(&[(0, 1.0), (2, 2.0)]);
            assert_eq!(
                sample(read).estimate_total(&series, seen, UnlikeSplitMargin::NONE).interval,
                ConfidenceInterval::TooFewSplits
            );
        };
        check(&[], 0);
        check(&[0, 1, 2, 3], 4);
        check(&[0, 1, 2, 3, 4, 5], 4);
    }

    #[test]
    fn value_in_one_split_gives_a_wide_interval() {
        let sample = sample(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let mut values: Vec<_> =
            (0..8).map(|index| (index, 1.0 + 0.1 * (index % 3) as f64)).collect();
        assert!(matches!(
            sample.estimate_total(&series(&values), 8, UnlikeSplitMargin::NONE).interval,
            ConfidenceInterval::Bounds { .. }
        ));
        values[3].1 = 100.0;
        // The split of 100 is among the 4/5 that were read; without it the total would be 11.
        let (low, high) =
            bounds(sample.estimate_total(&series(&values), 8, UnlikeSplitMargin::NONE));
        assert!(low < 108.0 && high > 170.0 && high < 1_000.0, "{low} {high}");
    }

    #[test]
    fn equal_splits_give_no_interval() {
        let sample = sample(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let values: Vec<_> = (0..8).map(|index| (index, 0.1)).collect();
        let estimate = sample.estimate_total(&series(&values), 8, UnlikeSplitMargin::NONE);
        close(estimate.value, 1.0);
        assert_eq!(estimate.interval, ConfidenceInterval::NoVariation);
        assert_eq!(
            sample.estimate_total(&series(NONE), 8, UnlikeSplitMargin::NONE).interval,
            ConfidenceInterval::NoVariation
        );
        assert_eq!(
            sample
                .estimate_ratio(&series(NONE), &series(NONE), 8, UnlikeSplitMargin::NONE)
                .interval,
            ConfidenceInterval::NoVariation
        );
    }

    #[test]
    fn non_finite_sums_have_no_bounds() {
        let sample = sample(&[0, 1, 2, 3, 4, 5, 6, 7]);
        for value in [f64::NAN, f64::INFINITY, f64::MAX] {
            let values: Vec<_> =
                (0..8).map(|index| (index, if index % 2 == 0 { value } else { 1.0 })).collect();
            assert_eq!(
                sample.estimate_total(&series(&values), 8, UnlikeSplitMargin::NONE).interval,
                ConfidenceInterval::NoVariation
            );
        }
    }

    /// Two runs without differences cancel, and far from them is a negligible value.
    #[test]
    fn vanishing_differences_do_not_panic() {
        for small in [1e-300, 1e-161, 1e-160, 1e-80, 1e-20] {
            let (sample, series) = half_of(40, |index| match index {
                2..12 => 1.0,
                18 => small,
                26..36 => -1.0,
                _ => 0.0,
            });
            let interval = sample
                .estimate_function(0.0, &[(1.0, &series)], 11, UnlikeSplitMargin::NONE)
                .interval;
            assert!(matches!(interval, ConfidenceInterval::Bounds { .. }), "{small}");
        }
    }

    #[test]
    fn intervals_scale_with_the_unit_of_measure() {
        let sample = sample(&READ);
        let values: Vec<_> =
            READ.iter().map(|&index| (index, (index * index % 7) as f64)).collect();
        let (low, high) =
            bounds(sample.estimate_total(&series(&values), 8, UnlikeSplitMargin::NONE));
        let scaled: Vec<_> = values.iter().map(|(index, value)| (*index, value * 1e-9)).collect();
        let (scaled_low, scaled_high) =
            bounds(sample.estimate_total(&series(&scaled), 8, UnlikeSplitMargin::NONE));
        close(scaled_low * 1e9, low);
        close(scaled_high * 1e9, high);
        let turned: Vec<_> = values.iter().map(|(index, value)| (*index, -value)).collect();
        let (turned_low, turned_high) =
            bounds(sample.estimate_total(&series(&turned), 8, UnlikeSplitMargin::NONE));
        close(-turned_low, high);
        close(-turned_high, low);
    }

    #[test]
    fn unread_splits_bound_the_interval() {
        let count = 10_000;
        let value = |index: usize| ((index * 7919) % 101) as f64;
        let exact: f64 = (0..count).map(value).sum();
        for left in [1_000, 100, 10, 1] {
            let mut sample = SplitSample::new(count, count as f64, 0.95);
            let mut series = SumsByCell::default();
            for index in crate::SamplingOrder::new(count, 5).take(count - left) {
                sample.add(index, 1.0);
                series.add(cell_of_split(index, count), value(index));
            }
            let (low, high) =
                bounds(sample.estimate_total(&series, 1_000, UnlikeSplitMargin::NONE));
            // Each value is at most 101, with three deviations of 29 for the root of the number of unread
            // splits.
            assert!(high - low < 200.0 * (left as f64).sqrt() && low < exact && exact < high);
        }
    }

    #[test]
    fn a_higher_confidence_is_wider() {
        let values: Vec<_> =
            READ.iter().map(|&index| (index, (index * index % 7) as f64)).collect();
        let mut last = 0.0;
        for confidence in [0.5, 0.9, 0.95, 0.97, 0.99, 0.999] {
            let sample = sample(&READ).with_confidence(confidence);
            let (low, high) =
                bounds(sample.estimate_total(&series(&values), 8, UnlikeSplitMargin::NONE));
            assert!(high - low > last);
            last = high - low;
        }
    }

    #[test]
    fn share_bounds_stay_within_0_and_1() {
        let (sample, all) = half_of(100, |_| 4.0);
        let (_, below) = half_of(100, |index| f64::from(u8::from(index % 3 == 1)));
        let check = |below: &SumsByCell, all: &SumsByCell, seen| {
            let ConfidenceInterval::Bounds { lower: low, upper: high } =
                sample.share_interval(below, all, seen)
            else {
                panic!("it has bounds")
            };
            let share = below.sum() / all.sum();
            assert!(0.0 <= low && low < share && share < high && high <= 1.0);
            (low, high)
        };
        let (low, high) = check(&below, &all, 50);
        // All rows of unlike splits may be below the value; the fewer splits have the group, the larger is
        // the margin.
        let (lower, higher) = check(&below, &all, 30);
        assert!(higher - high > 0.005 && low - lower > 0.001);
        assert_eq!(sample.share_interval(&below, &all, 29), ConfidenceInterval::TooFewSplits);
        let few = self::sample(&READ);
        assert_eq!(
            few.share_interval(&series(&[(0, 1.0)]), &series(&[(0, 2.0)]), 8),
            ConfidenceInterval::TooFewSplits
        );
    }

    /// If both cells of each stretch are read, differences between stretches are no uncertainty.
    #[test]
    fn drift_does_not_widen_the_interval() {
        let (count, read) = (20_000, 10_000);
        let mut sample = SplitSample::new(count, count as f64, 0.95);
        let mut series = SumsByCell::default();
        let value = |index: usize| f64::from(u8::from((3_130..5_130).contains(&index)));
        for index in crate::SamplingOrder::new(count, 5).take(read) {
            sample.add(index, 1.0);
            series.add(cell_of_split(index, count), value(index));
        }
        let (low, high) = bounds(sample.estimate_total(&series, 1_000, UnlikeSplitMargin::NONE));
        assert!(low < 2_000.0 && high > 2_000.0 && high - low < 200.0, "{low} {high}");
    }
}
