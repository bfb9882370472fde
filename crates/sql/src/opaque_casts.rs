//! Casts that Arrow answers with something else than the value, or does not know.
//!
//! - A number that FLOAT has no room for would be infinite: it is an error, and null under TRY_CAST. An
//!   infinite DOUBLE stays what it is, and text is read as files are, in which `1e400` is infinite.
//! - DataFusion takes a cast off that is compared with a constant: `TRY_CAST(x AS TINYINT) <> 1` of 300 would
//!   be true, and not null; and it cuts the constant to the unit of a coarser time below the cast, so that
//!   `CAST(ms AS TIMESTAMP) = TIMESTAMP '1970-01-01 00:00:00.000001'` would be true of 1970. So what may lose a
//!   value, and what changes a time's unit, is a function here, and no cast.
//! - A time in a coarser unit is the nearest one, of two as near the one farther from 1970, as PostgreSQL and DuckDB have
//!   it: Arrow cuts digits off.
//! - Texts of times and numbers are completed first ([`text_spellings`](crate::text_spellings)).
//! - A DECIMAL is true as a BOOLEAN if it is not zero; Arrow has no cast for it.
//! - Lists, structs and maps become text, and are read from it, by [`nested_casts`](crate::nested_casts).
//! - Bytes of a fixed length become text through bytes of any length; Arrow has no cast for it.
//! - `'2024'::TIME` has no colon, and is no time; Arrow takes digits for nanoseconds.
//! - `TRY_CAST(x AS DATE) IS DISTINCT FROM NULL` is not `x IS DISTINCT FROM NULL`, which DataFusion makes of it.
//!
//! The rule comes when all types are settled. [`hide_casts_in_filters`] comes last: `WHERE CAST(ts AS DATE) = …` is true of different times,
//! and DataFusion would take `ts` for a constant, by which nothing is sorted.

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
use crate::error_translation::into_datafusion_error;
use crate::lenient_text_casts::{
    TextSpelling, complete_texts, completed_text_call, is_completed_text_call,
};
use crate::local_times::units_per_second;
use crate::nested_casts::{is_nested_cast, nested_cast};
use crate::plan_rewriting::{invoke_unary_function, rewrite_all_expressions};
use crate::short_circuit_evaluation::is_infallible_cast;

/// The rule. See the module.
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
        // Read in the unit that text is read in, and rounded from there.
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
    // What is constant is computed at once.
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
                // The unit first; what clocks show in the other zone is another rule's.
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

/// Makes a cast a function, which no rule takes off; returns whether it was one.
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

/// Hides the casts in filters that may make one value of several.
///
/// DataFusion's analysis of intervals goes through a cast: a column whose cast is a constant has one value for it, and is sorted
/// already. It goes through no function.
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

/// Returns whether a cast makes different values of different ones. Intervals of text and nested values are not analysed.
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

/// Returns whether a cast makes a time of a coarser unit.
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

/// A time in another unit as the cast that was written, for what holds bounds of values against it: the
/// order of times stays. None for a coarser unit: bounds that are cut off would not hold what is rounded.
pub fn order_preserving_time_cast(expr: &Expr) -> Option<Cast> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let kept =
        call.func.inner().downcast_ref::<OpaqueCastFunction>().filter(|kept| !kept.is_try_cast)?;
    let is_time = matches!(kept.target_type, DataType::Timestamp(_, _)) && !kept.rounds_time;
    is_time.then(|| Cast::new(Box::new(call.args[0].clone()), kept.target_type.clone()))
}

/// What is cast, and to which type, if the expression is a cast that changes no value.
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

/// A number in a type that has fewer of them, or a time in another unit.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OpaqueCastFunction {
    target_type: DataType,
    is_try_cast: bool,
    /// True if `to` is a time of a coarser unit than what is cast.
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

/// Returns texts of times of day; one without a colon is an error, or null if the cast is tried.
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

/// Returns times in the unit of the coarser type `to`, each the nearest one.
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
