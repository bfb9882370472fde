//! Tests of partition columns, and of text that looks like a number.

use crate::common::{Folder, string_rows};

fn write_partitions(folder: &Folder, key: &str, values: &[&str]) {
    for value in values {
        folder.write(&format!("{key}/{key}={value}/x.csv"), format!("v\n{}\n", value.len()));
    }
}

#[test]
fn partition_values_keep_their_spelling() {
    let folder = Folder::new();
    for (key, values, expected) in [
        ("zip", &["01234", "12345"][..], &["01234", "12345"][..]),
        ("id", &["007", "7", "+7"], &["+7", "007", "7"]),
        ("n", &["7", "12"], &["12", "7"]),
        ("minus", &["-0", "0"], &["-0", "0"]),
    ] {
        write_partitions(&folder, key, values);
        let sql = format!("SELECT {key}, count(*) FROM '$/{key}' GROUP BY {key}");
        let expected: Vec<Vec<String>> =
            expected.iter().map(|value| vec![(*value).to_owned(), "1".to_owned()]).collect();
        assert_eq!(folder.run_sql(&sql).sorted_rows(), expected, "{key}");
    }
}

/// A comparison of a partition column with a number compares numbers, and files that it excludes are not
/// read: the damaged one here would be an error.
#[test]
fn conditions_on_partition_columns_prune_files() {
    let folder = Folder::new();
    for month in ["01", "02", "11"] {
        folder.write(&format!("m/month={month}/x.csv"), "v,w\n1,a\n2,b\n");
    }
    folder.write("m/month=12/x.csv", "v,w\n1,a\n\"2,never closed\n");
    for (condition, expected) in [
        ("month < 6", &[&["01", "2"][..], &["02", "2"]][..]),
        ("month = 1", &[&["01", "2"]]),
        ("1 = month", &[&["01", "2"]]),
        ("month IN (1, 11)", &[&["01", "2"], &["11", "2"]]),
        ("month BETWEEN 2 AND 11", &[&["02", "2"], &["11", "2"]]),
        ("month = '02'", &[&["02", "2"]]),
        ("month LIKE '0%'", &[&["01", "2"], &["02", "2"]]),
        ("CAST(month AS INT) % 2 = 1", &[&["01", "2"], &["11", "2"]]),
        ("month <> 12 AND v > 0", &[&["01", "2"], &["02", "2"], &["11", "2"]]),
        ("month = 1 OR month = 2", &[&["01", "2"], &["02", "2"]]),
    ] {
        let sql = format!("SELECT month, count(*) FROM '$/m' WHERE {condition} GROUP BY month");
        assert_eq!(folder.run_sql(&sql).sorted_rows(), string_rows(expected), "{condition}");
    }
    for condition in ["month = 12", "v > 1", "month = 12 OR v = 1"] {
        let refusal = folder.sql_error(&format!("SELECT count(*) FROM '$/m' WHERE {condition}"));
        assert!(refusal.contains("never closed"), "{condition}: {refusal}");
    }
}

#[test]
fn number_like_hashes_and_codes_stay_text() {
    let folder = Folder::new();
    for (values, expected) in [
        (&["123e4567", "1234e5678"][..], &["1234e5678", "123e4567"][..]),
        (&["0e4621", "0e8308"], &["0e4621", "0e8308"]),
        (&["01234", "1234"], &["01234", "1234"]),
        (&["+49151", "49151"], &["+49151", "49151"]),
        (
            &["9007199254740993", "9007199254740992", "1.5"],
            &["1.5", "9007199254740992", "9007199254740993"],
        ),
    ] {
        folder.write(
            "h.csv",
            format!("h,n\n{}", values.iter().map(|v| format!("{v},1\n")).collect::<String>()),
        );
        folder.write("h.logfmt", values.iter().map(|v| format!("h={v} n=1\n")).collect::<String>());
        for file in ["h.csv", "h.logfmt"] {
            let sql = format!("SELECT h, count(*) FROM '$/{file}' GROUP BY h");
            let expected: Vec<Vec<String>> =
                expected.iter().map(|value| vec![(*value).to_owned(), "1".to_owned()]).collect();
            assert_eq!(folder.run_sql(&sql).sorted_rows(), expected, "{file} {values:?}");
        }
    }
}

/// After the sample, a value that would lose its spelling is an error with its place and a hint.
#[test]
fn number_like_code_after_the_sample_is_a_located_error() {
    let folder = Folder::new();
    let codes: String = (0..60_000).map(|n| format!("{},1\n", 10_000 + n)).collect();
    folder.write("z.csv", format!("zip,n\n{codes}01234,1\n"));
    let refusal = folder.sql_error("SELECT zip, sum(n) FROM '$/z.csv' GROUP BY zip");
    for part in [
        "line 60002 (byte 480006), column `zip`: expected a BIGINT, found `01234`, whose spelling a BIGINT would lose",
        "--schema 'zip TEXT' keeps such values",
    ] {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert_eq!(folder.run_sql("SELECT count(*) FROM '$/z.csv'").single_value(), "60001");
}
