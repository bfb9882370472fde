//! Exact arithmetic of number literals: `0.06 + 0.01` is `0.07`.
//!
//! DataFusion reads a number with a point as a DOUBLE, so that this sum would be the DOUBLE next below
//! `0.07`, and `discount <= 0.06 + 0.01` would drop rows that every other engine returns.

use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Number of decimal digits that every DOUBLE represents exactly: a literal of at most this many digits is
/// recovered from its DOUBLE.
const DOUBLE_EXACT_DIGITS: u32 = f64::DIGITS;

/// Plans `+`, `-` and `*` of two number literals, at least one of which has a point.
#[derive(Debug)]
pub(crate) struct LiteralArithmeticPlanner;

impl ExprPlanner for LiteralArithmeticPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        Ok(match calculate_literals(&expr) {
            Some(value) => {
                PlannerResult::Planned(Expr::Literal(ScalarValue::Float64(Some(value)), None))
            }
            None => PlannerResult::Original(expr),
        })
    }
}

fn calculate_literals(expr: &RawBinaryExpr) -> Option<f64> {
    let is_double = |of: &Expr| matches!(of, Expr::Literal(ScalarValue::Float64(Some(_)), _));
    if !is_double(&expr.left) && !is_double(&expr.right) {
        return None;
    }
    let (left, right) =
        (WrittenDecimal::from_literal(&expr.left)?, WrittenDecimal::from_literal(&expr.right)?);
    let scale = left.scale.max(right.scale);
    let found = match expr.op {
        BinaryOperator::Plus => WrittenDecimal {
            units: left.units_at_scale(scale)?.checked_add(right.units_at_scale(scale)?)?,
            scale,
        },
        BinaryOperator::Minus => WrittenDecimal {
            units: left.units_at_scale(scale)?.checked_sub(right.units_at_scale(scale)?)?,
            scale,
        },
        BinaryOperator::Multiply => WrittenDecimal {
            units: left.units.checked_mul(right.units)?,
            scale: left.scale.checked_add(right.scale)?,
        },
        _ => return None,
    };
    // The DOUBLE nearest to the result, as if the result had been written.
    format!("{}e-{}", found.units, found.scale).parse().ok()
}

/// A decimal literal: `units` times 10 to the power of minus `scale`.
struct WrittenDecimal {
    units: i128,
    scale: u32,
}

impl WrittenDecimal {
    fn from_literal(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Literal(ScalarValue::Int64(Some(value)), _) => {
                Some(WrittenDecimal { units: i128::from(*value), scale: 0 })
            }
            Expr::Literal(ScalarValue::Float64(Some(value)), _) => Self::from_double(*value),
            _ => None,
        }
    }

    /// Recovers the written decimal from the shortest text that parses to this DOUBLE.
    fn from_double(value: f64) -> Option<Self> {
        // A decimal has no negative zero.
        if !value.is_finite() || (value == 0.0 && value.is_sign_negative()) {
            return None;
        }
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e')?;
        let exponent: i32 = exponent.parse().ok()?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let units: i128 = format!("{whole}{fraction}").parse().ok()?;
        if units.unsigned_abs() >= 10_u128.pow(DOUBLE_EXACT_DIGITS) {
            return None;
        }
        let scale = i32::try_from(fraction.len()).ok()? - exponent;
        match u32::try_from(scale) {
            Ok(scale) => Some(WrittenDecimal { units, scale }),
            Err(_) => {
                let units = units.checked_mul(10_i128.checked_pow(scale.unsigned_abs())?)?;
                Some(WrittenDecimal { units, scale: 0 })
            }
        }
    }

    /// Returns the units at a scale that is at least its own.
    fn units_at_scale(&self, scale: u32) -> Option<i128> {
        self.units.checked_mul(10_i128.checked_pow(scale - self.scale)?)
    }
}
