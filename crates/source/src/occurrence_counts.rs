//! Counts by name, each with the place of the first occurrence: keys that no column has, and values that became null
//! because they are not of their column's type.
//!
//! A reader holds its own until its split is accepted, as it holds refused records. A run's are beside its refused
//! records ([`Rejects`](crate::Rejects)), since all are counted at the same moment; a split without any takes no
//! lock for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_base::type_mismatches;
use tidemill_base::unknown_keys::{self, UNKNOWN_KEYS_MAX};

use super::SourceFile;

/// Counts of unknown keys, or of mismatches.
#[derive(Debug, Default)]
pub(crate) struct OccurrenceCounts {
    /// By the paths of the keys, or the names of the columns.
    pub(crate) counts: BTreeMap<String, Occurrences>,
    /// Occurrences of further keys or columns.
    pub(crate) other_count: u64,
}

/// Occurrences of a key or mismatch, and the place of the first.
#[derive(Debug, Clone)]
pub(crate) struct Occurrences {
    /// The column that a key is within, unless it is a key of the record.
    pub(crate) parent_column: Option<Arc<str>>,
    pub(crate) count: u64,
    pub(crate) first_location: OccurrenceLocation,
}

/// The place of the first key or value.
#[derive(Debug, Clone)]
pub(crate) struct OccurrenceLocation {
    pub(crate) file: Arc<SourceFile>,
    pub(crate) offset: u64,
    /// Known for inputs that cannot be read twice; found in the file when needed otherwise.
    pub(crate) line: Option<u64>,
    /// The row's number, in place of a line, in formats that have none.
    pub(crate) row: Option<u64>,
}

impl OccurrenceLocation {
    fn is_before(&self, other: &OccurrenceLocation) -> bool {
        let key = |it: &Self| (Arc::clone(&it.file.display_name), it.offset, it.row);
        key(self) < key(other)
    }

    /// Returns its line number; none where the file has no lines, or can no longer be read.
    fn find_line_number(&self) -> Option<u64> {
        self.file.line_number_at(self.offset).ok().filter(|line| *line > 0)
    }
}

impl OccurrenceCounts {
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.other_count == 0
    }

    /// Adds occurrences; `first` finds the first of them where it is not known to be behind another.
    pub(crate) fn add(
        &mut self,
        path: &str,
        within: Option<&Arc<str>>,
        count: u64,
        first: impl FnOnce(Option<&OccurrenceLocation>) -> Option<OccurrenceLocation>,
    ) {
        let has_room = self.counts.len() < UNKNOWN_KEYS_MAX;
        match self.counts.get_mut(path) {
            Some(known) => {
                known.count += count;
                if let Some(first) = first(Some(&known.first_location))
                    && first.is_before(&known.first_location)
                {
                    known.first_location = first;
                }
            }
            None => match first(None) {
                Some(first) if has_room => {
                    let within = within.cloned();
                    self.counts.insert(
                        path.to_owned(),
                        Occurrences { parent_column: within, count, first_location: first },
                    );
                }
                _ => self.other_count += count,
            },
        }
    }

    /// Takes in those of another reader.
    pub(crate) fn merge(&mut self, other: OccurrenceCounts) {
        self.other_count += other.other_count;
        for (path, Occurrences { parent_column: within, count, first_location: first }) in
            other.counts
        {
            self.add(&path, within.as_ref(), count, |_| Some(first));
        }
    }
}

/// The counts of a run, by the sources that its files are of, so that two sources of a join do not mix theirs.
#[derive(Debug, Default)]
pub(crate) struct OccurrencesBySource {
    sources: BTreeMap<Arc<str>, OccurrenceCounts>,
}

impl OccurrencesBySource {
    /// Takes in those of a reader, which are of one source.
    pub(crate) fn merge(&mut self, counts: OccurrenceCounts) {
        let first =
            counts.counts.values().next().map(|found| &found.first_location.file.source_name);
        let source = first.cloned().unwrap_or_else(|| "".into());
        self.sources.entry(source).or_default().merge(counts);
    }

    /// Returns each key or column with its source, which is named only where several sources have it.
    fn entries(&self) -> Vec<(Option<&Arc<str>>, &String, &Occurrences)> {
        let mut entries = Vec::new();
        for (source, counts) in &self.sources {
            for (name, found) in &counts.counts {
                let has = |counts: &&OccurrenceCounts| counts.counts.contains_key(name);
                let is_shared = self.sources.values().filter(has).count() > 1;
                entries.push((is_shared.then_some(source), name, found));
            }
        }
        entries
    }

    fn other_count(&self) -> u64 {
        self.sources.values().map(|counts| counts.other_count).sum()
    }

    /// Returns a line number that is not known, where the file has lines and can be read.
    fn find_line_number(&self, source: Option<&str>, name: &str) -> Option<u64> {
        let of =
            |counts: &OccurrenceCounts| counts.counts.get(name)?.first_location.find_line_number();
        match source {
            Some(source) => of(self.sources.get(source)?),
            None => self.sources.values().find_map(of),
        }
    }

    /// Returns them as the unknown keys of a run's coverage, the first few with their lines, which are looked up.
    pub(crate) fn unknown_keys(&self) -> unknown_keys::UnknownKeys {
        let keys = self.entries().into_iter().map(|(source, path, found)| {
            let OccurrenceLocation { file, offset, line, row } = &found.first_location;
            unknown_keys::UnknownKey {
                key: path.clone(),
                within: found.parent_column.as_deref().map(str::to_owned),
                source: source.map(|source| source.to_string()),
                count: found.count,
                path: file.display_name().to_owned(),
                line: *line,
                row: *row,
                offset: *offset,
            }
        });
        let mut told =
            unknown_keys::UnknownKeys { keys: keys.collect(), others: self.other_count() };
        told.sort();
        for key in told.keys.iter_mut().take(LOCATED_ENTRIES_MAX) {
            if key.line.is_none() && key.row.is_none() {
                key.line = self.find_line_number(key.source.as_deref(), &key.key);
            }
        }
        told
    }

    /// Returns them as the mismatches of a run's coverage, the first few with their lines, which are looked up.
    pub(crate) fn mismatches(&self) -> type_mismatches::TypeMismatches {
        let columns = self.entries().into_iter().map(|(source, column, found)| {
            let OccurrenceLocation { file, offset, line, row } = &found.first_location;
            type_mismatches::ColumnTypeMismatches {
                column: column.clone(),
                source: source.map(|source| source.to_string()),
                count: found.count,
                path: file.display_name().to_owned(),
                line: *line,
                row: *row,
                offset: *offset,
            }
        });
        let mut told = type_mismatches::TypeMismatches {
            columns: columns.collect(),
            others: self.other_count(),
        };
        told.sort();
        for column in told.columns.iter_mut().take(LOCATED_ENTRIES_MAX) {
            if column.line.is_none() && column.row.is_none() {
                column.line = self.find_line_number(column.source.as_deref(), &column.column);
            }
        }
        told
    }
}

/// Maximum number of entries whose lines are looked up: each may mean reading the file up to it.
const LOCATED_ENTRIES_MAX: usize = 5;
