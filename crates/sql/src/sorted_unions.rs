//! Merges of the sorted branches of a UNION.
//!
//! DataFusion checks a plan before it runs it: where an operator requires sorted input, the input has to be sorted. It
//! knows less about a union than about its branches. If two columns of a branch are equal, its sorted rows
//! are sorted by both, but rows of the union are not considered sorted. DataFusion then rejects a merge of them
//! (its issue 16171). The rule here checks such a merge against each branch, which is where it takes its rows from.
//!
//! A column with one value in each branch need not be a sort key in any of them. But limits of several
//! branches share a filter on the last row that counts. If they sort by less than the merge's whole order, they
//! drop rows that the merge needs (`ORDER BY x, branch DESC LIMIT 1`). The rule therefore sorts them by all of it.
//!
//! DataFusion also removes a sort whose order its own operators lose again: above the limit of a union
//! whose branches have one value each, a filter runs on several threads. The rule restores the sort.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::sanity_checker::check_plan_sanity;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use tidemill_planning::DynTreeNode;

use tidemill_planning::datafusion_names::physical_rules;

/// A replacement for DataFusion's rule that checks the requirements of each operator.
#[derive(Debug)]
pub(crate) struct SortedUnionSanityRule;

impl PhysicalOptimizerRule for SortedUnionSanityRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let plan = plan
            .transform_up_dyn(&mut sort_branches_by_whole_order)?
            .data
            .transform_up_dyn(&mut restore_missing_sort)?
            .data;
        plan.apply_dyn(&mut |plan| {
            if !merges_sorted_branches(plan)? {
                check_plan_sanity(plan, &config.optimizer)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        physical_rules::SANITY_CHECK_PLAN
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Makes the limits of branches below a merge sort by the merge's whole order.
fn sort_branches_by_whole_order(
    plan: Arc<dyn ExecutionPlan>,
) -> PlanResult<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() else {
        return Ok(Transformed::no(plan));
    };
    let Some(first) = merge.input().downcast_ref::<SortExec>() else {
        return Ok(Transformed::no(plan));
    };
    if first.fetch().is_none() || first.expr() == merge.expr() {
        return Ok(Transformed::no(plan));
    }
    let first = SortExec::new(merge.expr().clone(), Arc::clone(first.input()))
        .with_fetch(first.fetch())
        .with_preserve_partitioning(first.preserve_partitioning());
    let merge = SortPreservingMergeExec::new(merge.expr().clone(), Arc::new(first))
        .with_fetch(merge.fetch());
    Ok(Transformed::yes(Arc::new(merge)))
}

/// Restores the sort below a merge if DataFusion removed it.
fn restore_missing_sort(
    plan: Arc<dyn ExecutionPlan>,
) -> PlanResult<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() else {
        return Ok(Transformed::no(plan));
    };
    let input = merge.input();
    if input.equivalence_properties().ordering_satisfy(merge.expr().clone())?
        || merges_sorted_branches(&plan)?
    {
        return Ok(Transformed::no(plan));
    }
    let sort = SortExec::new(merge.expr().clone(), Arc::clone(input))
        .with_fetch(merge.fetch())
        .with_preserve_partitioning(true);
    let merge = SortPreservingMergeExec::new(merge.expr().clone(), Arc::new(sort))
        .with_fetch(merge.fetch());
    Ok(Transformed::yes(Arc::new(merge)))
}

/// Returns whether the plan merges a union's branches, each of which is sorted by the merge's order.
fn merges_sorted_branches(plan: &Arc<dyn ExecutionPlan>) -> PlanResult<bool> {
    let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() else { return Ok(false) };
    let Some(union) = merge.input().downcast_ref::<UnionExec>() else { return Ok(false) };
    for branch in union.inputs() {
        let order = merge.expr().iter().map(|by| sort_expr_in_branch(by, branch));
        let order = order.collect::<PlanResult<Vec<_>>>()?;
        if !branch.equivalence_properties().ordering_satisfy(order)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Translates a sort expression of the union to the branch, whose columns may have other names.
fn sort_expr_in_branch(
    by: &PhysicalSortExpr,
    branch: &Arc<dyn ExecutionPlan>,
) -> PlanResult<PhysicalSortExpr> {
    let schema = branch.schema();
    let expr = Arc::clone(&by.expr).transform_up_dyn(&mut |expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        let name = schema.field(column.index()).name();
        Ok(Transformed::yes(Arc::new(Column::new(name, column.index()))))
    })?;
    Ok(PhysicalSortExpr::new(expr.data, by.options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Float32Array, RecordBatch};
    use tidemill_base::RunSettings;
    use tidemill_planning::plan_sql;

    #[test]
    fn branch_limits_sort_by_whole_merge_order() {
        let settings = RunSettings { threads: 1, ..RunSettings::new(64 << 20) };
        let context =
            crate::session::open_session(32 << 20, &settings, Default::default()).unwrap();
        let batch = RecordBatch::try_from_iter([(
            "x",
            Arc::new(Float32Array::from(vec![0.0])) as ArrayRef,
        )])
        .unwrap();
        context.register_batch("t", batch).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let branches = "SELECT x, 1 AS c FROM t UNION ALL SELECT x, 2 FROM t";
        let plan = runtime.block_on(async {
            let sql = format!("{branches} ORDER BY 1, 2 DESC LIMIT 1");
            plan_sql(&context, &sql).unwrap().create_physical_plan().await.unwrap()
        });
        let merge = plan.downcast_ref::<SortPreservingMergeExec>().unwrap();
        let first = merge.input().downcast_ref::<SortExec>().unwrap();
        assert_eq!(first.expr(), merge.expr());
        assert_eq!((first.fetch(), merge.expr().len()), (Some(1), 2));
    }
}
