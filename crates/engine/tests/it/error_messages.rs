//! Tests of error messages: they name the fault in SQL terms and say what to do.

use crate::common::{Folder, string_rows};

fn files() -> Folder {
    let folder = Folder::new();
    folder.write("f.csv", "d,n,s\n2024-01-02,1,abc\n2024-01-03,2,3\n");
    folder.write("v.csv", "n,m\n1,5\n");
    folder.write("ts.csv", "ts\n2024-01-02T10:00:00\n");
    folder
}

/// Asserts the whole message of each statement.
fn assert_messages(folder: &Folder, rows: &[(&str, &str)]) {
    for (sql, expected) in rows {
        assert_eq!(folder.sql_error(sql), *expected, "{sql}");
    }
}

#[test]
fn cast_error_names_expression_and_value() {
    const HINT: &str = "\nhint: TRY_CAST gives NULL where a value does not fit";
    let folder = files();
    for (select, expected) in [
        ("CAST(s AS INT)", "`abc` does not fit INT, in `CAST(s AS INT)`"),
        ("sum(CAST(s AS BIGINT))", "`abc` does not fit BIGINT, in `CAST(s AS BIGINT)`"),
        ("s::DOUBLE", "`abc` does not fit DOUBLE, in `s::DOUBLE`"),
        ("CAST(s AS DATE)", "`abc` does not fit DATE, in `CAST(s AS DATE)`"),
        ("CAST(s AS TIME)", "`abc` does not fit TIME, in `CAST(s AS TIME)`"),
        ("CAST(s AS BOOLEAN)", "`abc` does not fit BOOLEAN, in `CAST(s AS BOOLEAN)`"),
        ("s::DECIMAL(5,2)", "`abc` does not fit DECIMAL(5,2), in `s::DECIMAL(5,2)`"),
        ("CAST('x' AS DATE)", "`x` does not fit DATE, in `CAST('x' AS DATE)`"),
        ("CAST(300 * n AS TINYINT)", "`300` does not fit TINYINT, in `CAST(300 * n AS TINYINT)`"),
        ("CAST(s AS INT), CAST('x' AS INT)", "`x` does not fit INT, in `CAST('x' AS INT)`"),
        (
            "CAST(s AS INT), CAST(upper(s) AS INT)",
            "`abc` does not fit INT, in `CAST(s AS INT)` or `CAST(upper(s) AS INT)`",
        ),
    ] {
        let sql = format!("SELECT {select} FROM '$/f.csv'");
        let said = folder.sql_error(&sql);
        assert!(said.starts_with(expected) && said.ends_with(HINT), "{sql}: {said}");
    }
    assert_messages(
        &folder,
        &[
            (
                "SELECT n FROM '$/f.csv' WHERE CAST(s AS INT) > 1",
                "`abc` does not fit INT, in `CAST(s AS INT)`\n\
                 hint: TRY_CAST gives NULL where a value does not fit",
            ),
            (
                "SELECT CAST(s AS TIMESTAMP) FROM '$/f.csv'",
                "`abc` does not fit TIMESTAMP, in `CAST(s AS TIMESTAMP)`\n\
                 hint: a time is written as 2026-11-20T09:19:00; TRY_CAST gives NULL where a value \
                 does not fit",
            ),
            // The statement does not contain these casts.
            (
                "SELECT * FROM '$/f.csv' a JOIN '$/v.csv' b ON a.s = b.n",
                "`abc` does not fit BIGINT\n\
                 hint: beside a number a text is read as one: TRY_CAST(x AS BIGINT) gives NULL for \
                 what is none, CAST(number AS TEXT) has them meet as text",
            ),
            (
                "SELECT CAST(d AS BIGINT) FROM '$/f.csv' WHERE s = n",
                "`abc` does not fit BIGINT\n\
                 hint: TRY_CAST gives NULL where a value does not fit",
            ),
            // A date literal belongs to no column.
            (
                "SELECT n FROM '$/f.csv' WHERE s > DATE '2026-03-01'",
                "`abc` does not fit DATE\n\
                 hint: TRY_CAST(x AS DATE) gives NULL for a text that is none",
            ),
        ],
    );
    let answer = folder.run_sql("SELECT TRY_CAST(s AS INT) FROM '$/f.csv'");
    assert_eq!(answer.rows(), string_rows(&[&["∅"], &["3"]]));
}

#[test]
fn number_expected_error_describes_the_text_column() {
    let folder = Folder::new();
    folder.write("p.csv", "p;n\n1,50;a\n2,75;b\n");
    let said = folder.sql_error("SELECT sum(p) FROM '$/p.csv'");
    assert!(said.starts_with("`sum` does not take an argument of type TEXT\nhint: "), "{said}");
    assert!(said.ends_with("replace(p, ',', '.')::DOUBLE makes numbers of it"), "{said}");
    let said = folder.sql_error("SELECT sum(n) FROM '$/p.csv'");
    assert!(said.contains("hint: CAST(x AS DOUBLE) converts a column"), "{said}");
}

#[test]
fn unknown_operator_error_names_operand_types() {
    let folder = files();
    for (select, expected) in [
        (
            "INTERVAL '1 day' / 2",
            "there is no `INTERVAL / BIGINT`\nhint: an INTERVAL takes whole numbers",
        ),
        (
            "1.5 * INTERVAL '1 day'",
            "there is no `DOUBLE * INTERVAL`\nhint: an INTERVAL takes whole numbers",
        ),
        ("d * 2", "there is no `DATE * BIGINT`\nhint: "),
        ("d + d", "there is no `DATE + DATE`\nhint: a DATE takes days or an INTERVAL"),
        ("n + s", "there is no `BIGINT + TEXT`\nhint: CAST(x AS DOUBLE) converts"),
        ("true + 1", "there is no `BOOLEAN + BIGINT`\nhint: "),
        ("s AND n", "there is no `TEXT AND BIGINT`\nhint: AND and OR take conditions"),
        ("[1] = 1", "there is no `BIGINT[] = BIGINT`\nhint: array_has(list, x)"),
        ("n & 'a'", "there is no `BIGINT & TEXT`\nhint: "),
        ("7 ~ 2", "there is no `BIGINT ~ BIGINT`\nhint: "),
        ("n LIKE 'a'", "there is no `BIGINT LIKE TEXT`\nhint: CAST(x AS TEXT)"),
        ("sum(d)", "`sum` does not take an argument of type DATE\nhint: min and max take it"),
        ("s.x", "a TEXT has no fields\nhint: "),
        ("(n > 1) = s", "there is no `BOOLEAN = TEXT`\nhint: true and false stand without"),
        (
            "d > 2026-03-29",
            "a DATE and a BIGINT have nothing in common\nhint: a day is written in quotes",
        ),
        (
            "d::TIMESTAMP > 2026-03-29",
            "there is no `TIMESTAMP > BIGINT`\nhint: a date stands in quotes",
        ),
        ("5 # 3", "there is no operator `#` at Line: 1, Column: 10\nhint: the exclusive or"),
        ("TRUE XOR n", "`XOR` is not supported\nhint: "),
        ("list_zip(s)", "`list_zip` takes lists\nhint: list_zip([1, 2], ['a', 'b']) pairs"),
        ("string_agg(s, s)", "what `string_agg` puts between texts is one text for all rows"),
        ("string_agg(DISTINCT s, s)", "an aggregate with DISTINCT takes one column, and"),
        ("s ~ '['", "the pattern `[` is not understood: unclosed character class\nhint: "),
        ("regexp_replace(s, '[', 'x')", "the pattern `[` is not understood: unclosed"),
        ("regexp_replace(s, '(a{1000}){1000}', 'x')", "a pattern takes more than 10 MiB\nhint: "),
        ("s ~ '(a{1000}){1000}'", "a pattern takes more than 10 MiB\nhint: repetitions"),
        ("s @> 'x'", "`@>` is not supported\nhint: array_has_all"),
        ("@a", "`@a` is not supported\nhint: write the value itself"),
    ] {
        let sql = format!("SELECT {select} FROM '$/f.csv'");
        let said = folder.sql_error(&sql);
        assert!(said.starts_with(expected), "{sql}: {said}");
    }
    let said = folder.sql_error("SELECT sum(ts) FROM '$/ts.csv'");
    assert!(
        said.starts_with("`sum` does not take an argument of type TIMESTAMP\nhint: "),
        "{said}"
    );
    for (condition, expected) in [
        ("n", "a condition is true or false, and this one is BIGINT\nhint: compare it: x <> 0"),
        ("s", "a condition is true or false, and this one is TEXT\nhint: compare it: x <> ''"),
    ] {
        let sql = format!("SELECT n FROM '$/f.csv' WHERE {condition}");
        assert_eq!(folder.sql_error(&sql), expected);
    }
}

#[test]
fn deeply_nested_sql_error_says_so() {
    let folder = files();
    let nested = |start: &str, end: &str, depth: usize| {
        format!("SELECT {}1{} AS x FROM '$/v.csv'", start.repeat(depth), end.repeat(depth))
    };
    for (start, end) in [("CASE WHEN n = 1 THEN ", " END"), ("(", ")"), ("abs(", ")")] {
        assert_eq!(folder.run_sql(&nested(start, end, 40)).single_value(), "1", "{start}");
        for depth in [49, 60, 300] {
            let said = folder.sql_error(&nested(start, end, depth));
            assert!(said.starts_with("the SQL is nested too deeply\nhint: "), "{start}: {said}");
        }
    }
}

#[test]
fn name_errors_list_the_sources() {
    let folder = files();
    assert_messages(
        &folder,
        &[
            (
                "SELECT n FROM (SELECT n, m AS n FROM '$/v.csv')",
                "two columns are `n`\n\
                 hint: give one of them another name where it is selected: n AS other",
            ),
            (
                "SELECT n FROM '$/v.csv' a, '$/f.csv' b",
                "column `n` is in more than one source\nhint: say which: `a.n` or `b.n`",
            ),
            (
                "SELECT x FROM (SELECT n AS x, m AS x FROM '$/v.csv')",
                "two columns of a select list are `x`\nhint: give one of them another name",
            ),
            (
                "SELECT vv.n FROM '$/v.csv' AS v",
                "unknown source `vv` in `vv.n`\nhint: did you mean `v.n`?",
            ),
            (
                "SELECT zz.d FROM '$/v.csv' AS v JOIN '$/f.csv' AS f ON v.n = f.n",
                "unknown source `zz` in `zz.d`\nhint: the sources are `v`, `f`",
            ),
            (
                "SELECT zz.n FROM '$/v.csv' AS v",
                "unknown source `zz` in `zz.n`\nhint: the source is `v`: v.n",
            ),
            (
                "SELECT v.nn FROM '$/v.csv' AS v",
                "unknown column `nn`; did you mean `n`?\ncolumns: n, m",
            ),
        ],
    );
    let path = folder.substitute_path("$/v.csv");
    assert_eq!(
        folder.sql_error("SELECT v.n FROM '$/v.csv'"),
        format!(
            "unknown source `v` in `v.n`\nhint: a source is named where it is read: FROM '{path}' AS v"
        )
    );
    assert_eq!(
        folder.sql_error("SELECT n FROM '$/v.csv', '$/f.csv'"),
        format!(
            "column `n` is in more than one source\n\
             hint: name the sources, as in FROM '{path}' AS a, and say which: `a.n`"
        )
    );
    assert_eq!(folder.run_sql("SELECT v.n FROM '$/v.csv' AS v").single_value(), "1");
}

#[test]
fn unknown_column_error_suggests_the_delimiter() {
    let folder = Folder::new();
    for (separator, option) in [(";", ";"), ("|", "|"), ("\t", "\\t")] {
        folder.write("x.csv", ["a", "b", "c\n1", "2", "3\n"].join(separator));
        // The delimiter is inferred from a sample, unless the query names one.
        assert_eq!(folder.run_sql("SELECT b FROM '$/x.csv'").rows(), [["2"]], "{separator}");
        let said = folder.sql_error("SELECT b FROM read_csv('$/x.csv', delim = ',')");
        assert!(said.starts_with("unknown column `b`"), "{said}");
        let hint = format!("\nhint: --delimiter '{option}' splits the records of the file there");
        assert!(said.ends_with(&hint), "{said}");
    }
    folder.write("one.csv", "only\n1\n");
    assert!(!folder.sql_error("SELECT b FROM '$/one.csv'").contains("--delimiter"));
}

#[test]
fn unknown_column_error_suggests_the_header_row() {
    let folder = Folder::new();
    folder.write("x.csv", "Sales report\n\nday,n\n2026-11-01,1\n2026-11-02,2\n");
    let said = folder.sql_error("SELECT n FROM '$/x.csv'");
    assert!(said.starts_with("unknown column `n`"), "{said}");
    assert!(said.contains("if line 3 is the header, below titles, say --header-row 3"), "{said}");
    let said = folder.sql_error("SELECT count(*) FROM '$/x.csv'");
    assert!(said.contains("hint: if line 3 is the header"), "{said}");
    for options in ["header_row = 3", "skip = 2"] {
        let sql = format!("SELECT n FROM read_csv('$/x.csv', {options})");
        assert_eq!(folder.run_sql(&sql).rows(), [["1"], ["2"]], "{options}");
    }
}

#[test]
fn datafusion_errors_are_translated() {
    let folder = Folder::new();
    for (sql, expected) in [
        ("SELECT lag(x, x) OVER (ORDER BY x) FROM (SELECT 1 x)", "behind the first are literals"),
        ("SELECT lag(x, NULL) OVER (ORDER BY x) FROM (SELECT 1 x)", "`lag` by null rows"),
        ("SELECT first_value(x ORDER BY x) OVER () FROM (SELECT 1 x)", "no ORDER BY in its own"),
        (
            "SELECT CAST(TIMESTAMP '2000-01-01' AS TIMESTAMP(9)) - CAST(TIMESTAMP '9999-12-31' AS TIMESTAMP(3))",
            "at most 292 years apart",
        ),
        ("SELECT grouping(x) OVER () FROM (SELECT 1 x)", "`grouping` is of GROUP BY"),
        ("SELECT array_resize([1], -1)", "`array_resize` takes a size of zero and more"),
        ("SELECT sqrt(-1)", "`sqrt` takes numbers of zero and more"),
        ("SELECT CAST('12345678901.5' AS DECIMAL(10,2))", "does not fit a DECIMAL of 10 digits"),
        ("SELECT DATE '2020-01-01' - INTERVAL '2147483647 days'", "beyond what DATE holds"),
        ("SELECT INTERVAL '2147483647 days' + INTERVAL '1 day'", "does not fit its type"),
        ("SELECT INTERVAL (3) DAY", "an interval is a text with its unit"),
        (
            "SELECT 'a' SIMILAR TO '(a'",
            "the pattern `(a` of SIMILAR TO is not understood: unclosed group",
        ),
        ("SELECT {'a': 1} AS x UNION ALL SELECT {'b': 2}", "records with other fields"),
        ("SELECT CAST(1 AS DECIMAL(5,-3))", "fewer than no digits"),
        (
            "SELECT 1 AS x UNION ALL SELECT true",
            "a UNION of BIGINT and BOOLEAN has no type for both",
        ),
        ("SELECT 1 AS x, 2 AS x", "two columns of a select list are `x`"),
        ("SELECT 1 AS x LIMIT -1", "LIMIT takes a whole number of zero and more"),
        ("SELECT 1 AS x OFFSET -2", "OFFSET takes a whole number of zero and more"),
        ("SELECT x FROM (SELECT 1 AS x) HAVING x > 0", "HAVING is a condition on groups"),
        (
            "SELECT (SELECT y FROM (VALUES (1), (2)) AS t (y)) AS x",
            "a subquery that stands for one value has more than one row",
        ),
        (
            "SELECT 1 AS x UNION SELECT 2 AS x, 3 AS y",
            "the sides of UNION have different numbers of columns",
        ),
        (
            "SELECT x FROM (SELECT 1 AS x) EXCEPT SELECT 2 AS x, 3 AS y",
            "the sides of EXCEPT have different numbers of columns",
        ),
        (
            "SELECT x FROM (SELECT 1 AS x) EXCEPT ALL SELECT * FROM (SELECT 2 AS x, 3 AS y)",
            "the sides of EXCEPT ALL have different numbers of columns",
        ),
        (
            "SELECT 1 AS x, 2 AS y INTERSECT ALL SELECT 2 AS x",
            "the sides of INTERSECT ALL have different numbers of columns",
        ),
        (
            "SELECT CASE WHEN x = 1 THEN 'a' ELSE [x] END FROM (SELECT 1 AS x)",
            "a CASE has one type, and there is none for TEXT and BIGINT[]",
        ),
        (
            "SELECT CASE [x] WHEN 1 THEN 2 END FROM (SELECT 1 AS x)",
            "a CASE has one type, and there is none for BIGINT[] and BIGINT",
        ),
        (
            "SELECT x, y FROM (SELECT 1 AS x, 2 AS y) GROUP BY ROLLUP ((x, y))",
            "ROLLUP and CUBE take keys, and no lists of keys",
        ),
        (
            "SELECT x, y FROM (SELECT 1 AS x, 2 AS y) GROUP BY CUBE ((x, y))",
            "ROLLUP and CUBE take keys, and no lists of keys",
        ),
        (
            "SELECT x, count(*) FROM (SELECT 1 AS x) GROUP BY 2",
            "the aggregate function `count` cannot stand in GROUP BY",
        ),
        ("SELECT x[1] FROM (SELECT 1 AS x)", "an item of a list or a field of a struct"),
        ("SELECT count(*) FROM (SELECT 1 AS x) GROUP BY ()", "without GROUP BY is of all rows"),
        (
            "SELECT CAST(TIMESTAMP '2026-01-02' - TIMESTAMP '2026-01-01' AS BIGINT)",
            "a difference of two times is not cast to BIGINT",
        ),
        (
            "SELECT range(TIMESTAMP '2020-01-01', TIMESTAMP '2290-01-01', INTERVAL '1 year')",
            "between 1677-09-21 and 2262-04-11",
        ),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains(expected), "{sql}: {message}");
    }
}

#[test]
fn errors_list_the_valid_choices() {
    let folder = files();
    folder.write("u.json", "{\"u\":{\"c\":1}}\n");
    for (sql, expected) in [
        (
            "SELECT NULL LIKE (NULL, 'a'), NULL ILIKE [NULL] FROM '$/ts.csv'",
            "LIKE takes texts, and no lists, structs or maps",
        ),
        (
            "SELECT date_trunc('fortnight', ts) FROM '$/ts.csv'",
            "`date_trunc` has no unit `fortnight`\nhint: its units are year, quarter,",
        ),
        (
            "SELECT date_part('fortnight', ts) FROM '$/ts.csv'",
            "a time has no field `fortnight`\nhint: the fields are year,",
        ),
        (
            "SELECT u.zz FROM '$/u.json'",
            "the struct has no field `zz`\nhint: `tidemill schema FILE`",
        ),
        ("SELECT w.* FROM '$/u.json'", "there is no source `w` for `w.*`\nhint: a source is named"),
        (
            "SELECT n FROM '$/f.csv' LIMIT (SELECT 1)",
            "LIMIT and OFFSET take a whole number\nhint: ",
        ),
        ("SELECT (n > 1) IN ('a') FROM '$/f.csv'", "there is no `BOOLEAN IN (TEXT)`\nhint: CAST"),
        (
            "SELECT n FROM '$/f.csv' ORDER BY 2",
            "`ORDER BY 2` is the place of a column, and there is none\nhint: the select list has 1 column,",
        ),
        (
            "SELECT n, count() FROM '$/f.csv' GROUP BY 3",
            "`GROUP BY 3` is the place of a column, and there is none\nhint: the select list has 2 columns,",
        ),
        (
            "EXPLAIN ANALYZE VERBOSE SELECT 1",
            "`EXPLAIN ANALYZE VERBOSE` is not supported\nhint: EXPLAIN ANALYZE SELECT",
        ),
        (
            "EXPLAIN (ANALYZE, BUFFERS) SELECT 1",
            "EXPLAIN takes no options\nhint: EXPLAIN SELECT … shows the plan, EXPLAIN ANALYZE",
        ),
        (
            "SELECT * FROM '$/f.csv' a ASOF JOIN '$/v.csv' b",
            "`ASOF JOIN` has no condition\nhint: ASOF JOIN b ON",
        ),
        (
            "SELECT * FORM '$/f.csv'",
            "SQL is not understood: Expected: end of statement, found: FORM at Line: 1, Column: 10\n\
             hint: did you mean FROM?",
        ),
        ("SELECT CAST(u AS INT) FROM '$/u.json'", "a STRUCT is not cast to INT\nhint: unnest(s)"),
    ] {
        let said = folder.sql_error(sql);
        assert!(said.starts_with(expected), "{sql}\n{said}");
    }
    let said = folder.sql_error("SELECT * FROM '$/f.csv' (a)");
    assert!(said.contains("hint: an alias stands between them: FROM '"), "{said}");
    assert_eq!(
        folder.run_sql("SELECT count(DISTINCT struct(d, n)) FROM '$/f.csv'").single_value(),
        "2"
    );
    assert_eq!(folder.run_sql("SELECT unnest + 1 AS x FROM unnest([1]) AS t").single_value(), "2");
    assert_eq!(folder.run_sql("SELECT x FROM unnest([1]) AS t(x)").single_value(), "1");
}

/// A message does not name the function that implements the call.
#[test]
fn call_errors_use_the_name_as_written() {
    let folder = Folder::new();
    folder.write("w.csv", "k,v,d\na,1,2\nb,3,1\n");
    for (select, expected) in [
        (
            "arg_max(k, v) OVER (ORDER BY d)",
            "`arg_max` is not called over a window\nhint: first_value(CASE WHEN v IS NOT NULL THEN k END) IGNORE NULLS OVER \
             (PARTITION BY k ORDER BY v DESC ROWS",
        ),
        ("min_by(k, v) OVER ()", "`min_by` is not called over a window\nhint: first_value("),
        ("argMax(k, v) OVER ()", "`argMax` is not called over a window\nhint: first_value("),
        ("anyLast(k) OVER ()", "`anyLast` is not called over a window\nhint: last_value(k) IGNORE"),
        ("max(v, 2) OVER ()", "`max` is not called over a window\nhint: GROUP BY"),
        ("maximum(v, 2) OVER ()", "`maximum` is not called over a window\nhint: GROUP BY"),
        ("mad(v) OVER ()", "`mad` is not called over a window\nhint: GROUP BY gives each group"),
        ("maximum(v, 2 ORDER BY d)", "`maximum` has an order of its own, and takes no ORDER BY"),
        ("sample(k, 2 ORDER BY d)", "`sample` has an order of its own, and takes no ORDER BY"),
        ("arg_max(k, v ORDER BY d)", "`arg_max` has an order of its own, and takes no ORDER BY"),
        ("maximum(NULL, 2)", "`maximum` lists values of rows, and `NULL` is a constant\nhint: "),
        (
            "hll_union(k, v, d)",
            "`hll_union` takes a column, or two; these are 3\nhint: hll_merge(hll_merge(k, v), d)",
        ),
        (
            "id_set_union(k, v, d)",
            "`id_set_union` takes a column, or two; these are 3\nhint: id_set_merge(id_set_merge(",
        ),
        (
            "max(v, 3, k)",
            "there is no `max(BIGINT, BIGINT, TEXT)`\nhint: it is called as max(expression), max(expression, n)",
        ),
        ("nth_value(v, 0 ORDER BY d)", "`nth_value` counts from 1\nhint: first_value(x) is"),
        ("nth_value(v, 1 - 1)", "`nth_value` counts from 1\nhint: first_value(x) is"),
        ("nth_value(v, -1)", "`nth_value` counts from 1\nhint: nth_value(x, 1) with the opposite"),
        ("nth_value(v, NULL)", "the place of `nth_value` is a whole number"),
        ("nth_value(v, d)", "the place of `nth_value` is a whole number"),
        ("quantile(v, [])", "`quantile` is asked for no rank\nhint: a list has one or more"),
        ("quantile_cont(v, [])", "`quantile_cont` is asked for no rank\nhint: a list has one or"),
        ("maximum(v, 1 - 1)", "n of `maximum` is a whole number from 1 to 1000000; found 0"),
    ] {
        let said = folder.sql_error(&format!("SELECT {select} FROM '$/w.csv'"));
        assert!(said.starts_with(expected), "{select}: {said}");
    }
    let sliding = "SELECT top_k(v, 2) OVER (ORDER BY d ROWS 1 PRECEDING) FROM '$/w.csv'";
    let hint =
        "slides\nhint: a frame that begins with UNBOUNDED PRECEDING works; count(DISTINCT x)";
    let said = folder.sql_error(sliding);
    assert!(said.contains(hint), "{said}");
    let running = "SELECT count(DISTINCT v) OVER (ORDER BY d ROWS 1 PRECEDING) FROM '$/w.csv'";
    assert_eq!(folder.run_sql(running).sorted_rows(), string_rows(&[&["1"], &["2"]]));
}
