//! Unique values, quantiles and frequent values, as sketches; and the column that all states of the
//! `sketch` crate but sums are kept in.
//!
//! A row of one of many groups would fetch its state and what this has on the heap from memory, and each
//! little growth of a state would be an allocation. Once the states have outgrown the cache, values
//! [wait](Waiting) with the number of their group instead, and are added some to a state at once, in the order
//! in which they came. Where a table gives its groups up before that, they travel as the values that they have.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Builder, Int64Array, LargeBinaryArray, LargeBinaryBuilder,
    ListArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Float64Type};
use parking_lot::Mutex;
use tidemill_base::error::{Error, Result};
use tidemill_sketch::{Hll, Quantiles, Share, TopK};

use super::waiting::{ByGroup, Waiting};
use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::spec::{Aggregate, Function, Precision};
use crate::value::{self, Short};

/// What differs between the columns of sketches.
pub(super) trait SketchKind: Send {
    type State: Clone + Send;
    /// What rows bring that may wait.
    type Item: Copy + Default + Send + Sync;
    const NAME: &'static str;

    fn empty(&self) -> Self::State;
    fn heap(state: &Self::State) -> usize;
    /// What it does with `from`, which is not asked again, is up to it.
    fn merge(into: &mut Self::State, from: &mut Self::State);
    /// Adds what has waited, in this order.
    fn add_all(_: &mut Self::State, _: &[Self::Item]) {}
    /// Merges a state of these items, at most [`SketchKind::listed_max`].
    fn merge_all(into: &mut Self::State, items: &[Self::Item]) {
        Self::add_all(into, items);
    }
    /// How many items of a group may travel as they are.
    fn listed_max(&self) -> usize {
        LISTED_MAX
    }
    fn wrap(states: Handed<Self::State, Self::Item>) -> States;
    fn unwrap(states: &States) -> Option<&Handed<Self::State, Self::Item>>;
    fn decode(&self, bytes: &[u8]) -> Result<Self::State, tidemill_sketch::SketchError>;
    /// Feeds `rows` to the states, now or later.
    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()>;
    /// How good an answer is; none where it is exact by nature.
    fn precision(state: &Self::State, of: &Aggregate) -> Option<Precision>;
    fn finish(&self, states: &[Self::State], of: &Aggregate) -> Result<ArrayRef>;
}

/// Of more values in one group, states travel.
const LISTED_MAX: usize = 1 << 10;

/// Groups on their way between tables.
pub(crate) enum Handed<S, T> {
    /// States, each of which is taken by the one table that has its group then: what is on its heap goes along.
    States(Vec<Mutex<S>>),
    /// The values of each group, few and in order, of which there is no state yet.
    Values { empty: S, values: ByGroup<T> },
}

impl<S: Clone, T> Handed<S, T> {
    fn new(states: impl IntoIterator<Item = S>) -> Self {
        Handed::States(states.into_iter().map(Mutex::new).collect())
    }

    /// The memory they take, in bytes.
    pub(super) fn bytes(&self, heap: impl Fn(&S) -> usize) -> usize {
        match self {
            Handed::States(states) => {
                let own = states.capacity() * size_of::<Mutex<S>>();
                own + states.iter().map(|state| heap(&state.lock())).sum::<usize>()
            }
            Handed::Values { values, .. } => values.bytes(),
        }
    }

    /// Their form on disk.
    pub(super) fn encode(
        &self,
        encode: impl Fn(&S, &mut Vec<u8>),
        add_all: impl Fn(&mut S, &[T]),
    ) -> ArrayRef {
        let mut bytes = Vec::new();
        let mut builder = LargeBinaryBuilder::new();
        let mut append = |state: &S| {
            bytes.clear();
            encode(state, &mut bytes);
            builder.append_value(&bytes);
        };
        match self {
            Handed::States(states) => states.iter().for_each(|state| append(&state.lock())),
            Handed::Values { empty, values } => {
                for group in 0..values.group_count() {
                    let mut state = empty.clone();
                    add_all(&mut state, values.of(group));
                    append(&state);
                }
            }
        }
        Arc::new(builder.finish())
    }
}

/// States with what their rows have brought.
pub(super) struct Filled<K: SketchKind + ?Sized> {
    states: Vec<K::State>,
    /// What the states have on the heap, in bytes.
    heap: usize,
    /// Whether anything may have been added to a state.
    has_states: bool,
    waiting: Waiting<K::Item>,
}

impl<K: SketchKind + ?Sized> Filled<K> {
    /// Calls `add(state, row)` for the rows that count.
    pub(super) fn each(
        &mut self,
        rows: &Rows<'_>,
        nulls: Option<&NullBuffer>,
        mut add: impl FnMut(&mut K::State, usize),
    ) {
        self.has_states = true;
        let heap = &mut self.heap;
        rows.each(nulls, &mut self.states, |state, row, _| {
            booked(state, heap, K::heap, |state| add(state, row));
        });
    }

    /// As [`Filled::each`], where `add` tells how much the heap has grown, or that it cannot add.
    pub(super) fn try_each<E>(
        &mut self,
        rows: &Rows<'_>,
        nulls: Option<&NullBuffer>,
        mut add: impl FnMut(&mut K::State, usize) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.has_states = true;
        let mut found = Ok(());
        let heap = &mut self.heap;
        rows.each(nulls, &mut self.states, |state, row, _| match add(state, row) {
            Ok(grown) => *heap += grown,
            Err(error) => found = Err(error),
        });
        found
    }

    /// Has the states take `items`, a row's each: at once with `add` while they are in the cache, else
    /// many of a group together, later.
    fn take_in(
        &mut self,
        rows: &Rows<'_>,
        nulls: Option<&NullBuffer>,
        items: &[K::Item],
        add: impl Fn(&mut K::State, K::Item),
    ) {
        match self.would_wait() {
            true => self.wait(rows, nulls, items),
            false => self.each(rows, nulls, |state, row| add(state, items[row])),
        }
    }

    fn state_bytes(&self) -> usize {
        size_of_val(&*self.states) + self.heap
    }

    /// Whether rows wait: the states are not in the cache, or others wait that came before them.
    fn would_wait(&self) -> bool {
        self.state_bytes() > STATES_CACHED_BYTES || !self.waiting.is_empty()
    }

    /// Has `items`, a row's each, wait.
    fn wait(&mut self, rows: &Rows<'_>, nulls: Option<&NullBuffer>, items: &[K::Item]) {
        self.waiting.add(rows, nulls, items);
        if self.waiting.is_full(rows.group_count, self.state_bytes()) {
            self.settle();
        }
    }

    /// Has the states take what waits.
    fn settle(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.has_states = true;
        let values = self.waiting.by_group(self.states.len());
        for (group, state) in self.states.iter_mut().enumerate() {
            let items = values.of(group);
            if !items.is_empty() {
                booked(state, &mut self.heap, K::heap, |state| K::add_all(state, items));
            }
        }
    }
}

/// Of states that take no more, rows do not wait.
const STATES_CACHED_BYTES: usize = 1 << 17;

pub(super) struct Sketches<K: SketchKind> {
    kind: K,
    aggregate: Aggregate,
    filled: Filled<K>,
}

impl<K: SketchKind> Sketches<K> {
    pub(super) fn new(kind: K, aggregate: &Aggregate) -> Self {
        let (states, waiting) = (Vec::new(), Waiting::default());
        let filled = Filled { states, heap: 0, has_states: false, waiting };
        Sketches { kind, aggregate: aggregate.clone(), filled }
    }

    fn resize(&mut self, group_count: usize) {
        self.filled.states.resize_with(group_count, || self.kind.empty());
    }

    /// The states with all that their rows have brought; leaves none.
    fn take_states(&mut self, group_count: usize) -> Vec<K::State> {
        self.resize(group_count);
        self.filled.settle();
        (self.filled.heap, self.filled.has_states) = (0, false);
        std::mem::take(&mut self.filled.states)
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
        self.kind.update(&mut self.filled, rows)
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let from = K::unwrap(states).ok_or_else(|| mismatch(K::NAME))?;
        self.filled.settle();
        self.filled.has_states = true;
        let heap = &mut self.filled.heap;
        match from {
            Handed::States(from) => routes.each(&mut self.filled.states, |state, row, _| {
                booked(state, heap, K::heap, |state| K::merge(state, &mut from[row].lock()));
            }),
            Handed::Values { values, .. } => {
                routes.each(&mut self.filled.states, |state, row, _| {
                    booked(state, heap, K::heap, |state| K::merge_all(state, values.of(row)));
                });
            }
        }
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let Filled { states, has_states, waiting, .. } = &mut self.filled;
        if !*has_states && !waiting.is_empty() {
            let values = waiting.by_group(group_count);
            if values.longest() <= self.kind.listed_max() {
                states.clear();
                return Ok(K::wrap(Handed::Values { empty: self.kind.empty(), values }));
            }
            waiting.return_to(values);
        }
        Ok(K::wrap(Handed::new(self.take_states(group_count))))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let array = binary(K::NAME, array)?;
        let states = array.iter().map(|bytes| match bytes {
            Some(bytes) => self.kind.decode(bytes).map_err(|e| refused(K::NAME, e)),
            None => Err(refused(K::NAME, "it is missing")),
        });
        Ok(K::wrap(Handed::new(states.collect::<Result<Vec<_>>>()?)))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let states = self.take_states(group_count);
        self.kind.finish(&states, &self.aggregate)
    }

    fn answer_in_place(&mut self) -> Result<Option<ArrayRef>> {
        self.resize(1);
        self.filled.settle();
        Ok(Some(self.kind.finish(&self.filled.states, &self.aggregate)?))
    }

    fn finish_shared(&mut self, group_count: usize, of: &[&Aggregate]) -> Result<Vec<ArrayRef>> {
        let states = self.take_states(group_count);
        of.iter().map(|one| self.kind.finish(&states, one)).collect()
    }

    fn precision(&mut self, of: &Aggregate) -> Option<Precision> {
        K::precision(&self.kind.empty(), of)?;
        self.filled.settle();
        let each = self.filled.states.iter().filter_map(|state| K::precision(state, of));
        Some(each.fold(Precision::EXACT, Precision::and))
    }

    fn bytes(&self) -> usize {
        let Filled { states, heap, waiting, .. } = &self.filled;
        states.capacity() * size_of::<K::State>() + heap + waiting.bytes()
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
    type Item = u64;
    const NAME: &'static str = "unique";

    fn empty(&self) -> Hll {
        self.empty.clone()
    }

    fn heap(state: &Hll) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Hll, from: &mut Hll) {
        into.merge_owned(std::mem::take(from));
    }

    fn add_all(state: &mut Hll, hashes: &[u64]) {
        state.add_hashes(hashes);
    }

    fn wrap(states: Handed<Hll, u64>) -> States {
        States::Unique(states)
    }

    fn unwrap(states: &States) -> Option<&Handed<Hll, u64>> {
        if let States::Unique(states) = states { Some(states) } else { None }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Hll, tidemill_sketch::SketchError> {
        Hll::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let (hashes, nulls) = value::hashes(rows.values()?)?;
        states.take_in(rows, nulls.as_ref(), &hashes, Hll::add_hash);
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
    type Item = f64;
    const NAME: &'static str = "quantile";

    fn empty(&self) -> Quantiles {
        Quantiles::default()
    }

    fn heap(state: &Quantiles) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Quantiles, from: &mut Quantiles) {
        into.merge_owned(std::mem::take(from));
    }

    fn add_all(state: &mut Quantiles, values: &[f64]) {
        state.add_all(values);
    }

    fn wrap(states: Handed<Quantiles, f64>) -> States {
        States::Quantiles(states)
    }

    fn unwrap(states: &States) -> Option<&Handed<Quantiles, f64>> {
        if let States::Quantiles(states) = states { Some(states) } else { None }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Quantiles, tidemill_sketch::SketchError> {
        Quantiles::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let values = value::cast_to(rows.values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        states.take_in(rows, values.nulls(), values.values(), Quantiles::add);
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
        let shares: Vec<_> = ranks.iter().map(|rank| Share::new(*rank)).collect();
        let mut answers = Vec::with_capacity(shares.len());
        for state in states {
            answers.clear();
            state.quantiles_at(&shares, |answer| answers.push(answer));
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

/// What `top_k` lets wait: words of eight bytes, or short texts.
pub(super) trait WaitingItem: Copy + Default + Send + Sync {
    /// All of the items, if they may wait.
    fn all(items: &value::Items) -> Option<Vec<Self>>;
    fn as_bytes(&self) -> &[u8];
    fn add_all(state: &mut TopK, items: &[Self]) {
        items.iter().for_each(|item| state.add(item.as_bytes(), 1));
    }
    fn wrap(states: Handed<TopK, Self>) -> States;
    fn unwrap(states: &States) -> Option<&Handed<TopK, Self>>;
}

impl WaitingItem for [u8; 8] {
    fn all(items: &value::Items) -> Option<Vec<Self>> {
        items.words()
    }

    fn as_bytes(&self) -> &[u8] {
        self
    }

    fn add_all(state: &mut TopK, words: &[Self]) {
        state.add_words(words);
    }

    fn wrap(states: Handed<TopK, Self>) -> States {
        States::TopK(states)
    }

    fn unwrap(states: &States) -> Option<&Handed<TopK, Self>> {
        if let States::TopK(states) = states { Some(states) } else { None }
    }
}

impl WaitingItem for Short {
    fn all(items: &value::Items) -> Option<Vec<Self>> {
        items.shorts()
    }

    fn as_bytes(&self) -> &[u8] {
        Short::as_bytes(self)
    }

    fn wrap(states: Handed<TopK, Self>) -> States {
        States::TopTexts(states)
    }

    fn unwrap(states: &States) -> Option<&Handed<TopK, Self>> {
        if let States::TopTexts(states) = states { Some(states) } else { None }
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
        into.merge_items(items.iter().map(I::as_bytes));
    }

    fn wrap(states: Handed<TopK, I>) -> States {
        I::wrap(states)
    }

    fn unwrap(states: &States) -> Option<&Handed<TopK, I>> {
        I::unwrap(states)
    }

    fn decode(&self, bytes: &[u8]) -> Result<TopK, tidemill_sketch::SketchError> {
        TopK::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let values = rows.values()?;
        let nulls = values.logical_nulls();
        let items = value::Items::new(values)?;
        if states.would_wait()
            && let Some(items) = I::all(&items)
        {
            states.wait(rows, nulls.as_ref(), &items);
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
        Some(Precision { exact: state.is_exact(), error: state.max_error() as f64 })
    }

    fn finish(&self, states: &[TopK], of: &Aggregate) -> Result<ArrayRef> {
        let mut items: Vec<&[u8]> = Vec::new();
        let mut counts: Vec<i64> = Vec::new();
        let mut lengths = Vec::with_capacity(states.len());
        for state in states {
            let top = state.top(self.k);
            lengths.push(top.len());
            for entry in top {
                counts.push(i64::try_from(entry.upper).unwrap_or(i64::MAX));
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
