//! Schemas: from their JSON, to the columns of a table.
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
//! A logical type that is not known, or not of its type, is ignored, as Avro demands. A record that
//! holds itself has no columns and is refused.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Keys of a column's metadata in [`Schema::declared`].
pub mod keys {
    /// Other names of the field, as a JSON array of strings.
    pub const ALIASES: &str = "avro.aliases";
    /// The value where the data has no such field, as the schema's JSON has it.
    pub const DEFAULT: &str = "avro.default";
    /// What the field is, in words.
    pub const DOC: &str = "avro.doc";
}

/// Types within types.
const DEPTH_MAX: usize = 64;
/// All types together, references counted as what they stand for.
const TYPES_MAX: usize = 100_000;
/// A fixed type that is longer is read as bytes of any length: a null of it takes no room then.
const FIXED_BYTES_MAX: usize = 64;

/// The schema of a file.
#[derive(Debug, Clone)]
pub struct Schema {
    pub(crate) fields: Vec<Named>,
    arrow: arrow_schema::SchemaRef,
}

/// A type with its name: a column, a field.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) kind: Type,
    /// What a schema says of it besides, under [`keys`].
    said: Said,
}

type Said = HashMap<String, String>;

/// A type as it is read.
#[derive(Debug, Clone)]
pub(crate) enum Type {
    Null,
    Boolean,
    /// An int as this type of 32 bits.
    Int(DataType),
    /// A long as this type of 64 bits.
    Long(DataType),
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    /// Sixteen bytes that are shown as text.
    Uuid,
    Duration,
    Decimal {
        precision: u8,
        scale: i8,
        /// Of bytes none.
        size: Option<usize>,
    },
    Enum(Arc<[String]>),
    Array(Box<Type>),
    Map(Box<Type>),
    Record(Vec<Named>),
    /// One type beside null; whether null is the first.
    Nullable(Box<Type>, bool),
    /// Any other union: its branches, of which null has no name.
    Union(Vec<Named>),
}

impl Schema {
    /// Reads a schema's JSON.
    ///
    /// # Errors
    /// What is wrong with it, in words; [`Error::Unreadable`] if no table can have it.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let json: Value = serde_json::from_slice(json).map_err(|error| {
            let reason = format!("its schema is not JSON ({error})");
            Error::Damaged { offset: 0, reason }
        })?;
        let mut parser = Parser::default();
        parser.define(&json, "", 0)?;
        let root = parser.resolve(&json, "", 0)?;
        let fields = match root {
            Type::Record(fields) => fields,
            // Rows that are one value each.
            kind => vec![Named { name: "value".into(), kind, said: Said::new() }],
        };
        let columns: Vec<FieldRef> =
            fields.iter().map(|field| field_of(&field.name, &field.kind)).collect();
        Ok(Self { fields, arrow: Arc::new(arrow_schema::Schema::new(columns)) })
    }

    /// The columns.
    pub fn arrow(&self) -> &arrow_schema::SchemaRef {
        &self.arrow
    }

    /// The columns as the schema declares them, for comparing schemas and not for reading: what is
    /// within one may be null only where the schema says so, and what it says of a field besides
    /// is in the field's metadata, under [`keys`]. A default of a union of several types is left out.
    pub fn declared(&self) -> arrow_schema::Schema {
        arrow_schema::Schema::new(self.fields.iter().map(declared).collect::<Fields>())
    }
}

/// A field as its schema declares it.
fn declared(field: &Named) -> FieldRef {
    let said = field.said.clone();
    Arc::new(said_of(&field.name, &field.kind).with_metadata(said))
}

fn said_of(name: &str, kind: &Type) -> Field {
    let is_nullable = matches!(kind, Type::Null | Type::Nullable(..) | Type::Union(_));
    Field::new(name, kind.declared(), is_nullable)
}

/// The column that a type becomes.
pub(crate) fn field_of(name: &str, kind: &Type) -> FieldRef {
    let nullable = matches!(kind, Type::Null | Type::Nullable(..) | Type::Union(_));
    Arc::new(Field::new(name, kind.arrow(), nullable))
}

impl Type {
    /// The type of the column.
    pub(crate) fn arrow(&self) -> DataType {
        match self {
            Type::Null => DataType::Null,
            Type::Boolean => DataType::Boolean,
            Type::Int(data_type) | Type::Long(data_type) => data_type.clone(),
            Type::Float => DataType::Float32,
            Type::Double => DataType::Float64,
            Type::Bytes => DataType::BinaryView,
            Type::String | Type::Uuid | Type::Enum(_) => DataType::Utf8View,
            Type::Fixed(size) => match i32::try_from(*size) {
                Ok(bytes) if *size <= FIXED_BYTES_MAX => DataType::FixedSizeBinary(bytes),
                _ => DataType::BinaryView,
            },
            Type::Duration => DataType::Interval(IntervalUnit::MonthDayNano),
            Type::Decimal { precision: precision @ ..=38, scale, .. } => {
                DataType::Decimal128(*precision, *scale)
            }
            Type::Decimal { precision, scale, .. } => DataType::Decimal256(*precision, *scale),
            Type::Array(item) => DataType::List(item_of(item)),
            Type::Map(value) => DataType::Map(entries_of(value), false),
            Type::Record(fields) => DataType::Struct(fields_of(fields)),
            Type::Nullable(kind, _) => kind.arrow(),
            Type::Union(branches) => DataType::Struct(union_fields(branches)),
        }
    }

    /// The same with what is within it as the schema declares it.
    fn declared(&self) -> DataType {
        match self {
            Type::Array(item) => DataType::List(Arc::new(said_of("item", item))),
            Type::Map(value) => {
                let pair =
                    vec![Field::new("keys", DataType::Utf8, false), said_of("values", value)];
                let entries = Field::new("entries", DataType::Struct(pair.into()), false);
                DataType::Map(Arc::new(entries), false)
            }
            Type::Record(fields) => DataType::Struct(fields.iter().map(declared).collect()),
            Type::Nullable(kind, _) => kind.declared(),
            // All branches but one are null.
            Type::Union(branches) => {
                let named = branches.iter().filter(|one| !matches!(one.kind, Type::Null));
                let fields = named.map(|one| said_of(&one.name, &one.kind).with_nullable(true));
                DataType::Struct(fields.collect())
            }
            other => other.arrow(),
        }
    }

    /// The least that a value takes in a file, in bytes.
    pub(crate) fn bytes_min(&self) -> usize {
        match self {
            Type::Null => 0,
            Type::Float => 4,
            Type::Double => 8,
            Type::Fixed(size) | Type::Decimal { size: Some(size), .. } => *size,
            Type::Uuid => 16,
            Type::Duration => 12,
            Type::Record(fields) => {
                fields.iter().fold(0, |sum, field| sum.saturating_add(field.kind.bytes_min()))
            }
            _ => 1,
        }
    }
}

pub(crate) fn item_of(item: &Type) -> FieldRef {
    Arc::new(Field::new("item", item.arrow(), true))
}

pub(crate) fn entries_of(value: &Type) -> FieldRef {
    let key = Field::new("keys", DataType::Utf8, false);
    let value = Field::new("values", value.arrow(), true);
    Arc::new(Field::new("entries", DataType::Struct(vec![key, value].into()), false))
}

pub(crate) fn fields_of(fields: &[Named]) -> Fields {
    // Where a record is null its fields are.
    fields.iter().map(|field| Field::new(&field.name, field.kind.arrow(), true)).collect()
}

pub(crate) fn union_fields(branches: &[Named]) -> Fields {
    let named = branches.iter().filter(|branch| !matches!(branch.kind, Type::Null));
    named.map(|branch| Field::new(&branch.name, branch.kind.arrow(), true)).collect()
}

/// Collects the types that have names, and builds types of what is said.
#[derive(Default)]
struct Parser<'a> {
    /// By full name, with the namespace in which the definition stands.
    names: HashMap<String, (&'a Map<String, Value>, String)>,
    /// What is being built, outermost first.
    within: Vec<String>,
    types: usize,
}

const PRIMITIVES: [&str; 8] =
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

impl<'a> Parser<'a> {
    /// Finds definitions, wherever they are.
    fn define(&mut self, json: &'a Value, namespace: &str, depth: usize) -> Result<()> {
        if depth > 4 * DEPTH_MAX {
            return Err(too_deep());
        }
        match json {
            Value::Array(branches) => {
                branches.iter().try_for_each(|branch| self.define(branch, namespace, depth + 1))
            }
            Value::Object(object) => {
                let mut inner = namespace.to_owned();
                if let Some(Value::String(kind)) = object.get("type")
                    && matches!(kind.as_str(), "record" | "error" | "enum" | "fixed")
                {
                    let (name, own) = full_name(object, namespace)?;
                    inner = own;
                    let definition = (object, namespace.to_owned());
                    if self.names.insert(name.clone(), definition).is_some() {
                        return Err(wrong(format!("its schema defines `{name}` twice")));
                    }
                }
                if let Some(Value::Array(fields)) = object.get("fields") {
                    for field in fields {
                        if let Some(kind) = field.get("type") {
                            self.define(kind, &inner, depth + 1)?;
                        }
                    }
                }
                for key in ["type", "items", "values"] {
                    if let Some(kind @ (Value::Object(_) | Value::Array(_))) = object.get(key) {
                        self.define(kind, &inner, depth + 1)?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn resolve(&mut self, json: &'a Value, namespace: &str, depth: usize) -> Result<Type> {
        self.types += 1;
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
        if self.types > TYPES_MAX {
            return Err(Error::Unreadable {
                reason: format!("its schema has more than {TYPES_MAX} types within types"),
            });
        }
        match json {
            Value::String(name) => self.named(name, namespace, depth),
            Value::Array(branches) => self.union(branches, namespace, depth),
            Value::Object(object) => match object.get("type") {
                Some(Value::String(kind)) => self.object(object, kind, namespace, depth),
                Some(inner) => self.resolve(inner, namespace, depth + 1),
                None => Err(wrong("a type of its schema has no `type`".into())),
            },
            other => Err(wrong(format!("its schema has {other} where a type is expected"))),
        }
    }

    /// A type by its name: a primitive one, or one that is defined somewhere.
    fn named(&mut self, name: &str, namespace: &str, depth: usize) -> Result<Type> {
        if PRIMITIVES.contains(&name) {
            return Ok(primitive(name, None));
        }
        let within = match namespace {
            "" => name.to_owned(),
            _ => format!("{namespace}.{name}"),
        };
        let full = match name.contains('.') || !self.names.contains_key(&within) {
            true => name.to_owned(),
            false => within,
        };
        let Some((object, namespace)) = self.names.get(&full).cloned() else {
            return Err(wrong(format!(
                "its schema names a type `{name}`, which it does not define"
            )));
        };
        let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
        self.object(object, kind, &namespace, depth)
    }

    fn object(
        &mut self,
        object: &'a Map<String, Value>,
        kind: &str,
        namespace: &str,
        depth: usize,
    ) -> Result<Type> {
        let logical = object.get("logicalType").and_then(Value::as_str);
        Ok(match kind {
            "record" | "error" => {
                let (name, inner) = full_name(object, namespace)?;
                if self.within.contains(&name) {
                    return Err(Error::Unreadable {
                        reason: format!("its record `{name}` holds itself, and has no columns"),
                    });
                }
                self.within.push(name.clone());
                let Some(Value::Array(list)) = object.get("fields") else {
                    return Err(wrong(format!("its record `{name}` has no fields")));
                };
                let mut fields = Vec::with_capacity(list.len());
                for field in list {
                    let (own, kind) =
                        (field.get("name").and_then(Value::as_str), field.get("type"));
                    let (Some(own), Some(kind)) = (own, kind) else {
                        let reason =
                            format!("a field of its record `{name}` lacks a name or a type");
                        return Err(wrong(reason));
                    };
                    let kind = self.resolve(kind, &inner, depth + 1)?;
                    let said = said(field, &kind);
                    fields.push(Named { name: own.to_owned(), kind, said });
                }
                self.within.pop();
                Type::Record(fields)
            }
            "enum" => {
                let Some(Value::Array(symbols)) = object.get("symbols") else {
                    return Err(wrong("an enum of its schema has no symbols".into()));
                };
                let symbols = symbols.iter().map(|symbol| symbol.as_str().map(str::to_owned));
                match symbols.collect::<Option<Vec<_>>>() {
                    Some(symbols) => Type::Enum(symbols.into()),
                    None => return Err(wrong("a symbol of its schema is no text".into())),
                }
            }
            "fixed" => {
                let size = object.get("size").and_then(Value::as_u64);
                let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else {
                    return Err(wrong("a fixed type of its schema has no size".into()));
                };
                match logical {
                    Some("uuid") if size == 16 => Type::Uuid,
                    Some("duration") if size == 12 => Type::Duration,
                    Some("decimal") => decimal(object, Some(size)).unwrap_or(Type::Fixed(size)),
                    _ => Type::Fixed(size),
                }
            }
            "array" | "map" => {
                let key = if kind == "array" { "items" } else { "values" };
                let Some(item) = object.get(key) else {
                    return Err(wrong(format!("{kind} without {key} in its schema")));
                };
                let item = Box::new(self.resolve(item, namespace, depth + 1)?);
                if kind == "array" { Type::Array(item) } else { Type::Map(item) }
            }
            "bytes" if logical == Some("decimal") => decimal(object, None).unwrap_or(Type::Bytes),
            kind if PRIMITIVES.contains(&kind) => primitive(kind, logical),
            name => self.named(name, namespace, depth)?,
        })
    }

    fn union(&mut self, branches: &'a [Value], namespace: &str, depth: usize) -> Result<Type> {
        let mut kinds = Vec::with_capacity(branches.len());
        for branch in branches {
            let kind = self.resolve(branch, namespace, depth + 1)?;
            kinds.push(Named { name: branch_name(branch), kind, said: Said::new() });
        }
        let is_null = |branch: &Named| matches!(branch.kind, Type::Null);
        match kinds.as_slice() {
            [] => return Err(wrong("a union of its schema has no types".into())),
            [one, two] if is_null(one) != is_null(two) => {
                let null_first = is_null(one);
                let kind = kinds.swap_remove(usize::from(null_first)).kind;
                return Ok(Type::Nullable(Box::new(kind), null_first));
            }
            _ => {}
        }
        // Fields need names of their own.
        for index in 0..kinds.len() {
            let name = kinds[index].name.clone();
            let same = kinds[..index].iter().filter(|other| other.name == name).count();
            if same > 0 {
                kinds[index].name = format!("{name}_{}", same + 1);
            }
        }
        Ok(Type::Union(kinds))
    }
}

/// What a field's JSON says of it besides its name and type.
fn said(field: &Value, kind: &Type) -> Said {
    let aliases = field.get("aliases").filter(|aliases| {
        let aliases = aliases.as_array();
        aliases.is_some_and(|all| all.iter().all(Value::is_string))
    });
    // Which of its types the default of a union is of is not what its column's default would be.
    let is_clear = |default: &&Value| default.is_null() || !matches!(kind, Type::Union(_));
    let default = field.get("default").filter(is_clear);
    let doc = field.get("doc").and_then(Value::as_str);
    let all = [
        (keys::ALIASES, aliases.map(Value::to_string)),
        (keys::DEFAULT, default.map(Value::to_string)),
        (keys::DOC, doc.map(str::to_owned)),
    ];
    all.into_iter().filter_map(|(key, said)| Some((key.to_owned(), said?))).collect()
}

/// What a branch of a union is called: its type, or the name that this has.
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

fn primitive(name: &str, logical: Option<&str>) -> Type {
    let zone = || Some("UTC".into());
    match (name, logical) {
        ("null", _) => Type::Null,
        ("boolean", _) => Type::Boolean,
        ("int", Some("date")) => Type::Int(DataType::Date32),
        ("int", Some("time-millis")) => Type::Int(DataType::Time32(TimeUnit::Millisecond)),
        ("int", _) => Type::Int(DataType::Int32),
        ("long", Some("time-micros")) => Type::Long(DataType::Time64(TimeUnit::Microsecond)),
        ("long", Some(logical)) => {
            let (unit, is_local) = match logical.strip_prefix("local-") {
                Some(unit) => (unit, true),
                None => (logical, false),
            };
            let unit = match unit {
                "timestamp-millis" => TimeUnit::Millisecond,
                "timestamp-micros" => TimeUnit::Microsecond,
                "timestamp-nanos" => TimeUnit::Nanosecond,
                _ => return Type::Long(DataType::Int64),
            };
            let zone = if is_local { None } else { zone() };
            Type::Long(DataType::Timestamp(unit, zone))
        }
        ("long", None) => Type::Long(DataType::Int64),
        ("float", _) => Type::Float,
        ("double", _) => Type::Double,
        ("bytes", _) => Type::Bytes,
        _ => Type::String,
    }
}

/// None where it is none that can be: then it is what it is made of.
fn decimal(object: &Map<String, Value>, size: Option<usize>) -> Option<Type> {
    let precision = u8::try_from(object.get("precision")?.as_u64()?).ok()?;
    let scale = match object.get("scale") {
        Some(scale) => i8::try_from(scale.as_u64()?).ok()?,
        None => 0,
    };
    let is_valid = (1..=76).contains(&precision) && i16::from(scale) <= i16::from(precision);
    is_valid.then_some(Type::Decimal { precision, scale, size })
}

/// A definition's full name, and the namespace of what stands in it.
fn full_name(object: &Map<String, Value>, namespace: &str) -> Result<(String, String)> {
    let Some(name) = object.get("name").and_then(Value::as_str) else {
        return Err(wrong("a record, an enum or a fixed type of its schema has no name".into()));
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

fn wrong(reason: String) -> Error {
    Error::Damaged { offset: 0, reason }
}

fn too_deep() -> Error {
    Error::Unreadable { reason: format!("its schema is nested more than {DEPTH_MAX} deep") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(json: &str) -> Result<Vec<(String, DataType, bool)>> {
        let schema = Schema::parse(json.as_bytes())?;
        let fields = schema.arrow().fields().iter();
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
    fn what_a_schema_declares_is_kept_apart_from_what_is_read() {
        let json = r#"{"type":"record","name":"R","fields":[
            {"name":"a","type":"int","default":7,"aliases":["b","c"],"doc":"a number"},
            {"name":"s","type":["null",{"type":"record","name":"S","fields":[
                {"name":"x","type":"long"},{"name":"y","type":["null","long"],"default":null}]}]},
            {"name":"l","type":{"type":"array","items":"string"},"default":[]},
            {"name":"u","type":["int","string"],"default":1},
            {"name":"odd","type":"int","aliases":7,"doc":7}]}"#;
        let declared = Schema::parse(json.as_bytes()).unwrap().declared();
        let field = |name: &str| declared.field_with_name(name).unwrap();
        let said = |name: &str, key: &str| field(name).metadata().get(key).cloned();
        assert_eq!(said("a", keys::DEFAULT).as_deref(), Some("7"));
        assert_eq!(said("a", keys::ALIASES).as_deref(), Some(r#"["b","c"]"#));
        assert_eq!(said("a", keys::DOC).as_deref(), Some("a number"));
        assert_eq!(said("l", keys::DEFAULT).as_deref(), Some("[]"));
        assert!(field("u").metadata().is_empty() && field("odd").metadata().is_empty());
        assert!(field("s").is_nullable() && !field("l").is_nullable());
        let DataType::Struct(inner) = field("s").data_type() else { panic!("no struct") };
        assert!(!inner[0].is_nullable() && inner[1].is_nullable());
        assert_eq!(inner[1].metadata().get(keys::DEFAULT).map(String::as_str), Some("null"));
        let DataType::List(item) = field("l").data_type() else { panic!("no list") };
        assert!(!item.is_nullable());
        // What is read is null below what is null.
        let read = Schema::parse(json.as_bytes()).unwrap().arrow().field(1).clone();
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
    fn what_cannot_be_columns_is_refused() {
        let twice = r#"{"type":"record","name":"A","fields":[{"name":"x","type":{"type":"fixed","name":"A","size":1}}]}"#;
        let itself =
            r#"{"type":"record","name":"A","fields":[{"name":"next","type":["null","A"]}]}"#;
        // Each record holds the next one ten times.
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
