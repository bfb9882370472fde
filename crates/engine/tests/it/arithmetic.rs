//! Tests of integer and decimal arithmetic against 128-bit integers: the result is exact, or an error.

use tidemill_engine::{Error, Query};

use crate::common::{Folder, Random, query, run_query, settings};

const INTEGER_TYPES: [(&str, i128, i128); 5] = [
    ("TINYINT", i8::MIN as i128, i8::MAX as i128),
    ("SMALLINT", i16::MIN as i128, i16::MAX as i128),
    ("INT", i32::MIN as i128, i32::MAX as i128),
    ("BIGINT", i64::MIN as i128, i64::MAX as i128),
    ("BIGINT UNSIGNED", 0, u64::MAX as i128),
];

/// Returns the exact result, or `None` where the operation has none.
fn exact_result(operation: &str, a: i128, b: i128, bits: u32) -> Option<i128> {
    let amount = u32::try_from(b).ok();
    match operation {
        "+" => Some(a + b),
        "-" => Some(a - b),
        "*" => a.checked_mul(b),
        "//" => a.checked_div(b),
        "%" => a.checked_rem(b),
        "<<" => match amount {
            _ if b < 0 => None,
            Some(by) if by < bits => Some(a << by),
            _ => (a == 0).then_some(0),
        },
        ">>" => match amount {
            _ if b < 0 => None,
            Some(by) if by < 127 => Some(a >> by),
            _ => Some(if a < 0 { -1 } else { 0 }),
        },
        other => panic!("{other}"),
    }
}

fn try_query_with_schema(
    folder: &Folder,
    schema: &str,
    sql: &str,
) -> Result<Vec<Vec<String>>, Error> {
    let query = Query { schema: Some(schema.into()), ..query(folder.substitute_path(sql)) };
    run_query(&query, &settings()).map(|answer| answer.rows())
}

#[test]
fn integer_arithmetic_is_exact_or_an_error() {
    let mut random = Random(3);
    for (data_type, least, most) in INTEGER_TYPES {
        let bits = if data_type == "BIGINT UNSIGNED" { 64 } else { (most + 1).ilog2() + 1 };
        let mut values = vec![least, least + 1, most, most - 1, 0, 1, 2, 3, bits.into()];
        if least < 0 {
            values.extend([-1, -2]);
        }
        for _ in 0..12 {
            let drawn = i128::from(random.next()) >> (random.next() % 64);
            values.push(least + drawn.rem_euclid(most - least + 1));
        }
        for operation in ["+", "-", "*", "//", "%", "<<", ">>"] {
            let pairs = values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b)));
            let fits = |answer: &i128| (least..=most).contains(answer);
            let judged =
                pairs.map(|(a, b)| (a, b, exact_result(operation, a, b, bits).filter(fits)));
            let (right, wrong): (Vec<_>, Vec<_>) = judged.partition(|(_, _, c)| c.is_some());

            let folder = Folder::new();
            let schema = format!("a {data_type}, b {data_type}");
            let lines: Vec<String> = right.iter().map(|(a, b, _)| format!("{a},{b}")).collect();
            // A null operand gives null, whatever the array holds below it.
            folder.write("p.csv", format!("a,b\n{}\n,1\n1,\n", lines.join("\n")));
            let sql = format!("SELECT a {operation} b FROM '$/p.csv'");
            let found = try_query_with_schema(&folder, &schema, &sql);
            let found = found.unwrap_or_else(|e| panic!("{data_type} {operation}: {e}"));
            for ((a, b, c), row) in right.iter().zip(&found) {
                let expected = c.unwrap_or_default().to_string();
                assert_eq!(row[0], expected, "{a} {operation} {b} of {data_type}");
            }
            assert_eq!(found[right.len()..], [["∅"], ["∅"]]);

            for (a, b, _) in wrong.iter().step_by(1 + wrong.len() / 6) {
                folder.write("w.csv", format!("a,b\n1,1\n,\n{a},{b}\n"));
                let constant = |v| format!("CAST('{v}' AS {data_type})");
                for sql in [
                    format!("SELECT a {operation} b AS c FROM '$/w.csv'"),
                    format!("SELECT a FROM '$/w.csv' WHERE a {operation} b <> 77"),
                    format!("SELECT sum(a {operation} b) FROM '$/w.csv' GROUP BY a"),
                    format!(
                        "SELECT max(a {operation} b), approx_percentile_cont_with_weight(1, 1, 0.5) FROM '$/w.csv'"
                    ),
                    format!("SELECT {} {operation} {} AS c", constant(a), constant(b)),
                ] {
                    let message = match try_query_with_schema(&folder, &schema, &sql) {
                        Err(error) => error.to_string(),
                        Ok(rows) => panic!("{a}, {b} of {data_type}: {sql} is {rows:?}"),
                    };
                    let expected = ["does not fit", "division by zero", "Divide by zero"];
                    assert!(expected.iter().any(|e| message.contains(e)), "{sql}: {message}");
                }
            }
        }
    }
}

/// `/` divides two integers of any types as doubles, on both paths. Division by zero is an error.
#[test]
fn integer_division_returns_a_double() {
    let mut random = Random(5);
    for (one, least, most) in INTEGER_TYPES {
        for (other, other_least, other_most) in INTEGER_TYPES {
            let mut draw = |least: i128, most: i128| {
                let drawn = i128::from(random.next()) >> (random.next() % 64);
                least + drawn.rem_euclid(most - least + 1)
            };
            let mut pairs = vec![(least, other_most), (most, other_least.min(-1).max(other_least))];
            pairs.extend((0..9).map(|_| (draw(least, most), draw(other_least, other_most))));
            pairs.retain(|(_, divisor)| *divisor != 0);
            let folder = Folder::new();
            let lines: Vec<String> = pairs.iter().map(|(a, b)| format!("{a},{b}")).collect();
            folder.write("p.csv", format!("a,b\n{}\n,1\n1,\n", lines.join("\n")));
            let schema = format!("a {one}, b {other}");
            for sql in [
                "SELECT a / b AS q FROM '$/p.csv'",
                "SELECT a / b AS q FROM (SELECT *, row_number() OVER () FROM '$/p.csv')",
            ] {
                let found = try_query_with_schema(&folder, &schema, sql).unwrap();
                for ((a, b), row) in pairs.iter().zip(&found) {
                    #[allow(clippy::cast_precision_loss)]
                    let expected = *a as f64 / *b as f64;
                    assert_eq!(row[0].parse::<f64>().unwrap(), expected, "{a} / {b}, {schema}");
                }
                assert_eq!(found[pairs.len()..], [["∅"], ["∅"]]);
            }
            folder.write("z.csv", "a,b\n1,1\n1,0\n");
            for sql in ["SELECT a / b AS q FROM '$/z.csv'", "SELECT sum(a / b) FROM '$/z.csv'"] {
                let message = try_query_with_schema(&folder, &schema, sql).unwrap_err().to_string();
                assert!(message.starts_with("division by zero"), "{message}");
            }
        }
    }
}

#[test]
fn overflow_error_names_expression_and_hint() {
    let folder = Folder::new();
    folder.write("p.csv", "p,q\n65536,65537\n");
    let message =
        try_query_with_schema(&folder, "p INT, q INT", "SELECT p * q FROM '$/p.csv'").unwrap_err();
    assert_eq!(
        message.to_string(),
        "integer overflow: 65536 * 65537 does not fit INT, in `p * q`\n\
         hint: calculate in a wider type: CAST(x AS BIGINT)"
    );
    let sql = "SELECT CAST(p AS BIGINT) * q FROM '$/p.csv'";
    assert_eq!(try_query_with_schema(&folder, "p INT, q INT", sql).unwrap(), [["4295032832"]]);
    let sql = "SELECT CASE WHEN p < 1000 THEN p * q ELSE 0 END AS c FROM '$/p.csv'";
    assert_eq!(try_query_with_schema(&folder, "p INT, q INT", sql).unwrap(), [["0"]]);
}

/// Rows that a condition or a limit leaves out are not computed with, wherever the plan has its projections.
#[test]
fn filtered_rows_do_not_overflow() {
    let folder = Folder::new();
    folder.write("p.csv", "x,a,b\n0,9223372036854775807,1\n1,2,3\n");
    for (sql, expected) in [
        ("SELECT x, a + b FROM '$/p.csv' WHERE x > 0", vec!["1", "5"]),
        ("SELECT x, a + b FROM (SELECT * FROM '$/p.csv' LIMIT 5) WHERE x > 0", vec!["1", "5"]),
        (
            "SELECT x, a + b FROM (SELECT x, a, max(b) OVER () AS b FROM '$/p.csv') WHERE x > 0",
            vec!["1", "5"],
        ),
        (
            "SELECT x, 6 / (b - 1) FROM (SELECT *, count() OVER () FROM '$/p.csv') WHERE x > 0",
            vec!["1", "3.0"],
        ),
        ("SELECT x, a + b FROM (SELECT * FROM '$/p.csv' ORDER BY x DESC LIMIT 1)", vec!["1", "5"]),
        (
            "SELECT x, max(a) + max(b) FROM '$/p.csv' GROUP BY x HAVING x + random() >= 1",
            vec!["1", "5"],
        ),
    ] {
        assert_eq!(folder.run_sql(sql).rows(), [expected], "{sql}");
    }
    for filter in ["false", "random() < 0", "x > 5"] {
        let sql =
            format!("SELECT a + b, count(), x % 2 FROM '$/p.csv' WHERE {filter} GROUP BY 1, 3");
        assert!(folder.run_sql(&sql).rows().is_empty(), "{sql}");
    }
}

#[test]
fn overflow_in_a_comparison_is_an_error() {
    let folder = Folder::new();
    folder.write("i.csv", "i\n9223372036854775807\n1\n");
    for sql in [
        "SELECT i FROM '$/i.csv' WHERE i + 1 > 0",
        "SELECT count() FROM '$/i.csv' WHERE i + 1 > 0",
        "SELECT i FROM '$/i.csv' WHERE -(i + 1) < 0",
        "SELECT i FROM '$/i.csv' WHERE abs(-i - 2) > 0",
        "SELECT i FROM '$/i.csv' ORDER BY i * 2",
        "SELECT count() FROM '$/i.csv' GROUP BY i + i",
        "SELECT a.i FROM '$/i.csv' a JOIN '$/i.csv' b ON a.i + 1 = b.i * 1",
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains("integer overflow"), "{sql}: {message}");
    }
    assert_eq!(folder.run_sql("SELECT i FROM '$/i.csv' WHERE i + 0 > 1").rows().len(), 1);
}

#[test]
fn negation_of_the_smallest_integer_is_an_error() {
    let folder = Folder::new();
    folder.write("s.csv", "s\n-128\n\n");
    for sql in ["SELECT -s FROM '$/s.csv'", "SELECT abs(s) FROM '$/s.csv'"] {
        let message = try_query_with_schema(&folder, "s TINYINT", sql).unwrap_err().to_string();
        assert!(message.contains("of TINYINT") || message.contains("fit TINYINT"), "{message}");
    }
    folder.write("s.csv", "s\n-127\n5\n");
    let sql = "SELECT -s, abs(s) FROM '$/s.csv'";
    assert_eq!(
        try_query_with_schema(&folder, "s TINYINT", sql).unwrap(),
        [["127", "127"], ["-5", "5"]]
    );
}

#[test]
fn decimal_arithmetic_is_exact_or_an_error() {
    let folder = Folder::new();
    let nines = "9".repeat(38);
    folder.write("d.csv", format!("a,b\n{nines},1\n"));
    let schema = "a DECIMAL(38, 0), b DECIMAL(38, 0)";
    for (sql, expected) in [
        ("SELECT a + b FROM '$/d.csv'", Err(())),
        ("SELECT -a - b FROM '$/d.csv'", Err(())),
        ("SELECT a * a FROM '$/d.csv'", Err(())),
        ("SELECT a - b FROM '$/d.csv'", Ok(format!("{}8", "9".repeat(37)))),
        ("SELECT a * b FROM '$/d.csv'", Ok(nines.clone())),
    ] {
        match (try_query_with_schema(&folder, schema, sql), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, [[expected]], "{sql}"),
            (Err(error), Err(())) => {
                let message = error.to_string();
                assert!(message.contains("decimal overflow"), "{sql}: {message}");
            }
            (found, _) => panic!("{sql}: {found:?}"),
        }
    }
}

#[test]
fn computed_columns_are_named_as_written() {
    let folder = Folder::new();
    folder.write("n.csv", "a,b\n1,2\n");
    let sql = "SELECT a + b, -a, a * 2 - b, abs(a), sum(a + b) FROM '$/n.csv' GROUP BY a, b";
    let columns = folder.run_sql(sql).column_names();
    assert_eq!(columns[0], "a + b");
    assert_eq!(columns[4], "sum(a + b)");
    let sql = "SELECT a + b AS k, count() AS n FROM '$/n.csv' GROUP BY a + b ORDER BY a + b";
    assert_eq!(folder.run_sql(sql).rows(), [["3", "1"]]);
}

#[test]
fn rounding_keeps_numbers_without_fraction() {
    let folder = Folder::new();
    folder.write(
        "f.csv",
        "f,n\n1e300,15\n-1e300,5\n9007199254740992,1\n1.25,400\n1.25,1\n-1.25,-400\n,2\n",
    );
    let sql = "SELECT round(f, n), trunc(f, n) FROM '$/f.csv'";
    let expected = [
        ["1e300", "1e300"],
        ["-1e300", "-1e300"],
        ["9007199254740992.0", "9007199254740992.0"],
        ["1.25", "1.25"],
        ["1.3", "1.2"],
        ["-0.0", "-0.0"],
        ["∅", "∅"],
    ];
    assert_eq!(folder.run_sql(sql).rows(), expected);
    for (call, expected) in [
        ("round(1e300, 15)", "1e300"),
        ("trunc(1.5, 400)", "1.5"),
        ("round(2.675, 2)", "2.68"),
        ("round(1234.5, -2)", "1200.0"),
        ("round(CAST(1e30 AS FLOAT), 20)", "1e30"),
        ("round(CAST(2.345 AS DECIMAL(9,3)), 2)", "2.35"),
        ("round(5, -1)", "10"),
    ] {
        assert_eq!(folder.run_sql(&format!("SELECT {call}")).single_value(), expected, "{call}");
    }
}

#[test]
fn padding_to_a_negative_length_returns_empty_text() {
    let folder = Folder::new();
    folder.write("p.csv", "s,n\nab,-3\ncd,4\nef,\n");
    let padded = folder.run_sql("SELECT s, lpad(s, n, '-') AS l, rpad(s, n) AS r FROM '$/p.csv'");
    assert_eq!(padded.sorted_rows(), [["ab", "", ""], ["cd", "--cd", "cd  "], ["ef", "∅", "∅"]]);
}

#[test]
fn subquery_columns_are_named_like_result_columns() {
    let folder = Folder::new();
    folder.write("c.csv", "k,s\n1,a\n");
    for select in [
        "k + 1",
        "K+1",
        "(k + 1)",
        "CAST(k + 1 AS TEXT)",
        "(k)",
        "s || '!'",
        "'a', 1",
        "round(avg(k), 2)",
        "sum(k) FILTER (WHERE k > 1)",
        "row_number() OVER (ORDER BY k)",
        "date_trunc('month', TIMESTAMP '2024-01-01')",
        "DATE '2024-01-01' + INTERVAL '1 day'",
        "(SELECT max(k) FROM '$/c.csv')",
        "count(DISTINCT k)",
    ] {
        let columns = |sql: String| folder.run_sql(&sql).column_names();
        let expected = columns(format!("SELECT {select} FROM '$/c.csv'"));
        let derived = columns(format!("SELECT * FROM (SELECT {select} FROM '$/c.csv')"));
        assert_eq!(derived, expected, "{select}");
        let with = format!("WITH q AS (SELECT {select} FROM '$/c.csv') SELECT * FROM q");
        assert_eq!(columns(with), expected, "{select}");
    }
    // The result names the cast; an outer query refers to the column by its name without the cast.
    for (select, result, derived) in [
        ("CAST(k AS TEXT)", "CAST(k AS TEXT)", "k"),
        ("k::TEXT", "k::TEXT", "k"),
        ("-k", "-k", "-k"),
    ] {
        let of = format!("SELECT {select} FROM '$/c.csv'");
        assert_eq!(folder.run_sql(&of).column_names(), [result]);
        assert_eq!(folder.run_sql(&format!("SELECT * FROM ({of})")).column_names(), [derived]);
    }
    // An outer query can use such a name, and a struct keeps its fields.
    let sql = "SELECT \"k + 1\" FROM (SELECT k + 1 FROM '$/c.csv' UNION ALL SELECT 7)";
    assert_eq!(folder.run_sql(sql).sorted_rows(), [["2"], ["7"]]);
    let fields = folder.run_sql("SELECT * FROM (SELECT unnest({'x': k, 'y': s}) FROM '$/c.csv')");
    assert_eq!(fields.rows(), [["1", "a"]]);
}
