//! The formats: each in a file of its own, and the one list of them.
//!
//! There are two kinds. Of **text** a sample tells the columns, and a decoder finds records in its
//! bytes and says which of them are malformed ([`TextFormat`]). **Typed** files say what columns they
//! have, and give batches ([`TypedFormat`]). What stands around both is the same for all of a kind:
//! listing, folder keys, files that differ, splits, coverage, refused records.
//!
//! To add a format is to write its file and to name it in the list below.

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

use crate::byte_input::{ByteInput, ReadContext};
use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::file_columns::{ColumnLayoutPolicy, FileColumns};
use crate::log_names::is_log_name;
use crate::read_options::ReadOptions;
use crate::source_sample::SourceSample;
use crate::text_options::{CsvDialect, TextOptionSupport};
use crate::{SourceFile, SourceSpec, Split, SplitPart};
use batch_reader::WantedColumn;

mod access_log;
mod arrow;
pub(crate) mod avro;
pub(crate) mod batch_reader;
mod column_conversion;
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
mod syslog;
mod union_structs;

pub use memory_rows::MemoryRows;
pub use registered_formats::*;

/// The list.
macro_rules! formats {
    ($($(#[doc = $doc:literal])+ $name:ident = $format:expr,)+) => {
        /// A file format that a source can read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Format {
            $($(#[doc = $doc])+ $name,)+
            /// A format that the program around has added.
            Registered(&'static RegisteredFormat),
        }

        impl Format {
            /// Those that are always there, in the order in which messages list them.
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
    /// Delimited text, comma unless told otherwise.
    Csv = delimited::CSV_FORMAT,
    /// Delimited text, tab unless told otherwise.
    Tsv = delimited::TSV_FORMAT,
    /// JSON: objects, one per line or in any other sequence.
    Json = json::JsonSourceFormat,
    /// Access logs of web servers, in the Common or Combined Log Format.
    AccessLog = access_log::AccessLogSourceFormat,
    /// System logs, of RFC 3164 or RFC 5424, a record per line.
    Syslog = syslog::SyslogSourceFormat,
    /// `key=value` pairs, a record per line.
    Logfmt = logfmt::LogfmtSourceFormat,
    /// Apache Parquet.
    Parquet = parquet::ParquetSourceFormat,
    /// Arrow IPC, files and streams.
    Arrow = arrow::ArrowSourceFormat,
    /// Avro object container files.
    Avro = avro::AvroSourceFormat,
    /// Rows whose schema stands once (`docs/formats/rowfile.md`).
    Rowfile = rowfile::RowfileSourceFormat,
    /// Plain lines of text, as one column `line`.
    Lines = lines::LinesSourceFormat,
    /// Batches that the program around has in memory.
    Memory = memory_rows::MemorySourceFormat,
}

/// A format, as a source sees it.
pub(crate) trait FileFormat: Send + Sync {
    /// The name users write.
    fn name(&self) -> &str;

    /// Other words that users may write for it.
    fn synonyms(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether users can name it at all.
    fn is_user_nameable(&self) -> bool {
        true
    }

    /// What the names of its files end in, without the dot.
    fn suffixes(&self) -> &'static [&'static str] {
        &[]
    }

    /// How it is read.
    fn kind(&self) -> FormatKind<'_>;
}

/// What there is of a format.
pub(crate) enum FormatKind<'a> {
    /// Text, in which a decoder finds records.
    Text(&'a dyn TextFormat),
    /// Files that know their columns and give batches.
    Typed(&'a dyn TypedFormat),
}

/// Text: records one behind the other.
pub(crate) trait TextFormat: Send + Sync {
    /// The columns that a sample shows.
    ///
    /// # Errors
    /// Those of reading; [`Error::Corrupt`] where there is nothing that shows a column.
    fn infer_columns(
        &self,
        spec: &SourceSpec,
        sample: &mut SourceSample<'_>,
    ) -> Result<FileColumns>;

    /// Finds out from the beginning of the source how it is written, where that is not said: sets
    /// what the sample has for it.
    ///
    /// # Errors
    /// Those of reading, and of what is said.
    fn detect_text_options(
        &self,
        _spec: &SourceSpec,
        _sample: &mut SourceSample<'_>,
    ) -> Result<()> {
        Ok(())
    }

    /// Gives columns the types that the user has for them.
    ///
    /// # Errors
    /// [`Error::Usage`] for a column that there cannot be, and for a type that it cannot have.
    fn declare_types(
        &self,
        columns: &mut FileColumns,
        wanted: &Schema,
        sample: &SourceSample<'_>,
    ) -> Result<()>;

    /// What decodes a file.
    ///
    /// # Errors
    /// A column that text cannot be read as.
    fn decoder(&self, of: DecoderSpec<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef>;

    /// Which options it takes besides those that all have.
    fn supported_options(&self) -> TextOptionSupport {
        TextOptionSupport::default()
    }

    /// Returns whether columns are found by keys that records have, so that one may have a key that no column has.
    fn has_keyed_records(&self) -> bool {
        false
    }

    /// Returns whether records may also follow each other without line ends, as JSON texts do.
    fn can_omit_line_ends(&self) -> bool {
        false
    }

    /// Whether a file cannot be cut, though text mostly can.
    ///
    /// # Errors
    /// Those of reading its beginning.
    fn is_unsplittable(&self, _file: &SourceFile, _watch: &ReadContext) -> Result<bool> {
        Ok(false)
    }

    /// Whether bytes from the middle of a file show that it can be cut.
    fn is_splittable_by_sample(&self, _seen: &[u8]) -> bool {
        true
    }

    /// Whether what a record means depends on the file that it is in.
    fn needs_file_context(&self) -> bool {
        false
    }

    /// Whether parts of a nested column can be read without the others.
    fn can_project_nested_fields(&self) -> bool {
        false
    }

    /// How many bytes before what is in a record are not of it.
    fn leading_blank_bytes(&self, _record: &[u8]) -> usize {
        0
    }
}

/// What the lines of an access log look like.
#[derive(Debug, Clone, Default)]
pub(crate) enum LogLineFormat {
    /// As the Common and the Combined Log Format.
    #[default]
    Standard,
    /// As those, with more before and behind.
    Extended(Arc<AccessLogShape>),
    /// As the user describes them.
    UserDescribed(Arc<LogFormat>),
}

/// What a decoder is for.
pub(crate) struct DecoderSpec<'a> {
    pub(crate) dialect: &'a CsvDialect,
    pub(crate) log_lines: &'a LogLineFormat,
    /// How many fields a record has, where that is fixed.
    pub(crate) field_count: usize,
    /// The columns: each a field's position in a record, and what it becomes.
    pub(crate) columns: Vec<(usize, FieldRef)>,
    /// When the file was last written to, in seconds since 1970, if that is known.
    pub(crate) modified_seconds: Option<i64>,
    pub(crate) framing: SyslogFraming,
    pub(crate) options: Options,
}

impl DecoderSpec<'_> {
    /// The columns of a format that finds them by their names.
    fn into_columns_and_options(self) -> (Vec<FieldRef>, Options) {
        (self.columns.into_iter().map(|(_, field)| field).collect(), self.options)
    }
}

/// Files that say what columns they have.
pub(crate) trait TypedFormat: Send + Sync {
    /// The columns of all files. Each of them is looked at, and keeps what is known of it.
    ///
    /// # Errors
    /// Those of reading; [`Error::Corrupt`] for a file of another format; [`Error::Differ`] for one
    /// whose columns are others, where they may not be.
    fn inspect_columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: ColumnLayoutPolicy,
        stdin: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<FileColumns>;

    /// Looks at a file that somebody else has found the columns of; each of its parts is cut into so many at most.
    ///
    /// # Errors
    /// Those of [`columns`](Self::columns).
    fn inspect_file(&self, file: &Arc<SourceFile>, _parts_max: u64) -> Result<()> {
        self.inspect_columns(std::slice::from_ref(file), ColumnLayoutPolicy::Union, &mut None)
            .map(drop)
    }

    /// Begins to read a piece of a file.
    ///
    /// # Errors
    /// [`Error::Changed`] if the file is not what it was; those of reading.
    fn open_part(&self, reading: SplitPartRequest<'_>) -> Result<Box<dyn SplitPartReader>>;

    /// The bytes of a piece that will be read for these columns, in order of need, where its file's
    /// footer tells; none where it is read from front to back.
    fn needed_byte_ranges(
        &self,
        _piece: &SplitPart,
        _metadata: &(dyn FileMetadata + 'static),
        _columns: &[WantedColumn],
    ) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Where the parts of a chunk end that is cut into such as have about `target` bytes each, by its rows, the last
    /// end included; nothing where it is not cut.
    fn row_cut_points(
        &self,
        _file: &SourceFile,
        _metadata: &(dyn FileMetadata + 'static),
        _chunk: usize,
        _target: u64,
    ) -> Vec<u64> {
        Vec::new()
    }

    /// So much of a file's end is read before all else, where it is elsewhere; 0 where that is not so.
    fn tail_prefetch_bytes(&self) -> u64 {
        0
    }

    /// Whether what can only be read from front to back can be of it.
    fn can_read_streams(&self) -> bool {
        false
    }

    /// Whether a file can be cut anywhere, its records being found from there on.
    fn is_splittable_anywhere(&self) -> bool {
        false
    }

    /// Whether the place where a part of a cut file begins is a guess, which is to be confirmed.
    fn has_speculative_boundaries(&self) -> bool {
        false
    }

    /// Finds where the splits of one file start.
    ///
    /// # Errors
    /// Those of reading.
    fn find_exact_boundaries(&self, _splits: &mut [Split], _cancel: &CancelFlag) -> Result<()> {
        Ok(())
    }

    /// Whether parts of a nested column can be read without the others.
    fn can_project_nested_fields(&self) -> bool {
        false
    }
}

/// A piece that is to be read, and how.
pub(crate) struct SplitPartRequest<'a> {
    pub(crate) part: &'a SplitPart,
    /// What is known of its file.
    pub(crate) metadata: &'a (dyn FileMetadata + 'static),
    pub(crate) columns: Vec<WantedColumn>,
    /// What rows should satisfy, by position among the columns; a reader may leave out others.
    pub(crate) predicates: &'a [Predicate],
    pub(crate) options: &'a ReadOptions,
    pub(crate) context: ReadContext,
    /// Standard input, where it is the file.
    pub(crate) stdin: Option<Box<dyn ByteInput>>,
}

impl<'a> SplitPartRequest<'a> {
    /// What the format itself knows of the file.
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

/// What is known of a typed file before its rows are read.
pub(crate) trait FileMetadata: Any + Debug + Send + Sync {
    /// Its columns as they come, before they are made what the source has.
    fn schema(&self) -> &SchemaRef;

    /// The parts that splits take runs of; none where it is cut as bytes, or read whole.
    fn chunks(&self) -> Option<&[FileChunk]> {
        None
    }

    /// Which of the file's parts that have statistics a chunk is of.
    fn row_group_of_chunk(&self, chunk: usize) -> usize {
        chunk
    }

    /// Into how many chunks one of the file's own parts was cut at most.
    fn chunks_per_row_group_max(&self) -> u64 {
        1
    }

    /// For each chunk the rows of the file before it, and its own; none where only reading tells.
    fn chunk_rows_with_offsets(&self) -> Option<Vec<(u64, u64)>> {
        Some(crate::split::with_rows_before(
            self.chunks().unwrap_or_default().iter().map(|it| it.row_count),
        ))
    }

    /// Where a chunk begins in the file; 0 for the first one, and where that is not known.
    fn chunk_offset(&self, _chunk: usize) -> u64 {
        0
    }

    /// A message for the user about the file: renamed columns.
    fn user_note(&self) -> Option<&str> {
        None
    }
}

/// A row group or some of its rows, a block, a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileChunk {
    /// Its rows; 1 where only reading it tells.
    pub(crate) row_count: u64,
    /// Its bytes as stored.
    pub(crate) stored_bytes: u64,
}

/// Reads the wanted columns of a piece.
pub(crate) trait SplitPartReader: Send {
    /// The next rows; none at the end.
    ///
    /// # Errors
    /// Those of reading, and of values that do not fit.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>>;

    /// The number of a row of the last batch, and from which byte of the file on they are numbered.
    fn batch_row_number(&self, row: usize) -> (u64, u64);

    /// How many rows were left out since this was last asked, as they do not satisfy the predicates.
    fn take_dropped_row_count(&mut self) -> u64 {
        0
    }

    /// Where the first record of the piece begins, where that is a guess.
    fn first_record_offset(&self) -> Option<u64> {
        None
    }

    /// Where the first record behind the piece begins, once it is read; as [`start`](Self::start).
    fn next_record_offset(&self) -> Option<u64> {
        None
    }

    /// Bytes of what was left out because it is damaged.
    fn skipped_bytes(&self) -> u64 {
        0
    }
}

impl Format {
    fn user_nameable_formats() -> impl Iterator<Item = Format> {
        Self::BUILT_IN.iter().copied().filter(|format| format.definition().is_user_nameable())
    }

    /// The names users can write, those of the formats that were added behind the others.
    pub fn names() -> Vec<&'static str> {
        Self::user_nameable_formats()
            .map(Format::name)
            .chain(registered_format_names(false))
            .collect()
    }

    /// The format that a file's name tells, if it tells one.
    ///
    /// A name is read from the right: a compression suffix (`.gz .zst .bz2 .xz`) is set aside, then
    /// the last suffix decides. Where it is none of a format's, the name of a log, a rotated one too
    /// (`access.log.1`, `messages-20261128`), tells plain lines, as `.log` does.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::from_suffix(path).or_else(|| is_log_name(path).then_some(Format::Lines))
    }

    /// The format that the last suffix of a file's name tells, a compression's set aside.
    pub fn from_suffix(path: &str) -> Option<Self> {
        let suffix = name_suffix(path)?;
        let added = || find_registered_by_suffix(&suffix).map(Format::Registered);
        Self::built_in_from_suffix(&suffix).or_else(added)
    }

    /// The format of this suffix, of those that are always there.
    fn built_in_from_suffix(suffix: &str) -> Option<Self> {
        Self::user_nameable_formats()
            .find(|format| format.definition().suffixes().contains(&suffix))
    }

    /// The name users write.
    pub fn name(self) -> &'static str {
        self.definition().name()
    }

    /// How it is read, if it is text.
    pub(crate) fn as_text_format(self) -> Option<&'static dyn TextFormat> {
        match self.definition().kind() {
            FormatKind::Text(format) => Some(format),
            FormatKind::Typed(_) => None,
        }
    }

    /// How it is read, if its columns have types of their own.
    pub(crate) fn as_typed_format(self) -> Option<&'static dyn TypedFormat> {
        match self.definition().kind() {
            FormatKind::Typed(format) => Some(format),
            FormatKind::Text(_) => None,
        }
    }

    /// Whether its columns have types of their own, which a schema may only widen.
    pub fn is_typed(self) -> bool {
        self.as_typed_format().is_some()
    }

    /// Whether what can only be read from front to back can be of it.
    pub(crate) fn can_read_streams(self) -> bool {
        self.as_typed_format().is_none_or(TypedFormat::can_read_streams)
    }

    /// Whether some fields of a nested column can be read without the others.
    pub(crate) fn can_project_nested_fields(self) -> bool {
        match self.definition().kind() {
            FormatKind::Text(format) => format.can_project_nested_fields(),
            FormatKind::Typed(format) => format.can_project_nested_fields(),
        }
    }

    /// Which options of text it takes; none if it is no text.
    pub(crate) fn supported_text_options(self) -> Option<TextOptionSupport> {
        self.as_text_format().map(TextFormat::supported_options)
    }

    /// Whether records are delimited text with a [`Dialect`].
    pub fn is_delimited(self) -> bool {
        self.supported_text_options().is_some_and(|takes| takes.default_delimiter.is_some())
    }
}

/// What follows a name's last dot, its compression's suffix set aside.
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
    use crate::text_options::{TextOptions, parse_framing};

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
