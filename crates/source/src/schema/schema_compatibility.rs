//! Compatibility of schemas: can a reader with one schema read data of another?

use arrow::datatypes::{Decimal256Type, DecimalType, i256};
use serde_json::Value;
use tidemill_avro as avro;
use tidemill_rowfile::{self as rowfile, SchemaConflict};

use crate::error::{Error, Result};
use crate::files::rowfile_salvage::open_rowfile_per_read;
use crate::formats;
use crate::{Format, Source, SourceSpec};

/// Suffix of a file that holds a rowfile's schema as JSON (`docs/formats/rowfile.md`).
const ROWFILE_SCHEMA_SUFFIX: &str = ".schema.json";
/// Suffix of a file that holds an Avro schema as JSON.
const AVRO_SCHEMA_SUFFIX: &str = ".avsc";

/// Returns the schema of a rowfile, of data in another format, or of a schema file. For Avro it is the
/// declared schema with aliases and defaults, not the types that its columns are read as.
///
/// # Errors
/// As [`Source::open`]; [`Error::Usage`] for a schema that a rowfile cannot have.
pub fn read_schema(spec: &SourceSpec) -> Result<rowfile::Schema> {
    let refused = |error: rowfile::Error| {
        Error::usage_with_hint(
            format!("`{}`: {error}", spec.url),
            "the schema of a rowfile is described in docs/formats/rowfile.md",
        )
    };
    if spec.url.ends_with(ROWFILE_SCHEMA_SUFFIX) && spec.format.is_none() {
        let text = std::fs::read_to_string(&spec.url)
            .map_err(|error| Error::from_io("read", &spec.url, error))?;
        return rowfile::Schema::parse(&text).map_err(refused);
    }
    if spec.url.ends_with(AVRO_SCHEMA_SUFFIX) && spec.format.is_none() {
        let json =
            std::fs::read(&spec.url).map_err(|error| Error::from_io("read", &spec.url, error))?;
        let schema = avro::Schema::parse(&json).map_err(|error| {
            Error::usage_with_hint(
                format!("`{}` is no schema of Avro's that a table can have: {error}", spec.url),
                "an .avsc file has the JSON of one record, as `avro.schema` of a data file has it",
            )
        })?;
        return rowfile_schema_from_avro(&schema.declared_schema()).map_err(refused);
    }
    let source = Source::open(spec)?;
    if let Some(refusal) =
        (0..source.schema().fields().len()).find_map(|at| source.column_error(at))
    {
        return Err(refusal);
    }
    // The unified columns of several files are the schema that reads all of them.
    let is_one = source.layout_count() <= 1
        && source.files().iter().all(|file| file.partition_keys.is_empty());
    if let (true, Some(file)) = (is_one, source.files().first()) {
        if source.format() == Format::Rowfile {
            return Ok(open_rowfile_per_read(file)?.schema().clone());
        }
        if let Some(header) = formats::avro::avro_header(file) {
            return rowfile_schema_from_avro(&header.declared_schema()).map_err(refused);
        }
        if let Some(known) = file.metadata() {
            return rowfile::Schema::from_arrow(known.schema()).map_err(refused);
        }
    }
    rowfile::Schema::from_arrow(source.schema()).map_err(refused)
}

/// Converts a schema that Avro's JSON declares.
fn rowfile_schema_from_avro(
    declared: &arrow::datatypes::Schema,
) -> rowfile::Result<rowfile::Schema> {
    let mut schema = rowfile::Schema::from_arrow(declared)?;
    schema.fields.iter_mut().for_each(apply_avro_metadata);
    schema.validate()?;
    Ok(schema)
}

/// Applies the Avro attributes of a field and its nested fields: documentation, aliases and default.
fn apply_avro_metadata(field: &mut rowfile::SchemaField) {
    let mut said = |key| field.metadata.remove(key);
    let json = |text: Option<String>| serde_json::from_str::<Value>(&text?).ok();
    let (aliases, default) =
        (json(said(avro::metadata_keys::ALIASES)), json(said(avro::metadata_keys::DEFAULT)));
    field.doc = said(avro::metadata_keys::DOC);
    if let Some(Value::Array(aliases)) = aliases {
        field.aliases = aliases.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    field.default = default.map(|default| match (&field.kind, &default) {
        (rowfile::FieldType::Decimal { scale, .. }, Value::String(bytes)) => {
            format_avro_decimal(bytes, *scale).map_or(default, Value::String)
        }
        _ => default,
    });
    match &mut field.kind {
        rowfile::FieldType::Struct(fields) => fields.iter_mut().for_each(apply_avro_metadata),
        rowfile::FieldType::List(item) => apply_avro_metadata(item),
        rowfile::FieldType::Map { value, .. } => apply_avro_metadata(value),
        _ => {}
    }
}

/// Formats a decimal default, which Avro writes as characters that stand for the bytes of an integer.
fn format_avro_decimal(characters: &str, scale: i8) -> Option<String> {
    let bytes = characters.chars().map(|one| u8::try_from(u32::from(one)).ok());
    let bytes = bytes.collect::<Option<Vec<u8>>>()?;
    let first = *bytes.first()?;
    let mut whole = [if first >= 0x80 { 0xff } else { 0 }; 32];
    let start = whole.len().checked_sub(bytes.len())?;
    whole.get_mut(start..)?.copy_from_slice(&bytes);
    let integer = i256::from_be_bytes(whole);
    Some(Decimal256Type::format_decimal(integer, Decimal256Type::MAX_PRECISION, scale))
}

/// Returns every reason why a reader with the schema of `new` cannot read data of `old`; empty if it can.
///
/// # Errors
/// As [`read_schema`].
pub fn find_schema_conflicts(old: &SourceSpec, new: &SourceSpec) -> Result<Vec<SchemaConflict>> {
    let (written, read) = (read_schema(old)?, read_schema(new)?);
    match read.check_can_read(&written) {
        Ok(()) => Ok(Vec::new()),
        Err(rowfile::Error::IncompatibleSchemas(conflicts)) => Ok(conflicts.0),
        Err(other) => Err(Error::usage(format!("`{}`: {other}", new.url))),
    }
}
