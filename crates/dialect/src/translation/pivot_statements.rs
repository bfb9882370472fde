//! Translation of DuckDB's statements `PIVOT t ON kind USING sum(x) GROUP BY day` and
//! `UNPIVOT t ON a, b INTO NAME kind VALUE x` into the FROM clauses that other databases have
//! ([`pivots`](super::pivots)).
//!
//! A PIVOT that does not list the values that become columns is written `FOR kind IN (ANY)`. A query finds
//! the values before the statement itself is planned ([`pivot_values_query`]).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExprWithAlias, Ident, PivotValueSource, Statement, TableFactor, VisitorMut, With,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use tidemill_base::error::{Error, Result};
use tidemill_planning::walk_statement_mut;

use crate::translation::pivots::referenced_columns;
use crate::translation::token_rewrites::{
    find_query_end, is_unquoted_word, previous_token, replace_tokens,
};
use crate::translation::{parse_expr, parse_statements};

/// Maximum number of columns that a PIVOT may find.
const PIVOT_COLUMNS_MAX: usize = 1000;

/// Returns the tokens with PIVOT and UNPIVOT statements rewritten as SELECTs.
pub(super) fn rewrite_pivot_statements(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut at = 0;
    while at < tokens.len() {
        let token = Some(&tokens[at].token);
        let is_unpivot = is_unquoted_word(token, "UNPIVOT");
        if (is_unpivot || is_unquoted_word(token, "PIVOT"))
            && can_begin_statement(previous_token(&tokens, at))
        {
            let end = find_query_end(&tokens, at);
            let made = match is_unpivot {
                true => unpivot_select(&tokens[at + 1..end]),
                false => pivot_select(&tokens[at + 1..end]),
            };
            if let Some(text) = made {
                replace_tokens(&mut tokens, at, end, &text);
            }
        }
        at += 1;
    }
    tokens
}

/// Returns true if a statement, or a query in parentheses, may begin after a token.
fn can_begin_statement(before: Option<&Token>) -> bool {
    match before {
        None | Some(Token::LParen | Token::SemiColon) => true,
        word => {
            ["DESCRIBE", "SUMMARIZE", "EXPLAIN"].iter().any(|begin| is_unquoted_word(word, begin))
        }
    }
}

fn tokens_text(tokens: &[TokenWithSpan]) -> String {
    let text: String = tokens.iter().map(|token| token.token.to_string()).collect();
    text.trim().to_owned()
}

/// Splits tokens before the first of `words` that stands outside of parentheses.
fn split_before_word<'a>(
    tokens: &'a [TokenWithSpan],
    words: &[&str],
) -> (&'a [TokenWithSpan], &'a [TokenWithSpan]) {
    let mut depth = 0i64;
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            word if depth == 0
                && words.iter().any(|expected| is_unquoted_word(Some(word), expected)) =>
            {
                return tokens.split_at(at);
            }
            _ => {}
        }
    }
    (tokens, &[])
}

/// Splits a list into the texts of its items.
fn split_list_items(tokens: &[TokenWithSpan]) -> Vec<String> {
    let mut items = vec![Vec::new()];
    let mut depth = 0i64;
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            Token::Comma if depth == 0 => {
                items.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(item) = items.last_mut() {
            item.push(token.clone());
        }
    }
    items.iter().map(|item| tokens_text(item)).filter(|item| !item.is_empty()).collect()
}

fn pivot_select(tokens: &[TokenWithSpan]) -> Option<String> {
    let (source, rest) = split_before_word(tokens, &["ON"]);
    let (on, rest) = split_before_word(rest.get(1..)?, &["USING", "GROUP", "ORDER", "LIMIT"]);
    let (using, rest) = match rest.first() {
        Some(word) if is_unquoted_word(Some(&word.token), "USING") => {
            split_before_word(&rest[1..], &["GROUP", "ORDER", "LIMIT"])
        }
        _ => (&[] as &[TokenWithSpan], rest),
    };
    let (group, rest) = match rest.first() {
        Some(word) if is_unquoted_word(Some(&word.token), "GROUP") => {
            split_before_word(&rest[1..], &["ORDER", "LIMIT"])
        }
        _ => (&[] as &[TokenWithSpan], rest),
    };
    let (column, values) = split_before_word(on, &["IN"]);
    let (column, values) = (tokens_text(column), tokens_text(values.get(1..).unwrap_or_default()));
    let values = match values.strip_prefix('(').and_then(|values| values.strip_suffix(')')) {
        Some(values) => values.to_owned(),
        None if values.is_empty() => "ANY".into(),
        None => return None,
    };
    let calls =
        if using.is_empty() { vec!["count(*)".to_owned()] } else { split_list_items(using) };
    // GROUP is split off; the keys follow BY.
    let groups = match split_before_word(group, &["BY"]) {
        (_, []) => Vec::new(),
        (_, by) => split_list_items(&by[1..]),
    };
    let source = tokens_text(source);
    // A column that PIVOT both groups by and uses is selected twice; a final rename restores its name.
    let mut renamed = Vec::new();
    let rows = match groups.is_empty() {
        true => source,
        false => {
            let mut names: BTreeSet<Ident> = referenced_columns(&parse_expr(&column).ok()?);
            for call in &calls {
                let (call, _) = split_call_alias(call);
                names.extend(referenced_columns(&parse_expr(call).ok()?));
            }
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let keys = groups.iter().enumerate().map(|(place, group)| {
                if !names.iter().any(|name| name.eq_ignore_ascii_case(group)) {
                    return group.clone();
                }
                let key = format!("tidemill_key_{}", place + 1);
                renamed.push(format!("{key} AS {group}"));
                format!("{group} AS {key}")
            });
            let keys: Vec<String> = keys.collect();
            let columns: Vec<String> = keys.into_iter().chain(names).collect();
            format!("(SELECT {} FROM {source})", columns.join(", "))
        }
    };
    let all = match renamed.is_empty() {
        true => "*".to_owned(),
        false => format!("* RENAME ({})", renamed.join(", ")),
    };
    Some(format!(
        "SELECT {all} FROM {rows} PIVOT ({} FOR ({column}) IN ({values})) {}",
        calls.join(", "),
        tokens_text(rest)
    ))
}

/// Splits a call from its alias.
fn split_call_alias(call: &str) -> (&str, &str) {
    let lower = call.to_lowercase();
    match lower.rfind(" as ") {
        Some(at) if !lower[at..].contains(')') => call.split_at(at),
        _ => (call, ""),
    }
}

fn unpivot_select(tokens: &[TokenWithSpan]) -> Option<String> {
    let (source, rest) = split_before_word(tokens, &["ON"]);
    let (on, rest) = split_before_word(rest.get(1..)?, &["INTO", "ORDER", "LIMIT"]);
    let (into, rest) = match rest.first() {
        Some(word) if is_unquoted_word(Some(&word.token), "INTO") => {
            split_before_word(&rest[1..], &["ORDER", "LIMIT"])
        }
        _ => (&[] as &[TokenWithSpan], rest),
    };
    let (_, name) = split_before_word(into, &["NAME"]);
    let (name, value) = split_before_word(name.get(1..).unwrap_or_default(), &["VALUE"]);
    let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
    let name = or(tokens_text(name), "name");
    let value = or(tokens_text(value.get(1..).unwrap_or_default()), "value");
    let is_star = on.iter().find(|token| !matches!(token.token, Token::Whitespace(_)));
    let is_star = is_star.is_some_and(|token| token.token == Token::Mul);
    let (source, on, rest) = (tokens_text(source), tokens_text(on), tokens_text(rest));
    let on = if is_star { format!("COLUMNS({on})") } else { on };
    Some(format!("SELECT * FROM {source} UNPIVOT ({value} FOR {name} IN ({on})) {rest}"))
}

/// Returns the query for the values of a statement's first PIVOT that does not list them.
///
/// # Errors
/// None: a text that is no SQL returns `None`.
pub fn pivot_values_query(sql: &str) -> Option<String> {
    struct PivotValuesFinder(Option<String>);

    impl VisitorMut for PivotValuesFinder {
        type Break = ();

        fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
            match factor_values_query(table) {
                Some(query) => {
                    self.0 = Some(query);
                    ControlFlow::Break(())
                }
                None => ControlFlow::Continue(()),
            }
        }
    }

    let first = |statement: &mut Statement| {
        let mut wanted = PivotValuesFinder(None);
        walk_statement_mut(statement, &mut wanted);
        wanted.0
    };
    let mut statement = parse_pivot_statement(sql)?;
    // A PIVOT in a WITH sees the tables before it, and not its own.
    if let Statement::Query(query) = &statement
        && let Some(with) = &query.with
    {
        for (at, cte) in with.cte_tables.iter().enumerate() {
            if let Some(values) = first(&mut Statement::Query(cte.query.clone())) {
                let before = With { cte_tables: with.cte_tables[..at].to_vec(), ..with.clone() };
                return Some(match at {
                    0 => values,
                    _ => format!("{before} {values}"),
                });
            }
        }
    }
    let query = first(&mut statement)?;
    let with = match &statement {
        Statement::Query(query) => query.with.as_ref().map(|with| format!("{with} ")),
        _ => None,
    };
    Some(format!("{}{query}", with.unwrap_or_default()))
}

/// Parses a text's single statement, if it may have a PIVOT.
fn parse_pivot_statement(sql: &str) -> Option<Statement> {
    if !sql.to_lowercase().contains("pivot") {
        return None;
    }
    let mut statements = parse_statements(sql).ok()?;
    (statements.len() == 1).then(|| statements.remove(0))
}

fn factor_values_query(table: &TableFactor) -> Option<String> {
    let TableFactor::Pivot { table, value_column, value_source, .. } = table else { return None };
    let [column] = value_column.as_slice() else { return None };
    match value_source {
        PivotValueSource::Any(order) if order.is_empty() => Some(format!(
            "SELECT DISTINCT {column} AS value FROM {table} WHERE {column} IS NOT NULL ORDER BY 1 \
             LIMIT {}",
            PIVOT_COLUMNS_MAX + 1
        )),
        PivotValueSource::Subquery(query) => Some(query.to_string()),
        _ => None,
    }
}

/// Returns the statement with the values of that PIVOT: each as SQL text, with the name of its column.
///
/// # Errors
/// [`Error::Usage`] for no values, and for too many.
pub fn insert_pivot_values(sql: &str, values: &[(String, String)]) -> Result<String> {
    struct PivotValuesInserter<'a> {
        values: &'a [(String, String)],
        error: Option<Error>,
    }

    impl VisitorMut for PivotValuesInserter<'_> {
        type Break = ();

        fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
            if factor_values_query(table).is_none() {
                return ControlFlow::Continue(());
            }
            if let TableFactor::Pivot { value_source, .. } = table {
                let values = self.values.iter().map(|(value, name)| {
                    let alias = Some(Ident::with_quote('"', name));
                    Ok(ExprWithAlias { expr: parse_expr(value)?, alias })
                });
                match values.collect::<Result<_>>() {
                    Ok(values) => *value_source = PivotValueSource::List(values),
                    Err(error) => self.error = Some(error),
                }
            }
            ControlFlow::Break(())
        }
    }

    if values.len() > PIVOT_COLUMNS_MAX {
        return Err(Error::usage_with_hint(
            format!("a PIVOT on more than {PIVOT_COLUMNS_MAX} values"),
            "list those that are wanted, ON kind IN ('a', 'b'), or leave rows away before",
        ));
    }
    if values.is_empty() {
        return Err(Error::usage_with_hint(
            "a PIVOT on a column without values",
            "list those that become columns: ON kind IN ('a', 'b')",
        ));
    }
    let Some(mut statement) = parse_pivot_statement(sql) else {
        return Err(Error::Internal(format!("no PIVOT: {sql}")));
    };
    let mut listed = PivotValuesInserter { values, error: None };
    walk_statement_mut(&mut statement, &mut listed);
    match listed.error {
        Some(error) => Err(error),
        None => Ok(statement.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation::tokenize_sql;

    #[test]
    fn pivot_statements_become_selects() {
        for (sql, expected) in [
            (
                "PIVOT 's.csv' ON year USING sum(amount) GROUP BY region ORDER BY region",
                "SELECT * FROM (SELECT region, amount, year FROM 's.csv') PIVOT (sum(amount) FOR (year) IN (ANY)) \
                 ORDER BY region",
            ),
            (
                "FROM (PIVOT t ON a IN (1, 2) USING sum(x) AS n, count(*))",
                "FROM (SELECT * FROM t PIVOT (sum(x) AS n, count(*) FOR (a) IN (1, 2)) )",
            ),
            (
                "PIVOT t ON a USING sum(n) GROUP BY n, b",
                "SELECT * RENAME (tidemill_key_1 AS n) FROM (SELECT n AS tidemill_key_1, b, a, n FROM t) \
                 PIVOT (sum(n) FOR (a) IN (ANY))",
            ),
            ("PIVOT t ON a", "SELECT * FROM t PIVOT (count(*) FOR (a) IN (ANY))"),
            (
                "UNPIVOT t ON a, b INTO NAME k VALUE n LIMIT 3",
                "SELECT * FROM t UNPIVOT (n FOR k IN (a, b)) LIMIT 3",
            ),
            ("SELECT pivot FROM t", "SELECT pivot FROM t"),
        ] {
            let made = tokens_text(&rewrite_pivot_statements(tokenize_sql(sql).unwrap()));
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&made), words(expected), "{sql}");
        }
    }

    #[test]
    fn found_values_are_inserted_into_pivot() {
        let sql = "WITH t AS (SELECT 1) SELECT * FROM t PIVOT (sum(x) FOR k IN (ANY))";
        let query = pivot_values_query(sql).unwrap();
        assert!(
            query.starts_with("WITH t AS (SELECT 1) SELECT DISTINCT k AS value FROM t"),
            "{query}"
        );
        // A PIVOT within WITH does not see its own table.
        let own = "WITH a AS (SELECT 1 AS k), p AS (SELECT * FROM a PIVOT (sum(v) FOR k IN (ANY))) SELECT * FROM p";
        let query = pivot_values_query(own).unwrap();
        assert!(query.starts_with("WITH a AS (SELECT 1 AS k) SELECT DISTINCT k"), "{query}");
        let values = [("'a''b'".to_owned(), "a'b".to_owned()), ("2".to_owned(), "2".to_owned())];
        let made = insert_pivot_values(sql, &values).unwrap();
        assert!(made.contains("IN ('a''b' AS \"a'b\", 2 AS \"2\")"), "{made}");
        assert_eq!(pivot_values_query(&made), None);
    }
}
