//! The output formats, each in a file of its own, and the list of them.
//!
//! A format defines its name, its codecs, the schemas that it can hold, and its encoder from batches to bytes
//! ([`BatchEncoder`]). A format whose rows are lines also provides a [`LineFormat`]: lines can be
//! appended to a file at any time, so that many files are written at once in less memory.
//! Everything around the formats is shared: names and templates, compression of text, programs that bytes
//! pass through, staging and commit.
//!
//! To add a format, write its file and add it to the list below.

use std::io;
use std::str::FromStr;

use ::arrow::array::RecordBatch;
use ::arrow::datatypes::{DataType, Schema, SchemaRef};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::suggestions;
use tidemill_source::formats::{self as sources, RegisteredFormat};

use crate::error::{Error, Result};
use crate::writing::compression::{CodecChoice, OutputCodec};
use crate::writing::encoder_output::EncoderOutput;
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

/// Defines [`OutputFormat`] from the list of formats.
macro_rules! formats {
    ($($(#[doc = $doc:literal])+ $name:ident = $format:expr,)+) => {
        /// The format of an output.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum OutputFormat {
            $($(#[doc = $doc])+ $name,)+
            /// A format that the host program has registered.
            Registered(&'static RegisteredFormat),
        }

        impl OutputFormat {
            /// The built-in formats, in the order in which messages list them.
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
    /// Arrow IPC: its file format, or its stream format if the output is not a file or its name
    /// ends in `.arrows`.
    Arrow = arrow::ArrowFormat,
    /// An Avro object container file, deflated unless told otherwise.
    Avro = avro::AvroFormat,
    /// Rows with one schema per file (`docs/formats/rowfile.md`), zstd-compressed unless told
    /// otherwise.
    Rowfile = rowfile::RowfileFormat,
}

/// The definition of an output format.
pub(crate) trait FileFormat: Send + Sync {
    /// Returns the name that users write.
    fn name(&self) -> &str;

    /// Returns other names that users may write.
    fn synonyms(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the suffix of its file names, without the dot; by default the format's name.
    fn suffix(&self) -> &str {
        self.name()
    }

    /// Returns the suffixes that identify the format, in lower case and without the dot.
    fn suffixes(&self) -> &'static [&'static str];

    /// Returns its codecs; the first one is the default.
    fn codec_choices(&self) -> &'static [CodecChoice];

    /// Returns true for text, which is compressed as a whole. Other formats compress internally, and are for
    /// programs.
    fn is_text(&self) -> bool {
        false
    }

    /// Returns true if it preserves the schema's information about columns beyond names and values.
    fn preserves_column_metadata(&self) -> bool {
        false
    }

    /// Returns true if writing may block on the user's code for any length of time.
    fn may_block_on_user_code(&self) -> bool {
        false
    }

    /// Returns true if a file's bytes depend on the division of its rows into batches.
    fn depends_on_batch_boundaries(&self) -> bool {
        false
    }

    /// Returns an error for a schema that it cannot hold, before any work.
    ///
    /// # Errors
    /// [`Error::Usage`].
    fn check_schema(&self, schema: &SchemaRef) -> Result<()>;

    /// Returns true if a file may begin with or without the column names.
    fn has_optional_header(&self) -> bool {
        false
    }

    /// Returns the writer of its rows as lines; `None` for a format whose files cannot be appended to.
    fn line_format(&self, _encoding: &FileEncoding) -> Option<Box<dyn LineFormat>> {
        None
    }

    /// Begins a file. Writes a header even if no row follows.
    ///
    /// # Errors
    /// Returns the error of the output, or an error for a schema that the format turns out not to hold.
    fn new_encoder(
        &'static self,
        out: EncoderOutput,
        schema: &SchemaRef,
        encoding: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError>;
}

/// The options with which a file is encoded in any format.
#[derive(Clone)]
pub(crate) struct FileEncoding {
    /// The codec, applied to text or within the format.
    pub(crate) codec: OutputCodec,
    /// True if nothing can follow the rows: Arrow is then written as a stream.
    pub(crate) is_stream: bool,
    /// The text of a null.
    pub(crate) null_text: Option<String>,
    /// True if text begins with the column names.
    pub(crate) has_header: bool,
    /// The name of the output in errors.
    pub(crate) output_name: String,
    /// Memory limit in bytes.
    pub(crate) memory_limit_bytes: usize,
    /// Number of threads that may encode, at least one.
    pub(crate) threads: usize,
    /// The flag that stops a program or a writer of the user's.
    pub(crate) cancel: CancelFlag,
}

/// Encodes batches of one schema to bytes. Memory is bounded by a megabyte
/// for lines, the width sample for a table and a row group for Parquet.
pub(crate) trait BatchEncoder: Send {
    /// Adds rows.
    ///
    /// # Errors
    /// Returns the error of the output; an error for a value that the format cannot hold.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError>;

    /// Ends the file, and passes on all bytes.
    ///
    /// # Errors
    /// Returns the errors of [`write`](Self::write).
    fn finish(self: Box<Self>) -> Result<(), EncodeError>;
}

/// The error of an encoder.
#[derive(Debug)]
pub(crate) enum EncodeError {
    /// A refusal by the output.
    Output(io::Error),
    /// A value or schema that the format cannot hold, with its message.
    Unwritable(String),
    /// A failure of the encoder, with its message.
    Encoder(String),
    /// Any other error, whose message names its object.
    Other(Error),
}

impl EncodeError {
    /// Returns the error for the user about the output called `name`.
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
    /// Returns the names that users can write; those of registered formats come last.
    pub fn names() -> Vec<&'static str> {
        let added = sources::registered_format_names(true);
        Self::BUILT_IN.iter().map(|format| format.name()).chain(added).collect()
    }

    /// Returns the name that [`FromStr`] takes.
    pub fn name(self) -> &'static str {
        self.definition().name()
    }

    /// Returns the suffix of its file names, without the dot.
    pub fn suffix(self) -> &'static str {
        self.definition().suffix()
    }

    /// Returns the format that a file's suffix stands for, in any case of letters: `.csv`, `.tsv`,
    /// `.json`, `.jsonl`, `.ndjson`, `.parquet`, `.arrow`, `.feather`, `.ipc`, `.arrows`,
    /// `.avro`, `.rowfile`. Ignores a suffix of compression behind it.
    pub fn from_path(path: &str) -> Option<Self> {
        let (stem, _) = tidemill_source::Compression::strip_suffix(path);
        let suffix = stem.rsplit_once('.')?.1.to_ascii_lowercase();
        let is_told =
            |format: &&OutputFormat| format.definition().suffixes().contains(&suffix.as_str());
        let added = || sources::find_registered_by_suffix(&suffix).map(OutputFormat::Registered);
        Self::BUILT_IN.iter().find(is_told).copied().or_else(added)
    }

    /// Returns true for a format for programs and not for people.
    pub fn is_binary(self) -> bool {
        !self.definition().is_text()
    }

    /// Returns true if it preserves the schema's information about columns beyond names and values.
    pub(crate) fn preserves_column_metadata(self) -> bool {
        self.definition().preserves_column_metadata()
    }

    /// Returns true if writing may block on the user's code for any length of time.
    pub(crate) fn may_block_on_user_code(self) -> bool {
        self.definition().may_block_on_user_code()
    }

    pub(crate) fn depends_on_batch_boundaries(self) -> bool {
        self.definition().depends_on_batch_boundaries()
    }

    /// Returns its codecs.
    pub(crate) fn codec_choices(self) -> &'static [CodecChoice] {
        self.definition().codec_choices()
    }

    /// Returns an error for a schema that the format cannot hold, before any work.
    pub(crate) fn check_schema(self, schema: &SchemaRef) -> Result<()> {
        self.definition().check_schema(schema)
    }

    /// Returns true if a file may begin with or without the column names.
    pub(crate) fn has_optional_header(self) -> bool {
        self.definition().has_optional_header()
    }

    /// Returns the writer of its rows as lines, if it has one.
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

/// Returns an error for two columns of one name, for formats that find columns by name.
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

/// Returns an error for columns nested deeper than the readers of a format, ours and others', support.
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

/// Maximum nesting depth in Arrow's readers, which verify their input by FlatBuffers.
const ARROW_DEPTH_MAX: usize = 56;

/// Returns the number of records, lists and maps nested in one another.
fn nesting_depth(data_type: &DataType) -> usize {
    child_types(data_type).map(|inner| 1 + nesting_depth(inner)).max().unwrap_or(0)
}

/// Returns the types inside of a record, list or map.
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
