//! Substitution of parameters in SQL text: `$1`, `?` and `:name`.
//!
//! Each value becomes a literal in the text before any other processing, so that partial tables and the job
//! log hold a complete statement. A value always becomes a single literal, whatever it contains: it is
//! written in SQL's syntax instead of being copied.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use tidemill_base::error::{Error, Result};
use tidemill_base::hex::encode_hex;
use tidemill_base::{redaction, suggestions};

use crate::syntax::TidemillDialect;

/// A value for a parameter of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryParameter {
    /// NULL.
    Null,
    /// A boolean.
    Boolean(bool),
    /// A number in SQL's syntax: `-1.5e3`.
    Number(String),
    /// A text.
    Text(String),
    /// A text with a type keyword before it: `DATE '2026-11-20'`.
    TypedLiteral(&'static str, String),
    /// A type, and a text that is cast to it.
    Cast(String, String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list of values, which is also the list of `x IN $1`.
    List(Vec<QueryParameter>),
}

impl QueryParameter {
    /// Parses a parameter from the command line: a number, `true`, `false` or `null` if it reads as one, a
    /// text otherwise. Single quotes mark a text.
    pub fn from_text(text: &str) -> Self {
        let quoted = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        if let Some(inner) = quoted {
            return QueryParameter::Text(inner.replace("''", "'"));
        }
        match text.to_ascii_lowercase().as_str() {
            "null" => QueryParameter::Null,
            "true" => QueryParameter::Boolean(true),
            "false" => QueryParameter::Boolean(false),
            _ if is_sql_number(text) => QueryParameter::Number(text.to_owned()),
            _ => QueryParameter::Text(text.to_owned()),
        }
    }

    /// Returns the value as a literal.
    fn to_literal(&self) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        match self {
            QueryParameter::Null => "NULL".into(),
            QueryParameter::Boolean(yes) => if *yes { "TRUE" } else { "FALSE" }.into(),
            // Parenthesized, since another minus may stand before it.
            QueryParameter::Number(number) if number.starts_with('-') => format!("({number})"),
            QueryParameter::Number(number) => number.clone(),
            QueryParameter::Text(text) => quoted(text),
            QueryParameter::TypedLiteral(of, text) => format!("({of} {})", quoted(text)),
            QueryParameter::Cast(to, text) => format!("CAST({} AS {to})", quoted(text)),
            QueryParameter::Bytes(bytes) => format!("X'{}'", encode_hex(bytes)),
            QueryParameter::List(items) => format!("[{}]", comma_separated_literals(items)),
        }
    }

    /// Returns the value as the parenthesized list of `IN`.
    fn to_in_list(&self) -> String {
        match self {
            // SQL has no empty list; no value is in an empty subquery.
            QueryParameter::List(items) if items.is_empty() => "(SELECT NULL WHERE FALSE)".into(),
            QueryParameter::List(items) => format!("({})", comma_separated_literals(items)),
            one => format!("({})", one.to_literal()),
        }
    }
}

fn comma_separated_literals(items: &[QueryParameter]) -> String {
    items.iter().map(QueryParameter::to_literal).collect::<Vec<_>>().join(", ")
}

/// Returns true if a text is a number in SQL's syntax, with an optional sign.
fn is_sql_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, Some(exponent)),
        None => (text, None),
    };
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
    // A number with leading zeros is a name, such as a zip code or an hour.
    let is_plain = whole == "0" || !whole.starts_with('0');
    all_digits(whole) && all_digits(part) && is_plain && exponent.is_none_or(all_digits)
}

/// Returns the statement with values in place of its parameters. The names of parameters have no `$` or `:`;
/// `$1` and the first `?` are called `1`.
///
/// # Errors
/// [`Error::Usage`] for a parameter without a value, and for a value without a parameter.
pub fn substitute_parameters(sql: &str, parameters: &[(String, QueryParameter)]) -> Result<String> {
    for (name, value) in parameters {
        if let QueryParameter::Text(text) | QueryParameter::Number(text) = value {
            redaction::register_secret_value(name, text);
        }
    }
    // Parsing reports invalid SQL later.
    let Ok(tokens) = Tokenizer::new(&TidemillDialect, sql).tokenize_with_location() else {
        return Ok(sql.to_owned());
    };
    let places = find_occurrences(&tokens);
    if places.is_empty() && parameters.is_empty() {
        return Ok(sql.to_owned());
    }
    let starts = line_start_offsets(sql);
    let mut made = String::with_capacity(sql.len());
    let mut copied = 0;
    let mut used = vec![false; parameters.len()];
    for place in &places {
        let found = parameters.iter().position(|(name, _)| *name == place.name);
        let Some(found) = found else { return Err(missing_value_error(place, parameters)) };
        used[found] = true;
        let (Some(start), Some(end)) =
            (byte_offset(sql, &starts, place.start), byte_offset(sql, &starts, place.end))
        else {
            return Err(Error::Internal(format!("no place for `{}`", place.source_text)));
        };
        made.push_str(sql.get(copied..start).unwrap_or_default());
        let value = &parameters[found].1;
        made.push_str(&if place.follows_in { value.to_in_list() } else { value.to_literal() });
        copied = end;
    }
    made.push_str(sql.get(copied..).unwrap_or_default());
    match used.iter().position(|used| !used) {
        Some(unused) => Err(unused_parameter_error(&parameters[unused].0, &places)),
        None => Ok(made),
    }
}

/// An occurrence of a parameter in the text.
struct ParameterOccurrence {
    name: String,
    source_text: String,
    start: Location,
    end: Location,
    /// True if the parameter follows `IN` without parentheses.
    follows_in: bool,
}

fn find_occurrences(tokens: &[TokenWithSpan]) -> Vec<ParameterOccurrence> {
    let mut found: Vec<ParameterOccurrence> = Vec::new();
    let mut marks = 0;
    for (at, TokenWithSpan { token, span }) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1);
        let is_behind_in = ends_with_in(tokens.get(..at).unwrap_or_default());
        match token {
            Token::Placeholder(written) => {
                let name = match written.trim_start_matches(['$', ':', '?', '@']) {
                    "" => {
                        marks += 1;
                        format!("{marks}")
                    }
                    name => name.to_owned(),
                };
                let written = written.clone();
                let (start, end) = (span.start, span.end);
                found.push(ParameterOccurrence {
                    name,
                    source_text: written,
                    start,
                    end,
                    follows_in: is_behind_in,
                });
            }
            Token::Colon if can_precede_value(at.checked_sub(1).and_then(|at| tokens.get(at))) => {
                let Some(TokenWithSpan { token: Token::Word(word), span: name }) = next else {
                    continue;
                };
                if word.quote_style.is_none() && name.start == span.end {
                    let (name, end) = (word.value.clone(), name.end);
                    let (written, start) = (format!(":{name}"), span.start);
                    found.push(ParameterOccurrence {
                        name,
                        source_text: written,
                        start,
                        end,
                        follows_in: is_behind_in,
                    });
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns true if the last word of these tokens is `IN`.
fn ends_with_in(tokens: &[TokenWithSpan]) -> bool {
    let last = tokens.iter().rev().find(|token| !matches!(token.token, Token::Whitespace(_)));
    matches!(last.map(|last| &last.token), Some(Token::Word(word)) if word.keyword == Keyword::IN)
}

/// Returns true if a value may follow a token, as opposed to the end of a slice or the value of a key.
fn can_precede_value(before: Option<&TokenWithSpan>) -> bool {
    match before.map(|token| &token.token) {
        None
        | Some(
            Token::Whitespace(_)
            | Token::LParen
            | Token::Comma
            | Token::Eq
            | Token::DoubleEq
            | Token::Neq
            | Token::Lt
            | Token::Gt
            | Token::LtEq
            | Token::GtEq
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat,
        ) => true,
        Some(_) => false,
    }
}

fn missing_value_error(
    place: &ParameterOccurrence,
    parameters: &[(String, QueryParameter)],
) -> Error {
    let ParameterOccurrence { name, source_text: written, .. } = place;
    let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    let given = match names.is_empty() {
        true => String::new(),
        false => format!("; given: {}", suggestions::format_name_list(&names)),
    };
    Error::usage_with_hint(
        format!("parameter `{written}` has no value"),
        format!("give it one: --param {name}=VALUE, from Python params={{'{name}': …}}{given}"),
    )
}

fn unused_parameter_error(name: &str, places: &[ParameterOccurrence]) -> Error {
    let written: Vec<&str> = places.iter().map(|place| place.source_text.as_str()).collect();
    let hint = match written.is_empty() {
        true => "the SQL has no parameter; it would be written $1 or :name".to_owned(),
        false => format!("the SQL has {}", suggestions::format_name_list(&written)),
    };
    Error::usage_with_hint(format!("the SQL has no parameter `{name}`"), hint)
}

/// Returns the byte offset of each line of a text.
pub(crate) fn line_start_offsets(text: &str) -> Vec<usize> {
    let ends = text.match_indices('\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).collect()
}

/// Returns the byte offset of a line and column, both counted from one.
pub(crate) fn byte_offset(text: &str, starts: &[usize], location: Location) -> Option<usize> {
    let line = usize::try_from(location.line).ok()?.checked_sub(1)?;
    let start = *starts.get(line)?;
    let column = usize::try_from(location.column).ok()?.checked_sub(1)?;
    let rest = text.get(start..)?;
    let mut places = rest.char_indices().map(|(at, _)| at).chain(std::iter::once(rest.len()));
    places.nth(column).map(|at| start + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(sql: &str, parameters: &[(&str, &str)], expected: &str) {
        let parameters: Vec<(String, QueryParameter)> = parameters
            .iter()
            .map(|(name, value)| ((*name).to_owned(), QueryParameter::from_text(value)))
            .collect();
        let found =
            substitute_parameters(sql, &parameters).unwrap_or_else(|error| error.to_string());
        assert_eq!(found.lines().next(), expected.lines().next(), "{sql}");
        assert!(found.starts_with(expected), "{sql}: {found}");
    }

    #[test]
    fn values_are_substituted_as_literals() {
        check("SELECT $1, $2", &[("1", "5"), ("2", "a'b")], "SELECT 5, 'a''b'");
        check("SELECT ?, ?", &[("1", "x"), ("2", "null")], "SELECT 'x', NULL");
        check(
            "a = :day AND b>:n",
            &[("day", "2026-11-20"), ("n", "-3")],
            "a = '2026-11-20' AND b>(-3)",
        );
        check("x-$1", &[("1", "-1")], "x-(-1)");
        check("SELECT :a,\n  'é :a', (:a)", &[("a", "true")], "SELECT TRUE,\n  'é :a', (TRUE)");
        check("$zip", &[("zip", "01234")], "'01234'");
        check("$n", &[("n", "'5'")], "'5'");
        check("$x, $x", &[("x", "1.5e-3")], "1.5e-3, 1.5e-3");
    }

    #[test]
    fn values_of_every_kind_become_literals() {
        let list = |items: &[&str]| {
            QueryParameter::List(items.iter().map(|item| QueryParameter::from_text(item)).collect())
        };
        let check = |sql: &str, value: QueryParameter, expected: &str| {
            let made = substitute_parameters(sql, &[("x".to_owned(), value)]).unwrap();
            assert_eq!(made, expected, "{sql}");
        };
        let typed = |of, text: &str| QueryParameter::TypedLiteral(of, text.to_owned());
        let cast = |to: &str, text: &str| QueryParameter::Cast(to.to_owned(), text.to_owned());
        check("$x", typed("DATE", "2026-11-20"), "(DATE '2026-11-20')");
        check("$x", cast("DECIMAL(3, 2)", "1.10"), "CAST('1.10' AS DECIMAL(3, 2))");
        check("$x", cast("DOUBLE", "a'b"), "CAST('a''b' AS DOUBLE)");
        check("$x", QueryParameter::Bytes(vec![0, 10, 255]), "X'000aff'");
        check("$x", list(&["1", "a", "null"]), "[1, 'a', NULL]");
        check("a IN $x", list(&["1", "-2"]), "a IN (1, (-2))");
        check("a NOT in\n:x OR b", list(&["a"]), "a NOT in\n('a') OR b");
        check("a IN $x", list(&[]), "a IN (SELECT NULL WHERE FALSE)");
        check("a IN $x", QueryParameter::from_text("5"), "a IN (5)");
        check("a IN ($x, 7)", QueryParameter::from_text("5"), "a IN (5, 7)");
        check("[$x]", list(&["1", "2"]), "[[1, 2]]");
    }

    #[test]
    fn text_without_parameters_is_unchanged() {
        check("SELECT l[1:2], x::INT, {'a':b}", &[], "SELECT l[1:2], x::INT, {'a':b}");
        check("SELECT '$1' -- $1", &[], "SELECT '$1' -- $1");
    }

    #[test]
    fn missing_and_unused_values_are_refused() {
        check("SELECT $1", &[], "parameter `$1` has no value");
        check("SELECT 1", &[("a", "1")], "the SQL has no parameter `a`");
    }

    proptest! {
        #[test]
        fn any_text_becomes_exactly_one_literal(text in any::<String>()) {
            let parameters = [("x".to_owned(), QueryParameter::Text(text.clone()))];
            let made = substitute_parameters("SELECT $x", &parameters).unwrap();
            let tokens = Tokenizer::new(&TidemillDialect, &made).tokenize().unwrap();
            prop_assert_eq!(tokens.last(), Some(&Token::SingleQuotedString(text)));
            prop_assert_eq!(tokens.len(), 3);
        }

        #[test]
        fn arbitrary_sql_does_not_panic(sql in any::<String>()) {
            let _ = substitute_parameters(&sql, &[]);
        }
    }
}
