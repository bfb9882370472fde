//! `sum` and `avg` on every path: in windows, beside DISTINCT, of sums, under joins.

use crate::common::{Folder, Random, text};

const BIG: &str = "k,v,f\na,9223372036854775807,1e16\nb,1,1\nc,0,-1e16\n";

#[test]
fn a_sum_that_does_not_fit_is_an_error_on_every_path() {
    let folder = Folder::new();
    folder.write("o.csv", BIG);
    folder.write("k.csv", "k\na\nb\nc\n");
    for sql in [
        "SELECT sum(v) FROM '$/o.csv'",
        "SELECT count(DISTINCT k), sum(v) FROM '$/o.csv'",
        "SELECT sum(s) FROM (SELECT k, sum(v) AS s FROM '$/o.csv' GROUP BY k)",
        "SELECT k, sum(v) OVER () FROM '$/o.csv'",
        "SELECT k, sum(v) OVER (ORDER BY k) FROM '$/o.csv'",
        "SELECT k, sum(v) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM '$/o.csv'",
        "SELECT sum(DISTINCT v), count(DISTINCT k) FROM '$/o.csv'",
        "SELECT sum(v), stddev(f) FROM '$/o.csv'",
        "SELECT sum(v), stddev(f) FROM '$/o.csv' GROUP BY length(k)",
        "SELECT x, sum(v) FROM (SELECT a.v, 1 AS x FROM '$/o.csv' a, '$/k.csv' b WHERE a.k <= b.k) GROUP BY x",
    ] {
        let message = folder.refusal(sql);
        assert!(message.contains("does not fit") && message.contains("hint:"), "{sql}: {message}");
        assert!(!message.contains("o.csv"), "{sql}: {message}");
    }
}

#[test]
fn sums_of_floats_are_rounded_once_on_every_path() {
    let folder = Folder::new();
    folder.write("o.csv", BIG);
    for (sql, expected) in [
        ("SELECT sum(f) FROM '$/o.csv'", "1.0"),
        ("SELECT sum(f) FROM (SELECT count(DISTINCT k), sum(f) AS f FROM '$/o.csv')", "1.0"),
        ("SELECT sum(f) FROM (SELECT f FROM '$/o.csv' ORDER BY k)", "1.0"),
        ("SELECT max(s) FROM (SELECT k, sum(f) OVER () AS s FROM '$/o.csv')", "1.0"),
        ("SELECT sum(s) FROM (SELECT stddev(v) AS d, sum(f) AS s FROM '$/o.csv')", "1.0"),
        ("SELECT avg(s) FROM (SELECT stddev(v) AS d, mean(f) * 3 AS s FROM '$/o.csv')", "1.0"),
        ("SELECT sum(DISTINCT f) FROM '$/o.csv'", "1.0"),
        (
            "SELECT a FROM (SELECT stddev(f) AS d, avg(x) AS a FROM \
             (SELECT f, CASE k WHEN 'a' THEN 9007199254740993 ELSE 1 END AS x \
              FROM '$/o.csv' WHERE k <> 'c'))",
            "4503599627370497.0",
        ),
    ] {
        assert_eq!(folder.ask(sql).only(), expected, "{sql}");
    }
}

#[test]
fn a_frame_that_slides_is_as_exact_as_one_that_is_added_up_anew() {
    let mut random = Random(11);
    let folder = Folder::new();
    let count = 120_usize;
    // Multiples of 2^-20 up to 2^60: a sum of them has one double that is nearest.
    let rows: Vec<(Option<i64>, i64)> = (0..count)
        .map(|_| {
            let whole = (random.next() as i64) >> 8;
            let part = (random.next() as i64) >> (4 + random.next() % 40);
            (random.next().is_multiple_of(7).then_some(whole), part)
        })
        .collect();
    let lines: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(n, (whole, part))| {
            let whole = whole.map_or(String::new(), |whole| whole.to_string());
            let special = if n == 50 { "inf".into() } else { format!("{:e}", *part as f64) };
            format!("{n},{whole},{:e},{special}", *part as f64 / 1_048_576.0)
        })
        .collect();
    folder.write("w.csv", format!("n,i,f,s\n{}\n", lines.join("\n")));
    for (before, after) in [(0, 0), (1, 0), (3, 2), (40, 1)] {
        let frame = format!("(ORDER BY n ROWS BETWEEN {before} PRECEDING AND {after} FOLLOWING)");
        let sql = format!(
            "SELECT n, sum(i) OVER {frame}, avg(f) OVER {frame}, sum(f) OVER {frame}, \
             sum(s) OVER {frame} = 'inf' FROM '$/w.csv' ORDER BY n"
        );
        let found = folder.ask(&sql).rows();
        assert_eq!(found.len(), count);
        for (n, found) in found.iter().enumerate() {
            let frame = n.saturating_sub(before)..(n + after + 1).min(count);
            let whole: Vec<i128> =
                rows[frame.clone()].iter().filter_map(|row| row.0).map(i128::from).collect();
            let part: i128 = rows[frame.clone()].iter().map(|row| (row.1 as f64) as i128).sum();
            let sum = part as f64 / 1_048_576.0;
            let whole = match whole.is_empty() {
                true => "∅".to_string(),
                false => whole.iter().sum::<i128>().to_string(),
            };
            assert_eq!(found[1], whole, "row {n} of {frame:?}");
            let floats: Vec<f64> = found[2..4].iter().map(|v| v.parse().unwrap()).collect();
            assert_eq!(floats, [sum / frame.len() as f64, sum], "row {n} of {frame:?}");
            assert_eq!(found[4], frame.contains(&50).to_string(), "row {n} of {frame:?}");
        }
    }
}

#[test]
fn groups_give_the_same_sums_on_both_paths() {
    let mut random = Random(5);
    let folder = Folder::new();
    let lines: Vec<String> = (0..5000)
        .map(|_| {
            let (k, bits) = (random.next() % 700, random.next());
            let f = f64::from_bits((bits & !(0x7ff << 52)) | ((1000 + bits % 60) << 52));
            format!("{k},{},{f:e},{}.{:02}", bits as i64 >> 14, bits % 10_000, bits % 100)
        })
        .collect();
    folder.write("g.csv", format!("k,i,f,d\n{}\n", lines.join("\n")));
    let sums = "sum(i), avg(i), sum(f), mean(f), sum(CAST(d AS DECIMAL(10,2))), \
                avg(CAST(d AS DECIMAL(10,2))), sum(i) FILTER (WHERE f > 0)";
    let tables = folder.ask(&format!("SELECT k, {sums} FROM '$/g.csv' GROUP BY k ORDER BY k"));
    // `stddev` has no mergeable state: DataFusion's path, with partial and final aggregation.
    let engine = folder
        .ask(&format!("SELECT k, {sums}, stddev(f) FROM '$/g.csv' GROUP BY k ORDER BY k"))
        .rows();
    let engine: Vec<Vec<String>> = engine.into_iter().map(|row| row[..8].to_vec()).collect();
    assert_eq!(engine, tables.rows());
    let distinct = folder
        .ask("SELECT sum(DISTINCT k), avg(DISTINCT k), count(DISTINCT i % 3) FROM '$/g.csv'")
        .rows();
    let same = folder.ask("SELECT sum(k), avg(k) FROM (SELECT DISTINCT k FROM '$/g.csv')").rows();
    assert_eq!(distinct[0][..2], same[0][..]);
}

#[test]
fn distinct_sums_slide() {
    let folder = Folder::new();
    folder.write("d.csv", "n,v\n1,5\n2,5\n3,7\n4,5\n5,\n6,7\n");
    let sql = "SELECT n, sum(DISTINCT v) OVER (ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) \
               FROM '$/d.csv' ORDER BY n";
    let expected =
        [&["1", "5"][..], &["2", "5"], &["3", "12"], &["4", "12"], &["5", "5"], &["6", "7"]];
    assert_eq!(folder.ask(sql).rows(), text(&expected));
}
