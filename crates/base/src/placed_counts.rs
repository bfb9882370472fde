//! Bounded lists of counts by name, each with the place of the first occurrence.

use std::collections::HashMap;

use crate::coverage::format_grouped_digits;

/// Maximum number of names that are counted separately; the rest share one counter.
pub(crate) const PLACED_NAMES_MAX: usize = 1_000;

/// The count of a name in a source, with the place of its first occurrence.
pub(crate) trait PlacedCount: Clone {
    /// Returns the name, and its source if several sources have the name.
    fn identity(&self) -> (&str, Option<&str>);

    fn count(&self) -> u64;

    fn set_count(&mut self, count: u64);

    /// Returns the file, the byte offset and the row of the first occurrence.
    fn first_occurrence(&self) -> (&str, u64, Option<u64>);
}

/// Adds the counts of another run. `others` counts the occurrences of names that `own` has no room for.
pub(crate) fn merge_counts<T: PlacedCount>(own: &mut Vec<T>, others: &mut u64, more: &[T]) {
    let identity = |entry: &T| {
        let (name, source) = entry.identity();
        (name.to_owned(), source.map(str::to_owned))
    };
    let places: HashMap<_, usize> =
        own.iter().enumerate().map(|(place, entry)| (identity(entry), place)).collect();
    for entry in more {
        let place = places.get(&identity(entry)).copied();
        let has_room = own.len() < PLACED_NAMES_MAX;
        match place.and_then(|place| own.get_mut(place)) {
            Some(known) => {
                let count = known.count() + entry.count();
                let ((path, offset, _), (known_path, known_offset, _)) =
                    (entry.first_occurrence(), known.first_occurrence());
                if (path, offset) < (known_path, known_offset) {
                    known.clone_from(entry);
                }
                known.set_count(count);
            }
            None if has_room => own.push(entry.clone()),
            None => *others += entry.count(),
        }
    }
    sort_counts(own, others);
}

/// Sorts counts by the place of their first occurrence. Moves those beyond the maximum to `others`.
pub(crate) fn sort_counts<T: PlacedCount>(own: &mut Vec<T>, others: &mut u64) {
    own.sort_by_cached_key(|entry| {
        let ((path, offset, row), (name, _)) = (entry.first_occurrence(), entry.identity());
        (path.to_owned(), offset, row, name.to_owned())
    });
    let beyond = own.drain(own.len().min(PLACED_NAMES_MAX)..);
    *others += beyond.map(|entry| entry.count()).sum::<u64>();
}

/// Formats a place within a file as messages show it.
pub(crate) fn format_place(row: Option<u64>, line: Option<u64>, offset: u64) -> String {
    match (row, line) {
        (Some(row), _) => format!("row {}", format_grouped_digits(row)),
        (None, Some(line)) if line > 0 => format!("line {line} (byte {offset})"),
        (None, _) => format!("byte {offset}"),
    }
}
