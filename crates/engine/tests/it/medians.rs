//! Medians against sorting all values, on every path.

use std::collections::BTreeMap;

use tidemill_engine::Settings;

use crate::common::{Folder, Random, settings};

/// The middle value, or what lies between the two in the middle.
fn middle(mut values: Vec<f64>) -> Option<f64> {
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

fn shown(value: Option<f64>) -> String {
    value.map_or("∅".into(), |value| format!("{:?}", value + 0.0))
}

#[test]
fn they_are_those_of_all_values_sorted_on_every_path() {
    let folder = Folder::new();
    let mut random = Random(5);
    for keys in [1, 9, 4000] {
        let mut groups: BTreeMap<u64, [Vec<f64>; 3]> = BTreeMap::new();
        let mut out = String::from("k,f,i,d,w\n");
        for _ in 0..6000 {
            let key = random.below(keys);
            let float = match random.below(60) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                3 => -0.0,
                4..10 => 1.7e308,
                10..16 => -1.7e308,
                _ => random.below(1 << 40) as f64 / 1e6,
            };
            let float = (random.below(7) > 0).then_some(float);
            let (int, cents, counts) = (random.below(100), random.below(1000), random.below(2));
            let [floats, ints, counted] = groups.entry(key).or_default();
            floats.extend(float.map(|float| if float.is_nan() { f64::NAN } else { float + 0.0 }));
            ints.push(int as f64);
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
            folder.ask_with(&sql, &Settings { threads, ..settings() }).rows()
        };
        let tables = asked("", 2);
        assert_eq!(tables.len(), groups.len());
        for (row, (key, [floats, ints, counted])) in tables.iter().zip(&groups) {
            let expected =
                [key.to_string(), shown(middle(floats.clone())), shown(middle(ints.clone()))];
            assert_eq!(row[..3], expected);
            assert_eq!(row[3], shown(middle(counted.clone())), "group {key}");
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
        let windows = folder.ask(windows).rows();
        assert!(windows.iter().zip(&tables).all(|(window, row)| window[..] == row[..3]));
    }
    folder.write("d.csv", "x\n1\n1\n1\n3\n8\n");
    for more in ["", ", median(x)"] {
        let sql = format!("SELECT median(DISTINCT x){more} FROM '$/d.csv'");
        assert_eq!(folder.ask(&sql).rows()[0][0], "3.0");
    }
    let sliding = "SELECT median(x) OVER (ORDER BY x ROWS 1 PRECEDING) FROM '$/d.csv' ORDER BY x";
    assert_eq!(folder.ask(sliding).rows(), [["1.0"], ["1.0"], ["1.0"], ["2.0"], ["5.5"]]);
    assert_eq!(folder.ask("SELECT median(x) FROM '$/d.csv' WHERE x > 9").only(), "∅");
    assert_eq!(folder.ask("SELECT median(NULL) FROM '$/d.csv'").only(), "∅");
}

#[test]
fn one_group_that_does_not_fit_is_refused_with_what_would_do() {
    let folder = Folder::new();
    let lines: Vec<String> = (0..3_000_000).map(|n| (n * 7 % 3_000_001).to_string()).collect();
    folder.write("l.csv", format!("x\n{}\n", lines.join("\n")));
    let small = Settings { memory_bytes: 8 << 20, ..settings() };
    let sql = folder.sql("SELECT median(x) FROM '$/l.csv'");
    let refused = folder.try_ask(&sql, &small).err().map(|error| error.to_string());
    let refused = refused.unwrap_or_else(|| "it was answered".into());
    assert!(refused.contains("`median` has") && refused.contains("for one group"), "{refused}");
    assert_eq!(folder.ask(&sql).only(), "1499999.5");
}
