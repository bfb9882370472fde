//! Times as text: `strftime`, `to_char`, `date_format`, and names of days and months.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::ColumnarValue;
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use super::calendar::{MONTH_NAMES, WEEKDAY_NAMES, weekday};
use super::datetime_format::DateTimeFormat;
use super::local_times::{TimeArgument, instant_cast_type, time_cast_type};
use super::percent_codes::{self, CodeDialect};
use super::{java_patterns, postgres_patterns};
use crate::numbers::number_patterns::{self, NumberPattern};
use crate::row_function::{
    ArgumentBatch, FunctionDocs, LastTextCache, RowFunction, check_format_length, is_text_type,
    text_cast_type, usage_error, wrong_arguments_error,
};

/// The language of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FormatLanguage {
    /// C's codes.
    C,
    /// PostgreSQL's patterns; chrono's codes if the format contains `%`.
    Postgres,
    /// Java's patterns; MySQL's codes if the format contains `%`.
    Java,
    /// ClickHouse's codes.
    ClickHouse,
}

impl FormatLanguage {
    pub(super) fn parse_format(self, format: &str) -> Result<DateTimeFormat> {
        check_format_length(format)?;
        let has_codes = format.contains('%');
        match self {
            FormatLanguage::C => percent_codes::parse_codes(format, CodeDialect::C),
            FormatLanguage::ClickHouse => {
                percent_codes::parse_codes(format, CodeDialect::ClickHouse)
            }
            FormatLanguage::Postgres if has_codes => {
                percent_codes::parse_codes(format, CodeDialect::Chrono)
            }
            FormatLanguage::Postgres => postgres_patterns::parse_postgres_pattern(format),
            FormatLanguage::Java if has_codes => {
                percent_codes::parse_codes(format, CodeDialect::MySql)
            }
            FormatLanguage::Java => java_patterns::parse_java_pattern(format),
        }
    }
}

/// Fails if a format needs a date and the values are times of day.
fn check_format_suits_type(format: &str, parsed: &DateTimeFormat, has_days: bool) -> Result<()> {
    match parsed.needs_days() && !has_days {
        true => Err(usage_error(
            format!("a TIME has no days, which the format `{format}` asks for"),
            "a time of day is hours, minutes and seconds: '%H:%M:%S'",
        )),
        false => Ok(()),
    }
}

fn type_has_days(of: &DataType) -> bool {
    !matches!(of, DataType::Time32(_) | DataType::Time64(_))
}

/// Formats times as text. `format` is the index of the argument with the formats.
fn format_times(
    given: &ArgumentBatch<'_>,
    times: &ColumnarValue,
    format: usize,
    language: FormatLanguage,
) -> Result<ArrayRef> {
    let times = TimeArgument::from_value(times)?;
    let formats = given.text_argument(format)?;
    let mut kept = LastTextCache::new();
    given.build_texts(|row, out| {
        let (Some(format), Some(time)) = (formats.get(row), times.local_time(row)?) else {
            return Ok(false);
        };
        let parsed = kept.get_or_parse(format, |format| {
            let parsed = language.parse_format(format)?;
            check_format_suits_type(format, &parsed, times.has_days)?;
            Ok(parsed)
        })?;
        parsed.write_time(time, &times, out)?;
        Ok(true)
    })
}

/// The functions `strftime`, `date_format` and `formatDateTime`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FormatTimeFunction(pub(super) FormatLanguage);

impl FormatTimeFunction {
    /// Returns whether the first argument is the format. If both are texts, the constant with codes is the
    /// format, or else the second argument.
    fn is_format_first(&self, types: [&DataType; 2], first: Option<&str>) -> bool {
        let takes_both = self.0 == FormatLanguage::C;
        let [left, right] = types;
        let are_texts = is_text_type(left) && is_text_type(right);
        takes_both
            && is_text_type(left)
            && (!are_texts || first.is_some_and(|first| first.contains('%')))
    }
}

impl RowFunction for FormatTimeFunction {
    fn names(&self) -> &'static [&'static str] {
        match self.0 {
            FormatLanguage::C => &["strftime", "format_timestamp", "format_date"],
            FormatLanguage::ClickHouse => &["formatdatetime"],
            _ => &["date_format", "format_datetime"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        match self.0 {
            FormatLanguage::C => FunctionDocs {
                section: DOC_SECTION_DATETIME,
                syntax: "strftime(ts, format)\nstrftime(format, ts)",
                description: "A time as text, by C's and Python's codes, `%f` being six digits of the fraction, `%g` \
                       three and `%n` nine: `strftime(TIMESTAMP '2026-11-20 08:05:00.25', '%d.%m.%Y %H:%M:%S.%g')` is \
                       `20.11.2026 08:05:00.250`.",
            },
            FormatLanguage::ClickHouse => FunctionDocs {
                section: DOC_SECTION_DATETIME,
                syntax: "formatDateTime(ts, format)",
                description: "A time as text, by ClickHouse's codes: \
                       `formatdatetime(TIMESTAMP '2026-11-20 08:05:00', '%F %H:%i:%S')` is `2026-11-20 08:05:00`.",
            },
            _ => FunctionDocs {
                section: DOC_SECTION_DATETIME,
                syntax: "date_format(ts, pattern)",
                description: "A time as text, by Java's patterns (Spark's), or, where there is a `%`, by MySQL's codes: \
                       `date_format(TIMESTAMP '2026-11-20 08:05:00', 'EEE, d MMM yyyy HH:mm')` is \
                       `Fri, 20 Nov 2026 08:05`, and `date_format(DATE '2026-11-20', '%M %D')` is `November 20th`.",
            },
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [left, right] = given else { return Err(wrong_arguments_error(self, given)) };
        let types = match (text_cast_type(left), text_cast_type(right)) {
            // If both are texts, their values tell later which one is the format.
            (Some(left), Some(right)) if self.0 == FormatLanguage::C => Some((left, right)),
            (_, Some(format)) => time_cast_type(left).map(|time| (time, format)),
            (Some(format), None) if self.0 == FormatLanguage::C => {
                time_cast_type(right).map(|time| (format, time))
            }
            _ => None,
        };
        let (left, right) = types.ok_or_else(|| wrong_arguments_error(self, given))?;
        Ok(vec![left, right])
    }

    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType> {
        let text = |at: usize| {
            let constant: Option<&ScalarValue> = constants.get(at).copied().flatten();
            constant.and_then(|constant| constant.try_as_str().flatten())
        };
        if let [left, right] = taken {
            let (format, times) = match self.is_format_first([left, right], text(0)) {
                true => (0, right),
                false => (1, left),
            };
            if let Some(format) = text(format) {
                check_format_suits_type(
                    format,
                    &self.0.parse_format(format)?,
                    type_has_days(times),
                )?;
            }
        }
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let (left, right) = (given.argument(0)?, given.argument(1)?);
        let types = [&left.data_type(), &right.data_type()];
        // If both columns are text, the first value tells which one is the format.
        let texts = if is_text_type(types[0]) { Some(given.text_argument(0)?) } else { None };
        let first =
            texts.as_ref().and_then(|texts| (0..given.row_count).find_map(|row| texts.get(row)));
        let (format, times) = match self.is_format_first(types, first) {
            true => (0, right),
            false => (1, left),
        };
        if !is_text_type(&times.data_type()) {
            return format_times(given, times, format, self.0);
        }
        let instant = DataType::Timestamp(TimeUnit::Microsecond, None);
        let times = match times {
            ColumnarValue::Array(array) => {
                ColumnarValue::Array(cast_with_options(array, &instant, &STRICT_CAST_OPTIONS)?)
            }
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.cast_to(&instant)?),
        };
        format_times(given, &times, format, self.0)
    }
}

/// The function `to_char`, for times and numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ToCharFunction;

impl RowFunction for ToCharFunction {
    fn names(&self) -> &'static [&'static str] {
        &["to_char"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_DATETIME,
            syntax: "to_char(x, pattern)",
            description: "A time or a number as text, by PostgreSQL's patterns, or, where there is a `%`, by the codes \
                   that `to_timestamp` takes: `to_char(TIMESTAMP '2026-11-20 08:05:00', 'Dy DD Mon YYYY HH24:MI')` is \
                   `Fri 20 Nov 2026 08:05`, and `to_char(1234567.891, 'FM9,999,999.00')` is `1,234,567.89`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [value, format] = given else { return Err(wrong_arguments_error(self, given)) };
        let value = time_cast_type(value).or_else(|| number_patterns::number_cast_type(value));
        match (value, text_cast_type(format)) {
            (Some(value), Some(format)) => Ok(vec![value, format]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType> {
        let constant = constants.get(1).copied().flatten();
        if let (Some(format), Some(of)) =
            (constant.and_then(|constant| constant.try_as_str().flatten()), taken.first())
        {
            match time_cast_type(of) {
                Some(_) => {
                    check_format_suits_type(
                        format,
                        &FormatLanguage::Postgres.parse_format(format)?,
                        type_has_days(of),
                    )?;
                }
                None => {
                    NumberPattern::parse(format)?;
                }
            }
        }
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let value = given.argument(0)?;
        match time_cast_type(&value.data_type()) {
            Some(_) => format_times(given, value, 1, FormatLanguage::Postgres),
            None => number_patterns::format_numbers(given),
        }
    }
}

/// The functions `dayname` and `monthname`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum DateNameFunction {
    Weekday,
    Month,
}

impl RowFunction for DateNameFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            DateNameFunction::Weekday => &["dayname", "day_name"],
            DateNameFunction::Month => &["monthname", "month_name"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            DateNameFunction::Weekday => (
                "dayname(ts)",
                "The name of the day of the week: `dayname(DATE '2026-11-20')` is `Friday`.",
            ),
            DateNameFunction::Month => (
                "monthname(ts)",
                "The name of the month: `monthname(DATE '2026-11-20')` is `November`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_DATETIME, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => {
                Ok(vec![instant_cast_type(of).ok_or_else(|| wrong_arguments_error(self, given))?])
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let times = TimeArgument::from_value(given.argument(0)?)?;
        let mut names = StringBuilder::with_capacity(given.row_count, given.row_count * 9);
        for row in 0..given.row_count {
            let name = times.local_time(row)?.map(|shown| match self {
                DateNameFunction::Weekday => WEEKDAY_NAMES[weekday(shown.days) as usize],
                DateNameFunction::Month => MONTH_NAMES[shown.date().month as usize - 1],
            });
            names.append_option(name);
        }
        Ok(Arc::new(names.finish()))
    }
}
