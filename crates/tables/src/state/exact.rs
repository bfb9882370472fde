//! Exact sets of ids: how many different values there are (`unique_exact`), the set itself (`id_set`), and what stored
//! sets have together.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder, Int64Array};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use tidemill_base::error::{Error, Result};
use tidemill_functions::sketches::decode_id_set;
use tidemill_sketch::{DistinctValues, SketchError, SortedIdSet};

use super::sketches::{Filled, SketchKind, booked};
use super::stored::Stored;
use super::{Rows, mismatch};
use crate::spec::{Aggregate, Function, Precision};
use crate::value;

/// Whether values of a type are told apart by 64 bits each.
pub(super) fn are_words(of: &DataType) -> bool {
    of.is_integer() || value::has_words(of)
}

/// Values of 64 bits: whole numbers as they are, those below zero as in memory; others as items of frequent values.
fn words(values: &ArrayRef) -> Result<Vec<u64>> {
    if values.data_type() == &DataType::UInt64 {
        return Ok(values.as_primitive::<UInt64Type>().values().to_vec());
    }
    if values.data_type().is_integer() {
        let values = value::cast_to(values, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>().values();
        return Ok(values.iter().map(|value| value.cast_unsigned()).collect());
    }
    let words = value::Items::new(values)?.words().ok_or_else(|| mismatch("unique_exact"))?;
    Ok(words.into_iter().map(u64::from_be_bytes).collect())
}

/// Sets of values of 64 bits.
pub(super) struct IdsOf;

impl SketchKind for IdsOf {
    type State = SortedIdSet;
    type Item = u64;
    const NAME: &'static str = "id_set";

    fn empty(&self) -> SortedIdSet {
        SortedIdSet::new()
    }

    fn heap(state: &SortedIdSet) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut SortedIdSet, from: &mut SortedIdSet) {
        into.merge_owned(std::mem::take(from));
    }

    fn add_all(state: &mut SortedIdSet, ids: &[u64]) {
        state.add_all(ids);
    }

    fn encode(state: &SortedIdSet, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<SortedIdSet, SketchError> {
        SortedIdSet::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let values = rows.values()?;
        let ids = words(values)?;
        states.take_in(rows, values.logical_nulls().as_ref(), &ids, SortedIdSet::add);
        Ok(())
    }

    fn precision(_: &SortedIdSet, _: &Aggregate) -> Option<Precision> {
        None
    }

    fn finish(&self, states: &[SortedIdSet], of: &Aggregate) -> Result<ArrayRef> {
        match of.function {
            Function::IdSet => Ok(written(states.iter().map(Some))),
            _ => counts(states.iter().map(SortedIdSet::len), of),
        }
    }
}

/// Sets of values of any length.
pub(super) struct ItemsOf {
    empty: DistinctValues,
}

impl ItemsOf {
    pub(super) fn new() -> Result<Self> {
        let empty = DistinctValues::new(u32::MAX);
        Ok(ItemsOf { empty: empty.map_err(|error| Error::Internal(error.to_string()))? })
    }
}

impl SketchKind for ItemsOf {
    type State = DistinctValues;
    type Item = ();
    const NAME: &'static str = "unique_exact";

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

    fn precision(_: &DistinctValues, _: &Aggregate) -> Option<Precision> {
        None
    }

    fn finish(&self, states: &[DistinctValues], of: &Aggregate) -> Result<ArrayRef> {
        counts(states.iter().map(|state| state.len().unwrap_or_default()), of)
    }
}

/// What stored sets have together: all ids, or those that all have; none of no set.
pub(super) struct SetsOf {
    /// Whether ids that one lacks are left out.
    pub(super) intersects: bool,
}

impl SetsOf {
    fn join(&self, into: &mut Option<SortedIdSet>, from: SortedIdSet) {
        match into {
            None => *into = Some(from),
            Some(into) if self.intersects => into.intersect_with(&from),
            Some(into) => into.merge_owned(from),
        }
    }
}

impl SketchKind for SetsOf {
    type State = (bool, Option<SortedIdSet>);
    type Item = ();
    const NAME: &'static str = "id_set_union";

    fn empty(&self) -> (bool, Option<SortedIdSet>) {
        (self.intersects, None)
    }

    fn heap((_, state): &(bool, Option<SortedIdSet>)) -> usize {
        state.as_ref().map_or(0, SortedIdSet::heap_bytes)
    }

    fn merge(
        (intersects, into): &mut (bool, Option<SortedIdSet>),
        (_, from): &mut (bool, Option<SortedIdSet>),
    ) {
        if let Some(from) = from.take() {
            SetsOf { intersects: *intersects }.join(into, from);
        }
    }

    /// No bytes are no set.
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
        Ok((self.intersects, ids))
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let Some(stored) = Stored::of(rows.values()?)? else { return Ok(()) };
        let mut found = Ok(());
        states.each(rows, stored.nulls().as_ref(), |(_, state), row| {
            match stored.at(row).and_then(|bytes| decode_id_set(&bytes)) {
                Ok(ids) => self.join(state, ids),
                Err(error) if found.is_ok() => found = Err(error),
                Err(_) => {}
            }
        });
        found
    }

    fn precision(_: &(bool, Option<SortedIdSet>), _: &Aggregate) -> Option<Precision> {
        None
    }

    fn finish(&self, states: &[(bool, Option<SortedIdSet>)], _: &Aggregate) -> Result<ArrayRef> {
        Ok(written(states.iter().map(|(_, ids)| ids.as_ref())))
    }
}

fn counts(counts: impl Iterator<Item = usize>, of: &Aggregate) -> Result<ArrayRef> {
    let counts = counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
    value::cast_to(&counts, of.output.data_type())
}

/// Sets as they are stored.
fn written<'a>(sets: impl ExactSizeIterator<Item = Option<&'a SortedIdSet>>) -> ArrayRef {
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
