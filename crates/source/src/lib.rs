//! Where rows come from: files found, formats told, schemas inferred, splits cut and read.
//!
//! ```text
//!   URL ── listing ── files ── sample · columns · unify ── schema and layouts
//!                       └── split ── splits ── read ─┬ input · compression · program
//!                                                    ├ blocks · cut          (whole records)
//!                                                    └ formats · reject      (batches)
//! ```
//!
//! Everything here is synchronous and knows nothing of the query engine; what is not on this
//! machine is asked for by [`remote`](tidemill_remote). A source is opened
//! once ([`Source::open`]), gives its [`Split`]s, and each split is read by a [`SplitReader`]
//! on whichever thread wants to.
//!
//! **One string type.** Text columns are `Utf8View` in every format: short strings, which
//! group keys mostly are, lie in the 16-byte view itself, so that neither decoding nor
//! grouping follows a pointer for them; DataFusion reads Parquet so too. Map keys are `Utf8`,
//! which is what a SQL literal is compared with.
//!
//! **Speculation.** A quoted CSV field may hold line ends, so the reader of a split in the
//! middle of a file guesses where its first record starts ([`tidemill_text::cut`]). The guess is nearly
//! always right and always checked: see [`SplitReader::start`].
//!
//! **Errors.** [`Error`] says what can fail here. What the user reads of it, hint and exit status, is made where
//! it is handed up and becomes [`tidemill_base::Error`].

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

use file_columns::FileColumns;
use formats::FileMetadata;
use formats::LogLineFormat;
use formats::delimited::{RejectedSample, SuspectTextColumn, suspect_columns_warning};
pub use formats::rowfile::RowfileFooterStatistics;
use promoted_records::{PromotedColumn, PromotedRecord};
pub use rowfile_salvage::error_from_rowfile;
use text_blocks::RecordFraming;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::SalvagedFile;
use tidemill_remote::StorageOptions;
use tidemill_remote::object::Object;

use crate::filter_program::FilterProgram;

mod access_plan;
mod batch_assembly;
mod byte_input;
mod compression;
mod confinement;
mod content_detection;
mod distinct_map_keys;
mod error;
mod field_promotion;
mod file_columns;
pub mod filter_program;
pub mod flag_distribution;
pub mod formats;
mod hidden_columns;
mod listing;
mod log_detection;
mod log_names;
mod low_cardinality;
pub mod nested_projection;
mod occurrence_counts;
pub mod posted_source;
pub mod program_files;
mod promoted_records;
mod read_options;
mod record_fault;
mod reject_log;
pub mod rowfile_check;
pub mod rowfile_listing;
pub mod rowfile_salvage;
pub mod schema_compatibility;
mod source_description;
mod source_opening;
mod source_sample;
mod split;
mod split_boundaries;
mod split_reader;
#[cfg(test)]
mod tests;
mod text_blocks;
mod text_options;
mod text_stream;
mod type_unification;
mod unresponsive_files;

pub use byte_input::{FileIdentity, standard_input};
pub use compression::{COMPRESSION_MAGIC_BYTES, Compression, decompressing_reader};
pub use confinement::{check_url_count, confine_process};
pub use content_detection::detect_compression;
pub use error::{Error, Result};
pub use field_promotion::FieldPromotion;
pub use file_columns::ColumnLayoutPolicy;
pub use formats::{Format, MemoryRows};
pub use hidden_columns::HiddenColumn;
pub use listing::parse_partition_keys;
pub use listing::{is_ignored_name, list_paths, list_with_relative_paths};
pub use read_options::ReadOptions;
pub use reject_log::RejectLog;
pub use source_description::{
    FileDescription, SourceDescription, SourceReopener, SpecDescription, SplitDescription,
    SplitStatsDescription,
};
pub use split::{
    Split, SplitOptions, SplitPart, known_split_rows, sample_split_target_bytes, split_target_bytes,
};
pub use split_reader::{SplitReader, SplitStats};
pub use text_options::{
    CsvDialect, TextOptions, TypeMismatchPolicy, parse_framing, parse_log_format,
    parse_option_character,
};
pub use unresponsive_files::{OpenTimeouts, SkippedFile};

/// What a source is, as a job says it.
#[derive(Debug, Clone, Default)]
pub struct SourceSpec {
    /// A path, a URL (`file://`, `s3://`, `http://`, `https://`), a pattern, a folder, or `-`
    /// for standard input.
    pub url: String,
    /// More paths, URLs and patterns, whose files come behind those of the first, in this order.
    pub more_urls: Vec<String>,
    /// The format, if suffixes do not tell it.
    pub format: Option<Format>,
    /// How text is written.
    pub text_options: TextOptions,
    /// Types that override the inferred ones, by column name.
    pub declared_schema: Option<SchemaRef>,
    /// Whether files may have different columns. Default: they may.
    pub layout_policy: Option<ColumnLayoutPolicy>,
    /// Columns whose records' fields are columns of the source. Default: none.
    pub promotions: Vec<FieldPromotion>,
    /// A program that each file's bytes go through, decompressed, before they are read as the
    /// format; without a URL, one whose output is the source. Default: none.
    pub filter_program: Option<FilterProgram>,
    /// How stores are reached, beyond what the environment says. Default: nothing.
    pub storage_options: StorageOptions,
    /// Whether every whole block of a rowfile that is damaged or was cut off is read, and the rest
    /// left out, instead of an error. Default: an error.
    pub salvage_damaged: bool,
    /// Rows in memory, instead of any file; the URL is what messages call them. Default: none.
    pub memory_rows: Option<Arc<MemoryRows>>,
    /// Hidden columns that are columns like the others, behind them, by these names. Default: none.
    pub exposed_hidden_columns: Vec<(HiddenColumn, String)>,
    /// The folder below which the URL is a file's path, as somebody wrote it who was there; messages and columns have it as
    /// it is. Default: paths are those of this process, and may be patterns and folders.
    pub base_folder: Option<PathBuf>,
}

impl SourceSpec {
    /// The format that is said: what a log's lines look like says that it is an access log.
    pub fn declared_format(&self) -> Option<Format> {
        let described = || self.text_options.log_format.is_some().then_some(Format::AccessLog);
        self.format.or_else(described)
    }

    /// All its URLs.
    pub fn urls(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.url).chain(&self.more_urls)
    }
}

/// Where a file's bytes are.
#[derive(Debug, Clone)]
pub(crate) enum FileLocation {
    /// A path on this machine.
    Local(PathBuf),
    /// Elsewhere.
    Object(Arc<Object>),
    /// Standard input, which can be read once.
    Stdin,
    /// In memory, as rows.
    Memory(Arc<MemoryRows>),
}

/// Of what is elsewhere a sample is drawn from so many splits, where they are small.
const REMOTE_SAMPLE_SPLITS: u64 = 64;

/// A file of a source.
#[derive(Debug)]
pub struct SourceFile {
    location: FileLocation,
    display_name: Arc<str>,
    identity: FileIdentity,
    /// What its name says …
    named_compression: Compression,
    /// … and what its first bytes say, once somebody has looked.
    detected_compression: OnceLock<Compression>,
    filter_program: Option<FilterProgram>,
    partition_keys: Vec<(String, Option<String>)>,
    index: usize,
    /// Line numbers at offsets, found so far.
    line_checkpoints: Mutex<BTreeMap<u64, u64>>,
    /// What is known of a file whose columns have types of their own, once it was looked at.
    metadata: OnceLock<Arc<dyn FileMetadata>>,
    /// Whether its whole blocks are read if it is damaged.
    salvage_damaged: bool,
    /// Number of lines at its beginning that are neither header nor records.
    skipped_lines: u64,
    /// Offset of its header, or of its first record, in its decoded bytes, once it is known.
    records_offset: OnceLock<u64>,
    /// Where that was asked, whether it can be read now.
    is_readable: OnceLock<bool>,
    /// Why it is not read, if it is left out.
    skip_reason: OnceLock<unresponsive_files::SkipReason>,
    /// The run's.
    cancel: CancelFlag,
    /// The path, URL or pattern of its source.
    source_name: Arc<str>,
}

impl SourceFile {
    /// A file that was found, of which nothing more is known yet.
    fn from_listing(
        found: listing::ListedFile,
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

    /// Leaves it out of what is read.
    fn skip_unreadable(&self, reason: String) {
        let said = unresponsive_files::single_line_reason(reason, &self.display_name);
        let _ = self
            .skip_reason
            .set(unresponsive_files::SkipReason { message: said, is_unresponsive: false });
    }

    /// The same for one that does not answer.
    fn skip_unresponsive(&self, reason: String) {
        let said = unresponsive_files::single_line_reason(reason, &self.display_name);
        let _ = self
            .skip_reason
            .set(unresponsive_files::SkipReason { message: said, is_unresponsive: true });
    }

    /// Whether it did not answer when it was to be looked at, and is read by its split all the same.
    pub fn is_unresponsive(&self) -> bool {
        self.is_readable.get() == Some(&false) && self.skip_reason.get().is_none()
    }

    /// What reading it met last, and is repeated; of what is elsewhere.
    pub fn last_retried_error(&self) -> Option<String> {
        match &self.location {
            FileLocation::Object(object) => object.last_failure(),
            _ => None,
        }
    }

    /// What is known of it.
    fn metadata(&self) -> Option<&dyn FileMetadata> {
        self.metadata.get().map(AsRef::as_ref)
    }

    /// Where on this machine it is.
    fn local_path_or_empty(&self) -> &Path {
        match &self.location {
            FileLocation::Local(path) => path,
            _ => Path::new(""),
        }
    }

    /// The path, as messages and results show it.
    pub fn display_name(&self) -> &str {
        &self.display_name
    }

    /// Its position among the source's files.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its bytes as stored; 0 for standard input, and where a server does not tell.
    pub fn size(&self) -> u64 {
        self.identity.size
    }

    /// What tells this version of the file from another.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// How it is compressed: by its first bytes if they have been looked at, else by its name.
    pub fn compression(&self) -> Compression {
        self.detected_compression.get().copied().unwrap_or(self.named_compression)
    }

    /// When it was last written to, in seconds since 1970; none for standard input.
    pub(crate) fn modified_seconds(&self) -> Option<i64> {
        let nanos = self.identity.modified_ns;
        let is_known = match &self.location {
            FileLocation::Local(_) => true,
            FileLocation::Object(_) => nanos != 0,
            FileLocation::Stdin | FileLocation::Memory(_) => false,
        };
        is_known.then(|| i64::try_from(nanos.div_euclid(1_000_000_000)).ok()).flatten()
    }

    /// The same file, of which nothing is known yet.
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

    /// Whether its bytes are read as they are stored.
    fn is_read_as_stored(&self) -> bool {
        self.compression() == Compression::None && self.filter_program.is_none()
    }

    /// Whether it is standard input, which can be read once.
    fn is_stdin(&self) -> bool {
        matches!(self.location, FileLocation::Stdin)
    }

    /// Whether it can only be read front to back, and its size may not be known.
    pub fn is_stream(&self) -> bool {
        match &self.location {
            FileLocation::Local(_) => false,
            FileLocation::Object(object) => object.is_stream(),
            FileLocation::Stdin => true,
            FileLocation::Memory(given) => given.is_stream(),
        }
    }

    /// For a look at it that belongs to no reader.
    fn read_context(&self) -> byte_input::ReadContext {
        byte_input::ReadContext {
            cancel: self.cancel.clone(),
            ..byte_input::ReadContext::default()
        }
    }

    /// Where on this machine it is, if it is a file there.
    pub fn local_path(&self) -> Option<&Path> {
        self.is_local().then(|| self.local_path_or_empty())
    }

    /// Whether it is a file of this machine, read from any place.
    pub fn is_local(&self) -> bool {
        matches!(self.location, FileLocation::Local(_))
    }

    /// The values of its `key=value` folders, outermost first.
    pub fn partition_keys(&self) -> &[(String, Option<String>)] {
        &self.partition_keys
    }

    /// The line that holds the byte at `offset`, the first line being 1.
    ///
    /// Counts line ends from the nearest offset that was asked for before, so that many bad
    /// records cost one pass over the file together.
    pub(crate) fn line_number_at(&self, offset: u64) -> Result<u64> {
        if self.is_stream() || !self.is_read_as_stored() {
            return Ok(0);
        }
        let mut lines = self.line_checkpoints.lock();
        let (mut at, mut line) =
            lines.range(..=offset).next_back().map_or((0, 1), |(at, line)| (*at, *line));
        if at < offset {
            let file = byte_input::OpenFile::open(
                self,
                byte_input::ReadPattern::UntilSplitEnd(offset),
                &self.read_context(),
            )?;
            let distance = usize::try_from(offset - at).unwrap_or(usize::MAX);
            let mut buffer = vec![0; distance.min(text_blocks::READ_BYTES)];
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

/// Where a column's values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SourceColumnOrigin {
    /// The files' column of this position.
    File(usize),
    /// The folder key of this position.
    Key(usize),
    /// The promoted column of this position.
    Promoted(usize),
    /// What is known of a record besides what is in it.
    Hidden(HiddenColumn),
}

/// Standard input before it is read.
struct PendingStream {
    /// Bytes that inference has taken already.
    sampled_bytes: Vec<u8>,
    reader: Box<dyn Read + Send>,
    /// Whether it has given all.
    has_ended: bool,
}

/// Files of one format as one table.
pub struct Source {
    spec: SourceSpec,
    format: Format,
    dialect: CsvDialect,
    /// What the lines of an access log look like.
    log_lines: LogLineFormat,
    /// What the sample has shown that the user should know.
    notes: Vec<String>,
    /// Columns that would have another type but for a few words.
    marked_columns: Vec<SuspectTextColumn>,
    /// The line of the first file that is likely to be its header, where another one is taken for it.
    likely_header_line: Option<u64>,
    /// Set where all records of the sample are malformed, so that they show no types.
    rejected_sample: Option<RejectedSample>,
    files: Vec<Arc<SourceFile>>,
    /// The files' own columns, all of them, and where they are in each file.
    columns: FileColumns,
    /// Per column of `schema`, and then per hidden one, where its values come from.
    origins: Vec<SourceColumnOrigin>,
    /// Columns of the files whose records' fields are columns of the source …
    promoted_records: Vec<PromotedRecord>,
    /// … and these columns.
    promoted_columns: Vec<PromotedColumn>,
    schema: SchemaRef,
    hidden_columns: Vec<FieldRef>,
    pending_stdin: Mutex<Option<PendingStream>>,
    /// By whom files are asked before they are opened, where these may not answer.
    prober: Option<Arc<unresponsive_files::FileProber>>,
    /// Which columns of texts have few values, as far as that was asked.
    low_cardinality: Mutex<BTreeMap<usize, bool>>,
    long_record_ends: split_boundaries::LongRecordEnds,
    /// The keys of its columns, once a reader has asked.
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
    /// Lists the files and finds out their format and schema.
    ///
    /// Cost: one `stat` per file, or a request per 1,000 objects of a bucket; for text formats a
    /// sample of the first files and the beginnings of up to 64 others, and every file's header
    /// where there are headers; for Parquet every file's footer.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Usage`], [`Error::Io`], [`Error::Corrupt`].
    pub fn open(spec: &SourceSpec) -> Result<Self> {
        Self::open_with_stdin(spec, byte_input::standard_input(), &CancelFlag::new())
    }

    /// The same, with what `-` stands for and a flag that stops the sampling.
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

    /// The same for whoever has to answer by a deadline and can go without some of the files: those that cannot be
    /// read, or are no files, are [left out](Self::left_out) instead of being an error, as long as one can be
    /// read; those that do not answer in time are not waited for. Of text these are splits of their own all the
    /// same ([`SourceFile::is_unseen`]), of other formats, whose columns would not be known, they are left out.
    ///
    /// Pipes in a folder are left out. A source that is one pipe is waited for until the deadline.
    ///
    /// Cost: beyond that of [`open_with`](Self::open_with) some ten microseconds for each file that is looked at.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with), but for what is left out; [`Error::Io`] where nothing can be told by
    /// the deadline. What hangs then is left to itself.
    pub fn open_with_timeouts(
        spec: &SourceSpec,
        stdin: Box<dyn Read + Send>,
        cancel: &CancelFlag,
        patience: &OpenTimeouts,
    ) -> Result<Self> {
        let asking = Arc::new(unresponsive_files::FileProber::new(patience.clone()));
        let (own, has_programs, asked) =
            (spec.clone(), spec.filter_program.is_some(), asking.clone());
        let pipe_until =
            patience.pipe_deadline.into_iter().chain(asking.inspection_deadline()).min();
        let opened = unresponsive_files::run_by_deadline(
            patience,
            &spec.url,
            has_programs,
            cancel,
            move |cancel| source_opening::open_source(&own, stdin, cancel, Some(asked), pipe_until),
        );
        opened.map_err(|error| asking.add_server_error(error))
    }

    /// The same as [`open_with`](Self::open_with), which [`Patience::enough`] ends too, and which waits for a pipe no longer
    /// than [`Patience::pipe_until`].
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub fn open_with_early_stop(
        spec: &SourceSpec,
        stdin: Box<dyn Read + Send>,
        cancel: &CancelFlag,
        patience: &OpenTimeouts,
    ) -> Result<Self> {
        let (own, has_programs) = (spec.clone(), spec.filter_program.is_some());
        let (patience, pipe_until) =
            (OpenTimeouts { deadline: None, ..patience.clone() }, patience.pipe_deadline);
        unresponsive_files::run_by_deadline(
            &patience,
            &spec.url,
            has_programs,
            cancel,
            move |cancel| source_opening::open_source(&own, stdin, cancel, None, pipe_until),
        )
    }

    /// What is not read of what was asked for, and why: nothing, unless it was
    /// [opened so](Self::open_patiently).
    pub fn skipped_files(&self) -> Vec<SkippedFile> {
        let of_file = |file: &Arc<SourceFile>| {
            let unresponsive_files::SkipReason { message: said, is_unresponsive: is_late } =
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

    /// What was asked for.
    pub fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    /// The format of all its files.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How its text is written.
    pub fn dialect(&self) -> &CsvDialect {
        &self.dialect
    }

    /// How its delimited text is written, in words, where a sample has shown it: "separated by `;`".
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

    /// Its files, in the order in which they are read.
    pub fn files(&self) -> &[Arc<SourceFile>] {
        &self.files
    }

    /// The files' columns by name, in the order of their first appearance, then those of the
    /// `key=value` folders.
    ///
    /// Where a file has a column of a key's name too, the folder's value is the one that
    /// counts, as in Spark and DuckDB, and the file's column is not there.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many kinds of files there are, told by their columns and their order.
    pub fn layout_count(&self) -> usize {
        self.columns.layouts.len()
    }

    /// Why a column of the schema cannot be read, if it cannot: two files have it of types that
    /// do not unify.
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

    /// The columns as the files have them in every respect, if they all have the same: required,
    /// categories, with what is said of them.
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
                let is_same =
                    formats::batch_reader::normalize_field(own).data_type() == field.data_type();
                is_same.then(|| Arc::clone(own))
            }
            _ => Some(Arc::clone(field)),
        });
        Some(Arc::new(Schema::new(fields.collect::<Option<Vec<_>>>()?)))
    }

    /// Bytes of all files as stored; 0 for standard input.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size()).sum()
    }

    /// Whether the source is standard input, which can be read once.
    pub fn is_stdin(&self) -> bool {
        self.files.iter().any(|file| file.is_stdin())
    }

    /// Whether a split's first record can be found without having read what comes before:
    /// true but for delimited text with quoting, and Avro.
    pub fn has_exact_starts(&self) -> bool {
        match self.format.as_typed_format() {
            Some(format) => !format.has_speculative_boundaries(),
            None => !self.format.is_delimited() || self.dialect.quote.is_none(),
        }
    }

    /// Whether records begin with the count of their bytes.
    fn has_length_prefixes(&self) -> bool {
        self.spec.text_options.framing == Some(SyslogFraming::Octets)
    }

    /// How many bytes of what was cut out as a record stand before it.
    fn leading_blank_bytes(&self, record: &[u8]) -> usize {
        self.format.as_text_format().map_or(0, |format| format.leading_blank_bytes(record))
    }

    /// The keys of all columns of the files, where records have keys. A column whose type the user gave has what its
    /// type says, and is not looked into.
    fn known_keys(&self) -> Option<Arc<KnownKeys>> {
        let has_keys =
            self.format.as_text_format().is_some_and(formats::TextFormat::has_keyed_records);
        let known = || {
            let is_open = |index| self.columns.has_inferred_type(index);
            Arc::new(KnownKeys::new(&self.columns.fields, is_open))
        };
        has_keys.then(|| Arc::clone(self.known_keys.get_or_init(known)))
    }

    /// Returns whether columns are the keys of a sample of the records: others may have more.
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

    /// The Parquet metadata of a file, for pruning row groups by statistics; none for other
    /// formats.
    pub fn parquet_metadata(
        &self,
        file: usize,
    ) -> Option<&Arc<::parquet::file::metadata::ParquetMetaData>> {
        formats::parquet::parquet_metadata(self.files.get(file)?)
    }

    /// Whether a column is of texts that come best as codes of a dictionary where they are keys
    /// ([`ReadOptions::coded`]): that are stored so, in every file that has the column, or of which
    /// text seems to have few different ones.
    ///
    /// Cost: of text, once, its first 4,096 rows.
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
                .or_insert_with(|| low_cardinality::has_few_distinct_values(self, column));
        }
        self.files.iter().all(|file| {
            match self.columns.layout(file.index).places.get(*index).copied().flatten() {
                Some(place) => formats::parquet::is_dictionary_encoded_text(file, place),
                // It is null there; of other formats nothing is coded.
                None => formats::parquet::parquet_metadata(file).is_some(),
            }
        })
    }

    /// What the footers of a rowfile know of its blocks, for leaving out those that a filter rules
    /// out; none for other formats.
    pub fn block_statistics(&self, file: usize) -> Option<RowfileFooterStatistics> {
        RowfileFooterStatistics::from_file(self.files.get(file)?)
    }

    /// What was left out of the files that are not whole.
    pub fn salvage_reports(&self) -> Vec<SalvagedFile> {
        self.files.iter().filter_map(|file| formats::rowfile::salvage_report(file)).collect()
    }

    /// What a file of typed columns has for a column of the schema, for judging its statistics.
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
                    // Nothing is known of what is inside of a record.
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
                let keeps_order = type_unification::preserves_order(
                    schema.fields().get(place)?.data_type(),
                    self.schema.fields().get(column)?.data_type(),
                );
                Some(FileColumn::OwnColumn { schema, keeps_order })
            }
        }
    }

    /// A folder's value, so many times, as the type that its column has.
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

    /// What the user should be told of the files, whatever is done with them: that one is somewhere
    /// else than its URL says, or that a record seems to have been taken for a header.
    pub fn warning(&self) -> Option<String> {
        self.warning_for_columns(|_| true)
    }

    /// The same for whoever reads some of the columns: what is odd in others is nothing to them.
    pub fn warning_for_columns(&self, is_read: impl Fn(&str) -> bool) -> Option<String> {
        let mut warnings: Vec<String> =
            self.moved_files_warning().into_iter().chain(self.header_warning()).collect();
        warnings.extend(self.notes.iter().cloned());
        warnings.extend(self.column_warning(is_read));
        (!warnings.is_empty()).then(|| warnings.join("\n"))
    }

    /// What of this is of columns: those that are text, and look like something else.
    pub fn column_warning(&self, is_read: impl Fn(&str) -> bool) -> Option<String> {
        suspect_columns_warning(self.marked_columns.iter().filter(|column| is_read(&column.name)))
    }

    /// Returns the hint for a first file whose header is likely to be further down, for errors about columns that
    /// there are not.
    pub fn header_hint(&self) -> Option<String> {
        let (file, line) = (self.files.first()?, self.likely_header_line?);
        Some(format!("`{}`: {}", file.display_name, record_fault::likely_header_hint(line)))
    }

    /// Returns the message and the hint for a source of which all sampled records are malformed, for errors about the
    /// types of columns: no value showed that of one that is named and not declared.
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

    /// Whether a delimited record, or what was taken for its header, begins as comments mostly do,
    /// where nobody has said that there are any.
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

    /// A header of numbers alone, where nobody has said that there is one.
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

    /// Statistics of a file's column as the type that the column has in the source.
    pub fn cast_statistics(&self, column: usize, values: &ArrayRef) -> Option<ArrayRef> {
        let wanted = self.schema.fields().get(column)?.data_type();
        type_unification::cast_to_source_type(values, wanted, false).ok()
    }

    /// Statistics of a part of a file's column as the type that it has in the source; none where the
    /// order of values is another then.
    pub fn cast_nested_statistics(values: &ArrayRef, wanted: &DataType) -> Option<ArrayRef> {
        if !type_unification::preserves_order(values.data_type(), wanted) {
            return None;
        }
        type_unification::cast_to_source_type(values, wanted, false).ok()
    }

    /// Cuts the source into splits.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a text file that turns out to be of another format, and those of
    /// looking at its first bytes.
    pub fn splits(&self) -> Result<Vec<Split>> {
        self.splits_with_pruning(&mut |_, _| true)
    }

    /// The same, leaving out the row groups or blocks `(file, row group)` that `wanted` refuses.
    ///
    /// # Errors
    /// As [`splits`](Self::splits).
    pub fn splits_with_pruning(
        &self,
        wanted: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Vec<Split>> {
        self.splits_with_target_bytes(split::split_target_bytes(self.total_bytes()), wanted)
    }

    /// The same, cut as is said.
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
            Some(asked) => split::requested_target_bytes(asked, total),
            None => split::split_target_bytes(total),
        };
        self.cut_splits(target, cutting, wanted)
    }

    /// How large splits are that a sample is drawn from. What is elsewhere takes a request for each, and so it has fewer.
    pub fn sample_split_target_bytes(&self) -> u64 {
        let target = self.sample_split_target_bytes_for(self.total_bytes());
        match self.files.iter().all(|file| file.is_local()) {
            true => target,
            false => target.max((self.total_bytes() / REMOTE_SAMPLE_SPLITS).min(1 << 20)),
        }
    }

    /// How large they are of so many bytes on a disk.
    pub fn sample_split_target_bytes_for(&self, total: u64) -> u64 {
        sample_split_target_bytes(total, !self.format.is_typed())
    }

    /// The splits, with another target size than the one that the total gives.
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
        let mut packer = split::SplitPacker::new(target_bytes);
        let can_be_cut =
            |file: &SourceFile| !cutting.keeps_row_numbers && self.can_split_file(file);
        let is_read = |file: &&Arc<SourceFile>| {
            cutting.includes_file(file.index) && file.skip_reason.get().is_none()
        };
        let files = || self.files.iter().filter(is_read);
        if !self.format.is_typed() {
            let is_cut =
                |file: &&Arc<SourceFile>| split::equal_ranges(file.size(), target_bytes).len() > 1;
            // One that does not answer is not cut.
            let answers = |file: &&Arc<SourceFile>| {
                self.prober.as_ref().is_none_or(|asking| asking.is_readable(file))
            };
            let cut = |file: &&Arc<SourceFile>| is_cut(file) && answers(file) && can_be_cut(file);
            if let Some(asking) = &self.prober {
                asking.probe_files(files().filter(is_cut));
            }
            // Who has a deadline does not ask for the beginnings of a bucket: names are believed until a split begins
            // with what is no text.
            let is_peeked = |file: &&Arc<SourceFile>| {
                self.prober.is_none() || matches!(file.location, FileLocation::Local(_))
            };
            loop {
                let cut = files().filter(cut).filter(is_peeked).collect::<Vec<_>>();
                let peeked = content_detection::probe_files(&cut);
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
                    formats::batch_reader::pack_chunks(file, known, target_bytes, wanted)
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
                        let bytes = split::proportional_bytes(bytes, &part, rows);
                        packer
                            .add_alone(SplitPart { row_range: Some(part), ..piece.clone() }, bytes);
                        start = end;
                    }
                }
                continue;
            }
            let mut ranges =
                if can_be_cut(file) { split::equal_ranges(size, target_bytes) } else { vec![] };
            if ranges.len() > 1
                && let Some(format) = self.format.as_text_format()
            {
                let is_whole = match &self.prober {
                    // Nor does who has a deadline ask each of them how it is read.
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
                // Others are not to wait for it.
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

    /// Whether files elsewhere are read front to back: what one of them tells is believed of the others until they are
    /// read.
    fn are_remote_files_unsplittable<'a>(
        &self,
        format: &dyn formats::TextFormat,
        asking: &unresponsive_files::FileProber,
        files: impl Iterator<Item = &'a Arc<SourceFile>>,
    ) -> bool {
        const PROBED_FILES_MAX: usize = 3;
        let elsewhere = files.filter(|file| !file.is_local() && file.size() > 0);
        let told = elsewhere.take(PROBED_FILES_MAX).find_map(|file| {
            let until = asking.file_inspection_deadline(file)?;
            let watch = byte_input::ReadContext {
                cancel: file.cancel.child_flag_with_deadline(until),
                ..file.read_context()
            };
            format.is_unsplittable(file, &watch).ok()
        });
        told.unwrap_or(false)
    }

    /// Where the parts of a chunk end that is larger than splits should be, by its rows; nothing where it is
    /// to stay whole.
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
        let is_near = is_here || self.files.len() <= split::REMOTE_CUT_FILES_MAX;
        if bytes <= target.saturating_add(target / 2) || !is_near {
            return Vec::new();
        }
        format.row_cut_points(file, known, *chunk, target)
    }

    /// Compressed files, what goes through a program, and standard input are read front to back.
    /// So are CSV files with comments: whether a line is one depends on whether it starts inside
    /// quotes, and a comment may hold any number of quotes itself; and counted records: nothing
    /// but the count before it tells where one starts. What has not answered is not looked at before its split is
    /// read, and its header has to be.
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

    /// Fills in where the splits of cut files start, by one pass over those files with the
    /// record automaton: for callers that cannot read a split again after a wrong guess.
    ///
    /// # Errors
    /// Those of reading.
    pub fn resolve_exact_starts(&self, splits: &mut [Split], cancel: &CancelFlag) -> Result<()> {
        if self.has_exact_starts() {
            return Ok(());
        }
        split_boundaries::find_exact_boundaries(self, splits, cancel)
    }

    /// Where the first record of a split begins by what stands before it, for whoever does not read the split before:
    /// a record is guessed 256 KiB before the split and followed from there. A guess from other bytes than the reader's
    /// own, so that where both agree it can hardly be wrong. None where nothing is guessed.
    ///
    /// Cost: less than a millisecond; worth it where a split that [guessed](SplitReader::is_exact) has refused
    /// records.
    ///
    /// # Errors
    /// Those of reading.
    pub fn guess_start_from_before(
        &self,
        split: &Split,
        cancel: &CancelFlag,
    ) -> Result<Option<u64>> {
        split_boundaries::guess_boundary_from_before(self, split, cancel)
    }

    /// Goes through the compressed files of a split for what is damaged in them. A decoder gives out what it makes of a
    /// damaged file before it notices, and that may look like malformed records.
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
            let watch = byte_input::ReadContext {
                cancel: cancel.clone(),
                ..byte_input::ReadContext::default()
            };
            text_stream::verify_compressed_file(&piece.file, watch)
        })
    }

    /// Begins to read a split.
    ///
    /// # Errors
    /// [`Error::Changed`] if a file is not what was planned; [`Error::Io`].
    pub fn read_split(
        self: &Arc<Self>,
        split: &Split,
        options: &ReadOptions,
    ) -> Result<SplitReader> {
        SplitReader::open(self.clone(), split, options)
    }
}

/// Whether among the names of columns is a value such as the column has: a number over numbers, a date
/// over dates. Years, and more than two numbers at equal distances, are what wide tables have for names.
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

/// What a file has for a column of the source.
pub enum FileColumn<'a> {
    /// Its folder's value, in all rows: the key's position.
    PartitionKey(usize),
    /// Nothing: it is null in all rows.
    Missing,
    /// A column of its own, among these.
    OwnColumn {
        /// The file's columns.
        schema: &'a SchemaRef,
        /// Whether its values are ordered as they will be in the source.
        keeps_order: bool,
    },
}
