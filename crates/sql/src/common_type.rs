//! Finds the common type of two types, for comparisons and for shared columns; `coercion` has the table.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::binary::type_union_coercion;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, ScalarUDF};

use crate::bytea;
use crate::local_times::is_utc;
use crate::numeric_conversions::{DAY_NANOS, InstantFunction, unit_nanoseconds};

/// Returns whether an expression is a literal text of a time with more digits than microseconds.
pub(crate) fn is_text_with_nanoseconds(value: &Expr) -> bool {
    let Expr::Literal(text, _) = value else { return false };
    text.try_as_str().flatten().is_some_and(|text| {
        let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
        fraction.bytes().take_while(u8::is_ascii_digit).count() > 6
    })
}

/// Casts text beside a timestamp to a timestamp; DataFusion would cast it to nanoseconds.
fn cast_text_to_timestamp(expr: &Expr, own: &DataType, beside: &DataType) -> Option<Expr> {
    let DataType::Timestamp(unit, zone) = beside else { return None };
    if !matches!(own, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
        return None;
    }
    let nanoseconds = match expr {
        Expr::Literal(_, _) => is_text_with_nanoseconds(expr),
        _ => *unit == TimeUnit::Nanosecond,
    };
    let unit = if nanoseconds { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
    let time = DataType::Timestamp(unit, zone.clone());
    Some(Expr::Cast(Cast::new(Box::new(expr.clone()), time)))
}

/// Converts a literal beside a BOOLEAN to a BOOLEAN: `'true'` or `'false'`, as clients write that quote all values,
/// and 1 or 0, as databases write whose truth values are numbers.
pub(crate) fn literal_as_boolean(expr: &Expr, beside: &DataType) -> Option<Expr> {
    let Expr::Literal(value, metadata) = expr else { return None };
    if beside != &DataType::Boolean {
        return None;
    }
    let value = match (value, value.try_as_str().flatten()) {
        (ScalarValue::Int64(Some(1)), _) => true,
        (ScalarValue::Int64(Some(0)), _) => false,
        (_, Some(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "t" => true,
            "false" | "f" => false,
            _ => return None,
        },
        _ => return None,
    };
    Some(Expr::Literal(ScalarValue::Boolean(Some(value)), metadata.clone()))
}

/// Coerces a value beside one of another type, where its spelling determines its type.
pub(crate) fn coerce_by_spelling(expr: &Expr, own: &DataType, beside: &DataType) -> Option<Expr> {
    let as_number = float_literal_as_decimal(expr, beside);
    as_number
        .or_else(|| cast_text_to_timestamp(expr, own, beside))
        .or_else(|| literal_as_boolean(expr, beside))
        .or_else(|| bytea::text_literal_as_bytes(expr, beside))
        .or_else(|| cast_date_to_zone_midnight(expr, own, beside))
}

/// Casts a date beside nanoseconds of a zone to the second at which the day begins in that zone. Beside
/// other units, the timestamp's type is the common type.
fn cast_date_to_zone_midnight(expr: &Expr, own: &DataType, beside: &DataType) -> Option<Expr> {
    let (DataType::Date32 | DataType::Date64, DataType::Timestamp(TimeUnit::Nanosecond, zone)) =
        (own, beside)
    else {
        return None;
    };
    let zone = zone.clone().filter(|zone| !is_utc(zone))?;
    let time = DataType::Timestamp(TimeUnit::Second, Some(zone));
    Some(Expr::Cast(Cast::new(Box::new(expr.clone()), time)))
}

/// Converts two times of which one has a zone to that zone. A time without a zone and a date are local times of
/// the zone, as in a comparison. Of two zones the first one applies. Returns `None` if there is nothing to
/// convert.
pub(crate) fn align_time_zones(
    left: &Expr,
    right: &Expr,
    schema: &DFSchema,
) -> Option<(Expr, Expr)> {
    let (one, other) = (left.get_type(schema).ok()?, right.get_type(schema).ok()?);
    let brought = |expr: &Expr, of: &DataType, unit: TimeUnit, zone: &Arc<str>| {
        let unit = match of {
            DataType::Timestamp(own, _) => *own,
            DataType::Date32 | DataType::Date64 => unit,
            _ => return None,
        };
        let time = DataType::Timestamp(unit, Some(Arc::clone(zone)));
        Some(Expr::Cast(Cast::new(Box::new(expr.clone()), time)))
    };
    match (&one, &other) {
        (DataType::Timestamp(_, Some(zone)), DataType::Timestamp(_, Some(own))) if zone == own => {
            None
        }
        (DataType::Timestamp(unit, Some(zone)), _) => {
            Some((left.clone(), brought(right, &other, *unit, zone)?))
        }
        (_, DataType::Timestamp(unit, Some(zone))) => {
            Some((brought(left, &one, *unit, zone)?, right.clone()))
        }
        _ => None,
    }
}

/// Returns the value of a literal or of a cast of one.
pub(crate) fn constant_value(expr: &Expr, own: &DataType) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(cast) => match cast.expr.as_ref() {
            Expr::Literal(value, _) => value.cast_to(own).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Converts a constant time or date to the unit that it is compared with, if it is a whole number
/// of those units: file statistics can then be compared with it.
pub(crate) fn constant_in_time_unit(
    expr: &Expr,
    own: &DataType,
    beside: &DataType,
) -> Option<Expr> {
    if let DataType::Time32(unit) | DataType::Time64(unit) = beside {
        return constant_time_of_day_in_unit(expr, own, unit);
    }
    let DataType::Timestamp(unit, zone) = beside else { return None };
    let zones = match own {
        DataType::Timestamp(other, own_zone) if other != unit => own_zone.is_some(),
        DataType::Date32 => false,
        _ => return None,
    };
    if zones != zone.is_some() {
        return None;
    }
    let nanoseconds = match constant_value(expr, own)? {
        ScalarValue::Date32(Some(days)) => i128::from(days) * DAY_NANOS,
        ScalarValue::TimestampSecond(Some(count), _) => i128::from(count) * 1_000_000_000,
        ScalarValue::TimestampMillisecond(Some(count), _) => i128::from(count) * 1_000_000,
        ScalarValue::TimestampMicrosecond(Some(count), _) => i128::from(count) * 1_000,
        ScalarValue::TimestampNanosecond(Some(count), _) => i128::from(count),
        _ => return None,
    };
    let each = unit_nanoseconds(unit);
    if nanoseconds % each != 0 {
        return None;
    }
    let count = Some(i64::try_from(nanoseconds / each).ok()?);
    let zone = zone.clone();
    let value = match unit {
        TimeUnit::Second => ScalarValue::TimestampSecond(count, zone),
        TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(count, zone),
        TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(count, zone),
        TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(count, zone),
    };
    Some(Expr::Literal(value, None))
}

/// Converts a constant time of day to the unit that it is compared with, like [`constant_in_time_unit`].
pub(crate) fn constant_time_of_day_in_unit(
    expr: &Expr,
    own: &DataType,
    unit: &TimeUnit,
) -> Option<Expr> {
    if !matches!(own, DataType::Time32(_) | DataType::Time64(_)) {
        return None;
    }
    let (count, own_unit) = match constant_value(expr, own)? {
        ScalarValue::Time32Second(Some(count)) => (i64::from(count), TimeUnit::Second),
        ScalarValue::Time32Millisecond(Some(count)) => (i64::from(count), TimeUnit::Millisecond),
        ScalarValue::Time64Microsecond(Some(count)) => (count, TimeUnit::Microsecond),
        ScalarValue::Time64Nanosecond(Some(count)) => (count, TimeUnit::Nanosecond),
        _ => return None,
    };
    let nanoseconds = i128::from(count) * unit_nanoseconds(&own_unit);
    let each = unit_nanoseconds(unit);
    if own_unit == *unit || nanoseconds % each != 0 {
        return None;
    }
    let count = i64::try_from(nanoseconds / each).ok()?;
    let value = match unit {
        TimeUnit::Second => ScalarValue::Time32Second(Some(i32::try_from(count).ok()?)),
        TimeUnit::Millisecond => ScalarValue::Time32Millisecond(Some(i32::try_from(count).ok()?)),
        TimeUnit::Microsecond => ScalarValue::Time64Microsecond(Some(count)),
        TimeUnit::Nanosecond => ScalarValue::Time64Nanosecond(Some(count)),
    };
    Some(Expr::Literal(value, None))
}

/// The way in which values of two types are compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CommonType {
    /// Both operands are cast to this type.
    SameType(DataType),
    /// Both operands become nanoseconds of any number; times count from 1970.
    Instants,
}

pub(crate) fn whole_and_fraction_digits(of: &DataType) -> Option<(i16, i16)> {
    Some(match of {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            (i16::from(*precision) - i16::from(*scale), i16::from(*scale))
        }
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        _ => return None,
    })
}

pub(crate) fn is_decimal(of: &DataType) -> bool {
    !of.is_integer() && whole_and_fraction_digits(of).is_some()
}

pub(crate) fn is_interval_or_duration(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_) | DataType::Duration(_))
}

/// Returns the way in which values of two types are compared, or `None` where DataFusion's choice is right.
pub(crate) fn comparison_type(one: &DataType, other: &DataType) -> Option<CommonType> {
    use DataType::{Date32, Date64, Float64, Interval, Time32, Time64, Timestamp};
    // A day of an interval counts as 24 hours, a month as 30 days.
    if is_interval_or_duration(one)
        && is_interval_or_duration(other)
        && (one != other || matches!(one, Interval(_)))
    {
        return Some(CommonType::Instants);
    }
    if one == other {
        return None;
    }
    if one.is_floating() && other.is_floating() {
        return None;
    }
    match (one, other) {
        (float, number) | (number, float)
            if float.is_floating() && (is_decimal(number) || number.is_integer()) =>
        {
            (is_decimal(number) || float != &Float64).then_some(CommonType::SameType(Float64))
        }
        (decimal, number) | (number, decimal)
            if is_decimal(decimal) && whole_and_fraction_digits(number).is_some() =>
        {
            let ((whole, scale), (more, finer)) =
                (whole_and_fraction_digits(decimal)?, whole_and_fraction_digits(number)?);
            let scale = scale.max(finer);
            let precision = whole.max(more) + scale;
            (precision > 38).then(|| {
                let precision = u8::try_from(precision.min(76)).unwrap_or(76);
                CommonType::SameType(DataType::Decimal256(
                    precision,
                    i8::try_from(scale).unwrap_or(38),
                ))
            })
        }
        (Date32 | Date64, Timestamp(TimeUnit::Nanosecond, _))
        | (Timestamp(TimeUnit::Nanosecond, _), Date32 | Date64) => Some(CommonType::Instants),
        (Date32 | Date64, time @ Timestamp(_, _)) | (time @ Timestamp(_, _), Date32 | Date64) => {
            Some(CommonType::SameType(time.clone()))
        }
        (Time32(unit) | Time64(unit), Time32(other_unit) | Time64(other_unit)) => {
            // A time of day fits in every unit.
            let finer = unit_nanoseconds(unit) < unit_nanoseconds(other_unit);
            Some(CommonType::SameType(if finer { one.clone() } else { other.clone() }))
        }
        (Timestamp(unit, zone), Timestamp(other, other_zone)) if unit != other => {
            (zone.is_some() == other_zone.is_some()).then_some(CommonType::Instants)
        }
        _ => None,
    }
}

/// Returns the type of a column with values of both types, or `None` where DataFusion's choice is right.
pub(crate) fn common_column_type(one: &DataType, other: &DataType) -> Option<DataType> {
    match (comparison_type(one, other)?, one, other) {
        (CommonType::SameType(DataType::Decimal256(_, _)), _, _) => None,
        (CommonType::SameType(both), _, _) => Some(both),
        (
            CommonType::Instants,
            time @ DataType::Timestamp(_, _),
            DataType::Date32 | DataType::Date64,
        )
        | (CommonType::Instants, DataType::Date32 | DataType::Date64, time) => Some(time.clone()),
        (CommonType::Instants, _, _) => None,
    }
}

/// Returns the type of a column with values of all these types, and whether it differs from DataFusion's choice;
/// `None` if there is no such type.
pub(crate) fn common_column_type_of_all<'a>(
    types: impl IntoIterator<Item = &'a DataType>,
) -> Option<(DataType, bool)> {
    let mut types = types.into_iter();
    let mut all = types.next()?.clone();
    let mut is_ours = false;
    for of in types.filter(|of| !of.is_null()) {
        all = match common_column_type(&all, of) {
            Some(both) => {
                is_ours = true;
                both
            }
            None => type_union_coercion(&all, of)?,
        };
    }
    Some((all, is_ours))
}

/// Returns the type of [`common_column_type_of_all`] if it differs from DataFusion's choice.
pub(crate) fn overridden_column_type(types: &[DataType]) -> Option<DataType> {
    common_column_type_of_all(types).filter(|(_, is_ours)| *is_ours).map(|(all, _)| all)
}

pub(crate) fn cast_if_needed(expr: Expr, to: &DataType, schema: &DFSchema) -> Expr {
    match expr.get_type(schema) {
        Ok(of) if &of == to || of.is_null() => expr,
        _ => Expr::Cast(Cast::new(Box::new(expr), to.clone())),
    }
}

impl CommonType {
    pub(crate) fn coerce_operand(&self, expr: Expr, schema: &DFSchema) -> Expr {
        match self {
            CommonType::SameType(to) => cast_if_needed(expr, to, schema),
            CommonType::Instants => {
                static INSTANT: LazyLock<Arc<ScalarUDF>> =
                    LazyLock::new(|| Arc::new(ScalarUDF::from(InstantFunction::new())));
                let call = ScalarFunction::new_udf(Arc::clone(&INSTANT), vec![expr]);
                Expr::ScalarFunction(call)
            }
        }
    }
}

/// Converts a float literal to the decimal as written in the SQL text, for a comparison with a
/// decimal: the result is exact, and file statistics can be compared with it.
fn float_literal_as_decimal(expr: &Expr, beside: &DataType) -> Option<Expr> {
    let Expr::Literal(ScalarValue::Float64(Some(number)), metadata) = expr else { return None };
    if !is_decimal(beside) || !number.is_finite() {
        return None;
    }
    // The shortest text of this double: `1.5e0`.
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()? - exponent;
    let (unscaled, scale) = match scale < 0 {
        true => (unscaled.checked_mul(10_i128.checked_pow(scale.unsigned_abs())?)?, 0),
        false => (unscaled, scale),
    };
    let precision = unscaled.unsigned_abs().to_string().len().max(usize::try_from(scale).ok()?);
    let (precision, scale) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
    (precision <= 38).then(|| {
        Expr::Literal(ScalarValue::Decimal128(Some(unscaled), precision, scale), metadata.clone())
    })
}

/// Coerces both sides of a comparison; returns `None` if neither side changes.
pub(crate) fn coerce_comparison(
    left: &Expr,
    right: &Expr,
    schemas: [&DFSchema; 2],
) -> Option<(Expr, Expr)> {
    let one = left.get_type(schemas[0]).ok()?;
    let other = right.get_type(schemas[1]).ok()?;
    let mut written =
        (coerce_by_spelling(left, &one, &other), coerce_by_spelling(right, &other, &one));
    // Of two constants only one takes the other's unit; otherwise they would swap units forever.
    if written.0.is_none() {
        written.0 = constant_in_time_unit(left, &one, &other);
    }
    if let (None, None) = written {
        written.1 = constant_in_time_unit(right, &other, &one);
    }
    if let (None, None) = written {
        let meeting = comparison_type(&one, &other)?;
        return Some((
            meeting.coerce_operand(left.clone(), schemas[0]),
            meeting.coerce_operand(right.clone(), schemas[1]),
        ));
    }
    let (left, right) =
        (written.0.unwrap_or_else(|| left.clone()), written.1.unwrap_or_else(|| right.clone()));
    // The decimals may still be too wide for each other, and times may have two units.
    let again = coerce_comparison(&left, &right, schemas);
    Some(again.unwrap_or((left, right)))
}

pub(crate) fn coerced_comparison_expr(
    left: &Expr,
    operator: Operator,
    right: &Expr,
    schema: &DFSchema,
) -> Expr {
    let (left, right) = coerce_comparison(left, right, [schema, schema])
        .unwrap_or_else(|| (left.clone(), right.clone()));
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}
