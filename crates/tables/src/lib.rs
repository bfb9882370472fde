//! Mergeable aggregate tables: group keys with one state per aggregate.
//!
//! An [`AggregateTable`] takes the map's rows or another table's [`GroupChunk`], and computes its answer at
//! the end. A worker fills tables and hands them over as chunks; [`merging`] folds the chunks into one table.
//! If a state depends on the order of rows ([`TableSpec::is_order_insensitive`]), chunks are merged in the
//! order of the splits. The same input therefore gives the same answer, byte for byte, for any number of
//! workers.

pub mod aggregates;
pub mod grouping;
pub mod merging;
pub mod sessions;
mod spec;
mod state;
pub mod value_encoding;

use std::sync::Arc;

pub use aggregates::distinct_rewrite::{is_branch_unnest, is_single_row_call};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use grouping::group_index::GroupIndex;
pub use grouping::scatter::ScatterBuffer;
pub use spec::{
    BitwiseOperator, MergeableFunction, SketchPrecision, StateUpdateSwitch, TableAggregate,
    TableSpec, encode_row_position, top_k_result_type,
};
pub use state::{CellQuantiles, CellSums, has_mergeable_state};
use state::{ChunkStates, GroupedRows, StateColumn, StateRoutes};
use tidemill_base::error::{Error, Result};
use tidemill_sql::float_order;
pub use value_encoding::{has_sortable_items, is_hashable};

/// A hash table of groups with one state for each aggregate, which takes rows and chunks.
pub struct AggregateTable {
    spec: Arc<TableSpec>,
    /// The index of groups by key. `None` without keys: then there is one group, even for no rows.
    group_index: Option<GroupIndex>,
    state_columns: Vec<Box<dyn StateColumn>>,
    group_of_row: Vec<usize>,
    /// Number of rows taken since the table was empty.
    row_count: u64,
}

/// Number of groups below which a table fits the CPU cache, so that scattering would save nothing.
const CACHED_GROUPS_MAX: usize = 1 << 16;

/// Number of rows in the first slice of a batch, before the growth of the states has been measured.
const FIRST_SLICE_ROWS: usize = 16;

/// Upper bound on the rows expected per new group: a table that saw fewer new groups is assumed to get one in
/// this many rows.
const EXPECTED_ROWS_PER_NEW_GROUP: usize = 32;

/// Estimated number of groups in the input above which a table stops aggregating and rows are scattered.
const AGGREGATED_GROUPS_MAX: u64 = 1 << 18;

/// Groups that leave a table to be merged elsewhere: keys, and states in the same order.
pub struct GroupChunk {
    keys: Vec<ArrayRef>,
    /// The keys' hashes, if they have been computed.
    hashes: Option<Vec<u64>>,
    states: Vec<ChunkStates>,
    group_count: usize,
}

impl AggregateTable {
    /// Creates a table without groups.
    ///
    /// # Errors
    /// Returns an error if a key's type cannot be grouped by.
    pub fn new(spec: &Arc<TableSpec>) -> Result<Self> {
        let groups = match spec.keys.is_empty() {
            true => None,
            false => Some(GroupIndex::new(&spec.key_schema())?),
        };
        let columns =
            spec.first_aggregate_per_state().map(state::new_state_column).collect::<Result<_>>()?;
        Ok(AggregateTable {
            spec: Arc::clone(spec),
            group_index: groups,
            state_columns: columns,
            group_of_row: Vec::new(),
            row_count: 0,
        })
    }

    /// Returns the keys and aggregates of the table.
    pub fn spec(&self) -> &Arc<TableSpec> {
        &self.spec
    }

    /// Returns the number of groups.
    pub fn group_count(&self) -> usize {
        self.group_index.as_ref().map_or(1, GroupIndex::len)
    }

    /// Returns true if [scattering](ScatterBuffer) the rows to their hash partitions is better than
    /// aggregating them here: the table has outgrown the cache, and so few rows belonged to a known group
    /// that the same is expected of the rest. Of N equally likely groups, about g + g²/2N rows contain g
    /// distinct ones.
    pub fn is_better_scattered(&self) -> bool {
        let group_count = self.group_count();
        let groups = group_count as u64;
        let again = self.row_count.saturating_sub(groups);
        group_count >= CACHED_GROUPS_MAX
            && again.saturating_mul(2 * AGGREGATED_GROUPS_MAX) < groups.saturating_mul(groups)
    }

    /// Reserves room for `count` groups.
    fn reserve_groups(&mut self, count: usize) {
        if let Some(groups) = &mut self.group_index {
            groups.reserve(count);
        }
    }

    /// Returns the memory of keys and states, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.group_index.as_ref().map_or(0, GroupIndex::memory_bytes)
            + self.state_columns.iter().map(|column| column.memory_bytes()).sum::<usize>()
    }

    /// Returns the name of the function whose states take the most memory.
    pub fn largest_state_function(&self) -> Option<&'static str> {
        let states = self.spec.first_aggregate_per_state().zip(&self.state_columns);
        let largest = states.max_by_key(|(_, column)| column.memory_bytes())?.0;
        Some(largest.function.sql_name())
    }

    fn assign_groups(
        &mut self,
        keys: &[ArrayRef],
        hashes: Option<&[u64]>,
        rows: Option<&[u32]>,
        row_count: usize,
    ) -> Result<usize> {
        match &mut self.group_index {
            Some(groups) => {
                groups.find_or_add_groups(keys, hashes, rows, &mut self.group_of_row)?
            }
            None => {
                self.group_of_row.clear();
                self.group_of_row.resize(row_count, 0);
            }
        }
        Ok(self.group_count())
    }

    /// Adds rows of the map. Their columns are the keys, then arguments and filters as the spec defines them,
    /// and last the positions in the input if the spec needs them ([`TableSpec::needs_positions`]).
    ///
    /// # Errors
    /// Returns an error if a sum overflows even its wide state.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        let keys: Vec<ArrayRef> = batch.columns()[..self.spec.keys.len()]
            .iter()
            .map(float_order::normalize_floats)
            .collect();
        self.row_count += batch.num_rows() as u64;
        let positions = self.spec.needs_positions().then(|| batch.columns().last()).flatten();
        let group_count = self.assign_groups(&keys, None, None, batch.num_rows())?;
        for (aggregate, column) in
            self.spec.first_aggregate_per_state().zip(&mut self.state_columns)
        {
            column.update(&GroupedRows {
                argument_values: aggregate.argument_column.map(|index| batch.column(index)),
                second_values: aggregate
                    .second_argument
                    .as_ref()
                    .map(|(index, _)| batch.column(*index)),
                filter: aggregate.filter_column.map(|index| batch.column(index).as_boolean()),
                positions,
                groups: &self.group_of_row,
                group_count,
            })?;
        }
        Ok(())
    }

    /// Estimates the number of rows after which the states have grown by `growth_bytes`, from the rows taken
    /// since the table was empty.
    ///
    /// A row is assumed to add the memory of an average group. If a group has more than
    /// [`EXPECTED_ROWS_PER_NEW_GROUP`] rows, that many rows together are assumed to add one group.
    fn estimate_rows_for_growth(&self, growth_bytes: usize) -> usize {
        let row_count = usize::try_from(self.row_count).unwrap_or(usize::MAX);
        if row_count < FIRST_SLICE_ROWS {
            return FIRST_SLICE_ROWS;
        }
        let new_groups = self.group_count().max(row_count / EXPECTED_ROWS_PER_NEW_GROUP);
        let row_bytes = self.memory_bytes() / new_groups.max(1);
        (growth_bytes / row_bytes.max(1)).max(1)
    }

    /// Merges the groups at `rows` of a chunk. The caller passes each group of a chunk only once.
    ///
    /// # Errors
    /// Returns the errors of [`AggregateTable::update`].
    pub fn merge(&mut self, chunk: &GroupChunk, rows: &[u32]) -> Result<()> {
        let group_count =
            self.assign_groups(&chunk.keys, chunk.hashes.as_deref(), Some(rows), rows.len())?;
        let routes = StateRoutes { incoming_rows: rows, groups: &self.group_of_row, group_count };
        for (column, states) in self.state_columns.iter_mut().zip(&chunk.states) {
            column.merge(states, &routes)?;
        }
        Ok(())
    }

    /// Takes all groups out and leaves an empty table.
    ///
    /// # Errors
    /// Returns the errors of DataFusion's grouping.
    pub fn take_chunk(&mut self) -> Result<GroupChunk> {
        self.row_count = 0;
        let group_count = self.group_count();
        let states = self
            .state_columns
            .iter_mut()
            .map(|column| column.take_states(group_count))
            .collect::<Result<_>>()?;
        let (keys, hashes) = self.take_keys()?;
        Ok(GroupChunk { keys, hashes, states, group_count })
    }

    fn take_keys(&mut self) -> Result<(Vec<ArrayRef>, Option<Vec<u64>>)> {
        let Some(groups) = &mut self.group_index else { return Ok((Vec::new(), None)) };
        let (keys, hashes) = groups.take_keys(&self.spec.key_schema())?;
        let keys = keys
            .iter()
            .zip(&self.spec.keys)
            .map(|(key, field)| value_encoding::cast_exactly(key, field.data_type()))
            .collect::<Result<_>>()?;
        Ok((keys, hashes))
    }

    /// Returns the precision of each aggregate's answers; `None` for aggregates that are always exact.
    pub fn precisions(&mut self) -> Vec<Option<SketchPrecision>> {
        let mut precisions = vec![None; self.spec.aggregates.len()];
        for (state, column) in self.spec.state_aggregates.iter().zip(&mut self.state_columns) {
            for index in state {
                precisions[*index] = column.precision(&self.spec.aggregates[*index]);
            }
        }
        precisions
    }

    /// Returns the answer, which has the keys and one column per aggregate, and leaves an empty table.
    ///
    /// # Errors
    /// Returns an error if an answer does not fit its type.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        Ok(self.finish_with_hashes()?.0)
    }

    /// Returns the answer, and the hashes of its keys if they are known.
    fn finish_with_hashes(&mut self) -> Result<(RecordBatch, Option<Vec<u64>>)> {
        let group_count = self.group_count();
        let spec = Arc::clone(&self.spec);
        let mut answers: Vec<Option<ArrayRef>> = vec![None; spec.aggregates.len()];
        for (state, column) in spec.state_aggregates.iter().zip(&mut self.state_columns) {
            let shared: Vec<&TableAggregate> = state.iter().map(|i| &spec.aggregates[*i]).collect();
            for (index, answer) in
                state.iter().zip(column.finish_shared_aggregates(group_count, &shared)?)
            {
                answers[*index] = Some(answer);
            }
        }
        let (mut columns, hashes) = self.take_keys()?;
        columns.extend(answers.into_iter().flatten());
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(group_count));
        let answer =
            RecordBatch::try_new_with_options(self.spec.output_schema(), columns, &options)?;
        Ok((answer, hashes))
    }

    /// Decodes a chunk from its form on disk.
    ///
    /// # Errors
    /// Returns an error if the columns are not those of this table's spec.
    pub fn decode_chunk(&self, batch: &RecordBatch) -> Result<GroupChunk> {
        self.decode_batch(batch, None)
    }

    /// Decodes a chunk of a partial table. `file` is the index of that file among the merged ones; it becomes
    /// the major part of the positions, so that rows of earlier files come first.
    ///
    /// # Errors
    /// Returns the errors of [`AggregateTable::decode_chunk`].
    pub fn decode_partial_table_chunk(
        &self,
        batch: &RecordBatch,
        file: usize,
    ) -> Result<GroupChunk> {
        self.decode_batch(batch, Some(file))
    }

    fn decode_batch(&self, batch: &RecordBatch, file: Option<usize>) -> Result<GroupChunk> {
        let key_count = self.spec.keys.len();
        if batch.num_columns() != key_count + self.state_columns.len() {
            return Err(match file {
                // The checksums of a file are valid whoever wrote it, so a foreign spec is possible.
                Some(_) => Error::Corrupt {
                    path: "partial table".into(),
                    offset: None,
                    reason: format!(
                        "its groups have {} columns, and its query's have {}",
                        batch.num_columns(),
                        key_count + self.state_columns.len(),
                    ),
                    hint: None,
                },
                None => Error::Internal("a chunk of another table was read back".into()),
            });
        }
        let (keys, states) = batch.columns().split_at(key_count);
        for (key, field) in keys.iter().zip(&self.spec.keys) {
            if key.data_type() != field.data_type() {
                return Err(Error::Corrupt {
                    path: "partial table".into(),
                    offset: None,
                    reason: format!(
                        "keys of type {} are not `{}`, which is {}",
                        key.data_type(),
                        field.name(),
                        field.data_type()
                    ),
                    hint: None,
                });
            }
        }
        let states = self
            .state_columns
            .iter()
            .zip(states)
            .map(|(column, array)| match file {
                Some(file) => column.decode_partial_table_states(array, file),
                None => column.decode(array),
            })
            .collect::<Result<_>>()?;
        Ok(GroupChunk { keys: keys.to_vec(), hashes: None, states, group_count: batch.num_rows() })
    }
}

impl GroupChunk {
    /// Returns the number of groups.
    pub fn group_count(&self) -> usize {
        self.group_count
    }

    /// Returns the hashes of the keys, computed on the first call.
    ///
    /// # Errors
    /// Returns an error if a key's type cannot be hashed.
    fn key_hashes(&mut self) -> Result<&[u64]> {
        if self.hashes.is_none() {
            self.hashes = Some(grouping::group_index::hash_keys(&self.keys, self.group_count)?);
        }
        Ok(self.hashes.as_deref().unwrap_or_default())
    }

    /// Returns the memory of the chunk, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.keys.iter().map(|key| key.get_array_memory_size()).sum::<usize>()
            + self.hashes.as_ref().map_or(0, |hashes| hashes.capacity() * size_of::<u64>())
            + self.states.iter().map(ChunkStates::memory_bytes).sum::<usize>()
    }

    /// Encodes the chunk for disk: one column per key (`key_0` …) and one per state (`state_0` …).
    ///
    /// # Errors
    /// Returns the errors of Arrow's record batches.
    pub fn encode(&self) -> Result<RecordBatch> {
        let states =
            self.states.iter().map(ChunkStates::encode).collect::<Result<Vec<ArrayRef>>>()?;
        let named = |prefix: &'static str, arrays: &[ArrayRef]| {
            let fields = arrays.iter().enumerate().map(move |(index, array)| {
                Field::new(format!("{prefix}_{index}"), array.data_type().clone(), true)
            });
            fields.collect::<Vec<_>>()
        };
        let mut fields = named("key", &self.keys);
        fields.extend(named("state", &states));
        let mut columns = self.keys.clone();
        columns.extend(states);
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let options =
            arrow::array::RecordBatchOptions::new().with_row_count(Some(self.group_count));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}
