//! Types of casts to TIMESTAMP and of casts of times to numbers.
//!
//! `TIMESTAMP` in SQL has microseconds ([`SqlTypePlanner`](tidemill_dialect::type_planners::SqlTypePlanner)), which
//! range from the year −290307 to 294246, unless the value has nanoseconds. `TIMESTAMP WITH TIME ZONE` is in UTC. Whole numbers are seconds,
//! whatever the unit.

use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::{DFSchema, Result as PlanResult};
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, ExprSchemable};
use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::Error;

use crate::common_type::{is_decimal, is_text_with_nanoseconds};
use crate::date_functions;
use crate::local_times::is_utc;
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_dialect::type_planners::ANY_UNIT_FIELD_NAME;

/// Chooses the unit of a cast of `value` to the TIMESTAMP type `wanted` without an explicit unit: one that
/// holds the value. Returns the value to cast, in which whole numbers are seconds, and the type.
pub(crate) fn resolve_timestamp_unit(
    value: Expr,
    wanted: &FieldRef,
    schema: &DFSchema,
) -> Option<(Expr, DataType)> {
    let DataType::Timestamp(_, zone) = wanted.data_type() else { return None };
    if wanted.name() != ANY_UNIT_FIELD_NAME {
        return None;
    }
    let nanoseconds = match (value.get_type(schema).ok()?, &value) {
        (DataType::Timestamp(unit, _), _) => unit == TimeUnit::Nanosecond,
        (_, value) => is_text_with_nanoseconds(value),
    };
    let unit = if nanoseconds { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
    let is_number = value.get_type(schema).ok()?.is_integer();
    let value = match is_number {
        true => Expr::Cast(Cast::new(
            Box::new(value),
            DataType::Timestamp(TimeUnit::Second, zone.clone()),
        )),
        false => value,
    };
    Some((value, DataType::Timestamp(unit, zone.clone())))
}

/// Refuses casts of floats and decimals to TIMESTAMP. Whole numbers are seconds, whereas Arrow would read a
/// float as microseconds.
pub(crate) fn refuse_fraction_as_timestamp(
    value: &Expr,
    to: &FieldRef,
    schema: &DFSchema,
) -> PlanResult<()> {
    let (Ok(from), DataType::Timestamp(_, _)) = (value.get_type(schema), to.data_type()) else {
        return Ok(());
    };
    if !from.is_floating() && !is_decimal(&from) {
        return Ok(());
    }
    Err(into_datafusion_error(Error::usage_with_hint(
        format!("a {} is not cast to TIMESTAMP", sql_type_name(&from)),
        "to_timestamp(x) takes seconds since 1970 as a DOUBLE; CAST(x AS BIGINT) makes them whole",
    )))
}

/// Returns true for a cast of a time to an integer. Arrow would count in units of the time's type, so that a
/// file with milliseconds would give other numbers than one with microseconds.
///
/// # Errors
/// If a time is cast to a number with fractional digits, and if a time of day is cast to or from a number.
pub(crate) fn is_time_to_integer_cast(
    value: &Expr,
    to: &FieldRef,
    schema: &DFSchema,
) -> PlanResult<bool> {
    let Ok(from) = value.get_type(schema) else { return Ok(false) };
    let to = to.data_type();
    let is_time_of_day = |of: &DataType| matches!(of, DataType::Time32(_) | DataType::Time64(_));
    let refused = |hint: &str| {
        let message = format!("a {} is not cast to {}", sql_type_name(&from), sql_type_name(to));
        Err(into_datafusion_error(Error::usage_with_hint(message, hint)))
    };
    match &from {
        DataType::Timestamp(_, _) | DataType::Date64 if to.is_integer() => Ok(true),
        of if is_time_of_day(of) && to.is_numeric() => {
            refused("extract(epoch FROM x) is how many seconds it is after midnight, as a DOUBLE")
        }
        DataType::Timestamp(_, _) if to.is_numeric() => {
            refused("extract(epoch FROM x) is how many seconds it is after 1970, as a DOUBLE")
        }
        of if of.is_numeric() && is_time_of_day(to) => {
            refused("TIME '00:00:00' + n * INTERVAL '1 second' is n seconds after midnight")
        }
        _ => Ok(false),
    }
}

/// Returns the whole seconds of a timestamp, or the days of a date, since 1970.
pub(crate) fn whole_seconds_or_days(value: Expr, schema: &DFSchema) -> PlanResult<Expr> {
    Ok(match value.get_type(schema)? {
        DataType::Date64 => Expr::Cast(Cast::new(Box::new(value), DataType::Date32)),
        _ => date_functions::whole_seconds_call(value),
    })
}

/// Returns the value and type of a cast to TIMESTAMP if they differ from those written.
///
/// # Errors
/// See [`refuse_fraction_as_timestamp`].
pub(crate) fn rewrite_timestamp_cast(
    value: &Expr,
    wanted: &FieldRef,
    schema: &DFSchema,
) -> PlanResult<Option<(Expr, DataType)>> {
    refuse_fraction_as_timestamp(value, wanted, schema)?;
    let shown = zoned_to_local_time(value, wanted, schema);
    let is_shown = shown.is_some();
    let value = shown.unwrap_or_else(|| value.clone());
    Ok(resolve_timestamp_unit(value.clone(), wanted, schema)
        .or_else(|| is_shown.then(|| (value, wanted.data_type().clone()))))
}

/// Converts a time with a zone that is cast to TIMESTAMP, which has none, to the local time of that zone
/// instead of UTC.
pub(crate) fn zoned_to_local_time(
    value: &Expr,
    wanted: &FieldRef,
    schema: &DFSchema,
) -> Option<Expr> {
    match (value.get_type(schema).ok()?, wanted.data_type()) {
        (DataType::Timestamp(_, Some(zone)), DataType::Timestamp(_, None)) if !is_utc(&zone) => {
            Some(datetime::to_local_time().call(vec![value.clone()]))
        }
        _ => None,
    }
}
