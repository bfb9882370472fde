//! Errors on their way from whoever works elsewhere to whoever asked.

use serde::{Deserialize, Serialize};
use tidemill_base::error::{BadRecord, Error};

/// An error in words; its kind stays what it is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[expect(missing_docs, reason = "its variants and their fields are those of the error")]
pub enum Failure {
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

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage { message, hint } => Failure::Usage { message, hint },
            Error::NotFound { path, hint } => Failure::NotFound { path, hint },
            Error::Io { action, path, source } => Failure::Io {
                action: action.to_owned(),
                path,
                code: source.raw_os_error(),
                reason: source.to_string(),
            },
            Error::Remote { action, url, offset, status, reason, hint } => {
                Failure::Remote { action: action.to_owned(), url, offset, status, reason, hint }
            }
            Error::UserProgram { program, file, reason, said } => {
                Failure::Program { program, file, reason, said }
            }
            Error::Rowfile { path, reason, hint } => Failure::Rowfile { path, reason, hint },
            Error::Corrupt { path, offset, reason, hint } => {
                Failure::Corrupt { path, offset, reason, hint }
            }
            Error::IncompatibleFiles { path, other, reason, hint } => {
                Failure::Differ { path, other, reason, hint }
            }
            Error::BadRecords { count, allowed, first } => {
                Failure::BadRecords { count, allowed, first }
            }
            Error::FileChanged { path, reason } => Failure::Changed { path, reason },
            Error::Overflow { message, hint } => Failure::Overflow { message, hint },
            Error::InvalidBytes { message, hint } => Failure::Bytes { message, hint },
            Error::Cast { value, to, cast, hint } => Failure::Cast { value, to, cast, hint },
            Error::MemoryBudgetTooSmall { message, hint } => Failure::Memory { message, hint },
            Error::Interrupted => Failure::Interrupted,
            Error::Internal(message) => Failure::Internal { message },
            // Text that came from elsewhere already is what it is.
            Error::Query(message) => Failure::Query { message },
            other => Failure::Query { message: other.to_string() },
        }
    }
}

/// The word for an action: errors have those that the code has.
fn action(word: &str) -> &'static str {
    const WORDS: [&str; 8] =
        ["read", "write", "list", "open", "create", "find", "start", "spill to"];
    WORDS.into_iter().find(|known| *known == word).unwrap_or("work on")
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Usage { message, hint } => Error::Usage { message, hint },
            Failure::NotFound { path, hint } => Error::NotFound { path, hint },
            Failure::Io { action: word, path, code, reason } => Error::Io {
                action: action(&word),
                path,
                source: match code {
                    Some(code) => std::io::Error::from_raw_os_error(code),
                    None => std::io::Error::other(reason),
                },
            },
            Failure::Remote { action: word, url, offset, status, reason, hint } => {
                Error::Remote { action: action(&word), url, offset, status, reason, hint }
            }
            Failure::Program { program, file, reason, said } => {
                Error::UserProgram { program, file, reason, said }
            }
            Failure::Rowfile { path, reason, hint } => Error::Rowfile { path, reason, hint },
            Failure::Corrupt { path, offset, reason, hint } => {
                Error::Corrupt { path, offset, reason, hint }
            }
            Failure::Differ { path, other, reason, hint } => {
                Error::IncompatibleFiles { path, other, reason, hint }
            }
            Failure::BadRecords { count, allowed, first } => {
                Error::BadRecords { count, allowed, first }
            }
            Failure::Changed { path, reason } => Error::FileChanged { path, reason },
            Failure::Overflow { message, hint } => Error::Overflow { message, hint },
            Failure::Bytes { message, hint } => Error::InvalidBytes { message, hint },
            Failure::Cast { value, to, cast, hint } => Error::Cast { value, to, cast, hint },
            Failure::Memory { message, hint } => Error::MemoryBudgetTooSmall { message, hint },
            Failure::Query { message } => Error::Query(message),
            Failure::Interrupted => Error::Interrupted,
            Failure::Internal { message } => Error::Internal(message),
        }
    }
}
