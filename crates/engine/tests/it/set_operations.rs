//! Tests of `INTERSECT ALL` and `EXCEPT ALL` against counts of rows.

use std::collections::BTreeMap;

use tidemill_engine::RunSettings;

use crate::common::{Folder, Random, settings, string_rows};

#[test]
fn intersect_all_and_except_all_count_duplicates() {
    let folder = Folder::new();
    let mut random = Random(11);
    for (values, rows) in [(1, 5), (3, 40), (50, 4000)] {
        let mut counts: BTreeMap<Vec<String>, [i64; 2]> = BTreeMap::new();
        for (side, name) in ["l.csv", "r.csv"].into_iter().enumerate() {
            let mut out = String::from("a,b\n");
            for _ in 0..rows {
                let a = random.next_below(values);
                let b = match random.next_below(4) {
                    0 => String::new(),
                    b => format!("t{b}"),
                };
                out += &format!("{a},{b}\n");
                let b = if b.is_empty() { "∅".to_owned() } else { b };
                counts.entry(vec![a.to_string(), b]).or_default()[side] += 1;
            }
            folder.write(name, out);
        }
        let expected = |count: fn(i64, i64) -> i64| {
            let rows = counts.iter().flat_map(|(row, [left, right])| {
                std::iter::repeat_n(row.clone(), usize::try_from(count(*left, *right)).unwrap_or(0))
            });
            rows.collect::<Vec<_>>()
        };
        for threads in [1, 3] {
            let asked = |sql: &str| {
                folder.run_sql_with(sql, &RunSettings { threads, ..settings() }).sorted_rows()
            };
            let both = |operator: &str| {
                asked(&format!("SELECT * FROM '$/l.csv' {operator} SELECT a, b FROM '$/r.csv'"))
            };
            let mut intersection = expected(i64::min);
            let mut difference = expected(|left, right| left - right);
            intersection.sort();
            difference.sort();
            assert_eq!(both("INTERSECT ALL"), intersection);
            assert_eq!(both("EXCEPT ALL"), difference);
            assert_eq!(both("MINUS ALL"), difference);
        }
    }
}

#[test]
fn set_operations_nest_and_take_order_by_and_limit() {
    let folder = Folder::new();
    let (a, b) = ("(VALUES (1), (1), (1), (2)) AS t (x)", "(VALUES (1), (1), (3)) AS u (y)");
    for (sql, expected) in [
        (format!("SELECT x FROM {a} EXCEPT ALL SELECT y FROM {b} ORDER BY x DESC LIMIT 1"), "2"),
        (
            format!(
                "SELECT count(*) FROM (SELECT x FROM {a} INTERSECT ALL SELECT y FROM {b} UNION ALL SELECT 9)"
            ),
            "3",
        ),
        (
            format!(
                "WITH both AS (SELECT x FROM {a} EXCEPT ALL (SELECT y FROM {b} EXCEPT ALL SELECT 1)) \
                 SELECT sum(x) FROM both"
            ),
            "4",
        ),
        // Chained without brackets, and beside aliases of the user's that the rewrite uses, too.
        ("SELECT 1 AS x EXCEPT ALL SELECT 2 AS x EXCEPT ALL SELECT 3".to_owned(), "1"),
        (
            "SELECT 1 AS x EXCEPT ALL SELECT 2 UNION ALL SELECT 3 EXCEPT ALL SELECT 3".to_owned(),
            "1",
        ),
        (
            format!(
                "SELECT x FROM {a} INTERSECT ALL SELECT 1 INTERSECT ALL SELECT y FROM {b} EXCEPT ALL SELECT 9"
            ),
            "1",
        ),
        ("SELECT x FROM (SELECT 5 AS x) AS __right EXCEPT ALL SELECT 2 AS x".to_owned(), "5"),
        (format!("SELECT x + 0.5 FROM {a} INTERSECT ALL SELECT 2.5"), "2.5"),
        (format!("SELECT 7 WHERE 1 IN (SELECT x FROM {a} INTERSECT ALL SELECT y FROM {b})"), "7"),
    ] {
        assert_eq!(folder.run_sql(&sql).single_value(), expected, "{sql}");
    }
    let scalar = folder.run_sql("SELECT (SELECT 1 AS x EXCEPT ALL SELECT 2)");
    assert_eq!((scalar.column_names()[0].as_str(), scalar.single_value().as_str()), ("x", "1"));
    let named = folder.run_sql(&format!("SELECT x AS first FROM {a} EXCEPT ALL SELECT y FROM {b}"));
    assert_eq!(named.column_names(), ["first"]);
    assert_eq!(named.sorted_rows(), string_rows(&[&["1"], &["2"]]));
}

#[test]
fn nulls_sort_last_by_default() {
    let folder = Folder::new();
    folder.write("n.csv", "k,x\na,1\nb,\nc,3\nd,2\n");
    for (order, expected) in [
        ("x DESC", [&["c"][..], &["d"], &["a"], &["b"]]),
        ("x", [&["a"], &["d"], &["c"], &["b"]]),
        ("x DESC NULLS FIRST", [&["b"], &["c"], &["d"], &["a"]]),
        ("x NULLS FIRST", [&["b"], &["a"], &["d"], &["c"]]),
    ] {
        let sql = format!("SELECT k FROM '$/n.csv' ORDER BY {order}");
        assert_eq!(folder.run_sql(&sql).rows(), string_rows(&expected), "{order}");
        let ranked =
            format!("SELECT k FROM '$/n.csv' ORDER BY row_number() OVER (ORDER BY {order})");
        assert_eq!(folder.run_sql(&ranked).rows(), string_rows(&expected), "{order}");
        let listed =
            format!("SELECT array_to_string(array_agg(k ORDER BY {order}), ' ') FROM '$/n.csv'");
        let joined: Vec<&str> = expected.iter().map(|row| row[0]).collect();
        assert_eq!(folder.run_sql(&listed).single_value(), joined.join(" "), "{order}");
    }
}
