//! What formats share whose columns a sample shows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema};
use tidemill_base::column_types::UNQUOTED_NAME_METADATA_KEY;
use tidemill_base::redaction::redact_url;
use tidemill_text::TextFaultKind;

use crate::columns::{Columns, ShownBy};
use crate::error::{Error, Result};
use crate::fault::holed_file_hint;
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

/// Columns that every file has by their names; `is_sampled` says that not all records were looked at.
pub(super) fn found_by_name(
    fields: Vec<FieldRef>,
    shown_by: &ShownBy,
    is_sampled: bool,
) -> Columns {
    let shown_by = fields.iter().map(|field| shown_by.of(field)).collect();
    Columns { shown_by, is_sampled, ..Columns::uniform(fields) }
}

/// Gives columns that are found by their names the types that the user has for them.
///
/// # Errors
/// [`Error::Usage`] for a type that is not read from text, and for a name without quotes that a key of the sample has in
/// another case: SQL ignores the case of such a name, and a column of the name itself would be null in every record.
pub(super) fn settle_by_name(columns: &mut Columns, wanted: &Schema, format: &str) -> Result<()> {
    let sampled_fields = columns.fields.clone();
    // A key may come only behind the sample.
    for field in wanted.fields() {
        let is_shown = |own: &FieldRef| own.name() == field.name();
        if columns.fields.iter().any(is_shown) {
            continue;
        }
        let is_other_case = |own: &&FieldRef| is_same_but_case(own.name(), field.name());
        if field.metadata().contains_key(UNQUOTED_NAME_METADATA_KEY)
            && let Some(other) = sampled_fields.iter().find(is_other_case)
        {
            let name = field.name();
            return Err(Error::usage_hint(
                format!("--schema: unknown column `{name}`; did you mean `{}`?", other.name()),
                format!("--schema '\"{name}\" …', in quotes, names a key of that very spelling"),
            ));
        }
        columns.push(without_metadata(field));
    }
    columns.override_types(wanted)?;
    refuse_unreadable(columns, format, tidemill_text::is_readable_type)
}

/// Returns true for names that differ in case at most.
fn is_same_but_case(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Returns a field of a schema as a column of a source, which has no notes of how its name was written.
fn without_metadata(field: &FieldRef) -> FieldRef {
    match field.metadata().is_empty() {
        true => Arc::clone(field),
        false => Arc::new(field.as_ref().clone().with_metadata(HashMap::new())),
    }
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
            tidemill_text::sql_type_name(field.data_type())
        ))),
        None => Ok(()),
    }
}

/// Returns the error of a source of which no record is `noun`; `fault` is what is wrong with the first one, in the file
/// `path`.
pub(super) fn unreadable(path: String, noun: &str, fault: &tidemill_text::TextFault) -> Error {
    let hint = match fault.kind {
        TextFaultKind::LeadingNuls { .. } => holed_file_hint(),
        _ => "--source-format names another format (job file: source.format)".into(),
    };
    Error::Corrupt {
        path,
        offset: None,
        reason: format!("its records are not {noun} ({fault})"),
        hint: Some(hint),
    }
}

/// The columns of no data: those that the user names.
///
/// # Errors
/// [`Error::Usage`] where nobody names any: nothing is damaged, and nothing tells the columns. `lacking` is what
/// tells them in this format, `filling` what a file without it may hold.
pub(super) fn nothing_to_infer(
    spec: &SourceSpec,
    sample: &mut Sample<'_>,
    lacking: &str,
    filling: &str,
) -> Result<Columns> {
    if let Some(schema) = &spec.schema {
        return Ok(Columns::uniform(schema.fields().iter().map(without_metadata).collect()));
    }
    if let Some(nuls) = sample.nuls.take() {
        return Err(nuls);
    }
    let files = sample.files;
    let of_no_bytes = |file: &Arc<SourceFile>| file.size() == 0 && !file.is_stream();
    let what = match files {
        [one] if of_no_bytes(one) => format!("`{}` is empty: 0 bytes", one.shown()),
        [one] if one.skip_lines > 0 => format!(
            "`{}` has nothing behind its first {} lines, which are skipped",
            one.shown(),
            one.skip_lines
        ),
        [one] => format!("`{}` is empty: there is nothing in it but {filling}", one.shown()),
        several if several.iter().all(of_no_bytes) => {
            format!("all {} files of `{}` are empty: 0 bytes", several.len(), redact_url(&spec.url))
        }
        several => {
            format!("no file of the {} of `{}` has a record", several.len(), redact_url(&spec.url))
        }
    };
    Err(Error::usage_hint(
        format!("{what}, no {lacking}"),
        "--schema 'a BIGINT, b TEXT' names the columns of what may be empty",
    ))
}
