//! Counts and exact sums of values, squares and products, from which
//! [`MomentStatistic`](crate::aggregates::statistics::MomentStatistic) computes its answers.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, PrimitiveArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use tidemill_base::error::Result;
use tidemill_sketch::{MomentValue, MomentValueTooLarge, Moments, SketchError};

use super::sketch_column::{BufferedSketchStates, SketchKind};
use super::{GroupedRows, state_type_error};
use crate::aggregates::statistics::{MomentStatistic, RegressionStatistic, value_too_large_error};
use crate::spec::{MergeableFunction, SketchPrecision, TableAggregate};
use crate::value_encoding;

/// A number type of an Arrow primitive array.
pub(crate) trait MomentNumber: MomentValue {
    type Arrow: ArrowPrimitiveType<Native = Self>;
}

impl MomentNumber for i64 {
    type Arrow = Int64Type;
}

impl MomentNumber for f64 {
    type Arrow = Float64Type;
}

/// Returns true if the numbers are added up as integers: all of them are integers of at most 64 signed bits,
/// and the function needs no higher powers than squares.
pub(crate) fn has_integer_moments(aggregate: &TableAggregate) -> bool {
    let is_whole = |of: &DataType| of.is_integer() && of != &DataType::UInt64;
    let second = aggregate.second_argument.as_ref();
    let is_of_powers = matches!(aggregate.function, MergeableFunction::Statistic(statistic) if statistic.needs_higher_powers());
    !is_of_powers && is_whole(&aggregate.argument_type) && second.is_none_or(|(_, of)| is_whole(of))
}

/// The rows of one or two columns of numbers.
pub(crate) struct NumberPairs<N: MomentNumber> {
    x: PrimitiveArray<N::Arrow>,
    y: Option<PrimitiveArray<N::Arrow>>,
}

impl<N: MomentNumber> NumberPairs<N> {
    /// Casts the columns to numbers of type `N`.
    ///
    /// # Errors
    /// Returns an error if the columns are not numeric.
    pub(crate) fn new(x: &ArrayRef, y: Option<&ArrayRef>) -> Result<Self> {
        let summed = |values: &ArrayRef| -> Result<PrimitiveArray<N::Arrow>> {
            Ok(value_encoding::cast_exactly(values, &N::Arrow::DATA_TYPE)?.as_primitive().clone())
        };
        Ok(NumberPairs { x: summed(x)?, y: y.map(summed).transpose()? })
    }

    /// Returns the mask of rows without a null.
    pub(crate) fn null_mask(&self) -> Option<NullBuffer> {
        NullBuffer::union(self.x.nulls(), self.y.as_ref().and_then(|y| y.nulls()))
    }

    /// Returns a row that has no null; its second value is 0 without a second column.
    #[inline]
    pub(crate) fn value_pair(&self, row: usize) -> (N, N) {
        (self.x.value(row), self.y.as_ref().map_or(N::ZERO, |y| y.value(row)))
    }
}

/// The sketch kind of moments of numbers `N`.
pub(super) struct MomentsKind<N, const SUMS: usize> {
    /// The name of the first aggregate in the plan.
    output_name: String,
    number_type: std::marker::PhantomData<N>,
}

impl<N, const SUMS: usize> MomentsKind<N, SUMS> {
    pub(super) fn new(aggregate: &TableAggregate) -> Self {
        MomentsKind {
            output_name: aggregate.output_field.name().clone(),
            number_type: std::marker::PhantomData,
        }
    }
}

impl<N: MomentNumber, const SUMS: usize> SketchKind for MomentsKind<N, SUMS> {
    type State = Moments<N, SUMS>;
    type Item = ();
    const NAME: &'static str = "moments";

    fn new_state(&self) -> Self::State {
        Moments::default()
    }

    fn heap_bytes(state: &Self::State) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Self::State, from: &mut Self::State) {
        into.merge(from);
    }

    fn encode(state: &Self::State, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<Self::State, SketchError> {
        Moments::decode(bytes)
    }

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let pairs = NumberPairs::<N>::new(rows.required_values()?, rows.second_values)?;
        let added = states.try_update_each(rows, pairs.null_mask().as_ref(), |state, row| {
            let (x, y) = pairs.value_pair(row);
            state.add(x, y)
        });
        added.map_err(|MomentValueTooLarge| value_too_large_error(&self.output_name))
    }

    fn precision(_: &Self::State, _: &TableAggregate) -> Option<SketchPrecision> {
        None
    }

    fn finish(&self, states: &[Self::State], of: &TableAggregate) -> Result<ArrayRef> {
        let answers: ArrayRef = match of.function {
            MergeableFunction::Statistic(MomentStatistic::Regression(
                RegressionStatistic::Count,
            )) => Arc::new(states.iter().map(|state| Some(state.count())).collect::<UInt64Array>()),
            MergeableFunction::Statistic(statistic) => {
                let answers =
                    states.iter().map(|state| statistic.compute(state, Default::default()));
                Arc::new(answers.collect::<Float64Array>())
            }
            _ => return Err(state_type_error(Self::NAME)),
        };
        value_encoding::cast_exactly(&answers, of.output_field.data_type())
    }
}
