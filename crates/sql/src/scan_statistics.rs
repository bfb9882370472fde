//! Estimated statistics of scans, by which joins are planned: row counts and value ranges of columns.
//!
//! All of them are estimates: no result is ever derived from them. A plan without a join is planned as if
//! nothing were known.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{Result as PlanResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use tidemill_base::error::Error;
use tidemill_planning::DynTreeNode;

use tidemill_dialect::error_translation::into_datafusion_error;

/// Assumed bytes of a text in addition to the sixteen bytes of its view.
const ASSUMED_TEXT_BYTES: usize = 16;

/// Returns the approximate bytes of a row of these columns in memory.
pub fn estimate_row_bytes(schema: &Schema) -> usize {
    let bytes = |of: &DataType| match of {
        DataType::Null => 0,
        DataType::Boolean => 1,
        other => other.primitive_width().unwrap_or(16 + ASSUMED_TEXT_BYTES),
    };
    schema.fields().iter().map(|field| bytes(field.data_type())).sum::<usize>().max(1)
}

/// Computes the statistics of a scan when they are needed.
pub type StatisticsProvider = Arc<dyn Fn() -> Statistics + Send + Sync>;

/// A scan that can report its number of rows.
pub struct ScanWithStatistics {
    scan: Arc<dyn ExecutionPlan>,
    statistics_provider: StatisticsProvider,
    /// Statistics of the output columns; `None` in a plan without joins.
    reported_statistics: Option<Arc<Statistics>>,
    /// True if the partitions take their splits from one shared queue, in the order of the source.
    shares_splits: bool,
}

impl ScanWithStatistics {
    /// Wraps a scan of all its columns, whose statistics `known` returns.
    ///
    /// `shares_splits` is true if the partitions take splits from one shared queue, so that a single
    /// partition reads all rows in source order.
    pub fn new(scan: StreamingTableExec, known: StatisticsProvider, shares_splits: bool) -> Self {
        ScanWithStatistics {
            scan: Arc::new(scan),
            statistics_provider: known,
            reported_statistics: None,
            shares_splits,
        }
    }

    /// Returns the same scan with one partition, which returns rows in source order. Returns `None` if the
    /// scan has one partition already, or if each partition has splits of its own.
    pub(crate) fn single_partition_scan(&self) -> PlanResult<Option<Arc<Self>>> {
        let Some(scan) = self.scan.downcast_ref::<StreamingTableExec>() else { return Ok(None) };
        if !self.shares_splits || scan.partitions().len() < 2 {
            return Ok(None);
        }
        let columns = scan.projection().as_ref().map(|columns| columns.to_vec());
        let single = StreamingTableExec::try_new(
            Arc::clone(scan.partition_schema()),
            scan.partitions()[..1].to_vec(),
            columns.as_ref(),
            scan.projected_output_ordering(),
            scan.is_infinite(),
            scan.limit(),
        )?;
        Ok(Some(self.with_scan(Arc::new(single), self.reported_statistics.clone())))
    }

    /// The wrapped scan.
    pub fn scan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.scan
    }

    fn with_scan(&self, scan: Arc<dyn ExecutionPlan>, said: Option<Arc<Statistics>>) -> Arc<Self> {
        let (known, shares_splits) = (Arc::clone(&self.statistics_provider), self.shares_splits);
        Arc::new(ScanWithStatistics {
            scan,
            statistics_provider: known,
            reported_statistics: said,
            shares_splits,
        })
    }
}

impl fmt::Debug for ScanWithStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scan.fmt(f)
    }
}

impl DisplayAs for ScanWithStatistics {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scan.fmt_as(format, f)
    }
}

impl ExecutionPlan for ScanWithStatistics {
    fn name(&self) -> &'static str {
        "KnownRows"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.scan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => {
                Err(into_datafusion_error(Error::Internal("a scan was given an input".into())))
            }
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        self.scan.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.scan.metrics()
    }

    fn fetch(&self) -> Option<usize> {
        self.scan.fetch()
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.with_scan(self.scan.with_fetch(limit)?, self.reported_statistics.clone()))
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> PlanResult<Option<Arc<dyn ExecutionPlan>>> {
        // A scan without partitions does not know its schema.
        if self.scan.properties().partitioning.partition_count() == 0 {
            return Ok(None);
        }
        let Some(scan) = self.scan.try_swapping_with_projection(projection)? else {
            return Ok(None);
        };
        let columns: Option<Vec<usize>> = projection
            .expr()
            .iter()
            .map(|column| Some(column.expr.downcast_ref::<Column>()?.index()))
            .collect();
        let said = self.reported_statistics.as_ref().zip(columns).map(|(said, columns)| {
            let mut said = said.as_ref().clone().project(Some(&columns));
            set_total_bytes(&mut said, &scan.schema());
            Arc::new(said)
        });
        Ok(Some(self.with_scan(scan, said)))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        let unknown = || Arc::new(Statistics::new_unknown(&self.schema()));
        Ok(match (&self.reported_statistics, args.partition()) {
            (Some(said), None) => Arc::clone(said),
            _ => unknown(),
        })
    }
}

fn set_total_bytes(known: &mut Statistics, schema: &Schema) {
    known.total_byte_size = match known.num_rows.get_value() {
        Some(rows) => Precision::Inexact(rows.saturating_mul(estimate_row_bytes(schema))),
        None => Precision::Absent,
    };
}

/// Makes the scans of a plan with joins report their statistics.
#[derive(Debug)]
pub(crate) struct JoinStatisticsRule;

impl PhysicalOptimizerRule for JoinStatisticsRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let joins = plan.exists_dyn(&mut |step| {
            Ok(step.downcast_ref::<HashJoinExec>().is_some()
                || step.downcast_ref::<CrossJoinExec>().is_some()
                || step.downcast_ref::<NestedLoopJoinExec>().is_some())
        })?;
        if !joins || !config.optimizer.join_reordering {
            return Ok(plan);
        }
        let telling = Arc::clone(&plan)
            .transform_up_dyn(&mut |step| {
                let Some(scan) = step.downcast_ref::<ScanWithStatistics>() else {
                    return Ok(Transformed::no(step));
                };
                let mut known = (scan.statistics_provider)();
                set_total_bytes(&mut known, &scan.schema());
                Ok(Transformed::yes(
                    scan.with_scan(Arc::clone(&scan.scan), Some(Arc::new(known))) as _
                ))
            })
            .data()?;
        // An operator may fail to derive its statistics, for example if a cast of bounds overflows. The plan
        // then keeps no statistics, and the query still runs.
        let mut is_concluded = true;
        telling.apply_dyn(&mut |step| {
            let args = StatisticsArgs::new();
            is_concluded &= StatisticsContext::new().compute(step.as_ref(), &args).is_ok();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if is_concluded { telling } else { plan })
    }

    fn name(&self) -> &str {
        "known_to_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
