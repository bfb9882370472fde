//! Tests of `USING SAMPLE 50 ROWS`: a number of rows, the same ones on every path.

use std::collections::BTreeSet;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use std::sync::Arc;
use tidemill_engine::{Query, QueryPlan, RunId, RunSettings};

use crate::cluster_execution::RandomOrderWorkerPool;
use crate::common::{Folder, collect_answer, query, settings};

const ROWS: i64 = 20_000;

/// Writes two files of numbers, in several formats.
fn write_numbers(folder: &Folder) {
    for (name, first) in [("a", 0), ("b", ROWS / 2)] {
        let own = first..first + ROWS / 2;
        let csv: String = own.clone().map(|n| format!("{n},{}\n", n % 7)).collect();
        folder.write(&format!("csv/{name}"), format!("n,k\n{csv}"));
        let json: String =
            own.clone().map(|n| format!("{{\"n\":{n},\"k\":{}}}\n", n % 7)).collect();
        folder.write(&format!("json/{name}"), json);
        let columns: [ArrayRef; 2] = [
            Arc::new(own.clone().collect::<Int64Array>()),
            Arc::new(own.map(|n| n % 7).collect::<Int64Array>()),
        ];
        let [n, k] = columns;
        let batch = RecordBatch::try_from_iter([("n", n), ("k", k)]).unwrap();
        let mut written = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut written, batch.schema(), None).unwrap();
        for first in (0..batch.num_rows()).step_by(1_000) {
            writer.write(&batch.slice(first, 1_000)).unwrap();
            writer.flush().unwrap();
        }
        writer.close().unwrap();
        folder.write(&format!("parquet/{name}"), written);
    }
}

/// Returns the numbers that a statement selects, in their order.
fn sampled_numbers(folder: &Folder, sql: &str, settings: &RunSettings) -> Vec<i64> {
    let rows = folder.run_sql_with(sql, settings).rows();
    rows.iter().map(|row| row[0].parse().unwrap()).collect()
}

#[test]
fn sample_does_not_depend_on_threads_memory_or_syntax() {
    let folder = Folder::new();
    write_numbers(&folder);
    for reader in ["read_csv", "read_json", "read_parquet"] {
        let files = format!("{reader}('$/{}/*')", reader.trim_start_matches("read_"));
        let sample = |clause: &str, settings: &RunSettings| {
            sampled_numbers(
                &folder,
                &format!("SELECT n FROM {files} {clause} ORDER BY n"),
                settings,
            )
        };
        let expected = sample("USING SAMPLE 50 ROWS", &settings());
        let different: BTreeSet<&i64> = expected.iter().collect();
        assert_eq!((expected.len(), different.len()), (50, 50), "{files}");
        for clause in [
            "USING SAMPLE 50",
            "USING SAMPLE reservoir(50 ROWS)",
            "USING SAMPLE reservoir(50 ROWS) REPEATABLE (42)",
            "TABLESAMPLE reservoir(50)",
            "TABLESAMPLE (50 ROWS)",
            "USING SAMPLE 50 ROWS (reservoir, 42)",
        ] {
            for (threads, memory) in [(1, 64 << 20), (4, 1 << 30)] {
                let settings = RunSettings { threads, ..RunSettings::new(memory) };
                assert_eq!(sample(clause, &settings), expected, "{files} {clause} {threads}");
            }
        }
        let other = sample("USING SAMPLE reservoir(50 ROWS) REPEATABLE (7)", &settings());
        assert_eq!(other.len(), 50);
        assert_ne!(other, expected);
        // A larger sample of the same seed contains the rows of a smaller one.
        let larger = sample("USING SAMPLE 500 ROWS", &settings());
        assert!(expected.iter().all(|n| larger.contains(n)), "{files}");
    }
}

#[test]
fn sample_size_is_capped_by_rows_and_applies_before_conditions() {
    let folder = Folder::new();
    write_numbers(&folder);
    let files = "read_csv('$/csv/*')";
    let count = |sample: &str, rest: &str| -> i64 {
        folder
            .run_sql(&format!("SELECT count(*) FROM {files} {sample} {rest}"))
            .single_value()
            .parse()
            .unwrap()
    };
    assert_eq!(count("USING SAMPLE 0 ROWS", ""), 0);
    assert_eq!(count("USING SAMPLE 19_999 ROWS", ""), ROWS - 1);
    assert_eq!(count("USING SAMPLE 30_000 ROWS", ""), ROWS);
    let halves = ["n < 9000", "n >= 9000"]
        .map(|condition| count("TABLESAMPLE reservoir(400 ROWS)", &format!("WHERE {condition}")));
    assert_eq!(halves.iter().sum::<i64>(), 400);
    // 400 of 20,000 rows: 180 ± 10 of them are expected below 9,000, and these are fixed.
    assert!((140..220).contains(&halves[0]), "{halves:?}");
    let groups = format!(
        "SELECT sum(c) FROM (SELECT k, count(*) AS c FROM {files} AS x TABLESAMPLE (70 ROWS) GROUP BY k)"
    );
    assert_eq!(folder.run_sql(&groups).single_value(), "70");
    let all = folder.run_sql(&format!("SELECT * FROM {files} USING SAMPLE 3 ROWS"));
    assert_eq!(all.column_names(), ["n", "k"]);
    let named = folder.run_sql(&format!(
        "SELECT x.n, x.filename, file_row_number FROM {files} AS x TABLESAMPLE (3 ROWS) ORDER BY 1"
    ));
    for row in named.rows() {
        let n: i64 = row[0].parse().unwrap();
        let (file, first) = if n < ROWS / 2 { ("a", 0) } else { ("b", ROWS / 2) };
        assert!(row[1].ends_with(&format!("/csv/{file}")), "{row:?}");
        assert_eq!(row[2], (n - first).to_string());
    }
    // Two references to one sample have the same rows, and a source beside its sample is whole.
    let joined = format!(
        "SELECT count(*) FROM {files} AS a TABLESAMPLE (60 ROWS) JOIN {files} AS b \
         TABLESAMPLE (60 ROWS) USING (n) JOIN {files} AS c USING (n)"
    );
    assert_eq!(folder.run_sql(&joined).single_value(), "60");
}

#[test]
fn every_row_is_sampled_equally_often() {
    let folder = Folder::new();
    let rows: String = (0..100).map(|n| format!("{n}\n")).collect();
    folder.write("a.csv", format!("n\n{rows}"));
    let mut counts = [0u32; 100];
    for seed in 0..300 {
        let sql =
            format!("SELECT n FROM '$/a.csv' USING SAMPLE reservoir(10 ROWS) REPEATABLE ({seed})");
        for n in sampled_numbers(&folder, &sql, &settings()) {
            counts[n as usize] += 1;
        }
    }
    // Each is drawn 30 times in 300 draws at 1 in 10, ± 5.2; the largest of a hundred deviations is below 4.5 of these.
    assert!(counts.iter().all(|count| (7..=53).contains(count)), "{counts:?}");
    let square: f64 = counts.iter().map(|count| (f64::from(*count) - 30.0).powi(2) / 27.0).sum();
    // The sum of a hundred squares of deviations is 100 ± 14.
    assert!((45.0..155.0).contains(&square), "{square}");
}

#[test]
fn joined_sample_is_the_same_with_workers() {
    let folder = Folder::new();
    write_numbers(&folder);
    let sql = folder.substitute_path(
        "SELECT a.k, count(*), sum(s.n) FROM read_csv('$/csv/*') AS a \
         JOIN read_csv('$/csv/a') AS s TABLESAMPLE (40 ROWS) USING (n) WHERE s.k < 6 GROUP BY a.k ORDER BY 1",
    );
    let own = query(sql);
    let here = QueryPlan::new(&own, &settings())
        .and_then(QueryPlan::run)
        .and_then(collect_answer)
        .unwrap();
    let count: i64 = here.rows().iter().map(|row| row[1].parse::<i64>().unwrap()).sum();
    assert!((20..=40).contains(&count), "{count}");
    let workers = RandomOrderWorkerPool::new(3, 2, 0);
    let there = Query { workers: Some(workers.clone()), ..own };
    let there = QueryPlan::new(&there, &settings())
        .and_then(QueryPlan::run)
        .and_then(collect_answer)
        .unwrap();
    assert_eq!(there.rows(), here.rows());
    assert!(workers.finished_tasks() > 0);
    // A sample of the source that workers read is drawn from all rows, which no worker sees.
    let alone = folder.substitute_path(
        "SELECT k, count(*) FROM read_csv('$/csv/*') USING SAMPLE 9 ROWS GROUP BY k",
    );
    let alone = Query { workers: Some(RandomOrderWorkerPool::new(3, 2, 0)), ..query(alone) };
    let error =
        QueryPlan::new(&alone, &settings()).and_then(QueryPlan::run).err().unwrap().to_string();
    assert!(error.contains("\nhint: "), "{error}");
}

#[test]
fn row_samples_need_hidden_columns_and_do_not_merge() {
    let folder = Folder::new();
    write_numbers(&folder);
    folder.write("named.csv", "file_row_number,x\n1,2\n");
    let message = folder.sql_error("SELECT x FROM '$/named.csv' USING SAMPLE 1 ROWS");
    assert!(
        message.starts_with("a sample of a number of rows is drawn by the hidden columns"),
        "{message}"
    );
    folder.write("path.csv", "filename,x\n1,2\n");
    let rows = folder.run_sql("SELECT * FROM '$/path.csv' USING SAMPLE 1 ROWS").rows();
    assert_eq!(rows, [["1", "2"]]);
    let sql = folder.substitute_path(
        "SELECT k, count(*) FROM read_csv('$/csv/*') USING SAMPLE 9 ROWS GROUP BY k",
    );
    let plan = QueryPlan::new(&query(sql), &settings()).unwrap();
    assert!(plan.write_partial_table(&folder.path().join("p"), false, &RunId::new()).is_err());
}
