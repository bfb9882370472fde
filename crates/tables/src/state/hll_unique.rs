//! States of `unique` (the number of distinct values) and `hll_sketch` (the sketch itself): HyperLogLogs.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use tidemill_base::error::Result;
use tidemill_sketch::{CardinalityEstimator, Hll, SketchError};

use super::GroupedRows;
use super::sketch_column::{BufferedSketchStates, SketchKind};
use super::stored_sketches::encode_hlls;
use crate::spec::{MergeableFunction, SketchPrecision, TableAggregate};
use crate::value_encoding;

/// Returns the relative standard error of the estimate that `hll_cardinality` computes from a sketch.
pub(super) fn compute_published_error(hll: &Hll) -> f64 {
    match hll.estimate(CardinalityEstimator::Published) {
        estimate if estimate.value > 0.0 => estimate.standard_error / estimate.value,
        _ => hll.relative_standard_error(),
    }
}

/// The sketch kind of HyperLogLogs.
pub(super) struct HllKind {
    empty_state: Hll,
}

impl HllKind {
    pub(super) fn new(empty: Hll) -> Self {
        HllKind { empty_state: empty }
    }
}

impl SketchKind for HllKind {
    type State = Hll;
    type Item = u64;
    const NAME: &'static str = "unique";

    fn new_state(&self) -> Hll {
        self.empty_state.clone()
    }

    fn heap_bytes(state: &Hll) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Hll, from: &mut Hll) {
        into.merge_owned(std::mem::take(from));
    }

    fn add_items(state: &mut Hll, hashes: &[u64]) {
        state.add_hashes(hashes);
    }

    fn encode(state: &Hll, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<Hll, SketchError> {
        Hll::decode(bytes)
    }

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let (hashes, nulls) = value_encoding::hash_values(rows.required_values()?)?;
        states.add_row_items(rows, nulls.as_ref(), &hashes, Hll::add_hash);
        Ok(())
    }

    fn precision(state: &Hll, of: &TableAggregate) -> Option<SketchPrecision> {
        let error = match of.function {
            // The error of the estimate that `hll_cardinality` computes from it.
            MergeableFunction::HllSketch(_) => compute_published_error(state),
            _ => state.relative_standard_error(),
        };
        Some(SketchPrecision::new(state.is_exact(), error))
    }

    fn finish(&self, states: &[Hll], of: &TableAggregate) -> Result<ArrayRef> {
        if let MergeableFunction::HllSketch(_) = of.function {
            return Ok(encode_hlls(states.iter().map(Some)));
        }
        // The improved estimator lacks the published one's bias, so the actual error is the stated one.
        let counts = states.iter().map(|hll| {
            let count = hll.cardinality_with(CardinalityEstimator::Improved).round();
            #[expect(clippy::cast_possible_truncation, reason = "what is too much is the most")]
            let count = count as i64;
            count
        });
        let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
        value_encoding::cast_exactly(&counts, of.output_field.data_type())
    }
}
