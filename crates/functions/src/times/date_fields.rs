//! Fields of times and intervals: `date_field` returns one of them, `date_parts` several as a struct.
//!
//! Years are astronomical: year 0 precedes year 1. Fields of a time with a zone are those of its local time;
//! `epoch` is that of the instant. The fields of an interval have its sign. In `epoch`, a year of an interval
//! has 365.25 days and a month 30.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, IntervalMonthDayNanoArray, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast_with_options;
use arrow::datatypes::{
    DataType, Field, Fields, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::ColumnarValue;
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use super::calendar::{day_of_year, iso_week, weekday};
use super::local_times::{
    DAY_NANOS, DAY_SECONDS, LocalTime, SECOND_NANOS, TimeArgument, time_cast_type, units_per_second,
};
use crate::row_function::{
    ArgumentBatch, FunctionDocs, LastTextCache, RowFunction, RowMapping, argument_array,
    internal_error, text_cast_type, usage_error, wrong_arguments_error,
};

/// A field of a time or of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DateField {
    Millennium,
    Century,
    Decade,
    Year,
    IsoYear,
    Era,
    Quarter,
    Month,
    Week,
    YearWeek,
    Day,
    DayOfYear,
    DayOfWeek,
    IsoDayOfWeek,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    Zone,
    ZoneHour,
    ZoneMinute,
    Epoch,
    Julian,
}

/// The names of the fields.
const DATE_FIELD_NAMES: [(DateField, &[&str]); 25] = [
    (
        DateField::Millennium,
        &["millennium", "millennia", "millenniums", "millenium", "mil", "mils"],
    ),
    (DateField::Century, &["century", "centuries", "cent", "c"]),
    (DateField::Decade, &["decade", "decades", "dec", "decs"]),
    (DateField::Year, &["year", "years", "yr", "yrs", "y"]),
    (DateField::IsoYear, &["isoyear"]),
    (DateField::Era, &["era"]),
    (DateField::Quarter, &["quarter", "quarters", "qtr"]),
    (DateField::Month, &["month", "months", "mon", "mons"]),
    (DateField::Week, &["week", "weeks", "w", "weekofyear", "isoweek"]),
    (DateField::YearWeek, &["yearweek"]),
    (DateField::Day, &["day", "days", "d", "dayofmonth"]),
    (DateField::DayOfYear, &["doy", "dayofyear"]),
    (DateField::DayOfWeek, &["dow", "dayofweek", "weekday"]),
    (DateField::IsoDayOfWeek, &["isodow"]),
    (DateField::Hour, &["hour", "hours", "hr", "hrs", "h"]),
    (DateField::Minute, &["minute", "minutes", "min", "mins", "m"]),
    (DateField::Second, &["second", "seconds", "sec", "secs", "s"]),
    (DateField::Millisecond, &["millisecond", "milliseconds", "msec", "msecs", "ms"]),
    (DateField::Microsecond, &["microsecond", "microseconds", "usec", "usecs", "us"]),
    (DateField::Nanosecond, &["nanosecond", "nanoseconds", "nsec", "nsecs", "ns"]),
    (DateField::Zone, &["timezone"]),
    (DateField::ZoneHour, &["timezone_hour"]),
    (DateField::ZoneMinute, &["timezone_minute"]),
    (DateField::Epoch, &["epoch"]),
    (DateField::Julian, &["julian"]),
];

/// Returns whether a name is a field that `date_field` has and DataFusion's `date_part` does not.
pub(crate) fn is_date_field_name(name: &str) -> bool {
    let name = name.to_lowercase();
    let field = DATE_FIELD_NAMES.iter().find(|(_, names)| names.contains(&name.as_str()));
    field.is_some_and(|(field, _)| field.is_missing_in_date_part(&name))
}

/// The kind of a value that has fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeValueKind {
    Instant,
    TimeOfDay,
    Interval,
}

impl TimeValueKind {
    fn from_type(value: &DataType) -> Self {
        match value {
            DataType::Interval(_) | DataType::Duration(_) => TimeValueKind::Interval,
            DataType::Time32(_) | DataType::Time64(_) => TimeValueKind::TimeOfDay,
            _ => TimeValueKind::Instant,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            TimeValueKind::Instant => "a time",
            TimeValueKind::TimeOfDay => "a TIME",
            TimeValueKind::Interval => "an interval",
        }
    }

    fn has_field(self, field: DateField) -> bool {
        use DateField as F;
        let is_of_clock = matches!(
            field,
            F::Hour
                | F::Minute
                | F::Second
                | F::Millisecond
                | F::Microsecond
                | F::Nanosecond
                | F::Epoch
        );
        match self {
            TimeValueKind::Instant => true,
            TimeValueKind::TimeOfDay => {
                is_of_clock || matches!(field, F::Zone | F::ZoneHour | F::ZoneMinute)
            }
            TimeValueKind::Interval => {
                let is_of_days = matches!(
                    field,
                    F::Millennium
                        | F::Century
                        | F::Decade
                        | F::Year
                        | F::Quarter
                        | F::Month
                        | F::Week
                        | F::Day
                );
                is_of_clock || is_of_days
            }
        }
    }
}

impl DateField {
    /// Returns the field of a name.
    ///
    /// # Errors
    /// Fails if this kind of value has no such field.
    fn from_name(name: &str, kind: TimeValueKind) -> Result<Self> {
        let lower = name.to_lowercase();
        let found = DATE_FIELD_NAMES.iter().find(|(_, names)| names.contains(&lower.as_str()));
        match found.map(|(field, _)| *field).filter(|field| kind.has_field(*field)) {
            Some(field) => Ok(field),
            None => {
                let fields = DATE_FIELD_NAMES.iter().filter(|(field, _)| kind.has_field(*field));
                let fields: Vec<&str> = fields.map(|(_, names)| names[0]).collect();
                Err(usage_error(
                    format!("{} has no field `{lower}`", kind.noun()),
                    format!("the fields are {}", fields.join(", ")),
                ))
            }
        }
    }

    /// Returns whether DataFusion's `date_part` lacks the field or this name of it.
    fn is_missing_in_date_part(self, name: &str) -> bool {
        use DateField as F;
        match self {
            F::Millennium | F::Century | F::Decade | F::Era | F::YearWeek | F::Julian => true,
            F::Zone | F::ZoneHour | F::ZoneMinute => true,
            F::DayOfYear => name != "doy",
            F::DayOfWeek => name != "dow",
            _ => false,
        }
    }

    fn is_fractional(self) -> bool {
        matches!(self, DateField::Epoch | DateField::Julian)
    }

    fn data_type(self) -> DataType {
        match self.is_fractional() {
            true => DataType::Float64,
            false => DataType::Int64,
        }
    }

    /// Returns the value of an integer field of a local time.
    fn value_of_time(self, shown: LocalTime) -> i64 {
        let year = || shown.date().year;
        // The first century begins with the year 1, and the one before it ends with the year 0.
        let count_of = |years: i64| match year() {
            year if year > 0 => (year - 1) / years + 1,
            year => year / years - 1,
        };
        let within_minute = shown.nanos % (60 * SECOND_NANOS);
        match self {
            DateField::Millennium => count_of(1_000),
            DateField::Century => count_of(100),
            DateField::Decade => year() / 10,
            DateField::Year => year(),
            DateField::IsoYear => iso_week(shown.days).0,
            DateField::Era => i64::from(year() > 0),
            DateField::Quarter => i64::from(shown.date().month - 1) / 3 + 1,
            DateField::Month => shown.date().month.into(),
            DateField::Week => iso_week(shown.days).1.into(),
            DateField::YearWeek => {
                let (year, week) = iso_week(shown.days);
                let week = i64::from(week);
                year * 100 + if year > 0 { week } else { -week }
            }
            DateField::Day => shown.date().day.into(),
            DateField::DayOfYear => day_of_year(shown.days).into(),
            DateField::DayOfWeek => i64::from((weekday(shown.days) + 1) % 7),
            DateField::IsoDayOfWeek => i64::from(weekday(shown.days) + 1),
            DateField::Hour => shown.nanos / (3_600 * SECOND_NANOS),
            DateField::Minute => shown.nanos / (60 * SECOND_NANOS) % 60,
            DateField::Second => within_minute / SECOND_NANOS,
            DateField::Millisecond => within_minute / 1_000_000,
            DateField::Microsecond => within_minute / 1_000,
            DateField::Nanosecond => within_minute,
            DateField::Zone => shown.utc_offset_seconds,
            DateField::ZoneHour => shown.utc_offset_seconds / 3_600,
            DateField::ZoneMinute => shown.utc_offset_seconds % 3_600 / 60,
            DateField::Epoch | DateField::Julian => 0,
        }
    }

    /// Returns the value of a fractional field of a time.
    fn fraction_of_time(self, shown: LocalTime, instant: LocalTime) -> f64 {
        match self {
            DateField::Julian => {
                (shown.days + 2_440_588) as f64 + shown.nanos as f64 / DAY_NANOS as f64
            }
            _ => nanos_to_seconds(instant.total_nanos()),
        }
    }

    /// Returns the value of an integer field of an interval.
    fn value_of_interval(self, span: &SignedIntervalParts) -> i64 {
        let within_minute = span.nanos % (60 * SECOND_NANOS);
        match self {
            DateField::Millennium => span.months / 12_000,
            DateField::Century => span.months / 1_200,
            DateField::Decade => span.months / 120,
            DateField::Year => span.months / 12,
            DateField::Quarter => span.months % 12 / 3 + 1,
            DateField::Month => span.months % 12,
            DateField::Week => span.days / 7,
            DateField::Day => span.days,
            DateField::Hour => span.nanos / (3_600 * SECOND_NANOS),
            DateField::Minute => span.nanos / (60 * SECOND_NANOS) % 60,
            DateField::Second => within_minute / SECOND_NANOS,
            DateField::Millisecond => within_minute / 1_000_000,
            DateField::Microsecond => within_minute / 1_000,
            DateField::Nanosecond => within_minute,
            _ => 0,
        }
    }
}

/// Returns nanoseconds as seconds, rounded once if the number is exactly representable as a DOUBLE.
fn nanos_to_seconds(nanos: i128) -> f64 {
    let (count, divisor) = match nanos % 1_000 {
        0 => (nanos / 1_000, 1_000_000),
        _ => (nanos, i128::from(SECOND_NANOS)),
    };
    match count.unsigned_abs() < 1 << 53 {
        true => count as f64 / divisor as f64,
        false => (count / divisor) as f64 + (count % divisor) as f64 / divisor as f64,
    }
}

/// The parts of an interval, each with the interval's sign.
#[derive(Debug, Clone, Copy)]
struct SignedIntervalParts {
    months: i64,
    days: i64,
    nanos: i64,
}

impl SignedIntervalParts {
    fn epoch_seconds(&self) -> f64 {
        let (years, months) = (i128::from(self.months / 12), i128::from(self.months % 12));
        // A year of 365.25 days has 1461 quarters of a day.
        let quarters = years * 1_461 + (months * 30 + i128::from(self.days)) * 4;
        let seconds = quarters * i128::from(DAY_SECONDS / 4);
        nanos_to_seconds(seconds * i128::from(SECOND_NANOS) + i128::from(self.nanos))
    }
}

/// An argument of times or intervals.
enum TimeOrIntervalArgument {
    Times(TimeArgument),
    Intervals(Vec<Option<SignedIntervalParts>>, RowMapping),
}

impl TimeOrIntervalArgument {
    fn from_argument(value: &ColumnarValue) -> Result<Self> {
        if TimeValueKind::from_type(&value.data_type()) != TimeValueKind::Interval {
            return Ok(TimeOrIntervalArgument::Times(TimeArgument::from_value(value)?));
        }
        let (spans, rows) = argument_array(value)?;
        let parts = match spans.data_type() {
            DataType::Duration(unit) => {
                let units = units_per_second(*unit);
                let day = DAY_SECONDS * units;
                let values = cast_with_options(&spans, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
                let parts = values.as_primitive::<Int64Type>().iter().map(|value| {
                    let value = value?;
                    let nanos = value % day * (SECOND_NANOS / units);
                    Some(SignedIntervalParts { months: 0, days: value / day, nanos })
                });
                parts.collect()
            }
            _ => {
                let whole = DataType::Interval(IntervalUnit::MonthDayNano);
                let spans = cast_with_options(&spans, &whole, &STRICT_CAST_OPTIONS)?;
                let spans: &IntervalMonthDayNanoArray =
                    spans.as_primitive::<IntervalMonthDayNanoType>();
                let parts = spans.iter().map(|span| {
                    let span = span?;
                    let (months, days) = (span.months.into(), span.days.into());
                    Some(SignedIntervalParts { months, days, nanos: span.nanoseconds })
                });
                parts.collect()
            }
        };
        Ok(TimeOrIntervalArgument::Intervals(parts, rows))
    }

    fn is_valid(&self, row: usize) -> bool {
        match self {
            TimeOrIntervalArgument::Times(times) => times.utc_time(row).is_some(),
            TimeOrIntervalArgument::Intervals(spans, rows) => {
                spans[rows.value_index(row)].is_some()
            }
        }
    }

    fn integer_field(&self, field: DateField, row: usize) -> Result<Option<i64>> {
        Ok(match self {
            TimeOrIntervalArgument::Times(times) => {
                times.local_time(row)?.map(|shown| field.value_of_time(shown))
            }
            TimeOrIntervalArgument::Intervals(spans, rows) => {
                spans[rows.value_index(row)].map(|span| field.value_of_interval(&span))
            }
        })
    }

    fn fractional_field(&self, field: DateField, row: usize) -> Result<Option<f64>> {
        Ok(match self {
            TimeOrIntervalArgument::Times(times) => {
                let shown = times.local_time(row)?.zip(times.utc_time(row));
                shown.map(|(shown, instant)| field.fraction_of_time(shown, instant))
            }
            TimeOrIntervalArgument::Intervals(spans, rows) => {
                spans[rows.value_index(row)].map(|span| span.epoch_seconds())
            }
        })
    }

    fn field_column(&self, field: DateField, rows: usize) -> Result<ArrayRef> {
        Ok(match field.is_fractional() {
            true => {
                let found = (0..rows).map(|row| self.fractional_field(field, row));
                Arc::new(found.collect::<Result<Float64Array>>()?)
            }
            false => {
                let found = (0..rows).map(|row| self.integer_field(field, row));
                Arc::new(found.collect::<Result<Int64Array>>()?)
            }
        })
    }
}

/// Functions that return fields of a time or an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DatePartsFunction {
    /// `date_parts`: a struct of constant fields.
    FieldStruct,
    /// `date_field`: one constant field.
    SingleField,
    /// `date_part_named`: a field that may differ from row to row.
    FieldByName,
}

impl DatePartsFunction {
    pub(super) const ALL: [DatePartsFunction; 3] = [
        DatePartsFunction::FieldStruct,
        DatePartsFunction::SingleField,
        DatePartsFunction::FieldByName,
    ];

    /// Returns the constant name of a field, or `None` for a null.
    ///
    /// # Errors
    /// Fails if the name is not constant.
    fn constant_field_name(self, constant: Option<&ScalarValue>) -> Result<Option<&str>> {
        constant.and_then(ScalarValue::try_as_str).ok_or_else(|| {
            usage_error(
                format!("`{}` takes names of fields that are constant texts", self.names()[0]),
                "date_part_named(field, ts) takes one that differs from row to row",
            )
        })
    }

    /// Returns the fields of the result struct.
    ///
    /// # Errors
    /// Fails for a name that is not a field or that occurs twice.
    fn struct_fields(
        self,
        constants: &[Option<&ScalarValue>],
        kind: TimeValueKind,
    ) -> Result<Fields> {
        let mut fields: Vec<Field> = Vec::new();
        for constant in constants {
            let name = self.constant_field_name(*constant)?.ok_or_else(|| {
                usage_error(
                    "a field of `date_parts` is NULL",
                    "leave it out: date_parts('year', ts)",
                )
            })?;
            if fields.iter().any(|other| other.name().eq_ignore_ascii_case(name)) {
                return Err(usage_error(
                    format!("`date_parts` has the field `{name}` twice"),
                    "a struct's fields have different names: leave one out",
                ));
            }
            fields.push(Field::new(name, DateField::from_name(name, kind)?.data_type(), true));
        }
        Ok(fields.into())
    }
}

impl RowFunction for DatePartsFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            DatePartsFunction::FieldStruct => &["date_parts"],
            DatePartsFunction::SingleField => &["date_field"],
            DatePartsFunction::FieldByName => &["date_part_named"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            DatePartsFunction::FieldStruct => (
                "date_parts('year', 'month', …, x)",
                "Fields of a time or an interval as a struct, a BIGINT each and a DOUBLE for `epoch` and `julian`: \
                 `date_parts('year', 'doy', DATE '2026-11-20')` is `{year: 2026, doy: 324}`.",
            ),
            DatePartsFunction::SingleField => (
                "date_field('century', x)",
                "A field of a time or an interval, a BIGINT, and a DOUBLE for `epoch` and `julian`, of more fields than \
                 `date_part` has: `date_field('century', DATE '2026-11-20')` is `21`.",
            ),
            DatePartsFunction::FieldByName => (
                "date_part_named(field, x)",
                "A field of a time or an interval, which a column may name, as a DOUBLE: \
                 `date_part_named('doy', DATE '2026-11-20')` is `324.0`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_DATETIME, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [fields @ .., value] = given else { return Err(wrong_arguments_error(self, given)) };
        let has_fields = match self {
            DatePartsFunction::FieldStruct => !fields.is_empty(),
            DatePartsFunction::SingleField | DatePartsFunction::FieldByName => fields.len() == 1,
        };
        let mut taken: Vec<DataType> = fields.iter().filter_map(text_cast_type).collect();
        match value {
            DataType::Interval(_) | DataType::Duration(_) => taken.push(value.clone()),
            other => taken.extend(time_cast_type(other)),
        }
        match has_fields && taken.len() == given.len() {
            true => Ok(taken),
            false => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType> {
        let [fields @ .., value] = taken else { return Err(wrong_arguments_error(self, taken)) };
        let kind = TimeValueKind::from_type(value);
        let constants = &constants[..fields.len()];
        match self {
            DatePartsFunction::FieldStruct => {
                Ok(DataType::Struct(self.struct_fields(constants, kind)?))
            }
            DatePartsFunction::SingleField => Ok(match self.constant_field_name(constants[0])? {
                Some(name) => DateField::from_name(name, kind)?.data_type(),
                None => DataType::Int64,
            }),
            DatePartsFunction::FieldByName => {
                if let Some(Some(name)) = constants[0].and_then(ScalarValue::try_as_str) {
                    DateField::from_name(name, kind)?;
                }
                Ok(DataType::Float64)
            }
        }
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let value = given.argument(given.arguments.len() - 1)?;
        let kind = TimeValueKind::from_type(&value.data_type());
        let values = TimeOrIntervalArgument::from_argument(value)?;
        if let DataType::Struct(fields) = given.return_type {
            let columns = fields.iter().map(|field| {
                values.field_column(DateField::from_name(field.name(), kind)?, given.row_count)
            });
            let nulls: Vec<bool> = (0..given.row_count).map(|row| values.is_valid(row)).collect();
            let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
            let nulls = Some(NullBuffer::from(nulls));
            return Ok(Arc::new(StructArray::try_new(fields.clone(), columns, nulls)?));
        }
        let names = given.text_argument(0)?;
        if *self == DatePartsFunction::SingleField {
            let name = names.get(0).ok_or_else(|| internal_error("a field is null"))?;
            return values.field_column(DateField::from_name(name, kind)?, given.row_count);
        }
        let mut kept = LastTextCache::new();
        let found = (0..given.row_count).map(|row| {
            let Some(name) = names.get(row) else { return Ok(None) };
            let field = *kept.get_or_parse(name, |name| DateField::from_name(name, kind))?;
            Ok(match field.is_fractional() {
                true => values.fractional_field(field, row)?,
                false => values.integer_field(field, row)?.map(|whole| whole as f64),
            })
        });
        Ok(Arc::new(found.collect::<Result<Float64Array>>()?))
    }
}
