//! Windows against a model, whatever they hold and however they come.

use tidemill_engine::Settings;

use crate::common::{Folder, Random};

struct Row {
    partition: u64,
    /// What rows are in order of.
    order: Option<u64>,
    value: Option<i64>,
}

/// What a row's window has: all rows of its partition up to those that are equal to it.
struct Totals {
    sum: Option<i64>,
    count: usize,
    max: Option<i64>,
    /// The sum of those above zero.
    above: Option<i64>,
    rank: usize,
    /// How many orders there were.
    groups: usize,
}

/// Of each row, nulls being last.
fn totals(rows: &[Row]) -> Vec<Totals> {
    let key = |row: &Row| row.order.unwrap_or(u64::MAX);
    let mut sorted: Vec<usize> = (0..rows.len()).collect();
    sorted.sort_by_key(|index| (rows[*index].partition, key(&rows[*index])));
    let mut totals: Vec<Option<Totals>> = rows.iter().map(|_| None).collect();
    for partition in sorted.chunk_by(|one, other| rows[*one].partition == rows[*other].partition) {
        let mut seen = 0;
        let (mut values, mut groups): (Vec<i64>, usize) = (Vec::new(), 0);
        for equals in partition.chunk_by(|one, other| key(&rows[*one]) == key(&rows[*other])) {
            values.extend(equals.iter().filter_map(|index| rows[*index].value));
            groups += 1;
            let above: Vec<i64> = values.iter().copied().filter(|value| *value > 0).collect();
            for index in equals {
                totals[*index] = Some(Totals {
                    sum: (!values.is_empty()).then(|| values.iter().sum()),
                    count: values.len(),
                    max: values.iter().max().copied(),
                    above: (!above.is_empty()).then(|| above.iter().sum()),
                    rank: seen + 1,
                    groups,
                });
            }
            seen += equals.len();
        }
    }
    totals.into_iter().flatten().collect()
}

fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or("∅".to_owned(), |value| value.to_string())
}

#[test]
fn running_totals_are_of_all_rows_up_to_the_equals() {
    let mut random = Random(23);
    let folder = Folder::new();
    let spill = Folder::new();
    for (partitions, orders, count) in
        [(1, 1, 9_000), (1, 30_000, 9_000), (3, 4, 30_000), (40, 30, 9_000), (5_000, 2, 9_000)]
    {
        let rows: Vec<Row> = (0..count)
            .map(|_| Row {
                partition: random.below(partitions),
                order: (random.below(9) > 0).then(|| random.below(orders)),
                value: (random.below(5) > 0).then(|| random.below(2_000) as i64 - 1_000),
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
        let expected: Vec<Vec<String>> = totals(&rows)
            .into_iter()
            .enumerate()
            .map(|(id, of)| {
                vec![
                    id.to_string(),
                    shown(of.sum),
                    of.rank.to_string(),
                    of.count.to_string(),
                    shown(of.above),
                    of.groups.to_string(),
                    shown(of.max),
                ]
            })
            .collect();
        // Some calls are DataFusion's: ranks, and what has a FILTER.
        for frame in ["", "RANGE UNBOUNDED PRECEDING", "GROUPS UNBOUNDED PRECEDING"] {
            let sql = format!(
                "SELECT id, sum(v) OVER w, rank() OVER w, count(v) OVER w, \
                 sum(v) FILTER (WHERE v > 0) OVER w, dense_rank() OVER w, max(v) OVER w \
                 FROM '$/w.csv' WINDOW w AS (PARTITION BY p ORDER BY d {frame}) ORDER BY id"
            );
            for (megabytes, threads) in [(64, 1), (64, 3), (2_048, 2)] {
                let settings = Settings {
                    threads,
                    spill_folder: spill.path().to_path_buf(),
                    ..Settings::new(megabytes << 20)
                };
                let found = folder.ask_with(&sql, &settings).rows();
                assert!(found == expected, "{partitions} partitions, {orders} orders: {sql}");
            }
        }
        let sql = "SELECT id, sum(v) OVER (PARTITION BY p ORDER BY d) FROM '$/w.csv' ORDER BY id";
        let found = folder.ask(sql).rows();
        let sums = expected.iter().map(|row| row[..2].to_vec());
        assert!(found == sums.collect::<Vec<_>>(), "{partitions} partitions, {orders} orders");
    }
}

#[test]
fn totals_of_equal_zeros_and_not_a_number_are_of_one_order() {
    let folder = Folder::new();
    folder.write("f.csv", "id,f\n1,0.0\n2,-0.0\n3,NaN\n4,-1\n5,NaN\n");
    let sql = "SELECT id, count() OVER (ORDER BY f) FROM '$/f.csv' ORDER BY id";
    assert_eq!(
        folder.ask(sql).rows(),
        [["1", "3"], ["2", "3"], ["3", "5"], ["4", "1"], ["5", "5"]]
    );
}

#[test]
fn many_equals_are_held_once_and_refused_if_they_do_not_fit() {
    let folder = Folder::new();
    let lines: String = (0..600_000).map(|n| format!("{},{n:0>90}\n", n % 2)).collect();
    folder.write("e.csv", format!("k,s\n{lines}"));
    let spill = Folder::new();
    let settings = Settings {
        threads: 2,
        spill_folder: spill.path().to_path_buf(),
        ..Settings::new(64 << 20)
    };
    let sql =
        "SELECT count(), max(c) FROM (SELECT k, count() OVER (ORDER BY k) AS c FROM '$/e.csv')";
    assert_eq!(folder.ask_with(sql, &settings).rows(), [["600000", "600000"]]);
    let sql = "SELECT s, count() OVER (ORDER BY k) AS c FROM '$/e.csv'";
    let Err(error) = folder.try_ask(sql, &settings) else { panic!("{sql} was answered") };
    let text = error.to_string();
    assert!(
        text.starts_with(
            "out of memory: a window over equal rows, which holds those that are equal,"
        ),
        "{text}"
    );
}
