//! Corrections of DataFusion's rule that pushes conditions down a plan.
//!
//! DataFusion pushes a condition below an aggregation, a window or DISTINCT that has all of its columns, and
//! so also a condition without columns. But an aggregation without keys returns a row even over no rows: with
//! `HAVING random() < 0` pushed below it, the row appeared although the condition was false. A volatile
//! condition would also be evaluated for each row instead of each group. Such conditions stay above.
//!
//! DataFusion combines a pushed condition with the existing conditions, and treats two equalities of one
//! column as a contradiction if they are written differently. `'a' = k`, pushed beside `k = 'a'` of a join's
//! ON, made that side of the join empty. So comparisons in a filter, and in the join below it, get the column
//! first.

use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use tidemill_planning::DynTreeNode;

use tidemill_planning::plan_rewriting::is_comparison_operator;

/// DataFusion's rule that pushes conditions down, restricted to the cases in which it is correct.
#[derive(Debug)]
pub(crate) struct FilterPushdownRule {
    /// DataFusion's own rule.
    pub datafusion_rule: Arc<dyn OptimizerRule + Send + Sync>,
}

impl OptimizerRule for FilterPushdownRule {
    fn name(&self) -> &str {
        self.datafusion_rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.datafusion_rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        let filter = match plan {
            LogicalPlan::Filter(filter) => put_filter_columns_first(filter)?,
            LogicalPlan::Join(mut join) => {
                let on = join.filter.take().map(put_columns_first).transpose()?;
                join.filter = on;
                return self.datafusion_rule.rewrite(LogicalPlan::Join(join), config);
            }
            plan => return self.datafusion_rule.rewrite(plan, config),
        };
        let (conditions, input) = collect_conditions(&filter);
        let plan = LogicalPlan::Filter(filter);
        let groups = matches!(
            input.as_ref(),
            LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Distinct(_)
        );
        let (staying, others): (Vec<Expr>, Vec<Expr>) = conditions
            .into_iter()
            .partition(|condition| groups && needs_group_evaluation(condition));
        let Some(staying) = conjunction(staying) else {
            return self.datafusion_rule.rewrite(plan, config);
        };
        let Some(others) = conjunction(others) else { return Ok(Transformed::no(plan)) };
        let below = LogicalPlan::Filter(Filter::new(others, input));
        self.datafusion_rule
            .rewrite(below, config)?
            .map_data(|below| Ok(LogicalPlan::Filter(Filter::new(staying, Arc::new(below)))))
    }
}

/// Puts the column first in the comparisons of a filter, and of the filters and the join directly below it, because
/// DataFusion's rule combines their conditions.
fn put_filter_columns_first(filter: Filter) -> PlanResult<Filter> {
    let input = match filter.input.as_ref() {
        LogicalPlan::Filter(below) => {
            Arc::new(LogicalPlan::Filter(put_filter_columns_first(below.clone())?))
        }
        LogicalPlan::Join(join) if join.filter.is_some() => {
            let mut join = join.clone();
            join.filter = join.filter.take().map(put_columns_first).transpose()?;
            Arc::new(LogicalPlan::Join(join))
        }
        _ => Arc::clone(&filter.input),
    };
    Ok(Filter::new(put_columns_first(filter.predicate)?, input))
}

/// Puts the operand with columns on the left of comparisons in which only one operand has any.
fn put_columns_first(condition: Expr) -> PlanResult<Expr> {
    let turned = condition.transform_up_dyn(&mut |expr| {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if left.column_refs().is_empty() && !right.column_refs().is_empty() =>
            {
                match op.swap() {
                    Some(swapped) if is_comparison_operator(op) => {
                        Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(right, swapped, left)))
                    }
                    _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
                }
            }
            expr => Transformed::no(expr),
        })
    })?;
    Ok(turned.data)
}

/// Returns true for conditions that must be evaluated once per group: those without columns, and volatile
/// ones.
fn needs_group_evaluation(condition: &Expr) -> bool {
    condition.column_refs().is_empty() || condition.is_volatile()
}

/// Returns the conditions of a filter and of the filters directly below it, and the input of the lowest
/// filter.
fn collect_conditions(filter: &Filter) -> (Vec<Expr>, Arc<LogicalPlan>) {
    let own = split_conjunction_owned(filter.predicate.clone());
    match filter.input.as_ref() {
        LogicalPlan::Filter(below) => {
            let (mut all, input) = collect_conditions(below);
            all.extend(own);
            (all, input)
        }
        _ => (own, Arc::clone(&filter.input)),
    }
}
