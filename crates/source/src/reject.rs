//! Malformed records: how many may be, where they are, and a copy of each.
//!
//! A reader holds what it refused until its split is accepted, since a split whose start was
//! guessed wrongly is read again and must not count. What it holds is bounded: a cut file's
//! split by its size, and a split that starts at a file's start hands records over early.
//!
//! Copies are JSON lines in `rejected/1.jsonl` of the run's folder:
//!
//! ```json
//! {"path":"a.csv","line":3,"offset":17,"column":"x","reason":"…","record":"1,abc"}
//! ```
//!
//! with `record_hex` in place of `record` where the bytes are not UTF-8, and
//! `"truncated":true` where a record is longer than 1 MiB. In formats that have no lines it is `row`
//! in place of `line`, the row's number, and the record is the value that is at fault.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_base::durability::sync_path;
use tidemill_base::hex::encode_hex;
use tidemill_base::state_folder::create_private_folders_durably;
use tidemill_base::{BadRecord, BadRecordLimit, type_mismatches, unknown_keys};

use super::SourceFile;
use super::error::{Error, Result};
use super::fault::Fault;
use super::placed_counts::{CountsBySource, PlacedCounts};

/// A refused record, as its reader holds it.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) file: Arc<SourceFile>,
    pub(crate) offset: u64,
    /// Known for inputs that cannot be read twice; found in the file when needed otherwise.
    pub(crate) line: Option<u64>,
    /// The row's number, in place of a line, in formats that have none.
    pub(crate) row: Option<u64>,
    pub(crate) fault: Fault,
    pub(crate) bytes: Vec<u8>,
    pub(crate) truncated: bool,
}

/// Of a longer record only so much is kept.
pub(crate) const KEPT_BYTES_MAX: usize = 1 << 20;
/// So many are shown.
const FIRST: usize = 5;

/// The malformed records of a run, shared by all its readers.
#[derive(Debug)]
pub struct Rejects {
    allowed: BadRecordLimit,
    folder: Option<PathBuf>,
    /// Whether somebody else counts them: readers hold all that they refuse then.
    are_held: bool,
    state: Mutex<Tally>,
    /// Keys of records that no column has.
    unknown: Mutex<CountsBySource>,
    /// Values that became null because they are not of their column's type.
    mismatches: Mutex<CountsBySource>,
}

#[derive(Debug, Default)]
struct Tally {
    count: u64,
    first: Vec<BadRecord>,
    copies: Option<BufWriter<File>>,
    /// Path of the file with the copies.
    path: PathBuf,
}

impl Rejects {
    /// Allows as many as `allowed`; copies go to `rejected/` in `folder`, which is created
    /// with the first one, if any may be skipped at all.
    pub fn new(allowed: BadRecordLimit, folder: Option<PathBuf>) -> Self {
        let keeps = !matches!(allowed, BadRecordLimit::Count(0) | BadRecordLimit::Unlimited);
        let folder = folder.filter(|_| keeps);
        Self {
            allowed,
            folder,
            are_held: false,
            state: Mutex::default(),
            unknown: Mutex::default(),
            mismatches: Mutex::default(),
        }
    }

    /// For readers whose refused records somebody else counts: each gives all of them out in its
    /// [statistics](crate::SplitStats).
    pub fn held() -> Self {
        Self { are_held: true, ..Self::new(BadRecordLimit::Percent(100.0), None) }
    }

    /// Whether readers hold all that they refuse.
    pub(crate) fn are_held(&self) -> bool {
        self.are_held
    }

    /// How many were refused so far.
    pub fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// The first few, by path and offset.
    pub fn first(&self) -> Vec<BadRecord> {
        self.state.lock().first.clone()
    }

    /// Whether a result is incomplete for what was refused, as it is if nobody said how many may be.
    pub fn is_incomplete(&self) -> bool {
        self.allowed == BadRecordLimit::Unlimited && self.count() > 0
    }

    /// Adds keys that no column has.
    pub(crate) fn add_unknown(&self, keys: PlacedCounts) {
        if !keys.is_empty() {
            self.unknown.lock().merge(keys);
        }
    }

    /// The keys that no column has, of the splits that were accepted.
    pub fn unknown_keys(&self) -> unknown_keys::UnknownKeys {
        self.unknown.lock().unknown_keys()
    }

    /// Adds values that became null because they are not of their column's type.
    pub(crate) fn add_mismatches(&self, mismatches: PlacedCounts) {
        if !mismatches.is_empty() {
            self.mismatches.lock().merge(mismatches);
        }
    }

    /// The values that became null because they are not of their column's type, of the splits that were accepted.
    pub fn mismatches(&self) -> type_mismatches::TypeMismatches {
        self.mismatches.lock().mismatches()
    }

    /// Whether so many more would be too many whatever else is read.
    pub(crate) fn would_exceed(&self, more: u64) -> bool {
        match self.allowed {
            BadRecordLimit::Count(count) => self.count().saturating_add(more) > count,
            BadRecordLimit::Percent(_) | BadRecordLimit::Unlimited => false,
        }
    }

    /// Counts records for good.
    ///
    /// # Errors
    /// [`Error::BadRecords`] once there are more than allowed by count; [`Error::Io`] if a
    /// copy cannot be written.
    pub(crate) fn add(&self, refused: Vec<Refused>) -> Result<()> {
        if refused.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        for record in refused {
            state.count += 1;
            if self.allowed == BadRecordLimit::Unlimited && !state.may_be_first(&record) {
                continue;
            }
            let located = locate(&record)?;
            if let Some(folder) = &self.folder {
                state.copy(folder, &located, &record)?;
            }
            let key = |bad: &BadRecord| (bad.path.clone(), bad.offset, bad.row);
            let at = state.first.partition_point(|other| key(other) <= key(&located));
            if at < FIRST {
                state.first.insert(at, located);
                state.first.truncate(FIRST);
            }
            if matches!(self.allowed, BadRecordLimit::Count(allowed) if state.count > allowed) {
                state.flush(&self.folder)?;
                return Err(self.too_many(state.count, state.first.clone()));
            }
        }
        Ok(())
    }

    /// The failure of a reader that holds more than are allowed, before anything is counted.
    pub(crate) fn exceeded_by(&self, refused: &[Refused]) -> Error {
        // That a file can no longer be read is said by whoever reads on.
        let first = refused.iter().take(FIRST).filter_map(|record| locate(record).ok());
        let state = self.state.lock();
        let mut all: Vec<_> = state.first.iter().cloned().chain(first).collect();
        all.truncate(FIRST);
        self.too_many(state.count + refused.len() as u64, all)
    }

    /// Forgets all, for a run that starts over.
    ///
    /// # Errors
    /// [`Error::Io`] if the copies cannot be emptied.
    pub fn start_over(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.flush(&self.folder)?;
        state.count = 0;
        state.first.clear();
        *self.unknown.lock() = CountsBySource::default();
        *self.mismatches.lock() = CountsBySource::default();
        if let (Some(copies), Some(folder)) = (&mut state.copies, &self.folder) {
            let file = copies.get_mut();
            let emptied = file.set_len(0).and_then(|()| file.rewind());
            emptied.map_err(|error| Error::io("write to", folder, error))?;
        }
        Ok(())
    }

    fn too_many(&self, count: u64, first: Vec<BadRecord>) -> Error {
        Error::BadRecords { count, allowed: self.allowed.to_string(), first }
    }

    /// Checks the number of rejected records of the whole run, in which `rows` good records were read,
    /// and makes the copies durable: from here on, an output may exist without these records.
    ///
    /// # Errors
    /// [`Error::BadRecords`] if more than allowed were refused; [`Error::Io`] if the copies
    /// cannot be written.
    pub fn finish(&self, rows: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.flush(&self.folder)?;
        state.sync()?;
        let exceeded = match self.allowed {
            BadRecordLimit::Count(allowed) => state.count > allowed,
            #[allow(clippy::cast_precision_loss)]
            BadRecordLimit::Percent(percent) => {
                state.count as f64 * 100.0 > percent * (state.count + rows) as f64
            }
            BadRecordLimit::Unlimited => false,
        };
        if exceeded { Err(self.too_many(state.count, state.first.clone())) } else { Ok(()) }
    }
}

fn locate(record: &Refused) -> Result<BadRecord> {
    let line = match (record.row, record.line) {
        (Some(_), _) => None,
        (None, Some(line)) => Some(line),
        (None, None) => Some(record.file.line_at(record.offset)?),
    };
    Ok(BadRecord {
        path: record.file.shown().to_string(),
        line,
        row: record.row,
        offset: record.offset,
        column: record.fault.column.clone(),
        reason: record.fault.reason.clone(),
        hint: record.fault.hint.clone(),
    })
}

impl Tally {
    /// Whether a record may be among the first few. Finding out its line may mean reading the file up to it.
    fn may_be_first(&self, record: &Refused) -> bool {
        let key = (record.file.shown(), record.offset, record.row);
        self.first.len() < FIRST
            || self
                .first
                .last()
                .is_none_or(|last| key < (last.path.as_str(), last.offset, last.row))
    }

    fn copy(&mut self, folder: &std::path::Path, bad: &BadRecord, record: &Refused) -> Result<()> {
        let folder = folder.join("rejected");
        if self.copies.is_none() {
            create_private_folders_durably(&folder)
                .map_err(|error| Error::io("create", &folder, error))?;
            for number in 1.. {
                let path = folder.join(format!("{number}.jsonl"));
                let mut options = OpenOptions::new();
                match options.write(true).create_new(true).mode(0o600).open(&path) {
                    Ok(file) => {
                        self.copies = Some(BufWriter::new(file));
                        self.path = path;
                        break;
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(Error::io("create", &path, error)),
                }
            }
        }
        let Some(copies) = &mut self.copies else { return Ok(()) };
        let (place, number) = match bad.row {
            Some(row) => ("row", Some(row)),
            None => ("line", bad.line),
        };
        let mut line = serde_json::json!({
            "path": bad.path, place: number, "offset": bad.offset, "column": bad.column,
            "reason": bad.reason,
        });
        match std::str::from_utf8(&record.bytes) {
            Ok(text) => line["record"] = text.trim_end_matches(['\r', '\n']).into(),
            Err(_) => line["record_hex"] = encode_hex(&record.bytes).into(),
        }
        if record.truncated {
            line["truncated"] = true.into();
        }
        writeln!(copies, "{line}").map_err(|error| Error::io("write to", &folder, error))
    }

    fn flush(&mut self, folder: &Option<PathBuf>) -> Result<()> {
        match (&mut self.copies, folder) {
            (Some(copies), Some(folder)) => {
                copies.flush().map_err(|error| Error::io("write to", folder, error))
            }
            _ => Ok(()),
        }
    }

    fn sync(&self) -> Result<()> {
        let Some(copies) = &self.copies else { return Ok(()) };
        let synced = copies.get_ref().sync_data().and_then(|()| sync_path(&self.path));
        synced.map_err(|error| Error::io("write to", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_count_or_a_share() {
        for (text, expected) in [
            ("0", Some(BadRecordLimit::Count(0))),
            ("100", Some(BadRecordLimit::Count(100))),
            ("1%", Some(BadRecordLimit::Percent(1.0))),
            ("0.5 %", Some(BadRecordLimit::Percent(0.5))),
            ("101%", None),
            ("-1", None),
            ("NaN%", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<BadRecordLimit>().ok(), expected, "{text}");
        }
    }
}
