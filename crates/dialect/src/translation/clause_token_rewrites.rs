//! Rewrites of clauses that the parser does not accept, on the level of tokens.
//!
//! | written | read |
//! | --- | --- |
//! | `x NOTNULL`, `x ISNULL` | `x IS NOT NULL`, `x IS NULL` |
//! | `WITH t AS MATERIALIZED (…)` | `WITH t AS (…)` |
//! | `7 MOD 3` | `7 % 3` |
//! | `x GLOBAL IN (…)`, `GLOBAL JOIN` | `x IN (…)`, `JOIN` |
//! | `x IN tags`, `x NOT IN tags` | `x = ANY (tags)`, `x <> ALL (tags)` |
//! | `JOIN t USING id` | `JOIN t USING (id)` |
//! | `* LIKE 'm%'` behind SELECT | `COLUMNS(c -> c LIKE 'm%')` |
//! | `x GLOB 'a*'` | `x ~ '^a.*$'` |
//! | `LIMIT 3 WITH TIES`, `LIMIT 20%` | `FETCH FIRST 3 ROWS WITH TIES`, `FETCH FIRST 20 PERCENT ROWS ONLY` |
//! | `FROM t WHERE a > 1` | `SELECT * FROM t WHERE a > 1` |
//! | `WITH 30 AS low SELECT … > low` | `SELECT … > (30)` |
//! | `x::STRUCT(a INT)`, `CAST(x AS ROW(a INT))` | `x::STRUCT<a INT>` |
//!
//! The new tokens have the positions in the text of the tokens that they replace.

use std::cmp::Ordering;

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::translation::token_rewrites::{
    find_query_end, is_unquoted_word, next_token, previous_token, replace_tokens,
};

/// Returns the tokens with all of these clauses rewritten.
pub(super) fn rewrite_clause_tokens(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    inline_with_values(&mut tokens);
    rewrite_struct_types(&mut tokens);
    insert_omitted_select(&mut tokens);
    let mut at = 0;
    while at < tokens.len() {
        if let Some((end, text)) = find_replacement(&tokens, at) {
            replace_tokens(&mut tokens, at, end, &text);
        }
        at += 1;
    }
    tokens
}

/// Writes the fields of all struct types in angle brackets.
fn rewrite_struct_types(tokens: &mut [TokenWithSpan]) {
    for at in 0..tokens.len() {
        let has_fields = ["STRUCT", "ROW", "MAP"]
            .iter()
            .any(|name| is_unquoted_word(Some(&tokens[at].token), name));
        let Some((open, Token::LParen)) = next_token(tokens, at + 1).filter(|_| has_fields) else {
            continue;
        };
        let is_type = match previous_token(tokens, at) {
            Some(Token::DoubleColon) => true,
            word if is_unquoted_word(word, "AS") => ["CAST", "TRY_CAST", "SAFE_CAST"]
                .iter()
                .any(|call| is_within_call(tokens, at, call)),
            _ => false,
        };
        if is_type {
            let end = find_query_end(tokens, open + 1);
            // A map's key or value may be a struct, too.
            for place in at..end {
                rewrite_struct_type(tokens, place);
            }
        }
    }
}

/// Writes the fields of a struct type in angle brackets, if a struct type begins at `at`.
fn rewrite_struct_type(tokens: &mut [TokenWithSpan], at: usize) {
    let is_struct =
        ["STRUCT", "ROW"].iter().any(|word| is_unquoted_word(Some(&tokens[at].token), word));
    let open = match next_token(tokens, at + 1) {
        Some((open, Token::LParen)) if is_struct => open,
        _ => return,
    };
    let close = find_query_end(tokens, open + 1);
    if tokens.get(close).is_some_and(|token| token.token == Token::RParen) {
        tokens[at].token = Token::make_keyword("STRUCT");
        tokens[open].token = Token::Lt;
        tokens[close].token = Token::Gt;
    }
}

fn match_word(token: Option<(usize, &Token)>, expected: &str) -> Option<usize> {
    token.filter(|(_, token)| is_unquoted_word(Some(token), expected)).map(|(at, _)| at)
}

/// Returns true if an operand may end with a token: a name, a number, a text, a closing bracket.
fn can_end_operand(token: Option<&Token>) -> bool {
    match token {
        Some(Token::Word(word)) => {
            word.quote_style.is_some()
                || word.keyword == Keyword::NoKeyword
                || !NON_OPERAND_KEYWORDS.contains(&word.keyword)
        }
        Some(
            Token::Number(..) | Token::SingleQuotedString(_) | Token::RParen | Token::RBracket,
        ) => true,
        _ => false,
    }
}

/// Keywords that no binary operator can follow.
const NON_OPERAND_KEYWORDS: [Keyword; 19] = [
    Keyword::SELECT,
    Keyword::FROM,
    Keyword::WHERE,
    Keyword::AND,
    Keyword::OR,
    Keyword::NOT,
    Keyword::BY,
    Keyword::HAVING,
    Keyword::ON,
    Keyword::WHEN,
    Keyword::THEN,
    Keyword::ELSE,
    Keyword::CASE,
    Keyword::IN,
    Keyword::LIKE,
    Keyword::BETWEEN,
    Keyword::DISTINCT,
    Keyword::QUALIFY,
    Keyword::JOIN,
];

/// Rewrites `FROM t WHERE …` as `SELECT * FROM t WHERE …`: the parser accepts a missing SELECT only without
/// the clauses that follow a SELECT.
fn insert_omitted_select(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while at < tokens.len() {
        let begins = match &tokens[at].token {
            Token::Word(_) => {
                previous_token(tokens, at).is_none_or(|token| *token == Token::LParen)
            }
            _ => false,
        };
        if begins && let Some(from) = find_leading_from(tokens, at) {
            replace_tokens(tokens, from, from + 1, "SELECT * FROM");
        }
        at += 1;
    }
}

/// Returns the index of FROM, if the query that begins at `at` has no SELECT but a clause that needs one.
fn find_leading_from(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let end = find_query_end(tokens, at);
    let mut depth = 0usize;
    let mut from = None;
    for place in at..end {
        let token = &tokens[place].token;
        let is = |expected: &str| is_unquoted_word(Some(token), expected);
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(_) if depth > 0 => {}
            Token::Word(_) if is("SELECT") => return None,
            Token::Word(_) if from.is_none() && is("FROM") => {
                let is_first = place == at || is_unquoted_word(Some(&tokens[at].token), "WITH");
                from = Some(place).filter(|_| is_first);
                from?;
            }
            Token::Word(_)
                if from.is_some()
                    && ["WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW"]
                        .iter()
                        .any(|word| is(word)) =>
            {
                return from;
            }
            _ => {}
        }
    }
    None
}

/// Returns true if the parentheses around a token are those of a call of `function`.
fn is_within_call(tokens: &[TokenWithSpan], at: usize, function: &str) -> bool {
    let mut depth = 0usize;
    for place in (0..at).rev() {
        match &tokens[place].token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => {
                return is_unquoted_word(previous_token(tokens, place), function);
            }
            Token::LParen => depth -= 1,
            _ => {}
        }
    }
    false
}

/// Returns the replacement of the clause that begins at `at`, and the index at which that clause ends.
fn find_replacement(tokens: &[TokenWithSpan], at: usize) -> Option<(usize, String)> {
    let token = &tokens[at].token;
    let behind = previous_token(tokens, at);
    let following = next_token(tokens, at + 1);
    let is = |expected: &str| is_unquoted_word(Some(token), expected);
    if is("NOTNULL") && can_end_operand(behind) {
        return Some((at + 1, "IS NOT NULL".into()));
    }
    if is("ISNULL") && can_end_operand(behind) && !matches!(following, Some((_, Token::LParen))) {
        return Some((at + 1, "IS NULL".into()));
    }
    if is("MOD") && can_end_operand(behind) && !matches!(following, Some((_, Token::LParen))) {
        return Some((at + 1, "%".into()));
    }
    if is("AS") {
        let not = match_word(following, "NOT");
        let materialized =
            match_word(next_token(tokens, not.map_or(at + 1, |not| not + 1)), "MATERIALIZED");
        if let Some(end) = materialized
            && matches!(next_token(tokens, end + 1), Some((_, Token::LParen)))
        {
            return Some((end + 1, "AS ".into()));
        }
    }
    if is("GLOBAL") && !matches!(behind, Some(Token::Period)) {
        let goes = ["IN", "NOT", "JOIN", "LEFT", "RIGHT", "INNER", "ANY", "ALL"];
        if goes.iter().any(|word_| match_word(following, word_).is_some())
            && !is_unquoted_word(behind, "SELECT")
        {
            return Some((at + 1, String::new()));
        }
    }
    if (is("IN") || is("NOT")) && !is_within_call(tokens, at, "POSITION") {
        let is_negated = is("NOT");
        let place = if is_negated { match_word(following, "IN")? } else { at };
        return rewrite_in_column(tokens, place, is_negated);
    }
    if is("USING")
        && let Some((first, Token::Word(name))) = following
        && (name.quote_style.is_some() || !NON_OPERAND_KEYWORDS.contains(&name.keyword))
        && !name.value.eq_ignore_ascii_case("sample")
        && !matches!(next_token(tokens, first + 1), Some((_, Token::LParen)))
    {
        let mut names = vec![name.to_string()];
        let mut end = first + 1;
        while let Some((comma, Token::Comma)) = next_token(tokens, end)
            && let Some((place, Token::Word(name))) = next_token(tokens, comma + 1)
        {
            names.push(name.to_string());
            end = place + 1;
        }
        return Some((end, format!("USING ({})", names.join(", "))));
    }
    if *token == Token::Mul
        && (is_unquoted_word(behind, "SELECT") || behind == Some(&Token::Comma))
        && let Some((end, condition)) = column_name_condition(tokens, at + 1)
    {
        return Some((end, format!("COLUMNS(c -> c {condition})")));
    }
    if is("GLOB")
        && can_end_operand(behind)
        && let Some((place, Token::SingleQuotedString(pattern))) = following
    {
        let regex = glob_regex(pattern).replace('\'', "''");
        return Some((place + 1, format!("~ '{regex}'")));
    }
    if is("LIMIT")
        && let Some((place, Token::Number(count, _))) = following
    {
        let after = next_token(tokens, place + 1);
        if let Some(with) = match_word(after, "WITH")
            && let Some(ties) = match_word(next_token(tokens, with + 1), "TIES")
        {
            return Some((ties + 1, format!("FETCH FIRST {count} ROWS WITH TIES")));
        }
        let percent = match after {
            Some((end, Token::Mod)) if ends_limit_clause(tokens, end + 1) => Some(end),
            other => match_word(other, "PERCENT"),
        };
        if let Some(end) = percent {
            return Some((end + 1, format!("FETCH FIRST {count} PERCENT ROWS ONLY")));
        }
    }
    None
}

/// Returns true if no expression continues at `from`: the end, a closing parenthesis, or OFFSET follows.
fn ends_limit_clause(tokens: &[TokenWithSpan], from: usize) -> bool {
    match next_token(tokens, from) {
        None | Some((_, Token::RParen | Token::SemiColon | Token::EOF)) => true,
        Some((_, token)) => is_unquoted_word(Some(token), "OFFSET"),
    }
}

/// Rewrites `IN tags`, where `tags` is a column with a list.
fn rewrite_in_column(
    tokens: &[TokenWithSpan],
    place: usize,
    is_negated: bool,
) -> Option<(usize, String)> {
    let (mut at, first) = next_token(tokens, place + 1)?;
    let Token::Word(name) = first else { return None };
    let is_name = name.quote_style.is_some() || name.keyword == Keyword::NoKeyword;
    if !is_name || matches!(next_token(tokens, at + 1), Some((_, Token::LParen))) {
        return None;
    }
    let mut path = name.to_string();
    while let (Some(Token::Period), Some(Token::Word(part))) =
        (tokens.get(at + 1).map(|token| &token.token), tokens.get(at + 2).map(|token| &token.token))
    {
        path.push_str(&format!(".{part}"));
        at += 2;
    }
    let operator = if is_negated { "<> ALL" } else { "= ANY" };
    Some((at + 1, format!("{operator} ({path})")))
}

/// Returns the condition on column names of `LIKE 'm%'`, `NOT LIKE`, `SIMILAR TO` or `GLOB` after a `*`.
fn column_name_condition(tokens: &[TokenWithSpan], from: usize) -> Option<(usize, String)> {
    let mut at = from;
    let mut words = String::new();
    if let Some(not) = match_word(next_token(tokens, at), "NOT") {
        words.push_str("NOT ");
        at = not + 1;
    }
    let (operator, end) = if let Some(like) = match_word(next_token(tokens, at), "LIKE") {
        ("LIKE", like + 1)
    } else if let Some(ilike) =
        match_word(next_token(tokens, at), "ILIKE").filter(|_| !words.is_empty())
    {
        ("ILIKE", ilike + 1)
    } else if let Some(similar) = match_word(next_token(tokens, at), "SIMILAR") {
        ("SIMILAR TO", match_word(next_token(tokens, similar + 1), "TO")? + 1)
    } else if let Some(glob) =
        match_word(next_token(tokens, at), "GLOB").filter(|_| words.is_empty())
    {
        ("GLOB", glob + 1)
    } else {
        return None;
    };
    let (place, Token::SingleQuotedString(pattern)) = next_token(tokens, end)? else { return None };
    let quoted = pattern.replace('\'', "''");
    let condition = match operator {
        "GLOB" => format!("~ '{}'", glob_regex(pattern).replace('\'', "''")),
        other => format!("{words}{other} '{quoted}'"),
    };
    Some((place + 1, condition))
}

/// Returns a GLOB pattern as a regular expression for the whole text. As in DuckDB, `[!a]` negates a set, `\`
/// escapes a letter outside of sets, and `]` is a letter at the start of a set. A pattern with an unclosed
/// set or a final `\` matches nothing.
fn glob_regex(pattern: &str) -> String {
    const MATCHES_NOTHING: &str = "$.";
    let mut regex = String::from("(?s)^");
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        match character {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => match read_glob_set(&mut rest) {
                Some(set) => regex.push_str(&set),
                None => return MATCHES_NOTHING.to_owned(),
            },
            '\\' => match rest.next() {
                Some(escaped) => regex.push_str(&regex::escape(escaped.encode_utf8(&mut [0; 4]))),
                None => return MATCHES_NOTHING.to_owned(),
            },
            other => regex.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    regex.push('$');
    regex
}

/// Reads the set of a GLOB pattern that follows `[` and returns it as a character class; `None` if it is not
/// closed.
fn read_glob_set(rest: &mut std::str::Chars<'_>) -> Option<String> {
    // The intersection of two disjoint classes contains no character.
    const EMPTY_CLASS: &str = "[a&&b]";
    let is_negated = rest.as_str().starts_with('!');
    if is_negated {
        rest.next();
    }
    let (mut class, mut is_first) = (String::new(), true);
    loop {
        let first = rest.next()?;
        if first == ']' && !is_first {
            break;
        }
        is_first = false;
        let mut ahead = rest.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *rest = ahead;
                last
            }
            _ => first,
        };
        let letter = |letter: char| match letter.is_alphanumeric() {
            true => letter.to_string(),
            false => format!("\\x{{{:x}}}", u32::from(letter)),
        };
        match first.cmp(&last) {
            Ordering::Less => class.push_str(&format!("{}-{}", letter(first), letter(last))),
            Ordering::Equal => class.push_str(&letter(first)),
            Ordering::Greater => {}
        }
    }
    Some(match (class.is_empty(), is_negated) {
        (true, true) => ".".to_owned(),
        (true, false) => EMPTY_CLASS.to_owned(),
        (false, true) => format!("[^{class}]"),
        (false, false) => format!("[{class}]"),
    })
}

/// Inlines the values of `WITH 30 AS low, (SELECT max(x) FROM t) AS most SELECT …` where their names stand.
fn inline_with_values(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while let Some(with) =
        (at..tokens.len()).find(|at| is_unquoted_word(Some(&tokens[*at].token), "WITH"))
    {
        at = with + 1;
        let Some((items, end)) = parse_with_items(tokens, with + 1) else { continue };
        if items.iter().all(|item| item.name.is_none()) {
            continue;
        }
        let kept: Vec<TokenWithSpan> = items
            .iter()
            .filter(|item| item.name.is_none())
            .map(|item| tokens[item.start..item.end].to_vec())
            .reduce(|mut all, more| {
                let span = all.last().map_or(tokens[with].span, |token| token.span);
                all.push(TokenWithSpan { token: Token::Comma, span });
                all.extend(more);
                all
            })
            .unwrap_or_default();
        let values: Vec<(String, Vec<TokenWithSpan>)> = items
            .iter()
            .filter_map(|item| {
                Some((item.name.clone()?, tokens[item.start..item.value_end].to_vec()))
            })
            .collect();
        // The query that follows WITH.
        let close = find_query_end(tokens, end);
        let body = substitute_values(&tokens[end..close], &values);
        let mut made = Vec::new();
        if !kept.is_empty() {
            made.push(tokens[with].clone());
            let span = tokens[with].span;
            made.push(TokenWithSpan { token: Token::Whitespace(Whitespace::Space), span });
            made.extend(substitute_values(&kept, &values));
        }
        let span = tokens[with].span;
        made.push(TokenWithSpan { token: Token::Whitespace(Whitespace::Space), span });
        made.extend(body);
        tokens.splice(with..close, made);
    }
}

/// An item of a WITH: `value AS name`, or a table, for which `name` is `None`.
struct WithItem {
    start: usize,
    value_end: usize,
    end: usize,
    name: Option<String>,
}

/// Returns the items of a WITH and the index at which its query begins; `None` if the tokens are no such
/// WITH.
fn parse_with_items(tokens: &[TokenWithSpan], from: usize) -> Option<(Vec<WithItem>, usize)> {
    let mut items = Vec::new();
    let mut start = from;
    loop {
        let mut depth = 0usize;
        let mut last_as = None;
        let mut end = None;
        for (at, token) in tokens.iter().enumerate().skip(start) {
            match &token.token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => depth = depth.checked_sub(1)?,
                Token::Comma if depth == 0 => {
                    end = Some((at, true));
                    break;
                }
                word if depth == 0 && is_unquoted_word(Some(word), "AS") => last_as = Some(at),
                word if depth == 0 && is_unquoted_word(Some(word), "SELECT") => {
                    end = Some((at, false));
                    break;
                }
                Token::SemiColon | Token::EOF => return None,
                _ => {}
            }
        }
        let (end, is_more) = end?;
        let named = last_as.and_then(|last_as| {
            let (place, Token::Word(name)) = next_token(tokens, last_as + 1)? else { return None };
            let is_last = next_token(tokens, place + 1).is_some_and(|(at, _)| at >= end);
            let is_name = name.quote_style.is_some() || name.keyword == Keyword::NoKeyword;
            (is_last && is_name).then(|| (last_as, name.value.clone()))
        });
        items.push(match named {
            Some((value_end, name)) => WithItem { start, value_end, end, name: Some(name) },
            None => WithItem { start, value_end: end, end, name: None },
        });
        if !is_more {
            return Some((items, end));
        }
        start = end + 1;
    }
}

/// Returns the tokens with parenthesized values in place of their names.
fn substitute_values(
    tokens: &[TokenWithSpan],
    values: &[(String, Vec<TokenWithSpan>)],
) -> Vec<TokenWithSpan> {
    let mut made = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        let value = match &token.token {
            Token::Word(word) => values.iter().find(|(name, _)| *name == word.value),
            _ => None,
        };
        let is_alone = !matches!(previous_token(tokens, at), Some(Token::Period))
            && !is_unquoted_word(previous_token(tokens, at), "AS")
            && !matches!(next_token(tokens, at + 1), Some((_, Token::Period | Token::LParen)));
        match value {
            Some((_, value)) if is_alone => {
                let span = token.span;
                made.push(TokenWithSpan { token: Token::LParen, span });
                made.extend(
                    value.iter().map(|token| TokenWithSpan { token: token.token.clone(), span }),
                );
                made.push(TokenWithSpan { token: Token::RParen, span });
            }
            _ => made.push(token.clone()),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation::tokenize_sql;

    #[test]
    fn glob_matches_as_in_duckdb() {
        for (text, pattern, expected) in [
            ("*", r"\*", true),
            ("a", r"\*", false),
            ("a", r"\a", true),
            ("", r"\", false),
            ("a-", "[a-][a-]", true),
            ("3]", "[]3][]]", true),
            ("]", "[!]]", false),
            ("a", "[!]]", true),
            ("^", "[^]", true),
            ("a", "[^a]", true),
            ("3", "[3-", false),
            ("[", "[", false),
            ("b", "[c-a]", false),
            ("b", "[!c-a]", true),
            ("-", "[---]", true),
            ("d", "[a-ce-f]", false),
            (r"\", r"[\b]", true),
            ("a\nb", "a?b", true),
            ("é", "?", true),
            ("", "**", true),
            ("x.c", "[a-z].c", true),
            ("xyc", "[a-z].c", false),
        ] {
            let regex = regex::Regex::new(&glob_regex(pattern)).unwrap();
            assert_eq!(regex.is_match(text), expected, "'{text}' GLOB '{pattern}': {regex}");
        }
    }

    #[test]
    fn clause_tokens_are_rewritten_for_parser() {
        for (sql, expected) in [
            ("WHERE a NOTNULL AND b ISNULL", "WHERE a IS NOT NULL AND b IS NULL"),
            ("SELECT isnull(a), mod(a, 2)", "SELECT isnull(a), mod(a, 2)"),
            (
                "WITH t AS NOT MATERIALIZED (SELECT 1) SELECT 7 MOD 3",
                "WITH t AS (SELECT 1) SELECT 7 % 3",
            ),
            ("a GLOBAL NOT IN (SELECT 1)", "a NOT IN (SELECT 1)"),
            ("'b' IN e.tags AND c NOT IN tags", "'b' = ANY (e.tags) AND c <> ALL (tags)"),
            ("a IN (1, 2) OR a NOT IN f(x)", "a IN (1, 2) OR a NOT IN f(x)"),
            ("a JOIN b USING id, k WHERE x", "a JOIN b USING (id, k) WHERE x"),
            ("a JOIN b USING (id)", "a JOIN b USING (id)"),
            ("SELECT * LIKE 'm%' FROM t", "SELECT COLUMNS(c -> c LIKE 'm%') FROM t"),
            ("SELECT a, * NOT SIMILAR TO 'x'", "SELECT a, COLUMNS(c -> c NOT SIMILAR TO 'x')"),
            ("x GLOB '[!B-D]*.c'", "x ~ '(?s)^[^B-D].*\\.c$'"),
            ("LIMIT 3 WITH TIES", "FETCH FIRST 3 ROWS WITH TIES"),
            ("LIMIT 20%", "FETCH FIRST 20 PERCENT ROWS ONLY"),
            ("LIMIT 20 % 3", "LIMIT 20 % 3"),
            ("WITH 30 AS low SELECT x.low, x > low AS low", "SELECT x.low, x > ( 30 ) AS low"),
            (
                "WITH t AS (SELECT 1 AS a), (SELECT max(a) FROM t) AS most SELECT most FROM t",
                "WITH t AS (SELECT 1 AS a) SELECT ( (SELECT max(a) FROM t) ) FROM t",
            ),
            ("WITH t AS (SELECT 1) SELECT * FROM t", "WITH t AS (SELECT 1) SELECT * FROM t"),
        ] {
            let made = rewrite_clause_tokens(tokenize_sql(sql).unwrap());
            let text: String = made.iter().map(|token| token.token.to_string()).collect();
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&text), words(expected), "{sql}");
        }
    }
}
