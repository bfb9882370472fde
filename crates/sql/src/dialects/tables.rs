//! Tables of other databases: functions that read files, lists of files, numbers in rows.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart,
    TableAlias, TableAliasColumnDef, TableFactor, TableFunctionArgs, Value, ValueWithSpan,
};
use tidemill_base::error::{Error, Result};
use tidemill_base::redact::shown;

use super::CalledSources;
use super::calls::call_of;
use super::tokens::FILES;

/// A source that is called like a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalledSource {
    /// Its paths, URLs and patterns.
    pub urls: Vec<String>,
    /// The name of its format, unless suffixes tell it.
    pub format: Option<&'static str>,
    /// What it says of how text is written, by our names.
    pub options: Vec<(&'static str, String)>,
}

/// Functions that read files, and the format that each reads.
const READERS: [(&str, Option<&str>); 17] = [
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
    (FILES, None),
];

/// What readers' options are called here.
const OPTIONS: [(&str, &str); 13] = [
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
    ("nullstr", "null"),
    ("null_values", "null"),
    ("log_format", "log_format"),
];

/// Options that ask for what is done anyway.
const ANYWAY: [&str; 3] = ["auto_detect", "union_by_name", "hive_partitioning"];

/// Writes a table of another database's as it is here.
pub(super) fn translate(table: &mut TableFactor, called: &mut CalledSources) -> Result<()> {
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
    match function.as_str() {
        "range" | "generate_series" | "numbers" => {
            let numbers = match (function.as_str(), positional(args).as_deref()) {
                ("numbers", Some([count])) => vec![count.clone()],
                ("numbers", _) | (_, None) => return Ok(()),
                (_, Some(arguments)) => arguments.to_vec(),
            };
            let column = match function.as_str() {
                "numbers" => "number",
                other => other,
            };
            let list = call_of(
                if function == "generate_series" { "generate_series" } else { "range" },
                numbers,
            );
            *table = rows_of(list, alias.take(), column);
        }
        "unnest" | "explode" => {
            let Some(lists) = positional(args) else { return Ok(()) };
            let [list] = lists.as_slice() else { return Ok(()) };
            *table = rows_of(list.clone(), alias.take(), "unnest");
        }
        _ => {
            let Some((_, format)) = READERS.iter().find(|(reader, _)| *reader == function) else {
                return Ok(());
            };
            let source = source(&function, args, *format)?;
            let urls: Vec<String> = source.urls.iter().map(|url| shown(url)).collect();
            let plain = match urls.as_slice() {
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
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
                .filter(|_| function != FILES)
            });
            *table = of_name(Ident::with_quote('\'', free), alias);
        }
    }
    Ok(())
}

/// The arguments, none of which has a name.
fn positional(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let expr = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    args.iter().map(expr).collect()
}

/// A row for each item of a list.
fn rows_of(list: Expr, alias: Option<TableAlias>, column: &str) -> TableFactor {
    let mut alias = alias.unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new(column),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: Ident::new(column), data_type: None });
    }
    TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: vec![list],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    }
}

/// A table by its name.
fn of_name(name: Ident, alias: Option<TableAlias>) -> TableFactor {
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

/// What a function that reads files is asked for.
fn source(
    function: &str,
    args: &[FunctionArg],
    format: Option<&'static str>,
) -> Result<CalledSource> {
    let mut source = CalledSource { urls: Vec::new(), format, options: Vec::new() };
    let refused = |what: &str| {
        Error::usage_hint(
            format!("`{what}` in {function}(…) is not understood"),
            "it takes a file or a list of files in single quotes, and delim, header, quote, escape, comment, \
             nullstr; flags say the rest (`tidemill query --help`)",
        )
    };
    for (at, arg) in args.iter().enumerate() {
        let (name, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
                left,
                op: BinaryOperator::Eq,
                right,
            })) => match left.as_ref() {
                Expr::Identifier(name) => (Some(name.value.to_lowercase()), right.as_ref()),
                _ => return Err(refused(&arg.to_string())),
            },
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (None, value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), operator: _ } => {
                (Some(name.value.to_lowercase()), value)
            }
            _ => return Err(refused(&arg.to_string())),
        };
        match name {
            None if at == 0 => {
                source.urls = texts(value).ok_or_else(|| refused(&arg.to_string()))?
            }
            None => return Err(refused(&arg.to_string())),
            Some(name) if ANYWAY.contains(&name.as_str()) => {
                let asks_for_it = text(value).is_some_and(|word| word == "true");
                if !asks_for_it {
                    return Err(refused(&arg.to_string()));
                }
            }
            Some(name) => {
                let ours = OPTIONS.iter().find(|(theirs, _)| *theirs == name);
                let (Some((_, ours)), Some(value)) = (ours, text(value)) else {
                    return Err(refused(&arg.to_string()));
                };
                source.options.push((ours, value));
            }
        }
    }
    match source.urls.is_empty() {
        true => Err(refused("()")),
        false => Ok(source),
    }
}

/// The text of a literal, or the word for a truth value.
fn text(expr: &Expr) -> Option<String> {
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

/// The texts of a literal, or of a list of literals.
fn texts(expr: &Expr) -> Option<Vec<String>> {
    match expr {
        Expr::Array(array) => array.elem.iter().map(text).collect(),
        one => Some(vec![text(one)?]),
    }
}
