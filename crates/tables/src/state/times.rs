//! Means, medians and percentiles of times, by the states of whole numbers.
//!
//! A time is a number of its unit since 1970 or midnight. These states take such numbers as DECIMAL(19,0), and the
//! answer is rounded once to a unit, half of one away from zero, as where DataFusion runs the aggregate.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, TimeUnit};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::{Error, Result};

use super::{Routes, Rows, StateColumn, States, column, overflow};
use crate::spec::{Aggregate, Function};
use crate::wide_sums::TIME_NUMBER;

/// The states of an aggregate of times, as those of the same aggregate of numbers.
pub(super) struct Times {
    numbers: Box<dyn StateColumn>,
    output: FieldRef,
}

impl Times {
    /// An empty column.
    ///
    /// # Errors
    /// If the aggregate is none of times.
    pub(super) fn new(aggregate: &Aggregate) -> Result<Self> {
        let numbers = over_numbers(aggregate).ok_or_else(|| {
            Error::Internal(format!("{} over {}", aggregate.function, aggregate.argument_type))
        })?;
        Ok(Times { numbers: column(&numbers)?, output: Arc::clone(&aggregate.output) })
    }
}

/// Returns the same aggregate over the numbers that times are, or `None` for an aggregate that is not a mean, median or
/// percentile of times whose answer is of the same type.
pub(super) fn over_numbers(aggregate: &Aggregate) -> Option<Aggregate> {
    let argument = &aggregate.argument_type;
    let is_time = matches!(
        argument,
        DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, _) | DataType::Time64(_)
    );
    let answer = match &aggregate.function {
        Function::Mean => DataType::Decimal128(38, 0),
        Function::Median | Function::Percentile { .. } => TIME_NUMBER,
        _ => return None,
    };
    (is_time && aggregate.output.data_type() == argument).then(|| Aggregate {
        argument_type: TIME_NUMBER,
        output: Arc::new(Field::new(aggregate.output.name(), answer, true)),
        ..aggregate.clone()
    })
}

/// Returns times as numbers of their units.
fn numbers_of(times: &ArrayRef) -> Result<ArrayRef> {
    let units = cast_with_options(times, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
    Ok(cast_with_options(&units, &TIME_NUMBER, &STRICT_CAST_OPTIONS)?)
}

/// Returns numbers of units as times.
///
/// # Errors
/// [`Error::Overflow`] for a number of more than 64 bits.
fn times_of(numbers: &ArrayRef, output: &Field) -> Result<ArrayRef> {
    let numbers =
        numbers.as_primitive::<Decimal128Type>().clone().with_precision_and_scale(38, 0)?;
    let units = cast_with_options(&numbers, &DataType::Int64, &STRICT_CAST_OPTIONS)
        .map_err(|_| overflow(output.name(), output.data_type()))?;
    Ok(cast_with_options(&units, output.data_type(), &STRICT_CAST_OPTIONS)?)
}

impl StateColumn for Times {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        let numbers = rows.values.map(numbers_of).transpose()?;
        self.numbers.update(&Rows { values: numbers.as_ref(), ..*rows })
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.numbers.merge(states, routes)
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.numbers.take(group_count)
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        self.numbers.decode(array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        times_of(&self.numbers.finish(group_count)?, &self.output)
    }

    fn answer_in_place(&mut self) -> Result<Option<ArrayRef>> {
        let answer = self.numbers.answer_in_place()?;
        answer.map(|numbers| times_of(&numbers, &self.output)).transpose()
    }

    fn finish_shared(&mut self, group_count: usize, of: &[&Aggregate]) -> Result<Vec<ArrayRef>> {
        let numbers: Vec<Aggregate> = of.iter().filter_map(|of| over_numbers(of)).collect();
        let answers =
            self.numbers.finish_shared(group_count, &numbers.iter().collect::<Vec<_>>())?;
        answers.iter().zip(of).map(|(numbers, of)| times_of(numbers, &of.output)).collect()
    }

    fn bytes(&self) -> usize {
        self.numbers.bytes()
    }
}
