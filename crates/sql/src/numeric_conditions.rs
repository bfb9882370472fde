//! Whole numbers as conditions: AND and OR take one for whether it is other than zero, as DuckDB, ClickHouse and SQLite do.
//!
//! A number that is written out as a whole condition (`WHERE 1`) is another one before the statement is planned
//! ([`dialects`](crate::dialects)).

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as PlanResult};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Plans AND and OR of whole numbers.
#[derive(Debug)]
pub(crate) struct NumericConditions;

impl ExprPlanner for NumericConditions {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        if !matches!(expr.op, BinaryOperator::And | BinaryOperator::Or) {
            return Ok(PlannerResult::Original(expr));
        }
        let is_condition = |side: &Expr| {
            let data_type = side.get_type(schema);
            data_type.is_ok_and(|of| of.is_integer() || of.is_null() || of == DataType::Boolean)
        };
        let RawBinaryExpr { op, left, right } = expr;
        // Other operands are refused as they are written.
        if !is_condition(&left) || !is_condition(&right) {
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        }
        let condition = |side: Expr| match side.get_type(schema) {
            Ok(data_type) if data_type.is_integer() => side.not_eq(lit(0i64)),
            _ => side,
        };
        let (left, right) = (condition(left), condition(right));
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}
