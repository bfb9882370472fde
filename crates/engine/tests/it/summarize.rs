//! Tests of `SUMMARIZE` against the same aggregates, written one by one.

use arrow::datatypes::DataType;
use tidemill_engine::{QueryPlan, RunSettings};

use crate::common::{Folder, Random, query, settings};

/// Aggregates of a column that has an order, by their names in a summary; numbers and all columns follow.
const ORDERED_COLUMN_CALLS: [(&str, &str); 3] = [
    ("min", "CAST(min({}) AS TEXT)"),
    ("max", "CAST(max({}) AS TEXT)"),
    ("approx_unique", "approx_distinct({})"),
];
const NUMERIC_COLUMN_CALLS: [(&str, &str); 5] = [
    ("avg", "avg(CAST({} AS DOUBLE))"),
    ("std", "stddev(CAST({} AS DOUBLE))"),
    ("q25", "approx_percentile_cont(CAST({} AS DOUBLE), 0.25)"),
    ("q50", "approx_percentile_cont(CAST({} AS DOUBLE), 0.5)"),
    ("q75", "approx_percentile_cont(CAST({} AS DOUBLE), 0.75)"),
];
const ANY_COLUMN_CALLS: [(&str, &str); 3] = [
    ("count", "count(*)"),
    ("nulls", "count(*) - count({})"),
    ("null_percentage", "round(100.0 * (count(*) - count({})) / nullif(count(*), 0), 2)"),
];

/// Writes two files of `rows` rows each: numbers with nulls, texts, dates and times.
fn write_files(folder: &Folder, rows: u64) {
    let mut random = Random(11);
    for file in ["a", "b"] {
        let mut out = String::from("i,f,t,d,ts,b,n\n");
        for row in 0..rows {
            let i =
                if row % 7 == 3 { String::new() } else { (random.next_below(5000)).to_string() };
            let f = random.next_below(1_000_000) as f64 / 1000.0 - 500.0;
            let (t, day) = (random.next_below(20_000), 1 + random.next_below(28));
            out.push_str(&format!(
                "{i},{f},text {t},2026-03-{day:02},2026-03-{day:02}T10:00:{:02}.25Z,{},\n",
                random.next_below(60),
                random.next_below(2) == 1,
            ));
        }
        folder.write(&format!("{file}.csv"), out);
    }
}

const COLUMNS: &str = "i, f, t, d, ts, b, n, NULL AS nothing, [i] AS list, {'a': f} AS struct, \
    CAST(i AS TINYINT UNSIGNED) AS small, CAST(i AS BIGINT UNSIGNED) AS big, CAST(f AS REAL) AS real, \
    CAST(f AS DECIMAL(10, 2)) AS dec, CAST(f AS DECIMAL(50, 4)) AS wide, CAST(t AS BYTEA) AS bytes, \
    arrow_cast(t, 'Dictionary(Int32, Utf8)') AS codes, arrow_cast(i, 'Dictionary(Int16, Int64)') AS coded, \
    arrow_cast(ts, 'Timestamp(Nanosecond, None)') AS nanoseconds, TIME '10:00:00' AS clock, ts - ts AS span, \
    CASE WHEN i > 10 THEN f / 0 ELSE -0.0 END AS special, i AS \"a.b\", t AS \"Q \"\"x\", f AS \"Upper\", \
    d AS \"min\", 'it''s' AS \"it's\"";

#[test]
fn summarize_equals_its_aggregates_one_by_one() {
    let folder = Folder::new();
    write_files(&folder, 3000);
    let small = COLUMNS.replace("CAST(i AS TINYINT UNSIGNED)", "CAST(i % 200 AS TINYINT UNSIGNED)");
    for rows in [
        // Split into map and tables.
        "FROM '$/*.csv'",
        "FROM '$/*.csv' WHERE i > 100 AND b",
        "FROM '$/*.csv' WHERE i > 1000000",
        "FROM '$/*.csv' WHERE i IS NULL",
        "FROM '$/*.csv' WHERE false",
        // Run by DataFusion, with several partitions and with one.
        "FROM (SELECT * FROM '$/a.csv' UNION ALL SELECT * FROM '$/b.csv')",
        "FROM (SELECT * FROM '$/a.csv' UNION ALL SELECT * FROM '$/b.csv') WHERE i > 1000000",
        "FROM (SELECT DISTINCT * FROM '$/a.csv')",
        "FROM '$/a.csv' ORDER BY f LIMIT 100",
    ] {
        let asked = folder.substitute_path(&format!("SELECT {small} {rows}"));
        assert_summary(&folder, &asked);
    }
}

/// Compares the summary of a query, with one thread and with several, with the aggregates.
fn assert_summary(folder: &Folder, asked: &str) {
    let schema = QueryPlan::new(&query(asked), &settings()).unwrap().schema().clone();
    let (mut expected, mut estimates) = (Vec::new(), Vec::new());
    let described = folder.run_sql(&format!("DESCRIBE {asked}")).rows();
    for (field, described) in schema.fields().iter().zip(described) {
        let of = field.data_type();
        let has_order = !of.is_nested() && *of != DataType::Null;
        let kinds = [
            (&ORDERED_COLUMN_CALLS[..], has_order),
            (&NUMERIC_COLUMN_CALLS, of.is_numeric()),
            (&ANY_COLUMN_CALLS, true),
        ];
        let items = kinds.into_iter().flat_map(|(items, is_asked)| {
            items.iter().map(move |(name, call)| match is_asked {
                true => format!("{call} AS \"{name}\""),
                false => format!("NULL AS \"{name}\""),
            })
        });
        let items: Vec<String> = items.collect();
        let column = format!("\"{}\"", field.name().replace('"', "\"\""));
        let sql = format!("SELECT {} FROM ({asked})", items.join(", ").replace("{}", &column));
        let answer = folder.run_sql(&sql);
        let mut row = described[..2].to_vec();
        row.extend(answer.rows().remove(0));
        expected.push(row);
        estimates.extend(answer.coverage.estimates.into_iter().map(|mut estimate| {
            let place = ORDERED_COLUMN_CALLS.iter().chain(&NUMERIC_COLUMN_CALLS);
            let place = place.map(|(name, _)| *name).position(|name| name == estimate.column);
            estimate.column = format!("{}({})", estimate.column, field.name());
            (place, estimate)
        }));
    }
    // By aggregate, and for each of them by column.
    estimates.sort_by_key(|(place, _)| *place);
    let estimates: Vec<_> = estimates.into_iter().map(|(_, estimate)| estimate).collect();
    let summaries = [4, 1].map(|threads| {
        let settings = RunSettings { threads, ..settings() };
        folder.run_sql_with(&format!("SUMMARIZE {asked}"), &settings)
    });
    for summary in &summaries {
        assert_eq!(summary.rows(), expected, "{asked}");
        assert_eq!(summary.coverage.estimates, estimates, "{asked}");
    }
    let [summary, _] = &summaries;
    let names = ["column_name", "column_type"].into_iter();
    let asked = ORDERED_COLUMN_CALLS
        .iter()
        .chain(&NUMERIC_COLUMN_CALLS)
        .chain(&ANY_COLUMN_CALLS)
        .map(|(name, _)| *name);
    assert!(summary.column_names().into_iter().eq(names.chain(asked)));
    let types = summary.batches[0].schema();
    let types: Vec<_> = types.fields().iter().map(|field| field.data_type().clone()).collect();
    use DataType::{Float64, Int64, Utf8, Utf8View};
    let numbers = [Float64, Float64, Float64, Float64, Float64, Int64, Int64, Float64];
    assert!(
        types.into_iter().eq([Utf8, Utf8, Utf8View, Utf8View, Int64].into_iter().chain(numbers))
    );
}

#[test]
fn unnamed_columns_are_summarized() {
    let folder = Folder::new();
    folder.write("a.csv", "k,v\na,1\na,2\nb,3\n");
    let sql = "SUMMARIZE SELECT k, count(*), sum(v), v + 1 FROM '$/a.csv' GROUP BY k, v";
    let rows = folder.run_sql(sql).rows();
    let columns: Vec<Vec<&str>> =
        rows.iter().map(|row| row[..4].iter().map(String::as_str).collect()).collect();
    let expected = [
        ["k", "TEXT", "a", "b"],
        ["count(*)", "BIGINT", "1", "1"],
        ["sum(v)", "BIGINT", "1", "3"],
        ["v + 1", "BIGINT", "2", "4"],
    ];
    assert_eq!(columns, expected);
    // Two columns of one name have a row each.
    let rows = folder
        .run_sql("SUMMARIZE SELECT x.v, y.v FROM '$/a.csv' x JOIN '$/a.csv' y USING (k)")
        .rows();
    assert_eq!([&rows[0][0], &rows[1][0]], ["x.v", "y.v"]);
}

#[test]
fn hundreds_of_columns_are_summarized_like_a_few() {
    const COLUMN_COUNT: usize = 400;
    let folder = Folder::new();
    let mut random = Random(5);
    let names: Vec<String> = (0..COLUMN_COUNT).map(|column| format!("c{column}")).collect();
    let mut out = names.join(",") + "\n";
    for _ in 0..50 {
        let values = (0..COLUMN_COUNT).map(|column| match column % 3 {
            0 => random.next_below(1000).to_string(),
            1 => format!("{}.5", random.next_below(1000)),
            _ => format!("text {}", random.next_below(20)),
        });
        out.push_str(&(values.collect::<Vec<_>>().join(",") + "\n"));
    }
    folder.write("wide.csv", out);
    let mut expected = Vec::new();
    for some in names.chunks(20) {
        let sql = format!("SUMMARIZE SELECT {} FROM '$/wide.csv'", some.join(", "));
        expected.extend(folder.run_sql(&sql).rows());
    }
    let all = folder.run_sql("SUMMARIZE '$/wide.csv'");
    assert_eq!(all.rows(), expected);
    assert!(all.coverage.mergeable);
    let numbers = COLUMN_COUNT - COLUMN_COUNT / 3;
    assert_eq!(all.coverage.estimates.len(), COLUMN_COUNT + 3 * numbers);
    let ordered = folder.run_sql("SUMMARIZE SELECT * FROM '$/wide.csv' ORDER BY c0");
    assert_eq!(ordered.rows(), expected);
    assert_eq!(ordered.coverage.estimates, all.coverage.estimates);
}

#[test]
fn summary_aggregate_is_not_callable_in_sql() {
    let folder = Folder::new();
    folder.write("a.csv", "v\n1\n");
    for sql in
        ["SELECT summary(v) FROM '$/a.csv'", "SUMMARIZE SELECT summary(v) AS v FROM '$/a.csv'"]
    {
        let message = folder.sql_error(sql);
        assert!(message.contains("unknown function `summary`"), "{message}");
    }
    let message = folder.sql_error("SUMMARIZE SELECT INTERVAL '1 day' AS x FROM '$/a.csv'");
    assert!(message.contains("its argument is of type INTERVAL"), "{message}");
    // A record without fields has no columns.
    folder.write("none.json", "{}\n{}\n");
    assert!(folder.run_sql("SUMMARIZE '$/none.json'").rows().is_empty());
}
