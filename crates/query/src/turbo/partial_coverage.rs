//! The coverage of an answer that rests on a part of the input, and the width of its intervals.

use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type};
use tidemill_base::coverage::{
    ABANDONED_FILES_MAX, AbandonedFile, BOUND_METADATA_KEY, EstimateAccuracy, LIMIT_REACHED,
    OmittedSplits, SamplingCoverage, format_confidence, format_percent,
};
use tidemill_sampling::unseen_group_share_max;

use super::TurboSettings;
use super::answer_builder::MissingIntervalReasons;
use super::local_runner::{ReadOutcome, StopReason};
use super::sampling_plan::left_out_bytes;
use crate::execution::scan::Scan;

/// The part of the input that an answer rests on.
pub(crate) struct PartialCoverage {
    pub is_whole_input: bool,
    /// The reason why reading stopped, in words.
    pub stop_text: Option<String>,
    /// Bytes whose rows count.
    pub counted_bytes: u64,
    /// Number of splits read.
    pub splits_read: u64,
    pub sampled: SamplingCoverage,
    /// Descriptions of the columns without bounds beside them.
    pub unbounded_estimates: Vec<EstimateAccuracy>,
    /// The reasons of missing intervals, and the index of the estimand of each column with bounds.
    pub missing_intervals: (MissingIntervalReasons, Vec<Option<usize>>),
    /// The time at which the answer was due.
    ends_at: Option<Instant>,
}

/// Delay after which an answer has missed its deadline.
const LATENESS_TOLERANCE: Duration = Duration::from_millis(200);

/// Returns the delay since `ends_at` in seconds, if it is long enough to report.
pub fn late_seconds(ends_at: Instant) -> Option<f64> {
    let late = Some(ends_at.elapsed()).filter(|late| *late > LATENESS_TOLERANCE);
    late.map(|late| (late.as_secs_f64() * 1e3).round() / 1e3)
}

impl PartialCoverage {
    /// Records that the last row was returned.
    pub(crate) fn record_end(&mut self) {
        self.sampled.late_seconds = self.ends_at.and_then(late_seconds);
    }
}

/// Builds the coverage of a run.
pub(crate) fn build_partial_coverage(
    scan: &Scan,
    turbo: &TurboSettings,
    read: &ReadOutcome,
) -> PartialCoverage {
    let left_out = |splits: &mut dyn Iterator<Item = usize>| {
        splits.fold(OmittedSplits::default(), |all, split| OmittedSplits {
            splits: all.splits + 1,
            bytes: all.bytes + scan.splits()[split].bytes,
        })
    };
    let mut files: Vec<AbandonedFile> = Vec::new();
    for given_up in &read.given_up_splits {
        let piece = scan.splits()[given_up.split].parts.first();
        let path = piece.map_or(String::new(), |piece| piece.file.display_name().to_owned());
        if let Some(known) = files.iter_mut().find(|known| known.path == path) {
            known.splits += 1;
            continue;
        }
        if files.len() < ABANDONED_FILES_MAX {
            let reason = given_up.error.clone();
            // The hint is not part of the reason, so only the first line is used.
            let gave = match scan.read_counts(given_up.split).rows {
                0 => "it gave nothing",
                _ => "it gave no more in time",
            };
            let reason =
                reason.unwrap_or_else(|| match piece.and_then(|it| it.file.last_retried_error()) {
                    Some(met) => format!("{gave}: {met}"),
                    None => gave.to_owned(),
                });
            let reason = reason.lines().next().unwrap_or_default().to_owned();
            files.push(AbandonedFile { path, splits: 1, reason });
        }
    }
    let mut given_up = left_out(&mut read.given_up_splits.iter().map(|given_up| given_up.split));
    for file in &read.left_out_files {
        given_up.splits += 1;
        given_up.bytes += file.stored_bytes;
        if files.len() < ABANDONED_FILES_MAX {
            let (path, reason) = (file.path.clone(), file.reason.clone());
            files.push(AbandonedFile { path, splits: 1, reason });
        }
    }
    let is_whole = read.is_whole_input();
    let sample = read.sample.as_ref();
    let splits_read = sample.map_or(0, |sample| sample.splits_read());
    let in_splits: u64 = scan.splits().iter().map(|split| split.bytes).sum();
    let total = in_splits + left_out_bytes(scan, in_splits, &read.left_out_files);
    let share = match sample {
        _ if is_whole => 1.0,
        Some(sample) => sample.read_share(),
        None => (read.counted_bytes as f64 / total.max(read.counted_bytes).max(1) as f64).min(1.0),
    };
    let confidence = turbo.confidence();
    let sampled = SamplingCoverage {
        seed: turbo.seed.unwrap_or(0),
        confidence,
        scaled: sample.is_some() && !turbo.is_unscaled,
        share,
        in_flight: left_out(&mut read.in_flight_splits.iter().copied()),
        given_up,
        given_up_files: files,
        unseen_share: (sample.is_some() && !is_whole && splits_read > 0)
            .then(|| unseen_group_share_max(splits_read, confidence)),
        wrong_starts: read.wrong_start_count,
        by_estimates: Vec::new(),
        late_seconds: None,
    };
    let stopped = match read.stop_reason {
        StopReason::WholeInput => None,
        StopReason::RowLimit => Some(LIMIT_REACHED.to_owned()),
        StopReason::Deadline => Some("stopped for the deadline".to_owned()),
        StopReason::DropShare => {
            Some(format!("stopped with {} of the bytes read", format_percent(share)))
        }
        StopReason::SampleShare => {
            Some(format!("a sample of {} of the bytes", format_percent(share)))
        }
        StopReason::TargetError => Some("stopped when it was precise enough".to_owned()),
        StopReason::StopRequest => Some("stopped when it was asked to".to_owned()),
    };
    let ends_at = turbo.ends_at();
    let (bytes, splits, unbounded) = (read.counted_bytes, splits_read, Vec::new());
    let few_read = Default::default();
    PartialCoverage {
        is_whole_input: is_whole,
        stop_text: stopped,
        counted_bytes: bytes,
        splits_read: splits,
        sampled,
        unbounded_estimates: unbounded,
        missing_intervals: few_read,
        ends_at,
    }
}

/// The widths of a column's intervals, over the rows that were returned.
#[derive(Debug, Clone)]
pub(crate) struct ColumnIntervalWidths {
    column: String,
    /// Maximum distance of an interval's end from its estimate, as a share of the estimate, which is not 0.
    widest_share: f64,
    /// Maximum half width of an interval, as a share of the estimate.
    half_width_share_max: f64,
    /// True if an estimate of 0 has an interval of any width.
    has_interval_around_zero: bool,
    /// Number of rows with an interval, with one bound, and without bounds.
    rows_with_interval: u64,
    rows_with_one_bound: u64,
    rows_without_bounds: u64,
}

/// Records the widths of a batch's intervals.
pub(crate) fn record_interval_widths(shown: &mut Vec<ColumnIntervalWidths>, batch: &RecordBatch) {
    let schema = batch.schema_ref();
    let is_low = |index: &usize| {
        schema.field(*index).metadata().get(BOUND_METADATA_KEY).is_some_and(|which| which == "low")
    };
    let places: Vec<usize> = (1..schema.fields().len()).filter(is_low).collect();
    if shown.is_empty() {
        shown.extend(places.iter().map(|low| ColumnIntervalWidths {
            column: schema.field(low - 1).name().clone(),
            widest_share: 0.0,
            half_width_share_max: 0.0,
            has_interval_around_zero: false,
            rows_with_interval: 0,
            rows_with_one_bound: 0,
            rows_without_bounds: 0,
        }));
    }
    for (shown, low) in shown.iter_mut().zip(places) {
        let (lows, highs) = (batch.column(low), batch.column(low + 1));
        for row in 0..batch.num_rows() {
            match (lows.is_valid(row), highs.is_valid(row)) {
                (true, true) => shown.rows_with_interval += 1,
                (false, false) => {
                    shown.rows_without_bounds += 1;
                    continue;
                }
                _ => {
                    shown.rows_with_one_bound += 1;
                    continue;
                }
            }
            if lows.data_type() == &DataType::Float64 {
                let number =
                    |index: usize| batch.column(index).as_primitive::<Float64Type>().value(row);
                let (value, low, high) = (number(low - 1), number(low), number(low + 1));
                let farthest = (high - value).max(value - low);
                match value == 0.0 {
                    true => shown.has_interval_around_zero |= farthest > 0.0,
                    false => {
                        let share = |of: f64| of / value.abs();
                        shown.widest_share = shown.widest_share.max(share(farthest));
                        shown.half_width_share_max =
                            shown.half_width_share_max.max(share((high - low) / 2.0));
                    }
                }
            }
        }
    }
}

impl ColumnIntervalWidths {
    /// Returns true if all rows have an interval, half of whose width is within this share of the estimate.
    pub(crate) fn is_within_error(&self, share: f64) -> bool {
        self.rows_without_bounds == 0
            && self.rows_with_one_bound == 0
            && !self.has_interval_around_zero
            && self.half_width_share_max <= share
    }

    /// Returns true if the column has this name in SQL.
    pub(crate) fn has_column_name(&self, column: &str) -> bool {
        tidemill_dialect::column_names::plan_text_to_sql(&self.column) == column
    }

    /// Returns the coverage entry of the column, which is at index `place` among the columns with bounds.
    pub(crate) fn coverage_entry(&self, place: usize, part: &PartialCoverage) -> EstimateAccuracy {
        let sure = format_confidence(part.sampled.confidence);
        let mut said: Vec<String> = Vec::new();
        if self.rows_with_interval > 0 {
            let up_to = if self.rows_with_interval > 1 { "up to " } else { "" };
            // Two digits of such a small number would look like an exact value.
            let widest = match self.widest_share {
                widest if widest > 0.0 && widest < 5e-5 => "0.01 % or less".to_owned(),
                widest => format_percent(widest),
            };
            match self.has_interval_around_zero && self.widest_share == 0.0 {
                true => said.push(format!("has an interval around 0 ({sure})")),
                false => said.push(format!("{up_to}±{widest} ({sure})")),
            }
        }
        if self.rows_with_one_bound > 0 {
            said.push("is a bound".to_owned());
        }
        let (few_read, numbers) = &part.missing_intervals;
        let number = numbers.get(place).copied().flatten();
        let reason = number.and_then(|number| few_read.reason(number));
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        match (self.rows_without_bounds, self.rows_with_interval + self.rows_with_one_bound) {
            (0, _) => {}
            (_, 0) => said.push(format!("has no interval{why}")),
            (none, _) => said.push(format!("{none} have no interval{why}")),
        }
        let method = match self.rows_with_interval {
            0 => "what was seen".to_owned(),
            _ => format!("ratio estimator over {} splits", part.splits_read),
        };
        EstimateAccuracy {
            column: tidemill_dialect::column_names::plan_text_to_sql(&self.column),
            method,
            exact: false,
            interval: said.join(", "),
            error: self.half_width_share_max,
        }
    }
}
