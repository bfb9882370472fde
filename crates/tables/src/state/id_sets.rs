//! States of exact sets: `unique_exact` (the number of distinct values), `id_set` (the set itself), and
//! unions and intersections of stored sets.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder, Int64Array};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use tidemill_base::error::{Error, Result};
use tidemill_functions::sketches::decode_id_set;
use tidemill_sketch::{DistinctValues, SketchError, SortedIdSet};

use super::sketch_column::{BufferedSketchStates, SketchKind, update_and_count_heap};
use super::stored_sketches::StoredSketchColumn;
use super::{GroupedRows, state_type_error};
use crate::spec::{MergeableFunction, SketchPrecision, TableAggregate};
use crate::value_encoding;

/// Returns true if each value of a type is identified by 64 bits.
pub(super) fn is_word_type(of: &DataType) -> bool {
    of.is_integer() || value_encoding::has_eight_byte_items(of)
}

/// Converts values to 64-bit words: integers as they are, negative ones in two's complement, others as
/// sortable eight-byte items.
fn to_words(values: &ArrayRef) -> Result<Vec<u64>> {
    if values.data_type() == &DataType::UInt64 {
        return Ok(values.as_primitive::<UInt64Type>().values().to_vec());
    }
    if values.data_type().is_integer() {
        let values = value_encoding::cast_exactly(values, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>().values();
        return Ok(values.iter().map(|value| value.cast_unsigned()).collect());
    }
    let words = value_encoding::SortableItems::new(values)?
        .eight_byte_items()
        .ok_or_else(|| state_type_error("unique_exact"))?;
    Ok(words.into_iter().map(u64::from_be_bytes).collect())
}

/// The sketch kind of sets of 64-bit values.
pub(super) struct IdSetKind;

impl SketchKind for IdSetKind {
    type State = SortedIdSet;
    type Item = u64;
    const NAME: &'static str = "id_set";

    fn new_state(&self) -> SortedIdSet {
        SortedIdSet::new()
    }

    fn heap_bytes(state: &SortedIdSet) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut SortedIdSet, from: &mut SortedIdSet) {
        into.merge_owned(std::mem::take(from));
    }

    fn add_items(state: &mut SortedIdSet, ids: &[u64]) {
        state.add_all(ids);
    }

    fn encode(state: &SortedIdSet, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<SortedIdSet, SketchError> {
        SortedIdSet::decode(bytes)
    }

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let values = rows.required_values()?;
        let ids = to_words(values)?;
        states.add_row_items(rows, values.logical_nulls().as_ref(), &ids, SortedIdSet::add);
        Ok(())
    }

    fn precision(_: &SortedIdSet, _: &TableAggregate) -> Option<SketchPrecision> {
        None
    }

    fn finish(&self, states: &[SortedIdSet], of: &TableAggregate) -> Result<ArrayRef> {
        match of.function {
            MergeableFunction::IdSet => Ok(encode_id_sets(states.iter().map(Some))),
            _ => build_count_array(states.iter().map(SortedIdSet::len), of),
        }
    }
}

/// The sketch kind of sets of values of any length.
pub(super) struct DistinctItemsKind {
    empty_state: DistinctValues,
}

impl DistinctItemsKind {
    pub(super) fn new() -> Result<Self> {
        let empty = DistinctValues::new(u32::MAX);
        Ok(DistinctItemsKind {
            empty_state: empty.map_err(|error| Error::Internal(error.to_string()))?,
        })
    }
}

impl SketchKind for DistinctItemsKind {
    type State = DistinctValues;
    type Item = ();
    const NAME: &'static str = "unique_exact";

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

    fn precision(_: &DistinctValues, _: &TableAggregate) -> Option<SketchPrecision> {
        None
    }

    fn finish(&self, states: &[DistinctValues], of: &TableAggregate) -> Result<ArrayRef> {
        build_count_array(states.iter().map(|state| state.len().unwrap_or_default()), of)
    }
}

/// The sketch kind of unions and intersections of stored id sets; the result of no set is NULL.
pub(super) struct IdSetCombinationKind {
    /// True for the intersection, false for the union.
    pub(super) is_intersection: bool,
}

impl IdSetCombinationKind {
    fn combine_into(&self, into: &mut Option<SortedIdSet>, from: SortedIdSet) {
        match into {
            None => *into = Some(from),
            Some(into) if self.is_intersection => into.intersect_with(&from),
            Some(into) => into.merge_owned(from),
        }
    }
}

impl SketchKind for IdSetCombinationKind {
    type State = (bool, Option<SortedIdSet>);
    type Item = ();
    const NAME: &'static str = "id_set_union";

    fn new_state(&self) -> (bool, Option<SortedIdSet>) {
        (self.is_intersection, None)
    }

    fn heap_bytes((_, state): &(bool, Option<SortedIdSet>)) -> usize {
        state.as_ref().map_or(0, SortedIdSet::heap_bytes)
    }

    fn merge(
        (intersects, into): &mut (bool, Option<SortedIdSet>),
        (_, from): &mut (bool, Option<SortedIdSet>),
    ) {
        if let Some(from) = from.take() {
            IdSetCombinationKind { is_intersection: *intersects }.combine_into(into, from);
        }
    }

    /// Appends the encoded set; no bytes stand for no set.
    fn encode((_, state): &(bool, Option<SortedIdSet>), out: &mut Vec<u8>) {
        if let Some(ids) = state {
            ids.encode(out);
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<(bool, Option<SortedIdSet>), SketchError> {
        let ids = match bytes {
            [] => None,
            bytes => Some(SortedIdSet::decode(bytes)?),
        };
        Ok((self.is_intersection, ids))
    }

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let Some(stored) = StoredSketchColumn::from_values(rows.required_values()?)? else {
            return Ok(());
        };
        let mut found = Ok(());
        states.update_each(rows, stored.null_mask().as_ref(), |(_, state), row| {
            match stored.sketch_bytes(row).and_then(|bytes| decode_id_set(&bytes)) {
                Ok(ids) => self.combine_into(state, ids),
                Err(error) if found.is_ok() => found = Err(error),
                Err(_) => {}
            }
        });
        found
    }

    fn precision(_: &(bool, Option<SortedIdSet>), _: &TableAggregate) -> Option<SketchPrecision> {
        None
    }

    fn finish(
        &self,
        states: &[(bool, Option<SortedIdSet>)],
        _: &TableAggregate,
    ) -> Result<ArrayRef> {
        Ok(encode_id_sets(states.iter().map(|(_, ids)| ids.as_ref())))
    }
}

fn build_count_array(counts: impl Iterator<Item = usize>, of: &TableAggregate) -> Result<ArrayRef> {
    let counts = counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
    value_encoding::cast_exactly(&counts, of.output_field.data_type())
}

/// Encodes sets in the form in which they are stored.
fn encode_id_sets<'a>(sets: impl ExactSizeIterator<Item = Option<&'a SortedIdSet>>) -> ArrayRef {
    let mut stored = BinaryViewBuilder::with_capacity(sets.len());
    sets.for_each(|ids| {
        stored.append_option(ids.map(|ids| {
            let mut bytes = Vec::new();
            ids.encode(&mut bytes);
            bytes
        }));
    });
    Arc::new(stored.finish())
}
