//! Tests of the path that each query takes, and of the agreement of the paths.

use tidemill_engine::QueryPlan;

use crate::common::{Folder, query, settings, string_rows};

const TABLE_PATH: &str = "partial tables";
const ROW_PATH: &str = "rows";
const ENGINE_PATH: &str = "datafusion";

fn files() -> Folder {
    let folder = Folder::new();
    folder.write(
        "f.csv",
        "day,origin,distance,tail\n1,EWR,100,a\n1,JFK,200,b\n2,EWR,300,a\n2,EWR,100,c\n2,LGA,,\n",
    );
    folder.write("tags.jsonl", "{\"id\":1,\"tags\":[\"x\",\"y\"]}\n{\"id\":2,\"tags\":[\"x\"]}\n");
    folder.write("names.csv", "origin,name\nEWR,Newark\nJFK,Kennedy\n");
    folder
}

#[test]
fn each_query_takes_its_path_and_answers() {
    let folder = files();
    // SQL, path, part of `why`, first row of the sorted answer
    let unordered = "per-record steps alone";
    let one = "one aggregation over one source";
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("SELECT origin, count(*) FROM '$/f.csv' GROUP BY origin", TABLE_PATH, one, &["EWR", "3"]),
        ("SELECT sum(distance) FROM '$/f.csv'", TABLE_PATH, one, &["700"]),
        (
            "SELECT origin, sum(distance) AS s FROM '$/f.csv' GROUP BY origin HAVING sum(distance) > 250",
            TABLE_PATH,
            one,
            &["EWR", "500"],
        ),
        (
            "SELECT origin FROM '$/f.csv' GROUP BY origin ORDER BY count(*) DESC, origin LIMIT 1",
            TABLE_PATH,
            one,
            &["EWR"],
        ),
        ("SELECT DISTINCT origin FROM '$/f.csv'", TABLE_PATH, one, &["EWR"]),
        ("SELECT count(DISTINCT origin) FROM '$/f.csv'", TABLE_PATH, one, &["3"]),
        (
            "SELECT day, count(DISTINCT origin) FROM '$/f.csv' GROUP BY day",
            TABLE_PATH,
            one,
            &["1", "2"],
        ),
        (
            "SELECT max(n) FROM (SELECT origin, count(*) AS n FROM '$/f.csv' GROUP BY origin)",
            TABLE_PATH,
            one,
            &["3"],
        ),
        (
            "SELECT avg(d) FROM (SELECT distance * 2 AS d FROM '$/f.csv' WHERE day = 2)",
            TABLE_PATH,
            one,
            &["400.0"],
        ),
        (
            "SELECT o, d FROM (SELECT origin AS o, sum(distance) AS d FROM '$/f.csv' GROUP BY 1) WHERE d = 200",
            TABLE_PATH,
            one,
            &["JFK", "200"],
        ),
        (
            "SELECT sum(distance) / count(distance) AS mean, sum(distance) FILTER (WHERE day = 1) AS d1 FROM '$/f.csv'",
            TABLE_PATH,
            one,
            &["175.0", "300"],
        ),
        (
            "SELECT origin, CASE WHEN day = 1 THEN 'one' ELSE 'other' END AS d, count(*) AS n FROM '$/f.csv' GROUP BY 1, 2",
            TABLE_PATH,
            one,
            &["EWR", "one", "1"],
        ),
        (
            "SELECT unique(tail), top_k(origin, 1), quantile(distance, 0.5), collect(tail, 2) FROM '$/f.csv'",
            TABLE_PATH,
            one,
            &["3", "[{value: EWR, count: 3, error: 0}]", "150.0", "[a, b]"],
        ),
        (
            "SELECT approx_distinct(tail), approx_median(distance), approx_percentile_cont(distance, 0.5) FROM '$/f.csv'",
            TABLE_PATH,
            one,
            &["3", "150.0", "150.0"],
        ),
        ("SELECT mean(distance) FROM '$/f.csv'", TABLE_PATH, one, &["175.0"]),
        (
            "SELECT min(DISTINCT day), max(DISTINCT day) FROM '$/f.csv'",
            TABLE_PATH,
            one,
            &["1", "2"],
        ),
        (
            "SELECT tag, count(*) AS n FROM (SELECT unnest(tags) AS tag FROM '$/tags.jsonl') GROUP BY tag",
            TABLE_PATH,
            one,
            &["x", "2"],
        ),
        (
            "WITH w AS (SELECT origin FROM '$/f.csv' WHERE day = 2) SELECT count(*) FROM w",
            TABLE_PATH,
            one,
            &["3"],
        ),
        (
            "SELECT rank() OVER (ORDER BY n DESC) AS r, origin FROM (SELECT origin, count(*) AS n FROM '$/f.csv' GROUP BY origin) ORDER BY r LIMIT 1",
            TABLE_PATH,
            one,
            &["1", "EWR"],
        ),
        ("SELECT count(*) FROM '$/f.csv' WHERE false", TABLE_PATH, "", &["0"]),
        (
            "SELECT approx_percentile_cont_with_weight(day, 1, 0.5) > 0 FROM '$/f.csv'",
            ENGINE_PATH,
            "no mergeable state for `approx_percentile_cont_with_weight`",
            &["true"],
        ),
        (
            "SELECT bool_and(day > 0), bit_or(day), any_value(origin), arg_max(origin, distance) FROM '$/f.csv'",
            TABLE_PATH,
            one,
            &["true", "3", "EWR", "EWR"],
        ),
        ("SELECT origin FROM '$/f.csv' WHERE day = 1", ROW_PATH, unordered, &["EWR"]),
        ("SELECT distance + 1 AS d FROM '$/f.csv' LIMIT 2", ROW_PATH, unordered, &["101"]),
        (
            "SELECT * FROM '$/f.csv' LIMIT 1 OFFSET 3",
            ROW_PATH,
            unordered,
            &["2", "EWR", "100", "c"],
        ),
        ("SELECT id, unnest(tags) AS tag FROM '$/tags.jsonl'", ROW_PATH, unordered, &["1", "x"]),
        (
            "SELECT * FROM '$/f.csv' ORDER BY day, distance",
            ENGINE_PATH,
            "sorts rows",
            &["1", "EWR", "100", "a"],
        ),
        (
            "SELECT origin, rank() OVER (ORDER BY distance) AS r FROM '$/f.csv'",
            ENGINE_PATH,
            "window function",
            &["EWR", "1"],
        ),
        (
            "SELECT count(*) FROM (SELECT * FROM '$/f.csv' LIMIT 2)",
            ENGINE_PATH,
            "neither per record nor one aggregation",
            &["2"],
        ),
        (
            "SELECT name, count(*) AS n FROM '$/f.csv' JOIN '$/names.csv' USING (origin) GROUP BY name",
            TABLE_PATH,
            "names.csv` held in memory beside it",
            &["Kennedy", "1"],
        ),
        (
            "SELECT origin FROM '$/f.csv' UNION ALL SELECT origin FROM '$/names.csv'",
            ENGINE_PATH,
            "UNION",
            &["EWR"],
        ),
        (
            "SELECT origin FROM '$/f.csv' WHERE distance = (SELECT max(distance) FROM '$/f.csv')",
            ENGINE_PATH,
            "neither per record nor one aggregation",
            &["EWR"],
        ),
        (
            "SELECT origin, count(*) AS n FROM '$/f.csv' GROUP BY ROLLUP (origin)",
            ENGINE_PATH,
            "GROUPING SETS",
            &["EWR", "3"],
        ),
        ("SELECT sum(DISTINCT distance), sum(day) FROM '$/f.csv'", TABLE_PATH, one, &["600", "8"]),
        (
            "SELECT sum(DISTINCT distance), sum(DISTINCT day) FROM '$/f.csv'",
            TABLE_PATH,
            one,
            &["600", "3"],
        ),
        (
            "SELECT first_value(origin ORDER BY distance DESC) FROM '$/f.csv' WHERE distance IS NOT NULL",
            TABLE_PATH,
            one,
            &["EWR"],
        ),
        ("SELECT stddev(distance) FROM '$/f.csv'", TABLE_PATH, one, &["95.74271077563381"]),
        ("SELECT 1 AS x", ENGINE_PATH, "reads no source", &["1"]),
    ];
    for (sql, path, why, first) in cases {
        let sql = folder.substitute_path(sql);
        let plan = match QueryPlan::new(&query(&sql), &settings()) {
            Ok(plan) => plan,
            Err(error) => panic!("{sql}: {error}"),
        };
        let explain = plan.explain().unwrap();
        assert_eq!(explain.path, *path, "{sql}: {}", explain.why);
        assert!(explain.why.contains(why), "{sql}: {}", explain.why);
        assert_eq!(explain.mergeable, *path == TABLE_PATH);
        let answer = crate::common::collect_answer(plan.run().unwrap()).unwrap();
        assert_eq!(answer.sorted_rows()[0], *first, "{sql}");
        assert!(answer.coverage.complete);
    }
}

#[test]
fn paths_agree_on_tidemill_functions() {
    let folder = files();
    // `collect` is in input order only on the table path and in windows.
    let answers = "origin, unique(tail) AS u, top_k(day, 2) AS t, quantile(distance, 0.5, 1) AS q, \
        quantile(distance, 0.25) AS q1, max(day) AS m";
    let tables = format!("SELECT {answers} FROM '$/f.csv' GROUP BY origin");
    let joined = format!(
        "SELECT {answers} FROM (SELECT f.* FROM '$/f.csv' f JOIN (SELECT 1 AS one) ON one = 1) \
         GROUP BY origin"
    );
    let unioned = format!(
        "SELECT {answers} FROM (SELECT * FROM '$/f.csv' UNION ALL SELECT * FROM '$/f.csv' WHERE \
         day > 5) GROUP BY origin"
    );
    let expected = folder.run_sql(&tables).sorted_rows();
    assert_eq!(folder.run_sql(&joined).sorted_rows(), expected);
    assert_eq!(folder.run_sql(&unioned).sorted_rows(), expected);
    let window = "SELECT day, unique(origin) OVER (ORDER BY day) AS u, \
        collect(origin, 9) OVER (PARTITION BY day ORDER BY tail ROWS UNBOUNDED PRECEDING) AS c \
        FROM '$/f.csv' WHERE distance > 0 ORDER BY day, u, c";
    assert_eq!(
        folder.run_sql(window).rows(),
        string_rows(&[
            &["1", "2", "[EWR]"],
            &["1", "2", "[EWR, JFK]"],
            &["2", "2", "[EWR]"],
            &["2", "2", "[EWR, EWR]"],
        ])
    );
}

#[test]
fn unnamed_columns_are_named_as_written() {
    let folder = files();
    for (sql, expected) in [
        (
            "SELECT origin, sum(distance), count(*) FROM '$/f.csv' GROUP BY origin",
            &["origin", "sum(distance)", "count(*)"][..],
        ),
        ("SELECT distance + day FROM '$/f.csv'", &["distance + day"]),
        ("SELECT unique(tail), max(f.day) FROM '$/f.csv' f", &["unique(tail)", "max(day)"]),
        (
            "SELECT a.day, b.day FROM '$/f.csv' a JOIN '$/f.csv' b ON a.tail = b.tail",
            &["a.day", "b.day"],
        ),
        ("SELECT f.day AS \"gulf.x\", f.tail AS \"f.y\" FROM '$/f.csv' f", &["gulf.x", "f.y"]),
        ("SELECT max(day) AS \"a.b\" FROM '$/f.csv' ORDER BY 1", &["a.b"]),
        (
            "SELECT upper('it''s'), 1.5, f.day + 1, count(1), sum(\"day\") OVER (ORDER BY f.day), \
             day IN (1, 2), INTERVAL '1 day' FROM '$/f.csv' f GROUP BY day",
            &[
                "upper('it''s')",
                "1.5",
                "day + 1",
                "count(1)",
                "sum(day) OVER (ORDER BY day)",
                "day IN (1, 2)",
                "INTERVAL '1 day'",
            ],
        ),
        (
            "SELECT count() OVER (PARTITION BY day), count(*) OVER () FROM '$/f.csv'",
            &["count() OVER (PARTITION BY day)", "count(*) OVER ()"],
        ),
        ("SELECT 1 UNION ALL SELECT day FROM '$/f.csv'", &["1"]),
        ("SELECT 1, 1.0, 'a' FROM '$/f.csv' ORDER BY 1, 3", &["1", "1.0", "'a'"]),
    ] {
        assert_eq!(folder.run_sql(sql).column_names(), expected, "{sql}");
    }
}

#[test]
fn source_name_at_the_end_of_a_word_is_not_removed() {
    let folder = Folder::new();
    folder.write("s.jsonl", "{\"gas\":{\"co\":1}}\n");
    let source = tidemill_engine::NamedSource {
        name: "s".into(),
        spec: tidemill_engine::source::SourceSpec {
            url: folder.substitute_path("$/s.jsonl"),
            ..Default::default()
        },
    };
    let query = tidemill_engine::Query {
        sources: vec![source],
        ..query("SELECT upper('gas.s.co'), s.gas.co + 1, 1 AS \"gas.co\" FROM s")
    };
    let answer = crate::common::run_query(&query, &settings()).unwrap();
    assert_eq!(answer.column_names()[2], "gas.co");
    assert!(answer.column_names()[0].contains("gas.s.co"), "{:?}", answer.column_names());
}

#[test]
fn filter_of_null_or_literal_counts_correctly() {
    let folder = files();
    let sql = "SELECT count(*) FILTER (WHERE NULL) AS a, count(*) FILTER (WHERE true) AS b, \
        sum(day) FILTER (WHERE distance > 100) AS c, min(day) FILTER (WHERE false) AS d \
        FROM '$/f.csv'";
    assert_eq!(folder.run_sql(sql).rows(), string_rows(&[&["0", "5", "3", "∅"]]));
}
