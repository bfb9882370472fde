//! What formats share whose columns a sample shows.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema};
use tidemill_base::redact::shown;

use crate::SourceSpec;
use crate::columns::{Columns, ShownBy};
use crate::error::{Error, Result};

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
pub(super) fn nothing_to_infer(spec: &SourceSpec, format: &str) -> Result<Columns> {
    match &spec.schema {
        Some(schema) => Ok(Columns::uniform(schema.fields().to_vec())),
        None => Err(Error::Corrupt {
            path: match (spec.url.as_str(), &spec.exec) {
                ("-", _) => "standard input".into(),
                ("", Some(program)) => format!("the output of {}", program.name()),
                (url, _) => shown(url),
            },
            offset: None,
            reason: format!("there is no {format} data to tell the columns from"),
            hint: Some("--schema 'a BIGINT, b TEXT' names the columns".into()),
        }),
    }
}
