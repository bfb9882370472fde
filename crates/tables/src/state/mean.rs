//! Means: a sum and a count.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::{DataType, Int64Type, i256};
use tidemill_base::error::{Error, Result};

use super::count::Count;
use super::sums::{overflow, whole_sums};
use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::spec::Aggregate;

pub(super) struct Mean {
    name: String,
    sum: Box<dyn StateColumn>,
    count: Count,
    argument: DataType,
    output: DataType,
}

impl Mean {
    /// The mean of what `sum` adds up.
    pub(super) fn new(aggregate: &Aggregate, sum: Box<dyn StateColumn>) -> Self {
        Mean {
            name: aggregate.output.name().clone(),
            sum,
            count: Count::new(DataType::Int64),
            argument: aggregate.argument_type.clone(),
            output: aggregate.output.data_type().clone(),
        }
    }

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
