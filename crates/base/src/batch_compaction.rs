//! Copies columns so that they keep no more memory alive than their visible values need.
//!
//! A slice of a batch keeps the whole batch's buffers alive, and string views keep every buffer that
//! one of them points into, through `slice`, `take` and `filter`. Some batches are therefore copied first,
//! if that saves enough: those held for long (a batch that waits for its file, a sort's input), those
//! counted against a budget, and those written as they lie in memory (Arrow's IPC writes all buffers of
//! views).
//!
//! Dictionaries stay as they are: all batches of one file must keep one dictionary.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, FixedSizeListArray, GenericByteViewArray,
    GenericListArray, MapArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray,
    UInt32Array, make_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{ByteViewType, DataType};
use arrow::error::ArrowError;

/// Approximate size of an array beside its buffers, in bytes; counted twice for each column.
const ARRAY_OVERHEAD_BYTES: usize = 512;

/// Returns the bytes of a column's own values.
pub fn visible_values_bytes(array: &ArrayRef) -> usize {
    let rows = array.len();
    match array.data_type() {
        DataType::Utf8View => view_array_bytes(array.as_string_view()),
        DataType::BinaryView => view_array_bytes(array.as_binary_view()),
        DataType::List(_) => list_array_bytes::<i32>(array),
        DataType::LargeList(_) => list_array_bytes::<i64>(array),
        DataType::Map(_, _) => {
            let map = array.as_map();
            let (first, length) = item_range(map.offsets());
            let entries: ArrayRef = Arc::new(map.entries().slice(first, length));
            4 * (rows + 1) + visible_values_bytes(&entries)
        }
        DataType::FixedSizeList(_, _) => visible_values_bytes(array.as_fixed_size_list().values()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(visible_values_bytes).sum(),
        _ => {
            let bytes = array.to_data().get_slice_memory_size();
            bytes.unwrap_or_else(|_| array.get_array_memory_size())
        }
    }
}

/// Returns the approximate size of each row over all `columns`, in bytes: its values, offsets and views. A
/// row has the same size in every slice of an array.
pub fn row_sizes(columns: &[ArrayRef]) -> Vec<usize> {
    let mut bytes = vec![0; columns.first().map_or(0, |column| column.len())];
    columns.iter().for_each(|column| add_row_sizes(column, &mut bytes));
    bytes
}

fn add_row_sizes(array: &ArrayRef, bytes: &mut [usize]) {
    let mut add = |own: &dyn Fn(usize) -> usize| {
        bytes.iter_mut().enumerate().for_each(|(row, bytes)| *bytes += own(row));
    };
    match array.data_type() {
        DataType::Utf8View => add(&view_row_size(array.as_string_view())),
        DataType::BinaryView => add(&view_row_size(array.as_binary_view())),
        DataType::Utf8 => add(&offset_row_size(array.as_string::<i32>().value_offsets())),
        DataType::LargeUtf8 => add(&offset_row_size(array.as_string::<i64>().value_offsets())),
        DataType::Binary => add(&offset_row_size(array.as_binary::<i32>().value_offsets())),
        DataType::LargeBinary => add(&offset_row_size(array.as_binary::<i64>().value_offsets())),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            add(&list_row_size(list.offsets(), list.values()));
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            add(&list_row_size(list.offsets(), list.values()));
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            add(&list_row_size(map.offsets(), &entries));
        }
        DataType::Struct(_) => {
            array.as_struct().columns().iter().for_each(|column| add_row_sizes(column, bytes));
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or_default();
            let items = row_sizes(std::slice::from_ref(array.as_fixed_size_list().values()));
            add(&|row| items.iter().skip(row * length).take(length).sum());
        }
        of => {
            let width = of.primitive_width().unwrap_or(1);
            add(&|_| width);
        }
    }
}

fn view_row_size<T: ByteViewType>(array: &GenericByteViewArray<T>) -> impl Fn(usize) -> usize {
    // The lowest 32 bits of a view hold the length; a text of up to 12 bytes is stored in the view itself.
    let long = |row: usize| (array.views()[row] as u32) as usize;
    move |row| size_of::<u128>() + Some(long(row)).filter(|length| *length > 12).unwrap_or(0)
}

fn offset_row_size<O: OffsetSizeTrait>(offsets: &[O]) -> impl Fn(usize) -> usize {
    |row| size_of::<O>() + (offsets[row + 1] - offsets[row]).as_usize()
}

fn list_row_size<O: OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
    items: &ArrayRef,
) -> impl Fn(usize) -> usize {
    let (first, length) = item_range(offsets);
    let items = row_sizes(&[items.slice(first, length)]);
    let ends: Vec<usize> = std::iter::once(0)
        .chain(items.into_iter().scan(0, |sum, bytes| {
            *sum += bytes;
            Some(*sum)
        }))
        .collect();
    move |row| {
        let end_of = |offset: O| ends[offset.as_usize() - first];
        size_of::<O>() + end_of(offsets[row + 1]) - end_of(offsets[row])
    }
}

/// Returns the bytes of views and of the values that they point to.
pub fn view_array_bytes<T: ByteViewType>(views: &GenericByteViewArray<T>) -> usize {
    let used = match views.data_buffers() {
        [] => 0,
        _ => views.total_buffer_bytes_used(),
    };
    16 * views.len() + used
}

fn list_array_bytes<O: OffsetSizeTrait>(array: &ArrayRef) -> usize {
    let list = array.as_list::<O>();
    let (first, length) = item_range(list.offsets());
    size_of::<O>() * (array.len() + 1) + visible_values_bytes(&list.values().slice(first, length))
}

/// Returns the first item that the offsets cover, and the number of items.
fn item_range<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (usize, usize) {
    let first = offsets[0].as_usize();
    (first, offsets[offsets.len() - 1].as_usize() - first)
}

/// Returns the batch without the memory that it keeps alive and does not show. A column is copied only if it
/// keeps more than half as much again as it shows, plus some 1 KiB.
///
/// # Errors
/// Returns an error if Arrow cannot copy a column.
pub fn compact_batch(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    compact_batch_with_slack(batch, 0)
}

/// Compacts a batch like [`compact_batch`], but lets each column keep `slack_bytes` more: copying to save
/// less would cost more than it saves.
///
/// # Errors
/// Returns the errors of [`compact_batch`].
pub fn compact_batch_with_slack(
    batch: &RecordBatch,
    slack_bytes: usize,
) -> Result<RecordBatch, ArrowError> {
    let is_loose = |column: &ArrayRef| {
        let shown = visible_values_bytes(column);
        column.get_array_memory_size() > shown + shown / 2 + 2 * ARRAY_OVERHEAD_BYTES + slack_bytes
    };
    if !batch.columns().iter().any(is_loose) {
        return Ok(batch.clone());
    }
    let column = |column: &ArrayRef| match is_loose(column) {
        true => copy_column(column),
        false => Ok(Arc::clone(column)),
    };
    let columns = batch.columns().iter().map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

/// Compacts the batch like [`compact_batch`], and orders the buffers of its views by row. Two batches of
/// equal values then have equal buffers, regardless of their origin.
///
/// # Errors
/// Returns the errors of [`compact_batch`].
pub fn canonicalize_buffers(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let batch = compact_batch(batch)?;
    let column = |column: &ArrayRef| -> Result<ArrayRef, ArrowError> {
        let column = match contains_views(column.data_type()) {
            true => copy_column(column)?,
            false => Arc::clone(column),
        };
        Ok(match clear_trailing_bits(&column.to_data())? {
            Some(clean) => make_array(clean),
            None => column,
        })
    };
    let columns = batch.columns().iter().map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

/// Clears the bits after the last row in boolean values and validity bitmaps, which may belong to other rows.
/// Returns `None` if there are no such bits.
fn clear_trailing_bits(data: &ArrayData) -> Result<Option<ArrayData>, ArrowError> {
    let clean = |bits: &BooleanBuffer| {
        let last = bits.len() % 8;
        let is_clean = bits.offset() == 0
            && (last == 0
                || bits.values().get(bits.len() / 8).is_none_or(|byte| byte >> last == 0));
        (!is_clean).then(|| BooleanBuffer::collect_bool(bits.len(), |row| bits.value(row)))
    };
    let nulls = data.nulls().and_then(|nulls| clean(nulls.inner()));
    let values = match (data.data_type(), data.buffers()) {
        (DataType::Boolean, [values]) => {
            clean(&BooleanBuffer::new(values.clone(), data.offset(), data.len()))
        }
        _ => None,
    };
    let children =
        data.child_data().iter().map(clear_trailing_bits).collect::<Result<Vec<_>, _>>()?;
    if nulls.is_none() && values.is_none() && children.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut own = data.clone().into_builder();
    if let Some(nulls) = nulls {
        own = own.nulls(Some(NullBuffer::new(nulls)));
    }
    if let Some(values) = values {
        own = own.offset(0).buffers(vec![values.into_inner()]);
    }
    let children = children.into_iter().zip(data.child_data());
    own.child_data(children.map(|(clean, child)| clean.unwrap_or_else(|| child.clone())).collect())
        .build()
        .map(Some)
}

fn contains_views(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => contains_views(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| contains_views(field.data_type())),
        _ => false,
    }
}

/// Copies a column into buffers of its own.
fn copy_column(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match array.data_type() {
        DataType::Utf8View => Arc::new(take_all_rows(array)?.as_string_view().gc()),
        DataType::BinaryView => Arc::new(take_all_rows(array)?.as_binary_view().gc()),
        DataType::List(_) => copy_list::<i32>(array)?,
        DataType::LargeList(_) => copy_list::<i64>(array)?,
        DataType::Map(_, _) => {
            let map = array.as_map();
            let (first, length) = item_range(map.offsets());
            let entries: ArrayRef = Arc::new(map.entries().slice(first, length));
            let entries = copy_column(&entries)?.as_struct().clone();
            let (field, offsets, _, nulls, is_ordered) = map.clone().into_parts();
            let nulls = copy_nulls(nulls);
            Arc::new(MapArray::try_new(
                field,
                rebase_offsets(&offsets),
                entries,
                nulls,
                is_ordered,
            )?)
        }
        DataType::FixedSizeList(field, size) if *size > 0 => {
            let values = copy_column(array.as_fixed_size_list().values())?;
            let nulls = copy_nulls(array.nulls().cloned());
            Arc::new(FixedSizeListArray::try_new(Arc::clone(field), *size, values, nulls)?)
        }
        DataType::Struct(_) => {
            let (fields, columns, nulls) = array.as_struct().clone().into_parts();
            let columns = columns.iter().map(copy_column).collect::<Result<_, _>>()?;
            let nulls = copy_nulls(nulls);
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, array.len())?)
        }
        _ => take_all_rows(array)?,
    })
}

fn copy_list<O: OffsetSizeTrait>(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let (field, offsets, values, nulls) = array.as_list::<O>().clone().into_parts();
    let (first, length) = item_range(&offsets);
    let values = copy_column(&values.slice(first, length))?;
    let nulls = copy_nulls(nulls);
    Ok(Arc::new(GenericListArray::try_new(field, rebase_offsets(&offsets), values, nulls)?))
}

fn rebase_offsets<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> OffsetBuffer<O> {
    let first = offsets[0];
    OffsetBuffer::new(offsets.iter().map(|offset| *offset - first).collect::<Vec<_>>().into())
}

fn copy_nulls(nulls: Option<NullBuffer>) -> Option<NullBuffer> {
    let nulls = nulls?;
    Some(NullBuffer::new(BooleanBuffer::collect_bool(nulls.len(), |row| nulls.is_valid(row))))
}

fn take_all_rows(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let rows = u32::try_from(array.len())
        .map_err(|_| ArrowError::ComputeError("a column of more than 4 billion rows".into()))?;
    arrow::compute::take(array, &UInt32Array::from_iter_values(0..rows), None)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Int64Array, ListBuilder, MapBuilder, StringArray, StringBuilder,
        StringViewArray, StringViewBuilder,
    };
    use arrow::datatypes::Field;

    use super::*;

    const ROWS: usize = 20_000;

    #[test]
    fn row_sizes_are_equal_in_any_slice_and_sum_to_column_size() {
        for array in arrays_of_every_type() {
            let all = row_sizes(std::slice::from_ref(&array));
            let slice = row_sizes(&[array.slice(700, 1000)]);
            assert_eq!(all[700..1700], slice, "{}", array.data_type());
            if array.data_type() == &DataType::Boolean {
                // `row_sizes` counts a byte for each row, although a column packs eight booleans into one
                // byte.
                assert_eq!(all, vec![1; ROWS]);
                continue;
            }
            let (sum, shown) = (all.iter().sum::<usize>(), visible_values_bytes(&array));
            assert!(sum.abs_diff(shown) <= shown / 4 + 1024, "{}: {sum}", array.data_type());
        }
    }

    fn arrays_of_every_type() -> Vec<ArrayRef> {
        let long = |row: usize| (!row.is_multiple_of(7)).then(|| format!("{row:0>40}"));
        let views: StringViewArray = (0..ROWS).map(long).collect();
        let strings: StringArray = (0..ROWS).map(long).collect();
        let short = StringViewArray::from_iter_values((0..ROWS).map(|row| row.to_string()));
        let numbers: Int64Array = (0..ROWS as i64).map(|n| (n % 3 != 0).then_some(n)).collect();
        let flags: BooleanArray = (0..ROWS).map(|n| (n % 5 != 0).then_some(n % 2 == 0)).collect();
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        let mut maps = MapBuilder::new(None, StringBuilder::new(), StringViewBuilder::new());
        for row in 0..ROWS {
            for item in 0..row % 3 {
                lists.values().append_value(format!("{item:0>30}"));
                maps.keys().append_value(format!("{item}"));
                maps.values().append_value(format!("{row:0>30}"));
            }
            lists.append(row % 11 != 0);
            maps.append(row % 13 != 0).unwrap();
        }
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let whole = Int64Array::from_iter_values(0..2 * ROWS as i64);
        let pairs = FixedSizeListArray::try_new(item, 2, Arc::new(whole), None).unwrap();
        let views: ArrayRef = Arc::new(views);
        let fields = vec![Field::new("v", DataType::Utf8View, true)];
        let nulls = NullBuffer::from_iter((0..ROWS).map(|row| row % 17 != 0));
        let structs = StructArray::new(fields.into(), vec![Arc::clone(&views)], Some(nulls));
        vec![
            views,
            Arc::new(strings),
            Arc::new(short),
            Arc::new(numbers),
            Arc::new(flags),
            Arc::new(lists.finish()),
            Arc::new(maps.finish()),
            Arc::new(pairs),
            Arc::new(structs),
        ]
    }

    #[test]
    fn compacted_slice_equals_slice_and_holds_little_more_memory() {
        for whole in arrays_of_every_type() {
            for (start, rows) in [(0, 3), (500, 1), (ROWS - 64, 64), (77, 0), (0, ROWS)] {
                let slice = whole.slice(start, rows);
                let batch = RecordBatch::try_from_iter([("x", Arc::clone(&slice))]).unwrap();
                let compact = compact_batch(&batch).unwrap();
                let column = compact.column(0);
                assert_eq!(column.to_data(), slice.to_data(), "{} at {start}", whole.data_type());
                let (kept, shown) = (column.get_array_memory_size(), visible_values_bytes(&slice));
                assert!(
                    kept <= 2 * shown + 4 * ARRAY_OVERHEAD_BYTES,
                    "{rows} rows of {}: {kept} bytes kept, {shown} shown",
                    whole.data_type()
                );
            }
        }
    }

    #[test]
    fn canonical_batches_of_equal_values_have_equal_buffers() {
        for whole in arrays_of_every_type() {
            let rows: Vec<u32> = (0..3_000).rev().collect();
            let pieces: Vec<ArrayRef> = rows
                .chunks(7)
                .map(|rows| {
                    let rows = UInt32Array::from(rows.to_vec());
                    arrow::compute::take(&whole, &rows, None).unwrap()
                })
                .collect();
            let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
            let one = arrow::compute::concat(&pieces).unwrap();
            let two = arrow::compute::take(&whole, &UInt32Array::from(rows), None).unwrap();
            // Leaves bits of other rows in the last byte of the bitmaps.
            let (one, two) = (one.slice(0, 2_995), two.slice(0, 2_995));
            let [one, two] = [one, two].map(|column| {
                let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
                let mut out =
                    arrow::ipc::writer::StreamWriter::try_new(Vec::new(), batch.schema_ref())
                        .unwrap();
                out.write(&canonicalize_buffers(&batch).unwrap()).unwrap();
                out.into_inner().unwrap()
            });
            assert!(one == two, "{}", whole.data_type());
        }
    }

    #[test]
    fn compact_column_is_not_copied() {
        let views = StringViewArray::from_iter_values((0..100).map(|n| format!("{n:0>40}")));
        let batch = RecordBatch::try_from_iter([("v", Arc::new(views) as ArrayRef)]).unwrap();
        let tight = compact_batch(&compact_batch(&batch).unwrap()).unwrap();
        let again = compact_batch(&tight).unwrap();
        assert!(Arc::ptr_eq(tight.column(0), again.column(0)));
    }
}
