//! A task and what comes of it, as bytes.
//!
//! ```text
//!   "TIDETASK"  section 'T' │ JSON: files, and splits of them: those that follow one another, or drawn ones
//!   or          section 'M' │ JSON: ranges of tables in scratch files that are to be merged
//!   or          section 'L' │ JSON: ranges of finished groups whose rows are to be laid down for those who write them
//!   or          section 'W' │ JSON: rows in scratch files whose output's files are to be written
//!
//!   "TIDEPIEC"  section 'R' │ JSON: what was read of each split
//!               section 'V' │ JSON: the paths of the objects that rows are for (behind 'F')
//!               section 'P' │ JSON: where the rows that follow are from                 (before each batch of rows)
//!               section 'G' │ Arrow: keys and states, as in partial tables, or rows     (any number)
//!   or          section 'F' │ JSON: in which scratch file they lie, and where each range of hashes
//!   or          section 'D' │ JSON: of a range that was merged, and in which scratch file it lies  (any number)
//!               section 'I' │ sections 'G': its answers, if they lie in none
//!   or          section 'L' │ JSON: where rows of groups were laid down
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
use tidemill_tables::chunk_spills::slice_batch;
use tidemill_tables::sections::{self, SectionReader};

use super::Took;
use super::failure::Failure;
use super::job::{bad, json, put};
use super::laid::{LaidRange, Lay, Placed, Write};
use super::parted::{Parted, Reduce, Reduced};

const TASK_MAGIC: &[u8; 8] = b"TIDETASK";
const PART_MAGIC: &[u8; 8] = b"TIDEPIEC";

const TASK: u8 = b'T';
const READ: u8 = b'R';
const PLACE: u8 = b'P';
pub(super) const GROUPS: u8 = b'G';
const REDUCE: u8 = b'M';
const PARTED: u8 = b'F';
const REDUCED: u8 = b'D';
const SECTIONS: u8 = b'I';
const LAY: u8 = b'L';
const WRITE: u8 = b'W';
const PLACED: u8 = b'N';
const CONTENT: u8 = b'O';
const PATHS: u8 = b'V';
const ERROR: u8 = b'X';

/// Some splits that follow one another or were drawn, and the files that they are of.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub files: Vec<FileDescription>,
    pub splits: Vec<SplitDescription>,
    /// Of drawn splits: after so long with nothing new the task ends without those that stall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ms: Option<u64>,
}

impl Task {
    pub(super) fn encoded(&self) -> Result<Vec<u8>> {
        message(TASK, self)
    }
}

impl Reduce {
    pub(super) fn encoded(&self) -> Result<Vec<u8>> {
        message(REDUCE, self)
    }
}

impl Lay {
    pub(super) fn encoded(&self) -> Result<Vec<u8>> {
        message(LAY, self)
    }
}

impl Write {
    pub(super) fn encoded(&self) -> Result<Vec<u8>> {
        message(WRITE, self)
    }
}

/// What a worker is to do.
pub(super) enum Told {
    /// To read splits.
    Read(Task),
    /// To merge ranges of tables.
    Reduce(Reduce),
    /// To lay rows of groups down.
    Lay(Lay),
    /// To write files.
    Write(Write),
}

impl Told {
    pub(super) fn decoded(bytes: &[u8]) -> Result<Told> {
        let rest = bytes.strip_prefix(TASK_MAGIC).ok_or_else(|| bad("it is no task"))?;
        let Some((kind, content)) = SectionReader::new(rest).next_section().map_err(bad)? else {
            return Err(bad("a task says nothing"));
        };
        let (kind, content) = unpacked(kind, content)?;
        match kind {
            TASK => of_json(&content).map(Told::Read),
            REDUCE => of_json(&content).map(Told::Reduce),
            LAY => of_json(&content).map(Told::Lay),
            WRITE => of_json(&content).map(Told::Write),
            _ => Err(bad("a section of an unknown kind")),
        }
    }
}

/// What is longer is compressed: the names of files have much in common.
const PACKED_BYTES: usize = 2048;
/// As far as that is worth its time.
const PACKED_LEVEL: i32 = 1;
/// A section that is longer is none.
const UNPACKED_MAX: usize = 1 << 30;

fn message(kind: u8, of: &impl Serialize) -> Result<Vec<u8>> {
    let mut out = TASK_MAGIC.to_vec();
    put_packed(&mut out, kind, &json(of)?)?;
    Ok(out)
}

/// Appends a section: a long one by its length and compressed, which the small letter of its kind says.
fn put_packed(out: &mut Vec<u8>, kind: u8, content: &[u8]) -> Result<()> {
    if content.len() <= PACKED_BYTES {
        return put(out, kind, content);
    }
    let packed = zstd::bulk::compress(content, PACKED_LEVEL);
    let packed = packed.map_err(|e| Error::io("compress", "a worker's message", e))?;
    let mut section = (content.len() as u64).to_le_bytes().to_vec();
    section.extend_from_slice(&packed);
    put(out, kind.to_ascii_lowercase(), &section)
}

/// A section's kind and content as they were.
fn unpacked(kind: u8, content: &[u8]) -> Result<(u8, Cow<'_, [u8]>)> {
    if !kind.is_ascii_lowercase() {
        return Ok((kind, Cow::Borrowed(content)));
    }
    let unfit = || bad("a section that cannot be decompressed");
    let (length, packed) = content.split_first_chunk().ok_or_else(unfit)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok();
    let length = length.filter(|length| *length <= UNPACKED_MAX).ok_or_else(unfit)?;
    let content = zstd::bulk::decompress(packed, length).map_err(|_| unfit())?;
    if content.len() != length {
        return Err(unfit());
    }
    Ok((kind.to_ascii_uppercase(), Cow::Owned(content)))
}

/// What was read of a split.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Read {
    /// Its place among the task's.
    pub place: usize,
    /// Whether its start was known rather than guessed.
    pub is_exact: bool,
    /// Rows that left the map.
    pub mapped_rows: u64,
    pub stats: SplitStatsDescription,
}

/// Where a batch of rows is from.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RowsPlace {
    /// The place of their split among the task's.
    pub place: usize,
    /// Rows that had been read of it by then, …
    pub rows: u64,
    /// … and records refused.
    pub rejected: u64,
}

/// What was read of a task's splits, and what that took.
#[derive(Debug, Serialize, Deserialize)]
struct AllRead<T> {
    splits: T,
    cpu_us: u64,
    wall_us: u64,
    #[serde(default, skip_serializing_if = "NotRead::is_nothing")]
    not_read: NotRead,
}

/// What was not read of drawn splits, by their places in the task.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct NotRead {
    /// Those that cannot be read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<(usize, Failure)>,
    /// Those that stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalled: Vec<usize>,
    /// How many were found to begin elsewhere than they seem to.
    #[serde(default)]
    pub wrong_starts: u64,
    /// True if the task stopped because all wanted rows were found. Splits that the part does not mention are not
    /// missing then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut_short: bool,
}

impl NotRead {
    fn is_nothing(&self) -> bool {
        self.failed.is_empty()
            && self.stalled.is_empty()
            && self.wrong_starts == 0
            && !self.is_cut_short
    }
}

/// A part in writing.
#[derive(Default)]
pub(super) struct PartWriter {
    groups: Vec<u8>,
}

impl PartWriter {
    /// Appends rows of a split.
    pub(super) fn write_rows(&mut self, place: RowsPlace, rows: &RecordBatch) -> Result<()> {
        put(&mut self.groups, PLACE, &json(&place)?)?;
        put(&mut self.groups, GROUPS, &sections::encode_batch(rows)?)
    }

    /// Appends rows, in the batches that they are in.
    pub(super) fn write_whole(&mut self, rows: &RecordBatch) -> Result<()> {
        put(&mut self.groups, GROUPS, &sections::encode_batch(rows)?)
    }

    /// Says where rows of groups were laid down.
    pub(super) fn write_laid(&mut self, laid: &[LaidRange]) -> Result<()> {
        put(&mut self.groups, LAY, &json(&laid)?)
    }

    /// Says which files were written.
    pub(super) fn write_placed(&mut self, placed: &Placed) -> Result<()> {
        put(&mut self.groups, PLACED, &json(placed)?)?;
        let mut small = placed.files.iter().filter(|file| file.has_inline_content());
        small.try_for_each(|file| put(&mut self.groups, CONTENT, &file.content))
    }

    /// Says for which objects rows were laid down.
    pub(super) fn write_paths(&mut self, paths: &[PathValues]) -> Result<()> {
        put(&mut self.groups, PATHS, &json(&paths)?)
    }

    /// Appends groups.
    pub(super) fn write(&mut self, groups: &RecordBatch) -> Result<()> {
        for slice in slice_batch(groups) {
            put(&mut self.groups, GROUPS, &sections::encode_batch(&slice?)?)?;
        }
        Ok(())
    }

    /// Says where the groups lie.
    pub(super) fn write_parted(&mut self, parted: &Parted) -> Result<()> {
        put(&mut self.groups, PARTED, &json(parted)?)
    }

    /// Appends what came of a range of hashes, and its groups unless they lie elsewhere.
    pub(super) fn write_reduced(&mut self, reduced: &Reduced, groups: &[u8]) -> Result<()> {
        put(&mut self.groups, REDUCED, &json(reduced)?)?;
        match reduced.file {
            Some(_) => Ok(()),
            None => put(&mut self.groups, SECTIONS, groups),
        }
    }

    /// What was written takes so many bytes.
    pub(super) fn bytes(&self) -> usize {
        self.groups.len()
    }

    /// The message, of splits of which so much was read, which took so long.
    pub(super) fn finish(self, splits: &[Read], not_read: NotRead, took: Took) -> Result<Vec<u8>> {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (cpu_us, wall_us) = (us(took.cpu), us(took.wall));
        let said = json(&AllRead { splits, cpu_us, wall_us, not_read })?;
        let mut out = Vec::with_capacity(PART_MAGIC.len() + said.len() + self.groups.len() + 64);
        out.extend_from_slice(PART_MAGIC);
        put_packed(&mut out, READ, &said)?;
        out.extend_from_slice(&self.groups);
        Ok(out)
    }
}

/// The message of a task that failed.
pub(super) fn failed(error: Error) -> Vec<u8> {
    let failure = Failure::from(error);
    let mut out = PART_MAGIC.to_vec();
    let content = json(&failure).unwrap_or_else(|_| b"{\"kind\":\"interrupted\"}".to_vec());
    // A vector takes all that is written to it.
    let _ = put(&mut out, ERROR, &content);
    out
}

/// A part, as it came.
#[derive(Default)]
pub(crate) struct Part {
    pub(super) read: Vec<Read>,
    pub(super) not_read: NotRead,
    pub(super) took: Took,
    content: Vec<u8>,
    /// Where the sections begin that have not been read.
    at: usize,
    /// Batches of the section before these.
    batches: VecDeque<RecordBatch>,
    place: Option<RowsPlace>,
}

impl Part {
    /// Takes a worker's message.
    ///
    /// # Errors
    /// The worker's own; where the message is none.
    pub(super) fn decoded(content: Vec<u8>) -> Result<Part> {
        let rest = content.strip_prefix(PART_MAGIC).ok_or_else(|| bad("it is no part"))?;
        let mut sections = SectionReader::new(rest);
        let nothing = || bad("a part says nothing of what was read");
        let (kind, said) = sections.next_section().map_err(bad)?.ok_or_else(nothing)?;
        let read: AllRead<Vec<Read>> = match unpacked(kind, said)? {
            (READ, read) => of_json(&read)?,
            (ERROR, failure) => return Err(of_json::<Failure>(&failure)?.into()),
            _ => return Err(nothing()),
        };
        let at = content.len() - sections.remaining_bytes();
        let AllRead { splits: read, cpu_us, wall_us, not_read } = read;
        let took =
            Took { cpu: Duration::from_micros(cpu_us), wall: Duration::from_micros(wall_us) };
        Ok(Part { read, not_read, took, content, at, batches: VecDeque::new(), place: None })
    }

    /// What it takes, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.content.len() as u64
    }

    /// Where its groups lie, if they are not here.
    ///
    /// # Errors
    /// Where it does not say so.
    pub(super) fn take_parted(&mut self) -> Result<Option<Parted>> {
        let mut sections = SectionReader::new(self.content.get(self.at..).unwrap_or_default());
        match sections.next_section().map_err(bad)? {
            Some((PARTED, content)) => {
                let parted = of_json(content)?;
                self.at = self.content.len() - sections.remaining_bytes();
                Ok(Some(parted))
            }
            _ => Ok(None),
        }
    }

    /// Where rows of groups were laid down.
    ///
    /// # Errors
    /// Where it is something else.
    pub(super) fn laid(&self) -> Result<Vec<LaidRange>> {
        let mut sections = SectionReader::new(self.content.get(self.at..).unwrap_or_default());
        match sections.next_section().map_err(bad)? {
            Some((LAY, content)) => of_json(content),
            _ => Err(bad("it does not say where rows lie")),
        }
    }

    /// The files that were written.
    ///
    /// # Errors
    /// Where it is something else.
    pub(super) fn placed(&self) -> Result<Placed> {
        let mut sections = SectionReader::new(self.content.get(self.at..).unwrap_or_default());
        match sections.next_section().map_err(bad)? {
            Some((PLACED, content)) => {
                let mut placed: Placed = of_json(content)?;
                for file in placed.files.iter_mut().filter(|file| file.has_inline_content()) {
                    match sections.next_section().map_err(bad)? {
                        Some((CONTENT, content)) => file.content = content.to_vec(),
                        _ => return Err(bad("an object is missing")),
                    }
                }
                Ok(placed)
            }
            _ => Err(bad("it does not say what was written")),
        }
    }

    /// The paths of the objects that rows were laid down for.
    ///
    /// # Errors
    /// Where it is something else.
    pub(super) fn take_paths(&mut self) -> Result<Vec<PathValues>> {
        let mut sections = SectionReader::new(self.content.get(self.at..).unwrap_or_default());
        match sections.next_section().map_err(bad)? {
            Some((PATHS, content)) => {
                let paths = of_json(content)?;
                self.at = self.content.len() - sections.remaining_bytes();
                Ok(paths)
            }
            None => Ok(Vec::new()),
            Some(_) => Err(bad("a section of an unknown kind")),
        }
    }

    /// What came of ranges of hashes: how good it is, and the bytes of its groups if they do not lie in a file.
    ///
    /// # Errors
    /// Where it is something else.
    pub(super) fn reduced(&self) -> Result<Vec<(Reduced, Vec<u8>)>> {
        let mut sections = SectionReader::new(self.content.get(self.at..).unwrap_or_default());
        let mut all = Vec::new();
        while let Some((kind, content)) = sections.next_section().map_err(bad)? {
            match (kind, all.last_mut()) {
                (REDUCED, _) => all.push((of_json::<Reduced>(content)?, Vec::new())),
                (SECTIONS, Some((reduced, groups))) if reduced.file.is_none() => {
                    *groups = content.to_vec();
                }
                _ => return Err(bad("a section of an unknown kind")),
            }
        }
        Ok(all)
    }

    /// The next of its groups or rows; with rows, where they are from.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub(crate) fn next_batch(&mut self) -> Result<Option<(Option<RowsPlace>, RecordBatch)>> {
        loop {
            if let Some(batch) = self.batches.pop_front() {
                return Ok(Some((self.place, batch)));
            }
            let mut sections = SectionReader::new(self.content.get(self.at..).unwrap_or_default());
            let Some((kind, content)) = sections.next_section().map_err(bad)? else {
                return Ok(None);
            };
            match kind {
                PLACE => self.place = Some(of_json(content)?),
                GROUPS => {
                    self.batches =
                        sections::decode_batches(content).map_err(|why| bad(&why))?.into()
                }
                _ => return Err(bad("a section of an unknown kind")),
            }
            self.at = self.content.len() - sections.remaining_bytes();
        }
    }
}

fn of_json<T: DeserializeOwned>(content: &[u8]) -> Result<T> {
    serde_json::from_slice(content).map_err(|error| bad(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(names: &[String]) -> Write {
        let part = |name: &String| {
            let file =
                format!("{{\"name\":{},\"bytes\":9,\"e_tag\":null}}", serde_json::json!(name));
            Parted { file: serde_json::from_str(&file).unwrap(), runs: vec![vec![0, 4, 9]] }
        };
        Write { count: 2, parts: names.iter().map(part).collect(), begun: Vec::new() }
    }

    proptest! {
        /// Short or long, a task is what it was; damaged, it is refused or another one, and nothing else happens.
        #[test]
        fn tasks_are_read_as_they_were_written(
            names in prop::collection::vec("[a-z/]{0,30}", 0..200),
            damage in prop::option::of((any::<prop::sample::Index>(), 1..=u8::MAX)),
        ) {
            let task = write(&names);
            let mut bytes = task.encoded().unwrap();
            let is_long = json(&task).unwrap().len() > PACKED_BYTES;
            prop_assert_eq!(bytes[TASK_MAGIC.len()].is_ascii_lowercase(), is_long);
            prop_assert!(!is_long || bytes.len() < json(&task).unwrap().len());
            if let Some((at, change)) = damage {
                let at = at.index(bytes.len());
                bytes[at] ^= change;
                prop_assert!(Told::decoded(&bytes).is_err());
                return Ok(());
            }
            let Ok(Told::Write(found)) = Told::decoded(&bytes) else { panic!("another task") };
            prop_assert_eq!((found.count, found.parts), (task.count, task.parts));
        }

        /// A section that says another length than it has is refused, and so is one that is no frame.
        #[test]
        fn what_cannot_be_unpacked_is_refused(
            content in prop::collection::vec(any::<u8>(), 0..100),
            length in prop_oneof![any::<u64>(), 0..100_u64],
            garbage in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let packed = zstd::bulk::compress(&content, PACKED_LEVEL).unwrap();
            let section = |length: u64, packed: &[u8]| [&length.to_le_bytes(), packed].concat();
            let right = section(content.len() as u64, &packed);
            let (kind, found) = unpacked(b'w', &right).unwrap();
            prop_assert_eq!((kind, found.as_ref()), (b'W', content.as_slice()));
            let is_right = length == content.len() as u64;
            prop_assert_eq!(unpacked(b'w', &section(length, &packed)).is_ok(), is_right);
            prop_assert!(unpacked(b'w', &section(length.max(1), &garbage)).is_err());
            prop_assert!(unpacked(b'w', &right[..7]).is_err());
        }
    }
}
