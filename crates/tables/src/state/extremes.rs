//! States of `min` and `max`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, PrimitiveArray, UInt32Array,
    downcast_primitive, new_empty_array,
};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use tidemill_base::error::{Error, Result};
use tidemill_sql::{IntoTidemillError, float_order};

use super::value_presence::ValuePresence;
use super::{
    ChunkStates, GroupedRows, StateColumn, StateRoutes, corrupt_state_error, state_type_error,
};
use crate::spec::{MergeableFunction, TableAggregate};
use crate::value_encoding;

/// Minimum or maximum of numbers, dates, times and booleans. NaN is the largest float; −0.0 equals 0.0.
///
/// DataFusion's accumulators do not work here: as long as they see no null, they assume that every group has
/// a value. That holds for groups that rows created, but not for groups whose rows only passed another
/// aggregate's filter, nor for an answer over no rows.
pub(super) struct ExtremeStates<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    presence: ValuePresence,
    is_max: bool,
    /// The type of the comparison: the argument's, except for booleans.
    comparison_type: DataType,
    argument_type: DataType,
    function_name: &'static str,
}

pub(super) fn new_extreme_column(aggregate: &TableAggregate) -> Result<Box<dyn StateColumn>> {
    let argument = &aggregate.argument_type;
    let inner = match argument {
        DataType::Boolean => DataType::UInt8,
        other => other.clone(),
    };
    macro_rules! primitive {
        ($t:ty, $aggregate:expr, $inner:expr) => {
            Ok(Box::new(ExtremeStates::<$t>::new($aggregate, $inner.clone())))
        };
    }
    downcast_primitive! {
        &inner => (primitive, aggregate, inner),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary
        | DataType::LargeBinary | DataType::BinaryView => {
            Ok(Box::new(TextExtremeStates::new(aggregate)?))
        }
        _ => Err(Error::Internal(format!("{} over {argument}", aggregate.function))),
    }
}

pub(super) fn extreme_function_name(aggregate: &TableAggregate) -> &'static str {
    if aggregate.function == MergeableFunction::Min { "min" } else { "max" }
}

impl<T: ArrowPrimitiveType> ExtremeStates<T> {
    fn new(aggregate: &TableAggregate, inner: DataType) -> Self {
        ExtremeStates {
            values: Vec::new(),
            presence: ValuePresence::default(),
            is_max: aggregate.function == MergeableFunction::Max,
            comparison_type: inner,
            argument_type: aggregate.argument_type.clone(),
            function_name: extreme_function_name(aggregate),
        }
    }

    /// Resizes the column. A group without a value holds the worst value, which any other replaces.
    fn resize(&mut self, group_count: usize) {
        let worst =
            if self.is_max { T::Native::MIN_TOTAL_ORDER } else { T::Native::MAX_TOTAL_ORDER };
        self.values.resize(group_count, worst);
    }

    fn to_comparison_type(&self, values: &ArrayRef) -> Result<ArrayRef> {
        value_encoding::cast_exactly(&float_order::normalize_floats(values), &self.comparison_type)
    }
}

impl<T: ArrowPrimitiveType> StateColumn for ExtremeStates<T> {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        let values = self.to_comparison_type(rows.required_values()?)?;
        let values = values.as_primitive::<T>();
        let (nulls, numbers) = (values.nulls(), values.values());
        let (held, seen) = (&mut self.values, &mut self.presence);
        match self.is_max {
            true => rows.update_states_and_presence(nulls, held, seen, |held, row, _| {
                replace_if_larger(held, numbers[row])
            }),
            false => rows.update_states_and_presence(nulls, held, seen, |held, row, _| {
                replace_if_smaller(held, numbers[row])
            }),
        }
        Ok(())
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let ChunkStates::Array(array) = states else {
            return Err(state_type_error(self.function_name));
        };
        let values = self.to_comparison_type(array)?;
        let values = values.as_primitive::<T>();
        let (nulls, numbers) = (values.nulls(), values.values());
        let (held, seen) = (&mut self.values, &mut self.presence);
        match self.is_max {
            true => routes.update_states_and_presence(nulls, held, seen, |held, row, _| {
                replace_if_larger(held, numbers[row])
            }),
            false => {
                routes.update_states_and_presence(nulls, held, seen, |held, row, _| {
                    replace_if_smaller(held, numbers[row])
                });
            }
        }
        Ok(())
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        self.finish(group_count).map(ChunkStates::Array)
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        decode_value_states(self.function_name, &self.argument_type, array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.resize(group_count);
        let values = std::mem::take(&mut self.values);
        let array = PrimitiveArray::<T>::new(values.into(), self.presence.take_nulls(group_count));
        let array: ArrayRef = Arc::new(array.with_data_type(self.comparison_type.clone()));
        value_encoding::cast_exactly(&array, &self.argument_type)
    }

    fn memory_bytes(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.presence.memory_bytes()
    }
}

#[inline]
fn replace_if_larger<N: ArrowNativeTypeOp>(held: &mut N, value: N) {
    if value.is_gt(*held) {
        *held = value;
    }
}

#[inline]
fn replace_if_smaller<N: ArrowNativeTypeOp>(held: &mut N, value: N) {
    if value.is_lt(*held) {
        *held = value;
    }
}

pub(super) fn decode_value_states(
    name: &str,
    argument: &DataType,
    array: &ArrayRef,
) -> Result<ChunkStates> {
    if array.data_type() != argument {
        return Err(corrupt_state_error(name, format!("values of type {argument} are expected")));
    }
    Ok(ChunkStates::Array(Arc::clone(array)))
}

/// Minimum or maximum of strings or bytes. The state is that value. DataFusion's accumulators compare; for
/// these types they know which groups have a value.
pub(super) struct TextExtremeStates {
    accumulator: Box<dyn GroupsAccumulator>,
    argument_type: DataType,
    function_name: &'static str,
}

impl TextExtremeStates {
    fn new(aggregate: &TableAggregate) -> Result<Self> {
        let argument = Arc::new(Field::new("value", aggregate.argument_type.clone(), true));
        let fields: [FieldRef; 1] = [Arc::clone(&argument)];
        let schema = Schema::new(vec![argument]);
        let exprs: [Arc<dyn PhysicalExpr>; 1] = [Arc::new(Column::new("value", 0))];
        let args = || AccumulatorArgs {
            return_field: Arc::clone(&aggregate.output_field),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: aggregate.output_field.name(),
            is_distinct: false,
            exprs: &exprs,
            expr_fields: &fields,
        };
        if !aggregate.udf.groups_accumulator_supported(args()) {
            return Err(Error::Internal(format!(
                "{} over {}",
                aggregate.function, aggregate.argument_type
            )));
        }
        Ok(TextExtremeStates {
            accumulator: aggregate.udf.create_groups_accumulator(args()).into_tidemill_error()?,
            argument_type: aggregate.argument_type.clone(),
            function_name: extreme_function_name(aggregate),
        })
    }

    fn extend_to_group_count(&mut self, group_count: usize) -> Result<()> {
        let nothing = new_empty_array(&self.argument_type);
        self.accumulator.merge_batch(&[nothing], &[], group_count).into_tidemill_error()
    }
}

impl StateColumn for TextExtremeStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        let values = [Arc::clone(rows.required_values()?)];
        self.accumulator
            .update_batch(&values, rows.groups, rows.filter, rows.group_count)
            .into_tidemill_error()
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        let ChunkStates::Array(array) = states else {
            return Err(state_type_error(self.function_name));
        };
        let values = if routes.incoming_rows.len() == array.len()
            && routes.incoming_rows.iter().enumerate().all(|(i, row)| i == *row as usize)
        {
            Arc::clone(array)
        } else {
            take(array, &UInt32Array::from(routes.incoming_rows.to_vec()), None)?
        };
        self.accumulator
            .merge_batch(&[values], routes.groups, routes.group_count)
            .into_tidemill_error()
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        self.extend_to_group_count(group_count)?;
        let mut states = self.accumulator.state(EmitTo::All).into_tidemill_error()?;
        match (states.pop(), states.is_empty()) {
            (Some(array), true) => Ok(ChunkStates::Array(array)),
            _ => Err(Error::Internal(format!("{} has more than one state", self.function_name))),
        }
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        decode_value_states(self.function_name, &self.argument_type, array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.extend_to_group_count(group_count)?;
        self.accumulator.evaluate(EmitTo::All).into_tidemill_error()
    }

    fn memory_bytes(&self) -> usize {
        self.accumulator.size()
    }
}
