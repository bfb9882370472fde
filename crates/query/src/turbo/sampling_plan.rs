//! The sampling plan: which splits are read, in which order, and how many bytes may be left out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidemill_base::coverage::format_decimal_bytes;
use tidemill_base::error::{Error, Result, escape_control_chars};
use tidemill_sampling::SamplingOrder;
use tidemill_source::{SkippedFile, Split, known_split_rows};

use super::local_runner::{GivenUpSplit, StopCondition};
use super::split_tally::SplitTally;
use crate::execution::scan::Scan;

/// Minimum number of splits for a sample.
const SAMPLED_SPLITS_MIN: usize = 16;

/// Hint for errors of files that may not be left out.
pub(crate) const DROP_HINT: &str = "--drop 10% leaves out what cannot be read";

/// Poll interval of threads that wait for a run.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The plan by which the splits of an input are sampled.
pub(crate) struct SamplingPlan {
    split_order: Vec<u32>,
    /// Maximum number of splits that are read.
    split_count_max: usize,
    /// True if there are too few splits for a sample, so that they are read in input order.
    pub(crate) is_in_order: bool,
    /// The bytes of each split.
    pub(crate) split_bytes: Vec<u64>,
    pub(crate) total_bytes: u64,
    /// The weight of each split, by which answers are scaled: its rows if footers give them, otherwise its
    /// bytes. The total includes files that are in no split; those of unknown size count as an average file.
    pub(crate) split_weights: Vec<u64>,
    pub(crate) total_weight: u64,
    /// Number of bytes that may be left out.
    pub(crate) drop_bytes: u64,
    /// Hint for the error of a split that may not be left out.
    drop_hint: &'static str,
    next_position: AtomicUsize,
}

impl SamplingPlan {
    /// Creates the plan of a run.
    ///
    /// # Errors
    /// [`Error::Io`] if files are already left out that may not be: more bytes than `drop` allows, or without
    /// `drop` one file that cannot be read (a file that merely does not answer is no error).
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

    /// Creates the plan of a worker, which reads all splits that the driver has sampled, in their order.
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

    /// Returns the next split, or `None` once the maximum number of splits was begun.
    pub(crate) fn next_split(&self) -> Option<usize> {
        let at = self.next_position.fetch_add(1, Ordering::Relaxed);
        self.split_order[..self.split_count_max].get(at).map(|index| *index as usize)
    }

    /// Returns true once the maximum number of splits was begun.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.next_position.load(Ordering::Relaxed) >= self.split_count_max
    }

    /// Returns the maximum number of splits that are read.
    pub(crate) fn split_count_max(&self) -> usize {
        self.split_count_max
    }

    /// Leaves out a split that cannot be read, if that many bytes may be left out.
    ///
    /// # Errors
    /// The split's error, if it may not be left out.
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

/// Returns true if an error concerns the input, and not the query or this machine.
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

/// Returns the bytes of the files that are in no split. A file of unknown size counts as an average one; the
/// splits have `total` bytes together.
pub(crate) fn left_out_bytes(scan: &Scan, total: u64, left_out: &[SkippedFile]) -> u64 {
    let known = left_out.iter().filter(|file| file.file_index.is_some()).count();
    let files = scan.source().files().len().saturating_sub(known).max(1) as u64;
    let of_file =
        |file: &SkippedFile| if file.stored_bytes > 0 { file.stored_bytes } else { total / files };
    left_out.iter().map(of_file).sum()
}

/// Returns the error for a file that cannot be read.
pub(crate) fn unreadable_file_error(file: &SkippedFile, more: &str) -> Error {
    let reason = file.reason.lines().next().unwrap_or_default();
    // The reason may begin with the file's name as well.
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

/// Returns the number of splits plus the number of files that are in no split: estimates cover both.
pub(crate) fn split_count_with_left_out(scan: &Scan) -> usize {
    scan.splits().len() + scan.source().skipped_files().len()
}

/// Returns true if splits can be sampled: there are enough of them, and none is a large part of the input.
pub(crate) fn can_sample_splits(splits: &[Split]) -> bool {
    let sizes = estimate_split_bytes(splits);
    let total: u64 = sizes.iter().sum();
    let largest = sizes.iter().max().copied().unwrap_or(0);
    splits.len() >= SAMPLED_SPLITS_MIN && largest.saturating_mul(8) <= total
}

/// Returns the bytes of each split; a split of unknown size gets the mean of the others.
fn estimate_split_bytes(splits: &[Split]) -> Vec<u64> {
    let is_unknown = |split: &Split| split.parts.iter().any(|piece| piece.file.is_stream());
    let known = || splits.iter().filter(|split| !is_unknown(split));
    let mean = known().map(|split| split.bytes).sum::<u64>() / (known().count() as u64).max(1);
    splits.iter().map(|split| if is_unknown(split) { mean.max(1) } else { split.bytes }).collect()
}
