//! Sums and means of lists, structs and maps, element by element.
//!
//! The elements of a group (list indexes, map keys) are groups of their own in one column of element states.
//! That column knows nothing of lists, so everything that holds for sums of numbers holds here, and lists of
//! lists need no special case.
//!
//! ```text
//!   group 0   [1, 2]  [3]        places of group 0: 0, 1     sums of places: 4, 2 │ 5, 6, 7
//!   group 1   [5, 6, 7]          places of group 1: 2, 3, 4
//! ```
//!
//! The answer is as long as the longest list; shorter lists contribute the elements that they have. Null
//! lists and null elements are ignored; the sum of an element that is null in all lists is null. The answer
//! lists a map's keys in ascending order.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, LargeListArray, MapArray, StructArray, UInt32Array,
    new_empty_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::row::{RowConverter, SortField};
use tidemill_base::error::{Error, Result};

use super::value_presence::ValuePresence;
use super::{
    ChunkStates, GroupedRows, StateColumn, StateRoutes, corrupt_state_error, new_state_column,
    state_type_error,
};
use crate::spec::TableAggregate;
use crate::value_encoding;

/// The states of groups' elements within a chunk.
pub(crate) struct NestedChunkStates {
    /// The groups that have a list, struct or map.
    group_validity: Option<NullBuffer>,
    /// The offset of each group's first element; `None` for structs.
    offsets: Option<OffsetBuffer<i64>>,
    /// The keys of map elements.
    map_keys: Option<ArrayRef>,
    /// The elements' states; for structs, those of each field.
    element_states: Vec<ChunkStates>,
}

impl NestedChunkStates {
    pub(super) fn memory_bytes(&self) -> usize {
        let offsets = self.offsets.as_ref().map_or(0, |offsets| offsets.inner().inner().len());
        let keys = self.map_keys.as_ref().map_or(0, |keys| keys.get_array_memory_size());
        offsets + keys + self.element_states.iter().map(ChunkStates::memory_bytes).sum::<usize>()
    }

    pub(super) fn encode(&self) -> Result<ArrayRef> {
        let elements =
            self.element_states.iter().map(ChunkStates::encode).collect::<Result<Vec<_>>>()?;
        let Some(offsets) = &self.offsets else {
            let fields = elements.iter().enumerate().map(|(index, array)| {
                Field::new(index.to_string(), array.data_type().clone(), true)
            });
            let fields: Fields = fields.collect();
            return Ok(Arc::new(StructArray::try_new(
                fields,
                elements,
                self.group_validity.clone(),
            )?));
        };
        let mut elements = elements;
        let states = elements.pop().ok_or_else(|| state_type_error("sum"))?;
        let items: ArrayRef = match &self.map_keys {
            None => states,
            Some(keys) => Arc::new(StructArray::try_new(
                map_entry_fields(keys.data_type(), states.data_type()),
                vec![Arc::clone(keys), states],
                None,
            )?),
        };
        let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        let lists =
            LargeListArray::try_new(item, offsets.clone(), items, self.group_validity.clone())?;
        Ok(Arc::new(lists))
    }
}

fn map_entry_fields(key: &DataType, state: &DataType) -> Fields {
    [Field::new("key", key.clone(), false), Field::new("state", state.clone(), true)]
        .into_iter()
        .collect()
}

/// Returns true for types whose elements are added up one by one.
pub(crate) fn is_nested_type(of: &DataType) -> bool {
    matches!(
        of,
        DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(_, _)
            | DataType::Struct(_)
            | DataType::Map(_, _)
    )
}

/// Returns the aggregates of a nested aggregate's elements; `None` if the answer's type has another
/// structure.
pub(super) fn element_aggregates(of: &TableAggregate) -> Option<Vec<TableAggregate>> {
    let element = |argument: &FieldRef, output: &FieldRef| TableAggregate {
        argument_type: argument.data_type().clone(),
        output_field: Arc::new(Field::new(
            of.output_field.name(),
            output.data_type().clone(),
            true,
        )),
        ..of.clone()
    };
    match (&of.argument_type, of.output_field.data_type()) {
        (
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
            DataType::List(sum),
        ) => Some(vec![element(item, sum)]),
        (DataType::Struct(fields), DataType::Struct(sums)) if fields.len() == sums.len() => {
            Some(fields.iter().zip(sums).map(|(field, sum)| element(field, sum)).collect())
        }
        (DataType::Map(entries, _), DataType::Map(sums, _)) => {
            let (DataType::Struct(entries), DataType::Struct(sums)) =
                (entries.data_type(), sums.data_type())
            else {
                return None;
            };
            let key = SortField::new(entries.first()?.data_type().clone());
            if !RowConverter::supports_fields(&[key]) {
                return None;
            }
            Some(vec![element(entries.get(1)?, sums.get(1)?)])
        }
        _ => None,
    }
}

/// Creates an empty column for a nested aggregate.
///
/// # Errors
/// Returns an error if the elements have no states, which the planner has ruled out.
pub(super) fn new_nested_column(of: &TableAggregate) -> Result<Box<dyn StateColumn>> {
    let elements = element_aggregates(of)
        .ok_or_else(|| Error::Internal(format!("{} over {}", of.function, of.argument_type)))?;
    let argument = of.argument_type.clone();
    let output = of.output_field.data_type().clone();
    Ok(match &argument {
        DataType::Struct(_) => {
            let fields = elements.iter().map(new_state_column).collect::<Result<Vec<_>>>()?;
            Box::new(NestedStructStates {
                field_states: fields,
                presence: ValuePresence::default(),
                output_type: output,
            })
        }
        DataType::Map(_, _) => Box::new(NestedMapStates::new(argument, output, &elements)?),
        _ => Box::new(NestedListStates {
            element_states: ElementStates::new(&elements)?,
            group_places: Vec::new(),
            output_type: output,
        }),
    })
}

/// The states of all groups' elements, one place per element.
struct ElementStates {
    element_aggregate: TableAggregate,
    states: Box<dyn StateColumn>,
    place_count: usize,
}

impl ElementStates {
    fn new(elements: &[TableAggregate]) -> Result<Self> {
        let element = elements.first().cloned().ok_or_else(|| state_type_error("sum"))?;
        Ok(ElementStates {
            states: new_state_column(&element)?,
            element_aggregate: element,
            place_count: 0,
        })
    }

    /// Adds a place without a value.
    fn add_place(&mut self) -> Result<u32> {
        let place = u32::try_from(self.place_count).map_err(|_| Error::Overflow {
            message: format!(
                "`{}` has more than 2^32 elements",
                self.element_aggregate.output_field.name()
            ),
            hint: Some("unnest the lists, and group by the elements' places".into()),
        })?;
        self.place_count += 1;
        Ok(place)
    }

    /// Adds the values at indexes `elements` of `values` to the states at `places`.
    fn update_places(
        &mut self,
        values: &ArrayRef,
        elements: Vec<u32>,
        places: &[usize],
    ) -> Result<()> {
        let values = take(values, &UInt32Array::from(elements), None)?;
        self.states.update(&GroupedRows {
            argument_values: Some(&values),
            second_values: None,
            filter: None,
            positions: None,
            groups: places,
            group_count: self.place_count,
        })
    }

    fn merge_places(&mut self, states: &ChunkStates, rows: &[u32], places: &[usize]) -> Result<()> {
        self.states.merge(
            states,
            &StateRoutes { incoming_rows: rows, groups: places, group_count: self.place_count },
        )
    }

    /// Takes all states, reorders them by `order`, and returns them as a column.
    fn take_in_order(&mut self, order: &[u32]) -> Result<Box<dyn StateColumn>> {
        let empty = new_state_column(&self.element_aggregate)?;
        let mut all = std::mem::replace(&mut self.states, empty);
        let states = all.take_states(std::mem::take(&mut self.place_count))?;
        let mut ordered = new_state_column(&self.element_aggregate)?;
        let groups: Vec<usize> = (0..order.len()).collect();
        let routes =
            StateRoutes { incoming_rows: order, groups: &groups, group_count: order.len() };
        ordered.merge(&states, &routes)?;
        Ok(ordered)
    }
}

// ── lists ────────────────────────────────────────────────────────────────────────────────

/// The states of lists' elements.
struct NestedListStates {
    element_states: ElementStates,
    /// For each group that has seen a list, the places of its elements.
    group_places: Vec<Option<Vec<u32>>>,
    output_type: DataType,
}

impl NestedListStates {
    fn find_or_add_place(&mut self, group: usize, element: usize) -> Result<usize> {
        let places = self.group_places[group].get_or_insert_default();
        while places.len() <= element {
            places.push(self.element_states.add_place()?);
        }
        Ok(places[element] as usize)
    }

    /// Takes the groups' places: which groups have seen a list, each group's offset, and the places in order.
    fn take_ordered_places(
        &mut self,
        group_count: usize,
    ) -> (Option<NullBuffer>, OffsetBuffer<i64>, Vec<u32>) {
        self.group_places.resize_with(group_count, || None);
        let groups = std::mem::take(&mut self.group_places);
        let present = NullBuffer::from_iter(groups.iter().map(Option::is_some));
        let lengths = groups.iter().map(|places| places.as_ref().map_or(0, Vec::len));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let order = groups.into_iter().flatten().flatten().collect();
        (Some(present).filter(|present| present.null_count() > 0), offsets, order)
    }
}

fn cast_to_large_lists(of: &ArrayRef) -> Result<LargeListArray> {
    let item = match of.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => item,
        other => return Err(Error::Internal(format!("elements of {other}"))),
    };
    let lists = value_encoding::cast_exactly(of, &DataType::LargeList(Arc::clone(item)))?;
    Ok(lists.as_list::<i64>().clone())
}

impl StateColumn for NestedListStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.group_places.resize_with(rows.group_count, || None);
        let lists = cast_to_large_lists(rows.required_values()?)?;
        let offsets = lists.value_offsets();
        let (mut elements, mut places) = (Vec::new(), Vec::new());
        let mut found = Ok(());
        rows.for_each_row(lists.nulls(), |row, group| {
            self.group_places[group].get_or_insert_default();
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            for (element, value) in (start..end).enumerate() {
                match self.find_or_add_place(group, element) {
                    Ok(place) => {
                        elements.push(value as u32);
                        places.push(place);
                    }
                    Err(error) => found = Err(error),
                }
            }
        });
        found?;
        self.element_states.update_places(lists.values(), elements, &places)
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.group_places.resize_with(routes.group_count, || None);
        let (from, offsets, element) = expect_list_states(states)?;
        let (mut rows, mut places) = (Vec::new(), Vec::new());
        for (row, group) in routes.state_group_pairs() {
            if from.group_validity.as_ref().is_some_and(|present| present.is_null(row)) {
                continue;
            }
            self.group_places[group].get_or_insert_default();
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            for (element, state) in (start..end).enumerate() {
                places.push(self.find_or_add_place(group, element)?);
                rows.push(state as u32);
            }
        }
        self.element_states.merge_places(element, &rows, &places)
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let (present, offsets, order) = self.take_ordered_places(group_count);
        let elements = self.element_states.take_in_order(&order)?.take_states(order.len())?;
        let offsets = Some(offsets);
        let states = NestedChunkStates {
            group_validity: present,
            offsets,
            map_keys: None,
            element_states: vec![elements],
        };
        Ok(ChunkStates::Nested(Box::new(states)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        let lists = array
            .as_list_opt::<i64>()
            .ok_or_else(|| corrupt_state_error("sum", "lists of states are expected"))?;
        let elements = vec![self.element_states.states.decode(lists.values())?];
        let (present, offsets) = (lists.nulls().cloned(), Some(lists.offsets().clone()));
        Ok(ChunkStates::Nested(Box::new(NestedChunkStates {
            group_validity: present,
            offsets,
            map_keys: None,
            element_states: elements,
        })))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let (present, offsets, order) = self.take_ordered_places(group_count);
        let sums = self.element_states.take_in_order(&order)?.finish(order.len())?;
        let item = Arc::new(Field::new_list_field(sums.data_type().clone(), true));
        let lists: ArrayRef = Arc::new(LargeListArray::try_new(item, offsets, sums, present)?);
        value_encoding::cast_exactly(&lists, &self.output_type)
    }

    fn memory_bytes(&self) -> usize {
        // Each place is also an entry of the order in which the answer is built.
        let places = 2 * self.element_states.place_count * size_of::<u32>();
        self.group_places.capacity() * size_of::<Option<Vec<u32>>>()
            + places
            + self.element_states.states.memory_bytes()
    }
}

/// Returns the states of list or map elements, with each group's offset.
fn expect_list_states(
    states: &ChunkStates,
) -> Result<(&NestedChunkStates, &OffsetBuffer<i64>, &ChunkStates)> {
    match states {
        ChunkStates::Nested(from) => match (&from.offsets, from.element_states.as_slice()) {
            (Some(offsets), [element]) => Ok((from, offsets, element)),
            _ => Err(state_type_error("sum")),
        },
        _ => Err(state_type_error("sum")),
    }
}

// ── maps ─────────────────────────────────────────────────────────────────────────────────

/// The states of maps' values, by key.
struct NestedMapStates {
    element_states: ElementStates,
    /// Encodes keys as bytes that sort in key order.
    key_converter: RowConverter,
    key_type: DataType,
    /// For each group that has seen a map, the places of its keys.
    group_places: Vec<Option<HashMap<Box<[u8]>, u32>>>,
    /// Heap memory of the keys, in bytes.
    key_heap_bytes: usize,
    output_type: DataType,
}

impl NestedMapStates {
    fn new(argument: DataType, output: DataType, elements: &[TableAggregate]) -> Result<Self> {
        let key = match &argument {
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(entries) => entries.first().map(|key| key.data_type().clone()),
                _ => None,
            },
            _ => None,
        };
        let key = key.ok_or_else(|| state_type_error("sum"))?;
        let converter = RowConverter::new(vec![SortField::new(key.clone())])?;
        let places = ElementStates::new(elements)?;
        Ok(NestedMapStates {
            element_states: places,
            key_converter: converter,
            key_type: key,
            group_places: Vec::new(),
            key_heap_bytes: 0,
            output_type: output,
        })
    }

    fn find_or_add_place(&mut self, group: usize, key: &[u8]) -> Result<usize> {
        let places = self.group_places[group].get_or_insert_default();
        if let Some(place) = places.get(key) {
            return Ok(*place as usize);
        }
        let place = self.element_states.add_place()?;
        self.key_heap_bytes += key.len() + 2 * size_of::<(Box<[u8]>, u32)>();
        places.insert(key.into(), place);
        Ok(place as usize)
    }

    /// Takes the groups' places as for lists, with each group's keys in ascending order.
    #[expect(clippy::type_complexity, reason = "taken apart at once")]
    fn take_ordered_places(
        &mut self,
        group_count: usize,
    ) -> Result<(Option<NullBuffer>, OffsetBuffer<i64>, ArrayRef, Vec<u32>)> {
        self.group_places.resize_with(group_count, || None);
        self.key_heap_bytes = 0;
        let groups = std::mem::take(&mut self.group_places);
        let present = NullBuffer::from_iter(groups.iter().map(Option::is_some));
        let lengths = groups.iter().map(|places| places.as_ref().map_or(0, HashMap::len));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let (mut keys, mut order) = (Vec::new(), Vec::new());
        for places in groups.into_iter().flatten() {
            let mut sorted: Vec<(Box<[u8]>, u32)> = places.into_iter().collect();
            sorted.sort_unstable();
            for (key, place) in sorted {
                keys.push(key);
                order.push(place);
            }
        }
        let parser = self.key_converter.parser();
        let rows = keys.iter().map(|key| parser.parse(key));
        let keys = match keys.is_empty() {
            true => new_empty_array(&self.key_type),
            false => {
                let keys = self.key_converter.convert_rows(rows)?.pop();
                value_encoding::cast_exactly(
                    &keys.ok_or_else(|| state_type_error("sum"))?,
                    &self.key_type,
                )?
            }
        };
        Ok((Some(present).filter(|present| present.null_count() > 0), offsets, keys, order))
    }

    /// Returns the entries of `pairs`, which are pairs of entry and group, with their places; adds missing
    /// places.
    fn find_or_add_places(
        &mut self,
        keys: &ArrayRef,
        pairs: &[(usize, usize)],
    ) -> Result<(Vec<u32>, Vec<usize>)> {
        let keys = self.key_converter.convert_columns(std::slice::from_ref(keys))?;
        let (mut entries, mut places) =
            (Vec::with_capacity(pairs.len()), Vec::with_capacity(pairs.len()));
        for (entry, group) in pairs {
            places.push(self.find_or_add_place(*group, keys.row(*entry).as_ref())?);
            entries.push(*entry as u32);
        }
        Ok((entries, places))
    }
}

impl StateColumn for NestedMapStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.group_places.resize_with(rows.group_count, || None);
        let maps = rows.required_values()?.as_map().clone();
        let offsets = maps.value_offsets();
        let mut pairs = Vec::new();
        rows.for_each_row(maps.nulls(), |row, group| {
            self.group_places[group].get_or_insert_default();
            let entries = offsets[row] as usize..offsets[row + 1] as usize;
            pairs.extend(entries.map(|entry| (entry, group)));
        });
        let (entries, places) = self.find_or_add_places(maps.keys(), &pairs)?;
        self.element_states.update_places(maps.values(), entries, &places)
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.group_places.resize_with(routes.group_count, || None);
        let (from, offsets, element) = expect_list_states(states)?;
        let keys = from.map_keys.as_ref().ok_or_else(|| state_type_error("sum"))?;
        let mut pairs = Vec::new();
        for (row, group) in routes.state_group_pairs() {
            if from.group_validity.as_ref().is_some_and(|present| present.is_null(row)) {
                continue;
            }
            self.group_places[group].get_or_insert_default();
            let entries = offsets[row] as usize..offsets[row + 1] as usize;
            pairs.extend(entries.map(|entry| (entry, group)));
        }
        let (rows, places) = self.find_or_add_places(keys, &pairs)?;
        self.element_states.merge_places(element, &rows, &places)
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let (present, offsets, keys, order) = self.take_ordered_places(group_count)?;
        let elements = self.element_states.take_in_order(&order)?.take_states(order.len())?;
        let (offsets, keys) = (Some(offsets), Some(keys));
        let states = NestedChunkStates {
            group_validity: present,
            offsets,
            map_keys: keys,
            element_states: vec![elements],
        };
        Ok(ChunkStates::Nested(Box::new(states)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        let refused = || corrupt_state_error("sum", "lists of keys and states are expected");
        let lists = array.as_list_opt::<i64>().ok_or_else(refused)?;
        let entries = lists.values().as_struct_opt().ok_or_else(refused)?;
        let is_kept = entries.num_columns() == 2
            && entries.null_count() == 0
            && entries.column(0).data_type() == &self.key_type
            && entries.column(0).null_count() == 0;
        if !is_kept {
            return Err(refused());
        }
        // A duplicate key would merge one state over the other.
        let keys = self.key_converter.convert_columns(std::slice::from_ref(entries.column(0)))?;
        for ends in lists.offsets().windows(2) {
            let (start, end) = (ends[0] as usize, ends[1] as usize);
            if (start + 1..end).any(|entry| keys.row(entry - 1) >= keys.row(entry)) {
                return Err(refused());
            }
        }
        Ok(ChunkStates::Nested(Box::new(NestedChunkStates {
            group_validity: lists.nulls().cloned(),
            offsets: Some(lists.offsets().clone()),
            map_keys: Some(Arc::clone(entries.column(0))),
            element_states: vec![self.element_states.states.decode(entries.column(1))?],
        })))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let (present, offsets, keys, order) = self.take_ordered_places(group_count)?;
        let sums = self.element_states.take_in_order(&order)?.finish(order.len())?;
        let DataType::Map(entries, is_ordered) = &self.output_type else {
            return Err(state_type_error("sum"));
        };
        let DataType::Struct(fields) = entries.data_type() else {
            return Err(state_type_error("sum"));
        };
        let entry = StructArray::try_new(fields.clone(), vec![keys, sums], None)?;
        let offsets = offsets.iter().map(|offset| i32::try_from(*offset));
        let offsets = offsets.collect::<Result<Vec<_>, _>>().map_err(|_| Error::Overflow {
            message: format!(
                "`{}` has more than 2^31 entries",
                self.element_states.element_aggregate.output_field.name()
            ),
            hint: Some("unnest the maps, and group by the keys".into()),
        })?;
        let offsets = OffsetBuffer::new(offsets.into());
        let entries = Arc::clone(entries);
        Ok(Arc::new(MapArray::try_new(entries, offsets, entry, present, *is_ordered)?))
    }

    fn memory_bytes(&self) -> usize {
        let groups = self.group_places.capacity() * size_of::<Option<HashMap<Box<[u8]>, u32>>>();
        groups + self.key_heap_bytes + self.element_states.states.memory_bytes()
    }
}

// ── structs ──────────────────────────────────────────────────────────────────────────────

/// The states of structs' fields.
struct NestedStructStates {
    field_states: Vec<Box<dyn StateColumn>>,
    /// The groups that have seen a struct.
    presence: ValuePresence,
    output_type: DataType,
}

impl StateColumn for NestedStructStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let structs = rows.required_values()?.as_struct();
        let selected = rows.selected_rows(structs.nulls());
        let wanted = selected.map(|selected| BooleanArray::new(selected.into_inner(), None));
        match &wanted {
            None => self.presence.mark_groups(rows.groups, rows.group_count),
            Some(wanted) => {
                let seen = self.presence.flags_mut(rows.group_count);
                wanted.values().set_indices().for_each(|row| seen[rows.groups[row]] = true);
            }
        }
        for (states, values) in self.field_states.iter_mut().zip(structs.columns()) {
            states.update(&GroupedRows {
                argument_values: Some(values),
                second_values: None,
                filter: wanted.as_ref(),
                positions: None,
                groups: rows.groups,
                group_count: rows.group_count,
            })?;
        }
        Ok(())
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        let ChunkStates::Nested(from) = states else { return Err(state_type_error("sum")) };
        if from.element_states.len() != self.field_states.len() {
            return Err(state_type_error("sum"));
        }
        let seen = self.presence.flags_mut(routes.group_count);
        for (row, group) in routes.state_group_pairs() {
            seen[group] |= from.group_validity.as_ref().is_none_or(|present| present.is_valid(row));
        }
        for (here, from) in self.field_states.iter_mut().zip(&from.element_states) {
            here.merge(from, routes)?;
        }
        Ok(())
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let present = self.presence.take_nulls(group_count);
        let elements = self.field_states.iter_mut().map(|field| field.take_states(group_count));
        let elements = elements.collect::<Result<Vec<_>>>()?;
        let states = NestedChunkStates {
            group_validity: present,
            offsets: None,
            map_keys: None,
            element_states: elements,
        };
        Ok(ChunkStates::Nested(Box::new(states)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        let structs = array.as_struct_opt();
        let structs = structs.filter(|structs| structs.num_columns() == self.field_states.len());
        let structs =
            structs.ok_or_else(|| corrupt_state_error("sum", "structs of states are expected"))?;
        let fields = self.field_states.iter().zip(structs.columns());
        let elements = fields.map(|(field, states)| field.decode(states));
        let elements = elements.collect::<Result<Vec<_>>>()?;
        let present = structs.nulls().cloned();
        Ok(ChunkStates::Nested(Box::new(NestedChunkStates {
            group_validity: present,
            offsets: None,
            map_keys: None,
            element_states: elements,
        })))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let present = self.presence.take_nulls(group_count);
        let DataType::Struct(fields) = &self.output_type else {
            return Err(state_type_error("sum"));
        };
        let sums = self.field_states.iter_mut().map(|field| field.finish(group_count));
        let sums = sums.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), sums, present, group_count)?))
    }

    fn memory_bytes(&self) -> usize {
        self.presence.memory_bytes()
            + self.field_states.iter().map(|field| field.memory_bytes()).sum::<usize>()
    }
}
