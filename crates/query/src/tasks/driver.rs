//! The driver's side of a distributed query: the job that workers get, and the merge of their results.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlan;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::ThreadCpuClock;
use tidemill_base::redaction::redact_url;
use tidemill_dialect::statement::parse_select;
use tidemill_remote::scratch::ScratchFolder;
use tidemill_source::{Split, SplitStats};
use tidemill_tables::merging::merge::{ChunkMerger, MergedTable, SORTED_ANSWER_GROUPS_MAX};
use tidemill_tables::{AggregateTable, TableSpec};

use super::cluster_job::{ClusterJob, JobHeader, SampledReadOptions, TaskResultKind};
use super::distributed_output::DistributedOutput;
use super::ordered_scheduler::{OrderedScheduler, TaskSizing, group_splits_into_tasks};
use super::ordered_worker_rows::OrderedWorkerRows;
use super::row_shuffle::{OutputWritePlan, ShuffledRows};
use super::sampled_scheduler::SampledScheduler;
use super::shuffle_files::TableShuffleSpec;
use super::table_reduction::{self, TableReduction};
use super::unordered_scheduler::TASK_ATTEMPTS_MAX;
use super::{ShippedFile, SubmittedJob, WorkerCounts, WorkerPool, cluster_unsupported_error};
use crate::execution::scan::Scan;
use crate::plan::QueryPlan;
use crate::planning::build_side_extraction::{BuildSide, collect_scanned_tables};
use crate::planning::execution_path::{AggregationPlan, ExecutionPath};
use crate::statements::explanation::ClusterReadExplanation;

/// Target number of tasks for each thread. With several tasks, little work is left for the last ones.
const TASKS_PER_THREAD: usize = 8;
/// Maximum number of bytes in a task of several splits whose result is rows.
const ROW_TASK_BYTES_MAX: u64 = 4 << 20;
/// Assumed ratio of a result's rows, in bytes, to its splits, until the first result arrives.
const ROW_RESULT_BYTES_RATIO: f64 = 4.0;
/// Number of files probed for visibility on every machine.
const PROBED_PATHS_MAX: usize = 64;

/// Checks that a cluster can run the query.
///
/// # Errors
/// [`Error::Usage`] with the reason.
pub(crate) fn check_cluster_support(plan: &QueryPlan) -> Result<()> {
    // A worker plans from the SQL text.
    parse_select(&plan.query.sql)
        .map_err(|_| cluster_unsupported_error("SUMMARIZE is answered on one machine"))?;
    let (stream, map) = match &plan.execution_path {
        ExecutionPath::Tables(parts) => (&parts.stream, &parts.map),
        ExecutionPath::Rows { stream, map, .. } => (stream, map),
        ExecutionPath::Engine { reason: why } => return Err(cluster_unsupported_error(why)),
    };
    check_map_reads_one_source(plan, stream, map)?;
    table_reduction::check_scratch_url(plan)?;
    let table = plan.source_table(stream.table());
    let source = table.as_ref().and_then(|table| table.source());
    source.map_or(Ok(()), |source| Ok(source.describe().map(drop)?))
}

/// Describes how workers would read the query's splits, or returns `None` if the query has no workers.
///
/// # Errors
/// Fails if no worker can be reached.
pub(crate) fn explain_cluster_read(plan: &QueryPlan) -> Result<Option<ClusterReadExplanation>> {
    let Some(workers) = &plan.query.workers else { return Ok(None) };
    let (stream, map, sides, cutting, asked) = match &plan.execution_path {
        ExecutionPath::Tables(parts) => {
            let asked = TaskResultKind::Tables(parts.spec.describe_keys_and_states());
            (&parts.stream, &parts.map, &parts.build_sides, table_task_sizing(plan), asked)
        }
        ExecutionPath::Rows { stream, map, build_sides: sides, .. } => {
            (stream, map, sides, row_task_sizing(plan), TaskResultKind::Rows { fetch: None })
        }
        ExecutionPath::Engine { .. } => return Ok(None),
    };
    let turbo = plan.query.turbo.as_ref();
    if let Some(turbo) = turbo.filter(|turbo| turbo.needs_fine_splits(&plan.execution_path))
        && let Some(table) = plan.source_table(stream.table())
    {
        table.split_finely(turbo.split_bytes);
    }
    let before = plan.settings.progress.bytes_total();
    let (_, scan) = plan.plan_map_per_split(stream, map)?;
    // An explanation reads nothing.
    plan.source_tables.iter().for_each(|(_, table)| table.discard_scans());
    plan.settings.progress.set_bytes_total(before);
    // Build sides are read when the query runs.
    let job = build_job(plan, stream, &sides[..0], (asked, None, None), &scan)?.encode()?;
    let reach = workers.worker_counts()?;
    let mut parts = match (&plan.execution_path, turbo) {
        (ExecutionPath::Tables(_), None) => {
            "a table each, merged by the driver in the order of the input as they come"
        }
        (ExecutionPath::Tables(_), Some(_)) => {
            "a table each, of splits in a drawn order, merged by the driver as they come"
        }
        (ExecutionPath::Rows { skip: 0, fetch: None, .. }, None)
            if plan.query.output.is_some()
                && table_reduction::scratch_url(plan, reach).is_some()
                && can_hold_rows(plan) =>
        {
            "rows, those of a task with many by scratch files to workers who write the output's files, which the driver commits"
        }
        (_, None) => "rows, written by the driver in the order of the input",
        (_, Some(_)) => "rows, of splits in a drawn order, written by the driver as they come",
    }
    .to_owned();
    if let (ExecutionPath::Tables(tables), None) = (&plan.execution_path, turbo)
        && let Some(large) = table_reduction::explain_reduction(plan, tables, reach)
    {
        parts.push_str(&format!("; {large}"));
    }
    let splits = scan.splits();
    Ok(Some(ClusterReadExplanation {
        reach,
        tasks: turbo
            .is_none()
            .then(|| group_splits_into_tasks(splits, reach.threads, &cutting).len() as u64),
        splits: splits.len() as u64,
        bytes: splits.iter().map(|split| split.bytes).sum(),
        job_bytes: job.len() as u64,
        parts,
    }))
}

/// The form in which a query's merged tables are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldOutput {
    /// Finished answers.
    Answers,
    /// Groups with their states.
    Groups,
}

/// Has workers run the query's map over all splits, and merges the resulting tables.
///
/// # Errors
/// The first error of a split, in split order, or of a merge; [`Error::Usage`] if workers cannot read the
/// input.
pub(crate) fn aggregate_on_workers(
    plan: &QueryPlan,
    parts: &AggregationPlan,
    workers: &Arc<dyn WorkerPool>,
    gives: FoldOutput,
) -> Result<MergedTable> {
    let asked = TaskResultKind::Tables(parts.spec.describe_keys_and_states());
    let of = (&parts.stream, &parts.map, parts.build_sides.as_slice());
    let reach = wait_for_workers(plan, workers)?;
    let mut reduction = match gives {
        FoldOutput::Answers => TableReduction::create(plan, parts, reach)?,
        FoldOutput::Groups => None,
    };
    let large = reduction.as_ref().map(|large| (large.shuffle_spec(), large.lock_path()));
    let plans = match (&reduction, &plan.query.output) {
        (Some(large), Some(output)) if parts.finishes_each_group_alone(&plan.logical_plan) => {
            let folder = || Ok(Some(large.scratch_folder()));
            plan_output_writes(plan, &parts.stream, output, folder, reach)?
        }
        _ => None,
    };
    let cutting = (table_task_sizing(plan), large);
    let (mut dealer, scan, plans) = match plans {
        Some(plans) => start_shuffled_tasks(plan, of, asked, workers, cutting, plans)?,
        None => {
            let (dealer, scan) = start_ordered_tasks(plan, of, asked, workers, cutting, None)?;
            (dealer, scan, None)
        }
    };
    let settings = &plan.settings;
    let account = settings.new_table_account();
    let new_merger = || {
        ChunkMerger::new(
            &parts.spec,
            &account,
            &settings.spill_dirs,
            &settings.cancel,
            &settings.progress,
        )
    };
    let mut merger = new_merger()?;
    let decoder = AggregateTable::new(&parts.spec)?;
    let is_order_free = parts.spec.is_order_insensitive();
    let progress = &settings.progress;
    while let Some((places, mut part)) = dealer.next_result()? {
        if part.split_reports.len() != places.len() {
            return Err(OrderedScheduler::mismatched_splits_error());
        }
        for read in part.split_reports.drain(..) {
            let split = scan.splits().get(places.start + read.place);
            let split = split.ok_or_else(OrderedScheduler::mismatched_splits_error)?;
            let stats = SplitStats::from_description(read.stats, split)?;
            progress.add_bytes(split.bytes);
            progress.add_rows(stats.rows);
            progress.map_counters().add_rows(read.mapped_rows);
            scan.count_split(stats)?;
        }
        let mut clock = ThreadCpuClock::start();
        if let Some(parted) = part.take_shuffle_file()? {
            let large = reduction.as_mut().ok_or_else(OrderedScheduler::mismatched_splits_error)?;
            // Results that came before this one stay before it.
            if !is_order_free && !merger.is_unused() {
                let before = std::mem::replace(&mut merger, new_merger()?);
                large.add_driver_table(before.finish(settings.threads)?)?;
            }
            large.add_shuffle_file(parted);
        }
        while let Some((_, groups)) = part.next_batch()? {
            let chunk = decoder.decode_chunk(&groups)?;
            match is_order_free {
                true => merger.add_chunk(chunk)?,
                false => merger.accept_deferred(merger.defer_chunk(chunk)?, 0)?,
            }
            merger.merge_and_spill(0)?;
        }
        progress.table_counters().add_thread_cpu(&mut clock);
    }
    settings.cancel.check()?;
    let mut clock = ThreadCpuClock::start();
    let merged = match reduction.filter(|large| !large.is_empty()) {
        None => merger.finish(settings.threads)?,
        Some(mut large) => {
            if !merger.is_unused() {
                let small = std::mem::replace(&mut merger, new_merger()?);
                large.add_driver_table(small.finish(settings.threads)?)?;
            }
            let ranged = large.run_reduce_tasks(&dealer)?;
            let precisions = ranged.precisions();
            let answers = match &plans {
                // Fewer groups come in key order, so all of them must be in one place.
                Some(plans) if ranged.group_count() > SORTED_ANSWER_GROUPS_MAX as u64 => {
                    progress.table_counters().add_rows(ranged.group_count());
                    plans.shuffle_and_write_groups(
                        &dealer,
                        ranged,
                        plan.schema(),
                        &settings.cancel,
                    )?;
                    Box::new(std::iter::empty())
                }
                _ => ranged.into_answers(),
            };
            merger.finish_with_remote_answers(precisions, answers)?
        }
    };
    drop(dealer);
    settings.progress.table_counters().add_thread_cpu(&mut clock);
    plan.source_tables
        .iter()
        .flat_map(|(_, table)| table.scans())
        .filter(|other| !Arc::ptr_eq(other, &scan))
        .try_for_each(|scan| scan.read_remaining_splits())?;
    let rows = plan.source_tables.iter().flat_map(|(_, table)| table.scans());
    plan.rejects.finish(rows.map(|scan| scan.row_count()).sum())?;
    Ok(merged)
}

/// Waits for workers and returns how many there are.
fn wait_for_workers(plan: &QueryPlan, workers: &Arc<dyn WorkerPool>) -> Result<WorkerCounts> {
    let progress = &plan.settings.progress;
    progress.set_wait_reason(Some("waiting for the cluster's workers"));
    let reach = workers.worker_counts();
    progress.set_wait_reason(None);
    reach
}

/// Rows that workers read.
pub(crate) enum ClusterRows {
    /// Rows that workers send to the driver.
    SentRows(OrderedWorkerRows),
    /// Rows that workers shuffle to the workers that write the output's files.
    ShuffledRows(ShuffledRows),
}

/// Starts to read a map's rows on workers, skips `skip` of them and returns at most `fetch`. If the query has
/// an output and workers can write it, they write all rows.
///
/// # Errors
/// Fails as [`aggregate_on_workers`]; the iterator may return more errors.
pub(crate) fn read_rows_on_workers(
    plan: &QueryPlan,
    of: (&TableReference, &LogicalPlan, &[BuildSide]),
    (skip, fetch): (usize, Option<usize>),
    workers: &Arc<dyn WorkerPool>,
) -> Result<ClusterRows> {
    let asked = TaskResultKind::Rows { fetch: fetch.map(|fetch| fetch.saturating_add(skip)) };
    let progress = &plan.settings.progress;
    let sent = |dealer, scan| {
        ClusterRows::SentRows(OrderedWorkerRows::new(dealer, scan, progress, (skip, fetch)))
    };
    let plans = match &plan.query.output {
        Some(output) if skip == 0 && fetch.is_none() && can_hold_rows(plan) => {
            let (stream, reach) = (of.0, wait_for_workers(plan, workers)?);
            let folder =
                || Ok(table_reduction::create_scratch_folder(plan, stream, reach)?.map(Arc::new));
            plan_output_writes(plan, stream, output, folder, reach)?
        }
        _ => None,
    };
    let Some(plans) = plans else {
        let (dealer, scan) =
            start_ordered_tasks(plan, of, asked, workers, (row_task_sizing(plan), None), None)?;
        return Ok(sent(dealer, scan));
    };
    let (dealer, scan, plans) =
        start_shuffled_tasks(plan, of, asked, workers, (table_task_sizing(plan), None), plans)?;
    Ok(match plans {
        Some(plans) => {
            let (schema, settings) = (Arc::clone(plan.schema()), &plan.settings);
            let own = (&settings.cancel, settings.memory_share_bytes(1, 1));
            ClusterRows::ShuffledRows(ShuffledRows::new(dealer, scan, plans, schema, own))
        }
        None => sent(dealer, scan),
    })
}

/// Returns true if this process may hold rows until it knows whether there are enough of them to shuffle.
fn can_hold_rows(plan: &QueryPlan) -> bool {
    let held_max = plan.settings.memory_share_bytes(1, 16) as u64;
    plan.query.scratch.inline_bytes_max.is_none_or(|bytes_max| bytes_max <= held_max)
}

/// Plans how workers write the files of a query's output, or returns `None` if this process writes them.
fn plan_output_writes(
    plan: &QueryPlan,
    stream: &TableReference,
    output: &DistributedOutput,
    folder: impl FnOnce() -> Result<Option<Arc<ScratchFolder>>>,
    reach: WorkerCounts,
) -> Result<Option<OutputWritePlan>> {
    let table = plan.source_table(stream.table());
    let Some(source) = table.as_ref().and_then(|table| table.source()) else { return Ok(None) };
    // A worker that reads one bucket and writes to another has one set of credentials for both.
    let of_source = &source.spec().storage_options;
    let both = of_source.with_overrides(output.storage_options()).worker_options();
    let is_remote = source.files().iter().any(|file| file.local_path().is_none());
    let secrets = (!is_remote || both == of_source.worker_options()).then_some(both);
    let bytes_max =
        table_reduction::inline_bytes_max(plan).min(plan.settings.memory_share_bytes(1, 16) as u64);
    OutputWritePlan::plan_writes(output, folder, (reach, bytes_max), secrets, &plan.settings.cancel)
}

/// Starts tasks whose rows, or rows of merged tables, are shuffled for writing. Falls back to tasks without a
/// shuffle if workers do not see the output's folder.
fn start_shuffled_tasks(
    plan: &QueryPlan,
    of: (&TableReference, &LogicalPlan, &[BuildSide]),
    asked: TaskResultKind,
    workers: &Arc<dyn WorkerPool>,
    (cutting, large): (TaskSizing, Option<(TableShuffleSpec, Option<PathBuf>)>),
    plans: OutputWritePlan,
) -> Result<(OrderedScheduler, Arc<Scan>, Option<OutputWritePlan>)> {
    let progress = &plan.settings.progress;
    let before = progress.bytes_total();
    let is_rows = matches!(asked, TaskResultKind::Rows { .. });
    let with = (cutting.clone(), large.clone());
    match start_ordered_tasks(plan, of, asked.clone(), workers, with, Some(&plans)) {
        Ok((dealer, scan)) => Ok((dealer, scan, Some(plans))),
        Err(error) if plans.is_folder_unseen_by_workers(&error) => {
            plan.source_tables.iter().for_each(|(_, table)| table.discard_scans());
            progress.set_bytes_total(before);
            let cutting = if is_rows { row_task_sizing(plan) } else { cutting };
            let (dealer, scan) =
                start_ordered_tasks(plan, of, asked, workers, (cutting, large), None)?;
            Ok((dealer, scan, None))
        }
        Err(error) => Err(error),
    }
}

/// Returns the sizing of tasks whose results are tables.
fn table_task_sizing(plan: &QueryPlan) -> TaskSizing {
    TaskSizing {
        tasks_per_thread: TASKS_PER_THREAD,
        task_bytes_max: u64::MAX,
        result_bytes_ratio: 0.0,
        waiting_bytes_max: plan.settings.memory_share_bytes(1, 4) as u64,
        attempts_max: plan.query.split_attempts_max.unwrap_or(TASK_ATTEMPTS_MAX),
    }
}

/// Returns the sizing of tasks whose results are rows.
fn row_task_sizing(plan: &QueryPlan) -> TaskSizing {
    TaskSizing {
        task_bytes_max: ROW_TASK_BYTES_MAX,
        result_bytes_ratio: ROW_RESULT_BYTES_RATIO,
        waiting_bytes_max: plan.settings.memory_share_bytes(1, 2) as u64,
        ..table_task_sizing(plan)
    }
}

fn start_ordered_tasks(
    plan: &QueryPlan,
    of: (&TableReference, &LogicalPlan, &[BuildSide]),
    asked: TaskResultKind,
    workers: &Arc<dyn WorkerPool>,
    (cutting, large): (TaskSizing, Option<(TableShuffleSpec, Option<PathBuf>)>),
    plans: Option<&OutputWritePlan>,
) -> Result<(OrderedScheduler, Arc<Scan>)> {
    let (stream, map, sides) = of;
    wait_for_workers(plan, workers)?;
    let (_, scan) = plan.plan_map_per_split(stream, map)?;
    let (parting, lock) = large.unzip();
    let said = (asked, parting, None);
    let mut job = build_job(plan, stream, sides, said, &scan)?;
    if let Some(plans) = plans {
        job.header.laying = Some(plans.shuffle_spec.clone());
        job.output_schema = Some(Arc::clone(plan.schema()));
    }
    let mut job = package_job(plan, job, &scan)?;
    if let Some(plans) = plans {
        if let Some(secrets) = &plans.secrets {
            job.secrets.clone_from(secrets);
        }
        let own = plans
            .scratch_folder
            .lock_path
            .iter()
            .chain(plans.shuffle_spec.folder.as_ref().map(|it| &it.lock));
        job.shared_paths.extend(own.map(|path| path.to_string_lossy().into_owned()));
    }
    job.shared_paths.extend(lock.flatten().map(|lock| lock.to_string_lossy().into_owned()));
    let run = (&plan.settings.cancel, &plan.settings.progress);
    let dealer = OrderedScheduler::start_job(workers, job, Arc::clone(&scan), run, cutting)?;
    Ok((dealer, scan))
}

/// Encodes a job and adds the credentials, paths and files that workers need.
fn package_job(plan: &QueryPlan, job: ClusterJob, scan: &Scan) -> Result<SubmittedJob> {
    Ok(SubmittedJob {
        encoded_job: job.encode()?,
        secrets: scan.source().spec().storage_options.worker_options(),
        shared_paths: select_probed_paths(scan.splits())?,
        shipped_files: ShippedFile::collect_from_program(
            scan.source().spec().filter_program.as_ref(),
            &plan.settings.cancel,
        )?,
    })
}

/// Starts tasks that read sampled splits into tables of `spec`.
///
/// # Errors
/// Fails as [`aggregate_on_workers`].
pub(crate) fn start_sampled_tables(
    plan: &QueryPlan,
    parts: &AggregationPlan,
    spec: &TableSpec,
    drawn: SampledReadOptions,
    scan: &Arc<Scan>,
    workers: &Arc<dyn WorkerPool>,
) -> Result<SampledScheduler> {
    let said = (TaskResultKind::Tables(spec.describe_keys_and_states()), None, Some(drawn));
    let job = build_job(plan, &parts.stream, &parts.build_sides, said, scan)?;
    start_sampled_tasks(plan, job, scan, workers, u64::MAX)
}

/// Starts tasks that read rows of sampled splits. The reader skips `skip` rows and returns at most `fetch`.
///
/// # Errors
/// Fails as [`read_rows_on_workers`].
pub(crate) fn start_sampled_rows(
    plan: &QueryPlan,
    (stream, sides): (&TableReference, &[BuildSide]),
    (skip, fetch): (usize, Option<usize>),
    scan: &Arc<Scan>,
    workers: &Arc<dyn WorkerPool>,
) -> Result<SampledScheduler> {
    let asked = TaskResultKind::Rows { fetch: fetch.map(|fetch| fetch.saturating_add(skip)) };
    let drawn = SampledReadOptions { cells: None, is_careful: true };
    let job = build_job(plan, stream, sides, (asked, None, Some(drawn)), scan)?;
    start_sampled_tasks(plan, job, scan, workers, ROW_TASK_BYTES_MAX)
}

fn start_sampled_tasks(
    plan: &QueryPlan,
    job: ClusterJob,
    scan: &Arc<Scan>,
    workers: &Arc<dyn WorkerPool>,
    bytes_max: u64,
) -> Result<SampledScheduler> {
    let job = package_job(plan, job, scan)?;
    let run = (&plan.settings.cancel, &plan.settings.progress);
    let attempts_max = plan.query.split_attempts_max.unwrap_or(TASK_ATTEMPTS_MAX);
    SampledScheduler::start_job(workers, job, scan, run, (attempts_max, bytes_max))
}

/// Checks that a map reads nothing but its split, because a worker has no other source.
fn check_map_reads_one_source(
    plan: &QueryPlan,
    stream: &TableReference,
    map: &LogicalPlan,
) -> Result<()> {
    let scanned = collect_scanned_tables(map)?;
    let sources = || scanned.iter().filter(|name| plan.source_table(name.table()).is_some());
    let other = sources().find(|name| *name != stream);
    match (other, sources().count()) {
        (None, 0 | 1) => Ok(()),
        (other, _) => {
            let name = other.unwrap_or(stream);
            Err(cluster_unsupported_error(&format!(
                "a subquery reads `{}` beside each record",
                redact_url(name.table())
            )))
        }
    }
}

/// Builds the job that all tasks share.
fn build_job(
    plan: &QueryPlan,
    stream: &TableReference,
    sides: &[BuildSide],
    (asked, parting, drawn): (TaskResultKind, Option<TableShuffleSpec>, Option<SampledReadOptions>),
    scan: &Scan,
) -> Result<ClusterJob> {
    let (mut streams, others): (Vec<_>, Vec<_>) = plan
        .source_tables
        .iter()
        .map(|(name, table)| (name.clone(), table.schema_with_hidden_marks()))
        .partition(|(name, _)| name == stream.table());
    streams.extend(others);
    let (names, schemas): (_, Vec<SchemaRef>) = streams.into_iter().unzip();
    let table = plan.source_table(stream.table());
    let said = JobHeader {
        sql: plan.query.sql.clone(),
        names,
        asked,
        planned_ns: plan.query.now_ns.unwrap_or(0),
        source: scan.source().describe()?,
        sample: table.and_then(|table| table.sample()).map(Into::into),
        parting,
        laying: None,
        drawn,
    };
    let sides = sides.iter().map(|side| side.rows.held_batches()).collect();
    Ok(ClusterJob {
        header: said,
        source_schemas: schemas,
        build_sides: sides,
        output_schema: None,
    })
}

/// Returns at most [`PROBED_PATHS_MAX`] local files of the splits, spread over all of them, and the last
/// file.
fn select_probed_paths(splits: &[Split]) -> Result<Vec<String>> {
    let files = splits.iter().flat_map(|split| &split.parts).map(|piece| &piece.file);
    let mut paths = Vec::new();
    for path in files.filter_map(|file| file.local_path()) {
        let path = std::path::absolute(path).map_err(|e| Error::io("find", path, e))?;
        let path = path.to_string_lossy().into_owned();
        if paths.last() != Some(&path) {
            paths.push(path);
        }
    }
    let each = paths.len().div_ceil(PROBED_PATHS_MAX).max(1);
    let last = paths.last().cloned();
    let mut some: Vec<String> = paths.into_iter().step_by(each).collect();
    some.extend(last);
    some.dedup();
    Ok(some)
}
