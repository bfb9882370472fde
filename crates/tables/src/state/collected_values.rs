//! States of `collect`: the first values of each group in input order.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, LargeListArray, UInt32Array, UInt64Array, new_empty_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{DataType, Field, FieldRef};
use tidemill_base::error::Result;

use super::{
    ChunkStates, GroupedRows, StateColumn, StateRoutes, corrupt_state_error, state_type_error,
};
use crate::value_encoding;

/// The first values of each group, of any type. Values are appended in input order, each with its group, and
/// brought together once at the end by a counting sort.
pub(super) struct CollectStates {
    limit: usize,
    argument_type: DataType,
    value_parts: Vec<ArrayRef>,
    /// The group of each value, in the order of `value_parts`.
    value_groups: Vec<u32>,
    /// Number of values of each group.
    value_counts: Vec<usize>,
    /// Memory of the parts, in bytes.
    value_bytes: usize,
}

impl CollectStates {
    pub(super) fn new(limit: usize, argument: DataType) -> Self {
        let (parts, groups, counts) = (Vec::new(), Vec::new(), Vec::new());
        CollectStates {
            limit,
            argument_type: argument,
            value_parts: parts,
            value_groups: groups,
            value_counts: counts,
            value_bytes: 0,
        }
    }

    fn resize(&mut self, group_count: usize) {
        self.value_counts.resize(group_count, 0);
    }

    /// Appends the values at the rows of `pairs` to the groups of `pairs`, up to `limit` values per group.
    fn append_values(
        &mut self,
        values: &ArrayRef,
        pairs: impl Iterator<Item = (usize, usize)>,
    ) -> Result<()> {
        let mut kept: Vec<u32> = Vec::new();
        for (row, group) in pairs {
            let count = &mut self.value_counts[group];
            if *count < self.limit {
                *count += 1;
                self.value_groups.push(group as u32);
                kept.push(row as u32);
            }
        }
        if !kept.is_empty() {
            let part =
                value_encoding::compact_views(&take(values, &UInt32Array::from(kept), None)?);
            // Arrays read from disk share one buffer, so the size of their buffers would be counted several
            // times.
            self.value_bytes += value_encoding::logical_bytes(&part);
            self.value_parts.push(part);
        }
        Ok(())
    }

    /// Takes the collected values as one list per group and leaves an empty column.
    fn take_lists(&mut self, group_count: usize) -> Result<(OffsetBuffer<i64>, ArrayRef)> {
        self.resize(group_count);
        let (counts, groups) =
            (std::mem::take(&mut self.value_counts), std::mem::take(&mut self.value_groups));
        let parts = std::mem::take(&mut self.value_parts);
        self.value_bytes = 0;
        let offsets = OffsetBuffer::from_lengths(counts);
        let mut next: Vec<usize> = offsets.iter().map(|offset| *offset as usize).collect();
        let mut order = vec![0_u64; groups.len()];
        for (place, group) in groups.iter().enumerate() {
            let at = &mut next[*group as usize];
            order[*at] = place as u64;
            *at += 1;
        }
        drop((groups, next));
        if parts.is_empty() {
            return Ok((offsets, new_empty_array(&self.argument_type)));
        }
        let arrays: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        let is_flat = self.argument_type.is_primitive()
            || matches!(self.argument_type, DataType::Utf8View | DataType::BinaryView);
        if is_flat {
            let whole = concat(&arrays)?;
            drop(arrays);
            drop(parts);
            return Ok((offsets, take(&whole, &UInt64Array::from(order), None)?));
        }
        // A concatenation of other types might exceed the offset range that each part fits.
        let starts: Vec<u64> = parts
            .iter()
            .scan(0, |end, part| Some(std::mem::replace(end, *end + part.len() as u64)))
            .collect();
        let places = order.into_iter().map(|place| {
            let part = starts.partition_point(|start| *start <= place) - 1;
            (part, (place - starts[part]) as usize)
        });
        let values = interleave(&arrays, &places.collect::<Vec<_>>())?;
        Ok((offsets, values))
    }

    fn item_field(&self) -> FieldRef {
        Arc::new(Field::new_list_field(self.argument_type.clone(), true))
    }
}

impl StateColumn for CollectStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        let values = Arc::clone(rows.required_values()?);
        match rows.selected_rows(values.logical_nulls().as_ref()) {
            None => self.append_values(&values, rows.groups.iter().copied().enumerate()),
            Some(selected) => {
                let pairs = selected.valid_indices().map(|row| (row, rows.groups[row]));
                self.append_values(&values, pairs)
            }
        }
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let ChunkStates::Array(array) = states else { return Err(state_type_error("collect")) };
        let lists = array.as_list::<i64>();
        let offsets = lists.value_offsets();
        let pairs = routes.state_group_pairs().flat_map(|(row, group)| {
            (offsets[row] as usize..offsets[row + 1] as usize).map(move |value| (value, group))
        });
        self.append_values(lists.values(), pairs)
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let (offsets, values) = self.take_lists(group_count)?;
        let lists = LargeListArray::try_new(self.item_field(), offsets, values, None)?;
        Ok(ChunkStates::Array(Arc::new(lists)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        match array.data_type() {
            DataType::LargeList(item)
                if item.data_type() == &self.argument_type && array.null_count() == 0 =>
            {
                Ok(ChunkStates::Array(Arc::clone(array)))
            }
            _ => Err(corrupt_state_error(
                "collect",
                format!("lists of {} are expected", self.argument_type),
            )),
        }
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let (offsets, values) = self.take_lists(group_count)?;
        let lists: ArrayRef =
            Arc::new(LargeListArray::try_new(self.item_field(), offsets, values, None)?);
        // The answer has 32-bit offsets, as SQL's list functions expect.
        value_encoding::cast_exactly(&lists, &DataType::List(self.item_field()))
    }

    fn memory_bytes(&self) -> usize {
        // The counting sort in `take_lists` also needs an index per value.
        let places = self.value_groups.capacity() * size_of::<u32>()
            + self.value_groups.len() * size_of::<u64>();
        self.value_bytes + places + self.value_counts.capacity() * size_of::<usize>()
    }
}
