//! States of `distinct_sample` and `inverse_histogram`: a sample of the distinct values by smallest hash,
//! each with the weight of all its rows, from which the frequency distribution of values is estimated.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, LargeListArray, PrimitiveArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Fields, Float64Type, Int64Type};
use tidemill_base::error::{Error, Result};
use tidemill_sketch::{DistinctSample, SampleWeight, SketchError, hash_bytes};

use super::sketch_column::{BufferedSketchStates, SketchKind, update_and_count_heap};
use super::{GroupedRows, state_type_error};
use crate::spec::{MergeableFunction, SketchPrecision, TableAggregate};
use crate::value_encoding;

/// A weight that an Arrow column holds.
pub(super) trait ArrowWeight: SampleWeight {
    type Arrow: ArrowPrimitiveType;
    fn from_native(value: <Self::Arrow as ArrowPrimitiveType>::Native) -> Self;
    /// The weight of a row if the call has no weight argument.
    const DEFAULT_WEIGHT: Self;
    /// Returns the sums as an array; `None` if one does not fit its type.
    fn sums_to_array(sums: Vec<Self>) -> Option<ArrayRef>;
    /// Returns the estimated number of distinct values by frequency, for weights that are counts.
    fn inverse_histogram(_: &DistinctSample<Self>) -> Option<Vec<(i128, f64)>> {
        None
    }
}

impl ArrowWeight for i128 {
    type Arrow = Int64Type;
    const DEFAULT_WEIGHT: i128 = 1;

    fn from_native(value: i64) -> i128 {
        value.into()
    }

    fn sums_to_array(sums: Vec<i128>) -> Option<ArrayRef> {
        let sums = sums.into_iter().map(|sum| i64::try_from(sum).ok());
        Some(Arc::new(Int64Array::from(sums.collect::<Option<Vec<i64>>>()?)))
    }

    fn inverse_histogram(sample: &DistinctSample<i128>) -> Option<Vec<(i128, f64)>> {
        Some(sample.inverse_histogram())
    }
}

impl ArrowWeight for f64 {
    type Arrow = Float64Type;
    const DEFAULT_WEIGHT: f64 = 1.0;

    fn from_native(value: f64) -> f64 {
        value
    }

    fn sums_to_array(sums: Vec<f64>) -> Option<ArrayRef> {
        Some(Arc::new(Float64Array::from(sums)))
    }
}

/// The sketch kind of samples of distinct values.
pub(super) struct DistinctSampleKind<W: SampleWeight> {
    empty_state: DistinctSample<W>,
    argument_type: DataType,
    /// The aggregate's name in the plan.
    output_name: String,
}

impl<W: SampleWeight> DistinctSampleKind<W> {
    pub(super) fn new(items: u32, aggregate: &TableAggregate) -> Result<Self> {
        Ok(DistinctSampleKind {
            empty_state: DistinctSample::new(items).map_err(|e| Error::usage(e.to_string()))?,
            argument_type: aggregate.argument_type.clone(),
            output_name: aggregate.output_field.name().clone(),
        })
    }
}

impl<W: ArrowWeight> SketchKind for DistinctSampleKind<W>
where
    DistinctSample<W>: Sync,
{
    type State = DistinctSample<W>;
    type Item = ();
    const NAME: &'static str = "distinct_sample";

    fn new_state(&self) -> DistinctSample<W> {
        self.empty_state.clone()
    }

    fn heap_bytes(state: &DistinctSample<W>) -> usize {
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

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let values = rows.required_values()?;
        let items = value_encoding::SortableItems::new(values)?;
        let weights: Option<PrimitiveArray<W::Arrow>> = match rows.second_values {
            Some(weights) => {
                let weights = value_encoding::cast_exactly(weights, &W::Arrow::DATA_TYPE)?;
                Some(weights.as_primitive().clone())
            }
            None => None,
        };
        let of_weights = weights.as_ref().and_then(|weights| weights.nulls());
        let nulls = NullBuffer::union(values.logical_nulls().as_ref(), of_weights);
        states.has_updates = true;
        let BufferedSketchStates { states, heap_bytes: heap, .. } = states;
        items.for_each_item(
            |each| rows.for_each_row(nulls.as_ref(), |row, _| each(row, row)),
            |row, item| {
                let weight = weights
                    .as_ref()
                    .map_or(W::DEFAULT_WEIGHT, |weights| W::from_native(weights.value(row)));
                update_and_count_heap(
                    &mut states[rows.groups[row]],
                    heap,
                    DistinctSample::heap_bytes,
                    |state| {
                        state.add(hash_bytes(item, 0), item, weight);
                    },
                );
            },
        );
        Ok(())
    }

    fn precision(state: &DistinctSample<W>, _: &TableAggregate) -> Option<SketchPrecision> {
        if state.is_exact() {
            return Some(SketchPrecision::EXACT);
        }
        let estimate = state.distinct_estimate();
        Some(SketchPrecision::new(false, estimate.standard_error / estimate.value))
    }

    fn finish(&self, states: &[DistinctSample<W>], of: &TableAggregate) -> Result<ArrayRef> {
        let overflow = || Error::Overflow {
            message: format!("`{}` does not fit BIGINT", self.output_name),
            hint: Some("weights as DOUBLE, by CAST, are added up in DOUBLE".into()),
        };
        let mut lengths = Vec::with_capacity(states.len());
        let columns = if let MergeableFunction::InverseHistogram { .. } = of.function {
            let (mut times, mut values) = (Vec::new(), Vec::new());
            for state in states {
                let bars =
                    W::inverse_histogram(state).ok_or_else(|| state_type_error(Self::NAME))?;
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
            let values = value_encoding::decode_items(&items, &self.argument_type)?;
            vec![values, W::sums_to_array(sums).ok_or_else(overflow)?]
        };
        build_struct_lists(lengths, columns, of.output_field.data_type())
    }
}

/// Builds lists of structs from columns and list lengths.
///
/// # Errors
/// Returns an error if `output` is not a list of structs.
pub(super) fn build_struct_lists(
    lengths: Vec<usize>,
    columns: Vec<ArrayRef>,
    output: &DataType,
) -> Result<ArrayRef> {
    let fields: &Fields = match output {
        DataType::List(item) => match item.data_type() {
            DataType::Struct(fields) => fields,
            _ => return Err(state_type_error("lists of structs")),
        },
        _ => return Err(state_type_error("lists of structs")),
    };
    let structs = StructArray::try_new(fields.clone(), columns, None)?;
    let item = Arc::new(Field::new_list_field(structs.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let lists: ArrayRef =
        Arc::new(LargeListArray::try_new(item, offsets, Arc::new(structs), None)?);
    value_encoding::cast_exactly(&lists, output)
}
