//! Rows of a list beside the record that it is of: `FROM t, unnest(t.tags) AS x(tag)`, `LATERAL VIEW explode(tags)
//! x AS tag`, `ARRAY JOIN tags AS tag`.
//!
//! Each is `FROM (SELECT *, unnest(tags) AS tag FROM t) AS t`. A record without items has no row then; with LEFT or
//! OUTER it has one, whose item is null. Behind a join of several sources nothing is changed: their names would
//! be lost.
//!
//! `FROM t, json_each(t.j) AS e` unnests a list of entries, whose fields become the columns `key`, `value` and `type`. Only those
//! that the statement names are made, as a source may have columns of these names. Where two calls have columns of one
//! name, the second one's is called `key_1` in the subquery.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, ExcludeSelectItem, Expr, FunctionArg, FunctionArgExpr, Ident,
    JoinConstraint, JoinOperator, LateralView, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias, TableFactor,
    TableFunctionArgs, TableWithJoins, Value, ValueWithSpan, Visitor, VisitorMut,
    WildcardAdditionalOptions,
};
use tidemill_base::error::{Error, Result};
use tidemill_base::redaction::redact_url;
use tidemill_planning::{walk_expr, walk_expr_mut, walk_statement};

use super::calls::call_of;
use super::{columns, parsed, tables, written};
use crate::names::folded;

/// The fields of an entry, and the columns of `json_each`.
const ENTRY_FIELDS: [&str; 3] = ["key", "value", "type"];

/// The column of entries in a subquery, before their fields are columns. No name of a user's begins so.
pub const ENTRY_COLUMN: &str = "\u{1}entry";

fn entry_name() -> Ident {
    Ident::with_quote('"', ENTRY_COLUMN)
}

/// The names that a statement mentions.
#[derive(Debug, Default)]
pub(super) struct MentionedNames {
    /// Names of columns, with the name of a table before them if there is one.
    columns: BTreeSet<(Option<String>, String)>,
    /// True if `COLUMNS` stands for names that are not written.
    has_patterns: bool,
}

impl MentionedNames {
    /// Returns those of a statement.
    pub(super) fn of(statement: &Statement) -> Self {
        let mut mentioned = MentionedNames::default();
        walk_statement(statement, &mut mentioned);
        mentioned
    }

    fn has(&self, table: Option<&Ident>, column: &Ident) -> bool {
        let column = folded(column);
        let own = table.map(|table| (Some(folded(table)), column.clone()));
        self.has_patterns
            || own.is_some_and(|own| self.columns.contains(&own))
            || self.columns.contains(&(None, column))
    }
}

impl Visitor for MentionedNames {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => {
                self.columns.insert((None, folded(name)));
            }
            Expr::CompoundIdentifier(parts) => {
                if let [first, second, ..] = parts.as_slice() {
                    self.columns.insert((None, folded(first)));
                    self.columns.insert((Some(folded(first)), folded(second)));
                }
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                if let (Expr::Identifier(table), Some(AccessExpr::Dot(Expr::Identifier(name)))) =
                    (root.as_ref(), access_chain.first())
                {
                    self.columns.insert((Some(folded(table)), folded(name)));
                }
            }
            // The visitor comes to every expression: none is searched for a call within it.
            other => self.has_patterns |= columns::columns_call(other).is_some(),
        }
        ControlFlow::Continue(())
    }
}

/// A column made of a field of entries.
struct EntryColumn {
    field: &'static str,
    /// The name by which the statement calls it.
    name: Ident,
    /// The name in the subquery, which no other call's column has.
    inner: Ident,
}

/// Rows of a list.
struct Lateral {
    list: Expr,
    /// The name of the rows.
    table: Option<Ident>,
    /// The name of an item, and of its place.
    column: Ident,
    place: Option<(Ident, bool)>,
    keeps_all: bool,
    /// The columns of an item that is an entry; none if an item is a column itself.
    entry: Vec<EntryColumn>,
}

impl Lateral {
    /// Returns the columns of a row: the names by which a statement calls them, and those in the subquery.
    fn columns(&self) -> Vec<(&Ident, &Ident)> {
        if !self.entry.is_empty() {
            return self.entry.iter().map(|column| (&column.name, &column.inner)).collect();
        }
        let item = (&self.column, &self.column);
        let place = self.place.iter().map(|(place, is_behind)| ((place, place), *is_behind));
        let (behind, before): (Vec<_>, Vec<_>) = place.partition(|(_, is_behind)| *is_behind);
        let names = |places: Vec<((_, _), bool)>| places.into_iter().map(|(names, _)| names);
        names(before).chain([item]).chain(names(behind)).collect()
    }
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
                            entry: Vec::new(),
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
    let is_base = match base {
        TableFactor::Table { args: None, .. } | TableFactor::Derived { .. } => true,
        TableFactor::Table { name, args: Some(_), .. } => tables::reads_files(&name.to_string()),
        _ => false,
    };
    // The second column of a name is told apart by a number.
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for lateral in &mut laterals {
        for EntryColumn { name, inner, .. } in &mut lateral.entry {
            let name = folded(name);
            let numbered = (1..).map(|number| format!("{name}_{number}"));
            let mut free = std::iter::once(name.clone()).chain(numbered);
            if let Some(free) = free.find(|free| !taken.contains(free)) {
                inner.value = free;
            }
            taken.insert(inner.value.clone());
        }
    }
    (is_base && !laterals.is_empty()).then(|| ((*base).clone(), laterals))
}

/// Returns the list of entries that a call of `json_each` makes rows of.
fn entries_of(name: &str, args: &[FunctionArg]) -> Option<Expr> {
    if !["json_each", "jsonb_each"].contains(&name.to_lowercase().as_str()) {
        return None;
    }
    let json = match tables::positional(args)?.as_slice() {
        [json] => json.clone(),
        [json, path] => call_of("json_extract", vec![json.clone(), path.clone()]),
        _ => return None,
    };
    Some(call_of("json_entries", vec![json]))
}

/// Returns `json_each(j)` as a subquery of its own, if a call is one.
///
/// # Errors
/// [`Error::Usage`] for another number of arguments.
pub(super) fn entries_table(
    name: &str,
    args: &[FunctionArg],
    alias: Option<TableAlias>,
) -> Result<Option<TableFactor>> {
    let Some(list) = entries_of(name, args) else {
        return match ["json_each", "jsonb_each"].contains(&name) {
            true => Err(Error::usage_with_hint(
                format!("`{name}` takes other arguments"),
                format!("it is called as {name}(json) or {name}(json, '$.path')"),
            )),
            false => Ok(None),
        };
    };
    let names = alias.as_ref().map_or([].as_slice(), |alias| alias.columns.as_slice());
    if names.len() > ENTRY_FIELDS.len() {
        return Err(Error::usage_with_hint(
            format!("`{name}` has 3 columns, and {} names are given", names.len()),
            format!("it is called as {name}(json) AS e (key, value, type)"),
        ));
    }
    let unnamed = ENTRY_FIELDS.iter().skip(names.len()).map(|field| (*field).to_owned());
    let names = names.iter().map(|column| column.name.to_string()).chain(unnamed);
    let fields = ENTRY_FIELDS.iter().zip(names);
    let fields =
        fields.map(|(field, name)| format!("get_field(\"{ENTRY_COLUMN}\", '{field}') AS {name}"));
    let fields = fields.collect::<Vec<_>>().join(", ");
    let text = format!("SELECT {fields} FROM (SELECT unnest(x) AS \"{ENTRY_COLUMN}\") AS entries");
    let mut statements = parsed(&text).map_err(|e| Error::Internal(e.to_string()))?;
    let Some(mut statement) = statements.pop() else {
        return Err(Error::Internal("no query".into()));
    };
    tidemill_planning::walk_statement_mut(&mut statement, &mut Put(&[("x", list)]));
    let Statement::Query(subquery) = statement else {
        return Err(Error::Internal("no query".into()));
    };
    let own =
        || TableAlias { explicit: true, name: Ident::new(name), columns: Vec::new(), at: None };
    let alias = TableAlias { columns: Vec::new(), ..alias.unwrap_or_else(own) };
    let alias = Some(alias);
    Ok(Some(TableFactor::Derived { lateral: false, subquery, alias, sample: None }))
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
    if let Some((list, alias)) = entries_factor(factor) {
        let (table, columns) = match alias {
            Some(TableAlias { name, columns, .. }) => (name.clone(), columns.as_slice()),
            None => (Ident::new("json_each"), [].as_slice()),
        };
        if columns.len() > ENTRY_FIELDS.len() {
            return None;
        }
        let names = columns.iter().map(|column| column.name.clone());
        let names = names.chain(ENTRY_FIELDS.iter().skip(columns.len()).map(|f| Ident::new(*f)));
        let entry = ENTRY_FIELDS
            .iter()
            .zip(names)
            .map(|(field, name)| {
                let inner = Ident::with_quote('"', folded(&name));
                EntryColumn { field, name, inner }
            })
            .collect();
        let column = entry_name();
        return Some(Lateral { list, table: Some(table), column, place: None, keeps_all, entry });
    }
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
    let place = place.map(|name| (name, true));
    Some(Lateral { list, table, column, place, keeps_all, entry: Vec::new() })
}

/// Returns the list of entries of a `json_each` of a record's columns, and its alias.
fn entries_factor(factor: &TableFactor) -> Option<(Expr, Option<&TableAlias>)> {
    let (name, args, alias) = match factor {
        TableFactor::Function { lateral: _, name, args, with_ordinality: false, alias }
        | TableFactor::Table {
            name,
            args: Some(TableFunctionArgs { args, settings: None }),
            with_ordinality: false,
            alias,
            ..
        } => (name, args, alias),
        _ => return None,
    };
    let list = entries_of(&name.to_string(), args).filter(names_columns)?;
    Some((list, alias.as_ref()))
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
        entry: Vec::new(),
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
/// [`Error::Usage`] for a source that has no name, for a `json_each` behind a join of several sources, and for a name that
/// two of its calls have.
pub(super) fn of_select(select: &mut Select, mentioned: &MentionedNames) -> Result<()> {
    let Some((base, mut laterals)) = taken_apart(select) else {
        return refuse_behind_joins(select);
    };
    refuse_ambiguous_names(select, &laterals)?;
    let alias = match &base {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => alias.clone(),
        TableFactor::Table { name, .. } => {
            let Some(name) = last(name) else { return Ok(()) };
            let name = Ident::with_quote('"', redact_url(&name.value));
            TableAlias { explicit: true, name, columns: Vec::new(), at: None }
        }
        _ => {
            let name = Ident::new("rows_of_lists");
            TableAlias { explicit: true, name, columns: Vec::new(), at: None }
        }
    };
    let alias = TableAlias { columns: Vec::new(), ..alias };
    for (at, lateral) in laterals.iter_mut().enumerate() {
        let table = lateral.table.clone();
        let is_star = |item: &SelectItem| match item {
            SelectItem::Wildcard(_) => true,
            item => is_star_of(item, table.as_ref()),
        };
        let has_star = select.projection.iter().any(is_star);
        let is_entry = !lateral.entry.is_empty();
        lateral.entry.retain(|column| has_star || mentioned.has(table.as_ref(), &column.name));
        if is_entry && lateral.entry.is_empty() {
            // `count(*)` counts the rows, whose columns nothing names.
            let name = Ident::with_quote('"', format!("{ENTRY_COLUMN}_{at}"));
            lateral.entry.push(EntryColumn { field: ENTRY_FIELDS[0], inner: name.clone(), name });
        }
    }
    write_out_stars(select, &alias.name, &laterals);
    name_items(select, &laterals);
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
    tidemill_planning::walk_statement_mut(&mut statement, &mut items);
    if let Statement::Query(query) = statement
        && let SetExpr::Select(made) = *query.body
    {
        *select = *made;
    }
    Ok(())
}

/// Refuses a `json_each` of columns behind a join of several sources, and one with a number of its rows.
fn refuse_behind_joins(select: &Select) -> Result<()> {
    let factors = select.from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
    });
    for (at, factor) in factors.enumerate() {
        if let TableFactor::Table { name, args: Some(args), with_ordinality: true, .. } = factor
            && entries_of(&name.to_string(), &args.args).is_some()
        {
            return Err(Error::usage_with_hint(
                format!("`{factor}` has no WITH ORDINALITY"),
                "the key of an item is its place from 0; row_number() OVER (…) numbers rows",
            ));
        }
        // Of a subquery, the first may have columns of the query around it.
        if at > 0 && entries_factor(factor).is_some() {
            return Err(Error::usage_with_hint(
                format!(
                    "`{factor}` stands beside more than one source, or has a condition of a join"
                ),
                "join in a subquery, and filter in WHERE: FROM (SELECT … FROM a JOIN b ON …) AS t, \
                 json_each(t.j) AS e WHERE …",
            ));
        }
    }
    Ok(())
}

/// Refuses a name without a table that is a column of several calls of `json_each`.
fn refuse_ambiguous_names(select: &Select, laterals: &[Lateral]) -> Result<()> {
    struct Names<'a> {
        laterals: &'a [Lateral],
        found: Option<(String, Vec<String>)>,
    }

    impl Visitor for Names<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let Expr::Identifier(name) = expr else { return ControlFlow::Continue(()) };
            let has_it = |lateral: &&Lateral| {
                lateral.entry.iter().any(|column| folded(&column.name) == folded(name))
            };
            let tables = self.laterals.iter().filter(has_it);
            let tables = tables.filter_map(|lateral| Some(lateral.table.as_ref()?.value.clone()));
            let tables: Vec<String> = tables.collect();
            if tables.len() < 2 {
                return ControlFlow::Continue(());
            }
            self.found = Some((name.value.clone(), tables));
            ControlFlow::Break(())
        }
    }

    let mut names = Names { laterals, found: None };
    for item in &select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            walk_expr(expr, &mut names);
        }
    }
    if let Some(condition) = &select.selection {
        walk_expr(condition, &mut names);
    }
    match names.found {
        Some((name, tables)) => Err(Error::usage_with_hint(
            format!("`{name}` is a column of {}", tables.join(" and ")),
            format!("write {}.{name}", tables.join(&format!(".{name} or "))),
        )),
        None => Ok(()),
    }
}

/// Returns whether a `*` is that of a table.
fn is_star_of(item: &SelectItem, table: Option<&Ident>) -> bool {
    let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), _) = item
    else {
        return false;
    };
    last(of).is_some_and(|of| table.is_some_and(|table| folded(table) == folded(&of)))
}

/// Writes out `x.*` as the columns of the rows `x`, and leaves these out of the `*` of the records.
fn write_out_stars(select: &mut Select, base: &Ident, laterals: &[Lateral]) {
    let mut items = Vec::with_capacity(select.projection.len());
    for mut item in std::mem::take(&mut select.projection) {
        let own = laterals.iter().find(|lateral| is_star_of(&item, lateral.table.as_ref()));
        let plain = |options: &WildcardAdditionalOptions| {
            let WildcardAdditionalOptions { wildcard_token, .. } = options;
            let wildcard_token = wildcard_token.clone();
            *options == WildcardAdditionalOptions { wildcard_token, ..Default::default() }
        };
        let is_of_base = is_star_of(&item, Some(base));
        match (own, &mut item) {
            (Some(lateral), SelectItem::QualifiedWildcard(_, options)) if plain(options) => {
                items.extend(lateral.columns().into_iter().map(|(name, inner)| {
                    let (expr, alias) = (Expr::Identifier(inner.clone()), name.clone());
                    SelectItem::ExprWithAlias { expr, alias }
                }));
            }
            (None, SelectItem::QualifiedWildcard(_, options)) if is_of_base => {
                let made = laterals
                    .iter()
                    .flat_map(Lateral::columns)
                    .map(|(_, inner)| ObjectName(vec![ObjectNamePart::Identifier(inner.clone())]));
                let excluded = match options.opt_exclude.take() {
                    Some(ExcludeSelectItem::Single(one)) => vec![one],
                    Some(ExcludeSelectItem::Multiple(several)) => several,
                    None => Vec::new(),
                };
                let excluded = excluded.into_iter().chain(made).collect();
                options.opt_exclude = Some(ExcludeSelectItem::Multiple(excluded));
                items.push(item);
            }
            _ => items.push(item),
        }
    }
    select.projection = items;
}

/// Gives a column that has another name in the subquery its own in the result, if nothing else there has it.
fn name_items(select: &mut Select, laterals: &[Lateral]) {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                let [table, column] = parts.as_slice() else { continue };
                let is_renamed = laterals.iter().any(|lateral| {
                    lateral.table.as_ref().is_some_and(|own| folded(own) == folded(table))
                        && lateral.entry.iter().any(|of| {
                            folded(&of.name) == folded(column) && folded(&of.name) != of.inner.value
                        })
                });
                let alias = column.clone();
                if names.insert(folded(column)) && is_renamed {
                    let expr = Expr::CompoundIdentifier(parts.clone());
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => _ = names.insert(folded(name)),
            SelectItem::ExprWithAlias { alias, .. } => _ = names.insert(folded(alias)),
            _ => {}
        }
    }
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
    if !lateral.entry.is_empty() {
        return with_entries(of, list, lateral, alias);
    }
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

/// Returns `(SELECT * EXCLUDE (entry), get_field(entry, 'key') AS key, … FROM (SELECT *, unnest(list) AS entry FROM …) AS alias)
/// AS alias`.
fn with_entries(
    of: TableFactor,
    list: Expr,
    lateral: &Lateral,
    alias: &TableAlias,
) -> Result<TableFactor> {
    let text = format!(
        "SELECT * EXCLUDE (\"{ENTRY_COLUMN}\") FROM (SELECT *, unnest(x) AS \"{ENTRY_COLUMN}\" FROM t) AS records"
    );
    let mut statements = parsed(&text).map_err(|e| Error::Internal(e.to_string()))?;
    let broken = || Error::Internal("no query of entries".into());
    let Some(Statement::Query(mut query)) = statements.pop() else { return Err(broken()) };
    let SetExpr::Select(select) = query.body.as_mut() else { return Err(broken()) };
    for EntryColumn { field, inner, .. } in &lateral.entry {
        let field = Expr::value(Value::SingleQuotedString((*field).into()));
        let expr = call_of("get_field", vec![Expr::Identifier(entry_name()), field]);
        select.projection.push(SelectItem::ExprWithAlias { expr, alias: inner.clone() });
    }
    let Some(TableWithJoins {
        relation: TableFactor::Derived { subquery, alias: own, .. }, ..
    }) = select.from.first_mut()
    else {
        return Err(broken());
    };
    *own = Some(alias.clone());
    let SetExpr::Select(records) = subquery.body.as_mut() else { return Err(broken()) };
    let Some(SelectItem::ExprWithAlias { expr, .. }) = records.projection.last_mut() else {
        return Err(broken());
    };
    *expr = call_of("unnest", vec![list]);
    records.from = vec![TableWithJoins { relation: of, joins: Vec::new() }];
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

/// Names columns of rows as the subquery does: `x.tag` as `tag`.
struct Items<'a>(&'a [Lateral]);

impl Items<'_> {
    /// Returns the name that a column of a table has in the subquery, if it is one of rows.
    fn inner(&self, table: &Ident, column: &Ident) -> Option<Ident> {
        self.0.iter().find_map(|lateral| {
            if lateral.table.as_ref().is_none_or(|own| folded(own) != folded(table)) {
                return None;
            }
            let columns = lateral.columns().into_iter();
            let mut named = columns.filter(|(name, _)| folded(name) == folded(column));
            match named.next() {
                Some((_, inner)) => Some(inner.clone()),
                None if lateral.entry.is_empty() && folded(column) == "unnest" => {
                    Some(lateral.column.clone())
                }
                None => None,
            }
        })
    }
}

impl VisitorMut for Items<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundIdentifier(parts) => {
                let [table, column, fields @ ..] = parts.as_slice() else {
                    return ControlFlow::Continue(());
                };
                if let Some(inner) = self.inner(table, column) {
                    *expr = match fields.is_empty() {
                        true => Expr::Identifier(inner),
                        false => {
                            let parts = std::iter::once(inner).chain(fields.iter().cloned());
                            Expr::CompoundIdentifier(parts.collect())
                        }
                    };
                }
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                if let (Expr::Identifier(table), Some(AccessExpr::Dot(Expr::Identifier(column)))) =
                    (root.as_ref(), access_chain.first())
                    && let Some(inner) = self.inner(table, column)
                {
                    access_chain.remove(0);
                    **root = Expr::Identifier(inner);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
