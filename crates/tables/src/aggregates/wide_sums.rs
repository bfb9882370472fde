//! Sums and means of types that the states of partial tables do not hold.
//!
//! Durations, times and narrow decimals are added up as numbers that those states hold
//! ([`CastingAccumulator`]). Intervals, by their months, days and nanoseconds, and decimals of more than 38
//! digits are added up in 256 bits with a count of overflows ([`WideAccumulator`]): only the answer is
//! checked against its type, not intermediate sums.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal256Array, Int64Array, UInt64Array,
};
use arrow::compute::cast_with_options;
use arrow::datatypes::{
    DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Field, FieldRef, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, UInt64Type, i256,
};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::{Error, Result};
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_sql::IntoTidemillError;

use crate::state;

/// Returns the type to which an argument is cast before DataFusion determines the type of its sum or mean.
pub(crate) fn normalize_argument_type(argument: &DataType, is_mean: bool) -> DataType {
    match argument {
        // A mean lies between its values, so microseconds suffice.
        DataType::Duration(TimeUnit::Second | TimeUnit::Millisecond) if is_mean => {
            DataType::Duration(TimeUnit::Microsecond)
        }
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Interval(_) => INTERVAL_TYPE,
        // A column without a value has the Null type; its state is one of floats.
        DataType::Null if !is_mean => DataType::Float64,
        other => other.clone(),
    }
}

/// The numeric type of times, in their units.
pub(crate) const TIME_NUMBER_TYPE: DataType = DataType::Decimal128(19, 0);

const INTERVAL_TYPE: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Returns the numeric type in which a duration or time is added up.
pub(crate) fn number_type(of: &DataType, is_mean: bool) -> DataType {
    match (of, is_mean) {
        (DataType::Duration(_), false) => DataType::Int64,
        (DataType::Duration(_) | DataType::Timestamp(_, _) | DataType::Time64(_), true) => {
            TIME_NUMBER_TYPE
        }
        (other, _) => normalize_argument_type(other, is_mean),
    }
}

/// Returns the type of the sum or mean of these numbers, for durations or times of type `argument`. A mean is
/// rounded once, to its unit.
pub(crate) fn number_answer_type(argument: &DataType, is_mean: bool) -> DataType {
    match (argument, is_mean) {
        (DataType::Duration(TimeUnit::Second), true) => DataType::Decimal128(38, 6),
        (DataType::Duration(TimeUnit::Millisecond), true) => DataType::Decimal128(38, 3),
        (_, true) => DataType::Decimal128(38, 0),
        (_, false) => DataType::Int64,
    }
}

fn overflow_error(name: &str, answer: &DataType) -> Error {
    let (of, hint) = match answer {
        DataType::Duration(TimeUnit::Nanosecond) => (
            "an interval of nanoseconds, which ends at 292 years",
            "cast the times to TIMESTAMP(6): microseconds reach a thousand times as far",
        ),
        DataType::Duration(_) | DataType::Interval(_) => ("INTERVAL", "add up fewer"),
        _ => return state::overflow_error(name, answer),
    };
    Error::Overflow {
        message: format!(
            "`{}` does not fit {of}",
            tidemill_dialect::column_names::strip_window_spec(name)
        ),
        hint: Some(hint.into()),
    }
}

// ── values cast to numbers ───────────────────────────────────────────────────────────────

/// An accumulator of numbers that casts its input to them and its answers back.
pub(crate) struct CastingAccumulator<A: ?Sized> {
    /// The call as written in SQL.
    pub call_name: String,
    pub number_type: DataType,
    pub answer_type: DataType,
    pub inner_accumulator: Box<A>,
}

impl<A: ?Sized> fmt::Debug for CastingAccumulator<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cast").field("name", &self.call_name).finish_non_exhaustive()
    }
}

impl<A: ?Sized> CastingAccumulator<A> {
    fn cast_to_numbers(&self, values: &[ArrayRef]) -> PlanResult<ArrayRef> {
        let Some(values) = values.first() else {
            return Err(into_datafusion_error(Error::Internal("a sum of nothing".into())));
        };
        let values = match values.data_type() {
            DataType::Duration(_) | DataType::Timestamp(_, _) | DataType::Time64(_) => {
                cast_with_options(values, &DataType::Int64, &STRICT_CAST_OPTIONS)?
            }
            _ => Arc::clone(values),
        };
        self.cast_or_overflow(&values, &self.number_type)
    }

    /// Casts values to a type; returns an overflow error that names the call if they do not fit a decimal.
    fn cast_or_overflow(&self, values: &ArrayRef, to: &DataType) -> PlanResult<ArrayRef> {
        cast_with_options(values, to, &STRICT_CAST_OPTIONS).map_err(|error| match to.is_decimal() {
            true => into_datafusion_error(overflow_error(&self.call_name, &self.answer_type)),
            false => error.into(),
        })
    }

    fn cast_answers(&self, sums: PlanResult<ArrayRef>) -> PlanResult<ArrayRef> {
        let sums = sums.map_err(|error| match error.into_tidemill_error() {
            Error::Overflow { .. } => {
                into_datafusion_error(overflow_error(&self.call_name, &self.answer_type))
            }
            other => into_datafusion_error(other),
        })?;
        let sums: ArrayRef = match (&self.answer_type, sums.as_primitive_opt::<Decimal128Type>()) {
            // The unscaled value is the number of units, whatever scale the division used.
            (
                DataType::Duration(_) | DataType::Timestamp(_, _) | DataType::Time64(_),
                Some(means),
            ) => {
                let units = means.clone().with_precision_and_scale(38, 0)?;
                cast_with_options(&units, &DataType::Int64, &STRICT_CAST_OPTIONS).map_err(|_| {
                    into_datafusion_error(overflow_error(&self.call_name, &self.answer_type))
                })?
            }
            _ => sums,
        };
        self.cast_or_overflow(&sums, &self.answer_type)
    }
}

impl Accumulator for CastingAccumulator<dyn Accumulator> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let numbers = self.cast_to_numbers(values)?;
        self.inner_accumulator.update_batch(&[numbers])
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let numbers = self.cast_to_numbers(values)?;
        self.inner_accumulator.retract_batch(&[numbers])
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner_accumulator.supports_retract_batch()
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let sum = self.inner_accumulator.evaluate().and_then(|sum| sum.to_array());
        ScalarValue::try_from_array(&self.cast_answers(sum)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner_accumulator.size()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        self.inner_accumulator.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        self.inner_accumulator.merge_batch(states)
    }
}

impl GroupsAccumulator for CastingAccumulator<dyn GroupsAccumulator> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> PlanResult<()> {
        let numbers = self.cast_to_numbers(values)?;
        self.inner_accumulator.update_batch(&[numbers], group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> PlanResult<ArrayRef> {
        let sums = self.inner_accumulator.evaluate(emit_to);
        self.cast_answers(sums)
    }

    fn state(&mut self, emit_to: EmitTo) -> PlanResult<Vec<ArrayRef>> {
        self.inner_accumulator.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> PlanResult<()> {
        self.inner_accumulator.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> PlanResult<Vec<ArrayRef>> {
        self.inner_accumulator.convert_to_state(&[self.cast_to_numbers(values)?], opt_filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner_accumulator.size()
    }
}

// ── sums in 256 bits ─────────────────────────────────────────────────────────────────────

/// A sum of any size, with 256 bits and a count of overflows.
#[derive(Debug, Clone, Copy, Default)]
struct WideSum {
    low: i256,
    /// Number of overflows of `low`, upwards minus downwards.
    overflow_count: i64,
}

impl WideSum {
    fn add(&mut self, value: i256, back: bool) {
        let before = self.low;
        let is_up = value.is_negative() == back;
        self.low = if back { before.wrapping_sub(value) } else { before.wrapping_add(value) };
        if is_up && self.low < before {
            self.overflow_count += 1;
        } else if !is_up && self.low > before {
            self.overflow_count -= 1;
        }
    }

    fn value(self) -> Option<i256> {
        (self.overflow_count == 0).then_some(self.low)
    }
}

/// The sum or mean of one group.
#[derive(Debug, Clone)]
pub(crate) struct WideAccumulator {
    call_name: String,
    is_mean: bool,
    argument_type: DataType,
    answer_type: DataType,
    /// The sums of an interval's months, days and nanoseconds; a decimal uses the last.
    part_sums: [WideSum; 3],
    value_count: u64,
}

/// Number of fields of a state.
const STATE_FIELD_COUNT: usize = 7;

impl WideAccumulator {
    /// Creates an empty accumulator; `None` for types that it does not add up.
    pub(crate) fn for_call(
        name: &str,
        is_mean: bool,
        argument: &DataType,
        answer: &DataType,
    ) -> Option<Self> {
        let is_ours = match (argument, answer) {
            (DataType::Decimal256(_, _), DataType::Decimal256(_, _)) => true,
            (DataType::Interval(_), answer) => !is_mean && *answer == INTERVAL_TYPE,
            _ => false,
        };
        is_ours.then(|| WideAccumulator {
            call_name: name.to_owned(),
            is_mean,
            argument_type: argument.clone(),
            answer_type: answer.clone(),
            part_sums: [WideSum::default(); 3],
            value_count: 0,
        })
    }

    /// Returns the fields of a state: for each part its sum and its overflow count, then the number of
    /// values.
    pub(crate) fn state_fields(&self) -> Vec<FieldRef> {
        let field = |of: &str, part: usize, data_type| {
            let name = format_state_name(&self.call_name, &format!("{of}{part}"));
            Arc::new(Field::new(name, data_type, true))
        };
        let parts = (0..3).flat_map(|part| {
            [field("low", part, WIDE_SUM_TYPE), field("high", part, DataType::Int64)]
        });
        parts.chain([field("count", 0, DataType::UInt64)]).collect()
    }

    fn update_sums(&mut self, values: &ArrayRef, back: bool) -> PlanResult<()> {
        let change = (values.len() - values.logical_null_count()) as u64;
        self.value_count = if back { self.value_count - change } else { self.value_count + change };
        let [months, days, last] = &mut self.part_sums;
        if let Some(values) = values.as_primitive_opt::<Decimal256Type>() {
            values.iter().flatten().for_each(|value| last.add(value, back));
            return Ok(());
        }
        let spans = cast_with_options(values, &INTERVAL_TYPE, &STRICT_CAST_OPTIONS)?;
        for span in spans.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            months.add(i256::from_i128(span.months.into()), back);
            days.add(i256::from_i128(span.days.into()), back);
            last.add(i256::from_i128(span.nanoseconds.into()), back);
        }
        Ok(())
    }

    fn compute_answer(&self) -> Result<ScalarValue> {
        if self.value_count == 0 {
            return ScalarValue::try_from(&self.answer_type).into_tidemill_error();
        }
        let too_large = || overflow_error(&self.call_name, &self.answer_type);
        let [months, days, last] = self.part_sums;
        let sum = last.value().ok_or_else(too_large)?;
        let (&DataType::Decimal256(precision, to), &DataType::Decimal256(_, from)) =
            (&self.answer_type, &self.argument_type)
        else {
            let whole = |part: WideSum| part.value().and_then(i256::to_i128).ok_or_else(too_large);
            let whole32 = |part| whole(part)?.try_into().map_err(|_| too_large());
            let nanoseconds = whole(last)?.try_into().map_err(|_| too_large())?;
            let span = IntervalMonthDayNano::new(whole32(months)?, whole32(days)?, nanoseconds);
            return Ok(ScalarValue::IntervalMonthDayNano(Some(span)));
        };
        let answer = match self.is_mean {
            false => Some(sum),
            true => state::compute_rounded_mean(sum, self.value_count, from, to),
        };
        let fits = |value: &i256| {
            let limit = i256::from_i128(10).checked_pow(precision.into());
            limit.is_some_and(|limit| *value < limit && *value > limit.wrapping_neg())
        };
        let answer = answer.filter(fits).ok_or_else(too_large)?;
        Ok(ScalarValue::Decimal256(Some(answer), precision, to))
    }
}

/// The type of a part's 256 bits, whatever its scale.
const WIDE_SUM_TYPE: DataType = DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0);

impl Accumulator for WideAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.update_sums(&values[0], false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.update_sums(&values[0], true)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        self.compute_answer().map_err(into_datafusion_error)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.call_name.capacity()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let parts = self.part_sums.iter().flat_map(|part| {
            let low = ScalarValue::Decimal256(Some(part.low), DECIMAL256_MAX_PRECISION, 0);
            [low, ScalarValue::Int64(Some(part.overflow_count))]
        });
        Ok(parts.chain([ScalarValue::UInt64(Some(self.value_count))]).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let unexpected = || into_datafusion_error(Error::Internal("a sum of another kind".into()));
        if states.len() != STATE_FIELD_COUNT {
            return Err(unexpected());
        }
        for (part, columns) in self.part_sums.iter_mut().zip(states.chunks(2)) {
            let lows: &Decimal256Array = columns[0].as_primitive_opt().ok_or_else(unexpected)?;
            let highs: &Int64Array =
                columns[1].as_primitive_opt::<Int64Type>().ok_or_else(unexpected)?;
            for (low, high) in lows.iter().zip(highs).filter_map(|(low, high)| low.zip(high)) {
                part.add(low, false);
                part.overflow_count += high;
            }
        }
        let counts: &UInt64Array =
            states[6].as_primitive_opt::<UInt64Type>().ok_or_else(unexpected)?;
        self.value_count += counts.iter().flatten().sum::<u64>();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Values whose sum overflows 256 bits and returns keep their exact sum.
        #[test]
        fn a_part_that_overflowed_on_the_way_is_right(
            values in prop::collection::vec((any::<i128>(), any::<i128>()), 0..40)
        ) {
            let values: Vec<i256> =
                values.into_iter().map(|(low, high)| i256::from_parts(low.cast_unsigned(), high)).collect();
            let mut part = WideSum::default();
            values.iter().for_each(|value| part.add(*value, false));
            // In two 128-bit limbs and an overflow count, by hand.
            let mut low = 0u128;
            let mut high = 0i128;
            let mut rest = 0i64;
            for value in &values {
                let (l, h) = value.to_parts();
                let (sum, carry) = low.overflowing_add(l);
                low = sum;
                let (sum, over) = high.overflowing_add(h);
                let (sum, more) = sum.overflowing_add(i128::from(carry));
                rest += i64::from(over) * if h < 0 { -1 } else { 1 } + i64::from(more);
                high = sum;
            }
            prop_assert_eq!((part.low, part.overflow_count), (i256::from_parts(low, high), rest));
            values.iter().for_each(|value| part.add(*value, true));
            prop_assert_eq!((part.low, part.overflow_count), (i256::ZERO, 0));
        }
    }
}
