//! The execution of queries over a part of the input: aggregate tables with interim results, and unordered
//! rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::logical_expr::{FetchType, LogicalPlan};
use tidemill_base::RunSettings;
use tidemill_base::coverage::Coverage;
use tidemill_base::error::{Error, Result};
use tidemill_sampling::{SplitSample, look_confidence, splits_before_look};
use tidemill_tables::merging::merge::MergedTable;
use tidemill_tables::{StateUpdateSwitch, TableSpec};

use super::answer_builder::{AnswerBuilder, InputRowMaxima, MissingIntervalReasons};
use super::local_runner::{
    self, ReadOutcome, SampledTables, StopReason, TableInspector, TableSnapshot,
};
use super::partial_coverage::{ColumnIntervalWidths, record_interval_widths};
use super::result_bounds::ColumnCertainty;
use super::sampling_plan::{can_sample_splits, split_count_with_left_out};
use super::unordered_rows::{UnorderedRows, UnorderedRowsContext};
use super::worker_runner::{self, UnorderedWorkerRows};
use super::{TurboSettings, build_partial_coverage, turbo_summary_error};
use crate::execution::result_columns::conform_batch_to_schema;
use crate::execution::results::{CoverageBuilder, RowSource};
use crate::execution::scan::Scan;
use crate::plan::QueryPlan;
use crate::planning::build_side_extraction::BuildSide;
use crate::planning::execution_path::AggregationPlan;
use crate::tasks::{self, FoldOutput, SampledReadOptions};

impl QueryPlan {
    /// Fills the query's tables with as much of the input as the stop condition allows.
    ///
    /// # Errors
    /// Errors of reading, of the map and of merging.
    pub(crate) fn run_sampled_tables(
        &self,
        parts: &AggregationPlan,
        turbo: &TurboSettings,
        watch: Option<InterimResultObserver<'_>>,
    ) -> Result<(MergedTable, AnswerBuilder, CoverageBuilder)> {
        self.run_sampled_attempt(parts, turbo, watch, false)
    }

    /// Runs one attempt. `is_careful` says that each split begins at the offset that the bytes before it
    /// imply, and not where its own bytes look like a record's beginning.
    fn run_sampled_attempt(
        &self,
        parts: &AggregationPlan,
        turbo: &TurboSettings,
        watch: Option<InterimResultObserver<'_>>,
        is_careful: bool,
    ) -> Result<(MergedTable, AnswerBuilder, CoverageBuilder)> {
        let stream = self.source_tables.iter().find(|(name, _)| name == parts.stream.table());
        if let (Some((_, table)), true) = (stream, turbo.needs_fine_splits(&self.execution_path)) {
            table.split_finely(turbo.split_bytes);
        }
        let coded = self.map_with_dictionary_keys(parts)?;
        let map = coded.as_ref().map_or(&parts.map, |coded| &coded.map);
        let (map, scan) = self.plan_map_per_split(&parts.stream, map)?;
        let switch = StateUpdateSwitch::default();
        let is_scaled = can_sample_splits(scan.splits()) && !turbo.is_unscaled;
        let bounds = self.bounded_estimates.as_ref().filter(|_| is_scaled);
        let cells = bounds.map(|_| split_count_with_left_out(&scan));
        let spec = match bounds.zip(cells) {
            Some((bounds, splits)) => bounds.add_cell_aggregates(&parts.spec, splits, &switch),
            None => Arc::clone(&parts.spec),
        };
        let carried =
            self.bounded_estimates.as_ref().map_or(Vec::new(), |bounds| bounds.carried_fields());
        let mut part = AnswerBuilder {
            table_spec: Arc::clone(&spec),
            quantities: self
                .bounded_estimates
                .as_ref()
                .map_or(Vec::new(), |it| it.quantities.clone()),
            quantile_value_count: self
                .bounded_estimates
                .as_ref()
                .map_or(0, |it| it.quantile_values.len()),
            estimands: self
                .bounded_estimates
                .as_ref()
                .map_or(Vec::new(), |it| it.estimands.clone()),
            sample: None,
            is_exact: false,
            has_withheld_bounds: false,
            row_count_limits: InputRowMaxima::UNLIMITED,
            missing_interval_reasons: MissingIntervalReasons::default(),
            finished_schema: parts.finished_schema_with_columns(&carried),
        };
        let work = local_runner::SampledRunContext {
            map,
            scan: Arc::clone(&scan),
            table_spec: spec,
            threads: self.settings.threads,
            memory_account: self.settings.new_table_account(),
            spill_dirs: self.settings.spill_dirs.clone(),
            cancel: self.settings.cancel.clone(),
            stop_request: self.settings.stop_reading.clone(),
            progress: self.settings.progress.clone(),
            interval_count: part.estimands.len(),
            result_rows_max: plan_row_limit(&self.logical_plan).unwrap_or(usize::MAX),
            observer_switch: (!turbo.can_stop_early()).then(|| switch.clone()),
            cell_switch: switch.clone(),
            has_exact_starts: is_careful,
            stall_timeout: None,
            guessed_starts: Arc::default(),
        };
        let until = turbo.stop_condition();
        let mut watch = watch;
        if let Some(watch) = &mut watch {
            (watch.on_result)(InterimResult {
                schema: self
                    .bounded_estimates
                    .as_ref()
                    .map_or(Ok(Arc::clone(self.schema())), |it| it.schema_with_bounds())?,
                batches: Vec::new(),
                bytes_read_share: 0.0,
                coverage: Coverage { complete: false, ..Coverage::default() },
            });
        }
        let mut looking = RunInspector {
            plan: self,
            parts,
            answer_builder: &part,
            scan: &scan,
            turbo,
            error_max: turbo.target_error,
            confidence: turbo.confidence(),
            next_inspection: 1,
            next_interim_at: Instant::now()
                + watch.as_ref().map_or(FIRST_INTERIM_DELAY, |watch| watch.first_delay),
            observer: watch,
        };
        let taken = match &self.query.workers {
            None => local_runner::run_locally(work, &until, &mut looking)?,
            Some(workers) => {
                let drawn = SampledReadOptions { cells, is_careful };
                let tasks = tasks::start_sampled_tables(
                    self,
                    parts,
                    &work.table_spec,
                    drawn,
                    &scan,
                    workers,
                )?;
                worker_runner::run_on_workers(&work, tasks, &until, &mut looking)?
            }
        };
        let SampledTables { merged, outcome: read, .. } = taken;
        // A deadline leaves no time to read all of the input once more, however long that takes.
        let is_to_be_estimated = !read.is_whole_input() || until.ends_at.is_some();
        if read.wrong_start_count > 0 && !is_careful && is_to_be_estimated && read.sample.is_some()
        {
            // Some rows are wrong, because records begin at other offsets than they seem to.
            drop(merged);
            let watch = looking.observer.take();
            self.source_tables.iter().for_each(|(_, table)| table.discard_scans());
            self.rejects.reset()?;
            return self.run_sampled_attempt(parts, turbo, watch, true);
        }
        let mut account = self.new_coverage_builder(None);
        part.sample = read.sample.clone().filter(|_| !turbo.is_unscaled && !read.is_whole_input());
        part.is_exact = read.is_whole_input();
        part.has_withheld_bounds = switch.is_off();
        part.row_count_limits = row_count_limits(&scan, parts, read.sample.as_ref())?;
        part.missing_interval_reasons = MissingIntervalReasons::new(part.estimands.len());
        if part.is_exact && self.query.turbo.is_none() {
            // The answer is the same as without an observer.
            (part.estimands, part.finished_schema) = (Vec::new(), parts.finished_schema());
        }
        if read.is_whole_input() && read.wrong_start_count > 0 {
            // All of it was read, but some splits began within a record: read once more, in input order.
            self.source_tables.iter().for_each(|(_, table)| table.discard_scans());
            self.rejects.reset()?;
            drop(merged);
            let merged = self.aggregate_input(parts, FoldOutput::Answers)?;
            part.table_spec = Arc::clone(&parts.spec);
            let read = ReadOutcome { wrong_start_count: 0, ..read };
            account.part_read =
                turbo.can_stop_early().then(|| build_partial_coverage(&scan, turbo, &read));
            return Ok((merged, part, account));
        }
        if read.is_whole_input() {
            let scans = self.source_tables.iter().flat_map(|(_, table)| table.scans());
            scans.into_iter().try_for_each(|scan| scan.read_remaining_splits())?;
        }
        if !read.is_whole_input() || turbo.can_stop_early() {
            let mut read = build_partial_coverage(&scan, turbo, &read);
            let known = self.bounded_estimates.as_ref().or(self.unbounded_estimates.as_ref());
            if parts.spec.keys.is_empty() || known.is_some_and(|known| !known.has_groups) {
                // There is one group, and it was seen.
                read.sampled.unseen_share = None;
            }
            if let Some(known) = known {
                if !turbo.is_unscaled {
                    read.sampled.by_estimates =
                        known.estimate_clauses.iter().map(ToString::to_string).collect();
                }
                read.unbounded_estimates = known
                    .unbounded_estimates(self.bounded_estimates.is_some(), read.sampled.scaled);
                read.missing_intervals =
                    (part.missing_interval_reasons.clone(), known.estimate_indices());
            }
            account.part_read = Some(read);
        }
        let rows = self.source_tables.iter().flat_map(|(_, table)| table.scans());
        self.rejects.finish(rows.map(|scan| scan.row_count()).sum())?;
        Ok((merged, part, account))
    }
}

impl QueryPlan {
    /// Returns the query's keys and aggregates with the aggregates by cell, for `splits` splits.
    ///
    /// # Errors
    /// Fails if the query has no estimates.
    pub(crate) fn table_spec_with_cells(
        &self,
        parts: &AggregationPlan,
        splits: usize,
    ) -> Result<Arc<TableSpec>> {
        let bounds = parts.find_estimates(&self.logical_plan, self.schema(), true);
        let bounds = bounds.ok_or_else(turbo_summary_error)?;
        Ok(bounds.add_cell_aggregates(&parts.spec, splits, &StateUpdateSwitch::default()))
    }

    /// Starts to find rows, in no defined order.
    ///
    /// # Errors
    /// Errors of planning, and if no thread can be started.
    pub(crate) fn start_unordered_rows(
        &self,
        (stream, map, sides): (&TableReference, &LogicalPlan, &[BuildSide]),
        (skip, fetch): (usize, Option<usize>),
    ) -> Result<RowSource> {
        let turbo = self.query.turbo.clone().unwrap_or_default();
        if let Some((_, table)) = self.source_tables.iter().find(|(name, _)| name == stream.table())
        {
            table.split_finely(turbo.split_bytes);
        }
        let (split_map, scan) = self.plan_map_per_split(stream, map)?;
        let found = turbo.find_rows_max.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        let fetch = fetch.into_iter().chain(found).min();
        if let Some(workers) = &self.query.workers {
            let limits = (skip, fetch);
            let tasks = tasks::start_sampled_rows(self, (stream, sides), limits, &scan, workers)?;
            let RunSettings { progress, cancel, stop_reading: enough, .. } = &self.settings;
            let run = (progress, cancel, enough);
            let found = UnorderedWorkerRows::start_search(&scan, tasks, turbo, limits, run)?;
            return Ok(RowSource::WorkersUnordered(Box::new(found)));
        }
        let map = split_map;
        let finding = UnorderedRowsContext {
            map,
            scan,
            cancel: self.settings.cancel.clone(),
            stop_request: self.settings.stop_reading.clone(),
            progress: self.settings.progress.clone(),
            threads: self.settings.threads,
            stall_timeout: None,
        };
        Ok(RowSource::LocalUnordered(UnorderedRows::start_threads(finding, turbo, (skip, fetch))?))
    }
}

/// Returns the maximum number of rows of a plan, if the plan has a limit.
fn plan_row_limit(plan: &LogicalPlan) -> Option<usize> {
    match plan {
        LogicalPlan::Limit(limit) => match limit.get_fetch_type().ok()? {
            FetchType::Literal(fetch) => fetch,
            FetchType::UnsupportedExpr => None,
        },
        LogicalPlan::Sort(sort) => sort.fetch.or_else(|| plan_row_limit(&sort.input)),
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => match plan.inputs()[..] {
            [input] => plan_row_limit(input),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the assumed maximum number of rows in the splits not read: twice as many for each byte as in the
/// splits read, plus the rows of a mean split.
fn unread_rows_max(scan: &Scan, sample: Option<&SplitSample>) -> f64 {
    let Some(sample) = sample.filter(|sample| sample.splits_read() > 0) else {
        return f64::INFINITY;
    };
    let rows = scan.row_count() as f64;
    let unread = 1.0 / sample.read_share() - 1.0;
    2.0 * rows * unread + rows / sample.splits_read() as f64
}

/// Assumed maximum number of rows that a join or `unnest` makes of a row; the true number is unknown.
const ROW_MULTIPLIER_MAX: f64 = 10.0;

/// Returns the numbers of rows that limit the counts of a table.
///
/// # Errors
/// Returns an error if the plan of the map cannot be analysed.
fn row_count_limits(
    scan: &Scan,
    parts: &AggregationPlan,
    sample: Option<&SplitSample>,
) -> Result<InputRowMaxima> {
    let read = scan.row_count() as f64;
    // A join or `unnest` may multiply rows by an unknown factor, so there is no limit on unread rows then.
    let (read, unread) = match parts.may_multiply_rows()? {
        true => (read * ROW_MULTIPLIER_MAX, f64::INFINITY),
        false => (read, unread_rows_max(scan, sample)),
    };
    Ok(InputRowMaxima {
        read_max: read,
        unread_max: unread,
        is_every_row_in_table: parts.counts_every_row()?,
    })
}

/// An interim result, computed while the run reads on. The first one has no rows: it comes before anything is
/// read, and announces that others may follow.
#[derive(Debug, Clone)]
pub struct InterimResult {
    /// Its columns, with the bounds of each estimate behind it.
    pub schema: SchemaRef,
    /// Its rows, or the first of many.
    pub batches: Vec<RecordBatch>,
    /// The share of the bytes that was read, from 0 to 1.
    pub bytes_read_share: f64,
    /// Its coverage, which is not complete.
    pub coverage: Coverage,
}

/// An observer of interim results.
pub struct InterimResultObserver<'a> {
    /// Time before the first interim result: a short run shows its answer only.
    pub first_delay: Duration,
    /// Receives each interim result.
    pub on_result: &'a mut (dyn FnMut(InterimResult) + 'a),
}

impl<'a> InterimResultObserver<'a> {
    /// Creates an observer for runs that take longer than 300 ms.
    pub fn new(show: &'a mut (dyn FnMut(InterimResult) + 'a)) -> Self {
        InterimResultObserver { first_delay: FIRST_INTERIM_DELAY, on_result: show }
    }
}

/// Maximum number of rows of an interim result: nobody looks at more.
const INTERIM_ROWS_MAX: usize = 10_000;

/// Default time before the first interim result: short runs show their answer only.
const FIRST_INTERIM_DELAY: Duration = Duration::from_millis(300);

/// Minimum time between two interim results.
const INTERIM_PAUSE_MIN: Duration = Duration::from_millis(150);

/// Minimum time between two interim results, as a multiple of the time that the last one took.
const INTERIM_PAUSE_FACTOR: u32 = 20;

/// Inspects the tables during a run: for the target error, and for interim results.
struct RunInspector<'a, 'w> {
    plan: &'a QueryPlan,
    parts: &'a AggregationPlan,
    /// The answer builder, without a sample.
    answer_builder: &'a AnswerBuilder,
    scan: &'a Scan,
    turbo: &'a TurboSettings,
    /// Target error: the maximum half width of an interval, as a share of its estimate.
    error_max: Option<f64>,
    confidence: f64,
    /// The number of the next inspection for the target error, from 1.
    next_inspection: u32,
    observer: Option<InterimResultObserver<'w>>,
    /// Time at which the next interim result is due.
    next_interim_at: Instant,
}

impl TableInspector for RunInspector<'_, '_> {
    fn is_due(&self, splits_read: u64) -> bool {
        let is_precise_due =
            self.error_max.is_some() && splits_read >= splits_before_look(self.next_inspection);
        let is_glimpse_due = self.observer.is_some() && Instant::now() >= self.next_interim_at;
        splits_read > 0 && (is_precise_due || is_glimpse_due)
    }

    fn time_until_due(&self) -> Option<Duration> {
        let soon = || self.next_interim_at.saturating_duration_since(Instant::now());
        self.observer.as_ref().map(|_| soon().max(Duration::from_millis(1)))
    }

    fn inspect(&mut self, snapshot: TableSnapshot) -> Result<Option<f64>> {
        let enough = self.precise_confidence(&snapshot)?;
        if self.observer.is_some() && Instant::now() >= self.next_interim_at {
            let began = Instant::now();
            let schema = match self.plan.bounded_estimates.as_ref() {
                Some(bounds) => bounds.schema_with_bounds()?,
                None => Arc::clone(self.plan.schema()),
            };
            let TableSnapshot { answer, sample, bytes_read_share: share, ends_at } = snapshot;
            let coverage = self.interim_coverage(sample.clone(), share);
            let batches =
                ignore_estimate_errors(self.interim_rows(&answer, sample, &schema, ends_at))?;
            if let (Some(watch), Some(batches)) = (&mut self.observer, batches) {
                (watch.on_result)(InterimResult {
                    schema,
                    batches,
                    bytes_read_share: share,
                    coverage,
                });
            }
            self.next_interim_at =
                Instant::now() + INTERIM_PAUSE_MIN.max(began.elapsed() * INTERIM_PAUSE_FACTOR);
        }
        Ok(enough)
    }
}

/// Returns an interim result, or `None` if it cannot be computed. An early estimate may be too large for its
/// type, or fail in a cast or division, where the answer over all of the input does not. Only errors of the
/// final answer end a run.
///
/// # Errors
/// [`Error::Interrupted`] and [`Error::Internal`], which do not depend on the estimate.
fn ignore_estimate_errors<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error @ (Error::Interrupted | Error::Internal(_))) => Err(error),
        Err(_) => Ok(None),
    }
}

impl RunInspector<'_, '_> {
    /// Returns the confidence of the intervals if the answer reaches the target error.
    fn precise_confidence(&mut self, snapshot: &TableSnapshot) -> Result<Option<f64>> {
        let (Some(most), Some(sample), Some(bounds)) =
            (self.error_max, &snapshot.sample, self.plan.bounded_estimates.as_ref())
        else {
            return Ok(None);
        };
        if sample.splits_read() < splits_before_look(self.next_inspection) {
            return Ok(None);
        }
        // Inspections that were missed are not made up for: only the last one that is due counts.
        while sample.splits_read() >= splits_before_look(self.next_inspection + 1) {
            self.next_inspection += 1;
        }
        let confidence = look_confidence(self.next_inspection, self.confidence);
        self.next_inspection += 1;
        let sample = sample.with_confidence(confidence);
        let mut shown: Vec<ColumnIntervalWidths> = Vec::new();
        let TableSnapshot { answer, ends_at, .. } = snapshot;
        let rows = self.interim_rows(answer, Some(sample), self.plan.schema(), *ends_at);
        let Some(batches) = ignore_estimate_errors(rows)? else { return Ok(None) };
        for batch in batches {
            record_interval_widths(&mut shown, &batch);
        }
        // Columns that are bounds by themselves never have an interval, so they do not count. An estimate that has no
        // interval yet makes the run read on.
        let mut estimates =
            shown.iter().zip(bounds.interval_flags()).filter(|(_, has_interval)| *has_interval);
        let is_precise =
            !shown.is_empty() && estimates.all(|(shown, _)| shown.is_within_error(most));
        Ok(is_precise.then_some(confidence))
    }

    /// Returns the coverage of an interim result.
    fn interim_coverage(&self, sample: Option<SplitSample>, share: f64) -> Coverage {
        let bytes = self.plan.settings.progress.bytes_done();
        let read = ReadOutcome {
            stop_reason: StopReason::StopRequest,
            sample,
            given_up_splits: Vec::new(),
            left_out_files: Vec::new(),
            in_flight_splits: Vec::new(),
            wrong_start_count: 0,
            counted_bytes: bytes,
        };
        let mut part = build_partial_coverage(self.scan, self.turbo, &read);
        (part.stop_text, part.sampled.share) = (None, share);
        let account =
            CoverageBuilder { part_read: Some(part), ..self.plan.new_coverage_builder(None) };
        account.build_coverage(false)
    }

    /// Returns the rows that the result would have. Rows that are computed after `ends_at` have no intervals,
    /// and count as imprecise.
    fn interim_rows(
        &self,
        answer: &RecordBatch,
        sample: Option<SplitSample>,
        schema: &SchemaRef,
        ends_at: Option<Instant>,
    ) -> Result<Vec<RecordBatch>> {
        // Unread rows have no limit here, because their number is not known before the end.
        let counts = row_count_limits(self.scan, self.parts, None)?;
        let part =
            AnswerBuilder { sample, row_count_limits: counts, ..self.answer_builder.clone() };
        let intervals = part.interval_calculator(self.plan.settings.threads, ends_at);
        let answers = Box::new(std::iter::once(part.build_answer(answer)));
        let carried = self
            .plan
            .bounded_estimates
            .as_ref()
            .map_or(Vec::new(), |bounds| bounds.carried_fields());
        let cancel = &self.plan.settings.cancel;
        let bounds = self.plan.bounded_estimates.as_deref();
        let mut rows = self.plan.start_finish_plan(
            self.parts,
            answers,
            &carried,
            bounds.map(|it| (it, intervals.as_ref(), false)),
        )?;
        let (mut batches, mut count) = (Vec::new(), 0);
        while let Some(batch) = rows.next_batch(cancel)? {
            count += batch.num_rows();
            batches.push(conform_batch_to_schema(batch, schema)?);
            // For the target error all rows are inspected.
            if self.error_max.is_none() && count > INTERIM_ROWS_MAX {
                break;
            }
        }
        Ok(batches)
    }
}

/// Checks that a plan has estimates, which become more precise with more input.
///
/// # Errors
/// [`Error::Usage`] if it has none.
pub(crate) fn check_has_estimates(known: &[ColumnCertainty]) -> Result<()> {
    match known.iter().any(|known| matches!(known, ColumnCertainty::Estimate(_))) {
        true => Ok(()),
        false => Err(Error::usage_with_hint(
            "`error` is of counts, sums, means and ratios of them, and the query has none",
            "say when to stop: --deadline 7s, --drop 10% or --sample 1%",
        )),
    }
}
