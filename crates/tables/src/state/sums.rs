//! Sums: of integers in 128 bits, of decimals in 192, of floats without loss.

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
use tidemill_sketch::FloatSum;
use tidemill_sql::column_names::strip_window_spec;

use super::seen::Seen;
use super::sketches::{binary, booked};
use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::value;

/// The type integer sums travel in: 128 bits, of which no precision is asked.
pub(super) const WIDE: DataType = DataType::Decimal128(38, 0);

/// The type that sums of decimals travel in: 256 bits. Two values of 38 digits need more than 128.
pub(super) const WIDER: DataType = DataType::Decimal256(76, 0);

/// Sums of integers in 128 bits, of which the upper half is kept once one needs it.
pub(super) struct IntegerSum {
    name: String,
    /// Each sum's lower half, signed.
    low: Vec<i64>,
    /// What goes above it, in multiples of 2^64; as long as one has any.
    high: Vec<i64>,
    seen: Seen,
    output: DataType,
}

impl IntegerSum {
    pub(super) fn new(name: String, output: DataType) -> Self {
        IntegerSum { name, low: Vec::new(), high: Vec::new(), seen: Seen::default(), output }
    }

    #[cold]
    fn carry(high: &mut Vec<i64>, group: usize, count: i64) -> Result<()> {
        if high.len() <= group {
            high.resize(group + 1, 0);
        }
        let sum = high[group].checked_add(count);
        high[group] = sum.ok_or_else(|| refused("sum", "it exceeds 128 bits"))?;
        Ok(())
    }

    fn take_sums(&mut self, group_count: usize) -> Vec<i128> {
        self.low.resize(group_count, 0);
        let (low, high) = (std::mem::take(&mut self.low), std::mem::take(&mut self.high));
        let high = high.into_iter().chain(std::iter::repeat(0));
        low.into_iter()
            .zip(high)
            .map(|(low, high)| i128::from(low) + (i128::from(high) << 64))
            .collect()
    }
}

impl StateColumn for IntegerSum {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.low.resize(rows.group_count, 0);
        let values = rows.values()?;
        let high = &mut self.high;
        let mut failed = None;
        if let DataType::UInt64 = values.data_type() {
            let values = values.as_primitive::<UInt64Type>();
            let numbers = values.values();
            rows.each_state(values.nulls(), &mut self.low, &mut self.seen, |low, row, group| {
                let value = numbers[row].cast_signed();
                let (sum, overflowed) = low.overflowing_add(value);
                *low = sum;
                // What looks negative is 2^64 more.
                let carry =
                    i64::from(value < 0) + i64::from(overflowed) * if value < 0 { -1 } else { 1 };
                if carry != 0 {
                    failed = failed.take().or(Self::carry(high, group, carry).err());
                }
            });
        } else {
            let values = value::cast_to(values, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>();
            let numbers = values.values();
            rows.each_state(values.nulls(), &mut self.low, &mut self.seen, |low, row, group| {
                let (sum, overflowed) = low.overflowing_add(numbers[row]);
                *low = sum;
                if overflowed {
                    let carry = if numbers[row] < 0 { -1 } else { 1 };
                    failed = failed.take().or(Self::carry(high, group, carry).err());
                }
            });
        }
        failed.map_or(Ok(()), Err)
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.low.resize(routes.group_count, 0);
        let States::Array(array) = states else { return Err(mismatch("sum")) };
        let sums = array.as_primitive::<Decimal128Type>();
        let values = sums.values();
        let high = &mut self.high;
        let mut failed = None;
        routes.each_state(sums.nulls(), &mut self.low, &mut self.seen, |low, row, group| {
            #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
            let value = values[row] as i64;
            let (sum, overflowed) = low.overflowing_add(value);
            *low = sum;
            // The rest is a multiple of 2^64, and halved so often less than 2^64.
            let rest = ((values[row] - i128::from(value)) >> 64) as i64;
            let carries = [rest, i64::from(overflowed) * if value < 0 { -1 } else { 1 }];
            for carry in carries.into_iter().filter(|carry| *carry != 0) {
                failed = failed.take().or(Self::carry(high, group, carry).err());
            }
        });
        failed.map_or(Ok(()), Err)
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        let sums = self.take_sums(group_count);
        let nulls = self.seen.take(group_count);
        Ok(States::Array(Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(WIDE))))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        if array.data_type() != &WIDE {
            return Err(refused("sum", "128-bit sums are expected"));
        }
        Ok(States::Array(Arc::clone(array)))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        if self.high.is_empty() && self.output == DataType::Int64 {
            self.low.resize(group_count, 0);
            let sums = std::mem::take(&mut self.low);
            return Ok(Arc::new(Int64Array::new(sums.into(), self.seen.take(group_count))));
        }
        let sums = self.take_sums(group_count);
        let nulls = self.seen.take(group_count);
        answered(sums, nulls, &self.output).ok_or_else(|| overflow(&self.name, &self.output))
    }

    fn bytes(&self) -> usize {
        (self.low.capacity() + self.high.capacity()) * size_of::<i64>() + self.seen.bytes()
    }
}

/// Sums as the answer's type; none where one does not fit it.
fn answered(sums: Vec<i128>, nulls: Option<NullBuffer>, output: &DataType) -> Option<ArrayRef> {
    // The sum of nothing is 0, which fits.
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
pub(super) struct DecimalSum {
    name: String,
    sums: Vec<i128>,
    /// How often each sum went past 128 bits, upwards less downwards; as long as one did.
    carries: Vec<i64>,
    seen: Seen,
    output: DataType,
}

impl DecimalSum {
    pub(super) fn new(name: String, output: DataType) -> Self {
        let (sums, carries, seen) = (Vec::new(), Vec::new(), Seen::default());
        DecimalSum { name, sums, carries, seen, output }
    }

    fn add(sum: &mut i128, carries: &mut Vec<i64>, group: usize, value: i128) {
        let (added, overflowed) = sum.overflowing_add(value);
        *sum = added;
        if overflowed {
            Self::carry(carries, group, if value < 0 { -1 } else { 1 });
        }
    }

    #[cold]
    fn carry(carries: &mut Vec<i64>, group: usize, count: i64) {
        if carries.len() <= group {
            carries.resize(group + 1, 0);
        }
        // There are not so many rows as would wrap it.
        carries[group] = carries[group].wrapping_add(count);
    }

    /// A sum in 256 bits.
    fn whole(&self, group: usize) -> i256 {
        let sum = self.sums[group];
        let carry = self.carries.get(group).copied().unwrap_or(0);
        i256::from_parts(sum.cast_unsigned(), i128::from(carry) - i128::from(sum < 0))
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
        message: format!("`{}` does not fit {}", strip_window_spec(name), sql_type_name(output)),
        hint: Some("cast the argument to DOUBLE, or to a wider type".into()),
    }
}

impl StateColumn for DecimalSum {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.sums.resize(rows.group_count, 0);
        let values = rows.values()?.as_primitive::<Decimal128Type>();
        let numbers = values.values();
        let carries = &mut self.carries;
        rows.each_state(values.nulls(), &mut self.sums, &mut self.seen, |sum, row, group| {
            Self::add(sum, carries, group, numbers[row]);
        });
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.sums.resize(routes.group_count, 0);
        let States::Array(array) = states else { return Err(mismatch("sum")) };
        let sums = array.as_primitive::<Decimal256Type>();
        let carries = &mut self.carries;
        let mut failed = None;
        routes.each_state(sums.nulls(), &mut self.sums, &mut self.seen, |here, row, group| {
            let (low, high) = sums.value(row).to_parts();
            let sum = low.cast_signed();
            Self::add(here, carries, group, sum);
            match i64::try_from(high + i128::from(sum < 0)) {
                Ok(0) => {}
                Ok(carry) => Self::carry(carries, group, carry),
                Err(_) => failed = Some(refused("sum", "it exceeds 192 bits")),
            }
        });
        failed.map_or(Ok(()), Err)
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.sums.resize(group_count, 0);
        let sums: Vec<i256> = (0..group_count).map(|group| self.whole(group)).collect();
        (self.sums, self.carries) = (Vec::new(), Vec::new());
        let nulls = self.seen.take(group_count);
        Ok(States::Array(Arc::new(Decimal256Array::new(sums.into(), nulls).with_data_type(WIDER))))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        match array.data_type() {
            held if held == &WIDER => Ok(States::Array(Arc::clone(array))),
            // Up to version 2, sums of decimals had 128 bits, too.
            held if held == &WIDE => {
                let sums: Decimal256Array = whole_sums(array).into_iter().collect();
                Ok(States::Array(Arc::new(sums.with_data_type(WIDER))))
            }
            _ => Err(refused("sum", "128-bit sums are expected, of decimals 256-bit ones")),
        }
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.sums.resize(group_count, 0);
        let sums = std::mem::take(&mut self.sums);
        let nulls = self.seen.take(group_count);
        let is_past = std::mem::take(&mut self.carries).iter().any(|carry| *carry != 0);
        let answer = if is_past { None } else { answered(sums, nulls, &self.output) };
        answer.ok_or_else(|| overflow(&self.name, &self.output))
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<i128>()
            + self.carries.capacity() * size_of::<i64>()
            + self.seen.bytes()
    }
}

/// Exact sums of floats.
#[derive(Default)]
pub(super) struct FloatSums {
    sums: Vec<Option<FloatSum>>,
    heap: usize,
}

impl StateColumn for FloatSums {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.sums.resize_with(rows.group_count, || None);
        let values = value::cast_to(rows.values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let numbers = values.values();
        let heap = &mut self.heap;
        rows.each(values.nulls(), &mut self.sums, |sum, row, _| {
            let sum = sum.get_or_insert_default();
            if !sum.try_add_in_place(numbers[row]) {
                booked(sum, heap, FloatSum::heap_bytes, |sum| sum.add(numbers[row]));
            }
        });
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.sums.resize_with(routes.group_count, || None);
        let States::FloatSum(sums) = states else { return Err(mismatch("sum")) };
        let heap = &mut self.heap;
        routes.each(&mut self.sums, |here, row, _| {
            if let Some(sum) = &sums[row] {
                let here = here.get_or_insert_default();
                booked(here, heap, FloatSum::heap_bytes, |here| here.merge(sum));
            }
        });
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
