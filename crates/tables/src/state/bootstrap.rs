//! Sums with the interval that resampling gives them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Builder, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type};
use tidemill_base::error::{Error, Result};
use tidemill_sketch::{BootstrapSum, SketchError};

use super::sketches::{Filled, SketchKind};
use super::{Rows, mismatch};
use crate::spec::{Aggregate, Precision};
use crate::value;

/// How sure the interval is.
pub(crate) const CONFIDENCE: f64 = 0.95;

pub(super) struct BootstrapOf {
    empty: BootstrapSum,
    seed: u64,
}

impl BootstrapOf {
    pub(super) fn new(replicates: u16, seed: u64) -> Result<Self> {
        let empty =
            BootstrapSum::new(replicates).map_err(|error| Error::usage(error.to_string()))?;
        Ok(BootstrapOf { empty, seed })
    }
}

/// What stands for the unit of rows that have none: all of them are one.
const NULL_UNIT: u64 = 0x9e37_79b9_7f4a_7c15;

impl SketchKind for BootstrapOf {
    type State = BootstrapSum;
    type Item = ();
    const NAME: &'static str = "bootstrap_sum";

    fn empty(&self) -> BootstrapSum {
        self.empty.clone()
    }

    fn heap(state: &BootstrapSum) -> usize {
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

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let values = value::cast_to(rows.values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let units = rows.second.ok_or_else(|| mismatch(Self::NAME))?;
        let (hashes, of_units) = value::hashes(units)?;
        states.each(rows, values.nulls(), |state, row| {
            // As in a GROUP BY, so that the sum is that of all rows.
            let is_null = of_units.as_ref().is_some_and(|units| units.is_null(row));
            let unit = if is_null { NULL_UNIT } else { hashes[row] };
            state.add(unit, self.seed, values.value(row));
        });
        Ok(())
    }

    fn precision(_: &BootstrapSum, _: &Aggregate) -> Option<Precision> {
        None
    }

    fn finish(&self, states: &[BootstrapSum], of: &Aggregate) -> Result<ArrayRef> {
        let DataType::Struct(fields) = of.output.data_type() else {
            return Err(mismatch(Self::NAME));
        };
        let mut columns: [Float64Builder; 4] =
            std::array::from_fn(|_| Float64Builder::with_capacity(states.len()));
        for state in states {
            let is_some = state.count() > 0;
            let interval = state.confidence_interval(CONFIDENCE).filter(|_| is_some);
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
