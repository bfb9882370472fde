//! Formats that the program around the engine has added: readers and writers of its own.
//!
//! A format is registered once per process, under a name that is then as good as `csv` or
//! `parquet` in every job. Its reader gives Arrow batches of a file, or of those of its records
//! that begin in a range of bytes; its writer makes a file of batches. What stands around them is
//! the same for all formats: listing, folder keys, files that differ, splits, coverage, staging
//! and commit.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatchReader;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parking_lot::RwLock;

use super::batch_reader::{self, PlainBatches};
use super::{
    FileFormat, FileMetadata, Format, FormatKind, SplitPartReader, SplitPartRequest, TypedFormat,
};
use crate::SourceFile;
use crate::byte_input::ByteInput;
use crate::error::{Error, Result};
use crate::file_columns::{ColumnLayoutPolicy, FileColumns};

/// Batches in a row.
pub type BoxedBatchReader = Box<dyn RecordBatchReader + Send>;

pub use tidemill_base::BoxedHostError;

/// Formats that are written and not read: their names are taken, too.
pub const WRITE_ONLY_FORMATS: [&str; 1] = ["text"];

/// Reads files of a format.
pub trait RegisteredFormatReader: Send + Sync {
    /// The columns of the file at `path`, which is a path or a URL as the user wrote it.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn schema(&self, path: &str, bytes: u64) -> Result<SchemaRef, BoxedHostError>;

    /// The records that begin in these bytes of the file; of `columns` at least, the batches
    /// naming what they have.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn read(
        &self,
        path: &str,
        bytes: Range<u64>,
        columns: &[&str],
    ) -> Result<BoxedBatchReader, BoxedHostError>;

    /// Whether a part of a file can be asked for.
    fn is_splittable(&self) -> bool;
}

/// Writes files of a format.
pub trait RegisteredFormatWriter: Send + Sync {
    /// Makes the file at `path`, where there is none, of all batches.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn write(&self, path: &Path, batches: BoxedBatchReader) -> Result<(), BoxedHostError>;
}

/// A format that the program has added.
pub struct RegisteredFormat {
    /// Tells it from another of the same name, which replaced it.
    registration_number: u64,
    name: String,
    suffix: String,
    reader: Option<Box<dyn RegisteredFormatReader>>,
    writer: Option<Box<dyn RegisteredFormatWriter>>,
}

static REGISTERED_FORMATS: RwLock<Vec<&'static RegisteredFormat>> = RwLock::new(Vec::new());
static NEXT_REGISTRATION_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Adds a format under `name`, told from file names that end in `.suffix`; one of the same name is
/// replaced for what is planned from now on. It stays until the process ends.
///
/// # Errors
/// [`Error::Usage`] for a name that a format has already, or that could not be written in a job
/// file; for a suffix that is another format's; and if there is neither reader nor writer.
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
    // A few words and two functions per registration, kept so that what runs can go on.
    let format: &'static RegisteredFormat = Box::leak(Box::new(format));
    formats.retain(|other| other.name != name);
    formats.push(format);
    Ok(())
}

/// The format of this name.
pub fn find_registered_format(name: &str) -> Option<&'static RegisteredFormat> {
    REGISTERED_FORMATS.read().iter().copied().find(|format| format.name == name)
}

/// The format of this suffix, in lower case and without its dot.
pub fn find_registered_by_suffix(suffix: &str) -> Option<&'static RegisteredFormat> {
    REGISTERED_FORMATS.read().iter().copied().find(|format| format.suffix == suffix)
}

/// The names of all that can be read, or written.
pub fn registered_format_names(written: bool) -> Vec<&'static str> {
    let formats = REGISTERED_FORMATS.read();
    let wanted = formats.iter().filter(|format| match written {
        true => format.writer.is_some(),
        false => format.reader.is_some(),
    });
    wanted.map(|format| format.name.as_str()).collect()
}

impl RegisteredFormat {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the names of its files end in, without the dot.
    pub fn suffix(&self) -> &str {
        &self.suffix
    }

    /// The reader.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is none.
    pub(crate) fn reader(&self) -> Result<&dyn RegisteredFormatReader> {
        let missing =
            || Error::usage(format!("format `{}` was registered without a reader", self.name));
        self.reader.as_deref().ok_or_else(missing)
    }

    /// The writer, if there is one.
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
        batch_reader::inspect_files(files, layouts, &mut |file| {
            let schema = self.reader()?.schema(file.display_name(), file.size());
            let schema = schema.map_err(|e| reader_error(&self.name, file.display_name(), e))?;
            Ok(Box::new(RegisteredFileMetadata(schema)))
        })
    }

    fn open_part(&self, reading: SplitPartRequest<'_>) -> Result<Box<dyn SplitPartReader>> {
        let piece = reading.part;
        let path = piece.file.display_name().to_owned();
        let names = batch_reader::file_column_names(reading.metadata, &reading.columns);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let given = self.reader()?.read(&path, piece.range.clone(), &names);
        let given = given.map_err(|e| reader_error(&self.name, &path, e))?;
        let name = self.name.clone();
        let rows = given.map(move |batch| match batch {
            Ok(batch) => Ok((batch, 0)),
            Err(ArrowError::ExternalError(error)) => Err(reader_error(&name, &path, error)),
            Err(error) => Err(reader_error(&name, &path, Box::new(error))),
        });
        Ok(batch_reader::new_batch_reader(reading, PlainBatches(rows)))
    }

    fn is_splittable_anywhere(&self) -> bool {
        self.reader().is_ok_and(RegisteredFormatReader::is_splittable)
    }
}

/// What its reader tells of a file.
#[derive(Debug)]
struct RegisteredFileMetadata(SchemaRef);

impl FileMetadata for RegisteredFileMetadata {
    fn schema(&self) -> &SchemaRef {
        &self.0
    }
}

/// What a reader could not do.
fn reader_error(format: &str, path: &str, failure: BoxedHostError) -> Error {
    // Stopped by us, or one of ours that came through.
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
