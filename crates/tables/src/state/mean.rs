//! States of `avg`: a sum and a count.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::{DataType, Int64Type, i256};
use tidemill_base::error::{Error, Result};

use super::count::CountStates;
use super::sums::{overflow_error, to_wide_sums};
use super::{
    ChunkStates, GroupedRows, StateColumn, StateRoutes, corrupt_state_error, state_type_error,
};
use crate::spec::TableAggregate;

/// The sum and the count of each group.
pub(super) struct MeanStates {
    output_name: String,
    sum_states: Box<dyn StateColumn>,
    count_states: CountStates,
    argument_type: DataType,
    output_type: DataType,
}

impl MeanStates {
    /// Creates a mean whose sums are those of `sum`.
    pub(super) fn new(aggregate: &TableAggregate, sum: Box<dyn StateColumn>) -> Self {
        MeanStates {
            output_name: aggregate.output_field.name().clone(),
            sum_states: sum,
            count_states: CountStates::new(DataType::Int64),
            argument_type: aggregate.argument_type.clone(),
            output_type: aggregate.output_field.data_type().clone(),
        }
    }

    fn overflow_error(&self) -> Error {
        overflow_error(&self.output_name, &self.output_type)
    }
}

/// Returns the mean of `count` decimals of scale `from` whose sum is `sum`, rounded half away from zero to
/// scale `to`; `None` if it has more than `precision` digits.
pub(crate) fn compute_decimal_mean(
    sum: i256,
    count: i64,
    from: i8,
    to: i8,
    precision: u8,
) -> Option<i128> {
    let mean = compute_rounded_mean(sum, count.try_into().ok()?, from, to)?.to_i128()?;
    let limit = 10_u128.checked_pow(precision.into())?;
    (mean.unsigned_abs() < limit).then_some(mean)
}

/// Returns the same mean in 256 bits, without a limit of its precision.
pub(crate) fn compute_rounded_mean(sum: i256, count: u64, from: i8, to: i8) -> Option<i256> {
    let shift = u32::try_from(i32::from(to) - i32::from(from)).ok()?;
    let scale = i256::from_i128(10_i128.checked_pow(shift)?);
    let half = i256::from_i128(i128::from(count / 2));
    let count = i256::from_i128(i128::from(count));
    // Division comes before scaling: the scaled sum may need more than 256 bits, the mean does not.
    let (whole, rest) = (sum.checked_div(count)?, sum.checked_rem(count)?);
    let rest = rest.checked_mul(scale)?;
    let half = if rest.is_negative() { half.wrapping_neg() } else { half };
    let rounded = rest.checked_add(half)?.checked_div(count)?;
    whole.checked_mul(scale)?.checked_add(rounded)
}

impl StateColumn for MeanStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.sum_states.update(rows)?;
        self.count_states.update(rows)
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        let ChunkStates::SumAndCount(sum, count) = states else {
            return Err(state_type_error("mean"));
        };
        self.sum_states.merge(sum, routes)?;
        self.count_states.merge(count, routes)
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let sum = self.sum_states.take_states(group_count)?;
        Ok(ChunkStates::SumAndCount(
            Box::new(sum),
            Box::new(self.count_states.take_states(group_count)?),
        ))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        let pair = match array.as_struct_opt() {
            Some(pair) if pair.num_columns() == 2 && pair.null_count() == 0 => pair,
            _ => return Err(corrupt_state_error("mean", "a sum and a count are expected")),
        };
        let (sum, count) = (pair.column(0), pair.column(1));
        let states = ChunkStates::SumAndCount(
            Box::new(self.sum_states.decode(sum)?),
            Box::new(self.count_states.decode(count)?),
        );
        let counts = count.as_primitive::<Int64Type>().values();
        match counts.iter().enumerate().all(|(row, count)| sum.is_null(row) == (*count == 0)) {
            true => Ok(states),
            false => Err(corrupt_state_error(
                "mean",
                "there is a sum where nothing was counted, or none",
            )),
        }
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let ChunkStates::Array(counts) = self.count_states.take_states(group_count)? else {
            return Err(state_type_error("mean"));
        };
        let counts = counts.as_primitive::<Int64Type>().values();
        match self.sum_states.take_states(group_count)? {
            ChunkStates::FloatSums(sums) => {
                let means = sums
                    .iter()
                    .zip(counts)
                    .map(|(sum, count)| sum.as_ref().map(|sum| sum.value() / *count as f64));
                Ok(Arc::new(means.collect::<Float64Array>()))
            }
            ChunkStates::Array(sums) => {
                let pairs = to_wide_sums(&sums).into_iter().zip(counts);
                if let (DataType::Decimal128(_, from), DataType::Decimal128(precision, to)) =
                    (&self.argument_type, &self.output_type)
                {
                    let means = pairs.map(|(sum, count)| {
                        let mean = |sum| compute_decimal_mean(sum, *count, *from, *to, *precision);
                        sum.map(|sum| mean(sum).ok_or_else(|| self.overflow_error())).transpose()
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
            _ => Err(state_type_error("mean")),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.sum_states.memory_bytes() + self.count_states.memory_bytes()
    }
}
