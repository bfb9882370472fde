//! Days made of days: the month's last, the next of a weekday, so many days or months later.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array};
use arrow::datatypes::{DataType, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;

use super::calendar::{WEEKDAYS, days_of_month, months_of, weekday};
use super::clocks::{Times, as_instant, beyond};
use super::differences::days_moved;
use crate::callable::{Function, Given, Kept, Told, as_text, called_as, usage};

fn day(days: i64) -> Result<i32> {
    i32::try_from(days).map_err(|_| beyond())
}

/// So many days before or after a day: arguments are a day and a number.
pub(super) fn moved(given: &Given<'_>, sign: i64) -> Result<ArrayRef> {
    let times = Times::of(given.value(0)?)?;
    let (counts, rows) = given.cast(1, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let days = (0..given.rows).map(|row| {
        let at = rows.at(row);
        let count = counts.is_valid(at).then(|| counts.value(at));
        let (Some(shown), Some(count)) = (times.at(row)?, count) else { return Ok(None) };
        let count = count.checked_mul(sign).ok_or_else(beyond)?;
        day(shown.days.checked_add(count).ok_or_else(beyond)?).map(Some)
    });
    Ok(Arc::new(days.collect::<Result<Date32Array>>()?))
}

/// What is made of a day.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum DayOf {
    /// `last_day`
    LastOfMonth,
    /// `next_day`
    NextWeekday,
    /// `add_months`
    MonthsLater,
    /// `date_add` of a day and a number.
    DaysLater,
}

impl Function for DayOf {
    fn names(&self) -> &'static [&'static str] {
        match self {
            DayOf::LastOfMonth => &["last_day", "eomonth", "tolastdayofmonth"],
            DayOf::NextWeekday => &["next_day"],
            DayOf::MonthsLater => &["add_months"],
            DayOf::DaysLater => &["date_add", "adddate"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            DayOf::LastOfMonth => (
                "last_day(ts)",
                "The last day of the month, a DATE: `last_day(DATE '2028-02-10')` is `2028-02-29`.",
            ),
            DayOf::NextWeekday => (
                "next_day(ts, weekday)",
                "The first day after a day that is of a weekday, a DATE: `next_day(DATE '2026-11-20', 'Mon')` is \
                 `2026-11-23`.",
            ),
            DayOf::MonthsLater => (
                "add_months(ts, n)",
                "The same day so many months later, or the month's last where it has no such day, a DATE: \
                 `add_months(DATE '2026-01-31', 1)` is `2026-02-28`.",
            ),
            DayOf::DaysLater => (
                "date_add(ts, n)",
                "The day so many days later, a DATE: `date_add(DATE '2026-02-28', 1)` is `2026-03-01`.",
            ),
        };
        Told { section: DOC_SECTION_DATETIME, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let types = match (self, given) {
            (DayOf::LastOfMonth, [of]) => as_instant(of).map(|of| vec![of]),
            (DayOf::NextWeekday, [of, name]) => {
                as_instant(of).zip(as_text(name)).map(|(of, name)| vec![of, name])
            }
            (DayOf::MonthsLater | DayOf::DaysLater, [of, count]) => days_moved(of, count),
            _ => None,
        };
        types.ok_or_else(|| called_as(self, given))
    }

    fn gives(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        let name = constants.get(1).copied().flatten();
        if let (DayOf::NextWeekday, Some(Some(name))) = (self, name.map(ScalarValue::try_as_str)) {
            name.map(weekday_named).transpose()?;
        }
        Ok(DataType::Date32)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let times = Times::of(given.value(0)?)?;
        match self {
            DayOf::DaysLater => moved(given, 1),
            DayOf::LastOfMonth => {
                let days = (0..given.rows).map(|row| {
                    let Some(shown) = times.at(row)? else { return Ok(None) };
                    day(days_of_month(months_of(shown.date()), 31)).map(Some)
                });
                Ok(Arc::new(days.collect::<Result<Date32Array>>()?))
            }
            DayOf::NextWeekday => {
                let names = given.texts(1)?;
                let mut kept = Kept::new();
                let days = (0..given.rows).map(|row| {
                    let (Some(shown), Some(name)) = (times.at(row)?, names.at(row)) else {
                        return Ok(None);
                    };
                    let wanted = *kept.of(name, weekday_named)?;
                    let ahead = (wanted + 6 - weekday(shown.days)) % 7 + 1;
                    day(shown.days + i64::from(ahead)).map(Some)
                });
                Ok(Arc::new(days.collect::<Result<Date32Array>>()?))
            }
            DayOf::MonthsLater => {
                let (counts, rows) = given.cast(1, &DataType::Int64)?;
                let counts = counts.as_primitive::<Int64Type>();
                let days = (0..given.rows).map(|row| {
                    let at = rows.at(row);
                    let count = counts.is_valid(at).then(|| counts.value(at));
                    let (Some(shown), Some(count)) = (times.at(row)?, count) else {
                        return Ok(None);
                    };
                    let count = i64::from(i32::try_from(count).map_err(|_| beyond())?);
                    let date = shown.date();
                    day(days_of_month(months_of(date) + count, date.day)).map(Some)
                });
                Ok(Arc::new(days.collect::<Result<Date32Array>>()?))
            }
        }
    }
}

/// The weekday of a name: two letters of it, three, or all.
fn weekday_named(name: &str) -> Result<u32> {
    let lower = name.trim().to_ascii_lowercase();
    let is_of = |day: &str| {
        let day = day.to_ascii_lowercase();
        lower == day || lower == day[..2] || lower == day[..3]
    };
    match WEEKDAYS.iter().position(|day| is_of(day)) {
        Some(at) => Ok(at as u32),
        None => Err(usage(
            format!("`{name}` is no day of the week"),
            "days are Monday, Mon or Mo, and so on",
        )),
    }
}
