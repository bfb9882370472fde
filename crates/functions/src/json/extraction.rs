//! Functions that extract values from JSON.
//!
//! DuckDB's and PostgreSQL's functions fail for a text that is not JSON and state the position. Spark's and
//! ClickHouse's, `get_json_object` and `JSONExtract…`, return null for it, as they do for a missing value.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, StringViewArray};
use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, Result as PlanResult};
use datafusion_expr::{ColumnarValue, ScalarUDF};

use super::json_path::{JsonPath, PathStep, PathSyntaxError, parse_key_or_index};
use super::json_scanner::{JsonKind, JsonScanner, JsonSyntaxError, write_compact, write_unescaped};
use super::{JSON_SECTION, nested_paths};
use crate::closure_function::{
    ArgumentKind, CallBatch, ClosureFunction, IntegerOperand, PlannedCall, TextListBuilder,
    TextOperand, cast_to_views, excerpt_for_message, is_text_type, list_type, query_error,
    usage_error,
};

const TEXT_ARGUMENT: ArgumentKind = ArgumentKind::Text;
const KEY_ARGUMENT: ArgumentKind = ArgumentKind::TextOrInteger;

/// Returns the error for a text that is not JSON.
pub(super) fn invalid_json_error(text: &str, malformed: JsonSyntaxError) -> DataFusionError {
    let JsonSyntaxError { offset: at, message: what } = malformed;
    query_error(
        format!("`{}` is no JSON: {what} behind {at} bytes", excerpt_for_message(text)),
        "json_valid(x) tells which rows have JSON; get_json_object(x, '$.a') answers null of others",
    )
}

fn invalid_path_error(text: &str, wrong: &PathSyntaxError) -> DataFusionError {
    let PathSyntaxError { offset: at, message: what } = wrong;
    usage_error(
        format!(
            "the path `{}` is not understood at character {}: {what}",
            excerpt_for_message(text),
            at + 1
        ),
        "it is written as '$.a.b[0]', '$.a[*].b', '/a/b/0', or 'a' for a key",
    )
}

fn parse_path(text: &str) -> PlanResult<JsonPath> {
    JsonPath::parse(text).map_err(|wrong| invalid_path_error(text, &wrong))
}

fn wildcards_not_constant_error(text: &str) -> DataFusionError {
    usage_error(
        format!(
            "the path `{}` may lead to several values, and is no constant",
            excerpt_for_message(text)
        ),
        "a star stands in a path that is written in the query, where its answer is known to be a list",
    )
}

/// The paths of a batch: an argument that is a text, a number or a list of texts.
enum PathArgument {
    Constant(Option<JsonPath>),
    /// A constant list of paths.
    List(Option<Vec<Option<JsonPath>>>),
    Texts(TextOperand),
    Numbers(IntegerOperand),
    Lists(ArrayRef),
}

impl PathArgument {
    fn from_argument(call: &CallBatch, index: usize) -> PlanResult<Self> {
        let Some(value) = call.argument(index) else {
            return Ok(PathArgument::Constant(Some(JsonPath::default())));
        };
        let data_type = value.data_type();
        // An untyped null.
        if data_type.is_null() {
            return Ok(PathArgument::Constant(None));
        }
        if is_text_type(&data_type) {
            let texts = call.text_operand(index)?;
            return Ok(match &texts {
                TextOperand::Constant(text) => {
                    PathArgument::Constant(text.as_deref().map(parse_path).transpose()?)
                }
                TextOperand::Column(_) => PathArgument::Texts(texts),
            });
        }
        if data_type == DataType::Int64 {
            let numbers = call.integer_operand(index)?;
            return Ok(match &numbers {
                IntegerOperand::Constant(number) => PathArgument::Constant(
                    number.map(|number| JsonPath::from_steps(vec![PathStep::Index(number)])),
                ),
                IntegerOperand::Column(_) => PathArgument::Numbers(numbers),
            });
        }
        Ok(match value {
            ColumnarValue::Scalar(value) if value.is_null() => PathArgument::List(None),
            ColumnarValue::Scalar(value) => {
                let lists = value.to_array()?;
                PathArgument::List(Some(parse_path_list(&lists, 0)?))
            }
            ColumnarValue::Array(lists) => PathArgument::Lists(Arc::clone(lists)),
        })
    }

    /// Calls `then` with the path of a row, unless the argument has lists of paths.
    fn with_path<T>(
        &self,
        row: usize,
        then: impl FnOnce(&JsonPath) -> PlanResult<Option<T>>,
    ) -> PlanResult<Option<T>> {
        match self {
            PathArgument::Constant(Some(path)) => then(path),
            PathArgument::Texts(texts) => match texts.get(row) {
                Some(text) => {
                    let path = parse_path(text)?;
                    if path.has_wildcards() {
                        return Err(wildcards_not_constant_error(text));
                    }
                    then(&path)
                }
                None => Ok(None),
            },
            PathArgument::Numbers(numbers) => match numbers.get(row) {
                Some(number) => then(&JsonPath::from_steps(vec![PathStep::Index(number)])),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn is_list(&self) -> bool {
        matches!(self, PathArgument::List(_) | PathArgument::Lists(_))
    }

    /// Returns the list of paths of a row.
    fn row_path_list(&self, row: usize) -> PlanResult<Option<Vec<Option<JsonPath>>>> {
        match self {
            PathArgument::Lists(lists) if lists.is_valid(row) => {
                parse_path_list(lists, row).map(Some)
            }
            _ => Ok(None),
        }
    }
}

fn parse_path_list(lists: &ArrayRef, row: usize) -> PlanResult<Vec<Option<JsonPath>>> {
    let items = match lists.data_type() {
        DataType::List(_) => lists.as_list::<i32>().value(row),
        DataType::LargeList(_) => lists.as_list::<i64>().value(row),
        _ => lists.as_fixed_size_list().value(row),
    };
    let read = |text: &str| {
        let path = parse_path(text)?;
        match path.has_wildcards() {
            true => Err(usage_error(
                format!(
                    "the path `{}` of a list may lead to several values",
                    excerpt_for_message(text)
                ),
                "json_extract(x, '$.a[*]') takes such a path alone",
            )),
            false => Ok(path),
        }
    };
    cast_to_views(&items)?.iter().map(|text| text.map(read).transpose()).collect()
}

/// Checks a constant path at planning time and returns the result type; `each` is the type of one value.
fn extraction_result_type(asked: &PlannedCall<'_>, each: DataType) -> PlanResult<DataType> {
    let given = asked.argument_type(1);
    if asked.argument_count() > 1
        && !is_text_type(given)
        && *given != DataType::Int64
        && !given.is_null()
    {
        return Ok(list_type(each));
    }
    let path = asked.constant_text(1).map(parse_path).transpose()?;
    Ok(match path {
        Some(path) if path.has_wildcards() => list_type(each),
        _ => each,
    })
}

/// Does the same for a function that returns one value, which rejects a path with wildcards.
fn single_value_result_type(asked: &PlannedCall<'_>, each: DataType) -> PlanResult<DataType> {
    match asked.constant_text(1).map(parse_path).transpose()? {
        Some(path) if path.has_wildcards() => Err(usage_error(
            format!("`{}` takes a path to one value", asked.function_name()),
            "json_extract(x, '$.a[*]') has the values of a path with stars as a list",
        )),
        _ => Ok(each),
    }
}

/// Writes a JSON value to a result. Returns false for null.
type ValueFormatter = fn(&str, &mut String) -> bool;

/// Writes a value as JSON.
fn write_as_json(value: &str, made: &mut String) -> bool {
    write_compact(value, made);
    true
}

/// Writes a value as text: a string without its quotes. JSON's null becomes NULL.
fn write_as_text(value: &str, made: &mut String) -> bool {
    match JsonKind::from_value(value) {
        JsonKind::Null => false,
        JsonKind::String => {
            write_unescaped(value.get(1..value.len() - 1).unwrap_or_default(), made);
            true
        }
        _ => write_as_json(value, made),
    }
}

fn is_scalar(value: &str) -> bool {
    !matches!(JsonKind::from_value(value), JsonKind::Object | JsonKind::Array)
}

/// Extracts the JSON values at the paths of each row.
fn extract_values(call: &CallBatch, shows: ValueFormatter) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    let paths = PathArgument::from_argument(call, 1)?;
    let mut scanner = JsonScanner::default();
    if paths.is_list() {
        return extract_path_lists(call, &texts, &paths, shows);
    }
    if let PathArgument::Constant(Some(path)) = &paths
        && path.has_wildcards()
    {
        let (mut found, mut item) = (Vec::new(), String::new());
        return call.build_text_lists(|row, items| {
            let Some(text) = texts.get(row) else { return Ok(false) };
            scanner
                .find_all(text, path.steps(), &mut found)
                .map_err(|error| invalid_json_error(text, error))?;
            for value in &found {
                append_formatted_item(items, value, shows, &mut item)?;
            }
            Ok(true)
        });
    }
    call.build_texts(|row, made| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let found = paths.with_path(row, |path| {
            scanner.find_value(text, path.steps()).map_err(|error| invalid_json_error(text, error))
        })?;
        Ok(found.is_some_and(|value| shows(value, made)))
    })
}

/// Extracts the value behind the same steps from all texts, which are parts of structs, lists or maps.
pub(super) fn extract_by_steps(
    call: &CallBatch,
    texts: &StringViewArray,
    steps: &[PathStep],
    is_text_wanted: bool,
) -> PlanResult<ArrayRef> {
    let mut scanner = JsonScanner::default();
    call.build_texts(|row, made| {
        if texts.is_null(row) {
            return Ok(false);
        }
        let text = texts.value(row);
        let found =
            scanner.find_value(text, steps).map_err(|error| invalid_json_error(text, error))?;
        Ok(found.is_some_and(|value| match is_text_wanted {
            true => write_as_text(value, made),
            false => write_as_json(value, made),
        }))
    })
}

fn append_formatted_item(
    items: &mut TextListBuilder,
    value: &str,
    shows: ValueFormatter,
    item: &mut String,
) -> PlanResult<()> {
    item.clear();
    let is_value = shows(value, item);
    items.append_item(is_value.then_some(item.as_str()))
}

/// Extracts a list of values for a list of paths.
fn extract_path_lists(
    call: &CallBatch,
    texts: &TextOperand,
    paths: &PathArgument,
    shows: ValueFormatter,
) -> PlanResult<ArrayRef> {
    let (mut scanner, mut item) = (JsonScanner::default(), String::new());
    call.build_text_lists(|row, items| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let own;
        let all = match paths {
            PathArgument::List(all) => all.as_ref(),
            other => {
                own = other.row_path_list(row)?;
                own.as_ref()
            }
        };
        let Some(all) = all else { return Ok(false) };
        for path in all {
            let found = match path {
                Some(path) => scanner
                    .find_value(text, path.steps())
                    .map_err(|error| invalid_json_error(text, error))?,
                None => None,
            };
            match found {
                Some(value) => append_formatted_item(items, value, shows, &mut item)?,
                None => items.append_item(None)?,
            }
        }
        Ok(true)
    })
}

/// Arguments that are steps, each a key or a number.
struct StepArguments {
    constant: Option<Vec<PathStep>>,
    columns: Vec<PathArgument>,
    parse_text: fn(&str) -> PathStep,
    /// Number of the first item: 0 or 1.
    first_item_number: i64,
}

impl StepArguments {
    fn from_arguments(
        call: &CallBatch,
        read: fn(&str) -> PathStep,
        first: i64,
    ) -> PlanResult<Self> {
        let mut steps = StepArguments {
            constant: Some(Vec::new()),
            columns: Vec::new(),
            parse_text: read,
            first_item_number: first,
        };
        for index in 1..call.argument_count() {
            let is_text =
                call.argument(index).is_some_and(|value| is_text_type(&value.data_type()));
            let column = match is_text {
                true => PathArgument::Texts(call.text_operand(index)?),
                false => PathArgument::Numbers(call.integer_operand(index)?),
            };
            let is_constant = matches!(call.argument(index), Some(ColumnarValue::Scalar(_)));
            let step = if is_constant { steps.row_step(&column, 0) } else { None };
            match (step, &mut steps.constant) {
                (Some(step), Some(all)) => all.push(step),
                _ => steps.constant = None,
            }
            steps.columns.push(column);
        }
        Ok(steps)
    }

    fn row_step(&self, column: &PathArgument, row: usize) -> Option<PathStep> {
        match column {
            PathArgument::Texts(texts) => texts.get(row).map(self.parse_text),
            PathArgument::Numbers(numbers) => {
                let number = numbers.get(row)?;
                let index =
                    if number < 0 { number } else { number.checked_sub(self.first_item_number)? };
                // With numbers from 1 there is no item 0.
                Some(PathStep::Index(index)).filter(|_| (number < 0) == (index < 0))
            }
            _ => None,
        }
    }

    /// Finds the value behind a row's steps.
    fn find_value<'a>(
        &self,
        scanner: &mut JsonScanner,
        text: &'a str,
        row: usize,
    ) -> Result<Option<&'a str>, JsonSyntaxError> {
        if let Some(steps) = &self.constant {
            return scanner.find_value(text, steps);
        }
        let steps = self.columns.iter().map(|column| self.row_step(column, row));
        match steps.collect::<Option<Vec<PathStep>>>() {
            Some(steps) => scanner.find_value(text, &steps),
            None => Ok(None),
        }
    }
}

/// Creates a function of the value at an optional path.
fn path_function(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    shows: ValueFormatter,
    takes: fn(&str) -> bool,
) -> ScalarUDF {
    ClosureFunction::new(JSON_SECTION, calls, what)
        .with_aliases(aliases)
        .with_arguments(&[TEXT_ARGUMENT, KEY_ARGUMENT], 1)
        .with_return_type_closure(|asked| single_value_result_type(asked, DataType::Utf8View))
        .into_udf(move |call| {
            let (texts, paths) = (call.text_operand(0)?, PathArgument::from_argument(call, 1)?);
            let mut scanner = JsonScanner::default();
            call.build_texts(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                let found = paths.with_path(row, |path| {
                    scanner
                        .find_value(text, path.steps())
                        .map_err(|error| invalid_json_error(text, error))
                })?;
                Ok(found.is_some_and(|value| takes(value) && shows(value, made)))
            })
        })
}

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let mut all = path_functions();
    all.extend(value_functions());
    all.extend(lenient_functions());
    all
}

fn nested_or_json_result_type(
    asked: &PlannedCall<'_>,
    is_text_wanted: bool,
    of_json: impl FnOnce() -> PlanResult<DataType>,
) -> PlanResult<DataType> {
    let given = asked.argument_type(0);
    match nested_paths::is_nested(given) {
        true => nested_paths::result_type(asked, &constant_path(asked)?, is_text_wanted),
        false if is_text_type(given) || given.is_null() => of_json(),
        false => Err(usage_error(
            format!(
                "`{}` takes JSON in a TEXT, a struct, a list or a map, and this is a {}",
                asked.function_name(),
                tidemill_base::column_types::sql_type_name(given)
            ),
            "to_json(x) makes JSON of any value",
        )),
    }
}

/// Returns the path of a call, which must be constant.
fn constant_path(asked: &PlannedCall<'_>) -> PlanResult<JsonPath> {
    match (asked.constant_text(1), asked.constant_integer(1)) {
        (Some(text), _) => parse_path(text),
        (None, Some(number)) => Ok(JsonPath::from_steps(vec![PathStep::Index(number)])),
        _ => Err(usage_error(
            format!(
                "`{}` of a struct, a list or a map takes a constant path",
                asked.function_name()
            ),
            "map_extract(m, key) and list[n] take what is calculated",
        )),
    }
}

fn path_functions() -> Vec<ScalarUDF> {
    let extract = |calls: &[&'static str], what: &str, is_text_wanted: bool| {
        let shows: ValueFormatter = if is_text_wanted { write_as_text } else { write_as_json };
        ClosureFunction::new(JSON_SECTION, calls, what)
            .with_arguments(&[ArgumentKind::Any, ArgumentKind::Any], 2)
            .with_return_type_closure(move |asked| {
                let given = asked.argument_type(1);
                let is_path = is_text_type(given)
                    || given.is_integer()
                    || given.is_null()
                    || matches!(given, DataType::List(_) | DataType::LargeList(_));
                if !is_path {
                    return Err(usage_error(
                        format!("`{}` takes a path as its second argument", asked.function_name()),
                        "it is written as '$.a.b[0]', '/a/b/0', 'a' for a key, 0 for an item, or as a list of paths",
                    ));
                }
                nested_or_json_result_type(asked, is_text_wanted, || extraction_result_type(asked, DataType::Utf8View))
            })
            .into_udf(move |call| {
                match call.argument(0).is_some_and(|value| nested_paths::is_nested(&value.data_type())) {
                    true => nested_paths::extract_by_path(call, &constant_path_of_batch(call)?, is_text_wanted),
                    false => extract_values(call, shows),
                }
            })
    };
    vec![
        extract(
            &["json_extract(json, path)", "json_extract(json, [path, …])"],
            "The JSON at the end of a path, as it is written; of a path with stars, or several paths, a list.",
            false,
        ),
        extract(
            &["json_extract_string(json, path)", "json_extract_string(json, [path, …])"],
            "The value at the end of a path as text; of a path with stars, or several paths, a list.",
            true,
        ),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_extract_path(json, path)", "json_extract_path(json, key, key, …)"],
            "The JSON at the end of a path, or under keys within keys, as it is written.",
        )
        .with_arguments(&[TEXT_ARGUMENT, KEY_ARGUMENT], 2)
        .with_variadic_argument(KEY_ARGUMENT)
        .with_return_type_closure(keys_or_path_result_type)
        .into_udf(|call| extract_by_keys_or_path(call, write_as_json)),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_extract_path_text(json, path)", "json_extract_path_text(json, key, key, …)"],
            "The value at the end of a path, or under keys within keys, as text.",
        )
        .with_aliases(&["jsonb_extract_path_text"])
        .with_arguments(&[TEXT_ARGUMENT, KEY_ARGUMENT], 2)
        .with_variadic_argument(KEY_ARGUMENT)
        .with_return_type_closure(keys_or_path_result_type)
        .into_udf(|call| extract_by_keys_or_path(call, write_as_text)),
        path_function(
            &["json_extract_scalar(json, path)"],
            "The value at the end of a path as text, if it is neither an object nor an array; null otherwise.",
            &["json_value"],
            write_as_text,
            is_scalar,
        ),
    ]
}

/// Returns the path of a batch, which planning has checked to be constant.
fn constant_path_of_batch(call: &CallBatch) -> PlanResult<JsonPath> {
    match PathArgument::from_argument(call, 1)? {
        PathArgument::Constant(Some(path)) => Ok(path),
        _ => Ok(JsonPath::default()),
    }
}

fn keys_or_path_result_type(asked: &PlannedCall<'_>) -> PlanResult<DataType> {
    match asked.argument_count() {
        2 => extraction_result_type(asked, DataType::Utf8View),
        _ => Ok(DataType::Utf8View),
    }
}

fn extract_by_keys_or_path(call: &CallBatch, shows: ValueFormatter) -> PlanResult<ArrayRef> {
    if call.argument_count() == 2 {
        return extract_values(call, shows);
    }
    let (texts, steps) =
        (call.text_operand(0)?, StepArguments::from_arguments(call, parse_key_or_index, 0)?);
    let mut scanner = JsonScanner::default();
    call.build_texts(|row, made| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let found = steps
            .find_value(&mut scanner, text, row)
            .map_err(|error| invalid_json_error(text, error))?;
        Ok(found.is_some_and(|value| shows(value, made)))
    })
}

/// Returns DuckDB's name for the type of a value.
pub(super) fn duckdb_type_name(value: &str) -> &'static str {
    match JsonKind::from_value(value) {
        JsonKind::Object => "OBJECT",
        JsonKind::Array => "ARRAY",
        JsonKind::String => "VARCHAR",
        JsonKind::Boolean => "BOOLEAN",
        JsonKind::Null => "NULL",
        JsonKind::Number => match (value.parse::<u64>(), value.parse::<i64>()) {
            (Ok(_), _) => "UBIGINT",
            (_, Ok(_)) => "BIGINT",
            _ => "DOUBLE",
        },
    }
}

/// Returns PostgreSQL's name for the type of a value.
fn postgres_type_name(value: &str) -> &'static str {
    match JsonKind::from_value(value) {
        JsonKind::Object => "object",
        JsonKind::Array => "array",
        JsonKind::String => "string",
        JsonKind::Boolean => "boolean",
        JsonKind::Null => "null",
        JsonKind::Number => "number",
    }
}

/// Finds the value at a row's path.
fn find_row_value<'a>(
    texts: &'a TextOperand,
    paths: &PathArgument,
    scanner: &mut JsonScanner,
    row: usize,
) -> PlanResult<Option<&'a str>> {
    let Some(text) = texts.get(row) else { return Ok(None) };
    paths.with_path(row, |path| {
        scanner.find_value(text, path.steps()).map_err(|error| invalid_json_error(text, error))
    })
}

fn count_children(scanner: &mut JsonScanner, value: &str) -> Result<Option<i64>, JsonSyntaxError> {
    let mut count = 0;
    match JsonKind::from_value(value) {
        JsonKind::Array => scanner.for_each_item(value, |_| count += 1)?,
        JsonKind::Object => scanner.for_each_member(value, |_, _| count += 1)?,
        _ => return Ok(None),
    }
    Ok(Some(count))
}

/// Appends the keys of an object. Returns false for a value that is not an object.
fn append_keys(
    scanner: &mut JsonScanner,
    value: &str,
    items: &mut TextListBuilder,
) -> PlanResult<bool> {
    if JsonKind::from_value(value) != JsonKind::Object {
        return Ok(false);
    }
    let (mut key, mut done) = (String::new(), Ok(()));
    let seen = scanner.for_each_member(value, |own, _| {
        if done.is_ok() {
            key.clear();
            write_unescaped(own, &mut key);
            done = items.append_item(Some(&key));
        }
    });
    seen.map_err(|error| invalid_json_error(value, error))?;
    done?;
    Ok(true)
}

fn value_functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(JSON_SECTION, &["json_valid(text)"], "Whether a text is JSON.")
            .with_aliases(&["isvalidjson"])
            .with_arguments(&[TEXT_ARGUMENT], 1)
            .with_return_type(DataType::Boolean)
            .into_udf(|call| {
                let texts = call.text_operand(0)?;
                let mut scanner = JsonScanner::default();
                call.build_booleans(|row| {
                    Ok(texts.get(row).map(|text| scanner.scan_whole(text).is_ok()))
                })
            }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json(text)"],
            "JSON without the spaces between its signs; a text that is none is refused.",
        )
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            let mut scanner = JsonScanner::default();
            call.build_texts(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                write_compact(
                    scanner.scan_whole(text).map_err(|error| invalid_json_error(text, error))?,
                    made,
                );
                Ok(true)
            })
        }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_unquote(json)"],
            "What a JSON string says, without its quotes; other JSON as it is.",
        )
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            let mut scanner = JsonScanner::default();
            call.build_texts(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                let value =
                    scanner.scan_whole(text).map_err(|error| invalid_json_error(text, error))?;
                Ok(write_as_text(value, made) || write_as_json(value, made))
            })
        }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_exists(json, path)"],
            "Whether there is something at the end of a path, be it null.",
        )
        .with_arguments(&[TEXT_ARGUMENT, KEY_ARGUMENT], 2)
        .with_return_type_closure(|asked| single_value_result_type(asked, DataType::Boolean))
        .into_udf(|call| {
            let (texts, paths) = (call.text_operand(0)?, PathArgument::from_argument(call, 1)?);
            let mut scanner = JsonScanner::default();
            call.build_booleans(|row| {
                let Some(text) = texts.get(row) else { return Ok(None) };
                paths.with_path(row, |path| {
                    let found = scanner.find_value(text, path.steps());
                    Ok(Some(found.map_err(|error| invalid_json_error(text, error))?.is_some()))
                })
            })
        }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_type(json)", "json_type(json, path)"],
            "The type of JSON: OBJECT, ARRAY, VARCHAR, UBIGINT, BIGINT, DOUBLE, BOOLEAN or NULL.",
        )
        .with_arguments(&[TEXT_ARGUMENT, KEY_ARGUMENT], 1)
        .with_return_type_closure(|asked| single_value_result_type(asked, DataType::Utf8View))
        .into_udf(|call| {
            let (texts, paths) = (call.text_operand(0)?, PathArgument::from_argument(call, 1)?);
            let mut scanner = JsonScanner::default();
            call.build_borrowed_texts(|row| {
                Ok(find_row_value(&texts, &paths, &mut scanner, row)?.map(duckdb_type_name))
            })
        }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_typeof(json)"],
            "The type of JSON: object, array, string, number, boolean or null.",
        )
        .with_aliases(&["jsonb_typeof"])
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .into_udf(|call| {
            let (texts, paths) = (call.text_operand(0)?, PathArgument::from_argument(call, 1)?);
            let mut scanner = JsonScanner::default();
            call.build_borrowed_texts(|row| {
                Ok(find_row_value(&texts, &paths, &mut scanner, row)?.map(postgres_type_name))
            })
        }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_array_length(json)", "json_array_length(json, path)"],
            "How many items an array has; null of what is none.",
        )
        .with_aliases(&["jsonb_array_length"])
        .with_arguments(&[TEXT_ARGUMENT, KEY_ARGUMENT], 1)
        .with_return_type_closure(|asked| single_value_result_type(asked, DataType::Int64))
        .into_udf(|call| {
            let (texts, paths) = (call.text_operand(0)?, PathArgument::from_argument(call, 1)?);
            let mut scanner = JsonScanner::default();
            call.build_integers(|row| {
                let value = find_row_value(&texts, &paths, &mut scanner, row)?;
                let array = value.filter(|value| JsonKind::from_value(value) == JsonKind::Array);
                match array {
                    Some(array) => count_children(&mut scanner, array)
                        .map_err(|error| invalid_json_error(array, error)),
                    None => Ok(None),
                }
            })
        }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_keys(json)", "json_keys(json, path)"],
            "The keys of an object as a list, in their order; null of what is none.",
        )
        .with_aliases(&["json_object_keys", "jsonb_object_keys"])
        .with_arguments(&[TEXT_ARGUMENT, KEY_ARGUMENT], 1)
        .with_return_type_closure(|asked| {
            single_value_result_type(asked, list_type(DataType::Utf8View))
        })
        .into_udf(|call| {
            let (texts, paths) = (call.text_operand(0)?, PathArgument::from_argument(call, 1)?);
            let mut scanner = JsonScanner::default();
            call.build_text_lists(|row, items| {
                match find_row_value(&texts, &paths, &mut scanner, row)? {
                    Some(value) => append_keys(&mut scanner, value, items),
                    None => Ok(false),
                }
            })
        }),
    ]
}

/// Creates a ClickHouse function that looks up a path of keys and returns null for a text that is not JSON.
fn key_path_function(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    gives: DataType,
    of: fn(&CallBatch, &KeyLookup) -> PlanResult<ArrayRef>,
) -> ScalarUDF {
    ClosureFunction::new(JSON_SECTION, calls, what)
        .with_aliases(aliases)
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .with_variadic_argument(KEY_ARGUMENT)
        .with_return_type(gives)
        .into_udf(move |call| {
            let texts = call.text_operand(0)?;
            let steps =
                StepArguments::from_arguments(call, |key| PathStep::Key(key.to_owned()), 1)?;
            of(call, &KeyLookup { texts, scope: KeyScope::KeyPath(steps) })
        })
}

/// Creates a ClickHouse function that looks up a key at any depth and returns null for a text that is not
/// JSON.
fn any_depth_function(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    gives: DataType,
    of: fn(&CallBatch, &KeyLookup) -> PlanResult<ArrayRef>,
) -> ScalarUDF {
    ClosureFunction::new(JSON_SECTION, calls, what)
        .with_aliases(aliases)
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type(gives)
        .into_udf(move |call| {
            let texts = call.text_operand(0)?;
            of(call, &KeyLookup { texts, scope: KeyScope::AnyDepth(call.text_operand(1)?) })
        })
}

fn extract_strings(call: &CallBatch, keys: &KeyLookup) -> PlanResult<ArrayRef> {
    let mut scanner = JsonScanner::default();
    call.build_texts(|row, made| {
        let value = keys.find_value(&mut scanner, row);
        let value = value.filter(|value| JsonKind::from_value(value) == JsonKind::String);
        Ok(value.is_some_and(|value| write_as_text(value, made)))
    })
}

fn extract_raw_json(call: &CallBatch, keys: &KeyLookup) -> PlanResult<ArrayRef> {
    let mut scanner = JsonScanner::default();
    call.build_texts(|row, made| {
        Ok(keys.find_value(&mut scanner, row).is_some_and(|value| write_as_json(value, made)))
    })
}

fn extract_integers(call: &CallBatch, keys: &KeyLookup) -> PlanResult<ArrayRef> {
    let mut scanner = JsonScanner::default();
    call.build_integers(|row| Ok(keys.find_value(&mut scanner, row).and_then(parse_integer)))
}

fn extract_floats(call: &CallBatch, keys: &KeyLookup) -> PlanResult<ArrayRef> {
    let mut scanner = JsonScanner::default();
    let numbers: Float64Array = (0..call.row_count())
        .map(|row| keys.find_value(&mut scanner, row).and_then(parse_float))
        .collect();
    Ok(Arc::new(numbers))
}

fn extract_booleans(call: &CallBatch, keys: &KeyLookup) -> PlanResult<ArrayRef> {
    let mut scanner = JsonScanner::default();
    let flags: BooleanArray = (0..call.row_count())
        .map(|row| match keys.find_value(&mut scanner, row)? {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        })
        .collect();
    Ok(Arc::new(flags))
}

fn check_existence(call: &CallBatch, keys: &KeyLookup) -> PlanResult<ArrayRef> {
    let mut scanner = JsonScanner::default();
    call.build_booleans(|row| {
        Ok(keys.texts.get(row).map(|_| keys.find_value(&mut scanner, row).is_some()))
    })
}

/// Texts and the keys to look up in them.
struct KeyLookup {
    texts: TextOperand,
    scope: KeyScope,
}

enum KeyScope {
    KeyPath(StepArguments),
    /// The first key of a name in the order of the text.
    AnyDepth(TextOperand),
}

impl KeyLookup {
    /// Finds the value behind a row's keys. Returns `None` for a text that is not JSON.
    fn find_value(&self, scanner: &mut JsonScanner, row: usize) -> Option<&str> {
        let text = self.texts.get(row)?;
        match &self.scope {
            KeyScope::KeyPath(steps) => steps.find_value(scanner, text, row).ok().flatten(),
            KeyScope::AnyDepth(names) => {
                scanner.find_key_at_any_depth(text, names.get(row)?).ok().flatten()
            }
        }
    }
}

/// Parses an integer, also from a string.
fn parse_integer(value: &str) -> Option<i64> {
    let digits = match JsonKind::from_value(value) {
        JsonKind::Number => value,
        JsonKind::String => value.get(1..value.len() - 1)?,
        JsonKind::Boolean => return Some(i64::from(value == "true")),
        _ => return None,
    };
    digits.parse().ok().or_else(|| {
        let float: f64 = digits.parse().ok()?;
        // A DOUBLE represents all integers up to here.
        let is_whole = float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0;
        #[allow(clippy::cast_possible_truncation)]
        is_whole.then_some(float as i64)
    })
}

/// Parses a number, also from a string.
fn parse_float(value: &str) -> Option<f64> {
    match JsonKind::from_value(value) {
        JsonKind::Number => value.parse().ok(),
        JsonKind::String => {
            value.get(1..value.len() - 1)?.parse().ok().filter(|float: &f64| float.is_finite())
        }
        _ => None,
    }
}

fn lenient_functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            JSON_SECTION,
            &["get_json_object(text, path)"],
            "The value at the end of a path as text; of a path with stars a JSON array of all; null of a text that \
             is no JSON.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| {
            asked.constant_text(1).map(parse_path).transpose()?;
            Ok(DataType::Utf8View)
        })
        .into_udf(get_json_object),
        key_path_function(
            &["jsonextractstring(text, key, …)"],
            "The string under keys, or numbers from 1, within one another; null of what is none.",
            &[],
            DataType::Utf8View,
            extract_strings,
        ),
        any_depth_function(
            &["simplejsonextractstring(text, key)"],
            "The string under the first key of that name, however deep it stands; null of what is none.",
            &["visitparamextractstring"],
            DataType::Utf8View,
            extract_strings,
        ),
        key_path_function(
            &["jsonextractraw(text, key, …)"],
            "The JSON under keys, or numbers from 1, within one another.",
            &[],
            DataType::Utf8View,
            extract_raw_json,
        ),
        any_depth_function(
            &["simplejsonextractraw(text, key)"],
            "The JSON under the first key of that name, however deep it stands.",
            &["visitparamextractraw"],
            DataType::Utf8View,
            extract_raw_json,
        ),
        key_path_function(
            &["jsonextractint(text, key, …)"],
            "The whole number under keys, or numbers from 1, within one another; null of what is none.",
            &["jsonextractuint"],
            DataType::Int64,
            extract_integers,
        ),
        any_depth_function(
            &["simplejsonextractint(text, key)"],
            "The whole number under the first key of that name, however deep it stands; null of what is none.",
            &["visitparamextractint", "simplejsonextractuint", "visitparamextractuint"],
            DataType::Int64,
            extract_integers,
        ),
        key_path_function(
            &["jsonextractfloat(text, key, …)"],
            "The number under keys, or numbers from 1, within one another; null of what is none.",
            &[],
            DataType::Float64,
            extract_floats,
        ),
        any_depth_function(
            &["simplejsonextractfloat(text, key)"],
            "The number under the first key of that name, however deep it stands; null of what is none.",
            &["visitparamextractfloat"],
            DataType::Float64,
            extract_floats,
        ),
        key_path_function(
            &["jsonextractbool(text, key, …)"],
            "What is true or false under keys, or numbers from 1, within one another; null of what is neither.",
            &[],
            DataType::Boolean,
            extract_booleans,
        ),
        any_depth_function(
            &["simplejsonextractbool(text, key)"],
            "What is true or false under the first key of that name, however deep it stands; null of what is \
             neither.",
            &["visitparamextractbool"],
            DataType::Boolean,
            extract_booleans,
        ),
        key_path_function(
            &["jsonhas(text, key, …)"],
            "Whether there is something under keys, or numbers from 1, within one another; false of a text that is \
             no JSON.",
            &[],
            DataType::Boolean,
            check_existence,
        ),
        any_depth_function(
            &["simplejsonhas(text, key)"],
            "Whether there is a key of that name, however deep it stands; false of a text that is no JSON.",
            &["visitparamhas"],
            DataType::Boolean,
            check_existence,
        ),
        key_path_function(
            &["jsonlength(text, key, …)"],
            "How many items or members there are under keys, or numbers from 1, within one another; null of what has \
             none.",
            &[],
            DataType::Int64,
            |call, keys| {
                let mut scanner = JsonScanner::default();
                call.build_integers(|row| {
                    let value = keys.find_value(&mut scanner, row);
                    Ok(value.and_then(|value| count_children(&mut scanner, value).ok().flatten()))
                })
            },
        ),
        key_path_function(
            &["jsonextractkeys(text, key, …)"],
            "The keys of the object under keys, or numbers from 1, within one another, as a list; null of what is \
             none.",
            &[],
            list_type(DataType::Utf8View),
            |call, keys| {
                let mut scanner = JsonScanner::default();
                call.build_text_lists(|row, items| match keys.find_value(&mut scanner, row) {
                    Some(value) => append_keys(&mut scanner, value, items),
                    None => Ok(false),
                })
            },
        ),
        key_path_function(
            &["jsonextractarrayraw(text, key, …)"],
            "The items of the array under keys, or numbers from 1, within one another, as a list of JSON; null of \
             what is none.",
            &[],
            list_type(DataType::Utf8View),
            |call, keys| {
                let (mut scanner, mut item) = (JsonScanner::default(), String::new());
                call.build_text_lists(|row, items| {
                    let value = keys.find_value(&mut scanner, row);
                    let Some(value) = value.filter(|value| JsonKind::from_value(value) == JsonKind::Array) else {
                        return Ok(false);
                    };
                    let mut done = Ok(());
                    let seen = scanner.for_each_item(value, |each| {
                        if done.is_ok() {
                            done = append_formatted_item(items, each, write_as_json, &mut item);
                        }
                    });
                    seen.map_err(|error| invalid_json_error(value, error))?;
                    done?;
                    Ok(true)
                })
            },
        ),
    ]
}

fn get_json_object(call: &CallBatch) -> PlanResult<ArrayRef> {
    let (texts, names) = (call.text_operand(0)?, call.text_operand(1)?);
    let constant = names.constant().map(parse_path).transpose()?;
    let (mut scanner, mut found) = (JsonScanner::default(), Vec::new());
    call.build_texts(|row, made| {
        let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else { return Ok(false) };
        let own;
        let path = match &constant {
            Some(path) => path,
            None => {
                own = parse_path(name)?;
                &own
            }
        };
        if !path.has_wildcards() {
            let value = scanner.find_value(text, path.steps()).ok().flatten();
            return Ok(value.is_some_and(|value| write_as_text(value, made)));
        }
        if scanner.find_all(text, path.steps(), &mut found).is_err() || found.is_empty() {
            return Ok(false);
        }
        made.push('[');
        for (index, value) in found.iter().enumerate() {
            if index > 0 {
                made.push(',');
            }
            write_compact(value, made);
        }
        made.push(']');
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::{
        call_function, call_in_all_forms, check_text_calls, format_value, text_constant,
    };
    use arrow::array::StringArray;
    use datafusion_common::ScalarValue;

    const ORDER: &str = r#"{"a":{"b":[1, 2,{"c":"x"}]},"a.b":7,"n":null}"#;

    #[test]
    fn extraction_matches_duckdb() {
        check_text_calls(&[
            ("json_extract", &[ORDER, "$.a.b[0]"], "1"),
            ("json_extract", &[ORDER, "$.a"], r#"{"b":[1,2,{"c":"x"}]}"#),
            ("json_extract", &[ORDER, "a"], r#"{"b":[1,2,{"c":"x"}]}"#),
            ("json_extract", &[ORDER, "a.b"], "7"),
            ("json_extract", &[ORDER, "$.\"a.b\""], "7"),
            ("json_extract", &[ORDER, "/a/b/2/c"], "\"x\""),
            ("json_extract", &[ORDER, "$.a.b[-1].c"], "\"x\""),
            ("json_extract", &[ORDER, "$.a.b[#-1].c"], "\"x\""),
            ("json_extract", &[ORDER, "$.a.b[*]"], r#"[1, 2, {"c":"x"}]"#),
            ("json_extract", &[r#"{"a":{"x":1,"y":[2]}}"#, "$.a.*"], "[1, [2]]"),
            ("json_extract", &[r#"{"a":[{"b":1},{"b":2},{}]}"#, "$.a[*].b"], "[1, 2]"),
            ("json_extract", &[ORDER, "$.x"], "NULL"),
            ("json_extract", &[ORDER, "n"], "null"),
            ("json_extract", &["{\"a\":1}", "$"], "{\"a\":1}"),
            ("json_extract", &["{\"a\":1}", ""], "{\"a\":1}"),
            ("json_extract", &["{\"a\":1,\"a\":2}", "a"], "1"),
            ("json_extract", &["[1]", "$[5]"], "NULL"),
            ("json_extract", &["[1,2,3]", "1"], "NULL"),
            ("json_extract", &["{\"1\":5}", "1"], "5"),
            ("json_extract", &["{\"a/b\":1}", "/a~1b"], "1"),
            ("json_extract", &["{\"A\":1}", "a"], "NULL"),
            ("json_extract", &["{\"a\":1.50}", "a"], "1.50"),
            ("json_extract_string", &[ORDER, "n"], "NULL"),
            ("json_extract_string", &[r#"{"a":"x\n\u00e9\"y"}"#, "a"], "x\né\"y"),
            ("json_extract_string", &[r#"{"a":{"b": 1}}"#, "a"], r#"{"b":1}"#),
            (
                "json_extract_string",
                &[r#"{"a":["x",null,{"b":2}]}"#, "$.a[*]"],
                r#"[x, NULL, {"b":2}]"#,
            ),
            ("json_extract_path", &[r#"{"a":{"b":[5]}}"#, "a", "b", "0"], "5"),
            ("json_extract_path_text", &[r#"{"a":{"b":"c"}}"#, "a", "b"], "c"),
            ("json_extract_path_text", &[r#"{"a":"b"}"#, "a"], "b"),
            ("json_value", &["{\"a\":[1]}", "a"], "NULL"),
            ("json_value", &["{\"a\":\"s\"}", "a"], "s"),
            ("json_extract_scalar", &["{\"a\":\"s\"}", "$.a"], "s"),
            ("json_extract_scalar", &["{\"a\":[1]}", "$.a"], "NULL"),
            ("json_exists", &[ORDER, "n"], "true"),
            ("json_exists", &[ORDER, "m"], "false"),
            (
                "json_extract",
                &["{\"a\":1", "a"],
                "`{\"a\":1` is no JSON: the text ends before all brackets are closed behind 6 bytes\nhint: json_valid(x) tells which rows have JSON; get_json_object(x, '$.a') answers null of others",
            ),
            (
                "json_extract",
                &["{\"a\":1} x", "$.b[0]"],
                "`{\"a\":1} x` is no JSON: something follows the value behind 8 bytes\nhint: json_valid(x) tells which rows have JSON; get_json_object(x, '$.a') answers null of others",
            ),
            (
                "json_extract",
                &[ORDER, "$.a["],
                "the path `$.a[` is not understood at character 4: a bracket is not closed\nhint: it is written as '$.a.b[0]', '$.a[*].b', '/a/b/0', or 'a' for a key",
            ),
            (
                "json_exists",
                &[ORDER, "$.*"],
                "`json_exists` takes a path to one value\nhint: json_extract(x, '$.a[*]') has the values of a path with stars as a list",
            ),
        ]);
        let n = |number: i64| ScalarValue::from(number);
        assert_eq!(call_in_all_forms("json_extract", &[text_constant("[1,2,3]"), n(1)]), "2");
        assert_eq!(call_in_all_forms("json_extract", &[text_constant("[1,2,3]"), n(-1)]), "3");
        assert_eq!(
            call_in_all_forms("json_extract_string", &[text_constant("[1,\"2\"]"), n(1)]),
            "2"
        );
        assert_eq!(
            call_in_all_forms("json_extract", &[text_constant("[1]"), ScalarValue::Utf8(None)]),
            "NULL"
        );
        assert_eq!(
            call_in_all_forms("json_extract_string", &[text_constant("[1]"), ScalarValue::Null]),
            "NULL"
        );
        assert_eq!(
            call_in_all_forms("json_extract", &[ScalarValue::Utf8(None), text_constant("a")]),
            "NULL"
        );
        let list = ScalarValue::List(ScalarValue::new_list_nullable(
            &[text_constant("a"), text_constant("$.n"), text_constant("x")],
            &DataType::Utf8,
        ));
        assert_eq!(
            call_in_all_forms("json_extract_string", &[text_constant(ORDER), list]),
            r#"[{"b":[1,2,{"c":"x"}]}, NULL, NULL]"#
        );
        assert_eq!(
            call_in_all_forms("json_extract", &[ScalarValue::from(1.5), text_constant("a")]),
            "`json_extract` takes JSON in a TEXT, a struct, a list or a map, and this is a DOUBLE\nhint: to_json(x) makes JSON of any value"
        );
    }

    #[test]
    fn path_column_applies_row_by_row() {
        let column =
            |texts: Vec<&str>| ColumnarValue::Array(Arc::new(StringArray::from(texts)) as ArrayRef);
        let args = vec![column(vec![ORDER, ORDER, ORDER]), column(vec!["$.a.b[0]", "n", "x"])];
        let made = call_function("json_extract", args, 3).unwrap();
        let made: Vec<String> = (0..3).map(|row| format_value(&made, row)).collect();
        assert_eq!(made, ["1", "null", "NULL"]);
        let args = vec![column(vec![ORDER]), column(vec!["$.*"])];
        let error = call_function("json_extract", args, 1).unwrap_err();
        assert!(crate::closure_function::tests::error_message(error).contains("is no constant"));
    }

    #[test]
    fn types_lengths_and_keys_match_expected_values() {
        check_text_calls(&[
            ("json_type", &["{\"a\":1}"], "OBJECT"),
            ("json_type", &["[]"], "ARRAY"),
            ("json_type", &["{\"a\":1}", "a"], "UBIGINT"),
            ("json_type", &["{\"a\":-1}", "a"], "BIGINT"),
            ("json_type", &["{\"a\":1.5}", "a"], "DOUBLE"),
            ("json_type", &["{\"a\":\"s\"}", "a"], "VARCHAR"),
            ("json_type", &["{\"a\":null}", "a"], "NULL"),
            ("json_type", &["{\"a\":true}", "a"], "BOOLEAN"),
            ("json_type", &["{\"a\":true}", "b"], "NULL"),
            ("json_typeof", &["[1]"], "array"),
            ("jsonb_typeof", &["\"x\""], "string"),
            ("json_keys", &["{\"a\":1,\"b\\u00e9\":{\"c\":2},\"a\":3}"], "[a, bé, a]"),
            ("json_keys", &["[1]"], "NULL"),
            ("json_keys", &["{\"a\":{\"c\":1}}", "a"], "[c]"),
            ("json_keys", &["{}"], "[]"),
            ("json_array_length", &["[1,[2,3],{}]"], "3"),
            ("json_array_length", &["[]"], "0"),
            ("json_array_length", &["{\"a\":[1]}", "a"], "1"),
            ("json_array_length", &["{\"a\":[1]}"], "NULL"),
            ("json_valid", &["{"], "false"),
            ("json_valid", &["1"], "true"),
            ("json", &[" [1, { \"a b\" : 2 } ]"], "[1,{\"a b\":2}]"),
            ("json_unquote", &["\"a\\tb\""], "a\tb"),
            ("json_unquote", &["null"], "null"),
        ]);
    }

    #[test]
    fn invalid_json_is_null_for_spark_and_clickhouse_functions() {
        check_text_calls(&[
            ("get_json_object", &[ORDER, "$.a.b[0]"], "1"),
            ("get_json_object", &[ORDER, "$.a.b[*].c"], "[\"x\"]"),
            ("get_json_object", &[ORDER, "$.x"], "NULL"),
            ("get_json_object", &["{\"a\":1", "$.a"], "NULL"),
            ("get_json_object", &["-", "$.a"], "NULL"),
            ("jsonextractstring", &[r#"{"a":{"b":"c"}}"#, "a", "b"], "c"),
            ("jsonextractstring", &[r#"{"a":5}"#, "a"], "NULL"),
            ("jsonextractstring", &["{", "a"], "NULL"),
            ("jsonextractint", &[r#"{"a":5}"#, "a"], "5"),
            ("jsonextractint", &[r#"{"a":"5"}"#, "a"], "5"),
            ("jsonextractint", &[r#"{"a":5.0}"#, "a"], "5"),
            ("jsonextractint", &[r#"{"a":5.5}"#, "a"], "NULL"),
            ("jsonextractint", &[r#"{"a":1e300}"#, "a"], "NULL"),
            ("jsonextractfloat", &[r#"{"a":5.5}"#, "a"], "5.5"),
            ("jsonextractfloat", &[r#"{"a":"inf"}"#, "a"], "NULL"),
            ("jsonextractbool", &[r#"{"a":true}"#, "a"], "true"),
            ("jsonextractbool", &[r#"{"a":1}"#, "a"], "NULL"),
            ("jsonextractraw", &[r#"{"a":[1, 2]}"#, "a"], "[1,2]"),
            ("jsonhas", &[r#"{"a":null}"#, "a"], "true"),
            ("jsonhas", &[r#"{"a":null}"#, "b"], "false"),
            ("jsonhas", &["-", "b"], "false"),
            ("jsonlength", &[r#"{"a":[1,2]}"#, "a"], "2"),
            ("jsonlength", &[r#"{"a":[1,2]}"#], "1"),
            ("jsonextractkeys", &[r#"{"a":{"b":1,"c":2}}"#, "a"], "[b, c]"),
            ("jsonextractarrayraw", &[r#"{"a":[1, "x"]}"#, "a"], "[1, \"x\"]"),
        ]);
        let n = |number: i64| ScalarValue::from(number);
        assert_eq!(call_in_all_forms("jsonextractint", &[text_constant("[7,8]"), n(1)]), "7");
        assert_eq!(call_in_all_forms("jsonextractint", &[text_constant("[7,8]"), n(-1)]), "8");
        assert_eq!(call_in_all_forms("jsonextractint", &[text_constant("[7,8]"), n(0)]), "NULL");
    }
}
