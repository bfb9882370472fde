//! `equi_width_bins`: upper bounds of ranges of equal width, rounded to round numbers on request.
//!
//! A round width is the multiple nearest to the requested width, either of one or five times a power of ten,
//! or of twice a power of ten. The last bound is the smallest multiple of that width that is not below the
//! maximum. Bounds of times are rounded to the unit below their width.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Builder, Int64Builder, ListArray, ListBuilder,
};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, TimeUnit};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_MATH;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use super::buckets_and_sizes::is_numeric_type;
use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, usage_error, wrong_arguments_error,
};
use crate::times::{is_date_or_timestamp, round_time_bins};

/// Maximum number of bins per call. Round widths may produce twice as many bounds, which take 160 kB per row.
const BINS_MAX: i64 = 10_000;

/// Scale at which integer bounds are calculated, so that widths below one keep three digits.
const BOUND_SCALE: i128 = 1_000;

/// Returns the steps that round widths near a width are multiples of: one of twice a power of ten, and one of
/// one or five times a power of ten.
fn round_integer_steps(width: i128) -> (i128, i128) {
    let mut power = 1;
    while power * 10 < width {
        power *= 10;
    }
    let twos = if power * 3 <= width { power * 10 } else { power * 2 };
    let fives = if power * 2 <= width { power * 5 } else { power };
    (twos, fives)
}

fn round_integer_width(width: i128) -> i128 {
    let (twos, fives) = round_integer_steps(width);
    let nearest = |step: i128| (width + step / 2).div_euclid(step) * step;
    let (twos, fives) = (nearest(twos), nearest(fives));
    match (width - twos).abs() < (width - fives).abs() {
        true => twos,
        false => fives,
    }
}

/// Returns the bounds of integer ranges, the largest first.
fn integer_bounds(low: i64, high: i64, count: usize, is_round: bool) -> Vec<i64> {
    if low == high {
        return vec![high];
    }
    let (start, mut end) = (i128::from(low) * BOUND_SCALE, i128::from(high) * BOUND_SCALE);
    let mut width = (end - start) / count as i128;
    let mut count_max = count;
    if is_round {
        let round = round_integer_width(width);
        if round > 0 {
            width = round;
            end = -(-end).div_euclid(width) * width;
        }
        // A round width may need more bounds than requested.
        count_max *= 2;
    }
    let width = width.max(1);
    let mut bounds: Vec<i64> = Vec::new();
    let mut at = end;
    while at > start {
        let bound = (at / BOUND_SCALE).min(i64::MAX.into());
        at -= width;
        let Ok(bound) = i64::try_from(bound) else { continue };
        if bound < low || bounds.len() >= count_max {
            break;
        }
        if bounds.last() != Some(&bound) {
            bounds.push(bound);
        } else if width < BOUND_SCALE {
            // Several bounds round to the same integer: continue below it.
            at = at.min(i128::from(bound) * BOUND_SCALE);
        }
    }
    bounds
}

/// Returns the largest power of ten at or below a number below one, and strictly below any larger number.
fn power_of_ten(number: f64) -> f64 {
    let mut power = 1.0;
    if number < 1.0 {
        while power > number {
            power /= 10.0;
        }
        return power;
    }
    while power < number {
        power *= 10.0;
    }
    power / 10.0
}

fn round_width(width: f64) -> f64 {
    let power = power_of_ten(width);
    let twos = if power * 3.0 <= width { power * 10.0 } else { power * 2.0 };
    let fives = if power * 2.0 <= width { power * 5.0 } else { power };
    let nearest = |step: f64| Some((width / step).round() * step).filter(|x| x.is_finite());
    let (twos, fives) = (nearest(twos).unwrap_or(width), nearest(fives).unwrap_or(width));
    match (width - twos).abs() < (width - fives).abs() {
        true => twos,
        false => fives,
    }
}

/// Returns the bounds of DOUBLE ranges, the largest first, which is not below `high`.
///
/// Each bound is calculated from an end of the range, not from the bound before it, so that rounding errors
/// do not add up.
fn double_bounds(low: f64, high: f64, count: usize, is_round: bool) -> Vec<f64> {
    let parts = count as f64;
    // The difference of the ends may overflow where the difference of their parts does not.
    let exact = high / parts - low / parts;
    let width = Some((high - low) / parts).filter(|width| width.is_finite()).unwrap_or(exact);
    if width == 0.0 || !width.is_finite() {
        return vec![high];
    }
    // A bound this close to the minimum exceeds it only by a rounding error.
    let error = (width * 1e-9).max(low.abs().max(high.abs()) * f64::EPSILON);
    let (range, step) = (high - low, if is_round { round_width(width) } else { width });
    // Bounds keep one more digit than the width has.
    let digits = 10.0 / power_of_ten(width);
    let end = Some((high / step).ceil() * step).filter(|end| is_round && end.is_finite());
    let end = end.unwrap_or(high);
    let bound = |place: usize| {
        let share = (count - place.min(count)) as f64 / parts;
        match is_round {
            true => {
                // The product by itself may overflow.
                let bound = step.mul_add(-(place as f64), end);
                let rounded = (bound * digits).round() / digits;
                // Adding zero turns -0 into 0.
                (if rounded.is_finite() { rounded } else { bound }) + 0.0
            }
            false if range.is_finite() => low + range * share,
            false => low * (1.0 - share) + high * share,
        }
    };
    // A round width may need more bounds than requested.
    let count_max = if is_round { 2 * count } else { count };
    let mut last = if is_round { bound(0).max(high) } else { high };
    let mut bounds = vec![last];
    for bound in (1..count_max).map(bound).take_while(|bound| bound - low > error) {
        if bound < last {
            bounds.push(bound);
            last = bound;
        }
    }
    bounds
}

fn list_type(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// The function `equi_width_bins`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct EquiWidthBinsFunction;

impl EquiWidthBinsFunction {
    fn check_count(count: i64) -> Result<usize> {
        match usize::try_from(count).ok().filter(|_| (1..=BINS_MAX).contains(&count)) {
            Some(count) => Ok(count),
            None => Err(usage_error(
                format!("`equi_width_bins` of {count} bins has no answer"),
                format!(
                    "it makes 1 to {BINS_MAX} of them; width_bucket(x, min, max, count) finds the one of a number"
                ),
            )),
        }
    }
}

/// Returns the error for a maximum below the minimum.
fn inverted_range_error() -> DataFusionError {
    usage_error(
        "`equi_width_bins` has a maximum below its minimum",
        "it is called as equi_width_bins(min, max, count, is_round)",
    )
}

impl RowFunction for EquiWidthBinsFunction {
    fn names(&self) -> &'static [&'static str] {
        &["equi_width_bins"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_MATH,
            syntax: "equi_width_bins(min, max, count, is_round)",
            description: "Upper bounds of 1 to 10,000 ranges of the same width between two numbers or times, which are exact or, with \
                   about as many ranges, round; the last is not below the maximum: `equi_width_bins(0, 9, 4, FALSE)` is `[2, 4, 6, 9]`, and \
                   `equi_width_bins(0, 9, 5, TRUE)` is `[2, 4, 6, 8, 10]`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [low, high, count, is_round] = given else {
            return Err(wrong_arguments_error(self, given));
        };
        let is_whole = |of: &DataType| (of.is_integer() && *of != DataType::UInt64) || of.is_null();
        let of = match (low, high) {
            (low, high) if is_whole(low) && is_whole(high) => DataType::Int64,
            (low, high) if is_numeric_type(low) && is_numeric_type(high) => DataType::Float64,
            (DataType::Date32 | DataType::Null, DataType::Date32)
            | (DataType::Date32, DataType::Null) => DataType::Date32,
            (low, high)
                if [low, high].iter().all(|of| of.is_null() || is_date_or_timestamp(of)) =>
            {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            _ => return Err(wrong_arguments_error(self, given)),
        };
        let fits = (count.is_integer() || count.is_null())
            && matches!(is_round, DataType::Boolean | DataType::Null);
        match fits {
            true => Ok(vec![of.clone(), of, DataType::Int64, DataType::Boolean]),
            false => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, taken: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        taken
            .first()
            .map(|of| list_type(of.clone()))
            .ok_or_else(|| wrong_arguments_error(self, taken))
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let of = given.argument(0)?.data_type();
        let (counts, count_rows) = given.cast_argument(2, &DataType::Int64)?;
        let counts = counts.as_primitive::<Int64Type>();
        let (rounds, round_rows) = given.cast_argument(3, &DataType::Boolean)?;
        let rounds: &BooleanArray = rounds.as_boolean();
        let options_at = |row: usize| {
            let (count, round) = (count_rows.value_index(row), round_rows.value_index(row));
            let both = counts.is_valid(count) && rounds.is_valid(round);
            both.then(|| (counts.value(count), rounds.value(round)))
        };
        if of == DataType::Float64 {
            let (lows, low_rows) = given.cast_argument(0, &of)?;
            let (highs, high_rows) = given.cast_argument(1, &of)?;
            let (lows, highs) =
                (lows.as_primitive::<Float64Type>(), highs.as_primitive::<Float64Type>());
            let mut found = ListBuilder::new(Float64Builder::new());
            for row in 0..given.row_count {
                let (low, high) = (low_rows.value_index(row), high_rows.value_index(row));
                let range = (lows.is_valid(low) && highs.is_valid(high))
                    .then(|| (lows.value(low), highs.value(high)));
                let Some(((low, high), (count, is_round))) = range.zip(options_at(row)) else {
                    found.append_null();
                    continue;
                };
                if !low.is_finite() || !high.is_finite() {
                    return Err(usage_error(
                        "`equi_width_bins` takes finite numbers, and one is not",
                        "WHERE isfinite(x) leaves others out",
                    ));
                }
                if high < low {
                    return Err(inverted_range_error());
                }
                let count = EquiWidthBinsFunction::check_count(count)?;
                let bounds = double_bounds(low, high, count, is_round);
                bounds.iter().rev().for_each(|bound| found.values().append_value(*bound));
                found.append(true);
            }
            return Ok(Arc::new(found.finish()));
        }
        // Bounds of times are calculated in microseconds.
        let (is_time, unit) = match of {
            DataType::Int64 => (false, DataType::Int64),
            _ => (true, DataType::Timestamp(TimeUnit::Microsecond, None)),
        };
        let whole = |at: usize| {
            let (values, rows) = given.cast_argument(at, &unit)?;
            let values = cast_with_options(&values, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
            Ok::<_, DataFusionError>((values.as_primitive::<Int64Type>().clone(), rows))
        };
        let ((lows, low_rows), (highs, high_rows)) = (whole(0)?, whole(1)?);
        let mut found = ListBuilder::new(Int64Builder::new());
        for row in 0..given.row_count {
            let (low, high) = (low_rows.value_index(row), high_rows.value_index(row));
            let range = (lows.is_valid(low) && highs.is_valid(high))
                .then(|| (lows.value(low), highs.value(high)));
            let Some(((low, high), (count, is_round))) = range.zip(options_at(row)) else {
                found.append_null();
                continue;
            };
            if high < low {
                return Err(inverted_range_error());
            }
            let count = EquiWidthBinsFunction::check_count(count)?;
            let bounds = match is_time && is_round {
                true => round_time_bins(low, high, count)?,
                false => integer_bounds(low, high, count, is_round),
            };
            bounds.iter().rev().for_each(|bound| found.values().append_value(*bound));
            found.append(true);
        }
        let found = found.finish();
        if !is_time {
            return Ok(Arc::new(found));
        }
        let (_, offsets, items, nulls) = found.into_parts();
        let items = cast_with_options(&items, &unit, &STRICT_CAST_OPTIONS)?;
        let items = cast_with_options(&items, &of, &STRICT_CAST_OPTIONS)?;
        let field = Arc::new(Field::new_list_field(of, true));
        Ok(Arc::new(ListArray::try_new(field, offsets, items, nulls)?))
    }
}
