//! `percentile_cont` to the last digit.
//!
//! DataFusion's holds all values, as it must, and then puts the weight between two of them in steps of a
//! millionth: the 90th percentile of what lies between 654.2 and 654.4 comes out a little too low. Its
//! accumulators are kept here, and asked for their values at the end in the place of their answer.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions_aggregate::percentile_cont::PercentileCont;
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    Signature,
};
use datafusion::physical_expr::expressions::Literal;

/// The function as a session has it.
pub(crate) fn percentile_cont() -> AggregateUDF {
    AggregateUDF::from(Percentile { theirs: PercentileCont::new() })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Percentile {
    theirs: PercentileCont,
}

impl AggregateUDFImpl for Percentile {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn aliases(&self) -> &[String] {
        self.theirs.aliases()
    }

    fn signature(&self) -> &Signature {
        self.theirs.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.theirs.return_type(arguments)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.theirs.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let of = args.expr_fields[0].data_type().clone();
        let q = share(&args);
        let inner = self.theirs.accumulator(args)?;
        Ok(match (of, q) {
            (DataType::Null, _) | (_, None) => inner,
            (of, Some(q)) => Box::new(Values { inner, q, of }),
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.theirs.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let of = args.expr_fields[0].data_type().clone();
        let q = share(&args);
        let inner = self.theirs.create_groups_accumulator(args)?;
        Ok(match q {
            Some(q) => Box::new(ValuesOfGroups { inner, q, of }),
            None => inner,
        })
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.theirs.simplify()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.theirs.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.theirs.documentation()
    }
}

/// Which share of the values is below the answer; what is no literal is left to DataFusion to refuse.
fn share(args: &AccumulatorArgs) -> Option<f64> {
    let literal = args.exprs.get(1)?.downcast_ref::<Literal>()?;
    let q = match literal.value().cast_to(&DataType::Float64).ok()? {
        ScalarValue::Float64(Some(q)) if (0.0..=1.0).contains(&q) => q,
        _ => return None,
    };
    let is_descending = args.order_bys.first().is_some_and(|sort| sort.options.descending);
    Some(if is_descending { 1.0 - q } else { q })
}

/// The value below which a share of all is, between two of them by their distance; NaN is the largest.
///
/// # Errors
/// Where the values are no numbers.
pub fn percentile(values: &ArrayRef, q: f64) -> Result<Option<f64>> {
    let values = cast(values, &DataType::Float64)?;
    Ok(percentile_of(values.as_primitive::<Float64Type>().iter().flatten().collect(), q))
}

/// The same of floats.
pub fn percentile_of(mut values: Vec<f64>, q: f64) -> Option<f64> {
    // As the order of floats has it, of which there are two zeros and many that are no number.
    values
        .iter_mut()
        .for_each(|value| *value = if value.is_nan() { f64::NAN } else { *value + 0.0 });
    let last = values.len().checked_sub(1)?;
    let place = q * last as f64;
    let below = place.floor() as usize;
    let (_, lower, above) = values.select_nth_unstable_by(below.min(last), f64::total_cmp);
    let lower = *lower;
    let weight = place - place.floor();
    let upper = above.iter().copied().min_by(f64::total_cmp);
    Some(match upper {
        // Between two that are the same, infinities among them, there is nothing to calculate.
        Some(upper) if weight > 0.0 && upper != lower => lower + (upper - lower) * weight,
        _ => lower,
    })
}

/// The list of values in a state of DataFusion's.
fn values_of(state: &[ArrayRef]) -> Result<&arrow::array::ListArray> {
    match state {
        [list] if matches!(list.data_type(), DataType::List(_)) => Ok(list.as_list::<i32>()),
        _ => exec_err!("the state of percentile_cont is no list"),
    }
}

#[derive(Debug)]
struct Values {
    inner: Box<dyn Accumulator>,
    q: f64,
    of: DataType,
}

impl Accumulator for Values {
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

    /// Of a window that grows it is asked for again, so that the values go back.
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state: Vec<ArrayRef> =
            self.inner.state()?.iter().map(ScalarValue::to_array).collect::<Result<_>>()?;
        let answer = match values_of(&state)?.is_null(0) {
            true => None,
            false => percentile(&values_of(&state)?.value(0), self.q)?,
        };
        self.inner.merge_batch(&state)?;
        ScalarValue::Float64(answer).cast_to(&self.of)
    }
}

struct ValuesOfGroups {
    inner: Box<dyn GroupsAccumulator>,
    q: f64,
    of: DataType,
}

impl GroupsAccumulator for ValuesOfGroups {
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
        let lists = values_of(&state)?;
        let answers = lists.iter().map(|values| match values {
            Some(values) => percentile(&values, self.q),
            None => Ok(None),
        });
        let answers: Float64Array = answers.collect::<Result<_>>()?;
        Ok(cast(&answers, &self.of)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_weight_between_two_values_has_all_its_digits() {
        let check = |values: Vec<f64>, q: f64, expected: Option<f64>| {
            let values: ArrayRef = Arc::new(Float64Array::from(values));
            assert_eq!(percentile(&values, q).unwrap(), expected);
        };
        check(vec![], 0.5, None);
        check(vec![7.0], 0.9, Some(7.0));
        check(vec![3.0, 1.0, 2.0], 0.5, Some(2.0));
        check(vec![0.0, 1.0], 1.0 / 3.0, Some(1.0 / 3.0));
        check(vec![10.0, 20.0, 30.0, 40.0], 0.9, Some(30.0 + 10.0 * (0.9 * 3.0 - 2.0)));
        check(vec![f64::INFINITY, f64::INFINITY, 1.0], 0.9, Some(f64::INFINITY));
        check(vec![1.0, 2.0], 1.0, Some(2.0));
        check(vec![1.0, 2.0], 0.0, Some(1.0));
    }
}
