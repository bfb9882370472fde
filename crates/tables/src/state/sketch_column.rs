//! The generic column for all states of the `sketch` crate except sums.
//!
//! Adding a row to one of many groups would fetch its state and heap memory from RAM, and each small growth
//! of a state would be an allocation. Once the states have outgrown the CPU cache, values are therefore
//! [buffered](ValueBuffer) with their group numbers and added to each state in bulk, in arrival order. If a
//! table gives its groups up before the first flush, the chunk carries the raw values.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, LargeBinaryArray, LargeBinaryBuilder};
use arrow::buffer::NullBuffer;
use parking_lot::Mutex;
use tidemill_base::error::Result;
use tidemill_sketch::SketchError;

use super::value_buffer::{ValueBuffer, ValuesByGroup};
use super::{
    ChunkStates, GroupedRows, StateColumn, StateRoutes, corrupt_state_error, state_type_error,
};
use crate::spec::{SketchPrecision, TableAggregate};

/// The operations that differ between the sketches: creation, merging, encoding and answers.
pub(super) trait SketchKind: Send + 'static {
    type State: Clone + Send + Sync + 'static;
    /// The value of a row that can be buffered.
    type Item: Copy + Default + Send + Sync + 'static;
    const NAME: &'static str;

    fn new_state(&self) -> Self::State;
    fn heap_bytes(state: &Self::State) -> usize;
    /// Merges `from`, which nobody reads afterwards, into `into`.
    fn merge(into: &mut Self::State, from: &mut Self::State);
    /// Adds buffered items in this order.
    fn add_items(_: &mut Self::State, _: &[Self::Item]) {}
    /// Merges a state that consists of these items, at most [`SketchKind::raw_items_max`] of them.
    fn merge_items(into: &mut Self::State, items: &[Self::Item]) {
        Self::add_items(into, items);
    }
    /// Returns the maximum number of raw items per group in a chunk.
    fn raw_items_max(&self) -> usize {
        RAW_ITEMS_MAX
    }
    /// Appends the encoded state.
    fn encode(state: &Self::State, out: &mut Vec<u8>);
    fn decode(&self, bytes: &[u8]) -> Result<Self::State, SketchError>;
    /// Adds `rows` to the states or to the buffer.
    fn update(&self, states: &mut BufferedSketchStates<Self>, rows: &GroupedRows<'_>)
    -> Result<()>;
    /// Returns the precision of an answer; `None` if it is always exact.
    fn precision(state: &Self::State, of: &TableAggregate) -> Option<SketchPrecision>;
    fn finish(&self, states: &[Self::State], of: &TableAggregate) -> Result<ArrayRef>;
}

/// Maximum number of raw values per group in a chunk; with more, the chunk carries states.
const RAW_ITEMS_MAX: usize = 1 << 10;

/// The groups of a chunk.
enum SketchPayload<S, T> {
    /// States, each of which exactly one table takes, including its heap memory.
    States(Vec<Mutex<S>>),
    /// The few raw values of each group, in order, from which no state has been built yet.
    RawItems { empty: S, values: ValuesByGroup<T> },
}

/// A chunk's sketch states with their kind erased.
pub(crate) trait ErasedSketchStates: Any + Send + Sync {
    /// Returns the memory of the states, in bytes.
    fn memory_bytes(&self) -> usize;
    /// Encodes the states for disk.
    fn encode(&self) -> ArrayRef;
}

/// A chunk's sketch states of one kind.
struct TypedSketchStates<K: SketchKind>(SketchPayload<K::State, K::Item>);

impl<K: SketchKind> TypedSketchStates<K> {
    fn from_states(states: impl IntoIterator<Item = K::State>) -> ChunkStates {
        let states = states.into_iter().map(Mutex::new).collect();
        ChunkStates::Sketches(Box::new(TypedSketchStates::<K>(SketchPayload::States(states))))
    }

    /// Returns the groups if they are of this kind.
    fn downcast_payload(states: &ChunkStates) -> Option<&SketchPayload<K::State, K::Item>> {
        let ChunkStates::Sketches(travelling) = states else { return None };
        let any: &dyn Any = travelling.as_ref();
        any.downcast_ref::<Self>().map(|TypedSketchStates(handed)| handed)
    }
}

impl<K: SketchKind> ErasedSketchStates for TypedSketchStates<K> {
    fn memory_bytes(&self) -> usize {
        match &self.0 {
            SketchPayload::States(states) => {
                let own = states.capacity() * size_of::<Mutex<K::State>>();
                own + states.iter().map(|state| K::heap_bytes(&state.lock())).sum::<usize>()
            }
            SketchPayload::RawItems { values, .. } => values.memory_bytes(),
        }
    }

    fn encode(&self) -> ArrayRef {
        let mut bytes = Vec::new();
        let mut builder = LargeBinaryBuilder::new();
        let mut append = |state: &K::State| {
            bytes.clear();
            K::encode(state, &mut bytes);
            builder.append_value(&bytes);
        };
        match &self.0 {
            SketchPayload::States(states) => states.iter().for_each(|state| append(&state.lock())),
            SketchPayload::RawItems { empty, values } => {
                for group in 0..values.group_count() {
                    let mut state = empty.clone();
                    K::add_items(&mut state, values.group_values(group));
                    append(&state);
                }
            }
        }
        Arc::new(builder.finish())
    }
}

/// Sketch states with a buffer of values that have not reached them yet.
pub(super) struct BufferedSketchStates<K: SketchKind + ?Sized> {
    pub(super) states: Vec<K::State>,
    /// Heap memory of the states, in bytes.
    pub(super) heap_bytes: usize,
    /// True if any value may have been added to a state.
    pub(super) has_updates: bool,
    value_buffer: ValueBuffer<K::Item>,
}

impl<K: SketchKind + ?Sized> BufferedSketchStates<K> {
    /// Calls `add(state, row)` for each row that counts.
    pub(super) fn update_each(
        &mut self,
        rows: &GroupedRows<'_>,
        nulls: Option<&NullBuffer>,
        mut add: impl FnMut(&mut K::State, usize),
    ) {
        self.has_updates = true;
        let heap = &mut self.heap_bytes;
        rows.update_states(nulls, &mut self.states, |state, row, _| {
            update_and_count_heap(state, heap, K::heap_bytes, |state| add(state, row));
        });
    }

    /// Works like [`BufferedSketchStates::update_each`]; `add` returns the heap growth in bytes or an error.
    pub(super) fn try_update_each<E>(
        &mut self,
        rows: &GroupedRows<'_>,
        nulls: Option<&NullBuffer>,
        mut add: impl FnMut(&mut K::State, usize) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.has_updates = true;
        let mut found = Ok(());
        let heap = &mut self.heap_bytes;
        rows.update_states(nulls, &mut self.states, |state, row, _| match add(state, row) {
            Ok(grown) => *heap += grown,
            Err(error) => found = Err(error),
        });
        found
    }

    /// Adds `items`, one per row: directly with `add` while the states fit the cache, in bulk if there is
    /// only one group, else by buffering them.
    pub(super) fn add_row_items(
        &mut self,
        rows: &GroupedRows<'_>,
        nulls: Option<&NullBuffer>,
        items: &[K::Item],
        add: impl Fn(&mut K::State, K::Item),
    ) {
        if rows.group_count == 1 {
            return self.add_items_to_single_state(rows, nulls, items);
        }
        match self.needs_buffering() {
            true => self.buffer_items(rows, nulls, items),
            false => self.update_each(rows, nulls, |state, row| add(state, items[row])),
        }
    }

    /// Adds `items`, one per row, to the only state.
    pub(super) fn add_items_to_single_state(
        &mut self,
        rows: &GroupedRows<'_>,
        nulls: Option<&NullBuffer>,
        items: &[K::Item],
    ) {
        self.flush_buffer();
        self.has_updates = true;
        let BufferedSketchStates { states, heap_bytes: heap, .. } = self;
        let [state] = &mut states[..] else { return };
        let some: Vec<_>;
        let items = match rows.selected_rows(nulls) {
            None => items,
            Some(selected) => {
                some = selected.valid_indices().map(|row| items[row]).collect();
                &some
            }
        };
        update_and_count_heap(state, heap, K::heap_bytes, |state| K::add_items(state, items));
    }

    fn state_bytes(&self) -> usize {
        size_of_val(&*self.states) + self.heap_bytes
    }

    /// Returns true if rows must be buffered: the states have outgrown the cache, or earlier rows are
    /// buffered.
    pub(super) fn needs_buffering(&self) -> bool {
        self.state_bytes() > CACHED_STATES_BYTES_MAX || !self.value_buffer.is_empty()
    }

    /// Buffers `items`, one per row, and flushes a full buffer.
    pub(super) fn buffer_items(
        &mut self,
        rows: &GroupedRows<'_>,
        nulls: Option<&NullBuffer>,
        items: &[K::Item],
    ) {
        self.value_buffer.append_rows(rows, nulls, items);
        if self.value_buffer.is_full(rows.group_count, self.state_bytes()) {
            self.flush_buffer();
        }
    }

    /// Adds all buffered values to the states.
    pub(super) fn flush_buffer(&mut self) {
        if self.value_buffer.is_empty() {
            return;
        }
        self.has_updates = true;
        let values = self.value_buffer.take_by_group(self.states.len());
        for (group, state) in self.states.iter_mut().enumerate() {
            let items = values.group_values(group);
            if !items.is_empty() {
                update_and_count_heap(state, &mut self.heap_bytes, K::heap_bytes, |state| {
                    K::add_items(state, items)
                });
            }
        }
    }
}

/// Maximum size of the states, in bytes, up to which rows are added directly.
const CACHED_STATES_BYTES_MAX: usize = 1 << 17;

/// The state column of a sketch kind.
pub(super) struct SketchStates<K: SketchKind> {
    kind: K,
    aggregate: TableAggregate,
    buffered_states: BufferedSketchStates<K>,
}

impl<K: SketchKind> SketchStates<K> {
    pub(super) fn new(kind: K, aggregate: &TableAggregate) -> Self {
        let (states, waiting) = (Vec::new(), ValueBuffer::default());
        let filled = BufferedSketchStates {
            states,
            heap_bytes: 0,
            has_updates: false,
            value_buffer: waiting,
        };
        SketchStates { kind, aggregate: aggregate.clone(), buffered_states: filled }
    }

    fn resize(&mut self, group_count: usize) {
        self.buffered_states.states.resize_with(group_count, || self.kind.new_state());
    }

    /// Flushes the buffer and takes all states out.
    fn drain_states(&mut self, group_count: usize) -> Vec<K::State> {
        self.resize(group_count);
        self.buffered_states.flush_buffer();
        (self.buffered_states.heap_bytes, self.buffered_states.has_updates) = (0, false);
        std::mem::take(&mut self.buffered_states.states)
    }
}

/// Changes a state and adds its heap growth to `heap`.
pub(super) fn update_and_count_heap<S>(
    state: &mut S,
    heap: &mut usize,
    size: impl Fn(&S) -> usize,
    change: impl FnOnce(&mut S),
) {
    let before = size(state);
    change(state);
    *heap = (*heap + size(state)).saturating_sub(before);
}

impl<K: SketchKind> StateColumn for SketchStates<K> {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        self.kind.update(&mut self.buffered_states, rows)
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let from = TypedSketchStates::<K>::downcast_payload(states)
            .ok_or_else(|| state_type_error(K::NAME))?;
        self.buffered_states.flush_buffer();
        self.buffered_states.has_updates = true;
        let heap = &mut self.buffered_states.heap_bytes;
        match from {
            SketchPayload::States(from) => {
                routes.merge_states(&mut self.buffered_states.states, |state, row, _| {
                    update_and_count_heap(state, heap, K::heap_bytes, |state| {
                        K::merge(state, &mut from[row].lock())
                    });
                })
            }
            SketchPayload::RawItems { values, .. } => {
                routes.merge_states(&mut self.buffered_states.states, |state, row, _| {
                    update_and_count_heap(state, heap, K::heap_bytes, |state| {
                        K::merge_items(state, values.group_values(row))
                    });
                });
            }
        }
        Ok(())
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let BufferedSketchStates { states, has_updates: has_states, value_buffer: waiting, .. } =
            &mut self.buffered_states;
        if !*has_states && !waiting.is_empty() {
            let values = waiting.take_by_group(group_count);
            if values.largest_group_len() <= self.kind.raw_items_max() {
                states.clear();
                let handed = SketchPayload::RawItems { empty: self.kind.new_state(), values };
                return Ok(ChunkStates::Sketches(Box::new(TypedSketchStates::<K>(handed))));
            }
            waiting.restore(values);
        }
        Ok(TypedSketchStates::<K>::from_states(self.drain_states(group_count)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        let array = expect_binary_states(K::NAME, array)?;
        let states = array.iter().map(|bytes| match bytes {
            Some(bytes) => self.kind.decode(bytes).map_err(|e| corrupt_state_error(K::NAME, e)),
            None => Err(corrupt_state_error(K::NAME, "it is missing")),
        });
        Ok(TypedSketchStates::<K>::from_states(states.collect::<Result<Vec<_>>>()?))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let states = self.drain_states(group_count);
        self.kind.finish(&states, &self.aggregate)
    }

    fn evaluate_in_place(&mut self) -> Result<Option<ArrayRef>> {
        self.resize(1);
        self.buffered_states.flush_buffer();
        Ok(Some(self.kind.finish(&self.buffered_states.states, &self.aggregate)?))
    }

    fn finish_shared_aggregates(
        &mut self,
        group_count: usize,
        of: &[&TableAggregate],
    ) -> Result<Vec<ArrayRef>> {
        let states = self.drain_states(group_count);
        of.iter().map(|one| self.kind.finish(&states, one)).collect()
    }

    fn precision(&mut self, of: &TableAggregate) -> Option<SketchPrecision> {
        K::precision(&self.kind.new_state(), of)?;
        self.buffered_states.flush_buffer();
        let each = self.buffered_states.states.iter().filter_map(|state| K::precision(state, of));
        Some(each.fold(SketchPrecision::EXACT, SketchPrecision::combine))
    }

    fn memory_bytes(&self) -> usize {
        let BufferedSketchStates { states, heap_bytes: heap, value_buffer: waiting, .. } =
            &self.buffered_states;
        states.capacity() * size_of::<K::State>() + heap + waiting.memory_bytes()
    }
}

pub(super) fn expect_binary_states<'a>(
    name: &str,
    array: &'a ArrayRef,
) -> Result<&'a LargeBinaryArray> {
    array
        .as_binary_opt::<i64>()
        .ok_or_else(|| corrupt_state_error(name, "binary states are expected"))
}
