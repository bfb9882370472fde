//! Log of malformed records: enforces their limit, locates them, and writes a copy of each.
//!
//! A reader holds its rejected records until its split is accepted. A split whose start was guessed wrongly
//! is read again, and its first records must not count. The held memory is bounded: by the size of the splits
//! of cut files, and by handing over early the records of splits that begin at a file's start.
//!
//! Copies are JSON lines in `rejected/1.jsonl` of the run's folder:
//!
//! ```json
//! {"path":"a.csv","line":3,"offset":17,"column":"x","reason":"…","record":"1,abc"}
//! ```
//!
//! Bytes that are not UTF-8 are in `record_hex` instead of `record`, and a record longer than 1 MiB has
//! `"truncated":true`. Formats without lines have `row`, the row's number, instead of `line`, and the record
//! is the value at fault.

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

use crate::SourceFile;
use crate::error::{Error, Result};
use crate::rejects::occurrence_counts::{OccurrenceCounts, OccurrencesBySource};
use crate::rejects::record_fault::RecordFault;

/// A rejected record, as its reader holds it.
#[derive(Debug)]
pub(crate) struct RejectedRecord {
    pub(crate) file: Arc<SourceFile>,
    pub(crate) offset: u64,
    /// Known for inputs that cannot be read twice; otherwise looked up in the file when needed.
    pub(crate) line: Option<u64>,
    /// Row number, for formats without lines.
    pub(crate) row: Option<u64>,
    pub(crate) fault: RecordFault,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_truncated: bool,
}

/// Maximum size of the copy of a record, in bytes.
pub(crate) const REJECT_COPY_BYTES_MAX: usize = 1 << 20;
/// Number of records that messages show.
const FIRST_RECORDS_MAX: usize = 5;

/// The malformed records of a run, shared by all its readers.
#[derive(Debug)]
pub struct RejectLog {
    limit: BadRecordLimit,
    run_folder: Option<PathBuf>,
    /// True if another process counts the records; readers then hold all that they reject.
    is_counting_deferred: bool,
    state: Mutex<RejectTally>,
    /// Unknown keys.
    unknown_keys: Mutex<OccurrencesBySource>,
    /// Type mismatches.
    mismatches: Mutex<OccurrencesBySource>,
}

#[derive(Debug, Default)]
struct RejectTally {
    count: u64,
    first_records: Vec<BadRecord>,
    copies: Option<BufWriter<File>>,
    /// Path of the file with the copies.
    path: PathBuf,
}

impl RejectLog {
    /// Creates a log with the given limit. If any record may be skipped, copies go to `rejected/` in
    /// `folder`, which is created with the first one.
    pub fn new(allowed: BadRecordLimit, folder: Option<PathBuf>) -> Self {
        let keeps = !matches!(allowed, BadRecordLimit::Count(0) | BadRecordLimit::Unlimited);
        let folder = folder.filter(|_| keeps);
        Self {
            limit: allowed,
            run_folder: folder,
            is_counting_deferred: false,
            state: Mutex::default(),
            unknown_keys: Mutex::default(),
            mismatches: Mutex::default(),
        }
    }

    /// Creates a log for readers whose rejected records another process counts: each reader returns all of
    /// them in its [statistics](crate::SplitStats).
    pub fn with_deferred_counting() -> Self {
        Self { is_counting_deferred: true, ..Self::new(BadRecordLimit::Percent(100.0), None) }
    }

    /// Returns true if readers hold all records that they reject.
    pub(crate) fn is_counting_deferred(&self) -> bool {
        self.is_counting_deferred
    }

    /// Returns the number of rejected records so far.
    pub fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Returns the first few records, by path and offset.
    pub fn first_records(&self) -> Vec<BadRecord> {
        self.state.lock().first_records.clone()
    }

    /// Returns true if a result is incomplete because of rejected records, which is the case if the user gave
    /// no limit.
    pub fn has_incomplete_result(&self) -> bool {
        self.limit == BadRecordLimit::Unlimited && self.count() > 0
    }

    /// Adds unknown keys.
    pub(crate) fn add_unknown_keys(&self, keys: OccurrenceCounts) {
        if !keys.is_empty() {
            self.unknown_keys.lock().merge(keys);
        }
    }

    /// Returns the unknown keys of the splits that were accepted.
    pub fn unknown_keys(&self) -> unknown_keys::UnknownKeys {
        self.unknown_keys.lock().unknown_keys()
    }

    /// Adds type mismatches.
    pub(crate) fn add_mismatches(&self, mismatches: OccurrenceCounts) {
        if !mismatches.is_empty() {
            self.mismatches.lock().merge(mismatches);
        }
    }

    /// Returns the type mismatches of the splits that were accepted.
    pub fn mismatches(&self) -> type_mismatches::TypeMismatches {
        self.mismatches.lock().mismatches()
    }

    /// Returns true if `more` records would exceed the limit, whatever else is read.
    pub(crate) fn would_exceed_limit(&self, more: u64) -> bool {
        match self.limit {
            BadRecordLimit::Count(count) => self.count().saturating_add(more) > count,
            BadRecordLimit::Percent(_) | BadRecordLimit::Unlimited => false,
        }
    }

    /// Adds and counts records permanently.
    ///
    /// # Errors
    /// [`Error::BadRecords`] once there are more than an absolute limit; [`Error::Io`] if a copy cannot be
    /// written.
    pub(crate) fn add_records(&self, refused: Vec<RejectedRecord>) -> Result<()> {
        if refused.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        for record in refused {
            state.count += 1;
            if self.limit == BadRecordLimit::Unlimited && !state.can_be_among_first(&record) {
                continue;
            }
            let located = to_bad_record(&record)?;
            if let Some(folder) = &self.run_folder {
                state.write_copy(folder, &located, &record)?;
            }
            let key = |bad: &BadRecord| (bad.path.clone(), bad.offset, bad.row);
            let at = state.first_records.partition_point(|other| key(other) <= key(&located));
            if at < FIRST_RECORDS_MAX {
                state.first_records.insert(at, located);
                state.first_records.truncate(FIRST_RECORDS_MAX);
            }
            if matches!(self.limit, BadRecordLimit::Count(allowed) if state.count > allowed) {
                state.flush(&self.run_folder)?;
                return Err(self.too_many_error(state.count, state.first_records.clone()));
            }
        }
        Ok(())
    }

    /// Returns the error of a reader that holds more records than allowed, before anything is counted.
    pub(crate) fn limit_exceeded_error(&self, refused: &[RejectedRecord]) -> Error {
        // Continued reading reports a file that can no longer be read.
        let first =
            refused.iter().take(FIRST_RECORDS_MAX).filter_map(|record| to_bad_record(record).ok());
        let state = self.state.lock();
        let mut all: Vec<_> = state.first_records.iter().cloned().chain(first).collect();
        all.truncate(FIRST_RECORDS_MAX);
        self.too_many_error(state.count + refused.len() as u64, all)
    }

    /// Resets the log for a run that starts over.
    ///
    /// # Errors
    /// [`Error::Io`] if the file of copies cannot be truncated.
    pub fn reset(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.flush(&self.run_folder)?;
        state.count = 0;
        state.first_records.clear();
        *self.unknown_keys.lock() = OccurrencesBySource::default();
        *self.mismatches.lock() = OccurrencesBySource::default();
        if let (Some(copies), Some(folder)) = (&mut state.copies, &self.run_folder) {
            let file = copies.get_mut();
            let emptied = file.set_len(0).and_then(|()| file.rewind());
            emptied.map_err(|error| Error::from_io("write to", folder, error))?;
        }
        Ok(())
    }

    fn too_many_error(&self, count: u64, first: Vec<BadRecord>) -> Error {
        Error::BadRecords { count, allowed: self.limit.to_string(), first }
    }

    /// Checks the number of rejected records of the whole run, with `rows` good records, and syncs the copies
    /// to disk. From here on, an output may exist without these records.
    ///
    /// # Errors
    /// [`Error::BadRecords`] if there are more than allowed; [`Error::Io`] if the copies cannot be written.
    pub fn finish(&self, rows: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.flush(&self.run_folder)?;
        state.sync()?;
        let exceeded = match self.limit {
            BadRecordLimit::Count(allowed) => state.count > allowed,
            #[allow(clippy::cast_precision_loss)]
            BadRecordLimit::Percent(percent) => {
                state.count as f64 * 100.0 > percent * (state.count + rows) as f64
            }
            BadRecordLimit::Unlimited => false,
        };
        if exceeded {
            Err(self.too_many_error(state.count, state.first_records.clone()))
        } else {
            Ok(())
        }
    }
}

fn to_bad_record(record: &RejectedRecord) -> Result<BadRecord> {
    let line = match (record.row, record.line) {
        (Some(_), _) => None,
        (None, Some(line)) => Some(line),
        (None, None) => Some(record.file.line_number_at(record.offset)?),
    };
    Ok(BadRecord {
        path: record.file.display_name().to_string(),
        line,
        row: record.row,
        offset: record.offset,
        column: record.fault.column.clone(),
        reason: record.fault.reason.clone(),
        hint: record.fault.hint.clone(),
    })
}

impl RejectTally {
    /// Returns true if a record may be among the first few. Looking up its line may require reading the file
    /// up to it.
    fn can_be_among_first(&self, record: &RejectedRecord) -> bool {
        let key = (record.file.display_name(), record.offset, record.row);
        self.first_records.len() < FIRST_RECORDS_MAX
            || self
                .first_records
                .last()
                .is_none_or(|last| key < (last.path.as_str(), last.offset, last.row))
    }

    fn write_copy(
        &mut self,
        folder: &std::path::Path,
        bad: &BadRecord,
        record: &RejectedRecord,
    ) -> Result<()> {
        let folder = folder.join("rejected");
        if self.copies.is_none() {
            create_private_folders_durably(&folder)
                .map_err(|error| Error::from_io("create", &folder, error))?;
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
                    Err(error) => return Err(Error::from_io("create", &path, error)),
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
        if record.is_truncated {
            line["truncated"] = true.into();
        }
        writeln!(copies, "{line}").map_err(|error| Error::from_io("write to", &folder, error))
    }

    fn flush(&mut self, folder: &Option<PathBuf>) -> Result<()> {
        match (&mut self.copies, folder) {
            (Some(copies), Some(folder)) => {
                copies.flush().map_err(|error| Error::from_io("write to", folder, error))
            }
            _ => Ok(()),
        }
    }

    fn sync(&self) -> Result<()> {
        let Some(copies) = &self.copies else { return Ok(()) };
        let synced = copies.get_ref().sync_data().and_then(|()| sync_path(&self.path));
        synced.map_err(|error| Error::from_io("write to", &self.path, error))
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
