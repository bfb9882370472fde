//! Tests of answers that rest on a part of the input: exact if all of it was read, and else as far off as
//! they state.

use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Float64Type;
use tidemill_engine::{
    InterimResult, InterimResultObserver, Query, QueryPlan, RunSettings, TurboSettings,
};

use crate::common::{Folder, QueryAnswer, Random, collect_answer, query, run_query, settings};

/// Writes events of five kinds in files that follow one another in time; kind `e` becomes more frequent.
fn write_events(files: u64, rows: u64) -> Folder {
    let folder = Folder::new();
    let mut random = Random(7);
    for file in 0..files {
        let mut text = "day,kind,user,ms,price\n".to_owned();
        for row in 0..rows {
            let late = random.next_below(files) < file / 2;
            let kind = if late { 'e' } else { ['a', 'b', 'c', 'd'][random.next_below(4) as usize] };
            let (user, ms) = (random.next_below(5_000), random.next_below(1_000));
            let price = random.next_below(10_000) as f64 / 100.0;
            let note = if row % 50 == 0 { "\"two\nlines\"" } else { "one" };
            text.push_str(&format!("{file},{kind},{user},{ms},{price}\n"));
            // A speculative boundary may take such a record for two.
            if row % 997 == 0 {
                text.push_str(&format!("{file},{note},{user},{ms},{price}\n"));
            }
        }
        folder.write(&format!("{file:03}.csv"), text);
    }
    folder
}

fn turbo_settings(options: &[(&str, &str)]) -> TurboSettings {
    let mut turbo = TurboSettings::default();
    options.iter().for_each(|(option, text)| turbo.set_option(option, text).unwrap());
    turbo.validate().unwrap().unwrap()
}

fn run_turbo(folder: &Folder, sql: &str, options: &[(&str, &str)]) -> QueryAnswer {
    let query =
        Query { turbo: Some(turbo_settings(options)), ..query(folder.substitute_path(sql)) };
    run_query(&query, &settings()).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn turbo_error(folder: &Folder, sql: &str, options: &[(&str, &str)]) -> String {
    let query =
        Query { turbo: Some(turbo_settings(options)), ..query(folder.substitute_path(sql)) };
    match run_query(&query, &settings()) {
        Ok(answer) => panic!("{sql} was answered: {:?}", answer.rows()),
        Err(error) => error.to_string(),
    }
}

const QUERIES: [&str; 8] = [
    "SELECT kind, count(*) AS n, sum(ms) AS ms, avg(price) AS price FROM '$/*.csv' GROUP BY kind ORDER BY kind",
    "SELECT count(*), min(ms), max(price), count(DISTINCT user) FROM '$/*.csv'",
    "SELECT day, sum(price)/count(*) AS each, 100.0 * count(*) FILTER (WHERE kind = 'e') / count(*) AS share \
     FROM '$/*.csv' GROUP BY day HAVING count(*) > 10 ORDER BY each DESC, day LIMIT 7",
    "SELECT kind, top_k(user, 3) AS top, collect(ms, 4) AS first FROM '$/*.csv' GROUP BY kind ORDER BY kind",
    "SELECT kind, quantile(ms, 0.9) AS q, unique(user) AS users, median(price) AS m, stddev(ms) AS s \
     FROM '$/*.csv' GROUP BY kind ORDER BY kind",
    "SELECT kind, rank() OVER (ORDER BY count(*)) AS place FROM '$/*.csv' GROUP BY kind ORDER BY kind",
    "SELECT user % 2500 AS u, count(*) AS n FROM '$/*.csv' GROUP BY u ORDER BY n DESC, u LIMIT 20",
    "SELECT DISTINCT kind FROM '$/*.csv' WHERE ms < 500 ORDER BY kind",
];

#[test]
fn answer_over_all_input_is_exact() {
    let folder = write_events(24, 3_000);
    for sql in QUERIES {
        let exact = folder.run_sql(sql);
        for split_bytes in ["", "1k", "7k", "200k", "8M"] {
            let mut options = vec![("deadline", "1h"), ("no_intervals", "true")];
            if !split_bytes.is_empty() {
                options.push(("split_bytes", split_bytes));
            }
            if sql.contains("top_k") && !split_bytes.is_empty() {
                // Past its capacity `top_k` depends on the split boundaries.
                continue;
            }
            let answer = run_turbo(&folder, sql, &options);
            assert_eq!(answer.rows(), exact.rows(), "{sql} {split_bytes}");
            assert_eq!(answer.column_names(), exact.column_names(), "{sql}");
            let types = |answer: &QueryAnswer| answer.batches[0].schema().fields().clone();
            assert_eq!(types(&answer), types(&exact), "{sql}");
            assert!(answer.coverage.complete, "{sql}: {}", answer.coverage.summary_line());
            assert_eq!(answer.coverage.rows.done, exact.coverage.rows.done);
        }
    }
}

#[test]
fn exact_answer_has_equal_bounds() {
    let folder = write_events(24, 1_000);
    let exact = folder.run_sql(QUERIES[0]);
    let answer = run_turbo(&folder, QUERIES[0], &[("deadline", "1h")]);
    let columns = "kind n n_low n_high ms ms_low ms_high price price_low price_high";
    assert_eq!(answer.column_names(), columns.split(' ').collect::<Vec<_>>());
    for (row, exact) in answer.rows().iter().zip(exact.rows()) {
        assert_eq!(row[0], exact[0]);
        for (group, exact) in row[1..].chunks(3).zip(&exact[1..]) {
            assert!(group.iter().all(|value| *value == group[0]), "{group:?}");
            assert_eq!(group[0].parse::<f64>().unwrap(), exact.parse::<f64>().unwrap());
        }
    }
    assert!(answer.coverage.complete && answer.coverage.estimates.is_empty());
}

/// Returns the values of a column, each with its bounds.
fn column_estimates(answer: &QueryAnswer, name: &str) -> Vec<(f64, Option<f64>, Option<f64>)> {
    let mut all = Vec::new();
    for batch in &answer.batches {
        let number = |name: &str, row: usize| {
            let column = batch.column_by_name(name).unwrap().as_primitive::<Float64Type>().clone();
            arrow::array::Array::is_valid(&column, row).then(|| column.value(row))
        };
        all.extend((0..batch.num_rows()).map(|row| {
            let bound = |which: &str| number(&format!("{name}_{which}"), row);
            (number(name, row).unwrap(), bound("low"), bound("high"))
        }));
    }
    all
}

#[test]
fn confidence_intervals_contain_the_exact_number_at_the_stated_rate() {
    let folder = write_events(24, 3_000);
    let sql = "SELECT kind, count(*) AS n, sum(ms) AS total, avg(price) AS mean, sum(price)/sum(ms) AS ratio \
               FROM '$/*.csv' WHERE length(kind) = 1 GROUP BY kind ORDER BY kind";
    let exact = folder.run_sql(sql).rows();
    let names = ["n", "total", "mean", "ratio"];
    let (mut held, mut all) = ([0; 4], 0);
    for seed in 0..40 {
        let seed = seed.to_string();
        let options = [("sample", "8%"), ("seed", &seed), ("split_bytes", "1k")];
        let answer = run_turbo(&folder, sql, &options);
        let coverage = &answer.coverage;
        let sampled = coverage.sampled.as_ref().unwrap();
        assert!(!coverage.complete && sampled.scaled && sampled.seed.to_string() == seed);
        assert_eq!(coverage.splits.done + coverage.splits.left_out, coverage.splits.total);
        assert_eq!(coverage.bytes.done + coverage.bytes.left_out, coverage.bytes.total);
        assert_eq!(coverage.splits.done, (coverage.splits.total as f64 * 0.08).ceil() as u64);
        all += exact.len();
        for (column, name) in names.iter().enumerate() {
            for (row, (value, low, high)) in column_estimates(&answer, name).into_iter().enumerate()
            {
                let truth: f64 = exact[row][1 + column].parse().unwrap();
                let (low, high) = (low.unwrap(), high.unwrap());
                assert!(low <= value && value <= high, "{name}: {low} {value} {high}");
                assert!((value / truth - 1.0).abs() < 0.5, "{name} {value} of {truth}");
                held[column] += usize::from(low <= truth && truth <= high);
            }
        }
    }
    for (name, held) in names.iter().zip(held) {
        let share = held as f64 / all as f64;
        assert!(share > 0.9, "{name}: {share} of {all}");
    }
}

#[test]
fn quantile_intervals_contain_the_exact_value_at_the_stated_rate() {
    let folder = write_events(24, 3_000);
    let sql = "SELECT kind, median(price) AS m, quantile(ms, 0.9) AS q, percentile_cont(0.1) WITHIN GROUP (ORDER BY price) AS p \
               FROM '$/*.csv' WHERE length(kind) = 1 GROUP BY kind ORDER BY kind";
    let exact = folder.run_sql(sql).rows();
    let (mut held, mut all) = ([0; 3], 0);
    for seed in 0..40 {
        let options = [("sample", "8%"), ("seed", &seed.to_string()), ("split_bytes", "1k")];
        let answer = run_turbo(&folder, sql, &options);
        all += exact.len();
        for (column, name) in ["m", "q", "p"].iter().enumerate() {
            for (row, (value, low, high)) in column_estimates(&answer, name).into_iter().enumerate()
            {
                let truth: f64 = exact[row][1 + column].parse().unwrap();
                let (low, high) = (low.unwrap(), high.unwrap());
                assert!(low <= value && value <= high, "{name}: {low} {value} {high}");
                assert!(high - low < 0.5 * value + 10.0, "{name}: {low} to {high}");
                held[column] += usize::from(low <= truth && truth <= high);
            }
        }
    }
    for held in held {
        assert!(held as f64 / all as f64 > 0.9, "{held} of {all}");
    }
}

#[test]
fn unreadable_files_are_left_out_up_to_the_drop_limit() {
    let folder = Folder::new();
    let text: String = (0..3_000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    for file in 0..40 {
        folder.write(&format!("{file:02}.jsonl.gz"), gzip_fast(&text));
    }
    let whole = gzip_fast(&text);
    folder.write("17.jsonl.gz", &whole[..whole.len() / 2]);
    let sql = "SELECT count(*) AS n FROM '$/*.jsonl.gz'";
    let answer = run_turbo(&folder, sql, &[("drop", "5%")]);
    let sampled = answer.coverage.sampled.as_ref().unwrap();
    assert!(!answer.coverage.complete, "{}", answer.coverage.summary_line());
    assert_eq!(sampled.given_up.splits, 1);
    let [file] = sampled.given_up_files.as_slice() else { panic!("{sampled:?}") };
    assert!(file.path.ends_with("17.jsonl.gz") && !file.reason.is_empty(), "{file:?}");
    // More than the limit is an error, and so is any file without a limit.
    for file in ["03", "08", "21", "33"] {
        folder.write(&format!("{file}.jsonl.gz"), &whole[..whole.len() / 2]);
    }
    for options in [[("drop", "5%")], [("sample", "99.9%")]] {
        let query =
            Query { turbo: Some(turbo_settings(&options)), ..query(folder.substitute_path(sql)) };
        assert!(run_query(&query, &settings()).is_err(), "{options:?}");
    }
}

fn gzip_fast(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn equal_seed_gives_equal_answer_for_any_thread_count() {
    let folder = write_events(24, 1_000);
    let rows = |threads: usize, seed: &str| {
        let options = [("sample", "10%"), ("seed", seed), ("split_bytes", "2k")];
        let query = Query {
            turbo: Some(turbo_settings(&options)),
            ..query(folder.substitute_path(QUERIES[0]))
        };
        let settings = tidemill_engine::RunSettings { threads, ..settings() };
        let answer = run_query(&query, &settings).unwrap();
        // Only the bounds add floats in another order.
        ["n", "ms", "price"].map(|name| {
            column_estimates(&answer, name)
                .into_iter()
                .map(|(value, _, _)| value)
                .collect::<Vec<_>>()
        })
    };
    let one = rows(1, "5");
    assert_eq!(one, rows(2, "5"));
    assert_eq!(one, rows(4, "5"));
    assert_ne!(one, rows(2, "6"));
}

#[test]
fn error_target_stops_once_all_shown_intervals_are_narrow() {
    let folder = write_events(48, 12_000);
    let sql = "SELECT kind, count(*) AS n, avg(ms) AS mean FROM '$/*.csv' WHERE length(kind) = 1 GROUP BY kind";
    let options = [("error", "20%"), ("split_bytes", "1k")];
    let answer = run_turbo(&folder, sql, &options);
    assert!(!answer.coverage.complete);
    assert_eq!(answer.coverage.stopped.as_deref(), Some("stopped when it was precise enough"));
    for name in ["n", "mean"] {
        for (value, low, high) in column_estimates(&answer, name) {
            let half = (high.unwrap() - low.unwrap()) / 2.0;
            assert!(half <= 0.2 * value, "{name}: {value} ± {half}");
        }
    }
    // No estimate is precise enough, so all of the input is read.
    let answer = run_turbo(&folder, sql, &[("error", "0.0001%"), ("split_bytes", "1k")]);
    assert!(answer.coverage.complete);
}

#[test]
fn unscalable_aggregates_are_bounds_or_sample_values() {
    let folder = write_events(24, 1_000);
    let sql = "SELECT max(ms) AS most, min(ms) AS least, unique(user) AS users, \
               stddev(ms) AS s FROM '$/*.csv'";
    let answer = run_turbo(&folder, sql, &[("sample", "10%"), ("split_bytes", "1k")]);
    for (name, has_low, has_high) in
        [("most", true, false), ("least", false, true), ("s", false, false)]
    {
        for (value, low, high) in column_estimates(&answer, name) {
            assert_eq!(low, has_low.then_some(value), "{name}");
            assert_eq!(high, has_high.then_some(value), "{name}");
        }
    }
    // A sketch may itself be too high.
    let (users, low, high) = column_estimates(&answer, "users")[0];
    assert!(low.unwrap() < users && low.unwrap() > 0.98 * users && high.is_none());
    // With `as_seen`, a count is a bound too, and is not scaled.
    let sql = "SELECT count(*) AS n FROM '$/*.csv'";
    let options = [("sample", "10%"), ("split_bytes", "1k"), ("as_seen", "true")];
    let seen = run_turbo(&folder, sql, &options);
    assert_eq!(column_estimates(&seen, "n")[0].0, seen.coverage.rows.done as f64);
    assert!(!seen.coverage.sampled.unwrap().scaled);
}

#[test]
fn passed_deadline_returns_a_partial_answer() {
    let folder = write_events(24, 1_000);
    for sql in QUERIES {
        let began = Instant::now().checked_sub(Duration::from_secs(60));
        let turbo = TurboSettings { started_at: began, ..turbo_settings(&[("deadline", "1s")]) };
        let query = Query { turbo: Some(turbo), ..query(folder.substitute_path(sql)) };
        match run_query(&query, &settings()) {
            Ok(answer) => {
                assert!(!answer.coverage.complete, "{sql}");
                let stopped = answer.coverage.stopped.as_deref();
                assert_eq!(stopped, Some("stopped for the deadline"));
            }
            // Not even the columns were known by then.
            Err(error) => assert!(error.to_string().contains("before the deadline"), "{error}"),
        }
    }
}

#[test]
fn unsampleable_input_is_read_in_order() {
    let folder = Folder::new();
    let text: String = (0..2_000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    folder.write("one.jsonl", &text);
    let sql = "SELECT count(*) AS n, sum(n) AS total FROM '$/one.jsonl'";
    let answer = run_turbo(&folder, sql, &[("sample", "10%")]);
    assert_eq!(answer.rows()[0][0], "2000.0");
    assert!(answer.coverage.complete, "{}", answer.coverage.summary_line());
}

#[test]
fn interim_results_have_bounds_and_end_with_the_exact_answer() {
    let folder = write_events(24, 20_000);
    let exact = folder.run_sql(QUERIES[0]);
    for threads in [1, 2] {
        let settings = tidemill_engine::RunSettings { threads, ..settings() };
        let plan = QueryPlan::new(&query(folder.substitute_path(QUERIES[0])), &settings).unwrap();
        let mut shares = Vec::new();
        let mut show = |glimpse: InterimResult| {
            assert!(glimpse.bytes_read_share >= 0.0 && glimpse.bytes_read_share <= 1.0);
            assert_eq!(glimpse.bytes_read_share == 0.0, shares.is_empty());
            shares.push(glimpse.bytes_read_share);
            let names: Vec<String> =
                glimpse.schema.fields().iter().map(|field| field.name().clone()).collect();
            assert_eq!(names[..4], ["kind", "n", "n_low", "n_high"]);
            let answer = QueryAnswer { batches: glimpse.batches, coverage: Default::default() };
            for (value, low, high) in column_estimates(&answer, "n") {
                assert!(
                    low.is_none_or(|low| low <= value) && high.is_none_or(|high| value <= high)
                );
            }
        };
        let watch = InterimResultObserver { first_delay: Duration::ZERO, on_result: &mut show };
        let answer = collect_answer(plan.run_watched(Some(watch)).unwrap()).unwrap();
        assert_eq!((answer.rows(), answer.column_names()), (exact.rows(), exact.column_names()));
        assert!(answer.coverage.complete && answer.coverage.sampled.is_none());
        assert_eq!(answer.coverage.splits, exact.coverage.splits);
        assert!(shares.is_sorted(), "{shares:?}");
    }
}

/// Interim results fail here: before anything is read the cast fails, and estimates of the sum are too large
/// for BIGINT as often as not.
#[test]
fn failing_interim_result_is_skipped() {
    let folder = Folder::new();
    for file in 0..12 {
        let large = |row: i32| file % 4 == 3 && row < 1000;
        let line = |row| if large(row) { "3000000000000000,7\n" } else { "1,1\n" };
        folder.write(
            &format!("{file:02}.csv"),
            "v,x\n".to_owned() + &(0..3000).map(line).collect::<String>(),
        );
    }
    let sum = "SELECT sum(v) AS s FROM '$/*.csv'";
    let cast = "SELECT CAST(CASE WHEN count(*) = 3000 THEN 1 ELSE 100000 END AS SMALLINT) AS n \
                FROM '$/*.csv' WHERE x = 7";
    assert_eq!(folder.run_sql(sum).single_value(), "9000000000000033000");
    for sql in [sum, cast] {
        for threads in [1, 2] {
            let settings = RunSettings { threads, ..settings() };
            let plan = QueryPlan::new(&query(folder.substitute_path(sql)), &settings).unwrap();
            let mut show = |_: InterimResult| {};
            let watch = InterimResultObserver { first_delay: Duration::ZERO, on_result: &mut show };
            let answer = collect_answer(plan.run_watched(Some(watch)).unwrap()).unwrap();
            assert_eq!(answer.rows(), folder.run_sql(sql).rows(), "{sql}");
        }
    }
    for seed in 1..7 {
        let options = [("error", "0.01%"), ("seed", &*seed.to_string()), ("split_bytes", "1k")];
        let answer = run_turbo(&folder, sum, &options);
        let [estimate, ..] = column_estimates(&answer, "s")[..] else { panic!("no row") };
        assert!((estimate.0 / 9.000000000000033e18 - 1.0).abs() < 0.01, "{estimate:?}");
    }
}

#[test]
fn zero_counts_beside_distinct_counts_are_answered() {
    let folder = write_events(24, 3_000);
    for sql in [
        "SELECT count(*) AS n, count(DISTINCT user) AS u FROM '$/*.csv' WHERE ms < 0",
        "SELECT count(DISTINCT user) AS u, sum(ms) AS s FROM '$/*.csv' WHERE kind = 'nobody'",
        "SELECT count(*) AS n, count(DISTINCT user) AS u FROM '$/*.csv' WHERE day = 23",
    ] {
        let exact = folder.run_sql(sql).rows();
        for options in
            [&[("sample", "20%"), ("split_bytes", "1k")], &[("drop", "10%"), ("split_bytes", "2k")]]
        {
            let answer = run_turbo(&folder, sql, options);
            let sampled = answer.coverage.sampled.as_ref().unwrap();
            assert_eq!(sampled.unseen_share, None, "there is one row: {sql}");
        }
        let plan = QueryPlan::new(&query(folder.substitute_path(sql)), &settings()).unwrap();
        let mut show = |_: InterimResult| {};
        let watch = InterimResultObserver { first_delay: Duration::ZERO, on_result: &mut show };
        let watched = collect_answer(plan.run_watched(Some(watch)).unwrap()).unwrap();
        assert_eq!(watched.rows(), exact, "{sql}");
    }
}

#[test]
fn extreme_quantiles_of_few_rows_have_no_interval() {
    let folder = Folder::new();
    let mut random = Random(3);
    let mut text = "k,x\n".to_owned();
    for _ in 0..60_000 {
        let k = random.next_below(16);
        // A heavy tail, as times have.
        let x = (1.0 - random.next_below(1_000_000) as f64 / 1e6).powf(-0.7);
        text.push_str(&format!("{k},{x}\n"));
    }
    folder.write("a.csv", text);
    let sql = "SELECT k, quantile(x, 0.99) AS outer, quantile(x, 0.95) AS far, quantile(x, 0.5) AS mid \
               FROM '$/a.csv' GROUP BY k ORDER BY k";
    let exact = folder.run_sql(sql).rows();
    // Samples of about 150, 375 and 1,500 rows per group: the quantiles with too few rows, and those with enough.
    for (share, few, enough) in [
        ("4%", &["outer", "far"][..], &["mid"][..]),
        ("10%", &["outer"], &["mid"]),
        ("40%", &[], &["mid", "far"]),
    ] {
        let (mut held, mut all) = (0, 0);
        for seed in 0..25 {
            let options = [("sample", share), ("seed", &seed.to_string()), ("split_bytes", "1k")];
            let answer = run_turbo(&folder, sql, &options);
            for (column, name) in ["outer", "far", "mid"].iter().enumerate() {
                let rows = column_estimates(&answer, name);
                let with = rows.iter().filter(|(_, low, high)| low.zip(*high).is_some()).count();
                // One or two of 16 groups by chance.
                assert!(!few.contains(name) || with <= 4, "{name} of {share}: {with}");
                assert!(!enough.contains(name) || with == 16, "{name} of {share}: {with}");
                for (row, (_, low, high)) in rows.into_iter().enumerate() {
                    let truth: f64 = exact[row][1 + column].parse().unwrap();
                    let Some((low, high)) = low.zip(high) else { continue };
                    all += 1;
                    held += usize::from(low <= truth && truth <= high);
                }
            }
        }
        assert!(held as f64 / all as f64 > 0.93, "{share}: {held} of {all}");
    }
}

#[test]
fn stopped_run_returns_its_current_estimate() {
    let folder = write_events(24, 3_000);
    let settings = settings();
    // A query that may end early, and one with interim results.
    let asked = Query {
        turbo: Some(turbo_settings(&[("deadline", "1h")])),
        ..query(folder.substitute_path(QUERIES[0]))
    };
    let plan = QueryPlan::new(&asked, &settings).unwrap();
    settings.stop_reading.cancel();
    let answer = collect_answer(plan.run().unwrap()).unwrap();
    // Unless all of the input had been read before the stop request was seen.
    let is_as_asked = |answer: &QueryAnswer| {
        let stopped = answer.coverage.stopped.as_deref();
        answer.coverage.complete || stopped == Some("stopped when it was asked to")
    };
    assert!(is_as_asked(&answer), "{}", answer.coverage.summary_line());
    let plan = QueryPlan::new(&query(folder.substitute_path(QUERIES[0])), &settings).unwrap();
    let mut show = |_| {};
    let watch = InterimResultObserver { first_delay: Duration::ZERO, on_result: &mut show };
    let answer = collect_answer(plan.run_watched(Some(watch)).unwrap()).unwrap();
    assert!(is_as_asked(&answer), "{}", answer.coverage.summary_line());
    // Other queries ignore the stop request.
    assert!(
        run_query(&query(folder.substitute_path(QUERIES[0])), &settings).unwrap().coverage.complete
    );
}

#[test]
fn find_returns_the_wanted_number_of_rows() {
    let folder = write_events(24, 3_000);
    let sql = "SELECT day, user, ms FROM '$/*.csv' WHERE ms = 123";
    let all = folder.run_sql(sql);
    let (total, all) = (all.rows().len(), all.sorted_rows());
    for wanted in [1, 5, total - 1, total, total + 1, 10 * total] {
        let answer =
            run_turbo(&folder, sql, &[("find", &wanted.to_string()), ("split_bytes", "2k")]);
        assert_eq!(answer.rows().len(), wanted.min(total));
        assert!(answer.rows().iter().all(|row| all.contains(row)));
        assert!(answer.coverage.complete, "{}", answer.coverage.summary_line());
        if wanted > total {
            assert_eq!(answer.sorted_rows(), all);
        }
    }
    // Rows that were read until then are counted, also those of a split that is not read to its end.
    let lines: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    folder.write("one/all.csv.gz", gzip(&format!("n\n{lines}")));
    let found =
        run_turbo(&folder, "SELECT n FROM '$/one/all.csv.gz' WHERE n > 99", &[("find", "3")]);
    assert!(found.coverage.rows.done > 99, "{}", found.coverage.summary_line());
    // Of a limit and a number of rows to find, the smaller one holds.
    let limited = format!("{sql} LIMIT 2");
    assert_eq!(run_turbo(&folder, &limited, &[("find", "5")]).rows().len(), 2);
    // A sample of plain rows.
    let answer = run_turbo(&folder, sql, &[("sample", "20%"), ("split_bytes", "1k")]);
    assert!(!answer.coverage.complete && answer.rows().len() < total / 2);
    assert!(answer.rows().iter().all(|row| all.contains(row)));
}

#[test]
fn quoted_text_that_looks_like_records_is_not_read_as_records() {
    let folder = Folder::new();
    let mut random = Random(4);
    let mut text = "g,v,s\n".to_owned();
    for _ in 0..3_000 {
        let inside = "\nb,777,x".repeat(random.next_below(200) as usize);
        text.push_str(&format!("a,1,\"{inside}\"\n"));
    }
    folder.write("evil.csv", text);
    for seed in ["1", "2", "3"] {
        let sql = "SELECT g, v FROM '$/evil.csv' WHERE g = 'b'";
        assert_eq!(run_turbo(&folder, sql, &[("find", "2"), ("seed", seed)]).rows().len(), 0);
        let sql = "SELECT g, count(*) AS n, max(v) AS m FROM '$/evil.csv' GROUP BY g";
        for options in [[("sample", "20%"), ("seed", seed)], [("drop", "10%"), ("seed", seed)]] {
            let answer = run_turbo(&folder, sql, &options);
            let groups: Vec<String> = answer.rows().iter().map(|row| row[0].clone()).collect();
            assert_eq!(groups, ["a"], "{options:?}");
        }
    }
}

#[test]
fn bounds_contain_rounded_and_coalesced_estimates() {
    let folder = write_events(24, 3_000);
    let sql = "SELECT round(avg(ms)) AS r, CAST(avg(ms) AS INT) AS i, round(avg(price), 1) AS p, \
               coalesce(sum(ms), 0) AS s, sum(price) / nullif(count(*), 0) AS q FROM '$/*.csv'";
    let exact = folder.run_sql(sql).rows();
    for seed in 0..10 {
        let options = [("sample", "50%"), ("seed", &seed.to_string()), ("split_bytes", "1k")];
        let answer = run_turbo(&folder, sql, &options);
        for (column, name) in ["r", "i", "p", "s", "q"].iter().enumerate() {
            let (value, low, high) = column_estimates(&answer, name)[0];
            let (low, high) = (low.unwrap(), high.unwrap());
            assert!(low <= value && value <= high, "{name}: {low} {value} {high}");
            if column < 3 {
                let truth: f64 = exact[0][column].parse().unwrap();
                assert!(low <= truth && truth <= high, "{name}: {low} to {high} and not {truth}");
            }
        }
    }
}

#[test]
fn queries_without_estimates_are_refused() {
    let folder = write_events(2, 100);
    let deadline = [("deadline", "1h")];
    for (sql, options, expected) in [
        ("SELECT * FROM '$/*.csv' ORDER BY ms", &deadline, "no estimate can be made"),
        (
            "SELECT count(*) FROM '$/*.csv' UNION ALL SELECT count(*) FROM '$/000.csv'",
            &deadline,
            "no estimate can be made",
        ),
        ("SUMMARIZE SELECT * FROM '$/*.csv'", &deadline, "a summary of columns is of all rows"),
        (
            "SELECT count(*) FROM '$/*.csv' TABLESAMPLE SYSTEM (10)",
            &deadline,
            "sampled by the query already",
        ),
        (
            "SELECT ms FROM '$/*.csv' TABLESAMPLE BERNOULLI (10) LIMIT 2",
            &[("sample", "50%")],
            "sampled by the query already",
        ),
        ("SELECT count(*) FROM '$/*.csv'", &[("find", "3")], "`find` is of rows"),
        ("SELECT ms FROM '$/*.csv' LIMIT 3 OFFSET 2", &[("find", "3")], "OFFSET"),
        ("SELECT ms FROM '$/*.csv'", &[("error", "3%")], "`error` is of counts"),
        ("SELECT max(ms) FROM '$/*.csv'", &[("error", "3%")], "`error` is of counts"),
        (
            "SELECT day, CASE WHEN day = 1 THEN count(*) ELSE 0 END FROM '$/*.csv' GROUP BY day",
            &[("error", "3%")],
            "`error` is of counts",
        ),
        ("SELECT count(*), top_k(ms, 3) FROM '$/*.csv'", &[("error", "3%")], "`error` looks at"),
        (
            "SELECT count(*) AS n, max(ms) AS n_low FROM '$/*.csv'",
            &deadline,
            "two columns would be `n_low`",
        ),
    ] {
        let message = turbo_error(&folder, sql, options);
        assert!(message.contains(expected), "{sql}: {message}");
    }
}

#[test]
fn aggregates_beside_distinct_counts_keep_their_intervals() {
    let folder = write_events(24, 2_000);
    let options = [("sample", "20%"), ("split_bytes", "2k")];
    let alone =
        "SELECT kind, count(*) AS n, avg(ms) AS ms FROM '$/*.csv' GROUP BY kind ORDER BY kind";
    let beside = alone.replace("avg(ms)", "count(DISTINCT user) AS users, avg(ms)");
    let (alone, beside) =
        (run_turbo(&folder, alone, &options), run_turbo(&folder, &beside, &options));
    for name in ["n", "ms"] {
        assert_eq!(column_estimates(&alone, name), column_estimates(&beside, name), "{name}");
    }
    for (seen, low, high) in column_estimates(&beside, "users") {
        assert_eq!((low, high), (Some(seen), None));
    }
    // Without groups, a query over no rows has an answer, too.
    let of_all = "SELECT count(*) AS n, count(DISTINCT user) AS users FROM '$/*.csv'";
    let of_all = run_turbo(&folder, of_all, &options);
    assert!(matches!(column_estimates(&of_all, "n").as_slice(), [(_, Some(_), Some(_))]));
}

#[test]
fn intervals_do_not_depend_on_the_number_of_shown_groups() {
    let folder = write_events(24, 2_000);
    let options = [("sample", "20%"), ("split_bytes", "2k")];
    let all = "SELECT user % 700 AS u, count(*) AS n, sum(ms) / count(*) AS ms, median(price) AS m \
               FROM '$/*.csv' GROUP BY u ORDER BY n DESC, u";
    let few = format!("{all} LIMIT 9");
    let (all, few) = (run_turbo(&folder, all, &options), run_turbo(&folder, &few, &options));
    for name in ["n", "ms", "m"] {
        assert_eq!(column_estimates(&all, name)[..9], column_estimates(&few, name), "{name}");
    }
    let by = &few.coverage.sampled.as_ref().unwrap().by_estimates;
    assert_eq!(by.as_slice(), ["ORDER BY", "LIMIT"]);
    assert!(few.coverage.summary_line().contains("ORDER BY and LIMIT go by estimates"));
}

#[test]
fn coverage_lists_estimates_without_bounds() {
    let folder = write_events(24, 2_000);
    let sql = "SELECT kind, count(*) AS n, max(ms) AS mx, top_k(user, 2) AS top FROM '$/*.csv' \
               GROUP BY kind ORDER BY n DESC LIMIT 2";
    let said = |options: &[(&str, &str)]| {
        let coverage = run_turbo(&folder, sql, options).coverage;
        let line = coverage.summary_line();
        let of: Vec<String> = coverage
            .estimates
            .iter()
            .filter(|one| !one.interval.contains('±'))
            .map(|one| format!("{} {}", one.column, one.interval))
            .collect();
        assert!(of.iter().all(|one| line.contains(one)), "{line}");
        (coverage.sampled.unwrap().by_estimates, of)
    };
    let by = ["ORDER BY", "LIMIT"].map(str::to_owned).to_vec();
    let part = [("sample", "20%"), ("split_bytes", "2k")];
    let bare = [part[0], part[1], ("no_intervals", "true")];
    let of = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(said(&part), (by.clone(), of(&["mx is a bound", "top is of what was seen"])));
    let all = of(&["n is an estimate", "mx is a bound", "top is of what was seen"]);
    assert_eq!(said(&bare), (by, all));
    let whole = run_turbo(&folder, sql, &[("deadline", "1h"), ("no_intervals", "true")]).coverage;
    assert!(
        whole.complete && !whole.summary_line().contains("is an estimate"),
        "{}",
        whole.summary_line()
    );
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn damaged_gzip_file_is_given_up_not_counted_as_malformed() {
    let folder = Folder::new();
    let mut random = Random(3);
    let mut text = "n,m\n".to_owned();
    (0..20_000).for_each(|n| text.push_str(&format!("{n},{}\n", random.next_below(1 << 40))));
    let whole = gzip(&text);
    for file in 0..40 {
        let mut bytes = whole.clone();
        if file == 17 {
            // The bytes that follow are decoded to other text.
            let middle = bytes.len() / 2;
            bytes[middle..middle + 8].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        folder.write(&format!("{file:02}.csv.gz"), bytes);
    }
    let sql = "SELECT count(*) AS n, sum(m) AS m FROM '$/*.csv.gz'";
    assert!(folder.try_run_sql(sql, &settings()).is_err());
    let answer = run_turbo(&folder, sql, &[("drop", "5%")]);
    let sampled = answer.coverage.sampled.as_ref().unwrap();
    let [file] = sampled.given_up_files.as_slice() else { panic!("{sampled:?}") };
    assert!(file.path.ends_with("17.csv.gz"), "{file:?}");
    assert_eq!(answer.coverage.rows.rejected, 0);
}

#[test]
fn unreadable_files_are_an_error_without_drop() {
    let folder = write_events(24, 500);
    std::os::unix::fs::symlink("/nowhere", folder.path().join("link.csv")).unwrap();
    let sql = "SELECT count(*) AS n FROM '$/*.csv'";
    let error = turbo_error(&folder, sql, &[("deadline", "1h")]);
    assert!(error.contains("link.csv") && error.contains("--drop"), "{error}");
    let answer = run_turbo(&folder, sql, &[("deadline", "1h"), ("drop", "10%")]);
    let sampled = answer.coverage.sampled.as_ref().unwrap();
    assert!(sampled.given_up_files[0].path.ends_with("link.csv"), "{sampled:?}");
}

#[test]
fn build_side_is_read_completely_or_fails() {
    let folder = write_events(24, 300);
    folder.write("dim/a.csv", "kind,name\na,one\nb,two\n");
    folder.write("dim/b.csv.gz", &gzip("kind,name\nc,three\nd,four\n")[..30]);
    let sql = "SELECT name, count(*) AS n FROM '$/*.csv' AS e JOIN '$/dim' AS d ON e.kind = d.kind GROUP BY name";
    for options in [&[("deadline", "1h")][..], &[("drop", "20%")], &[("sample", "50%")]] {
        let error = turbo_error(&folder, sql, options);
        assert!(error.contains("b.csv.gz"), "{options:?}: {error}");
    }
    folder.write("dim/b.csv.gz", gzip("kind,name\nc,three\nd,four\n"));
    let answer = run_turbo(&folder, sql, &[("deadline", "1h"), ("no_intervals", "true")]);
    assert_eq!(answer.rows().len(), 4);
}

#[test]
fn keys_above_a_window_stay_exact() {
    let folder = Folder::new();
    let mut text = "id\n".to_owned();
    for row in 0..30_000_u64 {
        text.push_str(&format!("{}\n", 9_007_199_254_740_993 + 2 * (row % 3)));
    }
    folder.write("ids.csv", text);
    let sql = "SELECT id, count(*) AS n, row_number() OVER (ORDER BY id) AS r FROM '$/ids.csv' GROUP BY id ORDER BY id";
    let answer = run_turbo(&folder, sql, &[("sample", "20%"), ("split_bytes", "4k")]);
    let ids: Vec<String> = answer.rows().into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(ids, ["9007199254740993", "9007199254740995", "9007199254740997"]);
    assert!(!answer.column_names().iter().any(|name| *name == "id_low"));
}

#[test]
fn coverage_counts_only_returned_rows() {
    let folder = write_events(48, 4_000);
    let query = Query {
        turbo: Some(turbo_settings(&[("deadline", "1h"), ("split_bytes", "4k")])),
        ..query(folder.substitute_path("SELECT day, ms FROM '$/*.csv'"))
    };
    for stop_after in [1, 7, 40] {
        let settings = settings();
        let enough = settings.stop_reading.clone();
        let mut results = QueryPlan::new(&query, &settings).unwrap().run().unwrap();
        let (mut rows, mut batches) = (0, 0);
        for batch in results.by_ref() {
            rows += batch.unwrap().num_rows() as u64;
            batches += 1;
            if batches == stop_after {
                enough.cancel();
            }
        }
        let coverage = results.coverage();
        assert_eq!(coverage.rows.done, rows, "{}", coverage.summary_line());
        assert!(!coverage.complete);
    }
}

#[test]
fn many_sums_have_their_intervals_in_reasonable_time() {
    let folder = Folder::new();
    let names: Vec<String> = (0..600).map(|n| format!("c{n}")).collect();
    let mut text = names.join(",") + "\n";
    for row in 0..400 {
        let fields: Vec<String> = (0..600).map(|n| ((row * n) % 97).to_string()).collect();
        text.push_str(&(fields.join(",") + "\n"));
    }
    folder.write("wide.csv", text);
    let sums: Vec<String> = names.iter().map(|name| format!("sum({name}) AS {name}")).collect();
    let sql = format!("SELECT {} FROM '$/wide.csv'", sums.join(", "));
    let began = Instant::now();
    let answer = run_turbo(&folder, &sql, &[("sample", "50%"), ("split_bytes", "8k")]);
    assert_eq!(answer.column_names().len(), 3 * 600);
    // A watchdog: some tenths of a second are normal, and 4 s are known of a slow computation.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn file_of_unknown_size_counts_as_an_average_file() {
    let folder = write_events(48, 500);
    let sql = "SELECT count(*) AS n FROM '$/*.csv'";
    let all: f64 = folder.run_sql(sql).rows()[0][0].parse().unwrap();
    for link in 0..4 {
        let link = folder.path().join(format!("link{link}.csv"));
        std::os::unix::fs::symlink("/nowhere", link).unwrap();
    }
    let error = turbo_error(&folder, sql, &[("drop", "2%")]);
    assert!(error.contains("more than `drop`"), "{error}");
    let answer = run_turbo(&folder, sql, &[("drop", "20%"), ("split_bytes", "1k")]);
    let [(n, _, _)] = column_estimates(&answer, "n")[..] else { panic!() };
    // Four files more, as large as the others.
    assert!((n / all - 52.0 / 48.0).abs() < 0.02, "{n} of {all}");
}

/// A count behind a join or `unnest` can exceed the number of rows that are left to read.
#[test]
fn count_above_a_join_or_unnest_has_both_bounds() {
    let folder = write_events(20, 2_000);
    folder.write("tags/tags.csv", "kind,tag\na,1\na,2\na,3\na,4\nb,1\nb,2\nb,3\nb,4\n");
    for sql in [
        "SELECT count(*) AS n FROM '$/*.csv' AS e JOIN '$/tags/tags.csv' AS t ON e.kind = t.kind",
        "SELECT count(*) AS n FROM (SELECT unnest([1, 2, 3, 4]) AS u, kind FROM '$/*.csv')",
    ] {
        let exact: f64 = folder.run_sql(sql).single_value().parse().unwrap();
        let mut held = 0;
        for seed in 0..20 {
            let seed = seed.to_string();
            let options = [("sample", "30%"), ("seed", &seed), ("split_bytes", "4K")];
            let rows = run_turbo(&folder, sql, &options).rows();
            let of = |column: usize| rows[0][column].parse::<f64>().unwrap();
            assert!(of(2) > of(0), "{sql}: {rows:?}");
            held += usize::from(of(1) <= exact && exact <= of(2));
        }
        // 19 of 20 are expected, and half of them if the upper bound is cut down to the estimate.
        assert!(held >= 16, "{sql}: {held} of 20");
    }
}

#[test]
fn bytes_of_given_up_splits_are_not_counted_as_read() {
    let folder = Folder::new();
    let mut random = Random(5);
    let mut text = "n\n".to_owned();
    (0..20_000).for_each(|_| text.push_str(&format!("{}\n", random.next_below(1 << 40))));
    let whole = gzip(&text);
    for file in 0..8 {
        let mut bytes = whole.clone();
        if file == 6 {
            let middle = bytes.len() / 2;
            bytes[middle..middle + 8].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        folder.write(&format!("{file}.csv.gz"), bytes);
    }
    let sql = "SELECT count(*) AS n FROM '$/*.csv.gz'";
    // Fewer splits than a sample is drawn from; one of them cannot be read, and no other is dropped.
    let query = Query {
        turbo: Some(turbo_settings(&[("drop", "13%")])),
        ..query(folder.substitute_path(sql))
    };
    let answer = run_query(&query, &RunSettings { threads: 1, ..settings() }).unwrap();
    let coverage = &answer.coverage;
    let sampled = coverage.sampled.as_ref().unwrap();
    assert_eq!(
        (sampled.given_up.splits, coverage.splits.done),
        (1, 7),
        "{}",
        coverage.summary_line()
    );
    assert!((sampled.share - 7.0 / 8.0).abs() < 1e-9, "{}", sampled.share);
    assert_eq!(coverage.bytes.done, 7 * whole.len() as u64);
    assert_eq!(coverage.bytes.done + coverage.bytes.left_out, coverage.bytes.total);
    // The answer includes the rows that the split returned before, and the coverage counts them.
    let rows: f64 = answer.rows()[0][0].parse().unwrap();
    assert_eq!(rows, coverage.rows.done as f64);
}

/// More groups found raise the count only if no step on the way depends on an estimate.
#[test]
fn count_of_groups_is_a_lower_bound_without_estimated_filters() {
    let folder = write_events(24, 2_000);
    let options = [("sample", "20%"), ("split_bytes", "2k")];
    let of = |inner: &str, outer: &str| {
        let sql = format!("SELECT count(*) AS k FROM ({inner}) WHERE {outer}");
        let answer = run_turbo(&folder, &sql, &options);
        let [one] = column_estimates(&answer, "k")[..] else { panic!("{sql}") };
        (one, answer.coverage.sampled.unwrap().by_estimates)
    };
    let groups = "SELECT user AS u, count(*) AS n, avg(ms) AS a FROM '$/*.csv' GROUP BY user";
    let ((seen, low, high), by) = of(groups, "true");
    assert_eq!((low, high, by.len()), (Some(seen), None, 0));
    let ((seen, low, high), by) = of(groups, "u % 2 = 0");
    assert_eq!((low, high, by.len()), (Some(seen), None, 0));
    for (inner, outer, clause) in [
        (groups, "n >= 3", "HAVING"),
        (groups, "a > 700", "HAVING"),
        (&format!("{groups} HAVING max(ms) < 800"), "true", "HAVING"),
        (&format!("{groups} ORDER BY n DESC LIMIT 100"), "true", "LIMIT"),
    ] {
        let ((_, low, high), by) = of(inner, outer);
        assert_eq!((low, high), (None, None), "{inner} WHERE {outer}");
        assert!(by.iter().any(|one| one == clause), "{inner} WHERE {outer}: {by:?}");
    }
    // By a key that is itself an estimate.
    let sql = format!("SELECT n, count(*) AS k FROM ({groups}) GROUP BY n");
    let answer = run_turbo(&folder, &sql, &options);
    assert!(column_estimates(&answer, "k").iter().all(|(_, low, high)| low.or(*high).is_none()));
}

/// Answers are scaled by the row counts in footers: compressed bytes say less.
#[test]
fn parquet_row_counts_come_from_footers() {
    let folder = Folder::new();
    let mut random = Random(3);
    // Row groups of equally many rows and very different sizes.
    let mut text = "k,v,s\n".to_owned();
    for row in 0..200_000_u64 {
        let words = if row < 150_000 { 1 } else { 1 << 30 };
        text.push_str(&format!(
            "{},{},w{}\n",
            row / 100,
            random.next_below(1_000),
            random.next_below(words)
        ));
    }
    folder.write("a.csv", text);
    let conversion = crate::conversion::conversion(&folder, &["a.csv"], "a.parquet");
    crate::conversion::convert_to_one_file(&conversion).unwrap();
    let sql = "SELECT count(*) AS n, sum(v) AS v FROM '$/a.parquet'";
    let exact =
        folder.run_sql("SELECT sum(v) AS v FROM '$/a.csv'").rows()[0][0].parse::<f64>().unwrap();
    for seed in ["1", "2", "3"] {
        let options = [("sample", "30%"), ("split_bytes", "16k"), ("seed", seed)];
        let answer = run_turbo(&folder, sql, &options);
        if answer.coverage.complete {
            continue;
        }
        let [(n, Some(low), Some(high))] = column_estimates(&answer, "n")[..] else {
            panic!("{seed}")
        };
        // The count of all rows is exact, however few splits were read.
        assert!((n - 200_000.0).abs() < 1e-6 && low == n && high == n, "{n} {low} {high}");
        let [(v, _, _)] = column_estimates(&answer, "v")[..] else { panic!("{seed}") };
        assert!((v / exact - 1.0).abs() < 0.03, "{v} and {exact}");
    }
}
