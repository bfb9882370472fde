//! Rows of a list beside the record that it is of: `FROM t, unnest(t.tags) AS x(tag)`, `LATERAL VIEW explode(tags)
//! x AS tag`, `ARRAY JOIN tags AS tag`.
//!
//! Each is `FROM (SELECT *, unnest(tags) AS tag FROM t) AS t`. A record without items has no row then; with LEFT or
//! OUTER it has one, whose item is null. Behind a join of several sources nothing is changed: their names would
//! be lost.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, Expr, FunctionArg, FunctionArgExpr, Ident, JoinConstraint, JoinOperator, LateralView,
    ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, Statement, TableAlias,
    TableFactor, TableFunctionArgs, TableWithJoins, Value, ValueWithSpan, Visitor, VisitorMut,
};
use tidemill_base::error::{Error, Result};
use tidemill_base::redact::shown;
use tidemill_planning::{walk_expr, walk_expr_mut};

use super::calls::call_of;
use super::{parsed, written};
use crate::names::folded;

/// Rows of a list.
struct Lateral {
    list: Expr,
    /// The name of the rows.
    table: Option<Ident>,
    /// The name of an item, and of its place.
    column: Ident,
    place: Option<(Ident, bool)>,
    keeps_all: bool,
}

/// What is read, and the lists of it, in order; nothing where it is not one source and its lists.
fn taken_apart(select: &Select) -> Option<(TableFactor, Vec<Lateral>)> {
    let mut factors = Vec::new();
    for TableWithJoins { relation, joins } in &select.from {
        factors.push((relation, false));
        for join in joins {
            let keeps_all = match &join.join_operator {
                JoinOperator::CrossJoin(_)
                | JoinOperator::ArrayJoin
                | JoinOperator::InnerArrayJoin => false,
                JoinOperator::LeftArrayJoin => true,
                JoinOperator::Inner(of) | JoinOperator::Join(of) if is_true(of) => false,
                JoinOperator::Left(of) | JoinOperator::LeftOuter(of) if is_true(of) => true,
                _ => return None,
            };
            let is_array = matches!(
                join.join_operator,
                JoinOperator::ArrayJoin
                    | JoinOperator::InnerArrayJoin
                    | JoinOperator::LeftArrayJoin
            );
            match (is_array, &join.relation) {
                (true, TableFactor::Table { name, alias, .. }) => {
                    let column = last(name)?;
                    let list = Expr::Identifier(column.clone());
                    let own = alias.as_ref().map(|alias| alias.name.clone());
                    // Without another name it would be the list's own.
                    own.as_ref()?;
                    return only(
                        factors,
                        Lateral {
                            list,
                            table: None,
                            column: own.unwrap_or(column),
                            place: None,
                            keeps_all,
                        },
                    );
                }
                _ => factors.push((&join.relation, keeps_all)),
            }
        }
    }
    let ((base, _), rest) = factors.split_first()?;
    let mut laterals = Vec::new();
    for (factor, keeps_all) in rest {
        laterals.push(of_factor(factor, *keeps_all)?);
    }
    for view in &select.lateral_views {
        laterals.push(of_view(view)?);
    }
    let is_base =
        matches!(base, TableFactor::Table { args: None, .. } | TableFactor::Derived { .. });
    (is_base && !laterals.is_empty()).then(|| ((*base).clone(), laterals))
}

/// One source with one list.
fn only(
    factors: Vec<(&TableFactor, bool)>,
    lateral: Lateral,
) -> Option<(TableFactor, Vec<Lateral>)> {
    match factors.as_slice() {
        [(base, _)] => Some(((*base).clone(), vec![lateral])),
        _ => None,
    }
}

fn is_true(constraint: &JoinConstraint) -> bool {
    match constraint {
        JoinConstraint::On(Expr::Value(ValueWithSpan { value: Value::Boolean(yes), .. })) => *yes,
        JoinConstraint::None => true,
        _ => false,
    }
}

fn last(name: &ObjectName) -> Option<Ident> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name.clone()),
        _ => None,
    }
}

/// `unnest(t.tags) AS x(tag)`, of a list that is a record's.
fn of_factor(factor: &TableFactor, keeps_all: bool) -> Option<Lateral> {
    let mut own_name = None;
    let (list, alias, is_numbered) = match factor {
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality,
        } => match array_exprs.as_slice() {
            [list] => (list.clone(), alias, *with_ordinality),
            _ => return None,
        },
        TableFactor::Function { lateral: _, name, args, with_ordinality, alias }
            if makes_rows(&name.to_string()).is_some() =>
        {
            match args.as_slice() {
                [FunctionArg::Unnamed(FunctionArgExpr::Expr(list))] => {
                    (list.clone(), alias, *with_ordinality)
                }
                _ => return None,
            }
        }
        TableFactor::Function { lateral: _, name, args, with_ordinality, alias }
        | TableFactor::Table {
            name,
            args: Some(TableFunctionArgs { args, settings: None }),
            with_ordinality,
            alias,
            ..
        } => {
            let (list, column) = list_of(&name.to_string(), args)?;
            own_name = Some(column);
            (list, alias, *with_ordinality)
        }
        _ => return None,
    };
    if !names_columns(&list) {
        return None;
    }
    let (table, columns) = match alias {
        Some(TableAlias { name, columns, .. }) => (Some(name.clone()), columns.as_slice()),
        None => (None, [].as_slice()),
    };
    let mut columns = columns.iter().map(|column| column.name.clone());
    let column = columns.next().or_else(|| table.clone());
    let column = column.unwrap_or_else(|| Ident::new(own_name.unwrap_or("unnest")));
    let place = columns.next().or_else(|| is_numbered.then(|| Ident::new("ordinality")));
    Some(Lateral { list, table, column, place: place.map(|name| (name, true)), keeps_all })
}

/// The list whose items a function makes rows of that makes the list itself, and how its one column is called.
pub(super) fn list_of(name: &str, args: &[FunctionArg]) -> Option<(Expr, &'static str)> {
    let args: Option<Vec<Expr>> = args
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument.clone()),
            _ => None,
        })
        .collect();
    let mut args = args?;
    let (list, column) = match (name.to_lowercase().as_str(), args.len()) {
        ("jsonb_array_elements_text" | "json_array_elements_text", 1) => {
            args.push(Expr::value(Value::SingleQuotedString("$[*]".into())));
            ("json_extract_string", "value")
        }
        ("jsonb_array_elements" | "json_array_elements", 1) => {
            args.push(Expr::value(Value::SingleQuotedString("$[*]".into())));
            ("json_extract", "value")
        }
        ("json_object_keys", 1) => ("json_keys", "json_object_keys"),
        ("jsonb_object_keys", 1) => ("json_keys", "jsonb_object_keys"),
        ("regexp_split_to_table", 2 | 3) => ("regexp_split_to_array", "regexp_split_to_table"),
        ("string_to_table", 2 | 3) => ("string_to_array", "string_to_table"),
        _ => return None,
    };
    Some((call_of(list, args), column))
}

/// Whether a function makes rows of a list; and whether it numbers them, from zero on.
fn makes_rows(name: &str) -> Option<bool> {
    match name.to_lowercase().as_str() {
        "unnest" | "explode" | "explode_outer" | "flatten" => Some(false),
        "posexplode" | "posexplode_outer" => Some(true),
        _ => None,
    }
}

/// `LATERAL VIEW explode(tags) x AS tag`.
fn of_view(view: &LateralView) -> Option<Lateral> {
    let LateralView { lateral_view, lateral_view_name, lateral_col_alias, outer } = view;
    let Expr::Function(call) = lateral_view else { return None };
    let name = call.name.to_string();
    let is_numbered = makes_rows(&name)?;
    let datafusion::sql::sqlparser::ast::FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(list))] = list.args.as_slice() else {
        return None;
    };
    let mut columns = lateral_col_alias.iter().cloned();
    let place = match is_numbered {
        true => Some((columns.next().unwrap_or_else(|| Ident::new("pos")), false)),
        false => None,
    };
    Some(Lateral {
        list: list.clone(),
        table: last(lateral_view_name),
        column: columns.next().unwrap_or_else(|| Ident::new("col")),
        place,
        keeps_all: *outer || name.to_lowercase().ends_with("_outer"),
    })
}

fn names_columns(expr: &Expr) -> bool {
    struct Names;

    impl Visitor for Names {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut Names)
}

/// What follows a query's SELECT names items as they are called then.
pub(super) fn of_query(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let Some((_, laterals)) = taken_apart(select) else { return };
    let Some(order) = &mut query.order_by else { return };
    if let datafusion::sql::sqlparser::ast::OrderByKind::Expressions(keys) = &mut order.kind {
        for key in keys {
            walk_expr_mut(&mut key.expr, &mut Items(&laterals));
        }
    }
}

/// Writes the rows of lists as a subquery's.
///
/// # Errors
/// [`Error::Usage`] for a source that has no name.
pub(super) fn of_select(select: &mut Select) -> Result<()> {
    let Some((base, laterals)) = taken_apart(select) else { return Ok(()) };
    let alias = match &base {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => alias.clone(),
        TableFactor::Table { name, .. } => {
            let Some(name) = last(name) else { return Ok(()) };
            let name = Ident::with_quote('"', shown(&name.value));
            TableAlias { explicit: true, name, columns: Vec::new(), at: None }
        }
        _ => {
            let name = Ident::new("rows_of_lists");
            TableAlias { explicit: true, name, columns: Vec::new(), at: None }
        }
    };
    let alias = TableAlias { columns: Vec::new(), ..alias };
    let mut factor = base;
    for (at, lateral) in laterals.iter().enumerate() {
        let mut list = lateral.list.clone();
        walk_expr_mut(&mut list, &mut Items(&laterals[..at]));
        factor = with_items(factor, list, lateral, &alias)?;
    }
    select.from = vec![TableWithJoins { relation: factor, joins: Vec::new() }];
    select.lateral_views.clear();
    let mut items = Items(&laterals);
    let mut statement = Statement::Query(Box::new(query_of(select.clone())?));
    tidemill_planning::walk_mut(&mut statement, &mut items);
    if let Statement::Query(query) = statement
        && let SetExpr::Select(made) = *query.body
    {
        *select = *made;
    }
    Ok(())
}

/// A query that is one SELECT.
fn query_of(select: Select) -> Result<Query> {
    let mut statements = parsed("SELECT 1").map_err(|e| Error::Internal(e.to_string()))?;
    match statements.pop() {
        Some(Statement::Query(mut query)) => {
            *query.body = SetExpr::Select(Box::new(select));
            Ok(*query)
        }
        _ => Err(Error::Internal("no query".into())),
    }
}

/// `(SELECT *, unnest(list) AS item FROM …) AS alias`.
fn with_items(
    of: TableFactor,
    list: Expr,
    lateral: &Lateral,
    alias: &TableAlias,
) -> Result<TableFactor> {
    let list = match lateral.keeps_all {
        false => list,
        true => {
            let nothing = Expr::Array(Array { elem: vec![Expr::value(Value::Null)], named: false });
            let text = "CASE WHEN array_length(l) > 0 THEN l ELSE n END";
            let mut made = written(text)?;
            let put = [("l", list), ("n", nothing)];
            walk_expr_mut(&mut made, &mut Put(&put));
            made
        }
    };
    let unnested = |list: Expr| call_of("unnest", vec![list]);
    let mut statements = parsed("SELECT * FROM t").map_err(|e| Error::Internal(e.to_string()))?;
    let Some(Statement::Query(mut query)) = statements.pop() else {
        return Err(Error::Internal("no query".into()));
    };
    if let SetExpr::Select(select) = query.body.as_mut() {
        let mut add = |list: Expr, alias: &Ident| {
            let (expr, alias) = (unnested(list), alias.clone());
            select.projection.push(SelectItem::ExprWithAlias { expr, alias });
        };
        if let Some((place, from_one)) = &lateral.place {
            let text = if *from_one {
                "generate_series(1, array_length(l))"
            } else {
                "range(array_length(l))"
            };
            let mut numbers = written(text)?;
            walk_expr_mut(&mut numbers, &mut Put(&[("l", list.clone())]));
            match from_one {
                true => {
                    add(list, &lateral.column);
                    add(numbers, place);
                }
                false => {
                    add(numbers, place);
                    add(list, &lateral.column);
                }
            }
        } else {
            add(list, &lateral.column);
        }
        select.from = vec![TableWithJoins { relation: of, joins: Vec::new() }];
    }
    let alias = Some(alias.clone());
    Ok(TableFactor::Derived { lateral: false, subquery: query, alias, sample: None })
}

/// Puts expressions in the places of names.
struct Put<'a>(&'a [(&'static str, Expr)]);

impl VisitorMut for Put<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && let Some((_, made)) = self.0.iter().find(|(of, _)| *of == name.value)
        {
            *expr = made.clone();
        }
        ControlFlow::Continue(())
    }
}

/// `x.tag` as `tag`.
struct Items<'a>(&'a [Lateral]);

impl VisitorMut for Items<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::CompoundIdentifier(parts) = expr else { return ControlFlow::Continue(()) };
        let [table, column] = parts.as_slice() else { return ControlFlow::Continue(()) };
        for lateral in self.0 {
            if lateral.table.as_ref().is_none_or(|own| folded(own) != folded(table)) {
                continue;
            }
            let is_place =
                lateral.place.as_ref().is_some_and(|(place, _)| folded(place) == folded(column));
            let is_item = folded(column) == folded(&lateral.column) || folded(column) == "unnest";
            if is_place || is_item {
                let own = if is_place { column.clone() } else { lateral.column.clone() };
                *expr = Expr::Identifier(own);
                break;
            }
        }
        ControlFlow::Continue(())
    }
}
