//! Tests of medians against a sort of all values, on every path.

use std::collections::BTreeMap;

use tidemill_engine::source::SourceSpec;
use tidemill_engine::{NamedSource, PartialTableMerge, Query, QueryPlan, RunId, RunSettings};

use crate::common::{Folder, Random, collect_answer, query, settings, string_rows};

/// Returns the middle value, or the mean of the two in the middle.
fn exact_median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        even if even % 2 == 0 => {
            let (low, high) = (values[half - 1], values[half]);
            let sum = low + high;
            Some(if sum.is_finite() { sum / 2.0 } else { low / 2.0 + high / 2.0 })
        }
        _ => Some(values[half]),
    }
}

fn format_optional(value: Option<f64>) -> String {
    value.map_or("∅".into(), |value| format!("{:?}", value + 0.0))
}

#[test]
fn medians_equal_those_of_sorted_values_on_every_path() {
    let folder = Folder::new();
    let mut random = Random(5);
    for keys in [1, 9, 4000] {
        let mut groups: BTreeMap<u64, [Vec<f64>; 3]> = BTreeMap::new();
        let mut cents_of: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut out = String::from("k,f,i,d,w\n");
        for _ in 0..6000 {
            let key = random.next_below(keys);
            let float = match random.next_below(60) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                3 => -0.0,
                4..10 => 1.7e308,
                10..16 => -1.7e308,
                _ => random.next_below(1 << 40) as f64 / 1e6,
            };
            let float = (random.next_below(7) > 0).then_some(float);
            let (int, cents, counts) =
                (random.next_below(100), random.next_below(1000), random.next_below(2));
            let [floats, ints, counted] = groups.entry(key).or_default();
            floats.extend(float.map(|float| if float.is_nan() { f64::NAN } else { float + 0.0 }));
            ints.push(int as f64);
            cents_of.entry(key).or_default().push(cents);
            if counts == 1 {
                counted.extend(float.map(|float| float + 0.0));
            }
            let float = float.map_or(String::new(), |float| format!("{float:?}"));
            out.push_str(&format!(
                "{key},{float},{int},{}.{:02},{counts}\n",
                cents / 100,
                cents % 100
            ));
        }
        folder.write("m.csv", out);
        let calls = "median(f), median(i), median(f) FILTER (WHERE w = 1), \
                     median(CAST(f AS REAL)) FILTER (WHERE abs(f) < 1e30), \
                     median(CAST(d AS DECIMAL(9,2))), median(CAST(d AS DECIMAL(38,2)))";
        let asked = |more: &str, threads: usize| {
            let sql = format!("SELECT k, {calls}{more} FROM '$/m.csv' GROUP BY k ORDER BY k");
            folder.run_sql_with(&sql, &RunSettings { threads, ..settings() }).rows()
        };
        let tables = asked("", 2);
        assert_eq!(tables.len(), groups.len());
        for (row, (key, [floats, ints, counted])) in tables.iter().zip(&groups) {
            let expected = [
                key.to_string(),
                format_optional(exact_median(floats.clone())),
                format_optional(exact_median(ints.clone())),
            ];
            assert_eq!(row[..3], expected);
            assert_eq!(row[3], format_optional(exact_median(counted.clone())), "group {key}");
            let cents = cents_of.get_mut(key).unwrap();
            cents.sort_unstable();
            let (low, high) = (cents[(cents.len() - 1) / 2], cents[cents.len() / 2]);
            // Exactly, in thousandths.
            let half = (low + high) * 5;
            assert_eq!(row[5], format!("{}.{:03}", half / 1000, half % 1000), "group {key}");
            assert_eq!(row[5], row[6]);
        }
        for threads in [1, 3] {
            assert_eq!(asked("", threads), tables);
            let mut beside = asked(", approx_percentile_cont_with_weight(1, 1, 0.5)", threads);
            beside.iter_mut().for_each(|row| row.truncate(7));
            assert_eq!(beside, tables);
        }
        let windows = "SELECT DISTINCT k, median(f) OVER (PARTITION BY k), median(i) OVER (PARTITION BY k) \
                       FROM '$/m.csv' ORDER BY k";
        let windows = folder.run_sql(windows).rows();
        assert!(windows.iter().zip(&tables).all(|(window, row)| window[..] == row[..3]));
    }
    folder.write("d.csv", "x\n1\n1\n1\n3\n8\n");
    for more in ["", ", median(x)"] {
        let sql = format!("SELECT median(DISTINCT x){more} FROM '$/d.csv'");
        assert_eq!(folder.run_sql(&sql).rows()[0][0], "3.0");
    }
    let sliding = "SELECT median(x) OVER (ORDER BY x ROWS 1 PRECEDING) FROM '$/d.csv' ORDER BY x";
    assert_eq!(folder.run_sql(sliding).rows(), [["1.0"], ["1.0"], ["1.0"], ["2.0"], ["5.5"]]);
    assert_eq!(folder.run_sql("SELECT median(x) FROM '$/d.csv' WHERE x > 9").single_value(), "∅");
    assert_eq!(folder.run_sql("SELECT median(NULL) FROM '$/d.csv'").single_value(), "∅");
}

#[test]
fn median_group_over_memory_is_refused_with_a_hint() {
    let folder = Folder::new();
    let lines: Vec<String> = (0..3_000_000).map(|n| (n * 7 % 3_000_001).to_string()).collect();
    folder.write("l.csv", format!("x\n{}\n", lines.join("\n")));
    let small = RunSettings { memory_bytes: 8 << 20, ..settings() };
    let sql = folder.substitute_path("SELECT median(x) FROM '$/l.csv'");
    let refused = folder.try_run_sql(&sql, &small).err().map(|error| error.to_string());
    let refused = refused.unwrap_or_else(|| "it was answered".into());
    assert!(refused.contains("`median` has") && refused.contains("for one group"), "{refused}");
    assert_eq!(folder.run_sql(&sql).single_value(), "1499999.5");
}

/// Every width of DECIMAL, with an answer of one more place, on every path.
#[test]
fn median_of_decimals_is_the_exact_mean_of_the_middle_two() {
    let folder = Folder::new();
    folder.write("d.csv", "k,x\na,0.01\na,0.02\nb,-0.01\nb,-0.02\nc,7\n");
    for (precision, kind) in
        [(4, "Decimal128(5, 3)"), (38, "Decimal128(38, 3)"), (60, "Decimal256(61, 3)")]
    {
        let x = format!("CAST(x AS DECIMAL({precision}, 2))");
        for call in [format!("median({x})"), format!("median(DISTINCT {x})")] {
            let sql = format!("SELECT k, {call} AS m FROM '$/d.csv' GROUP BY k ORDER BY k");
            let expected = string_rows(&[&["a", "0.015"], &["b", "-0.015"], &["c", "7.000"]]);
            assert_eq!(folder.run_sql(&sql).rows(), expected, "{sql}");
        }
        let kind_of = format!("SELECT arrow_typeof(median({x})) FROM '$/d.csv' WHERE k = 'a'");
        assert_eq!(folder.run_sql(&kind_of).single_value(), kind);
        let sliding = format!(
            "SELECT median({x}) OVER (ORDER BY x ROWS 1 PRECEDING) FROM '$/d.csv' WHERE k = 'a' ORDER BY x"
        );
        assert_eq!(folder.run_sql(&sliding).rows(), [["0.010"], ["0.015"]], "{sliding}");
    }
    let huge = "SELECT median(CAST('9' || repeat('0', 37) AS DECIMAL(38, 0))) FROM '$/d.csv'";
    assert!(folder.sql_error(huge).contains("DECIMAL(38, 1)"), "{}", folder.sql_error(huge));
}

/// `avg`, `median` and `percentile_cont` of times are times, in groups, in windows and over distinct values.
#[test]
fn averages_and_medians_of_times_are_times() {
    let folder = Folder::new();
    folder.write(
        "t.csv",
        "k,ts,d\na,2026-01-01 00:00:00,2026-01-01\na,2026-01-01 00:00:01,2026-01-02\n\
         a,2026-01-01 00:00:01,2026-01-02\nb,,\n",
    );
    let calls = "avg(DISTINCT ts), median(DISTINCT ts), percentile_cont(DISTINCT ts, 0.5), median(ts), \
                 percentile_cont(ts, 0.25), percentile_cont(ts, 1), avg(DISTINCT d), median(DISTINCT d)";
    let half = "2026-01-01T00:00:00.500";
    let (second, noon) = ("2026-01-01T00:00:01", "2026-01-01T12:00:00");
    let expected = ["a", half, half, half, second, half, second, noon, noon];
    let sql = format!("SELECT k, {calls} FROM '$/t.csv' GROUP BY k ORDER BY k");
    let rows = folder.run_sql(&sql).rows();
    assert_eq!(rows[0], expected);
    assert!(rows[1][1..].iter().all(|value| value == "∅"), "{:?}", rows[1]);
    let ungrouped = folder.run_sql(&format!("SELECT {calls} FROM '$/t.csv'")).rows();
    assert_eq!(ungrouped[0], expected[1..]);
    let sliding = "SELECT avg(ts) OVER w, median(ts) OVER w, percentile_cont(ts, 0.5) OVER w \
                   FROM '$/t.csv' WHERE k = 'a' WINDOW w AS (ORDER BY ts ROWS 1 PRECEDING) ORDER BY ts LIMIT 2";
    let first = "2026-01-01T00:00:00";
    assert_eq!(folder.run_sql(sliding).rows(), [[first; 3], [half; 3]]);
    // The type and its zone stay, also for units without half microseconds.
    for (cast, kind) in [
        ("CAST(ts AS TIMESTAMP(0))", "Timestamp(µs)"),
        ("CAST(ts AS TIMESTAMP(9))", "Timestamp(ns)"),
        ("CAST(ts AS TIMESTAMPTZ)", "Timestamp(µs, \"UTC\")"),
        ("CAST(ts AS TIME)", "Time64(ns)"),
    ] {
        for call in ["avg", "median", "percentile_cont"] {
            let more = if call == "percentile_cont" { ", 0.5" } else { "" };
            let sql = format!("SELECT arrow_typeof({call}({cast}{more})) FROM '$/t.csv'");
            assert_eq!(folder.run_sql(&sql).single_value(), kind, "{sql}");
        }
    }
    for refused in ["sum(ts)", "median(k)", "percentile_cont(k, 0.5)", "avg(k)"] {
        folder.sql_error(&format!("SELECT {refused} FROM '$/t.csv'"));
    }
}

#[test]
fn median_overflowing_its_decimal_is_an_error() {
    let folder = Folder::new();
    for (digits, over) in
        [(38, ""), (38, " OVER ()"), (38, " OVER (ORDER BY x ROWS 1 PRECEDING)"), (76, "")]
    {
        let of = |digits: usize| format!("CAST('{}' AS DECIMAL({digits}, 0))", "9".repeat(digits));
        let sql = format!("SELECT median(x){over} FROM (VALUES ({})) AS t (x)", of(digits));
        let message = folder.sql_error(&sql);
        let expected = format!("does not fit DECIMAL({digits}, 1)");
        assert!(message.contains("`median(") && message.contains(&expected), "{sql}: {message}");
        assert!(message.contains("cast the argument to DOUBLE"), "{sql}: {message}");
        let sql = format!(
            "SELECT median(x){over} FROM (VALUES ({}), ({0})) AS t (x)",
            of(digits - 1).replace(&format!("({},", digits - 1), &format!("({digits},"))
        );
        let expected = format!("{}.0", "9".repeat(digits - 1));
        assert!(
            folder.run_sql(&sql).rows().concat().iter().all(|value| *value == expected),
            "{sql}"
        );
    }
}

/// Means, medians and percentiles of every time type, in partial tables that are merged, against DataFusion's
/// path.
#[test]
fn partial_tables_of_time_aggregates_merge() {
    let folder = Folder::new();
    let mut random = Random(17);
    let mut rows = |count: u64| {
        let row = |random: &mut Random| {
            let (key, day, second) =
                (random.next_below(40), random.next_below(28) + 1, random.next_below(60));
            let time =
                format!("{:02}:{:02}:{second:02}", random.next_below(24), random.next_below(60));
            match random.next_below(9) {
                0 => format!("{key},,,\n"),
                _ => format!(
                    "{key},19{}0-02-{day:02}T{time}.000001,{time},2026-11-{day:02}\n",
                    6 + random.next_below(4)
                ),
            }
        };
        "k,ts,t,d\n".to_owned() + &(0..count).map(|_| row(&mut random)).collect::<String>()
    };
    folder.write("e/1.csv", rows(90));
    folder.write("e/2.csv", rows(700));
    let values = [
        "ts",
        "arrow_cast(ts, 'Timestamp(Nanosecond, None)')",
        "arrow_cast(ts, 'Timestamp(Second, None)')",
        "arrow_cast(ts, 'Timestamp(Microsecond, Some(\"Europe/Berlin\"))')",
        "t",
        "d",
    ];
    let of_values = |call: &str| values.map(|value| call.replace('$', value));
    let calls: Vec<String> = [
        "avg($)",
        "median($)",
        "percentile_cont($, 0.3)",
        "percentile_cont(0.9) WITHIN GROUP (ORDER BY $ DESC)",
    ]
    .into_iter()
    .flat_map(of_values)
    .collect();
    let calls: Vec<String> =
        calls.iter().enumerate().map(|(number, call)| format!("{call} AS c{number}")).collect();
    let of = |file: &str, more: &str| {
        let url = folder.substitute_path(&format!("$/e/{file}"));
        let schema =
            tidemill_engine::query::schema_from_sql("ts TIMESTAMP, t TIME, d DATE").unwrap();
        let spec = SourceSpec { url, declared_schema: Some(schema), ..SourceSpec::default() };
        let sources = vec![NamedSource { name: "source".into(), spec }];
        let sql = format!("SELECT k, {}{more} FROM source GROUP BY k ORDER BY k", calls.join(", "));
        QueryPlan::new(&Query { sources, ..query(sql) }, &settings()).unwrap()
    };
    assert_eq!(of("*.csv", "").explain().unwrap().path, "partial tables");
    let whole = collect_answer(of("*.csv", "").run().unwrap()).unwrap();
    let engine = of("*.csv", ", approx_percentile_cont_with_weight(1, 1, 0.5)");
    assert_eq!(engine.explain().unwrap().path, "datafusion");
    let mut expected = collect_answer(engine.run().unwrap()).unwrap().rows();
    expected.iter_mut().for_each(|row| row.truncate(calls.len() + 1));
    assert_eq!(expected.len(), 40);
    assert_eq!(whole.rows(), expected);
    let parts = ["1", "2"].map(|part| {
        let out = folder.path().join(format!("{part}.part"));
        of(&format!("{part}.csv"), "").write_partial_table(&out, false, &RunId::new()).unwrap();
        out
    });
    let merged =
        collect_answer(PartialTableMerge::new(&parts, &settings()).unwrap().run().unwrap())
            .unwrap();
    assert_eq!(merged.rows(), expected);
}

#[test]
fn median_of_text_is_refused_with_a_hint() {
    let folder = Folder::new();
    folder.write("t.csv", "s\nx\n");
    let refused =
        folder.try_run_sql(&folder.substitute_path("SELECT median(s) FROM '$/t.csv'"), &settings());
    let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        refused.starts_with("there is no `median(TEXT)`\nhint: CAST(x AS DOUBLE)"),
        "{refused}"
    );
}
