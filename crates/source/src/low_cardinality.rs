//! Which columns of texts have few different values: those are read as codes where they are keys.
//!
//! Nothing rests on it but speed, so the first rows of one file are asked, and only where that costs
//! next to nothing: of a plain file on this machine.

use std::sync::Arc;

use arrow::array::AsArray;

use super::{FileLocation, ReadOptions, Source, SourceFile, Split, SplitPart};

/// How much of the file, and how many of its rows, are looked at.
const PROBE_BYTES_MAX: u64 = 4 << 20;
const PROBE_ROWS_MAX: usize = 1 << 12;
/// With fewer rows nothing is won.
const PROBE_ROWS_MIN: usize = 1 << 9;
/// How many rows there are for each value, on the average.
const ROWS_PER_VALUE_MIN: usize = 8;

/// Whether the first rows of a source have few different values in a column of texts.
pub(super) fn has_few_distinct_values(source: &Arc<Source>, column: usize) -> bool {
    let is_there = |file: &&Arc<SourceFile>| {
        file.size() > 0 && file.skip_reason.get().is_none() && !file.is_unresponsive()
    };
    let Some(file) = source.files.iter().find(is_there) else { return false };
    let is_here = matches!(file.location, FileLocation::Local(_));
    if !is_here || !source.can_split_file(file) {
        return false;
    }
    // JSON that is not one object per line is read from its beginning to its end, which is not reached.
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
    // What is wrong with these rows is told when they are read.
    let Ok(mut reader) = source.read_split(&split, &options) else { return false };
    let Some(Ok(batch)) = reader.next() else { return false };
    let values = batch.column(0).as_any_dictionary_opt().map(|codes| codes.values().len());
    let rows = batch.num_rows();
    rows >= PROBE_ROWS_MIN && values.is_some_and(|count| count * ROWS_PER_VALUE_MIN <= rows)
}
