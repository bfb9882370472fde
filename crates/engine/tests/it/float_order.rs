//! Tests of the one order of floats, in every format and on every path: −0.0 equals 0.0, and a NaN equals any
//! other and is the largest. A model of that rule checks what statistics prune, what text decoders drop early
//! and what kernels compare.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch, StructArray,
};
use arrow::datatypes::{DataType, Field};
use parquet::arrow::ArrowWriter;
use tidemill_engine::Query;
use tidemill_rowfile::{Schema, WriteOptions, Writer};

use crate::common::{Folder, QueryAnswer, Random, query, run_query, settings};

/// Returns the float whose bits, in their total order, tell apart only what the rule tells apart.
fn canonical_float(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    canonical_float(a).total_cmp(&canonical_float(b))
}

/// Returns a random float: often one that comparisons get wrong.
fn random_float(random: &mut Random) -> Option<f64> {
    const SPECIAL_FLOATS: [f64; 9] = [
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1.0,
        -1.0,
        f64::MAX,
        f64::MIN_POSITIVE,
    ];
    match random.next_below(12) {
        0 => None,
        1 => Some(-f64::NAN),
        index @ 2..=10 => Some(SPECIAL_FLOATS[index as usize - 2]),
        _ => Some(random.next_below(7) as f64 - 3.0),
    }
}

struct Row {
    f: Option<f64>,
    g: Option<f64>,
}

/// Returns runs of equal rows, so that some row groups hold few values.
fn random_rows(random: &mut Random, count: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::with_capacity(count);
    for _ in 0..count {
        let again = rows.last().map(|row| (row.f, row.g)).filter(|_| random.next_below(3) > 0);
        let (f, g) = again.unwrap_or_else(|| (random_float(random), random_float(random)));
        rows.push(Row { f, g });
    }
    rows
}

fn rows_to_batch(rows: &[Row]) -> RecordBatch {
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows.len() as i64));
    let f: ArrayRef = Arc::new(rows.iter().map(|row| row.f).collect::<Float64Array>());
    let g: ArrayRef = Arc::new(rows.iter().map(|row| row.g).collect::<Float64Array>());
    let h: ArrayRef =
        Arc::new(rows.iter().map(|row| row.f.map(|f| f as f32)).collect::<Float32Array>());
    let field = Arc::new(Field::new("f", DataType::Float64, true));
    let s: ArrayRef = Arc::new(StructArray::from(vec![(field, Arc::clone(&f))]));
    RecordBatch::try_from_iter_with_nullable(
        [("id", id), ("f", f), ("g", g), ("h", h), ("s", s)].map(|(n, c)| (n, c, true)),
    )
    .unwrap()
}

/// Number of rows for which Parquet and rowfiles keep statistics.
const ROWS_PER_GROUP: usize = 4;

fn write_all_formats(folder: &Folder, rows: &[Row]) {
    let batch = rows_to_batch(rows);
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
    let schema = Schema::from_arrow(&batch.schema()).unwrap();
    let mut rowfile = Writer::new(Vec::new(), &schema, WriteOptions::default()).unwrap();
    for first in (0..rows.len()).step_by(ROWS_PER_GROUP) {
        let part = batch.slice(first, ROWS_PER_GROUP.min(rows.len() - first));
        writer.write(&part).unwrap();
        writer.flush().unwrap();
        rowfile.write(&part).unwrap();
        rowfile.flush().unwrap();
    }
    writer.close().unwrap();
    folder.write("t.parquet", out);
    folder.write("t.rowfile", rowfile.finish().unwrap());
    let text = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:?}"));
    let (mut csv, mut json) = (String::from("id,f,g\n"), String::new());
    for (id, row) in rows.iter().enumerate() {
        csv.push_str(&format!("{id},{},{}\n", text(row.f), text(row.g)));
        let quoted = |value: Option<f64>| match value {
            None => "null".to_string(),
            Some(value) if value.is_finite() => format!("{value:?}"),
            Some(value) => format!("\"{value:?}\""),
        };
        let (f, g) = (quoted(row.f), quoted(row.g));
        json.push_str(&format!("{{\"id\":{id},\"f\":{f},\"g\":{g}}}\n"));
    }
    folder.write("t.csv", csv);
    folder.write("t.json", json);
}

fn query_file(folder: &Folder, sql: &str, file: &str) -> QueryAnswer {
    let text = file.ends_with("csv") || file.ends_with("json");
    let schema = text.then(|| "id BIGINT, f DOUBLE, g DOUBLE".to_string());
    let sql = folder.substitute_path(&sql.replace("FILE", &format!("'$/{file}'")));
    let query = Query { schema, ..query(sql.as_str()) };
    run_query(&query, &settings()).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn sorted_ids(answer: &QueryAnswer) -> Vec<i64> {
    let mut ids: Vec<i64> = answer.rows().iter().map(|row| row[0].parse().unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// The result of a condition for a row; `None` is unknown.
type ConditionModel = Box<dyn Fn(&Row) -> Option<bool>>;

fn double_literal(value: f64) -> String {
    match value {
        value if value.is_nan() => "CAST('NaN' AS DOUBLE)".into(),
        value if value.is_infinite() => format!("CAST('{value}' AS DOUBLE)"),
        value => format!("CAST({value:?} AS DOUBLE)"),
    }
}

/// Returns a random condition on `f`, in SQL and as a function.
fn random_condition(random: &mut Random) -> (String, ConditionModel) {
    let constant = |random: &mut Random| random_float(random).unwrap_or(5.0);
    type FloatPredicate = fn(Ordering) -> bool;
    let operators: [(&str, FloatPredicate); 6] = [
        ("=", Ordering::is_eq),
        ("<>", Ordering::is_ne),
        ("<", Ordering::is_lt),
        ("<=", Ordering::is_le),
        (">", Ordering::is_gt),
        (">=", Ordering::is_ge),
    ];
    let (operator, holds) = operators[random.next_below(6) as usize];
    let (a, b) = (constant(random), constant(random));
    let (x, y) = (double_literal(a), double_literal(b));
    match random.next_below(9) {
        0 => (format!("f {operator} {x}"), Box::new(move |r| Some(holds(compare_floats(r.f?, a))))),
        1 => (format!("{x} {operator} f"), Box::new(move |r| Some(holds(compare_floats(a, r.f?))))),
        2 => (
            format!("NOT f {operator} {x}"),
            Box::new(move |r| Some(!holds(compare_floats(r.f?, a)))),
        ),
        3 => (
            format!("f IN ({x}, {y})"),
            Box::new(move |r| {
                Some(compare_floats(r.f?, a).is_eq() || compare_floats(r.f?, b).is_eq())
            }),
        ),
        4 => (
            format!("f NOT IN ({x}, {y})"),
            Box::new(move |r| {
                Some(compare_floats(r.f?, a).is_ne() && compare_floats(r.f?, b).is_ne())
            }),
        ),
        5 => (
            format!("f BETWEEN {x} AND {y}"),
            Box::new(move |r| {
                Some(compare_floats(r.f?, a).is_ge() && compare_floats(r.f?, b).is_le())
            }),
        ),
        6 => (
            format!("f IS DISTINCT FROM {x}"),
            Box::new(move |r| Some(r.f.is_none_or(|f| compare_floats(f, a).is_ne()))),
        ),
        7 => {
            (format!("-f {operator} {x}"), Box::new(move |r| Some(holds(compare_floats(-r.f?, a)))))
        }
        _ => {
            (format!("f {operator} g"), Box::new(move |r| Some(holds(compare_floats(r.f?, r.g?)))))
        }
    }
}

#[test]
fn conditions_follow_the_float_order_in_every_format() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let folder = Folder::new();
        let rows = random_rows(&mut random, 40);
        write_all_formats(&folder, &rows);
        for _ in 0..6 {
            let (sql, model) = random_condition(&mut random);
            let expected: Vec<i64> = (0..)
                .zip(&rows)
                .filter_map(|(id, row)| (model(row) == Some(true)).then_some(id))
                .collect();
            for file in ["t.parquet", "t.rowfile", "t.csv", "t.json"] {
                let kept = query_file(&folder, &format!("SELECT id FROM FILE WHERE {sql}"), file);
                assert_eq!(sorted_ids(&kept), expected, "seed {seed}, {file}: {sql}");
                // In the select list, neither statistics nor text decoders evaluate the condition.
                let all = query_file(&folder, &format!("SELECT id, {sql} AS kept FROM FILE"), file);
                for row in all.rows() {
                    let id: usize = row[0].parse().unwrap();
                    let said = model(&rows[id]).map_or("∅".to_string(), |kept| kept.to_string());
                    assert_eq!(row[1], said, "seed {seed}, {file}: {sql} of {:?}", rows[id].f);
                }
            }
            // Conditions on a field, on a narrower column and on a cast.
            for other in ["s['f']", "CAST(h AS DOUBLE)"] {
                if sql.contains("inf") {
                    continue;
                }
                let sql = sql.replace('f', other);
                for file in ["t.parquet", "t.rowfile"] {
                    let kept =
                        query_file(&folder, &format!("SELECT id FROM FILE WHERE {sql}"), file);
                    let all =
                        query_file(&folder, &format!("SELECT id, {sql} AS kept FROM FILE"), file);
                    let expected = all.rows().into_iter().filter(|row| row[1] == "true");
                    let expected: Vec<i64> = expected.map(|row| row[0].parse().unwrap()).collect();
                    assert_eq!(sorted_ids(&kept), expected, "seed {seed}, {file}: {sql}");
                }
            }
        }
    }
}

#[test]
fn parquet_row_group_with_nan_is_not_pruned() {
    let folder = Folder::new();
    write_all_formats(
        &folder,
        &[Row { f: Some(1.0), g: None }, Row { f: Some(f64::NAN), g: None }],
    );
    for (condition, expected) in [
        ("f > 5", 1),
        ("f = CAST('NaN' AS DOUBLE)", 1),
        ("f <> 1", 1),
        ("NOT f <= 5", 1),
        ("f < 5", 1),
        ("f > 1e300", 1),
        ("-f > 5", 1),
        ("-f < -5", 0),
    ] {
        for file in ["t.parquet", "t.rowfile", "t.csv", "t.json"] {
            let sql = format!("SELECT id FROM FILE WHERE {condition}");
            assert_eq!(
                query_file(&folder, &sql, file).rows().len(),
                expected,
                "{file}: {condition}"
            );
        }
    }
    // Lower bounds still prune, and so do partition columns.
    write_all_formats(
        &folder,
        &[Row { f: Some(10.0), g: None }, Row { f: Some(f64::NAN), g: None }],
    );
    let answer = query_file(&folder, "SELECT id FROM FILE WHERE f < 5", "t.parquet");
    assert_eq!((answer.rows().len(), answer.coverage.rows.done), (0, 0));
    folder.write("k/f=-0.0/a.csv", "id\n1\n");
    folder.write("k/f=nan/a.csv", "id\n2\n");
    for (condition, expected) in [("f = 0", "1"), ("f >= 0", "2"), ("f > 7", "1"), ("f < 0", "0")] {
        let sql = folder.substitute_path(&format!("SELECT count(*) FROM '$/k' WHERE {condition}"));
        let query = Query { schema: Some("id BIGINT, f DOUBLE".into()), ..query(sql) };
        assert_eq!(run_query(&query, &settings()).unwrap().single_value(), expected, "{condition}");
    }
}

/// Returns the distinct values of `f` under the rule, with their numbers of rows.
fn distinct_values(rows: &[Row]) -> BTreeMap<Option<u64>, usize> {
    let mut groups = BTreeMap::new();
    for row in rows {
        *groups.entry(row.f.map(|f| canonical_float(f).to_bits())).or_insert(0) += 1;
    }
    groups
}

#[test]
fn groups_windows_and_joins_treat_zeros_and_nans_as_equal() {
    for seed in 0..3 {
        let mut random = Random(1000 + seed);
        let folder = Folder::new();
        let rows = random_rows(&mut random, 60);
        write_all_formats(&folder, &rows);
        let groups = distinct_values(&rows);
        let pairs: usize = groups.iter().filter_map(|(key, n)| key.map(|_| n * n)).sum();
        let present = groups.keys().flatten().count();
        for file in ["t.parquet", "t.csv"] {
            let check = |sql: &str, expected: usize| {
                let answer = query_file(&folder, sql, file);
                assert_eq!(
                    answer.single_value(),
                    expected.to_string(),
                    "seed {seed}, {file}: {sql}"
                );
            };
            check("SELECT count(*) FROM (SELECT f FROM FILE GROUP BY f)", groups.len());
            check("SELECT count(*) FROM (SELECT DISTINCT f FROM FILE)", groups.len());
            check(
                "SELECT count(*) FROM (SELECT DISTINCT s, f FROM (SELECT f, [f] AS s FROM FILE))",
                groups.len(),
            );
            check(
                "SELECT count(*) FROM (SELECT DISTINCT ON (f) f, id FROM FILE ORDER BY f, id)",
                groups.len(),
            );
            check(
                "SELECT count(*) FROM (SELECT f FROM FILE UNION SELECT f FROM FILE)",
                groups.len(),
            );
            check(
                "SELECT count(*) FROM (SELECT f FROM FILE INTERSECT SELECT -(-f) FROM FILE)",
                groups.len(),
            );
            check("SELECT count(*) FROM (SELECT f FROM FILE EXCEPT SELECT f + 0 FROM FILE)", 0);
            check("SELECT count(DISTINCT f) FROM FILE", present);
            check(
                "SELECT n FROM (SELECT count(DISTINCT f) AS n, approx_percentile_cont_with_weight(1, 1, 0.5) FROM FILE)",
                present,
            );
            check("SELECT unique(f) FROM FILE", present);
            check(
                "SELECT n FROM (SELECT unique(f) AS n, approx_percentile_cont_with_weight(1, 1, 0.5) FROM FILE)",
                present,
            );
            check("SELECT array_length(top_k(f, 100)) FROM FILE", present);
            check(
                "SELECT count(*) FROM (SELECT DISTINCT count(*) OVER (PARTITION BY f) AS n, f FROM FILE)",
                groups.len(),
            );
            check(
                "SELECT max(r) FROM (SELECT dense_rank() OVER (ORDER BY f) AS r FROM FILE)",
                groups.len(),
            );
            check("SELECT count(*) FROM FILE AS a JOIN FILE AS b ON a.f = b.f", pairs);
            check("SELECT count(*) FROM FILE AS a JOIN FILE AS b ON a.f = -(-b.f + 0)", pairs);
            check(
                "SELECT count(*) FROM FILE WHERE f IN (SELECT -(-f) FROM FILE)",
                groups.iter().filter_map(|(key, n)| key.map(|_| n)).sum(),
            );
            check("SELECT count(*) FROM FILE AS a WHERE a.f < ANY (SELECT b.f FROM FILE AS b)", {
                let most = groups.keys().flatten().map(|bits| f64::from_bits(*bits));
                let most = most.max_by(|a, b| compare_floats(*a, *b));
                rows.iter()
                    .filter(|row| row.f.is_some_and(|f| compare_floats(f, most.unwrap()).is_lt()))
                    .count()
            });
            check(
                "SELECT count(CASE f WHEN 0 THEN 1 END) FROM FILE",
                *groups.get(&Some(0)).unwrap_or(&0),
            );
            check(
                "SELECT count(f) - count(nullif(f, 0)) FROM FILE",
                *groups.get(&Some(0)).unwrap_or(&0),
            );
            check(
                "SELECT count(*) FROM FILE WHERE array_has([f], 0.0)",
                *groups.get(&Some(0)).unwrap_or(&0),
            );
            // Counts the equal values of each row with a correlated subquery.
            check(
                "SELECT sum(n) FROM (SELECT (SELECT count(*) FROM FILE AS b WHERE b.f = a.f) AS n \
                 FROM FILE AS a)",
                pairs,
            );
            let most = rows.iter().filter_map(|row| row.f).max_by(|a, b| compare_floats(*a, *b));
            let least = rows.iter().filter_map(|row| row.f).min_by(|a, b| compare_floats(*a, *b));
            for (sql, expected) in [
                ("SELECT max(f) FROM FILE", most),
                (
                    "SELECT m FROM (SELECT max(f) AS m, approx_percentile_cont_with_weight(1, 1, 0.5) FROM FILE)",
                    most,
                ),
                ("SELECT max(m) FROM (SELECT max(f) OVER () AS m FROM FILE)", most),
                ("SELECT f FROM FILE WHERE f IS NOT NULL ORDER BY f DESC LIMIT 1", most),
                ("SELECT min(f) FROM FILE", least),
                (
                    "SELECT m FROM (SELECT min(f) AS m, approx_percentile_cont_with_weight(1, 1, 0.5) FROM FILE)",
                    least,
                ),
            ] {
                let answer = query_file(&folder, sql, file);
                let found: f64 = answer.single_value().parse().unwrap();
                assert!(
                    compare_floats(found, expected.unwrap()).is_eq(),
                    "seed {seed}, {file}: {sql}"
                );
            }
        }
    }
}

#[test]
fn zeros_of_either_sign_tie_in_sorts_and_ranks() {
    let folder = Folder::new();
    let zeros = [0.0, -0.0, 0.0, -0.0].map(|f| Row { f: Some(f), g: None });
    write_all_formats(&folder, &zeros);
    for file in ["t.parquet", "t.rowfile", "t.csv", "t.json"] {
        let rows = query_file(&folder, "SELECT id FROM FILE ORDER BY f, id DESC", file).rows();
        assert_eq!(rows.concat(), ["3", "2", "1", "0"], "{file}");
        let sql = "SELECT rank() OVER (ORDER BY f) AS r FROM FILE";
        assert_eq!(query_file(&folder, sql, file).rows().concat(), ["1"; 4], "{file}");
        for (condition, expected) in [("f = 0", 4), ("f <> 0", 0), ("f < 0", 0), ("f >= -0.0", 4)] {
            let sql = format!("SELECT id FROM FILE WHERE {condition}");
            assert_eq!(
                query_file(&folder, &sql, file).rows().len(),
                expected,
                "{file}: {condition}"
            );
        }
    }
}

#[test]
fn selected_floats_keep_their_bits() {
    let folder = Folder::new();
    let bits = [0.0, -0.0, f64::NAN, -f64::NAN, -1.5];
    write_all_formats(&folder, &bits.map(|f| Row { f: Some(f), g: Some(f) }));
    for sql in [
        "SELECT id, f FROM FILE",
        "SELECT id, f FROM FILE WHERE f < 100 OR f > 100",
        "SELECT id, f FROM FILE ORDER BY f, id",
        "SELECT id, nullif(f, 77) AS f FROM FILE",
        "SELECT a.id, a.f FROM FILE AS a JOIN FILE AS b ON a.f = b.f AND a.id = b.id",
        "SELECT id, f FROM FILE UNION ALL SELECT id, f FROM FILE WHERE false",
    ] {
        for file in ["t.parquet", "t.rowfile"] {
            let answer = query_file(&folder, sql, file);
            let mut seen = 0;
            for batch in &answer.batches {
                let ids = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
                let values = batch.column(1).as_any().downcast_ref::<Float64Array>().unwrap();
                for row in 0..batch.num_rows() {
                    let expected = bits[ids.value(row) as usize];
                    assert_eq!(values.value(row).to_bits(), expected.to_bits(), "{file}: {sql}");
                    seen += 1;
                }
            }
            assert_eq!(seen, bits.len(), "{file}: {sql}");
        }
    }
}
