//! Translation of list comprehensions: `[x * 2 FOR x IN list IF x > 1]` becomes
//! `list_comprehension(list_filter(list, x -> x > 1), x -> x * 2)`. `list_comprehension` is a name of
//! `list_transform` by which a result column gets its [original text](comprehension_text) as its name. With a
//! second variable, which numbers the items, the call is
//! `list_comprehension(list, (x, i) -> x * i, (x, i) -> i > 1)`.
//!
//! The parser does not accept comprehensions, so this module rewrites tokens, which keep their positions in
//! the text. A FOR makes a comprehension if `[` is the innermost open bracket before it and no value stands
//! before that bracket. Texts, comments and quoted names are tokens of their own. The innermost comprehension
//! is rewritten first.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Whitespace};

use crate::translation::function_calls::unquoted_call_name;
use crate::translation::token_rewrites::{
    can_end_value, is_unquoted_word, next_token, previous_token, rewrite_tokens,
};

/// The function that a comprehension becomes. `function_calls` translates it.
pub(super) const COMPREHENSION_FUNCTION: &str = "list_comprehension";

/// Returns the text of a comprehension, if a call stands for one.
pub(crate) fn comprehension_text(call: &Function) -> Option<String> {
    let called = |call: &Function| {
        let FunctionArguments::List(list) = &call.args else { return None };
        let [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(of)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Lambda(function))),
        ] = list.args.as_slice()
        else {
            return None;
        };
        Some((of.clone(), function.clone()))
    };
    if unquoted_call_name(call)? != COMPREHENSION_FUNCTION {
        return None;
    }
    if let FunctionArguments::List(list) = &call.args
        && let [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(of)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Lambda(function))),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Lambda(condition))),
        ] = list.args.as_slice()
    {
        let names = function.params.to_string();
        let names = names.trim_matches(['(', ')']);
        return Some(format!("[{} FOR {names} IN {of} IF {}]", function.body, condition.body));
    }
    let (of, function) = called(call)?;
    let names = function.params.to_string();
    let names = names.trim_matches(['(', ')']);
    let filtered = match &of {
        Expr::Function(filter) if unquoted_call_name(filter)? == "list_filter" => called(filter),
        _ => None,
    };
    Some(match filtered {
        Some((list, condition)) => {
            format!("[{} FOR {names} IN {list} IF {}]", function.body, condition.body)
        }
        None => format!("[{} FOR {names} IN {of}]", function.body),
    })
}

/// An open bracket.
struct OpenBracket {
    /// Index of the bracket among the output tokens.
    token_index: usize,
    /// True if the bracket may begin a list.
    can_begin_list: bool,
    /// Indexes of the words FOR, IN and IF of a comprehension.
    for_index: Option<usize>,
    in_index: Option<usize>,
    if_index: Option<usize>,
}

/// Rewrites the comprehensions of a statement.
pub(super) fn rewrite_comprehensions(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_unquoted_word(Some(&token.token), "FOR")) {
        return tokens;
    }
    let mut made: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut open: Vec<OpenBracket> = Vec::new();
    for token in tokens {
        let place = made.len();
        let before = previous_token(&made, place);
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                let is_list = token.token == Token::LBracket && !can_end_value(before);
                open.push(OpenBracket {
                    token_index: place,
                    can_begin_list: is_list,
                    for_index: None,
                    in_index: None,
                    if_index: None,
                });
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                let bracket = open.pop().filter(|_| token.token == Token::RBracket);
                if let Some(bracket) = bracket
                    && let Some(written) = comprehension_call(&made, &bracket, token.span)
                {
                    made.truncate(bracket.token_index);
                    made.extend(written);
                    continue;
                }
            }
            word => {
                if let Some(bracket) = open.last_mut().filter(|bracket| bracket.can_begin_list) {
                    bracket.note_keyword(word, before, place);
                }
            }
        }
        made.push(token);
    }
    made
}

impl OpenBracket {
    /// Notes the index of a keyword that stands directly within the bracket.
    fn note_keyword(&mut self, word: &Token, before: Option<&Token>, place: usize) {
        let of_words = (self.for_index, self.in_index, self.if_index);
        match of_words {
            (None, None, None) if is_unquoted_word(Some(word), "FOR") => {
                self.for_index = Some(place)
            }
            (Some(_), None, None) if is_unquoted_word(Some(word), "IN") => {
                self.in_index = Some(place)
            }
            // `if(…)` is a function where a value is expected.
            (Some(_), Some(_), None)
                if is_unquoted_word(Some(word), "IF") && can_end_value_before_if(before) =>
            {
                self.if_index = Some(place);
            }
            _ => {}
        }
    }
}

/// Returns true if a token may end a value, so that a following IF is no function.
fn can_end_value_before_if(before: Option<&Token>) -> bool {
    const NON_VALUE_WORDS: [&str; 13] = [
        "IN", "AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "BETWEEN", "LIKE", "ILIKE",
        "DISTINCT", "DIV",
    ];
    match before {
        Some(Token::Word(_)) => {
            !NON_VALUE_WORDS.iter().any(|operator| is_unquoted_word(before, operator))
        }
        Some(
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::RParen
            | Token::RBracket
            | Token::RBrace,
        ) => true,
        _ => false,
    }
}

/// Returns the calls that a comprehension becomes. `tokens` end with its opening bracket and its contents.
fn comprehension_call(
    tokens: &[TokenWithSpan],
    bracket: &OpenBracket,
    end: Span,
) -> Option<Vec<TokenWithSpan>> {
    let (word_for, word_in) = (bracket.for_index?, bracket.in_index?);
    let span = tokens.get(bracket.token_index)?.span;
    let names = tokens.get(word_for + 1..word_in)?;
    let (first, _) = next_token(names, 0)?;
    // One name, or two, of which the second numbers the items.
    let is_numbered = next_token(names, first + 1).is_some();
    let name = match is_numbered {
        false => names.get(first..=first)?.to_vec(),
        true => parenthesize_tokens(names.to_vec(), span),
    };
    if !names
        .iter()
        .all(|name| matches!(name.token, Token::Word(_) | Token::Comma | Token::Whitespace(_)))
    {
        return None;
    }
    let part = |from: usize, to: usize| tokens.get(from..to).map(<[_]>::to_vec).map(rewrite_tokens);
    let value = part(bracket.token_index + 1, word_for)?;
    let list = part(word_in + 1, bracket.if_index.unwrap_or(tokens.len()))?;
    let list = match bracket.if_index {
        Some(word_if) => {
            let condition = part(word_if + 1, tokens.len())?;
            if is_numbered {
                let condition = lambda_tokens(&name, condition, span);
                let mut made = lambda_call(COMPREHENSION_FUNCTION, list, &name, value, span, end);
                let last = made.len() - 1;
                made.splice(last..last, comma_tokens(span).into_iter().chain(condition));
                return Some(made);
            }
            lambda_call("list_filter", list, &name, condition, span, end)
        }
        None => list,
    };
    Some(lambda_call(COMPREHENSION_FUNCTION, list, &name, value, span, end))
}

/// Returns `function(list, name -> body)`.
fn lambda_call(
    function: &str,
    list: Vec<TokenWithSpan>,
    name: &[TokenWithSpan],
    body: Vec<TokenWithSpan>,
    span: Span,
    end: Span,
) -> Vec<TokenWithSpan> {
    let at = |token: Token| TokenWithSpan { token, span };
    let mut made = vec![at(Token::make_word(function, None)), at(Token::LParen)];
    made.extend(trim_whitespace(list));
    made.extend(comma_tokens(span));
    made.extend(lambda_tokens(name, body, span));
    made.push(TokenWithSpan { token: Token::RParen, span: end });
    made
}

/// Returns `name -> body`.
fn lambda_tokens(
    name: &[TokenWithSpan],
    body: Vec<TokenWithSpan>,
    span: Span,
) -> Vec<TokenWithSpan> {
    let space = || TokenWithSpan { token: Token::Whitespace(Whitespace::Space), span };
    let mut made = name.to_vec();
    made.extend([space(), TokenWithSpan { token: Token::Arrow, span }, space()]);
    made.extend(trim_whitespace(body));
    made
}

fn comma_tokens(span: Span) -> [TokenWithSpan; 2] {
    [Token::Comma, Token::Whitespace(Whitespace::Space)].map(|token| TokenWithSpan { token, span })
}

fn parenthesize_tokens(tokens: Vec<TokenWithSpan>, span: Span) -> Vec<TokenWithSpan> {
    let bracket = |token: Token| std::iter::once(TokenWithSpan { token, span });
    bracket(Token::LParen).chain(trim_whitespace(tokens)).chain(bracket(Token::RParen)).collect()
}

/// Removes whitespace and comments around tokens.
fn trim_whitespace(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_space = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let mut tokens: Vec<TokenWithSpan> = tokens.into_iter().skip_while(is_space).collect();
    while tokens.pop_if(|token| is_space(token)).is_some() {}
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation::tokenize_sql;

    fn check(sql: &str, expected: &str) {
        let made = rewrite_comprehensions(tokenize_sql(sql).unwrap());
        let made: String = made.iter().map(|token| token.token.to_string()).collect();
        assert_eq!(made, expected, "{sql}");
    }

    #[test]
    fn comprehensions_become_calls() {
        check(
            "SELECT [x * 2 FOR x IN l IF x > 1]",
            "SELECT list_comprehension(list_filter(l, x -> x > 1), x -> x * 2)",
        );
        check("[x for x in l]", "list_comprehension(l, x -> x)");
        check(
            "[[y + x for y in x.ys if (y > 1)] for x in l]",
            "list_comprehension(l, x -> list_comprehension(list_filter(x.ys, y -> (y > 1)), y -> y + x))",
        );
        check(
            "[if(x > 1, 'for', \"in\") for x in if(c, l, m) if if(x = 1, true, false)]",
            "list_comprehension(list_filter(if(c, l, m), x -> if(x = 1, true, false)), x -> if(x > 1, 'for', \"in\"))",
        );
        check(
            "[substring(x FROM 1 FOR 2) for x in [1, 2] /* if */ if x in (1, 2)]",
            "list_comprehension(list_filter([1, 2], x -> x in (1, 2)), x -> substring(x FROM 1 FOR 2))",
        );
        check("[x -> 'a' for x in data -> 'b']", "list_comprehension(data -> 'b', x -> x -> 'a')");
        check("[x + i for x, i in l]", "list_comprehension(l, (x, i) -> x + i)");
        check(
            "[x + i for x, i in l if i > 1]",
            "list_comprehension(l, (x, i) -> x + i, (x, i) -> i > 1)",
        );
    }

    #[test]
    fn other_brackets_are_unchanged() {
        for sql in [
            "SELECT [1, 2], l[1], 'a for b in c', substring(x FROM 1 FOR 2)",
            "SELECT * FROM t PIVOT (sum(x) FOR k IN ('a', 'b'))",
            "SELECT l[x FOR x IN y]",
            "SELECT [x FOR x]",
        ] {
            check(sql, sql);
        }
    }

    #[test]
    fn json_arrows_are_distinct_from_lambda_arrows() {
        let made = rewrite_comprehensions(tokenize_sql("[x -> 'a' for x in data -> 'b']").unwrap());
        let arrows = made.iter().filter(|token| token.token == Token::Arrow).count();
        assert_eq!(arrows, 1);
        let arrows =
            rewrite_tokens(made).iter().filter(|token| token.token == Token::Arrow).count();
        assert_eq!(arrows, 1);
    }
}
