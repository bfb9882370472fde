//! Unique values, quantiles and frequent values, as sketches; and the column that all states of the
//! `sketch` crate but sums are kept in.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Builder, Int64Array, LargeBinaryArray, ListArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Float64Type};
use tidemill_base::error::{Error, Result};
use tidemill_sketch::{Hll, Quantiles, TopK};

use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::spec::{Aggregate, Function, Precision};
use crate::value;

/// What differs between the columns of sketches.
pub(super) trait SketchKind: Send {
    type State: Send;
    const NAME: &'static str;

    fn empty(&self) -> Self::State;
    fn heap(state: &Self::State) -> usize;
    fn merge(into: &mut Self::State, from: &Self::State);
    fn wrap(states: Vec<Self::State>) -> States;
    fn unwrap(states: &States) -> Option<&Vec<Self::State>>;
    fn decode(&self, bytes: &[u8]) -> Result<Self::State, tidemill_sketch::SketchError>;
    /// Feeds `rows` to `states`, calling `grown` with the change in heap bytes.
    fn update(&self, states: &mut [Self::State], heap: &mut usize, rows: &Rows<'_>) -> Result<()>;
    /// How good an answer is; none where it is exact by nature.
    fn precision(state: &Self::State, of: &Aggregate) -> Option<Precision>;
    fn finish(&self, states: &[Self::State], of: &Aggregate) -> Result<ArrayRef>;
}

pub(super) struct Sketches<K: SketchKind> {
    kind: K,
    aggregate: Aggregate,
    states: Vec<K::State>,
    heap: usize,
}

impl<K: SketchKind> Sketches<K> {
    pub(super) fn new(kind: K, aggregate: &Aggregate) -> Self {
        Sketches { kind, aggregate: aggregate.clone(), states: Vec::new(), heap: 0 }
    }

    fn resize(&mut self, group_count: usize) {
        self.states.resize_with(group_count, || self.kind.empty());
    }
}

/// Changes a state and books the change of its heap.
pub(super) fn booked<S>(
    state: &mut S,
    heap: &mut usize,
    size: impl Fn(&S) -> usize,
    change: impl FnOnce(&mut S),
) {
    let before = size(state);
    change(state);
    *heap = (*heap + size(state)).saturating_sub(before);
}

impl<K: SketchKind> StateColumn for Sketches<K> {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        self.kind.update(&mut self.states, &mut self.heap, rows)
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let from = K::unwrap(states).ok_or_else(|| mismatch(K::NAME))?;
        let heap = &mut self.heap;
        routes.each(&mut self.states, |state, row, _| {
            booked(state, heap, K::heap, |state| K::merge(state, &from[row]));
        });
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.resize(group_count);
        self.heap = 0;
        Ok(K::wrap(std::mem::take(&mut self.states)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let array = binary(K::NAME, array)?;
        let states = array.iter().map(|bytes| match bytes {
            Some(bytes) => self.kind.decode(bytes).map_err(|e| refused(K::NAME, e)),
            None => Err(refused(K::NAME, "it is missing")),
        });
        Ok(K::wrap(states.collect::<Result<Vec<_>>>()?))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.resize(group_count);
        self.heap = 0;
        self.kind.finish(&std::mem::take(&mut self.states), &self.aggregate)
    }

    fn finish_shared(&mut self, group_count: usize, of: &[&Aggregate]) -> Result<Vec<ArrayRef>> {
        self.resize(group_count);
        self.heap = 0;
        let states = std::mem::take(&mut self.states);
        of.iter().map(|one| self.kind.finish(&states, one)).collect()
    }

    fn precision(&self, of: &Aggregate) -> Option<Precision> {
        K::precision(&self.kind.empty(), of)?;
        let each = self.states.iter().filter_map(|state| K::precision(state, of));
        Some(each.fold(Precision::EXACT, Precision::and))
    }

    fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<K::State>() + self.heap
    }
}

pub(super) fn binary<'a>(name: &str, array: &'a ArrayRef) -> Result<&'a LargeBinaryArray> {
    array.as_binary_opt::<i64>().ok_or_else(|| refused(name, "binary states are expected"))
}

pub(super) struct UniqueOf {
    empty: Hll,
}

impl UniqueOf {
    pub(super) fn new(empty: Hll) -> Self {
        UniqueOf { empty }
    }
}

impl SketchKind for UniqueOf {
    type State = Hll;
    const NAME: &'static str = "unique";

    fn empty(&self) -> Hll {
        self.empty.clone()
    }

    fn heap(state: &Hll) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Hll, from: &Hll) {
        into.merge(from);
    }

    fn wrap(states: Vec<Hll>) -> States {
        States::Unique(states)
    }

    fn unwrap(states: &States) -> Option<&Vec<Hll>> {
        if let States::Unique(states) = states { Some(states) } else { None }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Hll, tidemill_sketch::SketchError> {
        Hll::decode(bytes)
    }

    fn update(&self, states: &mut [Hll], heap: &mut usize, rows: &Rows<'_>) -> Result<()> {
        let (hashes, nulls) = value::hashes(rows.values()?)?;
        rows.for_each(nulls.as_ref(), |row, group| {
            booked(&mut states[group], heap, Hll::heap_bytes, |hll| hll.add_hash(hashes[row]));
        });
        Ok(())
    }

    fn precision(state: &Hll, _: &Aggregate) -> Option<Precision> {
        Some(Precision { exact: state.is_exact(), error: state.relative_error() })
    }

    fn finish(&self, states: &[Hll], of: &Aggregate) -> Result<ArrayRef> {
        let counts = states.iter().map(|hll| i64::try_from(hll.count()).unwrap_or(i64::MAX));
        let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
        value::cast_to(&counts, of.output.data_type())
    }
}

pub(super) struct QuantilesOf;

impl SketchKind for QuantilesOf {
    type State = Quantiles;
    const NAME: &'static str = "quantile";

    fn empty(&self) -> Quantiles {
        Quantiles::default()
    }

    fn heap(state: &Quantiles) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Quantiles, from: &Quantiles) {
        into.merge(from);
    }

    fn wrap(states: Vec<Quantiles>) -> States {
        States::Quantiles(states)
    }

    fn unwrap(states: &States) -> Option<&Vec<Quantiles>> {
        if let States::Quantiles(states) = states { Some(states) } else { None }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Quantiles, tidemill_sketch::SketchError> {
        Quantiles::decode(bytes)
    }

    fn update(&self, states: &mut [Quantiles], heap: &mut usize, rows: &Rows<'_>) -> Result<()> {
        let values = value::cast_to(rows.values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let numbers = values.values();
        rows.for_each(values.nulls(), |row, group| {
            booked(&mut states[group], heap, Quantiles::heap_bytes, |state| {
                state.add(numbers[row]);
            });
        });
        Ok(())
    }

    fn precision(state: &Quantiles, of: &Aggregate) -> Option<Precision> {
        let Function::Quantile { ranks, .. } = &of.function else { return None };
        if state.is_exact() {
            return Some(Precision::EXACT);
        }
        let widths = ranks.iter().filter_map(|rank| state.interval(*rank));
        let error = widths.map(|(low, high)| (high - low) / 2.0).fold(0.0, f64::max);
        Some(Precision { exact: false, error })
    }

    fn finish(&self, states: &[Quantiles], of: &Aggregate) -> Result<ArrayRef> {
        let Function::Quantile { ranks, list } = &of.function else {
            return Err(mismatch("quantile"));
        };
        let mut numbers = Float64Builder::with_capacity(states.len() * ranks.len());
        let mut lengths = Vec::with_capacity(states.len());
        let mut present = Vec::with_capacity(states.len());
        for state in states {
            let answers = state.quantiles(ranks);
            let some = answers.iter().any(Option::is_some);
            present.push(some);
            if !list {
                numbers.append_option(answers.first().copied().flatten());
            } else if some {
                answers.iter().for_each(|answer| numbers.append_option(*answer));
            }
            lengths.push(if some { ranks.len() } else { 0 });
        }
        let numbers: ArrayRef = Arc::new(numbers.finish());
        if !list {
            return value::cast_to(&numbers, of.output.data_type());
        }
        Ok(Arc::new(ListArray::try_new(
            Arc::new(Field::new_list_field(DataType::Float64, true)),
            OffsetBuffer::from_lengths(lengths),
            numbers,
            Some(NullBuffer::from(present)),
        )?))
    }
}

pub(super) struct TopKOf {
    k: usize,
    empty: TopK,
    argument: DataType,
}

impl TopKOf {
    pub(super) fn new(k: usize, empty: TopK, argument: DataType) -> Self {
        TopKOf { k, empty, argument }
    }
}

impl SketchKind for TopKOf {
    type State = TopK;
    const NAME: &'static str = "top_k";

    fn empty(&self) -> TopK {
        self.empty.clone()
    }

    fn heap(state: &TopK) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut TopK, from: &TopK) {
        into.merge(from);
    }

    fn wrap(states: Vec<TopK>) -> States {
        States::TopK(states)
    }

    fn unwrap(states: &States) -> Option<&Vec<TopK>> {
        if let States::TopK(states) = states { Some(states) } else { None }
    }

    fn decode(&self, bytes: &[u8]) -> Result<TopK, tidemill_sketch::SketchError> {
        TopK::decode(bytes)
    }

    fn update(&self, states: &mut [TopK], heap: &mut usize, rows: &Rows<'_>) -> Result<()> {
        let values = rows.values()?;
        let nulls = values.logical_nulls();
        let items = value::Items::new(values)?;
        items.for_each(
            |each| rows.for_each(nulls.as_ref(), each),
            |group, item| {
                booked(&mut states[group], heap, TopK::heap_bytes, |state| state.add(item, 1));
            },
        );
        Ok(())
    }

    fn precision(state: &TopK, _: &Aggregate) -> Option<Precision> {
        Some(Precision { exact: state.is_exact(), error: state.max_error() as f64 })
    }

    fn finish(&self, states: &[TopK], of: &Aggregate) -> Result<ArrayRef> {
        let mut items: Vec<Vec<u8>> = Vec::new();
        let mut counts: Vec<i64> = Vec::new();
        let mut lengths = Vec::with_capacity(states.len());
        for state in states {
            let top = state.top(self.k);
            lengths.push(top.len());
            for entry in top {
                counts.push(i64::try_from(entry.upper).unwrap_or(i64::MAX));
                items.push(entry.item.into());
            }
        }
        let values = value::from_items(&items, &self.argument)?;
        let DataType::List(field) = of.output.data_type() else {
            return Err(Error::Internal("top_k answers with a list".into()));
        };
        let DataType::Struct(fields) = field.data_type() else {
            return Err(Error::Internal("top_k answers with a list of structs".into()));
        };
        let counts: ArrayRef = Arc::new(Int64Array::from(counts));
        let entries = StructArray::try_new(fields.clone(), vec![values, counts], None)?;
        Ok(Arc::new(ListArray::try_new(
            Arc::clone(field),
            OffsetBuffer::from_lengths(lengths),
            Arc::new(entries),
            None,
        )?))
    }
}
