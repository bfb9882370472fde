//! Window functions: rules that plan their calls, and operators that run them within the memory budget.
//!
//! - `text_copies`, `filter_clauses`: rewrites that let DataFusion's operators run the windows as they are
//!   written.
//! - `hash_partitioned`: windows over partitions, whose rows are partitioned by hash. A window of another kind,
//!   or one that does not fit in memory, is sorted and runs in DataFusion's operators. Two of those hold too
//!   much in memory:
//! - `whole_partitions`, `running_totals`: replacements of these two; `window_output`: attaches values of any
//!   length to their rows.

pub mod filter_clauses;
pub mod hash_partitioned;
pub mod running_totals;
mod text_copies;
pub mod whole_partitions;
pub(crate) mod window_output;

pub use text_copies::CopyTextBelowWindowsRule;

use arrow::datatypes::DataType;
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{Cast, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawWindowExpr};

use tidemill_planning::datafusion_names::windows;

/// An expression planner that casts `row_number`, `ntile` and ranks to BIGINT, the type of counts.
/// DataFusion's are unsigned: `row_number() OVER () - 5` would be a DECIMAL and `-rank() OVER (…)` an error.
#[derive(Debug)]
pub struct SignedRankPlanner;

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
