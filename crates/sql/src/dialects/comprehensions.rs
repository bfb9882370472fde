//! List comprehensions: `[x * 2 FOR x IN list IF x > 1]` as `list_comprehension(list_filter(list, x -> x > 1), x -> x * 2)`, a name
//! of `list_transform` by which a column of the result is called as it [was written](as_written). With a second name, which numbers the
//! items, it is `list_comprehension(list, (x, i) -> x * i, (x, i) -> i > 1)`.
//!
//! The parser does not read them, so they are rewritten as tokens, which keep their places in the text. A FOR makes a
//! comprehension if `[` is the innermost open bracket before it and no value stands before that bracket. Texts, comments and quoted names are
//! tokens of their own. The innermost comprehension is rewritten first.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Whitespace};

use super::calls::name_of;
use super::tokens::{before, ends_a_value, is_word, mended, next};

/// The function that a comprehension becomes. `calls` has what it is here.
pub(super) const COMPREHENSION: &str = "list_comprehension";

/// Returns the text of a comprehension, if a call stands for one.
pub(crate) fn as_written(call: &Function) -> Option<String> {
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
    if name_of(call)? != COMPREHENSION {
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
        Expr::Function(filter) if name_of(filter)? == "list_filter" => called(filter),
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
struct Bracket {
    /// Its place among the tokens that are written.
    place: usize,
    /// Returns whether it may begin a list.
    is_list: bool,
    /// The places of the words FOR and IN of a comprehension.
    word_for: Option<usize>,
    word_in: Option<usize>,
    word_if: Option<usize>,
}

/// Rewrites the comprehensions of a statement.
pub(super) fn read(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(Some(&token.token), "FOR")) {
        return tokens;
    }
    let mut made: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut open: Vec<Bracket> = Vec::new();
    for token in tokens {
        let place = made.len();
        let before = before(&made, place);
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                let is_list = token.token == Token::LBracket && !ends_a_value(before);
                open.push(Bracket { place, is_list, word_for: None, word_in: None, word_if: None });
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                let bracket = open.pop().filter(|_| token.token == Token::RBracket);
                if let Some(bracket) = bracket
                    && let Some(written) = comprehension(&made, &bracket, token.span)
                {
                    made.truncate(bracket.place);
                    made.extend(written);
                    continue;
                }
            }
            word => {
                if let Some(bracket) = open.last_mut().filter(|bracket| bracket.is_list) {
                    bracket.mark(word, before, place);
                }
            }
        }
        made.push(token);
    }
    made
}

impl Bracket {
    /// Notes the place of a word that stands directly within the bracket.
    fn mark(&mut self, word: &Token, before: Option<&Token>, place: usize) {
        let of_words = (self.word_for, self.word_in, self.word_if);
        match of_words {
            (None, None, None) if is_word(Some(word), "FOR") => self.word_for = Some(place),
            (Some(_), None, None) if is_word(Some(word), "IN") => self.word_in = Some(place),
            // `if(…)` is a function where a value is expected.
            (Some(_), Some(_), None) if is_word(Some(word), "IF") && follows_a_value(before) => {
                self.word_if = Some(place);
            }
            _ => {}
        }
    }
}

/// Returns whether a token may be the last one of a value, so that IF behind it is no function.
fn follows_a_value(before: Option<&Token>) -> bool {
    const OPERATORS: [&str; 13] = [
        "IN", "AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "BETWEEN", "LIKE", "ILIKE",
        "DISTINCT", "DIV",
    ];
    match before {
        Some(Token::Word(_)) => !OPERATORS.iter().any(|operator| is_word(before, operator)),
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

/// Returns the calls that a comprehension stands for; its first bracket and what follows it are the last of `tokens`.
fn comprehension(
    tokens: &[TokenWithSpan],
    bracket: &Bracket,
    end: Span,
) -> Option<Vec<TokenWithSpan>> {
    let (word_for, word_in) = (bracket.word_for?, bracket.word_in?);
    let span = tokens.get(bracket.place)?.span;
    let names = tokens.get(word_for + 1..word_in)?;
    let (first, _) = next(names, 0)?;
    // One name, or two of which the second numbers the items.
    let is_numbered = next(names, first + 1).is_some();
    let name = match is_numbered {
        false => names.get(first..=first)?.to_vec(),
        true => in_brackets(names.to_vec(), span),
    };
    if !names
        .iter()
        .all(|name| matches!(name.token, Token::Word(_) | Token::Comma | Token::Whitespace(_)))
    {
        return None;
    }
    let part = |from: usize, to: usize| tokens.get(from..to).map(<[_]>::to_vec).map(mended);
    let value = part(bracket.place + 1, word_for)?;
    let list = part(word_in + 1, bracket.word_if.unwrap_or(tokens.len()))?;
    let list = match bracket.word_if {
        Some(word_if) => {
            let condition = part(word_if + 1, tokens.len())?;
            if is_numbered {
                let condition = function_of(&name, condition, span);
                let mut made = call(COMPREHENSION, list, &name, value, span, end);
                let last = made.len() - 1;
                made.splice(last..last, comma(span).into_iter().chain(condition));
                return Some(made);
            }
            call("list_filter", list, &name, condition, span, end)
        }
        None => list,
    };
    Some(call(COMPREHENSION, list, &name, value, span, end))
}

/// Returns `function(list, name -> body)`.
fn call(
    function: &str,
    list: Vec<TokenWithSpan>,
    name: &[TokenWithSpan],
    body: Vec<TokenWithSpan>,
    span: Span,
    end: Span,
) -> Vec<TokenWithSpan> {
    let at = |token: Token| TokenWithSpan { token, span };
    let mut made = vec![at(Token::make_word(function, None)), at(Token::LParen)];
    made.extend(trimmed(list));
    made.extend(comma(span));
    made.extend(function_of(name, body, span));
    made.push(TokenWithSpan { token: Token::RParen, span: end });
    made
}

/// Returns `name -> body`.
fn function_of(name: &[TokenWithSpan], body: Vec<TokenWithSpan>, span: Span) -> Vec<TokenWithSpan> {
    let space = || TokenWithSpan { token: Token::Whitespace(Whitespace::Space), span };
    let mut made = name.to_vec();
    made.extend([space(), TokenWithSpan { token: Token::Arrow, span }, space()]);
    made.extend(trimmed(body));
    made
}

fn comma(span: Span) -> [TokenWithSpan; 2] {
    [Token::Comma, Token::Whitespace(Whitespace::Space)].map(|token| TokenWithSpan { token, span })
}

fn in_brackets(tokens: Vec<TokenWithSpan>, span: Span) -> Vec<TokenWithSpan> {
    let bracket = |token: Token| std::iter::once(TokenWithSpan { token, span });
    bracket(Token::LParen).chain(trimmed(tokens)).chain(bracket(Token::RParen)).collect()
}

/// Leaves out spaces and comments around tokens.
fn trimmed(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_space = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let mut tokens: Vec<TokenWithSpan> = tokens.into_iter().skip_while(is_space).collect();
    while tokens.pop_if(|token| is_space(token)).is_some() {}
    tokens
}

#[cfg(test)]
mod tests {
    use super::super::parsed_tokens;
    use super::*;

    fn check(sql: &str, expected: &str) {
        let made = read(parsed_tokens(sql).unwrap());
        let made: String = made.iter().map(|token| token.token.to_string()).collect();
        assert_eq!(made, expected, "{sql}");
    }

    #[test]
    fn comprehensions_are_calls() {
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
    fn other_brackets_stay() {
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
    fn arrows_into_json_are_told_from_those_of_functions() {
        let made = read(parsed_tokens("[x -> 'a' for x in data -> 'b']").unwrap());
        let arrows = made.iter().filter(|token| token.token == Token::Arrow).count();
        assert_eq!(arrows, 1);
        let arrows = mended(made).iter().filter(|token| token.token == Token::Arrow).count();
        assert_eq!(arrows, 1);
    }
}
