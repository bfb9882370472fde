//! Tests of the whole sink.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::*;

use super::*;

/// Day and state as path columns, an integer, a float, a string.
fn flights() -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([
        ("day", Arc::new(Date32Array::from(vec![15706, 15707, 15706, 15706])) as ArrayRef, false),
        (
            "state",
            Arc::new(StringArray::from(vec![Some("TX"), Some("NY"), None, Some("TX")])),
            true,
        ),
        ("users", Arc::new(Int64Array::from(vec![Some(1), None, Some(-3), Some(4)])), true),
        ("delay", Arc::new(Float64Array::from(vec![0.5, 2.0, 1e20, f64::NAN])), true),
        (
            "note",
            Arc::new(StringArray::from(vec![Some("a,b"), Some(""), None, Some("\"q\"\n")])),
            true,
        ),
    ])
    .unwrap()
}

/// Every file below a folder with its text.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    fn walk(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                found.insert(format!("{name}/"), String::new());
                walk(&entry.path(), &format!("{name}/"), found);
            } else {
                let bytes = std::fs::read(entry.path()).unwrap();
                found.insert(name, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, "", &mut found);
    found
}

fn write(spec: &SinkSpec, batches: &[RecordBatch]) -> Result<Written> {
    let mut sink = Sink::create(spec, batches[0].schema(), &RunId::new(), 1 << 20)?;
    for batch in batches {
        sink.write(batch)?;
    }
    sink.commit()
}

#[test]
fn a_file_per_value_appears_at_commit() {
    let temp = tempfile::tempdir().unwrap();
    let spec = SinkSpec::new(format!("{}/out/{{state}}/{{day}}.csv", temp.path().display()));
    let mut sink = Sink::create(&spec, flights().schema(), &RunId::new(), 1 << 20).unwrap();
    sink.write(&flights()).unwrap();
    assert!(!temp.path().join("out/TX").exists());
    let written = sink.commit().unwrap();
    assert_eq!((written.files, written.rows), (3, 4));
    let header = "day,state,users,delay,note\n";
    let expected = [
        ("out/", String::new()),
        ("out/NY/", String::new()),
        ("out/NY/2013-01-02.csv", format!("{header}2013-01-02,NY,,2.0,\"\"\n")),
        ("out/TX/", String::new()),
        (
            "out/TX/2013-01-01.csv",
            format!("{header}2013-01-01,TX,1,0.5,\"a,b\"\n2013-01-01,TX,4,NaN,\"\"\"q\"\"\n\"\n"),
        ),
        ("out/__HIVE_DEFAULT_PARTITION__/", String::new()),
        (
            "out/__HIVE_DEFAULT_PARTITION__/2013-01-01.csv",
            format!("{header}2013-01-01,,-3,1e20,\n"),
        ),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
    assert_eq!(tree(temp.path()), expected);
    let bytes: usize = expected.values().map(String::len).sum();
    assert_eq!(written.bytes, bytes as u64);
}
