//! The sampled run on workers: sends sampled splits to workers and merges their tables until enough is read.
//!
//! A split is complete once its task has returned. At the end, the splits that workers still have are left
//! out, and the workers cancel them. A worker hands back a split that stalls, beside the results of the
//! task's other splits. The run submits it again behind all others. If the input cannot be cut, its splits
//! are read in input order, and each counts as a whole.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::{RunProgress, ThreadCpuClock};
use tidemill_tables::AggregateTable;
use tidemill_tables::merging::merge::{ChunkMerger, DeferredChunk};

use super::local_runner::{
    FINISH_RESERVE_MIN, GivenUpSplit, INSPECTION_FREE_TIME, INSPECTION_TIME_DIVISOR, ReadOutcome,
    SampledRunContext, SampledTables, StopCondition, StopReason, TableInspector, TableSnapshot,
    ThreadTableLoad,
};
use super::partial_coverage::PartialCoverage;
use super::sampling_plan::{POLL_INTERVAL, SamplingPlan};
use super::split_tally::SplitTally;
use super::{TurboSettings, build_partial_coverage};
use crate::execution::ordered_rows::RowLimits;
use crate::execution::scan::{ReadCounts, Scan};
use crate::execution::table_runner::WorkerTable;
use crate::tasks::{SampledScheduler, SampledTaskResult, TaskResult};

/// The splits that workers read, and their state.
struct WorkerSplits {
    scan: Arc<Scan>,
    progress: RunProgress,
    sampling_plan: SamplingPlan,
    tally: SplitTally,
    scheduler: SampledScheduler,
    /// Splits that have stalled once.
    stalled_splits: VecDeque<usize>,
}

impl WorkerSplits {
    fn new(
        scan: &Arc<Scan>,
        progress: &RunProgress,
        tasks: SampledScheduler,
        until: &StopCondition,
    ) -> Result<WorkerSplits> {
        let drawing = SamplingPlan::new(scan, until)?;
        let tally = SplitTally::new(drawing.split_bytes.len());
        let (scan, progress, stalled) = (Arc::clone(scan), progress.clone(), VecDeque::new());
        Ok(WorkerSplits {
            scan,
            progress,
            sampling_plan: drawing,
            tally,
            scheduler: tasks,
            stalled_splits: stalled,
        })
    }

    /// Submits as many tasks as the workers have room for. A task has at most `splits_max` splits.
    fn submit_tasks(&mut self, until: &StopCondition, splits_max: usize) -> Result<()> {
        while self.scheduler.has_room_for_task() {
            let left = until.ends_at.map(|at| at.saturating_duration_since(Instant::now()));
            let drawing = &self.sampling_plan;
            let mut next = || drawing.next_split();
            if self.scheduler.submit_next_splits(&mut next, left, splits_max)? {
                continue;
            }
            let Some(split) = self.stalled_splits.pop_front() else { return Ok(()) };
            self.scheduler.resubmit_stalled_split(split)?;
        }
        Ok(())
    }

    /// Records which splits a task read and which it did not. Returns its splits, and the result with groups
    /// or rows.
    fn record_result(&mut self, came: SampledTaskResult) -> Result<(Vec<usize>, TaskResult)> {
        let SampledTaskResult {
            splits,
            outcomes: read,
            failures: failed,
            stalled_splits: stalled,
            wrong_start_count: wrong_starts,
            result: part,
        } = came;
        for (index, mapped_rows, outcome) in read {
            let bytes = self.sampling_plan.split_bytes[index];
            self.progress.add_bytes(bytes);
            self.progress.add_rows(outcome.stats.rows);
            self.progress.map_counters().add_rows(mapped_rows);
            self.tally.complete_split(&self.scan, index, bytes, Some(&outcome));
            self.scan.count_split(outcome.stats)?;
        }
        for (index, error) in failed {
            self.sampling_plan.give_up_split(index, error, &mut self.tally)?;
        }
        self.tally.checked_wrong_start_count += wrong_starts;
        self.tally.has_wrong_start |= wrong_starts > 0;
        self.stalled_splits.extend(stalled);
        Ok((splits, part))
    }

    /// Returns the outcome of reading.
    fn read_outcome(&mut self, why: StopReason, until: &StopCondition) -> ReadOutcome {
        let (mut in_flight, mut stalled) = self.scheduler.pending_splits();
        stalled.extend(self.stalled_splits.drain(..));
        let mut given_up = std::mem::take(&mut self.tally.given_up);
        // Without a deadline and `drop` no split is given up.
        match until.ends_at.is_some() || until.drop_share.is_some() {
            true => {
                given_up
                    .extend(stalled.into_iter().map(|split| GivenUpSplit { split, error: None }));
            }
            false => in_flight.extend(stalled),
        }
        given_up.sort_by_key(|given_up| given_up.split);
        let sample = (!self.sampling_plan.is_in_order)
            .then(|| self.tally.sample(&self.scan, &self.sampling_plan, until.confidence));
        ReadOutcome {
            stop_reason: if self.tally.is_whole_input() { StopReason::WholeInput } else { why },
            sample,
            given_up_splits: given_up,
            left_out_files: self.scan.source().skipped_files(),
            in_flight_splits: in_flight,
            wrong_start_count: self.tally.wrong_start_count(&self.scan),
            counted_bytes: self.tally.bytes,
        }
    }
}

/// Fills a table from workers' results until the stop condition holds.
///
/// # Errors
/// The first error of reading, unless the split may be left out, of the map or of a merge. Also if no worker
/// can be reached.
pub(super) fn run_on_workers(
    work: &SampledRunContext,
    tasks: SampledScheduler,
    until: &StopCondition,
    look: &mut dyn TableInspector,
) -> Result<SampledTables> {
    let merger = ChunkMerger::new(
        &work.table_spec,
        &work.memory_account,
        &work.spill_dirs,
        &work.cancel,
        &work.progress,
    )?;
    let mut run = WorkerTableRun {
        work,
        splits: WorkerSplits::new(&work.scan, &work.progress, tasks, until)?,
        merger,
        decoder: AggregateTable::new(&work.table_spec)?,
        gathered_table: WorkerTable::new(&work.table_spec, 0, &work.memory_account)?,
        split_chunks: BTreeMap::new(),
        began: Instant::now(),
        inspections_duration: Duration::ZERO,
        last_inspection_duration: Duration::ZERO,
    };
    let mut until = until.clone();
    let why = run.wait_for_stop(&mut until, look)?;
    run.finish_run(why, &until)
}

/// The state of a run that merges workers' tables.
struct WorkerTableRun<'a> {
    work: &'a SampledRunContext,
    splits: WorkerSplits,
    merger: Arc<ChunkMerger>,
    decoder: AggregateTable,
    /// The groups received so far, until they become too large.
    gathered_table: WorkerTable,
    /// Chunks by split, for order-sensitive aggregates.
    split_chunks: BTreeMap<usize, Vec<DeferredChunk>>,
    began: Instant,
    /// Time that all inspections took together, and time of the last one.
    inspections_duration: Duration,
    last_inspection_duration: Duration,
}

impl WorkerTableRun<'_> {
    /// Waits until the stop condition holds.
    fn wait_for_stop(
        &mut self,
        until: &mut StopCondition,
        look: &mut dyn TableInspector,
    ) -> Result<StopReason> {
        // With order-sensitive aggregates each split has its own chunks.
        let splits_max = if self.work.table_spec.is_order_insensitive() { usize::MAX } else { 1 };
        loop {
            self.work.cancel.check()?;
            if let Some(why) = self.splits.tally.stop_reason(&self.splits.sampling_plan, until) {
                return Ok(why);
            }
            let WorkerSplits { tally, sampling_plan: drawing, .. } = &self.splits;
            let begins_again =
                tally.has_wrong_start && !self.work.has_exact_starts && !drawing.is_in_order;
            if self.work.stop_request.is_cancelled() || begins_again {
                return Ok(StopReason::StopRequest);
            }
            let mut patience = POLL_INTERVAL;
            let mut may_look = self.inspections_duration * INSPECTION_TIME_DIVISOR
                <= INSPECTION_FREE_TIME + self.began.elapsed();
            let mut look_ends_at = None;
            if let Some(ends_at) = until.ends_at {
                let left = ends_at.saturating_duration_since(Instant::now());
                let reserve = self.finish_reserve(ends_at).min(left.max(FINISH_RESERVE_MIN));
                match left.checked_sub(reserve).filter(|left| !left.is_zero()) {
                    None => return Ok(StopReason::Deadline),
                    Some(left) => {
                        patience = patience.min(left);
                        may_look &= left
                            > 3 * self
                                .last_inspection_duration
                                .max(self.table_load().grouping_time());
                        look_ends_at = Some(Instant::now() + left);
                    }
                }
            }
            self.splits.submit_tasks(until, splits_max)?;
            if let Some(soon) = look.time_until_due() {
                patience = patience.min(soon);
            }
            if may_look && look.is_due(self.splits.tally.completed_count() as u64) {
                let began = Instant::now();
                if let Some(snapshot) = self.take_snapshot(until.confidence)? {
                    let found =
                        look.inspect(TableSnapshot { ends_at: look_ends_at, ..snapshot })?;
                    self.last_inspection_duration = began.elapsed();
                    self.inspections_duration += self.last_inspection_duration;
                    if let Some(confidence) = found {
                        until.confidence = confidence;
                        return Ok(StopReason::TargetError);
                    }
                }
            }
            if let Some(came) = self.splits.scheduler.next_result(patience)? {
                self.merge_result(came)?;
            }
        }
    }

    /// Merges the result of a task.
    fn merge_result(&mut self, came: SampledTaskResult) -> Result<()> {
        let mut clock = ThreadCpuClock::start();
        let (splits, mut part) = self.splits.record_result(came)?;
        while let Some((_, groups)) = part.next_batch()? {
            let chunk = self.decoder.decode_chunk(&groups)?;
            if self.work.table_spec.is_order_insensitive() {
                self.gathered_table.merge_chunk(&chunk)?;
                if self.gathered_table.charged_bytes() > self.work.memory_account.limit_bytes() / 5
                {
                    self.gathered_table.flush_to_merger(&self.merger)?;
                    self.merger.merge_and_spill(0)?;
                }
            } else if let [split] = splits[..] {
                self.split_chunks.entry(split).or_default().push(self.merger.defer_chunk(chunk)?);
            } else {
                return Err(Error::Internal("groups of several splits, in no order".into()));
            }
        }
        self.work.progress.table_counters().add_thread_cpu(&mut clock);
        Ok(())
    }

    fn finish_reserve(&self, ends_at: Instant) -> Duration {
        let all = ends_at.saturating_duration_since(self.began);
        self.work.finish_reserve(self.table_load(), self.merger.merge_load(), all)
    }

    fn table_load(&self) -> ThreadTableLoad {
        ThreadTableLoad { groups_per_table: self.gathered_table.group_count(), table_count: 1 }
    }

    /// Returns a snapshot of the table, or `None` if a part of it has left memory.
    fn take_snapshot(&mut self, confidence: f64) -> Result<Option<TableSnapshot>> {
        if !self.merger.is_unused() || !self.work.table_spec.is_order_insensitive() {
            return Ok(None);
        }
        let WorkerSplits { tally, sampling_plan: drawing, scan, .. } = &self.splits;
        let sample = (!drawing.is_in_order).then(|| tally.sample(scan, drawing, confidence));
        let share = (tally.bytes as f64 / drawing.total_bytes.max(1) as f64).min(1.0);
        let answer = self.gathered_table.compute_answer(&self.work.table_spec)?;
        Ok(Some(TableSnapshot { answer, sample, bytes_read_share: share, ends_at: None }))
    }

    fn finish_run(mut self, why: StopReason, until: &StopCondition) -> Result<SampledTables> {
        let read = self.splits.read_outcome(why, until);
        // Dropping the scheduler ends the remaining tasks.
        drop(self.splits);
        if read.is_whole_input() {
            // The answer is exact and needs no intervals.
            self.work.cell_switch.turn_off();
        }
        let mut clock = ThreadCpuClock::start();
        if self.gathered_table.group_count() > 0 {
            self.gathered_table.flush_to_merger(&self.merger)?;
        }
        for (_, chunks) in self.split_chunks {
            for chunk in chunks {
                self.merger.accept_deferred(chunk, 0)?;
            }
            self.merger.merge_and_spill(0)?;
        }
        self.work.cancel.check()?;
        let merged = self.merger.finish(self.work.threads)?;
        self.work.progress.table_counters().add_thread_cpu(&mut clock);
        Ok(SampledTables { merged, outcome: read, failures: Vec::new() })
    }
}

/// An iterator over the rows that workers find, in the order in which results arrive.
pub(crate) struct UnorderedWorkerRows {
    splits: WorkerSplits,
    cancel: CancelFlag,
    stop_request: CancelFlag,
    settings: TurboSettings,
    stop_condition: StopCondition,
    /// The limits on the returned rows.
    row_limits: RowLimits,
    /// The splits of the current result, the result, and those of its splits that are read once more.
    current_result: Option<(Vec<usize>, TaskResult, Vec<usize>)>,
    /// Progress within the splits that are not complete.
    open_splits: HashMap<usize, ReadCounts>,
    /// The outcome of reading, once the run has ended.
    outcome: Option<ReadOutcome>,
}

impl UnorderedWorkerRows {
    /// Starts to find rows. The iterator skips `skip` rows and returns at most `fetch`.
    ///
    /// # Errors
    /// Fails if more files are left out already than may be.
    pub(super) fn start_search(
        scan: &Arc<Scan>,
        tasks: SampledScheduler,
        turbo: TurboSettings,
        (skip, fetch): (usize, Option<usize>),
        (progress, cancel, enough): (&RunProgress, &CancelFlag, &CancelFlag),
    ) -> Result<Self> {
        let until = turbo.stop_condition();
        Ok(UnorderedWorkerRows {
            splits: WorkerSplits::new(scan, progress, tasks, &until)?,
            cancel: cancel.clone(),
            stop_request: enough.clone(),
            settings: turbo,
            stop_condition: until,
            row_limits: RowLimits { skip, remaining: fetch },
            current_result: None,
            open_splits: HashMap::new(),
            outcome: None,
        })
    }

    /// Returns the coverage, once the run has ended.
    pub(crate) fn partial_coverage(&self) -> Option<PartialCoverage> {
        let read = self.outcome.as_ref()?;
        Some(build_partial_coverage(&self.splits.scan, &self.settings, read))
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            self.cancel.check()?;
            if self.row_limits.are_reached() {
                return Ok(self.end_run(StopReason::RowLimit));
            }
            if let Some((splits, part, stalled)) = &mut self.current_result {
                let Some((place, batch)) = part.next_batch()? else {
                    self.current_result = None;
                    continue;
                };
                let Some((split, at)) = place.and_then(|at| Some((*splits.get(at.place)?, at)))
                else {
                    return Err(Error::Internal("rows of no split".into()));
                };
                if stalled.contains(&split) {
                    continue;
                }
                if !self.splits.tally.is_split_complete(split) {
                    let so_far = ReadCounts { rows: at.rows, rejected: at.rejected };
                    self.open_splits.insert(split, so_far);
                }
                if let Some(batch) = self.row_limits.apply_to_batch(&batch) {
                    return Ok(Some(batch));
                }
                continue;
            }
            if let Some(why) =
                self.splits.tally.stop_reason(&self.splits.sampling_plan, &self.stop_condition)
            {
                return Ok(self.end_run(why));
            }
            if self.stop_request.is_cancelled() {
                return Ok(self.end_run(StopReason::StopRequest));
            }
            let mut patience = POLL_INTERVAL;
            if let Some(ends_at) = self.stop_condition.ends_at {
                let left = ends_at.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(self.end_run(StopReason::Deadline));
                }
                patience = patience.min(left);
            }
            self.splits.submit_tasks(&self.stop_condition, usize::MAX)?;
            if let Some(came) = self.splits.scheduler.next_result(patience)? {
                let stalled = came.stalled_splits.clone();
                let (splits, part) = self.splits.record_result(came)?;
                self.current_result = Some((splits, part, stalled));
            }
        }
    }

    fn end_run(&mut self, why: StopReason) -> Option<RecordBatch> {
        // The rows of a split that is complete by now are counted with it.
        let open = std::mem::take(&mut self.open_splits).into_iter();
        open.filter(|(split, _)| !self.splits.tally.is_split_complete(*split))
            .for_each(|(_, so_far)| self.splits.scan.add_read_counts(so_far));
        self.current_result = None;
        let mut read = self.splits.read_outcome(why, &self.stop_condition);
        (read.sample, read.wrong_start_count) = (None, 0);
        if why == StopReason::RowLimit {
            read.stop_reason = StopReason::RowLimit;
        }
        self.outcome = Some(read);
        None
    }
}

impl Iterator for UnorderedWorkerRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.outcome.is_some() {
            return None;
        }
        self.next_batch().transpose()
    }
}
