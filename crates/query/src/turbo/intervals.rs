//! The intervals of a result's estimates, computed above the finish plan for the rows that the result shows.
//!
//! The data behind an interval is a group's sums by cell of the input. It passes HAVING, ORDER BY and LIMIT
//! beside the estimates, in binary columns. So a top ten of a million groups costs ten intervals: one takes
//! up to 17 µs. If a deadline passes during a long result, only its first rows have intervals.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float64Array, Float64Builder};
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_sampling::SplitSample;
use tidemill_sql::into_datafusion_error;

use super::answer_builder::{
    EstimateBounds, GroupQuantiles, GroupTotals, InputRowMaxima, MissingIntervalReasons,
    unreadable_cells_error,
};
use super::result_bounds::{Estimand, EstimatedQuantity};

/// Number of rows times estimates from which several threads compute intervals.
const PARALLEL_WORK_MIN: usize = 1_024;

/// Number of rows between two looks at the clock.
const CLOCK_CHECK_ROWS: usize = 64;

/// Number of first rows whose intervals are computed whatever the time: together they take a millisecond.
const UNTIMED_ROWS: usize = 64;

/// Computes the intervals of a result's rows.
#[derive(Debug)]
pub(crate) struct IntervalCalculator {
    pub estimands: Vec<Estimand>,
    pub quantities: Vec<EstimatedQuantity>,
    /// Number of carried columns with quantiles by cell.
    pub quantile_value_count: usize,
    pub sample: SplitSample,
    pub row_count_limits: InputRowMaxima,
    pub missing_interval_reasons: MissingIntervalReasons,
    pub threads: usize,
    /// Time at which the intervals are due; rows not reached by then have none.
    pub ends_at: Option<Instant>,
}

impl IntervalCalculator {
    /// Computes the bounds of each estimate of each row, row by row, from the
    /// [carried columns](super::result_bounds::ResultBounds::carried_fields).
    fn compute_bounds(&self, carried: &[ArrayRef], rows: usize) -> Result<Float64Array> {
        let work = rows * self.estimands.len();
        let threads = if work < PARALLEL_WORK_MIN { 1 } else { self.threads.clamp(1, 64) };
        let step = rows.div_ceil(threads).max(1);
        let starts: Vec<usize> = (0..rows).step_by(step).collect();
        let part = |start: usize| {
            let length = step.min(rows - start);
            let carried: Vec<ArrayRef> =
                carried.iter().map(|column| column.slice(start, length)).collect();
            catch_panic(|| self.compute_chunk_bounds(&carried, length))
        };
        let parts: Vec<Result<Float64Array>> = match starts.as_slice() {
            [] => return self.compute_chunk_bounds(carried, rows),
            [start] => return part(*start),
            starts => std::thread::scope(|scope| {
                let workers: Vec<_> =
                    starts.iter().map(|start| scope.spawn(|| part(*start))).collect();
                let gave_up = |_| Err(Error::Internal("a thread for intervals gave up".into()));
                workers.into_iter().map(|it| it.join().unwrap_or_else(gave_up)).collect()
            }),
        };
        let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
        Ok(arrow::compute::concat(&parts)?.as_primitive::<Float64Type>().clone())
    }

    fn compute_chunk_bounds(&self, carried: &[ArrayRef], rows: usize) -> Result<Float64Array> {
        let (cells, others) =
            carried.split_at_checked(self.quantities.len()).ok_or_else(missing_columns_error)?;
        let (spreads, quantiles) =
            others.split_at_checked(self.quantile_value_count).ok_or_else(missing_columns_error)?;
        let bytes = |column: &ArrayRef| {
            column.as_binary_opt::<i64>().cloned().ok_or_else(missing_columns_error)
        };
        let cells = cells.iter().map(bytes).collect::<Result<Vec<_>>>()?;
        let spreads = spreads.iter().map(bytes).collect::<Result<Vec<_>>>()?;
        let width = 2 * self.estimands.len();
        let mut bounds = Float64Builder::with_capacity(rows * width);
        let mut totals = GroupTotals::new(self.quantities.len());
        for row in 0..rows {
            let is_late = |ends_at: Instant| Instant::now() >= ends_at;
            let is_looked_at = row >= UNTIMED_ROWS && row.is_multiple_of(CLOCK_CHECK_ROWS);
            if is_looked_at && self.ends_at.is_some_and(is_late) {
                bounds.append_nulls((rows - row) * width);
                break;
            }
            // An aggregation above the tables has null columns if it has no rows.
            if cells.iter().chain(&spreads).any(|carried| carried.is_null(row)) {
                bounds.append_nulls(width);
                continue;
            }
            totals.load_row(&cells, row, self.sample.scale_factor())?;
            let spread = |spread: &arrow::array::LargeBinaryArray| {
                GroupQuantiles::decode(spread.value(row)).ok_or_else(unreadable_cells_error)
            };
            let spread = spreads.iter().map(spread).collect::<Result<Vec<_>>>()?;
            let mut quantile = quantiles.iter();
            for (number, estimated) in self.estimands.iter().enumerate() {
                let found = match estimated {
                    Estimand::Formula(formula) => {
                        let rows = self.row_count_limits;
                        totals.formula_bounds(formula, &self.quantities, &self.sample, rows)
                    }
                    Estimand::Quantile { values_index: values, rank, .. } => {
                        let column = quantile.next().ok_or_else(missing_columns_error)?;
                        let column = column
                            .as_primitive_opt::<Float64Type>()
                            .ok_or_else(missing_columns_error)?;
                        let value = column.is_valid(row).then(|| column.value(row));
                        value.map_or(EstimateBounds::Unknown, |it| {
                            spread[*values].quantile_bounds(it, *rank, &self.sample)
                        })
                    }
                };
                match found {
                    EstimateBounds::Between(low, high) => bounds.append_slice(&[low, high]),
                    EstimateBounds::FewSplits => {
                        self.missing_interval_reasons.mark_few_splits(number);
                        bounds.append_nulls(2);
                    }
                    EstimateBounds::FewRows => {
                        self.missing_interval_reasons.mark_few_rows(number);
                        bounds.append_nulls(2);
                    }
                    EstimateBounds::Unknown => bounds.append_nulls(2),
                }
            }
        }
        Ok(bounds.finish())
    }

    /// Returns the type of the bounds: for each row a list with the lower and upper bound of each estimate.
    fn bounds_list_type(&self) -> DataType {
        let width = i32::try_from(2 * self.estimands.len()).unwrap_or(i32::MAX);
        DataType::FixedSizeList(Arc::new(list_item_field()), width)
    }

    /// Returns the expression that computes all bounds from the carried columns.
    pub(crate) fn bounds_expr(self: &Arc<Self>, carried: Vec<Expr>) -> Expr {
        let function = IntervalsFunction {
            calculator: Arc::clone(self),
            signature: Signature::variadic_any(Volatility::Immutable),
        };
        ScalarUDF::from(function).call(carried)
    }
}

fn list_item_field() -> Field {
    Field::new_list_field(DataType::Float64, true)
}

/// Returns the expressions of an estimate's lower and upper bound, taken from [all
/// bounds](IntervalCalculator::bounds_expr).
pub(crate) fn bound_exprs(all: &Expr, estimate: usize) -> (Expr, Expr) {
    let bound = |place: usize| {
        let signature = Signature::any(1, Volatility::Immutable);
        let name = format!("tidemill_bound_{place}");
        ScalarUDF::from(BoundFunction { bound_index: place, name, signature })
            .call(vec![all.clone()])
    };
    (bound(2 * estimate), bound(2 * estimate + 1))
}

/// A scalar function that takes one bound from the list. Struct fields with names would do, but the planner
/// searches the struct's type, with two fields for each estimate, once for each estimate: for a thousand sums
/// that took 8 s.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundFunction {
    bound_index: usize,
    name: String,
    signature: Signature,
}

impl ScalarUDFImpl for BoundFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [all] = args.args.as_slice() else {
            return Err(into_datafusion_error(missing_columns_error()));
        };
        let all = all.to_array(args.number_rows)?;
        let all = all
            .as_fixed_size_list_opt()
            .ok_or_else(|| into_datafusion_error(missing_columns_error()))?;
        let values = all.values().as_primitive::<Float64Type>();
        let width = usize::try_from(all.value_length()).unwrap_or(0);
        let place = |row: usize| row * width + self.bound_index;
        let bounds: Float64Array = (0..all.len())
            .map(|row| values.is_valid(place(row)).then(|| values.value(place(row))))
            .collect();
        Ok(ColumnarValue::Array(Arc::new(bounds)))
    }
}

fn missing_columns_error() -> Error {
    Error::Internal("what intervals are worked out from is not there".into())
}

/// A scalar function that computes all intervals within a plan.
#[derive(Debug)]
struct IntervalsFunction {
    calculator: Arc<IntervalCalculator>,
    signature: Signature,
}

impl PartialEq for IntervalsFunction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.calculator, &other.calculator)
    }
}

impl Eq for IntervalsFunction {}

impl Hash for IntervalsFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.calculator).hash(state);
    }
}

impl ScalarUDFImpl for IntervalsFunction {
    fn name(&self) -> &'static str {
        "tidemill_intervals"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.calculator.bounds_list_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = args.number_rows;
        let carried = args.args.iter().map(|column| column.to_array(rows));
        let carried = carried.collect::<PlanResult<Vec<_>>>()?;
        let bounds =
            self.calculator.compute_bounds(&carried, rows).map_err(into_datafusion_error)?;
        let width = i32::try_from(2 * self.calculator.estimands.len()).unwrap_or(i32::MAX);
        let all = FixedSizeListArray::try_new(
            Arc::new(list_item_field()),
            width,
            Arc::new(bounds),
            None,
        )?;
        Ok(ColumnarValue::Array(Arc::new(all)))
    }
}
