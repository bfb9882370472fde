//! The answers of a table that rests on a part of the input: scaled up, with bounds beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, LargeBinaryArray, PrimitiveArray,
    RecordBatch, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, SchemaRef, UInt64Type};
use tidemill_base::error::{Error, Result};
use tidemill_sampling::{
    ConfidenceInterval, FormulaTotal, RowSet, SplitSample, SumsByCell, student_t_quantile,
};
use tidemill_sketch::Quantiles;
use tidemill_tables::{CellQuantiles, CellSums, MergeableFunction, TableSpec};

use super::bounds::{Estimated, Formula, Quantity, carried_fields};
use super::intervals::Intervals;

/// What makes answers of the tables' rows.
#[derive(Clone)]
pub(crate) struct Answering {
    /// What is kept per group; where there is a sample, the last aggregates are the sums by place of `quantities` and the
    /// quantiles by place of so many `values`.
    pub spec: Arc<TableSpec>,
    pub quantities: Vec<Quantity>,
    pub values: usize,
    pub estimates: Vec<Estimated>,
    /// What was read; none where nothing is scaled up and nothing has bounds.
    pub sample: Option<SplitSample>,
    /// Whether all of the input was read.
    pub is_exact: bool,
    /// Whether there are no bounds: what they are made of is not whole.
    pub is_withheld: bool,
    pub row_counts: RowCounts,
    pub few_read: FewRead,
    /// The finished table's columns, those that carry what bounds are of last.
    pub schema: SchemaRef,
}

impl Answering {
    /// An answer of the tables as rows of the finished table.
    ///
    /// # Errors
    /// [`Error::Overflow`] where a sum that is scaled up does not fit its type.
    pub(crate) fn answer(&self, answer: &RecordBatch) -> Result<RecordBatch> {
        let carried = carried_fields(&self.estimates, self.quantities.len(), self.values);
        let own = self.schema.fields().len() - carried.len();
        let mut columns = answer.columns()[..own].to_vec();
        if let Some(sample) = &self.sample {
            self.scale(&mut columns, sample)?;
        }
        match self.sample.is_some() && !self.is_withheld && !self.estimates.is_empty() {
            true => columns.extend(self.carried(answer, own)?),
            false => {
                let rows = answer.num_rows();
                columns.extend(carried.iter().map(|it| new_null_array(it.data_type(), rows)));
            }
        }
        let options =
            arrow::array::RecordBatchOptions::new().with_row_count(Some(answer.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// Scales counts and sums among columns of keys and answers.
    fn scale(&self, columns: &mut [ArrayRef], sample: &SplitSample) -> Result<()> {
        let keys = self.spec.keys.len();
        for (column, aggregate) in columns.iter_mut().skip(keys).zip(&self.spec.aggregates) {
            if matches!(aggregate.function, MergeableFunction::Count | MergeableFunction::Sum) {
                *column = scaled(column, sample.scale_factor(), aggregate.output_field.name())?;
            }
        }
        Ok(())
    }

    /// What intervals are worked out by; none where there are none.
    pub(crate) fn intervals(
        &self,
        threads: usize,
        ends_at: Option<Instant>,
    ) -> Option<Arc<Intervals>> {
        let sample =
            self.sample.clone().filter(|_| !self.is_withheld && !self.estimates.is_empty())?;
        Some(Arc::new(Intervals {
            estimates: self.estimates.clone(),
            quantities: self.quantities.clone(),
            values: self.values,
            sample,
            row_counts: self.row_counts,
            few_read: self.few_read.clone(),
            threads,
            ends_at,
        }))
    }

    /// The columns that intervals are worked out from.
    fn carried(&self, answer: &RecordBatch, own: usize) -> Result<Vec<ArrayRef>> {
        let cells = self.quantities.len() + self.values;
        let mut carried = answer.columns()[own..own + cells].to_vec();
        for estimated in &self.estimates {
            if let Estimated::Quantile { aggregate, .. } = estimated {
                let value = answer.column(self.spec.keys.len() + aggregate);
                carried.push(cast(value, &DataType::Float64)?);
            }
        }
        Ok(carried)
    }
}

/// The numbers of rows of the input, which limit the counts of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RowCounts {
    /// Maximum number of rows that an aggregate can have counted in the splits read.
    pub read: f64,
    /// Maximum number of rows that the splits not read can be assumed to hold.
    pub unread: f64,
    /// Whether each row of the input is a row of the table's only group, so that `count(*)` is the number of rows.
    pub are_of_table: bool,
}

impl RowCounts {
    /// No limits.
    pub(crate) const UNKNOWN: RowCounts =
        RowCounts { read: f64::INFINITY, unread: f64::INFINITY, are_of_table: false };
}

/// The reasons why estimates have rows without an interval: too few splits or too few rows were read. A clone has the
/// same marks.
#[derive(Debug, Clone, Default)]
pub(crate) struct FewRead(Arc<[AtomicU8]>);

const FEW_SPLITS: u8 = 1;
const FEW_ROWS: u8 = 2;

impl FewRead {
    /// Creates marks for `estimates` estimates, none of which is set.
    pub(crate) fn new(estimates: usize) -> Self {
        FewRead((0..estimates).map(|_| AtomicU8::new(0)).collect())
    }

    pub(crate) fn mark_splits(&self, estimate: usize) {
        self.mark(estimate, FEW_SPLITS);
    }

    pub(crate) fn mark_rows(&self, estimate: usize) {
        self.mark(estimate, FEW_ROWS);
    }

    fn mark(&self, estimate: usize, reason: u8) {
        if let Some(mark) = self.0.get(estimate) {
            mark.fetch_or(reason, Ordering::Relaxed);
        }
    }

    /// Returns the reason in words, or `None` where an estimate has no mark. Splits come first: with more of them there
    /// are more rows, too.
    pub(crate) fn reason(&self, estimate: usize) -> Option<&'static str> {
        match self.0.get(estimate)?.load(Ordering::Relaxed) {
            0 => None,
            FEW_ROWS => Some("too few rows were read"),
            _ => Some("too few splits were read"),
        }
    }
}

/// The bounds of an estimate, or the reason why it has none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bounded {
    /// The lower and the upper bound.
    Between(f64, f64),
    /// Too few splits were read, or too few of them have rows of the estimate.
    FewSplits,
    /// Too few rows of the estimate were read.
    FewRows,
    /// The estimate has no bounds.
    Unknown,
}

/// A mean or another ratio to a count of fewer rows has no interval: of lognormal values (σ = 1.5) such held in 70 to 90 % of the
/// cases at 95 %, with 6 to 50 rows.
const ROWS_MIN: f64 = 50.0;

pub(crate) fn unreadable() -> Error {
    Error::Internal("cells cannot be read".into())
}

/// The sums by cell of a group's quantities, and their estimated totals.
pub(crate) struct Totals {
    cells: Vec<CellSums>,
    totals: Vec<f64>,
    gradient: Vec<f64>,
}

impl Totals {
    pub(crate) fn new(quantities: usize) -> Self {
        Totals {
            cells: vec![CellSums::default(); quantities],
            totals: vec![0.0; quantities],
            gradient: vec![0.0; quantities],
        }
    }

    pub(crate) fn read(
        &mut self,
        cells: &[LargeBinaryArray],
        row: usize,
        factor: f64,
    ) -> Result<()> {
        for (index, cells) in cells.iter().enumerate() {
            self.cells[index] =
                CellSums::from_answer_bytes(cells.value(row)).ok_or_else(unreadable)?;
            self.totals[index] = self.cells[index].sums_by_cell().sum() * factor;
        }
        Ok(())
    }

    /// Returns the bounds of a formula, if it has any. A ratio has none if its divisor may be 0, and a product none if
    /// both factors may be 0: the linear approximation does not hold there.
    pub(crate) fn interval(
        &mut self,
        formula: &Formula,
        quantities: &[Quantity],
        sample: &SplitSample,
        rows: RowCounts,
    ) -> Bounded {
        let mut may_be_zero = |part: &Formula| {
            let is_positive = |index: usize| {
                let cells = &self.cells[index];
                cells.sums_by_cell().sum() > 0.0
                    && (quantities[index].counts || !cells.has_negative_or_nan())
            };
            if part.is_positive(&is_positive) {
                return false;
            }
            let bounds = match part {
                Formula::Constant(number) => Bounded::Between(*number, *number),
                part => self.linear_interval(part, quantities, sample, rows),
            };
            match bounds {
                Bounded::Between(low, high) => low <= 0.0 && high >= 0.0,
                Bounded::FewSplits | Bounded::FewRows | Bounded::Unknown => true,
            }
        };
        if !sample.is_whole_input() && !formula.is_smooth(&mut may_be_zero) {
            return Bounded::Unknown;
        }
        self.linear_interval(formula, quantities, sample, rows)
    }

    /// Returns the bounds of a formula by linearization at the estimated totals.
    fn linear_interval(
        &mut self,
        formula: &Formula,
        quantities: &[Quantity],
        sample: &SplitSample,
        row_counts: RowCounts,
    ) -> Bounded {
        let Totals { cells, totals, gradient } = self;
        gradient.fill(0.0);
        formula.slope(totals, 1.0, gradient);
        let value = formula.value(totals);
        let counts_all = |index: &usize| {
            let Quantity { counts, argument, filter, .. } = &quantities[*index];
            row_counts.are_of_table && *counts && argument.is_none() && filter.is_none()
        };
        let counted = formula.total().filter(counts_all);
        if counted.is_some_and(|index| sample.is_sum_of_sizes(cells[index].sums_by_cell().sum())) {
            // The count covers all rows, and the files' footers give the number of rows.
            return Bounded::Between(value.round(), value.round());
        }
        // A mean of a few rows says little of the others, however many splits they are from.
        let is_of_few = |(index, slope): (usize, &f64)| {
            *slope != 0.0
                && quantities[index].counts
                && cells[index].sums_by_cell().sum() < ROWS_MIN
        };
        if formula.total().is_none() && gradient.iter().enumerate().any(is_of_few) {
            return Bounded::FewRows;
        }
        let of = || gradient.iter().enumerate().filter(|(_, slope)| **slope != 0.0);
        let parts: Vec<(f64, &SumsByCell)> =
            of().map(|(quantity, slope)| (*slope, cells[quantity].sums_by_cell())).collect();
        let splits = of().map(|(quantity, _)| cells[quantity].split_count()).max().unwrap_or(0);
        let slack = formula.slack(totals);
        let part = |(index, slope): (usize, &f64)| FormulaTotal {
            derivative: *slope,
            sums_by_cell: cells[index].sums_by_cell(),
            seen_splits: cells[index].split_count(),
            value_summary: (!quantities[index].counts).then(|| cells[index].value_summary()),
            row_set: RowSet {
                filter: quantities[index].filter,
                argument: quantities[index].argument,
            },
        };
        let Some(room) =
            sample.unlike_split_margin(&of().map(part).collect::<Vec<_>>(), row_counts.read)
        else {
            return Bounded::FewSplits;
        };
        match sample.estimate_function(value, &parts, splits, room).interval {
            ConfidenceInterval::Bounds { lower: low, upper: high }
                if low.is_finite() && high.is_finite() =>
            {
                // However narrow it is, the estimate itself is in it.
                let (low, high) = ((low - slack).min(value), (high + slack).max(value));
                // What was counted is there, and there is only so much that can come. So is a sum of values of which none
                // was below zero, and a mean of them is not.
                let (low, high) = match formula.total() {
                    Some(index) if quantities[index].counts => {
                        let counted = cells[index].sums_by_cell().sum();
                        whole_bounds(low.max(counted), value, high.min(counted + row_counts.unread))
                    }
                    Some(index) if !cells[index].has_negative_or_nan() => {
                        (low.max(cells[index].sums_by_cell().sum()).min(value), high)
                    }
                    _ if formula.is_quotient()
                        && !of().any(|(index, _)| cells[index].has_negative_or_nan()) =>
                    {
                        (low.max(0.0).min(value), high)
                    }
                    _ => (low, high),
                };
                Bounded::Between(low, high)
            }
            ConfidenceInterval::Exact => Bounded::Between(value - slack, value + slack),
            ConfidenceInterval::TooFewSplits => Bounded::FewSplits,
            _ => Bounded::Unknown,
        }
    }
}

/// The bounds of a count, which is whole, as its estimate is shown.
fn whole_bounds(low: f64, value: f64, high: f64) -> (f64, f64) {
    (low.ceil().min(value.round()), high.floor().max(value.round()))
}

/// A group's values by cell.
pub(crate) struct Spread {
    values: CellQuantiles,
    all: Quantiles,
}

impl Spread {
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        CellQuantiles::from_answer_bytes(bytes).map(Spread::new)
    }

    fn new(values: CellQuantiles) -> Self {
        let mut all = Quantiles::default();
        values.histograms_by_cell().entries().iter().for_each(|(_, cell)| all.merge(cell));
        Spread { values, all }
    }

    /// The bounds of the value at a rank, which was estimated (Woodruff 1952): the share of values up to it has an interval,
    /// to which the histogram's own error is added, and its ends are ranks of other values.
    pub(crate) fn interval(&self, value: f64, rank: f64, sample: &SplitSample) -> Bounded {
        let below =
            self.values.histograms_by_cell().map_values(|values| values.count_at_most(value));
        let all = self.values.histograms_by_cell().map_values(|values| values.count() as f64);
        let share = below.sum() / all.sum();
        let (low, high) = match sample.share_interval(&below, &all, self.values.split_count()) {
            ConfidenceInterval::Bounds { lower: low, upper: high } => (low, high),
            ConfidenceInterval::Exact => return Bounded::Between(value, value),
            ConfidenceInterval::TooFewSplits => return Bounded::FewSplits,
            ConfidenceInterval::NoVariation => return Bounded::Unknown,
        };
        // If a larger share of all rows than of the rows read is at most `value`, the true quantile is smaller.
        let (smallest, largest) = (rank - (high - share), rank + (share - low));
        let is_inner = smallest > 0.0 && largest < 1.0;
        if !is_inner || !is_within(rank, all.sum(), (low, high), sample.confidence()) {
            return Bounded::FewSplits;
        }
        let at = |rank: f64| self.all.quantile(rank.clamp(0.0, 1.0));
        let bounds = self.all.rank_error(rank).and_then(|error| {
            Some((at(smallest - error)?.min(value), at(largest + error)?.max(value)))
        });
        match bounds {
            Some((low, high)) if low.is_finite() && high.is_finite() => Bounded::Between(low, high),
            _ => Bounded::Unknown,
        }
    }
}

/// Whether so many rows, of which the share of a rank has such an interval, have enough of them on either side of it that the
/// outermost can be a bound. Of n rows none is beyond rank q with probability qⁿ, about exp(−n (1 − q)), which is to be
/// no more than what an interval misses on a side: 3.7 rows are expected there at 95 %. Rows of one split are alike, so that
/// they count as those of a simple sample that would have as wide an interval.
fn is_within(rank: f64, rows: f64, (low, high): (f64, f64), confidence: f64) -> bool {
    let half = (high - low) / 2.0;
    let t = student_t_quantile(confidence, f64::from(u16::MAX));
    let rows = rows.min(rank * (1.0 - rank) * (t / half).powi(2));
    rows * rank.min(1.0 - rank) >= ((1.0 - confidence) / 2.0).ln().abs()
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
