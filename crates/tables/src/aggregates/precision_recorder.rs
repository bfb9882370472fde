//! The precision of estimates on DataFusion's path: accumulators report it to the run's [`PrecisionRecorder`]
//! when they answer, under the names that their calls have in the plan.

use std::collections::BTreeMap;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use parking_lot::Mutex;
use tidemill_base::coverage::EstimateAccuracy;

use crate::aggregates::aggregate_calls::{
    find_aggregate_call, find_alias, find_estimating_function,
};
use crate::aggregates::summary::QuerySummary;
use crate::{MergeableFunction, SketchPrecision};

/// The precisions reported by the accumulators of a run, by the names of their calls.
#[derive(Debug, Default)]
pub struct PrecisionRecorder(Mutex<BTreeMap<String, (MergeableFunction, SketchPrecision)>>);

impl PrecisionRecorder {
    /// Records the precision of an answer.
    pub fn record_precision(
        &self,
        call: &str,
        function: &MergeableFunction,
        precision: SketchPrecision,
    ) {
        let mut said = self.0.lock();
        match said.get_mut(call) {
            Some((_, known)) => *known = known.combine(precision),
            None => {
                said.insert(call.to_string(), (function.clone(), precision));
            }
        }
    }

    /// Clears the recorder, for a run that starts over.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns the estimates of `calls`. A call that never ran, for example on no rows, counts as exact.
    pub fn estimates_of_calls(&self, calls: &[PlannedAggregateCall]) -> Vec<EstimateAccuracy> {
        let said = self.0.lock();
        let of = |call: &PlannedAggregateCall| {
            let none = || Some((call.estimating_function.clone()?, SketchPrecision::EXACT));
            let (function, precision) = said.get(&call.plan_name).cloned().or_else(none)?;
            Some(function.describe_estimate(&call.display_name, precision))
        };
        calls.iter().filter_map(of).collect()
    }
}

/// An aggregate call in a plan, with its names.
#[derive(Debug, Clone)]
pub struct PlannedAggregateCall {
    /// The call's name in the plan.
    plan_name: String,
    /// The call's name in the result.
    display_name: String,
    /// The function that estimates the answer; `None` for exact calls, or if only the accumulator knows.
    estimating_function: Option<MergeableFunction>,
}

impl PlannedAggregateCall {
    /// Returns the call's name in the plan.
    pub fn plan_name(&self) -> &str {
        &self.plan_name
    }
}

/// Collects the aggregate calls of an optimized plan, those nearest to the result first, with their names in
/// the result: the alias, else the expression as written, passed through `shorten`.
pub fn collect_aggregate_calls(
    plan: &LogicalPlan,
    shorten: impl Fn(String) -> String,
) -> Vec<PlannedAggregateCall> {
    let mut calls: Vec<PlannedAggregateCall> = Vec::new();
    // The projections from the result down to the call; names are then followed upwards.
    let mut above: Vec<Projection> = Vec::new();
    // A failed walk only loses names, no numbers.
    let _ = plan.apply_with_subqueries(|node| {
        let found: &[Expr] = match node {
            LogicalPlan::Projection(projection) => {
                above.push(projection.clone());
                return Ok(TreeNodeRecursion::Continue);
            }
            LogicalPlan::Aggregate(aggregate) => &aggregate.aggr_expr,
            LogicalPlan::Window(window) => &window.window_expr,
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        for expr in found {
            if let Some(summary) = find_aggregate_call(expr).and_then(QuerySummary::from_call) {
                calls.extend(summary.estimated_columns().map(|(name, function)| {
                    PlannedAggregateCall {
                        display_name: shorten(name.clone()),
                        plan_name: name,
                        estimating_function: Some(function),
                    }
                }));
                continue;
            }
            let name = expr.qualified_name().1;
            let shown = above.iter().rev().fold(name.clone(), |name, projection| {
                let renamed = projection.expr.iter().find_map(|expr| find_alias(expr, &name));
                renamed.unwrap_or(name)
            });
            let function = find_estimating_function(expr);
            if calls.iter().all(|call| call.plan_name != name) {
                calls.push(PlannedAggregateCall {
                    plan_name: name,
                    display_name: shorten(shown),
                    estimating_function: function,
                });
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    calls
}
