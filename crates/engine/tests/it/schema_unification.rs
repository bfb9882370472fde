//! Tests of files with different columns that form one table.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, TimestampMillisecondArray,
};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{NamedSource, PartialTableMerge, Query, QueryPlan, RunId};

use crate::common::{Folder, QueryAnswer, collect_answer, settings, string_rows};

fn write_parquet(folder: &Folder, name: &str, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(1))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    let mut out = Vec::new();
    let properties = Some(properties.build());
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), properties).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    folder.write(name, out);
}

fn int_array(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

#[test]
fn csv_files_with_different_columns_form_one_table_on_every_path() {
    let folder = Folder::new();
    folder.write("a.csv", "k,n\nx,1\ny,2\n");
    folder.write("b.csv", "n,city,k\n3,paris,x\n4,rome,z\n");
    let ask = |sql: &str| folder.run_sql(sql).sorted_rows();
    // The table path, the row path and the engine path.
    assert_eq!(
        ask("SELECT k, sum(n), count(city) FROM '$/*.csv' GROUP BY k"),
        string_rows(&[&["x", "4", "1"], &["y", "2", "0"], &["z", "4", "1"]])
    );
    assert_eq!(
        folder.run_sql("SELECT city, n FROM '$/*.csv' WHERE city IS NULL OR n = 4").rows(),
        string_rows(&[&["∅", "1"], &["∅", "2"], &["rome", "4"]])
    );
    assert_eq!(
        ask("SELECT a.city FROM '$/*.csv' AS a JOIN '$/a.csv' AS b ON a.n = b.n + 2"),
        string_rows(&[&["paris"], &["rome"]])
    );
    for (filter, expected) in [
        ("city = 'paris'", "1"),
        ("city <> 'paris'", "1"),
        ("city IS NULL", "2"),
        ("city IS NOT NULL", "2"),
        ("city IN ('rome', 'oslo')", "1"),
        ("NOT (city = 'paris')", "1"),
        ("city IS DISTINCT FROM 'paris'", "3"),
        ("coalesce(city, 'paris') = 'paris'", "3"),
    ] {
        let sql = format!("SELECT count(*) FROM '$/*.csv' WHERE {filter}");
        assert_eq!(folder.run_sql(&sql).single_value(), expected, "{filter}");
    }
    assert_eq!(folder.run_sql("SELECT count(*) FROM '$/*.csv'").single_value(), "4");
}

/// Returns the count that a query answers, and the number of rows that it read.
fn count_and_rows_read(folder: &Folder, filter: &str) -> (String, u64) {
    let sql = format!("SELECT count(*) FROM '$/**/*.parquet' WHERE {filter}");
    let answer = folder.run_sql(&sql);
    (answer.single_value(), answer.coverage.rows.done)
}

#[test]
fn row_groups_of_differing_files_are_pruned_by_statistics() {
    let folder = Folder::new();
    let noon = 1_357_041_600_000;
    write_parquet(
        &folder,
        "a.parquet",
        vec![
            ("id", Arc::new(Int32Array::from(vec![1, 2, 3])) as ArrayRef),
            ("t", Arc::new(TimestampMillisecondArray::from(vec![noon, noon + 1, noon + 2]))),
        ],
    );
    write_parquet(
        &folder,
        "b.parquet",
        vec![
            ("extra", int_array(&[7, 8])),
            ("t", Arc::new(TimestampMicrosecondArray::from(vec![noon * 1000, noon * 1000 + 5]))),
            ("id", int_array(&[1 << 40, 2])),
        ],
    );
    for (filter, expected, rows) in [
        ("id = 2", "2", 2),
        ("id > 3", "1", 1),
        ("extra = 7", "1", 1),
        ("extra > 0", "2", 2),
        ("extra IS NULL", "3", 3),
        ("extra IS NOT NULL", "2", 2),
        ("extra = 7 OR id = 3", "2", 2),
        ("coalesce(extra, 0) = 0", "3", 5),
        ("t = TIMESTAMP '2013-01-01 12:00:00'", "2", 2),
        ("t > TIMESTAMP '2013-01-01 12:00:00.001'", "1", 1),
        ("CAST(t AS TIMESTAMP(9)) > TIMESTAMP '2013-01-01 12:00:00.001'", "1", 1),
        ("CAST(t AS TIMESTAMP(9)) = TIMESTAMP '2013-01-01 12:00:00.000001'", "0", 0),
        ("t > TIMESTAMP '2013-01-01 12:00:00' AND t < TIMESTAMP '2013-01-01 12:00:00.001'", "1", 1),
    ] {
        assert_eq!(count_and_rows_read(&folder, filter), (expected.to_owned(), rows), "{filter}");
    }
}

#[test]
fn partition_column_overrides_file_column_in_pruning() {
    let folder = Folder::new();
    // Positions differ from those of the first file, and the column has the name of the partition column.
    write_parquet(
        &folder,
        "day=1/a.parquet",
        vec![("day", int_array(&[9])), ("n", int_array(&[1]))],
    );
    write_parquet(
        &folder,
        "day=2/b.parquet",
        vec![("n", int_array(&[2])), ("day", int_array(&[1]))],
    );
    write_parquet(&folder, "day=2/c.parquet", vec![("n", int_array(&[3]))]);
    for (filter, expected, rows) in [
        ("day = 1", "1", 1),
        ("day = 2", "2", 2),
        ("day = 9", "0", 0),
        ("day = 2 AND n = 3", "1", 1),
        ("day IS NULL", "0", 0),
    ] {
        assert_eq!(count_and_rows_read(&folder, filter), (expected.to_owned(), rows), "{filter}");
    }
}

#[test]
fn incompatible_column_is_an_error_only_if_used() {
    let folder = Folder::new();
    let words: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    write_parquet(&folder, "a.parquet", vec![("k", int_array(&[1])), ("n", int_array(&[1]))]);
    write_parquet(&folder, "b.parquet", vec![("k", int_array(&[1])), ("n", words)]);
    assert_eq!(folder.run_sql("SELECT sum(k) FROM '$/*.parquet'").single_value(), "2");
    assert_eq!(folder.run_sql("SELECT count(*) FROM '$/*.parquet'").single_value(), "2");
    for sql in [
        "SELECT sum(n) FROM '$/*.parquet'",
        "SELECT * FROM '$/*.parquet'",
        "SELECT k FROM '$/*.parquet' WHERE n = 1",
        "SELECT k, row_number() OVER (ORDER BY n) FROM '$/*.parquet'",
    ] {
        let refusal = folder.sql_error(sql);
        for part in ["b.parquet` does not go with `", "a.parquet`: column `n` is TEXT, not BIGINT"]
        {
            assert!(refusal.contains(part), "{sql}: {refusal}");
        }
    }
    write_parquet(&folder, "b.parquet", vec![("n", Arc::new(Float64Array::from(vec![0.5])) as _)]);
    assert_eq!(folder.run_sql("SELECT sum(n) FROM '$/*.parquet'").single_value(), "1.5");
}

fn source_query(folder: &Folder, pattern: &str) -> Query {
    let spec = SourceSpec {
        url: folder.substitute_path(&format!("$/{pattern}")),
        ..SourceSpec::default()
    };
    let sources = vec![NamedSource { name: "source".into(), spec }];
    let sql = "SELECT day, count(*) AS n, sum(ms) AS ms FROM source GROUP BY day";
    Query { sources, sql: sql.into(), ..Query::default() }
}

fn write_partial_table(folder: &Folder, pattern: &str, out: &str) -> PathBuf {
    let plan = QueryPlan::new(&source_query(folder, pattern), &settings()).unwrap();
    let out = folder.path().join(out);
    plan.write_partial_table(&out, false, &RunId::new()).unwrap();
    out
}

fn merge_partial_tables(parts: &[PathBuf]) -> tidemill_engine::Result<QueryAnswer> {
    collect_answer(PartialTableMerge::new(parts, &settings())?.run()?)
}

#[test]
fn partial_table_with_a_new_column_merges_with_older_ones() {
    let folder = Folder::new();
    folder.write("old-1.csv", "day,ms\n1,10\n2,20\n");
    folder.write("old-2.csv", "ms,day\n30,2\n");
    let old = write_partial_table(&folder, "old-*.csv", "old.part");
    folder.write("new.csv", "day,user,ms\n2,ann,40\n3,bob,50\n");
    let new = write_partial_table(&folder, "new.csv", "new.part");
    let whole = collect_answer(
        QueryPlan::new(&source_query(&folder, "*.csv"), &settings()).unwrap().run().unwrap(),
    );
    let whole = whole.unwrap();
    assert_eq!(
        whole.rows(),
        string_rows(&[&["1", "1", "10"], &["2", "3", "90"], &["3", "1", "50"]])
    );
    // The old files are gone, and either partial table may come first.
    std::fs::remove_file(folder.path().join("old-1.csv")).unwrap();
    std::fs::remove_file(folder.path().join("old-2.csv")).unwrap();
    assert_eq!(merge_partial_tables(&[old.clone(), new.clone()]).unwrap().rows(), whole.rows());
    assert_eq!(merge_partial_tables(&[new, old.clone()]).unwrap().rows(), whole.rows());
    // A column that the query uses must have the type that it had.
    folder.write("wide.csv", "day,ms\n4,0.5\n");
    let wide = write_partial_table(&folder, "wide.csv", "wide.part");
    let refusal = match merge_partial_tables(&[old, wide]) {
        Ok(answer) => panic!("{:?}", answer.rows()),
        Err(error) => error.to_string(),
    };
    assert!(refusal.contains("are of different tables"), "{refusal}");
    assert!(refusal.contains("`schema` in its [source] settles types"), "{refusal}");
}

#[test]
fn folder_with_cyclic_symlink_is_read_once() {
    let folder = Folder::new();
    folder.write("loop/x.csv", "a\n1\n");
    folder.write("loop/a/y.csv", "a\n2\n");
    folder.write("other/z.csv", "a\n3\n");
    let link = |to: &str, at: &str| {
        std::os::unix::fs::symlink(to, folder.path().join(at)).unwrap();
    };
    link("..", "loop/a/up");
    link("../../other", "loop/a/other");
    for (pattern, count) in [("loop/**/*.csv", "3"), ("loop/a/up/*.csv", "1"), ("loop", "3")] {
        let sql = format!("SELECT count() FROM '$/{pattern}'");
        assert_eq!(folder.run_sql(&sql).single_value(), count, "{pattern}");
    }
}
