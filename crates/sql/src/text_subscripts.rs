//! Planning of subscripts on texts, `x[1]` and `x[2:4]`, as in DuckDB; and of subscripts on lists from
//! aggregates that ignore nulls. DataFusion plans subscripts on other lists.

use std::sync::{Arc, LazyLock};

use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::functions_nested::expr_fn::array_element;
use datafusion::logical_expr::expr::{NullTreatment, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, ScalarUDF};

/// Plans subscripts on texts.
#[derive(Debug)]
pub(crate) struct TextSubscriptPlanner;

impl ExprPlanner for TextSubscriptPlanner {
    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawFieldAccessExpr>> {
        static SLICE: LazyLock<Option<Arc<ScalarUDF>>> =
            LazyLock::new(|| tidemill_functions::text_slice_udf().map(Arc::new));
        // DataFusion plans `nth_value`, which counts nulls, and which fails for position 0, where no list has
        // an item.
        if let (Expr::AggregateFunction(call), GetFieldAccess::ListIndex { key }) =
            (&expr.expr, &expr.field_access)
            && (call.params.null_treatment == Some(NullTreatment::IgnoreNulls)
                || matches!(key.as_ref(), Expr::Literal(ScalarValue::Int64(Some(0)), _)))
        {
            let item = array_element(expr.expr.clone(), key.as_ref().clone());
            return Ok(PlannerResult::Planned(item));
        }
        let is_text = expr.expr.get_type(schema).is_ok_and(|data_type| data_type.is_string());
        let Some(slice) = SLICE.as_ref().filter(|_| is_text) else {
            return Ok(PlannerResult::Original(expr));
        };
        let RawFieldAccessExpr { field_access, expr } = expr;
        let args = match field_access {
            GetFieldAccess::ListIndex { key } => vec![expr, key.as_ref().clone(), *key],
            GetFieldAccess::ListRange { start, stop, stride: _ } => vec![expr, *start, *stop],
            field_access @ GetFieldAccess::NamedStructField { .. } => {
                return Ok(PlannerResult::Original(RawFieldAccessExpr { field_access, expr }));
            }
        };
        let call = ScalarFunction::new_udf(Arc::clone(slice), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}
