//! Parser from a schema's JSON to the columns of a table.
//!
//! | Avro | Arrow |
//! | --- | --- |
//! | `null`, `boolean`, `int`, `long`, `float`, `double` | the same |
//! | `string`, `uuid`, `enum` | text, as views |
//! | `bytes`, `fixed` | bytes: views, or of fixed length |
//! | `decimal` of up to 76 digits | a decimal of 128 or 256 bits |
//! | `date`, `time-…`, `timestamp-…`, `local-timestamp-…` | the same; with a zone: UTC |
//! | `duration` | an interval of months, days and nanoseconds |
//! | `array`, `map`, `record` | a list, a map, a struct |
//! | a union of one type and `null` | the type, nullable |
//! | another union | a struct with a nullable field for each of its types, named by it |
//!
//! The parser ignores a logical type that is unknown, or does not fit its base type, as Avro demands. It
//! refuses a record that contains itself, because no finite columns represent it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Metadata keys of the columns of [`Schema::declared_schema`].
pub mod metadata_keys {
    /// Aliases of the field, as a JSON array of strings.
    pub const ALIASES: &str = "avro.aliases";
    /// Default of the field, in the schema's JSON.
    pub const DEFAULT: &str = "avro.default";
    /// Documentation of the field.
    pub const DOC: &str = "avro.doc";
}

/// Maximum nesting depth of types.
const NESTING_DEPTH_MAX: usize = 64;
/// Maximum number of types, with each reference counted as the type it stands for.
const TYPES_MAX: usize = 100_000;
/// Maximum length of a fixed type that becomes bytes of fixed length. A null of a longer one then takes no
/// room.
const FIXED_BYTES_MAX: usize = 64;

/// The schema of a file.
#[derive(Debug, Clone)]
pub struct Schema {
    pub(crate) named_types: Vec<NamedType>,
    arrow: arrow_schema::SchemaRef,
}

/// A named type: a column or a field.
#[derive(Debug, Clone)]
pub(crate) struct NamedType {
    pub(crate) name: String,
    pub(crate) avro_type: AvroType,
    /// Further declarations of the schema, under [`metadata_keys`].
    metadata: FieldMetadata,
}

type FieldMetadata = HashMap<String, String>;

/// An Avro type with the Arrow type that it becomes.
#[derive(Debug, Clone)]
pub(crate) enum AvroType {
    Null,
    Boolean,
    /// An int that becomes this type of 32 bits.
    Int(DataType),
    /// A long that becomes this type of 64 bits.
    Long(DataType),
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    /// Sixteen bytes that become text.
    Uuid,
    Duration,
    Decimal {
        precision: u8,
        scale: i8,
        /// Size of a fixed type; `None` for bytes.
        size: Option<usize>,
    },
    Enum(Arc<[String]>),
    Array(Box<AvroType>),
    Map(Box<AvroType>),
    Record(Vec<NamedType>),
    /// A union of one type and null; true if null is the first.
    Nullable(Box<AvroType>, bool),
    /// Any other union, with its branches; null has no field.
    Union(Vec<NamedType>),
}

impl Schema {
    /// Parses a schema's JSON.
    ///
    /// # Errors
    /// The fault of the schema, in words; [`Error::UnsupportedSchema`] if no table can have it.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let json: Value = serde_json::from_slice(json).map_err(|error| {
            let reason = format!("its schema is not JSON ({error})");
            Error::DamagedFile { offset: 0, reason }
        })?;
        let mut parser = SchemaParser::default();
        parser.collect_definitions(&json, "", 0)?;
        let root = parser.resolve_type(&json, "", 0)?;
        let fields = match root {
            AvroType::Record(fields) => fields,
            // Rows that consist of one value each.
            kind => vec![NamedType {
                name: "value".into(),
                avro_type: kind,
                metadata: FieldMetadata::new(),
            }],
        };
        let columns: Vec<FieldRef> =
            fields.iter().map(|field| arrow_field(&field.name, &field.avro_type)).collect();
        Ok(Self { named_types: fields, arrow: Arc::new(arrow_schema::Schema::new(columns)) })
    }

    /// Returns the columns.
    pub fn arrow_schema(&self) -> &arrow_schema::SchemaRef {
        &self.arrow
    }

    /// Returns the columns as the schema declares them, for comparing schemas and not for reading: a nested
    /// field is nullable only if the schema declares it, and further declarations
    /// are in the field's metadata, under [`metadata_keys`]. A default of a union of several types is left
    /// out.
    pub fn declared_schema(&self) -> arrow_schema::Schema {
        arrow_schema::Schema::new(self.named_types.iter().map(declared_field).collect::<Fields>())
    }
}

/// Returns a field as its schema declares it.
fn declared_field(field: &NamedType) -> FieldRef {
    let said = field.metadata.clone();
    Arc::new(declared_field_of(&field.name, &field.avro_type).with_metadata(said))
}

fn declared_field_of(name: &str, kind: &AvroType) -> Field {
    let is_nullable = matches!(kind, AvroType::Null | AvroType::Nullable(..) | AvroType::Union(_));
    Field::new(name, kind.declared_type(), is_nullable)
}

/// Returns the Arrow field of a type.
pub(crate) fn arrow_field(name: &str, kind: &AvroType) -> FieldRef {
    let nullable = matches!(kind, AvroType::Null | AvroType::Nullable(..) | AvroType::Union(_));
    Arc::new(Field::new(name, kind.arrow_type(), nullable))
}

impl AvroType {
    /// Returns the Arrow type of the column.
    pub(crate) fn arrow_type(&self) -> DataType {
        match self {
            AvroType::Null => DataType::Null,
            AvroType::Boolean => DataType::Boolean,
            AvroType::Int(data_type) | AvroType::Long(data_type) => data_type.clone(),
            AvroType::Float => DataType::Float32,
            AvroType::Double => DataType::Float64,
            AvroType::Bytes => DataType::BinaryView,
            AvroType::String | AvroType::Uuid | AvroType::Enum(_) => DataType::Utf8View,
            AvroType::Fixed(size) => match i32::try_from(*size) {
                Ok(bytes) if *size <= FIXED_BYTES_MAX => DataType::FixedSizeBinary(bytes),
                _ => DataType::BinaryView,
            },
            AvroType::Duration => DataType::Interval(IntervalUnit::MonthDayNano),
            AvroType::Decimal { precision: precision @ ..=38, scale, .. } => {
                DataType::Decimal128(*precision, *scale)
            }
            AvroType::Decimal { precision, scale, .. } => DataType::Decimal256(*precision, *scale),
            AvroType::Array(item) => DataType::List(list_item_field(item)),
            AvroType::Map(value) => DataType::Map(map_entries_field(value), false),
            AvroType::Record(fields) => DataType::Struct(struct_fields(fields)),
            AvroType::Nullable(kind, _) => kind.arrow_type(),
            AvroType::Union(branches) => DataType::Struct(union_fields(branches)),
        }
    }

    /// Returns the Arrow type with nested fields as the schema declares them.
    fn declared_type(&self) -> DataType {
        match self {
            AvroType::Array(item) => DataType::List(Arc::new(declared_field_of("item", item))),
            AvroType::Map(value) => {
                let pair = vec![
                    Field::new("keys", DataType::Utf8, false),
                    declared_field_of("values", value),
                ];
                let entries = Field::new("entries", DataType::Struct(pair.into()), false);
                DataType::Map(Arc::new(entries), false)
            }
            AvroType::Record(fields) => {
                DataType::Struct(fields.iter().map(declared_field).collect())
            }
            AvroType::Nullable(kind, _) => kind.declared_type(),
            // All branches but one are null in each value.
            AvroType::Union(branches) => {
                let named = branches.iter().filter(|one| !matches!(one.avro_type, AvroType::Null));
                let fields = named
                    .map(|one| declared_field_of(&one.name, &one.avro_type).with_nullable(true));
                DataType::Struct(fields.collect())
            }
            other => other.arrow_type(),
        }
    }

    /// Returns the minimum length of a value in a file, in bytes.
    pub(crate) fn encoded_bytes_min(&self) -> usize {
        match self {
            AvroType::Null => 0,
            AvroType::Float => 4,
            AvroType::Double => 8,
            AvroType::Fixed(size) | AvroType::Decimal { size: Some(size), .. } => *size,
            AvroType::Uuid => 16,
            AvroType::Duration => 12,
            AvroType::Record(fields) => fields
                .iter()
                .fold(0, |sum, field| sum.saturating_add(field.avro_type.encoded_bytes_min())),
            _ => 1,
        }
    }
}

pub(crate) fn list_item_field(item: &AvroType) -> FieldRef {
    Arc::new(Field::new("item", item.arrow_type(), true))
}

pub(crate) fn map_entries_field(value: &AvroType) -> FieldRef {
    let key = Field::new("keys", DataType::Utf8, false);
    let value = Field::new("values", value.arrow_type(), true);
    Arc::new(Field::new("entries", DataType::Struct(vec![key, value].into()), false))
}

pub(crate) fn struct_fields(fields: &[NamedType]) -> Fields {
    // The fields of a null record are null.
    fields.iter().map(|field| Field::new(&field.name, field.avro_type.arrow_type(), true)).collect()
}

pub(crate) fn union_fields(branches: &[NamedType]) -> Fields {
    let named = branches.iter().filter(|branch| !matches!(branch.avro_type, AvroType::Null));
    named.map(|branch| Field::new(&branch.name, branch.avro_type.arrow_type(), true)).collect()
}

/// A parser that collects named types and resolves the types of the schema.
#[derive(Default)]
struct SchemaParser<'a> {
    /// Definitions by full name, each with the namespace around it.
    definitions: HashMap<String, (&'a Map<String, Value>, String)>,
    /// Names of the types being resolved, outermost first.
    open_types: Vec<String>,
    type_count: usize,
}

const PRIMITIVES: [&str; 8] =
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

impl<'a> SchemaParser<'a> {
    /// Collects definitions, wherever they are.
    fn collect_definitions(
        &mut self,
        json: &'a Value,
        namespace: &str,
        depth: usize,
    ) -> Result<()> {
        if depth > 4 * NESTING_DEPTH_MAX {
            return Err(nesting_error());
        }
        match json {
            Value::Array(branches) => branches
                .iter()
                .try_for_each(|branch| self.collect_definitions(branch, namespace, depth + 1)),
            Value::Object(object) => {
                let mut inner = namespace.to_owned();
                if let Some(Value::String(kind)) = object.get("type")
                    && matches!(kind.as_str(), "record" | "error" | "enum" | "fixed")
                {
                    let (name, own) = full_name(object, namespace)?;
                    inner = own;
                    let definition = (object, namespace.to_owned());
                    if self.definitions.insert(name.clone(), definition).is_some() {
                        return Err(schema_error(format!("its schema defines `{name}` twice")));
                    }
                }
                if let Some(Value::Array(fields)) = object.get("fields") {
                    for field in fields {
                        if let Some(kind) = field.get("type") {
                            self.collect_definitions(kind, &inner, depth + 1)?;
                        }
                    }
                }
                for key in ["type", "items", "values"] {
                    if let Some(kind @ (Value::Object(_) | Value::Array(_))) = object.get(key) {
                        self.collect_definitions(kind, &inner, depth + 1)?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn resolve_type(&mut self, json: &'a Value, namespace: &str, depth: usize) -> Result<AvroType> {
        self.type_count += 1;
        if depth > NESTING_DEPTH_MAX {
            return Err(nesting_error());
        }
        if self.type_count > TYPES_MAX {
            return Err(Error::UnsupportedSchema {
                reason: format!("its schema has more than {TYPES_MAX} types within types"),
            });
        }
        match json {
            Value::String(name) => self.resolve_name(name, namespace, depth),
            Value::Array(branches) => self.resolve_union(branches, namespace, depth),
            Value::Object(object) => match object.get("type") {
                Some(Value::String(kind)) => self.resolve_object(object, kind, namespace, depth),
                Some(inner) => self.resolve_type(inner, namespace, depth + 1),
                None => Err(schema_error("a type of its schema has no `type`".into())),
            },
            other => Err(schema_error(format!("its schema has {other} where a type is expected"))),
        }
    }

    /// Resolves a type by its name: a primitive type, or a defined one.
    fn resolve_name(&mut self, name: &str, namespace: &str, depth: usize) -> Result<AvroType> {
        if PRIMITIVES.contains(&name) {
            return Ok(primitive_type(name, None));
        }
        let within = match namespace {
            "" => name.to_owned(),
            _ => format!("{namespace}.{name}"),
        };
        let full = match name.contains('.') || !self.definitions.contains_key(&within) {
            true => name.to_owned(),
            false => within,
        };
        let Some((object, namespace)) = self.definitions.get(&full).cloned() else {
            return Err(schema_error(format!(
                "its schema names a type `{name}`, which it does not define"
            )));
        };
        let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
        self.resolve_object(object, kind, &namespace, depth)
    }

    fn resolve_object(
        &mut self,
        object: &'a Map<String, Value>,
        kind: &str,
        namespace: &str,
        depth: usize,
    ) -> Result<AvroType> {
        let logical = object.get("logicalType").and_then(Value::as_str);
        Ok(match kind {
            "record" | "error" => {
                let (name, inner) = full_name(object, namespace)?;
                if self.open_types.contains(&name) {
                    return Err(Error::UnsupportedSchema {
                        reason: format!("its record `{name}` holds itself, and has no columns"),
                    });
                }
                self.open_types.push(name.clone());
                let Some(Value::Array(list)) = object.get("fields") else {
                    return Err(schema_error(format!("its record `{name}` has no fields")));
                };
                let mut fields = Vec::with_capacity(list.len());
                for field in list {
                    let (own, kind) =
                        (field.get("name").and_then(Value::as_str), field.get("type"));
                    let (Some(own), Some(kind)) = (own, kind) else {
                        let reason =
                            format!("a field of its record `{name}` lacks a name or a type");
                        return Err(schema_error(reason));
                    };
                    let kind = self.resolve_type(kind, &inner, depth + 1)?;
                    let said = field_metadata(field, &kind);
                    fields.push(NamedType {
                        name: own.to_owned(),
                        avro_type: kind,
                        metadata: said,
                    });
                }
                self.open_types.pop();
                AvroType::Record(fields)
            }
            "enum" => {
                let Some(Value::Array(symbols)) = object.get("symbols") else {
                    return Err(schema_error("an enum of its schema has no symbols".into()));
                };
                let symbols = symbols.iter().map(|symbol| symbol.as_str().map(str::to_owned));
                match symbols.collect::<Option<Vec<_>>>() {
                    Some(symbols) => AvroType::Enum(symbols.into()),
                    None => return Err(schema_error("a symbol of its schema is no text".into())),
                }
            }
            "fixed" => {
                let size = object.get("size").and_then(Value::as_u64);
                let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else {
                    return Err(schema_error("a fixed type of its schema has no size".into()));
                };
                match logical {
                    Some("uuid") if size == 16 => AvroType::Uuid,
                    Some("duration") if size == 12 => AvroType::Duration,
                    Some("decimal") => {
                        decimal_type(object, Some(size)).unwrap_or(AvroType::Fixed(size))
                    }
                    _ => AvroType::Fixed(size),
                }
            }
            "array" | "map" => {
                let key = if kind == "array" { "items" } else { "values" };
                let Some(item) = object.get(key) else {
                    return Err(schema_error(format!("{kind} without {key} in its schema")));
                };
                let item = Box::new(self.resolve_type(item, namespace, depth + 1)?);
                if kind == "array" { AvroType::Array(item) } else { AvroType::Map(item) }
            }
            "bytes" if logical == Some("decimal") => {
                decimal_type(object, None).unwrap_or(AvroType::Bytes)
            }
            kind if PRIMITIVES.contains(&kind) => primitive_type(kind, logical),
            name => self.resolve_name(name, namespace, depth)?,
        })
    }

    fn resolve_union(
        &mut self,
        branches: &'a [Value],
        namespace: &str,
        depth: usize,
    ) -> Result<AvroType> {
        let mut kinds = Vec::with_capacity(branches.len());
        for branch in branches {
            let kind = self.resolve_type(branch, namespace, depth + 1)?;
            kinds.push(NamedType {
                name: branch_name(branch),
                avro_type: kind,
                metadata: FieldMetadata::new(),
            });
        }
        let is_null = |branch: &NamedType| matches!(branch.avro_type, AvroType::Null);
        match kinds.as_slice() {
            [] => return Err(schema_error("a union of its schema has no types".into())),
            [one, two] if is_null(one) != is_null(two) => {
                let null_first = is_null(one);
                let kind = kinds.swap_remove(usize::from(null_first)).avro_type;
                return Ok(AvroType::Nullable(Box::new(kind), null_first));
            }
            _ => {}
        }
        // Fields need unique names.
        for index in 0..kinds.len() {
            let name = kinds[index].name.clone();
            let same = kinds[..index].iter().filter(|other| other.name == name).count();
            if same > 0 {
                kinds[index].name = format!("{name}_{}", same + 1);
            }
        }
        Ok(AvroType::Union(kinds))
    }
}

/// Returns the further declarations of a field besides its name and type.
fn field_metadata(field: &Value, kind: &AvroType) -> FieldMetadata {
    let aliases = field.get("aliases").filter(|aliases| {
        let aliases = aliases.as_array();
        aliases.is_some_and(|all| all.iter().all(Value::is_string))
    });
    // The branch that the default of a union belongs to differs from the default of the struct that it
    // becomes.
    let is_clear = |default: &&Value| default.is_null() || !matches!(kind, AvroType::Union(_));
    let default = field.get("default").filter(is_clear);
    let doc = field.get("doc").and_then(Value::as_str);
    let all = [
        (metadata_keys::ALIASES, aliases.map(Value::to_string)),
        (metadata_keys::DEFAULT, default.map(Value::to_string)),
        (metadata_keys::DOC, doc.map(str::to_owned)),
    ];
    all.into_iter().filter_map(|(key, said)| Some((key.to_owned(), said?))).collect()
}

/// Returns the name of a union's branch: its type, or the type's name.
fn branch_name(branch: &Value) -> String {
    let name = match branch {
        Value::Object(object) => match (object.get("name"), object.get("type")) {
            (Some(Value::String(name)), _) | (None, Some(Value::String(name))) => name,
            _ => "union",
        },
        Value::String(name) => name,
        _ => "union",
    };
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

fn primitive_type(name: &str, logical: Option<&str>) -> AvroType {
    let zone = || Some("UTC".into());
    match (name, logical) {
        ("null", _) => AvroType::Null,
        ("boolean", _) => AvroType::Boolean,
        ("int", Some("date")) => AvroType::Int(DataType::Date32),
        ("int", Some("time-millis")) => AvroType::Int(DataType::Time32(TimeUnit::Millisecond)),
        ("int", _) => AvroType::Int(DataType::Int32),
        ("long", Some("time-micros")) => AvroType::Long(DataType::Time64(TimeUnit::Microsecond)),
        ("long", Some(logical)) => {
            let (unit, is_local) = match logical.strip_prefix("local-") {
                Some(unit) => (unit, true),
                None => (logical, false),
            };
            let unit = match unit {
                "timestamp-millis" => TimeUnit::Millisecond,
                "timestamp-micros" => TimeUnit::Microsecond,
                "timestamp-nanos" => TimeUnit::Nanosecond,
                _ => return AvroType::Long(DataType::Int64),
            };
            let zone = if is_local { None } else { zone() };
            AvroType::Long(DataType::Timestamp(unit, zone))
        }
        ("long", None) => AvroType::Long(DataType::Int64),
        ("float", _) => AvroType::Float,
        ("double", _) => AvroType::Double,
        ("bytes", _) => AvroType::Bytes,
        _ => AvroType::String,
    }
}

/// Returns a decimal type; `None` if it is invalid, and the base type applies.
fn decimal_type(object: &Map<String, Value>, size: Option<usize>) -> Option<AvroType> {
    let precision = u8::try_from(object.get("precision")?.as_u64()?).ok()?;
    let scale = match object.get("scale") {
        Some(scale) => i8::try_from(scale.as_u64()?).ok()?,
        None => 0,
    };
    let is_valid = (1..=76).contains(&precision) && i16::from(scale) <= i16::from(precision);
    is_valid.then_some(AvroType::Decimal { precision, scale, size })
}

/// Returns a definition's full name, and the namespace inside it.
fn full_name(object: &Map<String, Value>, namespace: &str) -> Result<(String, String)> {
    let Some(name) = object.get("name").and_then(Value::as_str) else {
        return Err(schema_error(
            "a record, an enum or a fixed type of its schema has no name".into(),
        ));
    };
    if let Some((namespace, _)) = name.rsplit_once('.') {
        return Ok((name.to_owned(), namespace.to_owned()));
    }
    let namespace = object.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
    Ok(match namespace {
        "" => (name.to_owned(), String::new()),
        _ => (format!("{namespace}.{name}"), namespace.to_owned()),
    })
}

fn schema_error(reason: String) -> Error {
    Error::DamagedFile { offset: 0, reason }
}

fn nesting_error() -> Error {
    Error::UnsupportedSchema {
        reason: format!("its schema is nested more than {NESTING_DEPTH_MAX} deep"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(json: &str) -> Result<Vec<(String, DataType, bool)>> {
        let schema = Schema::parse(json.as_bytes())?;
        let fields = schema.arrow_schema().fields().iter();
        Ok(fields.map(|f| (f.name().clone(), f.data_type().clone(), f.is_nullable())).collect())
    }

    fn one(kind: &str) -> Result<(DataType, bool)> {
        let json =
            format!(r#"{{"type":"record","name":"R","fields":[{{"name":"x","type":{kind}}}]}}"#);
        let (_, data_type, nullable) = columns(&json)?.remove(0);
        Ok((data_type, nullable))
    }

    #[test]
    fn types_become_columns() {
        use DataType::*;
        let utc = || Some("UTC".into());
        let of = |fields: Vec<(&str, DataType)>| -> DataType {
            let fields = fields.into_iter().map(|(name, kind)| Field::new(name, kind, true));
            Struct(fields.collect())
        };
        for (json, expected, nullable) in [
            (r#""null""#, Null, true),
            (r#""int""#, Int32, false),
            (r#"{"type":"int"}"#, Int32, false),
            (
                r#"{"type":{"type":"long","logicalType":"timestamp-millis"}}"#,
                Timestamp(TimeUnit::Millisecond, utc()),
                false,
            ),
            (
                r#"{"type":"long","logicalType":"local-timestamp-nanos"}"#,
                Timestamp(TimeUnit::Nanosecond, None),
                false,
            ),
            (r#"{"type":"long","logicalType":"date"}"#, Int64, false),
            (r#"{"type":"int","logicalType":"date"}"#, Date32, false),
            (r#"{"type":"int","logicalType":"time-millis"}"#, Time32(TimeUnit::Millisecond), false),
            (r#"{"type":"string","logicalType":"uuid"}"#, Utf8View, false),
            (r#"{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}"#, Utf8View, false),
            (r#"{"type":"fixed","name":"F","size":5}"#, FixedSizeBinary(5), false),
            (r#"{"type":"fixed","name":"F","size":5000000000}"#, BinaryView, false),
            (
                r#"{"type":"fixed","name":"D","size":12,"logicalType":"duration"}"#,
                Interval(IntervalUnit::MonthDayNano),
                false,
            ),
            (
                r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}"#,
                Decimal128(9, 2),
                false,
            ),
            (
                r#"{"type":"bytes","logicalType":"decimal","precision":40}"#,
                Decimal256(40, 0),
                false,
            ),
            (
                r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":5}"#,
                BinaryView,
                false,
            ),
            (r#"{"type":"bytes","logicalType":"decimal"}"#, BinaryView, false),
            (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, Utf8View, false),
            (r#"["null","string"]"#, Utf8View, true),
            (r#"["double","null"]"#, Float64, true),
            (r#"["double"]"#, of(vec![("double", Float64)]), true),
            (
                r#"["null","int",{"type":"array","items":"string"}]"#,
                of(vec![
                    ("int", Int32),
                    ("array", List(Arc::new(Field::new("item", Utf8View, true)))),
                ]),
                true,
            ),
            (
                r#"[{"type":"record","name":"a.b.C","fields":[]},{"type":"record","name":"d.C","fields":[]}]"#,
                of(vec![("C", of(vec![])), ("C_2", of(vec![]))]),
                true,
            ),
            (
                r#"{"type":"record","name":"S","fields":[{"name":"y","type":"boolean"}]}"#,
                of(vec![("y", Boolean)]),
                false,
            ),
        ] {
            assert_eq!(one(json).unwrap(), (expected, nullable), "{json}");
        }
        assert_eq!(columns(r#""string""#).unwrap(), [("value".into(), Utf8View, false)]);
    }

    #[test]
    fn declared_schema_differs_from_read_schema() {
        let json = r#"{"type":"record","name":"R","fields":[
            {"name":"a","type":"int","default":7,"aliases":["b","c"],"doc":"a number"},
            {"name":"s","type":["null",{"type":"record","name":"S","fields":[
                {"name":"x","type":"long"},{"name":"y","type":["null","long"],"default":null}]}]},
            {"name":"l","type":{"type":"array","items":"string"},"default":[]},
            {"name":"u","type":["int","string"],"default":1},
            {"name":"odd","type":"int","aliases":7,"doc":7}]}"#;
        let declared = Schema::parse(json.as_bytes()).unwrap().declared_schema();
        let field = |name: &str| declared.field_with_name(name).unwrap();
        let said = |name: &str, key: &str| field(name).metadata().get(key).cloned();
        assert_eq!(said("a", metadata_keys::DEFAULT).as_deref(), Some("7"));
        assert_eq!(said("a", metadata_keys::ALIASES).as_deref(), Some(r#"["b","c"]"#));
        assert_eq!(said("a", metadata_keys::DOC).as_deref(), Some("a number"));
        assert_eq!(said("l", metadata_keys::DEFAULT).as_deref(), Some("[]"));
        assert!(field("u").metadata().is_empty() && field("odd").metadata().is_empty());
        assert!(field("s").is_nullable() && !field("l").is_nullable());
        let DataType::Struct(inner) = field("s").data_type() else { panic!("no struct") };
        assert!(!inner[0].is_nullable() && inner[1].is_nullable());
        assert_eq!(
            inner[1].metadata().get(metadata_keys::DEFAULT).map(String::as_str),
            Some("null")
        );
        let DataType::List(item) = field("l").data_type() else { panic!("no list") };
        assert!(!item.is_nullable());
        // The read schema is nullable below a nullable field.
        let read = Schema::parse(json.as_bytes()).unwrap().arrow_schema().field(1).clone();
        let DataType::Struct(inner) = read.data_type() else { panic!("no struct") };
        assert!(inner[0].is_nullable() && read.metadata().is_empty());
    }

    #[test]
    fn names_are_found_in_their_namespaces() {
        let json = r#"{"type":"record","name":"R","namespace":"n","fields":[
            {"name":"a","type":{"type":"enum","name":"E","symbols":["x"]}},
            {"name":"b","type":"E"}, {"name":"c","type":["null","n.E"]},
            {"name":"d","type":{"type":"record","name":"m.S","fields":[
                {"name":"f","type":{"type":"fixed","name":"F","size":2}}, {"name":"g","type":"m.F"}]}},
            {"name":"h","type":"m.F"}]}"#;
        let found: Vec<String> =
            columns(json).unwrap().into_iter().map(|(_, kind, _)| kind.to_string()).collect();
        assert_eq!(found.len(), 5);
        assert_eq!((found[1].as_str(), found[4].as_str()), ("Utf8View", "FixedSizeBinary(2)"));
    }

    #[test]
    fn schemas_without_table_form_are_refused() {
        let twice = r#"{"type":"record","name":"A","fields":[{"name":"x","type":{"type":"fixed","name":"A","size":1}}]}"#;
        let itself =
            r#"{"type":"record","name":"A","fields":[{"name":"next","type":["null","A"]}]}"#;
        // Each record contains the next one ten times.
        let mut wide = r#""int""#.to_owned();
        for level in 0..20 {
            let mut fields = format!(r#"{{"name":"f0","type":{wide}}}"#);
            let again = if level == 0 { "int".into() } else { format!("R{}", level - 1) };
            (1..10).for_each(|n| fields += &format!(r#",{{"name":"f{n}","type":"{again}"}}"#));
            wide = format!(r#"{{"type":"record","name":"R{level}","fields":[{fields}]}}"#);
        }
        for (json, expected) in [
            ("{", "is not JSON"),
            ("17", "where a type is expected"),
            (r#""Other""#, "names a type `Other`"),
            (r#"{"type":"record","fields":[]}"#, "has no name"),
            (r#"{"type":"record","name":"A"}"#, "has no fields"),
            (r#"{"type":"array"}"#, "array without items"),
            ("[]", "has no types"),
            (twice, "defines `A` twice"),
            (itself, "its record `A` holds itself"),
            (&wide, "100000 types"),
        ] {
            let error = columns(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
