//! Where DataFusion's own plans lose a row, a null or a value.

use crate::common::Folder;
use crate::conversion::{conversion, to_one};

fn check(folder: &Folder, sql: &str, expected: &str) {
    let mut rows = folder.ask(sql).rows();
    rows.sort();
    let found = rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join(", ");
    assert_eq!(found, expected, "{sql}");
}

#[test]
fn equalities_of_one_column_agree_whichever_side_it_stands_on() {
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
                check(&folder, &sql, "1");
            }
        }
    }
}

/// A table is read anew at each level.
#[test]
fn a_recursion_over_a_file_goes_to_its_end() {
    let folder = Folder::new();
    folder.write("edges.csv", "a,b\n0,1\n1,2\n2,3\n");
    for union in ["UNION ALL", "UNION"] {
        for step in [
            "SELECT e.b FROM r JOIN '$/edges.csv' e ON e.a = r.n",
            "SELECT e.b FROM r, '$/edges.csv' e WHERE e.a = r.n",
            "SELECT n + 1 FROM r WHERE n IN (SELECT a FROM '$/edges.csv')",
        ] {
            let sql = format!("WITH RECURSIVE r AS (SELECT 0 AS n {union} {step}) SELECT * FROM r");
            check(&folder, &sql, "0, 1, 2, 3");
            assert_eq!(folder.ask(&sql).coverage.rows.done, 3, "{sql}");
        }
    }
    let sql = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT max(n) + 1 FROM r HAVING max(n) < 4) \
               SELECT * FROM r";
    check(&folder, sql, "1, 2, 3, 4");
}

#[test]
fn lists_of_any_values_are_compared_with_each() {
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
        check(&folder, &format!("SELECT id, {what} AS y {from}"), expected);
        let kept: Vec<&str> =
            expected.split(", ").filter_map(|row| row.strip_suffix(" true")).collect();
        check(&folder, &format!("SELECT id {from} WHERE {what}"), &kept.join(", "));
        // Through a column of a subquery, in whose place the optimiser puts the expression.
        let sql = format!("SELECT id FROM (SELECT id, {what} AS y {from}) WHERE y");
        check(&folder, &sql, &kept.join(", "));
    }
    let inner = "SELECT x + 0 IN (c, 3) AS y FROM (SELECT x, nullif(a, 5) AS c FROM '$/n.csv')";
    check(&folder, inner, "false, true, true, ∅");
    check(
        &folder,
        &format!("SELECT list_contains([a, nullif(x, 7)], 4) AS y {from}"),
        "false, false, false, true",
    );
}

#[test]
fn a_cast_that_loses_values_stays_where_it_is_compared() {
    let folder = Folder::new();
    folder.write("c.csv", "id,x,d\n1,300,12.345\n2,2,1.25\n");
    let from = "FROM '$/c.csv'";
    check(&folder, &format!("SELECT id, TRY_CAST(x AS TINYINT) <> 1 {from}"), "1 ∅, 2 true");
    check(&folder, &format!("SELECT id {from} WHERE TRY_CAST(x AS TINYINT) > 1"), "2");
    check(&folder, &format!("SELECT id {from} WHERE TRY_CAST(x AS TINYINT) NOT IN (1, 3)"), "2");
    let decimal = "TRY_CAST(CAST(d AS DECIMAL(10, 4)) AS DECIMAL(3, 2)) = 1.25";
    check(&folder, &format!("SELECT id, {decimal} {from}"), "1 ∅, 2 true");
    let sql = format!("SELECT id {from} WHERE CAST(x AS TINYINT) <> 1");
    assert!(folder.refusal(&sql).contains("`300` does not fit"), "{sql}");
    let times = "SELECT CAST(t AS TIMESTAMP(0)) = TIMESTAMP '2024-01-01 10:00:00' \
                 FROM (SELECT TIMESTAMP '2024-01-01 10:00:00.4' AS t)";
    check(&folder, times, "true");
}

/// Bounds of timestamps say nothing of their times of day.
#[test]
fn no_block_is_left_out_by_a_cast_that_turns_the_order() {
    let folder = Folder::new();
    folder.write("t.csv", "ts,s\n2024-01-01T23:00:00,9\n2024-01-02T01:00:00,10\n");
    for format in ["parquet", "rowfile", "arrow"] {
        to_one(&conversion(&folder, &["t.csv"], &format!("t.{format}"))).unwrap();
        for (what, expected) in [
            ("CAST(ts AS TIME) > TIME '12:00:00'", "1"),
            ("CAST(ts AS TIME) < TIME '12:00:00'", "1"),
            ("NOT CAST(ts AS TIME) = TIME '23:00:00'", "1"),
            ("CAST(ts AS DATE) = DATE '2024-01-02'", "1"),
            ("CAST(CAST(s AS TEXT) AS INT) > 9", "1"),
            ("CAST(s AS TEXT) > '2'", "1"),
        ] {
            check(&folder, &format!("SELECT count(*) FROM '$/t.{format}' WHERE {what}"), expected);
        }
    }
}

#[test]
fn a_null_matches_no_pattern_and_is_no_mismatch() {
    let folder = Folder::new();
    folder.write("r.csv", "id,s\n1,a\n2,\n");
    check(
        &folder,
        "SELECT id, s ~ '.*', NOT (s ~ '.*'), s !~ '.*' FROM '$/r.csv'",
        "1 true false false, 2 ∅ ∅ ∅",
    );
}

#[test]
fn whole_numbers_and_decimals_are_divided_and_rounded_as_such() {
    let folder = Folder::new();
    folder.write("u.csv", "n\n7\n-7\n");
    let sql = "SELECT n, n // array_length([1, 2]), n // CAST(2 AS BIGINT UNSIGNED), n / 2 FROM '$/u.csv'";
    check(&folder, sql, "-7 -3 -3 -3.5, 7 3 3 3.5");
    let sql = "SELECT ceil(CAST(9.99 AS DECIMAL(3, 2))), floor(CAST(-9.99 AS DECIMAL(3, 2))), \
               floor(CAST(-99999999.99 AS DECIMAL(10, 2)))";
    check(&folder, sql, "10.00 -10.00 -100000000.00");
}

#[test]
fn what_may_fail_in_a_joins_condition_comes_last() {
    let folder = Folder::new();
    folder.write("g.csv", "id,x\n1,0\n2,5\n");
    for join in ["LEFT", "FULL", "RIGHT", "INNER"] {
        for on in ["1000 / t.x > 3 AND t.x <> 0", "t.x <> 0 AND 1000 / t.x > 3"] {
            let sql = format!(
                "SELECT count(u.id) FROM '$/g.csv' t {join} JOIN '$/g.csv' u ON t.id = u.id AND {on} \
                 WHERE t.id = 2"
            );
            check(&folder, &sql, "1");
        }
    }
}

#[test]
fn what_has_two_meanings_is_refused() {
    let folder = Folder::new();
    folder.write("o.csv", "a,c\n1,x\n2,y\n");
    for sql in [
        "SELECT -a AS a FROM '$/o.csv' ORDER BY a + 0 LIMIT 1",
        "SELECT c, max(a) AS a FROM '$/o.csv' GROUP BY c ORDER BY max(a)",
        "SELECT * FROM (SELECT -a AS a FROM '$/o.csv' ORDER BY a % 2 LIMIT 1)",
    ] {
        let message = folder.refusal(sql);
        assert!(message.contains("`a` in ORDER BY is a column, and something else"), "{message}");
    }
    check(&folder, "SELECT -a AS a FROM '$/o.csv' ORDER BY a LIMIT 1", "-2");
    check(&folder, "SELECT a AS b FROM '$/o.csv' ORDER BY a + 0, b LIMIT 1", "1");
    check(&folder, "SELECT a * 2 AS y FROM '$/o.csv' ORDER BY y + 1 LIMIT 1", "2");
    let message = folder.refusal("SELECT count(*) FROM '$/o.csv' x JOIN '$/o.csv' y");
    assert!(message.contains("JOIN without ON"), "{message}");
    let message = folder.refusal("SELECT lead(a, 2) IGNORE NULLS OVER (ORDER BY a) FROM '$/o.csv'");
    assert!(message.contains("takes no IGNORE NULLS"), "{message}");
    check(&folder, "SELECT lead(a) IGNORE NULLS OVER (ORDER BY a) FROM '$/o.csv'", "2, ∅");
}

#[test]
fn columns_are_called_as_the_list_behind_the_name_says() {
    let folder = Folder::new();
    check(&folder, "WITH t(a, b) AS (SELECT 0, 0) SELECT a, b FROM t", "0 0");
    check(&folder, "SELECT x + y FROM (SELECT 1, 1) AS v(x, y)", "2");
    let sql = "WITH RECURSIVE r(n, d) AS (SELECT 0, 0 UNION ALL SELECT n + 1, d + 2 FROM r WHERE n < 2) \
               SELECT n, d FROM r";
    check(&folder, sql, "0 0, 1 2, 2 4");
    folder.write("e.csv", "ts\n2024-01-01T10:00:00\n2024-01-01T10:30:00\n2024-01-01T12:00:00\n");
    let sql = "SELECT count(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) \
               FROM '$/e.csv'";
    check(&folder, sql, "1, 1, 2");
}

/// As the standard has it: a null in the list may be equal to anything.
#[test]
fn any_and_all_of_a_list_are_unknown_where_a_null_decides() {
    let folder = Folder::new();
    folder.write("n.csv", "x,a,b\n1,1,2\n2,,2\n3,1,\n,1,2\n");
    for op in ["=", "<>", "<", "<=", ">", ">="] {
        for (word, joined) in [("ANY", "OR"), ("SOME", "OR"), ("ALL", "AND")] {
            let sql = format!(
                "SELECT x, x {op} {word}([a, b]), x {op} {word}(l), x {op} a {joined} x {op} b \
                 FROM (SELECT *, [a, b] AS l FROM '$/n.csv')"
            );
            for row in folder.ask(&sql).rows() {
                assert_eq!(row[1], row[3], "{sql}: x is {}", row[0]);
                assert_eq!(row[2], row[3], "{sql}: x is {}", row[0]);
            }
        }
    }
    check(
        &folder,
        "SELECT 3 = ANY([1, NULL]), 1 = ANY([1, NULL]), 3 = ANY(make_array())",
        "∅ true false",
    );
    check(&folder, "SELECT x FROM '$/n.csv' WHERE NOT x = ANY([a, b])", "");
    let of_two_types =
        "SELECT CAST(5 AS BIGINT UNSIGNED) = ANY([255, -1, CAST(5 AS DECIMAL(9, 2))])";
    check(&folder, of_two_types, "true");
    let many = (0..150).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    check(&folder, &format!("SELECT x FROM '$/n.csv' WHERE x + 100 = ANY([{many}])"), "1, 2, 3");
    let said =
        folder.refusal("SELECT array_has([CAST(1 AS DECIMAL(9, 2))], CAST(1 AS DECIMAL(9, 4)))");
    assert!(said.starts_with("there is no `array_has(DECIMAL(9, 2)[], DECIMAL(9, 4))`"), "{said}");
}
