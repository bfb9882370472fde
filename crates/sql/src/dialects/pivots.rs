//! `PIVOT` and `UNPIVOT`, as the grouping and the rows of lists that they are.
//!
//! `t PIVOT (sum(x) FOR kind IN ('a', 'b'))` is `SELECT * EXCLUDE (kind, x), sum(x) FILTER (WHERE kind = 'a')
//! AS a, … FROM t GROUP BY ALL`: what is neither looked at nor added up is what the rows are grouped by.
//! `t UNPIVOT (value FOR name IN (a, b))` is `SELECT * EXCLUDE (a, b), unnest(['a', 'b']) AS name,
//! unnest([a, b]) AS value FROM t`, without the rows whose value is null.

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

use super::calls::{both, call_of};
use super::columns::stands_for_columns;
use super::tables::positional;
use crate::names;
use crate::syntax::Spoken;

/// Writes a table that is turned as a subquery.
pub(super) fn translate(table: &mut TableFactor) -> Result<()> {
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
            let turned = pivoted(of, aggregate_functions, column, values)?;
            (turned, alias.take())
        }
        TableFactor::Unpivot { table: of, value, name, columns, null_inclusion, alias } => {
            let keeps_null = *null_inclusion == Some(NullInclusion::IncludeNulls);
            (unpivoted(of, value, name, columns, keeps_null)?, alias.take())
        }
        _ => return Ok(()),
    };
    *table =
        TableFactor::Derived { lateral: false, subquery: Box::new(query), alias, sample: None };
    Ok(())
}

/// The columns of an expression, as they are written.
pub(super) fn columns_of(expr: &Expr) -> BTreeSet<Ident> {
    struct Columns(BTreeSet<Ident>);

    impl Visitor for Columns {
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

    let mut columns = Columns(BTreeSet::new());
    walk_expr(expr, &mut columns);
    columns.0
}

/// What a value is called as a column.
fn name_of(value: &ExprWithAlias) -> String {
    match (&value.alias, &value.expr) {
        (Some(alias), _) => alias.value.clone(),
        (None, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span: _ })) => {
            text.clone()
        }
        (None, other) => names::as_written(other),
    }
}

fn pivoted(
    of: &TableFactor,
    aggregates: &[ExprWithAlias],
    column: &Expr,
    values: &[ExprWithAlias],
) -> Result<Query> {
    let mut used = columns_of(column);
    for aggregate in aggregates {
        used.extend(columns_of(&aggregate.expr));
    }
    let mut items = vec![all_but(used)];
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
                Some(own) => both(*own.clone(), is_value.clone()),
                None => is_value.clone(),
            };
            let call = Function { filter: Some(Box::new(filter)), ..call.clone() };
            let name = match (&aggregate.alias, aggregates.len()) {
                (Some(alias), _) => format!("{}_{}", name_of(value), alias.value),
                (None, 1) => name_of(value),
                (None, _) => format!("{}_{}", name_of(value), names::as_written(&aggregate.expr)),
            };
            items.push(SelectItem::ExprWithAlias {
                expr: Expr::Function(call),
                alias: Ident::with_quote('"', name),
            });
        }
    }
    let mut query = select_of(of)?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = items;
        select.group_by = GroupByExpr::All(Vec::new());
    }
    Ok(query)
}

fn unpivoted(
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
    let has_patterns = columns.iter().any(|column| stands_for_columns(&column.expr));
    let entries = columns.iter().map(|column| {
        let label = match (&column.alias, &column.expr) {
            (Some(alias), _) => text_literal(alias.value.clone()),
            (None, Expr::Identifier(own)) => names::label_of(own),
            // What is calculated of one column goes by its name.
            (None, other) => match columns_of(other).into_iter().collect::<Vec<_>>().as_slice() {
                [own] => names::label_of(own),
                _ => text_literal(names::as_written(other)),
            },
        };
        (column.expr.clone(), label)
    });
    let mut query = select_of(of)?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = match has_patterns {
            true => unexpanded_items(entries, name, value),
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
    let mut outer = select_of(&rows)?;
    if let SetExpr::Select(select) = outer.body.as_mut() {
        select.selection = Some(Expr::IsNotNull(Box::new(Expr::Identifier(value.clone()))));
    }
    Ok(outer)
}

/// The call that holds the entries of an UNPIVOT until the columns of its table are known.
const UNEXPANDED: &str = "tidemill_unpivot";

/// Returns `* EXCLUDE (a, b), unnest(['a', 'b']) AS name, unnest([a, b]) AS value` for columns and their labels.
pub(super) fn unpivot_items(
    entries: Vec<(Expr, Expr)>,
    name: &Ident,
    value: &Ident,
) -> Vec<SelectItem> {
    let used = entries.iter().flat_map(|(column, _)| columns_of(column)).collect();
    let (columns, labels) = entries.into_iter().unzip();
    let list = |items: Vec<Expr>| Expr::Array(Array { elem: items, named: false });
    vec![all_but(used), unnest_item(list(labels), name), unnest_item(list(columns), value)]
}

/// Returns the items of an UNPIVOT in which COLUMNS stands for columns: [`unpivot_entries`] finds them.
fn unexpanded_items(
    entries: impl Iterator<Item = (Expr, Expr)>,
    name: &Ident,
    value: &Ident,
) -> Vec<SelectItem> {
    let entries = entries.flat_map(|(columns, label)| [columns, label]).collect();
    let nothing = Expr::value(Value::Null);
    vec![
        all_but(BTreeSet::new()),
        unnest_item(call_of(UNEXPANDED, entries), name),
        unnest_item(nothing, value),
    ]
}

/// Returns the columns and labels of an UNPIVOT in which COLUMNS stands for columns, and the names of the columns that it makes.
pub(super) fn unpivot_entries(select: &Select) -> Option<(Vec<(Expr, Expr)>, Ident, Ident)> {
    let [
        SelectItem::Wildcard(_),
        SelectItem::ExprWithAlias { expr, alias: name },
        SelectItem::ExprWithAlias { alias: value, .. },
    ] = select.projection.as_slice()
    else {
        return None;
    };
    let [entries] = arguments_of(expr, "unnest")?.try_into().ok()?;
    let entries = arguments_of(&entries, UNEXPANDED)?;
    let entries =
        entries.as_chunks::<2>().0.iter().map(|[column, label]| (column.clone(), label.clone()));
    Some((entries.collect(), name.clone(), value.clone()))
}

/// Returns the arguments of a call of a function.
fn arguments_of(call: &Expr, function: &str) -> Option<Vec<Expr>> {
    match call {
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. })
            if name.to_string() == function =>
        {
            positional(&list.args)
        }
        _ => None,
    }
}

fn unnest_item(list: Expr, alias: &Ident) -> SelectItem {
    SelectItem::ExprWithAlias { expr: call_of("unnest", vec![list]), alias: alias.clone() }
}

/// Returns a literal of a text.
pub(super) fn text_literal(text: String) -> Expr {
    Expr::value(Value::SingleQuotedString(text))
}

/// `* EXCLUDE (…)`.
fn all_but(used: BTreeSet<Ident>) -> SelectItem {
    let names: Vec<ObjectName> = used.into_iter().map(ObjectName::from).collect();
    let opt_exclude = (!names.is_empty()).then_some(ExcludeSelectItem::Multiple(names));
    SelectItem::Wildcard(WildcardAdditionalOptions { opt_exclude, ..Default::default() })
}

/// `SELECT * FROM table`.
fn select_of(table: &TableFactor) -> Result<Query> {
    let parser = Parser::new(&Spoken).try_with_sql("SELECT * FROM t");
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
