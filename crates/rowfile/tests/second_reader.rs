//! A second reader, in Python and made from the format's document alone, reads the same.

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use common::Random;
use serde_json::{Map, Value, json};
use tidemill_rowfile::{Codec, Schema, WriteOptions, Writer};

fn hex(bytes: &[u8]) -> Value {
    let mut text = String::new();
    bytes.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    text.into()
}

/// A value as the second reader prints it: what it is kept as, nothing interpreted.
fn value(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return Value::Null;
    }
    let items = |array: ArrayRef| (0..array.len()).map(|row| value(&array, row)).collect::<Value>();
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float16 => hex(&array.as_primitive::<Float16Type>().value(row).to_le_bytes()),
        DataType::Float32 => hex(&array.as_primitive::<Float32Type>().value(row).to_le_bytes()),
        DataType::Float64 => hex(&array.as_primitive::<Float64Type>().value(row).to_le_bytes()),
        DataType::Decimal128(..) => {
            let text = array.as_primitive::<Decimal128Type>().value(row).to_string();
            serde_json::from_str(&format!("[{text}]")).map(|it: Value| it[0].clone()).unwrap()
        }
        DataType::Decimal256(..) => {
            let text = array.as_primitive::<Decimal256Type>().value(row).to_string();
            serde_json::from_str(&format!("[{text}]")).map(|it: Value| it[0].clone()).unwrap()
        }
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::Binary => hex(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => hex(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => hex(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => hex(array.as_fixed_size_binary().value(row)),
        DataType::Dictionary(..) => {
            let array = array.as_dictionary::<Int32Type>();
            value(array.values(), array.keys().value(row) as usize)
        }
        DataType::List(_) => items(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => items(array.as_list::<i64>().value(row)),
        DataType::Map(..) => {
            let pairs = array.as_map().value(row);
            (0..pairs.len())
                .map(|row| json!([value(pairs.column(0), row), value(pairs.column(1), row)]))
                .collect()
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let pairs = fields
                .iter()
                .zip(columns)
                .map(|(field, column)| (field.name().clone(), value(column, row)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        other => {
            let data = array.to_data();
            match other.primitive_width() {
                Some(1) => data.buffer::<i8>(0)[row].into(),
                Some(2) => data.buffer::<i16>(0)[row].into(),
                Some(4) => data.buffer::<i32>(0)[row].into(),
                _ => data.buffer::<i64>(0)[row].into(),
            }
        }
    }
}

/// Numbers past 64 bits are floats to `serde_json`: such fields are compared in other tests.
fn is_comparable(field: &Field) -> bool {
    match field.data_type() {
        DataType::Decimal128(..) | DataType::Decimal256(..) => false,
        DataType::Struct(fields) => fields.iter().all(|field| is_comparable(field)),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            is_comparable(item)
        }
        _ => true,
    }
}

/// What the second reader prints of a file.
fn second_reader(path: &Path, about: &str) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/second_reader.py");
    let done = Command::new("python3").arg(script).arg(path).output().unwrap();
    assert!(done.status.success(), "{about}: {}", String::from_utf8_lossy(&done.stderr));
    let found = String::from_utf8(done.stdout).unwrap();
    found.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn structs(batch: &RecordBatch, nulls: Option<NullBuffer>) -> StructArray {
    let (fields, rows) = (batch.schema().fields().clone(), batch.num_rows());
    StructArray::try_new_with_length(fields, batch.columns().to_vec(), nulls, rows).unwrap()
}

#[test]
fn a_reader_made_from_the_document_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rows");
    for seed in 0..30 {
        let random = &mut Random::new(seed);
        let schema = common::schema(random);
        let own = Schema::from_arrow(&schema).unwrap();
        let codec = *random.pick(&[Codec::None, Codec::Lz4]);
        let options = WriteOptions { codec, block_bytes: 2000, ..WriteOptions::default() };
        let _ = std::fs::remove_file(&path);
        let mut expected = Vec::new();
        for part in 0..2 {
            let mut writer = match part {
                0 => Writer::create(&path, &own, options.clone()).unwrap(),
                _ => Writer::append(&path, 300).unwrap(),
            };
            let rows = random.below(80);
            let batch = common::batch(random, &schema, rows);
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            let batch = structs(&batch, None);
            expected.extend((0..rows).map(|row| value(&batch, row)));
        }
        let mut found = second_reader(&path, &format!("seed {seed}\n{schema}"));
        assert_eq!(found.len(), expected.len(), "seed {seed}");
        for (row, (found, expected)) in found.iter_mut().zip(&mut expected).enumerate() {
            for field in schema.fields() {
                if is_comparable(field) {
                    let name = field.name();
                    assert_eq!(found[name], expected[name], "seed {seed}, row {row}: {field}");
                }
            }
        }
    }
}

#[test]
fn a_reader_made_from_the_document_reads_rows_in_a_binary_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rows");
    for seed in 100..120 {
        let random = &mut Random::new(seed);
        let schema = common::schema(random);
        let batch = common::batch(random, &schema, 30);
        let nulls = common::nulls(random, &Field::new("", DataType::Null, true), 30);
        let inputs = structs(&batch, nulls);
        let inner = Schema::from_arrow(&schema).unwrap();
        let rows: ArrayRef = Arc::new(inner.encode_structs(&inputs).unwrap());
        let outer = Arc::new(arrow_schema::Schema::new(vec![inner.rows_field("input", true)]));
        let batch = RecordBatch::try_new(outer.clone(), vec![rows]).unwrap();
        let options = WriteOptions { codec: Codec::None, ..WriteOptions::default() };
        let own = Schema::from_arrow(&outer).unwrap();
        let mut writer = Writer::new(Vec::new(), &own, options).unwrap();
        writer.write(&batch).unwrap();
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
        let found = second_reader(&path, &format!("seed {seed}\n{schema}"));
        assert_eq!(found.len(), 30);
        for (row, found) in found.iter().enumerate() {
            let (found, expected) = (&found["input"], value(&inputs, row));
            assert_eq!(found.is_null(), inputs.is_null(row), "seed {seed}, row {row}");
            for field in schema.fields().iter().filter(|field| is_comparable(field)) {
                let name = field.name();
                assert_eq!(found[name], expected[name], "seed {seed}, row {row}: {field}");
            }
        }
    }
}
