//! `ORDER BY … LIMIT` of so many rows that they do not fit memory.
//!
//! DataFusion keeps the rows of a limit in a heap, which cannot spill, however many they are. Where
//! they would take more than a part of what a sort has, the sort is of all rows, which spills, and
//! the limit is above it.

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

/// The rule for a pool of so many bytes.
#[derive(Debug)]
pub(crate) struct LargeLimitRule {
    /// What the rows of a limit may take by their estimate, which is rough.
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

/// What a row takes in a heap, about: its values, and their bytes as they are compared.
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
