//! What can go wrong.

use std::io;

/// The crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an Avro file was not read or written. Whoever knows the file's name adds it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Bytes that no writer of Avro writes.
    #[error("{reason}")]
    DamagedFile {
        /// Where, in bytes from the file's beginning.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A schema that is valid and that no table can have.
    #[error("{reason}")]
    UnsupportedSchema {
        /// What it is.
        reason: String,
    },
    /// A column that Avro cannot hold.
    #[error("column `{column}` {reason}")]
    UnsupportedColumn {
        /// The column, with the fields that lead to the one at fault.
        column: String,
        /// What it is that Avro does not have.
        reason: String,
        /// What to do about it.
        hint: String,
    },
    /// A value that its type in Avro does not hold.
    #[error("column `{column}`: {reason}")]
    UnrepresentableValue {
        /// The column.
        column: String,
        /// What does not fit.
        reason: String,
    },
}

/// What is wrong with a value that is read, at the cursor's place.
pub(crate) type ValueFault = &'static str;
