//! States of `count`: the number of rows or of non-null values per group.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use tidemill_base::error::Result;

use super::{
    ChunkStates, GroupedRows, StateColumn, StateRoutes, corrupt_state_error, state_type_error,
};
use crate::value_encoding;

/// The count of each group.
pub(super) struct CountStates {
    counts: Vec<i64>,
    output_type: DataType,
}

impl CountStates {
    pub(super) fn new(output: DataType) -> Self {
        CountStates { counts: Vec::new(), output_type: output }
    }
}

impl StateColumn for CountStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.counts.resize(rows.group_count, 0);
        let nulls = rows.argument_values.and_then(|values| values.logical_nulls());
        rows.update_states(nulls.as_ref(), &mut self.counts, |count, _, _| *count += 1);
        Ok(())
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.counts.resize(routes.group_count, 0);
        let ChunkStates::Array(array) = states else { return Err(state_type_error("count")) };
        let counts = array.as_primitive::<Int64Type>().values();
        let mut fits = true;
        routes.merge_states(&mut self.counts, |count, row, _| {
            let (sum, overflowed) = count.overflowing_add(counts[row]);
            *count = sum;
            fits &= !overflowed;
        });
        if fits { Ok(()) } else { Err(corrupt_state_error("count", "it exceeds 64 bits")) }
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let mut counts = std::mem::take(&mut self.counts);
        counts.resize(group_count, 0);
        Ok(ChunkStates::Array(Arc::new(Int64Array::from(counts))))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        let sound = array.as_primitive_opt::<Int64Type>().is_some_and(|counts| {
            counts.null_count() == 0 && counts.values().iter().all(|n| *n >= 0)
        });
        if !sound {
            return Err(corrupt_state_error("count", "counts are expected"));
        }
        Ok(ChunkStates::Array(Arc::clone(array)))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let ChunkStates::Array(counts) = self.take_states(group_count)? else {
            return Err(state_type_error("count"));
        };
        value_encoding::cast_exactly(&counts, &self.output_type)
    }

    fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<i64>()
    }
}
