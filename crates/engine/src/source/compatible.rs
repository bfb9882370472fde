//! Whether a reader with one schema reads data of another.

use std::sync::Arc;

use tidemill_rowfile::{self as rowfile, Conflict};

use super::batches::open_rowfile_of;
use super::{Format, Source, SourceSpec};
use crate::error::{Error, Result};

/// A file of this name holds a rowfile's schema as JSON (`docs/formats/rowfile.md`).
const SCHEMA_SUFFIX: &str = ".schema.json";

/// The schema that a rowfile, data of another format, or a file of a schema has.
///
/// # Errors
/// As [`Source::open`]; [`Error::Usage`] for a schema that no rowfile can have.
pub fn schema_of(spec: &SourceSpec) -> Result<rowfile::Schema> {
    let refused = |error: rowfile::Error| {
        Error::usage_hint(
            format!("`{}`: {error}", spec.url),
            "the schema of a rowfile is described in docs/formats/rowfile.md",
        )
    };
    if spec.url.ends_with(SCHEMA_SUFFIX) && spec.format.is_none() {
        let text = std::fs::read_to_string(&spec.url)
            .map_err(|error| Error::io("read", &spec.url, error))?;
        return rowfile::Schema::parse(&text).map_err(refused);
    }
    let source = Source::open(spec)?;
    if let Some(refusal) = (0..source.schema().fields().len()).find_map(|at| source.refusal(at)) {
        return Err(refusal);
    }
    // What several files have together is what reads them all.
    let is_one = source.layouts() <= 1 && source.files().iter().all(|file| file.keys.is_empty());
    if let (true, Some(file)) = (is_one, source.files().first()) {
        if source.format() == Format::Rowfile {
            return Ok(open_rowfile_of(file)?.schema().clone());
        }
        let own = match (file.chunked.get(), file.metadata.get()) {
            (Some(chunked), _) => Some(Arc::clone(&chunked.schema)),
            (None, Some(metadata)) => Some(Arc::clone(metadata.schema())),
            (None, None) => None,
        };
        if let Some(own) = own {
            return rowfile::Schema::from_arrow(&own).map_err(refused);
        }
    }
    rowfile::Schema::from_arrow(source.schema()).map_err(refused)
}

/// Every reason why a reader with the schema of `new` does not read data of `old`; none if it does.
///
/// # Errors
/// As [`schema_of`].
pub fn conflicts(old: &SourceSpec, new: &SourceSpec) -> Result<Vec<Conflict>> {
    let (written, read) = (schema_of(old)?, schema_of(new)?);
    match read.reads(&written) {
        Ok(()) => Ok(Vec::new()),
        Err(rowfile::Error::Incompatible(conflicts)) => Ok(conflicts.0),
        Err(other) => Err(Error::usage(format!("`{}`: {other}", new.url))),
    }
}
