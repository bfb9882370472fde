//! DataFusion accumulators over the states of aggregate tables: for many groups at once, for one group, and
//! for the distinct values of one group.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, new_null_array};
use arrow::compute::{cast_with_options, filter, not, nullif, prep_null_mask_filter};
use arrow::datatypes::{DataType, Field};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use parking_lot::Mutex;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Result;
use tidemill_dialect::error_translation::into_datafusion_error;

use crate::aggregates::precision_recorder::PrecisionRecorder;
use crate::state::{self, ChunkStates, StateColumn};
use crate::{MergeableFunction, TableAggregate};

/// Returns the Arrow type of an encoded state.
pub(crate) fn encoded_state_type(aggregate: &TableAggregate) -> Result<DataType> {
    Ok(state::new_state_column(aggregate)?.take_states(0)?.encode()?.data_type().clone())
}

/// Returns a mask of the rows of `states` that are not null; `None` if all rows are valid.
pub(crate) fn present_state_mask(states: &ArrayRef) -> Option<BooleanArray> {
    let nulls = states.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    Some(BooleanArray::new(nulls.into_inner(), None))
}

// ── many groups ──────────────────────────────────────────────────────────────────────────

/// A `GroupsAccumulator` over a state column.
///
/// Between DataFusion's partial and final step, each row carries an encoded state or, for sums and means, a
/// raw value: if there are about as many groups as rows, DataFusion skips the partial step, and a state per
/// value would be wasteful.
pub(crate) struct StateGroupsAccumulator {
    aggregate: TableAggregate,
    column: Box<dyn StateColumn>,
    group_count: usize,
}

impl StateGroupsAccumulator {
    pub(crate) fn new(aggregate: TableAggregate) -> PlanResult<Self> {
        let column = state::new_state_column(&aggregate).map_err(into_datafusion_error)?;
        Ok(StateGroupsAccumulator { aggregate, column, group_count: 0 })
    }

    fn can_pass_raw_values(&self) -> bool {
        matches!(self.aggregate.function, MergeableFunction::Sum | MergeableFunction::Mean)
            && !state::is_nested_type(&self.aggregate.argument_type)
    }

    /// Takes out all states, puts those beyond `emit_to` back, and returns the number of emitted groups with
    /// all states.
    fn take_first_states(&mut self, emit_to: EmitTo) -> PlanResult<(usize, ChunkStates)> {
        let all = self.column.take_states(self.group_count).map_err(into_datafusion_error)?;
        let first = match emit_to {
            EmitTo::All => self.group_count,
            EmitTo::First(first) => first.min(self.group_count),
        };
        let rest = self.group_count - first;
        self.group_count = rest;
        if rest > 0 {
            let rows: Vec<u32> = (first..first + rest).map(|row| row as u32).collect();
            let groups: Vec<usize> = (0..rest).collect();
            let routes =
                state::StateRoutes { incoming_rows: &rows, groups: &groups, group_count: rest };
            self.column.merge(&all, &routes).map_err(into_datafusion_error)?;
        }
        Ok((first, all))
    }
}

impl GroupsAccumulator for StateGroupsAccumulator {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> PlanResult<()> {
        self.group_count = total_num_groups;
        let rows = state::GroupedRows {
            argument_values: values.first(),
            second_values: values.get(1),
            filter: opt_filter,
            positions: None,
            groups: group_indices,
            group_count: total_num_groups,
        };
        self.column.update(&rows).map_err(into_datafusion_error)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> PlanResult<ArrayRef> {
        if let EmitTo::All = emit_to {
            let count = std::mem::take(&mut self.group_count);
            return self.column.finish(count).map_err(into_datafusion_error);
        }
        let (first, states) = self.take_first_states(emit_to)?;
        let mut answers =
            state::new_state_column(&self.aggregate).map_err(into_datafusion_error)?;
        let rows: Vec<u32> = (0..first as u32).collect();
        let groups: Vec<usize> = (0..first).collect();
        let routes =
            state::StateRoutes { incoming_rows: &rows, groups: &groups, group_count: first };
        answers.merge(&states, &routes).map_err(into_datafusion_error)?;
        answers.finish(first).map_err(into_datafusion_error)
    }

    fn state(&mut self, emit_to: EmitTo) -> PlanResult<Vec<ArrayRef>> {
        let (first, states) = self.take_first_states(emit_to)?;
        let mut travelling = vec![states.encode().map_err(into_datafusion_error)?.slice(0, first)];
        if self.can_pass_raw_values() {
            travelling.push(new_null_array(&self.aggregate.argument_type, first));
        }
        Ok(travelling)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> PlanResult<()> {
        self.group_count = total_num_groups;
        let states = &values[0];
        if let Some(plain) = values.get(1)
            && plain.logical_null_count() < plain.len()
        {
            let rows = state::GroupedRows {
                argument_values: Some(plain),
                second_values: None,
                filter: None,
                positions: None,
                groups: group_indices,
                group_count: total_num_groups,
            };
            self.column.update(&rows).map_err(into_datafusion_error)?;
        }
        let some = present_state_mask(states);
        let (states, groups) = match &some {
            None => (Arc::clone(states), Cow::Borrowed(group_indices)),
            Some(some) => {
                let groups = group_indices.iter().zip(some.values());
                let groups = groups.filter(|(_, is_state)| *is_state).map(|(group, _)| *group);
                (filter(states, some)?, Cow::Owned(groups.collect()))
            }
        };
        let states = self.column.decode(&states).map_err(into_datafusion_error)?;
        let rows: Vec<u32> = (0..groups.len() as u32).collect();
        // Unlike sketches, sums can merge several states into one group one after another.
        let routes = state::StateRoutes {
            incoming_rows: &rows,
            groups: &groups,
            group_count: total_num_groups,
        };
        self.column.merge(&states, &routes).map_err(into_datafusion_error)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> PlanResult<Vec<ArrayRef>> {
        if !self.can_pass_raw_values() {
            let mut column =
                state::new_state_column(&self.aggregate).map_err(into_datafusion_error)?;
            let (count, groups) = (values[0].len(), (0..values[0].len()).collect::<Vec<_>>());
            let rows = state::GroupedRows {
                argument_values: values.first(),
                second_values: values.get(1),
                filter: opt_filter,
                positions: None,
                groups: &groups,
                group_count: count,
            };
            column.update(&rows).map_err(into_datafusion_error)?;
            let states = column.take_states(count).and_then(|states| states.encode());
            return Ok(vec![states.map_err(into_datafusion_error)?]);
        }
        let values = match opt_filter {
            // A row that fails the filter becomes null.
            Some(wanted) => {
                let wanted = match wanted.null_count() {
                    0 => wanted.clone(),
                    _ => prep_null_mask_filter(wanted),
                };
                nullif(&values[0], &not(&wanted)?)?
            }
            None => Arc::clone(&values[0]),
        };
        let kept = encoded_state_type(&self.aggregate).map_err(into_datafusion_error)?;
        Ok(vec![new_null_array(&kept, values.len()), values])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.column.memory_bytes()
    }
}

// ── one group ────────────────────────────────────────────────────────────────────────────

/// An `Accumulator` over a state column of one group.
pub(crate) struct StateAccumulator {
    aggregate: TableAggregate,
    /// The states. The mutex makes the accumulator `Sync`; it is never contended.
    column: Mutex<Box<dyn state::StateColumn>>,
    /// The call's name in the plan, and the recorder of its answers' precision.
    precision_target: Option<(String, Arc<PrecisionRecorder>)>,
}

impl std::fmt::Debug for StateAccumulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OneGroup").field("function", &self.aggregate.function).finish()
    }
}

impl StateAccumulator {
    /// Creates an accumulator without rows.
    pub(crate) fn new(
        aggregate: TableAggregate,
        told: Option<(String, Arc<PrecisionRecorder>)>,
    ) -> PlanResult<Self> {
        let column =
            Mutex::new(state::new_state_column(&aggregate).map_err(into_datafusion_error)?);
        Ok(StateAccumulator { aggregate, column, precision_target: told })
    }

    fn merge_states(&mut self, states: &state::ChunkStates, count: usize) -> PlanResult<()> {
        for row in 0..count {
            let routes =
                state::StateRoutes { incoming_rows: &[row as u32], groups: &[0], group_count: 1 };
            self.column.get_mut().merge(states, &routes).map_err(into_datafusion_error)?;
        }
        Ok(())
    }
}

impl Accumulator for StateAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let groups = vec![0; values[0].len()];
        let second = self.aggregate.second_argument.as_ref();
        let rows = state::GroupedRows {
            argument_values: Some(&values[0]),
            second_values: second.and_then(|(place, _)| values.get(*place)),
            filter: None,
            positions: None,
            groups: &groups,
            group_count: 1,
        };
        self.column.get_mut().update(&rows).map_err(into_datafusion_error)
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let column = self.column.get_mut();
        if let Some((call, precisions)) = &self.precision_target
            && let Some(precision) = column.precision(&self.aggregate)
        {
            precisions.record_precision(call, &self.aggregate.function, precision);
        }
        // A window calls this for every row, so the states must remain.
        if let Some(answer) = column.evaluate_in_place().map_err(into_datafusion_error)? {
            return ScalarValue::try_from_array(&answer, 0);
        }
        let states = column.take_states(1).map_err(into_datafusion_error)?;
        let mut answer = state::new_state_column(&self.aggregate).map_err(into_datafusion_error)?;
        let all = state::StateRoutes { incoming_rows: &[0], groups: &[0], group_count: 1 };
        answer.merge(&states, &all).map_err(into_datafusion_error)?;
        self.merge_states(&states, 1)?;
        ScalarValue::try_from_array(&answer.finish(1).map_err(into_datafusion_error)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.column.lock().memory_bytes()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let states = self.column.get_mut().take_states(1).and_then(|states| states.encode());
        let states = states.map_err(into_datafusion_error)?;
        Ok(vec![ScalarValue::try_from_array(&states, 0)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let present = match present_state_mask(&states[0]) {
            Some(present) => filter(&states[0], &present)?,
            None => Arc::clone(&states[0]),
        };
        let decoded = self.column.get_mut().decode(&present).map_err(into_datafusion_error)?;
        self.merge_states(&decoded, present.len())
    }
}

// ── distinct values ──────────────────────────────────────────────────────────────────────

/// An accumulator over the distinct values of one group, with the number of occurrences of each.
pub(crate) struct DistinctAccumulator {
    accumulator_factory: Box<dyn Fn() -> PlanResult<Box<dyn Accumulator>> + Send + Sync>,
    argument_type: DataType,
    value_counts: HashMap<ScalarValue, u64>,
}

impl std::fmt::Debug for DistinctAccumulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Distinct").field("values", &self.value_counts.len()).finish_non_exhaustive()
    }
}

impl DistinctAccumulator {
    /// Creates an accumulator without values; `aggregate` creates the accumulator that takes the values at
    /// the end.
    pub(crate) fn new(
        argument: &DataType,
        aggregate: impl Fn() -> PlanResult<Box<dyn Accumulator>> + Send + Sync + 'static,
    ) -> Self {
        let (aggregate, argument) = (Box::new(aggregate), argument.clone());
        DistinctAccumulator {
            accumulator_factory: aggregate,
            argument_type: argument,
            value_counts: HashMap::new(),
        }
    }

    fn for_each_value(
        values: &ArrayRef,
        mut take: impl FnMut(ScalarValue) -> PlanResult<()>,
    ) -> PlanResult<()> {
        let values = tidemill_sql::float_order::normalize_floats(values);
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            take(ScalarValue::try_from_array(&values, row)?)?;
        }
        Ok(())
    }

    fn distinct_values(&self) -> PlanResult<ArrayRef> {
        match self.value_counts.is_empty() {
            true => Ok(arrow::array::new_empty_array(&self.argument_type)),
            false => ScalarValue::iter_to_array(self.value_counts.keys().cloned()),
        }
    }
}

impl Accumulator for DistinctAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        Self::for_each_value(&values[0], |value| {
            *self.value_counts.entry(value).or_insert(0) += 1;
            Ok(())
        })
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        Self::for_each_value(&values[0], |value| {
            if let Entry::Occupied(mut entry) = self.value_counts.entry(value) {
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
            Ok(())
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let mut total = (self.accumulator_factory)()?;
        total.update_batch(&[self.distinct_values()?])?;
        total.evaluate()
    }

    fn size(&self) -> usize {
        let entry = size_of::<(ScalarValue, u64)>() + 1;
        size_of_val(self) + self.value_counts.capacity() * entry
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let values = self.distinct_values()?;
        let item = Arc::new(Field::new_list_field(self.argument_type.clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::from_lengths([values.len()]);
        let values = cast_with_options(&values, item.data_type(), &STRICT_CAST_OPTIONS)?;
        let list = ListArray::try_new(item, offsets, values, None)?;
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let lists = states[0].as_list::<i32>();
        for list in lists.iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}
