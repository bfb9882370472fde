//! The first values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeListArray, UInt32Array, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, Field, FieldRef};
use tidemill_base::error::Result;

use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::value;

/// The first values of each group, of any type. Values stay in the arrays they came in; a
/// group remembers where its values are.
pub(super) struct Collect {
    limit: usize,
    argument: DataType,
    parts: Vec<ArrayRef>,
    places: Vec<Vec<(u32, u32)>>,
    bytes: usize,
}

impl Collect {
    pub(super) fn new(limit: usize, argument: DataType) -> Self {
        Collect { limit, argument, parts: Vec::new(), places: Vec::new(), bytes: 0 }
    }

    fn resize(&mut self, group_count: usize) {
        self.places.resize_with(group_count, Vec::new);
    }

    /// Appends the values at `rows` of `values` to the groups beside them, as far as each
    /// group has room.
    fn append(
        &mut self,
        values: &ArrayRef,
        pairs: impl Iterator<Item = (usize, usize)>,
    ) -> Result<()> {
        let part = self.parts.len() as u32;
        let mut kept: Vec<u32> = Vec::new();
        for (row, group) in pairs {
            let places = &mut self.places[group];
            if places.len() < self.limit {
                places.push((part, kept.len() as u32));
                kept.push(row as u32);
            }
        }
        if !kept.is_empty() {
            self.bytes += kept.len() * size_of::<(u32, u32)>() * 2;
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
        let places = std::mem::take(&mut self.places);
        let parts = std::mem::take(&mut self.parts);
        self.bytes = 0;
        let offsets = OffsetBuffer::from_lengths(places.iter().map(Vec::len));
        let order: Vec<(usize, usize)> =
            places.iter().flatten().map(|(part, row)| (*part as usize, *row as usize)).collect();
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        let values = if parts.is_empty() {
            new_empty_array(&self.argument)
        } else {
            interleave(&parts, &order)?
        };
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
        let mut pairs = Vec::new();
        rows.for_each(values.logical_nulls().as_ref(), |row, group| pairs.push((row, group)));
        self.append(&values, pairs.into_iter())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let States::Array(array) = states else { return Err(mismatch("collect")) };
        let lists = array.as_list::<i64>();
        let offsets = lists.value_offsets();
        let pairs = routes.iter().flat_map(|(row, group)| {
            (offsets[row] as usize..offsets[row + 1] as usize).map(move |value| (value, group))
        });
        self.append(lists.values(), pairs.collect::<Vec<_>>().into_iter())
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
        self.bytes + self.places.capacity() * size_of::<Vec<(u32, u32)>>()
    }
}
