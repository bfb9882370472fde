//! Test calls written as SQL: `strftime(DATE '2026-11-20', '%d.%m.%Y')`.
//!
//! Each call is evaluated three times: with its constants as they are, with all of them as columns, and with
//! only the first as a column. All results must be equal. If the first argument is null, the result of a
//! strict function must be null.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, StringArray, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, Volatility};

static FUNCTIONS_BY_NAME: LazyLock<HashMap<String, ScalarUDF>> = LazyLock::new(|| {
    let mut all = HashMap::new();
    for function in crate::scalar_functions() {
        for alias in function.aliases() {
            assert!(all.insert(alias.clone(), function.clone()).is_none(), "{alias} twice");
        }
        let name = function.name().to_owned();
        assert!(all.insert(name.clone(), function).is_none(), "{name} twice");
    }
    all
});

/// Evaluates a call and formats its result; `NULL` for null.
pub(crate) fn evaluate_call(call: &str) -> Result<String> {
    let mut parser = CallParser { text: call, position: 0 };
    let value = parser.parse_value()?;
    parser.skip_blanks();
    assert!(parser.rest().is_empty(), "{call}: what is {}?", parser.rest());
    Ok(format_value(&value))
}

/// Checks the results of calls.
pub(crate) fn check_calls(rows: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (call, expected) in rows {
        let found = evaluate_call(call).unwrap_or_else(|error| format!("{error}"));
        if found != *expected {
            wrong.push(format!("{call} is {found}, and not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Checks that calls fail with a message that contains the expected part.
pub(crate) fn check_call_errors(rows: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (call, part) in rows {
        match evaluate_call(call) {
            Ok(found) => wrong.push(format!("{call} is {found}")),
            Err(error) => {
                let error = error.to_string();
                if !error.contains(part) {
                    wrong.push(format!("{call}: {error}, without `{part}`"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub(crate) fn format_value(value: &ScalarValue) -> String {
    if value.is_null() {
        return "NULL".into();
    }
    let array = value.to_array().unwrap();
    let options = FormatOptions::new();
    ArrayFormatter::try_new(&array, &options).unwrap().value(0).to_string()
}

/// Calls a function on columns or constants.
pub(crate) fn call_with_columns(
    name: &str,
    values: &[ColumnarValue],
    rows: usize,
) -> Result<ColumnarValue> {
    let function = FUNCTIONS_BY_NAME.get(name).unwrap_or_else(|| panic!("no function {name}"));
    let given: Vec<DataType> = values.iter().map(ColumnarValue::data_type).collect();
    let taken = function.coerce_types(&given)?;
    let cast = values.iter().zip(&taken).map(|(value, to)| value.cast_to(to, None));
    let values: Vec<ColumnarValue> = cast.collect::<Result<_>>()?;
    let fields: Vec<FieldRef> =
        taken.iter().map(|of| Arc::new(Field::new("x", of.clone(), true))).collect();
    let constants: Vec<Option<&ScalarValue>> = values
        .iter()
        .map(|value| match value {
            ColumnarValue::Scalar(value) => Some(value),
            ColumnarValue::Array(_) => None,
        })
        .collect();
    let return_field = function.return_field_from_args(ReturnFieldArgs {
        arg_fields: &fields,
        scalar_arguments: &constants,
    })?;
    let found = function.invoke_with_args(ScalarFunctionArgs {
        args: values.clone(),
        arg_fields: fields,
        number_rows: rows,
        return_field: Arc::clone(&return_field),
        config_options: Arc::new(ConfigOptions::default()),
    })?;
    assert_eq!(&found.data_type(), return_field.data_type(), "{name}");
    Ok(found)
}

fn three_row_column(value: &ScalarValue, has_null: bool) -> ColumnarValue {
    let one = value.to_array().unwrap();
    let middle: ArrayRef = match has_null {
        true => new_null_array(&value.data_type(), 1),
        false => Arc::clone(&one),
    };
    ColumnarValue::Array(concat(&[&one, &middle, &one]).unwrap())
}

fn call_in_all_forms(name: &str, values: &[ScalarValue]) -> Result<ScalarValue> {
    let constants: Vec<_> = values.iter().cloned().map(ColumnarValue::Scalar).collect();
    let function = FUNCTIONS_BY_NAME.get(name).unwrap_or_else(|| panic!("no function {name}"));
    let found = match call_with_columns(name, &constants, 1)? {
        ColumnarValue::Scalar(found) => found,
        ColumnarValue::Array(found) => ScalarValue::try_from_array(&found, 0)?,
    };
    if values.is_empty() || function.signature().volatility == Volatility::Volatile {
        return Ok(found);
    }
    for all in [true, false] {
        let columns: Vec<_> = values
            .iter()
            .enumerate()
            .map(|(at, value)| match all || at == 0 {
                true => three_row_column(value, at == 0 && !value.data_type().is_null()),
                false => ColumnarValue::Scalar(value.clone()),
            })
            .collect();
        let column = match call_with_columns(name, &columns, 3) {
            Ok(column) => column.to_array(3)?,
            // Some functions take only constants.
            Err(error) if error.to_string().contains("constant") => continue,
            Err(error) => panic!("{name} of columns: {error}"),
        };
        for row in [0, 2] {
            let other = ScalarValue::try_from_array(&column, row)?;
            assert_eq!(format_value(&other), format_value(&found), "{name} of columns ({all})");
        }
        if function.is_strict() {
            assert!(values[0].data_type().is_null() || column.is_null(1), "{name} of null");
        }
    }
    Ok(found)
}

struct CallParser<'a> {
    text: &'a str,
    position: usize,
}

fn cast_text(text: &str, to: &DataType) -> Result<ScalarValue> {
    let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let options = CastOptions { safe: false, ..CastOptions::default() };
    ScalarValue::try_from_array(&cast_with_options(&array, to, &options)?, 0)
}

impl<'a> CallParser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_blanks(&mut self) {
        self.position += self.rest().len() - self.rest().trim_start().len();
    }

    fn consume(&mut self, text: &str) -> bool {
        self.skip_blanks();
        let is_here = self.rest().starts_with(text);
        self.position += if is_here { text.len() } else { 0 };
        is_here
    }

    fn parse_word(&mut self) -> &'a str {
        self.skip_blanks();
        let rest = self.rest();
        let is_of = |letter: char| letter.is_ascii_alphanumeric() || "_.-+".contains(letter);
        let end = rest.find(|letter| !is_of(letter)).unwrap_or(rest.len());
        self.position += end;
        &rest[..end]
    }

    fn parse_quoted_text(&mut self) -> String {
        assert!(self.consume("'"), "{}", self.rest());
        let mut text = String::new();
        loop {
            let end = self.rest().find('\'').unwrap();
            text.push_str(&self.rest()[..end]);
            self.position += end + 1;
            if !self.rest().starts_with('\'') {
                return text;
            }
            self.position += 1;
            text.push('\'');
        }
    }

    fn parse_values(&mut self, end: &str) -> Result<Vec<ScalarValue>> {
        let mut values = Vec::new();
        while !self.consume(end) {
            values.push(self.parse_value()?);
            self.consume(",");
        }
        Ok(values)
    }

    fn parse_value(&mut self) -> Result<ScalarValue> {
        let value = self.parse_literal_or_call()?;
        // `x::Type`, with Arrow's name of the type.
        match self.consume("::") {
            true => {
                let name = self.parse_word().to_owned();
                let name = match self.consume("(") {
                    true => {
                        // A time zone within the type stands in its own brackets.
                        let nested = self.rest().find("\"))").map(|at| at + 2);
                        let end = nested.or_else(|| self.rest().find(')')).unwrap();
                        let inner = self.rest()[..end].to_owned();
                        self.position += end + 1;
                        format!("{name}({inner})")
                    }
                    false => name,
                };
                value.cast_to(&name.parse::<DataType>()?)
            }
            false => Ok(value),
        }
    }

    fn parse_literal_or_call(&mut self) -> Result<ScalarValue> {
        self.skip_blanks();
        if self.rest().starts_with('\'') {
            return Ok(ScalarValue::Utf8(Some(self.parse_quoted_text())));
        }
        if self.consume("[") {
            let values = self.parse_values("]")?;
            let of = values.first().map_or(DataType::Utf8, ScalarValue::data_type);
            let values = values.iter().map(|value| value.cast_to(&of));
            let values = values.collect::<Result<Vec<_>>>()?;
            return Ok(ScalarValue::List(ScalarValue::new_list_nullable(&values, &of)));
        }
        let word = self.parse_word();
        let timestamp =
            |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Arc::from));
        match word {
            "NULL" => return Ok(ScalarValue::Null),
            "TRUE" => return Ok(ScalarValue::Boolean(Some(true))),
            "FALSE" => return Ok(ScalarValue::Boolean(Some(false))),
            "DATE" => return cast_text(&self.parse_quoted_text(), &DataType::Date32),
            "TIMESTAMP" => return cast_text(&self.parse_quoted_text(), &timestamp(None)),
            "TIMESTAMPTZ" => return cast_text(&self.parse_quoted_text(), &timestamp(Some("UTC"))),
            // A timestamp with time zone in Berlin's local time.
            "BERLIN" => {
                return cast_text(&self.parse_quoted_text(), &timestamp(Some("Europe/Berlin")));
            }
            "TIME" => {
                return cast_text(
                    &self.parse_quoted_text(),
                    &DataType::Time64(TimeUnit::Nanosecond),
                );
            }
            "INTERVAL" => {
                let span = DataType::Interval(IntervalUnit::MonthDayNano);
                return cast_text(&self.parse_quoted_text(), &span);
            }
            _ => {}
        }
        if let Ok(whole) = word.parse::<i64>() {
            return Ok(ScalarValue::Int64(Some(whole)));
        }
        if word.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-') {
            return Ok(ScalarValue::Float64(Some(word.parse().unwrap())));
        }
        assert!(self.consume("("), "{word:?} before {:?}", self.rest());
        let values = self.parse_values(")")?;
        call_in_all_forms(word, &values)
    }
}

/// Runs the examples in the descriptions of functions.
#[test]
fn documentation_examples_match_results() {
    let said = regex::Regex::new(r"`([a-z0-9_]+\([^`]*\))` is `([^`]*)`").unwrap();
    let (mut untold, mut wrong) = (Vec::new(), Vec::<String>::new());
    let rooms =
        [crate::times::functions(), crate::numbers::functions(), crate::nested::functions()];
    for function in rooms.into_iter().flatten() {
        let told = function.documentation().unwrap();
        let what = &told.description;
        assert!(what.ends_with('.') && !what.contains(". "), "{}: {what}", function.name());
        let mut count = 0;
        for example in said.captures_iter(what) {
            let found = evaluate_call(&example[1]).unwrap_or_else(|error| format!("{error}"));
            if found != example[2] {
                wrong.push(format!("{} is {found}, and not {}", &example[1], &example[2]));
            }
            count += 1;
        }
        if count == 0 {
            untold.push(function.name().to_owned());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(untold.is_empty(), "functions without an example: {untold:?}");
}

/// Runs the examples of formats in `docs/reference/formats.md`.
#[test]
fn formats_page_examples_match_results() {
    let page = include_str!("../../../docs/reference/formats.md");
    let (mut call, mut wrong, mut count) = (String::new(), Vec::new(), 0);
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let code = |cell: &str| cell.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
        if let Some(head) = line.strip_prefix("| `").and_then(|line| line.strip_suffix("` | | |")) {
            call = match head.strip_suffix("…)") {
                Some(begun) => begun.to_owned(),
                None => format!("{head}(TIMESTAMP '2026-03-05 08:05:09.012345', "),
            };
        } else if let [format, _, expected] = cells.as_slice()
            && let (Some(format), Some(expected)) = (code(format), code(expected))
        {
            let call = format!("{call}'{format}')");
            let found = evaluate_call(&call).unwrap_or_else(|error| error.to_string());
            if found.trim() != expected {
                wrong.push(format!("{call} is {}, and not {expected}", found.trim()));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} formats");
}
