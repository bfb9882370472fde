//! Errors that travel from a worker to the driver.

use serde::{Deserialize, Serialize};
use tidemill_base::error::{BadRecord, Error};

/// An error in serializable form, which keeps its kind.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[expect(missing_docs, reason = "its variants and their fields are those of the error")]
pub enum SerializedError {
    Usage {
        message: String,
        hint: Option<String>,
    },
    NotFound {
        path: String,
        hint: Option<String>,
    },
    Io {
        action: String,
        path: String,
        code: Option<i32>,
        reason: String,
    },
    Remote {
        action: String,
        url: String,
        offset: Option<u64>,
        status: Option<u16>,
        reason: String,
        hint: Option<String>,
    },
    Program {
        program: String,
        file: String,
        reason: String,
        said: String,
    },
    Rowfile {
        path: String,
        reason: String,
        hint: Option<String>,
    },
    Corrupt {
        path: String,
        offset: Option<u64>,
        reason: String,
        hint: Option<String>,
    },
    Differ {
        path: String,
        other: String,
        reason: String,
        hint: Option<String>,
    },
    BadRecords {
        count: u64,
        allowed: String,
        first: Vec<BadRecord>,
    },
    Changed {
        path: String,
        reason: String,
    },
    Overflow {
        message: String,
        hint: Option<String>,
    },
    Bytes {
        message: String,
        hint: Option<String>,
    },
    Cast {
        value: String,
        to: String,
        cast: Option<String>,
        hint: Option<String>,
    },
    Memory {
        message: String,
        hint: Option<String>,
    },
    Query {
        message: String,
    },
    Interrupted,
    Internal {
        message: String,
    },
}

impl From<Error> for SerializedError {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage { message, hint } => SerializedError::Usage { message, hint },
            Error::NotFound { path, hint } => SerializedError::NotFound { path, hint },
            Error::Io { action, path, source } => SerializedError::Io {
                action: action.to_owned(),
                path,
                code: source.raw_os_error(),
                reason: source.to_string(),
            },
            Error::Remote { action, url, offset, status, reason, hint } => {
                SerializedError::Remote {
                    action: action.to_owned(),
                    url,
                    offset,
                    status,
                    reason,
                    hint,
                }
            }
            Error::UserProgram { program, file, reason, said } => {
                SerializedError::Program { program, file, reason, said }
            }
            Error::Rowfile { path, reason, hint } => {
                SerializedError::Rowfile { path, reason, hint }
            }
            Error::Corrupt { path, offset, reason, hint } => {
                SerializedError::Corrupt { path, offset, reason, hint }
            }
            Error::IncompatibleFiles { path, other, reason, hint } => {
                SerializedError::Differ { path, other, reason, hint }
            }
            Error::BadRecords { count, allowed, first } => {
                SerializedError::BadRecords { count, allowed, first }
            }
            Error::FileChanged { path, reason } => SerializedError::Changed { path, reason },
            Error::Overflow { message, hint } => SerializedError::Overflow { message, hint },
            Error::InvalidBytes { message, hint } => SerializedError::Bytes { message, hint },
            Error::Cast { value, to, cast, hint } => {
                SerializedError::Cast { value, to, cast, hint }
            }
            Error::MemoryBudgetTooSmall { message, hint } => {
                SerializedError::Memory { message, hint }
            }
            Error::Interrupted => SerializedError::Interrupted,
            Error::Internal(message) => SerializedError::Internal { message },
            // This text was serialized before, so it stays as it is.
            Error::Query(message) => SerializedError::Query { message },
            other => SerializedError::Query { message: other.to_string() },
        }
    }
}

/// Returns the static string for an action, because [`Error`] holds static strings.
fn static_action(word: &str) -> &'static str {
    const ACTIONS: [&str; 8] =
        ["read", "write", "list", "open", "create", "find", "start", "spill to"];
    ACTIONS.into_iter().find(|known| *known == word).unwrap_or("work on")
}

impl From<SerializedError> for Error {
    fn from(failure: SerializedError) -> Self {
        match failure {
            SerializedError::Usage { message, hint } => Error::Usage { message, hint },
            SerializedError::NotFound { path, hint } => Error::NotFound { path, hint },
            SerializedError::Io { action: word, path, code, reason } => Error::Io {
                action: static_action(&word),
                path,
                source: match code {
                    Some(code) => std::io::Error::from_raw_os_error(code),
                    None => std::io::Error::other(reason),
                },
            },
            SerializedError::Remote { action: word, url, offset, status, reason, hint } => {
                Error::Remote { action: static_action(&word), url, offset, status, reason, hint }
            }
            SerializedError::Program { program, file, reason, said } => {
                Error::UserProgram { program, file, reason, said }
            }
            SerializedError::Rowfile { path, reason, hint } => {
                Error::Rowfile { path, reason, hint }
            }
            SerializedError::Corrupt { path, offset, reason, hint } => {
                Error::Corrupt { path, offset, reason, hint }
            }
            SerializedError::Differ { path, other, reason, hint } => {
                Error::IncompatibleFiles { path, other, reason, hint }
            }
            SerializedError::BadRecords { count, allowed, first } => {
                Error::BadRecords { count, allowed, first }
            }
            SerializedError::Changed { path, reason } => Error::FileChanged { path, reason },
            SerializedError::Overflow { message, hint } => Error::Overflow { message, hint },
            SerializedError::Bytes { message, hint } => Error::InvalidBytes { message, hint },
            SerializedError::Cast { value, to, cast, hint } => {
                Error::Cast { value, to, cast, hint }
            }
            SerializedError::Memory { message, hint } => {
                Error::MemoryBudgetTooSmall { message, hint }
            }
            SerializedError::Query { message } => Error::Query(message),
            SerializedError::Interrupted => Error::Interrupted,
            SerializedError::Internal { message } => Error::Internal(message),
        }
    }
}
