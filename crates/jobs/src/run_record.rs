//! One run in the job log, and the line that holds it.
//!
//! ```text
//!  LF │ tidemill-job │ SP │ crc32, 8 hex digits │ SP │ version SP JSON object │ LF
//!                           └─────── covers ───────────┘
//! ```
//!
//! A record is one line of text, so that readers find it from either side. Line feeds surround it, so that it
//! is a line of its own whatever precedes it, also after a torn record. The checksum covers the version: a
//! flipped bit cannot make a record of this version look like one of another. `docs/formats/job-log.md`
//! describes every byte.

use serde::{Deserialize, Serialize};
use tidemill_base::redaction;

/// The version of records that this release writes and reads.
pub(crate) const RECORD_VERSION: u32 = 1;

/// The start of every record's line, in every version.
const RECORD_MAGIC: &[u8] = b"tidemill-job ";

/// Maximum size of a line in bytes. A longer line is damaged.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// Maximum size of the text of one field in bytes; a longer one is truncated.
const FIELD_BYTES_MAX: usize = 8 << 10;

/// Maximum number of entries of a list: sources, words of a command.
const LIST_ITEMS_MAX: usize = 64;
/// Maximum number of workers recorded for a run.
const WORKERS_MAX: usize = 256;
/// Maximum number of busy spans of all workers together.
const BUSY_SPANS_MAX: usize = 2048;

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// The result covers the whole input.
    Done,
    /// A part of the input was left out, as allowed.
    Incomplete,
    /// An error ended it.
    Failed,
    /// The user interrupted it, or dropped its result.
    Interrupted,
}

impl RunOutcome {
    /// Returns the name of the outcome.
    pub fn name(self) -> &'static str {
        match self {
            RunOutcome::Done => "done",
            RunOutcome::Incomplete => "incomplete",
            RunOutcome::Failed => "failed",
            RunOutcome::Interrupted => "interrupted",
        }
    }
}

/// The known inputs and outputs of a step of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunStep {
    /// `map`, `tables`, `merge`, `finish`, `plan` (the engine path) or `sink`.
    pub name: String,
    /// Stored bytes read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// Rows read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_in: Option<u64>,
    /// Bytes written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Rows returned; groups in the case of tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_out: Option<u64>,
    /// Processor time in microseconds, if it is measured separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
}

/// The work of a worker process on another machine for a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWorker {
    /// Its machine and process.
    pub name: String,
    /// Number of completed tasks.
    pub tasks: u64,
    /// Number of tasks lost when the worker disappeared.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// Stored bytes of the completed tasks.
    pub bytes_in: u64,
    /// Processor time of the completed tasks in microseconds.
    pub cpu_us: u64,
    /// Start and end of busy spans, in milliseconds since the start of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy_ms: Vec<(u64, u64)>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A run in the job log. Times are in microseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run's name.
    pub id: String,
    /// The job's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `query`, `run`, `merge` or `read_text`.
    pub verb: String,
    /// `command line` or `python`.
    pub via: String,
    /// The tidemill release.
    pub version: String,
    /// The map: SQL as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapper: Option<String>,
    /// The tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reducer: Option<String>,
    /// Files, patterns and URLs read, if they are named outside of the SQL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Destination of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The command line of the process, without credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Start time in microseconds since 1970, UTC.
    pub start_us: u64,
    /// Elapsed time.
    pub wall_us: u64,
    /// Processor time in user code.
    pub cpu_user_us: u64,
    /// Processor time in the system.
    pub cpu_system_us: u64,
    /// Peak memory of the process during the run.
    pub memory_peak_bytes: u64,
    /// Memory over time: the bytes that the process held, multiplied by seconds.
    pub memory_byte_seconds: u64,
    /// The memory budget.
    pub memory_limit_bytes: u64,
    /// Threads that read and map.
    pub threads: u64,
    /// Execution path: `partial tables`, `rows` or `datafusion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The steps in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<RunStep>,
    /// Worker processes that read its splits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<RunWorker>,
    /// Number of splits read.
    #[serde(default)]
    pub splits_done: u64,
    /// Number of splits of all sources.
    #[serde(default)]
    pub splits_total: u64,
    /// Number of rejected records.
    #[serde(default)]
    pub rejected: u64,
    /// Bytes of tables spilled to disk.
    #[serde(default)]
    pub spilled_bytes: u64,
    /// The outcome.
    pub outcome: RunOutcome,
    /// The first line of the error that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The reason why reading stopped before the end of the input, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl RunRecord {
    /// Returns the total processor time.
    pub fn cpu_us(&self) -> u64 {
        self.cpu_user_us.saturating_add(self.cpu_system_us)
    }

    /// Returns the end time in microseconds since 1970.
    pub fn end_us(&self) -> u64 {
        self.start_us.saturating_add(self.wall_us)
    }

    /// Returns the stored bytes read.
    pub fn bytes_in(&self) -> Option<u64> {
        self.steps.first().and_then(|step| step.bytes_in)
    }

    /// Returns the number of records read.
    pub fn rows_in(&self) -> Option<u64> {
        self.steps.first().and_then(|step| step.rows_in)
    }

    /// Returns the bytes written.
    pub fn bytes_out(&self) -> Option<u64> {
        self.steps.last().and_then(|step| step.bytes_out)
    }

    /// Returns the number of rows returned.
    pub fn rows_out(&self) -> Option<u64> {
        self.steps.last().and_then(|step| step.rows_out)
    }

    /// Truncates long texts and lists, and redacts secrets. Required before a record is written.
    #[must_use]
    pub fn redact_and_truncate(mut self) -> Self {
        let texts = [
            &mut self.name,
            &mut self.mapper,
            &mut self.reducer,
            &mut self.output,
            &mut self.error,
            &mut self.stopped,
        ];
        for text in texts.into_iter().flatten() {
            *text = truncate_text(&redaction::redact_text(text), FIELD_BYTES_MAX);
        }
        self.command = redaction::redact_command_line(&self.command);
        self.workers.truncate(WORKERS_MAX);
        let spans_max = (BUSY_SPANS_MAX / self.workers.len().max(1)).max(1);
        for worker in &mut self.workers {
            worker.name = truncate_text(&redaction::redact_text(&worker.name), FIELD_BYTES_MAX / 8);
            while worker.busy_ms.len() > spans_max {
                let pairs = worker.busy_ms.chunks(2);
                worker.busy_ms =
                    pairs.filter_map(|it| Some((it.first()?.0, it.last()?.1))).collect();
            }
        }
        for list in [&mut self.sources, &mut self.command] {
            let more = list.len().saturating_sub(LIST_ITEMS_MAX);
            list.truncate(LIST_ITEMS_MAX);
            if more > 0 {
                list.push(format!("… and {more} more"));
            }
        }
        for source in &mut self.sources {
            *source = truncate_text(&redaction::redact_text(source), FIELD_BYTES_MAX / 8);
        }
        for word in &mut self.command {
            *word = truncate_text(word, FIELD_BYTES_MAX / 8);
        }
        self
    }

    /// Returns the bytes to append including line feeds, or `None` if the record cannot be encoded.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut covered = format!("{RECORD_VERSION} ").into_bytes();
        serde_json::to_writer(&mut covered, self).ok()?;
        Some(frame_line(&covered))
    }
}

/// Builds a line from the bytes that its checksum covers.
fn frame_line(covered: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(RECORD_MAGIC.len() + covered.len() + 11);
    line.push(b'\n');
    line.extend_from_slice(RECORD_MAGIC);
    line.extend_from_slice(format!("{:08x} ", crc32fast::hash(covered)).as_bytes());
    line.extend_from_slice(covered);
    line.push(b'\n');
    line
}

/// The content of a line of the log.
#[derive(Debug, PartialEq)]
pub(crate) enum LogLine<'a> {
    /// A record of this version as JSON.
    Json(&'a [u8]),
    /// A whole record of another version.
    OtherVersion(u64),
    /// A torn or damaged record.
    Damaged,
}

/// Parses a line without its line feeds.
pub(crate) fn parse_line(line: &[u8]) -> LogLine<'_> {
    let whole = || {
        let rest = line.strip_prefix(RECORD_MAGIC)?;
        let (sum, rest) = rest.split_at_checked(8)?;
        let covered = rest.strip_prefix(b" ")?;
        // `from_str_radix` would accept a sign or capital letters, which no release writes.
        let hex = sum.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
        if !hex || crc32fast::hash(covered) != sum {
            return None;
        }
        let space = covered.iter().position(|byte| *byte == b' ')?;
        let version: u64 = std::str::from_utf8(&covered[..space]).ok()?.parse().ok()?;
        Some((version, &covered[space + 1..]))
    };
    match whole() {
        Some((version, json)) if version == u64::from(RECORD_VERSION) => LogLine::Json(json),
        Some((version, _)) => LogLine::OtherVersion(version),
        None => LogLine::Damaged,
    }
}

/// Truncates a text to about `limit` bytes. The length and the checksum of the removed part are appended, so
/// that two long texts that differ stay different.
fn truncate_text(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let rest = &text[end..];
    format!("{}… (+{} bytes, {:08x})", &text[..end], rest.len(), crc32fast::hash(rest.as_bytes()))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a record of a run that took a second from `start_us`.
    pub(crate) fn sample_record(id: &str, start_us: u64) -> RunRecord {
        RunRecord {
            id: id.to_owned(),
            name: Some("visitors".to_owned()),
            verb: "run".to_owned(),
            via: "command line".to_owned(),
            version: "0.1.0".to_owned(),
            mapper: Some("SELECT day, user_id FROM source".to_owned()),
            reducer: Some("by day: visitors = unique(user_id)".to_owned()),
            sources: vec!["logs/*.json".to_owned()],
            output: Some("out/{day}.csv".to_owned()),
            command: vec!["tidemill".to_owned(), "run".to_owned(), "job.toml".to_owned()],
            start_us,
            wall_us: 1_000_000,
            cpu_user_us: 1_500_000,
            cpu_system_us: 100_000,
            memory_peak_bytes: 50_000_000,
            memory_byte_seconds: 40_000_000,
            memory_limit_bytes: 1 << 30,
            threads: 2,
            path: Some("partial tables".to_owned()),
            steps: vec![
                RunStep {
                    name: "map".to_owned(),
                    bytes_in: Some(1_000_000),
                    rows_in: Some(10_000),
                    rows_out: Some(9_000),
                    cpu_us: Some(1_000_000),
                    ..RunStep::default()
                },
                RunStep {
                    name: "tables".to_owned(),
                    rows_in: Some(9_000),
                    rows_out: Some(30),
                    cpu_us: Some(400_000),
                    ..RunStep::default()
                },
                RunStep {
                    name: "sink".to_owned(),
                    rows_in: Some(30),
                    rows_out: Some(30),
                    bytes_out: Some(600),
                    ..RunStep::default()
                },
            ],
            workers: Vec::new(),
            splits_done: 2,
            splits_total: 2,
            rejected: 0,
            spilled_bytes: 0,
            outcome: RunOutcome::Done,
            error: None,
            stopped: None,
        }
    }

    fn decode_line(bytes: &[u8]) -> Option<RunRecord> {
        let line = bytes.strip_prefix(b"\n")?.strip_suffix(b"\n")?;
        match parse_line(line) {
            LogLine::Json(json) => serde_json::from_slice(json).ok(),
            _ => None,
        }
    }

    proptest! {
        #[test]
        fn a_record_reads_back_as_it_was_written_on_one_line(
            id in ".*",
            name in proptest::option::of(".*"),
            mapper in proptest::option::of("(?s).*"),
            error in proptest::option::of("(?s).*"),
            command in proptest::collection::vec("(?s).*", 0..5),
            numbers in proptest::collection::vec(any::<u64>(), 8),
            counts in proptest::collection::vec(proptest::option::of(any::<u64>()), 5),
        ) {
            let step = RunStep {
                name: "map".to_owned(),
                bytes_in: counts[0],
                rows_in: counts[1],
                bytes_out: counts[2],
                rows_out: counts[3],
                cpu_us: counts[4],
            };
            let record = RunRecord {
                id,
                name,
                mapper,
                error,
                command,
                start_us: numbers[0],
                wall_us: numbers[1],
                cpu_user_us: numbers[2],
                cpu_system_us: numbers[3],
                memory_byte_seconds: numbers[4],
                splits_done: numbers[5],
                rejected: numbers[6],
                spilled_bytes: numbers[7],
                steps: vec![step],
                ..sample_record("", 0)
            };
            let bytes = record.encode().unwrap();
            prop_assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 2);
            prop_assert_eq!(decode_line(&bytes), Some(record.clone()));
            // The prepared record fits a line, however long its texts are.
            prop_assert!(record.redact_and_truncate().encode().unwrap().len() < LINE_BYTES_MAX);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            parse_line(&bytes);
            parse_line(&[RECORD_MAGIC, &bytes].concat());
        }
    }

    #[test]
    fn a_torn_line_or_a_flipped_bit_is_damage_and_never_another_record() {
        let bytes = sample_record("20261120T212055-1a2b3c4d", 7).encode().unwrap();
        let line = &bytes[1..bytes.len() - 1];
        for end in 0..line.len() {
            assert_eq!(parse_line(&line[..end]), LogLine::Damaged, "cut at {end}");
        }
        for position in 0..line.len() {
            for bit in 0..8 {
                let mut flipped = line.to_vec();
                flipped[position] ^= 1 << bit;
                assert_eq!(parse_line(&flipped), LogLine::Damaged, "bit {bit} of byte {position}");
            }
        }
    }

    #[test]
    fn record_of_another_version_is_recognized() {
        let line = frame_line(b"2 anything");
        assert_eq!(parse_line(line.trim_ascii()), LogLine::OtherVersion(2));
    }

    #[test]
    fn unknown_fields_of_a_later_release_are_ignored() {
        let record = sample_record("20261120T212055-1a2b3c4d", 7);
        let mut json = serde_json::to_value(&record).unwrap();
        json["weather"] = "rain".into();
        json["steps"][0]["mood"] = 1.into();
        let covered = format!("1 {json}");
        assert_eq!(decode_line(&frame_line(covered.as_bytes())), Some(record));
    }

    #[test]
    fn truncated_texts_stay_distinct() {
        let long = |last: &str| RunRecord {
            mapper: Some("é".repeat(100_000) + last),
            sources: vec!["x".to_owned(); 1000],
            ..sample_record("", 0)
        };
        let (one, other) = (long("a").redact_and_truncate(), long("b").redact_and_truncate());
        assert_ne!(one.mapper, other.mapper);
        assert!(one.mapper.as_ref().unwrap().len() < FIELD_BYTES_MAX + 64);
        assert_eq!(one.sources.last().unwrap(), "… and 936 more");
    }
}
