//! Reads the branches of a UNION ALL one after the other where the order of rows matters.
//!
//! A union has the partitions of all its branches. DataFusion runs them concurrently and takes rows as they come,
//! even on one thread. So a list, a first value, and the order of ties in an ORDER BY would
//! differ in each run. In a plan with one partition, as on one thread, this rule reads the partitions one after the
//! other instead. A branch does not start to read before its turn, so it holds nothing meanwhile.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt};
use tidemill_base::error::Error;
use tidemill_planning::DynTreeNode;

use tidemill_planning::error_carrier::into_datafusion_error;

/// A physical rule that makes single-partition plans read the partitions of unions in order.
#[derive(Debug)]
pub struct OrderedUnionRule;

impl PhysicalOptimizerRule for OrderedUnionRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        if config.execution.target_partitions != 1 {
            return Ok(plan);
        }
        plan.transform_up_dyn(&mut |plan| {
            let Some(step) = plan.downcast_ref::<CoalescePartitionsExec>() else {
                return Ok(Transformed::no(plan));
            };
            let in_order: Arc<dyn ExecutionPlan> =
                Arc::new(SequentialPartitionsExec::new(Arc::clone(step.input())));
            Ok(Transformed::yes(match step.fetch() {
                Some(rows) => Arc::new(GlobalLimitExec::new(in_order, 0, Some(rows))),
                None => in_order,
            }))
        })
        .data()
    }

    fn name(&self) -> &str {
        "unions_in_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// An operator that outputs the rows of its input's partitions one partition after the other.
#[derive(Debug)]
struct SequentialPartitionsExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl SequentialPartitionsExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let mut of_rows = input.equivalence_properties().clone();
        of_rows.clear_orderings();
        of_rows.clear_per_partition_constants();
        let one = Partitioning::UnknownPartitioning(1);
        let properties =
            PlanProperties::new(of_rows, one, input.pipeline_behavior(), input.boundedness());
        SequentialPartitionsExec { input, properties: Arc::new(properties) }
    }
}

impl DisplayAs for SequentialPartitionsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InOrder")
    }
}

impl ExecutionPlan for SequentialPartitionsExec {
    fn name(&self) -> &str {
        "InOrder"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(SequentialPartitionsExec::new(input))),
            _ => Err(into_datafusion_error(Error::Internal(
                "an order of other than one input".into(),
            ))),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(Recompute))
    }

    fn execute(
        &self,
        _: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let (schema, input) = (self.schema(), Arc::clone(&self.input));
        let partitions = 0..input.output_partitioning().partition_count();
        // A partition does not start before its turn.
        let rows = futures::stream::iter(partitions)
            .map(move |partition| input.execute(partition, Arc::clone(&context)))
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
