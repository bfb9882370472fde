//! Partial tables on disk: groups and states that another run can merge.
//!
//! A partial table holds the query it belongs to, the schemas of the sources it was planned
//! against, the groups with their states, and the coverage of the run that made it. Merging
//! plans the query again over that schema, with no files, and so finds the same spec and the
//! same finish; states of another spec are refused. It also knows the runs whose rows are in it, so
//! that none is counted twice. The layout, byte by byte, is in `docs/formats/partial.md`:
//!
//! ```text
//!   "TIDEPART"  version
//!   section: 'H' length crc32 │ Arrow IPC stream: the source's schema, query and runs in its metadata
//!   section: 'S' length crc32 │ Arrow IPC stream: the schema of a source that was joined     (any number)
//!   section: 'G' length crc32 │ Arrow IPC stream: one batch of keys and states        (any number)
//!   section: 'E' length crc32 │ JSON: the coverage                                    (the end)
//! ```
//!
//! A checksum is of its section's kind, length and content, so that every byte is covered. A
//! file that ends before its 'E' section was cut off and is refused as a whole.

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

use crate::sections::{self, HEAD_BYTES, checksum};
use crate::spill::slices;

const MAGIC: &[u8; 8] = b"TIDEPART";

/// The version of the layout. Version 2 does not know its runs; version 1 has no 'S' section either.
pub const VERSION: u32 = 3;

const HEADER: u8 = b'H';
const JOINED: u8 = b'S';
const GROUPS: u8 = b'G';
const END: u8 = b'E';

/// What a partial table is of.
#[derive(Debug, Clone)]
pub struct Header {
    /// The query.
    pub sql: String,
    /// The name that the query knows the source by which was read in splits.
    pub source: String,
    /// That source's schema.
    pub schema: SchemaRef,
    /// Name and schema of each further source.
    pub others: Vec<(String, SchemaRef)>,
    /// A line per key and state.
    pub tables: Vec<String>,
    /// The runs whose rows are in it; none is known where an earlier release wrote it.
    pub runs: Vec<PartialRun>,
}

/// A run whose rows are in a partial table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialRun {
    /// The run's name; of a table that does not know it, `table-` and a digest of the table.
    pub run: String,
    /// What it read.
    pub sources: Vec<PartialSource>,
}

/// A source that a run read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialSource {
    /// Its name in the query.
    pub name: String,
    /// How many files it had.
    pub files: u64,
    /// Their bytes, as stored.
    pub bytes: u64,
}

/// A partial table in writing.
pub struct PartialWriter<W: Write> {
    out: W,
    bytes: u64,
    path: String,
}

impl<W: Write> PartialWriter<W> {
    /// Writes the header to `out`, which messages call `path`.
    ///
    /// # Errors
    /// As writing.
    pub fn new(out: W, path: &Path, header: &Header) -> Result<Self> {
        let mut writer = PartialWriter { out, bytes: 0, path: path.display().to_string() };
        let mut start = MAGIC.to_vec();
        start.extend(VERSION.to_le_bytes());
        writer.put(&start)?;
        let runs = serde_json::to_string(&header.runs)
            .map_err(|e| Error::Internal(format!("a table's runs are no JSON: {e}")))?;
        let metadata = HashMap::from([
            ("tidemill.sql".to_string(), header.sql.clone()),
            ("tidemill.source".to_string(), header.source.clone()),
            ("tidemill.tables".to_string(), header.tables.join("\n")),
            ("tidemill.runs".to_string(), runs),
        ]);
        writer.schema(HEADER, &header.schema, metadata)?;
        for (name, schema) in &header.others {
            let metadata = HashMap::from([("tidemill.source".to_string(), name.clone())]);
            writer.schema(JOINED, schema, metadata)?;
        }
        Ok(writer)
    }

    fn schema(
        &mut self,
        kind: u8,
        schema: &Schema,
        metadata: HashMap<String, String>,
    ) -> Result<()> {
        let schema = Schema::new_with_metadata(schema.fields().clone(), metadata);
        let mut stream = StreamWriter::try_new(Vec::new(), &schema)?;
        stream.finish()?;
        self.section(kind, &stream.into_inner()?)
    }

    /// Appends groups, as [`Merged::next_groups`](crate::merge::Merged::next_groups) gives them.
    ///
    /// # Errors
    /// As writing.
    pub fn write(&mut self, groups: &RecordBatch) -> Result<()> {
        for batch in slices(groups) {
            let batch = batch?;
            self.section(GROUPS, &sections::encoded(&batch)?)?;
        }
        Ok(())
    }

    /// Writes the end; gives the output back with the bytes written.
    ///
    /// # Errors
    /// As writing.
    pub fn finish(mut self, coverage: &Coverage) -> Result<(W, u64)> {
        let json = serde_json::to_vec(coverage)
            .map_err(|e| Error::Internal(format!("a coverage is no JSON: {e}")))?;
        self.section(END, &json)?;
        Ok((self.out, self.bytes))
    }

    fn section(&mut self, kind: u8, content: &[u8]) -> Result<()> {
        let written = sections::write(&mut self.out, kind, content);
        written.map_err(|e| Error::io("write", &self.path, e))?;
        self.bytes += (HEAD_BYTES + content.len()) as u64;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|e| Error::io("write", &self.path, e))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// A partial table being read.
pub struct PartialReader {
    path: PathBuf,
    file: BufReader<File>,
    left: u64,
    at: u64,
    version: u32,
    header: Header,
    /// Of what was read so far, by the checksums of its sections.
    digest: Md5,
    /// The section behind the header, which was read to see that it is no schema.
    ahead: Option<(u8, Vec<u8>)>,
    coverage: Option<Coverage>,
}

impl PartialReader {
    /// Opens a partial table and reads its header.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Corrupt`] for anything that is no partial table, or one
    /// of a newer version.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io("read", path, e))?;
        let left = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
        let header = Header {
            sql: String::new(),
            source: String::new(),
            schema: Arc::new(Schema::empty()),
            others: Vec::new(),
            tables: Vec::new(),
            runs: Vec::new(),
        };
        let file = BufReader::with_capacity(1 << 20, file);
        let path = path.to_path_buf();
        let mut reader = PartialReader {
            path,
            file,
            left,
            at: 0,
            version: 0,
            header,
            digest: Md5::new(),
            ahead: None,
            coverage: None,
        };
        let mut start = [0; 12];
        if reader.left < start.len() as u64 {
            return Err(reader.corrupt("it is too short for a partial table"));
        }
        reader.take(&mut start)?;
        if &start[..8] != MAGIC {
            let hint = "partial tables are made by `tidemill run JOB --partial OUT`";
            return Err(reader.corrupt_with("it is no partial table", Some(hint)));
        }
        let version = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if !(1..=VERSION).contains(&version) {
            let reason = format!("it is of version {version}; this release reads 1 to {VERSION}");
            let hint = (version > VERSION).then_some("use a newer tidemill");
            return Err(reader.corrupt_with(&reason, hint));
        }
        reader.version = version;
        let (kind, content) = reader.section()?;
        if kind != HEADER {
            return Err(reader.corrupt("its header is missing"));
        }
        reader.header = reader.parse_header(&content)?;
        loop {
            let (kind, content) = reader.section()?;
            if kind != JOINED || version == 1 {
                reader.ahead = Some((kind, content));
                return Ok(reader);
            }
            let (entries, schema) = reader.parse_schema(&content)?;
            reader.header.others.push((reader.entry(&entries, "tidemill.source")?, schema));
        }
    }

    /// What it is of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The coverage of the run that made it; known once all groups were read.
    pub fn coverage(&self) -> Option<&Coverage> {
        self.coverage.as_ref()
    }

    /// The runs whose rows are in it; known for certain once all groups were read. A table that does
    /// not know them is itself one, by its content.
    pub fn runs(&self) -> Vec<PartialRun> {
        if !self.header.runs.is_empty() || self.coverage.is_none() {
            return self.header.runs.clone();
        }
        let digest = self.digest.clone().finalize();
        vec![PartialRun { run: format!("table-{}", encode_hex(digest)), sources: Vec::new() }]
    }

    /// Whether an earlier release wrote it, which did not keep a table's runs.
    pub fn is_of_unknown_run(&self) -> bool {
        self.version < 3
    }

    /// The next groups, encoded; none at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn next_groups(&mut self) -> Result<Option<RecordBatch>> {
        if self.coverage.is_some() {
            return Ok(None);
        }
        let (kind, content) = match self.ahead.take() {
            Some(section) => section,
            None => self.section()?,
        };
        match kind {
            GROUPS => {
                let batch = self.decoded("groups", &content, || {
                    StreamReader::try_new(&content[..], None)?.next().transpose()
                })?;
                let empty = || self.corrupt("a section of groups is empty");
                Ok(Some(batch.ok_or_else(empty)?))
            }
            END => {
                let coverage = serde_json::from_slice(&content)
                    .map_err(|e| self.corrupt(&format!("its coverage cannot be read: {e}")))?;
                if self.left > 0 {
                    return Err(self.corrupt("bytes follow its end"));
                }
                self.coverage = Some(coverage);
                Ok(None)
            }
            other => Err(self.corrupt(&format!("a section is of unknown kind {other}"))),
        }
    }

    fn parse_header(&self, content: &[u8]) -> Result<Header> {
        let (entries, schema) = self.parse_schema(content)?;
        let tables = self.entry(&entries, "tidemill.tables")?;
        let runs = match self.is_of_unknown_run() {
            true if entries.contains_key("tidemill.runs") => {
                return Err(self.corrupt("its version is not that of its header"));
            }
            true => Vec::new(),
            false => serde_json::from_str(&self.entry(&entries, "tidemill.runs")?)
                .map_err(|e| self.corrupt(&format!("its runs cannot be read: {e}")))?,
        };
        Ok(Header {
            runs,
            sql: self.entry(&entries, "tidemill.sql")?,
            source: self.entry(&entries, "tidemill.source")?,
            schema,
            others: Vec::new(),
            tables: tables.lines().map(str::to_string).collect(),
        })
    }

    /// A schema and its metadata.
    fn parse_schema(&self, content: &[u8]) -> Result<(HashMap<String, String>, SchemaRef)> {
        let schema = self.decoded("its header", content, || {
            Ok(StreamReader::try_new(content, None)?.schema())
        })?;
        Ok((schema.metadata().clone(), Arc::new(Schema::new(schema.fields().clone()))))
    }

    /// What Arrow's reader gives of a section.
    fn decoded<T>(
        &self,
        what: &str,
        content: &[u8],
        read: impl FnOnce() -> Result<T, ArrowError>,
    ) -> Result<T> {
        sections::decoded(content, read)
            .map_err(|why| self.corrupt(&format!("{what} cannot be read: {why}")))
    }

    fn entry(&self, entries: &HashMap<String, String>, key: &str) -> Result<String> {
        let missing = || self.corrupt(&format!("its header lacks `{key}`"));
        entries.get(key).cloned().ok_or_else(missing)
    }

    fn section(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; HEAD_BYTES];
        if self.left < head.len() as u64 {
            return Err(self.corrupt("it was cut off: its end is missing"));
        }
        self.take(&mut head)?;
        let mut length = [0; 8];
        length.copy_from_slice(&head[1..9]);
        let length = u64::from_le_bytes(length);
        if length > self.left {
            return Err(self.corrupt("it was cut off in a section"));
        }
        // No more is allocated than the file holds.
        let size = usize::try_from(length).map_err(|_| self.corrupt("a section is too long"))?;
        let mut content = vec![0; size];
        self.take(&mut content)?;
        let sum = u32::from_le_bytes([head[9], head[10], head[11], head[12]]);
        if checksum(&head[..9], &content) != sum {
            return Err(self.corrupt("the checksum of a section does not hold"));
        }
        self.digest.update(head);
        Ok((head[0], content))
    }

    fn take(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact(bytes).map_err(|e| Error::io("read", &self.path, e))?;
        self.left -= bytes.len() as u64;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn corrupt(&self, reason: &str) -> Error {
        self.corrupt_with(reason, None)
    }

    fn corrupt_with(&self, reason: &str, hint: Option<&str>) -> Error {
        Error::Corrupt {
            path: self.path.display().to_string(),
            offset: Some(self.at),
            reason: reason.to_string(),
            hint: hint.map(str::to_string),
        }
    }
}

/// The coverage of several runs together. Estimates are left out: they are known anew after
/// the merge.
pub fn together(coverages: &[Coverage]) -> Coverage {
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
