//! Tests of sums past the width of their type.

use tidemill_engine::{Error, Query};

use crate::common::{Folder, query, run_query, settings};

fn evaluate_aggregate(schema: &str, values: &[&str], answer: &str) -> Result<String, Error> {
    let folder = Folder::new();
    folder.write("x.csv", format!("x\n{}\n", values.join("\n")));
    let sql = folder.substitute_path(&format!("SELECT {answer} AS a FROM '$/x.csv'"));
    let query = Query { schema: Some(format!("x {schema}")), ..query(sql) };
    run_query(&query, &settings()).map(|answer| answer.single_value())
}

const BIGINT_MAX: &str = "9223372036854775807";
const UBIGINT_MAX: &str = "18446744073709551615";

#[test]
fn sum_that_fits_is_exact_although_partial_sums_overflow() {
    for (schema, values, answer, expected) in [
        ("BIGINT", &[BIGINT_MAX, "1", "-2"][..], "sum(x)", "9223372036854775806"),
        ("BIGINT", &["-9223372036854775808", "-1", "1"], "sum(x)", "-9223372036854775808"),
        ("BIGINT", &[BIGINT_MAX, BIGINT_MAX], "avg(x)", "9.223372036854776e18"),
        ("BIGINT UNSIGNED", &[UBIGINT_MAX], "sum(x)", UBIGINT_MAX),
        ("BIGINT UNSIGNED", &["1", "2"], "sum(x)", "3"),
        ("BIGINT UNSIGNED", &[UBIGINT_MAX, "1"], "max(x)", UBIGINT_MAX),
        ("DECIMAL(10, 2)", &["1.25", "2.50"], "sum(x)", "3.75"),
        ("DECIMAL(10, 2)", &["1.00", "2.00", "2.00"], "avg(x)", "1.666667"),
        ("DECIMAL(10, 2)", &["-1.00", "-2.00", "-2.00"], "avg(x)", "-1.666667"),
        (
            "DECIMAL(38, 0)",
            &["90000000000000000000000000000000000000", "-1"],
            "sum(x)",
            "89999999999999999999999999999999999999",
        ),
        (
            "DECIMAL(38, 10)",
            &["1234567890123456789.5", "1"],
            "avg(x)",
            "617283945061728395.25000000000000",
        ),
        ("TINYINT", &["127", "127"], "sum(x)", "254"),
        ("DOUBLE", &["1e308", "1e308", "-1e308"], "sum(x)", "1e308"),
        ("DOUBLE", &["0.1", "0.2", "-0.3"], "sum(x)", "2.7755575615628914e-17"),
    ] {
        let found = evaluate_aggregate(schema, values, answer)
            .unwrap_or_else(|e| panic!("{values:?}: {e}"));
        assert_eq!(found, expected, "{answer} of {values:?}");
    }
}

#[test]
fn sum_that_does_not_fit_is_an_error() {
    for (schema, values, answer, message) in [
        ("BIGINT", &[BIGINT_MAX, "1"][..], "sum(x)", "does not fit BIGINT"),
        ("BIGINT", &["-9223372036854775808", "-1"], "sum(x)", "does not fit BIGINT"),
        ("BIGINT UNSIGNED", &[UBIGINT_MAX, "1"], "sum(x)", "does not fit BIGINT UNSIGNED"),
        (
            "DECIMAL(38, 0)",
            &["90000000000000000000000000000000000000"; 2],
            "sum(x)",
            "does not fit DECIMAL(38, 0)",
        ),
        (
            "DECIMAL(38, 0)",
            &["90000000000000000000000000000000000000", "1"],
            "avg(x)",
            "does not fit DECIMAL(38, 4)",
        ),
    ] {
        match evaluate_aggregate(schema, values, answer) {
            Err(error @ Error::Overflow { .. }) => {
                let text = error.to_string();
                assert!(text.contains(message) && text.contains("hint:"), "{text}");
            }
            Err(error) => panic!("{answer} of {values:?}: {error:?}"),
            Ok(found) => panic!("{answer} of {values:?} is {found}"),
        }
    }
}
