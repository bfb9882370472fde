//! Tests of syntax and functions of other databases, which have the same answers as there.

use crate::common::Folder;

fn folder() -> Folder {
    let folder = Folder::new();
    let rows =
        "ts,k,v\n2026-11-20T01:00:00,a,1\n2026-11-20T02:00:00,b,2\n2026-11-21T02:00:00,a,3\n";
    folder.write("f.csv", rows);
    folder.write("g.csv", rows);
    folder.write("semicolons.txt", "a;b\n1;2\n");
    folder.write("n.csv", "x,y\n1,2\nNULL,N/A\n");
    folder
}

/// Checks rows of SQL, and the answer's columns and rows as CSV without quotes.
fn assert_answers(rows: &[(&str, &str)]) {
    let folder = folder();
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(sql, expected)| {
            let answer = folder.run_sql(sql);
            let lines = std::iter::once(answer.column_names()).chain(answer.rows());
            let lines: Vec<String> = lines.map(|line| line.join(",")).collect();
            let found = lines.join("\n");
            (found != *expected).then(|| format!("{sql}\nfound:\n{found}\nexpected:\n{expected}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn functions_and_operators_of_other_dialects_are_accepted() {
    assert_answers(&[
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
        (
            "SELECT quantile(v, [0.5]) AS a, quantiles(0.5)(v) AS b, quantile(v, 0.5) AS c, \
             quantile(v, [0.5]) FILTER (WHERE v > 2) AS d, percentile_approx(v, [0.5]) AS e FROM '$/f.csv'",
            "a,b,c,d,e\n[2.0],[2.0],2.0,[3.0],[2.0]",
        ),
        ("SELECT quantile(v, [0.5]) AS q FROM '$/f.csv' WHERE v > 9", "q\n∅"),
        ("SELECT quantile(v, [0.5]) OVER () AS q FROM '$/f.csv' LIMIT 1", "q\n[2.0]"),
        (
            "SELECT maximum(v, 1 + 1) AS l, sample(v, 2 - 1, 3 * 1)[2] AS s FROM '$/f.csv'",
            "l,s\n[3, 2],∅",
        ),
        (
            "SELECT array_agg(v ORDER BY v)[1:2147483648] AS a, array_slice([1, 2], 2, 99999999999) AS b, \
             (array_agg(v ORDER BY v)[0]) AS c FROM '$/f.csv'",
            "a,b,c\n[1, 2, 3],[2],∅",
        ),
        (
            "SELECT array_agg(k ORDER BY k DESC) AS a, array_agg(DISTINCT k ORDER BY k) AS b, \
             string_agg(DISTINCT k, '+' ORDER BY k DESC) AS c, \
             string_agg(DISTINCT k, '+' ORDER BY k) FILTER (WHERE v > 1) AS d FROM '$/f.csv'",
            "a,b,c,d\n[b, a, a],[a, b],b+a,a+b",
        ),
        ("SELECT 7 // 2 AS a, -7 // 2 AS b, 2 ^ 3 AS c, 2 ** 3 AS d", "a,b,c,d\n3,-3,8.0,8.0"),
        ("SELECT 7 DIV 2 AS a, div(7, 2) AS b, intDiv(-7, 2) AS c", "a,b,c\n3,3,-3"),
        ("SELECT 7.5 DIV 2 AS a, safe_divide(7, 2) AS b, safe_divide(1, 0) AS c", "a,b,c\n3,3.5,∅"),
        ("SELECT list_filter([1, 2, 3], x -> x > 1) AS l", "l\n[2, 3]"),
        ("SELECT arrayMap(x -> x * 2, [1, 2]) AS l", "l\n[2, 4]"),
        ("SELECT k FROM '$/f.csv' WHERE k LIKE ANY ('b%', 'c%')", "k\nb"),
        ("SELECT k FROM '$/f.csv' WHERE k NOT LIKE ANY ('a%', 'c%')", "k\nb"),
        ("SELECT v FROM '$/f.csv' WHERE k RLIKE '^b' OR k REGEXP 'c'", "v\n2"),
        ("SELECT weighted_avg(v, v) FILTER (v > 1) AS a FROM '$/f.csv'", "a\n2.6"),
        (
            "SELECT v, weighted_avg(v, v) OVER (PARTITION BY k) AS a FROM '$/f.csv' ORDER BY v",
            "v,a\n1,2.5\n2,2.0\n3,2.5",
        ),
        (
            "SELECT quantilesExact(0.1, 0.9)(v) AS q, percentile_disc(0.5) WITHIN GROUP (ORDER BY v) AS p FROM '$/f.csv'",
            "q,p\n[1, 3],2",
        ),
        ("SELECT quantileExactIf(0.5)(v, k = 'a') AS q FROM '$/f.csv'", "q\n3"),
        ("SELECT first(nullif(v, 1), true) AS n FROM '$/f.csv'", "n\n2"),
        ("SELECT any_value(k ORDER BY v DESC) AS k FROM '$/f.csv'", "k\na"),
        ("SELECT array_remove([1, 2, 1], 1) AS l, concat([1], [2], NULL) AS m", "l,m\n[2],[1, 2]"),
        ("SELECT concat_ws('-', ['a', 'b'], [], 'c') AS x", "x\na-b-c"),
        ("SELECT concat_ws('-', array_agg(k ORDER BY v)) AS x FROM '$/f.csv'", "x\na-b-a"),
        ("SELECT list_sort([3, NULL, 1], 'DESC')[1] AS n", "n\n3"),
        (
            "SELECT arraySort(x -> -x, [1, 3, 2]) AS l, [1] IS DISTINCT FROM [2] AS d",
            "l,d\n[3, 2, 1],true",
        ),
        ("SELECT struct_pack(a := 1)['a'] AS a, encode('ab', 'base64') AS b", "a,b\n1,YWI="),
        ("SELECT date_add('month', 2, DATE '2026-11-20') AS d", "d\n2027-01-20"),
        ("SELECT dateadd(day, -1, DATE '2026-11-20') AS d", "d\n2026-11-19"),
        (
            "SELECT multiIf(v = 1, 'x', v = 2, 'y', 'z') AS c FROM '$/f.csv' ORDER BY v",
            "c\nx\ny\nz",
        ),
    ]);
}

#[test]
fn row_values_are_compared() {
    assert_answers(&[
        // A column is named as it is written.
        (
            "SELECT (k, v) IN (('a', 1), ('b', v)), (k, v) IN (('a', 1), ('b', v)) FROM '$/f.csv' ORDER BY v LIMIT 1",
            "(k, v) IN (('a', 1), ('b', v)),(k, v) IN (('a', 1), ('b', v))_1\ntrue,true",
        ),
        (
            "SELECT (k, v) IN (SELECT 'a', 3) FROM '$/f.csv' ORDER BY v",
            "(k, v) IN (SELECT 'a', 3)\nfalse\nfalse\ntrue",
        ),
        ("SELECT k FROM '$/f.csv' GROUP BY k HAVING (k, count(*)) IN (('a', 2), ('b', 2))", "k\na"),
        (
            "SELECT k FROM '$/f.csv' GROUP BY k HAVING (k, count(*)) IN (SELECT 'a', 2 UNION ALL SELECT 'b', 2)",
            "k\na",
        ),
        (
            "SELECT k FROM '$/f.csv' GROUP BY k HAVING sum(v) < 9 AND (count(*), k) IN (SELECT 1, 'b')",
            "k\nb",
        ),
        ("SELECT k FROM '$/f.csv' GROUP BY k HAVING (k, count(*)) NOT IN (SELECT 'a', 2)", "k\nb"),
        // An unknown value may be equal.
        ("SELECT k FROM '$/f.csv' GROUP BY k HAVING (k, count(*)) NOT IN (SELECT NULL, 2)", "k\nb"),
        (
            "SELECT k, count(*) AS n FROM '$/f.csv' GROUP BY k HAVING (k, n) IN (SELECT 'b', 1)",
            "k,n\nb,1",
        ),
    ]);
    let folder = folder();
    for (sql, expected) in [
        (
            "SELECT v FROM '$/f.csv' WHERE (random(), v) NOT IN (SELECT 1, 2)",
            "`(random(), v) NOT IN (SELECT 1, 2)` uses `random()` more than once",
        ),
        (
            "SELECT v FROM '$/f.csv' WHERE v > 1 AND (random(), v) IN (SELECT 1, 2)",
            "`(random(), v) IN (SELECT 1, 2)` uses `random()` more than once",
        ),
        (
            "SELECT (random(), v) IN (SELECT 1, 2) FROM '$/f.csv'",
            "`(random(), v) IN (SELECT 1, 2)` uses `random()` more than once",
        ),
        (
            "SELECT v FROM '$/f.csv' WHERE (v, v) NOT IN (SELECT random(), 2)",
            "`(v, v) NOT IN (SELECT random(), 2)` uses `random()` more than once",
        ),
        (
            "SELECT k FROM '$/f.csv' GROUP BY k HAVING (sum(v), count(*)) IN (SELECT 4, 2)",
            "`(sum(v), count(*)) IN (SELECT 4, 2)` in HAVING has two aggregates in a row",
        ),
        (
            "SELECT k FROM '$/f.csv' GROUP BY k HAVING k = 'z' OR (k, count(*)) IN (SELECT 'a', 2)",
            "`(k, count(*)) IN (SELECT 'a', 2)` in HAVING stands within another condition than AND",
        ),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.starts_with(expected), "{sql}\n{message}");
    }
}

#[test]
fn statistical_functions_of_other_dialects_are_exact() {
    assert_answers(&[
        (
            "SELECT quantile_disc(n, 0.55) AS a, quantile_disc(n, 0.07) AS b, quantile_disc(n, -0.55) AS c, \
             quantile_disc(n, [0.1, -0.1]) AS d, percentile_disc(0.25) WITHIN GROUP (ORDER BY n DESC) AS e, \
             percentile_disc(0) WITHIN GROUP (ORDER BY n DESC) AS f FROM generate_series(1, 100) AS t(n)",
            "a,b,c,d,e,f\n55,7,46,[10, 91],76,100",
        ),
        (
            "SELECT quantile_disc(k, 0.5) AS a, quantile_disc(v, 0.5) AS b, quantile_disc(v, -0.25) AS c FROM '$/f.csv'",
            "a,b,c\na,2,3",
        ),
        ("SELECT quantile_cont(n, 0.55) AS a FROM generate_series(0, 100) AS t(n)", "a\n55.0"),
        (
            "SELECT round(skewness(n), 12) AS a, round(kurtosis(n), 12) AS b, round(kurtosis_pop(n), 12) AS c, \
             round(skewPop(n), 12) AS d, round(kurtPop(n), 12) AS e, skewness(n - n) AS f, kurtosis(CAST(n AS BIGINT)) > 0.7 AS g \
             FROM (VALUES (1000000001.0), (1000000002.0), (1000000004.0), (1000000008.0)) AS t(n)",
            "a,b,c,d,e,f,g\n1.137624366958,0.757655954631,-1.098979206049,0.6568077345,1.901020793951,∅,true",
        ),
        (
            "SELECT 12345678901111111 % 2.0 AS a, 12345678901111111 % 10.0 AS b, 7 % 2.5 AS c",
            "a,b,c\n1.0,1.0,2.0",
        ),
        (
            "SELECT string_agg(k, NULL) AS a, listagg(k, NULL ORDER BY v) AS b FROM '$/f.csv'",
            "a,b\n∅,∅",
        ),
        (
            "SELECT to_decades(NULL) AS a, to_years(NULL) AS b, arrow_typeof(to_millennia(NULL)) AS c",
            "a,b,c\n∅,∅,Interval(MonthDayNano)",
        ),
        (
            "SELECT regexp_replace('a.bB', 'B', 'x', 'lci') AS a, regexp_replace('a.b.', '.', '-', 'lgc') AS b, \
             regexp_replace('abB', 'B', 'x', 'ic') AS c",
            "a,b,c\na.xB,a-b-,abx",
        ),
        (
            "SELECT CAST(0.5 AS HUGEINT) AS a, CAST(-0.5 AS HUGEINT) AS b, CAST(2.5 AS HUGEINT) AS c",
            "a,b,c\n1,-1,3",
        ),
        (
            "SELECT * FROM (SELECT 1 AS a, 2 AS b, 3 AS c) NATURAL JOIN (SELECT 3 AS c, 4 AS d, 1 AS a)",
            "a,b,c,d\n1,2,3,4",
        ),
    ]);
    let message = folder().sql_error("SELECT quantile_disc(v, 1.5) FROM '$/f.csv'");
    assert!(message.starts_with("a quantile's fraction is 1.5"), "{message}");
}

#[test]
fn clauses_of_other_dialects_are_accepted() {
    assert_answers(&[
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
        ("SELECT * EXCLUDE (ts) FROM '$/f.csv' ORDER BY ALL DESC", "k,v\nb,2\na,3\na,1"),
        ("SELECT COLUMNS('[kv]') FROM '$/f.csv' ORDER BY ALL LIMIT 2", "k,v\na,1\na,3"),
    ]);
    let message = folder().sql_error("SELECT * FROM '$/f.csv' FINAL");
    assert!(message.starts_with("`FINAL` is not supported"), "{message}");
}

#[test]
fn table_functions_of_other_dialects_are_accepted() {
    assert_answers(&[
        ("SELECT count(*) AS n FROM ['$/f.csv', '$/g.csv']", "n\n6"),
        ("SELECT sum(v) AS n FROM read_csv('$/f.csv')", "n\n6"),
        ("SELECT sum(v) AS n FROM read_csv(['$/f.csv', '$/g.csv'], header = true)", "n\n12"),
        ("SELECT a, b FROM read_csv('$/semicolons.txt', delim = ';')", "a,b\n1,2"),
        ("SELECT count(*) AS n FROM read_csv('$/f.csv', skip = 1, header = false)", "n\n3"),
        ("SELECT sum(v) AS n FROM read_csv('$/f.csv', header_row = 1)", "n\n6"),
        ("SELECT sum(v) AS n FROM read_csv('$/f.csv', skip_rows = 0)", "n\n6"),
        (
            "SELECT count(x), sum(y) FROM read_csv('$/n.csv', nullstr = ['NULL', 'N/A'])",
            "count(x),sum(y)\n1,2",
        ),
        ("SELECT r.v FROM read_csv_auto('$/f.csv') AS r WHERE r.v = 2", "v\n2"),
        ("SELECT * FROM range(3)", "range\n0\n1\n2"),
        ("SELECT n FROM generate_series(1, 5, 2) AS t(n)", "n\n1\n3\n5"),
        ("SELECT number FROM numbers(2)", "number\n0\n1"),
    ]);
    let folder = folder();
    for (sql, expected) in [
        ("SELECT * FROM read_csv('$/f.csv', max_line_size = 2)", "`max_line_size` in read_csv(…)"),
        (
            "SELECT * FROM read_csv('$/f.csv', skip = 'x')",
            "option `skip_lines` is a number of lines",
        ),
        (
            "SELECT * FROM read_csv('$/f.csv', skip = 1, header_row = 2)",
            "options `skip_lines` and `header_row` exclude",
        ),
        ("SELECT * FROM read_csv('$/f.csv', parallel = true)", "`parallel` in read_csv(…)"),
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
    ] {
        let message = folder.sql_error(sql);
        assert!(message.starts_with(expected), "{sql}\n{message}");
    }
}

#[test]
fn pivot_and_unpivot_in_from_reshape_tables() {
    assert_answers(&[
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

#[test]
fn columns_are_selected_by_pattern() {
    assert_answers(&[
        ("SELECT min(COLUMNS('^[kv]')) FROM '$/f.csv'", "min(k),min(v)\na,1"),
        ("SELECT COLUMNS(c -> c LIKE 'v%') + 1 AS n FROM '$/f.csv' LIMIT 1", "n\n2"),
        (
            "SELECT COLUMNS('^(v)') AS 'n_\\1', max(COLUMNS([k, 'v'])) OVER () FROM '$/f.csv' LIMIT 1",
            "n_v,max(k) OVER (),max(v) OVER ()\n1,b,3",
        ),
        ("SELECT COLUMNS(* EXCLUDE (ts)) FROM '$/f.csv' LIMIT 1", "k,v\na,1"),
        ("SELECT year(COLUMNS('ts')) FROM '$/f.csv' LIMIT 1", "year(ts)\n2026"),
        (
            "SELECT * RENAME (v AS n, K AS key) FROM '$/f.csv' LIMIT 1",
            "ts,key,n\n2026-11-20T01:00:00,a,1",
        ),
        ("SELECT * ILIKE 'V%' FROM '$/f.csv' LIMIT 1", "v\n1"),
        ("SELECT x.* EXCLUDE (ts) RENAME (v AS n) FROM '$/f.csv' AS x LIMIT 1", "k,n\na,1"),
        (
            "SELECT v FROM (SELECT COLUMNS('[kv]') FROM '$/f.csv') WHERE COLUMNS('v') > 1 ORDER BY v",
            "v\n2\n3",
        ),
        (
            "WITH t AS (SELECT * RENAME (v AS n) FROM '$/f.csv') SELECT sum(COLUMNS('n')) FROM t",
            "sum(n)\n6",
        ),
    ]);
    let folder = folder();
    for (sql, expected) in [
        ("SELECT COLUMNS('x') FROM '$/f.csv'", "no column is meant by `COLUMNS('x')`"),
        ("SELECT COLUMNS('(') FROM '$/f.csv'", "`(` in COLUMNS is no regular expression"),
        ("SELECT COLUMNS([k, z]) FROM '$/f.csv'", "unknown column `z`"),
        ("SELECT COLUMNS() FROM '$/f.csv'", "`COLUMNS()` is not understood"),
        ("SELECT * RENAME (z AS a) FROM '$/f.csv'", "unknown column `z`"),
        (
            "SELECT COLUMNS('k') || COLUMNS('v') FROM '$/f.csv'",
            "`COLUMNS('k')` and `COLUMNS('v')` in one expression",
        ),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.starts_with(expected), "{sql}\n{message}");
    }
}

#[test]
fn select_aliases_are_usable_in_select_list_and_where() {
    assert_answers(&[
        (
            "SELECT v * 2 AS d, d + 1 AS e, e + 0 FROM '$/f.csv' WHERE e > 5 ORDER BY d",
            "d,e,e + 0\n6,7,7",
        ),
        ("SELECT v + 1 AS n, n * 2 FROM '$/f.csv' ORDER BY n LIMIT 1", "n,n * 2\n2,4"),
        // A column takes precedence over a name of the select list.
        ("SELECT v * 10 AS v, v + 1 AS n FROM '$/f.csv' WHERE v > 2", "v,n\n30,4"),
        (
            "SELECT k, sum(v) AS s, s / count(*) AS m FROM '$/f.csv' GROUP BY k HAVING s > 2 ORDER BY k",
            "k,s,m\na,4,2.0",
        ),
        (
            "SELECT k AS key, list_filter([1, 2], key -> key > 1) AS l FROM '$/f.csv' WHERE key = 'b'",
            "key,l\nb,[2]",
        ),
        ("SELECT n FROM (SELECT v AS x, x + 1 AS n FROM '$/f.csv') WHERE n = 3", "n\n3"),
        (
            "WITH t AS (SELECT v AS x FROM '$/f.csv' WHERE x > 1) SELECT x AS y FROM t WHERE y < 3",
            "y\n2",
        ),
    ]);
    let folder = folder();
    for (sql, expected) in [
        (
            "SELECT sum(v) AS s FROM '$/f.csv' WHERE s > 1",
            "WHERE looks at single records, and `s` is",
        ),
        (
            "SELECT row_number() OVER () AS n FROM '$/f.csv' WHERE n = 1",
            "WHERE looks at single records, and `n` is",
        ),
        ("SELECT random() AS r, r * 2 FROM '$/f.csv'", "`r` is used twice, and random() gives"),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.starts_with(expected), "{sql}\n{message}");
    }
}

#[test]
fn pivot_and_unpivot_statements_reshape_tables() {
    assert_answers(&[
        ("PIVOT '$/f.csv' ON k USING sum(v) GROUP BY year(ts)", "year(ts),a,b\n2026,4,2"),
        (
            "PIVOT (SELECT k, v FROM '$/f.csv') ON k IN ('a', 'c') USING max(v) AS m, count(*)",
            "a_m,a_count(*),c_m,c_count(*)\n3,2,∅,0",
        ),
        (
            "SELECT * FROM (PIVOT (SELECT k, v FROM '$/f.csv') ON v USING count(*)) ORDER BY k",
            "k,1,2,3\na,1,0,1\nb,0,1,0",
        ),
        (
            "UNPIVOT (SELECT 1 AS id, 2 AS a, 3 AS b) ON a, b INTO NAME n VALUE x ORDER BY n",
            "id,n,x\n1,a,2\n1,b,3",
        ),
        // A column's name keeps its own case, whatever the query's.
        ("UNPIVOT (SELECT K, V FROM '$/f.csv' WHERE v = 2) ON V", "k,name,value\nb,v,2"),
        (
            "SELECT * FROM (SELECT k, v FROM '$/f.csv' WHERE v = 2) UNPIVOT (x FOR n IN (V AS \"V\"))",
            "k,n,x\nb,V,2",
        ),
    ]);
    let upper = Folder::new();
    upper.write("u.csv", "Abc,dEf\n1,2\n");
    let answer = upper.run_sql("UNPIVOT '$/u.csv' ON abc, DEF INTO NAME n VALUE x ORDER BY n");
    assert_eq!(answer.rows(), [["Abc", "1"], ["dEf", "2"]]);
    let message =
        folder().sql_error("PIVOT (SELECT * FROM '$/f.csv' WHERE v > 9) ON k USING sum(v)");
    assert!(message.starts_with("a PIVOT on a column without values"), "{message}");
}

#[test]
fn unnest_joins_list_items_with_their_records() {
    let folder = Folder::new();
    folder.write(
        "l.json",
        "{\"id\":1,\"tags\":[\"a\",\"b\"],\"ns\":[7]}\n{\"id\":2,\"tags\":[],\"ns\":[8,9]}\n\
         {\"id\":3,\"tags\":null,\"ns\":[1]}\n",
    );
    let all = [["1", "a"], ["1", "b"]];
    let kept = [["1", "a"], ["1", "b"], ["2", "∅"], ["3", "∅"]];
    for (from, item, expected) in [
        ("FROM '$/l.json' u, unnest(u.tags) AS x(tag)", "x.tag", all.as_slice()),
        ("FROM '$/l.json' u, unnest(tags) AS tag", "tag", &all),
        ("FROM '$/l.json' u CROSS JOIN unnest(u.tags) x", "x.unnest", &all),
        ("FROM '$/l.json' u CROSS JOIN LATERAL unnest(u.tags) AS x(tag)", "tag", &all),
        ("FROM '$/l.json' u LEFT JOIN LATERAL unnest(u.tags) AS x(tag) ON true", "tag", &kept),
        ("FROM '$/l.json' LATERAL VIEW explode(tags) x AS tag", "tag", &all),
        ("FROM '$/l.json' LATERAL VIEW OUTER explode(tags) x AS tag", "x.tag", &kept),
        ("FROM '$/l.json' ARRAY JOIN tags AS tag", "tag", &all),
        ("FROM '$/l.json' LEFT ARRAY JOIN tags AS tag", "tag", &kept),
    ] {
        let sql = format!("SELECT id, {item} {from} ORDER BY id, {item}");
        assert_eq!(folder.run_sql(&sql).rows(), expected, "{sql}");
    }
    for (sql, expected) in [
        (
            "SELECT u.id, t, n FROM '$/l.json' u, unnest(u.tags) x(t), unnest(u.ns) y(n) WHERE x.t = 'b'",
            vec![vec!["1", "b", "7"]],
        ),
        (
            "SELECT id, tag, place FROM '$/l.json' u, unnest(tags) WITH ORDINALITY AS x(tag, place) \
             ORDER BY x.place",
            vec![vec!["1", "a", "1"], vec!["1", "b", "2"]],
        ),
        (
            "SELECT pos, tag FROM '$/l.json' LATERAL VIEW posexplode(tags) x AS pos, tag ORDER BY pos",
            vec![vec!["0", "a"], vec!["1", "b"]],
        ),
        (
            "SELECT x.t, count(*) FROM '$/l.json' u, unnest(u.tags) AS x(t) GROUP BY x.t HAVING x.t < 'b'",
            vec![vec!["a", "1"]],
        ),
    ] {
        assert_eq!(folder.run_sql(sql).rows(), expected, "{sql}");
    }
}

#[test]
fn describe_summarize_and_explain_return_rows() {
    assert_answers(&[
        (
            "DESCRIBE '$/f.csv'",
            "column_name,column_type,null\nts,TIMESTAMP(6),YES\nk,TEXT,YES\nv,BIGINT,YES",
        ),
        (
            "DESCRIBE SELECT k, sum(v) AS n FROM '$/f.csv' GROUP BY k",
            "column_name,column_type,null\nk,TEXT,YES\nn,BIGINT,YES",
        ),
        (
            "SUMMARIZE SELECT k, v, [v] AS l FROM '$/f.csv' WHERE v > 1",
            "column_name,column_type,min,max,approx_unique,avg,std,q25,q50,q75,count,nulls,null_percentage\n\
             k,TEXT,a,b,2,∅,∅,∅,∅,∅,2,0,0.0\n\
             v,BIGINT,2,3,2,2.5,0.7071067811865476,2.25,2.5,2.75,2,0,0.0\n\
             l,BIGINT[],∅,∅,∅,∅,∅,∅,∅,∅,2,0,0.0",
        ),
        (
            "SUMMARIZE SELECT v FROM '$/f.csv' WHERE v > 9",
            "column_name,column_type,min,max,approx_unique,avg,std,q25,q50,q75,count,nulls,null_percentage\n\
             v,BIGINT,∅,∅,0,∅,∅,∅,∅,∅,0,0,∅",
        ),
    ]);
    let folder = folder();
    let plan = folder.run_sql("EXPLAIN SELECT k, sum(v) FROM '$/f.csv' GROUP BY k");
    assert_eq!(plan.column_names(), ["plan"]);
    assert!(plan.rows()[0][0].starts_with("path: partial tables"), "{:?}", plan.rows());
}

#[test]
fn parameters_are_bound_as_values() {
    use tidemill_engine::Query;
    use tidemill_engine::query::QueryParameter;

    let folder = folder();
    let asked = |sql: &str, parameters: &[(&str, QueryParameter)]| {
        let parameters: Vec<_> =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let query = Query { sql: folder.substitute_path(sql), ..Query::default() };
        let query = query.with_parameters(&parameters)?;
        crate::common::run_query(&query, &crate::common::settings())
    };
    let text = |text: &str| QueryParameter::Text(text.to_owned());
    let number = |number: &str| QueryParameter::Number(number.to_owned());
    let answer = asked(
        "SELECT v FROM '$/f.csv' WHERE k = :k AND v > ? AND ts > :since",
        &[
            ("k", text("a")),
            ("1", number("-1")),
            ("since", QueryParameter::TypedLiteral("TIMESTAMP", "2026-11-21 00:00:00".into())),
        ],
    );
    assert_eq!(answer.unwrap().rows(), [["3"]]);
    let answer = asked(
        "SELECT ? AS a, ? AS b, v FROM '$/f.csv' WHERE v = ANY(?) LIMIT 1",
        &[
            ("1", text("'; DROP TABLE x; --")),
            ("2", QueryParameter::Null),
            ("3", QueryParameter::List(vec![number("2"), number("7")])),
        ],
    );
    assert_eq!(answer.unwrap().rows(), [["'; DROP TABLE x; --", "∅", "2"]]);
    let error = asked("SELECT :a FROM '$/f.csv'", &[]).err().unwrap().to_string();
    assert!(error.starts_with("parameter `:a` has no value"), "{error}");
}

#[test]
fn sample_does_not_depend_on_threads_or_format() {
    let folder = Folder::new();
    let rows: String = (0..20_000).map(|n| format!("{n},{}\n", n % 7)).collect();
    folder.write("a.csv", format!("n,k\n{rows}"));
    let json: String = (0..20_000).map(|n| format!("{{\"n\":{n},\"k\":{}}}\n", n % 7)).collect();
    folder.write("a.json", json);
    let counted = |sql: &str, threads: usize| {
        let settings = tidemill_engine::RunSettings { threads, ..crate::common::settings() };
        folder.try_run_sql(sql, &settings).unwrap().rows()
    };
    for file in ["$/a.csv", "$/a.json"] {
        let of = |clause: &str| format!("SELECT count(*), sum(n) FROM '{file}' {clause}");
        let tenth = counted(&of("TABLESAMPLE BERNOULLI (10)"), 1);
        for same in [
            "TABLESAMPLE 10%",
            "USING SAMPLE 10%",
            "SAMPLE 0.1",
            "TABLESAMPLE (10 PERCENT) REPEATABLE (42)",
        ] {
            assert_eq!(counted(&of(same), 3), tenth, "{same}");
        }
        let count: i64 = tenth[0][0].parse().unwrap();
        // A sample of 1 in 10 of 20,000 rows has 2,000 ± 42 of them in two of three cases; these samples are
        // fixed.
        assert!((1_750..2_250).contains(&count), "{count}");
        assert_ne!(counted(&of("TABLESAMPLE (10 PERCENT) REPEATABLE (7)"), 2), tenth);
        let by_key = format!(
            "SELECT sum(c), sum(s) FROM (SELECT k, count(*) AS c, sum(n) AS s FROM '{file}' AS x \
             TABLESAMPLE BERNOULLI (10) GROUP BY k)"
        );
        assert_eq!(counted(&by_key, 2), tenth);
        // A condition removes rows of the sample, and has no effect on their selection.
        let halves = ["n < 9000", "n >= 9000"].map(|condition| {
            let rows = counted(&of(&format!("TABLESAMPLE BERNOULLI (10) WHERE {condition}")), 2);
            rows[0][0].parse::<i64>().unwrap()
        });
        assert_eq!(halves.iter().sum::<i64>(), count);
        assert_eq!(counted(&of("TABLESAMPLE (100 PERCENT)"), 2)[0][0], "20000");
        assert_eq!(counted(&of("TABLESAMPLE SYSTEM (0)"), 2)[0][0], "0");
    }
    for (sql, expected) in [
        ("SELECT n FROM '$/a.csv' TABLESAMPLE SYSTEM (50 ROWS)", "a SYSTEM sample takes splits"),
        ("SELECT n FROM '$/a.csv' TABLESAMPLE (1.5 ROWS)", "a sample of `1.5` rows is none"),
        ("SELECT n FROM '$/a.csv' TABLESAMPLE (101)", "a sample of `101` percent is none"),
        (
            "WITH t AS (SELECT 1 AS n) SELECT n FROM t TABLESAMPLE (10)",
            "`t` is no source to take a sample of",
        ),
        ("SELECT n FROM (SELECT 1 AS n) TABLESAMPLE (10)", "`TABLESAMPLE` is not supported"),
        ("SELECT * FROM range(5) TABLESAMPLE (10)", "`"),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.starts_with(expected), "{sql}\n{message}");
    }
}

#[test]
fn ip_range_operators_match_addresses() {
    let folder = Folder::new();
    folder.write("ip.csv", "ip\n10.1.2.3\n11.1.2.3\nfd00::1\n");
    for (condition, expected) in [
        ("ip << '10.0.0.0/8'", &["10.1.2.3"][..]),
        ("'fd00::/8' >> ip", &["fd00::1"]),
        ("NOT ip << '10.0.0.0/8'", &["11.1.2.3", "fd00::1"]),
    ] {
        let rows =
            folder.run_sql(&format!("SELECT ip FROM '$/ip.csv' WHERE {condition}")).sorted_rows();
        let expected: Vec<Vec<String>> = expected.iter().map(|ip| vec![(*ip).to_owned()]).collect();
        assert_eq!(rows, expected, "{condition}");
    }
    assert_eq!(folder.run_sql("SELECT 1 << 3").single_value(), "8");
}

#[test]
fn file_listed_twice_is_read_twice() {
    let folder = Folder::new();
    folder.write("l.csv", "x\n1\n2\n");
    for (files, expected) in [
        ("['$/l.csv', '$/l.csv']", "4"),
        ("['$/l.csv', '$/l.csv', '$/l.csv']", "6"),
        // A file that a pattern finds again is read once.
        ("['$/l.csv', '$/*.csv']", "2"),
        ("['$/*.csv', '$/l*.csv']", "2"),
    ] {
        let sql = format!("SELECT count(*) FROM read_csv({files})");
        assert_eq!(folder.run_sql(&sql).single_value(), expected, "{files}");
    }
}

#[test]
fn duckdb_names_types_and_values_are_accepted() {
    assert_answers(&[
        ("SELECT 1 AS a, a + 1 AS b", "a,b\n1,2"),
        ("SELECT 'a' AS x, x || 'b' AS y, y = 'ab' AS z", "x,y,z\na,ab,true"),
        ("SELECT '{Key_A: 1}'::STRUCT(Key_A INT) AS s", "s\n{Key_A: 1}"),
        ("SELECT '(1, x)'::STRUCT(a INT, b TEXT) AS s", "s\n{a: 1, b: x}"),
        (
            "SELECT '1e3'::BIGINT AS a, '12.0'::INT AS b, '0xff'::INT AS c, '0b11'::INT AS d, \
             '1_000'::INT AS e, '1.5e1'::DECIMAL(5, 1) AS f, '[1e2]'::INT[] AS g",
            "a,b,c,d,e,f,g\n1000,12,255,3,1000,15.0,[100]",
        ),
        ("SELECT TRY_CAST('3.5' AS INT) AS a, TRY_CAST('7' AS TIME) AS b", "a,b\n∅,∅"),
        ("SELECT v FROM '$/f.csv' WHERE (v > 1) = 1 AND (k = 'a') = 'true' ORDER BY v", "v\n3"),
        (
            "SELECT 1.5::DECIMAL(3, 1)::BOOLEAN AS a, 0::DECIMAL(38, 0)::BOOLEAN AS b, 5::uinteger AS c",
            "a,b,c\ntrue,false,5",
        ),
        (
            "SELECT date_trunc('decade', TIMESTAMP '2019-01-06 04:03:02')::DATE AS a, \
             date_trunc('millennium', DATE '1996-01-06')::DATE AS b, \
             date_trunc('isoyear', TIMESTAMP '2019-12-31 04:03:02')::DATE AS c, \
             date_trunc('isodow', TIMESTAMP '2019-12-31 04:03:02')::DATE AS d",
            "a,b,c,d\n2010-01-01,1000-01-01,2019-12-30,2019-12-31",
        ),
        (
            "SELECT date_trunc(p, TIMESTAMP '2019-12-31 04:03:02') AS t \
             FROM (VALUES ('year'), (NULL), ('hour')) AS v(p) ORDER BY t",
            "t\n2019-01-01T00:00:00\n2019-12-31T04:00:00\n∅",
        ),
        (
            "SELECT list_slice([1, 2, 3], 2, 3) AS a, array_slice('hello', 2, 3) AS b, list_element('abc', 2) AS c",
            "a,b,c\n[2, 3],el,b",
        ),
        (
            "SELECT map_extract(MAP {'a': 1}, 'z') AS a, map_extract(MAP {'a': 1}, 'a') AS b",
            "a,b\n[],[1]",
        ),
        (
            "SELECT decode(encode('ü')) AS a, base64(encode('ab')) AS b, octet_length(BLOB '\\x00a') AS c",
            "a,b,c\nü,YWI=,2",
        ),
        ("SELECT entropy(k) AS e, argmin(1, 1) AS a FROM '$/f.csv' WHERE v < 3", "e,a\n1.0,1"),
        ("UNPIVOT (SELECT 42 AS a, 'w' AS b) ON a::TEXT, b", "name,value\na,42\nb,w"),
        (
            "SELECT strptime('30', '%U')::DATE AS a, try_strptime('20 19', '%U %W') AS b, \
             strptime('2-4', '%V-%u')::DATE AS c",
            "a,b,c\n1900-07-29,∅,1900-01-11",
        ),
    ]);
}
