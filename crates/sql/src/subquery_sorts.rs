//! Removes sorts of subqueries that do not affect the result.
//!
//! `SELECT * FROM (SELECT … ORDER BY n DESC) LIMIT 10` takes the first rows of a sorted subquery, as in PostgreSQL and
//! DuckDB. DataFusion's planner removes each `ORDER BY` in FROM without a LIMIT of its own. Here the planner keeps them,
//! and this rule removes those whose order is lost: below a join, a group, a set operation other than UNION ALL, or
//! another sort. Elsewhere the rows keep their order up to the result or a LIMIT. A window without an ORDER BY requires
//! no order, so that a later rule may remove its sort.

use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use tidemill_planning::DynLogicalPlan;

/// An analyzer rule that removes sorts whose order is lost.
#[derive(Debug)]
pub(crate) struct SubquerySortRemovalRule;

impl AnalyzerRule for SubquerySortRemovalRule {
    fn name(&self) -> &'static str {
        "subquery_sorts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        let mut has_sorts = false;
        plan.apply_with_subqueries_dyn(&mut |step| {
            has_sorts |= matches!(step, LogicalPlan::Sort(_));
            Ok(if has_sorts { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if has_sorts { remove_lost_sorts(plan, true) } else { Ok(plan) }
    }
}

/// Removes the sorts of a plan whose order is lost above them. `is_ordered` says that the order of the plan's rows matters.
fn remove_lost_sorts(plan: LogicalPlan, is_ordered: bool) -> PlanResult<LogicalPlan> {
    let plan = match plan {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() && !is_ordered => {
            return remove_lost_sorts(Arc::unwrap_or_clone(sort.input), false);
        }
        plan => plan,
    };
    let is_ordered = match &plan {
        LogicalPlan::Limit(_) => true,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Explain(_)
        | LogicalPlan::Analyze(_) => is_ordered,
        // `row_number() OVER ()` numbers rows as they come.
        LogicalPlan::Window(window) => window.window_expr.iter().all(is_unordered_window),
        _ => false,
    };
    let plan = plan.map_subqueries(|plan| match plan {
        LogicalPlan::Subquery(mut subquery) => {
            let plan = Arc::unwrap_or_clone(subquery.subquery);
            // The order of the subquery itself, which `ARRAY(SELECT … ORDER BY …)` needs.
            let is_ordered = matches!(plan, LogicalPlan::Sort(_));
            subquery.subquery = Arc::new(remove_lost_sorts(plan, is_ordered)?);
            Ok(Transformed::yes(LogicalPlan::Subquery(subquery)))
        }
        plan => Ok(Transformed::no(plan)),
    });
    let plan = plan.data()?;
    let plan =
        plan.map_children(|child| Ok(Transformed::yes(remove_lost_sorts(child, is_ordered)?)));
    plan.data()
}

fn is_unordered_window(expr: &Expr) -> bool {
    let expr = match expr {
        Expr::Alias(alias) => alias.expr.as_ref(),
        expr => expr,
    };
    match expr {
        Expr::WindowFunction(call) => {
            call.params.partition_by.is_empty() && call.params.order_by.is_empty()
        }
        _ => false,
    }
}
