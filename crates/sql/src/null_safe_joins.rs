//! Joins on `IS NOT DISTINCT FROM`.
//!
//! DataFusion turns such conditions into keys of a join in which null equals null. A condition with `=` must not
//! become another key of that join, or null would equal null there, too; it stays a filter. Two of DataFusion's rules
//! turn conditions into keys; both skip such joins here.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{NullEquality, Result as PlanResult};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use tidemill_planning::DynTreeNode;

use tidemill_planning::datafusion_names::optimizer_rules;

/// One of two DataFusion rules, restricted to the cases in which it is correct. `extract_equijoin_predicate` takes keys
/// from a join's own condition; `eliminate_cross_join` takes keys of inner joins from the condition above them.
#[derive(Debug)]
pub(crate) struct JoinKeyRule {
    /// DataFusion's rule.
    pub datafusion_rule: Arc<dyn OptimizerRule + Send + Sync>,
}

impl OptimizerRule for JoinKeyRule {
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
        let is_null_safe = match self.name() {
            optimizer_rules::ELIMINATE_CROSS_JOIN => {
                plan.exists_dyn(&mut |plan| Ok(is_null_safe_join(plan)))?
            }
            _ => is_null_safe_join(&plan),
        };
        match is_null_safe {
            true => Ok(Transformed::no(plan)),
            false => self.datafusion_rule.rewrite(plan, config),
        }
    }
}

fn is_null_safe_join(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Join(join) = plan else { return false };
    join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty()
}
