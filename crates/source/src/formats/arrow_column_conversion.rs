//! Conversion of file columns to source columns, for Arrow files and tables in memory: numbers repeated
//! names, and converts Arrow UUIDs to text, unions to structs and list views to lists.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use super::parquet::inexact_types::{ConversionMisfitKind, UUID_BYTES, convert_array};
use super::union_structs::union_struct_fields;
use crate::error::{Error, Result};
use crate::schema::column_layouts::number_repeated_names;

/// Metadata key of an Arrow field for the name of its extension type.
const EXTENSION_NAME_KEY: &str = "ARROW:extension:name";
const UUID_EXTENSION_NAME: &str = "arrow.uuid";

/// The conversion of a file's columns to the names and types that the source has.
#[derive(Debug, Clone)]
pub(super) struct ColumnConversion {
    stored_schema: SchemaRef,
    source_schema: SchemaRef,
    renaming_note: Option<String>,
}

impl ColumnConversion {
    /// Derives unique names and source types for the columns of `path`.
    pub(super) fn new(own: &SchemaRef, path: &str) -> Self {
        let mut names: Vec<String> = own.fields().iter().map(|it| it.name().clone()).collect();
        let note = rename_repeated_columns(&mut names, path);
        if note.is_none() && !own.fields().iter().any(needs_conversion) {
            return Self {
                stored_schema: Arc::clone(own),
                source_schema: Arc::clone(own),
                renaming_note: None,
            };
        }
        let fields = own.fields().iter().zip(names);
        let fields: Fields =
            fields.map(|(field, name)| with_name(&convert_field(field), name)).collect();
        let shown = Arc::new(Schema::new_with_metadata(fields, own.metadata().clone()));
        Self { stored_schema: Arc::clone(own), source_schema: shown, renaming_note: note }
    }

    /// Returns the columns with their names and types in the source.
    pub(super) fn source_schema(&self) -> &SchemaRef {
        &self.source_schema
    }

    /// Returns a message about renamed columns, if there are any.
    pub(super) fn renaming_note(&self) -> Option<&str> {
        self.renaming_note.as_deref()
    }

    /// Converts a batch that contains the file's columns at `places`.
    ///
    /// # Errors
    /// [`Error::Arrow`] if Arrow cannot build the batch.
    pub(super) fn convert_batch(
        &self,
        batch: RecordBatch,
        places: &[usize],
    ) -> Result<RecordBatch> {
        if Arc::ptr_eq(&self.stored_schema, &self.source_schema) {
            return Ok(batch);
        }
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (column, place) in batch.columns().iter().zip(places) {
            let Some(field) = self.source_schema.fields().get(*place) else {
                return Err(Error::Internal(format!("there is no column {place}")));
            };
            let column = convert_array(column, field.data_type(), true).map_err(|misfit| {
                match misfit.kind {
                    ConversionMisfitKind::Arrow(error) => Error::from(error),
                    other => Error::Internal(format!("column `{}`: {other:?}", field.name())),
                }
            })?;
            let field = field.as_ref().clone().with_data_type(column.data_type().clone());
            fields.push(Arc::new(field));
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }
}

/// Numbers repeated names. Returns a message about them if there are any.
pub(super) fn rename_repeated_columns(names: &mut [String], path: &str) -> Option<String> {
    let (own, name, more) = number_repeated_names(names)?;
    let more = if more > 0 { format!(", and so on {more} more") } else { String::new() };
    Some(format!("`{path}`: of columns of one name the second `{own}` is `{name}`{more}"))
}

/// Returns the field with another name.
pub(super) fn with_name(field: &FieldRef, name: String) -> FieldRef {
    match *field.name() == name {
        true => Arc::clone(field),
        false => Arc::new(field.as_ref().clone().with_name(name)),
    }
}

fn is_uuid_field(field: &Field) -> bool {
    field.data_type() == &DataType::FixedSizeBinary(UUID_BYTES)
        && field.metadata().get(EXTENSION_NAME_KEY).is_some_and(|name| name == UUID_EXTENSION_NAME)
}

/// Returns whether the source has another type for a field, or for a field within it.
fn needs_conversion(field: &FieldRef) -> bool {
    is_uuid_field(field)
        || match field.data_type() {
            DataType::Union(..) | DataType::ListView(_) | DataType::LargeListView(_) => true,
            DataType::Struct(fields) => fields.iter().any(needs_conversion),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => needs_conversion(item),
            _ => false,
        }
}

/// Returns the field with its source type: UUIDs become text, unions structs, and list views lists. Map keys
/// become `Utf8`, because SQL compares them with `Utf8` literals; other text becomes a view.
fn convert_field(field: &FieldRef) -> FieldRef {
    if !needs_conversion(field) {
        return Arc::clone(field);
    }
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(convert_field).collect()),
        DataType::Union(fields, _) => {
            DataType::Struct(union_struct_fields(fields).iter().map(convert_field).collect())
        }
        DataType::List(item) | DataType::ListView(item) => DataType::List(convert_field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(convert_field(item))
        }
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(convert_field(item), *size),
        DataType::Map(entries, sorted) => {
            let entries = match entries.data_type() {
                DataType::Struct(pair) => {
                    let pair = pair.iter().enumerate().map(|(at, field)| match at {
                        0 if is_uuid_field(field) => to_text_field(field, DataType::Utf8),
                        _ => convert_field(field),
                    });
                    let pair = DataType::Struct(pair.collect());
                    Arc::new(entries.as_ref().clone().with_data_type(pair))
                }
                _ => Arc::clone(entries),
            };
            DataType::Map(entries, *sorted)
        }
        _ => return to_text_field(field, DataType::Utf8View),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Returns the field as text, without its extension type.
fn to_text_field(field: &FieldRef, text: DataType) -> FieldRef {
    let mut metadata = field.metadata().clone();
    metadata.retain(|key, _| !key.starts_with("ARROW:extension:"));
    Arc::new(Field::new(field.name(), text, field.is_nullable()).with_metadata(metadata))
}
