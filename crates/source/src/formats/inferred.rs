//! What formats share whose columns a sample shows.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema};
use tidemill_base::redact::shown;

use crate::columns::{Columns, ShownBy};
use crate::error::{Error, Result};
use crate::sample::Sample;
use crate::{SourceFile, SourceSpec};

/// Of so many files it is noted which showed what.
const NOTED_FILES: usize = 256;

pub(super) fn note(
    shown_by: &mut ShownBy,
    file: Option<usize>,
    fields: impl FnOnce() -> Vec<FieldRef>,
) {
    if let Some(file) = file.filter(|file| *file < NOTED_FILES) {
        shown_by.note(file, &fields());
    }
}

/// Columns that every file has by their names.
pub(super) fn found_by_name(fields: Vec<FieldRef>, shown_by: &ShownBy) -> Columns {
    let shown_by = fields.iter().map(|field| shown_by.of(field)).collect();
    Columns { shown_by, ..Columns::uniform(fields) }
}

/// Gives columns that are found by their names the types that the user has for them.
///
/// # Errors
/// [`Error::Usage`] for a type that is not read from text.
pub(super) fn settle_by_name(columns: &mut Columns, wanted: &Schema, format: &str) -> Result<()> {
    // A key may come only behind the sample.
    for field in wanted.fields() {
        if !columns.fields.iter().any(|own| own.name() == field.name()) {
            columns.push(Arc::clone(field));
        }
    }
    columns.override_types(wanted)?;
    refuse_unreadable(columns, format, tidemill_text::is_readable)
}

/// Refuses a column of a type that is not read from text.
pub(super) fn refuse_unreadable(
    columns: &Columns,
    format: &str,
    is_readable: impl Fn(&DataType) -> bool,
) -> Result<()> {
    match columns.fields.iter().find(|field| !is_readable(field.data_type())) {
        Some(field) => Err(Error::usage(format!(
            "column `{}` cannot be of type {} in {format}",
            field.name(),
            field.data_type()
        ))),
        None => Ok(()),
    }
}

/// The columns of no data: those that the user names.
///
/// # Errors
/// [`Error::Usage`] where nobody names any: nothing is damaged, and nothing tells the columns. `lacking` is what
/// tells them in this format.
pub(super) fn nothing_to_infer(
    spec: &SourceSpec,
    sample: &Sample<'_>,
    lacking: &str,
) -> Result<Columns> {
    if let Some(schema) = &spec.schema {
        return Ok(Columns::uniform(schema.fields().to_vec()));
    }
    let files = sample.files;
    let of_no_bytes = |file: &Arc<SourceFile>| file.size() == 0 && !file.is_stream();
    let what = match files {
        [one] if of_no_bytes(one) => format!("`{}` is empty: 0 bytes", one.shown()),
        [one] => {
            format!("`{}` is empty: there is nothing in it but blank lines, if any", one.shown())
        }
        several if several.iter().all(of_no_bytes) => {
            format!("all {} files of `{}` are empty: 0 bytes", several.len(), shown(&spec.url))
        }
        several => {
            format!("no file of the {} of `{}` has a record", several.len(), shown(&spec.url))
        }
    };
    Err(Error::usage_hint(
        format!("{what}, no {lacking}"),
        "--schema 'a BIGINT, b TEXT' names the columns of what may be empty",
    ))
}
