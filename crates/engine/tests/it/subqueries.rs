//! Tests of conditions on a subquery's rows, against SQL's three-valued logic.

use tidemill_engine::QueryPlan;

use crate::common::{Folder, query, settings, string_rows};

type SqlTruth = Option<bool>;

fn sql_not(x: SqlTruth) -> SqlTruth {
    x.map(|x| !x)
}

fn sql_or(x: SqlTruth, y: SqlTruth) -> SqlTruth {
    match (x, y) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

fn sql_and(x: SqlTruth, y: SqlTruth) -> SqlTruth {
    sql_not(sql_or(sql_not(x), sql_not(y)))
}

/// Returns the three-valued result of `value IN rows`.
fn sql_in(value: Option<i64>, rows: &[Option<i64>]) -> SqlTruth {
    let equal = |row: &Option<i64>| Some(value? == (*row)?);
    rows.iter().map(equal).fold(Some(false), sql_or)
}

/// A condition in SQL, and its result for that of IN and a row's number.
type InCondition = (&'static str, fn(SqlTruth, i64) -> SqlTruth);

const IN_CONDITIONS: &[InCondition] = &[
    ("$", |found, _| found),
    ("NOT $", |found, _| sql_not(found)),
    ("NOT (NOT $)", |found, _| found),
    ("$ OR id = 4", |found, id| sql_or(found, Some(id == 4))),
    ("NOT $ OR id = 4", |found, id| sql_or(sql_not(found), Some(id == 4))),
    ("NOT ($ AND id > 0)", |found, id| sql_not(sql_and(found, Some(id > 0)))),
    ("NOT (NOT $ OR id = 1)", |found, id| sql_not(sql_or(sql_not(found), Some(id == 1)))),
    ("$ IS NULL", |found, _| Some(found.is_none())),
    ("(NOT $) IS NULL", |found, _| Some(found.is_none())),
    ("$ IS NOT TRUE", |found, _| Some(found != Some(true))),
    ("coalesce($, true)", |found, _| Some(found.unwrap_or(true))),
    ("$ = (id = 1)", |found, id| found.map(|found| found == (id == 1))),
    ("CASE WHEN $ THEN id > 1 ELSE NOT $ END", |found, id| match found {
        Some(true) => Some(id > 1),
        _ => sql_not(found),
    }),
];

#[test]
fn in_subquery_with_nulls_follows_three_valued_logic() {
    let folder = Folder::new();
    let (outer, keys) = ([Some(1), None, Some(3), Some(99)], ["x", "x", "y", "z"]);
    folder.write("o.csv", "id,a,k\n1,1,x\n2,,x\n3,3,y\n4,99,z\n");
    for (name, content, inner) in [
        ("with_null", "u,k\n1,x\n,x\n5,y\n", &[(Some(1), "x"), (None, "x"), (Some(5), "y")][..]),
        ("without", "u,k\n1,x\n5,y\n", &[(Some(1), "x"), (Some(5), "y")]),
        ("none", "u,k\n", &[]),
    ] {
        folder.write(&format!("{name}.csv"), content);
        let subqueries = [
            (format!("SELECT CAST(u AS BIGINT) FROM '$/{name}.csv'"), false, None),
            (format!("SELECT CAST(u AS BIGINT) FROM '$/{name}.csv' q WHERE q.k = o.k"), true, None),
            (
                format!("SELECT CAST(u AS BIGINT) FROM '$/{name}.csv' UNION ALL SELECT 3"),
                false,
                Some(Some(3)),
            ),
        ];
        for (subquery, is_correlated, more) in &subqueries {
            for (condition, expected) in IN_CONDITIONS {
                let found = format!("(a IN ({}))", subquery.replace('$', "@"));
                let condition = condition.replace('$', &found).replace('@', "$");
                let sql = format!("SELECT id FROM '$/o.csv' o WHERE {condition} ORDER BY id");
                let wanted = (1..).zip(outer).zip(keys).filter(|((id, a), key)| {
                    let rows = inner.iter().filter(|(_, of)| !is_correlated || of == key);
                    let rows: Vec<_> = rows.map(|(u, _)| *u).chain(*more).collect();
                    expected(sql_in(*a, &rows), *id) == Some(true)
                });
                let wanted: Vec<_> = wanted.map(|((id, _), _)| vec![id.to_string()]).collect();
                assert_eq!(folder.run_sql(&sql).rows(), wanted, "{sql}");
                // Outside of WHERE, where null is one of three results.
                let truths = (1..).zip(outer).zip(keys).map(|((id, a), key)| {
                    let rows = inner.iter().filter(|(_, of)| !is_correlated || *of == key);
                    let rows: Vec<_> = rows.map(|(u, _)| *u).chain(*more).collect();
                    let truth = expected(sql_in(a, &rows), id);
                    let shown = truth.map_or("∅".into(), |truth| truth.to_string());
                    vec![id.to_string(), shown]
                });
                let truths: Vec<Vec<String>> = truths.collect();
                let sql = format!("SELECT id, {condition} FROM '$/o.csv' o ORDER BY id");
                assert_eq!(folder.run_sql(&sql).rows(), truths, "{sql}");
                if name != "with_null" {
                    continue;
                }
                for sql in [
                    format!(
                        "SELECT id, bool_and({condition}) FROM '$/o.csv' o GROUP BY id ORDER BY id"
                    ),
                    format!(
                        "SELECT id, bool_or({condition}) OVER (PARTITION BY id) FROM '$/o.csv' o \
                         ORDER BY id"
                    ),
                ] {
                    assert_eq!(folder.run_sql(&sql).rows(), truths, "{sql}");
                }
                let sql = format!("SELECT count() FILTER (WHERE {condition}) FROM '$/o.csv' o");
                assert_eq!(folder.run_sql(&sql).single_value(), wanted.len().to_string(), "{sql}");
                let sql = match is_correlated {
                    false => format!("SELECT id FROM '$/o.csv' o ORDER BY {condition}, id"),
                    true => format!(
                        "SELECT id FROM (SELECT id, {condition} AS c FROM '$/o.csv' o) ORDER BY c, id"
                    ),
                };
                let place = |truth: &str| ["false", "true", "∅"].iter().position(|t| *t == truth);
                let mut sorted = truths.clone();
                sorted.sort_by_key(|row| (place(&row[1]), row[0].clone()));
                let sorted: Vec<Vec<String>> =
                    sorted.into_iter().map(|row| vec![row[0].clone()]).collect();
                assert_eq!(folder.run_sql(&sql).rows(), sorted, "{sql}");
            }
        }
    }
}

#[test]
fn exists_is_allowed_in_the_select_list() {
    let folder = Folder::new();
    folder.write("l.csv", "k,v\n1,a\n2,b\n,c\n");
    folder.write("r.csv", "k,w\n2,1\n2,2\n3,3\n");
    let all = "EXISTS (SELECT 1 FROM '$/r.csv' WHERE w > 2)";
    let none = "EXISTS (SELECT 1 FROM '$/r.csv' WHERE w > 3)";
    let of = "EXISTS (SELECT r.w FROM '$/r.csv' r WHERE r.k = l.k)";
    let first = "EXISTS (SELECT r.w FROM '$/r.csv' r WHERE r.k = l.k ORDER BY r.w LIMIT 1)";
    let more = "EXISTS (SELECT 1 FROM '$/r.csv' r WHERE r.k = l.k AND r.w > 1)";
    for (select, expected) in [
        (format!("{all}, NOT {all}"), [["true", "false"]; 3]),
        (format!("{none}, NOT {none}"), [["false", "true"]; 3]),
        (format!("{of}, NOT {of}"), [["false", "true"], ["true", "false"], ["false", "true"]]),
        (format!("{first}, {more}"), [["false"; 2], ["true"; 2], ["false"; 2]]),
        (
            format!("CASE WHEN {of} THEN v ELSE 'none' END, {of} OR v = 'c'"),
            [["none", "false"], ["b", "true"], ["none", "true"]],
        ),
    ] {
        let sql = format!("SELECT {select} FROM '$/l.csv' l ORDER BY v");
        assert_eq!(
            folder.run_sql(&sql).rows(),
            string_rows(&expected.each_ref().map(|row| &row[..])),
            "{sql}"
        );
    }
    for (sql, expected) in [
        (format!("SELECT count() FILTER (WHERE {of}) FROM '$/l.csv' l"), "1"),
        (format!("SELECT sum(CASE WHEN {of} THEN 1 ELSE 10 END) FROM '$/l.csv' l"), "21"),
        (format!("SELECT string_agg(v, '') FROM '$/l.csv' l GROUP BY {of} HAVING count() = 1"), "b"),
        (format!("SELECT v FROM (SELECT v, {of} AS c FROM '$/l.csv' l) ORDER BY c DESC LIMIT 1"), "b"),
        (format!("SELECT {all}"), "true"),
        ("SELECT 3 IN (SELECT k FROM '$/r.csv') AND 4 NOT IN (SELECT k FROM '$/r.csv')".into(), "true"),
        (
            "SELECT count(*) FROM (SELECT k IN (SELECT k IN (SELECT 2) FROM '$/l.csv' WHERE k = 5) AS t \
             FROM (SELECT true AS k)) WHERE NOT t"
                .into(),
            "1",
        ),
    ] {
        assert_eq!(folder.run_sql(&sql).single_value(), expected, "{sql}");
    }
}

#[test]
fn several_subqueries_in_one_query_are_independent() {
    let folder = Folder::new();
    folder.write("t.csv", "a,b,g,__asked_1\n1,x,1,7\n2,y,1,8\n3,z,2,9\n,n,2,7\n5,x,3,7\n");
    folder.write("u.csv", "a,c\n1,10\n3,30\n3,31\n,40\n");
    let first = "EXISTS (SELECT 1 FROM '$/u.csv' u WHERE u.a = t.a)";
    let second = "EXISTS (SELECT 1 FROM '$/u.csv' u WHERE u.a = t.g)";
    let (in_u, in_g) = ("a IN (SELECT a FROM '$/u.csv')", "a IN (SELECT g FROM '$/t.csv')");
    let of = |key: &str| format!("(SELECT max(c) FROM '$/u.csv' u WHERE u.a = t.{key})");
    for (select, expected) in [
        (
            format!(
                "sum(CASE WHEN {first} THEN 1 ELSE 0 END), sum(CASE WHEN {second} THEN 1 ELSE 0 END)"
            ),
            "2 3",
        ),
        (format!("count() FILTER (WHERE {first}), count() FILTER (WHERE NOT {second})"), "2 2"),
        (format!("count() FILTER (WHERE {in_u}), count() FILTER (WHERE {in_g})"), "2 3"),
        (format!("sum({}), sum({}), sum(__asked_1)", of("a"), of("g")), "41 51 38"),
        (
            "sum((SELECT max(c) FROM '$/u.csv')), sum((SELECT max(a) FROM '$/u.csv'))".into(),
            "200 15",
        ),
        (format!("max({in_u}), min({second})"), "true false"),
    ] {
        let sql = format!("SELECT {select} FROM '$/t.csv' t");
        assert_eq!(folder.run_sql(&sql).rows().concat().join(" "), expected, "{sql}");
    }
    let sql = format!(
        "SELECT count() AS n FROM '$/t.csv' t GROUP BY {first}, {second} HAVING count() > 0 ORDER BY n"
    );
    assert_eq!(folder.run_sql(&sql).rows().concat(), ["1", "1", "1", "2"], "{sql}");
    let sql = format!(
        "SELECT b, sum(CASE WHEN {first} THEN 1 END) OVER (), sum(CASE WHEN {second} THEN 1 END) OVER () \
         FROM '$/t.csv' t ORDER BY b LIMIT 1"
    );
    assert_eq!(folder.run_sql(&sql).rows(), string_rows(&[&["n", "2", "3"]]), "{sql}");
}

/// The plan contains the condition once, whatever is nested around it.
#[test]
fn deeply_nested_in_condition_is_planned_once() {
    let folder = Folder::new();
    folder.write("t.csv", "a\n1\n2\n\n");
    folder.write("u.csv", "a\n1\n");
    for (start, end) in
        [("coalesce(", ", false)"), ("CASE WHEN ", " THEN true END"), ("NOT (", ")")]
    {
        let (start, end) = (start.repeat(8), end.repeat(8));
        let sql = format!(
            "SELECT count() FROM (SELECT {start}a IN (SELECT a FROM '$/u.csv'){end} AS x FROM '$/t.csv') WHERE x"
        );
        assert_eq!(folder.run_sql(&sql).single_value(), "1", "{sql}");
    }
}

/// DataFusion loses such a condition, or applies it to the correlated columns.
#[test]
fn constant_in_subquery_is_evaluated() {
    let folder = Folder::new();
    folder.write("a.csv", "id,s,x,y\n1,u,1,1\n2,w,2,1\n3,w,,1\n");
    folder.write("b.csv", "v,s,x\n1,u,1\n5,w,\n");
    for (condition, expected) in [
        ("1 IN (SELECT v FROM '$/b.csv' WHERE v = 1)", "1 2 3"),
        ("1 NOT IN (SELECT v FROM '$/b.csv' WHERE v = 1)", ""),
        ("'u' IN (SELECT s FROM '$/b.csv' WHERE s = 'u')", "1 2 3"),
        ("1 IN (SELECT v FROM '$/b.csv' WHERE v IN (1) AND s = 'u')", "1 2 3"),
        ("1 IN (SELECT v FROM '$/b.csv' WHERE v = 2) OR id = 2", "2"),
        ("1 IN (SELECT b.v FROM '$/b.csv' b WHERE b.x = a.x AND b.v = 1)", "1"),
        ("1 NOT IN (SELECT b.v FROM '$/b.csv' b WHERE b.x = a.x AND b.v = 1)", "2 3"),
        ("3 NOT IN (SELECT 3 FROM '$/b.csv' b WHERE b.x = a.x)", "2 3"),
        ("3 NOT IN (SELECT 3 FROM '$/b.csv' b WHERE b.x = a.x AND b.v = a.y)", "2 3"),
        ("3 IN (SELECT 3 FROM '$/b.csv' b WHERE b.x = a.x)", "1"),
        ("coalesce(NULL, 3) NOT IN (SELECT 1 + 2 FROM '$/b.csv' b WHERE b.x = a.x)", "2 3"),
        ("'u' NOT IN (SELECT 'u' FROM '$/b.csv' b WHERE b.x = a.x)", "2 3"),
    ] {
        let sql = format!("SELECT id FROM '$/a.csv' a WHERE {condition} ORDER BY id");
        assert_eq!(folder.run_sql(&sql).rows().concat().join(" "), expected, "{sql}");
    }
    let sql = "SELECT id FROM (SELECT id, x, 'u' AS src FROM '$/a.csv') a WHERE a.src NOT IN \
               (SELECT b.src FROM (SELECT x, 'u' AS src FROM '$/b.csv') b WHERE b.x = a.x) ORDER BY id";
    assert_eq!(folder.run_sql(sql).rows().concat().join(" "), "2 3");
    let sql = "SELECT s, count(*) FROM '$/a.csv' GROUP BY s \
               HAVING 1 IN (SELECT v FROM '$/b.csv' WHERE v = 1) AND count(*) IN (SELECT 2)";
    assert_eq!(folder.run_sql(sql).rows(), string_rows(&[&["w", "2"]]));
    let sql = "SELECT count(*) IN (SELECT 3) FROM '$/a.csv'";
    assert_eq!(folder.run_sql(sql).single_value(), "true");
}

/// DataFusion groups by the correlated columns, several of which may have one value.
#[test]
fn correlation_can_be_a_computed_expression() {
    let folder = Folder::new();
    folder.write("days.csv", "day,f,s\n2026-01-01,9007199254740992.0,A\n2026-01-02,0.5,b\n");
    folder.write("ev.csv", "ts,v,n,s\n2026-01-01 03:00:00,1,9007199254740992,a\n2026-01-01 05:00:00,2,9007199254740993,A\n");
    let of = "FROM '$/ev.csv' e WHERE";
    for (select, expected) in [
        (format!("EXISTS (SELECT 1 {of} CAST(e.ts AS DATE) = d.day)"), "true false"),
        (format!("(SELECT count(*) {of} CAST(e.ts AS DATE) = d.day)"), "2 0"),
        (format!("(SELECT sum(v) {of} d.day = CAST(e.ts AS DATE))"), "3 ∅"),
        (format!("(SELECT count(*) {of} e.n = d.f)"), "2 0"),
        (format!("(SELECT count(*) {of} upper(e.s) = upper(d.s))"), "2 0"),
        (format!("(SELECT max(v) {of} date_trunc('day', e.ts) = d.day)"), "2 ∅"),
        (format!("2 IN (SELECT v {of} CAST(e.ts AS DATE) = d.day)"), "true false"),
        (format!("(SELECT count(*) {of} e.v > 1 AND 1 / (e.v - 1) = d.f + 0.5)"), "0 1"),
    ] {
        let sql = format!("SELECT {select} FROM '$/days.csv' d ORDER BY day");
        assert_eq!(folder.run_sql(&sql).rows().concat().join(" "), expected, "{sql}");
    }
    let sql = format!(
        "SELECT count(*), count(*) FILTER (WHERE EXISTS (SELECT 1 {of} CAST(e.ts AS DATE) = d.day)) \
         FROM '$/days.csv' d"
    );
    assert_eq!(folder.run_sql(&sql).rows(), string_rows(&[&["2", "1"]]));
    let sql = format!(
        "SELECT s FROM '$/days.csv' d WHERE (SELECT sum(v) {of} CAST(e.ts AS DATE) = d.day) = 3"
    );
    assert_eq!(folder.run_sql(&sql).single_value(), "A");
}

#[test]
fn correlated_subquery_in_order_by_is_refused() {
    let folder = Folder::new();
    folder.write("l.csv", "k,v\n1,a\n2,b\n");
    let sql =
        "SELECT v FROM '$/l.csv' l ORDER BY EXISTS (SELECT 1 FROM '$/l.csv' r WHERE r.k = l.k + 1)";
    let said = folder.sql_error(sql);
    assert!(said.contains("depends on the row around it cannot stand in ORDER BY"), "{said}");
}

#[test]
fn order_by_all_sorts_by_each_column() {
    let folder = Folder::new();
    folder.write("f.csv", "a,b\n2,1\n1,2\n1,1\n");
    let rows =
        |sql: &str| folder.run_sql(sql).rows().iter().map(|row| row.join(" ")).collect::<Vec<_>>();
    assert_eq!(rows("SELECT a, b + 1 AS c FROM '$/f.csv' ORDER BY ALL"), ["1 2", "1 3", "2 2"]);
    assert_eq!(rows("SELECT a, b FROM '$/f.csv' ORDER BY ALL DESC"), ["2 1", "1 2", "1 1"]);
    assert_eq!(rows("SELECT a, sum(b) FROM '$/f.csv' GROUP BY ALL ORDER BY ALL"), ["1 3", "2 1"]);
    assert_eq!(rows("SELECT * FROM '$/f.csv' ORDER BY ALL"), ["1 1", "1 2", "2 1"]);
}

#[test]
fn constant_not_in_subquery_follows_three_valued_logic() {
    let folder = Folder::new();
    folder.write("o.csv", "id\n1\n");
    folder.write("q.csv", "u,v\n1,1\n,2\n");
    for (condition, is_true) in [
        ("7 NOT IN (SELECT u FROM '$/q.csv')", false),
        ("NOT (7 IN (SELECT u FROM '$/q.csv'))", false),
        ("7 NOT IN (SELECT v FROM '$/q.csv')", true),
        ("7 NOT IN (SELECT u FROM '$/q.csv' WHERE v > 2)", true),
        ("NULL NOT IN (SELECT v FROM '$/q.csv')", false),
        ("NULL NOT IN (SELECT v FROM '$/q.csv' WHERE v > 2)", true),
        ("1 IN (SELECT u FROM '$/q.csv')", true),
        ("7 < ALL (SELECT u FROM '$/q.csv')", false),
        ("id + 6 NOT IN (SELECT u FROM '$/q.csv')", false),
        ("id + 6 NOT IN (SELECT v FROM '$/q.csv')", true),
    ] {
        let sql = format!("SELECT count() FROM '$/o.csv' WHERE {condition}");
        assert_eq!(
            folder.run_sql(&sql).single_value(),
            u8::from(is_true).to_string(),
            "{condition}"
        );
    }
}

#[test]
fn subquery_can_select_the_compared_column() {
    let folder = Folder::new();
    folder.write("o.csv", "id,f\n1,1.5\n2,2.5\n3,\n4,4.5\n");
    for (condition, ids) in [
        ("f < ANY (SELECT f FROM '$/o.csv')", &["1", "2"][..]),
        ("f >= ALL (SELECT f FROM '$/o.csv' WHERE id <> 3)", &["4"]),
        ("f >= ALL (SELECT f FROM '$/o.csv')", &[]),
        ("f IN (SELECT f FROM '$/o.csv' WHERE id > 1)", &["2", "4"]),
    ] {
        let sql = format!("SELECT id FROM '$/o.csv' WHERE {condition} ORDER BY id");
        let rows: Vec<_> = ids.iter().map(|id| [*id]).collect();
        let rows: Vec<_> = rows.iter().map(|row| &row[..]).collect();
        assert_eq!(folder.run_sql(&sql).rows(), string_rows(&rows), "{sql}");
    }
}

#[test]
fn volatile_subquery_that_would_run_twice_is_refused() {
    let folder = Folder::new();
    folder.write("o.csv", "id,a\n1,1\n");
    let sql =
        "SELECT id FROM '$/o.csv' WHERE NOT (a IN (SELECT random() FROM '$/o.csv') AND a > 0)";
    let message = folder.sql_error(sql);
    assert!(message.contains("differ each time"), "{message}");
}

#[test]
fn false_condition_keeps_the_plan_mergeable() {
    let folder = Folder::new();
    folder.write("o.csv", "id,k\n1,x\n2,y\n");
    for (sql, rows) in [
        ("SELECT count() FROM '$/o.csv' WHERE 1 = 0", &[&["0"][..]][..]),
        ("SELECT k, sum(id) FROM '$/o.csv' WHERE false GROUP BY k", &[]),
        ("SELECT 'x' AS c FROM '$/o.csv' WHERE NULL GROUP BY 1", &[]),
        ("SELECT id, CAST(id AS BIGINT) AS c FROM '$/o.csv' WHERE false GROUP BY 1, 2", &[]),
    ] {
        let plan = QueryPlan::new(&query(folder.substitute_path(sql)), &settings()).unwrap();
        let explained = plan.explain().unwrap();
        assert!(explained.mergeable, "{sql}: {}", explained.why);
        assert_eq!(folder.run_sql(sql).rows(), string_rows(rows), "{sql}");
    }
    let sql = "SELECT m FROM (SELECT max(k) AS m FROM '$/o.csv') WHERE false GROUP BY 1";
    assert!(folder.run_sql(sql).rows().is_empty());
    let sql = "SELECT max(k) FROM (SELECT k FROM '$/o.csv' ORDER BY id LIMIT 0) ORDER BY 1 LIMIT 0";
    assert!(folder.run_sql(sql).rows().is_empty());
}

#[test]
fn boolean_above_a_join_can_be_a_group_key() {
    let folder = Folder::new();
    folder.write("i.csv", "id,flag\n1,true\n2,\n");
    let sql = "SELECT c FROM (SELECT (b.flag IS TRUE) AS c FROM '$/i.csv' a JOIN '$/i.csv' b \
               ON a.id = b.id) GROUP BY 1 ORDER BY 1";
    assert_eq!(folder.run_sql(sql).rows(), string_rows(&[&["false"], &["true"]]));
}

#[test]
fn correlated_aggregate_returns_a_row_for_no_matches() {
    let folder = Folder::new();
    folder.write("l.csv", "k\n1\n2\n");
    folder.write("r.csv", "k\n2\n3\n");
    let of = "FROM '$/r.csv' r WHERE r.k = l.k";
    for (condition, expected) in [
        (format!("EXISTS (SELECT count(*) {of})"), &[&["1"][..], &["2"]][..]),
        (format!("NOT EXISTS (SELECT max(r.k) {of})"), &[]),
        (format!("0 IN (SELECT count(*) {of})"), &[&["1"]]),
        (format!("0 = ANY (SELECT count(*) {of})"), &[&["1"]]),
        (format!("EXISTS (SELECT 1 {of} HAVING count(*) = 0)"), &[&["1"]]),
    ] {
        let sql = format!("SELECT k FROM '$/l.csv' l WHERE {condition}");
        assert_eq!(folder.run_sql(&sql).sorted_rows(), string_rows(expected), "{condition}");
    }
    for condition in [
        format!("EXISTS (SELECT 1 {of} GROUP BY ROLLUP (r.k))"),
        format!("NOT EXISTS (SELECT 1 {of} GROUP BY GROUPING SETS ((r.k), ()))"),
        format!("l.k IN (SELECT r.k {of} GROUP BY CUBE (r.k))"),
    ] {
        let message = folder.sql_error(&format!("SELECT k FROM '$/l.csv' l WHERE {condition}"));
        assert!(message.contains("compare the aggregate itself"), "{condition}: {message}");
    }
    let sql = format!("SELECT k FROM '$/l.csv' l WHERE (SELECT count(*) {of}) = 0");
    assert_eq!(folder.run_sql(&sql).single_value(), "1");
}

#[test]
fn limit_that_decides_whether_a_row_exists_is_kept() {
    let folder = Folder::new();
    folder.write("l.csv", "k\n1\n2\n3\n");
    folder.write("r.csv", "k\n1\n1\n3\n");
    let of = "FROM '$/r.csv' r WHERE r.k = l.k";
    let first = "(SELECT k AS b FROM '$/l.csv' ORDER BY b LIMIT 1) AS f";
    let tied = format!("(SELECT k {of}) AS t");
    for (condition, keys) in [
        (format!("EXISTS (SELECT 1 {of} LIMIT 1)"), &["1", "3"][..]),
        (format!("EXISTS (SELECT 1 {of} OFFSET 1)"), &["1"]),
        (format!("NOT EXISTS (SELECT 1 {of} LIMIT 1 OFFSET 1)"), &["2", "3"]),
        (format!("EXISTS (SELECT DISTINCT r.k {of} OFFSET 1)"), &[]),
        (format!("k = 2 OR EXISTS (SELECT 1 {of} OFFSET 1)"), &["1", "2"]),
        (format!("EXISTS (SELECT 1 FROM (SELECT r.k {of} LIMIT 1) AS t WHERE t.k > 1)"), &["3"]),
        (format!("EXISTS (SELECT 1 FROM {tied} JOIN {first} ON t.k = f.b)"), &["1"]),
        (format!("EXISTS (SELECT 1 {of} LIMIT 0)"), &[]),
        (format!("EXISTS (SELECT 1 FROM {first} JOIN {tied} ON t.k = f.b)"), &["1"]),
        (format!("(SELECT count(*) {of}) > 1"), &["1"]),
        ("EXISTS (SELECT 1 FROM '$/r.csv' OFFSET 3)".into(), &[]),
        ("EXISTS (SELECT 1 FROM '$/r.csv' OFFSET 2)".into(), &["1", "2", "3"]),
    ] {
        let sql = format!("SELECT k FROM '$/l.csv' l WHERE {condition} ORDER BY k");
        let rows: Vec<_> = keys.iter().map(|key| [*key]).collect();
        let rows: Vec<_> = rows.iter().map(|row| &row[..]).collect();
        assert_eq!(folder.run_sql(&sql).rows(), string_rows(&rows), "{sql}");
    }
}

#[test]
fn random_values_are_not_evaluated_twice() {
    let folder = Folder::new();
    let numbers: String = (0..3000).map(|i| format!("{i}\n")).collect();
    folder.write("n.csv", format!("i\n{numbers}"));
    for (expression, expected) in [
        // Evaluated twice, these hold for other shares of the rows, 0.06 away or more.
        ("random() BETWEEN 0.4 AND 0.6", 0.2),
        ("random() NOT BETWEEN 0.4 AND 0.6", 0.8),
        ("random() + random() BETWEEN 0.5 AND 1", 0.375),
        ("i >= 0 AND floor(random() * 4) IN (0, 1)", 0.5),
        ("floor(random() * 4) NOT IN (0, 1)", 0.5),
        ("floor(random() * 4) = ANY([0.0, 1.0])", 0.5),
        ("CASE floor(random() * 2) WHEN 0 THEN false WHEN 1 THEN true ELSE false END", 0.5),
        ("CASE WHEN random() < 0.5 THEN i >= 0 ELSE i >= -1 END", 1.0),
        ("iff(random() < 0.5, i >= 0, i >= -1)", 1.0),
        ("NOT CASE WHEN random() < 0.5 THEN true WHEN random() < 2 THEN true ELSE false END", 0.0),
        ("coalesce(CASE WHEN random() < 0.5 THEN 1 END, 0) = 1", 0.5),
        ("coalesce(CASE WHEN random() < 0.5 THEN 1 END, 0) IS NULL", 0.0),
        ("ifnull(nullif(floor(random() * 2), 0), 1) IS NULL", 0.0),
    ] {
        let close = |share: f64, sql: &str| {
            assert!((share - expected).abs() < 0.05, "{sql}: {share}, not {expected}");
        };
        for from in ["range(3000) t(i)", "'$/n.csv'"] {
            let sql = format!("SELECT count(*) / 3000.0 FROM {from} WHERE {expression}");
            close(folder.run_sql(&sql).single_value().parse().unwrap(), &sql);
            let sql = format!("SELECT avg(iff({expression}, 1, 0)) FROM {from}");
            close(folder.run_sql(&sql).single_value().parse().unwrap(), &sql);
            let sql = format!(
                "SELECT count(*) FILTER (WHERE b) / 3000.0 FROM (SELECT {expression} AS b FROM {from})"
            );
            close(folder.run_sql(&sql).single_value().parse().unwrap(), &sql);
            // A condition on a group's key selects whole groups.
            let groups = format!("SELECT {expression} AS k, count(*) AS n FROM {from} GROUP BY 1");
            for sql in [
                format!("SELECT k FROM ({groups}) WHERE k"),
                format!("SELECT k FROM ({groups} HAVING k ORDER BY {expression} LIMIT 3)"),
            ] {
                let rows = folder.run_sql(&sql).rows();
                assert!(rows.iter().all(|row| row == &["true"]), "{sql}: {rows:?}");
                assert_eq!(rows.len(), usize::from(expected > 0.0), "{sql}");
            }
        }
    }
    // A key has one column however often it is in the sets: every row of a group has its key.
    for sets in ["ROLLUP(1)", "CUBE(1)", "GROUPING SETS ((1, 2), (1), ())", "ROLLUP(1, 2)"] {
        let sql = format!(
            "SELECT floor(random() * 3) AS k, i % 2 AS m, count(*) AS n FROM '$/n.csv' GROUP BY {sets}"
        );
        let sql = match sets.contains('2') {
            true => sql,
            false => sql.replace("i % 2", "0").replace("AS m,", "AS m0,"),
        };
        let rows =
            folder.run_sql(&format!("SELECT sum(n) FROM ({sql}) WHERE k IS NULL")).single_value();
        assert_eq!(rows, "3000", "{sql}");
    }
    let sql = "SELECT * FROM range(9) t(i) WHERE random() BETWEEN 0 AND 1 ORDER BY i LIMIT 2";
    assert_eq!(folder.run_sql(sql).rows(), [["0"], ["1"]]);
    let sql = "SELECT random_value_0 FROM (SELECT i AS random_value_0 FROM range(3) t(i)) AS evaluated_once \
               WHERE random() BETWEEN 0 AND 1 AND random() BETWEEN 0 AND 1";
    assert_eq!(folder.run_sql(sql).rows().len(), 3);
    for (refused, what) in [
        (
            "JOIN range(9) u(j) ON random() BETWEEN 0.4 AND 0.6",
            "`BETWEEN` of a random value cannot",
        ),
        (
            "WHERE (floor(random() * 4), 1) IN ((0.0, 1), (1.0, 1))",
            "uses `random()` more than once",
        ),
        (
            "WHERE decode(floor(random() * 2), 0, 'a', 1, 'b', 'c') = 'c'",
            "uses `random()` more than",
        ),
        ("WHERE floor(random() * 2) = ALL([1.0, 1.0])", "uses `random()` more than once"),
        ("WHERE pmod(CAST(random() * 9 AS BIGINT), 7) = 1", "uses `random()` more than once"),
        (
            "WHERE array_transform([1], x -> CASE WHEN random() < 1 THEN x = x END) IS NULL",
            "`CASE`",
        ),
    ] {
        let message = folder.sql_error(&format!("SELECT 1 FROM range(9) t(i) {refused}"));
        assert!(message.contains(what) && message.contains("take it in a subquery"), "{message}");
    }
    let sql = "SELECT random() < 0.5 AS b, count(*) FROM '$/n.csv' GROUP BY ALL HAVING b";
    assert!(folder.sql_error(sql).contains("a random value above random keys"));
    // An error stays where it is written, and fails for the rows that reach it.
    for expression in [
        "coalesce(CASE WHEN i > 5 THEN error('too many') ELSE i END, 0) >= 0",
        "CASE WHEN i > 5 THEN error('too many') ELSE i END BETWEEN 0 AND 5",
        "CASE WHEN i < 5 THEN true WHEN error('too many') IS NULL THEN false END",
    ] {
        let sql = format!("SELECT count(*) FROM range(3) t(i) WHERE {expression}");
        assert_eq!(folder.run_sql(&sql).single_value(), "3", "{sql}");
    }
    for refused in ["(k) i % 2 AS k, random() AS r", "(r) i % 2 AS k, random() AS r"] {
        let sql = format!("SELECT DISTINCT ON {refused} FROM '$/n.csv' ORDER BY k, r");
        let message = folder.sql_error(&sql.replace("(r)", "(random())").replace("(k)", "(i % 2)"));
        assert!(message.contains("DISTINCT ON"), "{message}");
    }
    let random = "SELECT random() AS r FROM range(3000) t(i)";
    let sql = format!("SELECT count(*) FROM ({random}) WHERE r BETWEEN 0.4 AND 0.6");
    let count: u64 = folder.run_sql(&sql).single_value().parse().unwrap();
    assert!((400..800).contains(&count), "{count}");
    folder.run_sql("SELECT coalesce(NULL, random()) FROM range(3) t(i)");
}

#[test]
fn null_safe_join_matches_nulls_only_in_its_condition() {
    let folder = Folder::new();
    folder.write("x.csv", "i,s\n1,\n2,a\n,b\n");
    let join = "FROM '$/x.csv' x JOIN '$/x.csv' y ON x.i IS NOT DISTINCT FROM y.i";
    for (more, count) in
        [("", "3"), ("WHERE x.s = y.s", "2"), ("AND x.s = y.s", "2"), ("AND x.i = 2", "1")]
    {
        assert_eq!(
            folder.run_sql(&format!("SELECT count() {join} {more}")).single_value(),
            count,
            "{more}"
        );
    }
}

#[test]
fn is_distinct_from_binds_tighter_than_and() {
    let folder = Folder::new();
    folder.write("b.csv", "o,n\ntrue,1\ntrue,2\nfalse,1\nfalse,2\n,1\n,2\n");
    for (condition, count) in [
        ("o IS DISTINCT FROM true AND n = 1", "2"),
        ("o IS NOT DISTINCT FROM true AND n = 1", "1"),
        ("o IS DISTINCT FROM true OR n = 1", "5"),
        ("n = 1 AND o IS DISTINCT FROM true OR n = 2", "5"),
        ("o IS NOT DISTINCT FROM true IS FALSE", "4"),
        ("NOT o IS DISTINCT FROM NULL AND n IS NOT DISTINCT FROM 1", "1"),
        ("n IS DISTINCT FROM 1 + 1 AND o IS NOT NULL", "2"),
    ] {
        let sql = format!("SELECT count() FROM '$/b.csv' WHERE {condition}");
        assert_eq!(folder.run_sql(&sql).single_value(), count, "{condition}");
    }
}

/// A scalar subquery without rows is null, though its column is not nullable.
#[test]
fn scalar_subquery_without_rows_is_null() {
    let folder = Folder::new();
    folder.write("t.csv", "id\n1\n2\n3\n");
    folder.write("x.csv", "x\n3\n4\n");
    for (sql, expected) in [
        ("SELECT (SELECT 1 WHERE false) AS v", "∅"),
        ("SELECT (SELECT 1 WHERE false) IS NULL AS v", "true"),
        ("SELECT coalesce((SELECT 5 FROM '$/t.csv' WHERE id = 77), 7) AS v", "7"),
        ("SELECT (SELECT true FROM '$/t.csv' LIMIT 0) IS NOT TRUE AS v", "true"),
        ("SELECT (SELECT count(*) FROM '$/t.csv' HAVING count(*) > 5) IS NULL AS v", "true"),
        ("SELECT (SELECT count(*) FROM '$/t.csv' GROUP BY id HAVING id = 7) IS NULL AS v", "true"),
        ("SELECT (SELECT count(*) FROM '$/t.csv' WHERE id = 77) AS v", "0"),
        ("SELECT sum((SELECT 1 FROM '$/t.csv' WHERE id = 77)) AS v FROM '$/x.csv'", "∅"),
        ("SELECT count(*) AS v FROM '$/x.csv' WHERE (SELECT 1 WHERE false) IS NULL", "2"),
        ("SELECT count(*) AS v FROM '$/x.csv' HAVING (SELECT 1 WHERE false) IS NULL", "2"),
        ("SELECT count(*) AS v FROM '$/x.csv' GROUP BY (SELECT 1 WHERE false)", "2"),
        ("SELECT CASE WHEN (SELECT 2 WHERE 1 = 0) IS NULL THEN 'a' ELSE 'b' END AS v", "a"),
        (
            "WITH c AS (SELECT 5 AS y FROM '$/t.csv' WHERE id = 77) \
             SELECT count(*) AS v FROM '$/t.csv' WHERE id > coalesce((SELECT y FROM c), 2)",
            "1",
        ),
        (
            "SELECT sum(coalesce((SELECT count(*) FROM '$/t.csv' AS t WHERE t.id = x.x GROUP BY t.id), 9)) \
             AS v FROM '$/x.csv' AS x",
            "10",
        ),
        (
            "SELECT min(x.x) AS v FROM '$/x.csv' AS x WHERE (SELECT count(*) FROM '$/t.csv' AS t \
             WHERE t.id = x.x HAVING count(*) > 0) IS NULL",
            "4",
        ),
    ] {
        assert_eq!(folder.run_sql(sql).sorted_rows(), [[expected]], "{sql}");
    }
}

/// A text literal beside a column has the column's type wherever it is referred to.
#[test]
fn nullif_of_a_text_literal_compares_with_subquery_values() {
    let folder = Folder::new();
    folder.write("w.csv", "w\nann\nrome\n");
    for (not, expected) in [("NOT ", "ann"), ("", "rome")] {
        let sql = format!(
            "SELECT c2 FROM (SELECT nullif('ann', c) AS c1, c AS c2 FROM (SELECT w AS c FROM '$/w.csv' \
             GROUP BY 1) AS g) AS a WHERE {not}EXISTS (SELECT 1 FROM '$/w.csv' AS b WHERE b.w = a.c1)"
        );
        assert_eq!(folder.run_sql(&sql).sorted_rows(), [[expected]], "{sql}");
    }
}

/// ANY and ALL of one row are the comparison with it, at a type that holds both.
#[test]
fn any_and_all_coerce_types_like_comparisons() {
    let folder = Folder::new();
    let kinds = [
        ("TIMESTAMP '0001-01-01'", "TIMESTAMP '2000-02-29 00:00:00.325616397'"),
        ("TIMESTAMP '9999-12-31'", "CAST(TIMESTAMP '2000-02-29' AS TIMESTAMP(9))"),
        ("DATE '2000-02-29'", "CAST(TIMESTAMP '2000-02-29' AS TIMESTAMP(9))"),
        ("CAST(0.1 AS DECIMAL(3,1))", "CAST(0.1 AS REAL)"),
        ("CAST(1e-20 AS DOUBLE)", "CAST(0 AS DECIMAL(3,2))"),
        ("9007199254740993", "CAST(9007199254740992 AS DECIMAL(38,20))"),
        ("INTERVAL '24 hours'", "INTERVAL '1 day'"),
    ];
    for (one, other) in kinds {
        for (left, right) in [(one, other), (other, one)] {
            for operation in ["<", "<=", "=", "<>", ">", ">="] {
                let of = |condition: &str| {
                    let sql = format!(
                        "SELECT count(*) FROM (SELECT {left} AS a) AS l, (SELECT {right} AS b) AS r \
                                       WHERE {condition}"
                    );
                    folder.run_sql(&sql).single_value()
                };
                let expected = of(&format!("a {operation} b"));
                for quantifier in ["ANY", "ALL"] {
                    let condition = format!("a {operation} {quantifier} (SELECT {right} AS c)");
                    assert_eq!(of(&condition), expected, "{left} {operation} {quantifier} {right}");
                }
            }
        }
    }
}

/// An aggregate of a subquery has the same name as the one of the outer query.
#[test]
fn aggregate_compares_with_the_same_aggregate_of_a_subquery() {
    let folder = Folder::new();
    folder.write("h.csv", "k,v\na,1\na,2\nb,5\nb,7\nc,3\n");
    for (comparison, keys) in [
        (">= ALL", &["b"][..]),
        ("< ANY", &["a", "c"]),
        ("> ANY", &["b"]),
        ("<= ALL", &["a", "c"]),
        ("= ANY", &["a", "b", "c"]),
        ("<> ALL", &[]),
    ] {
        let sql = format!(
            "SELECT k FROM '$/h.csv' GROUP BY k HAVING sum(v) {comparison} \
             (SELECT sum(v) FROM '$/h.csv' GROUP BY k) ORDER BY k"
        );
        let rows: Vec<_> = keys.iter().map(|key| [*key]).collect();
        let rows: Vec<_> = rows.iter().map(|row| &row[..]).collect();
        assert_eq!(folder.run_sql(&sql).rows(), string_rows(&rows), "{comparison}");
    }
}

/// A column that only the outer query has is that query's, as in SQL.
#[test]
fn subquery_can_select_an_outer_column() {
    let folder = Folder::new();
    let (t, u) = ("(VALUES (1), (2), (NULL)) AS t (a)", "(VALUES (5)) AS u (b)");
    let none = "(SELECT 5 AS b WHERE false) AS u";
    for (condition, expected) in [
        (format!("a IN (SELECT a FROM {u})"), &["1", "2"][..]),
        (format!("a IN (SELECT DISTINCT a FROM {u})"), &["1", "2"]),
        (format!("a IN (SELECT a FROM {none})"), &[]),
        (format!("a NOT IN (SELECT a FROM {u})"), &[]),
        (format!("a NOT IN (SELECT a FROM {none})"), &["1", "2", "∅"]),
        (format!("a IN (SELECT a FROM {u} WHERE b > a + 3)"), &["1"]),
        (format!("a IN (SELECT 3 - a FROM {u})"), &[]),
        (format!("3 - a IN (SELECT a + 1 FROM {u})"), &["1"]),
        (format!("(a IN (SELECT a FROM {u})) IS NULL"), &["∅"]),
        (format!("(a IN (SELECT a FROM {none})) IS FALSE"), &["1", "2", "∅"]),
    ] {
        let rows = folder.run_sql(&format!("SELECT a FROM {t} WHERE {condition}")).sorted_rows();
        let expected: Vec<Vec<String>> = expected.iter().map(|a| vec![(*a).to_owned()]).collect();
        assert_eq!(rows, expected, "{condition}");
    }
    let selected = format!("SELECT a, a IN (SELECT a FROM {u}) AS r FROM {t}");
    let rows = folder.run_sql(&selected).sorted_rows();
    assert_eq!(rows, [["1", "true"], ["2", "true"], ["∅", "∅"]]);
}

#[test]
fn subquery_with_limit_takes_the_first_correlated_row() {
    let folder = Folder::new();
    folder.write("users.csv", "id,name\n1,ann\n2,bob\n3,eve\n");
    folder.write("hits.csv", "id,v,at\n1,10,3\n1,20,1\n3,,2\n3,5,9\n");
    for (subquery, expected) in [
        (
            "SELECT v FROM '$/hits.csv' h WHERE h.id = u.id ORDER BY v DESC LIMIT 1",
            ["20", "∅", "5"],
        ),
        ("SELECT v FROM '$/hits.csv' h WHERE h.id = u.id ORDER BY at LIMIT 1", ["20", "∅", "∅"]),
        (
            "SELECT h.v FROM '$/hits.csv' h WHERE h.id = u.id ORDER BY at DESC LIMIT 1",
            ["10", "∅", "5"],
        ),
        (
            "SELECT v + 1 AS x FROM '$/hits.csv' h WHERE h.id = u.id ORDER BY x DESC LIMIT 1",
            ["21", "∅", "6"],
        ),
        (
            "SELECT v FROM '$/hits.csv' h WHERE h.id = u.id AND at < 9 ORDER BY 1 LIMIT 1",
            ["10", "∅", "∅"],
        ),
        // The subquery is not correlated.
        ("SELECT v FROM '$/hits.csv' ORDER BY v LIMIT 1", ["5", "5", "5"]),
    ] {
        let sql = format!("SELECT ({subquery}) AS first FROM '$/users.csv' u ORDER BY id");
        assert_eq!(folder.run_sql(&sql).rows().concat(), expected, "{subquery}");
    }
    let named = folder.run_sql(
        "SELECT name, (SELECT h.v FROM '$/hits.csv' h WHERE h.id = u.id ORDER BY at LIMIT 1) FROM '$/users.csv' u",
    );
    assert_eq!(named.column_names(), ["name", "v"]);
    let condition = "SELECT name FROM '$/users.csv' u WHERE \
                     (SELECT at FROM '$/hits.csv' h WHERE h.id = u.id ORDER BY v LIMIT 1) = 9";
    assert_eq!(folder.run_sql(condition).single_value(), "eve");
}
