//! Translation of `INTERSECT ALL`, `EXCEPT ALL` and `MINUS`.
//!
//! DataFusion plans `INTERSECT ALL` and `EXCEPT ALL` as joins that keep every row of the left side, whatever
//! the number of equal rows on the right side. SQL counts rows. If a row occurs `l` times on the left and `r`
//! times on the right, `INTERSECT ALL` returns it `least(l, r)` times, and `EXCEPT ALL` returns it `l - r`
//! times, at least zero. The translation therefore groups both branches by all of their columns and repeats
//! each group that many times:
//!
//! ```sql
//! SELECT * EXCLUDE (l, r, block, n) FROM (
//!   SELECT *, unnest(range(least(512, least(l, r) - 512 * block))) AS n FROM (
//!     SELECT *, unnest(range(least(l, r) / 512 + 1)) AS block FROM (
//!       SELECT * EXCLUDE (side), count(*) FILTER (WHERE side = 0) AS l,
//!         count(*) FILTER (WHERE side = 1) AS r
//!       FROM (SELECT *, 0 AS side FROM left UNION ALL SELECT *, 1 FROM right) GROUP BY ALL)))
//! ```
//!
//! Cost: one aggregation by all columns over both branches, which spills like every `GROUP BY`, and a list of
//! `n / 512` numbers for a row that occurs `n` times. The names of the added columns begin with a control
//! character, which no user's name has.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, Statement, TableFactor,
    VisitorMut,
};
use tidemill_base::error::Result;
use tidemill_planning::walk_statement_mut;

use crate::column_names;
use crate::translation::parse_query;

/// Rewrites the set operations of a query's body.
///
/// # Errors
/// [`Error::Internal`](tidemill_base::error::Error::Internal) only.
pub(super) fn translate_set_operations(body: &mut SetExpr) -> Result<()> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return Ok(()) };
    translate_set_operations(left)?;
    translate_set_operations(right)?;
    if *op == SetOperator::Minus {
        *op = SetOperator::Except;
    }
    if *set_quantifier != SetQuantifier::All {
        return Ok(());
    }
    let (left_count, right_count) = ("\"\u{1}left_count\"", "\"\u{1}right_count\"");
    let count = match op {
        SetOperator::Intersect => format!("least({left_count}, {right_count})"),
        SetOperator::Except => format!("greatest({left_count} - {right_count}, 0)"),
        _ => return Ok(()),
    };
    let both = match op {
        SetOperator::Intersect => SIDES_ALIASES[0].0,
        _ => SIDES_ALIASES[1].0,
    };
    let (side, block, copy) = ("\"\u{1}side\"", "\"\u{1}block\"", "\"\u{1}copy\"");
    let query = parse_query(&format!(
        "SELECT * EXCLUDE ({left_count}, {right_count}, {block}, {copy}) FROM (\
         SELECT *, unnest(range(least({COPIES_PER_LIST}, {count} - {COPIES_PER_LIST} * {block}))) AS {copy} FROM (\
         SELECT *, unnest(range({count} // {COPIES_PER_LIST} + 1)) AS {block} FROM (\
         SELECT * EXCLUDE ({side}), count(*) FILTER (WHERE {side} = 0) AS {left_count}, \
         count(*) FILTER (WHERE {side} = 1) AS {right_count} FROM (\
         SELECT *, 0 AS {side} FROM (SELECT 0) AS __left UNION ALL \
         SELECT *, 1 AS {side} FROM (SELECT 1) AS __right) AS {both} GROUP BY ALL) AS __counted) \
         AS __blocks) AS __copied"
    ))?;
    let branches = [
        std::mem::replace(left, placeholder_body()?),
        std::mem::replace(right, placeholder_body()?),
    ];
    let mut statement = Statement::Query(query);
    walk_statement_mut(&mut statement, &mut BranchSubstitution(branches.map(Some)));
    if let Statement::Query(query) = statement {
        *body = SetExpr::Query(query);
    }
    Ok(())
}

/// Names the scalar subqueries of a select list that [`translate_set_operations`] rewrites by their column,
/// as the planner names others.
pub(super) fn name_scalar_subqueries(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && let Expr::Subquery(query) = &*expr
            && let Some(alias) = first_column_name(&query.body)
        {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// Returns the name of the first column of an `INTERSECT ALL` or `EXCEPT ALL`.
fn first_column_name(body: &SetExpr) -> Option<Ident> {
    let SetExpr::SetOperation { op, set_quantifier, left, .. } = body else { return None };
    if *op == SetOperator::Union || *set_quantifier != SetQuantifier::All {
        return first_column_name(left);
    }
    let mut branch = left;
    while let SetExpr::SetOperation { left, .. } = branch.as_ref() {
        branch = left;
    }
    let SetExpr::Select(select) = branch.as_ref() else { return None };
    match select.projection.first()? {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => path.last().cloned(),
        SelectItem::UnnamedExpr(other) => {
            Some(Ident::with_quote('"', column_names::expr_display_text(other)))
        }
        _ => None,
    }
}

/// The aliases of the subquery with the rows of both sides, each with its operator.
pub(super) const SIDES_ALIASES: [(&str, &str); 2] =
    [("__sides_of_intersect", "INTERSECT ALL"), ("__sides_of_except", "EXCEPT ALL")];

/// Returns the operator and the sides of a translated set operation, if a table is one.
pub(super) fn set_operation_sides(table: &TableFactor) -> Option<(&'static str, [&SetExpr; 2])> {
    let TableFactor::Derived { subquery, alias: Some(alias), .. } = table else { return None };
    let (_, operator) = SIDES_ALIASES.iter().find(|(name, _)| *name == alias.name.value)?;
    let SetExpr::SetOperation { left, right, .. } = subquery.body.as_ref() else { return None };
    Some((operator, [left, right]))
}

/// Maximum number of copies of a row that one list makes.
const COPIES_PER_LIST: u32 = 512;

fn placeholder_body() -> Result<Box<SetExpr>> {
    Ok(parse_query("SELECT 0")?.body)
}

/// Replaces the placeholder subqueries by the left and the right branch of an operation. It replaces each
/// after visiting it, so that it leaves subqueries of the branches alone, which may have the same aliases.
struct BranchSubstitution([Option<Box<SetExpr>>; 2]);

impl VisitorMut for BranchSubstitution {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = table {
            let branch = match alias.name.value.as_str() {
                "__left" => self.0[0].take(),
                "__right" => self.0[1].take(),
                _ => None,
            };
            if let Some(branch) = branch {
                subquery.body = branch;
            }
        }
        ControlFlow::Continue(())
    }
}
