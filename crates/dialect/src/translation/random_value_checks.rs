//! Checks against translations that copy a random function's call, which would return another value in each
//! place.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Visitor};
use tidemill_base::error::{Error, Result};
use tidemill_planning::walk_expr;

use tidemill_planning::datafusion_names::RANDOM_FUNCTIONS;

/// Counts the calls of each of the [`RANDOM_FUNCTIONS`] in a translated expression.
pub(super) fn count_random_calls(expr: &Expr) -> [usize; RANDOM_FUNCTIONS.len()] {
    struct RandomCallCounter([usize; RANDOM_FUNCTIONS.len()]);

    impl Visitor for RandomCallCounter {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Function(call) = expr {
                let name = call.name.to_string();
                let place =
                    RANDOM_FUNCTIONS.iter().position(|random| name.eq_ignore_ascii_case(random));
                if let Some(place) = place {
                    self.0[place] += 1;
                }
            }
            ControlFlow::Continue(())
        }
    }

    let mut calls = RandomCallCounter([0; RANDOM_FUNCTIONS.len()]);
    walk_expr(expr, &mut calls);
    calls.0
}

/// Returns true if an expression calls a random function.
pub(crate) fn calls_random_function(expr: &Expr) -> bool {
    count_random_calls(expr).iter().any(|count| *count > 0)
}

/// Checks that a translation does not copy a random call of `written`.
///
/// # Errors
/// [`Error::Usage`] that names the expression and an alternative.
pub(super) fn refuse_random_copies(written: &Expr, translated: &Expr) -> Result<()> {
    let (before, after) = (count_random_calls(written), count_random_calls(translated));
    let copied = before.iter().zip(after).position(|(before, after)| (1..after).contains(before));
    copied.map_or(Ok(()), |place| Err(random_copy_error(written, RANDOM_FUNCTIONS[place])))
}

/// Checks that an expression does not compare a random value with ANY or ALL items of a list, where the
/// planner makes several comparisons: in all cases but `= ANY` and `<> ALL`.
///
/// # Errors
/// As [`refuse_random_copies`].
pub(super) fn refuse_random_list_comparison(expr: &Expr) -> Result<()> {
    let (left, is_one) = match expr {
        Expr::AnyOp { left, compare_op, .. } => (left, *compare_op == BinaryOperator::Eq),
        Expr::AllOp { left, compare_op, .. } => (left, *compare_op == BinaryOperator::NotEq),
        _ => return Ok(()),
    };
    let called = count_random_calls(left).iter().position(|count| *count > 0);
    called
        .filter(|_| !is_one)
        .map_or(Ok(()), |place| Err(random_copy_error(expr, RANDOM_FUNCTIONS[place])))
}

/// Checks that a row with a random value does not stand before `IN (SELECT …)`, which compares it with each
/// row.
///
/// # Errors
/// As [`refuse_random_copies`].
pub(super) fn refuse_random_rows(expr: &Expr) -> Result<()> {
    let Expr::InSubquery { expr: row, .. } = expr else { return Ok(()) };
    let called = match crate::translation::row_values(row) {
        Some(_) => count_random_calls(row).iter().position(|count| *count > 0),
        None => None,
    };
    called.map_or(Ok(()), |place| Err(random_copy_error(expr, RANDOM_FUNCTIONS[place])))
}

fn random_copy_error(expr: &Expr, function: &str) -> Error {
    Error::usage_with_hint(
        format!("`{expr}` uses `{function}()` more than once, and it differs each time"),
        "take it in a subquery, and name its column",
    )
}
