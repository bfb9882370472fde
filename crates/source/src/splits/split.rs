//! Splits: ranges of large files, and groups of small files.
//!
//! The cut depends only on the files' sizes, never on the machine, so that a run has the same splits
//! everywhere. The target is a 64th of all bytes, at least 1 MiB and at most 32 MiB. Splits are small enough
//! that a run does not wait long for its last task, and large enough to hide a task's fixed cost.
//!
//! A query that answers from a sample of splits wants many of them, because an estimate is the more reliable
//! the more independent parts it rests on: [`sample_split_target_bytes`]. The cost of a split besides its
//! bytes then dominates, so windows, buffers and reads behind a split's end are sized by the split.

use std::ops::Range;
use std::sync::Arc;

use crate::SourceFile;

/// Minimum target size of a split, in bytes.
pub(crate) const SPLIT_BYTES_MIN: u64 = 1 << 20;
/// Maximum target size of a split of a cut file, in bytes.
pub(crate) const SPLIT_BYTES_MAX: u64 = 32 << 20;
/// Approximate maximum number of splits of the default size.
const LISTED_SPLITS_MAX: u64 = 1 << 18;
/// Maximum number of splits if a size was requested, because all of them are listed.
const REQUESTED_SPLITS_MAX: u64 = 1 << 22;
/// Maximum number of files of a source whose remote row groups are cut: locating their pages takes a request
/// for each file.
pub(crate) const REMOTE_CUT_FILES_MAX: usize = 16;
/// Minimum target size of sample splits, in bytes.
const SAMPLE_SPLIT_BYTES_MIN: u64 = 16 << 10;
/// Maximum target size of sample splits of text, in bytes. A fine cut makes estimates of clustered data more
/// reliable, and costs text nothing.
const SAMPLE_TEXT_SPLIT_BYTES_MAX: u64 = 256 << 10;
/// Maximum target size of sample splits of typed files, in bytes: parts of row groups read their dictionaries
/// again.
const SAMPLE_TYPED_SPLIT_BYTES_MAX: u64 = 1 << 20;
/// Number of sample splits that the target size aims at.
const SAMPLE_SPLITS: u64 = 1 << 12;

/// A part of a file within a split.
#[derive(Debug, Clone)]
pub struct SplitPart {
    /// The file.
    pub file: Arc<SourceFile>,
    /// Range of stored bytes. A text record belongs to the part in which it starts.
    pub range: Range<u64>,
    /// Row groups, blocks or batches, for files that have them.
    pub row_groups: Option<Vec<usize>>,
    /// Rows of a row group that is cut between its pages, counted from 0 at the first of `row_groups`; none
    /// for all rows.
    pub row_range: Option<Range<u64>>,
}

/// Returns the number of rows of each split; none unless the files' footers give it for all of them.
pub fn known_split_rows(splits: &[Split]) -> Option<Vec<u64>> {
    // Neighbouring splits mostly read the same file.
    let mut last: Option<(usize, Vec<(u64, u64)>)> = None;
    let mut of_piece = |piece: &SplitPart| -> Option<u64> {
        if let Some(rows) = &piece.row_range {
            return Some(rows.end.saturating_sub(rows.start));
        }
        let file = piece.file.index();
        if last.as_ref().is_none_or(|(known, _)| *known != file) {
            last = Some((file, piece.file.metadata()?.chunk_rows_with_offsets()?));
        }
        let (_, rows) = last.as_ref()?;
        piece.row_groups.as_ref()?.iter().map(|part| Some(rows.get(*part)?.1)).sum()
    };
    splits.iter().map(|split| split.parts.iter().map(&mut of_piece).sum()).collect()
}

impl SplitPart {
    /// Returns true if the part is the whole file.
    pub fn is_whole_file(&self) -> bool {
        self.range == (0..self.file.size())
    }

    /// Returns the number of a row of this part within the file, counted from 1, and the byte offset from
    /// which rows are numbered. The offset is not 0 if the number of rows before is unknown.
    pub(crate) fn file_row_number(&self, index: u64) -> (u64, u64) {
        let Some(parts) = &self.row_groups else { return (index + 1, self.range.start) };
        let index = index.saturating_add(self.row_range.as_ref().map_or(0, |rows| rows.start));
        let Some(known) = self.file.metadata() else { return (index + 1, 0) };
        let Some(rows) = known.chunk_rows_with_offsets() else {
            let part = parts.first().copied().unwrap_or(0);
            return (index + 1, known.chunk_offset(part));
        };
        let mut left = index;
        for part in parts {
            let Some((before, rows)) = rows.get(*part) else { break };
            if left < *rows {
                return (before.saturating_add(left + 1), 0);
            }
            left -= rows;
        }
        (index + 1, 0)
    }
}

/// Returns the share of `all` bytes for a range of rows among `rows`, assuming rows of equal size. The shares
/// of consecutive ranges add up to `all`.
pub(crate) fn proportional_bytes(all: u64, range: &Range<u64>, rows: u64) -> u64 {
    let before = |row: u64| {
        let share = u128::from(all) * u128::from(row.min(rows)) / u128::from(rows.max(1));
        u64::try_from(share).unwrap_or(all)
    };
    before(range.end).saturating_sub(before(range.start))
}

/// Returns for each of some consecutive parts the number of rows before it, and its own.
pub(crate) fn with_rows_before(rows: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut before: u64 = 0;
    let with_before = |rows: u64| {
        let part = (before, rows);
        before = before.saturating_add(rows);
        part
    };
    rows.map(with_before).collect()
}

/// The unit of reading of one task.
#[derive(Debug, Clone)]
pub struct Split {
    /// Position among the splits of its source, in the order of the data.
    pub index: usize,
    /// The parts, in order.
    pub parts: Vec<SplitPart>,
    /// Stored size in bytes.
    pub bytes: u64,
    /// Start of the first record, if that is known exactly; see
    /// [`Source::resolve_exact_starts`](crate::Source::resolve_exact_starts).
    pub exact_start: Option<u64>,
}

/// Options for cutting a source into splits.
#[derive(Debug, Clone, Copy, Default)]
pub struct SplitOptions<'a> {
    /// Keeps record numbers known: neither text nor files whose parts do not know their rows are cut.
    /// Default: false.
    pub keeps_row_numbers: bool,
    /// For each file, true if it is read at all. Default: all files.
    pub included_files: Option<&'a [bool]>,
    /// Target size of splits in stored bytes; larger Parquet row groups are then cut between their pages.
    /// Default: derived from the total, with whole row groups.
    pub target_bytes: Option<u64>,
}

impl SplitOptions<'_> {
    pub(crate) fn includes_file(&self, file: usize) -> bool {
        self.included_files.and_then(|files| files.get(file)).copied().unwrap_or(true)
    }
}

/// Returns the target size of splits of a source with `total` bytes. Beyond 8 TB splits become larger,
/// because all of them are listed and a server may report any size.
pub fn split_target_bytes(total: u64) -> u64 {
    (total / 64).clamp(SPLIT_BYTES_MIN, SPLIT_BYTES_MAX.max(total / LISTED_SPLITS_MAX))
}

/// Returns the target size of splits from which a sample of `total` bytes is drawn: a 4096th. It is at least
/// 16 KiB, and at most 256 KiB of text or 1 MiB of files with typed columns. Beyond 64 GiB of text, splits
/// become larger because all of them are listed.
///
/// ```
/// use tidemill_source::sample_split_target_bytes;
///
/// assert_eq!(sample_split_target_bytes(100_000_000, true), 24_414);
/// assert_eq!(sample_split_target_bytes(10_000_000_000, true), 256 << 10);
/// assert_eq!(sample_split_target_bytes(10_000_000_000, false), 1 << 20);
/// ```
pub fn sample_split_target_bytes(total: u64, is_text: bool) -> u64 {
    let most = if is_text { SAMPLE_TEXT_SPLIT_BYTES_MAX } else { SAMPLE_TYPED_SPLIT_BYTES_MAX };
    let least = (total / SAMPLE_SPLITS).clamp(SAMPLE_SPLIT_BYTES_MIN, most);
    least.max(total / LISTED_SPLITS_MAX)
}

/// Returns the target size of splits of `total` bytes if a size of `asked` was requested. It exceeds `asked`
/// if there would be more than [`REQUESTED_SPLITS_MAX`] splits.
pub(crate) fn requested_target_bytes(asked: u64, total: u64) -> u64 {
    asked.max(total / REQUESTED_SPLITS_MAX)
}

/// Packs file parts into splits of about the target size, in order.
pub(crate) struct SplitPacker {
    target: u64,
    splits: Vec<Split>,
    open_parts: Vec<SplitPart>,
    open_bytes: u64,
}

impl SplitPacker {
    pub(crate) fn new(target: u64) -> Self {
        Self { target: target.max(1), splits: Vec::new(), open_parts: Vec::new(), open_bytes: 0 }
    }

    /// Adds a part that may share a split with its neighbours.
    pub(crate) fn add_shared(&mut self, piece: SplitPart, bytes: u64) {
        if !self.open_parts.is_empty() && self.open_bytes + bytes > self.target {
            self.close_split();
        }
        self.open_parts.push(piece);
        self.open_bytes += bytes;
        if self.open_bytes >= self.target {
            self.close_split();
        }
    }

    /// Adds a part that is a split of its own, such as a range of a cut text file.
    pub(crate) fn add_alone(&mut self, piece: SplitPart, bytes: u64) {
        self.close_split();
        self.open_parts.push(piece);
        self.open_bytes = bytes;
        self.close_split();
    }

    /// Ends the split that is being filled.
    pub(crate) fn close_split(&mut self) {
        if self.open_parts.is_empty() {
            return;
        }
        self.splits.push(Split {
            index: self.splits.len(),
            parts: std::mem::take(&mut self.open_parts),
            bytes: std::mem::take(&mut self.open_bytes),
            exact_start: None,
        });
    }

    pub(crate) fn finish(mut self) -> Vec<Split> {
        self.close_split();
        self.splits
    }
}

/// Divides a size into equal ranges of at most the target size; a single range may exceed it by half.
pub(crate) fn divide_into_ranges(size: u64, target: u64) -> Vec<Range<u64>> {
    let target = target.max(1);
    let count = if size <= target.saturating_add(target / 2) { 1 } else { size.div_ceil(target) };
    let at = |index: u64| {
        u64::try_from(u128::from(size) * u128::from(index) / u128::from(count)).unwrap_or(size)
    };
    (0..count).map(|index| at(index)..at(index + 1)).filter(|range| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_depends_on_the_total_alone() {
        for (total, expected) in
            [(0, 1 << 20), (1 << 30, 16 << 20), (100 << 30, 32 << 20), (128 << 20, 2 << 20)]
        {
            assert_eq!(split_target_bytes(total), expected, "{total}");
        }
    }

    #[test]
    fn splits_have_a_limit_however_small_they_are() {
        for (asked, total, expected) in [
            (1 << 10, 0, 1 << 10),
            (1 << 10, 1 << 32, 1 << 10),
            (1 << 10, 1 << 40, 1 << 18),
            (1 << 20, 1 << 40, 1 << 20),
            (1 << 10, u64::MAX, u64::MAX >> 22),
        ] {
            assert_eq!(requested_target_bytes(asked, total), expected, "{asked} of {total}");
        }
    }

    #[test]
    fn splits_of_a_sample_are_thousands() {
        for (total, expected) in [
            (0, 16 << 10),
            (64 << 20, 16 << 10),
            (128 << 20, 32 << 10),
            (1 << 30, 256 << 10),
            (64 << 30, 256 << 10),
            (1 << 40, 4 << 20),
        ] {
            assert_eq!(sample_split_target_bytes(total, true), expected, "{total}");
        }
        for (total, expected) in
            [(128 << 20, 32 << 10), (4 << 30, 1 << 20), (256 << 30, 1 << 20), (1 << 40, 4 << 20)]
        {
            assert_eq!(sample_split_target_bytes(total, false), expected, "{total}");
        }
    }

    #[test]
    fn ranges_cover_a_file_without_gap_or_sliver() {
        for (size, target) in [(0, 10), (1, 1), (7, 1), (100, 30), (45, 30), (46, 30)] {
            let ranges = divide_into_ranges(size, target);
            let mut at = 0;
            for range in &ranges {
                assert_eq!(range.start, at);
                at = range.end;
            }
            assert_eq!(at, size);
            assert!(ranges.iter().all(|r| r.end - r.start <= target.saturating_add(target / 2)));
        }
        assert_eq!(divide_into_ranges(45, 30).len(), 1);
        assert_eq!(divide_into_ranges(46, 30).len(), 2);
    }
}
