//! Products of an interval and a number: `ts - n * INTERVAL '1 hour'`. DataFusion has no such operator.
//!
//! Each part of an interval is multiplied by itself, as in PostgreSQL and DuckDB: three times a month
//! and 20 days is three months and 60 days.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, Int64Array, IntervalMonthDayNanoArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Error;

use tidemill_dialect::error_translation::into_datafusion_error;

const INTERVAL_TYPE: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// An expression planner for `*` of an interval, or of the difference of two times, and a whole number.
#[derive(Debug)]
pub(crate) struct IntervalMultiplicationPlanner;

impl ExprPlanner for IntervalMultiplicationPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        if !matches!(expr.op, BinaryOperator::Multiply) {
            return Ok(PlannerResult::Original(expr));
        }
        let is_span = |of: &DataType| matches!(of, DataType::Interval(_) | DataType::Duration(_));
        let types = (expr.left.get_type(schema), expr.right.get_type(schema));
        let args = match &types {
            (Ok(span), Ok(count)) if is_span(span) && count.is_integer() => [expr.left, expr.right],
            (Ok(count), Ok(span)) if is_span(span) && count.is_integer() => [expr.right, expr.left],
            _ => return Ok(PlannerResult::Original(expr)),
        };
        static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
            let signature = Signature::any(2, Volatility::Immutable);
            Arc::new(ScalarUDF::from(IntervalMultiplication { signature }))
        });
        let call = ScalarFunction::new_udf(Arc::clone(&FUNCTION), args.to_vec());
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalMultiplication {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalMultiplication {
    fn name(&self) -> &str {
        "multiple"
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(names.join(" * "))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        Ok(match arguments.first() {
            Some(of @ DataType::Duration(_)) => of.clone(),
            _ => INTERVAL_TYPE,
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let are_all_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [spans, counts] = arrays.as_slice() else {
            return Err(into_datafusion_error(Error::Internal(
                "an interval without its number".into(),
            )));
        };
        let counts = cast_with_options(counts, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
        let found = multiply_intervals(spans, counts.as_primitive())?;
        Ok(match are_all_one {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(found),
        })
    }
}

fn multiply_intervals(spans: &ArrayRef, counts: &Int64Array) -> PlanResult<ArrayRef> {
    let overflow = |row: usize| {
        let text = arrow::util::display::array_value_to_string(spans, row).unwrap_or_default();
        into_datafusion_error(Error::Overflow {
            message: format!(
                "INTERVAL overflow: {} times `{text}` does not fit",
                counts.value(row)
            ),
            hint: None,
        })
    };
    if let DataType::Duration(_) = spans.data_type() {
        let values = cast_with_options(spans, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
        let values = values.as_primitive::<Int64Type>().iter().zip(counts).enumerate();
        let found = values.map(|(row, pair)| match pair {
            (Some(value), Some(count)) => {
                value.checked_mul(count).map(Some).ok_or_else(|| overflow(row))
            }
            _ => Ok(None),
        });
        let found = found.collect::<PlanResult<Int64Array>>()?;
        return Ok(cast_with_options(&found, spans.data_type(), &STRICT_CAST_OPTIONS)?);
    }
    let values = cast_with_options(spans, &INTERVAL_TYPE, &STRICT_CAST_OPTIONS)?;
    let values = values.as_primitive::<IntervalMonthDayNanoType>().iter().zip(counts).enumerate();
    let found = values.map(|(row, pair)| match pair {
        (Some(span), Some(count)) => {
            multiply_interval(span, count).map(Some).ok_or_else(|| overflow(row))
        }
        _ => Ok(None),
    });
    Ok(Arc::new(found.collect::<PlanResult<IntervalMonthDayNanoArray>>()?))
}

fn multiply_interval(span: IntervalMonthDayNano, count: i64) -> Option<IntervalMonthDayNano> {
    let part = |of: i32| i32::try_from(i64::from(of).checked_mul(count)?).ok();
    let nanoseconds = span.nanoseconds.checked_mul(count)?;
    Some(IntervalMonthDayNano::new(part(span.months)?, part(span.days)?, nanoseconds))
}
