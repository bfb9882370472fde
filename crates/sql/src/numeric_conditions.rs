//! Integers as conditions: AND and OR treat a nonzero integer as true, as in DuckDB, ClickHouse and SQLite.
//! Beside a BOOLEAN, an integer is compared with 1 and 0: `active = 1`. A literal text is cast to BOOLEAN:
//! `active = 'true'`.
//!
//! A literal number that is a whole condition (`WHERE 1`) is rewritten before the statement is planned
//! ([`translation`](tidemill_dialect::translation)).

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as PlanResult};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::common_type::literal_as_boolean;

/// An expression planner for AND and OR of integers, and for comparisons of a BOOLEAN with an integer.
#[derive(Debug)]
pub(crate) struct NumericConditionPlanner;

impl ExprPlanner for NumericConditionPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        if is_comparison(&expr.op) {
            return Ok(PlannerResult::Original(coerce_boolean_comparison(expr, schema)));
        }
        if !matches!(expr.op, BinaryOperator::And | BinaryOperator::Or) {
            return Ok(PlannerResult::Original(expr));
        }
        let is_condition = |side: &Expr| {
            let data_type = side.get_type(schema);
            data_type.is_ok_and(|of| of.is_integer() || of.is_null() || of == DataType::Boolean)
        };
        let RawBinaryExpr { op, left, right } = expr;
        // Other operands stay unchanged, so that the error shows them as written.
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

fn is_comparison(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// Coerces a comparison of a BOOLEAN with an integer to numbers, and with a literal text to BOOLEANs; leaves any
/// other unchanged.
fn coerce_boolean_comparison(expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let is_boolean = |side: &Expr| side.get_type(schema).is_ok_and(|of| of == DataType::Boolean);
    match (is_boolean(&expr.left), is_boolean(&expr.right)) {
        (true, false) => {
            let (left, right) = coerce_operand_beside_boolean(expr.left, expr.right, schema);
            RawBinaryExpr { left, right, op: expr.op }
        }
        (false, true) => {
            let (right, left) = coerce_operand_beside_boolean(expr.right, expr.left, schema);
            RawBinaryExpr { left, right, op: expr.op }
        }
        _ => expr,
    }
}

/// Coerces a BOOLEAN and a value of another type to one type, if there is one. The BOOLEAN stays a column beside 1, 0
/// or a text, so that the statistics of a file's column apply.
fn coerce_operand_beside_boolean(boolean: Expr, other: Expr, schema: &DFSchema) -> (Expr, Expr) {
    if let Some(other) = literal_as_boolean(&other, &DataType::Boolean) {
        return (boolean, other);
    }
    let is_text = matches!(&other, Expr::Literal(text, _) if text.data_type().is_string());
    match other.get_type(schema) {
        Ok(of) if of.is_integer() => (cast(boolean, DataType::Int64), other),
        Ok(_) if is_text => (boolean, cast(other, DataType::Boolean)),
        _ => (boolean, other),
    }
}
