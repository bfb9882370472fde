//! The first rows of each group by an order.

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

use super::{Routes, Rows, StateColumn, States, mismatch, refused};
use crate::first_rows::{Answer, FirstRows, Shape};
use crate::value;

/// The rows that may be among the first of their group, as they came. Once there are twice as many as
/// were left the last time, those that are not are dropped; from then on a group's last row that was left
/// tells most rows that they need not be looked at: by their leads, which are 64 bits of the first column.
/// So N rows of g groups that come in any order are encoded n·g·log(N/(n·g)) times, about, and each is
/// compared with some others of its group once. Where one row is asked for, a group's lead is that of the best of the
/// rows at hand before any of them is encoded: of a batch one row a group is, about, in whatever order they come.
///
/// Rows are bytes in the order of the rows (Arrow's row format): columns that are ordered by come first,
/// and the others make it one order, in which equal rows are equal in all.
pub(super) struct FirstRowsOfGroups {
    of: Arc<FirstRows>,
    /// The type of the answer.
    output: DataType,
    kept: Kept,
    /// Per group, the lead of its last row, once it has as many as are asked for.
    last: Vec<u64>,
    /// At how many rows some are dropped.
    most: usize,
    scratch: Scratch,
}

/// Fewer rows are kept as they come.
const KEPT_MIN: usize = 1 << 16;

/// At how many rows some are dropped, after `count` were left; never, where all are wanted.
fn kept_max(of: &FirstRows, count: usize) -> usize {
    if of.most == usize::MAX { usize::MAX } else { (2 * count).max(KEPT_MIN) }
}

/// The rows of groups, each group's in order.
pub(crate) struct OrderedRows {
    of: Arc<FirstRows>,
    /// Where each group's rows begin.
    offsets: OffsetBuffer<i64>,
    rows: EncodedRows,
    leads: Vec<u64>,
}

impl FirstRowsOfGroups {
    pub(super) fn new(of: &Arc<FirstRows>, output: DataType) -> Self {
        FirstRowsOfGroups {
            of: Arc::clone(of),
            output,
            kept: Kept::new(of),
            last: Vec::new(),
            most: kept_max(of, 0),
            scratch: Scratch { starts: Vec::new(), by_group: Vec::new(), kept: Kept::new(of) },
        }
    }

    /// Leaves the first rows of each group alone, by group; says where each group's begin.
    fn drop_others(&mut self, in_order: bool) -> OffsetBuffer<i64> {
        let group_count = self.last.len();
        let Scratch { starts, by_group, kept } = &mut self.scratch;
        starts.clear();
        starts.resize(group_count + 2, 0);
        // Where a group's rows begin; while they are dealt out, where its next one goes.
        for group in &self.kept.groups {
            starts[*group as usize + 2] += 1;
        }
        for group in 2..starts.len() {
            starts[group] += starts[group - 1];
        }
        by_group.clear();
        by_group.resize(self.kept.groups.len(), 0);
        for (row, group) in self.kept.groups.iter().enumerate() {
            let at = &mut starts[*group as usize + 1];
            by_group[*at] = row as u32;
            *at += 1;
        }
        let Kept { rows, leads, .. } = &self.kept;
        let order = |left: &u32, right: &u32| -> Ordering {
            let (left, right) = (*left as usize, *right as usize);
            leads[left].cmp(&leads[right]).then_with(|| rows.row(left).cmp(&rows.row(right)))
        };
        let most = self.of.most;
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
                self.last[group] = last;
            }
        }
        std::mem::swap(&mut self.kept, kept);
        self.most = kept_max(&self.of, self.kept.len());
        OffsetBuffer::from_lengths(lengths)
    }
}

/// Rows, each with its lead and its group.
struct Kept {
    rows: EncodedRows,
    leads: Vec<u64>,
    groups: Vec<u32>,
}

/// What dropping rows takes, kept for the next time.
struct Scratch {
    starts: Vec<usize>,
    by_group: Vec<u32>,
    kept: Kept,
}

impl Kept {
    fn new(of: &FirstRows) -> Self {
        Kept { rows: of.converter.empty_rows(0, 0), leads: Vec::new(), groups: Vec::new() }
    }

    fn len(&self) -> usize {
        self.leads.len()
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.leads.clear();
        self.groups.clear();
    }

    #[inline]
    fn push(&mut self, row: Row<'_>, lead: u64, group: usize) {
        self.rows.push(row);
        self.leads.push(lead);
        self.groups.push(group as u32);
    }

    fn bytes(&self) -> usize {
        self.rows.size()
            + self.leads.capacity() * size_of::<u64>()
            + self.groups.capacity() * size_of::<u32>()
    }
}

impl StateColumn for FirstRowsOfGroups {
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.last.resize(rows.group_count, u64::MAX);
        let structs = rows.values()?.as_struct();
        let columns = self.of.completed(structs.columns(), rows.positions)?;
        let nulls = match &self.of.answer {
            Answer::Numbered => structs.logical_nulls(),
            Answer::Value { skips_nulls: true, .. } => {
                columns.last().and_then(|values| values.logical_nulls())
            }
            Answer::Value { .. } => None,
        };
        let leads = self.of.leads(&columns[0]);
        if self.of.most == 1 {
            rows.each(nulls.as_ref(), &mut self.last, |last, row, _| *last = leads[row].min(*last));
        }
        let mut wanted: Vec<u32> = Vec::new();
        let Kept { rows: encoded, leads: all, groups } = &mut self.kept;
        rows.each(nulls.as_ref(), &mut self.last, |last, row, group| {
            if leads[row] <= *last {
                wanted.push(row as u32);
                all.push(leads[row]);
                groups.push(group as u32);
            }
        });
        match wanted.len() == structs.len() {
            true => self.of.converter.append(encoded, &columns)?,
            false => {
                let wanted = UInt32Array::from(wanted);
                let columns = columns.iter().map(|column| take(column, &wanted, None));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                self.of.converter.append(encoded, &columns)?;
            }
        }
        if self.kept.len() >= self.most {
            self.drop_others(false);
        }
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.last.resize(routes.group_count, u64::MAX);
        let from = match states {
            States::FirstRows(from) if Arc::ptr_eq(&from.of, &self.of) => from,
            _ => return Err(mismatch("first rows")),
        };
        let (kept, is_one) = (&mut self.kept, self.of.most == 1);
        routes.each(&mut self.last, |last, state, group| {
            for row in from.offsets[state] as usize..from.offsets[state + 1] as usize {
                if from.leads[row] <= *last {
                    kept.push(from.rows.row(row), from.leads[row], group);
                    if is_one {
                        *last = from.leads[row];
                    }
                }
            }
        });
        if self.kept.len() >= self.most {
            self.drop_others(false);
        }
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.last.resize(group_count, u64::MAX);
        let offsets = self.drop_others(true);
        let empty = FirstRowsOfGroups::new(&self.of, self.output.clone());
        let FirstRowsOfGroups { of, kept: Kept { rows, leads, .. }, .. } =
            std::mem::replace(self, empty);
        Ok(States::FirstRows(OrderedRows { of, offsets, rows, leads }))
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        self.decoded(array, None)
    }

    fn decode_of_file(&self, array: &ArrayRef, file: usize) -> Result<States> {
        self.decoded(array, Some(file))
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        match self.take(group_count)? {
            States::FirstRows(rows) => rows.answer(&self.output),
            _ => Err(mismatch("first rows")),
        }
    }

    fn bytes(&self) -> usize {
        let Scratch { starts, by_group, kept } = &self.scratch;
        // Until rows are dropped for the first time there is nothing there yet.
        let next = self.kept.bytes().max(kept.bytes());
        let last = self.last.capacity() * (size_of::<u64>() + size_of::<usize>());
        let dealt = self.kept.len().max(by_group.capacity()) * size_of::<u32>();
        self.kept.bytes() + next + last.max(starts.capacity() * size_of::<usize>()) + dealt
    }
}

impl FirstRowsOfGroups {
    /// Reads states; where they are those of one of several files, their rows' places are made places of that file
    /// among the others. Nothing else is lost by it: a group is in a file once, its rows in order.
    fn decoded(&self, array: &ArrayRef, file: Option<usize>) -> Result<States> {
        let structs = DataType::Struct(self.of.columns.clone());
        let is_list = match array.data_type() {
            DataType::LargeList(item) => item.data_type() == &structs,
            _ => false,
        };
        let refused = || refused(self.of.name(), format!("lists of {structs} are expected"));
        if !is_list || array.null_count() > 0 {
            return Err(refused());
        }
        let lists = array.as_list::<i64>();
        let structs = lists.values().as_struct();
        if structs.null_count() > 0 {
            return Err(refused());
        }
        let mut columns = structs.columns().to_vec();
        if let (Some(file), Some(place)) = (file, self.of.position()) {
            columns[place] = self.of.placed_in(file, lists.offsets());
        }
        Ok(States::FirstRows(OrderedRows {
            of: Arc::clone(&self.of),
            offsets: lists.offsets().clone(),
            leads: self.of.leads(&columns[0]),
            rows: self.of.converter.convert_columns(&columns)?,
        }))
    }
}

impl OrderedRows {
    pub(super) fn bytes(&self) -> usize {
        self.rows.size()
            + self.leads.capacity() * size_of::<u64>()
            + self.offsets.inner().inner().len()
    }

    fn columns(&self) -> Result<Vec<ArrayRef>> {
        let columns = self.of.converter.convert_rows(self.rows.iter())?;
        let typed = columns.iter().zip(&self.of.columns);
        typed.map(|(column, field)| value::cast_to(column, field.data_type())).collect()
    }

    fn lists(&self, fields: Fields, columns: Vec<ArrayRef>) -> Result<ArrayRef> {
        let structs = StructArray::try_new(fields, columns, None)?;
        let item = Arc::new(Field::new_list_field(structs.data_type().clone(), true));
        let offsets = self.offsets.clone();
        Ok(Arc::new(LargeListArray::try_new(item, offsets, Arc::new(structs), None)?))
    }

    /// Their form on disk.
    pub(super) fn encode(&self) -> Result<ArrayRef> {
        self.lists(self.of.columns.clone(), self.columns()?)
    }

    /// What is answered of them, of type `output`.
    fn answer(&self, output: &DataType) -> Result<ArrayRef> {
        match &self.of.answer {
            Answer::Numbered => self.numbered(),
            Answer::Value { shape: Shape::Last, .. } => {
                let most = self.of.most as i64;
                let lasts = self.offsets.windows(2);
                let lasts = lasts
                    .map(|ends| (ends[1] - ends[0] == most).then(|| (ends[1] - 1).cast_unsigned()));
                let values = self.values()?;
                value::cast_to(&take(&values, &UInt64Array::from_iter(lasts), None)?, output)
            }
            Answer::Value { shape: Shape::List, .. } => {
                let values = self.values()?;
                let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
                let some = self.offsets.windows(2).map(|ends| ends[0] < ends[1]);
                let nulls = NullBuffer::from_iter(some);
                let offsets = self.offsets.clone();
                let lists = LargeListArray::try_new(item, offsets, values, Some(nulls))?;
                value::cast_to(&(Arc::new(lists) as ArrayRef), output)
            }
            Answer::Value { shape: Shape::Text(separator), .. } => {
                let texts = value::cast_to(&self.values()?, &DataType::LargeUtf8)?;
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
                value::cast_to(&(Arc::new(joined.finish()) as ArrayRef), output)
            }
        }
    }

    /// The values of all groups' rows.
    fn values(&self) -> Result<ArrayRef> {
        let last = self.columns()?.pop();
        last.ok_or_else(|| Error::Internal("rows without columns are kept".into()))
    }

    /// The rows with their numbers.
    fn numbered(&self) -> Result<ArrayRef> {
        let mut columns = self.columns()?;
        let numbers =
            self.offsets.windows(2).flat_map(|ends| 1..=(ends[1] - ends[0]).cast_unsigned());
        columns.push(Arc::new(UInt64Array::from_iter_values(numbers)));
        self.lists(self.of.answers(), columns)
    }
}

/// 64 bits of values, of which a lesser one is of a lesser value; nothing is said by equal ones.
pub(crate) fn leads(values: &ArrayRef, options: SortOptions) -> Vec<u64> {
    fn of<T: ArrowPrimitiveType>(values: &ArrayRef) -> Vec<u64>
    where
        T::Native: Lead,
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

/// A number's lead.
trait Lead: Copy {
    fn lead(self) -> u64;
}

const SIGN: u64 = 1 << 63;

fn turned(bits: u64) -> u64 {
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

macro_rules! lead_of {
    ($($of:ty: $lead:expr),+ $(,)?) => {$(
        impl Lead for $of {
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
    i64: |value| value.cast_unsigned() ^ SIGN,
    i128: |value| ((value >> 64) as i64).lead(),
    i256: |value| value.to_parts().1.lead(),
    // All bits are turned of what is below zero, as the larger of these is the lesser.
    f16: |value| turned(u64::from(value.to_bits()) << 48),
    f32: |value| turned(u64::from(value.to_bits()) << 32),
    f64: |value| turned(value.to_bits()),
    // Of several parts: nothing is told.
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
    fn a_lesser_lead_is_of_a_lesser_value() {
        for column in columns() {
            for (descending, nulls_first) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let options = SortOptions { descending, nulls_first };
                let field = SortField::new_with_options(column.data_type().clone(), options);
                let converter = RowConverter::new(vec![field]).unwrap();
                let rows = converter.convert_columns(&[Arc::clone(&column)]).unwrap();
                let leads = leads(&column, options);
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
