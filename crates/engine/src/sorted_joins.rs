//! Joins by sorting with a condition beside their equalities.
//!
//! DataFusion moves a projection below such a join and leaves the condition as it was, which then is of
//! other columns (its issue 24414, mended after its 55.2). Where there is such a join, projections stay
//! where they are.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::SortMergeJoinExec;

/// The rule of DataFusion's that moves projections.
pub const REPLACED: &str = "ProjectionPushdown";

/// That rule, where it is right.
#[derive(Debug)]
pub struct Projections {
    /// DataFusion's.
    pub theirs: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl PhysicalOptimizerRule for Projections {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let mut has_conditions = false;
        plan.apply(|plan| {
            let join = plan.downcast_ref::<SortMergeJoinExec>();
            has_conditions |= join.is_some_and(|join| join.filter().is_some());
            Ok(if has_conditions { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if has_conditions { Ok(plan) } else { self.theirs.optimize(plan, config) }
    }

    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn schema_check(&self) -> bool {
        self.theirs.schema_check()
    }
}
