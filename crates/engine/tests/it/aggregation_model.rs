//! Tests of aggregate tables against a model of vectors and maps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
};
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;
use tidemill_engine::{Query, RunSettings};

use crate::common::{Folder, array_values, query, run_query, settings};

#[derive(Debug, Clone)]
struct Row {
    k: Option<String>,
    k2: Option<i64>,
    i: Option<i64>,
    f: Option<f64>,
    s: Option<String>,
    b: Option<bool>,
    d: Option<i32>,
}

/// Generates floats whose sums a 128-bit integer of 2^-10ths holds exactly.
fn float_strategy() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (-1_000_000i64..1_000_000, prop_oneof![Just(-10), Just(0), Just(40)])
            .prop_map(|(m, e)| m as f64 * 2f64.powi(e)),
        1 => Just(-0.0),
        1 => Just(0.0),
        1 => Just(f64::NAN),
    ]
}

fn row_strategy() -> impl Strategy<Value = Vec<Row>> {
    let row = (
        prop::option::weighted(0.9, "[ab]|x,\"y|long key number [1-3] of more than twelve bytes"),
        prop::option::weighted(0.9, -1i64..2),
        prop::option::weighted(0.8, prop_oneof![-20i64..20, any::<i64>().prop_map(|n| n / 1000)]),
        prop::option::weighted(0.8, float_strategy()),
        prop::option::weighted(0.8, "[a-e]{1,2}|a value of more than twelve bytes [0-9]"),
        prop::option::weighted(0.8, any::<bool>()),
        prop::option::weighted(0.8, -1000i32..30000),
    );
    let row = row.prop_map(|(k, k2, i, f, s, b, d)| Row { k, k2, i, f, s, b, d });
    prop::collection::vec(row, 0..120)
}

fn rows_to_batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(rows.iter().map(|r| r.k.clone()).collect::<StringArray>())),
        ("k2", Arc::new(rows.iter().map(|r| r.k2).collect::<Int64Array>())),
        ("i", Arc::new(rows.iter().map(|r| r.i).collect::<Int64Array>())),
        ("f", Arc::new(rows.iter().map(|r| r.f).collect::<Float64Array>())),
        ("s", Arc::new(rows.iter().map(|r| r.s.clone()).collect::<StringArray>())),
        ("b", Arc::new(rows.iter().map(|r| r.b).collect::<BooleanArray>())),
        ("d", Arc::new(rows.iter().map(|r| r.d).collect::<Date32Array>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

#[derive(Debug, Clone, Copy)]
enum ModelFileFormat {
    Csv,
    Json,
    Parquet,
}

fn write_file(folder: &Folder, at: usize, rows: &[Row], written: ModelFileFormat) {
    let batch = rows_to_batch(rows);
    match written {
        ModelFileFormat::Csv => {
            let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            let columns: Vec<Vec<String>> = batch.columns().iter().map(array_values).collect();
            let mut out = String::from("k,k2,i,f,s,b,d\n");
            for row in 0..rows.len() {
                let fields = columns.iter().map(|column| match column[row].as_str() {
                    "∅" => String::new(),
                    value => quoted(value),
                });
                out.push_str(&fields.collect::<Vec<_>>().join(","));
                out.push('\n');
            }
            folder.write(&format!("{at}.csv"), out);
        }
        ModelFileFormat::Json => {
            let mut out = String::new();
            for row in rows {
                let value = serde_json::json!({
                    "k": row.k, "k2": row.k2, "i": row.i, "f": row.f, "s": row.s, "b": row.b,
                    "d": row.d.map(|_| array_values(batch.column(6))[0].clone()).and(row.d.map(date_text)),
                });
                out.push_str(&value.to_string());
                out.push('\n');
            }
            folder.write(&format!("{at}.json"), out);
        }
        ModelFileFormat::Parquet => {
            let mut out = Vec::new();
            let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
            for part in rows.chunks(37) {
                writer.write(&self::rows_to_batch(part)).unwrap();
                writer.flush().unwrap();
            }
            writer.close().unwrap();
            folder.write(&format!("{at}.parquet"), out);
        }
    }
}

fn date_text(days: i32) -> String {
    array_values(&(Arc::new(Date32Array::from(vec![days])) as ArrayRef))[0].clone()
}

fn float_text(value: Option<f64>) -> String {
    array_values(&(Arc::new(Float64Array::from(vec![value])) as ArrayRef))[0].clone()
}

fn optional_text<T: ToString>(value: Option<T>) -> String {
    value.map_or("∅".to_string(), |value| value.to_string())
}

fn list_text(values: &[String]) -> String {
    format!("[{}]", values.join(", "))
}

/// Returns the sum of floats of [`float_strategy`], rounded once.
fn float_sum(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    if values.iter().any(|v| v.is_nan()) {
        return Some(f64::NAN);
    }
    let units: i128 = values.iter().map(|v| (v * 1024.0) as i128).sum();
    Some(units as f64 / 1024.0)
}

/// Returns the double nearest to a fraction of integers.
fn nearest_double(part: i128, of: i128) -> f64 {
    let shift = part.unsigned_abs().leading_zeros() - 2;
    let shifted = part.unsigned_abs() << shift;
    let of = of.unsigned_abs();
    // An extra last bit stands for the remainder, so that rounding to a double sees it.
    let quotient = (shifted / of) | u128::from(!shifted.is_multiple_of(of));
    (quotient as f64 * 2f64.powi(-(shift as i32))).copysign(part.signum() as f64) + 0.0
}

/// Returns the interpolated quantile at `percent` of floats of [`float_strategy`], without NaN.
fn exact_quantile(values: &[f64], percent: i128) -> Option<f64> {
    let mut values: Vec<f64> = values.iter().filter(|v| !v.is_nan()).map(|v| v + 0.0).collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let position = percent * last as i128;
    let (below, rest) = ((position / 100) as usize, position % 100);
    let units = |value: f64| (value * 1024.0) as i128;
    let (a, b) = (values[below], values[(below + 1).min(last)]);
    if rest == 0 || a == b {
        return Some(a);
    }
    Some(nearest_double(units(a) * 100 + (units(b) - units(a)) * rest, 100 * 1024))
}

fn top_k_text<T: Ord + Clone>(values: &[T], k: usize, show: impl Fn(&T) -> String) -> String {
    let mut counts: BTreeMap<&T, i64> = BTreeMap::new();
    values.iter().for_each(|value| *counts.entry(value).or_default() += 1);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let top = counts.iter().take(k);
    list_text(
        &top.map(|(v, n)| format!("{{value: {}, count: {n}, error: 0}}", show(v)))
            .collect::<Vec<_>>(),
    )
}

const AGGREGATE_CALLS: &str = "
    count(*), count(i), sum(i), min(i), max(i), avg(i),
    sum(f), avg(f),
    min(s), max(s), min(d), max(d),
    unique(s), unique(i), unique(f), unique(b), unique(d),
    top_k(s, 3), top_k(i, 2), top_k(d, 1),
    quantile(f, 0.5), quantile(i, 0.25, 0.9), quantile(f, 0, 1),
    collect(i, 5), collect(s, 3),
    count(*) FILTER (WHERE b), sum(i) FILTER (WHERE i > 3), collect(s, 2) FILTER (WHERE b),
    top_k(s, 2) FILTER (WHERE NOT b), quantile(f, 0.5) FILTER (WHERE b), max(s) FILTER (WHERE b),
    min(f), max(f), count(DISTINCT s)";

fn expected_values(rows: &[&Row]) -> Vec<String> {
    let ints: Vec<i64> = rows.iter().filter_map(|r| r.i).collect();
    let floats: Vec<f64> = rows.iter().filter_map(|r| r.f).collect();
    let strings: Vec<String> = rows.iter().filter_map(|r| r.s.clone()).collect();
    let dates: Vec<i32> = rows.iter().filter_map(|r| r.d).collect();
    let bools: Vec<bool> = rows.iter().filter_map(|r| r.b).collect();
    let is = |row: &&&Row, value| row.b == Some(value);
    let yes: Vec<&&Row> = rows.iter().filter(|r| is(r, true)).collect();
    let no: Vec<String> =
        rows.iter().filter(|r| is(r, false)).filter_map(|r| r.s.clone()).collect();
    let sum = |values: &[i64]| {
        (!values.is_empty()).then(|| values.iter().map(|v| i128::from(*v)).sum::<i128>())
    };
    let as_floats: Vec<f64> = ints.iter().map(|v| *v as f64).collect();
    let pair = |values: &[f64], a, b| match exact_quantile(values, a) {
        None => "∅".to_string(),
        some => list_text(&[float_text(some), float_text(exact_quantile(values, b))]),
    };
    let bits = |v: &f64| if v.is_nan() { f64::NAN.to_bits() } else { (v + 0.0).to_bits() };
    let over: Vec<i64> = ints.iter().copied().filter(|i| *i > 3).collect();
    let yes_floats: Vec<f64> = yes.iter().filter_map(|r| r.f).collect();
    let yes_strings: Vec<String> = yes.iter().filter_map(|r| r.s.clone()).collect();
    let extreme = |pick: fn(f64, f64) -> bool| {
        floats.iter().copied().reduce(|a, b| if pick(b, a) { b } else { a })
    };
    let distinct = |n: usize| n.to_string();
    vec![
        rows.len().to_string(),
        ints.len().to_string(),
        optional_text(sum(&ints)),
        optional_text(ints.iter().min()),
        optional_text(ints.iter().max()),
        float_text(sum(&ints).map(|s| s as f64 / ints.len() as f64)),
        float_text(float_sum(&floats)),
        float_text(float_sum(&floats).map(|s| s / floats.len() as f64)),
        optional_text(strings.iter().min()),
        optional_text(strings.iter().max()),
        optional_text(dates.iter().min().copied().map(date_text)),
        optional_text(dates.iter().max().copied().map(date_text)),
        distinct(strings.iter().collect::<BTreeSet<_>>().len()),
        distinct(ints.iter().collect::<BTreeSet<_>>().len()),
        distinct(floats.iter().map(bits).collect::<BTreeSet<_>>().len()),
        distinct(bools.iter().collect::<BTreeSet<_>>().len()),
        distinct(dates.iter().collect::<BTreeSet<_>>().len()),
        top_k_text(&strings, 3, String::clone),
        top_k_text(&ints, 2, i64::to_string),
        top_k_text(&dates, 1, |d| date_text(*d)),
        float_text(exact_quantile(&floats, 50)),
        pair(&as_floats, 25, 90),
        pair(&floats, 0, 100),
        list_text(&ints.iter().take(5).map(i64::to_string).collect::<Vec<_>>()),
        list_text(&strings.iter().take(3).cloned().collect::<Vec<_>>()),
        yes.len().to_string(),
        optional_text(sum(&over)),
        list_text(&yes_strings.iter().take(2).cloned().collect::<Vec<_>>()),
        top_k_text(&no, 2, String::clone),
        float_text(exact_quantile(&yes_floats, 50)),
        optional_text(yes_strings.iter().max()),
        // NaN is the largest float, as in PostgreSQL, DuckDB and DataFusion.
        float_text(extreme(|new, old| !new.is_nan() && (old.is_nan() || new < old)))
            .replace("-0.0", "0.0"),
        float_text(extreme(|new, old| new.is_nan() || new > old)).replace("-0.0", "0.0"),
        distinct(strings.iter().collect::<BTreeSet<_>>().len()),
    ]
}

fn text_schema(written: ModelFileFormat) -> Option<String> {
    let types = "k VARCHAR, k2 BIGINT, i BIGINT, f DOUBLE, s VARCHAR, b BOOLEAN, d DATE";
    (!matches!(written, ModelFileFormat::Parquet)).then(|| types.to_string())
}

fn model_query(folder: &Folder, written: ModelFileFormat, keys: &str, answers: &str) -> Query {
    let suffix = match written {
        ModelFileFormat::Csv => "csv",
        ModelFileFormat::Json => "json",
        ModelFileFormat::Parquet => "parquet",
    };
    let (select, group) = match keys {
        "" => (String::new(), String::new()),
        keys => (format!("{keys},"), format!("GROUP BY {keys}")),
    };
    let sql =
        folder.substitute_path(&format!("SELECT {select} {answers} FROM '$/*.{suffix}' {group}"));
    Query { schema: text_schema(written), ..query(sql) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn aggregate_tables_match_the_model(
        rows in row_strategy(),
        cuts in prop::collection::vec(0usize..120, 0..4),
        written in prop_oneof![Just(ModelFileFormat::Csv), Just(ModelFileFormat::Json), Just(ModelFileFormat::Parquet)],
        key_count in 0usize..3,
        memory in prop_oneof![Just(1u64 << 10), Just(256 << 20)],
        threads in 1usize..4,
    ) {
        let mut rows = rows;
        if matches!(written, ModelFileFormat::Json) {
            rows.iter_mut().for_each(|r| r.f = r.f.filter(|f| !f.is_nan()));
        }
        if matches!(written, ModelFileFormat::Csv) {
            // A CSV record without any value consists of delimiters, and is a record.
            rows.iter_mut().for_each(|r| r.k2 = r.k2.or(Some(1)));
        }
        let folder = Folder::new();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(rows.len())).collect();
        cuts.extend([0, rows.len()]);
        cuts.sort_unstable();
        for (at, cut) in cuts.windows(2).enumerate() {
            write_file(&folder, at, &rows[cut[0]..cut[1]], written);
        }
        let settings = RunSettings { memory_bytes: memory, threads, ..settings() };
        let keys = ["", "k", "k, k2"][key_count];
        // `count(DISTINCT)` makes two aggregations of the query, so it also runs by itself.
        let (plain, distinct) = AGGREGATE_CALLS.rsplit_once(", count(DISTINCT").unwrap();
        let found = run_query(&model_query(&folder, written, keys, plain), &settings).unwrap();
        let found_distinct =
            run_query(&model_query(&folder, written, keys, &format!("count(DISTINCT{distinct}")), &settings);
        let mut groups: HashMap<Vec<String>, Vec<&Row>> = HashMap::new();
        if key_count == 0 {
            groups.insert(vec![], vec![]);
        }
        for row in &rows {
            let key = [optional_text(row.k.clone()), optional_text(row.k2)];
            groups.entry(key[..key_count].to_vec()).or_default().push(row);
        }
        let mut expected: Vec<Vec<String>> = Vec::new();
        let mut expected_distinct: Vec<Vec<String>> = Vec::new();
        for (key, rows) in groups {
            let mut answers = expected_values(&rows);
            let distinct = answers.pop().unwrap();
            expected_distinct.push(key.iter().cloned().chain([distinct]).collect());
            expected.push(key.into_iter().chain(answers).collect());
        }
        expected.sort();
        expected_distinct.sort();
        let minus_zero = |rows: Vec<Vec<String>>| -> Vec<Vec<String>> {
            // Either of two equal zeros may be the smallest.
            rows.into_iter()
                .map(|row| {
                    let plain = |v: String| if v == "-0.0" { "0.0".to_string() } else { v };
                    row.into_iter().map(plain).collect()
                })
                .collect()
        };
        let mut found = minus_zero(found.rows());
        found.sort();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(found_distinct.unwrap().sorted_rows(), expected_distinct);
    }
}

#[test]
fn float_keys_group_zeros_and_nans_together() {
    let folder = Folder::new();
    let odd_nan = f64::from_bits(0xfff8_0000_0000_0123);
    let values = vec![0.0, -0.0, f64::NAN, odd_nan, 1.0, -0.0];
    let column: ArrayRef = Arc::new(Float64Array::from(values));
    let batch = RecordBatch::try_from_iter([("f", column)]).unwrap();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    folder.write("f.parquet", out);
    let answer = folder.run_sql("SELECT f, count(*) FROM '$/f.parquet' GROUP BY f");
    assert_eq!(
        answer.rows(),
        crate::common::string_rows(&[&["0.0", "3"], &["1.0", "1"], &["NaN", "2"]])
    );
}

#[test]
fn equal_values_of_different_types_count_once_across_files() {
    let folder = Folder::new();
    folder.write("a.csv", "x,t\n1,2013-01-01T00:00:00Z\n2,2013-01-01T01:00:00+01:00\n");
    let small: ArrayRef = Arc::new(arrow::array::UInt8Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("x", small)]).unwrap();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    folder.write("b.parquet", out);
    let one = folder.run_sql("SELECT unique(x) FROM '$/a.csv'").single_value();
    let two = folder.run_sql("SELECT unique(x) FROM '$/b.parquet'").single_value();
    assert_eq!((one.as_str(), two.as_str()), ("2", "3"));
    assert_eq!(folder.run_sql("SELECT unique(t) FROM '$/a.csv'").single_value(), "1");
}
