//! Tests of `filename` and `file_row_number`: they exist where a query names them, and are the same for every
//! format, path, number of threads and splits.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use tidemill_engine::settings::BadRecordLimit;
use tidemill_engine::sink::{Sink, SinkSpec};
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{NamedSource, PartialTableMerge, Query, QueryPlan, RunId, RunSettings};

use crate::common::{Folder, Random, collect_answer, settings, string_rows};

fn write_numbers(folder: &Path, name: &str, first: i64, rows: i64) {
    let numbers = Int64Array::from_iter_values(first..first + rows);
    let pads = (first..first + rows).map(|n| format!("{:040}", n * 7919 % 1_000_003));
    let columns: [(&str, ArrayRef); 2] =
        [("n", Arc::new(numbers)), ("pad", Arc::new(StringArray::from_iter_values(pads)))];
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let spec = SinkSpec::new(format!("{}/{name}", folder.display()));
    let mut sink = Sink::create(&spec, batch.schema(), &RunId::new(), 64 << 20).unwrap();
    for start in (0..batch.num_rows()).step_by(10_000) {
        sink.write(&batch.slice(start, 10_000.min(batch.num_rows() - start))).unwrap();
    }
    sink.commit().unwrap();
}

const FORMATS: [&str; 9] =
    ["csv", "tsv", "json", "parquet", "arrow", "arrows", "avro", "rowfile", "csv.gz"];

#[test]
fn files_without_records_have_hidden_columns() {
    let folder = Folder::new();
    folder.write("a.txt", "");
    folder.write("b.txt", "");
    for columns in
        ["filename, file_row_number", "filename, line", "line, file_row_number", "*, filename"]
    {
        for files in ["a.txt", "*.txt"] {
            let answer = folder.run_sql(&format!("SELECT {columns} FROM '$/{files}'"));
            assert!(answer.rows().is_empty(), "{columns} {files}");
        }
    }
}

#[test]
fn record_numbers_do_not_depend_on_format_path_or_threads() {
    for format in FORMATS {
        let folder = Folder::new();
        // The first file is split wherever its format allows it.
        let (large, small) = (90_000i64, 7);
        write_numbers(folder.path(), &format!("a.{format}"), 0, large);
        write_numbers(folder.path(), &format!("b.{format}"), large, small);
        for threads in [1, 2, 5] {
            let settings = RunSettings { threads, ..settings() };
            let ask = |sql: &str| {
                folder.run_sql_with(&sql.replace("*.X", &format!("*.{format}")), &settings)
            };
            let first = format!("CASE WHEN filename LIKE '%/a.{format}' THEN 0 ELSE {large} END");
            // The row path, the table path and DataFusion's path.
            let wrong = ask(&format!(
                "SELECT n, file_row_number FROM '$/*.X' WHERE n <> file_row_number + {first}"
            ));
            assert!(
                wrong.rows().is_empty(),
                "{format}: {:?}",
                &wrong.rows()[..3.min(wrong.rows().len())]
            );
            let per_file =
                ask("SELECT _file, count(*), min(file_row_number), max(file_row_number), \
                 sum(file_row_number) = sum(n - CASE WHEN n >= 90000 THEN 90000 ELSE 0 END) \
                 FROM '$/*.X' GROUP BY _file ORDER BY 1");
            let name = |letter| format!("{letter}.{format}");
            assert_eq!(
                per_file.rows(),
                string_rows(&[
                    &[&name("a"), "90000", "0", "89999", "true"],
                    &[&name("b"), "7", "0", "6", "true"]
                ])
            );
            let windows = ask(
                "SELECT count(*) FROM (SELECT file_row_number, row_number() OVER (PARTITION BY \
                 filename ORDER BY n) AS place FROM '$/*.X') WHERE place <> file_row_number + 1",
            );
            assert_eq!(windows.single_value(), "0", "{format}");
            let some = ask(
                "SELECT file_row_number, n FROM '$/*.X' WHERE n >= 89999 AND n < 90002 ORDER BY n",
            );
            assert_eq!(
                some.rows(),
                string_rows(&[&["89999", "89999"], &["0", "90000"], &["1", "90001"]]),
                "{format}"
            );
        }
        let whole = folder.run_sql(&format!("SELECT * FROM '$/*.{format}' LIMIT 1"));
        assert_eq!(whole.column_names(), ["n", "pad"]);
    }
}

/// Returns a text with some bad records, and the numbers of the records that are good for a query of `n`
/// alone, and of `n` and `x`.
fn random_csv(random: &mut Random, records: u64) -> (String, [Vec<u64>; 2]) {
    let mut text = String::from("n,x,s\n");
    let mut good = [Vec::new(), Vec::new()];
    for number in 0..records {
        if random.next_below(7) == 0 {
            text.push_str(["\n", "\r\n", "\n\n"][random.next_below(3) as usize]);
        }
        let quoted = match random.next_below(4) {
            0 => "\"two\nlines\"".to_owned(),
            1 => format!("\"{}\"", "a,\"\"b\"\"\n".repeat(random.next_below(30) as usize)),
            _ => "plain".to_owned(),
        };
        match random.next_below(9) {
            0 => text.push_str(&format!("{number},1,{quoted},more\n")),
            1 => text.push_str("lonely\n"),
            2 => {
                text.push_str(&format!("{number},no number,{quoted}\n"));
                good[0].push(number);
            }
            _ => {
                text.push_str(&format!("{number},{number},{quoted}\n"));
                good.iter_mut().for_each(|good| good.push(number));
            }
        }
    }
    (text, good)
}

#[test]
fn record_numbers_count_rejected_records() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let folder = Folder::new();
        let records = [3, 40, 400, 70_000][random.next_below(4) as usize];
        let (text, good) = random_csv(&mut random, records);
        let mut gzip = GzEncoder::new(Vec::new(), Level::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        folder.write("a.csv", &text);
        folder.write("b.csv.gz", gzip.finish().unwrap());
        for threads in [1, 3] {
            for name in ["a.csv", "b.csv.gz"] {
                for (columns, expected) in [("n", &good[0]), ("n, x", &good[1])] {
                    let mut query = Query {
                        sql: folder.substitute_path(&format!(
                            "SELECT file_row_number, {columns} FROM '$/{name}'"
                        )),
                        schema: Some("n BIGINT, x BIGINT".to_owned()),
                        ..Query::default()
                    };
                    let settings = RunSettings {
                        threads,
                        max_bad: BadRecordLimit::Percent(100.0),
                        ..settings()
                    };
                    let ask = |query: &Query| {
                        collect_answer(QueryPlan::new(query, &settings).unwrap().run().unwrap())
                            .unwrap()
                    };
                    let answer = ask(&query);
                    let found: Vec<(u64, u64)> = answer
                        .rows()
                        .iter()
                        .map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap()))
                        .collect();
                    let expected: Vec<(u64, u64)> = expected.iter().map(|n| (*n, *n)).collect();
                    assert_eq!(found, expected, "seed {seed}, {name}, {columns}");
                    assert_eq!(
                        answer.coverage.rows.rejected,
                        records - expected.len() as u64,
                        "seed {seed}, {name}"
                    );
                    if columns != "n" {
                        continue;
                    }
                    query.sql = folder.substitute_path(&format!(
                        "SELECT count(*), count(*) FILTER (WHERE n = file_row_number), sum(file_row_number) \
                         FROM (SELECT file_row_number, {columns} FROM '$/{name}' WHERE n % 3 <> 1)"
                    ));
                    let wanted: Vec<u64> =
                        expected.iter().map(|(n, _)| *n).filter(|n| n % 3 != 1).collect();
                    let count = wanted.len().to_string();
                    let sum = match wanted.as_slice() {
                        [] => "∅".to_owned(),
                        some => some.iter().sum::<u64>().to_string(),
                    };
                    assert_eq!(ask(&query).rows(), [[count.clone(), count, sum]], "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn line_and_json_records_are_numbered_in_file_order() {
    let folder = Folder::new();
    let mut json = String::new();
    for n in 0..50_000 {
        json.push_str(&match n % 1000 {
            7 => "\n{\"n\": }\n".to_owned(),
            _ => format!("{{\"n\": {n}, \"pad\": \"{n:050}\"}}\n"),
        });
    }
    folder.write("a.json", &json);
    folder.write(
        "array.json",
        format!("[{}]", ["{\"n\": 0}", "{\"n\": 1}", "{\"n\": 2}"].join(",\n")),
    );
    folder.write("l.txt", "0\n1\n\n3\n");
    folder.write("k.logfmt", "n=0 a=x\nn=1\n\nn=2 a=y\n");
    let all = RunSettings { max_bad: BadRecordLimit::Percent(100.0), threads: 3, ..settings() };
    let answer = folder.run_sql_with(
        "SELECT count(*), count(*) FILTER (WHERE n = file_row_number), max(file_row_number) FROM '$/a.json'",
        &all,
    );
    assert_eq!(answer.rows(), string_rows(&[&["49950", "49950", "49999"]]));
    for (from, columns) in [("array.json", "n"), ("k.logfmt", "n"), ("l.txt", "line")] {
        let sql = format!("SELECT {columns}, file_row_number FROM '$/{from}'");
        for row in folder.run_sql(&sql).rows() {
            assert!(row[0] == row[1] || row[0].is_empty(), "{from}: {row:?}");
        }
    }
}

fn two_files() -> Folder {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\n1,10\n2,20\n");
    folder.write("b.csv", "k,y\n1,11\n3,31\n");
    folder.write("day=1/c.csv", "k\n1\n");
    folder.write("day=2/d.csv", "k\n1\n2\n");
    folder.write("own.csv", "filename,k\nmine,1\n");
    folder
}

#[test]
fn star_omits_hidden_columns() {
    let folder = two_files();
    for (sql, columns, rows) in [
        (
            "SELECT *, file_row_number AS r FROM '$/a.csv'",
            "k x r",
            string_rows(&[&["1", "10", "0"], &["2", "20", "1"]]),
        ),
        (
            "SELECT * FROM '$/a.csv' WHERE _file = 'a.csv'",
            "k x",
            string_rows(&[&["1", "10"], &["2", "20"]]),
        ),
        (
            "SELECT * EXCLUDE (x) FROM '$/a.csv' WHERE _file = 'a.csv' LIMIT 1",
            "k",
            string_rows(&[&["1"]]),
        ),
        (
            "SELECT * REPLACE (x + 1 AS x) FROM '$/a.csv' WHERE file_row_number = 1",
            "k x",
            string_rows(&[&["2", "21"]]),
        ),
        (
            "SELECT COLUMNS(*) FROM '$/a.csv' WHERE file_row_number = 1",
            "k x",
            string_rows(&[&["2", "20"]]),
        ),
        (
            "SELECT t.* FROM '$/a.csv' AS T WHERE t._file = 'a.csv' LIMIT 1",
            "k x",
            string_rows(&[&["1", "10"]]),
        ),
        (
            "SELECT * FROM '$/a.csv' a JOIN '$/b.csv' b USING (k) WHERE a._file < b._file",
            "k x y",
            string_rows(&[&["1", "10", "11"]]),
        ),
        (
            "SELECT b.* FROM '$/a.csv' a JOIN '$/b.csv' b USING (k) WHERE a._file = 'a.csv'",
            "k y",
            string_rows(&[&["1", "11"]]),
        ),
        (
            "SELECT * FROM (SELECT *, _file FROM '$/a.csv') LIMIT 1",
            "k x _file",
            string_rows(&[&["1", "10", "a.csv"]]),
        ),
        (
            "WITH c AS (SELECT _file, k FROM '$/a.csv') SELECT * FROM c LIMIT 1",
            "_file k",
            string_rows(&[&["a.csv", "1"]]),
        ),
        (
            "SELECT * FROM '$/a.csv' AS t (one, two) WHERE _file = 'a.csv' LIMIT 1",
            "one two",
            string_rows(&[&["1", "10"]]),
        ),
        (
            "SELECT * FROM '$/a.csv' WHERE EXISTS (SELECT * FROM '$/b.csv' b WHERE b.file_row_number = x - 20)",
            "k x",
            string_rows(&[&["2", "20"]]),
        ),
        (
            "SELECT * FROM '$/day*/*.csv' WHERE _file = 'd.csv' AND k = 1",
            "k day",
            string_rows(&[&["1", "2"]]),
        ),
        (
            "SELECT * FROM '$/a.csv' UNION ALL SELECT k, file_row_number FROM '$/b.csv' ORDER BY 1, 2 LIMIT 2",
            "k x",
            string_rows(&[&["1", "0"], &["1", "10"]]),
        ),
    ] {
        let answer = folder.run_sql(sql);
        assert_eq!(answer.column_names().join(" "), columns, "{sql}");
        assert_eq!(answer.rows(), rows, "{sql}");
    }
    let described = folder.run_sql("DESCRIBE SELECT * FROM '$/a.csv' WHERE filename <> ''");
    assert_eq!(described.rows().len(), 2);
}

#[test]
fn hidden_columns_work_in_every_clause_and_dialect() {
    let folder = two_files();
    let path = |name: &str| folder.substitute_path(&format!("$/{name}"));
    let (a, b) = (path("a.csv"), path("b.csv"));
    for (sql, expected) in [
        (
            "SELECT filename, count(*) FROM '$/?.csv' GROUP BY filename ORDER BY filename",
            string_rows(&[&[&a, "2"], &[&b, "2"]]),
        ),
        ("SELECT FileName FROM '$/a.csv' LIMIT 1", string_rows(&[&[&a]])),
        ("SELECT _path FROM '$/a.csv' LIMIT 1", string_rows(&[&[&a]])),
        ("SELECT input_file_name() FROM '$/a.csv' LIMIT 1", string_rows(&[&[&a]])),
        ("SELECT count(DISTINCT filename) FROM '$/?.csv'", string_rows(&[&["2"]])),
        (
            "SELECT max(k) FROM '$/?.csv' GROUP BY filename HAVING filename LIKE '%b.csv'",
            string_rows(&[&["3"]]),
        ),
        ("SELECT k FROM '$/a.csv' ORDER BY file_row_number DESC", string_rows(&[&["2"], &["1"]])),
        (
            "SELECT k, rank() OVER (PARTITION BY filename ORDER BY file_row_number DESC) AS r FROM '$/a.csv' ORDER BY k",
            string_rows(&[&["1", "2"], &["2", "1"]]),
        ),
        (
            "SELECT a._file, b._file FROM '$/a.csv' a JOIN '$/b.csv' b ON a.file_row_number = b.file_row_number AND a.k = 1",
            string_rows(&[&["a.csv", "b.csv"]]),
        ),
        (
            "SELECT k FROM '$/a.csv' JOIN '$/b.csv' USING (file_row_number, k)",
            string_rows(&[&["1"]]),
        ),
        (
            "SELECT upper(_file) AS u FROM '$/a.csv' WHERE u = 'A.CSV' LIMIT 1",
            string_rows(&[&["A.CSV"]]),
        ),
        (
            "SELECT regexp_replace(_file, '[.].*', '') AS _file, count(*) FROM '$/?.csv' GROUP BY 1 ORDER BY 1",
            string_rows(&[&["a", "2"], &["b", "2"]]),
        ),
        // A column of the data takes precedence, and so does a name of the select list.
        ("SELECT filename FROM '$/own.csv'", string_rows(&[&["mine"]])),
        (
            "SELECT filename, a.k FROM '$/own.csv' o JOIN '$/a.csv' a USING (k)",
            string_rows(&[&["mine", "1"]]),
        ),
        (
            "SELECT x % 3 AS filename, count(*) FROM '$/a.csv' GROUP BY filename ORDER BY filename",
            string_rows(&[&["1", "1"], &["2", "1"]]),
        ),
        ("SELECT _file FROM '$/own.csv' WHERE filename = 'mine'", string_rows(&[&["own.csv"]])),
        (
            "SELECT day, _file, count(*) FROM '$/day*/*.csv' GROUP BY ALL ORDER BY 1",
            string_rows(&[&["1", "c.csv", "1"], &["2", "d.csv", "2"]]),
        ),
        // Options of the readers of other databases.
        (
            "SELECT * FROM read_csv('$/a.csv', filename = true) LIMIT 1",
            string_rows(&[&["1", "10", &a]]),
        ),
        (
            "SELECT * FROM read_csv('$/a.csv', filename = 'f') WHERE f = filename LIMIT 1",
            string_rows(&[&["1", "10", &a]]),
        ),
        (
            "SELECT * FROM read_csv('$/a.csv', filename = false) LIMIT 1",
            string_rows(&[&["1", "10"]]),
        ),
        (
            "SELECT * FROM read_csv('$/a.csv', file_row_number = true)",
            string_rows(&[&["1", "10", "0"], &["2", "20", "1"]]),
        ),
    ] {
        assert_eq!(folder.run_sql(sql).rows(), expected, "{sql}");
    }
    assert_eq!(
        folder.run_sql("SELECT input_file_name() FROM '$/a.csv'").column_names(),
        ["input_file_name()"]
    );
    assert_eq!(folder.run_sql("SELECT _path FROM '$/a.csv'").column_names(), ["_path"]);
    for (sql, expected) in [
        (
            "SELECT filename FROM '$/a.csv' a JOIN '$/b.csv' b USING (k)",
            "say which: `a.filename` or `b.filename`",
        ),
        ("SELECT filename FROM '$/a.csv' NATURAL JOIN '$/b.csv'", "JOIN … USING (id)"),
        ("SELECT * EXCLUDE (filename) FROM '$/a.csv'", "filename"),
        ("SELECT * FROM read_csv('$/own.csv', filename = true)", "filename = 'filename_of_file'"),
        ("SELECT * FROM read_csv('$/a.csv', filename = 3)", "is not understood"),
        ("SELECT file_name FROM '$/a.csv'", "unknown column `file_name`"),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains(expected), "{sql}: {message}");
    }
}

#[test]
fn files_are_pruned_by_filename_conditions() {
    let folder = two_files();
    folder.write("z.csv", "k,x\n1,2,3,4\n");
    let bytes = |sql: &str| folder.run_sql(sql).coverage.bytes.total;
    let one = std::fs::metadata(folder.path().join("a.csv")).unwrap().len();
    for condition in [
        "filename LIKE '%/a%'",
        "_file = 'a.csv'",
        "substr(_file, 1, 1) IN ('a') AND x > 0",
        "length(_file) = 5 AND NOT (_file > 'a.csv')",
        "filename = '$/a.csv' AND file_row_number >= 0",
    ] {
        let sql = format!("SELECT count(*) FROM '$/?.csv' WHERE {condition}");
        assert_eq!(
            (folder.run_sql(&sql).single_value(), bytes(&sql)),
            ("2".to_owned(), one),
            "{condition}"
        );
    }
    // A condition that also names other columns is evaluated for all rows.
    let message = folder.sql_error("SELECT count(*) FROM '$/?.csv' WHERE _file = 'a.csv' OR x > 0");
    assert!(message.contains("z.csv"), "{message}");
    assert_eq!(
        folder.run_sql("SELECT count(*) FROM '$/?.csv' WHERE filename = 'none'").single_value(),
        "0"
    );
}

#[test]
fn partial_tables_grouped_by_file_name_merge() {
    let folder = two_files();
    let keep = |pattern: &str, out: &str| {
        let url = folder.substitute_path(&format!("$/{pattern}"));
        let source = NamedSource {
            name: "source".into(),
            spec: SourceSpec { url, ..SourceSpec::default() },
        };
        let sql = "SELECT _file, k, count(*) AS c, max(file_row_number) AS r \
                   FROM (SELECT *, _file, file_row_number FROM source) GROUP BY _file, k ORDER BY 1, 2";
        let query = Query { sources: vec![source], sql: sql.into(), ..Query::default() };
        let out = folder.path().join(out);
        QueryPlan::new(&query, &settings())
            .unwrap()
            .write_partial_table(&out, false, &RunId::new())
            .unwrap();
        out
    };
    let parts = [keep("a.csv", "a.part"), keep("b.csv", "b.part")];
    let merged =
        collect_answer(PartialTableMerge::new(&parts, &settings()).unwrap().run().unwrap())
            .unwrap();
    let expected = [
        ["a.csv", "1", "1", "0"],
        ["a.csv", "2", "1", "1"],
        ["b.csv", "1", "1", "0"],
        ["b.csv", "3", "1", "1"],
    ];
    assert_eq!(merged.rows(), expected);
}
