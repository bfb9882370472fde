//! Rewrites of token sequences that the parser does not accept.
//!
//! `a ** b` becomes `a ^ b`; `FILTER (x > 1)` gets its WHERE; `FROM ['a.csv', 'b.csv']` becomes a call of a
//! table function. Samples are written in one form ([`samples`]), and an ASOF JOIN gets the clause that it
//! omits. `->` is an operator on JSON, except within a function that takes lambdas, where it makes a lambda.
//! Rewritten tokens keep their positions in the text, so that messages point at them.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer, Whitespace};

use crate::syntax::TidemillDialect;
use crate::translation::samples;

/// The table function that [`rewrite_tokens`] makes of a list of files.
pub(super) const FILE_LIST_FUNCTION: &str = "tidemill_files";

/// Functions that take lambdas: an arrow within their parentheses makes a lambda.
const LAMBDA_FUNCTIONS: [&str; 46] = [
    "array_any_match",
    "array_filter",
    "array_first",
    "array_transform",
    "any_match",
    "list_any_match",
    "list_filter",
    "list_first",
    "list_transform",
    "list_apply",
    "array_apply",
    "apply",
    "filter",
    "transform",
    "array_reduce",
    "list_comprehension",
    "list_reduce",
    "list_sort",
    "reduce",
    "aggregate",
    "arrayexists",
    "arrayfilter",
    "arrayfirst",
    "arraymap",
    "columns",
    "all_match",
    "arrayall",
    "arrayavg",
    "arraycount",
    "arrayfill",
    "arrayfirstindex",
    "arrayfold",
    "arraylast",
    "arraymax",
    "arraymin",
    "arrayproduct",
    "arrayreversesort",
    "arraysort",
    "arraysum",
    "forall",
    "list_all",
    "list_any",
    "map_filter",
    "none_match",
    "zip_with",
    "transform_values",
];

/// Returns the statement in tokens that the parser accepts.
pub(super) fn rewrite_tokens(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut made: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // The calls whose parentheses enclose the current token; `None` for parentheses that are not a call's.
    let mut calls: Vec<Option<String>> = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(TokenWithSpan { token, span }) = tokens.next() {
        match token {
            Token::LParen => {
                let is_filter = is_unquoted_word(last_token(&made), "FILTER");
                calls.push(match last_token(&made) {
                    Some(Token::Word(word)) if word.quote_style.is_none() => {
                        Some(word.value.to_lowercase())
                    }
                    _ => None,
                });
                made.push(TokenWithSpan { token: Token::LParen, span });
                while let Some(space) =
                    tokens.next_if(|next| matches!(next.token, Token::Whitespace(_)))
                {
                    made.push(space);
                }
                let has_where =
                    tokens.peek().is_some_and(|next| is_unquoted_word(Some(&next.token), "WHERE"));
                if is_filter && !has_where && is_filter_clause_of_call(&made) {
                    made.extend(spaced_keyword("WHERE", span));
                }
            }
            Token::RParen => {
                calls.pop();
                made.push(TokenWithSpan { token: Token::RParen, span });
            }
            Token::Arrow => {
                let takes = |call: &Option<String>| {
                    call.as_ref().is_some_and(|call| LAMBDA_FUNCTIONS.contains(&call.as_str()))
                };
                let is_lambda = calls.iter().rev().find(|call| call.is_some()).is_some_and(takes)
                    && ends_with_lambda_parameters(&made);
                let token = if is_lambda { Token::Arrow } else { custom_operator("->") };
                made.push(TokenWithSpan { token, span });
            }
            Token::LongArrow => made.push(TokenWithSpan { token: custom_operator("->>"), span }),
            Token::Mul
                if tokens.peek().is_some_and(|next| next.token == Token::Mul)
                    && can_end_value(last_token(&made)) =>
            {
                tokens.next();
                made.push(TokenWithSpan { token: Token::Caret, span });
            }
            Token::LBracket if expects_source(&made) => {
                made.extend(spaced_keyword(FILE_LIST_FUNCTION, span));
                made.push(TokenWithSpan { token: Token::LParen, span });
                made.push(TokenWithSpan { token: Token::LBracket, span });
                for next in tokens.by_ref() {
                    let ends = next.token == Token::RBracket;
                    made.push(next);
                    if ends {
                        break;
                    }
                }
                made.push(TokenWithSpan { token: Token::RParen, span });
            }
            token => made.push(TokenWithSpan { token, span }),
        }
    }
    samples::normalize_samples(add_match_conditions(made))
}

/// Adds the clause that the parser requires between the table and ON of `ASOF JOIN t ON …` and
/// `ASOF LEFT JOIN t ON …`: `MATCH_CONDITION (TRUE)`, or FALSE for LEFT. The comparison of times stays in ON.
fn add_match_conditions(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_unquoted_word(Some(&token.token), "ASOF")) {
        return tokens;
    }
    let mut made: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 16);
    let mut depth = 0usize;
    // Joins whose table is still being read: their nesting depth, and whether they are LEFT.
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let span = token.span;
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => {
                depth = depth.saturating_sub(1);
                open.retain(|(of, _)| *of <= depth);
            }
            word if is_unquoted_word(Some(word), "ASOF") => {
                // The join's keywords follow ASOF; LEFT may also precede it.
                let mut is_left = false;
                let mut next = at + 1;
                let join = loop {
                    match tokens.get(next).map(|token| &token.token) {
                        Some(Token::Whitespace(_)) => {}
                        Some(word) if is_unquoted_word(Some(word), "LEFT") => is_left = true,
                        Some(word)
                            if is_unquoted_word(Some(word), "INNER")
                                || is_unquoted_word(Some(word), "OUTER") => {}
                        Some(word) if is_unquoted_word(Some(word), "JOIN") => break Some(next),
                        _ => break None,
                    }
                    next += 1;
                };
                if let Some(join) = join {
                    if is_unquoted_word(last_token(&made), "LEFT") {
                        is_left = true;
                        while made
                            .pop()
                            .is_some_and(|token| !is_unquoted_word(Some(&token.token), "LEFT"))
                        {
                        }
                    }
                    open.push((depth, is_left));
                    made.extend(spaced_keyword("ASOF", span));
                    made.extend(spaced_keyword("JOIN", span));
                    at = join + 1;
                    continue;
                }
            }
            word if is_unquoted_word(Some(word), "MATCH_CONDITION") => {
                open.pop_if(|(of, _)| *of == depth);
            }
            word if is_unquoted_word(Some(word), "ON") || is_unquoted_word(Some(word), "USING") => {
                if let Some((_, is_left)) = open.pop_if(|(of, _)| *of == depth) {
                    made.extend(spaced_keyword("MATCH_CONDITION", span));
                    made.push(TokenWithSpan { token: Token::LParen, span });
                    made.extend(spaced_keyword(if is_left { "FALSE" } else { "TRUE" }, span));
                    made.push(TokenWithSpan { token: Token::RParen, span });
                }
            }
            _ => {}
        }
        made.push(token.clone());
        at += 1;
    }
    made
}

/// Replaces a range of tokens by those of a text.
pub(super) fn replace_tokens(
    tokens: &mut Vec<TokenWithSpan>,
    start: usize,
    end: usize,
    text: &str,
) {
    let Some(span) = tokens.get(start).map(|token| token.span) else { return };
    let Ok(words) = Tokenizer::new(&TidemillDialect, text).tokenize() else { return };
    let words = words.into_iter().map(|token| TokenWithSpan { token, span });
    tokens.splice(start..end, words);
}

fn is_whitespace(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// Returns the next token that is no whitespace, and its index.
pub(super) fn next_token(tokens: &[TokenWithSpan], from: usize) -> Option<(usize, &Token)> {
    let found = tokens.iter().enumerate().skip(from).find(|(_, token)| !is_whitespace(token));
    found.map(|(at, token)| (at, &token.token))
}

/// Returns the last token before an index that is no whitespace.
pub(super) fn previous_token(tokens: &[TokenWithSpan], at: usize) -> Option<&Token> {
    tokens[..at].iter().rev().find(|token| !is_whitespace(token)).map(|token| &token.token)
}

/// Returns the index at which the query that begins at `from` ends.
pub(super) fn find_query_end(tokens: &[TokenWithSpan], from: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return at,
            Token::RParen => depth -= 1,
            Token::SemiColon | Token::EOF if depth == 0 => return at,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns a custom operator token, for an operator that the parser does not know.
fn custom_operator(sign: &str) -> Token {
    Token::CustomBinaryOperator(sign.to_owned())
}

/// Returns the last token that is no whitespace.
fn last_token(tokens: &[TokenWithSpan]) -> Option<&Token> {
    previous_token(tokens, tokens.len())
}

/// Returns true if a source follows `tokens`: after JOIN, and after FROM unless it belongs to
/// `IS DISTINCT FROM`.
fn expects_source(tokens: &[TokenWithSpan]) -> bool {
    let before = tokens.iter().rev().map(|token| &token.token);
    let mut before = before.filter(|token| !matches!(token, Token::Whitespace(_)));
    let last = before.next();
    is_unquoted_word(last, "JOIN")
        || (is_unquoted_word(last, "FROM") && !is_unquoted_word(before.next(), "DISTINCT"))
}

/// Returns true if the parenthesis after FILTER, the last of `tokens`, opens a call's clause:
/// `count(*) FILTER (`.
fn is_filter_clause_of_call(tokens: &[TokenWithSpan]) -> bool {
    let before = tokens.iter().rev().map(|token| &token.token);
    let mut before = before.filter(|token| !matches!(token, Token::Whitespace(_)));
    before.nth(2) == Some(&Token::RParen)
}

/// Returns true if `tokens` may end with the parameters of a lambda: `(x, y)`, or a word after a comma.
fn ends_with_lambda_parameters(tokens: &[TokenWithSpan]) -> bool {
    let before = tokens.iter().rev().map(|token| &token.token);
    let mut before = before.filter(|token| !matches!(token, Token::Whitespace(_)));
    match before.next() {
        Some(Token::RParen) => true,
        Some(Token::Word(_)) => matches!(before.next(), Some(Token::Comma | Token::LParen)),
        _ => false,
    }
}

/// Returns true if a value may end with a token.
pub(super) fn can_end_value(token: Option<&Token>) -> bool {
    match token {
        Some(Token::Word(word)) => word.keyword == Keyword::NoKeyword || word.quote_style.is_some(),
        Some(Token::Number(..) | Token::RParen | Token::RBracket) => true,
        _ => false,
    }
}

pub(super) fn is_unquoted_word(token: Option<&Token>, expected: &str) -> bool {
    matches!(token, Some(Token::Word(word))
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

/// Returns a keyword with whitespace around it.
fn spaced_keyword(word: &str, span: Span) -> [TokenWithSpan; 3] {
    let space = || TokenWithSpan { token: Token::Whitespace(Whitespace::Space), span };
    let word = TokenWithSpan { token: Token::make_keyword(word), span };
    [space(), word, space()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation::tokenize_sql;

    fn tokens_text(tokens: &[TokenWithSpan]) -> String {
        tokens.iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn unsupported_tokens_are_rewritten_for_parser() {
        for (sql, expected) in [
            ("SELECT 2 ** 3, a**b, count(*) * 2", "SELECT 2 ^ 3, a^b, count(*) * 2"),
            ("SELECT * FROM t", "SELECT * FROM t"),
            ("count(*) FILTER (a > 1)", "count(*) FILTER ( WHERE a > 1)"),
            ("count(*) FILTER (WHERE a > 1)", "count(*) FILTER (WHERE a > 1)"),
            ("SELECT filter (l, x -> x)", "SELECT filter (l, x -> x)"),
            ("a ASOF JOIN b ON a.t >= b.t", "a ASOF JOIN b MATCH_CONDITION (TRUE) ON a.t >= b.t"),
            (
                "a LEFT ASOF JOIN (SELECT 1 ON) ON x",
                "a ASOF JOIN (SELECT 1 ON) MATCH_CONDITION (FALSE) ON x",
            ),
            (
                "a ASOF LEFT JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k",
                "a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k",
            ),
            ("SELECT asof FROM t", "SELECT asof FROM t"),
            ("FROM ['a.csv', 'b.csv']", "FROM  tidemill_files ([ 'a.csv', 'b.csv'])"),
        ] {
            let expected: String = expected.split_whitespace().collect();
            let made = tokens_text(&rewrite_tokens(tokenize_sql(sql).unwrap()));
            assert_eq!(made.split_whitespace().collect::<String>(), expected, "{sql}");
        }
    }

    #[test]
    fn arrow_is_lambda_in_lambda_functions_and_json_operator_elsewhere() {
        for (sql, is_lambda) in [
            ("list_filter(l, x -> x > 1)", true),
            ("list_filter(l, x -> (x + 1) > 1)", true),
            ("list_filter(l, x -> lower(x) = 'a')", true),
            ("list_filter(l, x -> data -> 'a' = x)", true),
            ("data -> 'a'", false),
            ("lower(data -> 'a')", false),
            ("list_filter(l, (x, i) -> i = 1)", true),
            ("list_filter('[1]' -> 'a', 1)", false),
            ("arrayCount(x -> x > 1, l)", true),
            ("EXISTS (SELECT data -> 'a')", false),
        ] {
            let made = rewrite_tokens(tokenize_sql(sql).unwrap());
            let found = made.iter().any(|token| token.token == Token::Arrow);
            assert_eq!(found, is_lambda, "{sql}");
        }
    }
}
