//! Orders the rows of a hash partition: one group after the other, each sorted as the windows require.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, concat, take};
use arrow::datatypes::*;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::utils::evaluate_partition_ranges;
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;

/// Positions at which ranges of rows begin, followed by the end.
pub(super) type RangeStarts = Vec<u32>;

/// The order of a hash partition's rows. A position is an index into this order.
pub(super) struct PartitionRowOrder {
    /// Row at each position; `None` if the rows stay in arrival order.
    pub sorted_rows: Option<UInt32Array>,
    /// Group of each row in arrival order. Groups are arranged by their numbers.
    pub row_groups: Vec<usize>,
    pub group_count: usize,
    /// Empty if the rows stay in arrival order.
    pub group_starts: RangeStarts,
    /// Starts of the ranges of rows with equal order keys.
    pub peer_starts: RangeStarts,
}

/// The keys by which a hash partition is ordered.
pub(super) struct RowOrderKeys<'a> {
    pub group_keys: &'a [PhysicalSortExpr],
    pub order_keys: &'a [PhysicalSortExpr],
}

impl PartitionRowOrder {
    /// Sorts the rows by group and order keys; `are_sorted` arranges the groups in the order of their keys.
    pub(super) fn sort_rows(
        part: &RecordBatch,
        keys: &RowOrderKeys<'_>,
        are_sorted: bool,
    ) -> PlanResult<PartitionRowOrder> {
        let (groups, group_count) = assign_groups(part, keys.group_keys, are_sorted)?;
        let (places, group_starts) = rows_by_group(&groups, group_count);
        let within: Vec<(ArrayRef, SortOptions)> = evaluate_keys(part, keys.order_keys)?;
        let (rows, equal_starts) = match within.as_slice() {
            [] => (places, group_starts.clone()),
            keys => sort_within_groups(&places, &group_starts, keys)?,
        };
        let rows = Some(UInt32Array::from(rows));
        Ok(PartitionRowOrder {
            sorted_rows: rows,
            row_groups: groups,
            group_count,
            group_starts,
            peer_starts: equal_starts,
        })
    }

    /// Assigns rows to groups and leaves them in arrival order.
    pub(super) fn group_in_arrival_order(
        part: &RecordBatch,
        keys: &[PhysicalSortExpr],
    ) -> PlanResult<PartitionRowOrder> {
        let (groups, group_count) = assign_groups(part, keys, false)?;
        let (group_starts, equal_starts) = (Vec::new(), Vec::new());
        Ok(PartitionRowOrder {
            sorted_rows: None,
            row_groups: groups,
            group_count,
            group_starts,
            peer_starts: equal_starts,
        })
    }

    /// Arranges values from arrival order to their positions.
    pub(super) fn arrange(&self, values: &ArrayRef) -> PlanResult<ArrayRef> {
        Ok(match &self.sorted_rows {
            Some(rows) => take(values, rows, None)?,
            None => Arc::clone(values),
        })
    }

    /// Returns the starts of ranges of rows with equal `keys`, which are a prefix of the order.
    pub(super) fn peer_starts_for_keys(
        &self,
        part: &RecordBatch,
        keys: &[PhysicalSortExpr],
    ) -> PlanResult<RangeStarts> {
        let columns = keys.iter().map(|key| {
            let mut column = key.evaluate_to_sort_column(part)?;
            column.values = self.arrange(&column.values)?;
            Ok(column)
        });
        let columns = columns.collect::<PlanResult<Vec<_>>>()?;
        let ranges = evaluate_partition_ranges(part.num_rows(), &columns)?;
        let starts = ranges.iter().map(|range| row_number_u32(range.start));
        Ok(starts.chain([row_number_u32(part.num_rows())]).collect())
    }
}

/// Converts a row index to 32 bits; a hash partition has fewer rows than `u32::MAX`.
pub(super) fn row_number_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn evaluate_keys(
    part: &RecordBatch,
    keys: &[PhysicalSortExpr],
) -> PlanResult<Vec<(ArrayRef, SortOptions)>> {
    let columns = keys
        .iter()
        .map(|key| Ok((key.expr.evaluate(part)?.into_array(part.num_rows())?, key.options)));
    columns.collect()
}

/// Returns the group of each row and the number of groups.
fn assign_groups(
    part: &RecordBatch,
    keys: &[PhysicalSortExpr],
    are_sorted: bool,
) -> PlanResult<(Vec<usize>, usize)> {
    let keys = evaluate_keys(part, keys)?;
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
    for (row, &group) in (0..row_number_u32(groups.len())).zip(&groups).rev() {
        first[group] = row;
    }
    let first = UInt32Array::from(first);
    let firsts = keys.iter().map(|(values, options)| Ok((take(values, &first, None)?, *options)));
    let rows = encode_rows(&firsts.collect::<PlanResult<Vec<_>>>()?)?;
    let mut sorted: Vec<usize> = (0..count).collect();
    sorted.sort_unstable_by(|&a, &b| rows.row(a).cmp(&rows.row(b)));
    let mut places = vec![0; count];
    for (place, group) in sorted.into_iter().enumerate() {
        places[group] = place;
    }
    groups.iter_mut().for_each(|group| *group = places[*group]);
    Ok((groups, count))
}

/// Returns the rows group by group, each group in arrival order, and the starts of the groups.
fn rows_by_group(groups: &[usize], count: usize) -> (Vec<u32>, RangeStarts) {
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

/// Integers that sort like the values of a key.
struct KeyCodes {
    /// One code for each row; arbitrary for a null.
    codes: Vec<u64>,
    /// True if equal codes mean equal values.
    is_exact: bool,
}

/// Encodes values of at most 64 bits, and the first eight bytes of texts.
fn encode_key(values: &ArrayRef, options: SortOptions) -> Option<KeyCodes> {
    const SIGN: u64 = 1 << 63;
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
    fn text_prefixes<O: OffsetSizeTrait>(bytes: &[u8], offsets: &[O]) -> Vec<u64> {
        let first = |ends: &[O]| {
            let text = &bytes[ends[0].as_usize()..ends[1].as_usize()];
            let mut first = [0; 8];
            let length = text.len().min(8);
            first[..length].copy_from_slice(&text[..length]);
            u64::from_be_bytes(first)
        };
        offsets.windows(2).map(first).collect()
    }
    let mut is_exact = true;
    let mut numbers: Vec<u64> = match values.data_type() {
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
        // The total order, as the keys are normalized already (`floats`).
        DataType::Float64 => {
            let values = values.as_primitive::<Float64Type>().values().iter();
            let code = |bits: u64| if bits & SIGN == 0 { bits ^ SIGN } else { !bits };
            values.map(|value| code(value.to_bits())).collect()
        }
        DataType::Utf8 | DataType::LargeUtf8 => {
            is_exact = false;
            match values.as_string_opt::<i64>() {
                Some(values) => text_prefixes(values.value_data(), values.value_offsets()),
                None => {
                    let values = values.as_string::<i32>();
                    text_prefixes(values.value_data(), values.value_offsets())
                }
            }
        }
        _ => return None,
    };
    if options.descending {
        numbers.iter_mut().for_each(|number| *number = !*number);
    }
    Some(KeyCodes { codes: numbers, is_exact })
}

/// Packs the codes of several keys into one integer for each row. Each key takes the bits that its range of
/// values and a null need, while there is room. Also returns whether all bits of all keys fit.
fn pack_keys(keys: &[(ArrayRef, SortOptions)], rows: usize) -> (Vec<u64>, bool) {
    let (mut packed, mut room) = (vec![0_u64; rows], u64::BITS);
    for (values, options) in keys {
        let Some(codes) = encode_key(values, *options).filter(|_| room > 0) else {
            return (packed, false);
        };
        let nulls = values.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let there = || (0..rows).filter(|row| !is_null(*row)).map(|row| codes.codes[row]);
        let least = there().min().unwrap_or(0);
        let span = u128::from(there().max().unwrap_or(0) - least);
        let (for_null, more) = match (nulls.is_some(), options.nulls_first) {
            (false, _) => (0, 0),
            (true, true) => (0, 1),
            (true, false) => (span + 1, 0),
        };
        let bits = u128::BITS - (span + u128::from(nulls.is_some())).leading_zeros();
        let (kept, lost) = (bits.min(room), bits.saturating_sub(room));
        for (row, packed) in packed.iter_mut().enumerate() {
            let code = match is_null(row) {
                true => for_null,
                false => u128::from(codes.codes[row] - least) + more,
            };
            let code = u64::try_from(code >> lost).unwrap_or(u64::MAX);
            *packed = packed.unbounded_shl(kept) | code;
        }
        room -= kept;
        if lost > 0 || !codes.is_exact {
            return (packed, false);
        }
    }
    (packed, true)
}

/// Sorts the rows of each group by the keys, ties in arrival order; also returns the starts of peers.
fn sort_within_groups(
    rows: &[u32],
    groups: &[u32],
    keys: &[(ArrayRef, SortOptions)],
) -> PlanResult<(Vec<u32>, RangeStarts)> {
    let (packed, is_exact) = pack_keys(keys, rows.len());
    let mut coded: Vec<(u64, u32)> = rows.iter().map(|&row| (packed[row as usize], row)).collect();
    let mut starts = Vec::with_capacity(rows.len() + 1);
    for group in groups.windows(2) {
        let (start, end) = (group[0] as usize, group[1] as usize);
        let group = &mut coded[start..end];
        group.sort_unstable();
        starts.push(row_number_u32(start));
        let others = group.windows(2).zip(start + 1..);
        starts.extend(
            others.filter(|(pair, _)| pair[0].0 != pair[1].0).map(|(_, at)| row_number_u32(at)),
        );
    }
    starts.push(row_number_u32(rows.len()));
    if !is_exact {
        starts = sort_ties(&mut coded, &starts, keys)?;
    }
    Ok((coded.into_iter().map(|(_, row)| row).collect(), starts))
}

/// Sorts rows with equal codes by their keys; returns the new starts of peers.
fn sort_ties(
    coded: &mut [(u64, u32)],
    starts: &[u32],
    keys: &[(ArrayRef, SortOptions)],
) -> PlanResult<RangeStarts> {
    let ties = || starts.windows(2).filter(|run| run[1] - run[0] > 1);
    let places = || ties().flat_map(|run| run[0] as usize..run[1] as usize);
    let tied = UInt32Array::from_iter_values(places().map(|place| coded[place].1));
    if tied.is_empty() {
        return Ok(starts.to_vec());
    }
    let keys = keys.iter().map(|(values, options)| Ok((take(values, &tied, None)?, *options)));
    let keys = encode_rows(&keys.collect::<PlanResult<Vec<_>>>()?)?;
    let mut told = Vec::with_capacity(starts.len() + tied.len());
    let mut next = 0;
    for run in starts.windows(2) {
        told.push(run[0]);
        let count = (run[1] - run[0]) as usize;
        if count == 1 {
            continue;
        }
        // Indices among the tied rows.
        let mut order: Vec<usize> = (next..next + count).collect();
        next += count;
        let key = |index: usize| keys.row(index);
        order.sort_unstable_by(|&a, &b| key(a).cmp(&key(b)).then(a.cmp(&b)));
        let others = order.windows(2).zip(run[0] + 1..);
        told.extend(others.filter(|(pair, _)| key(pair[0]) != key(pair[1])).map(|(_, at)| at));
        for (place, index) in (run[0] as usize..).zip(order) {
            coded[place].1 = tied.value(index);
        }
    }
    told.push(starts.last().copied().unwrap_or(0));
    Ok(told)
}

/// Encodes the keys of each row as bytes whose order is the order of the rows.
fn encode_rows(keys: &[(ArrayRef, SortOptions)]) -> PlanResult<Rows> {
    let fields = keys
        .iter()
        .map(|(values, options)| SortField::new_with_options(values.data_type().clone(), *options));
    let columns: Vec<ArrayRef> = keys.iter().map(|(values, _)| Arc::clone(values)).collect();
    Ok(RowConverter::new(fields.collect())?.convert_columns(&columns)?)
}

/// Returns whether rows can be sorted by keys of these types.
pub(super) fn are_types_sortable(types: impl Iterator<Item = DataType>) -> bool {
    let fields: Vec<SortField> = types.map(SortField::new).collect();
    RowConverter::supports_fields(&fields)
}

/// Concatenates arrays.
pub(super) fn concat_arrays(arrays: &[ArrayRef]) -> PlanResult<ArrayRef> {
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    Ok(concat(&arrays)?)
}
