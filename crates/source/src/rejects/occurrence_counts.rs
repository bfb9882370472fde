//! Counts by name with the location of the first occurrence, for unknown keys and for type mismatches.
//!
//! A reader holds its counts until its split is accepted, as it holds rejected records. The counts of a run
//! are part of its reject log ([`RejectLog`](crate::RejectLog)), because all of them are committed at the
//! same moment. A split without occurrences takes no lock for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_base::type_mismatches;
use tidemill_base::unknown_keys::{self, UNKNOWN_KEYS_MAX};

use crate::SourceFile;

/// Counts of unknown keys, or of type mismatches.
#[derive(Debug, Default)]
pub(crate) struct OccurrenceCounts {
    /// Occurrences by the path of the key, or by the name of the column.
    pub(crate) counts: BTreeMap<String, Occurrences>,
    /// Number of occurrences of further keys or columns.
    pub(crate) other_count: u64,
}

/// Number of occurrences of a key or a mismatch, with the location of the first.
#[derive(Debug, Clone)]
pub(crate) struct Occurrences {
    /// Promoted column that contains the key; none for a key of the record itself.
    pub(crate) parent_column: Option<Arc<str>>,
    pub(crate) count: u64,
    pub(crate) first_location: OccurrenceLocation,
}

/// Location of the first occurrence of a key or a mismatch.
#[derive(Debug, Clone)]
pub(crate) struct OccurrenceLocation {
    pub(crate) file: Arc<SourceFile>,
    pub(crate) offset: u64,
    /// Known for inputs that cannot be read twice; otherwise looked up in the file when needed.
    pub(crate) line: Option<u64>,
    /// Row number, for formats without lines.
    pub(crate) row: Option<u64>,
}

impl OccurrenceLocation {
    fn is_before(&self, other: &OccurrenceLocation) -> bool {
        let key = |it: &Self| (Arc::clone(&it.file.display_name), it.offset, it.row);
        key(self) < key(other)
    }

    /// Returns the line number; none if the file has no lines, or can no longer be read.
    fn find_line_number(&self) -> Option<u64> {
        self.file.line_number_at(self.offset).ok().filter(|line| *line > 0)
    }
}

impl OccurrenceCounts {
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.other_count == 0
    }

    /// Adds occurrences. `first` locates the first of them unless it is known to follow an earlier one.
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

    /// Merges the counts of another reader.
    pub(crate) fn merge(&mut self, other: OccurrenceCounts) {
        self.other_count += other.other_count;
        for (path, Occurrences { parent_column: within, count, first_location: first }) in
            other.counts
        {
            self.add(&path, within.as_ref(), count, |_| Some(first));
        }
    }
}

/// The counts of a run by source, so that the two sources of a join do not mix theirs.
#[derive(Debug, Default)]
pub(crate) struct OccurrencesBySource {
    sources: BTreeMap<Arc<str>, OccurrenceCounts>,
}

impl OccurrencesBySource {
    /// Merges the counts of a reader, which belong to one source.
    pub(crate) fn merge(&mut self, counts: OccurrenceCounts) {
        let first =
            counts.counts.values().next().map(|found| &found.first_location.file.source_name);
        let source = first.cloned().unwrap_or_else(|| "".into());
        self.sources.entry(source).or_default().merge(counts);
    }

    /// Returns each key or column with its source, which is named only if several sources have it.
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

    /// Looks up a line number, if the file has lines and can be read.
    fn find_line_number(&self, source: Option<&str>, name: &str) -> Option<u64> {
        let of =
            |counts: &OccurrenceCounts| counts.counts.get(name)?.first_location.find_line_number();
        match source {
            Some(source) => of(self.sources.get(source)?),
            None => self.sources.values().find_map(of),
        }
    }

    /// Returns the unknown keys of a run's coverage; the first few get their line numbers.
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

    /// Returns the type mismatches of a run's coverage; the first few get their line numbers.
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

/// Maximum number of entries whose lines are looked up: each may require reading the file up to it.
const LOCATED_ENTRIES_MAX: usize = 5;
