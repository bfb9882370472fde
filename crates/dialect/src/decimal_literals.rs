//! Exact values of number literals in SQL.
//!
//! DataFusion's planner reads a number with a point, and an integer that exceeds 64 bits, as a DOUBLE. If the
//! DOUBLE differs from the literal, the literal becomes a DECIMAL here. Numbers with so few digits that a
//! DOUBLE represents them unambiguously are unchanged.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, Statement, UnaryOperator, Value, ValueWithSpan,
    VisitorMut,
};

use tidemill_planning::walk_statement_mut;

/// Maximum number of digits of a DECIMAL.
const DECIMAL_DIGITS_MAX: usize = 38;

/// Rewrites numbers that no DOUBLE represents as decimals.
pub fn write_inexact_numbers_as_decimals(statement: &mut Statement) {
    walk_statement_mut(statement, &mut NumberRewriter);
}

struct NumberRewriter;

impl VisitorMut for NumberRewriter {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // A number below the smallest BIGINT, whose digits without the sign fit BIGINT UNSIGNED.
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr: number } = expr
            && let Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) =
                number.as_ref()
            && text.parse().is_ok_and(|digits: u64| digits > i64::MIN.unsigned_abs())
        {
            let digits = significant_digits(text).0.len() as u64;
            replace_by_decimal_cast(number, digits, 0);
            return ControlFlow::Continue(());
        }
        let Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) = expr else {
            return ControlFlow::Continue(());
        };
        if text.contains('_') {
            *text = text.replace('_', "");
        }
        if let Some((digits, places)) = decimal_precision_and_scale(text) {
            replace_by_decimal_cast(expr, digits, places);
        }
        ControlFlow::Continue(())
    }
}

/// Replaces a number by a cast of its text to a DECIMAL.
fn replace_by_decimal_cast(expr: &mut Expr, digits: u64, places: i64) {
    let Expr::Value(ValueWithSpan { value: Value::Number(text, _), span }) = expr else { return };
    let value = Value::SingleQuotedString(std::mem::take(text));
    *expr = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Value(ValueWithSpan { value, span: *span })),
        data_type: DataType::Decimal(ExactNumberInfo::PrecisionAndScale(digits, places)),
        array: false,
        format: None,
    };
}

/// Returns the precision and scale of a number that 64 bits do not represent. Returns `None` if they do, or
/// if it has more digits than a DECIMAL.
fn decimal_precision_and_scale(text: &str) -> Option<(u64, i64)> {
    if text.contains(['e', 'E']) || text.parse::<u64>().is_ok() {
        return None;
    }
    let (whole, fraction) = significant_digits(text);
    let nearest = text.parse::<f64>().ok()?.to_string();
    if text.contains('.') && significant_digits(&nearest) == (whole, fraction) {
        return None;
    }
    let digits = (whole.len() + fraction.len()).max(1);
    (digits <= DECIMAL_DIGITS_MAX).then_some((digits as u64, fraction.len() as i64))
}

/// Returns the digits before and after the point, without leading and trailing zeros.
fn significant_digits(text: &str) -> (&str, &str) {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    (whole.trim_start_matches('0'), fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_becomes_decimal_where_double_differs() {
        for text in ["0", "1.5", "0.1", "3.141592653589793", "18446744073709551615", "1e30", "1.0"]
        {
            assert_eq!(decimal_precision_and_scale(text), None, "{text}");
        }
        assert_eq!(decimal_precision_and_scale("12345678901234.5678"), Some((18, 4)));
        assert_eq!(decimal_precision_and_scale("9999999999999999.9999000"), Some((20, 4)));
        assert_eq!(decimal_precision_and_scale("18446744073709551616"), Some((20, 0)));
        assert_eq!(decimal_precision_and_scale("0.1234567890123456789"), Some((19, 19)));
        assert_eq!(decimal_precision_and_scale("00100000000000000000000"), Some((21, 0)));
        assert_eq!(decimal_precision_and_scale(&"9".repeat(38)), Some((38, 0)));
        assert_eq!(decimal_precision_and_scale(&"9".repeat(39)), None);
    }
}
