//! A DataFusion operator whose execution is replaced by ours; its properties, children and display stay the
//! same.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};

/// The function that executes a partition of such an operator.
pub(crate) type ExecuteFn = fn(
    theirs: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream>;

/// An operator with a replaced execution.
pub struct ExecutionOverride {
    /// Name in explanations.
    pub name: &'static str,
    /// The replaced operator, which keeps its properties and children.
    pub datafusion_plan: Arc<dyn ExecutionPlan>,
    /// Executes one partition in the place of the operator.
    pub execute_fn: ExecuteFn,
}

impl fmt::Debug for ExecutionOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.name).field("theirs", &self.datafusion_plan).finish_non_exhaustive()
    }
}

impl DisplayAs for ExecutionOverride {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.datafusion_plan.fmt_as(format, f)
    }
}

impl ExecutionPlan for ExecutionOverride {
    fn name(&self) -> &str {
        self.name
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.datafusion_plan.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.datafusion_plan.maintains_input_order()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.datafusion_plan.required_input_ordering()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.datafusion_plan.input_distribution_requirements()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.datafusion_plan.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        self.datafusion_plan.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let theirs = Arc::clone(&self.datafusion_plan).replace_children(children, options)?;
        Ok(Arc::new(ExecutionOverride {
            name: self.name,
            datafusion_plan: theirs,
            execute_fn: self.execute_fn,
        }))
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
        (self.execute_fn)(&self.datafusion_plan, partition, context)
    }
}
