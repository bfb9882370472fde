//! Source statistics for the join planner: estimated row counts and value ranges, known before the source is
//! read.

use datafusion::common::pruning::PruningStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::{Column, ColumnStatistics, ScalarValue, Statistics};
use tidemill_source::{Source, Split};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{max, min, sum};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};

use crate::planning::build_side_extraction::estimate_memory_bytes;
use crate::planning::pruning::{NestedFields, file_statistics};

/// Maximum number of files whose statistics are examined column by column. With more files columns get no
/// value ranges.
const BOUNDS_FILES_MAX: usize = 1000;

/// Assumed stored bytes of one value, for row estimates of sources without row counts.
const TEXT_VALUE_BYTES: u64 = 8;

/// Estimates the statistics of these splits, for the columns of a projection. All values are inexact.
pub(crate) fn estimate_statistics(
    source: &Source,
    splits: &[Split],
    projection: Option<&[usize]>,
) -> Statistics {
    let nested = NestedFields::new();
    let fields = source.schema().fields();
    let columns: Vec<usize> = match projection {
        Some(columns) => columns.to_vec(),
        None => (0..fields.len()).collect(),
    };
    let files: Option<Vec<_>> =
        (0..source.files().len()).map(|file| file_statistics(source, file, &nested)).collect();
    let known = files.as_ref().and_then(|files| {
        files.iter().try_fold(0u64, |rows, file| Some(rows + sum_counts(&file.row_counts()?)?))
    });
    let guessed =
        || Some(estimate_memory_bytes(source)? / (TEXT_VALUE_BYTES * fields.len().max(1) as u64));
    let Some(rows) = known.or_else(guessed) else {
        return Statistics {
            column_statistics: vec![ColumnStatistics::new_unknown(); columns.len()],
            ..Statistics::default()
        };
    };
    let read: u64 = splits.iter().map(|split| split.bytes).sum();
    let stored: u64 = source.files().iter().map(|file| file.size()).sum();
    let share = if stored == 0 { 1.0 } else { (read as f64 / stored as f64).min(1.0) };
    let of = |column: &usize| {
        let field = fields.get(*column)?;
        let files = files.as_ref().filter(|files| files.len() <= BOUNDS_FILES_MAX)?;
        column_statistics(files, field.name(), field.data_type())
    };
    Statistics {
        num_rows: Precision::Inexact((rows as f64 * share).ceil() as usize),
        total_byte_size: Precision::Absent,
        column_statistics: columns.iter().map(|column| of(column).unwrap_or_default()).collect(),
    }
}

fn sum_counts(counts: &ArrayRef) -> Option<u64> {
    sum(counts.as_primitive_opt::<UInt64Type>()?)
}

/// Returns the minimum, maximum and null count of a column over all files, or `None` where they are unknown.
fn column_statistics(
    files: &[Box<dyn PruningStatistics + '_>],
    name: &str,
    data_type: &DataType,
) -> Option<ColumnStatistics> {
    // Join keys have these types. Text bounds may be truncated, and float bounds do not include NaN.
    if !data_type.is_integer() && !matches!(data_type, DataType::Date32) {
        return None;
    }
    let column = Column::new_unqualified(name);
    let (mut least, mut greatest, mut nulls) = (None, None, 0);
    for file in files {
        nulls += sum_counts(&file.null_counts(&column)?)?;
        let (mins, maxes) = (file.min_values(&column)?, file.max_values(&column)?);
        if mins.null_count() + maxes.null_count() > 0 {
            return None;
        }
        let as_wide = |values: &ArrayRef| arrow::compute::cast(values, &DataType::Int64).ok();
        let (mins, maxes) = (as_wide(&mins)?, as_wide(&maxes)?);
        if mins.null_count() + maxes.null_count() > 0 {
            return None;
        }
        least = least.into_iter().chain(min(mins.as_primitive::<Int64Type>())).min();
        greatest = greatest.into_iter().chain(max(maxes.as_primitive::<Int64Type>())).max();
    }
    let value =
        |of: i64| ScalarValue::Int64(Some(of)).cast_to(data_type).ok().map(Precision::Inexact);
    Some(ColumnStatistics {
        min_value: value(least?)?,
        max_value: value(greatest?)?,
        null_count: Precision::Inexact(usize::try_from(nulls).ok()?),
        ..ColumnStatistics::new_unknown()
    })
}
