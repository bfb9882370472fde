//! The reduction of large tables: workers merge range by range the tables that they have partitioned by key
//! hash.

use std::io::Cursor;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::TableReference;
use tidemill_base::coverage::format_grouped_digits;
use tidemill_base::error::Result;
use tidemill_base::progress::RunProgress;
use tidemill_remote::scratch::{self, ScratchFile, ScratchFolder, ScratchStorage};
use tidemill_tables::SketchPrecision;
use tidemill_tables::merging::hash_ranges::KeyHashRanges;
use tidemill_tables::merging::merge::{AnswerBatches, MergedTable, SORTED_ANSWER_GROUPS_MAX};

use super::cluster_job::corrupt_message_error;
use super::ordered_scheduler::OrderedScheduler;
use super::shuffle_files::{
    GroupReader, ReduceTask, ReducedRange, ShuffleFile, ShuffleOutput, ShuffleWriter,
    TableShuffleSpec, open_group_range,
};
use super::task_messages::TaskResult;
use super::unordered_scheduler::{EncodedTask, TaskSource, TaskStats};
use super::{WorkerCounts, cluster_unsupported_error};
use crate::plan::QueryPlan;
use crate::planning::execution_path::AggregationPlan;

/// A byte range of a scratch file.
type ScratchRange = (ScratchFile, Range<u64>);

/// Default maximum size of a table that is sent to the driver. A larger one is partitioned into a scratch
/// file.
const INLINE_TABLE_BYTES_MAX: u64 = 4 << 20;
/// Number of hash ranges for each thread: ranges differ in size, and some take longer to merge.
const HASH_RANGES_PER_THREAD: usize = 4;
/// Minimum number of hash ranges: a thread merges one range at a time, within its share of a worker's memory.
const HASH_RANGES_MIN: usize = 64;

/// The reduction of a query's large tables: their scratch files and the ranges to merge.
pub(super) struct TableReduction {
    scratch_folder: Arc<ScratchFolder>,
    shuffle_spec: TableShuffleSpec,
    hash_ranges: KeyHashRanges,
    key_count: usize,
    /// Threads of each worker.
    threads_per_worker: usize,
    /// The partitioned tables, in split order.
    shuffle_files: Vec<ShuffleFile>,
    /// Maximum bytes of a range that a worker sends to the driver instead of writing a file.
    inline_range_bytes_max: u64,
}

impl TableReduction {
    /// Creates the scratch folder for large tables. Returns `None` if no folder is visible to all workers, or
    /// if the query has no keys and so only one group.
    ///
    /// # Errors
    /// Fails if the folder cannot be written to.
    pub(super) fn create(
        plan: &QueryPlan,
        parts: &AggregationPlan,
        reach: WorkerCounts,
    ) -> Result<Option<TableReduction>> {
        let key_count = parts.spec.keys.len();
        if key_count == 0 {
            return Ok(None);
        }
        let Some(folder) = create_scratch_folder(plan, &parts.stream, reach)? else {
            return Ok(None);
        };
        let ranges = KeyHashRanges::with_count_at_least(
            (HASH_RANGES_PER_THREAD * reach.threads).max(HASH_RANGES_MIN),
        );
        let bytes_max = inline_bytes_max(plan);
        let parting = TableShuffleSpec { url: folder.url.clone(), bits: ranges.bits(), bytes_max };
        let threads = (reach.threads / reach.workers.max(1)).max(1);
        // The limit keeps the total of all ranges that pass the driver small.
        let sent_bytes_max =
            (plan.settings.memory_share_bytes(1, 8) as u64).min(bytes_max.saturating_mul(4));
        let sent_bytes_max = sent_bytes_max / ranges.count() as u64;
        let parts = Vec::new();
        let folder = Arc::new(folder);
        let all = TableReduction {
            scratch_folder: folder,
            shuffle_spec: parting,
            hash_ranges: ranges,
            key_count,
            threads_per_worker: threads,
            shuffle_files: parts,
            inline_range_bytes_max: sent_bytes_max,
        };
        Ok(Some(all))
    }

    /// Returns the description of the shuffle that workers get.
    pub(super) fn shuffle_spec(&self) -> TableShuffleSpec {
        self.shuffle_spec.clone()
    }

    /// Returns the scratch folder.
    pub(super) fn scratch_folder(&self) -> Arc<ScratchFolder> {
        Arc::clone(&self.scratch_folder)
    }

    /// Returns the path of the lock file, which all machines must see.
    pub(super) fn lock_path(&self) -> Option<PathBuf> {
        self.scratch_folder.lock_path.clone()
    }

    /// Returns true if no table was large.
    pub(super) fn is_empty(&self) -> bool {
        self.shuffle_files.is_empty()
    }

    /// Adds the next large table.
    pub(super) fn add_shuffle_file(&mut self, parted: ShuffleFile) {
        self.shuffle_files.push(parted);
    }

    /// Adds the driver's own table behind the tables so far.
    pub(super) fn add_driver_table(&mut self, mut merged: MergedTable) -> Result<()> {
        let mut own = ShuffleWriter::for_groups(
            &self.scratch_folder.storage,
            self.hash_ranges,
            self.key_count,
            0,
            "own",
        );
        while let Some(groups) = merged.next_encoded_groups()? {
            own.write(groups)?;
        }
        if let ShuffleOutput::File(parted) = own.finish()? {
            self.shuffle_files.push(parted);
        }
        Ok(())
    }

    /// Has workers merge all ranges.
    ///
    /// # Errors
    /// The first error of a worker.
    pub(super) fn run_reduce_tasks(self, dealer: &OrderedScheduler) -> Result<ReducedRanges> {
        let count = self.hash_ranges.count();
        let done = (0..count).map(|_| None).collect();
        let mut merging =
            ReduceTasks { reduction: &self, progress: dealer.progress(), results: done };
        dealer.unordered_scheduler(0).run_tasks(&mut merging)?;
        let tasks = merging.task_count();
        let done: Option<Vec<_>> = merging.results.into_iter().collect();
        let done = done.ok_or_else(|| corrupt_message_error("some ranges are missing"))?;
        Ok(ReducedRanges { scratch_folder: self.scratch_folder, ranges: done, task_count: tasks })
    }
}

/// Finished groups, in hash ranges.
pub(super) struct ReducedRanges {
    scratch_folder: Arc<ScratchFolder>,
    ranges: Vec<(ReducedRange, Vec<u8>)>,
    /// Number of tasks that merged them.
    pub task_count: usize,
}

impl ReducedRanges {
    /// Returns the number of groups.
    pub(super) fn group_count(&self) -> u64 {
        self.ranges.iter().map(|(reduced, _)| reduced.groups).sum()
    }

    /// Returns the precision of each aggregate over all ranges.
    pub(super) fn precisions(&self) -> Vec<Option<SketchPrecision>> {
        let mut precisions: Vec<Option<SketchPrecision>> = Vec::new();
        for (reduced, _) in &self.ranges {
            precisions.resize(precisions.len().max(reduced.precisions.len()), None);
            for (all, one) in precisions.iter_mut().zip(&reduced.precisions) {
                let one = one.map(SketchPrecision::from);
                *all = one.map(|one| all.map_or(one, |all| all.combine(one))).or(*all);
            }
        }
        precisions
    }

    /// Returns the answers in hash order.
    pub(super) fn into_answers(self) -> AnswerBatches {
        // The iterator keeps the scratch files alive.
        let folder = self.scratch_folder;
        let answers = self.ranges.into_iter().flat_map(move |(reduced, here)| {
            let folder = Arc::clone(&folder);
            range_answers(folder, reduced.file, here)
        });
        Box::new(answers)
    }

    /// Returns the location of each range in scratch files that all workers read, or `None` for a range
    /// without groups. Writes the ranges in this process's memory to a file first.
    ///
    /// # Errors
    /// Fails if the scratch storage has no room for them.
    pub(super) fn into_scratch_ranges(self) -> Result<Vec<Option<ScratchRange>>> {
        let mut own = self.scratch_folder.storage.create_file("ranges")?;
        let mut places = Vec::with_capacity(self.ranges.len());
        for (reduced, here) in self.ranges {
            let start = own.written_bytes();
            own.write(&here)?;
            places.push((reduced.file, start..own.written_bytes()));
        }
        let own = own.finish()?;
        let place = |(file, here): (Option<ScratchFile>, Range<u64>)| match file {
            Some(file) => {
                let all = 0..file.size_bytes();
                Some((file, all))
            }
            None => (here.start < here.end).then(|| (own.clone(), here)),
        };
        Ok(places.into_iter().map(place).collect())
    }
}

/// The tasks that merge hash ranges, and their results.
struct ReduceTasks<'a> {
    reduction: &'a TableReduction,
    progress: &'a RunProgress,
    /// The result for each range.
    results: Vec<Option<(ReducedRange, Vec<u8>)>>,
}

impl ReduceTasks<'_> {
    /// Returns the ranges of a task: one for each thread of a worker.
    fn task_ranges(&self, number: usize) -> Range<usize> {
        let (first, threads) =
            (number * self.reduction.threads_per_worker, self.reduction.threads_per_worker);
        first..self.results.len().min(first + threads)
    }
}

impl TaskSource for ReduceTasks<'_> {
    fn task_count(&self) -> usize {
        self.results.len().div_ceil(self.reduction.threads_per_worker)
    }

    fn encode_task(&mut self, number: usize) -> Result<EncodedTask> {
        let ranges = self.task_ranges(number);
        let parts = self
            .reduction
            .shuffle_files
            .iter()
            .filter_map(|part| part.select_partitions(&ranges))
            .collect();
        let bytes = self
            .reduction
            .shuffle_files
            .iter()
            .map(|part| part.partition_byte_count(&ranges))
            .sum();
        let reduce = ReduceTask {
            count: ranges.len(),
            parts,
            bytes_max: self.reduction.inline_range_bytes_max,
        };
        let name = format!("merge {} of {}", number + 1, self.task_count());
        Ok(EncodedTask { cost_bytes: bytes, display_name: name, encoded_task: reduce.encode()? })
    }

    fn accept_result(&mut self, number: usize, content: Vec<u8>) -> Result<TaskStats> {
        let part = TaskResult::decode(content)?;
        let reduced = part.reduced_ranges()?;
        let ranges = self.task_ranges(number);
        let slots = self.results.get_mut(ranges).unwrap_or_default();
        if reduced.len() != slots.len() {
            return Err(corrupt_message_error("some ranges are missing"));
        }
        slots.iter_mut().zip(reduced).for_each(|(slot, own)| *slot = Some(own));
        self.progress.table_counters().add_worker_cpu(part.time.cpu);
        Ok(TaskStats { time: part.time, input_bytes: 0 })
    }

    fn work_description(&self, number: usize) -> String {
        format!("the same groups, task {} of {} that merge them", number + 1, self.task_count())
    }
}

/// Returns the answers of a range.
fn range_answers(
    folder: Arc<ScratchFolder>,
    file: Option<ScratchFile>,
    here: Vec<u8>,
) -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send> {
    match file {
        None => {
            let mut own = GroupReader::new(Cursor::new(here));
            Box::new(std::iter::from_fn(move || own.next_batch().transpose()))
        }
        Some(file) => {
            let opened = open_groups(&folder.storage, &file);
            let mut own = match opened {
                Ok(own) => own,
                Err(error) => return Box::new(std::iter::once(Err(error))),
            };
            Box::new(std::iter::from_fn(move || {
                let _is_there = &folder;
                own.next_batch().transpose()
            }))
        }
    }
}

fn open_groups(
    scratch: &ScratchStorage,
    file: &ScratchFile,
) -> Result<GroupReader<impl std::io::Read + Send + use<>>> {
    open_group_range(scratch, file, 0..file.size_bytes())
}

/// Returns the maximum size of a table or of rows that are sent to the driver; larger ones go through a file.
pub(super) fn inline_bytes_max(plan: &QueryPlan) -> u64 {
    plan.query.scratch.inline_bytes_max.unwrap_or(INLINE_TABLE_BYTES_MAX)
}

/// Creates a scratch folder for a query over a source, or returns `None` if no folder is visible to all
/// workers.
///
/// # Errors
/// Fails if the folder that the user names cannot be written to.
pub(super) fn create_scratch_folder(
    plan: &QueryPlan,
    stream: &TableReference,
    reach: WorkerCounts,
) -> Result<Option<ScratchFolder>> {
    let Some(url) = scratch_url(plan, reach) else { return Ok(None) };
    let table = plan.source_table(stream.table());
    let source = table.as_ref().and_then(|table| table.source());
    let storage = source.map(|source| source.spec().storage_options.clone());
    match ScratchFolder::create(&url, &storage.unwrap_or_default(), &plan.settings.cancel) {
        Ok(folder) => Ok(Some(folder)),
        // The user has not named the folder, so all tables pass through the driver, as without a folder.
        Err(_) if plan.query.scratch.url.is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the location for large tables: the one that the user names, otherwise the first spill folder if
/// all workers run on this machine.
pub(super) fn scratch_url(plan: &QueryPlan, reach: WorkerCounts) -> Option<String> {
    let own = || {
        let folder = plan.settings.spill_dirs.first().filter(|_| reach.is_here)?;
        Some(folder.to_string_lossy().into_owned())
    };
    plan.query.scratch.url.clone().or_else(own)
}

/// Checks the scratch location that the user names.
///
/// # Errors
/// [`Error::Usage`](tidemill_base::error::Error::Usage).
pub(super) fn check_scratch_url(plan: &QueryPlan) -> Result<()> {
    let Some(url) = &plan.query.scratch.url else { return Ok(()) };
    if url.trim().is_empty() {
        return Err(cluster_unsupported_error("the place for scratch files is empty"));
    }
    // This check also applies if no table turns out to be large.
    Ok(scratch::check_scratch_url(url)?)
}

/// Describes the way of large tables for an explanation, or returns `None` if all tables are sent to the
/// driver.
pub(super) fn explain_reduction(
    plan: &QueryPlan,
    parts: &AggregationPlan,
    reach: WorkerCounts,
) -> Option<String> {
    let url = scratch_url(plan, reach).filter(|_| !parts.spec.keys.is_empty())?;
    let bytes_max = inline_bytes_max(plan);
    let written =
        plan.query.output.is_some() && parts.finishes_each_group_alone(&plan.logical_plan);
    Some(format!(
        "those of more than {} by files in `{}`, merged by workers, {} ranges of hashes{}",
        tidemill_base::coverage::format_decimal_bytes(bytes_max),
        tidemill_base::redaction::redact_url(&url),
        KeyHashRanges::with_count_at_least(
            (HASH_RANGES_PER_THREAD * reach.threads).max(HASH_RANGES_MIN)
        )
        .count(),
        match written {
            true => format!(
                "; of more than {} groups workers write the output's files, which the driver commits",
                format_grouped_digits(SORTED_ANSWER_GROUPS_MAX as u64)
            ),
            false => String::new(),
        }
    ))
}
