//! What people write who come from DuckDB, PostgreSQL, Spark or ClickHouse, in the words that are understood
//! here.
//!
//! Nothing is carried out by this room: it writes a statement anew, before it is checked and planned, so that
//! what other databases call `countIf(c)` is the `count(*) FILTER (WHERE c)` that merges, spills and is
//! documented. What is not known here stays as it is, and is refused by its name
//! ([`syntax`](crate::syntax), [`unknown_functions`](crate::unknown_functions)).
//!
//! - [`tokens`], [`spellings`]: what the parser does not read.
//! - [`comprehensions`]: `[x * 2 FOR x IN list IF x > 1]`.
//! - [`array_subqueries`]: `ARRAY(SELECT …)`.
//! - [`calls`], [`operators`]: functions and operators.
//! - [`clauses`]: `FETCH FIRST`, `WITH ROLLUP`, `LIMIT 3 BY k`.
//! - [`distinct_lists`]: lists of different values, sorted.
//! - [`implicit_laterals`]: subqueries in FROM that refer to the sources before them.
//! - [`outer_fields`]: fields of structs of the rows around a subquery.
//! - [`indexed_lambdas`]: functions of an item and its place.
//! - [`laterals`]: rows of lists in FROM.
//! - [`outer_using`]: `FULL JOIN … USING`.
//! - [`row_comparisons`]: `(a, b) < ANY (SELECT …)`.
//! - [`samples`]: `TABLESAMPLE`, `USING SAMPLE`.
//! - [`set_operations`]: `INTERSECT ALL`, `EXCEPT ALL`, `MINUS`.
//! - [`values_rows`]: `VALUES` with subqueries.
//! - [`tables`]: `read_csv('a.csv')`, `range(10)`, lists of files.
//! - [`pivots`], [`turned`]: `PIVOT` and `UNPIVOT`.
//! - [`columns`]: what needs the columns of the sources: `COLUMNS('^d')`, names of a select list in its WHERE.
//!
//! A column of the result is called as it was written, and not as it is understood.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    Query, Select, SelectItem, SetExpr, Statement, TableFactor, UnaryOperator, Value, Visitor,
    VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, TokenizerError};
use tidemill_base::error::{Error, Result};
use tidemill_planning::{walk_expr, walk_expr_mut, walk_statement_mut};

use crate::names;
use crate::syntax::Spoken;

mod array_subqueries;
pub mod calls;
mod clauses;
mod columns;
pub(crate) mod comprehensions;
pub(crate) mod copies;
mod distinct_lists;
mod hidden;
mod implicit_laterals;
mod indexed_lambdas;
mod laterals;
mod operators;
pub(crate) mod outer_fields;
mod outer_using;
mod pivots;
mod row_comparisons;
mod samples;
mod scalar_subqueries;
mod set_operations;
mod spellings;
mod tables;
mod tokens;
mod turned;
mod types;
mod values_rows;

pub(crate) use columns::stands_for_columns;
pub use columns::{names_columns_by_pattern, write_out};
pub use hidden::{SourceColumns, Sources, Unhidden, named_hidden};
pub(crate) use implicit_laterals::with_implicit_laterals;
pub use laterals::ENTRY_COLUMN;
pub use samples::{RowSample, Sample, without_records};
pub use tables::{CalledSource, ROW_MAKERS, makes_rows};
pub use turned::{values_wanted, with_values};

/// The statements of a text.
///
/// # Errors
/// As the parser.
pub(crate) fn parsed(sql: &str) -> std::result::Result<Vec<Statement>, ParserError> {
    let tokens = comprehensions::read(parsed_tokens(sql)?);
    let tokens = tokens::mended(spellings::read(turned::read(tokens)));
    let mut parser = Parser::new(&Spoken).with_tokens_with_locations(tokens);
    let mut statements = Vec::new();
    // The parser's own loop ends at a word END, too, and forgets what follows.
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        if parser.peek_token().token == Token::EOF {
            return Ok(statements);
        }
        statements.push(parser.parse_statement()?);
        let next = parser.peek_token();
        if !matches!(next.token, Token::SemiColon | Token::EOF) {
            return parser.expected("end of statement", next);
        }
    }
}

fn parsed_tokens(sql: &str) -> std::result::Result<Vec<TokenWithSpan>, TokenizerError> {
    let mut tokens = Tokenizer::new(&Spoken, sql).tokenize_with_location()?;
    // A column that many logs have, and no function of who asks.
    for token in &mut tokens {
        if let Token::Word(word) = &mut token.token
            && word.keyword == Keyword::USER
        {
            word.keyword = Keyword::NoKeyword;
        }
    }
    Ok(tokens)
}

/// An expression in SQL's words.
fn written(text: &str) -> Result<Expr> {
    let tokens = parsed_tokens(text).map_err(ParserError::from);
    let parsed = tokens
        .and_then(|tokens| Parser::new(&Spoken).with_tokens_with_locations(tokens).parse_expr());
    parsed.map_err(|error| Error::Internal(format!("{text}: {error}")))
}

/// A query in SQL's words.
fn written_query(text: &str) -> Result<Box<Query>> {
    let tokens = parsed_tokens(text).map_err(ParserError::from);
    let query = tokens
        .and_then(|tokens| Parser::new(&Spoken).with_tokens_with_locations(tokens).parse_query());
    query.map_err(|error| Error::Internal(format!("{text}: {error}")))
}

/// Sources that a statement calls like functions, by the names that their tables have in it.
pub type CalledSources = HashMap<String, CalledSource>;

/// Writes a statement in the words that are understood here, and says which sources it calls.
///
/// # Errors
/// [`Error::Usage`] for what is said beside a function that it does not take.
pub(crate) fn translate(statement: &mut Statement) -> Result<CalledSources> {
    let mentioned = laterals::MentionedNames::of(statement);
    let mut clauses = Clauses { called: CalledSources::new(), mentioned, named: 0, refused: None };
    walk_statement_mut(statement, &mut clauses);
    let mut translation = Translation::default();
    walk_statement_mut(statement, &mut translation);
    match clauses.refused.or(translation.refused) {
        Some(error) => Err(error),
        None => Ok(clauses.called),
    }
}

/// The first walk: clauses and tables.
struct Clauses {
    called: CalledSources,
    mentioned: laterals::MentionedNames,
    /// How many subqueries in FROM have been given names.
    named: usize,
    refused: Option<Error>,
}

impl Clauses {
    fn unless_refused(&mut self, done: Result<()>) -> ControlFlow<()> {
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.refused = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl VisitorMut for Clauses {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        clauses::of_query(query);
        laterals::of_query(query);
        let done = values_rows::translate(&mut query.body)
            .and_then(|()| set_operations::translate(&mut query.body));
        self.unless_refused(done)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        clauses::number_conditions(expr);
        if let Some(translated) = rows_among(expr, false)
            .or_else(|| rows_compared(expr))
            .or_else(|| row_comparisons::translated(expr))
            .or_else(|| array_subqueries::translated(expr))
        {
            let done = copies::refuse_random_rows(expr)
                .and_then(|()| copies::refuse_copies(expr, &translated));
            self.unless_refused(done)?;
            *expr = translated;
        }
        if let Expr::Subquery(query) = expr {
            scalar_subqueries::take_first_row(query);
        }
        // `EXISTS (SELECT FROM t)`, as PostgreSQL has it.
        if let Expr::Exists { subquery, .. } = expr
            && let SetExpr::Select(select) = subquery.body.as_mut()
            && select.projection.is_empty()
        {
            let one = Expr::value(Value::Number("1".into(), false));
            select.projection.push(SelectItem::UnnamedExpr(one));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let compares = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(expr) if compares_rows(expr));
        if select.projection.iter().any(compares) {
            name_items(select, compares_rows);
        }
        let rows = (&mut select.selection, RowsCompared::Single);
        let groups = (&mut select.having, RowsCompared::Groups);
        for (condition, rows) in [rows, groups] {
            if let Some(condition) = condition {
                let done = translate_conditions(condition, rows);
                self.unless_refused(done)?;
            }
        }
        if let Some(condition) = &select.having {
            self.unless_refused(refuse_groups_within(condition))?;
        }
        tables::name_rows(select);
        tables::name_subqueries(select, &mut self.named);
        set_operations::name_subqueries(select);
        outer_using::write_out(select);
        let done = samples::of_one_source(select)
            .and_then(|()| laterals::of_select(select, &self.mentioned))
            .and_then(|()| clauses::of_select(select));
        self.unless_refused(done)
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let done =
            pivots::translate(table).and_then(|()| tables::translate(table, &mut self.called));
        self.unless_refused(done)
    }
}

/// Walks over WHERE, HAVING, QUALIFY and the keys of GROUP BY.
fn walk_conditions_and_keys(select: &mut Select, visitor: &mut dyn VisitorMut<Break = ()>) {
    let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
    for condition in conditions.into_iter().flatten() {
        walk_expr_mut(condition, visitor);
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        for key in keys {
            walk_expr_mut(key, visitor);
        }
    }
}

/// `(a, b) = (-1, x + 1)` and `(a, b) IN ((-1, 2), …)` value by value: the planner takes names and constants alone.
fn rows_compared(expr: &Expr) -> Option<Expr> {
    let is_plain = |row: &[Expr]| {
        row.iter().all(|value| {
            matches!(value, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
        })
    };
    let equal = |one: &[Expr], other: &[Expr]| {
        let pairs = one.iter().zip(other).map(|(one, other)| Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(one.clone()))),
            op: BinaryOperator::Eq,
            right: Box::new(Expr::Nested(Box::new(other.clone()))),
        });
        let all = pairs.reduce(|left, right| Expr::BinaryOp {
            left: Box::new(left),
            op: BinaryOperator::And,
            right: Box::new(right),
        })?;
        Some(Expr::Nested(Box::new(all)))
    };
    let (value, others, negated) = match expr {
        Expr::BinaryOp { left, op: op @ (BinaryOperator::Eq | BinaryOperator::NotEq), right } => {
            (left, std::slice::from_ref(right.as_ref()), *op == BinaryOperator::NotEq)
        }
        Expr::InList { expr, list, negated } => (expr, list.as_slice(), *negated),
        _ => return None,
    };
    let Expr::Tuple(value) = value.as_ref() else { return None };
    let rows = others.iter().map(|other| match other {
        Expr::Tuple(row) if row.len() == value.len() => Some(row.as_slice()),
        _ => None,
    });
    let rows: Vec<&[Expr]> = rows.collect::<Option<_>>()?;
    if is_plain(value) && rows.iter().all(|row| is_plain(row)) {
        return None;
    }
    let mut each: Vec<Expr> =
        rows.into_iter().map(|row| equal(value, row)).collect::<Option<_>>()?;
    // In a balanced tree: a chain would be as deep as the list is long.
    while each.len() > 1 {
        let pairs = each.chunks(2).map(|pair| match pair {
            [left, right] => Expr::Nested(Box::new(Expr::BinaryOp {
                left: Box::new(left.clone()),
                op: BinaryOperator::Or,
                right: Box::new(right.clone()),
            })),
            rest => rest[0].clone(),
        });
        each = pairs.collect();
    }
    let any = each.pop()?;
    Some(match negated {
        true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(any) },
        false => any,
    })
}

/// The values of a row: `(a, b)`, or `row(a, b)`.
fn row_values(expr: &Expr) -> Option<Vec<&Expr>> {
    match expr {
        Expr::Tuple(values) => Some(values.iter().collect()),
        Expr::Nested(inner) => row_values(inner),
        Expr::Function(call) if calls::name_of(call).as_deref() == Some("row") => {
            let FunctionArguments::List(list) = &call.args else { return None };
            let values = list.args.iter().map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
                _ => None,
            });
            values.collect::<Option<Vec<_>>>().filter(|values| values.len() > 1)
        }
        _ => None,
    }
}

/// `(a, b) IN (SELECT x, y …)` by EXISTS, as a condition of rows, which takes null for false, or as a value.
fn rows_among(expr: &Expr, is_condition: bool) -> Option<Expr> {
    let Expr::InSubquery { expr, subquery, negated } = expr else { return None };
    let values = row_values(expr)?;
    let names: Vec<String> = (1..=values.len()).map(|place| format!("tidemill_{place}")).collect();
    let pairs = values.iter().zip(&names).map(|(value, name)| format!("({value}) = {name}"));
    let is_equal = pairs.collect::<Vec<_>>().join(" AND ");
    let exists = |condition: &str| {
        format!(
            "EXISTS (SELECT 1 FROM ({subquery}) AS tidemill_rows ({}) WHERE {condition})",
            names.join(", ")
        )
    };
    let is_among = exists(&is_equal);
    let text = match (is_condition, negated) {
        (true, false) => is_among,
        _ => {
            // Of few rows and few values: a comparison that is unknown is no key of a join.
            let null = |values: Vec<String>| {
                let nulls = values.iter().map(|value| format!("{value} IS NULL"));
                let nulls = nulls.collect::<Vec<_>>().join(" OR ");
                exists(&format!("({nulls}) AND ({is_equal}) IS NULL"))
            };
            let values = values.iter().map(|value| format!("({value})")).collect();
            format!(
                "CASE WHEN {is_among} THEN {} WHEN {} OR {} THEN NULL ELSE {negated} END",
                !negated,
                null(names.clone()),
                null(values),
            )
        }
    };
    written(&text).ok()
}

/// The rows of a condition: the records of WHERE, or the groups of HAVING.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowsCompared {
    Single,
    Groups,
}

/// Writes the rows among those of subqueries that are conditions of their own, or joined by AND.
///
/// # Errors
/// [`Error::Usage`] where that would copy a random value, and for two aggregates in a row of HAVING.
fn translate_conditions(condition: &mut Expr, rows: RowsCompared) -> Result<()> {
    match condition {
        Expr::Nested(inner) => translate_conditions(inner, rows),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            translate_conditions(left, rows)?;
            translate_conditions(right, rows)
        }
        condition => {
            let translated = match rows {
                RowsCompared::Single => rows_among(condition, true),
                RowsCompared::Groups => groups_among(condition)?,
            };
            if let Some(translated) = translated {
                copies::refuse_random_rows(condition)?;
                copies::refuse_copies(condition, &translated)?;
                *condition = translated;
            }
            Ok(())
        }
    }
}

/// `(k, count(*)) IN (SELECT x, n …)` of HAVING as `count(*) IN (SELECT n … WHERE k = x)`: an aggregate has no place in the
/// subquery. Of NOT IN, what is unknown beside `k` counts as equal.
///
/// # Errors
/// [`Error::Usage`] for two values that are calculated by functions.
fn groups_among(condition: &Expr) -> Result<Option<Expr>> {
    let Expr::InSubquery { expr, subquery, negated } = condition else { return Ok(None) };
    let Some(values) = row_values(expr) else { return Ok(None) };
    let mut called = (0..values.len()).filter(|place| calls_function(values[*place]));
    let subject = called.next().unwrap_or(values.len() - 1);
    if called.next().is_some() {
        return Err(Error::usage_with_hint(
            format!("`{condition}` in HAVING has two aggregates in a row"),
            "compare it outside: SELECT * FROM (SELECT k, sum(x) AS a, count(*) AS b … GROUP BY k) WHERE (a, b) IN (SELECT …)",
        ));
    }
    let name = |place: usize| format!("tidemill_{}", place + 1);
    let names: Vec<String> = (0..values.len()).map(name).collect();
    let test = if *negated { ") IS NOT FALSE" } else { ")" };
    let others = (0..values.len()).filter(|place| *place != subject);
    let others = others.map(|place| format!("(({}) = {}{test}", values[place], names[place]));
    let not = if *negated { "NOT " } else { "" };
    let text = format!(
        "({}) {not}IN (SELECT {} FROM ({subquery}) AS tidemill_rows ({}) WHERE {})",
        values[subject],
        names[subject],
        names.join(", "),
        others.collect::<Vec<_>>().join(" AND ")
    );
    Ok(written(&text).ok())
}

/// Refuses what [`groups_among`] has not written: rows with aggregates among those of subqueries, below OR, NOT and CASE.
fn refuse_groups_within(condition: &Expr) -> Result<()> {
    struct Groups(Option<Error>);

    impl Visitor for Groups {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::InSubquery { expr: row, .. } = expr
                && row_values(row).is_some_and(|values| values.into_iter().any(calls_function))
            {
                self.0 = Some(Error::usage_with_hint(
                    format!("`{expr}` in HAVING stands within another condition than AND"),
                    "compare it outside: SELECT * FROM (SELECT k, count(*) AS n … GROUP BY k) WHERE … OR (k, n) IN (SELECT …)",
                ));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
    }

    let mut groups = Groups(None);
    walk_expr(condition, &mut groups);
    groups.0.map_or(Ok(()), Err)
}

/// Returns whether a function is called in an expression.
fn calls_function(expr: &Expr) -> bool {
    struct Called;

    impl Visitor for Called {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut Called)
}

/// Returns whether [`Clauses`] rewrites a comparison of rows in an expression.
fn compares_rows(expr: &Expr) -> bool {
    struct Rows;

    impl Visitor for Rows {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match rows_among(expr, false).or_else(|| rows_compared(expr)) {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut Rows)
}

/// Gives items of a select list that will be written otherwise the names of what they are written as now. The second
/// of a name is told apart by a number, as DuckDB does.
fn name_items(select: &mut Select, is_changed: fn(&Expr) -> bool) {
    let mut names = BTreeSet::new();
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let written = match &*expr {
            Expr::Identifier(name) => names::folded(name),
            Expr::CompoundIdentifier(_) => continue,
            // As many columns as a struct has fields.
            other if is_unnest(other) => continue,
            // As many as it stands for, each of which is told apart by its own.
            other if stands_for_columns(other) => {
                if is_changed(other) {
                    let alias = Ident::with_quote('"', names::as_written(other));
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
                continue;
            }
            other => names::as_written(other),
        };
        let is_twice = names.contains(&written);
        if !is_twice && !is_changed(expr) {
            names.insert(written);
            continue;
        }
        let numbered = (1..).map(|number| format!("{written}_{number}"));
        let mut free = std::iter::once(written.clone()).chain(numbered);
        let Some(name) = free.find(|name| !names.contains(name)) else { continue };
        names.insert(name.clone());
        let alias = Ident::with_quote('"', name);
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
}

/// The second walk: expressions, and the names that columns keep.
#[derive(Default)]
struct Translation {
    refused: Option<Error>,
}

impl VisitorMut for Translation {
    type Break = ();

    /// Names what will be written otherwise as it is written now.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        name_items(select, is_changed);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let made = match &*expr {
            Expr::Function(call) => calls::translated(call),
            other => copies::refuse_compared_lists(other).map(|()| operators::translated(other)),
        };
        let made = made.and_then(|made| match made {
            Some(made) => copies::refuse_copies(expr, &made).map(|()| Some(made)),
            None => Ok(None),
        });
        match made {
            Ok(Some(made)) => *expr = made,
            Ok(None) => {}
            Err(error) => {
                self.refused = Some(error);
                return ControlFlow::Break(());
            }
        }
        if let Some(sorted) = distinct_lists::translated(expr) {
            *expr = sorted;
        }
        ControlFlow::Continue(())
    }
}

/// Whether it makes rows of a list, or columns of a struct's fields.
fn is_unnest(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("unnest"))
}

/// Whether an expression is written otherwise by [`Translation`]. One that makes rows, or columns of a
/// struct's fields, takes no name.
fn is_changed(expr: &Expr) -> bool {
    struct Changed(bool);

    impl VisitorMut for Changed {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.0 |= match expr {
                Expr::Function(call) => {
                    matches!(calls::translated(call), Ok(Some(_)))
                        || distinct_lists::translated(expr).is_some()
                }
                // Called as the quotient is, unless it has a name.
                Expr::BinaryOp { op: BinaryOperator::DuckIntegerDivide, .. } => true,
                other => operators::translated(other).is_some(),
            };
            ControlFlow::Continue(())
        }
    }

    let mut changed = Changed(false);
    walk_expr_mut(&mut expr.clone(), &mut changed);
    changed.0
}
