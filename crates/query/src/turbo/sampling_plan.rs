//! Which splits are read, and in which order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidemill_base::coverage::format_decimal_bytes;
use tidemill_base::error::{Error, Result, escape_control_chars};
use tidemill_sampling::SamplingOrder;
use tidemill_source::{SkippedFile, Split, known_split_rows};

use super::local_runner::{GivenUpSplit, StopCondition};
use super::split_tally::SplitTally;
use crate::scan::Scan;

/// Of fewer splits there is no sample.
const SAMPLED_SPLITS_MIN: usize = 16;

/// What would let a run go on.
pub(crate) const DROP_HINT: &str = "--drop 10% leaves out what cannot be read";

/// How often whoever waits looks how things stand.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The splits of an input as they are read.
pub(crate) struct SamplingPlan {
    split_order: Vec<u32>,
    /// How many of them may be begun.
    split_count_max: usize,
    /// Whether there is nothing to draw from: they are read in order.
    pub(crate) is_in_order: bool,
    /// The bytes of each.
    pub(crate) split_bytes: Vec<u64>,
    pub(crate) total_bytes: u64,
    /// What answers are scaled up by, of each: its rows where footers tell them, else its bytes; and of all, with files
    /// that are in no split, as others are where nobody knows their bytes.
    pub(crate) split_weights: Vec<u64>,
    pub(crate) total_weight: u64,
    /// Bytes that may be left out.
    pub(crate) drop_bytes: u64,
    /// What is said of what may not be.
    drop_hint: &'static str,
    next_position: AtomicUsize,
}

impl SamplingPlan {
    /// # Errors
    /// [`Error::Io`] where more files are left out already than may be, or one that cannot be read and not merely does
    /// not answer, where nothing was said of leaving out.
    pub(crate) fn new(scan: &Scan, until: &StopCondition) -> Result<Self> {
        let splits = scan.splits();
        let in_order = !can_sample_splits(splits);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a number of splits"
        )]
        let count = match (until.sample_share, in_order) {
            (Some(share), false) => ((splits.len() as f64 * share).ceil() as usize).max(1),
            _ => splits.len(),
        };
        let number = |index| u32::try_from(index).unwrap_or(u32::MAX);
        let order = match in_order {
            true => (0..splits.len()).map(number).collect(),
            false => SamplingOrder::new(splits.len(), until.seed).map(number).collect(),
        };
        let sizes = estimate_split_bytes(splits);
        let total: u64 = sizes.iter().sum();
        let rows =
            scan.source().skipped_files().is_empty().then(|| known_split_rows(splits)).flatten();
        let rows = rows.filter(|rows| rows.iter().any(|rows| *rows > 0));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a number of bytes"
        )]
        let may_drop = |of: u64| (of as f64 * until.drop_share.unwrap_or(0.0)) as u64;
        let left_out = scan.source().skipped_files();
        let left_bytes = left_out_bytes(scan, total, &left_out);
        let unreadable =
            left_out.iter().find(|file| !file.is_unresponsive && until.drop_share.is_none());
        if let Some(file) = unreadable {
            return Err(unreadable_file_error(file, DROP_HINT));
        }
        let may_be = may_drop(total + left_bytes);
        if let (Some(first), true) =
            (left_out.first(), until.drop_share.is_some() && left_bytes > may_be)
        {
            let more = format!(
                "{} cannot be read, which is more than `drop` lets be left out",
                format_decimal_bytes(left_bytes)
            );
            return Err(unreadable_file_error(first, &more));
        }
        let drop_bytes = may_be.saturating_sub(left_bytes).min(total);
        let next = AtomicUsize::new(0);
        let advice = match until.drop_share {
            Some(_) => "more cannot be read than --drop lets be left out",
            None => DROP_HINT,
        };
        Ok(SamplingPlan {
            split_order: order,
            split_count_max: count,
            is_in_order: in_order,
            total_weight: rows.as_ref().map_or(total + left_bytes, |rows| rows.iter().sum()),
            split_weights: rows.unwrap_or_else(|| sizes.clone()),
            split_bytes: sizes,
            total_bytes: total,
            drop_bytes,
            drop_hint: advice,
            next_position: next,
        })
    }

    /// Splits that somebody else has drawn: all of them, in their order.
    pub(crate) fn from_assigned_splits(scan: &Scan) -> Self {
        let sizes = estimate_split_bytes(scan.splits());
        let total = sizes.iter().sum();
        let number = |index| u32::try_from(index).unwrap_or(u32::MAX);
        SamplingPlan {
            split_order: (0..sizes.len()).map(number).collect(),
            split_count_max: sizes.len(),
            is_in_order: false,
            total_weight: total,
            split_weights: sizes.clone(),
            split_bytes: sizes,
            total_bytes: total,
            drop_bytes: 0,
            drop_hint: DROP_HINT,
            next_position: AtomicUsize::new(0),
        }
    }

    /// The next split; none when as many have been begun as may be.
    pub(crate) fn next_split(&self) -> Option<usize> {
        let at = self.next_position.fetch_add(1, Ordering::Relaxed);
        self.split_order[..self.split_count_max].get(at).map(|index| *index as usize)
    }

    /// Whether as many were begun as may be.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.next_position.load(Ordering::Relaxed) >= self.split_count_max
    }

    /// How many splits are read at most.
    pub(crate) fn split_count_max(&self) -> usize {
        self.split_count_max
    }

    /// Leaves a split out that cannot be read, if so much may be left out.
    ///
    /// # Errors
    /// The split's own, if it may not be.
    pub(super) fn give_up_split(
        &self,
        index: usize,
        error: Error,
        tally: &mut SplitTally,
    ) -> Result<()> {
        if !is_input_error(&error) {
            return Err(error);
        }
        if tally.given_up_bytes + self.split_bytes[index] > self.drop_bytes {
            return Err(error.with_added_hint(self.drop_hint));
        }
        tally.given_up_bytes += self.split_bytes[index];
        tally.give_up_split(GivenUpSplit { split: index, error: Some(error.to_string()) });
        Ok(())
    }
}

/// Whether what was met is of a file, and not of the query or this machine.
pub(crate) fn is_input_error(error: &Error) -> bool {
    matches!(
        error,
        Error::Io { .. }
            | Error::Corrupt { .. }
            | Error::NotFound { .. }
            | Error::FileChanged { .. }
            | Error::Remote { .. }
            | Error::UserProgram { .. }
            | Error::Rowfile { .. }
            | Error::RegisteredFormat { .. }
    )
}

/// The bytes of files that are in no split, where all splits together have so many: their own, or those of a file as others
/// are where nobody knows them.
pub(crate) fn left_out_bytes(scan: &Scan, total: u64, left_out: &[SkippedFile]) -> u64 {
    let known = left_out.iter().filter(|file| file.file_index.is_some()).count();
    let files = scan.source().files().len().saturating_sub(known).max(1) as u64;
    let of_file =
        |file: &SkippedFile| if file.stored_bytes > 0 { file.stored_bytes } else { total / files };
    left_out.iter().map(of_file).sum()
}

/// That a file cannot be read, and why.
pub(crate) fn unreadable_file_error(file: &SkippedFile, more: &str) -> Error {
    let reason = file.reason.lines().next().unwrap_or_default();
    // It may begin with the name as well.
    let name = format!("`{}`", escape_control_chars(&file.path, &[]));
    let reason = match reason.split_once(&name) {
        Some((_, rest)) => match rest.strip_prefix(": ") {
            Some(rest) => rest.to_owned(),
            None => format!("it{rest}"),
        },
        None => reason.to_owned(),
    };
    let reason = std::io::Error::other(format!("{reason}; {more}"));
    Error::Io { action: "read", path: file.path.clone(), source: reason }
}

/// The splits of an input, and the files that are in none: of all of it there are estimates.
pub(crate) fn split_count_with_left_out(scan: &Scan) -> usize {
    scan.splits().len() + scan.source().skipped_files().len()
}

/// Whether splits can be drawn from: there are some, and none is a large part of all.
pub(crate) fn can_sample_splits(splits: &[Split]) -> bool {
    let sizes = estimate_split_bytes(splits);
    let total: u64 = sizes.iter().sum();
    let largest = sizes.iter().max().copied().unwrap_or(0);
    splits.len() >= SAMPLED_SPLITS_MIN && largest.saturating_mul(8) <= total
}

/// The bytes of each split; of one that nobody knows the size of, the mean of the others.
fn estimate_split_bytes(splits: &[Split]) -> Vec<u64> {
    let is_unknown = |split: &Split| split.parts.iter().any(|piece| piece.file.is_stream());
    let known = || splits.iter().filter(|split| !is_unknown(split));
    let mean = known().map(|split| split.bytes).sum::<u64>() / (known().count() as u64).max(1);
    splits.iter().map(|split| if is_unknown(split) { mean.max(1) } else { split.bytes }).collect()
}
