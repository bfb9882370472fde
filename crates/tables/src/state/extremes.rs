//! The smallest and largest values.

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

use super::seen::Seen;
use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::spec::{Aggregate, Function};
use crate::value;

/// The smallest or largest of numbers, dates, times and booleans. NaN is the largest float,
/// −0.0 is 0.0.
///
/// DataFusion's accumulators will not do here: without a null in sight they take every group
/// for one that has a value, which is true of groups that rows make, but not of groups whose
/// rows were seen by another aggregate's filter, or of an answer over no rows.
pub(super) struct Extreme<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    seen: Seen,
    is_max: bool,
    /// The type that is compared: the argument's, but for booleans.
    inner: DataType,
    argument: DataType,
    name: &'static str,
}

pub(super) fn extreme(aggregate: &Aggregate) -> Result<Box<dyn StateColumn>> {
    let argument = &aggregate.argument_type;
    let inner = match argument {
        DataType::Boolean => DataType::UInt8,
        other => other.clone(),
    };
    macro_rules! primitive {
        ($t:ty, $aggregate:expr, $inner:expr) => {
            Ok(Box::new(Extreme::<$t>::new($aggregate, $inner.clone())))
        };
    }
    downcast_primitive! {
        &inner => (primitive, aggregate, inner),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary
        | DataType::LargeBinary | DataType::BinaryView => {
            Ok(Box::new(ExtremeText::new(aggregate)?))
        }
        _ => Err(Error::Internal(format!("{} over {argument}", aggregate.function))),
    }
}

pub(super) fn extreme_name(aggregate: &Aggregate) -> &'static str {
    if aggregate.function == Function::Min { "min" } else { "max" }
}

impl<T: ArrowPrimitiveType> Extreme<T> {
    fn new(aggregate: &Aggregate, inner: DataType) -> Self {
        Extreme {
            values: Vec::new(),
            seen: Seen::default(),
            is_max: aggregate.function == Function::Max,
            inner,
            argument: aggregate.argument_type.clone(),
            name: extreme_name(aggregate),
        }
    }

    /// A group without a value holds the one that any other is better than.
    fn resize(&mut self, group_count: usize) {
        let worst =
            if self.is_max { T::Native::MIN_TOTAL_ORDER } else { T::Native::MAX_TOTAL_ORDER };
        self.values.resize(group_count, worst);
    }

    fn compared(&self, values: &ArrayRef) -> Result<ArrayRef> {
        value::cast_to(&float_order::normalize_floats(values), &self.inner)
    }
}

impl<T: ArrowPrimitiveType> StateColumn for Extreme<T> {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        let values = self.compared(rows.values()?)?;
        let values = values.as_primitive::<T>();
        let (nulls, numbers) = (values.nulls(), values.values());
        let (held, seen) = (&mut self.values, &mut self.seen);
        match self.is_max {
            true => rows.each_state(nulls, held, seen, |held, row, _| larger(held, numbers[row])),
            false => rows.each_state(nulls, held, seen, |held, row, _| smaller(held, numbers[row])),
        }
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let States::Array(array) = states else { return Err(mismatch(self.name)) };
        let values = self.compared(array)?;
        let values = values.as_primitive::<T>();
        let (nulls, numbers) = (values.nulls(), values.values());
        let (held, seen) = (&mut self.values, &mut self.seen);
        match self.is_max {
            true => routes.each_state(nulls, held, seen, |held, row, _| larger(held, numbers[row])),
            false => {
                routes.each_state(nulls, held, seen, |held, row, _| smaller(held, numbers[row]));
            }
        }
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.finish(group_count).map(States::Array)
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        values_of(self.name, &self.argument, array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.resize(group_count);
        let values = std::mem::take(&mut self.values);
        let array = PrimitiveArray::<T>::new(values.into(), self.seen.take(group_count));
        let array: ArrayRef = Arc::new(array.with_data_type(self.inner.clone()));
        value::cast_to(&array, &self.argument)
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.seen.bytes()
    }
}

#[inline]
fn larger<N: ArrowNativeTypeOp>(held: &mut N, value: N) {
    if value.is_gt(*held) {
        *held = value;
    }
}

#[inline]
fn smaller<N: ArrowNativeTypeOp>(held: &mut N, value: N) {
    if value.is_lt(*held) {
        *held = value;
    }
}

pub(super) fn values_of(name: &str, argument: &DataType, array: &ArrayRef) -> Result<States> {
    if array.data_type() != argument {
        return Err(refused(name, format!("values of type {argument} are expected")));
    }
    Ok(States::Array(Arc::clone(array)))
}

/// The smallest or largest of strings or bytes. The state is that value; comparing is left to
/// DataFusion's accumulators, which know of each group whether it has one.
pub(super) struct ExtremeText {
    accumulator: Box<dyn GroupsAccumulator>,
    argument: DataType,
    name: &'static str,
}

impl ExtremeText {
    fn new(aggregate: &Aggregate) -> Result<Self> {
        let argument = Arc::new(Field::new("value", aggregate.argument_type.clone(), true));
        let fields: [FieldRef; 1] = [Arc::clone(&argument)];
        let schema = Schema::new(vec![argument]);
        let exprs: [Arc<dyn PhysicalExpr>; 1] = [Arc::new(Column::new("value", 0))];
        let args = || AccumulatorArgs {
            return_field: Arc::clone(&aggregate.output),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: aggregate.output.name(),
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
        Ok(ExtremeText {
            accumulator: aggregate.udf.create_groups_accumulator(args()).into_tidemill_error()?,
            argument: aggregate.argument_type.clone(),
            name: extreme_name(aggregate),
        })
    }

    fn settle(&mut self, group_count: usize) -> Result<()> {
        let nothing = new_empty_array(&self.argument);
        self.accumulator.merge_batch(&[nothing], &[], group_count).into_tidemill_error()
    }
}

impl StateColumn for ExtremeText {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        let values = [Arc::clone(rows.values()?)];
        self.accumulator
            .update_batch(&values, rows.groups, rows.filter, rows.group_count)
            .into_tidemill_error()
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        let States::Array(array) = states else { return Err(mismatch(self.name)) };
        let values = if routes.rows.len() == array.len()
            && routes.rows.iter().enumerate().all(|(i, row)| i == *row as usize)
        {
            Arc::clone(array)
        } else {
            take(array, &UInt32Array::from(routes.rows.to_vec()), None)?
        };
        self.accumulator
            .merge_batch(&[values], routes.groups, routes.group_count)
            .into_tidemill_error()
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.settle(group_count)?;
        let mut states = self.accumulator.state(EmitTo::All).into_tidemill_error()?;
        match (states.pop(), states.is_empty()) {
            (Some(array), true) => Ok(States::Array(array)),
            _ => Err(Error::Internal(format!("{} has more than one state", self.name))),
        }
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        values_of(self.name, &self.argument, array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.settle(group_count)?;
        self.accumulator.evaluate(EmitTo::All).into_tidemill_error()
    }

    fn bytes(&self) -> usize {
        self.accumulator.size()
    }
}
