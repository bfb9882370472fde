//! Tests of LIMIT and OFFSET in subqueries: they keep the same rows under a sort, a window, a group or a join.

use std::fmt::Write as _;

use tidemill_engine::RunSettings;

use crate::common::{Folder, settings, string_rows};

/// Statements over a table `$t` whose column `x` holds 5, 3, 9, 1 and 7, and the expected rows.
const LIMIT_CASES: &[(&str, &[&[&str]])] = &[
    ("SELECT x FROM (SELECT x FROM $t LIMIT 2) ORDER BY x", &[&["3"], &["5"]]),
    ("SELECT x FROM (SELECT x FROM $t LIMIT 2) ORDER BY x DESC", &[&["5"], &["3"]]),
    ("SELECT x FROM (SELECT x FROM $t LIMIT 2 OFFSET 2) ORDER BY x", &[&["1"], &["9"]]),
    ("SELECT x FROM (SELECT x FROM $t OFFSET 3) ORDER BY x DESC", &[&["7"], &["1"]]),
    (
        "SELECT x FROM (SELECT x FROM $t LIMIT 4 OFFSET 1) ORDER BY x LIMIT 2 OFFSET 1",
        &[&["3"], &["7"]],
    ),
    ("SELECT x + 1 AS y FROM (SELECT x FROM $t LIMIT 3) ORDER BY -x", &[&["10"], &["6"], &["4"]]),
    ("SELECT x FROM (SELECT x FROM $t WHERE x > 4 LIMIT 2 OFFSET 1) ORDER BY x", &[&["7"], &["9"]]),
    ("SELECT x FROM (SELECT x FROM $t LIMIT 3) WHERE x > 3 ORDER BY x", &[&["5"], &["9"]]),
    (
        "SELECT x, row_number() OVER (ORDER BY x) FROM (SELECT x FROM $t LIMIT 2) ORDER BY 1",
        &[&["3", "1"], &["5", "2"]],
    ),
    (
        "SELECT x, row_number() OVER (ORDER BY x) FROM (SELECT x FROM $t LIMIT 2 OFFSET 2) \
         ORDER BY 1",
        &[&["1", "1"], &["9", "2"]],
    ),
    (
        "SELECT x, sum(x) OVER (PARTITION BY x % 2 ORDER BY x) FROM \
         (SELECT x FROM $t LIMIT 3 OFFSET 1) ORDER BY 1",
        &[&["1", "1"], &["3", "4"], &["9", "13"]],
    ),
    (
        "SELECT x FROM (SELECT x, lag(x) OVER (ORDER BY x) AS l FROM (SELECT x FROM $t LIMIT 3)) \
      WHERE l = 5",
        &[&["9"]],
    ),
    ("SELECT DISTINCT x % 2 FROM (SELECT x FROM $t LIMIT 3 OFFSET 2)", &[&["1"]]),
    (
        "SELECT x FROM (SELECT DISTINCT x FROM $t ORDER BY x LIMIT 2 OFFSET 1) ORDER BY x DESC",
        &[&["5"], &["3"]],
    ),
    (
        "SELECT x % 3 AS k, count(*), sum(x) FROM (SELECT x FROM $t LIMIT 3 OFFSET 2) GROUP BY k \
         ORDER BY k",
        &[&["0", "1", "9"], &["1", "2", "8"]],
    ),
    (
        "SELECT k FROM (SELECT x AS k, count(*) FROM $t GROUP BY x ORDER BY x DESC LIMIT 2 OFFSET 2) \
         ORDER BY k",
        &[&["3"], &["5"]],
    ),
    (
        "SELECT x FROM ((SELECT x FROM $t LIMIT 2) UNION ALL (SELECT x FROM $t LIMIT 1 OFFSET 3)) \
         ORDER BY x",
        &[&["1"], &["3"], &["5"]],
    ),
    (
        "SELECT x FROM (SELECT x FROM $t UNION ALL SELECT x + 10 FROM $t LIMIT 3 OFFSET 4) \
         ORDER BY x DESC",
        &[&["15"], &["13"], &["7"]],
    ),
    (
        "SELECT x FROM (SELECT x FROM (SELECT x FROM $t LIMIT 4) OFFSET 1) ORDER BY x",
        &[&["1"], &["3"], &["9"]],
    ),
    (
        "SELECT x FROM (SELECT x FROM (SELECT x FROM $t ORDER BY x LIMIT 4) LIMIT 2 OFFSET 1) \
      ORDER BY x DESC",
        &[&["5"], &["3"]],
    ),
    (
        "SELECT a.x FROM (SELECT x FROM $t LIMIT 2) AS a JOIN $t AS b ON a.x = b.x ORDER BY 1",
        &[&["3"], &["5"]],
    ),
    (
        "SELECT a.x FROM (SELECT x FROM $t LIMIT 3) AS a JOIN (SELECT x FROM $t OFFSET 2) AS b \
         ON a.x = b.x ORDER BY 1",
        &[&["9"]],
    ),
    (
        "SELECT x FROM $t WHERE x IN (SELECT x FROM $t LIMIT 2 OFFSET 1) ORDER BY x",
        &[&["3"], &["9"]],
    ),
    ("SELECT (SELECT x FROM $t LIMIT 1 OFFSET 2) AS third", &[&["9"]]),
    ("WITH a AS (SELECT x FROM $t LIMIT 2) SELECT x FROM a ORDER BY x", &[&["3"], &["5"]]),
    ("SELECT max(x), min(x) FROM (SELECT x FROM $t LIMIT 2 OFFSET 2)", &[&["9", "1"]]),
    (
        "SELECT list FROM (SELECT array_agg(x ORDER BY x) AS list FROM (SELECT x FROM $t LIMIT 2))",
        &[&["[3, 5]"]],
    ),
    // A sorted subquery keeps its order up to a LIMIT, and to the result.
    ("SELECT x FROM (SELECT x FROM $t ORDER BY x DESC) LIMIT 2", &[&["9"], &["7"]]),
    (
        "SELECT y FROM (SELECT 2 * x AS y FROM $t ORDER BY x) WHERE y > 6",
        &[&["10"], &["14"], &["18"]],
    ),
    ("WITH s AS (SELECT x FROM $t ORDER BY x) SELECT x FROM s LIMIT 1 OFFSET 1", &[&["3"]]),
    ("SELECT (SELECT x FROM (SELECT x FROM $t ORDER BY x DESC) LIMIT 1) AS largest", &[&["9"]]),
    ("SELECT max(x), count(*) FROM (SELECT x FROM $t ORDER BY x)", &[&["9", "5"]]),
    // Sorted sources come one after the other.
    (
        "SELECT * FROM (SELECT * FROM range(3) UNION ALL SELECT * FROM range(2) LIMIT 4) AS r(x)",
        &[&["0"], &["1"], &["2"], &["0"]],
    ),
    // A sort by a column that is not used above it.
    ("SELECT sum(y) FROM (SELECT 10 - x AS y, x FROM $t ORDER BY x OFFSET 3) AS s", &[&["4"]]),
    (
        "WITH s AS (SELECT 10 - x AS y, x FROM $t ORDER BY x OFFSET 3) SELECT DISTINCT y FROM s \
         ORDER BY y",
        &[&["1"], &["3"]],
    ),
    (
        "SELECT sum(y) FROM (SELECT 10 - x AS y, max(x) AS m FROM $t GROUP BY x ORDER BY m OFFSET 3) AS s",
        &[&["4"]],
    ),
    (
        "SELECT y, row_number() OVER (ORDER BY y) FROM \
         (SELECT 10 - x AS y, x FROM $t ORDER BY x DESC OFFSET 3) AS s ORDER BY y",
        &[&["7", "1"], &["9", "2"]],
    ),
    // Expressions that fail for a row that a limit leaves out.
    ("SELECT 60 // (x - 5) FROM (SELECT x FROM $t LIMIT 2 OFFSET 1)", &[&["-30"], &["15"]]),
    ("SELECT 60 // (x - 9) FROM (SELECT x FROM $t LIMIT 2)", &[&["-15"], &["-10"]]),
    ("SELECT 60 // (x - 9) FROM $t LIMIT 2", &[&["-15"], &["-10"]]),
    (
        "SELECT b.y + b.x, x FROM (SELECT 60 // (x - 5) AS y, a.x FROM (SELECT x FROM $t OFFSET 3) AS a) AS b",
        &[&["-14", "1"], &["37", "7"]],
    ),
    (
        "SELECT 60 // (x - 5) AS y FROM (SELECT x FROM $t OFFSET 3) ORDER BY y DESC",
        &[&["30"], &["-15"]],
    ),
    ("SELECT x FROM (SELECT x FROM $t LIMIT 2 OFFSET 1) WHERE 60 // (x - 5) > 0", &[&["9"]]),
    ("SELECT sum(60 // (x - 5)) FROM (SELECT x FROM $t OFFSET 3)", &[&["15"]]),
    (
        "SELECT x, sum(60 // (x - 5)) OVER (ORDER BY x) FROM (SELECT x FROM $t OFFSET 3) ORDER BY x",
        &[&["1", "-15"], &["7", "15"]],
    ),
    ("SELECT x FROM (SELECT x FROM $t LIMIT 0) ORDER BY x", &[]),
    ("SELECT x FROM (SELECT x FROM $t LIMIT 2 OFFSET 9) ORDER BY x", &[]),
];

#[test]
fn sort_window_group_or_join_above_limit_keeps_its_rows() {
    let folder = Folder::new();
    folder.write("1.csv", "x\n5\n3\n");
    folder.write("2.csv", "x\n9\n1\n7\n");
    folder.write("one/1.csv", "x\n5\n3\n9\n1\n7\n");
    let values = "(VALUES (5), (3), (9), (1), (7)) AS v(x)";
    for (sql, expected) in LIMIT_CASES {
        for threads in [1, 3] {
            let settings = RunSettings { threads, ..settings() };
            for table in ["'$/*.csv'", "'$/one/1.csv'", &format!("(SELECT x FROM {values})")] {
                // The subquery over VALUES has no name that a join could refer to.
                if table.contains("VALUES") && sql.contains("JOIN") {
                    continue;
                }
                let sql = sql.replace("$t", table);
                let answer = folder.run_sql_with(&sql, &settings);
                assert_eq!(answer.rows(), string_rows(expected), "{threads} threads: {sql}");
            }
        }
    }
}

#[test]
fn limit_below_other_steps_takes_first_rows_of_many_splits() {
    let folder = Folder::new();
    let mut n = 0u64;
    for file in 0..6 {
        let mut out = String::from("n,pad\n");
        for _ in 0..8000 {
            writeln!(out, "{n},{:0>90}", n * 7919 % 48_000).unwrap();
            n += 1;
        }
        folder.write(&format!("{file}.csv"), out);
    }
    for (from, expected) in [
        ("SELECT n FROM '$/*.csv' LIMIT 20000", (20_000, 19_999)),
        ("SELECT n FROM '$/*.csv' LIMIT 10 OFFSET 30000", (10, 30_009)),
        ("SELECT n FROM '$/*.csv' WHERE n % 2 = 0 LIMIT 1000 OFFSET 15000", (1000, 31_998)),
        (
            "SELECT n FROM (SELECT n, row_number() OVER () AS r FROM '$/*.csv') LIMIT 9000",
            (9000, 8999),
        ),
        (
            "SELECT n FROM '$/5.csv' UNION ALL SELECT n FROM '$/[0-4].csv' LIMIT 9000 OFFSET 500",
            (9000, 47_999),
        ),
        (
            "SELECT n FROM '$/[0-4].csv' UNION ALL SELECT n FROM '$/5.csv' LIMIT 41000 OFFSET 100",
            (41_000, 41_099),
        ),
        // Sorted branches come in their places.
        (
            "SELECT n FROM ((SELECT n FROM '$/*.csv' ORDER BY n LIMIT 3) UNION ALL \
             (SELECT n FROM '$/*.csv' ORDER BY n DESC LIMIT 3)) LIMIT 4",
            (4, 47_999),
        ),
        (
            "SELECT n FROM ((SELECT n FROM '$/[0-4].csv' ORDER BY n DESC LIMIT 3) UNION ALL \
             (SELECT n FROM '$/*.csv' ORDER BY n DESC LIMIT 3)) LIMIT 3",
            (3, 39_999),
        ),
        (
            "SELECT n FROM ((SELECT n FROM '$/0.csv' ORDER BY n LIMIT 3) UNION ALL \
             SELECT n FROM '$/*.csv' WHERE n > 20000) LIMIT 5",
            (5, 20_002),
        ),
        (
            "SELECT n FROM (SELECT 5 AS n UNION ALL (SELECT n FROM '$/*.csv' ORDER BY n DESC LIMIT 3)) \
             LIMIT 1",
            (1, 5),
        ),
    ] {
        let (rows, last) = expected;
        for threads in [1, 2, 7] {
            let settings = RunSettings { threads, ..settings() };
            let sql = format!("SELECT count(*), max(n) FROM ({from})");
            let answer = folder.run_sql_with(&sql, &settings).rows();
            assert_eq!(answer, [[rows.to_string(), last.to_string()]], "{threads}: {sql}");
            let sql = format!("SELECT n FROM ({from}) ORDER BY n DESC LIMIT 1");
            let answer = folder.run_sql_with(&sql, &settings).rows();
            assert_eq!(answer, [[last.to_string()]], "{threads}: {sql}");
        }
    }
}
