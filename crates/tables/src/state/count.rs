//! How many rows, or values, a group has.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use tidemill_base::error::Result;

use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::value;

pub(super) struct Count {
    counts: Vec<i64>,
    output: DataType,
}

impl Count {
    pub(super) fn new(output: DataType) -> Self {
        Count { counts: Vec::new(), output }
    }
}

impl StateColumn for Count {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.counts.resize(rows.group_count, 0);
        let nulls = rows.values.and_then(|values| values.logical_nulls());
        rows.each(nulls.as_ref(), &mut self.counts, |count, _, _| *count += 1);
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.counts.resize(routes.group_count, 0);
        let States::Array(array) = states else { return Err(mismatch("count")) };
        let counts = array.as_primitive::<Int64Type>().values();
        let mut fits = true;
        routes.each(&mut self.counts, |count, row, _| {
            let (sum, overflowed) = count.overflowing_add(counts[row]);
            *count = sum;
            fits &= !overflowed;
        });
        if fits { Ok(()) } else { Err(refused("count", "it exceeds 64 bits")) }
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let mut counts = std::mem::take(&mut self.counts);
        counts.resize(group_count, 0);
        Ok(States::Array(Arc::new(Int64Array::from(counts))))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let sound = array.as_primitive_opt::<Int64Type>().is_some_and(|counts| {
            counts.null_count() == 0 && counts.values().iter().all(|n| *n >= 0)
        });
        if !sound {
            return Err(refused("count", "counts are expected"));
        }
        Ok(States::Array(Arc::clone(array)))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let States::Array(counts) = self.take(group_count)? else {
            return Err(mismatch("count"));
        };
        value::cast_to(&counts, &self.output)
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<i64>()
    }
}
