//! Rewrites `DESCRIBE`, `EXPLAIN`, `SUMMARIZE` and `PIVOT` without listed values into plain `SELECT`
//! statements.
//!
//! The answers of `DESCRIBE` and `EXPLAIN` become `VALUES` lists. A summary takes one pass over the rows: one
//! [aggregate](tidemill_tables::aggregates::summary) of all columns, whose answer `unnest` then splits into a row for
//! each column. Its distinct counts and quantiles are those of the sketches.

use std::ops::ControlFlow;

use arrow::array::AsArray;
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Schema};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Ident, Query, Statement as SqlStatement, TableAliasColumnDef, TableFactor, VisitorMut,
};
use tidemill_base::RunSettings;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::RunProgress;
use tidemill_dialect::statement::parse_select;
use tidemill_dialect::translation;
use tidemill_planning::walk_statement_mut;

use crate::plan::QueryPlan;
use crate::statements::query_definition::Query as Asked;

/// Builds the statement that answers `DESCRIBE`: a row for each column of a query's schema.
pub(crate) fn build_describe_statement(schema: &Schema) -> Result<Statement> {
    let rows = schema.fields().iter().map(|field| {
        let nullable = if field.is_nullable() { "YES" } else { "NO" };
        [field.name().clone(), sql_type_name(field.data_type()), nullable.to_owned()]
    });
    build_values_statement(rows, "column_name, column_type, \"null\"")
}

/// Builds the statement that answers `EXPLAIN`: a row for each line of the plan.
pub(crate) fn build_explain_statement(plan: &str) -> Result<Statement> {
    build_values_statement(plan.lines().map(|line| [line.to_owned()]), "plan")
}

fn build_values_statement<const N: usize>(
    rows: impl Iterator<Item = [String; N]>,
    columns: &str,
) -> Result<Statement> {
    let rows: Vec<String> =
        rows.map(|row| format!("({})", row.map(|value| quote_text(&value)).join(", "))).collect();
    parse_select(&format!("SELECT * FROM (VALUES {}) AS answer({columns})", rows.join(", ")))
}

fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Fills in the values of the query's first PIVOT that lists none. The query `values` finds them.
///
/// # Errors
/// Those of running that query.
pub(crate) fn fill_pivot_values(
    query: &Asked,
    values: String,
    settings: &RunSettings,
) -> Result<Asked> {
    let wanted = Asked { sql: values, map_sql: None, is_per_record: false, ..query.clone() };
    // A fresh progress: rows that this query counts and rejects belong to the query itself.
    let settings = RunSettings { progress: RunProgress::new(), ..settings.clone() };
    let mut found = Vec::new();
    for batch in QueryPlan::new(&wanted, &settings)?.run()? {
        let batch = batch?;
        let column = batch.column(0);
        let texts = cast_with_options(column, &DataType::Utf8, &STRICT_CAST_OPTIONS)
            .map_err(|error| Error::Internal(error.to_string()))?;
        let is_plain = column.data_type().is_numeric() || *column.data_type() == DataType::Boolean;
        for text in texts.as_string::<i32>().iter().flatten() {
            let value = if is_plain { format!("({text})") } else { quote_text(text) };
            found.push((value, text.to_owned()));
        }
    }
    let sql = translation::insert_pivot_values(&query.sql, &found)?;
    Ok(Asked { sql, ..query.clone() })
}

/// Select list of a summary. Each item is a field of `s`, the struct that the aggregate returns for each
/// column.
const SUMMARY_COLUMNS: &str = "s['column_name'] AS column_name, s['column_type'] AS column_type, \
    s['min'] AS \"min\", s['max'] AS \"max\", s['approx_unique'] AS approx_unique, s['avg'] AS \"avg\", \
    s['std'] AS std, s['q25'] AS q25, s['q50'] AS q50, s['q75'] AS q75, s['count'] AS \"count\", \
    s['count'] - s['known'] AS nulls, \
    round(100.0 * (s['count'] - s['known']) / nullif(s['count'], 0), 2) AS null_percentage";

/// Builds the statement that answers `SUMMARIZE` of a query with the columns of `schema`. `call` is the
/// [aggregate](tidemill_tables::aggregates::summary) of all of them.
pub(crate) fn build_summarize_statement(
    statement: &Statement,
    schema: &Schema,
    call: &str,
) -> Result<Statement> {
    let Statement::Statement(inner) = statement else {
        return Err(Error::Internal("a summary of no query".into()));
    };
    let SqlStatement::Query(inner) = inner.as_ref() else {
        return Err(Error::Internal("a summary of no query".into()));
    };
    let text = format!(
        "SELECT {SUMMARY_COLUMNS} FROM (SELECT unnest({call}) AS s FROM (SELECT 1 AS one) AS summarized) AS summary"
    );
    let mut made = parse_select(&text)?;
    if let Statement::Statement(made) = &mut made {
        walk_statement_mut(made, &mut SummarizedQueryInserter { query: inner, schema });
    }
    Ok(made)
}

/// An AST visitor that puts the query in the place of the subquery `summarized`. It aliases the columns to
/// their result names, because the planner names a column such as `sum(x)` in its own way otherwise.
struct SummarizedQueryInserter<'a> {
    query: &'a Query,
    schema: &'a Schema,
}

impl VisitorMut for SummarizedQueryInserter<'_> {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = table
            && alias.name.value == "summarized"
        {
            **subquery = self.query.clone();
            let names = self.schema.fields().iter().map(|field| TableAliasColumnDef {
                name: Ident::with_quote('"', field.name()),
                data_type: None,
            });
            alias.columns = names.collect();
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use tidemill_tables::aggregates::summary::QuerySummary;

    use super::*;

    #[test]
    fn describe_and_summarize_quote_column_names() {
        let schema = Schema::new(vec![
            Field::new("it's", DataType::Int64, true),
            Field::new("b\"c", DataType::Utf8View, false),
        ]);
        let text = build_describe_statement(&schema).unwrap().to_string();
        assert!(text.contains("('it''s', 'BIGINT', 'YES'), ('b\"c', 'TEXT', 'NO')"), "{text}");
        let query = parse_select("SELECT a FROM t").unwrap();
        let (_, call) = QuerySummary::from_schema(&schema);
        let text = build_summarize_statement(&query, &schema, &call).unwrap().to_string();
        assert!(text.contains("FROM (SELECT a FROM t) AS summarized (\"it's\", "), "{text}");
        assert!(text.contains("(\"it's\", CAST(\"it's\" AS DOUBLE), \"b\"\"c\")"), "{text}");
    }
}
