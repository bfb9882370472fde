//! Counts by name, each with the place of the first occurrence, of which a coverage has a bounded number.

use std::collections::HashMap;

use crate::coverage::format_grouped_digits;

/// Names that are told apart; occurrences of further ones are counted together.
pub(crate) const PLACED_NAMES_MAX: usize = 1_000;

/// The count of a name in a source, and the place where it occurred first.
pub(crate) trait PlacedCount: Clone {
    /// Returns the name, and the source where several have it.
    fn identity(&self) -> (&str, Option<&str>);

    fn count(&self) -> u64;

    fn set_count(&mut self, count: u64);

    /// Returns the file, the byte offset and the row of the first occurrence.
    fn first_occurrence(&self) -> (&str, u64, Option<u64>);
}

/// Adds the counts of another run. `others` counts the occurrences of names that are not among `own`.
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

/// Puts counts in the order of their first occurrences; those beyond the maximum go to `others`.
pub(crate) fn sort_counts<T: PlacedCount>(own: &mut Vec<T>, others: &mut u64) {
    own.sort_by_cached_key(|entry| {
        let ((path, offset, row), (name, _)) = (entry.first_occurrence(), entry.identity());
        (path.to_owned(), offset, row, name.to_owned())
    });
    let beyond = own.drain(own.len().min(PLACED_NAMES_MAX)..);
    *others += beyond.map(|entry| entry.count()).sum::<u64>();
}

/// Returns a place within a file, as messages have it.
pub(crate) fn format_place(row: Option<u64>, line: Option<u64>, offset: u64) -> String {
    match (row, line) {
        (Some(row), _) => format!("row {}", format_grouped_digits(row)),
        (None, Some(line)) if line > 0 => format!("line {line} (byte {offset})"),
        (None, _) => format!("byte {offset}"),
    }
}
