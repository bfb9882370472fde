//! How good the estimates are that are made on DataFusion's path: there, our accumulators say so to
//! the run's [`Precisions`] when they answer, under the names that the plan has for them.

use std::collections::BTreeMap;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use parking_lot::Mutex;
use tidemill_base::coverage::EstimateAccuracy;

use crate::aggregate_calls::{find_aggregate_call, find_alias, find_estimating_function};
use crate::summary::QuerySummary;
use crate::{MergeableFunction, SketchPrecision};

/// What the accumulators of a run said, by the names of their calls.
#[derive(Debug, Default)]
pub struct PrecisionRecorder(Mutex<BTreeMap<String, (MergeableFunction, SketchPrecision)>>);

impl PrecisionRecorder {
    /// Notes an answer.
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

    /// Forgets what was said, for a run that starts over.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// What was said of `calls`; of one that was never made, as where there are no rows, that it is
    /// exact.
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

/// A call of an aggregate in a plan.
#[derive(Debug, Clone)]
pub struct PlannedAggregateCall {
    /// What the plan has it as.
    plan_name: String,
    /// What it is called in the result.
    display_name: String,
    /// What it estimates by; none where it does not, or only its accumulator knows.
    estimating_function: Option<MergeableFunction>,
}

impl PlannedAggregateCall {
    /// What the plan has it as.
    pub fn plan_name(&self) -> &str {
        &self.plan_name
    }
}

/// The calls of aggregates in an optimised plan, those nearest to the result first, with the names
/// that the result has for them: by their aliases, else as they are written, through `shorten`.
pub fn collect_aggregate_calls(
    plan: &LogicalPlan,
    shorten: impl Fn(String) -> String,
) -> Vec<PlannedAggregateCall> {
    let mut calls: Vec<PlannedAggregateCall> = Vec::new();
    // From the result down to the call, then followed upwards.
    let mut above: Vec<Projection> = Vec::new();
    // A walk that fails leaves out names, no numbers.
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
