//! Translation of comparisons between a row and the rows of a subquery: `(a, b) < ANY (SELECT x, y …)`,
//! `(a, b) <> ALL (SELECT …)`.
//!
//! The first values that differ order two rows. The comparison becomes two EXISTS conditions: one that it is
//! true of any row, and one that it is unknown of any row.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use crate::translation::{parse_expr, row_values};

/// Translates a comparison of a row with ANY or ALL rows of a subquery into EXISTS; `None` for other
/// expressions.
pub(super) fn translate_row_subquery_comparison(expr: &Expr) -> Option<Expr> {
    let (left, op, right, is_all) = match expr {
        Expr::AnyOp { left, compare_op, right, is_some: _ } => (left, compare_op, right, false),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, true),
        _ => return None,
    };
    let Expr::Subquery(subquery) = right.as_ref() else { return None };
    let values: Vec<String> =
        row_values(left)?.into_iter().map(|value| format!("({value})")).collect();
    let names: Vec<String> = (1..=values.len()).map(|place| format!("tidemill_{place}")).collect();
    // A condition holds for all rows if its negation holds for none.
    let op = if is_all { negate_comparison(op)? } else { op.clone() };
    let holds = row_comparison_sql(&values, &op, &names)?;
    let exists = |condition: &str| {
        format!(
            "EXISTS (SELECT 1 FROM ({subquery}) AS tidemill_rows ({}) WHERE {condition})",
            names.join(", ")
        )
    };
    let (is_true, is_unknown) = (exists(&holds), exists(&format!("({holds}) IS NULL")));
    let text = format!(
        "CASE WHEN {is_true} THEN {} WHEN {is_unknown} THEN NULL ELSE {is_all} END",
        !is_all
    );
    parse_expr(&text).ok()
}

fn negate_comparison(op: &BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    Some(match op {
        Eq => NotEq,
        NotEq => Eq,
        Lt => GtEq,
        GtEq => Lt,
        Gt => LtEq,
        LtEq => Gt,
        _ => return None,
    })
}

/// Returns the comparison of two rows as SQL that compares their values.
fn row_comparison_sql(left: &[String], op: &BinaryOperator, right: &[String]) -> Option<String> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let pairs = || left.iter().zip(right);
    let all_equal = || {
        let pairs = pairs().map(|(left, right)| format!("{left} = {right}"));
        pairs.collect::<Vec<_>>().join(" AND ")
    };
    let strict = match op {
        Eq => return Some(all_equal()),
        NotEq => return Some(format!("NOT ({})", all_equal())),
        Lt | LtEq => "<",
        Gt | GtEq => ">",
        _ => return None,
    };
    let mut text = String::new();
    for (left, right) in left.iter().zip(right).rev() {
        text = match text.is_empty() {
            true => format!("{left} {op} {right}"),
            false => format!("({left} {strict} {right} OR {left} = {right} AND {text})"),
        };
    }
    Some(text)
}
