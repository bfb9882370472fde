//! Columns of text formats that a sample shows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema};
use tidemill_base::column_types::UNQUOTED_NAME_METADATA_KEY;
use tidemill_base::redaction::redact_url;
use tidemill_text::TextFaultKind;

use crate::error::{Error, Result};
use crate::rejects::record_fault::nul_hole_hint;
use crate::schema::column_layouts::{FileColumns, TypeWitnesses};
use crate::schema::source_sample::SourceSample;
use crate::{SourceFile, SourceSpec};

/// Maximum number of files whose inferred types are recorded as witnesses.
const WITNESSED_FILES_MAX: usize = 256;

pub(super) fn record_file_types(
    shown_by: &mut TypeWitnesses,
    file: Option<usize>,
    fields: impl FnOnce() -> Vec<FieldRef>,
) {
    if let Some(file) = file.filter(|file| *file < WITNESSED_FILES_MAX) {
        shown_by.record_types(file, &fields());
    }
}

/// Returns columns that every file has by name. `is_sampled` states that the sample does not cover all
/// records.
pub(super) fn file_columns_found_by_name(
    fields: Vec<FieldRef>,
    shown_by: &TypeWitnesses,
    is_sampled: bool,
) -> FileColumns {
    let shown_by = fields.iter().map(|field| shown_by.witness_file(field)).collect();
    FileColumns { type_witnesses: shown_by, is_sampled, ..FileColumns::with_uniform_layout(fields) }
}

/// Applies declared types to columns that are found by name.
///
/// # Errors
/// [`Error::Usage`] for a type that cannot be read from text, and for an unquoted name that differs only in
/// case from a key of the sample: SQL ignores the case of such a name, and the declared column would be null
/// in every record.
pub(super) fn declare_types_by_name(
    columns: &mut FileColumns,
    wanted: &Schema,
    format: &str,
) -> Result<()> {
    let sampled_fields = columns.fields.clone();
    // A key may appear only after the sample.
    for field in wanted.fields() {
        let is_shown = |own: &FieldRef| own.name() == field.name();
        if columns.fields.iter().any(is_shown) {
            continue;
        }
        let is_other_case = |own: &&FieldRef| is_equal_ignoring_case(own.name(), field.name());
        if field.metadata().contains_key(UNQUOTED_NAME_METADATA_KEY)
            && let Some(other) = sampled_fields.iter().find(is_other_case)
        {
            let name = field.name();
            return Err(Error::usage_with_hint(
                format!("--schema: unknown column `{name}`; did you mean `{}`?", other.name()),
                format!("--schema '\"{name}\" …', in quotes, names a key of that very spelling"),
            ));
        }
        columns.push_column(without_metadata(field));
    }
    columns.override_types(wanted)?;
    check_readable_types(columns, format, tidemill_text::is_readable_type)
}

/// Returns whether two names differ at most in case.
fn is_equal_ignoring_case(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Returns a field of a schema as a column of a source, without the metadata about the spelling of its name.
fn without_metadata(field: &FieldRef) -> FieldRef {
    match field.metadata().is_empty() {
        true => Arc::clone(field),
        false => Arc::new(field.as_ref().clone().with_metadata(HashMap::new())),
    }
}

/// Checks that the type of every column can be read from text.
pub(super) fn check_readable_types(
    columns: &FileColumns,
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

/// Returns the error for a source in which no record is `noun`. `fault` describes the first record, in the
/// file `path`.
pub(super) fn unreadable_records_error(
    path: String,
    noun: &str,
    fault: &tidemill_text::TextFault,
) -> Error {
    let hint = match fault.kind {
        TextFaultKind::LeadingNuls { .. } => nul_hole_hint(),
        _ => "--source-format names another format (job file: source.format)".into(),
    };
    Error::Corrupt {
        path,
        offset: None,
        reason: format!("its records are not {noun} ({fault})"),
        hint: Some(hint),
    }
}

/// Returns the declared columns of a source without records.
///
/// # Errors
/// [`Error::Usage`] if no columns are declared: nothing is damaged, but nothing shows the columns either.
/// `lacking` is what would show them in this format, `filling` what a file without it may contain.
pub(super) fn declared_columns_without_data(
    spec: &SourceSpec,
    sample: &mut SourceSample<'_>,
    lacking: &str,
    filling: &str,
) -> Result<FileColumns> {
    if let Some(schema) = &spec.declared_schema {
        return Ok(FileColumns::with_uniform_layout(
            schema.fields().iter().map(without_metadata).collect(),
        ));
    }
    if let Some(nuls) = sample.trailing_nuls_error.take() {
        return Err(nuls);
    }
    let files = sample.files;
    let of_no_bytes = |file: &Arc<SourceFile>| file.size() == 0 && !file.is_stream();
    let what = match files {
        [one] if of_no_bytes(one) => format!("`{}` is empty: 0 bytes", one.display_name()),
        [one] if one.skipped_lines > 0 => format!(
            "`{}` has nothing behind its first {} lines, which are skipped",
            one.display_name(),
            one.skipped_lines
        ),
        [one] => format!("`{}` is empty: there is nothing in it but {filling}", one.display_name()),
        several if several.iter().all(of_no_bytes) => {
            format!("all {} files of `{}` are empty: 0 bytes", several.len(), redact_url(&spec.url))
        }
        several => {
            format!("no file of the {} of `{}` has a record", several.len(), redact_url(&spec.url))
        }
    };
    Err(Error::usage_with_hint(
        format!("{what}, no {lacking}"),
        "--schema 'a BIGINT, b TEXT' names the columns of what may be empty",
    ))
}
