//! Forecasts of a query's run time on a cluster.
//!
//! Measured values differ between runs, so the tests check the relations between the figures.

use serde_json::Value;

use crate::TestFolder;

const SQL: &str = "SELECT k, count() AS n, sum(v) AS v FROM 'logs.csv' GROUP BY k";

/// Writes 100,000 rows of seven keys, in 1.3 MB.
fn write_logs(place: &TestFolder) {
    let rows = (0..100_000).map(|i| format!("{},{i},{}\n", i % 7, i % 10));
    place.write("logs.csv", format!("k,v,w\n{}", rows.collect::<String>()));
}

fn forecast(place: &TestFolder, words: &[&str]) -> Value {
    let explained = place.run_ok(&[&["query", "--explain", "--format", "json"], words].concat());
    let explained: Value = serde_json::from_str(&explained).unwrap();
    explained["forecast"].clone()
}

fn json_number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{found} is not {expected}");
}

#[test]
fn forecast_contains_measurements_and_derived_times() {
    let place = TestFolder::new();
    write_logs(&place);
    let found = forecast(&place, &[SQL, "--cluster", "cores=100,disks=10"]);
    let cluster = &found["cluster"];
    assert_eq!((&cluster["cores"], &cluster["disk_bytes"]), (&100.into(), &200_000_000.into()));
    let measured = &found["measured"];
    assert_eq!(measured["groups"], 7);
    let size = place.read("logs.csv").len() as u64;
    assert_eq!(measured["input_bytes"], size);
    assert!(
        json_number(&measured["bytes"]) <= size as f64 && json_number(&measured["rows"]) >= 1.0
    );
    for figure in ["byte_seconds", "seconds", "group_bytes", "merge_seconds"] {
        assert!(json_number(&measured[figure]) > 0.0, "{figure}: {measured}");
    }
    assert_eq!(measured["column_share"], 1.0);
    assert_eq!(measured["held_seconds"], 0.0);

    let outlooks = found["outlooks"].as_array().unwrap();
    let of =
        |outlook: &Value| (outlook["bytes"].as_u64().unwrap(), outlook["cores"].as_u64().unwrap());
    let terabyte = 1_000_000_000_000;
    let all: Vec<_> = outlooks.iter().map(of).collect();
    assert_eq!(all, [(size, 100), (terabyte, 100), (terabyte, 10), (terabyte, 1000)]);
    for outlook in outlooks {
        let parts = &outlook["parts"];
        let part = |name: &str| json_number(&parts[name]);
        assert_close(part("disks"), json_number(&outlook["bytes"]) / 2e9);
        let reading = part("disks").max(part("cores") + part("starts"));
        let others = part("cut") + part("held") + part("merge") + part("finish");
        assert_close(json_number(&outlook["seconds"]), reading + others);
    }
}

#[test]
fn a_forecast_is_shown_below_the_plan() {
    let place = TestFolder::new();
    write_logs(&place);
    let words = [SQL, "--explain", "--cluster", "cores=100,machines=10,network=1GB/s,bytes=2TB"];
    let shown = place.run_ok(&[&["query"], &words[..], &["--deadline", "7s"]].concat());
    let (plan, forecast) = shown.split_once("cluster: ").unwrap();
    assert!(plan.starts_with("path: partial tables"), "{shown}");
    for said in [
        "100 cores, disks left out, 10 machines, a table of each merged at one place, links of 1.00 GB/s",
        "measured here: ",
        " 7 groups, in ",
        "2.00 TB  ",
        "by 7.0 s",
        "It is a forecast: all cores are as this one, and of more cores there are more machines. Left out: disks (disks=…)",
    ] {
        assert!(forecast.contains(said), "{said}\n{shown}");
    }
}

#[test]
fn forecast_of_columnar_files_counts_the_bytes_of_read_columns() {
    let place = TestFolder::new();
    write_logs(&place);
    place.run_ok(&["convert", "logs.csv", "logs.parquet"]);
    let sql = SQL.replace("logs.csv", "logs.parquet");
    let found = forecast(&place, &[&sql, "--cluster", "cores=8"]);
    let share = json_number(&found["measured"]["column_share"]);
    assert!(share > 0.0 && share < 1.0, "{found}");
    let all = forecast(
        &place,
        &["SELECT k, sum(v), sum(w) FROM 'logs.parquet' GROUP BY k", "--cluster", "cores=8"],
    );
    assert_eq!(all["measured"]["column_share"], 1.0);
    assert!(
        json_number(&all["measured"]["input_bytes"])
            > json_number(&found["measured"]["input_bytes"])
    );
}

#[test]
fn forecast_of_unsplittable_files_has_one_split_per_file() {
    let place = TestFolder::new();
    write_logs(&place);
    place.run_ok(&["convert", "logs.csv", "logs.csv.gz"]);
    let sql = SQL.replace("logs.csv", "logs.csv.gz");
    let found = forecast(&place, &[&sql, "--cluster", "cores=8"]);
    assert_eq!(found["measured"]["start_seconds"], Value::Null);
    assert_eq!(found["measured"]["rows"], 100_000);
    // The file cannot be split, so more cores do not help.
    assert_eq!(found["outlooks"][0]["splits"], 1);
    assert_eq!(found["outlooks"][0]["bound"], "splits");
}

#[test]
fn forecast_covers_build_sides_and_samples() {
    let place = TestFolder::new();
    write_logs(&place);
    place.write("names.csv", "k,name\n1,one\n2,two\n3,three\n");
    let sql = "SELECT name, sum(v) AS v FROM 'logs.csv' JOIN 'names.csv' USING (k) GROUP BY name";
    let found = forecast(&place, &[sql, "--cluster", "cores=8,bytes=1GB", "--sample", "10%"]);
    assert!(json_number(&found["measured"]["held_seconds"]) > 0.0, "{found}");
    assert_eq!(found["outlooks"][0]["read_bytes"], 100_000_000);
    assert_eq!(found["reading"]["is_fine"], true);
}
