//! Options of a sort, and the sizes of blocks, writes and shares derived from its memory.

use std::path::PathBuf;

use crate::cancel_flag::SortCancelFlag;
use crate::error::{Error, Result};
use crate::limit_cutoff::SortLimit;
use crate::spill_frame::FRAME_HEADER_BYTES_MAX;

/// Options of a sort. The order itself is a [`RecordOrder`](crate::RecordOrder).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Memory for records, entries and buffers, in bytes. The program's other memory (code,
    /// stacks, data of callers) is not counted. Default: 1 GiB. Minimum: 1 MiB.
    pub memory_bytes: u64,
    /// Threads that sort and merge, beside those that produce and consume. Default: the processors
    /// available to the process. Minimum: 1.
    pub threads: usize,
    /// Folders for spill files, best on several disks: writes alternate between them, and a full one is
    /// skipped. Default: the system's folder for temporary files. The sort touches none of them unless
    /// records do not fit memory.
    pub spill_dirs: Vec<PathBuf>,
    /// Folder for a second copy of all spilled data, on another disk; read if the first copy
    /// is damaged. Default: none.
    pub copy_dir: Option<PathBuf>,
    /// Ties keep the order of their tasks, and within a task the order of pushing. Default: no.
    pub stable: bool,
    /// Drops all but the first of records that tie, in the sense of `stable`. Default: no.
    pub unique: bool,
    /// Maximum number of output records. The sort drops records that are certainly behind the limit, so that
    /// it spills nothing if twice as many fit memory. Default: all.
    pub limit: Option<u64>,
    /// Approximate size of the input. With it the number of partitions suits the data, otherwise
    /// the maximum that one pass can sort; a wrong number costs time. Default: unknown.
    pub expected_bytes: Option<u64>,
    /// Stops the sort from another thread.
    pub cancel: SortCancelFlag,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            memory_bytes: 1 << 30,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            spill_dirs: vec![std::env::temp_dir()],
            copy_dir: None,
            stable: false,
            unique: false,
            limit: None,
            expected_bytes: None,
            cancel: SortCancelFlag::new(),
        }
    }
}

/// Minimum memory of a sort.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Maximum number of partitions: more would be too small to be worth an operation each.
pub const PARTITIONS_MAX: usize = 1024;

/// Target size of a partition: it is sorted within a processor's caches, and is still several
/// large reads.
const PARTITION_BYTES_TARGET: u64 = 6 << 20;

/// Bytes of a sorted record's entry, and as much again to sort it.
pub(crate) const SORT_BYTES_PER_ROW: u64 = 2 * crate::record_blocks::ENTRY_BYTES;

/// Sizes derived from a memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortBudget {
    /// The budget.
    pub memory_bytes: u64,
    /// Maximum bytes held in memory, including entries, before anything is spilled: three quarters.
    pub held_bytes_max: u64,
    /// Bytes that a task gathers before it hands a block over: a 128th, from 8 to 512 KiB.
    pub block_bytes: usize,
    /// Bytes gathered for a partition before they are written: a 64th, from 16 KiB to 1 MiB. Every write but
    /// the last of a run is at least as large.
    pub write_bytes: usize,
    /// Maximum number of partitions: their buffers take half of the memory.
    pub partitions_max: usize,
    /// Maximum length of a record: an eighth.
    pub record_bytes_max: usize,
}

impl SortBudget {
    /// Derives the sizes from a budget; one below the minimum counts as the minimum.
    pub fn new(memory_bytes: u64) -> Self {
        let memory_bytes = memory_bytes.max(MEMORY_BYTES_MIN);
        let clamp = |bytes: u64, least: u64, most: u64| {
            usize::try_from(bytes.clamp(least, most)).unwrap_or(1 << 20)
        };
        let write_bytes = clamp(memory_bytes / 64, 16 << 10, 1 << 20);
        let buffer_bytes = (write_bytes + write_bytes / 16 + FRAME_HEADER_BYTES_MAX) as u64;
        SortBudget {
            memory_bytes,
            held_bytes_max: memory_bytes / 4 * 3,
            block_bytes: clamp(memory_bytes / 128, 8 << 10, 512 << 10),
            write_bytes,
            partitions_max: clamp(memory_bytes / 2 / buffer_bytes, 2, PARTITIONS_MAX as u64),
            record_bytes_max: clamp(memory_bytes / 8, 1, 1 << 31),
        }
    }

    /// Returns the maximum length of a frame's records, if it has more than one.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.write_bytes / 16
    }

    /// Returns the size of a partition's buffer. It is written once it has [`SortBudget::write_bytes`], so a
    /// frame may exceed that.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.write_bytes + self.frame_bytes() + FRAME_HEADER_BYTES_MAX
    }

    /// Returns the memory of each of `threads` threads that sort at once, when the partitions' last pieces
    /// take `tail_bytes`.
    pub(crate) fn thread_budget(&self, threads: usize, tail_bytes: u64) -> ThreadBudget {
        let available = self.memory_bytes.saturating_sub(tail_bytes).max(self.memory_bytes / 4);
        let each = available / 16 * 15 / threads as u64;
        // Three blocks lie in a thread's channels or are being filled, and as many again wait in the
        // channels of partitions that were ahead.
        let block_bytes =
            usize::try_from(each / 48).unwrap_or(usize::MAX).clamp(4 << 10, 256 << 10);
        ThreadBudget {
            threads,
            partition_bytes: each.saturating_sub(6 * block_bytes as u64),
            output_block_bytes: block_bytes,
        }
    }

    /// Returns the best number of sorting threads with the memory of each: all of them, unless fewer with
    /// more memory save enough runs. `needs` is the memory that each partition needs to be sorted whole.
    pub(crate) fn best_thread_budget(
        &self,
        threads: usize,
        tail_bytes: u64,
        needs: &[u64],
    ) -> ThreadBudget {
        let total = needs.iter().sum::<u64>().max(1);
        let cost = |share: &ThreadBudget| {
            let unfit: u64 = needs.iter().filter(|need| **need > share.partition_bytes).sum();
            // A run is written, read and compared once more: by one of the threads, from a disk that
            // all of them share. In thousandths.
            let unfit = (u128::from(unfit) * 1000 / u128::from(total)) as u64;
            (1000 + unfit) / share.threads as u64 + unfit / 2
        };
        let all = (1..=threads.max(1)).rev().map(|threads| self.thread_budget(threads, tail_bytes));
        // The first thread needs room for several writes of short records.
        let wide = |share: &ThreadBudget| {
            share.threads == 1 || share.partition_bytes >= 8 * self.write_bytes as u64
        };
        let best = all.filter(wide).min_by_key(cost);
        best.unwrap_or_else(|| self.thread_budget(1, tail_bytes))
    }

    /// Returns the number of partitions for `expected_bytes`.
    pub fn partition_count(&self, threads: usize, expected_bytes: Option<u64>) -> usize {
        let Some(expected) = expected_bytes else { return self.partitions_max };
        let share = self.thread_budget(threads, self.memory_bytes / 4).partition_bytes;
        let target = PARTITION_BYTES_TARGET.min(share / 4).max(1);
        let wanted = usize::try_from(expected.div_ceil(target)).unwrap_or(usize::MAX);
        wanted.clamp((4 * threads).min(self.partitions_max), self.partitions_max)
    }
}

/// Memory of each of several threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadBudget {
    pub(crate) threads: usize,
    /// Bytes for a partition's records and entries, or for the buffers of a merge.
    pub(crate) partition_bytes: u64,
    /// Size of each output block.
    pub(crate) output_block_bytes: usize,
}

impl Options {
    pub(crate) fn sort_limit(&self) -> Option<SortLimit> {
        let Options { limit, stable, unique, memory_bytes, .. } = *self;
        let block_bytes = SortBudget::new(memory_bytes).block_bytes;
        limit.map(|rows| SortLimit { rows: rows.max(1), stable, unique, block_bytes })
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return Err(Error::invalid_option(
                format!("{} bytes of memory are too few for a sort", self.memory_bytes),
                format!("give at least {MEMORY_BYTES_MIN}"),
            ));
        }
        if self.threads == 0 {
            return Err(Error::invalid_option("a sort without threads", "give at least 1"));
        }
        if self.spill_dirs.is_empty() {
            return Err(Error::invalid_option("no folder to spill to", "name at least one"));
        }
        Ok(())
    }
}
