//! Statistics of a finished sort.

use std::fmt;

use crate::checksum::RecordChecksum;
use crate::spill_storage::DiskCounts;

/// Statistics of a sort after all of its records have come out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SortReport {
    /// The records that were committed.
    pub input: RecordChecksum,
    /// The records that came out. Equal to `input` unless some were dropped or a limit was set.
    pub output: RecordChecksum,
    /// The records that `unique` dropped.
    pub dropped: RecordChecksum,
    /// Records that a limit dropped before they were sorted; with `unique` some of them tie.
    pub behind_limit: RecordChecksum,
    /// Partitions on disk; 0 if everything fitted memory.
    pub partitions: u64,
    /// Partitions that exceeded their share of memory.
    pub partitions_merged: u64,
    /// Partitions whose records all tie, which need no sort.
    pub partitions_tied: u64,
    /// Runs written for partitions that exceeded their share of memory.
    pub runs: u64,
    /// Merges that wrote a run, because more runs existed than can be merged at once.
    pub merges: u64,
    /// Operations on spill files.
    pub disk: DiskCounts,
}

impl SortReport {
    /// Returns the bytes moved to and from spill files for each byte of the input.
    pub fn spilled_bytes_per_byte(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a ratio for reading")]
        let ratio = self.disk.bytes() as f64 / (self.input.bytes.max(1)) as f64;
        ratio
    }

    /// Returns the mean size of an operation on a spill file, in bytes.
    pub fn mean_operation_bytes(&self) -> u64 {
        self.disk.bytes() / self.disk.operations().max(1)
    }
}

impl fmt::Display for SortReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rows in           {:>16}", self.input.rows)?;
        writeln!(f, "rows out          {:>16}", self.output.rows)?;
        writeln!(f, "bytes in          {:>16}", self.input.bytes)?;
        writeln!(f, "checksum          {:>16x}", self.input.hash_sum)?;
        if self.behind_limit.rows > 0 {
            writeln!(f, "dropped by limit  {:>16}", self.behind_limit.rows)?;
        }
        if self.partitions == 0 {
            return write!(f, "sorted in memory, no file was touched");
        }
        writeln!(f, "partitions        {:>16}", self.partitions)?;
        writeln!(f, "  merged from runs{:>16}", self.partitions_merged)?;
        writeln!(f, "  of one key      {:>16}", self.partitions_tied)?;
        writeln!(f, "runs              {:>16}", self.runs)?;
        writeln!(f, "merges of runs    {:>16}", self.merges)?;
        writeln!(f, "writes            {:>16}", self.disk.writes)?;
        writeln!(f, "bytes written     {:>16}", self.disk.write_bytes)?;
        writeln!(f, "reads             {:>16}", self.disk.reads)?;
        writeln!(f, "bytes read        {:>16}", self.disk.read_bytes)?;
        write!(f, "bytes a disk operation, mean {:>5}", self.mean_operation_bytes())
    }
}
