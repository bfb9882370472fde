//! Windows: how their calls are planned, and how they are run within the budget.
//!
//! - `text`, `filtered`: windows as DataFusion's steps can run them as they are written.
//! - `in_parts`: windows over partitions, whose rows are put apart by hash. What is no such window, or does not
//!   fit, is sorted, and goes through DataFusion's steps but for two, which hold too much:
//! - `whole_partitions`, `running_totals`: ours in their place; `beside`: values of any length beside their rows.

pub mod filter_clauses;
pub(crate) mod hash_partitioned;
pub(crate) mod running_totals;
mod text_copies;
pub(crate) mod whole_partitions;
pub(crate) mod window_output;

pub(crate) use text_copies::CopyTextBelowWindowsRule;

use arrow::datatypes::DataType;
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{Cast, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawWindowExpr};

use crate::datafusion_names::windows;

/// Plans `row_number` and ranks as BIGINT, which counts are, too: DataFusion's have no sign, so that
/// `row_number() OVER () - 5` would be a DECIMAL and `-rank() OVER (…)` an error.
#[derive(Debug)]
pub(crate) struct SignedRankPlanner;

impl ExprPlanner for SignedRankPlanner {
    fn plan_window(&self, raw: RawWindowExpr) -> PlanResult<PlannerResult<RawWindowExpr>> {
        if !matches!(
            raw.func_def.name(),
            windows::ROW_NUMBER | windows::RANK | windows::DENSE_RANK | windows::NTILE
        ) {
            return Ok(PlannerResult::Original(raw));
        }
        let params = WindowFunctionParams {
            args: raw.args,
            partition_by: raw.partition_by,
            order_by: raw.order_by,
            window_frame: raw.window_frame,
            filter: raw.filter,
            null_treatment: raw.null_treatment,
            distinct: raw.distinct,
        };
        let rank = Expr::WindowFunction(Box::new(WindowFunction { fun: raw.func_def, params }));
        Ok(PlannerResult::Planned(Expr::Cast(Cast::new(Box::new(rank), DataType::Int64))))
    }
}
