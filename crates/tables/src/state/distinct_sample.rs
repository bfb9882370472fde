//! Some of the different values, each with the weight of all its rows: those of smallest hash; and what these say of
//! how often values occur.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, LargeListArray, PrimitiveArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Fields, Float64Type, Int64Type};
use tidemill_base::error::{Error, Result};
use tidemill_sketch::{DistinctSample, SampleWeight, SketchError, hash_bytes};

use super::sketches::{Filled, SketchKind, booked};
use super::{Rows, mismatch};
use crate::spec::{Aggregate, Function, Precision};
use crate::value;

/// Weights as columns have them.
pub(super) trait Weighed: SampleWeight {
    type Arrow: ArrowPrimitiveType;
    fn of(value: <Self::Arrow as ArrowPrimitiveType>::Native) -> Self;
    /// The weight of one row where none is given.
    const ONE: Self;
    /// Sums as a column; none where one does not fit.
    fn answer(sums: Vec<Self>) -> Option<ArrayRef>;
    /// How many different values occur how often, where weights count.
    fn inverse_histogram(_: &DistinctSample<Self>) -> Option<Vec<(i128, f64)>> {
        None
    }
}

impl Weighed for i128 {
    type Arrow = Int64Type;
    const ONE: i128 = 1;

    fn of(value: i64) -> i128 {
        value.into()
    }

    fn answer(sums: Vec<i128>) -> Option<ArrayRef> {
        let sums = sums.into_iter().map(|sum| i64::try_from(sum).ok());
        Some(Arc::new(Int64Array::from(sums.collect::<Option<Vec<i64>>>()?)))
    }

    fn inverse_histogram(sample: &DistinctSample<i128>) -> Option<Vec<(i128, f64)>> {
        Some(sample.inverse_histogram())
    }
}

impl Weighed for f64 {
    type Arrow = Float64Type;
    const ONE: f64 = 1.0;

    fn of(value: f64) -> f64 {
        value
    }

    fn answer(sums: Vec<f64>) -> Option<ArrayRef> {
        Some(Arc::new(Float64Array::from(sums)))
    }
}

pub(super) struct DistinctSampleOf<W: SampleWeight> {
    empty: DistinctSample<W>,
    argument: DataType,
    /// What the plan calls it.
    name: String,
}

impl<W: SampleWeight> DistinctSampleOf<W> {
    pub(super) fn new(items: u32, aggregate: &Aggregate) -> Result<Self> {
        Ok(DistinctSampleOf {
            empty: DistinctSample::new(items).map_err(|e| Error::usage(e.to_string()))?,
            argument: aggregate.argument_type.clone(),
            name: aggregate.output.name().clone(),
        })
    }
}

impl<W: Weighed> SketchKind for DistinctSampleOf<W>
where
    DistinctSample<W>: Sync,
{
    type State = DistinctSample<W>;
    type Item = ();
    const NAME: &'static str = "distinct_sample";

    fn empty(&self) -> DistinctSample<W> {
        self.empty.clone()
    }

    fn heap(state: &DistinctSample<W>) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut DistinctSample<W>, from: &mut DistinctSample<W>) {
        into.merge_owned(std::mem::take(from));
    }

    fn encode(state: &DistinctSample<W>, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<DistinctSample<W>, SketchError> {
        DistinctSample::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let values = rows.values()?;
        let items = value::Items::new(values)?;
        let weights: Option<PrimitiveArray<W::Arrow>> = match rows.second {
            Some(weights) => {
                let weights = value::cast_to(weights, &W::Arrow::DATA_TYPE)?;
                Some(weights.as_primitive().clone())
            }
            None => None,
        };
        let of_weights = weights.as_ref().and_then(|weights| weights.nulls());
        let nulls = NullBuffer::union(values.logical_nulls().as_ref(), of_weights);
        states.has_states = true;
        let Filled { states, heap, .. } = states;
        items.for_each(
            |each| rows.for_each(nulls.as_ref(), |row, _| each(row, row)),
            |row, item| {
                let weight = weights.as_ref().map_or(W::ONE, |weights| W::of(weights.value(row)));
                booked(&mut states[rows.groups[row]], heap, DistinctSample::heap_bytes, |state| {
                    state.add(hash_bytes(item, 0), item, weight);
                });
            },
        );
        Ok(())
    }

    fn precision(state: &DistinctSample<W>, _: &Aggregate) -> Option<Precision> {
        if state.is_exact() {
            return Some(Precision::EXACT);
        }
        let estimate = state.distinct_estimate();
        Some(Precision::new(false, estimate.standard_error / estimate.value))
    }

    fn finish(&self, states: &[DistinctSample<W>], of: &Aggregate) -> Result<ArrayRef> {
        let overflow = || Error::Overflow {
            message: format!("`{}` does not fit BIGINT", self.name),
            hint: Some("weights as DOUBLE, by CAST, are added up in DOUBLE".into()),
        };
        let mut lengths = Vec::with_capacity(states.len());
        let columns = if let Function::InverseHistogram { .. } = of.function {
            let (mut times, mut values) = (Vec::new(), Vec::new());
            for state in states {
                let bars = W::inverse_histogram(state).ok_or_else(|| mismatch(Self::NAME))?;
                lengths.push(bars.len());
                for (count, number) in bars {
                    times.push(i64::try_from(count).map_err(|_| overflow())?);
                    values.push(number);
                }
            }
            vec![
                Arc::new(Int64Array::from(times)) as ArrayRef,
                Arc::new(Float64Array::from(values)),
            ]
        } else {
            let (mut items, mut sums) = (Vec::new(), Vec::new());
            for state in states {
                let entries = state.entries();
                lengths.push(entries.len());
                for entry in entries {
                    items.push(entry.item);
                    sums.push(entry.weight);
                }
            }
            let values = value::from_items(&items, &self.argument)?;
            vec![values, W::answer(sums).ok_or_else(overflow)?]
        };
        entries(lengths, columns, of.output.data_type())
    }
}

/// Lists of structs of a type.
///
/// # Errors
/// Where the type is no list of structs.
pub(super) fn entries(
    lengths: Vec<usize>,
    columns: Vec<ArrayRef>,
    output: &DataType,
) -> Result<ArrayRef> {
    let fields: &Fields = match output {
        DataType::List(item) => match item.data_type() {
            DataType::Struct(fields) => fields,
            _ => return Err(mismatch("lists of structs")),
        },
        _ => return Err(mismatch("lists of structs")),
    };
    let structs = StructArray::try_new(fields.clone(), columns, None)?;
    let item = Arc::new(Field::new_list_field(structs.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let lists: ArrayRef =
        Arc::new(LargeListArray::try_new(item, offsets, Arc::new(structs), None)?);
    value::cast_to(&lists, output)
}
