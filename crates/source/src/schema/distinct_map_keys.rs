//! Removal of repeated map keys: the last entry of a key counts.
//!
//! Parquet's specification says so for its maps, and JSON objects are read in the same way. Arrow and Avro
//! define nothing that readers could rely on. A map in a query has each key once, whatever file it comes
//! from.
//!
//! Cost: maps of up to [`PAIRWISE_ENTRIES_MAX`] entries compare their keys pairwise, longer maps sort them.
//! Columns are copied only if a key is repeated.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DynComparator, FixedSizeListArray, GenericListArray, MapArray,
    OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray, UInt64Array, make_comparator,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Field};

use crate::error::Result;

/// Maximum number of entries whose keys are compared pairwise.
const PAIRWISE_ENTRIES_MAX: usize = 8;

/// Removes all but the last entry of each key from the maps of a batch, at any depth.
///
/// # Errors
/// [`Error::Arrow`](crate::Error::Arrow) if Arrow cannot compare the keys or build a column.
pub(crate) fn keep_last_map_entries(batch: RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema_ref();
    if !schema.fields().iter().any(|field| has_map(field)) {
        return Ok(batch);
    }
    let mut columns = batch.columns().to_vec();
    let mut has_changed = false;
    for column in &mut columns {
        if let Some(distinct) = deduplicate_map_keys(column)? {
            (*column, has_changed) = (distinct, true);
        }
    }
    if !has_changed {
        return Ok(batch);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

fn has_map(field: &Field) -> bool {
    match field.data_type() {
        DataType::Map(_, _) => true,
        DataType::Struct(fields) => fields.iter().any(|field| has_map(field)),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            has_map(item)
        }
        _ => false,
    }
}

/// Returns an array whose maps have each key once; none if they already do.
fn deduplicate_map_keys(array: &ArrayRef) -> Result<Option<ArrayRef>> {
    Ok(match array.data_type() {
        DataType::Map(_, _) => deduplicate_map(array.as_map())?,
        DataType::Struct(fields) if fields.iter().any(|field| has_map(field)) => {
            let structs = array.as_struct();
            let Some(columns) = deduplicate_columns(structs.columns())? else { return Ok(None) };
            Some(Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                columns,
                structs.nulls().cloned(),
                structs.len(),
            )?))
        }
        DataType::List(item) if has_map(item) => deduplicate_list(array.as_list::<i32>())?,
        DataType::LargeList(item) if has_map(item) => deduplicate_list(array.as_list::<i64>())?,
        DataType::FixedSizeList(item, size) if has_map(item) => {
            let lists = array.as_fixed_size_list();
            let Some(values) = deduplicate_map_keys(lists.values())? else { return Ok(None) };
            Some(Arc::new(FixedSizeListArray::try_new_with_length(
                Arc::clone(item),
                *size,
                values,
                lists.nulls().cloned(),
                lists.len(),
            )?))
        }
        _ => None,
    })
}

fn deduplicate_columns(columns: &[ArrayRef]) -> Result<Option<Vec<ArrayRef>>> {
    let distinct: Vec<_> = columns.iter().map(deduplicate_map_keys).collect::<Result<_>>()?;
    if distinct.iter().all(Option::is_none) {
        return Ok(None);
    }
    let columns = distinct.into_iter().zip(columns);
    Ok(Some(columns.map(|(distinct, own)| distinct.unwrap_or_else(|| Arc::clone(own))).collect()))
}

fn deduplicate_list<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Result<Option<ArrayRef>> {
    let (DataType::List(item) | DataType::LargeList(item)) = lists.data_type() else {
        return Ok(None);
    };
    let Some(values) = deduplicate_map_keys(lists.values())? else { return Ok(None) };
    Ok(Some(Arc::new(GenericListArray::<O>::try_new(
        Arc::clone(item),
        lists.offsets().clone(),
        values,
        lists.nulls().cloned(),
    )?)))
}

fn deduplicate_map(maps: &MapArray) -> Result<Option<ArrayRef>> {
    let DataType::Map(field, sorted) = maps.data_type() else { return Ok(None) };
    let columns = deduplicate_columns(maps.entries().columns())?;
    let compare = make_comparator(maps.keys(), maps.keys(), SortOptions::default())?;
    let offsets = maps.offsets();
    let mut sorted_entries = Vec::new();
    let repeats = |entries: std::ops::Range<usize>, buffer: &mut Vec<usize>| {
        has_repeated_key(&compare, entries, buffer)
    };
    let row_entries = |row: usize| offsets[row] as usize..offsets[row + 1] as usize;
    let first = (0..maps.len())
        .find(|row| maps.is_valid(*row) && repeats(row_entries(*row), &mut sorted_entries));
    let Some(first) = first else {
        let Some(columns) = columns else { return Ok(None) };
        let entries = map_entries(maps, columns)?;
        let nulls = maps.nulls().cloned();
        return Ok(Some(Arc::new(MapArray::try_new(
            Arc::clone(field),
            offsets.clone(),
            entries,
            nulls,
            *sorted,
        )?)));
    };
    // Entries that are kept, in their order, and the number of entries of each row.
    let mut kept: Vec<u64> = (offsets[0] as u64..offsets[first] as u64).collect();
    let mut lengths: Vec<usize> = (0..first).map(|row| row_entries(row).len()).collect();
    for row in first..maps.len() {
        let start = kept.len();
        let entries = row_entries(row);
        if maps.is_valid(row) && repeats(entries.clone(), &mut sorted_entries) {
            // The sort is stable, so the last entry of each run is the last one written.
            sorted_entries.clear();
            sorted_entries.extend(entries);
            sorted_entries.sort_by(|left, right| compare(*left, *right));
            let runs = sorted_entries.chunk_by(|left, right| compare(*left, *right).is_eq());
            kept.extend(runs.filter_map(<[usize]>::last).map(|entry| *entry as u64));
            kept[start..].sort_unstable();
        } else {
            kept.extend(entries.map(|entry| entry as u64));
        }
        lengths.push(kept.len() - start);
    }
    let kept = UInt64Array::from(kept);
    let columns = columns.as_deref().unwrap_or_else(|| maps.entries().columns());
    let columns =
        columns.iter().map(|column| Ok(take(column, &kept, None)?)).collect::<Result<_>>();
    Ok(Some(Arc::new(MapArray::try_new(
        Arc::clone(field),
        OffsetBuffer::from_lengths(lengths),
        map_entries(maps, columns?)?,
        maps.nulls().cloned(),
        *sorted,
    )?)))
}

fn map_entries(maps: &MapArray, columns: Vec<ArrayRef>) -> Result<StructArray> {
    Ok(StructArray::try_new(maps.entries().fields().clone(), columns, None)?)
}

/// Returns true if two of a map's entries have the same key.
fn has_repeated_key(
    compare: &DynComparator,
    entries: std::ops::Range<usize>,
    sorted_entries: &mut Vec<usize>,
) -> bool {
    if entries.len() <= PAIRWISE_ENTRIES_MAX {
        return entries
            .clone()
            .any(|left| (left + 1..entries.end).any(|right| compare(left, right).is_eq()));
    }
    // Keys in ascending order, as many writers have them, need no sort.
    if entries.clone().skip(1).all(|entry| compare(entry - 1, entry) == Ordering::Less) {
        return false;
    }
    sorted_entries.clear();
    sorted_entries.extend(entries);
    sorted_entries.sort_unstable_by(|left, right| compare(*left, *right));
    sorted_entries.windows(2).any(|pair| compare(pair[0], pair[1]).is_eq())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Builder, ListArray, MapBuilder, StringBuilder};
    use arrow::datatypes::{Int64Type, Schema};

    use super::*;

    fn maps(rows: &[Option<&[(&str, i64)]>]) -> MapArray {
        let mut builder = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
        for row in rows {
            for (key, value) in row.unwrap_or_default() {
                builder.keys().append_value(key);
                builder.values().append_value(*value);
            }
            builder.append(row.is_some()).unwrap();
        }
        builder.finish()
    }

    fn batch_of(array: ArrayRef) -> RecordBatch {
        let field = Field::new("m", array.data_type().clone(), true);
        RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![array]).unwrap()
    }

    fn shown(maps: &MapArray) -> Vec<Vec<(String, i64)>> {
        let row = |row: usize| {
            let entries = maps.value(row);
            let keys = entries.column(0).as_string::<i32>();
            let values = entries.column(1).as_primitive::<Int64Type>();
            (0..entries.len()).map(|at| (keys.value(at).to_owned(), values.value(at))).collect()
        };
        (0..maps.len()).map(row).collect()
    }

    #[test]
    fn the_last_entry_of_a_key_counts() {
        let long: Vec<(String, i64)> =
            (0..40).map(|at| (format!("k{}", at * 7 % 20), at)).collect();
        let long: Vec<(&str, i64)> =
            long.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let rows = maps(&[
            Some(&[("a", 1), ("b", 2)]),
            None,
            Some(&[("a", 1), ("b", 2), ("a", 3)]),
            Some(&[]),
            Some(&long),
            Some(&[("a", 1)]),
        ]);
        for sliced in 0..3 {
            let rows = rows.slice(sliced, rows.len() - sliced);
            let batch = keep_last_map_entries(batch_of(Arc::new(rows))).unwrap();
            let found = batch.column(0).as_map();
            assert_eq!(found.null_count(), usize::from(sliced < 2));
            let found = shown(found);
            assert_eq!(found[2 - sliced], [("b".to_owned(), 2), ("a".to_owned(), 3)]);
            let last: Vec<(String, i64)> =
                long[20..].iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
            assert_eq!(found[4 - sliced], last);
            assert_eq!(found[5 - sliced], [("a".to_owned(), 1)]);
        }
    }

    #[test]
    fn maps_within_lists_and_structs_have_each_key_once() {
        let rows = maps(&[Some(&[("a", 1), ("a", 2)]), Some(&[("b", 3)])]);
        let item = Arc::new(Field::new("item", rows.data_type().clone(), true));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths([2]), Arc::new(rows), None);
        let field = Arc::new(Field::new("l", lists.data_type().clone(), true));
        let structs = StructArray::from(vec![(field, Arc::new(lists) as ArrayRef)]);
        let batch = keep_last_map_entries(batch_of(Arc::new(structs))).unwrap();
        let lists = batch.column(0).as_struct().column(0).as_list::<i32>();
        let found = shown(lists.values().as_map());
        assert_eq!(found, [vec![("a".to_owned(), 2)], vec![("b".to_owned(), 3)]]);
    }

    #[test]
    fn maps_without_repeated_keys_are_not_copied() {
        let rows: ArrayRef = Arc::new(maps(&[Some(&[("a", 1), ("b", 2)]), None]));
        let batch = keep_last_map_entries(batch_of(Arc::clone(&rows))).unwrap();
        assert!(Arc::ptr_eq(batch.column(0), &rows));
    }
}
