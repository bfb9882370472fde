//! Batch slices, between which the size of a table is checked.
//!
//! A batch of 8,192 rows with as many groups makes a table of sums 400 kB larger, and one of exact `kurtosis`
//! of floats of many magnitudes 16 MB. A budget holds only if every thread checks its table before it has
//! grown by a large part of the budget. A batch is therefore cut by the memory that the table's states have
//! taken per row so far.

use std::collections::VecDeque;

use arrow::array::{Array, AsArray, RecordBatch};
use tidemill_base::error::Result;
use tidemill_functions::sketches::id_set_len_upper_bounds;
use tidemill_operators::memory_pool::id_set_memory_error;

use crate::{AggregateTable, MergeableFunction, TableSpec};

/// Maximum growth of a table by one slice, in bytes, whatever the budget.
const SLICE_GROWTH_BYTES_MAX: usize = 16 << 20;

/// Minimum growth for which a batch is cut, in bytes. It bounds the cost of small slices.
const SLICE_GROWTH_BYTES_MIN: usize = 64 << 10;

/// The rows of a batch that the table has not taken yet.
pub struct BatchSlices {
    pending_batches: VecDeque<RecordBatch>,
    growth_bytes: usize,
}

impl BatchSlices {
    /// Cuts a batch for a table that may have `table_bytes`, so that a slice adds about a quarter of them, at
    /// most 16 MiB, and at least one row.
    ///
    /// # Errors
    /// Returns [`Error::MemoryBudgetTooSmall`](tidemill_base::error::Error::MemoryBudgetTooSmall) if a single stored id set needs more
    /// than `group_bytes_max`, the limit of a group. Its header gives the size, so it is rejected before it
    /// is decoded.
    pub fn new(
        spec: &TableSpec,
        batch: &RecordBatch,
        table_bytes: usize,
        group_bytes_max: usize,
    ) -> Result<Self> {
        let growth_bytes = (table_bytes / 4).clamp(SLICE_GROWTH_BYTES_MIN, SLICE_GROWTH_BYTES_MAX);
        let batches = cut_by_id_set_sizes(spec, batch, growth_bytes as u64, group_bytes_max)?;
        Ok(BatchSlices { pending_batches: batches, growth_bytes })
    }

    /// Returns the next slice for the table, or `None` after the last.
    pub fn next_slice(&mut self, table: &AggregateTable) -> Option<RecordBatch> {
        let batch = self.pending_batches.pop_front()?;
        let len = table.estimate_rows_for_growth(self.growth_bytes);
        if len >= batch.num_rows() {
            return Some(batch);
        }
        self.pending_batches.push_front(batch.slice(len, batch.num_rows() - len));
        Some(batch.slice(0, len))
    }

    /// Returns the remaining rows.
    pub(crate) fn into_remaining_batches(self) -> impl Iterator<Item = RecordBatch> {
        self.pending_batches.into_iter()
    }
}

/// Cuts a batch by the decoded sizes of its stored id sets, which are far larger than their encoded sizes.
fn cut_by_id_set_sizes(
    spec: &TableSpec,
    batch: &RecordBatch,
    growth_bytes: u64,
    group_bytes_max: usize,
) -> Result<VecDeque<RecordBatch>> {
    let of_sets =
        spec.first_aggregate_per_state().filter_map(|aggregate| match aggregate.function {
            MergeableFunction::IdSetCombination { .. } => {
                Some((batch.column(aggregate.argument_column?), aggregate))
            }
            _ => None,
        });
    let mut bytes: Vec<u64> = Vec::new();
    for (sets, aggregate) in of_sets {
        bytes.resize(batch.num_rows(), 0);
        let filter = aggregate.filter_column.map(|index| batch.column(index).as_boolean());
        for (row, (bytes, len)) in bytes.iter_mut().zip(id_set_len_upper_bounds(sets)).enumerate() {
            if filter.is_some_and(|filter| filter.is_null(row) || !filter.value(row)) {
                continue;
            }
            let own = len.saturating_mul(8);
            if own > group_bytes_max as u64 {
                return Err(id_set_memory_error(own, group_bytes_max as u64));
            }
            *bytes = bytes.saturating_add(own);
        }
    }
    let (mut batches, mut start, mut sum) = (VecDeque::new(), 0, 0_u64);
    for (row, own) in bytes.iter().enumerate() {
        sum = sum.saturating_add(*own);
        if sum > growth_bytes && row > start {
            batches.push_back(batch.slice(start, row - start));
            (start, sum) = (row, *own);
        }
    }
    batches.push_back(batch.slice(start, batch.num_rows() - start));
    Ok(batches)
}
