//! Tests of subqueries that depend on the row around them. The expected rows are DuckDB's.

use crate::common::Folder;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("o.csv", "id,b,s\n1,10,a\n2,20,b\n3,,c\n4,40,\n5,20,e\n");
    folder.write("i.csv", "k,y,x\n1,5,100\n2,15,200\n3,20,\n4,,400\n5,40,500\n6,15,600\n");
    folder
}

/// Returns the rows in sorted order, with a bar between values.
fn sorted_text(folder: &Folder, sql: &str) -> String {
    let mut rows: Vec<String> =
        folder.run_sql(sql).rows().iter().map(|row| row.join("|")).collect();
    rows.sort_unstable();
    rows.join(" ")
}

#[test]
fn correlated_subqueries_match_duckdb() {
    let folder = folder();
    for (sql, expected) in [
        (
            "SELECT id, (SELECT sum(x) FROM '$/i.csv' i WHERE y < o.b) FROM '$/o.csv' o",
            "1|100 2|900 3|∅ 4|900 5|900",
        ),
        (
            "SELECT id, (SELECT count(*) FROM '$/i.csv' i WHERE y < o.b) FROM '$/o.csv' o",
            "1|1 2|3 3|0 4|4 5|3",
        ),
        (
            "SELECT id, (SELECT count(x) FROM '$/i.csv' i WHERE y <> o.b) FROM '$/o.csv' o",
            "1|4 2|4 3|0 4|3 5|4",
        ),
        (
            "SELECT id, (SELECT max(x) FROM '$/i.csv' i WHERE y <= o.b HAVING count(*) > 1) FROM '$/o.csv' o",
            "1|∅ 2|600 3|∅ 4|600 5|600",
        ),
        (
            "SELECT id, (SELECT x FROM '$/i.csv' i WHERE y <= o.b ORDER BY y DESC, x DESC NULLS LAST LIMIT 1) FROM '$/o.csv' o",
            "1|100 2|∅ 3|∅ 4|500 5|∅",
        ),
        (
            "SELECT id, (SELECT k FROM '$/i.csv' i WHERE y <= o.b ORDER BY k LIMIT 1 OFFSET 1) FROM '$/o.csv' o",
            "1|∅ 2|2 3|∅ 4|2 5|2",
        ),
        (
            "SELECT id, (SELECT count(DISTINCT y) FROM '$/i.csv' i WHERE y < o.b) FROM '$/o.csv' o",
            "1|1 2|2 3|0 4|3 5|2",
        ),
        (
            "SELECT id, (SELECT count(*) FROM (SELECT DISTINCT y FROM '$/i.csv' i WHERE y < o.b)) FROM '$/o.csv' o",
            "1|1 2|2 3|0 4|3 5|2",
        ),
        (
            "SELECT id, (SELECT sum(v) FROM (SELECT x AS v FROM '$/i.csv' i WHERE y < o.b UNION ALL SELECT o.id)) FROM '$/o.csv' o",
            "1|101 2|902 3|3 4|904 5|905",
        ),
        (
            "SELECT id, (SELECT max(n) FROM (SELECT y, count(*) AS n FROM '$/i.csv' i WHERE y < o.b GROUP BY y)) FROM '$/o.csv' o",
            "1|1 2|2 3|∅ 4|2 5|2",
        ),
        (
            "SELECT id, (SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY k) AS r FROM '$/i.csv' i WHERE y < o.b)) FROM '$/o.csv' o",
            "1|1 2|3 3|∅ 4|4 5|3",
        ),
        (
            "SELECT id, (SELECT sum(o.b + x) FROM '$/i.csv' i WHERE y < o.b) FROM '$/o.csv' o",
            "1|110 2|960 3|∅ 4|1020 5|960",
        ),
        ("SELECT id, (SELECT o.b + 1) FROM '$/o.csv' o", "1|11 2|21 3|∅ 4|41 5|21"),
        (
            "SELECT id, (SELECT (SELECT o.b + k FROM '$/i.csv' i WHERE k = o.id)) FROM '$/o.csv' o",
            "1|11 2|22 3|∅ 4|44 5|25",
        ),
        (
            "SELECT id, (SELECT count(*) FROM '$/i.csv' i WHERE y < (SELECT max(b) FROM '$/o.csv' AS p WHERE p.id < o.id)) FROM '$/o.csv' o",
            "1|0 2|1 3|3 4|3 5|4",
        ),
        (
            "SELECT id, EXISTS (SELECT 1 FROM '$/i.csv' i WHERE y > o.b) FROM '$/o.csv' o",
            "1|true 2|true 3|false 4|false 5|true",
        ),
        (
            "SELECT id FROM '$/o.csv' o WHERE NOT EXISTS (SELECT 1 FROM '$/i.csv' i WHERE y > o.b)",
            "3 4",
        ),
        (
            "SELECT id FROM '$/o.csv' o WHERE EXISTS (SELECT 1 FROM '$/i.csv' i WHERE y > o.b) OR id = 4",
            "1 2 4 5",
        ),
        (
            "SELECT id, EXISTS (SELECT count(*) FROM '$/i.csv' i WHERE y > o.b) FROM '$/o.csv' o",
            "1|true 2|true 3|true 4|true 5|true",
        ),
        (
            "SELECT id, b IN (SELECT y FROM '$/i.csv' i WHERE k < o.id) FROM '$/o.csv' o",
            "1|false 2|false 3|∅ 4|false 5|true",
        ),
        (
            "SELECT id, b NOT IN (SELECT y FROM '$/i.csv' i WHERE k > o.id) FROM '$/o.csv' o",
            "1|∅ 2|false 3|∅ 4|false 5|true",
        ),
        (
            "SELECT id, b > ANY (SELECT y FROM '$/i.csv' i) FROM '$/o.csv' o",
            "1|true 2|true 3|∅ 4|true 5|true",
        ),
        (
            "SELECT id, b >= ALL (SELECT y FROM '$/i.csv' i WHERE y IS NOT NULL) FROM '$/o.csv' o",
            "1|false 2|false 3|∅ 4|true 5|false",
        ),
        (
            "SELECT id, b <> ALL (SELECT y FROM '$/i.csv' i WHERE k < o.id) FROM '$/o.csv' o",
            "1|true 2|true 3|∅ 4|true 5|false",
        ),
        (
            "SELECT id, b = ANY (SELECT y FROM '$/i.csv' i WHERE k > 100) FROM '$/o.csv' o",
            "1|false 2|false 3|false 4|false 5|false",
        ),
        (
            "SELECT id, (id, b) IN (SELECT k, y FROM '$/i.csv' i) FROM '$/o.csv' o",
            "1|false 2|false 3|∅ 4|∅ 5|false",
        ),
        (
            "SELECT id, (b, id) NOT IN (SELECT y, 5 FROM '$/i.csv' i) FROM '$/o.csv' o",
            "1|true 2|true 3|true 4|true 5|false",
        ),
        ("SELECT sum((SELECT count(*) FROM '$/i.csv' i WHERE y < o.b)) FROM '$/o.csv' o", "11"),
        (
            "SELECT b, sum((SELECT count(*) FROM '$/i.csv' i WHERE y < o.b)) FROM '$/o.csv' o GROUP BY b",
            "10|1 20|6 40|4 ∅|0",
        ),
        (
            "SELECT (SELECT count(*) FROM '$/i.csv' i WHERE y < o.b) AS n, count(*) FROM '$/o.csv' o GROUP BY n",
            "0|1 1|1 3|2 4|1",
        ),
        (
            "SELECT b, count(*) FROM '$/o.csv' o GROUP BY b HAVING (SELECT count(*) FROM '$/i.csv' i WHERE y < o.b) > 1",
            "20|2 40|1",
        ),
        (
            "SELECT id, rank() OVER (ORDER BY (SELECT count(*) FROM '$/i.csv' i WHERE y < o.b)) FROM '$/o.csv' o",
            "1|2 2|3 3|1 4|5 5|3",
        ),
        (
            "SELECT o.id, i.k FROM '$/o.csv' o JOIN '$/i.csv' i ON i.k = o.id AND EXISTS (SELECT 1 FROM '$/i.csv' AS j WHERE j.y > o.b)",
            "1|1 2|2 5|5",
        ),
        (
            "SELECT o.id, i.k FROM '$/o.csv' o LEFT JOIN '$/i.csv' i ON i.k = o.id AND EXISTS (SELECT 1 FROM '$/i.csv' AS j WHERE j.y > i.y)",
            "1|1 2|2 3|3 4|∅ 5|∅",
        ),
        (
            "SELECT o.id, i.k FROM '$/o.csv' o JOIN '$/i.csv' i ON EXISTS (SELECT 1 FROM '$/i.csv' AS j WHERE j.y > o.b AND j.k = i.k)",
            "1|2 1|3 1|5 1|6 2|5 5|5",
        ),
        (
            "SELECT o.id, i.k FROM '$/o.csv' o LEFT JOIN '$/i.csv' i ON i.y IN (SELECT b FROM '$/o.csv' AS p) AND i.k = o.id",
            "1|∅ 2|∅ 3|3 4|∅ 5|5",
        ),
        (
            "SELECT o.id, i.k FROM '$/o.csv' o LEFT JOIN '$/i.csv' i ON EXISTS (SELECT 1 FROM '$/i.csv' j WHERE j.k = o.id AND j.y = i.y)",
            "1|1 2|2 2|6 3|3 4|∅ 5|5",
        ),
        (
            "SELECT o.id, i.k FROM '$/o.csv' o RIGHT JOIN '$/i.csv' i ON o.b > i.y AND EXISTS (SELECT 1 FROM '$/i.csv' j WHERE j.k > o.id AND j.y > i.y)",
            "1|1 2|1 2|2 2|6 4|1 4|2 4|3 4|6 5|1 ∅|4 ∅|5",
        ),
        (
            "SELECT o.id, i.k FROM '$/o.csv' o FULL JOIN '$/i.csv' i ON o.id = i.k AND o.b IN (SELECT j.y FROM '$/i.csv' j WHERE j.y > i.y OR j.y = i.y)",
            "1|∅ 2|2 3|∅ 4|∅ 5|∅ ∅|1 ∅|3 ∅|4 ∅|5 ∅|6",
        ),
        (
            "SELECT o.id, i.k FROM '$/o.csv' o LEFT JOIN '$/i.csv' i ON (SELECT o.b + i.y) > 50 AND i.k > 1",
            "1|∅ 2|5 3|∅ 4|2 4|3 4|5 4|6 5|5",
        ),
        (
            "SELECT o.id, i.k FROM '$/o.csv' o FULL JOIN '$/i.csv' i ON NOT EXISTS (SELECT 1 FROM '$/i.csv' j WHERE j.k > i.k OR j.k = o.id)",
            "1|∅ 2|∅ 3|∅ 4|∅ 5|∅ ∅|1 ∅|2 ∅|3 ∅|4 ∅|5 ∅|6",
        ),
        (
            "SELECT count(*), count(o.id), count(i.k) FROM '$/o.csv' o FULL JOIN '$/i.csv' i ON o.b = i.y AND (SELECT max(j.x) FROM '$/i.csv' j WHERE j.k < o.id + i.k) > 300",
            "9|5|7",
        ),
        (
            "SELECT o.id, t.k FROM '$/o.csv' o, LATERAL (SELECT k FROM '$/i.csv' i WHERE y < o.b ORDER BY k DESC LIMIT 2) AS t",
            "1|1 2|2 2|6 4|3 4|6 5|2 5|6",
        ),
        (
            "SELECT o.id, t.k FROM '$/o.csv' o LEFT JOIN LATERAL (SELECT k FROM '$/i.csv' i WHERE y > o.b ORDER BY k LIMIT 1) AS t ON true",
            "1|2 2|5 3|∅ 4|∅ 5|5",
        ),
        (
            "SELECT o.id, t.n FROM '$/o.csv' o, LATERAL (SELECT count(*) AS n FROM '$/i.csv' i WHERE y < o.b) AS t",
            "1|1 2|3 3|0 4|4 5|3",
        ),
        (
            "SELECT o.id, t.v FROM '$/o.csv' o, LATERAL (VALUES (o.b), (o.id)) AS t(v) ORDER BY ALL",
            "1|1 1|10 2|2 2|20 3|3 3|∅ 4|4 4|40 5|20 5|5",
        ),
        (
            "SELECT id, b IN (SELECT j.y FROM (SELECT * FROM '$/i.csv' i WHERE i.y = o.b) AS j RIGHT JOIN (VALUES (15), (20)) AS v(w) ON j.y = v.w) FROM '$/o.csv' o",
            "1|∅ 2|true 3|∅ 4|∅ 5|true",
        ),
        (
            "SELECT id, (SELECT count(*) FROM (SELECT * FROM '$/i.csv' i WHERE y < o.b) AS j FULL JOIN (VALUES (1), (99)) AS v(w) ON j.k = v.w) FROM '$/o.csv' o",
            "1|2 2|4 3|2 4|5 5|4",
        ),
        (
            "SELECT id, (SELECT count(*) FROM '$/i.csv' i LEFT JOIN (SELECT * FROM '$/o.csv' AS p WHERE p.id < o.id) AS q ON q.b = i.y) FROM '$/o.csv' o",
            "1|6 2|6 3|6 4|6 5|6",
        ),
        (
            "SELECT id, (SELECT s || string_agg(k, '' ORDER BY k) FROM '$/i.csv' i WHERE y < o.b) FROM '$/o.csv' o",
            "1|a1 2|b126 3|∅ 4|∅ 5|e126",
        ),
        (
            "SELECT id, (SELECT avg(x) FILTER (WHERE k > 1) FROM '$/i.csv' i WHERE y < o.b) FROM '$/o.csv' o",
            "1|∅ 2|400.0 3|∅ 4|400.0 5|400.0",
        ),
        (
            "SELECT id FROM '$/o.csv' o WHERE b > (SELECT avg(y) FROM '$/i.csv' i WHERE k <> o.id)",
            "4 5",
        ),
        (
            "SELECT id, (SELECT count(*) FROM '$/i.csv' i WHERE y < o.b INTERSECT SELECT o.id) FROM '$/o.csv' o",
            "1|1 2|∅ 3|∅ 4|4 5|∅",
        ),
    ] {
        assert_eq!(sorted_text(&folder, sql), expected, "{sql}");
    }
}

/// A scalar subquery that no branch evaluates may have several rows.
#[test]
fn scalar_subquery_with_several_rows_fails_only_if_evaluated() {
    let folder = folder();
    let several = "(SELECT k FROM '$/i.csv' i WHERE y < o.b)";
    let guarded =
        format!("SELECT sum(CASE WHEN id > 100 THEN {several} ELSE 0 END) FROM '$/o.csv' o");
    assert_eq!(folder.run_sql(&guarded).single_value(), "0");
    let error = folder.sql_error(&format!("SELECT {several} FROM '$/o.csv' o"));
    assert!(error.contains("has more than one row"), "{error}");
}

/// Equal rows share one evaluation, so a volatile subquery would be evaluated too seldom.
#[test]
fn volatile_correlated_subquery_is_refused() {
    let folder = folder();
    folder.sql_error(
        "SELECT (SELECT concat(uuid(), i.k) FROM '$/o.csv' WHERE id < i.y) FROM '$/i.csv' i",
    );
}

#[test]
fn recursion_that_reads_its_own_rows_in_a_subquery_is_refused() {
    let folder = folder();
    let sql = "WITH RECURSIVE t AS (SELECT 1 AS x UNION SELECT (SELECT max(x) + 1 FROM t) FROM t WHERE x < 5) SELECT * FROM t";
    let error = folder.sql_error(sql);
    assert!(error.starts_with("the recursive step of `t` reads its own rows"), "{error}");
    let plain = "WITH RECURSIVE t AS (SELECT 1 AS x UNION SELECT x + 1 FROM t WHERE x < 5) SELECT count(*) FROM t";
    assert_eq!(folder.run_sql(plain).single_value(), "5");
}

#[test]
fn subquery_can_reference_rows_two_levels_up() {
    let folder = folder();
    for (sql, expected) in [
        (
            "SELECT id FROM '$/o.csv' o WHERE EXISTS (SELECT 1 FROM '$/i.csv' i WHERE EXISTS \
             (SELECT 1 FROM '$/i.csv' j WHERE j.k = o.id AND j.k < 3))",
            "1 2",
        ),
        (
            "SELECT id FROM '$/o.csv' o WHERE EXISTS (SELECT 1 FROM '$/i.csv' i WHERE i.y > 5 AND i.k IN \
             (SELECT j.k FROM '$/i.csv' j WHERE j.y = o.b))",
            "2 4 5",
        ),
        (
            "SELECT id, (SELECT max(k + (SELECT o.id * 10)) FROM '$/i.csv') FROM '$/o.csv' o WHERE id < 3",
            "1|16 2|26",
        ),
    ] {
        assert_eq!(sorted_text(&folder, sql), expected, "{sql}");
    }
}

#[test]
fn aggregate_over_outer_rows_in_a_subquery_is_refused() {
    let folder = folder();
    for sql in [
        "SELECT (SELECT sum(o.id)) FROM '$/o.csv' o",
        "SELECT (SELECT max(o.b + 1) FROM '$/i.csv' i WHERE i.k = o.id) FROM '$/o.csv' o",
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains("so it is an aggregate of that query"), "{message}");
    }
    let sql = "SELECT (SELECT sum(o.id + k) FROM '$/i.csv') FROM '$/o.csv' o WHERE id < 3";
    assert_eq!(sorted_text(&folder, sql), "27 33");
}

#[test]
fn subquery_can_reference_fields_of_the_outer_row() {
    let folder = Folder::new();
    folder.write(
        "e.json",
        "{\"k\":1,\"d\":{\"os\":\"x\",\"V\":{\"n\":1}}}\n{\"k\":2,\"d\":{\"os\":\"y\",\"V\":{\"n\":2}}}\n",
    );
    for (sql, expected) in [
        (
            "SELECT k FROM '$/e.json' l WHERE EXISTS (SELECT 1 FROM '$/e.json' m WHERE m.d.os < l.d.os)",
            "2",
        ),
        (
            "SELECT k, (SELECT count(*) FROM '$/e.json' m WHERE m.k <= l.d.V.n) FROM '$/e.json' l",
            "1|1 2|2",
        ),
        (
            "SELECT k FROM '$/e.json' l WHERE EXISTS (SELECT 1 FROM '$/e.json' m WHERE m.k = l.k AND l.d.os = 'x')",
            "1",
        ),
        (
            "SELECT k FROM '$/e.json' l WHERE k = (SELECT max(n) FROM (SELECT 1 AS n) WHERE d.os = 'x')",
            "1",
        ),
    ] {
        assert_eq!(sorted_text(&folder, sql), expected, "{sql}");
    }
}
