//! Tests of aggregate states at their limits: nanoseconds, sums past 128 bits, quantiles between integers.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date64Array, Decimal128Array, DurationNanosecondArray, Int64Array, RecordBatch,
    Time64NanosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
    TimestampSecondArray,
};
use parquet::arrow::ArrowWriter;
use parquet::file::reader::{FileReader, SerializedFileReader};
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{NamedSource, PartialTableMerge, Query, QueryPlan, RunId};

use crate::common::{Folder, array_values, collect_answer, query, settings};
use crate::conversion::{conversion, convert_to_one_file};

fn write_parquet(folder: &Folder, name: &str, columns: Vec<(&str, ArrayRef)>) -> PathBuf {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    folder.write(name, out)
}

#[test]
fn times_one_nanosecond_apart_are_distinct() {
    let folder = Folder::new();
    let base = 1_700_000_000_000_000_000;
    let nanoseconds = vec![base, base + 1, base + 1, base + 999, -1, -1, -1, -1_000, 0];
    let times: Vec<i64> = vec![0, 1, 1, 999, 5, 5, 5, 1_000, 86_399_999_999_999];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("t", Arc::new(TimestampNanosecondArray::from(nanoseconds.clone()))),
        ("z", Arc::new(TimestampNanosecondArray::from(nanoseconds.clone()).with_timezone("UTC"))),
        ("c", Arc::new(Time64NanosecondArray::from(times))),
        ("d", Arc::new(DurationNanosecondArray::from(nanoseconds))),
    ];
    write_parquet(&folder, "n.parquet", columns);
    for (column, different) in ["t", "z", "c", "d"].map(|column| (column, "6")) {
        for more in ["", ", approx_percentile_cont_with_weight(1, 1, 0.5)"] {
            let of = |call: &str| {
                let sql = format!("SELECT {call} AS a{more} FROM '$/n.parquet'");
                folder.run_sql(&sql).rows()[0][0].clone()
            };
            assert_eq!(of(&format!("unique({column})")), different, "{column}");
            assert_eq!(of(&format!("count(DISTINCT {column})")), different, "{column}");
            let top = of(&format!("top_k({column}, 100)"));
            let values = folder.run_sql(&format!("SELECT DISTINCT {column} FROM '$/n.parquet'"));
            for value in values.rows() {
                assert!(
                    top.contains(&format!("value: {},", value[0])),
                    "{column}: {top}, {value:?}"
                );
            }
        }
    }
    // Equal instants match whatever their unit.
    let second: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1_700_000_000, 0]));
    let micro: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from(vec![1_700_000_000_000_000, -1]));
    write_parquet(&folder, "s.parquet", vec![("t", second)]);
    write_parquet(&folder, "u.parquet", vec![("t", micro)]);
    let all = folder.run_sql("SELECT unique(t) FROM '$/*.parquet'").single_value();
    assert_eq!(all, "6");
}

#[test]
fn decimal_sum_fails_only_if_the_total_overflows() {
    let folder = Folder::new();
    let most = 10i128.pow(38) - 1;
    let decimals = |values: &[i128]| -> ArrayRef {
        let values = Decimal128Array::from(values.to_vec());
        Arc::new(values.with_precision_and_scale(38, 0).unwrap())
    };
    for (name, values) in
        [("a", vec![most, most, 7]), ("b", vec![-most, -most, -most]), ("c", vec![most, 1, -8])]
    {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![1; values.len()]));
        write_parquet(
            &folder,
            &format!("{name}.parquet"),
            vec![("k", keys), ("v", decimals(&values))],
        );
    }
    let sql = "SELECT sum(v) AS s, avg(v) AS m, k FROM";
    for memory in [256 << 20, 1 << 16] {
        let settings = tidemill_engine::RunSettings { memory_bytes: memory, ..settings() };
        let whole = folder.run_sql_with(&format!("{sql} '$/?.parquet' GROUP BY k"), &settings);
        assert_eq!(whole.rows()[0][0], "0");
    }
    let parts: Vec<PathBuf> = ["a", "b", "c"]
        .map(|name| {
            let url = folder.substitute_path(&format!("$/{name}.parquet"));
            let spec = SourceSpec { url, ..SourceSpec::default() };
            let sources = vec![NamedSource { name: "source".into(), spec }];
            let sql = "SELECT k, sum(v) AS s, avg(v) AS m FROM source GROUP BY k";
            let query = Query { sources, ..query(sql) };
            let out = folder.path().join(format!("{name}.part"));
            let plan = QueryPlan::new(&query, &settings()).unwrap();
            plan.write_partial_table(&out, false, &RunId::new()).unwrap();
            out
        })
        .into();
    let merged = PartialTableMerge::new(&parts, &settings()).unwrap().run().unwrap();
    assert_eq!(collect_answer(merged).unwrap().rows()[0][1], "0");
    for part in &parts[..2] {
        let error = PartialTableMerge::new(std::slice::from_ref(part), &settings())
            .and_then(|merge| collect_answer(merge.run()?))
            .err()
            .unwrap();
        assert!(error.to_string().contains("does not fit"), "{error}");
    }
    let refusal = folder.sql_error("SELECT sum(v) FROM '$/a.parquet'");
    assert!(refusal.contains("does not fit"), "{refusal}");
}

#[test]
fn quantile_between_integers_is_the_shortest_decimal() {
    let folder = Folder::new();
    let numbers: String = (0..=99).map(|n| format!("{n}\n")).collect();
    folder.write("n.csv", format!("x\n{numbers}"));
    for (rank, expected) in [
        ("0.85", "84.15"),
        ("0.95", "94.05"),
        ("0.1", "9.9"),
        ("0.7", "69.3"),
        ("0.999", "98.901"),
        ("0.5", "49.5"),
    ] {
        for call in ["quantile", "approx_percentile_cont"] {
            let sql = format!("SELECT {call}(x, {rank}) FROM '$/n.csv'");
            assert_eq!(folder.run_sql(&sql).single_value(), expected, "{call} {rank}");
        }
    }
}

#[test]
fn date64_is_written_to_parquet_as_a_date() {
    let folder = Folder::new();
    let dates: ArrayRef =
        Arc::new(Date64Array::from(vec![Some(0), None, Some(86_400_000), Some(-86_400_000)]));
    let batch =
        RecordBatch::try_from_iter_with_nullable([("d", Arc::clone(&dates), true)]).unwrap();
    let mut writer =
        arrow::ipc::writer::FileWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    folder.write("d.arrow", writer.into_inner().unwrap());
    let convert = |from: &str, to: &str| convert_to_one_file(&conversion(&folder, &[from], to));
    convert("d.arrow", "d.parquet").unwrap();
    // The file itself declares them as dates.
    let bytes = bytes::Bytes::from(std::fs::read(folder.path().join("d.parquet")).unwrap());
    let reader = SerializedFileReader::new(bytes).unwrap();
    let metadata = FileReader::metadata(&reader);
    let column = metadata.file_metadata().schema_descr().column(0);
    assert_eq!(column.logical_type_ref(), Some(&parquet::basic::LogicalType::Date));
    let back = folder.run_sql("SELECT d FROM '$/d.parquet'");
    assert_eq!(back.batches[0].column(0), &dates);
    assert_eq!(array_values(back.batches[0].column(0)), array_values(&dates));
    assert_eq!(
        folder.run_sql("SELECT count(*) FROM '$/d.parquet' WHERE d < '1970-01-01'").single_value(),
        "1"
    );
    // A time of day is not lost silently.
    let odd: ArrayRef = Arc::new(Date64Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter_with_nullable([("d", odd, true)]).unwrap();
    let mut writer =
        arrow::ipc::writer::FileWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    folder.write("odd.arrow", writer.into_inner().unwrap());
    let error = convert("odd.arrow", "odd.parquet").unwrap_err().to_string();
    assert!(error.contains("`d` has a date with a time of day"), "{error}");
}
