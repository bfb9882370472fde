//! The first values.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, LargeListArray, UInt32Array, UInt64Array, new_empty_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{DataType, Field, FieldRef};
use tidemill_base::error::Result;

use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::value;

/// The first values of each group, of any type. Values stay as they came, each with its group; they are brought
/// together once, by counting.
pub(super) struct Collect {
    limit: usize,
    argument: DataType,
    parts: Vec<ArrayRef>,
    /// The group of each value, of one part after the other.
    groups: Vec<u32>,
    /// How many values each group has.
    counts: Vec<usize>,
    /// What the parts take.
    bytes: usize,
}

impl Collect {
    pub(super) fn new(limit: usize, argument: DataType) -> Self {
        let (parts, groups, counts) = (Vec::new(), Vec::new(), Vec::new());
        Collect { limit, argument, parts, groups, counts, bytes: 0 }
    }

    fn resize(&mut self, group_count: usize) {
        self.counts.resize(group_count, 0);
    }

    /// Appends the values at `rows` of `values` to the groups beside them, as far as each
    /// group has room.
    fn append(
        &mut self,
        values: &ArrayRef,
        pairs: impl Iterator<Item = (usize, usize)>,
    ) -> Result<()> {
        let mut kept: Vec<u32> = Vec::new();
        for (row, group) in pairs {
            let count = &mut self.counts[group];
            if *count < self.limit {
                *count += 1;
                self.groups.push(group as u32);
                kept.push(row as u32);
            }
        }
        if !kept.is_empty() {
            let part = value::compact(&take(values, &UInt32Array::from(kept), None)?);
            // Each buffer of what was read back from disk has the size of all of them.
            self.bytes += value::logical_bytes(&part);
            self.parts.push(part);
        }
        Ok(())
    }

    /// The collected values as a list per group; leaves an empty column.
    fn lists(&mut self, group_count: usize) -> Result<(OffsetBuffer<i64>, ArrayRef)> {
        self.resize(group_count);
        let (counts, groups) = (std::mem::take(&mut self.counts), std::mem::take(&mut self.groups));
        let parts = std::mem::take(&mut self.parts);
        self.bytes = 0;
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
            return Ok((offsets, new_empty_array(&self.argument)));
        }
        let arrays: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        let is_flat = self.argument.is_primitive()
            || matches!(self.argument, DataType::Utf8View | DataType::BinaryView);
        if is_flat {
            let whole = concat(&arrays)?;
            drop(arrays);
            drop(parts);
            return Ok((offsets, take(&whole, &UInt64Array::from(order), None)?));
        }
        // Put together, other arrays might not have the room that they need apart.
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

    fn item(&self) -> FieldRef {
        Arc::new(Field::new_list_field(self.argument.clone(), true))
    }
}

impl StateColumn for Collect {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        let values = Arc::clone(rows.values()?);
        match rows.selected(values.logical_nulls().as_ref()) {
            None => self.append(&values, rows.groups.iter().copied().enumerate()),
            Some(selected) => {
                let pairs = selected.valid_indices().map(|row| (row, rows.groups[row]));
                self.append(&values, pairs)
            }
        }
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let States::Array(array) = states else { return Err(mismatch("collect")) };
        let lists = array.as_list::<i64>();
        let offsets = lists.value_offsets();
        let pairs = routes.iter().flat_map(|(row, group)| {
            (offsets[row] as usize..offsets[row + 1] as usize).map(move |value| (value, group))
        });
        self.append(lists.values(), pairs)
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let (offsets, values) = self.lists(group_count)?;
        let lists = LargeListArray::try_new(self.item(), offsets, values, None)?;
        Ok(States::Array(Arc::new(lists)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        match array.data_type() {
            DataType::LargeList(item)
                if item.data_type() == &self.argument && array.null_count() == 0 =>
            {
                Ok(States::Array(Arc::clone(array)))
            }
            _ => Err(refused("collect", format!("lists of {} are expected", self.argument))),
        }
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let (offsets, values) = self.lists(group_count)?;
        let lists: ArrayRef =
            Arc::new(LargeListArray::try_new(self.item(), offsets, values, None)?);
        // The answer is a list with 32-bit offsets, as SQL's functions over lists expect.
        value::cast_to(&lists, &DataType::List(self.item()))
    }

    fn bytes(&self) -> usize {
        // To be brought together, their places are needed as well.
        let places =
            self.groups.capacity() * size_of::<u32>() + self.groups.len() * size_of::<u64>();
        self.bytes + places + self.counts.capacity() * size_of::<usize>()
    }
}
