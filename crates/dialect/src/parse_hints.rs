//! Hints for SQL that the parser does not accept.
//!
//! The parser reports what it expected and where it stopped; the hint depends on the words around that
//! position.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use tidemill_base::suggestions;

use crate::syntax::TidemillDialect;

/// Keywords that a misspelled word is compared with.
const SUGGESTED_KEYWORDS: [&str; 24] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "ORDER",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "INNER",
    "LEFT",
    "UNION",
    "DISTINCT",
    "BETWEEN",
    "QUALIFY",
    "PARTITION",
    "OVER",
    "ROWS",
    "RANGE",
    "PRECEDING",
    "FOLLOWING",
    "FILTER",
    "WITHIN",
    "EXCEPT",
];

/// Alternatives, by the word at which the parser stopped.
const HINTS_BY_WORD: [(&str, &str); 17] = [
    (
        "EXCLUDE",
        "a window's frame leaves no rows out; of a sum, sum(x) OVER (…) - x leaves the row itself out",
    ),
    (
        "POSITIONAL",
        "join on row numbers: (SELECT *, row_number() OVER () AS n FROM a) JOIN (…) USING (n)",
    ),
    ("APPLY", "the function stands around the columns: sum(COLUMNS(*))"),
    ("FOR", "list_transform(list_filter(list, x -> x > 1), x -> x * 2) makes a list of a list"),
    (
        "ANY",
        "one row of several: QUALIFY row_number() OVER (PARTITION BY id ORDER BY time) = 1; x = ANY (list) looks \
         into a list",
    ),
    ("OVER", "a function has brackets before OVER: row_number() OVER (ORDER BY a)"),
    ("SYMMETRIC", "x BETWEEN least(a, b) AND greatest(a, b)"),
    ("USING", "ORDER BY a DESC turns the order; JOIN … USING (id) has brackets"),
    ("CUME_DIST", "cume_dist() OVER (ORDER BY a)"),
    ("WITH", "WITH stands before SELECT; ORDER BY a FETCH FIRST 3 ROWS WITH TIES keeps ties"),
    ("INTO", "-o FILE writes a result"),
    ("!", "factorial(5) is 5!; NOT is written as a word, and <> is unequal"),
    ("|/", "sqrt(x) is the square root"),
    ("||/", "cbrt(x) is the cube root"),
    ("@", "abs(x) takes the sign away"),
    (":", "a name is given behind: value AS name; a cast has two colons: x::INT"),
    (";", "a query is one statement"),
];

/// Hint for a CASE without END.
const CASE_HINT: &str = "CASE has an END: CASE WHEN a THEN b ELSE c END";

/// Returns a hint for the parser's message about a text, if there is one.
pub(crate) fn parse_error_hint(sql: &str, message: &str) -> Option<String> {
    if message.contains("Unterminated string literal") {
        return Some(
            "a text ends with a single quote; one within it is written twice: 'it''s'".into(),
        );
    }
    let found = message.split("found: ").nth(1).unwrap_or_default();
    if found.starts_with(['“', '”', '„', '‟', '‘', '’', '‚', '‛', '«', '»', '´'])
    {
        return Some(
            "a text and a file stand in straight single quotes, a name in straight double ones: \
             'logs.csv', \"a name\""
                .into(),
        );
    }
    let tokens = Tokenizer::new(&TidemillDialect, sql).tokenize_with_location().ok()?;
    let tokens: Vec<&TokenWithSpan> =
        tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    if found.starts_with("EOF") {
        return Some(unexpected_end_hint(&tokens));
    }
    let place = error_location(message)?;
    let at =
        tokens.iter().position(|token| (token.span.start.line, token.span.start.column) == place);
    let at = at?;
    let word = |at: usize| tokens.get(at).map(|token| token.token.to_string());
    let here = word(at).unwrap_or_default();
    let before = at.checked_sub(1).and_then(word).unwrap_or_default();
    if message.contains("Expected: BY")
        || ["ORDER", "PARTITION", "GROUP"].iter().any(|word| before.eq_ignore_ascii_case(word))
    {
        return Some(format!("{} is followed by BY", before.to_uppercase()));
    }
    let upper = here.to_uppercase();
    let is_by = word(at + 1).is_some_and(|next| next.eq_ignore_ascii_case("BY"));
    if ["ORDER", "PARTITION", "GROUP"].contains(&upper.as_str()) && !is_by {
        return Some(format!("{upper} is followed by BY"));
    }
    if ["DSC", "DECS", "DES", "DESCENDING"].contains(&upper.as_str()) {
        return Some("did you mean DESC?".into());
    }
    if ["ASCENDING", "ACS"].contains(&upper.as_str()) {
        return Some("did you mean ASC?".into());
    }
    if let Some(meant) = nearest_keyword(&here).or_else(|| nearest_keyword(&before)) {
        return Some(format!("did you mean {meant}?"));
    }
    let behind_over = |words: &[&str]| {
        at.checked_sub(words.len() + 1).is_some_and(|over| {
            let said = tokens[over..at].iter().map(|token| token.token.to_string().to_uppercase());
            said.eq(std::iter::once("OVER").chain(words.iter().copied()))
        })
    };
    if behind_over(&["PARTITION", "BY"])
        || behind_over(&["ORDER", "BY"])
        || behind_over(&["PARTITION"])
    {
        return Some("a window stands in brackets: OVER (PARTITION BY a ORDER BY b)".into());
    }
    if before.eq_ignore_ascii_case("OVER") && here == "(" {
        return Some("a function has brackets before OVER: row_number() OVER (ORDER BY a)".into());
    }
    if upper == "BY" {
        return Some("an order of a window stands behind it: rank() OVER (ORDER BY a)".into());
    }
    if let Some((_, hint)) = HINTS_BY_WORD.iter().find(|(word, _)| *word == upper) {
        return Some((*hint).to_owned());
    }
    let is_word = |token: &TokenWithSpan| matches!(token.token, Token::Word(_));
    let is_name = |token: &TokenWithSpan| {
        is_word(token) || matches!(token.token, Token::Number(..) | Token::SingleQuotedString(_))
    };
    let count = |wanted: &str| {
        tokens.iter().filter(|token| token.token.to_string().eq_ignore_ascii_case(wanted)).count()
    };
    if before.eq_ignore_ascii_case("WHEN") && count("CASE") > count("END") {
        return Some(CASE_HINT.to_owned());
    }
    if let Some(hint) =
        unclosed_construct_hint(&tokens[..at]).or_else(|| clause_order_hint(&tokens[..at], &upper))
    {
        return Some(hint);
    }
    // The parser took the keyword of a clause for a name because something is missing before it.
    let clause = before.to_uppercase();
    if ["LIMIT", "OFFSET", "HAVING", "UNION", "QUALIFY"].contains(&clause.as_str())
        && let Some(last) = at.checked_sub(2).and_then(word)
        && ["WHERE", "AND", "OR", "NOT", "HAVING", "ON", ",", "BY", "FROM"]
            .contains(&last.to_uppercase().as_str())
    {
        return Some(format!("something is missing between `{last}` and `{before}`"));
    }
    if ["FROM", "WHERE"].contains(&upper.as_str())
        && message.contains("Expected: ), found")
        && has_open_bracket(&tokens[..at])
    {
        return Some(UNCLOSED_BRACKET_HINT.into());
    }
    if let (Some(this), Some(last)) =
        (tokens.get(at), at.checked_sub(1).and_then(|at| tokens.get(at)))
        && is_name(this)
        && is_name(last)
    {
        return Some(format!(
            "a comma or an operator is missing between `{before}` and `{here}`, or a word is written otherwise"
        ));
    }
    if let (Some(Token::LParen), Some(called), Some(last)) = (
        tokens.get(at).map(|token| &token.token),
        at.checked_sub(1).and_then(|at| tokens.get(at)),
        at.checked_sub(2).and_then(|at| tokens.get(at)),
    ) && is_word(called)
        && is_name(last)
        && !matches!(&last.token, Token::Word(word) if SUGGESTED_KEYWORDS.contains(&word.value.to_uppercase().as_str()))
    {
        return Some(format!(
            "a comma or an operator is missing between `{}` and `{}(`",
            last.token, called.token
        ));
    }
    match (&tokens[at].token, has_open_bracket(&tokens[..at])) {
        (Token::RParen, false) => Some("a bracket is closed that was not opened".into()),
        (_, true) if message.contains("Expected: )") => Some(UNCLOSED_BRACKET_HINT.into()),
        _ => None,
    }
}

const UNCLOSED_BRACKET_HINT: &str = "a bracket is not closed before this";

/// Returns true if more parentheses are opened than closed.
fn has_open_bracket(tokens: &[&TokenWithSpan]) -> bool {
    let count = |wanted: Token| tokens.iter().filter(|token| token.token == wanted).count();
    count(Token::LParen) > count(Token::RParen)
}

/// Returns a hint for a CASE without END, or for a parenthesis that is not closed before a clause.
fn unclosed_construct_hint(before: &[&TokenWithSpan]) -> Option<String> {
    let (mut cases, mut brackets) = (0_usize, Vec::new());
    for token in before {
        match &token.token {
            Token::LParen => brackets.push(false),
            Token::RParen => drop(brackets.pop()),
            Token::Word(word) if word.quote_style.is_none() => {
                match word.value.to_uppercase().as_str() {
                    "CASE" => cases += 1,
                    "END" => cases = cases.saturating_sub(1),
                    "SELECT" | "WITH" => {
                        if let Some(is_query) = brackets.last_mut() {
                            *is_query = true;
                        }
                    }
                    "FROM" | "WHERE" if brackets.last() == Some(&false) && cases == 0 => {
                        return Some(UNCLOSED_BRACKET_HINT.into());
                    }
                    "FROM" if cases > 0 => return Some(CASE_HINT.into()),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns a hint for a clause that follows one which it must precede.
fn clause_order_hint(before: &[&TokenWithSpan], clause: &str) -> Option<String> {
    const CLAUSE_ORDER: [&str; 7] =
        ["FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "ORDER", "LIMIT"];
    let own = CLAUSE_ORDER.iter().position(|one| *one == clause)?;
    let mut depth = 0_usize;
    let behind = before.iter().rev().find_map(|token| match &token.token {
        Token::RParen => {
            depth += 1;
            None
        }
        Token::LParen => {
            depth = depth.saturating_sub(1);
            None
        }
        Token::Word(word) if word.quote_style.is_none() && depth == 0 => {
            let upper = word.value.to_uppercase();
            CLAUSE_ORDER.iter().position(|one| *one == upper)
        }
        _ => None,
    });
    let shown = |clause: &str| match clause {
        "GROUP" | "ORDER" => format!("{clause} BY"),
        other => other.to_owned(),
    };
    let later = CLAUSE_ORDER.get(behind.filter(|behind| *behind > own)?)?;
    Some(format!("{} stands before {}", shown(clause), shown(later)))
}

/// Returns a hint for a text that ends too early.
fn unexpected_end_hint(tokens: &[&TokenWithSpan]) -> String {
    let count = |wanted: Token| tokens.iter().filter(|token| token.token == wanted).count();
    let open = count(Token::LParen).saturating_sub(count(Token::RParen));
    match (open, tokens.last()) {
        (0, Some(last)) => {
            format!("the statement ends behind `{}`, and something should follow", last.token)
        }
        (0, None) => "a query is SQL: SELECT * FROM 'logs.csv'".into(),
        (1, _) => "a bracket is not closed".into(),
        (several, _) => format!("{several} brackets are not closed"),
    }
}

/// Returns the line and column of a parser message.
fn error_location(message: &str) -> Option<(u64, u64)> {
    let (_, place) = message.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some((line.trim().parse().ok()?, column.trim().parse().ok()?))
}

/// Returns the keyword that a word misspells.
fn nearest_keyword(word: &str) -> Option<&'static str> {
    let upper = word.to_uppercase();
    let is_one = upper.len() > 3 && upper.chars().all(|c| c.is_ascii_alphabetic());
    if !is_one || SUGGESTED_KEYWORDS.contains(&upper.as_str()) {
        return None;
    }
    suggestions::nearest_candidate(&upper, SUGGESTED_KEYWORDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation;

    #[test]
    fn parse_errors_have_hints() {
        for (sql, expected) in [
            ("SELECT * FORM t", "did you mean FROM?"),
            ("SELECT a FORM t", "did you mean FROM?"),
            ("SELECT a FROM t WERE a > 1", "did you mean WHERE?"),
            ("SELECT row_number OVER (ORDER BY a) FROM t", "a function has brackets"),
            ("SELECT sum(a) OVER (PARTITION k) FROM t", "PARTITION is followed by BY"),
            ("SELECT sum(a) OVER (PARTITION BY k ORDER v) FROM t", "ORDER is followed by BY"),
            ("SELECT a FROM t ORDER BY a DSC", "did you mean DESC?"),
            (
                "SELECT a count(*) FROM t",
                "a comma or an operator is missing between `a` and `count(`",
            ),
            ("SELECT count(* FROM t", "a bracket is not closed"),
            ("SELECT count( FROM t WHERE a", "a bracket is not closed"),
            ("SELECT a FROM t WHERE LIMIT 1", "something is missing between `WHERE` and `LIMIT`"),
            ("SELECT a FROM t, LIMIT 1", "something is missing between `,` and `LIMIT`"),
            ("SELECT “a” FROM t", "a text and a file stand in straight single quotes"),
            ("SELECT a FROM ‘t.csv’", "a text and a file stand in straight single quotes"),
            ("SELECT concat(a, b FROM t", "a bracket is not closed"),
            ("SELECT rank() OVER PARTITION BY a FROM t", "a window stands in brackets"),
            ("SELECT rank() OVER ORDER BY a FROM t", "a window stands in brackets"),
            ("SELECT CASE WHEN a > 3 THEN 1 FROM t", "CASE has an END"),
            ("SELECT a FROM t ORDER BY a WHERE a > 3", "WHERE stands before ORDER BY"),
            ("SELECT a FROM t LIMIT 3 ORDER BY a", "ORDER BY stands before LIMIT"),
            ("SELECT a FROM t GROUP BY a WHERE (a > 3)", "WHERE stands before GROUP BY"),
            ("SELECT a FROM", "the statement ends behind `FROM`"),
            ("SELECT (a + (b", "2 brackets are not closed"),
            ("SELECT 'it's' FROM t", "a text ends with a single quote"),
            (
                "SELECT sum(a) OVER (ORDER BY a ROWS 1 PRECEDING EXCLUDE CURRENT ROW) FROM t",
                "a window's frame leaves no rows out",
            ),
        ] {
            let error = translation::parse_statements(sql).expect_err(sql).to_string();
            let found = parse_error_hint(sql, &error).unwrap_or_default();
            assert!(found.starts_with(expected), "{sql}: {error}: {found}");
        }
    }
}
