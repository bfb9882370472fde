//! Parsing of SQL text into a single checked statement, or into a list of columns.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{Fields, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{
    DescribeAlias, Expr as SqlExpr, ObjectName, Query as SqlQuery, Select, SetExpr,
    Statement as SqlStatement, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use tidemill_base::column_types::UNQUOTED_NAME_METADATA_KEY;
use tidemill_base::large_stack::{PLAN_STACK_BYTES, run_on_large_stack};
use tidemill_base::{Error, Result};
use tidemill_planning::{plan_statement, walk_statement, walk_statement_mut};

use crate::error_translation::{IntoTidemillError, nesting_error};
use crate::parameters::{byte_offset, line_start_offsets};
use crate::translation::{self, TableFunctionSources};
use crate::type_planners::ArrowTypePlanner;
use crate::{decimal_literals, parse_hints, syntax};

/// Maximum nesting depth of expressions; `a + b + c` counts as two. Code that walks over expressions
/// recurses once per level, up to the evaluation of each batch.
const EXPRESSION_DEPTH_MAX: usize = 1000;

/// Maximum number of queries in a UNION and of tables in a FROM: the depth of the plan grows with either
/// number.
const BRANCHES_MAX: usize = 1000;

/// A visitor that measures the nesting of expressions, and the lengths of UNION and FROM.
#[derive(Default)]
struct StatementDepth {
    current_depth: usize,
    max_depth: usize,
    max_union_queries: usize,
    max_from_tables: usize,
}

impl Visitor for StatementDepth {
    type Break = ();

    fn pre_visit_query(&mut self, query: &SqlQuery) -> ControlFlow<()> {
        let (mut body, mut queries) = (query.body.as_ref(), 1);
        while let SetExpr::SetOperation { left, .. } = body {
            body = left;
            queries += 1;
        }
        self.max_union_queries = self.max_union_queries.max(queries);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let tables = select.from.iter().map(|from| 1 + from.joins.len()).sum();
        self.max_from_tables = self.max_from_tables.max(tables);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _: &SqlExpr) -> ControlFlow<()> {
        self.current_depth += 1;
        self.max_depth = self.max_depth.max(self.current_depth);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &SqlExpr) -> ControlFlow<()> {
        self.current_depth -= 1;
        ControlFlow::Continue(())
    }
}

/// The kind of a statement, which determines what it returns about its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementKind {
    /// `SELECT`: the rows of the query.
    Select,
    /// `DESCRIBE`: the columns of the query and their types.
    Describe,
    /// `SUMMARIZE`: the minimum, maximum and distribution of each column.
    Summarize,
    /// `EXPLAIN`: the plan of the query.
    Explain,
}

/// A parsed statement.
#[derive(Debug)]
pub struct ParsedStatement {
    /// The query.
    pub statement: Statement,
    /// The kind of the statement.
    pub kind: StatementKind,
    /// The sources that the query calls as table functions.
    pub function_sources: TableFunctionSources,
}

/// Parses a text that is a single SELECT.
///
/// # Errors
/// As [`parse_statement`], and [`Error::Usage`] for other kinds of statements.
pub fn parse_select(sql: &str) -> Result<Statement> {
    match parse_statement(sql)? {
        ParsedStatement { statement, kind: StatementKind::Select, .. } => Ok(statement),
        ParsedStatement { kind: wanted, .. } => Err(Error::usage_with_hint(
            format!("`{}` is not run here", wanted.keyword()),
            "it is one SELECT; `tidemill query` answers the others",
        )),
    }
}

impl StatementKind {
    /// Returns the keyword that begins a statement of this kind.
    pub fn keyword(self) -> &'static str {
        match self {
            StatementKind::Select => "SELECT",
            StatementKind::Describe => "DESCRIBE",
            StatementKind::Summarize => "SUMMARIZE",
            StatementKind::Explain => "EXPLAIN",
        }
    }
}

/// Parses a text that is a single statement, and translates it from other databases' SQL.
///
/// # Errors
/// [`Error::Usage`] for invalid SQL, several statements, and statements that change data.
pub fn parse_statement(sql: &str) -> Result<ParsedStatement> {
    // A chain of operators is as deep as it is long, and dropping it takes stack.
    let bytes = PLAN_STACK_BYTES.saturating_add(sql.len().saturating_mul(512));
    run_on_large_stack(bytes, || {
        let (mut statement, wanted) = parse_single_query(sql)?;
        let mut depth = StatementDepth::default();
        let mut called = TableFunctionSources::new();
        if let Statement::Statement(statement) = &mut statement {
            called = translation::translate_statement(statement)?;
            syntax::normalize_statement(statement);
            walk_statement(statement, &mut depth);
        }
        if depth.max_depth > EXPRESSION_DEPTH_MAX {
            return Err(Error::usage_with_hint(
                format!(
                    "the SQL nests expressions {} deep; {EXPRESSION_DEPTH_MAX} is the most",
                    depth.max_depth
                ),
                "many alternatives are written `x IN (…)`, many rows as a source to join with",
            ));
        }
        let in_a_row = [(depth.max_union_queries, "queries"), (depth.max_from_tables, "tables")];
        if let Some((count, what)) = in_a_row.into_iter().find(|(count, _)| *count > BRANCHES_MAX) {
            return Err(Error::usage_with_hint(
                format!("the SQL has {count} {what} in a row; {BRANCHES_MAX} is the most"),
                "several files are one table: FROM ['a.csv', 'b.csv'], FROM 'logs/*.csv'; rows are VALUES (1), (2)",
            ));
        }
        Ok(ParsedStatement { statement, kind: wanted, function_sources: called })
    })
}

/// Returns the query of an `EXPLAIN ANALYZE` at its original position in the text; `None` for every other
/// text.
///
/// # Errors
/// [`Error::Usage`] for options of `EXPLAIN ANALYZE` that have no effect here.
pub fn explain_analyze_query(sql: &str) -> Result<Option<String>> {
    // Parsing reports invalid SQL later.
    let Ok(tokens) = Tokenizer::new(&syntax::TidemillDialect, sql).tokenize_with_location() else {
        return Ok(None);
    };
    let mut tokens =
        tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF));
    let mut is_next = |expected: &str| match tokens.next().map(|token| &token.token) {
        Some(Token::Word(word)) => word.value.eq_ignore_ascii_case(expected),
        _ => false,
    };
    if !is_next("EXPLAIN") || !is_next("ANALYZE") {
        return Ok(None);
    }
    let Some(first) = tokens.next() else { return Ok(None) };
    if let Token::Word(word) = &first.token
        && ["VERBOSE", "FORMAT"].iter().any(|option| word.value.eq_ignore_ascii_case(option))
    {
        return Err(Error::usage_with_hint(
            format!("`EXPLAIN ANALYZE {}` is not supported", word.value.to_uppercase()),
            "EXPLAIN ANALYZE SELECT … has one form, a line of text in each row",
        ));
    }
    let Some(start) = byte_offset(sql, &line_start_offsets(sql), first.span.start) else {
        return Ok(None);
    };
    let (before, query) = sql.split_at(start);
    Ok(Some(blank_text(before) + query))
}

/// Returns spaces in place of a text, with the same lines and columns.
pub(crate) fn blank_text(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

/// Maximum nesting of parentheses and CASEs that the parser is sure to follow. Beyond it, the parser fails at
/// an arbitrary token and reports that token.
const PARSER_NESTING_MAX: usize = 45;

/// Returns the nesting depth of parentheses and CASEs in a text.
fn nesting_depth(sql: &str) -> usize {
    use datafusion::sql::sqlparser::keywords::Keyword;
    let tokens = Tokenizer::new(&syntax::TidemillDialect, sql).tokenize().unwrap_or_default();
    let (mut depth, mut most) = (0usize, 0);
    for token in tokens {
        match token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            Token::Word(word) if word.keyword == Keyword::CASE => depth += 1,
            Token::Word(word) if word.keyword == Keyword::END => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

/// First keywords of statements that modify data, in any dialect.
const MODIFYING_KEYWORDS: [&str; 8] =
    ["ALTER", "COPY", "CREATE", "DELETE", "DROP", "INSERT", "TRUNCATE", "UPDATE"];

/// `SUMMARIZE`, and a keyword of the same length that the parser knows.
const SUMMARIZE_REPLACEMENT: (&str, &str) = ("SUMMARIZE", "DESCRIBE ");

/// Returns the text with a leading `SUMMARIZE` replaced by DESCRIBE; `None` without one.
fn replace_summarize(sql: &str) -> Option<String> {
    let start = sql.len() - sql.trim_start().len();
    let (word, end) = (sql.get(start..)?, start + SUMMARIZE_REPLACEMENT.0.len());
    let is_it =
        word.get(..SUMMARIZE_REPLACEMENT.0.len())?.eq_ignore_ascii_case(SUMMARIZE_REPLACEMENT.0);
    let is_whole = sql.get(end..)?.starts_with(|c: char| !c.is_alphanumeric() && c != '_');
    (is_it && is_whole)
        .then(|| format!("{}{}{}", &sql[..start], SUMMARIZE_REPLACEMENT.1, &sql[end..]))
}

fn parse_single_query(sql: &str) -> Result<(Statement, StatementKind)> {
    let refused = |what: &str| {
        let hint = match what {
            "`COPY`" => {
                "`tidemill query` and Python's `query` run COPY as a whole statement; a job file names its output in [sink]"
            }
            _ => "a query is one SELECT; results are written with -o FILE or a job file's [sink]",
        };
        Err(Error::usage_with_hint(format!("{what} is not run here"), hint))
    };
    let summarized = replace_summarize(sql);
    let statements = match translation::parse_statements(summarized.as_deref().unwrap_or(sql)) {
        Err(_) if nesting_depth(sql) >= PARSER_NESTING_MAX => return Err(nesting_error()),
        Err(error) => {
            let first = sql.split_whitespace().next().unwrap_or_default();
            if MODIFYING_KEYWORDS.iter().any(|word| word.eq_ignore_ascii_case(first)) {
                return refused(&format!("`{}`", first.to_uppercase()));
            }
            let hint = parse_hints::parse_error_hint(sql, &error.to_string());
            return Err(match (DataFusionError::from(error).into_tidemill_error(), hint) {
                (Error::Usage { message, hint: None }, Some(hint)) => {
                    Error::usage_with_hint(message, hint)
                }
                (told, _) => told,
            });
        }
        Ok(statements) => statements,
    };
    let mut statements = statements.into_iter();
    let statement = match (statements.next(), statements.next()) {
        (None, _) => return Err(Error::usage("the SQL is empty")),
        (Some(_), Some(_)) => return refused("more than one statement"),
        (Some(statement), None) => statement,
    };
    let (mut statement, wanted) = unwrap_explain(statement)?;
    if !matches!(statement, SqlStatement::Query(_)) {
        let text = statement.to_string();
        return refused(&format!("`{}`", text.split_whitespace().next().unwrap_or_default()));
    }
    decimal_literals::write_inexact_numbers_as_decimals(&mut statement);
    let wanted = if summarized.is_some() { StatementKind::Summarize } else { wanted };
    Ok((Statement::Statement(Box::new(statement)), wanted))
}

/// Returns the query of a DESCRIBE or EXPLAIN, and the kind of the statement.
fn unwrap_explain(statement: SqlStatement) -> Result<(SqlStatement, StatementKind)> {
    let wanted = |alias: DescribeAlias| match alias {
        DescribeAlias::Explain => StatementKind::Explain,
        DescribeAlias::Describe | DescribeAlias::Desc => StatementKind::Describe,
    };
    match statement {
        SqlStatement::Explain {
            describe_alias,
            analyze,
            verbose: _,
            query_plan: _,
            estimate,
            statement,
            format,
            options,
        } => {
            if analyze {
                return Err(Error::usage_with_hint(
                    "`EXPLAIN ANALYZE` is no query of records, and stands at the beginning of a statement",
                    "`tidemill query` and Python's `query` answer it",
                ));
            }
            if estimate || options.is_some() {
                return Err(Error::usage_with_hint(
                    "EXPLAIN takes no options",
                    "EXPLAIN SELECT … shows the plan, EXPLAIN ANALYZE SELECT … runs it and adds what was measured",
                ));
            }
            if let Some(format) = format {
                return Err(Error::usage_with_hint(
                    format!("`EXPLAIN {format}` is not supported"),
                    "--explain --format json shows a plan as JSON",
                ));
            }
            Ok((*statement, wanted(describe_alias)))
        }
        SqlStatement::ExplainTable {
            describe_alias,
            hive_format: _,
            has_table_keyword: _,
            table_name,
        } => {
            let mut statements = translation::parse_statements("SELECT * FROM t")
                .map_err(|error| Error::Internal(error.to_string()))?;
            let mut statement = statements.remove(0);
            walk_statement_mut(&mut statement, &mut TableReplacer(&table_name));
            let wanted = match describe_alias {
                // EXPLAIN of a table shows its columns: it has no query to run.
                DescribeAlias::Explain => StatementKind::Describe,
                other => wanted(other),
            };
            Ok((statement, wanted))
        }
        other => Ok((other, StatementKind::Select)),
    }
}

/// Replaces every table of a statement by another one.
struct TableReplacer<'a>(&'a ObjectName);

impl VisitorMut for TableReplacer<'_> {
    type Break = ();

    fn post_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        relation.clone_from(self.0);
        ControlFlow::Continue(())
    }
}

/// Checks that Tidemill supports every clause of a statement.
pub fn check_syntax(statement: &Statement, context: &SessionContext) -> Result<()> {
    match statement {
        Statement::Statement(statement) => syntax::check_statement(statement, &context.state()),
        _ => Err(Error::Internal("a statement that is no SELECT".into())),
    }
}

/// Parses column types in SQL into a schema: `id BIGINT, tags VARCHAR[]`.
///
/// # Errors
/// [`Error::Usage`] for invalid column types.
pub fn schema_from_sql(text: &str) -> Result<SchemaRef> {
    parse_schema(&SessionContext::new(), text)
}

/// Parses column types in SQL into a schema, with the types of an existing session.
///
/// # Errors
/// As [`schema_from_sql`].
pub fn parse_schema(context: &SessionContext, text: &str) -> Result<SchemaRef> {
    let hint = "write it as SQL does: --schema 'id BIGINT, name TEXT, ts TIMESTAMP'";
    let refused =
        |e: Error| Error::usage_with_hint(format!("the schema is not understood: {e}"), hint);
    let sql = format!("CREATE TABLE t ({})", join_interval_units(text));
    let mut statements = DFParser::parse_sql(&sql).map_err(|e| refused(e.into_tidemill_error()))?;
    let statement = statements.pop_front().filter(|_| statements.is_empty());
    let statement = statement.ok_or_else(|| refused(Error::usage("it holds a `;`")))?;
    if let Statement::Statement(statement) = &statement {
        syntax::check_column_list(statement)?;
    }
    let is_unquoted = unquoted_column_flags(&statement);
    let state = SessionStateBuilder::new_from_existing(context.state());
    let mut state = state.with_type_planner(Arc::new(ArrowTypePlanner)).build();
    // A column or key of a file keeps the letters of its name.
    state.config_mut().options_mut().sql_parser.enable_ident_normalization = false;
    // The planner needs a time zone here, or it drops the zone of a type.
    state.config_mut().options_mut().execution.time_zone = Some("UTC".into());
    let plan = plan_statement(&state, statement).map_err(|e| refused(e.into_tidemill_error()))?;
    match plan {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(table)) => {
            Ok(Arc::new(mark_unquoted_names(table.input.schema().as_arrow(), &is_unquoted)))
        }
        _ => Err(refused(Error::usage("it is no list of columns"))),
    }
}

/// Returns for each column of a `CREATE TABLE` true if its name is unquoted.
fn unquoted_column_flags(statement: &Statement) -> Vec<bool> {
    match statement {
        Statement::Statement(statement) => match statement.as_ref() {
            SqlStatement::CreateTable(table) => {
                table.columns.iter().map(|column| column.name.quote_style.is_none()).collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Returns the columns, with a metadata mark on those whose names are unquoted.
fn mark_unquoted_names(schema: &Schema, is_unquoted: &[bool]) -> Schema {
    let note = HashMap::from([(UNQUOTED_NAME_METADATA_KEY.to_owned(), String::new())]);
    let fields =
        schema.fields().iter().zip(is_unquoted).map(|(field, is_unquoted)| match is_unquoted {
            true => Arc::new(field.as_ref().clone().with_metadata(note.clone())),
            false => Arc::clone(field),
        });
    Schema::new(fields.collect::<Fields>())
}

/// Returns a list of columns in which `Interval(DayTime)` and similar types are single words. The parser
/// would read them as SQL's INTERVAL with a precision. Quoted names stay as they are.
fn join_interval_units(text: &str) -> String {
    let parts = text.split('"').enumerate().map(|(at, part)| match at % 2 {
        0 => ["DayTime", "YearMonth", "MonthDayNano"].iter().fold(part.to_owned(), |part, unit| {
            part.replace(&format!("Interval({unit})"), &format!("Interval{unit}"))
        }),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("\"")
}

/// Returns the columns of a schema without the schema's metadata.
pub fn without_metadata(schema: &Schema) -> Schema {
    Schema::new(schema.fields().clone())
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType::{self, *};
    use arrow::datatypes::{Field, IntervalUnit, TimeUnit};
    use tidemill_base::column_types::sql_type_name;

    use super::*;

    #[test]
    fn displayed_type_parses_as_schema() {
        for (data_type, sql) in [
            (Boolean, "BOOLEAN"),
            (Int8, "TINYINT"),
            (Int16, "SMALLINT"),
            (Int32, "INT"),
            (Int64, "BIGINT"),
            (UInt64, "BIGINT UNSIGNED"),
            (Float32, "FLOAT"),
            (Float64, "DOUBLE"),
            (Decimal128(10, 2), "DECIMAL(10, 2)"),
            (Date32, "DATE"),
            (Time32(TimeUnit::Second), "TIME(0)"),
            (Time32(TimeUnit::Millisecond), "TIME(3)"),
            (Time64(TimeUnit::Microsecond), "TIME(6)"),
            (Time64(TimeUnit::Nanosecond), "TIME"),
            (Timestamp(TimeUnit::Nanosecond, None), "TIMESTAMP"),
            (Timestamp(TimeUnit::Microsecond, None), "TIMESTAMP(6)"),
            (Timestamp(TimeUnit::Second, None), "TIMESTAMP(0)"),
            (List(Arc::new(Field::new("item", Int64, true))), "BIGINT[]"),
        ] {
            assert_eq!(sql_type_name(&data_type), sql);
            let schema = schema_from_sql(&format!("x {sql}")).unwrap();
            assert_eq!(sql_type_name(schema.field(0).data_type()), sql);
        }
        for (data_type, sql) in [
            (Duration(TimeUnit::Microsecond), "Duration(µs)"),
            (Interval(IntervalUnit::DayTime), "Interval(DayTime)"),
            (Interval(IntervalUnit::YearMonth), "Interval(YearMonth)"),
            (FixedSizeBinary(16), "FixedSizeBinary(16)"),
            (Date64, "Date64"),
            (Float16, "Float16"),
        ] {
            assert_eq!(sql_type_name(&data_type), sql);
            let schema =
                schema_from_sql(&format!("\"Interval(DayTime)\" {sql}, y BIGINT")).unwrap();
            assert_eq!(schema.field(0).data_type(), &data_type, "{sql}");
            assert_eq!(schema.field(0).name(), "Interval(DayTime)");
        }
        for (sql, data_type) in [
            ("Time32(ms)", Time32(TimeUnit::Millisecond)),
            ("Time64(µs)", Time64(TimeUnit::Microsecond)),
            ("TIME(9)", Time64(TimeUnit::Nanosecond)),
        ] {
            let schema = schema_from_sql(&format!("x {sql}")).unwrap();
            assert_eq!(schema.field(0).data_type(), &data_type, "{sql}");
        }
        for name in [
            "a b",
            "order",
            "Order",
            "key",
            "primary",
            "1st",
            "",
            "ä",
            "a\"b",
            "plain",
            "CamelCase",
        ] {
            let fields = vec![Field::new(name, Int64, true)];
            let nested = sql_type_name(&DataType::Struct(fields.into()));
            let name_in_sql = tidemill_base::column_types::quote_sql_name(name);
            for text in [format!("{name_in_sql} BIGINT"), format!("{name_in_sql} {nested}")] {
                let schema = schema_from_sql(&text).unwrap();
                assert_eq!(schema.field(0).name(), name, "{text}");
            }
            let schema = schema_from_sql(&format!("x {nested}")).unwrap();
            assert_eq!(sql_type_name(schema.field(0).data_type()), nested);
        }
        assert_eq!(sql_type_name(&Utf8View), "TEXT");
        let fields = vec![Field::new("a", Int64, true), Field::new("b", Utf8View, true)];
        assert_eq!(sql_type_name(&DataType::Struct(fields.into())), "STRUCT<a BIGINT, b TEXT>");
    }
}
