//! Translation of DataFusion's errors into Tidemill's messages.
//!
//! DataFusion's errors are mostly texts. Only this module parses them, with a test for each known message, so
//! that a new version of DataFusion cannot change Tidemill's messages unnoticed.

use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError as Df;
use tidemill_base::arrow_errors::{self, replace_arrow_type_names};
use tidemill_base::{Error, suggestions};
use tidemill_planning::error_carrier::OUT_OF_MEMORY_PREFIX;
pub use tidemill_planning::error_carrier::into_datafusion_error;

/// Conversion of another library's error into Tidemill's error, with a message for the author of the query.
pub trait IntoTidemillError {
    /// Tidemill's error, or a result with it.
    type Output;

    /// Converts the error.
    fn into_tidemill_error(self) -> Self::Output;
}

impl<T, E: IntoTidemillError<Output = Error>> IntoTidemillError for Result<T, E> {
    type Output = Result<T, Error>;

    fn into_tidemill_error(self) -> Result<T, Error> {
        self.map_err(IntoTidemillError::into_tidemill_error)
    }
}

impl IntoTidemillError for Df {
    type Output = Error;

    fn into_tidemill_error(self) -> Error {
        match self {
            Df::External(source) => match source.downcast::<Error>() {
                Ok(error) => *error,
                Err(source) => match source.downcast::<Df>() {
                    Ok(inner) => inner.into_tidemill_error(),
                    Err(source) => translate_message(source.to_string()),
                },
            },
            Df::ArrowError(source, _) => source.into_tidemill_error(),
            Df::Context(_, inner) | Df::Diagnostic(_, inner) => inner.into_tidemill_error(),
            Df::Shared(inner) => match Arc::try_unwrap(inner) {
                Ok(inner) => inner.into_tidemill_error(),
                // Several readers of one stream receive the same error.
                Err(shared) => translate_shared_error(&shared),
            },
            Df::Collection(mut errors) if !errors.is_empty() => {
                errors.swap_remove(0).into_tidemill_error()
            }
            Df::IoError(source) => Error::io("read or write", "a stream", source),
            Df::SQL(parser, _) => parser_error(&parser.to_string()),
            Df::SchemaError(schema_error, _) => match *schema_error {
                SchemaError::FieldNotFound { field, valid_fields } => {
                    unknown_column_error(&field, &valid_fields)
                }
                SchemaError::AmbiguousReference { field } => Error::usage_with_hint(
                    format!("column `{}` is in more than one source", field.name()),
                    format!("say which: `source.{}`", field.name()),
                ),
                SchemaError::DuplicateQualifiedField { qualifier, .. } => Error::usage_with_hint(
                    format!("`{}` stands twice in FROM", qualifier.table()),
                    "give each a name: FROM 'a.csv' AS x JOIN 'a.csv' AS y ON …",
                ),
                other => Error::usage(other.to_string()),
            },
            Df::Plan(message) if message.starts_with(UNKNOWN_FUNCTION_PREFIX) => {
                let rest = &message[UNKNOWN_FUNCTION_PREFIX.len()..];
                crate::unknown_functions::unknown_function_error(
                    rest.split('\'').next().unwrap_or_default(),
                )
            }
            Df::Plan(message) | Df::NotImplemented(message) | Df::Configuration(message) => {
                plan_error(&message)
            }
            Df::ResourcesExhausted(message) => memory_pool_error(&message).unwrap_or_else(|| {
                Error::MemoryBudgetTooSmall { message, hint: Some("give --memory more".into()) }
            }),
            Df::Execution(message) if message.contains("Cannot access field at argument") => {
                plan_error(&message)
            }
            Df::Execution(message) => cast_error(&message),
            Df::Internal(message)
                if USER_ERROR_MARKERS.iter().any(|part| message.contains(part)) =>
            {
                plan_error(&message)
            }
            Df::Internal(message) => {
                translate_known_message(&message).unwrap_or(Error::Internal(message))
            }
            other => translate_message(other.strip_backtrace()),
        }
    }
}

impl IntoTidemillError for ArrowError {
    type Output = Error;

    fn into_tidemill_error(self) -> Error {
        match self {
            ArrowError::ExternalError(source) => Df::External(source).into_tidemill_error(),
            ArrowError::CastError(message) => cast_error(&message),
            ArrowError::ComputeError(message)
            | ArrowError::InvalidArgumentError(message)
            | ArrowError::ArithmeticOverflow(message) => translate_message(message),
            other => translate_known_message(&other.to_string()).unwrap_or_else(|| other.into()),
        }
    }
}

/// Returns Tidemill's error for a message, if the message is known.
fn translate_known_message(message: &str) -> Option<Error> {
    match KNOWN_MESSAGES.iter().find(|(part, _, _)| message.contains(part)) {
        Some((_, ours, hint)) => Some(Error::usage_with_hint(*ours, *hint)),
        None => unknown_item_error(message)
            .or_else(|| function_argument_error(message))
            .or_else(|| regex_error(message))
            .or_else(|| arrow_errors::translate_arrow_message(message)),
    }
}

fn translate_message(message: String) -> Error {
    translate_known_message(&message).unwrap_or(Error::Query(message))
}

/// Returns the error of one of Tidemill's functions for arguments that it does not take, without DataFusion's
/// prefix.
fn function_argument_error(message: &str) -> Option<Error> {
    // `signature_error` reports these together with the call.
    if message.contains(NO_SIGNATURE_PREFIX) {
        return None;
    }
    let (_, said) = message.split_once("user-defined coercion failed with: External error: ")?;
    let (said, hint) = said.split_once("\nhint: ")?;
    // `weighted_sample` is planned as `sample_rank`.
    if let Some((_, types)) =
        said.split_once("`sample_rank` takes other arguments than (BIGINT UNSIGNED, ")
    {
        let found = types.trim_end_matches(')');
        return Some(Error::usage_with_hint(
            format!(
                "the weight of `weighted_sample` is a number; its third argument is of type {found}"
            ),
            "it is called as weighted_sample(x, n, weight)",
        ));
    }
    Some(Error::usage_with_hint(said, hint.lines().next().unwrap_or_default()))
}

/// Returns the error for a regular expression that does not compile.
fn regex_error(message: &str) -> Option<Error> {
    if message.contains("CompiledTooBig(") || message.contains("Compiled regex exceeds size limit")
    {
        return Some(Error::usage_with_hint(
            "a pattern takes more than 10 MiB",
            "repetitions such as {1,1000} are written out: * and + are not",
        ));
    }
    // The regex parser prints the pattern, marks the position and gives the reason in its last line.
    let (_, drawn) = message.split_once("regex parse error:")?;
    let mut lines = drawn.lines().map(str::trim).filter(|line| !line.is_empty());
    let pattern = lines.next()?;
    let (_, reason) = drawn.rsplit_once("error: ")?;
    let reason = reason.lines().next()?.trim_end_matches([')', '"', '.']);
    let hint = match reason.contains("backreferences") || reason.contains("look-around") {
        true => {
            "expressions are matched in one pass, which neither backreferences nor look-around allow"
        }
        false => "a backslash before a sign means the sign itself: \\( \\[ \\. \\* \\+ \\?",
    };
    Some(Error::usage_with_hint(
        format!("the pattern `{pattern}` is not understood: {reason}"),
        hint,
    ))
}

/// Returns the error for a value that cannot be cast.
fn cast_error(message: &str) -> Error {
    translate_known_message(message).unwrap_or_else(|| arrow_errors::translate_cast_error(message))
}

/// Parts of DataFusion's messages, each with Tidemill's message and hint.
const KNOWN_MESSAGES: [(&str, &str, &str); 42] = [
    // A null takes the type of the value beside it: `NULL LIKE [1]`.
    (
        "data type mismatch for nested data, op ",
        "LIKE takes texts, and no lists, structs or maps",
        "CAST(x AS TEXT) converts it",
    ),
    (
        "NULLS are not permitted for nth_value",
        "`nth_value` counts nulls, too: it takes no IGNORE NULLS",
        "(array_agg(x ORDER BY n) FILTER (WHERE x IS NOT NULL))[2] is the second that is not null",
    ),
    (
        "string_agg delimiter must be a string literal",
        "what `string_agg` puts between texts is one text for all rows, not a column",
        "string_agg(a || b, ', ') puts a column's text behind another's",
    ),
    (
        "DISTINCT aggregate should have exactly one argument",
        "an aggregate with DISTINCT takes one column, and constants beside it",
        "take it of SELECT DISTINCT … in a subquery",
    ),
    (
        "arrays_zip expects array arguments",
        "`list_zip` takes lists",
        "list_zip([1, 2], ['a', 'b']) pairs their items; [x] is a list of one",
    ),
    (
        "Invalid comparison operation: ",
        "two values are compared that are of different types, and one of them has none of its own",
        "CAST(NULL AS TEXT) is a null with a type",
    ),
    (
        "LambdaVariable field and schema field mismatch",
        "the function of `list_reduce` answers another type than it takes",
        "CAST gives it one type: list_reduce(list, (a, b) -> CAST(a * b AS DOUBLE))",
    ),
    (
        "lambda must return boolean",
        "what a list is filtered by is true or false",
        "list_filter(list, x -> x > 1); list_transform(list, x -> x + 1) makes other items of them",
    ),
    (
        " for function to_",
        "a time is made of text, of a number or of another time, and this is neither",
        "to_date(text), to_timestamp(seconds); a field of a struct is named: s.day",
    ),
    (
        "Conflicting ordering requirements in aggregate functions",
        "lists in several orders do not go beside an aggregate that has no partial table",
        "a query of its own for one of them, and a join: docs/reference/functions.md has those that merge",
    ),
    (
        "For SELECT DISTINCT, ORDER BY expressions",
        "SELECT DISTINCT is ordered by what it selects, and ORDER BY asks for something else",
        "of rows that are alike there is one: GROUP BY a ORDER BY min(b) orders them by another column",
    ),
    (
        "SELECT DISTINCT ON expressions must match",
        "`DISTINCT ON` has an ORDER BY that does not begin with its keys, beside QUALIFY, a window, a random value or a place",
        "ORDER BY k, t begins with the key; QUALIFY row_number() OVER (PARTITION BY k ORDER BY t) = 1 takes the first row of each",
    ),
    (
        "Expected an integer value",
        "`lag` and `lead` take a whole number as their second argument: how many rows away",
        "lag(x, 1, 0) OVER (ORDER BY ts): the row before, and 0 where there is none",
    ),
    (
        "NTILE requires a positive integer",
        "`ntile` takes how many parts, a whole number from 1 on",
        "ntile(4) OVER (ORDER BY x) gives quarters",
    ),
    (
        "Percentile value must be between 0.0 and 1.0",
        "a percentile is a share from 0 to 1",
        "0.95 is the 95th",
    ),
    (
        "Percentile value for ",
        "a percentile is a number from 0 to 1 that stands in the query",
        "quantile_cont(x, 0.95); several: [quantile_cont(x, 0.5), quantile_cont(x, 0.95)]",
    ),
    (
        "Expected LIMIT to be an integer",
        "LIMIT and OFFSET take a whole number",
        "LIMIT 10 OFFSET 20",
    ),
    (
        "unnest() can only be applied to array, struct and null",
        "`unnest` takes a list or a struct",
        "string_split(x, ',') makes a list of a text",
    ),
    (
        "Correlated scalar subquery can only be used in",
        "a subquery that depends on the row around it cannot stand in ORDER BY or JOIN … ON",
        "name it in the select list of a subquery, and order by its name",
    ),
    (
        "unnest() does not support null yet",
        "`unnest` of NULL alone has no type",
        "a cast gives it one: unnest(CAST(NULL AS BIGINT[]))",
    ),
    (
        "Source table contains",
        "an alias names more columns, or fewer, than there are",
        "a name for each: FROM (SELECT 1, 2) AS t (a, b)",
    ),
    (
        "Unsupported LIMIT expression",
        "LIMIT and OFFSET take a whole number",
        "a number that is calculated goes by rows: QUALIFY row_number() OVER (ORDER BY a) <= (SELECT …)",
    ),
    (
        "LIMIT must be >= 0",
        "LIMIT takes a whole number of zero and more",
        "ORDER BY … DESC LIMIT 10 gives the last ten",
    ),
    (
        "OFFSET must be >=0",
        "OFFSET takes a whole number of zero and more",
        "ORDER BY … DESC turns the rows round",
    ),
    (
        "HAVING clause references",
        "HAVING is a condition on groups, and this one asks for a column of their rows",
        "WHERE is the condition on rows; GROUP BY x makes x a group's own, min(x) takes one of its values",
    ),
    (
        "Scalar subquery returned more than one row",
        "a subquery that stands for one value has more than one row",
        "an aggregate makes one of them: (SELECT max(x) FROM b); x IN (SELECT …) compares with all",
    ),
    (
        "Tuple expressions ",
        "ROLLUP and CUBE take keys, and no lists of keys",
        "GROUPING SETS ((a, b, c), (a, b), ()) is ROLLUP ((a, b), c)",
    ),
    (
        "COUNT DISTINCT with multiple arguments",
        "`count(DISTINCT …)` takes one value",
        "count(DISTINCT struct(a, b)) counts pairs",
    ),
    (
        "Too many columns! The subquery should only return one column",
        "`IN (SELECT …)` compares one value with one column",
        "EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND b.y = a.y) compares several",
    ),
    (
        "Empty tuple not supported yet",
        "GROUP BY () is not supported",
        "an aggregate without GROUP BY is of all rows",
    ),
    (
        "There is only support Literal types for field",
        "the arguments of a window function behind the first are literals",
        "coalesce(lag(x) OVER (…), y) takes what stands in for a missing row from a column",
    ),
    (
        "Aggregate ORDER BY is not implemented for window functions",
        "an aggregate over a window takes no ORDER BY in its own brackets",
        "OVER (ORDER BY …) orders the rows of its frame",
    ),
    (
        "Invalid window frame: start bound",
        "a window's frame ends before it begins",
        "the far end comes first: BETWEEN 3 PRECEDING AND 1 PRECEDING",
    ),
    (
        "frame offsets for RANGE must be",
        "an offset of RANGE is a literal number of zero and more, or an interval",
        "RANGE 5 PRECEDING, RANGE INTERVAL '1 hour' PRECEDING",
    ),
    (
        "frame offsets for ROWS / GROUPS must be",
        "an offset of ROWS or GROUPS is a whole number of zero and more",
        "ROWS 5 PRECEDING; UNBOUNDED PRECEDING reaches all",
    ),
    (
        "array_resize: failed to convert size",
        "`array_resize` takes a size of zero and more",
        "array_slice(list, 1, n) takes the first n",
    ),
    (
        "cannot take square root of a negative number",
        "`sqrt` takes numbers of zero and more",
        "CASE WHEN x >= 0 THEN sqrt(x) END leaves the others out",
    ),
    (
        "not yet implemented for GROUPING aggregate",
        "`grouping` is of GROUP BY ROLLUP, CUBE and GROUPING SETS, and takes no OVER",
        "it stands in the select list beside the groups",
    ),
    ("Unsupported interval argument", "an interval is a text with its unit", "INTERVAL '3 days'"),
    (
        "nth_value not supported for n: 0",
        "`nth_value` counts from 1",
        "first_value(x) is nth_value(x, 1)",
    ),
    (
        "Nth value indices are 1 based",
        "`nth_value` counts from 1",
        "first_value(x) is nth_value(x, 1)",
    ),
    (
        "nth_value not supported for n: ",
        "the place of `nth_value` is a whole number that stands in the query, from 1 on",
        "array_agg(x ORDER BY y) is a list, of which list[n] takes a value by a column",
    ),
];

/// Returns the memory pool's message as an error, if a DataFusion message contains it.
fn memory_pool_error(message: &str) -> Option<Error> {
    let (_, ours) = message.split_once(OUT_OF_MEMORY_PREFIX)?;
    let (message, hint) = ours.split_once("\nhint: ").unwrap_or((ours, ""));
    let hint = hint.lines().next().filter(|hint| !hint.is_empty()).map(str::to_owned);
    Some(Error::MemoryBudgetTooSmall { message: format!("{OUT_OF_MEMORY_PREFIX}{message}"), hint })
}

/// Converts an error with several owners like [`IntoTidemillError`], so that all of them get the same
/// message.
fn translate_shared_error(error: &Df) -> Error {
    fn translate_external_error(source: &(dyn std::error::Error + 'static)) -> Error {
        if let Some(ours) = source.downcast_ref::<Error>() {
            return ours.duplicate();
        }
        match source.downcast_ref::<Df>() {
            Some(inner) => translate_shared_error(inner),
            None => translate_message(source.to_string()),
        }
    }
    match error {
        Df::External(source) => translate_external_error(source.as_ref()),
        Df::ArrowError(source, _) => match source.as_ref() {
            ArrowError::ExternalError(source) => translate_external_error(source.as_ref()),
            ArrowError::DivideByZero => ArrowError::DivideByZero.into_tidemill_error(),
            ArrowError::CastError(message) => {
                ArrowError::CastError(message.clone()).into_tidemill_error()
            }
            ArrowError::ComputeError(message)
            | ArrowError::InvalidArgumentError(message)
            | ArrowError::ArithmeticOverflow(message) => {
                ArrowError::ArithmeticOverflow(message.clone()).into_tidemill_error()
            }
            ArrowError::ParseError(message) => {
                ArrowError::ParseError(message.clone()).into_tidemill_error()
            }
            other => Error::Query(other.to_string()),
        },
        Df::Context(_, inner) | Df::Diagnostic(_, inner) => translate_shared_error(inner),
        Df::Shared(inner) => translate_shared_error(inner),
        Df::Collection(errors) if !errors.is_empty() => translate_shared_error(&errors[0]),
        Df::Plan(message) => Df::Plan(message.clone()).into_tidemill_error(),
        Df::NotImplemented(message) => Df::NotImplemented(message.clone()).into_tidemill_error(),
        Df::Configuration(message) => Df::Configuration(message.clone()).into_tidemill_error(),
        Df::ResourcesExhausted(message) => {
            Df::ResourcesExhausted(message.clone()).into_tidemill_error()
        }
        Df::Execution(message) => Df::Execution(message.clone()).into_tidemill_error(),
        Df::Internal(message) => Df::Internal(message.clone()).into_tidemill_error(),
        other => Error::Query(other.strip_backtrace()),
    }
}

/// Parts of messages that the planner reports as internal errors, although the query is wrong.
const USER_ERROR_MARKERS: [&str; 4] = [
    "failed to match any signature",
    "Failed to coerce types",
    "Cannot run range queries on datatype",
    "unnest on struct can only be applied",
];

const UNKNOWN_FUNCTION_PREFIX: &str = "Invalid function '";

const NO_SIGNATURE_PREFIX: &str = "No function matches the given name and argument types '";

/// Returns a hint about arguments of the wrong `types`.
fn cast_hint(types: &str) -> &'static str {
    if types.contains("TEXT") {
        "CAST(x AS DOUBLE) converts a column; one of numbers is TEXT if it holds other text, and \
         --null says which text means null"
    } else {
        "CAST(x AS TYPE) converts an argument"
    }
}

/// Translates DataFusion's message about a function's arguments, which lists the signatures that it tried.
fn signature_error(message: &str) -> Error {
    let rest = message.split(NO_SIGNATURE_PREFIX).nth(1).unwrap_or_default();
    let call = replace_arrow_type_names(rest.split('\'').next().unwrap_or_default());
    if let Some((of, _)) = call.strip_prefix("array_element(").and_then(|of| of.split_once(", ")) {
        return Error::usage_with_hint(
            format!("`x[n]` takes an item of a list or a field of a struct, and this is a {of}"),
            "substr(x, n, 1) takes a character of a TEXT",
        );
    }
    let name = call.split('(').next().unwrap_or_default();
    let message = format!("there is no `{call}`");
    let inner = call.split_once('(').map_or("", |(_, inner)| inner.trim_end_matches(')'));
    let is_text_first = inner.starts_with("TEXT");
    match name {
        "array_has_any" if !inner.contains("[]") => {
            return Error::usage_with_hint(
                message,
                "AND holds where both conditions do; && is of two lists",
            );
        }
        "date_trunc" | "date_part" | "date_bin" if !is_text_first && inner.contains("TEXT") => {
            return Error::usage_with_hint(
                message,
                format!("the unit stands first: {name}('day', ts)"),
            );
        }
        _ => {}
    }
    let calls = tidemill_functions::function_syntax(name).or_else(|| datafusion_call_syntax(name));
    let calls = match (name, calls) {
        ("max" | "min", Some(calls)) => Some(format!("{calls}, {name}(expression, n)")),
        (_, calls) => calls,
    };
    // With the right number of arguments, their types are wrong, and a cast helps.
    let count = |call: &str| {
        let inner = call.split_once('(').map_or("", |(_, inner)| inner).trim_end_matches(')');
        if inner.trim().is_empty() { 0 } else { inner.split(", ").count() }
    };
    let is_as_many = |calls: &str| calls.split("), ").any(|one| count(one) == count(&call));
    match calls {
        Some(calls)
            if tidemill_functions::function_syntax(name).is_some()
                || !is_as_many(&calls)
                || call.contains("[]") =>
        {
            Error::usage_with_hint(message, format!("it is called as {calls}"))
        }
        _ => Error::usage_with_hint(message, cast_hint(&call)),
    }
}

/// Returns DataFusion's documented syntax of one of its functions.
fn datafusion_call_syntax(name: &str) -> Option<String> {
    use datafusion::logical_expr::Documentation;
    let shown = |documentation: Option<&Documentation>| {
        let calls: Vec<&str> = documentation?
            .syntax_example
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with(name))
            .collect();
        (!calls.is_empty()).then(|| calls.join(", "))
    };
    datafusion::functions::all_default_functions()
        .iter()
        .chain(&datafusion::functions_nested::all_default_nested_functions())
        .find(|function| function.name() == name)
        .and_then(|function| shown(function.documentation()))
        .or_else(|| {
            let all = datafusion::functions_aggregate::all_default_aggregate_functions();
            let one = all.iter().find(|function| function.name() == name)?;
            shown(one.documentation())
        })
        .or_else(|| {
            let all = datafusion::functions_window::all_default_window_functions();
            let one = all.iter().find(|function| function.name() == name)?;
            shown(one.documentation())
        })
}

/// Returns the error for an unknown column, with the names of the valid ones.
fn unknown_column_error(
    field: &datafusion::common::Column,
    valid: &[datafusion::common::Column],
) -> Error {
    // ORDER BY sees both the selected columns and those of the sources.
    let mut seen = std::collections::HashSet::new();
    let names = valid.iter().map(|field| field.name()).filter(|name| seen.insert(*name));
    let names: Vec<&str> = names.collect();
    if let Some(source) = &field.relation {
        let mut sources: Vec<&str> =
            valid.iter().filter_map(|field| Some(field.relation.as_ref()?.table())).collect();
        sources.dedup();
        let source = source.table();
        let is_none = !sources.is_empty() && !sources.contains(&source);
        // The name may mean a field of a column, unless there is a column of the field's name.
        if is_none
            && (names.contains(&field.name())
                || suggestions::nearest_candidate(source, names.iter().copied()).is_none())
        {
            let meant = suggestions::nearest_candidate(source, sources.iter().copied());
            let hint = match meant {
                Some(meant) => format!("did you mean `{meant}.{}`?", field.name()),
                None if sources.len() > 1 => {
                    let sources: Vec<String> =
                        sources.iter().map(|source| format!("`{source}`")).collect();
                    format!("the sources are {}", sources.join(", "))
                }
                None if sources[0].chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                    format!("the source is `{}`: {}.{}", sources[0], sources[0], field.name())
                }
                None => {
                    format!("a source is named where it is read: FROM '{}' AS {source}", sources[0])
                }
            };
            return Error::usage_with_hint(
                format!("unknown source `{source}` in `{source}.{}`", field.name()),
                hint,
            );
        }
    }
    let message = suggestions::unknown_name_message("column", field.name(), &names);
    match names.as_slice() {
        ["line"] => Error::usage_with_hint(
            message,
            "the source is read as lines of text; --source-format says what it \
             is: access-log, syslog, logfmt, json, csv, …",
        ),
        // A file with another separator has a single column.
        [one] => match [';', '\t', '|'].into_iter().find(|separator| one.contains(*separator)) {
            Some(separator) => {
                let written = if separator == '\t' { "\\t".into() } else { separator.to_string() };
                Error::usage_with_hint(
                    message,
                    format!("--delimiter '{written}' splits the records of the file there"),
                )
            }
            None => Error::usage(message),
        },
        _ => match unknown_column_hint(field.name(), &names) {
            Some(hint) => Error::usage_with_hint(message, hint),
            None => Error::usage(message),
        },
    }
}

/// Returns a hint for an unknown column that no other name is close to.
fn unknown_column_hint(name: &str, names: &[&str]) -> Option<String> {
    const AGGREGATES: [&str; 6] = ["count", "sum", "avg", "min", "max", "median"];
    if suggestions::nearest_candidate(name, names.iter().copied()).is_some() {
        return None;
    }
    if AGGREGATES.contains(&name) {
        let of = if name == "count" { "*" } else { "x" };
        return Some(format!("an aggregate has brackets: {name}({of})"));
    }
    if let Some(longer) = names.iter().find(|known| known.starts_with(&format!("{name} "))) {
        return Some(format!("a name with a space stands in double quotes: \"{longer}\""));
    }
    let is_word = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_word.then(|| format!("a text, if it is one, stands in single quotes: '{name}'"))
}

/// Translates the SQL parser's message, without the parser's own prefix.
fn parser_error(message: &str) -> Error {
    let message = message.strip_prefix("sql parser error: ").unwrap_or(message);
    if message.contains("recursion limit exceeded") {
        return nesting_error();
    }
    if let Some(rest) = message.strip_prefix("No infix parser for token ") {
        let (token, place) = rest.rsplit_once(" at Line").unwrap_or((rest, ""));
        // The parser prints its own names of tokens.
        let operator = match token {
            "Sharp" => Some("#"),
            word => word.split("value: \"").nth(1).and_then(|word| word.split('"').next()),
        };
        let place = if place.is_empty() { String::new() } else { format!(" at Line{place}") };
        let message = match operator {
            Some(operator) => format!("there is no operator `{operator}`{place}"),
            None => format!("SQL is not understood: there is no such operator{place}"),
        };
        return match operator.map(str::to_ascii_uppercase).as_deref() {
            Some("#") => Error::usage_with_hint(
                message,
                "the exclusive or of whole numbers is (a | b) - (a & b)",
            ),
            _ => Error::usage(message),
        };
    }
    if message.starts_with("Dot access not supported for non-string expr") {
        return value_field_error();
    }
    let understood = format!("SQL is not understood: {message}");
    let found = message.split("found: ").nth(1).unwrap_or_default();
    if message.contains("Expected: an SQL statement") {
        let hint = match found.split_whitespace().next().map(str::to_ascii_uppercase).as_deref() {
            Some("PIVOT") => "PIVOT 'f.csv' ON kind USING sum(x) GROUP BY day",
            Some("UNPIVOT") => "UNPIVOT 'f.csv' ON a, b INTO NAME kind VALUE x",
            _ => "a query is SQL: SELECT * FROM 'logs.csv'; `tidemill head FILE` shows a file",
        };
        return Error::usage_with_hint(understood, hint);
    }
    if message.contains("Expected: MATCH_CONDITION") {
        return Error::usage_with_hint(
            "`ASOF JOIN` has no condition",
            "ASOF JOIN b ON a.id = b.id AND a.ts >= b.ts",
        );
    }
    // A path stands where SQL expects a name.
    match found.starts_with(['/', '.', '~']) {
        true => Error::usage_with_hint(
            understood,
            "a file is named in single quotes: FROM 'logs/web.csv'",
        ),
        false => Error::usage(understood),
    }
}

/// Returns the error for SQL that nests deeper than the parser can follow.
pub fn nesting_error() -> Error {
    Error::usage_with_hint(
        "the SQL is nested too deeply",
        "name its parts: WITH part AS (SELECT …) SELECT … FROM part",
    )
}

fn value_field_error() -> Error {
    Error::usage_with_hint(
        "a dot stands behind the name of a column or a source, and not behind a value",
        "the field of a value is value['field']; a source is named where it is read: FROM 'f.csv' \
         AS f",
    )
}

/// Returns the error for a set operation whose sides have different numbers of columns.
pub(crate) fn column_count_error(operator: &str) -> Error {
    Error::usage_with_hint(
        format!("the sides of {operator} have different numbers of columns"),
        "they go together by their places; NULL AS name stands for one that a side has not",
    )
}

/// Returns the text after the first of `starts` that a message contains.
fn text_after<'a>(message: &'a str, starts: &[&str]) -> Option<&'a str> {
    starts.iter().find_map(|start| message.split_once(start).map(|(_, rest)| rest))
}

/// Translates the planner's message about an operator that does not take its operands' types: `DATE + DATE`.
fn operator_type_error(message: &str) -> Option<Error> {
    let first = message.lines().next().unwrap_or_default();
    let of_times = text_after(first, &["Cannot get result type for temporal operation "])
        .and_then(|rest| rest.split(": ").next());
    let operation = of_times
        .or_else(|| {
            let rest = text_after(first, &["Cannot coerce arithmetic expression "])?;
            rest.strip_suffix(" to valid types")
        })
        .or_else(|| {
            text_after(
                first,
                &[
                    "Cannot infer common argument type for comparison operation ",
                    "Cannot infer common argument type for logical boolean operation ",
                    "Cannot infer common argument type for regex operation ",
                    "Cannot infer common type for bitwise operation ",
                ],
            )
        })?;
    let operation = replace_arrow_type_names(operation);
    let hint = match operation.as_str() {
        spans
            if spans.contains("INTERVAL")
                && spans.contains([' ', '*', '/'])
                && of_times.is_some() =>
        {
            "an INTERVAL takes whole numbers, as in 3 * INTERVAL '12 hours'; a DATE takes whole days: d + 2"
        }
        "DATE + DATE" => "a DATE takes days or an INTERVAL: d + 1, d + INTERVAL '1 month'",
        compared
            if compared.contains("BIGINT")
                && (compared.starts_with("DATE") || compared.starts_with("TIME"))
                && compared.contains(['=', '<', '>']) =>
        {
            "a date stands in quotes: ts > '2026-03-29'; of a number of seconds to_timestamp(n) makes a time"
        }
        "BOOLEAN = TEXT" | "BOOLEAN <> TEXT" | "TEXT = BOOLEAN" | "TEXT <> BOOLEAN" => {
            "true and false stand without quotes: flag = true, or flag alone"
        }
        days if days.contains("DATE") || days.contains("TIME") => {
            "dates and times take an INTERVAL: ts + INTERVAL '1 hour'"
        }
        flags if flags.contains(" AND ") || flags.contains(" OR ") => {
            "AND and OR take conditions, such as x <> 0"
        }
        lists if lists.contains("[]") => {
            "array_has(list, x) looks into a list, list[1] takes a value"
        }
        text if text.contains("TEXT") => cast_hint("TEXT"),
        flags if flags.contains("BOOLEAN") => {
            "AND, OR and NOT take what is true or false; CAST(x AS INT) makes 1 and 0 of it"
        }
        other => cast_hint(other),
    };
    Some(Error::usage_with_hint(format!("there is no `{operation}`"), hint))
}

/// Translates a planner's message.
fn plan_error(message: &str) -> Error {
    if let Some(error) = translate_known_message(message) {
        return error;
    }
    if message.starts_with("Unary operator '-' only supports") {
        return Error::usage_with_hint(
            "a minus before a value takes numbers that have a sign",
            "CAST(x AS DOUBLE) makes one of text, CAST(x AS BIGINT) of one without a sign; of the \
             difference of two times turn it round: a - b",
        );
    }
    if let Some((_, call)) = message.split_once("`retract_batch` is not implemented: ") {
        return Error::usage_with_hint(
            format!(
                "`{}` cannot be taken of a frame that slides",
                crate::column_names::strip_window_spec(call)
            ),
            "a frame that begins with UNBOUNDED PRECEDING works; count(DISTINCT x), sum, avg, min and max are taken of all \
             frames; of rows of the days before: FROM days AS a \
             JOIN days AS b ON b.day BETWEEN a.day - 6 AND a.day GROUP BY a.day",
        );
    }
    let between = |text: &str, start: &str, end: &str| {
        let text = &text[text.find(start)? + start.len()..];
        Some(text[..text.find(end)?].to_string())
    };
    if let Some(at) = message.find("` of a list, struct or map adds up numbers; ")
        && let Some(start) = message[..at].rfind('`')
    {
        let said = &message[start..];
        let end = [",Error", "\n", "."].iter().filter_map(|end| said.find(end)).min();
        return Error::usage_with_hint(
            &said[..end.unwrap_or(said.len())],
            "name the numbers one by one: sum(s.a), sum(m['key']), or unnest a list of structs",
        );
    }
    if let Some(function) = between(message, "Function '", "' failed to match any signature")
        && let Some(found) = between(message, "but received ", ".,")
    {
        // A hint of the planner's may follow.
        let data_type = found.lines().next().and_then(|line| line.split_once("(DataType: "));
        let data_type = data_type.and_then(|(_, of)| Some(of.rsplit_once(')')?.0));
        let found = replace_arrow_type_names(data_type.unwrap_or(&found));
        let is_time = ["DATE", "TIMESTAMP", "TIME", "INTERVAL"].contains(&found.as_str());
        return Error::usage_with_hint(
            format!("`{function}` does not take an argument of type {found}"),
            match (is_time, function.as_str()) {
                (true, _) => {
                    "min and max take it; extract(epoch FROM x) gives its seconds as a number"
                }
                (false, "date_part") => {
                    "the difference of two dates is a number of days: d2 - d1, or (d2 - d1) * 86400"
                }
                (false, _) => cast_hint(&found),
            },
        );
    }
    if message.contains(NO_SIGNATURE_PREFIX) {
        return signature_error(message);
    }
    if let Some(error) = operator_type_error(message) {
        return error;
    }
    if let Some(types) = between(message, "common type to coerce ", " in LIKE expression") {
        let types = replace_arrow_type_names(&types).replace(" and ", " LIKE ");
        return Error::usage_with_hint(
            format!("there is no `{types}`"),
            "CAST(x AS TEXT) converts it",
        );
    }
    if let Some(rest) = text_after(message, &["Cannot create filter with non-boolean predicate "]) {
        let of = rest.rsplit_once(" returning ").map_or("", |(_, of)| of);
        return Error::usage_with_hint(
            format!(
                "a condition is true or false, and this one is {}",
                replace_arrow_type_names(of)
            ),
            match of.contains("Utf8") {
                true => "compare it: x <> ''",
                false => "compare it: x <> 0",
            },
        );
    }
    if let Some(of) = between(message, "Cannot access field at argument 1: type ", " is not Struct")
    {
        let of = replace_arrow_type_names(&of);
        return match of.starts_with("Struct(") && of.ends_with("[]") {
            true => Error::usage_with_hint(
                "a list of structs has no fields, its items have them",
                "items[1].sku is one's; list_transform(items, x -> x.sku) is that of all; unnest(items) makes rows",
            ),
            false => Error::usage_with_hint(
                format!("a {of} has no fields"),
                "--promote makes columns of JSON in a string",
            ),
        };
    }
    if let Some(name) = between(message, "Binary operator '", "' is not supported in the physical")
    {
        let (operator, hint) = match name.as_str() {
            "AtArrow" => ("`@>`", Some("array_has_all(list, others) looks into a list")),
            "ArrowAt" => ("`<@`", Some("array_has_all(list, others) looks into a list")),
            "HashArrow" | "HashLongArrow" | "HashMinus" | "AtAt" | "AtQuestion" | "Question"
            | "QuestionAnd" | "QuestionPipe" => {
                ("this operator of JSON", Some("fields of JSON are named with dots: a.b, a['b']"))
            }
            _ => ("an operator", None),
        };
        let message = format!("{operator} is not supported");
        return match hint {
            Some(hint) => Error::usage_with_hint(message, hint),
            None => Error::usage(message),
        };
    }
    if let Some(name) = between(message, "variable [\"", "\"] has no type information") {
        return Error::usage_with_hint(
            format!("`{name}` is not supported"),
            "write the value itself",
        );
    }
    if message.contains("Dot access not supported for non-string expr") {
        return value_field_error();
    }
    if message.starts_with("Correlated scalar subquery must be aggregated") {
        return Error::usage_with_hint(
            "a subquery for each row has to give one value, and may give several rows",
            "take an aggregate of them: (SELECT max(x) FROM b WHERE b.k = a.k)",
        );
    }
    if message.contains("must appear in the GROUP BY clause")
        && let Some(column) = between(message, "column \"", "\" must appear")
    {
        let column = column.rsplit('.').next().unwrap_or_default();
        return Error::usage_with_hint(
            format!("`{column}` is neither in GROUP BY nor in an aggregate function"),
            format!("GROUP BY {column}, or take one value of each group: min({column})"),
        );
    }
    if let Some(names) = message.strip_prefix("Projections require unique expression names but") {
        let name = between(names, "expression \"", "\" at position").unwrap_or_default();
        let given = name.rsplit_once(" AS ").map(|(_, given)| given.to_owned());
        let frames = [" ORDER BY [", " PARTITION BY [", " ROWS ", " RANGE ", " GROUPS "];
        if given.is_none() && frames.iter().any(|frame| name.contains(frame)) {
            let call = crate::column_names::strip_window_spec(&name);
            return Error::usage_with_hint(
                format!("two columns of a select list are `{call}` over the same window"),
                format!("name one of them: {call} OVER (…) AS other"),
            );
        }
        let is_column = !name.contains('(');
        let name = name.rsplit('.').next().filter(|_| is_column).unwrap_or(&name);
        let name = &crate::column_names::plan_text_to_sql(name);
        return Error::usage_with_hint(
            format!("two columns of a select list are `{}`", given.as_deref().unwrap_or(name)),
            match given {
                Some(_) => "give one of them another name".to_owned(),
                None => format!("name one of them: {name} AS other"),
            },
        );
    }
    if let Some(types) =
        text_after(message, &["Incompatible inputs for Union: Previous inputs were of type "])
        && let Some((one, rest)) = types.split_once(", but got incompatible type ")
    {
        let other = rest.split(" on column").next().unwrap_or(rest);
        let (one, other) = (replace_arrow_type_names(one), replace_arrow_type_names(other));
        return Error::usage_with_hint(
            format!("a UNION of {one} and {other} has no type for both"),
            format!(
                "CAST(x AS TEXT) in both makes them text; CAST(x AS {one}) in the other, where it can be"
            ),
        );
    }
    if let Some(sides) = message.strip_suffix(" queries have different number of columns") {
        return column_count_error(sides);
    }
    if let Some(rest) = text_after(message, &["Failed to coerce then (", "Failed to coerce case ("])
        && let Some(types) = rest.strip_suffix(" to common types in CASE WHEN expression")
    {
        let (one, others) = types.split_once(") and ").unwrap_or((types, ""));
        let others = others.trim_start_matches("else (").trim_start_matches("when (");
        return Error::usage_with_hint(
            format!(
                "a CASE has one type, and there is none for {} and {}",
                replace_arrow_type_names(one),
                replace_arrow_type_names(others.strip_suffix(')').unwrap_or(others))
            ),
            "CAST(x AS TYPE) in its branches gives them one",
        );
    }
    if message.starts_with("In/Exist/SetComparison subquery can only be used in") {
        return Error::usage_with_hint(
            "`IN (SELECT …)`, `EXISTS`, `ANY` and `ALL` cannot stand in ORDER BY or LIMIT",
            "WHERE takes it; a LEFT JOIN with what the subquery selects gives its columns",
        );
    }
    // The rest of the message is the expression in the planner's own notation.
    if let Some(expression) =
        message.strip_prefix("Physical plan does not support logical expression ")
    {
        let name = expression.split(['(', ' ']).next().unwrap_or_default();
        return Error::usage(format!("the query has an expression that cannot be run: {name}"));
    }
    if message.contains("unnest on struct can only be applied") {
        return Error::usage_with_hint(
            "`unnest` of a struct is a column by itself",
            "SELECT unnest(s) gives its fields; s.field is one of them",
        );
    }
    let message =
        message.split("\nThis issue was likely caused by a bug").next().unwrap_or(message);
    Error::usage(replace_arrow_type_names(message.trim_start_matches("Internal error: ")))
}

/// Translates the planner's message about an unknown unit, field, source or column number.
fn unknown_item_error(message: &str) -> Option<Error> {
    let quoted = |start: &str| text_after(message, &[start])?.split('\'').next();
    if let Some(unit) = quoted("Unsupported date_trunc granularity: '") {
        return Some(Error::usage_with_hint(
            format!("`date_trunc` has no unit `{unit}`"),
            "its units are year, quarter, month, week, day, hour, minute, second, millisecond, microsecond, \
             decade, century, millennium and isoyear",
        ));
    }
    if let Some(field) = quoted("Date part '") {
        return Some(Error::usage_with_hint(
            format!("a time has no field `{}`", field.to_lowercase()),
            "the fields are year, isoyear, quarter, month, week, day, doy, dow, isodow, hour, minute, \
             second, millisecond, microsecond, nanosecond and epoch",
        ));
    }
    if let Some(rest) = message.strip_prefix("Field ")
        && let Some(field) = rest.strip_suffix(" not found in struct")
    {
        return Some(Error::usage_with_hint(
            format!("the struct has no field `{field}`"),
            "`tidemill schema FILE` shows the fields of each column",
        ));
    }
    if let Some(source) = message.strip_prefix("Invalid qualifier ") {
        return Some(Error::usage_with_hint(
            format!("there is no source `{source}` for `{source}.*`"),
            "a source is named where it is read: FROM 'f.csv' AS f; unnest(s) in the select list makes \
             columns of a struct's fields",
        ));
    }
    if let Some(rest) = message.strip_prefix("[return_type] ") {
        let (name, of) = rest.split_once(" not supported for ")?;
        let name = name.to_lowercase();
        return Some(match of {
            "Null" => Error::usage_with_hint(
                format!("`{name}` of NULL alone has no type"),
                format!("a cast gives it one: {name}(CAST(NULL AS BIGINT))"),
            ),
            of => {
                let of = replace_arrow_type_names(of);
                Error::usage_with_hint(
                    format!("`{name}` does not take an argument of type {of}"),
                    cast_hint(&of),
                )
            }
        });
    }
    if let Some(rest) = message.strip_prefix("Order by column out of bounds, specified: ") {
        let (number, most) = rest.split_once(", max: ")?;
        return Some(column_position_error("ORDER BY", number, most));
    }
    if let Some(rest) = message.strip_prefix("Cannot find column with position ") {
        let (number, most) = rest.split_once(" in SELECT clause. Valid columns: 1 to ")?;
        return Some(column_position_error("GROUP BY", number, most));
    }
    // Only the last branch of a recursive query may read the query's own rows.
    if let Some(name) = message.strip_prefix("table 'datafusion.public.")
        && let Some(name) = name.strip_suffix("' not found")
    {
        return Some(Error::usage_with_hint(
            format!("`{name}` is read where its rows are not known yet"),
            "a recursive query is one UNION of rows to begin with and a SELECT from its own name; put more rows into the \
             first part",
        ));
    }
    if let Some(rest) = message.strip_prefix("table function '")
        && let Some(name) = rest.strip_suffix("' not found")
        && (name.starts_with('\'') || name == "unnest")
    {
        if name == "unnest" {
            return Some(Error::usage_with_hint(
                "`LATERAL unnest(…)` is not supported",
                "unnest(list) in the select list gives a row per item, beside the other columns",
            ));
        }
        return Some(Error::usage_with_hint(
            format!("names of columns do not stand behind {name} alone"),
            format!("an alias stands between them: FROM {name} AS t (a, b)"),
        ));
    }
    if let Some(function) = quoted("to satisfy a call to '")
        && let Some(types) = text_after(message, &["' function: coercion from "])
        && let Some((types, _)) = types.split_once(" to the signature")
    {
        // `= ANY(x)` is planned as `array_position`.
        if function == "array_position" && types.ends_with("Null, Int64") {
            let of = replace_arrow_type_names(types.split(", ").next().unwrap_or_default());
            return Some(Error::usage_with_hint(
                format!("`ANY` and `ALL` take a list or a subquery, and this one is {of}"),
                "x = ANY([a, b]), x > ALL(list)",
            ));
        }
        let types = replace_arrow_type_names(types);
        let hint = match types.contains("[]") {
            true => {
                "CAST(x AS TYPE) gives a value the type of the list's, CAST(list AS TYPE[]) a list that of the \
                 value"
                    .to_owned()
            }
            false => match datafusion_call_syntax(function) {
                Some(calls) => format!("it is called as {calls}; CAST(x AS TYPE) converts an argument"),
                None if types.is_empty() => "it takes an argument".to_owned(),
                None => cast_hint(&types).to_owned(),
            },
        };
        return Some(Error::usage_with_hint(format!("there is no `{function}({types})`"), hint));
    }
    if message.starts_with("lambda defined ") {
        return Some(Error::usage_with_hint(
            "a function of that many parameters is not taken here",
            "that of list_transform(list, x -> x + 1) has one parameter, or a second one for the place, that of \
             list_reduce(list, (a, b) -> a + b) two, or a third one for it",
        ));
    }
    if let Some((function, of)) = message.split_once(" does not support type ")
        && function == "array_concat"
        && !of.contains('\n')
    {
        return Some(Error::usage_with_hint(
            format!("`{function}` takes lists, and this is {}", replace_arrow_type_names(of)),
            "CAST(NULL AS TYPE[]) is a list that is null; make_array(x) a list of one value",
        ));
    }
    if let Some(rest) = message.strip_prefix("expr type ")
        && let Some(types) = rest.strip_suffix(" in SetComparison")
        && let Some((one, other)) = types.split_once(" can't cast to ")
    {
        return Some(Error::usage_with_hint(
            format!(
                "`ANY` and `ALL` do not compare {} with {}",
                replace_arrow_type_names(one),
                replace_arrow_type_names(other)
            ),
            "CAST(x AS TYPE) gives both sides one type",
        ));
    }
    let rest = message.strip_prefix("Can not find compatible types to compare ")?;
    let (one, others) = rest.split_once(" with ")?;
    Some(Error::usage_with_hint(
        format!(
            "there is no `{} IN ({})`",
            replace_arrow_type_names(one),
            replace_arrow_type_names(others.trim_matches(['[', ']']))
        ),
        "CAST(x AS TYPE) gives both sides one type",
    ))
}

fn column_position_error(clause: &str, number: &str, most: &str) -> Error {
    let plural = if most == "1" { "" } else { "s" };
    Error::usage_with_hint(
        format!("`{clause} {number}` is the place of a column, and there is none"),
        format!("the select list has {most} column{plural}, the first of which is 1"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_error_is_translated_like_owned_error() {
        let ours = || Error::Overflow { message: "`sum(v)` does not fit".into(), hint: None };
        let errors: [fn(Error) -> Df; 9] = [
            |ours| Df::External(Box::new(ours)),
            |ours| Df::External(Box::new(Df::External(Box::new(ours)))),
            |ours| Df::ArrowError(Box::new(ArrowError::ExternalError(Box::new(ours))), None),
            |ours| Df::Context("while".into(), Box::new(Df::External(Box::new(ours)))),
            |_| Df::ArrowError(Box::new(ArrowError::DivideByZero), None),
            |_| Df::ArrowError(Box::new(ArrowError::CastError("Can't cast".into())), None),
            |_| Df::ResourcesExhausted("out of memory: a step\nhint: more".into()),
            |_| Df::Execution("Cannot cast string 'x' to value of Int32 type".into()),
            |_| Df::Plan("it is".into()),
        ];
        for error in errors {
            let alone = error(ours()).into_tidemill_error();
            let shared = Arc::new(error(ours()));
            let held = Df::Shared(Arc::clone(&shared)).into_tidemill_error();
            assert_eq!(held.to_string(), alone.to_string());
            assert_eq!(std::mem::discriminant(&held), std::mem::discriminant(&alone));
        }
    }
}
