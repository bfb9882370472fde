//! Translation of `a FULL JOIN b USING (k)` and `a RIGHT JOIN b USING (k)` over two sources. The unqualified
//! column of a FULL join is the value of either side, `coalesce(a.k, b.k)`, and of a RIGHT join the right
//! side's.
//!
//! DataFusion takes the left side's, which is null for rows without a match. The translation joins ON both
//! columns and substitutes the merged value for the unqualified name. A `*` has the column once, at its
//! position among the columns of the left side, as for other joins.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, ReplaceSelectElement, ReplaceSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, WildcardAdditionalOptions,
};
use tidemill_planning::walk_expr_mut;

use crate::column_names::{self, normalize_ident};
use crate::translation::function_calls::function_call;
use crate::translation::operators::binary_op;
use crate::translation::walk_conditions_and_keys;
use crate::using_columns::{UsingColumnQualifier, table_qualifier};

/// Rewrites the USING join of a SELECT with ON.
pub(super) fn rewrite_outer_using(select: &mut Select) {
    let [from] = select.from.as_mut_slice() else { return };
    let [join] = from.joins.as_mut_slice() else { return };
    let (constraint, is_full) = match &mut join.join_operator {
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            (constraint, false)
        }
        JoinOperator::FullOuter(constraint) => (constraint, true),
        _ => return,
    };
    let JoinConstraint::Using(columns) = &*constraint else { return };
    let (Some(left), Some(right)) =
        (table_qualifier(&from.relation), table_qualifier(&join.relation))
    else {
        return;
    };
    let column = |name: &ObjectName| match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name.clone()),
        _ => None,
    };
    let Some(columns) = columns.iter().map(column).collect::<Option<Vec<Ident>>>() else { return };
    if columns.is_empty() || !select.projection.iter().all(has_known_columns) {
        return;
    }
    let of =
        |side: &Ident, column: &Ident| Expr::CompoundIdentifier(vec![side.clone(), column.clone()]);
    let conditions = columns
        .iter()
        .map(|column| binary_op(&of(&left, column), BinaryOperator::Eq, &of(&right, column)));
    let condition = conditions.reduce(|all, next| binary_op(&all, BinaryOperator::And, &next));
    let Some(condition) = condition else { return };
    *constraint = JoinConstraint::On(condition);
    let either = |column: &Ident| match is_full {
        true => function_call("coalesce", vec![of(&left, column), of(&right, column)]),
        false => of(&right, column),
    };
    let merged = columns.iter().map(|column| (normalize_ident(column), either(column))).collect();
    let mut named = UsingColumnQualifier::new(&merged);
    // If a qualified column has the same name, the unqualified one gets a numeric suffix.
    let with_source: Vec<String> =
        select.projection.iter().filter_map(qualified_column_name).collect();
    let mut projection = Vec::with_capacity(select.projection.len());
    for mut item in select.projection.drain(..) {
        match &mut item {
            SelectItem::UnnamedExpr(expr) => {
                let written = match &*expr {
                    Expr::Identifier(name) if with_source.contains(&normalize_ident(name)) => {
                        Ident::with_quote('"', format!("{}_1", name.value))
                    }
                    Expr::Identifier(name) => name.clone(),
                    other => Ident::with_quote('"', column_names::expr_display_text(other)),
                };
                let before = expr.clone();
                walk_expr_mut(expr, &mut named);
                if *expr != before {
                    item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: written };
                }
            }
            SelectItem::ExprWithAlias { expr, .. } => {
                walk_expr_mut(expr, &mut named);
            }
            SelectItem::Wildcard(options) => {
                let of = |side: &Ident, options| {
                    let name = ObjectName::from(vec![side.clone()]);
                    let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
                    SelectItem::QualifiedWildcard(kind, options)
                };
                let items = columns.iter().map(|column| {
                    let (expr, column_name) = (either(column), column.clone());
                    Box::new(ReplaceSelectElement { expr, column_name, as_keyword: true })
                });
                let items = Some(ReplaceSelectItem { items: items.collect() });
                let replaced = WildcardAdditionalOptions { opt_replace: items, ..options.clone() };
                projection.push(of(&left, replaced));
                let names = columns.iter().map(|column| ObjectName::from(vec![column.clone()]));
                let names = Some(ExcludeSelectItem::Multiple(names.collect()));
                let others = WildcardAdditionalOptions { opt_exclude: names, ..options.clone() };
                item = of(&right, others);
            }
            _ => {}
        }
        projection.push(item);
    }
    select.projection = projection;
    walk_conditions_and_keys(select, &mut named);
}

/// Returns the column name of an item `a.k`.
fn qualified_column_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
            parts.last().map(normalize_ident)
        }
        _ => None,
    }
}

/// Returns true if the columns of an item are known; those of a `*` with options are not.
fn has_known_columns(item: &SelectItem) -> bool {
    match item {
        SelectItem::Wildcard(options) => {
            let WildcardAdditionalOptions { wildcard_token, .. } = options;
            *options
                == WildcardAdditionalOptions {
                    wildcard_token: wildcard_token.clone(),
                    ..WildcardAdditionalOptions::default()
                }
        }
        _ => true,
    }
}
