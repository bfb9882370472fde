//! Frames of window calls that DataFusion does not run as SQL defines them.

use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, IntervalMonthDayNano,
    IntervalUnit, TimeUnit,
};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as PlanResult, ScalarValue};
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::logical_expr::expr::{
    Case, Cast, NullTreatment, WindowFunction, WindowFunctionParams,
};
use datafusion::logical_expr::logical_plan::Window;
use datafusion::logical_expr::{
    AggregateUDF, Expr, ExprSchemable, LogicalPlan, Projection, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowFunctionDefinition,
};
use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::Error;

use crate::local_times::{is_utc, units_per_second};
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::datafusion_names::windows;

/// Nanoseconds of a day.
const DAY_NANOS: i128 = 86_400_000_000_000;

/// Name prefix of the calls that compute the frames of rows with a null key.
const NULL_KEY_CALL_PREFIX: &str = "__of_nulls_";

/// Rewrites a window call so that DataFusion runs its frame and keys as SQL defines them.
///
/// - RANGE without offsets becomes GROUPS, because its bounds are a row's peers, which every type has.
///   DataFusion's search for RANGE bounds orders lists and structs differently.
/// - A key and its offset are cast to a type that holds their sum and every digit of both. DataFusion rounds
///   the offset, and a sum that does not fit makes its search end behind the rows with a null key.
/// - Row offsets beyond the number of rows of any input become the maximum.
/// - `first_value` and `last_value` with IGNORE NULLS up to the current row become aggregates. DataFusion's
///   window function searches all rows for each row.
///
/// # Errors
/// If the offsets of a frame are no distances between values of the key. DataFusion reads a number beside a
/// day as months.
pub(crate) fn rewrite_window_call(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let aggregate = equivalent_running_aggregate(&call);
    let is_aggregate = aggregate.is_some();
    if let Some(aggregate) = aggregate {
        call.fun = WindowFunctionDefinition::AggregateUDF(aggregate);
    }
    let mut settled = rewrite_frame(call, schema)?;
    settled.transformed |= is_aggregate;
    Ok(settled)
}

fn rewrite_frame(
    mut call: Box<WindowFunction>,
    schema: &DFSchema,
) -> PlanResult<Transformed<Expr>> {
    if call.params.window_frame.units != WindowFrameUnits::Range {
        let frame = &mut call.params.window_frame;
        let bounds = [&mut frame.start_bound, &mut frame.end_bound].map(clamp_row_offset);
        let is_other = bounds.contains(&true);
        return Ok(Transformed::new_transformed(Expr::WindowFunction(call), is_other));
    }
    let WindowFunctionParams { order_by, window_frame: frame, .. } = &mut call.params;
    let Some(key) = order_by.first_mut() else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    let Ok(of) = key.expr.get_type(schema) else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    let offsets: Vec<String> =
        [&frame.start_bound, &frame.end_bound].into_iter().filter_map(offset_text).collect();
    let has_offset = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => !by.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    if offsets.is_empty() {
        let is_other = !has_offset(&frame.start_bound)
            && !has_offset(&frame.end_bound)
            && !is_searched_in_sort_order(&of);
        if is_other {
            frame.units = WindowFrameUnits::Groups;
        }
        return Ok(Transformed::new_transformed(Expr::WindowFunction(call), is_other));
    }
    let offsets: Vec<String> = offsets.iter().map(|offset| expand_exponent(offset)).collect();
    check_offsets(&of, &offsets)?;
    let common = choose_range_arithmetic(&of, &offsets)?;
    for bound in [&mut frame.start_bound, &mut frame.end_bound] {
        let Some(offset) = offset_text(bound) else { continue };
        let offset = match common {
            RangeArithmetic::Nanoseconds => {
                interval_nanoseconds(&offset).map_or(offset, |length| length.to_string())
            }
            RangeArithmetic::Unchanged | RangeArithmetic::CastTo(_) => expand_exponent(&offset),
        };
        let offset = ScalarValue::from(offset);
        *bound = match bound {
            WindowFrameBound::Following(_) => WindowFrameBound::Following(offset),
            _ => WindowFrameBound::Preceding(offset),
        };
    }
    let own = std::mem::take(&mut key.expr);
    key.expr = match common {
        RangeArithmetic::Unchanged => own,
        RangeArithmetic::CastTo(to) => cast_expr(own, to),
        RangeArithmetic::Nanoseconds => cast_expr(
            cast_expr(own, DataType::Int64),
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
        ),
    };
    Ok(Transformed::yes(Expr::WindowFunction(call)))
}

/// The type in which a key and its offsets are added.
enum RangeArithmetic {
    Unchanged,
    CastTo(DataType),
    /// The key as a number of nanoseconds, and so its offsets.
    Nanoseconds,
}

/// Chooses the type that holds every digit of a key, of its offsets, and of their sums.
fn choose_range_arithmetic(of: &DataType, offsets: &[String]) -> PlanResult<RangeArithmetic> {
    let spans = || offsets.iter().filter_map(|offset| parse_interval(offset));
    match of {
        of if of.is_integer() => decimal_range_arithmetic(of, 20, 0, offsets),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let before = i32::from(*precision) - i32::from(*scale);
            decimal_range_arithmetic(of, usize::try_from(before).unwrap_or(0), *scale, offsets)
        }
        DataType::Date32 | DataType::Date64 => {
            if spans().all(|span| i128::from(span.nanoseconds) % DAY_NANOS == 0) {
                return Ok(RangeArithmetic::Unchanged);
            }
            microsecond_range_arithmetic(of, None, offsets)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let is_counted = offsets.iter().all(|offset| interval_nanoseconds(offset).is_some())
                && zone.as_deref().is_none_or(is_utc);
            Ok(if is_counted { RangeArithmetic::Nanoseconds } else { RangeArithmetic::Unchanged })
        }
        DataType::Timestamp(unit, zone) => {
            let smallest = 1_000_000_000 / units_per_second(*unit);
            if spans().all(|span| span.nanoseconds % smallest == 0) {
                return Ok(RangeArithmetic::Unchanged);
            }
            microsecond_range_arithmetic(of, zone.clone(), offsets)
        }
        _ => Ok(RangeArithmetic::Unchanged),
    }
}

/// Chooses the decimal for keys with `before` digits before the point and `scale` digits after it.
fn decimal_range_arithmetic(
    of: &DataType,
    before: usize,
    scale: i8,
    offsets: &[String],
) -> PlanResult<RangeArithmetic> {
    let digits = |offset: &String| {
        let (before, behind) = offset.split_once('.').unwrap_or((offset, ""));
        (before.len(), behind.len())
    };
    let before = offsets.iter().map(|offset| digits(offset).0).fold(before, usize::max);
    let places = offsets.iter().map(|offset| digits(offset).1).max().unwrap_or(0);
    let places = i8::try_from(places).unwrap_or(i8::MAX).max(scale);
    // A sum has one digit more than its operands.
    match before + 1 + usize::try_from(places).unwrap_or(0) {
        ..=38 => {
            Ok(RangeArithmetic::CastTo(DataType::Decimal128(DECIMAL128_MAX_PRECISION, places)))
        }
        39..=76 => {
            Ok(RangeArithmetic::CastTo(DataType::Decimal256(DECIMAL256_MAX_PRECISION, places)))
        }
        needed => Err(into_datafusion_error(Error::usage_with_hint(
            format!(
                "`RANGE {}` of a {} needs {needed} digits, and a DECIMAL has 76",
                offsets.join("` and `"),
                sql_type_name(of)
            ),
            "ORDER BY CAST(x AS DOUBLE) has more, rounded",
        ))),
    }
}

/// Chooses timestamps with microseconds for offsets that are finer than the key's unit.
fn microsecond_range_arithmetic(
    of: &DataType,
    zone: Option<Arc<str>>,
    offsets: &[String],
) -> PlanResult<RangeArithmetic> {
    let is_finer =
        |offset: &&String| parse_interval(offset).is_some_and(|span| span.nanoseconds % 1_000 != 0);
    if let Some(offset) = offsets.iter().find(is_finer) {
        return Err(into_datafusion_error(Error::usage_with_hint(
            format!("`RANGE {offset}` of a {} is finer than microseconds", sql_type_name(of)),
            "ORDER BY CAST(t AS TIMESTAMP(9)) has nanoseconds",
        )));
    }
    Ok(RangeArithmetic::CastTo(DataType::Timestamp(TimeUnit::Microsecond, zone)))
}

/// Returns the aggregate that computes the same values as a call of a window function.
fn equivalent_running_aggregate(call: &WindowFunction) -> Option<Arc<AggregateUDF>> {
    let WindowFunctionParams { window_frame: frame, null_treatment, .. } = &call.params;
    let is_from_start =
        matches!(&frame.start_bound, WindowFrameBound::Preceding(bound) if bound.is_null());
    let is_until_here = matches!(frame.end_bound, WindowFrameBound::CurrentRow);
    let is_window = matches!(call.fun, WindowFunctionDefinition::WindowUDF(_));
    if !is_window
        || !is_from_start
        || !is_until_here
        || *null_treatment != Some(NullTreatment::IgnoreNulls)
    {
        return None;
    }
    match call.fun.name() {
        windows::FIRST_VALUE => Some(first_value_udaf()),
        windows::LAST_VALUE => Some(last_value_udaf()),
        _ => None,
    }
}

fn cast_expr(expr: Expr, to: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), to))
}

/// Returns true if DataFusion's search for RANGE bounds uses the order in which rows of the type are sorted.
fn is_searched_in_sort_order(of: &DataType) -> bool {
    of.is_numeric()
        || matches!(
            of,
            DataType::Date32
                | DataType::Date64
                | DataType::Timestamp(_, _)
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Boolean
        )
}

/// Returns a RANGE offset as written, if the call's types are not settled yet.
fn offset_text(bound: &WindowFrameBound) -> Option<String> {
    match bound {
        WindowFrameBound::Preceding(ScalarValue::Utf8(by))
        | WindowFrameBound::Following(ScalarValue::Utf8(by)) => by.clone(),
        _ => None,
    }
}

/// Limits a row offset to the range of row arithmetic, and returns true if it was larger.
fn clamp_row_offset(bound: &mut WindowFrameBound) -> bool {
    const ROW_OFFSET_MAX: u64 = i64::MAX as u64;
    match bound {
        WindowFrameBound::Preceding(ScalarValue::UInt64(Some(rows)))
        | WindowFrameBound::Following(ScalarValue::UInt64(Some(rows)))
            if *rows > ROW_OFFSET_MAX =>
        {
            *rows = ROW_OFFSET_MAX;
            true
        }
        _ => false,
    }
}

fn parse_interval(offset: &str) -> Option<IntervalMonthDayNano> {
    let to = DataType::Interval(IntervalUnit::MonthDayNano);
    match ScalarValue::from(offset).cast_to(&to) {
        Ok(ScalarValue::IntervalMonthDayNano(span)) => span,
        _ => None,
    }
}

/// Returns the nanoseconds of an interval; `None` if it has months.
fn interval_nanoseconds(offset: &str) -> Option<i128> {
    let span = parse_interval(offset).filter(|span| span.months == 0)?;
    Some(i128::from(span.days) * DAY_NANOS + i128::from(span.nanoseconds))
}

/// Writes a number without an exponent and without redundant zeros; returns other texts unchanged.
fn expand_exponent(offset: &str) -> String {
    /// No type has that many digits.
    const EXPONENT_MAX: usize = 400;
    let (number, exponent) = offset.split_once(['e', 'E']).unwrap_or((offset, "0"));
    let (before, behind) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    let exponent: Option<i32> = exponent.parse().ok();
    let (Some(exponent), true) = (exponent, is_number(before) && is_number(behind)) else {
        return offset.to_owned();
    };
    let zeros = exponent.unsigned_abs() as usize;
    if before.len() + behind.len() == 0 || zeros > EXPONENT_MAX {
        return offset.to_owned();
    }
    let zeros = "0".repeat(zeros);
    let (before, behind) = if exponent < 0 {
        (format!("{zeros}{before}"), behind.to_owned())
    } else {
        (before.to_owned(), format!("{behind}{zeros}"))
    };
    let digits = format!("{before}{behind}");
    let point = i64::try_from(before.len()).unwrap_or(i64::MAX) + i64::from(exponent);
    let (before, behind) = digits.split_at(usize::try_from(point).unwrap_or(0));
    let before = match before.trim_start_matches('0') {
        "" => "0",
        before => before,
    };
    match behind.trim_end_matches('0') {
        "" => before.to_owned(),
        behind => format!("{before}.{behind}"),
    }
}

/// Checks that the offsets are distances between values of a type.
fn check_offsets(of: &DataType, offsets: &[String]) -> PlanResult<()> {
    let refused = |message: String, hint: &str| {
        Err(into_datafusion_error(Error::usage_with_hint(message, hint)))
    };
    let is_time = matches!(of, DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _));
    if !of.is_numeric() && !is_time {
        return refused(
            format!(
                "RANGE with an offset is of numbers, dates and timestamps, and not of {}",
                sql_type_name(of)
            ),
            "ROWS and GROUPS count rows; extract(epoch FROM x) makes a number of an interval",
        );
    }
    for offset in offsets {
        let is_number = offset.parse::<f64>().is_ok_and(f64::is_finite);
        if is_time && is_number {
            return refused(
                format!("`RANGE {offset}` of a {} says no unit", sql_type_name(of)),
                &format!("RANGE INTERVAL '{offset} days' PRECEDING"),
            );
        }
        if !is_time && !is_number {
            return refused(
                format!(
                    "`RANGE {offset}` is no distance between numbers of type {}",
                    sql_type_name(of)
                ),
                "RANGE 5 PRECEDING is one; an interval is one between dates and timestamps",
            );
        }
        if of.is_integer() && offset.contains('.') {
            return refused(
                format!(
                    "`RANGE {offset}` is no distance between whole numbers, which {} has",
                    sql_type_name(of)
                ),
                "ORDER BY CAST(x AS DOUBLE) has others, too",
            );
        }
        if is_time && parse_interval(offset).is_some_and(|span| !is_within_time_range(of, span)) {
            return refused(
                format!("`RANGE {offset}` reaches further than a {} does", sql_type_name(of)),
                "UNBOUNDED is the word for all",
            );
        }
        let is_back = offset.starts_with('-')
            || parse_interval(offset).is_some_and(|span| {
                is_time && (span.months < 0 || span.days < 0 || span.nanoseconds < 0)
            });
        if is_back {
            return refused(
                format!("`RANGE {offset}` is a distance below zero"),
                "PRECEDING goes back and FOLLOWING forth, each by a distance",
            );
        }
    }
    Ok(())
}

/// Returns true if the sum of a time and a distance can be in the range of the time's type.
fn is_within_time_range(of: &DataType, span: IntervalMonthDayNano) -> bool {
    let months = match of {
        // Nanoseconds are added as decimals, which hold any distance. With months, the years end in 2262.
        DataType::Timestamp(TimeUnit::Nanosecond, _) if span.months == 0 => return true,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 12 * 100,
        _ => 12 * 100_000,
    };
    let days = i128::from(span.months) * 31
        + i128::from(span.days)
        + i128::from(span.nanoseconds) / DAY_NANOS;
    days <= months * 31
}

/// Computes the rows with a null key in separate calls if a frame ends before its row. The frame of these
/// rows ends with the last of them, which DataFusion does not wait for.
///
/// # Errors
/// The errors of DataFusion's schemas.
pub(crate) fn separate_null_key_frames(window: Window) -> PlanResult<Transformed<LogicalPlan>> {
    let below = Arc::clone(window.input.schema());
    let others: Vec<Option<(Expr, Expr)>> =
        window.window_expr.iter().map(|expr| null_key_call(expr, &below)).collect();
    let is_done = window.window_expr.iter().any(
        |expr| matches!(expr, Expr::Alias(alias) if alias.name.starts_with(NULL_KEY_CALL_PREFIX)),
    );
    if is_done || others.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let own = below.fields().len();
    let mut columns: Vec<Expr> =
        window.schema.iter().map(|field| Expr::Column(Column::from(field))).collect();
    let mut calls = window.window_expr;
    for (index, (is_null, call)) in
        others.into_iter().enumerate().filter_map(|(index, other)| Some((index, other?)))
    {
        let name = format!("{NULL_KEY_CALL_PREFIX}{index}");
        let found = std::mem::take(&mut columns[own + index]);
        let (qualifier, field) = window.schema.qualified_field(own + index);
        let either = Expr::Case(Case {
            expr: None,
            when_then_expr: vec![(
                Box::new(is_null),
                Box::new(Expr::Column(Column::new_unqualified(&name))),
            )],
            else_expr: Some(Box::new(found)),
        });
        columns[own + index] = either.alias_qualified(qualifier.cloned(), field.name());
        calls.push(call.alias(name));
    }
    let window = LogicalPlan::Window(Window::try_new(calls, window.input)?);
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(window))?)))
}

/// Returns, for a call whose frame ends before its row, the condition for a null key and the call with the
/// frame of such rows.
fn null_key_call(expr: &Expr, below: &DFSchema) -> Option<(Expr, Expr)> {
    let call: &WindowFunction = match expr {
        Expr::WindowFunction(call) => call,
        Expr::Alias(alias) => return null_key_call(&alias.expr, below),
        _ => return None,
    };
    let frame = &call.params.window_frame;
    let key = &call.params.order_by.first()?.expr;
    let ends_before = matches!(&frame.end_bound, WindowFrameBound::Preceding(by) if !by.is_null());
    if frame.units != WindowFrameUnits::Range || !ends_before || !key.nullable(below).ok()? {
        return None;
    }
    let start = match &frame.start_bound {
        bound if bound.is_unbounded() => bound.clone(),
        _ => WindowFrameBound::CurrentRow,
    };
    let mut other = call.clone();
    other.params.window_frame =
        WindowFrame::new_bounds(WindowFrameUnits::Range, start, WindowFrameBound::CurrentRow);
    Some((key.clone().is_null(), Expr::WindowFunction(Box::new(other))))
}
