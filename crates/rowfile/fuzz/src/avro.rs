//! Comparison of schema resolution with Avro's, on generated pairs of schemas and data.
//!
//! `apache-avro` answers two questions: can a reader's schema read a writer's at all, which is also asked of
//! this crate, and how are values converted. If it reports *full* compatibility, this crate must open the
//! file and return the same values. If it reports *partial*, or the only problem is one that this crate
//! checks by value (a null where the reader requires a value), each row is compared. If it reports none, this
//! crate must refuse.

#![allow(deprecated, reason = "the functions that take a datum as it is")]

use std::io::Cursor;
use std::sync::Arc;

use apache_avro::schema_compatibility::{Compatibility, SchemaCompatibility};
use apache_avro::types::Value as Avro;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, StructArray};
use arrow_schema::DataType;
use serde_json::{Value, json};
use tidemill_rowfile::{
    ReadOptions, Reader, RowDecodePlan, Schema, StringLayout, WriteOptions, Writer,
};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit.max(1)
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    /// A type with its Avro name: boolean int long float double string bytes.
    Plain(&'static str),
    Enum {
        symbols: Vec<&'static str>,
        default: Option<&'static str>,
    },
    Array(Box<Node>),
    Map(Box<Node>),
    Record(Vec<(String, Node, Option<Value>)>),
}

#[derive(Debug, Clone, PartialEq)]
struct Node {
    kind: Kind,
    nullable: bool,
}

const PLAIN: [&str; 7] = ["boolean", "int", "long", "float", "double", "string", "bytes"];
const SYMBOLS: [&str; 4] = ["A", "B", "C", "D"];

fn node(random: &mut Random, depth: usize) -> Node {
    let kind = match random.below(if depth == 0 { 8 } else { 12 }) {
        kind @ 0..7 => Kind::Plain(PLAIN[kind]),
        7 => Kind::Enum { symbols: SYMBOLS[..1 + random.below(4)].to_vec(), default: None },
        8 | 9 => Kind::Array(Box::new(node(random, depth - 1))),
        10 => Kind::Map(Box::new(node(random, depth - 1))),
        _ => record(random, depth - 1),
    };
    Node { kind, nullable: random.chance(3) }
}

fn record(random: &mut Random, depth: usize) -> Kind {
    let count = 1 + random.below(4);
    Kind::Record((0..count).map(|at| (format!("f{at}"), node(random, depth), None)).collect())
}

/// Returns a default that both sides accept. Avro accepts the default of a union's first type only: null.
fn default(random: &mut Random, node: &Node) -> Option<Value> {
    if node.nullable {
        return Some(Value::Null);
    }
    match &node.kind {
        Kind::Plain("boolean") => Some(json!(true)),
        Kind::Plain("int" | "long") => Some(json!(random.below(100))),
        Kind::Plain("float" | "double") => Some(json!(1.5)),
        Kind::Plain("string") => Some(json!("default")),
        Kind::Enum { symbols, .. } => Some(json!(symbols[0])),
        Kind::Array(_) => Some(json!([])),
        Kind::Map(_) => Some(json!({})),
        _ => None,
    }
}

/// Derives a reader's schema from a writer's by typical schema changes.
fn changed(random: &mut Random, old: &Node, depth: usize) -> Node {
    let mut new = old.clone();
    if random.chance(8) {
        new.nullable = !new.nullable;
    }
    match &mut new.kind {
        Kind::Plain(name) => {
            let wider: &[&str] = match *name {
                "int" => &["long", "float", "double"],
                "long" => &["float", "double"],
                "float" => &["double"],
                "string" => &["bytes"],
                "bytes" => &["string"],
                _ => &[],
            };
            if !wider.is_empty() && random.chance(3) {
                *name = wider[random.below(wider.len())];
            }
        }
        Kind::Enum { symbols, default } => {
            if random.chance(2) {
                *symbols = SYMBOLS[..1 + random.below(4)].to_vec();
            }
            *default = random.chance(2).then_some(symbols[0]);
        }
        Kind::Array(item) | Kind::Map(item) => **item = changed(random, item, depth),
        Kind::Record(fields) => {
            fields.retain(|_| !random.chance(8));
            for (_, node, _) in fields.iter_mut() {
                *node = changed(random, node, depth);
            }
            if random.chance(3) {
                let mut node = node(random, depth.min(1));
                let default = if random.chance(6) { None } else { default(random, &node) };
                // An extension of Avro: a nullable field needs no default to be null.
                node.nullable &= default.is_some();
                fields.insert(random.below(fields.len() + 1), ("new".into(), node, default));
            }
            if random.chance(4) {
                fields.reverse();
            }
        }
    }
    if random.chance(40) {
        new.kind = node(random, depth).kind;
        // The other extension of Avro: an enum can be read as the text of its symbols.
        if matches!((&old.kind, &new.kind), (Kind::Enum { .. }, Kind::Plain("string"))) {
            new.kind = Kind::Plain("long");
        }
    }
    new
}

fn to_avro(node: &Node, path: &str) -> Value {
    let kind = match &node.kind {
        Kind::Plain(name) => json!(name),
        Kind::Enum { symbols, default } => {
            let mut kind = json!({"type": "enum", "name": format!("E{path}"), "symbols": symbols});
            if let Some(default) = default {
                kind["default"] = json!(default);
            }
            kind
        }
        Kind::Array(item) => json!({"type": "array", "items": to_avro(item, &format!("{path}_i"))}),
        Kind::Map(value) => json!({"type": "map", "values": to_avro(value, &format!("{path}_v"))}),
        Kind::Record(fields) => {
            let fields: Vec<Value> = fields
                .iter()
                .map(|(name, node, default)| {
                    let mut field =
                        json!({"name": name, "type": to_avro(node, &format!("{path}_{name}"))});
                    if let Some(default) = default {
                        field["default"] = default.clone();
                    }
                    field
                })
                .collect();
            json!({"type": "record", "name": format!("R{path}"), "fields": fields})
        }
    };
    if node.nullable { json!(["null", kind]) } else { kind }
}

fn to_ours(name: &str, node: &Node, default: Option<&Value>) -> Value {
    let kind = match &node.kind {
        Kind::Plain(name) => json!(match *name {
            "int" => "int32",
            "long" => "int64",
            "float" => "float32",
            "double" => "float64",
            "bytes" => "binary",
            other => other,
        }),
        Kind::Enum { symbols, default } => {
            json!({"enum": {"symbols": symbols, "default": default}})
        }
        Kind::Array(item) => json!({"list": to_ours("item", item, None)}),
        Kind::Map(value) => json!({"map": {
            "key": {"name": "key", "type": "string"},
            "value": to_ours("value", value, None),
        }}),
        Kind::Record(fields) => json!({"struct": fields_of(fields)}),
    };
    let mut field = json!({"name": name, "type": kind, "nullable": node.nullable});
    if let Some(default) = default {
        field["default"] = default.clone();
    }
    field
}

fn fields_of(fields: &[(String, Node, Option<Value>)]) -> Vec<Value> {
    fields.iter().map(|(name, node, default)| to_ours(name, node, default.as_ref())).collect()
}

fn ours(kind: &Kind) -> Schema {
    let Kind::Record(fields) = kind else { unreachable!() };
    Schema::parse(&json!({"fields": fields_of(fields)}).to_string()).expect("a schema")
}

/// Returns a value for this crate's typed rows and for Avro.
fn value(random: &mut Random, node: &Node) -> (Value, Avro) {
    if node.nullable {
        if random.chance(3) {
            return (Value::Null, Avro::Union(0, Box::new(Avro::Null)));
        }
        let (json, avro) = value(random, &Node { nullable: false, ..node.clone() });
        return (json, Avro::Union(1, Box::new(avro)));
    }
    match &node.kind {
        Kind::Plain(name) => {
            let number = random.below(2000) as i64 - 1000;
            match *name {
                "boolean" => (json!(number > 0), Avro::Boolean(number > 0)),
                "int" => (json!(number), Avro::Int(number as i32)),
                "long" => (json!(number << 20), Avro::Long(number << 20)),
                "float" => (json!(number as f64 / 4.0), Avro::Float(number as f32 / 4.0)),
                "double" => (json!(number as f64 / 4.0), Avro::Double(number as f64 / 4.0)),
                name => {
                    let text = format!("{}{number}", "größe".repeat(random.below(4)));
                    let avro = match name {
                        "bytes" => Avro::Bytes(text.clone().into_bytes()),
                        _ => Avro::String(text.clone()),
                    };
                    (json!(text), avro)
                }
            }
        }
        Kind::Enum { symbols, .. } => {
            let at = random.below(symbols.len());
            (json!(symbols[at]), Avro::Enum(at as u32, symbols[at].into()))
        }
        Kind::Array(item) => {
            let items = (0..random.below(4)).map(|_| value(random, item));
            let (json, avro): (Vec<_>, Vec<_>) = items.unzip();
            (json.into(), Avro::Array(avro))
        }
        Kind::Map(item) => {
            let items: Vec<_> =
                (0..random.below(4)).map(|at| (format!("k{at}"), value(random, item))).collect();
            let json = items.iter().map(|(key, (json, _))| (key.clone(), json.clone()));
            let json = Value::Object(json.collect());
            (json, Avro::Map(items.into_iter().map(|(key, (_, avro))| (key, avro)).collect()))
        }
        Kind::Record(fields) => {
            let values: Vec<_> =
                fields.iter().map(|(name, node, _)| (name.clone(), value(random, node))).collect();
            let json = values.iter().map(|(name, (json, _))| (name.clone(), json.clone()));
            let json = Value::Object(json.collect());
            let avro = values.into_iter().map(|(name, (_, avro))| (name, avro)).collect();
            (json, Avro::Record(avro))
        }
    }
}

fn of_avro(avro: Avro) -> Value {
    match avro {
        Avro::Null => Value::Null,
        Avro::Boolean(value) => json!(value),
        Avro::Int(value) => json!(value),
        Avro::Long(value) => json!(value),
        Avro::Float(value) => json!(f64::from(value)),
        Avro::Double(value) => json!(value),
        Avro::String(value) | Avro::Enum(_, value) => json!(value),
        Avro::Bytes(value) => json!(String::from_utf8(value).expect("text")),
        Avro::Union(_, value) => of_avro(*value),
        Avro::Array(items) => items.into_iter().map(of_avro).collect(),
        Avro::Map(items) => {
            Value::Object(items.into_iter().map(|(key, value)| (key, of_avro(value))).collect())
        }
        Avro::Record(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, of_avro(value))).collect())
        }
        other => unreachable!("{other:?}"),
    }
}

fn of_arrow(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::Int32 => json!(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => json!(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => json!(f64::from(array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => json!(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::Utf8View => json!(array.as_string_view().value(row)),
        DataType::BinaryView => {
            json!(std::str::from_utf8(array.as_binary_view().value(row)).expect("text"))
        }
        DataType::Dictionary(..) => {
            let array = array.as_dictionary::<Int32Type>();
            of_arrow(array.values(), array.keys().value(row) as usize)
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|row| of_arrow(&items, row)).collect()
        }
        DataType::Map(..) => {
            let pairs = array.as_map().value(row);
            let keys = pairs.column(0).as_string_view().iter().flatten().map(str::to_owned);
            let values = (0..pairs.len()).map(|row| of_arrow(pairs.column(1), row));
            Value::Object(keys.zip(values).collect())
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let pairs = fields.iter().zip(columns);
            Value::Object(
                pairs
                    .map(|(field, column)| (field.name().clone(), of_arrow(column, row)))
                    .collect(),
            )
        }
        other => unreachable!("{other}"),
    }
}

/// Returns true if the writer may have a null where the reader requires a value, which Avro calls
/// incompatible as a whole and this crate checks by value.
fn made_required(writer: &Node, reader: &Node) -> bool {
    if writer.nullable && !reader.nullable {
        return true;
    }
    match (&writer.kind, &reader.kind) {
        (Kind::Array(writer), Kind::Array(reader)) | (Kind::Map(writer), Kind::Map(reader)) => {
            made_required(writer, reader)
        }
        (Kind::Record(writer), Kind::Record(reader)) => reader.iter().any(|(name, node, _)| {
            writer.iter().any(|(known, old, _)| known == name && made_required(old, node))
        }),
        _ => false,
    }
}

/// Returns true if the reader accepts something that Avro does not: an enum as text, or null for a field
/// that the writer lacks and that has no default.
fn takes_more(writer: &Node, reader: &Node) -> bool {
    match (&writer.kind, &reader.kind) {
        (Kind::Enum { .. }, Kind::Plain("string")) => true,
        (Kind::Array(writer), Kind::Array(reader)) | (Kind::Map(writer), Kind::Map(reader)) => {
            takes_more(writer, reader)
        }
        (Kind::Record(writer), Kind::Record(reader)) => {
            reader.iter().any(|(name, node, default)| {
                match writer.iter().find(|(known, ..)| known == name) {
                    Some((_, old, _)) => takes_more(old, node),
                    None => node.nullable && default.is_none(),
                }
            })
        }
        _ => false,
    }
}

/// Returns the node without nullable fields.
fn never_null(node: &Node) -> Node {
    let kind = match &node.kind {
        Kind::Array(item) => Kind::Array(Box::new(never_null(item))),
        Kind::Map(item) => Kind::Map(Box::new(never_null(item))),
        Kind::Record(fields) => {
            let fields = fields.iter().map(|(name, node, default)| {
                let node = if name == "new" { node.clone() } else { never_null(node) };
                (name.clone(), node, default.clone())
            });
            Kind::Record(fields.collect())
        }
        other => other.clone(),
    };
    Node { kind, nullable: false }
}

/// The outcomes of comparisons.
#[derive(Debug, Default)]
pub struct Counts {
    full: usize,
    partial: usize,
    refused: usize,
    stricter: usize,
    wider: usize,
    by_value: usize,
    same: usize,
    bad: usize,
}

/// Compares the resolution of a pair of schemas, and the conversion of rows, with Avro's.
pub fn compare(seed: u64, counts: &mut Counts) {
    let random = &mut Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let writer = Node { kind: record(random, 2), nullable: false };
    let mut reader = changed(random, &writer, 2);
    reader.nullable = false;
    if !matches!(&reader.kind, Kind::Record(fields) if !fields.is_empty()) {
        return;
    }
    let about = || format!("seed {seed}\nwriter {writer:?}\nreader {reader:?}");
    let parse = |node: &Node| {
        apache_avro::Schema::parse_str(&to_avro(node, "").to_string())
            .unwrap_or_else(|error| panic!("{error}\n{}", about()))
    };
    let (avro_writer, avro_reader) = (parse(&writer), parse(&reader));
    let verdict = SchemaCompatibility::can_read(&avro_writer, &avro_reader);
    let (our_writer, our_reader) = (ours(&writer.kind), ours(&reader.kind));
    let arrow = Arc::new(our_reader.to_arrow(StringLayout::View));
    let plan = RowDecodePlan::new(&our_writer, &arrow);
    if takes_more(&writer, &reader) {
        // Avro gives no answer to compare with.
        counts.wider += 1;
        return;
    }
    match (&verdict, &plan) {
        (Ok(Compatibility::Full), Ok(_)) => counts.full += 1,
        (Ok(_), Ok(_)) => counts.partial += 1,
        (Err(_), Err(_)) => {
            counts.refused += 1;
            return;
        }
        (Err(_), Ok(_)) if made_required(&writer, &reader) => counts.by_value += 1,
        // Some data of a union may be readable, at least null; this crate requires all of it.
        (Ok(Compatibility::Partial), Err(_))
            if SchemaCompatibility::can_read(
                &parse(&never_null(&writer)),
                &parse(&never_null(&reader)),
            )
            .is_err() =>
        {
            counts.stricter += 1;
            return;
        }
        (_, Err(error)) => panic!("Avro says {verdict:?}, we say {error}\n{}", about()),
        (Err(error), Ok(_)) => panic!("Avro says {error}, we read it\n{}", about()),
    }
    for _ in 0..4 {
        let (json, avro) = value(random, &writer);
        let datum = apache_avro::to_avro_datum(&avro_writer, avro).expect("a datum");
        let expected =
            apache_avro::from_avro_datum(&avro_writer, &mut Cursor::new(datum), Some(&avro_reader));
        let mut file = Writer::new(Vec::new(), &our_writer, WriteOptions::default()).unwrap();
        file.write_row(&json).unwrap_or_else(|error| panic!("{error}\n{json}\n{}", about()));
        let file = Reader::new(file.finish().unwrap(), "test").unwrap();
        let options = ReadOptions { schema: Some(arrow.clone()), ..ReadOptions::default() };
        let found = file.read(&options).unwrap().next().unwrap();
        match (expected, found) {
            (Ok(expected), Ok(found)) => {
                assert_eq!(
                    of_arrow(&StructArray::from(found), 0),
                    of_avro(expected),
                    "{}",
                    about()
                );
                counts.same += 1;
            }
            (Err(_), Err(_)) => counts.bad += 1,
            (Ok(expected), Err(error)) => {
                panic!("Avro reads {:?}, we say {error}\n{json}\n{}", of_avro(expected), about())
            }
            (Err(error), Ok(_)) => panic!("Avro says {error}, we read {json}\n{}", about()),
        }
    }
}

#[test]
fn resolution_is_what_avro_makes_of_it() {
    let mut counts = Counts::default();
    (1..=4000).for_each(|seed| compare(seed, &mut counts));
    println!("{counts:?}");
    let Counts { full, refused, same, bad, .. } = counts;
    assert!(full > 300 && refused > 300 && same > 1000 && bad > 50);
}
