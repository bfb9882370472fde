//! Tests of the first rows of groups against a sort of all rows, on every path.

use tidemill_engine::source::SourceSpec;
use tidemill_engine::{
    NamedSource, PartialTableMerge, Query, QueryPlan, RunId, RunProgress, RunSettings,
};

use crate::common::{Folder, Random, collect_answer, query, settings};

const CSV_HEADER: &str = "id,k,t,f,d,b,day,s\n";

/// Returns rows in which all columns but the first have ties and nulls.
fn random_lines(random: &mut Random, rows: u64, keys: u64) -> Vec<String> {
    let float = |random: &mut Random| match random.next_below(12) {
        0 => "NaN".into(),
        1 => "-0.0".into(),
        2 => "0.0".into(),
        3 => "inf".into(),
        4 => "-inf".into(),
        _ => format!("{}.5", random.next_below(6) as i64 - 3),
    };
    let or_none = |random: &mut Random, value: String| match random.next_below(9) {
        0 => String::new(),
        _ => value,
    };
    let row = |id| {
        let float = float(random);
        let (key, amount, day) =
            (random.next_below(keys), random.next_below(40), random.next_below(9));
        let text = ["b", "a", "", "prefix of two", "prefix of one", "prefix o"];
        let text = format!("\"{}\"", text[random.next_below(6) as usize]);
        let cells = [
            format!("{key}"),
            format!("group {}", key / 3),
            float,
            format!("{}.{}", amount / 7, amount % 7),
            format!("{}", amount % 2 == 0),
            format!("2024-02-0{}", day + 1),
        ];
        let cells = cells.map(|cell| or_none(random, cell));
        format!("{id},{},{text}\n", cells.join(","))
    };
    (0..rows).map(row).collect()
}

/// Returns the query with a window over all rows, so that the plan sorts them.
fn disable_first_rows_plan(sql: &str) -> String {
    sql.replace("QUALIFY", "QUALIFY count(*) OVER () > 0 AND")
}

fn execution_path(folder: &Folder, sql: &str) -> String {
    QueryPlan::new(&query(folder.substitute_path(sql)), &settings())
        .unwrap()
        .explain()
        .unwrap()
        .path
}

#[test]
fn first_rows_equal_those_of_a_full_sort() {
    let folder = Folder::new();
    let mut random = Random(11);
    let orders = [
        "f DESC, id",
        "f, id DESC",
        "f NULLS FIRST, d DESC NULLS LAST, id",
        "s, id",
        "s DESC, t, id",
        "d DESC, id DESC",
        "day NULLS FIRST, b DESC, id",
        "b, day DESC, id",
        "lower(s), d / 2, id",
        "id",
    ];
    let parts = ["k", "t", "f", "t, b", "k % 4, day", "s", "upper(t), f"];
    for (rows, keys) in [(900, 40), (5000, 4000), (40, 1)] {
        let lines = random_lines(&mut random, rows, keys);
        let half = lines.len() / 2;
        folder.write("all.csv", CSV_HEADER.to_owned() + &lines.concat());
        folder.write("one.csv", CSV_HEADER.to_owned() + &lines[..half].concat());
        folder.write("two.csv", CSV_HEADER.to_owned() + &lines[half..].concat());
        for order in orders {
            let part = parts[random.next_below(parts.len() as u64) as usize];
            let most = [1, 2, 7][random.next_below(3) as usize];
            let columns = ["id", "*", "k, s, id", "f, t, day, id"][random.next_below(4) as usize];
            let sql = format!(
                "SELECT {columns}, row_number() OVER (PARTITION BY {part} ORDER BY {order}) AS place \
                 FROM '$/all.csv' QUALIFY place <= {most}"
            );
            let sorting = disable_first_rows_plan(&sql);
            assert_eq!(execution_path(&folder, &sorting), "datafusion");
            let expected = folder.run_sql(&sorting).sorted_rows();
            assert!(expected.len() > 1 || keys == 1, "{sql}");
            assert_eq!(execution_path(&folder, &sql), "partial tables", "{sql}");
            assert_eq!(folder.run_sql(&sql).sorted_rows(), expected, "{sql}");
            // A UNION has no aggregate table; DataFusion groups by the same states.
            let both = sql.replace(
                "FROM '$/all.csv'",
                "FROM (SELECT * FROM '$/one.csv' UNION ALL SELECT * FROM '$/two.csv')",
            );
            assert_eq!(execution_path(&folder, &both), "datafusion");
            assert_eq!(folder.run_sql(&both).sorted_rows(), expected, "{both}");
        }
    }
}

#[test]
fn ties_are_ordered_by_the_other_columns() {
    let folder = Folder::new();
    let mut random = Random(3);
    let mut lines = random_lines(&mut random, 4000, 25);
    let sql = "SELECT k, s, id, row_number() OVER (PARTITION BY k ORDER BY day) AS place \
               FROM '$/e.csv' QUALIFY place <= 3 ORDER BY k, place";
    let total = "SELECT k, s, id, row_number() OVER (PARTITION BY k ORDER BY day, id) AS place \
                 FROM '$/e.csv' QUALIFY place <= 3 ORDER BY k, place";
    folder.write("e.csv", CSV_HEADER.to_owned() + &lines.concat());
    let expected = folder.run_sql(total).rows();
    assert_eq!(expected.len(), 26 * 3);
    for threads in [1, 2, 5] {
        let settings = RunSettings { threads, ..settings() };
        assert_eq!(folder.run_sql_with(sql, &settings).rows(), expected, "{threads} threads");
        lines.reverse();
        lines.rotate_left(777);
        folder.write("e.csv", CSV_HEADER.to_owned() + &lines.concat());
    }
}

#[test]
fn first_rows_are_the_same_with_little_memory() {
    let folder = Folder::new();
    let mut random = Random(8);
    let lines = random_lines(&mut random, 60_000, 20_000);
    folder.write("e.csv", CSV_HEADER.to_owned() + &lines.concat());
    let sql =
        "SELECT * FROM '$/e.csv' QUALIFY row_number() OVER (PARTITION BY k ORDER BY f, id) < 3";
    let expected = folder.run_sql(sql).sorted_rows();
    assert_eq!(expected, folder.run_sql(&disable_first_rows_plan(sql)).sorted_rows());
    for (memory_bytes, threads) in [(1 << 10, 1), (1 << 20, 3), (6 << 20, 2)] {
        let progress = RunProgress::new();
        let settings =
            RunSettings { memory_bytes, threads, progress: progress.clone(), ..settings() };
        assert!(
            folder.run_sql_with(sql, &settings).sorted_rows() == expected,
            "{memory_bytes} bytes"
        );
        assert!(progress.spilled_bytes() > 0, "{memory_bytes} bytes were enough");
    }
}

#[test]
fn partial_tables_of_first_rows_merge() {
    let folder = Folder::new();
    let mut random = Random(21);
    let lines = random_lines(&mut random, 900, 60);
    folder.write("e/1.csv", CSV_HEADER.to_owned() + &lines[..100].concat());
    folder.write("e/2.csv", CSV_HEADER.to_owned() + &lines[100..].concat());
    let of = |file: &str| {
        let url = folder.substitute_path(&format!("$/e/{file}"));
        let spec = SourceSpec { url, ..SourceSpec::default() };
        let sources = vec![NamedSource { name: "source".into(), spec }];
        let sql = "SELECT k, id, f, s FROM source WHERE d > 0.5 \
            QUALIFY row_number() OVER (PARTITION BY k ORDER BY f DESC NULLS LAST, s) = 2";
        QueryPlan::new(&Query { sources, ..query(sql) }, &settings()).unwrap()
    };
    let whole = collect_answer(of("*.csv").run().unwrap()).unwrap();
    assert!(whole.rows().len() > 50);
    let parts = ["1", "2"].map(|part| {
        let out = folder.path().join(format!("{part}.part"));
        of(&format!("{part}.csv")).write_partial_table(&out, false, &RunId::new()).unwrap();
        out
    });
    let merged =
        collect_answer(PartialTableMerge::new(&parts, &settings()).unwrap().run().unwrap())
            .unwrap();
    assert_eq!(merged.sorted_rows(), whole.sorted_rows());
}

#[test]
fn other_row_number_conditions_are_sorted() {
    let folder = Folder::new();
    let rows = "k,v\na,1\na,2\na,2\nb,3\n";
    folder.write("e.csv", rows);
    let of = |number: &str, condition: &str| {
        format!("SELECT * FROM (SELECT *, {number} AS n FROM '$/e.csv') WHERE {condition}")
    };
    let number = "row_number() OVER (PARTITION BY k ORDER BY v)";
    let cases = [
        (number, "n <= 2", 3, true),
        (number, "2 > n", 2, true),
        (number, "n BETWEEN 2 AND 3", 2, true),
        (number, "n = 3", 1, true),
        (number, "n <= 9 AND v > 1 AND n < 3", 2, true),
        ("row_number() OVER (ORDER BY v DESC)", "n <= 3", 3, true),
        ("row_number() OVER (PARTITION BY k)", "n = 1", 2, true),
        ("row_number() OVER (PARTITION BY 7 ORDER BY k)", "n = 1", 1, true),
        ("CAST(row_number() OVER (PARTITION BY k ORDER BY v) AS INTEGER)", "n <= 2", 3, false),
        (number, "n <= 2 OR v = 2", 4, false),
        (number, "n <> 2", 3, false),
        (number, "n > 1", 2, false),
        (number, "n <= v", 3, false),
        (number, "n <= 1001", 4, false),
        (number, "n + 0 <= 2", 3, false),
        (number, "NOT n BETWEEN 1 AND 2", 1, false),
        ("rank() OVER (PARTITION BY k ORDER BY v)", "n <= 2", 4, false),
        ("row_number() OVER (PARTITION BY k ORDER BY [v])", "n <= 2", 3, true),
    ];
    for (number, condition, count, is_table) in cases {
        let sql = of(number, condition);
        assert_eq!(folder.run_sql(&sql).rows().len(), count, "{sql}");
        let expected = if is_table { "partial tables" } else { "datafusion" };
        assert_eq!(execution_path(&folder, &sql), expected, "{sql}");
    }
    // Conditions that no row number meets.
    for condition in ["n <= 0", "n < 1", "n = -1", "n <= NULL"] {
        assert_eq!(folder.run_sql(&of(number, condition)).rows().len(), 0, "{condition}");
    }
    folder.write("none.csv", "k,v\n");
    for part in ["", "PARTITION BY k"] {
        let none =
            format!("SELECT * FROM '$/none.csv' QUALIFY row_number() OVER ({part} ORDER BY v) = 1");
        assert_eq!(folder.run_sql(&none).rows().len(), 0, "{none}");
    }
}
