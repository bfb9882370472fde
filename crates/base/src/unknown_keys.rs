//! Keys of records without a column, because they first occur after the sample that defined the columns.

use serde::{Deserialize, Serialize};

use crate::coverage::format_grouped_digits;
use crate::error::escape_control_chars;
use crate::placed_counts::{self, PLACED_NAMES_MAX, PlacedCount, format_place};
use crate::type_mismatches::sql_column_name;

/// Maximum number of distinct keys that are counted separately; the rest share one counter.
pub const UNKNOWN_KEYS_MAX: usize = PLACED_NAMES_MAX;
/// Length of the longest key shown in full. A longer key is shown as its beginning, its length and a hash.
const SHOWN_KEY_BYTES_MAX: usize = 200;
/// Maximum number of keys that the warning names.
const WARNING_KEYS_MAX: usize = 5;

/// A key without a column, with the number of its occurrences and the place of the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownKey {
    /// The key, or its path within a column: `user.name`, `items[].price`. A name that looks like a path is
    /// in double quotes: `"user.name"`.
    pub key: String,
    /// The column that contains the key; `None` for a top-level key of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// The path, URL or pattern of its source, if several sources of the run have unknown keys of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Number of left-out occurrences.
    pub count: u64,
    /// The file of the first occurrence.
    pub path: String,
    /// Line number of the first occurrence, counted from 1; `None` in formats without lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Row number of the first occurrence, counted from 1, in formats without lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// Byte offset of the first occurrence in the (uncompressed) file.
    pub offset: u64,
}

/// The keys without a column in all sources of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownKeys {
    /// At most [`UNKNOWN_KEYS_MAX`] keys, sorted by the place of their first occurrence.
    pub keys: Vec<UnknownKey>,
    /// Number of occurrences of all further keys.
    #[serde(default)]
    pub others: u64,
}

impl UnknownKeys {
    /// Returns true if every key has a column.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.others == 0
    }

    /// Adds the unknown keys of another run.
    pub fn merge(&mut self, other: &UnknownKeys) {
        if other.is_empty() {
            return;
        }
        self.others += other.others;
        placed_counts::merge_counts(&mut self.keys, &mut self.others, &other.keys);
    }

    /// Sorts the keys by the place of their first occurrence. Moves those beyond the maximum to `others`.
    pub fn sort(&mut self) {
        placed_counts::sort_counts(&mut self.keys, &mut self.others);
    }

    /// Returns the warning for the user; `None` if every key has a column.
    pub fn warning(&self) -> Option<String> {
        if self.keys.is_empty() {
            let more = (self.others > 0).then(|| format_grouped_digits(self.others))?;
            return Some(format!(
                "keys that no record of the sample has are in no column: they came {more} times, and are not told apart\n\
                 hint: --schema 'KEY TEXT' makes a column of a key (job file: source.schema)"
            ));
        }
        let named: Vec<String> =
            self.keys.iter().take(WARNING_KEYS_MAX).map(UnknownKey::describe).collect();
        let more = (self.keys.len() - named.len()) as u64;
        let and_more = match (more, self.others) {
            (0, 0) => String::new(),
            (more, 0) => format!(", and {} more", format_grouped_digits(more)),
            (more, _) => format!(", and more than {} others", format_grouped_digits(more)),
        };
        let s = if self.keys.len() == 1 { " is" } else { "s are" };
        let is_own = |key: &&UnknownKey| key.within.is_none();
        let is_whole = |key: &&UnknownKey| key.key.len() <= SHOWN_KEY_BYTES_MAX;
        let top_level = self.keys.iter().take(WARNING_KEYS_MAX).filter(is_own).find(is_whole);
        let nested = self.keys.iter().take(WARNING_KEYS_MAX).find(|key| key.within.is_some());
        let (column, does) = match (top_level, nested) {
            (Some(key), _) => (key.column_to_declare(), "makes a column of the key"),
            (None, Some(key)) => {
                (key.column_to_declare(), "reads the values of the column as they are written")
            }
            (None, None) => ("KEY".to_owned(), "with the whole key makes a column of it"),
        };
        Some(format!(
            "{} key{s} in no column, as no record of the sample has {}: {}{and_more}\n\
             hint: --schema '{column} TEXT' {does} (job file: source.schema)",
            format_grouped_digits(self.keys.len() as u64),
            if self.keys.len() == 1 { "it" } else { "them" },
            named.join(", "),
        ))
    }
}

impl PlacedCount for UnknownKey {
    fn identity(&self) -> (&str, Option<&str>) {
        (&self.key, self.source.as_deref())
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

impl UnknownKey {
    /// Returns the name, as SQL writes it, of the column that a schema would have to declare.
    fn column_to_declare(&self) -> String {
        let name = self.within.as_ref().unwrap_or(&self.key);
        // A key that looks like a path is stored in quotes, which is also its name in SQL.
        if self.within.is_none() && name.starts_with('"') {
            return escape_control_chars(name, &[]);
        }
        sql_column_name(name)
    }

    fn describe(&self) -> String {
        let (key, path) =
            (escape_control_chars(&self.key, &[]), escape_control_chars(&self.path, &[]));
        let times = if self.count == 1 { "once" } else { "times" };
        let count = match self.count {
            1 => String::new(),
            count => format!("{} ", format_grouped_digits(count)),
        };
        let place = format_place(self.row, self.line, self.offset);
        let first = if self.count == 1 { "in" } else { "first in" };
        format!("`{key}` ({count}{times}, {first} {path}: {place})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str, count: u64, path: &str, offset: u64) -> UnknownKey {
        let within = key.split_once("[].").map(|(column, _)| column.to_owned());
        let (key, path, line) = (key.to_owned(), path.to_owned(), Some(offset / 10 + 1));
        UnknownKey { key, within, source: None, count, path, line, row: None, offset }
    }

    #[test]
    fn a_warning_names_keys_counts_places_and_the_remedy() {
        for (keys, others, expected) in [
            (vec![], 0, None),
            (
                vec![key("plan", 1, "a.json", 25)],
                0,
                Some(
                    "1 key is in no column, as no record of the sample has it: `plan` (once, in \
                     a.json: line 3 (byte 25))\n\
                     hint: --schema 'plan TEXT' makes a column of the key (job file: source.schema)",
                ),
            ),
            (
                vec![key("\"http.Status\"", 12_345, "a.json", 5), key("a \"b\"", 2, "b.json", 0)],
                0,
                Some(
                    "2 keys are in no column, as no record of the sample has them: `\"http.Status\"` \
                     (12,345 times, first in a.json: line 1 (byte 5)), `a \"b\"` (2 times, first in \
                     b.json: line 1 (byte 0))\n\
                     hint: --schema '\"http.Status\" TEXT' makes a column of the key (job file: \
                     source.schema)",
                ),
            ),
            (
                (0..7).map(|at| key(&format!("items[].x{at}"), 2, "a", at)).collect(),
                9,
                Some(
                    "7 keys are in no column, as no record of the sample has them: `items[].x0` (2 \
                     times, first in a: line 1 (byte 0)), `items[].x1` (2 times, first in a: line 1 \
                     (byte 1)), `items[].x2` (2 times, first in a: line 1 (byte 2)), `items[].x3` (2 \
                     times, first in a: line 1 (byte 3)), `items[].x4` (2 times, first in a: line 1 \
                     (byte 4)), and more than 2 others\n\
                     hint: --schema 'items TEXT' reads the values of the column as they are written \
                     (job file: source.schema)",
                ),
            ),
            (
                vec![key(&"k".repeat(SHOWN_KEY_BYTES_MAX + 1), 1, "a", 0)],
                0,
                Some(&*format!(
                    "1 key is in no column, as no record of the sample has it: `{}` (once, in a: line 1 (byte 0))\n\
                     hint: --schema 'KEY TEXT' with the whole key makes a column of it (job file: source.schema)",
                    "k".repeat(SHOWN_KEY_BYTES_MAX + 1),
                )),
            ),
            (
                vec![],
                12,
                Some(
                    "keys that no record of the sample has are in no column: they came 12 times, and are not told apart\n\
                     hint: --schema 'KEY TEXT' makes a column of a key (job file: source.schema)",
                ),
            ),
        ] {
            assert_eq!(UnknownKeys { keys, others }.warning().as_deref(), expected);
        }
    }

    #[test]
    fn keys_of_several_runs_are_added_and_the_first_place_counts() {
        let mut all = UnknownKeys { keys: vec![key("a", 1, "b.json", 5)], others: 1 };
        let more = vec![key("a", 2, "a.json", 9), key("c", 1, "a.json", 3)];
        all.merge(&UnknownKeys { keys: more, others: 2 });
        assert_eq!(all.keys, [key("c", 1, "a.json", 3), key("a", 3, "a.json", 9)]);
        assert_eq!(all.others, 3);
        let many = (0..2 * UNKNOWN_KEYS_MAX).map(|at| key(&format!("k{at}"), 1, "z", at as u64));
        all.merge(&UnknownKeys { keys: many.collect(), others: 0 });
        assert_eq!(all.keys.len(), UNKNOWN_KEYS_MAX);
        assert_eq!(all.others, 3 + UNKNOWN_KEYS_MAX as u64 + 2);
    }
}
