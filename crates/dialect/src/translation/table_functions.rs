//! Translation of other databases' table functions: file readers, lists of files, and number series.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DictionaryField, Expr, FunctionArg, FunctionArgExpr, Ident, JoinConstraint,
    JoinOperator, MapEntry, ObjectName, ObjectNamePart, Select, SelectItem, SetExpr, Statement,
    TableAlias, TableAliasColumnDef, TableFactor, TableFunctionArgs, UnaryOperator, Value,
    ValueWithSpan, VisitorMut,
};
use tidemill_base::error::{Error, Result};
use tidemill_base::redaction::redact_url;
use tidemill_planning::walk_expr_mut;

use crate::column_names::normalize_ident;
use crate::translation::function_calls::{binary_op, function_call, parenthesize};
use crate::translation::samples::{self, PercentSample, RowCountSample, SampleClause};
use crate::translation::token_rewrites::FILE_LIST_FUNCTION;
use crate::translation::{
    TableFunctionSources, lateral_lists, parse_statements, walk_conditions_and_keys,
};
use tidemill_planning::datafusion_names::tables as names;

/// A source that a statement calls as a table function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableFunctionSource {
    /// Paths, URLs and patterns.
    pub urls: Vec<String>,
    /// The name of the format; `None` if file suffixes decide.
    pub format: Option<&'static str>,
    /// Options of the text format, by Tidemill's names.
    pub options: Vec<(&'static str, String)>,
    /// Types of columns, in the syntax of `--schema`.
    pub schema: Option<String>,
    /// The name of the column with the files' names, if there is one.
    pub filename_column: Option<String>,
    /// True if the records' numbers are a column.
    pub has_file_row_number: bool,
    /// The percentage of the source that is read; `None` for all.
    pub percent_sample: Option<PercentSample>,
    /// The number of rows that are drawn; `None` for all.
    pub row_sample: Option<RowCountSample>,
    /// The sampled table, if the source is not called as a function: a file, or a source with a name.
    pub sampled_table: Option<String>,
    /// True for `glob('logs/*.csv')`, whose rows are the names of the files instead of their records.
    pub lists_files: bool,
}

/// Functions that read files, each with its format.
const READER_FUNCTIONS: [(&str, Option<&str>); 17] = [
    ("read_csv", Some("csv")),
    ("read_csv_auto", Some("csv")),
    ("read_json", Some("json")),
    ("read_json_auto", Some("json")),
    ("read_ndjson", Some("json")),
    ("read_ndjson_auto", Some("json")),
    ("read_parquet", Some("parquet")),
    ("parquet_scan", Some("parquet")),
    ("read_avro", Some("avro")),
    ("scan_csv", Some("csv")),
    ("scan_parquet", Some("parquet")),
    ("scan_ndjson", Some("json")),
    ("file", None),
    ("s3", None),
    ("url", None),
    ("read_files", None),
    (FILE_LIST_FUNCTION, None),
];

/// The function that lists files.
const GLOB_FUNCTION: &str = "glob";

/// Tidemill's options whose values are numbers.
const SKIP_LINES_OPTION: &str = "skip_lines";
const HEADER_ROW_OPTION: &str = "header_row";

/// Options of other databases' readers, each with Tidemill's name of it.
const READER_OPTION_NAMES: [(&str, &str); 18] = [
    ("delim", "delimiter"),
    ("sep", "delimiter"),
    ("separator", "delimiter"),
    ("delimiter", "delimiter"),
    ("header", "header"),
    ("has_header", "header"),
    ("quote", "quote"),
    ("quote_char", "quote"),
    ("escape", "escape"),
    ("comment", "comment"),
    ("skip", SKIP_LINES_OPTION),
    ("skip_rows", SKIP_LINES_OPTION),
    ("skiprows", SKIP_LINES_OPTION),
    ("skip_lines", SKIP_LINES_OPTION),
    ("header_row", HEADER_ROW_OPTION),
    ("nullstr", "null"),
    ("null_values", "null"),
    ("log_format", "log_format"),
];

/// Options that give columns their types. Other columns are inferred from the data, as for `--schema`.
const TYPE_OPTIONS: [&str; 5] = ["types", "dtypes", "column_types", "columns", "schema"];

/// Options that request what Tidemill always does.
const ALWAYS_ON_OPTIONS: [&str; 3] = ["auto_detect", "union_by_name", "hive_partitioning"];

/// Names unnamed subqueries that stand in FROM beside other sources. The planner tells their columns apart by
/// these names; without them it takes the columns for those of the tables within. `named` counts over the
/// whole statement, since the names of a subquery meet those of the outer query when the subquery becomes a
/// join.
pub(super) fn name_from_subqueries(select: &mut Select, named: &mut usize) {
    if select.from.iter().map(|from| 1 + from.joins.len()).sum::<usize>() < 2 {
        return;
    }
    let factors = select.from.iter_mut().flat_map(|from| {
        std::iter::once(&mut from.relation)
            .chain(from.joins.iter_mut().map(|join| &mut join.relation))
    });
    for factor in factors {
        if let TableFactor::Derived { lateral: false, alias: alias @ None, .. } = factor {
            *named += 1;
            let name = match *named {
                1 => "unnamed_subquery".to_owned(),
                other => format!("unnamed_subquery{other}"),
            };
            let name = Ident::new(name);
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
    }
}

/// Names the column of `FROM range(3) AS n` after the table alias. The select list refers to the rows by that
/// alias, or by the function's name, as in other databases.
pub(super) fn name_series_columns(select: &mut Select) {
    let mut given: Vec<(String, &'static str, String)> = Vec::new();
    let factors = select.from.iter_mut().flat_map(|from| {
        std::iter::once(&mut from.relation)
            .chain(from.joins.iter_mut().map(|join| &mut join.relation))
    });
    for factor in factors {
        let (name, alias) = match factor {
            TableFactor::Table { name, args: Some(_), alias, .. }
            | TableFactor::Function { name, alias, .. } => (name.to_string().to_lowercase(), alias),
            _ => continue,
        };
        let Some(own) = SERIES_CALL_NAMES.iter().find(|own| **own == name) else { continue };
        if let Some(alias) = alias
            && alias.columns.is_empty()
        {
            alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
            given.push((normalize_ident(&alias.name), own, alias.name.value.clone()));
        }
    }
    if given.is_empty() {
        return;
    }
    struct SeriesColumnRenamer(Vec<(String, &'static str, String)>);

    impl VisitorMut for SeriesColumnRenamer {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let found = match &*expr {
                Expr::Identifier(name) => {
                    self.0.iter().find(|(_, own, _)| *own == normalize_ident(name))
                }
                Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                    [table, name] => self.0.iter().find(|(alias, own, _)| {
                        *alias == normalize_ident(table) && *own == normalize_ident(name)
                    }),
                    _ => None,
                },
                _ => None,
            };
            if let Some((_, _, alias)) = found {
                *expr = Expr::Identifier(Ident::new(alias.clone()));
            }
            ControlFlow::Continue(())
        }
    }

    let mut named = SeriesColumnRenamer(given);
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            walk_expr_mut(expr, &mut named);
        }
    }
    walk_conditions_and_keys(select, &mut named);
    let joins = select.from.iter_mut().flat_map(|from| &mut from.joins);
    for join in joins {
        use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
        if let Join(of) | Inner(of) | Left(of) | LeftOuter(of) | Right(of) | RightOuter(of)
        | FullOuter(of) = &mut join.join_operator
            && let JoinConstraint::On(condition) = of
        {
            walk_expr_mut(condition, &mut named);
        }
    }
}

/// The table functions that produce rows of integers batch by batch, under names that no source has, each
/// with DataFusion's function.
pub const SERIES_FUNCTIONS: [(&str, &str); 2] =
    [("tidemill_generate_series", names::GENERATE_SERIES), ("tidemill_range", names::RANGE)];

/// Returns true if a table of a statement is a series function and so reads no source.
pub fn is_series_function(table: &str) -> bool {
    SERIES_FUNCTIONS.iter().any(|(own, _)| table.strip_suffix("()").unwrap_or(table) == *own)
}

/// Functions that return rows of one column, which has the function's name.
const SERIES_CALL_NAMES: [&str; 2] = ["range", "generate_series"];

/// Translates a table function of another database, and replaces a sampled table by a source of its own.
pub(super) fn translate_table(
    table: &mut TableFactor,
    called: &mut TableFunctionSources,
) -> Result<()> {
    let sample = match table {
        TableFactor::Table { sample, .. } => sample.take(),
        _ => None,
    };
    let listed = json_reader_columns(table);
    translate_table_function(table, called)?;
    if let Some(sample) = sample {
        register_sampled_source(table, samples::parse_table_sample(&sample)?, called)?;
    }
    match listed {
        Some(columns) => wrap_in_column_selection(table, &columns),
        None => Ok(()),
    }
}

/// Returns the names in `columns` of a JSON reader's call, which then has no other columns, and the names of
/// the columns that other options add.
fn json_reader_columns(table: &TableFactor) -> Option<Vec<String>> {
    let (name, args) = match table {
        TableFactor::Table { name, args: Some(args), .. } => (name, &args.args),
        TableFactor::Function { name, args, .. } => (name, args),
        _ => return None,
    };
    let reader = name.to_string().to_lowercase();
    if !READER_FUNCTIONS.contains(&(reader.as_str(), Some("json"))) {
        return None;
    }
    let named =
        |wanted: &str| args.iter().filter_map(named_option).find(|(name, _)| name == wanted);
    let (_, columns) = named("columns")?;
    let mut columns: Vec<String> =
        parse_names_and_types(columns)?.into_iter().map(|(name, _)| name).collect();
    for added in ["filename", "file_row_number"] {
        match named(added).and_then(|(_, value)| literal_text(value)).as_deref() {
            None | Some("false") => {}
            Some("true") => columns.push(added.to_owned()),
            Some(name) => columns.push(name.to_owned()),
        }
    }
    Some(columns)
}

/// Replaces a table by `(SELECT columns FROM table)`.
fn wrap_in_column_selection(table: &mut TableFactor, columns: &[String]) -> Result<()> {
    let quoted: Vec<String> =
        columns.iter().map(|name| Ident::with_quote('"', name).to_string()).collect();
    let text = format!("SELECT {} FROM t", quoted.join(", "));
    let statement = parse_statements(&text).map_err(|e| Error::Internal(e.to_string()))?.pop();
    let broken = || Error::Internal(format!("no query: {text}"));
    let Some(Statement::Query(mut subquery)) = statement else { return Err(broken()) };
    let SetExpr::Select(select) = subquery.body.as_mut() else { return Err(broken()) };
    let [from] = select.from.as_mut_slice() else { return Err(broken()) };
    std::mem::swap(&mut from.relation, table);
    let TableFactor::Table { alias, .. } = &mut from.relation else { return Err(broken()) };
    let alias = alias.take();
    *table = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    Ok(())
}

/// Registers the sample of a table as a source with a name of its own.
fn register_sampled_source(
    table: &mut TableFactor,
    asked: SampleClause,
    called: &mut TableFunctionSources,
) -> Result<()> {
    let TableFactor::Table { name, alias, args: None, .. } = table else {
        return Err(Error::usage_with_hint(
            format!("`{table}` is no source to take a sample of"),
            "TABLESAMPLE is of files and sources; rows of a query: WHERE random() < 0.1",
        ));
    };
    let [ObjectNamePart::Identifier(own)] = name.0.as_mut_slice() else { return Ok(()) };
    let (sample, row_sample) = match asked {
        SampleClause::Percent(sample) => (Some(sample), None),
        SampleClause::Rows(sample) => (None, Some(sample)),
    };
    let source = match called.get(&own.value) {
        Some(source) => {
            TableFunctionSource { percent_sample: sample, row_sample, ..source.clone() }
        }
        None => TableFunctionSource {
            urls: vec![own.value.clone()],
            percent_sample: sample,
            row_sample,
            sampled_table: Some(own.value.clone()),
            ..TableFunctionSource::default()
        },
    };
    let of_sample = format!("{} TABLESAMPLE {asked}", redact_url(&own.value));
    called.insert(of_sample.clone(), source);
    if alias.is_none() {
        let name = Ident { value: redact_url(&own.value), ..own.clone() };
        *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    }
    *own = Ident::with_quote('"', of_sample);
    Ok(())
}

/// Returns the alias of single-column rows. As in PostgreSQL, the column is called by the alias, or by the
/// function's own column name.
fn list_item_alias(alias: Option<TableAlias>, column: &str) -> TableAlias {
    let mut alias = alias.unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new(column),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        let name = match column {
            "value" => Ident::new(column),
            _ => alias.name.clone(),
        };
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
    alias
}

fn translate_table_function(
    table: &mut TableFactor,
    called: &mut TableFunctionSources,
) -> Result<()> {
    let (name, args, alias) = match table {
        TableFactor::Table {
            name,
            args: Some(TableFunctionArgs { args, settings: None }),
            alias,
            ..
        }
        | TableFactor::Function { name, args, alias, with_ordinality: false, .. } => {
            (name, args, alias)
        }
        _ => return Ok(()),
    };
    let [ObjectNamePart::Identifier(function)] = name.0.as_slice() else { return Ok(()) };
    if function.quote_style.is_some() {
        return Ok(());
    }
    let function = function.value.to_lowercase();
    if let Some(entries) = lateral_lists::json_each_table(&function, args, alias.clone())? {
        *table = entries;
        return Ok(());
    }
    if let Some((list, column)) = lateral_lists::set_returning_list(&function, args) {
        let alias = list_item_alias(alias.clone(), column);
        *table = TableFactor::UNNEST {
            alias: Some(alias),
            array_exprs: vec![list],
            with_offset: false,
            with_offset_alias: None,
            with_ordinality: false,
        };
        return Ok(());
    }
    match function.as_str() {
        "range" | "generate_series" | "numbers" => {
            let numbers = match (function.as_str(), positional_arguments(args).as_deref()) {
                ("numbers", Some([count])) => vec![count.clone()],
                ("numbers", Some([start, count])) => vec![
                    start.clone(),
                    binary_op(
                        &parenthesize(start.clone()),
                        BinaryOperator::Plus,
                        &parenthesize(count.clone()),
                    ),
                ],
                ("numbers", _) | (_, None) => return Ok(()),
                (_, Some(arguments)) => arguments.to_vec(),
            };
            let column = match function.as_str() {
                "numbers" => "number",
                other => other,
            };
            let (maker, list) = match function == "generate_series" {
                true => SERIES_FUNCTIONS[0],
                false => SERIES_FUNCTIONS[1],
            };
            *table = match is_literal_series(&numbers) {
                true => series_table(maker, numbers, alias.take(), column),
                false => unnest_table(function_call(list, numbers), alias.take(), column),
            };
        }
        "unnest" | "explode" => {
            let Some(lists) = positional_arguments(args) else { return Ok(()) };
            let [list] = lists.as_slice() else { return Ok(()) };
            *table = unnest_table(list.clone(), alias.take(), "unnest");
        }
        _ => {
            let reader = READER_FUNCTIONS.iter().find(|(reader, _)| *reader == function);
            let source = match (function.as_str(), reader) {
                (GLOB_FUNCTION, _) => parse_glob_call(args)?,
                (_, Some((_, format))) => parse_reader_call(&function, args, *format)?,
                (_, None) => return Ok(()),
            };
            let urls: Vec<String> = source.urls.iter().map(|url| redact_url(url)).collect();
            let plain = match urls.as_slice() {
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            let plain =
                if source.lists_files { format!("{GLOB_FUNCTION}({plain})") } else { plain };
            let numbered = (2..).map(|number| format!("{plain} ({number})"));
            let mut free = std::iter::once(plain.clone()).chain(numbered);
            let free = free.find(|other| called.get(other).is_none_or(|other| *other == source));
            let free = free.unwrap_or(plain);
            called.insert(free.clone(), source);
            let alias = alias.take().or_else(|| {
                Some(TableAlias {
                    explicit: true,
                    name: Ident::new(function.clone()),
                    columns: Vec::new(),
                    at: None,
                })
                .filter(|_| function != FILE_LIST_FUNCTION)
            });
            *table = table_by_name(Ident::with_quote('\'', free), alias);
        }
    }
    Ok(())
}

/// Returns true if a table function reads files.
pub(super) fn is_reader_function(function: &str) -> bool {
    READER_FUNCTIONS.iter().any(|(reader, _)| reader.eq_ignore_ascii_case(function))
}

/// Returns the arguments; `None` if an argument is named.
pub(super) fn positional_arguments(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let expr = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    args.iter().map(expr).collect()
}

/// Returns true if these are integer literals of a series that runs from the first to the last. Its rows are
/// then produced batch by batch. Other arguments make a list, whose function reports their errors.
fn is_literal_series(numbers: &[Expr]) -> bool {
    let numbers: Option<Vec<i64>> = numbers.iter().map(literal_integer).collect();
    let (first, last, step) = match numbers.as_deref() {
        Some([last]) => (0, *last, 1),
        Some([first, last]) => (*first, *last, 1),
        Some([first, last, step]) => (*first, *last, *step),
        _ => return false,
    };
    // The number one step beyond the last must not overflow.
    (step > 0 && first <= last || step < 0 && first >= last) && last.checked_add(step).is_some()
}

fn literal_integer(number: &Expr) -> Option<i64> {
    match number {
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => number.parse().ok(),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => literal_integer(expr)?.checked_neg(),
        Expr::Nested(expr) => literal_integer(expr),
        Expr::BinaryOp { left, op: BinaryOperator::Plus, right } => {
            literal_integer(left)?.checked_add(literal_integer(right)?)
        }
        _ => None,
    }
}

/// Returns a call of a series table function.
fn series_table(
    maker: &str,
    numbers: Vec<Expr>,
    alias: Option<TableAlias>,
    column: &str,
) -> TableFactor {
    let args = numbers.into_iter().map(|number| match literal_integer(&number) {
        Some(number) => Expr::value(Value::Number(number.to_string(), false)),
        None => number,
    });
    let args = args.map(|number| FunctionArg::Unnamed(FunctionArgExpr::Expr(number))).collect();
    let mut table = table_by_name(Ident::new(maker), Some(alias_with_column(alias, column)));
    if let TableFactor::Table { args: own, .. } = &mut table {
        *own = Some(TableFunctionArgs { args, settings: None });
    }
    table
}

/// Returns an alias that names its only column.
fn alias_with_column(alias: Option<TableAlias>, column: &str) -> TableAlias {
    let mut alias = alias.unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new(column),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: Ident::new(column), data_type: None });
    }
    alias
}

/// Returns a table with a row for each item of a list.
fn unnest_table(list: Expr, alias: Option<TableAlias>, column: &str) -> TableFactor {
    let alias = alias_with_column(alias, column);
    TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: vec![list],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    }
}

/// Returns a table by its name.
fn table_by_name(name: Ident, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::Table {
        name: ObjectName(vec![ObjectNamePart::Identifier(name)]),
        alias,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// Parses the call of a function that reads files.
fn parse_reader_call(
    function: &str,
    args: &[FunctionArg],
    format: Option<&'static str>,
) -> Result<TableFunctionSource> {
    let mut source = TableFunctionSource { format, ..TableFunctionSource::default() };
    let refused = |what: &str| {
        Error::usage_with_hint(
            format!("`{what}` in {function}(…) is not understood"),
            "it takes a file or a list of files in single quotes, and delim, header, skip, header_row, quote, \
             escape, comment, nullstr, types, columns, filename; flags say the rest (`tidemill query --help`)",
        )
    };
    for (at, arg) in args.iter().enumerate() {
        let (name, value) = match (named_option(arg), arg) {
            (Some((name, value)), _) => (Some(name), value),
            (None, FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) => (None, value),
            _ => return Err(refused(&arg.to_string())),
        };
        match name {
            None if at == 0 => {
                source.urls = literal_texts(value).ok_or_else(|| refused(&arg.to_string()))?
            }
            None => return Err(refused(&arg.to_string())),
            Some(name) if ALWAYS_ON_OPTIONS.contains(&name.as_str()) => {
                let asks_for_it = literal_text(value).is_some_and(|word| word == "true");
                if !asks_for_it {
                    return Err(refused(&arg.to_string()));
                }
            }
            Some(name) if TYPE_OPTIONS.contains(&name.as_str()) => {
                let columns = schema_text(value).ok_or_else(|| refused(&arg.to_string()))?;
                source.schema = Some(columns);
            }
            Some(name) if name == "filename" => {
                source.filename_column = match literal_text(value).as_deref() {
                    Some("true") => Some("filename".to_owned()),
                    Some("false") => None,
                    Some(name) if !name.is_empty() => Some(name.to_owned()),
                    _ => return Err(refused(&arg.to_string())),
                };
            }
            Some(name) if name == "file_row_number" => {
                source.has_file_row_number = match literal_text(value).as_deref() {
                    Some("true") => true,
                    Some("false") => false,
                    _ => return Err(refused(&arg.to_string())),
                };
            }
            Some(name) => {
                let ours = READER_OPTION_NAMES.iter().find(|(theirs, _)| *theirs == name);
                // The message omits the value: it may be a secret that was meant for another option.
                if ours.is_none() {
                    return Err(refused(&name));
                }
                let is_number = ours
                    .is_some_and(|(_, ours)| [SKIP_LINES_OPTION, HEADER_ROW_OPTION].contains(ours));
                let values = match value {
                    Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. })
                        if is_number =>
                    {
                        Some(vec![number.to_string()])
                    }
                    // A list gives several spellings of null.
                    list @ Expr::Array(_) if ours.is_some_and(|(_, ours)| *ours == "null") => {
                        literal_texts(list)
                    }
                    other => literal_text(other).map(|value| vec![value]),
                };
                let (Some((_, ours)), Some(values)) = (ours, values) else {
                    return Err(refused(&arg.to_string()));
                };
                source.options.extend(values.into_iter().map(|value| (*ours, value)));
            }
        }
    }
    match source.urls.is_empty() {
        true => Err(refused("()")),
        false => Ok(source),
    }
}

/// Parses a call of `glob`.
fn parse_glob_call(args: &[FunctionArg]) -> Result<TableFunctionSource> {
    let urls = match positional_arguments(args).as_deref() {
        Some([patterns]) => literal_texts(patterns).filter(|urls| !urls.is_empty()),
        _ => None,
    };
    let Some(urls) = urls else {
        let given: Vec<String> = args.iter().map(ToString::to_string).collect();
        return Err(Error::usage_with_hint(
            format!("`{GLOB_FUNCTION}({})` is not understood", given.join(", ")),
            "it takes a pattern, a folder or a list of them in single quotes: glob('logs/*.csv')",
        ));
    };
    Ok(TableFunctionSource { urls, lists_files: true, ..TableFunctionSource::default() })
}

/// Returns the columns of `{'zip': 'VARCHAR', 'n': 'INT'}` in the syntax of `--schema`.
fn schema_text(value: &Expr) -> Option<String> {
    let pairs = parse_names_and_types(value)?;
    let column = |(name, of): &(String, String)| format!("\"{}\" {of}", name.replace('"', "\"\""));
    (!pairs.is_empty()).then(|| pairs.iter().map(column).collect::<Vec<_>>().join(", "))
}

/// Returns the names and types of `{'zip': 'VARCHAR', 'n': 'INT'}`.
fn parse_names_and_types(value: &Expr) -> Option<Vec<(String, String)>> {
    match value {
        Expr::Dictionary(fields) => {
            let pair = |field: &DictionaryField| {
                Some((field.key.value.clone(), literal_text(&field.value)?))
            };
            fields.iter().map(pair).collect()
        }
        Expr::Map(map) => {
            let pair =
                |entry: &MapEntry| Some((literal_text(&entry.key)?, literal_text(&entry.value)?));
            map.entries.iter().map(pair).collect()
        }
        _ => None,
    }
}

/// Returns the name and the value of an option of a reader: `delim = ';'` or `delim => ';'`.
fn named_option(arg: &FunctionArg) -> Option<(String, &Expr)> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        })) => match left.as_ref() {
            Expr::Identifier(name) => Some((name.value.to_lowercase(), right.as_ref())),
            _ => None,
        },
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), operator: _ } => {
            Some((name.value.to_lowercase(), value))
        }
        _ => None,
    }
}

/// Returns the text of a text literal, or the word of a boolean literal.
fn literal_text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span: _ }) => {
            Some(text.clone())
        }
        Expr::Value(ValueWithSpan { value: Value::EscapedStringLiteral(text), span: _ }) => {
            Some(text.clone())
        }
        Expr::Value(ValueWithSpan { value: Value::Boolean(yes), span: _ }) => Some(yes.to_string()),
        _ => None,
    }
}

/// Returns the texts of a literal, or of a list of literals.
fn literal_texts(expr: &Expr) -> Option<Vec<String>> {
    match expr {
        Expr::Array(array) => array.elem.iter().map(literal_text).collect(),
        one => Some(vec![literal_text(one)?]),
    }
}
