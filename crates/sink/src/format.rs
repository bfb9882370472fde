//! The output formats: their names, and what each has a place for.

use std::str::FromStr;

use arrow::datatypes::{DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use tidemill_avro as avro;
use tidemill_base::error::{Error, Result};
use tidemill_base::suggest;
use tidemill_rowfile as rowfile;
use tidemill_source::formats::{self, Registered};

use super::lines::LineFormat;
use super::value;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputFormat {
    /// An aligned table for people.
    Text,
    /// RFC 4180 with a header; nulls are empty, an empty string is `""`.
    Csv,
    /// As CSV, with tabs.
    Tsv,
    /// JSON lines: one object per row with every key, nulls as `null`.
    Json,
    /// Parquet, zstd-compressed unless told otherwise.
    Parquet,
    /// Arrow IPC: its file format, or its stream format where the output is no file or its name
    /// ends in `.arrows`.
    Arrow,
    /// An Avro object container file, deflated unless told otherwise.
    Avro,
    /// Rows whose schema stands once (`docs/formats/rowfile.md`), zstd-compressed unless told
    /// otherwise.
    Rowfile,
    /// A format that the program around has added.
    Registered(&'static Registered),
}

impl OutputFormat {
    /// Every format, in the order in which messages list them.
    pub const ALL: [OutputFormat; 8] = [
        OutputFormat::Text,
        OutputFormat::Csv,
        OutputFormat::Tsv,
        OutputFormat::Json,
        OutputFormat::Parquet,
        OutputFormat::Arrow,
        OutputFormat::Avro,
        OutputFormat::Rowfile,
    ];

    /// The names of all of them, and of those that were added.
    pub fn names() -> Vec<&'static str> {
        let added = formats::names(true);
        OutputFormat::ALL.iter().map(|format| format.name()).chain(added).collect()
    }

    /// The name that [`FromStr`] takes.
    pub fn name(self) -> &'static str {
        match self {
            OutputFormat::Text => "text",
            OutputFormat::Csv => "csv",
            OutputFormat::Tsv => "tsv",
            OutputFormat::Json => "json",
            OutputFormat::Parquet => "parquet",
            OutputFormat::Arrow => "arrow",
            OutputFormat::Avro => "avro",
            OutputFormat::Rowfile => "rowfile",
            OutputFormat::Registered(format) => format.name(),
        }
    }

    /// The format that a file's suffix stands for, in any case of letters: `.csv`, `.tsv`,
    /// `.json`, `.jsonl`, `.ndjson`, `.parquet`, `.arrow`, `.feather`, `.ipc`, `.arrows`,
    /// `.avro`, `.rowfile`; a suffix of compression behind it is set aside.
    pub fn from_path(path: &str) -> Option<Self> {
        let (stem, _) = tidemill_source::Compression::strip_suffix(path);
        let (_, suffix) = stem.rsplit_once('.')?;
        match suffix.to_ascii_lowercase().as_str() {
            "csv" => Some(OutputFormat::Csv),
            "tsv" => Some(OutputFormat::Tsv),
            "json" | "jsonl" | "ndjson" => Some(OutputFormat::Json),
            "parquet" => Some(OutputFormat::Parquet),
            "arrow" | "arrows" | "feather" | "ipc" => Some(OutputFormat::Arrow),
            "avro" => Some(OutputFormat::Avro),
            "rowfile" => Some(OutputFormat::Rowfile),
            other => formats::with_suffix(other).map(OutputFormat::Registered),
        }
    }

    /// Whether it keeps what a schema says of its columns besides their names and values.
    pub(super) fn is_typed(self) -> bool {
        matches!(self, OutputFormat::Parquet | OutputFormat::Arrow | OutputFormat::Rowfile)
    }

    /// The line format with its null text, for the formats that are lines.
    pub(super) fn lines(self, null: Option<&str>) -> Option<LineFormat> {
        let null = || null.unwrap_or_default().to_owned();
        match self {
            OutputFormat::Csv => Some(LineFormat::Delimited { delimiter: b',', null: null() }),
            OutputFormat::Tsv => Some(LineFormat::Delimited { delimiter: b'\t', null: null() }),
            OutputFormat::Json => Some(LineFormat::Json),
            OutputFormat::Text
            | OutputFormat::Parquet
            | OutputFormat::Arrow
            | OutputFormat::Avro
            | OutputFormat::Rowfile
            | OutputFormat::Registered(_) => None,
        }
    }

    /// Whether compression is a part of the format, and not around it.
    pub(super) fn is_compressed_inside(self) -> bool {
        match self {
            OutputFormat::Text | OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::Json => {
                false
            }
            OutputFormat::Parquet
            | OutputFormat::Arrow
            | OutputFormat::Avro
            | OutputFormat::Rowfile
            | OutputFormat::Registered(_) => true,
        }
    }

    /// Whether it is for programs and not for people.
    pub fn is_binary(self) -> bool {
        self.is_compressed_inside()
    }

    /// Refuses a schema that the format cannot hold, before any work.
    pub(super) fn check(self, schema: &SchemaRef) -> Result<()> {
        if matches!(self, OutputFormat::Json | OutputFormat::Parquet | OutputFormat::Rowfile) {
            for (i, field) in schema.fields().iter().enumerate() {
                if schema.fields()[..i].iter().any(|earlier| earlier.name() == field.name()) {
                    return Err(Error::usage_hint(
                        format!(
                            "{} cannot hold two columns called `{}`",
                            self.name(),
                            field.name()
                        ),
                        "name one of them otherwise with AS",
                    ));
                }
            }
        }
        let depth_max = match self {
            OutputFormat::Avro => Some(AVRO_DEPTH_MAX),
            OutputFormat::Arrow | OutputFormat::Parquet => Some(ARROW_DEPTH_MAX),
            _ => None,
        };
        for field in schema.fields() {
            let depth = depth(field.data_type());
            if depth_max.is_some_and(|most| depth > most) {
                return Err(Error::usage_hint(
                    format!(
                        "column `{}` is nested {depth} deep, and what {} has more than {} deep is \
                         read by nobody",
                        field.name(),
                        self.name(),
                        depth_max.unwrap_or_default(),
                    ),
                    "take some of its fields, or write `json`",
                ));
            }
            if matches!(self, OutputFormat::Parquet) && holds_interval(field.data_type()) {
                return Err(Error::usage_hint(
                    format!("column `{}` has an interval, which parquet cannot hold", field.name()),
                    "cast it to TEXT, or write `arrow`",
                ));
            }
        }
        match self {
            OutputFormat::Parquet => {
                ArrowWriter::try_new(std::io::sink(), schema.clone(), None).map_err(|error| {
                    Error::usage_hint(
                        format!("parquet cannot hold this result: {error}"),
                        "cast the column, or write `arrow`",
                    )
                })?;
            }
            OutputFormat::Arrow => {}
            OutputFormat::Avro => avro::check(schema).map_err(|error| match error {
                avro::Error::Unwritable { column, reason, hint } => {
                    let message =
                        format!("avro cannot hold this result: column `{column}` {reason}");
                    Error::usage_hint(message, hint)
                }
                other => Error::usage(format!("avro cannot hold this result: {other}")),
            })?,
            OutputFormat::Registered(format) => {
                format.writer()?;
            }
            OutputFormat::Rowfile => {
                rowfile::Schema::from_arrow(schema).map_err(|error| {
                    Error::usage_hint(
                        format!("rowfile cannot hold this result: {error}"),
                        "cast the column, or write `parquet` or `arrow`",
                    )
                })?;
            }
            OutputFormat::Text | OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::Json => {
                for field in schema.fields() {
                    if !value::supported(field.data_type()) {
                        return Err(Error::usage_hint(
                            format!(
                                "column `{}` of type `{}` cannot be written as {}",
                                field.name(),
                                field.data_type(),
                                self.name()
                            ),
                            "cast the column, or write `parquet` or `arrow`",
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Readers of these formats, ours and others', go no deeper: Avro's as it is read here, Arrow's as
/// FlatBuffers verifies it.
const AVRO_DEPTH_MAX: usize = 31;
const ARROW_DEPTH_MAX: usize = 56;

/// How many records, lists and maps are within one another.
fn depth(data_type: &DataType) -> usize {
    within(data_type).map(|inner| 1 + depth(inner)).max().unwrap_or(0)
}

fn holds_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_)) || within(data_type).any(holds_interval)
}

/// The types of what a record, list or map has within it.
fn within(data_type: &DataType) -> Box<dyn Iterator<Item = &DataType> + '_> {
    match data_type {
        DataType::Struct(fields) => Box::new(fields.iter().map(|field| field.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => Box::new(std::iter::once(item.data_type())),
        DataType::Dictionary(_, value) => within(value),
        _ => Box::new(std::iter::empty()),
    }
}

impl FromStr for OutputFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "jsonl" | "ndjson" => return Ok(OutputFormat::Json),
            _ => {}
        }
        let found = OutputFormat::ALL.into_iter().find(|format| format.name() == name);
        let found = found.or_else(|| formats::named(name).map(OutputFormat::Registered));
        found.ok_or_else(|| {
            Error::usage(suggest::unknown("output format", name, &OutputFormat::names()))
        })
    }
}

impl std::fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
