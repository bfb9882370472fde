//! Rows that workers lay down for other workers, who write the files of an output.
//!
//! ```text
//!   a task's rows                    one scratch file, by who is to write them       the output's folder
//!     batch ── apart by path ─────────►  │ 0 │ 1 │ … │ 15 │                   │
//!     batch ── apart by path ─────────►  │ 0 │ 1 │ … │ 15 │                   ▼
//!   another task's ───────────────────►  …                     1 of all files, in their order ─ write ─ files without a name
//!                                                                                                              │
//!   driver: gate · read · which files there are ◄──────────────────────────────────────────────────────────────┘ commit
//! ```
//!
//! What passes the driver are names, offsets, and the values in each file's name. Rows that are few come to it as ever: they
//! are put behind those before them if there are many after all, and else they are all that there is.

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
use crate::scan::Scan;

/// So many places are there for each thread: some have more to write than others.
const WRITER_PARTITIONS_PER_THREAD: usize = 4;
/// And so many at least, and at most: each is told where all scratch files have what is its own.
const WRITER_PARTITIONS_MIN: usize = 16;
const WRITER_PARTITIONS_MAX: usize = 4096;
/// Rows are put apart so many bytes at a time, or a sixteenth of the memory: what a place has of each is a section.
const COALESCE_BYTES_MAX: usize = 16 << 20;
const COALESCE_MEMORY_DIVISOR: usize = 16;

/// How rows are laid down, and who writes what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RowShuffleSpec {
    /// The place of the query's scratch files.
    pub url: String,
    /// Among so many writers rows are put apart.
    pub places: usize,
    /// Rows of more bytes are laid down.
    pub bytes_max: u64,
    pub output: WorkerOutputSpec,
    /// Where files are before they appear; none of objects.
    pub folder: Option<WorkerOutputFolder>,
}

/// Ranges of finished groups, of which one worker is to lay the rows down.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShuffleGroupsTask {
    /// Where each lies; none of one without groups.
    pub ranges: Vec<Option<(ScratchFile, Range<u64>)>>,
}

/// Where rows of a range were laid down.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ShuffledRange {
    /// None without rows.
    pub part: Option<ShuffleFile>,
    /// The objects that these are for, if they are for objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathValues>,
}

/// Some places that one worker is to write, each by itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WriteFilesTask {
    /// How many places.
    pub count: usize,
    /// What was laid down, in the order of the splits; its runs have these places alone.
    pub parts: Vec<ShuffleFile>,
    /// For each time that the task is done at once, the uploads that were begun for its objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<Vec<BegunUpload>>,
}

/// What was written.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct WrittenFiles {
    pub rows: u64,
    pub files: Vec<WorkerOutputFile>,
    /// Whether an object has become so large that an upload has to be begun for it: nothing counts then.
    #[serde(default)]
    pub is_too_large: bool,
}

/// Rows on their way: kept while they are few, and laid down from then on.
pub(super) struct RowShuffleWriter<'a> {
    shuffle_writer: ShuffleWriter<'a>,
    /// Rows that are put apart together; where there is one place, batches stay as they are.
    pending_batches: Option<Vec<RecordBatch>>,
    pending_bytes: usize,
    pending_bytes_max: usize,
}

impl<'a> RowShuffleWriter<'a> {
    /// Lays down rows of more than `bytes_max`, within its share of so much memory.
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

    /// Ends it, with the paths that it has met.
    pub(super) fn finish(mut self) -> Result<(Vec<PathValues>, ShuffleOutput)> {
        self.flush_pending()?;
        Ok((self.shuffle_writer.output_paths(), self.shuffle_writer.finish()?))
    }
}

/// How a query's rows are laid down for workers who write them, if they are to be.
pub(super) struct OutputWritePlan {
    pub scratch_folder: Arc<ScratchFolder>,
    pub shuffle_spec: RowShuffleSpec,
    pub output: DistributedOutput,
    pub sink_spec: SinkSpec,
    /// How stores are reached, if that is not as the source says.
    pub secrets: Option<BTreeMap<String, String>>,
    /// Threads of a worker.
    threads_per_worker: usize,
    location: WorkerOutputTarget,
}

impl OutputWritePlan {
    /// Where an output is, which so many may write; none where they would not reach its bucket, as there are no `secrets`
    /// by which they reach the source as well.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and where the scratch folder that the user names cannot be written to.
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

    /// Has workers lay down the rows of finished groups, and write them.
    ///
    /// # Errors
    /// The first that a worker meets.
    pub(super) fn shuffle_and_write_groups(
        &self,
        dealer: &OrderedScheduler,
        ranged: ReducedRanges,
        schema: &SchemaRef,
        cancel: &CancelFlag,
    ) -> Result<()> {
        // Behind what merged the ranges.
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

    /// Has workers write what was laid down, by tasks that stand behind so many others.
    ///
    /// # Errors
    /// The first that a worker meets.
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
                // Before anything is begun for them.
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

    /// Notes that workers do not see the output's folder, if that is what an error says.
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

/// An iterator of batches: of those rows that are few, or that nobody else writes. All others are in files when it ends.
pub(crate) struct ShuffledRows {
    /// None at the end, when what is in work is nobody's any more.
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
    /// Rows that came, behind all parts that there are.
    held_batches: Vec<RecordBatch>,
    held_bytes: u64,
    shuffle_files: Vec<ShuffleFile>,
    /// Of objects, the paths that were met.
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
    /// Has all rows read, and written if they are many.
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

    /// Lays down what came to this process.
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

/// The rows that were laid down for one place, in their order.
pub(super) fn for_each_batch_of_partition(
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
