//! Tests of round trips: a format returns every value that it can hold, and refuses the others.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DurationSecondArray,
    Float32Array, Float64Array, Int8Array, Int64Array, ListArray, MapBuilder, RecordBatch,
    StringBuilder, StringViewArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int64Type};
use tidemill_engine::sink::{Sink, SinkSpec};
use tidemill_engine::{Error, RunId};

use crate::common::{Folder, batch_rows, settings};

/// Returns a column of each type that results have, with nulls and without.
fn columns_of_all_types(rows: i64) -> Vec<(&'static str, ArrayRef)> {
    let numbers = || (0..rows).map(|n| (n % 4 != 1).then_some(n * 1_000_003));
    let texts = || numbers().map(|n| n.map(|n| format!("{n}, \"quoted\"\nand größer")));
    let items = numbers().map(|n| n.map(|n| vec![Some(n), None, Some(1)]));
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for n in numbers() {
        if n.is_some() {
            map.keys().append_value("key");
            map.values().append_option(n.map(|n| n.to_string()));
        }
        map.append(n.is_some()).unwrap();
    }
    let inner: Vec<(Arc<Field>, ArrayRef)> = vec![
        (
            Arc::new(Field::new("text", DataType::Utf8View, true)),
            Arc::new(texts().collect::<StringViewArray>()),
        ),
        (
            Arc::new(Field::new("n", DataType::Int64, true)),
            Arc::new(numbers().collect::<Int64Array>()),
        ),
    ];
    let decimals: Decimal128Array = numbers().map(|n| n.map(i128::from)).collect();
    let zoned: TimestampMicrosecondArray = numbers().collect();
    vec![
        ("truth", Arc::new(numbers().map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>())),
        ("small", Arc::new(numbers().map(|n| n.map(|n| n as i8)).collect::<Int8Array>())),
        ("n", Arc::new(Int64Array::from_iter_values(0..rows))),
        ("u", Arc::new(numbers().map(|n| n.map(|n| n as u64)).collect::<UInt64Array>())),
        ("real", Arc::new(numbers().map(|n| n.map(|n| n as f32 / 4.0)).collect::<Float32Array>())),
        (
            "double",
            Arc::new(numbers().map(|n| n.map(|n| n as f64 / 8.0)).collect::<Float64Array>()),
        ),
        ("decimal", Arc::new(decimals.with_precision_and_scale(20, 2).unwrap())),
        ("text", Arc::new(texts().collect::<StringViewArray>())),
        ("bytes", Arc::new(texts().map(|t| t.map(String::into_bytes)).collect::<BinaryArray>())),
        (
            "day",
            Arc::new(numbers().map(|n| n.map(|n| (n % 50_000) as i32)).collect::<Date32Array>()),
        ),
        ("time", Arc::new(numbers().collect::<Time64MicrosecondArray>())),
        ("stamp", Arc::new(numbers().collect::<TimestampMicrosecondArray>())),
        ("nanos", Arc::new(numbers().collect::<TimestampNanosecondArray>())),
        ("zoned", Arc::new(zoned.with_timezone("UTC"))),
        ("duration", Arc::new(numbers().collect::<DurationSecondArray>())),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(items))),
        ("map", Arc::new(map.finish())),
        ("record", Arc::new(StructArray::from(inner))),
    ]
}

fn write_batch(folder: &Path, name: &str, batch: &RecordBatch) -> Result<(), String> {
    let spec = SinkSpec::new(format!("{}/{name}", folder.display()));
    let sink = Sink::create(&spec, batch.schema(), &RunId::new(), 64 << 20);
    let told = |error| Error::from(error).to_string();
    let mut sink = sink.map_err(told)?;
    sink.write(batch).map_err(told)?;
    sink.commit().map(|_| ()).map_err(told)
}

#[test]
fn round_trip_keeps_types_and_values() {
    let all = columns_of_all_types(3000);
    for (suffix, refused) in [
        ("parquet", &["duration"][..]),
        ("arrow", &[]),
        ("arrows", &[]),
        ("feather", &[]),
        ("avro", &["u", "duration"]),
        ("rowfile", &[]),
    ] {
        let folder = Folder::new();
        for (name, array) in &all {
            let batch = RecordBatch::try_from_iter_with_nullable([(*name, array.clone(), true)]);
            let batch = batch.unwrap();
            let file = format!("{name}.{suffix}");
            let written = write_batch(folder.path(), &file, &batch);
            if refused.contains(name) && suffix == "avro" {
                let error = written.unwrap_err();
                assert!(error.contains(&format!("column `{name}`")), "{error}");
                assert!(error.contains("\nhint: ") && !folder.path().join(&file).exists());
                continue;
            }
            if refused.contains(name) {
                continue;
            }
            written.unwrap();
            let answer = folder.run_sql(&format!("SELECT * FROM '$/{file}'"));
            assert_eq!(answer.column_names(), [*name]);
            assert!(answer.rows() == batch_rows(&batch), "{file}");
            let widened = ["small", "bytes"];
            if !widened.contains(name) && !array.data_type().is_nested() {
                assert_eq!(answer.batches[0].column(0).data_type(), array.data_type(), "{file}");
            }
        }
        let held: Vec<_> = all.iter().filter(|(name, _)| !refused.contains(name)).collect();
        let whole = held.iter().map(|(name, array)| (*name, array.clone(), true));
        let whole = RecordBatch::try_from_iter_with_nullable(whole).unwrap();
        let file = format!("all.{suffix}");
        write_batch(folder.path(), &file, &whole).unwrap();
        assert!(folder.run_sql(&format!("SELECT * FROM '$/{file}'")).rows() == batch_rows(&whole));
        // The last column alone, and no column.
        let last = folder.run_sql(&format!("SELECT record FROM '$/{file}' WHERE n % 1000 = 7"));
        assert_eq!(last.rows().len(), 3);
        assert_eq!(
            folder.run_sql(&format!("SELECT count(*) FROM '$/{file}'")).single_value(),
            "3000"
        );
    }
}

#[test]
fn compressed_text_round_trips() {
    let folder = Folder::new();
    let columns = columns_of_all_types(3000);
    let kept = columns.iter().filter(|(name, _)| ["n", "text", "double"].contains(name));
    let batch = kept.map(|(name, array)| (*name, array.clone(), true));
    let batch = RecordBatch::try_from_iter_with_nullable(batch).unwrap();
    let plain = folder.path().join("0.csv");
    write_batch(folder.path(), "0.csv", &batch).unwrap();
    for format in ["csv", "tsv", "json"] {
        for suffix in ["gz", "zst", "bz2", "xz"] {
            let file = format!("a.{format}.{suffix}");
            write_batch(folder.path(), &file, &batch).unwrap();
            let answer = folder
                .run_sql_with(&format!("SELECT n, double, text FROM '$/{file}'"), &settings());
            assert!(answer.rows() == batch_rows(&batch), "{file}");
            let size = |path: &Path| std::fs::metadata(path).unwrap().len();
            assert!(size(&folder.path().join(&file)) * 2 < size(&plain), "{file}");
        }
    }
}

#[test]
fn avro_and_arrow_files_are_queried_on_both_paths() {
    let folder = Folder::new();
    let columns = columns_of_all_types(60_000);
    let kept = columns.iter().filter(|(name, _)| ["n", "text", "stamp"].contains(name));
    let batch = kept.map(|(name, array)| (*name, array.clone(), true));
    let batch = RecordBatch::try_from_iter_with_nullable(batch).unwrap();
    for file in ["a.avro", "a.arrow", "a.arrows"] {
        write_batch(folder.path(), file, &batch).unwrap();
        let counted = folder.run_sql(&format!("SELECT count(*) AS c, sum(n) AS s FROM '$/{file}'"));
        assert_eq!(counted.rows(), [["60000", "1799970000"]]);
        let coverage = counted.coverage;
        assert_eq!((coverage.rows.done, coverage.bytes.done), (60_000, coverage.bytes.total));
        // DataFusion's path: a window over the rows.
        let ranked = format!(
            "SELECT n, rank() OVER (ORDER BY n DESC) AS r FROM '$/{file}' ORDER BY r LIMIT 2"
        );
        assert_eq!(folder.run_sql(&ranked).rows(), [["59999", "1"], ["59998", "2"]]);
    }
}
