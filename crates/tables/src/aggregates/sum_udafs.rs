//! `sum` and `avg` (also called `mean`) on DataFusion's path: under joins, in windows, over `DISTINCT`
//! values, over a finished table.
//!
//! Both keep the same promise on every path: integers and decimals are added up without loss and checked at
//! the end against the type of the answer; floats are added up exactly and rounded once. These functions
//! replace DataFusion's of the same names, whose integer sums wrap and whose float sums depend on the order.
//! Grouped sums keep the states of partial tables ([`state`]). A single group, as in a window, keeps a
//! [`TotalAccumulator`], which also retracts values, so that a sliding frame is as exact as a new sum.
//!
//! [`wide_sums`](super::wide_sums) adds up the types that these states do not hold: intervals, durations and
//! decimals of other widths.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, Int64Array, UInt64Array,
};
use arrow::compute::{cast_with_options, filter};
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Fields, Float64Type, Int64Type, UInt64Type, i256,
};
use datafusion::common::types::{NativeType, logical_boolean, logical_int64};
use datafusion::common::{Result as PlanResult, ScalarValue, plan_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, Documentation, GroupsAccumulator,
    ReversedUDAF, Signature, TypeSignature, TypeSignatureClass, Volatility,
};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_base::error::{Error, Result};
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::datafusion_names::aggregates;
use tidemill_sketch::FloatSum;
use tidemill_sql::IntoTidemillError;
use tidemill_sql::percentiles::interpolated_time_type;

use crate::aggregates::accumulators::{
    DistinctAccumulator, StateAccumulator, StateGroupsAccumulator, encoded_state_type,
    present_state_mask,
};
use crate::aggregates::wide_sums::{self, CastingAccumulator, WideAccumulator};
use crate::state::{self, ChunkStates};
use crate::{MergeableFunction, TableAggregate, has_mergeable_state};

/// Creates the functions for registration with DataFusion.
pub(crate) fn create_sum_udafs() -> impl Iterator<Item = AggregateUDF> {
    [SumOrMean::Sum, SumOrMean::Mean]
        .into_iter()
        .map(|which| AggregateUDF::from(SumUdaf::new(which)))
}

/// The two functions of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SumOrMean {
    Sum,
    Mean,
}

impl SumOrMean {
    fn datafusion_udaf(self) -> Arc<AggregateUDF> {
        match self {
            SumOrMean::Sum => sum_udaf(),
            SumOrMean::Mean => avg_udaf(),
        }
    }

    fn mergeable_function(self) -> MergeableFunction {
        match self {
            SumOrMean::Sum => MergeableFunction::Sum,
            SumOrMean::Mean => MergeableFunction::Mean,
        }
    }
}

/// The DataFusion declaration of `sum` or `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SumUdaf {
    sum_or_mean: SumOrMean,
    signature: Signature,
    aliases: Vec<String>,
}

impl SumUdaf {
    fn new(which: SumOrMean) -> Self {
        let mut all = match which {
            SumOrMean::Sum => Vec::new(),
            // DataFusion casts integers to doubles first, which rounds large ones.
            SumOrMean::Mean => {
                vec![TypeSignature::Coercible(vec![Coercion::new_exact(
                    TypeSignatureClass::Integer,
                )])]
            }
        };
        match &which.datafusion_udaf().signature().type_signature {
            TypeSignature::OneOf(theirs) => all.extend(theirs.iter().cloned()),
            other => all.push(other.clone()),
        }
        // Booleans count as 0 and 1: their number and fraction, as in `avg(status >= 400)`.
        all.push(TypeSignature::Coercible(vec![Coercion::new_implicit(
            TypeSignatureClass::Native(logical_int64()),
            vec![TypeSignatureClass::Native(logical_boolean())],
            NativeType::Int64,
        )]));
        // Lists, structs and maps of numbers.
        all.push(TypeSignature::UserDefined);
        let signature = Signature::one_of(all, Volatility::Immutable);
        SumUdaf {
            sum_or_mean: which,
            signature,
            aliases: which.datafusion_udaf().aliases().to_vec(),
        }
    }

    /// Returns the type of the answer over lists, structs or maps: the same structure with the types of the
    /// numbers' answers.
    fn nested_answer_type(&self, of: &DataType) -> PlanResult<DataType> {
        let inner = |field: &FieldRef| -> PlanResult<FieldRef> {
            let of = field.data_type();
            let answer = match of {
                _ if state::is_nested_type(of) => self.nested_answer_type(of)?,
                _ if of.is_numeric() || of.is_null() => {
                    self.return_type(std::slice::from_ref(of))?
                }
                _ => {
                    return plan_err!(
                        "`{}` of a list, struct or map adds up numbers; `{}` of it is {}",
                        self.name(),
                        field.name(),
                        sql_type_name(of)
                    );
                }
            };
            Ok(Arc::new(Field::new(field.name(), answer, true)))
        };
        Ok(match of {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                DataType::List(Arc::new(Field::new_list_field(
                    inner(item)?.data_type().clone(),
                    true,
                )))
            }
            DataType::Struct(fields) => {
                DataType::Struct(fields.iter().map(inner).collect::<PlanResult<_>>()?)
            }
            DataType::Map(entries, is_ordered) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => {
                    let pair: Fields = vec![Arc::clone(&pair[0]), inner(&pair[1])?].into();
                    let entries = Field::new(entries.name(), DataType::Struct(pair), false);
                    DataType::Map(Arc::new(entries), *is_ordered)
                }
                _ => return plan_err!("`{}` takes no {}", self.name(), sql_type_name(of)),
            },
            _ => return plan_err!("`{}` takes no {}", self.name(), sql_type_name(of)),
        })
    }

    /// Chooses how a call's values are added up; `None` if it is left to DataFusion.
    fn choose_strategy(
        &self,
        name: &str,
        argument: &DataType,
        answer: &DataType,
    ) -> Option<SumStrategy> {
        let is_mean = self.sum_or_mean == SumOrMean::Mean;
        if state::is_nested_type(argument) {
            let aggregate = TableAggregate {
                function: self.sum_or_mean.mergeable_function(),
                argument_column: Some(0),
                argument_type: argument.clone(),
                second_argument: None,
                filter_column: None,
                output_field: Arc::new(Field::new(name, answer.clone(), true)),
                udf: self.sum_or_mean.datafusion_udaf(),
            };
            return has_mergeable_state(&aggregate).then_some(SumStrategy::NestedState(aggregate));
        }
        let number = wide_sums::number_type(argument, is_mean);
        let of_numbers = match argument {
            DataType::Duration(_) | DataType::Timestamp(_, _) | DataType::Time64(_) => {
                wide_sums::number_answer_type(argument, is_mean)
            }
            _ => answer.clone(),
        };
        let aggregate = TableAggregate {
            function: self.sum_or_mean.mergeable_function(),
            argument_column: Some(0),
            argument_type: number.clone(),
            second_argument: None,
            filter_column: None,
            output_field: Arc::new(Field::new(name, of_numbers, true)),
            udf: self.sum_or_mean.datafusion_udaf(),
        };
        if !has_mergeable_state(&aggregate) {
            return WideAccumulator::for_call(name, is_mean, argument, answer)
                .map(SumStrategy::WideAccumulator);
        }
        Some(match number == *argument {
            true => SumStrategy::PlainState(aggregate),
            false => SumStrategy::CastState { aggregate, answer: answer.clone() },
        })
    }

    fn choose_strategy_of_call(&self, args: &AccumulatorArgs<'_>) -> Option<SumStrategy> {
        let argument = args.expr_fields.first()?.data_type();
        self.choose_strategy(args.name, argument, args.return_field.data_type())
    }
}

/// Widens the numbers of a nested type to the types in which they are added up, and fixed-size lists to
/// lists.
fn widen_nested_type(of: &DataType) -> DataType {
    let inner = |field: &FieldRef| -> FieldRef {
        let of = widen_nested_type(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(of))
    };
    match of {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Null => DataType::Int64,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => DataType::UInt64,
        DataType::Float16 | DataType::Float32 => DataType::Float64,
        DataType::List(item) | DataType::FixedSizeList(item, _) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        DataType::Map(entries, is_ordered) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                let pair: Fields = vec![Arc::clone(&pair[0]), inner(&pair[1])].into();
                let entries = Field::new(entries.name(), DataType::Struct(pair), false);
                DataType::Map(Arc::new(entries), *is_ordered)
            }
            _ => of.clone(),
        },
        other => other.clone(),
    }
}

/// The way in which the values of a call are added up.
#[derive(Debug, Clone)]
enum SumStrategy {
    /// By the states of partial tables.
    PlainState(TableAggregate),
    /// By the states of partial tables, after a cast to the aggregate's argument type.
    CastState { aggregate: TableAggregate, answer: DataType },
    /// Element by element, as the states of partial tables.
    NestedState(TableAggregate),
    /// By a wide accumulator, which has no mergeable state.
    WideAccumulator(WideAccumulator),
}

impl SumStrategy {
    /// Returns the aggregate of the states, if states hold the values.
    fn table_aggregate(&self) -> Option<&TableAggregate> {
        match self {
            SumStrategy::PlainState(aggregate)
            | SumStrategy::CastState { aggregate, .. }
            | SumStrategy::NestedState(aggregate) => Some(aggregate),
            SumStrategy::WideAccumulator(_) => None,
        }
    }

    fn wrap_with_casts<A: ?Sized>(
        aggregate: &TableAggregate,
        answer: &DataType,
        inner: Box<A>,
    ) -> CastingAccumulator<A> {
        CastingAccumulator {
            call_name: aggregate.output_field.name().clone(),
            number_type: aggregate.argument_type.clone(),
            answer_type: answer.clone(),
            inner_accumulator: inner,
        }
    }

    /// Creates the accumulator of one group.
    fn new_accumulator(&self) -> PlanResult<Box<dyn Accumulator>> {
        Ok(match self {
            SumStrategy::PlainState(aggregate) => {
                Box::new(TotalAccumulator::new(aggregate.clone()))
            }
            SumStrategy::NestedState(aggregate) => {
                Box::new(StateAccumulator::new(aggregate.clone(), None)?)
            }
            SumStrategy::CastState { aggregate, answer } => {
                let total: Box<dyn Accumulator> =
                    Box::new(TotalAccumulator::new(aggregate.clone()));
                Box::new(Self::wrap_with_casts(aggregate, answer, total))
            }
            SumStrategy::WideAccumulator(wide) => Box::new(wide.clone()),
        })
    }

    /// Creates the accumulator of many groups, if there is one.
    fn new_groups_accumulator(&self) -> PlanResult<Option<Box<dyn GroupsAccumulator>>> {
        Ok(match self {
            SumStrategy::PlainState(aggregate) | SumStrategy::NestedState(aggregate) => {
                Some(Box::new(StateGroupsAccumulator::new(aggregate.clone())?))
            }
            SumStrategy::CastState { aggregate, answer } => {
                let groups: Box<dyn GroupsAccumulator> =
                    Box::new(StateGroupsAccumulator::new(aggregate.clone())?);
                Some(Box::new(Self::wrap_with_casts(aggregate, answer, groups)))
            }
            SumStrategy::WideAccumulator(_) => None,
        })
    }
}

impl AggregateUDFImpl for SumUdaf {
    fn name(&self) -> &str {
        match self.sum_or_mean {
            SumOrMean::Sum => aggregates::SUM,
            SumOrMean::Mean => aggregates::AVG,
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        match given {
            [of] if state::is_nested_type(of) => {
                let of = widen_nested_type(of);
                self.nested_answer_type(&of)?;
                Ok(vec![of])
            }
            _ => match (self.sum_or_mean, given.first().and_then(interpolated_time_type)) {
                (SumOrMean::Mean, Some(time)) if given.len() == 1 => Ok(vec![time]),
                (SumOrMean::Mean, _) => plan_err!(
                    "`{}` takes numbers, times, and lists, structs and maps of numbers",
                    self.name()
                ),
                (SumOrMean::Sum, _) => plan_err!(
                    "`{}` takes numbers, and lists, structs and maps of numbers",
                    self.name()
                ),
            },
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        let is_mean = self.sum_or_mean == SumOrMean::Mean;
        if let [of] = arguments
            && state::is_nested_type(of)
        {
            return self.nested_answer_type(of);
        }
        if let (SumOrMean::Mean, [of]) = (self.sum_or_mean, arguments)
            && interpolated_time_type(of).as_ref() == Some(of)
        {
            return Ok(of.clone());
        }
        let settled =
            arguments.iter().map(|argument| wide_sums::normalize_argument_type(argument, is_mean));
        self.sum_or_mean.datafusion_udaf().return_type(&settled.collect::<Vec<_>>())
    }

    fn documentation(&self) -> Option<&Documentation> {
        // Statics keep DataFusion's functions alive as long as the program.
        static SUM: std::sync::LazyLock<Arc<AggregateUDF>> = std::sync::LazyLock::new(sum_udaf);
        static MEAN: std::sync::LazyLock<Arc<AggregateUDF>> = std::sync::LazyLock::new(avg_udaf);
        match self.sum_or_mean {
            SumOrMean::Sum => SUM.documentation(),
            SumOrMean::Mean => MEAN.documentation(),
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let Some(argument) = args.input_fields.first() else {
            return self.sum_or_mean.datafusion_udaf().state_fields(args);
        };
        let argument = argument.data_type();
        let Some(way) = self.choose_strategy(args.name, argument, args.return_field.data_type())
        else {
            return self.sum_or_mean.datafusion_udaf().state_fields(args);
        };
        let name = format_state_name(args.name, "state");
        if args.is_distinct {
            let item = Field::new_list_field(argument.clone(), true);
            return Ok(vec![Arc::new(Field::new(name, DataType::List(Arc::new(item)), true))]);
        }
        let aggregate = match &way {
            SumStrategy::PlainState(aggregate) | SumStrategy::CastState { aggregate, .. } => {
                aggregate
            }
            SumStrategy::NestedState(aggregate) => {
                let kept = encoded_state_type(aggregate).map_err(into_datafusion_error)?;
                return Ok(vec![Arc::new(Field::new(name, kept, true))]);
            }
            SumStrategy::WideAccumulator(wide) => return Ok(wide.state_fields()),
        };
        let kept = encoded_state_type(aggregate).map_err(into_datafusion_error)?;
        let value = format_state_name(args.name, "value");
        Ok(vec![
            Arc::new(Field::new(name, kept, true)),
            Arc::new(Field::new(value, aggregate.argument_type.clone(), true)),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        match (self.choose_strategy_of_call(&args), args.expr_fields.first()) {
            (Some(way), Some(argument)) if args.is_distinct => {
                Ok(Box::new(DistinctAccumulator::new(argument.data_type(), move || {
                    way.new_accumulator()
                })))
            }
            (Some(way), _) => way.new_accumulator(),
            (None, _) => self.sum_or_mean.datafusion_udaf().accumulator(args),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        match self.choose_strategy_of_call(&args) {
            Some(_) => self.accumulator(args),
            None => self.sum_or_mean.datafusion_udaf().create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match self.choose_strategy_of_call(&args) {
            Some(way) => !args.is_distinct && way.table_aggregate().is_some(),
            None => self.sum_or_mean.datafusion_udaf().groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        match self.choose_strategy_of_call(&args) {
            Some(way) => way.new_groups_accumulator()?.ok_or_else(|| {
                into_datafusion_error(Error::Internal(
                    "sums of groups that are added up one by one".into(),
                ))
            }),
            None => self.sum_or_mean.datafusion_udaf().create_groups_accumulator(args),
        }
    }
}

// ── one group ────────────────────────────────────────────────────────────────────────────

/// An exact sum.
#[derive(Clone)]
enum ExactSum {
    /// A sum of integers or of decimals' unscaled integers. No number of rows overflows 256 bits.
    Integers(i256),
    Floats(FloatTotal),
}

/// A sum of floats: the finite ones, and the counts of the others, so that these can be retracted, too.
#[derive(Clone, Default)]
struct FloatTotal {
    finite_sum: FloatSum,
    nan_count: u64,
    infinity_count: u64,
    negative_infinity_count: u64,
}

impl FloatTotal {
    fn update(&mut self, value: f64, back: bool) {
        let special = match value {
            value if value.is_finite() => {
                self.finite_sum.add(if back { -value } else { value });
                return;
            }
            f64::INFINITY => &mut self.infinity_count,
            f64::NEG_INFINITY => &mut self.negative_infinity_count,
            _ => &mut self.nan_count,
        };
        *special = if back { *special - 1 } else { *special + 1 };
    }

    fn value(&self) -> f64 {
        match (self.nan_count, self.infinity_count, self.negative_infinity_count) {
            (0, 0, 0) => self.finite_sum.value(),
            (0, _, 0) => f64::INFINITY,
            (0, 0, _) => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

/// The sum or mean of one group, which supports retraction.
struct TotalAccumulator {
    aggregate: TableAggregate,
    sum: ExactSum,
    count: u64,
}

impl std::fmt::Debug for TotalAccumulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Total").field("function", &self.aggregate.function).finish_non_exhaustive()
    }
}

/// Casts values to one of the types that are added up.
fn cast_to_summable(values: &ArrayRef) -> PlanResult<ArrayRef> {
    let plain = match values.data_type() {
        DataType::UInt64 | DataType::Int64 | DataType::Float64 | DataType::Decimal128(_, _) => {
            return Ok(Arc::clone(values));
        }
        integer if integer.is_integer() => DataType::Int64,
        _ => DataType::Float64,
    };
    Ok(cast_with_options(values, &plain, &STRICT_CAST_OPTIONS)?)
}

impl TotalAccumulator {
    fn new(aggregate: TableAggregate) -> Self {
        let sum = match &aggregate.argument_type {
            DataType::Decimal128(_, _) => ExactSum::Integers(i256::ZERO),
            argument if argument.is_integer() => ExactSum::Integers(i256::ZERO),
            _ => ExactSum::Floats(FloatTotal::default()),
        };
        TotalAccumulator { aggregate, sum, count: 0 }
    }

    fn overflow_error(&self) -> Error {
        state::overflow_error(
            self.aggregate.output_field.name(),
            self.aggregate.output_field.data_type(),
        )
    }

    /// Adds or retracts values.
    fn update_sum(&mut self, values: &ArrayRef, back: bool) -> PlanResult<()> {
        let values = cast_to_summable(values)?;
        let change = (values.len() - values.logical_null_count()) as u64;
        self.count = if back { self.count - change } else { self.count + change };
        match &mut self.sum {
            ExactSum::Integers(sum) => {
                let more = match values.data_type() {
                    DataType::UInt64 => sum_to_256_bits(
                        values.as_primitive::<UInt64Type>().iter().flatten().map(i128::from),
                    ),
                    DataType::Decimal128(_, _) => {
                        let values = values.as_primitive::<Decimal128Type>().iter().flatten();
                        values.map(i256::from_i128).fold(i256::ZERO, i256::wrapping_add)
                    }
                    _ => sum_to_256_bits(
                        values.as_primitive::<Int64Type>().iter().flatten().map(i128::from),
                    ),
                };
                *sum = if back { sum.wrapping_sub(more) } else { sum.wrapping_add(more) };
            }
            ExactSum::Floats(sum) => {
                let values = values.as_primitive::<Float64Type>().iter().flatten();
                values.for_each(|value| sum.update(value, back));
            }
        }
        Ok(())
    }

    /// Returns a sum in 128 bits, which suffice for all answers except means of decimals.
    fn to_128_bits(&self, sum: i256) -> Result<i128> {
        sum.to_i128().ok_or_else(|| self.overflow_error())
    }

    fn compute_answer(&self) -> Result<ScalarValue> {
        let answer = self.aggregate.output_field.data_type();
        if self.count == 0 {
            return ScalarValue::try_from(answer).into_tidemill_error();
        }
        let is_mean = self.aggregate.function == MergeableFunction::Mean;
        let sum = match &self.sum {
            ExactSum::Floats(sum) => {
                let sum = sum.value();
                let value = if is_mean { sum / self.count as f64 } else { sum };
                return Ok(ScalarValue::Float64(Some(value)));
            }
            ExactSum::Integers(sum) => *sum,
        };
        if let (DataType::Decimal128(precision, to), DataType::Decimal128(_, from), true) =
            (answer, &self.aggregate.argument_type, is_mean)
        {
            let count = i64::try_from(self.count).map_err(|_| self.overflow_error())?;
            let mean = state::compute_decimal_mean(sum, count, *from, *to, *precision);
            let mean = mean.ok_or_else(|| self.overflow_error())?;
            return Ok(ScalarValue::Decimal128(Some(mean), *precision, *to));
        }
        let sum = self.to_128_bits(sum)?;
        let fitted = match (answer, &self.aggregate.argument_type) {
            (DataType::Decimal128(precision, to), DataType::Decimal128(_, _)) => {
                let limit = 10_u128.checked_pow((*precision).into());
                let fits = limit.is_none_or(|limit| sum.unsigned_abs() < limit);
                fits.then_some(ScalarValue::Decimal128(Some(sum), *precision, *to))
            }
            (DataType::Float64, _) => {
                Some(ScalarValue::Float64(Some(sum as f64 / self.count as f64)))
            }
            (DataType::UInt64, _) => {
                u64::try_from(sum).ok().map(|sum| ScalarValue::UInt64(Some(sum)))
            }
            _ => i64::try_from(sum).ok().map(|sum| ScalarValue::Int64(Some(sum))),
        };
        fitted.ok_or_else(|| self.overflow_error())
    }

    /// Returns the state that a grouped sum would have.
    fn to_chunk_states(&self) -> Result<ChunkStates> {
        if self.count == 0 {
            return state::new_state_column(&self.aggregate)?.take_states(1);
        }
        let sum = match &self.sum {
            ExactSum::Integers(sum) => ChunkStates::Array(state::encode_sum_state(
                *sum,
                matches!(self.aggregate.argument_type, DataType::Decimal128(_, _)),
            )),
            ExactSum::Floats(FloatTotal {
                finite_sum: finite,
                nan_count: nan,
                infinity_count: up,
                negative_infinity_count: down,
            }) => {
                let mut sum = finite.clone();
                // The counts do not matter to a sum that only grows.
                for (value, count) in
                    [(f64::NAN, nan), (f64::INFINITY, up), (f64::NEG_INFINITY, down)]
                {
                    if *count > 0 {
                        sum.add(value);
                    }
                }
                ChunkStates::FloatSums(vec![Some(sum)])
            }
        };
        if self.aggregate.function != MergeableFunction::Mean {
            return Ok(sum);
        }
        let count = i64::try_from(self.count).map_err(|_| self.overflow_error())?;
        let count = ChunkStates::Array(Arc::new(Int64Array::from(vec![count])));
        Ok(ChunkStates::SumAndCount(Box::new(sum), Box::new(count)))
    }

    fn merge_states(&mut self, states: &ChunkStates) -> Result<()> {
        let unexpected = || Error::Internal("a sum of another kind".into());
        let (sums, counts) = match states {
            ChunkStates::SumAndCount(sums, counts) => (sums.as_ref(), Some(counts.as_ref())),
            sums => (sums, None),
        };
        let seen = match (&mut self.sum, sums) {
            (ExactSum::Integers(sum), ChunkStates::Array(array)) => {
                let sums = state::to_wide_sums(array).into_iter().flatten();
                sums.for_each(|more| *sum = sum.wrapping_add(more));
                (array.len() - array.null_count()) as u64
            }
            (ExactSum::Floats(floats), ChunkStates::FloatSums(sums)) => {
                sums.iter().flatten().for_each(|sum| floats.finite_sum.merge(sum));
                sums.iter().flatten().count() as u64
            }
            _ => return Err(unexpected()),
        };
        self.count += match counts {
            Some(ChunkStates::Array(counts)) => {
                let counts = counts.as_primitive_opt::<Int64Type>().ok_or_else(unexpected)?;
                counts.values().iter().map(|count| count.cast_unsigned()).sum()
            }
            Some(_) => return Err(unexpected()),
            None => seen,
        };
        Ok(())
    }
}

// ── running sums of a window ────────────────────────────────────────────────────────────────────────────────

/// Returns each group's sums or means up to the end of each of its steps, for `sum` and `avg` of integers and
/// floats; `None` for other aggregates. Groups and steps are given by their start rows, followed by the end.
pub(crate) fn compute_running_sums(
    aggregate: &AggregateFunctionExpr,
    values: &ArrayRef,
    groups: &[u32],
    steps: &[u32],
) -> PlanResult<Option<ArrayRef>> {
    let function: &dyn Any = aggregate.fun().inner().as_ref();
    let Some(function) = function.downcast_ref::<SumUdaf>() else { return Ok(None) };
    let answer = aggregate.field().data_type().clone();
    let Some(SumStrategy::PlainState(of)) =
        function.choose_strategy(aggregate.name(), values.data_type(), &answer)
    else {
        return Ok(None);
    };
    let is_mean = of.function == MergeableFunction::Mean;
    let values = cast_to_summable(values)?;
    let steps = RunningSteps { values: &values, group_starts: groups, step_starts: steps };
    let overflow = || {
        into_datafusion_error(state::overflow_error(
            of.output_field.name(),
            of.output_field.data_type(),
        ))
    };
    let whole = |sum: &i128, _| i64::try_from(*sum).map_err(|_| overflow());
    let without_sign = |sum: &i128, _| u64::try_from(*sum).map_err(|_| overflow());
    let mean = |sum: &i128, count| Ok(*sum as f64 / count as f64);
    let float = |sum: &FloatTotal, count| {
        Ok(if is_mean { sum.value() / count as f64 } else { sum.value() })
    };
    let signed = |sum: &mut i128, value: i64| *sum += i128::from(value);
    let unsigned = |sum: &mut i128, value: u64| *sum += i128::from(value);
    let floats = |sum: &mut FloatTotal, value| sum.update(value, false);
    Ok(Some(match (values.data_type(), &answer) {
        (DataType::Float64, DataType::Float64) => {
            Arc::new(Float64Array::from(steps.map_steps::<Float64Type, _, _>(floats, float)?))
        }
        (DataType::Int64, DataType::Int64) => {
            Arc::new(Int64Array::from(steps.map_steps::<Int64Type, _, _>(signed, whole)?))
        }
        (DataType::UInt64, DataType::UInt64) => Arc::new(UInt64Array::from(
            steps.map_steps::<UInt64Type, _, _>(unsigned, without_sign)?,
        )),
        (DataType::Int64, DataType::Float64) if is_mean => {
            Arc::new(Float64Array::from(steps.map_steps::<Int64Type, _, _>(signed, mean)?))
        }
        (DataType::UInt64, DataType::Float64) if is_mean => {
            Arc::new(Float64Array::from(steps.map_steps::<UInt64Type, _, _>(unsigned, mean)?))
        }
        _ => return Ok(None),
    }))
}

/// Values whose sums continue from step to step and restart with each group.
struct RunningSteps<'a> {
    values: &'a ArrayRef,
    group_starts: &'a [u32],
    step_starts: &'a [u32],
}

impl RunningSteps<'_> {
    /// Returns for each step the answer from its group's sum and count so far; `None` without values.
    fn map_steps<T: ArrowPrimitiveType, S: Default, A>(
        &self,
        add: impl Fn(&mut S, T::Native),
        answer: impl Fn(&S, u64) -> PlanResult<A>,
    ) -> PlanResult<Vec<Option<A>>> {
        let numbers = self.values.as_primitive::<T>().values();
        let mut steps = self.step_starts.windows(2).peekable();
        let mut found = Vec::with_capacity(self.step_starts.len());
        for group in self.group_starts.windows(2) {
            let (mut sum, mut count) = (S::default(), 0);
            while let Some(step) = steps.next_if(|step| step[0] < group[1]) {
                for row in step[0] as usize..step[1] as usize {
                    if self.values.is_valid(row) {
                        add(&mut sum, numbers[row]);
                        count += 1;
                    }
                }
                found.push(if count == 0 { None } else { Some(answer(&sum, count)?) });
            }
        }
        Ok(found)
    }
}

/// Returns the sum of a batch: 64-bit values do not overflow 128 bits.
fn sum_to_256_bits(values: impl Iterator<Item = i128>) -> i256 {
    i256::from_i128(values.sum())
}

impl Accumulator for TotalAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.update_sum(&values[0], false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.update_sum(&values[0], true)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        self.compute_answer().map_err(into_datafusion_error)
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + match &self.sum {
                ExactSum::Integers(_) => 0,
                ExactSum::Floats(floats) => floats.finite_sum.heap_bytes(),
            }
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let states = self
            .to_chunk_states()
            .and_then(|states| states.encode())
            .map_err(into_datafusion_error)?;
        let value = ScalarValue::try_from(&self.aggregate.argument_type)?;
        Ok(vec![ScalarValue::try_from_array(&states, 0)?, value])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        self.update_sum(&states[1], false)?;
        let present = match present_state_mask(&states[0]) {
            Some(present) => filter(&states[0], &present)?,
            None => Arc::clone(&states[0]),
        };
        let column = state::new_state_column(&self.aggregate).map_err(into_datafusion_error)?;
        let states = column.decode(&present).map_err(into_datafusion_error)?;
        self.merge_states(&states).map_err(into_datafusion_error)
    }
}
