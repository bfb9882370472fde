//! Scattering of rows to their hash partitions, for inputs in which hardly any two rows belong to one group.
//!
//! A table in which every row is a group of its own costs a slot, a hash and a state per row and saves
//! nothing. Such rows are therefore not aggregated before all rows of their group are together: a block of
//! rows at a time is ordered by the highest bits of the keys' hashes and stored as it is. At the end each
//! part is grouped by itself, in a table that fits the CPU cache, and its answer leaves before the next part
//! is grouped.
//!
//! Each row's keys and arguments are copied twice: into the buffer of a block, which is reused, and from
//! there to the partitions. A single copy, by pairs of batch and row, took no less time.
//!
//! Sources: radix partitioning before the build is from Manegold, Boncz and Kersten, *Optimizing Main-Memory
//! Join on Modern Hardware* (TKDE 2002); that grouping without reduction should not begin before it is from
//! Leis et al., *Morsel-Driven Parallelism* (SIGMOD 2014).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use tidemill_base::error::Result;
use tidemill_sql::float_order;

use crate::grouping::gather_columns::{GatherColumn, GatherableRows};
use crate::grouping::group_index::{hash_normalized_keys, normalize_keys};
use crate::grouping::hash_partitions::{
    PARTITION_BITS, PARTITION_COUNT, mix_hash, partition_groups,
};
use crate::value_encoding::logical_bytes;
use crate::{AggregateTable, GroupChunk, TableSpec};

/// Number of parts of a partition's rows.
pub(crate) const PARTS_PER_PARTITION: usize = 1 << PARTITION_BITS;

/// Number of rows in a block; each of its 256 parts has some hundred.
const SCATTER_BLOCK_ROWS: usize = 1 << 17;

/// Number of rows scattered before a table is tried again, as later rows may have fewer groups. If they have
/// not, twice as many rows are scattered the next time.
const SCATTERED_ROWS_INITIAL: u64 = 1 << 21;

/// A worker's buffer of rows until they fill a block.
pub struct ScatterBuffer {
    key_count: usize,
    bytes_max: usize,
    /// `None` before the first rows.
    schema: Option<SchemaRef>,
    columns: Vec<GatherColumn>,
    /// The hash of each row's keys.
    key_hashes: Vec<u64>,
    row_bytes: usize,
    /// Number of rows to scatter before a table is tried again; 0 while scattering is disabled.
    rows_until_retry: u64,
    /// The value of `rows_until_retry` at the next activation.
    next_rows_until_retry: u64,
}

impl ScatterBuffer {
    /// Creates a disabled buffer for about `bytes_max` bytes.
    pub fn new(spec: &TableSpec, bytes_max: usize) -> Self {
        ScatterBuffer {
            key_count: spec.keys.len(),
            bytes_max,
            schema: None,
            columns: Vec::new(),
            key_hashes: Vec::new(),
            row_bytes: 0,
            rows_until_retry: 0,
            next_rows_until_retry: SCATTERED_ROWS_INITIAL,
        }
    }

    /// Returns true if rows should be added here and not to a table.
    pub fn is_enabled(&self) -> bool {
        self.rows_until_retry > 0
    }

    /// Enables scattering for the next rows.
    pub fn enable(&mut self) {
        self.rows_until_retry = self.next_rows_until_retry;
        self.next_rows_until_retry = self.next_rows_until_retry.saturating_mul(2);
    }

    /// Adds rows of the map.
    ///
    /// # Errors
    /// Returns an error if a key cannot be cast to the type in which it is stored, or cannot be hashed.
    pub fn add_rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let (keys, others) = batch.columns().split_at(self.key_count);
        let keys: Vec<ArrayRef> = keys.iter().map(float_order::normalize_floats).collect();
        let mut columns = normalize_keys(&keys)?;
        self.key_hashes.extend(hash_normalized_keys(&columns, batch.num_rows())?);
        columns.extend_from_slice(others);
        if self.schema.is_none() {
            let fields = batch.schema_ref().fields().iter().zip(&columns);
            let fields = fields
                .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true));
            self.schema = Some(Arc::new(Schema::new(fields.collect::<Vec<_>>())));
            self.columns =
                columns.iter().map(|column| GatherColumn::new(column.data_type())).collect();
        }
        self.row_bytes += columns.iter().map(logical_bytes).sum::<usize>();
        self.rows_until_retry = self.rows_until_retry.saturating_sub(batch.num_rows() as u64);
        for (column, array) in self.columns.iter_mut().zip(&columns) {
            column.push_array(array);
        }
        Ok(())
    }

    /// Returns the memory of the rows, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.row_bytes + self.key_hashes.len() * size_of::<u64>()
    }

    /// Returns true if the rows fill a block.
    pub fn is_full(&self) -> bool {
        self.key_hashes.len() >= SCATTER_BLOCK_ROWS || self.row_bytes >= self.bytes_max
    }

    /// Takes the rows out, as pairs of partition and block.
    ///
    /// # Errors
    /// Returns Arrow's errors.
    pub fn take_blocks(&mut self) -> Result<Vec<(usize, ScatteredBlock)>> {
        let Some(schema) = self.schema.as_ref().filter(|_| !self.key_hashes.is_empty()) else {
            return Ok(Vec::new());
        };
        let (order, ends) = order_rows_by_part(&self.key_hashes);
        let columns = self
            .columns
            .iter()
            .map(GatherColumn::gatherable_rows)
            .collect::<Result<Vec<GatherableRows<'_>>>>()?;
        let blocks = (0..PARTITION_COUNT)
            .map(|partition| {
                (partition, part_range(&ends, partition * PARTS_PER_PARTITION, PARTS_PER_PARTITION))
            })
            .filter(|(_, range)| !range.is_empty())
            .map(|(partition, range)| {
                let rows = &order[range.clone()];
                let gathered = columns.iter().map(|column| column.gather(rows));
                let batch =
                    RecordBatch::try_new(Arc::clone(schema), gathered.collect::<Result<_>>()?)?;
                let own = &ends[partition * PARTS_PER_PARTITION..][..PARTS_PER_PARTITION];
                let ends = own.iter().map(|end| end - range.start as u32).collect();
                Ok((partition, ScatteredBlock { batch, part_ends: ends }))
            })
            .collect();
        drop(columns);
        self.columns.iter_mut().for_each(GatherColumn::clear);
        self.key_hashes.clear();
        self.row_bytes = 0;
        blocks
    }
}

/// Returns the row indexes ordered by part, and the end of each part.
fn order_rows_by_part(hashes: &[u64]) -> (Vec<u32>, Vec<u32>) {
    let part = |hash: &u64| (mix_hash(*hash) >> (u64::BITS - 2 * PARTITION_BITS)) as usize;
    let mut ends = vec![0_u32; PARTITION_COUNT * PARTS_PER_PARTITION];
    for hash in hashes {
        ends[part(hash)] += 1;
    }
    let mut starts = Vec::with_capacity(ends.len());
    let mut sum = 0;
    for end in &mut ends {
        starts.push(sum);
        sum += *end;
        *end = sum;
    }
    let mut order = vec![0; hashes.len()];
    for (row, hash) in hashes.iter().enumerate() {
        let next = &mut starts[part(hash)];
        order[*next as usize] = row as u32;
        *next += 1;
    }
    (order, ends)
}

/// Returns the range of the rows of `count` parts from `first` on.
fn part_range(ends: &[u32], first: usize, count: usize) -> Range<usize> {
    let start = first.checked_sub(1).map_or(0, |before| ends[before]);
    start as usize..ends[first + count - 1] as usize
}

/// Some rows of a partition, ordered by part.
pub struct ScatteredBlock {
    batch: RecordBatch,
    part_ends: Vec<u32>,
}

impl ScatteredBlock {
    /// Returns the memory of the block, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.batch.get_array_memory_size()
    }

    /// Returns the number of rows.
    pub(crate) fn row_count(&self) -> usize {
        self.batch.num_rows()
    }

    /// Returns the schema of the rows.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.batch.schema_ref()
    }

    /// Returns the rows of a part.
    pub(crate) fn part_rows(&self, part: usize) -> RecordBatch {
        let range = part_range(&self.part_ends, part, 1);
        self.batch.slice(range.start, range.len())
    }
}

/// All scattered rows of a partition, and the groups that its table had before.
pub(crate) struct PartitionParts {
    group_chunk: GroupChunk,
    groups_by_part: Vec<Vec<u32>>,
    blocks: Vec<ScatteredBlock>,
}

impl PartitionParts {
    /// Takes the groups of a partition's table and partitions them by the bits of their hashes from
    /// `first_bit` on. `blocks` are partitioned by the second four bits.
    pub(crate) fn new(
        table: &mut AggregateTable,
        blocks: Vec<ScatteredBlock>,
        first_bit: u32,
    ) -> Result<Self> {
        let mut groups = table.take_chunk()?;
        let groups_of_part = match groups.group_count() {
            0 => vec![Vec::new(); PARTS_PER_PARTITION],
            _ => partition_groups(groups.key_hashes()?, first_bit),
        };
        Ok(PartitionParts { group_chunk: groups, groups_by_part: groups_of_part, blocks })
    }

    /// Returns the memory of the groups, in bytes.
    pub(crate) fn group_bytes(&self) -> usize {
        self.group_chunk.memory_bytes()
    }

    /// Returns the number of rows and groups of a part, an upper bound on its final groups.
    pub(crate) fn row_and_group_count(&self, part: usize) -> usize {
        let rows = self.blocks.iter().map(|block| part_range(&block.part_ends, part, 1).len());
        self.groups_by_part[part].len() + rows.sum::<usize>()
    }

    /// Fills an empty table with one part.
    pub(crate) fn fill_table(&self, part: usize, table: &mut AggregateTable) -> Result<()> {
        table.reserve_groups(self.row_and_group_count(part));
        if !self.groups_by_part[part].is_empty() {
            table.merge(&self.group_chunk, &self.groups_by_part[part])?;
        }
        for block in &self.blocks {
            let rows = block.part_rows(part);
            if rows.num_rows() > 0 {
                table.update(&rows)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_the_part_of_its_hash() {
        let hashes: Vec<u64> =
            (0..10_000_u64).map(|n| n.wrapping_mul(0x1234_5678_9abc_def1)).collect();
        let (order, ends) = order_rows_by_part(&hashes);
        let mut rows = order.clone();
        rows.sort_unstable();
        assert!(rows.into_iter().eq(0..10_000));
        let all = (0..PARTITION_COUNT * PARTS_PER_PARTITION).map(|part| part_range(&ends, part, 1));
        for (part, range) in all.enumerate() {
            for row in &order[range] {
                assert_eq!((mix_hash(hashes[*row as usize]) >> 56) as usize, part);
            }
        }
        assert_eq!(part_range(&ends, 0, PARTITION_COUNT * PARTS_PER_PARTITION), 0..10_000);
        assert_eq!(part_range(&order_rows_by_part(&[]).1, 0, PARTS_PER_PARTITION), 0..0);
    }
}
