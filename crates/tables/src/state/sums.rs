//! Sums: of integers in 128 bits, of decimals in 192, of floats without loss.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array,
    UInt64Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, i256};
use tidemill_base::error::{Error, Result};
use tidemill_base::types::sql_type;
use tidemill_sketch::FloatSum;
use tidemill_sql::names::call_of;

use super::sketches::{binary, booked};
use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::value;

/// The type integer sums travel in: 128 bits, of which no precision is asked.
pub(super) const WIDE: DataType = DataType::Decimal128(38, 0);

/// The type that sums of decimals travel in: 256 bits. Two values of 38 digits need more than 128.
pub(super) const WIDER: DataType = DataType::Decimal256(76, 0);

/// Sums of integers in 128 bits, or of a decimal's unscaled integers in 192.
pub(super) struct IntegerSum {
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
    pub(super) fn new(name: String, argument: &DataType, output: DataType) -> Self {
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
