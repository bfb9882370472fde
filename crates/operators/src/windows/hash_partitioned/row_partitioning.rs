//! Scatters rows to hash partitions by the hash of their keys.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::SchemaRef;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::error::Result as PlanResult;
use datafusion::physical_plan::PhysicalExpr;
use tidemill_base::batch_compaction::compact_batch;

use crate::windows::whole_partitions::batch_bytes;

/// Number of hash partitions. Ten million rows of three columns then make two megabytes for each hash partition
/// and thread, which fits a core's second-level cache. A batch of 8,192 rows makes 128 rows for each hash
/// partition, which are copied at once.
pub(super) const HASH_PARTITIONS: usize = 64;

/// Shift that leaves the bits of a hash that select the hash partition.
const HASH_SHIFT: u32 = u64::BITS - HASH_PARTITIONS.ilog2();

/// Seed of the hash; it differs from the seed by which rows are distributed to threads.
const PARTITION_HASH_SEED: u64 = 0x7061_7274;

/// Maximum number of rows that stay together as one hash partition, whose groups come in the order of their
/// keys.
pub(super) const SINGLE_PARTITION_ROWS_MAX: usize = 1 << 15;

/// The collected rows, scattered to hash partitions once they exceed [`SINGLE_PARTITION_ROWS_MAX`].
pub(super) struct HashPartitionedRows {
    schema: SchemaRef,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Batches as they came, while all rows are one hash partition.
    unpartitioned: Vec<RecordBatch>,
    partitioned: Vec<PartitionedBatch>,
    /// Number of rows of each hash partition.
    partition_rows: [usize; HASH_PARTITIONS],
    rows: usize,
    bytes: usize,
    hashes: Vec<u64>,
}

/// The rows of a batch, one hash partition after the other.
struct PartitionedBatch {
    rows: RecordBatch,
    /// Row at which each hash partition ends.
    partition_ends: Box<[u32; HASH_PARTITIONS]>,
}

impl HashPartitionedRows {
    pub(super) fn new(schema: SchemaRef, keys: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        HashPartitionedRows {
            schema,
            keys,
            unpartitioned: Vec::new(),
            partitioned: Vec::new(),
            partition_rows: [0; HASH_PARTITIONS],
            rows: 0,
            bytes: 0,
            hashes: Vec::new(),
        }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Returns the size of all rows in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether all rows are one hash partition.
    pub(super) fn is_unpartitioned(&self) -> bool {
        self.partitioned.is_empty()
    }

    /// Returns the approximate bytes and the number of rows of the largest hash partition.
    pub(super) fn largest_partition_size(&self) -> (usize, usize) {
        if self.partitioned.is_empty() {
            return (self.bytes, self.rows);
        }
        let rows = self.partition_rows.into_iter().max().unwrap_or(0);
        let share = self.bytes as f64 * rows as f64 / self.rows.max(1) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of bytes in memory"
        )]
        (share as usize, rows)
    }

    pub(super) fn push(&mut self, batch: &RecordBatch) -> PlanResult<()> {
        self.rows += batch.num_rows();
        self.bytes += batch_bytes(batch);
        if self.partitioned.is_empty() {
            if self.rows <= SINGLE_PARTITION_ROWS_MAX {
                self.unpartitioned.push(compact_batch(batch)?);
                return Ok(());
            }
            for batch in std::mem::take(&mut self.unpartitioned) {
                let cut = self.partition_batch(&batch)?;
                self.partitioned.push(cut);
            }
        }
        let cut = self.partition_batch(batch)?;
        self.partitioned.push(cut);
        Ok(())
    }

    fn partition_batch(&mut self, batch: &RecordBatch) -> PlanResult<PartitionedBatch> {
        let rows = batch.num_rows();
        let keys = self.keys.iter().map(|key| key.evaluate(batch)?.into_array(rows));
        let keys = keys.collect::<PlanResult<Vec<_>>>()?;
        self.hashes.clear();
        self.hashes.resize(rows, 0);
        create_hashes(&keys, &RandomState::with_seed(PARTITION_HASH_SEED), &mut self.hashes)?;
        let part = |hash: &u64| (hash >> HASH_SHIFT) as usize;
        let mut ends = Box::new([0_u32; HASH_PARTITIONS]);
        for hash in &self.hashes {
            ends[part(hash)] += 1;
        }
        let mut end = 0;
        for (rows, ends) in self.partition_rows.iter_mut().zip(ends.iter_mut()) {
            *rows += *ends as usize;
            (end, *ends) = (end + *ends, end);
        }
        let mut order = vec![0_u32; rows];
        for (row, hash) in (0..).zip(&self.hashes) {
            let next = &mut ends[part(hash)];
            order[*next as usize] = row;
            *next += 1;
        }
        let order = UInt32Array::from(order);
        let columns = batch.columns().iter().map(|column| take(column, &order, None));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let rows = RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &RecordBatchOptions::new().with_row_count(Some(rows)),
        )?;
        Ok(PartitionedBatch { rows, partition_ends: ends })
    }

    /// Returns the rows of one hash partition, or `None` beyond the last.
    pub(super) fn partition(&self, index: usize) -> PlanResult<Option<RecordBatch>> {
        let batches: Vec<RecordBatch> = match (self.partitioned.is_empty(), index) {
            (true, 0) => self.unpartitioned.clone(),
            (false, 0..HASH_PARTITIONS) => {
                let slices = self.partitioned.iter().map(|cut| {
                    let start = if index == 0 { 0 } else { cut.partition_ends[index - 1] };
                    cut.rows.slice(start as usize, (cut.partition_ends[index] - start) as usize)
                });
                slices.filter(|slice| slice.num_rows() > 0).collect()
            }
            _ => return Ok(None),
        };
        Ok(Some(concat_batches(&self.schema, &batches)?))
    }

    /// Returns all rows.
    pub(super) fn into_batches(self) -> impl Iterator<Item = RecordBatch> {
        self.unpartitioned.into_iter().chain(self.partitioned.into_iter().map(|cut| cut.rows))
    }
}
