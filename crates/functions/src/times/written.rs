//! Times as text: `strftime`, `to_char`, `date_format`, and names of days and months.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::ColumnarValue;
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use super::calendar::{MONTHS, WEEKDAYS, weekday};
use super::clocks::{Times, as_instant, as_time};
use super::codes::{self, Dialect};
use super::formats::Format;
use super::{letters, patterns};
use crate::callable::{
    Function, Given, Kept, Told, as_text, called_as, checked_length, is_text, usage,
};
use crate::numbers::numerals::{self, Numerals};

/// Which language a format is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Language {
    /// C's codes.
    C,
    /// PostgreSQL's patterns, or chrono's codes where there is a `%`.
    Postgres,
    /// Java's patterns, or MySQL's codes where there is a `%`.
    Java,
    /// ClickHouse's codes.
    ClickHouse,
}

impl Language {
    pub(super) fn parsed(self, format: &str) -> Result<Format> {
        checked_length(format)?;
        let has_codes = format.contains('%');
        match self {
            Language::C => codes::parsed(format, Dialect::C),
            Language::ClickHouse => codes::parsed(format, Dialect::ClickHouse),
            Language::Postgres if has_codes => codes::parsed(format, Dialect::Chrono),
            Language::Postgres => patterns::parsed(format),
            Language::Java if has_codes => codes::parsed(format, Dialect::MySql),
            Language::Java => letters::parsed(format),
        }
    }
}

/// Refuses days of what has none.
fn checked(format: &str, parsed: &Format, has_days: bool) -> Result<()> {
    match parsed.is_of_days() && !has_days {
        true => Err(usage(
            format!("a TIME has no days, which the format `{format}` asks for"),
            "a time of day is hours, minutes and seconds: '%H:%M:%S'",
        )),
        false => Ok(()),
    }
}

fn has_days(of: &DataType) -> bool {
    !matches!(of, DataType::Time32(_) | DataType::Time64(_))
}

/// Times as text.
fn shown(
    given: &Given<'_>,
    times: &ColumnarValue,
    format: usize,
    language: Language,
) -> Result<ArrayRef> {
    let times = Times::of(times)?;
    let formats = given.texts(format)?;
    let mut kept = Kept::new();
    given.written(|row, out| {
        let (Some(format), Some(time)) = (formats.at(row), times.at(row)?) else {
            return Ok(false);
        };
        let parsed = kept.of(format, |format| {
            let parsed = language.parsed(format)?;
            checked(format, &parsed, times.has_days)?;
            Ok(parsed)
        })?;
        parsed.write(time, &times, out)?;
        Ok(true)
    })
}

/// `strftime`, `date_format` and `formatDateTime`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct AsText(pub(super) Language);

impl AsText {
    /// Which argument is the format, where types do not tell: the constant that has codes, else the second.
    fn format_first(&self, types: [&DataType; 2], first: Option<&str>) -> bool {
        let takes_both = self.0 == Language::C;
        let [left, right] = types;
        let are_texts = is_text(left) && is_text(right);
        takes_both
            && is_text(left)
            && (!are_texts || first.is_some_and(|first| first.contains('%')))
    }
}

impl Function for AsText {
    fn names(&self) -> &'static [&'static str] {
        match self.0 {
            Language::C => &["strftime", "format_timestamp", "format_date"],
            Language::ClickHouse => &["formatdatetime"],
            _ => &["date_format", "format_datetime"],
        }
    }

    fn told(&self) -> Told {
        match self.0 {
            Language::C => Told {
                section: DOC_SECTION_DATETIME,
                calls: "strftime(ts, format)\nstrftime(format, ts)",
                what: "A time as text, by C's and Python's codes, `%f` being six digits of the fraction, `%g` \
                       three and `%n` nine: `strftime(TIMESTAMP '2026-11-20 08:05:00.25', '%d.%m.%Y %H:%M:%S.%g')` is \
                       `20.11.2026 08:05:00.250`.",
            },
            Language::ClickHouse => Told {
                section: DOC_SECTION_DATETIME,
                calls: "formatDateTime(ts, format)",
                what: "A time as text, by ClickHouse's codes: \
                       `formatdatetime(TIMESTAMP '2026-11-20 08:05:00', '%F %H:%i:%S')` is `2026-11-20 08:05:00`.",
            },
            _ => Told {
                section: DOC_SECTION_DATETIME,
                calls: "date_format(ts, pattern)",
                what: "A time as text, by Java's patterns (Spark's), or, where there is a `%`, by MySQL's codes: \
                       `date_format(TIMESTAMP '2026-11-20 08:05:00', 'EEE, d MMM yyyy HH:mm')` is \
                       `Fri, 20 Nov 2026 08:05`, and `date_format(DATE '2026-11-20', '%M %D')` is `November 20th`.",
            },
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [left, right] = given else { return Err(called_as(self, given)) };
        let types = match (as_text(left), as_text(right)) {
            // Which of two texts is the format is told when they are there.
            (Some(left), Some(right)) if self.0 == Language::C => Some((left, right)),
            (_, Some(format)) => as_time(left).map(|time| (time, format)),
            (Some(format), None) if self.0 == Language::C => {
                as_time(right).map(|time| (format, time))
            }
            _ => None,
        };
        let (left, right) = types.ok_or_else(|| called_as(self, given))?;
        Ok(vec![left, right])
    }

    fn gives(&self, taken: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        let text = |at: usize| {
            let constant: Option<&ScalarValue> = constants.get(at).copied().flatten();
            constant.and_then(|constant| constant.try_as_str().flatten())
        };
        if let [left, right] = taken {
            let (format, times) = match self.format_first([left, right], text(0)) {
                true => (0, right),
                false => (1, left),
            };
            if let Some(format) = text(format) {
                checked(format, &self.0.parsed(format)?, has_days(times))?;
            }
        }
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let (left, right) = (given.value(0)?, given.value(1)?);
        let types = [&left.data_type(), &right.data_type()];
        // Of two columns of text, the first value tells.
        let texts = if is_text(types[0]) { Some(given.texts(0)?) } else { None };
        let first = texts.as_ref().and_then(|texts| (0..given.rows).find_map(|row| texts.at(row)));
        let (format, times) = match self.format_first(types, first) {
            true => (0, right),
            false => (1, left),
        };
        if !is_text(&times.data_type()) {
            return shown(given, times, format, self.0);
        }
        let instant = DataType::Timestamp(TimeUnit::Microsecond, None);
        let times = match times {
            ColumnarValue::Array(array) => {
                ColumnarValue::Array(cast_with_options(array, &instant, &STRICT_CAST_OPTIONS)?)
            }
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.cast_to(&instant)?),
        };
        shown(given, &times, format, self.0)
    }
}

/// `to_char`, of times and of numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ToChar;

impl Function for ToChar {
    fn names(&self) -> &'static [&'static str] {
        &["to_char"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_DATETIME,
            calls: "to_char(x, pattern)",
            what: "A time or a number as text, by PostgreSQL's patterns, or, where there is a `%`, by the codes \
                   that `to_timestamp` takes: `to_char(TIMESTAMP '2026-11-20 08:05:00', 'Dy DD Mon YYYY HH24:MI')` is \
                   `Fri 20 Nov 2026 08:05`, and `to_char(1234567.891, 'FM9,999,999.00')` is `1,234,567.89`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [value, format] = given else { return Err(called_as(self, given)) };
        let value = as_time(value).or_else(|| numerals::as_number(value));
        match (value, as_text(format)) {
            (Some(value), Some(format)) => Ok(vec![value, format]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, taken: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        let constant = constants.get(1).copied().flatten();
        if let (Some(format), Some(of)) =
            (constant.and_then(|constant| constant.try_as_str().flatten()), taken.first())
        {
            match as_time(of) {
                Some(_) => {
                    checked(format, &Language::Postgres.parsed(format)?, has_days(of))?;
                }
                None => {
                    Numerals::parsed(format)?;
                }
            }
        }
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let value = given.value(0)?;
        match as_time(&value.data_type()) {
            Some(_) => shown(given, value, 1, Language::Postgres),
            None => numerals::shown(given),
        }
    }
}

/// `dayname` and `monthname`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum NameOf {
    Day,
    Month,
}

impl Function for NameOf {
    fn names(&self) -> &'static [&'static str] {
        match self {
            NameOf::Day => &["dayname", "day_name"],
            NameOf::Month => &["monthname", "month_name"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            NameOf::Day => (
                "dayname(ts)",
                "The name of the day of the week: `dayname(DATE '2026-11-20')` is `Friday`.",
            ),
            NameOf::Month => (
                "monthname(ts)",
                "The name of the month: `monthname(DATE '2026-11-20')` is `November`.",
            ),
        };
        Told { section: DOC_SECTION_DATETIME, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => Ok(vec![as_instant(of).ok_or_else(|| called_as(self, given))?]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let times = Times::of(given.value(0)?)?;
        let mut names = StringBuilder::with_capacity(given.rows, given.rows * 9);
        for row in 0..given.rows {
            let name = times.at(row)?.map(|shown| match self {
                NameOf::Day => WEEKDAYS[weekday(shown.days) as usize],
                NameOf::Month => MONTHS[shown.date().month as usize - 1],
            });
            names.append_option(name);
        }
        Ok(Arc::new(names.finish()))
    }
}
