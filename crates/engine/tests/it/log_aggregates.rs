//! Tests of the aggregates that log-processing programs emit into: stored sketches and sets, the largest
//! values, samples, distinct values and resampled sums. Each is compared with a naive model, on both paths,
//! with several thread counts and memory budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use parquet::arrow::ArrowWriter;
use tidemill_engine::{QueryPlan, RunSettings};

use crate::common::{Folder, QueryAnswer, Random, query, run_query, settings, string_rows};

struct Row {
    group: u64,
    id: i64,
    page: String,
    weight: Option<i64>,
}

fn random_rows(count: usize, seed: u64) -> Vec<Row> {
    let mut random = Random(seed);
    (0..count)
        .map(|_| Row {
            group: random.next_below(7),
            id: random.next_below(4_000) as i64 - 2_000,
            page: format!("/page/{}", random.next_below(30).pow(2) / 29),
            weight: (random.next_below(10) > 0).then(|| random.next_below(1_000) as i64),
        })
        .collect()
}

fn write_csv(folder: &Folder, name: &str, rows: &[Row]) {
    let mut out = String::from("g,id,page,w\n");
    for row in rows {
        let weight = row.weight.map(|weight| weight.to_string()).unwrap_or_default();
        writeln!(out, "{},{},{},{weight}", row.group, row.id, row.page).unwrap();
    }
    folder.write(name, out);
}

fn group_rows(rows: &[Row]) -> BTreeMap<u64, Vec<&Row>> {
    let mut groups: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry(row.group).or_default().push(row));
    groups
}

fn format_list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("[{}]", items.join(", "))
}

fn format_pairs<T: ToString>(name: &str, pairs: impl IntoIterator<Item = (T, i64)>) -> String {
    let pairs = pairs.into_iter();
    format_list(pairs.map(|(value, n)| format!("{{value: {}, {name}: {n}}}", value.to_string())))
}

/// Aggregate calls whose answers for a group a model of vectors and sets computes.
const AGGREGATE_CALLS: &str = "unique_exact(id), unique_exact(page), id_set_cardinality(id_set(id)), \
    maximum(id, 4), minimum(page, 3), maximum(page, 3, w), distinct_values(page, 10), \
    distinct_values(page, 100), top_k(page, 3, w), inverse_histogram(id, 100000), \
    distinct_sample(page, 1000, w), round(hll_cardinality(hll_sketch(id, 14, 6), 'ertl')) = unique(id), \
    histogram(w, 1000)[1]['low'], bootstrap_sum(w, id)['sum']";

fn expected_values(rows: &[&Row]) -> Vec<String> {
    let ids: BTreeSet<i64> = rows.iter().map(|row| row.id).collect();
    let pages: BTreeSet<&str> = rows.iter().map(|row| row.page.as_str()).collect();
    let weighted = || rows.iter().filter_map(|row| Some((row.page.as_str(), row.weight?)));
    let mut descending: Vec<i64> = rows.iter().map(|row| row.id).collect();
    descending.sort_by_key(|id| std::cmp::Reverse(*id));
    let mut first: Vec<&str> = rows.iter().map(|row| row.page.as_str()).collect();
    first.sort();
    let mut heaviest: Vec<(&str, i64)> = weighted().collect();
    heaviest.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    weighted().for_each(|(page, weight)| *sums.entry(page).or_default() += weight);
    let mut top: Vec<(&str, i64)> = sums.iter().map(|(page, sum)| (*page, *sum)).collect();
    top.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry(row.id).or_default() += 1);
    let mut times: BTreeMap<i64, i64> = BTreeMap::new();
    counts.values().for_each(|count| *times.entry(*count).or_default() += 1);
    let weights = || rows.iter().filter_map(|row| row.weight);
    vec![
        ids.len().to_string(),
        pages.len().to_string(),
        ids.len().to_string(),
        format_list(descending.iter().take(4)),
        format_list(first.iter().take(3)),
        format_pairs("weight", heaviest.into_iter().take(3)),
        if pages.len() > 10 { "∅".into() } else { format_list(&pages) },
        format_list(&pages),
        format_list(
            top.iter()
                .take(3)
                .map(|(page, sum)| format!("{{value: {page}, weight: {sum}, error: 0}}")),
        ),
        format_list(times.iter().map(|(n, values)| format!("{{times: {n}, values: {values}.0}}"))),
        format_pairs("weight", sums),
        "true".into(),
        format!("{}.0", weights().min().unwrap()),
        format!("{}.0", weights().sum::<i64>()),
    ]
}

#[test]
fn log_aggregates_match_the_model_on_both_paths() {
    let folder = Folder::new();
    let all = random_rows(20_000, 7);
    write_csv(&folder, "a.csv", &all[..9_000]);
    write_csv(&folder, "b.csv", &all[9_000..]);
    let expected: Vec<Vec<String>> = group_rows(&all)
        .iter()
        .map(|(group, rows)| [group.to_string()].into_iter().chain(expected_values(rows)).collect())
        .collect();
    let of =
        |source: &str| format!("SELECT g, {AGGREGATE_CALLS} FROM {source} GROUP BY g ORDER BY g");
    let tables = of("'$/*.csv'");
    let numbered = "(SELECT *, row_number() OVER (ORDER BY id) AS n FROM '$/*.csv')";
    let engine = of(&format!("(SELECT * FROM {numbered} WHERE n > 0)"));
    let path = |sql: &str| {
        let plan = QueryPlan::new(&query(folder.substitute_path(sql)), &settings()).unwrap();
        plan.explain().unwrap().path.to_string()
    };
    assert_eq!((path(&tables).as_str(), path(&engine).as_str()), ("partial tables", "datafusion"));
    for settings in [
        settings(),
        RunSettings { threads: 1, ..RunSettings::new(256 << 20) },
        RunSettings { threads: 3, ..RunSettings::new(1 << 10) },
    ] {
        assert_eq!(folder.run_sql_with(&tables, &settings).rows(), expected);
    }
    assert_eq!(folder.run_sql(&engine).rows(), expected);
}

/// `sum` and `avg` work on the elements of lists and structs; these aggregates take them as whole values.
#[test]
fn count_min_and_max_take_nested_values_whole() {
    let folder = Folder::new();
    folder.write(
        "n.json",
        "{\"l\":[1,2,3],\"s\":{\"a\":1,\"b\":5}}\n{\"l\":[10],\"s\":{\"a\":7,\"b\":null}}\n\
         {\"l\":null,\"s\":null}\n{\"l\":[1,2],\"s\":{\"a\":1,\"b\":6}}\n",
    );
    for beside in ["", ", count(DISTINCT s['a'])"] {
        let sql = format!(
            "SELECT count(l), count(s), min(l), max(l), min(s), max(s){beside} FROM '$/n.json'"
        );
        let rows = folder.run_sql(&sql).rows();
        assert_eq!(
            rows[0][..6],
            ["3", "3", "[1, 2]", "[10]", "{a: 1, b: 5}", "{a: 7, b: ∅}"],
            "{sql}"
        );
    }
}

#[test]
fn empty_input_gives_equal_answers_on_both_paths() {
    let folder = Folder::new();
    write_csv(&folder, "a.csv", &random_rows(10, 1));
    let asked = format!("{AGGREGATE_CALLS}, hll_sketch(id), id_set(id), distinct_sample(id, 3)");
    for condition in ["id > 100000", "g IS NULL"] {
        let of = |distinct: &str| {
            folder
                .run_sql(&format!("SELECT {asked}{distinct} FROM '$/a.csv' WHERE {condition}"))
                .rows()
        };
        let (plain, beside) = (of(""), of(", count(DISTINCT page)"));
        assert_eq!(plain[0], beside[0][..plain[0].len()]);
        assert_eq!(plain[0][0], "0");
    }
    let none =
        folder.run_sql("SELECT hll_union(page), id_set_union(page) FROM '$/a.csv' WHERE g < 0");
    assert_eq!(none.rows(), [["∅", "∅"]]);
}

/// Encodes rows of a number and of bytes as a file of a format.
fn encode_rows(answer: &QueryAnswer, format: &str) -> Vec<u8> {
    let mut out = Vec::new();
    if format == "parquet" {
        let mut writer = ArrowWriter::try_new(&mut out, answer.batches[0].schema(), None).unwrap();
        answer.batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.close().unwrap();
        return out;
    }
    let columns = answer.column_names();
    let mut lines = if format == "csv" { columns.join(",") + "\n" } else { String::new() };
    for row in answer.rows() {
        match format {
            "csv" => writeln!(lines, "{},\\x{},\\x{},\\x{}", row[0], row[1], row[2], row[3]),
            _ => {
                let fields = columns.iter().zip(&row).map(|(name, value)| {
                    let value = if name == "g" { value.clone() } else { format!("\\x{value}") };
                    (name.clone(), serde_json::Value::from(value))
                });
                writeln!(lines, "{}", serde_json::Value::Object(fields.collect()))
            }
        }
        .unwrap();
    }
    lines.into_bytes()
}

#[test]
fn union_of_stored_sketches_equals_sketch_of_all_rows() {
    let folder = Folder::new();
    let all = random_rows(30_000, 3);
    write_csv(&folder, "all.csv", &all);
    let kept = "SELECT g, hll_sketch(id) AS h, hll_sketch(page, 4, 5) AS small, id_set(id) AS s \
                FROM '$/all.csv' GROUP BY g";
    for format in ["csv", "json", "parquet"] {
        folder.write(&format!("kept.{format}"), encode_rows(&folder.run_sql(kept), format));
        let whole = folder.run_sql(
            "SELECT hll_sketch(id), hll_sketch(page, 4, 5), id_set(id), unique_exact(id) FROM '$/all.csv'",
        );
        let sql = format!(
            "SELECT hll_union(h), hll_union(small), id_set_union(s), \
             id_set_cardinality(id_set_union(s)) FROM '$/kept.{format}'"
        );
        assert_eq!(folder.run_sql(&sql).rows(), whole.rows(), "{format}");
    }
    let common: BTreeSet<i64> = group_rows(&all)
        .values()
        .map(|rows| rows.iter().map(|row| row.id).collect::<BTreeSet<_>>())
        .reduce(|a, b| &a & &b)
        .unwrap();
    // Negative numbers are last, as their 64 bits are.
    let ids = common.iter().filter(|id| **id >= 0).chain(common.iter().filter(|id| **id < 0));
    let sql = "SELECT id_set_ids(id_set_intersection(s)) FROM '$/kept.parquet'";
    assert_eq!(folder.run_sql(sql).single_value(), format_list(ids));
}

#[test]
fn sample_depends_on_the_seed_and_not_on_splits() {
    let folder = Folder::new();
    for file in 0..5 {
        write_csv(&folder, &format!("{file}.csv"), &random_rows(3_000, file));
    }
    let sql = |seed: &str| {
        format!(
            "SELECT g, sample(id, 20{seed}), weighted_sample(page, 10, w{seed}), sample(id, 9999{seed}) \
             FROM '$/*.csv' GROUP BY g ORDER BY g"
        )
    };
    let expected = folder.run_sql(&sql("")).rows();
    assert_eq!(expected.len(), 7);
    for settings in [
        RunSettings { threads: 1, ..RunSettings::new(256 << 20) },
        RunSettings { threads: 4, ..RunSettings::new(1 << 10) },
    ] {
        assert_eq!(folder.run_sql_with(&sql(""), &settings).rows(), expected);
        assert_eq!(folder.run_sql_with(&sql(", 0"), &settings).rows(), expected);
    }
    // A subquery that makes a row of each record, as a job's map does, changes nothing.
    let mapped =
        "(SELECT * FROM (SELECT g, id, page AS page, w, 1 AS one FROM '$/*.csv') WHERE one = 1) t";
    assert_eq!(folder.run_sql(&sql("").replace("'$/*.csv'", mapped)).rows(), expected);
    let other = folder.run_sql(&sql(", 1")).rows();
    for (one, another) in expected.iter().zip(&other) {
        assert_ne!(one[1], another[1]);
        let in_order = |text: &str| {
            let items = text.trim_matches(['[', ']']).split(", ");
            let mut items: Vec<String> = items.map(str::to_owned).collect();
            items.sort();
            items
        };
        assert_eq!(in_order(&one[3]), in_order(&another[3]), "all values are in a sample of more");
    }
}

/// Each of ten rows of 20,000 groups is in a sample of three with a probability of 0.3, and in a weighted
/// sample with that of the sequential draw. The number of groups whose sample has the row is off by more than
/// six standard deviations once in 10^9 runs.
#[test]
fn samples_include_rows_with_the_documented_probability() {
    const GROUPS: usize = 20_000;
    let folder = Folder::new();
    let mut out = String::from("g,x,w\n");
    for group in 0..GROUPS {
        for x in 0..10 {
            writeln!(out, "{group},{x},{}", if x == 0 { 9 } else { 1 }).unwrap();
        }
    }
    folder.write("f.csv", out);
    let counts = |sample: &str| {
        let sql = format!(
            "SELECT x, count(*) FROM (SELECT unnest(s) AS x FROM (SELECT {sample} AS s FROM '$/f.csv' \
             GROUP BY g)) GROUP BY x ORDER BY x"
        );
        let rows = folder.run_sql(&sql).rows();
        rows.iter().map(|row| row[1].parse::<f64>().unwrap()).collect::<Vec<_>>()
    };
    let check = |count: f64, chance: f64| {
        let expected = GROUPS as f64 * chance;
        let deviation = (expected * (1.0 - chance)).sqrt();
        assert!(
            (count - expected).abs() < 6.0 * deviation,
            "{count}, where {expected} is expected"
        );
    };
    let uniform = counts("sample(x, 3)");
    assert_eq!(uniform.len(), 10);
    uniform.iter().for_each(|count| check(*count, 0.3));
    // One value is drawn: the first has 9 of 18 of the weight.
    let weighted = counts("weighted_sample(x, 1, w)");
    check(weighted[0], 0.5);
    weighted[1..].iter().for_each(|count| check(*count, 0.5 / 9.0));
}

#[test]
fn invalid_sketches_and_arguments_are_refused_with_the_value() {
    let folder = Folder::new();
    folder.write("f.csv", "s,n\n\\x128b7f01,1\n");
    for (sql, parts) in [
        ("SELECT hll_union(s) FROM '$/f.csv'", ["\\x128b7f01", "7 more expected"]),
        ("SELECT hll_cardinality(s) FROM '$/f.csv'", ["\\x128b7f01", "7 more expected"]),
        ("SELECT id_set_union(s) FROM '$/f.csv'", ["\\x128b7f01", "set of ids"]),
        ("SELECT hll_union(n) FROM '$/f.csv'", ["`hll_union` takes sketches", "BIGINT"]),
        ("SELECT hll_union('\\x119f7f') FROM '$/f.csv'", ["from 4 to 24", "max_log2m"]),
        ("SELECT hll_sketch(n, 3) FROM '$/f.csv'", ["from 4 to 24", "3"]),
        ("SELECT hll_sketch(n, 11, 9) FROM '$/f.csv'", ["from 1 to 8", "9"]),
        ("SELECT id_set(s) FROM '$/f.csv'", ["takes whole numbers", "TEXT"]),
        ("SELECT top_k(s, 3, n / 2) FROM '$/f.csv'", ["whole number", "DOUBLE"]),
        ("SELECT top_k(s, 3, -n) FROM '$/f.csv'", ["whole number from 0", "-1"]),
        (
            "SELECT top_k(3, s) FROM '$/f.csv'",
            ["parameters of `top_k` are constants", "top_k(x, k"],
        ),
        (
            "SELECT weighted_sample(n, 3, s) FROM '$/f.csv'",
            ["weight of `weighted_sample` is a number", "TEXT"],
        ),
        ("SELECT quantile(DATE '2026-01-05', 0.5) FROM '$/f.csv'", ["takes numbers", "epoch"]),
        ("SELECT maximum(n, -1) FROM '$/f.csv'", ["`maximum` is a whole number from 1", "-1"]),
        ("SELECT minimum(n, 0, n) FROM '$/f.csv'", ["`minimum` is a whole number from 1", "0"]),
        ("SELECT sample(n, 1.5) FROM '$/f.csv'", ["`sample` is a whole number from 1", "1.5"]),
        ("SELECT sample(n, 2, n) FROM '$/f.csv'", ["seed of `sample`", "found n"]),
        ("SELECT maximum(n, 2) OVER () FROM '$/f.csv'", ["`maximum`", "over a window"]),
        (
            "SELECT top_k(s, 1, 9223372036854775807) FROM (SELECT s FROM '$/f.csv' UNION ALL SELECT s FROM '$/f.csv')",
            ["does not fit BIGINT", "w // 1000"],
        ),
        ("SELECT distinct_values(s, 0) FROM '$/f.csv'", ["from 1 to", "0"]),
        ("SELECT bootstrap_sum(n) FROM '$/f.csv'", ["bootstrap_sum(x, unit)", "called as"]),
        ("SELECT sum(struct(s, n)) FROM '$/f.csv'", ["adds up numbers", "TEXT"]),
        (
            "SELECT sample(a.s, 3) FROM '$/f.csv' a JOIN '$/f.csv' b ON a.n = b.n",
            ["records of one source", "sample within the subquery"],
        ),
        (
            "SELECT sample(n, 3) FROM (SELECT DISTINCT n FROM '$/f.csv')",
            ["records of one source", "sample within the subquery"],
        ),
        (
            "SELECT sample(n, 3) FROM (SELECT count(*) AS n FROM '$/f.csv')",
            ["records of one source", "sample within the subquery"],
        ),
        (
            "SELECT sample(n, 3) FROM (SELECT unnest([n, n + 1]) AS n FROM '$/f.csv')",
            ["records of one source", "unnest"],
        ),
        ("SELECT sample(DISTINCT n, 3) FROM '$/f.csv'", ["`sample`", "distinct_sample(x, 10)"]),
        ("SELECT maximum(s, 3, NULL) FROM '$/f.csv'", ["weight of `maximum`", "NULL"]),
        (
            "WITH t AS (SELECT * FROM '$/f.csv') SELECT weighted_sample(s, 3, n) FROM t",
            ["`weighted_sample` takes records", "one source"],
        ),
    ] {
        let message = folder.sql_error(sql);
        parts.iter().for_each(|part| assert!(message.contains(part), "{sql}: {message}"));
    }
    // A parameter allows more registers, and a union of nulls is null.
    let answer = folder.run_sql("SELECT hll_cardinality(hll_union(NULL)) FROM '$/f.csv'");
    assert_eq!(answer.single_value(), "∅");
    let large = "SELECT hll_union(CASE WHEN n = 1 THEN '\\x119f7f' END, 31) IS NULL FROM '$/f.csv'";
    assert_eq!(folder.run_sql(large).single_value(), "false");
}

/// On DataFusion's path an aggregate with an order sorts the rows; the others take them in input order all
/// the same.
#[test]
fn order_by_of_one_aggregate_does_not_affect_others() {
    let folder = Folder::new();
    let mut out = String::from("x,w\n");
    (1..=20_000).for_each(|x| writeln!(out, "{x},{}", x % 17 - 3).unwrap());
    folder.write("f.csv", out);
    let plain = folder.run_sql("SELECT sample(x, 2), weighted_sample(x, 2, w + 4) FROM '$/f.csv'");
    let asked = |calls: &str, beside: &str| {
        let sql = format!("SELECT {calls}{beside} FROM '$/f.csv'");
        folder.run_sql(&sql).rows()[0].clone()
    };
    for beside in [", distinct_values(x, 3), count(DISTINCT w)", ", array_agg(DISTINCT w)[1]"] {
        for ordered in ["maximum(x, 2)", "array_agg(x ORDER BY w, x DESC)[1]", "sample(x, 2)"] {
            let found = asked(&format!("collect(x, 4), {ordered}"), beside);
            assert_eq!(found[0], "[1, 2, 3, 4]", "{ordered}{beside}");
        }
        let samples = "sample(x, 2), weighted_sample(x, 2, w + 4)";
        assert_eq!(asked(samples, beside)[..2], plain.rows()[0][..], "{beside}");
    }
    // Weights of rows that a filter leaves out are not checked.
    for beside in ["", ", count(DISTINCT x), distinct_values(x, 3)"] {
        let found = asked("top_k(x, 1, w) FILTER (WHERE w > 12 AND x < 20)", beside);
        assert_eq!(found[0], "[{value: 16, weight: 13, error: 0}]");
    }
    // Rows without a unit form one unit.
    let sums = "bootstrap_sum(x, CASE WHEN x > 5 THEN x END)['sum'] = sum(x)";
    assert_eq!(asked(sums, "")[0], "true");
}

/// Compares sums of lists, structs and maps of numbers with those of their elements.
#[test]
fn nested_numbers_are_summed_element_by_element() {
    let folder = Folder::new();
    let mut random = Random(11);
    let (mut out, mut lists, mut maps) = (String::new(), [[0i64; 6]; 3], BTreeMap::new());
    let (mut longest, mut fields) = ([0; 3], [0i64; 3]);
    for _ in 0..3_000 {
        let group = random.next_below(3) as usize;
        let length = random.next_below(7) as usize;
        let items: Vec<i64> = (0..length).map(|_| random.next_below(100) as i64 - 50).collect();
        items.iter().enumerate().for_each(|(at, item)| lists[group][at] += item);
        longest[group] = longest[group].max(length);
        let keys: BTreeSet<u64> = (0..random.next_below(4)).map(|_| random.next_below(9)).collect();
        let map: BTreeMap<String, f64> =
            keys.iter().map(|key| (format!("k{key}"), *key as f64 * 0.25)).collect();
        for (key, value) in &map {
            *maps.entry((group, key.clone())).or_insert(0.0) += value;
        }
        let field = random.next_below(9) as i64;
        fields[group] += field;
        let line = serde_json::json!({
            "g": group, "l": items,
            "k": map.keys().collect::<Vec<_>>(), "v": map.values().collect::<Vec<_>>(),
            "s": {"a": field, "b": {"c": [field, 1]}},
        });
        writeln!(out, "{line}").unwrap();
    }
    folder.write("f.jsonl", out);
    let sql =
        "SELECT g, sum(l), sum(s), avg(l)[1] = avg(l[1]) FROM '$/f.jsonl' GROUP BY g ORDER BY g";
    let counts = folder.run_sql("SELECT g, count(*) FROM '$/f.jsonl' GROUP BY g ORDER BY g").rows();
    let expected: Vec<Vec<String>> = (0..3)
        .map(|group| {
            let field = fields[group];
            vec![
                group.to_string(),
                format_list(&lists[group][..longest[group]]),
                format!("{{a: {field}, b: {{c: [{field}, {}]}}}}", counts[group][1]),
                "true".to_string(),
            ]
        })
        .collect();
    for settings in [settings(), RunSettings { threads: 3, ..RunSettings::new(1 << 10) }] {
        assert_eq!(
            run_query(&query(folder.substitute_path(sql)), &settings).unwrap().rows(),
            expected
        );
    }
    let keyed: Vec<String> = (0..3)
        .map(|group| {
            let own = maps.iter().filter(|((of, _), _)| *of == group);
            let own = own.map(|((_, key), sum)| format!("{key}: {sum:?}"));
            format!("{{{}}}", own.collect::<Vec<_>>().join(", "))
        })
        .collect();
    let sql = "SELECT sum(map(k, v)) FROM '$/f.jsonl' GROUP BY g ORDER BY g";
    let found = folder.run_sql(sql).rows();
    let found: Vec<String> = found.into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(found, keyed);
}

/// Calls whose answer over no rows is not null.
const CALLS_WITH_VALUE_OVER_NO_ROWS: &[&str] = &[
    "top_k(v, 2)",
    "distinct_values(v, 3)",
    "inverse_histogram(v)",
    "histogram(v)",
    "collect(v, 4)",
    "distinct_sample(v, 2)",
    "hll_cardinality(hll_sketch(v))",
    "id_set_cardinality(id_set(v))",
    "id_set_contains(id_set(v), 1)",
    "array_length(top_k(v, 2))",
    "unique(v)",
    "unique_exact(v)",
    "count(DISTINCT v)",
];

#[test]
fn correlated_aggregate_over_no_rows_equals_the_plain_one() {
    let folder = Folder::new();
    folder.write("a.csv", "k\n9\n1\n");
    folder.write("b.csv", "k,v\n1,5\n");
    for call in CALLS_WITH_VALUE_OVER_NO_ROWS {
        let sql = format!(
            "SELECT (SELECT {call} FROM '$/b.csv' b WHERE b.k = a.k) AS tied FROM '$/a.csv' a ORDER BY a.k"
        );
        let plain =
            |k| folder.run_sql(&format!("SELECT {call} FROM '$/b.csv' b WHERE b.k = {k}")).rows();
        assert_eq!(folder.run_sql(&sql).rows(), [plain(1), plain(9)].concat(), "{call}");
        let sql = format!(
            "SELECT l.x FROM '$/a.csv' a, LATERAL (SELECT {call} AS x FROM '$/b.csv' b WHERE b.k = a.k) l \
             ORDER BY a.k"
        );
        assert_eq!(folder.run_sql(&sql).rows(), [plain(1), plain(9)].concat(), "{call}");
    }
    for (sql, expected) in [
        (
            "SELECT a.k FROM '$/a.csv' a WHERE (SELECT sum(c) FROM (SELECT count(v) AS c FROM '$/b.csv' b \
             WHERE b.k = a.k)) = 0",
            &[&["9"][..]][..],
        ),
        (
            "SELECT (SELECT DISTINCT c FROM (SELECT count(v) AS c FROM '$/b.csv' b WHERE b.k = a.k)) FROM '$/a.csv' a",
            &[&["0"], &["1"]],
        ),
        (
            "SELECT l.x FROM '$/a.csv' a, LATERAL (SELECT max(c) AS x FROM (SELECT count(v) AS c FROM '$/b.csv' b \
             WHERE b.k = a.k)) l",
            &[&["0"], &["1"]],
        ),
    ] {
        assert_eq!(folder.run_sql(sql).sorted_rows(), string_rows(expected), "{sql}");
    }
    let sql = "SELECT (SELECT sum(c) FROM (SELECT count(v) AS c FROM '$/b.csv')) FROM '$/a.csv' a";
    assert_eq!(folder.run_sql(sql).rows(), [["1"], ["1"]]);
}

#[test]
fn aggregate_over_an_empty_frame_equals_one_over_no_rows() {
    let folder = Folder::new();
    folder.write("b.csv", "k,v\n1,5\n2,6\n3,5\n");
    for call in
        CALLS_WITH_VALUE_OVER_NO_ROWS.iter().filter(|call| call.find('(') == call.rfind('('))
    {
        let none =
            folder.run_sql(&format!("SELECT {call} FROM '$/b.csv' WHERE k > 9")).single_value();
        for frame in [
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
            "RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
            "GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
        ] {
            let sql = format!("SELECT {call} OVER (ORDER BY k {frame}) FROM '$/b.csv'");
            let rows = folder.run_sql(&sql).rows();
            assert!(rows.iter().any(|row| row[0] == none), "{sql}: {rows:?}");
        }
    }
    for call in ["id_set(v)", "hll_sketch(v)"] {
        let sql = format!(
            "SELECT {call} OVER (ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) = \
             (SELECT {call} FROM '$/b.csv' WHERE k > 9) FROM '$/b.csv' ORDER BY k"
        );
        assert_eq!(folder.run_sql(&sql).rows(), [["true"], ["false"], ["false"]], "{call}");
    }
}

/// `top_k` returns the wanted number of values even if they are about equally frequent, each with its error.
#[test]
fn top_k_returns_k_values_of_equal_frequency() {
    for rows in [2_048, 2_049, 2_050, 6_000] {
        let folder = Folder::new();
        let numbers: String = (0..rows).map(|number| format!("{number}\n")).collect();
        folder.write("x.csv", format!("x\n{numbers}"));
        let sql = "SELECT array_length(top_k(x, 5)), mode(x) IS NOT NULL FROM '$/x.csv'";
        assert_eq!(folder.run_sql(sql).rows(), [["5", "true"]], "{rows} rows");
    }
}

/// Numbers of any width, in lists of any kind.
#[test]
fn lists_of_any_number_type_are_summed() {
    let folder = Folder::new();
    folder.write("x.csv", "a,b\n1,2\n3,4\n");
    for of in [
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "SMALLINT UNSIGNED",
        "INT UNSIGNED",
        "REAL",
        "DOUBLE",
    ] {
        let sql = format!(
            "SELECT sum(l)[1] = 4, sum(l)[2] = 6, avg(l)[1] = 2, sum(s)['x'] = 4 \
             FROM (SELECT [CAST(a AS {of}), CAST(b AS {of})] AS l, {{'x': CAST(a AS {of})}} AS s FROM '$/x.csv')"
        );
        assert_eq!(folder.run_sql(&sql).rows(), [["true"; 4]], "{of}");
    }
}

/// A column of nulls without a type aggregates as one without values.
#[test]
fn untyped_null_column_aggregates_like_no_values() {
    let folder = Folder::new();
    folder.write("x.csv", "k\n1\n2\n");
    let calls = [
        ("unique(n)", "0"),
        ("unique_exact(n)", "0"),
        ("top_k(n, 2)", "[]"),
        ("mode(n)", "∅"),
        ("hll_cardinality(hll_sketch(n))", "0.0"),
        ("id_set_cardinality(id_set(n))", "0"),
        ("distinct_values(n, 2)", "[]"),
        ("distinct_sample(n, 2)", "[]"),
        ("inverse_histogram(n)", "[]"),
        ("sum(n)", "∅"),
        ("avg(n)", "∅"),
        ("top_k(k, 2, n)", "[]"),
        ("bootstrap_sum(k, n)['sum']", "3.0"),
    ];
    for (call, expected) in calls {
        for source in [
            "(SELECT k, NULL AS n FROM '$/x.csv')",
            "(SELECT k, NULL AS n FROM '$/x.csv' UNION ALL SELECT k, NULL FROM '$/x.csv' WHERE k > 9)",
        ] {
            assert_eq!(
                folder.run_sql(&format!("SELECT {call} FROM {source}")).single_value(),
                expected,
                "{call}"
            );
        }
    }
}
