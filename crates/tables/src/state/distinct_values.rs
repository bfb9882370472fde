//! The different values themselves, up to a number.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, LargeListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use tidemill_base::error::Result;
use tidemill_sketch::{DistinctValues, SketchError};

use super::Rows;
use super::sketches::{Filled, SketchKind, booked};
use crate::spec::{Aggregate, Precision};
use crate::value;

pub(super) struct DistinctValuesOf {
    empty: DistinctValues,
    argument: DataType,
}

impl DistinctValuesOf {
    pub(super) fn new(empty: DistinctValues, argument: DataType) -> Self {
        DistinctValuesOf { empty, argument }
    }
}

impl SketchKind for DistinctValuesOf {
    type State = DistinctValues;
    type Item = ();
    const NAME: &'static str = "distinct_values";

    fn empty(&self) -> DistinctValues {
        self.empty.clone()
    }

    fn heap(state: &DistinctValues) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut DistinctValues, from: &mut DistinctValues) {
        into.merge_owned(std::mem::take(from));
    }

    fn encode(state: &DistinctValues, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<DistinctValues, SketchError> {
        DistinctValues::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let values = rows.values()?;
        let nulls = values.logical_nulls();
        let items = value::Items::new(values)?;
        states.has_states = true;
        let Filled { states, heap, .. } = states;
        items.for_each(
            |each| rows.for_each(nulls.as_ref(), each),
            |group, item| {
                booked(&mut states[group], heap, DistinctValues::heap_bytes, |state| {
                    state.add(item);
                });
            },
        );
        Ok(())
    }

    fn precision(state: &DistinctValues, _: &Aggregate) -> Option<Precision> {
        Some(Precision::new(!state.has_overflowed(), 0.0))
    }

    /// The values in their order; null where there were too many.
    fn finish(&self, states: &[DistinctValues], of: &Aggregate) -> Result<ArrayRef> {
        let mut items: Vec<&[u8]> = Vec::new();
        let mut lengths = Vec::with_capacity(states.len());
        let mut present = Vec::with_capacity(states.len());
        for state in states {
            let own = state.items();
            present.push(own.is_some());
            let own = own.unwrap_or_default();
            lengths.push(own.len());
            items.extend(own);
        }
        let values = value::from_items(&items, &self.argument)?;
        let item = Arc::new(Field::new_list_field(self.argument.clone(), true));
        let nulls = Some(NullBuffer::from(present)).filter(|nulls| nulls.null_count() > 0);
        let lists =
            LargeListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, nulls)?;
        value::cast_to(&(Arc::new(lists) as ArrayRef), of.output.data_type())
    }
}
