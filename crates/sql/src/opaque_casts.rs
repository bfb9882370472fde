//! Casts that Arrow computes incorrectly or does not support, planned as functions.
//!
//! - A number that exceeds FLOAT would become infinite: it is an error, and NULL under TRY_CAST. An infinite
//!   DOUBLE stays infinite. Text is read as in files, where `1e400` is infinite.
//! - DataFusion removes a cast that is compared with a constant: `TRY_CAST(x AS TINYINT) <> 1` for 300 would
//!   be true instead of null. It also truncates the constant to the unit of a coarser time below the cast, so
//!   that `CAST(ms AS TIMESTAMP) = TIMESTAMP '1970-01-01 00:00:00.000001'` would be true for 1970. So a cast
//!   that may lose a value, or that changes the unit of a time, is a function here.
//! - A time in a coarser unit is rounded to the nearest one, and halves are rounded away from 1970, as in
//!   PostgreSQL and DuckDB; Arrow truncates.
//! - Texts of times and numbers are completed first ([`lenient_text_casts`](crate::lenient_text_casts)).
//! - A DECIMAL is true as a BOOLEAN if it is not zero; Arrow has no such cast.
//! - Lists, structs and maps become text, and are read from it, by [`nested_casts`](crate::nested_casts).
//! - Bytes of a fixed length become text through bytes of any length; Arrow has no such cast.
//! - `'2024'::TIME` has no colon and is no time; Arrow reads the digits as nanoseconds.
//! - DataFusion simplifies `TRY_CAST(x AS DATE) IS DISTINCT FROM NULL` to `x IS DISTINCT FROM NULL`, which is
//!   a different condition.
//!
//! The rule runs after all types are settled. [`hide_casts_in_filters`] runs last: `WHERE CAST(ts AS DATE) =
//! …` is true for different times, but DataFusion would treat `ts` as a constant and omit sorts by it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::compute::{CastOptions, cast_with_options, nullif};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Int64Type, TimeUnit};
use arrow::util::display::{FormatOptions, array_value_to_string};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_base::error::Error;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use crate::common_type::is_decimal;
use crate::lenient_text_casts::{
    TextSpelling, complete_texts, completed_text_call, is_completed_text_call,
};
use crate::local_times::units_per_second;
use crate::nested_casts::{is_nested_cast, nested_cast};
use crate::short_circuit_evaluation::is_infallible_cast;
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::plan_rewriting::{invoke_unary_function, rewrite_all_expressions};

/// Replaces casts by functions; see the module.
#[derive(Debug)]
pub(crate) struct OpaqueCastRule;

impl AnalyzerRule for OpaqueCastRule {
    fn name(&self) -> &'static str {
        "kept_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        rewrite_all_expressions(plan, &rewrite_cast)
    }
}

fn rewrite_cast(mut expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &mut expr
        && matches!(op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom)
    {
        let is_left = make_cast_opaque(left, schema)?;
        let is_right = make_cast_opaque(right, schema)?;
        return Ok(Transformed::new_transformed(expr, is_left || is_right));
    }
    let (value, to, is_tried) = match &mut expr {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type().clone(), false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type().clone(), true),
        _ => return Ok(Transformed::no(expr)),
    };
    let from = value.get_type(schema)?;
    if is_nested_cast(&from, &to) {
        let value = std::mem::take(value.as_mut());
        return Ok(Transformed::yes(nested_cast(value, to, is_tried)));
    }
    if let Some(spelling) = TextSpelling::for_cast_target(&to)
        .filter(|_| is_text(&from) && !is_completed_text_call(value))
    {
        let is_other = match value.as_ref() {
            Expr::Literal(text, metadata) => {
                let found = complete_texts(&text.to_array()?, spelling)?;
                let found =
                    Expr::Literal(ScalarValue::try_from_array(&found, 0)?, metadata.clone());
                let is_other = found != **value;
                **value = found;
                is_other
            }
            _ => {
                **value = completed_text_call(std::mem::take(value), spelling);
                true
            }
        };
        // The text is parsed with microseconds, and rounded from there.
        if let DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) = &to {
            let read = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            let text = Box::new(std::mem::take(value.as_mut()));
            let time = match is_tried {
                true => Expr::TryCast(TryCast::new(text, read.clone())),
                false => Expr::Cast(Cast::new(text, read.clone())),
            };
            return Ok(Transformed::yes(opaque_cast_call(time, &read, to, is_tried)));
        }
        return Ok(Transformed::new_transformed(expr, is_other));
    }
    if is_decimal(&from) && to == DataType::Boolean {
        let zero = Expr::Literal(ScalarValue::new_zero(&from)?, None);
        return Ok(Transformed::yes(std::mem::take(value.as_mut()).not_eq(zero)));
    }
    // Arrow casts bytes of a fixed length to other bytes only.
    if matches!(from, DataType::FixedSizeBinary(_)) && to.is_string() {
        let bytes = Cast::new(Box::new(std::mem::take(value.as_mut())), DataType::BinaryView);
        **value = Expr::Cast(bytes);
        return Ok(Transformed::yes(expr));
    }
    // Casts of constants are computed at once.
    let is_time_of_day = matches!(to, DataType::Time32(_) | DataType::Time64(_));
    if matches!(value.as_ref(), Expr::Literal(_, _))
        && !to.is_floating()
        && !is_coarser_time_cast(&from, &to)
        && !is_time_of_day
    {
        return Ok(Transformed::no(expr));
    }
    let is_taken_off = match (&from, &to) {
        (DataType::Timestamp(own, zone), DataType::Timestamp(other, other_zone)) => {
            if units_per_second(*own) < units_per_second(*other) && zone != other_zone {
                // Changes the unit first; another rule converts local times between zones.
                let finer = DataType::Timestamp(*other, zone.clone());
                **value = opaque_cast_call(std::mem::take(value.as_mut()), &from, finer, is_tried);
                return Ok(Transformed::yes(expr));
            }
            own != other
        }
        (from, to) if from.is_numeric() && to.is_numeric() => !is_infallible_cast(from, to),
        (from, DataType::Time32(_) | DataType::Time64(_)) => is_text(from),
        _ => false,
    };
    if !is_taken_off {
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(opaque_cast_call(std::mem::take(value.as_mut()), &from, to, is_tried)))
}

/// Turns a cast into a function, which no rule removes. Returns true if the expression was a cast.
fn make_cast_opaque(expr: &mut Expr, schema: &DFSchema) -> PlanResult<bool> {
    let (value, to, is_tried) = match expr {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type().clone(), false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type().clone(), true),
        _ => return Ok(false),
    };
    let from = value.get_type(schema)?;
    *expr = opaque_cast_call(std::mem::take(value.as_mut()), &from, to, is_tried);
    Ok(true)
}

/// Hides the casts in filters that may map several values to one.
///
/// DataFusion's interval analysis sees through a cast: it concludes that a column whose cast is a constant
/// has one value, and is sorted already. It does not see through a function.
pub(crate) fn hide_casts_in_filters(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let hidden = plan.transform_up_with_subqueries_dyn(&mut |plan| {
        let LogicalPlan::Filter(mut filter) = plan else { return Ok(Transformed::no(plan)) };
        let schema = Arc::clone(filter.input.schema());
        let predicate = std::mem::take(&mut filter.predicate);
        let predicate = predicate.transform_up_dyn(&mut |mut expr| {
            let may_merge = match &expr {
                Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                    !is_injective_cast(&expr.get_type(&schema)?, field.data_type())
                }
                _ => false,
            };
            let is_hidden = may_merge && make_cast_opaque(&mut expr, &schema)?;
            Ok(Transformed::new_transformed(expr, is_hidden))
        })?;
        filter.predicate = predicate.data;
        Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), predicate.transformed))
    });
    hidden.data()
}

/// Returns true if a cast maps different values to different values. Intervals of text and nested values are
/// not analyzed.
fn is_injective_cast(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Float16, Float32, Timestamp};
    let bits = |of: &DataType| of.primitive_width().map_or(0, |bytes| 8 * bytes);
    match (from, to) {
        (from, to) if from == to || is_text(from) || from.is_nested() || to.is_nested() => true,
        (from, Float16) => from == &Float16,
        (from, Float32) if from.is_integer() => bits(from) <= 16,
        (from, to) if from.is_integer() && to.is_floating() => bits(from) <= 32,
        (from, to) if from.is_decimal() && to.is_floating() => false,
        (from, to) if from.is_numeric() && to.is_numeric() => is_infallible_cast(from, to),
        (Timestamp(from, _), Timestamp(to, _)) => units_per_second(*from) <= units_per_second(*to),
        (Date32, Timestamp(_, _) | Date64) => true,
        _ => false,
    }
}

/// Returns true for casts to a time of a coarser unit.
fn is_coarser_time_cast(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) => {
            units_per_second(*from) > units_per_second(*to)
        }
        _ => false,
    }
}

fn opaque_cast_call(value: Expr, from: &DataType, to: DataType, is_tried: bool) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let rounds_time = is_coarser_time_cast(from, &to);
    let function = Arc::new(ScalarUDF::from(OpaqueCastFunction {
        target_type: to,
        is_try_cast: is_tried,
        rounds_time,
        signature,
    }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![value]))
}

/// Returns the written cast of a time to another unit, for comparisons with bounds of values: the cast keeps
/// the order of times. Returns `None` for a coarser unit, because truncated bounds would not enclose the
/// rounded values.
pub fn order_preserving_time_cast(expr: &Expr) -> Option<Cast> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let kept =
        call.func.inner().downcast_ref::<OpaqueCastFunction>().filter(|kept| !kept.is_try_cast)?;
    let is_time = matches!(kept.target_type, DataType::Timestamp(_, _)) && !kept.rounds_time;
    is_time.then(|| Cast::new(Box::new(call.args[0].clone()), kept.target_type.clone()))
}

/// Returns the value and the target type of an opaque cast; `None` for other expressions.
pub fn opaque_cast_parts(expr: &Expr) -> Option<(&Expr, &DataType)> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let kept = call.func.inner().downcast_ref::<OpaqueCastFunction>()?;
    Some((call.args.first()?, &kept.target_type))
}

fn is_text(of: &DataType) -> bool {
    match of {
        DataType::Dictionary(_, value) => is_text(value),
        other => other.is_string(),
    }
}

/// The function that casts a number to a type that may not hold it, or a time to another unit.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OpaqueCastFunction {
    target_type: DataType,
    is_try_cast: bool,
    /// True if `target_type` is a time of a coarser unit than the argument.
    rounds_time: bool,
    signature: Signature,
}

impl ScalarUDFImpl for OpaqueCastFunction {
    fn name(&self) -> &str {
        if self.is_try_cast { "try_kept_cast" } else { "kept_cast" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.target_type.clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |array| {
            evaluate_cast(array, &self.target_type, self.is_try_cast)
        })
    }
}

fn evaluate_cast(from: &ArrayRef, to: &DataType, is_tried: bool) -> PlanResult<ArrayRef> {
    let options = CastOptions { safe: is_tried, format_options: FormatOptions::new() };
    if matches!(to, DataType::Time32(_) | DataType::Time64(_)) && is_text(from.data_type()) {
        return Ok(cast_with_options(&check_colons(from, to, is_tried)?, to, &options)?);
    }
    if is_coarser_time_cast(from.data_type(), to) {
        return Ok(cast_with_options(&round_times(from, to)?, to, &options)?);
    }
    let found = cast_with_options(from, to, &options)?;
    let is_infinite: BooleanArray = match to {
        DataType::Float16 => {
            found.as_primitive::<Float16Type>().iter().map(is_infinite_number).collect()
        }
        DataType::Float32 => {
            found.as_primitive::<Float32Type>().iter().map(is_infinite_number).collect()
        }
        _ => return Ok(found),
    };
    if is_infinite.true_count() == 0 {
        return Ok(found);
    }
    let mut too_large = vec![false; found.len()];
    for row in is_infinite.values().set_indices() {
        let text = array_value_to_string(from, row)?;
        too_large[row] = !text.contains("inf");
        if too_large[row] && !is_tried {
            return Err(into_datafusion_error(Error::Cast {
                value: text,
                to: sql_type_name(to),
                cast: None,
                hint: None,
            }));
        }
    }
    Ok(nullif(&found, &BooleanArray::from(too_large))?)
}

/// Returns texts of times of day. A text without a colon is an error, or null for TRY_CAST.
fn check_colons(texts: &ArrayRef, to: &DataType, is_tried: bool) -> PlanResult<ArrayRef> {
    let views = cast_with_options(texts, &DataType::Utf8View, &STRICT_CAST_OPTIONS)?;
    let lacks_colon = |text: Option<&str>| text.is_some_and(|text| !text.contains(':'));
    let lacking: BooleanArray =
        views.as_string_view().iter().map(|text| Some(lacks_colon(text))).collect();
    match lacking.values().set_indices().next() {
        None => Ok(views),
        Some(_) if is_tried => Ok(nullif(&views, &lacking)?),
        Some(row) => Err(into_datafusion_error(Error::Cast {
            value: views.as_string_view().value(row).to_owned(),
            to: sql_type_name(to),
            cast: None,
            hint: None,
        })),
    }
}

/// Rounds times to the nearest unit of the coarser type `to`.
fn round_times(from: &ArrayRef, to: &DataType) -> PlanResult<ArrayRef> {
    let (DataType::Timestamp(own, zone), DataType::Timestamp(unit, _)) = (from.data_type(), to)
    else {
        return plan_err!("a {} is rounded to {to}", from.data_type());
    };
    let divisor = units_per_second(*own) / units_per_second(*unit);
    let times = cast_with_options(from, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
    let nearest: Int64Array = times.as_primitive::<Int64Type>().unary(|time| {
        let (whole, rest) = (time / divisor, time % divisor);
        if 2 * rest.abs() >= divisor { whole + rest.signum() } else { whole }
    });
    let nearest_type = DataType::Timestamp(*unit, zone.clone());
    Ok(cast_with_options(&nearest, &nearest_type, &STRICT_CAST_OPTIONS)?)
}

fn is_infinite_number<T: Into<f64>>(value: Option<T>) -> Option<bool> {
    Some(value.is_some_and(|value| value.into().is_infinite()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal256Array, Float64Array};
    use arrow::datatypes::i256;

    use super::*;

    #[test]
    fn no_number_becomes_infinite() {
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(1.5),
            None,
            Some(f64::NEG_INFINITY),
            Some(1e300),
        ]));
        let error = evaluate_cast(&numbers, &DataType::Float32, false).unwrap_err();
        assert!(error.to_string().contains("1e300"), "{error}");
        let found = evaluate_cast(&numbers, &DataType::Float32, true).unwrap();
        let found: Vec<_> = found.as_primitive::<Float32Type>().iter().collect();
        assert_eq!(found, [Some(1.5), None, Some(f32::NEG_INFINITY), None]);
        let decimals: ArrayRef = Arc::new(
            Decimal256Array::from(vec![i256::from_i128(15), i256::from_parts(0, 1 << 100)])
                .with_precision_and_scale(76, 1)
                .unwrap(),
        );
        let found = evaluate_cast(&decimals, &DataType::Float32, true).unwrap();
        let found: Vec<_> = found.as_primitive::<Float32Type>().iter().collect();
        assert_eq!(found, [Some(1.5), None]);
    }
}
