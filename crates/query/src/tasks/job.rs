//! A job: what all tasks of a query have in common, as bytes.
//!
//! ```text
//!   "TIDEJOB1"
//!   section 'J' │ JSON: the SQL, what is to come of it, the source that is read in splits
//!   section 'S' │ Arrow: the columns of a source, that one's first        (any number)
//!   section 'K' │ JSON: how many batches of a joined side follow          (one for each side)
//!   section 'B' │ Arrow: rows of that side                                (any number)
//!   section 'O' │ Arrow: the columns of the result, where workers write it
//! ```

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use tidemill_base::error::{Error, Result};
use tidemill_source::SourceDescription;
use tidemill_sql::dialects::PercentSample;
use tidemill_tables::sections::{self, SectionReader};

use super::laid::Laying;
use super::parted::Parting;

const MAGIC: &[u8; 8] = b"TIDEJOB1";

const JOB: u8 = b'J';
const SCHEMA: u8 = b'S';
const SIDE: u8 = b'K';
const BATCH: u8 = b'B';
const OUTPUT: u8 = b'O';

/// What a worker plans.
pub(super) struct Job {
    pub said: Said,
    /// Name and columns of each source, of which those that are hidden are marked; the one that is read in splits is the
    /// first.
    pub schemas: Vec<SchemaRef>,
    /// The rows of what is joined, a side after the other.
    pub sides: Vec<Vec<RecordBatch>>,
    /// The columns of the result, where workers write its files.
    pub output: Option<SchemaRef>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Said {
    /// The query.
    pub sql: String,
    /// The names of the sources, as the query has them.
    pub names: Vec<String>,
    /// What is to come of it.
    pub asked: Asked,
    /// What `now()` is, in nanoseconds since 1970.
    pub planned_ns: i64,
    /// The source that is read in splits.
    pub source: SourceDescription,
    /// Which of its rows are taken.
    pub sample: Option<SampleSaid>,
    /// What becomes of large tables. None: they are sent as others are.
    pub parting: Option<Parting>,
    /// How rows go to those who write the output's files. None: they are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub laying: Option<Laying>,
    /// That the answer may rest on a part of the input: tasks are of splits that were drawn. None: of runs of splits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<DrawnSaid>,
}

/// How drawn splits are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DrawnSaid {
    /// Of how many splits the sums by place are, if they are kept.
    pub cells: Option<usize>,
    /// Whether splits begin where what stands before them says.
    pub is_careful: bool,
}

/// What comes of a job's tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Asked {
    /// Tables, of which there is a line per key and state.
    Tables(Vec<String>),
    /// The rows of the map, in the order of the input; no more than `fetch` are wanted of a task.
    Rows { fetch: Option<usize> },
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SampleSaid {
    percent: f64,
    by_split: bool,
    seed: u64,
}

impl From<PercentSample> for SampleSaid {
    fn from(PercentSample { percent, by_split, seed }: PercentSample) -> Self {
        SampleSaid { percent, by_split, seed }
    }
}

impl From<SampleSaid> for PercentSample {
    fn from(SampleSaid { percent, by_split, seed }: SampleSaid) -> Self {
        PercentSample { percent, by_split, seed }
    }
}

impl Job {
    pub(super) fn encoded(&self) -> Result<Vec<u8>> {
        let mut out = MAGIC.to_vec();
        put(&mut out, JOB, &json(&self.said)?)?;
        let encoded = |schema: &SchemaRef| -> Result<_> {
            let mut stream = StreamWriter::try_new(Vec::new(), schema)?;
            stream.finish()?;
            Ok(stream.into_inner()?)
        };
        for schema in &self.schemas {
            put(&mut out, SCHEMA, &encoded(schema)?)?;
        }
        if let Some(schema) = &self.output {
            put(&mut out, OUTPUT, &encoded(schema)?)?;
        }
        for batches in &self.sides {
            put(&mut out, SIDE, &json(&batches.len())?)?;
            for batch in batches {
                put(&mut out, BATCH, &sections::encode_batch(batch)?)?;
            }
        }
        Ok(out)
    }

    pub(super) fn decoded(bytes: &[u8]) -> Result<Job> {
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| bad("it is no job of this release"))?;
        let mut sections = SectionReader::new(rest);
        let (mut said, mut schemas, mut sides) = (None, Vec::new(), Vec::new());
        let mut output = None;
        while let Some((kind, content)) = sections.next_section().map_err(bad)? {
            match kind {
                JOB => {
                    said = Some(serde_json::from_slice(content).map_err(|e| bad(&e.to_string()))?);
                }
                SCHEMA => schemas.push(schema(content)?),
                OUTPUT => output = Some(schema(content)?),
                SIDE => sides.push(Vec::new()),
                BATCH => {
                    let side = sides.last_mut().ok_or_else(|| bad("rows of no side"))?;
                    side.extend(sections::decode_batches(content).map_err(|why| bad(&why))?);
                }
                _ => return Err(bad("a section of an unknown kind")),
            }
        }
        let said: Said = said.ok_or_else(|| bad("it says nothing"))?;
        if said.names.len() != schemas.len() || schemas.is_empty() {
            return Err(bad("its sources are not its columns'"));
        }
        Ok(Job { said, schemas, sides, output })
    }
}

fn schema(content: &[u8]) -> Result<SchemaRef> {
    let stream = StreamReader::try_new(content, None)?;
    Ok(Arc::clone(&stream.schema()))
}

/// What is wrong with a job, a task or its part.
pub(super) fn bad(why: &str) -> Error {
    Error::Corrupt {
        path: "a worker's message".to_owned(),
        offset: None,
        reason: why.to_owned(),
        hint: Some("the same release of tidemill has to be on all machines".to_owned()),
    }
}

pub(super) fn json<T: Serialize>(of: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(of).map_err(|error| Error::Internal(format!("no JSON: {error}")))
}

/// Appends a section; a vector takes all that is written to it.
pub(super) fn put(out: &mut Vec<u8>, kind: u8, content: &[u8]) -> Result<()> {
    sections::write_section(out, kind, content)
        .map_err(|e| Error::io("write", "a worker's message", e))
}
