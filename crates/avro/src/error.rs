//! Errors of reading and writing Avro files.

use std::io;

/// The result type of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an Avro file was not read or written. The caller adds the file's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Bytes that no Avro writer writes.
    #[error("{reason}")]
    DamagedFile {
        /// Offset in bytes from the beginning of the file.
        offset: u64,
        /// The fault at this offset.
        reason: String,
    },
    /// A valid schema that no table can have.
    #[error("{reason}")]
    UnsupportedSchema {
        /// The reason.
        reason: String,
    },
    /// A column that Avro cannot hold.
    #[error("column `{column}` {reason}")]
    UnsupportedColumn {
        /// Path of the column, with the fields that lead to the faulty one.
        column: String,
        /// The property that Avro does not support.
        reason: String,
        /// A hint at a remedy.
        hint: String,
    },
    /// A value that its Avro type cannot represent.
    #[error("column `{column}`: {reason}")]
    UnrepresentableValue {
        /// The column.
        column: String,
        /// The reason.
        reason: String,
    },
}

/// A fault of a value, at the cursor's position.
pub(crate) type ValueFault = &'static str;
