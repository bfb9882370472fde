//! The column that all states of the `sketch` crate but sums are kept in.
//!
//! A row of one of many groups would fetch its state and what this has on the heap from memory, and each
//! little growth of a state would be an allocation. Once the states have outgrown the cache, values
//! [wait](Waiting) with the number of their group instead, and are added some to a state at once, in the order
//! in which they came. Where a table gives its groups up before that, they travel as the values that they have.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, LargeBinaryArray, LargeBinaryBuilder};
use arrow::buffer::NullBuffer;
use parking_lot::Mutex;
use tidemill_base::error::Result;
use tidemill_sketch::SketchError;

use super::waiting::{ByGroup, Waiting};
use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::spec::{Aggregate, Precision};

/// What differs between the columns of sketches.
pub(super) trait SketchKind: Send + 'static {
    type State: Clone + Send + Sync + 'static;
    /// What rows bring that may wait.
    type Item: Copy + Default + Send + Sync + 'static;
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
    /// Appends a state's form on disk.
    fn encode(state: &Self::State, out: &mut Vec<u8>);
    fn decode(&self, bytes: &[u8]) -> Result<Self::State, SketchError>;
    /// Feeds `rows` to the states, now or later.
    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()>;
    /// How good an answer is; none where it is exact by nature.
    fn precision(state: &Self::State, of: &Aggregate) -> Option<Precision>;
    fn finish(&self, states: &[Self::State], of: &Aggregate) -> Result<ArrayRef>;
}

/// Of more values in one group, states travel.
const LISTED_MAX: usize = 1 << 10;

/// Groups on their way between tables.
enum Handed<S, T> {
    /// States, each of which is taken by the one table that has its group then: what is on its heap goes along.
    States(Vec<Mutex<S>>),
    /// The values of each group, few and in order, of which there is no state yet.
    Values { empty: S, values: ByGroup<T> },
}

/// What all tables ask of groups of sketches on their way, of whatever kind these are.
pub(crate) trait Travelling: Any + Send + Sync {
    /// The memory they take, in bytes.
    fn bytes(&self) -> usize;
    /// Their form on disk.
    fn encode(&self) -> ArrayRef;
}

/// Groups of one kind on their way.
struct Travellers<K: SketchKind>(Handed<K::State, K::Item>);

impl<K: SketchKind> Travellers<K> {
    fn of_states(states: impl IntoIterator<Item = K::State>) -> States {
        let states = states.into_iter().map(Mutex::new).collect();
        States::Sketches(Box::new(Travellers::<K>(Handed::States(states))))
    }

    /// The groups, if they are of this kind.
    fn find(states: &States) -> Option<&Handed<K::State, K::Item>> {
        let States::Sketches(travelling) = states else { return None };
        let any: &dyn Any = travelling.as_ref();
        any.downcast_ref::<Self>().map(|Travellers(handed)| handed)
    }
}

impl<K: SketchKind> Travelling for Travellers<K> {
    fn bytes(&self) -> usize {
        match &self.0 {
            Handed::States(states) => {
                let own = states.capacity() * size_of::<Mutex<K::State>>();
                own + states.iter().map(|state| K::heap(&state.lock())).sum::<usize>()
            }
            Handed::Values { values, .. } => values.bytes(),
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
            Handed::States(states) => states.iter().for_each(|state| append(&state.lock())),
            Handed::Values { empty, values } => {
                for group in 0..values.group_count() {
                    let mut state = empty.clone();
                    K::add_all(&mut state, values.of(group));
                    append(&state);
                }
            }
        }
        Arc::new(builder.finish())
    }
}

/// States with what their rows have brought.
pub(super) struct Filled<K: SketchKind + ?Sized> {
    pub(super) states: Vec<K::State>,
    /// What the states have on the heap, in bytes.
    pub(super) heap: usize,
    /// Whether anything may have been added to a state.
    pub(super) has_states: bool,
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

    /// Has the states take `items`, a row's each: at once with `add` while they are in the cache, all together
    /// where there is one group, else many of a group together, later.
    pub(super) fn take_in(
        &mut self,
        rows: &Rows<'_>,
        nulls: Option<&NullBuffer>,
        items: &[K::Item],
        add: impl Fn(&mut K::State, K::Item),
    ) {
        if rows.group_count == 1 {
            return self.take_in_one(rows, nulls, items);
        }
        match self.would_wait() {
            true => self.wait(rows, nulls, items),
            false => self.each(rows, nulls, |state, row| add(state, items[row])),
        }
    }

    /// Has the one state there is take `items`, a row's each.
    pub(super) fn take_in_one(
        &mut self,
        rows: &Rows<'_>,
        nulls: Option<&NullBuffer>,
        items: &[K::Item],
    ) {
        self.settle();
        self.has_states = true;
        let Filled { states, heap, .. } = self;
        let [state] = &mut states[..] else { return };
        let some: Vec<_>;
        let items = match rows.selected(nulls) {
            None => items,
            Some(selected) => {
                some = selected.valid_indices().map(|row| items[row]).collect();
                &some
            }
        };
        booked(state, heap, K::heap, |state| K::add_all(state, items));
    }

    fn state_bytes(&self) -> usize {
        size_of_val(&*self.states) + self.heap
    }

    /// Whether rows wait: the states are not in the cache, or others wait that came before them.
    pub(super) fn would_wait(&self) -> bool {
        self.state_bytes() > STATES_CACHED_BYTES || !self.waiting.is_empty()
    }

    /// Has `items`, a row's each, wait.
    pub(super) fn wait(&mut self, rows: &Rows<'_>, nulls: Option<&NullBuffer>, items: &[K::Item]) {
        self.waiting.add(rows, nulls, items);
        if self.waiting.is_full(rows.group_count, self.state_bytes()) {
            self.settle();
        }
    }

    /// Has the states take what waits.
    pub(super) fn settle(&mut self) {
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
        let from = Travellers::<K>::find(states).ok_or_else(|| mismatch(K::NAME))?;
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
                let handed = Handed::Values { empty: self.kind.empty(), values };
                return Ok(States::Sketches(Box::new(Travellers::<K>(handed))));
            }
            waiting.return_to(values);
        }
        Ok(Travellers::<K>::of_states(self.take_states(group_count)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let array = binary(K::NAME, array)?;
        let states = array.iter().map(|bytes| match bytes {
            Some(bytes) => self.kind.decode(bytes).map_err(|e| refused(K::NAME, e)),
            None => Err(refused(K::NAME, "it is missing")),
        });
        Ok(Travellers::<K>::of_states(states.collect::<Result<Vec<_>>>()?))
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
