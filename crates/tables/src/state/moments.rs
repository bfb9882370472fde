//! Counts and exact sums of values, squares and products, for what
//! [`Statistic`](crate::statistics::Statistic) tells.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, PrimitiveArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use tidemill_base::error::Result;
use tidemill_sketch::{MomentValue, MomentValueTooLarge, Moments, SketchError};

use super::sketches::{Filled, SketchKind};
use super::{Rows, mismatch};
use crate::spec::{Aggregate, Function, Precision};
use crate::statistics::{Regression, Statistic, too_large};
use crate::value;

/// Numbers as Arrow has them.
pub(crate) trait Summed: MomentValue {
    type Arrow: ArrowPrimitiveType<Native = Self>;
}

impl Summed for i64 {
    type Arrow = Int64Type;
}

impl Summed for f64 {
    type Arrow = Float64Type;
}

/// Returns whether the numbers are added up as integers: if all of them are integers of 64 bits, and no higher powers are
/// wanted than squares.
pub(crate) fn is_whole(aggregate: &Aggregate) -> bool {
    let is_whole = |of: &DataType| of.is_integer() && of != &DataType::UInt64;
    let second = aggregate.second.as_ref();
    let is_of_powers =
        matches!(aggregate.function, Function::Statistic(statistic) if statistic.is_of_powers());
    !is_of_powers && is_whole(&aggregate.argument_type) && second.is_none_or(|(_, of)| is_whole(of))
}

/// The rows of one column or two.
pub(crate) struct Pairs<N: Summed> {
    x: PrimitiveArray<N::Arrow>,
    y: Option<PrimitiveArray<N::Arrow>>,
}

impl<N: Summed> Pairs<N> {
    /// # Errors
    /// Where the columns are not of numbers.
    pub(crate) fn new(x: &ArrayRef, y: Option<&ArrayRef>) -> Result<Self> {
        let summed = |values: &ArrayRef| -> Result<PrimitiveArray<N::Arrow>> {
            Ok(value::cast_to(values, &N::Arrow::DATA_TYPE)?.as_primitive().clone())
        };
        Ok(Pairs { x: summed(x)?, y: y.map(summed).transpose()? })
    }

    /// The rows that count.
    pub(crate) fn nulls(&self) -> Option<NullBuffer> {
        NullBuffer::union(self.x.nulls(), self.y.as_ref().and_then(|y| y.nulls()))
    }

    /// A row that counts; its second value is 0 where there is no second column.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> (N, N) {
        (self.x.value(row), self.y.as_ref().map_or(N::ZERO, |y| y.value(row)))
    }
}

/// The states of numbers `N`.
pub(super) struct MomentsOf<N, const SUMS: usize> {
    /// What the plan calls the first of the aggregates.
    name: String,
    number: std::marker::PhantomData<N>,
}

impl<N, const SUMS: usize> MomentsOf<N, SUMS> {
    pub(super) fn new(aggregate: &Aggregate) -> Self {
        MomentsOf { name: aggregate.output.name().clone(), number: std::marker::PhantomData }
    }
}

impl<N: Summed, const SUMS: usize> SketchKind for MomentsOf<N, SUMS> {
    type State = Moments<N, SUMS>;
    type Item = ();
    const NAME: &'static str = "moments";

    fn empty(&self) -> Self::State {
        Moments::default()
    }

    fn heap(state: &Self::State) -> usize {
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

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let pairs = Pairs::<N>::new(rows.values()?, rows.second)?;
        let added = states.try_each(rows, pairs.nulls().as_ref(), |state, row| {
            let (x, y) = pairs.row(row);
            state.add(x, y)
        });
        added.map_err(|MomentValueTooLarge| too_large(&self.name))
    }

    fn precision(_: &Self::State, _: &Aggregate) -> Option<Precision> {
        None
    }

    fn finish(&self, states: &[Self::State], of: &Aggregate) -> Result<ArrayRef> {
        let answers: ArrayRef = match of.function {
            Function::Statistic(Statistic::Regression(Regression::Count)) => {
                Arc::new(states.iter().map(|state| Some(state.count())).collect::<UInt64Array>())
            }
            Function::Statistic(statistic) => {
                let answers =
                    states.iter().map(|state| statistic.answer(state, Default::default()));
                Arc::new(answers.collect::<Float64Array>())
            }
            _ => return Err(mismatch(Self::NAME)),
        };
        value::cast_to(&answers, of.output.data_type())
    }
}
