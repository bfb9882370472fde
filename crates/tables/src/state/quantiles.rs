//! States of `quantile` and `histogram`: histograms of adaptive precision.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Float64Builder, Int64Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Float64Type};
use tidemill_base::error::Result;
use tidemill_sketch::{QuantileLevel, Quantiles, SketchError};

use super::distinct_sample::build_struct_lists;
use super::sketch_column::{BufferedSketchStates, SketchKind};
use super::{GroupedRows, state_type_error};
use crate::spec::{MergeableFunction, SketchPrecision, TableAggregate};
use crate::value_encoding;

/// The sketch kind of quantile histograms.
pub(super) struct QuantilesKind;

impl SketchKind for QuantilesKind {
    type State = Quantiles;
    type Item = f64;
    const NAME: &'static str = "quantile";

    fn new_state(&self) -> Quantiles {
        Quantiles::default()
    }

    fn heap_bytes(state: &Quantiles) -> usize {
        state.heap_bytes()
    }

    fn merge(into: &mut Quantiles, from: &mut Quantiles) {
        into.merge_owned(std::mem::take(from));
    }

    fn add_items(state: &mut Quantiles, values: &[f64]) {
        state.add_all(values);
    }

    fn encode(state: &Quantiles, out: &mut Vec<u8>) {
        state.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<Quantiles, SketchError> {
        Quantiles::decode(bytes)
    }

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let values = value_encoding::cast_exactly(rows.required_values()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        states.add_row_items(rows, values.nulls(), values.values(), Quantiles::add);
        Ok(())
    }

    fn precision(state: &Quantiles, of: &TableAggregate) -> Option<SketchPrecision> {
        let MergeableFunction::Quantile { ranks, .. } = &of.function else { return None };
        if state.is_exact() {
            return Some(SketchPrecision::EXACT);
        }
        let widths = ranks.iter().filter_map(|rank| state.quantile_interval(*rank));
        let error = widths.map(|(low, high)| (high - low) / 2.0).fold(0.0, f64::max);
        let of_ranks = ranks.iter().filter_map(|rank| state.rank_error(*rank));
        Some(SketchPrecision {
            is_exact: false,
            error_max: error,
            rank_error_max: of_ranks.fold(0.0, f64::max),
        })
    }

    fn finish(&self, states: &[Quantiles], of: &TableAggregate) -> Result<ArrayRef> {
        if let MergeableFunction::Histogram { bars_max: bars } = of.function {
            return build_histograms(states, bars, of.output_field.data_type());
        }
        let MergeableFunction::Quantile { ranks, returns_list: list } = &of.function else {
            return Err(state_type_error("quantile"));
        };
        let mut numbers = Float64Builder::with_capacity(states.len() * ranks.len());
        let mut lengths = Vec::with_capacity(states.len());
        let mut present = Vec::with_capacity(states.len());
        let shares: Vec<_> = ranks.iter().map(|rank| QuantileLevel::new(*rank)).collect();
        let mut answers = Vec::with_capacity(shares.len());
        for state in states {
            answers.clear();
            state.for_each_quantile(&shares, |answer| answers.push(answer));
            let some = answers.iter().any(Option::is_some);
            present.push(some);
            if !list {
                numbers.append_option(answers.first().copied().flatten());
            } else if some {
                answers.iter().for_each(|answer| numbers.append_option(*answer));
            }
            lengths.push(if some { ranks.len() } else { 0 });
        }
        let numbers: ArrayRef = Arc::new(numbers.finish());
        if !list {
            return value_encoding::cast_exactly(&numbers, of.output_field.data_type());
        }
        Ok(Arc::new(ListArray::try_new(
            Arc::new(Field::new_list_field(DataType::Float64, true)),
            OffsetBuffer::from_lengths(lengths),
            numbers,
            Some(NullBuffer::from(present)),
        )?))
    }
}

/// Builds the answers of `histogram`: counts are exact, and bar edges lie on edges of the state's bins.
fn build_histograms(states: &[Quantiles], bars: usize, output: &DataType) -> Result<ArrayRef> {
    let (mut low, mut high, mut count) = (Vec::new(), Vec::new(), Vec::new());
    let mut lengths = Vec::with_capacity(states.len());
    for state in states {
        let all = state.histogram(bars);
        lengths.push(all.len());
        for bar in all {
            low.push(bar.low);
            high.push(bar.high);
            count.push(i64::try_from(bar.count).unwrap_or(i64::MAX));
        }
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(low)),
        Arc::new(Float64Array::from(high)),
        Arc::new(Int64Array::from(count)),
    ];
    build_struct_lists(lengths, columns, output)
}
