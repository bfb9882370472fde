//! What comes out: batches, and in the end the account of what they rest on.

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
use tidemill_tables::precision_recorder::{PlannedAggregateCall, PrecisionRecorder};

use crate::background::Background;
use crate::columns::{named, unqualified};
use crate::question::column_with_dot;
use crate::row_calculation::RowCalculation;
use crate::rows::OrderedRows;
use crate::scan::{Scan, SourceTable};
use crate::tasks::{LaidRows, RowsElsewhere};
use crate::turbo::elsewhere::FoundElsewhere;
use crate::turbo::found::FoundRows;
use crate::turbo::shown::{PartRead, ShownBounds, note_bounds};

/// A running query: an iterator of record batches that also accounts for its input.
pub struct Results {
    pub(crate) schema: SchemaRef,
    pub(crate) inner: RowSource,
    /// The projections above the limit of [`inner`](Self::inner), where they are not part of it.
    pub(crate) calculation: Option<RowCalculation>,
    pub(crate) account: Account,
    pub(crate) cancel: CancelFlag,
    pub(crate) ended: bool,
    /// Whether it ended without an error.
    pub(crate) complete: bool,
}

pub(crate) enum RowSource {
    Rows(OrderedRows),
    Elsewhere(Box<RowsElsewhere>),
    Laid(Box<LaidRows>),
    Found(FoundRows),
    FoundElsewhere(Box<FoundElsewhere>),
    Engine(Background),
    /// Rows that are there, until they are taken.
    Ready(Option<RecordBatch>),
}

pub(crate) struct Account {
    /// What partial tables account for.
    pub(crate) merged: Option<Coverage>,
    pub(crate) tables: Vec<(String, Arc<SourceTable>)>,
    pub(crate) rejects: Arc<RejectLog>,
    pub(crate) mergeable: bool,
    pub(crate) rejected_folder: Option<PathBuf>,
    /// Of the partial tables' columns.
    pub(crate) estimates: Arc<Mutex<Vec<EstimateAccuracy>>>,
    /// Of the others, by the calls that they come from.
    pub(crate) precisions: Arc<PrecisionRecorder>,
    pub(crate) calls: Vec<PlannedAggregateCall>,
    /// What was asked, and what is run for it.
    pub(crate) sql: String,
    pub(crate) plan: LogicalPlan,
    pub(crate) cut_short: bool,
    /// Whether it is of rows in an order that ties keep.
    pub(crate) is_stable: bool,
    /// Which part of the input was read, where that may not be all.
    pub(crate) part: Option<PartRead>,
    /// What was given out of each column with bounds.
    pub(crate) shown: Vec<ShownBounds>,
}

impl Results {
    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What the result rests on; final once the iterator has ended.
    pub fn coverage(&self) -> Coverage {
        self.account.coverage(self.complete)
    }

    /// Returns the next batch of the source, before the projections above its limit.
    fn next_of_source(&mut self) -> Result<Option<RecordBatch>> {
        self.cancel.check()?;
        match &mut self.inner {
            RowSource::Rows(rows) => rows.next().transpose(),
            RowSource::Elsewhere(rows) => rows.next().transpose(),
            RowSource::Laid(rows) => rows.next().transpose(),
            RowSource::Found(rows) => rows.next().transpose(),
            RowSource::FoundElsewhere(rows) => rows.next().transpose(),
            RowSource::Engine(background) => background.next(&self.cancel),
            RowSource::Ready(batch) => Ok(batch.take()),
        }
    }

    fn next_calculated(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(calculation) = &mut self.calculation
                && let Some(batch) = calculation.next_batch()?
            {
                return Ok(Some(batch));
            }
            let next = self.next_of_source()?;
            match (&self.calculation, next) {
                (Some(calculation), Some(rows)) => calculation.push(rows)?,
                (_, next) => return Ok(next),
            }
        }
    }

    fn pull(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.next_calculated()? {
            let batch = named(batch, &self.schema)?;
            note_bounds(&mut self.account.shown, &batch);
            return Ok(Some(batch));
        }
        self.cancel.check()?;
        match &self.inner {
            RowSource::Rows(rows) => self.account.cut_short = rows.is_cut_short(),
            RowSource::Elsewhere(rows) => self.account.cut_short = rows.is_cut_short(),
            RowSource::Found(rows) => self.account.part = rows.account(),
            RowSource::FoundElsewhere(rows) => self.account.part = rows.account(),
            RowSource::Laid(_) | RowSource::Engine(_) | RowSource::Ready(_) => {}
        }
        if self.account.part.as_ref().is_none_or(|part| part.stopped.is_none()) {
            self.account.scans().try_for_each(|scan| scan.read_rest())?;
        }
        self.account.rejects.finish(self.account.rows())?;
        if let Some(part) = &mut self.account.part {
            part.has_ended();
        }
        Ok(None)
    }
}

impl Iterator for Results {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.pull().map_err(|error| self.account.explained(error));
        self.ended = !matches!(next, Ok(Some(_)));
        self.complete = matches!(next, Ok(None));
        next.transpose()
    }
}

/// An error that names a calculation, without the names of tables, which are paths; one of a cast with the
/// cast.
pub(crate) fn explained(
    error: Error,
    sql: &str,
    plan: &LogicalPlan,
    tables: &[(String, Arc<SourceTable>)],
) -> Error {
    let Error::Overflow { message, hint } = error else {
        return statement_planning::explain_cast_error(error, sql, Some(plan));
    };
    let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
    Error::Overflow { message: unqualified(&message, &names), hint }
}

impl Account {
    fn explained(&self, error: Error) -> Error {
        let error = explained(error, &self.sql, &self.plan, &self.tables);
        match (&error, self.tables.as_slice()) {
            // Whether there is what rows are sorted by is found when they are.
            (Error::Usage { message, .. }, [(_, table)])
                if self.is_stable && message.starts_with("unknown ") =>
            {
                let schema = table.kept_schema();
                let columns: Vec<&str> =
                    schema.fields().iter().map(|f| f.name().as_str()).collect();
                column_with_dot(error, &self.sql, &columns)
            }
            _ => error,
        }
    }

    fn scans(&self) -> impl Iterator<Item = Arc<Scan>> + '_ {
        self.tables.iter().flat_map(|(_, table)| table.scans())
    }

    fn rows(&self) -> u64 {
        self.scans().map(|scan| scan.row_count()).sum()
    }

    fn estimates(&self) -> Vec<EstimateAccuracy> {
        let mut estimates = self.estimates.lock().clone();
        estimates.extend(self.precisions.estimates_of_calls(&self.calls));
        estimates
    }

    pub(crate) fn coverage(&self, ended: bool) -> Coverage {
        if let Some(merged) = &self.merged {
            let complete = merged.complete && ended;
            return Coverage { complete, estimates: self.estimates(), ..merged.clone() };
        }
        let sum = |of: fn(&Scan) -> ReadAmount| {
            self.scans().map(|scan| of(&scan)).fold(ReadAmount::default(), |a, b| ReadAmount {
                done: a.done + b.done,
                total: a.total + b.total,
                left_out: a.left_out + b.left_out,
            })
        };
        let mut splits = sum(Scan::split_amount);
        let stopped = match (ended, self.cut_short || splits.done < splits.total) {
            (true, true) => Some(coverage::LIMIT_REACHED.to_string()),
            _ => None,
        };
        let rejected = self.scans().map(|scan| scan.rejected_count()).sum();
        let sources = self.tables.iter().filter_map(|(_, table)| table.source());
        let salvaged: Vec<_> = sources.flat_map(|source| source.salvage_reports()).collect();
        let mut bytes = sum(Scan::byte_amount);
        bytes.left_out += salvaged.iter().map(|file| file.bytes_left_out).sum::<u64>();
        let mut stopped = stopped;
        let mut estimates = self.estimates();
        let mut is_whole = true;
        if let Some(part) = &self.part {
            is_whole = part.is_whole;
            stopped = part.stopped.clone().filter(|_| ended);
            (splits.left_out, bytes.done) =
                (splits.total - splits.done, part.bytes.max(bytes.done));
            bytes.total = bytes.total.max(bytes.done);
            bytes.left_out += bytes.total - bytes.done;
            if !is_whole {
                // How good a sketch of what was seen is says nothing of the rest.
                let is_shown = |one: &EstimateAccuracy| {
                    self.shown.iter().any(|shown| shown.is_of(&one.column))
                        || part.unbounded.iter().any(|other| other.column == one.column)
                };
                estimates.retain(|one| one.has_too_large_answers() || !is_shown(one));
                let shown = self.shown.iter().enumerate();
                estimates.extend(shown.map(|(place, shown)| shown.estimate(place, part)));
                estimates.extend(part.unbounded.iter().cloned());
            }
        }
        Coverage {
            version: coverage::COVERAGE_VERSION,
            complete: ended
                && is_whole
                && salvaged.is_empty()
                && !self.rejects.has_incomplete_result(),
            mergeable: self.mergeable,
            files: self
                .tables
                .iter()
                .filter_map(|(_, table)| table.source())
                .map(|source| source.files().len() as u64)
                .sum(),
            splits,
            bytes,
            rows: RecordCounts { done: self.rows(), rejected },
            stopped,
            rejected_copy: self
                .rejected_folder
                .as_ref()
                .filter(|_| rejected > 0)
                .map(|folder| folder.display().to_string()),
            estimates,
            sampled: self.part.as_ref().map(|part| part.sampled.clone()),
            salvaged,
            // Looking for the lines of the first ones may mean reading their files up to there.
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
