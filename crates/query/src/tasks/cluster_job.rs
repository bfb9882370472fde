//! The encoded job, which contains what all tasks of a query share.
//!
//! ```text
//!   "TIDEJOB1"
//!   section 'J' │ JSON: the SQL, the kind of result, the source that is read in splits
//!   section 'S' │ Arrow: the columns of a source, that one's first        (any number)
//!   section 'K' │ JSON: number of batches of a build side that follow     (one for each side)
//!   section 'B' │ Arrow: rows of that side                                (any number)
//!   section 'O' │ Arrow: the columns of the result, if workers write it
//! ```

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use tidemill_base::error::{Error, Result};
use tidemill_dialect::translation::PercentSample;
use tidemill_source::SourceDescription;
use tidemill_tables::merging::sections::{self, SectionReader};

use super::row_shuffle::RowShuffleSpec;
use super::shuffle_files::TableShuffleSpec;

const JOB_MAGIC: &[u8; 8] = b"TIDEJOB1";

const JOB_SECTION: u8 = b'J';
const SCHEMA_SECTION: u8 = b'S';
const BUILD_SIDE_SECTION: u8 = b'K';
const BATCH_SECTION: u8 = b'B';
const OUTPUT_SCHEMA_SECTION: u8 = b'O';

/// The job from which a worker plans a query.
pub(super) struct ClusterJob {
    pub header: JobHeader,
    /// Columns of each source, with hidden ones marked. The first source is the one that is read in splits.
    pub source_schemas: Vec<SchemaRef>,
    /// The rows of each build side.
    pub build_sides: Vec<Vec<RecordBatch>>,
    /// The columns of the result, if workers write its files.
    pub output_schema: Option<SchemaRef>,
}

/// The JSON part of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobHeader {
    /// The query's text.
    pub sql: String,
    /// The names of the sources in the query.
    pub names: Vec<String>,
    /// The kind of result that tasks return.
    pub asked: TaskResultKind,
    /// The value of `now()`, in nanoseconds since 1970.
    pub planned_ns: i64,
    /// The source that is read in splits.
    pub source: SourceDescription,
    /// The sample of its rows that the query takes with TABLESAMPLE.
    pub sample: Option<SerializedSample>,
    /// The shuffle of large tables. `None`: tasks send all tables to the driver.
    pub parting: Option<TableShuffleSpec>,
    /// The shuffle of rows to the workers that write the output's files. `None`: tasks send rows to the
    /// driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub laying: Option<RowShuffleSpec>,
    /// Options for reading sampled splits, if the answer may rest on a part of the input. `None`: tasks read
    /// consecutive splits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<SampledReadOptions>,
}

/// Options for reading sampled splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SampledReadOptions {
    /// Number of splits for the sums by cell, if tables keep these sums.
    pub cells: Option<usize>,
    /// True if a split's start is determined from the bytes before it.
    pub is_careful: bool,
}

/// The kind of result that a job's tasks return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TaskResultKind {
    /// Tables, described by one line for each key and state.
    Tables(Vec<String>),
    /// Rows of the map, in input order, at most `fetch` of them for each task.
    Rows { fetch: Option<usize> },
}

/// A TABLESAMPLE clause in serializable form.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SerializedSample {
    percent: f64,
    by_split: bool,
    seed: u64,
}

impl From<PercentSample> for SerializedSample {
    fn from(PercentSample { percent, by_split, seed }: PercentSample) -> Self {
        SerializedSample { percent, by_split, seed }
    }
}

impl From<SerializedSample> for PercentSample {
    fn from(SerializedSample { percent, by_split, seed }: SerializedSample) -> Self {
        PercentSample { percent, by_split, seed }
    }
}

impl ClusterJob {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut out = JOB_MAGIC.to_vec();
        append_section(&mut out, JOB_SECTION, &encode_json(&self.header)?)?;
        let encoded = |schema: &SchemaRef| -> Result<_> {
            let mut stream = StreamWriter::try_new(Vec::new(), schema)?;
            stream.finish()?;
            Ok(stream.into_inner()?)
        };
        for schema in &self.source_schemas {
            append_section(&mut out, SCHEMA_SECTION, &encoded(schema)?)?;
        }
        if let Some(schema) = &self.output_schema {
            append_section(&mut out, OUTPUT_SCHEMA_SECTION, &encoded(schema)?)?;
        }
        for batches in &self.build_sides {
            append_section(&mut out, BUILD_SIDE_SECTION, &encode_json(&batches.len())?)?;
            for batch in batches {
                append_section(&mut out, BATCH_SECTION, &sections::encode_batch(batch)?)?;
            }
        }
        Ok(out)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<ClusterJob> {
        let rest = bytes
            .strip_prefix(JOB_MAGIC)
            .ok_or_else(|| corrupt_message_error("it is no job of this release"))?;
        let mut sections = SectionReader::new(rest);
        let (mut said, mut schemas, mut sides) = (None, Vec::new(), Vec::new());
        let mut output = None;
        while let Some((kind, content)) = sections.next_section().map_err(corrupt_message_error)? {
            match kind {
                JOB_SECTION => {
                    said = Some(
                        serde_json::from_slice(content)
                            .map_err(|e| corrupt_message_error(&e.to_string()))?,
                    );
                }
                SCHEMA_SECTION => schemas.push(decode_schema(content)?),
                OUTPUT_SCHEMA_SECTION => output = Some(decode_schema(content)?),
                BUILD_SIDE_SECTION => sides.push(Vec::new()),
                BATCH_SECTION => {
                    let side =
                        sides.last_mut().ok_or_else(|| corrupt_message_error("rows of no side"))?;
                    side.extend(
                        sections::decode_batches(content)
                            .map_err(|why| corrupt_message_error(&why))?,
                    );
                }
                _ => return Err(corrupt_message_error("a section of an unknown kind")),
            }
        }
        let said: JobHeader = said.ok_or_else(|| corrupt_message_error("it says nothing"))?;
        if said.names.len() != schemas.len() || schemas.is_empty() {
            return Err(corrupt_message_error("its sources are not its columns'"));
        }
        Ok(ClusterJob {
            header: said,
            source_schemas: schemas,
            build_sides: sides,
            output_schema: output,
        })
    }
}

fn decode_schema(content: &[u8]) -> Result<SchemaRef> {
    let stream = StreamReader::try_new(content, None)?;
    Ok(Arc::clone(&stream.schema()))
}

/// Returns the error for an invalid job, task or task result.
pub(super) fn corrupt_message_error(why: &str) -> Error {
    Error::Corrupt {
        path: "a worker's message".to_owned(),
        offset: None,
        reason: why.to_owned(),
        hint: Some("the same release of tidemill has to be on all machines".to_owned()),
    }
}

pub(super) fn encode_json<T: Serialize>(of: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(of).map_err(|error| Error::Internal(format!("no JSON: {error}")))
}

/// Appends a section. Writing to a vector does not fail.
pub(super) fn append_section(out: &mut Vec<u8>, kind: u8, content: &[u8]) -> Result<()> {
    sections::write_section(out, kind, content)
        .map_err(|e| Error::io("write", "a worker's message", e))
}
