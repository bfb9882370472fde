//! The input formats: one file for each, and the list of all of them.
//!
//! There are two kinds. For **text** ([`TextFormat`]), a sample shows the columns; a decoder then finds the
//! records in the bytes and reports the malformed ones. **Typed** files ([`TypedFormat`]) state their own
//! columns and yield batches. The code around the formats is the same for all formats of a kind: listing,
//! partition columns, schema unification, splits, coverage, rejected records.
//!
//! To add a format, write its file and name it in the list below.
//!
//! - `stored_batch_reader`: reader for formats whose rows arrive as batches
//! - `inferred_columns`, `fixed_columns`: columns of text formats, inferred from a sample or fixed by the
//!   format
//! - `arrow_column_conversion`, `union_structs`: conversions of types that SQL does not have
//! - `julian_dates`: conversion of dates that Spark and Hive wrote by the Julian calendar
//! - `predicate_mask`: evaluation of predicates on decoded columns
//! - `registered_formats`: formats that the embedding program adds

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use ::arrow::array::RecordBatch;
use ::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::suggestions;
use tidemill_text::access_log::AccessLogShape;
use tidemill_text::log_format::LogFormat;
use tidemill_text::syslog::SyslogFraming;
use tidemill_text::{BlockDecoder, Options, Predicate};

use crate::error::{Error, Result};
use crate::files::byte_input::{ByteInput, ByteReadContext};
use crate::files::compression::Compression;
use crate::read_options::ReadOptions;
use crate::schema::column_layouts::{ColumnLayoutPolicy, FileColumns};
use crate::schema::log_names::is_log_name;
use crate::schema::source_sample::SourceSample;
use crate::schema::text_options::{CsvDialect, TextOptionSupport};
use crate::{SourceFile, SourceSpec, Split, SplitPart};
use stored_batch_reader::WantedColumn;

mod access_log;
mod arrow;
mod arrow_column_conversion;
pub(crate) mod avro;
pub(crate) mod delimited;
mod fixed_columns;
mod inferred_columns;
mod json;
mod julian_dates;
mod lines;
mod logfmt;
mod memory_rows;
pub(crate) mod parquet;
mod predicate_mask;
mod registered_formats;
pub(crate) mod rowfile;
pub(crate) mod stored_batch_reader;
mod syslog;
mod union_structs;

pub use memory_rows::MemoryRows;
pub use registered_formats::*;

/// Defines [`Format`] from the list of formats.
macro_rules! formats {
    ($($(#[doc = $doc:literal])+ $name:ident = $format:expr,)+) => {
        /// A file format that a source can read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Format {
            $($(#[doc = $doc])+ $name,)+
            /// A format that the embedding program has registered.
            Registered(&'static RegisteredFormat),
        }

        impl Format {
            /// The built-in formats, in the order in which messages list them.
            const BUILT_IN: &'static [Format] = &[$(Format::$name,)+];

            fn definition(self) -> &'static dyn FileFormat {
                match self {
                    $(Format::$name => &$format,)+
                    Format::Registered(format) => format,
                }
            }
        }
    };
}

formats! {
    /// Delimited text, with commas unless an option names another delimiter.
    Csv = delimited::CSV_FORMAT,
    /// Delimited text, with tabs unless an option names another delimiter.
    Tsv = delimited::TSV_FORMAT,
    /// JSON: objects, one per line or in any other sequence.
    Json = json::JsonSourceFormat,
    /// Access logs of web servers, in the Common or Combined Log Format.
    AccessLog = access_log::AccessLogSourceFormat,
    /// System logs by RFC 3164 or RFC 5424, one record per line.
    Syslog = syslog::SyslogSourceFormat,
    /// `key=value` pairs, one record per line.
    Logfmt = logfmt::LogfmtSourceFormat,
    /// Apache Parquet.
    Parquet = parquet::ParquetSourceFormat,
    /// Arrow IPC, files and streams.
    Arrow = arrow::ArrowSourceFormat,
    /// Avro object container files.
    Avro = avro::AvroSourceFormat,
    /// Tidemill's row format, which stores the schema once (`docs/formats/rowfile.md`).
    Rowfile = rowfile::RowfileSourceFormat,
    /// Plain lines of text, as one column `line`.
    Lines = lines::LinesSourceFormat,
    /// Batches that the embedding program holds in memory.
    Memory = memory_rows::MemorySourceFormat,
}

/// A file format as a source uses it.
pub(crate) trait FileFormat: Send + Sync {
    /// Returns the name that users write.
    fn name(&self) -> &str;

    /// Returns other names that users may write for the format.
    fn synonyms(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns whether users can name the format.
    fn is_user_nameable(&self) -> bool {
        true
    }

    /// Returns the suffixes of its file names, without the dot.
    fn suffixes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the text or typed implementation of the format.
    fn kind(&self) -> FormatKind<'_>;
}

/// The implementation of a format, by kind.
pub(crate) enum FormatKind<'a> {
    /// Text in which a decoder finds records.
    Text(&'a dyn TextFormat),
    /// Files that state their columns and yield batches.
    Typed(&'a dyn TypedFormat),
}

/// A text format: records that follow one another.
pub(crate) trait TextFormat: Send + Sync {
    /// Infers the columns from a sample.
    ///
    /// # Errors
    /// I/O errors; [`Error::Corrupt`] if no record shows a column.
    fn infer_columns(
        &self,
        spec: &SourceSpec,
        sample: &mut SourceSample<'_>,
    ) -> Result<FileColumns>;

    /// Detects undeclared text options from the beginning of the source and stores them in the sample.
    ///
    /// # Errors
    /// I/O errors, and invalid declared options.
    fn detect_text_options(
        &self,
        _spec: &SourceSpec,
        _sample: &mut SourceSample<'_>,
    ) -> Result<()> {
        Ok(())
    }

    /// Applies the types that the user declares for columns.
    ///
    /// # Errors
    /// [`Error::Usage`] for a column that cannot exist, and for a type that the column cannot have.
    fn declare_types(
        &self,
        columns: &mut FileColumns,
        wanted: &Schema,
        sample: &SourceSample<'_>,
    ) -> Result<()>;

    /// Creates the decoder of a file.
    ///
    /// # Errors
    /// The column whose type cannot be read from text.
    fn decoder(&self, of: DecoderSpec<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef>;

    /// Returns the options that this format takes besides those that every text format takes.
    fn supported_options(&self) -> TextOptionSupport {
        TextOptionSupport::default()
    }

    /// Returns whether records name their fields by keys, so that a record may have a key without a column.
    fn has_keyed_records(&self) -> bool {
        false
    }

    /// Returns whether records may follow one another without line ends, as JSON texts may.
    fn can_omit_line_ends(&self) -> bool {
        false
    }

    /// Returns whether a file cannot be split, unlike most text.
    ///
    /// # Errors
    /// Errors of reading the beginning of the file.
    fn is_unsplittable(&self, _file: &SourceFile, _watch: &ByteReadContext) -> Result<bool> {
        Ok(false)
    }

    /// Returns whether bytes from the middle of a file prove that it can be split.
    fn is_splittable_by_sample(&self, _seen: &[u8]) -> bool {
        true
    }

    /// Returns whether the meaning of a record depends on its file.
    fn needs_file_context(&self) -> bool {
        false
    }

    /// Returns whether some fields of a nested column can be read without the others.
    fn can_project_nested_fields(&self) -> bool {
        false
    }

    /// Returns the number of leading bytes of `record` that do not belong to its content.
    fn leading_blank_bytes(&self, _record: &[u8]) -> usize {
        0
    }
}

/// The format of the lines of an access log.
#[derive(Debug, Clone, Default)]
pub(crate) enum LogLineFormat {
    /// The Common and the Combined Log Format.
    #[default]
    Standard,
    /// Those formats with additional fields before and after.
    Extended(Arc<AccessLogShape>),
    /// The format that the user describes.
    UserDescribed(Arc<LogFormat>),
}

/// The file and the columns that a decoder is created for.
pub(crate) struct DecoderSpec<'a> {
    pub(crate) dialect: &'a CsvDialect,
    pub(crate) log_lines: &'a LogLineFormat,
    /// Number of fields of a record, in formats where it is fixed.
    pub(crate) field_count: usize,
    /// The columns: the position of the field in a record, and its target field.
    pub(crate) columns: Vec<(usize, FieldRef)>,
    /// Modification time of the file in seconds since 1970, if known.
    pub(crate) modified_seconds: Option<i64>,
    pub(crate) framing: SyslogFraming,
    pub(crate) options: Options,
}

impl DecoderSpec<'_> {
    /// Returns columns and options for a format that finds columns by name.
    fn into_columns_and_options(self) -> (Vec<FieldRef>, Options) {
        (self.columns.into_iter().map(|(_, field)| field).collect(), self.options)
    }
}

/// A typed format: files that state their own columns.
pub(crate) trait TypedFormat: Send + Sync {
    /// Inspects all files, stores the metadata of each in it, and returns the columns of all.
    ///
    /// # Errors
    /// I/O errors; [`Error::Corrupt`] for a file of another format; [`Error::IncompatibleFiles`] for a file
    /// with other columns, if `layouts` does not allow them to differ.
    fn inspect_columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: ColumnLayoutPolicy,
        stdin: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<FileColumns>;

    /// Inspects a file whose columns another process has determined. Cuts each of its row groups into at most
    /// `_parts_max` chunks.
    ///
    /// # Errors
    /// The errors of [`inspect_columns`](Self::inspect_columns).
    fn inspect_file(&self, file: &Arc<SourceFile>, _parts_max: u64) -> Result<()> {
        self.inspect_columns(std::slice::from_ref(file), ColumnLayoutPolicy::Union, &mut None)
            .map(drop)
    }

    /// Opens a split part for reading.
    ///
    /// # Errors
    /// [`Error::FileChanged`] if the file has changed since it was listed; I/O errors.
    fn open_part(&self, reading: SplitPartRequest<'_>) -> Result<Box<dyn SplitPartReader>>;

    /// Returns the byte ranges that these columns of a split part need, in the order of reading, as the
    /// footer states them; `None` if the file is read from front to back.
    fn needed_byte_ranges(
        &self,
        _piece: &SplitPart,
        _metadata: &(dyn FileMetadata + 'static),
        _columns: &[WantedColumn],
    ) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Cuts a chunk by rows into portions of about `_target` bytes. Returns the end row of each portion, the
    /// last included; empty if the chunk is not cut.
    fn row_cut_points(
        &self,
        _file: &SourceFile,
        _metadata: &(dyn FileMetadata + 'static),
        _chunk: usize,
        _target: u64,
    ) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the number of bytes at the end of a remote file to read first; 0 if the end is not read first.
    fn tail_prefetch_bytes(&self) -> u64 {
        0
    }

    /// Returns whether the format can be read from an input without random access.
    fn can_read_streams(&self) -> bool {
        false
    }

    /// Returns whether a file can be split at any byte, because a reader finds the next record from there.
    fn is_splittable_anywhere(&self) -> bool {
        false
    }

    /// Returns whether the start of a split part is a guess that must be verified.
    fn has_speculative_boundaries(&self) -> bool {
        false
    }

    /// Finds the exact boundaries of the splits of one file.
    ///
    /// # Errors
    /// I/O errors.
    fn find_exact_boundaries(&self, _splits: &mut [Split], _cancel: &CancelFlag) -> Result<()> {
        Ok(())
    }

    /// Returns whether some fields of a nested column can be read without the others.
    fn can_project_nested_fields(&self) -> bool {
        false
    }
}

/// A request to read a split part.
pub(crate) struct SplitPartRequest<'a> {
    pub(crate) part: &'a SplitPart,
    /// The metadata of its file.
    pub(crate) metadata: &'a (dyn FileMetadata + 'static),
    pub(crate) columns: Vec<WantedColumn>,
    /// Conditions on rows, by position among the columns. A reader may leave out rows that do not satisfy
    /// them.
    pub(crate) predicates: &'a [Predicate],
    pub(crate) options: &'a ReadOptions,
    pub(crate) context: ByteReadContext,
    /// Standard input, if that is the file.
    pub(crate) stdin: Option<Box<dyn ByteInput>>,
}

impl<'a> SplitPartRequest<'a> {
    /// Returns the metadata of the file as the format's own type.
    fn format_metadata<T: FileMetadata>(&self) -> Result<&'a T> {
        let metadata: &dyn Any = self.metadata;
        metadata.downcast_ref().ok_or_else(|| {
            Error::Internal(format!(
                "`{}` was inspected as another format",
                self.part.file.display_name()
            ))
        })
    }
}

/// The metadata of a typed file, known before its rows are read.
pub(crate) trait FileMetadata: Any + Debug + Send + Sync {
    /// Returns the file's columns before their conversion to the columns of the source.
    fn schema(&self) -> &SchemaRef;

    /// Returns the chunks that splits are packed from; `None` if the file is split by bytes or read whole.
    fn chunks(&self) -> Option<&[FileChunk]> {
        None
    }

    /// Returns the index of the file's own part with statistics, such as a row group, that contains a chunk.
    fn row_group_of_chunk(&self, chunk: usize) -> usize {
        chunk
    }

    /// Returns the maximum number of chunks that one of the file's own parts is cut into.
    fn chunks_per_row_group_max(&self) -> u64 {
        1
    }

    /// Returns, for each chunk, the number of rows before it and its own; `None` if only reading shows them.
    fn chunk_rows_with_offsets(&self) -> Option<Vec<(u64, u64)>> {
        Some(crate::splits::split::with_rows_before(
            self.chunks().unwrap_or_default().iter().map(|it| it.row_count),
        ))
    }

    /// Returns the offset of a chunk in the file; 0 for the first chunk and if the offset is unknown.
    fn chunk_offset(&self, _chunk: usize) -> u64 {
        0
    }

    /// Returns a message for the user about renamed columns.
    fn user_note(&self) -> Option<&str> {
        None
    }
}

/// A unit of work in a typed file: a row group or some of its rows, a block, or a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileChunk {
    /// Number of rows; 1 if only reading shows it.
    pub(crate) row_count: u64,
    /// Stored size in bytes.
    pub(crate) stored_bytes: u64,
}

/// Reads the requested columns of a split part.
pub(crate) trait SplitPartReader: Send {
    /// Returns the next rows; `None` at the end.
    ///
    /// # Errors
    /// I/O errors, and values that do not fit the type of their column.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>>;

    /// Returns the number of a row of the last batch, and the file offset from which rows are numbered.
    fn batch_row_number(&self, row: usize) -> (u64, u64);

    /// Returns the number of rows left out since the last call because they do not satisfy the predicates.
    fn take_dropped_row_count(&mut self) -> u64 {
        0
    }

    /// Returns the offset of the first record of the part if that offset is a guess.
    fn first_record_offset(&self) -> Option<u64> {
        None
    }

    /// Returns the offset of the first record after the part, once read. `None` in the same cases as
    /// [`first_record_offset`](Self::first_record_offset).
    fn next_record_offset(&self) -> Option<u64> {
        None
    }

    /// Returns the number of bytes skipped because they are damaged.
    fn skipped_bytes(&self) -> u64 {
        0
    }
}

impl Format {
    fn user_nameable_formats() -> impl Iterator<Item = Format> {
        Self::BUILT_IN.iter().copied().filter(|format| format.definition().is_user_nameable())
    }

    /// Returns the names that users can write, those of registered formats last.
    pub fn names() -> Vec<&'static str> {
        Self::user_nameable_formats()
            .map(Format::name)
            .chain(registered_format_names(false))
            .collect()
    }

    /// Returns the format that a file name implies, if any.
    ///
    /// The name is read from the right: a compression suffix (`.gz .zst .bz2 .xz`) is removed, then the last
    /// suffix decides. If no format has that suffix, the name of a log, also of a rotated one
    /// (`access.log.1`, `messages-20261128`), means plain lines, as `.log` does.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::from_suffix(path).or_else(|| is_log_name(path).then_some(Format::Lines))
    }

    /// Returns the format of the last suffix of a file name, below a compression suffix.
    pub fn from_suffix(path: &str) -> Option<Self> {
        let suffix = name_suffix(path)?;
        let added = || find_registered_by_suffix(&suffix).map(Format::Registered);
        Self::built_in_from_suffix(&suffix).or_else(added)
    }

    /// Returns the built-in format with this suffix.
    fn built_in_from_suffix(suffix: &str) -> Option<Self> {
        Self::user_nameable_formats()
            .find(|format| format.definition().suffixes().contains(&suffix))
    }

    /// Returns the name that users write.
    pub fn name(self) -> &'static str {
        self.definition().name()
    }

    /// Returns the implementation if this is a text format.
    pub(crate) fn as_text_format(self) -> Option<&'static dyn TextFormat> {
        match self.definition().kind() {
            FormatKind::Text(format) => Some(format),
            FormatKind::Typed(_) => None,
        }
    }

    /// Returns the implementation if this is a typed format.
    pub(crate) fn as_typed_format(self) -> Option<&'static dyn TypedFormat> {
        match self.definition().kind() {
            FormatKind::Typed(format) => Some(format),
            FormatKind::Text(_) => None,
        }
    }

    /// Returns whether the files state the types of their columns, which a schema may only widen.
    pub fn is_typed(self) -> bool {
        self.as_typed_format().is_some()
    }

    /// Returns whether the format can be read from an input without random access.
    pub(crate) fn can_read_streams(self) -> bool {
        self.as_typed_format().is_none_or(TypedFormat::can_read_streams)
    }

    /// Returns whether some fields of a nested column can be read without the others.
    pub(crate) fn can_project_nested_fields(self) -> bool {
        match self.definition().kind() {
            FormatKind::Text(format) => format.can_project_nested_fields(),
            FormatKind::Typed(format) => format.can_project_nested_fields(),
        }
    }

    /// Returns the text options that the format takes; `None` if it is not text.
    pub(crate) fn supported_text_options(self) -> Option<TextOptionSupport> {
        self.as_text_format().map(TextFormat::supported_options)
    }

    /// Returns whether records are delimited text with a [`CsvDialect`].
    pub fn is_delimited(self) -> bool {
        self.supported_text_options().is_some_and(|takes| takes.default_delimiter.is_some())
    }
}

/// Returns the lower-case text after the last dot of a name, below a compression suffix.
fn name_suffix(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (stem, _) = Compression::strip_suffix(name);
    Some(stem.rsplit_once('.')?.1.to_ascii_lowercase())
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        let lower = word.to_ascii_lowercase();
        let is_it = |format: &Format| {
            format.name() == lower || format.definition().synonyms().contains(&lower.as_str())
        };
        let added = || find_registered_format(&lower).map(Format::Registered);
        Self::user_nameable_formats().find(is_it).or_else(added).ok_or_else(|| {
            Error::usage(suggestions::unknown_name_message("format", word, &Self::names()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::user_message;
    use crate::schema::text_options::{TextOptions, parse_framing};

    #[test]
    fn format_is_detected_below_a_compression_suffix() {
        for (path, expected) in [
            ("a.csv", Some(Format::Csv)),
            ("dir.json/a.CSV.gz", Some(Format::Csv)),
            ("a.tab.xz", Some(Format::Tsv)),
            ("a.jsonl.zst", Some(Format::Json)),
            ("a.pq", Some(Format::Parquet)),
            ("a.arrow", Some(Format::Arrow)),
            ("a.arrows", Some(Format::Arrow)),
            ("a.feather", Some(Format::Arrow)),
            ("a.ipc", Some(Format::Arrow)),
            ("a.avro", Some(Format::Avro)),
            ("access.log.bz2", Some(Format::Lines)),
            ("access.log.1", Some(Format::Lines)),
            ("messages-20261128.gz", Some(Format::Lines)),
            ("access.log.1.csv", Some(Format::Csv)),
            ("data.1", None),
            ("a.gz", None),
            ("noext", None),
        ] {
            assert_eq!(Format::from_path(path), expected, "{path}");
        }
    }

    #[test]
    fn unknown_format_suggests_the_nearest_name() {
        let message = user_message("jsno".parse::<Format>().unwrap_err());
        assert!(message.contains("did you mean `json`"), "{message}");
    }

    #[test]
    fn options_that_contradict_one_another_or_the_format_are_refused() {
        let of = |change: fn(&mut TextOptions), format: Format| {
            let mut options = TextOptions::default();
            change(&mut options);
            options.to_dialect(format.name(), format.supported_text_options()).map_err(user_message)
        };
        assert!(of(|o| o.delimiter = Some(b'"'), Format::Csv).unwrap_err().contains("both `\\\"`"));
        assert!(of(|o| o.header = Some(false), Format::Json).unwrap_err().contains("`header`"));
        assert!(of(|o| o.quote = Some(Some(b'\n')), Format::Csv).is_err());
        let octets = |o: &mut TextOptions| o.framing = Some(SyslogFraming::Octets);
        assert!(of(octets, Format::Syslog).is_ok());
        assert!(of(octets, Format::Lines).unwrap_err().contains("`framing`"));
        assert!(user_message(parse_framing("octet").unwrap_err()).contains("`lines` or `octets`"));
        assert_eq!(of(|o| o.escape = Some(b'"'), Format::Csv).unwrap().escape, None);
        assert_eq!(of(|_| (), Format::Tsv).unwrap().delimiter, b'\t');
    }
}
