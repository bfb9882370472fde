//! The error types of this crate.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of reading or writing a rowfile. File names are as the caller gave them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the environment: a full disk, a missing file.
    #[error("`{file}`: {error}")]
    Io {
        /// Name of the file, or of the source that stands for it.
        file: String,
        /// The operating system's error.
        error: io::Error,
    },

    /// The file does not begin like a rowfile.
    #[error("`{file}` is not a rowfile: it begins with {found}, not with `TIDEROWS`")]
    NotARowfile {
        /// The file.
        file: String,
        /// Its first bytes, escaped.
        found: String,
    },

    /// The file is from a later release.
    #[error(
        "`{file}` is a rowfile of version {found}; this release reads version {known}\n\
         hint: read it with a newer release"
    )]
    NewerVersion {
        /// The file.
        file: String,
        /// The file's version.
        found: u32,
        /// The newest version that this release reads.
        known: u32,
    },

    /// The file has no footer at its end: its writer was killed, or a copy was truncated.
    #[error(
        "`{file}` was cut off: {end}\n\
         hint: {blocks} whole blocks with {rows} rows can be salvaged"
    )]
    Truncated {
        /// The file.
        file: String,
        /// End of the last whole block.
        end: LastIntactBlock,
        /// Number of whole blocks before that.
        blocks: usize,
        /// Number of rows in these blocks.
        rows: u64,
    },

    /// Bytes that do not match their checksum, or that no writer produces.
    #[error("`{file}` is damaged: {part} at byte {offset}: {reason}")]
    Damaged {
        /// The file.
        file: String,
        /// The damaged part of the file.
        part: FilePart,
        /// Offset of that part in the file.
        offset: u64,
        /// Description of the damage.
        reason: String,
    },

    /// A value that the reader's schema does not accept.
    #[error("`{file}`: row {row}, column `{column}`: {reason}")]
    InvalidValue {
        /// The file.
        file: String,
        /// The row; the file's first is 0.
        row: u64,
        /// Path of the column.
        column: String,
        /// Description of the problem.
        reason: String,
    },

    /// Bytes that should be an encoded row and are not.
    #[error(
        "`{name}`: row {row} is no encoded row: {reason}\n\
         hint: rows are decoded with the schema that they were encoded with"
    )]
    InvalidEncodedRow {
        /// Name of the column, as given by the caller.
        name: String,
        /// The row in the column; the first is 0.
        row: u64,
        /// Description of the problem.
        reason: String,
    },

    /// The reader's schema cannot read data of the writer's schema.
    #[error("{0}")]
    IncompatibleSchemas(SchemaConflicts),

    /// An invalid schema: a duplicate name, a default of the wrong type, bad JSON.
    #[error("column `{column}`: {reason}")]
    InvalidSchema {
        /// Path of the field; empty for the schema as a whole.
        column: String,
        /// Description of the problem.
        reason: String,
    },

    /// An Arrow type that a rowfile cannot store.
    #[error("column `{column}`: {found} cannot be kept in a rowfile")]
    UnsupportedType {
        /// Path of the column.
        column: String,
        /// The type.
        found: arrow_schema::DataType,
    },

    /// A batch or row whose schema differs from the file's.
    #[error("column `{column}`: expected {expected}, found {found}")]
    SchemaMismatch {
        /// Path of the column.
        column: String,
        /// The type or fields of the file's schema.
        expected: String,
        /// The given type or fields.
        found: String,
    },

    /// A requested column that does not exist.
    #[error("unknown column `{column}`{hint}\ncolumns: {columns}")]
    UnknownColumn {
        /// The requested name.
        column: String,
        /// A suggestion of a similar name, as text.
        hint: String,
        /// The existing names.
        columns: String,
    },

    /// Another process is writing the file.
    #[error(
        "`{}` is being written by another process\n\
         hint: one writer at a time may append; try again when it is done", path.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },

    /// A row or block that exceeds the format's limit.
    #[error("{what} takes {found} bytes; at most {limit} fit")]
    TooLarge {
        /// Name of the thing that is too large.
        what: &'static str,
        /// Its size in bytes.
        found: u64,
        /// The limit.
        limit: u64,
    },

    /// The writer failed earlier; the bytes it has written have no footer.
    #[error("the writer of `{file}` failed before and writes no more")]
    WriterPoisoned {
        /// The file.
        file: String,
    },

    /// Arrow refused an array: a bug of this crate.
    #[error("arrow: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),

    /// A message of a typed row's serde implementation.
    #[error("{0}")]
    Serde(String),
}

/// The last whole block of a truncated file, and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastIntactBlock {
    /// Number (the first is 0) and offset of the last whole block, if there is one.
    pub block: Option<(usize, u64)>,
    /// Offset of the first byte that belongs to nothing whole.
    pub end: u64,
}

impl fmt::Display for LastIntactBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.block {
            Some((block, offset)) => write!(
                f,
                "the last whole block is block {block} at byte {offset}, which ends at byte {}",
                self.end
            ),
            None => write!(f, "no whole block follows its header, which ends at byte {}", self.end),
        }
    }
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilePart {
    /// The header with the schema.
    Header,
    /// A block, with its number if known; the first is 0.
    Block(Option<usize>),
    /// A footer.
    Footer,
}

impl fmt::Display for FilePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("the header"),
            Self::Block(Some(number)) => write!(f, "block {number}"),
            Self::Block(None) => f.write_str("a block"),
            Self::Footer => f.write_str("the footer"),
        }
    }
}

/// All reasons why a reader's schema cannot read a writer's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaConflicts(pub Vec<SchemaConflict>);

/// One reason why a reader's schema cannot read a writer's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaConflict {
    /// Path of the reader's field: `request.headers.item`.
    pub column: String,
    /// Description of the problem.
    pub reason: String,
}

impl fmt::Display for SchemaConflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data cannot be read with this schema:")?;
        for SchemaConflict { column, reason } in &self.0 {
            write!(f, "\n  column `{column}`: {reason}")?;
        }
        Ok(())
    }
}

/// An error of decoding, which does not know the file; the reader adds file and offset.
#[derive(Debug)]
pub(crate) enum RowDecodeError {
    /// Bytes that no writer produces.
    Damaged(String),
    /// An invalid value; the row is counted from the first decoded row.
    InvalidValue { row: usize, column: String, reason: String },
    /// Any other error.
    Other(Error),
}

impl RowDecodeError {
    pub(crate) fn from_damage(reason: impl Into<String>) -> Self {
        Self::Damaged(reason.into())
    }

    /// Converts to the error of a part of a file, with its name and offset.
    pub(crate) fn into_error(
        self,
        file: &str,
        part: FilePart,
        offset: u64,
        first_row: u64,
    ) -> Error {
        match self {
            Self::Damaged(reason) => Error::Damaged { file: file.into(), part, offset, reason },
            Self::InvalidValue { row, column, reason } => Error::InvalidValue {
                file: file.into(),
                row: first_row + row as u64,
                column,
                reason,
            },
            Self::Other(error) => error,
        }
    }
}

impl From<arrow_schema::ArrowError> for RowDecodeError {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self::Other(error.into())
    }
}
