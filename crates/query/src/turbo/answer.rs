//! The answers of a table that rests on a part of the input: scaled up, with bounds beside them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, Float64Builder, PrimitiveArray,
    RecordBatch,
};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, SchemaRef, UInt64Type};
use tidemill_base::error::{Error, Result};
use tidemill_sampling::{CELLS, Interval, Sample};
use tidemill_tables::{Function, TableSpec, read_cells};

use super::bounds::{Formula, Quantity};

/// What makes answers of the tables' rows.
#[derive(Clone)]
pub(crate) struct Answering {
    /// What is kept per group, of which the last aggregates are of `quantities`, if there are any.
    pub spec: Arc<TableSpec>,
    pub quantities: Vec<Quantity>,
    pub formulas: Vec<Formula>,
    /// What was read; none where nothing is scaled up and nothing has bounds.
    pub sample: Option<Sample>,
    /// Whether all of the input was read.
    pub is_exact: bool,
    /// The finished table's columns, those that carry the bounds last.
    pub schema: SchemaRef,
}

impl Answering {
    /// An answer of the tables as rows of the finished table.
    ///
    /// # Errors
    /// [`Error::Overflow`] where a sum that is scaled up does not fit its type.
    pub(crate) fn answer(&self, answer: &RecordBatch) -> Result<RecordBatch> {
        let carried = 2 * self.formulas.len();
        let own = self.schema.fields().len() - carried;
        let mut columns = answer.columns()[..own].to_vec();
        match &self.sample {
            None => {
                let none: ArrayRef = Arc::new(Float64Array::new_null(answer.num_rows()));
                columns.extend(std::iter::repeat_n(none, carried));
            }
            Some(sample) => {
                let keys = self.spec.keys.len();
                for (column, aggregate) in columns.iter_mut().skip(keys).zip(&self.spec.aggregates)
                {
                    if matches!(aggregate.function, Function::Count | Function::Sum) {
                        *column = scaled(column, sample.factor(), aggregate.output.name())?;
                    }
                }
                if !self.formulas.is_empty() {
                    columns.extend(self.bounds(answer, own, sample)?);
                }
            }
        }
        let options =
            arrow::array::RecordBatchOptions::new().with_row_count(Some(answer.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    fn bounds(&self, answer: &RecordBatch, own: usize, sample: &Sample) -> Result<Vec<ArrayRef>> {
        let cells: Option<Vec<_>> = (own..own + self.quantities.len())
            .map(|index| answer.column(index).as_binary_opt::<i64>())
            .collect();
        let cells = cells.ok_or_else(|| Error::Internal("cells of sums are no bytes".into()))?;
        let rows = answer.num_rows();
        let builder = || Float64Builder::with_capacity(rows);
        let mut bounds: Vec<(Float64Builder, Float64Builder)> =
            self.formulas.iter().map(|_| (builder(), builder())).collect();
        let mut series = vec![[0.0; CELLS]; self.quantities.len()];
        let mut seen = vec![0; self.quantities.len()];
        let mut totals = vec![0.0; self.quantities.len()];
        let mut gradient = vec![0.0; self.quantities.len()];
        for row in 0..rows {
            for (quantity, cells) in cells.iter().enumerate() {
                seen[quantity] = read_cells(cells.value(row), &mut series[quantity])
                    .ok_or_else(|| Error::Internal("cells of sums cannot be read".into()))?;
                totals[quantity] = series[quantity].iter().sum::<f64>() * sample.factor();
            }
            for (formula, (low, high)) in self.formulas.iter().zip(&mut bounds) {
                gradient.fill(0.0);
                formula.slope(&totals, 1.0, &mut gradient);
                let value = formula.value(&totals);
                let of = || gradient.iter().enumerate().filter(|(_, slope)| **slope != 0.0);
                let parts: Vec<(f64, &[f64])> =
                    of().map(|(quantity, slope)| (*slope, &series[quantity][..])).collect();
                let splits = of().map(|(quantity, _)| seen[quantity]).max().unwrap_or(0);
                match sample.smooth(value, &parts, splits).interval {
                    Interval::Bounds { low: least, high: most }
                        if least.is_finite() && most.is_finite() =>
                    {
                        // What was counted is there.
                        let is_count = |index: &usize| self.quantities[*index].counts;
                        let counted = formula.total().filter(is_count);
                        let counted = counted.map(|index| series[index].iter().sum::<f64>());
                        low.append_value(counted.map_or(least, |counted| least.max(counted)));
                        high.append_value(most);
                    }
                    Interval::Exact => {
                        low.append_value(value);
                        high.append_value(value);
                    }
                    _ => {
                        low.append_null();
                        high.append_null();
                    }
                }
            }
        }
        let finished = bounds.into_iter().flat_map(|(mut low, mut high)| {
            [Arc::new(low.finish()) as ArrayRef, Arc::new(high.finish()) as ArrayRef]
        });
        Ok(finished.collect())
    }
}

/// A column of counts or sums times a factor, in its own type.
fn scaled(column: &ArrayRef, factor: f64, name: &str) -> Result<ArrayRef> {
    if factor == 1.0 {
        return Ok(Arc::clone(column));
    }
    let too_large = || Error::Overflow {
        message: format!("`{name}`, scaled up to the whole input, is too large for its type"),
        hint: Some("sum a DOUBLE: sum(CAST(x AS DOUBLE)), or take what was seen: --as-seen".into()),
    };
    let fitting = match column.data_type() {
        DataType::Float64 => {
            let scaled: Float64Array =
                column.as_primitive::<Float64Type>().unary(|sum| sum * factor);
            Some(Arc::new(scaled) as ArrayRef)
        }
        DataType::Int64 => whole::<Int64Type>(column, |sum| {
            let scaled = (sum as f64 * factor).round();
            (scaled.abs() < 9.2e18).then_some(scaled as i64)
        }),
        DataType::UInt64 => whole::<UInt64Type>(column, |sum| {
            let scaled = (sum as f64 * factor).round();
            (scaled < 1.8e19).then_some(scaled as u64)
        }),
        DataType::Decimal128(precision, _) => {
            let most = 10_f64.powi(i32::from(*precision));
            whole::<Decimal128Type>(column, |sum| {
                let scaled = (sum as f64 * factor).round();
                (scaled.abs() < most).then_some(scaled as i128)
            })
        }
        // Sums of lists and structs are of what was seen.
        _ => Some(Arc::clone(column)),
    };
    fitting.ok_or_else(too_large)
}

/// Numbers scaled, of the same type; none where one does not fit it.
fn whole<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    scale: impl Fn(T::Native) -> Option<T::Native>,
) -> Option<ArrayRef> {
    let scaled: PrimitiveArray<T> =
        column.as_primitive::<T>().try_unary(|number| scale(number).ok_or(())).ok()?;
    Some(Arc::new(scaled.with_data_type(column.data_type().clone())))
}
