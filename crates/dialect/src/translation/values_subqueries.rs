//! Translation of `VALUES` rows with subqueries into branches of a `UNION ALL`.
//!
//! ```sql
//! VALUES (1, (SELECT max(x) FROM t)), (2, 3)
//! SELECT 1 AS column1, (SELECT max(x) FROM t) AS column2 UNION ALL VALUES (2, 3)
//! ```
//!
//! DataFusion evaluates the rows of `VALUES` before any subquery has run, and fails with an internal error.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Query, SelectItem, SetExpr, SetOperator, SetQuantifier, Values, Visitor,
};
use tidemill_base::error::{Error, Result};
use tidemill_planning::walk_expr;

use crate::translation::parse_query;

/// Translates the `VALUES` of a query's body whose rows have subqueries.
///
/// # Errors
/// [`Error::Internal`] only.
pub(super) fn translate_values(body: &mut SetExpr) -> Result<()> {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            translate_values(left)?;
            translate_values(right)
        }
        SetExpr::Values(values) if values.rows.iter().any(|row| has_subquery(&row.content)) => {
            *body = balanced_union(union_branches(values)?)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns true if a row contains a subquery.
fn has_subquery(row: &[Expr]) -> bool {
    struct SubqueryFinder;

    impl Visitor for SubqueryFinder {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }

    row.iter().any(|value| walk_expr(value, &mut SubqueryFinder))
}

/// Returns a SELECT for each row with a subquery, and `VALUES` for the rows between.
fn union_branches(values: &Values) -> Result<Vec<SetExpr>> {
    let mut branches = Vec::new();
    for rows in values
        .rows
        .chunk_by(|row, next| !has_subquery(&row.content) && !has_subquery(&next.content))
    {
        branches.push(match rows {
            [row] if has_subquery(&row.content) => select_from_row(&row.content)?,
            rows => SetExpr::Values(Values { rows: rows.to_vec(), ..values.clone() }),
        });
    }
    Ok(branches)
}

/// Returns `SELECT a AS column1, b AS column2, …`, which names its columns as `VALUES` does.
fn select_from_row(row: &[Expr]) -> Result<SetExpr> {
    let mut body = parse_query("SELECT 1")?.body;
    if let SetExpr::Select(select) = body.as_mut() {
        let columns = row.iter().enumerate().map(|(place, value)| SelectItem::ExprWithAlias {
            expr: value.clone(),
            alias: format!("column{}", place + 1).as_str().into(),
        });
        select.projection = columns.collect();
    }
    Ok(*body)
}

/// Returns the `UNION ALL` of branches as a balanced tree: a chain would be as deep as the number of rows.
fn balanced_union(mut branches: Vec<SetExpr>) -> Result<SetExpr> {
    if branches.len() > 1 {
        let right = balanced_union(branches.split_off(branches.len() / 2))?;
        let left = balanced_union(branches)?;
        return Ok(SetExpr::SetOperation {
            op: SetOperator::Union,
            set_quantifier: SetQuantifier::All,
            left: Box::new(left),
            right: Box::new(right),
        });
    }
    branches.pop().ok_or_else(|| Error::Internal("VALUES have no row".into()))
}
