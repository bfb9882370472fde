//! The user's description of an output, and its parsed form.

use std::fmt;

use arrow::datatypes::SchemaRef;
use tidemill_remote::StorageOptions;
use tidemill_source::programs::filter_program::FilterProgram;

use crate::commit::local_paths;
use crate::error::{Error, Result};
use crate::formats::OutputFormat;
use crate::writing::codec_resolution::resolve_codec;
use crate::writing::compression::{OutputCodec, OutputCompression};
use crate::writing::path_template::PathTemplate;

/// Default maximum number of files that a template may name.
pub const DEFAULT_FILES_MAX: usize = 10_000;

/// The description of an output: its place, format and options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkSpec {
    /// A file or an object (`s3://bucket/key`), a template with columns in braces
    /// (`out/{day}.csv`), or `-` for standard output.
    pub url: String,
    /// The format; inferred from the file's suffix if `None` (standard output: CSV).
    pub format: Option<OutputFormat>,
    /// The compression of files. Default: for text the one that the name's suffix tells, for other formats
    /// the format's own.
    pub compression: Option<OutputCompression>,
    /// True if existing files may be replaced. Only names that this run writes are.
    pub overwrite: bool,
    /// Maximum number of files that a template may name. Default: [`DEFAULT_FILES_MAX`]. Each costs some 600
    /// bytes of memory beyond the memory limit.
    pub max_files: usize,
    /// The text of a null in CSV, TSV and text. Default: empty in CSV and TSV, `NULL` in
    /// text.
    pub null_text: Option<String>,
    /// True if CSV, TSV and text begin with the column names. Default: true.
    pub has_header: bool,
    /// A program that each file's encoded bytes pass through; its output becomes the file. Default: none.
    pub exec: Option<FilterProgram>,
    /// Access options for object stores, in addition to the environment's. Default: none.
    pub storage_options: StorageOptions,
}

impl SinkSpec {
    /// Creates a spec with the defaults.
    pub fn new(url: impl Into<String>) -> Self {
        SinkSpec {
            url: url.into(),
            format: None,
            compression: None,
            overwrite: false,
            max_files: DEFAULT_FILES_MAX,
            null_text: None,
            has_header: true,
            exec: None,
            storage_options: StorageOptions::default(),
        }
    }

    /// Returns true if the format preserves the schema's information about columns beyond names and values.
    pub fn preserves_column_metadata(&self) -> bool {
        match self.parse() {
            Ok(parsed) => parsed.format.preserves_column_metadata(),
            Err(_) => self.format.is_some_and(OutputFormat::preserves_column_metadata),
        }
    }

    /// Returns the suffix for compression that file names in a format have behind the format's own suffix.
    pub fn compression_suffix(&self, format: OutputFormat) -> &'static str {
        match &self.compression {
            Some(compression) if !format.is_binary() && self.exec.is_none() => {
                compression.file_suffix()
            }
            _ => "",
        }
    }

    /// Returns true for one file, or object, and false for one per value of columns.
    pub fn is_one_file(&self) -> bool {
        let parsed = self.parse().ok().and_then(|parsed| parsed.template);
        parsed.is_none_or(|template| !template.is_partitioned())
    }

    /// Refuses a program for standard output.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check_exec(&self) -> Result<()> {
        match &self.exec {
            Some(program) if self.url == "-" => Err(Error::usage_with_hint(
                "standard output does not go through `exec`",
                format!("pipe it through the program: tidemill … | {}", program.name()),
            )),
            _ => Ok(()),
        }
    }

    /// Returns true if writing may block on the user's program or writer for any length of time.
    pub fn may_block_on_user_code(&self) -> bool {
        let format = self.parse().map(|parsed| parsed.format);
        self.exec.is_some() || format.is_ok_and(OutputFormat::may_block_on_user_code)
    }

    /// Refuses to omit the header of a format that has none.
    fn check_header(&self, format: OutputFormat) -> Result<()> {
        match self.has_header || format.has_optional_header() {
            true => Ok(()),
            false => Err(Error::usage_with_hint(
                format!("format `{}` has no header that could be left out", format.name()),
                "leave --no-header (job file: sink.header) out; csv, tsv and text have one",
            )),
        }
    }

    /// Parses the spec and resolves its defaults.
    pub(crate) fn parse(&self) -> Result<ParsedSinkSpec> {
        self.check_exec()?;
        let codec = |format, name: Option<&str>| {
            resolve_codec(self.compression.as_ref(), format, name, self.exec.is_some())
        };
        if self.url == "-" {
            let format = self.format.unwrap_or(OutputFormat::Csv);
            self.check_header(format)?;
            return Ok(ParsedSinkSpec { format, codec: codec(format, None)?, template: None });
        }
        let template = PathTemplate::parse(&self.url)?;
        let format = match self.format.or_else(|| OutputFormat::from_path(template.suffix())) {
            Some(format) => format,
            None if template.bucket.is_none()
                && local_paths::descriptor_number(&template.file_path()).is_some() =>
            {
                OutputFormat::Csv
            }
            None => {
                let names = OutputFormat::names().join(", ");
                return Err(Error::usage_with_hint(
                    format!("cannot tell the output's format from the name `{}`", self.url),
                    format!("end it with a format's suffix or give --format: {names}"),
                ));
            }
        };
        self.check_header(format)?;
        let codec = codec(format, Some(template.suffix()))?;
        Ok(ParsedSinkSpec { format, codec, template: Some(template) })
    }
}

/// The parsed form of a [`SinkSpec`].
pub(crate) struct ParsedSinkSpec {
    pub(crate) format: OutputFormat,
    pub(crate) codec: OutputCodec,
    /// `None` for standard output.
    pub(crate) template: Option<PathTemplate>,
}

/// A description of the files that a run would write, returned by [`describe_output`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputDescription {
    /// The output as the user wrote it.
    pub url: String,
    /// The format of each file.
    pub format: OutputFormat,
    /// The folder that contains all files; `None` for standard output.
    pub root: Option<String>,
    /// The columns whose values make the path, in its order; empty for one file.
    pub columns: Vec<String>,
}

impl fmt::Display for OutputDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.root.is_none() {
            return write!(f, "{} to standard output", self.format);
        }
        match self.columns.as_slice() {
            [] => write!(f, "one {} file, `{}`", self.format, self.url),
            columns => {
                let names: Vec<_> = columns.iter().map(|name| format!("`{name}`")).collect();
                let names = names.join(", ");
                write!(f, "one {} file for each {names}, `{}`", self.format, self.url)
            }
        }
    }
}

/// Describes the files that would be written, without writing.
///
/// # Errors
/// [`Error::Usage`] if [`Sink::create`](crate::Sink::create) would refuse the spec or the schema.
pub fn describe_output(spec: &SinkSpec, schema: &SchemaRef) -> Result<OutputDescription> {
    let ParsedSinkSpec { format, template, .. } = spec.parse()?;
    format.check_schema(schema)?;
    if let Some(template) = &template {
        template.resolve_columns(schema)?;
    }
    Ok(OutputDescription {
        url: spec.url.clone(),
        format,
        root: template.as_ref().map(|template| match &template.bucket {
            Some(bucket) => format!("s3://{bucket}/{}", template.root.display()),
            None => template.root.display().to_string(),
        }),
        columns: template.map(|template| template.columns).unwrap_or_default(),
    })
}
