//! Numbers that are written out are calculated with as they are written: `0.06 + 0.01` is `0.07`.
//!
//! DataFusion takes a number with a point for a double, so that this sum would be the double next below
//! `0.07`, and `discount <= 0.06 + 0.01` would leave out what every other engine finds.

use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// How many digits a double holds whatever they are: such a one was written with these digits.
const DIGITS: u32 = f64::DIGITS;

/// Plans `+`, `-` and `*` of two numbers of which one has a point.
#[derive(Debug)]
pub(crate) struct Constants;

impl ExprPlanner for Constants {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        Ok(match calculated(&expr) {
            Some(value) => {
                PlannerResult::Planned(Expr::Literal(ScalarValue::Float64(Some(value)), None))
            }
            None => PlannerResult::Original(expr),
        })
    }
}

fn calculated(expr: &RawBinaryExpr) -> Option<f64> {
    let is_double = |of: &Expr| matches!(of, Expr::Literal(ScalarValue::Float64(Some(_)), _));
    if !is_double(&expr.left) && !is_double(&expr.right) {
        return None;
    }
    let (left, right) = (Written::of(&expr.left)?, Written::of(&expr.right)?);
    let scale = left.scale.max(right.scale);
    let found = match expr.op {
        BinaryOperator::Plus => {
            Written { units: left.at(scale)?.checked_add(right.at(scale)?)?, scale }
        }
        BinaryOperator::Minus => {
            Written { units: left.at(scale)?.checked_sub(right.at(scale)?)?, scale }
        }
        BinaryOperator::Multiply => Written {
            units: left.units.checked_mul(right.units)?,
            scale: left.scale.checked_add(right.scale)?,
        },
        _ => return None,
    };
    // The nearest double, as of a number that is written so.
    format!("{}e-{}", found.units, found.scale).parse().ok()
}

/// A decimal: `units` of 10 to the power of minus `scale`.
struct Written {
    units: i128,
    scale: u32,
}

impl Written {
    fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Literal(ScalarValue::Int64(Some(value)), _) => {
                Some(Written { units: i128::from(*value), scale: 0 })
            }
            Expr::Literal(ScalarValue::Float64(Some(value)), _) => Self::of_double(*value),
            _ => None,
        }
    }

    /// What was written, by the shortest text that is this double.
    fn of_double(value: f64) -> Option<Self> {
        // A zero below zero has no decimal.
        if !value.is_finite() || (value == 0.0 && value.is_sign_negative()) {
            return None;
        }
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e')?;
        let exponent: i32 = exponent.parse().ok()?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let units: i128 = format!("{whole}{fraction}").parse().ok()?;
        if units.unsigned_abs() >= 10_u128.pow(DIGITS) {
            return None;
        }
        let scale = i32::try_from(fraction.len()).ok()? - exponent;
        match u32::try_from(scale) {
            Ok(scale) => Some(Written { units, scale }),
            Err(_) => {
                let units = units.checked_mul(10_i128.checked_pow(scale.unsigned_abs())?)?;
                Some(Written { units, scale: 0 })
            }
        }
    }

    /// Its units at a scale no smaller than its own.
    fn at(&self, scale: u32) -> Option<i128> {
        self.units.checked_mul(10_i128.checked_pow(scale - self.scale)?)
    }
}
