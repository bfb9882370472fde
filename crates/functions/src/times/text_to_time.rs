//! Text as times: `strptime`, `try_strptime`, `date_parse`, and PostgreSQL's patterns for `to_timestamp` and
//! `to_date`.
//!
//! A text must match the format from its beginning to its end, except for blanks around it; a blank in the
//! format matches any number of blanks. Missing parts default to 1970-01-01 00:00:00, and for `strptime` and
//! `try_strptime` to 1900-01-01 00:00:00, as in Python and DuckDB.
//!
//! A time with an offset or a zone is converted to UTC. The functions return a TIMESTAMP whatever the format,
//! since a format may become constant only after types are settled. If the statement contains the format as a
//! literal and [`is_instant_format`] holds, the planner casts the call to TIMESTAMP WITH TIME ZONE.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, PrimitiveArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use datafusion_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Error;

use super::datetime_format::{DateTimeFormat, ParsedInstant};
use super::time_to_text::FormatLanguage;
use crate::row_function::{
    ArgumentBatch, FunctionDocs, LastTextCache, RowFunction, RowMapping, TextArgument,
    argument_array, external_error, internal_error, shorten_for_message, text_cast_type,
    usage_error, wrong_arguments_error,
};

/// Returns the error for a text that matches none of the formats.
fn format_mismatch_error(
    text: &str,
    formats: &[String],
    reasons: &[String],
    hint: &str,
) -> DataFusionError {
    let to = match (formats, reasons) {
        ([format], [reason]) => format!("the format `{}`: {reason}", shorten_for_message(format)),
        _ => {
            let formats: Vec<_> =
                formats.iter().map(|format| format!("`{}`", shorten_for_message(format))).collect();
            format!("any of the formats {}", formats.join(", "))
        }
    };
    external_error(Error::Cast {
        value: shorten_for_message(text),
        to,
        cast: None,
        hint: Some(hint.to_owned()),
    })
}

/// A parsed format, with its text.
struct NamedFormat {
    text: String,
    format: DateTimeFormat,
}

impl NamedFormat {
    fn parse(text: &str, language: FormatLanguage) -> Result<Self> {
        Ok(NamedFormat { text: text.to_owned(), format: language.parse_format(text)? })
    }
}

/// Parses a text by the first of the formats that it matches.
fn parse_by_first_fitting_format(
    text: &str,
    formats: &[NamedFormat],
    hint: &str,
) -> Result<ParsedInstant> {
    let mut reasons = Vec::new();
    for named in formats {
        match named.format.parse(text) {
            Ok(instant) => return Ok(instant),
            Err(failed) => reasons.push(failed.reason),
        }
    }
    let formats: Vec<String> = formats.iter().map(|named| named.text.clone()).collect();
    Err(format_mismatch_error(text, &formats, &reasons, hint))
}

fn instant_micros(instant: ParsedInstant, text: &str) -> Result<i64> {
    i64::try_from(instant.nanos.div_euclid(1_000)).map_err(|_| {
        let to = "TIMESTAMP: it is before or after all that have microseconds".into();
        external_error(Error::Cast { value: shorten_for_message(text), to, cast: None, hint: None })
    })
}

/// Functions that parse a text to a TIMESTAMP.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum StrptimeFunction {
    /// `strptime`: an error for a text that does not match.
    Strptime,
    /// `try_strptime`: null for a text that does not match.
    TryStrptime,
    /// `date_parse`: Java's patterns or MySQL's codes.
    DateParse,
}

/// An argument of formats: one per row, or a list of them per row.
enum FormatArgument {
    Texts(TextArgument),
    Lists(ArrayRef, RowMapping),
}

impl FormatArgument {
    fn from_value(value: &ColumnarValue) -> Result<Self> {
        match value.data_type() {
            DataType::List(_) | DataType::LargeList(_) => {
                let (lists, rows) = argument_array(value)?;
                Ok(FormatArgument::Lists(lists, rows))
            }
            _ => Ok(FormatArgument::Texts(TextArgument::from_value(value)?)),
        }
    }

    fn is_constant(&self) -> bool {
        matches!(
            self,
            FormatArgument::Lists(_, RowMapping::Constant)
                | FormatArgument::Texts(
                    TextArgument::Utf8(_, RowMapping::Constant)
                        | TextArgument::LargeUtf8(_, RowMapping::Constant)
                        | TextArgument::Utf8View(_, RowMapping::Constant)
                )
        )
    }

    /// Returns the formats of a row without nulls, or `None` for a null.
    fn row_formats(&self, row: usize) -> Result<Option<Vec<String>>> {
        match self {
            FormatArgument::Texts(texts) => Ok(texts.get(row).map(|text| vec![text.to_owned()])),
            FormatArgument::Lists(lists, rows) => {
                let row = rows.value_index(row);
                match lists.data_type() {
                    DataType::List(_) => list_item_texts(lists.as_list::<i32>(), row),
                    _ => list_item_texts(lists.as_list::<i64>(), row),
                }
            }
        }
    }
}

fn list_item_texts<O: OffsetSizeTrait>(
    lists: &GenericListArray<O>,
    row: usize,
) -> Result<Option<Vec<String>>> {
    if lists.is_null(row) {
        return Ok(None);
    }
    let list = cast_with_options(&lists.value(row), &DataType::Utf8, &STRICT_CAST_OPTIONS)?;
    Ok(Some(list.as_string::<i32>().iter().flatten().map(str::to_owned).collect()))
}

impl StrptimeFunction {
    fn format_language(&self) -> FormatLanguage {
        match self {
            StrptimeFunction::DateParse => FormatLanguage::Java,
            _ => FormatLanguage::C,
        }
    }

    /// Returns the year of texts whose format has none.
    fn default_year(&self) -> Option<i64> {
        match self {
            StrptimeFunction::DateParse => None,
            StrptimeFunction::Strptime | StrptimeFunction::TryStrptime => Some(1900),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            StrptimeFunction::DateParse => {
                "try_strptime(text, format), which takes C's codes, is NULL for what is none of the format"
            }
            _ => "try_strptime(text, format) is NULL for what is none of the format",
        }
    }
}

impl RowFunction for StrptimeFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            StrptimeFunction::Strptime => &["strptime", "parse_timestamp"],
            StrptimeFunction::TryStrptime => &["try_strptime"],
            StrptimeFunction::DateParse => {
                &["date_parse", "str_to_date", "parse_datetime", "parsedatetime"]
            }
        }
    }

    fn docs(&self) -> FunctionDocs {
        match self {
            StrptimeFunction::DateParse => FunctionDocs {
                section: DOC_SECTION_DATETIME,
                syntax: "date_parse(text, pattern)",
                description: "The TIMESTAMP that a text is by Java's patterns, or, where there is a `%`, by MySQL's codes: \
                       `date_parse('20.11.2026 08:05', 'dd.MM.yyyy HH:mm')` is `2026-11-20T08:05:00`, and \
                       `date_parse('November 20th, 2026', '%M %D, %Y')` is `2026-11-20T00:00:00`.",
            },
            StrptimeFunction::TryStrptime => FunctionDocs {
                section: DOC_SECTION_DATETIME,
                syntax: "try_strptime(text, format)\ntry_strptime(text, [format1, format2, …])",
                description: "As `strptime`, but NULL for a text that is none of the format: \
                       `try_strptime('today', '%d.%m.%Y')` is `NULL`.",
            },
            StrptimeFunction::Strptime => FunctionDocs {
                section: DOC_SECTION_DATETIME,
                syntax: "strptime(text, format)\nstrptime(text, [format1, format2, …])",
                description: "The TIMESTAMP that a text is by C's and Python's codes, of several formats the first that fits, in \
                       1900 where it has no year, or the TIMESTAMP WITH TIME ZONE in UTC where a format that is written out has an offset (`%z`) or a \
                       zone (`%Z`): `strptime('20/Nov/2026 08:05', '%d/%b/%Y %H:%M')` is `2026-11-20T08:05:00`.",
            },
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [text, format] = given else { return Err(wrong_arguments_error(self, given)) };
        let text = text_cast_type(text).ok_or_else(|| wrong_arguments_error(self, given))?;
        let format = match format {
            DataType::List(item) | DataType::LargeList(item)
                if text_cast_type(item.data_type()).is_some() =>
            {
                match item.data_type() {
                    DataType::Null => {
                        DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
                    }
                    _ => format.clone(),
                }
            }
            DataType::FixedSizeList(item, _) if text_cast_type(item.data_type()).is_some() => {
                DataType::List(Arc::clone(item))
            }
            other => text_cast_type(other).ok_or_else(|| wrong_arguments_error(self, given))?,
        };
        Ok(vec![text, format])
    }

    fn return_type(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        let constant = constants.get(1).copied().flatten().filter(|constant| !constant.is_null());
        if let Some(constant) = constant {
            let formats = FormatArgument::from_value(&ColumnarValue::Scalar(constant.clone()))?;
            for format in formats.row_formats(0)?.into_iter().flatten() {
                self.format_language().parse_format(&format)?;
            }
        }
        Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let texts = given.text_argument(0)?;
        let formats = FormatArgument::from_value(given.argument(1)?)?;
        let parsed = |row: usize| -> Result<Option<Vec<NamedFormat>>> {
            let Some(formats) = formats.row_formats(row)? else { return Ok(None) };
            let named = formats.iter().map(|format| {
                let mut named = NamedFormat::parse(format, self.format_language())?;
                named.format.default_year = self.default_year();
                Ok(named)
            });
            Ok(Some(named.collect::<Result<_>>()?))
        };
        let constant = if formats.is_constant() { parsed(0)? } else { None };
        let mut found = PrimitiveArray::<TimestampMicrosecondType>::builder(given.row_count);
        for row in 0..given.row_count {
            let own = if formats.is_constant() { None } else { parsed(row)? };
            let (Some(text), Some(formats)) = (texts.get(row), own.as_ref().or(constant.as_ref()))
            else {
                found.append_null();
                continue;
            };
            if formats.is_empty() {
                found.append_null();
                continue;
            }
            if *self == StrptimeFunction::TryStrptime {
                let read = formats.iter().find_map(|named| named.format.parse(text).ok());
                found.append_option(read.and_then(|instant| instant_micros(instant, text).ok()));
                continue;
            }
            let instant = parse_by_first_fitting_format(text, formats, self.hint())?;
            found.append_value(instant_micros(instant, text)?);
        }
        Ok(Arc::new(found.finish()))
    }
}

/// Parses texts by one format per row, for functions of other modules.
pub(super) fn parse_instants(
    given: &ArgumentBatch<'_>,
    text: usize,
    format: usize,
    language: FormatLanguage,
    hint: &str,
) -> Result<Vec<Option<ParsedInstant>>> {
    let texts = given.text_argument(text)?;
    let formats = given.text_argument(format)?;
    let mut kept = LastTextCache::new();
    let rows = (0..given.row_count).map(|row| {
        let (Some(text), Some(format)) = (texts.get(row), formats.get(row)) else {
            return Ok(None);
        };
        let named =
            kept.get_or_parse(format, |format| Ok([NamedFormat::parse(format, language)?]))?;
        parse_by_first_fitting_format(text, named, hint).map(Some)
    });
    rows.collect()
}

/// Returns whether `function` parses instants with `format`.
pub(crate) fn is_instant_format(function: &str, format: &str) -> bool {
    let readers =
        [StrptimeFunction::Strptime, StrptimeFunction::TryStrptime, StrptimeFunction::DateParse];
    let own = readers.iter().find(|reader| reader.names().contains(&function));
    let language = match own {
        Some(reader) => reader.format_language(),
        None if function == "to_timestamp" || function.starts_with("to_timestamp_") => {
            FormatLanguage::Postgres
        }
        None => return false,
    };
    language.parse_format(format).is_ok_and(|format| format.is_instant_format())
}

/// Wraps `to_timestamp` or `to_date`, which take chrono's formats, to accept a PostgreSQL pattern as well: a
/// constant without `%`.
pub(crate) fn with_postgres_patterns(theirs: &Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(PostgresPatternFunction::new(Arc::clone(theirs)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PostgresPatternFunction {
    inner: Arc<ScalarUDF>,
    documentation: Option<Documentation>,
}

impl PostgresPatternFunction {
    fn new(theirs: Arc<ScalarUDF>) -> Self {
        let documentation = theirs.documentation().map(|told| {
            let told = told.clone();
            let line = told.description.split_whitespace().collect::<Vec<_>>().join(" ");
            let what = line.split(". ").next().unwrap_or(&line).trim_end_matches('.');
            let description = format!(
                "{what}, text by formats of chrono's codes, of which the first that fits is taken, or by one \
                 pattern of PostgreSQL's, which has no `%`."
            );
            Documentation { description, ..told }
        });
        PostgresPatternFunction { inner: theirs, documentation }
    }
}

/// Returns a constant as a PostgreSQL pattern, if it is one.
fn postgres_pattern(constant: &ScalarValue) -> Option<&str> {
    let format = constant.try_as_str().flatten()?;
    let is_pattern = !format.contains('%') && format.contains(|of: char| of.is_ascii_alphabetic());
    is_pattern.then_some(format)
}

impl ScalarUDFImpl for PostgresPatternFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(given)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let theirs = Arc::new(self.inner.inner().with_updated_config(config)?);
        Some(ScalarUDF::from(PostgresPatternFunction::new(theirs)))
    }

    fn return_type(&self, taken: &[DataType]) -> Result<DataType> {
        self.inner.return_type(taken)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if let [_, Some(constant)] = args.scalar_arguments
            && let Some(pattern) = postgres_pattern(constant)
        {
            FormatLanguage::Postgres.parse_format(pattern)?;
        }
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [_, ColumnarValue::Scalar(constant)] if postgres_pattern(constant).is_some() => {
                parse_by_pattern(&args)
            }
            _ => self.inner.invoke_with_args(args),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.documentation.as_ref()
    }
}

/// Evaluates `to_timestamp`, its variants such as `to_timestamp_micros`, or `to_date` for text and a
/// PostgreSQL pattern.
///
/// # Errors
/// Fails for a text that does not match the pattern, and for a time outside the range of the result type.
fn parse_by_pattern(args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let answer = args.return_field.data_type();
    let text = args.args.first().ok_or_else(|| internal_error("a call has lost an argument"))?;
    if text_cast_type(&text.data_type()).is_none() {
        return Err(usage_error(
            "a pattern is of text, and the first argument is none",
            "to_timestamp(x) alone takes seconds since 1970",
        ));
    }
    let values = match text_cast_type(&text.data_type()).filter(|to| *to != text.data_type()) {
        Some(to) => {
            let mut values = args.args.clone();
            values[0] = values[0].cast_to(&to, None)?;
            values
        }
        None => args.args.clone(),
    };
    let given = ArgumentBatch { arguments: &values, row_count: rows, return_type: answer };
    let hint = "blanks and signs stand in a text as in its pattern; CASE and ~ choose a pattern by the text";
    let read = parse_instants(&given, 0, 1, FormatLanguage::Postgres, hint)?;
    let found: ArrayRef = match answer {
        DataType::Date32 => {
            let day = 86_400_i128 * 1_000_000_000;
            let days = read.into_iter().map(|instant| match instant {
                Some(instant) => i32::try_from(instant.nanos.div_euclid(day))
                    .map(Some)
                    .map_err(|_| super::local_times::time_out_of_range_error()),
                None => Ok(None),
            });
            Arc::new(days.collect::<Result<PrimitiveArray<Date32Type>>>()?)
        }
        DataType::Timestamp(unit, _) => {
            let one = i128::from(1_000_000_000 / super::local_times::units_per_second(*unit));
            let times = read.into_iter().map(|instant| match instant {
                Some(instant) => i64::try_from(instant.nanos.div_euclid(one))
                    .map(Some)
                    .map_err(|_| super::local_times::time_out_of_range_error()),
                None => Ok(None),
            });
            let times = times.collect::<Result<PrimitiveArray<Int64Type>>>()?;
            cast_with_options(&times, answer, &STRICT_CAST_OPTIONS)?
        }
        other => return Err(internal_error(&format!("a pattern makes no {other}"))),
    };
    match is_constant {
        true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)),
        false => Ok(ColumnarValue::Array(found)),
    }
}
