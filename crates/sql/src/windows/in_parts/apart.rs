//! Rows put apart by the hash of their keys.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::SchemaRef;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::error::Result as PlanResult;
use datafusion::physical_plan::PhysicalExpr;
use tidemill_base::batch_compaction::compact_batch;

use crate::windows::whole_partitions::bytes;

/// Into how many parts. Ten million rows of three columns are two megabytes a part then and thread, which is
/// what a core's second cache holds, and 8,192 rows are 128 a part, which are copied in one go.
pub(super) const PARTS: usize = 64;

/// Which of a hash's bits tell the part.
const SHIFT: u32 = u64::BITS - PARTS.ilog2();

/// The threads share the rows by a hash of another seed.
const SEED: u64 = 0x7061_7274;

/// So many rows stay together, as one part, whose groups come in the order of their keys.
pub(super) const ONE_PART: usize = 1 << 15;

/// What has come.
pub(super) struct Apart {
    schema: SchemaRef,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// As they came, as long as they are one part.
    together: Vec<RecordBatch>,
    apart: Vec<Cut>,
    /// Of each part.
    part_rows: [usize; PARTS],
    rows: usize,
    bytes: usize,
    hashes: Vec<u64>,
}

/// The rows of a batch, part after part.
struct Cut {
    rows: RecordBatch,
    /// Where each part ends.
    ends: Box<[u32; PARTS]>,
}

impl Apart {
    pub(super) fn new(schema: SchemaRef, keys: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Apart {
            schema,
            keys,
            together: Vec::new(),
            apart: Vec::new(),
            part_rows: [0; PARTS],
            rows: 0,
            bytes: 0,
            hashes: Vec::new(),
        }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// What the rows take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all rows are one part.
    pub(super) fn is_together(&self) -> bool {
        self.apart.is_empty()
    }

    /// What the rows of the largest part take, about, and how many they are.
    pub(super) fn largest(&self) -> (usize, usize) {
        if self.apart.is_empty() {
            return (self.bytes, self.rows);
        }
        let rows = self.part_rows.into_iter().max().unwrap_or(0);
        let share = self.bytes as f64 * rows as f64 / self.rows.max(1) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of bytes in memory"
        )]
        (share as usize, rows)
    }

    pub(super) fn put(&mut self, batch: &RecordBatch) -> PlanResult<()> {
        self.rows += batch.num_rows();
        self.bytes += bytes(batch);
        if self.apart.is_empty() {
            if self.rows <= ONE_PART {
                self.together.push(compact_batch(batch)?);
                return Ok(());
            }
            for batch in std::mem::take(&mut self.together) {
                let cut = self.cut(&batch)?;
                self.apart.push(cut);
            }
        }
        let cut = self.cut(batch)?;
        self.apart.push(cut);
        Ok(())
    }

    fn cut(&mut self, batch: &RecordBatch) -> PlanResult<Cut> {
        let rows = batch.num_rows();
        let keys = self.keys.iter().map(|key| key.evaluate(batch)?.into_array(rows));
        let keys = keys.collect::<PlanResult<Vec<_>>>()?;
        self.hashes.clear();
        self.hashes.resize(rows, 0);
        create_hashes(&keys, &RandomState::with_seed(SEED), &mut self.hashes)?;
        let part = |hash: &u64| (hash >> SHIFT) as usize;
        let mut ends = Box::new([0_u32; PARTS]);
        for hash in &self.hashes {
            ends[part(hash)] += 1;
        }
        let mut end = 0;
        for (rows, ends) in self.part_rows.iter_mut().zip(ends.iter_mut()) {
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
        Ok(Cut { rows, ends })
    }

    /// The rows of one part; none beyond the last.
    pub(super) fn part(&self, index: usize) -> PlanResult<Option<RecordBatch>> {
        let batches: Vec<RecordBatch> = match (self.apart.is_empty(), index) {
            (true, 0) => self.together.clone(),
            (false, 0..PARTS) => {
                let slices = self.apart.iter().map(|cut| {
                    let start = if index == 0 { 0 } else { cut.ends[index - 1] };
                    cut.rows.slice(start as usize, (cut.ends[index] - start) as usize)
                });
                slices.filter(|slice| slice.num_rows() > 0).collect()
            }
            _ => return Ok(None),
        };
        Ok(Some(concat_batches(&self.schema, &batches)?))
    }

    /// All rows.
    pub(super) fn into_batches(self) -> impl Iterator<Item = RecordBatch> {
        self.together.into_iter().chain(self.apart.into_iter().map(|cut| cut.rows))
    }
}
