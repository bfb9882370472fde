//! Sorted rows of a UNION that are merged.
//!
//! DataFusion checks a plan before it runs it: what a step wants sorted has to come sorted. Of a union
//! it knows less than of each of its branches: where two columns of a branch are the same, sorted rows
//! of it are by both, and rows of the union are said not to be. It refuses a merge of them then (its
//! issue 16171). Here such a merge is asked of each branch, which is what it takes its rows from.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::sanity_checker::check_plan_sanity;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// DataFusion's rule of this name has the same purpose.
pub const REPLACED: &str = "SanityCheckPlan";

/// Checks that each step gets what it needs.
#[derive(Debug)]
pub struct CheckedPlan;

impl PhysicalOptimizerRule for CheckedPlan {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.apply(|plan| {
            if !merges_sorted_branches(plan)? {
                check_plan_sanity(plan, &config.optimizer)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        REPLACED
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether this merges a union's branches, each of which is sorted as the merge is.
fn merges_sorted_branches(plan: &Arc<dyn ExecutionPlan>) -> PlanResult<bool> {
    let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() else { return Ok(false) };
    let Some(union) = merge.input().downcast_ref::<UnionExec>() else { return Ok(false) };
    for branch in union.inputs() {
        let order = merge.expr().iter().map(|by| in_branch(by, branch));
        let order = order.collect::<PlanResult<Vec<_>>>()?;
        if !branch.equivalence_properties().ordering_satisfy(order)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An order of the union as one of the branch, whose columns may be called otherwise.
fn in_branch(
    by: &PhysicalSortExpr,
    branch: &Arc<dyn ExecutionPlan>,
) -> PlanResult<PhysicalSortExpr> {
    let schema = branch.schema();
    let expr = Arc::clone(&by.expr).transform(|expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        let name = schema.field(column.index()).name();
        Ok(Transformed::yes(Arc::new(Column::new(name, column.index()))))
    })?;
    Ok(PhysicalSortExpr::new(expr.data, by.options))
}
