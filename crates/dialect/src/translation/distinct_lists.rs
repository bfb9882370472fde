//! Translation of ordered lists of distinct values: `array_agg(DISTINCT x ORDER BY x DESC)` and
//! `string_agg(DISTINCT x, ',' ORDER BY x)` become a sort of an unordered list.
//!
//! DataFusion gives one order to all aggregates of a query that order by the same column, and reverses the
//! others. It fails to reverse those of distinct values.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, ObjectName, OrderByExpr, Value,
};

use crate::translation::function_calls::{
    and_conditions, function_call, parenthesize, unquoted_call_name,
};

/// Translates such a call into the sort of its list.
pub(super) fn sort_distinct_list(expr: &Expr) -> Option<Expr> {
    let Expr::Function(call) = expr else { return None };
    let name = unquoted_call_name(call)?;
    let (is_list, is_text) = (name == "array_agg", name == "string_agg");
    if !is_list && !is_text || call.over.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &call.args else { return None };
    if list.duplicate_treatment != Some(DuplicateTreatment::Distinct) {
        return None;
    }
    let (value, separator) = match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] if is_list => (value, None),
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(separator)),
        ] if is_text => (value, Some(separator)),
        _ => return None,
    };
    let order = match (list.clauses.as_slice(), call.within_group.as_slice()) {
        ([FunctionArgumentClause::OrderBy(order)], []) => order.as_slice(),
        ([], order) => order,
        _ => return None,
    };
    let [OrderByExpr { expr: key, options, with_fill: None }] = order else { return None };
    if key != value {
        return None;
    }
    let is_descending = options.asc == Some(false);
    let nulls_first = options.nulls_first == Some(true);
    let mut inner = Function {
        name: ObjectName::from(Ident::new("array_agg")),
        within_group: Vec::new(),
        ..call.clone()
    };
    if let FunctionArguments::List(list) = &mut inner.args {
        list.clauses.clear();
        list.args.truncate(1);
    }
    if is_text {
        let known = Expr::IsNotNull(Box::new(parenthesize(value.clone())));
        inner.filter = Some(Box::new(match inner.filter.take() {
            Some(own) => and_conditions(*own, known),
            None => known,
        }));
    }
    let text = |text: &str| Expr::value(Value::SingleQuotedString(text.into()));
    let sorted = function_call(
        "array_sort",
        vec![
            Expr::Function(inner),
            text(if is_descending { "DESC" } else { "ASC" }),
            text(if nulls_first { "NULLS FIRST" } else { "NULLS LAST" }),
        ],
    );
    Some(match separator {
        Some(separator) => function_call("array_to_string", vec![sorted, separator.clone()]),
        None => sorted,
    })
}
