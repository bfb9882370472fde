//! Aggregation states: per aggregate a column of them, one state per group.
//!
//! A column takes rows (`update`), takes the states of another column (`merge`), gives up its
//! states for travel (`take`) and turns into an answer (`finish`). States travel as
//! [`States`]: in memory as they are, to disk as an Arrow array whose layout is documented in
//! `docs/formats/partial.md`. All but `top_k` and `collect` answer the same in any order and
//! grouping of rows and merges: integer sums are kept in 128 bits, those of decimals and of products in 192, float
//! sums in a fixed-point accumulator wide enough to be exact.

mod bits;
mod bootstrap;
mod cells;
mod collect;
mod count;
mod distinct_sample;
mod distinct_values;
mod exact;
mod extremes;
mod first_rows;
mod frequent;
mod mean;
mod moments;
mod nested;
mod quantiles;
mod seen;
mod sketches;
mod stored;
mod sums;
mod times;
mod unique;
mod values;
mod waiting;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, LargeBinaryBuilder, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type, Field, Float32Type, Float64Type};
use tidemill_base::error::{Error, Result};
use tidemill_functions::sketches::is_sketch_type;
use tidemill_sketch::{
    DistinctValues, FOUR_POWER_SUMS, FloatSum, Hll, ONE_COLUMN_SUMS, TWO_COLUMN_SUMS, TopK,
};

use crate::prefetch::{AHEAD, prefetch};
use crate::spec::{Aggregate, Function, Precision};
use crate::value::{self, Short};
use bits::bits;
use bootstrap::BootstrapOf;
pub use cells::{CellQuantiles, CellSums};
use cells::{CellQuantilesOf, CellsOf};
use collect::Collect;
use count::Count;
use distinct_sample::DistinctSampleOf;
use distinct_values::DistinctValuesOf;
use exact::{IdsOf, ItemsOf, SetsOf};
use extremes::extreme;
use first_rows::{FirstRowsOfGroups, OrderedRows};
use frequent::TopKOf;
use mean::Mean;
use moments::MomentsOf;
use nested::NestedStates;
use quantiles::QuantilesOf;
use seen::Seen;
use sketches::{Sketches, Travelling};
use stored::UnionOf;
use sums::{DecimalSum, FloatSums, IntegerSum};
use times::Times;
use unique::UniqueOf;
use values::Values;

pub(crate) use first_rows::leads;
pub(crate) use mean::{decimal_mean, rounded_mean};
pub(crate) use moments::{Pairs, Summed, is_whole};
pub(crate) use nested::is_nested;
pub(crate) use sums::{overflow, sum_state, whole_sums};

/// Rows for [`StateColumn::update`].
pub(crate) struct Rows<'a> {
    /// The argument's values; none for `count(*)`.
    pub values: Option<&'a ArrayRef>,
    /// Those of its second argument, where it takes two.
    pub second: Option<&'a ArrayRef>,
    /// Which rows count; all where absent. Null is no.
    pub filter: Option<&'a BooleanArray>,
    /// Where each row stands in the input; none where no state of the table asks.
    pub positions: Option<&'a ArrayRef>,
    /// Each row's group.
    pub groups: &'a [usize],
    /// How many groups there are now.
    pub group_count: usize,
}

impl Rows<'_> {
    /// The rows that count and are not null in `nulls`; `None` means all of them.
    fn selected(&self, nulls: Option<&NullBuffer>) -> Option<NullBuffer> {
        let filter = self.filter.map(|filter| {
            let wanted = filter.values();
            NullBuffer::new(match filter.nulls() {
                Some(nulls) => wanted & nulls.inner(),
                None => wanted.clone(),
            })
        });
        NullBuffer::union(nulls, filter.as_ref())
    }

    fn for_each(&self, nulls: Option<&NullBuffer>, mut each: impl FnMut(usize, usize)) {
        match self.selected(nulls) {
            None => self.groups.iter().enumerate().for_each(|(row, group)| each(row, *group)),
            Some(selected) => {
                selected.valid_indices().for_each(|row| each(row, self.groups[row]));
            }
        }
    }

    /// Calls `each(state, row, group)` for the rows that count.
    fn each<S>(
        &self,
        nulls: Option<&NullBuffer>,
        states: &mut [S],
        mut each: impl FnMut(&mut S, usize, usize),
    ) {
        match self.selected(nulls) {
            None => {
                let prefetched = Prefetched::new(states);
                for (row, group) in self.groups.iter().enumerate() {
                    prefetched.ask(states, self.groups.get(row + AHEAD));
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

    /// As [`Rows::each`], and notes which groups have a value.
    fn each_state<S>(
        &self,
        nulls: Option<&NullBuffer>,
        states: &mut [S],
        seen: &mut Seen,
        mut each: impl FnMut(&mut S, usize, usize),
    ) {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        if nulls.is_none() && self.filter.is_none() {
            seen.note(self.groups, self.group_count);
            return self.each(None, states, each);
        }
        let seen = seen.each(self.group_count);
        self.each(nulls, states, |state, row, group| {
            seen[group] = true;
            each(state, row, group);
        });
    }

    fn values(&self) -> Result<&ArrayRef> {
        self.values.ok_or_else(|| Error::Internal("an aggregate lost its argument".into()))
    }
}

/// Which states of the incoming column go to which groups: `rows[i]` to `groups[i]`.
pub(crate) struct Routes<'a> {
    /// Positions in the incoming states.
    pub rows: &'a [u32],
    /// Groups here, each at most once.
    pub groups: &'a [usize],
    /// How many groups there are now.
    pub group_count: usize,
}

impl Routes<'_> {
    fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.rows.iter().map(|row| *row as usize).zip(self.groups.iter().copied())
    }

    /// Calls `each(state, row, group)` for every incoming state.
    fn each<S>(&self, states: &mut [S], mut each: impl FnMut(&mut S, usize, usize)) {
        let prefetched = Prefetched::new(states);
        for (at, (row, group)) in self.iter().enumerate() {
            prefetched.ask(states, self.groups.get(at + AHEAD));
            each(&mut states[group], row, group);
        }
    }

    /// As [`Routes::each`], of those that are not null, and notes which groups have a value.
    fn each_state<S>(
        &self,
        nulls: Option<&NullBuffer>,
        states: &mut [S],
        seen: &mut Seen,
        mut each: impl FnMut(&mut S, usize, usize),
    ) {
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else {
            seen.note(self.groups, self.group_count);
            return self.each(states, each);
        };
        let seen = seen.each(self.group_count);
        self.each(states, |state, row, group| {
            if nulls.is_valid(row) {
                seen[group] = true;
                each(state, row, group);
            }
        });
    }
}

/// States that take more are prefetched: what is less stays in the cache.
const PREFETCHED_BYTES_MIN: usize = 1 << 18;

/// Whether states are asked of memory before their row comes.
struct Prefetched {
    is_needed: bool,
}

impl Prefetched {
    fn new<S>(states: &[S]) -> Self {
        Prefetched { is_needed: size_of_val(states) > PREFETCHED_BYTES_MIN }
    }

    #[inline]
    fn ask<S>(&self, states: &[S], group: Option<&usize>) {
        if self.is_needed
            && let Some(group) = group
        {
            prefetch(states, *group);
        }
    }
}

/// The states of one aggregate on their way between tables.
pub(crate) enum States {
    /// States that an Arrow array holds directly.
    Array(ArrayRef),
    /// Lists of values in any order.
    Values(ArrayRef),
    /// Sketches of one kind.
    Sketches(Box<dyn Travelling>),
    /// Exact float sums, absent where no value was seen.
    FloatSum(Vec<Option<FloatSum>>),
    /// Rows of groups in order.
    FirstRows(OrderedRows),
    /// Those of the elements of lists, structs and maps.
    Nested(Box<NestedStates>),
    /// A mean's sum and count.
    Pair(Box<States>, Box<States>),
}

impl States {
    /// The memory they take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            States::Array(array) | States::Values(array) => array.get_array_memory_size(),
            States::Sketches(states) => states.bytes(),
            States::FloatSum(states) => {
                let heap = states.iter().flatten().map(FloatSum::heap_bytes);
                size_of_val(&**states) + heap.sum::<usize>()
            }
            States::FirstRows(rows) => rows.bytes(),
            States::Nested(states) => states.bytes(),
            States::Pair(first, second) => first.bytes() + second.bytes(),
        }
    }

    /// Their form on disk.
    ///
    /// # Errors
    /// As Arrow's.
    pub(crate) fn encode(&self) -> Result<ArrayRef> {
        Ok(match self {
            States::Array(array) => Arc::clone(array),
            States::Values(lists) => values::in_order(lists),
            States::Sketches(states) => states.encode(),
            States::FloatSum(states) => {
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
            States::FirstRows(rows) => rows.encode()?,
            States::Nested(states) => states.encode()?,
            States::Pair(first, second) => {
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

/// One aggregate's states, a state per group.
pub(crate) trait StateColumn: Send {
    /// Takes rows in.
    ///
    /// # Errors
    /// Where a value cannot be summed or hashed.
    fn update(&mut self, rows: &Rows<'_>) -> Result<()>;

    /// Takes states of another column of the same aggregate in. Those of sketches are left empty.
    ///
    /// # Errors
    /// Where the states are of another kind.
    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()>;

    /// Gives the states up, leaving an empty column.
    ///
    /// # Errors
    /// As DataFusion's accumulators.
    fn take(&mut self, group_count: usize) -> Result<States>;

    /// Reads states from their form on disk.
    ///
    /// # Errors
    /// Where the bytes are not states of this aggregate.
    fn decode(&self, array: &ArrayRef) -> Result<States>;

    /// Reads states of a partial file, which stands in the place `file` among those that are merged.
    ///
    /// # Errors
    /// As [`StateColumn::decode`].
    fn decode_of_file(&self, array: &ArrayRef, _file: usize) -> Result<States> {
        self.decode(array)
    }

    /// The answer, one row per group; leaves an empty column.
    ///
    /// # Errors
    /// Where an answer does not fit its type.
    fn finish(&mut self, group_count: usize) -> Result<ArrayRef>;

    /// The answer of one group, where it can be had without giving the state up.
    ///
    /// # Errors
    /// As [`StateColumn::finish`].
    fn answer_in_place(&mut self) -> Result<Option<ArrayRef>> {
        Ok(None)
    }

    /// The answers of the aggregates that share these states (see
    /// [`TableSpec`](super::TableSpec)); leaves an empty column.
    ///
    /// # Errors
    /// As [`StateColumn::finish`].
    fn finish_shared(&mut self, group_count: usize, of: &[&Aggregate]) -> Result<Vec<ArrayRef>> {
        match of {
            [_] => Ok(vec![self.finish(group_count)?]),
            _ => Err(Error::Internal("states are shared that cannot be".into())),
        }
    }

    /// How good the answers are; none where they are exact by nature.
    fn precision(&mut self, _of: &Aggregate) -> Option<Precision> {
        None
    }

    /// The memory the states take, in bytes; constant time.
    fn bytes(&self) -> usize;
}

/// An empty column for an aggregate.
///
/// # Errors
/// Where the aggregate's argument has a type that its state cannot hold, which planning has
/// ruled out (see [`supports`]).
pub(crate) fn column(aggregate: &Aggregate) -> Result<Box<dyn StateColumn>> {
    if times::over_numbers(aggregate).is_some() {
        return Ok(Box::new(Times::new(aggregate)?));
    }
    let output = aggregate.output.data_type().clone();
    Ok(match &aggregate.function {
        Function::Count => Box::new(Count::new(output)),
        Function::Sum | Function::Mean if nested::is_nested(&aggregate.argument_type) => {
            nested::nested(aggregate)?
        }
        Function::Sum => sum(aggregate, output)?,
        Function::Mean => {
            let sum = sum(aggregate, sum_type(&aggregate.argument_type))?;
            Box::new(Mean::new(aggregate, sum))
        }
        Function::Min | Function::Max => extreme(aggregate)?,
        Function::Bits(of) => bits(*of, &aggregate.argument_type)?,
        Function::Median | Function::Percentile { .. } => match &aggregate.argument_type {
            DataType::Float32 => Box::new(Values::<Float32Type>::new(aggregate)),
            DataType::Float64 => Box::new(Values::<Float64Type>::new(aggregate)),
            DataType::Decimal128(_, _) => Box::new(Values::<Decimal128Type>::new(aggregate)),
            other => {
                return Err(Error::Internal(format!("{} over {other}", aggregate.function)));
            }
        },
        Function::Statistic(statistic) => match (is_whole(aggregate), statistic.is_of_pairs()) {
            (true, false) => moments::<i64, ONE_COLUMN_SUMS>(aggregate),
            (true, true) => moments::<i64, TWO_COLUMN_SUMS>(aggregate),
            _ if statistic.is_of_powers() => moments::<f64, FOUR_POWER_SUMS>(aggregate),
            (false, false) => moments::<f64, ONE_COLUMN_SUMS>(aggregate),
            (false, true) => moments::<f64, TWO_COLUMN_SUMS>(aggregate),
        },
        Function::Unique(params) | Function::HllSketch(params) => {
            let empty = Hll::new(*params).map_err(|e| Error::usage(e.to_string()))?;
            Box::new(Sketches::new(UniqueOf::new(empty), aggregate))
        }
        Function::HllUnion { log2m_max } => {
            Box::new(Sketches::new(UnionOf { log2m_max: *log2m_max }, aggregate))
        }
        Function::Quantile { .. } | Function::Histogram { .. } => {
            Box::new(Sketches::new(QuantilesOf, aggregate))
        }
        Function::BootstrapSum { replicates, seed } => {
            Box::new(Sketches::new(BootstrapOf::new(*replicates, *seed)?, aggregate))
        }
        Function::TopK { k, capacity } => {
            let empty = TopK::new(*capacity).map_err(|e| Error::usage(e.to_string()))?;
            let argument = aggregate.argument_type.clone();
            match value::is_textual(&argument) {
                true => {
                    Box::new(Sketches::new(TopKOf::<Short>::new(*k, empty, argument), aggregate))
                }
                false => {
                    Box::new(Sketches::new(TopKOf::<[u8; 8]>::new(*k, empty, argument), aggregate))
                }
            }
        }
        Function::UniqueExact if !exact::are_words(&aggregate.argument_type) => {
            Box::new(Sketches::new(ItemsOf::new()?, aggregate))
        }
        Function::UniqueExact | Function::IdSet => Box::new(Sketches::new(IdsOf, aggregate)),
        Function::IdSets { intersects } => {
            Box::new(Sketches::new(SetsOf { intersects: *intersects }, aggregate))
        }
        Function::DistinctValues { most } => {
            let empty = DistinctValues::new(*most).map_err(|e| Error::usage(e.to_string()))?;
            let kind = DistinctValuesOf::new(empty, aggregate.argument_type.clone());
            Box::new(Sketches::new(kind, aggregate))
        }
        Function::DistinctSample { items } | Function::InverseHistogram { items } => {
            match &aggregate.second {
                Some((_, weight)) if !weight.is_integer() => {
                    let kind = DistinctSampleOf::<f64>::new(*items, aggregate)?;
                    Box::new(Sketches::new(kind, aggregate))
                }
                _ => {
                    let kind = DistinctSampleOf::<i128>::new(*items, aggregate)?;
                    Box::new(Sketches::new(kind, aggregate))
                }
            }
        }
        Function::Collect { limit } => {
            Box::new(Collect::new(*limit, aggregate.argument_type.clone()))
        }
        Function::FirstRows(of) => Box::new(FirstRowsOfGroups::new(of, output)),
        Function::CellQuantiles { splits } => {
            Box::new(Sketches::new(CellQuantilesOf::new(*splits), aggregate))
        }
        Function::CellSums { counts, splits, switch } => {
            Box::new(Sketches::new(CellsOf::new(*counts, *splits, switch), aggregate))
        }
    })
}

fn moments<N: Summed, const SUMS: usize>(aggregate: &Aggregate) -> Box<dyn StateColumn> {
    Box::new(Sketches::new(MomentsOf::<N, SUMS>::new(aggregate), aggregate))
}

/// Whether the aggregate's state can hold values of its argument's type.
pub fn supports(aggregate: &Aggregate) -> bool {
    if times::over_numbers(aggregate).is_some() {
        return true;
    }
    let argument = &aggregate.argument_type;
    match &aggregate.function {
        Function::Count | Function::Collect { .. } | Function::FirstRows(_) => true,
        Function::Sum | Function::Mean if nested::is_nested(argument) => {
            nested::elements(aggregate).is_some_and(|elements| elements.iter().all(supports))
        }
        Function::Sum => {
            is_summable(argument)
                && matches!(
                    aggregate.output.data_type(),
                    DataType::Int64
                        | DataType::UInt64
                        | DataType::Float64
                        | DataType::Decimal128(_, _)
                )
        }
        Function::Mean => {
            is_summable(argument)
                && matches!(
                    aggregate.output.data_type(),
                    DataType::Float64 | DataType::Decimal128(_, _)
                )
        }
        Function::Min | Function::Max => extreme(aggregate).is_ok(),
        Function::Bits(of) => bits(*of, argument).is_ok(),
        Function::Median => {
            matches!(argument, DataType::Float32 | DataType::Float64 | DataType::Decimal128(_, _))
        }
        Function::Percentile { .. } => {
            matches!(argument, DataType::Float32 | DataType::Float64)
        }
        Function::Statistic(statistic) => {
            let second = aggregate.second.as_ref().map(|(_, of)| of);
            second.is_some() == statistic.is_of_pairs()
                && [argument].into_iter().chain(second).all(has_moments)
        }
        Function::Unique(_) | Function::HllSketch(_) => value::is_hashable(argument),
        Function::HllUnion { .. } | Function::IdSets { .. } => is_sketch_type(argument),
        Function::IdSet => argument.is_integer() || argument.is_null(),
        Function::CellSums { counts, .. } => *counts || is_summable(argument),
        Function::CellQuantiles { .. } => argument.is_numeric(),
        Function::TopK { .. }
        | Function::UniqueExact
        | Function::DistinctValues { .. }
        | Function::DistinctSample { .. }
        | Function::InverseHistogram { .. } => value::is_rankable(argument),
        Function::Quantile { .. } | Function::Histogram { .. } => argument.is_numeric(),
        Function::BootstrapSum { .. } => {
            let unit = aggregate.second.as_ref();
            argument.is_numeric() && unit.is_some_and(|(_, of)| value::is_hashable(of))
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

fn sum_type(argument: &DataType) -> DataType {
    match argument {
        DataType::Decimal128(_, scale) => DataType::Decimal128(38, *scale),
        t if t.is_integer() => DataType::Int64,
        _ => DataType::Float64,
    }
}

fn sum(aggregate: &Aggregate, output: DataType) -> Result<Box<dyn StateColumn>> {
    let name = aggregate.output.name().clone();
    Ok(match &aggregate.argument_type {
        t if t.is_integer() => Box::new(IntegerSum::new(name, output)),
        DataType::Decimal128(_, _) => Box::new(DecimalSum::new(name, output)),
        t if is_summable(t) => Box::new(FloatSums::default()),
        t => return Err(Error::Internal(format!("a sum over {t}"))),
    })
}

fn mismatch(expected: &str) -> Error {
    Error::Internal(format!("states that are not {expected} reached its column"))
}

fn refused(what: &str, reason: impl std::fmt::Display) -> Error {
    Error::Corrupt {
        path: "partial table".into(),
        offset: None,
        reason: format!("a state of `{what}` is refused: {reason}"),
        hint: None,
    }
}
