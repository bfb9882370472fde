//! A task and what comes of it, as bytes.
//!
//! ```text
//!   "TIDETASK"  section 'T' │ JSON: files, and splits of them that follow one another
//!
//!   "TIDEPIEC"  section 'R' │ JSON: what was read of each split
//!               section 'C' │ JSON: the place of the split whose groups follow          (where order matters)
//!               section 'G' │ Arrow: keys and states, as in partial tables              (any number)
//!   or          section 'X' │ JSON: an error
//! ```

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_base::error::{Error, Result};
use tidemill_source::{FileDescription, SplitDescription, StatsDescription};
use tidemill_tables::sections::{self, Sections};
use tidemill_tables::spill::slices;

use super::failure::Failure;
use super::job::{bad, json, put};

const TASK_MAGIC: &[u8; 8] = b"TIDETASK";
const PART_MAGIC: &[u8; 8] = b"TIDEPIEC";

const TASK: u8 = b'T';
const READ: u8 = b'R';
const CHUNK: u8 = b'C';
const GROUPS: u8 = b'G';
const ERROR: u8 = b'X';

/// Some splits that follow one another, and the files that they are of.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub files: Vec<FileDescription>,
    pub splits: Vec<SplitDescription>,
}

impl Task {
    pub(super) fn encoded(&self) -> Result<Vec<u8>> {
        let mut out = TASK_MAGIC.to_vec();
        put(&mut out, TASK, &json(self)?)?;
        Ok(out)
    }

    pub(super) fn decoded(bytes: &[u8]) -> Result<Task> {
        let rest = bytes.strip_prefix(TASK_MAGIC).ok_or_else(|| bad("it is no task"))?;
        match Sections::new(rest).next().map_err(bad)? {
            Some((TASK, content)) => {
                serde_json::from_slice(content).map_err(|error| bad(&error.to_string()))
            }
            _ => Err(bad("a task says nothing")),
        }
    }
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
    pub stats: StatsDescription,
}

/// A part of the table in writing.
pub(super) struct PartWriter {
    out: Vec<u8>,
}

impl PartWriter {
    /// Of splits of which so much was read.
    pub(super) fn new(read: &[Read]) -> Result<Self> {
        let mut out = PART_MAGIC.to_vec();
        put(&mut out, READ, &json(&read)?)?;
        Ok(PartWriter { out })
    }

    /// Says of which split the groups are that follow.
    pub(super) fn begin_split(&mut self, place: usize) -> Result<()> {
        put(&mut self.out, CHUNK, &json(&place)?)
    }

    pub(super) fn write(&mut self, groups: &RecordBatch) -> Result<()> {
        for slice in slices(groups) {
            put(&mut self.out, GROUPS, &sections::encoded(&slice?)?)?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
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

/// A part of the table, as it came.
pub(super) struct Part {
    pub read: Vec<Read>,
    content: Vec<u8>,
    /// Where its groups begin.
    groups_at: usize,
}

impl Part {
    /// Takes a worker's message.
    ///
    /// # Errors
    /// The worker's own; where the message is none.
    pub(super) fn decoded(content: Vec<u8>) -> Result<Part> {
        let rest = content.strip_prefix(PART_MAGIC).ok_or_else(|| bad("it is no part"))?;
        let mut sections = Sections::new(rest);
        let read = match sections.next().map_err(bad)? {
            Some((READ, read)) => {
                serde_json::from_slice(read).map_err(|error| bad(&error.to_string()))?
            }
            Some((ERROR, failure)) => {
                let failure: Failure =
                    serde_json::from_slice(failure).map_err(|error| bad(&error.to_string()))?;
                return Err(failure.into());
            }
            _ => return Err(bad("a part says nothing of what was read")),
        };
        let groups_at = content.len() - sections.left();
        Ok(Part { read, groups_at, content })
    }

    /// Its groups, with the place of the split that they are of where order matters.
    ///
    /// # Errors
    /// Where they cannot be read; those of `take`.
    pub(super) fn groups(
        &self,
        mut take: impl FnMut(Option<usize>, RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let mut sections = Sections::new(self.content.get(self.groups_at..).unwrap_or_default());
        let mut place = None;
        while let Some((kind, content)) = sections.next().map_err(bad)? {
            match kind {
                CHUNK => {
                    place = Some(
                        serde_json::from_slice(content).map_err(|error| bad(&error.to_string()))?,
                    );
                }
                GROUPS => {
                    for batch in sections::batches(content).map_err(|why| bad(&why))? {
                        take(place, batch)?;
                    }
                }
                _ => return Err(bad("a section of an unknown kind")),
            }
        }
        Ok(())
    }
}
