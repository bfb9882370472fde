//! The worker's side of a distributed query: plans the job once and executes tasks.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tidemill_base::RunSettings;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::format_decimal_bytes;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::large_stack::{PLAN_STACK_BYTES, run_on_large_stack};
use tidemill_base::memory_account::MemoryAccount;
use tidemill_base::progress::process_cpu_seconds;
use tidemill_dialect::statement::parse_select;
use tidemill_remote::scratch::{ScratchFile, ScratchStorage};
use tidemill_remote::{PrefetchBudget, StorageOptions};
use tidemill_sink::{
    BegunUpload, OpenOutputTarget, SinkResources, SinkSpec, WorkerOutputFile, WorkerOutputWriter,
    WriterPartitioner,
};
use tidemill_source::programs::companion_files::ProgramFiles;
use tidemill_source::{RejectLog, SourceReopener};
use tidemill_tables::merging::hash_ranges::KeyHashRanges;
use tidemill_tables::merging::merge::{ChunkMerger, run_on_threads};
use tidemill_tables::merging::partial_tables::PartialTableHeader;
use tidemill_tables::{AggregateTable, StateUpdateSwitch, TableSpec};

use super::TaskTime;
use super::cluster_job::{ClusterJob, SampledReadOptions, TaskResultKind, corrupt_message_error};
use super::row_shuffle::{
    RowShuffleSpec, RowShuffleWriter, ShuffleGroupsTask, ShuffledRange, WriteFilesTask,
    WrittenFiles, for_each_batch_of_writer_partition,
};
use super::shuffle_files::{
    GroupSpool, ReduceTask, ReducedRange, ShuffleFile, ShuffleOutput, ShuffleWriter,
    TableShuffleSpec, open_group_range,
};
use super::task_messages::{
    ReadTask, RowsOrigin, SplitReport, TaskResultWriter, UnreadSplits, WorkerTask, encode_failure,
};
use crate::execution::map::SplitMap;
use crate::execution::ordered_rows::OrderedRows;
use crate::execution::result_columns::conform_batch_to_schema;
use crate::execution::scan::{ReadCounts, RunState, Scan, SourceTable};
use crate::execution::table_runner::{self, TableRun};
use crate::plan::{HeaderPlanner, QueryPlan};
use crate::planning::execution_path::{AggregationPlan, ExecutionPath};
use crate::turbo::TurboSettings;
use crate::turbo::local_runner::{self, GuessedStarts, NoInspection, SampledTables, StopCondition};
use crate::turbo::unordered_rows::{UnorderedRows, UnorderedRowsContext};

/// Executes the tasks of one job in a worker process. Plans the job once for all of its tasks.
pub struct TaskExecutor {
    plan: QueryPlan,
    result_kind: TaskResultKind,
    /// The keys and aggregates of a table; `None` if results are rows.
    table_spec: Option<Arc<TableSpec>>,
    /// Options for sampled splits and the counters of guessed starts; `None` if splits are consecutive.
    sampled_read: Option<(SampledReadOptions, Arc<GuessedStarts>)>,
    split_table: Arc<SourceTable>,
    reopener: SourceReopener,
    /// The scratch storage for large tables, and how they are partitioned.
    table_shuffle: Option<(ScratchStorage, TableShuffleSpec)>,
    /// The scratch storage for rows, and the output that is written from it.
    row_shuffle: Option<RowShuffleContext>,
    /// The map of the last task. The lock lets one task run at a time, which uses all threads.
    cached_map: Mutex<CachedMap>,
}

/// Maximum number of writer partitions that are written at a time, because each takes an eighth of the
/// memory.
const CONCURRENT_WRITERS_MAX: usize = 4;

/// The resources of a row shuffle: scratch storage, output and location.
struct RowShuffleContext {
    scratch: ScratchStorage,
    shuffle_spec: RowShuffleSpec,
    sink_spec: SinkSpec,
    location: OpenOutputTarget,
    output_schema: SchemaRef,
}

/// The map over the splits of the last task, from which the next task's map is derived.
type CachedMap = Option<(SplitMap, Arc<Scan>)>;

impl TaskExecutor {
    /// Plans a job. `storage` gives access to remote sources, beyond the options from the environment.
    /// `files` are the names and local paths of the files that came with the job.
    ///
    /// # Errors
    /// Fails if the job is of another release, or if its plan differs here.
    pub fn new(
        job: &[u8],
        settings: &RunSettings,
        storage: &StorageOptions,
        files: &[(String, PathBuf)],
    ) -> Result<Self> {
        run_on_large_stack(PLAN_STACK_BYTES, || Self::plan_job(job, settings, storage, files))
    }

    fn plan_job(
        job: &[u8],
        settings: &RunSettings,
        storage: &StorageOptions,
        files: &[(String, PathBuf)],
    ) -> Result<Self> {
        let ClusterJob {
            header: said,
            source_schemas: schemas,
            build_sides: sides,
            output_schema: output,
        } = ClusterJob::decode(job)?;
        let parent = settings.spill_dirs.first().cloned().unwrap_or_else(std::env::temp_dir);
        let files = ProgramFiles::from_local_files(files, &parent)?;
        let reopener = SourceReopener::new(said.source, storage, files, &settings.cancel)?;
        let nothing = Arc::new(reopener.open_files(&[])?);
        let mut sources = said.names.into_iter().zip(schemas);
        let (source, schema) =
            sources.next().ok_or_else(|| corrupt_message_error("it has no source"))?;
        let header = PartialTableHeader {
            sql: said.sql,
            source_name: source,
            source_schema: schema,
            joined_sources: sources.collect(),
            table_description: Vec::new(),
            runs: Vec::new(),
        };
        let run = RunState {
            cancel: settings.cancel.clone(),
            progress: settings.progress.clone(),
            rejects: Arc::new(RejectLog::with_deferred_counting()),
            prefetch_budget: PrefetchBudget::with_prefetch_bytes(
                settings.memory_bytes / 16,
                storage.read_memory_bytes(),
            ),
            cores: None,
        };
        let mut is_there = false;
        let over = HeaderPlanner {
            header: &header,
            settings,
            rejects: Arc::clone(&run.rejects),
            uses_legacy_distinct_counts: false,
            now_ns: Some(said.planned_ns),
        };
        let statement = parse_select(&header.sql)?;
        let sample = said.sample.map(Into::into);
        let plan = over.plan_statement(statement, |name, schema| {
            let planned_over = SourceTable::without_files(Arc::clone(schema), run.clone());
            if is_there || name != header.source_name {
                return planned_over;
            }
            is_there = true;
            SourceTable::new(
                Arc::clone(&nothing),
                run.clone(),
                sample,
                planned_over.hidden_columns(),
            )
        })?;
        let (own_sides, spec) = match (&plan.execution_path, &said.asked) {
            (ExecutionPath::Tables(parts), TaskResultKind::Tables(asked)) => {
                let spec = match said.drawn.and_then(|drawn| drawn.cells) {
                    Some(splits) => plan.table_spec_with_cells(parts, splits)?,
                    None => Arc::clone(&parts.spec),
                };
                let found = spec.describe_keys_and_states();
                if &found != asked {
                    return Err(corrupt_message_error(&format!(
                        "its tables are `{}`, and here they are `{}`",
                        asked.join("; "),
                        found.join("; ")
                    )));
                }
                (&parts.build_sides, Some(spec))
            }
            (ExecutionPath::Rows { build_sides: sides, .. }, TaskResultKind::Rows { .. }) => {
                (sides, None)
            }
            _ => return Err(corrupt_message_error("it goes another way here")),
        };
        if own_sides.len() != sides.len() {
            return Err(corrupt_message_error("what is joined is not what is joined here"));
        }
        for (side, batches) in own_sides.iter().zip(sides) {
            side.rows.set_batches(batches);
        }
        let stream = plan
            .source_table(&header.source_name)
            .ok_or_else(|| Error::Internal("a job without its source".into()))?;
        let open = |parting: TableShuffleSpec| -> Result<_> {
            Ok((ScratchStorage::open(&parting.url, storage, &settings.cancel)?, parting))
        };
        let scratch = said.parting.map(open).transpose()?;
        let laid = |(laying, schema): (RowShuffleSpec, SchemaRef)| -> Result<_> {
            let cancel = &settings.cancel;
            let scratch = ScratchStorage::open(&laying.url, storage, cancel)?;
            let spec = laying.output.clone().into_spec()?;
            let place = OpenOutputTarget::open(&spec, laying.folder.as_ref(), storage, cancel)?;
            Ok(RowShuffleContext {
                scratch,
                shuffle_spec: laying,
                sink_spec: spec,
                location: place,
                output_schema: schema,
            })
        };
        let laying = said.laying.zip(output).map(laid).transpose()?;
        let in_work = Mutex::new(None);
        let drawn = said.drawn.map(|drawn| (drawn, Arc::default()));
        let asked = said.asked;
        Ok(TaskExecutor {
            split_table: stream,
            reopener,
            result_kind: asked,
            table_spec: spec,
            sampled_read: drawn,
            plan,
            table_shuffle: scratch,
            row_shuffle: laying,
            cached_map: in_work,
        })
    }

    /// Runs a task. Returns the message for the driver, which contains the result or the error.
    /// `copy` is the number of copies of the task that started before and may still run.
    pub fn run_task(&self, task: &[u8], copy: usize) -> Vec<u8> {
        let mut mapped = self.cached_map.lock();
        let done = catch_panic(|| self.execute_task(task, copy, &mut mapped));
        self.split_table.discard_scans();
        done.unwrap_or_else(encode_failure)
    }

    /// Prepares the map over a task's splits.
    fn prepare_map(&self, task: ReadTask, mapped: &mut CachedMap) -> Result<(SplitMap, Arc<Scan>)> {
        let ReadTask { files, splits, .. } = task;
        let source = Arc::new(self.reopener.open_files(&files)?);
        let splits = splits
            .iter()
            .map(|split| source.resolve_split(split))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some((map, scan)) = mapped {
            let scan = scan.with_splits(Arc::clone(&source), splits.clone());
            if let Some(map) = map.rebind_scan(&scan) {
                return Ok((map, scan));
            }
        }
        self.split_table.assign_splits(source, splits);
        let (map, scan) = match &self.plan.execution_path {
            ExecutionPath::Tables(parts) => {
                let coded = self.plan.map_with_dictionary_keys(parts)?;
                let map = coded.as_ref().map_or(&parts.map, |coded| &coded.map);
                self.plan.plan_map_per_split(&parts.stream, map)?
            }
            ExecutionPath::Rows { stream, map, .. } => self.plan.plan_map_per_split(stream, map)?,
            ExecutionPath::Engine { .. } => {
                return Err(Error::Internal("a job that has no splits".into()));
            }
        };
        *mapped = map.rebind_scan(&scan).map(|map| (map, Arc::clone(&scan)));
        Ok((map, scan))
    }

    fn execute_task(&self, task: &[u8], copy: usize, mapped: &mut CachedMap) -> Result<Vec<u8>> {
        // A process runs one task at a time, so the process's clock is the task's.
        let (began, cpu_before) = (Instant::now(), process_cpu_seconds());
        let took = || {
            let cpu = (process_cpu_seconds() - cpu_before).max(0.0);
            let cpu = Duration::try_from_secs_f64(cpu).unwrap_or_default();
            TaskTime { cpu, wall: began.elapsed() }
        };
        let task = match WorkerTask::decode(task)? {
            WorkerTask::ReadSplits(task) => task,
            WorkerTask::ReduceRanges(reduce) => {
                return self.reduce_ranges(&reduce)?.finish(&[], UnreadSplits::default(), took());
            }
            WorkerTask::ShuffleGroups(lay) => {
                return self.shuffle_groups(&lay)?.finish(&[], UnreadSplits::default(), took());
            }
            WorkerTask::WriteFiles(write) => {
                return self.write_files(&write, copy)?.finish(
                    &[],
                    UnreadSplits::default(),
                    took(),
                );
            }
        };
        let patience = task.patience_ms.map(Duration::from_millis);
        let (map, scan) = self.prepare_map(task, mapped)?;
        let drawn = self.sampled_read.as_ref().zip(patience);
        let (writer, not_read) = match (&self.plan.execution_path, &self.result_kind) {
            (ExecutionPath::Tables(parts), TaskResultKind::Tables(_)) => match drawn {
                Some((drawn, patience)) => self.read_sampled_groups(map, &scan, drawn, patience)?,
                None => (self.read_groups(parts, map, &scan)?, UnreadSplits::default()),
            },
            (ExecutionPath::Rows { .. }, TaskResultKind::Rows { fetch }) => match drawn {
                Some((_, patience)) => self.read_sampled_rows(map, &scan, *fetch, patience)?,
                None => match &self.row_shuffle {
                    Some(laid) => (self.shuffle_rows(map, &scan, laid)?, UnreadSplits::default()),
                    None => (self.read_rows(map, &scan, *fetch)?, UnreadSplits::default()),
                },
            },
            _ => return Err(Error::Internal("a job that was planned otherwise".into())),
        };
        let read = scan.take_reported_splits().into_iter().map(|read| SplitReport {
            place: read.index,
            is_exact: read.outcome.is_exact_start,
            mapped_rows: read.mapped_rows,
            stats: read.outcome.stats.describe(&scan.splits()[read.index]),
        });
        let read = read.collect::<Vec<_>>();
        writer.finish(&read, not_read, took())
    }

    /// Reads the groups of sampled splits, except of splits that stall or cannot be read.
    fn read_sampled_groups(
        &self,
        map: SplitMap,
        scan: &Arc<Scan>,
        (drawn, guessed): &(SampledReadOptions, Arc<GuessedStarts>),
        patience: Duration,
    ) -> Result<(TaskResultWriter, UnreadSplits)> {
        let settings = &self.plan.settings;
        let spec = self
            .table_spec
            .as_ref()
            .ok_or_else(|| corrupt_message_error("there are no tables here"))?;
        let work = local_runner::SampledRunContext {
            map,
            scan: Arc::clone(scan),
            table_spec: Arc::clone(spec),
            threads: settings.threads,
            memory_account: settings.new_table_account(),
            spill_dirs: settings.spill_dirs.clone(),
            cancel: settings.cancel.clone(),
            stop_request: CancelFlag::new(),
            progress: settings.progress.clone(),
            interval_count: 0,
            result_rows_max: usize::MAX,
            observer_switch: None,
            cell_switch: StateUpdateSwitch::default(),
            has_exact_starts: drawn.is_careful,
            stall_timeout: Some(patience),
            guessed_starts: Arc::clone(guessed),
        };
        let SampledTables { mut merged, outcome: read, failures: failed } =
            local_runner::run_locally(work, &StopCondition::default(), &mut NoInspection)?;
        let mut writer = TaskResultWriter::default();
        while let Some(groups) = merged.next_encoded_groups()? {
            writer.write_groups(&groups)?;
        }
        let stalled =
            read.given_up_splits.iter().filter(|it| it.error.is_none()).map(|it| it.split);
        let stalled = stalled.chain(read.in_flight_splits.iter().copied());
        Ok((writer, collect_unread_splits(failed, stalled, read.wrong_start_count)))
    }

    /// Reads the rows of sampled splits, in the order in which threads find them.
    fn read_sampled_rows(
        &self,
        map: SplitMap,
        scan: &Arc<Scan>,
        fetch: Option<usize>,
        patience: Duration,
    ) -> Result<(TaskResultWriter, UnreadSplits)> {
        let settings = &self.plan.settings;
        let finding = UnorderedRowsContext {
            map,
            scan: Arc::clone(scan),
            cancel: settings.cancel.clone(),
            stop_request: CancelFlag::new(),
            progress: settings.progress.clone(),
            threads: settings.threads,
            stall_timeout: Some(patience),
        };
        let mut rows = UnorderedRows::start_threads(finding, TurboSettings::default(), (0, fetch))?;
        let mut writer = TaskResultWriter::default();
        while let Some(batch) = rows.next().transpose()? {
            let (place, ReadCounts { rows, rejected }) = rows.last_position();
            writer.write_rows(RowsOrigin { place, rows, rejected }, &batch)?;
            self.check_rows_size(&writer)?;
        }
        let failed = rows.take_failures();
        if rows.is_cut_short() {
            let is_cut_short = true;
            return Ok((
                writer,
                UnreadSplits { is_cut_short, ..collect_unread_splits(failed, [].into_iter(), 0) },
            ));
        }
        Ok((writer, collect_unread_splits(failed, rows.unfinished_splits().into_iter(), 0)))
    }

    /// Checks that rows are few enough to be sent.
    fn check_rows_size(&self, writer: &TaskResultWriter) -> Result<()> {
        let bytes_max = self.plan.settings.memory_share_bytes(1, 2);
        if writer.encoded_bytes() <= bytes_max {
            return Ok(());
        }
        Err(Error::MemoryBudgetTooSmall {
            message: format!(
                "the rows of a task take more than {}, half of a worker's memory",
                format_decimal_bytes(bytes_max as u64)
            ),
            hint: Some("more --memory; or on one machine, where rows need not wait".into()),
        })
    }

    /// Reads the groups of consecutive splits.
    fn read_groups(
        &self,
        parts: &AggregationPlan,
        map: SplitMap,
        scan: &Arc<Scan>,
    ) -> Result<TaskResultWriter> {
        let settings = &self.plan.settings;
        let work = TableRun {
            map,
            scan: Arc::clone(scan),
            spec: &parts.spec,
            threads_max: settings.threads,
            memory_account: settings.new_table_account(),
            spill_dirs: &settings.spill_dirs,
            cancel: &settings.cancel,
            progress: &settings.progress,
        };
        let part = table_runner::run_unmerged_tables(&work)?;
        let mut writer = TaskResultWriter::default();
        let Some((scratch, parting)) = &self.table_shuffle else {
            part.for_each_batch(&mut |groups| writer.write_groups(&groups))?;
            return Ok(writer);
        };
        let (ranges, keys) = (KeyHashRanges::with_bits(parting.bits), parts.spec.keys.len());
        let mut parted =
            ShuffleWriter::for_groups(scratch, ranges, keys, parting.bytes_max, "part");
        part.for_each_batch(&mut |groups| parted.write(groups))?;
        match parted.finish()? {
            ShuffleOutput::Batches(groups) => {
                groups.iter().try_for_each(|groups| writer.write_groups(groups))?
            }
            ShuffleOutput::File(parted) => writer.write_shuffle_file(&parted)?,
        }
        Ok(writer)
    }

    /// Merges hash ranges; each thread merges one at a time.
    fn reduce_ranges(&self, reduce: &ReduceTask) -> Result<TaskResultWriter> {
        let settings = &self.plan.settings;
        let threads = settings.threads.clamp(1, reduce.count.max(1));
        let next = AtomicUsize::new(0);
        let account = settings.new_table_account();
        let done: Vec<_> = (0..reduce.count).map(|_| Mutex::new(None)).collect();
        let work = || -> Result<()> {
            loop {
                let range = next.fetch_add(1, Ordering::Relaxed);
                let Some(slot) = done.get(range) else { return Ok(()) };
                let own = self.reduce_range(&reduce.parts, range, &account, reduce.bytes_max)?;
                *slot.lock() = Some(own);
            }
        };
        run_on_threads(threads - 1, &work, &settings.progress)?;
        let mut writer = TaskResultWriter::default();
        for (reduced, groups) in done.into_iter().filter_map(Mutex::into_inner) {
            writer.write_reduced_range(&reduced, &groups)?;
        }
        Ok(writer)
    }

    /// Merges one hash range of several tables. Returns its description, and its groups if they are not in a
    /// file.
    fn reduce_range(
        &self,
        parts: &[ShuffleFile],
        range: usize,
        account: &MemoryAccount,
        bytes_max: u64,
    ) -> Result<(ReducedRange, Vec<u8>)> {
        let settings = &self.plan.settings;
        let (ExecutionPath::Tables(of), Some((scratch, parting))) =
            (&self.plan.execution_path, &self.table_shuffle)
        else {
            return Err(corrupt_message_error("there are no tables to be merged here"));
        };
        let (ranges, run) =
            (KeyHashRanges::with_bits(parting.bits), (&settings.cancel, &settings.progress));
        let merger =
            ChunkMerger::for_hash_range(ranges, &of.spec, account, &settings.spill_dirs, run)?;
        let decoder = AggregateTable::new(&of.spec)?;
        for part in parts {
            for run in &part.runs {
                let ends = run.get(range).zip(run.get(range + 1));
                let (start, end) =
                    ends.ok_or_else(|| corrupt_message_error("a run without this range"))?;
                if start >= end {
                    continue;
                }
                let mut own = open_group_range(scratch, &part.file, *start..*end)?;
                while let Some(groups) = own.next_batch()? {
                    let chunk = decoder.decode_chunk(&groups)?;
                    match of.spec.is_order_insensitive() {
                        true => merger.add_chunk(chunk)?,
                        false => merger.accept_deferred(merger.defer_chunk(chunk)?, 0)?,
                    }
                    merger.merge_and_spill(0)?;
                }
            }
        }
        let mut merged = merger.finish(1)?;
        let mut spool = GroupSpool::new(scratch, "reduced", bytes_max);
        let mut count = 0;
        while let Some(answer) = merged.next_answer_in_hash_order()? {
            count += answer.num_rows() as u64;
            spool.write(&answer)?;
        }
        let precisions = merged.precisions().iter().map(|it| it.map(Into::into)).collect();
        let (groups, file) = spool.finish()?;
        Ok((ReducedRange { precisions, file, groups: count }, groups))
    }

    /// Shuffles the rows of some splits to the workers that write them.
    fn shuffle_rows(
        &self,
        map: SplitMap,
        scan: &Arc<Scan>,
        laid: &RowShuffleContext,
    ) -> Result<TaskResultWriter> {
        let settings = &self.plan.settings;
        let run = (&settings.cancel, &settings.progress);
        let (threads, held_max) = (settings.threads, settings.memory_share_bytes(1, 4));
        let rows = OrderedRows::start(map, Arc::clone(scan), threads, held_max, run, (0, None))?;
        let RowShuffleContext {
            scratch,
            shuffle_spec: laying,
            sink_spec: spec,
            location: place,
            output_schema: schema,
        } = laid;
        let spread = WriterPartitioner::new(spec, schema, laying.places)?;
        let bytes_max = laying.bytes_max.min(settings.memory_share_bytes(1, 8) as u64);
        let own = (bytes_max, settings.memory_share_bytes(1, 1));
        let mut laid = RowShuffleWriter::new(scratch, spread, own, "rows");
        for batch in rows {
            laid.write(conform_batch_to_schema(batch?, schema)?)?;
        }
        let mut writer = TaskResultWriter::default();
        let (paths, written) = laid.finish()?;
        match written {
            ShuffleOutput::Batches(rows) => {
                rows.iter().try_for_each(|rows| writer.write_whole_batch(rows))?
            }
            ShuffleOutput::File(parted) => {
                writer.write_shuffle_file(&parted)?;
                if matches!(place, OpenOutputTarget::Bucket(_)) {
                    writer.write_object_paths(&paths)?;
                }
            }
        }
        Ok(writer)
    }

    /// Shuffles the rows of some ranges of finished groups to the workers that write them.
    fn shuffle_groups(&self, lay: &ShuffleGroupsTask) -> Result<TaskResultWriter> {
        let laid = self
            .row_shuffle
            .as_ref()
            .ok_or_else(|| corrupt_message_error("there is nothing to write here"))?;
        let settings = &self.plan.settings;
        let threads = settings.threads.clamp(1, lay.ranges.len().max(1));
        let next = AtomicUsize::new(0);
        let memory_bytes = settings.memory_share_bytes(1, 1) / threads;
        let done: Vec<_> =
            lay.ranges.iter().map(|_| Mutex::new(ShuffledRange::default())).collect();
        let work = || -> Result<()> {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some((range, slot)) = lay.ranges.get(place).zip(done.get(place)) else {
                    return Ok(());
                };
                if let Some((file, bytes)) = range {
                    *slot.lock() =
                        self.shuffle_group_range(laid, (file, bytes.clone()), memory_bytes)?;
                }
            }
        };
        run_on_threads(threads - 1, &work, &settings.progress)?;
        let done: Vec<ShuffledRange> = done.into_iter().map(Mutex::into_inner).collect();
        let mut writer = TaskResultWriter::default();
        writer.write_shuffled_ranges(&done)?;
        Ok(writer)
    }

    fn shuffle_group_range(
        &self,
        laid: &RowShuffleContext,
        (file, bytes): (&ScratchFile, Range<u64>),
        memory_bytes: usize,
    ) -> Result<ShuffledRange> {
        let RowShuffleContext {
            scratch,
            shuffle_spec: laying,
            sink_spec: spec,
            location: place,
            output_schema: schema,
        } = laid;
        let ExecutionPath::Tables(of) = &self.plan.execution_path else {
            return Err(corrupt_message_error("there are no tables here"));
        };
        let (mut answers, shaped) = (open_group_range(scratch, file, bytes)?, of.answer_shaper());
        let answers = std::iter::from_fn(move || answers.next_batch().transpose());
        let answers = answers.map(move |answer| answer.and_then(&shaped));
        let mut rows = self.plan.start_finish_plan(of, Box::new(answers), &[], None)?;
        let spread = WriterPartitioner::new(spec, schema, laying.places)?;
        let mut writer = RowShuffleWriter::new(scratch, spread, (0, memory_bytes), "groups");
        while let Some(batch) = rows.next_batch(&self.plan.settings.cancel)? {
            writer.write(conform_batch_to_schema(batch, schema)?)?;
        }
        let (paths, written) = writer.finish()?;
        let part = match written {
            ShuffleOutput::File(parted) => Some(parted),
            ShuffleOutput::Batches(_) => None,
        };
        let is_bucket = matches!(place, OpenOutputTarget::Bucket(_));
        Ok(ShuffledRange { part, paths: if is_bucket { paths } else { Vec::new() } })
    }

    /// Writes the files of some writer partitions; each thread writes one at a time.
    fn write_files(&self, write: &WriteFilesTask, copy: usize) -> Result<TaskResultWriter> {
        let laid = self
            .row_shuffle
            .as_ref()
            .ok_or_else(|| corrupt_message_error("there is nothing to write here"))?;
        let settings = &self.plan.settings;
        // As in a single process, the available memory limits the size of a row group.
        let threads = settings.threads.clamp(1, write.count.clamp(1, CONCURRENT_WRITERS_MAX));
        let room = SinkResources {
            memory_limit_bytes: settings.memory_share_bytes(1, 8),
            threads: (settings.threads / threads).max(1),
        };
        let next = AtomicUsize::new(0);
        let done = Mutex::new(WrittenFiles::default());
        let work = || -> Result<()> {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                if place >= write.count {
                    return Ok(());
                }
                let begun = write.begun.get(copy).map(Vec::as_slice).unwrap_or_default();
                let own = self.write_partition_files(laid, (&write.parts, place), begun, room)?;
                let mut done = done.lock();
                match own {
                    Some((rows, files)) => {
                        done.rows += rows;
                        done.files.extend(files);
                    }
                    None => done.is_too_large = true,
                }
            }
        };
        run_on_threads(threads - 1, &work, &settings.progress)?;
        let mut done = done.into_inner();
        if done.is_too_large {
            done.files.clear();
        }
        let mut writer = TaskResultWriter::default();
        writer.write_written_files(&done)?;
        Ok(writer)
    }

    /// Writes the files of one writer partition. Returns them and their row count, or `None` if an object
    /// needs an upload that was not begun.
    fn write_partition_files(
        &self,
        laid: &RowShuffleContext,
        (parts, place): (&[ShuffleFile], usize),
        begun: &[BegunUpload],
        room: SinkResources,
    ) -> Result<Option<(u64, Vec<WorkerOutputFile>)>> {
        let RowShuffleContext {
            scratch,
            sink_spec: spec,
            location: own,
            output_schema: schema,
            ..
        } = laid;
        if matches!(own, OpenOutputTarget::Bucket(_)) && spec.is_one_file() && begun.is_empty() {
            return Ok(None);
        }
        let RunSettings { cancel, spill_dirs, .. } = &self.plan.settings;
        let spill = spill_dirs.first().cloned().unwrap_or_else(std::env::temp_dir);
        let begin = || {
            let room = (room, spill.as_path());
            WorkerOutputWriter::new(spec, (own, begun), Arc::clone(schema), room, cancel)
        };
        let mut writer = None;
        for_each_batch_of_writer_partition(scratch, parts, place, &mut |rows| {
            cancel.check()?;
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(begin()?),
            };
            Ok(writer.write(rows, &mut || cancel.check())?)
        })?;
        match writer {
            Some(writer) => Ok(writer.finish(&mut || cancel.check())?),
            None => Ok(Some((0, Vec::new()))),
        }
    }

    /// Reads the rows of some splits, in split order.
    fn read_rows(
        &self,
        map: SplitMap,
        scan: &Arc<Scan>,
        fetch: Option<usize>,
    ) -> Result<TaskResultWriter> {
        let settings = &self.plan.settings;
        let bytes_max = settings.memory_share_bytes(1, 2);
        let run = (&settings.cancel, &settings.progress);
        let threads = settings.threads;
        let mut rows =
            OrderedRows::start(map, Arc::clone(scan), threads, bytes_max / 2, run, (0, fetch))?;
        let mut writer = TaskResultWriter::default();
        while let Some(batch) = rows.next().transpose()? {
            let (place, ReadCounts { rows, rejected }) = rows.last_batch_position();
            writer.write_rows(RowsOrigin { place, rows, rejected }, &batch)?;
            self.check_rows_size(&writer)?;
        }
        Ok(writer)
    }
}

/// Collects the splits that were not read: those that failed, and those that stalled or were still being
/// read.
fn collect_unread_splits(
    failed: Vec<(usize, Error)>,
    stalled: impl Iterator<Item = usize>,
    wrong_starts: u64,
) -> UnreadSplits {
    let mut stalled: Vec<usize> = stalled.collect();
    stalled.retain(|place| failed.iter().all(|(other, _)| other != place));
    stalled.sort_unstable();
    stalled.dedup();
    let failed = failed.into_iter().map(|(place, error)| (place, error.into())).collect();
    UnreadSplits { failed, stalled, wrong_starts, is_cut_short: false }
}
