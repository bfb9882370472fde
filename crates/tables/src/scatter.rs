//! Rows on their way to their partition, where hardly any two are of one group.
//!
//! A table in which every row is a group of its own costs a slot, a hash and a state each, and saves nothing.
//! So such rows are not gathered before they are where all of their group are: they are put in the order of
//! the highest bits of their keys' hashes, a block of rows at a time, and wait there as they are. In the end
//! each part is grouped by itself, in a table that fits the cache, and goes out before the next.
//!
//! Two copies a row (a block together, then its partitions apart), of its keys and arguments alone, the first into
//! memory that stays; one, by pairs of batch and place, took no less time.
//!
//! Source: radix partitioning before the build, as of Manegold, Boncz and Kersten, *Optimizing Main-Memory Join
//! on Modern Hardware* (TKDE 2002); that grouping without reduction had better not begin before it, of
//! Leis et al., *Morsel-Driven Parallelism* (SIGMOD 2014).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use tidemill_base::error::Result;
use tidemill_sql::float_order;

use super::gather_columns::{GatherColumn, GatherableRows};
use super::group_index::{hash_normalized_keys, normalize_keys};
use super::hash_partitions::{PARTITION_BITS, PARTITION_COUNT, mix_hash, partition_groups};
use super::value_encoding::logical_bytes;
use super::{AggregateTable, GroupChunk, TableSpec};

/// Into how many parts a partition's rows are put.
pub(crate) const PARTS_PER_PARTITION: usize = 1 << PARTITION_BITS;

/// A block of rows: each of its 256 parts has some hundred.
const SCATTER_BLOCK_ROWS: usize = 1 << 17;

/// After so many rows a table is filled again: the rows that follow may be of fewer groups. Where they are not,
/// twice as many come by the next time.
const SCATTERED_ROWS_INITIAL: u64 = 1 << 21;

/// A worker's rows, until they are a block.
pub struct ScatterBuffer {
    key_count: usize,
    bytes_max: usize,
    /// None before the first rows.
    schema: Option<SchemaRef>,
    columns: Vec<GatherColumn>,
    /// Of each row's keys.
    key_hashes: Vec<u64>,
    row_bytes: usize,
    /// How many more rows are to come by; none while it is off.
    rows_until_retry: u64,
    /// How many the next time.
    next_rows_until_retry: u64,
}

impl ScatterBuffer {
    /// One that is off, and holds about so many bytes.
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

    /// Whether rows are to be given to it, and not to a table.
    pub fn is_enabled(&self) -> bool {
        self.rows_until_retry > 0
    }

    /// Has the next rows scattered.
    pub fn enable(&mut self) {
        self.rows_until_retry = self.next_rows_until_retry;
        self.next_rows_until_retry = self.next_rows_until_retry.saturating_mul(2);
    }

    /// Takes rows of the map.
    ///
    /// # Errors
    /// Where a key cannot be turned into the type that it is kept as, or hashed.
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

    /// Whether there is a block.
    pub fn is_full(&self) -> bool {
        self.key_hashes.len() >= SCATTER_BLOCK_ROWS || self.row_bytes >= self.bytes_max
    }

    /// The rows that it has, apart: blocks of rows and the partition of each.
    ///
    /// # Errors
    /// As Arrow's.
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

/// Rows by the part of their hash, and where each part ends.
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

/// The rows of some parts, the first of which is `first`.
fn part_range(ends: &[u32], first: usize, count: usize) -> Range<usize> {
    let start = first.checked_sub(1).map_or(0, |before| ends[before]);
    start as usize..ends[first + count - 1] as usize
}

/// Some rows of a partition, by their parts.
pub struct ScatteredBlock {
    batch: RecordBatch,
    part_ends: Vec<u32>,
}

impl ScatteredBlock {
    /// The memory it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.batch.get_array_memory_size()
    }

    /// How many rows it has.
    pub(crate) fn row_count(&self) -> usize {
        self.batch.num_rows()
    }

    /// What its columns are.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.batch.schema_ref()
    }

    /// Its rows of a part.
    pub(crate) fn part_rows(&self, part: usize) -> RecordBatch {
        let range = part_range(&self.part_ends, part, 1);
        self.batch.slice(range.start, range.len())
    }
}

/// All rows of a partition, and the groups of it that were gathered before.
pub(crate) struct PartitionParts {
    group_chunk: GroupChunk,
    groups_by_part: Vec<Vec<u32>>,
    blocks: Vec<ScatteredBlock>,
}

impl PartitionParts {
    /// Takes the groups of a partition's table, and partitions them by the bits of their hashes from `first_bit` on.
    /// `blocks` are partitioned by the second four bits.
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

    /// How many rows and groups a part has, which are its groups at most.
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
