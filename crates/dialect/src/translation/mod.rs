//! Translation of the SQL of DuckDB, PostgreSQL, Spark and ClickHouse into the SQL that Tidemill plans.
//!
//! This module executes nothing. It rewrites a statement before the statement is checked and planned. Another
//! database's `countIf(c)`, for example, becomes the `count(*) FILTER (WHERE c)` that merges, spills and is
//! documented. Unknown functions and clauses stay as they are and are refused by their name
//! ([`syntax`](crate::syntax), [`unknown_functions`](crate::unknown_functions)).
//!
//! - [`token_rewrites`], [`clause_token_rewrites`]: token sequences that the parser does not accept.
//! - [`comprehensions`]: `[x * 2 FOR x IN list IF x > 1]`.
//! - [`array_subqueries`]: `ARRAY(SELECT …)`.
//! - [`function_calls`], [`operators`]: functions and operators.
//! - [`query_clauses`]: `FETCH FIRST`, `WITH ROLLUP`, `LIMIT 3 BY k`.
//! - [`distinct_lists`]: sorted lists of distinct values.
//! - [`implicit_laterals`]: subqueries in FROM that refer to the sources before them.
//! - [`outer_fields`]: struct fields of the outer query's rows inside a subquery.
//! - [`indexed_lambdas`]: lambdas that take an item and its position.
//! - [`lateral_lists`]: `unnest` and similar list functions in FROM.
//! - [`outer_using`]: `FULL JOIN … USING`.
//! - [`row_comparisons`]: `(a, b) < ANY (SELECT …)`.
//! - [`samples`]: `TABLESAMPLE`, `USING SAMPLE`.
//! - [`set_operations`]: `INTERSECT ALL`, `EXCEPT ALL`, `MINUS`.
//! - [`values_subqueries`]: `VALUES` with subqueries.
//! - [`table_functions`]: `read_csv('a.csv')`, `range(10)`, lists of files.
//! - [`pivots`], [`pivot_statements`]: `PIVOT` and `UNPIVOT`.
//! - [`column_expansion`]: rewrites that need the columns of the sources, such as `COLUMNS('^d')` and
//!   select-list aliases in WHERE.
//!
//! A result column keeps the name that the user wrote, not the text of the translation.

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

use crate::column_names;
use crate::syntax::TidemillDialect;

mod array_subqueries;
mod clause_token_rewrites;
mod column_expansion;
pub(crate) mod comprehensions;
mod distinct_lists;
pub mod function_calls;
mod hidden_columns;
mod implicit_laterals;
mod indexed_lambdas;
mod lateral_lists;
mod operators;
pub mod outer_fields;
mod outer_using;
mod pivot_statements;
mod pivots;
mod query_clauses;
pub(crate) mod random_value_checks;
mod row_comparisons;
mod samples;
mod scalar_subqueries;
mod set_operations;
mod table_functions;
mod token_rewrites;
mod type_names;
mod values_subqueries;

pub(crate) use column_expansion::contains_columns_call;
pub use column_expansion::{expand_columns, needs_column_expansion};
pub use hidden_columns::{
    SourceColumns, SourceColumnsByName, UsedHiddenColumns, used_hidden_columns,
};
pub use implicit_laterals::add_implicit_laterals;
pub use lateral_lists::JSON_ENTRY_COLUMN;
pub use pivot_statements::{insert_pivot_values, pivot_values_query};
pub use samples::{PercentSample, RowCountSample, explain_sample_of_non_records};
pub use table_functions::{SERIES_FUNCTIONS, TableFunctionSource, is_series_function};

/// Parses a text into its statements.
///
/// # Errors
/// The parser's errors.
pub(crate) fn parse_statements(sql: &str) -> std::result::Result<Vec<Statement>, ParserError> {
    let tokens = comprehensions::rewrite_comprehensions(tokenize_sql(sql)?);
    let tokens = token_rewrites::rewrite_tokens(clause_token_rewrites::rewrite_clause_tokens(
        pivot_statements::rewrite_pivot_statements(tokens),
    ));
    let mut parser = Parser::new(&TidemillDialect).with_tokens_with_locations(tokens);
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

fn tokenize_sql(sql: &str) -> std::result::Result<Vec<TokenWithSpan>, TokenizerError> {
    let mut tokens = Tokenizer::new(&TidemillDialect, sql).tokenize_with_location()?;
    // `user` is a column of many logs; it must not parse as the function that returns the current user.
    for token in &mut tokens {
        if let Token::Word(word) = &mut token.token
            && word.keyword == Keyword::USER
        {
            word.keyword = Keyword::NoKeyword;
        }
    }
    Ok(tokens)
}

/// Parses an expression from SQL text.
fn parse_expr(text: &str) -> Result<Expr> {
    let tokens = tokenize_sql(text).map_err(ParserError::from);
    let parsed = tokens.and_then(|tokens| {
        Parser::new(&TidemillDialect).with_tokens_with_locations(tokens).parse_expr()
    });
    parsed.map_err(|error| Error::Internal(format!("{text}: {error}")))
}

/// Parses a query from SQL text.
fn parse_query(text: &str) -> Result<Box<Query>> {
    let tokens = tokenize_sql(text).map_err(ParserError::from);
    let query = tokens.and_then(|tokens| {
        Parser::new(&TidemillDialect).with_tokens_with_locations(tokens).parse_query()
    });
    query.map_err(|error| Error::Internal(format!("{text}: {error}")))
}

/// Sources that a statement calls like functions, by the table names that stand for them in the statement.
pub type TableFunctionSources = HashMap<String, TableFunctionSource>;

/// Translates a statement into Tidemill's SQL and returns the sources that it calls.
///
/// # Errors
/// [`Error::Usage`] for a clause of a function call that the function does not take.
pub(crate) fn translate_statement(statement: &mut Statement) -> Result<TableFunctionSources> {
    let mentioned = lateral_lists::MentionedNames::from_statement(statement);
    let mut clauses = ClauseTranslation {
        function_sources: TableFunctionSources::new(),
        mentioned_names: mentioned,
        named_subquery_count: 0,
        error: None,
    };
    walk_statement_mut(statement, &mut clauses);
    let mut translation = ExpressionTranslation::default();
    walk_statement_mut(statement, &mut translation);
    match clauses.error.or(translation.error) {
        Some(error) => Err(error),
        None => Ok(clauses.function_sources),
    }
}

/// The first pass, which translates clauses and tables.
struct ClauseTranslation {
    function_sources: TableFunctionSources,
    mentioned_names: lateral_lists::MentionedNames,
    /// Number of subqueries in FROM that have been given names.
    named_subquery_count: usize,
    error: Option<Error>,
}

impl ClauseTranslation {
    fn break_on_error(&mut self, done: Result<()>) -> ControlFlow<()> {
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl VisitorMut for ClauseTranslation {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        query_clauses::translate_query_clauses(query);
        lateral_lists::translate_lateral_order_by(query);
        let done = values_subqueries::translate_values(&mut query.body)
            .and_then(|()| set_operations::translate_set_operations(&mut query.body));
        self.break_on_error(done)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        query_clauses::translate_number_conditions(expr);
        if let Some(translated) = translate_row_in_subquery(expr, false)
            .or_else(|| translate_row_equality(expr))
            .or_else(|| row_comparisons::translate_row_subquery_comparison(expr))
            .or_else(|| array_subqueries::translate_array_subquery(expr))
        {
            let done = random_value_checks::refuse_random_rows(expr)
                .and_then(|()| random_value_checks::refuse_random_copies(expr, &translated));
            self.break_on_error(done)?;
            *expr = translated;
        }
        if let Expr::Subquery(query) = expr {
            scalar_subqueries::aggregate_first_row(query);
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
            name_select_items(select, compares_rows);
        }
        let rows = (&mut select.selection, ConditionScope::Records);
        let groups = (&mut select.having, ConditionScope::Groups);
        for (condition, rows) in [rows, groups] {
            if let Some(condition) = condition {
                let done = translate_row_conditions(condition, rows);
                self.break_on_error(done)?;
            }
        }
        if let Some(condition) = &select.having {
            self.break_on_error(refuse_nested_group_comparisons(condition))?;
        }
        table_functions::name_series_columns(select);
        table_functions::name_from_subqueries(select, &mut self.named_subquery_count);
        set_operations::name_scalar_subqueries(select);
        outer_using::rewrite_outer_using(select);
        let done = samples::prepare_sample_aggregates(select)
            .and_then(|()| lateral_lists::translate_lateral_lists(select, &self.mentioned_names))
            .and_then(|()| query_clauses::translate_select_clauses(select));
        self.break_on_error(done)
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let done = pivots::translate_pivot(table)
            .and_then(|()| table_functions::translate_table(table, &mut self.function_sources));
        self.break_on_error(done)
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

/// Translates `(a, b) = (-1, x + 1)` and `(a, b) IN ((-1, 2), …)` into comparisons value by value: the
/// planner takes only names and constants in a row.
fn translate_row_equality(expr: &Expr) -> Option<Expr> {
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
    // A balanced tree: a chain would be as deep as the list is long.
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

/// Returns the values of a row: `(a, b)`, or `row(a, b)`.
fn row_values(expr: &Expr) -> Option<Vec<&Expr>> {
    match expr {
        Expr::Tuple(values) => Some(values.iter().collect()),
        Expr::Nested(inner) => row_values(inner),
        Expr::Function(call)
            if function_calls::unquoted_call_name(call).as_deref() == Some("row") =>
        {
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

/// Translates `(a, b) IN (SELECT x, y …)` into EXISTS: as a condition, which treats null as false, or as a
/// value.
fn translate_row_in_subquery(expr: &Expr, is_condition: bool) -> Option<Expr> {
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
            // Costly, so meant for few rows and values: a comparison that may be unknown cannot be a join
            // key.
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
    parse_expr(&text).ok()
}

/// The scope of a condition: the records of WHERE, or the groups of HAVING.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConditionScope {
    Records,
    Groups,
}

/// Translates the `(a, b) IN (SELECT …)` comparisons that are conditions of their own or joined by AND.
///
/// # Errors
/// [`Error::Usage`] if the translation would copy a random value, and for two aggregates in a row of HAVING.
fn translate_row_conditions(condition: &mut Expr, rows: ConditionScope) -> Result<()> {
    match condition {
        Expr::Nested(inner) => translate_row_conditions(inner, rows),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            translate_row_conditions(left, rows)?;
            translate_row_conditions(right, rows)
        }
        condition => {
            let translated = match rows {
                ConditionScope::Records => translate_row_in_subquery(condition, true),
                ConditionScope::Groups => translate_group_in_subquery(condition)?,
            };
            if let Some(translated) = translated {
                random_value_checks::refuse_random_rows(condition)?;
                random_value_checks::refuse_random_copies(condition, &translated)?;
                *condition = translated;
            }
            Ok(())
        }
    }
}

/// Translates `(k, count(*)) IN (SELECT x, n …)` of HAVING into `count(*) IN (SELECT n … WHERE k = x)`, since
/// an aggregate cannot stand in the subquery. With NOT IN, an unknown comparison of `k` counts as equal.
///
/// # Errors
/// [`Error::Usage`] for two values that call functions.
fn translate_group_in_subquery(condition: &Expr) -> Result<Option<Expr>> {
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
    Ok(parse_expr(&text).ok())
}

/// Refuses comparisons that [`translate_group_in_subquery`] does not translate: rows with aggregates in
/// `IN (SELECT …)` below OR, NOT and CASE.
fn refuse_nested_group_comparisons(condition: &Expr) -> Result<()> {
    struct NestedGroupComparisons(Option<Error>);

    impl Visitor for NestedGroupComparisons {
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

    let mut groups = NestedGroupComparisons(None);
    walk_expr(condition, &mut groups);
    groups.0.map_or(Ok(()), Err)
}

/// Returns true if an expression calls a function.
fn calls_function(expr: &Expr) -> bool {
    struct FunctionCallFinder;

    impl Visitor for FunctionCallFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut FunctionCallFinder)
}

/// Returns true if [`ClauseTranslation`] rewrites a comparison of rows in an expression.
fn compares_rows(expr: &Expr) -> bool {
    struct RowComparisonFinder;

    impl Visitor for RowComparisonFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match translate_row_in_subquery(expr, false).or_else(|| translate_row_equality(expr)) {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut RowComparisonFinder)
}

/// Names the select-list items that are about to be translated after their original text. A duplicate name
/// gets a numeric suffix, as in DuckDB.
fn name_select_items(select: &mut Select, is_changed: fn(&Expr) -> bool) {
    let mut names = BTreeSet::new();
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let written = match &*expr {
            Expr::Identifier(name) => column_names::normalize_ident(name),
            Expr::CompoundIdentifier(_) => continue,
            // `unnest` of a struct yields a column for each field.
            other if is_unnest(other) => continue,
            // COLUMNS stands for several columns, each of which gets a distinct name.
            other if contains_columns_call(other) => {
                if is_changed(other) {
                    let alias = Ident::with_quote('"', column_names::expr_display_text(other));
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
                continue;
            }
            other => column_names::expr_display_text(other),
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

/// The second pass, which translates expressions and keeps the names of columns.
#[derive(Default)]
struct ExpressionTranslation {
    error: Option<Error>,
}

impl VisitorMut for ExpressionTranslation {
    type Break = ();

    /// Names the items that the translation will change after their original text.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        name_select_items(select, is_translated);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let made = match &*expr {
            Expr::Function(call) => function_calls::translate_call(call),
            other => random_value_checks::refuse_random_list_comparison(other)
                .map(|()| operators::translate_operator(other)),
        };
        let made = made.and_then(|made| match made {
            Some(made) => {
                random_value_checks::refuse_random_copies(expr, &made).map(|()| Some(made))
            }
            None => Ok(None),
        });
        match made {
            Ok(Some(made)) => *expr = made,
            Ok(None) => {}
            Err(error) => {
                self.error = Some(error);
                return ControlFlow::Break(());
            }
        }
        if let Some(sorted) = distinct_lists::sort_distinct_list(expr) {
            *expr = sorted;
        }
        ControlFlow::Continue(())
    }
}

/// Returns true if an expression is `unnest`, which makes rows of a list or columns of a struct's fields.
fn is_unnest(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("unnest"))
}

/// Returns true if [`ExpressionTranslation`] changes an expression. An expression that makes rows, or columns
/// of a struct's fields, takes no name.
fn is_translated(expr: &Expr) -> bool {
    struct TranslatedExprFinder(bool);

    impl VisitorMut for TranslatedExprFinder {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.0 |= match expr {
                Expr::Function(call) => {
                    matches!(function_calls::translate_call(call), Ok(Some(_)))
                        || distinct_lists::sort_distinct_list(expr).is_some()
                }
                // Without a name of its own it would be named like a plain quotient.
                Expr::BinaryOp { op: BinaryOperator::DuckIntegerDivide, .. } => true,
                other => operators::translate_operator(other).is_some(),
            };
            ControlFlow::Continue(())
        }
    }

    let mut changed = TranslatedExprFinder(false);
    walk_expr_mut(&mut expr.clone(), &mut changed);
    changed.0
}
