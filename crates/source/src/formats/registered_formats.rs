//! Formats that the embedding program registers, with its own readers and writers.
//!
//! A format is registered once per process, under a name that every job can then use like `csv` or `parquet`.
//! Its reader yields Arrow batches of a file, or of the records that begin in a byte range of it; its writer
//! makes a file from batches. The code around them is the same for all formats: listing, partition columns,
//! schema unification, splits, coverage, staging and commit.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatchReader;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parking_lot::RwLock;

use super::stored_batch_reader::{self, PlainBatches};
use super::{
    FileFormat, FileMetadata, Format, FormatKind, SplitPartReader, SplitPartRequest, TypedFormat,
};
use crate::SourceFile;
use crate::error::{Error, Result};
use crate::files::byte_input::ByteInput;
use crate::schema::column_layouts::{ColumnLayoutPolicy, FileColumns};

/// A boxed sequence of batches with a schema.
pub type BoxedBatchReader = Box<dyn RecordBatchReader + Send>;

pub use tidemill_base::BoxedHostError;

/// Names of formats that can only be written. They cannot be registered.
pub const WRITE_ONLY_FORMATS: [&str; 1] = ["text"];

/// Reads files of a registered format.
pub trait RegisteredFormatReader: Send + Sync {
    /// Returns the columns of the file at `path`, a path or a URL as the user wrote it.
    ///
    /// # Errors
    /// Any failure of the reader.
    fn schema(&self, path: &str, bytes: u64) -> Result<SchemaRef, BoxedHostError>;

    /// Reads the records that begin in `bytes` of the file. Returns at least `columns`; each batch names the
    /// columns that it has.
    ///
    /// # Errors
    /// Any failure of the reader.
    fn read(
        &self,
        path: &str,
        bytes: Range<u64>,
        columns: &[&str],
    ) -> Result<BoxedBatchReader, BoxedHostError>;

    /// Returns whether `read` accepts a part of a file.
    fn is_splittable(&self) -> bool;
}

/// Writes files of a registered format.
pub trait RegisteredFormatWriter: Send + Sync {
    /// Creates the file at `path`, which does not exist yet, from all batches.
    ///
    /// # Errors
    /// Any failure of the writer.
    fn write(&self, path: &Path, batches: BoxedBatchReader) -> Result<(), BoxedHostError>;
}

/// A format that the embedding program has registered.
pub struct RegisteredFormat {
    /// Distinguishes it from another format of the same name that replaced it.
    registration_number: u64,
    name: String,
    suffix: String,
    reader: Option<Box<dyn RegisteredFormatReader>>,
    writer: Option<Box<dyn RegisteredFormatWriter>>,
}

static REGISTERED_FORMATS: RwLock<Vec<&'static RegisteredFormat>> = RwLock::new(Vec::new());
static NEXT_REGISTRATION_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Registers a format under `name`, for files whose names end in `.suffix`. It replaces an earlier format of
/// the same name in later plans, and stays registered until the process ends.
///
/// # Errors
/// [`Error::Usage`] for a name that a format already has or that a job file cannot contain; for a suffix of
/// another format; and if there is neither a reader nor a writer.
pub fn register_format(
    name: &str,
    suffix: Option<&str>,
    reader: Option<Box<dyn RegisteredFormatReader>>,
    writer: Option<Box<dyn RegisteredFormatWriter>>,
) -> Result<()> {
    let is_word = |text: &str| {
        let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && text.chars().all(rest)
    };
    if !is_word(name) {
        return Err(Error::usage_with_hint(
            format!("`{name}` cannot name a format"),
            "a name is lower-case letters, digits, `-` and `_`",
        ));
    }
    let suffix = suffix.unwrap_or(name).trim_start_matches('.').to_ascii_lowercase();
    if suffix.is_empty() || suffix.contains(['/', '.']) {
        return Err(Error::usage_with_hint(
            format!("`{suffix}` cannot be a format's suffix"),
            "it is what follows the last `.` of a file's name: pcap",
        ));
    }
    if reader.is_none() && writer.is_none() {
        return Err(Error::usage(format!("format `{name}` has neither a reader nor a writer")));
    }
    let is_built_in = Format::user_nameable_formats().any(|format| format.name() == name);
    if is_built_in || WRITE_ONLY_FORMATS.contains(&name) {
        return Err(Error::usage(format!("format `{name}` is there already")));
    }
    if let Some(other) = Format::built_in_from_suffix(&suffix) {
        return Err(Error::usage_with_hint(
            format!("`.{suffix}` is the suffix of format `{other}` already"),
            "give the format another suffix, or none of its own: its name is enough",
        ));
    }
    let mut formats = REGISTERED_FORMATS.write();
    if let Some(other) = formats.iter().find(|other| other.name != name && other.suffix == suffix) {
        return Err(Error::usage(format!(
            "`.{suffix}` is the suffix of format `{}` already",
            other.name
        )));
    }
    let number = NEXT_REGISTRATION_NUMBER.fetch_add(1, Ordering::Relaxed);
    let format = RegisteredFormat {
        registration_number: number,
        name: name.to_owned(),
        suffix,
        reader,
        writer,
    };
    // A registration leaks a few words and two functions, so that running plans can keep using the format.
    let format: &'static RegisteredFormat = Box::leak(Box::new(format));
    formats.retain(|other| other.name != name);
    formats.push(format);
    Ok(())
}

/// Returns the registered format with this name.
pub fn find_registered_format(name: &str) -> Option<&'static RegisteredFormat> {
    REGISTERED_FORMATS.read().iter().copied().find(|format| format.name == name)
}

/// Returns the registered format with this suffix, in lower case and without its dot.
pub fn find_registered_by_suffix(suffix: &str) -> Option<&'static RegisteredFormat> {
    REGISTERED_FORMATS.read().iter().copied().find(|format| format.suffix == suffix)
}

/// Returns the names of the formats that can be written, or those that can be read.
pub fn registered_format_names(written: bool) -> Vec<&'static str> {
    let formats = REGISTERED_FORMATS.read();
    let wanted = formats.iter().filter(|format| match written {
        true => format.writer.is_some(),
        false => format.reader.is_some(),
    });
    wanted.map(|format| format.name.as_str()).collect()
}

impl RegisteredFormat {
    /// Returns the name that users write.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the suffix of its file names, without the dot.
    pub fn suffix(&self) -> &str {
        &self.suffix
    }

    /// Returns the reader.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format was registered without one.
    pub(crate) fn reader(&self) -> Result<&dyn RegisteredFormatReader> {
        let missing =
            || Error::usage(format!("format `{}` was registered without a reader", self.name));
        self.reader.as_deref().ok_or_else(missing)
    }

    /// Returns the writer, if there is one.
    pub fn writer(&self) -> Option<&dyn RegisteredFormatWriter> {
        self.writer.as_deref()
    }
}

impl FileFormat for RegisteredFormat {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Typed(self)
    }
}

impl TypedFormat for RegisteredFormat {
    fn inspect_columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: ColumnLayoutPolicy,
        _: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<FileColumns> {
        stored_batch_reader::inspect_files(files, layouts, &mut |file| {
            let schema = self.reader()?.schema(file.display_name(), file.size());
            let schema = schema.map_err(|e| reader_error(&self.name, file.display_name(), e))?;
            Ok(Box::new(RegisteredFileMetadata(schema)))
        })
    }

    fn open_part(&self, reading: SplitPartRequest<'_>) -> Result<Box<dyn SplitPartReader>> {
        let piece = reading.part;
        let path = piece.file.display_name().to_owned();
        let names = stored_batch_reader::file_column_names(reading.metadata, &reading.columns);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let given = self.reader()?.read(&path, piece.range.clone(), &names);
        let given = given.map_err(|e| reader_error(&self.name, &path, e))?;
        let name = self.name.clone();
        let rows = given.map(move |batch| match batch {
            Ok(batch) => Ok((batch, 0)),
            Err(ArrowError::ExternalError(error)) => Err(reader_error(&name, &path, error)),
            Err(error) => Err(reader_error(&name, &path, Box::new(error))),
        });
        Ok(stored_batch_reader::new_batch_reader(reading, PlainBatches(rows)))
    }

    fn is_splittable_anywhere(&self) -> bool {
        self.reader().is_ok_and(RegisteredFormatReader::is_splittable)
    }
}

/// The columns that a registered reader states for a file.
#[derive(Debug)]
struct RegisteredFileMetadata(SchemaRef);

impl FileMetadata for RegisteredFileMetadata {
    fn schema(&self) -> &SchemaRef {
        &self.0
    }
}

/// Converts a failure of a registered reader to an error.
fn reader_error(format: &str, path: &str, failure: BoxedHostError) -> Error {
    // An interrupt, or an error of this crate that passed through the reader.
    match failure.downcast::<Error>() {
        Ok(ours) => *ours,
        Err(source) => {
            Error::RegisteredFormat { format: format.to_owned(), path: path.to_owned(), source }
        }
    }
}

impl std::fmt::Debug for RegisteredFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registered").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for RegisteredFormat {
    fn eq(&self, other: &Self) -> bool {
        self.registration_number == other.registration_number
    }
}

impl Eq for RegisteredFormat {}

impl Hash for RegisteredFormat {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.registration_number.hash(state);
    }
}
