//! Which columns of texts have few different values: those are read as codes where they are keys.
//!
//! Nothing rests on it but speed, so the first rows of one file are asked, and only where that costs
//! next to nothing: of a plain file on this machine.

use std::sync::Arc;

use arrow::array::AsArray;

use super::{FileLocation, Piece, ReadOptions, Source, SourceFile, Split};

/// How much of the file, and how many of its rows, are looked at.
const BYTES_MAX: u64 = 4 << 20;
const ROWS_MAX: usize = 1 << 12;
/// With fewer rows nothing is won.
const ROWS_MIN: usize = 1 << 9;
/// How many rows there are for each value, on the average.
const ROWS_A_VALUE: usize = 8;

/// Whether the first rows of a source have few different values in a column of texts.
pub(super) fn has_few_values(source: &Arc<Source>, column: usize) -> bool {
    let is_there = |file: &&Arc<SourceFile>| {
        file.size() > 0 && file.left_out.get().is_none() && !file.is_unseen()
    };
    let Some(file) = source.files.iter().find(is_there) else { return false };
    let is_here = matches!(file.place, FileLocation::Local(_));
    if !is_here || !source.can_be_cut(file) {
        return false;
    }
    // JSON that is not one object per line is read from its beginning to its end, which is not reached.
    let is_whole = source.format.text().map(|format| format.is_whole(file, &file.watch()));
    let Some(Ok(is_whole)) = is_whole else { return false };
    let end = if is_whole { file.size() } else { file.size().min(BYTES_MAX) };
    let piece = Piece { file: Arc::clone(file), range: 0..end, row_groups: None, rows: None };
    let split = Split { index: 0, pieces: vec![piece], bytes: end, exact_start: None };
    let options = ReadOptions {
        projection: Some(vec![column]),
        coded: vec![column],
        batch_rows: ROWS_MAX,
        cancel: file.cancel.clone(),
        ..ReadOptions::default()
    };
    // What is wrong with these rows is told when they are read.
    let Ok(mut reader) = source.read(&split, &options) else { return false };
    let Some(Ok(batch)) = reader.next() else { return false };
    let values = batch.column(0).as_any_dictionary_opt().map(|codes| codes.values().len());
    let rows = batch.num_rows();
    rows >= ROWS_MIN && values.is_some_and(|count| count * ROWS_A_VALUE <= rows)
}
