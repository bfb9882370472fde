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

use crate::columns::{Columns, Layouts};
use crate::compression::Compression;
use crate::dialect::{CsvDialect, Takes};
use crate::error::{Error, Result};
use crate::input::{ByteInput, Watch};
use crate::log_names::is_log_name;
use crate::options::ReadOptions;
use crate::sample::Sample;
use crate::{Piece, SourceFile, SourceSpec, Split};
use batches::WantedColumn;

mod access_log;
mod arrow;
pub(crate) mod avro;
pub(crate) mod batches;
pub(crate) mod delimited;
mod fixed;
mod inferred;
mod json;
mod julian_dates;
mod kept;
mod lines;
mod logfmt;
mod memory;
pub(crate) mod parquet;
mod registered;
pub(crate) mod rowfile;
mod shown_columns;
mod syslog;
mod unions;

pub use memory::Given;
pub use registered::*;

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
    Csv = delimited::CSV,
    /// Delimited text, tab unless told otherwise.
    Tsv = delimited::TSV,
    /// JSON: objects, one per line or in any other sequence.
    Json = json::Json,
    /// Access logs of web servers, in the Common or Combined Log Format.
    AccessLog = access_log::AccessLog,
    /// System logs, of RFC 3164 or RFC 5424, a record per line.
    Syslog = syslog::Syslog,
    /// `key=value` pairs, a record per line.
    Logfmt = logfmt::Logfmt,
    /// Apache Parquet.
    Parquet = parquet::Parquet,
    /// Arrow IPC, files and streams.
    Arrow = arrow::Arrow,
    /// Avro object container files.
    Avro = avro::Avro,
    /// Rows whose schema stands once (`docs/formats/rowfile.md`).
    Rowfile = rowfile::Rowfile,
    /// Plain lines of text, as one column `line`.
    Lines = lines::Lines,
    /// Batches that the program around has in memory.
    Memory = memory::Memory,
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
    fn is_named(&self) -> bool {
        true
    }

    /// What the names of its files end in, without the dot.
    fn suffixes(&self) -> &'static [&'static str] {
        &[]
    }

    /// How it is read.
    fn kind(&self) -> Kind<'_>;
}

/// What there is of a format.
pub(crate) enum Kind<'a> {
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
    fn columns(&self, spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns>;

    /// Finds out from the beginning of the source how it is written, where that is not said: sets
    /// what the sample has for it.
    ///
    /// # Errors
    /// Those of reading, and of what is said.
    fn sniff(&self, _spec: &SourceSpec, _sample: &mut Sample<'_>) -> Result<()> {
        Ok(())
    }

    /// Gives columns the types that the user has for them.
    ///
    /// # Errors
    /// [`Error::Usage`] for a column that there cannot be, and for a type that it cannot have.
    fn settle(&self, columns: &mut Columns, wanted: &Schema, sample: &Sample<'_>) -> Result<()>;

    /// What decodes a file.
    ///
    /// # Errors
    /// A column that text cannot be read as.
    fn decoder(&self, of: Decoding<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef>;

    /// Which options it takes besides those that all have.
    fn takes(&self) -> Takes {
        Takes::default()
    }

    /// Returns whether columns are found by keys that records have, so that one may have a key that no column has.
    fn has_keys(&self) -> bool {
        false
    }

    /// Returns whether records may also follow each other without line ends, as JSON texts do.
    fn is_sequence(&self) -> bool {
        false
    }

    /// Whether a file cannot be cut, though text mostly can.
    ///
    /// # Errors
    /// Those of reading its beginning.
    fn is_whole(&self, _file: &SourceFile, _watch: &Watch) -> Result<bool> {
        Ok(false)
    }

    /// Whether bytes from the middle of a file show that it can be cut.
    fn shows_cut(&self, _seen: &[u8]) -> bool {
        true
    }

    /// Whether what a record means depends on the file that it is in.
    fn depends_on_file(&self) -> bool {
        false
    }

    /// Whether parts of a nested column can be read without the others.
    fn reads_parts(&self) -> bool {
        false
    }

    /// How many bytes before what is in a record are not of it.
    fn blank_before(&self, _record: &[u8]) -> usize {
        0
    }
}

/// What the lines of an access log look like.
#[derive(Debug, Clone, Default)]
pub(crate) enum LogLines {
    /// As the Common and the Combined Log Format.
    #[default]
    Plain,
    /// As those, with more before and behind.
    Shaped(Arc<AccessLogShape>),
    /// As the user describes them.
    Described(Arc<LogFormat>),
}

/// What a decoder is for.
pub(crate) struct Decoding<'a> {
    pub(crate) dialect: &'a CsvDialect,
    pub(crate) log: &'a LogLines,
    /// How many fields a record has, where that is fixed.
    pub(crate) fields: usize,
    /// The columns: each a field's position in a record, and what it becomes.
    pub(crate) columns: Vec<(usize, FieldRef)>,
    /// When the file was last written to, in seconds since 1970, if that is known.
    pub(crate) written_seconds: Option<i64>,
    pub(crate) framing: SyslogFraming,
    pub(crate) options: Options,
}

impl Decoding<'_> {
    /// The columns of a format that finds them by their names.
    fn by_name(self) -> (Vec<FieldRef>, Options) {
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
    fn columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: Layouts,
        stdin: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<Columns>;

    /// Looks at a file that somebody else has found the columns of; each of its parts is cut into so many at most.
    ///
    /// # Errors
    /// Those of [`columns`](Self::columns).
    fn look(&self, file: &Arc<SourceFile>, _parts_max: u64) -> Result<()> {
        self.columns(std::slice::from_ref(file), Layouts::Union, &mut None).map(drop)
    }

    /// Begins to read a piece of a file.
    ///
    /// # Errors
    /// [`Error::Changed`] if the file is not what it was; those of reading.
    fn open(&self, reading: Reading<'_>) -> Result<Box<dyn PieceReader>>;

    /// The bytes of a piece that will be read for these columns, in order of need, where its file's
    /// footer tells; none where it is read from front to back.
    fn ranges(
        &self,
        _piece: &Piece,
        _metadata: &(dyn FileMetadata + 'static),
        _columns: &[WantedColumn],
    ) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Where the parts of a chunk end that is cut into such as have about `target` bytes each, by its rows, the last
    /// end included; nothing where it is not cut.
    fn row_cuts(
        &self,
        _file: &SourceFile,
        _metadata: &(dyn FileMetadata + 'static),
        _chunk: usize,
        _target: u64,
    ) -> Vec<u64> {
        Vec::new()
    }

    /// So much of a file's end is read before all else, where it is elsewhere; 0 where that is not so.
    fn end_bytes(&self) -> u64 {
        0
    }

    /// Whether what can only be read from front to back can be of it.
    fn is_read_forwards(&self) -> bool {
        false
    }

    /// Whether a file can be cut anywhere, its records being found from there on.
    fn is_cut_anywhere(&self) -> bool {
        false
    }

    /// Whether the place where a part of a cut file begins is a guess, which is to be confirmed.
    fn guesses_starts(&self) -> bool {
        false
    }

    /// Finds where the splits of one file start.
    ///
    /// # Errors
    /// Those of reading.
    fn find_starts(&self, _splits: &mut [Split], _cancel: &CancelFlag) -> Result<()> {
        Ok(())
    }

    /// Whether parts of a nested column can be read without the others.
    fn reads_parts(&self) -> bool {
        false
    }
}

/// A piece that is to be read, and how.
pub(crate) struct Reading<'a> {
    pub(crate) piece: &'a Piece,
    /// What is known of its file.
    pub(crate) metadata: &'a (dyn FileMetadata + 'static),
    pub(crate) columns: Vec<WantedColumn>,
    /// What rows should satisfy, by position among the columns; a reader may leave out others.
    pub(crate) predicates: &'a [Predicate],
    pub(crate) options: &'a ReadOptions,
    pub(crate) watch: Watch,
    /// Standard input, where it is the file.
    pub(crate) stdin: Option<Box<dyn ByteInput>>,
}

impl<'a> Reading<'a> {
    /// What the format itself knows of the file.
    fn metadata_as<T: FileMetadata>(&self) -> Result<&'a T> {
        let metadata: &dyn Any = self.metadata;
        metadata.downcast_ref().ok_or_else(|| {
            Error::Internal(format!(
                "`{}` was inspected as another format",
                self.piece.file.shown()
            ))
        })
    }
}

/// What is known of a typed file before its rows are read.
pub(crate) trait FileMetadata: Any + Debug + Send + Sync {
    /// Its columns as they come, before they are made what the source has.
    fn schema(&self) -> &SchemaRef;

    /// The parts that splits take runs of; none where it is cut as bytes, or read whole.
    fn chunks(&self) -> Option<&[Chunk]> {
        None
    }

    /// Which of the file's parts that have statistics a chunk is of.
    fn part_of(&self, chunk: usize) -> usize {
        chunk
    }

    /// Into how many chunks one of the file's own parts was cut at most.
    fn parts_max(&self) -> u64 {
        1
    }

    /// For each chunk the rows of the file before it, and its own; none where only reading tells.
    fn rows(&self) -> Option<Vec<(u64, u64)>> {
        Some(crate::split::numbered(self.chunks().unwrap_or_default().iter().map(|it| it.rows)))
    }

    /// Where a chunk begins in the file; 0 for the first one, and where that is not known.
    fn offset(&self, _chunk: usize) -> u64 {
        0
    }

    /// A message for the user about the file: renamed columns.
    fn note(&self) -> Option<&str> {
        None
    }
}

/// A row group or some of its rows, a block, a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk {
    /// Its rows; 1 where only reading it tells.
    pub(crate) rows: u64,
    /// Its bytes as stored.
    pub(crate) bytes: u64,
}

/// Reads the wanted columns of a piece.
pub(crate) trait PieceReader: Send {
    /// The next rows; none at the end.
    ///
    /// # Errors
    /// Those of reading, and of values that do not fit.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>>;

    /// The number of a row of the last batch, and from which byte of the file on they are numbered.
    fn row_number(&self, row: usize) -> (u64, u64);

    /// How many rows were left out since this was last asked, as they do not satisfy the predicates.
    fn take_dropped(&mut self) -> u64 {
        0
    }

    /// Where the first record of the piece begins, where that is a guess.
    fn start(&self) -> Option<u64> {
        None
    }

    /// Where the first record behind the piece begins, once it is read; as [`start`](Self::start).
    fn end(&self) -> Option<u64> {
        None
    }

    /// Bytes of what was left out because it is damaged.
    fn left_out_bytes(&self) -> u64 {
        0
    }
}

impl Format {
    fn named_ones() -> impl Iterator<Item = Format> {
        Self::BUILT_IN.iter().copied().filter(|format| format.definition().is_named())
    }

    /// The names users can write, those of the formats that were added behind the others.
    pub fn names() -> Vec<&'static str> {
        Self::named_ones().map(Format::name).chain(names(false)).collect()
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
        let suffix = suffix(path)?;
        let added = || with_suffix(&suffix).map(Format::Registered);
        Self::of_suffix(&suffix).or_else(added)
    }

    /// The format of this suffix, of those that are always there.
    fn of_suffix(suffix: &str) -> Option<Self> {
        Self::named_ones().find(|format| format.definition().suffixes().contains(&suffix))
    }

    /// The name users write.
    pub fn name(self) -> &'static str {
        self.definition().name()
    }

    /// How it is read, if it is text.
    pub(crate) fn text(self) -> Option<&'static dyn TextFormat> {
        match self.definition().kind() {
            Kind::Text(format) => Some(format),
            Kind::Typed(_) => None,
        }
    }

    /// How it is read, if its columns have types of their own.
    pub(crate) fn typed(self) -> Option<&'static dyn TypedFormat> {
        match self.definition().kind() {
            Kind::Typed(format) => Some(format),
            Kind::Text(_) => None,
        }
    }

    /// Whether its columns have types of their own, which a schema may only widen.
    pub fn is_typed(self) -> bool {
        self.typed().is_some()
    }

    /// Whether what can only be read from front to back can be of it.
    pub(crate) fn is_read_forwards(self) -> bool {
        self.typed().is_none_or(TypedFormat::is_read_forwards)
    }

    /// Whether some fields of a nested column can be read without the others.
    pub(crate) fn reads_parts(self) -> bool {
        match self.definition().kind() {
            Kind::Text(format) => format.reads_parts(),
            Kind::Typed(format) => format.reads_parts(),
        }
    }

    /// Which options of text it takes; none if it is no text.
    pub(crate) fn takes(self) -> Option<Takes> {
        self.text().map(TextFormat::takes)
    }

    /// Whether records are delimited text with a [`Dialect`].
    pub fn is_delimited(self) -> bool {
        self.takes().is_some_and(|takes| takes.delimiter.is_some())
    }
}

/// What follows a name's last dot, its compression's suffix set aside.
fn suffix(path: &str) -> Option<String> {
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
        let added = || named(&lower).map(Format::Registered);
        Self::named_ones().find(is_it).or_else(added).ok_or_else(|| {
            Error::usage(suggestions::unknown_name_message("format", word, &Self::names()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{TextOptions, framing};
    use crate::error::as_told;

    #[test]
    fn a_name_tells_its_format_beneath_a_compression_suffix() {
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
    fn an_unknown_format_is_answered_with_the_nearest() {
        let message = as_told("jsno".parse::<Format>().unwrap_err());
        assert!(message.contains("did you mean `json`"), "{message}");
    }

    #[test]
    fn options_that_contradict_one_another_or_the_format_are_refused() {
        let of = |change: fn(&mut TextOptions), format: Format| {
            let mut options = TextOptions::default();
            change(&mut options);
            options.dialect(format.name(), format.takes()).map_err(as_told)
        };
        assert!(of(|o| o.delimiter = Some(b'"'), Format::Csv).unwrap_err().contains("both `\\\"`"));
        assert!(of(|o| o.header = Some(false), Format::Json).unwrap_err().contains("`header`"));
        assert!(of(|o| o.quote = Some(Some(b'\n')), Format::Csv).is_err());
        let octets = |o: &mut TextOptions| o.framing = Some(SyslogFraming::Octets);
        assert!(of(octets, Format::Syslog).is_ok());
        assert!(of(octets, Format::Lines).unwrap_err().contains("`framing`"));
        assert!(as_told(framing("octet").unwrap_err()).contains("`lines` or `octets`"));
        assert_eq!(of(|o| o.escape = Some(b'"'), Format::Csv).unwrap().escape, None);
        assert_eq!(of(|_| (), Format::Tsv).unwrap().delimiter, b'\t');
    }
}
