//! Tests of `ASOF JOIN` against a loop over all pairs.

use proptest::prelude::*;

use crate::common::Folder;

/// A row of either side: key, time and value, each of which can be unknown.
type Row = (Option<i8>, Option<i8>, Option<i8>);

fn row_strategy(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (
        proptest::option::weighted(0.9, 0..3i8),
        proptest::option::weighted(0.9, 0..12i8),
        proptest::option::weighted(0.8, 0..100i8),
    );
    proptest::collection::vec(row, 0..most)
}

fn to_csv(rows: &[Row]) -> String {
    let shown = |value: &Option<i8>| value.map_or(String::new(), |value| value.to_string());
    let lines: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(id, (k, t, v))| format!("{id},{},{},{}\n", shown(k), shown(t), shown(v)))
        .collect();
    format!("id,k,t,v\n{}", lines.concat())
}

/// Returns the matching row of `right` that is nearest to `left`; of several, the greatest.
fn nearest_match<'a>(
    left: &Row,
    right: &'a [Row],
    op: &str,
    by_key: bool,
) -> Option<(usize, &'a Row)> {
    let (left_key, left_time) = (left.0, left.1?);
    let meets = |row: &Row| {
        let Some(time) = row.1 else { return false };
        let same_key = !by_key || left_key.is_some() && row.0 == left_key;
        same_key
            && match op {
                ">=" => left_time >= time,
                ">" => left_time > time,
                "<=" => left_time <= time,
                _ => left_time < time,
            }
    };
    let distance = |row: &Row| (i16::from(left_time) - i16::from(row.1.unwrap_or(0))).abs();
    let met = right.iter().enumerate().filter(|(_, row)| meets(row));
    // The row number is the first column, so the last of several rows at one time is the greatest.
    met.min_by_key(|(id, row)| (distance(row), std::cmp::Reverse(*id)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn asof_join_takes_the_nearest_row_with_an_equal_key(
        left in row_strategy(20),
        right in row_strategy(20),
        op in prop::sample::select(vec![">=", ">", "<=", "<"]),
        by_key in any::<bool>(),
        is_left in any::<bool>(),
    ) {
        let folder = Folder::new();
        folder.write("l.csv", to_csv(&left));
        folder.write("r.csv", to_csv(&right));
        let keys = if by_key { "l.k = r.k AND " } else { "" };
        let kind = if is_left { "LEFT" } else { "" };
        let schema = "id BIGINT, k BIGINT, t BIGINT, v BIGINT";
        let sql = folder.substitute_path(&format!(
            "SELECT l.id, l.v, r.id, r.v FROM '$/l.csv' AS l ASOF {kind} JOIN '$/r.csv' AS r \
             ON {keys}l.t {op} r.t ORDER BY l.id"
        ));
        let query = tidemill_engine::Query { schema: Some(schema.into()), ..crate::common::query(sql) };
        let found = crate::common::run_query(&query, &crate::common::settings()).unwrap().rows();
        let shown = |value: Option<i8>| value.map_or("∅".to_owned(), |value| value.to_string());
        let mut expected = Vec::new();
        for (id, row) in left.iter().enumerate() {
            match nearest_match(row, &right, op, by_key) {
                Some((at, taken)) => {
                    expected.push(vec![id.to_string(), shown(row.2), at.to_string(), shown(taken.2)]);
                }
                None if is_left => {
                    expected.push(vec![id.to_string(), shown(row.2), "∅".into(), "∅".into()]);
                }
                None => {}
            }
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn asof_join_accepts_other_dialects_and_refuses_invalid_conditions() {
    let folder = Folder::new();
    folder.write("l.csv", "k,t\na,3\nb,1\n");
    folder.write("r.csv", "k,t,p\na,1,10\na,2,20\nb,2,30\n");
    for (sql, expected) in [
        ("ASOF JOIN '$/r.csv' r ON l.k = r.k AND l.t >= r.t", vec![["a", "20"]]),
        ("LEFT ASOF JOIN '$/r.csv' r ON l.k = r.k AND l.t >= r.t", vec![["a", "20"], ["b", "∅"]]),
        (
            "ASOF JOIN '$/r.csv' r MATCH_CONDITION (l.t >= r.t) ON l.k = r.k",
            vec![["a", "20"], ["b", "∅"]],
        ),
        ("ASOF JOIN '$/r.csv' r ON r.t > l.t", vec![["b", "30"]]),
        (
            "ASOF JOIN (SELECT k, t * 1.0 AS t, p FROM '$/r.csv') r ON l.k = r.k AND l.t >= r.t",
            vec![["a", "20"]],
        ),
    ] {
        let sql = format!("SELECT l.k, p FROM '$/l.csv' l {sql} ORDER BY 1");
        assert_eq!(folder.run_sql(&sql).rows(), expected, "{sql}");
    }
    for (sql, expected) in [
        ("ON l.k = r.k", "an ASOF JOIN has one comparison by >=, >, <= or <"),
        ("ON l.k = r.k AND l.t >= r.t AND l.t < r.p", "an ASOF JOIN has one comparison"),
        ("USING (k, t)", "an ASOF JOIN is not USING columns"),
        ("ON l.k <> r.k AND l.t >= r.t", "an ASOF JOIN is ON equal keys"),
        ("ON l.t >= l.k", "an ASOF JOIN is ON equal keys"),
    ] {
        let message =
            folder.sql_error(&format!("SELECT p FROM '$/l.csv' l ASOF JOIN '$/r.csv' r {sql}"));
        assert!(message.starts_with(expected), "{sql}\n{message}");
    }
}
