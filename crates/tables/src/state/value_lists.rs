//! States of `median` and percentiles: all values of a group.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, LargeListArray, PrimitiveArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowNativeType, DataType, Decimal128Type, DecimalType, Field, FieldRef, Float32Type,
    Float64Type,
};
use tidemill_base::error::Result;
use tidemill_sql::percentiles::{percentile_of_array, percentile_of_floats, percentile_of_times};
use tidemill_sql::{IntoTidemillError, float_order};

use super::{
    ChunkStates, GroupedRows, StateColumn, StateRoutes, corrupt_state_error, state_type_error,
};
use crate::spec::{MergeableFunction, TableAggregate};
use crate::value_encoding;

/// A type whose values have a median.
pub(super) trait MedianValue: ArrowPrimitiveType {
    /// Returns the mean of two values in the answer's type; `None` if it does not fit. If `is_wider`, the
    /// answer has one more fractional digit than the values.
    fn between(left: Self::Native, right: Self::Native, is_wider: bool) -> Option<Self::Native>;
    /// Returns true if an answer fits its type.
    fn is_within_type(_answer: Self::Native, _of: &DataType) -> bool {
        true
    }
    /// Returns the percentile of integers, rounded once; `None` for floats and for no values.
    fn integer_percentile(_values: &[Self::Native], _share: f64) -> Option<Self::Native> {
        None
    }
    /// Compares two values; NaN is the largest.
    fn order(left: &Self::Native, right: &Self::Native) -> std::cmp::Ordering;
    /// Returns the value as a float, if it is one.
    fn float(_value: Self::Native) -> Option<f64> {
        None
    }
}

macro_rules! float {
    ($of:ty) => {
        impl MedianValue for $of {
            fn between(left: Self::Native, right: Self::Native, _: bool) -> Option<Self::Native> {
                let sum = left + right;
                Some(if sum.is_finite() { sum / 2.0 } else { left / 2.0 + right / 2.0 })
            }

            fn order(left: &Self::Native, right: &Self::Native) -> std::cmp::Ordering {
                left.total_cmp(right)
            }

            fn float(value: Self::Native) -> Option<f64> {
                Some(f64::from(value))
            }
        }
    };
}
float!(Float32Type);
float!(Float64Type);

impl MedianValue for Decimal128Type {
    fn between(left: i128, right: i128, is_wider: bool) -> Option<i128> {
        // The values are halved first: their sum may have more than 128 bits.
        let (half, rest) = (left / 2 + right / 2, left % 2 + right % 2);
        match is_wider {
            true => half.checked_mul(10)?.checked_add(rest * 5),
            // Times have no half units and decimals no 39th digit: half a unit is rounded away from zero.
            false => {
                let sum = left.checked_add(right)?;
                Some((sum + sum.signum()) / 2)
            }
        }
    }

    fn is_within_type(answer: i128, of: &DataType) -> bool {
        match of {
            DataType::Decimal128(precision, _) => {
                Decimal128Type::is_valid_decimal_precision(answer, *precision)
            }
            _ => true,
        }
    }

    fn integer_percentile(values: &[i128], share: f64) -> Option<i128> {
        // Times are 64-bit integers.
        let mut units: Vec<i64> = values.iter().filter_map(|it| i64::try_from(*it).ok()).collect();
        percentile_of_times(&mut units, share).map(i128::from)
    }

    fn order(left: &i128, right: &i128) -> std::cmp::Ordering {
        left.cmp(right)
    }
}

/// The values in arrival order, each with its group. Adding rows only appends; the values of each group are
/// brought together once at the end, by a counting sort.
pub(super) struct ValueListStates<T: MedianValue> {
    /// The function computed from the values if no other aggregate shares them.
    function: MergeableFunction,
    output_field: FieldRef,
    argument_type: DataType,
    values: Vec<T::Native>,
    /// The group of each value; empty while there is only one group.
    groups: Vec<u32>,
}

impl<T: MedianValue> ValueListStates<T> {
    pub(super) fn new(aggregate: &TableAggregate) -> Self {
        ValueListStates {
            function: aggregate.function.clone(),
            output_field: Arc::clone(&aggregate.output_field),
            argument_type: aggregate.argument_type.clone(),
            values: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Takes the offset of each group and all values by group, and leaves an empty column.
    fn take_by_group(&mut self, group_count: usize) -> (Vec<usize>, Vec<T::Native>) {
        let (values, groups) = (std::mem::take(&mut self.values), std::mem::take(&mut self.groups));
        let mut offsets = vec![0; group_count + 1];
        if groups.is_empty() {
            offsets[1..].fill(values.len());
            return (offsets, values);
        }
        for group in &groups {
            offsets[*group as usize + 1] += 1;
        }
        for group in 0..group_count {
            offsets[group + 1] += offsets[group];
        }
        let mut next = offsets.clone();
        let mut sorted = vec![T::Native::default(); values.len()];
        for (value, group) in values.into_iter().zip(groups) {
            let at = &mut next[group as usize];
            sorted[*at] = value;
            *at += 1;
        }
        (offsets, sorted)
    }

    /// Starts tracking each value's group once there are several groups; returns true if there are.
    fn track_groups(&mut self, group_count: usize) -> bool {
        if group_count > 1 && self.groups.is_empty() {
            self.groups.resize(self.values.len(), 0);
        }
        group_count > 1
    }

    fn item_field(&self) -> Arc<Field> {
        Arc::new(Field::new_list_field(self.argument_type.clone(), true))
    }
}

/// Sorts each list of values, so that equal values have equal bytes.
pub(super) fn sort_lists(lists: &ArrayRef) -> ArrayRef {
    fn sorted<T: MedianValue>(lists: &LargeListArray) -> ArrayRef {
        let values = lists.values().as_primitive::<T>();
        let mut sorted: Vec<T::Native> = values.values().to_vec();
        for ends in lists.offsets().windows(2) {
            sorted[ends[0].as_usize()..ends[1].as_usize()].sort_unstable_by(T::order);
        }
        let sorted = PrimitiveArray::<T>::new(sorted.into(), None);
        let sorted = sorted.with_data_type(values.data_type().clone());
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        Arc::new(LargeListArray::new(item, lists.offsets().clone(), Arc::new(sorted), None))
    }
    let lists = lists.as_list::<i64>();
    match lists.value_type() {
        DataType::Float32 => sorted::<Float32Type>(lists),
        DataType::Decimal128(_, _) => sorted::<Decimal128Type>(lists),
        _ => sorted::<Float64Type>(lists),
    }
}

impl<T: MedianValue> StateColumn for ValueListStates<T> {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let values = float_order::normalize_floats(rows.required_values()?);
        let values = values.as_primitive::<T>();
        let numbers = values.values();
        let are_several = self.track_groups(rows.group_count);
        let groups = rows.groups.iter().map(|group| *group as u32);
        match rows.selected_rows(values.nulls()) {
            None => {
                self.values.extend_from_slice(numbers);
                self.groups.extend(groups.filter(|_| are_several));
            }
            Some(selected) => {
                self.values.extend(selected.valid_indices().map(|row| numbers[row]));
                if are_several {
                    let groups = selected.valid_indices().map(|row| rows.groups[row] as u32);
                    self.groups.extend(groups);
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        let ChunkStates::ValueLists(lists) = states else { return Err(state_type_error("median")) };
        let lists = lists.as_list::<i64>();
        let (offsets, values) = (lists.offsets(), lists.values().as_primitive::<T>().values());
        let are_several = self.track_groups(routes.group_count);
        for (row, group) in routes.state_group_pairs() {
            let (start, end) = (offsets[row].as_usize(), offsets[row + 1].as_usize());
            self.values.extend_from_slice(&values[start..end]);
            if are_several {
                self.groups.extend(std::iter::repeat_n(group as u32, end - start));
            }
        }
        Ok(())
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        let (offsets, values) = self.take_by_group(group_count);
        let lengths = offsets.windows(2).map(|ends| ends[1] - ends[0]);
        let offsets = OffsetBuffer::from_lengths(lengths);
        let values = PrimitiveArray::<T>::new(values.into(), None);
        let values = Arc::new(values.with_data_type(self.argument_type.clone()));
        let lists = LargeListArray::try_new(self.item_field(), offsets, values, None)?;
        Ok(ChunkStates::ValueLists(Arc::new(lists)))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        let lists = array.as_list_opt::<i64>().filter(|lists| {
            lists.null_count() == 0
                && lists.value_type() == self.argument_type
                && lists.values().null_count() == 0
        });
        match lists {
            Some(_) => Ok(ChunkStates::ValueLists(Arc::clone(array))),
            None => Err(corrupt_state_error("median", "lists of values are expected")),
        }
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        let (offsets, mut values) = self.take_by_group(group_count);
        self.compute_answers(&self.function, &self.output_field, &offsets, &mut values)
    }

    fn finish_shared_aggregates(
        &mut self,
        group_count: usize,
        of: &[&TableAggregate],
    ) -> Result<Vec<ArrayRef>> {
        let (offsets, mut values) = self.take_by_group(group_count);
        of.iter()
            .map(|of| self.compute_answers(&of.function, &of.output_field, &offsets, &mut values))
            .collect()
    }

    fn evaluate_in_place(&mut self) -> Result<Option<ArrayRef>> {
        let is_wider = self.output_field.data_type() != &self.argument_type;
        let median = match compute_median::<T>(&mut self.values, is_wider) {
            Some(median) => Some(self.check_median(median, &self.output_field)?),
            None => None,
        };
        let median = PrimitiveArray::<T>::from_iter([median]);
        Ok(Some(Arc::new(median.with_data_type(self.output_field.data_type().clone()))))
    }

    fn memory_bytes(&self) -> usize {
        // The counting sort of several groups holds the values twice.
        let again = if self.groups.is_empty() { 0 } else { self.values.len() };
        (self.values.capacity() + again) * size_of::<T::Native>()
            + self.groups.capacity() * size_of::<u32>()
    }
}

impl<T: MedianValue> ValueListStates<T> {
    /// Computes the answers of a function; reorders the values within each group.
    fn compute_answers(
        &self,
        function: &MergeableFunction,
        output: &FieldRef,
        offsets: &[usize],
        values: &mut [T::Native],
    ) -> Result<ArrayRef> {
        if let (MergeableFunction::Percentile { fraction: share }, DataType::Decimal128(_, _)) =
            (function, &self.argument_type)
        {
            let answers = offsets
                .windows(2)
                .map(|ends| T::integer_percentile(&values[ends[0]..ends[1]], *share));
            let answers = PrimitiveArray::<T>::from_iter(answers);
            return Ok(Arc::new(answers.with_data_type(output.data_type().clone())));
        }
        if let MergeableFunction::Percentile { fraction: share } = function {
            let answers = offsets.windows(2).map(|ends| {
                let floats: Option<Vec<f64>> =
                    values[ends[0]..ends[1]].iter().map(|value| T::float(*value)).collect();
                if let Some(floats) = floats {
                    return Ok(percentile_of_floats(floats, *share));
                }
                let own =
                    PrimitiveArray::<T>::from_iter_values(values[ends[0]..ends[1]].iter().copied());
                percentile_of_array(&(Arc::new(own) as ArrayRef), *share).into_tidemill_error()
            });
            let answers: Float64Array = answers.collect::<Result<_>>()?;
            return value_encoding::cast_exactly(
                &(Arc::new(answers) as ArrayRef),
                &self.argument_type,
            );
        }
        let is_wider = output.data_type() != &self.argument_type;
        let group_count = offsets.len() - 1;
        let mut medians = Vec::with_capacity(group_count);
        let mut present = Vec::with_capacity(group_count);
        for ends in offsets.windows(2) {
            let median = compute_median::<T>(&mut values[ends[0]..ends[1]], is_wider);
            present.push(median.is_some());
            medians.push(match median {
                Some(median) => self.check_median(median, output)?,
                None => T::Native::default(),
            });
        }
        let medians = PrimitiveArray::<T>::new(medians.into(), Some(NullBuffer::from(present)));
        Ok(Arc::new(medians.with_data_type(output.data_type().clone())))
    }

    /// Returns the median if it fits the type of the answer.
    ///
    /// # Errors
    /// Returns [`Error::Overflow`](tidemill_base::error::Error::Overflow) if it does not, which values of 37 and more integer digits can cause.
    fn check_median(&self, median: Option<T::Native>, output: &FieldRef) -> Result<T::Native> {
        median
            .filter(|median| T::is_within_type(*median, output.data_type()))
            .ok_or_else(|| super::overflow_error(output.name(), output.data_type()))
    }
}

/// Returns the median of values: `None` without values, `Some(None)` if it does not fit its type.
#[allow(clippy::option_option)]
fn compute_median<T: MedianValue>(
    values: &mut [T::Native],
    is_wider: bool,
) -> Option<Option<T::Native>> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, T::order);
    match below.iter().max_by(|left, right| T::order(left, right)) {
        Some(lower) if is_even => Some(T::between(*lower, *upper, is_wider)),
        _ => Some(T::between(*upper, *upper, is_wider)),
    }
}
