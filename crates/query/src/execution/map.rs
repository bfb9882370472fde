//! The map of a query: filters and computes each split's rows.
//!
//! A map is a DataFusion physical plan with a partition for each split. Most maps consist of filters and
//! projections. Those steps are applied to the batches of a split one after the other, with the plan's own
//! expressions. Executing the plan instead creates a stream, a schema and some ten metrics for each step of
//! each split, which live until the end. They take 8 µs and 2.5 kB per split, more than the rows themselves
//! for 100,000 small splits. A map with other steps (a join, an unnest) executes its plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::{BatchCoalescer, filter_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::Projector;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use futures::StreamExt;
use futures::executor::block_on;
use tidemill_base::error::{Error, Result};
use tidemill_sql::IntoTidemillError;
use tidemill_sql::into_datafusion_error;
use tidemill_sql::scan_statistics::ScanWithStatistics;

use crate::execution::scan::{Scan, SplitBatches};

/// The map of a query over the splits of one scan.
pub(crate) struct SplitMap {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    scan: Arc<Scan>,
    /// The steps from the scan upwards; `None` if the plan has steps of other kinds and must be executed.
    steps: Option<Arc<[MapStep]>>,
    /// Number of splits for which the plan was executed.
    executed_splits: Arc<AtomicUsize>,
}

/// Maximum number of splits for which one plan is executed. The plan keeps its metrics of every split for its
/// lifetime, so a longer run plans anew.
const EXECUTED_SPLITS_MAX: usize = 4096;

enum MapStep {
    Filter {
        predicate: Arc<dyn PhysicalExpr>,
        /// The columns to return; `None` for all.
        columns: Option<Vec<usize>>,
        schema: SchemaRef,
        batch_rows: usize,
    },
    Project(Projector),
    /// Selects columns of the scan.
    SelectColumns(Vec<usize>),
}

impl SplitMap {
    /// Creates a map from a physical plan over `scan`.
    ///
    /// # Errors
    /// Errors of rebuilding a projection.
    pub(crate) fn new(
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        scan: Arc<Scan>,
    ) -> Result<Self> {
        let mut steps = Vec::new();
        let is_known = collect_steps(&plan, &scan, &mut steps).into_tidemill_error()?;
        let steps = is_known.then(|| steps.into());
        Ok(SplitMap { plan, context, scan, steps, executed_splits: Arc::default() })
    }

    /// Returns the map over other splits, those of a scan made by [`Scan::with_splits`]. Returns `None` if
    /// the map must be planned anew.
    pub(crate) fn rebind_scan(&self, scan: &Arc<Scan>) -> Option<SplitMap> {
        let is_kept = match self.steps {
            Some(_) => true,
            None => {
                scan.has_reusable_plan()
                    && self.executed_splits.load(Ordering::Relaxed) < EXECUTED_SPLITS_MAX
            }
        };
        is_kept.then(|| SplitMap {
            plan: Arc::clone(&self.plan),
            context: Arc::clone(&self.context),
            scan: Arc::clone(scan),
            steps: self.steps.clone(),
            executed_splits: Arc::clone(&self.executed_splits),
        })
    }

    /// Returns true if the map applies its steps to batches and does not execute its plan.
    #[cfg(test)]
    pub(crate) fn applies_steps(&self) -> bool {
        self.steps.is_some()
    }

    /// Returns the map such that it executes its plan.
    #[cfg(test)]
    pub(crate) fn with_plan_execution(self) -> Self {
        SplitMap { steps: None, ..self }
    }

    /// Returns the mapped rows of a split. Reading starts with the first batch requested.
    ///
    /// # Errors
    /// Errors of executing the plan.
    pub(crate) fn split_rows(&self, index: usize) -> Result<MapRows> {
        let Some(steps) = &self.steps else {
            self.executed_splits.fetch_add(1, Ordering::Relaxed);
            let execute = || self.plan.execute(index, Arc::clone(&self.context));
            let stream = self.scan.execute_plan(execute).into_tidemill_error()?;
            return Ok(MapRows::PlanStream(stream));
        };
        Ok(MapRows::Steps(StepPipeline {
            batches: SplitBatches::new(Arc::clone(&self.scan), index),
            steps: Arc::clone(steps),
            coalescers: steps.iter().map(|step| step.new_coalescer(self.scan.is_eager())).collect(),
            has_ended: false,
        }))
    }
}

/// Appends the steps of a plan, from the scan upwards. Returns false if a step is neither a filter nor a
/// projection.
fn collect_steps(
    plan: &Arc<dyn ExecutionPlan>,
    scan: &Scan,
    steps: &mut Vec<MapStep>,
) -> PlanResult<bool> {
    if let Some(known) = plan.downcast_ref::<ScanWithStatistics>() {
        let Some(streams) = known.scan().downcast_ref::<StreamingTableExec>() else {
            return Ok(false);
        };
        // `schema()` of a scan without partitions panics.
        let is_whole = streams.limit().is_none()
            && !streams.partitions().is_empty()
            && streams.partitions().len() == scan.splits().len()
            && streams.partition_schema() == scan.schema();
        if let Some(columns) = streams.projection() {
            steps.push(MapStep::SelectColumns(columns.to_vec()));
        }
        return Ok(is_whole);
    }
    if let Some(step) = plan.downcast_ref::<CooperativeExec>() {
        return collect_steps(step.input(), scan, steps);
    }
    if let Some(step) = plan.downcast_ref::<ProjectionExec>() {
        if !collect_steps(step.input(), scan, steps)? {
            return Ok(false);
        }
        let (from, to) = (step.input().schema(), step.schema());
        let projector = step.projection_expr().make_projector_with_schema_metadata(&from, &to)?;
        steps.push(MapStep::Project(projector));
        return Ok(true);
    }
    if let Some(step) = plan.downcast_ref::<FilterExec>().filter(|step| step.fetch().is_none()) {
        if !collect_steps(step.input(), scan, steps)? {
            return Ok(false);
        }
        steps.push(MapStep::Filter {
            predicate: Arc::clone(step.predicate()),
            columns: step.projection().as_ref().map(|columns| columns.to_vec()),
            schema: step.schema(),
            batch_rows: step.batch_size(),
        });
        return Ok(true);
    }
    Ok(false)
}

/// An iterator over the batches of a split after the map.
pub(crate) enum MapRows {
    /// The stream of the executed plan.
    PlanStream(SendableRecordBatchStream),
    /// The steps, applied to the batches of the split.
    Steps(StepPipeline),
}

/// The steps of a map at work on one split.
pub(crate) struct StepPipeline {
    batches: SplitBatches,
    steps: Arc<[MapStep]>,
    /// For each step the coalescer that gathers the few rows that a filter keeps of each batch; `None` for
    /// projections.
    coalescers: Vec<Option<BatchCoalescer>>,
    has_ended: bool,
}

impl Iterator for MapRows {
    type Item = PlanResult<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let applied = match self {
            MapRows::PlanStream(stream) => return block_on(stream.next()),
            MapRows::Steps(applied) => applied,
        };
        let StepPipeline { batches, steps, coalescers: gathered, has_ended } = applied;
        next_mapped_batch(steps, gathered, (batches, has_ended))
            .inspect_err(|_| applied.has_ended = true)
            .transpose()
    }
}

/// Returns the next batch after the last of `steps`.
fn next_mapped_batch(
    steps: &[MapStep],
    gathered: &mut [Option<BatchCoalescer>],
    (batches, has_ended): (&mut SplitBatches, &mut bool),
) -> PlanResult<Option<RecordBatch>> {
    let (Some((step, earlier)), Some((own, gathered))) =
        (steps.split_last(), gathered.split_last_mut())
    else {
        return if *has_ended { Ok(None) } else { batches.next().transpose() };
    };
    loop {
        if let Some(ready) = own.as_mut().and_then(BatchCoalescer::next_completed_batch) {
            return Ok(Some(ready));
        }
        match next_mapped_batch(earlier, gathered, (&mut *batches, &mut *has_ended))? {
            Some(batch) => {
                if let Some(batch) = step.apply_to_batch(batch, own)? {
                    return Ok(Some(batch));
                }
            }
            None => {
                *has_ended = true;
                let Some(own) = own else { return Ok(None) };
                own.finish_buffered_batch()?;
                return Ok(own.next_completed_batch());
            }
        }
    }
}

impl MapStep {
    /// Creates the coalescer of a filter. Returns `None` for other steps, and where rows must pass on at
    /// once.
    fn new_coalescer(&self, is_eager: bool) -> Option<BatchCoalescer> {
        let MapStep::Filter { schema, batch_rows, .. } = self else { return None };
        if is_eager {
            return None;
        }
        let gathered = BatchCoalescer::new(Arc::clone(schema), *batch_rows);
        // A batch with many rows is not copied.
        Some(gathered.with_biggest_coalesce_batch_size(Some(batch_rows / 2)))
    }

    /// Applies the step to a batch. Returns the result, or `None` if all rows are dropped or held back in
    /// `gathered`.
    fn apply_to_batch(
        &self,
        batch: RecordBatch,
        gathered: &mut Option<BatchCoalescer>,
    ) -> PlanResult<Option<RecordBatch>> {
        match self {
            MapStep::Project(projector) => projector.project_batch(&batch).map(Some),
            MapStep::SelectColumns(columns) => Ok(Some(batch.project(columns)?)),
            MapStep::Filter { predicate, columns, .. } => {
                let kept = predicate.evaluate(&batch)?.into_array(batch.num_rows())?;
                let kept = kept.as_boolean_opt().ok_or_else(|| {
                    into_datafusion_error(Error::Internal("a condition is no BOOLEAN".into()))
                })?;
                let batch = match columns {
                    Some(columns) => batch.project(columns)?,
                    None => batch,
                };
                let batch = filter_record_batch(&batch, kept)?;
                let Some(gathered) = gathered else {
                    return Ok((batch.num_rows() > 0).then_some(batch));
                };
                gathered.push_batch(batch)?;
                Ok(gathered.next_completed_batch())
            }
        }
    }
}
