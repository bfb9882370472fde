//! Translation of `ARRAY(SELECT x FROM t ORDER BY k)`, the values of a subquery as a list.
//!
//! It becomes `(SELECT coalesce(array_agg(x ORDER BY k), []) FROM (SELECT x, k FROM t ORDER BY k))`. The
//! aggregate orders the list, since the order of a subquery's rows is not guaranteed.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArguments, GroupByExpr, Ident, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SetExpr, Value, ValueWithSpan,
};

use crate::column_names::normalize_ident;
use crate::translation::function_calls::unquoted_call_name;
use crate::translation::parse_expr;

const ITEM_COLUMN: &str = "tidemill_item";

/// Translates `ARRAY(SELECT …)` into an aggregate; `None` for other expressions, and for a subquery with
/// several columns or an ORDER BY column that it cannot return.
pub(super) fn translate_array_subquery(expr: &Expr) -> Option<Expr> {
    let Expr::Function(call) = expr else { return None };
    let FunctionArguments::Subquery(query) = &call.args else { return None };
    if unquoted_call_name(call)? != "array" {
        return None;
    }
    let mut query = query.as_ref().clone();
    let (order, key_count) = add_order_columns(&mut query)?;
    let order = match order.is_empty() {
        true => String::new(),
        false => {
            let keys: Vec<String> = order.iter().map(ToString::to_string).collect();
            format!(" ORDER BY {}", keys.join(", "))
        }
    };
    let names: Vec<String> = std::iter::once(ITEM_COLUMN.to_owned())
        .chain((1..=key_count).map(key_column_name))
        .collect();
    let text = format!(
        "(SELECT coalesce(array_agg({ITEM_COLUMN}{order}), []) FROM ({query}) AS tidemill_rows ({}))",
        names.join(", ")
    );
    parse_expr(&text).ok()
}

fn key_column_name(place: usize) -> String {
    format!("tidemill_key_{place}")
}

/// Adds the ORDER BY columns to a subquery. Returns the order by the names of these columns, and the number
/// of columns added.
fn add_order_columns(query: &mut Query) -> Option<(Vec<OrderByExpr>, usize)> {
    let order = match query.order_by.as_ref().map(|order| &order.kind) {
        None => return Some((Vec::new(), 0)),
        Some(OrderByKind::Expressions(order)) => order.clone(),
        Some(OrderByKind::All(_)) => return None,
    };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let (value, name) = match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(value)] => (value.clone(), None),
        [SelectItem::ExprWithAlias { expr, alias }] => (expr.clone(), Some(alias.clone())),
        _ => return None,
    };
    let is_value = |key: &Expr| match key {
        Expr::Value(ValueWithSpan { value: Value::Number(place, _), .. }) => place == "1",
        Expr::Identifier(own) => {
            *key == value
                || name.as_ref().is_some_and(|name| normalize_ident(own) == normalize_ident(name))
        }
        key => *key == value,
    };
    let is_place =
        |key: &Expr| matches!(key, Expr::Value(ValueWithSpan { value: Value::Number(_, _), .. }));
    let takes_keys = has_single_source_rows(select);
    let mut keys = Vec::with_capacity(order.len());
    let mut count = 0;
    for key in order {
        let name = match is_value(&key.expr) {
            true => ITEM_COLUMN.to_owned(),
            false if takes_keys && !is_place(&key.expr) => {
                count += 1;
                select.projection.push(SelectItem::UnnamedExpr(key.expr.clone()));
                key_column_name(count)
            }
            false => return None,
        };
        keys.push(OrderByExpr { expr: Expr::Identifier(Ident::new(name)), ..key });
    }
    Some((keys, count))
}

/// Returns true if the rows are those of the sources, so that each row has its ORDER BY columns.
fn has_single_source_rows(select: &Select) -> bool {
    let is_grouped = !matches!(&select.group_by,
        GroupByExpr::Expressions(keys, _) if keys.is_empty());
    select.distinct.is_none() && !is_grouped
}
