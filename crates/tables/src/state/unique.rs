//! Unique values, by HyperLogLog: how many there are (`unique`), or the sketch itself (`hll_sketch`).

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use tidemill_base::error::Result;
use tidemill_sketch::{CardinalityEstimator, Hll, SketchError};

use super::Rows;
use super::sketches::{Filled, SketchKind};
use super::stored::written;
use crate::spec::{Aggregate, Function, Precision};
use crate::value;

/// The relative standard error of what `hll_cardinality` makes of a sketch.
pub(super) fn published_error(hll: &Hll) -> f64 {
    match hll.estimate(CardinalityEstimator::Published) {
        estimate if estimate.value > 0.0 => estimate.standard_error / estimate.value,
        _ => hll.relative_standard_error(),
    }
}

pub(super) struct UniqueOf {
    empty: Hll,
}

impl UniqueOf {
    pub(super) fn new(empty: Hll) -> Self {
        UniqueOf { empty }
    }
}

impl SketchKind for UniqueOf {
    type State = Hll;
    type Item = u64;
    const NAME: &'static str = "unique";

    fn empty(&self) -> Hll {
        self.empty.clone()
    }

    fn heap(state: &Hll) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Hll, from: &mut Hll) {
        into.merge_owned(std::mem::take(from));
    }

    fn add_all(state: &mut Hll, hashes: &[u64]) {
        state.add_hashes(hashes);
    }

    fn encode(state: &Hll, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<Hll, SketchError> {
        Hll::decode(bytes)
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let (hashes, nulls) = value::hashes(rows.values()?)?;
        states.take_in(rows, nulls.as_ref(), &hashes, Hll::add_hash);
        Ok(())
    }

    fn precision(state: &Hll, of: &Aggregate) -> Option<Precision> {
        let error = match of.function {
            // What `hll_cardinality` makes of it.
            Function::HllSketch(_) => published_error(state),
            _ => state.relative_standard_error(),
        };
        Some(Precision::new(state.is_exact(), error))
    }

    fn finish(&self, states: &[Hll], of: &Aggregate) -> Result<ArrayRef> {
        if let Function::HllSketch(_) = of.function {
            return Ok(written(states.iter().map(Some)));
        }
        // Without the published estimator's bias, so that the error is the one that is stated.
        let counts = states.iter().map(|hll| {
            let count = hll.cardinality_with(CardinalityEstimator::Improved).round();
            #[expect(clippy::cast_possible_truncation, reason = "what is too much is the most")]
            let count = count as i64;
            count
        });
        let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
        value::cast_to(&counts, of.output.data_type())
    }
}
