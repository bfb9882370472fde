//! States of `bootstrap_sum`: sums with a confidence interval by resampling.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Builder, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type};
use tidemill_base::error::{Error, Result};
use tidemill_sketch::{BootstrapSum, SketchError};

use super::sketch_column::{BufferedSketchStates, SketchKind};
use super::{GroupedRows, state_type_error};
use crate::spec::{SketchPrecision, TableAggregate};
use crate::value_encoding;

/// The confidence level of the interval.
pub(crate) const BOOTSTRAP_CONFIDENCE: f64 = 0.95;

/// The sketch kind of bootstrap sums.
pub(super) struct BootstrapKind {
    empty_state: BootstrapSum,
    seed: u64,
}

impl BootstrapKind {
    pub(super) fn new(replicates: u16, seed: u64) -> Result<Self> {
        let empty =
            BootstrapSum::new(replicates).map_err(|error| Error::usage(error.to_string()))?;
        Ok(BootstrapKind { empty_state: empty, seed })
    }
}

/// The hash that stands for a NULL unit: all rows without a unit form one.
const NULL_UNIT: u64 = 0x9e37_79b9_7f4a_7c15;

impl SketchKind for BootstrapKind {
    type State = BootstrapSum;
    type Item = ();
    const NAME: &'static str = "bootstrap_sum";

    fn new_state(&self) -> BootstrapSum {
        self.empty_state.clone()
    }

    fn heap_bytes(state: &BootstrapSum) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut BootstrapSum, from: &mut BootstrapSum) {
        into.merge_owned(std::mem::take(from));
    }

    fn encode(state: &BootstrapSum, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<BootstrapSum, SketchError> {
        BootstrapSum::decode(bytes)
    }

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let values = value_encoding::cast_exactly(rows.required_values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let units = rows.second_values.ok_or_else(|| state_type_error(Self::NAME))?;
        let (hashes, of_units) = value_encoding::hash_values(units)?;
        states.update_each(rows, values.nulls(), |state, row| {
            // NULL is a unit of its own, as in GROUP BY, so that the sum includes all rows.
            let is_null = of_units.as_ref().is_some_and(|units| units.is_null(row));
            let unit = if is_null { NULL_UNIT } else { hashes[row] };
            state.add(unit, self.seed, values.value(row));
        });
        Ok(())
    }

    fn precision(_: &BootstrapSum, _: &TableAggregate) -> Option<SketchPrecision> {
        None
    }

    fn finish(&self, states: &[BootstrapSum], of: &TableAggregate) -> Result<ArrayRef> {
        let DataType::Struct(fields) = of.output_field.data_type() else {
            return Err(state_type_error(Self::NAME));
        };
        let mut columns: [Float64Builder; 4] =
            std::array::from_fn(|_| Float64Builder::with_capacity(states.len()));
        for state in states {
            let is_some = state.count() > 0;
            let interval = state.confidence_interval(BOOTSTRAP_CONFIDENCE).filter(|_| is_some);
            let [sum, error, low, high] = &mut columns;
            sum.append_option(is_some.then(|| state.sum()));
            error.append_option(is_some.then(|| state.standard_error()));
            low.append_option(interval.map(|(low, _)| low));
            high.append_option(interval.map(|(_, high)| high));
        }
        let present = NullBuffer::from_iter(states.iter().map(|state| state.count() > 0));
        let columns = columns.map(|mut column| Arc::new(column.finish()) as ArrayRef).into();
        Ok(Arc::new(StructArray::try_new(fields.clone(), columns, Some(present))?))
    }
}
