//! What can go wrong, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a rowfile was not read or written. Names of files are as the caller gave them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment: a disk is full, a file is gone.
    #[error("`{file}`: {error}")]
    Io {
        /// The file, or what stands for it.
        file: String,
        /// What the operating system says.
        error: io::Error,
    },

    /// The file does not begin as a rowfile does.
    #[error("`{file}` is not a rowfile: it begins with {found}, not with `TIDEROWS`")]
    NotARowfile {
        /// The file.
        file: String,
        /// Its first bytes, escaped.
        found: String,
    },

    /// A file of a later release.
    #[error(
        "`{file}` is a rowfile of version {found}; this release reads version {known}\n\
         hint: read it with a newer release"
    )]
    NewerVersion {
        /// The file.
        file: String,
        /// The version that it says.
        found: u32,
        /// The newest version that is known.
        known: u32,
    },

    /// The file has no end: its writer was killed, or a copy was cut short.
    #[error(
        "`{file}` was cut off: {end}\n\
         hint: {blocks} whole blocks with {rows} rows can be salvaged"
    )]
    Truncated {
        /// The file.
        file: String,
        /// Where the last whole block ends, in words.
        end: LastIntactBlock,
        /// Whole blocks before that.
        blocks: usize,
        /// Their rows.
        rows: u64,
    },

    /// Bytes that are not what their checksum says, or that no writer writes.
    #[error("`{file}` is damaged: {part} at byte {offset}: {reason}")]
    Damaged {
        /// The file.
        file: String,
        /// What is damaged.
        part: FilePart,
        /// Where it begins in the file.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },

    /// A value that the reader's schema does not take.
    #[error("`{file}`: row {row}, column `{column}`: {reason}")]
    InvalidValue {
        /// The file.
        file: String,
        /// The row, the file's first being 0.
        row: u64,
        /// The column's path.
        column: String,
        /// What is wrong with it.
        reason: String,
    },

    /// Bytes that were to be a row that was encoded alone, and are not.
    #[error(
        "`{name}`: row {row} is no encoded row: {reason}\n\
         hint: rows are decoded with the schema that they were encoded with"
    )]
    InvalidEncodedRow {
        /// What the column was called.
        name: String,
        /// The row of the column, the first being 0.
        row: u64,
        /// What is wrong with it.
        reason: String,
    },

    /// Data of the writer's schema cannot be read with the reader's.
    #[error("{0}")]
    IncompatibleSchemas(SchemaConflicts),

    /// A schema that cannot be: names twice, a default of the wrong type, bad JSON.
    #[error("column `{column}`: {reason}")]
    InvalidSchema {
        /// The field's path; empty for the schema as a whole.
        column: String,
        /// What is wrong with it.
        reason: String,
    },

    /// An Arrow type that has no place in a rowfile.
    #[error("column `{column}`: {found} cannot be kept in a rowfile")]
    UnsupportedType {
        /// The column's path.
        column: String,
        /// The type.
        found: arrow_schema::DataType,
    },

    /// A batch or row of another schema than the file's.
    #[error("column `{column}`: expected {expected}, found {found}")]
    SchemaMismatch {
        /// The column's path.
        column: String,
        /// What the file's schema says.
        expected: String,
        /// What was given.
        found: String,
    },

    /// A column that is asked for and is not there.
    #[error("unknown column `{column}`{hint}\ncolumns: {columns}")]
    UnknownColumn {
        /// The name asked for.
        column: String,
        /// A nearby name, in words.
        hint: String,
        /// The names that there are.
        columns: String,
    },

    /// Somebody else is writing the file.
    #[error(
        "`{}` is being written by another process\n\
         hint: one writer at a time may append; try again when it is done", path.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },

    /// A row or block beyond what the format can hold.
    #[error("{what} takes {found} bytes; at most {limit} fit")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size in bytes.
        found: u64,
        /// The limit.
        limit: u64,
    },

    /// The writer failed before; what it has written so far has no end.
    #[error("the writer of `{file}` failed before and writes no more")]
    WriterPoisoned {
        /// The file.
        file: String,
    },

    /// Arrow refused an array: a mistake of this crate.
    #[error("arrow: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),

    /// What a typed row's own code said.
    #[error("{0}")]
    Serde(String),
}

/// Where the last whole block of a file that was cut off ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastIntactBlock {
    /// The last whole block, if there is one: its number, the first being 0, and where it begins.
    pub block: Option<(usize, u64)>,
    /// The first byte that belongs to nothing whole.
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
    /// The block of this number, the first being 0, where it is known.
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

/// Every reason why a reader's schema does not fit a writer's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaConflicts(pub Vec<SchemaConflict>);

/// One reason why a reader's schema does not fit a writer's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaConflict {
    /// The reader's field, as a path: `request.headers.item`.
    pub column: String,
    /// What is wrong with it.
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

/// What decoding says, which does not know files: the reader adds the place.
#[derive(Debug)]
pub(crate) enum RowDecodeError {
    /// The bytes are not what a writer writes.
    Damaged(String),
    /// A value, in a row counted from the beginning of what was decoded.
    InvalidValue { row: usize, column: String, reason: String },
    /// Anything else.
    Other(Error),
}

impl RowDecodeError {
    pub(crate) fn from_damage(reason: impl Into<String>) -> Self {
        Self::Damaged(reason.into())
    }

    /// The error of a block.
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
