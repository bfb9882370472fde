//! Tests of runs with little memory: they spill to files without names and read large batches in parts. A
//! step that cannot do with less memory is named in the error, with a hint.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow::ipc::writer::FileWriter;
use tidemill_engine::{Error, QueryPlan, RunSettings};

use crate::common::{Folder, QueryAnswer, Random, query};

/// Returns settings with the least memory, which spill to `spill`.
fn least_memory_settings(spill: &Path, threads: usize) -> RunSettings {
    RunSettings { threads, spill_dirs: vec![spill.to_path_buf()], ..RunSettings::new(64 << 20) }
}

/// Writes an Arrow file of one batch: `k`, numbers out of order, `v`, their text of 30 characters, and `w`,
/// another number.
fn write_large_batch(path: &Path, rows: usize) {
    let mut random = Random(7);
    let keys: Vec<i64> = (0..rows).map(|_| random.next_below(1 << 40) as i64).collect();
    let texts = keys.iter().map(|key| format!("{key:0>30}"));
    let batch = RecordBatch::try_from_iter([
        ("k", Arc::new(Int64Array::from(keys.clone())) as ArrayRef),
        ("v", Arc::new(StringViewArray::from_iter_values(texts))),
        ("w", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
    ])
    .unwrap();
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

fn assert_ascending(answer: &QueryAnswer, rows: usize) {
    let mut last = i64::MIN;
    let mut count = 0;
    for batch in &answer.batches {
        let keys = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
        for key in keys.values() {
            assert!(last <= *key);
            last = *key;
        }
        count += batch.num_rows();
    }
    assert_eq!(count, rows);
}

#[test]
fn large_batch_is_sorted_within_any_budget() {
    const ROWS: usize = 600_000;
    let folder = Folder::new();
    write_large_batch(&folder.path().join("x.arrow"), ROWS);
    let spill = Folder::new();
    for (sql, threads, megabytes) in [
        ("SELECT k, v, w FROM '$/x.arrow' ORDER BY k, v", 1, 64),
        ("SELECT k, v, w FROM '$/x.arrow' ORDER BY k", 4, 64),
        ("SELECT k, v FROM '$/x.arrow' ORDER BY k, w", 4, 100),
        ("SELECT k, v, w FROM '$/x.arrow' ORDER BY k, v", 2, 64),
        ("SELECT k, v FROM '$/x.arrow' ORDER BY k, w", 4, 512),
        (
            "SELECT k, lag(v) OVER (PARTITION BY k ORDER BY w) AS l FROM '$/x.arrow' ORDER BY k",
            2,
            64,
        ),
        ("SELECT k, v FROM '$/x.arrow' ORDER BY k, v LIMIT 500000", 2, 64),
    ] {
        let settings = RunSettings {
            memory_bytes: megabytes << 20,
            ..least_memory_settings(spill.path(), threads)
        };
        let answer = folder.run_sql_with(sql, &settings);
        assert_ascending(&answer, if sql.contains("LIMIT") { 500_000 } else { ROWS });
        assert_eq!(settings.progress.spilled_bytes() > 0, megabytes < 512, "{sql}");
    }
}

#[test]
fn window_releases_text_of_finished_rows() {
    const ROWS: usize = 300_000;
    let folder = Folder::new();
    write_large_batch(&folder.path().join("x.arrow"), ROWS);
    let spill = Folder::new();
    for sql in [
        "SELECT k, v, lag(w) OVER (ORDER BY k) AS l FROM '$/x.arrow' ORDER BY k",
        "SELECT k, v, lag(v) OVER (ORDER BY k, v) AS l FROM '$/x.arrow' ORDER BY k",
        "SELECT k, v, count() OVER (PARTITION BY k) AS l FROM '$/x.arrow' ORDER BY k",
        "SELECT k, [v] AS v, {'v': v} AS l, rank() OVER (ORDER BY k) FROM '$/x.arrow' ORDER BY k",
    ] {
        let answer = folder.run_sql_with(sql, &least_memory_settings(spill.path(), 2));
        assert_ascending(&answer, ROWS);
        for batch in &answer.batches {
            assert!(batch.num_rows() <= 8192, "{sql}: {}", batch.num_rows());
            assert!(batch.get_array_memory_size() < 4 << 20, "{sql}");
        }
    }
}

#[test]
fn window_over_whole_partitions_holds_one_partition() {
    const ROWS: usize = 500_000;
    let folder = Folder::new();
    write_large_batch(&folder.path().join("x.arrow"), ROWS);
    let spill = Folder::new();
    // Partitions that end with a batch, within one, and after several.
    for partitions in [1, 7, 500, 100_000, 1_000_000] {
        let sql = format!(
            "SELECT count() AS n, count(*) FILTER (WHERE a.c = b.c AND a.t = b.t AND a.r = b.t) \
             FROM (SELECT k % {partitions} AS p, count() OVER w AS c, max(right(v, 9)) OVER w AS t, \
             last_value(right(v, 9)) OVER (PARTITION BY k % {partitions} ORDER BY right(v, 9) ROWS \
             BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS r FROM '$/x.arrow' \
             WINDOW w AS (PARTITION BY k % {partitions})) a JOIN (SELECT k % {partitions} AS p, \
             count() AS c, max(right(v, 9)) AS t FROM '$/x.arrow' GROUP BY p) b ON a.p = b.p"
        );
        let settings =
            RunSettings { memory_bytes: 256 << 20, ..least_memory_settings(spill.path(), 2) };
        let answer = folder.run_sql_with(&sql, &settings);
        assert_eq!(answer.rows(), [[ROWS.to_string(), ROWS.to_string()]], "{partitions}");
    }
    let sql = "SELECT k, v, count() OVER () FROM '$/x.arrow'";
    let Err(error) = folder.try_run_sql(sql, &least_memory_settings(spill.path(), 2)) else {
        panic!("{sql} was answered")
    };
    let text = error.to_string();
    assert!(
        text.starts_with("out of memory: a window over whole partitions, which holds one of them,"),
        "{text}"
    );
}

#[test]
fn spill_files_are_unnamed_while_read() {
    let folder = Folder::new();
    write_large_batch(&folder.path().join("x.arrow"), 400_000);
    let spill = Folder::new();
    for sql in [
        "SELECT v FROM '$/x.arrow' ORDER BY v",
        "SELECT v, collect(k, 1) FROM '$/x.arrow' GROUP BY v",
        "SELECT v, count(DISTINCT k), approx_percentile_cont_with_weight(1, 1, 0.5) FROM '$/x.arrow' GROUP BY v",
    ] {
        let settings = least_memory_settings(spill.path(), 2);
        let mut results =
            QueryPlan::new(&query(folder.substitute_path(sql)), &settings).unwrap().run().unwrap();
        results.next().unwrap().unwrap();
        assert!(settings.progress.spilled_bytes() > 0, "{sql}");
        assert_eq!(std::fs::read_dir(spill.path()).unwrap().count(), 0, "{sql}");
        drop(results);
        assert_eq!(std::fs::read_dir(spill.path()).unwrap().count(), 0, "{sql}");
    }
}

#[test]
fn unusable_spill_folder_is_an_error_once_needed() {
    let folder = Folder::new();
    write_large_batch(&folder.path().join("x.arrow"), 400_000);
    let missing = folder.path().join("missing");
    let settings = least_memory_settings(&missing, 2);
    assert_eq!(
        folder.run_sql_with("SELECT max(k) > 0 FROM '$/x.arrow'", &settings).single_value(),
        "true"
    );
    for sql in [
        "SELECT v FROM '$/x.arrow' ORDER BY v",
        "SELECT v, collect(k, 1) FROM '$/x.arrow' GROUP BY v",
    ] {
        let Err(error) = folder.try_run_sql(sql, &settings) else { panic!("{sql} was answered") };
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot spill to `{}`", missing.display())), "{text}");
        assert!(text.contains("\nhint: --spill-dir"), "{text}");
    }
}

#[test]
fn large_tables_join_by_sorting_within_the_least_budget() {
    let folder = Folder::new();
    let texts = |prefix: &str| {
        let rows = (0..150_000).map(|n| format!("{prefix}{:0>60}", (n * 7919) % 150_000));
        let numbers = Int64Array::from_iter_values((0..150_000).map(|n| (n * 7919) % 150_000));
        RecordBatch::try_from_iter([
            ("m", Arc::new(Int64Array::from(vec![i64::from(prefix == "b"); 150_000])) as ArrayRef),
            ("n", Arc::new(numbers)),
            ("t", Arc::new(rows.map(Some).collect::<StringArray>())),
        ])
        .unwrap()
    };
    for name in ["a", "b"] {
        let batch = texts(name);
        let file = File::create(folder.path().join(format!("{name}.arrow"))).unwrap();
        let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }
    let spill = Folder::new();
    let sql = "SELECT count() AS n, sum(length(a.t) + length(b.t)) AS d FROM '$/a.arrow' a JOIN '$/b.arrow' b \
               ON a.n = b.n WHERE substr(a.t, 2) = substr(b.t, 2)";
    // The condition uses columns that the query does not select.
    let less = "SELECT count() AS n, sum(x + y) AS d FROM (SELECT a.n AS x, b.n AS y FROM '$/a.arrow' a \
                JOIN '$/b.arrow' b ON a.n = b.n AND right(a.t, 6) < left(right(b.t, 7), 6) \
                AND a.m > b.m)";
    let more = "SELECT count() AS n, sum(x + y) AS d FROM (SELECT a.n AS x, b.n AS y FROM '$/a.arrow' a \
                JOIN '$/b.arrow' b ON a.n = b.n AND b.m > a.m)";
    for threads in [1, 2, 4] {
        let settings = least_memory_settings(spill.path(), threads);
        assert_eq!(folder.run_sql_with(sql, &settings).rows(), [["150000", "18300000"]]);
        assert_eq!(folder.run_sql_with(less, &settings).rows(), [["0", "∅"]]);
        assert_eq!(folder.run_sql_with(more, &settings).rows(), [["150000", "22499850000"]]);
    }
}

#[test]
fn sort_merge_joins_assign_condition_sides() {
    let folder = Folder::new();
    let mut random = Random(77);
    // The larger side becomes the right one, wherever it stands.
    for (name, rows) in [("large", 160_000), ("less", 110_000)] {
        let mut numbers = |limit: u64| {
            Int64Array::from_iter_values((0..rows).map(|_| random.next_below(limit) as i64))
        };
        let (k, g, h) = (numbers(90_000), numbers(10), numbers(1000));
        let texts: StringArray = h.values().iter().map(|h| Some(format!("{h:0>60}"))).collect();
        let halves = Float64Array::from_iter_values(g.values().iter().map(|g| *g as f64 / 2.0));
        let columns: [(&str, ArrayRef); 4] = [
            ("k", Arc::new(k)),
            ("g", Arc::new(g)),
            ("f", Arc::new(halves)),
            ("t", Arc::new(texts)),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = File::create(folder.path().join(format!("{name}.arrow"))).unwrap();
        let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }
    let spill = Folder::new();
    let roomy = RunSettings { threads: 2, ..RunSettings::new(4 << 30) };
    for (left, right) in [("large", "less"), ("less", "large")] {
        for (kind, condition) in [
            ("JOIN", "a.g < b.g"),
            ("JOIN", "a.f * 2 < b.g AND a.t > b.t"),
            ("LEFT JOIN", "(a.g > 3 OR b.f < 4)"),
            ("RIGHT JOIN", "a.g BETWEEN b.f - 1 AND b.g + 1"),
            ("FULL JOIN", "a.g > 3 AND b.g < 5 AND a.t < b.t"),
        ] {
            let sql = format!(
                "SELECT count() AS n, sum(a.k) AS x, sum(a.g) AS y, sum(b.f) AS z, sum(length(a.t)) AS t \
                 FROM '$/{left}.arrow' a {kind} '$/{right}.arrow' b ON a.k = b.k AND {condition}"
            );
            let expected = folder.run_sql_with(&sql, &roomy).rows();
            assert_eq!(roomy.progress.spilled_bytes(), 0, "{sql}");
            let settings = least_memory_settings(spill.path(), 2);
            assert_eq!(folder.run_sql_with(&sql, &settings).rows(), expected, "{sql}");
            assert!(settings.progress.spilled_bytes() > 0, "{sql}");
        }
        for exists in ["EXISTS", "NOT EXISTS"] {
            let sql = format!(
                "SELECT count() AS n, sum(a.k) AS x, max(a.t) AS t FROM '$/{left}.arrow' a WHERE {exists} \
                 (SELECT 1 FROM '$/{right}.arrow' b WHERE a.k = b.k AND a.g < b.g AND a.t > b.t)"
            );
            let expected = folder.run_sql_with(&sql, &roomy).rows();
            let settings = least_memory_settings(spill.path(), 2);
            assert_eq!(folder.run_sql_with(&sql, &settings).rows(), expected, "{sql}");
        }
    }
}

#[test]
fn out_of_memory_error_names_step_and_hint() {
    let folder = Folder::new();
    write_large_batch(&folder.path().join("x.arrow"), 3_000);
    let spill = Folder::new();
    for (sql, step) in [
        ("SELECT median(a.k + b.k) FROM '$/x.arrow' a CROSS JOIN '$/x.arrow' b", "`median` has"),
        ("SELECT array_agg(a.v) FROM '$/x.arrow' a CROSS JOIN '$/x.arrow' b", "`array_agg` has"),
    ] {
        let Err(error) = folder.try_run_sql(sql, &least_memory_settings(spill.path(), 2)) else {
            panic!("{sql} was answered")
        };
        let text = error.to_string();
        assert!(matches!(error, Error::MemoryBudgetTooSmall { .. }), "{text}");
        assert!(text.starts_with(&format!("out of memory: {step}")), "{text}");
        assert!(text.contains("\nhint: --memory ") && !text.contains("Failed to"), "{text}");
    }
}

#[test]
fn amplifying_functions_run_over_fewer_rows_or_are_refused() {
    let folder = Folder::new();
    let lines: String = (0..20_000).map(|n| format!("{n},text-{n:0>6}\n")).collect();
    folder.write("x.csv", format!("n,s\n{lines}"));
    let spill = Folder::new();
    for (sql, expected) in [
        ("SELECT max(length(repeat(s, 10000))) FROM '$/x.csv'", "110000"),
        ("SELECT count(DISTINCT length(lpad(s, 50000))) FROM '$/x.csv'", "1"),
        (
            "SELECT count(u) FROM (SELECT unnest(range(0, 2000)) AS u FROM '$/x.csv' WHERE n < 1000)",
            "2000000",
        ),
        ("SELECT sum(length(replace(s, 'text', repeat('y', 1000)))) FROM '$/x.csv'", "20140000"),
        // The upper bound of the output's size is far above its size.
        (
            "SELECT length(regexp_replace(repeat('x', 1000000), '^x(x*)', '\\1' || repeat('y', 1000), 'g'))",
            "1000999",
        ),
        (
            "SELECT length(regexp_replace(repeat('x', 1000000), 'X', repeat('y', 1000), 'i'))",
            "1000999",
        ),
        ("SELECT max(length(concat_ws(repeat('-', 1000), s, s, NULL, s))) FROM '$/x.csv'", "2033"),
    ] {
        assert_eq!(
            folder.run_sql_with(sql, &least_memory_settings(spill.path(), 2)).single_value(),
            expected,
            "{sql}"
        );
    }
    for (sql, function) in [
        ("SELECT unnest(range(0, 1000000000)) FROM '$/x.csv'", "range"),
        ("SELECT length(repeat('x', 10000000000)) FROM '$/x.csv'", "repeat"),
        ("SELECT n FROM '$/x.csv' WHERE repeat(s, 100000000) > 'a'", "repeat"),
        (
            "SELECT length(regexp_replace(repeat('x', 1000000), 'X', repeat('y', 1000), 'gi'))",
            "regexp_replace",
        ),
        ("SELECT length(concat_ws(repeat('-', 10000000), 'a', 'b', 'c'))", "concat_ws"),
        (
            "WITH a AS (SELECT repeat(s, 1000000) AS t FROM '$/x.csv' LIMIT 1) \
             SELECT length(concat(t, t)) FROM a",
            "concat",
        ),
    ] {
        let Err(error) = folder.try_run_sql(sql, &least_memory_settings(spill.path(), 2)) else {
            panic!("{sql} was answered")
        };
        let text = error.to_string();
        let expected = format!("out of memory: `{function}` would make");
        assert!(text.starts_with(&expected) && text.contains("\nhint: "), "{text}");
    }
}

#[test]
fn first_n_aggregates_keep_only_n_values_on_both_paths() {
    const ROWS: usize = 600_000;
    let folder = Folder::new();
    write_large_batch(&folder.path().join("x.arrow"), ROWS);
    let spill = Folder::new();
    for call in [
        "maximum(v, 4)",
        "minimum(v, 3, w)",
        "maximum(v, 3, k)",
        "sample(v, 5)",
        "weighted_sample(v, 5, w)",
        "collect(v, 3)",
        "array_slice(array_agg(v ORDER BY k DESC), 1, 3)",
    ] {
        let asked = |beside: &str| {
            let sql = format!("SELECT {call}{beside} FROM '$/x.arrow'");
            folder
                .run_sql_with(&sql, &least_memory_settings(spill.path(), 2))
                .rows()
                .remove(0)
                .remove(0)
        };
        assert_eq!(asked(", count(DISTINCT w % 100)"), asked(""), "{call}");
        assert_eq!(
            asked(", count(DISTINCT w % 100), first_value(k ORDER BY w)"),
            asked(""),
            "{call}"
        );
    }
}

#[test]
fn first_n_aggregates_keep_only_n_values_on_the_engine_path() {
    const ROWS: usize = 600_000;
    let folder = Folder::new();
    write_large_batch(&folder.path().join("x.arrow"), ROWS);
    let spill = Folder::new();
    let asked =
        |sql: &str| folder.run_sql_with(sql, &least_memory_settings(spill.path(), 2)).rows();
    for call in [
        "maximum(v, 4)",
        "minimum(v, 3, w)",
        "maximum(v, 3, k)",
        "collect(v, 3)",
        "array_slice(array_agg(v ORDER BY k DESC), 1, 3)",
        "array_agg(v ORDER BY k)[1:5]",
        "array_slice(array_agg(nullif(v, v) ORDER BY k DESC), 1, 3)",
    ] {
        let of = |rest: &str| asked(&format!("SELECT w % 3 AS g, {call} AS c {rest}"));
        let mut expected = of("FROM '$/x.arrow' GROUP BY w % 3 ORDER BY g");
        let all = asked(&format!("SELECT {call} FROM '$/x.arrow'"));
        expected.push(vec!["∅".to_owned(), all[0][0].clone()]);
        let rolled = of("FROM '$/x.arrow' GROUP BY ROLLUP (w % 3) ORDER BY g NULLS LAST");
        assert_eq!(rolled, expected, "{call}");
    }
    // A few texts of many groups do not hold whole batches of text.
    let lines: String = (0..20_000)
        .map(|n| format!("{},{}{}\n", n * 7919 % 3_000, "x".repeat(100), n * 104_729 % 20_011))
        .collect();
    folder.write("many.csv", format!("k,s\n{lines}"));
    for call in ["maximum(s, 2)", "array_agg(s ORDER BY s DESC)[1:2]"] {
        let sql = |by: &str| {
            format!("SELECT max(c[1]) FROM (SELECT {call} AS c FROM '$/many.csv' GROUP BY {by})")
        };
        assert_eq!(asked(&sql("ROLLUP (k)")), asked(&sql("k")), "{call}");
    }
    // A HAVING stands between the list and its slice.
    let having = |by: &str| {
        format!(
            "SELECT max(c) FROM (SELECT array_agg(s ORDER BY s)[1:2] AS c, minimum(s, 2, k) AS d FROM '$/many.csv' \
         GROUP BY {by} HAVING count(*) > 1)"
        )
    };
    assert_eq!(asked(&having("GROUPING SETS ((k), ())")), asked(&having("k")));
    // Rows of two scans are aggregated apart and merged.
    let twice = "(SELECT k, v FROM '$/x.arrow' WHERE k % 2 = 0 UNION ALL SELECT k, v FROM '$/x.arrow' WHERE k % 2 = 1)";
    for call in ["maximum(v, 4)", "maximum(v, 3, k)", "minimum(k, 2000)[1999:]"] {
        let once = asked(&format!("SELECT {call} FROM '$/x.arrow'"));
        assert_eq!(asked(&format!("SELECT {call} FROM {twice}")), once, "{call}");
    }
}

#[test]
fn stored_id_sets_are_expanded_a_few_at_a_time() {
    let folder = Folder::new();
    // 1,500 sets of a kilobyte stand for numbers of 1.5 GB.
    let (sets, numbers) = (1_500, 128_000);
    let ids: tidemill_sketch::SortedIdSet = (0..numbers).collect();
    let mut bytes = Vec::new();
    ids.encode(&mut bytes);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let lines: String = (0..sets).map(|n| format!("{n},\\x{hex}\n")).collect();
    folder.write("x.csv", format!("n,s\n{lines}"));
    let spill = Folder::new();
    for (sql, expected) in [
        ("SELECT sum(array_length(id_set_ids(s))) FROM '$/x.csv'", sets * numbers),
        ("SELECT id_set_cardinality(id_set_union(s)) FROM '$/x.csv'", numbers),
        (
            "SELECT sum(c) FROM (SELECT n, id_set_cardinality(id_set_union(s)) AS c FROM '$/x.csv' GROUP BY n)",
            sets * numbers,
        ),
        (
            "SELECT sum(c) FROM (SELECT n, id_set_cardinality(id_set_intersection(s)) AS c, \
             count(DISTINCT n) FROM '$/x.csv' GROUP BY n)",
            sets * numbers,
        ),
    ] {
        let answer = folder.run_sql_with(sql, &least_memory_settings(spill.path(), 2));
        assert_eq!(answer.single_value(), expected.to_string(), "{sql}");
    }
}

#[test]
fn id_set_operations_over_memory_are_refused() {
    let folder = Folder::new();
    // Ten million consecutive numbers.
    let ids: tidemill_sketch::SortedIdSet = (0..10_000_000).collect();
    let mut bytes = Vec::new();
    ids.encode(&mut bytes);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    folder.write("x.csv", format!("s\n\\x{hex}\n"));
    let spill = Folder::new();
    for call in [
        "id_set_cardinality(id_set_union(s, s))",
        "id_set_cardinality(id_set_intersection(s, s))",
        "id_set_cardinality(id_set_difference(s, s))",
        "id_set_jaccard(s, s)",
    ] {
        let sql = format!("SELECT {call} FROM '$/x.csv'");
        let Err(error) = folder.try_run_sql(&sql, &least_memory_settings(spill.path(), 2)) else {
            panic!("{sql} was answered")
        };
        assert!(matches!(error, Error::MemoryBudgetTooSmall { .. }), "{error}");
    }
    // A single set is refused by its first bytes, on either path.
    for sql in [
        "SELECT id_set_cardinality(id_set_union(s)) FROM '$/x.csv'",
        "SELECT id_set_cardinality(id_set_intersection(s)) FROM '$/x.csv' GROUP BY length(s)",
        "SELECT id_set_cardinality(id_set_union(s)), count(DISTINCT s) FROM '$/x.csv' GROUP BY ROLLUP (length(s))",
    ] {
        let Err(error) = folder.try_run_sql(sql, &least_memory_settings(spill.path(), 2)) else {
            panic!("{sql} was answered")
        };
        assert!(error.to_string().contains("a stored set has 10,000,000 ids"), "{sql}: {error}");
    }
    // A set that no row aggregates is not refused.
    for sql in [
        "SELECT count(*), id_set_union(s) FILTER (WHERE s = 'other') FROM '$/x.csv'",
        "SELECT count(*), id_set_union(s) FILTER (WHERE s = 'other') FROM '$/x.csv' GROUP BY ROLLUP (length(s)) LIMIT 1",
    ] {
        let answer = folder.run_sql_with(sql, &least_memory_settings(spill.path(), 2)).rows();
        assert_eq!(answer, [["1", "∅"]], "{sql}");
    }
    for call in ["id_set_union(s, s)", "id_set_union(s)"] {
        let sql = format!("SELECT id_set_cardinality({call}) FROM '$/x.csv'");
        assert_eq!(
            folder.run_sql_with(&sql, &RunSettings::new(1 << 30)).single_value(),
            "10000000"
        );
    }
}

#[test]
fn splits_read_ahead_of_a_slow_one_give_the_same_answer() {
    // More files than threads and than the read-ahead limit, under a budget that spills.
    let folder = Folder::new();
    for file in 0..24 {
        let rows = if file == 0 { 60_000 } else { 10_000 };
        let lines: String = (0..rows).map(|n| format!("user-{file}-{n},{n}\n")).collect();
        folder.write(&format!("x/{file:0>2}.csv"), format!("k,v\n{lines}"));
    }
    let spill = Folder::new();
    let sql = "SELECT count() AS groups, sum(s) AS total FROM (SELECT k, sum(v) AS s, unique(v) AS u \
               FROM '$/x/*.csv' GROUP BY k)";
    let one = folder.run_sql_with(sql, &least_memory_settings(spill.path(), 1)).rows();
    for threads in [2, 3, 8] {
        assert_eq!(
            folder.run_sql_with(sql, &least_memory_settings(spill.path(), threads)).rows(),
            one
        );
    }
    assert_eq!(one[0][0], "290000");
}
