//! States of the first rows of each group by an order.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, LargeListArray, LargeStringBuilder, StructArray,
    UInt32Array, UInt64Array, downcast_primitive,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Field, Fields, IntervalDayTime, IntervalMonthDayNano, i256};
use arrow::row::{Row, Rows as EncodedRows};
use half::f16;
use tidemill_base::error::{Error, Result};

use super::{
    ChunkStates, GroupedRows, StateColumn, StateRoutes, corrupt_state_error, state_type_error,
};
use crate::aggregates::first_rows::{ColumnAnswer, FirstRowsAnswer, FirstRowsSpec};
use crate::value_encoding;

/// The candidate rows for the first rows of each group, in arrival order.
///
/// When the candidates are twice as many as after the last pruning, those that are not among the first rows
/// are dropped. From then on each group's last kept row rejects most new rows by a comparison of key
/// prefixes, which are 64 bits of the first column. With n rows kept for each of g groups, N rows in any
/// order are thus encoded about n·g·log(N/(n·g)) times, and each is compared with some others of its group
/// once. If one row is requested, a group's prefix is that of the best row of the batch before any row is
/// encoded: about one row per group and batch remains, in whatever order rows arrive.
///
/// Rows are encoded as bytes that sort in row order (Arrow's row format): the ORDER BY columns come first,
/// and the others complete the order, so that rows that compare as equal are equal in all columns.
pub(super) struct FirstRowsStates {
    spec: Arc<FirstRowsSpec>,
    /// The type of the answer.
    output_type: DataType,
    candidates: CandidateRows,
    /// Per group, the key prefix of its last row once the group has as many rows as requested; else the
    /// maximum.
    last_key_prefixes: Vec<u64>,
    /// Number of candidates at which they are pruned.
    prune_rows_min: usize,
    scratch: PruneScratch,
}

/// Minimum number of candidates before they are pruned.
const UNPRUNED_ROWS_MIN: usize = 1 << 16;

/// Returns the number of candidates at which to prune next, after `count` remained; never if all rows are
/// requested.
fn rows_before_pruning(of: &FirstRowsSpec, count: usize) -> usize {
    if of.rows_max == usize::MAX { usize::MAX } else { (2 * count).max(UNPRUNED_ROWS_MIN) }
}

/// The first rows of all groups, grouped, each group's in order.
pub(crate) struct OrderedGroupRows {
    spec: Arc<FirstRowsSpec>,
    /// The offset of each group's first row.
    offsets: OffsetBuffer<i64>,
    rows: EncodedRows,
    key_prefixes: Vec<u64>,
}

impl FirstRowsStates {
    pub(super) fn new(of: &Arc<FirstRowsSpec>, output: DataType) -> Self {
        FirstRowsStates {
            spec: Arc::clone(of),
            output_type: output,
            candidates: CandidateRows::new(of),
            last_key_prefixes: Vec::new(),
            prune_rows_min: rows_before_pruning(of, 0),
            scratch: PruneScratch {
                starts: Vec::new(),
                rows_by_group: Vec::new(),
                spare_candidates: CandidateRows::new(of),
            },
        }
    }

    /// Keeps only the first rows of each group, ordered by group, and returns the offset of each group's
    /// first row.
    fn prune_candidates(&mut self, in_order: bool) -> OffsetBuffer<i64> {
        let group_count = self.last_key_prefixes.len();
        let PruneScratch { starts, rows_by_group: by_group, spare_candidates: kept } =
            &mut self.scratch;
        starts.clear();
        starts.resize(group_count + 2, 0);
        // The start of each group's rows; during the distribution, the place of its next row.
        for group in &self.candidates.groups {
            starts[*group as usize + 2] += 1;
        }
        for group in 2..starts.len() {
            starts[group] += starts[group - 1];
        }
        by_group.clear();
        by_group.resize(self.candidates.groups.len(), 0);
        for (row, group) in self.candidates.groups.iter().enumerate() {
            let at = &mut starts[*group as usize + 1];
            by_group[*at] = row as u32;
            *at += 1;
        }
        let CandidateRows { rows, key_prefixes: leads, .. } = &self.candidates;
        let order = |left: &u32, right: &u32| -> Ordering {
            let (left, right) = (*left as usize, *right as usize);
            leads[left].cmp(&leads[right]).then_with(|| rows.row(left).cmp(&rows.row(right)))
        };
        let most = self.spec.rows_max;
        kept.clear();
        let mut lengths = Vec::with_capacity(group_count);
        for group in 0..group_count {
            let mut of_group = &mut by_group[starts[group]..starts[group + 1]];
            if of_group.len() > most {
                of_group.select_nth_unstable_by(most - 1, order);
                of_group = &mut of_group[..most];
            }
            if in_order {
                of_group.sort_unstable_by(order);
            }
            let mut last = 0;
            for row in of_group.iter() {
                let row = *row as usize;
                kept.push(rows.row(row), leads[row], group);
                last = last.max(leads[row]);
            }
            lengths.push(of_group.len());
            if of_group.len() == most {
                self.last_key_prefixes[group] = last;
            }
        }
        std::mem::swap(&mut self.candidates, kept);
        self.prune_rows_min = rows_before_pruning(&self.spec, self.candidates.len());
        OffsetBuffer::from_lengths(lengths)
    }
}

/// Encoded rows, each with its key prefix and its group.
struct CandidateRows {
    rows: EncodedRows,
    key_prefixes: Vec<u64>,
    groups: Vec<u32>,
}

/// Scratch memory of a pruning, which the next one reuses.
struct PruneScratch {
    starts: Vec<usize>,
    rows_by_group: Vec<u32>,
    spare_candidates: CandidateRows,
}

impl CandidateRows {
    fn new(of: &FirstRowsSpec) -> Self {
        CandidateRows {
            rows: of.row_converter.empty_rows(0, 0),
            key_prefixes: Vec::new(),
            groups: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.key_prefixes.len()
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.key_prefixes.clear();
        self.groups.clear();
    }

    #[inline]
    fn push(&mut self, row: Row<'_>, lead: u64, group: usize) {
        self.rows.push(row);
        self.key_prefixes.push(lead);
        self.groups.push(group as u32);
    }

    fn memory_bytes(&self) -> usize {
        self.rows.size()
            + self.key_prefixes.capacity() * size_of::<u64>()
            + self.groups.capacity() * size_of::<u32>()
    }
}

impl StateColumn for FirstRowsStates {
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.last_key_prefixes.resize(rows.group_count, u64::MAX);
        let structs = rows.required_values()?.as_struct();
        let columns = self.spec.add_positions(structs.columns(), rows.positions)?;
        let nulls = match &self.spec.answer {
            FirstRowsAnswer::NumberedRows => structs.logical_nulls(),
            FirstRowsAnswer::ColumnValue { skips_nulls: true, .. } => {
                columns.last().and_then(|values| values.logical_nulls())
            }
            FirstRowsAnswer::ColumnValue { .. } => None,
        };
        let leads = self.spec.compute_key_prefixes(&columns[0]);
        if self.spec.rows_max == 1 {
            rows.update_states(nulls.as_ref(), &mut self.last_key_prefixes, |last, row, _| {
                *last = leads[row].min(*last)
            });
        }
        let mut wanted: Vec<u32> = Vec::new();
        let CandidateRows { rows: encoded, key_prefixes: all, groups } = &mut self.candidates;
        rows.update_states(nulls.as_ref(), &mut self.last_key_prefixes, |last, row, group| {
            if leads[row] <= *last {
                wanted.push(row as u32);
                all.push(leads[row]);
                groups.push(group as u32);
            }
        });
        match wanted.len() == structs.len() {
            true => self.spec.row_converter.append(encoded, &columns)?,
            false => {
                let wanted = UInt32Array::from(wanted);
                let columns = columns.iter().map(|column| take(column, &wanted, None));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                self.spec.row_converter.append(encoded, &columns)?;
            }
        }
        if self.candidates.len() >= self.prune_rows_min {
            self.prune_candidates(false);
        }
        Ok(())
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.last_key_prefixes.resize(routes.group_count, u64::MAX);
        let from = match states {
            ChunkStates::FirstRows(from) if Arc::ptr_eq(&from.spec, &self.spec) => from,
            _ => return Err(state_type_error("first rows")),
        };
        let (kept, is_one) = (&mut self.candidates, self.spec.rows_max == 1);
        routes.merge_states(&mut self.last_key_prefixes, |last, state, group| {
            for row in from.offsets[state] as usize..from.offsets[state + 1] as usize {
                if from.key_prefixes[row] <= *last {
                    kept.push(from.rows.row(row), from.key_prefixes[row], group);
                    if is_one {
                        *last = from.key_prefixes[row];
                    }
                }
            }
        });
        if self.candidates.len() >= self.prune_rows_min {
            self.prune_candidates(false);
        }
        Ok(())
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        self.last_key_prefixes.resize(group_count, u64::MAX);
        let offsets = self.prune_candidates(true);
        let empty = FirstRowsStates::new(&self.spec, self.output_type.clone());
        let FirstRowsStates {
            spec: of,
            candidates: CandidateRows { rows, key_prefixes: leads, .. },
            ..
        } = std::mem::replace(self, empty);
        Ok(ChunkStates::FirstRows(OrderedGroupRows {
            spec: of,
            offsets,
            rows,
            key_prefixes: leads,
        }))
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        self.decode_row_lists(array, None)
    }

    fn decode_partial_table_states(&self, array: &ArrayRef, file: usize) -> Result<ChunkStates> {
        self.decode_row_lists(array, Some(file))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        match self.take_states(group_count)? {
            ChunkStates::FirstRows(rows) => rows.build_answer(&self.output_type),
            _ => Err(state_type_error("first rows")),
        }
    }

    fn memory_bytes(&self) -> usize {
        let PruneScratch { starts, rows_by_group: by_group, spare_candidates: kept } =
            &self.scratch;
        // The scratch memory is empty until the first pruning.
        let next = self.candidates.memory_bytes().max(kept.memory_bytes());
        let last = self.last_key_prefixes.capacity() * (size_of::<u64>() + size_of::<usize>());
        let dealt = self.candidates.len().max(by_group.capacity()) * size_of::<u32>();
        self.candidates.memory_bytes()
            + next
            + last.max(starts.capacity() * size_of::<usize>())
            + dealt
    }
}

impl FirstRowsStates {
    /// Decodes states. For one of several files, the positions of its rows become positions of that file
    /// among the others. This loses nothing: each group is in a file once, with its rows in order.
    fn decode_row_lists(&self, array: &ArrayRef, file: Option<usize>) -> Result<ChunkStates> {
        let structs = DataType::Struct(self.spec.columns.clone());
        let is_list = match array.data_type() {
            DataType::LargeList(item) => item.data_type() == &structs,
            _ => false,
        };
        let refused = || {
            corrupt_state_error(self.spec.sql_name(), format!("lists of {structs} are expected"))
        };
        if !is_list || array.null_count() > 0 {
            return Err(refused());
        }
        let lists = array.as_list::<i64>();
        let structs = lists.values().as_struct();
        if structs.null_count() > 0 {
            return Err(refused());
        }
        let mut columns = structs.columns().to_vec();
        if let (Some(file), Some(place)) = (file, self.spec.position_column()) {
            columns[place] = self.spec.create_file_positions(file, lists.offsets());
        }
        Ok(ChunkStates::FirstRows(OrderedGroupRows {
            spec: Arc::clone(&self.spec),
            offsets: lists.offsets().clone(),
            key_prefixes: self.spec.compute_key_prefixes(&columns[0]),
            rows: self.spec.row_converter.convert_columns(&columns)?,
        }))
    }
}

impl OrderedGroupRows {
    pub(super) fn memory_bytes(&self) -> usize {
        self.rows.size()
            + self.key_prefixes.capacity() * size_of::<u64>()
            + self.offsets.inner().inner().len()
    }

    fn decode_columns(&self) -> Result<Vec<ArrayRef>> {
        let columns = self.spec.row_converter.convert_rows(self.rows.iter())?;
        let typed = columns.iter().zip(&self.spec.columns);
        typed
            .map(|(column, field)| value_encoding::cast_exactly(column, field.data_type()))
            .collect()
    }

    fn build_struct_lists(&self, fields: Fields, columns: Vec<ArrayRef>) -> Result<ArrayRef> {
        let structs = StructArray::try_new(fields, columns, None)?;
        let item = Arc::new(Field::new_list_field(structs.data_type().clone(), true));
        let offsets = self.offsets.clone();
        Ok(Arc::new(LargeListArray::try_new(item, offsets, Arc::new(structs), None)?))
    }

    /// Encodes the rows for disk.
    pub(super) fn encode(&self) -> Result<ArrayRef> {
        self.build_struct_lists(self.spec.columns.clone(), self.decode_columns()?)
    }

    /// Returns the answer of type `output`.
    fn build_answer(&self, output: &DataType) -> Result<ArrayRef> {
        match &self.spec.answer {
            FirstRowsAnswer::NumberedRows => self.build_numbered_rows(),
            FirstRowsAnswer::ColumnValue { column_answer: ColumnAnswer::LastValue, .. } => {
                let most = self.spec.rows_max as i64;
                let lasts = self.offsets.windows(2);
                let lasts = lasts
                    .map(|ends| (ends[1] - ends[0] == most).then(|| (ends[1] - 1).cast_unsigned()));
                let values = self.decode_answer_values()?;
                value_encoding::cast_exactly(
                    &take(&values, &UInt64Array::from_iter(lasts), None)?,
                    output,
                )
            }
            FirstRowsAnswer::ColumnValue { column_answer: ColumnAnswer::List, .. } => {
                let values = self.decode_answer_values()?;
                let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
                let some = self.offsets.windows(2).map(|ends| ends[0] < ends[1]);
                let nulls = NullBuffer::from_iter(some);
                let offsets = self.offsets.clone();
                let lists = LargeListArray::try_new(item, offsets, values, Some(nulls))?;
                value_encoding::cast_exactly(&(Arc::new(lists) as ArrayRef), output)
            }
            FirstRowsAnswer::ColumnValue {
                column_answer: ColumnAnswer::JoinedText(separator),
                ..
            } => {
                let texts = value_encoding::cast_exactly(
                    &self.decode_answer_values()?,
                    &DataType::LargeUtf8,
                )?;
                let texts = texts.as_string::<i64>();
                let mut joined = LargeStringBuilder::with_capacity(self.offsets.len(), 0);
                for ends in self.offsets.windows(2) {
                    let rows = ends[0] as usize..ends[1] as usize;
                    if rows.is_empty() {
                        joined.append_null();
                        continue;
                    }
                    for row in rows.clone() {
                        // Writing to memory does not fail.
                        if row > rows.start {
                            let _ = joined.write_str(separator);
                        }
                        let _ = joined.write_str(texts.value(row));
                    }
                    joined.append_value("");
                }
                value_encoding::cast_exactly(&(Arc::new(joined.finish()) as ArrayRef), output)
            }
        }
    }

    /// Returns the value column of all groups' rows.
    fn decode_answer_values(&self) -> Result<ArrayRef> {
        let last = self.decode_columns()?.pop();
        last.ok_or_else(|| Error::Internal("rows without columns are kept".into()))
    }

    /// Returns the rows with their row numbers.
    fn build_numbered_rows(&self) -> Result<ArrayRef> {
        let mut columns = self.decode_columns()?;
        let numbers =
            self.offsets.windows(2).flat_map(|ends| 1..=(ends[1] - ends[0]).cast_unsigned());
        columns.push(Arc::new(UInt64Array::from_iter_values(numbers)));
        self.build_struct_lists(self.spec.answer_fields(), columns)
    }
}

/// Returns a 64-bit key prefix of each value. A smaller prefix implies a smaller value; equal prefixes imply
/// nothing.
pub(crate) fn compute_key_prefixes(values: &ArrayRef, options: SortOptions) -> Vec<u64> {
    fn of<T: ArrowPrimitiveType>(values: &ArrayRef) -> Vec<u64>
    where
        T::Native: KeyPrefix,
    {
        values.as_primitive::<T>().values().iter().map(|value| value.lead()).collect()
    }
    macro_rules! primitive {
        ($t:ty, $values:expr) => {
            of::<$t>($values)
        };
    }
    fn of_text<'a>(texts: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u64> {
        let lead = |text: &[u8]| {
            let mut first = [0; 8];
            let count = text.len().min(8);
            first[..count].copy_from_slice(&text[..count]);
            u64::from_be_bytes(first)
        };
        texts.map(|text| text.map_or(0, lead)).collect()
    }
    let mut leads = downcast_primitive! {
        values.data_type() => (primitive, values),
        DataType::Boolean => {
            values.as_boolean().values().iter().map(u64::from).collect()
        }
        DataType::Utf8 => of_text(values.as_string::<i32>().iter().map(|text| text.map(str::as_bytes))),
        DataType::LargeUtf8 => {
            of_text(values.as_string::<i64>().iter().map(|text| text.map(str::as_bytes)))
        }
        DataType::Utf8View => {
            of_text(values.as_string_view().iter().map(|text| text.map(str::as_bytes)))
        }
        DataType::Binary => of_text(values.as_binary::<i32>().iter()),
        DataType::LargeBinary => of_text(values.as_binary::<i64>().iter()),
        DataType::BinaryView => of_text(values.as_binary_view().iter()),
        _ => return vec![0; values.len()],
    };
    if options.descending {
        leads.iter_mut().for_each(|lead| *lead = !*lead);
    }
    if let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) {
        let lead_of_null = if options.nulls_first { 0 } else { u64::MAX };
        for (lead, is_valid) in leads.iter_mut().zip(nulls) {
            if !is_valid {
                *lead = lead_of_null;
            }
        }
    }
    leads
}

/// A number with a 64-bit key prefix.
trait KeyPrefix: Copy {
    fn lead(self) -> u64;
}

const SIGN_BIT: u64 = 1 << 63;

fn order_float_bits(bits: u64) -> u64 {
    if bits & SIGN_BIT == 0 { bits | SIGN_BIT } else { !bits }
}

macro_rules! lead_of {
    ($($of:ty: $lead:expr),+ $(,)?) => {$(
        impl KeyPrefix for $of {
            #[inline]
            fn lead(self) -> u64 {
                let lead: fn($of) -> u64 = $lead;
                lead(self)
            }
        }
    )+};
}

lead_of! {
    u8: u64::from,
    u16: u64::from,
    u32: u64::from,
    u64: |value| value,
    i8: |value| i64::from(value).lead(),
    i16: |value| i64::from(value).lead(),
    i32: |value| i64::from(value).lead(),
    i64: |value| value.cast_unsigned() ^ SIGN_BIT,
    i128: |value| ((value >> 64) as i64).lead(),
    i256: |value| value.to_parts().1.lead(),
    // For negative floats all bits are inverted, as their larger bit patterns are smaller values.
    f16: |value| order_float_bits(u64::from(value.to_bits()) << 48),
    f32: |value| order_float_bits(u64::from(value.to_bits()) << 32),
    f64: |value| order_float_bits(value.to_bits()),
    // Several parts: the prefix is the same for all values and decides nothing.
    IntervalDayTime: |_| 0,
    IntervalMonthDayNano: |_| 0,
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float16Array,
        Float32Array, Float64Array, Int8Array, Int64Array, LargeStringArray, StringArray,
        StringViewArray, TimestampNanosecondArray, UInt64Array,
    };
    use arrow::row::{RowConverter, SortField};

    use super::*;

    fn columns() -> Vec<ArrayRef> {
        let floats = [
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -0.0,
            1.5,
            -1.5,
            f64::MIN_POSITIVE,
            1e300,
        ];
        let texts =
            ["", "a", "ab", "prefix o", "prefix of", "prefix og", "\u{10ffff}", "\0", "a\0"];
        let texts = || texts.iter().map(|text| Some(*text)).chain([None]);
        let wide = [0, 1, -1, i128::from(i64::MAX), 1 << 64, -(1 << 64), i128::MAX, i128::MIN];
        vec![
            Arc::new(Float64Array::from_iter(floats.iter().map(|f| Some(*f)).chain([None]))),
            Arc::new(
                floats.iter().map(|f| Some(*f as f32)).chain([None]).collect::<Float32Array>(),
            ),
            Arc::new(Float16Array::from_iter_values(floats.iter().map(|f| f16::from_f64(*f)))),
            Arc::new(Int8Array::from(vec![Some(i8::MIN), Some(-1), None, Some(0), Some(i8::MAX)])),
            Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(-1), Some(0), Some(7)])),
            Arc::new(UInt64Array::from(vec![Some(u64::MAX), Some(0), None, Some(1 << 63)])),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
            Arc::new(Date32Array::from(vec![Some(-5), None, Some(20_000)])),
            Arc::new(TimestampNanosecondArray::from(vec![Some(i64::MIN), None, Some(0), Some(1)])),
            Arc::new(
                wide.iter().map(|wide| Some(*wide)).chain([None]).collect::<Decimal128Array>(),
            ),
            Arc::new(Decimal256Array::from_iter_values(
                [i256::MIN, i256::MINUS_ONE, i256::ZERO, i256::MAX]
                    .into_iter()
                    .chain(wide.iter().map(|wide| i256::from_i128(*wide))),
            )),
            Arc::new(texts().collect::<StringArray>()),
            Arc::new(texts().collect::<LargeStringArray>()),
            Arc::new(texts().collect::<StringViewArray>()),
            Arc::new(texts().map(|text| text.map(str::as_bytes)).collect::<BinaryArray>()),
        ]
    }

    #[test]
    fn lesser_key_prefix_implies_lesser_value() {
        for column in columns() {
            for (descending, nulls_first) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let options = SortOptions { descending, nulls_first };
                let field = SortField::new_with_options(column.data_type().clone(), options);
                let converter = RowConverter::new(vec![field]).unwrap();
                let rows = converter.convert_columns(&[Arc::clone(&column)]).unwrap();
                let leads = compute_key_prefixes(&column, options);
                assert_eq!(leads.len(), column.len());
                let mut told = 0;
                for left in 0..column.len() {
                    for right in 0..column.len() {
                        if leads[left] < leads[right] {
                            told += 1;
                            assert!(
                                rows.row(left) < rows.row(right),
                                "{left} and {right} of {column:?}, {options:?}"
                            );
                        }
                    }
                }
                assert!(told > 0, "{column:?}");
            }
        }
    }
}
