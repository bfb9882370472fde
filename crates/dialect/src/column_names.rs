//! Resolution of column names without regard to case, and texts for columns without names.
//!
//! `userId` finds `userId` without quotes. SQL folds unquoted names to lower case, yet the keys of JSON
//! events are in camel case more often than not. Before planning, an unquoted name that matches no column in
//! lower case gets the spelling of the only column, or struct field, that it equals ignoring case. Quoted
//! names are left alone.
//!
//! A result column without a name is called by its text in the query: [`select_list_texts`].

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::{DataFusionError, Result as PlanResult, SchemaError};
use datafusion::sql::sqlparser::ast::{
    DollarQuotedString, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, Value,
    ValueWithSpan, Visitor, VisitorMut,
};
use tidemill_base::error::{Error, Result};
use tidemill_planning::{walk_expr, walk_expr_mut, walk_statement, walk_statement_mut};

use crate::translation::comprehensions;

/// Respells the unquoted names of `statement` after the columns of `schemas`.
pub fn respell_names<'a>(statement: &mut Statement, schemas: impl Iterator<Item = &'a Schema>) {
    let mut names = BTreeSet::new();
    for schema in schemas {
        for field in schema.fields() {
            collect_field_names(field.name(), field.data_type(), &mut names);
        }
    }
    let mut spellings: HashMap<String, Vec<&str>> = HashMap::new();
    for name in &names {
        spellings.entry(name.to_lowercase()).or_default().push(name);
    }
    walk_statement_mut(statement, &mut NameRespeller { spellings });
}

/// Refuses an expression in ORDER BY that uses a name which is both a column and the alias of something else.
/// SQL means the column there, and the planner would take the alias.
///
/// # Errors
/// [`Error::Usage`] that names it.
pub fn refuse_ambiguous_order_by<'a>(
    statement: &Statement,
    schemas: impl Iterator<Item = &'a Schema>,
) -> Result<()> {
    struct AmbiguousOrderFinder {
        columns: BTreeSet<String>,
        found: Option<String>,
    }

    impl Visitor for AmbiguousOrderFinder {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &query.order_by)
            else {
                return ControlFlow::Continue(());
            };
            let OrderByKind::Expressions(keys) = &order.kind else {
                return ControlFlow::Continue(());
            };
            let aliases = select.projection.iter().filter_map(|item| match item {
                SelectItem::ExprWithAlias { expr: Expr::Identifier(own), alias }
                    if own.value == alias.value =>
                {
                    None
                }
                SelectItem::ExprWithAlias { expr: Expr::CompoundIdentifier(own), alias }
                    if own.last().is_some_and(|own| own.value == alias.value) =>
                {
                    None
                }
                SelectItem::ExprWithAlias { alias, .. } => Some(normalize_ident(alias)),
                _ => None,
            });
            let aliases: BTreeSet<String> =
                aliases.filter(|alias| self.columns.contains(alias)).collect();
            let calculated = keys.iter().map(|key| &key.expr);
            let calculated = calculated.filter(|key| !matches!(key, Expr::Identifier(_)));
            for key in calculated {
                let mut named = AliasFinder { aliases: &aliases, found: None };
                if walk_expr(key, &mut named) {
                    self.found = named.found;
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        }
    }

    struct AliasFinder<'a> {
        aliases: &'a BTreeSet<String>,
        found: Option<String>,
    }

    impl Visitor for AliasFinder<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(ident) if self.aliases.contains(&normalize_ident(ident)) => {
                    self.found = Some(normalize_ident(ident));
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }

    let columns = schemas.flat_map(|schema| schema.fields()).map(|field| field.name().clone());
    let mut orders = AmbiguousOrderFinder { columns: columns.collect(), found: None };
    walk_statement(statement, &mut orders);
    match orders.found {
        Some(name) => Err(Error::usage_with_hint(
            format!("`{name}` in ORDER BY is a column, and something else in the select list"),
            format!(
                "call that something else: AS {name}_2; ORDER BY {name} alone is the select list's"
            ),
        )),
        None => Ok(()),
    }
}

/// The tag of a text literal that is the name of a column and takes the column's spelling.
const COLUMN_LABEL_TAG: &str = "tidemill_label";

/// Returns the name of a column as a text literal that will take the column's spelling instead of the
/// query's.
pub(crate) fn column_label(column: &Ident) -> Expr {
    Expr::value(match column.quote_style {
        Some(_) => Value::SingleQuotedString(column.value.clone()),
        None => Value::DollarQuotedString(DollarQuotedString {
            value: normalize_ident(column),
            tag: Some(COLUMN_LABEL_TAG.to_owned()),
        }),
    })
}

/// Returns the name in an expression that [`column_label`] made.
fn column_label_mut(expr: &mut Expr) -> Option<&mut String> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::DollarQuotedString(text), .. })
            if text.tag.as_deref() == Some(COLUMN_LABEL_TAG) =>
        {
            Some(&mut text.value)
        }
        _ => None,
    }
}

/// Returns a name as SQL reads it: an unquoted name in lower case.
pub(crate) fn normalize_ident(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

fn collect_field_names<'a>(name: &'a str, of: &'a DataType, names: &mut BTreeSet<&'a str>) {
    names.insert(name);
    let fields: Vec<_> = match of {
        DataType::Struct(fields) => fields.iter().collect(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            vec![item]
        }
        DataType::Map(entries, _) => vec![entries],
        _ => Vec::new(),
    };
    for field in fields {
        collect_field_names(field.name(), field.data_type(), names);
    }
}

struct NameRespeller<'a> {
    /// The spellings of columns, by the name in lower case.
    spellings: HashMap<String, Vec<&'a str>>,
}

impl NameRespeller<'_> {
    fn respell_ident(&self, ident: &mut Ident) {
        if ident.quote_style.is_some() {
            return;
        }
        let lower = ident.value.to_lowercase();
        let Some(spellings) = self.spellings.get(&lower) else { return };
        let meant = match spellings.as_slice() {
            spellings if spellings.contains(&ident.value.as_str()) => ident.value.clone(),
            // The SQL standard's reading.
            spellings if spellings.contains(&lower.as_str()) => return,
            [one] => (*one).to_string(),
            // Several spellings differ in case only: quotes must decide.
            _ => return,
        };
        if meant != lower {
            *ident = Ident::with_quote('"', meant);
        }
    }
}

impl VisitorMut for NameRespeller<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(ident) => self.respell_ident(ident),
            Expr::CompoundIdentifier(parts) => {
                parts.iter_mut().for_each(|ident| self.respell_ident(ident));
            }
            other => {
                if let Some(label) = column_label_mut(other) {
                    let mut ident = Ident::new(label.as_str());
                    self.respell_ident(&mut ident);
                    *label = ident.value;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Respells the names of USING and those behind a `*`, which the planner takes literally.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            let on = match &mut join.join_operator {
                JoinOperator::Join(on)
                | JoinOperator::Inner(on)
                | JoinOperator::Left(on)
                | JoinOperator::LeftOuter(on)
                | JoinOperator::Semi(on)
                | JoinOperator::LeftSemi(on)
                | JoinOperator::Anti(on)
                | JoinOperator::LeftAnti(on) => on,
                _ => continue,
            };
            let JoinConstraint::Using(names) = on else { continue };
            for part in names.iter_mut().flat_map(|ObjectName(parts)| parts) {
                if let ObjectNamePart::Identifier(ident) = part {
                    self.respell_ident(ident);
                }
            }
        }
        let fold = |ident: &mut Ident| {
            self.respell_ident(ident);
            if ident.quote_style.is_none() {
                ident.value = ident.value.to_lowercase();
            }
        };
        for item in &mut select.projection {
            let (SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)) = item
            else {
                continue;
            };
            if let Some(except) = &mut options.opt_except {
                fold(&mut except.first_element);
                except.additional_elements.iter_mut().for_each(fold);
            }
            let excluded = match &mut options.opt_exclude {
                Some(ExcludeSelectItem::Single(name)) => std::slice::from_mut(name),
                Some(ExcludeSelectItem::Multiple(names)) => names.as_mut_slice(),
                None => &mut [],
            };
            for ObjectName(parts) in excluded {
                for part in parts {
                    if let ObjectNamePart::Identifier(ident) = part {
                        fold(ident);
                    }
                }
            }
            for item in options.opt_replace.iter_mut().flat_map(|replace| &mut replace.items) {
                fold(&mut item.column_name);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Maximum number of a statement's names that are respelled.
const RESPELLED_NAMES_MAX: usize = 32;

/// Plans a statement whose unquoted names may differ in case from those of its columns. A PIVOT or a quoted
/// alias makes such columns: `DE` for `de`, where nothing is called `de`. Names of files' columns are
/// resolved earlier.
///
/// # Errors
/// The errors of `plan` for the original statement.
pub fn plan_with_any_case<T>(
    mut statement: datafusion::sql::parser::Statement,
    plan: impl Fn(datafusion::sql::parser::Statement) -> PlanResult<T>,
) -> PlanResult<T> {
    let mut first = None;
    for _ in 0..RESPELLED_NAMES_MAX {
        let error = match plan(statement.clone()) {
            Ok(planned) => return Ok(planned),
            Err(error) => error,
        };
        let meant = case_insensitive_match(&error);
        first.get_or_insert(error);
        let datafusion::sql::parser::Statement::Statement(inner) = &mut statement else { break };
        let Some((name, meant)) = meant else { break };
        let mut quoted = NameQuoter { name, column_name: meant, has_changed: false };
        walk_statement_mut(inner, &mut quoted);
        if !quoted.has_changed {
            break;
        }
    }
    match first {
        Some(error) => Err(error),
        None => plan(statement),
    }
}

/// Returns an unknown column and the only column that equals it ignoring case.
fn case_insensitive_match(error: &DataFusionError) -> Option<(String, String)> {
    let error = match error.find_root() {
        DataFusionError::Collection(errors) => errors.first()?.find_root(),
        error => error,
    };
    let DataFusionError::SchemaError(cause, _) = error else { return None };
    let SchemaError::FieldNotFound { field, valid_fields } = cause.as_ref() else { return None };
    let mut others: Vec<&str> = valid_fields
        .iter()
        .map(|valid| valid.name())
        .filter(|name| name.eq_ignore_ascii_case(field.name()) && *name != field.name())
        .collect();
    others.sort_unstable();
    others.dedup();
    match others.as_slice() {
        [one] => Some((field.name().to_owned(), (*one).to_owned())),
        _ => None,
    }
}

/// Replaces a column's name by its quoted spelling.
struct NameQuoter {
    name: String,
    column_name: String,
    has_changed: bool,
}

impl VisitorMut for NameQuoter {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(label) = column_label_mut(expr).filter(|label| **label == self.name) {
            label.clone_from(&self.column_name);
        }
        let last = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last_mut(),
            _ => None,
        };
        if let Some(name) =
            last.filter(|name| name.quote_style.is_none() && normalize_ident(name) == self.name)
        {
            *name = Ident::with_quote('"', self.column_name.clone());
            self.has_changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// Returns the texts of the outermost select list's items without names, one for each of `columns`; `None`
/// for the columns of a `*`. The result is empty if the columns of the `*` cannot be determined.
pub fn select_list_texts(statement: &Statement, columns: usize) -> Vec<Option<String>> {
    map_select_items(statement, columns, |item| match item {
        SelectItem::UnnamedExpr(expr) => Some(expr_display_text(expr)),
        _ => None,
    })
}

/// Returns the aliases of the outermost select list in their original spelling.
pub fn select_list_aliases(statement: &Statement, columns: usize) -> Vec<Option<String>> {
    map_select_items(statement, columns, |item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        _ => None,
    })
}

fn map_select_items(
    statement: &Statement,
    columns: usize,
    of: impl Fn(&SelectItem) -> Option<String>,
) -> Vec<Option<String>> {
    let Statement::Query(query) = statement else { return Vec::new() };
    let mut body = query.body.as_ref();
    let select = loop {
        match body {
            SetExpr::Select(select) => break select,
            SetExpr::Query(query) => body = query.body.as_ref(),
            SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            _ => return Vec::new(),
        }
    };
    let has_star = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    let items = &select.projection;
    let mut found: Vec<Option<String>> = items.iter().map(of).collect();
    let mut stars = items.iter().enumerate().filter(|(_, item)| has_star(item));
    let (Some((star, _)), None) = (stars.next(), stars.next()) else {
        return if items.iter().any(has_star) { Vec::new() } else { found };
    };
    // Calls of unnest and COLUMNS may stand for several columns, too.
    let may_be_several = |item: &SelectItem| {
        let text = item.to_string().to_lowercase();
        ["unnest(", "columns("].iter().any(|call| text.contains(call))
    };
    match (columns + 1).checked_sub(items.len()) {
        Some(width) if !items.iter().any(may_be_several) => {
            found.splice(star..=star, std::iter::repeat_n(None, width));
            found
        }
        _ => Vec::new(),
    }
}

/// Returns the text of an expression, with needless quotes around names removed.
pub(crate) fn expr_display_text(expr: &Expr) -> String {
    let mut expr = expr.clone();
    walk_expr_mut(&mut expr, &mut QuoteRemover);
    expr.to_string()
}

/// Returns true if a plan's column name contains the planner's own notation for literals and frames.
pub fn is_planner_name(name: &str) -> bool {
    const WORDS: [&str; 17] = [
        "Utf8(",
        "Utf8View(",
        "Int8(",
        "Int16(",
        "Int32(",
        "Int64(",
        "Float32(",
        "Float64(",
        "Boolean(",
        "Decimal128(",
        "Decimal256(",
        "IntervalMonthDayNano(",
        "Date32(",
        " ROWS BETWEEN ",
        " RANGE BETWEEN ",
        " GROUPS BETWEEN ",
        " ORDER BY [",
    ];
    WORDS.iter().any(|word| name.contains(word))
}

/// Rewrites the literals in a plan's expression in SQL: `x + 1` for `x + Int64(1)`. It matches the planner's
/// notation in text, so that a text literal that looks like it changes, too.
pub fn plan_text_to_sql(text: &str) -> String {
    const NUMBERS: [&str; 12] = [
        "Int8(", "Int16(", "Int32(", "Int64(", "UInt8(", "UInt16(", "UInt32(", "UInt64(",
        "Float32(", "Float64(", "Boolean(", "Date32(",
    ];
    const TEXTS: [&str; 3] = ["Utf8(\"", "Utf8View(\"", "LargeUtf8(\""];
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    'all: while let Some(next) = rest.chars().next() {
        let follows_word = found.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if !follows_word {
            for (word, ending, around) in NUMBERS
                .iter()
                .map(|word| (*word, ")", ""))
                .chain(TEXTS.iter().map(|word| (*word, "\")", "'")))
            {
                let inner = rest.strip_prefix(word).and_then(|inner| inner.split_once(ending));
                if let Some((inner, after)) = inner {
                    found.push_str(around);
                    found.push_str(inner);
                    found.push_str(around);
                    rest = after;
                    continue 'all;
                }
            }
            let span = rest.strip_prefix("IntervalMonthDayNano(\"");
            if let Some((_, after)) = span.and_then(|span| span.split_once("\")")) {
                found.push_str("INTERVAL");
                rest = after;
                continue;
            }
        }
        found.push(next);
        rest = &rest[next.len_utf8()..];
    }
    found
}

/// Removes needless quotes from names.
struct QuoteRemover;

impl VisitorMut for QuoteRemover {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let parts = match expr {
            Expr::Identifier(ident) => std::slice::from_mut(ident),
            Expr::CompoundIdentifier(parts) => parts.as_mut_slice(),
            _ => &mut [],
        };
        for part in parts {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            if part.value.chars().all(is_word) && !part.value.is_empty() {
                part.quote_style = None;
            }
        }
        ControlFlow::Continue(())
    }

    /// Replaces the call of a comprehension by the comprehension's text.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr
            && let Some(written) = comprehensions::comprehension_text(call)
        {
            *expr = Expr::Identifier(Ident::new(written));
        }
        ControlFlow::Continue(())
    }
}

/// Returns the text of a window call without its order and frame, which DataFusion's name includes.
pub fn strip_window_spec(name: &str) -> String {
    let ends =
        [" PARTITION BY [", " ORDER BY [", " ROWS BETWEEN ", " RANGE BETWEEN ", " GROUPS BETWEEN "];
    let end = ends.iter().filter_map(|end| name.find(end)).min();
    plan_text_to_sql(&name[..end.unwrap_or(name.len())])
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Fields};
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn check(sql: &str, expected: &str) {
        let inner = Fields::from(vec![Field::new("hostName", DataType::Utf8, true)]);
        let schema = Schema::new(vec![
            Field::new("userId", DataType::Int64, true),
            Field::new("day", DataType::Utf8, true),
            Field::new("Total", DataType::Int64, true),
            Field::new("TOTAL", DataType::Int64, true),
            Field::new("client", DataType::Struct(inner), true),
        ]);
        let mut statements = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
        respell_names(&mut statements[0], [&schema].into_iter());
        assert_eq!(statements[0].to_string(), expected);
    }

    #[test]
    fn plan_literals_become_sql_literals() {
        for (text, expected) in [
            ("d * Int64(-100000)", "d * -100000"),
            ("sum(a - Utf8(\"1900-01-01\"))", "sum(a - '1900-01-01')"),
            ("abs(Float64(1.5)) + UInt8(3)", "abs(1.5) + 3"),
            (
                "sum(IntervalMonthDayNano(\"IntervalMonthDayNano { months: 0, days: 1, nanoseconds: 0 }\"))",
                "sum(INTERVAL)",
            ),
            ("to_Int64(x) + Int64(", "to_Int64(x) + Int64("),
        ] {
            assert_eq!(plan_text_to_sql(text), expected);
        }
    }

    #[test]
    fn unquoted_name_finds_column_in_any_case() {
        check(
            "SELECT userId, USERID, DAY, \"userid\" FROM t GROUP BY userid",
            "SELECT \"userId\", \"userId\", DAY, \"userid\" FROM t GROUP BY \"userId\"",
        );
    }

    #[test]
    fn exact_spelling_wins_among_several() {
        check("SELECT Total, TOTAL, total FROM t", "SELECT \"Total\", \"TOTAL\", total FROM t");
    }

    #[test]
    fn names_behind_a_star_are_respelled_too() {
        check(
            "SELECT * EXCEPT (userid, Day), * EXCLUDE (USERID) REPLACE (1 AS DAY) FROM t",
            "SELECT * EXCEPT (\"userId\", day), * EXCLUDE (\"userId\") REPLACE (1 AS day) FROM t",
        );
    }

    #[test]
    fn struct_fields_are_respelled() {
        check("SELECT t.client.HOSTNAME FROM t", "SELECT t.client.\"hostName\" FROM t");
    }
}
