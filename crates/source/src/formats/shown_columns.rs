//! Renames repeated columns and converts Arrow UUIDs to text, unions to structs and list views to lists, for Arrow files and for tables in
//! memory.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use super::parquet::stored_types::{MisfitKind, UUID_BYTES, converted};
use super::unions::struct_fields;
use crate::columns::number_repeated_names;
use crate::error::{Error, Result};

/// Metadata key of an Arrow field for the name of its extension type.
const EXTENSION_NAME: &str = "ARROW:extension:name";
const UUID_EXTENSION: &str = "arrow.uuid";

/// The columns of a file with their shown names and types.
#[derive(Debug, Clone)]
pub(super) struct ShownColumns {
    own: SchemaRef,
    shown: SchemaRef,
    note: Option<String>,
}

impl ShownColumns {
    /// Derives unique names and shown types of the columns of `path`.
    pub(super) fn new(own: &SchemaRef, path: &str) -> Self {
        let mut names: Vec<String> = own.fields().iter().map(|it| it.name().clone()).collect();
        let note = repeated_names_note(&mut names, path);
        if note.is_none() && !own.fields().iter().any(is_converted) {
            return Self { own: Arc::clone(own), shown: Arc::clone(own), note: None };
        }
        let fields = own.fields().iter().zip(names);
        let fields: Fields = fields.map(|(field, name)| named(&shown_field(field), name)).collect();
        let shown = Arc::new(Schema::new_with_metadata(fields, own.metadata().clone()));
        Self { own: Arc::clone(own), shown, note }
    }

    /// The columns with their shown names and types.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.shown
    }

    /// A message about renamed columns, if there are any.
    pub(super) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Converts a batch that has the file's columns at `places`.
    ///
    /// # Errors
    /// [`Error::Arrow`] if Arrow cannot build the batch.
    pub(super) fn present(&self, batch: RecordBatch, places: &[usize]) -> Result<RecordBatch> {
        if Arc::ptr_eq(&self.own, &self.shown) {
            return Ok(batch);
        }
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (column, place) in batch.columns().iter().zip(places) {
            let Some(field) = self.shown.fields().get(*place) else {
                return Err(Error::Internal(format!("there is no column {place}")));
            };
            let column =
                converted(column, field.data_type(), true).map_err(|misfit| match misfit.kind {
                    MisfitKind::Arrow(error) => Error::from(error),
                    other => Error::Internal(format!("column `{}`: {other:?}", field.name())),
                })?;
            let field = field.as_ref().clone().with_data_type(column.data_type().clone());
            fields.push(Arc::new(field));
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }
}

/// Numbers repeated names; returns a message about them if there are any.
pub(super) fn repeated_names_note(names: &mut [String], path: &str) -> Option<String> {
    let (own, name, more) = number_repeated_names(names)?;
    let more = if more > 0 { format!(", and so on {more} more") } else { String::new() };
    Some(format!("`{path}`: of columns of one name the second `{own}` is `{name}`{more}"))
}

/// Renames a field.
pub(super) fn named(field: &FieldRef, name: String) -> FieldRef {
    match *field.name() == name {
        true => Arc::clone(field),
        false => Arc::new(field.as_ref().clone().with_name(name)),
    }
}

fn is_uuid(field: &Field) -> bool {
    field.data_type() == &DataType::FixedSizeBinary(UUID_BYTES)
        && field.metadata().get(EXTENSION_NAME).is_some_and(|name| name == UUID_EXTENSION)
}

/// Returns whether a field, or one within it, is shown as another type.
fn is_converted(field: &FieldRef) -> bool {
    is_uuid(field)
        || match field.data_type() {
            DataType::Union(..) | DataType::ListView(_) | DataType::LargeListView(_) => true,
            DataType::Struct(fields) => fields.iter().any(is_converted),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => is_converted(item),
            _ => false,
        }
}

/// Changes UUIDs to text, map keys to `Utf8`, because SQL compares them with `Utf8` literals, others to views; unions to structs, and list
/// views to lists.
fn shown_field(field: &FieldRef) -> FieldRef {
    if !is_converted(field) {
        return Arc::clone(field);
    }
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(shown_field).collect()),
        DataType::Union(fields, _) => {
            DataType::Struct(struct_fields(fields).iter().map(shown_field).collect())
        }
        DataType::List(item) | DataType::ListView(item) => DataType::List(shown_field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(shown_field(item))
        }
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(shown_field(item), *size),
        DataType::Map(entries, sorted) => {
            let entries = match entries.data_type() {
                DataType::Struct(pair) => {
                    let pair = pair.iter().enumerate().map(|(at, field)| match at {
                        0 if is_uuid(field) => as_text(field, DataType::Utf8),
                        _ => shown_field(field),
                    });
                    let pair = DataType::Struct(pair.collect());
                    Arc::new(entries.as_ref().clone().with_data_type(pair))
                }
                _ => Arc::clone(entries),
            };
            DataType::Map(entries, *sorted)
        }
        _ => return as_text(field, DataType::Utf8View),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Changes a field to text and drops its extension type.
fn as_text(field: &FieldRef, text: DataType) -> FieldRef {
    let mut metadata = field.metadata().clone();
    metadata.retain(|key, _| !key.starts_with("ARROW:extension:"));
    Arc::new(Field::new(field.name(), text, field.is_nullable()).with_metadata(metadata))
}
