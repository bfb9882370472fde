//! Samples of a source: `TABLESAMPLE BERNOULLI (10) REPEATABLE (7)`, `USING SAMPLE 10%`, `SAMPLE 0.1`.
//!
//! All are rewritten into the first form before they are parsed. A sample by rows (`BERNOULLI`, the default)
//! decides on each row by a number that depends on its position and the seed; a sample by blocks (`SYSTEM`)
//! decides on each split. A number of rows (`USING SAMPLE 50 ROWS`, `reservoir(50)`) is drawn from all rows.
//! The default seed is 42: the same statement over the same files takes the same rows with any number of
//! threads and any memory budget.

use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, Ident, Query, Select, SelectItem, SetExpr, TableFactor,
    TableSample, TableSampleKind, TableSampleMethod, TableSampleUnit, TableWithJoins, Value,
    ValueWithSpan, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};
use tidemill_base::error::{Error, Result};
use tidemill_planning::walk_expr;

use crate::syntax::TidemillDialect;
use crate::translation::token_rewrites::{is_unquoted_word, next_token};

/// The default seed.
const DEFAULT_SEED: u64 = 42;

/// A sample of a percentage of a source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PercentSample {
    /// Percentage of rows or splits.
    pub percent: f64,
    /// True if the sample takes whole splits instead of rows.
    pub by_split: bool,
    /// The seed, which chooses among samples of this size.
    pub seed: u64,
}

/// A number of rows of a source, drawn without replacement; all rows if the source has fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCountSample {
    /// Number of rows.
    pub rows: u64,
    /// The seed, which chooses among samples of this size.
    pub seed: u64,
}

impl std::fmt::Display for RowCountSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RESERVOIR ({} ROWS) REPEATABLE ({})", self.rows, self.seed)
    }
}

/// The sample that a `TABLESAMPLE` clause specifies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SampleClause {
    /// A percentage of the rows or of the splits.
    Percent(PercentSample),
    /// A number of rows.
    Rows(RowCountSample),
}

impl std::fmt::Display for SampleClause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SampleClause::Percent(sample) => write!(f, "{sample}"),
            SampleClause::Rows(sample) => write!(f, "{sample}"),
        }
    }
}

impl Eq for PercentSample {}

impl Hash for PercentSample {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.percent.to_bits().hash(state);
        self.by_split.hash(state);
        self.seed.hash(state);
    }
}

impl std::fmt::Display for PercentSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let method = if self.by_split { "SYSTEM" } else { "BERNOULLI" };
        write!(f, "{method} ({}) REPEATABLE ({})", self.percent, self.seed)
    }
}

/// The aggregates that choose rows by the file and the record number of each.
const SAMPLE_AGGREGATES: [&str; 2] = ["sample", "weighted_sample"];

/// The columns that identify a record; the rewrites of these aggregates use them.
const RECORD_ID_COLUMNS: [&str; 2] = ["file_row_number", "filename"];

/// Makes the columns that identify a record available to sample aggregates, through subqueries with one row
/// for each record (a job's map is one). Refuses them over rows that are no records of one source: after a
/// join a record has many rows.
///
/// # Errors
/// [`Error::Usage`] for such a call.
pub(super) fn prepare_sample_aggregates(select: &mut Select) -> Result<()> {
    #[derive(Default)]
    struct SampleCallFinder {
        found: Option<String>,
        /// Number of enclosing subqueries: calls within a subquery belong to that subquery.
        query_depth: usize,
    }

    impl Visitor for SampleCallFinder {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.query_depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.query_depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Function(Function { name, .. }) = expr
                && self.query_depth == 0
            {
                let name = name.to_string().to_lowercase();
                self.found =
                    self.found.take().or(SAMPLE_AGGREGATES.contains(&&*name).then_some(name));
            }
            ControlFlow::Continue(())
        }
    }

    if let [from] = select.from.as_slice()
        && from.joins.is_empty()
        && matches!(from.relation, TableFactor::Table { .. })
    {
        return Ok(());
    }
    let mut calls = SampleCallFinder::default();
    let selected = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    for expr in selected.chain(&select.having) {
        walk_expr(expr, &mut calls);
    }
    let Some(name) = calls.found else { return Ok(()) };
    match select.from.as_mut_slice() {
        [from] if from.joins.is_empty() && yields_single_records(&from.relation) => {
            add_record_id_columns(&mut from.relation);
            Ok(())
        }
        _ => Err(sample_records_error(&name)),
    }
}

/// Returns true if a table's rows are the records of a source, each at most once: a table, or a subquery that
/// neither combines, splits nor orders rows.
fn yields_single_records(table: &TableFactor) -> bool {
    let TableFactor::Derived { lateral: false, subquery, alias, .. } = table else {
        return matches!(table, TableFactor::Table { .. });
    };
    let names_columns = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
    let is_whole = subquery.with.is_none()
        && subquery.order_by.is_none()
        && subquery.limit_clause.is_none()
        && subquery.fetch.is_none();
    let SetExpr::Select(select) = subquery.body.as_ref() else { return false };
    let has_keys = match &select.group_by {
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let is_plain = select.distinct.is_none()
        && select.top.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && select.lateral_views.is_empty();
    let is_of_records = match select.from.as_slice() {
        [from] => from.joins.is_empty() && yields_single_records(&from.relation),
        _ => false,
    };
    let mut more = UnnestCallFinder(false);
    for item in &select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            walk_expr(expr, &mut more);
        }
    }
    !names_columns && is_whole && !has_keys && is_plain && is_of_records && !more.0
}

/// Functions that make several rows of one.
const UNNEST_FUNCTIONS: [&str; 7] =
    ["unnest", "explode", "explode_outer", "posexplode", "posexplode_outer", "arrayjoin", "inline"];

/// A visitor that finds calls of [`UNNEST_FUNCTIONS`].
struct UnnestCallFinder(bool);

impl Visitor for UnnestCallFinder {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(Function { name, .. }) = expr {
            self.0 |= UNNEST_FUNCTIONS.contains(&&*name.to_string().to_lowercase());
        }
        ControlFlow::Continue(())
    }
}

/// Adds the columns that identify a record to such subqueries, unless they have columns of these names.
fn add_record_id_columns(table: &mut TableFactor) {
    let TableFactor::Derived { subquery, .. } = table else { return };
    let SetExpr::Select(select) = subquery.body.as_mut() else { return };
    if let [from] = select.from.as_mut_slice() {
        add_record_id_columns(&mut from.relation);
    }
    // A source's own `*` leaves out the hidden columns that identify a record.
    let is_of_subquery = matches!(
        select.from.as_slice(),
        [TableWithJoins { relation: TableFactor::Derived { .. }, .. }]
    );
    for name in RECORD_ID_COLUMNS {
        let is_given = select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => {
                ident.value.eq_ignore_ascii_case(name)
            }
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => {
                path.last().is_some_and(|ident| ident.value.eq_ignore_ascii_case(name))
            }
            SelectItem::ExprWithAlias { alias, .. } => alias.value.eq_ignore_ascii_case(name),
            SelectItem::Wildcard(but) | SelectItem::QualifiedWildcard(_, but) => {
                is_of_subquery && !but.to_string().to_lowercase().contains(name)
            }
            _ => false,
        });
        if !is_given {
            let column = Expr::Identifier(Ident::new(name));
            select.projection.push(SelectItem::UnnamedExpr(column));
        }
    }
}

/// Returns the error for a sample of rows that are no records.
fn sample_records_error(name: &str) -> Error {
    Error::usage_with_hint(
        format!("`{name}` takes records of one source, as they are read"),
        "after a join, unnest, UNION, GROUP BY or LIMIT nothing tells which record a row is: sample within the subquery, and join \
         what it gives",
    )
}

/// Replaces the error for a missing `file_row_number` that only a sample aggregate uses, for example over a
/// table of WITH.
pub fn explain_sample_of_non_records(error: Error, sql: &str) -> Error {
    let of_call = |message: &str| message.contains("`file_row_number`");
    let sql = sql.to_lowercase();
    match &error {
        Error::Usage { message, .. } if of_call(message) && !sql.contains("file_row_number") => {
            SAMPLE_AGGREGATES
                .into_iter()
                .rev()
                .find(|name| sql.contains(name))
                .map_or(error, sample_records_error)
        }
        _ => error,
    }
}

/// The parts of a sample clause, read from tokens.
#[derive(Default)]
struct SampleClauseTokens {
    method: Option<String>,
    quantity: Option<String>,
    unit: Option<&'static str>,
    seed: Option<String>,
}

/// Rewrites all samples as `TABLESAMPLE BERNOULLI (10 PERCENT) REPEATABLE (7)` behind the sampled table.
pub(super) fn normalize_samples(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_any = |token: &TokenWithSpan| {
        is_unquoted_word(Some(&token.token), "TABLESAMPLE")
            || is_unquoted_word(Some(&token.token), "SAMPLE")
    };
    if !tokens.iter().any(is_any) {
        return tokens;
    }
    let mut made: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 16);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let word = Some(&token.token);
        let next = next_token_index(&tokens, at + 1);
        let sample_follows =
            next.is_some_and(|next| is_unquoted_word(Some(&tokens[next].token), "SAMPLE"));
        let (start, of_all, is_share) = if is_unquoted_word(word, "TABLESAMPLE") {
            (Some(at + 1), false, false)
        } else if is_unquoted_word(word, "USING") && sample_follows {
            (next.map(|next| next + 1), true, false)
        } else if is_unquoted_word(word, "SAMPLE")
            && next.is_some_and(|next| matches!(tokens[next].token, Token::Number(..)))
        {
            (Some(at + 1), false, true)
        } else {
            (None, false, false)
        };
        let read = start.and_then(|start| parse_clause_tokens(&tokens, start));
        let Some((clause, end)) = read else {
            made.push(token.clone());
            at += 1;
            continue;
        };
        let text = clause.to_sql(is_share);
        let Ok(words) = Tokenizer::new(&TidemillDialect, &text).tokenize() else {
            made.push(token.clone());
            at += 1;
            continue;
        };
        let words = words.into_iter().map(|word| TokenWithSpan { token: word, span: token.span });
        match of_all.then(|| find_from_end(&made)) {
            None => made.extend(words),
            Some(Some(place)) => _ = made.splice(place..place, words),
            // With several tables none is meant: the parser reports it.
            Some(None) => made.push(token.clone()),
        }
        at = if of_all && find_from_end(&made).is_none() { at + 1 } else { end };
    }
    made
}

impl SampleClauseTokens {
    fn to_sql(&self, is_share: bool) -> String {
        let method = match self.method.as_deref() {
            Some("system" | "block") => "SYSTEM",
            _ => "BERNOULLI",
        };
        let quantity = self.quantity.clone().unwrap_or_default();
        let share = quantity.parse::<f64>().ok().filter(|share| is_share && *share <= 1.0);
        let (quantity, unit) = match share {
            Some(share) => (format!("{}", share * 100.0), "PERCENT"),
            None if is_share => (quantity, "ROWS"),
            None => (quantity, self.unit.unwrap_or("PERCENT")),
        };
        let seed = match &self.seed {
            Some(seed) => format!(" REPEATABLE ({seed})"),
            None => String::new(),
        };
        format!(" TABLESAMPLE {method} ({quantity} {unit}){seed} ")
    }
}

/// Returns the index of the next token that is no whitespace.
fn next_token_index(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    next_token(tokens, from).map(|(at, _)| at)
}

/// Returns the clause that begins at `from`, and the index at which it ends.
fn parse_clause_tokens(
    tokens: &[TokenWithSpan],
    from: usize,
) -> Option<(SampleClauseTokens, usize)> {
    let mut found = SampleClauseTokens::default();
    let mut at = next_token_index(tokens, from)?;
    if let Token::Word(word) = &tokens[at].token {
        found.method = Some(sample_method(&word.value)?);
        at = next_token_index(tokens, at + 1)?;
    }
    let in_brackets = tokens[at].token == Token::LParen;
    if in_brackets {
        at = next_token_index(tokens, at + 1)?;
    }
    let Token::Number(number, _) = &tokens[at].token else { return None };
    found.quantity = Some(number.clone());
    let mut end = at + 1;
    if let Some(next) = next_token_index(tokens, end) {
        let word = Some(&tokens[next].token);
        let is_percent = word == Some(&Token::Mod) || is_unquoted_word(word, "PERCENT");
        if is_percent || is_unquoted_word(word, "ROWS") || is_unquoted_word(word, "ROW") {
            found.unit = Some(if is_percent { "PERCENT" } else { "ROWS" });
            end = next + 1;
        } else if !in_brackets && found.method.is_none() {
            // A number without a unit counts rows.
            found.unit = Some("ROWS");
        }
    } else if !in_brackets && found.method.is_none() {
        found.unit = Some("ROWS");
    }
    if found.unit.is_none() && found.method.as_deref() == Some("reservoir") {
        found.unit = Some("ROWS");
    }
    if in_brackets {
        let close = next_token_index(tokens, end)?;
        if tokens[close].token != Token::RParen {
            return None;
        }
        end = close + 1;
    }
    // `10% (bernoulli, 7)`.
    if let Some((own, seed, close)) = parse_trailing_method(tokens, end) {
        found.method = Some(own);
        found.seed = seed.or(found.seed);
        end = close;
    }
    if let Some(next) = next_token_index(tokens, end)
        && (is_unquoted_word(Some(&tokens[next].token), "REPEATABLE")
            || is_unquoted_word(Some(&tokens[next].token), "SEED"))
        && let Some(open) = next_token_index(tokens, next + 1)
        && let Some(number) = next_token_index(tokens, open + 1)
        && let Some(close) = next_token_index(tokens, number + 1)
        && let Token::Number(seed, _) = &tokens[number].token
        && (&tokens[open].token, &tokens[close].token) == (&Token::LParen, &Token::RParen)
    {
        found.seed = Some(seed.clone());
        end = close + 1;
    }
    Some((found, end))
}

/// Returns the parenthesized method that follows a number, its seed, and the index at which the parentheses
/// end.
fn parse_trailing_method(
    tokens: &[TokenWithSpan],
    from: usize,
) -> Option<(String, Option<String>, usize)> {
    let open = next_token_index(tokens, from)?;
    let name = next_token_index(tokens, open + 1)?;
    let (Token::LParen, Token::Word(word)) = (&tokens[open].token, &tokens[name].token) else {
        return None;
    };
    let method = sample_method(&word.value)?;
    let next = next_token_index(tokens, name + 1)?;
    match &tokens[next].token {
        Token::RParen => Some((method, None, next + 1)),
        Token::Comma => {
            let number = next_token_index(tokens, next + 1)?;
            let close = next_token_index(tokens, number + 1)?;
            match (&tokens[number].token, &tokens[close].token) {
                (Token::Number(seed, _), Token::RParen) => {
                    Some((method, Some(seed.clone()), close + 1))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn sample_method(word: &str) -> Option<String> {
    let word = word.to_lowercase();
    ["bernoulli", "row", "reservoir", "system", "block"].contains(&word.as_str()).then_some(word)
}

/// Returns the index at which the last FROM ends, with the alias of its table; `None` for several tables.
fn find_from_end(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0i64;
    let from = tokens.iter().rposition(|token| {
        match &token.token {
            Token::RParen => depth += 1,
            Token::LParen => depth -= 1,
            _ => {}
        }
        depth == 0 && is_unquoted_word(Some(&token.token), "FROM")
    })?;
    const FROM_TERMINATORS: [&str; 9] =
        ["WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "SELECT", "UNION"];
    let mut depth = 0i64;
    for (at, token) in tokens.iter().enumerate().skip(from + 1) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::Comma if depth == 0 => return None,
            word if depth == 0 && is_unquoted_word(Some(word), "JOIN") => return None,
            word if depth == 0
                && FROM_TERMINATORS.iter().any(|end| is_unquoted_word(Some(word), end)) =>
            {
                return Some(at);
            }
            _ => {}
        }
    }
    let space = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(Whitespace::Space));
    Some(tokens.iter().rposition(|token| !space(token)).map_or(tokens.len(), |at| at + 1))
}

/// Parses a sample clause.
///
/// # Errors
/// [`Error::Usage`] for an invalid percentage or number of rows.
pub(super) fn parse_table_sample(kind: &TableSampleKind) -> Result<SampleClause> {
    let (TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) =
        kind;
    let TableSample { modifier: _, name, quantity, seed, bucket, offset } = sample.as_ref();
    let form = "TABLESAMPLE (10 PERCENT), (50 ROWS), BERNOULLI by rows, SYSTEM by splits, REPEATABLE (seed)";
    let refused =
        |what: &str| Error::usage_with_hint(format!("a sample {what}"), format!("it is {form}"));
    if bucket.is_some() {
        return Err(refused("by buckets is not supported"));
    }
    if offset.is_some() {
        return Err(refused("with an offset is not supported"));
    }
    let Some(quantity) = quantity else { return Err(refused("has a size")) };
    let seed = match seed {
        None => DEFAULT_SEED,
        Some(seed) => match seed.value.value.to_string().parse() {
            Ok(seed) => seed,
            Err(_) => {
                let seed = &seed.value.value;
                return Err(refused(&format!("has a whole number for a seed, and not `{seed}`")));
            }
        },
    };
    let by_split = matches!(name, Some(TableSampleMethod::System | TableSampleMethod::Block));
    if quantity.unit == Some(TableSampleUnit::Rows) {
        let Some(rows) =
            literal_number_text(&quantity.value).and_then(|number| number.parse().ok())
        else {
            return Err(refused(&format!("of `{}` rows is none", quantity.value)));
        };
        if by_split {
            return Err(Error::usage_with_hint(
                "a SYSTEM sample takes splits, whose rows nobody has counted",
                format!(
                    "TABLESAMPLE reservoir({rows} ROWS) takes rows, SYSTEM (10 PERCENT) splits"
                ),
            ));
        }
        return Ok(SampleClause::Rows(RowCountSample { rows, seed }));
    }
    let percent = literal_number_text(&quantity.value).and_then(|number| number.parse().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    let Some(percent) = percent else {
        return Err(refused(&format!("of `{}` percent is none", quantity.value)));
    };
    Ok(SampleClause::Percent(PercentSample { percent, by_split, seed }))
}

/// Returns the digits of a number literal.
fn literal_number_text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), span: _ }) => {
            Some(number.to_string())
        }
        Expr::Nested(inner) => literal_number_text(inner),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation::tokenize_sql;

    #[test]
    fn samples_are_normalized_behind_their_table() {
        for (sql, expected) in [
            ("FROM t TABLESAMPLE 10%", "FROM t TABLESAMPLE BERNOULLI (10 PERCENT)"),
            ("FROM t TABLESAMPLE SYSTEM (5)", "FROM t TABLESAMPLE SYSTEM (5 PERCENT)"),
            (
                "FROM t TABLESAMPLE BERNOULLI(0.5) REPEATABLE (9) WHERE x",
                "FROM t TABLESAMPLE BERNOULLI (0.5 PERCENT) REPEATABLE (9) WHERE x",
            ),
            (
                "FROM t AS a WHERE x > 1 GROUP BY y USING SAMPLE 10 PERCENT (system, 3)",
                "FROM t AS a TABLESAMPLE SYSTEM (10 PERCENT) REPEATABLE (3) WHERE x > 1 GROUP BY y",
            ),
            (
                "SELECT count(*) FROM t USING SAMPLE reservoir(20%) REPEATABLE (100)",
                "SELECT count(*) FROM t TABLESAMPLE BERNOULLI (20 PERCENT) REPEATABLE (100)",
            ),
            ("FROM t TABLESAMPLE reservoir(4)", "FROM t TABLESAMPLE BERNOULLI (4 ROWS)"),
            ("FROM t USING SAMPLE 50", "FROM t TABLESAMPLE BERNOULLI (50 ROWS)"),
            ("FROM t SAMPLE 0.25 WHERE x", "FROM t TABLESAMPLE BERNOULLI (25 PERCENT) WHERE x"),
            ("SELECT sample FROM t", "SELECT sample FROM t"),
            ("FROM a JOIN b USING (sample)", "FROM a JOIN b USING (sample)"),
        ] {
            let made = normalize_samples(tokenize_sql(sql).unwrap());
            let text: String = made.iter().map(|token| token.token.to_string()).collect();
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&text), words(expected), "{sql}");
        }
    }
}
