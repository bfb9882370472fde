//! What is said of an answer that rests on a part of the input: which part, and how wide its intervals are.

use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type};
use tidemill_base::coverage::{
    ABANDONED_FILES_MAX, AbandonedFile, BOUND_METADATA_KEY, EstimateAccuracy, LIMIT_REACHED,
    OmittedSplits, SamplingCoverage, format_confidence, format_percent,
};
use tidemill_sampling::unseen_group_share_max;

use super::Turbo;
use super::answer::FewRead;
use super::drawing::bytes_left_out;
use super::runner::{ReadPart, Why};
use crate::scan::Scan;

/// Which part of the input was read.
pub(crate) struct PartRead {
    pub is_whole: bool,
    /// Why no more was, in words.
    pub stopped: Option<String>,
    /// Bytes of which rows count.
    pub bytes: u64,
    /// How many splits.
    pub splits: u64,
    pub sampled: SamplingCoverage,
    /// What is said of columns without bounds beside them.
    pub unbounded: Vec<EstimateAccuracy>,
    /// The reasons of missing intervals, and the number of the estimate of each column with bounds.
    pub few_read: (FewRead, Vec<Option<usize>>),
    /// When the answer was to be there.
    ends_at: Option<Instant>,
}

/// An answer that comes so much later has missed its deadline.
const LATE: Duration = Duration::from_millis(200);

/// By how much what was to be there then is late by now, in seconds, if that is to be said.
pub fn late_seconds(ends_at: Instant) -> Option<f64> {
    let late = Some(ends_at.elapsed()).filter(|late| *late > LATE);
    late.map(|late| (late.as_secs_f64() * 1e3).round() / 1e3)
}

impl PartRead {
    /// Notes that the last row has been given out.
    pub(crate) fn has_ended(&mut self) {
        self.sampled.late_seconds = self.ends_at.and_then(late_seconds);
    }
}

/// What is said of a run's part.
pub(crate) fn account_of(scan: &Scan, turbo: &Turbo, read: &ReadPart) -> PartRead {
    let left_out = |splits: &mut dyn Iterator<Item = usize>| {
        splits.fold(OmittedSplits::default(), |all, split| OmittedSplits {
            splits: all.splits + 1,
            bytes: all.bytes + scan.splits()[split].bytes,
        })
    };
    let mut files: Vec<AbandonedFile> = Vec::new();
    for given_up in &read.given_up {
        let piece = scan.splits()[given_up.split].parts.first();
        let path = piece.map_or(String::new(), |piece| piece.file.display_name().to_owned());
        if let Some(known) = files.iter_mut().find(|known| known.path == path) {
            known.splits += 1;
            continue;
        }
        if files.len() < ABANDONED_FILES_MAX {
            let reason = given_up.error.clone();
            // What to do about it is no part of why.
            let gave = match scan.so_far(given_up.split).rows {
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
    let mut given_up = left_out(&mut read.given_up.iter().map(|given_up| given_up.split));
    for file in &read.left_out {
        given_up.splits += 1;
        given_up.bytes += file.stored_bytes;
        if files.len() < ABANDONED_FILES_MAX {
            let (path, reason) = (file.path.clone(), file.reason.clone());
            files.push(AbandonedFile { path, splits: 1, reason });
        }
    }
    let is_whole = read.is_whole();
    let sample = read.sample.as_ref();
    let splits_read = sample.map_or(0, |sample| sample.splits_read());
    let in_splits: u64 = scan.splits().iter().map(|split| split.bytes).sum();
    let total = in_splits + bytes_left_out(scan, in_splits, &read.left_out);
    let share = match sample {
        _ if is_whole => 1.0,
        Some(sample) => sample.read_share(),
        None => (read.bytes as f64 / total.max(read.bytes).max(1) as f64).min(1.0),
    };
    let confidence = turbo.confidence();
    let sampled = SamplingCoverage {
        seed: turbo.seed.unwrap_or(0),
        confidence,
        scaled: sample.is_some() && !turbo.as_seen,
        share,
        in_flight: left_out(&mut read.in_flight.iter().copied()),
        given_up,
        given_up_files: files,
        unseen_share: (sample.is_some() && !is_whole && splits_read > 0)
            .then(|| unseen_group_share_max(splits_read, confidence)),
        wrong_starts: read.wrong_starts,
        by_estimates: Vec::new(),
        late_seconds: None,
    };
    let stopped = match read.why {
        Why::Whole => None,
        Why::Found => Some(LIMIT_REACHED.to_owned()),
        Why::Deadline => Some("stopped for the deadline".to_owned()),
        Why::Drop => Some(format!("stopped with {} of the bytes read", format_percent(share))),
        Why::Sample => Some(format!("a sample of {} of the bytes", format_percent(share))),
        Why::Precise => Some("stopped when it was precise enough".to_owned()),
        Why::Asked => Some("stopped when it was asked to".to_owned()),
    };
    let ends_at = turbo.ends_at();
    let (bytes, splits, unbounded) = (read.bytes, splits_read, Vec::new());
    let few_read = Default::default();
    PartRead { is_whole, stopped, bytes, splits, sampled, unbounded, few_read, ends_at }
}

/// How wide the intervals of a column are, of the rows that were given out.
#[derive(Debug, Clone)]
pub(crate) struct ShownBounds {
    column: String,
    /// The farthest end of an interval, as a share of its estimate, which is not 0, …
    widest: f64,
    /// … and the widest half of an interval's width …
    half_width: f64,
    /// … and whether one that is 0 has any.
    is_around_zero: bool,
    /// Rows with an interval, those with one bound and those with none.
    whole: u64,
    half: u64,
    none: u64,
}

/// Notes how wide the intervals of a batch are.
pub(crate) fn note_bounds(shown: &mut Vec<ShownBounds>, batch: &RecordBatch) {
    let schema = batch.schema_ref();
    let is_low = |index: &usize| {
        schema.field(*index).metadata().get(BOUND_METADATA_KEY).is_some_and(|which| which == "low")
    };
    let places: Vec<usize> = (1..schema.fields().len()).filter(is_low).collect();
    if shown.is_empty() {
        shown.extend(places.iter().map(|low| ShownBounds {
            column: schema.field(low - 1).name().clone(),
            widest: 0.0,
            half_width: 0.0,
            is_around_zero: false,
            whole: 0,
            half: 0,
            none: 0,
        }));
    }
    for (shown, low) in shown.iter_mut().zip(places) {
        let (lows, highs) = (batch.column(low), batch.column(low + 1));
        for row in 0..batch.num_rows() {
            match (lows.is_valid(row), highs.is_valid(row)) {
                (true, true) => shown.whole += 1,
                (false, false) => {
                    shown.none += 1;
                    continue;
                }
                _ => {
                    shown.half += 1;
                    continue;
                }
            }
            if lows.data_type() == &DataType::Float64 {
                let number =
                    |index: usize| batch.column(index).as_primitive::<Float64Type>().value(row);
                let (value, low, high) = (number(low - 1), number(low), number(low + 1));
                let farthest = (high - value).max(value - low);
                match value == 0.0 {
                    true => shown.is_around_zero |= farthest > 0.0,
                    false => {
                        let share = |of: f64| of / value.abs();
                        shown.widest = shown.widest.max(share(farthest));
                        shown.half_width = shown.half_width.max(share((high - low) / 2.0));
                    }
                }
            }
        }
    }
}

impl ShownBounds {
    /// Whether all rows have an interval, half of which is within such a share of the estimate.
    pub(crate) fn is_within(&self, share: f64) -> bool {
        self.none == 0 && self.half == 0 && !self.is_around_zero && self.half_width <= share
    }

    /// Whether it is of the column that SQL calls so.
    pub(crate) fn is_of(&self, column: &str) -> bool {
        tidemill_sql::column_names::plan_text_to_sql(&self.column) == column
    }

    /// Returns the coverage entry of the column, which is at index `place` among the columns with bounds.
    pub(crate) fn estimate(&self, place: usize, part: &PartRead) -> EstimateAccuracy {
        let sure = format_confidence(part.sampled.confidence);
        let mut said: Vec<String> = Vec::new();
        if self.whole > 0 {
            let up_to = if self.whole > 1 { "up to " } else { "" };
            // Two digits of nothing would look as if it were exact.
            let widest = match self.widest {
                widest if widest > 0.0 && widest < 5e-5 => "0.01 % or less".to_owned(),
                widest => format_percent(widest),
            };
            match self.is_around_zero && self.widest == 0.0 {
                true => said.push(format!("has an interval around 0 ({sure})")),
                false => said.push(format!("{up_to}±{widest} ({sure})")),
            }
        }
        if self.half > 0 {
            said.push("is a bound".to_owned());
        }
        let (few_read, numbers) = &part.few_read;
        let number = numbers.get(place).copied().flatten();
        let reason = number.and_then(|number| few_read.reason(number));
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        match (self.none, self.whole + self.half) {
            (0, _) => {}
            (_, 0) => said.push(format!("has no interval{why}")),
            (none, _) => said.push(format!("{none} have no interval{why}")),
        }
        let method = match self.whole {
            0 => "what was seen".to_owned(),
            _ => format!("ratio estimator over {} splits", part.splits),
        };
        EstimateAccuracy {
            column: tidemill_sql::column_names::plan_text_to_sql(&self.column),
            method,
            exact: false,
            interval: said.join(", "),
            error: self.half_width,
        }
    }
}
