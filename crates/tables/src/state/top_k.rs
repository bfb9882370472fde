//! States of `top_k`: frequent values.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, ListArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;
use tidemill_base::error::{Error, Result};
use tidemill_sketch::{SketchError, TopK};

use super::GroupedRows;
use super::sketch_column::{BufferedSketchStates, SketchKind, update_and_count_heap};
use crate::spec::{SketchPrecision, TableAggregate};
use crate::value_encoding::{self, ShortItem};

/// An item that `top_k` buffers before it reaches a state: an eight-byte word or a short string.
pub(super) trait BufferedItem: Copy + Default + Send + Sync + 'static {
    /// Returns all items, if each of them can be buffered.
    fn from_value_items(items: &value_encoding::SortableItems) -> Option<Vec<Self>>;
    fn as_bytes(&self) -> &[u8];
    fn add_items(state: &mut TopK, items: &[Self]) {
        items.iter().for_each(|item| state.add(item.as_bytes(), 1));
    }
}

impl BufferedItem for [u8; 8] {
    fn from_value_items(items: &value_encoding::SortableItems) -> Option<Vec<Self>> {
        items.eight_byte_items()
    }

    fn as_bytes(&self) -> &[u8] {
        self
    }

    fn add_items(state: &mut TopK, words: &[Self]) {
        state.add_word_items(words);
    }
}

impl BufferedItem for ShortItem {
    fn from_value_items(items: &value_encoding::SortableItems) -> Option<Vec<Self>> {
        items.short_items()
    }

    fn as_bytes(&self) -> &[u8] {
        ShortItem::as_bytes(self)
    }
}

/// The sketch kind of frequent values.
pub(super) struct TopKKind<I> {
    k: usize,
    empty_state: TopK,
    argument_type: DataType,
    item_type: PhantomData<I>,
}

impl<I: BufferedItem> TopKKind<I> {
    pub(super) fn new(k: usize, empty: TopK, argument: DataType) -> Self {
        TopKKind { k, empty_state: empty, argument_type: argument, item_type: PhantomData }
    }
}

impl<I: BufferedItem> SketchKind for TopKKind<I> {
    type State = TopK;
    type Item = I;
    const NAME: &'static str = "top_k";

    fn new_state(&self) -> TopK {
        self.empty_state.clone()
    }

    fn heap_bytes(state: &TopK) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut TopK, from: &mut TopK) {
        into.merge_owned(std::mem::take(from));
    }

    fn add_items(state: &mut TopK, items: &[I]) {
        I::add_items(state, items);
    }

    fn merge_items(into: &mut TopK, items: &[I]) {
        into.merge_occurrences(items.iter().map(I::as_bytes));
    }

    fn encode(state: &TopK, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<TopK, SketchError> {
        TopK::decode(bytes)
    }

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let values = rows.required_values()?;
        let nulls = values.logical_nulls();
        let items = value_encoding::SortableItems::new(values)?;
        if let Some(weights) = rows.second_values {
            let weights = value_encoding::to_unsigned_weights(
                weights,
                Self::NAME,
                rows.selected_rows(nulls.as_ref()).as_ref(),
            )?;
            let nulls = NullBuffer::union(nulls.as_ref(), weights.nulls());
            states.flush_buffer();
            states.has_updates = true;
            let BufferedSketchStates { states, heap_bytes: heap, .. } = states;
            items.for_each_item(
                |each| rows.for_each_row(nulls.as_ref(), |row, _| each(row, row)),
                |row, item| {
                    let state = &mut states[rows.groups[row]];
                    let weight = weights.value(row);
                    update_and_count_heap(state, heap, TopK::heap_bytes, |state| {
                        state.add(item, weight)
                    });
                },
            );
            return Ok(());
        }
        if (rows.group_count == 1 || states.needs_buffering())
            && let Some(items) = I::from_value_items(&items)
        {
            match rows.group_count {
                1 => states.add_items_to_single_state(rows, nulls.as_ref(), &items),
                _ => states.buffer_items(rows, nulls.as_ref(), &items),
            }
            return Ok(());
        }
        states.flush_buffer();
        states.has_updates = true;
        let BufferedSketchStates { states, heap_bytes: heap, .. } = states;
        items.for_each_item(
            |each| rows.for_each_row(nulls.as_ref(), each),
            |group, item| {
                update_and_count_heap(&mut states[group], heap, TopK::heap_bytes, |state| {
                    state.add(item, 1)
                });
            },
        );
        Ok(())
    }

    fn precision(state: &TopK, _: &TableAggregate) -> Option<SketchPrecision> {
        Some(SketchPrecision::new(state.is_exact(), state.count_error_max() as f64))
    }

    fn finish(&self, states: &[TopK], of: &TableAggregate) -> Result<ArrayRef> {
        let mut items: Vec<&[u8]> = Vec::new();
        let (mut counts, mut errors): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
        let beyond = || Error::Overflow {
            message: format!("`{}` does not fit BIGINT", of.output_field.name()),
            hint: Some("weigh by less, as by kilobytes: w // 1000".into()),
        };
        let mut lengths = Vec::with_capacity(states.len());
        for state in states {
            let top = state.top_items(self.k);
            lengths.push(top.len());
            for entry in top {
                counts.push(i64::try_from(entry.upper_bound).map_err(|_| beyond())?);
                errors.push(
                    i64::try_from(entry.upper_bound - entry.lower_bound).map_err(|_| beyond())?,
                );
                items.push(entry.item);
            }
        }
        let values = value_encoding::decode_items(&items, &self.argument_type)?;
        let DataType::List(field) = of.output_field.data_type() else {
            return Err(Error::Internal("top_k answers with a list".into()));
        };
        let DataType::Struct(fields) = field.data_type() else {
            return Err(Error::Internal("top_k answers with a list of structs".into()));
        };
        let numbers = [counts, errors].map(|of| Arc::new(Int64Array::from(of)) as ArrayRef);
        let columns = std::iter::once(values).chain(numbers).collect();
        let entries = StructArray::try_new(fields.clone(), columns, None)?;
        Ok(Arc::new(ListArray::try_new(
            Arc::clone(field),
            OffsetBuffer::from_lengths(lengths),
            Arc::new(entries),
            None,
        )?))
    }
}
