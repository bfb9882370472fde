//! The result of a query: an iterator of batches, with the coverage once it has ended.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::{self, Coverage, EstimateAccuracy, ReadAmount, RecordCounts};
use tidemill_base::error::{Error, Result};
use tidemill_base::type_mismatches::TypeMismatches;
use tidemill_base::unknown_keys::UnknownKeys;
use tidemill_source::RejectLog;
use tidemill_sql::statement_planning;
use tidemill_tables::aggregates::precision_recorder::{PlannedAggregateCall, PrecisionRecorder};

use crate::execution::background_execution::BackgroundExecution;
use crate::execution::ordered_rows::OrderedRows;
use crate::execution::result_columns::{conform_batch_to_schema, strip_table_names};
use crate::execution::row_calculation::RowCalculation;
use crate::execution::scan::{Scan, SourceTable};
use crate::statements::query_definition::explain_dotted_column;
use crate::tasks::{OrderedWorkerRows, ShuffledRows};
use crate::turbo::partial_coverage::{
    ColumnIntervalWidths, PartialCoverage, record_interval_widths,
};
use crate::turbo::unordered_rows::UnorderedRows;
use crate::turbo::worker_runner::UnorderedWorkerRows;

/// A running query: an iterator of record batches that also records coverage.
pub struct Results {
    pub(crate) schema: SchemaRef,
    pub(crate) row_source: RowSource,
    /// The projections above the limit of [`row_source`](Self::row_source), where they are not part of it.
    pub(crate) row_calculation: Option<RowCalculation>,
    pub(crate) coverage_builder: CoverageBuilder,
    pub(crate) cancel: CancelFlag,
    pub(crate) has_ended: bool,
    /// True once the iterator has ended without an error.
    pub(crate) is_complete: bool,
}

/// The producer of a result's rows.
pub(crate) enum RowSource {
    /// Rows in input order, read by this process.
    LocalInOrder(OrderedRows),
    /// Rows in input order, read by workers.
    WorkersInOrder(Box<OrderedWorkerRows>),
    /// Rows that workers write to an output's files; the iterator returns rows only where they are few.
    WrittenByWorkers(Box<ShuffledRows>),
    /// Rows in the order in which threads of this process find them.
    LocalUnordered(UnorderedRows),
    /// Rows in the order in which workers find them.
    WorkersUnordered(Box<UnorderedWorkerRows>),
    /// A DataFusion plan.
    Engine(BackgroundExecution),
    /// One batch that is ready, until it is taken.
    SingleBatch(Option<RecordBatch>),
}

/// The inputs from which the coverage of a result is computed.
pub(crate) struct CoverageBuilder {
    /// Coverage of merged partial tables, which replaces that of the scans.
    pub(crate) merged_coverage: Option<Coverage>,
    pub(crate) source_tables: Vec<(String, Arc<SourceTable>)>,
    pub(crate) rejects: Arc<RejectLog>,
    pub(crate) is_mergeable: bool,
    pub(crate) rejected_folder: Option<PathBuf>,
    /// Estimates of the tables' aggregates.
    pub(crate) table_estimates: Arc<Mutex<Vec<EstimateAccuracy>>>,
    /// Precision of the aggregates that DataFusion computes, by their calls.
    pub(crate) engine_precisions: Arc<PrecisionRecorder>,
    pub(crate) engine_aggregates: Vec<PlannedAggregateCall>,
    /// The query, and the plan that runs for it.
    pub(crate) sql: String,
    pub(crate) logical_plan: LogicalPlan,
    /// True if a limit ended the run before all input was read.
    pub(crate) is_cut_short: bool,
    /// True if the query sorts rows and keeps the order of ties.
    pub(crate) is_stable_sort: bool,
    /// The part of the input that was read, where that may not be all.
    pub(crate) part_read: Option<PartialCoverage>,
    /// The bounds that the result has shown so far, by column.
    pub(crate) shown_bounds: Vec<ColumnIntervalWidths>,
}

impl Results {
    /// Returns the schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the coverage; final once the iterator has ended.
    pub fn coverage(&self) -> Coverage {
        self.coverage_builder.build_coverage(self.is_complete)
    }

    /// Returns the next batch of the source, before the projections above its limit.
    fn next_source_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.cancel.check()?;
        match &mut self.row_source {
            RowSource::LocalInOrder(rows) => rows.next().transpose(),
            RowSource::WorkersInOrder(rows) => rows.next().transpose(),
            RowSource::WrittenByWorkers(rows) => rows.next().transpose(),
            RowSource::LocalUnordered(rows) => rows.next().transpose(),
            RowSource::WorkersUnordered(rows) => rows.next().transpose(),
            RowSource::Engine(background) => background.next_batch(&self.cancel),
            RowSource::SingleBatch(batch) => Ok(batch.take()),
        }
    }

    fn next_calculated_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(calculation) = &mut self.row_calculation
                && let Some(batch) = calculation.next_batch()?
            {
                return Ok(Some(batch));
            }
            let next = self.next_source_batch()?;
            match (&self.row_calculation, next) {
                (Some(calculation), Some(rows)) => calculation.push_rows(rows)?,
                (_, next) => return Ok(next),
            }
        }
    }

    fn next_result_batch(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.next_calculated_batch()? {
            let batch = conform_batch_to_schema(batch, &self.schema)?;
            record_interval_widths(&mut self.coverage_builder.shown_bounds, &batch);
            return Ok(Some(batch));
        }
        self.cancel.check()?;
        match &self.row_source {
            RowSource::LocalInOrder(rows) => {
                self.coverage_builder.is_cut_short = rows.is_cut_short()
            }
            RowSource::WorkersInOrder(rows) => {
                self.coverage_builder.is_cut_short = rows.is_cut_short()
            }
            RowSource::LocalUnordered(rows) => {
                self.coverage_builder.part_read = rows.partial_coverage()
            }
            RowSource::WorkersUnordered(rows) => {
                self.coverage_builder.part_read = rows.partial_coverage()
            }
            RowSource::WrittenByWorkers(_) | RowSource::Engine(_) | RowSource::SingleBatch(_) => {}
        }
        if self.coverage_builder.part_read.as_ref().is_none_or(|part| part.stop_text.is_none()) {
            self.coverage_builder.scans().try_for_each(|scan| scan.read_remaining_splits())?;
        }
        self.coverage_builder.rejects.finish(self.coverage_builder.row_count())?;
        if let Some(part) = &mut self.coverage_builder.part_read {
            part.record_end();
        }
        Ok(None)
    }
}

impl Iterator for Results {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next =
            self.next_result_batch().map_err(|error| self.coverage_builder.explain_error(error));
        self.has_ended = !matches!(next, Ok(Some(_)));
        self.is_complete = matches!(next, Ok(None));
        next.transpose()
    }
}

/// Explains an error of a run: removes source names, which are paths, from the call in an overflow, and names
/// the cast in a failed cast.
pub(crate) fn explain_run_error(
    error: Error,
    sql: &str,
    plan: &LogicalPlan,
    tables: &[(String, Arc<SourceTable>)],
) -> Error {
    let Error::Overflow { message, hint } = error else {
        return statement_planning::explain_cast_error(error, sql, Some(plan));
    };
    let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
    Error::Overflow { message: strip_table_names(&message, &names), hint }
}

impl CoverageBuilder {
    fn explain_error(&self, error: Error) -> Error {
        let error = explain_run_error(error, &self.sql, &self.logical_plan, &self.source_tables);
        match (&error, self.source_tables.as_slice()) {
            // A sort finds unknown sort columns only when it runs.
            (Error::Usage { message, .. }, [(_, table)])
                if self.is_stable_sort && message.starts_with("unknown ") =>
            {
                let schema = table.schema_with_hidden_marks();
                let columns: Vec<&str> =
                    schema.fields().iter().map(|f| f.name().as_str()).collect();
                explain_dotted_column(error, &self.sql, &columns)
            }
            _ => error,
        }
    }

    fn scans(&self) -> impl Iterator<Item = Arc<Scan>> + '_ {
        self.source_tables.iter().flat_map(|(_, table)| table.scans())
    }

    fn row_count(&self) -> u64 {
        self.scans().map(|scan| scan.row_count()).sum()
    }

    fn all_estimates(&self) -> Vec<EstimateAccuracy> {
        let mut estimates = self.table_estimates.lock().clone();
        estimates.extend(self.engine_precisions.estimates_of_calls(&self.engine_aggregates));
        estimates
    }

    pub(crate) fn build_coverage(&self, ended: bool) -> Coverage {
        if let Some(merged) = &self.merged_coverage {
            let complete = merged.complete && ended;
            return Coverage { complete, estimates: self.all_estimates(), ..merged.clone() };
        }
        let sum = |of: fn(&Scan) -> ReadAmount| {
            self.scans().map(|scan| of(&scan)).fold(ReadAmount::default(), |a, b| ReadAmount {
                done: a.done + b.done,
                total: a.total + b.total,
                left_out: a.left_out + b.left_out,
            })
        };
        let mut splits = sum(Scan::split_amount);
        let stopped = match (ended, self.is_cut_short || splits.done < splits.total) {
            (true, true) => Some(coverage::LIMIT_REACHED.to_string()),
            _ => None,
        };
        let rejected = self.scans().map(|scan| scan.rejected_count()).sum();
        let sources = self.source_tables.iter().filter_map(|(_, table)| table.source());
        let salvaged: Vec<_> = sources.flat_map(|source| source.salvage_reports()).collect();
        let mut bytes = sum(Scan::byte_amount);
        bytes.left_out += salvaged.iter().map(|file| file.bytes_left_out).sum::<u64>();
        let mut stopped = stopped;
        let mut estimates = self.all_estimates();
        let mut is_whole = true;
        if let Some(part) = &self.part_read {
            is_whole = part.is_whole_input;
            stopped = part.stop_text.clone().filter(|_| ended);
            (splits.left_out, bytes.done) =
                (splits.total - splits.done, part.counted_bytes.max(bytes.done));
            bytes.total = bytes.total.max(bytes.done);
            bytes.left_out += bytes.total - bytes.done;
            if !is_whole {
                // The precision of a sketch of the rows read says nothing about the rest.
                let is_shown = |one: &EstimateAccuracy| {
                    self.shown_bounds.iter().any(|shown| shown.has_column_name(&one.column))
                        || part.unbounded_estimates.iter().any(|other| other.column == one.column)
                };
                estimates.retain(|one| one.has_too_large_answers() || !is_shown(one));
                let shown = self.shown_bounds.iter().enumerate();
                estimates.extend(shown.map(|(place, shown)| shown.coverage_entry(place, part)));
                estimates.extend(part.unbounded_estimates.iter().cloned());
            }
        }
        Coverage {
            version: coverage::COVERAGE_VERSION,
            complete: ended
                && is_whole
                && salvaged.is_empty()
                && !self.rejects.has_incomplete_result(),
            mergeable: self.is_mergeable,
            files: self
                .source_tables
                .iter()
                .filter_map(|(_, table)| table.source())
                .map(|source| source.files().len() as u64)
                .sum(),
            splits,
            bytes,
            rows: RecordCounts { done: self.row_count(), rejected },
            stopped,
            rejected_copy: self
                .rejected_folder
                .as_ref()
                .filter(|_| rejected > 0)
                .map(|folder| folder.display().to_string()),
            estimates,
            sampled: self.part_read.as_ref().map(|part| part.sampled.clone()),
            salvaged,
            // Finding the line numbers of the first ones may mean reading their files up to there.
            unknown_keys: match ended {
                true => self.rejects.unknown_keys(),
                false => UnknownKeys::default(),
            },
            mismatches: match ended {
                true => self.rejects.mismatches(),
                false => TypeMismatches::default(),
            },
            first_rejected: match self.rejects.has_incomplete_result() {
                true => self.rejects.first_records(),
                false => Vec::new(),
            },
        }
    }
}
