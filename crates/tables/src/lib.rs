//! Mergeable tables: group keys with one state per aggregate.
//!
//! A [`Table`] takes the map's rows or another table's [`Chunk`] and answers at the end. A
//! worker fills tables and hands them over as chunks; [`merge`] folds these, where the order of
//! rows matters to a state ([`TableSpec::is_order_free`]) in that of the splits, so that the same input
//! gives the same answer, byte for byte, however many workers there were.

mod accumulators;
pub mod added;
mod approximate;
pub mod calls;
pub mod codes;
mod distinct;
pub mod estimates;
pub mod first_rows;
mod first_values;
pub mod functions;
mod groups;
mod held;
pub mod lists;
mod median;
pub mod merge;
pub mod ordered;
pub mod partial;
mod partitions;
mod places;
pub mod portions;
mod prefetch;
pub mod ranges;
mod scatter;
pub mod sections;
pub mod sessions;
mod sliding;
mod spec;
pub mod spill;
mod state;
pub mod statistics;
pub mod summary;
mod sums;
pub mod value;
mod wide_sums;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
pub use distinct::{is_of_one_row, makes_branches};
use groups::GroupIndex;
pub use scatter::Scatter;
pub use spec::{Aggregate, BitsOf, Function, Precision, Switch, TableSpec, position, top_k_type};
pub use state::{CellQuantiles, CellSums, supports};
use state::{Routes, Rows, StateColumn, States};
use tidemill_base::error::{Error, Result};
use tidemill_sql::float_order;
pub use value::{is_hashable, is_rankable};

/// Groups and their states while they can still grow.
pub struct Table {
    spec: Arc<TableSpec>,
    /// None where there are no keys: then there is one group, even of no rows.
    groups: Option<GroupIndex>,
    columns: Vec<Box<dyn StateColumn>>,
    group_of_row: Vec<usize>,
    /// How many rows it has taken since it was empty.
    row_count: u64,
}

/// Of fewer groups than these a table stays in the cache, whatever it saves.
const GROUPS_CACHED: usize = 1 << 16;

/// A table without a measure of its states first takes this many rows.
const ROWS_UNMEASURED: usize = 16;

/// One row in this many is expected to be of a new group, where fewer were so far.
const ROWS_OF_NEW_GROUP: usize = 32;

/// Where there seem to be more groups than these, a table does not gather them.
const GROUPS_GATHERED_MAX: u64 = 1 << 18;

/// The groups of a table on their way to another: keys, and states in the same order.
pub struct Chunk {
    keys: Vec<ArrayRef>,
    /// The keys' hashes, where they are known.
    hashes: Option<Vec<u64>>,
    states: Vec<States>,
    group_count: usize,
}

impl Table {
    /// A table without groups.
    ///
    /// # Errors
    /// Where a key's type cannot be grouped by.
    pub fn new(spec: &Arc<TableSpec>) -> Result<Self> {
        let groups = match spec.keys.is_empty() {
            true => None,
            false => Some(GroupIndex::new(&spec.key_schema())?),
        };
        let columns = spec.leaders().map(state::column).collect::<Result<_>>()?;
        Ok(Table {
            spec: Arc::clone(spec),
            groups,
            columns,
            group_of_row: Vec::new(),
            row_count: 0,
        })
    }

    /// Returns the keys and aggregates of the table.
    pub fn spec(&self) -> &Arc<TableSpec> {
        &self.spec
    }

    /// How many groups there are.
    pub fn group_count(&self) -> usize {
        self.groups.as_ref().map_or(1, GroupIndex::len)
    }

    /// Whether its rows are better [scattered](Scatter) to where all of their partition is: it has outgrown the
    /// cache, and so few rows were of a group that was there that the rest will hardly be either. Of N
    /// groups that are equally likely, g are met in g + g²/2N rows, about.
    pub fn is_sparse(&self) -> bool {
        let group_count = self.group_count();
        let groups = group_count as u64;
        let again = self.row_count.saturating_sub(groups);
        group_count >= GROUPS_CACHED
            && again.saturating_mul(2 * GROUPS_GATHERED_MAX) < groups.saturating_mul(groups)
    }

    /// Makes room for so many groups.
    fn expect_groups(&mut self, count: usize) {
        if let Some(groups) = &mut self.groups {
            groups.expect(count);
        }
    }

    /// The memory that keys and states take, in bytes.
    pub fn bytes(&self) -> usize {
        self.groups.as_ref().map_or(0, GroupIndex::bytes)
            + self.columns.iter().map(|column| column.bytes()).sum::<usize>()
    }

    /// The name of the function whose states take the most memory.
    pub fn largest(&self) -> Option<&'static str> {
        let states = self.spec.leaders().zip(&self.columns);
        let largest = states.max_by_key(|(_, column)| column.bytes())?.0;
        Some(largest.function.name())
    }

    fn assign(
        &mut self,
        keys: &[ArrayRef],
        hashes: Option<&[u64]>,
        rows: Option<&[u32]>,
        row_count: usize,
    ) -> Result<usize> {
        match &mut self.groups {
            Some(groups) => groups.intern(keys, hashes, rows, &mut self.group_of_row)?,
            None => {
                self.group_of_row.clear();
                self.group_of_row.resize(row_count, 0);
            }
        }
        Ok(self.group_count())
    }

    /// Takes rows of the map: keys first, then arguments and filters as the spec says, and last, where it asks
    /// for them ([`TableSpec::has_positions`]), their positions in the input.
    ///
    /// # Errors
    /// Where a sum overflows even its wide state.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        let keys: Vec<ArrayRef> = batch.columns()[..self.spec.keys.len()]
            .iter()
            .map(float_order::normalize_floats)
            .collect();
        self.row_count += batch.num_rows() as u64;
        let positions = self.spec.has_positions().then(|| batch.columns().last()).flatten();
        let group_count = self.assign(&keys, None, None, batch.num_rows())?;
        for (aggregate, column) in self.spec.leaders().zip(&mut self.columns) {
            column.update(&Rows {
                values: aggregate.argument.map(|index| batch.column(index)),
                second: aggregate.second.as_ref().map(|(index, _)| batch.column(*index)),
                filter: aggregate.filter.map(|index| batch.column(index).as_boolean()),
                positions,
                groups: &self.group_of_row,
                group_count,
            })?;
        }
        Ok(())
    }

    /// Estimates how many rows make the states `growth_bytes` larger, from the rows since the table was empty.
    ///
    /// A row is taken to need what a group needs, unless a group has many rows: then an equal part of
    /// [`ROWS_OF_NEW_GROUP`] rows is.
    fn rows_of_growth(&self, growth_bytes: usize) -> usize {
        let row_count = usize::try_from(self.row_count).unwrap_or(usize::MAX);
        if row_count < ROWS_UNMEASURED {
            return ROWS_UNMEASURED;
        }
        let new_groups = self.group_count().max(row_count / ROWS_OF_NEW_GROUP);
        let row_bytes = self.bytes() / new_groups.max(1);
        (growth_bytes / row_bytes.max(1)).max(1)
    }

    /// Takes the given groups of a chunk, each of which is taken only once.
    ///
    /// # Errors
    /// As [`Table::update`].
    pub fn merge(&mut self, chunk: &Chunk, rows: &[u32]) -> Result<()> {
        let group_count =
            self.assign(&chunk.keys, chunk.hashes.as_deref(), Some(rows), rows.len())?;
        let routes = Routes { rows, groups: &self.group_of_row, group_count };
        for (column, states) in self.columns.iter_mut().zip(&chunk.states) {
            column.merge(states, &routes)?;
        }
        Ok(())
    }

    /// Gives the groups up, leaving an empty table.
    ///
    /// # Errors
    /// As DataFusion's grouping.
    pub fn take(&mut self) -> Result<Chunk> {
        self.row_count = 0;
        let group_count = self.group_count();
        let states = self
            .columns
            .iter_mut()
            .map(|column| column.take(group_count))
            .collect::<Result<_>>()?;
        let (keys, hashes) = self.take_keys()?;
        Ok(Chunk { keys, hashes, states, group_count })
    }

    fn take_keys(&mut self) -> Result<(Vec<ArrayRef>, Option<Vec<u64>>)> {
        let Some(groups) = &mut self.groups else { return Ok((Vec::new(), None)) };
        let (keys, hashes) = groups.take(&self.spec.key_schema())?;
        let keys = keys
            .iter()
            .zip(&self.spec.keys)
            .map(|(key, field)| value::cast_to(key, field.data_type()))
            .collect::<Result<_>>()?;
        Ok((keys, hashes))
    }

    /// How good each aggregate's answers are; none where they are exact by nature.
    pub fn precisions(&mut self) -> Vec<Option<Precision>> {
        let mut precisions = vec![None; self.spec.aggregates.len()];
        for (state, column) in self.spec.states.iter().zip(&mut self.columns) {
            for index in state {
                precisions[*index] = column.precision(&self.spec.aggregates[*index]);
            }
        }
        precisions
    }

    /// The answer: keys and one column per aggregate; leaves an empty table.
    ///
    /// # Errors
    /// Where an answer does not fit its type.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        Ok(self.finish_hashed()?.0)
    }

    /// The answer, and the hashes of its keys where they are known.
    fn finish_hashed(&mut self) -> Result<(RecordBatch, Option<Vec<u64>>)> {
        let group_count = self.group_count();
        let spec = Arc::clone(&self.spec);
        let mut answers: Vec<Option<ArrayRef>> = vec![None; spec.aggregates.len()];
        for (state, column) in spec.states.iter().zip(&mut self.columns) {
            let shared: Vec<&Aggregate> = state.iter().map(|i| &spec.aggregates[*i]).collect();
            for (index, answer) in state.iter().zip(column.finish_shared(group_count, &shared)?) {
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

    /// Reads a chunk from its form on disk.
    ///
    /// # Errors
    /// Where the columns are not those of this table's spec.
    pub fn decode(&self, batch: &RecordBatch) -> Result<Chunk> {
        self.decoded(batch, None)
    }

    /// Reads a chunk of a partial file, which stands in the place `file` among those that are merged: what stood
    /// first in the input of each of them is put in that order.
    ///
    /// # Errors
    /// As [`Table::decode`].
    pub fn decode_of_file(&self, batch: &RecordBatch, file: usize) -> Result<Chunk> {
        self.decoded(batch, Some(file))
    }

    fn decoded(&self, batch: &RecordBatch, file: Option<usize>) -> Result<Chunk> {
        let key_count = self.spec.keys.len();
        if batch.num_columns() != key_count + self.columns.len() {
            return Err(match file {
                // The checksums of a file hold whoever wrote it.
                Some(_) => Error::Corrupt {
                    path: "partial table".into(),
                    offset: None,
                    reason: format!(
                        "its groups have {} columns, and its query's have {}",
                        batch.num_columns(),
                        key_count + self.columns.len(),
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
            .columns
            .iter()
            .zip(states)
            .map(|(column, array)| match file {
                Some(file) => column.decode_of_file(array, file),
                None => column.decode(array),
            })
            .collect::<Result<_>>()?;
        Ok(Chunk { keys: keys.to_vec(), hashes: None, states, group_count: batch.num_rows() })
    }
}

impl Chunk {
    /// How many groups it holds.
    pub fn group_count(&self) -> usize {
        self.group_count
    }

    /// The hashes of its keys, worked out once.
    ///
    /// # Errors
    /// Where a key's type cannot be hashed.
    fn hashes(&mut self) -> Result<&[u64]> {
        if self.hashes.is_none() {
            self.hashes = Some(groups::stored_hashes(&self.keys, self.group_count)?);
        }
        Ok(self.hashes.as_deref().unwrap_or_default())
    }

    /// The memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.keys.iter().map(|key| key.get_array_memory_size()).sum::<usize>()
            + self.hashes.as_ref().map_or(0, |hashes| hashes.capacity() * size_of::<u64>())
            + self.states.iter().map(States::bytes).sum::<usize>()
    }

    /// Its form on disk: a column per key (`key_0` …) and per aggregate (`state_0` …).
    ///
    /// # Errors
    /// As Arrow's record batches.
    pub fn encode(&self) -> Result<RecordBatch> {
        let states = self.states.iter().map(States::encode).collect::<Result<Vec<ArrayRef>>>()?;
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
