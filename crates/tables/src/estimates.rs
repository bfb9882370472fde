//! How good the estimates are that are made on DataFusion's path: there, our accumulators say so to
//! the run's [`Precisions`] when they answer, under the names that the plan has for them.

use std::collections::BTreeMap;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use parking_lot::Mutex;
use tidemill_base::coverage::EstimateAccuracy;

use crate::calls::{aggregate_call, alias_of, estimate_of};
use crate::summary::Summary;
use crate::{Function, Precision};

/// What the accumulators of a run said, by the names of their calls.
#[derive(Debug, Default)]
pub struct Precisions(Mutex<BTreeMap<String, (Function, Precision)>>);

impl Precisions {
    /// Notes an answer.
    pub fn add(&self, call: &str, function: &Function, precision: Precision) {
        let mut said = self.0.lock();
        match said.get_mut(call) {
            Some((_, known)) => *known = known.and(precision),
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
    pub fn estimates(&self, calls: &[Call]) -> Vec<EstimateAccuracy> {
        let said = self.0.lock();
        let of = |call: &Call| {
            let none = || Some((call.function.clone()?, Precision::EXACT));
            let (function, precision) = said.get(&call.name).cloned().or_else(none)?;
            Some(function.estimate(&call.shown, precision))
        };
        calls.iter().filter_map(of).collect()
    }
}

/// A call of an aggregate in a plan.
#[derive(Debug, Clone)]
pub struct Call {
    /// What the plan has it as.
    name: String,
    /// What it is called in the result.
    shown: String,
    /// What it estimates by; none where it does not, or only its accumulator knows.
    function: Option<Function>,
}

impl Call {
    /// What the plan has it as.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The calls of aggregates in an optimised plan, those nearest to the result first, with the names
/// that the result has for them: by their aliases, else as they are written, through `shorten`.
pub fn calls(plan: &LogicalPlan, shorten: impl Fn(String) -> String) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
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
            if let Some(summary) = aggregate_call(expr).and_then(Summary::of_call) {
                calls.extend(summary.estimates().map(|(name, function)| Call {
                    shown: shorten(name.clone()),
                    name,
                    function: Some(function),
                }));
                continue;
            }
            let name = expr.qualified_name().1;
            let shown = above.iter().rev().fold(name.clone(), |name, projection| {
                let renamed = projection.expr.iter().find_map(|expr| alias_of(expr, &name));
                renamed.unwrap_or(name)
            });
            let function = estimate_of(expr);
            if calls.iter().all(|call| call.name != name) {
                calls.push(Call { name, shown: shorten(shown), function });
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    calls
}
