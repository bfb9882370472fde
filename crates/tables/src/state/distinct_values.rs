//! States of `distinct_values`: the distinct values, up to a maximum count.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, LargeListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use tidemill_base::error::Result;
use tidemill_sketch::{DistinctValues, SketchError};

use super::GroupedRows;
use super::sketch_column::{BufferedSketchStates, SketchKind, update_and_count_heap};
use crate::spec::{SketchPrecision, TableAggregate};
use crate::value_encoding;

/// The sketch kind of lists of distinct values.
pub(super) struct DistinctValuesKind {
    empty_state: DistinctValues,
    argument_type: DataType,
}

impl DistinctValuesKind {
    pub(super) fn new(empty: DistinctValues, argument: DataType) -> Self {
        DistinctValuesKind { empty_state: empty, argument_type: argument }
    }
}

impl SketchKind for DistinctValuesKind {
    type State = DistinctValues;
    type Item = ();
    const NAME: &'static str = "distinct_values";

    fn new_state(&self) -> DistinctValues {
        self.empty_state.clone()
    }

    fn heap_bytes(state: &DistinctValues) -> usize {
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

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let values = rows.required_values()?;
        let nulls = values.logical_nulls();
        let items = value_encoding::SortableItems::new(values)?;
        states.has_updates = true;
        let BufferedSketchStates { states, heap_bytes: heap, .. } = states;
        items.for_each_item(
            |each| rows.for_each_row(nulls.as_ref(), each),
            |group, item| {
                update_and_count_heap(
                    &mut states[group],
                    heap,
                    DistinctValues::heap_bytes,
                    |state| {
                        state.add(item);
                    },
                );
            },
        );
        Ok(())
    }

    fn precision(state: &DistinctValues, _: &TableAggregate) -> Option<SketchPrecision> {
        Some(SketchPrecision::new(!state.has_overflowed(), 0.0))
    }

    /// Returns the values in ascending order; NULL for groups with too many.
    fn finish(&self, states: &[DistinctValues], of: &TableAggregate) -> Result<ArrayRef> {
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
        let values = value_encoding::decode_items(&items, &self.argument_type)?;
        let item = Arc::new(Field::new_list_field(self.argument_type.clone(), true));
        let nulls = Some(NullBuffer::from(present)).filter(|nulls| nulls.null_count() > 0);
        let lists =
            LargeListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, nulls)?;
        value_encoding::cast_exactly(&(Arc::new(lists) as ArrayRef), of.output_field.data_type())
    }
}
