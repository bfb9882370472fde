//! States of `sum`: integers in 128 bits, decimals in 192 bits, floats without loss.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type, i256,
};
use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::{Error, Result};
use tidemill_dialect::column_names::strip_window_spec;
use tidemill_sketch::FloatSum;

use super::sketch_column::{expect_binary_states, update_and_count_heap};
use super::value_presence::ValuePresence;
use super::{
    ChunkStates, GroupedRows, StateColumn, StateRoutes, corrupt_state_error, state_type_error,
};
use crate::value_encoding;

/// Arrow type of integer sums in chunks: 128 bits, whose precision is not checked.
pub(super) const INTEGER_SUM_TYPE: DataType = DataType::Decimal128(38, 0);

/// Arrow type of decimal sums in chunks: 256 bits. The sum of two values of 38 digits needs more than 128.
pub(super) const DECIMAL_SUM_TYPE: DataType = DataType::Decimal256(76, 0);

/// Integer sums in 128 bits, whose upper halves are allocated once one of them is needed.
pub(super) struct IntegerSumStates {
    output_name: String,
    /// The lower half of each sum, signed.
    low_halves: Vec<i64>,
    /// The upper half of each sum, in multiples of 2^64; ends at the last group that needs one.
    high_halves: Vec<i64>,
    presence: ValuePresence,
    output_type: DataType,
}

impl IntegerSumStates {
    pub(super) fn new(name: String, output: DataType) -> Self {
        IntegerSumStates {
            output_name: name,
            low_halves: Vec::new(),
            high_halves: Vec::new(),
            presence: ValuePresence::default(),
            output_type: output,
        }
    }

    #[cold]
    fn add_carry(high: &mut Vec<i64>, group: usize, count: i64) -> Result<()> {
        if high.len() <= group {
            high.resize(group + 1, 0);
        }
        let sum = high[group].checked_add(count);
        high[group] = sum.ok_or_else(|| corrupt_state_error("sum", "it exceeds 128 bits"))?;
        Ok(())
    }

    fn take_sums(&mut self, group_count: usize) -> Vec<i128> {
        self.low_halves.resize(group_count, 0);
        let (low, high) =
            (std::mem::take(&mut self.low_halves), std::mem::take(&mut self.high_halves));
        let high = high.into_iter().chain(std::iter::repeat(0));
        low.into_iter()
            .zip(high)
            .map(|(low, high)| i128::from(low) + (i128::from(high) << 64))
            .collect()
    }
}

impl StateColumn for IntegerSumStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.low_halves.resize(rows.group_count, 0);
        let values = rows.required_values()?;
        let high = &mut self.high_halves;
        let mut failed = None;
        if let DataType::UInt64 = values.data_type() {
            let values = values.as_primitive::<UInt64Type>();
            let numbers = values.values();
            rows.update_states_and_presence(
                values.nulls(),
                &mut self.low_halves,
                &mut self.presence,
                |low, row, group| {
                    let value = numbers[row].cast_signed();
                    let (sum, overflowed) = low.overflowing_add(value);
                    *low = sum;
                    // A value that looks negative is 2^64 more.
                    let carry = i64::from(value < 0)
                        + i64::from(overflowed) * if value < 0 { -1 } else { 1 };
                    if carry != 0 {
                        failed = failed.take().or(Self::add_carry(high, group, carry).err());
                    }
                },
            );
        } else {
            let values = value_encoding::cast_exactly(values, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>();
            let numbers = values.values();
            rows.update_states_and_presence(
                values.nulls(),
                &mut self.low_halves,
                &mut self.presence,
                |low, row, group| {
                    let (sum, overflowed) = low.overflowing_add(numbers[row]);
                    *low = sum;
                    if overflowed {
                        let carry = if numbers[row] < 0 { -1 } else { 1 };
                        failed = failed.take().or(Self::add_carry(high, group, carry).err());
                    }
                },
            );
        }
        failed.map_or(Ok(()), Err)
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.low_halves.resize(routes.group_count, 0);
        let ChunkStates::Array(array) = states else { return Err(state_type_error("sum")) };
        let sums = array.as_primitive::<Decimal128Type>();
        let values = sums.values();
        let high = &mut self.high_halves;
        let mut failed = None;
        routes.update_states_and_presence(
            sums.nulls(),
            &mut self.low_halves,
            &mut self.presence,
            |low, row, group| {
                #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
                let value = values[row] as i64;
                let (sum, overflowed) = low.overflowing_add(value);
                *low = sum;
                // The difference is a multiple of 2^64; divided by 2^64 it fits 64 bits.
                let rest = ((values[row] - i128::from(value)) >> 64) as i64;
                let carries = [rest, i64::from(overflowed) * if value < 0 { -1 } else { 1 }];
                for carry in carries.into_iter().filter(|carry| *carry != 0) {
                    failed = failed.take().or(Self::add_carry(high, group, carry).err());
                }
            },
        );
        failed.map_or(Ok(()), Err)
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let sums = self.take_sums(group_count);
        let nulls = self.presence.take_nulls(group_count);
        Ok(ChunkStates::Array(Arc::new(
            Decimal128Array::new(sums.into(), nulls).with_data_type(INTEGER_SUM_TYPE),
        )))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        if array.data_type() != &INTEGER_SUM_TYPE {
            return Err(corrupt_state_error("sum", "128-bit sums are expected"));
        }
        Ok(ChunkStates::Array(Arc::clone(array)))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        if self.high_halves.is_empty() && self.output_type == DataType::Int64 {
            self.low_halves.resize(group_count, 0);
            let sums = std::mem::take(&mut self.low_halves);
            return Ok(Arc::new(Int64Array::new(
                sums.into(),
                self.presence.take_nulls(group_count),
            )));
        }
        let sums = self.take_sums(group_count);
        let nulls = self.presence.take_nulls(group_count);
        cast_sums(sums, nulls, &self.output_type)
            .ok_or_else(|| overflow_error(&self.output_name, &self.output_type))
    }

    fn memory_bytes(&self) -> usize {
        (self.low_halves.capacity() + self.high_halves.capacity()) * size_of::<i64>()
            + self.presence.memory_bytes()
    }
}

/// Casts sums to the answer's type; `None` if one does not fit.
fn cast_sums(sums: Vec<i128>, nulls: Option<NullBuffer>, output: &DataType) -> Option<ArrayRef> {
    // The slot of a null sum is 0, which fits.
    fn fit<T: TryFrom<i128>>(sums: &[i128]) -> Option<Vec<T>> {
        sums.iter().map(|sum| T::try_from(*sum).ok()).collect()
    }
    Some(match output {
        DataType::UInt64 => Arc::new(UInt64Array::new(fit(&sums)?.into(), nulls)),
        DataType::Decimal128(precision, scale) => {
            let limit = 10_u128.checked_pow((*precision).into())?;
            if sums.iter().any(|sum| sum.unsigned_abs() >= limit) {
                return None;
            }
            let sums = Decimal128Array::new(sums.into(), nulls);
            Arc::new(sums.with_precision_and_scale(*precision, *scale).ok()?)
        }
        _ => Arc::new(Int64Array::new(fit(&sums)?.into(), nulls)),
    })
}

/// Sums of decimals' unscaled integers, in 192 bits.
pub(super) struct DecimalSumStates {
    output_name: String,
    low_sums: Vec<i128>,
    /// Number of 128-bit overflows of each sum, upwards minus downwards; ends at the last group that has one.
    carries: Vec<i64>,
    presence: ValuePresence,
    output_type: DataType,
}

impl DecimalSumStates {
    pub(super) fn new(name: String, output: DataType) -> Self {
        let (sums, carries, seen) = (Vec::new(), Vec::new(), ValuePresence::default());
        DecimalSumStates {
            output_name: name,
            low_sums: sums,
            carries,
            presence: seen,
            output_type: output,
        }
    }

    fn add_value(sum: &mut i128, carries: &mut Vec<i64>, group: usize, value: i128) {
        let (added, overflowed) = sum.overflowing_add(value);
        *sum = added;
        if overflowed {
            Self::add_carry(carries, group, if value < 0 { -1 } else { 1 });
        }
    }

    #[cold]
    fn add_carry(carries: &mut Vec<i64>, group: usize, count: i64) {
        if carries.len() <= group {
            carries.resize(group + 1, 0);
        }
        // No input has enough rows to wrap it.
        carries[group] = carries[group].wrapping_add(count);
    }

    /// Returns a sum in 256 bits.
    fn wide_sum(&self, group: usize) -> i256 {
        let sum = self.low_sums[group];
        let carry = self.carries.get(group).copied().unwrap_or(0);
        i256::from_parts(sum.cast_unsigned(), i128::from(carry) - i128::from(sum < 0))
    }
}

/// Returns sums of either Arrow type in 256 bits.
pub(crate) fn to_wide_sums(array: &ArrayRef) -> Vec<Option<i256>> {
    match array.as_primitive_opt::<Decimal256Type>() {
        Some(sums) => sums.iter().collect(),
        None => {
            let sums = array.as_primitive::<Decimal128Type>().iter();
            sums.map(|sum| sum.map(i256::from_i128)).collect()
        }
    }
}

/// Encodes the state of one sum; `is_wider` chooses the type of decimal sums.
pub(crate) fn encode_sum_state(sum: i256, is_wider: bool) -> ArrayRef {
    match (is_wider, sum.to_i128()) {
        (false, Some(sum)) => {
            Arc::new(Decimal128Array::from(vec![sum]).with_data_type(INTEGER_SUM_TYPE))
        }
        _ => Arc::new(Decimal256Array::from(vec![sum]).with_data_type(DECIMAL_SUM_TYPE)),
    }
}

/// Returns the error for a sum or mean that does not fit the answer's type.
pub(crate) fn overflow_error(name: &str, output: &DataType) -> Error {
    Error::Overflow {
        message: format!("`{}` does not fit {}", strip_window_spec(name), sql_type_name(output)),
        hint: Some("cast the argument to DOUBLE, or to a wider type".into()),
    }
}

impl StateColumn for DecimalSumStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.low_sums.resize(rows.group_count, 0);
        let values = rows.required_values()?.as_primitive::<Decimal128Type>();
        let numbers = values.values();
        let carries = &mut self.carries;
        rows.update_states_and_presence(
            values.nulls(),
            &mut self.low_sums,
            &mut self.presence,
            |sum, row, group| {
                Self::add_value(sum, carries, group, numbers[row]);
            },
        );
        Ok(())
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.low_sums.resize(routes.group_count, 0);
        let ChunkStates::Array(array) = states else { return Err(state_type_error("sum")) };
        let sums = array.as_primitive::<Decimal256Type>();
        let carries = &mut self.carries;
        let mut failed = None;
        routes.update_states_and_presence(
            sums.nulls(),
            &mut self.low_sums,
            &mut self.presence,
            |here, row, group| {
                let (low, high) = sums.value(row).to_parts();
                let sum = low.cast_signed();
                Self::add_value(here, carries, group, sum);
                match i64::try_from(high + i128::from(sum < 0)) {
                    Ok(0) => {}
                    Ok(carry) => Self::add_carry(carries, group, carry),
                    Err(_) => failed = Some(corrupt_state_error("sum", "it exceeds 192 bits")),
                }
            },
        );
        failed.map_or(Ok(()), Err)
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        self.low_sums.resize(group_count, 0);
        let sums: Vec<i256> = (0..group_count).map(|group| self.wide_sum(group)).collect();
        (self.low_sums, self.carries) = (Vec::new(), Vec::new());
        let nulls = self.presence.take_nulls(group_count);
        Ok(ChunkStates::Array(Arc::new(
            Decimal256Array::new(sums.into(), nulls).with_data_type(DECIMAL_SUM_TYPE),
        )))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        match array.data_type() {
            held if held == &DECIMAL_SUM_TYPE => Ok(ChunkStates::Array(Arc::clone(array))),
            // Up to version 2 of partial tables, decimal sums had 128 bits, too.
            held if held == &INTEGER_SUM_TYPE => {
                let sums: Decimal256Array = to_wide_sums(array).into_iter().collect();
                Ok(ChunkStates::Array(Arc::new(sums.with_data_type(DECIMAL_SUM_TYPE))))
            }
            _ => Err(corrupt_state_error(
                "sum",
                "128-bit sums are expected, of decimals 256-bit ones",
            )),
        }
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.low_sums.resize(group_count, 0);
        let sums = std::mem::take(&mut self.low_sums);
        let nulls = self.presence.take_nulls(group_count);
        let is_past = std::mem::take(&mut self.carries).iter().any(|carry| *carry != 0);
        let answer = if is_past { None } else { cast_sums(sums, nulls, &self.output_type) };
        answer.ok_or_else(|| overflow_error(&self.output_name, &self.output_type))
    }

    fn memory_bytes(&self) -> usize {
        self.low_sums.capacity() * size_of::<i128>()
            + self.carries.capacity() * size_of::<i64>()
            + self.presence.memory_bytes()
    }
}

/// Exact sums of floats.
#[derive(Default)]
pub(super) struct FloatSumStates {
    sums: Vec<Option<FloatSum>>,
    heap_bytes: usize,
}

impl StateColumn for FloatSumStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.sums.resize_with(rows.group_count, || None);
        let values = value_encoding::cast_exactly(rows.required_values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let numbers = values.values();
        let heap = &mut self.heap_bytes;
        rows.update_states(values.nulls(), &mut self.sums, |sum, row, _| {
            let sum = sum.get_or_insert_default();
            if !sum.try_add_in_place(numbers[row]) {
                update_and_count_heap(sum, heap, FloatSum::heap_bytes, |sum| sum.add(numbers[row]));
            }
        });
        Ok(())
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.sums.resize_with(routes.group_count, || None);
        let ChunkStates::FloatSums(sums) = states else { return Err(state_type_error("sum")) };
        let heap = &mut self.heap_bytes;
        routes.merge_states(&mut self.sums, |here, row, _| {
            if let Some(sum) = &sums[row] {
                let here = here.get_or_insert_default();
                update_and_count_heap(here, heap, FloatSum::heap_bytes, |here| here.merge(sum));
            }
        });
        Ok(())
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let mut sums = std::mem::take(&mut self.sums);
        sums.resize_with(group_count, || None);
        self.heap_bytes = 0;
        Ok(ChunkStates::FloatSums(sums))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        let array = expect_binary_states("sum", array)?;
        array
            .iter()
            .map(|bytes| bytes.map(FloatSum::decode).transpose())
            .collect::<Result<_, _>>()
            .map(ChunkStates::FloatSums)
            .map_err(|e| corrupt_state_error("sum", e))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let ChunkStates::FloatSums(sums) = self.take_states(group_count)? else {
            return Err(state_type_error("sum"));
        };
        let values = sums.iter().map(|sum| sum.as_ref().map(FloatSum::value));
        Ok(Arc::new(values.collect::<Float64Array>()))
    }

    fn memory_bytes(&self) -> usize {
        self.sums.capacity() * size_of::<Option<FloatSum>>() + self.heap_bytes
    }
}
