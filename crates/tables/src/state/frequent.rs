//! Frequent values.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, ListArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;
use tidemill_base::error::{Error, Result};
use tidemill_sketch::{SketchError, TopK};

use super::Rows;
use super::sketches::{Filled, SketchKind, booked};
use crate::spec::{Aggregate, Precision};
use crate::value::{self, Short};

/// What `top_k` lets wait: words of eight bytes, or short texts.
pub(super) trait WaitingItem: Copy + Default + Send + Sync + 'static {
    /// All of the items, if they may wait.
    fn all(items: &value::Items) -> Option<Vec<Self>>;
    fn as_bytes(&self) -> &[u8];
    fn add_all(state: &mut TopK, items: &[Self]) {
        items.iter().for_each(|item| state.add(item.as_bytes(), 1));
    }
}

impl WaitingItem for [u8; 8] {
    fn all(items: &value::Items) -> Option<Vec<Self>> {
        items.words()
    }

    fn as_bytes(&self) -> &[u8] {
        self
    }

    fn add_all(state: &mut TopK, words: &[Self]) {
        state.add_word_items(words);
    }
}

impl WaitingItem for Short {
    fn all(items: &value::Items) -> Option<Vec<Self>> {
        items.shorts()
    }

    fn as_bytes(&self) -> &[u8] {
        Short::as_bytes(self)
    }
}

pub(super) struct TopKOf<I> {
    k: usize,
    empty: TopK,
    argument: DataType,
    items: PhantomData<I>,
}

impl<I: WaitingItem> TopKOf<I> {
    pub(super) fn new(k: usize, empty: TopK, argument: DataType) -> Self {
        TopKOf { k, empty, argument, items: PhantomData }
    }
}

impl<I: WaitingItem> SketchKind for TopKOf<I> {
    type State = TopK;
    type Item = I;
    const NAME: &'static str = "top_k";

    fn empty(&self) -> TopK {
        self.empty.clone()
    }

    fn heap(state: &TopK) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut TopK, from: &mut TopK) {
        into.merge_owned(std::mem::take(from));
    }

    fn add_all(state: &mut TopK, items: &[I]) {
        I::add_all(state, items);
    }

    fn merge_all(into: &mut TopK, items: &[I]) {
        into.merge_occurrences(items.iter().map(I::as_bytes));
    }

    fn encode(state: &TopK, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<TopK, SketchError> {
        TopK::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let values = rows.values()?;
        let nulls = values.logical_nulls();
        let items = value::Items::new(values)?;
        if let Some(weights) = rows.second {
            let weights =
                value::whole_weights(weights, Self::NAME, rows.selected(nulls.as_ref()).as_ref())?;
            let nulls = NullBuffer::union(nulls.as_ref(), weights.nulls());
            states.settle();
            states.has_states = true;
            let Filled { states, heap, .. } = states;
            items.for_each(
                |each| rows.for_each(nulls.as_ref(), |row, _| each(row, row)),
                |row, item| {
                    let state = &mut states[rows.groups[row]];
                    let weight = weights.value(row);
                    booked(state, heap, TopK::heap_bytes, |state| state.add(item, weight));
                },
            );
            return Ok(());
        }
        if (rows.group_count == 1 || states.would_wait())
            && let Some(items) = I::all(&items)
        {
            match rows.group_count {
                1 => states.take_in_one(rows, nulls.as_ref(), &items),
                _ => states.wait(rows, nulls.as_ref(), &items),
            }
            return Ok(());
        }
        states.settle();
        states.has_states = true;
        let Filled { states, heap, .. } = states;
        items.for_each(
            |each| rows.for_each(nulls.as_ref(), each),
            |group, item| {
                booked(&mut states[group], heap, TopK::heap_bytes, |state| state.add(item, 1));
            },
        );
        Ok(())
    }

    fn precision(state: &TopK, _: &Aggregate) -> Option<Precision> {
        Some(Precision::new(state.is_exact(), state.count_error_max() as f64))
    }

    fn finish(&self, states: &[TopK], of: &Aggregate) -> Result<ArrayRef> {
        let mut items: Vec<&[u8]> = Vec::new();
        let (mut counts, mut errors): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
        let beyond = || Error::Overflow {
            message: format!("`{}` does not fit BIGINT", of.output.name()),
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
        let values = value::from_items(&items, &self.argument)?;
        let DataType::List(field) = of.output.data_type() else {
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
