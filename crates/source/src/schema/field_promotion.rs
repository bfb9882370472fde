//! Field promotion: the fields of a nested record become columns of the source.
//!
//! ```text
//!   old file   day  input {user, url}          source   day  user  url
//!   new file   day  user  url                           from input, or from the file itself
//! ```
//!
//! A source whose files have the old and the new shape is one table. A promoted column is the record's field
//! in files that have the record, and the file's own column of that name in the other files. Readers can thus
//! change before writers do. The record is a struct, JSON in a string, or a row in bytes whose schema is part
//! of the column (`docs/formats/rowfile.md`).
//!
//! A row with a value in both places is an error, because neither value has precedence. A row whose JSON is
//! no record is malformed, like a line with invalid JSON.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use tidemill_base::progress::RunProgress;
use tidemill_base::{BadRecordLimit, suggestions};
use tidemill_rowfile as rowfile;
use tidemill_text::infer::{self, SAMPLE_BYTES_MAX, SAMPLE_RECORDS_MIN};
use tidemill_text::sql_type_name;

use crate::error::{Error, Result};
use crate::formats::stored_batch_reader::normalize_field;
use crate::read_options::ReadOptions;
use crate::schema::promoted_records::{
    PromotedColumn, PromotedRecord, PromotedRecordKind, as_text_values, nested_row_schema,
    prefix_hint, write_value_lines,
};
use crate::schema::type_unification::unify_types;
use crate::{RejectLog, Source, SourceColumnOrigin, Split};

/// A request to promote the fields of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPromotion {
    /// The column that holds the record.
    pub column: String,
    /// Prefix of the resulting columns' names. Default: none.
    pub prefix: String,
}

impl FromStr for FieldPromotion {
    type Err = Error;

    /// Parses `input`, or `input=in_` for columns with the prefix `in_`.
    fn from_str(text: &str) -> Result<Self> {
        let (column, prefix) = text.split_once('=').unwrap_or((text, ""));
        if column.is_empty() {
            return Err(Error::usage_with_hint(
                "no column is named to be promoted",
                "name the column that holds the record: --promote input",
            ));
        }
        Ok(FieldPromotion { column: column.to_owned(), prefix: prefix.to_owned() })
    }
}

/// Turns the fields of the named columns into columns of the source.
///
/// # Errors
/// [`Error::Usage`] for a column that holds no record, and for names that collide; those of sampling JSON.
pub(crate) fn promote_fields(source: Source, wanted: &[FieldPromotion]) -> Result<Source> {
    let mut source = Arc::new(source);
    let mut promotions: Vec<(PromotedRecord, String)> = Vec::new();
    for promote in wanted {
        let schema = Arc::clone(source.schema());
        let Ok(index) = schema.index_of(&promote.column) else {
            // Once all files have the new shape, nothing remains to promote.
            let names = schema.fields().iter().map(|field| field.name().as_str());
            if let Some(nearest) = suggestions::nearest_candidate(&promote.column, names) {
                return Err(Error::usage_with_hint(
                    format!("no file has a column `{}` to promote", promote.column),
                    format!("did you mean `{nearest}`?"),
                ));
            }
            if promote.column.contains(',') {
                return Err(Error::usage_with_hint(
                    format!("no file has a column `{}` to promote", promote.column),
                    "several columns are a list: promote = ['geo', 'dev']",
                ));
            }
            continue;
        };
        if promotions.iter().any(|(other, _)| other.name == promote.column) {
            return Err(Error::usage(format!("`{}` is promoted twice", promote.column)));
        }
        let Some(SourceColumnOrigin::File(column)) = source.origins.get(index).copied() else {
            return Err(Error::usage(format!(
                "column `{}` comes from a folder and holds no record",
                promote.column
            )));
        };
        if let Some(refusal) = source.column_error(index) {
            return Err(refusal);
        }
        let (kind, fields) = match schema.field(index).data_type() {
            DataType::Struct(fields) => (PromotedRecordKind::Struct, fields.clone()),
            DataType::BinaryView if has_rowfile_rows(&source, &promote.column)? => {
                (PromotedRecordKind::Rows, rowfile_row_fields(&source, column, &promote.column)?)
            }
            DataType::Utf8View | DataType::BinaryView => {
                (PromotedRecordKind::Json, infer_json_fields(&source, index, &promote.column)?)
            }
            other => {
                return Err(Error::usage_with_hint(
                    format!(
                        "column `{}` is {} and holds no record",
                        promote.column,
                        sql_type_name(other)
                    ),
                    "what is promoted is a STRUCT, JSON in a string, or rows of a rowfile in bytes",
                ));
            }
        };
        let name = promote.column.clone();
        promotions.push((PromotedRecord { column, name, kind, fields }, promote.prefix.clone()));
    }
    if promotions.is_empty() {
        return Arc::try_unwrap(source).map_err(|_| still_sampled_error());
    }
    let Some(source_mut) = Arc::get_mut(&mut source) else { return Err(still_sampled_error()) };
    place_promoted_columns(source_mut, promotions)?;
    Arc::try_unwrap(source).map_err(|_| still_sampled_error())
}

fn still_sampled_error() -> Error {
    Error::Internal("a source is still being sampled".into())
}

/// Puts the promoted columns at the position of their record, or of an earlier column of the same name.
fn place_promoted_columns(
    source: &mut Source,
    promotions: Vec<(PromotedRecord, String)>,
) -> Result<()> {
    // For each column name, the record's index and its field.
    let mut given: HashMap<String, (usize, FieldRef)> = HashMap::new();
    for (index, (promotion, prefix)) in promotions.iter().enumerate() {
        for field in &promotion.fields {
            let name = format!("{prefix}{}", field.name());
            if let Some((other, _)) = given.insert(name.clone(), (index, field.clone())) {
                let (one, two) = (&promotions[other].0.name, &promotion.name);
                return Err(Error::usage_with_hint(
                    match one == two {
                        true => format!("`{one}` has two fields `{}`", field.name()),
                        false => format!("`{one}` and `{two}` both give a column `{name}`"),
                    },
                    prefix_hint(two),
                ));
            }
        }
    }
    let is_record = |column: usize| promotions.iter().any(|(it, _)| it.column == column);
    let names: HashMap<String, SourceColumnOrigin> = source
        .schema
        .fields()
        .iter()
        .zip(&source.origins)
        .filter(
            |(_, origin)| !matches!(origin, SourceColumnOrigin::File(column) if is_record(*column)),
        )
        .map(|(field, origin)| (field.name().clone(), *origin))
        .collect();
    let (mut fields, mut origins, mut promoted) = (Vec::new(), Vec::new(), Vec::new());
    let mut place =
        |name: &str, fields: &mut Vec<FieldRef>, origins: &mut Vec<SourceColumnOrigin>| {
            let Some((promotion, field)) = given.remove(name) else { return };
            let own = match names.get(name) {
                Some(SourceColumnOrigin::File(own)) => Some(*own),
                // A folder's value has precedence, as over a file's own column.
                Some(SourceColumnOrigin::Key(_)) => return,
                _ => None,
            };
            let inner = field.data_type();
            let own_type = own.map(|own| source.columns.fields[own].data_type());
            let (data_type, clash) = match own_type.map(|own| (own, unify_types(inner, own))) {
                None => (inner.clone(), None),
                Some((_, Ok(data_type))) => (data_type, None),
                Some((own, Err(_))) => (
                    inner.clone(),
                    Some(format!("{} and {}", sql_type_name(own), sql_type_name(inner))),
                ),
            };
            fields.push(Arc::new(Field::new(name, data_type, true)));
            origins.push(SourceColumnOrigin::Promoted(promoted.len()));
            promoted.push(PromotedColumn { promotion, field: field.name().clone(), own, clash });
        };
    for (field, origin) in source.schema.fields().iter().zip(&source.origins) {
        match origin {
            SourceColumnOrigin::File(column) if is_record(*column) => {
                let Some((record, prefix)) = promotions.iter().find(|(it, _)| it.column == *column)
                else {
                    continue;
                };
                for inner in &record.fields {
                    place(&format!("{prefix}{}", inner.name()), &mut fields, &mut origins);
                }
            }
            SourceColumnOrigin::File(_) => {
                let before = fields.len();
                place(field.name(), &mut fields, &mut origins);
                let is_placed = fields.len() > before
                    || fields.iter().any(|placed: &FieldRef| placed.name() == field.name());
                if !is_placed {
                    fields.push(field.clone());
                    origins.push(*origin);
                }
            }
            SourceColumnOrigin::Key(_)
            | SourceColumnOrigin::Promoted(_)
            | SourceColumnOrigin::Hidden(_) => {
                fields.push(field.clone());
                origins.push(*origin);
            }
        }
    }
    source.schema = Arc::new(Schema::new(fields));
    source.origins = origins;
    source.promoted_columns = promoted;
    source.promoted_records = promotions.into_iter().map(|(promotion, _)| promotion).collect();
    Ok(())
}

fn has_rowfile_rows(source: &Source, name: &str) -> Result<bool> {
    for file in &source.files {
        if nested_row_schema(file, name)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the fields of the rowfile rows that a column holds, unified over all files by name.
fn rowfile_row_fields(source: &Source, column: usize, name: &str) -> Result<Fields> {
    let mut known: Option<(rowfile::Schema, usize)> = None;
    let mut all = DataType::Struct(Fields::empty());
    for file in &source.files {
        if source.columns.layout(file.index).places.get(column).copied().flatten().is_none() {
            continue;
        }
        let Some(schema) = nested_row_schema(file, name)? else {
            return Err(Error::usage_with_hint(
                format!(
                    "column `{name}` holds rows of a rowfile in other files, and in `{}` nothing \
                     says of what schema they are",
                    file.display_name
                ),
                "make each kind of file a source of its own",
            ));
        };
        if known.as_ref().is_some_and(|(other, _)| *other == schema) {
            continue;
        }
        let own = schema.to_arrow(rowfile::StringLayout::default());
        let own = DataType::Struct(own.fields().iter().map(normalize_field).collect());
        all = unify_types(&all, &own).map_err(|clash| {
            let first = known.as_ref().map_or(0, |(_, first)| *first);
            let other = source.files.get(first).map_or("", |file| file.display_name());
            Error::IncompatibleFiles {
                path: file.display_name.to_string(),
                other: other.to_owned(),
                reason: format!(
                    "`{}` in the rows of column `{name}` is {}, not {}",
                    clash.path.join("."),
                    sql_type_name(&clash.second),
                    sql_type_name(&clash.first)
                ),
                hint: Some("make each kind of file a source of its own".into()),
            }
        })?;
        known.get_or_insert((schema, file.index));
    }
    match all {
        DataType::Struct(fields) => Ok(fields),
        _ => Err(Error::Internal("a record that is no struct".into())),
    }
}

/// Maximum number of files that are sampled.
const PROMOTION_SAMPLE_FILES_MAX: usize = 16;

/// Infers the fields of a column's JSON records from a sample.
fn infer_json_fields(source: &Arc<Source>, column: usize, name: &str) -> Result<Fields> {
    if let Some(file) = source.files.iter().find(|file| file.is_stream()) {
        return Err(Error::usage_with_hint(
            format!(
                "`{name}` holds text, and {} cannot be read twice to see what it is",
                file.display_name
            ),
            "write it to a file first",
        ));
    }
    // The beginnings of files, spread evenly over all of them.
    let splits: Vec<Split> = source
        .splits()?
        .into_iter()
        .filter(|split| split.parts.first().is_some_and(|piece| piece.range.start == 0))
        .collect();
    let last = splits.len().saturating_sub(1);
    let count = splits.len().min(PROMOTION_SAMPLE_FILES_MAX);
    let chosen = (0..count).map(|k| &splits[if count > 1 { k * last / (count - 1) } else { 0 }]);
    let mut inference = infer::json::JsonInference::new(&[]);
    let (mut lines, mut records, mut bytes) = (Vec::new(), 0, 0);
    let all_bad = BadRecordLimit::Percent(100.0);
    for split in chosen {
        let options = ReadOptions {
            projection: Some(vec![column]),
            cancel: source.files[0].cancel.clone(),
            progress: RunProgress::new(),
            reject_log: Arc::new(RejectLog::new(all_bad, None)),
            ..ReadOptions::default()
        };
        let mut of_split = 0;
        for batch in source.read_split(split, &options)? {
            let batch = batch?;
            let Some(values) = as_text_values(batch.column(0)) else { continue };
            lines.clear();
            write_value_lines(&values, false, &mut lines);
            bytes += lines.len() as u64;
            of_split += inference.add_block(&lines);
            if of_split >= SAMPLE_RECORDS_MIN / count as u64 || bytes >= SAMPLE_BYTES_MAX {
                break;
            }
        }
        records += of_split;
        inference.settle_types();
    }
    let fields = inference.fields();
    if fields.is_empty() {
        let reason = match (records, inference.first_fault()) {
            (0, _) => "it has no value in the files that were looked at".to_owned(),
            (_, Some(fault)) => fault.to_string(),
            (_, None) => "its objects are empty".to_owned(),
        };
        return Err(Error::usage_with_hint(
            format!("column `{name}` holds no JSON objects: {reason}"),
            "what is promoted is a STRUCT, JSON in a string, or rows of a rowfile in bytes",
        ));
    }
    Ok(fields.into())
}
