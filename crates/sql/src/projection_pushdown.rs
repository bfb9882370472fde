//! Restricts the pushdown of projections.
//!
//! DataFusion pushes a projection that makes rows narrower as far down as it can, which is wrong in three
//! cases:
//! - Below a sort-merge join with a condition beside its equalities: the condition is not rewritten and
//!   then refers to other columns (issue 24414 of DataFusion, fixed after 55.2). In a plan with such a join,
//!   projections stay where they are.
//! - Below a nested loop join whose condition has a lambda that refers to one side only: the lambda is computed as if
//!   it were a value. In a plan with such a join, projections stay where they are, too.
//! - Below a filter or a limit, a projection is also computed for the rows that these drop, and
//!   may fail for them: `SELECT x, a + b FROM (…) WHERE x > 0`. Only plain columns are pushed down there.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::expressions::{Column, LambdaExpr, Literal};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::projection::{
    ProjectionExec, remove_unnecessary_projections, try_embed_projection,
};
use tidemill_planning::DynTreeNode;

use tidemill_operators::execution_override::ExecutionOverride;

/// DataFusion's rule that pushes projections down, restricted to the cases in which it is correct.
#[derive(Debug)]
pub(crate) struct ProjectionPushdownRule {
    /// DataFusion's rule.
    pub datafusion_rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl PhysicalOptimizerRule for ProjectionPushdownRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let mut has_conditions = false;
        plan.apply_dyn(&mut |plan| {
            let join = plan.downcast_ref::<SortMergeJoinExec>();
            has_conditions |= join.is_some_and(|join| join.filter().is_some());
            let join = plan.downcast_ref::<NestedLoopJoinExec>();
            if let Some(filter) = join.and_then(NestedLoopJoinExec::filter) {
                has_conditions |=
                    filter.expression().exists_dyn(&mut |expr| Ok(expr.is::<LambdaExpr>()))?;
            }
            Ok(if has_conditions { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if has_conditions {
            return Ok(plan);
        }
        // DataFusion's rule does more than projections, and moves none through an operator that it does not know.
        let hidden = plan.transform_down_dyn(&mut |plan| {
            Ok(match drops_rows(&plan) {
                true => Transformed::yes(Arc::new(ExecutionOverride {
                    name: HIDDEN_OPERATOR_NAME,
                    datafusion_plan: plan,
                    execute_fn: |theirs, partition, context| theirs.execute(partition, context),
                }) as _),
                false => Transformed::no(plan),
            })
        });
        let moved = self.datafusion_rule.optimize(hidden.data()?, config)?;
        let shown = moved.transform_down_dyn(&mut |plan| {
            Ok(match plan.downcast_ref::<ExecutionOverride>() {
                Some(step) if step.name == HIDDEN_OPERATOR_NAME => {
                    Transformed::yes(Arc::clone(&step.datafusion_plan))
                }
                _ => Transformed::no(plan),
            })
        });
        shown.data()?.transform_down_dyn(&mut push_down_projection).data()
    }

    fn name(&self) -> &str {
        self.datafusion_rule.name()
    }

    fn schema_check(&self) -> bool {
        self.datafusion_rule.schema_check()
    }
}

const HIDDEN_OPERATOR_NAME: &str = "hidden";

/// Returns whether an operator drops rows, so that a projection below it would be computed for more rows.
fn drops_rows(step: &Arc<dyn ExecutionPlan>) -> bool {
    step.is::<FilterExec>() || step.fetch().is_some()
}

/// Pushes a projection below its input where that is correct; a computed one is at most embedded in the filter below it.
fn push_down_projection(
    plan: Arc<dyn ExecutionPlan>,
) -> PlanResult<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else {
        return Ok(Transformed::no(plan));
    };
    let is_computed = projection
        .expr()
        .iter()
        .any(|column| !column.expr.is::<Column>() && !column.expr.is::<Literal>());
    if !is_computed || !drops_rows(projection.input()) {
        return remove_unnecessary_projections(plan);
    }
    // The filter then outputs only the columns that the projection needs.
    let narrowed = match projection.input().downcast_ref::<FilterExec>() {
        Some(filter) => try_embed_projection(projection, filter)?,
        None => None,
    };
    // Embedding loses field metadata and nullability; skip it if the schema would change.
    let narrowed = narrowed.filter(|narrowed| narrowed.schema() == projection.schema());
    Ok(narrowed.map_or_else(|| Transformed::no(Arc::clone(&plan)), Transformed::yes))
}
