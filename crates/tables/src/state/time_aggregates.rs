//! States of `avg`, `median` and percentiles of times, which are the states of the same aggregates of
//! integers.
//!
//! A time is a number of its unit since 1970 or midnight. The states take such numbers as DECIMAL(19,0). The
//! answer is rounded once to the unit, half away from zero, as DataFusion's path does.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, TimeUnit};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::{Error, Result};

use super::{ChunkStates, GroupedRows, StateColumn, StateRoutes, new_state_column, overflow_error};
use crate::aggregates::wide_sums::TIME_NUMBER_TYPE;
use crate::spec::{MergeableFunction, TableAggregate};

/// The states of an aggregate over times, which are those of the same aggregate over numbers.
pub(super) struct TimeAsNumberStates {
    number_states: Box<dyn StateColumn>,
    output_field: FieldRef,
}

impl TimeAsNumberStates {
    /// Creates an empty column.
    ///
    /// # Errors
    /// Returns an error if the aggregate is not over times.
    pub(super) fn new(aggregate: &TableAggregate) -> Result<Self> {
        let numbers = to_number_aggregate(aggregate).ok_or_else(|| {
            Error::Internal(format!("{} over {}", aggregate.function, aggregate.argument_type))
        })?;
        Ok(TimeAsNumberStates {
            number_states: new_state_column(&numbers)?,
            output_field: Arc::clone(&aggregate.output_field),
        })
    }
}

/// Returns the same aggregate over the numbers of the times, or `None` for an aggregate that is not a mean,
/// median or percentile of times with an answer of the same type.
pub(super) fn to_number_aggregate(aggregate: &TableAggregate) -> Option<TableAggregate> {
    let argument = &aggregate.argument_type;
    let is_time = matches!(
        argument,
        DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, _) | DataType::Time64(_)
    );
    let answer = match &aggregate.function {
        MergeableFunction::Mean => DataType::Decimal128(38, 0),
        MergeableFunction::Median | MergeableFunction::Percentile { .. } => TIME_NUMBER_TYPE,
        _ => return None,
    };
    (is_time && aggregate.output_field.data_type() == argument).then(|| TableAggregate {
        argument_type: TIME_NUMBER_TYPE,
        output_field: Arc::new(Field::new(aggregate.output_field.name(), answer, true)),
        ..aggregate.clone()
    })
}

/// Returns times as numbers of their units.
fn times_to_numbers(times: &ArrayRef) -> Result<ArrayRef> {
    let units = cast_with_options(times, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
    Ok(cast_with_options(&units, &TIME_NUMBER_TYPE, &STRICT_CAST_OPTIONS)?)
}

/// Returns numbers of units as times.
///
/// # Errors
/// Returns [`Error::Overflow`] for a number of more than 64 bits.
fn numbers_to_times(numbers: &ArrayRef, output: &Field) -> Result<ArrayRef> {
    let numbers =
        numbers.as_primitive::<Decimal128Type>().clone().with_precision_and_scale(38, 0)?;
    let units = cast_with_options(&numbers, &DataType::Int64, &STRICT_CAST_OPTIONS)
        .map_err(|_| overflow_error(output.name(), output.data_type()))?;
    Ok(cast_with_options(&units, output.data_type(), &STRICT_CAST_OPTIONS)?)
}

impl StateColumn for TimeAsNumberStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let numbers = rows.argument_values.map(times_to_numbers).transpose()?;
        self.number_states.update(&GroupedRows { argument_values: numbers.as_ref(), ..*rows })
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.number_states.merge(states, routes)
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        self.number_states.take_states(group_count)
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        self.number_states.decode(array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        numbers_to_times(&self.number_states.finish(group_count)?, &self.output_field)
    }

    fn evaluate_in_place(&mut self) -> Result<Option<ArrayRef>> {
        let answer = self.number_states.evaluate_in_place()?;
        answer.map(|numbers| numbers_to_times(&numbers, &self.output_field)).transpose()
    }

    fn finish_shared_aggregates(
        &mut self,
        group_count: usize,
        of: &[&TableAggregate],
    ) -> Result<Vec<ArrayRef>> {
        let numbers: Vec<TableAggregate> =
            of.iter().filter_map(|of| to_number_aggregate(of)).collect();
        let answers = self
            .number_states
            .finish_shared_aggregates(group_count, &numbers.iter().collect::<Vec<_>>())?;
        answers
            .iter()
            .zip(of)
            .map(|(numbers, of)| numbers_to_times(numbers, &of.output_field))
            .collect()
    }

    fn memory_bytes(&self) -> usize {
        self.number_states.memory_bytes()
    }
}
