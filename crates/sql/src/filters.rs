//! Which conditions are asked before rows are grouped.
//!
//! DataFusion moves a condition below an aggregation, a window or DISTINCT where that has all columns of
//! it, and so also one without columns: below an aggregation without keys, which answers over no rows, too,
//! `HAVING random() < 0` left a row out and then had one. What depends on luck would be asked of each row in
//! the place of each group. Such conditions stay where they are.

use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule of DataFusion's that moves conditions.
pub(crate) const REPLACED: &str = "push_down_filter";

/// That rule, where it is right.
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
        let (conditions, input) = match &plan {
            LogicalPlan::Filter(filter) => conditions(filter),
            _ => return self.theirs.rewrite(plan, config),
        };
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
