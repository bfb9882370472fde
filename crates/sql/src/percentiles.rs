//! `percentile_cont` with full precision.
//!
//! DataFusion's function holds all values, as it must, and then rounds the weight between two of them to steps of a
//! millionth: the 90th percentile between 654.2 and 654.4 comes out slightly too low. The accumulators here wrap
//! DataFusion's and compute the result from the values in their state.
//! Times, which DataFusion's function does not accept, are kept as integers of their units
//! ([`TimePercentileAccumulator`]).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::functions_aggregate::percentile_cont::PercentileCont;
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    Signature, TypeSignature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use tidemill_sketch::QuantileLevel;

/// Returns the function that a session registers.
pub(crate) fn exact_percentile_cont_udaf() -> AggregateUDF {
    let theirs = PercentileCont::new();
    let numbers = theirs.signature();
    let either = vec![numbers.type_signature.clone(), TypeSignature::UserDefined];
    let mut signature = Signature::one_of(either, Volatility::Immutable);
    signature.parameter_names.clone_from(&numbers.parameter_names);
    AggregateUDF::from(ExactPercentileCont { datafusion_function: theirs, signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactPercentileCont {
    datafusion_function: PercentileCont,
    signature: Signature,
}

/// Returns the type in which a mean or a percentile of times is computed and returned; `None` for other types.
///
/// The result lies between two values, so a unit of a second or a millisecond becomes a microsecond, and a
/// date a timestamp.
#[must_use]
pub fn interpolated_time_type(of: &DataType) -> Option<DataType> {
    Some(match of {
        DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        DataType::Time32(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, _) | DataType::Time64(_) => of.clone(),
        _ => return None,
    })
}

impl AggregateUDFImpl for ExactPercentileCont {
    fn name(&self) -> &str {
        self.datafusion_function.name()
    }

    fn aliases(&self) -> &[String] {
        self.datafusion_function.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of, _] => match interpolated_time_type(of) {
                Some(time) => Ok(vec![time, DataType::Float64]),
                None => plan_err!("`{}` takes numbers and times", self.name()),
            },
            _ => plan_err!("`{}` takes a value and a share from 0 to 1", self.name()),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.datafusion_function.return_type(arguments)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if args
            .input_fields
            .first()
            .is_some_and(|of| interpolated_time_type(of.data_type()).is_some())
        {
            let item = Arc::new(Field::new_list_field(DataType::Int64, true));
            let name = format_state_name(args.name, "times");
            return Ok(vec![Arc::new(Field::new(name, DataType::List(item), true))]);
        }
        self.datafusion_function.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let of = args.expr_fields[0].data_type().clone();
        let q = fraction_argument(&args);
        if interpolated_time_type(&of).is_some() {
            return match q {
                Some(q) => {
                    let is_distinct = args.is_distinct;
                    Ok(Box::new(TimePercentileAccumulator {
                        units: Vec::new(),
                        fraction: q,
                        value_type: of,
                        is_distinct,
                    }))
                }
                None => plan_err!("the share of `{}` is a number from 0 to 1", self.name()),
            };
        }
        let inner = self.datafusion_function.accumulator(args)?;
        Ok(match (of, q) {
            (DataType::Null, _) | (_, None) => inner,
            (of, Some(q)) => Box::new(PercentileAccumulator { inner, fraction: q, value_type: of }),
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        let is_of_times = args
            .expr_fields
            .first()
            .is_some_and(|of| interpolated_time_type(of.data_type()).is_some());
        !is_of_times && self.datafusion_function.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let of = args.expr_fields[0].data_type().clone();
        let q = fraction_argument(&args);
        let inner = self.datafusion_function.create_groups_accumulator(args)?;
        Ok(match q {
            Some(q) => Box::new(PercentileGroupsAccumulator { inner, fraction: q, value_type: of }),
            None => inner,
        })
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.datafusion_function.simplify()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.datafusion_function.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.datafusion_function.documentation()
    }
}

/// Returns the fraction of values below the result, or `None` for a non-literal argument, which DataFusion rejects.
fn fraction_argument(args: &AccumulatorArgs) -> Option<f64> {
    let literal = args.exprs.get(1)?.downcast_ref::<Literal>()?;
    let q = match literal.value().cast_to(&DataType::Float64).ok()? {
        ScalarValue::Float64(Some(q)) if (0.0..=1.0).contains(&q) => q,
        _ => return None,
    };
    let is_descending = args.order_bys.first().is_some_and(|sort| sort.options.descending);
    Some(if is_descending { 1.0 - q } else { q })
}

/// Returns the percentile at fraction `q`, interpolated linearly between two values; NaN is the largest value.
///
/// # Errors
/// An error if the values are not numbers.
pub fn percentile_of_array(values: &ArrayRef, q: f64) -> Result<Option<f64>> {
    let values = cast(values, &DataType::Float64)?;
    Ok(percentile_of_floats(values.as_primitive::<Float64Type>().iter().flatten().collect(), q))
}

/// Returns the percentile of floats: [`tidemill_sketch::QuantileLevel::select_quantile`], like `quantile` and the quantiles of lists. Returns `None`
/// for a fraction outside of 0 to 1.
pub fn percentile_of_floats(mut values: Vec<f64>, q: f64) -> Option<f64> {
    QuantileLevel::new(q)?.select_quantile(&mut values)
}

/// Returns the list of values in a state of DataFusion's accumulator.
fn state_list(state: &[ArrayRef]) -> Result<&arrow::array::ListArray> {
    match state {
        [list] if matches!(list.data_type(), DataType::List(_)) => Ok(list.as_list::<i32>()),
        _ => exec_err!("the state of percentile_cont is no list"),
    }
}

#[derive(Debug)]
struct PercentileAccumulator {
    inner: Box<dyn Accumulator>,
    fraction: f64,
    value_type: DataType,
}

impl Accumulator for PercentileAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    /// Restores the state afterwards, because a growing window evaluates the accumulator again.
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state: Vec<ArrayRef> =
            self.inner.state()?.iter().map(ScalarValue::to_array).collect::<Result<_>>()?;
        let answer = match state_list(&state)?.is_null(0) {
            true => None,
            false => percentile_of_array(&state_list(&state)?.value(0), self.fraction)?,
        };
        self.inner.merge_batch(&state)?;
        ScalarValue::Float64(answer).cast_to(&self.value_type)
    }
}

/// An accumulator of the times of one group, as integers of their units since 1970 or midnight.
#[derive(Debug)]
struct TimePercentileAccumulator {
    units: Vec<i64>,
    fraction: f64,
    value_type: DataType,
    is_distinct: bool,
}

/// Returns the percentile of times at fraction `q`, interpolated linearly between two times; `None` without times.
/// The result is exact and rounded once to a unit. A tie rounds away from zero, like a mean of times.
pub fn percentile_of_times(units: &mut [i64], q: f64) -> Option<i64> {
    let last = units.len().checked_sub(1)?;
    let place = q * last as f64;
    let below = (place.floor() as usize).min(last);
    let weight = place - place.floor();
    let (_, lower, above) = units.select_nth_unstable(below);
    Some(match above.iter().min() {
        Some(upper) if weight > 0.0 => {
            // A weight below 1 is a whole number of 2^-53, or nearly so.
            const BITS: u32 = 53;
            let parts = (weight * (1_u64 << BITS) as f64).round() as i128;
            let distance = i128::from(*upper) - i128::from(*lower);
            let place = (i128::from(*lower) << BITS) + distance * parts;
            let units = (place.abs() + (1 << (BITS - 1))) >> BITS;
            i64::try_from(units * place.signum()).unwrap_or(*upper)
        }
        _ => *lower,
    })
}

impl TimePercentileAccumulator {
    fn cast_to_units(values: &[ArrayRef]) -> Result<ArrayRef> {
        match values.first() {
            Some(values) => Ok(cast(values, &DataType::Int64)?),
            None => exec_err!("a percentile of nothing"),
        }
    }
}

impl Accumulator for TimePercentileAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.units
            .extend(Self::cast_to_units(values)?.as_primitive::<Int64Type>().iter().flatten());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for unit in Self::cast_to_units(values)?.as_primitive::<Int64Type>().iter().flatten() {
            if let Some(at) = self.units.iter().position(|kept| *kept == unit) {
                self.units.swap_remove(at);
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for units in state_list(states)?.iter().flatten() {
            self.units.extend(units.as_primitive::<Int64Type>().iter().flatten());
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let units = Int64Array::from(std::mem::take(&mut self.units));
        let item = Arc::new(Field::new_list_field(DataType::Int64, true));
        let offsets = OffsetBuffer::from_lengths([units.len()]);
        let list = ListArray::try_new(item, offsets, Arc::new(units), None)?;
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let answer = match self.is_distinct {
            true => {
                let mut distinct = self.units.clone();
                distinct.sort_unstable();
                distinct.dedup();
                percentile_of_times(&mut distinct, self.fraction)
            }
            false => percentile_of_times(&mut self.units, self.fraction),
        };
        ScalarValue::Int64(answer).cast_to(&self.value_type)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.units.capacity() * size_of::<i64>()
    }
}

struct PercentileGroupsAccumulator {
    inner: Box<dyn GroupsAccumulator>,
    fraction: f64,
    value_type: DataType,
}

impl GroupsAccumulator for PercentileGroupsAccumulator {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.inner.update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let state = self.inner.state(emit_to)?;
        let lists = state_list(&state)?;
        let answers = lists.iter().map(|values| match values {
            Some(values) => percentile_of_array(&values, self.fraction),
            None => Ok(None),
        });
        let answers: Float64Array = answers.collect::<Result<_>>()?;
        Ok(cast(&answers, &self.value_type)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn interpolated_times_are_rounded_to_a_unit() {
        for (units, q, expected) in [
            (&[][..], 0.5, None),
            (&[7], 0.9, Some(7)),
            (&[3, 1, 2], 0.5, Some(2)),
            (&[0, 10], 0.25, Some(3)),
            (&[-10, 0], 0.5, Some(-5)),
            (&[0, 1], 0.5, Some(1)),
            (&[-1, 0], 0.5, Some(-1)),
            (&[-4, -1], 0.5, Some(-3)),
            (
                &[946_684_800_000_000_001, 7_271_596_800_000_000_003],
                0.5,
                Some(4_109_140_800_000_000_002),
            ),
            (
                &[-62_135_596_799_999_999, 253_370_764_800_000_003],
                0.5,
                Some(95_617_584_000_000_002),
            ),
            (&[0, 1 << 60], 0.25, Some(1 << 58)),
            (
                &[1_700_000_000_000_000_001, 1_700_000_000_000_000_003],
                0.5,
                Some(1_700_000_000_000_000_002),
            ),
            (&[i64::MIN, i64::MAX], 1.0, Some(i64::MAX)),
            (&[i64::MIN, i64::MAX], 0.0, Some(i64::MIN)),
        ] {
            assert_eq!(percentile_of_times(&mut units.to_vec(), q), expected, "{units:?} {q}");
        }
    }

    #[test]
    fn interpolation_weight_has_full_precision() {
        let check = |values: Vec<f64>, q: f64, expected: Option<f64>| {
            let values: ArrayRef = Arc::new(Float64Array::from(values));
            assert_eq!(percentile_of_array(&values, q).unwrap(), expected);
        };
        check(vec![], 0.5, None);
        check(vec![7.0], 0.9, Some(7.0));
        check(vec![3.0, 1.0, 2.0], 0.5, Some(2.0));
        check(vec![0.0, 1.0], 1.0 / 3.0, Some(1.0 / 3.0));
        check(vec![10.0, 20.0, 30.0, 40.0], 0.9, Some(30.0 + 10.0 * (0.9 * 3.0 - 2.0)));
        check(vec![f64::INFINITY, f64::INFINITY, 1.0], 0.9, Some(f64::INFINITY));
        check(vec![1.0, 2.0], 1.0, Some(2.0));
        check(vec![1.0, 2.0], 0.0, Some(1.0));
        // A rank that is an integer in decimal arithmetic needs no interpolation.
        check((0..=100).map(f64::from).collect(), 0.55, Some(55.0));
    }
}
