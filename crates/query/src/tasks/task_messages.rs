//! The messages of tasks and their results.
//!
//! ```text
//!   "TIDETASK"  section 'T' │ JSON: files, and splits of them: consecutive or sampled ones
//!   or          section 'M' │ JSON: ranges of tables in scratch files to merge
//!   or          section 'L' │ JSON: ranges of finished groups whose rows are to be shuffled to their writers
//!   or          section 'W' │ JSON: rows in scratch files whose output files are to be written
//!
//!   "TIDEPIEC"  section 'R' │ JSON: the report on each split
//!               section 'V' │ JSON: the paths of the objects that the rows belong to (behind 'F')
//!               section 'P' │ JSON: the origin of the rows that follow                  (before each batch of rows)
//!               section 'G' │ Arrow: keys and states, as in partial tables, or rows     (any number)
//!   or          section 'F' │ JSON: the scratch file with them, and the offset of each hash range
//!   or          section 'D' │ JSON: a merged range, and its scratch file                (any number)
//!               section 'I' │ sections 'G': its answers, if it has no file
//!   or          section 'L' │ JSON: the scratch files of shuffled rows of groups
//!   or          section 'N' │ JSON: the files that were written
//!               section 'O' │ a small object                                         (any number)
//!   or          section 'X' │ JSON: an error
//! ```

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use arrow::array::RecordBatch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidemill_base::error::{Error, Result};
use tidemill_sink::PathValues;
use tidemill_source::{FileDescription, SplitDescription, SplitStatsDescription};
use tidemill_tables::merging::chunk_spills::slice_batch;
use tidemill_tables::merging::sections::{self, SectionReader};

use super::TaskTime;
use super::cluster_job::{append_section, corrupt_message_error, encode_json};
use super::row_shuffle::{ShuffleGroupsTask, ShuffledRange, WriteFilesTask, WrittenFiles};
use super::serialized_error::SerializedError;
use super::shuffle_files::{ReduceTask, ReducedRange, ShuffleFile};

const TASK_MAGIC: &[u8; 8] = b"TIDETASK";
const RESULT_MAGIC: &[u8; 8] = b"TIDEPIEC";

const READ_TASK_SECTION: u8 = b'T';
const READ_REPORT_SECTION: u8 = b'R';
const ROWS_ORIGIN_SECTION: u8 = b'P';
pub(super) const GROUPS_SECTION: u8 = b'G';
const REDUCE_TASK_SECTION: u8 = b'M';
const SHUFFLE_FILE_SECTION: u8 = b'F';
const REDUCED_RANGE_SECTION: u8 = b'D';
const INLINE_GROUPS_SECTION: u8 = b'I';
const SHUFFLE_GROUPS_SECTION: u8 = b'L';
const WRITE_FILES_SECTION: u8 = b'W';
const WRITTEN_FILES_SECTION: u8 = b'N';
const OBJECT_CONTENT_SECTION: u8 = b'O';
const OBJECT_PATHS_SECTION: u8 = b'V';
const ERROR_SECTION: u8 = b'X';

/// A task that reads splits, consecutive or sampled ones, and the files that they belong to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadTask {
    pub files: Vec<FileDescription>,
    pub splits: Vec<SplitDescription>,
    /// For sampled splits: time without new data after which the task ends without the stalled ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ms: Option<u64>,
}

impl ReadTask {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        encode_task_message(READ_TASK_SECTION, self)
    }
}

impl ReduceTask {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        encode_task_message(REDUCE_TASK_SECTION, self)
    }
}

impl ShuffleGroupsTask {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        encode_task_message(SHUFFLE_GROUPS_SECTION, self)
    }
}

impl WriteFilesTask {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        encode_task_message(WRITE_FILES_SECTION, self)
    }
}

/// A task as a worker receives it.
pub(super) enum WorkerTask {
    /// Reads splits.
    ReadSplits(ReadTask),
    /// Merges ranges of tables.
    ReduceRanges(ReduceTask),
    /// Shuffles rows of finished groups.
    ShuffleGroups(ShuffleGroupsTask),
    /// Writes output files.
    WriteFiles(WriteFilesTask),
}

impl WorkerTask {
    pub(super) fn decode(bytes: &[u8]) -> Result<WorkerTask> {
        let rest =
            bytes.strip_prefix(TASK_MAGIC).ok_or_else(|| corrupt_message_error("it is no task"))?;
        let Some((kind, content)) =
            SectionReader::new(rest).next_section().map_err(corrupt_message_error)?
        else {
            return Err(corrupt_message_error("a task says nothing"));
        };
        let (kind, content) = decompress_section(kind, content)?;
        match kind {
            READ_TASK_SECTION => decode_json(&content).map(WorkerTask::ReadSplits),
            REDUCE_TASK_SECTION => decode_json(&content).map(WorkerTask::ReduceRanges),
            SHUFFLE_GROUPS_SECTION => decode_json(&content).map(WorkerTask::ShuffleGroups),
            WRITE_FILES_SECTION => decode_json(&content).map(WorkerTask::WriteFiles),
            _ => Err(corrupt_message_error("a section of an unknown kind")),
        }
    }
}

/// Maximum length of a section that is not compressed. Compression pays because the names of files have much
/// in common.
const UNCOMPRESSED_BYTES_MAX: usize = 2048;
/// Compression level of zstd: higher ones are not worth their time.
const COMPRESSION_LEVEL: i32 = 1;
/// Maximum length of a decompressed section; a longer one is invalid.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

fn encode_task_message(kind: u8, of: &impl Serialize) -> Result<Vec<u8>> {
    let mut out = TASK_MAGIC.to_vec();
    append_compressed_section(&mut out, kind, &encode_json(of)?)?;
    Ok(out)
}

/// Appends a section. A long one is compressed and preceded by its length; its kind is then a small letter.
fn append_compressed_section(out: &mut Vec<u8>, kind: u8, content: &[u8]) -> Result<()> {
    if content.len() <= UNCOMPRESSED_BYTES_MAX {
        return append_section(out, kind, content);
    }
    let packed = zstd::bulk::compress(content, COMPRESSION_LEVEL);
    let packed = packed.map_err(|e| Error::io("compress", "a worker's message", e))?;
    let mut section = (content.len() as u64).to_le_bytes().to_vec();
    section.extend_from_slice(&packed);
    append_section(out, kind.to_ascii_lowercase(), &section)
}

/// Returns a section's kind and content, decompressed if needed.
fn decompress_section(kind: u8, content: &[u8]) -> Result<(u8, Cow<'_, [u8]>)> {
    if !kind.is_ascii_lowercase() {
        return Ok((kind, Cow::Borrowed(content)));
    }
    let unfit = || corrupt_message_error("a section that cannot be decompressed");
    let (length, packed) = content.split_first_chunk().ok_or_else(unfit)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok();
    let length = length.filter(|length| *length <= DECOMPRESSED_BYTES_MAX).ok_or_else(unfit)?;
    let content = zstd::bulk::decompress(packed, length).map_err(|_| unfit())?;
    if content.len() != length {
        return Err(unfit());
    }
    Ok((kind.to_ascii_uppercase(), Cow::Owned(content)))
}

/// A worker's report on a split that it has read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SplitReport {
    /// The split's index within the task.
    pub place: usize,
    /// True if the split's start was known and not guessed.
    pub is_exact: bool,
    /// Rows that left the map.
    pub mapped_rows: u64,
    pub stats: SplitStatsDescription,
}

/// The origin of a batch of rows.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RowsOrigin {
    /// The split's index within the task.
    pub place: usize,
    /// Rows read from the split up to this batch.
    pub rows: u64,
    /// Records rejected in the split up to this batch.
    pub rejected: u64,
}

/// The report on all splits of a task, and the time that they took.
#[derive(Debug, Serialize, Deserialize)]
struct ReadReport<T> {
    splits: T,
    cpu_us: u64,
    wall_us: u64,
    #[serde(default, skip_serializing_if = "UnreadSplits::is_empty")]
    not_read: UnreadSplits,
}

/// The sampled splits that a task did not read, by their index within the task.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct UnreadSplits {
    /// Splits that failed, with the error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<(usize, SerializedError)>,
    /// Splits that stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalled: Vec<usize>,
    /// Number of splits found to begin at another offset than they seemed to.
    #[serde(default)]
    pub wrong_starts: u64,
    /// True if the task stopped because all wanted rows were found. Splits that the result does not mention
    /// are not missing then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut_short: bool,
}

impl UnreadSplits {
    fn is_empty(&self) -> bool {
        self.failed.is_empty()
            && self.stalled.is_empty()
            && self.wrong_starts == 0
            && !self.is_cut_short
    }
}

/// Encodes the result of a task.
#[derive(Default)]
pub(super) struct TaskResultWriter {
    sections: Vec<u8>,
}

impl TaskResultWriter {
    /// Appends rows of a split, with their origin.
    pub(super) fn write_rows(&mut self, place: RowsOrigin, rows: &RecordBatch) -> Result<()> {
        append_section(&mut self.sections, ROWS_ORIGIN_SECTION, &encode_json(&place)?)?;
        append_section(&mut self.sections, GROUPS_SECTION, &sections::encode_batch(rows)?)
    }

    /// Appends rows without splitting the batch.
    pub(super) fn write_whole_batch(&mut self, rows: &RecordBatch) -> Result<()> {
        append_section(&mut self.sections, GROUPS_SECTION, &sections::encode_batch(rows)?)
    }

    /// Appends the scratch files of shuffled rows of groups.
    pub(super) fn write_shuffled_ranges(&mut self, laid: &[ShuffledRange]) -> Result<()> {
        append_section(&mut self.sections, SHUFFLE_GROUPS_SECTION, &encode_json(&laid)?)
    }

    /// Appends the list of written files, and the content of small objects.
    pub(super) fn write_written_files(&mut self, placed: &WrittenFiles) -> Result<()> {
        append_section(&mut self.sections, WRITTEN_FILES_SECTION, &encode_json(placed)?)?;
        let mut small = placed.files.iter().filter(|file| file.has_inline_content());
        small.try_for_each(|file| {
            append_section(&mut self.sections, OBJECT_CONTENT_SECTION, &file.content)
        })
    }

    /// Appends the paths of the objects that shuffled rows belong to.
    pub(super) fn write_object_paths(&mut self, paths: &[PathValues]) -> Result<()> {
        append_section(&mut self.sections, OBJECT_PATHS_SECTION, &encode_json(&paths)?)
    }

    /// Appends groups, split into slices.
    pub(super) fn write_groups(&mut self, groups: &RecordBatch) -> Result<()> {
        for slice in slice_batch(groups) {
            append_section(&mut self.sections, GROUPS_SECTION, &sections::encode_batch(&slice?)?)?;
        }
        Ok(())
    }

    /// Appends the scratch file that has the groups or rows.
    pub(super) fn write_shuffle_file(&mut self, parted: &ShuffleFile) -> Result<()> {
        append_section(&mut self.sections, SHUFFLE_FILE_SECTION, &encode_json(parted)?)
    }

    /// Appends the description of a merged hash range, and its groups unless a file has them.
    pub(super) fn write_reduced_range(
        &mut self,
        reduced: &ReducedRange,
        groups: &[u8],
    ) -> Result<()> {
        append_section(&mut self.sections, REDUCED_RANGE_SECTION, &encode_json(reduced)?)?;
        match reduced.file {
            Some(_) => Ok(()),
            None => append_section(&mut self.sections, INLINE_GROUPS_SECTION, groups),
        }
    }

    /// Returns the number of bytes written so far.
    pub(super) fn encoded_bytes(&self) -> usize {
        self.sections.len()
    }

    /// Returns the message, with the reports on the splits that were read and the time of the task.
    pub(super) fn finish(
        self,
        splits: &[SplitReport],
        not_read: UnreadSplits,
        took: TaskTime,
    ) -> Result<Vec<u8>> {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (cpu_us, wall_us) = (us(took.cpu), us(took.wall));
        let said = encode_json(&ReadReport { splits, cpu_us, wall_us, not_read })?;
        let mut out =
            Vec::with_capacity(RESULT_MAGIC.len() + said.len() + self.sections.len() + 64);
        out.extend_from_slice(RESULT_MAGIC);
        append_compressed_section(&mut out, READ_REPORT_SECTION, &said)?;
        out.extend_from_slice(&self.sections);
        Ok(out)
    }
}

/// Encodes the message of a task that failed.
pub(super) fn encode_failure(error: Error) -> Vec<u8> {
    let failure = SerializedError::from(error);
    let mut out = RESULT_MAGIC.to_vec();
    let content = encode_json(&failure).unwrap_or_else(|_| b"{\"kind\":\"interrupted\"}".to_vec());
    // Writing to a vector does not fail.
    let _ = append_section(&mut out, ERROR_SECTION, &content);
    out
}

/// The result of a task, as received from a worker.
#[derive(Default)]
pub(crate) struct TaskResult {
    pub(super) split_reports: Vec<SplitReport>,
    pub(super) unread_splits: UnreadSplits,
    pub(super) time: TaskTime,
    content: Vec<u8>,
    /// Offset of the first section that has not been read.
    offset: usize,
    /// Batches of the last section read that have not been returned.
    pending_batches: VecDeque<RecordBatch>,
    rows_origin: Option<RowsOrigin>,
}

impl TaskResult {
    /// Decodes a worker's message.
    ///
    /// # Errors
    /// The worker's error, or one for an invalid message.
    pub(super) fn decode(content: Vec<u8>) -> Result<TaskResult> {
        let rest = content
            .strip_prefix(RESULT_MAGIC)
            .ok_or_else(|| corrupt_message_error("it is no part"))?;
        let mut sections = SectionReader::new(rest);
        let nothing = || corrupt_message_error("a part says nothing of what was read");
        let (kind, said) =
            sections.next_section().map_err(corrupt_message_error)?.ok_or_else(nothing)?;
        let read: ReadReport<Vec<SplitReport>> = match decompress_section(kind, said)? {
            (READ_REPORT_SECTION, read) => decode_json(&read)?,
            (ERROR_SECTION, failure) => {
                return Err(decode_json::<SerializedError>(&failure)?.into());
            }
            _ => return Err(nothing()),
        };
        let at = content.len() - sections.remaining_bytes();
        let ReadReport { splits: read, cpu_us, wall_us, not_read } = read;
        let took =
            TaskTime { cpu: Duration::from_micros(cpu_us), wall: Duration::from_micros(wall_us) };
        Ok(TaskResult {
            split_reports: read,
            unread_splits: not_read,
            time: took,
            content,
            offset: at,
            pending_batches: VecDeque::new(),
            rows_origin: None,
        })
    }

    /// Returns the message's size in bytes.
    pub(super) fn encoded_bytes(&self) -> u64 {
        self.content.len() as u64
    }

    /// Takes the scratch file with the groups or rows, if the message does not contain them.
    ///
    /// # Errors
    /// Fails if the message is invalid.
    pub(super) fn take_shuffle_file(&mut self) -> Result<Option<ShuffleFile>> {
        let mut sections = SectionReader::new(self.content.get(self.offset..).unwrap_or_default());
        match sections.next_section().map_err(corrupt_message_error)? {
            Some((SHUFFLE_FILE_SECTION, content)) => {
                let parted = decode_json(content)?;
                self.offset = self.content.len() - sections.remaining_bytes();
                Ok(Some(parted))
            }
            _ => Ok(None),
        }
    }

    /// Returns the scratch files of shuffled rows of groups.
    ///
    /// # Errors
    /// Fails if the message has other content.
    pub(super) fn shuffled_ranges(&self) -> Result<Vec<ShuffledRange>> {
        let mut sections = SectionReader::new(self.content.get(self.offset..).unwrap_or_default());
        match sections.next_section().map_err(corrupt_message_error)? {
            Some((SHUFFLE_GROUPS_SECTION, content)) => decode_json(content),
            _ => Err(corrupt_message_error("it does not say where rows lie")),
        }
    }

    /// Returns the files that were written.
    ///
    /// # Errors
    /// Fails if the message has other content.
    pub(super) fn written_files(&self) -> Result<WrittenFiles> {
        let mut sections = SectionReader::new(self.content.get(self.offset..).unwrap_or_default());
        match sections.next_section().map_err(corrupt_message_error)? {
            Some((WRITTEN_FILES_SECTION, content)) => {
                let mut placed: WrittenFiles = decode_json(content)?;
                for file in placed.files.iter_mut().filter(|file| file.has_inline_content()) {
                    match sections.next_section().map_err(corrupt_message_error)? {
                        Some((OBJECT_CONTENT_SECTION, content)) => file.content = content.to_vec(),
                        _ => return Err(corrupt_message_error("an object is missing")),
                    }
                }
                Ok(placed)
            }
            _ => Err(corrupt_message_error("it does not say what was written")),
        }
    }

    /// Takes the paths of the objects that shuffled rows belong to.
    ///
    /// # Errors
    /// Fails if the message has other content.
    pub(super) fn take_object_paths(&mut self) -> Result<Vec<PathValues>> {
        let mut sections = SectionReader::new(self.content.get(self.offset..).unwrap_or_default());
        match sections.next_section().map_err(corrupt_message_error)? {
            Some((OBJECT_PATHS_SECTION, content)) => {
                let paths = decode_json(content)?;
                self.offset = self.content.len() - sections.remaining_bytes();
                Ok(paths)
            }
            None => Ok(Vec::new()),
            Some(_) => Err(corrupt_message_error("a section of an unknown kind")),
        }
    }

    /// Returns the merged hash ranges: their precision, and the bytes of their groups unless a file has them.
    ///
    /// # Errors
    /// Fails if the message has other content.
    pub(super) fn reduced_ranges(&self) -> Result<Vec<(ReducedRange, Vec<u8>)>> {
        let mut sections = SectionReader::new(self.content.get(self.offset..).unwrap_or_default());
        let mut all = Vec::new();
        while let Some((kind, content)) = sections.next_section().map_err(corrupt_message_error)? {
            match (kind, all.last_mut()) {
                (REDUCED_RANGE_SECTION, _) => {
                    all.push((decode_json::<ReducedRange>(content)?, Vec::new()))
                }
                (INLINE_GROUPS_SECTION, Some((reduced, groups))) if reduced.file.is_none() => {
                    *groups = content.to_vec();
                }
                _ => return Err(corrupt_message_error("a section of an unknown kind")),
            }
        }
        Ok(all)
    }

    /// Returns the next batch of groups or rows; rows come with their origin.
    ///
    /// # Errors
    /// Fails if the batch cannot be decoded.
    pub(crate) fn next_batch(&mut self) -> Result<Option<(Option<RowsOrigin>, RecordBatch)>> {
        loop {
            if let Some(batch) = self.pending_batches.pop_front() {
                return Ok(Some((self.rows_origin, batch)));
            }
            let mut sections =
                SectionReader::new(self.content.get(self.offset..).unwrap_or_default());
            let Some((kind, content)) = sections.next_section().map_err(corrupt_message_error)?
            else {
                return Ok(None);
            };
            match kind {
                ROWS_ORIGIN_SECTION => self.rows_origin = Some(decode_json(content)?),
                GROUPS_SECTION => {
                    self.pending_batches = sections::decode_batches(content)
                        .map_err(|why| corrupt_message_error(&why))?
                        .into()
                }
                _ => return Err(corrupt_message_error("a section of an unknown kind")),
            }
            self.offset = self.content.len() - sections.remaining_bytes();
        }
    }
}

fn decode_json<T: DeserializeOwned>(content: &[u8]) -> Result<T> {
    serde_json::from_slice(content).map_err(|error| corrupt_message_error(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(names: &[String]) -> WriteFilesTask {
        let part = |name: &String| {
            let file =
                format!("{{\"name\":{},\"bytes\":9,\"e_tag\":null}}", serde_json::json!(name));
            ShuffleFile { file: serde_json::from_str(&file).unwrap(), runs: vec![vec![0, 4, 9]] }
        };
        WriteFilesTask { count: 2, parts: names.iter().map(part).collect(), begun: Vec::new() }
    }

    proptest! {
        /// A task round-trips, short or long. A damaged one is rejected and causes nothing else.
        #[test]
        fn task_round_trips_and_damaged_task_is_rejected(
            names in prop::collection::vec("[a-z/]{0,30}", 0..200),
            damage in prop::option::of((any::<prop::sample::Index>(), 1..=u8::MAX)),
        ) {
            let task = write(&names);
            let mut bytes = task.encode().unwrap();
            let is_long = encode_json(&task).unwrap().len() > UNCOMPRESSED_BYTES_MAX;
            prop_assert_eq!(bytes[TASK_MAGIC.len()].is_ascii_lowercase(), is_long);
            prop_assert!(!is_long || bytes.len() < encode_json(&task).unwrap().len());
            if let Some((at, change)) = damage {
                let at = at.index(bytes.len());
                bytes[at] ^= change;
                prop_assert!(WorkerTask::decode(&bytes).is_err());
                return Ok(());
            }
            let Ok(WorkerTask::WriteFiles(found)) = WorkerTask::decode(&bytes) else { panic!("another task") };
            prop_assert_eq!((found.count, found.parts), (task.count, task.parts));
        }

        /// A section with a wrong length is rejected, and so is one that is no zstd frame.
        #[test]
        fn invalid_compressed_section_is_rejected(
            content in prop::collection::vec(any::<u8>(), 0..100),
            length in prop_oneof![any::<u64>(), 0..100_u64],
            garbage in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let packed = zstd::bulk::compress(&content, COMPRESSION_LEVEL).unwrap();
            let section = |length: u64, packed: &[u8]| [&length.to_le_bytes(), packed].concat();
            let right = section(content.len() as u64, &packed);
            let (kind, found) = decompress_section(b'w', &right).unwrap();
            prop_assert_eq!((kind, found.as_ref()), (b'W', content.as_slice()));
            let is_right = length == content.len() as u64;
            prop_assert_eq!(decompress_section(b'w', &section(length, &packed)).is_ok(), is_right);
            prop_assert!(decompress_section(b'w', &section(length.max(1), &garbage)).is_err());
            prop_assert!(decompress_section(b'w', &right[..7]).is_err());
        }
    }
}
