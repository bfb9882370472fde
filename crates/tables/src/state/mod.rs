//! Aggregation states: for each aggregate a [`StateColumn`] with one state per group.
//!
//! A column takes rows (`update`) and the states of another column (`merge`), gives its states up
//! (`take_states`) and computes an answer (`finish`). States leave a table as [`ChunkStates`]: in memory as
//! they are, on disk as an Arrow array whose layout `docs/formats/partial.md` documents. All functions but
//! `top_k` and `collect` answer the same for any order and grouping of rows and merges: integer sums have 128
//! bits, sums of decimals and of products 192, and float sums use a fixed-point accumulator wide enough to be
//! exact.

mod bitwise;
mod bootstrap;
mod collected_values;
mod count;
mod distinct_sample;
mod distinct_values;
mod extremes;
mod first_rows;
mod hll_unique;
mod id_sets;
mod input_cells;
mod mean;
mod moments;
mod nested_sums;
mod quantiles;
mod sketch_column;
mod stored_sketches;
mod sums;
mod time_aggregates;
mod top_k;
mod value_buffer;
mod value_lists;
mod value_presence;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, LargeBinaryBuilder, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type, Field, Float32Type, Float64Type};
use tidemill_base::error::{Error, Result};
use tidemill_functions::sketches::is_sketch_type;
use tidemill_sketch::{
    DistinctValues, FOUR_POWER_SUMS, FloatSum, Hll, ONE_COLUMN_SUMS, TWO_COLUMN_SUMS, TopK,
};

use crate::grouping::cache_prefetch::{PREFETCH_DISTANCE, prefetch_item};
use crate::spec::{MergeableFunction, SketchPrecision, TableAggregate};
use crate::value_encoding::{self, ShortItem};
use bitwise::new_bitwise_column;
use bootstrap::BootstrapKind;
use collected_values::CollectStates;
use count::CountStates;
use distinct_sample::DistinctSampleKind;
use distinct_values::DistinctValuesKind;
use extremes::new_extreme_column;
use first_rows::{FirstRowsStates, OrderedGroupRows};
use hll_unique::HllKind;
use id_sets::{DistinctItemsKind, IdSetCombinationKind, IdSetKind};
pub use input_cells::{CellQuantiles, CellSums};
use input_cells::{CellQuantilesKind, CellSumsKind};
use mean::MeanStates;
use moments::MomentsKind;
use nested_sums::NestedChunkStates;
use quantiles::QuantilesKind;
use sketch_column::{ErasedSketchStates, SketchStates};
use stored_sketches::HllUnionKind;
use sums::{DecimalSumStates, FloatSumStates, IntegerSumStates};
use time_aggregates::TimeAsNumberStates;
use top_k::TopKKind;
use value_lists::ValueListStates;
use value_presence::ValuePresence;

pub(crate) use first_rows::compute_key_prefixes;
pub(crate) use mean::{compute_decimal_mean, compute_rounded_mean};
pub(crate) use moments::{MomentNumber, NumberPairs, has_integer_moments};
pub(crate) use nested_sums::is_nested_type;
pub(crate) use sums::{encode_sum_state, overflow_error, to_wide_sums};

/// The rows of a batch and their groups, for [`StateColumn::update`].
pub(crate) struct GroupedRows<'a> {
    /// The argument's values; none for `count(*)`.
    pub argument_values: Option<&'a ArrayRef>,
    /// The second argument's values, for functions of two arguments.
    pub second_values: Option<&'a ArrayRef>,
    /// The filter: rows that are true count, null is false. Without a filter all rows count.
    pub filter: Option<&'a BooleanArray>,
    /// Each row's position in the input; `None` if no state of the table needs it.
    pub positions: Option<&'a ArrayRef>,
    /// Each row's group.
    pub groups: &'a [usize],
    /// Number of groups, including those that these rows create.
    pub group_count: usize,
}

impl GroupedRows<'_> {
    /// Returns a mask of the rows that pass the filter and are not null in `nulls`; `None` means all rows.
    fn selected_rows(&self, nulls: Option<&NullBuffer>) -> Option<NullBuffer> {
        let filter = self.filter.map(|filter| {
            let wanted = filter.values();
            NullBuffer::new(match filter.nulls() {
                Some(nulls) => wanted & nulls.inner(),
                None => wanted.clone(),
            })
        });
        NullBuffer::union(nulls, filter.as_ref())
    }

    fn for_each_row(&self, nulls: Option<&NullBuffer>, mut each: impl FnMut(usize, usize)) {
        match self.selected_rows(nulls) {
            None => self.groups.iter().enumerate().for_each(|(row, group)| each(row, *group)),
            Some(selected) => {
                selected.valid_indices().for_each(|row| each(row, self.groups[row]));
            }
        }
    }

    /// Calls `each(state, row, group)` for each row that counts.
    fn update_states<S>(
        &self,
        nulls: Option<&NullBuffer>,
        states: &mut [S],
        mut each: impl FnMut(&mut S, usize, usize),
    ) {
        match self.selected_rows(nulls) {
            None => {
                let prefetched = StatePrefetcher::new(states);
                for (row, group) in self.groups.iter().enumerate() {
                    prefetched.prefetch_group(states, self.groups.get(row + PREFETCH_DISTANCE));
                    each(&mut states[*group], row, *group);
                }
            }
            Some(selected) => {
                for row in selected.valid_indices() {
                    let group = self.groups[row];
                    each(&mut states[group], row, group);
                }
            }
        }
    }

    /// Works like [`GroupedRows::update_states`], and marks the groups that have a value.
    fn update_states_and_presence<S>(
        &self,
        nulls: Option<&NullBuffer>,
        states: &mut [S],
        seen: &mut ValuePresence,
        mut each: impl FnMut(&mut S, usize, usize),
    ) {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        if nulls.is_none() && self.filter.is_none() {
            seen.mark_groups(self.groups, self.group_count);
            return self.update_states(None, states, each);
        }
        let seen = seen.flags_mut(self.group_count);
        self.update_states(nulls, states, |state, row, group| {
            seen[group] = true;
            each(state, row, group);
        });
    }

    fn required_values(&self) -> Result<&ArrayRef> {
        self.argument_values.ok_or_else(|| Error::Internal("an aggregate lost its argument".into()))
    }
}

/// The mapping from incoming states to groups: state `incoming_rows[i]` is merged into group `groups[i]`.
pub(crate) struct StateRoutes<'a> {
    /// Indexes into the incoming states.
    pub incoming_rows: &'a [u32],
    /// The groups that receive them, each at most once.
    pub groups: &'a [usize],
    /// Number of groups, including those that this merge creates.
    pub group_count: usize,
}

impl StateRoutes<'_> {
    fn state_group_pairs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.incoming_rows.iter().map(|row| *row as usize).zip(self.groups.iter().copied())
    }

    /// Calls `each(state, row, group)` for every incoming state.
    fn merge_states<S>(&self, states: &mut [S], mut each: impl FnMut(&mut S, usize, usize)) {
        let prefetched = StatePrefetcher::new(states);
        for (at, (row, group)) in self.state_group_pairs().enumerate() {
            prefetched.prefetch_group(states, self.groups.get(at + PREFETCH_DISTANCE));
            each(&mut states[group], row, group);
        }
    }

    /// Works like [`StateRoutes::merge_states`] for states that are not null, and marks the groups that have
    /// a value.
    fn update_states_and_presence<S>(
        &self,
        nulls: Option<&NullBuffer>,
        states: &mut [S],
        seen: &mut ValuePresence,
        mut each: impl FnMut(&mut S, usize, usize),
    ) {
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else {
            seen.mark_groups(self.groups, self.group_count);
            return self.merge_states(states, each);
        };
        let seen = seen.flags_mut(self.group_count);
        self.merge_states(states, |state, row, group| {
            if nulls.is_valid(row) {
                seen[group] = true;
                each(state, row, group);
            }
        });
    }
}

/// Minimum size of a column's states for prefetching; smaller ones stay in the CPU cache.
const PREFETCH_STATES_BYTES_MIN: usize = 1 << 18;

/// Prefetches states from memory some rows before they are needed.
struct StatePrefetcher {
    is_needed: bool,
}

impl StatePrefetcher {
    fn new<S>(states: &[S]) -> Self {
        StatePrefetcher { is_needed: size_of_val(states) > PREFETCH_STATES_BYTES_MIN }
    }

    #[inline]
    fn prefetch_group<S>(&self, states: &[S], group: Option<&usize>) {
        if self.is_needed
            && let Some(group) = group
        {
            prefetch_item(states, *group);
        }
    }
}

/// The states of one aggregate within a [`GroupChunk`](crate::GroupChunk).
pub(crate) enum ChunkStates {
    /// States that an Arrow array holds directly.
    Array(ArrayRef),
    /// Lists of values in no particular order.
    ValueLists(ArrayRef),
    /// Sketches of one kind.
    Sketches(Box<dyn ErasedSketchStates>),
    /// Exact float sums; `None` for groups without a value.
    FloatSums(Vec<Option<FloatSum>>),
    /// The first rows of each group, in order.
    FirstRows(OrderedGroupRows),
    /// The states of the elements of lists, structs and maps.
    Nested(Box<NestedChunkStates>),
    /// The sum and the count of a mean.
    SumAndCount(Box<ChunkStates>, Box<ChunkStates>),
}

impl ChunkStates {
    /// Returns the memory of the states, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            ChunkStates::Array(array) | ChunkStates::ValueLists(array) => {
                array.get_array_memory_size()
            }
            ChunkStates::Sketches(states) => states.memory_bytes(),
            ChunkStates::FloatSums(states) => {
                let heap = states.iter().flatten().map(FloatSum::heap_bytes);
                size_of_val(&**states) + heap.sum::<usize>()
            }
            ChunkStates::FirstRows(rows) => rows.memory_bytes(),
            ChunkStates::Nested(states) => states.memory_bytes(),
            ChunkStates::SumAndCount(first, second) => first.memory_bytes() + second.memory_bytes(),
        }
    }

    /// Encodes the states for disk.
    ///
    /// # Errors
    /// Returns Arrow's errors.
    pub(crate) fn encode(&self) -> Result<ArrayRef> {
        Ok(match self {
            ChunkStates::Array(array) => Arc::clone(array),
            ChunkStates::ValueLists(lists) => value_lists::sort_lists(lists),
            ChunkStates::Sketches(states) => states.encode(),
            ChunkStates::FloatSums(states) => {
                let mut builder = LargeBinaryBuilder::with_capacity(states.len(), 0);
                let mut bytes = Vec::new();
                for state in states {
                    builder.append_option(state.as_ref().map(|state| {
                        bytes.clear();
                        state.encode(&mut bytes);
                        bytes.as_slice()
                    }));
                }
                Arc::new(builder.finish())
            }
            ChunkStates::FirstRows(rows) => rows.encode()?,
            ChunkStates::Nested(states) => states.encode()?,
            ChunkStates::SumAndCount(first, second) => {
                let (first, second) = (first.encode()?, second.encode()?);
                let field = |name, array: &ArrayRef| {
                    Arc::new(Field::new(name, array.data_type().clone(), true))
                };
                Arc::new(StructArray::from(vec![
                    (field("sum", &first), first),
                    (field("count", &second), second),
                ]))
            }
        })
    }
}

/// A column of one aggregate's states, one per group.
pub(crate) trait StateColumn: Send {
    /// Adds rows.
    ///
    /// # Errors
    /// Returns an error if a value cannot be summed or hashed.
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()>;

    /// Merges states of another column of the same aggregate. Incoming sketches are left empty.
    ///
    /// # Errors
    /// Returns an error if the states are of another kind.
    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()>;

    /// Takes the states out and leaves an empty column.
    ///
    /// # Errors
    /// Returns the errors of DataFusion's accumulators.
    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates>;

    /// Decodes states from their form on disk.
    ///
    /// # Errors
    /// Returns an error if the bytes are not states of this aggregate.
    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates>;

    /// Decodes states of a partial table, which is the file of index `file` among the merged ones.
    ///
    /// # Errors
    /// Returns the errors of [`StateColumn::decode`].
    fn decode_partial_table_states(&self, array: &ArrayRef, _file: usize) -> Result<ChunkStates> {
        self.decode(array)
    }

    /// Returns the answer, one row per group, and leaves an empty column.
    ///
    /// # Errors
    /// Returns an error if an answer does not fit its type.
    fn finish(&mut self, group_count: usize) -> Result<ArrayRef>;

    /// Returns the answer of a single group without taking the state out, if the column can do that.
    ///
    /// # Errors
    /// Returns the errors of [`StateColumn::finish`].
    fn evaluate_in_place(&mut self) -> Result<Option<ArrayRef>> {
        Ok(None)
    }

    /// Returns the answers of the aggregates that share these states (see [`TableSpec`](super::TableSpec)),
    /// and leaves an empty column.
    ///
    /// # Errors
    /// Returns the errors of [`StateColumn::finish`].
    fn finish_shared_aggregates(
        &mut self,
        group_count: usize,
        of: &[&TableAggregate],
    ) -> Result<Vec<ArrayRef>> {
        match of {
            [_] => Ok(vec![self.finish(group_count)?]),
            _ => Err(Error::Internal("states are shared that cannot be".into())),
        }
    }

    /// Returns the precision of the answers; `None` if they are always exact.
    fn precision(&mut self, _of: &TableAggregate) -> Option<SketchPrecision> {
        None
    }

    /// Returns the memory of the states, in bytes, in constant time.
    fn memory_bytes(&self) -> usize;
}

/// Creates an empty column for an aggregate.
///
/// # Errors
/// Returns an error if the state cannot hold values of the argument's type, which the planner has ruled out
/// (see [`has_mergeable_state`]).
pub(crate) fn new_state_column(aggregate: &TableAggregate) -> Result<Box<dyn StateColumn>> {
    if time_aggregates::to_number_aggregate(aggregate).is_some() {
        return Ok(Box::new(TimeAsNumberStates::new(aggregate)?));
    }
    let output = aggregate.output_field.data_type().clone();
    Ok(match &aggregate.function {
        MergeableFunction::Count => Box::new(CountStates::new(output)),
        MergeableFunction::Sum | MergeableFunction::Mean
            if nested_sums::is_nested_type(&aggregate.argument_type) =>
        {
            nested_sums::new_nested_column(aggregate)?
        }
        MergeableFunction::Sum => new_sum_column(aggregate, output)?,
        MergeableFunction::Mean => {
            let sum = new_sum_column(aggregate, exact_sum_type(&aggregate.argument_type))?;
            Box::new(MeanStates::new(aggregate, sum))
        }
        MergeableFunction::Min | MergeableFunction::Max => new_extreme_column(aggregate)?,
        MergeableFunction::Bitwise(of) => new_bitwise_column(*of, &aggregate.argument_type)?,
        MergeableFunction::Median | MergeableFunction::Percentile { .. } => {
            match &aggregate.argument_type {
                DataType::Float32 => Box::new(ValueListStates::<Float32Type>::new(aggregate)),
                DataType::Float64 => Box::new(ValueListStates::<Float64Type>::new(aggregate)),
                DataType::Decimal128(_, _) => {
                    Box::new(ValueListStates::<Decimal128Type>::new(aggregate))
                }
                other => {
                    return Err(Error::Internal(format!("{} over {other}", aggregate.function)));
                }
            }
        }
        MergeableFunction::Statistic(statistic) => {
            match (has_integer_moments(aggregate), statistic.is_over_two_columns()) {
                (true, false) => new_moments_column::<i64, ONE_COLUMN_SUMS>(aggregate),
                (true, true) => new_moments_column::<i64, TWO_COLUMN_SUMS>(aggregate),
                _ if statistic.needs_higher_powers() => {
                    new_moments_column::<f64, FOUR_POWER_SUMS>(aggregate)
                }
                (false, false) => new_moments_column::<f64, ONE_COLUMN_SUMS>(aggregate),
                (false, true) => new_moments_column::<f64, TWO_COLUMN_SUMS>(aggregate),
            }
        }
        MergeableFunction::Unique(params) | MergeableFunction::HllSketch(params) => {
            let empty = Hll::new(*params).map_err(|e| Error::usage(e.to_string()))?;
            Box::new(SketchStates::new(HllKind::new(empty), aggregate))
        }
        MergeableFunction::HllUnion { log2m_max } => {
            Box::new(SketchStates::new(HllUnionKind { log2m_max: *log2m_max }, aggregate))
        }
        MergeableFunction::Quantile { .. } | MergeableFunction::Histogram { .. } => {
            Box::new(SketchStates::new(QuantilesKind, aggregate))
        }
        MergeableFunction::BootstrapSum { replicates, seed } => {
            Box::new(SketchStates::new(BootstrapKind::new(*replicates, *seed)?, aggregate))
        }
        MergeableFunction::TopK { k, capacity } => {
            let empty = TopK::new(*capacity).map_err(|e| Error::usage(e.to_string()))?;
            let argument = aggregate.argument_type.clone();
            match value_encoding::is_textual(&argument) {
                true => Box::new(SketchStates::new(
                    TopKKind::<ShortItem>::new(*k, empty, argument),
                    aggregate,
                )),
                false => Box::new(SketchStates::new(
                    TopKKind::<[u8; 8]>::new(*k, empty, argument),
                    aggregate,
                )),
            }
        }
        MergeableFunction::UniqueExact if !id_sets::is_word_type(&aggregate.argument_type) => {
            Box::new(SketchStates::new(DistinctItemsKind::new()?, aggregate))
        }
        MergeableFunction::UniqueExact | MergeableFunction::IdSet => {
            Box::new(SketchStates::new(IdSetKind, aggregate))
        }
        MergeableFunction::IdSetCombination { is_intersection: intersects } => Box::new(
            SketchStates::new(IdSetCombinationKind { is_intersection: *intersects }, aggregate),
        ),
        MergeableFunction::DistinctValues { values_max: most } => {
            let empty = DistinctValues::new(*most).map_err(|e| Error::usage(e.to_string()))?;
            let kind = DistinctValuesKind::new(empty, aggregate.argument_type.clone());
            Box::new(SketchStates::new(kind, aggregate))
        }
        MergeableFunction::DistinctSample { sample_size: items }
        | MergeableFunction::InverseHistogram { sample_size: items } => {
            match &aggregate.second_argument {
                Some((_, weight)) if !weight.is_integer() => {
                    let kind = DistinctSampleKind::<f64>::new(*items, aggregate)?;
                    Box::new(SketchStates::new(kind, aggregate))
                }
                _ => {
                    let kind = DistinctSampleKind::<i128>::new(*items, aggregate)?;
                    Box::new(SketchStates::new(kind, aggregate))
                }
            }
        }
        MergeableFunction::Collect { values_max: limit } => {
            Box::new(CollectStates::new(*limit, aggregate.argument_type.clone()))
        }
        MergeableFunction::FirstRows(of) => Box::new(FirstRowsStates::new(of, output)),
        MergeableFunction::CellQuantiles { split_count: splits } => {
            Box::new(SketchStates::new(CellQuantilesKind::new(*splits), aggregate))
        }
        MergeableFunction::CellSums {
            is_count: counts,
            split_count: splits,
            update_switch: switch,
        } => Box::new(SketchStates::new(CellSumsKind::new(*counts, *splits, switch), aggregate)),
    })
}

fn new_moments_column<N: MomentNumber, const SUMS: usize>(
    aggregate: &TableAggregate,
) -> Box<dyn StateColumn> {
    Box::new(SketchStates::new(MomentsKind::<N, SUMS>::new(aggregate), aggregate))
}

/// Returns true if the aggregate's state can hold values of its argument's type.
pub fn has_mergeable_state(aggregate: &TableAggregate) -> bool {
    if time_aggregates::to_number_aggregate(aggregate).is_some() {
        return true;
    }
    let argument = &aggregate.argument_type;
    match &aggregate.function {
        MergeableFunction::Count
        | MergeableFunction::Collect { .. }
        | MergeableFunction::FirstRows(_) => true,
        MergeableFunction::Sum | MergeableFunction::Mean
            if nested_sums::is_nested_type(argument) =>
        {
            nested_sums::element_aggregates(aggregate)
                .is_some_and(|elements| elements.iter().all(has_mergeable_state))
        }
        MergeableFunction::Sum => {
            is_summable(argument)
                && matches!(
                    aggregate.output_field.data_type(),
                    DataType::Int64
                        | DataType::UInt64
                        | DataType::Float64
                        | DataType::Decimal128(_, _)
                )
        }
        MergeableFunction::Mean => {
            is_summable(argument)
                && matches!(
                    aggregate.output_field.data_type(),
                    DataType::Float64 | DataType::Decimal128(_, _)
                )
        }
        MergeableFunction::Min | MergeableFunction::Max => new_extreme_column(aggregate).is_ok(),
        MergeableFunction::Bitwise(of) => new_bitwise_column(*of, argument).is_ok(),
        MergeableFunction::Median => {
            matches!(argument, DataType::Float32 | DataType::Float64 | DataType::Decimal128(_, _))
        }
        MergeableFunction::Percentile { .. } => {
            matches!(argument, DataType::Float32 | DataType::Float64)
        }
        MergeableFunction::Statistic(statistic) => {
            let second = aggregate.second_argument.as_ref().map(|(_, of)| of);
            second.is_some() == statistic.is_over_two_columns()
                && [argument].into_iter().chain(second).all(has_moments)
        }
        MergeableFunction::Unique(_) | MergeableFunction::HllSketch(_) => {
            value_encoding::is_hashable(argument)
        }
        MergeableFunction::HllUnion { .. } | MergeableFunction::IdSetCombination { .. } => {
            is_sketch_type(argument)
        }
        MergeableFunction::IdSet => argument.is_integer() || argument.is_null(),
        MergeableFunction::CellSums { is_count: counts, .. } => *counts || is_summable(argument),
        MergeableFunction::CellQuantiles { .. } => argument.is_numeric(),
        MergeableFunction::TopK { .. }
        | MergeableFunction::UniqueExact
        | MergeableFunction::DistinctValues { .. }
        | MergeableFunction::DistinctSample { .. }
        | MergeableFunction::InverseHistogram { .. } => {
            value_encoding::has_sortable_items(argument)
        }
        MergeableFunction::Quantile { .. } | MergeableFunction::Histogram { .. } => {
            argument.is_numeric()
        }
        MergeableFunction::BootstrapSum { .. } => {
            let unit = aggregate.second_argument.as_ref();
            argument.is_numeric() && unit.is_some_and(|(_, of)| value_encoding::is_hashable(of))
        }
    }
}

fn is_summable(argument: &DataType) -> bool {
    argument.is_integer()
        || matches!(
            argument,
            DataType::Float16
                | DataType::Float32
                | DataType::Float64
                | DataType::Decimal128(_, _)
                | DataType::Null
        )
}

fn has_moments(argument: &DataType) -> bool {
    argument.is_integer() || argument.is_floating() || argument.is_null()
}

fn exact_sum_type(argument: &DataType) -> DataType {
    match argument {
        DataType::Decimal128(_, scale) => DataType::Decimal128(38, *scale),
        t if t.is_integer() => DataType::Int64,
        _ => DataType::Float64,
    }
}

fn new_sum_column(aggregate: &TableAggregate, output: DataType) -> Result<Box<dyn StateColumn>> {
    let name = aggregate.output_field.name().clone();
    Ok(match &aggregate.argument_type {
        t if t.is_integer() => Box::new(IntegerSumStates::new(name, output)),
        DataType::Decimal128(_, _) => Box::new(DecimalSumStates::new(name, output)),
        t if is_summable(t) => Box::new(FloatSumStates::default()),
        t => return Err(Error::Internal(format!("a sum over {t}"))),
    })
}

fn state_type_error(expected: &str) -> Error {
    Error::Internal(format!("states that are not {expected} reached its column"))
}

fn corrupt_state_error(what: &str, reason: impl std::fmt::Display) -> Error {
    Error::Corrupt {
        path: "partial table".into(),
        offset: None,
        reason: format!("a state of `{what}` is refused: {reason}"),
        hint: None,
    }
}
