//! Corrections of DataFusion's rule that moves conditions down a plan.
//!
//! DataFusion moves a condition below an aggregation, a window or DISTINCT that has all of its columns, and so also a
//! condition without columns. But an aggregation without keys returns a row even over no rows: with
//! `HAVING random() < 0` moved below it, the row appeared although the condition was false. A volatile condition would
//! also be evaluated for each row instead of each group. Such conditions stay where they are.
//!
//! DataFusion combines a moved condition with the conditions already there, and takes two equalities of one column for
//! a contradiction if they are written differently. `'a' = k`, moved beside `k = 'a'` of a join's ON, made that side of
//! the join empty. So comparisons in a filter, and in the join below it, get the column first.

use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use tidemill_planning::DynTreeNode;

use crate::rewrite::is_comparison;

/// DataFusion's rule that moves conditions down, restricted to the cases in which it is correct.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// DataFusion's.
    pub theirs: Arc<dyn OptimizerRule + Send + Sync>,
}

impl OptimizerRule for Conditions {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.theirs.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        let filter = match plan {
            LogicalPlan::Filter(filter) => with_columns_first(filter)?,
            LogicalPlan::Join(mut join) => {
                let on = join.filter.take().map(columns_first).transpose()?;
                join.filter = on;
                return self.theirs.rewrite(LogicalPlan::Join(join), config);
            }
            plan => return self.theirs.rewrite(plan, config),
        };
        let (conditions, input) = conditions(&filter);
        let plan = LogicalPlan::Filter(filter);
        let groups = matches!(
            input.as_ref(),
            LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Distinct(_)
        );
        let (staying, others): (Vec<Expr>, Vec<Expr>) =
            conditions.into_iter().partition(|condition| groups && stays(condition));
        let Some(staying) = conjunction(staying) else { return self.theirs.rewrite(plan, config) };
        let Some(others) = conjunction(others) else { return Ok(Transformed::no(plan)) };
        let below = LogicalPlan::Filter(Filter::new(others, input));
        self.theirs
            .rewrite(below, config)?
            .map_data(|below| Ok(LogicalPlan::Filter(Filter::new(staying, Arc::new(below)))))
    }
}

/// Puts the column first in the comparisons of a filter, and of the filters and the join directly below it, because
/// DataFusion's rule combines their conditions.
fn with_columns_first(filter: Filter) -> PlanResult<Filter> {
    let input = match filter.input.as_ref() {
        LogicalPlan::Filter(below) => {
            Arc::new(LogicalPlan::Filter(with_columns_first(below.clone())?))
        }
        LogicalPlan::Join(join) if join.filter.is_some() => {
            let mut join = join.clone();
            join.filter = join.filter.take().map(columns_first).transpose()?;
            Arc::new(LogicalPlan::Join(join))
        }
        _ => Arc::clone(&filter.input),
    };
    Ok(Filter::new(columns_first(filter.predicate)?, input))
}

/// Comparisons with what has a column on the left, where only one side has any.
fn columns_first(condition: Expr) -> PlanResult<Expr> {
    let turned = condition.transform_up_dyn(&mut |expr| {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if left.column_refs().is_empty() && !right.column_refs().is_empty() =>
            {
                match op.swap() {
                    Some(swapped) if is_comparison(op) => {
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

/// Whether a condition says nothing of the keys of groups.
fn stays(condition: &Expr) -> bool {
    condition.column_refs().is_empty() || condition.is_volatile()
}

/// The conditions of a filter and of those below it, and what they are asked of.
fn conditions(filter: &Filter) -> (Vec<Expr>, Arc<LogicalPlan>) {
    let own = split_conjunction_owned(filter.predicate.clone());
    match filter.input.as_ref() {
        LogicalPlan::Filter(below) => {
            let (mut all, input) = conditions(below);
            all.extend(own);
            (all, input)
        }
        _ => (own, Arc::clone(&filter.input)),
    }
}
