//! Translation of `PIVOT` and `UNPIVOT` clauses into groupings and unnested lists.
//!
//! `t PIVOT (sum(x) FOR kind IN ('a', 'b'))` becomes
//! `SELECT * EXCLUDE (kind, x), sum(x) FILTER (WHERE kind = 'a') AS a, … FROM t GROUP BY ALL`: the rows are
//! grouped by all columns that PIVOT does not use. `t UNPIVOT (value FOR name IN (a, b))` becomes
//! `SELECT * EXCLUDE (a, b), unnest(['a', 'b']) AS name, unnest([a, b]) AS value FROM t`, without the rows
//! whose value is null.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, ExcludeSelectItem, Expr, ExprWithAlias, Function, FunctionArguments,
    GroupByExpr, Ident, NullInclusion, ObjectName, PivotValueSource, Query, Select, SelectItem,
    SetExpr, Statement, TableFactor, TableWithJoins, Value, ValueWithSpan, Visitor,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::parser::Parser;
use tidemill_base::error::{Error, Result};
use tidemill_planning::walk_expr;

use crate::column_names;
use crate::syntax::TidemillDialect;
use crate::translation::column_expansion::contains_columns_call;
use crate::translation::function_calls::{and_conditions, function_call};
use crate::translation::table_functions::positional_arguments;

/// Translates a pivoted or unpivoted table into a subquery.
pub(super) fn translate_pivot(table: &mut TableFactor) -> Result<()> {
    let (query, alias) = match table {
        TableFactor::Pivot {
            table: of,
            aggregate_functions,
            value_column,
            value_source,
            default_on_null,
            alias,
        } => {
            if default_on_null.is_some() {
                return Err(Error::usage_with_hint(
                    "`DEFAULT ON NULL` of PIVOT is not supported",
                    "coalesce(column, 0) around the turned table's columns",
                ));
            }
            let PivotValueSource::List(values) = value_source else {
                return Err(Error::usage_with_hint(
                    "PIVOT needs the values that become columns",
                    "list them: FOR kind IN ('a', 'b')",
                ));
            };
            let [column] = value_column.as_slice() else {
                return Err(Error::usage_with_hint(
                    "PIVOT takes one column whose values become columns",
                    "make one of several: FOR a || '_' || b IN ('x_1', 'x_2')",
                ));
            };
            let turned = pivot_query(of, aggregate_functions, column, values)?;
            (turned, alias.take())
        }
        TableFactor::Unpivot { table: of, value, name, columns, null_inclusion, alias } => {
            let keeps_null = *null_inclusion == Some(NullInclusion::IncludeNulls);
            (unpivot_query(of, value, name, columns, keeps_null)?, alias.take())
        }
        _ => return Ok(()),
    };
    *table =
        TableFactor::Derived { lateral: false, subquery: Box::new(query), alias, sample: None };
    Ok(())
}

/// Returns the names of the columns in an expression.
pub(super) fn referenced_columns(expr: &Expr) -> BTreeSet<Ident> {
    struct ReferencedColumnFinder(BTreeSet<Ident>);

    impl Visitor for ReferencedColumnFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(name) => {
                    self.0.insert(name.clone());
                }
                Expr::CompoundIdentifier(parts) => self.0.extend(parts.last().cloned()),
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }

    let mut columns = ReferencedColumnFinder(BTreeSet::new());
    walk_expr(expr, &mut columns);
    columns.0
}

/// Returns the name of the column that a value becomes.
fn value_column_name(value: &ExprWithAlias) -> String {
    match (&value.alias, &value.expr) {
        (Some(alias), _) => alias.value.clone(),
        (None, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span: _ })) => {
            text.clone()
        }
        (None, other) => column_names::expr_display_text(other),
    }
}

fn pivot_query(
    of: &TableFactor,
    aggregates: &[ExprWithAlias],
    column: &Expr,
    values: &[ExprWithAlias],
) -> Result<Query> {
    let mut used = referenced_columns(column);
    for aggregate in aggregates {
        used.extend(referenced_columns(&aggregate.expr));
    }
    let mut items = vec![star_except(used)];
    for value in values {
        let of_column = Box::new(Expr::Nested(Box::new(column.clone())));
        let is_value = match &value.expr {
            Expr::Value(ValueWithSpan { value: Value::Null, .. }) => Expr::IsNull(of_column),
            other => Expr::BinaryOp {
                left: of_column,
                op: BinaryOperator::Eq,
                right: Box::new(Expr::Nested(Box::new(other.clone()))),
            },
        };
        for aggregate in aggregates {
            let Expr::Function(call) = &aggregate.expr else {
                return Err(Error::usage_with_hint(
                    format!("`{}` is no aggregate, as PIVOT takes", aggregate.expr),
                    "sum(x), count(*), max(x) …",
                ));
            };
            let filter = match &call.filter {
                Some(own) => and_conditions(*own.clone(), is_value.clone()),
                None => is_value.clone(),
            };
            let call = Function { filter: Some(Box::new(filter)), ..call.clone() };
            let name = match (&aggregate.alias, aggregates.len()) {
                (Some(alias), _) => format!("{}_{}", value_column_name(value), alias.value),
                (None, 1) => value_column_name(value),
                (None, _) => format!(
                    "{}_{}",
                    value_column_name(value),
                    column_names::expr_display_text(&aggregate.expr)
                ),
            };
            items.push(SelectItem::ExprWithAlias {
                expr: Expr::Function(call),
                alias: Ident::with_quote('"', name),
            });
        }
    }
    let mut query = select_star_from(of)?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = items;
        select.group_by = GroupByExpr::All(Vec::new());
    }
    Ok(query)
}

fn unpivot_query(
    of: &TableFactor,
    value: &Expr,
    name: &Ident,
    columns: &[ExprWithAlias],
    keeps_null: bool,
) -> Result<Query> {
    let Expr::Identifier(value) = value else {
        return Err(Error::usage_with_hint(
            format!("`{value}` is no name for a column of values, as UNPIVOT takes"),
            "t UNPIVOT (value FOR name IN (a, b))",
        ));
    };
    let has_patterns = columns.iter().any(|column| contains_columns_call(&column.expr));
    let entries = columns.iter().map(|column| {
        let label = match (&column.alias, &column.expr) {
            (Some(alias), _) => text_literal(alias.value.clone()),
            (None, Expr::Identifier(own)) => column_names::column_label(own),
            // An expression over a single column gets that column's name.
            (None, other) => {
                match referenced_columns(other).into_iter().collect::<Vec<_>>().as_slice() {
                    [own] => column_names::column_label(own),
                    _ => text_literal(column_names::expr_display_text(other)),
                }
            }
        };
        (column.expr.clone(), label)
    });
    let mut query = select_star_from(of)?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = match has_patterns {
            true => unexpanded_unpivot_items(entries, name, value),
            false => unpivot_items(entries.collect(), name, value),
        };
    }
    if keeps_null {
        return Ok(query);
    }
    let rows = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query),
        alias: None,
        sample: None,
    };
    let mut outer = select_star_from(&rows)?;
    if let SetExpr::Select(select) = outer.body.as_mut() {
        select.selection = Some(Expr::IsNotNull(Box::new(Expr::Identifier(value.clone()))));
    }
    Ok(outer)
}

/// The function whose call holds the entries of an UNPIVOT until the columns of its table are known.
const UNEXPANDED_UNPIVOT_FUNCTION: &str = "tidemill_unpivot";

/// Returns `* EXCLUDE (a, b), unnest(['a', 'b']) AS name, unnest([a, b]) AS value` for columns and their
/// labels.
pub(super) fn unpivot_items(
    entries: Vec<(Expr, Expr)>,
    name: &Ident,
    value: &Ident,
) -> Vec<SelectItem> {
    let used = entries.iter().flat_map(|(column, _)| referenced_columns(column)).collect();
    let (columns, labels) = entries.into_iter().unzip();
    let list = |items: Vec<Expr>| Expr::Array(Array { elem: items, named: false });
    vec![star_except(used), unnest_item(list(labels), name), unnest_item(list(columns), value)]
}

/// Returns the items of an UNPIVOT with calls of COLUMNS; [`unexpanded_unpivot_entries`] finds them later.
fn unexpanded_unpivot_items(
    entries: impl Iterator<Item = (Expr, Expr)>,
    name: &Ident,
    value: &Ident,
) -> Vec<SelectItem> {
    let entries = entries.flat_map(|(columns, label)| [columns, label]).collect();
    let nothing = Expr::value(Value::Null);
    vec![
        star_except(BTreeSet::new()),
        unnest_item(function_call(UNEXPANDED_UNPIVOT_FUNCTION, entries), name),
        unnest_item(nothing, value),
    ]
}

/// The columns and labels of an UNPIVOT, and the names of its two new columns.
pub(super) type UnpivotEntries = (Vec<(Expr, Expr)>, Ident, Ident);

/// Returns the entries of an UNPIVOT with calls of COLUMNS.
pub(super) fn unexpanded_unpivot_entries(select: &Select) -> Option<UnpivotEntries> {
    let [
        SelectItem::Wildcard(_),
        SelectItem::ExprWithAlias { expr, alias: name },
        SelectItem::ExprWithAlias { alias: value, .. },
    ] = select.projection.as_slice()
    else {
        return None;
    };
    let [entries] = call_arguments(expr, "unnest")?.try_into().ok()?;
    let entries = call_arguments(&entries, UNEXPANDED_UNPIVOT_FUNCTION)?;
    let entries =
        entries.as_chunks::<2>().0.iter().map(|[column, label]| (column.clone(), label.clone()));
    Some((entries.collect(), name.clone(), value.clone()))
}

/// Returns the arguments of a call of a function.
fn call_arguments(call: &Expr, function: &str) -> Option<Vec<Expr>> {
    match call {
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. })
            if name.to_string() == function =>
        {
            positional_arguments(&list.args)
        }
        _ => None,
    }
}

fn unnest_item(list: Expr, alias: &Ident) -> SelectItem {
    SelectItem::ExprWithAlias { expr: function_call("unnest", vec![list]), alias: alias.clone() }
}

/// Returns a literal of a text.
pub(super) fn text_literal(text: String) -> Expr {
    Expr::value(Value::SingleQuotedString(text))
}

/// Returns `* EXCLUDE (…)`.
fn star_except(used: BTreeSet<Ident>) -> SelectItem {
    let names: Vec<ObjectName> = used.into_iter().map(ObjectName::from).collect();
    let opt_exclude = (!names.is_empty()).then_some(ExcludeSelectItem::Multiple(names));
    SelectItem::Wildcard(WildcardAdditionalOptions { opt_exclude, ..Default::default() })
}

/// Returns `SELECT * FROM table`.
fn select_star_from(table: &TableFactor) -> Result<Query> {
    let parser = Parser::new(&TidemillDialect).try_with_sql("SELECT * FROM t");
    let parsed = parser.and_then(|mut parser| parser.parse_statement());
    let Ok(Statement::Query(mut query)) = parsed else {
        return Err(Error::Internal("a SELECT that is none".into()));
    };
    if let SetExpr::Select(select) = query.body.as_mut() {
        let select: &mut Select = select;
        select.from = vec![TableWithJoins { relation: table.clone(), joins: Vec::new() }];
    }
    Ok(*query)
}
