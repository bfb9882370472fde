//! Margins in an interval for splits that are unlike all those read.
//!
//! An interval computed from the differences between the splits read does not cover an incident outside of
//! all of them: an hour of errors, a day with ten times the revenue. The sample cannot show the incident, so
//! no rule on the sample's variance can detect it. Withholding the intervals of samples that met the incident
//! makes things worse: the intervals left are those of samples that missed it.
//!
//! Each interval therefore has a *margin*: with the sample's confidence, at most a share `s` of the splits can be
//! unlike all those read. The margin is the amount that this share could add or take away.
//!
//! ```text
//! s      half the rule of three: -ln(1 - confidence) / 2 · unread / splits read, 1.5 / splits at 95 %; one split at least
//! above  s · (content of an unlike split / content of an average split - 1)
//! below  s: an unlike split can be without the quantity
//! ```
//!
//! *Half* the rule of three suffices, because [`SamplingOrder`](crate::SamplingOrder) leaves gaps of about
//! equal length. One order in fifty misses a run of 1.5 gaps; independent draws would miss it one time in
//! five. `splits read` counts the splits of the stretch of the input that contains the group, or, for values,
//! the splits that have the group.
//!
//! **An unlike split** consists of the group's rows alone, or has values twice as far from the mean as the
//! farthest value read. Values are at most [`UNLIKE_CONTENT_MAX`] times the average, and so are rows from
//! [`ROW_LIMIT_SPLITS_MIN`] splits on. Single rows can be large as well: per unread amount equal to the
//! amount read, the rest may contain [`LARGE_UNREAD_ROWS`] rows as large as the largest row read.
//!
//! **Too few splits.** There is no interval if fewer than [`MARGIN_SPLITS_MIN`] splits were read or had the
//! values, if fewer than [`COUNTED_SPLITS_MIN`] had the rows counted, or if unlike splits could double a
//! count. The rule depends on the number of splits and on how rare the rows are. A sample that missed an
//! incident sees fewer of the rows and loses its interval first, so the rule does not favor such samples.
//!
//! `examples/bursts.rs` is the calibration.

use crate::split_sample::SplitSample;
use crate::values_by_cell::SumsByCell;

/// Minimum number of splits read for any interval, and of splits with the group for an interval of values.
const MARGIN_SPLITS_MIN: u64 = 30;

/// Minimum number of splits with counted rows, for an interval of a count.
const COUNTED_SPLITS_MIN: u64 = 10;

/// Maximum content of an unlike split, as a multiple of the average split.
const UNLIKE_CONTENT_MAX: f64 = 50.0;

/// Number of splits read from which [`UNLIKE_CONTENT_MAX`] limits rows. With fewer splits, all rows of an
/// unlike split may be counted.
const ROW_LIMIT_SPLITS_MIN: f64 = 400.0;

/// Number of values as large as the largest value read that the unread rest may hold, per amount equal to that read.
const LARGE_UNREAD_ROWS: f64 = 6.0;

/// Distance from the mean that values of unlike splits reach, as a multiple of the farthest value read.
const VALUE_DISTANCE_FACTOR: f64 = 2.0;

/// The distances by which unlike splits can move a number from its estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnlikeSplitMargin {
    /// Distance below the estimate.
    pub below: f64,
    /// Distance above the estimate.
    pub above: f64,
}

impl UnlikeSplitMargin {
    /// No margin. The interval covers the differences between the splits read alone.
    pub const NONE: UnlikeSplitMargin = UnlikeSplitMargin { below: 0.0, above: 0.0 };

    /// Returns the margin of a number `slope` times as large. A negative slope swaps the sides.
    #[must_use]
    pub fn scale(self, slope: f64) -> UnlikeSplitMargin {
        let (down, up) = (self.below * slope.abs(), self.above * slope.abs());
        if slope < 0.0 {
            UnlikeSplitMargin { below: up, above: down }
        } else {
            UnlikeSplitMargin { below: down, above: up }
        }
    }

    /// Returns the margin of the sum of two numbers.
    #[must_use]
    pub fn combine(self, other: UnlikeSplitMargin) -> UnlikeSplitMargin {
        UnlikeSplitMargin { below: self.below + other.below, above: self.above + other.above }
    }
}

/// The values of a group in the splits read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueSummary {
    /// Number of values.
    pub count: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

/// The rows that a total covers: those that pass a filter and have a non-null argument. Filters and arguments
/// are numbers that identify totals of the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowSet {
    /// The filter, or `None` for all rows of the group.
    pub filter: Option<usize>,
    /// The argument that is not null, or `None` for all rows of the group.
    pub argument: Option<usize>,
}

impl RowSet {
    /// Returns true if this set contains every row of another one, by their filters and arguments.
    fn contains(self, other: RowSet) -> bool {
        let is_weaker = |own: Option<usize>, other| own.is_none() || own == other;
        is_weaker(self.filter, other.filter) && is_weaker(self.argument, other.argument)
    }
}

/// A total that a number is computed from.
#[derive(Debug, Clone, Copy)]
pub struct FormulaTotal<'a> {
    /// Derivative of the number by this total.
    pub derivative: f64,
    /// Sums of the quantity over the splits read.
    pub sums_by_cell: &'a SumsByCell,
    /// Number of splits read that have rows of the quantity.
    pub seen_splits: u64,
    /// The values added up, or `None` if the total counts rows.
    pub value_summary: Option<ValueSummary>,
    /// The rows counted, or those of the values.
    pub row_set: RowSet,
}

impl FormulaTotal<'_> {
    /// Returns the rows that a sum counts if its values are 0 and one other, as in
    /// `sum(CASE WHEN … THEN 1 ELSE 0 END)`. Detects this by sums that are multiples of the largest value.
    fn detect_counted_rows(&self) -> Option<SumsByCell> {
        let ValueSummary { min, max, .. } = self.value_summary?;
        let rows = self.sums_by_cell.map_values(|sum| sum / max);
        let is_whole =
            |rows: f64| (rows - rows.round()).abs() <= ROUNDING_TOLERANCE * rows.max(1.0);
        let are_whole = rows.entries().iter().all(|(_, rows)| is_whole(*rows));
        let marked = rows.entries().iter().filter(|(_, rows)| *rows > 0.5).copied().collect();
        SumsByCell::from_entries(rows.level(), marked)
            .filter(|_| min == 0.0 && max > 0.0 && are_whole)
    }

    /// Returns this total as a count of the marked `rows`, if any. Splits without marked rows do not count as seen.
    fn as_row_count<'a>(&self, rows: Option<&'a SumsByCell>) -> FormulaTotal<'a>
    where
        Self: 'a,
    {
        let Some((rows, values)) = rows.zip(self.value_summary) else { return *self };
        let (marked, all) = (rows.entries().len(), self.sums_by_cell.entries().len());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let seen_splits = (self.seen_splits as f64 * marked as f64 / all.max(1) as f64) as u64;
        let slope = self.derivative * values.max;
        FormulaTotal {
            derivative: slope,
            sums_by_cell: rows,
            seen_splits,
            value_summary: None,
            row_set: self.row_set,
        }
    }
}

/// The rows read that may be counted, and their location.
#[derive(Debug, Clone, Copy)]
struct CountableRows {
    row_count: f64,
    /// Number of splits read that have such rows.
    split_count: f64,
    /// Share of the bytes read in the stretch of these rows.
    bytes_share: f64,
}

/// Relative difference below which numbers are considered equal.
const ROUNDING_TOLERANCE: f64 = 1e-9;

impl SplitSample {
    /// Returns the margin of a number computed from totals, or `None` if too few splits were read for one of
    /// them. `rows_read` is the number of rows in the splits read, of all groups.
    ///
    /// The quotient of a sum and the count of its rows has the margin of a mean. So has the quotient of two
    /// sums over the same rows, because more rows change both. For the quotient of a count and a count that
    /// contains its rows, the latter limits the rows of unlike splits.
    pub fn unlike_split_margin(
        &self,
        parts: &[FormulaTotal<'_>],
        rows_read: f64,
    ) -> Option<UnlikeSplitMargin> {
        if self.is_whole_input() {
            return Some(UnlikeSplitMargin::NONE);
        }
        let rows_of: Vec<Option<SumsByCell>> =
            parts.iter().map(FormulaTotal::detect_counted_rows).collect();
        let own = parts.iter().zip(&rows_of).filter(|(part, _)| part.derivative != 0.0);
        let (parts, are_marked): (Vec<FormulaTotal<'_>>, Vec<bool>) =
            own.map(|(part, rows)| (part.as_row_count(rows.as_ref()), rows.is_some())).unzip();
        let terms = || parts.iter().map(|part| part.derivative * part.sums_by_cell.sum());
        let is_ratio =
            terms().sum::<f64>().abs() <= ROUNDING_TOLERANCE * terms().map(f64::abs).sum::<f64>();
        let mut counts: Vec<(FormulaTotal<'_>, f64)> = parts
            .iter()
            .filter(|part| part.value_summary.is_none())
            .map(|part| (*part, part.derivative))
            .collect();
        let contains_all = |(part, is_marked): &(&FormulaTotal<'_>, &bool)| {
            !**is_marked
                && parts.iter().all(|other| {
                    other.value_summary.is_none() && part.row_set.contains(other.row_set)
                })
        };
        let containers = parts.iter().zip(&are_marked).filter(contains_all);
        let container = containers
            .max_by(|(a, _), (b, _)| a.sums_by_cell.sum().total_cmp(&b.sums_by_cell.sum()));
        let around = match container {
            Some((part, _)) if is_ratio => {
                let (splits, share) = self.covered_span(part.sums_by_cell);
                let splits = splits.min(part.seen_splits as f64);
                CountableRows {
                    row_count: part.sums_by_cell.sum(),
                    split_count: splits,
                    bytes_share: share,
                }
            }
            _ => self.all_rows_read(rows_read),
        };
        let is_of_same_rows = |part: &FormulaTotal<'_>, other: &FormulaTotal<'_>| {
            let count = |part: &FormulaTotal<'_>| part.value_summary.map(|values| values.count);
            part.row_set.filter == other.row_set.filter && count(part) == count(other)
        };
        let are_same_rows = parts.iter().all(|part| is_of_same_rows(part, &parts[0]));
        let mut room = UnlikeSplitMargin::NONE;
        for part in &parts {
            let Some(values) = part.value_summary else { continue };
            let mean = part.sums_by_cell.sum() / values.count;
            let is_own = |(count, _): &&mut (FormulaTotal<'_>, f64)| {
                count.sums_by_cell.sum() == values.count && count.row_set.contains(part.row_set)
            };
            let own = counts.iter_mut().find(is_own);
            let carrying = match &own {
                Some((count, _)) => self.effective_splits(count.sums_by_cell, part.seen_splits),
                None => part.seen_splits as f64,
            };
            let of_mean = self.mean_margin(mean, values, part.seen_splits, carrying)?;
            let of_mean = of_mean.scale(part.derivative * values.count * self.scale_factor());
            room = room.combine(if let Some((_, slope)) = own {
                *slope += part.derivative * mean;
                of_mean
            } else if is_ratio && are_same_rows {
                of_mean
            } else {
                let FormulaTotal { sums_by_cell: series, seen_splits, derivative: slope, .. } =
                    *part;
                self.sum_margin(series, values, seen_splits, around)?.scale(slope)
            });
        }
        for (part, slope) in counts {
            if slope.abs() > ROUNDING_TOLERANCE * part.derivative.abs() {
                let of_count = self.count_margin(part.sums_by_cell, part.seen_splits, around)?;
                room = room.combine(of_count.scale(slope));
            }
        }
        Some(room)
    }

    /// Returns the share of the splits that can be unlike all `splits` read.
    fn unlike_split_share(&self, splits: f64) -> f64 {
        let unread = 1.0 - self.read_share();
        let miss = 1.0 - self.confidence();
        let share = -libm::log(miss) / 2.0 * unread / splits;
        // At least one split can be unlike, unless so few are unread that it was likely read.
        let one = if unread > miss { self.read_share() / splits } else { 0.0 };
        share.max(one).min(1.0)
    }

    /// Returns all rows and splits read.
    fn all_rows_read(&self, rows: f64) -> CountableRows {
        CountableRows { row_count: rows, split_count: self.splits_read() as f64, bytes_share: 1.0 }
    }

    /// Returns the share of a count that unlike splits can add. They hold nothing but counted rows.
    fn added_rows_share(&self, rows: &SumsByCell, around: CountableRows) -> f64 {
        let counted = rows.sum();
        let (span_splits, span_share) = self.covered_span(rows);
        let beyond = |splits: f64, rows: f64| {
            let most =
                if splits < ROW_LIMIT_SPLITS_MIN { f64::INFINITY } else { UNLIKE_CONTENT_MAX };
            self.unlike_split_share(splits) * ((rows / counted).min(most) - 1.0)
        };
        let anywhere = beyond(around.split_count, around.row_count);
        let within = (span_share / around.bytes_share).min(1.0);
        anywhere
            .max(beyond(span_splits.min(around.split_count), around.row_count * within))
            .max(0.0)
    }

    /// Returns the margin of a count, or `None` if too few splits were read. `rows` are the counted rows in
    /// the splits read, `seen_splits` the number of splits with such rows, and `around` the rows that may be
    /// counted.
    fn count_margin(
        &self,
        rows: &SumsByCell,
        seen_splits: u64,
        around: CountableRows,
    ) -> Option<UnlikeSplitMargin> {
        if self.splits_read() < MARGIN_SPLITS_MIN || seen_splits < COUNTED_SPLITS_MIN {
            return None;
        }
        let total = rows.sum() * self.scale_factor();
        let up = self.added_rows_share(rows, around);
        (up <= 1.0).then(|| UnlikeSplitMargin {
            below: self.unlike_split_share(seen_splits as f64) * total,
            above: up * total,
        })
    }

    /// Returns the margin of a mean of values, or `None` if too few splits were read. `seen_splits` splits
    /// have values; they weigh as much as `carrying` splits of equal size.
    fn mean_margin(
        &self,
        mean: f64,
        values: ValueSummary,
        seen_splits: u64,
        carrying: f64,
    ) -> Option<UnlikeSplitMargin> {
        if self.splits_read().min(seen_splits) < MARGIN_SPLITS_MIN {
            return None;
        }
        let share = self.unlike_split_share(carrying);
        let unread = 1.0 - self.read_share();
        let row = LARGE_UNREAD_ROWS * unread / values.count;
        let reach = |farthest: f64, most: f64| {
            let of_splits = share * (VALUE_DISTANCE_FACTOR * farthest).min(most);
            of_splits.max(row * farthest)
        };
        let most = (UNLIKE_CONTENT_MAX - 1.0) * mean.abs();
        let (down, up) = (mean - values.min, values.max - mean);
        Some(match (values.min >= 0.0, values.max <= 0.0) {
            // Values of one sign reach at most as far as 0.
            (true, _) => {
                UnlikeSplitMargin { below: reach(down, mean).min(mean), above: reach(up, most) }
            }
            (_, true) => {
                UnlikeSplitMargin { below: reach(down, most), above: reach(up, -mean).min(-mean) }
            }
            _ => UnlikeSplitMargin {
                below: reach(down, f64::INFINITY),
                above: reach(up, f64::INFINITY),
            },
        })
    }

    /// Returns the margin of a share of rows, or `None` if too few splits were read. `seen_splits` splits
    /// have such rows.
    pub(crate) fn share_margin(
        &self,
        share: f64,
        rows: &SumsByCell,
        seen_splits: u64,
    ) -> Option<UnlikeSplitMargin> {
        if self.splits_read().min(seen_splits) < MARGIN_SPLITS_MIN {
            return None;
        }
        let unlike = self.unlike_split_share(self.effective_splits(rows, seen_splits));
        Some(UnlikeSplitMargin { below: unlike * share, above: unlike * (1.0 - share) })
    }

    /// Returns the margin of a sum of values, or `None` if too few splits were read. Unlike splits can have
    /// more rows, or larger values.
    fn sum_margin(
        &self,
        sums: &SumsByCell,
        values: ValueSummary,
        seen_splits: u64,
        around: CountableRows,
    ) -> Option<UnlikeSplitMargin> {
        let (count, total) = (values.count, sums.sum() * self.scale_factor());
        let of_values =
            self.mean_margin(sums.sum() / count, values, seen_splits, seen_splits as f64)?;
        let of_values = of_values.scale(count * self.scale_factor());
        let mut rows = sums.clone();
        // Distribute the rows over the cells as the sums are distributed.
        let size = sums.entries().iter().map(|(_, sum)| sum.abs()).sum::<f64>();
        rows = rows.map_values(|sum| if size > 0.0 { sum.abs() / size * count } else { 0.0 });
        let up = self.added_rows_share(&rows, around);
        if up > 1.0 {
            return None;
        }
        let none = self.unlike_split_share(seen_splits as f64);
        let of_rows = UnlikeSplitMargin { below: none, above: up }.scale(total);
        Some(UnlikeSplitMargin {
            below: of_values.below.max(of_rows.below),
            above: of_values.above.max(of_rows.above),
        })
    }

    /// Returns the number of splits with equal sums that carry as much information as those of the given
    /// sums: Kish's effective size, (Σy)²/Σy².
    fn effective_splits(&self, series: &SumsByCell, seen_splits: u64) -> f64 {
        let level = self.level_statistics(series.level());
        let squares = series.entries().iter().map(|(cell, sum)| {
            let per_split =
                level.cell_index(*cell).map_or(1.0, |at| level.cells[at].inverse_split_count);
            sum * sum * per_split
        });
        let sum = series.sum();
        (sum * sum / squares.sum::<f64>()).min(seen_splits as f64).max(1.0)
    }

    /// Returns the number of splits read in the stretch of the input that the sums cover, and their share of
    /// the bytes read.
    fn covered_span(&self, series: &SumsByCell) -> (f64, f64) {
        match (series.entries().first(), series.entries().last()) {
            (Some((first, _)), Some((last, _))) => {
                self.level_statistics(series.level()).splits_and_share_between(*first, *last)
            }
            _ => (0.0, 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SamplingOrder, cell_of_split};

    /// Reads `read` of 1,000 splits, each of which has the value for its index.
    fn sample(read: usize, value: impl Fn(usize) -> f64) -> (SplitSample, SumsByCell, u64) {
        let (mut sample, mut series, mut seen) =
            (SplitSample::new(1_000, 1e4, 0.95), SumsByCell::default(), 0);
        for index in SamplingOrder::new(1_000, 3).take(read) {
            sample.add(index, 10.0);
            if value(index) != 0.0 {
                series.add(cell_of_split(index, 1_000), value(index));
                seen += 1;
            }
        }
        (sample, series, seen)
    }

    fn close(value: f64, expect: f64) {
        assert!((value - expect).abs() < 1e-9 * expect.abs().max(1.0), "{value}, not {expect}");
    }

    #[test]
    fn margin_of_a_count_is_the_content_of_unlike_splits() {
        // In each split 10 of 40 rows are counted.
        let (sample, rows, seen) = sample(100, |_| 10.0);
        let share = 20.0_f64.ln() / 2.0 * 0.9 / 100.0;
        let room = sample.count_margin(&rows, seen, sample.all_rows_read(4_000.0)).unwrap();
        close(room.above, share * 3.0 * 10_000.0);
        close(room.below, share * 10_000.0);
        // All rows are counted already.
        close(sample.count_margin(&rows, seen, sample.all_rows_read(1_000.0)).unwrap().above, 0.0);
    }

    #[test]
    fn a_group_in_a_run_is_compared_with_the_run() {
        let day = |index: usize| if (300..600).contains(&index) { 10.0 } else { 0.0 };
        let (sample, rows, seen) = sample(400, day);
        // The count covers all rows of the run, so more rows can only be elsewhere.
        let anywhere = 20.0_f64.ln() / 2.0 * 0.6 / 400.0;
        let room = sample.count_margin(&rows, seen, sample.all_rows_read(4_000.0)).unwrap();
        let beyond = 4_000.0 / rows.sum() - 1.0;
        close(room.above, anywhere * beyond * rows.sum() * 2.5);
        // The count covers a fiftieth of the rows of the run.
        let room = sample.count_margin(&rows, seen, sample.all_rows_read(200_000.0)).unwrap();
        assert!(room.above > 20.0_f64.ln() / 2.0 * 0.6 / 130.0 * 45.0 * rows.sum() * 2.5);
    }

    #[test]
    fn at_least_one_split_can_be_unlike() {
        let (sample, rows, seen) = sample(900, |_| 10.0);
        close(
            sample.count_margin(&rows, seen, sample.all_rows_read(18_000.0)).unwrap().above,
            1.0 / 1_000.0 * 10_000.0,
        );
        // None of the last few splits is likely to be unlike.
        let (sample, rows, seen) = self::sample(990, |_| 10.0);
        let share = 20.0_f64.ln() / 2.0 * 0.01 / 990.0;
        close(
            sample.count_margin(&rows, seen, sample.all_rows_read(19_800.0)).unwrap().above,
            share * 10_000.0,
        );
    }

    #[test]
    fn too_few_splits_have_no_margin() {
        let check = |read, share: f64, rows_read: f64, count, sum| {
            let (sample, series, seen) = sample(read, |index| {
                f64::from(u8::from((index * 7919 % 1_000) as f64 >= 1e3 * (1.0 - share)))
            });
            let values = ValueSummary { count: series.sum(), min: 1.0, max: 1.0 };
            let what = format!("{read} {share} {seen}");
            assert_eq!(
                sample.count_margin(&series, seen, sample.all_rows_read(rows_read)).is_some(),
                count,
                "{what}"
            );
            assert_eq!(
                sample.sum_margin(&series, values, seen, sample.all_rows_read(rows_read)).is_some(),
                sum,
                "{what}"
            );
            assert_eq!(sample.mean_margin(1.0, values, seen, seen as f64).is_some(), sum, "{what}");
        };
        check(29, 1.0, 29.0, false, false);
        check(30, 1.0, 30.0, true, true);
        check(200, 0.1, 200.0, true, false);
        check(200, 0.02, 200.0, false, false);
    }

    #[test]
    fn rare_rows_take_more_splits() {
        let check = |read, expect| {
            let (sample, rows, seen) = sample(read, |_| 1.0);
            let room =
                sample.count_margin(&rows, seen, sample.all_rows_read(1_000.0 * read as f64));
            assert_eq!(room.is_some(), expect, "{read}");
            // An unlike split has at most fifty times as many rows as the average.
            let most = 20.0_f64.ln() / 2.0 * (1.0 / read as f64 - 1e-3) * 49.0 * 1_000.0;
            assert!(room.is_none_or(|room| (room.above - most).abs() < 1e-6));
        };
        check(60, false);
        check(399, false);
        check(400, true);
    }

    #[test]
    fn margin_of_a_mean_covers_larger_values() {
        let (sample, sums, seen) = sample(100, |_| 1_000.0);
        let share = 20.0_f64.ln() / 2.0 * 0.9 / 100.0;
        let check = |mean, min, max, down, up| {
            let room = sample
                .mean_margin(mean, ValueSummary { count: 1e6, min, max }, seen, 100.0)
                .unwrap();
            close(room.below, share * down);
            close(room.above, share * up);
        };
        check(5.0, 4.0, 8.0, 2.0, 6.0);
        // The margin reaches neither below zero nor beyond fifty times the mean.
        check(5.0, 1.0, 1_000.0, 5.0, 245.0);
        check(-5.0, -8.0, -1.0, 6.0, 5.0);
        check(0.0, -8.0, 1.0, 16.0, 2.0);
        // The margin of a sum is the larger of the margins of its mean and its count.
        let values = ValueSummary { count: 1e5, min: 0.5, max: 2.0 };
        let room = sample.sum_margin(&sums, values, seen, sample.all_rows_read(1e5)).unwrap();
        close(room.above, share * 2.0 * 1e6);
        let room = sample.sum_margin(&sums, values, seen, sample.all_rows_read(4e5)).unwrap();
        close(room.above, share * 3.0 * 1e6);
    }

    /// Half of the rows are in one split, so all splits carry as much information as a few equal ones.
    #[test]
    fn rows_in_one_split_have_few_effective_splits() {
        let (mut sample, rows, seen) = sample(100, |index| if index == 500 { 0.0 } else { 1.0 });
        let others = rows.sum();
        let mut rows = rows;
        if seen == 100 {
            sample.add(500, 10.0);
        }
        rows.add(cell_of_split(500, 1_000), others);
        let carrying = sample.effective_splits(&rows, 100);
        assert!((3.0..12.0).contains(&carrying), "{carrying}");
        close(sample.effective_splits(&rows.map_values(|_| 1.0), 40), 40.0);
    }

    #[test]
    fn margin_of_few_rows_covers_a_large_row() {
        let (sample, _, seen) = sample(100, |_| 1.0);
        let room = sample
            .mean_margin(1.0, ValueSummary { count: 100.0, min: 0.5, max: 3.0 }, seen, 100.0)
            .unwrap();
        close(room.above, LARGE_UNREAD_ROWS * 0.9 * 2.0 / 100.0);
    }

    /// The margin of a mean differs from that of its sum and from that of its count.
    #[test]
    fn margin_of_a_formula_is_that_of_its_quantity() {
        let (sample, rows, seen_splits) = sample(100, |_| 10.0);
        let sums = rows.map_values(|rows| rows * 2.0);
        let values = Some(ValueSummary { count: rows.sum(), min: 1.0, max: 4.0 });
        let factor = sample.scale_factor();
        let rows_of = RowSet::default();
        let count = |slope, series| FormulaTotal {
            derivative: slope,
            sums_by_cell: series,
            seen_splits,
            value_summary: None,
            row_set: rows_of,
        };
        let sum = |slope, series| FormulaTotal {
            derivative: slope,
            sums_by_cell: series,
            seen_splits,
            value_summary: values,
            row_set: rows_of,
        };
        let share = 20.0_f64.ln() / 2.0 * 0.9 / 100.0;
        let per_row = 1.0 / (rows.sum() * factor);
        let check = |parts: &[FormulaTotal<'_>], down, up| {
            let room = sample.unlike_split_margin(parts, 4.0 * rows.sum()).unwrap();
            close(room.below, share * down);
            close(room.above, share * up);
        };
        // A mean of 2, between 1 and 4.
        check(&[sum(per_row, &sums), count(-2.0 * per_row, &rows)], 2.0, 4.0);
        // A sum divided by itself.
        check(&[sum(per_row / 2.0, &sums), sum(-per_row / 2.0, &sums)], 3.0, 3.0);
        let half = rows.map_values(|rows| rows / 2.0);
        // A share of one half reaches at most 1.
        check(&[count(per_row, &half), count(-per_row / 2.0, &rows)], 0.5, 1.0);
        // A total, and its negative.
        check(&[count(1.0, &rows)], 1.0 / per_row, 3.0 / per_row);
        check(&[count(-1.0, &rows)], 3.0 / per_row, 1.0 / per_row);
        check(&[sum(1.0, &sums)], 2.0 / per_row, 6.0 / per_row);
        check(&[], 0.0, 0.0);
        assert_eq!(
            sample.unlike_split_margin(&[FormulaTotal { seen_splits: 29, ..sum(1.0, &sums) }], 1e9),
            None
        );
    }

    /// The unread splits of a group's stretch are as few as those of an input of that length.
    #[test]
    fn margin_of_a_share_in_one_stretch_uses_the_splits_of_the_stretch() {
        let in_stretch = |index: usize| if index < 125 { 10.0 } else { 0.0 };
        let (sample, rows, seen_splits) = sample(500, in_stretch);
        let slope = 1.0 / (rows.sum() * sample.scale_factor());
        let room_of = |share: f64| {
            let marks = rows.map_values(|rows| rows * share);
            let part = |slope, series, filter| {
                let rows = RowSet { filter, argument: None };
                FormulaTotal {
                    derivative: slope,
                    sums_by_cell: series,
                    seen_splits,
                    value_summary: None,
                    row_set: rows,
                }
            };
            let parts = [part(slope, &marks, Some(0)), part(-slope * share, &rows, None)];
            sample.unlike_split_margin(&parts, 5_000.0)
        };
        // One row in a hundred could double: 1.5 · 0.5 / 62 splits · 99.
        assert_eq!(room_of(0.01), None);
        let room = room_of(0.1).unwrap();
        assert!(room.above > 0.1 * 0.09 && room.above < 0.1 * 0.13, "{room:?}");
    }

    /// `sum(CASE WHEN … THEN 1 ELSE 0 END)` is a count, and its mean a share.
    #[test]
    fn a_sum_of_marks_is_a_count() {
        let (sample, rows, seen_splits) = sample(100, |_| 10.0);
        let all = rows.map_values(|rows| rows * 4.0);
        let values = Some(ValueSummary { count: all.sum(), min: 0.0, max: 100.0 });
        let sums = rows.map_values(|rows| rows * 100.0);
        let rows_of = RowSet::default();
        let count = |slope, series| FormulaTotal {
            derivative: slope,
            sums_by_cell: series,
            seen_splits,
            value_summary: None,
            row_set: rows_of,
        };
        let sum = |slope, series| FormulaTotal {
            derivative: slope,
            sums_by_cell: series,
            seen_splits,
            value_summary: values,
            row_set: rows_of,
        };
        let check = |one: &[FormulaTotal<'_>], other: &[FormulaTotal<'_>]| {
            let (one, other) = (
                sample.unlike_split_margin(one, 4_000.0).unwrap(),
                sample.unlike_split_margin(other, 4_000.0).unwrap(),
            );
            close(one.below, other.below);
            close(one.above, other.above);
        };
        check(&[sum(1.0, &sums)], &[count(100.0, &rows)]);
        check(&[sum(1.0, &sums), count(-25.0, &all)], &[count(100.0, &rows), count(-25.0, &all)]);
        // Rare marks need more splits, as rare counted rows do.
        let rare = Some(ValueSummary { count: 1e6, min: 0.0, max: 100.0 });
        assert_eq!(
            sample.unlike_split_margin(
                &[FormulaTotal { value_summary: rare, ..sum(1.0, &sums) }],
                1e6
            ),
            None
        );
        // Sums that are not multiples of the largest value are not marks.
        let other = rows.map_values(|rows| rows * 100.0 + 0.5);
        assert!(
            sample
                .unlike_split_margin(
                    &[FormulaTotal { value_summary: rare, ..sum(1.0, &other) }],
                    4_000.0
                )
                .is_some()
        );
    }

    #[test]
    fn negative_derivative_swaps_the_sides_of_a_margin() {
        let room = UnlikeSplitMargin { below: 1.0, above: 2.0 };
        assert_eq!(room.scale(-3.0), UnlikeSplitMargin { below: 6.0, above: 3.0 });
        assert_eq!(room.combine(room.scale(-1.0)), UnlikeSplitMargin { below: 3.0, above: 3.0 });
    }
}
