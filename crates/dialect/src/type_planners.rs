//! Plans the names of types in SQL and in schemas.
//!
//! `TIMESTAMP` in SQL has microseconds, which range from the year −290307 to 294246, unless the value has
//! nanoseconds. `TIMESTAMP WITH TIME ZONE` is in UTC.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, ExactNumberInfo, TimezoneInfo};
use tidemill_base::error::Error;

use crate::error_translation::into_datafusion_error;
use crate::map_types::map_type;

/// Field name that marks a timestamp type without an explicit unit. Casts ignore the field's name; metadata
/// would have to be the same in all rows of VALUES.
pub const ANY_UNIT_FIELD_NAME: &str = "tidemill:any_unit";

/// Plans SQL's names of timestamp types.
#[derive(Debug)]
pub struct SqlTypePlanner;

impl TypePlanner for SqlTypePlanner {
    fn plan_type_field(&self, sql_type: &SqlType) -> PlanResult<Option<FieldRef>> {
        if let SqlType::Decimal(ExactNumberInfo::PrecisionAndScale(_, scale))
        | SqlType::Numeric(ExactNumberInfo::PrecisionAndScale(_, scale)) = sql_type
            && *scale < 0
        {
            return Err(into_datafusion_error(Error::usage_with_hint(
                format!("`{sql_type}` has fewer than no digits behind its point"),
                "round(x, -3) is of thousands",
            )));
        }
        let SqlType::Timestamp(precision, zone) = sql_type else {
            return ArrowTypePlanner.plan_type_field(sql_type);
        };
        let unit = match precision {
            None | Some(6) => TimeUnit::Microsecond,
            Some(0) => TimeUnit::Second,
            Some(3) => TimeUnit::Millisecond,
            Some(9) => TimeUnit::Nanosecond,
            Some(_) => return Ok(None),
        };
        let zone = match zone {
            TimezoneInfo::Tz | TimezoneInfo::WithTimeZone => Some("UTC".into()),
            _ => None,
        };
        let name = if precision.is_none() { ANY_UNIT_FIELD_NAME } else { "" };
        Ok(Some(Arc::new(Field::new(name, DataType::Timestamp(unit, zone), true))))
    }
}

/// Plans types in a schema: maps, Arrow's names of types that SQL has no name for, and `TIME` with a
/// precision.
#[derive(Debug)]
pub(crate) struct ArrowTypePlanner;

impl TypePlanner for ArrowTypePlanner {
    fn plan_type_field(&self, sql_type: &SqlType) -> PlanResult<Option<FieldRef>> {
        let field = |data_type| Arc::new(Field::new("", data_type, true));
        // DataFusion plans `TIME` without a precision.
        if let SqlType::Time(Some(precision), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) =
            sql_type
        {
            return Ok(time_of_day_type(*precision).map(field));
        }
        if let SqlType::Map(key, value) = sql_type {
            return Ok(map_type(key, value)?.map(field));
        }
        let SqlType::Custom(name, modifiers) = sql_type else { return Ok(None) };
        Ok(parse_arrow_type(&name.to_string(), modifiers).map(field))
    }
}

/// Parses Arrow's name of a type that SQL has no name for, such as `FixedSizeBinary(16)` or
/// `IntervalDayTime`. Schemas are displayed with these names. `Time32(ms)` is displayed as `TIME(3)`, and is
/// accepted here too.
pub(crate) fn parse_arrow_type(name: &str, modifiers: &[String]) -> Option<DataType> {
    match (name, modifiers) {
        ("IntervalDayTime", []) => Some(DataType::Interval(IntervalUnit::DayTime)),
        ("IntervalYearMonth", []) => Some(DataType::Interval(IntervalUnit::YearMonth)),
        ("IntervalMonthDayNano", []) => Some(DataType::Interval(IntervalUnit::MonthDayNano)),
        ("Date64" | "Float16" | "Null", []) => name.parse().ok(),
        ("Time32" | "Time64" | "Duration" | "FixedSizeBinary", [_]) => {
            format!("{name}({})", modifiers.join(", ")).parse().ok()
        }
        _ => None,
    }
}

/// Returns the type of a time of day with `precision` fractional digits of a second; `None` if there is no
/// such type.
fn time_of_day_type(precision: u64) -> Option<DataType> {
    Some(match precision {
        0 => DataType::Time32(TimeUnit::Second),
        3 => DataType::Time32(TimeUnit::Millisecond),
        6 => DataType::Time64(TimeUnit::Microsecond),
        9 => DataType::Time64(TimeUnit::Nanosecond),
        _ => return None,
    })
}
