//! The formats: each in a file of its own, and the one list of them.
//!
//! A format says what it is called, by what it is compressed, which schemas it has a place for, and what
//! makes bytes of batches ([`Encoder`]). One whose rows are lines says that too ([`LineFormat`]): lines can be
//! appended to a file whenever there is reason to, so that many files are written at once in less memory.
//! What stands around all of them is the same: names and templates, compression of text, programs that bytes
//! go through, staging and commit.
//!
//! To add a format is to write its file and to name it in the list below.

use std::io;
use std::str::FromStr;

use ::arrow::array::RecordBatch;
use ::arrow::datatypes::{DataType, Schema, SchemaRef};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::suggestions;
use tidemill_source::formats::{self as sources, RegisteredFormat};

use crate::compression::{CodecChoice, OutputCodec};
use crate::encoder_output::EncoderOutput;
use crate::error::{Error, Result};
use line_format::LineFormat;

mod arrow;
mod avro;
mod date64_as_days;
mod delimited;
mod json;
pub(crate) mod line_format;
mod parquet;
mod parquet_row_groups;
mod registered_format;
mod rowfile;
pub(crate) mod text;

/// The list.
macro_rules! formats {
    ($($(#[doc = $doc:literal])+ $name:ident = $format:expr,)+) => {
        /// How results are written.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum OutputFormat {
            $($(#[doc = $doc])+ $name,)+
            /// A format that the program around has added.
            Registered(&'static RegisteredFormat),
        }

        impl OutputFormat {
            /// Those that are always there, in the order in which messages list them.
            pub(crate) const BUILT_IN: &'static [OutputFormat] = &[$(OutputFormat::$name,)+];

            fn definition(self) -> &'static dyn FileFormat {
                match self {
                    $(OutputFormat::$name => &$format,)+
                    OutputFormat::Registered(format) => format,
                }
            }
        }
    };
}

formats! {
    /// An aligned table for people.
    Text = text::TextTableFormat,
    /// RFC 4180 with a header; nulls are empty, an empty string is `""`.
    Csv = delimited::CSV,
    /// As CSV, with tabs.
    Tsv = delimited::TSV,
    /// JSON lines: one object per row with every key, nulls as `null`.
    Json = json::JsonFormat,
    /// Parquet, zstd-compressed unless told otherwise.
    Parquet = parquet::ParquetFormat,
    /// Arrow IPC: its file format, or its stream format where the output is no file or its name
    /// ends in `.arrows`.
    Arrow = arrow::ArrowFormat,
    /// An Avro object container file, deflated unless told otherwise.
    Avro = avro::AvroFormat,
    /// Rows whose schema stands once (`docs/formats/rowfile.md`), zstd-compressed unless told
    /// otherwise.
    Rowfile = rowfile::RowfileFormat,
}

/// A format, as a sink sees it.
pub(crate) trait FileFormat: Send + Sync {
    /// The name users write.
    fn name(&self) -> &str;

    /// Other words that users may write for it.
    fn synonyms(&self) -> &'static [&'static str] {
        &[]
    }

    /// What the names of its files end in, without the dot; the name of the format, mostly.
    fn suffix(&self) -> &str {
        self.name()
    }

    /// The suffixes that tell it, in lower case and without the dot.
    fn suffixes(&self) -> &'static [&'static str];

    /// By what it can be compressed; the first one is what is used if nothing is said.
    fn codec_choices(&self) -> &'static [CodecChoice];

    /// Whether it is text, which is compressed as a whole; others are compressed inside, and are for programs.
    fn is_text(&self) -> bool {
        false
    }

    /// Whether it keeps what a schema says of its columns besides their names and values.
    fn preserves_column_metadata(&self) -> bool {
        false
    }

    /// Whether writing it may wait for code of the user's for any length of time.
    fn may_block_on_user_code(&self) -> bool {
        false
    }

    /// Whether a file's bytes depend on how its rows are cut into batches.
    fn depends_on_batch_boundaries(&self) -> bool {
        false
    }

    /// Refuses a schema that it cannot hold, before any work.
    ///
    /// # Errors
    /// [`Error::Usage`].
    fn check_schema(&self, schema: &SchemaRef) -> Result<()>;

    /// Returns whether a file may begin with the columns' names, or without them.
    fn has_optional_header(&self) -> bool {
        false
    }

    /// Returns the writer of its rows as lines; none for a format whose files cannot be appended to.
    fn line_format(&self, _encoding: &FileEncoding) -> Option<Box<dyn LineFormat>> {
        None
    }

    /// Begins a file: a header is written even if no row follows.
    ///
    /// # Errors
    /// What the output refuses, and a schema that the format cannot hold after all.
    fn new_encoder(
        &'static self,
        out: EncoderOutput,
        schema: &SchemaRef,
        encoding: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError>;
}

/// How a file is encoded, whatever its format.
#[derive(Clone)]
pub(crate) struct FileEncoding {
    /// What bytes are compressed by, of text or inside the format.
    pub(crate) codec: OutputCodec,
    /// Whether nothing can be put behind the rows: Arrow is written as a stream.
    pub(crate) is_stream: bool,
    /// What a null looks like in text.
    pub(crate) null_text: Option<String>,
    /// True if text begins with the columns' names.
    pub(crate) has_header: bool,
    /// What errors call the output.
    pub(crate) output_name: String,
    /// In bytes.
    pub(crate) memory_limit_bytes: usize,
    /// That may encode, at least one.
    pub(crate) threads: usize,
    /// Ends what runs beside: a program, a writer of the user's.
    pub(crate) cancel: CancelFlag,
}

/// Makes bytes of batches. All of them have the schema that it was made for. Memory is bounded by a megabyte
/// for lines, the window for a table and a row group for Parquet.
pub(crate) trait BatchEncoder: Send {
    /// Adds rows.
    ///
    /// # Errors
    /// What the output refuses; a value that the format cannot hold.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError>;

    /// Ends the file: all bytes are handed on.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn finish(self: Box<Self>) -> Result<(), EncodeError>;
}

/// Why rows have not become bytes.
#[derive(Debug)]
pub(crate) enum EncodeError {
    /// The output has refused them.
    Output(io::Error),
    /// The format has no place for them: what it says.
    Unwritable(String),
    /// An encoder has failed: what it says.
    Encoder(String),
    /// Anything else, which names what it is about.
    Other(Error),
}

impl EncodeError {
    /// What the user is told of the output called `name`.
    pub(crate) fn into_sink_error(self, name: &str) -> Error {
        match self {
            EncodeError::Output(error) => Error::io("write", name, error),
            EncodeError::Unwritable(reason) => Error::usage_with_hint(
                format!("`{name}` cannot be written: {reason}"),
                "`parquet` and `arrow` have other limits",
            ),
            EncodeError::Encoder(reason) => {
                Error::Internal(format!("cannot encode `{name}`: {reason}"))
            }
            EncodeError::Other(error) => error,
        }
    }
}

impl From<io::Error> for EncodeError {
    fn from(error: io::Error) -> Self {
        EncodeError::Output(error)
    }
}

impl From<Error> for EncodeError {
    fn from(error: Error) -> Self {
        EncodeError::Other(error)
    }
}

impl OutputFormat {
    /// The names users can write, those of the formats that were added behind the others.
    pub fn names() -> Vec<&'static str> {
        let added = sources::registered_format_names(true);
        Self::BUILT_IN.iter().map(|format| format.name()).chain(added).collect()
    }

    /// The name that [`FromStr`] takes.
    pub fn name(self) -> &'static str {
        self.definition().name()
    }

    /// What the names of its files end in, without the dot.
    pub fn suffix(self) -> &'static str {
        self.definition().suffix()
    }

    /// The format that a file's suffix stands for, in any case of letters: `.csv`, `.tsv`,
    /// `.json`, `.jsonl`, `.ndjson`, `.parquet`, `.arrow`, `.feather`, `.ipc`, `.arrows`,
    /// `.avro`, `.rowfile`; a suffix of compression behind it is set aside.
    pub fn from_path(path: &str) -> Option<Self> {
        let (stem, _) = tidemill_source::Compression::strip_suffix(path);
        let suffix = stem.rsplit_once('.')?.1.to_ascii_lowercase();
        let is_told =
            |format: &&OutputFormat| format.definition().suffixes().contains(&suffix.as_str());
        let added = || sources::find_registered_by_suffix(&suffix).map(OutputFormat::Registered);
        Self::BUILT_IN.iter().find(is_told).copied().or_else(added)
    }

    /// Whether it is for programs and not for people.
    pub fn is_binary(self) -> bool {
        !self.definition().is_text()
    }

    /// Whether it keeps what a schema says of its columns besides their names and values.
    pub(crate) fn preserves_column_metadata(self) -> bool {
        self.definition().preserves_column_metadata()
    }

    /// Whether writing it may wait for code of the user's for any length of time.
    pub(crate) fn may_block_on_user_code(self) -> bool {
        self.definition().may_block_on_user_code()
    }

    pub(crate) fn depends_on_batch_boundaries(self) -> bool {
        self.definition().depends_on_batch_boundaries()
    }

    /// By what it can be compressed.
    pub(crate) fn codec_choices(self) -> &'static [CodecChoice] {
        self.definition().codec_choices()
    }

    /// Refuses a schema that the format cannot hold, before any work.
    pub(crate) fn check_schema(self, schema: &SchemaRef) -> Result<()> {
        self.definition().check_schema(schema)
    }

    /// Returns whether a file may begin with the columns' names, or without them.
    pub(crate) fn has_optional_header(self) -> bool {
        self.definition().has_optional_header()
    }

    /// How its rows are written as lines, if they are.
    pub(crate) fn line_format(self, encoding: &FileEncoding) -> Option<Box<dyn LineFormat>> {
        self.definition().line_format(encoding)
    }

    /// Begins a file.
    pub(crate) fn new_encoder(
        self,
        out: EncoderOutput,
        schema: &SchemaRef,
        encoding: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError> {
        self.definition().new_encoder(out, schema, encoding)
    }
}

impl FromStr for OutputFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let is_it = |format: &&OutputFormat| {
            format.name() == name || format.definition().synonyms().contains(&name)
        };
        let added = || sources::find_registered_format(name).map(OutputFormat::Registered);
        let found = Self::BUILT_IN.iter().find(is_it).copied().or_else(added);
        found.ok_or_else(|| {
            Error::usage(suggestions::unknown_name_message(
                "output format",
                name,
                &OutputFormat::names(),
            ))
        })
    }
}

impl std::fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Refuses two columns of one name, where columns are found by their names.
fn refuse_duplicate_names(format: &str, schema: &Schema) -> Result<()> {
    for (i, field) in schema.fields().iter().enumerate() {
        if schema.fields()[..i].iter().any(|earlier| earlier.name() == field.name()) {
            return Err(Error::usage_with_hint(
                format!("{format} cannot hold two columns called `{}`", field.name()),
                "name one of them otherwise with AS",
            ));
        }
    }
    Ok(())
}

/// Refuses what is nested deeper than readers of a format, ours and others', go.
fn refuse_deep_nesting(format: &str, schema: &Schema, depth_max: usize) -> Result<()> {
    for field in schema.fields() {
        let depth = nesting_depth(field.data_type());
        if depth > depth_max {
            return Err(Error::usage_with_hint(
                format!(
                    "column `{}` is nested {depth} deep, and what {format} has more than {depth_max} \
                     deep is read by nobody",
                    field.name(),
                ),
                "take some of its fields, or write `json`",
            ));
        }
    }
    Ok(())
}

/// How deep Arrow's readers go, as FlatBuffers verifies what they read.
const ARROW_DEPTH_MAX: usize = 56;

/// How many records, lists and maps are within one another.
fn nesting_depth(data_type: &DataType) -> usize {
    child_types(data_type).map(|inner| 1 + nesting_depth(inner)).max().unwrap_or(0)
}

/// The types of what a record, list or map has within it.
fn child_types(data_type: &DataType) -> Box<dyn Iterator<Item = &DataType> + '_> {
    match data_type {
        DataType::Struct(fields) => Box::new(fields.iter().map(|field| field.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => Box::new(std::iter::once(item.data_type())),
        DataType::Dictionary(_, value) => child_types(value),
        _ => Box::new(std::iter::empty()),
    }
}
