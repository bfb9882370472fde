//! Translation of scalar subqueries that take one row of those correlated with the outer row:
//!
//! ```sql
//! (SELECT v FROM hits AS h WHERE h.id = u.id ORDER BY at DESC LIMIT 1)
//! (SELECT first_value(v ORDER BY at DESC) AS v FROM hits AS h WHERE h.id = u.id)
//! ```
//!
//! DataFusion plans a correlated subquery only if it is an aggregate, as the second form is. It returns the
//! value of the same row, and null without a row.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, LimitClause, ObjectName, OrderByKind, Query, Select,
    SelectItem, SetExpr, Value, ValueWithSpan, Visitor,
};
use tidemill_planning::walk_expr;

use crate::column_names::{self, normalize_ident};
use crate::translation::column_expansion::source_names;

/// Rewrites a correlated `SELECT value … ORDER BY keys LIMIT 1` as an aggregate.
pub(super) fn aggregate_first_row(query: &mut Query) {
    let Query {
        with: None,
        body,
        order_by: Some(order),
        limit_clause: Some(limit),
        fetch: None,
        ..
    } = query
    else {
        return;
    };
    let (SetExpr::Select(select), OrderByKind::Expressions(keys)) = (body.as_mut(), &order.kind)
    else {
        return;
    };
    if !is_limit_one(limit) || !is_ungrouped_select(select) || !is_correlated(select) {
        return;
    }
    let (value, name) = match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(expr)] => (expr.clone(), default_column_name(expr)),
        [SelectItem::ExprWithAlias { expr, alias }] => (expr.clone(), alias.clone()),
        _ => return,
    };
    let mut keys = keys.clone();
    for key in &mut keys {
        let is_value = match &key.expr {
            Expr::Identifier(own) => normalize_ident(own) == normalize_ident(&name),
            Expr::Value(ValueWithSpan { value: Value::Number(place, _), .. }) => place == "1",
            _ => false,
        };
        if is_value {
            key.expr = value.clone();
        }
    }
    let first = Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("first_value")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(value))],
            clauses: vec![FunctionArgumentClause::OrderBy(keys)],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    });
    select.projection = vec![SelectItem::ExprWithAlias { expr: first, alias: name }];
    query.order_by = None;
    query.limit_clause = None;
}

/// Returns the name of a column without an alias.
fn default_column_name(expr: &Expr) -> Ident {
    match expr {
        Expr::Identifier(name) => name.clone(),
        Expr::CompoundIdentifier(path) if !path.is_empty() => path[path.len() - 1].clone(),
        other => Ident::with_quote('"', column_names::expr_display_text(other)),
    }
}

/// Returns true for `LIMIT 1`.
fn is_limit_one(limit: &LimitClause) -> bool {
    let LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by } = limit else {
        return false;
    };
    let is_one = matches!(
        limit,
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) if number == "1"
    );
    is_one && limit_by.is_empty()
}

/// Returns true if a SELECT neither groups nor aggregates, so that it has a row for each row that WHERE
/// keeps.
fn is_ungrouped_select(select: &Select) -> bool {
    let is_ungrouped = matches!(
        &select.group_by,
        GroupByExpr::Expressions(keys, modifiers) if keys.is_empty() && modifiers.is_empty()
    );
    let is_value = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            !calls_function_or_subquery(expr)
        }
        _ => false,
    };
    is_ungrouped
        && select.distinct.is_none()
        && select.top.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && select.selection.is_some()
        && select.projection.iter().all(is_value)
}

/// Returns true if an expression calls a function, which may be an aggregate, or contains a subquery.
fn calls_function_or_subquery(expr: &Expr) -> bool {
    struct CallOrSubqueryFinder;

    impl Visitor for CallOrSubqueryFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(_) | Expr::Subquery(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut CallOrSubqueryFinder)
}

/// Returns true if WHERE names a column of a source that is not in FROM.
fn is_correlated(select: &Select) -> bool {
    struct OuterNameFinder {
        own: BTreeSet<String>,
    }

    impl Visitor for OuterNameFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::CompoundIdentifier(path)
                    if path
                        .first()
                        .is_some_and(|name| !self.own.contains(&normalize_ident(name))) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }

    let mut sources = OuterNameFinder { own: source_names(&select.from) };
    select.selection.as_ref().is_some_and(|condition| walk_expr(condition, &mut sources))
}
