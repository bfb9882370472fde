//! Sources: lists files, detects formats, infers schemas, cuts splits and reads them as Arrow batches.
//!
//! ```text
//!   URL ── listing ── files ── source_sample · file_columns · type_unification ── schema and layouts
//!                       └── split ── splits ── split_reader ─┬ byte_input · compression · filter_program
//!                                                            ├ text_blocks           (whole records)
//!                                                            └ formats · reject_log  (batches)
//! ```
//!
//! This crate is synchronous and knows nothing of the query engine. [`remote`](tidemill_remote) fetches
//! remote data. [`Source::open`] opens a source once; the source is cut into [`Split`]s, and a
//! [`SplitReader`] reads each split on any thread.
//!
//! **One string type.** Text columns are `Utf8View` in every format. Group keys are mostly short strings, and
//! a view holds a short string within its 16 bytes, so that neither decoding nor grouping follows a pointer.
//! DataFusion reads Parquet in the same way. Map keys are `Utf8`, because SQL literals that are compared with
//! them have that type.
//!
//! **Speculation.** A quoted CSV field may hold line ends, so the reader of a split in the middle of a file
//! guesses the offset of its first record ([`tidemill_text::record_boundaries`]). The guess is nearly always right and
//! always checked: see [`SplitReader::first_record_offset`].
//!
//! **Errors.** [`Error`] lists the failures of this crate. Converting it to [`tidemill_base::Error`] adds the
//! hint and the exit status that the user sees.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::cast_possible_truncation
    )
)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, StringViewArray, new_null_array};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_text::syslog::SyslogFraming;
use tidemill_text::{KnownKeys, record_boundaries, value_parsing};

pub use files::rowfile_salvage::error_from_rowfile;
use formats::FileMetadata;
use formats::LogLineFormat;
use formats::delimited::{RejectedSample, SuspectTextColumn, suspect_columns_warning};
pub use formats::rowfile::RowfileFooterStatistics;
use schema::column_layouts::FileColumns;
use schema::promoted_records::{PromotedColumn, PromotedRecord};
use splits::text_blocks::RecordFraming;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::SalvagedFile;
use tidemill_remote::StorageOptions;
use tidemill_remote::object::Object;

use crate::programs::filter_program::FilterProgram;

mod error;
pub mod files;
pub mod formats;
pub mod posted_source;
pub mod programs;
mod read_options;
mod rejects;
pub mod schema;
mod source_description;
mod source_opening;
mod splits;
#[cfg(test)]
mod tests;

pub use error::{Error, Result};
pub use files::byte_input::{FileIdentity, standard_input};
pub use files::compression::{COMPRESSION_MAGIC_BYTES, Compression, decompressing_reader};
pub use files::confinement::{check_url_count, confine_process};
pub use files::listing::parse_partition_keys;
pub use files::listing::{is_ignored_name, list_paths, list_with_relative_paths};
pub use files::unresponsive_files::{OpenTimeouts, SkippedFile};
pub use formats::{Format, MemoryRows};
pub use read_options::ReadOptions;
pub use rejects::reject_log::RejectLog;
pub use schema::column_layouts::ColumnLayoutPolicy;
pub use schema::content_detection::detect_compression;
pub use schema::field_promotion::FieldPromotion;
pub use schema::hidden_columns::HiddenColumn;
pub use schema::text_options::{
    CsvDialect, TextOptions, TypeMismatchPolicy, parse_framing, parse_log_format,
    parse_option_character,
};
pub use source_description::{
    FileDescription, SourceDescription, SourceReopener, SpecDescription, SplitDescription,
    SplitStatsDescription,
};
pub use splits::split::{
    Split, SplitOptions, SplitPart, known_split_rows, sample_split_target_bytes, split_target_bytes,
};
pub use splits::split_reader::{SplitReader, SplitStats};

/// The definition of a source, as a job or a command gives it.
#[derive(Debug, Clone, Default)]
pub struct SourceSpec {
    /// A path, a URL (`file://`, `s3://`, `http://`, `https://`), a pattern, a folder, or `-` for standard
    /// input.
    pub url: String,
    /// Further paths, URLs and patterns; their files follow those of `url` in this order.
    pub more_urls: Vec<String>,
    /// The format. Default: the files' suffixes determine it.
    pub format: Option<Format>,
    /// Options of text formats.
    pub text_options: TextOptions,
    /// Types that override the inferred ones, by column name.
    pub declared_schema: Option<SchemaRef>,
    /// Policy for files with different columns. Default: files may differ.
    pub layout_policy: Option<ColumnLayoutPolicy>,
    /// Columns that hold records whose fields become columns of the source. Default: none.
    pub promotions: Vec<FieldPromotion>,
    /// A program that filters each file's decompressed bytes before they are read as the format. Without a
    /// URL, the program's output is the source. Default: none.
    pub filter_program: Option<FilterProgram>,
    /// Options for object stores, in addition to the environment's. Default: none.
    pub storage_options: StorageOptions,
    /// Reads every intact block of a damaged or truncated rowfile and skips the rest instead of failing.
    /// Default: false.
    pub salvage_damaged: bool,
    /// Rows in memory that replace files; messages show the URL as their name. Default: none.
    pub memory_rows: Option<Arc<MemoryRows>>,
    /// Hidden columns that are exposed under these names behind the other columns. Default: none.
    pub exposed_hidden_columns: Vec<(HiddenColumn, String)>,
    /// The folder that relative URLs are resolved against. Another process recorded them there, so they name
    /// plain files, and messages and columns show them unchanged. Default: none; URLs refer to this process's
    /// folder and may be patterns or folders.
    pub base_folder: Option<PathBuf>,
}

impl SourceSpec {
    /// Returns the declared format; a `log_format` option declares an access log.
    pub fn declared_format(&self) -> Option<Format> {
        let described = || self.text_options.log_format.is_some().then_some(Format::AccessLog);
        self.format.or_else(described)
    }

    /// Returns all URLs of the source.
    pub fn urls(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.url).chain(&self.more_urls)
    }
}

/// Location of a file's bytes.
#[derive(Debug, Clone)]
pub(crate) enum FileLocation {
    /// A path on this machine.
    Local(PathBuf),
    /// A remote object.
    Object(Arc<Object>),
    /// Standard input, which can be read once.
    Stdin,
    /// Rows in memory.
    Memory(Arc<MemoryRows>),
}

/// Number of splits that a sample draws from remote files, unless splits would exceed 1 MiB.
const REMOTE_SAMPLE_SPLITS: u64 = 64;

/// A file of a source.
#[derive(Debug)]
pub struct SourceFile {
    location: FileLocation,
    display_name: Arc<str>,
    identity: FileIdentity,
    /// Compression that the file's name declares.
    named_compression: Compression,
    /// Compression that the file's first bytes show; set once they were inspected.
    detected_compression: OnceLock<Compression>,
    filter_program: Option<FilterProgram>,
    partition_keys: Vec<(String, Option<String>)>,
    index: usize,
    /// Line numbers at offsets that were looked up before.
    line_checkpoints: Mutex<BTreeMap<u64, u64>>,
    /// Metadata of a file of a typed format; set once it was inspected.
    metadata: OnceLock<Arc<dyn FileMetadata>>,
    /// True if intact blocks are read when the file is damaged.
    salvage_damaged: bool,
    /// Number of lines at the file's beginning that are neither header nor records.
    skipped_lines: u64,
    /// Offset of the header, or of the first record, in the decoded bytes; set once it is known.
    records_offset: OnceLock<u64>,
    /// True if the file can be read now; set once it was probed.
    is_readable: OnceLock<bool>,
    /// Reason for skipping the file, if it is skipped.
    skip_reason: OnceLock<files::unresponsive_files::SkipReason>,
    /// The run's cancel flag.
    cancel: CancelFlag,
    /// Path, URL or pattern of the source.
    source_name: Arc<str>,
}

impl SourceFile {
    /// Creates a file from a listing entry, with nothing else known yet.
    fn from_listing(
        found: files::listing::ListedFile,
        index: usize,
        compression: Compression,
        spec: &SourceSpec,
        source: &Arc<str>,
        cancel: &CancelFlag,
    ) -> Arc<Self> {
        Arc::new(Self {
            location: found.location,
            display_name: found.display_name,
            identity: found.identity,
            named_compression: compression,
            detected_compression: OnceLock::new(),
            filter_program: spec.filter_program.clone(),
            partition_keys: found.partition_keys,
            index,
            line_checkpoints: Mutex::default(),
            metadata: OnceLock::new(),
            salvage_damaged: spec.salvage_damaged,
            skipped_lines: spec.text_options.skipped_line_count(),
            records_offset: OnceLock::new(),
            is_readable: OnceLock::new(),
            skip_reason: OnceLock::new(),
            cancel: cancel.clone(),
            source_name: Arc::clone(source),
        })
    }

    /// Skips the file because it cannot be read.
    fn skip_unreadable(&self, reason: String) {
        let said = files::unresponsive_files::single_line_reason(reason, &self.display_name);
        let _ = self
            .skip_reason
            .set(files::unresponsive_files::SkipReason { message: said, is_unresponsive: false });
    }

    /// Skips the file because it does not respond.
    fn skip_unresponsive(&self, reason: String) {
        let said = files::unresponsive_files::single_line_reason(reason, &self.display_name);
        let _ = self
            .skip_reason
            .set(files::unresponsive_files::SkipReason { message: said, is_unresponsive: true });
    }

    /// Returns true if the file did not respond to its probe, although its split still reads it.
    pub fn is_unresponsive(&self) -> bool {
        self.is_readable.get() == Some(&false) && self.skip_reason.get().is_none()
    }

    /// Returns the last error of a remote file that reading met and retried.
    pub fn last_retried_error(&self) -> Option<String> {
        match &self.location {
            FileLocation::Object(object) => object.last_failure(),
            _ => None,
        }
    }

    /// Returns the metadata of a typed file, once it was inspected.
    fn metadata(&self) -> Option<&dyn FileMetadata> {
        self.metadata.get().map(AsRef::as_ref)
    }

    /// Returns the path on this machine, or an empty path.
    fn local_path_or_empty(&self) -> &Path {
        match &self.location {
            FileLocation::Local(path) => path,
            _ => Path::new(""),
        }
    }

    /// Returns the path or URL that messages and results show.
    pub fn display_name(&self) -> &str {
        &self.display_name
    }

    /// Returns the position among the source's files.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the stored size in bytes; 0 for standard input, and if the server does not tell.
    pub fn size(&self) -> u64 {
        self.identity.size
    }

    /// Returns the identity that distinguishes this version of the file.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Returns the compression: detected from the first bytes once they were inspected, else declared by the
    /// name.
    pub fn compression(&self) -> Compression {
        self.detected_compression.get().copied().unwrap_or(self.named_compression)
    }

    /// Returns the modification time in seconds since 1970; none for standard input.
    pub(crate) fn modified_seconds(&self) -> Option<i64> {
        let nanos = self.identity.modified_ns;
        let is_known = match &self.location {
            FileLocation::Local(_) => true,
            FileLocation::Object(_) => nanos != 0,
            FileLocation::Stdin | FileLocation::Memory(_) => false,
        };
        is_known.then(|| i64::try_from(nanos.div_euclid(1_000_000_000)).ok()).flatten()
    }

    /// Returns a copy of the file without cached metadata, line numbers or filter program.
    fn clone_unopened(&self) -> SourceFile {
        SourceFile {
            location: self.location.clone(),
            display_name: Arc::clone(&self.display_name),
            identity: self.identity,
            named_compression: self.named_compression,
            detected_compression: self.detected_compression.clone(),
            filter_program: None,
            partition_keys: Vec::new(),
            index: self.index,
            line_checkpoints: Mutex::default(),
            metadata: OnceLock::new(),
            salvage_damaged: self.salvage_damaged,
            skipped_lines: self.skipped_lines,
            records_offset: self.records_offset.clone(),
            is_readable: self.is_readable.clone(),
            skip_reason: self.skip_reason.clone(),
            cancel: self.cancel.clone(),
            source_name: Arc::clone(&self.source_name),
        }
    }

    /// Returns true if the stored bytes are read unchanged: neither compressed nor filtered.
    fn is_read_as_stored(&self) -> bool {
        self.compression() == Compression::None && self.filter_program.is_none()
    }

    /// Returns true for standard input, which can be read once.
    fn is_stdin(&self) -> bool {
        matches!(self.location, FileLocation::Stdin)
    }

    /// Returns true if the file can only be read front to back; its size may be unknown.
    pub fn is_stream(&self) -> bool {
        match &self.location {
            FileLocation::Local(_) => false,
            FileLocation::Object(object) => object.is_stream(),
            FileLocation::Stdin => true,
            FileLocation::Memory(given) => given.is_stream(),
        }
    }

    /// Returns a context for inspections that belong to no split reader.
    fn read_context(&self) -> files::byte_input::ByteReadContext {
        files::byte_input::ByteReadContext {
            cancel: self.cancel.clone(),
            ..files::byte_input::ByteReadContext::default()
        }
    }

    /// Returns the path on this machine, if the file is local.
    pub fn local_path(&self) -> Option<&Path> {
        self.is_local().then(|| self.local_path_or_empty())
    }

    /// Returns true for a file of this machine, which can be read at any offset.
    pub fn is_local(&self) -> bool {
        matches!(self.location, FileLocation::Local(_))
    }

    /// Returns the values of the `key=value` folders, outermost first.
    pub fn partition_keys(&self) -> &[(String, Option<String>)] {
        &self.partition_keys
    }

    /// Returns the number of the line that holds the byte at `offset`; the first line is 1.
    ///
    /// Counts line ends from the nearest offset that was looked up before, so that many bad records together
    /// cost one pass over the file.
    pub(crate) fn line_number_at(&self, offset: u64) -> Result<u64> {
        if self.is_stream() || !self.is_read_as_stored() {
            return Ok(0);
        }
        let mut lines = self.line_checkpoints.lock();
        let (mut at, mut line) =
            lines.range(..=offset).next_back().map_or((0, 1), |(at, line)| (*at, *line));
        if at < offset {
            let file = files::byte_input::OpenFile::open(
                self,
                files::byte_input::ReadPattern::UntilSplitEnd(offset),
                &self.read_context(),
            )?;
            let distance = usize::try_from(offset - at).unwrap_or(usize::MAX);
            let mut buffer = vec![0; distance.min(splits::text_blocks::READ_BYTES)];
            while at < offset {
                let wanted = usize::try_from(offset - at).unwrap_or(usize::MAX).min(buffer.len());
                let count = file.read_at(&mut buffer[..wanted], at)?;
                line += memchr::memchr_iter(b'\n', &buffer[..count]).count() as u64;
                at += count as u64;
                if count < wanted {
                    break;
                }
            }
            // Checkpoints need not be dense.
            let near = lines.range(..offset).next_back().is_some_and(|(at, _)| offset - at < 4096);
            if !near {
                lines.insert(offset, line);
            }
        }
        Ok(line)
    }
}

/// Origin of a source column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SourceColumnOrigin {
    /// The files' column at this position.
    File(usize),
    /// The folder key at this position.
    Key(usize),
    /// The promoted column at this position.
    Promoted(usize),
    /// A hidden column.
    Hidden(HiddenColumn),
}

/// A read-once stream, such as standard input, before a split reads it.
struct PendingStream {
    /// Bytes that inference has already taken.
    sampled_bytes: Vec<u8>,
    reader: Box<dyn Read + Send>,
    /// True after the reader has returned its last byte.
    has_ended: bool,
}

/// Files of one format as one table.
pub struct Source {
    spec: SourceSpec,
    format: Format,
    dialect: CsvDialect,
    /// Line layout of an access log.
    log_lines: LogLineFormat,
    /// Notes for the user about the sample.
    notes: Vec<String>,
    /// Text columns that would have another type but for a few marker words.
    marked_columns: Vec<SuspectTextColumn>,
    /// Line of the first file that is likely to be its header, if another line was taken for it.
    likely_header_line: Option<u64>,
    /// Set if all sampled records are malformed, so that they show no types.
    rejected_sample: Option<RejectedSample>,
    files: Vec<Arc<SourceFile>>,
    /// All columns of the files, and their positions in each file.
    columns: FileColumns,
    /// Origin of each column of `schema`, followed by the origins of the hidden columns.
    origins: Vec<SourceColumnOrigin>,
    /// Columns of the files whose records have promoted fields.
    promoted_records: Vec<PromotedRecord>,
    /// The columns that these fields become.
    promoted_columns: Vec<PromotedColumn>,
    schema: SchemaRef,
    hidden_columns: Vec<FieldRef>,
    pending_stdin: Mutex<Option<PendingStream>>,
    /// Prober for files that may not respond; none if the open has no deadline.
    prober: Option<Arc<files::unresponsive_files::FileProber>>,
    /// Low-cardinality text columns, by position, as far as they were checked.
    low_cardinality: Mutex<BTreeMap<usize, bool>>,
    long_record_ends: splits::split_boundaries::LongRecordEnds,
    /// Keys of the source's columns; set by the first reader.
    known_keys: OnceLock<Arc<KnownKeys>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("url", &self.spec.url)
            .field("format", &self.format)
            .field("files", &self.files.len())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Lists the files and determines their format and schema.
    ///
    /// Cost: one `stat` per file, or a request per 1,000 objects of a bucket. Text formats read a sample of
    /// the first files, the beginnings of up to 64 others, and every file's header if the format has headers.
    /// Parquet reads every file's footer.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Usage`], [`Error::Io`], [`Error::Corrupt`].
    pub fn open(spec: &SourceSpec) -> Result<Self> {
        Self::open_with_stdin(spec, files::byte_input::standard_input(), &CancelFlag::new())
    }

    /// Opens the source with the given standard input and a flag that cancels the sampling.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and [`Error::Interrupted`].
    pub fn open_with_stdin(
        spec: &SourceSpec,
        stdin: Box<dyn Read + Send>,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        source_opening::open_source(spec, stdin, cancel, None, None)
    }

    /// Opens the source under a deadline, without files that fail. The source [skips](Self::skipped_files)
    /// files that cannot be read and paths that are no files, as long as one file can be read. It does not
    /// wait for files that do not respond in time. Such files remain splits of their own for text
    /// ([`SourceFile::is_unresponsive`]); typed formats skip them, because their columns would be unknown.
    ///
    /// Pipes in a folder are skipped. A source that is a single pipe is read until the deadline.
    ///
    /// Cost: that of [`open_with_stdin`](Self::open_with_stdin), and about ten microseconds for each
    /// inspected file.
    ///
    /// # Errors
    /// Those of [`open_with_stdin`](Self::open_with_stdin), except for skipped files; [`Error::Io`] if
    /// nothing can be determined by the deadline. A hanging thread is then abandoned.
    pub fn open_with_timeouts(
        spec: &SourceSpec,
        stdin: Box<dyn Read + Send>,
        cancel: &CancelFlag,
        patience: &OpenTimeouts,
    ) -> Result<Self> {
        let asking = Arc::new(files::unresponsive_files::FileProber::new(patience.clone()));
        let (own, has_programs, asked) =
            (spec.clone(), spec.filter_program.is_some(), asking.clone());
        let pipe_until =
            patience.pipe_deadline.into_iter().chain(asking.inspection_deadline()).min();
        let opened = files::unresponsive_files::run_by_deadline(
            patience,
            &spec.url,
            has_programs,
            cancel,
            move |cancel| source_opening::open_source(&own, stdin, cancel, Some(asked), pipe_until),
        );
        opened.map_err(|error| asking.with_last_server_failure(error))
    }

    /// Like [`open_with_stdin`](Self::open_with_stdin), but [`OpenTimeouts::early_stop`] also ends the open,
    /// and it waits for a pipe no longer than [`OpenTimeouts::pipe_deadline`].
    ///
    /// # Errors
    /// Those of [`open_with_stdin`](Self::open_with_stdin).
    pub fn open_with_early_stop(
        spec: &SourceSpec,
        stdin: Box<dyn Read + Send>,
        cancel: &CancelFlag,
        patience: &OpenTimeouts,
    ) -> Result<Self> {
        let (own, has_programs) = (spec.clone(), spec.filter_program.is_some());
        let (patience, pipe_until) =
            (OpenTimeouts { deadline: None, ..patience.clone() }, patience.pipe_deadline);
        files::unresponsive_files::run_by_deadline(
            &patience,
            &spec.url,
            has_programs,
            cancel,
            move |cancel| source_opening::open_source(&own, stdin, cancel, None, pipe_until),
        )
    }

    /// Returns the skipped files with reasons; empty unless the source was opened by
    /// [`open_with_timeouts`](Self::open_with_timeouts).
    pub fn skipped_files(&self) -> Vec<SkippedFile> {
        let of_file = |file: &Arc<SourceFile>| {
            let files::unresponsive_files::SkipReason { message: said, is_unresponsive: is_late } =
                file.skip_reason.get()?.clone();
            let (path, bytes) = (file.display_name.to_string(), file.size());
            Some(SkippedFile {
                path,
                file_index: Some(file.index),
                stored_bytes: bytes,
                reason: said,
                is_unresponsive: is_late,
            })
        };
        let noted = self.prober.iter().flat_map(|asking| asking.skipped_unlisted_files());
        noted.chain(self.files.iter().filter_map(of_file)).collect()
    }

    /// Returns the definition that the source was opened with.
    pub fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    /// Returns the format of all files.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the dialect of the text.
    pub fn dialect(&self) -> &CsvDialect {
        &self.dialect
    }

    /// Describes the dialect that a sample of delimited text has shown: "separated by `;`".
    pub fn describe_detected_dialect(&self) -> Option<String> {
        let said = &self.spec.text_options;
        let usual =
            said.to_dialect(self.format.name(), self.format.supported_text_options()).ok()?;
        let mut words = Vec::new();
        let shown = |byte: u8| format!("`{}`", char::from(byte));
        if self.dialect.delimiter != usual.delimiter {
            words.push(match self.dialect.delimiter {
                b'\t' => "separated by tabs".to_owned(),
                b' ' => "separated by spaces".to_owned(),
                byte => format!("separated by {}", shown(byte)),
            });
        }
        if let Some(quote) = self.dialect.quote.filter(|_| self.dialect.quote != usual.quote) {
            words.push(format!("quoted by {}", shown(quote)));
        }
        if let Some(escape) = self.dialect.escape.filter(|_| self.dialect.escape != usual.escape) {
            words.push(format!("quotes escaped by `{}`", char::from(escape)));
        }
        (self.format.is_delimited() && !words.is_empty()).then(|| words.join(", "))
    }

    /// Returns the files in reading order.
    pub fn files(&self) -> &[Arc<SourceFile>] {
        &self.files
    }

    /// Returns the files' columns by name in the order of their first appearance, followed by those of the
    /// `key=value` folders.
    ///
    /// A folder key overrides a file column of the same name, as in Spark and DuckDB: the folder's value
    /// counts, and the file's column is left out.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of distinct column layouts among the files.
    pub fn layout_count(&self) -> usize {
        self.columns.layouts.len()
    }

    /// Returns the error of a column that cannot be read because its types in two files do not unify.
    pub fn column_error(&self, column: usize) -> Option<Error> {
        match self.origins.get(column)? {
            SourceColumnOrigin::File(place) => {
                self.columns.type_conflict_error(*place, &self.files)
            }
            SourceColumnOrigin::Key(_) | SourceColumnOrigin::Hidden(_) => None,
            SourceColumnOrigin::Promoted(index) => self
                .promoted_columns
                .get(*index)?
                .column_error(self, self.schema.fields().get(column)?.name()),
        }
    }

    /// Returns the schema exactly as the files have it, if all files have the same: with required columns,
    /// categories and metadata.
    pub fn common_file_schema(&self) -> Option<SchemaRef> {
        if self.layout_count() > 1
            || !self.promoted_records.is_empty()
            || self.spec.declared_schema.is_some()
        {
            return None;
        }
        let file = self.files.first()?;
        let own = file.metadata()?.schema();
        let places = &self.columns.layout(file.index).places;
        let columns = self.origins.iter().zip(self.schema.fields());
        let fields = columns.map(|(origin, field)| match origin {
            SourceColumnOrigin::File(index) => {
                let place = places.get(*index).copied().flatten()?;
                let own = own.fields().get(place)?;
                let is_same = formats::stored_batch_reader::normalize_field(own).data_type()
                    == field.data_type();
                is_same.then(|| Arc::clone(own))
            }
            _ => Some(Arc::clone(field)),
        });
        Some(Arc::new(Schema::new(fields.collect::<Option<Vec<_>>>()?)))
    }

    /// Returns the stored bytes of all files; 0 for standard input.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size()).sum()
    }

    /// Returns true for standard input, which can be read once.
    pub fn is_stdin(&self) -> bool {
        self.files.iter().any(|file| file.is_stdin())
    }

    /// Returns true if a split's first record can be found without reading the bytes before the split. False
    /// for delimited text with quoting, and for Avro.
    pub fn has_exact_starts(&self) -> bool {
        match self.format.as_typed_format() {
            Some(format) => !format.has_speculative_boundaries(),
            None => !self.format.is_delimited() || self.dialect.quote.is_none(),
        }
    }

    /// Returns true if each record begins with its length in bytes.
    fn has_length_prefixes(&self) -> bool {
        self.spec.text_options.framing == Some(SyslogFraming::Octets)
    }

    /// Returns the number of leading bytes of a cut-out record that do not belong to it.
    fn leading_blank_bytes(&self, record: &[u8]) -> usize {
        self.format.as_text_format().map_or(0, |format| format.leading_blank_bytes(record))
    }

    /// Returns the keys of all columns, if the format's records have keys. The keys within a column of a
    /// declared type are those of its type.
    fn known_keys(&self) -> Option<Arc<KnownKeys>> {
        let has_keys =
            self.format.as_text_format().is_some_and(formats::TextFormat::has_keyed_records);
        let known = || {
            let is_open = |index| self.columns.has_inferred_type(index);
            Arc::new(KnownKeys::new(&self.columns.fields, is_open))
        };
        has_keys.then(|| Arc::clone(self.known_keys.get_or_init(known)))
    }

    /// Returns true if the columns are the keys of sampled records, so that other records may have more.
    pub fn is_sampled(&self) -> bool {
        self.columns.is_sampled
    }

    fn record_framing(&self) -> RecordFraming {
        match self.format.as_text_format() {
            _ if self.has_length_prefixes() => RecordFraming::LengthPrefixes,
            Some(format) if format.can_omit_line_ends() => RecordFraming::Json,
            _ => self.record_grammar().into(),
        }
    }

    fn record_grammar(&self) -> record_boundaries::RecordGrammar {
        if self.format.is_delimited() {
            record_boundaries::RecordGrammar::from_dialect(&self.dialect)
        } else {
            record_boundaries::RecordGrammar::LINES
        }
    }

    /// Returns the Parquet metadata of a file, for pruning row groups by statistics; none for other formats.
    pub fn parquet_metadata(
        &self,
        file: usize,
    ) -> Option<&Arc<::parquet::file::metadata::ParquetMetaData>> {
        formats::parquet::parquet_metadata(self.files.get(file)?)
    }

    /// Returns true for a low-cardinality text column, which readers return as dictionary codes when it is a
    /// group key ([`ReadOptions::dictionary_columns`]). In Parquet, every file that has the column stores it
    /// as a dictionary. In text, the first rows seem to have few distinct values.
    ///
    /// Cost for text: reads the first 4,096 rows once.
    pub fn is_low_cardinality(self: &Arc<Self>, column: usize) -> bool {
        let is_text = |column: &FieldRef| column.data_type() == &DataType::Utf8View;
        let Some(SourceColumnOrigin::File(index)) = self.origins.get(column) else { return false };
        if !self.schema.fields().get(column).is_some_and(is_text) {
            return false;
        }
        if self.format.as_text_format().is_some() {
            let mut few = self.low_cardinality.lock();
            return *few
                .entry(column)
                .or_insert_with(|| schema::low_cardinality::has_few_distinct_values(self, column));
        }
        self.files.iter().all(|file| {
            match self.columns.layout(file.index).places.get(*index).copied().flatten() {
                Some(place) => formats::parquet::is_dictionary_encoded_text(file, place),
                // A missing column is null. Other formats have no dictionaries.
                None => formats::parquet::parquet_metadata(file).is_some(),
            }
        })
    }

    /// Returns the block statistics of a rowfile's footers, for pruning blocks; none for other formats.
    pub fn block_statistics(&self, file: usize) -> Option<RowfileFooterStatistics> {
        RowfileFooterStatistics::from_file(self.files.get(file)?)
    }

    /// Returns reports about the damaged files of which intact parts are read.
    pub fn salvage_reports(&self) -> Vec<SalvagedFile> {
        self.files.iter().filter_map(|file| formats::rowfile::salvage_report(file)).collect()
    }

    /// Returns the column that a typed file has for a column of the schema, for judging its statistics.
    pub fn file_column(&self, file: usize, column: usize) -> Option<FileColumn<'_>> {
        let found = self.files.get(file)?;
        let places = &self.columns.layout(file).places;
        let index = match *self.origins.get(column)? {
            SourceColumnOrigin::Key(index) => return Some(FileColumn::PartitionKey(index)),
            SourceColumnOrigin::Hidden(_) => return None,
            SourceColumnOrigin::File(index) => index,
            SourceColumnOrigin::Promoted(index) => {
                let promoted = self.promoted_columns.get(index)?;
                let record = self.promoted_records.get(promoted.promotion)?.column;
                match (places.get(record).copied().flatten(), promoted.own) {
                    // The contents of a record have no statistics.
                    (Some(_), _) => return None,
                    (None, None) => return Some(FileColumn::Missing),
                    (None, Some(own)) => own,
                }
            }
        };
        match *places.get(index)? {
            None => Some(FileColumn::Missing),
            Some(place) => {
                let schema = found.metadata()?.schema();
                let keeps_order = schema::type_unification::preserves_order(
                    schema.fields().get(place)?.data_type(),
                    self.schema.fields().get(column)?.data_type(),
                );
                Some(FileColumn::OwnColumn { schema, keeps_order })
            }
        }
    }

    /// Returns a folder's value as an array of `rows` copies, in the column's type.
    pub fn partition_values(&self, file: usize, key: usize, rows: usize) -> Result<ArrayRef> {
        let Some(file) = self.files.get(file) else {
            return Err(Error::Internal(format!("there is no file {file}")));
        };
        let column = self.origins.iter().position(|origin| *origin == SourceColumnOrigin::Key(key));
        let data_type =
            column.map_or(DataType::Utf8View, |at| self.schema.field(at).data_type().clone());
        let value = file.partition_keys.get(key).and_then(|(_, value)| value.as_deref());
        let repeated =
            value.map(|text| StringViewArray::from_iter_values(std::iter::repeat_n(text, rows)));
        let Some(repeated) = repeated else { return Ok(new_null_array(&data_type, rows)) };
        value_parsing::parse_column(&repeated, &data_type).map_err(|_| {
            Error::usage(format!(
                "`{}`: the folder's value `{}` is not {}",
                file.display_name,
                value.unwrap_or_default(),
                value_parsing::describe_type(&data_type)
            ))
        })
    }

    /// Returns warnings about the files that apply to every query, such as a redirected URL or a first record
    /// that was probably data and was taken for a header.
    pub fn warning(&self) -> Option<String> {
        self.warning_for_columns(|_| true)
    }

    /// Returns the warnings for a query that reads some of the columns; oddities of other columns are left
    /// out.
    pub fn warning_for_columns(&self, is_read: impl Fn(&str) -> bool) -> Option<String> {
        let mut warnings: Vec<String> =
            self.moved_files_warning().into_iter().chain(self.header_warning()).collect();
        warnings.extend(self.notes.iter().cloned());
        warnings.extend(self.column_warning(is_read));
        (!warnings.is_empty()).then(|| warnings.join("\n"))
    }

    /// Returns the warning about text columns that look like another type.
    pub fn column_warning(&self, is_read: impl Fn(&str) -> bool) -> Option<String> {
        suspect_columns_warning(self.marked_columns.iter().filter(|column| is_read(&column.name)))
    }

    /// Returns the hint that the first file's header is likely to be further down, for errors about unknown
    /// columns.
    pub fn header_hint(&self) -> Option<String> {
        let (file, line) = (self.files.first()?, self.likely_header_line?);
        Some(format!(
            "`{}`: {}",
            file.display_name,
            rejects::record_fault::likely_header_hint(line)
        ))
    }

    /// Returns the message and the hint for a source whose sampled records are all malformed, for errors
    /// about column types. No value has shown the type of the named, undeclared column.
    pub fn explain_rejected_sample(
        &self,
        is_named: impl Fn(&str) -> bool,
    ) -> Option<(String, String)> {
        let refused = self.rejected_sample.as_ref()?;
        let columns = self.columns.fields.iter().zip(&self.columns.has_declared_type);
        let mut undeclared = columns.filter(|(_, is_declared)| !**is_declared);
        let (column, _) = undeclared.find(|(field, _)| is_named(field.name()))?;
        Some(refused.explain(column.name()))
    }

    /// Returns true if a delimited record, or the assumed header, begins like a comment although no comment
    /// character is declared.
    pub(crate) fn can_have_comments(&self, record: &[u8]) -> bool {
        let first = self.columns.fields.first().map(|field| field.name().as_bytes());
        let has_mark =
            || record.starts_with(b"#") || first.is_some_and(|name| name.starts_with(b"#"));
        self.format.is_delimited() && self.dialect.comment.is_none() && has_mark()
    }

    fn moved_files_warning(&self) -> Option<String> {
        let moved = self.files.iter().filter_map(|file| match &file.location {
            FileLocation::Object(object) => Some((file, object.redirected_host()?)),
            _ => None,
        });
        let mut moved = moved.peekable();
        let (file, host) = moved.next()?;
        let more = match moved.count() {
            0 => String::new(),
            1 => ", and one other file is elsewhere, too".into(),
            more => format!(", and {more} other files are elsewhere, too"),
        };
        Some(format!(
            "`{}` is read from `{host}`, where its server points to{more}",
            file.display_name
        ))
    }

    /// Returns a warning about a header of numbers alone, unless the user declared a header.
    fn header_warning(&self) -> Option<String> {
        let options = &self.spec.text_options;
        let is_said = options.header.is_some()
            || options.header_row.is_some()
            || self.likely_header_line.is_some()
            || self.spec.declared_schema.is_some();
        let fields = &self.columns.fields;
        let is_number = |name: &str| {
            let name = name.trim();
            let is_date = || {
                let marks = |byte: u8| byte.is_ascii_digit() || b"-:/. T".contains(&byte);
                name.bytes().all(marks) && name.starts_with(|c: char| c.is_ascii_digit())
            };
            name.bytes().any(|byte| byte.is_ascii_digit())
                && (name.parse::<f64>().is_ok() || is_date())
        };
        let is_unnamed = |index: usize, name: &str| name == format!("column_{}", index + 1);
        let mut named =
            fields.iter().enumerate().filter(|(index, field)| !is_unnamed(*index, field.name()));
        let are_numbers = named.clone().next().is_some()
            && named.all(|(_, field)| is_number(field.name()) || field.name() == "NaN");
        let is_odd = self.format.is_delimited()
            && !is_said
            && (are_numbers || has_value_among_names(fields));
        let file = self.files.first().filter(|_| is_odd)?;
        let names = fields.iter().take(4).map(|field| format!("`{}`", field.name()));
        let more = (fields.len() > 4).then(|| "…".to_owned());
        let names: Vec<String> = names.chain(more).collect();
        Some(format!(
            "the first record of `{}` is taken for the names of its columns: {}; if it is data, say \
             --header=false (job file: source.options, header = false)",
            file.display_name,
            names.join(", ")
        ))
    }

    /// Converts statistics of a file's column to the column's type in the source.
    pub fn cast_statistics(&self, column: usize, values: &ArrayRef) -> Option<ArrayRef> {
        let wanted = self.schema.fields().get(column)?.data_type();
        schema::type_unification::cast_file_column(values, wanted, false).ok()
    }

    /// Converts statistics of a nested part of a file's column to its type in the source; none if the
    /// conversion changes the order of values.
    pub fn cast_nested_statistics(values: &ArrayRef, wanted: &DataType) -> Option<ArrayRef> {
        if !schema::type_unification::preserves_order(values.data_type(), wanted) {
            return None;
        }
        schema::type_unification::cast_file_column(values, wanted, false).ok()
    }

    /// Cuts the source into splits.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a text file whose bytes show another format, and the errors of reading these
    /// bytes.
    pub fn splits(&self) -> Result<Vec<Split>> {
        self.splits_with_pruning(&mut |_, _| true)
    }

    /// Cuts the source into splits without the row groups or blocks `(file, row group)` that `wanted`
    /// rejects.
    ///
    /// # Errors
    /// As [`splits`](Self::splits).
    pub fn splits_with_pruning(
        &self,
        wanted: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Vec<Split>> {
        self.splits_with_target_bytes(splits::split::split_target_bytes(self.total_bytes()), wanted)
    }

    /// Cuts the source into splits according to `cutting`.
    ///
    /// # Errors
    /// As [`splits`](Self::splits).
    pub fn splits_with_options(
        &self,
        cutting: SplitOptions<'_>,
        wanted: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Vec<Split>> {
        let total = self.total_bytes();
        let target = match cutting.target_bytes {
            Some(asked) => splits::split::requested_target_bytes(asked, total),
            None => splits::split::split_target_bytes(total),
        };
        self.cut_splits(target, cutting, wanted)
    }

    /// Returns the target size of splits from which a sample is drawn. Each remote split takes a request, so
    /// remote sources have fewer and larger ones.
    pub fn sample_split_target_bytes(&self) -> u64 {
        let target = self.sample_split_target_bytes_for(self.total_bytes());
        match self.files.iter().all(|file| file.is_local()) {
            true => target,
            false => target.max((self.total_bytes() / REMOTE_SAMPLE_SPLITS).min(1 << 20)),
        }
    }

    /// Returns the target size of sample splits of local files with `total` bytes.
    pub fn sample_split_target_bytes_for(&self, total: u64) -> u64 {
        sample_split_target_bytes(total, !self.format.is_typed())
    }

    /// Cuts the source into splits of the given target size.
    ///
    /// # Errors
    /// As [`splits`](Self::splits).
    pub fn splits_with_target_bytes(
        &self,
        target_bytes: u64,
        wanted: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Vec<Split>> {
        self.cut_splits(target_bytes, SplitOptions::default(), wanted)
    }

    fn cut_splits(
        &self,
        target_bytes: u64,
        cutting: SplitOptions<'_>,
        wanted: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Vec<Split>> {
        let mut packer = splits::split::SplitPacker::new(target_bytes);
        let can_be_cut =
            |file: &SourceFile| !cutting.keeps_row_numbers && self.can_split_file(file);
        let is_read = |file: &&Arc<SourceFile>| {
            cutting.includes_file(file.index) && file.skip_reason.get().is_none()
        };
        let files = || self.files.iter().filter(is_read);
        if !self.format.is_typed() {
            let is_cut = |file: &&Arc<SourceFile>| {
                splits::split::divide_into_ranges(file.size(), target_bytes).len() > 1
            };
            // A file that does not respond is not cut.
            let answers = |file: &&Arc<SourceFile>| {
                self.prober.as_ref().is_none_or(|asking| asking.is_readable(file))
            };
            let cut = |file: &&Arc<SourceFile>| is_cut(file) && answers(file) && can_be_cut(file);
            if let Some(asking) = &self.prober {
                asking.probe_files(files().filter(is_cut));
            }
            // Under a deadline, the beginnings of remote files are not fetched: their names count as correct
            // until a split begins with bytes that are not text.
            let is_peeked = |file: &&Arc<SourceFile>| {
                self.prober.is_none() || matches!(file.location, FileLocation::Local(_))
            };
            loop {
                let cut = files().filter(cut).filter(is_peeked).collect::<Vec<_>>();
                let peeked = schema::content_detection::probe_files(&cut);
                match (peeked, &self.prober) {
                    (Err(error), Some(asking)) => asking.skip_faulty_file(&self.files, error)?,
                    (peeked, _) => break peeked?,
                }
            }
        }
        let mut believed = None;
        for file in files() {
            if file.size() == 0 && !file.is_stream() {
                continue;
            }
            let size = file.size();
            let whole = || SplitPart {
                file: file.clone(),
                range: 0..size,
                row_groups: None,
                row_range: None,
            };
            if let Some(known) = file.metadata().filter(|known| known.chunks().is_some()) {
                if cutting.keeps_row_numbers && known.chunk_rows_with_offsets().is_none() {
                    let chunks = (0..known.chunks().map_or(0, <[_]>::len)).collect();
                    packer.add_shared(SplitPart { row_groups: Some(chunks), ..whole() }, size);
                    continue;
                }
                for (chunks, bytes) in
                    formats::stored_batch_reader::pack_chunks(file, known, target_bytes, wanted)
                {
                    let cuts = self.row_cut_points(file, known, &chunks, bytes, &cutting);
                    let piece = SplitPart { row_groups: Some(chunks), ..whole() };
                    let Some(rows) = cuts.last().copied().filter(|_| cuts.len() > 1) else {
                        packer.add_shared(piece, bytes);
                        continue;
                    };
                    let mut start = 0;
                    for end in cuts {
                        let part = start..end;
                        let bytes = splits::split::proportional_bytes(bytes, &part, rows);
                        packer
                            .add_alone(SplitPart { row_range: Some(part), ..piece.clone() }, bytes);
                        start = end;
                    }
                }
                continue;
            }
            let mut ranges = if can_be_cut(file) {
                splits::split::divide_into_ranges(size, target_bytes)
            } else {
                vec![]
            };
            if ranges.len() > 1
                && let Some(format) = self.format.as_text_format()
            {
                let is_whole = match &self.prober {
                    // Under a deadline, remote files are not inspected one by one either.
                    Some(asking) if !file.is_local() => Ok(*believed.get_or_insert_with(|| {
                        self.are_remote_files_unsplittable(format, asking, files())
                    })),
                    _ => format.is_unsplittable(file, &file.read_context()),
                };
                match (is_whole, &self.prober) {
                    (Err(error), Some(asking)) => {
                        asking.skip_faulty_file(&self.files, error)?;
                        continue;
                    }
                    (Ok(false), _) => {}
                    (is_whole, _) => {
                        is_whole?;
                        ranges.clear();
                    }
                }
            }
            if file.is_unresponsive() {
                // Other splits must not wait for it.
                packer.add_alone(whole(), size);
            } else if ranges.len() <= 1 {
                packer.add_shared(whole(), size);
            } else {
                for range in ranges {
                    let bytes = range.end - range.start;
                    packer.add_alone(SplitPart { range, ..whole() }, bytes);
                }
            }
        }
        Ok(packer.finish())
    }

    /// Returns true if remote files must be read front to back. The first file that responds decides for all
    /// of them until they are read.
    fn are_remote_files_unsplittable<'a>(
        &self,
        format: &dyn formats::TextFormat,
        asking: &files::unresponsive_files::FileProber,
        files: impl Iterator<Item = &'a Arc<SourceFile>>,
    ) -> bool {
        const PROBED_FILES_MAX: usize = 3;
        let elsewhere = files.filter(|file| !file.is_local() && file.size() > 0);
        let told = elsewhere.take(PROBED_FILES_MAX).find_map(|file| {
            let until = asking.file_inspection_deadline(file)?;
            let watch = files::byte_input::ByteReadContext {
                cancel: file.cancel.child_flag_with_deadline(until),
                ..file.read_context()
            };
            format.is_unsplittable(file, &watch).ok()
        });
        told.unwrap_or(false)
    }

    /// Returns the row numbers at which a chunk larger than the target size is cut; empty if the chunk stays
    /// whole.
    fn row_cut_points(
        &self,
        file: &SourceFile,
        known: &dyn FileMetadata,
        chunks: &[usize],
        bytes: u64,
        cutting: &SplitOptions<'_>,
    ) -> Vec<u64> {
        let (Some(target), Some(format), [chunk]) =
            (cutting.target_bytes, self.format.as_typed_format(), chunks)
        else {
            return Vec::new();
        };
        let is_here = matches!(file.location, FileLocation::Local(_));
        let is_near = is_here || self.files.len() <= splits::split::REMOTE_CUT_FILES_MAX;
        if bytes <= target.saturating_add(target / 2) || !is_near {
            return Vec::new();
        }
        format.row_cut_points(file, known, *chunk, target)
    }

    /// Returns true if a file can be cut into several splits.
    ///
    /// Compressed files, filtered files and standard input are read front to back. So are CSV files with
    /// comments: a line is a comment only if it starts outside of quotes, and a comment may itself hold any
    /// number of quotes. Length-prefixed records have no recognizable start in the middle of a file.
    /// Unresponsive files are not inspected before their split is read, and a cut would need their header.
    fn can_split_file(&self, file: &SourceFile) -> bool {
        let is_stream = file.is_stream() || !file.is_read_as_stored();
        let has_comments = self.format.is_delimited() && self.dialect.comment.is_some();
        let is_whole =
            self.format.as_typed_format().is_some_and(|format| !format.is_splittable_anywhere());
        !(is_stream
            || has_comments
            || self.has_length_prefixes()
            || is_whole
            || file.is_unresponsive())
    }

    /// Fills in the exact starts of the splits of cut files, by one pass over those files with the record
    /// automaton. For callers that cannot read a split again after a wrong guess.
    ///
    /// # Errors
    /// Those of reading.
    pub fn resolve_exact_starts(&self, splits: &mut [Split], cancel: &CancelFlag) -> Result<()> {
        if self.has_exact_starts() {
            return Ok(());
        }
        splits::split_boundaries::find_exact_boundaries(self, splits, cancel)
    }

    /// Returns the start of a split's first record, guessed from the bytes before the split, for callers that
    /// do not read the previous split. Guesses a record boundary 256 KiB before the split and follows the
    /// records from there. The guess uses other bytes than the split reader's guess, so both can hardly agree
    /// and be wrong. None for splits whose start is exact.
    ///
    /// Cost: less than a millisecond. Worth it if a split with a [guessed](SplitReader::is_start_exact) start
    /// has rejected records.
    ///
    /// # Errors
    /// Those of reading.
    pub fn guess_start_from_before(
        &self,
        split: &Split,
        cancel: &CancelFlag,
    ) -> Result<Option<u64>> {
        splits::split_boundaries::guess_boundary_from_before(self, split, cancel)
    }

    /// Decompresses the compressed files of a split to find damage. A decoder returns bytes of a damaged file
    /// before it notices the damage, and these may look like malformed records.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged file; those of reading.
    pub fn verify_compressed_files(&self, split: &Split, cancel: &CancelFlag) -> Result<()> {
        let is_checked = |piece: &&SplitPart| {
            !self.format.is_typed()
                && !piece.file.is_stream()
                && piece.file.filter_program.is_none()
        };
        split.parts.iter().filter(is_checked).try_for_each(|piece| {
            let watch = files::byte_input::ByteReadContext {
                cancel: cancel.clone(),
                ..files::byte_input::ByteReadContext::default()
            };
            splits::text_stream::verify_compressed_file(&piece.file, watch)
        })
    }

    /// Starts to read a split.
    ///
    /// # Errors
    /// [`Error::FileChanged`] if a file differs from its listing; [`Error::Io`].
    pub fn read_split(
        self: &Arc<Self>,
        split: &Split,
        options: &ReadOptions,
    ) -> Result<SplitReader> {
        SplitReader::open(self.clone(), split, options)
    }
}

/// Returns true if a column's name is a value of the column's type: a number over numbers, or a date over
/// dates. Years, and more than two evenly spaced numbers, are common column names of wide tables and do not
/// count.
fn has_value_among_names(fields: &[FieldRef]) -> bool {
    let mut numbers: Vec<f64> = Vec::new();
    for field in fields {
        let name = field.name().trim();
        let is_number = name.bytes().any(|byte| byte.is_ascii_digit());
        match (name.parse(), field.data_type()) {
            (Ok(number), data_type) if is_number && data_type.is_numeric() => numbers.push(number),
            (Err(_), DataType::Date32 | DataType::Timestamp(..))
                if is_number && value_parsing::can_parse_as(name, field.data_type()) =>
            {
                return true;
            }
            _ => {}
        }
    }
    let steps: Vec<f64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let ascends = steps.iter().all(|step| *step > 0.0);
    let are_even = steps.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 1e-9);
    let are_years = numbers.iter().all(|number| (1900.0..2100.0).contains(number));
    let is_series = ascends && (are_years || steps.len() > 1 && are_even);
    !numbers.is_empty() && !is_series
}

/// The counterpart of a source column in one file.
pub enum FileColumn<'a> {
    /// The folder key at this position; the value is the same in all rows.
    PartitionKey(usize),
    /// The file has no such column; it is null in all rows.
    Missing,
    /// One of the file's own columns.
    OwnColumn {
        /// The file's columns.
        schema: &'a SchemaRef,
        /// True if its values keep their order in the source's type.
        keeps_order: bool,
    },
}
