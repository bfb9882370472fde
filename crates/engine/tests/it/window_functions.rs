//! Tests of window functions against a model, for all kinds of keys and frames.

use tidemill_engine::RunSettings;

use crate::common::{Folder, Random};

struct Row {
    partition: u64,
    /// The key that orders the rows.
    order: Option<u64>,
    value: Option<i64>,
}

/// The values of a row's window: all rows of its partition up to its peers.
struct RunningTotals {
    sum: Option<i64>,
    count: usize,
    max: Option<i64>,
    /// The sum of the values above zero.
    positive_sum: Option<i64>,
    rank: usize,
    /// Number of distinct orders so far.
    groups: usize,
}

/// Returns the totals of each row, with nulls last.
fn running_totals(rows: &[Row]) -> Vec<RunningTotals> {
    let key = |row: &Row| row.order.unwrap_or(u64::MAX);
    let mut sorted: Vec<usize> = (0..rows.len()).collect();
    sorted.sort_by_key(|index| (rows[*index].partition, key(&rows[*index])));
    let mut totals: Vec<Option<RunningTotals>> = rows.iter().map(|_| None).collect();
    for partition in sorted.chunk_by(|one, other| rows[*one].partition == rows[*other].partition) {
        let mut seen = 0;
        let (mut values, mut groups): (Vec<i64>, usize) = (Vec::new(), 0);
        for equals in partition.chunk_by(|one, other| key(&rows[*one]) == key(&rows[*other])) {
            values.extend(equals.iter().filter_map(|index| rows[*index].value));
            groups += 1;
            let above: Vec<i64> = values.iter().copied().filter(|value| *value > 0).collect();
            for index in equals {
                totals[*index] = Some(RunningTotals {
                    sum: (!values.is_empty()).then(|| values.iter().sum()),
                    count: values.len(),
                    max: values.iter().max().copied(),
                    positive_sum: (!above.is_empty()).then(|| above.iter().sum()),
                    rank: seen + 1,
                    groups,
                });
            }
            seen += equals.len();
        }
    }
    totals.into_iter().flatten().collect()
}

fn format_optional<T: ToString>(value: Option<T>) -> String {
    value.map_or("∅".to_owned(), |value| value.to_string())
}

#[test]
fn running_totals_include_peers() {
    let mut random = Random(23);
    let folder = Folder::new();
    let spill = Folder::new();
    for (partitions, orders, count) in
        [(1, 1, 9_000), (1, 30_000, 9_000), (3, 4, 30_000), (40, 30, 9_000), (5_000, 2, 9_000)]
    {
        let rows: Vec<Row> = (0..count)
            .map(|_| Row {
                partition: random.next_below(partitions),
                order: (random.next_below(9) > 0).then(|| random.next_below(orders)),
                value: (random.next_below(5) > 0).then(|| random.next_below(2_000) as i64 - 1_000),
            })
            .collect();
        let lines: String = rows
            .iter()
            .enumerate()
            .map(|(id, row)| {
                let text = |value: Option<String>| value.unwrap_or_default();
                let order = text(row.order.map(|order| order.to_string()));
                let value = text(row.value.map(|value| value.to_string()));
                format!("{id},{},{order},{value}\n", row.partition)
            })
            .collect();
        folder.write("w.csv", format!("id,p,d,v\n{lines}"));
        let expected: Vec<Vec<String>> = running_totals(&rows)
            .into_iter()
            .enumerate()
            .map(|(id, of)| {
                vec![
                    id.to_string(),
                    format_optional(of.sum),
                    of.rank.to_string(),
                    of.count.to_string(),
                    format_optional(of.positive_sum),
                    of.groups.to_string(),
                    format_optional(of.max),
                ]
            })
            .collect();
        // DataFusion runs some calls: ranks, and those with a FILTER.
        for frame in ["", "RANGE UNBOUNDED PRECEDING", "GROUPS UNBOUNDED PRECEDING"] {
            let sql = format!(
                "SELECT id, sum(v) OVER w, rank() OVER w, count(v) OVER w, \
                 sum(v) FILTER (WHERE v > 0) OVER w, dense_rank() OVER w, max(v) OVER w \
                 FROM '$/w.csv' WINDOW w AS (PARTITION BY p ORDER BY d {frame}) ORDER BY id"
            );
            for (megabytes, threads) in [(64, 1), (64, 3), (2_048, 2)] {
                let settings = RunSettings {
                    threads,
                    spill_dirs: vec![spill.path().to_path_buf()],
                    ..RunSettings::new(megabytes << 20)
                };
                let found = folder.run_sql_with(&sql, &settings).rows();
                assert!(found == expected, "{partitions} partitions, {orders} orders: {sql}");
            }
        }
        let sql = "SELECT id, sum(v) OVER (PARTITION BY p ORDER BY d) FROM '$/w.csv' ORDER BY id";
        let found = folder.run_sql(sql).rows();
        let sums = expected.iter().map(|row| row[..2].to_vec());
        assert!(found == sums.collect::<Vec<_>>(), "{partitions} partitions, {orders} orders");
    }
}

#[test]
fn zeros_and_nans_are_peers() {
    let folder = Folder::new();
    folder.write("f.csv", "id,f\n1,0.0\n2,-0.0\n3,NaN\n4,-1\n5,NaN\n");
    let sql = "SELECT id, count() OVER (ORDER BY f) FROM '$/f.csv' ORDER BY id";
    assert_eq!(
        folder.run_sql(sql).rows(),
        [["1", "3"], ["2", "3"], ["3", "5"], ["4", "1"], ["5", "5"]]
    );
}

#[test]
fn many_peers_are_held_once_and_refused_over_memory() {
    let folder = Folder::new();
    let lines: String = (0..600_000).map(|n| format!("{},{n:0>90}\n", n % 2)).collect();
    folder.write("e.csv", format!("k,s\n{lines}"));
    let spill = Folder::new();
    let settings = RunSettings {
        threads: 2,
        spill_dirs: vec![spill.path().to_path_buf()],
        ..RunSettings::new(64 << 20)
    };
    let sql =
        "SELECT count(), max(c) FROM (SELECT k, count() OVER (ORDER BY k) AS c FROM '$/e.csv')";
    assert_eq!(folder.run_sql_with(sql, &settings).rows(), [["600000", "600000"]]);
    let sql = "SELECT s, count() OVER (ORDER BY k) AS c FROM '$/e.csv'";
    let Err(error) = folder.try_run_sql(sql, &settings) else { panic!("{sql} was answered") };
    let text = error.to_string();
    assert!(
        text.starts_with(
            "out of memory: a window over equal rows, which holds those that are equal,"
        ),
        "{text}"
    );
}

#[test]
fn windows_order_by_every_type_and_find_peers() {
    let folder = Folder::new();
    for (from, order, expected) in [
        // The difference of two times: the longest first.
        (
            "(SELECT x, TIMESTAMP '2026-01-01 00:00:00' + CASE x WHEN 1 THEN INTERVAL '3 hours' \
             ELSE INTERVAL '2 hours' END - TIMESTAMP '2026-01-01 00:00:00' AS k \
             FROM (VALUES (1), (2), (3)) v(x))",
            "k DESC",
            [["1", "1", "1", "1"], ["2", "2", "6", "3"], ["3", "2", "6", "3"]],
        ),
        (
            "(SELECT 3 AS x, [3] AS k UNION ALL SELECT 1, [1] UNION ALL SELECT 2, [NULL])",
            "k NULLS FIRST",
            [["1", "1", "1", "1"], ["2", "3", "6", "3"], ["3", "2", "4", "2"]],
        ),
        (
            "(SELECT 3 AS x, [[3]] AS k UNION ALL SELECT 1, [[NULL]] UNION ALL SELECT 2, [NULL])",
            "k DESC NULLS LAST",
            [["1", "2", "3", "2"], ["2", "1", "2", "1"], ["3", "3", "6", "3"]],
        ),
        (
            "(SELECT 3 AS x, {'a': 3} AS k UNION ALL SELECT 1, {'a': 1} UNION ALL SELECT 2, {'a': 2})",
            "k",
            [["1", "1", "1", "1"], ["2", "2", "3", "2"], ["3", "3", "6", "3"]],
        ),
        (
            "(SELECT 3 AS x, CAST('10:00' AS TIME) AS k UNION ALL SELECT 1, CAST('09:00' AS TIME) \
             UNION ALL SELECT 2, CAST('09:00' AS TIME))",
            "k",
            [["1", "1", "3", "2"], ["2", "1", "3", "2"], ["3", "3", "6", "3"]],
        ),
    ] {
        for sum in ["sum(x) OVER w", "sum(x) FILTER (WHERE true) OVER w"] {
            let sql = format!(
                "SELECT x, rank() OVER w, {sum}, count() OVER w \
                 FROM {from} WINDOW w AS (ORDER BY {order}) ORDER BY x"
            );
            assert_eq!(folder.run_sql(&sql).rows(), expected, "{sql}");
        }
    }
}

#[test]
fn invalid_frame_offsets_are_refused() {
    let folder = Folder::new();
    folder.write(
        "d.csv",
        "d,t,s,n\n2026-01-01,2026-01-01 00:00:00,a,1\n2026-01-20,2026-01-20 00:00:00,b,2\n",
    );
    for (frame, expected) in [
        ("ORDER BY d RANGE 5 PRECEDING", "`RANGE 5` of a DATE says no unit"),
        ("ORDER BY t RANGE BETWEEN CURRENT ROW AND 1.5 FOLLOWING", "says no unit"),
        ("ORDER BY s RANGE 1 PRECEDING", "is of numbers, dates and timestamps, and not of TEXT"),
        ("ORDER BY n > 1 RANGE 1 PRECEDING", "and not of BOOLEAN"),
        ("ORDER BY t - t RANGE INTERVAL '1 hour' PRECEDING", "extract(epoch FROM x)"),
        (
            "ORDER BY n RANGE 0.5 PRECEDING",
            "is no distance between whole numbers, which BIGINT has",
        ),
        (
            "ORDER BY n RANGE INTERVAL '1 day' PRECEDING",
            "is no distance between numbers of type BIGINT",
        ),
        ("ORDER BY t RANGE INTERVAL '-1 day' PRECEDING", "`RANGE -1 day` is a distance below zero"),
        (
            "ORDER BY n RANGE BETWEEN -1 PRECEDING AND CURRENT ROW",
            "of zero and more, or an interval",
        ),
        ("ORDER BY n ROWS BETWEEN 1 PRECEDING AND 3 PRECEDING", "ends before it begins"),
    ] {
        let message = folder.sql_error(&format!("SELECT sum(n) OVER ({frame}) FROM '$/d.csv'"));
        assert!(message.contains(expected) && message.contains("hint: "), "{frame}: {message}");
    }
    for (frame, expected) in [
        ("ORDER BY d RANGE INTERVAL '5 days' PRECEDING", [["1"], ["2"]]),
        ("ORDER BY t RANGE INTERVAL '1 month' PRECEDING", [["1"], ["3"]]),
        ("ORDER BY n RANGE 1 PRECEDING", [["1"], ["3"]]),
        ("ORDER BY CAST(n AS DOUBLE) RANGE 0.5 PRECEDING", [["1"], ["2"]]),
    ] {
        let sql = format!("SELECT sum(n) OVER ({frame}) FROM '$/d.csv' ORDER BY d");
        assert_eq!(folder.run_sql(&sql).rows(), expected, "{frame}");
    }
}

#[test]
fn values_that_leave_a_frame_do_not_affect_later_rows() {
    let mut random = Random(41);
    let folder = Folder::new();
    // Outliers, infinities and NaN, among values far from zero.
    let rows: Vec<(Option<f64>, f64)> = (0..400)
        .map(|n| {
            let x = match random.next_below(40) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => 1e15,
                _ => 1_767_225_600.0 + random.next_below(1 << 20) as f64 / 1024.0,
            };
            ((random.next_below(9) > 0).then_some(x), n as f64 / 8.0)
        })
        .collect();
    let lines: String = rows
        .iter()
        .enumerate()
        .map(|(n, (x, y))| format!("{n},{},{y:?}\n", x.map_or(String::new(), |x| format!("{x:?}"))))
        .collect();
    folder.write("m.csv", format!("n,x,y\n{lines}"));
    let frame = "(ORDER BY n ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)";
    let calls = [
        "var_pop(x)",
        "var(x)",
        "stddev(x)",
        "stddev_pop(x)",
        "covar_pop(y, x)",
        "covar_samp(y, x)",
        "corr(y, x)",
        "regr_slope(y, x)",
        "regr_intercept(y, x)",
        "regr_r2(y, x)",
        "regr_avgx(y, x)",
        "regr_sxx(y, x)",
        "regr_syy(y, x)",
        "regr_sxy(y, x)",
        "regr_count(y, x)",
    ];
    let columns = calls.map(|call| format!("{call} OVER {frame}")).join(", ");
    let found = folder.run_sql(&format!("SELECT {columns} FROM '$/m.csv' ORDER BY n")).rows();
    for (n, found) in found.iter().enumerate() {
        let pairs: Vec<(f64, f64)> =
            rows[n.saturating_sub(3)..=n].iter().filter_map(|(x, y)| Some(((*x)?, *y))).collect();
        let count = pairs.len() as f64;
        let specials: f64 = pairs.iter().map(|(x, _)| x).filter(|x| !x.is_finite()).sum();
        let is_special = pairs.iter().any(|(x, _)| !x.is_finite());
        // Relative to the first value, so that nothing is lost between values far from zero.
        let from = pairs.first().map_or((0.0, 0.0), |pair| *pair);
        let apart: Vec<(f64, f64)> = pairs.iter().map(|(x, y)| (x - from.0, y - from.1)).collect();
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| apart.iter().map(of).sum::<f64>() / count;
        let (mx, my) = (mean(&|pair| pair.0), mean(&|pair| pair.1));
        let centered = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            apart.iter().map(|(x, y)| of(x - mx, y - my)).sum()
        };
        let (sxx, syy) = (centered(&|x, _| x * x), centered(&|_, y| y * y));
        let sxy = centered(&|x, y| x * y);
        let sample = count - 1.0;
        let slope = sxy / sxx;
        let unless = |is_null: bool, value: f64| (!is_null).then_some(value);
        let (none, one) = (pairs.is_empty(), pairs.len() < 2);
        let is_flat = one || sxx == 0.0;
        let expected = [
            unless(none, sxx / count),
            unless(one, sxx / sample),
            unless(one, (sxx / sample).sqrt()),
            unless(none, (sxx / count).sqrt()),
            unless(none, sxy / count),
            unless(one, sxy / sample),
            unless(is_flat, sxy / (sxx * syy).sqrt()),
            unless(is_flat, slope),
            unless(is_flat, my + from.1 - slope * (mx + from.0)),
            unless(is_flat, sxy * sxy / (sxx * syy)),
            unless(none, mx + from.0),
            unless(none, sxx),
            unless(none, syy),
            unless(none, sxy),
            Some(count),
        ];
        for ((call, found), expected) in calls.iter().zip(found).zip(expected) {
            // A mean behaves as a sum does, and an aggregate of `y` alone is independent of `x`.
            let special = match *call {
                "regr_count(y, x)" | "regr_syy(y, x)" => None,
                "regr_avgx(y, x)" => Some(specials),
                _ => Some(f64::NAN),
            };
            let special = special.filter(|_| is_special);
            let Some(expected) = expected.map(|value| special.unwrap_or(value)) else {
                // A slope over a NaN is a NaN, too.
                assert!(
                    found == "∅" || (is_special && found == "NaN"),
                    "{call} of row {n}: {found}"
                );
                continue;
            };
            let found: f64 = found.parse().unwrap_or_else(|_| panic!("{call} of row {n}: {found}"));
            let is_near = (found - expected).abs() <= 1e-9 * expected.abs().max(1e-9)
                || (expected.is_nan() && found.is_nan())
                || found == expected;
            assert!(is_near, "{call} of row {n}: {found}, {expected} expected");
        }
    }
    let message = folder.sql_error(
        "SELECT stddev(x) OVER (ORDER BY n ROWS 2 PRECEDING) FROM (SELECT n, 1e200 AS x FROM '$/m.csv')",
    );
    assert!(message.contains("`stddev(x)` is of values beyond 1e140"), "{message}");
}

#[test]
fn logical_and_bitwise_aggregates_work_in_sliding_frames() {
    let mut random = Random(43);
    let folder = Folder::new();
    let message = folder.sql_error(
        "SELECT string_agg(x, ',') OVER (ORDER BY x ROWS 1 PRECEDING) FROM (VALUES ('a')) v(x)",
    );
    assert!(message.contains("cannot be taken of a frame that slides"), "{message}");
    let rows: Vec<(Option<bool>, Option<i64>)> = (0..300)
        .map(|_| {
            let some = |random: &mut Random| random.next_below(3) > 0;
            let flag = random.next_below(2) == 1;
            let number = random.next() as i64;
            (some(&mut random).then_some(flag), some(&mut random).then_some(number))
        })
        .collect();
    let lines: String = rows
        .iter()
        .enumerate()
        .map(|(n, (flag, number))| {
            let text = |value: Option<String>| value.unwrap_or_default();
            let (flag, number) = (flag.map(|b| b.to_string()), number.map(|n| n.to_string()));
            format!("{n},{},{}\n", text(flag), text(number))
        })
        .collect();
    folder.write("b.csv", format!("n,b,i\n{lines}"));
    let sql = "SELECT bool_and(b) OVER w, bool_or(b) OVER w, bit_and(i) OVER w, bit_or(i) OVER w, \
               bit_xor(i) OVER w, bit_xor(CAST(i % 100 AS TINYINT)) OVER w FROM '$/b.csv' \
               WINDOW w AS (ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) ORDER BY n";
    for (n, found) in folder.run_sql(sql).rows().iter().enumerate() {
        let frame = &rows[n.saturating_sub(1)..=n];
        let flags: Vec<bool> = frame.iter().filter_map(|row| row.0).collect();
        let numbers: Vec<i64> = frame.iter().filter_map(|row| row.1).collect();
        let bits = |of: fn(i64, i64) -> i64| format_optional(numbers.iter().copied().reduce(of));
        let expected = [
            format_optional(flags.iter().copied().reduce(|one, other| one & other)),
            format_optional(flags.iter().copied().reduce(|one, other| one | other)),
            bits(|one, other| one & other),
            bits(|one, other| one | other),
            bits(|one, other| one ^ other),
            format_optional(
                numbers.iter().map(|number| number % 100).reduce(|one, other| one ^ other),
            ),
        ];
        assert_eq!(*found, expected, "row {n}");
    }
}

/// A type's name, the text of its keys, the keys, and distances as text and in the type's smallest unit.
type RangeFrameCase<'a> = (&'a str, fn(i128) -> String, &'a [i128], &'a [(&'a str, i128)]);

#[test]
fn frame_offsets_beyond_the_type_are_refused() {
    let folder = Folder::new();
    folder.write("r.csv", "x,d\n1,2026-01-01\n,\n");
    for (key, offset, expected) in [
        ("d", "INTERVAL '300000 years'", "reaches further than a DATE does"),
        ("CAST(d AS TIMESTAMP)", "INTERVAL '300000 years'", "reaches further than a TIMESTAMP"),
        ("CAST(d AS TIMESTAMP(9))", "INTERVAL '300 years'", "reaches further than a TIMESTAMP"),
        ("CAST(d AS TIMESTAMP(0))", "INTERVAL '1 nanosecond'", "is finer than microseconds"),
        ("CAST(x AS DECIMAL(76,2))", "0.001", "needs 78 digits"),
        ("x", "1.5", "is no distance between whole numbers"),
        ("x", "1e-1", "is no distance between whole numbers"),
    ] {
        let message = folder.sql_error(&format!(
            "SELECT count() OVER (ORDER BY {key} RANGE {offset} PRECEDING) FROM '$/r.csv'"
        ));
        assert!(message.contains(expected), "{key}, {offset}: {message}");
    }
    let sql = "SELECT sum(x) OVER (ORDER BY x RANGE 1e3 PRECEDING) FROM '$/r.csv' WHERE x = 1";
    assert_eq!(folder.run_sql(sql).single_value(), "1");
}

/// The rows of a RANGE frame, by keys at the ends of their types and rows without a key.
#[test]
fn range_frames_contain_rows_within_the_distance() {
    let folder = Folder::new();
    let mut random = Random(13);
    let whole = |key: i128| key.to_string();
    let tenths = |key: i128| format!("{}.{}", key / 10, key % 10);
    let days = |key: i128| format!("2026-01-{:0>2}", key % 28 + 1);
    let seconds = |key: i128| format!("2026-01-01 00:00:{key:0>2}");
    let cases: [RangeFrameCase<'_>; 10] = [
        ("TINYINT", whole, &[-128, -127, 0, 1, 2, 126, 127], &[("0", 0), ("1", 1), ("200", 200)]),
        ("TINYINT UNSIGNED", whole, &[0, 1, 2, 254, 255], &[("1", 1), ("255", 255)]),
        (
            "BIGINT",
            whole,
            &[i64::MIN as i128, i64::MIN as i128 + 1, 0, 5, i64::MAX as i128 - 1, i64::MAX as i128],
            &[("1", 1), ("2", 2), ("9223372036854775807", i64::MAX as i128)],
        ),
        // In hundredths, which the keys do not have.
        (
            "DECIMAL(5,1)",
            tenths,
            &[0, 1, 2, 3, 10, 99999],
            &[("0.15", 15), ("2e-1", 20), ("1.0", 100)],
        ),
        // In hundredths, which do not fit beside the 38 digits of the keys.
        (
            "DECIMAL(38,1)",
            tenths,
            &[0, 1, 2, 3, 10, 10_i128.pow(36), 10_i128.pow(37) - 1],
            &[("0.15", 15), ("15E-2", 15)],
        ),
        ("DECIMAL(50,1)", tenths, &[0, 1, 2, 3, 10, 99999], &[("0.15", 15), ("0.2", 20)]),
        // In hours.
        (
            "DATE",
            days,
            &[0, 1, 2, 3, 27],
            &[("INTERVAL '36 hours'", 36), ("INTERVAL '1 day'", 24), ("INTERVAL '47 hours'", 47)],
        ),
        ("TIMESTAMP(9)", days, &[0, 1, 2, 3, 27], &[("INTERVAL '36 hours'", 36)]),
        // In tenths of a second.
        (
            "TIMESTAMP(0)",
            seconds,
            &[0, 1, 2, 3, 59],
            &[("INTERVAL '1.5 seconds'", 15), ("INTERVAL '2 seconds'", 20)],
        ),
        ("TIMESTAMP(0) WITH TIME ZONE", seconds, &[0, 1, 2, 3], &[("INTERVAL '0.5 seconds'", 5)]),
    ];
    for (name, written, keys, distances) in cases {
        let scale = match name {
            name if name.starts_with("DECIMAL") || name.starts_with("TIMESTAMP(0)") => 10,
            "DATE" | "TIMESTAMP(9)" => 24,
            _ => 1,
        };
        let rows: Vec<Option<i128>> = (0..60)
            .map(|_| {
                let key = keys[random.next_below(keys.len() as u64) as usize];
                (random.next_below(5) > 0).then_some(key)
            })
            .collect();
        let lines: String = rows
            .iter()
            .enumerate()
            .map(|(n, key)| format!("{n},{}\n", key.map_or(String::new(), written)))
            .collect();
        folder.write("r.csv", format!("n,x\n{lines}"));
        for (text, distance) in distances {
            for descends in [false, true] {
                for nulls_first in [false, true] {
                    // Distances of the first and the last row of a frame, in ascending order; `None` is
                    // unbounded.
                    let here = Some(0);
                    let (by, far) = (Some(-distance), Some(*distance));
                    let bounds = [
                        (format!("{text} PRECEDING AND CURRENT ROW"), by, here),
                        (format!("CURRENT ROW AND {text} FOLLOWING"), here, far),
                        (format!("{text} PRECEDING AND {text} PRECEDING"), by, by),
                        (format!("{text} FOLLOWING AND {text} FOLLOWING"), far, far),
                        (format!("UNBOUNDED PRECEDING AND {text} PRECEDING"), None, by),
                        (format!("{text} FOLLOWING AND UNBOUNDED FOLLOWING"), far, None),
                    ];
                    for (bounds, first, last) in bounds {
                        let sql = format!(
                            "SELECT count(*) OVER (ORDER BY CAST(x AS {name}){} NULLS {} \
                             RANGE BETWEEN {bounds}) FROM '$/r.csv' ORDER BY n",
                            if descends { " DESC" } else { "" },
                            if nulls_first { "FIRST" } else { "LAST" },
                        );
                        let is_in = |of: Option<i128>, other: Option<i128>| match (of, other) {
                            (None, None) => true,
                            (None, Some(_)) if nulls_first => last.is_none(),
                            (None, Some(_)) => first.is_none(),
                            (Some(_), None) if nulls_first => first.is_none(),
                            (Some(_), None) => last.is_none(),
                            (Some(of), Some(other)) => {
                                let way = (other - of) * scale * if descends { -1 } else { 1 };
                                first.is_none_or(|first| way >= first)
                                    && last.is_none_or(|last| way <= last)
                            }
                        };
                        let expected: Vec<[String; 1]> = rows
                            .iter()
                            .map(|of| [rows.iter().filter(|other| is_in(*of, **other)).count()])
                            .map(|[count]| [count.to_string()])
                            .collect();
                        assert_eq!(folder.run_sql(&sql).rows(), expected, "{name}: {sql}");
                    }
                }
            }
        }
    }
}

#[test]
fn rows_with_null_keys_share_one_range_frame() {
    let folder = Folder::new();
    let lines: String =
        (0..20_000).map(|n| format!("{n},{}\n", if n % 2 > 0 { "" } else { "0" })).collect();
    folder.write("r.csv", format!("n,x\n{lines}"));
    for (order, start, expected) in [
        ("NULLS FIRST", "2 PRECEDING", [["0", "10000"], ["10000", "10000"]]),
        ("DESC NULLS LAST", "2 PRECEDING", [["0", "10000"], ["10000", "10000"]]),
        ("NULLS LAST", "UNBOUNDED PRECEDING", [["0", "10000"], ["20000", "10000"]]),
    ] {
        let sql = format!(
            "SELECT c, count(*) FROM (SELECT count(*) OVER (ORDER BY x {order} \
             RANGE BETWEEN {start} AND 1 PRECEDING) AS c FROM '$/r.csv') GROUP BY c ORDER BY c"
        );
        let settings = RunSettings { threads: 1, ..RunSettings::new(64 << 20) };
        assert_eq!(folder.run_sql_with(&sql, &settings).rows(), expected, "{sql}");
    }
}

#[test]
fn window_keys_can_be_computed() {
    let folder = Folder::new();
    folder
        .write("k.csv", "x,s,f,t\n1,a,1.5,2026-01-01\n2,bb,2.5,2026-02-01\n3,ccc,0.5,2026-03-01\n");
    for (over, expected) in [
        ("ORDER BY DATE '2020-01-01' + x", ["1", "3", "6"]),
        ("ORDER BY DATE '2020-01-01' - x", ["6", "5", "3"]),
        ("ORDER BY 1e0 - sqrt(f)", ["3", "2", "6"]),
        ("ORDER BY -abs(f)", ["3", "2", "6"]),
        ("PARTITION BY length(s) > 1 ORDER BY x", ["1", "2", "5"]),
        ("PARTITION BY NOT (length(s) > 1), date_trunc('year', t) ORDER BY x", ["1", "2", "5"]),
        ("PARTITION BY t > date_trunc('year', t) ORDER BY abs(x - 9)", ["1", "5", "3"]),
        ("ORDER BY upper(s) DESC, length(s)", ["6", "5", "3"]),
    ] {
        for more in ["", ", rank() OVER (ORDER BY length(s) + x) AS r", ", count() OVER () AS c"] {
            let sql = format!(
                "SELECT a FROM (SELECT x, sum(x) OVER ({over}) AS a{more} FROM '$/k.csv') ORDER BY x"
            );
            assert_eq!(folder.run_sql(&sql).rows(), expected.map(|value| [value]), "{sql}");
        }
    }
    // By a key that no column of the input has.
    let sql = "SELECT max(s) FROM (SELECT sum(1) OVER (ORDER BY random()) AS s FROM '$/k.csv')";
    assert_eq!(folder.run_sql(sql).single_value(), "3");
    // A window over the result of another.
    let sql = "SELECT x, sum(x) OVER (ORDER BY r % 2, x) FROM \
               (SELECT x, rank() OVER (ORDER BY length(s)) AS r FROM '$/k.csv') ORDER BY x";
    assert_eq!(folder.run_sql(sql).rows(), [["1", "3"], ["2", "2"], ["3", "6"]]);
}

#[test]
fn last_value_ignore_nulls_carries_values_forward() {
    let folder = Folder::new();
    folder.write("f.csv", "n,v\n1,\n2,a\n3,\n4,\n5,b\n6,\n");
    for (call, expected) in [
        ("last_value(v) IGNORE NULLS OVER (ORDER BY n)", ["∅", "a", "a", "a", "b", "b"]),
        ("first_value(v) IGNORE NULLS OVER (ORDER BY n)", ["∅", "a", "a", "a", "a", "a"]),
        ("last_value(v) IGNORE NULLS OVER (ORDER BY n DESC)", ["a", "a", "b", "b", "b", "∅"]),
        (
            "last_value(v) IGNORE NULLS OVER (ORDER BY n ROWS 1 PRECEDING)",
            ["∅", "a", "a", "∅", "b", "b"],
        ),
        (
            "last_value(v) IGNORE NULLS OVER (PARTITION BY n % 2 ORDER BY n ROWS UNBOUNDED PRECEDING)",
            ["∅", "a", "∅", "a", "b", "a"],
        ),
        ("last_value(v) OVER (ORDER BY n)", ["∅", "a", "∅", "∅", "b", "∅"]),
    ] {
        let sql = format!("SELECT {call} FROM '$/f.csv' ORDER BY n");
        let answer = folder.run_sql(&sql);
        assert_eq!(answer.rows(), expected.map(|value| [value]), "{sql}");
        assert_eq!(answer.column_names(), [call]);
    }
}

#[test]
fn filter_excludes_rows_from_every_frame() {
    let folder = Folder::new();
    folder.write("f.csv", "n,k\n1,1\n2,\n3,1\n4,0\n5,1\n");
    for (call, expected) in [
        ("sum(n) FILTER (WHERE k = 1) OVER (ORDER BY n)", ["1", "1", "4", "4", "9"]),
        ("sum(n) FILTER (WHERE k = 1) OVER ()", ["9"; 5]),
        ("count() FILTER (WHERE k = 7) OVER ()", ["0"; 5]),
        (
            "sum(n) FILTER (WHERE k = 1) OVER (ORDER BY n ROWS 1 PRECEDING)",
            ["1", "1", "3", "3", "5"],
        ),
        ("count(DISTINCT k) FILTER (WHERE n > 1) OVER (ORDER BY n)", ["0", "0", "1", "2", "2"]),
        (
            "string_agg(n, '-') FILTER (WHERE k = 1) OVER (ORDER BY n DESC)",
            ["5-3-1", "5-3", "5-3", "5", "5"],
        ),
    ] {
        let sql = format!("SELECT {call} FROM '$/f.csv' ORDER BY n");
        let answer = folder.run_sql(&sql.replace("string_agg(n", "string_agg(CAST(n AS TEXT)"));
        assert_eq!(answer.rows(), expected.map(|value| [value]), "{sql}");
    }
}

/// DataFusion's ranks are unsigned.
#[test]
fn ranks_are_signed_integers() {
    let folder = Folder::new();
    folder.write("r.csv", "word,rec\na,1\nb,2\n");
    let sql = "SELECT -row_number() OVER (ORDER BY rec), rank() OVER (ORDER BY rec) - 5, \
               dense_rank() OVER (ORDER BY rec DESC) * -1, - ntile(2) OVER (ORDER BY rec) \
               FROM '$/r.csv' ORDER BY rec";
    assert_eq!(folder.run_sql(sql).rows(), [["-1", "-4", "-2", "-1"], ["-2", "-3", "-1", "-2"]]);
}

/// The planner replaces the number by the whole expression.
#[test]
fn window_over_groups_can_be_ordered_by_position() {
    let folder = Folder::new();
    folder.write("r.csv", "word,rec\na,1\nb,2\n");
    let sql = "SELECT word, row_number() OVER (ORDER BY sum(\"rec\")) FROM '$/r.csv' GROUP BY word \
               ORDER BY 2 DESC";
    let answer = folder.run_sql(sql);
    assert_eq!(answer.rows(), [["b", "2"], ["a", "1"]]);
    assert_eq!(answer.column_names()[1], "row_number() OVER (ORDER BY sum(rec))");
}
