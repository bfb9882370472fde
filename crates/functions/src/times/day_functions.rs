//! Days derived from a day: the last of the month, the next weekday, days or months later.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array};
use arrow::datatypes::{DataType, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;

use super::calendar::{WEEKDAY_NAMES, days_from_months, months_since_year_zero, weekday};
use super::local_times::{TimeArgument, instant_cast_type, time_out_of_range_error};
use super::time_differences::day_shift_types;
use crate::row_function::{
    ArgumentBatch, FunctionDocs, LastTextCache, RowFunction, text_cast_type, usage_error,
    wrong_arguments_error,
};

fn to_date32(days: i64) -> Result<i32> {
    i32::try_from(days).map_err(|_| time_out_of_range_error())
}

/// Adds a number of days to each day, or subtracts it if `sign` is -1. The arguments are a day and a number.
pub(super) fn add_days(given: &ArgumentBatch<'_>, sign: i64) -> Result<ArrayRef> {
    let times = TimeArgument::from_value(given.argument(0)?)?;
    let (counts, rows) = given.cast_argument(1, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let days = (0..given.row_count).map(|row| {
        let at = rows.value_index(row);
        let count = counts.is_valid(at).then(|| counts.value(at));
        let (Some(shown), Some(count)) = (times.local_time(row)?, count) else { return Ok(None) };
        let count = count.checked_mul(sign).ok_or_else(time_out_of_range_error)?;
        to_date32(shown.days.checked_add(count).ok_or_else(time_out_of_range_error)?).map(Some)
    });
    Ok(Arc::new(days.collect::<Result<Date32Array>>()?))
}

/// Functions that derive a day from a day.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum DayFunction {
    /// `last_day`
    LastOfMonth,
    /// `next_day`
    NextWeekday,
    /// `add_months`
    AddMonths,
    /// `date_add`, for a day and a number.
    AddDays,
}

impl RowFunction for DayFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            DayFunction::LastOfMonth => &["last_day", "eomonth", "tolastdayofmonth"],
            DayFunction::NextWeekday => &["next_day"],
            DayFunction::AddMonths => &["add_months"],
            DayFunction::AddDays => &["date_add", "adddate"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            DayFunction::LastOfMonth => (
                "last_day(ts)",
                "The last day of the month, a DATE: `last_day(DATE '2028-02-10')` is `2028-02-29`.",
            ),
            DayFunction::NextWeekday => (
                "next_day(ts, weekday)",
                "The first day after a day that is of a weekday, a DATE: `next_day(DATE '2026-11-20', 'Mon')` is \
                 `2026-11-23`.",
            ),
            DayFunction::AddMonths => (
                "add_months(ts, n)",
                "The same day so many months later, or the month's last where it has no such day, a DATE: \
                 `add_months(DATE '2026-01-31', 1)` is `2026-02-28`.",
            ),
            DayFunction::AddDays => (
                "date_add(ts, n)",
                "The day so many days later, a DATE: `date_add(DATE '2026-02-28', 1)` is `2026-03-01`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_DATETIME, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let types = match (self, given) {
            (DayFunction::LastOfMonth, [of]) => instant_cast_type(of).map(|of| vec![of]),
            (DayFunction::NextWeekday, [of, name]) => {
                instant_cast_type(of).zip(text_cast_type(name)).map(|(of, name)| vec![of, name])
            }
            (DayFunction::AddMonths | DayFunction::AddDays, [of, count]) => {
                day_shift_types(of, count)
            }
            _ => None,
        };
        types.ok_or_else(|| wrong_arguments_error(self, given))
    }

    fn return_type(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        let name = constants.get(1).copied().flatten();
        if let (DayFunction::NextWeekday, Some(Some(name))) =
            (self, name.map(ScalarValue::try_as_str))
        {
            name.map(parse_weekday).transpose()?;
        }
        Ok(DataType::Date32)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let times = TimeArgument::from_value(given.argument(0)?)?;
        match self {
            DayFunction::AddDays => add_days(given, 1),
            DayFunction::LastOfMonth => {
                let days = (0..given.row_count).map(|row| {
                    let Some(shown) = times.local_time(row)? else { return Ok(None) };
                    to_date32(days_from_months(months_since_year_zero(shown.date()), 31)).map(Some)
                });
                Ok(Arc::new(days.collect::<Result<Date32Array>>()?))
            }
            DayFunction::NextWeekday => {
                let names = given.text_argument(1)?;
                let mut kept = LastTextCache::new();
                let days = (0..given.row_count).map(|row| {
                    let (Some(shown), Some(name)) = (times.local_time(row)?, names.get(row)) else {
                        return Ok(None);
                    };
                    let wanted = *kept.get_or_parse(name, parse_weekday)?;
                    let ahead = (wanted + 6 - weekday(shown.days)) % 7 + 1;
                    to_date32(shown.days + i64::from(ahead)).map(Some)
                });
                Ok(Arc::new(days.collect::<Result<Date32Array>>()?))
            }
            DayFunction::AddMonths => {
                let (counts, rows) = given.cast_argument(1, &DataType::Int64)?;
                let counts = counts.as_primitive::<Int64Type>();
                let days = (0..given.row_count).map(|row| {
                    let at = rows.value_index(row);
                    let count = counts.is_valid(at).then(|| counts.value(at));
                    let (Some(shown), Some(count)) = (times.local_time(row)?, count) else {
                        return Ok(None);
                    };
                    let count =
                        i64::from(i32::try_from(count).map_err(|_| time_out_of_range_error())?);
                    let date = shown.date();
                    to_date32(days_from_months(months_since_year_zero(date) + count, date.day))
                        .map(Some)
                });
                Ok(Arc::new(days.collect::<Result<Date32Array>>()?))
            }
        }
    }
}

/// Parses the name of a weekday: its first two or three letters, or all.
fn parse_weekday(name: &str) -> Result<u32> {
    let lower = name.trim().to_ascii_lowercase();
    let is_of = |day: &str| {
        let day = day.to_ascii_lowercase();
        lower == day || lower == day[..2] || lower == day[..3]
    };
    match WEEKDAY_NAMES.iter().position(|day| is_of(day)) {
        Some(at) => Ok(at as u32),
        None => Err(usage_error(
            format!("`{name}` is no day of the week"),
            "days are Monday, Mon or Mo, and so on",
        )),
    }
}
