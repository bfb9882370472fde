//! Functions of timestamps, dates and intervals.
//!
//! - `calendar`: dates and weeks of days since 1970. `local_times`: times as the clocks of a zone show them.
//! - `datetime_format`: parsed formats that write and parse times. `percent_codes`, `postgres_patterns`,
//!   `java_patterns`: parsers of formats as C, PostgreSQL and Java write them.
//! - `time_to_text`, `text_to_time`: times as text, and text as times.
//! - `time_differences`: distances of two times. `day_functions`: days derived from a day. `time_bucket`: the
//!   bucket of a time. `time_bins`: round bounds of ranges. `epoch_functions`: times as numbers.
//!   `date_fields`: fields of times and intervals.

mod calendar;
mod date_fields;
mod datetime_format;
mod day_functions;
mod epoch_functions;
mod java_patterns;
mod local_times;
mod percent_codes;
mod postgres_patterns;
#[cfg(test)]
mod tests;
mod text_to_time;
mod time_bins;
mod time_bucket;
mod time_differences;
mod time_to_text;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_expr::ScalarUDF;

pub(crate) use date_fields::is_date_field_name;
pub(crate) use text_to_time::{is_instant_format, with_postgres_patterns};
pub(crate) use time_bins::round_time_bins;

use crate::row_function::RowFunction;

/// Returns the function `date_field`.
pub(crate) fn date_field_udf() -> ScalarUDF {
    date_fields::DatePartsFunction::SingleField.into_udf()
}

/// Returns whether a type is a date or a timestamp.
pub(crate) fn is_date_or_timestamp(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
}

/// Returns all functions of this module.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    use day_functions::DayFunction;
    use epoch_functions::{EpochFunction, MakeTimeFunction};
    use time_differences::DifferenceFunction;
    use time_to_text::{DateNameFunction, FormatLanguage, FormatTimeFunction};
    const UNITS: [TimeUnit; 4] =
        [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    let mut all = vec![
        FormatTimeFunction(FormatLanguage::C).into_udf(),
        FormatTimeFunction(FormatLanguage::Java).into_udf(),
        FormatTimeFunction(FormatLanguage::ClickHouse).into_udf(),
        time_to_text::ToCharFunction.into_udf(),
        DateNameFunction::Weekday.into_udf(),
        DateNameFunction::Month.into_udf(),
        text_to_time::StrptimeFunction::Strptime.into_udf(),
        text_to_time::StrptimeFunction::TryStrptime.into_udf(),
        text_to_time::StrptimeFunction::DateParse.into_udf(),
        DifferenceFunction::DateDiff.into_udf(),
        DifferenceFunction::DateSub.into_udf(),
        time_differences::AgeFunction.into_udf(),
        time_differences::MonthsBetweenFunction.into_udf(),
        DayFunction::LastOfMonth.into_udf(),
        DayFunction::NextWeekday.into_udf(),
        DayFunction::AddMonths.into_udf(),
        DayFunction::AddDays.into_udf(),
        time_bucket::TimeBucketFunction.into_udf(),
        EpochFunction::Seconds.into_udf(),
        EpochFunction::UnixTimestamp.into_udf(),
        EpochFunction::UnixDate.into_udf(),
        MakeTimeFunction::MakeTimestamp.into_udf(),
        MakeTimeFunction::DateFromUnixDate.into_udf(),
        MakeTimeFunction::MakeTimestamptz.into_udf(),
        epoch_functions::FromUnixtimeFunction.into_udf(),
        epoch_functions::JulianDayFunction.into_udf(),
    ];
    all.extend(date_fields::DatePartsFunction::ALL.map(RowFunction::into_udf));
    for unit in UNITS {
        if unit != TimeUnit::Second {
            all.push(EpochFunction::EpochUnits(unit).into_udf());
        }
        all.push(EpochFunction::UnixUnits(unit).into_udf());
        all.push(MakeTimeFunction::TimestampFromUnits(unit).into_udf());
    }
    all
}
