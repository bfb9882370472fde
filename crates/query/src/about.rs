//! What is asked about a query instead of its rows, as queries themselves: `DESCRIBE`, `SUMMARIZE`,
//! `EXPLAIN`.
//!
//! A summary is one pass over the rows: one aggregation of all columns, whose single row is then taken apart
//! into a row for each of them. Counts of different values and quantiles are those of the sketches.

use std::ops::ControlFlow;

use arrow::array::AsArray;
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Schema};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Query, Statement as SqlStatement, TableFactor, VisitorMut};
use tidemill_base::Settings;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::Progress;
use tidemill_base::types::{EXACTLY, sql_type};
use tidemill_planning::walk_mut;
use tidemill_sql::dialects;
use tidemill_sql::statement::one_select;

use crate::plan::Plan;
use crate::question::Query as Asked;

/// The columns of a query as rows.
pub(crate) fn described(schema: &Schema) -> Result<Statement> {
    let rows = schema.fields().iter().map(|field| {
        let nullable = if field.is_nullable() { "YES" } else { "NO" };
        [field.name().clone(), sql_type(field.data_type()), nullable.to_owned()]
    });
    rows_of(rows, "column_name, column_type, \"null\"")
}

/// A plan, line by line.
pub(crate) fn explained(plan: &str) -> Result<Statement> {
    rows_of(plan.lines().map(|line| [line.to_owned()]), "plan")
}

fn rows_of<const N: usize>(
    rows: impl Iterator<Item = [String; N]>,
    columns: &str,
) -> Result<Statement> {
    let rows: Vec<String> =
        rows.map(|row| format!("({})", row.map(|value| quoted(&value)).join(", "))).collect();
    one_select(&format!("SELECT * FROM (VALUES {}) AS answer({columns})", rows.join(", ")))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The question with the values of its first PIVOT that lists none, which `values` finds.
///
/// # Errors
/// As running that query.
pub(crate) fn with_values(query: &Asked, values: String, settings: &Settings) -> Result<Asked> {
    let wanted = Asked { sql: values, map: None, per_record: false, ..query.clone() };
    // What is counted and refused is of the question itself.
    let settings = Settings { progress: Progress::new(), ..settings.clone() };
    let mut found = Vec::new();
    for batch in Plan::new(&wanted, &settings)?.run()? {
        let batch = batch?;
        let column = batch.column(0);
        let texts = cast_with_options(column, &DataType::Utf8, &EXACTLY)
            .map_err(|error| Error::Internal(error.to_string()))?;
        let is_plain = column.data_type().is_numeric() || *column.data_type() == DataType::Boolean;
        for text in texts.as_string::<i32>().iter().flatten() {
            let value = if is_plain { format!("({text})") } else { quoted(text) };
            found.push((value, text.to_owned()));
        }
    }
    let sql = dialects::with_values(&query.sql, &found)?;
    Ok(Asked { sql, ..query.clone() })
}

/// The columns of a summary, and what they are of a column: of any, of one that has an order, of numbers.
const SUMMARY: [(&str, &str, Of); 11] = [
    ("min", "CAST(min({c}) AS TEXT)", Of::Ordered),
    ("max", "CAST(max({c}) AS TEXT)", Of::Ordered),
    ("approx_unique", "approx_distinct({c})", Of::Ordered),
    ("avg", "avg(CAST({c} AS DOUBLE))", Of::Numbers),
    ("std", "stddev(CAST({c} AS DOUBLE))", Of::Numbers),
    ("q25", "approx_percentile_cont(CAST({c} AS DOUBLE), 0.25)", Of::Numbers),
    ("q50", "approx_percentile_cont(CAST({c} AS DOUBLE), 0.5)", Of::Numbers),
    ("q75", "approx_percentile_cont(CAST({c} AS DOUBLE), 0.75)", Of::Numbers),
    ("count", "count(*)", Of::All),
    ("nulls", "count(*) - count({c})", Of::All),
    ("null_percentage", "round(100.0 * (count(*) - count({c})) / nullif(count(*), 0), 2)", Of::All),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    Ordered,
    Numbers,
}

impl Of {
    fn takes(self, of: &DataType) -> bool {
        match self {
            Of::All => true,
            Of::Ordered => !of.is_nested() && *of != DataType::Null,
            Of::Numbers => of.is_numeric(),
        }
    }

    /// What stands in the place of an answer that there is none of.
    fn nothing(name: &str) -> &'static str {
        match name {
            "min" | "max" => "CAST(NULL AS TEXT)",
            "approx_unique" => "CAST(NULL AS BIGINT)",
            _ => "CAST(NULL AS DOUBLE)",
        }
    }
}

/// The statement that answers `SUMMARIZE` of a query with such columns.
pub(crate) fn summary(statement: &Statement, schema: &Schema) -> Result<Statement> {
    let Statement::Statement(inner) = statement else {
        return Err(Error::Internal("a summary of no query".into()));
    };
    let SqlStatement::Query(inner) = inner.as_ref() else {
        return Err(Error::Internal("a summary of no query".into()));
    };
    let mut calls = Vec::new();
    let mut lists = Vec::new();
    for (name, call, of) in SUMMARY {
        let mut items = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let column = format!("\"{}\"", field.name().replace('"', "\"\""));
            items.push(match of.takes(field.data_type()) {
                true => {
                    // Coverage calls an estimate so.
                    let item = format!("{name}({})", field.name());
                    let item = format!("\"{}\"", item.replace('"', "\"\""));
                    calls.push(format!("{} AS {item}", call.replace("{c}", &column)));
                    item
                }
                false => Of::nothing(name).to_owned(),
            });
        }
        lists.push(format!("unnest(make_array({})) AS \"{name}\"", items.join(", ")));
    }
    let of_columns = |text: fn(&arrow::datatypes::Field) -> String| {
        let texts: Vec<String> = schema.fields().iter().map(|field| quoted(&text(field))).collect();
        texts.join(", ")
    };
    let text = format!(
        "SELECT unnest(make_array({})) AS column_name, unnest(make_array({})) AS column_type, {} \
         FROM (SELECT {} FROM (SELECT 1 AS one) AS summarized) AS summary",
        of_columns(|field| field.name().clone()),
        of_columns(|field| sql_type(field.data_type())),
        lists.join(", "),
        calls.join(", "),
    );
    let mut made = one_select(&text)?;
    if let Statement::Statement(made) = &mut made {
        walk_mut(made, &mut Summarized(inner));
    }
    Ok(made)
}

/// Puts the query in the place of the rows that are summarized.
struct Summarized<'a>(&'a Query);

impl VisitorMut for Summarized<'_> {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = table
            && alias.name.value == "summarized"
        {
            **subquery = self.0.clone();
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn names_and_plans_are_rows_whatever_is_in_them() {
        let schema = Schema::new(vec![
            Field::new("it's", DataType::Int64, true),
            Field::new("b\"c", DataType::Utf8View, false),
        ]);
        let text = described(&schema).unwrap().to_string();
        assert!(text.contains("('it''s', 'BIGINT', 'YES'), ('b\"c', 'TEXT', 'NO')"), "{text}");
        let query = one_select("SELECT a FROM t").unwrap();
        let text = summary(&query, &schema).unwrap().to_string();
        assert!(text.contains("FROM (SELECT a FROM t) AS summarized"), "{text}");
        assert!(text.contains("min(\"it's\")") && text.contains("min(\"b\"\"c\")"), "{text}");
    }
}
