//! Hidden columns, which every source has besides those of its files: a record's file, and its number within
//! the file.
//!
//! They are **hidden**: not part of [`Source::schema`], and read only if a projection names their positions,
//! which follow those of the schema's columns ([`Source::hidden_columns`]). A data column of the same name
//! replaces the hidden one.
//!
//! A record's number counts all records before it in its file, including the rejected ones, so that it
//! identifies the record independently of the query. Blank lines, comments and a header are not records. The
//! number of records before the middle of a text is unknown. If numbers are wanted, text is therefore read
//! from its beginning to its end
//! ([`SplitOptions::keeps_row_numbers`](crate::SplitOptions::keeps_row_numbers)). Row groups and blocks know
//! their rows, and are split as usual.
//!
//! ```text
//!   good  good  bad  good  bad  bad  good        records of a text
//!    0     1     2    3     4    5    6          their numbers
//!    0     1          2               3          rows that the decoder has returned
//!                ^2        ^3   ^3               gaps: rows before each rejected record
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::builder::StringViewBuilder;
use arrow::array::{ArrayRef, Int64Array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::formats::SplitPartReader;
use crate::{FileLocation, Source, SourceFile};

/// A hidden column, with a value that is not part of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HiddenColumn {
    /// Path or URL of the record's file, as results show it.
    Filename,
    /// Last component of that path.
    BaseName,
    /// Number of records before it in its file.
    RowNumber,
}

/// Names of the hidden columns: two of DuckDB, two of ClickHouse, and one of Trino and Athena.
const HIDDEN_COLUMN_NAMES: [(&str, HiddenColumn); 5] = [
    ("filename", HiddenColumn::Filename),
    ("file_row_number", HiddenColumn::RowNumber),
    ("_path", HiddenColumn::Filename),
    ("_file", HiddenColumn::BaseName),
    ("$path", HiddenColumn::Filename),
];

impl HiddenColumn {
    /// Returns the names of all hidden columns; a data column of the same name takes precedence.
    pub fn names() -> impl Iterator<Item = &'static str> {
        HIDDEN_COLUMN_NAMES.iter().map(|(name, _)| *name)
    }

    fn data_type(self) -> DataType {
        match self {
            HiddenColumn::Filename | HiddenColumn::BaseName => DataType::Utf8View,
            HiddenColumn::RowNumber => DataType::Int64,
        }
    }

    pub(crate) fn field(self, name: &str) -> FieldRef {
        Arc::new(Field::new(name, self.data_type(), true))
    }

    /// Returns the column's value for a file, if it is the same for all records of the file.
    pub(crate) fn file_value(self, file: &SourceFile) -> Option<&str> {
        match self {
            HiddenColumn::Filename => Some(file_display_name(file)),
            HiddenColumn::BaseName => Some(base_name(file_display_name(file))),
            HiddenColumn::RowNumber => None,
        }
    }
}

/// Returns the name of a file as its records show it; standard input is `-`, as in a command.
fn file_display_name(file: &SourceFile) -> &str {
    match file.location {
        FileLocation::Stdin
            if &*file.display_name == crate::source_opening::STANDARD_INPUT_NAME =>
        {
            "-"
        }
        _ => &file.display_name,
    }
}

/// Returns the last component of a path, or of a URL's path.
fn base_name(path: &str) -> &str {
    let path = match path.contains("://") {
        true => path.split(['?', '#']).next().unwrap_or(path),
        false => path,
    };
    let last = path.trim_end_matches('/').rsplit('/').next();
    last.filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Returns the hidden columns of a source with these columns.
pub(crate) fn available_hidden_columns(
    fields: &[FieldRef],
) -> impl Iterator<Item = (FieldRef, HiddenColumn)> {
    let is_free = |name: &str| !fields.iter().any(|field| field.name().eq_ignore_ascii_case(name));
    HIDDEN_COLUMN_NAMES
        .iter()
        .filter(move |(name, _)| is_free(name))
        .map(|(name, hidden)| (hidden.field(name), *hidden))
}

/// Returns an array with `rows` copies of a text, whose bytes are stored once.
pub(crate) fn repeat_text(text: &str, rows: usize) -> Result<ArrayRef> {
    let refused = |error: arrow::error::ArrowError| Error::Internal(error.to_string());
    let mut builder = StringViewBuilder::with_capacity(rows);
    let length = u32::try_from(text.len())
        .map_err(|_| Error::Internal("a path of more than 4 GiB".into()))?;
    let block = builder.append_block(Buffer::from(text.as_bytes()));
    for _ in 0..rows {
        builder.try_append_view(block, 0, length).map_err(refused)?;
    }
    Ok(Arc::new(builder.finish()))
}

/// Numbers the records of a text, whose good ones become rows.
#[derive(Debug, Default)]
pub(crate) struct RecordNumbering {
    /// Number of good records that were added.
    accepted_rows: u64,
    /// Number of good records that were numbered.
    numbered_rows: u64,
    /// Number of the next record, rejected ones included.
    next_number: u64,
    /// Rejected records that were not numbered yet, in their order: the number of good records before them,
    /// and the number of consecutive rejected ones.
    gaps: VecDeque<(u64, u64)>,
}

impl RecordNumbering {
    /// Adds a rejected record, which follows `rows` good ones that are not [added](Self::add_accepted) yet.
    pub(crate) fn add_rejected(&mut self, rows: u64) {
        let at = self.accepted_rows + rows;
        match self.gaps.back_mut() {
            Some((last, count)) if *last == at => *count += 1,
            _ => self.gaps.push_back((at, 1)),
        }
    }

    /// Adds good records.
    pub(crate) fn add_accepted(&mut self, rows: u64) {
        self.accepted_rows += rows;
    }

    /// Returns the numbers of the next good records.
    pub(crate) fn next_numbers(&mut self, rows: usize) -> ArrayRef {
        let mut numbers = Vec::with_capacity(rows);
        while numbers.len() < rows {
            while let Some((_, count)) =
                self.gaps.front().filter(|(at, _)| *at <= self.numbered_rows)
            {
                self.next_number += count;
                self.gaps.pop_front();
            }
            let left = (rows - numbers.len()) as u64;
            let run = self.gaps.front().map_or(left, |(at, _)| left.min(at - self.numbered_rows));
            numbers.extend((self.next_number..self.next_number + run).map(to_column_value));
            self.next_number += run;
            self.numbered_rows += run;
        }
        Arc::new(Int64Array::from(numbers))
    }
}

/// Returns the numbers of the rows of a reader's last batch.
pub(crate) fn batch_row_numbers(reader: &dyn SplitPartReader, rows: usize) -> Result<ArrayRef> {
    let number_of = |row: usize| match reader.batch_row_number(row) {
        (number, 0) => Ok(number.saturating_sub(1)),
        _ => Err(Error::Internal("rows are numbered from the middle of a file".into())),
    };
    let mut numbers = Vec::with_capacity(rows);
    // Numbers ascend, so two rows whose numbers are as far apart as the rows enclose a gapless run.
    let mut left: Vec<Range<usize>> = (rows > 0).then_some(0..rows).into_iter().collect();
    while let Some(run) = left.pop() {
        let (first, last) = (number_of(run.start)?, number_of(run.end - 1)?);
        if run.len() <= 2 || last.checked_sub(first) == Some(run.len() as u64 - 1) {
            numbers.push(to_column_value(first));
            numbers.extend((first + 1..last).map(to_column_value));
            numbers.extend((run.len() > 1).then(|| to_column_value(last)));
        } else {
            let middle = run.start + run.len() / 2;
            left.push(middle..run.end);
            left.push(run.start..middle);
        }
    }
    Ok(Arc::new(Int64Array::from(numbers)))
}

/// Converts a number to its column's type.
fn to_column_value(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Source {
    /// Returns the hidden columns; their positions in projections follow those of the schema.
    pub fn hidden_columns(&self) -> &[FieldRef] {
        &self.hidden_columns
    }

    /// Returns a column of the schema, or a hidden one.
    pub(crate) fn visible_or_hidden_field(&self, column: usize) -> Option<&FieldRef> {
        let fields = self.schema.fields();
        fields.get(column).or_else(|| self.hidden_columns.get(column.checked_sub(fields.len())?))
    }

    /// Returns true if a column, possibly hidden, holds record numbers.
    pub fn is_row_number_column(&self, column: usize) -> bool {
        matches!(
            self.origins.get(column),
            Some(crate::SourceColumnOrigin::Hidden(HiddenColumn::RowNumber))
        )
    }

    /// Returns the value of a column, possibly hidden, for each file; none unless all records of a file share
    /// one value.
    ///
    /// # Errors
    /// [`Error::Usage`] for a folder's value that does not match its column's type.
    pub fn file_constant_values(&self, column: usize) -> Result<Option<ArrayRef>> {
        use crate::SourceColumnOrigin;
        Ok(match self.origins.get(column) {
            Some(SourceColumnOrigin::Hidden(hidden)) => {
                let values = self.files.iter().map(|file| hidden.file_value(file));
                let values: Option<Vec<&str>> = values.collect();
                values.map(|values| {
                    Arc::new(arrow::array::StringViewArray::from_iter_values(values)) as ArrayRef
                })
            }
            Some(SourceColumnOrigin::Key(key)) => {
                let values = (0..self.files.len()).map(|file| self.partition_values(file, *key, 1));
                let values = values.collect::<Result<Vec<_>>>()?;
                let values: Vec<&dyn arrow::array::Array> =
                    values.iter().map(AsRef::as_ref).collect();
                if values.is_empty() { None } else { Some(arrow::compute::concat(&values)?) }
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_part_of_a_path_is_its_name() {
        for (path, expected) in [
            ("a/b/c.csv", "c.csv"),
            ("c.csv", "c.csv"),
            ("s3://bucket/k/c.csv.gz", "c.csv.gz"),
            ("http://h/x.csv?…", "x.csv"),
            ("what?.csv", "what?.csv"),
            ("http://h/", "h"),
            ("-", "-"),
            ("", ""),
            ("/", "/"),
        ] {
            assert_eq!(base_name(path), expected, "{path}");
        }
    }

    #[test]
    fn a_column_of_the_data_is_not_hidden() {
        let fields = [Arc::new(Field::new("FileName", DataType::Int64, true))];
        let names: Vec<String> =
            available_hidden_columns(&fields).map(|(field, _)| field.name().clone()).collect();
        assert_eq!(names, ["file_row_number", "_path", "_file", "$path"]);
    }

    #[test]
    fn a_text_that_is_repeated_stands_once() {
        let text = "a path that is longer than a view has room for";
        let array = repeat_text(text, 1000).unwrap();
        let array = array.as_string_view();
        assert!(
            array.iter().all(|value| value == Some(text))
                && arrow::array::Array::len(array) == 1000
        );
        assert_eq!(
            array.data_buffers().iter().map(|buffer| buffer.len()).sum::<usize>(),
            text.len()
        );
        assert_eq!(repeat_text("", 3).unwrap().as_string_view().value(2), "");
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_a_count_of_all_records(
            good in proptest::collection::vec(any::<bool>(), 0..200),
            cuts in proptest::collection::vec(1usize..40, 1..20),
            batch in 1usize..50,
        ) {
            let expected: Vec<i64> =
                good.iter().enumerate().filter(|(_, good)| **good).map(|(at, _)| at as i64).collect();
            let (mut numbering, mut found, mut waiting) = (RecordNumbering::default(), Vec::new(), 0);
            let mut rest = good.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (block, behind) = rest.split_at((*cut).min(rest.len()));
                let mut rows = 0;
                for good in block {
                    match good {
                        true => rows += 1,
                        false => numbering.add_rejected(rows),
                    }
                }
                numbering.add_accepted(rows);
                waiting += rows as usize;
                while waiting >= batch {
                    found.extend_from_slice(numbering.next_numbers(batch).as_primitive::<Int64Type>().values());
                    waiting -= batch;
                }
                rest = behind;
            }
            found.extend_from_slice(numbering.next_numbers(waiting).as_primitive::<Int64Type>().values());
            prop_assert_eq!(found, expected);
        }
    }
}
