//! Translation of list functions in FROM that refer to the record beside them:
//! `FROM t, unnest(t.tags) AS x(tag)`, `LATERAL VIEW explode(tags) x AS tag`, `ARRAY JOIN tags AS tag`.
//!
//! Each becomes `FROM (SELECT *, unnest(tags) AS tag FROM t) AS t`. A record without items then has no row;
//! with LEFT or OUTER it has one row whose item is null. Behind a join of several sources nothing changes,
//! since the names of the sources would be lost.
//!
//! `FROM t, json_each(t.j) AS e` unnests a list of entries, whose fields become the columns `key`, `value`
//! and `type`. Only those that the statement names are made, as a source may have columns of these names. If
//! two calls have a column of the same name, the subquery calls the second one `key_1`.

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

use crate::column_names::normalize_ident;
use crate::translation::function_calls::function_call;
use crate::translation::{column_expansion, parse_expr, parse_statements, table_functions};

/// The fields of a JSON entry, which are the columns of `json_each`.
const JSON_ENTRY_FIELDS: [&str; 3] = ["key", "value", "type"];

/// The column of JSON entries in a subquery, before their fields become columns. No user's name begins with
/// `\u{1}`.
pub const JSON_ENTRY_COLUMN: &str = "\u{1}entry";

fn entry_column_name() -> Ident {
    Ident::with_quote('"', JSON_ENTRY_COLUMN)
}

/// The column names that a statement mentions.
#[derive(Debug, Default)]
pub(super) struct MentionedNames {
    /// Column names, each with its table qualifier if it has one.
    columns: BTreeSet<(Option<String>, String)>,
    /// True if `COLUMNS` stands for names that the statement does not spell out.
    has_patterns: bool,
}

impl MentionedNames {
    /// Collects the names of a statement.
    pub(super) fn from_statement(statement: &Statement) -> Self {
        let mut mentioned = MentionedNames::default();
        walk_statement(statement, &mut mentioned);
        mentioned
    }

    fn mentions_column(&self, table: Option<&Ident>, column: &Ident) -> bool {
        let column = normalize_ident(column);
        let own = table.map(|table| (Some(normalize_ident(table)), column.clone()));
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
                self.columns.insert((None, normalize_ident(name)));
            }
            Expr::CompoundIdentifier(parts) => {
                if let [first, second, ..] = parts.as_slice() {
                    self.columns.insert((None, normalize_ident(first)));
                    self.columns.insert((Some(normalize_ident(first)), normalize_ident(second)));
                }
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                if let (Expr::Identifier(table), Some(AccessExpr::Dot(Expr::Identifier(name)))) =
                    (root.as_ref(), access_chain.first())
                {
                    self.columns.insert((Some(normalize_ident(table)), normalize_ident(name)));
                }
            }
            // The visitor reaches every expression, so this does not search within `other`.
            other => self.has_patterns |= column_expansion::as_columns_call(other).is_some(),
        }
        ControlFlow::Continue(())
    }
}

/// A column made from a field of JSON entries.
struct JsonEntryColumn {
    field: &'static str,
    /// The name in the statement.
    name: Ident,
    /// The name in the subquery, unique among the columns of all calls.
    subquery_name: Ident,
}

/// A list in FROM whose items become rows.
struct LateralList {
    list: Expr,
    /// The table alias of the rows.
    rows_alias: Option<Ident>,
    /// The column of the items.
    item_column: Ident,
    position_column: Option<(Ident, bool)>,
    is_outer: bool,
    /// The columns of an item that is a JSON entry; empty if the item is a column itself.
    entry_columns: Vec<JsonEntryColumn>,
}

impl LateralList {
    /// Returns the columns of a row, each with its name in the statement and its name in the subquery.
    fn columns(&self) -> Vec<(&Ident, &Ident)> {
        if !self.entry_columns.is_empty() {
            return self
                .entry_columns
                .iter()
                .map(|column| (&column.name, &column.subquery_name))
                .collect();
        }
        let item = (&self.item_column, &self.item_column);
        let place =
            self.position_column.iter().map(|(place, is_behind)| ((place, place), *is_behind));
        let (behind, before): (Vec<_>, Vec<_>) = place.partition(|(_, is_behind)| *is_behind);
        let names = |places: Vec<((_, _), bool)>| places.into_iter().map(|(names, _)| names);
        names(before).chain([item]).chain(names(behind)).collect()
    }
}

/// Splits a FROM into its source and the lists beside it, in order; `None` for any other FROM.
fn split_from_clause(select: &Select) -> Option<(TableFactor, Vec<LateralList>)> {
    let mut factors = Vec::new();
    for TableWithJoins { relation, joins } in &select.from {
        factors.push((relation, false));
        for join in joins {
            let keeps_all = match &join.join_operator {
                JoinOperator::CrossJoin(_)
                | JoinOperator::ArrayJoin
                | JoinOperator::InnerArrayJoin => false,
                JoinOperator::LeftArrayJoin => true,
                JoinOperator::Inner(of) | JoinOperator::Join(of) if is_unconditional(of) => false,
                JoinOperator::Left(of) | JoinOperator::LeftOuter(of) if is_unconditional(of) => {
                    true
                }
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
                    let column = unqualified_ident(name)?;
                    let list = Expr::Identifier(column.clone());
                    let own = alias.as_ref().map(|alias| alias.name.clone());
                    // Without an alias the item would have the list's own name.
                    own.as_ref()?;
                    return single_lateral(
                        factors,
                        LateralList {
                            list,
                            rows_alias: None,
                            item_column: own.unwrap_or(column),
                            position_column: None,
                            is_outer: keeps_all,
                            entry_columns: Vec::new(),
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
        laterals.push(parse_lateral_factor(factor, *keeps_all)?);
    }
    for view in &select.lateral_views {
        laterals.push(parse_lateral_view(view)?);
    }
    let is_base = match base {
        TableFactor::Table { args: None, .. } | TableFactor::Derived { .. } => true,
        TableFactor::Table { name, args: Some(_), .. } => {
            table_functions::is_reader_function(&name.to_string())
        }
        _ => false,
    };
    // A duplicate column name gets a numeric suffix.
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for lateral in &mut laterals {
        for JsonEntryColumn { name, subquery_name: inner, .. } in &mut lateral.entry_columns {
            let name = normalize_ident(name);
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

/// Returns the list of entries whose items a call of `json_each` returns as rows.
fn json_entries_list(name: &str, args: &[FunctionArg]) -> Option<Expr> {
    if !["json_each", "jsonb_each"].contains(&name.to_lowercase().as_str()) {
        return None;
    }
    let json = match table_functions::positional_arguments(args)?.as_slice() {
        [json] => json.clone(),
        [json, path] => function_call("json_extract", vec![json.clone(), path.clone()]),
        _ => return None,
    };
    Some(function_call("json_entries", vec![json]))
}

/// Translates `json_each(j)` into a subquery of its own; `None` for any other function.
///
/// # Errors
/// [`Error::Usage`] for a wrong number of arguments.
pub(super) fn json_each_table(
    name: &str,
    args: &[FunctionArg],
    alias: Option<TableAlias>,
) -> Result<Option<TableFactor>> {
    let Some(list) = json_entries_list(name, args) else {
        return match ["json_each", "jsonb_each"].contains(&name) {
            true => Err(Error::usage_with_hint(
                format!("`{name}` takes other arguments"),
                format!("it is called as {name}(json) or {name}(json, '$.path')"),
            )),
            false => Ok(None),
        };
    };
    let names = alias.as_ref().map_or([].as_slice(), |alias| alias.columns.as_slice());
    if names.len() > JSON_ENTRY_FIELDS.len() {
        return Err(Error::usage_with_hint(
            format!("`{name}` has 3 columns, and {} names are given", names.len()),
            format!("it is called as {name}(json) AS e (key, value, type)"),
        ));
    }
    let unnamed = JSON_ENTRY_FIELDS.iter().skip(names.len()).map(|field| (*field).to_owned());
    let names = names.iter().map(|column| column.name.to_string()).chain(unnamed);
    let fields = JSON_ENTRY_FIELDS.iter().zip(names);
    let fields = fields
        .map(|(field, name)| format!("get_field(\"{JSON_ENTRY_COLUMN}\", '{field}') AS {name}"));
    let fields = fields.collect::<Vec<_>>().join(", ");
    let text =
        format!("SELECT {fields} FROM (SELECT unnest(x) AS \"{JSON_ENTRY_COLUMN}\") AS entries");
    let mut statements = parse_statements(&text).map_err(|e| Error::Internal(e.to_string()))?;
    let Some(mut statement) = statements.pop() else {
        return Err(Error::Internal("no query".into()));
    };
    tidemill_planning::walk_statement_mut(&mut statement, &mut NameSubstitution(&[("x", list)]));
    let Statement::Query(subquery) = statement else {
        return Err(Error::Internal("no query".into()));
    };
    let own =
        || TableAlias { explicit: true, name: Ident::new(name), columns: Vec::new(), at: None };
    let alias = TableAlias { columns: Vec::new(), ..alias.unwrap_or_else(own) };
    let alias = Some(alias);
    Ok(Some(TableFactor::Derived { lateral: false, subquery, alias, sample: None }))
}

/// Returns a single source with a single list.
fn single_lateral(
    factors: Vec<(&TableFactor, bool)>,
    lateral: LateralList,
) -> Option<(TableFactor, Vec<LateralList>)> {
    match factors.as_slice() {
        [(base, _)] => Some(((*base).clone(), vec![lateral])),
        _ => None,
    }
}

fn is_unconditional(constraint: &JoinConstraint) -> bool {
    match constraint {
        JoinConstraint::On(Expr::Value(ValueWithSpan { value: Value::Boolean(yes), .. })) => *yes,
        JoinConstraint::None => true,
        _ => false,
    }
}

fn unqualified_ident(name: &ObjectName) -> Option<Ident> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name.clone()),
        _ => None,
    }
}

/// Parses `unnest(t.tags) AS x(tag)`, whose list belongs to a record.
fn parse_lateral_factor(factor: &TableFactor, keeps_all: bool) -> Option<LateralList> {
    if let Some((list, alias)) = parse_json_each_factor(factor) {
        let (table, columns) = match alias {
            Some(TableAlias { name, columns, .. }) => (name.clone(), columns.as_slice()),
            None => (Ident::new("json_each"), [].as_slice()),
        };
        if columns.len() > JSON_ENTRY_FIELDS.len() {
            return None;
        }
        let names = columns.iter().map(|column| column.name.clone());
        let names =
            names.chain(JSON_ENTRY_FIELDS.iter().skip(columns.len()).map(|f| Ident::new(*f)));
        let entry = JSON_ENTRY_FIELDS
            .iter()
            .zip(names)
            .map(|(field, name)| {
                let inner = Ident::with_quote('"', normalize_ident(&name));
                JsonEntryColumn { field, name, subquery_name: inner }
            })
            .collect();
        let column = entry_column_name();
        return Some(LateralList {
            list,
            rows_alias: Some(table),
            item_column: column,
            position_column: None,
            is_outer: keeps_all,
            entry_columns: entry,
        });
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
            if unnest_numbering(&name.to_string()).is_some() =>
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
            let (list, column) = set_returning_list(&name.to_string(), args)?;
            own_name = Some(column);
            (list, alias, *with_ordinality)
        }
        _ => return None,
    };
    if !contains_column_name(&list) {
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
    Some(LateralList {
        list,
        rows_alias: table,
        item_column: column,
        position_column: place,
        is_outer: keeps_all,
        entry_columns: Vec::new(),
    })
}

/// Returns the list of entries of a `json_each` over a record's columns, and its alias.
fn parse_json_each_factor(factor: &TableFactor) -> Option<(Expr, Option<&TableAlias>)> {
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
    let list = json_entries_list(&name.to_string(), args).filter(contains_column_name)?;
    Some((list, alias.as_ref()))
}

/// Translates a function that returns rows into a function that returns a list, with the name of its only
/// column.
pub(super) fn set_returning_list(name: &str, args: &[FunctionArg]) -> Option<(Expr, &'static str)> {
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
    Some((function_call(list, args), column))
}

/// Returns `Some` if a function unnests a list: true if it also numbers the items from zero.
fn unnest_numbering(name: &str) -> Option<bool> {
    match name.to_lowercase().as_str() {
        "unnest" | "explode" | "explode_outer" | "flatten" => Some(false),
        "posexplode" | "posexplode_outer" => Some(true),
        _ => None,
    }
}

/// Parses `LATERAL VIEW explode(tags) x AS tag`.
fn parse_lateral_view(view: &LateralView) -> Option<LateralList> {
    let LateralView { lateral_view, lateral_view_name, lateral_col_alias, outer } = view;
    let Expr::Function(call) = lateral_view else { return None };
    let name = call.name.to_string();
    let is_numbered = unnest_numbering(&name)?;
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
    Some(LateralList {
        list: list.clone(),
        rows_alias: unqualified_ident(lateral_view_name),
        item_column: columns.next().unwrap_or_else(|| Ident::new("col")),
        position_column: place,
        is_outer: *outer || name.to_lowercase().ends_with("_outer"),
        entry_columns: Vec::new(),
    })
}

fn contains_column_name(expr: &Expr) -> bool {
    struct ColumnNameFinder;

    impl Visitor for ColumnNameFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut ColumnNameFinder)
}

/// Renames items in the ORDER BY of a query as its subquery will call them.
pub(super) fn translate_lateral_order_by(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let Some((_, laterals)) = split_from_clause(select) else { return };
    let Some(order) = &mut query.order_by else { return };
    if let datafusion::sql::sqlparser::ast::OrderByKind::Expressions(keys) = &mut order.kind {
        for key in keys {
            walk_expr_mut(&mut key.expr, &mut ItemNameRewriter(&laterals));
        }
    }
}

/// Replaces the lists in a FROM by subqueries that unnest them.
///
/// # Errors
/// [`Error::Usage`] for a `json_each` behind a join of several sources, or with WITH ORDINALITY, and for a
/// column name that two calls of `json_each` have.
pub(super) fn translate_lateral_lists(
    select: &mut Select,
    mentioned: &MentionedNames,
) -> Result<()> {
    let Some((base, mut laterals)) = split_from_clause(select) else {
        return refuse_joined_json_each(select);
    };
    refuse_ambiguous_names(select, &laterals)?;
    let alias = match &base {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => alias.clone(),
        TableFactor::Table { name, .. } => {
            let Some(name) = unqualified_ident(name) else { return Ok(()) };
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
        let table = lateral.rows_alias.clone();
        let is_star = |item: &SelectItem| match item {
            SelectItem::Wildcard(_) => true,
            item => is_star_of_table(item, table.as_ref()),
        };
        let has_star = select.projection.iter().any(is_star);
        let is_entry = !lateral.entry_columns.is_empty();
        lateral
            .entry_columns
            .retain(|column| has_star || mentioned.mentions_column(table.as_ref(), &column.name));
        if is_entry && lateral.entry_columns.is_empty() {
            // With `count(*)` the rows count, though nothing names their columns.
            let name = Ident::with_quote('"', format!("{JSON_ENTRY_COLUMN}_{at}"));
            lateral.entry_columns.push(JsonEntryColumn {
                field: JSON_ENTRY_FIELDS[0],
                subquery_name: name.clone(),
                name,
            });
        }
    }
    expand_stars(select, &alias.name, &laterals);
    name_entry_items(select, &laterals);
    let mut factor = base;
    for (at, lateral) in laterals.iter().enumerate() {
        let mut list = lateral.list.clone();
        walk_expr_mut(&mut list, &mut ItemNameRewriter(&laterals[..at]));
        factor = unnest_subquery(factor, list, lateral, &alias)?;
    }
    select.from = vec![TableWithJoins { relation: factor, joins: Vec::new() }];
    select.lateral_views.clear();
    let mut items = ItemNameRewriter(&laterals);
    let mut statement = Statement::Query(Box::new(query_from_select(select.clone())?));
    tidemill_planning::walk_statement_mut(&mut statement, &mut items);
    if let Statement::Query(query) = statement
        && let SetExpr::Select(made) = *query.body
    {
        *select = *made;
    }
    Ok(())
}

/// Refuses a `json_each` over columns behind a join of several sources, and a `json_each` with WITH
/// ORDINALITY.
fn refuse_joined_json_each(select: &Select) -> Result<()> {
    let factors = select.from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
    });
    for (at, factor) in factors.enumerate() {
        if let TableFactor::Table { name, args: Some(args), with_ordinality: true, .. } = factor
            && json_entries_list(&name.to_string(), &args.args).is_some()
        {
            return Err(Error::usage_with_hint(
                format!("`{factor}` has no WITH ORDINALITY"),
                "the key of an item is its place from 0; row_number() OVER (…) numbers rows",
            ));
        }
        // The first factor of a subquery may refer to columns of the outer query.
        if at > 0 && parse_json_each_factor(factor).is_some() {
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

/// Refuses an unqualified name that is a column of several calls of `json_each`.
fn refuse_ambiguous_names(select: &Select, laterals: &[LateralList]) -> Result<()> {
    struct AmbiguousNameFinder<'a> {
        laterals: &'a [LateralList],
        found: Option<(String, Vec<String>)>,
    }

    impl Visitor for AmbiguousNameFinder<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let Expr::Identifier(name) = expr else { return ControlFlow::Continue(()) };
            let has_it = |lateral: &&LateralList| {
                lateral
                    .entry_columns
                    .iter()
                    .any(|column| normalize_ident(&column.name) == normalize_ident(name))
            };
            let tables = self.laterals.iter().filter(has_it);
            let tables =
                tables.filter_map(|lateral| Some(lateral.rows_alias.as_ref()?.value.clone()));
            let tables: Vec<String> = tables.collect();
            if tables.len() < 2 {
                return ControlFlow::Continue(());
            }
            self.found = Some((name.value.clone(), tables));
            ControlFlow::Break(())
        }
    }

    let mut names = AmbiguousNameFinder { laterals, found: None };
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

/// Returns true if an item is the `*` of a table.
fn is_star_of_table(item: &SelectItem, table: Option<&Ident>) -> bool {
    let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), _) = item
    else {
        return false;
    };
    unqualified_ident(of)
        .is_some_and(|of| table.is_some_and(|table| normalize_ident(table) == normalize_ident(&of)))
}

/// Expands `x.*` into the columns of the rows `x`, and excludes these from the `*` of the records.
fn expand_stars(select: &mut Select, base: &Ident, laterals: &[LateralList]) {
    let mut items = Vec::with_capacity(select.projection.len());
    for mut item in std::mem::take(&mut select.projection) {
        let own =
            laterals.iter().find(|lateral| is_star_of_table(&item, lateral.rows_alias.as_ref()));
        let plain = |options: &WildcardAdditionalOptions| {
            let WildcardAdditionalOptions { wildcard_token, .. } = options;
            let wildcard_token = wildcard_token.clone();
            *options == WildcardAdditionalOptions { wildcard_token, ..Default::default() }
        };
        let is_of_base = is_star_of_table(&item, Some(base));
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
                    .flat_map(LateralList::columns)
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

/// Gives a renamed column of the subquery its original name in the result, unless another item has that name.
fn name_entry_items(select: &mut Select, laterals: &[LateralList]) {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                let [table, column] = parts.as_slice() else { continue };
                let is_renamed = laterals.iter().any(|lateral| {
                    lateral
                        .rows_alias
                        .as_ref()
                        .is_some_and(|own| normalize_ident(own) == normalize_ident(table))
                        && lateral.entry_columns.iter().any(|of| {
                            normalize_ident(&of.name) == normalize_ident(column)
                                && normalize_ident(&of.name) != of.subquery_name.value
                        })
                });
                let alias = column.clone();
                if names.insert(normalize_ident(column)) && is_renamed {
                    let expr = Expr::CompoundIdentifier(parts.clone());
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                _ = names.insert(normalize_ident(name))
            }
            SelectItem::ExprWithAlias { alias, .. } => _ = names.insert(normalize_ident(alias)),
            _ => {}
        }
    }
}

/// Returns a query that consists of one SELECT.
fn query_from_select(select: Select) -> Result<Query> {
    let mut statements =
        parse_statements("SELECT 1").map_err(|e| Error::Internal(e.to_string()))?;
    match statements.pop() {
        Some(Statement::Query(mut query)) => {
            *query.body = SetExpr::Select(Box::new(select));
            Ok(*query)
        }
        _ => Err(Error::Internal("no query".into())),
    }
}

/// Returns `(SELECT *, unnest(list) AS item FROM …) AS alias`.
fn unnest_subquery(
    of: TableFactor,
    list: Expr,
    lateral: &LateralList,
    alias: &TableAlias,
) -> Result<TableFactor> {
    let list = match lateral.is_outer {
        false => list,
        true => {
            let nothing = Expr::Array(Array { elem: vec![Expr::value(Value::Null)], named: false });
            let text = "CASE WHEN array_length(l) > 0 THEN l ELSE n END";
            let mut made = parse_expr(text)?;
            let put = [("l", list), ("n", nothing)];
            walk_expr_mut(&mut made, &mut NameSubstitution(&put));
            made
        }
    };
    if !lateral.entry_columns.is_empty() {
        return json_entries_subquery(of, list, lateral, alias);
    }
    let unnested = |list: Expr| function_call("unnest", vec![list]);
    let mut statements =
        parse_statements("SELECT * FROM t").map_err(|e| Error::Internal(e.to_string()))?;
    let Some(Statement::Query(mut query)) = statements.pop() else {
        return Err(Error::Internal("no query".into()));
    };
    if let SetExpr::Select(select) = query.body.as_mut() {
        let mut add = |list: Expr, alias: &Ident| {
            let (expr, alias) = (unnested(list), alias.clone());
            select.projection.push(SelectItem::ExprWithAlias { expr, alias });
        };
        if let Some((place, from_one)) = &lateral.position_column {
            let text = if *from_one {
                "generate_series(1, array_length(l))"
            } else {
                "range(array_length(l))"
            };
            let mut numbers = parse_expr(text)?;
            walk_expr_mut(&mut numbers, &mut NameSubstitution(&[("l", list.clone())]));
            match from_one {
                true => {
                    add(list, &lateral.item_column);
                    add(numbers, place);
                }
                false => {
                    add(numbers, place);
                    add(list, &lateral.item_column);
                }
            }
        } else {
            add(list, &lateral.item_column);
        }
        select.from = vec![TableWithJoins { relation: of, joins: Vec::new() }];
    }
    let alias = Some(alias.clone());
    Ok(TableFactor::Derived { lateral: false, subquery: query, alias, sample: None })
}

/// Returns `(SELECT * EXCLUDE (entry), get_field(entry, 'key') AS key, … FROM (SELECT *, unnest(list) AS
/// entry FROM …) AS alias) AS alias`.
fn json_entries_subquery(
    of: TableFactor,
    list: Expr,
    lateral: &LateralList,
    alias: &TableAlias,
) -> Result<TableFactor> {
    let text = format!(
        "SELECT * EXCLUDE (\"{JSON_ENTRY_COLUMN}\") FROM (SELECT *, unnest(x) AS \"{JSON_ENTRY_COLUMN}\" FROM t) AS records"
    );
    let mut statements = parse_statements(&text).map_err(|e| Error::Internal(e.to_string()))?;
    let broken = || Error::Internal("no query of entries".into());
    let Some(Statement::Query(mut query)) = statements.pop() else { return Err(broken()) };
    let SetExpr::Select(select) = query.body.as_mut() else { return Err(broken()) };
    for JsonEntryColumn { field, subquery_name: inner, .. } in &lateral.entry_columns {
        let field = Expr::value(Value::SingleQuotedString((*field).into()));
        let expr = function_call("get_field", vec![Expr::Identifier(entry_column_name()), field]);
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
    *expr = function_call("unnest", vec![list]);
    records.from = vec![TableWithJoins { relation: of, joins: Vec::new() }];
    let alias = Some(alias.clone());
    Ok(TableFactor::Derived { lateral: false, subquery: query, alias, sample: None })
}

/// Replaces names by expressions.
struct NameSubstitution<'a>(&'a [(&'static str, Expr)]);

impl VisitorMut for NameSubstitution<'_> {
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

/// Renames columns of rows as the subquery calls them: `x.tag` becomes `tag`.
struct ItemNameRewriter<'a>(&'a [LateralList]);

impl ItemNameRewriter<'_> {
    /// Returns the name of a column in the subquery, if `table` is an alias of rows.
    fn subquery_column(&self, table: &Ident, column: &Ident) -> Option<Ident> {
        self.0.iter().find_map(|lateral| {
            if lateral
                .rows_alias
                .as_ref()
                .is_none_or(|own| normalize_ident(own) != normalize_ident(table))
            {
                return None;
            }
            let columns = lateral.columns().into_iter();
            let mut named =
                columns.filter(|(name, _)| normalize_ident(name) == normalize_ident(column));
            match named.next() {
                Some((_, inner)) => Some(inner.clone()),
                None if lateral.entry_columns.is_empty() && normalize_ident(column) == "unnest" => {
                    Some(lateral.item_column.clone())
                }
                None => None,
            }
        })
    }
}

impl VisitorMut for ItemNameRewriter<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundIdentifier(parts) => {
                let [table, column, fields @ ..] = parts.as_slice() else {
                    return ControlFlow::Continue(());
                };
                if let Some(inner) = self.subquery_column(table, column) {
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
                    && let Some(inner) = self.subquery_column(table, column)
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
