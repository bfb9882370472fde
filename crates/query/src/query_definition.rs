//! What is asked: SQL, and what its sources are.

use std::sync::Arc;

use tidemill_base::error::{Error, Result};
use tidemill_base::suggestions;
use tidemill_sink::SinkSpec;
use tidemill_source::SourceSpec;
use tidemill_sql::parameters::{self, QueryParameter};
use tidemill_sql::session::StableSort;

use crate::tasks::{DistributedOutput, ScratchSpec, WorkerPool};
use crate::turbo::TurboSettings;

/// A source with the name that SQL knows it by.
#[derive(Debug, Clone)]
pub struct NamedSource {
    /// The name; one source alone is called `source`.
    pub name: String,
    /// What it is.
    pub spec: SourceSpec,
}

/// A question: SQL, and what its sources are.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// One `SELECT`. Files are named in quotes: `FROM 'logs/*.csv'`.
    pub sql: String,
    /// Sources with names.
    pub sources: Vec<NamedSource>,
    /// Format, options and schema of files that the SQL names; the URL is not looked at.
    pub file_defaults: SourceSpec,
    /// A part of `sql` that has to be per record: a job's map. It is checked, not run.
    pub map_sql: Option<String>,
    /// Whether all of `sql` has to be per record: a conversion.
    pub is_per_record: bool,
    /// Whether the result's columns are what the source's files have, in every respect: required,
    /// categories, with what is said of them. For `SELECT *` over one source.
    pub keeps_columns: bool,
    /// That rows which tie under its ORDER BY keep the order in which the source has them. For `SELECT *` over one
    /// source.
    pub stable_sort: Option<StableSort>,
    /// When the answer may rest on a part of the input. Default: never.
    pub turbo: Option<TurboSettings>,
    /// Column types that override inference, as SQL has them: `id BIGINT, ts TIMESTAMP`. For
    /// sources without a schema of their own.
    pub schema: Option<String>,
    /// What `now()` is, in nanoseconds since 1970. Default: the time when it is planned.
    pub now_ns: Option<i64>,
    /// Who reads the splits of its largest source. Default: this process.
    pub workers: Option<Arc<dyn WorkerPool>>,
    /// Whether a query that workers do not do is run by this process, with a warning. Default: it is refused.
    pub may_run_locally: bool,
    /// Splits that so many workers ended over, one after the other, fail the query. Default: 4.
    pub split_attempts_max: Option<usize>,
    /// How what is too large to be sent goes between workers.
    pub scratch: ScratchSpec,
    /// Where its rows are written, if workers may do that: then files are taken [from it](Output::take_written) in the end.
    /// Whoever gives it says where these are [in the making](Output::open). Default: whoever asks is given all rows.
    pub output: Option<DistributedOutput>,
}

impl Query {
    /// The query that reads `columns` of one source, or all of them, where `condition` holds.
    /// `a.b` is field `b` of column `a`.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no column, or the condition is not one.
    pub fn select_columns(
        spec: SourceSpec,
        columns: Option<&[String]>,
        condition: Option<&str>,
    ) -> Result<Self> {
        let item = |column: &String| match column.contains('.') {
            false => quote_identifier(column),
            true => {
                let path: Vec<String> = column.split('.').map(quote_identifier).collect();
                format!("{} AS {}", path.join("."), quote_identifier(column))
            }
        };
        let list = match columns {
            Some([]) => return Err(Error::usage("no column is asked for")),
            Some(columns) => columns.iter().map(item).collect::<Vec<_>>().join(", "),
            None => "*".into(),
        };
        Self::select_from_source(spec, &list, condition)
    }

    /// The query that gives `select`, columns and expressions as SQL has them, or all columns, for
    /// each record of one source where `condition` holds.
    ///
    /// # Errors
    /// [`Error::Usage`] if the list is none, or the condition.
    pub fn select_per_record(
        spec: SourceSpec,
        select: Option<&str>,
        condition: Option<&str>,
    ) -> Result<Self> {
        if let Some(select) = select {
            check_select_list(select)?;
        }
        let query = Self::select_from_source(spec, select.unwrap_or("*"), condition)?;
        Ok(Query { is_per_record: true, ..query })
    }

    /// The query that gives all columns of one source, all rows or the first `limit` in the order that `by` says: columns with commas
    /// between them, each with `:asc` or `:desc`, `:nulls-first` or `:nulls-last` behind it if need be. A name
    /// with a comma, a colon or a dot stands in double quotes; `a.b` and `"a"."b"` are field `b` of column `a`. Rows that tie keep the order in which the source has them.
    ///
    /// # Errors
    /// [`Error::Usage`] for what is no order.
    pub fn select_sorted(spec: SourceSpec, by: &str, limit: Option<u64>) -> Result<Self> {
        let order = parse_sort_order(by)?;
        let query = Self::select_from_source(spec, "*", None)?;
        let sql = format!("{}\nORDER BY {order}", query.sql);
        Ok(Query { sql, stable_sort: Some(StableSort { rows_max: limit }), ..query })
    }

    /// The same question of which workers, if it has any, may write the rows where somebody delivers them to.
    #[must_use]
    pub fn with_worker_output(self, spec: &SinkSpec) -> Self {
        let output = self.workers.as_ref().and_then(|_| DistributedOutput::new(spec));
        Query { output, ..self }
    }

    /// The same question with the values of its parameters in their places: `$1` is called `1`, `:name` is
    /// called `name`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a parameter without a value, and for a value without a parameter.
    pub fn with_parameters(self, parameters: &[(String, QueryParameter)]) -> Result<Self> {
        let sql = parameters::substitute_parameters(&self.sql, parameters)?;
        Ok(Query { sql, ..self })
    }

    fn select_from_source(spec: SourceSpec, list: &str, condition: Option<&str>) -> Result<Self> {
        let mut sql = format!("SELECT {list}\nFROM source");
        if let Some(condition) = condition {
            // By itself, so that what follows a condition in SQL is not taken for a part of it.
            check_condition(condition)?;
            sql.push_str(&format!(" WHERE ({condition}\n)"));
        }
        let sources = vec![NamedSource { name: "source".into(), spec }];
        Ok(Query { sql, sources, ..Query::default() })
    }
}

/// What to say of `c.x` where there is no column `c`.
fn dotted_column_error(column: &str) -> Error {
    let outer = column.split('.').next().unwrap_or(column);
    Error::usage_with_hint(
        format!("unknown column `{outer}` in `{column}`"),
        format!("a name with a dot stands in double quotes: --by '\"{column}\"'"),
    )
}

/// What a question for rows in order may have meant by a column that there is not: one whose name has a dot.
pub(crate) fn explain_dotted_column(error: Error, sql: &str, columns: &[&str]) -> Error {
    let is_asked = |name: &&&str| {
        let path: Vec<&str> = name.split('.').collect();
        let quoted: Vec<String> = path.iter().copied().map(quote_identifier).collect();
        path.len() > 1 && !columns.contains(&path[0]) && sql.contains(&quoted.join("."))
    };
    if let Some(name) = columns.iter().find(is_asked) {
        return dotted_column_error(name);
    }
    match &error {
        // The only source has no name that anybody gave it.
        Error::Usage { message, .. } => {
            let unknown = message.strip_prefix("unknown source `");
            match unknown.and_then(|rest| rest.split_once("` in `")) {
                Some((outer, _)) => {
                    Error::usage(suggestions::unknown_name_message("column", outer, columns))
                }
                None => error,
            }
        }
        _ => error,
    }
}

fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// An order as SQL has it behind ORDER BY.
fn parse_sort_order(by: &str) -> Result<String> {
    const HINT: &str = "columns with commas between them, `:desc` behind one whose largest values come first: \
                        country,revenue:desc; `:nulls-first` and `:nulls-last` are there too";
    let mut items = Vec::new();
    let mut rest = by;
    loop {
        let (path, behind) = parse_column_path(rest, HINT)?;
        if path.iter().any(String::is_empty) {
            return Err(Error::usage_with_hint(format!("no column to sort by in `{by}`"), HINT));
        }
        let path: Vec<String> = path.iter().map(|name| quote_identifier(name)).collect();
        let column = path.join(".");
        let (how, more) = match behind.split_once(',') {
            Some((how, more)) => (how, Some(more)),
            None => (behind, None),
        };
        let (mut way, mut nulls) = ("", "");
        let mut words = how.trim().split(':');
        let before = words.next().unwrap_or_default();
        for word in std::iter::once(before).filter(|word| !word.is_empty()).chain(words) {
            match word.trim() {
                "asc" if way.is_empty() && before.is_empty() => way = " ASC",
                "desc" if way.is_empty() && before.is_empty() => way = " DESC",
                "nulls-first" if nulls.is_empty() && before.is_empty() => nulls = " NULLS FIRST",
                "nulls-last" if nulls.is_empty() && before.is_empty() => nulls = " NULLS LAST",
                other => {
                    let message = format!("`{other}` behind {column} is no way to sort");
                    return Err(Error::usage_with_hint(message, HINT));
                }
            }
        }
        items.push(format!("{column}{way}{nulls}"));
        match more {
            Some(more) => rest = more,
            None => return Ok(items.join(", ")),
        }
    }
}

/// The names of a column and its fields, with dots between them, at the beginning of a text, and what is behind them.
/// Each is plain or in double quotes.
fn parse_column_path<'a>(text: &'a str, hint: &str) -> Result<(Vec<String>, &'a str)> {
    let mut path = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let behind = match rest.strip_prefix('"') {
            Some(name) => {
                let mut ends = name.match_indices('"').map(|(at, _)| at);
                // A quote that is doubled is one of the name.
                let end = loop {
                    match ends.next() {
                        Some(at) if name[at + 1..].starts_with('"') => _ = ends.next(),
                        Some(at) => break at,
                        None => {
                            let message = format!("a quote without its end: `{rest}`");
                            return Err(Error::usage_with_hint(message, hint));
                        }
                    }
                };
                path.push(name[..end].replace("\"\"", "\""));
                &name[end + 1..]
            }
            None => {
                let end = rest.find(['.', ',', ':']).unwrap_or(rest.len());
                path.push(rest[..end].trim().to_owned());
                &rest[end..]
            }
        };
        match behind.trim_start().strip_prefix('.') {
            Some(field) => rest = field,
            None => return Ok((path, behind)),
        }
    }
}

/// Checks that a text is a list of columns and expressions.
fn check_select_list(text: &str) -> Result<()> {
    use datafusion::sql::sqlparser::{dialect::GenericDialect, parser::Parser, tokenizer::Token};
    let refused = |reason: String| {
        Error::usage_with_hint(
            format!("`{text}` is not a list of columns: {reason}"),
            "for example: day, origin, distance * 1.609 AS km",
        )
    };
    let mut parser = Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .map_err(|error| refused(error.to_string()))?;
    parser
        .parse_comma_separated(Parser::parse_select_item)
        .map_err(|error| refused(error.to_string()))?;
    match parser.peek_token().token {
        Token::EOF => Ok(()),
        other => Err(refused(format!("`{other}` comes after it"))),
    }
}

/// Checks that a text is one SQL expression.
fn check_condition(text: &str) -> Result<()> {
    use datafusion::sql::sqlparser::{dialect::GenericDialect, parser::Parser, tokenizer::Token};
    let refused = |reason: String| {
        Error::usage_with_hint(
            format!("`{text}` is not a condition: {reason}"),
            "for example: ms > 10",
        )
    };
    let mut parser = Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .map_err(|error| refused(error.to_string()))?;
    parser.parse_expr().map_err(|error| refused(error.to_string()))?;
    match parser.peek_token().token {
        Token::EOF => Ok(()),
        other => Err(refused(format!("`{other}` comes after it"))),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_sort_order;

    #[test]
    fn sort_orders_become_sql() {
        for (by, expected) in [
            ("a", "\"a\""),
            ("a, b:desc", "\"a\", \"b\" DESC"),
            ("a:desc:nulls-last,b:nulls-first:asc", "\"a\" DESC NULLS LAST, \"b\" ASC NULLS FIRST"),
            ("s.x:desc", "\"s\".\"x\" DESC"),
            ("\"a,b:c\":desc , \"q\"\"q.x\"", "\"a,b:c\" DESC, \"q\"\"q.x\""),
            ("Ünï cödé", "\"Ünï cödé\""),
            ("\"c.x\":desc", "\"c.x\" DESC"),
            ("\"a b\".x", "\"a b\".\"x\""),
            ("\"a b\".\"y.z\":desc,k", "\"a b\".\"y.z\" DESC, \"k\""),
            ("s.\"y,z\".t:nulls-last", "\"s\".\"y,z\".\"t\" NULLS LAST"),
            ("\"a\" . b , c", "\"a\".\"b\", \"c\""),
        ] {
            assert_eq!(parse_sort_order(by).unwrap(), expected, "{by}");
        }
    }

    #[test]
    fn invalid_sort_orders_are_refused() {
        for (by, expected) in [
            ("", "no column to sort by in ``"),
            ("a,", "no column to sort by in `a,`"),
            (",a", "no column to sort by in `,a`"),
            ("a:down", "`down` behind \"a\" is no way to sort"),
            ("a:desc:asc", "`asc` behind \"a\" is no way to sort"),
            ("a:", "`` behind \"a\" is no way to sort"),
            ("\"a\"x:desc", "`x` behind \"a\" is no way to sort"),
            ("\"a", "a quote without its end: `\"a`"),
            ("s.\"a", "a quote without its end: `\"a`"),
            ("a.", "no column to sort by in `a.`"),
            ("\"a\"..b", "no column to sort by in `\"a\"..b`"),
        ] {
            let error = parse_sort_order(by).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{by}: {error}");
        }
    }
}
