//! `ORDER BY … LIMIT` with more rows than memory holds.
//!
//! DataFusion keeps the rows of a limit in a heap, which cannot spill. If they would take more than a part of
//! a sort's memory, this rule sorts all rows, which spills, and puts the limit above the sort.

use std::sync::Arc;
use tidemill_planning::DynTreeNode;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result as PlanResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;

/// Replaces large top-k sorts by a full sort below a limit.
#[derive(Debug)]
pub(crate) struct LargeLimitRule {
    /// Maximum bytes of a limit's rows by a rough estimate.
    pub heap_bytes_max: usize,
}

impl PhysicalOptimizerRule for LargeLimitRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up_dyn(&mut |plan| {
            let Some(sort) = plan.downcast_ref::<SortExec>() else {
                return Ok(Transformed::no(plan));
            };
            let Some(rows) = sort.fetch() else { return Ok(Transformed::no(plan)) };
            if rows.saturating_mul(heap_row_bytes(&sort.schema())) <= self.heap_bytes_max {
                return Ok(Transformed::no(plan));
            }
            let all: Arc<dyn ExecutionPlan> = Arc::new(sort.with_fetch(None));
            let limited: Arc<dyn ExecutionPlan> = match sort.preserve_partitioning() {
                true => Arc::new(LocalLimitExec::new(all, rows)),
                false => Arc::new(GlobalLimitExec::new(all, 0, Some(rows))),
            };
            Ok(Transformed::yes(limited))
        })
        .data()
    }

    fn name(&self) -> &str {
        "large_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the approximate bytes of a row in a heap: its values, and its sort key.
fn heap_row_bytes(schema: &Schema) -> usize {
    fn value_bytes(data_type: &DataType) -> usize {
        match data_type {
            DataType::Struct(fields) => {
                fields.iter().map(|field| value_bytes(field.data_type())).sum()
            }
            other => other.primitive_width().unwrap_or(48),
        }
    }
    32 + schema.fields().iter().map(|field| value_bytes(field.data_type())).sum::<usize>()
}
