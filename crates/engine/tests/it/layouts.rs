//! Files that differ, as SQL sees them.

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

use crate::common::{Answer, Folder, answered, settings, text};

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

fn ints(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

#[test]
fn csv_files_that_differ_are_one_table_on_every_route() {
    let folder = Folder::new();
    folder.write("a.csv", "k,n\nx,1\ny,2\n");
    folder.write("b.csv", "n,city,k\n3,paris,x\n4,rome,z\n");
    let ask = |sql: &str| folder.ask(sql).sorted();
    // Tables, rows, and the engine as it is.
    assert_eq!(
        ask("SELECT k, sum(n), count(city) FROM '$/*.csv' GROUP BY k"),
        text(&[&["x", "4", "1"], &["y", "2", "0"], &["z", "4", "1"]])
    );
    assert_eq!(
        folder.ask("SELECT city, n FROM '$/*.csv' WHERE city IS NULL OR n = 4").rows(),
        text(&[&["∅", "1"], &["∅", "2"], &["rome", "4"]])
    );
    assert_eq!(
        ask("SELECT a.city FROM '$/*.csv' AS a JOIN '$/a.csv' AS b ON a.n = b.n + 2"),
        text(&[&["paris"], &["rome"]])
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
        assert_eq!(folder.ask(&sql).only(), expected, "{filter}");
    }
    assert_eq!(folder.ask("SELECT count(*) FROM '$/*.csv'").only(), "4");
}

/// What a query answers, and how many rows it read for it.
fn found(folder: &Folder, filter: &str) -> (String, u64) {
    let sql = format!("SELECT count(*) FROM '$/**/*.parquet' WHERE {filter}");
    let answer = folder.ask(&sql);
    (answer.only(), answer.coverage.rows.done)
}

#[test]
fn row_groups_of_files_that_differ_are_pruned_by_what_they_hold() {
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
            ("extra", ints(&[7, 8])),
            ("t", Arc::new(TimestampMicrosecondArray::from(vec![noon * 1000, noon * 1000 + 5]))),
            ("id", ints(&[1 << 40, 2])),
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
        assert_eq!(found(&folder, filter), (expected.to_owned(), rows), "{filter}");
    }
}

#[test]
fn a_folders_value_is_judged_and_not_the_files_column_of_its_name() {
    let folder = Folder::new();
    // Positions differ from those of the first file, and the name is that of the folder's key.
    write_parquet(&folder, "day=1/a.parquet", vec![("day", ints(&[9])), ("n", ints(&[1]))]);
    write_parquet(&folder, "day=2/b.parquet", vec![("n", ints(&[2])), ("day", ints(&[1]))]);
    write_parquet(&folder, "day=2/c.parquet", vec![("n", ints(&[3]))]);
    for (filter, expected, rows) in [
        ("day = 1", "1", 1),
        ("day = 2", "2", 2),
        ("day = 9", "0", 0),
        ("day = 2 AND n = 3", "1", 1),
        ("day IS NULL", "0", 0),
    ] {
        assert_eq!(found(&folder, filter), (expected.to_owned(), rows), "{filter}");
    }
}

#[test]
fn what_cannot_be_unified_is_an_error_only_where_it_is_used() {
    let folder = Folder::new();
    let words: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    write_parquet(&folder, "a.parquet", vec![("k", ints(&[1])), ("n", ints(&[1]))]);
    write_parquet(&folder, "b.parquet", vec![("k", ints(&[1])), ("n", words)]);
    assert_eq!(folder.ask("SELECT sum(k) FROM '$/*.parquet'").only(), "2");
    assert_eq!(folder.ask("SELECT count(*) FROM '$/*.parquet'").only(), "2");
    for sql in [
        "SELECT sum(n) FROM '$/*.parquet'",
        "SELECT * FROM '$/*.parquet'",
        "SELECT k FROM '$/*.parquet' WHERE n = 1",
        "SELECT k, row_number() OVER (ORDER BY n) FROM '$/*.parquet'",
    ] {
        let refusal = folder.refusal(sql);
        for part in ["b.parquet` does not go with `", "a.parquet`: column `n` is TEXT, not BIGINT"]
        {
            assert!(refusal.contains(part), "{sql}: {refusal}");
        }
    }
    write_parquet(&folder, "b.parquet", vec![("n", Arc::new(Float64Array::from(vec![0.5])) as _)]);
    assert_eq!(folder.ask("SELECT sum(n) FROM '$/*.parquet'").only(), "1.5");
}

fn job(folder: &Folder, pattern: &str) -> Query {
    let spec = SourceSpec { url: folder.sql(&format!("$/{pattern}")), ..SourceSpec::default() };
    let sources = vec![NamedSource { name: "source".into(), spec }];
    let sql = "SELECT day, count(*) AS n, sum(ms) AS ms FROM source GROUP BY day";
    Query { sources, sql: sql.into(), ..Query::default() }
}

fn keep(folder: &Folder, pattern: &str, out: &str) -> PathBuf {
    let plan = QueryPlan::new(&job(folder, pattern), &settings()).unwrap();
    let out = folder.path().join(out);
    plan.write_partial_table(&out, false, &RunId::new()).unwrap();
    out
}

fn merged(parts: &[PathBuf]) -> tidemill_engine::Result<Answer> {
    answered(PartialTableMerge::new(parts, &settings())?.run()?)
}

#[test]
fn a_late_file_with_a_new_column_is_merged_with_what_was_kept_of_the_others() {
    let folder = Folder::new();
    folder.write("old-1.csv", "day,ms\n1,10\n2,20\n");
    folder.write("old-2.csv", "ms,day\n30,2\n");
    let old = keep(&folder, "old-*.csv", "old.part");
    folder.write("new.csv", "day,user,ms\n2,ann,40\n3,bob,50\n");
    let new = keep(&folder, "new.csv", "new.part");
    let whole =
        answered(QueryPlan::new(&job(&folder, "*.csv"), &settings()).unwrap().run().unwrap());
    let whole = whole.unwrap();
    assert_eq!(whole.rows(), text(&[&["1", "1", "10"], &["2", "3", "90"], &["3", "1", "50"]]));
    // The old files are not there any more, and either part may come first.
    std::fs::remove_file(folder.path().join("old-1.csv")).unwrap();
    std::fs::remove_file(folder.path().join("old-2.csv")).unwrap();
    assert_eq!(merged(&[old.clone(), new.clone()]).unwrap().rows(), whole.rows());
    assert_eq!(merged(&[new, old.clone()]).unwrap().rows(), whole.rows());
    // A column that the query uses must be of the type that it had.
    folder.write("wide.csv", "day,ms\n4,0.5\n");
    let wide = keep(&folder, "wide.csv", "wide.part");
    let refusal = match merged(&[old, wide]) {
        Ok(answer) => panic!("{:?}", answer.rows()),
        Err(error) => error.to_string(),
    };
    assert!(refusal.contains("are of different tables"), "{refusal}");
    assert!(refusal.contains("`schema` in its [source] settles types"), "{refusal}");
}

#[test]
fn a_folder_that_leads_into_itself_is_read_once() {
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
        assert_eq!(folder.ask(&sql).only(), count, "{pattern}");
    }
}
