//! The order of a part's rows: one group after the other, and within each as the windows want it.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, concat, take};
use arrow::datatypes::*;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::utils::evaluate_partition_ranges;
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;

/// Where rows that belong together begin, by their places, and the end.
pub(super) type Starts = Vec<u32>;

/// The order.
pub(super) struct Order {
    /// Which row stands at each place; none where each stands as it came.
    pub rows: Option<UInt32Array>,
    /// Of which group each row is, as it came. The groups stand in the order of their numbers.
    pub groups: Vec<usize>,
    pub group_count: usize,
    /// None where the rows stand as they came.
    pub group_starts: Starts,
    /// Of rows that are equal in what their group is in order of.
    pub equal_starts: Starts,
}

/// What a part is in order of.
pub(super) struct Keys<'a> {
    pub groups: &'a [PhysicalSortExpr],
    pub within: &'a [PhysicalSortExpr],
}

impl Order {
    /// Rows as they come: `are_sorted` of groups in the order of their keys.
    pub(super) fn of(part: &RecordBatch, keys: &Keys<'_>, are_sorted: bool) -> PlanResult<Order> {
        let (groups, group_count) = groups(part, keys.groups, are_sorted)?;
        let (places, group_starts) = by_group(&groups, group_count);
        let within: Vec<(ArrayRef, SortOptions)> = evaluated(part, keys.within)?;
        let (rows, equal_starts) = match within.as_slice() {
            [] => (places, group_starts.clone()),
            [(values, options)] if let Some(codes) = codes(values, *options) => {
                by_codes(&places, &group_starts, &codes)
            }
            _ => by_rows(places, &group_starts, &encoded(&within)?),
        };
        let rows = Some(UInt32Array::from(rows));
        Ok(Order { rows, groups, group_count, group_starts, equal_starts })
    }

    /// Of groups alone, whose rows stand as they came.
    pub(super) fn as_they_came(part: &RecordBatch, keys: &[PhysicalSortExpr]) -> PlanResult<Order> {
        let (groups, group_count) = groups(part, keys, false)?;
        let (group_starts, equal_starts) = (Vec::new(), Vec::new());
        Ok(Order { rows: None, groups, group_count, group_starts, equal_starts })
    }

    /// Values as they came, each at its place.
    pub(super) fn placed(&self, values: &ArrayRef) -> PlanResult<ArrayRef> {
        Ok(match &self.rows {
            Some(rows) => take(values, rows, None)?,
            None => Arc::clone(values),
        })
    }

    /// Where rows begin that are equal in `keys`, which their order begins with.
    pub(super) fn starts(
        &self,
        part: &RecordBatch,
        keys: &[PhysicalSortExpr],
    ) -> PlanResult<Starts> {
        let columns = keys.iter().map(|key| {
            let mut column = key.evaluate_to_sort_column(part)?;
            column.values = self.placed(&column.values)?;
            Ok(column)
        });
        let columns = columns.collect::<PlanResult<Vec<_>>>()?;
        let ranges = evaluate_partition_ranges(part.num_rows(), &columns)?;
        let starts = ranges.iter().map(|range| number(range.start));
        Ok(starts.chain([number(part.num_rows())]).collect())
    }
}

/// A part has fewer rows than that.
pub(super) fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn evaluated(
    part: &RecordBatch,
    keys: &[PhysicalSortExpr],
) -> PlanResult<Vec<(ArrayRef, SortOptions)>> {
    let columns = keys
        .iter()
        .map(|key| Ok((key.expr.evaluate(part)?.into_array(part.num_rows())?, key.options)));
    columns.collect()
}

/// Of which group each row is, and how many there are.
fn groups(
    part: &RecordBatch,
    keys: &[PhysicalSortExpr],
    are_sorted: bool,
) -> PlanResult<(Vec<usize>, usize)> {
    let keys = evaluated(part, keys)?;
    let fields = keys.iter().map(|(values, _)| Field::new("", values.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut table = new_group_values(schema, &GroupOrdering::None)?;
    let columns: Vec<ArrayRef> = keys.iter().map(|(values, _)| Arc::clone(values)).collect();
    let mut groups = Vec::with_capacity(part.num_rows());
    table.intern(&columns, &mut groups)?;
    let count = table.len();
    if !are_sorted {
        return Ok((groups, count));
    }
    let mut first = vec![0_u32; count];
    for (row, &group) in (0..number(groups.len())).zip(&groups).rev() {
        first[group] = row;
    }
    let first = UInt32Array::from(first);
    let firsts = keys.iter().map(|(values, options)| Ok((take(values, &first, None)?, *options)));
    let rows = encoded(&firsts.collect::<PlanResult<Vec<_>>>()?)?;
    let mut sorted: Vec<usize> = (0..count).collect();
    sorted.sort_unstable_by(|&a, &b| rows.row(a).cmp(&rows.row(b)));
    let mut places = vec![0; count];
    for (place, group) in sorted.into_iter().enumerate() {
        places[group] = place;
    }
    groups.iter_mut().for_each(|group| *group = places[*group]);
    Ok((groups, count))
}

/// The rows group by group, each group's as they came, and where the groups start.
fn by_group(groups: &[usize], count: usize) -> (Vec<u32>, Starts) {
    let mut starts = vec![0_u32; count + 1];
    for &group in groups {
        starts[group + 1] += 1;
    }
    for group in 0..count {
        starts[group + 1] += starts[group];
    }
    let mut next = starts.clone();
    let mut rows = vec![0_u32; groups.len()];
    for (row, &group) in (0..).zip(groups) {
        rows[next[group] as usize] = row;
        next[group] += 1;
    }
    (rows, starts)
}

/// Numbers in the order of the values, where they are of 64 bits at most and none is missing.
fn codes(values: &ArrayRef, options: SortOptions) -> Option<Vec<u64>> {
    const SIGN: u64 = 1 << 63;
    if values.null_count() > 0 {
        return None;
    }
    macro_rules! signed {
        ($t:ty) => {{
            let values = values.as_primitive::<$t>().values();
            values.iter().map(|value| i64::from(*value).cast_unsigned() ^ SIGN).collect()
        }};
    }
    macro_rules! unsigned {
        ($t:ty) => {
            values.as_primitive::<$t>().values().iter().map(|value| u64::from(*value)).collect()
        };
    }
    let mut codes: Vec<u64> = match values.data_type() {
        DataType::Int8 => signed!(Int8Type),
        DataType::Int16 => signed!(Int16Type),
        DataType::Int32 => signed!(Int32Type),
        DataType::Int64 => signed!(Int64Type),
        DataType::Date32 => signed!(Date32Type),
        DataType::Date64 => signed!(Date64Type),
        DataType::Timestamp(TimeUnit::Second, _) => signed!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => signed!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => signed!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => signed!(TimestampNanosecondType),
        DataType::UInt8 => unsigned!(UInt8Type),
        DataType::UInt16 => unsigned!(UInt16Type),
        DataType::UInt32 => unsigned!(UInt32Type),
        DataType::UInt64 => unsigned!(UInt64Type),
        // In the total order, as the keys are settled (`floats`).
        DataType::Float64 => {
            let values = values.as_primitive::<Float64Type>().values().iter();
            let code = |bits: u64| if bits & SIGN == 0 { bits ^ SIGN } else { !bits };
            values.map(|value| code(value.to_bits())).collect()
        }
        _ => return None,
    };
    if options.descending {
        codes.iter_mut().for_each(|code| *code = !*code);
    }
    Some(codes)
}

/// Each group by its codes, equal ones as they came, and where equals start.
fn by_codes(rows: &[u32], groups: &[u32], codes: &[u64]) -> (Vec<u32>, Starts) {
    let mut coded: Vec<(u64, u32)> = rows.iter().map(|&row| (codes[row as usize], row)).collect();
    let mut starts = Vec::with_capacity(rows.len() + 1);
    for group in groups.windows(2) {
        let (start, end) = (group[0] as usize, group[1] as usize);
        let group = &mut coded[start..end];
        group.sort_unstable();
        starts.push(number(start));
        let others = group.windows(2).zip(start + 1..);
        starts.extend(others.filter(|(pair, _)| pair[0].0 != pair[1].0).map(|(_, at)| number(at)));
    }
    starts.push(number(rows.len()));
    (coded.into_iter().map(|(_, row)| row).collect(), starts)
}

/// The keys of each row as bytes, in whose order the rows are.
fn encoded(keys: &[(ArrayRef, SortOptions)]) -> PlanResult<Rows> {
    let fields = keys
        .iter()
        .map(|(values, options)| SortField::new_with_options(values.data_type().clone(), *options));
    let columns: Vec<ArrayRef> = keys.iter().map(|(values, _)| Arc::clone(values)).collect();
    Ok(RowConverter::new(fields.collect())?.convert_columns(&columns)?)
}

/// As [`by_codes`], of keys as bytes: their first eight mostly tell.
fn by_rows(rows: Vec<u32>, groups: &[u32], keys: &Rows) -> (Vec<u32>, Starts) {
    let bytes = |row: u32| keys.row(row as usize).data();
    let mut coded: Vec<(u64, u32)> = rows
        .into_iter()
        .map(|row| {
            let mut first = [0; 8];
            let key = bytes(row);
            let length = key.len().min(8);
            first[..length].copy_from_slice(&key[..length]);
            (u64::from_be_bytes(first), row)
        })
        .collect();
    let order = |a: &(u64, u32), b: &(u64, u32)| -> Ordering {
        a.0.cmp(&b.0).then_with(|| bytes(a.1).cmp(bytes(b.1)))
    };
    let mut starts = Vec::with_capacity(coded.len() + 1);
    for group in groups.windows(2) {
        let (start, end) = (group[0] as usize, group[1] as usize);
        let group = &mut coded[start..end];
        group.sort_unstable_by(|a, b| order(a, b).then(a.1.cmp(&b.1)));
        starts.push(number(start));
        let others = group.windows(2).zip(start + 1..);
        let others = others.filter(|(pair, _)| order(&pair[0], &pair[1]) != Ordering::Equal);
        starts.extend(others.map(|(_, at)| number(at)));
    }
    starts.push(number(coded.len()));
    (coded.into_iter().map(|(_, row)| row).collect(), starts)
}

/// Whether rows can be in order of such keys.
pub(super) fn can_be_sorted(types: impl Iterator<Item = DataType>) -> bool {
    let fields: Vec<SortField> = types.map(SortField::new).collect();
    RowConverter::supports_fields(&fields)
}

/// Arrays one after the other.
pub(super) fn joined(arrays: &[ArrayRef]) -> PlanResult<ArrayRef> {
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    Ok(concat(&arrays)?)
}
