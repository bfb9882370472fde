//! Tests of expressions that a condition or a CASE guards: rows that it leaves out are not computed with, in
//! any format.

use crate::common::{Folder, QueryAnswer, query, run_query, settings};

/// Writes the rows `id n`, as text and as Parquet.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("g.csv", "id,n\n1,0\n2,2\n3,5\n4,\n");
    let table = folder.path().join("g.parquet");
    let sql = folder.substitute_path("SELECT id, n FROM '$/g.csv'");
    let batches = run_query(&query(sql), &settings()).unwrap().batches;
    let file = std::fs::File::create(table).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batches[0].schema(), None).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
    folder
}

fn rows_as_text(answer: &QueryAnswer) -> String {
    answer.sorted_rows().iter().map(|row| row.join(" ")).collect::<Vec<_>>().join(", ")
}

#[test]
fn failing_expression_is_not_evaluated_for_filtered_rows() {
    let folder = folder();
    for (sql, expected) in [
        ("SELECT id FROM t WHERE CASE WHEN n = 0 THEN false ELSE 10 // n > 3 END", "2"),
        ("SELECT id FROM t WHERE CASE n WHEN 0 THEN false ELSE 10 // n > 3 END", "2"),
        (
            "SELECT id FROM t WHERE CASE WHEN n = 0 THEN true WHEN 10 // n > 3 THEN false ELSE n = 5 END",
            "1, 3",
        ),
        ("SELECT id, CASE WHEN n <> 0 THEN 10 // n > 3 END FROM t", "1 ∅, 2 true, 3 false, 4 ∅"),
        ("SELECT count(*) FILTER (WHERE CASE WHEN n <> 0 THEN 10 // n > 3 END) FROM t", "1"),
        (
            "SELECT CASE WHEN n <> 0 THEN 10 // n > 3 END, count(*) FROM t GROUP BY 1",
            "false 1, true 1, ∅ 2",
        ),
        ("SELECT n FROM t GROUP BY n HAVING CASE WHEN n = 0 THEN false ELSE 10 // n > 3 END", "2"),
        ("SELECT sum(CASE WHEN n <> 0 AND 10 // n > 3 THEN 1 ELSE 0 END) FROM t", "1"),
        ("SELECT id FROM (SELECT * FROM t WHERE n <> 0) WHERE 10 // n > 3", "2"),
        ("SELECT id FROM (SELECT * FROM t WHERE n % 7 <> 0) WHERE 10 // n > 3", "2"),
        ("WITH a AS (SELECT * FROM t WHERE n <> 0) SELECT id FROM a WHERE 10 // n > 3", "2"),
        ("SELECT id FROM (SELECT id, 10 // n AS q FROM t WHERE n <> 0) WHERE q > 3", "2"),
        ("SELECT id FROM t WHERE n <> 0 AND 10 // n > 3", "2"),
        ("SELECT id FROM t WHERE n <> 0 AND 10 / n > 3", "2"),
        ("SELECT id, CASE WHEN n <> 0 THEN 9 / n END FROM t", "1 ∅, 2 4.5, 3 1.8, 4 ∅"),
        ("SELECT id FROM t WHERE 10 // n > 3 AND n <> 0", "2"),
        ("SELECT id FROM t WHERE n = 0 OR 10 // n > 3", "1, 2"),
        ("SELECT id FROM t WHERE n IS NOT NULL AND (n = 0 OR (id > 1 AND 10 // n > 3))", "1, 2"),
        ("SELECT id FROM t WHERE NOT (n = 0 OR 10 // n > 3)", "3"),
        (
            "SELECT id, n <> 0 AND 10 // n > 3, n = 0 OR 10 // n > 3 FROM t",
            "1 false true, 2 true true, 3 false false, 4 ∅ ∅",
        ),
        (
            "SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id AND a.n <> 0 AND b.id // a.n > 0",
            "2",
        ),
        (
            "SELECT a.id FROM t AS a LEFT JOIN t AS b ON a.id = b.id AND a.n <> 0 AND 10 // a.n > 3 WHERE b.id IS NULL",
            "1, 3, 4",
        ),
        (
            "SELECT x FROM (SELECT unnest(['1', 'a', '25']) AS x) \
             WHERE CASE WHEN x = 'a' THEN false ELSE CAST(x AS INT) > 3 END",
            "25",
        ),
        (
            "SELECT sum(10 // n) FILTER (WHERE n <> 0), count(10 // n) FILTER (WHERE n <> 0) FROM t",
            "7 2",
        ),
        ("SELECT bool_or(10 // n > 3) FILTER (WHERE n <> 0) FROM t", "true"),
        ("SELECT median(10 // n) FILTER (WHERE n <> 0) FROM t", "3.5"),
        ("SELECT id, max(10 // n) FILTER (WHERE n <> 0) OVER () FROM t WHERE id < 3", "1 5, 2 5"),
        (
            "SELECT id, sum(n) FILTER (WHERE n <> 0 AND 10 // n > 3) OVER () FROM t",
            "1 2, 2 2, 3 2, 4 2",
        ),
    ] {
        for name in ["g.csv", "g.parquet"] {
            let sql = sql.replace("FROM t", &format!("FROM '$/{name}'"));
            let sql = sql.replace("JOIN t", &format!("JOIN '$/{name}'"));
            assert_eq!(rows_as_text(&folder.run_sql(&sql)), expected, "{sql}");
        }
    }
}

#[test]
fn unguarded_failing_expression_is_an_error() {
    let folder = folder();
    for sql in [
        "SELECT id FROM '$/g.parquet' WHERE 10 // n > 3",
        "SELECT id FROM '$/g.parquet' WHERE id > 0 AND 10 // n > 3",
        "SELECT id, CASE WHEN id > 0 THEN 10 // n > 3 END FROM '$/g.csv'",
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains("division by zero"), "{message}");
    }
}

/// `10 / m > 3` is true, false and null in turn, and never an error.
#[test]
fn and_or_of_failing_expressions_follow_sql_logic() {
    let folder = Folder::new();
    let mut text = String::from("a,m\n");
    for a in ["true", "false", ""] {
        for m in ["2", "5", ""] {
            text.push_str(&format!("{a},{m}\n"));
        }
    }
    folder.write("v.csv", text);
    let plain = "m = 2";
    for form in [
        "a AND {}",
        "a OR {}",
        "{} AND a",
        "{} OR a",
        "NOT (a AND {})",
        "(a OR {}) AND (NOT a OR {})",
        "a AND ({} OR a IS NULL)",
        "(a AND {}) OR (a IS NULL AND {})",
        "(a OR {}) IS NULL",
    ] {
        for asked in ["SELECT a, m, {} AS c FROM '$/v.csv'", "SELECT a, m FROM '$/v.csv' WHERE {}"]
        {
            let of = |condition: &str| asked.replace("{}", &form.replace("{}", condition));
            let expected = folder.run_sql(&of(plain)).sorted_rows();
            assert_eq!(folder.run_sql(&of("10 / m > 3")).sorted_rows(), expected, "{form}");
        }
    }
}

/// A constant that does not fit is computed when a row reaches it, and not by the optimizer.
#[test]
fn failing_constant_is_an_error_only_if_reached() {
    let folder = Folder::new();
    folder.write("n.csv", "n\n1\n2\n");
    for (branch, expected) in [
        ("CASE WHEN 128 < 100 THEN CAST(128 AS TINYINT) ELSE n END", "1 2"),
        ("CASE WHEN n > 2 THEN CAST('abc' AS INT) ELSE n END", "1 2"),
        ("CASE WHEN n < 3 THEN n WHEN CAST('abc' AS INT) = 1 THEN 7 END", "1 2"),
        ("CASE WHEN n > 2 THEN year ELSE n END", "1 2"),
        ("CASE WHEN n > 2 THEN 9223372036854775807 + 1 ELSE n END", "1 2"),
        ("CASE WHEN n > 2 THEN 1 // 0 ELSE n END", "1 2"),
    ] {
        let branch = branch.replace("year", "extract(year FROM CAST('x' AS TIMESTAMP))");
        let sql = format!("SELECT {branch} AS x FROM '$/n.csv' ORDER BY n");
        assert_eq!(folder.run_sql(&sql).rows().concat().join(" "), expected, "{sql}");
        let reached =
            sql.replace("n > 2", "n > 1").replace("128 < 100", "true").replace("n < 3", "n < 2");
        let message = folder.sql_error(&reached);
        assert!(
            ["does not fit", "overflow", "divi"].iter().any(|part| message.contains(part)),
            "{reached}: {message}"
        );
    }
}

#[test]
fn join_conditions_do_not_depend_on_operand_order() {
    let folder = folder();
    for format in ["csv", "parquet"] {
        let table = format!("'$/g.{format}'");
        for (on, expected) in [
            ("a.n = b.n AND 2 = a.n", "1 ∅, 2 2, 3 ∅, 4 ∅"),
            ("a.n = b.n AND 2 = b.n AND b.n = 2", "1 ∅, 2 2, 3 ∅, 4 ∅"),
            ("a.n = b.n AND 2 <= a.n AND a.n > 2", "1 ∅, 2 ∅, 3 3, 4 ∅"),
            ("a.n = b.n AND a.n >= 2 AND 2 < a.n", "1 ∅, 2 ∅, 3 3, 4 ∅"),
            ("a.n = b.n AND 5 > a.n AND a.n <= 5", "1 1, 2 2, 3 ∅, 4 ∅"),
            ("a.n = b.n AND NULL = a.n", "1 ∅, 2 ∅, 3 ∅, 4 ∅"),
        ] {
            let join = format!("FROM {table} AS a LEFT JOIN {table} AS b ON {on}");
            let sql = folder.substitute_path(&format!("SELECT a.id, b.id AS other {join}"));
            assert_eq!(
                rows_as_text(&run_query(&query(sql), &settings()).unwrap()),
                expected,
                "{on}"
            );
        }
    }
}
