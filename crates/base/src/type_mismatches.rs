//! Type mismatches: values that became NULL because they do not match their column's type.

use serde::{Deserialize, Serialize};

use crate::coverage::format_grouped_digits;
use crate::error::escape_control_chars;
use crate::placed_counts::{self, PLACED_NAMES_MAX, PlacedCount, format_place};

/// Maximum number of columns that are counted separately; mismatches of further columns share one counter.
pub const MISMATCH_COLUMNS_MAX: usize = PLACED_NAMES_MAX;
/// Maximum number of columns that the warning names.
const WARNING_COLUMNS_MAX: usize = 5;

/// The type mismatches of one column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnTypeMismatches {
    /// The column; for a promoted record, its column and the field: `input.user`.
    pub column: String,
    /// The path, URL or pattern of its source, if several sources of the run have mismatches in this column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Number of mismatched values.
    pub count: u64,
    /// The file of the first mismatch.
    pub path: String,
    /// Line number of the first mismatch, counted from 1; `None` in formats without lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Row number of the first mismatch, counted from 1, in formats without lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// Byte offset of the first mismatch in the (uncompressed) file.
    pub offset: u64,
}

/// The type mismatches of all columns of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeMismatches {
    /// At most [`MISMATCH_COLUMNS_MAX`] columns, sorted by the place of their first mismatch.
    pub columns: Vec<ColumnTypeMismatches>,
    /// Number of mismatched values in all further columns.
    #[serde(default)]
    pub others: u64,
}

impl TypeMismatches {
    /// Returns true if there are no mismatches.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty() && self.others == 0
    }

    /// Returns the number of mismatched values in all columns.
    pub fn count(&self) -> u64 {
        self.columns.iter().map(|column| column.count).sum::<u64>() + self.others
    }

    /// Adds the mismatches of another run.
    pub fn merge(&mut self, other: &TypeMismatches) {
        if other.is_empty() {
            return;
        }
        self.others += other.others;
        placed_counts::merge_counts(&mut self.columns, &mut self.others, &other.columns);
    }

    /// Sorts the columns by the place of their first mismatch. Moves those beyond the maximum to `others`.
    pub fn sort(&mut self) {
        placed_counts::sort_counts(&mut self.columns, &mut self.others);
    }

    /// Returns the warning for the user; `None` if there are no mismatches.
    pub fn warning(&self) -> Option<String> {
        let first = self.columns.first()?;
        let named: Vec<String> = self
            .columns
            .iter()
            .take(WARNING_COLUMNS_MAX)
            .map(ColumnTypeMismatches::describe)
            .collect();
        let more = match (self.columns.len() - named.len(), self.others) {
            (0, 0) => String::new(),
            (more, 0) => format!(", and {more} more columns"),
            (more, _) => format!(", and more than {more} other columns"),
        };
        let (values, are) = match self.count() {
            1 => ("value became", "it is"),
            _ => ("values became", "they are"),
        };
        // A schema cannot name a field of a promoted record as a column.
        let hint = match first.column.contains('.') {
            true => "--mismatch error refuses such records, each with its place".to_owned(),
            false => format!(
                "--schema '{} TEXT' reads the values of a column as they are written (job file: source.schema); \
                 --mismatch error refuses such records, each with its place",
                sql_column_name(&first.column),
            ),
        };
        Some(format!(
            "{} {values} null, as {are} not of the column's type: {}{more}\nhint: {hint}",
            format_grouped_digits(self.count()),
            named.join(", "),
        ))
    }
}

/// Returns a column's name as SQL writes it.
pub(crate) fn sql_column_name(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match is_plain {
        true => name.to_owned(),
        false => format!("\"{}\"", escape_control_chars(&name.replace('"', "\"\""), &[])),
    }
}

impl PlacedCount for ColumnTypeMismatches {
    fn identity(&self) -> (&str, Option<&str>) {
        (&self.column, self.source.as_deref())
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn set_count(&mut self, count: u64) {
        self.count = count;
    }

    fn first_occurrence(&self) -> (&str, u64, Option<u64>) {
        (&self.path, self.offset, self.row)
    }
}

impl ColumnTypeMismatches {
    fn describe(&self) -> String {
        let (column, path) =
            (escape_control_chars(&self.column, &[]), escape_control_chars(&self.path, &[]));
        let place = format_place(self.row, self.line, self.offset);
        let count = match self.count {
            1 => String::new(),
            count => format!("{} values, first ", format_grouped_digits(count)),
        };
        format!("`{column}` ({count}in {path}: {place})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(column: &str, count: u64, path: &str, offset: u64) -> ColumnTypeMismatches {
        let (column, path, line) = (column.to_owned(), path.to_owned(), Some(offset / 10 + 1));
        ColumnTypeMismatches { column, source: None, count, path, line, row: None, offset }
    }

    #[test]
    fn warning_names_columns_counts_places_and_remedies() {
        let schema = |column: &str| {
            format!(
                "--schema '{column} TEXT' reads the values of a column as they are written (job file: source.schema); \
                 --mismatch error refuses such records, each with its place"
            )
        };
        for (columns, others, expected) in [
            (vec![], 0, None),
            (
                vec![column("n", 1, "a.csv", 25)],
                0,
                Some(format!(
                    "1 value became null, as it is not of the column's type: `n` (in a.csv: line 3 (byte 25))\n\
                     hint: {}",
                    schema("n")
                )),
            ),
            (
                vec![column("A b", 12_345, "a.csv", 5), column("n", 1, "b.csv", 0)],
                0,
                Some(format!(
                    "12,346 values became null, as they are not of the column's type: `A b` (12,345 values, \
                     first in a.csv: line 1 (byte 5)), `n` (in b.csv: line 1 (byte 0))\n\
                     hint: {}",
                    schema("\"A b\"")
                )),
            ),
            (
                (0..7).map(|at| column(&format!("input.x{at}"), 1, "a", at)).collect(),
                9,
                Some(
                    "16 values became null, as they are not of the column's type: `input.x0` (in a: line 1 \
                     (byte 0)), `input.x1` (in a: line 1 (byte 1)), `input.x2` (in a: line 1 (byte 2)), \
                     `input.x3` (in a: line 1 (byte 3)), `input.x4` (in a: line 1 (byte 4)), and more than 2 \
                     other columns\n\
                     hint: --mismatch error refuses such records, each with its place"
                        .to_owned(),
                ),
            ),
        ] {
            assert_eq!(TypeMismatches { columns, others }.warning(), expected);
        }
    }

    #[test]
    fn merging_adds_counts_and_keeps_first_place() {
        let mut all = TypeMismatches { columns: vec![column("a", 1, "b.csv", 5)], others: 1 };
        let more = vec![column("a", 2, "a.csv", 9), column("c", 1, "a.csv", 3)];
        all.merge(&TypeMismatches { columns: more, others: 2 });
        assert_eq!(all.columns, [column("c", 1, "a.csv", 3), column("a", 3, "a.csv", 9)]);
        assert_eq!((all.others, all.count()), (3, 7));
        let many =
            (0..2 * MISMATCH_COLUMNS_MAX).map(|at| column(&at.to_string(), 1, "z", at as u64));
        all.merge(&TypeMismatches { columns: many.collect(), others: 0 });
        assert_eq!(all.columns.len(), MISMATCH_COLUMNS_MAX);
        assert_eq!(all.count(), 7 + 2 * MISMATCH_COLUMNS_MAX as u64);
    }
}
