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

use super::batches::{self, Plain};
use super::{FileFormat, FileMetadata, Format, Kind, PieceReader, Reading, TypedFormat};
use crate::SourceFile;
use crate::columns::{Columns, Layouts};
use crate::error::{Error, Result};
use crate::input::ByteInput;

/// Batches in a row.
pub type Batches = Box<dyn RecordBatchReader + Send>;

pub use tidemill_base::BoxedHostError;

/// Formats that are written and not read: their names are taken, too.
pub const WRITTEN_ALONE: [&str; 1] = ["text"];

/// Reads files of a format.
pub trait ReadFormat: Send + Sync {
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
    ) -> Result<Batches, BoxedHostError>;

    /// Whether a part of a file can be asked for.
    fn is_splittable(&self) -> bool;
}

/// Writes files of a format.
pub trait WriteFormat: Send + Sync {
    /// Makes the file at `path`, where there is none, of all batches.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn write(&self, path: &Path, batches: Batches) -> Result<(), BoxedHostError>;
}

/// A format that the program has added.
pub struct Registered {
    /// Tells it from another of the same name, which replaced it.
    number: u64,
    name: String,
    suffix: String,
    reader: Option<Box<dyn ReadFormat>>,
    writer: Option<Box<dyn WriteFormat>>,
}

static FORMATS: RwLock<Vec<&'static Registered>> = RwLock::new(Vec::new());
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Adds a format under `name`, told from file names that end in `.suffix`; one of the same name is
/// replaced for what is planned from now on. It stays until the process ends.
///
/// # Errors
/// [`Error::Usage`] for a name that a format has already, or that could not be written in a job
/// file; for a suffix that is another format's; and if there is neither reader nor writer.
pub fn register(
    name: &str,
    suffix: Option<&str>,
    reader: Option<Box<dyn ReadFormat>>,
    writer: Option<Box<dyn WriteFormat>>,
) -> Result<()> {
    let is_word = |text: &str| {
        let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && text.chars().all(rest)
    };
    if !is_word(name) {
        return Err(Error::usage_hint(
            format!("`{name}` cannot name a format"),
            "a name is lower-case letters, digits, `-` and `_`",
        ));
    }
    let suffix = suffix.unwrap_or(name).trim_start_matches('.').to_ascii_lowercase();
    if suffix.is_empty() || suffix.contains(['/', '.']) {
        return Err(Error::usage_hint(
            format!("`{suffix}` cannot be a format's suffix"),
            "it is what follows the last `.` of a file's name: pcap",
        ));
    }
    if reader.is_none() && writer.is_none() {
        return Err(Error::usage(format!("format `{name}` has neither a reader nor a writer")));
    }
    let is_built_in = Format::named_ones().any(|format| format.name() == name);
    if is_built_in || WRITTEN_ALONE.contains(&name) {
        return Err(Error::usage(format!("format `{name}` is there already")));
    }
    if let Some(other) = Format::of_suffix(&suffix) {
        return Err(Error::usage_hint(
            format!("`.{suffix}` is the suffix of format `{other}` already"),
            "give the format another suffix, or none of its own: its name is enough",
        ));
    }
    let mut formats = FORMATS.write();
    if let Some(other) = formats.iter().find(|other| other.name != name && other.suffix == suffix) {
        return Err(Error::usage(format!(
            "`.{suffix}` is the suffix of format `{}` already",
            other.name
        )));
    }
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let format = Registered { number, name: name.to_owned(), suffix, reader, writer };
    // A few words and two functions per registration, kept so that what runs can go on.
    let format: &'static Registered = Box::leak(Box::new(format));
    formats.retain(|other| other.name != name);
    formats.push(format);
    Ok(())
}

/// The format of this name.
pub fn named(name: &str) -> Option<&'static Registered> {
    FORMATS.read().iter().copied().find(|format| format.name == name)
}

/// The format of this suffix, in lower case and without its dot.
pub fn with_suffix(suffix: &str) -> Option<&'static Registered> {
    FORMATS.read().iter().copied().find(|format| format.suffix == suffix)
}

/// The names of all that can be read, or written.
pub fn names(written: bool) -> Vec<&'static str> {
    let formats = FORMATS.read();
    let wanted = formats.iter().filter(|format| match written {
        true => format.writer.is_some(),
        false => format.reader.is_some(),
    });
    wanted.map(|format| format.name.as_str()).collect()
}

impl Registered {
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
    pub(crate) fn reader(&self) -> Result<&dyn ReadFormat> {
        let missing =
            || Error::usage(format!("format `{}` was registered without a reader", self.name));
        self.reader.as_deref().ok_or_else(missing)
    }

    /// The writer, if there is one.
    pub fn writer(&self) -> Option<&dyn WriteFormat> {
        self.writer.as_deref()
    }
}

impl FileFormat for Registered {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Typed(self)
    }
}

impl TypedFormat for Registered {
    fn columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: Layouts,
        _: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<Columns> {
        batches::columns(files, layouts, &mut |file| {
            let schema = self.reader()?.schema(file.shown(), file.size());
            let schema = schema.map_err(|e| failed(&self.name, file.shown(), e))?;
            Ok(Box::new(RegisteredMetadata(schema)))
        })
    }

    fn open(&self, reading: Reading<'_>) -> Result<Box<dyn PieceReader>> {
        let piece = reading.piece;
        let path = piece.file.shown().to_owned();
        let names = batches::names(reading.metadata, &reading.columns);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let given = self.reader()?.read(&path, piece.range.clone(), &names);
        let given = given.map_err(|e| failed(&self.name, &path, e))?;
        let name = self.name.clone();
        let rows = given.map(move |batch| match batch {
            Ok(batch) => Ok((batch, 0)),
            Err(ArrowError::ExternalError(error)) => Err(failed(&name, &path, error)),
            Err(error) => Err(failed(&name, &path, Box::new(error))),
        });
        Ok(batches::reader(reading, Plain(rows)))
    }

    fn is_cut_anywhere(&self) -> bool {
        self.reader().is_ok_and(ReadFormat::is_splittable)
    }
}

/// What its reader tells of a file.
#[derive(Debug)]
struct RegisteredMetadata(SchemaRef);

impl FileMetadata for RegisteredMetadata {
    fn schema(&self) -> &SchemaRef {
        &self.0
    }
}

/// What a reader could not do.
fn failed(format: &str, path: &str, failure: BoxedHostError) -> Error {
    // Stopped by us, or one of ours that came through.
    match failure.downcast::<Error>() {
        Ok(ours) => *ours,
        Err(source) => Error::Format { format: format.to_owned(), path: path.to_owned(), source },
    }
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registered").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Registered {}

impl Hash for Registered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}
