//! ROLLUP, CUBE and GROUPING SETS over what is computed: `GROUP BY ROLLUP (upper(k), day)`.
//!
//! Rules that settle types rewrite expressions, and DataFusion then no longer finds the ones of a grouping
//! set by their names. They are computed below the step, and its sets are of columns.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;

/// The rule.
#[derive(Debug)]
pub struct SetsOfColumns;

impl AnalyzerRule for SetsOfColumns {
    fn name(&self) -> &str {
        "grouping_sets_of_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(step) => of_columns(step),
            plan => Ok(Transformed::no(plan)),
        })
        .data()
    }
}

fn of_columns(step: Aggregate) -> PlanResult<Transformed<LogicalPlan>> {
    let computed = |key: &Expr| !matches!(key, Expr::Column(_));
    let mut keys: Vec<Expr> = Vec::new();
    for set in step.group_expr.iter().filter(|key| matches!(key, Expr::GroupingSet(_))) {
        let Expr::GroupingSet(set) = set else { continue };
        for key in set.distinct_expr().into_iter().filter(|key| computed(key)) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
    }
    if keys.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(step)));
    }
    let below = step.input.schema();
    let own = below.iter().map(|field| Expr::Column(Column::from(field)));
    let named = keys.iter().map(|key| key.clone().alias(key.schema_name().to_string()));
    let columns = own.chain(named).collect();
    let input = LogicalPlan::Projection(Projection::try_new(columns, Arc::clone(&step.input))?);
    let of_column = |key: Expr| match keys.contains(&key) {
        true => Expr::Column(Column::new_unqualified(key.schema_name().to_string())),
        false => key,
    };
    let all = |keys: Vec<Expr>| keys.into_iter().map(of_column).collect::<Vec<_>>();
    let groups = step.group_expr.into_iter().map(|key| match key {
        Expr::GroupingSet(GroupingSet::Rollup(keys)) => {
            Expr::GroupingSet(GroupingSet::Rollup(all(keys)))
        }
        Expr::GroupingSet(GroupingSet::Cube(keys)) => {
            Expr::GroupingSet(GroupingSet::Cube(all(keys)))
        }
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            Expr::GroupingSet(GroupingSet::GroupingSets(sets.into_iter().map(all).collect()))
        }
        key => of_column(key),
    });
    // What tells of which set a row is names the keys as the sets do.
    let calls = step.aggr_expr.into_iter().map(|call| match call {
        Expr::AggregateFunction(mut call) if call.func.name() == "grouping" => {
            call.params.args = all(call.params.args);
            Expr::AggregateFunction(call)
        }
        call => call,
    });
    let groups = groups.collect();
    let made = Aggregate::try_new(Arc::new(input), groups, calls.collect())?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(made)))
}
