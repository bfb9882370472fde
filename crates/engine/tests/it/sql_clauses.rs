//! Tests of SQL clauses: the engine executes them or refuses them.

use tidemill_engine::{CancelFlag, Error, QueryPlan, RunSettings};

use crate::common::{Folder, query, settings, string_rows};

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write(
        "f.csv",
        "ts,k,v\n2026-11-20T01:00:00,a,1\n2026-11-20T02:00:00,b,2\n2026-11-21T02:00:00,a,3\n",
    );
    folder
}

#[test]
fn from_without_select_returns_all_columns() {
    let folder = folder();
    let whole = folder.run_sql("SELECT * FROM '$/f.csv'");
    for sql in ["FROM '$/f.csv'", "SELECT * FROM (FROM '$/f.csv') AS t"] {
        let answer = folder.run_sql(sql);
        assert_eq!(
            (answer.column_names(), answer.rows()),
            (whole.column_names(), whole.rows()),
            "{sql}"
        );
    }
    assert_eq!(folder.run_sql("FROM '$/f.csv' ORDER BY v DESC LIMIT 1").rows()[0][2], "3");
    assert_eq!(
        folder.run_sql("FROM '$/f.csv' |> WHERE k = 'a' |> SELECT v").rows(),
        string_rows(&[&["1"], &["3"]])
    );
}

#[test]
fn unsupported_clause_is_refused_at_any_depth() {
    let folder = folder();
    for (sql, expected) in [
        ("SELECT k, sum(v) FROM '$/f.csv' GROUP BY k WITH TOTALS", "`WITH TOTALS` is not"),
        ("SELECT v FROM '$/f.csv' PARTITION (p0)", "`PARTITION (p0)` is not supported"),
        ("SELECT * REPLACE (1 AS w) FROM '$/f.csv'", "unknown column `w`"),
        ("SELECT * EXCEPT (v) REPLACE (1 AS v) FROM '$/f.csv'", "`* REPLACE` names a column"),
        ("WITH t AS (SELECT v FROM '$/f.csv' FOR UPDATE) SELECT * FROM t", "`FOR UPDATE` is not"),
        ("SELECT count(DISTINCT *) FROM '$/f.csv'", "`count(DISTINCT *)` is not"),
        (
            "SELECT k FROM '$/f.csv' a FULL JOIN '$/f.csv' b USING (k) FULL JOIN '$/f.csv' c USING (k)",
            "`RIGHT or FULL JOIN of more",
        ),
        ("SELECT * FROM '$/f.csv' a NATURAL RIGHT JOIN '$/f.csv' b", "`RIGHT or FULL JOIN of more"),
        ("SELECT now() AT TIME ZONE 'Europe/Berlln' FROM '$/f.csv'", "there is no time zone"),
        ("SELECT ts - INTERVAL 5 dayz FROM '$/f.csv'", "`INTERVAL 5` is not"),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.starts_with(expected), "{sql}\n{message}");
    }
    let replaced = folder.run_sql("SELECT * REPLACE (v * 10 AS V) FROM '$/f.csv' WHERE v = 2");
    assert_eq!(replaced.rows()[0][2], "20");
}

#[test]
fn map_with_its_own_source_is_refused() {
    let folder = folder();
    let mut query = query(folder.substitute_path("SELECT * FROM '$/f.csv'"));
    query.map_sql = Some(folder.substitute_path("SELECT v FROM '$/f.csv' TABLESAMPLE (10)"));
    let error = QueryPlan::new(&query, &settings()).err().unwrap().to_string();
    assert!(error.starts_with("a map has no source of its own"), "{error}");
}

#[test]
fn column_and_its_cast_are_distinct_columns() {
    let folder = folder();
    let by_day =
        "SELECT ts, CAST(ts AS DATE) AS day, count(*) AS n FROM '$/f.csv' GROUP BY ts, day";
    assert_eq!(
        folder.run_sql(by_day).rows(),
        string_rows(&[
            &["2026-11-20T01:00:00", "2026-11-20", "1"],
            &["2026-11-20T02:00:00", "2026-11-20", "1"],
            &["2026-11-21T02:00:00", "2026-11-21", "1"],
        ])
    );
    let plan = QueryPlan::new(&query(folder.substitute_path(by_day)), &settings()).unwrap();
    assert_eq!(plan.explain().unwrap().path, "partial tables");
    let sums = folder.run_sql("SELECT sum(v) AS a, sum(CAST(v AS DOUBLE)) AS b FROM '$/f.csv'");
    assert_eq!(sums.rows(), string_rows(&[&["6", "6.0"]]));
    let both =
        folder.run_sql("SELECT k, CAST(k AS TEXT), TRY_CAST(k AS BIGINT) FROM '$/f.csv' LIMIT 1");
    assert_eq!(both.column_names(), ["k", "CAST(k AS TEXT)", "TRY_CAST(k AS BIGINT)"]);
    assert_eq!(both.rows(), string_rows(&[&["a", "a", "∅"]]));
    let nested =
        "SELECT count(v) a, count(v::TEXT) b FROM '$/f.csv' HAVING sum(v::DOUBLE) > sum(v) - 1";
    assert_eq!(folder.run_sql(nested).rows(), string_rows(&[&["3", "3"]]));
    // The cast of a float is named after its argument, and the float has its source's name.
    folder.write("d.csv", "x\n1.5\n1.5\n2.25\n");
    for cast in ["CAST(d.x AS INT)", "CAST(d.x AS FLOAT)", "TRY_CAST(d.x AS TEXT)"] {
        let sql = format!(
            "SELECT {cast} AS c, d.x AS own, count(*) AS n FROM '$/d.csv' AS d GROUP BY 1, 2 \
             HAVING count(*) > 0 ORDER BY d.x, n"
        );
        let rows = folder.run_sql(&sql).rows();
        assert_eq!(
            rows.iter().map(|row| &row[1..]).collect::<Vec<_>>(),
            [["1.5", "2"], ["2.25", "1"]]
        );
        let plan = QueryPlan::new(&query(folder.substitute_path(&sql)), &settings()).unwrap();
        assert_eq!(plan.explain().unwrap().path, "partial tables", "{sql}");
    }
}

#[test]
fn misplaced_window_functions_are_refused_in_sql_terms() {
    let folder = folder();
    for (sql, expected) in [
        (
            "SELECT v FROM '$/f.csv' WHERE rank() OVER (ORDER BY v) = 1",
            "the window function `rank` cannot stand in WHERE",
        ),
        (
            "SELECT * FROM '$/f.csv' a JOIN '$/f.csv' b ON rank() OVER (ORDER BY a.v) = b.v",
            "the window function `rank` cannot stand in JOIN … ON",
        ),
        (
            "SELECT rank() OVER (ORDER BY v) r FROM '$/f.csv' GROUP BY r",
            "the window function `rank` cannot stand in GROUP BY",
        ),
        (
            "SELECT unnest([1]) FROM '$/f.csv' WHERE unnest([1]) = 1",
            "`unnest` cannot stand in WHERE",
        ),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.starts_with(expected), "{sql}\n{message}");
    }
    let kept = "SELECT v FROM '$/f.csv' WHERE v IN (SELECT max(v) FROM '$/f.csv') OR v = 1";
    assert_eq!(folder.run_sql(kept).sorted_rows(), string_rows(&[&["1"], &["3"]]));
}

/// Recursive tables without end, in queries that return no row before the end.
const ENDLESS_RECURSIONS: [&str; 4] = [
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n FROM t) SELECT count(*) FROM t",
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT n FROM t WHERE n < 0",
    "WITH RECURSIVE t AS (SELECT v AS n FROM '$/f.csv' UNION ALL SELECT n + 1 FROM t) \
     SELECT n, count(*) FROM t GROUP BY n ORDER BY n LIMIT 3",
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n FROM t) \
     SELECT f.v FROM '$/f.csv' f JOIN t ON f.v = t.n + 3",
];

#[test]
fn endless_recursion_can_be_cancelled() {
    let folder = folder();
    let endless =
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT n FROM t";
    let cancel = CancelFlag::new();
    let own = RunSettings { cancel: cancel.clone(), ..settings() };
    let mut results = QueryPlan::new(&query(endless), &own).unwrap().run().unwrap();
    for _ in 0..3 {
        results.next().unwrap().unwrap();
    }
    cancel.cancel();
    assert!(matches!(results.next(), Some(Err(Error::Interrupted))));
    // These queries return no row, so they end when they are cancelled, at any time.
    for sql in ENDLESS_RECURSIONS {
        let cancel = CancelFlag::new();
        let own = RunSettings { cancel: cancel.clone(), ..settings() };
        let sql = folder.substitute_path(sql);
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let mut results = QueryPlan::new(&query(sql.as_str()), &own)?.run()?;
                results.next().transpose()
            });
            cancel.cancel();
            let ended = run.join().unwrap();
            assert!(matches!(ended, Err(Error::Interrupted)), "{sql}: {ended:?}");
        });
    }
}

#[test]
fn endless_recursion_fails_at_the_memory_limit() {
    let folder = folder();
    for sql in [
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT t.n FROM t, (VALUES (1), (2)) AS u) \
         SELECT count(*) FROM t",
        "WITH RECURSIVE t AS (SELECT repeat('x', 100000) AS s UNION SELECT s || 'x' FROM t) \
         SELECT count(*) FROM t",
    ] {
        let small = RunSettings { memory_bytes: 32 << 20, ..settings() };
        let error = folder.try_run_sql(sql, &small).err().unwrap();
        assert!(matches!(error, Error::MemoryBudgetTooSmall { .. }), "{sql}\n{error}");
    }
}

#[test]
fn grouping_sets_accept_computed_keys() {
    let folder = Folder::new();
    folder.write("t.csv", "a,b,k\n1,2.5,x\n3,0.5,x\n,1.5,y\n");
    // Keys whose types match only after coercion.
    let key = "CASE WHEN CAST(a AS SMALLINT) < b THEN 1 END";
    let sql = format!(
        "SELECT {key} AS m, k, count(*), grouping({key}) FROM '$/t.csv' GROUP BY ROLLUP ({key}, k)"
    );
    assert_eq!(
        folder.run_sql(&sql).sorted_rows(),
        [
            ["1", "x", "1", "0"],
            ["1", "∅", "1", "0"],
            ["∅", "x", "1", "0"],
            ["∅", "y", "1", "0"],
            ["∅", "∅", "2", "0"],
            ["∅", "∅", "3", "1"],
        ]
    );
    let sql = "SELECT nullif(CAST(1 AS DECIMAL(18,4)), CAST(b AS DECIMAL(38,2))) AS m, count(*) \
               FROM '$/t.csv' GROUP BY GROUPING SETS ((nullif(CAST(1 AS DECIMAL(18,4)), \
               CAST(b AS DECIMAL(38,2)))), ()) ORDER BY 1";
    assert_eq!(folder.run_sql(sql).rows(), [["1.0000", "3"], ["∅", "3"]]);
}

/// Conditions without columns, also above queries that answer over no rows, and conditions on groups.
#[test]
fn condition_above_an_aggregation_filters_groups() {
    let folder = Folder::new();
    folder.write("w.csv", "k,v\n1,2\n1,3\n2,4\n");
    let never = [
        "random() < 0",
        "random() < 0 AND c >= 0",
        "NULL",
        "CASE WHEN c > 0 THEN CAST(NULL AS BOOLEAN) ELSE CAST(NULL AS BOOLEAN) END",
        "CASE WHEN c > 0 THEN false ELSE random() < 0 END",
    ];
    for below in [
        "SELECT sum(v) AS c FROM '$/w.csv'",
        "SELECT median(v) AS c FROM '$/w.csv'",
        "SELECT count() AS c FROM '$/w.csv' WHERE v > 1",
        "SELECT k, count() AS c FROM '$/w.csv' GROUP BY ROLLUP (k)",
        "SELECT count() OVER () AS c FROM '$/w.csv'",
        "SELECT DISTINCT k AS c FROM '$/w.csv'",
        "SELECT count() AS c FROM '$/w.csv' a JOIN '$/w.csv' b USING (k)",
    ] {
        for condition in never {
            let sql = format!("SELECT * FROM ({below}) WHERE {condition}");
            assert!(folder.run_sql(&sql).rows().is_empty(), "{sql}");
        }
    }
    for (sql, expected) in [
        ("SELECT sum(v) FROM '$/w.csv' HAVING random() >= 0", vec![vec!["9"]]),
        (
            "SELECT k, sum(v) FROM '$/w.csv' GROUP BY k HAVING k = 1 AND random() >= 0",
            vec![vec!["1", "5"]],
        ),
        (
            "SELECT * FROM (SELECT k, sum(v) OVER (PARTITION BY k) FROM '$/w.csv') \
             WHERE random() >= 0 AND k = 2",
            vec![vec!["2", "4"]],
        ),
    ] {
        assert_eq!(folder.run_sql(sql).rows(), expected, "{sql}");
    }
    // A random condition is evaluated for two groups, and not for their thousand rows.
    let lines: String = (0..1000).map(|n| format!("{},{n}\n", n % 2)).collect();
    folder.write("l.csv", format!("k,v\n{lines}"));
    let sql = "SELECT k, count() FROM '$/l.csv' GROUP BY k HAVING random() < 0.5 ORDER BY k";
    for row in folder.run_sql(sql).rows() {
        assert_eq!(row[1], "500");
    }
}

#[test]
fn distinct_on_key_can_be_ordered_by_twice() {
    let folder = Folder::new();
    folder.write("t.csv", "x,y\n1,b\n1,a\n2,c\n");
    let sql = "SELECT DISTINCT ON (x) x, y FROM '$/t.csv' ORDER BY x, x DESC, y";
    assert_eq!(folder.run_sql(sql).rows(), [["1", "a"], ["2", "c"]]);
}

#[test]
fn star_over_using_join_has_one_merged_column() {
    let folder = Folder::new();
    folder.write("users.csv", "id,name\n1,ann\n3,eve\n");
    folder.write("hits.csv", "id,v\n1,10\n");
    folder.write("ads.csv", "id,w\n3,x\n");
    folder.write("camel.csv", "Id,name\n1,ann\n");
    let of_two =
        (&["id", "name", "v"][..], string_rows(&[&["1", "ann", "10"], &["3", "eve", "∅"]]));
    for (select, expected) in [
        ("* FROM '$/users.csv' LEFT JOIN '$/hits.csv' USING (id)", of_two.clone()),
        ("* FROM '$/users.csv' NATURAL LEFT JOIN '$/hits.csv'", of_two.clone()),
        ("* FROM '$/users.csv' z LEFT JOIN '$/hits.csv' a USING (id)", of_two.clone()),
        ("COLUMNS(*) FROM '$/users.csv' LEFT JOIN '$/hits.csv' USING (id)", of_two.clone()),
        ("DISTINCT * FROM '$/users.csv' LEFT JOIN '$/hits.csv' USING (id)", of_two.clone()),
        ("* FROM '$/users.csv' LEFT JOIN (SELECT * FROM '$/hits.csv') USING (id)", of_two.clone()),
        (
            "* REPLACE (id + 1 AS id) FROM '$/users.csv' LEFT JOIN '$/hits.csv' USING (id)",
            (&["id", "name", "v"], string_rows(&[&["2", "ann", "10"], &["4", "eve", "∅"]])),
        ),
        (
            "* EXCLUDE (id) FROM '$/users.csv' LEFT JOIN '$/hits.csv' USING (id)",
            (&["name", "v"], string_rows(&[&["ann", "10"], &["eve", "∅"]])),
        ),
        (
            "* FROM '$/users.csv' LEFT JOIN '$/hits.csv' USING (id) LEFT JOIN '$/ads.csv' USING (id)",
            (
                &["id", "name", "v", "w"],
                string_rows(&[&["1", "ann", "10", "∅"], &["3", "eve", "∅", "x"]]),
            ),
        ),
        (
            "* FROM '$/camel.csv' u JOIN '$/camel.csv' h USING (id)",
            (&["Id", "u.name", "h.name"], string_rows(&[&["1", "ann", "ann"]])),
        ),
    ] {
        let answer = folder.run_sql(&format!("SELECT {select} ORDER BY 1"));
        assert_eq!(
            (answer.column_names(), answer.rows()),
            (expected.0.iter().map(ToString::to_string).collect(), expected.1),
            "{select}"
        );
    }
    let union = folder.run_sql(
        "SELECT * FROM '$/users.csv' JOIN '$/hits.csv' USING (id) UNION ALL SELECT 9, 'z', 1 ORDER BY id",
    );
    assert_eq!(union.rows(), string_rows(&[&["1", "ann", "10"], &["9", "z", "1"]]));
}

#[test]
fn using_column_needs_no_qualifier() {
    let folder = Folder::new();
    folder.write("a.csv", "id,v\n1,x\n2,y\n");
    folder.write("b.csv", "id,w\n2,p\n3,q\n");
    folder.write("c.csv", "id,z\n2,r\n");
    for (sql, expected) in [
        ("SELECT id FROM '$/a.csv' JOIN '$/b.csv' USING (id) WHERE id < 3", vec!["2"]),
        (
            "SELECT id FROM '$/a.csv' AS a LEFT JOIN '$/b.csv' AS b USING (id) WHERE id < 3",
            vec!["1", "2"],
        ),
        (
            "SELECT id FROM '$/a.csv' AS a JOIN '$/b.csv' AS b USING (id) JOIN '$/c.csv' AS c USING (id)",
            vec!["2"],
        ),
        (
            "SELECT id + 1 AS next FROM '$/a.csv' AS a JOIN '$/b.csv' AS b USING (id) JOIN '$/c.csv' AS c USING (id) WHERE id = 2",
            vec!["3"],
        ),
    ] {
        assert_eq!(folder.run_sql(sql).sorted_rows().concat(), expected, "{sql}");
    }
}

#[test]
fn similar_to_matches_the_whole_text() {
    let folder = Folder::new();
    let sql = "SELECT 'abc' SIMILAR TO 'b', 'abc' SIMILAR TO '%b%', 'abc' NOT SIMILAR TO 'a_c', \
               'a.c' SIMILAR TO 'a!.c' ESCAPE '!', 'x' SIMILAR TO NULL";
    assert_eq!(folder.run_sql(sql).rows(), [["false", "true", "false", "true", "∅"]]);
    let message = folder.sql_error("SELECT x SIMILAR TO x FROM (SELECT 'a' AS x)");
    assert!(message.contains("the pattern of SIMILAR TO is a constant text"), "{message}");
}

/// A column position is valid within grouping sets, too.
#[test]
fn grouping_sets_accept_column_positions() {
    let folder = Folder::new();
    folder.write("k.csv", "k,v\n1,2\n2,3\n2,4\n");
    for (columns, by_place, by_name) in [
        ("k", "ROLLUP (1)", "ROLLUP (k)"),
        ("k, v + 1 AS w", "CUBE (1, 2)", "CUBE (k, v + 1)"),
        ("k, v", "GROUPING SETS ((2), (1, 2), ())", "GROUPING SETS ((v), (k, v), ())"),
        ("k, v", "2, ROLLUP (1)", "v, ROLLUP (k)"),
        // A number that is itself a column is not a position.
        ("k, 1 AS one", "CUBE (1, 2)", "CUBE (k, 1 + 0)"),
        // Neither is a number with a decimal point.
        ("1 AS one", "CUBE (1e0)", "CUBE (1.0)"),
    ] {
        let rows = |columns: &str, keys: &str| {
            let sql = format!("SELECT {columns}, count(*) AS n FROM '$/k.csv' GROUP BY {keys}");
            folder.run_sql(&sql).sorted_rows()
        };
        let named = columns.replace("1 AS one", "1 + 0 AS one");
        assert_eq!(rows(columns, by_place), rows(&named, by_name), "{by_place}");
    }
    for (keys, expected) in [
        ("CUBE (k, 9)", "`9` is the place of a column, and there is none"),
        ("GROUPING SETS ((0))", "`0` is the place of a column, and there is none"),
        ("ROLLUP (1, k)", "`k` stands twice in ROLLUP or CUBE"),
    ] {
        let said = folder.sql_error(&format!("SELECT k, count(*) FROM '$/k.csv' GROUP BY {keys}"));
        assert!(said.starts_with(expected), "{said}");
    }
    let said = folder.sql_error("SELECT *, count(*) FROM '$/k.csv' GROUP BY ROLLUP (1)");
    assert!(said.starts_with("`1` is the place of a column"), "{said}");
}

/// `ORDER BY` finds an expression of keys by its position as by its text; the column has the name as written.
#[test]
fn order_by_position_accepts_expressions_of_group_keys() {
    let folder = Folder::new();
    folder.write(
        "p.csv",
        "user_id,page,country,d\n1,/a,de,2026-01-02T03:00:00\n2,/b,,2026-01-03T04:00:00\n,/a,fr,\n",
    );
    for (column, keys) in [
        ("upper(page)", "page"),
        ("coalesce(country, 'all')", "ROLLUP (country)"),
        ("coalesce(country, 'all')", "GROUPING SETS ((country), ())"),
        ("user_id + 1", "user_id"),
        ("-user_id", "user_id"),
        ("CASE WHEN page = '/a' THEN 1 ELSE 0 END", "page"),
        ("CAST(user_id AS TEXT)", "user_id"),
        ("user_id IS NULL", "user_id"),
        ("date_trunc('day', d)", "d"),
        ("page || 'x'", "page"),
        ("upper(page)", "1"),
        ("upper(page)", "ALL"),
        ("2", "page"),
    ] {
        let from = format!("FROM '$/p.csv' GROUP BY {keys}");
        let named =
            folder.run_sql(&format!("SELECT {column} AS x, count(*) AS n {from} ORDER BY x, n"));
        for order in ["1, n", "ALL"] {
            let sql = format!("SELECT {column}, count(*) AS n {from} ORDER BY {order}");
            let found = folder.run_sql(&sql);
            assert_eq!(found.rows(), named.rows(), "{sql}");
            assert_eq!(found.column_names(), [column, "n"], "{sql}");
        }
    }
    let distinct = "SELECT DISTINCT upper(page) FROM '$/p.csv' GROUP BY page ORDER BY 1 DESC";
    assert_eq!(folder.run_sql(distinct).rows(), string_rows(&[&["/B"], &["/A"]]));
    // A column that its position already found keeps its name.
    let keys = "SELECT max(p.user_id), upper(p.page) FROM '$/p.csv' AS p GROUP BY 2 ORDER BY 1, 2";
    assert_eq!(folder.run_sql(keys).column_names(), ["max(user_id)", "upper(page)"]);
}

/// A key with one value below ROLLUP, or equal to another key, is null above it, too.
#[test]
fn grouping_sets_sort_by_keys_that_are_constant_below() {
    let folder = Folder::new();
    folder.write("p.csv", "day,page,ms\n2026-01-01,/a,10\n2026-01-01,/b,20\n2026-01-02,/a,30\n");
    let of = |sql: &str| {
        let rows = folder.run_sql(sql).rows();
        rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join(", ")
    };
    let chosen = "FROM '$/p.csv' WHERE day = '2026-01-01' GROUP BY CUBE(day, page)";
    for (sql, expected) in [
        (
            format!("SELECT day, page, sum(ms) {chosen} ORDER BY day NULLS FIRST, page LIMIT 3"),
            "∅ /a 10, ∅ /b 20, ∅ ∅ 30",
        ),
        (
            format!(
                "SELECT day, page, count(*) OVER (PARTITION BY day), rank() OVER (ORDER BY day \
                 NULLS FIRST), sum(sum(ms)) OVER (ORDER BY day) {chosen} ORDER BY day, page"
            ),
            "2026-01-01 /a 3 4 60, 2026-01-01 /b 3 4 60, 2026-01-01 ∅ 3 4 60, ∅ /a 3 1 120, \
             ∅ /b 3 1 120, ∅ ∅ 3 1 120",
        ),
        (
            "SELECT y, count(*) FROM (SELECT 'x' AS y FROM '$/p.csv') GROUP BY ROLLUP(y) ORDER BY y"
                .to_owned(),
            "x 3, ∅ 3",
        ),
        (
            "SELECT a, b, count(*) FROM (SELECT ms AS a, ms AS b FROM '$/p.csv') \
             GROUP BY CUBE(a, b) ORDER BY a, b"
                .to_owned(),
            "10 10 1, 10 ∅ 1, 20 20 1, 20 ∅ 1, 30 30 1, 30 ∅ 1, ∅ 10 1, ∅ 20 1, ∅ 30 1, ∅ ∅ 3",
        ),
    ] {
        assert_eq!(of(&sql), expected, "{sql}");
    }
}

/// A cast is named after its argument; beside the argument in a grouping set it is another key.
#[test]
fn cast_and_its_column_are_separate_grouping_set_keys() {
    let folder = Folder::new();
    folder.write("c.csv", "n,t\n1,2024-01-01T10:00:00\n2,2024-01-01T11:00:00\n");
    let of = |sql: &str| {
        let mut rows = folder.run_sql(sql).rows();
        rows.sort();
        rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join(", ")
    };
    for (sql, expected) in [
        (
            "SELECT CAST(a.n AS INT) AS k, sum(a.n) FILTER (WHERE a.n BETWEEN 1 AND a.n) AS s \
             FROM '$/c.csv' AS a GROUP BY ROLLUP (CAST(a.n AS INT))",
            "1 1, 2 2, ∅ 3",
        ),
        (
            "SELECT CAST(a.t AS DATE) AS d, max(coalesce(a.n, 0)) FILTER (WHERE true) AS m, \
             grouping(CAST(a.t AS DATE)) AS g FROM '$/c.csv' AS a GROUP BY CUBE (CAST(a.t AS DATE))",
            "2024-01-01 2 0, ∅ 2 1",
        ),
        (
            "SELECT CAST(a.n AS DOUBLE) AS d, a.n, count(*), min(CAST(a.n AS DOUBLE)) FROM '$/c.csv' AS a \
             GROUP BY GROUPING SETS ((CAST(a.n AS DOUBLE)), (a.n), ()) HAVING count(*) > 0",
            "1.0 ∅ 1 1.0, 2.0 ∅ 1 2.0, ∅ 1 1 1.0, ∅ 2 1 2.0, ∅ ∅ 2 1.0",
        ),
    ] {
        assert_eq!(of(sql), expected, "{sql}");
    }
}

#[test]
fn group_by_name_prefers_column_over_constant_alias() {
    let folder = Folder::new();
    folder.write("g.csv", "i,j\n1,5\n1,6\n2,7\n");
    for (sql, expected) in [
        ("SELECT 1 AS i, sum(j) FROM '$/g.csv' GROUP BY i ORDER BY 2", "1|7 1|11"),
        ("SELECT 2026 AS year, sum(j) FROM '$/g.csv' GROUP BY year", "2026|18"),
        ("SELECT 7 AS n, i, sum(j) FROM '$/g.csv' GROUP BY n, i ORDER BY i", "7|1|11 7|2|7"),
    ] {
        let rows: Vec<String> =
            folder.run_sql(sql).rows().iter().map(|row| row.join("|")).collect();
        assert_eq!(rows.join(" "), expected, "{sql}");
    }
}
