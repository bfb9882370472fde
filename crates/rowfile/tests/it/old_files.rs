//! Files that earlier releases wrote remain readable.
//!
//! `tests/data/rowfile-v0.1/` contains rows of every type: one file for each codec,
//! one with an append, a file of rows in a binary column, a truncated one, and the content of all
//! as JSON. They are never rewritten. `TIDEMILL_GOLDEN=write` writes missing files,
//! which creates those of the next release in a new folder.

use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{self, Random, value};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema, TimeUnit};
use serde_json::Value;
use tidemill_rowfile::{
    Codec, Error, ReadOptions, Reader, RowDecodePlan, Schema, StringLayout, WriteOptions, Writer,
    metadata_keys, salvage,
};

const ROWS: usize = 24;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/rowfile-v0.1"))
}

/// Returns every type, nullable and required, by itself, in a struct, a list, a
/// map, and in all of them.
fn every_type() -> Arc<ArrowSchema> {
    let mut types = vec![
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal32(7, 2),
        DataType::Decimal64(15, -3),
        DataType::Decimal128(38, 9),
        DataType::Decimal256(76, 0),
        DataType::Utf8,
        DataType::Binary,
        DataType::FixedSizeBinary(5),
        DataType::Date32,
        DataType::Date64,
        DataType::Time32(TimeUnit::Second),
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Time64(TimeUnit::Nanosecond),
    ];
    for unit in common::UNITS {
        types.push(DataType::Timestamp(unit, None));
        types.push(DataType::Timestamp(unit, Some("Europe/Berlin".into())));
        types.push(DataType::Duration(unit));
    }
    let mut fields = vec![Field::new("nothing", DataType::Null, true)];
    for (number, data_type) in types.into_iter().enumerate() {
        fields.push(Field::new(format!("f{number}"), data_type.clone(), false));
        fields.push(Field::new(format!("n{number}"), data_type, true));
    }
    let symbols = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let metadata = [
        (metadata_keys::ENUM_SYMBOLS.to_owned(), serde_json::to_string(&common::SYMBOLS).unwrap()),
        (metadata_keys::ENUM_DEFAULT.to_owned(), "info".to_owned()),
    ];
    fields.push(Field::new("enum", symbols, true).with_metadata(metadata.into()));
    let plain = |name: &str, nullable| Arc::new(Field::new(name, DataType::Utf8, nullable));
    let list = DataType::List(Arc::new(Field::new("item", DataType::Int16, true)));
    let inner: Fields = vec![
        plain("text", true),
        Arc::new(Field::new("numbers", list.clone(), true)),
        Arc::new(Field::new("flag", DataType::Boolean, false)),
    ]
    .into();
    let pair: Fields = vec![
        plain("key", false),
        Arc::new(Field::new("value", DataType::Struct(inner.clone()), true)),
    ]
    .into();
    let entries = Arc::new(Field::new("entries", DataType::Struct(pair), false));
    let structs = Arc::new(Field::new("item", DataType::Struct(inner.clone()), true));
    fields.push(Field::new("list", list, true));
    fields.push(Field::new("texts", DataType::List(plain("item", false)), false));
    fields.push(Field::new("struct", DataType::Struct(inner), true));
    fields.push(Field::new("map", DataType::Map(entries, false), true));
    fields.push(Field::new("structs", DataType::List(structs), true));
    let metadata = [
        (metadata_keys::ALIASES.to_owned(), r#"["former","struct.text"]"#.to_owned()),
        (metadata_keys::DEFAULT.to_owned(), r#""-""#.to_owned()),
        (metadata_keys::DOC.to_owned(), "what it is".to_owned()),
        ("of the user's".to_owned(), "own".to_owned()),
    ];
    fields.push(Field::new("described", DataType::Utf8, false).with_metadata(metadata.into()));
    Arc::new(ArrowSchema::new(fields))
}

fn options(codec: Codec) -> WriteOptions {
    let metadata = [("written by".to_owned(), "0.1".to_owned())].into();
    WriteOptions { codec, block_bytes: 3000, metadata, ..WriteOptions::default() }
}

/// Writes missing files.
fn write_missing() {
    let folder = folder();
    std::fs::create_dir_all(&folder).unwrap();
    let schema = every_type();
    let batch = common::batch(&mut Random::new(2026), &schema, ROWS);
    let own = Schema::from_arrow(&schema).unwrap();
    let path = |name: &str| Some(folder.join(name)).filter(|path| !path.exists());
    if let Some(path) = path("rows.jsonl") {
        let rows = StructArray::from(batch.clone());
        let lines = (0..ROWS).map(|row| format!("{}\n", value(&rows, row)));
        std::fs::write(path, lines.collect::<String>()).unwrap();
    }
    if let Some(path) = path("schema.json") {
        std::fs::write(path, own.to_json() + "\n").unwrap();
    }
    for (name, codec) in
        [("none", Codec::None), ("lz4", Codec::Lz4), ("zstd", Codec::Zstd(1)), ("cut", Codec::Lz4)]
    {
        let Some(path) = path(&format!("{name}.rows")) else { continue };
        let mut writer = Writer::create(&path, &own, options(codec)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        if name == "cut" {
            let reader = Reader::open(&path).unwrap();
            let last = reader.blocks().last().unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_len(last.offset + u64::from(last.bytes) / 2).unwrap();
        }
    }
    if let Some(path) = path("appended.rows") {
        let mut options = options(Codec::Zstd(3));
        options.statistics = false;
        let mut writer = Writer::create(&path, &own, options).unwrap();
        writer.write(&batch.slice(0, 10)).unwrap();
        writer.close().unwrap();
        for first in [10, 20] {
            let mut writer = Writer::append(&path, 3000).unwrap();
            writer.write(&batch.slice(first, (ROWS - first).min(10))).unwrap();
            writer.close().unwrap();
        }
    }
    if let Some(path) = path("rows-in-binary.rows") {
        let rows: ArrayRef = Arc::new(own.encode_rows(&batch).unwrap());
        let outer = Arc::new(ArrowSchema::new(vec![own.rows_field("input", false)]));
        let batch = RecordBatch::try_new(outer.clone(), vec![rows]).unwrap();
        let outer = Schema::from_arrow(&outer).unwrap();
        let mut writer = Writer::create(&path, &outer, options(Codec::Zstd(1))).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

fn expected() -> (Schema, Vec<Value>) {
    if std::env::var("TIDEMILL_GOLDEN").is_ok_and(|value| value == "write") {
        write_missing();
    }
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let rows = read("rows.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (Schema::parse(&read("schema.json")).unwrap(), rows)
}

fn batches(reader: &Reader<impl tidemill_rowfile::ReadAt>) -> Vec<RecordBatch> {
    reader.read(&ReadOptions::default()).unwrap().collect::<Result<_, _>>().unwrap()
}

fn values(batches: Vec<RecordBatch>) -> Vec<Value> {
    let structs = batches.into_iter().map(StructArray::from);
    structs
        .flat_map(|rows| (0..rows.len()).map(|row| value(&rows, row)).collect::<Vec<_>>())
        .collect()
}

#[test]
fn files_of_release_0_1_are_read_exactly() {
    let (schema, rows) = expected();
    for name in ["none", "lz4", "zstd", "appended"] {
        let reader = Reader::open(&folder().join(format!("{name}.rows"))).unwrap();
        reader.verify().unwrap();
        assert_eq!(reader.schema(), &schema, "{name}");
        assert_eq!(reader.metadata().get("written by").map(String::as_str), Some("0.1"));
        assert!(reader.blocks().len() > 1);
        assert_eq!(values(batches(&reader)), rows, "{name}");
        let bounds = reader.column_statistics("f4").map(|found| found.min.len());
        assert_eq!(bounds, (name != "appended").then(|| reader.blocks().len()), "{name}");
    }
}

#[test]
fn encoded_rows_of_release_0_1_are_read_exactly() {
    let (schema, rows) = expected();
    let reader = Reader::open(&folder().join("rows-in-binary.rows")).unwrap();
    let mut found = Vec::new();
    for batch in batches(&reader) {
        let inner = Schema::from_rows_field(batch.schema().field(0)).unwrap().unwrap();
        assert_eq!(inner, schema);
        let plan =
            RowDecodePlan::new(&inner, &Arc::new(inner.to_arrow(StringLayout::Small))).unwrap();
        let decoded = plan.decode_rows(batch.column(0), "input").unwrap();
        found.extend((0..decoded.len()).map(|row| value(&decoded, row)));
        // Today's encoding gives the same bytes.
        let again = schema.encode_structs(&decoded).unwrap();
        assert_eq!(
            again.iter().collect::<arrow_array::BinaryViewArray>().to_data(),
            batch.column(0).to_data()
        );
    }
    assert_eq!(found, rows);
}

#[test]
fn truncated_file_of_release_0_1_is_refused_and_salvaged() {
    let (_, rows) = expected();
    let path = folder().join("cut.rows");
    let Err(Error::Truncated { rows: whole, .. }) = Reader::open(&path) else {
        panic!("it has no end")
    };
    assert!(whole > 0 && whole < ROWS as u64);
    let (saved, report) =
        salvage(std::fs::File::open(&path).unwrap(), "cut.rows", Vec::new()).unwrap();
    assert_eq!(report.rows, whole);
    let found = values(batches(&Reader::new(saved, "saved").unwrap()));
    assert_eq!(found, rows[..whole as usize]);
}
