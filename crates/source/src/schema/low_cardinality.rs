//! Detects low-cardinality text columns, which are read as dictionary codes when they are group keys.
//!
//! Only speed depends on the result. The detection therefore reads the first rows of one file, and only if
//! that costs next to nothing: of an uncompressed, unfiltered local file.

use std::sync::Arc;

use arrow::array::AsArray;

use crate::{FileLocation, ReadOptions, Source, SourceFile, Split, SplitPart};

/// Maximum number of bytes and rows of the file that are inspected.
const PROBE_BYTES_MAX: u64 = 4 << 20;
const PROBE_ROWS_MAX: usize = 1 << 12;
/// Minimum number of rows for which codes pay off.
const PROBE_ROWS_MIN: usize = 1 << 9;
/// Minimum average number of rows per distinct value.
const ROWS_PER_VALUE_MIN: usize = 8;

/// Returns true if the first rows of a source have few distinct values in a text column.
pub(crate) fn has_few_distinct_values(source: &Arc<Source>, column: usize) -> bool {
    let is_there = |file: &&Arc<SourceFile>| {
        file.size() > 0 && file.skip_reason.get().is_none() && !file.is_unresponsive()
    };
    let Some(file) = source.files.iter().find(is_there) else { return false };
    let is_here = matches!(file.location, FileLocation::Local(_));
    if !is_here || !source.can_split_file(file) {
        return false;
    }
    // JSON that is not one object per line cannot be cut, so the range is the whole file.
    let is_whole = source
        .format
        .as_text_format()
        .map(|format| format.is_unsplittable(file, &file.read_context()));
    let Some(Ok(is_whole)) = is_whole else { return false };
    let end = if is_whole { file.size() } else { file.size().min(PROBE_BYTES_MAX) };
    let piece =
        SplitPart { file: Arc::clone(file), range: 0..end, row_groups: None, row_range: None };
    let split = Split { index: 0, parts: vec![piece], bytes: end, exact_start: None };
    let options = ReadOptions {
        projection: Some(vec![column]),
        dictionary_columns: vec![column],
        batch_rows: PROBE_ROWS_MAX,
        cancel: file.cancel.clone(),
        ..ReadOptions::default()
    };
    // Faults of these rows are reported when a query reads them.
    let Ok(mut reader) = source.read_split(&split, &options) else { return false };
    let Some(Ok(batch)) = reader.next() else { return false };
    let values = batch.column(0).as_any_dictionary_opt().map(|codes| codes.values().len());
    let rows = batch.num_rows();
    rows >= PROBE_ROWS_MIN && values.is_some_and(|count| count * ROWS_PER_VALUE_MIN <= rows)
}
