//! Numbers as they are written in SQL.
//!
//! The planner reads a number with a point, and a whole one beyond 64 bits, as a DOUBLE. Where that is not
//! the number which is written, it is a DECIMAL here; numbers with so few digits that a DOUBLE tells
//! them apart stay what they are.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, Statement, UnaryOperator, Value, ValueWithSpan,
    VisitorMut,
};

use tidemill_planning::walk_statement_mut;

/// The most digits that a DECIMAL has.
const DIGITS_MAX: usize = 38;

/// Writes numbers that a DOUBLE does not hold as decimals.
pub fn keep(statement: &mut Statement) {
    walk_statement_mut(statement, &mut Numbers);
}

struct Numbers;

impl VisitorMut for Numbers {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // A number below the smallest BIGINT, whose digits alone are a BIGINT UNSIGNED.
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr: number } = expr
            && let Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) =
                number.as_ref()
            && text.parse().is_ok_and(|digits: u64| digits > i64::MIN.unsigned_abs())
        {
            let digits = plain(text).0.len() as u64;
            write_decimal(number, digits, 0);
            return ControlFlow::Continue(());
        }
        let Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) = expr else {
            return ControlFlow::Continue(());
        };
        if text.contains('_') {
            *text = text.replace('_', "");
        }
        if let Some((digits, places)) = decimal(text) {
            write_decimal(expr, digits, places);
        }
        ControlFlow::Continue(())
    }
}

/// Writes a number as a cast of its text to a DECIMAL.
fn write_decimal(expr: &mut Expr, digits: u64, places: i64) {
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

/// The digits and decimal places of a number that 64 bits do not hold; none where they do, or where it
/// has more than a DECIMAL.
fn decimal(text: &str) -> Option<(u64, i64)> {
    if text.contains(['e', 'E']) || text.parse::<u64>().is_ok() {
        return None;
    }
    let (whole, fraction) = plain(text);
    let nearest = text.parse::<f64>().ok()?.to_string();
    if text.contains('.') && plain(&nearest) == (whole, fraction) {
        return None;
    }
    let digits = (whole.len() + fraction.len()).max(1);
    (digits <= DIGITS_MAX).then_some((digits as u64, fraction.len() as i64))
}

/// The digits before and after the point, without zeros that say nothing.
fn plain(text: &str) -> (&str, &str) {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    (whole.trim_start_matches('0'), fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_decimal_where_a_double_is_another_one() {
        for text in ["0", "1.5", "0.1", "3.141592653589793", "18446744073709551615", "1e30", "1.0"]
        {
            assert_eq!(decimal(text), None, "{text}");
        }
        assert_eq!(decimal("12345678901234.5678"), Some((18, 4)));
        assert_eq!(decimal("9999999999999999.9999000"), Some((20, 4)));
        assert_eq!(decimal("18446744073709551616"), Some((20, 0)));
        assert_eq!(decimal("0.1234567890123456789"), Some((19, 19)));
        assert_eq!(decimal("00100000000000000000000"), Some((21, 0)));
        assert_eq!(decimal(&"9".repeat(38)), Some((38, 0)));
        assert_eq!(decimal(&"9".repeat(39)), None);
    }
}
