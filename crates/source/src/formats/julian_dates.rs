//! Conversion of dates that Spark and Hive counted by the Julian calendar.
//!
//! Spark before 3.0, later releases in mode `LEGACY`, and Hive with `writer.date.proleptic` = `false` write
//! days before 1582-10-15 by the Julian calendar, and state that in the file's metadata. Parquet and Avro
//! mean the proleptic Gregorian calendar. Such a day is read as the date that its writer was given:
//! 0001-01-01 is stored as day -719164, which is 0000-12-30. February 29 of a year without one, such as 1500,
//! becomes March 1, as in Spark. The days of timestamps are those of UTC.
//!
//! Source of the keys: Spark's `DataSourceUtils.datetimeRebaseSpec` and `int96RebaseSpec`, Hive's
//! `DataWritableWriteSupport`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, make_array};
use arrow::array::{AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Date32Type, Int64Type, TimeUnit};
use arrow::error::ArrowError;

const SPARK_VERSION_KEY: &str = "org.apache.spark.version";
const SPARK_LEGACY_DATES_KEY: &str = "org.apache.spark.legacyDateTime";
const SPARK_LEGACY_INT96_KEY: &str = "org.apache.spark.legacyINT96";
const HIVE_PROLEPTIC_KEY: &str = "writer.date.proleptic";

/// 1582-10-15, the first day of the Gregorian calendar.
const FIRST_GREGORIAN_DAY: i64 = -141_427;
/// March 1 of the Julian year 0, in days since 1970-01-01.
const JULIAN_YEAR_0_DAY: i64 = -719_470;
const SECONDS_PER_DAY: i64 = 86_400;

/// The calendar of a file's dates, as its metadata states it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct JulianCalendarFlags {
    /// True if dates and timestamps follow the Julian calendar.
    pub(super) has_julian_dates: bool,
    /// True if Parquet's `INT96` timestamps do.
    pub(super) has_julian_int96: bool,
}

impl JulianCalendarFlags {
    /// Detects the calendar from a file's metadata.
    pub(super) fn from_metadata<'a>(metadata: impl Fn(&str) -> Option<&'a str>) -> Self {
        let is_hive =
            metadata(HIVE_PROLEPTIC_KEY).is_some_and(|it| it.eq_ignore_ascii_case("false"));
        let Some(version) = metadata(SPARK_VERSION_KEY) else {
            return Self { has_julian_dates: is_hive, has_julian_int96: false };
        };
        let is_before = |minor: u32| parse_release(version).is_some_and(|own| own < (3, minor));
        Self {
            has_julian_dates: is_hive || is_before(0) || metadata(SPARK_LEGACY_DATES_KEY).is_some(),
            has_julian_int96: is_before(1) || metadata(SPARK_LEGACY_INT96_KEY).is_some(),
        }
    }
}

/// Parses the major and minor number of a version such as `3.5.1`.
fn parse_release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Returns whether a day since 1970-01-01 has the same date in both calendars.
pub(super) fn is_gregorian_day(day: i64) -> bool {
    day >= FIRST_GREGORIAN_DAY
}

/// Returns the day whose proleptic Gregorian date equals the Julian date of `day`.
fn to_gregorian_day(day: i64) -> i64 {
    if is_gregorian_day(day) {
        return day;
    }
    // Years begin in March, so that the leap day is their last.
    let days = day.saturating_sub(JULIAN_YEAR_0_DAY);
    let of_cycle = days.rem_euclid(1_461);
    let year = days.div_euclid(1_461) * 4 + (of_cycle - of_cycle / 1_460) / 365;
    day - (year.div_euclid(100) - year.div_euclid(400) - 2)
}

/// Converts the dates and timestamps of a batch, at any depth.
///
/// # Errors
/// Arrow errors from rebuilding the columns.
pub(super) fn convert_batch_to_gregorian(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns =
        batch.columns().iter().map(convert_to_gregorian).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

/// Converts dates and timestamps, at any depth.
///
/// # Errors
/// Arrow errors from rebuilding the array.
pub(super) fn convert_to_gregorian(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match array.data_type() {
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>();
            if days.values().iter().all(|day| is_gregorian_day(i64::from(*day))) {
                return Ok(Arc::clone(array));
            }
            let moved = |day: i32| i32::try_from(to_gregorian_day(i64::from(day))).unwrap_or(day);
            Arc::new(days.unary::<_, Date32Type>(moved))
        }
        DataType::Timestamp(unit, _) => {
            let of_day = units_per_day(*unit);
            let data = array.to_data().into_builder().data_type(DataType::Int64).build()?;
            let instants = Int64Array::from(data);
            let is_same = |instant: &i64| is_gregorian_day(instant.div_euclid(of_day));
            if instants.values().iter().all(is_same) {
                return Ok(Arc::clone(array));
            }
            let moved = |instant: i64| {
                let day = instant.div_euclid(of_day);
                let moved_by = (to_gregorian_day(day) - day).saturating_mul(of_day);
                instant.saturating_add(moved_by)
            };
            let moved: PrimitiveArray<Int64Type> = instants.unary(moved);
            let own = array.data_type().clone();
            make_array(moved.into_data().into_builder().data_type(own).build()?)
        }
        data_type if data_type.is_nested() || matches!(data_type, DataType::Dictionary(..)) => {
            let data = array.to_data();
            let children = data.child_data().iter();
            let children = children
                .map(|child| Ok(convert_to_gregorian(&make_array(child.clone()))?.to_data()));
            let children = children.collect::<Result<Vec<_>, ArrowError>>()?;
            make_array(data.into_builder().child_data(children).build()?)
        }
        _ => Arc::clone(array),
    })
}

fn units_per_day(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => SECONDS_PER_DAY,
        TimeUnit::Millisecond => SECONDS_PER_DAY * 1_000,
        TimeUnit::Microsecond => SECONDS_PER_DAY * 1_000_000,
        TimeUnit::Nanosecond => SECONDS_PER_DAY * 1_000_000_000,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, StructArray, TimestampMicrosecondArray};
    use arrow::datatypes::{Field, TimestampMicrosecondType};
    use tidemill_base::calendar::civil_from_days;

    use super::*;

    #[test]
    fn gregorian_days_have_the_date_of_the_julian_calendar() {
        for (day, date) in [
            (-141_427, (1582, 10, 15)),
            (-141_428, (1582, 10, 4)),
            (-719_164, (1, 1, 1)),
            // Julian 1500-02-28, 1500-02-29, which the Gregorian calendar lacks, and 1500-03-01.
            (-171_597, (1500, 2, 28)),
            (-171_596, (1500, 3, 1)),
            (-171_595, (1500, 3, 1)),
            (-719_470, (0, 3, 1)),
            (-719_471, (0, 2, 29)),
            (0, (1970, 1, 1)),
        ] {
            assert_eq!(civil_from_days(to_gregorian_day(day)), date, "{day}");
        }
        let days = -800_000..-141_400;
        assert!(days.clone().all(|day| to_gregorian_day(day) <= to_gregorian_day(day + 1)));
    }

    #[test]
    fn metadata_names_the_calendar() {
        let found = |entries: &[(&str, &'static str)]| {
            let entries: Vec<_> = entries.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
            let JulianCalendarFlags { has_julian_dates: dates, has_julian_int96: int96 } =
                JulianCalendarFlags::from_metadata(|key| {
                    entries.iter().find(|(own, _)| own == key).map(|(_, value)| *value)
                });
            (dates, int96)
        };
        assert_eq!(found(&[]), (false, false));
        assert_eq!(found(&[(SPARK_VERSION_KEY, "2.4.8")]), (true, true));
        assert_eq!(found(&[(SPARK_VERSION_KEY, "3.0.3")]), (false, true));
        assert_eq!(found(&[(SPARK_VERSION_KEY, "3.5.1")]), (false, false));
        assert_eq!(
            found(&[(SPARK_VERSION_KEY, "3.5.1"), (SPARK_LEGACY_DATES_KEY, "")]),
            (true, false)
        );
        assert_eq!(
            found(&[(SPARK_VERSION_KEY, "4.0.0"), (SPARK_LEGACY_INT96_KEY, "")]),
            (false, true)
        );
        assert_eq!(found(&[(SPARK_LEGACY_DATES_KEY, "")]), (false, false));
        assert_eq!(found(&[(HIVE_PROLEPTIC_KEY, "false")]), (true, false));
        assert_eq!(found(&[(HIVE_PROLEPTIC_KEY, "true")]), (false, false));
    }

    #[test]
    fn nested_dates_and_timestamps_are_moved() {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(-719_164), None, Some(0)]));
        let micros = |day: i64| day * 86_400_000_000 + 5;
        let instants = vec![Some(micros(-719_164)), None, Some(micros(0))];
        let instants = TimestampMicrosecondArray::from(instants).with_timezone("UTC");
        let instants: ArrayRef = Arc::new(instants);
        let fields = [("d", &days), ("t", &instants)];
        let fields = fields.map(|(name, array)| {
            (Arc::new(Field::new(name, array.data_type().clone(), true)), Arc::clone(array))
        });
        let structs: ArrayRef = Arc::new(StructArray::from(fields.to_vec()));
        let moved = convert_to_gregorian(&structs).unwrap();
        let moved = moved.as_struct();
        let found: Vec<_> = moved.column(0).as_primitive::<Date32Type>().iter().collect();
        assert_eq!(found, [Some(-719_162), None, Some(0)]);
        let instants = moved.column(1).as_primitive::<TimestampMicrosecondType>();
        let expected = [Some(micros(-719_162)), None, Some(micros(0))];
        assert_eq!(instants.iter().collect::<Vec<_>>(), expected);
        assert_eq!(instants.timezone(), Some("UTC"));
    }
}
