//! The job log on disk: any number of processes append to it, and readers read it from its end.
//!
//! ```text
//! $TIDEMILL_HOME/jobs/
//! ├── 00000007.log      oldest
//! ├── 00000008.log
//! └── 00000009.log      the one that is appended to
//! ```
//!
//! A record is written by one `write` to a file opened with `O_APPEND`. A local file system performs it as a
//! whole after the writes of other processes, so there is no lock, and no process waits for one that hangs. A
//! kill or a full disk leaves a line without a valid checksum; the next record begins with a line feed and
//! stands on its own line. Spark's event log and shell histories use lines of text for the same reasons. A
//! database file (atuin's SQLite) would list by index, but it locks its writers against one another.
//!
//! Reading goes backwards in blocks: the last 20 runs cost one block of the newest segment,
//! whatever the log's size.
//!
//! A full segment is closed, and the next number begins. The process that begins a segment removes the oldest
//! ones beyond the limit. Two processes that begin one at the same time begin the same one.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use tidemill_base::memory_budget::{MemorySize, format_binary_bytes, parse_size};
use tidemill_base::state_folder::StateFolder;

use crate::run_record::{self, LINE_BYTES_MAX, LogLine, RunRecord};

/// Default maximum size of the log on disk in bytes: 256 MiB, about 250,000 runs.
pub const LOG_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// Minimum of the maximum size in bytes.
const LOG_BYTES_MAX_MIN: u64 = 1 << 20;

/// Number of segments of a full log.
const SEGMENT_COUNT: u64 = 16;

/// Size of one read in bytes.
const READ_BLOCK_BYTES: usize = 64 << 10;

/// The environment variable that sets the maximum size of the log, or turns it off.
pub const JOB_LOG_ENV_VAR: &str = "TIDEMILL_JOB_LOG";

/// Retention of the job log: off, or a maximum size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRetention {
    /// Runs are not logged.
    Off,
    /// Maximum size in bytes.
    SizeLimit(u64),
}

impl LogRetention {
    /// Reads [`JOB_LOG_ENV_VAR`].
    ///
    /// # Errors
    /// [`Error::Usage`] if it is neither a size nor `off`.
    pub fn from_environment() -> Result<Self> {
        std::env::var(JOB_LOG_ENV_VAR)
            .map_or(Ok(LogRetention::SizeLimit(LOG_BYTES_MAX_DEFAULT)), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Result<Self> {
        match text.trim() {
            "" => Ok(LogRetention::SizeLimit(LOG_BYTES_MAX_DEFAULT)),
            "off" => Ok(LogRetention::Off),
            size => match parse_size(size) {
                Some(MemorySize::Bytes(bytes)) if bytes >= LOG_BYTES_MAX_MIN => {
                    Ok(LogRetention::SizeLimit(bytes))
                }
                _ => Err(Error::usage_with_hint(
                    format!("{JOB_LOG_ENV_VAR}: `{size}` is not a size of the job log"),
                    format!(
                        "it is `off`, or a size such as `1G`, at least {}",
                        format_binary_bytes(LOG_BYTES_MAX_MIN)
                    ),
                )),
            },
        }
    }
}

/// The job log of a state folder.
#[derive(Debug, Clone)]
pub struct JobLog {
    folder: PathBuf,
    limit_bytes: u64,
}

impl JobLog {
    /// Returns the log of a state folder; the first record creates its folder.
    pub fn new(home: &StateFolder, limit_bytes: u64) -> Self {
        JobLog { folder: home.path().join("jobs"), limit_bytes }
    }

    /// Returns the folder of the segments.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Appends a record.
    ///
    /// # Errors
    /// [`Error::Io`]; readers skip the part of the record written by then.
    pub fn append(&self, record: &RunRecord) -> Result<()> {
        let bytes = record
            .encode()
            .ok_or_else(|| Error::Internal("a job log's record is no JSON".to_owned()))?;
        tidemill_base::state_folder::create_private_folders(&self.folder)
            .map_err(|e| Error::from_io("create the folder", &self.folder, e))?;
        let segment_bytes = self.limit_bytes / SEGMENT_COUNT;
        let segments = self.list_segments()?;
        let mut number = segments.last().map_or(1, |(number, _)| *number);
        let size =
            |number| std::fs::metadata(self.segment_path(number)).map_or(0, |data| data.len());
        let held = size(number);
        if held > 0 && held.saturating_add(bytes.len() as u64) > segment_bytes {
            number += 1;
            self.remove_oldest_segments(&segments, segment_bytes);
        }
        let path = self.segment_path(number);
        let mut file = File::options()
            .append(true)
            .create(true)
            // The runs of a user are private.
            .mode(0o600)
            .open(&path)
            .map_err(|e| Error::from_io("append to", &path, e))?;
        let failed = |e| Error::from_io("append to", &path, e);
        // A single write: the rest of a record after another process's record would be worse than a torn one.
        let written = file.write(&bytes).map_err(failed)?;
        if written < bytes.len() {
            return Err(failed(std::io::Error::from(std::io::ErrorKind::StorageFull)));
        }
        Ok(())
    }

    /// Removes the oldest segments so that a new one fits the limit.
    fn remove_oldest_segments(&self, segments: &[(u64, PathBuf)], segment_bytes: u64) {
        let sizes: Vec<u64> = segments
            .iter()
            .map(|(_, path)| std::fs::metadata(path).map_or(0, |data| data.len()))
            .collect();
        let mut total = sizes.iter().fold(segment_bytes, |sum, size| sum.saturating_add(*size));
        // The newest segment stays, whatever its size.
        let old = segments.iter().zip(&sizes).take(segments.len().saturating_sub(1));
        for ((_, path), size) in old {
            if total <= self.limit_bytes {
                break;
            }
            // Another process may have removed it already; after a failure, the next process tries again.
            let _ = std::fs::remove_file(path);
            total -= size;
        }
    }

    fn segment_path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:08}.log"))
    }

    /// Lists the segments, oldest first.
    fn list_segments(&self) -> Result<Vec<(u64, PathBuf)>> {
        let unreadable = |e| Error::from_io("list", &self.folder, e);
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(unreadable(e)),
        };
        let mut segments = Vec::new();
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // A file such as `4.log` or `notes.log` does not belong to the log.
            let digits = name.strip_suffix(".log").filter(|digits| digits.len() >= 8);
            let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            if let Some(number) = digits.and_then(|digits| digits.parse().ok())
                && number < u64::MAX
            {
                segments.push((number, path));
            }
        }
        segments.sort();
        Ok(segments)
    }

    /// Returns a reader of the records from newest to oldest.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be listed.
    pub fn read_backwards(&self) -> Result<ReverseLogReader> {
        Ok(ReverseLogReader {
            remaining_segments: self.list_segments()?,
            open_segment: None,
            bytes_read: 0,
            damage: DamagedRecords::default(),
        })
    }
}

/// The torn or damaged records that a reader skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DamagedRecords {
    /// Number of lines.
    pub count: u64,
    /// The first few locations: the segment, and the offset of the line in it.
    pub first_locations: Vec<(PathBuf, u64)>,
}

impl DamagedRecords {
    const LOCATIONS_MAX: usize = 3;

    fn add_location(&mut self, path: &Path, offset: u64) {
        self.count += 1;
        if self.first_locations.len() < Self::LOCATIONS_MAX {
            self.first_locations.push((path.to_owned(), offset));
        }
    }

    /// Returns a warning for the user if a record is damaged.
    pub fn warning(&self) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        let s = if self.count == 1 { " was" } else { "s were" };
        let mut text = format!("{} torn or damaged record{s} skipped in the job log:", self.count);
        for (path, offset) in &self.first_locations {
            text.push_str(&format!(" `{}` at byte {offset},", path.display()));
        }
        text.pop();
        if self.count > self.first_locations.len() as u64 {
            text.push_str(", …");
        }
        Some(text)
    }
}

/// A segment that is being read from its end.
struct OpenSegment {
    path: PathBuf,
    file: File,
    /// Offset of the buffer in the file.
    buffer_offset: u64,
    /// Bytes read but not returned yet.
    buffer: Vec<u8>,
    /// True if the buffer ends within a line that is too long for a record.
    is_overlong: bool,
}

/// Reads the job log backwards.
pub struct ReverseLogReader {
    /// Segments not read yet, oldest first.
    remaining_segments: Vec<(u64, PathBuf)>,
    open_segment: Option<OpenSegment>,
    bytes_read: u64,
    damage: DamagedRecords,
}

impl ReverseLogReader {
    /// Returns the number of bytes read from the log's files.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Returns the damaged records skipped so far.
    pub fn damage(&self) -> &DamagedRecords {
        &self.damage
    }

    /// Returns the next older record whose JSON satisfies `wanted`, a check that needs no parsing; `None` at
    /// the start of the log.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for a record of a newer version.
    pub fn next_matching(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Result<Option<RunRecord>> {
        while let Some((line, offset)) = self.previous_line()? {
            let path = self.open_segment.as_ref().map_or(Path::new(""), |open| &open.path);
            match run_record::parse_line(&line) {
                LogLine::Json(json) if !wanted(json) => {}
                LogLine::Json(json) => match serde_json::from_slice(json) {
                    Ok(record) => return Ok(Some(record)),
                    Err(_) => self.damage.add_location(path, offset),
                },
                LogLine::OtherVersion(version) => {
                    return Err(Error::Corrupt {
                        path: path.display().to_string(),
                        offset,
                        reason: format!(
                            "it holds a record of version {version}; this release reads {}",
                            run_record::RECORD_VERSION
                        ),
                        hint: Some("use a newer tidemill".to_owned()),
                    });
                }
                LogLine::Damaged => self.damage.add_location(path, offset),
            }
        }
        Ok(None)
    }

    /// Returns the next older line that is not empty, and its offset.
    fn previous_line(&mut self) -> Result<Option<(Vec<u8>, u64)>> {
        loop {
            let Some(open) = &mut self.open_segment else {
                let Some((_, path)) = self.remaining_segments.pop() else { return Ok(None) };
                let file = match File::open(&path) {
                    Ok(file) => file,
                    // Another process has removed the oldest segment.
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(Error::from_io("read", &path, e)),
                };
                let start = file.metadata().map_err(|e| Error::from_io("read", &path, e))?.len();
                self.open_segment = Some(OpenSegment {
                    path,
                    file,
                    buffer_offset: start,
                    buffer: Vec::new(),
                    is_overlong: false,
                });
                continue;
            };
            if let Some(at) = memchr::memrchr(b'\n', &open.buffer) {
                let line = open.buffer.split_off(at + 1);
                open.buffer.truncate(at);
                let offset = open.buffer_offset + at as u64 + 1;
                if std::mem::take(&mut open.is_overlong) {
                    self.damage.add_location(&open.path, offset);
                } else if !line.is_empty() {
                    return Ok(Some((line, offset)));
                }
                continue;
            }
            if open.buffer.len() > LINE_BYTES_MAX {
                open.is_overlong = true;
                open.buffer.clear();
            }
            if open.buffer_offset == 0 {
                let line = std::mem::take(&mut open.buffer);
                if open.is_overlong {
                    self.damage.add_location(&open.path, 0);
                } else if !line.is_empty() {
                    // The next call finds nothing more and closes the segment.
                    return Ok(Some((line, 0)));
                }
                self.open_segment = None;
                continue;
            }
            let count =
                usize::try_from(open.buffer_offset).unwrap_or(usize::MAX).min(READ_BLOCK_BYTES);
            let mut block = vec![0; count];
            open.buffer_offset -= count as u64;
            open.file
                .read_exact_at(&mut block, open.buffer_offset)
                .map_err(|e| Error::from_io("read", &open.path, e))?;
            self.bytes_read += count as u64;
            block.extend_from_slice(&open.buffer);
            open.buffer = block;
        }
    }
}

impl Iterator for ReverseLogReader {
    type Item = Result<RunRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_matching(|_| true).transpose()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::run_record::tests::sample_record;

    /// Returns a log in a folder of its own.
    pub(crate) fn test_log(folder: &Path, limit_bytes: u64) -> JobLog {
        JobLog { folder: folder.join("jobs"), limit_bytes }
    }

    fn id(number: u64) -> String {
        format!("20261120T212055-{number:08x}")
    }

    fn ids(log: &JobLog) -> (Vec<String>, DamagedRecords) {
        let mut back = log.read_backwards().unwrap();
        let ids = back.by_ref().map(|record| record.unwrap().id).collect();
        (ids, back.damage().clone())
    }

    fn segments(log: &JobLog) -> Vec<String> {
        let segments = log.list_segments().unwrap().into_iter();
        segments.map(|(_, path)| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn missing_log_is_empty() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(
            ids(&test_log(temp.path(), LOG_BYTES_MAX_DEFAULT)),
            (vec![], DamagedRecords::default())
        );
    }

    #[test]
    fn the_newest_comes_first_across_segments_and_the_oldest_are_dropped() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), 16 * 4000);
        let one = sample_record(&id(0), 0).encode().unwrap().len() as u64;
        let per_segment = 4000 / one;
        for number in 0..1000 {
            log.append(&sample_record(&id(number), 0)).unwrap();
        }
        let (found, damage) = ids(&log);
        assert_eq!(damage.count, 0);
        let kept = found.len() as u64;
        assert!(kept >= 15 * per_segment && kept < log.limit_bytes / one, "{kept}");
        let expected: Vec<String> = (0..1000).rev().take(found.len()).map(id).collect();
        assert_eq!(found, expected);
        assert!(segments(&log).len() >= 16);
        let total: u64 = log
            .list_segments()
            .unwrap()
            .iter()
            .map(|(_, path)| path.metadata().unwrap().len())
            .sum();
        assert!(total <= log.limit_bytes);
        let mode = log.list_segments().unwrap()[0].1.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_torn_record_is_skipped_with_a_warning_and_not_glued_to_the_next() {
        let temp = tempfile::tempdir().unwrap();
        let torn = sample_record(&id(1), 0).encode().unwrap();
        for end in [1, 5, 20, 100, torn.len() - 2] {
            let log = test_log(&temp.path().join(end.to_string()), LOG_BYTES_MAX_DEFAULT);
            log.append(&sample_record(&id(0), 0)).unwrap();
            let path = log.segment_path(1);
            let before = fs::metadata(&path).unwrap().len();
            fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .unwrap()
                .write_all(&torn[..end])
                .unwrap();
            log.append(&sample_record(&id(2), 0)).unwrap();
            let (found, damage) = ids(&log);
            assert_eq!(found, [id(2), id(0)], "torn after {end}");
            if end == 1 {
                // A single line feed is not damage.
                assert_eq!(damage.warning(), None);
            } else {
                let place = format!("`{}` at byte {}", path.display(), before + 1);
                let expected =
                    format!("1 torn or damaged record was skipped in the job log: {place}");
                assert_eq!(damage.warning(), Some(expected));
            }
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
        log.append(&sample_record(&id(0), 0)).unwrap();
        let covered = "2 {}";
        let line =
            format!("\ntidemill-job {:08x} {covered}\n", crc32fast::hash(covered.as_bytes()));
        let path = log.segment_path(1);
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
        let error = log.read_backwards().unwrap().next().unwrap().unwrap_err();
        let error = tidemill_base::Error::from(error).to_string();
        assert!(error.starts_with(&format!("`{}` is damaged", path.display())), "{error}");
        assert!(error.contains("version 2; this release reads 1\nhint: use a newer"), "{error}");
    }

    #[test]
    fn overlong_line_is_damage_and_its_neighbours_are_read() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
        log.append(&sample_record(&id(0), 0)).unwrap();
        let path = log.segment_path(1);
        let noise = vec![b'x'; 3 * LINE_BYTES_MAX];
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&noise).unwrap();
        log.append(&sample_record(&id(1), 0)).unwrap();
        let (found, damage) = ids(&log);
        assert_eq!((found, damage.count), (vec![id(1), id(0)], 1));
        // Also at the very start of a segment.
        fs::write(&path, &noise).unwrap();
        let (found, damage) = ids(&log);
        assert_eq!((found, damage.count), (vec![], 1));
    }

    #[test]
    fn last_runs_of_a_large_log_cost_one_block() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
        // A segment of 40,000 runs under 25 names reads like a million runs.
        let bytes: Vec<u8> = (0..40_000)
            .flat_map(|number| sample_record(&id(number), 0).encode().unwrap())
            .collect();
        fs::create_dir_all(log.folder()).unwrap();
        fs::write(log.segment_path(1), &bytes).unwrap();
        for number in 2..=25 {
            fs::hard_link(log.segment_path(1), log.segment_path(number)).unwrap();
        }
        let mut back = log.read_backwards().unwrap();
        let found: Vec<String> = back.by_ref().take(20).map(|record| record.unwrap().id).collect();
        assert_eq!(found, (39_980..40_000).rev().map(id).collect::<Vec<_>>());
        assert_eq!(back.bytes_read(), READ_BLOCK_BYTES as u64);
    }

    #[test]
    fn threads_that_append_at_once_lose_nothing_even_at_the_end_of_a_segment() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), 16 << 14);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..25 {
                        log.append(&sample_record(&id(thread * 25 + number), 0)).unwrap();
                    }
                });
            }
        });
        let (mut found, damage) = ids(&log);
        found.sort();
        assert_eq!(found, (0..200).map(id).collect::<Vec<_>>());
        assert_eq!(damage.count, 0);
        assert!(segments(&log).len() > 3);
    }

    #[test]
    fn the_limit_is_a_size_or_off() {
        for (text, expected) in [
            ("", Some(LogRetention::SizeLimit(LOG_BYTES_MAX_DEFAULT))),
            ("off", Some(LogRetention::Off)),
            ("1G", Some(LogRetention::SizeLimit(1 << 30))),
            ("10", None),
            ("50%", None),
            ("on", None),
        ] {
            assert_eq!(LogRetention::parse(text).ok(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn records_are_found_between_arbitrary_bytes(
            noise in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..20),
        ) {
            let temp = tempfile::tempdir().unwrap();
            let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
            fs::create_dir_all(log.folder()).unwrap();
            let mut bytes = Vec::new();
            for (number, noise) in (0..).zip(&noise) {
                bytes.extend_from_slice(noise);
                bytes.extend(sample_record(&id(number), 0).encode().unwrap());
            }
            fs::write(log.segment_path(1), bytes).unwrap();
            let (found, _) = ids(&log);
            let count = noise.len() as u64;
            prop_assert_eq!(found, (0..count).rev().map(id).collect::<Vec<_>>());
        }
    }
}
