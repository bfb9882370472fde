//! What one task reads: a range of a large file, or several small files.
//!
//! The cut depends on the files' sizes alone, never on the machine, so that a run gives the
//! same splits everywhere: the target is a 64th of all bytes, at least 1 MiB and at most
//! 32 MiB. Small enough that the last task to finish is not waited for long, large enough
//! that a task's fixed cost does not show.
//!
//! Whoever answers from a sample of the splits wants many of them, as what is told of the whole is the
//! surer the more independent pieces it rests on: [`sampled_target_bytes`]. What a split costs
//! beside its bytes is then what counts: windows, buffers and what is read behind a split's end are sized
//! by the split.

use std::ops::Range;
use std::sync::Arc;

use super::SourceFile;

/// The least a split holds, if there is so much.
pub(crate) const SPLIT_BYTES_MIN: u64 = 1 << 20;
/// The most that a split of a cut file holds.
pub(crate) const SPLIT_BYTES_MAX: u64 = 32 << 20;
/// … of which there are about so many at most.
const LISTED_SPLITS_MAX: u64 = 1 << 18;
/// Maximum number of splits if a size was requested, because all of them are listed.
const REQUESTED_SPLITS_MAX: u64 = 1 << 22;
/// Where there are more files than these, row groups of those that are elsewhere are not cut: what lies where in
/// them takes a request for each file.
pub(crate) const REMOTE_CUT_FILES_MAX: usize = 16;
/// Splits that a sample is taken of hold at least so much, if there is so much …
const SAMPLE_SPLIT_BYTES_MIN: u64 = 16 << 10;
/// … and at most so much: what stands in a run of the input is the surer the finer it is cut, and text costs no more
/// for it …
const SAMPLE_TEXT_SPLIT_BYTES_MAX: u64 = 256 << 10;
/// … unless parts of row groups are read, each with its dictionaries …
const SAMPLE_TYPED_SPLIT_BYTES_MAX: u64 = 1 << 20;
/// … so that there are so many of them.
const SAMPLE_SPLITS: u64 = 1 << 12;

/// A part of a file.
#[derive(Debug, Clone)]
pub struct SplitPart {
    /// The file.
    pub file: Arc<SourceFile>,
    /// Bytes as stored. A text record belongs to the piece in which it starts.
    pub range: Range<u64>,
    /// Of a file that has them: which row groups, blocks or batches.
    pub row_groups: Option<Vec<usize>>,
    /// Of a row group that is cut between its pages: which of its rows, the first of `row_groups` being 0. None where
    /// all are.
    pub row_range: Option<Range<u64>>,
}

/// How many rows each split has, where their files' footers say so of all of them.
pub fn known_split_rows(splits: &[Split]) -> Option<Vec<u64>> {
    // Neighbours are of one file, mostly.
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
    /// Whether it is the file from its first byte to its last.
    pub fn is_whole_file(&self) -> bool {
        self.range == (0..self.file.size())
    }

    /// The number of a row of the piece in the file, the first being 1, and from which byte on rows
    /// are numbered: not from the beginning where nothing tells how many are before.
    pub(super) fn file_row_number(&self, index: u64) -> (u64, u64) {
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

/// So much of `all` as the rows of a range have among `rows`, if all have as much: of ranges that follow one another
/// together just as much as of all.
pub(super) fn proportional_bytes(all: u64, range: &Range<u64>, rows: u64) -> u64 {
    let before = |row: u64| {
        let share = u128::from(all) * u128::from(row.min(rows)) / u128::from(rows.max(1));
        u64::try_from(share).unwrap_or(all)
    };
    before(range.end).saturating_sub(before(range.start))
}

/// For each of some parts that follow one another the rows before it, and its own.
pub(super) fn with_rows_before(rows: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut before: u64 = 0;
    let with_before = |rows: u64| {
        let part = (before, rows);
        before = before.saturating_add(rows);
        part
    };
    rows.map(with_before).collect()
}

/// What one task reads.
#[derive(Debug, Clone)]
pub struct Split {
    /// Its position among the splits of its source: the order of the data.
    pub index: usize,
    /// Its parts, in order.
    pub parts: Vec<SplitPart>,
    /// Its bytes as stored.
    pub bytes: u64,
    /// Where its first record starts, if that is known exactly; see
    /// [`Source::exact_splits`](super::Source::exact_splits).
    pub exact_start: Option<u64>,
}

/// How a source is cut, beyond the size that splits aim at.
#[derive(Debug, Clone, Copy, Default)]
pub struct SplitOptions<'a> {
    /// Whether the numbers of records are to be known: text is not cut then, nor are files whose parts do
    /// not know their rows.
    pub keeps_row_numbers: bool,
    /// Which of the files are read at all. Default: all.
    pub included_files: Option<&'a [bool]>,
    /// The size that splits aim at, in bytes as stored; row groups of Parquet that are larger are cut between
    /// their pages then. Default: as the total gives it, and row groups as they are.
    pub target_bytes: Option<u64>,
}

impl SplitOptions<'_> {
    pub(super) fn includes_file(&self, file: usize) -> bool {
        self.included_files.and_then(|files| files.get(file)).copied().unwrap_or(true)
    }
}

/// The size that splits of `total` bytes aim at: of 8 TB and more larger ones, as all of them are listed, and a server
/// may say anything.
pub fn split_target_bytes(total: u64) -> u64 {
    (total / 64).clamp(SPLIT_BYTES_MIN, SPLIT_BYTES_MAX.max(total / LISTED_SPLITS_MAX))
}

/// The size that splits of `total` bytes aim at where a sample of them is to tell of all: a 4096th, at least 16 KiB
/// and at most 256 KiB of text, 1 MiB of files whose columns have types; beyond 64 GiB of text larger ones, as all of
/// them are listed.
///
/// ```
/// use tidemill_source::sampled_target_bytes;
///
/// assert_eq!(sampled_target_bytes(100_000_000, true), 24_414);
/// assert_eq!(sampled_target_bytes(10_000_000_000, true), 256 << 10);
/// assert_eq!(sampled_target_bytes(10_000_000_000, false), 1 << 20);
/// ```
pub fn sample_split_target_bytes(total: u64, is_text: bool) -> u64 {
    let most = if is_text { SAMPLE_TEXT_SPLIT_BYTES_MAX } else { SAMPLE_TYPED_SPLIT_BYTES_MAX };
    let least = (total / SAMPLE_SPLITS).clamp(SAMPLE_SPLIT_BYTES_MIN, most);
    least.max(total / LISTED_SPLITS_MAX)
}

/// Returns the target size of splits of `total` bytes if a size of `asked` was requested. The target is larger than
/// `asked` if there would be more than [`ASKED_SPLITS_MAX`] splits.
pub(crate) fn requested_target_bytes(asked: u64, total: u64) -> u64 {
    asked.max(total / REQUESTED_SPLITS_MAX)
}

/// Collects pieces into splits of about the target size, in order.
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

    /// Adds a piece that may share a split with its neighbours.
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

    /// Adds a piece that is a split of its own: part of a cut text file.
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

/// Equal ranges of at most the target size, which a last one may exceed by a half.
pub(crate) fn equal_ranges(size: u64, target: u64) -> Vec<Range<u64>> {
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
            let ranges = equal_ranges(size, target);
            let mut at = 0;
            for range in &ranges {
                assert_eq!(range.start, at);
                at = range.end;
            }
            assert_eq!(at, size);
            assert!(ranges.iter().all(|r| r.end - r.start <= target.saturating_add(target / 2)));
        }
        assert_eq!(equal_ranges(45, 30).len(), 1);
        assert_eq!(equal_ranges(46, 30).len(), 2);
    }
}
