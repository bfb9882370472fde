//! Tests of group keys that arrive as dictionary codes, from Parquet and from text, against the same rows
//! without codes.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{WriterProperties, WriterVersion};
use tidemill_engine::{QueryPlan, RunSettings};

use crate::common::{Folder, Random, query, settings};

const CODED_KEYS_NOTE: &str = "found by the codes of the keys";

/// Returns two text columns with nulls, of `few` and `many` distinct values, and a column of numbers.
fn random_rows(random: &mut Random, count: usize, few: u64, many: u64) -> RecordBatch {
    let text = |random: &mut Random, values: u64, name: &str| match random.next_below(values + 1) {
        0 => None,
        1 => Some(String::new()),
        n => Some(
            format!("{name} {n}, of more than twelve bytes")[..6 + 20 * (n as usize % 2)]
                .to_owned(),
        ),
    };
    let few: StringArray = (0..count).map(|_| text(random, few, "few")).collect();
    let many: StringArray = (0..count).map(|_| text(random, many, "number")).collect();
    let n: Int64Array = (0..count).map(|_| Some(random.next_below(50) as i64)).collect();
    let columns: [(&str, ArrayRef); 3] =
        [("few", Arc::new(few)), ("many", Arc::new(many)), ("n", Arc::new(n))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn write_parquet(folder: &Folder, name: &str, rows: &RecordBatch, properties: WriterProperties) {
    let file = std::fs::File::create(folder.write(name, "")).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

fn explanation_text(folder: &Folder, sql: &str) -> String {
    QueryPlan::new(&query(folder.substitute_path(sql)), &settings())
        .unwrap()
        .explain()
        .unwrap()
        .to_string()
}

#[test]
fn groups_by_dictionary_codes_equal_groups_by_values() {
    let folder = Folder::new();
    let mut random = Random(31);
    let calls = "count(*) AS c, sum(n) AS s, min(n) AS l, unique(n) AS u, median(n) AS m";
    let by = |keys: &str, from: &str, rest: &str| {
        format!("SELECT {keys}, {calls} FROM '$/{from}' {rest} GROUP BY {keys}")
    };
    for (count, few, many, group) in
        [(30_000, 9, 5000, 7001), (900, 1, 3, 100), (9000, 40, 20_000, 9000)]
    {
        let one = random_rows(&mut random, count, few, many);
        let two = random_rows(&mut random, count / 3, few + 3, many + 1);
        let plain = || WriterProperties::builder().set_dictionary_enabled(false).build();
        write_parquet(&folder, "plain/1.parquet", &one, plain());
        write_parquet(&folder, "plain/2.parquet", &two, plain());
        let coded = |version| {
            WriterProperties::builder()
                .set_writer_version(version)
                .set_max_row_group_row_count(Some(group))
                .set_data_page_row_count_limit(1000)
                .set_write_batch_size(500)
                .build()
        };
        write_parquet(&folder, "coded/1.parquet", &one, coded(WriterVersion::PARQUET_1_0));
        write_parquet(&folder, "coded/2.parquet", &two, coded(WriterVersion::PARQUET_2_0));
        for (keys, rest) in [
            ("few", ""),
            ("many", ""),
            ("few, many", ""),
            ("many", "WHERE n > 20"),
            ("few", "WHERE n % 7 = 1 OR n IS NULL"),
        ] {
            let expected = folder.run_sql(&by(keys, "plain/*.parquet", rest)).sorted_rows();
            let sql = by(keys, "coded/*.parquet", rest);
            assert!(explanation_text(&folder, &sql).contains(CODED_KEYS_NOTE), "{sql}");
            assert!(
                !explanation_text(&folder, &by(keys, "plain/*.parquet", rest))
                    .contains(CODED_KEYS_NOTE)
            );
            for (memory_bytes, threads) in [(256 << 20, 2), (256 << 20, 1), (1 << 20, 3)] {
                let settings = RunSettings { memory_bytes, threads, ..settings() };
                let found = folder.run_sql_with(&sql, &settings).sorted_rows();
                assert!(found == expected, "{sql}: {memory_bytes} bytes, {threads} threads");
            }
        }
    }
}

#[test]
fn computed_or_unencoded_keys_are_grouped_by_value() {
    let folder = Folder::new();
    let mut random = Random(4);
    let some = random_rows(&mut random, 4000, 5, 3000);
    write_parquet(&folder, "coded.parquet", &some, WriterProperties::builder().build());
    // Past its size limit the dictionary ends, and the remaining values follow as they are.
    let short = WriterProperties::builder()
        .set_dictionary_page_size_limit(2000)
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(100)
        .build();
    write_parquet(&folder, "left/1.parquet", &some, short);
    let without = some.project(&[2]).unwrap();
    write_parquet(&folder, "two/1.parquet", &some, WriterProperties::builder().build());
    write_parquet(&folder, "two/2.parquet", &without, WriterProperties::builder().build());
    for (sql, is_coded) in [
        ("SELECT few, count(*) FROM '$/coded.parquet' GROUP BY few", true),
        ("SELECT few AS x, count(many) FROM '$/coded.parquet' GROUP BY few", true),
        ("SELECT DISTINCT few, many FROM '$/coded.parquet'", true),
        (
            "SELECT x, sum(n) FROM (SELECT few AS x, n FROM '$/coded.parquet' WHERE n > 3) GROUP BY x",
            true,
        ),
        ("SELECT few, count(*) FROM '$/two/*.parquet' GROUP BY few", true),
        ("SELECT few, count(few) FROM '$/coded.parquet' GROUP BY few", false),
        ("SELECT few, max(few || 'x') FROM '$/coded.parquet' GROUP BY few", false),
        ("SELECT few, count(*) FROM '$/coded.parquet' WHERE few <> 'few 2,' GROUP BY few", false),
        ("SELECT upper(few), count(*) FROM '$/coded.parquet' GROUP BY 1", false),
        ("SELECT few, n, count(*) FROM '$/coded.parquet' GROUP BY few, n", true),
        ("SELECT few, n / 2.5, count(*) FROM '$/coded.parquet' GROUP BY 1, 2", false),
        ("SELECT many, count(*) FROM '$/left/*.parquet' GROUP BY many", false),
        (
            "SELECT a.few, count(*) FROM '$/coded.parquet' AS a JOIN '$/two/1.parquet' AS b \
          ON a.n = b.n GROUP BY a.few",
            false,
        ),
    ] {
        assert_eq!(explanation_text(&folder, sql).contains(CODED_KEYS_NOTE), is_coded, "{sql}");
        // This percentile is DataFusion's, which groups by the values.
        let sql_beside =
            sql.replacen(" FROM", ", approx_percentile_cont_with_weight(1, 1, 0.5) FROM", 1);
        if !sql.contains("DISTINCT") && !sql.contains("(SELECT") {
            let mut beside = folder.run_sql(&sql_beside).rows();
            for row in &mut beside {
                row.pop();
            }
            beside.sort();
            assert_eq!(folder.run_sql(sql).sorted_rows(), beside, "{sql}");
        }
    }
    let distinct = "SELECT count(*) FROM (SELECT DISTINCT few, many FROM '$/coded.parquet')";
    let counted = "SELECT count(*) FROM (SELECT few || '' AS a, many || '' AS b \
                   FROM '$/coded.parquet' GROUP BY 1, 2)";
    assert_eq!(folder.run_sql(distinct).single_value(), folder.run_sql(counted).single_value());
}

#[test]
fn dense_and_sparse_integer_keys_are_grouped_correctly() {
    let folder = Folder::new();
    let mut random = Random(77);
    for rows in [200, 40_000] {
        let mut out = String::from("near,far,rising,below,leap,day,word,n\n");
        for row in 0..rows {
            let cells = [
                random.next_below(50).to_string(),
                (random.next() >> 1).to_string(),
                (row / 3).to_string(),
                (-(random.next_below(70_000) as i64)).to_string(),
                // All values are close to each other except a few, late in the file.
                match row % 9000 {
                    8500 => i64::MIN + row as i64,
                    8600 => i64::MAX - row as i64,
                    8700 => 1 << 19,
                    _ => random.next_below(9) as i64,
                }
                .to_string(),
                format!("20{:02}-0{}-11", random.next_below(70), 1 + random.next_below(9)),
                format!("word {}", random.next_below(30)),
            ];
            let cells =
                cells.map(|cell| if random.next_below(40) == 0 { String::new() } else { cell });
            out.push_str(&format!("{},{}\n", cells.join(","), random.next_below(100)));
        }
        folder.write("e.csv", out);
        for keys in [
            "near",
            "far",
            "rising",
            "below",
            "leap",
            "day",
            "near, leap",
            "near, day",
            "below, near",
            "near, word",
            "leap, leap % 3",
            "CAST(near AS TINYINT)",
            "CAST(near AS BIGINT UNSIGNED)",
        ] {
            let sql =
                format!("SELECT {keys}, count(*), sum(n), min(n) FROM '$/e.csv' GROUP BY {keys}");
            let beside =
                sql.replacen(" FROM", ", approx_percentile_cont_with_weight(1, 1, 0.5) FROM", 1);
            let mut expected = folder.run_sql(&beside).rows();
            for row in &mut expected {
                row.pop();
            }
            expected.sort();
            for (memory_bytes, threads) in [(256 << 20, 2), (1 << 20, 1)] {
                let settings = RunSettings { memory_bytes, threads, ..settings() };
                let found = folder.run_sql_with(&sql, &settings).sorted_rows();
                assert!(found == expected, "{sql}: {memory_bytes} bytes");
            }
        }
    }
}

#[test]
fn low_cardinality_text_keys_are_grouped_by_codes() {
    let folder = Folder::new();
    let mut random = Random(9);
    let (mut csv, mut json) = (String::from("few,late,many,n\n"), String::new());
    for row in 0..30_000 {
        let few = match random.next_below(9) {
            0 => String::new(),
            1 => "a value, of more than twelve bytes".to_owned(),
            n => format!("\u{e9} {n}"),
        };
        // Few values at first, and then more than the dictionary keeps.
        let late =
            format!("v{}", if row < 9000 { row % 7 } else { random.next_below(20_000) as usize });
        let many = format!("number {}", random.next_below(20_000));
        let n = random.next_below(50);
        csv.push_str(&format!("\"{few}\",{late},{many},{n}\n"));
        let few = if few.is_empty() { "null".to_owned() } else { format!("\"{few}\"") };
        let few = few.replace('\u{e9}', if n > 30 { "\\u00e9" } else { "\u{e9}" });
        json.push_str(&format!(
            "{{\"few\":{few},\"late\":\"{late}\",\"many\":\"{many}\",\"n\":{n}}}\n"
        ));
    }
    folder.write("e.csv", csv);
    folder.write("e.jsonl", json);
    for file in ["e.csv", "e.jsonl"] {
        for (keys, rest, is_coded) in [
            ("few", "", true),
            ("late", "", true),
            ("few, late", "", true),
            ("few, n", "WHERE n > 20", true),
            ("late, n", "WHERE n % 7 = 1", true),
            ("many", "", false),
            ("few", "WHERE few <> 'x'", false),
        ] {
            let calls = "count(*), sum(n), min(n), unique(n)";
            let sql = format!("SELECT {keys}, {calls} FROM '$/{file}' {rest} GROUP BY {keys}");
            assert_eq!(
                explanation_text(&folder, &sql).contains(CODED_KEYS_NOTE),
                is_coded,
                "{sql}"
            );
            // This percentile is DataFusion's, which groups by the values.
            let beside =
                sql.replacen(" FROM", ", approx_percentile_cont_with_weight(1, 1, 0.5) FROM", 1);
            let mut expected = folder.run_sql(&beside).rows();
            for row in &mut expected {
                row.pop();
            }
            expected.sort();
            for (memory_bytes, threads) in [(256 << 20, 2), (1 << 20, 1)] {
                let settings = RunSettings { memory_bytes, threads, ..settings() };
                let found = folder.run_sql_with(&sql, &settings).sorted_rows();
                assert!(found == expected, "{sql}: {memory_bytes} bytes");
            }
        }
    }
}

#[test]
fn all_null_keys_group_zero_rows() {
    let folder = Folder::new();
    folder.write("e.csv", "k,v\n1,2\n");
    for (rows, expected) in [("v > 1000", 0), ("v > 0", 1)] {
        let sql = format!("SELECT DISTINCT NULL AS b, v FROM '$/e.csv' WHERE {rows}");
        assert_eq!(folder.run_sql(&sql).rows().len(), expected, "{sql}");
        let sql = format!("SELECT NULL AS b, count(*) FROM '$/e.csv' WHERE {rows} GROUP BY 1");
        assert_eq!(folder.run_sql(&sql).rows().len(), expected, "{sql}");
    }
}
