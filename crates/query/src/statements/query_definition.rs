//! The definition of a query: its SQL, sources and settings.

use std::sync::Arc;

use tidemill_base::error::{Error, Result};
use tidemill_base::suggestions;
use tidemill_dialect::parameters::{self, QueryParameter};
use tidemill_operators::batch_positions::StableSort;
use tidemill_sink::SinkSpec;
use tidemill_source::SourceSpec;

use crate::tasks::{DistributedOutput, ScratchSpec, WorkerPool};
use crate::turbo::TurboSettings;

/// A source with its name in SQL.
#[derive(Debug, Clone)]
pub struct NamedSource {
    /// The name; a single source is called `source`.
    pub name: String,
    /// Location, format and options of the source.
    pub spec: SourceSpec,
}

/// A query: SQL, its sources, and settings for running it.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// One `SELECT`. Files stand in quotes: `FROM 'logs/*.csv'`.
    pub sql: String,
    /// Named sources.
    pub sources: Vec<NamedSource>,
    /// Format, options and schema of files that the SQL names. The URL is ignored.
    pub file_defaults: SourceSpec,
    /// A job's map: a part of `sql` that must handle one record at a time. It is checked, not run.
    pub map_sql: Option<String>,
    /// True if all of `sql` must handle one record at a time, as in a conversion.
    pub is_per_record: bool,
    /// True if the result keeps the columns of the source's files in every respect: nullability, categories
    /// and metadata. For `SELECT *` over one source.
    pub keeps_columns: bool,
    /// Makes rows that tie under ORDER BY keep the order of the source. For `SELECT *` over one source.
    pub stable_sort: Option<StableSort>,
    /// Allows an answer from a part of the input. Default: never.
    pub turbo: Option<TurboSettings>,
    /// Column types in SQL that override inference: `id BIGINT, ts TIMESTAMP`. For sources without a schema
    /// of their own.
    pub schema: Option<String>,
    /// The value of `now()`, in nanoseconds since 1970. Default: the time of planning.
    pub now_ns: Option<i64>,
    /// The workers that read the splits of the largest source. Default: this process.
    pub workers: Option<Arc<dyn WorkerPool>>,
    /// True to run a query that workers cannot run in this process, with a warning. Default: the query fails.
    pub may_run_locally: bool,
    /// Maximum number of attempts for a split: the query fails once this many workers in a row have died on
    /// it. Default: 4.
    pub split_attempts_max: Option<usize>,
    /// The storage by which workers exchange data that is too large to send to the driver.
    pub scratch: ScratchSpec,
    /// The output that workers may write directly. The caller
    /// [takes the finished files](DistributedOutput::take_written_files), and says where they are
    /// [staged](DistributedOutput::set_location). Default: the caller receives all rows.
    pub output: Option<DistributedOutput>,
}

impl Query {
    /// Returns the query that selects `columns` of one source, or all columns, where `condition` holds.
    /// `a.b` is field `b` of column `a`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the list of columns is empty or the condition is invalid.
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

    /// Returns the query that selects `select`, a SQL list of columns and expressions, or all columns, for
    /// each record of one source where `condition` holds.
    ///
    /// # Errors
    /// [`Error::Usage`] if the list or the condition is invalid.
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

    /// Returns the query that sorts one source by `by`: all rows with all columns, or the first `limit` rows.
    ///
    /// `by` has columns separated by commas, each optionally followed by `:asc` or `:desc` and by
    /// `:nulls-first` or `:nulls-last`. A name with a comma, a colon or a dot stands in double quotes; `a.b`
    /// and `"a"."b"` are field `b` of column `a`. Rows that tie keep the order of the source.
    ///
    /// # Errors
    /// [`Error::Usage`] if `by` is invalid.
    pub fn select_sorted(spec: SourceSpec, by: &str, limit: Option<u64>) -> Result<Self> {
        let order = parse_sort_order(by)?;
        let query = Self::select_from_source(spec, "*", None)?;
        let sql = format!("{}\nORDER BY {order}", query.sql);
        Ok(Query { sql, stable_sort: Some(StableSort { rows_max: limit }), ..query })
    }

    /// Returns the query with an output that its workers, if it has any, may write directly.
    #[must_use]
    pub fn with_worker_output(self, spec: &SinkSpec) -> Self {
        let output = self.workers.as_ref().and_then(|_| DistributedOutput::new(spec));
        Query { output, ..self }
    }

    /// Returns the query with the values of its parameters inserted: `$1` has the name `1`, and `:name` the
    /// name `name`.
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
            // The condition is parsed by itself, so that it cannot contain further clauses.
            check_condition(condition)?;
            sql.push_str(&format!(" WHERE ({condition}\n)"));
        }
        let sources = vec![NamedSource { name: "source".into(), spec }];
        Ok(Query { sql, sources, ..Query::default() })
    }
}

/// Returns the error for `c.x` where no column `c` exists.
fn dotted_column_error(column: &str) -> Error {
    let outer = column.split('.').next().unwrap_or(column);
    Error::usage_with_hint(
        format!("unknown column `{outer}` in `{column}`"),
        format!("a name with a dot stands in double quotes: --by '\"{column}\"'"),
    )
}

/// Explains an error about an unknown column in a sort: the query may have meant a column whose name has a
/// dot.
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
        // The user gave the only source no name.
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

/// Converts a sort order to the SQL behind ORDER BY.
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

/// Splits a column path, names separated by dots, from the beginning of a text, and returns the rest. Each
/// name is plain or in double quotes.
fn parse_column_path<'a>(text: &'a str, hint: &str) -> Result<(Vec<String>, &'a str)> {
    let mut path = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let behind = match rest.strip_prefix('"') {
            Some(name) => {
                let mut ends = name.match_indices('"').map(|(at, _)| at);
                // A doubled quote is part of the name.
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

/// Checks that a text is a select list: columns and expressions.
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
