//! What is asked: SQL, and what its sources are.

use tidemill_base::error::{Error, Result};
use tidemill_source::SourceSpec;
use tidemill_sql::parameters::{self, Parameter};

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
    pub defaults: SourceSpec,
    /// A part of `sql` that has to be per record: a job's map. It is checked, not run.
    pub map: Option<String>,
    /// Whether all of `sql` has to be per record: a conversion.
    pub per_record: bool,
    /// Whether the result's columns are what the source's files have, in every respect: required,
    /// categories, with what is said of them. For `SELECT *` over one source.
    pub keeps_columns: bool,
    /// Column types that override inference, as SQL has them: `id BIGINT, ts TIMESTAMP`. For
    /// sources without a schema of their own.
    pub schema: Option<String>,
}

impl Query {
    /// The query that reads `columns` of one source, or all of them, where `condition` holds.
    /// `a.b` is field `b` of column `a`.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no column, or the condition is not one.
    pub fn columns(
        spec: SourceSpec,
        columns: Option<&[String]>,
        condition: Option<&str>,
    ) -> Result<Self> {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let item = |column: &String| match column.contains('.') {
            false => quoted(column),
            true => {
                let path: Vec<String> = column.split('.').map(quoted).collect();
                format!("{} AS {}", path.join("."), quoted(column))
            }
        };
        let list = match columns {
            Some([]) => return Err(Error::usage("no column is asked for")),
            Some(columns) => columns.iter().map(item).collect::<Vec<_>>().join(", "),
            None => "*".into(),
        };
        Self::of_source(spec, &list, condition)
    }

    /// The query that gives `select`, columns and expressions as SQL has them, or all columns, for
    /// each record of one source where `condition` holds.
    ///
    /// # Errors
    /// [`Error::Usage`] if the list is none, or the condition.
    pub fn records(
        spec: SourceSpec,
        select: Option<&str>,
        condition: Option<&str>,
    ) -> Result<Self> {
        if let Some(select) = select {
            one_list(select)?;
        }
        let query = Self::of_source(spec, select.unwrap_or("*"), condition)?;
        Ok(Query { per_record: true, ..query })
    }

    /// The same question with the values of its parameters in their places: `$1` is called `1`, `:name` is
    /// called `name`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a parameter without a value, and for a value without a parameter.
    pub fn with_parameters(self, parameters: &[(String, Parameter)]) -> Result<Self> {
        let sql = parameters::put(&self.sql, parameters)?;
        Ok(Query { sql, ..self })
    }

    fn of_source(spec: SourceSpec, list: &str, condition: Option<&str>) -> Result<Self> {
        let mut sql = format!("SELECT {list}\nFROM source");
        if let Some(condition) = condition {
            // By itself, so that what follows a condition in SQL is not taken for a part of it.
            one_condition(condition)?;
            sql.push_str(&format!(" WHERE ({condition}\n)"));
        }
        let sources = vec![NamedSource { name: "source".into(), spec }];
        Ok(Query { sql, sources, ..Query::default() })
    }
}

/// Checks that a text is a list of columns and expressions.
fn one_list(text: &str) -> Result<()> {
    use datafusion::sql::sqlparser::{dialect::GenericDialect, parser::Parser, tokenizer::Token};
    let refused = |reason: String| {
        Error::usage_hint(
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
fn one_condition(text: &str) -> Result<()> {
    use datafusion::sql::sqlparser::{dialect::GenericDialect, parser::Parser, tokenizer::Token};
    let refused = |reason: String| {
        Error::usage_hint(format!("`{text}` is not a condition: {reason}"), "for example: ms > 10")
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
