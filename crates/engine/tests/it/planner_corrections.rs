//! Tests of queries in which DataFusion's own plans lose a row, a null or a value.

use crate::common::Folder;
use crate::conversion::{conversion, convert_to_one_file};

fn assert_rows(folder: &Folder, sql: &str, expected: &str) {
    let mut rows = folder.run_sql(sql).rows();
    rows.sort();
    let found = rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join(", ");
    assert_eq!(found, expected, "{sql}");
}

#[test]
fn equal_conditions_in_either_operand_order_keep_the_row() {
    let folder = Folder::new();
    folder.write("k.csv", "k,v\na,1\nb,2\n");
    let sides = ["'a' = b.k", "b.k = 'a'"];
    for (on, filter) in sides.iter().flat_map(|on| sides.iter().map(move |filter| (on, filter))) {
        for join in ["JOIN", "LEFT JOIN"] {
            let joined = format!("'$/k.csv' a {join} '$/k.csv' b ON a.v = b.v");
            for sql in [
                format!("SELECT a.v FROM {joined} AND {on} WHERE {filter}"),
                format!("SELECT a.v FROM {joined} WHERE {on} AND {filter}"),
                format!("SELECT v FROM (SELECT a.v, b.k FROM {joined} AND {on}) b WHERE {filter}"),
            ] {
                assert_rows(&folder, &sql, "1");
            }
        }
    }
}

/// The recursion reads the table anew at each level.
#[test]
fn recursion_over_a_file_reads_it_at_each_level() {
    let folder = Folder::new();
    folder.write("edges.csv", "a,b\n0,1\n1,2\n2,3\n");
    for union in ["UNION ALL", "UNION"] {
        for step in [
            "SELECT e.b FROM r JOIN '$/edges.csv' e ON e.a = r.n",
            "SELECT e.b FROM r, '$/edges.csv' e WHERE e.a = r.n",
            "SELECT n + 1 FROM r WHERE n IN (SELECT a FROM '$/edges.csv')",
        ] {
            let sql = format!("WITH RECURSIVE r AS (SELECT 0 AS n {union} {step}) SELECT * FROM r");
            assert_rows(&folder, &sql, "0, 1, 2, 3");
            assert_eq!(folder.run_sql(&sql).coverage.rows.done, 3, "{sql}");
        }
    }
    let sql = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT max(n) + 1 FROM r HAVING max(n) < 4) \
               SELECT * FROM r";
    assert_rows(&folder, sql, "1, 2, 3, 4");
}

#[test]
fn in_lists_of_expressions_follow_null_logic() {
    let folder = Folder::new();
    folder.write("n.csv", "id,x,a,b\n1,1,1,2\n2,2,2,9\n3,,1,2\n4,7,4,4\n");
    let from = "FROM '$/n.csv'";
    for (what, expected) in [
        ("abs(x) IN (nullif(a, 5), 3)", "1 true, 2 true, 3 ∅, 4 false"),
        ("abs(x) NOT IN (nullif(a, 4), 3)", "1 false, 2 false, 3 ∅, 4 ∅"),
        ("x + 0 IN (CASE WHEN a > 1 THEN 2 END, 7)", "1 ∅, 2 true, 3 ∅, 4 true"),
        ("x IN (1, 2, 3, 4) AND x IN (a, b, 8, 9)", "1 true, 2 true, 3 ∅, 4 false"),
        ("x IN (1, 2, 3, 4) AND x NOT IN (a, b, 8, 9)", "1 false, 2 false, 3 ∅, 4 false"),
        ("x IN (1, 2, 3, 4) AND x NOT IN (7, NULL)", "1 ∅, 2 ∅, 3 ∅, 4 false"),
        ("x IN (1, 2, 3, NULL) AND x NOT IN (1, 5, 6, 7)", "1 false, 2 true, 3 ∅, 4 false"),
        ("x NOT IN (0, 1) OR x NOT IN (2, 3)", "1 true, 2 true, 3 ∅, 4 true"),
        ("NOT (x IN (0, 1) AND x IN (2, 3))", "1 true, 2 true, 3 ∅, 4 true"),
        ("x NOT IN (0, 1) OR x NOT IN (1, 3)", "1 false, 2 true, 3 ∅, 4 true"),
    ] {
        assert_rows(&folder, &format!("SELECT id, {what} AS y {from}"), expected);
        let kept: Vec<&str> =
            expected.split(", ").filter_map(|row| row.strip_suffix(" true")).collect();
        assert_rows(&folder, &format!("SELECT id {from} WHERE {what}"), &kept.join(", "));
        // Through a column of a subquery, which the optimizer replaces by the expression.
        let sql = format!("SELECT id FROM (SELECT id, {what} AS y {from}) WHERE y");
        assert_rows(&folder, &sql, &kept.join(", "));
    }
    let inner = "SELECT x + 0 IN (c, 3) AS y FROM (SELECT x, nullif(a, 5) AS c FROM '$/n.csv')";
    assert_rows(&folder, inner, "false, true, true, ∅");
    assert_rows(
        &folder,
        &format!("SELECT list_contains([a, nullif(x, 7)], 4) AS y {from}"),
        "false, false, false, true",
    );
}

#[test]
fn lossy_cast_in_a_comparison_is_kept() {
    let folder = Folder::new();
    folder.write("c.csv", "id,x,d\n1,300,12.345\n2,2,1.25\n");
    let from = "FROM '$/c.csv'";
    assert_rows(&folder, &format!("SELECT id, TRY_CAST(x AS TINYINT) <> 1 {from}"), "1 ∅, 2 true");
    assert_rows(&folder, &format!("SELECT id {from} WHERE TRY_CAST(x AS TINYINT) > 1"), "2");
    assert_rows(
        &folder,
        &format!("SELECT id {from} WHERE TRY_CAST(x AS TINYINT) NOT IN (1, 3)"),
        "2",
    );
    let decimal = "TRY_CAST(CAST(d AS DECIMAL(10, 4)) AS DECIMAL(3, 2)) = 1.25";
    assert_rows(&folder, &format!("SELECT id, {decimal} {from}"), "1 ∅, 2 true");
    let sql = format!("SELECT id {from} WHERE CAST(x AS TINYINT) <> 1");
    assert!(folder.sql_error(&sql).contains("`300` does not fit"), "{sql}");
    let times = "SELECT CAST(t AS TIMESTAMP(0)) = TIMESTAMP '2024-01-01 10:00:00' \
                 FROM (SELECT TIMESTAMP '2024-01-01 10:00:00.4' AS t)";
    assert_rows(&folder, times, "true");
}

/// Bounds of timestamps are no bounds of their times of day.
#[test]
fn order_changing_cast_does_not_prune_blocks() {
    let folder = Folder::new();
    folder.write("t.csv", "ts,s\n2024-01-01T23:00:00,9\n2024-01-02T01:00:00,10\n");
    for format in ["parquet", "rowfile", "arrow"] {
        convert_to_one_file(&conversion(&folder, &["t.csv"], &format!("t.{format}"))).unwrap();
        for (what, expected) in [
            ("CAST(ts AS TIME) > TIME '12:00:00'", "1"),
            ("CAST(ts AS TIME) < TIME '12:00:00'", "1"),
            ("NOT CAST(ts AS TIME) = TIME '23:00:00'", "1"),
            ("CAST(ts AS DATE) = DATE '2024-01-02'", "1"),
            ("CAST(CAST(s AS TEXT) AS INT) > 9", "1"),
            ("CAST(s AS TEXT) > '2'", "1"),
        ] {
            assert_rows(
                &folder,
                &format!("SELECT count(*) FROM '$/t.{format}' WHERE {what}"),
                expected,
            );
        }
    }
}

#[test]
fn pattern_match_of_null_is_null() {
    let folder = Folder::new();
    folder.write("r.csv", "id,s\n1,a\n2,\n");
    assert_rows(
        &folder,
        "SELECT id, s ~ '.*', NOT (s ~ '.*'), s !~ '.*' FROM '$/r.csv'",
        "1 true false false, 2 ∅ ∅ ∅",
    );
}

#[test]
fn integer_division_and_decimal_rounding_keep_types() {
    let folder = Folder::new();
    folder.write("u.csv", "n\n7\n-7\n");
    let sql = "SELECT n, n // array_length([1, 2]), n // CAST(2 AS BIGINT UNSIGNED), n / 2 FROM '$/u.csv'";
    assert_rows(&folder, sql, "-7 -3 -3 -3.5, 7 3 3 3.5");
    let sql = "SELECT ceil(CAST(9.99 AS DECIMAL(3, 2))), floor(CAST(-9.99 AS DECIMAL(3, 2))), \
               floor(CAST(-99999999.99 AS DECIMAL(10, 2)))";
    assert_rows(&folder, sql, "10.00 -10.00 -100000000.00");
}

#[test]
fn failing_join_condition_is_evaluated_last() {
    let folder = Folder::new();
    folder.write("g.csv", "id,x\n1,0\n2,5\n");
    for join in ["LEFT", "FULL", "RIGHT", "INNER"] {
        for on in ["1000 / t.x > 3 AND t.x <> 0", "t.x <> 0 AND 1000 / t.x > 3"] {
            let sql = format!(
                "SELECT count(u.id) FROM '$/g.csv' t {join} JOIN '$/g.csv' u ON t.id = u.id AND {on} \
                 WHERE t.id = 2"
            );
            assert_rows(&folder, &sql, "1");
        }
    }
}

#[test]
fn ambiguous_order_by_and_join_are_refused() {
    let folder = Folder::new();
    folder.write("o.csv", "a,c\n1,x\n2,y\n");
    for sql in [
        "SELECT -a AS a FROM '$/o.csv' ORDER BY a + 0 LIMIT 1",
        "SELECT c, max(a) AS a FROM '$/o.csv' GROUP BY c ORDER BY max(a)",
        "SELECT * FROM (SELECT -a AS a FROM '$/o.csv' ORDER BY a % 2 LIMIT 1)",
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains("`a` in ORDER BY is a column, and something else"), "{message}");
    }
    assert_rows(&folder, "SELECT -a AS a FROM '$/o.csv' ORDER BY a LIMIT 1", "-2");
    assert_rows(&folder, "SELECT a AS b FROM '$/o.csv' ORDER BY a + 0, b LIMIT 1", "1");
    assert_rows(&folder, "SELECT a * 2 AS y FROM '$/o.csv' ORDER BY y + 1 LIMIT 1", "2");
    let message = folder.sql_error("SELECT count(*) FROM '$/o.csv' x JOIN '$/o.csv' y");
    assert!(message.contains("JOIN without ON"), "{message}");
    let message =
        folder.sql_error("SELECT lead(a, 2) IGNORE NULLS OVER (ORDER BY a) FROM '$/o.csv'");
    assert!(message.contains("takes no IGNORE NULLS"), "{message}");
    assert_rows(&folder, "SELECT lead(a) IGNORE NULLS OVER (ORDER BY a) FROM '$/o.csv'", "2, ∅");
}

#[test]
fn alias_column_list_names_the_columns() {
    let folder = Folder::new();
    assert_rows(&folder, "WITH t(a, b) AS (SELECT 0, 0) SELECT a, b FROM t", "0 0");
    assert_rows(&folder, "SELECT x + y FROM (SELECT 1, 1) AS v(x, y)", "2");
    let sql = "WITH RECURSIVE r(n, d) AS (SELECT 0, 0 UNION ALL SELECT n + 1, d + 2 FROM r WHERE n < 2) \
               SELECT n, d FROM r";
    assert_rows(&folder, sql, "0 0, 1 2, 2 4");
    folder.write("e.csv", "ts\n2024-01-01T10:00:00\n2024-01-01T10:30:00\n2024-01-01T12:00:00\n");
    let sql = "SELECT count(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) \
               FROM '$/e.csv'";
    assert_rows(&folder, sql, "1, 1, 2");
}

/// As in the SQL standard, a null in the list may be equal to anything.
#[test]
fn any_and_all_over_lists_follow_null_logic() {
    let folder = Folder::new();
    folder.write("n.csv", "x,a,b\n1,1,2\n2,,2\n3,1,\n,1,2\n");
    for op in ["=", "<>", "<", "<=", ">", ">="] {
        for (word, joined) in [("ANY", "OR"), ("SOME", "OR"), ("ALL", "AND")] {
            let sql = format!(
                "SELECT x, x {op} {word}([a, b]), x {op} {word}(l), x {op} a {joined} x {op} b \
                 FROM (SELECT *, [a, b] AS l FROM '$/n.csv')"
            );
            for row in folder.run_sql(&sql).rows() {
                assert_eq!(row[1], row[3], "{sql}: x is {}", row[0]);
                assert_eq!(row[2], row[3], "{sql}: x is {}", row[0]);
            }
        }
    }
    assert_rows(
        &folder,
        "SELECT 3 = ANY([1, NULL]), 1 = ANY([1, NULL]), 3 = ANY(make_array())",
        "∅ true false",
    );
    assert_rows(&folder, "SELECT x FROM '$/n.csv' WHERE NOT x = ANY([a, b])", "");
    let of_two_types =
        "SELECT CAST(5 AS BIGINT UNSIGNED) = ANY([255, -1, CAST(5 AS DECIMAL(9, 2))])";
    assert_rows(&folder, of_two_types, "true");
    let many = (0..150).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    assert_rows(
        &folder,
        &format!("SELECT x FROM '$/n.csv' WHERE x + 100 = ANY([{many}])"),
        "1, 2, 3",
    );
    let said =
        folder.sql_error("SELECT array_has([CAST(1 AS DECIMAL(9, 2))], CAST(1 AS DECIMAL(9, 4)))");
    assert!(said.starts_with("there is no `array_has(DECIMAL(9, 2)[], DECIMAL(9, 4))`"), "{said}");
}
