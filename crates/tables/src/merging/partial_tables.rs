//! Partial tables on disk: groups and states that another run can merge.
//!
//! A partial table contains its query, the schemas of the sources that the query was planned against, the
//! groups with their states, and the coverage of the run that wrote it. A merge plans the query again over
//! these schemas without files, and thus gets the same spec and the same finish plan; states of another spec
//! are rejected. The file also lists the runs whose rows it contains, so that no run is counted twice.
//! `docs/formats/partial.md` describes the layout byte by byte:
//!
//! ```text
//!   "TIDEPART"  version
//!   section: 'H' length crc32 │ Arrow IPC stream: the source's schema, query and runs in its metadata
//!   section: 'S' length crc32 │ Arrow IPC stream: the schema of a source that was joined     (any number)
//!   section: 'G' length crc32 │ Arrow IPC stream: one batch of keys and states        (any number)
//!   section: 'E' length crc32 │ JSON: the coverage                                    (the end)
//! ```
//!
//! A checksum covers its section's kind, length and content, so that every byte is covered. A file that ends
//! before its 'E' section was truncated and is rejected as a whole.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use tidemill_base::coverage::{Coverage, ReadAmount, RecordCounts};
use tidemill_base::error::{Error, Result};
use tidemill_base::hex::encode_hex;
use tidemill_base::type_mismatches::TypeMismatches;
use tidemill_base::unknown_keys::UnknownKeys;

use crate::merging::chunk_spills::slice_batch;
use crate::merging::sections::{self, SECTION_HEADER_BYTES, section_checksum};

const MAGIC: &[u8; 8] = b"TIDEPART";

/// The version of the layout. Version 2 does not record runs; version 1 has no 'S' sections either.
pub const FORMAT_VERSION: u32 = 3;

const HEADER_SECTION: u8 = b'H';
const JOINED_SCHEMA_SECTION: u8 = b'S';
const GROUPS_SECTION: u8 = b'G';
const END_SECTION: u8 = b'E';

/// The header of a partial table: the query, its sources and the runs.
#[derive(Debug, Clone)]
pub struct PartialTableHeader {
    /// The query.
    pub sql: String,
    /// The query's name of the source that was read in splits.
    pub source_name: String,
    /// The schema of that source.
    pub source_schema: SchemaRef,
    /// Name and schema of each further source.
    pub joined_sources: Vec<(String, SchemaRef)>,
    /// One line per key and state, by which a merge recognizes the same spec.
    pub table_description: Vec<String>,
    /// The runs whose rows the table contains; empty if an earlier release wrote it.
    pub runs: Vec<PartialRun>,
}

/// A run whose rows are in a partial table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialRun {
    /// The run's name; for a table that does not record it, `table-` and a digest of the table.
    pub run: String,
    /// The sources that the run read.
    pub sources: Vec<PartialRunSource>,
}

/// A source that a run read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialRunSource {
    /// The source's name in the query.
    pub name: String,
    /// Number of files.
    pub files: u64,
    /// Size of the files as stored, in bytes.
    pub bytes: u64,
}

/// Writes a partial table.
pub struct PartialTableWriter<W: Write> {
    out: W,
    bytes_written: u64,
    path: String,
}

impl<W: Write> PartialTableWriter<W> {
    /// Writes the header to `out`; `path` is its name in messages.
    ///
    /// # Errors
    /// Returns write errors.
    pub fn new(out: W, path: &Path, header: &PartialTableHeader) -> Result<Self> {
        let mut writer =
            PartialTableWriter { out, bytes_written: 0, path: path.display().to_string() };
        let mut start = MAGIC.to_vec();
        start.extend(FORMAT_VERSION.to_le_bytes());
        writer.write_unframed(&start)?;
        let runs = serde_json::to_string(&header.runs)
            .map_err(|e| Error::Internal(format!("a table's runs are no JSON: {e}")))?;
        let metadata = HashMap::from([
            ("tidemill.sql".to_string(), header.sql.clone()),
            ("tidemill.source".to_string(), header.source_name.clone()),
            ("tidemill.tables".to_string(), header.table_description.join("\n")),
            ("tidemill.runs".to_string(), runs),
        ]);
        writer.write_schema(HEADER_SECTION, &header.source_schema, metadata)?;
        for (name, schema) in &header.joined_sources {
            let metadata = HashMap::from([("tidemill.source".to_string(), name.clone())]);
            writer.write_schema(JOINED_SCHEMA_SECTION, schema, metadata)?;
        }
        Ok(writer)
    }

    fn write_schema(
        &mut self,
        kind: u8,
        schema: &Schema,
        metadata: HashMap<String, String>,
    ) -> Result<()> {
        let schema = Schema::new_with_metadata(schema.fields().clone(), metadata);
        let mut stream = StreamWriter::try_new(Vec::new(), &schema)?;
        stream.finish()?;
        self.write_section(kind, &stream.into_inner()?)
    }

    /// Appends groups, as
    /// [`MergedTable::next_encoded_groups`](crate::merging::merge::MergedTable::next_encoded_groups) returns them.
    ///
    /// # Errors
    /// Returns write errors.
    pub fn write_groups(&mut self, groups: &RecordBatch) -> Result<()> {
        for batch in slice_batch(groups) {
            let batch = batch?;
            self.write_section(GROUPS_SECTION, &sections::encode_batch(&batch)?)?;
        }
        Ok(())
    }

    /// Writes the end section; returns the output and the number of bytes written.
    ///
    /// # Errors
    /// Returns write errors.
    pub fn finish(mut self, coverage: &Coverage) -> Result<(W, u64)> {
        let json = serde_json::to_vec(coverage)
            .map_err(|e| Error::Internal(format!("a coverage is no JSON: {e}")))?;
        self.write_section(END_SECTION, &json)?;
        Ok((self.out, self.bytes_written))
    }

    fn write_section(&mut self, kind: u8, content: &[u8]) -> Result<()> {
        let written = sections::write_section(&mut self.out, kind, content);
        written.map_err(|e| Error::io("write", &self.path, e))?;
        self.bytes_written += (SECTION_HEADER_BYTES + content.len()) as u64;
        Ok(())
    }

    fn write_unframed(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|e| Error::io("write", &self.path, e))?;
        self.bytes_written += bytes.len() as u64;
        Ok(())
    }
}

/// Reads a partial table.
pub struct PartialTableReader {
    path: PathBuf,
    file: BufReader<File>,
    bytes_left: u64,
    offset: u64,
    version: u32,
    header: PartialTableHeader,
    /// A digest of the sections read so far.
    digest: Md5,
    /// The section after the last schema, which was read to find that it is none.
    peeked_section: Option<(u8, Vec<u8>)>,
    coverage: Option<Coverage>,
}

impl PartialTableReader {
    /// Opens a partial table and reads its header.
    ///
    /// # Errors
    /// Returns [`Error::NotFound`] for a missing file, and [`Error::Corrupt`] for anything that is not a
    /// partial table or has a newer version.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io("read", path, e))?;
        let left = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
        let header = PartialTableHeader {
            sql: String::new(),
            source_name: String::new(),
            source_schema: Arc::new(Schema::empty()),
            joined_sources: Vec::new(),
            table_description: Vec::new(),
            runs: Vec::new(),
        };
        let file = BufReader::with_capacity(1 << 20, file);
        let path = path.to_path_buf();
        let mut reader = PartialTableReader {
            path,
            file,
            bytes_left: left,
            offset: 0,
            version: 0,
            header,
            digest: Md5::new(),
            peeked_section: None,
            coverage: None,
        };
        let mut start = [0; 12];
        if reader.bytes_left < start.len() as u64 {
            return Err(reader.corrupt_error("it is too short for a partial table"));
        }
        reader.read_exact_bytes(&mut start)?;
        if &start[..8] != MAGIC {
            let hint = "partial tables are made by `tidemill run JOB --partial OUT`";
            return Err(reader.corrupt_error_with_hint("it is no partial table", Some(hint)));
        }
        let version = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if !(1..=FORMAT_VERSION).contains(&version) {
            let reason =
                format!("it is of version {version}; this release reads 1 to {FORMAT_VERSION}");
            let hint = (version > FORMAT_VERSION).then_some("use a newer tidemill");
            return Err(reader.corrupt_error_with_hint(&reason, hint));
        }
        reader.version = version;
        let (kind, content) = reader.read_section()?;
        if kind != HEADER_SECTION {
            return Err(reader.corrupt_error("its header is missing"));
        }
        reader.header = reader.parse_header(&content)?;
        loop {
            let (kind, content) = reader.read_section()?;
            if kind != JOINED_SCHEMA_SECTION || version == 1 {
                reader.peeked_section = Some((kind, content));
                return Ok(reader);
            }
            let (entries, schema) = reader.parse_schema(&content)?;
            reader
                .header
                .joined_sources
                .push((reader.header_entry(&entries, "tidemill.source")?, schema));
        }
    }

    /// Returns the header.
    pub fn header(&self) -> &PartialTableHeader {
        &self.header
    }

    /// Returns the coverage of the run that wrote the table; known once all groups have been read.
    pub fn coverage(&self) -> Option<&Coverage> {
        self.coverage.as_ref()
    }

    /// Returns the runs whose rows the table contains; complete once all groups have been read. A table that
    /// does not record its runs counts as a run itself, identified by its content.
    pub fn runs(&self) -> Vec<PartialRun> {
        if !self.header.runs.is_empty() || self.coverage.is_none() {
            return self.header.runs.clone();
        }
        let digest = self.digest.clone().finalize();
        vec![PartialRun { run: format!("table-{}", encode_hex(digest)), sources: Vec::new() }]
    }

    /// Returns true if an earlier release wrote the table, which did not record its runs.
    pub fn has_unknown_runs(&self) -> bool {
        self.version < 3
    }

    /// Returns the next encoded groups; `None` at the end.
    ///
    /// # Errors
    /// Returns [`Error::Corrupt`] for damaged or truncated data.
    pub fn next_groups(&mut self) -> Result<Option<RecordBatch>> {
        if self.coverage.is_some() {
            return Ok(None);
        }
        let (kind, content) = match self.peeked_section.take() {
            Some(section) => section,
            None => self.read_section()?,
        };
        match kind {
            GROUPS_SECTION => {
                let batch = self.decode_arrow("groups", &content, || {
                    StreamReader::try_new(&content[..], None)?.next().transpose()
                })?;
                let empty = || self.corrupt_error("a section of groups is empty");
                Ok(Some(batch.ok_or_else(empty)?))
            }
            END_SECTION => {
                let coverage = serde_json::from_slice(&content).map_err(|e| {
                    self.corrupt_error(&format!("its coverage cannot be read: {e}"))
                })?;
                if self.bytes_left > 0 {
                    return Err(self.corrupt_error("bytes follow its end"));
                }
                self.coverage = Some(coverage);
                Ok(None)
            }
            other => Err(self.corrupt_error(&format!("a section is of unknown kind {other}"))),
        }
    }

    fn parse_header(&self, content: &[u8]) -> Result<PartialTableHeader> {
        let (entries, schema) = self.parse_schema(content)?;
        let tables = self.header_entry(&entries, "tidemill.tables")?;
        let runs = match self.has_unknown_runs() {
            true if entries.contains_key("tidemill.runs") => {
                return Err(self.corrupt_error("its version is not that of its header"));
            }
            true => Vec::new(),
            false => serde_json::from_str(&self.header_entry(&entries, "tidemill.runs")?)
                .map_err(|e| self.corrupt_error(&format!("its runs cannot be read: {e}")))?,
        };
        Ok(PartialTableHeader {
            runs,
            sql: self.header_entry(&entries, "tidemill.sql")?,
            source_name: self.header_entry(&entries, "tidemill.source")?,
            source_schema: schema,
            joined_sources: Vec::new(),
            table_description: tables.lines().map(str::to_string).collect(),
        })
    }

    /// Parses a schema and its metadata.
    fn parse_schema(&self, content: &[u8]) -> Result<(HashMap<String, String>, SchemaRef)> {
        let schema = self.decode_arrow("its header", content, || {
            Ok(StreamReader::try_new(content, None)?.schema())
        })?;
        Ok((schema.metadata().clone(), Arc::new(Schema::new(schema.fields().clone()))))
    }

    /// Decodes a section with Arrow's reader.
    fn decode_arrow<T>(
        &self,
        what: &str,
        content: &[u8],
        read: impl FnOnce() -> Result<T, ArrowError>,
    ) -> Result<T> {
        sections::decode_arrow_stream(content, read)
            .map_err(|why| self.corrupt_error(&format!("{what} cannot be read: {why}")))
    }

    fn header_entry(&self, entries: &HashMap<String, String>, key: &str) -> Result<String> {
        let missing = || self.corrupt_error(&format!("its header lacks `{key}`"));
        entries.get(key).cloned().ok_or_else(missing)
    }

    fn read_section(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; SECTION_HEADER_BYTES];
        if self.bytes_left < head.len() as u64 {
            return Err(self.corrupt_error("it was cut off: its end is missing"));
        }
        self.read_exact_bytes(&mut head)?;
        let mut length = [0; 8];
        length.copy_from_slice(&head[1..9]);
        let length = u64::from_le_bytes(length);
        if length > self.bytes_left {
            return Err(self.corrupt_error("it was cut off in a section"));
        }
        // The length is at most the rest of the file, which bounds the allocation.
        let size =
            usize::try_from(length).map_err(|_| self.corrupt_error("a section is too long"))?;
        let mut content = vec![0; size];
        self.read_exact_bytes(&mut content)?;
        let sum = u32::from_le_bytes([head[9], head[10], head[11], head[12]]);
        if section_checksum(&head[..9], &content) != sum {
            return Err(self.corrupt_error("the checksum of a section does not hold"));
        }
        self.digest.update(head);
        Ok((head[0], content))
    }

    fn read_exact_bytes(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact(bytes).map_err(|e| Error::io("read", &self.path, e))?;
        self.bytes_left -= bytes.len() as u64;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn corrupt_error(&self, reason: &str) -> Error {
        self.corrupt_error_with_hint(reason, None)
    }

    fn corrupt_error_with_hint(&self, reason: &str, hint: Option<&str>) -> Error {
        Error::Corrupt {
            path: self.path.display().to_string(),
            offset: Some(self.offset),
            reason: reason.to_string(),
            hint: hint.map(str::to_string),
        }
    }
}

/// Returns the combined coverage of several runs. Estimates are left out: the merge computes them anew.
pub fn merge_coverages(coverages: &[Coverage]) -> Coverage {
    let sum = |of: fn(&Coverage) -> ReadAmount| {
        coverages.iter().map(of).fold(ReadAmount::default(), |a, b| ReadAmount {
            done: a.done + b.done,
            total: a.total + b.total,
            left_out: a.left_out + b.left_out,
        })
    };
    let mut unknown_keys = UnknownKeys::default();
    coverages.iter().for_each(|coverage| unknown_keys.merge(&coverage.unknown_keys));
    let mut mismatches = TypeMismatches::default();
    coverages.iter().for_each(|coverage| mismatches.merge(&coverage.mismatches));
    Coverage {
        version: tidemill_base::coverage::COVERAGE_VERSION,
        complete: coverages.iter().all(|coverage| coverage.complete),
        mergeable: true,
        files: coverages.iter().map(|coverage| coverage.files).sum(),
        splits: sum(|coverage| coverage.splits),
        bytes: sum(|coverage| coverage.bytes),
        rows: RecordCounts {
            done: coverages.iter().map(|coverage| coverage.rows.done).sum(),
            rejected: coverages.iter().map(|coverage| coverage.rows.rejected).sum(),
        },
        stopped: coverages.iter().find_map(|coverage| coverage.stopped.clone()),
        rejected_copy: None,
        estimates: Vec::new(),
        sampled: None,
        salvaged: coverages.iter().flat_map(|coverage| coverage.salvaged.clone()).collect(),
        unknown_keys,
        mismatches,
        first_rejected: Vec::new(),
    }
}
