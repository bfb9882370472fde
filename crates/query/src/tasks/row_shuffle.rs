//! The shuffle of result rows to the workers that write the files of an output.
//!
//! ```text
//!   a task's rows                    one scratch file, by writer partition           the output's folder
//!     batch ── by path ───────────────►  │ 0 │ 1 │ … │ 15 │                   │
//!     batch ── by path ───────────────►  │ 0 │ 1 │ … │ 15 │                   ▼
//!   another task's ───────────────────►  …                     1 of all files, in their order ─ write ─ staged files
//!                                                                                                              │
//!   driver: gate · reports · list of files ◄───────────────────────────────────────────────────────────────────┘ commit
//! ```
//!
//! Only names, offsets and the values in each file's name pass through the driver. A task that has few rows
//! sends them to the driver. The driver appends them to the shuffled rows if other tasks have many; otherwise
//! they are the whole result.
//!
//! A *writer partition* is the set of rows that one worker thread writes, chosen by output path. The
//! serialized messages call it a place.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_base::batch_compaction::visible_values_bytes;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::RunProgress;
use tidemill_remote::scratch::{ScratchFile, ScratchFolder, ScratchStorage};
use tidemill_sink::{
    BegunUpload, PathValues, SinkSpec, WorkerOutputFile, WorkerOutputFolder, WorkerOutputSpec,
    WorkerOutputTarget, WriterPartitioner,
};
use tidemill_source::SplitStats;

use super::WorkerCounts;
use super::cluster_job::corrupt_message_error;
use super::distributed_output::DistributedOutput;
use super::ordered_scheduler::OrderedScheduler;
use super::output_tasks::{FileWriteTasks, GroupShuffleTasks};
use super::shuffle_files::{
    GroupReader, ShuffleFile, ShuffleOutput, ShuffleWriter, open_group_range,
};
use super::table_reduction::ReducedRanges;
use super::task_messages::TaskResult;
use super::unordered_scheduler::TaskSource;
use crate::execution::scan::Scan;

/// Number of writer partitions for each thread: some have more to write than others.
const WRITER_PARTITIONS_PER_THREAD: usize = 4;
/// Minimum and maximum number of writer partitions. A writer gets the offsets of its partition in every
/// scratch file, so their number is limited.
const WRITER_PARTITIONS_MIN: usize = 16;
const WRITER_PARTITIONS_MAX: usize = 4096;
/// Maximum bytes of rows that are coalesced before they are partitioned, because each partition of them
/// becomes one section. At most `1 / COALESCE_MEMORY_DIVISOR` of the memory.
const COALESCE_BYTES_MAX: usize = 16 << 20;
const COALESCE_MEMORY_DIVISOR: usize = 16;

/// The description of a row shuffle that workers get: scratch location, number of writer partitions, output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RowShuffleSpec {
    /// The location of the query's scratch files.
    pub url: String,
    /// Number of writer partitions.
    pub places: usize,
    /// Maximum bytes of a task's rows that are sent to the driver; more rows are shuffled.
    pub bytes_max: u64,
    pub output: WorkerOutputSpec,
    /// The folder of staged files; `None` for an output of objects.
    pub folder: Option<WorkerOutputFolder>,
}

/// A task that shuffles the rows of some ranges of finished groups.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShuffleGroupsTask {
    /// The location of each range; `None` for a range without groups.
    pub ranges: Vec<Option<(ScratchFile, Range<u64>)>>,
}

/// The shuffled rows of a range of finished groups.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ShuffledRange {
    /// The scratch file; `None` without rows.
    pub part: Option<ShuffleFile>,
    /// The paths of the objects that the rows belong to, for an output of objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathValues>,
}

/// A task that writes the output files of some writer partitions, one partition at a time.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WriteFilesTask {
    /// Number of writer partitions.
    pub count: usize,
    /// The scratch files in split order. Their runs have the offsets of these partitions only.
    pub parts: Vec<ShuffleFile>,
    /// The uploads begun for the task's objects, one list for each concurrent copy of the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<Vec<BegunUpload>>,
}

/// The files that a task wrote, with their row count.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct WrittenFiles {
    pub rows: u64,
    pub files: Vec<WorkerOutputFile>,
    /// True if an object became too large to be sent back and needs an upload. The task's files are discarded
    /// then.
    #[serde(default)]
    pub is_too_large: bool,
}

/// Writes rows to be shuffled: holds them while they are few, and writes them to a scratch file from then on.
pub(super) struct RowShuffleWriter<'a> {
    shuffle_writer: ShuffleWriter<'a>,
    /// Batches that are partitioned together. `None` if there is one writer partition, for which batches stay
    /// as they are.
    pending_batches: Option<Vec<RecordBatch>>,
    pending_bytes: usize,
    pending_bytes_max: usize,
}

impl<'a> RowShuffleWriter<'a> {
    /// Creates a writer that shuffles rows once they exceed `bytes_max`, within its share of `memory_bytes`.
    pub(super) fn new(
        scratch: &'a ScratchStorage,
        spread: WriterPartitioner,
        (bytes_max, memory_bytes): (u64, usize),
        label: &str,
    ) -> Self {
        let waiting = (spread.writer_count() > 1).then(Vec::new);
        let parted = ShuffleWriter::for_rows(scratch, spread, bytes_max, label);
        let waiting_max = COALESCE_BYTES_MAX.min(memory_bytes / COALESCE_MEMORY_DIVISOR);
        RowShuffleWriter {
            shuffle_writer: parted,
            pending_batches: waiting,
            pending_bytes: 0,
            pending_bytes_max: waiting_max,
        }
    }

    pub(super) fn write(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let Some(waiting) = &mut self.pending_batches else {
            return self.shuffle_writer.write(rows);
        };
        self.pending_bytes += rows.columns().iter().map(visible_values_bytes).sum::<usize>();
        waiting.push(rows);
        if self.pending_bytes >= self.pending_bytes_max { self.flush_pending() } else { Ok(()) }
    }

    fn flush_pending(&mut self) -> Result<()> {
        self.pending_bytes = 0;
        let waiting = self.pending_batches.as_mut().map(std::mem::take).unwrap_or_default();
        let rows = match waiting.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            [first, ..] => concat_batches(first.schema_ref(), &waiting)?,
        };
        self.shuffle_writer.write(rows)
    }

    /// Finishes the shuffle and returns the rows or their scratch file, with the output paths of the rows.
    pub(super) fn finish(mut self) -> Result<(Vec<PathValues>, ShuffleOutput)> {
        self.flush_pending()?;
        Ok((self.shuffle_writer.output_paths(), self.shuffle_writer.finish()?))
    }
}

/// The plan by which workers write a query's rows: shuffle, output and location.
pub(super) struct OutputWritePlan {
    pub scratch_folder: Arc<ScratchFolder>,
    pub shuffle_spec: RowShuffleSpec,
    pub output: DistributedOutput,
    pub sink_spec: SinkSpec,
    /// Credentials for object stores, if they are not those of the source.
    pub secrets: Option<BTreeMap<String, String>>,
    /// Threads of each worker.
    threads_per_worker: usize,
    location: WorkerOutputTarget,
}

impl OutputWritePlan {
    /// Plans the writing of an output by the workers of `worker_counts`. Returns `None` if only this process
    /// can write it, or if workers would not reach its bucket because no `secrets` give access to both the
    /// source and the bucket.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or if the scratch folder that the user names cannot be written to.
    pub(super) fn plan_writes(
        output: &DistributedOutput,
        folder: impl FnOnce() -> Result<Option<Arc<ScratchFolder>>>,
        (reach, bytes_max): (WorkerCounts, u64),
        secrets: Option<BTreeMap<String, String>>,
        cancel: &CancelFlag,
    ) -> Result<Option<OutputWritePlan>> {
        let Some(place) = output.wait_for_location(cancel)? else { return Ok(None) };
        let placed = match &place {
            WorkerOutputTarget::Folder(folder) => Some(folder.clone()),
            WorkerOutputTarget::Bucket(_) if secrets.is_some() => None,
            WorkerOutputTarget::Bucket(_) => return Ok(None),
        };
        let Some(folder) = folder()? else { return Ok(None) };
        let said = output.description().clone();
        let spec = said.clone().into_spec()?;
        let places = (WRITER_PARTITIONS_PER_THREAD * reach.threads)
            .clamp(WRITER_PARTITIONS_MIN, WRITER_PARTITIONS_MAX);
        let threads = (reach.threads / reach.workers.max(1)).max(1);
        let url = folder.url.clone();
        let laying = RowShuffleSpec { url, places, bytes_max, output: said, folder: placed };
        let output = output.clone();
        Ok(Some(OutputWritePlan {
            scratch_folder: folder,
            shuffle_spec: laying,
            output,
            sink_spec: spec,
            secrets,
            threads_per_worker: threads,
            location: place,
        }))
    }

    /// Has workers shuffle the rows of finished groups and write them.
    ///
    /// # Errors
    /// The first error of a worker.
    pub(super) fn shuffle_and_write_groups(
        &self,
        dealer: &OrderedScheduler,
        ranged: ReducedRanges,
        schema: &SchemaRef,
        cancel: &CancelFlag,
    ) -> Result<()> {
        // The task numbers follow those of the tasks that merged the ranges.
        let behind = ranged.task_count;
        let ranges = ranged.into_scratch_ranges()?;
        let done = ranges.iter().map(|_| None).collect();
        let (threads, progress) = (self.threads_per_worker, dealer.progress());
        let mut laying =
            GroupShuffleTasks { ranges, ranges_per_task: threads, progress, results: done };
        dealer.unordered_scheduler(behind).run_tasks(&mut laying)?;
        let behind = behind + laying.task_count();
        let (mut parts, mut paths) = (Vec::new(), HashSet::new());
        for laid in laying.results {
            let laid = laid.ok_or_else(|| corrupt_message_error("some ranges are missing"))?;
            parts.extend(laid.part);
            paths.extend(laid.paths);
        }
        self.write_shuffled_rows((dealer, behind), parts, paths, schema, cancel)
    }

    /// Has workers write the shuffled rows, by tasks that are numbered behind `behind` others.
    ///
    /// # Errors
    /// The first error of a worker.
    pub(super) fn write_shuffled_rows(
        &self,
        (dealer, behind): (&OrderedScheduler, usize),
        parts: Vec<ShuffleFile>,
        paths: HashSet<PathValues>,
        schema: &SchemaRef,
        cancel: &CancelFlag,
    ) -> Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let objects = match &self.location {
            WorkerOutputTarget::Folder(_) => None,
            WorkerOutputTarget::Bucket(bucket) => {
                let mut paths: Vec<PathValues> = paths.into_iter().collect();
                paths.sort_unstable();
                let spread =
                    WriterPartitioner::new(&self.sink_spec, schema, self.shuffle_spec.places)?;
                // This check comes before any upload is begun.
                spread.check_path_count(paths.len())?;
                let of_writer = |(values, key)| (spread.writer_index(&values), values, key);
                Some((bucket, bucket.object_keys(&paths)?.into_iter().map(of_writer).collect()))
            }
        };
        let mut writing = FileWriteTasks {
            shuffle_files: &parts,
            objects,
            partitions_per_task: self.threads_per_worker,
            progress: dealer.progress(),
            cancel,
            retried_partitions: Vec::new(),
            results: WrittenFiles::default(),
            finished_task_count: 0,
        };
        dealer.progress().set_write_task_counts(0, writing.task_count() as u64);
        dealer.unordered_scheduler(behind).run_tasks(&mut writing)?;
        let WrittenFiles { rows, files, .. } = writing.results;
        self.output.set_written_files(rows, files);
        Ok(())
    }

    /// Returns true if an error says that workers do not see the output's folder; warns the user then.
    pub(super) fn is_folder_unseen_by_workers(&self, error: &Error) -> bool {
        let Some(folder) = &self.shuffle_spec.folder else { return false };
        let lock = folder.lock.to_string_lossy();
        let text = error.to_string();
        let is_it = text.contains(lock.as_ref());
        if is_it {
            let first = text.lines().next().unwrap_or_default();
            let (_, of) = first.split_once("` is not on ").unwrap_or(("", "a worker's machine"));
            let machine = of.split(',').next().unwrap_or(of);
            self.output.set_warning(format!(
                "the output's folder is not on {machine}: its files are written by this process, which all rows pass"
            ));
        }
        is_it
    }
}

/// An iterator over the rows that workers did not write, because they are few. All other rows are in files
/// when it ends.
pub(crate) struct ShuffledRows {
    /// The unfinished run. `None` after the first call, which drops the scheduler and so ends the remaining
    /// tasks.
    shuffle_run: Option<RowShuffleRun>,
    few_rows: VecDeque<RecordBatch>,
}

struct RowShuffleRun {
    dealer: OrderedScheduler,
    scan: Arc<Scan>,
    progress: RunProgress,
    cancel: CancelFlag,
    memory_bytes: usize,
    write_plan: OutputWritePlan,
    schema: SchemaRef,
    /// Rows sent to the driver, behind all shuffle files.
    held_batches: Vec<RecordBatch>,
    held_bytes: u64,
    shuffle_files: Vec<ShuffleFile>,
    /// Paths of the objects that the rows belong to, for an output of objects.
    object_paths: HashSet<PathValues>,
}

impl ShuffledRows {
    pub(super) fn new(
        dealer: OrderedScheduler,
        scan: Arc<Scan>,
        plans: OutputWritePlan,
        schema: SchemaRef,
        (cancel, memory_bytes): (&CancelFlag, usize),
    ) -> Self {
        let progress = dealer.progress().clone();
        let reading = RowShuffleRun {
            dealer,
            scan,
            progress,
            cancel: cancel.clone(),
            memory_bytes,
            write_plan: plans,
            schema,
            held_batches: Vec::new(),
            held_bytes: 0,
            shuffle_files: Vec::new(),
            object_paths: HashSet::new(),
        };
        ShuffledRows { shuffle_run: Some(reading), few_rows: VecDeque::new() }
    }
}

impl Iterator for ShuffledRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(reading) = self.shuffle_run.take() {
            match reading.run_to_end() {
                Ok(few) => self.few_rows = few.into(),
                Err(error) => return Some(Err(error)),
            }
        }
        self.few_rows.pop_front().map(Ok)
    }
}

impl RowShuffleRun {
    /// Reads all rows. Has workers write them if they are many, and otherwise returns them.
    fn run_to_end(mut self) -> Result<Vec<RecordBatch>> {
        while let Some((places, part)) = self.dealer.next_result()? {
            self.take_result(&places, part)?;
        }
        if self.shuffle_files.is_empty() {
            return Ok(self.held_batches);
        }
        self.shuffle_held_batches()?;
        let RowShuffleRun {
            dealer,
            cancel,
            write_plan: plans,
            schema,
            shuffle_files: parts,
            object_paths: paths,
            ..
        } = self;
        plans.write_shuffled_rows((&dealer, 0), parts, paths, &schema, &cancel)?;
        Ok(Vec::new())
    }

    fn take_result(&mut self, places: &Range<usize>, mut part: TaskResult) -> Result<()> {
        if part.split_reports.len() != places.len() {
            return Err(OrderedScheduler::mismatched_splits_error());
        }
        for read in part.split_reports.drain(..) {
            let split = self.scan.splits().get(places.start + read.place);
            let split = split.ok_or_else(OrderedScheduler::mismatched_splits_error)?;
            let stats = SplitStats::from_description(read.stats, split)?;
            self.progress.add_bytes(split.bytes);
            self.progress.add_rows(stats.rows);
            self.progress.map_counters().add_rows(read.mapped_rows);
            self.scan.count_split(stats)?;
        }
        if let Some(parted) = part.take_shuffle_file()? {
            self.shuffle_held_batches()?;
            self.shuffle_files.push(parted);
            self.object_paths.extend(part.take_object_paths()?);
            return Ok(());
        }
        while let Some((_, batch)) = part.next_batch()? {
            self.held_bytes +=
                batch.columns().iter().map(visible_values_bytes).sum::<usize>() as u64;
            self.held_batches.push(batch);
        }
        if self.held_bytes > self.write_plan.shuffle_spec.bytes_max {
            self.shuffle_held_batches()
        } else {
            Ok(())
        }
    }

    /// Shuffles the rows that this process holds.
    fn shuffle_held_batches(&mut self) -> Result<()> {
        if self.held_batches.is_empty() {
            return Ok(());
        }
        let OutputWritePlan {
            scratch_folder: folder, shuffle_spec: laying, sink_spec: spec, ..
        } = &self.write_plan;
        let spread = WriterPartitioner::new(spec, &self.schema, laying.places)?;
        let mut own = RowShuffleWriter::new(&folder.storage, spread, (0, self.memory_bytes), "own");
        self.held_bytes = 0;
        self.held_batches.drain(..).try_for_each(|batch| own.write(batch))?;
        let (paths, written) = own.finish()?;
        if let ShuffleOutput::File(parted) = written {
            self.shuffle_files.push(parted);
            self.object_paths.extend(paths);
        }
        Ok(())
    }
}

/// Calls `each` with the batches of one writer partition, in order.
pub(super) fn for_each_batch_of_writer_partition(
    scratch: &ScratchStorage,
    parts: &[ShuffleFile],
    place: usize,
    each: &mut dyn FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    for part in parts {
        for run in &part.runs {
            let ends = run.get(place).zip(run.get(place + 1));
            let (start, end) =
                ends.ok_or_else(|| corrupt_message_error("a run without this place"))?;
            if start >= end {
                continue;
            }
            let mut own: GroupReader<_> = open_group_range(scratch, &part.file, *start..*end)?;
            while let Some(rows) = own.next_batch()? {
                each(&rows)?;
            }
        }
    }
    Ok(())
}
