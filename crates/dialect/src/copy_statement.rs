//! Parser of `COPY (SELECT …) TO 'file' (FORMAT parquet)`: the query, the output and the options.
//!
//! DuckDB, PostgreSQL and others write options in more ways than the parser accepts, so this module parses
//! tokens. The query stays text, as all callers run query text. Spaces replace the text before it, so that a
//! message about line 2, column 5 of the query points into the statement.

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use tidemill_base::error::{Error, Result};

use crate::error_translation::IntoTidemillError;
use crate::parameters::{byte_offset, line_start_offsets};
use crate::statement::blank_text;
use crate::syntax::TidemillDialect;

/// The syntax that messages show.
const COPY_SYNTAX: &str = "COPY (SELECT …) TO 'out.parquet' (FORMAT parquet, OVERWRITE_OR_IGNORE)";

/// A `COPY … TO` statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStatement {
    /// The query whose rows are written.
    pub query: String,
    /// The output as the user wrote it: a path, a URL or a template; `-` for `STDOUT`.
    pub target: String,
    /// The options, in the order of the statement.
    pub options: Vec<CopyOption>,
}

/// An option of a `COPY … TO` statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOption {
    /// The name in upper case.
    pub name: String,
    /// The values: empty for a name alone, several for a parenthesized list.
    pub values: Vec<String>,
}

impl CopyStatement {
    /// Parses a text that begins with `COPY`; returns `None` for every other text.
    ///
    /// # Errors
    /// [`Error::Usage`] for `COPY … FROM`, and for an invalid `COPY … TO`.
    pub fn parse(sql: &str) -> Result<Option<Self>> {
        let tokens = match Tokenizer::new(&TidemillDialect, sql).tokenize_with_location() {
            Ok(tokens) => tokens,
            Err(_) if !starts_with_copy(sql) => return Ok(None),
            Err(error) => {
                return Err(DataFusionError::from(ParserError::from(error)).into_tidemill_error());
            }
        };
        let tokens: Vec<TokenWithSpan> = tokens
            .into_iter()
            .filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF))
            .collect();
        let mut reader = CopyTokenReader {
            sql,
            line_starts: line_start_offsets(sql),
            tokens: &tokens,
            position: 0,
        };
        if !reader.take_word("COPY") {
            return Ok(None);
        }
        reader.parse_statement().map(Some)
    }
}

/// Returns true if the first word of a text is `COPY`.
fn starts_with_copy(sql: &str) -> bool {
    sql.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("COPY"))
}

/// A cursor over the tokens of a statement, without whitespace and comments.
struct CopyTokenReader<'a> {
    sql: &'a str,
    line_starts: Vec<usize>,
    tokens: &'a [TokenWithSpan],
    position: usize,
}

impl CopyTokenReader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.position).map(|token| &token.token)
    }

    fn is_word(&self, expected: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(word))
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
    }

    fn take_word(&mut self, expected: &str) -> bool {
        let is_it = self.is_word(expected);
        self.position += usize::from(is_it);
        is_it
    }

    fn take_token(&mut self, expected: &Token) -> bool {
        let is_it = self.peek() == Some(expected);
        self.position += usize::from(is_it);
        is_it
    }

    /// Returns the error for the next token, which stands where `wanted` should.
    fn unexpected_token_error(&self, wanted: &str) -> Error {
        let found = match self.peek() {
            Some(token) => format!("`{token}`"),
            None => "the end".to_owned(),
        };
        Error::usage_with_hint(format!("COPY has {found} where {wanted} should stand"), COPY_SYNTAX)
    }

    fn byte_offset_of(&self, location: Location) -> Result<usize> {
        byte_offset(self.sql, &self.line_starts, location)
            .ok_or_else(|| Error::Internal(format!("no place in the SQL at {location}")))
    }

    /// Returns the text of the tokens from index `from` up to `to`.
    fn text_between(&self, from: usize, to: usize) -> Result<&str> {
        let (Some(first), Some(last)) =
            (self.tokens.get(from), to.checked_sub(1).and_then(|last| self.tokens.get(last)))
        else {
            return Ok("");
        };
        let (start, end) =
            (self.byte_offset_of(first.span.start)?, self.byte_offset_of(last.span.end)?);
        Ok(self.sql.get(start..end).unwrap_or_default())
    }

    /// Returns the index of the parenthesis that closes the one before the next token.
    fn find_closing_parenthesis(&self) -> Result<usize> {
        let mut depth = 0usize;
        for (at, token) in self.tokens.iter().enumerate().skip(self.position) {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 0 => return Ok(at),
                Token::RParen => depth -= 1,
                _ => {}
            }
        }
        Err(Error::usage_with_hint("a `(` of COPY has no `)`", COPY_SYNTAX))
    }

    fn parse_statement(&mut self) -> Result<CopyStatement> {
        if self.is_word("FROM") {
            return Err(copy_from_error());
        }
        let query = match self.take_token(&Token::LParen) {
            true => self.parse_query()?,
            false => self.parse_table()?,
        };
        if self.is_word("FROM") {
            return Err(copy_from_error());
        }
        if !self.take_word("TO") {
            return Err(self.unexpected_token_error("TO"));
        }
        let target = match self.peek() {
            Some(
                Token::SingleQuotedString(path)
                | Token::EscapedStringLiteral(path)
                | Token::DollarQuotedString(datafusion::sql::sqlparser::ast::DollarQuotedString {
                    value: path,
                    ..
                }),
            ) => path.clone(),
            Some(Token::Word(_)) if self.is_word("STDOUT") => "-".to_owned(),
            _ => return Err(self.unexpected_token_error("a file in single quotes")),
        };
        self.position += 1;
        self.take_word("WITH");
        let options = match self.take_token(&Token::LParen) {
            true => self.parse_options()?,
            false => Vec::new(),
        };
        while self.take_token(&Token::SemiColon) {}
        match self.peek() {
            None => Ok(CopyStatement { query, target, options }),
            Some(Token::Word(_)) if options.is_empty() => {
                let wanted = "the end, or options in brackets: (FORMAT csv, HEADER),";
                Err(self.unexpected_token_error(wanted))
            }
            Some(_) => Err(self.unexpected_token_error("the end")),
        }
    }

    /// Parses the query in parentheses after the opening one.
    fn parse_query(&mut self) -> Result<String> {
        let end = self.find_closing_parenthesis()?;
        if end == self.position {
            return Err(self.unexpected_token_error("a query"));
        }
        let first = self
            .tokens
            .get(self.position)
            .map_or(Ok(0), |token| self.byte_offset_of(token.span.start))?;
        let before = self.sql.get(..first).unwrap_or_default();
        let query = blank_text(before) + self.text_between(self.position, end)?;
        self.position = end + 1;
        Ok(query)
    }

    /// Parses a table, and returns the query of its rows: a file in single quotes or a name, with optional
    /// columns in parentheses.
    fn parse_table(&mut self) -> Result<String> {
        let from = self.position;
        match self.peek() {
            Some(Token::SingleQuotedString(_)) => self.position += 1,
            Some(Token::Word(_)) => {
                self.position += 1;
                while self.take_token(&Token::Period) {
                    self.position += 1;
                }
            }
            _ => return Err(self.unexpected_token_error("a query in brackets or a table")),
        }
        let table = self.text_between(from, self.position)?.to_owned();
        if !self.take_token(&Token::LParen) {
            return Ok(format!("SELECT * FROM {table}"));
        }
        let end = self.find_closing_parenthesis()?;
        let columns = self.text_between(self.position, end)?.to_owned();
        self.position = end + 1;
        Ok(format!("SELECT {columns} FROM {table}"))
    }

    /// Parses the options in parentheses after the opening one.
    fn parse_options(&mut self) -> Result<Vec<CopyOption>> {
        let mut options: Vec<CopyOption> = Vec::new();
        if self.take_token(&Token::RParen) {
            return Ok(options);
        }
        loop {
            let name = match self.peek() {
                Some(Token::Word(word)) if word.quote_style.is_none() => word.value.to_uppercase(),
                _ => return Err(self.unexpected_token_error("an option's name")),
            };
            self.position += 1;
            if options.iter().any(|option| option.name == name) {
                return Err(Error::usage(format!("COPY has the option {name} twice")));
            }
            let is_named = self.take_token(&Token::Eq);
            let values = match self.peek() {
                Some(Token::Comma | Token::RParen) if !is_named => Vec::new(),
                Some(Token::LParen) => {
                    self.position += 1;
                    let mut values = vec![self.parse_option_value()?];
                    while self.take_token(&Token::Comma) {
                        values.push(self.parse_option_value()?);
                    }
                    if !self.take_token(&Token::RParen) {
                        return Err(self.unexpected_token_error("`,` or `)`"));
                    }
                    values
                }
                _ => vec![self.parse_option_value()?],
            };
            options.push(CopyOption { name, values });
            if self.take_token(&Token::RParen) {
                return Ok(options);
            }
            if !self.take_token(&Token::Comma) {
                return Err(self.unexpected_token_error("`,` or `)`"));
            }
        }
    }

    /// Parses the value of an option: a quoted text, a word or a number.
    fn parse_option_value(&mut self) -> Result<String> {
        let value = match self.peek() {
            Some(Token::Word(word)) => word.value.clone(),
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => {
                text.clone()
            }
            Some(Token::Number(number, _)) => number.clone(),
            _ => return Err(self.unexpected_token_error("an option's value")),
        };
        self.position += 1;
        Ok(value)
    }
}

fn copy_from_error() -> Error {
    Error::usage_with_hint(
        "COPY … FROM loads a table, and there are no tables to load",
        "a file is a table where it lies: SELECT * FROM 'file.csv'; COPY (SELECT …) TO 'file' writes one",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(name: &str, values: &[&str]) -> CopyOption {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        CopyOption { name: name.to_owned(), values }
    }

    #[test]
    fn copy_statements_are_parsed() {
        let check = |sql: &str, query: &str, target: &str, options: &[CopyOption]| {
            let found = CopyStatement::parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            let found = found.unwrap_or_else(|| panic!("{sql} is no COPY"));
            assert_eq!(found.query, query, "{sql}");
            assert_eq!(found.target, target, "{sql}");
            assert_eq!(found.options, options, "{sql}");
        };
        check("COPY (SELECT 1) TO 'a.csv'", "      SELECT 1", "a.csv", &[]);
        check("copy 'é' TO 'b';;", "SELECT * FROM 'é'", "b", &[]);
        check("-- é\nCOPY (\n  SELECT (1)) TO STDOUT", "    \n      \n  SELECT (1)", "-", &[]);
        check("COPY t (a, \"b c\") TO 'x'", "SELECT a, \"b c\" FROM t", "x", &[]);
        check("COPY s.\"t\" TO 'x' ()", "SELECT * FROM s.\"t\"", "x", &[]);
        check(
            "COPY t TO 'o''k' WITH (format = parquet, PARTITION_BY (a, \"B\"), header, delim E'\\t', level 9)",
            "SELECT * FROM t",
            "o'k",
            &[
                option("FORMAT", &["parquet"]),
                option("PARTITION_BY", &["a", "B"]),
                option("HEADER", &[]),
                option("DELIM", &["\t"]),
                option("LEVEL", &["9"]),
            ],
        );
        for other in ["SELECT 1", "", "'COPY", "\"COPY\" x", "WITH copy AS (SELECT 1) FROM copy"] {
            assert_eq!(CopyStatement::parse(other).unwrap(), None, "{other}");
        }
    }

    #[test]
    fn invalid_copy_is_refused_with_found_token() {
        for (sql, expected) in [
            ("COPY t FROM 'a.csv'", "COPY … FROM loads a table"),
            ("COPY FROM DATABASE a TO b", "COPY … FROM loads a table"),
            ("COPY t (a) FROM 'a.csv' (HEADER)", "COPY … FROM loads a table"),
            ("COPY", "COPY has the end where a query in brackets or a table should stand"),
            ("COPY () TO 'x'", "COPY has `)` where a query should stand"),
            ("COPY (SELECT 1 TO 'x'", "a `(` of COPY has no `)`"),
            ("COPY (SELECT 1) 'x'", "COPY has `'x'` where TO should stand"),
            ("COPY t TO x", "COPY has `x` where a file in single quotes should stand"),
            ("COPY t TO 'x' CSV HEADER", "COPY has `CSV` where the end, or options in brackets"),
            ("COPY t TO 'x'; SELECT 1", "COPY has `SELECT` where the end"),
            ("COPY t TO 'x' (FORMAT)) ", "COPY has `)` where the end should stand"),
            ("COPY t TO 'x' (HEADER, HEADER)", "COPY has the option HEADER twice"),
            ("COPY t TO 'x' (5)", "COPY has `5` where an option's name should stand"),
            ("COPY t TO 'x' (FORMAT =)", "COPY has `)` where an option's value should stand"),
            ("COPY t TO 'x' (FORMAT csv HEADER)", "COPY has `HEADER` where `,` or `)` should"),
            ("COPY t TO 'x", "SQL is not understood: Unterminated string literal"),
        ] {
            let error = CopyStatement::parse(sql).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{sql}: {error}");
        }
    }
}
