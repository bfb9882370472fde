//! A second reader in Python, implemented from the format's document alone, reads the same rows.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::common::{self, Random, value};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use serde_json::Value;
use tidemill_rowfile::{Codec, Schema, WriteOptions, Writer};

/// Returns false for numbers beyond 64 bits, which are floats in `serde_json`; other tests compare them.
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

/// Returns the output of the second reader for a file.
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
fn python_reader_reads_the_same_rows() {
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
fn python_reader_reads_rows_in_a_binary_field() {
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
