//! Frames of windows by what their rows are in order of.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    Expr, ExprSchemable, WindowFrame, WindowFrameBound, WindowFrameUnits,
};

use crate::error::Error;
use crate::scan::external;
use crate::types::sql_type;

/// A window's call with a frame that DataFusion runs as it is written. Without offsets RANGE is of the
/// equals of a row, as GROUPS is, which can be had of each type; DataFusion's search for them has an order
/// of its own in lists and records.
///
/// # Errors
/// Where the frame's offsets are no distance between what the rows are in order of. DataFusion takes a
/// number beside a day for months.
pub fn settled(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let frame = other_frame(&call, schema)?;
    let is_other = frame.is_some();
    if let Some(frame) = frame {
        call.params.window_frame = frame;
    }
    Ok(Transformed::new_transformed(Expr::WindowFunction(call), is_other))
}

fn other_frame(call: &WindowFunction, schema: &DFSchema) -> PlanResult<Option<WindowFrame>> {
    let WindowFunctionParams { order_by, window_frame: frame, .. } = &call.params;
    let (Some(key), WindowFrameUnits::Range) = (order_by.first(), frame.units) else {
        return Ok(None);
    };
    let Ok(of) = key.expr.get_type(schema) else { return Ok(None) };
    let is_time = matches!(of, DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _));
    let offset = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(offset) | WindowFrameBound::Following(offset) => {
            (!offset.is_null()).then(|| offset.clone())
        }
        WindowFrameBound::CurrentRow => None,
    };
    let offsets: Vec<ScalarValue> =
        [&frame.start_bound, &frame.end_bound].into_iter().filter_map(offset).collect();
    if offsets.is_empty() {
        let is_text = matches!(
            of,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Boolean
        );
        if of.is_numeric() || is_time || is_text {
            return Ok(None);
        }
        let mut equals = frame.clone();
        equals.units = WindowFrameUnits::Groups;
        return Ok(Some(equals));
    }
    let refused = |message: String, hint: &str| Err(external(Error::usage_hint(message, hint)));
    if !of.is_numeric() && !is_time {
        return refused(
            format!(
                "RANGE with an offset is of numbers, dates and timestamps, and not of {}",
                sql_type(&of)
            ),
            "ROWS and GROUPS count rows; extract(epoch FROM x) makes a number of an interval",
        );
    }
    for offset in offsets {
        let text = offset.to_string();
        let is_number = text.parse::<f64>().is_ok();
        if is_time && is_number {
            return refused(
                format!("`RANGE {text}` of a {} says no unit", sql_type(&of)),
                &format!("RANGE INTERVAL '{text} days' PRECEDING"),
            );
        }
        if !is_time && !is_number {
            return refused(
                format!("`RANGE {text}` is no distance between numbers of type {}", sql_type(&of)),
                "RANGE 5 PRECEDING is one; an interval is one between dates and timestamps",
            );
        }
        if of.is_integer() && text.parse::<i64>().is_err() {
            return refused(
                format!(
                    "`RANGE {text}` is no distance between whole numbers, which {} has",
                    sql_type(&of)
                ),
                "ORDER BY CAST(x AS DOUBLE) has others, too",
            );
        }
    }
    Ok(None)
}
