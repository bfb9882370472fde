//! Tests of order-sensitive aggregates against a walk over all rows, on every path.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidemill_engine::source::SourceSpec;
use tidemill_engine::{
    NamedSource, PartialTableMerge, Query, QueryPlan, RunId, RunProgress, RunSettings,
};

use crate::common::{Folder, QueryAnswer, Random, collect_answer, query, settings};

/// A row of the input.
#[derive(Clone)]
struct Row {
    key: u64,
    id: u64,
    n: Option<i64>,
    f: Option<f64>,
    s: Option<String>,
    b: Option<bool>,
}

const CSV_HEADER: &str = "k,id,n,f,s,b\n";

fn random_rows(random: &mut Random, count: u64, keys: u64) -> Vec<Row> {
    let row = |id| {
        let f = match random.next_below(9) {
            0 => f64::NAN,
            1 => -0.0,
            2 => 0.0,
            3 => f64::INFINITY,
            other => other as f64 / 4.0,
        };
        let s = format!("word {}, which is long enough to be apart", random.next_below(1000));
        let mut is_there = || random.next_below(7) > 0;
        let there = [is_there(), is_there(), is_there(), is_there()];
        Row {
            key: random.next_below(keys),
            id,
            n: there[0].then(|| random.next_below(6) as i64 - 3),
            f: there[1].then_some(f),
            s: there[2].then_some(s),
            b: there[3].then(|| random.next_below(2) == 0),
        }
    };
    (0..count).map(row).collect()
}

fn to_csv(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let of = |text: Option<String>| text.unwrap_or_default();
        format!(
            "{},{},{},{},\"{}\",{}\n",
            row.key,
            row.id,
            of(row.n.map(|n| n.to_string())),
            of(row.f.map(|f| format!("{f:?}"))),
            of(row.s.clone()),
            of(row.b.map(|b| b.to_string())),
        )
        .replace("\"\"", "")
    };
    CSV_HEADER.to_owned() + &rows.iter().map(line).collect::<String>()
}

const AGGREGATE_CALLS: &str = "first(s) AS a, last(s) AS b, any_value(s) AS c, arg_max(s, n) AS d, \
    arg_min(s, n) AS e, max_by(id, f) AS f1, min_by(id, f) AS g, \
    last_value(id ORDER BY n NULLS FIRST) AS h, arg_max(id, n) FILTER (WHERE b) AS i, \
    array_to_string(array_agg(id), '-') AS j, string_agg(s, '+' ORDER BY n DESC NULLS LAST) AS l, \
    nth_value(id, 2 ORDER BY n) AS m, arg_max(id, n, 2)[2] AS o, bool_and(b) AS p, bool_or(b) AS q, \
    bit_and(id) AS r, bit_or(id) AS t, bit_xor(id) AS u";

/// Returns the values that a walk over the rows of a group finds.
fn expected_of_group(rows: &[&Row]) -> Vec<String> {
    let shown = |value: Option<String>| value.unwrap_or_else(|| "∅".into());
    let word = |row: &&Row| row.s.clone();
    let id = |row: &&Row| Some(row.id.to_string());
    // Returns the rows in a stable order by a key, without those that lack it.
    fn stable_sorted_by<'a, K: Ord>(
        rows: &[&'a Row],
        key: impl Fn(&Row) -> Option<K>,
    ) -> Vec<&'a Row> {
        let mut some: Vec<&Row> = rows.iter().copied().filter(|row| key(row).is_some()).collect();
        some.sort_by_key(|row| key(row));
        some
    }
    // Zeros are equal, and NaN is the largest.
    let float = |row: &Row| {
        let f = row.f?;
        let bits = if f.is_nan() { i64::MAX } else { (f + 0.0).to_bits().cast_signed() };
        Some(bits)
    };
    let words: Vec<&Row> = rows.iter().copied().filter(|row| row.s.is_some()).collect();
    let most = |rows: &[&Row]| {
        stable_sorted_by(rows, |row| row.n.map(std::cmp::Reverse)).first().copied().cloned()
    };
    let flagged: Vec<&Row> = rows.iter().copied().filter(|row| row.b == Some(true)).collect();
    let falling = stable_sorted_by(rows, |row| row.n.map(std::cmp::Reverse));
    let unknown = rows.iter().copied().filter(|row| row.n.is_none());
    let joined: Vec<String> =
        falling.iter().copied().chain(unknown.clone()).filter_map(|row| row.s.clone()).collect();
    let rising: Vec<&Row> =
        stable_sorted_by(rows, |row| row.n).into_iter().chain(unknown).collect();
    let ids: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
    let number = |of: fn(u64, u64) -> u64| rows.iter().map(|row| row.id).reduce(of);
    let flags = |of: fn(bool, bool) -> bool| rows.iter().filter_map(|row| row.b).reduce(of);
    let last_by_n = stable_sorted_by(rows, |row| Some(row.n)).last().map(|row| row.id.to_string());
    vec![
        shown(rows.first().and_then(word)),
        shown(rows.last().and_then(word)),
        shown(rows.iter().find_map(word)),
        shown(most(&words).as_ref().and_then(|row| word(&row))),
        shown(stable_sorted_by(&words, |row| row.n).first().and_then(word)),
        shown(stable_sorted_by(rows, |row| float(row).map(std::cmp::Reverse)).first().and_then(id)),
        shown(stable_sorted_by(rows, float).first().and_then(id)),
        shown(last_by_n),
        shown(most(&flagged).map(|row| row.id.to_string())),
        ids.join("-"),
        shown((!joined.is_empty()).then(|| joined.join("+"))),
        shown(rising.get(1).and_then(id)),
        shown(falling.get(1).and_then(id)),
        shown(flags(|a, b| a && b).map(|b| b.to_string())),
        shown(flags(|a, b| a || b).map(|b| b.to_string())),
        shown(number(|a, b| a & b).map(|n| n.to_string())),
        shown(number(|a, b| a | b).map(|n| n.to_string())),
        shown(number(|a, b| a ^ b).map(|n| n.to_string())),
    ]
}

fn expected_rows(rows: &[Row]) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry(row.key).or_default().push(row));
    let row = |(key, rows): (u64, Vec<&Row>)| {
        [key.to_string()].into_iter().chain(expected_of_group(&rows)).collect::<Vec<String>>()
    };
    groups.into_iter().map(row).collect()
}

/// Writes the rows to files of `size` rows each; returns the number of files.
fn write_files(folder: &Folder, rows: &[Row], size: usize) -> usize {
    let parts = rows.chunks(size);
    let count = parts.len();
    for (part, rows) in parts.enumerate() {
        folder.write(&format!("e/{part:03}.csv"), to_csv(rows));
    }
    count
}

fn execution_path(folder: &Folder, sql: &str) -> String {
    QueryPlan::new(&query(folder.substitute_path(sql)), &settings())
        .unwrap()
        .explain()
        .unwrap()
        .path
}

#[test]
fn order_sensitive_aggregates_match_a_sequential_scan() {
    for (count, keys, size) in [(30_000, 7, 2500), (30_000, 9000, 4000), (400, 1, 400)] {
        let folder = Folder::new();
        let rows = random_rows(&mut Random(count + keys), count, keys);
        write_files(&folder, &rows, size);
        let expected = expected_rows(&rows);
        let sql = format!("SELECT k, {AGGREGATE_CALLS} FROM '$/e/*.csv' GROUP BY k ORDER BY k");
        assert_eq!(execution_path(&folder, &sql), "partial tables");
        let beside = sql.replace(" FROM", ", approx_percentile_cont_with_weight(1, 1, 0.5) FROM");
        assert_eq!(execution_path(&folder, &beside), "datafusion");
        for threads in [1, 2, 7] {
            let settings = RunSettings { threads, ..settings() };
            let found = folder.run_sql_with(&sql, &settings).rows();
            let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!(differs, None, "{keys} keys, {threads} threads");
            assert_eq!(found.len(), expected.len());
            let mut found = folder.run_sql_with(&beside, &settings).rows();
            found.iter_mut().for_each(|row| row.truncate(expected[0].len()));
            let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!(differs, None, "{keys} keys, {threads} threads, beside another");
        }
    }
}

#[test]
fn order_sensitive_aggregates_are_the_same_in_subqueries_and_joins() {
    let folder = Folder::new();
    let rows = random_rows(&mut Random(12), 5_000, 40);
    write_files(&folder, &rows, 1_100);
    let groups = format!("SELECT k, {AGGREGATE_CALLS} FROM '$/e/*.csv' GROUP BY k");
    let twice = |row: Vec<String>| [row.clone(), row];
    let doubled: Vec<Vec<String>> = expected_rows(&rows).into_iter().flat_map(twice).collect();
    let beside = |row: Vec<String>| [row.clone(), row].concat();
    let joined: Vec<Vec<String>> = expected_rows(&rows).into_iter().map(beside).collect();
    let names = "a, b, c, d, e, f1, g, h, i, j, l, m, o, p, q, r, t, u";
    for (sql, expected) in [
        (format!("SELECT * FROM ({groups} UNION ALL {groups}) ORDER BY k"), &doubled),
        (
            format!("SELECT * FROM ({groups}) x JOIN ({groups}) y ON x.k = y.k ORDER BY x.k"),
            &joined,
        ),
        (
            format!("SELECT * FROM ({groups}) x LEFT JOIN ({groups}) y ON x.k = y.k ORDER BY x.k"),
            &joined,
        ),
        (
            format!(
                "SELECT k, {names}, k, {names} FROM (SELECT * FROM ({groups}) ORDER BY k DESC \
                 LIMIT 100) GROUP BY ALL ORDER BY k"
            ),
            &joined,
        ),
        (
            format!(
                "SELECT k, {AGGREGATE_CALLS} FROM (SELECT DISTINCT ON (id) * FROM '$/e/*.csv' ORDER BY id) \
                 GROUP BY k ORDER BY k"
            ),
            &self::expected_rows(&rows),
        ),
    ] {
        for threads in [1, 4] {
            let settings = RunSettings { threads, ..settings() };
            let found = folder.run_sql_with(&sql, &settings).rows();
            let cells = |rows: &[Vec<String>]| rows.concat();
            let (found, expected) = (cells(&found), cells(expected));
            let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!(differs, None, "{sql}");
            assert_eq!(found.len(), expected.len(), "{sql}");
        }
    }
}

#[test]
fn ties_in_subqueries_keep_input_order() {
    let folder = Folder::new();
    folder.write("t.csv", "g,k,id\na,1,0\na,1,1\na,1,2\na,1,3\na,1,4\na,1,5\n");
    let first = "SELECT DISTINCT g, k, id FROM '$/t.csv' ORDER BY id DESC LIMIT 5";
    for (sql, expected) in [
        ("SELECT last_value(id ORDER BY k) FROM '$/t.csv' GROUP BY g".to_owned(), "5"),
        (
            "SELECT (SELECT string_agg(id, '' ORDER BY k) FROM '$/t.csv' y WHERE y.g = x.g) \
             FROM '$/t.csv' x GROUP BY g"
                .to_owned(),
            "012345",
        ),
        (
            "SELECT l FROM (SELECT g, count(*) AS n FROM '$/t.csv' GROUP BY g) x, LATERAL \
             (SELECT array_agg(id ORDER BY k) AS l FROM '$/t.csv' y WHERE y.g = x.g)"
                .to_owned(),
            "[0, 1, 2, 3, 4, 5]",
        ),
        (format!("SELECT last_value(id ORDER BY k) FROM ({first})"), "1"),
        (format!("SELECT array_agg(id ORDER BY k) FROM ({first})"), "[5, 4, 3, 2, 1]"),
    ] {
        assert_eq!(folder.run_sql(&sql).single_value(), expected, "{sql}");
    }
}

#[test]
fn first_and_last_nested_values_agree_on_both_paths() {
    let folder = Folder::new();
    let rows = random_rows(&mut Random(31), 6_000, 50);
    write_files(&folder, &rows, 1_700);
    let nested = "SELECT *, CASE WHEN n IS NOT NULL THEN [id, n] END AS l, {'a': s, 'b': id} AS t \
        FROM '$/e/*.csv'";
    let calls = "first_value(l) AS a, last_value(l) AS b, any_value(l) AS c, \
        first_value(l ORDER BY f) AS d, last_value(l ORDER BY b, f NULLS FIRST) AS e, \
        first_value(t ORDER BY n DESC) AS g, last_value(t ORDER BY n) AS h, \
        last_value(l ORDER BY n) IGNORE NULLS AS i, first_value(l) FILTER (WHERE n = 1) AS j";
    for order in ["", ", array_agg(id ORDER BY n) AS m"] {
        let sql = format!("SELECT k, {calls}{order} FROM ({nested}) GROUP BY k ORDER BY k");
        assert_eq!(execution_path(&folder, &sql), "partial tables");
        let expected = folder.run_sql(&sql).rows();
        assert_eq!(expected.len(), 50);
        let beside = ", approx_percentile_cont_with_weight(1, 1, 0.5) FROM";
        let beside = sql.replacen(&format!(" FROM ({nested}"), &format!("{beside} ({nested}"), 1);
        assert_eq!(execution_path(&folder, &beside), "datafusion");
        let counted = sql.replacen(
            &format!(" FROM ({nested}"),
            &format!(", count(DISTINCT s), sum(DISTINCT f) FROM ({nested}"),
            1,
        );
        for sql in [beside, counted] {
            for threads in [1, 3] {
                let settings = RunSettings { threads, ..settings() };
                let mut found = folder.run_sql_with(&sql, &settings).rows();
                found.iter_mut().for_each(|row| row.truncate(expected[0].len()));
                assert_eq!(found, expected, "{sql}");
            }
        }
    }
}

#[test]
fn lists_of_many_groups_fit_a_small_memory_budget() {
    let folder = Folder::new();
    let line =
        |n: u64| format!("{},{n},{},a text of some length {n}\n", n % 10_000, n * 7919 % 101);
    let lines: String = (0..20_000).map(line).collect();
    folder.write("t.csv", format!("u,id,x,s\n{lines}"));
    let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
    let first = "a text of some length";
    for (calls, expected) in [
        (
            "collect(s, 2), sum(DISTINCT x), first_value(id ORDER BY x) IGNORE NULLS, collect(id, 4)",
            vec![
                format!("[{first} 7, {first} 10007]"),
                "110".into(),
                "10007".into(),
                "[7, 10007]".into(),
            ],
        ),
        (
            "first_value([s, s] ORDER BY id), count(DISTINCT s), last_value({'s': s})",
            vec![format!("[{first} 7, {first} 7]"), "2".into(), format!("{{s: {first} 10007}}")],
        ),
    ] {
        for from in
            ["'$/t.csv'", "(SELECT * FROM '$/t.csv' UNION ALL SELECT * FROM '$/t.csv' WHERE u < 0)"]
        {
            let sql = format!("SELECT {calls} FROM {from} GROUP BY u ORDER BY u LIMIT 1 OFFSET 7");
            assert_eq!(
                folder.run_sql_with(&sql, &settings).rows(),
                std::slice::from_ref(&expected),
                "{sql}"
            );
        }
    }
}

#[test]
fn spilled_aggregates_equal_those_in_memory() {
    let folder = Folder::new();
    let rows = random_rows(&mut Random(4), 20_000, 5000);
    write_files(&folder, &rows, 3000);
    let expected = expected_rows(&rows);
    let sql = format!("SELECT k, {AGGREGATE_CALLS} FROM '$/e/*.csv' GROUP BY k ORDER BY k");
    for (memory_bytes, threads) in [(64 << 10, 1), (1 << 20, 3), (4 << 20, 2)] {
        let progress = RunProgress::new();
        let settings =
            RunSettings { memory_bytes, threads, progress: progress.clone(), ..settings() };
        assert!(folder.run_sql_with(&sql, &settings).rows() == expected, "{memory_bytes} bytes");
        assert!(progress.spilled_bytes() > 0, "{memory_bytes} bytes were enough");
    }
}

#[test]
fn partial_tables_merge_in_the_given_order() {
    let folder = Folder::new();
    let rows = random_rows(&mut Random(9), 3000, 40);
    let count = write_files(&folder, &rows, 700);
    let sql = format!("SELECT k, {AGGREGATE_CALLS} FROM source GROUP BY k ORDER BY k");
    let keep = |part: usize| -> PathBuf {
        let url = folder.substitute_path(&format!("$/e/{part:03}.csv"));
        let spec = SourceSpec { url, ..SourceSpec::default() };
        let sources = vec![NamedSource { name: "source".into(), spec }];
        let schema = "k BIGINT, id BIGINT, n BIGINT, f DOUBLE, s VARCHAR, b BOOLEAN".into();
        let query = Query { sources, schema: Some(schema), ..query(&sql) };
        let out = folder.path().join(format!("{part}.part"));
        QueryPlan::new(&query, &settings())
            .unwrap()
            .write_partial_table(&out, false, &RunId::new())
            .unwrap();
        out
    };
    let parts: Vec<PathBuf> = (0..count).map(keep).collect();
    let merged = |parts: &[PathBuf], settings: &RunSettings| -> QueryAnswer {
        collect_answer(PartialTableMerge::new(parts, settings).unwrap().run().unwrap()).unwrap()
    };
    let kept = |parts: &[PathBuf], name: &str| -> PathBuf {
        let out = folder.path().join(name);
        let merge = PartialTableMerge::new(parts, &settings()).unwrap();
        merge.write_partial_table(&out, false, &RunId::new()).unwrap();
        out
    };
    let whole = expected_rows(&rows);
    assert!(merged(&parts, &settings()).rows() == whole);
    let small = RunSettings { memory_bytes: 64 << 10, ..settings() };
    assert!(merged(&parts, &small).rows() == whole);
    // Merges of tables that were merged before, at either end.
    let first = kept(&parts[..3], "first.part");
    let last = kept(&parts[3..], "last.part");
    assert!(merged(&[first.clone(), last.clone()], &settings()).rows() == whole);
    assert!(merged(&[&[first][..], &parts[3..]].concat(), &settings()).rows() == whole);
    // In another order the tables are those of another input.
    let order = [4, 2, 0, 3, 1];
    let turned: Vec<PathBuf> = order.iter().map(|part| parts[*part].clone()).collect();
    let input: Vec<Row> =
        order.iter().flat_map(|part| rows.chunks(700).nth(*part).unwrap()).cloned().collect();
    assert!(merged(&turned, &settings()).rows() == expected_rows(&input));
}

#[test]
fn values_of_any_type_are_returned_unchanged() {
    let folder = Folder::new();
    folder.write(
        "v.jsonl",
        r#"{"t":1,"list":[1,null,3],"record":{"a":"x","b":[1.5]},"text":null,"day":"2024-02-01"}
{"t":3,"list":null,"record":{"a":null,"b":null},"text":"é","day":"2024-02-03"}
{"t":2,"list":[],"record":null,"text":"z","day":"2024-02-02"}
"#,
    );
    for (call, expected) in [
        ("first(list)", "[1, ∅, 3]"),
        ("last(list)", "[]"),
        ("arg_max(record, t)", "{a: ∅, b: ∅}"),
        ("last(record)", "∅"),
        ("any_value(text)", "é"),
        ("arg_max(CAST(day AS DATE), t)", "2024-02-03"),
        ("array_agg(list ORDER BY t DESC)", "[∅, [], [1, ∅, 3]]"),
        ("array_agg(record)[1]['b']", "[1.5]"),
        ("max(list)", "[1, ∅, 3]"),
        ("min(list)", "[]"),
        ("max(record)", "{a: ∅, b: ∅}"),
        ("min(record)", "{a: x, b: [1.5]}"),
        ("any_value(NULL)", "∅"),
        ("first(CAST(t AS DECIMAL(9, 2)))", "1.00"),
        ("arg_max(t, CAST(day AS TIMESTAMP))", "3"),
        ("first(INTERVAL '1 day')", "1 days"),
    ] {
        let sql = format!("SELECT {call} AS v FROM '$/v.jsonl'");
        assert_eq!(execution_path(&folder, &sql), "partial tables", "{call}");
        assert_eq!(folder.run_sql(&sql).single_value(), expected, "{call}");
        let beside = sql.replace(" FROM", ", approx_percentile_cont_with_weight(1, 1, 0.5) FROM");
        assert_eq!(execution_path(&folder, &beside), "datafusion", "{call}");
        assert_eq!(folder.run_sql(&beside).rows()[0][0], expected, "{call} beside another");
    }
}

#[test]
fn distinct_aggregates_merge_beside_others() {
    let folder = Folder::new();
    folder.write("d.csv", "k,x,s\na,1,p\na,1,q\na,3,p\na,,\nb,2,q\n");
    for (calls, expected) in [
        (
            "sum(DISTINCT x), avg(DISTINCT x), count(*), arg_max(s, x)",
            ["a|4|2.0|4|p", "b|2|2.0|1|q"],
        ),
        (
            "count(DISTINCT x), bool_and(x > 0), stddev(DISTINCT x)",
            ["a|2|true|1.4142135623730951", "b|1|true|∅"],
        ),
        (
            "string_agg(DISTINCT s, '+'), array_agg(DISTINCT x), sum(x)",
            ["a|p+q|[1, 3, ∅]|5", "b|q|[2]|2"],
        ),
        (
            "array_agg(DISTINCT x) FILTER (WHERE x > 1), sum(DISTINCT x) FILTER (WHERE s = 'p'), first(s)",
            ["a|[3]|4|p", "b|[2]|∅|q"],
        ),
        (
            "median(DISTINCT x), percentile_cont(x, 0.5), median(x)",
            ["a|2.0|1.0|1.0", "b|2.0|2.0|2.0"],
        ),
    ] {
        let sql = format!("SELECT k, {calls} FROM '$/d.csv' GROUP BY k ORDER BY k");
        assert_eq!(execution_path(&folder, &sql), "partial tables", "{calls}");
        let found: Vec<String> =
            folder.run_sql(&sql).rows().iter().map(|row| row.join("|")).collect();
        assert_eq!(found, expected, "{calls}");
        let union = sql.replace(
            "'$/d.csv'",
            "(SELECT * FROM '$/d.csv' UNION ALL SELECT * FROM '$/d.csv' WHERE x > 9)",
        );
        assert_eq!(execution_path(&folder, &union), "datafusion", "{calls}");
        let found: Vec<String> =
            folder.run_sql(&union).rows().iter().map(|row| row.join("|")).collect();
        assert_eq!(found, expected, "{calls} of a UNION");
    }
}

#[test]
fn sliced_list_keeps_only_the_first_values() {
    let folder = Folder::new();
    folder.write("l.csv", "k,x,t\na,1,5\na,2,9\na,3,7\nb,4,1\n");
    let tables = |sql: &str| {
        let explain = QueryPlan::new(&query(folder.substitute_path(sql)), &settings())
            .unwrap()
            .explain()
            .unwrap();
        explain.steps.into_iter().find(|(name, _)| name == "tables").unwrap().1
    };
    let cut = "SELECT k, arg_max(x, t, 2) AS m FROM '$/l.csv' GROUP BY k ORDER BY k";
    assert!(tables(cut).contains("array_agg(at most 2; by by_0 DESC"), "{}", tables(cut));
    assert_eq!(folder.run_sql(cut).rows(), [["a", "[2, 3]"], ["b", "[4]"]]);
    for (sql, kept, expected) in [
        ("array_slice(array_agg(x), 2, 3)", "at most 3", "[2, 3]"),
        ("array_slice(array_agg(x ORDER BY t), 1, 2), array_agg(x ORDER BY t)", "all", "[4, 1]"),
        ("array_slice(array_agg(x), 1, -1)", "all", "[1, 2, 3, 4]"),
        ("array_slice(array_agg(x), 1, 3, 2)", "", "[1, 3]"),
    ] {
        let sql = format!("SELECT {sql} FROM '$/l.csv'");
        assert!(tables(&sql).contains(&format!("array_agg({kept}")), "{sql}: {}", tables(&sql));
        assert_eq!(folder.run_sql(&sql).rows()[0][0], expected, "{sql}");
    }
}

#[test]
fn lists_in_several_orders_combine_with_unmergeable_aggregates() {
    let folder = Folder::new();
    folder.write("o.csv", "k,n,s\na,2,x\na,1,y\nb,5,z\na,,\na,3,w\n");
    let lists = "string_agg(s, ',' ORDER BY n), string_agg(s, ','), array_agg(n ORDER BY n DESC), \
                 nth_value(s, 2 ORDER BY n), first(n)";
    for beside in ["", ", approx_percentile_cont_with_weight(1, 1, 0.5)"] {
        let sql = format!("SELECT k, {lists}{beside} FROM '$/o.csv' GROUP BY k ORDER BY k");
        let rows = folder.run_sql(&sql).rows();
        assert_eq!(rows[0][..6], ["a", "y,x,w", "x,y,w", "[3, 2, 1, ∅]", "x", "2"], "{beside}");
        assert_eq!(rows[1][..6], ["b", "z", "z", "[5]", "∅", "5"], "{beside}");
    }
}

#[test]
fn union_branches_are_aggregated_in_order() {
    let folder = Folder::new();
    for (name, first) in [("a", 0), ("b", 100), ("c", 200)] {
        let lines: String = (first..first + 50).map(|n| format!("{n},1\n")).collect();
        folder.write(&format!("{name}.csv"), format!("n,w\n{lines}"));
    }
    let of = |name: &str| format!("SELECT n, w FROM '$/{name}.csv'");
    let all = [of("b"), of("a"), of("c")].join(" UNION ALL ");
    for threads in [1, 2, 4] {
        for (call, expected) in [
            ("array_agg(n ORDER BY w)[1:3]", "[100, 101, 102]"),
            ("array_agg(n)[49:52]", "[148, 149, 0, 1]"),
            ("collect(n, 2)", "[100, 101]"),
            ("first_value(n)", "100"),
            ("last_value(n ORDER BY w)", "249"),
            ("array_agg(n ORDER BY w DESC)[150]", "249"),
        ] {
            for _ in 0..4 {
                let settings = RunSettings { threads, ..settings() };
                let found = folder.run_sql_with(&format!("SELECT {call} FROM ({all})"), &settings);
                assert_eq!(found.single_value(), expected, "{call} by {threads} threads");
            }
        }
    }
}

#[test]
fn union_branch_order_does_not_depend_on_memory() {
    let folder = Folder::new();
    let text = "x".repeat(200);
    let lines: String = (0..20_000).map(|n| format!("{n},{},{text}\n", n * 7919 % 3)).collect();
    folder.write("a.csv", format!("n,w,s\n{lines}"));
    let both = "SELECT * FROM '$/a.csv' UNION ALL SELECT n + 100000, w, s FROM '$/a.csv'";
    for memory in [64 << 20, 1 << 30] {
        let settings = RunSettings { threads: 2, ..RunSettings::new(memory) };
        for (call, expected) in [
            ("array_agg(n ORDER BY w)[1:4]", "[0, 3, 6, 9]"),
            ("first_value(n)", "0"),
            ("length(array_agg(s ORDER BY w)[20003])", "200"),
            ("array_agg(n ORDER BY w)[6666:6669]", "[19995, 19998, 100000, 100003]"),
        ] {
            let found = folder.run_sql_with(&format!("SELECT {call} FROM ({both})"), &settings);
            assert_eq!(found.single_value(), expected, "{call} in {memory} bytes");
        }
    }
}

#[test]
fn repeated_sort_keys_and_ignore_nulls_agree_on_both_paths() {
    let folder = Folder::new();
    folder.write("x.csv", "k,v,w,s\n1,,1,a\n1,7,2,\n1,8,2,b\n2,,3,\n2,,4,\n");
    for (call, expected) in [
        ("array_agg(v IGNORE NULLS ORDER BY w)[1]", ["7", "∅"]),
        ("array_agg(v IGNORE NULLS ORDER BY w)[2]", ["8", "∅"]),
        ("array_agg(v ORDER BY w)[1]", ["∅", "∅"]),
        ("array_agg(v IGNORE NULLS ORDER BY w)[1:1]", ["[7]", "∅"]),
        ("first_value(v ORDER BY w DESC, w)", ["7", "∅"]),
        ("array_agg(v ORDER BY w DESC, w, w DESC)", ["[7, 8, ∅]", "[∅, ∅]"]),
        ("collect(s, 2)", ["[a, b]", "[]"]),
    ] {
        for beside in ["", ", array_agg(w ORDER BY v)", ", count(DISTINCT w)"] {
            for (by, order) in [("k", "k"), ("ROLLUP (k)", "k NULLS LAST")] {
                let sql = format!(
                    "SELECT k, {call}{beside} FROM '$/x.csv' GROUP BY {by} ORDER BY {order}"
                );
                let rows = folder.run_sql(&sql).rows();
                let found: Vec<&str> = rows.iter().take(2).map(|row| row[1].as_str()).collect();
                assert_eq!(found, expected, "{sql}");
            }
        }
    }
}
