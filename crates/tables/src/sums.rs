//! `sum` and `avg` (also called `mean`) wherever DataFusion runs them: under joins, in windows, over
//! `DISTINCT` values, of a finished table.
//!
//! There is one promise for both on every path: integers and decimals are added up without loss and
//! checked at the end against the type of the answer, floats are added up exactly and rounded once.
//! So these functions take the place of DataFusion's of the same names, whose sums wrap, and whose
//! sums of floats depend on the order. Groups keep the states of partial tables ([`state`]); what
//! has a single group, windows among them, keeps a [`Total`], which also takes values back, so that
//! a frame that slides is as exact as one that is added up anew.
//!
//! What those states do not hold, intervals, durations and decimals of other widths, is added up by
//! [`wide_sums`](crate::wide_sums).

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
use tidemill_sketch::FloatSum;
use tidemill_sql::IntoTidemillError;
use tidemill_sql::datafusion_names::aggregates;
use tidemill_sql::error_translation::into_datafusion_error;
use tidemill_sql::percentiles::interpolated_time_type;

use crate::accumulators::{Distinct, Groups, OneGroup, kept_type, present};
use crate::state::{self, States};
use crate::wide_sums::{self, Cast, Wide};
use crate::{Aggregate, Function, supports};

/// The functions as DataFusion wants them registered.
pub(crate) fn all() -> impl Iterator<Item = AggregateUDF> {
    [Which::Sum, Which::Mean].into_iter().map(|which| AggregateUDF::from(Summing::new(which)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    Sum,
    Mean,
}

impl Which {
    fn theirs(self) -> Arc<AggregateUDF> {
        match self {
            Which::Sum => sum_udaf(),
            Which::Mean => avg_udaf(),
        }
    }

    fn function(self) -> Function {
        match self {
            Which::Sum => Function::Sum,
            Which::Mean => Function::Mean,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Summing {
    which: Which,
    signature: Signature,
    aliases: Vec<String>,
}

impl Summing {
    fn new(which: Which) -> Self {
        let mut all = match which {
            Which::Sum => Vec::new(),
            // DataFusion's makes doubles of integers first, which rounds large ones.
            Which::Mean => {
                vec![TypeSignature::Coercible(vec![Coercion::new_exact(
                    TypeSignatureClass::Integer,
                )])]
            }
        };
        match &which.theirs().signature().type_signature {
            TypeSignature::OneOf(theirs) => all.extend(theirs.iter().cloned()),
            other => all.push(other.clone()),
        }
        // How many are true, and which share: `avg(status >= 400)`.
        all.push(TypeSignature::Coercible(vec![Coercion::new_implicit(
            TypeSignatureClass::Native(logical_int64()),
            vec![TypeSignatureClass::Native(logical_boolean())],
            NativeType::Int64,
        )]));
        // Lists, structs and maps of numbers.
        all.push(TypeSignature::UserDefined);
        let signature = Signature::one_of(all, Volatility::Immutable);
        Summing { which, signature, aliases: which.theirs().aliases().to_vec() }
    }

    /// The type of the answer over lists, structs or maps: the same of their numbers' answers.
    fn nested_answer(&self, of: &DataType) -> PlanResult<DataType> {
        let inner = |field: &FieldRef| -> PlanResult<FieldRef> {
            let of = field.data_type();
            let answer = match of {
                _ if state::is_nested(of) => self.nested_answer(of)?,
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

    /// How the values of a call are added up; none where it is left to DataFusion.
    fn way(&self, name: &str, argument: &DataType, answer: &DataType) -> Option<Way> {
        let is_mean = self.which == Which::Mean;
        if state::is_nested(argument) {
            let aggregate = Aggregate {
                function: self.which.function(),
                argument: Some(0),
                argument_type: argument.clone(),
                second: None,
                filter: None,
                output: Arc::new(Field::new(name, answer.clone(), true)),
                udf: self.which.theirs(),
            };
            return supports(&aggregate).then_some(Way::Nested(aggregate));
        }
        let number = wide_sums::number(argument, is_mean);
        let of_numbers = match argument {
            DataType::Duration(_) | DataType::Timestamp(_, _) | DataType::Time64(_) => {
                wide_sums::of_numbers(argument, is_mean)
            }
            _ => answer.clone(),
        };
        let aggregate = Aggregate {
            function: self.which.function(),
            argument: Some(0),
            argument_type: number.clone(),
            second: None,
            filter: None,
            output: Arc::new(Field::new(name, of_numbers, true)),
            udf: self.which.theirs(),
        };
        if !supports(&aggregate) {
            return Wide::of(name, is_mean, argument, answer).map(Way::Wide);
        }
        Some(match number == *argument {
            true => Way::Plain(aggregate),
            false => Way::Cast { aggregate, answer: answer.clone() },
        })
    }

    fn way_of(&self, args: &AccumulatorArgs<'_>) -> Option<Way> {
        let argument = args.expr_fields.first()?.data_type();
        self.way(args.name, argument, args.return_field.data_type())
    }
}

/// A list, struct or map whose numbers are as wide as they are added up, and whose lists have any length.
fn widened(of: &DataType) -> DataType {
    let inner = |field: &FieldRef| -> FieldRef {
        let of = widened(field.data_type());
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

/// How the values of one call are added up.
#[derive(Debug, Clone)]
enum Way {
    /// As the states of partial tables.
    Plain(Aggregate),
    /// So, once they are cast to the aggregate's argument's type.
    Cast { aggregate: Aggregate, answer: DataType },
    /// Element by element, as the states of partial tables.
    Nested(Aggregate),
    /// In a sum of no other form.
    Wide(Wide),
}

impl Way {
    /// The call over values of a type that states hold, if they do.
    fn aggregate(&self) -> Option<&Aggregate> {
        match self {
            Way::Plain(aggregate) | Way::Cast { aggregate, .. } | Way::Nested(aggregate) => {
                Some(aggregate)
            }
            Way::Wide(_) => None,
        }
    }

    fn cast<A: ?Sized>(aggregate: &Aggregate, answer: &DataType, inner: Box<A>) -> Cast<A> {
        Cast {
            name: aggregate.output.name().clone(),
            number: aggregate.argument_type.clone(),
            answer: answer.clone(),
            inner,
        }
    }

    /// The sum of one group.
    fn one_group(&self) -> PlanResult<Box<dyn Accumulator>> {
        Ok(match self {
            Way::Plain(aggregate) => Box::new(Total::new(aggregate.clone())),
            Way::Nested(aggregate) => Box::new(OneGroup::new(aggregate.clone(), None)?),
            Way::Cast { aggregate, answer } => {
                let total: Box<dyn Accumulator> = Box::new(Total::new(aggregate.clone()));
                Box::new(Self::cast(aggregate, answer, total))
            }
            Way::Wide(wide) => Box::new(wide.clone()),
        })
    }

    /// The sums of many groups, where they have an accumulator for all of them.
    fn groups(&self) -> PlanResult<Option<Box<dyn GroupsAccumulator>>> {
        Ok(match self {
            Way::Plain(aggregate) | Way::Nested(aggregate) => {
                Some(Box::new(Groups::new(aggregate.clone())?))
            }
            Way::Cast { aggregate, answer } => {
                let groups: Box<dyn GroupsAccumulator> = Box::new(Groups::new(aggregate.clone())?);
                Some(Box::new(Self::cast(aggregate, answer, groups)))
            }
            Way::Wide(_) => None,
        })
    }
}

impl AggregateUDFImpl for Summing {
    fn name(&self) -> &str {
        match self.which {
            Which::Sum => aggregates::SUM,
            Which::Mean => aggregates::AVG,
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
            [of] if state::is_nested(of) => {
                let of = widened(of);
                self.nested_answer(&of)?;
                Ok(vec![of])
            }
            _ => match (self.which, given.first().and_then(interpolated_time_type)) {
                (Which::Mean, Some(time)) if given.len() == 1 => Ok(vec![time]),
                (Which::Mean, _) => plan_err!(
                    "`{}` takes numbers, times, and lists, structs and maps of numbers",
                    self.name()
                ),
                (Which::Sum, _) => plan_err!(
                    "`{}` takes numbers, and lists, structs and maps of numbers",
                    self.name()
                ),
            },
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        let is_mean = self.which == Which::Mean;
        if let [of] = arguments
            && state::is_nested(of)
        {
            return self.nested_answer(of);
        }
        if let (Which::Mean, [of]) = (self.which, arguments)
            && interpolated_time_type(of).as_ref() == Some(of)
        {
            return Ok(of.clone());
        }
        let settled = arguments.iter().map(|argument| wide_sums::settled(argument, is_mean));
        self.which.theirs().return_type(&settled.collect::<Vec<_>>())
    }

    fn documentation(&self) -> Option<&Documentation> {
        // Theirs lives as long as the program.
        static SUM: std::sync::LazyLock<Arc<AggregateUDF>> = std::sync::LazyLock::new(sum_udaf);
        static MEAN: std::sync::LazyLock<Arc<AggregateUDF>> = std::sync::LazyLock::new(avg_udaf);
        match self.which {
            Which::Sum => SUM.documentation(),
            Which::Mean => MEAN.documentation(),
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
            return self.which.theirs().state_fields(args);
        };
        let argument = argument.data_type();
        let Some(way) = self.way(args.name, argument, args.return_field.data_type()) else {
            return self.which.theirs().state_fields(args);
        };
        let name = format_state_name(args.name, "state");
        if args.is_distinct {
            let item = Field::new_list_field(argument.clone(), true);
            return Ok(vec![Arc::new(Field::new(name, DataType::List(Arc::new(item)), true))]);
        }
        let aggregate = match &way {
            Way::Plain(aggregate) | Way::Cast { aggregate, .. } => aggregate,
            Way::Nested(aggregate) => {
                let kept = kept_type(aggregate).map_err(into_datafusion_error)?;
                return Ok(vec![Arc::new(Field::new(name, kept, true))]);
            }
            Way::Wide(wide) => return Ok(wide.state_fields()),
        };
        let kept = kept_type(aggregate).map_err(into_datafusion_error)?;
        let value = format_state_name(args.name, "value");
        Ok(vec![
            Arc::new(Field::new(name, kept, true)),
            Arc::new(Field::new(value, aggregate.argument_type.clone(), true)),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        match (self.way_of(&args), args.expr_fields.first()) {
            (Some(way), Some(argument)) if args.is_distinct => {
                Ok(Box::new(Distinct::new(argument.data_type(), move || way.one_group())))
            }
            (Some(way), _) => way.one_group(),
            (None, _) => self.which.theirs().accumulator(args),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        match self.way_of(&args) {
            Some(_) => self.accumulator(args),
            None => self.which.theirs().create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match self.way_of(&args) {
            Some(way) => !args.is_distinct && way.aggregate().is_some(),
            None => self.which.theirs().groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        match self.way_of(&args) {
            Some(way) => way.groups()?.ok_or_else(|| {
                into_datafusion_error(Error::Internal(
                    "sums of groups that are added up one by one".into(),
                ))
            }),
            None => self.which.theirs().create_groups_accumulator(args),
        }
    }
}

// ── one group ────────────────────────────────────────────────────────────────────────────

/// What values add up to.
#[derive(Clone)]
enum Exact {
    /// Integers, and decimals' unscaled integers. No number of rows overflows 256 bits.
    Integers(i256),
    Floats(Floats),
}

/// What floats add up to: the finite ones, and how many there are of the others, so that they can be taken
/// back too.
#[derive(Clone, Default)]
struct Floats {
    finite: FloatSum,
    nan: u64,
    up: u64,
    down: u64,
}

impl Floats {
    fn change(&mut self, value: f64, back: bool) {
        let special = match value {
            value if value.is_finite() => {
                self.finite.add(if back { -value } else { value });
                return;
            }
            f64::INFINITY => &mut self.up,
            f64::NEG_INFINITY => &mut self.down,
            _ => &mut self.nan,
        };
        *special = if back { *special - 1 } else { *special + 1 };
    }

    fn value(&self) -> f64 {
        match (self.nan, self.up, self.down) {
            (0, 0, 0) => self.finite.value(),
            (0, _, 0) => f64::INFINITY,
            (0, 0, _) => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

/// The sum of one group, from which values can be taken back.
struct Total {
    aggregate: Aggregate,
    sum: Exact,
    count: u64,
}

impl std::fmt::Debug for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Total").field("function", &self.aggregate.function).finish_non_exhaustive()
    }
}

/// A column's values as one of three types that are added up.
fn plain(values: &ArrayRef) -> PlanResult<ArrayRef> {
    let plain = match values.data_type() {
        DataType::UInt64 | DataType::Int64 | DataType::Float64 | DataType::Decimal128(_, _) => {
            return Ok(Arc::clone(values));
        }
        integer if integer.is_integer() => DataType::Int64,
        _ => DataType::Float64,
    };
    Ok(cast_with_options(values, &plain, &STRICT_CAST_OPTIONS)?)
}

impl Total {
    fn new(aggregate: Aggregate) -> Self {
        let sum = match &aggregate.argument_type {
            DataType::Decimal128(_, _) => Exact::Integers(i256::ZERO),
            argument if argument.is_integer() => Exact::Integers(i256::ZERO),
            _ => Exact::Floats(Floats::default()),
        };
        Total { aggregate, sum, count: 0 }
    }

    fn overflow(&self) -> Error {
        state::overflow(self.aggregate.output.name(), self.aggregate.output.data_type())
    }

    /// Adds values, or takes them back.
    fn change(&mut self, values: &ArrayRef, back: bool) -> PlanResult<()> {
        let values = plain(values)?;
        let change = (values.len() - values.logical_null_count()) as u64;
        self.count = if back { self.count - change } else { self.count + change };
        match &mut self.sum {
            Exact::Integers(sum) => {
                let more = match values.data_type() {
                    DataType::UInt64 => {
                        wide(values.as_primitive::<UInt64Type>().iter().flatten().map(i128::from))
                    }
                    DataType::Decimal128(_, _) => {
                        let values = values.as_primitive::<Decimal128Type>().iter().flatten();
                        values.map(i256::from_i128).fold(i256::ZERO, i256::wrapping_add)
                    }
                    _ => wide(values.as_primitive::<Int64Type>().iter().flatten().map(i128::from)),
                };
                *sum = if back { sum.wrapping_sub(more) } else { sum.wrapping_add(more) };
            }
            Exact::Floats(sum) => {
                let values = values.as_primitive::<Float64Type>().iter().flatten();
                values.for_each(|value| sum.change(value, back));
            }
        }
        Ok(())
    }

    /// A sum in 128 bits, which all answers but means of decimals fit.
    fn narrow(&self, sum: i256) -> Result<i128> {
        sum.to_i128().ok_or_else(|| self.overflow())
    }

    fn answer(&self) -> Result<ScalarValue> {
        let answer = self.aggregate.output.data_type();
        if self.count == 0 {
            return ScalarValue::try_from(answer).into_tidemill_error();
        }
        let is_mean = self.aggregate.function == Function::Mean;
        let sum = match &self.sum {
            Exact::Floats(sum) => {
                let sum = sum.value();
                let value = if is_mean { sum / self.count as f64 } else { sum };
                return Ok(ScalarValue::Float64(Some(value)));
            }
            Exact::Integers(sum) => *sum,
        };
        if let (DataType::Decimal128(precision, to), DataType::Decimal128(_, from), true) =
            (answer, &self.aggregate.argument_type, is_mean)
        {
            let count = i64::try_from(self.count).map_err(|_| self.overflow())?;
            let mean = state::decimal_mean(sum, count, *from, *to, *precision);
            let mean = mean.ok_or_else(|| self.overflow())?;
            return Ok(ScalarValue::Decimal128(Some(mean), *precision, *to));
        }
        let sum = self.narrow(sum)?;
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
        fitted.ok_or_else(|| self.overflow())
    }

    /// The state that groups would have.
    fn states(&self) -> Result<States> {
        if self.count == 0 {
            return state::column(&self.aggregate)?.take(1);
        }
        let sum = match &self.sum {
            Exact::Integers(sum) => States::Array(state::sum_state(
                *sum,
                matches!(self.aggregate.argument_type, DataType::Decimal128(_, _)),
            )),
            Exact::Floats(Floats { finite, nan, up, down }) => {
                let mut sum = finite.clone();
                // How many there are of them does not matter to a sum that only grows.
                for (value, count) in
                    [(f64::NAN, nan), (f64::INFINITY, up), (f64::NEG_INFINITY, down)]
                {
                    if *count > 0 {
                        sum.add(value);
                    }
                }
                States::FloatSum(vec![Some(sum)])
            }
        };
        if self.aggregate.function != Function::Mean {
            return Ok(sum);
        }
        let count = i64::try_from(self.count).map_err(|_| self.overflow())?;
        let count = States::Array(Arc::new(Int64Array::from(vec![count])));
        Ok(States::Pair(Box::new(sum), Box::new(count)))
    }

    fn merge(&mut self, states: &States) -> Result<()> {
        let unexpected = || Error::Internal("a sum of another kind".into());
        let (sums, counts) = match states {
            States::Pair(sums, counts) => (sums.as_ref(), Some(counts.as_ref())),
            sums => (sums, None),
        };
        let seen = match (&mut self.sum, sums) {
            (Exact::Integers(sum), States::Array(array)) => {
                let sums = state::whole_sums(array).into_iter().flatten();
                sums.for_each(|more| *sum = sum.wrapping_add(more));
                (array.len() - array.null_count()) as u64
            }
            (Exact::Floats(floats), States::FloatSum(sums)) => {
                sums.iter().flatten().for_each(|sum| floats.finite.merge(sum));
                sums.iter().flatten().count() as u64
            }
            _ => return Err(unexpected()),
        };
        self.count += match counts {
            Some(States::Array(counts)) => {
                let counts = counts.as_primitive_opt::<Int64Type>().ok_or_else(unexpected)?;
                counts.values().iter().map(|count| count.cast_unsigned()).sum()
            }
            Some(_) => return Err(unexpected()),
            None => seen,
        };
        Ok(())
    }
}

// ── from a group's first row on ─────────────────────────────────────────────────────────────────────────────

/// The sums, or means, of each group's rows up to the end of each of its steps, where they are of an aggregate
/// of these and of integers or floats. Groups and steps are told by where they begin, and the end.
pub(crate) fn running(
    aggregate: &AggregateFunctionExpr,
    values: &ArrayRef,
    groups: &[u32],
    steps: &[u32],
) -> PlanResult<Option<ArrayRef>> {
    let function: &dyn Any = aggregate.fun().inner().as_ref();
    let Some(function) = function.downcast_ref::<Summing>() else { return Ok(None) };
    let answer = aggregate.field().data_type().clone();
    let Some(Way::Plain(of)) = function.way(aggregate.name(), values.data_type(), &answer) else {
        return Ok(None);
    };
    let is_mean = of.function == Function::Mean;
    let values = plain(values)?;
    let steps = Steps { values: &values, groups, steps };
    let overflow =
        || into_datafusion_error(state::overflow(of.output.name(), of.output.data_type()));
    let whole = |sum: &i128, _| i64::try_from(*sum).map_err(|_| overflow());
    let without_sign = |sum: &i128, _| u64::try_from(*sum).map_err(|_| overflow());
    let mean = |sum: &i128, count| Ok(*sum as f64 / count as f64);
    let float =
        |sum: &Floats, count| Ok(if is_mean { sum.value() / count as f64 } else { sum.value() });
    let signed = |sum: &mut i128, value: i64| *sum += i128::from(value);
    let unsigned = |sum: &mut i128, value: u64| *sum += i128::from(value);
    let floats = |sum: &mut Floats, value| sum.change(value, false);
    Ok(Some(match (values.data_type(), &answer) {
        (DataType::Float64, DataType::Float64) => {
            Arc::new(Float64Array::from(steps.each::<Float64Type, _, _>(floats, float)?))
        }
        (DataType::Int64, DataType::Int64) => {
            Arc::new(Int64Array::from(steps.each::<Int64Type, _, _>(signed, whole)?))
        }
        (DataType::UInt64, DataType::UInt64) => {
            Arc::new(UInt64Array::from(steps.each::<UInt64Type, _, _>(unsigned, without_sign)?))
        }
        (DataType::Int64, DataType::Float64) if is_mean => {
            Arc::new(Float64Array::from(steps.each::<Int64Type, _, _>(signed, mean)?))
        }
        (DataType::UInt64, DataType::Float64) if is_mean => {
            Arc::new(Float64Array::from(steps.each::<UInt64Type, _, _>(unsigned, mean)?))
        }
        _ => return Ok(None),
    }))
}

/// Values of which sums go on from step to step, and begin anew with each group.
struct Steps<'a> {
    values: &'a ArrayRef,
    groups: &'a [u32],
    steps: &'a [u32],
}

impl Steps<'_> {
    /// Of each step what its group's sum and count of values make then, if there are any.
    fn each<T: ArrowPrimitiveType, S: Default, A>(
        &self,
        add: impl Fn(&mut S, T::Native),
        answer: impl Fn(&S, u64) -> PlanResult<A>,
    ) -> PlanResult<Vec<Option<A>>> {
        let numbers = self.values.as_primitive::<T>().values();
        let mut steps = self.steps.windows(2).peekable();
        let mut found = Vec::with_capacity(self.steps.len());
        for group in self.groups.windows(2) {
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

/// A batch's sum: 64-bit values do not overflow 128 bits.
fn wide(values: impl Iterator<Item = i128>) -> i256 {
    i256::from_i128(values.sum())
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.change(&values[0], false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.change(&values[0], true)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        self.answer().map_err(into_datafusion_error)
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + match &self.sum {
                Exact::Integers(_) => 0,
                Exact::Floats(floats) => floats.finite.heap_bytes(),
            }
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let states =
            self.states().and_then(|states| states.encode()).map_err(into_datafusion_error)?;
        let value = ScalarValue::try_from(&self.aggregate.argument_type)?;
        Ok(vec![ScalarValue::try_from_array(&states, 0)?, value])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        self.change(&states[1], false)?;
        let present = match present(&states[0]) {
            Some(present) => filter(&states[0], &present)?,
            None => Arc::clone(&states[0]),
        };
        let column = state::column(&self.aggregate).map_err(into_datafusion_error)?;
        let states = column.decode(&present).map_err(into_datafusion_error)?;
        self.merge(&states).map_err(into_datafusion_error)
    }
}
