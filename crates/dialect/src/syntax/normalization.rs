//! Normalization of a statement before planning: it adds what the statement omits, and rewrites forms that
//! the planner does not take. Examples are `FROM 'f.csv'` alone, `ORDER BY ALL`, `ROLLUP (1, 2)`,
//! `x = ANY([a, b])`, and columns without names.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, Expr, GroupByExpr, Ident, OrderBy, OrderByExpr, OrderByKind, Query,
    Select, SelectFlavor, SelectItem, SetExpr, Statement, TableAlias, TableAliasColumnDef,
    TableFactor, UnaryOperator, Value, ValueWithSpan, Visitor, VisitorMut,
    WildcardAdditionalOptions,
};
use tidemill_planning::{walk_expr, walk_statement_mut};

use crate::translation::random_value_checks::calls_random_function;
use crate::{column_names, translation};

/// Normalizes a statement: `FROM 'f.csv'` alone becomes `SELECT *`, and so on.
pub(crate) fn normalize_statement(statement: &mut Statement) {
    struct StatementNormalizer;

    impl VisitorMut for StatementNormalizer {
        type Break = ();

        fn pre_visit_select(&mut self, select: &mut Select) -> std::ops::ControlFlow<()> {
            if select.flavor == SelectFlavor::FromFirstNoSelect {
                select.flavor = SelectFlavor::FromFirst;
                select.projection =
                    vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
            }
            resolve_grouping_positions(&mut select.group_by, &select.projection);
            // The planner gives all subquery conditions the same name, and others are rewritten here.
            let is_renamed = |expr: &Expr| {
                use Expr::{AllOp, AnyOp, Exists, InSubquery};
                matches!(expr, Exists { .. } | InSubquery { .. } | AnyOp { .. } | AllOp { .. })
            };
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) = item
                    && has_subexpr(expr, is_renamed)
                {
                    let alias = Ident::with_quote('"', column_names::expr_display_text(expr));
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
            std::ops::ControlFlow::Continue(())
        }

        fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> std::ops::ControlFlow<()> {
            if let TableFactor::Derived { subquery, alias, .. } = table {
                if let Some(alias) = alias {
                    name_literal_columns(subquery, alias);
                }
                name_computed_columns(subquery);
            }
            if let TableFactor::UNNEST { alias, array_exprs, .. } = table
                && let [_] = array_exprs.as_slice()
            {
                name_unnest_column(alias);
            }
            std::ops::ControlFlow::Continue(())
        }

        /// Rewrites `INTERVAL 1 HOUR`, which the planner does not take in a window's frame, and
        /// `x = ANY(list)`, for which it forgets that a null in the list may be equal; for ALL it does not.
        fn post_visit_expr(&mut self, expr: &mut Expr) -> std::ops::ControlFlow<()> {
            if let Expr::Interval(interval) = expr
                && let (Expr::Value(value), Some(field)) =
                    (&*interval.value, &interval.leading_field)
                && let Value::Number(number, _) = &value.value
                && interval.last_field.is_none()
                && interval.leading_precision.is_none()
            {
                let text = Value::SingleQuotedString(format!("{number} {field}"));
                *interval.value = Expr::Value(ValueWithSpan { value: text, span: value.span });
                interval.leading_field = None;
            }
            if matches!(expr, Expr::AnyOp { .. } | Expr::AllOp { .. }) {
                *expr =
                    normalize_list_comparison(std::mem::replace(expr, Expr::value(Value::Null)));
            }
            std::ops::ControlFlow::Continue(())
        }

        /// Names the columns that ORDER BY refers to by number. The planner substitutes the whole expression
        /// there, and then does not recognise a window over groups, or an expression over aggregates or keys,
        /// as computed already.
        fn pre_visit_query(&mut self, query: &mut Query) -> std::ops::ControlFlow<()> {
            for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
                name_literal_columns(&mut cte.query, &cte.alias);
                name_computed_columns(&mut cte.query);
            }
            let (SetExpr::Select(select), Some(order)) =
                (query.body.as_mut(), query.order_by.as_mut())
            else {
                return std::ops::ControlFlow::Continue(());
            };
            expand_order_by_all(order, select.projection.as_slice());
            let OrderByKind::Expressions(keys) = &order.kind else {
                return std::ops::ControlFlow::Continue(());
            };
            let is_grouped = match &select.group_by {
                GroupByExpr::All(_) => true,
                GroupByExpr::Expressions(exprs, _) => !exprs.is_empty(),
            };
            let group_by = select.group_by.clone();
            for key in keys {
                let Some(at) = column_position(&key.expr) else { continue };
                if let Some(item) = select.projection.get_mut(at)
                    && let SelectItem::UnnamedExpr(expr) = item
                    && (has_subexpr(
                        expr,
                        |expr| matches!(expr, Expr::Function(call) if call.over.is_some()),
                    ) || is_grouped && is_computed_from_calls(expr)
                        || is_computed_from_keys(expr, at, &group_by))
                {
                    let alias = Ident::with_quote('"', column_names::expr_display_text(expr));
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
            std::ops::ControlFlow::Continue(())
        }
    }

    walk_statement_mut(statement, &mut StatementNormalizer);
}

/// Returns the comparison that is false where `op` is true.
fn negated_comparison(op: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match op {
        BinaryOperator::Eq => BinaryOperator::NotEq,
        BinaryOperator::NotEq => BinaryOperator::Eq,
        BinaryOperator::Lt => BinaryOperator::GtEq,
        BinaryOperator::GtEq => BinaryOperator::Lt,
        BinaryOperator::Gt => BinaryOperator::LtEq,
        BinaryOperator::LtEq => BinaryOperator::Gt,
        _ => return None,
    })
}

/// Maximum number of list items that are expanded into single comparisons.
const EXPANDED_ITEMS_MAX: usize = 100;

/// Rewrites `x = ANY([a, b])` as `x = a OR x = b`, which follows the rules of any comparison. For another
/// list, or a random `x`, it rewrites `x = ANY(list)` as `NOT (x <> ALL(list))`.
fn normalize_list_comparison(expr: Expr) -> Expr {
    let (left, op, right, is_any, is_some) = match expr {
        Expr::AnyOp { left, compare_op, right, is_some } => {
            (left, compare_op, right, true, is_some)
        }
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, false, false),
        other => return other,
    };
    let nested = |expr| Expr::Nested(Box::new(expr));
    match (*right, negated_comparison(&op)) {
        (Expr::Array(Array { elem, named: _ }), Some(_))
            if (1..=EXPANDED_ITEMS_MAX).contains(&elem.len()) && !calls_random_function(&left) =>
        {
            let joined = if is_any { BinaryOperator::Or } else { BinaryOperator::And };
            let compared = |item: Expr| Expr::BinaryOp {
                left: left.clone(),
                op: op.clone(),
                right: Box::new(item),
            };
            let all = elem.into_iter().map(compared).reduce(|left, right| Expr::BinaryOp {
                left: Box::new(left),
                op: joined.clone(),
                right: Box::new(right),
            });
            nested(all.unwrap_or_else(|| Expr::value(Value::Null)))
        }
        (right @ Expr::Subquery(_), _) | (right, None) if is_any => {
            Expr::AnyOp { left, compare_op: op, right: Box::new(right), is_some }
        }
        (right, Some(contrary)) if is_any => {
            let all = Expr::AllOp { left, compare_op: contrary, right: Box::new(right) };
            Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(all)) }
        }
        (right, _) => Expr::AllOp { left, compare_op: op, right: Box::new(right) },
    }
}

/// Names the literal columns of a query after its column aliases: in `t(a, b) AS (SELECT 0, 0)` both columns
/// would have the same name.
fn name_literal_columns(query: &mut Query, alias: &TableAlias) {
    let Some(select) = first_select(query) else { return };
    if select.projection.len() != alias.columns.len() {
        return;
    }
    for (item, column) in select.projection.iter_mut().zip(&alias.columns) {
        if let SelectItem::UnnamedExpr(expr) = item
            && matches!(expr, Expr::Value(_))
        {
            let alias = column.name.clone();
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// Returns the SELECT that names the columns of a query.
fn first_select(query: &mut Query) -> Option<&mut Select> {
    let mut body = query.body.as_mut();
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::SetOperation { left, .. } => body = left.as_mut(),
            SetExpr::Query(query) => body = query.body.as_mut(),
            _ => return None,
        }
    }
}

/// Names the computed columns of a query in FROM after their text, like result columns: `SELECT *` would
/// otherwise show the planner's own names.
fn name_computed_columns(query: &mut Query) {
    let Some(select) = first_select(query) else { return };
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(whole) = item else { continue };
        // A cast or parenthesized column is called like the column.
        let mut expr = &*whole;
        while let Expr::Cast { expr: inner, .. } | Expr::Nested(inner) = expr {
            expr = inner;
        }
        let is_named = match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
            // A subquery is called like its column.
            Expr::Subquery(_) => true,
            // `unnest` of a struct makes several columns, which cannot have one name.
            Expr::Function(call) => call.name.to_string().eq_ignore_ascii_case("unnest"),
            _ => false,
        };
        if !is_named {
            let alias = Ident::with_quote('"', column_names::expr_display_text(whole));
            *item = SelectItem::ExprWithAlias { expr: whole.clone(), alias };
        }
    }
}

/// Names the items of a list in FROM as other engines do.
fn name_unnest_column(alias: &mut Option<TableAlias>) {
    let name = || Ident::new("unnest");
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: name(),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: name(), data_type: None });
    }
}

/// Replaces column positions within ROLLUP, CUBE and GROUPING SETS by the columns, as anywhere in GROUP BY:
/// the planner takes them for constants. A number that is no column's position stays.
fn resolve_grouping_positions(group_by: &mut GroupByExpr, columns: &[SelectItem]) {
    let GroupByExpr::Expressions(keys, _) = group_by else { return };
    for key in keys {
        let (Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) = key else {
            continue;
        };
        for key in sets.iter_mut().flatten() {
            if let Some(expr) = column_at_position(key, columns) {
                // Nested, so that a number in the select list is not read as a position again.
                *key = match expr {
                    Expr::Value(_) => Expr::Nested(Box::new(expr.clone())),
                    expr => expr.clone(),
                };
            }
        }
    }
}

/// Returns true if an expression is computed from the results of function calls.
fn is_computed_from_calls(expr: &Expr) -> bool {
    let is_call = |expr: &Expr| matches!(expr, Expr::Function(_));
    let mut calls = 0;
    has_subexpr(expr, |expr| {
        calls += usize::from(is_call(expr));
        false
    });
    calls > usize::from(is_call(expr))
}

/// Returns true if a select-list item is computed from the keys of GROUP BY without being a key itself.
fn is_computed_from_keys(expr: &Expr, at: usize, group_by: &GroupByExpr) -> bool {
    let GroupByExpr::Expressions(keys, _) = group_by else { return false };
    let mut expr = expr;
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    let is_key = keys.iter().any(|key| key == expr || column_position(key) == Some(at));
    if keys.is_empty() || is_key || column_name(expr).is_some() {
        return false;
    }
    // `unnest` takes no name, and the name of a subquery would show the files that it reads.
    let is_of_rows = |expr: &Expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => true,
        Expr::Function(call) => call.name.to_string().eq_ignore_ascii_case("unnest"),
        _ => false,
    };
    if has_subexpr(expr, is_of_rows) {
        return false;
    }
    // A call without a key is an aggregate, whose name the planner finds.
    let mut names = BTreeSet::new();
    for key in keys {
        has_subexpr(key, |expr| {
            names.extend(column_name(expr));
            false
        });
    }
    !matches!(expr, Expr::Function(_))
        || has_subexpr(expr, |expr| column_name(expr).is_some_and(|name| names.contains(&name)))
}

/// Returns the unqualified name of a column.
fn column_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(column_names::normalize_ident(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(column_names::normalize_ident),
        _ => None,
    }
}

/// Returns the column index, from 0, that a position in SQL refers to.
fn column_position(key: &Expr) -> Option<usize> {
    match key {
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => {
            number.parse::<usize>().ok()?.checked_sub(1)
        }
        _ => None,
    }
}

/// Returns the column that a position refers to; `None` after a `*`, whose number of columns is unknown.
pub(super) fn column_at_position<'a>(key: &Expr, columns: &'a [SelectItem]) -> Option<&'a Expr> {
    let columns = columns.get(..=column_position(key)?)?;
    columns.iter().all(is_single_column).then(|| match columns.last() {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => Some(expr),
        _ => None,
    })?
}

fn is_single_column(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            !translation::contains_columns_call(expr)
        }
        _ => false,
    }
}

/// Replaces `ORDER BY ALL` by the numbers of the columns, if their number is known.
fn expand_order_by_all(order: &mut OrderBy, columns: &[SelectItem]) {
    let OrderByKind::All(options) = order.kind else { return };
    if columns.iter().all(is_single_column) {
        let number = |number: usize| OrderByExpr {
            expr: Expr::value(Value::Number(number.to_string(), false)),
            options,
            with_fill: None,
        };
        order.kind = OrderByKind::Expressions((1..=columns.len()).map(number).collect());
    }
}

/// Returns true if `is_one` is true for an expression or one of its subexpressions.
fn has_subexpr(expr: &Expr, is_one: impl FnMut(&Expr) -> bool) -> bool {
    struct SubexprFinder<F>(F);

    impl<F: FnMut(&Expr) -> bool> Visitor for SubexprFinder<F> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> std::ops::ControlFlow<()> {
            match (self.0)(expr) {
                true => std::ops::ControlFlow::Break(()),
                false => std::ops::ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut SubexprFinder(is_one))
}
