//! Schemas of rows: names, types, and the information for schema evolution.
//!
//! A schema is written once, as JSON, in the header of a file. It describes values, not
//! Arrow layouts: `Utf8`, `LargeUtf8`, `Utf8View` and a dictionary of strings are all a
//! `string`. [`Schema::from_arrow`] and [`Schema::to_arrow`] convert between the two. Properties that Arrow
//! cannot express are stored in a field's metadata under the keys of [`metadata_keys`].

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, Fields, TimeUnit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};

/// Metadata keys of an Arrow field for properties that Arrow cannot express.
pub mod metadata_keys {
    /// Aliases of the field, as a JSON array of strings; see
    /// [`SchemaField::aliases`](super::SchemaField::aliases).
    pub const ALIASES: &str = "rowfile.aliases";
    /// The default value for files without the field, as JSON.
    pub const DEFAULT: &str = "rowfile.default";
    /// The description of the field.
    pub const DOC: &str = "rowfile.doc";
    /// The symbols of an enum, as a JSON array; the Arrow type is a dictionary of strings.
    pub const ENUM_SYMBOLS: &str = "rowfile.enum.symbols";
    /// The symbol that replaces symbols unknown to the reader.
    pub const ENUM_DEFAULT: &str = "rowfile.enum.default";
    /// The schema, as JSON, of the rows that a binary column holds; see
    /// [`Schema::rows_field`](super::Schema::rows_field).
    pub const ROW_SCHEMA: &str = "rowfile.rows";
}

/// Maximum nesting depth of types.
pub const NESTING_DEPTH_MAX: usize = 32;

/// The fields of a row.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The fields, in the order of their values.
    pub fields: Vec<SchemaField>,
}

/// A named value of a row, a struct, a list or a map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaField {
    /// The name; unique among its siblings.
    pub name: String,
    /// The type of the values.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// Allows nulls. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub nullable: bool,
    /// Other names of the field in the data, tried in order if the data has no field of its
    /// name. A name with dots is a path into structs: `input.user.id` promotes a nested field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The value if the data has no such field; `Some(Value::Null)` is the default null.
    /// Dates and times are integers in their unit, bytes a string of U+0000 to U+00FF,
    /// decimals a string.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The description of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
    /// Metadata that this crate does not use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Deserializes a default that is present, `null` included.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The type of a field's values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum FieldType {
    /// The type whose only value is null.
    Null,
    /// True or false.
    Boolean,
    /// A signed integer of 8 bits.
    Int8,
    /// A signed integer of 16 bits.
    Int16,
    /// A signed integer of 32 bits.
    Int32,
    /// A signed integer of 64 bits.
    Int64,
    /// An unsigned integer of 8 bits.
    Uint8,
    /// An unsigned integer of 16 bits.
    Uint16,
    /// An unsigned integer of 32 bits.
    Uint32,
    /// An unsigned integer of 64 bits.
    Uint64,
    /// An IEEE float of 16 bits.
    Float16,
    /// An IEEE float of 32 bits.
    Float32,
    /// An IEEE float of 64 bits.
    Float64,
    /// An integer of `bits` (32, 64, 128 or 256), times 10 to the power of −`scale`.
    Decimal {
        /// Bits of the integer.
        bits: u16,
        /// Maximum number of digits.
        precision: u8,
        /// Number of digits after the decimal point.
        scale: i8,
    },
    /// UTF-8 text.
    String,
    /// Bytes.
    Binary,
    /// A fixed number of bytes.
    Fixed(u32),
    /// Days since 1970-01-01, 32 bits.
    Date,
    /// Milliseconds since 1970-01-01 that are whole days, 64 bits.
    Date64,
    /// Time of day; 32 bits for `s` and `ms`, 64 for `us` and `ns`.
    Time(TemporalUnit),
    /// Time since 1970-01-01T00:00:00, in UTC if there is a time zone, 64 bits.
    Timestamp {
        /// The unit of the integer.
        unit: TemporalUnit,
        /// The time zone for display; without one it is a local time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
    },
    /// A duration, 64 bits.
    Duration(TemporalUnit),
    /// One of a list of symbols.
    Enum {
        /// The symbols, without duplicates.
        symbols: Vec<String>,
        /// The symbol by which a reader with this schema replaces unknown symbols.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<String>,
    },
    /// A list of any number of items.
    List(Box<SchemaField>),
    /// A map of any number of pairs.
    Map {
        /// The key; never null.
        key: Box<SchemaField>,
        /// The value.
        value: Box<SchemaField>,
        /// True if the pairs of each map are in the order of their keys.
        #[serde(default, skip_serializing_if = "is_false")]
        sorted: bool,
    },
    /// A struct of fields.
    Struct(Vec<SchemaField>),
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TemporalUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Second,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millisecond,
    /// Microseconds.
    #[serde(rename = "us")]
    Microsecond,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanosecond,
}

impl TemporalUnit {
    pub(crate) fn units_per_second(self) -> i64 {
        match self {
            Self::Second => 1,
            Self::Millisecond => 1_000,
            Self::Microsecond => 1_000_000,
            Self::Nanosecond => 1_000_000_000,
        }
    }
}

impl From<TimeUnit> for TemporalUnit {
    fn from(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::Second => Self::Second,
            TimeUnit::Millisecond => Self::Millisecond,
            TimeUnit::Microsecond => Self::Microsecond,
            TimeUnit::Nanosecond => Self::Nanosecond,
        }
    }
}

impl From<TemporalUnit> for TimeUnit {
    fn from(unit: TemporalUnit) -> Self {
        match unit {
            TemporalUnit::Second => Self::Second,
            TemporalUnit::Millisecond => Self::Millisecond,
            TemporalUnit::Microsecond => Self::Microsecond,
            TemporalUnit::Nanosecond => Self::Nanosecond,
        }
    }
}

impl std::fmt::Display for FieldType {
    /// Formats as in the JSON of a schema, without nested types.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = |unit: &TemporalUnit| match unit {
            TemporalUnit::Second => "s",
            TemporalUnit::Millisecond => "ms",
            TemporalUnit::Microsecond => "us",
            TemporalUnit::Nanosecond => "ns",
        };
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean => f.write_str("boolean"),
            Self::Int8 => f.write_str("int8"),
            Self::Int16 => f.write_str("int16"),
            Self::Int32 => f.write_str("int32"),
            Self::Int64 => f.write_str("int64"),
            Self::Uint8 => f.write_str("uint8"),
            Self::Uint16 => f.write_str("uint16"),
            Self::Uint32 => f.write_str("uint32"),
            Self::Uint64 => f.write_str("uint64"),
            Self::Float16 => f.write_str("float16"),
            Self::Float32 => f.write_str("float32"),
            Self::Float64 => f.write_str("float64"),
            Self::Decimal { precision, scale, .. } => write!(f, "decimal({precision}, {scale})"),
            Self::String => f.write_str("string"),
            Self::Binary => f.write_str("binary"),
            Self::Fixed(size) => write!(f, "fixed({size})"),
            Self::Date => f.write_str("date"),
            Self::Date64 => f.write_str("date64"),
            Self::Time(of) => write!(f, "time({})", unit(of)),
            Self::Timestamp { unit: of, zone: None } => write!(f, "timestamp({})", unit(of)),
            Self::Timestamp { unit: of, zone: Some(zone) } => {
                write!(f, "timestamp({}, {zone})", unit(of))
            }
            Self::Duration(of) => write!(f, "duration({})", unit(of)),
            Self::Enum { .. } => f.write_str("enum"),
            Self::List(_) => f.write_str("list"),
            Self::Map { .. } => f.write_str("map"),
            Self::Struct(_) => f.write_str("struct"),
        }
    }
}

/// The Arrow layout into which strings and binary values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StringLayout {
    /// `Utf8View` and `BinaryView`.
    #[default]
    View,
    /// `Utf8` and `Binary`: less than 2 GiB per batch.
    Small,
    /// `LargeUtf8` and `LargeBinary`.
    Large,
}

impl Schema {
    /// Parses a schema from JSON.
    ///
    /// ```
    /// # use tidemill_rowfile::Schema;
    /// let schema = Schema::parse(
    ///     r#"{"fields": [
    ///         {"name": "ts", "type": {"timestamp": {"unit": "us", "zone": "UTC"}}},
    ///         {"name": "tags", "type": {"list": {"name": "item", "type": "string"}}, "nullable": true}
    ///     ]}"#,
    /// )?;
    /// assert_eq!(schema.fields[1].name, "tags");
    /// # Ok::<(), tidemill_rowfile::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is not the JSON of a schema, or [`validate`](Self::validate) refuses it.
    pub fn parse(json: &str) -> Result<Self> {
        let schema: Self = serde_json::from_str(json).map_err(|error| Error::InvalidSchema {
            column: String::new(),
            reason: error.to_string(),
        })?;
        schema.validate()?;
        Ok(schema)
    }

    /// Returns the schema as JSON, in one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Checks that the schema is valid.
    ///
    /// # Errors
    /// If siblings share a name, an enum has a duplicate symbol or none, its default is not one of its
    /// symbols, a map's key is nullable, a decimal has more digits than its bits allow, a fixed size is 0, or
    /// types are nested deeper than [`NESTING_DEPTH_MAX`].
    pub fn validate(&self) -> Result<()> {
        check_fields(&self.fields, "", 0)
    }

    /// Converts an Arrow schema.
    ///
    /// # Errors
    /// If a rowfile cannot store a type (intervals, unions), or [`validate`](Self::validate) refuses
    /// the result.
    pub fn from_arrow(schema: &arrow_schema::Schema) -> Result<Self> {
        let fields = from_arrow_fields(schema.fields(), "")?;
        let schema = Self { fields };
        schema.validate()?;
        Ok(schema)
    }

    /// Returns the Arrow schema that the data is read into.
    #[must_use]
    pub fn to_arrow(&self, strings: StringLayout) -> arrow_schema::Schema {
        arrow_schema::Schema::new(to_arrow_fields(&self.fields, strings))
    }

    /// Returns the top-level field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&SchemaField> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns the schema with the fields of the struct `column` in its place, each with an alias for its
    /// path in the struct: a reader's schema for files of both shapes. If the struct is nullable,
    /// so are the promoted fields.
    ///
    /// # Errors
    /// If there is no such column, it is not a struct, or one of its fields has the name of another column.
    pub fn promote_struct(&self, column: &str) -> Result<Self> {
        let wrong = |reason: String| Error::InvalidSchema { column: column.into(), reason };
        let field = self.field(column).ok_or_else(|| unknown_column_error(column, &self.fields))?;
        let FieldType::Struct(inner) = &field.kind else {
            return Err(wrong(format!("only a struct can be promoted, this is {}", field.kind)));
        };
        let mut fields = Vec::with_capacity(self.fields.len() + inner.len());
        for outer in &self.fields {
            if outer.name != column {
                fields.push(outer.clone());
                continue;
            }
            for nested in inner {
                let mut promoted = nested.clone();
                promoted.nullable |= field.nullable;
                let paths = std::iter::once(&field.name).chain(&field.aliases).flat_map(|outer| {
                    std::iter::once(&nested.name)
                        .chain(&nested.aliases)
                        .map(move |name| format!("{outer}.{name}"))
                });
                promoted.aliases = nested.aliases.iter().cloned().chain(paths).collect();
                fields.push(promoted);
            }
        }
        let schema = Self { fields };
        schema.validate().map_err(|error| match error {
            Error::InvalidSchema { column: name, reason } => {
                wrong(format!("its field `{name}` cannot stand beside it: {reason}"))
            }
            other => other,
        })?;
        Ok(schema)
    }
}

/// Returns the error for a column that does not exist.
pub(crate) fn unknown_column_error(column: &str, fields: &[SchemaField]) -> Error {
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let near = names
        .iter()
        .filter(|name| name.eq_ignore_ascii_case(column))
        .chain(names.iter().filter(|name| {
            let (long, short) =
                if name.len() > column.len() { (**name, column) } else { (column, **name) };
            short.len() > 2 && long.starts_with(short)
        }))
        .next();
    let hint = near.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    Error::UnknownColumn { column: column.into(), hint, columns: names.join(", ") }
}

/// Returns the path of a field.
pub(crate) fn field_path(outer: &str, name: &str) -> String {
    if outer.is_empty() { name.into() } else { format!("{outer}.{name}") }
}

fn check_fields(fields: &[SchemaField], outer: &str, depth: usize) -> Result<()> {
    let mut names = std::collections::HashSet::new();
    for field in fields {
        if !names.insert(field.name.as_str()) {
            let column = field_path(outer, &field.name);
            return Err(Error::InvalidSchema {
                column,
                reason: "there are two of this name".into(),
            });
        }
        check_field(field, outer, depth)?;
    }
    Ok(())
}

fn check_field(field: &SchemaField, outer: &str, depth: usize) -> Result<()> {
    let column = field_path(outer, &field.name);
    let wrong = |reason: String| Err(Error::InvalidSchema { column: column.clone(), reason });
    if depth >= NESTING_DEPTH_MAX {
        return wrong(format!("types are nested deeper than {NESTING_DEPTH_MAX}"));
    }
    match &field.kind {
        FieldType::Null if !field.nullable => {
            return wrong("a null column must be nullable".into());
        }
        FieldType::Decimal { bits, precision, scale } => {
            let digits = match bits {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => return wrong(format!("a decimal has 32, 64, 128 or 256 bits, not {bits}")),
            };
            if *precision == 0 || *precision > digits {
                return wrong(format!(
                    "a decimal of {bits} bits has 1 to {digits} digits, not {precision}"
                ));
            }
            if *scale > 0 && scale.unsigned_abs() > *precision {
                return wrong(format!(
                    "{scale} digits behind the point are more than {precision} in all"
                ));
            }
        }
        FieldType::Fixed(size) if *size == 0 || *size > i32::MAX as u32 => {
            return wrong(format!("values of {size} bytes each cannot be"));
        }
        FieldType::Enum { symbols, default } => {
            if symbols.is_empty() || symbols.len() > i32::MAX as usize {
                return wrong("an enum needs a symbol".into());
            }
            let mut seen = std::collections::HashSet::new();
            if let Some(symbol) = symbols.iter().find(|symbol| !seen.insert(symbol.as_str())) {
                return wrong(format!("the enum has `{symbol}` twice"));
            }
            if let Some(default) = default
                && !symbols.contains(default)
            {
                return wrong(format!(
                    "the enum's default `{default}` is none of its symbols: {}",
                    symbols.join(", ")
                ));
            }
        }
        FieldType::List(item) => check_field(item, &column, depth + 1)?,
        FieldType::Map { key, value, .. } => {
            if key.nullable {
                return wrong("the key of a map is never null".into());
            }
            if key.name == value.name {
                return wrong("the key and the value of a map have different names".into());
            }
            check_field(key, &column, depth + 1)?;
            check_field(value, &column, depth + 1)?;
        }
        FieldType::Struct(fields) => check_fields(fields, &column, depth + 1)?,
        _ => {}
    }
    Ok(())
}

fn from_arrow_fields(fields: &Fields, outer: &str) -> Result<Vec<SchemaField>> {
    fields.iter().map(|field| from_arrow_field(field, outer)).collect()
}

fn from_arrow_field(field: &FieldRef, outer: &str) -> Result<SchemaField> {
    let column = field_path(outer, field.name());
    let mut metadata: BTreeMap<String, String> =
        field.metadata().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut json = |key: &str| -> Result<Option<Value>> {
        let Some(text) = metadata.remove(key) else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|error| Error::InvalidSchema {
            column: column.clone(),
            reason: format!("`{key}` is not JSON: {error}"),
        })
    };
    let names = |key: &str, value: Option<Value>| -> Result<Vec<String>> {
        let Some(value) = value else { return Ok(Vec::new()) };
        serde_json::from_value(value).map_err(|_| Error::InvalidSchema {
            column: column.clone(),
            reason: format!("`{key}` is not a JSON array of strings"),
        })
    };
    let aliases = names(metadata_keys::ALIASES, json(metadata_keys::ALIASES)?)?;
    let symbols = json(metadata_keys::ENUM_SYMBOLS)?;
    let default = json(metadata_keys::DEFAULT)?;
    let doc = metadata.remove(metadata_keys::DOC);
    let symbol_default = metadata.remove(metadata_keys::ENUM_DEFAULT);
    let kind = match (field.data_type(), symbols) {
        (DataType::Dictionary(_, values), Some(symbols)) if is_string_type(values) => {
            FieldType::Enum {
                symbols: names(metadata_keys::ENUM_SYMBOLS, Some(symbols))?,
                default: symbol_default,
            }
        }
        (data_type, _) => from_arrow_type(data_type, &column)?,
    };
    let nullable = field.is_nullable() || kind == FieldType::Null;
    Ok(SchemaField { name: field.name().clone(), kind, nullable, aliases, default, doc, metadata })
}

pub(crate) fn is_string_type(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn from_arrow_type(data_type: &DataType, column: &str) -> Result<FieldType> {
    let item = |field: &FieldRef| from_arrow_field(field, column).map(Box::new);
    Ok(match data_type {
        DataType::Null => FieldType::Null,
        DataType::Boolean => FieldType::Boolean,
        DataType::Int8 => FieldType::Int8,
        DataType::Int16 => FieldType::Int16,
        DataType::Int32 => FieldType::Int32,
        DataType::Int64 => FieldType::Int64,
        DataType::UInt8 => FieldType::Uint8,
        DataType::UInt16 => FieldType::Uint16,
        DataType::UInt32 => FieldType::Uint32,
        DataType::UInt64 => FieldType::Uint64,
        DataType::Float16 => FieldType::Float16,
        DataType::Float32 => FieldType::Float32,
        DataType::Float64 => FieldType::Float64,
        DataType::Decimal32(precision, scale) => {
            FieldType::Decimal { bits: 32, precision: *precision, scale: *scale }
        }
        DataType::Decimal64(precision, scale) => {
            FieldType::Decimal { bits: 64, precision: *precision, scale: *scale }
        }
        DataType::Decimal128(precision, scale) => {
            FieldType::Decimal { bits: 128, precision: *precision, scale: *scale }
        }
        DataType::Decimal256(precision, scale) => {
            FieldType::Decimal { bits: 256, precision: *precision, scale: *scale }
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => FieldType::String,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => FieldType::Binary,
        DataType::FixedSizeBinary(size) if *size >= 0 => FieldType::Fixed(size.unsigned_abs()),
        DataType::Date32 => FieldType::Date,
        DataType::Date64 => FieldType::Date64,
        DataType::Time32(unit) | DataType::Time64(unit) => FieldType::Time((*unit).into()),
        DataType::Timestamp(unit, zone) => FieldType::Timestamp {
            unit: (*unit).into(),
            zone: zone.as_ref().map(ToString::to_string),
        },
        DataType::Duration(unit) => FieldType::Duration((*unit).into()),
        DataType::List(field) | DataType::LargeList(field) => FieldType::List(item(field)?),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                let (key, value) = (item(&pair[0])?, item(&pair[1])?);
                FieldType::Map { key, value, sorted: *sorted }
            }
            _ => {
                return Err(Error::UnsupportedType {
                    column: column.into(),
                    found: data_type.clone(),
                });
            }
        },
        DataType::Struct(fields) => FieldType::Struct(from_arrow_fields(fields, column)?),
        // A dictionary without symbols is only an encoding of its values.
        DataType::Dictionary(_, values) => from_arrow_type(values, column)?,
        other => {
            return Err(Error::UnsupportedType { column: column.into(), found: other.clone() });
        }
    })
}

fn to_arrow_fields(fields: &[SchemaField], strings: StringLayout) -> Fields {
    fields.iter().map(|field| to_arrow_field(field, strings)).collect()
}

/// Returns the Arrow field that a field's values are read into.
pub(crate) fn to_arrow_field(field: &SchemaField, strings: StringLayout) -> FieldRef {
    let mut metadata: std::collections::HashMap<String, String> =
        field.metadata.clone().into_iter().collect();
    let names = |names: &[String]| Value::from(names.to_vec()).to_string();
    if !field.aliases.is_empty() {
        metadata.insert(metadata_keys::ALIASES.into(), names(&field.aliases));
    }
    if let Some(default) = &field.default {
        metadata.insert(metadata_keys::DEFAULT.into(), default.to_string());
    }
    if let Some(doc) = &field.doc {
        metadata.insert(metadata_keys::DOC.into(), doc.clone());
    }
    if let FieldType::Enum { symbols, default } = &field.kind {
        metadata.insert(metadata_keys::ENUM_SYMBOLS.into(), names(symbols));
        if let Some(default) = default {
            metadata.insert(metadata_keys::ENUM_DEFAULT.into(), default.clone());
        }
    }
    let data_type = to_arrow_type(&field.kind, strings);
    let arrow = arrow_schema::Field::new(&field.name, data_type, field.nullable);
    Arc::new(arrow.with_metadata(metadata))
}

fn to_arrow_type(kind: &FieldType, strings: StringLayout) -> DataType {
    match kind {
        FieldType::Null => DataType::Null,
        FieldType::Boolean => DataType::Boolean,
        FieldType::Int8 => DataType::Int8,
        FieldType::Int16 => DataType::Int16,
        FieldType::Int32 => DataType::Int32,
        FieldType::Int64 => DataType::Int64,
        FieldType::Uint8 => DataType::UInt8,
        FieldType::Uint16 => DataType::UInt16,
        FieldType::Uint32 => DataType::UInt32,
        FieldType::Uint64 => DataType::UInt64,
        FieldType::Float16 => DataType::Float16,
        FieldType::Float32 => DataType::Float32,
        FieldType::Float64 => DataType::Float64,
        FieldType::Decimal { bits: 32, precision, scale } => {
            DataType::Decimal32(*precision, *scale)
        }
        FieldType::Decimal { bits: 64, precision, scale } => {
            DataType::Decimal64(*precision, *scale)
        }
        FieldType::Decimal { bits: 128, precision, scale } => {
            DataType::Decimal128(*precision, *scale)
        }
        FieldType::Decimal { precision, scale, .. } => DataType::Decimal256(*precision, *scale),
        FieldType::String => match strings {
            StringLayout::View => DataType::Utf8View,
            StringLayout::Small => DataType::Utf8,
            StringLayout::Large => DataType::LargeUtf8,
        },
        FieldType::Binary => match strings {
            StringLayout::View => DataType::BinaryView,
            StringLayout::Small => DataType::Binary,
            StringLayout::Large => DataType::LargeBinary,
        },
        FieldType::Fixed(size) => {
            DataType::FixedSizeBinary(i32::try_from(*size).unwrap_or(i32::MAX))
        }
        FieldType::Date => DataType::Date32,
        FieldType::Date64 => DataType::Date64,
        FieldType::Time(unit @ (TemporalUnit::Second | TemporalUnit::Millisecond)) => {
            DataType::Time32((*unit).into())
        }
        FieldType::Time(unit) => DataType::Time64((*unit).into()),
        FieldType::Timestamp { unit, zone } => {
            DataType::Timestamp((*unit).into(), zone.as_deref().map(Into::into))
        }
        FieldType::Duration(unit) => DataType::Duration((*unit).into()),
        FieldType::Enum { .. } => {
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
        }
        FieldType::List(item) => DataType::List(to_arrow_field(item, strings)),
        FieldType::Map { key, value, sorted } => {
            let pair: Fields = [to_arrow_field(key, strings), to_arrow_field(value, strings)]
                .into_iter()
                .collect();
            let entries = arrow_schema::Field::new("entries", DataType::Struct(pair), false);
            DataType::Map(Arc::new(entries), *sorted)
        }
        FieldType::Struct(fields) => DataType::Struct(to_arrow_fields(fields, strings)),
    }
}
