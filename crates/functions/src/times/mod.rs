//! Functions of instants, dates and spans.
//!
//! - `calendar`: which date is a day, and which week is it in? `clocks`: what do clocks show?
//! - `formats`: how is a time written and read, part by part? `codes`, `patterns`, `letters`: which parts does
//!   a format have that is written as C, PostgreSQL or Java have them?
//! - `written`, `read`: times as text, and text as times.
//! - `differences`: how far are two times apart? `days`: which day is it then? `buckets`: in which bucket is a
//!   time? `bins`: round bounds of ranges. `epochs`: which number is it? `parts`: fields of times and intervals.

mod bins;
mod buckets;
mod calendar;
mod clocks;
mod codes;
mod days;
mod differences;
mod epochs;
mod formats;
mod letters;
mod parts;
mod patterns;
mod read;
#[cfg(test)]
mod tests;
mod written;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_expr::ScalarUDF;

pub(crate) use bins::round_time_bins;
pub(crate) use parts::is_date_field;
pub(crate) use read::{reads_instants, with_patterns};

use crate::callable::Function;

/// Returns `date_field`.
pub(crate) fn date_field() -> ScalarUDF {
    parts::DateParts::Field.registered()
}

/// Returns whether values of a type are days or instants.
pub(crate) fn has_days(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
}

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    use days::DayOf;
    use differences::Difference;
    use epochs::{Epoch, Made};
    use written::{AsText, Language, NameOf};
    const UNITS: [TimeUnit; 4] =
        [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    let mut all = vec![
        AsText(Language::C).registered(),
        AsText(Language::Java).registered(),
        AsText(Language::ClickHouse).registered(),
        written::ToChar.registered(),
        NameOf::Day.registered(),
        NameOf::Month.registered(),
        read::Strptime::Sure.registered(),
        read::Strptime::Tried.registered(),
        read::Strptime::OfJava.registered(),
        Difference::Crossed.registered(),
        Difference::Whole.registered(),
        differences::Age.registered(),
        differences::MonthsBetween.registered(),
        DayOf::LastOfMonth.registered(),
        DayOf::NextWeekday.registered(),
        DayOf::MonthsLater.registered(),
        DayOf::DaysLater.registered(),
        buckets::TimeBucket.registered(),
        Epoch::Seconds.registered(),
        Epoch::Unix.registered(),
        Epoch::Days.registered(),
        Made::Timestamp.registered(),
        Made::Day.registered(),
        Made::Instant.registered(),
        epochs::FromUnixtime.registered(),
        epochs::Julian.registered(),
    ];
    all.extend(parts::DateParts::ALL.map(Function::registered));
    for unit in UNITS {
        if unit != TimeUnit::Second {
            all.push(Epoch::Whole(unit).registered());
        }
        all.push(Epoch::Of(unit).registered());
        all.push(Made::Of(unit).registered());
    }
    all
}
