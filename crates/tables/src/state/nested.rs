//! Sums and means of lists, structs and maps: element by element, by the states of their numbers.
//!
//! What a group has of elements (places of a list, keys of a map) are groups of their own in one column of the
//! elements' states, which knows nothing of lists; so all that holds of sums of numbers holds here, and lists of
//! lists are no case of their own.
//!
//! ```text
//!   group 0   [1, 2]  [3]        places of group 0: 0, 1     sums of places: 4, 2 │ 5, 6, 7
//!   group 1   [5, 6, 7]          places of group 1: 2, 3, 4
//! ```
//!
//! A list counts as far as it goes: the answer is as long as the longest. Nulls are left out, of elements and of
//! lists; the sum of an element that was null in all lists is null. A map's keys are answered in their order.

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

use super::seen::Seen;
use super::{Routes, Rows, StateColumn, States, column, mismatch, refused};
use crate::spec::Aggregate;
use crate::value;

/// The states of groups' elements on their way.
pub(crate) struct NestedStates {
    /// Which groups have any.
    present: Option<NullBuffer>,
    /// Where each group's elements begin; none of structs.
    offsets: Option<OffsetBuffer<i64>>,
    /// The keys of maps' elements.
    keys: Option<ArrayRef>,
    /// The elements' states; of structs, each field's.
    elements: Vec<States>,
}

impl NestedStates {
    pub(super) fn bytes(&self) -> usize {
        let offsets = self.offsets.as_ref().map_or(0, |offsets| offsets.inner().inner().len());
        let keys = self.keys.as_ref().map_or(0, |keys| keys.get_array_memory_size());
        offsets + keys + self.elements.iter().map(States::bytes).sum::<usize>()
    }

    pub(super) fn encode(&self) -> Result<ArrayRef> {
        let elements = self.elements.iter().map(States::encode).collect::<Result<Vec<_>>>()?;
        let Some(offsets) = &self.offsets else {
            let fields = elements.iter().enumerate().map(|(index, array)| {
                Field::new(index.to_string(), array.data_type().clone(), true)
            });
            let fields: Fields = fields.collect();
            return Ok(Arc::new(StructArray::try_new(fields, elements, self.present.clone())?));
        };
        let mut elements = elements;
        let states = elements.pop().ok_or_else(|| mismatch("sum"))?;
        let items: ArrayRef = match &self.keys {
            None => states,
            Some(keys) => Arc::new(StructArray::try_new(
                entry_fields(keys.data_type(), states.data_type()),
                vec![Arc::clone(keys), states],
                None,
            )?),
        };
        let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        let lists = LargeListArray::try_new(item, offsets.clone(), items, self.present.clone())?;
        Ok(Arc::new(lists))
    }
}

fn entry_fields(key: &DataType, state: &DataType) -> Fields {
    [Field::new("key", key.clone(), false), Field::new("state", state.clone(), true)]
        .into_iter()
        .collect()
}

/// Whether a type is of elements that are added up one by one.
pub(crate) fn is_nested(of: &DataType) -> bool {
    matches!(
        of,
        DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(_, _)
            | DataType::Struct(_)
            | DataType::Map(_, _)
    )
}

/// The aggregates of a nested aggregate's elements, with their names; none where the answer has another form.
pub(super) fn elements(of: &Aggregate) -> Option<Vec<Aggregate>> {
    let element = |argument: &FieldRef, output: &FieldRef| Aggregate {
        argument_type: argument.data_type().clone(),
        output: Arc::new(Field::new(of.output.name(), output.data_type().clone(), true)),
        ..of.clone()
    };
    match (&of.argument_type, of.output.data_type()) {
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

/// An empty column of a nested aggregate.
///
/// # Errors
/// Where its elements have no states, which planning has ruled out.
pub(super) fn nested(of: &Aggregate) -> Result<Box<dyn StateColumn>> {
    let elements = elements(of)
        .ok_or_else(|| Error::Internal(format!("{} over {}", of.function, of.argument_type)))?;
    let argument = of.argument_type.clone();
    let output = of.output.data_type().clone();
    Ok(match &argument {
        DataType::Struct(_) => {
            let fields = elements.iter().map(column).collect::<Result<Vec<_>>>()?;
            Box::new(OfStructs { fields, seen: Seen::default(), output })
        }
        DataType::Map(_, _) => Box::new(OfMaps::new(argument, output, &elements)?),
        _ => Box::new(OfLists { places: Places::new(&elements)?, groups: Vec::new(), output }),
    })
}

/// The states of all groups' elements, and those that are added to them in a batch.
struct Places {
    element: Aggregate,
    states: Box<dyn StateColumn>,
    count: usize,
}

impl Places {
    fn new(elements: &[Aggregate]) -> Result<Self> {
        let element = elements.first().cloned().ok_or_else(|| mismatch("sum"))?;
        Ok(Places { states: column(&element)?, element, count: 0 })
    }

    /// A place of no value yet.
    fn next(&mut self) -> Result<u32> {
        let place = u32::try_from(self.count).map_err(|_| Error::Overflow {
            message: format!("`{}` has more than 2^32 elements", self.element.output.name()),
            hint: Some("unnest the lists, and group by the elements' places".into()),
        })?;
        self.count += 1;
        Ok(place)
    }

    /// Adds the `elements` of `values` to the places beside them.
    fn add(&mut self, values: &ArrayRef, elements: Vec<u32>, places: &[usize]) -> Result<()> {
        let values = take(values, &UInt32Array::from(elements), None)?;
        self.states.update(&Rows {
            values: Some(&values),
            second: None,
            filter: None,
            positions: None,
            groups: places,
            group_count: self.count,
        })
    }

    fn merge(&mut self, states: &States, rows: &[u32], places: &[usize]) -> Result<()> {
        self.states.merge(states, &Routes { rows, groups: places, group_count: self.count })
    }

    /// The states in an order of places, as a column; leaves none.
    fn in_order(&mut self, order: &[u32]) -> Result<Box<dyn StateColumn>> {
        let empty = column(&self.element)?;
        let mut all = std::mem::replace(&mut self.states, empty);
        let states = all.take(std::mem::take(&mut self.count))?;
        let mut ordered = column(&self.element)?;
        let groups: Vec<usize> = (0..order.len()).collect();
        let routes = Routes { rows: order, groups: &groups, group_count: order.len() };
        ordered.merge(&states, &routes)?;
        Ok(ordered)
    }
}

// ── lists ────────────────────────────────────────────────────────────────────────────────

struct OfLists {
    places: Places,
    /// Of each group that has seen a list, the places of its elements.
    groups: Vec<Option<Vec<u32>>>,
    output: DataType,
}

impl OfLists {
    fn place(&mut self, group: usize, element: usize) -> Result<usize> {
        let places = self.groups[group].get_or_insert_default();
        while places.len() <= element {
            places.push(self.places.next()?);
        }
        Ok(places[element] as usize)
    }

    /// Which groups have seen a list, where each one's elements begin, and their places in order.
    fn ordered(&mut self, group_count: usize) -> (Option<NullBuffer>, OffsetBuffer<i64>, Vec<u32>) {
        self.groups.resize_with(group_count, || None);
        let groups = std::mem::take(&mut self.groups);
        let present = NullBuffer::from_iter(groups.iter().map(Option::is_some));
        let lengths = groups.iter().map(|places| places.as_ref().map_or(0, Vec::len));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let order = groups.into_iter().flatten().flatten().collect();
        (Some(present).filter(|present| present.null_count() > 0), offsets, order)
    }
}

fn large_lists(of: &ArrayRef) -> Result<LargeListArray> {
    let item = match of.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => item,
        other => return Err(Error::Internal(format!("elements of {other}"))),
    };
    let lists = value::cast_to(of, &DataType::LargeList(Arc::clone(item)))?;
    Ok(lists.as_list::<i64>().clone())
}

impl StateColumn for OfLists {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.groups.resize_with(rows.group_count, || None);
        let lists = large_lists(rows.values()?)?;
        let offsets = lists.value_offsets();
        let (mut elements, mut places) = (Vec::new(), Vec::new());
        let mut found = Ok(());
        rows.for_each(lists.nulls(), |row, group| {
            self.groups[group].get_or_insert_default();
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            for (element, value) in (start..end).enumerate() {
                match self.place(group, element) {
                    Ok(place) => {
                        elements.push(value as u32);
                        places.push(place);
                    }
                    Err(error) => found = Err(error),
                }
            }
        });
        found?;
        self.places.add(lists.values(), elements, &places)
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.groups.resize_with(routes.group_count, || None);
        let (from, offsets, element) = nested_of(states)?;
        let (mut rows, mut places) = (Vec::new(), Vec::new());
        for (row, group) in routes.iter() {
            if from.present.as_ref().is_some_and(|present| present.is_null(row)) {
                continue;
            }
            self.groups[group].get_or_insert_default();
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            for (element, state) in (start..end).enumerate() {
                places.push(self.place(group, element)?);
                rows.push(state as u32);
            }
        }
        self.places.merge(element, &rows, &places)
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let (present, offsets, order) = self.ordered(group_count);
        let elements = self.places.in_order(&order)?.take(order.len())?;
        let offsets = Some(offsets);
        let states = NestedStates { present, offsets, keys: None, elements: vec![elements] };
        Ok(States::Nested(Box::new(states)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let lists = array
            .as_list_opt::<i64>()
            .ok_or_else(|| refused("sum", "lists of states are expected"))?;
        let elements = vec![self.places.states.decode(lists.values())?];
        let (present, offsets) = (lists.nulls().cloned(), Some(lists.offsets().clone()));
        Ok(States::Nested(Box::new(NestedStates { present, offsets, keys: None, elements })))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let (present, offsets, order) = self.ordered(group_count);
        let sums = self.places.in_order(&order)?.finish(order.len())?;
        let item = Arc::new(Field::new_list_field(sums.data_type().clone(), true));
        let lists: ArrayRef = Arc::new(LargeListArray::try_new(item, offsets, sums, present)?);
        value::cast_to(&lists, &self.output)
    }

    fn bytes(&self) -> usize {
        // A place also stands in the order in which it is answered.
        let places = 2 * self.places.count * size_of::<u32>();
        self.groups.capacity() * size_of::<Option<Vec<u32>>>() + places + self.places.states.bytes()
    }
}

/// The states of lists' or maps' elements, and where each group's begin.
fn nested_of(states: &States) -> Result<(&NestedStates, &OffsetBuffer<i64>, &States)> {
    match states {
        States::Nested(from) => match (&from.offsets, from.elements.as_slice()) {
            (Some(offsets), [element]) => Ok((from, offsets, element)),
            _ => Err(mismatch("sum")),
        },
        _ => Err(mismatch("sum")),
    }
}

// ── maps ─────────────────────────────────────────────────────────────────────────────────

struct OfMaps {
    places: Places,
    /// Keys as bytes that are in the order of the keys.
    converter: RowConverter,
    key: DataType,
    /// Of each group that has seen a map, the places of its keys.
    groups: Vec<Option<HashMap<Box<[u8]>, u32>>>,
    /// What the keys take.
    heap: usize,
    output: DataType,
}

impl OfMaps {
    fn new(argument: DataType, output: DataType, elements: &[Aggregate]) -> Result<Self> {
        let key = match &argument {
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(entries) => entries.first().map(|key| key.data_type().clone()),
                _ => None,
            },
            _ => None,
        };
        let key = key.ok_or_else(|| mismatch("sum"))?;
        let converter = RowConverter::new(vec![SortField::new(key.clone())])?;
        let places = Places::new(elements)?;
        Ok(OfMaps { places, converter, key, groups: Vec::new(), heap: 0, output })
    }

    fn place(&mut self, group: usize, key: &[u8]) -> Result<usize> {
        let places = self.groups[group].get_or_insert_default();
        if let Some(place) = places.get(key) {
            return Ok(*place as usize);
        }
        let place = self.places.next()?;
        self.heap += key.len() + 2 * size_of::<(Box<[u8]>, u32)>();
        places.insert(key.into(), place);
        Ok(place as usize)
    }

    /// As those of lists, with the keys in their order.
    #[expect(clippy::type_complexity, reason = "taken apart at once")]
    fn ordered(
        &mut self,
        group_count: usize,
    ) -> Result<(Option<NullBuffer>, OffsetBuffer<i64>, ArrayRef, Vec<u32>)> {
        self.groups.resize_with(group_count, || None);
        self.heap = 0;
        let groups = std::mem::take(&mut self.groups);
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
        let parser = self.converter.parser();
        let rows = keys.iter().map(|key| parser.parse(key));
        let keys = match keys.is_empty() {
            true => new_empty_array(&self.key),
            false => {
                let keys = self.converter.convert_rows(rows)?.pop();
                value::cast_to(&keys.ok_or_else(|| mismatch("sum"))?, &self.key)?
            }
        };
        Ok((Some(present).filter(|present| present.null_count() > 0), offsets, keys, order))
    }

    /// Adds the entries at `pairs`, which are of groups.
    fn found(
        &mut self,
        keys: &ArrayRef,
        pairs: &[(usize, usize)],
    ) -> Result<(Vec<u32>, Vec<usize>)> {
        let keys = self.converter.convert_columns(std::slice::from_ref(keys))?;
        let (mut entries, mut places) =
            (Vec::with_capacity(pairs.len()), Vec::with_capacity(pairs.len()));
        for (entry, group) in pairs {
            places.push(self.place(*group, keys.row(*entry).as_ref())?);
            entries.push(*entry as u32);
        }
        Ok((entries, places))
    }
}

impl StateColumn for OfMaps {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.groups.resize_with(rows.group_count, || None);
        let maps = rows.values()?.as_map().clone();
        let offsets = maps.value_offsets();
        let mut pairs = Vec::new();
        rows.for_each(maps.nulls(), |row, group| {
            self.groups[group].get_or_insert_default();
            let entries = offsets[row] as usize..offsets[row + 1] as usize;
            pairs.extend(entries.map(|entry| (entry, group)));
        });
        let (entries, places) = self.found(maps.keys(), &pairs)?;
        self.places.add(maps.values(), entries, &places)
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.groups.resize_with(routes.group_count, || None);
        let (from, offsets, element) = nested_of(states)?;
        let keys = from.keys.as_ref().ok_or_else(|| mismatch("sum"))?;
        let mut pairs = Vec::new();
        for (row, group) in routes.iter() {
            if from.present.as_ref().is_some_and(|present| present.is_null(row)) {
                continue;
            }
            self.groups[group].get_or_insert_default();
            let entries = offsets[row] as usize..offsets[row + 1] as usize;
            pairs.extend(entries.map(|entry| (entry, group)));
        }
        let (rows, places) = self.found(keys, &pairs)?;
        self.places.merge(element, &rows, &places)
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let (present, offsets, keys, order) = self.ordered(group_count)?;
        let elements = self.places.in_order(&order)?.take(order.len())?;
        let (offsets, keys) = (Some(offsets), Some(keys));
        let states = NestedStates { present, offsets, keys, elements: vec![elements] };
        Ok(States::Nested(Box::new(states)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let refused = || refused("sum", "lists of keys and states are expected");
        let lists = array.as_list_opt::<i64>().ok_or_else(refused)?;
        let entries = lists.values().as_struct_opt().ok_or_else(refused)?;
        let is_kept = entries.num_columns() == 2
            && entries.null_count() == 0
            && entries.column(0).data_type() == &self.key
            && entries.column(0).null_count() == 0;
        if !is_kept {
            return Err(refused());
        }
        // Of a key that is there twice one state would be merged over the other.
        let keys = self.converter.convert_columns(std::slice::from_ref(entries.column(0)))?;
        for ends in lists.offsets().windows(2) {
            let (start, end) = (ends[0] as usize, ends[1] as usize);
            if (start + 1..end).any(|entry| keys.row(entry - 1) >= keys.row(entry)) {
                return Err(refused());
            }
        }
        Ok(States::Nested(Box::new(NestedStates {
            present: lists.nulls().cloned(),
            offsets: Some(lists.offsets().clone()),
            keys: Some(Arc::clone(entries.column(0))),
            elements: vec![self.places.states.decode(entries.column(1))?],
        })))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let (present, offsets, keys, order) = self.ordered(group_count)?;
        let sums = self.places.in_order(&order)?.finish(order.len())?;
        let DataType::Map(entries, is_ordered) = &self.output else {
            return Err(mismatch("sum"));
        };
        let DataType::Struct(fields) = entries.data_type() else { return Err(mismatch("sum")) };
        let entry = StructArray::try_new(fields.clone(), vec![keys, sums], None)?;
        let offsets = offsets.iter().map(|offset| i32::try_from(*offset));
        let offsets = offsets.collect::<Result<Vec<_>, _>>().map_err(|_| Error::Overflow {
            message: format!("`{}` has more than 2^31 entries", self.places.element.output.name()),
            hint: Some("unnest the maps, and group by the keys".into()),
        })?;
        let offsets = OffsetBuffer::new(offsets.into());
        let entries = Arc::clone(entries);
        Ok(Arc::new(MapArray::try_new(entries, offsets, entry, present, *is_ordered)?))
    }

    fn bytes(&self) -> usize {
        let groups = self.groups.capacity() * size_of::<Option<HashMap<Box<[u8]>, u32>>>();
        groups + self.heap + self.places.states.bytes()
    }
}

// ── structs ──────────────────────────────────────────────────────────────────────────────

struct OfStructs {
    fields: Vec<Box<dyn StateColumn>>,
    /// Which groups have seen a struct.
    seen: Seen,
    output: DataType,
}

impl StateColumn for OfStructs {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        let structs = rows.values()?.as_struct();
        let selected = rows.selected(structs.nulls());
        let wanted = selected.map(|selected| BooleanArray::new(selected.into_inner(), None));
        match &wanted {
            None => self.seen.note(rows.groups, rows.group_count),
            Some(wanted) => {
                let seen = self.seen.each(rows.group_count);
                wanted.values().set_indices().for_each(|row| seen[rows.groups[row]] = true);
            }
        }
        for (states, values) in self.fields.iter_mut().zip(structs.columns()) {
            states.update(&Rows {
                values: Some(values),
                second: None,
                filter: wanted.as_ref(),
                positions: None,
                groups: rows.groups,
                group_count: rows.group_count,
            })?;
        }
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        let States::Nested(from) = states else { return Err(mismatch("sum")) };
        if from.elements.len() != self.fields.len() {
            return Err(mismatch("sum"));
        }
        let seen = self.seen.each(routes.group_count);
        for (row, group) in routes.iter() {
            seen[group] |= from.present.as_ref().is_none_or(|present| present.is_valid(row));
        }
        for (here, from) in self.fields.iter_mut().zip(&from.elements) {
            here.merge(from, routes)?;
        }
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let present = self.seen.take(group_count);
        let elements = self.fields.iter_mut().map(|field| field.take(group_count));
        let elements = elements.collect::<Result<Vec<_>>>()?;
        let states = NestedStates { present, offsets: None, keys: None, elements };
        Ok(States::Nested(Box::new(states)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let structs = array.as_struct_opt();
        let structs = structs.filter(|structs| structs.num_columns() == self.fields.len());
        let structs = structs.ok_or_else(|| refused("sum", "structs of states are expected"))?;
        let fields = self.fields.iter().zip(structs.columns());
        let elements = fields.map(|(field, states)| field.decode(states));
        let elements = elements.collect::<Result<Vec<_>>>()?;
        let present = structs.nulls().cloned();
        Ok(States::Nested(Box::new(NestedStates { present, offsets: None, keys: None, elements })))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let present = self.seen.take(group_count);
        let DataType::Struct(fields) = &self.output else { return Err(mismatch("sum")) };
        let sums = self.fields.iter_mut().map(|field| field.finish(group_count));
        let sums = sums.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), sums, present, group_count)?))
    }

    fn bytes(&self) -> usize {
        self.seen.bytes() + self.fields.iter().map(|field| field.bytes()).sum::<usize>()
    }
}
