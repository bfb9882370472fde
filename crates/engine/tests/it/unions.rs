//! Tests of unions: rows of several SELECTs in one result, of a type that holds them all.

use arrow::array::Array;
use tidemill_engine::RunSettings;

use crate::common::{Folder, Random, settings};

/// Returns the type of the first column of a query, and the rows, sorted.
fn type_and_rows(folder: &Folder, sql: &str) -> (String, Vec<String>) {
    let answer = folder.run_sql(sql);
    let schema = answer.batches[0].schema();
    let data_type = tidemill_engine::column_types::sql_type_name(schema.field(0).data_type());
    let mut rows: Vec<String> = answer.rows().into_iter().map(|row| row.join("|")).collect();
    rows.sort();
    (data_type, rows)
}

#[test]
fn union_type_holds_the_values_of_all_branches() {
    let folder = Folder::new();
    for (sql, data_type, rows) in [
        ("SELECT 1 x UNION ALL SELECT 0.5", "DOUBLE", &["0.5", "1.0"][..]),
        ("SELECT 0.5 x UNION ALL SELECT 1", "DOUBLE", &["0.5", "1.0"]),
        (
            "SELECT x FROM (VALUES (TIMESTAMP '2020-01-02 03:04:05'), (NULL)) AS t(x)",
            "TIMESTAMP(6)",
            &["2020-01-02T03:04:05", "∅"],
        ),
        (
            "SELECT x FROM (VALUES (TIMESTAMP '2020-01-02 03:04:05'), (NULL), \
             (TIMESTAMP '2020-01-02 03:04:05.123456789')) AS t(x)",
            "TIMESTAMP",
            &["2020-01-02T03:04:05", "2020-01-02T03:04:05.123456789", "∅"],
        ),
        (
            "SELECT DATE '2020-01-02' x UNION ALL SELECT TIMESTAMP '2020-01-02 03:04:05'",
            "TIMESTAMP(6)",
            &["2020-01-02T00:00:00", "2020-01-02T03:04:05"],
        ),
        (
            "SELECT TIMESTAMP '2020-01-02 03:04:05' x UNION ALL SELECT DATE '9999-12-31'",
            "TIMESTAMP(6)",
            &["2020-01-02T03:04:05", "9999-12-31T00:00:00"],
        ),
        (
            "SELECT CAST(1.25 AS DECIMAL(5,2)) x UNION ALL SELECT CAST(1.123456 AS DECIMAL(10,6))",
            "DECIMAL(10, 6)",
            &["1.123456", "1.250000"],
        ),
        ("SELECT CAST(1.25 AS DECIMAL(5,2)) x UNION ALL SELECT 1e30", "DOUBLE", &["1.25", "1e30"]),
        (
            "SELECT CAST(16777217 AS BIGINT) x UNION ALL SELECT CAST(0.5 AS FLOAT)",
            "DOUBLE",
            &["0.5", "16777217.0"],
        ),
        (
            "SELECT CAST(18446744073709551615 AS BIGINT UNSIGNED) x UNION ALL SELECT CAST(-1 AS BIGINT)",
            "DECIMAL(20, 0)",
            &["-1", "18446744073709551615"],
        ),
        ("SELECT CAST(1 AS BIGINT) x UNION ALL SELECT 'a'", "TEXT", &["1", "a"]),
        ("SELECT 'a' x UNION ALL SELECT 2", "TEXT", &["2", "a"]),
        ("SELECT NULL x UNION ALL SELECT 5", "BIGINT", &["5", "∅"]),
        ("SELECT 5 x UNION ALL SELECT NULL", "BIGINT", &["5", "∅"]),
        ("SELECT 1 x UNION ALL (SELECT 2 UNION ALL SELECT 0.5)", "DOUBLE", &["0.5", "1.0", "2.0"]),
        (
            "(SELECT CAST(2 AS INT) x UNION ALL SELECT CAST(3 AS BIGINT)) UNION ALL SELECT 0.5",
            "DOUBLE",
            &["0.5", "2.0", "3.0"],
        ),
        ("SELECT 1 x UNION SELECT 1.0", "DOUBLE", &["1.0"]),
        (
            "WITH a AS (SELECT 1 x UNION ALL SELECT 0.5) SELECT x + 1 AS y FROM a",
            "DOUBLE",
            &["1.5", "2.0"],
        ),
        ("SELECT 1 x INTERSECT SELECT 1.0", "BIGINT", &["1"]),
        ("SELECT 1 x EXCEPT SELECT 0.5", "BIGINT", &["1"]),
        ("SELECT 0.5 x EXCEPT SELECT 1", "DOUBLE", &["0.5"]),
    ] {
        let (found, found_rows) = type_and_rows(&folder, sql);
        assert_eq!(
            (found.as_str(), found_rows.as_slice()),
            (data_type, &*to_strings(rows)),
            "{sql}"
        );
    }
}

fn to_strings(rows: &[&str]) -> Vec<String> {
    rows.iter().map(|row| (*row).to_string()).collect()
}

#[test]
fn union_columns_are_named_by_the_first_branch() {
    let folder = Folder::new();
    folder.write("a.csv", "x\n1\n2\n");
    let sql = "SELECT sum(x), max(x) AS m FROM '$/a.csv' UNION ALL SELECT 0.5, 1";
    assert_eq!(folder.run_sql(sql).column_names(), ["sum(x)", "m"]);
}

#[test]
fn a_union_of_files_keeps_every_value() {
    let folder = Folder::new();
    let mut random = Random(7);
    for round in 0..12 {
        let whole: Vec<i64> = (0..5).map(|_| (random.next() >> 12) as i64).collect();
        let part: Vec<f64> = (0..5).map(|_| (random.next() >> 40) as f64 / 8.0).collect();
        let lines = |values: Vec<String>| format!("x\n{}\n", values.join("\n"));
        folder.write("i.csv", lines(whole.iter().map(i64::to_string).collect()));
        folder.write("f.csv", lines(part.iter().map(|v| format!("{v:?}")).collect()));
        let (first, second) = if round % 2 == 0 { ("i", "f") } else { ("f", "i") };
        let sql = format!("SELECT x FROM '$/{first}.csv' UNION ALL SELECT x FROM '$/{second}.csv'");
        let answer = folder.run_sql(&sql);
        let mut found: Vec<f64> = answer
            .batches
            .iter()
            .flat_map(|batch| {
                let column = batch.column(0).as_any();
                let column = column.downcast_ref::<arrow::array::Float64Array>().unwrap();
                assert_eq!(column.null_count(), 0);
                column.values().to_vec()
            })
            .collect();
        let mut expected: Vec<f64> =
            whole.iter().map(|v| *v as f64).chain(part.iter().copied()).collect();
        found.sort_by(f64::total_cmp);
        expected.sort_by(f64::total_cmp);
        assert_eq!(found, expected, "{sql}");
    }
}

#[test]
fn union_without_a_lossless_common_type_is_refused() {
    let folder = Folder::new();
    for sql in [
        "SELECT CAST('9999-12-31' AS TIMESTAMP) x UNION ALL SELECT CAST('2020-01-01' AS TIMESTAMP(9))",
        "SELECT CAST(1e37 AS DECIMAL(38,0)) x UNION ALL SELECT CAST(0.5 AS DECIMAL(38,30))",
    ] {
        assert!(folder.try_run_sql(sql, &settings()).is_err(), "{sql}");
    }
}

#[test]
fn union_of_a_duplicated_column_is_sorted() {
    let folder = Folder::new();
    folder.write("u.csv", "x,f\n2,2.5\n1,1.5\n3,\n");
    for column in ["x", "f"] {
        let branch = format!("SELECT {column} AS a, {column} AS b FROM '$/u.csv'");
        let grouped = format!("SELECT {column} AS c, {column} AS d FROM '$/u.csv' GROUP BY 1, 2");
        let answer = |order: &str| {
            let sql = format!("{branch} UNION ALL {grouped} ORDER BY {order}");
            folder.run_sql(&sql).rows()
        };
        let rows = answer("a, b DESC");
        assert_eq!(rows.len(), 6);
        assert!(rows.iter().all(|row| row[0] == row[1]));
        let mut sorted = rows.clone();
        sorted.sort();
        assert_eq!(rows, sorted, "{column}");
        assert_eq!(answer("b"), rows);
        assert_eq!(answer("1, 2"), rows);
    }
}

#[test]
fn limited_union_is_sorted_by_a_constant_branch_column() {
    let folder = Folder::new();
    folder.write("t.csv", "x\n0.5\n1.5\n");
    let from = "FROM '$/t.csv'";
    for _ in 0..20 {
        for (last, expected) in [("DESC", "rome"), ("ASC", "ann")] {
            let sql = format!(
                "SELECT x, 'ann' AS c {from} UNION ALL SELECT x, 'rome' {from} \
                 UNION ALL SELECT x, 'mia' {from} ORDER BY 1, 2 {last} LIMIT 1"
            );
            assert_eq!(folder.run_sql(&sql).rows(), [["0.5", expected]], "{sql}");
        }
    }
}

/// DataFusion takes the rows above for sorted by the second column, and reads them on two threads.
#[test]
fn limited_union_is_sorted_again_by_the_outer_query() {
    let folder = Folder::new();
    folder.write("t.csv", "calm,word,flag\n3,b,true\n3,a,false\n5,c,true\n");
    let sql = "SELECT s.c1 FROM (SELECT quantile(calm, 0.5) AS c0, bool_and(flag) AS c1, 'rome' AS c2 \
               FROM '$/t.csv' UNION ALL SELECT CAST(2147483648 AS DOUBLE), flag, word FROM '$/t.csv' \
               ORDER BY 1 DESC NULLS LAST, 2 DESC NULLS LAST, 3 DESC NULLS LAST LIMIT 10) AS s \
               WHERE s.c2 <= s.c2 ORDER BY 1 DESC NULLS LAST";
    for threads in [1, 2, 4] {
        let settings = RunSettings { threads, ..settings() };
        let rows = folder.run_sql_with(sql, &settings).rows();
        assert_eq!(rows, [["true"], ["true"], ["false"], ["false"]], "{threads} threads");
    }
}

#[test]
fn union_of_text_with_any_type_is_text() {
    let folder = Folder::new();
    let others =
        ["DATE '2024-01-01'", "TIMESTAMP '2024-01-01 10:00:00'", "true", "[1, 2]", "5", "1.5"];
    for other in others {
        for sql in [
            format!("SELECT 'a' AS x UNION ALL SELECT {other}"),
            format!("SELECT {other} AS x UNION SELECT 'a'"),
            format!("SELECT NULL AS x UNION SELECT {other} UNION SELECT 'a' EXCEPT SELECT NULL"),
        ] {
            let text =
                folder.run_sql(&format!("SELECT CAST({other} AS TEXT) AS x")).rows().concat();
            let mut expected = [text[0].clone(), "a".to_owned()];
            expected.sort();
            assert_eq!(folder.run_sql(&sql).sorted_rows().concat(), expected, "{sql}");
        }
    }
}
