//! Aggregation states: per aggregate a column of them, one state per group.
//!
//! A column takes rows (`update`), takes the states of another column (`merge`), gives up its
//! states for travel (`take`) and turns into an answer (`finish`). States travel as
//! [`States`]: in memory as they are, to disk as an Arrow array whose layout is documented in
//! `docs/formats/partial.md`. All but `top_k` and `collect` answer the same in any order and
//! grouping of rows and merges: integer sums are kept in 128 bits, those of decimals in 192, float
//! sums in a fixed-point accumulator wide enough to be exact.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array,
    Decimal256Array, Float64Array, Float64Builder, Int64Array, LargeBinaryArray,
    LargeBinaryBuilder, LargeListArray, ListArray, PrimitiveArray, StructArray, UInt32Array,
    UInt64Array, downcast_primitive, new_empty_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow::compute::{interleave, take};
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Field, FieldRef, Float64Type, Int64Type, Schema, i256,
};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use tidemill_base::error::{Error, Result};
use tidemill_base::types::sql_type;
use tidemill_sketch::{FloatSum, Hll, Quantiles, TopK};
use tidemill_sql::names::call_of;
use tidemill_sql::{Told, floats};

use super::spec::{Aggregate, Function, Precision};
use super::value;

/// Rows for [`StateColumn::update`].
pub struct Rows<'a> {
    /// The argument's values; none for `count(*)`.
    pub values: Option<&'a ArrayRef>,
    /// Which rows count; all where absent. Null is no.
    pub filter: Option<&'a BooleanArray>,
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

    fn values(&self) -> Result<&ArrayRef> {
        self.values.ok_or_else(|| Error::Internal("an aggregate lost its argument".into()))
    }
}

/// Which states of the incoming column go to which groups: `rows[i]` to `groups[i]`.
pub struct Routes<'a> {
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
}

/// The states of one aggregate on their way between tables.
pub enum States {
    /// States that an Arrow array holds directly.
    Array(ArrayRef),
    /// HyperLogLogs.
    Unique(Vec<Hll>),
    /// Quantile histograms.
    Quantiles(Vec<Quantiles>),
    /// Frequent items.
    TopK(Vec<TopK>),
    /// Exact float sums, absent where no value was seen.
    FloatSum(Vec<Option<FloatSum>>),
    /// A mean's sum and count.
    Pair(Box<States>, Box<States>),
}

impl States {
    /// The memory they take, in bytes.
    pub fn bytes(&self) -> usize {
        fn sketches<S>(states: &[S], heap: impl Fn(&S) -> usize) -> usize {
            size_of_val(states) + states.iter().map(heap).sum::<usize>()
        }
        match self {
            States::Array(array) => array.get_array_memory_size(),
            States::Unique(states) => sketches(states, Hll::heap_bytes),
            States::Quantiles(states) => sketches(states, Quantiles::heap_bytes),
            States::TopK(states) => sketches(states, TopK::heap_bytes),
            States::FloatSum(states) => {
                sketches(states, |sum| sum.as_ref().map_or(0, FloatSum::heap_bytes))
            }
            States::Pair(first, second) => first.bytes() + second.bytes(),
        }
    }

    /// Their form on disk.
    pub fn encode(&self) -> ArrayRef {
        fn binary<'a, S: 'a>(
            states: impl ExactSizeIterator<Item = Option<&'a S>>,
            encode: impl Fn(&S, &mut Vec<u8>),
        ) -> ArrayRef {
            let mut builder = LargeBinaryBuilder::with_capacity(states.len(), 0);
            let mut bytes = Vec::new();
            for state in states {
                builder.append_option(state.map(|state| {
                    bytes.clear();
                    encode(state, &mut bytes);
                    bytes.as_slice()
                }));
            }
            Arc::new(builder.finish())
        }
        match self {
            States::Array(array) => Arc::clone(array),
            States::Unique(states) => binary(states.iter().map(Some), Hll::encode),
            States::Quantiles(states) => binary(states.iter().map(Some), Quantiles::encode),
            States::TopK(states) => binary(states.iter().map(Some), TopK::encode),
            States::FloatSum(states) => binary(states.iter().map(Option::as_ref), FloatSum::encode),
            States::Pair(first, second) => {
                let (first, second) = (first.encode(), second.encode());
                let field = |name, array: &ArrayRef| {
                    Arc::new(Field::new(name, array.data_type().clone(), true))
                };
                Arc::new(StructArray::from(vec![
                    (field("sum", &first), first),
                    (field("count", &second), second),
                ]))
            }
        }
    }
}

/// One aggregate's states, a state per group.
pub trait StateColumn: Send {
    /// Takes rows in.
    ///
    /// # Errors
    /// Where a value cannot be summed or hashed.
    fn update(&mut self, rows: &Rows<'_>) -> Result<()>;

    /// Takes states of another column of the same aggregate in.
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

    /// The answer, one row per group; leaves an empty column.
    ///
    /// # Errors
    /// Where an answer does not fit its type.
    fn finish(&mut self, group_count: usize) -> Result<ArrayRef>;

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
    fn precision(&self, _of: &Aggregate) -> Option<Precision> {
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
pub fn column(aggregate: &Aggregate) -> Result<Box<dyn StateColumn>> {
    let output = aggregate.output.data_type().clone();
    Ok(match &aggregate.function {
        Function::Count => Box::new(Count { counts: Vec::new(), output }),
        Function::Sum => sum(aggregate, output)?,
        Function::Mean => Box::new(Mean {
            name: aggregate.output.name().clone(),
            sum: sum(aggregate, sum_type(&aggregate.argument_type))?,
            count: Count { counts: Vec::new(), output: DataType::Int64 },
            argument: aggregate.argument_type.clone(),
            output,
        }),
        Function::Min | Function::Max => extreme(aggregate)?,
        Function::Unique(params) => {
            let empty = Hll::new(*params).map_err(|e| Error::usage(e.to_string()))?;
            Box::new(Sketches::new(UniqueOf { empty }, aggregate))
        }
        Function::Quantile { .. } => Box::new(Sketches::new(QuantilesOf, aggregate)),
        Function::TopK { k, capacity } => {
            let empty = TopK::new(*capacity).map_err(|e| Error::usage(e.to_string()))?;
            let kind = TopKOf { k: *k, empty, argument: aggregate.argument_type.clone() };
            Box::new(Sketches::new(kind, aggregate))
        }
        Function::Collect { limit } => Box::new(Collect {
            limit: *limit,
            argument: aggregate.argument_type.clone(),
            parts: Vec::new(),
            places: Vec::new(),
            bytes: 0,
        }),
    })
}

/// Whether the aggregate's state can hold values of its argument's type.
pub fn supports(aggregate: &Aggregate) -> bool {
    let argument = &aggregate.argument_type;
    match &aggregate.function {
        Function::Count | Function::Collect { .. } => true,
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
        Function::Unique(_) => value::is_hashable(argument),
        Function::TopK { .. } => value::is_rankable(argument),
        Function::Quantile { .. } => argument.is_numeric(),
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
        t if t.is_integer() || matches!(t, DataType::Decimal128(_, _)) => {
            Box::new(IntegerSum::new(name, t, output))
        }
        t if is_summable(t) => Box::new(FloatSums { sums: Vec::new(), heap: 0 }),
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

// ── count ────────────────────────────────────────────────────────────────────────────────

struct Count {
    counts: Vec<i64>,
    output: DataType,
}

impl StateColumn for Count {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.counts.resize(rows.group_count, 0);
        let nulls = rows.values.and_then(|values| values.logical_nulls());
        rows.for_each(nulls.as_ref(), |_, group| self.counts[group] += 1);
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.counts.resize(routes.group_count, 0);
        let States::Array(array) = states else { return Err(mismatch("count")) };
        let counts = array.as_primitive::<Int64Type>().values();
        for (row, group) in routes.iter() {
            let sum = self.counts[group].checked_add(counts[row]);
            self.counts[group] = sum.ok_or_else(|| refused("count", "it exceeds 64 bits"))?;
        }
        Ok(())
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

// ── sum ──────────────────────────────────────────────────────────────────────────────────

/// The type integer sums travel in: 128 bits, of which no precision is asked.
const WIDE: DataType = DataType::Decimal128(38, 0);

/// The type that sums of decimals travel in: 256 bits. Two values of 38 digits need more than 128.
const WIDER: DataType = DataType::Decimal256(76, 0);

/// Sums of integers in 128 bits, or of a decimal's unscaled integers in 192.
struct IntegerSum {
    name: String,
    sums: Vec<i128>,
    /// How often each sum went past 128 bits, upwards less downwards; as long as one did.
    carries: Vec<i64>,
    seen: Vec<bool>,
    /// Whether the values are decimals.
    is_wider: bool,
    output: DataType,
}

impl IntegerSum {
    fn new(name: String, argument: &DataType, output: DataType) -> Self {
        let is_wider = matches!(argument, DataType::Decimal128(_, _));
        let (sums, carries, seen) = (Vec::new(), Vec::new(), Vec::new());
        IntegerSum { name, sums, carries, seen, is_wider, output }
    }

    fn resize(&mut self, group_count: usize) {
        self.sums.resize(group_count, 0);
        self.seen.resize(group_count, false);
    }

    fn add(&mut self, group: usize, value: i128) {
        let (sum, overflowed) = self.sums[group].overflowing_add(value);
        self.sums[group] = sum;
        self.seen[group] = true;
        if overflowed {
            self.carry(group, if value < 0 { -1 } else { 1 });
        }
    }

    #[cold]
    fn carry(&mut self, group: usize, count: i64) {
        if self.carries.len() <= group {
            self.carries.resize(self.sums.len(), 0);
        }
        // There are not so many rows as would wrap it.
        self.carries[group] = self.carries[group].wrapping_add(count);
    }

    /// A sum in 256 bits.
    fn whole(&self, group: usize) -> i256 {
        let sum = self.sums[group];
        let carry = self.carries.get(group).copied().unwrap_or(0);
        i256::from_parts(sum.cast_unsigned(), i128::from(carry) - i128::from(sum < 0))
    }

    fn overflow(&self) -> Error {
        overflow(&self.name, &self.output)
    }
}

/// Sums in the one form or the other, each in 256 bits.
pub(crate) fn whole_sums(array: &ArrayRef) -> Vec<Option<i256>> {
    match array.as_primitive_opt::<Decimal256Type>() {
        Some(sums) => sums.iter().collect(),
        None => {
            let sums = array.as_primitive::<Decimal128Type>().iter();
            sums.map(|sum| sum.map(i256::from_i128)).collect()
        }
    }
}

/// The state of one sum: that of a decimal's unscaled integers in the wider form.
pub(crate) fn sum_state(sum: i256, is_wider: bool) -> ArrayRef {
    match (is_wider, sum.to_i128()) {
        (false, Some(sum)) => Arc::new(Decimal128Array::from(vec![sum]).with_data_type(WIDE)),
        _ => Arc::new(Decimal256Array::from(vec![sum]).with_data_type(WIDER)),
    }
}

/// A sum or mean that its answer's type cannot hold.
pub(crate) fn overflow(name: &str, output: &DataType) -> Error {
    Error::Overflow {
        message: format!("`{}` does not fit {}", call_of(name), sql_type(output)),
        hint: Some("cast the argument to DOUBLE, or to a wider type".into()),
    }
}

impl StateColumn for IntegerSum {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        let values = rows.values()?;
        macro_rules! add {
            ($array:expr) => {{
                let array = $array;
                let values = array.values();
                rows.for_each(array.nulls(), |row, group| self.add(group, values[row].into()));
            }};
        }
        match values.data_type() {
            DataType::UInt64 => add!(values.as_primitive::<arrow::datatypes::UInt64Type>()),
            DataType::Int64 => add!(values.as_primitive::<Int64Type>()),
            DataType::Decimal128(_, _) => add!(values.as_primitive::<Decimal128Type>()),
            _ => {
                let wide = value::cast_to(values, &DataType::Int64)?;
                add!(wide.as_primitive::<Int64Type>());
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let States::Array(array) = states else { return Err(mismatch("sum")) };
        if let Some(sums) = array.as_primitive_opt::<Decimal256Type>() {
            for (row, group) in routes.iter() {
                if sums.is_valid(row) {
                    let (low, high) = sums.value(row).to_parts();
                    let sum = low.cast_signed();
                    self.add(group, sum);
                    let carry = i64::try_from(high + i128::from(sum < 0));
                    match carry.map_err(|_| refused("sum", "it exceeds 192 bits"))? {
                        0 => {}
                        carry => self.carry(group, carry),
                    }
                }
            }
            return Ok(());
        }
        let sums = array.as_primitive::<Decimal128Type>();
        for (row, group) in routes.iter() {
            if sums.is_valid(row) {
                self.add(group, sums.value(row));
            }
        }
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.resize(group_count);
        let wider = self.is_wider.then(|| (0..group_count).map(|group| self.whole(group)));
        let wider = wider.map(Iterator::collect::<Vec<i256>>);
        let sums = std::mem::take(&mut self.sums);
        self.carries = Vec::new();
        let nulls = NullBuffer::new(BooleanBuffer::from(std::mem::take(&mut self.seen)));
        Ok(States::Array(match wider {
            None => Arc::new(Decimal128Array::new(sums.into(), Some(nulls)).with_data_type(WIDE)),
            Some(sums) => {
                Arc::new(Decimal256Array::new(sums.into(), Some(nulls)).with_data_type(WIDER))
            }
        }))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        // Up to version 2, sums of decimals had 128 bits, too.
        let is_known = array.data_type() == &WIDE || self.is_wider && array.data_type() == &WIDER;
        if !is_known {
            return Err(refused("sum", "128-bit sums are expected, of decimals 256-bit ones"));
        }
        if self.is_wider && array.data_type() == &WIDE {
            let sums: Decimal256Array = whole_sums(array).into_iter().collect();
            return Ok(States::Array(Arc::new(sums.with_data_type(WIDER))));
        }
        Ok(States::Array(Arc::clone(array)))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.resize(group_count);
        let sums = std::mem::take(&mut self.sums);
        let seen = std::mem::take(&mut self.seen);
        if std::mem::take(&mut self.carries).iter().any(|carry| *carry != 0) {
            return Err(self.overflow());
        }
        let present = |(sum, seen): (&i128, &bool)| seen.then_some(*sum);
        let each = || sums.iter().zip(&seen).map(present);
        fn fit<T: TryFrom<i128>>(sum: Option<i128>) -> Result<Option<T>, ()> {
            sum.map(|sum| T::try_from(sum).map_err(|_| ())).transpose()
        }
        let fitted: Result<ArrayRef, ()> = match &self.output {
            DataType::UInt64 => each()
                .map(fit::<u64>)
                .collect::<Result<UInt64Array, ()>>()
                .map(|array| Arc::new(array) as ArrayRef),
            DataType::Decimal128(precision, scale) => {
                let limit = 10_i128.checked_pow((*precision).into()).unwrap_or(i128::MAX);
                each()
                    .map(|sum| match sum {
                        Some(sum) if sum.unsigned_abs() >= limit.unsigned_abs() => Err(()),
                        sum => Ok(sum),
                    })
                    .collect::<Result<Decimal128Array, ()>>()
                    .and_then(|array| {
                        array.with_precision_and_scale(*precision, *scale).map_err(|_| ())
                    })
                    .map(|array| Arc::new(array) as ArrayRef)
            }
            _ => each()
                .map(fit::<i64>)
                .collect::<Result<Int64Array, ()>>()
                .map(|array| Arc::new(array) as ArrayRef),
        };
        fitted.map_err(|()| self.overflow())
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<i128>()
            + self.carries.capacity() * size_of::<i64>()
            + self.seen.capacity()
    }
}

/// Exact sums of floats.
struct FloatSums {
    sums: Vec<Option<FloatSum>>,
    heap: usize,
}

impl StateColumn for FloatSums {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.sums.resize_with(rows.group_count, || None);
        let values = value::cast_to(rows.values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let numbers = values.values();
        let (sums, heap) = (&mut self.sums, &mut self.heap);
        rows.for_each(values.nulls(), |row, group| {
            let sum = sums[group].get_or_insert_default();
            booked(sum, heap, FloatSum::heap_bytes, |sum| sum.add(numbers[row]));
        });
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.sums.resize_with(routes.group_count, || None);
        let States::FloatSum(sums) = states else { return Err(mismatch("sum")) };
        for (row, group) in routes.iter() {
            if let Some(sum) = &sums[row] {
                let here = self.sums[group].get_or_insert_default();
                booked(here, &mut self.heap, FloatSum::heap_bytes, |here| here.merge(sum));
            }
        }
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let mut sums = std::mem::take(&mut self.sums);
        sums.resize_with(group_count, || None);
        self.heap = 0;
        Ok(States::FloatSum(sums))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let array = binary("sum", array)?;
        array
            .iter()
            .map(|bytes| bytes.map(FloatSum::decode).transpose())
            .collect::<Result<_, _>>()
            .map(States::FloatSum)
            .map_err(|e| refused("sum", e))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let States::FloatSum(sums) = self.take(group_count)? else { return Err(mismatch("sum")) };
        let values = sums.iter().map(|sum| sum.as_ref().map(FloatSum::value));
        Ok(Arc::new(values.collect::<Float64Array>()))
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<Option<FloatSum>>() + self.heap
    }
}

// ── mean ─────────────────────────────────────────────────────────────────────────────────

struct Mean {
    name: String,
    sum: Box<dyn StateColumn>,
    count: Count,
    argument: DataType,
    output: DataType,
}

impl Mean {
    fn overflow(&self) -> Error {
        overflow(&self.name, &self.output)
    }
}

/// The mean of `count` decimals of scale `from` and sum `sum`, rounded half away from zero to
/// scale `to`; none where it has more than `precision` digits.
pub(crate) fn decimal_mean(sum: i256, count: i64, from: i8, to: i8, precision: u8) -> Option<i128> {
    let mean = rounded_mean(sum, count.try_into().ok()?, from, to)?.to_i128()?;
    let limit = 10_u128.checked_pow(precision.into())?;
    (mean.unsigned_abs() < limit).then_some(mean)
}

/// The same in 256 bits, of any precision.
pub(crate) fn rounded_mean(sum: i256, count: u64, from: i8, to: i8) -> Option<i256> {
    let shift = u32::try_from(i32::from(to) - i32::from(from)).ok()?;
    let scale = i256::from_i128(10_i128.checked_pow(shift)?);
    let half = i256::from_i128(i128::from(count / 2));
    let count = i256::from_i128(i128::from(count));
    // Divided before it is scaled: the scaled sum may need more than 256 bits, the mean not.
    let (whole, rest) = (sum.checked_div(count)?, sum.checked_rem(count)?);
    let rest = rest.checked_mul(scale)?;
    let half = if rest.is_negative() { half.wrapping_neg() } else { half };
    let rounded = rest.checked_add(half)?.checked_div(count)?;
    whole.checked_mul(scale)?.checked_add(rounded)
}

impl StateColumn for Mean {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.sum.update(rows)?;
        self.count.update(rows)
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        let States::Pair(sum, count) = states else { return Err(mismatch("mean")) };
        self.sum.merge(sum, routes)?;
        self.count.merge(count, routes)
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let sum = self.sum.take(group_count)?;
        Ok(States::Pair(Box::new(sum), Box::new(self.count.take(group_count)?)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let pair = match array.as_struct_opt() {
            Some(pair) if pair.num_columns() == 2 && pair.null_count() == 0 => pair,
            _ => return Err(refused("mean", "a sum and a count are expected")),
        };
        let (sum, count) = (pair.column(0), pair.column(1));
        let states =
            States::Pair(Box::new(self.sum.decode(sum)?), Box::new(self.count.decode(count)?));
        let counts = count.as_primitive::<Int64Type>().values();
        match counts.iter().enumerate().all(|(row, count)| sum.is_null(row) == (*count == 0)) {
            true => Ok(states),
            false => Err(refused("mean", "there is a sum where nothing was counted, or none")),
        }
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let States::Array(counts) = self.count.take(group_count)? else {
            return Err(mismatch("mean"));
        };
        let counts = counts.as_primitive::<Int64Type>().values();
        match self.sum.take(group_count)? {
            States::FloatSum(sums) => {
                let means = sums
                    .iter()
                    .zip(counts)
                    .map(|(sum, count)| sum.as_ref().map(|sum| sum.value() / *count as f64));
                Ok(Arc::new(means.collect::<Float64Array>()))
            }
            States::Array(sums) => {
                let pairs = whole_sums(&sums).into_iter().zip(counts);
                if let (DataType::Decimal128(_, from), DataType::Decimal128(precision, to)) =
                    (&self.argument, &self.output)
                {
                    let means = pairs.map(|(sum, count)| {
                        let mean = |sum| decimal_mean(sum, *count, *from, *to, *precision);
                        sum.map(|sum| mean(sum).ok_or_else(|| self.overflow())).transpose()
                    });
                    let means = means.collect::<Result<Decimal128Array>>()?;
                    return Ok(Arc::new(means.with_precision_and_scale(*precision, *to)?));
                }
                let float = |sum: i256| match sum.to_i128() {
                    Some(sum) => sum as f64,
                    None => sum.to_parts().1 as f64 * 2f64.powi(128),
                };
                let means = pairs.map(|(sum, count)| Some(float(sum?) / *count as f64));
                Ok(Arc::new(means.collect::<Float64Array>()))
            }
            _ => Err(mismatch("mean")),
        }
    }

    fn bytes(&self) -> usize {
        self.sum.bytes() + self.count.bytes()
    }
}

// ── min, max ─────────────────────────────────────────────────────────────────────────────

/// The smallest or largest of numbers, dates, times and booleans. NaN is the largest float,
/// −0.0 is 0.0.
///
/// DataFusion's accumulators will not do here: without a null in sight they take every group
/// for one that has a value, which is true of groups that rows make, but not of groups whose
/// rows were seen by another aggregate's filter, or of an answer over no rows.
struct Extreme<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    seen: Vec<bool>,
    is_max: bool,
    /// The type that is compared: the argument's, but for booleans.
    inner: DataType,
    argument: DataType,
    name: &'static str,
}

fn extreme(aggregate: &Aggregate) -> Result<Box<dyn StateColumn>> {
    let argument = &aggregate.argument_type;
    let inner = match argument {
        DataType::Boolean => DataType::UInt8,
        other => other.clone(),
    };
    macro_rules! primitive {
        ($t:ty, $aggregate:expr, $inner:expr) => {
            Ok(Box::new(Extreme::<$t>::new($aggregate, $inner.clone())))
        };
    }
    downcast_primitive! {
        &inner => (primitive, aggregate, inner),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary
        | DataType::LargeBinary | DataType::BinaryView => {
            Ok(Box::new(ExtremeText::new(aggregate)?))
        }
        _ => Err(Error::Internal(format!("{} over {argument}", aggregate.function))),
    }
}

fn extreme_name(aggregate: &Aggregate) -> &'static str {
    if aggregate.function == Function::Min { "min" } else { "max" }
}

impl<T: ArrowPrimitiveType> Extreme<T> {
    fn new(aggregate: &Aggregate, inner: DataType) -> Self {
        Extreme {
            values: Vec::new(),
            seen: Vec::new(),
            is_max: aggregate.function == Function::Max,
            inner,
            argument: aggregate.argument_type.clone(),
            name: extreme_name(aggregate),
        }
    }

    fn resize(&mut self, group_count: usize) {
        self.values.resize(group_count, T::Native::default());
        self.seen.resize(group_count, false);
    }

    fn add(&mut self, group: usize, value: T::Native) {
        let held = self.values[group];
        let is_better = if self.is_max { value.is_gt(held) } else { value.is_lt(held) };
        if is_better || !self.seen[group] {
            self.values[group] = value;
            self.seen[group] = true;
        }
    }

    fn compared(&self, values: &ArrayRef) -> Result<ArrayRef> {
        value::cast_to(&floats::settled(values), &self.inner)
    }
}

impl<T: ArrowPrimitiveType> StateColumn for Extreme<T> {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        let values = self.compared(rows.values()?)?;
        let values = values.as_primitive::<T>();
        let numbers = values.values();
        rows.for_each(values.nulls(), |row, group| self.add(group, numbers[row]));
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let States::Array(array) = states else { return Err(mismatch(self.name)) };
        let values = self.compared(array)?;
        let values = values.as_primitive::<T>();
        for (row, group) in routes.iter() {
            if values.is_valid(row) {
                self.add(group, values.value(row));
            }
        }
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.finish(group_count).map(States::Array)
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        values_of(self.name, &self.argument, array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.resize(group_count);
        let values = std::mem::take(&mut self.values);
        let nulls = NullBuffer::new(BooleanBuffer::from(std::mem::take(&mut self.seen)));
        let array = PrimitiveArray::<T>::new(values.into(), Some(nulls));
        let array: ArrayRef = Arc::new(array.with_data_type(self.inner.clone()));
        value::cast_to(&array, &self.argument)
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.seen.capacity()
    }
}

fn values_of(name: &str, argument: &DataType, array: &ArrayRef) -> Result<States> {
    if array.data_type() != argument {
        return Err(refused(name, format!("values of type {argument} are expected")));
    }
    Ok(States::Array(Arc::clone(array)))
}

/// The smallest or largest of strings or bytes. The state is that value; comparing is left to
/// DataFusion's accumulators, which know of each group whether it has one.
struct ExtremeText {
    accumulator: Box<dyn GroupsAccumulator>,
    argument: DataType,
    name: &'static str,
}

impl ExtremeText {
    fn new(aggregate: &Aggregate) -> Result<Self> {
        let argument = Arc::new(Field::new("value", aggregate.argument_type.clone(), true));
        let fields: [FieldRef; 1] = [Arc::clone(&argument)];
        let schema = Schema::new(vec![argument]);
        let exprs: [Arc<dyn PhysicalExpr>; 1] = [Arc::new(Column::new("value", 0))];
        let args = || AccumulatorArgs {
            return_field: Arc::clone(&aggregate.output),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: aggregate.output.name(),
            is_distinct: false,
            exprs: &exprs,
            expr_fields: &fields,
        };
        if !aggregate.udf.groups_accumulator_supported(args()) {
            return Err(Error::Internal(format!(
                "{} over {}",
                aggregate.function, aggregate.argument_type
            )));
        }
        Ok(ExtremeText {
            accumulator: aggregate.udf.create_groups_accumulator(args()).told()?,
            argument: aggregate.argument_type.clone(),
            name: extreme_name(aggregate),
        })
    }

    fn settle(&mut self, group_count: usize) -> Result<()> {
        let nothing = new_empty_array(&self.argument);
        self.accumulator.merge_batch(&[nothing], &[], group_count).told()
    }
}

impl StateColumn for ExtremeText {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        let values = [Arc::clone(rows.values()?)];
        self.accumulator.update_batch(&values, rows.groups, rows.filter, rows.group_count).told()
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        let States::Array(array) = states else { return Err(mismatch(self.name)) };
        let values = if routes.rows.len() == array.len()
            && routes.rows.iter().enumerate().all(|(i, row)| i == *row as usize)
        {
            Arc::clone(array)
        } else {
            take(array, &UInt32Array::from(routes.rows.to_vec()), None)?
        };
        self.accumulator.merge_batch(&[values], routes.groups, routes.group_count).told()
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.settle(group_count)?;
        let mut states = self.accumulator.state(EmitTo::All).told()?;
        match (states.pop(), states.is_empty()) {
            (Some(array), true) => Ok(States::Array(array)),
            _ => Err(Error::Internal(format!("{} has more than one state", self.name))),
        }
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        values_of(self.name, &self.argument, array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.settle(group_count)?;
        self.accumulator.evaluate(EmitTo::All).told()
    }

    fn bytes(&self) -> usize {
        self.accumulator.size()
    }
}

// ── sketches ─────────────────────────────────────────────────────────────────────────────

/// What differs between the columns of sketches.
trait SketchKind: Send {
    type State: Send;
    const NAME: &'static str;

    fn empty(&self) -> Self::State;
    fn heap(state: &Self::State) -> usize;
    fn merge(into: &mut Self::State, from: &Self::State);
    fn wrap(states: Vec<Self::State>) -> States;
    fn unwrap(states: &States) -> Option<&Vec<Self::State>>;
    fn decode(&self, bytes: &[u8]) -> Result<Self::State, tidemill_sketch::SketchError>;
    /// Feeds `rows` to `states`, calling `grown` with the change in heap bytes.
    fn update(&self, states: &mut [Self::State], heap: &mut usize, rows: &Rows<'_>) -> Result<()>;
    fn precision(state: &Self::State, of: &Aggregate) -> Precision;
    fn finish(&self, states: &[Self::State], of: &Aggregate) -> Result<ArrayRef>;
}

struct Sketches<K: SketchKind> {
    kind: K,
    aggregate: Aggregate,
    states: Vec<K::State>,
    heap: usize,
}

impl<K: SketchKind> Sketches<K> {
    fn new(kind: K, aggregate: &Aggregate) -> Self {
        Sketches { kind, aggregate: aggregate.clone(), states: Vec::new(), heap: 0 }
    }

    fn resize(&mut self, group_count: usize) {
        self.states.resize_with(group_count, || self.kind.empty());
    }
}

/// Changes a state and books the change of its heap.
fn booked<S>(
    state: &mut S,
    heap: &mut usize,
    size: impl Fn(&S) -> usize,
    change: impl FnOnce(&mut S),
) {
    let before = size(state);
    change(state);
    *heap = (*heap + size(state)).saturating_sub(before);
}

impl<K: SketchKind> StateColumn for Sketches<K> {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        self.kind.update(&mut self.states, &mut self.heap, rows)
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let from = K::unwrap(states).ok_or_else(|| mismatch(K::NAME))?;
        for (row, group) in routes.iter() {
            booked(&mut self.states[group], &mut self.heap, K::heap, |state| {
                K::merge(state, &from[row]);
            });
        }
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.resize(group_count);
        self.heap = 0;
        Ok(K::wrap(std::mem::take(&mut self.states)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        let array = binary(K::NAME, array)?;
        let states = array.iter().map(|bytes| match bytes {
            Some(bytes) => self.kind.decode(bytes).map_err(|e| refused(K::NAME, e)),
            None => Err(refused(K::NAME, "it is missing")),
        });
        Ok(K::wrap(states.collect::<Result<Vec<_>>>()?))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.resize(group_count);
        self.heap = 0;
        self.kind.finish(&std::mem::take(&mut self.states), &self.aggregate)
    }

    fn finish_shared(&mut self, group_count: usize, of: &[&Aggregate]) -> Result<Vec<ArrayRef>> {
        self.resize(group_count);
        self.heap = 0;
        let states = std::mem::take(&mut self.states);
        of.iter().map(|one| self.kind.finish(&states, one)).collect()
    }

    fn precision(&self, of: &Aggregate) -> Option<Precision> {
        let each = self.states.iter().map(|state| K::precision(state, of));
        Some(each.fold(Precision::EXACT, Precision::and))
    }

    fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<K::State>() + self.heap
    }
}

fn binary<'a>(name: &str, array: &'a ArrayRef) -> Result<&'a LargeBinaryArray> {
    array.as_binary_opt::<i64>().ok_or_else(|| refused(name, "binary states are expected"))
}

struct UniqueOf {
    empty: Hll,
}

impl SketchKind for UniqueOf {
    type State = Hll;
    const NAME: &'static str = "unique";

    fn empty(&self) -> Hll {
        self.empty.clone()
    }

    fn heap(state: &Hll) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Hll, from: &Hll) {
        into.merge(from);
    }

    fn wrap(states: Vec<Hll>) -> States {
        States::Unique(states)
    }

    fn unwrap(states: &States) -> Option<&Vec<Hll>> {
        if let States::Unique(states) = states { Some(states) } else { None }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Hll, tidemill_sketch::SketchError> {
        Hll::decode(bytes)
    }

    fn update(&self, states: &mut [Hll], heap: &mut usize, rows: &Rows<'_>) -> Result<()> {
        let (hashes, nulls) = value::hashes(rows.values()?)?;
        rows.for_each(nulls.as_ref(), |row, group| {
            booked(&mut states[group], heap, Hll::heap_bytes, |hll| hll.add_hash(hashes[row]));
        });
        Ok(())
    }

    fn precision(state: &Hll, _: &Aggregate) -> Precision {
        Precision { exact: state.is_exact(), error: state.relative_error() }
    }

    fn finish(&self, states: &[Hll], of: &Aggregate) -> Result<ArrayRef> {
        let counts = states.iter().map(|hll| i64::try_from(hll.count()).unwrap_or(i64::MAX));
        let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
        value::cast_to(&counts, of.output.data_type())
    }
}

struct QuantilesOf;

impl SketchKind for QuantilesOf {
    type State = Quantiles;
    const NAME: &'static str = "quantile";

    fn empty(&self) -> Quantiles {
        Quantiles::default()
    }

    fn heap(state: &Quantiles) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Quantiles, from: &Quantiles) {
        into.merge(from);
    }

    fn wrap(states: Vec<Quantiles>) -> States {
        States::Quantiles(states)
    }

    fn unwrap(states: &States) -> Option<&Vec<Quantiles>> {
        if let States::Quantiles(states) = states { Some(states) } else { None }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Quantiles, tidemill_sketch::SketchError> {
        Quantiles::decode(bytes)
    }

    fn update(&self, states: &mut [Quantiles], heap: &mut usize, rows: &Rows<'_>) -> Result<()> {
        let values = value::cast_to(rows.values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let numbers = values.values();
        rows.for_each(values.nulls(), |row, group| {
            booked(&mut states[group], heap, Quantiles::heap_bytes, |state| {
                state.add(numbers[row]);
            });
        });
        Ok(())
    }

    fn precision(state: &Quantiles, of: &Aggregate) -> Precision {
        let Function::Quantile { ranks, .. } = &of.function else { return Precision::EXACT };
        if state.is_exact() {
            return Precision::EXACT;
        }
        let widths = ranks.iter().filter_map(|rank| state.interval(*rank));
        let error = widths.map(|(low, high)| (high - low) / 2.0).fold(0.0, f64::max);
        Precision { exact: false, error }
    }

    fn finish(&self, states: &[Quantiles], of: &Aggregate) -> Result<ArrayRef> {
        let Function::Quantile { ranks, list } = &of.function else {
            return Err(mismatch("quantile"));
        };
        let mut numbers = Float64Builder::with_capacity(states.len() * ranks.len());
        let mut lengths = Vec::with_capacity(states.len());
        let mut present = Vec::with_capacity(states.len());
        for state in states {
            let answers = state.quantiles(ranks);
            let some = answers.iter().any(Option::is_some);
            present.push(some);
            if !list {
                numbers.append_option(answers.first().copied().flatten());
            } else if some {
                answers.iter().for_each(|answer| numbers.append_option(*answer));
            }
            lengths.push(if some { ranks.len() } else { 0 });
        }
        let numbers: ArrayRef = Arc::new(numbers.finish());
        if !list {
            return value::cast_to(&numbers, of.output.data_type());
        }
        Ok(Arc::new(ListArray::try_new(
            Arc::new(Field::new_list_field(DataType::Float64, true)),
            OffsetBuffer::from_lengths(lengths),
            numbers,
            Some(NullBuffer::from(present)),
        )?))
    }
}

struct TopKOf {
    k: usize,
    empty: TopK,
    argument: DataType,
}

impl SketchKind for TopKOf {
    type State = TopK;
    const NAME: &'static str = "top_k";

    fn empty(&self) -> TopK {
        self.empty.clone()
    }

    fn heap(state: &TopK) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut TopK, from: &TopK) {
        into.merge(from);
    }

    fn wrap(states: Vec<TopK>) -> States {
        States::TopK(states)
    }

    fn unwrap(states: &States) -> Option<&Vec<TopK>> {
        if let States::TopK(states) = states { Some(states) } else { None }
    }

    fn decode(&self, bytes: &[u8]) -> Result<TopK, tidemill_sketch::SketchError> {
        TopK::decode(bytes)
    }

    fn update(&self, states: &mut [TopK], heap: &mut usize, rows: &Rows<'_>) -> Result<()> {
        let values = rows.values()?;
        let nulls = values.logical_nulls();
        let items = value::Items::new(values)?;
        items.for_each(
            |each| rows.for_each(nulls.as_ref(), each),
            |group, item| {
                booked(&mut states[group], heap, TopK::heap_bytes, |state| state.add(item, 1));
            },
        );
        Ok(())
    }

    fn precision(state: &TopK, _: &Aggregate) -> Precision {
        Precision { exact: state.is_exact(), error: state.max_error() as f64 }
    }

    fn finish(&self, states: &[TopK], of: &Aggregate) -> Result<ArrayRef> {
        let mut items: Vec<Vec<u8>> = Vec::new();
        let mut counts: Vec<i64> = Vec::new();
        let mut lengths = Vec::with_capacity(states.len());
        for state in states {
            let top = state.top(self.k);
            lengths.push(top.len());
            for entry in top {
                counts.push(i64::try_from(entry.upper).unwrap_or(i64::MAX));
                items.push(entry.item.into());
            }
        }
        let values = value::from_items(&items, &self.argument)?;
        let DataType::List(field) = of.output.data_type() else {
            return Err(Error::Internal("top_k answers with a list".into()));
        };
        let DataType::Struct(fields) = field.data_type() else {
            return Err(Error::Internal("top_k answers with a list of structs".into()));
        };
        let counts: ArrayRef = Arc::new(Int64Array::from(counts));
        let entries = StructArray::try_new(fields.clone(), vec![values, counts], None)?;
        Ok(Arc::new(ListArray::try_new(
            Arc::clone(field),
            OffsetBuffer::from_lengths(lengths),
            Arc::new(entries),
            None,
        )?))
    }
}

// ── collect ──────────────────────────────────────────────────────────────────────────────

/// The first values of each group, of any type. Values stay in the arrays they came in; a
/// group remembers where its values are.
struct Collect {
    limit: usize,
    argument: DataType,
    parts: Vec<ArrayRef>,
    places: Vec<Vec<(u32, u32)>>,
    bytes: usize,
}

impl Collect {
    fn resize(&mut self, group_count: usize) {
        self.places.resize_with(group_count, Vec::new);
    }

    /// Appends the values at `rows` of `values` to the groups beside them, as far as each
    /// group has room.
    fn append(
        &mut self,
        values: &ArrayRef,
        pairs: impl Iterator<Item = (usize, usize)>,
    ) -> Result<()> {
        let part = self.parts.len() as u32;
        let mut kept: Vec<u32> = Vec::new();
        for (row, group) in pairs {
            let places = &mut self.places[group];
            if places.len() < self.limit {
                places.push((part, kept.len() as u32));
                kept.push(row as u32);
            }
        }
        if !kept.is_empty() {
            self.bytes += kept.len() * size_of::<(u32, u32)>() * 2;
            let part = value::compact(&take(values, &UInt32Array::from(kept), None)?);
            // Each buffer of what was read back from disk has the size of all of them.
            self.bytes += value::logical_bytes(&part);
            self.parts.push(part);
        }
        Ok(())
    }

    /// The collected values as a list per group; leaves an empty column.
    fn lists(&mut self, group_count: usize) -> Result<(OffsetBuffer<i64>, ArrayRef)> {
        self.resize(group_count);
        let places = std::mem::take(&mut self.places);
        let parts = std::mem::take(&mut self.parts);
        self.bytes = 0;
        let offsets = OffsetBuffer::from_lengths(places.iter().map(Vec::len));
        let order: Vec<(usize, usize)> =
            places.iter().flatten().map(|(part, row)| (*part as usize, *row as usize)).collect();
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        let values = if parts.is_empty() {
            new_empty_array(&self.argument)
        } else {
            interleave(&parts, &order)?
        };
        Ok((offsets, values))
    }

    fn item(&self) -> FieldRef {
        Arc::new(Field::new_list_field(self.argument.clone(), true))
    }
}

impl StateColumn for Collect {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        let values = Arc::clone(rows.values()?);
        let mut pairs = Vec::new();
        rows.for_each(values.logical_nulls().as_ref(), |row, group| pairs.push((row, group)));
        self.append(&values, pairs.into_iter())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let States::Array(array) = states else { return Err(mismatch("collect")) };
        let lists = array.as_list::<i64>();
        let offsets = lists.value_offsets();
        let pairs = routes.iter().flat_map(|(row, group)| {
            (offsets[row] as usize..offsets[row + 1] as usize).map(move |value| (value, group))
        });
        self.append(lists.values(), pairs.collect::<Vec<_>>().into_iter())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let (offsets, values) = self.lists(group_count)?;
        let lists = LargeListArray::try_new(self.item(), offsets, values, None)?;
        Ok(States::Array(Arc::new(lists)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        match array.data_type() {
            DataType::LargeList(item)
                if item.data_type() == &self.argument && array.null_count() == 0 =>
            {
                Ok(States::Array(Arc::clone(array)))
            }
            _ => Err(refused("collect", format!("lists of {} are expected", self.argument))),
        }
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let (offsets, values) = self.lists(group_count)?;
        let lists: ArrayRef =
            Arc::new(LargeListArray::try_new(self.item(), offsets, values, None)?);
        // The answer is a list with 32-bit offsets, as SQL's functions over lists expect.
        value::cast_to(&lists, &DataType::List(self.item()))
    }

    fn bytes(&self) -> usize {
        self.bytes + self.places.capacity() * size_of::<Vec<(u32, u32)>>()
    }
}
