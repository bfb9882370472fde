//! What people write who come from other databases is answered as it is answered there.

use crate::common::Folder;

fn folder() -> Folder {
    let folder = Folder::new();
    let rows =
        "ts,k,v\n2026-11-20T01:00:00,a,1\n2026-11-20T02:00:00,b,2\n2026-11-21T02:00:00,a,3\n";
    folder.write("f.csv", rows);
    folder.write("g.csv", rows);
    folder.write("semicolons.txt", "a;b\n1;2\n");
    folder
}

/// Each row: SQL, and the answer's columns and rows as CSV without quotes.
fn check(rows: &[(&str, &str)]) {
    let folder = folder();
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(sql, expected)| {
            let answer = folder.ask(sql);
            let lines = std::iter::once(answer.columns()).chain(answer.rows());
            let lines: Vec<String> = lines.map(|line| line.join(",")).collect();
            let found = lines.join("\n");
            (found != *expected).then(|| format!("{sql}\nfound:\n{found}\nexpected:\n{expected}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn functions_and_operators() {
    check(&[
        (
            "SELECT year(ts), count_if(v > 1) FROM '$/f.csv' GROUP BY year(ts) ORDER BY year(ts)",
            "year(ts),count_if(v > 1)\n2026,2",
        ),
        ("SELECT if(v > 1, 'y', 'n') AS c FROM '$/f.csv' ORDER BY v", "c\nn\ny\ny"),
        ("SELECT arg_max(k, v), arg_min(k, v) FROM '$/f.csv'", "arg_max(k, v),arg_min(k, v)\na,a"),
        ("SELECT arg_max(k, v) FILTER (v < 3) AS k FROM '$/f.csv'", "k\nb"),
        ("SELECT mode(k) AS k, sumIf(v, k = 'a') AS n FROM '$/f.csv'", "k,n\na,4"),
        ("SELECT list(v ORDER BY v DESC) AS l FROM '$/f.csv'", "l\n[3, 2, 1]"),
        ("SELECT quantile(0.5)(v) AS q, topK(1)(k) AS k FROM '$/f.csv'", "q,k\n2.0,[a]"),
        ("SELECT 7 // 2 AS a, -7 // 2 AS b, 2 ^ 3 AS c, 2 ** 3 AS d", "a,b,c,d\n3,-3,8.0,8.0"),
        ("SELECT 7 DIV 2 AS a, div(7, 2) AS b, intDiv(-7, 2) AS c", "a,b,c\n3,3,-3"),
        ("SELECT 7.5 DIV 2 AS a, safe_divide(7, 2) AS b, safe_divide(1, 0) AS c", "a,b,c\n3,3.5,∅"),
        ("SELECT list_filter([1, 2, 3], x -> x > 1) AS l", "l\n[2, 3]"),
        ("SELECT arrayMap(x -> x * 2, [1, 2]) AS l", "l\n[2, 4]"),
        ("SELECT k FROM '$/f.csv' WHERE k LIKE ANY ('b%', 'c%')", "k\nb"),
        ("SELECT k FROM '$/f.csv' WHERE k NOT LIKE ANY ('a%', 'c%')", "k\nb"),
        ("SELECT v FROM '$/f.csv' WHERE k RLIKE '^b' OR k REGEXP 'c'", "v\n2"),
        ("SELECT date_add('month', 2, DATE '2026-11-20') AS d", "d\n2027-01-20"),
        ("SELECT dateadd(day, -1, DATE '2026-11-20') AS d", "d\n2026-11-19"),
        (
            "SELECT multiIf(v = 1, 'x', v = 2, 'y', 'z') AS c FROM '$/f.csv' ORDER BY v",
            "c\nx\ny\nz",
        ),
    ]);
}

#[test]
fn clauses() {
    check(&[
        (
            "SELECT k, sum(v) AS n FROM '$/f.csv' GROUP BY k WITH ROLLUP ORDER BY k",
            "k,n\na,4\nb,2\n∅,6",
        ),
        ("SELECT v FROM '$/f.csv' ORDER BY v FETCH FIRST 2 ROWS ONLY", "v\n1\n2"),
        ("SELECT v FROM '$/f.csv' ORDER BY v OFFSET 1 ROW FETCH NEXT 1 ROW ONLY", "v\n2"),
        ("SELECT TOP 1 v FROM '$/f.csv' ORDER BY v DESC", "v\n3"),
        ("SELECT v FROM '$/f.csv' PREWHERE v > 1 WHERE k = 'a'", "v\n3"),
        ("SELECT k, v FROM '$/f.csv' ORDER BY v DESC LIMIT 1 BY k", "k,v\na,3\nb,2"),
        ("SELECT v FROM '$/f.csv' x ANTI JOIN (SELECT 'a' AS k) y ON x.k = y.k", "v\n2"),
        ("SELECT v FROM '$/f.csv' x SEMI JOIN (SELECT 'b' AS k) y ON x.k = y.k", "v\n2"),
        ("SELECT count(*) FILTER (v > 1) AS n FROM '$/f.csv'", "n\n2"),
    ]);
}

#[test]
fn tables() {
    check(&[
        ("SELECT count(*) AS n FROM ['$/f.csv', '$/g.csv']", "n\n6"),
        ("SELECT sum(v) AS n FROM read_csv('$/f.csv')", "n\n6"),
        ("SELECT sum(v) AS n FROM read_csv(['$/f.csv', '$/g.csv'], header = true)", "n\n12"),
        ("SELECT a, b FROM read_csv('$/semicolons.txt', delim = ';')", "a,b\n1,2"),
        ("SELECT r.v FROM read_csv_auto('$/f.csv') AS r WHERE r.v = 2", "v\n2"),
        ("SELECT * FROM range(3)", "range\n0\n1\n2"),
        ("SELECT n FROM generate_series(1, 5, 2) AS t(n)", "n\n1\n3\n5"),
        ("SELECT number FROM numbers(2)", "number\n0\n1"),
    ]);
    let folder = folder();
    for (sql, expected) in [
        ("SELECT * FROM read_csv('$/f.csv', skip = 2)", "`skip = 2` in read_csv(…)"),
        ("SELECT * FROM read_csv('$/f.csv', filename = true)", "`filename = true` in read_csv(…)"),
        ("SELECT * FROM read_csv('$/f.csv', union_by_name = false)", "`union_by_name = false`"),
        ("SELECT * FROM read_csv('$/f.csv', delim = 'ab')", "option `delimiter` is one ASCII"),
        ("SELECT * FROM read_csv()", "`()` in read_csv(…)"),
        ("SELECT year(ts) FILTER (WHERE v > 1) FROM '$/f.csv'", "`year` takes nothing but"),
        (
            "SELECT v FROM '$/f.csv' END WHERE v > 1",
            "SQL is not understood: Expected: end of statement",
        ),
        ("SELECT year(2)(ts) FROM '$/f.csv'", "`year(2)(ts)` is not supported"),
        ("SELECT any(v > 1) FROM '$/f.csv'", "unknown function `any`"),
        ("SELECT year() FROM '$/f.csv'", "`year` takes other arguments"),
        ("SELECT count_if(v > 1), count_if(v > 1) FROM '$/f.csv'", "two columns of a select list"),
    ] {
        let message = folder.refusal(sql);
        assert!(message.starts_with(expected), "{sql}\n{message}");
    }
}

#[test]
fn tables_that_are_turned() {
    check(&[
        (
            "SELECT * FROM (SELECT k, v FROM '$/f.csv') PIVOT (sum(v) FOR k IN ('a', 'b' AS other))",
            "a,other\n4,2",
        ),
        (
            "SELECT * FROM (SELECT 1 AS id, k, v FROM '$/f.csv') \
             PIVOT (sum(v) AS total, count(*) AS n FOR k IN ('a', 'c'))",
            "id,a_total,a_n,c_total,c_n\n1,4,2,∅,0",
        ),
        (
            "SELECT * FROM (SELECT 1 AS id, 2 AS a, CAST(NULL AS BIGINT) AS b) \
             UNPIVOT (value FOR name IN (a, b))",
            "id,name,value\n1,a,2",
        ),
        (
            "SELECT * FROM (SELECT 1 AS id, 2 AS a, CAST(NULL AS BIGINT) AS b) \
             UNPIVOT INCLUDE NULLS (value FOR name IN (a AS first, b)) ORDER BY name",
            "id,name,value\n1,b,∅\n1,first,2",
        ),
    ]);
}
